"""Several processes that compute together: threads play most of them; a few are real, and one of these is killed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from ctypes import string_at
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Queue
from threading import Event, local
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import ArgumentError, DeviceError, GenError, ProcessError, RunError
from gen.families.merge import MergeSpec, partial_spec
from gen.families.reduction import Reduction
from gen.families.regions import Region
from gen.families.stencil import Stencil, StencilSpec
from gen.families.stencil.oracle import expected
from gen.families.system import System
from gen.families.transpose import Transpose
from gen.runtime import dlpack, transport
from gen.runtime import load as loading
from gen.runtime import processes as connections
from gen.runtime.processes import _HEAD, Processes
from gen.runtime.sharded_reduction import MERGES
from gen.runtime.sharded_transpose import block_spec
from gen.runtime.simulated import Machine
from gen.store.winners import Winner
from tests.fakes import OracleRunner
from tests.sharding import changed, computed_on, drawn, drawn_system, right, same

HEAT = Stencil.catalogue[0]
CELLS = np.random.default_rng(1).integers(-9, 10, (700, 5)).astype(np.float32)
LONG_SECONDS = 300.0  # in which all happens that is waited for
WORKER = Path(__file__).parent.parent / "process.py"


def free_address() -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        return f"127.0.0.1:{found.getsockname()[1]}"


def together(count: int, work: Callable[[Processes], Any]) -> list[Any]:
    """What each of several processes gives, or its error; a thread plays each."""
    address = free_address()

    def run(rank: int) -> Any:
        processes = gen.join(address, rank=rank, size=count, seconds=LONG_SECONDS)
        try:
            return work(processes)
        except GenError as error:
            return error
        finally:
            processes.close()

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


def with_processes(processes: Processes, load: Any = gen.load) -> Any:
    def loaded(*arguments: Any, **named: Any) -> Any:
        return load(*arguments, **{**named, "processes": processes})

    return loaded


def device(seed: int) -> Any:
    return Machine(seed=seed, runner=OracleRunner()).devices(1)[0]


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(8), id="few"),
        pytest.param(range(8, 24), id="some", marks=pytest.mark.exhaustive),
        pytest.param(range(24, 64), id="many", marks=pytest.mark.further),
    ],
)
def test_stencils_and_systems_have_the_bits_of_one_device(seeds: range) -> None:
    for seed in seeds:
        for problem in (drawn(seed), drawn_system(seed)):
            wanted = right(problem)

            def work(processes: Processes, problem: Any = problem, seed: int = seed) -> list[Any]:
                return computed_on([device(seed + processes.rank)], problem, with_processes(processes))

            for found in together(int(np.prod(problem.grid)), work):
                assert not isinstance(found, GenError), found
                assert same(found, wanted), f"seed {seed}, {problem.spec}"


def sums_and_transposes(load: Any = gen.load) -> list[tuple[list[float], list[Any]]]:
    """In each of three processes: sums of two arrays that are split in two ways, and two matrices, turned."""

    def work(processes: Processes) -> tuple[list[float], list[Any]]:
        devices, loaded = [device(processes.rank)], with_processes(processes, load)
        total = loaded(gen.reduction("sum", "float32"), devices=devices)
        turn = loaded(gen.permutation((1, 0), "float32"), devices=devices)
        arrays = [total.scatter(CELLS), total.scatter(CELLS + 1, [(100, 350, 250), (5,)])]
        sums = [float(one.numpy()) for one in [total(array) for array in arrays]]
        return sums, [turn(turn.scatter(one)).gather() for one in (CELLS, CELLS[:9])]

    return together(3, work)


def are_right(found: list[Any]) -> bool:
    wanted = [float(CELLS.sum()), float(CELLS.sum()) + CELLS.size]
    return all(
        not isinstance(one, GenError) and one[0] == wanted and same(one[1], [CELLS.T.copy(), CELLS[:9].T.copy()])
        for one in found
    )


def test_reductions_and_transposes_do_too() -> None:
    assert are_right(sums_and_transposes())


CORNERS = StencilSpec("corners", (0.25, 0, -0.5, 0, 0.375, 0, 0.5, 0, 0.125), boundary="wrap")
SQUARE = np.random.default_rng(2).random((12, 14), np.float32)


def stepped(load: Any = gen.load, spec: StencilSpec = CORNERS) -> list[Any]:
    """In each of four processes, each with a quarter of a domain, eight steps."""

    def work(processes: Processes) -> Any:
        kernel = with_processes(processes, load)(
            spec, devices=[device(processes.rank)], grid=(2, 2), steps_per_exchange=2
        )
        return kernel(kernel(kernel.scatter(SQUARE), steps=5), steps=3).gather()

    return together(4, work)


def all_stepped(found: list[Any]) -> bool:
    wanted = expected(CORNERS, SQUARE, 8).value.tobytes()
    return all(not isinstance(one, GenError) and one.tobytes() == wanted for one in found)


MUTANTS = {
    "rows-are-sent-with-what-lies-between-them": (
        "transport",
        "if source.contiguous:",
        "if True:",
    ),
    "rows-come-without-what-lies-between-them": (
        "transport",
        "target if target.contiguous else",
        "target if True else",
    ),
    "the-host-does-not-wait-for-what-it-sends": (
        "transport",
        "self._device.synchronize(stream)",
        "pass",
    ),
    "what-came-is-not-unpacked": (
        "transport",
        "if room is not target:",
        "if False:",
    ),
    "rows-of-all-streams-share-a-room": (
        "transport",
        "self._rooms[rows, stream].address, rows",
        "next(iter(self._rooms.values())).address, rows",
    ),
    "a-rim-does-not-wait-for-what-comes": (
        "sharded_kernel",
        "_wait_for(rank, stream, decomposition.progress[owner].sent)",
        "pass",
    ),
    "copies-are-marked-before-they-are-queued": (
        "sharded_kernel",
        "progress.sent = rank.device.mark(rank.rim.handle)",
        "progress.sent = progress.sent or rank.device.mark(rank.rim.handle)",
    ),
    "the-first-process-alone-has-a-sum": (
        "sharded_reduction",
        "for number in range(1, len",
        "for number in range(len(self.ranks) - 1, len",
    ),
    "blocks-for-several-processes-share-a-room": (
        "sharded_transpose",
        "self._room(number, ~other, ",
        "self._room(number, ~number, ",
    ),
    "columns-are-read-before-they-have-come": (
        "sharded_transpose",
        "self.meet()\n\n    def _move",
        "pass\n\n    def _move",
    ),
}


@pytest.mark.parametrize(
    "name", [*list(MUTANTS)[:2], *(pytest.param(one, marks=pytest.mark.exhaustive) for one in list(MUTANTS)[2:])]
)
def test_every_mutant_of_an_exchange_is_caught(name: str) -> None:
    module, old, new = MUTANTS[name]
    load = changed(f"runtime.{module}", old, new)
    caught = not all_stepped(stepped(load)) if module in ("transport", "sharded_kernel") else False
    assert caught or not are_right(sums_and_transposes(load))


class FakeNccl:
    """NCCL as far as it is used: threads play processes, and the memory of a GPU is the host's."""

    def __init__(self) -> None:
        self.own = local()  # the device of a thread, and what its group holds
        self.sent: dict[tuple[int, int], Queue[bytes]] = defaultdict(Queue)
        self.UniqueId = SimpleNamespace(from_bytes=bytes)
        self.Communicator = self
        self.aborted = 0

    def get_unique_id(self) -> bytes:
        return b"the same"

    def init(self, size: int, rank: int, number: bytes) -> FakeCommunicator:
        assert number == b"the same"
        assert rank in range(size)
        return FakeCommunicator(self, rank)

    @contextmanager
    def group(self) -> Iterator[None]:
        self.own.asked = []
        yield
        device = self.own.device
        for sends, rank, address, size, other, stream in sorted(self.own.asked, key=lambda one: not one[0]):
            if sends:
                device.synchronize(stream)
                self.sent[rank, other].put(string_at(address, size))
            else:
                content = np.frombuffer(self.sent[other, rank].get(timeout=LONG_SECONDS), np.uint8)
                assert content.size == size
                device.upload(address, content, stream)


@dataclass(frozen=True)
class FakeCommunicator:
    """That of one process."""

    nccl: FakeNccl
    rank: int

    def abort(self) -> None:
        self.nccl.aborted += 1

    def send(self, buffer: Any, peer: int, *, stream: int) -> None:
        self._ask(True, buffer, peer, stream)

    def recv(self, buffer: Any, peer: int, *, stream: int) -> None:
        self._ask(False, buffer, peer, stream)

    def _ask(self, sends: bool, buffer: Any, peer: int, stream: int) -> None:
        assert buffer.__dlpack_device__() == (dlpack.CUDA, self.nccl.own.device.index)
        taken = dlpack.describe(buffer, -1)
        assert taken.dtype == np.uint8
        self.nccl.own.asked.append((sends, self.rank, taken.address, taken.shape[0], peer, stream))


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> FakeNccl:
    fake = FakeNccl()
    monkeypatch.setitem(sys.modules, "nccl", SimpleNamespace(core=fake))
    monkeypatch.setitem(sys.modules, "nccl.core", fake)
    return fake


def test_nccl_copies_what_hosts_would(nccl: FakeNccl, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(processes: Processes, device: Any) -> transport.Transport:
        nccl.own.device = device
        return transport.NcclTransport(processes, device)

    monkeypatch.setattr(transport, "_made", made)
    assert all_stepped(stepped())


def test_nccl_takes_over_where_each_process_has_it_and_a_gpu(
    nccl: FakeNccl, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gpu: Any = SimpleNamespace(index=0, enter=lambda: True, leave=lambda _: None)

    def kinds(versions: list[str | None], gpus: list[str]) -> list[str]:
        def work(processes: Processes) -> str:
            nccl.own.rank = processes.rank
            return type(transport._made(processes, gpu)).__name__

        monkeypatch.setattr(transport, "_nccl_version", lambda: versions[nccl.own.rank])
        monkeypatch.setattr(transport, "find_gpu", lambda _: SimpleNamespace(uuid=gpus[nccl.own.rank]))
        return [str(one) for one in together(2, work)]

    assert kinds(["2.30", "2.30"], ["a", "b"]) == ["NcclTransport"] * 2
    assert caplog.text == ""
    assert kinds(["2.30", "2.30"], ["a", "a"]) == ["Transport"] * 2
    assert (
        "through the host's memory: several share a GPU, and NCCL_MULTI_RANK_GPU_ENABLE is not 1 in all of them"
        in caplog.text
    )
    assert kinds(["2.30", None], ["a", "b"]) == ["Transport"] * 2
    assert "not all of them have a GPU, and NCCL: pip install" in caplog.text
    said = "All processes must have the same version of NCCL (got 2.30, 2.29)"
    assert kinds(["2.30", "2.29"], ["a", "b"]) == [said] * 2
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    assert kinds(["2.30", "2.30"], ["a", "a"]) == ["NcclTransport"] * 2
    in_first = SimpleNamespace(get=lambda _: "1" if nccl.own.rank == 0 else None)  # the other must not wait for NCCL
    monkeypatch.setattr(transport, "os", SimpleNamespace(environ=in_first))
    assert kinds(["2.30", "2.30"], ["a", "a"]) == ["Transport"] * 2


def test_what_nccl_refuses_is_said_and_a_death_ends_its_kernels(
    nccl: FakeNccl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise RuntimeError("unhandled system error")

    made = transport.NcclTransport(Processes(0, {}), device(0))
    processes = made._processes
    monkeypatch.setattr(nccl, "init", refused)
    with pytest.raises(ProcessError, match=r"NCCL must connect all processes \(got unhandled system error\)"):
        transport.NcclTransport(processes, device(0))
    waits = Event()
    monkeypatch.setattr(nccl, "init", lambda *_: waits.wait(LONG_SECONDS))
    with ThreadPoolExecutor(1) as threads:
        connecting = threads.submit(transport.NcclTransport, processes, device(0))
        processes._fail(3)
        assert "Process 3 must not die" in str(connecting.exception(timeout=LONG_SECONDS))
    waits.set()
    assert nccl.aborted == 1
    with pytest.raises(ProcessError, match="Process 3 must not die while others compute with it"):
        made.flush()


def test_each_process_has_the_shard_of_its_rank_alone() -> None:
    def work(processes: Processes) -> tuple[Any, Any]:
        kernel = gen.load(HEAT, devices=[device(0)], processes=processes)
        array = kernel.empty((10, 4), [(3, 7), (4,)])
        (shard,), (where,) = array.shards, array.slices
        np.from_dlpack(shard)[...] = processes.rank
        array.synchronize()
        return where, kernel(array, steps=0).gather()

    for rank, (where, whole) in enumerate(together(2, work)):
        assert where == ((slice(0, 3), slice(3, 10))[rank], slice(0, 4))
        assert np.array_equal(whole, np.repeat([0, 1], (3, 7))[:, None] * np.ones((1, 4)))


def test_processes_that_load_different_specs_are_told() -> None:
    def work(processes: Processes) -> Any:
        steps = 2 + processes.rank // 2
        return gen.load(HEAT, devices=[device(0)], processes=processes, steps_per_exchange=steps)

    for error in together(3, work):
        assert isinstance(error, ProcessError)
        assert "Process 2 must have the same steps_per_exchange as process 0 in gen.load, 2 (got 3)" in str(error)
    with pytest.raises(DeviceError, match=r"must name one in each of several processes \(got 2\)"):
        gen.load(HEAT, devices=Machine().devices(2), processes=Processes(0, {}))
    unasked: Any = gen.load
    with pytest.raises(ArgumentError, match="processes must come with devices"):
        unasked(HEAT, processes=Processes(0, {}))


def test_tuned_variants_count_for_the_spec_and_the_device_and_with_their_sizes(
    monkeypatch: Any, tmp_path: Path
) -> None:
    """Of a tuned variant the region counts; variants of other specs and for other devices do not."""
    heat, other = (Stencil().name_of(one) for one in (HEAT, CORNERS))
    name = Machine().devices(1)[0].name
    wide, small = Region.exactly({"n": 1000}), Region.exactly({"n": 10})

    def digest(*winners: Winner, spec: Any = HEAT, family: Any = Stencil()) -> str:  # noqa: B008
        monkeypatch.setattr(loading, "winners_of", lambda _: winners)
        return loading.digest_of_winners(family, spec, device(0), tmp_path)

    def won(spec: str, variant: str, region: Region = small, on: str = name) -> Winner:
        return Winner(on, spec, "all sizes", variant, {"us": len(variant)}, region)

    first = digest(won(heat, "a"))
    assert len({digest(), first, digest(won(heat, "b")), digest(won(heat, "a", wide))}) == 4
    assert digest(won(heat, "a"), won(other, "b"), won(heat, "b", on="Another GPU")) == first
    total = gen.reduction("sum", "float16")
    families = (Reduction(), partial_spec(total)), (MERGES, MergeSpec(total))
    turn = gen.permutation((1, 0), "float32")
    for family, spec, of, called in (
        *((Reduction(), total, *one) for one in families), (Transpose(), turn, Transpose(), block_spec(turn)),
    ):  # fmt: skip
        found = digest(won(of.name_of(called), "a"), spec=spec, family=family)
        assert found != digest(spec=spec, family=family), called


(U,), (K,) = gen.fields("u"), gen.scalars("k")
SHOT = gen.system({U: U - K * U.laplace()}, sources=U)
ONES = np.ones((8, 5), np.float32)
TOTAL, TURN = gen.reduction("sum", "float32", axis=1), gen.permutation((1, 0), "float32")


def shot(processes: Processes, k: float = 0.25, place: int = 2, wavelet: float = 1.0) -> None:
    kernel = gen.load(SHOT, devices=[device(0)], processes=processes)
    kernel(kernel.scatter(ONES), np.array([[place, 2]]), np.full((4, 1), wavelet, np.float32), k)


def heated(processes: Processes, steps: int = 3, cols: int = 5, per_exchange: int = 1, empty: bool = False) -> None:
    kernel = gen.load(HEAT, devices=[device(0)], processes=processes)
    kernel.steps_per_exchange = per_exchange
    array = kernel.empty((8, cols)) if empty else kernel.scatter(np.ones((8, cols), np.float32))
    kernel(array, steps=steps)


def of_other_rows(processes: Processes, spec: Any, uneven: bool = False, uneven_out: bool = False) -> None:
    """A call on one of two arrays, which are split in two ways, with one of two for its result."""
    kernel: Any = gen.load(spec, devices=[device(0)], processes=processes)
    arrays = [kernel.scatter(ONES), kernel.scatter(ONES, [(2, 4, 2), (5,)])]
    outs = [kernel.empty((5, 8), extents, np.float32) for extents in (None, [(1, 1, 3), (8,)])]
    kernel(arrays[uneven], **({"out": outs[uneven_out]} if spec is TURN else {}))


OTHER_CALLS: dict[str, tuple[Callable[..., None], dict[str, Any], str]] = {
    "scalar": (shot, {"k": 0.5}, "have the same k as process 0 in a call of SHOT, 0.25 (got 0.5)"),
    "place": (shot, {"place": 3}, "have the same u_sources as process 0 in a call of SHOT, int"),
    "wavelet": (shot, {"wavelet": 2.0}, "have the same u_wavelets as process 0 in a call of SHOT, float32 of shape"),
    "steps": (heated, {"steps": 4}, "have the same steps as process 0 in a call of HEAT, 3 (got 4)"),
    "phases": (heated, {"per_exchange": 2}, "have the same steps_per_exchange as process 0 in a call of HEAT, 1 (got"),
    "shape": (heated, {"cols": 6}, "have the same cuts as process 0 in scatter of HEAT, ((0, 3, 6, 8), (0, 5)) (got"),
    "method": (heated, {"empty": True}, "make the same calls as process 0, which makes scatter of HEAT (got empty of"),
    "rows-of-a-sum": (
        partial(of_other_rows, spec=TOTAL), {"uneven": True}, "have the same cuts as process 0 in a call of",
    ),
    "rows-of-a-transpose": (
        partial(of_other_rows, spec=TURN), {"uneven": True}, "have the same cuts as process 0 in a call of",
    ),
    "rows-of-its-result": (
        partial(of_other_rows, spec=TURN), {"uneven_out": True}, "have the same cuts of out as process 0 in a call of",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_CALLS)
def test_calls_that_differ_are_refused_in_all_processes(name: str) -> None:
    """The last one makes another call. All name it, and what differs, and none computes."""
    work, other, said = OTHER_CALLS[name]
    said = said.replace("HEAT", Stencil().name_of(HEAT)).replace("SHOT", System().name_of(SHOT))
    found = together(3, lambda processes: work(processes, **(other if processes.rank == 2 else {})))
    for error in found:
        assert isinstance(error, ProcessError), found
        assert str(error).startswith(f"Process 2 must {said}")


REFUSED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "scatter": (
        lambda kernel: kernel.scatter(ONES.astype(np.float64)), lambda kernel: kernel.scatter(ONES),
        "scatter of {} (got array must hold f32 elements (got float64)",
    ),
    "empty": (
        lambda kernel: kernel.empty((8,)), lambda kernel: kernel.empty((8, 5)),
        "empty of {} (got shape must be 2",
    ),
    "call": (
        lambda kernel: kernel(kernel.scatter(ONES), steps=-1), lambda kernel: kernel(kernel.scatter(ONES)),
        "a call of {} (got steps must be",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_one_refuses_all_refuse_and_go_on(name: str) -> None:
    """One has an error of its own, which it catches; the others learn it and do not wait; then all compute."""
    wrong, fine, said = REFUSED[name]

    def work(processes: Processes) -> Any:
        kernel = gen.load(HEAT, devices=[device(0)], processes=processes)
        with pytest.raises(GenError) as caught:
            (wrong if processes.rank == 1 else fine)(kernel)
        return caught.value, kernel(kernel.scatter(ONES)).gather()

    found = together(3, work)
    assert not any(isinstance(one, GenError) for one in found), found
    for rank, (error, cells) in enumerate(found):
        assert isinstance(error, ProcessError) == (rank != 1)
        assert rank == 1 or f"Process 1 has refused {said.format(Stencil().name_of(HEAT))}" in str(error)
        assert cells.tobytes() == expected(HEAT, ONES, 1).value.tobytes()


def test_what_one_refuses_to_load_nobody_loads() -> None:
    def work(processes: Processes) -> Any:
        count = 2 - processes.rank
        with pytest.raises(GenError) as caught:
            gen.load(HEAT, devices=Machine().devices(count), processes=processes)
        spec = "stencil_nowhere" if count == 1 else HEAT
        with pytest.raises(GenError) as again:
            gen.load(spec, devices=[device(0)], processes=processes)
        gen.load(HEAT, devices=[device(0)], processes=processes)
        return caught.value, again.value

    (mine, heard), (told, own) = together(2, work)
    assert isinstance(mine, DeviceError)
    assert "Process 0 has refused gen.load (got devices must name one in each of several processes" in str(told)
    assert "Process 1 has refused gen.load" in str(heard)
    assert not isinstance(own, ProcessError)


def test_a_call_that_one_cannot_finish_ends_all() -> None:
    """A launch that fails in one of them, when others wait for what it computes, and later calls."""

    def work(processes: Processes) -> Any:
        kernel: Any = gen.load(HEAT, devices=[device(0)], processes=processes, steps_per_exchange=1)
        array = kernel.scatter(ONES)
        if processes.rank == 1:
            compute, calls = kernel._compute, list[None]()

            def failing(*arguments: Any) -> None:
                calls.append(None)
                if len(calls) == 2:
                    raise RunError("launch", "failed")
                compute(*arguments)

            kernel._compute = failing
        errors = []
        for _ in range(2):
            with pytest.raises(GenError) as caught:
                kernel(array, steps=5).gather()
            errors.append(str(caught.value))
        return errors

    said = "Process 1 could not finish a call that all had begun (got launch failed). Start all of them again"
    assert together(3, work) == [[said, said], ["launch failed", said], [said, said]]


def test_those_that_do_other_things_are_told() -> None:
    """One gathers where the other computes: neither takes the other's bytes for its own."""

    def work(processes: Processes) -> Any:
        kernel = gen.load(HEAT, devices=[device(0)], processes=processes)
        array = kernel.scatter(ONES)
        return array.gather() if processes.rank else kernel(array)

    one, other = together(2, work)
    assert "Process 1 must make the same calls as process 0, in the same order (got 80 bytes where a word" in str(one)
    assert "Process 0 must make the same calls as process 1, in the same order (got a word where" in str(other)


def test_one_that_has_ended_is_named_by_those_that_wait_for_it() -> None:
    def work(processes: Processes) -> Any:
        kernel = gen.load(HEAT, devices=[device(0)], processes=processes)
        if processes.rank < 2:
            kernel.scatter(np.ones((8, 5), np.float32)).gather()

    assert "Process 2 has ended, and process 0 waits for it" in str(together(3, work)[0])


@pytest.mark.parametrize(
    "changed", [{"gen": "0.0.1"}, {"gen": gen.__version__}, {"rank": 7}, {"size": 3}, {"rank": 0}], ids=str
)
def test_other_versions_and_other_numbers_are_refused(changed: dict[str, Any], monkeypatch: Any) -> None:
    """A version counts with its sources."""
    say = connections._say

    def said(link: Any, words: Any) -> None:
        say(link, {**words, **changed} if "gen" in words else words)

    monkeypatch.setattr(connections, "_say", said)
    address = free_address()
    with ThreadPoolExecutor(2) as threads:
        made = [threads.submit(gen.join, address, rank=rank, size=2, seconds=LONG_SECONDS) for rank in range(2)]
        errors = [one.exception() for one in made]
    for error in errors:
        assert isinstance(error, ProcessError)
        assert str(error).startswith("All processes must come, each once, with the same version (got process ")


def test_those_that_do_not_come_are_named_and_strangers_are_sent_away() -> None:
    address = free_address()
    host, port = address.split(":")
    with ThreadPoolExecutor(1) as threads:
        made = threads.submit(gen.join, address, rank=0, size=3, seconds=1)
        for word in (b"GET / HTTP/1.0\r\n\r\n", b"", _HEAD.pack(b"c", 2) + b"{}"):
            for _ in range(100):
                try:
                    with socket.create_connection((host, int(port))) as link:
                        link.sendall(word)
                        break
                except OSError:
                    time.sleep(0.01)
        assert "processes [1, 2] did not come in time" in str(made.exception())
    with pytest.raises(ProcessError, match=rf"Another process must listen at {address}"):
        gen.join(address, rank=1, size=2, seconds=0.2)


def test_a_connection_to_itself_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may give a process that connects, before anybody listens, the port that it connects to."""
    with socket.socket() as itself, socket.create_server(("127.0.0.1", 0)) as listener:
        itself.bind(("127.0.0.1", 0))
        itself.connect(itself.getsockname())
        with socket.create_connection(listener.getsockname()) as other:
            links = iter([itself, other])
            monkeypatch.setattr(socket, "create_connection", lambda *_: next(links))
            assert connections._connected(("127.0.0.1", 1), 0.0) is other
        assert itself.fileno() == -1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "must be an address, or a group of torch.distributed or mpi4py"),
        ({"group": 3}, "must be an address, or a group of torch.distributed or mpi4py"),
        ({"group": "here"}, "must be HOST:PORT"),
        ({"group": "here:65536", "rank": 0, "size": 2}, "must be HOST:PORT"),
        *(
            ({"group": f"{host}:80", "rank": 0, "size": 2}, "must be HOST:PORT")
            for host in ("", "a" * 70, "\u00e4" * 70, "a..b", "h\0st")
        ),
        ({"group": "here:80", "rank": 2, "size": 2}, "0 <= rank < size"),
        ({"group": "here:80"}, "0 <= rank < size"),
        *(
            ({"group": "here:80", "rank": 0, "size": 1, "seconds": odd}, "seconds must be a number of seconds above 0")
            for odd in ("5", None, [1], True, 0, -1, float("nan"), float("inf"))
        ),
    ],
)
def test_what_is_no_group_is_said(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        gen.join(**arguments)


@pytest.mark.parametrize(("group", "family"), [("[::1]:80", socket.AF_INET6), ("127.0.0.1:80", socket.AF_INET)])
def test_the_first_process_listens_by_the_version_of_its_address(
    group: str, family: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listens(address: tuple[str, int], **options: Any) -> None:
        raise OSError(f"{address} {int(options['family'])}")

    monkeypatch.setattr(socket, "create_server", listens)
    with pytest.raises(ProcessError, match=rf"\('.*', 80\) {family}\)"):
        gen.join(group, rank=0, size=2)


@pytest.mark.parametrize("library", ["torch", "jax", "mpi"])
def test_groups_of_other_libraries_are_taken(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for what each of them offers; a thread plays each process, and knows its rank by its name."""
    here, told, ready = local(), [""], Event()

    def broadcast(text: str) -> str:
        if here.rank == 0:
            told[0] = text
            ready.set()
        assert ready.wait(LONG_SECONDS)
        return told[0]

    def listed(texts: list[str], **_: Any) -> None:
        texts[0] = broadcast(texts[0])

    def as_array(said: Any) -> Any:
        return np.frombuffer(broadcast(bytes(said).decode()).encode(), np.uint8)

    class Comm:
        def Get_rank(self) -> int:  # noqa: N802
            return int(here.rank)

        def Get_size(self) -> int:  # noqa: N802
            return 2

        def bcast(self, text: str, root: int) -> str:
            assert root == 0
            return broadcast(text)

    def yes() -> bool:
        return True

    torch = SimpleNamespace(
        is_available=yes, is_initialized=yes, get_rank=lambda _: here.rank, get_world_size=lambda _: 2,
        broadcast_object_list=listed,
    )  # fmt: skip
    utils = SimpleNamespace(broadcast_one_to_all=as_array)
    jax = SimpleNamespace(
        distributed=SimpleNamespace(is_initialized=yes), process_index=lambda: here.rank, process_count=lambda: 2,
        experimental=SimpleNamespace(multihost_utils=utils),
    )  # fmt: skip
    mpi = SimpleNamespace(Comm=Comm, COMM_WORLD=Comm(), Is_initialized=yes)
    for name in ("torch.distributed", "jax", "jax.experimental", "mpi4py.MPI"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name, module in {
        "torch": {"torch.distributed": torch}, "jax": {"jax": jax, "jax.experimental": jax.experimental},
        "mpi": {"mpi4py.MPI": mpi},
    }[library].items():  # fmt: skip
        monkeypatch.setitem(sys.modules, name, module)

    def run(rank: int) -> str:
        here.rank = rank
        processes = gen.join()
        said = processes.all_say(f"I am {rank}")
        processes.close()
        return f"{processes}: {said}"

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(run, range(2)))
    assert found == [f"<process {rank} of 2>: ['I am 0', 'I am 1']" for rank in range(2)]


@pytest.fixture
def started() -> Iterator[Callable[..., list[subprocess.Popen[str]]]]:
    running: list[subprocess.Popen[str]] = []

    def start(size: int, *words: str) -> list[subprocess.Popen[str]]:
        address = free_address()
        for rank in range(size):
            command = [sys.executable, str(WORKER), address, str(rank), str(size), *words]
            running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return running

    yield start
    for one in running:
        one.kill()
        one.communicate()


def test_real_processes_have_the_bits_of_one_and_end_when_one_of_them_is_killed(started: Any) -> None:
    """All three compute, and say so; then one is killed while others wait for it."""
    running = started(3)
    found = {json.loads(one.stdout.readline())["digest"] for one in running}
    from tests.process import digest_of_one

    assert found == {digest_of_one()}
    running[2].kill()
    for number, one in enumerate(running):
        if number != 2:
            error = json.loads(one.stdout.readline())["error"]
            assert error == "Process 2 must not die while others compute with it. Start all of them again"
