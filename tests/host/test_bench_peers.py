"""Every peer computes what NumPy computes, as far as fakes of its library can tell; and says what it cannot."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.arrays import Shared
from bench.peers import MODULES, base, cub, cublas_geam, find, names
from bench.peers.base import MOST_PLACES, Contender, NotOfferedError, Outputs, sweeps
from bench.works import Case, Permute, Reduce, Sweep
from gen.dtypes import BF16, F16, F32, F64, I32, U8, DType
from gen.errors import MissingToolError, UnknownNameError
from gen.families.base import Array
from gen.runtime.arrays import read
from tests import fake_libraries
from tests.fake_ring import FakeRing, at, view

LIBRARIES = [name for name in MODULES if name != "plain"]
CASES = (
    *(Case(Reduce(("sum",)), dtype, (1000,)) for dtype in (F16, F32, F64, I32, U8)),
    Case(Reduce(("sum",), (1,)), F32, (37, 21)),
    Case(Reduce(("sum",), (0,)), F32, (37, 21)),
    Case(Reduce(("sum",), (1,)), F64, (5, 7, 9)),
    Case(Reduce(("sum", "sumsq", "min", "max")), F32, (1000,)),
    Case(Reduce(("argmax",)), F32, (1000,)),
    Case(Reduce(("max",), (1,)), I32, (4, 100)),
    *(Case(Permute((1, 0)), dtype, (31, 17)) for dtype in (U8, F16, F32, F64)),
    Case(Permute((0, 3, 1, 2)), F32, (2, 3, 5, 7)),
    *(Case(Sweep(form, 2, radius, boundary, steps), F64, (9, 11))
      for form in ("star", "box") for radius in (1, 2) for boundary in ("frozen", "wrap") for steps in (1, 2, 3)),
    Case(Sweep("star", 3, 1, "frozen", 2), F32, (6, 5, 7)),
)  # fmt: skip


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> fake_libraries.FakeCublas:
    fake_libraries.install(monkeypatch)
    cublas = fake_libraries.FakeCublas()
    monkeypatch.setattr(cublas_geam, "_library", lambda: cublas)

    def build(_: Path, arch: str, op: str, dtype: DType) -> Any:
        assert arch == "sm_90"
        return op, dtype

    monkeypatch.setattr(cub, "build", build)

    def library(name: str) -> fake_libraries.FakeCub:
        op, dtype = eval_name[name]
        return fake_libraries.FakeCub(op, dtype, cub.types(op, dtype)[1])

    eval_name = {
        str((op, dtype)): (op, dtype) for op in cub.OPS for dtype in (F16, BF16, F32, F64, I32, U8)
    }  # fmt: skip
    monkeypatch.setattr(ctypes, "CDLL", library)
    return cublas


def expected(case: Case, x: Array) -> list[Array]:
    """What NumPy says, in the widest types."""
    work = case.work
    if isinstance(work, Permute):
        return [np.transpose(x, work.axes)]
    if isinstance(work, Reduce):
        wide = x.astype(np.float64) if case.dtype.kind == "float" else x
        own: dict[str, Any] = {"sumsq": lambda y, axis: np.sum(y * y, axis=axis), **vars(np)}
        found = []
        for op in work.ops:
            axis = work.axes[0] if op.startswith("arg") and work.axes else work.axes
            found.append(np.asarray(own[op](wide, axis=axis)))
        return found
    cells = x.astype(np.float64)
    for _ in range(work.steps):
        new = sum(
            weight * np.roll(cells, tuple(-step for step in offset), tuple(range(work.ndim)))
            for offset, weight in work.taps
        )
        if work.boundary == "frozen":
            inner = (slice(work.radius, -work.radius),) * work.ndim
            kept = cells.copy()
            kept[inner] = np.asarray(new)[inner]
            new = kept
        cells = np.asarray(new)
    return [cells]


def results(outputs: Any) -> list[Array]:
    """A contender's results, whoever made them."""
    found = []
    for output in outputs:
        given = read("out", output)
        found.append(at(given.address, given.shape, given.dtype) if isinstance(output, Shared) else output)
    return found


def prepare(name: str, case: Case, ring: FakeRing) -> tuple[Contender, Shared]:
    source = ring.random(case.shape, case.dtype, 3)
    return find(name).prepare(case, source, ring), source


@pytest.mark.parametrize("name", ["torch", "torch.compile", "cupy", "jax"])
def test_squares_that_do_not_fit_are_not_called_wrong(name: str) -> None:
    with pytest.raises(NotOfferedError, match="squares integers in their own type"):
        prepare(name, Case(Reduce(("sum", "sumsq")), U8, (1000,)), FakeRing())
    prepare(name, Case(Reduce(("sum", "sumsq")), F32, (1000,)), FakeRing())


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_peer_computes_each_case_it_takes(name: str) -> None:
    taken = 0
    for case in CASES:
        ring = FakeRing()
        before = ring.random(case.shape, case.dtype, 3)
        try:
            contender, source = prepare(name, case, ring)
        except NotOfferedError:
            continue
        taken += 1
        for _ in range(2):  # a graph is replayed from the same input
            got = results(contender.launch())
            for one, right in zip(got, expected(case, view(before)), strict=True):
                assert one.shape in (right.shape, (*right.shape, 1)), case.name
                tolerance = 1e-2 if case.dtype is F16 else 1e-5
                np.testing.assert_allclose(one.astype(np.float64), right, rtol=tolerance, err_msg=case.name)
        assert np.array_equal(view(source), view(before)), "the input was changed"
        assert contender.is_graph == (name != "jax" and isinstance(case.work, Sweep) and case.work.steps > 1)
        contender.close()
        assert not ring.graphs
    assert taken >= {"cupyx": 13, "cublas": 2, "cub": 8}.get(name, 19)


@pytest.mark.parametrize("name", [name for name in LIBRARIES if name != "jax"])
def test_a_peer_queues_on_a_stream_of_somebody_else(name: str) -> None:
    case = CASES[-1] if name == "cupyx" else Case(Reduce(("sum",)), F32, (64,))
    if name == "cublas":
        case = Case(Permute((1, 0)), F32, (4, 5))
    if name == "cupyx":
        case = Case(Sweep("star", 2, 1), F32, (8, 8))
    contender, _ = prepare(name, case, FakeRing())
    assert contender.on_stream is not None
    with contender.on_stream(1234):
        contender.launch()


def test_cub_says_what_it_adds_in_and_what_becomes_of_a_nan() -> None:
    lost = "compares by < alone: a NaN may get lost, which NumPy and gen give"
    wanted = {("sum", F32): "", ("sum", F16): "accumulates in f32", ("argmax", F32): lost, ("argmax", U8): ""}
    for (op, dtype), note in wanted.items():
        assert prepare("cub", Case(Reduce((op,)), dtype, (64,)), FakeRing())[0].note == note


def test_cublas_is_told_the_stream(libraries: fake_libraries.FakeCublas) -> None:
    contender, _ = prepare("cublas", Case(Permute((1, 0)), F32, (4, 5)), FakeRing())
    contender.launch()
    assert contender.on_stream is not None
    with contender.on_stream(1234):
        contender.launch()
    contender.launch()
    assert libraries.streams == [None, 1234, None]


SUM = Case(Reduce(("sum",)), F32, (64,))


def test_torch_compile_is_asked_for_its_best() -> None:
    made, _ = prepare("torch.compile", SUM, FakeRing())
    assert made.note == "max-autotune-no-cudagraphs, the fastest of 3 compilations"
    options = {"mode": "max-autotune-no-cudagraphs", "fullgraph": True, "dynamic": False}
    assert [given for _, given in sys.modules["torch"].compiled] == [options] * 3
    assert len({function.__code__ for function, _ in sys.modules["torch"].compiled}) == 3
    assert sys.modules["torch._inductor.utils"].emptied == [True, False] * 3


def test_torch_that_cannot_empty_its_caches_compiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["torch._inductor.utils"], "fresh_cache")
    made, _ = prepare("torch.compile", SUM, FakeRing())
    assert made.note == "max-autotune-no-cudagraphs"
    assert len(sys.modules["torch"].compiled) == 1


@pytest.mark.parametrize("steps", [None, 1, 5])
@given(
    st.lists(st.integers(1, 100), min_size=3, max_size=3, unique=True),
    st.lists(st.integers(1, 100), min_size=3, max_size=3, unique=True),
)
def test_the_fastest_of_several_compilations_is_taken(
    steps: int | None, alone: list[int], among_many: list[int]
) -> None:
    """By the time of one call; where that is under 20 us, by its product with that of one among many."""
    called: list[tuple[int, int]] = []  # a compilation, and the stream it is called on
    torch = sys.modules["torch"]
    now = [0]

    @contextmanager
    def stream(handle: int) -> Iterator[None]:
        now.append(handle)
        yield
        now.pop()

    def compile_(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        number = int(function.__code__.co_name.rpartition("_")[2])

        def numbered(*arguments: Any) -> Any:
            called.append((number, now[-1]))
            return function(*arguments)

        return numbered

    class Timing(FakeRing):
        def time_us(self, launch: Callable[[], None]) -> float:
            called.clear()
            launch()
            ((number, on),) = set(called)
            assert on == (0 if len(called) == 1 else 7), "what is captured is queued on the stream that captures"
            return alone[number] if len(called) == 1 else 50 * among_many[number]

    ring = Timing()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", compile_)
        patch.setattr(torch.cuda, "stream", stream)
        case = SUM if steps is None else Case(Sweep("star", 2, 1, "wrap", steps), F32, (8, 8))
        made, _ = prepare("torch.compile", case, ring)
        called.clear()
        made.launch()
        made.close()
    assert not ring.graphs
    product = [one * many for one, many in zip(alone, among_many, strict=True)]
    times = product if min(alone) < 20 else alone
    assert {number for number, _ in called} == {times.index(min(times))}


@pytest.mark.parametrize("steps", [None, 1, 5])
def test_each_compilation_finds_empty_caches_and_the_time_of_one_is_told(
    steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, inductor = sys.modules["torch"], sys.modules["torch._inductor.utils"]
    first: dict[Any, bool] = {}

    def compile_(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            first.setdefault(function, bool(inductor.emptied and inductor.emptied[-1]))
            return function(*arguments)

        return called

    monkeypatch.setattr(torch, "compile", compile_)
    clock = SimpleNamespace(monotonic=iter((0.0, 1.0, 10.0, 12.0, 20.0, 26.0)).__next__)
    monkeypatch.setattr("bench.peers.torch_compiled.time", clock)
    case = SUM if steps is None else Case(Sweep("star", 2, 1, "wrap", steps), F32, (8, 8))
    made, _ = prepare("torch.compile", case, FakeRing())
    monkeypatch.undo()
    made.close()
    assert list(first.values()) == [True] * 3, "what is compiled when it is first called is compiled there"
    assert made.seconds == 3


@pytest.mark.parametrize(
    ("name", "case", "reason"),
    [
        ("cublas", Case(Permute((1, 0)), F16, (4, 5)), "f32 and f64 only"),
        ("cublas", Case(Reduce(("sum",)), F32, (4,)), "f32 and f64 only"),
        ("cub", Case(Reduce(("sum",), (0,)), F32, (4, 5)), "whole arrays and rows"),
        ("cub", Case(Permute((1, 0)), F32, (4, 5)), "one operator at a time"),
        ("cupyx", Case(Reduce(("sum",)), F32, (4,)), "stencils only"),
        ("cupy", Case(Sweep("star", 2, 1, "wrap"), F32, (4, 5)), "periodic"),
        ("cupy", Case(Sweep("box", 3, 2), F32, (6, 6, 6)), "at most 32 arrays"),
        ("torch", Case(Reduce(("kurtosis",)), F32, (4,)), "no such reduction"),
        ("cupy", Case(Reduce(("kurtosis",)), F32, (4,)), "no such reduction"),
        ("plain", Case(Reduce(("max",)), F32, (4,)), "adds"),
        ("jax", Case(Sweep("star", 2, 1, "wrap", 1000), F32, (9, 9)), "cannot be queued ahead"),
    ],
)
def test_a_peer_says_what_it_does_not_have(name: str, case: Case, reason: str) -> None:
    with pytest.raises(NotOfferedError, match=reason):
        prepare(name, case, FakeRing())[0].launch()


@pytest.mark.parametrize("name", ["torch", "torch.compile", "cupy", "cupyx", "jax"])
def test_a_missing_library_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_libraries.remove(monkeypatch)
    with pytest.raises(MissingToolError, match=r"The module \S+ is needed for this peer .*Install \S+"):
        find(name).version()


def test_every_library_tells_its_version() -> None:
    for name in ("torch", "torch.compile", "cupy", "cupyx", "jax", "cublas", "plain"):
        assert find(name).version()


def test_peers_are_found_by_name_and_stay_in_order() -> None:
    assert names(None) == tuple(MODULES)
    assert names(["jax", "torch"]) == ("torch", "jax")
    assert all(find(name).name == name for name in MODULES)
    with pytest.raises(UnknownNameError, match=r"The peer .*Did you mean torch"):
        names(["torhc"])


def test_bits_of_bfloat16_keep_their_meaning() -> None:
    ring = FakeRing()
    contender, source = prepare("torch", Case(Permute((1, 0)), BF16, (4, 6)), ring)
    (out,) = contender.launch()
    assert np.array_equal(np.asarray(out).view(BF16.numpy), view(source).T)


PLAIN = (
    Case(Reduce(("sum",)), F32, (5000,)),
    Case(Reduce(("sum",)), U8, (5000,)),
    Case(Reduce(("sum",), (1,)), F32, (9, 300)),
    Case(Reduce(("sum",), (0,)), F32, (9, 300)),
    Case(Permute((1, 0)), F16, (33, 40)),
    Case(Permute((2, 0, 1)), F32, (5, 6, 7)),
    Case(Sweep("star", 2, 2, "frozen", 1), F32, (11, 40)),
    Case(Sweep("box", 2, 1, "wrap", 2), F64, (9, 35)),
    Case(Sweep("star", 3, 1, "wrap", 1), F32, (4, 5, 6)),
)


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_the_plain_kernel_computes_what_numpy_does(case: Case, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # real libraries: ctypes for one
    ring = FakeRing(cache=cache)
    contender, source = prepare("plain", case, ring)
    (got,) = results(contender.launch())
    (right,) = expected(case, view(source))
    np.testing.assert_allclose(got.astype(np.float64), right, rtol=1e-5, atol=1e-6)
    assert contender.note.startswith("blocks of")


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_what_a_library_compiles_is_compiled_while_it_gets_ready(steps: int) -> None:
    ring, swept = FakeRing(), []
    arrays = [ring.array((4,), F32) for _ in range(3)]
    sweeps(ring, lambda _: nullcontext(), arrays, lambda one, other: swept.append((one, other)), steps, "")
    assert swept[0] == (arrays[0], arrays[1]), "one is launched before any is captured, checked or timed"


def test_results_go_to_as_many_places_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = FakeRing()
    monkeypatch.setattr(base, "MOST_OUTPUT_BYTES", 100)
    assert [Outputs(ring, (cells,), F32).places for cells in (1, 10, 100)] == [MOST_PLACES, 2, 1]
    small = Outputs(ring, (1,), F32)
    addresses = set()
    for number in range(2 * MOST_PLACES):
        small.use(number)
        addresses.add(small.now.address)
    assert len(addresses) == MOST_PLACES
