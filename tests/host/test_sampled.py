"""More than 2^32 elements: memory that exists where it is touched, and chosen blocks that run on it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.dtypes import B128, F32, I64, U8, DType
from gen.families import FAMILIES
from gen.families.base import Expected, Extents, Family, Launch, Layout, Limits, Operand, Plan, Spec
from gen.families.expr import ONE, size
from gen.families.extents import layouts_of
from gen.families.names import base_variants, find_family, find_variant, variant
from gen.families.probe import TileSpec
from gen.families.reduction import Reduction, ReductionSpec, reduction
from gen.families.reduction.oracle import expected
from gen.families.stencil import StencilSpec
from gen.families.transpose import permutation
from gen.proof.cases import Case, Content
from gen.proof.failures import UNTOUCHED, WRONG, Failure
from gen.proof.host import HostRunner
from gen.proof.memory import GUARD_BYTES, MARKS_PER_PAGE, PATTERN_BYTES, Marks, Range, distinct, pattern
from gen.proof.native import TOUCHED_BY_READ, TOUCHED_BY_WRITE
from gen.proof.prover import prove, unsupported_extents
from gen.proof.sampled import (
    EDGES,
    FEW_ELEMENTS,
    SHARING_MULTIPROCESSORS,
    check_sampled,
    far_cases,
    read_only,
    sampled_cases,
)
from tests.fake_family import FakeFamily, FakeSpec, fake_variant
from tests.outside.scan_family.scan import Scan

LIMITS = Limits.of("sm_90")
SPECS = [
    (family, spec) for family in FAMILIES for spec in family.catalogue if type(family).oracle_at is not Family.oracle_at
]
each_spec = pytest.mark.parametrize(
    ("family", "spec"), SPECS, ids=lambda part: getattr(part, "name", getattr(part, "label", ""))
)
HUGE = 3 * 2**33  # bytes: more than the machine has


def test_marks_are_found_without_a_look_at_all_of_them() -> None:
    marks = Marks(HUGE)
    assert marks.elements(1, 4).size == 0
    view: Any = np.ctypeslib.as_array((ctypes.c_uint8 * HUGE).from_address(marks.address))
    pages: Any = np.ctypeslib.as_array((ctypes.c_uint8 * (HUGE // MARKS_PER_PAGE)).from_address(marks.pages))
    view[4 * 7 : 4 * 9] = TOUCHED_BY_READ
    view[HUGE - 3] = TOUCHED_BY_WRITE
    view[HUGE // 2 - 2 : HUGE // 2 + 2] = TOUCHED_BY_READ | TOUCHED_BY_WRITE
    for byte in (4 * 7, HUGE - 3, HUGE // 2 - 2, HUGE // 2):
        pages[byte // MARKS_PER_PAGE] = 1
    assert marks.elements(TOUCHED_BY_READ, 4).tolist() == [7, 8, HUGE // 8 - 1, HUGE // 8]
    assert marks.elements(TOUCHED_BY_WRITE, 16).tolist() == [HUGE // 32 - 1, HUGE // 32, HUGE // 16 - 1]


def test_a_pattern_repeats_but_not_where_an_index_loses_its_upper_bits() -> None:
    memory = Range(HUGE)
    memory.pattern(pattern(F32, Content.RANDOM, 3), writable=False)
    values = memory.view(Layout((HUGE // 4,), (4,), np.dtype(np.float32)), 0)
    period = PATTERN_BYTES // 4
    assert np.array_equal(values[5 : 5 + 100], values[5 + 700 * period : 105 + 700 * period])
    for edge in EDGES:
        there = values[edge : edge + 1000]
        assert np.count_nonzero(there == values[:1000]) < 5
        assert np.count_nonzero(there) == 1000


def test_inputs_that_are_kept_leave_mappings_for_others() -> None:
    sizes = [
        GUARD_BYTES + extra * PATTERN_BYTES for extra in range(4)
    ]  # each takes a quarter of the mappings of a process
    inputs = [read_only(F32, Content.RANDOM, 3, size).address for size in sizes]
    assert read_only(F32, Content.RANDOM, 3, sizes[-1]).address == inputs[-1]


def test_what_is_written_to_a_pattern_stays_where_it_is_written() -> None:
    descriptor = pattern(B128, Content.RANDOM, 0)
    ranges = [Range(2 * PATTERN_BYTES) for _ in range(2)]
    for memory in ranges:
        memory.pattern(descriptor, writable=True)
    first, second = (memory.view(Layout((9,), (8,), np.dtype(np.uint64)), 0) for memory in ranges)
    before = second.copy()
    first[3] += 1
    assert first[3] != before[3]
    assert np.array_equal(second, before)


def test_ranges_lie_further_apart_than_an_index_can_be_off() -> None:
    one, other = Range(HUGE), Range(HUGE)
    low, high = sorted((one.address, other.address))
    assert high - low - HUGE >= GUARD_BYTES > 2**32 * 16


def test_distinct() -> None:
    assert distinct(np.array([0, 0, 3, 3, 3, 9])).tolist() == [0, 3, 9]
    assert distinct(np.zeros(0, np.int64)).size == 0


@each_spec
def test_large_cases_go_beyond_2_32_along_every_axis_and_in_all(family: Family[Any], spec: Spec) -> None:
    cases = list(sampled_cases(family, spec))
    axes = {axis for operand in spec.operands for axis in operand.axes if isinstance(axis, str)}
    square = {axis for axis in axes for operand in spec.operands if operand.axes.count(axis) > 1}
    of_results = {axis for operand in spec.operands if operand.role == "out" for axis in operand.axes}
    for axis in (axes & of_results or axes) - square:  # few results, of many elements each, are none of these cases
        assert any(case.extents[axis] > EDGES[-1] for case in cases)
    for case in cases:
        shapes = [layout.shape for layout in family.layouts(spec, case.extents).values()]
        assert max(int(np.prod(shape, dtype=object)) for shape in shapes) > EDGES[-1]
        assert case.sampled
        assert "chosen blocks" in str(case)


def test_sampled_problems_have_one_result_or_many() -> None:
    family = Reduction()
    for label, results in (("sum_f32", 1), ("max_f16", 1), ("sum_f32_axis0", EDGES[-1]), ("sum_f32_axism1", EDGES[-1])):
        spec = family.from_label(label)
        assert spec is not None
        (case,) = sampled_cases(family, spec)
        assert np.prod(family.layouts(spec, case.extents)["out"].shape, dtype=object) >= results


@pytest.mark.parametrize(
    ("algorithm", "label"),
    [
        ("grid", "sum_f32_axis1"), ("flags", "max_f64_axis0"), ("rows", "argmin_f32_axism1"), ("strided", "sum_i8"),
        ("columns", "sum_f32_axis0"), ("columns", "prod_f16_axis1"), ("strided", "sum_f64_axis1x3"),
        ("stream", "sum_f32_axis0"), ("cluster", "sum_f32_axis1"),
    ],
)  # fmt: skip
def test_rows_that_lie_far_apart_and_few_results_are_right(algorithm: str, label: str, host_runner: HostRunner) -> None:
    family = Reduction()
    spec = family.from_label(label)
    assert spec is not None
    for case in far_cases(family, spec):
        layout = family.layouts(spec, case.extents)["in"]
        reach = sum((n - 1) * step for n, step in zip(layout.shape, layout.strides, strict=True))
        assert reach > 2**33 * layout.dtype.itemsize
        assert np.prod(layout.shape) < FEW_ELEMENTS or case.multiprocessors == SHARING_MULTIPROCESSORS
    made = variant(family, spec, algorithm, family.algorithms[algorithm].config())
    (proof,) = prove(host_runner, [made], tuple(far_cases(family, spec)))
    assert proof.failure is None, str(proof.failure)
    assert proof.cases > 0


@pytest.mark.parametrize(
    "name",
    [
        "10_b32__packed_a2_tpb256_u8", "021_b8__packed_a3_tpb512_u4", "021_b8__packed_a3_tpb512_u4_rwords",
        "10_b64__skinny_rows_b4096_tpb128", "021_b8__word_tile_a3_r40_w8192_tpb256_ocol",
        "10_b16__shift_tile_g32_c1_w8_a32_orow", "10_b32_in_place__swap_tile_v4_x32_s4",
        "102_b16__row_copy_x16_tpb256_u2",
    ],
)  # fmt: skip
def test_rows_of_transposes_that_lie_far_apart_are_moved_whole(name: str, host_runner: HostRunner) -> None:
    made = find_variant(FAMILIES, f"transpose_{name}", {})
    cases = tuple(far_cases(made.family, made.spec))
    for case in cases:
        layouts = made.family.layouts(made.spec, case.extents).values()
        ends = [
            sum((n - 1) * step for n, step in zip(o.shape, o.strides, strict=True)) // o.dtype.itemsize for o in layouts
        ]
        assert max(ends) > 2**33
    (proof,) = prove(host_runner, [made], cases)
    assert proof.failure is None, str(proof.failure)
    assert proof.cases > 0


@pytest.mark.parametrize("op", ["sum", "max", "min", "norm", "minmax", "any", "prod", "mean", "all", "argmax"])
@pytest.mark.parametrize("dtype", [F32, U8], ids=lambda one: one.name)
def test_results_that_chosen_blocks_share_are_known_where_zeros_change_nothing(op: str, dtype: DType) -> None:
    spec, family = reduction(op, dtype), Reduction()
    array = np.array([3, 1, -2 if dtype == F32 else 2, 5], dtype.numpy)
    more = np.concatenate([np.zeros(2, dtype.numpy), array, np.zeros(3, dtype.numpy)])
    bear = all(
        np.array_equal(one.value, family.oracle(spec, {"in": more}, {})[name].value)
        for name, one in family.oracle(spec, {"in": array}, {}).items()
    )
    for name, _, _ in spec.results:
        known = family.oracle_at(spec, {"in": array}, {}, name, ())
        assert (known is not None) == bear
        assert known is None or known.value == family.oracle(spec, {"in": array}, {})[name].value


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("op", "axis"), [("sum", (0,)), ("max", (-1,)), ("var", (0, 2)), ("argmin", (1,))])
def test_parts_of_a_reduction_are_those_of_the_whole(op: str, axis: tuple[int, ...], keepdims: bool) -> None:
    spec, family = ReductionSpec((op,), F32, axis=axis, keepdims=keepdims), Reduction()
    array = np.random.default_rng(3).standard_normal((3, 4, 5)).astype(np.float32)
    (name,) = (operand.name for operand in spec.operands if operand.role == "out")
    whole = expected(spec, array)[name]
    index = tuple(np.indices(whole.value.shape).reshape(whole.value.ndim, -1))
    part = family.oracle_at(spec, {"in": array}, {}, name, index)
    assert part is not None
    assert np.array_equal(part.value, whole.value.ravel())
    if whole.magnitude is not None:
        assert part.magnitude is not None
        assert np.array_equal(part.magnitude, whole.magnitude.ravel())


@pytest.mark.parametrize(
    "name",
    [
        "sum_f32_axis0__columns_x32_y8_u4_v16_bpm2", "var_f32_axis1__rows_tpb128_g4_u2_v4",
        "min_i16__cluster_tpb1024_u8_v16_bpm2_c8",  # of whose last cluster one block has elements
    ],
)  # fmt: skip
def test_results_are_right_on_large_problems(host_runner: HostRunner, name: str) -> None:
    made = find_variant(FAMILIES, f"reduction_{name}", {})
    (proof,) = prove(host_runner, [made], tuple(sampled_cases(made.family, made.spec)))
    assert (proof.failure, proof.cases) == (None, 1)


def test_a_family_that_knows_nothing_of_parts_has_no_large_cases() -> None:
    for spec in Scan().catalogue:
        assert not list(sampled_cases(Scan(), spec))


@pytest.mark.parametrize("name", ["0312_b16__tiled_t16_r8_p0_u1_odiagonal", "10_b16__naive_row_x16_y16_u8_odiagonal"])
def test_chosen_blocks_reach_far_elements_in_whatever_order_they_go(host_runner: HostRunner, name: str) -> None:
    made = find_variant(FAMILIES, f"transpose_{name}", {})
    (proof,) = prove(host_runner, [made], tuple(sampled_cases(made.family, made.spec)))
    assert proof.failure is None, str(proof.failure)
    assert proof.cases > 1


@each_spec
def test_base_is_right_on_large_problems(family: Family[Any], spec: Spec, host_runner: HostRunner) -> None:
    bases = base_variants(family, spec)
    every = tuple(sampled_cases(family, spec))
    wide = [
        case
        for case in every
        if all("a grid has at most" in (unsupported_extents(b, case, LIMITS) or "") for b in bases)
    ]
    assert len(wide) == isinstance(spec, TileSpec)  # as many tiles as there are numbers of 32 bits are no blocks
    cases = tuple(case for case in every if case not in wide)
    proofs = list(prove(host_runner, bases, cases))
    for proof in proofs:
        assert proof.failure is None, str(proof.failure)
    assert max(proof.cases for proof in proofs) == len(cases)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    ["sum_f32__flags_tpb128_u1_v8_bpm8", "var_f64__flags_tpb512_u8_v16_bpm2", "minmax_i8__flags_tpb512_u8_v8_bpm1",
     "stats_f32__flags_tpb512_u1_v16_bpm1_ldcs"],
)  # fmt: skip
def test_a_block_that_waits_for_others_takes_those_that_do_not_run_for_done(
    host_runner: HostRunner, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = find_variant(FAMILIES, f"reduction_{name}", {})
    cases = tuple(sampled_cases(made.family, made.spec))
    (proof,) = prove(host_runner, [made], cases)
    assert (proof.failure, proof.cases) == (None, 1)
    monkeypatch.setattr(type(made.algorithm), "flag_word_of_finished_block", 0)
    (proof,) = prove(host_runner, [made], cases)
    assert proof.failure is not None
    assert proof.failure.kind == "hang"


@pytest.mark.exhaustive
@pytest.mark.parametrize("tag", ["tpb128_u1_v4_bpm64", "tpb256_u2_v16_bpm64"])
def test_many_blocks_and_a_last_one_that_has_nothing_to_do(host_runner: HostRunner, tag: str) -> None:
    """The first: more partial results than other blocks have steps. The second: vectors for all blocks but one."""
    made = find_variant(FAMILIES, f"reduction_sum_f32__grid_{tag}", {})
    (proof,) = prove(host_runner, [made], tuple(sampled_cases(made.family, made.spec)))
    assert proof.failure is None, str(proof.failure)
    assert proof.cases == 1


def test_what_reads_nothing_need_not_read_far(host_runner: HostRunner) -> None:
    stencil = find_family(FAMILIES, "stencil")
    spec = StencilSpec("nothing", (0.0,) * 9, (3, 3))
    bases = base_variants(stencil, spec)
    cases = [case for case in sampled_cases(stencil, spec) if unsupported_extents(bases[0], case, LIMITS) is None]
    assert cases
    assert [proof.failure for proof in prove(host_runner, bases, cases)] == [None] * len(bases)


class Plus(FakeFamily):
    """Every element and 1."""

    def layouts(self, spec: FakeSpec, extents: Extents) -> Mapping[str, Layout]:
        return layouts_of(spec.operands, extents)

    def oracle_at(
        self, spec: FakeSpec, inputs: Mapping[str, Any], extents: Extents, name: str, index: tuple[Any, ...]
    ) -> Expected:
        (values,) = inputs.values()
        return Expected(values[index] + np.float32(1))


MATRIX = (Operand("in", "in", F32, ("rows", "cols"), "in_pitch"), Operand("out", "out", F32, ("rows", "cols"), "pitch"))
VECTOR = (Operand("x", "inout", F32, ("n",)),)
N = {"n": EDGES[-1] + 1000}
ROWS = {"rows": 2**28, "cols": 20, "in_pitch": 20, "pitch": 24}
ADD = """
extern "C" __global__ void NAME(float* x, long long n) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  BODY
}
"""
ADD_ROWS = """
extern "C" __global__ void NAME(const float* in, float* out, long long rows, long long in_pitch, long long pitch) {
  const long long row = blockIdx.x * 8LL + threadIdx.y;
  if (row < rows && threadIdx.x < WIDTH) out[row * pitch + threadIdx.x] = in[row * in_pitch + threadIdx.x % 20] + 1.0f;
}
"""


def tried(cache: Path, label: str, text: str, extents: Extents) -> Failure | None:
    """What is wrong with a kernel on a large problem."""
    operands: tuple[Operand, ...]
    if "rows" in extents:
        numbers = tuple((I64, size(name)) for name in ("rows", "in_pitch", "pitch"))
        operands, launch = MATRIX, Launch((size("rows").ceil_div(8), ONE, ONE), (32, 8, 1), ("in", "out", *numbers))
    else:
        operands, launch = VECTOR, Launch((size("n").ceil_div(256), ONE, ONE), (256, 1, 1), ("x", (I64, size("n"))))
    made = replace(fake_variant(label, operands, Plan((launch,))), family=Plus())
    (kernel,) = HostRunner(LIMITS, cache=cache, text=lambda made: text.replace("NAME", made.name)).load([made])
    return check_sampled(kernel, LIMITS, Case(extents, Content.INTEGERS, 5, offset=1, sampled=True))


@pytest.mark.parametrize(
    ("label", "body", "kind", "says"),
    [
        ("right", "if (i < n) x[i] += 1.0f;", "", ""),
        ("twice", "if (i < n) x[i] += i < 4294967296 ? 1.0f : 2.0f;", WRONG, "x[42949"),
        ("wraps", "if (i < n) x[(unsigned)i] += 1.0f;", "race", "but written by thread"),
        ("low", "if (i < n) x[i < 4294967296 ? i : i - 2000000000] += 1.0f;", UNTOUCHED, "beyond 4294967296: the last"),
        ("past", "if (i <= n) x[i] += 1.0f;", "out-of-bounds read", "element 4294968296 of 4294968296"),
        ("idle", "if (i < n && i / 256 != 1) x[i] += 1.0f;", UNTOUCHED, "block 1 touches no element"),
        ("short", "if (i < n / 256 * 256) x[i] += 1.0f;", UNTOUCHED, "the last block touches no element"),
        ("hangs", "while (i < n) x[i] += 1.0f;", "hang", "x[i]"),
    ],
    ids=lambda part: part if part.isalpha() else "",
)
def test_an_array_that_is_changed_in_place(cache: Path, label: str, body: str, kind: str, says: str) -> None:
    failure = tried(cache, f"in_place_{label}", ADD.replace("BODY", body), N)
    assert (failure.kind if failure else "") == kind, str(failure)
    assert says in str(failure)


@pytest.mark.parametrize(
    ("label", "width", "kind"), [("right", "20", ""), ("wide", "20 + (row % 2)", "out-of-bounds write")]
)
def test_a_write_between_rows(cache: Path, label: str, width: str, kind: str) -> None:
    failure = tried(cache, f"rows_{label}", ADD_ROWS.replace("WIDTH", width), {**ROWS, "rows": ROWS["rows"] - 1})
    assert (failure.kind if failure else "") == kind, str(failure)


@pytest.mark.parametrize("axes", [(1, 0), (2, 1, 3, 0), (0, 2, 1), (3, 0, 1, 2)])
def test_gaps_behind_short_rows_do_not_make_an_array_much_larger(axes: tuple[int, ...]) -> None:
    """An array of terabytes leaves no room for what the CPU run notes of each of its words."""
    family, spec = find_family(FAMILIES, "transpose"), permutation(axes, "complex128")
    cases = list(sampled_cases(family, spec))
    assert cases
    for case in cases:
        for layout in family.layouts(spec, case.extents).values():
            span = sum((extent - 1) * stride for extent, stride in zip(layout.shape, layout.strides, strict=True))
            assert span <= 4 * prod(layout.shape) * layout.dtype.itemsize
