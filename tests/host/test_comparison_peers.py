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
from hypothesis import given, settings
from hypothesis import strategies as st

import gen
from bench.cases import Form, permute, reduce, sweep, weights
from bench.peers import PEERS, cub, cublas
from gen.compare.case import ComparisonCase
from gen.compare.peers import PEERS as OF_USERS
from gen.compare.peers import base, find_peers
from gen.compare.peers.base import MAX_PLACES, Contender, NotOfferedError, Outputs, SharedArray, stepped
from gen.compare.peers.cupy import array
from gen.compare.peers.torch import tensor
from gen.dtypes import BF16, F16, F32, F64, I32, U8, DType
from gen.errors import MissingToolError, UnknownNameError
from gen.families import FAMILIES
from gen.families.base import Array
from gen.families.names import find_family
from gen.families.stencil import Boundary, StencilSpec
from gen.runtime.arrays import read
from tests import fake_libraries
from tests.fake_comparison import FakeGpu, at, view

LIBRARIES = [peer.name for peer in PEERS if peer.name != "plain"]
TRANSPOSE, REDUCTION, STENCIL = (find_family(FAMILIES, name) for name in ("transpose", "reduction", "stencil"))
FORMS: tuple[tuple[Form, int], ...] = (("star", 1), ("box", 2))
BOUNDARIES: tuple[Boundary, ...] = ("constant", "nearest", "reflect", "mirror", "wrap", "frozen")


def stencil(cells: tuple[int, ...], steps: int = 2, **fields: Any) -> ComparisonCase:
    """A stencil that is no public case."""
    return ComparisonCase(STENCIL, StencilSpec("other", **fields), cells, {"steps": steps})


CASES = (
    *(reduce(("sum",), dtype, (1000,)) for dtype in (F16, F32, F64, I32, U8)),
    reduce(("sum",), F32, (37, 21), 1),
    reduce(("sum",), F32, (37, 21), 0),
    reduce(("sum",), F32, (37, 21), -1),
    reduce(("sum",), F64, (5, 7, 9), 1),
    reduce(("sum", "sumsq", "min", "max"), F32, (1000,)),
    reduce(("argmax",), F32, (1000,)),
    reduce(("max",), I32, (4, 100), 1),
    ComparisonCase(REDUCTION, gen.reduction("sum", "f32", axis=(0, 2), keepdims=True, dtype="f64"), (3, 4, 5)),
    *(permute((1, 0), dtype, (31, 17)) for dtype in (U8, F16, F32, F64)),
    permute((0, 3, 1, 2), F32, (2, 3, 5, 7)),
    ComparisonCase(TRANSPOSE, gen.permutation((1, 0), "f8", to="f4"), (5, 7)),
    ComparisonCase(TRANSPOSE, gen.permutation((1, 0), "f4"), (1, 7)),  # nothing moves, and yet it is copied
    *(sweep(form, radius, F64, (9, 11), boundary, steps)
      for form, radius in FORMS for boundary in ("frozen", "wrap") for steps in (1, 2, 3)),
    *(stencil((9, 11), weights=weights("box", 2, 1), dtype=F64, boundary=one, cval=3.0) for one in BOUNDARIES),
    *(stencil((9, 11), weights=(1.0, 2.0), shape=(1, 2), dtype=F64, boundary=one, origin=(0, -1))
      for one in ("constant", "frozen")),
    stencil((50,), weights=(0.5, 0.25, 0.125), shape=(3,), dtype=F64, boundary="mirror"),
)  # fmt: skip
SUM = reduce(("sum",), F32, (64,))


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> fake_libraries.FakeCublas:
    fake_libraries.install(monkeypatch)
    library_of_cublas = fake_libraries.FakeCublas()
    monkeypatch.setattr(cublas, "_library", lambda: library_of_cublas)

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
    return library_of_cublas


def expected(case: ComparisonCase, x: Array) -> list[Array]:
    """What NumPy says, as the family has it."""
    (operand,) = case.inputs
    found = case.family.oracle(case.spec, {operand.name: x.reshape(case.layouts[operand.name].shape)}, case.extents)
    return [np.asarray(found[result.name].value) for result in case.results]


def results(outputs: Any) -> list[Array]:
    """A contender's results, whoever made them."""
    found = []
    for output in outputs:
        given = read("out", output)
        found.append(at(given.address, given.shape, given.dtype) if isinstance(output, SharedArray) else output)
    return found


def prepare(name: str, case: ComparisonCase, gpu: FakeGpu) -> tuple[Contender, SharedArray]:
    source = gpu.random(case.shape, case.dtype, 3)
    (peer,) = find_peers([name], PEERS)
    return peer.prepare(case, source, gpu), source


@pytest.mark.parametrize("name", ["torch", "torch.compile", "cupy", "jax"])
def test_squares_that_do_not_fit_are_not_called_wrong(name: str) -> None:
    with pytest.raises(NotOfferedError, match="squares integers in their own type"):
        prepare(name, reduce(("sum", "sumsq"), U8, (1000,)), FakeGpu())
    prepare(name, reduce(("sum", "sumsq"), F32, (1000,)), FakeGpu())


@pytest.mark.parametrize("cells", [(9, 11), (2, 11)], ids=["a rim", "nothing but rim"])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", ["torch", "torch.compile", "cupy", "cupyx"])
def test_a_peer_writes_frozen_cells_too(
    name: str, steps: int, cells: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, gpu = sweep("star", 1, F64, cells, "frozen", steps), FakeGpu()
    copy = FakeGpu.copy

    def poisoned(self: FakeGpu, source: SharedArray) -> SharedArray:
        made = copy(self, source)
        view(made)[...] = np.nan
        return made

    monkeypatch.setattr(FakeGpu, "copy", poisoned)
    contender, source = prepare(name, case, gpu)
    (got,), (right,) = results(contender.launch()), expected(case, view(source))
    np.testing.assert_allclose(got.reshape(right.shape), right, rtol=1e-5)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_peer_computes_each_case_it_takes(name: str) -> None:
    taken = 0
    for case in CASES:
        gpu = FakeGpu()
        before = gpu.random(case.shape, case.dtype, 3)
        try:
            contender, source = prepare(name, case, gpu)
        except NotOfferedError:
            continue
        taken += 1
        for _ in range(2):  # a graph is replayed from the same input
            got = results(contender.launch())
            for operand, one, right in zip(case.results, got, expected(case, view(before)), strict=True):
                assert operand.dtype.holds(one.dtype), case.name
                assert not np.shares_memory(one, view(source)), case.name
                assert [n for n in one.shape if n > 1] == [n for n in right.shape if n > 1], case.name
                tolerance = 1e-2 if case.dtype is F16 else 1e-5
                np.testing.assert_allclose(
                    one.astype(np.float64).reshape(right.shape), right, rtol=tolerance, err_msg=case.name
                )
        assert np.array_equal(view(source), view(before)), "the input was changed"
        assert contender.is_graph == (name != "jax" and case.runtime_parameters.get("steps", 1) > 1)
        contender.close()
        assert not gpu.graphs
    least = {"cupyx": 21, "cublas": 3, "cub": 9, "cupy": 28, "torch": 40, "torch.compile": 40, "jax": 41}
    assert taken == least[name]


@pytest.mark.parametrize("name", [name for name in LIBRARIES if name != "jax"])
def test_a_peer_queues_on_a_stream_of_somebody_else(name: str) -> None:
    cases = {"cupyx": sweep("star", 1, F32, (8, 8)), "cublas": permute((1, 0), F32, (4, 5))}
    contender, _ = prepare(name, cases.get(name, SUM), FakeGpu())
    assert contender.on_stream is not None
    with contender.on_stream(1234):
        contender.launch()


def test_cub_says_what_it_adds_in_and_what_becomes_of_a_nan() -> None:
    lost = "compares by < alone: a NaN may get lost, which NumPy and gen give"
    wanted = {("sum", F32): "", ("sum", F16): "accumulates in f32", ("argmax", F32): lost, ("argmax", U8): ""}
    for (op, dtype), note in wanted.items():
        assert prepare("cub", reduce((op,), dtype, (64,)), FakeGpu())[0].note == note


def test_cublas_is_told_the_stream(libraries: fake_libraries.FakeCublas) -> None:
    contender, _ = prepare("cublas", permute((1, 0), F32, (4, 5)), FakeGpu())
    contender.launch()
    assert contender.on_stream is not None
    with contender.on_stream(1234):
        contender.launch()
    contender.launch()
    assert libraries.streams == [None, 1234, None]


def test_torch_compile_is_asked_for_its_best() -> None:
    made, _ = prepare("torch.compile", SUM, FakeGpu())
    assert made.note == "max-autotune-no-cudagraphs, the fastest of 3 compilations"
    options = {"mode": "max-autotune-no-cudagraphs", "fullgraph": True, "dynamic": False}
    assert [given for _, given in sys.modules["torch"].compiled] == [options] * 3
    assert len({function.__code__ for function, _ in sys.modules["torch"].compiled}) == 3
    assert sys.modules["torch._inductor.utils"].emptied == [True, False] * 3


def test_torch_that_cannot_empty_its_caches_compiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["torch._inductor.utils"], "fresh_cache")
    made, _ = prepare("torch.compile", SUM, FakeGpu())
    assert made.note == "max-autotune-no-cudagraphs"
    assert len(sys.modules["torch"].compiled) == 1


@pytest.mark.parametrize("steps", [None, 1, 5])
@settings(max_examples=20)
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

    class Timing(FakeGpu):
        def time_us(self, launch: Callable[[], None]) -> float:
            called.clear()
            launch()
            ((number, on),) = set(called)
            assert on == (0 if len(called) == 1 else 7), "what is captured is queued on the stream that captures"
            return alone[number] if len(called) == 1 else 50 * among_many[number]

    gpu = Timing()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", compile_)
        patch.setattr(torch.cuda, "stream", stream)
        case = SUM if steps is None else sweep("star", 1, F32, (8, 8), "wrap", steps)
        made, _ = prepare("torch.compile", case, gpu)
        called.clear()
        made.launch()
        made.close()
    assert not gpu.graphs
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
    monkeypatch.setattr("gen.compare.peers.torch.time", clock)
    case = SUM if steps is None else sweep("star", 1, F32, (8, 8), "wrap", steps)
    made, _ = prepare("torch.compile", case, FakeGpu())
    monkeypatch.undo()
    made.close()
    assert list(first.values()) == [True] * 3, "what is compiled when it is first called is compiled there"
    assert made.seconds == 3


NORM = ComparisonCase(REDUCTION, gen.reduction("norm", "f32"), (4,))
CONJUGATE = ComparisonCase(TRANSPOSE, gen.permutation((1, 0), "complex64", conjugate=True), (4, 5))
IN_PLACE = ComparisonCase(TRANSPOSE, gen.permutation((1, 0), "f4", in_place=True), (4, 4))
REFLECT = stencil((9, 9), weights=weights("star", 2, 1), boundary="reflect")
BYTES = stencil((9, 9), weights=weights("star", 2, 1), dtype=U8, boundary="wrap")
MIXED = stencil((9, 9), weights=weights("star", 2, 1), boundary=("wrap", "nearest"))


@pytest.mark.parametrize(
    ("name", "case", "reason"),
    [
        ("cublas", permute((1, 0), F16, (4, 5)), "f32 and f64 only"),
        ("cublas", reduce(("sum",), F32, (4,)), "f32 and f64 only"),
        ("cub", reduce(("sum",), F32, (4, 5), 0), "whole arrays and rows"),
        ("cub", permute((1, 0), F32, (4, 5)), "one operator at a time"),
        ("cupyx", reduce(("sum",), F32, (4,)), "stencils only"),
        ("cupy", sweep("star", 1, F32, (4, 5), "wrap"), "see cupyx"),
        ("cupy", sweep("box", 3, F32, (8, 8)), "at most 32 arrays"),
        ("plain", reduce(("max",), F32, (4,)), "adds"),
        ("plain", REFLECT, "wraps or is frozen"),
        ("jax", sweep("star", 1, F32, (9, 9), "wrap", 1000), "cannot be queued ahead"),
        ("torch", REFLECT, "SciPy calls mirror"),
        *((name, NORM, "has no such reduction") for name in ("torch", "torch.compile", "cupy", "jax")),
        *((name, CONJUGATE, "not to compute with them") for name in ("torch", "torch.compile", "cupy", "jax")),
        *((name, IN_PLACE, "in place") for name in ("torch", "cupy", "jax", "plain")),
        *((name, BYTES, "rounds sums of integers") for name in ("torch", "torch.compile", "cupy", "cupyx", "jax")),
        *((name, MIXED, "one boundary") for name in ("torch", "cupy", "cupyx", "jax")),
    ],
)
def test_a_peer_says_what_it_does_not_have(name: str, case: ComparisonCase, reason: str) -> None:
    with pytest.raises(NotOfferedError, match=reason):
        prepare(name, case, FakeGpu())


@pytest.mark.parametrize("name", ["torch", "torch.compile", "cupy", "cupyx", "jax"])
def test_a_missing_library_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_libraries.remove(monkeypatch)
    with pytest.raises(MissingToolError, match=r"The module \S+ is needed for this peer .*Install \S+"):
        find_peers([name], PEERS)[0].version()


def test_every_library_tells_its_version() -> None:
    for name in ("torch", "torch.compile", "cupy", "cupyx", "jax", "cublas", "plain"):
        assert find_peers([name], PEERS)[0].version()


def test_peers_are_found_by_name_and_stay_in_order() -> None:
    assert find_peers(None) == OF_USERS
    assert [peer.name for peer in find_peers(["jax", "torch"], PEERS)] == ["torch", "jax"]
    assert {peer.name for peer in OF_USERS} < {peer.name for peer in PEERS}
    with pytest.raises(UnknownNameError, match=r"The peer .*Did you mean torch"):
        find_peers(["torhc"])
    with pytest.raises(UnknownNameError, match=r"The peer "):
        find_peers(["cub"])


def test_bits_of_bfloat16_keep_their_meaning() -> None:
    source = FakeGpu().random((4, 6), BF16, 1)
    for seen in (tensor(sys.modules["torch"], source), array(sys.modules["cupy"], source)):
        assert seen.dtype == BF16.numpy
        assert np.array_equal(np.asarray(seen), view(source))
    given = read("in", source)
    assert (given.dtype, given.address) == (BF16.numpy, source.address), "as gen.load reads it"


PLAIN = (
    reduce(("sum",), F32, (5000,)),
    reduce(("sum",), U8, (5000,)),
    reduce(("sum",), F32, (9, 300), 1),
    reduce(("sum",), F32, (9, 300), 0),
    permute((1, 0), F16, (33, 40)),
    permute((2, 0, 1), F32, (5, 6, 7)),
    sweep("star", 2, F32, (11, 40)),
    sweep("box", 1, F64, (9, 35), "wrap", 2),
)


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_the_plain_kernel_computes_what_numpy_does(
    case: ComparisonCase, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # real libraries: ctypes for one
    gpu = FakeGpu(cache=cache)
    contender, source = prepare("plain", case, gpu)
    (got,) = results(contender.launch())
    (right,) = expected(case, view(source))
    np.testing.assert_allclose(got.astype(np.float64), right, rtol=1e-5, atol=1e-6)
    assert contender.note.startswith("blocks of")


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_what_a_library_compiles_is_compiled_while_it_gets_ready(steps: int) -> None:
    gpu, swept = FakeGpu(), []
    arrays = [gpu.array((4,), F32) for _ in range(3)]
    stepped(gpu, lambda _: nullcontext(), arrays, lambda one, other: swept.append((one, other)), steps, "")
    assert swept[0] == (arrays[0], arrays[1]), "one is launched before any is captured, checked or timed"


def test_results_go_to_as_many_places_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    monkeypatch.setattr(base, "MAX_OUTPUT_BYTES", 100)
    assert [Outputs(gpu, (cells,), F32).places for cells in (1, 10, 100)] == [MAX_PLACES, 2, 1]
    small = Outputs(gpu, (1,), F32)
    addresses = set()
    for number in range(2 * MAX_PLACES):
        small.use(number)
        addresses.add(small.now.address)
    assert len(addresses) == MAX_PLACES
