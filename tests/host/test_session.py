"""A problem on a GPU made of NumPy arrays: what a variant does wrong is its own fault alone."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gen.dtypes import U8, DType
from gen.errors import DeviceError, RunError
from gen.families import FAMILIES
from gen.families.base import Array, Expected, Extents, Layout, Operand, Spec, Variant
from gen.families.names import find_family, find_variant
from gen.families.steps import Step
from gen.families.transpose import Transpose
from gen.gpu.elements import Rows
from gen.gpu.nvml import Clocks
from gen.gpu.trial import Entrant, Problem, Rounds, Trial
from gen.toolchain.compiled import Compiled, Resources
from tests.fake_family import FakeFamily, FakeSpec
from tests.fake_gpu import FakeGpu, FakeKernel

FAMILY = find_family(FAMILIES, "transpose")
PROBLEM = Problem(FAMILY, FAMILY.catalogue[0], {"rows": 5, "cols": 7, "in_pitch": 7, "out_pitch": 5})
NAMES = ("transposeSmemPad", "transposeSmem", "transposeNaiveRow", "transposeNaiveCol")
BASE, FIRST, SECOND, THIRD = (find_variant(FAMILIES, name, {}) for name in NAMES)
MODULES = ("arrays", "buffers", "kernel", "service", "timing", "session")
Fault = Callable[[FakeGpu, Mapping[str, int], int], None]
"""What a kernel does after it has transposed, given the addresses and the number of its launch, counted from 1."""


def entrant(made: Variant) -> Entrant:
    """With a compiler's word on what it takes."""
    return Entrant(made, Compiled(made.name, "sm_90", b"", {made.name: Resources(20, 0, 0, 0, 0, 0)}))


class NumpyService:
    """The service kernels on the fake."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu

    def random(self, address: int, size: int, seed: int, dtype: DType) -> None:
        self.gpu.upload(address, np.random.default_rng((seed, dtype.size)).integers(0, 256, size, np.uint8))

    def fill(self, address: int, size: int, word: int) -> None:
        self.gpu.upload(address, np.full(size // 4, word, np.uint32).view(np.uint8))

    def copy(self, source: int, target: int, size: int) -> None:
        self.gpu.upload(target, self.gpu.download(source, size))

    def checksum(self, address: int, size: int) -> int:
        return hash(self.gpu.download(address, size).tobytes())

    def differing(self, got: int, expected: int, rows: Rows) -> tuple[int, int | None]:
        wrong = (self._elements(got, rows) != self._elements(expected, rows)).any(axis=-1)
        return int(wrong.sum()), int(wrong.argmax()) if wrong.any() else None

    def gaps_written(self, address: int, rows: Rows, poison: int) -> int:
        words = np.full(rows.span // 4 + 1, poison, np.uint32).view(np.uint8)[: rows.span]
        changed = self.gpu.download(address, rows.span) != words
        return int(changed.sum() - changed[self._places(rows)].sum())

    def _elements(self, address: int, rows: Rows) -> Array:
        return self.gpu.download(address, rows.span)[self._places(rows)].reshape(rows.total, rows.size)

    def _places(self, rows: Rows) -> Array:
        return (rows.pitch * np.arange(rows.count)[:, None] + np.arange(rows.elements * rows.size)).reshape(-1)


class NumpyClock:
    """Every launch takes 3 us, unless `slow` holds other times for those that come next."""

    def __init__(self) -> None:
        self.slow: list[float] = []

    def times(self, launch: Callable[[], None], samples: int, setup: Callable[[], None]) -> list[float]:
        for _ in range(samples):
            setup()
            launch()
        return [self.slow.pop(0) if self.slow else 3.0 for _ in range(samples)]


class Bench:
    """A session on the fake, whose kernels misbehave where they are told to."""

    def __init__(self, module: Any, monkeypatch: pytest.MonkeyPatch, problem: Problem = PROBLEM) -> None:
        self.gpu = FakeGpu()
        self.faults: dict[str, Fault] = {}
        self.told: list[str] = []
        self.idle: dict[str, int] = {}  # from which launch on a kernel does nothing
        self.scratch: dict[str, list[int]] = {}  # of each kernel, in which place it was asked for
        launches: dict[str, int] = {}

        class Kernel(FakeKernel):
            def __init__(kernel, variant: Variant, *_: Any) -> None:  # noqa: N805
                super().__init__(variant, self.gpu)
                launches[variant.name] = 0

            def scratch(kernel, extents: Extents, place: int = 0) -> dict[str, int]:  # noqa: N805
                self.scratch.setdefault(kernel.variant.name, []).append(place)
                return super().scratch(extents, place)

            def queue(kernel, planned: Sequence[Any], addresses: Mapping[str, int]) -> None:  # noqa: N805
                name = kernel.variant.name
                launches[name] += bool(planned)
                if launches[name] < self.idle.get(name, 1000):
                    super().queue(planned, addresses)
                if planned and name in self.faults:
                    self.faults[name](self.gpu, addresses, launches[name])

        monkeypatch.setattr(module, "CudaKernel", Kernel)
        self.clock = NumpyClock()
        gpu_bench = module.GpuBench(self.gpu, NumpyService(self.gpu), self.clock, None)
        monkeypatch.setattr(module, "WARM_UP", 0.0)
        self.session = gpu_bench.open(problem, entrant(BASE))
        self.bench = gpu_bench

    def attempt(self, made: Variant, give_up_us: float = 10.0) -> Trial:
        found: Trial = self.session.attempt(entrant(made), give_up_us)
        return found

    def rounds(self, made: Sequence[Variant], turns: int) -> Rounds:
        found: Rounds = self.session.rounds([entrant(one) for one in made], turns, self.told.append)
        return found


@pytest.fixture
def session_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`gen.gpu.session`, imported where there is no driver."""
    stub: Any = ModuleType("gen.gpu.device")
    for name in ("CudaDevice", "Memory", "Function", "Flag", "Graph", "bind", "make_room"):
        setattr(stub, name, None)
    monkeypatch.setitem(sys.modules, "gen.gpu.device", stub)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, f"gen.gpu.{name}", raising=False)
    module = import_module("gen.gpu.session")
    for name in MODULES:  # what was imported on the stub is not for others
        monkeypatch.setitem(sys.modules, f"gen.gpu.{name}", sys.modules.pop(f"gen.gpu.{name}"))
    return module


@pytest.fixture
def open_bench(session_module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[[Problem], Bench]:
    return lambda problem: Bench(session_module, monkeypatch, problem)


@pytest.fixture
def bench(open_bench: Callable[[Problem], Bench]) -> Bench:
    return open_bench(PROBLEM)


def spoil(name: str, when: int = 1) -> Fault:
    """Writes over the first word of an array, from a launch on."""

    def write(gpu: FakeGpu, addresses: Mapping[str, int], launch: int) -> None:
        if launch >= when:
            gpu.upload(addresses[name], np.full(4, 0x77, np.uint8))

    return write


def test_a_right_variant_is_timed(bench: Bench) -> None:
    trial = bench.attempt(FIRST)
    assert (trial.status, trial.times_us, trial.registers) == ("ok", (3.0,) * 3, 20)


def test_a_slow_variant_is_given_up_and_a_disturbed_one_is_not(bench: Bench) -> None:
    bench.clock.slow = [50.0, 11.0]
    assert bench.attempt(FIRST).times_us == (50.0, 11.0)
    bench.clock.slow = [50.0]
    assert bench.attempt(SECOND).times_us == (50.0, 3.0, 3.0)
    bench.clock.slow = [5000.0]
    assert bench.attempt(THIRD).times_us == (5000.0,)  # another look would cost as much again
    bench.clock.slow = [7000.0]
    assert bench.attempt(THIRD, 10000.0).times_us == (7000.0,)
    bench.clock.slow = [5000.0]
    assert bench.attempt(THIRD, 10000.0).times_us == (5000.0, 3.0, 3.0)


def test_a_slow_variant_that_is_wrong_is_no_trial_that_is_right(bench: Bench) -> None:
    for name, reason in (("out", "out: 1 elements are wrong"), ("in", "after the timing loop: an input was written")):
        bench.clock.slow = [5000.0]
        bench.faults[FIRST.name] = spoil(name)
        trial = bench.attempt(FIRST)
        assert (trial.status, trial.reason.partition(",")[0]) == ("wrong_result", reason)
        assert bench.attempt(SECOND).status == "ok"


@pytest.mark.parametrize("offset", [-4, 35 * 4, 35 * 4 + 100])
def test_what_is_written_next_to_an_output_is_found(bench: Bench, offset: int) -> None:
    def beside(gpu: FakeGpu, addresses: Mapping[str, int], _: int) -> None:
        gpu.upload(addresses["out"] + offset, np.full(4, 0x77, np.uint8))

    bench.faults[FIRST.name] = beside
    trial = bench.attempt(FIRST)
    assert (trial.status, trial.reason) == ("wrong_result", "bytes next to out are written")
    assert bench.attempt(SECOND).status == "ok"  # the zones are whole again


@pytest.mark.parametrize("when", [1, 3])
def test_an_input_that_a_variant_spoils_is_whole_again_for_the_next(bench: Bench, when: int) -> None:
    bench.faults[FIRST.name] = spoil("in", when)
    assert bench.attempt(FIRST).status == "wrong_result"
    assert bench.attempt(SECOND).status == "ok"


def test_a_failed_launch_leaves_the_inputs_whole(bench: Bench) -> None:
    def fault(gpu: FakeGpu, addresses: Mapping[str, int], launch: int) -> None:
        spoil("in")(gpu, addresses, launch)
        raise RunError(FIRST.name, "cannot be launched")

    bench.faults[FIRST.name] = fault
    assert bench.attempt(FIRST).status == "launch_failed"
    assert bench.attempt(SECOND).status == "ok"


def test_a_variant_that_finds_no_memory_is_not_at_fault(bench: Bench) -> None:
    def fault(*_: object) -> None:
        raise DeviceError("The GPU's memory", "does not hold 64 bytes more")

    bench.faults[FIRST.name] = fault
    assert bench.attempt(FIRST).status == "infeasible"  # so that it is tried again


def test_a_finalist_that_spoils_an_input_is_the_only_one_to_fall(bench: Bench) -> None:
    bench.faults[FIRST.name] = spoil("in", 20)
    assert [bench.attempt(made).status for made in (FIRST, SECOND)] == ["ok", "ok"]
    (fault,) = bench.rounds([SECOND, FIRST], 30).faults
    assert (fault.variant, fault.status) == (FIRST, "wrong_result")
    assert fault.reason.startswith("among the finalists: ")
    assert len(bench.rounds([SECOND], 30).times_us[SECOND.name]) == 30


def test_a_variant_that_stops_writing_while_it_is_timed_is_wrong(bench: Bench) -> None:
    bench.idle[FIRST.name] = 3
    trial = bench.attempt(FIRST)
    assert trial.status == "wrong_result"
    assert "after the timing loop: out: 35 elements are wrong" in trial.reason
    bench.idle[SECOND.name] = 20
    assert bench.attempt(SECOND).status == "ok"
    (fault,) = bench.rounds([SECOND], 30).faults
    assert (fault.variant, fault.status) == (SECOND, "wrong_result")


def test_finalists_are_timed_in_orders_and_in_memory_that_change(bench: Bench) -> None:
    seen: list[tuple[str, int]] = []
    for made in (FIRST, SECOND):

        def see(_: FakeGpu, addresses: Mapping[str, int], __: int, name: str = made.name) -> None:
            seen.append((name, addresses["out"]))

        bench.faults[made.name] = see
    bench.rounds([FIRST, SECOND], 8)
    timed = seen[4:-2]  # without what is checked before and after
    bench.rounds([FIRST, SECOND], 10)
    timed += seen[4 + 16 + 2 : -2]
    orders = [tuple(name for name, _ in timed[at : at + 2]) for at in range(0, len(timed), 2)]
    assert set(orders) == {(FIRST.name, SECOND.name), (SECOND.name, FIRST.name)}
    places = [place for _, place in timed[::4]]
    assert [place for _, place in timed] == [place for place in places for _ in range(4)]
    assert len(set(places)) == 8  # the second rounds go on where the first ended
    assert places[8] == places[0]
    scratch = bench.scratch[FIRST.name][2 : 2 + 8]
    assert scratch == [0, 0, 1, 1, 2, 2, 3, 3]
    assert set(bench.scratch[FIRST.name]) == set(range(9))  # two turns in each
    assert bench.told[2:6] == [*orders[0], *orders[1]]


def test_a_pattern_of_launches_tells_no_variants_apart(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of four samples take 2 % longer, whoever has them."""
    count = itertools.count()
    real = bench.clock.times

    def times(*asked: Any, **named: Any) -> list[float]:
        return [us * (1.02 if next(count) % 4 in (0, 3) else 1.0) for us in real(*asked, **named)]

    monkeypatch.setattr(bench.clock, "times", times)
    found = bench.rounds([BASE, FIRST, SECOND, THIRD], 100).times_us
    means = [float(np.mean(of_one)) for of_one in found.values()]
    assert max(means) < 1.005 * min(means)


def test_scratch_has_several_places_unless_it_is_large(session_module: Any) -> None:
    made = find_variant(FAMILIES, "reduction_sum_f32__flags_tpb256_u4_v16_bpm2", {})
    gpu, zeroed = FakeGpu(), []
    device: Any = SimpleNamespace(
        allocate=gpu.allocate, zero=lambda address, size: zeroed.append((address, size)),
        module=lambda _: SimpleNamespace(function=lambda *_: None),
    )  # fmt: skip
    kernel = session_module.CudaKernel(made, Compiled(made.name, "sm_90", b"", {}), device, gpu.limits)
    found = [kernel.scratch({"n": 1 << 20, "outer": 1}, place) for place in (0, 1, 2, 1)]
    assert found[1] == found[3]
    names = [scratch.name for scratch in made.plan.scratch]
    assert all(len({one[name] for one in found}) == 3 for name in names)
    lower = {kernel.scratch({"n": 1 << 20, "outer": 1}, place)[names[0]] % (1 << 16) for place in range(61)}
    assert len(lower) == 61
    assert all(address % 512 == 0 for address in lower)
    found += [kernel.scratch({"n": 1 << 20, "outer": 1}, place) for place in range(61)]
    assert sorted(address for address, _ in zeroed) == sorted(
        {one[scratch.name] for one in found for scratch in made.plan.scratch if scratch.zeroed}
    )

    def full(_: int) -> None:
        raise DeviceError("The GPU's memory", "does not hold that")

    device.allocate = full
    assert kernel.scratch({"n": 1 << 20, "outer": 1}, 70) == found[0]  # where there is room
    device.allocate = gpu.allocate
    private = find_variant(FAMILIES, "reduceInterleaved", {})  # whose scratch is as large as its input
    kernel = session_module.CudaKernel(private, Compiled(private.name, "sm_90", b"", {}), device, gpu.limits)
    small, large = ([kernel.scratch({"n": n, "outer": 1}, place) for place in (0, 1)] for n in (1024, 1 << 20))
    assert not set(small[0].values()) & set(small[1].values())
    assert set(large[0].values()) & set(large[1].values())


def test_large_problems_have_fewer_sets_of_buffers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[type(bench.session).__module__], "SMALL", 16)
    bench.rounds([FIRST], 30)
    assert len(bench.session._sets) == 3


def test_what_base_gave_is_watched(bench: Bench) -> None:
    """A kernel that writes there would make wrong what comes after it; the process begins anew then."""
    (reference,) = bench.session._references.values()

    def far(gpu: FakeGpu, addresses: Mapping[str, int], _: int) -> None:
        gpu.upload(addresses["out"], np.full(4, 0x77, np.uint8))
        gpu.upload(reference.address, np.full(4, 0x55, np.uint8))

    bench.faults[FIRST.name] = spoil("out")
    assert bench.attempt(FIRST).status == "wrong_result"
    assert bench.bench.alive()
    bench.faults[FIRST.name] = far
    assert bench.attempt(FIRST).status == "wrong_result"
    assert not bench.bench.alive()


def test_clocks_and_others_are_noted(bench: Bench) -> None:
    clocks = [Clocks(1980, 2619, ("idle",)), Clocks(1750, 2619, ("power limit", "heat"))]
    bench.bench.nvml = SimpleNamespace(clocks=lambda: clocks[-1], others=lambda: ("process 7",))
    trial = bench.attempt(FIRST)
    assert (trial.sm_mhz, trial.throttled, trial.foreign) == (1750, "power limit, heat", ("process 7",))
    bench.bench.nvml = SimpleNamespace(clocks=lambda: clocks.pop() if len(clocks) > 1 else clocks[0])
    rounds = bench.rounds([FIRST], 2)
    assert (rounds.sm_mhz, rounds.throttled) == ((1750, 1980), ("heat", "power limit"))


def test_a_byte_written_between_the_rows_of_an_output_is_found(open_bench: Callable[[Problem], Bench]) -> None:
    extents = {"rows": 5, "cols": 7, "in_pitch": 9, "out_pitch": 8}
    bench = open_bench(replace(PROBLEM, extents=extents))
    assert bench.attempt(SECOND).status == "ok"

    def between(gpu: FakeGpu, addresses: Mapping[str, int], _: int) -> None:
        gpu.upload(addresses["out"] + 4 * 8 + 4 * 5 + 2, np.full(3, 0x77, np.uint8))

    bench.faults[FIRST.name] = between
    assert bench.attempt(FIRST).reason == "3 bytes between the rows of out are written"
    bench.faults[FIRST.name] = spoil("out")
    assert bench.attempt(FIRST).reason == "out: 1 elements are wrong, the first is element 0"


@pytest.mark.parametrize("alignment", [4, 8, 16])
def test_arrays_lie_at_addresses_of_the_problems_alignment(
    open_bench: Callable[[Problem], Bench], alignment: int
) -> None:
    bench = open_bench(replace(PROBLEM, extents={**PROBLEM.extents, "out_pitch": 6}, alignment=alignment))
    seen: dict[str, int] = {}
    bench.faults[FIRST.name] = lambda _, addresses, __: seen.update(addresses)
    assert bench.attempt(FIRST).status == "ok"
    assert {address % 16 for address in seen.values()} == {alignment % 16}
    beyond, gap = "bytes next to out are written", "1 bytes between the rows of out are written"
    for offset, reason in ((-1, beyond), (4 * 5, gap), (41 * 4, beyond)):

        def beside(gpu: FakeGpu, addresses: Mapping[str, int], _: int, at: int = offset) -> None:
            gpu.upload(addresses["out"] + at, np.full(1, 0x77, np.uint8))

        bench.faults[FIRST.name] = beside
        assert bench.attempt(FIRST).reason == reason
    bench.faults[FIRST.name] = spoil("out")
    assert bench.attempt(FIRST).reason == "out: 1 elements are wrong, the first is element 0"
    assert bench.attempt(SECOND).status == "ok"


class Trusting(Transpose):
    """Transposes that NumPy can only do where there are four rows at most."""

    def provable(self, spec: Spec, extents: Extents) -> Extents:
        return {"rows": 4, "cols": 3, "in_pitch": 3, "out_pitch": 4}

    def oracle(self, spec: Spec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        assert extents["rows"] <= 4
        return super().oracle(spec, inputs, extents)


def test_where_numpy_is_too_slow_base_is_proven_at_less_and_the_others_give_its_bits(
    open_bench: Callable[[Problem], Bench],
) -> None:
    bench = open_bench(replace(PROBLEM, family=Trusting()))
    assert bench.attempt(FIRST).status == "ok"
    bench.faults[SECOND.name] = spoil("out")
    assert bench.attempt(SECOND).reason == "out: 1 elements are wrong, the first is element 0"
    freed = [memory.size for memory in bench.gpu.allocations if memory.freed]
    assert freed == [48 + 8192, 48 + 8192, 48]  # input, output and reference of 4 x 3


def test_a_base_that_is_wrong_at_the_provable_sizes_is_reported(
    open_bench: Callable[[Problem], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: Any) -> Mapping[str, Expected]:
        return {"out": Expected(np.zeros((3, 4), np.uint32))}

    monkeypatch.setattr(Trusting, "oracle", wrong)
    with pytest.raises(RunError, match="transpose_10_b32 4 x 3"):
        open_bench(replace(PROBLEM, family=Trusting()))


class InPlace(FakeFamily):
    """Turns every bit of bytes."""

    def layouts(self, spec: FakeSpec, extents: Extents) -> Mapping[str, Layout]:
        return {"data": Layout((extents["n"],), (1,), np.dtype(np.uint8))}

    def oracle(self, spec: FakeSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        return {"data": Expected(~inputs["data"])}


def test_what_is_changed_in_place_starts_from_the_same_content_every_time(
    open_bench: Callable[[Problem], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    def turn(kernel: FakeKernel, planned: Sequence[Any], addresses: Mapping[str, int]) -> None:
        if planned:
            gpu, address = kernel.gpu, addresses["data"]
            gpu.upload(address, ~gpu.download(address, 13))

    monkeypatch.setattr(FakeKernel, "queue", turn)
    once = Step("", (1, 1, 1), (1, 1, 1), ("data",), 0, (1, 1, 1), setup=False)
    monkeypatch.setattr(FakeKernel, "steps", lambda *_: (once,))
    spec = FakeSpec("flip", (Operand("data", "inout", U8, ("n",)),))
    bench = open_bench(Problem(InPlace(), spec, {"n": 13}))
    assert bench.attempt(FIRST).status == "ok"
    assert len(bench.rounds([FIRST], 4).times_us[FIRST.name]) == 4
    bench.faults[SECOND.name] = spoil("data", 3)
    assert bench.attempt(SECOND).reason == "after the timing loop: data: 4 elements are wrong, the first is element 0"


def test_a_slow_base_warms_up_by_a_single_run(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.setattr(sys.modules[type(bench.bench).__module__], "WARM_UP", 0.05)
    asked: list[int] = []

    def times(_launch: Callable[[], None], samples: int, **_: Any) -> list[float]:
        asked.append(samples)
        time.sleep(0.06)  # longer than warming up takes
        return [60_000.0] * samples

    monkeypatch.setattr(bench.clock, "times", times)
    bench.bench.open(PROBLEM, entrant(BASE)).close()
    assert asked == [1]
