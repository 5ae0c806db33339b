"""Which kernel `gen.load` gives, what it refuses before any launch, and that calling it computes what NumPy does."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gen
from gen.dtypes import DTYPES, F32, I64
from gen.errors import (
    ArgumentError,
    ConfigError,
    DeviceError,
    GenError,
    RunError,
    ShapeError,
    UnknownNameError,
)
from gen.families import FAMILIES
from gen.families.base import Algorithm, Extents, Launch, Layout, Operand, Plan
from gen.families.config import Config
from gen.families.expr import ONE, size
from gen.families.layout import layouts_of, measure
from gen.families.reduction import Grid, GridConfig, Reduction, ReductionSpec
from gen.proof.host import HostRunner
from gen.runtime import dispatch
from gen.runtime.results import DeviceArray
from gen.runtime.scratch import MOST_STREAMS
from tests.fake_backend import FakeBackend, OnDevice
from tests.fake_family import FakeConfig, FakeFamily, FakeSpec

SUM, TRANSPOSE = "reduction_sum_f32", "transpose_10_b32"
LARGE = "more than 2^20 elements"


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dispatch, "_said", set())
    monkeypatch.setenv("GEN_HOME", str(tmp_path / "home"))


@pytest.fixture
def backend() -> FakeBackend:
    """Launches are recorded, nothing is computed."""
    return FakeBackend()


@pytest.fixture
def computing(host_runner: HostRunner) -> FakeBackend:
    """Launches run the emitted text on the CPU."""
    return FakeBackend(host_runner)


def arange(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def tuned(home: Path, *winners: Mapping[str, Any], text: str | None = None) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"schema": 1, "winners": winners}) if text is None else text
    (home / "tuned.json").write_text(content, encoding="utf-8")
    return home


def winner(variant: str, **more: Any) -> dict[str, Any]:
    return {"device": "Fake GPU", "spec": SUM, "shape": LARGE, "variant": variant, **more}


# What is computed


def test_every_family_computes_what_numpy_does(computing: FakeBackend) -> None:
    matrix = arange(33, 65)
    assert gen.load(SUM, device=computing)(matrix) == matrix.sum()
    assert np.array_equal(gen.load(TRANSPOSE, device=computing)(matrix), matrix.T)
    smooth = gen.load(FAMILIES[2].catalogue[0], device=computing)(matrix)
    wide = np.pad(matrix, 1)
    assert np.array_equal(
        smooth, wide[1:-1, 1:-1] / 2 + (wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]) / 8
    )


INTO = [
    ("sum", "f32", np.float64), ("sum", "f16", np.float32), ("sum", "i8", np.float64), ("prod", "u8", np.float64),
    ("max", "f32", np.float64), ("min", "i8", np.int32), ("mean", "f16", np.float64), ("any", "u8", np.int8),
]  # fmt: skip


@pytest.mark.parametrize(("op", "elements", "into"), INTO)
def test_a_result_goes_into_an_array_of_a_type_that_holds_it(
    op: str, elements: str, into: Any, computing: FakeBackend
) -> None:
    array = np.array([[3, 5, 2], [1, 100, 27]]).astype(DTYPES[elements].numpy)
    kernel = gen.load(gen.reduction(op, elements, axis=1), device=computing)
    out = np.zeros(2, into)
    assert kernel(array, out=out) is out
    np.testing.assert_array_equal(out, getattr(np, op)(array, axis=1, out=np.zeros(2, into)))
    assert kernel(array).dtype == gen.reduction(op, elements, axis=1).result.numpy  # as before


def test_a_sum_into_a_wider_type_is_added_in_it(computing: FakeBackend) -> None:
    array, out = np.array([2.0**24, 1, 1], np.float32), np.zeros((), np.float64)
    gen.load(SUM, device=computing)(array, out=out)
    assert out == 2.0**24 + 2


@pytest.mark.parametrize(
    ("spec", "into"), [("sum_f64", "f4"), ("sum_f32", "f2"), ("sum_i32", "i4"), ("max_i16", "u2"), ("argmax_f32", "i4")]
)
def test_an_output_that_would_lose_the_result_is_refused(spec: str, into: str, computing: FakeBackend) -> None:
    kernel = gen.load(f"reduction_{spec}", device=computing)
    elements = np.ones(5, spec[-3] + str(int(spec[-2:]) // 8))
    with pytest.raises(ShapeError, match=r"out must hold \w+ elements"):
        kernel(elements, out=np.zeros((), into))
    assert not computing.launched


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (1, 1), (1, 7), (7, 1)])
def test_empty_and_thin_arrays(computing: FakeBackend, shape: tuple[int, int]) -> None:
    assert gen.load(SUM, device=computing)(arange(*shape)) == arange(*shape).sum()
    assert np.array_equal(gen.load(TRANSPOSE, device=computing)(arange(*shape)), arange(*shape).T)


def test_numpy_results_are_numpy_and_wait_for_the_device(computing: FakeBackend) -> None:
    total = gen.load(SUM, device=computing)(arange(5), stream=7)
    assert type(total) is np.float32
    assert computing.synchronized == [7]
    out = np.zeros((5, 3), np.float32)
    assert gen.load(TRANSPOSE, device=computing)(arange(3, 5), out=out) is out
    assert np.array_equal(out, arange(3, 5).T)
    assert computing.depth == 0


def test_pitched_numpy_arrays_are_read_and_written_in_their_places(computing: FakeBackend) -> None:
    whole, room = arange(10, 12), np.full((9, 9), -1, np.float32)
    gen.load(TRANSPOSE, device=computing)(whole[2:6, 3:8], out=room[1:6, 2:6])
    assert np.array_equal(room[1:6, 2:6], whole[2:6, 3:8].T)
    assert (room == -1).sum() == 81 - 20


def test_moved_elements_keep_their_type(computing: FakeBackend) -> None:
    whole = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert gen.load(TRANSPOSE, device=computing)(whole).dtype == np.int32
    with pytest.raises(ShapeError, match=r"out must hold int32 elements \(got float32\)"):
        gen.load(TRANSPOSE, device=computing)(whole, out=np.empty((3, 2), np.float32))


def test_device_arrays_are_used_in_place_and_not_waited_for(computing: FakeBackend) -> None:
    matrix, out = arange(4, 6), np.zeros((6, 4), np.float32)
    kernel = gen.load(TRANSPOSE, device=computing)
    given = OnDevice(out)
    assert kernel(OnDevice(matrix), out=given) is given
    assert np.array_equal(out, matrix.T)
    made = kernel(OnDevice(matrix), stream=5)
    assert isinstance(made, DeviceArray)
    assert made.shape == (6, 4)
    assert made.__cuda_array_interface__["stream"] == 5
    assert computing.synchronized == []
    assert np.array_equal(made.numpy(), matrix.T)
    assert np.array_equal(kernel(made).numpy(), matrix)  # its interface is read as anybody's
    assert "shape=(6, 4)" in repr(made)


# Several outputs, and numbers


class PairAlgorithm(Algorithm[FakeSpec, FakeConfig]):
    name = "sum"
    template = "pair.cu.jinja"
    summary = "One thread an element."
    config = FakeConfig

    def inputs(self, spec: FakeSpec, config: FakeConfig) -> Mapping[str, object]:
        return {}

    def plan(self, spec: FakeSpec, config: FakeConfig) -> Plan:
        arguments = ("x", "y", "alpha", "k", "total", "difference", (I64, size("n")))
        return Plan((Launch((size("n").ceil_div(128), ONE, ONE), (128, 1, 1), arguments),))


class PairFamily(FakeFamily):
    """total, difference = x + alpha y + k, x - alpha y - k."""

    name = "pair"
    catalogue = (
        FakeSpec(
            "f32",
            (
                Operand("x", "in", F32, ("n",)), Operand("y", "in", F32, ("n",)), Operand("alpha", "number", F32),
                Operand("k", "number", I64), Operand("total", "out", F32, ("n",)),
                Operand("difference", "out", F32, ("n",)),
            ),
        ),
    )  # fmt: skip
    algorithms: Mapping[str, Algorithm[FakeSpec, Any]] = {"sum": PairAlgorithm()}

    def parse(self, label: str, known: Mapping[str, Mapping[str, Any]]) -> FakeSpec:
        return self.catalogue[0]

    def extents(self, spec: FakeSpec, layouts: Mapping[str, Layout]) -> Extents:
        return measure(spec.operands, layouts)

    def layouts(self, spec: FakeSpec, extents: Extents) -> Mapping[str, Layout]:
        return layouts_of(spec.operands, extents)

    def shape_classes(self, spec: FakeSpec) -> tuple[str, ...]:
        return ("any size",)

    def shape_class(self, spec: FakeSpec, extents: Extents) -> str:
        return "any size"

    def base(self, spec: FakeSpec, shape_class: str) -> tuple[str, Config]:
        return "sum", FakeConfig()


TEXT = """{# inputs: name #}
extern "C" __global__ void {{ name }}(const float* x, const float* y, float alpha, long long k, float* total,
                                      float* difference, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) {
    total[i] = x[i] + alpha * y[i] + k;
    difference[i] = x[i] - alpha * y[i] - k;
  }
}
"""


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSpec:
    """A family from outside with two inputs, two numbers and two outputs."""
    (tmp_path / "pair.cu.jinja").write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr(PairFamily, "templates", tmp_path)
    family = PairFamily()
    monkeypatch.setattr("gen.families.FAMILIES", (*FAMILIES, family))
    return family.catalogue[0]


@pytest.mark.usefixtures("pair")
def test_several_outputs_and_numbers(computing: FakeBackend) -> None:
    kernel, x, y = gen.load("pair_f32", device=computing), arange(300), arange(300) + 1
    for total, difference in (kernel(x, y, 0.5, 3), kernel(x, y, 0.5, k=3), kernel(x, y, k=3, alpha=0.5)):
        assert np.array_equal(total, x + y / 2 + 3)
        assert np.array_equal(difference, x - y / 2 - 3)
    out = (np.empty(300, np.float32), np.empty(300, np.float32))
    written = kernel(x, y, np.float32(2), 0, out=out)
    assert written[0] is out[0]
    assert np.array_equal(out[1], x - 2 * y)
    assert len(computing.prepared) == 1  # numbers change from call to call, and prepare nothing anew


def test_a_shape_of_several_inputs(pair: FakeSpec, backend: FakeBackend) -> None:
    assert gen.load(pair, shape=7, device=backend).variant == "pair_f32__sum"


@pytest.mark.parametrize(
    ("arguments", "numbers", "message"),
    [
        ((1, 2, 3, 4, 5), {}, r"pair_f32 takes 2 to 4 arguments: x, y, alpha, k \(got 5\)"),
        ((1,), {}, r"takes 2 to 4 arguments.*\(got 1\)"),
        ((), {"alpha": 1.0}, "k is missing"),
        ((1.0,), {"alpha": 1.0, "k": 1}, "alpha is given twice"),
        ((1.0, 1), {"beta": 1.0}, "beta is no number of this kernel, which takes x, y, alpha, k"),
        ((1.0, 1.5), {}, r"k must be a number that i64 holds \(got 1.5\)"),
        ((1.0, 2**63), {}, "k must be a number that i64 holds"),
        ((1e39, 1), {}, r"alpha must be a number that f32 holds \(got 1e\+39\)"),
        (("1", 1), {}, "alpha must be a number that f32 holds"),
        ((True, 1), {}, "alpha must be a number that f32 holds"),
    ],
)
def test_numbers_that_do_not_fit(
    pair: FakeSpec, backend: FakeBackend, arguments: tuple[Any, ...], numbers: dict[str, Any], message: str
) -> None:
    arrays = (arange(3), arange(3)) if len(arguments) not in (1, 5) or numbers else ()
    with pytest.raises(ArgumentError, match=message):
        gen.load(pair, device=backend)(*arrays, *arguments, **numbers)
    assert backend.launched == []


def test_outputs_may_not_overlap_each_other_or_an_input(pair: FakeSpec, backend: FakeBackend) -> None:
    kernel, memory = gen.load(pair, device=backend), arange(40)
    given = [OnDevice(memory[start : start + 10]) for start in (0, 10, 20)]
    with pytest.raises(ArgumentError, match="difference must not overlap total"):
        kernel(given[0], given[1], 1.0, 1, out=(given[2], OnDevice(memory[25:35])))
    with pytest.raises(ArgumentError, match="difference must not overlap y"):
        kernel(given[0], given[1], 1.0, 1, out=(given[2], given[1]))
    kernel(given[0], given[0], 1.0, 1, out=(given[1], given[2]))  # inputs may
    with pytest.raises(ArgumentError, match=r"out must be as many arrays as there are outputs: total.*\(got 1\)"):
        kernel(given[0], given[0], 1.0, 1, out=given[1])


# What is refused before any launch


def refused(value: Any) -> OnDevice:
    return OnDevice(arange(4, 4), value)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([[1.0, 2.0]], ArgumentError, "in must be a NumPy array or have __cuda_array_interface__ .*list"),
        (arange(4, 4).astype(np.float64), ShapeError, "in must hold elements of 4 bytes .*float64"),
        (arange(4, 4).astype(object), ShapeError, "in must hold elements of 4 bytes"),
        (arange(16), ShapeError, r"in must have 2 axes \(got \(16,\)\)"),
        (arange(4, 4).T, ShapeError, "in must have elements 4 bytes apart along its rows"),
        (arange(4, 4)[::-1], ShapeError, "in must have rows a multiple of 4 and at least 16 bytes apart .*-16"),
        (arange(4, 4)[:, ::-1], ShapeError, "in must have elements 4 bytes apart along its rows .*-4"),
        (np.zeros(65, np.uint8)[1:].view(np.float32).reshape(4, 4), ShapeError, "in must start at"),
        (refused({"data": (2, False)}), ShapeError, "in must start at, and step by, a multiple of 4"),
        (refused({"stream": 0}), ArgumentError, r"in.__cuda_array_interface__ must have a stream .*\(got 0\)"),
        (refused({"shape": (-3,), "strides": None}), ArgumentError, "must have no negative extent"),
        (refused({"mask": 1}), ArgumentError, "in.__cuda_array_interface__ must have no mask"),
        (refused({"typestr": "?!"}), ArgumentError, "in.__cuda_array_interface__ cannot be read"),
        (refused({"strides": (4,)}), ArgumentError, "must have as many strides as extents"),
        (refused({"data": None}), ArgumentError, "in.__cuda_array_interface__ cannot be read"),
    ],
)
def test_an_input_that_does_not_fit(backend: FakeBackend, given: Any, error: type[GenError], message: str) -> None:
    with pytest.raises(error, match=message):
        gen.load(TRANSPOSE, device=backend)(given)
    assert backend.launched == []
    assert backend.depth == 0


@pytest.mark.parametrize("count", [0, 2])
def test_a_wrong_number_of_arguments(backend: FakeBackend, count: int) -> None:
    with pytest.raises(ArgumentError, match=rf"{SUM} takes 1 arguments: in \(got {count}\)"):
        gen.load(SUM, device=backend)(*[arange(3)] * count)


def test_an_output_that_does_not_fit(backend: FakeBackend) -> None:
    kernel, matrix = gen.load(TRANSPOSE, device=backend), OnDevice(arange(4, 6))
    with pytest.raises(ShapeError, match=r"out must have 6 cols"):
        kernel(matrix, out=OnDevice(arange(4, 6)))
    with pytest.raises(ArgumentError, match="out must be writable"):
        kernel(matrix, out=OnDevice(arange(6, 4), {"data": (4096, True)}))
    read_only = arange(6, 4)
    read_only.flags.writeable = False
    with pytest.raises(ArgumentError, match="out must be writable"):
        kernel(arange(4, 6), out=read_only)
    with pytest.raises(ArgumentError, match="out must be where in is: NumPy arrays and arrays on a GPU do not mix"):
        kernel(matrix, out=arange(6, 4))
    with pytest.raises(ArgumentError, match="out must be where in is"):
        kernel(arange(4, 6), out=OnDevice(arange(6, 4)))
    with pytest.raises(ArgumentError, match="out must not overlap in"):
        kernel(matrix, out=OnDevice(matrix.array.reshape(6, 4)))
    with pytest.raises(ArgumentError, match="out must not overlap in"):
        kernel(matrix.array, out=matrix.array.reshape(6, 4))
    assert backend.launched == []


def test_rows_between_rows_do_not_overlap(computing: FakeBackend) -> None:
    room = np.zeros((4, 8), np.float32)
    room[:, :4] = arange(4, 4)
    gen.load(TRANSPOSE, device=computing)(OnDevice(room[:, :4]), out=OnDevice(room[:, 4:]))
    assert np.array_equal(room[:, 4:], arange(4, 4).T)
    with pytest.raises(ArgumentError, match="out must not overlap in"):
        gen.load(TRANSPOSE, device=computing)(OnDevice(room[:, :4]), out=OnDevice(room[:, 3:7]))


@pytest.mark.parametrize(("place", "words"), [(1, "device 1"), (None, "no memory of a GPU")])
def test_an_array_elsewhere(backend: FakeBackend, place: int | None, words: str) -> None:
    matrix = OnDevice(arange(4, 4))
    backend.foreign[matrix.__cuda_array_interface__["data"][0]] = place
    with pytest.raises(ArgumentError, match=rf"in must be on device 0, Fake GPU \(got {words}\)"):
        gen.load(TRANSPOSE, device=backend)(matrix)


def test_memory_that_is_not_there(backend: FakeBackend) -> None:
    backend.free = 1000
    with pytest.raises(DeviceError, match="does not hold 65536 bytes more"):
        gen.load(TRANSPOSE, device=backend)(arange(128, 128))
    assert backend.depth == 0


# Streams and scratch


def test_the_stream_is_the_callers(backend: FakeBackend) -> None:
    class Torch:
        cuda_stream = 0

    class CuPy:
        ptr = 77

    kernel = gen.load(SUM, device=backend)
    for stream in (None, Torch(), CuPy(), 5, 0):
        kernel(OnDevice(arange(5)), stream=stream)
    kernel(OnDevice(arange(5), {"stream": 2}))
    assert [one.stream for one in backend.launched] == [1, 1, 77, 5, 1, 2]
    for wrong in ("main", 1.0, True, -1, object()):
        with pytest.raises(ArgumentError, match="stream must be a stream of torch or CuPy"):
            kernel(OnDevice(arange(5)), stream=wrong)


def test_streams_wait_for_those_that_produce_the_arrays(backend: FakeBackend) -> None:
    kernel = gen.load(SUM, device=backend)
    total = OnDevice(np.zeros((), np.float32), {"stream": 9})
    kernel(OnDevice(arange(5), {"stream": 7}), out=total)
    assert (backend.launched[-1].stream, backend.waits) == (7, [(7, 9)])
    kernel(OnDevice(arange(5), {"stream": 7}), stream=8)
    assert backend.waits[1:] == [(8, 7)]
    backend.captures[8] = 1
    kernel(OnDevice(arange(5), {"stream": 7}), stream=8)
    assert backend.waits[2:] == []


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    """A folder whose winners have partial results that grow with the problem, and a ticket."""
    grid = "reduction_sum_f32__grid_tpb512_u8_v16_bpm2"
    return tuned(tmp_path / "tickets", winner(grid), winner(grid, shape="2^15 to 2^20 elements"))


def scratch(backend: FakeBackend) -> tuple[int, int]:
    addresses = backend.launched[-1].addresses
    return addresses["partials"], addresses["ticket"]


def test_streams_never_share_scratch(backend: FakeBackend, tickets: Path) -> None:
    kernel, other = gen.load(SUM, device=backend, home=tickets), gen.load(SUM, device=backend, home=tickets)
    seen = {}
    for call, stream in ((kernel, 3), (kernel, 4), (other, 3)):
        call(OnDevice(arange(2**18)), stream=stream)
        seen[scratch(backend)] = stream
    assert len({address for pair in seen for address in pair}) == 6
    assert [(size, stream) for _, size, stream in backend.zeroed] == [(4, 3), (4, 4), (4, 3)]  # the tickets, once
    allocated = len(backend.allocated)
    kernel(OnDevice(arange(2**18)), out=OnDevice(np.zeros((), np.float32)), stream=3)
    assert seen[scratch(backend)] == 3
    assert len(backend.allocated) == allocated
    backend.identities[3] = "a new stream with an old handle"
    kernel(OnDevice(arange(2**18)), stream=3)
    assert scratch(backend) not in seen


def test_scratch_grows_with_the_problem(backend: FakeBackend, tickets: Path) -> None:
    kernel = gen.load(SUM, shape=2**28, device=backend, home=tickets)
    total = OnDevice(np.zeros((), np.float32))
    kernel(OnDevice(arange(2**18)), out=total)
    small = scratch(backend)
    kernel(OnDevice(arange(2**22)), out=total)
    large = scratch(backend)
    assert small[0] != large[0]
    assert small[1] == large[1]
    kernel(OnDevice(arange(2**18)), out=total)
    assert scratch(backend) == large


def test_a_graph_has_scratch_of_its_own(backend: FakeBackend, tickets: Path) -> None:
    kernel, total = gen.load(SUM, shape=2**28, device=backend, home=tickets), OnDevice(np.zeros((), np.float32))
    seen = []
    for capture in (0, 1, 1, 2, 0):
        backend.captures[6] = capture
        kernel(OnDevice(arange(2**18)), out=total, stream=6)
        seen.append(scratch(backend))
    assert seen[1] == seen[2]
    assert seen[0] == seen[4]
    assert len({address for pair in seen for address in pair}) == 6
    assert len(backend.zeroed) == 3
    backend.captures[6] = 1
    kernel(OnDevice(arange(2**22)), out=total, stream=6)
    (graph,) = [buffers for key, buffers in kernel._workspace._graphs.items() if key[0] == 1]
    assert [held.address for held in graph._kept] == [seen[1][0]]  # what the graph knows stays


SMALL_CALLS = [
    (gen.reduction("sum"), (2**15,)), (gen.reduction("argmax", "u8"), (5000,)), (gen.reduction("stats"), (30_000,)),
    (gen.reduction("var", "f16", ddof=1), (1000,)), (gen.reduction("any", "bool", keepdims=True), (7, 9)),
    (gen.reduction("max", "i16", axis=-1), (40, 1000)), (gen.reduction("sum", axis=0), (64, 4)),
    (gen.reduction("mean", "f16", axis=1), (4, 8, 32)), (gen.reduction("prod", "i32", axis=()), (30, 30)),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "shape"), SMALL_CALLS, ids=lambda part: getattr(part, "label", ""))
def test_a_small_reduction_is_one_launch_and_nothing_else(
    spec: ReductionSpec, shape: tuple[int, ...], backend: FakeBackend
) -> None:
    kernel, array = gen.load(spec, device=backend), OnDevice(np.ones(shape, spec.dtype.numpy))
    results = [np.zeros(np.zeros(shape).sum(axis=spec.axis, keepdims=spec.keepdims).shape, dtype.numpy)
               for _, _, dtype in spec.results]  # fmt: skip
    out = tuple(OnDevice(result) for result in results)
    for capture in (0, 1):  # on a stream, then as part of a graph
        backend.captures[6] = capture
        kernel(array, out=out if len(out) > 1 else out[0], stream=6)
        assert len(backend.launched[-1].steps) == 1
    assert len(backend.launched) == 2
    assert (backend.allocated, backend.zeroed) == ([], [])


def test_numpy_arrays_are_no_part_of_a_graph(backend: FakeBackend) -> None:
    backend.captures[6] = 1
    with pytest.raises(ArgumentError, match="stream must not be capturing a graph"):
        gen.load(SUM, device=backend)(arange(5), stream=6)


def test_scratch_is_given_up_after_a_failed_launch(backend: FakeBackend, tickets: Path) -> None:
    kernel, total = gen.load(SUM, device=backend, home=tickets), OnDevice(np.zeros((), np.float32))
    kernel(OnDevice(arange(2**18)), out=total)
    before = len(backend.zeroed)
    backend.failing = 1
    with pytest.raises(RunError, match="cannot be launched"):
        kernel(OnDevice(arange(2**18)), out=total)
    kernel(OnDevice(arange(2**18)), out=total)
    assert len(backend.zeroed) == before + 1


def test_scratch_of_many_streams_is_bounded(backend: FakeBackend) -> None:
    kernel, total = gen.load(SUM, device=backend), OnDevice(np.zeros((), np.float32))
    for stream in range(3, 3 + 2 * MOST_STREAMS):
        kernel(OnDevice(arange(5000)), out=total, stream=stream)
    assert len(kernel._workspace._streams) == MOST_STREAMS


def test_threads_share_a_kernel(computing: FakeBackend) -> None:
    kernel = gen.load(SUM, device=computing)
    right: list[bool] = []

    def work(stream: int) -> None:
        right.extend(kernel(np.full(n, stream, np.float32), stream=stream) == n * stream for n in range(1, 40))

    threads = [threading.Thread(target=work, args=(stream,)) for stream in (3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 3 * 39


def test_a_repeated_call_prepares_nothing(backend: FakeBackend) -> None:
    kernel, array, total = gen.load(SUM, device=backend), arange(64), OnDevice(np.zeros((), np.float32))
    for _ in range(3):
        kernel(OnDevice(array), out=total)
    assert len(backend.prepared) == len(backend.loaded) == 1
    kernel(OnDevice(array[:8]), out=total)
    assert (len(backend.prepared), len(backend.loaded)) == (2, 1)


# Which variant, and why

TUNED = "reduction_sum_f32__grid_tpb256_u8_v16_bpm4_ldcs"


def test_base_where_nothing_is_tuned(backend: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gen")
    kernel = gen.load(ReductionSpec(), shape=2**28, device=backend)
    assert kernel.variant == "reduction_sum_f32__flags_tpb512_u8_v16_bpm2_ldcs"
    assert kernel.why.startswith(f"base, because nothing is tuned for {SUM} ({LARGE}) on Fake GPU")
    assert kernel.source.startswith("// reduction_sum_f32__flags_tpb512_u8_v16_bpm2_ldcs")
    assert backend.loaded == [kernel.variant]  # at once, not at the first call
    gen.load(SUM, shape=(2**14, 2**14), device=backend)
    gen.load(SUM, device=backend)(OnDevice(arange(3)))
    assert [record.message for record in caplog.records] == [f"{kernel.variant}: {kernel.why}"]


def test_tuned_for_this_device_and_shape_class(
    backend: FakeBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gen")
    home = tuned(
        tmp_path / "other",
        winner("reduction_sum_f32__shfl_tpb128_u1", device="Another GPU"),
        winner(TUNED, median_us=355.25, of_limit=0.9531, driver=backend.driver),
    )
    kernel = gen.load(SUM, device=backend, home=home)
    assert kernel.variant_for(2**28) == kernel.variant_for((2**14, 2**14)) == TUNED
    assert kernel.variant_for(5000) == "reduction_sum_f32__grid_tpb1024_u8_v16_bpm1"
    assert kernel.variant_for(100) == "reduction_sum_f32__single_tpb256_u4_v16"
    assert kernel.why_for(2**28) == f"tuned on Fake GPU for {LARGE}: median 355.2 us, 95.3 % of the limit"
    assert gen.load(SUM, shape=2**28, device=backend, home=str(home)).variant == TUNED
    (record,) = caplog.records
    assert record.message.startswith(f"{TUNED}: tuned on Fake GPU")
    assert record.levelno == logging.INFO


SMALL_PART = "reduction_sum_f32__grid_tpb128_u8_v16_bpm4"
UNALIGNED, EXACT = "reduction_sum_f32__grid_tpb256_u8_v4_bpm4", "reduction_sum_f32__shfl_tpb256_u8"
PARTS = (
    winner(TUNED), winner(SMALL_PART, within={"n": [0, 2**22]}), winner(UNALIGNED, within={"alignment": [0, 8]}),
    winner(EXACT, within={"n": [2**21 + 5, 2**21 + 5], "alignment": [16, 16]}),
)  # fmt: skip


def test_the_winner_for_a_part_of_a_class_goes_before_that_of_the_class(backend: FakeBackend, tmp_path: Path) -> None:
    kernel = gen.load(SUM, device=backend, home=tuned(tmp_path, *PARTS))
    assert kernel.variant_for(2**28) == TUNED
    assert kernel.variant_for(2**22 + 1) == TUNED
    assert kernel.variant_for(2**22) == SMALL_PART
    assert kernel.variant_for(2**21 + 5) == EXACT
    assert kernel.why_for(2**22) == f"tuned on Fake GPU for {LARGE}, n up to 2^22"
    assert kernel.variant_for(5) == "reduction_sum_f32__single_tpb256_u4_v16"


def test_an_array_gets_the_winner_of_its_alignment(backend: FakeBackend, tmp_path: Path) -> None:
    kernel = gen.load(SUM, device=backend, home=tuned(tmp_path, *PARTS))
    memory = np.zeros(2**22 + 64, np.float32)
    start = -memory.__array_interface__["data"][0] % 16 // 4
    for place, variant in ((0, TUNED), (1, UNALIGNED), (2, UNALIGNED), (3, UNALIGNED), (4, TUNED)):
        array = memory[start + place : start + place + 2**22 + 1]
        kernel(OnDevice(array))
        assert backend.launched[-1].variant == variant
    scalar = np.zeros(4, np.float32)[1:2].reshape(())  # it is no row of anything
    kernel(OnDevice(memory[start : start + 2**22 + 1]), out=OnDevice(scalar))
    assert backend.launched[-1].variant == TUNED
    kernel(memory[start + 1 : start + 2 + 2**22])  # copied to where it is aligned
    assert backend.launched[-1].variant == TUNED


def test_a_winner_stays_after_a_new_driver(backend: FakeBackend, tmp_path: Path) -> None:
    home = tuned(tmp_path, winner(TUNED, driver="570.1, CUDA 12.8", median_us="fast", of_limit=None))
    why = gen.load(SUM, shape=2**28, device=backend, home=home).why
    assert why == (
        f"tuned on Fake GPU for {LARGE}; measured under the driver 570.1, CUDA 12.8, and this is 580.1, CUDA 13.0"
    )


@pytest.mark.parametrize("number", [10**400, float("nan"), float("inf"), True, "fast"])
def test_evidence_that_is_no_number_is_not_told(backend: FakeBackend, tmp_path: Path, number: object) -> None:
    home = tuned(tmp_path, winner(TUNED, median_us=number, of_limit=number))
    assert gen.load(SUM, shape=2**28, device=backend, home=home).why == f"tuned on Fake GPU for {LARGE}"


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ("", "must be FAMILY_SPEC__ALGORITHM_TAG"),
        (
            "reduction_sum_f32__magic_u7",
            "must be one of grid, flags, cluster, single, rows, columns, stream, strided, interleaved, shfl",
        ),
        ("reduction_sum_f32__grid_tpb100_u8_v16_bpm4", "tpb"),
        ("reduction_sum_f32__grid_tpb1024_u8_v16_bpm8", "cannot run on Fake GPU"),
        ("transpose_10_b32__tiled_t64_r8_p1_u1", "transpose"),
        ("reduction_sum_f32__grid", "threads_per_block comes there"),
        ("../../etc/passwd", "must be FAMILY_SPEC__ALGORITHM_TAG"),
    ],
)
def test_a_winner_that_cannot_be_used(
    backend: FakeBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture, variant: str, reason: str
) -> None:
    kernel = gen.load(SUM, shape=2**28, device=backend, home=tuned(tmp_path, winner(variant)))
    assert kernel.variant == "reduction_sum_f32__flags_tpb512_u8_v16_bpm2_ldcs"
    assert kernel.why.startswith(f"base, because the tuned variant {variant!r} cannot be used:")
    assert reason in kernel.why
    assert f"The tuned variant {variant!r} of {SUM} ({LARGE}) on Fake GPU cannot be used, and base is" in caplog.text


def test_a_winner_that_is_not_repeatable(backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grid, "repeatable", False)
    kernel = gen.load(SUM, shape=2**28, device=backend, home=tuned(tmp_path, winner(TUNED)))
    assert "does not give the same bits on every run" in kernel.why


def test_a_winner_that_cannot_take_these_sizes(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = "reduction_sum_f32__shfl_tpb128_u1"
    kernel = gen.load(SUM, device=backend, home=tuned(tmp_path, winner(name)))
    assert kernel.variant_for(2**28) == name
    assert kernel.variant_for(2**39) == "reduction_sum_f32__flags_tpb512_u8_v16_bpm2_ldcs"
    assert f"{name} cannot take these sizes: it takes 4294967296 blocks" in caplog.text
    monkeypatch.setattr(type(Reduction.algorithms["flags"]), "uncovered", lambda *_: "the test wants it")
    with pytest.raises(ConfigError, match=r"cannot take these sizes .*the test wants it"):
        kernel.variant_for(2**39)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 9}', '{"schema": 1, "winners": [3]}'])
def test_a_torn_file_of_winners(
    backend: FakeBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    kernel = gen.load(SUM, shape=5, device=backend, home=tuned(tmp_path, text=text))
    assert kernel.why.startswith("base")
    assert f"No tuned variant is used: {tmp_path / 'tuned.json'}" in caplog.text


def _wide_base(_: Reduction, __: ReductionSpec, shape_class: str) -> tuple[str, GridConfig]:
    return "grid", GridConfig(threads_per_block=1024, blocks_per_sm=2 if shape_class == LARGE else 1)


def test_a_base_that_the_device_cannot_run(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    backend.limits = replace(backend.limits, threads_per_sm=1024)  # one block of 1024 threads on a multiprocessor
    monkeypatch.setattr(Reduction, "base", _wide_base)
    assert gen.load(SUM, shape=2**28, device=backend).variant == "reduction_sum_f32__grid_tpb1024_u4_v16_bpm1"
    monkeypatch.setattr(Grid, "infeasible", lambda *_: "the test wants it")
    with pytest.raises(ConfigError, match=r"cannot run on Fake GPU .*the test wants it"):
        gen.load(SUM, shape=2**28, device=backend)


def test_a_kernel_without_a_shape_has_no_one_variant(backend: FakeBackend) -> None:
    kernel = gen.load(SUM, device=backend)
    for name in ("variant", "why", "source"):
        with pytest.raises(GenError, match=r"every call picks its variant. Ask variant_for"):
            getattr(kernel, name)
    assert repr(kernel) == f"<gen kernel {SUM} on Fake GPU>"


@pytest.mark.parametrize("shape", [-1, (2, -2), "8", 2.0, True, None, ((2,), 2), (2**3, 2.5)])
def test_a_shape_that_is_none(backend: FakeBackend, shape: Any) -> None:
    with pytest.raises(ShapeError, match="shape must be a number or a tuple of numbers"):
        gen.load(SUM, device=backend).variant_for(shape)


def test_a_shape_that_the_spec_does_not_take(backend: FakeBackend) -> None:
    with pytest.raises(ShapeError, match=r"in must have 2 axes \(got \(5,\)\)"):
        gen.load(TRANSPOSE, shape=5, device=backend)


def test_a_spec_that_is_none(backend: FakeBackend) -> None:
    with pytest.raises(UnknownNameError, match="The spec"):
        gen.load("sum", device=backend)
    with pytest.raises(UnknownNameError, match="must be a name, or a spec of one of the families"):
        gen.load(object(), device=backend)  # type: ignore[arg-type]


def test_a_spec_that_only_its_file_spells(backend: FakeBackend, tmp_path: Path) -> None:
    spec = FAMILIES[2].from_json({**FAMILIES[2].catalogue[0].to_json(), "word": "blur"})
    name = f"stencil_{spec.label}"
    content = {"schema": 1, "specs": {name: dict(spec.to_json())}}
    (tmp_path / "specs.json").write_text(json.dumps(content), encoding="utf-8")
    assert gen.load(name, shape=(4, 4), device=backend, home=tmp_path).variant.startswith(name)


def test_a_home_that_is_a_file(backend: FakeBackend, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GenError, match="home must be a folder"):
        gen.load(SUM, device=backend, home=tmp_path / "file")


# Importing


@pytest.fixture
def _without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("gen.gpu.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)


@pytest.mark.usefixtures("_without_a_gpu")
def test_without_pycuda_or_a_driver_the_error_says_what_to_do() -> None:
    with pytest.raises(GenError, match=r"gen doctor|pip install"):
        gen.load(SUM)


def test_importing_load_needs_no_gpu_and_no_compiler() -> None:
    code = (
        "import sys, gen; assert 'numpy' not in sys.modules; gen.load; "
        "print([name for name in ('pycuda', 'cuda.bindings', 'cuda.core', 'torch', 'cupy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
