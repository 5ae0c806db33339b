"""Permutations: any axes, any element size, any pitch, bit for bit."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gen.dtypes import B8, BF16, C64, C128, F16, F32, F64, I8, I32, I64, U8, U64, DType
from gen.emit.render import render
from gen.errors import SpecError
from gen.families.base import Layout, Limits
from gen.families.config import pairwise
from gen.families.expr import size
from gen.families.extents import extents_of, layout_of
from gen.families.names import base_variants, parse_label, search_space, variant
from gen.families.transpose import Transpose, TransposeSpec, permutation
from gen.families.transpose.algorithms.common import Axis, Order, inverse_of
from gen.families.transpose.algorithms.vectors import VectorTileConfig
from gen.families.transpose.oracle import converted
from gen.families.transpose.shapes import canonical
from gen.families.transpose.values import BITS, Values
from gen.proof.cases import Case
from gen.proof.host import HostRunner
from gen.proof.prover import check, unsupported_extents
from tests.strategies import cases, not_simplest

FAMILY = Transpose()


@st.composite
def problems(draw: st.DrawFn) -> tuple[TransposeSpec, tuple[int, ...], int, int]:
    """A spec, the input's shape, and how many elements lie between rows of the input and of the output."""
    axes = tuple(draw(st.permutations(range(draw(st.integers(1, 8))))))
    most = 9 if len(axes) < 4 else 3
    shape = tuple(draw(st.lists(st.integers(0 if len(axes) < 4 else 1, most), min_size=len(axes), max_size=len(axes))))
    gaps = st.sampled_from((0, 0, 1, 3))
    return TransposeSpec(axes, draw(st.sampled_from(tuple(BITS.values())))), shape, draw(gaps), draw(gaps)


def walked(extents: Any, batches: int) -> dict[int, int]:
    """Where each element comes from, by where it goes, as the canonical form of a problem says."""
    places = {0: 0}
    for b in range(batches):
        one, there, here = (extents[f"batch{b}{end}"] for end in ("", "_in", "_out"))
        places = {o + k * here: i + k * there for o, i in places.items() for k in range(one)}
    return {
        o + col * extents["out_pitch"] + row: i + row * extents["in_pitch"] + col
        for o, i in places.items()
        for row in range(extents["rows"])
        for col in range(extents["cols"])
    }


@given(problems())
def test_the_canonical_form_moves_every_element_where_numpy_has_it(
    problem: tuple[TransposeSpec, tuple[int, ...], int, int],
) -> None:
    spec, shape, in_gap, out_gap = problem
    source, result = spec.operands
    known = dict(zip(map(str, source.axes), shape, strict=True))
    known |= {o.pitch: known[str(o.axes[-1])] + gap for o, gap in ((source, in_gap), (result, out_gap)) if o.pitch}
    layouts = {o.name: layout_of(o, known) for o in spec.operands}
    extents = FAMILY.extents(spec, layouts)
    assert sum(f"batch{b}" in extents for b in range(9)) == spec.batches
    size = spec.dtype.size
    places = [
        sum(np.multiply(np.indices(layouts[name].shape).T, np.array(layouts[name].strides) // size).T)
        for name in ("in", "out")
    ]
    expected = dict(zip(places[1].ravel().tolist(), places[0].transpose(spec.axes).ravel().tolist(), strict=True))
    assert walked(extents, spec.batches) == (expected if 0 not in shape else {})


def test_axes_that_stay_neighbours_are_one() -> None:
    # NHWC to NCHW: 64 matrices of 224 * 224 rows and 3 columns.
    shape, strides = (64, 224, 224, 3), (224 * 224 * 3, 224 * 3, 3, 1)
    found = canonical(shape, strides, (224 * 224 * 3, 224, 1, 224 * 224))
    assert (found.rows, found.cols, found.in_pitch, found.out_pitch) == (224 * 224, 3, 3, 224 * 224)
    assert found.batch == (Axis(64, 224 * 224 * 3, 224 * 224 * 3),)


@pytest.mark.parametrize("axes", [axes for n in (1, 2, 3, 4) for axes in permutations(range(n))], ids=str)
def test_where_no_axis_moves_past_another_of_more_than_one_element_it_is_a_copy(axes: tuple[int, ...]) -> None:
    spec = TransposeSpec(axes)
    for long in range(len(axes)):
        shape = tuple(7 if axis == long else 1 for axis in range(len(axes)))
        extents = FAMILY.extents(spec, {"in": Layout.of(np.zeros(shape, np.float32))})
        rows, cols = extents.get("rows"), extents.get("cols")
        assert {rows, cols} == {1, 7}
        assert extents["out_pitch" if rows == 1 else "in_pitch"] == 1


@pytest.mark.parametrize(
    ("axes", "dtype", "label"),
    [
        ((1, 0), "float32", "10_b32"),
        ([0, 2, 1], np.int8, "021_b8"),
        ((0, -1, 1), "bfloat16", "021_b16"),
        (np.array([0, -1, 1]), "bool", "021_b8"),
        ((np.int8(1), np.uint64(0)), "f4", "10_b32"),
        (range(3), "f4", "012_b32"),
        ((2, 1, 0), np.complex64, "210_b64"),
        ((1, 0), "c16", "10_b128"),
        ((1, 0), [("tag", "u1"), ("value", "<f4"), ("more", "u1", 3)], "10_b64"),
        ((1, 0), "b16", "10_b16"),
        ((1, 0), "M8[s]", "10_b64"),
        ((1, 0), "int64", "10_b64"),
        ((1, 0), "float16", "10_b16"),
        ((1, 0), "c64", "10_b64"),
        ((1, 0), "c128", "10_b128"),
    ],
)
def test_a_spec_is_built_from_what_numpy_takes(axes: Any, dtype: Any, label: str) -> None:
    assert permutation(axes, dtype).label == label


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ({"in_place": True}, "10_b32_in_place"),
        ({"axes": (0, 2, 1), "dtype": "u1", "in_place": True}, "021_b8_in_place"),
        ({"dtype": "f4", "to": "f2"}, "10_f32_to_f16"),
        ({"dtype": "f4", "to": "bfloat16", "alpha": 2.5}, "10_f32_to_bf16_times_40200000"),
        ({"dtype": "c8", "conjugate": True}, "10_c64_conj"),
        ({"dtype": "c16", "alpha": -1, "in_place": True}, "10_c128_times_bff0000000000000_in_place"),
        ({"dtype": "f8", "to": "i1", "saturate": True}, "10_f64_to_i8_sat"),
        ({"dtype": "f4", "to": "f4"}, "10_b32"),  # nothing changes
        ({"dtype": "u1", "to": "i4"}, "10_u8_to_i32"),
        ({"dtype": "int64", "to": "f4", "alpha": 0.5}, "10_i64_to_f32_times_3fe0000000000000"),
    ],
)  # fmt: skip
def test_forms_have_labels_and_json_that_give_them_back(arguments: dict[str, Any], label: str) -> None:
    spec = permutation(**arguments)
    assert spec.label == label
    assert parse_label(FAMILY, label, {}) == spec
    assert FAMILY.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"axes": (2, 0, 1), "in_place": True}, "transpose.axes must exchange the last two"),
        ({"axes": (0,), "in_place": True}, "transpose.axes must exchange the last two"),
        ({"to": "f2", "in_place": True}, "transpose.to must have elements of 4 bytes"),
        ({"to": "i4", "saturate": True, "in_place": True}, "transpose.to must be left out to work in place"),
        ({"in_place": 1}, "transpose.in_place must be True or False (got 1)"),
        ({"conjugate": True}, "transpose.conjugate is for complex numbers (got f32)"),
        ({"dtype": "c8", "conjugate": "yes"}, "transpose.conjugate must be True or False"),
        ({"to": "c8"}, "transpose.to must be complex where the input is, and only there (got f32 to c64)"),
        ({"to": "i4"}, "transpose.to does not hold every number that may come (got f32 to i32). With saturate=True"),
        ({"dtype": "i4", "to": "u4"}, "transpose.to does not hold every number that may come (got i32 to u32)"),
        (
            {"dtype": "i1", "alpha": 2.0},
            "transpose.to does not hold every number that may come (got i8 to i8 times",
        ),
        (
            {"dtype": "int64", "to": "f8", "alpha": 0.0},
            "transpose.alpha must be 2^-1022 in magnitude at least for integers of 64",
        ),
        ({"dtype": "uint64", "alpha": 1e-19, "saturate": True}, "transpose.alpha must be 2^-63 in magnitude at least"),
        (
            {"dtype": "int64", "alpha": 3.0},
            "transpose.to does not hold every number that may come (got i64 to i64 times",
        ),
        ({"dtype": "int64", "to": "bfloat16"}, "rounds to it (got i64). With alpha=1.0 they are rounded once"),
        ({"to": "f2", "saturate": True}, "transpose.saturate is for results that are integers (got f16)"),
        ({"saturate": True}, "transpose.saturate is for results that are integers (got f32)"),
        ({"dtype": "i4", "saturate": True}, "transpose.saturate must come with another type as to, or with alpha"),
        ({"dtype": "i4", "to": "i4", "saturate": True}, "transpose.saturate must come with another type as to, or"),
        ({"alpha": 1j}, "transpose.alpha must be a finite real number (got 1j)"),
        ({"alpha": float("nan")}, "transpose.alpha must be a finite real number (got nan)"),
        ({"alpha": 1e300}, "transpose.alpha must be a number, finite as f32 (got 1e+300)"),
        ({"dtype": "f8", "alpha": 10**309}, "transpose.alpha must be a finite real number (got 1000000000"),
        ({"alpha": Fraction(10**309, 3)}, "transpose.alpha must be a finite real number (got Fraction(1000000000"),
        ({"dtype": "?", "to": "f4"}, "transpose.dtype must be one of f16, bf16"),
        ({"dtype": [("a", "u1"), ("b", "u1")], "alpha": 2.0}, "transpose.dtype must be one of f16, bf16"),
        ({"to": "f33"}, "transpose.to must be one of f16, bf16"),
        ({"dtype": "b32", "alpha": 2}, "c128 where numbers change (got 'b32'). Bits are moved as they are: say which"),
        ({"dtype": B8, "conjugate": True}, "where numbers change (got DType(name='b8', "),
    ],
)
def test_a_form_that_cannot_be_says_why(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError) as caught:
        permutation(**arguments)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("10_f32_to_i8", "does not hold every number that may come (got f32 to i8). With saturate=True"),
        ("10_i8_times_40000000", "does not hold every number that may come (got i8 to i8 times 2.0)"),
        ("10_f32_conj_to_f16", "transpose.conjugate is for complex numbers (got f32)"),
        ("10_f32_to_f16_times_7fc00000", "transpose.alpha must be a finite real number (got nan)"),
        ("10_f32_to_c64_in_place", "transpose.to must be complex where the input is"),
    ],
)
def test_a_name_of_a_form_that_cannot_be_says_why_too(label: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_label(FAMILY, label, {})
    assert says in str(caught.value)


def test_integers_of_64_bits_become_bf16_by_one_rounding() -> None:
    near = 2**40 + 2**32 + np.array([-1, 0, 1, 2**32 - 1, 2**32, 2**32 + 1])  # bf16 has 2^40 + 2^33 next
    got = converted(Values(I64, BF16, 1.0), near).astype(np.float64)
    assert (got - 2.0**40).tolist() == [0.0, 0.0, 2.0**33, 2.0**33, 2.0**33, 2.0**33]


def test_values_are_what_numpy_computes_rounded_once() -> None:
    wide = np.array([1 + 2**-8 + 2**-30, -(1 + 2**-8 + 2**-30), np.nan, np.inf, 3.0, 1e300, 2.0**-140])
    halfway_up = converted(Values(F64, BF16), wide).astype(np.float64)  # by way of f32 they would be halfway, and even
    assert halfway_up[0] == 1 + 2**-7
    assert halfway_up[1] == -(1 + 2**-7)
    assert np.isnan(halfway_up[2])
    assert halfway_up[3:6].tolist() == [np.inf, 3.0, np.inf]
    ends = np.array([-1e9, -128.5, -128.99, 127.99, 128.0, np.nan, -0.5], np.float32)
    assert converted(Values(F32, I8, saturate=True), ends).tolist() == [-128, -128, -128, 127, 127, 0, 0]
    assert converted(Values(F32, U8, 2.0, saturate=True), ends).tolist() == [0, 0, 0, 255, 255, 0, 0]
    assert converted(Values(I64, U8, saturate=True), np.array([-1, 256, 2**62])).tolist() == [0, 255, 255]
    (one,) = converted(Values(C64, C128, 2.0, conjugate=True), np.array([1 + 0j], np.complex64))
    assert (one.real, one.imag, np.signbit(one.imag)) == (2.0, 0.0, True)


@given(
    st.sampled_from((I64, U64)),
    st.lists(st.integers(-(2**63), 2**64 - 1), min_size=1),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_integers_of_64_bits_are_multiplied_exactly_and_rounded_once(
    source: DType, integers: list[int], alpha: float
) -> None:
    ends = np.iinfo(source.numpy)
    numbers = np.array([min(max(n, int(ends.min)), int(ends.max)) for n in integers], source.numpy)
    exact = [Fraction(n) * Fraction(alpha) for n in numbers.tolist()]
    for result in (F16, F32, F64):
        assume(abs(alpha) >= 2.0**-1022)
        found = converted(Values(source, result, alpha), numbers)
        largest = Fraction(result.largest) * (1 + Fraction(result.unit_roundoff) / 2)
        for one, product in zip(found, exact, strict=True):
            if np.isinf(one):
                assert abs(product) >= largest
                continue
            for other in np.nextafter(one, [-np.inf, np.inf], dtype=result.numpy):
                if np.isfinite(other):
                    assert abs(Fraction(float(one)) - product) <= abs(Fraction(float(other)) - product)
    for result in (I8, I32, I64, U64):
        assume(abs(alpha) >= 2.0**-63)
        wholes = converted(Values(source, result, alpha, saturate=True), numbers)
        ends = np.iinfo(result.numpy)
        assert wholes.tolist() == [min(max(int(product), int(ends.min)), int(ends.max)) for product in exact]


SPECS = (
    permutation((1, 0), "u1"), permutation((0, 2, 1), "u1"), permutation((1, 0), "f2"), permutation((2, 0, 1), "f2"),
    permutation((0, 2, 1), "f4"), permutation((0, 2, 1, 3), "f4"), permutation((2, 1, 0), "f8"),
    permutation((1, 0, 2), "c16"),
    permutation((0, 2, 1), "u1", in_place=True), permutation((1, 0), "f2", in_place=True),
    permutation((1, 0), "c8", conjugate=True, in_place=True), permutation((1, 0), "f4", to="f2", alpha=0.1),
    permutation((0, 2, 1), "f8", to="bfloat16"), permutation((1, 0), "c8", to="c16", conjugate=True),
    permutation((1, 0), "f2", to="u1", saturate=True), permutation((2, 0, 1), "i2", alpha=-3.0, saturate=True),
    permutation((1, 0), "int64", to="f4", alpha=-0.1), permutation((1, 0), "uint64", alpha=2.5, saturate=True),
)  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)
def test_any_shape_axes_element_and_pitch_equal_numpy(spec: TransposeSpec, host_runner: HostRunner) -> None:
    kernels = host_runner.load(base_variants(FAMILY, spec))

    @settings(max_examples=max(settings().max_examples // 8, 1))
    @given(not_simplest(cases(FAMILY, spec)))
    def equals_numpy(case: Case) -> None:
        for kernel in kernels:
            if unsupported_extents(kernel.variant, case, host_runner.limits) is None:
                failure = check(kernel, host_runner.limits, case)
                assert failure is None, str(failure)

    equals_numpy()


def test_rows_are_aligned_only_if_matrices_begin_at_whole_vectors() -> None:
    spec = permutation((0, 3, 2, 1), "f8")
    for in_row, out_row, name in ((512, 512, "aligned rows"), (513, 512, "odd rows"), (512, 513, "odd rows")):
        sizes = {"axis0": 8, "axis1": 512, "axis2": 2, "axis3": 512, "in_row": in_row, "out_row": out_row}
        extents = FAMILY.extents(spec, {one.name: layout_of(one, sizes) for one in spec.operands})
        assert extents["in_pitch"] % 2 == extents["out_pitch"] % 2 == 0
        assert FAMILY.shape_class(spec, extents) == name


def test_a_text_that_works_in_place_does_not_promise_that_arrays_are_apart() -> None:
    spec = permutation((1, 0), in_place=True)
    for made in base_variants(FAMILY, spec):
        assert not re.search(r"__restrict\b|__restrict__", render(made))


def test_untuned_a_call_in_which_nothing_moves_is_a_copy() -> None:
    for spec, shape in ((permutation((1, 0)), (1, 4096)), (permutation((0, 2, 1), "u1"), (64, 4096, 1))):
        extents = extents_of(FAMILY, spec, shape)
        found = FAMILY.shape_class(spec, extents)
        assert found == "nothing moves: a copy"
        assert FAMILY.base(spec, found)[0] == "row_copy"


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)
def test_base_of_every_class_takes_the_size_that_stands_for_it(spec: TransposeSpec, host_runner: HostRunner) -> None:
    for shape_class in FAMILY.shape_classes(spec):
        made = variant(FAMILY, spec, *FAMILY.base(spec, shape_class))
        extents = FAMILY.representative(spec, shape_class)
        assert FAMILY.shape_class(spec, extents) == shape_class
        assert made.algorithm.infeasible(spec, made.config, host_runner.limits) is None
        assert made.algorithm.unsupported_extents(spec, made.config, extents, host_runner.limits) is None


@pytest.mark.parametrize(
    ("axes", "dtype", "says"),
    [
        ((1, 1), "f4", "(got (1, 1))"),
        ((1, -3), "f4", "(got (1, -3))"),
        (5, "f4", "transpose.axes must be a sequence of whole numbers (got 5)"),
        ((1, "x"), "f4", "transpose.axes must be a sequence of whole numbers"),
        ("10", "f4", "transpose.axes must be a sequence of whole numbers (got '10')"),
        ((1.9, 0), "f4", "transpose.axes must be a sequence of whole numbers (got (1.9, 0))"),
        ((True, False), "f4", "transpose.axes must be a sequence of whole numbers"),
        (None, "f4", "transpose.axes must be a sequence of whole numbers (got None)"),
        (np.array(0), "f4", "transpose.axes must be a sequence of whole numbers (got array(0))"),
        (np.array([[1, 0]]), "f4", "transpose.axes must be a sequence of whole numbers (got array([[1, 0]]))"),
        (np.array([1.0, 0.0]), "f4", "transpose.axes must be a sequence of whole numbers (got array([1., 0.]))"),
        (np.array([True, False]), "f4", "transpose.axes must be a sequence of whole numbers"),
        (np.array([1, 0], "m8[s]"), "f4", "transpose.axes must be a sequence of whole numbers"),
        ([[1, 0]], "f4", "transpose.axes must be a sequence of whole numbers (got [[1, 0]])"),
        ({1, 0}, "f4", "of whole numbers (got {0, 1}). Give a tuple, in the order of the result's axes"),
        (frozenset({1, 0}), "f4", "transpose.axes must be a sequence of whole numbers (got frozenset({0, 1}))"),
        ({1: 0, 0: 1}, "f4", "transpose.axes must be a sequence of whole numbers (got {1: 0, 0: 1})"),
        ({1: 0, 0: 1}.values(), "f4", "transpose.axes must be a sequence of whole numbers"),
        (b"\x01\x00", "f4", "transpose.axes must be a sequence of whole numbers (got b'\\x01\\x00')"),
        (memoryview(b"\x01\x00"), "f4", "transpose.axes must be a sequence of whole numbers"),
        ((axis for axis in (1, 0)), "f4", "transpose.axes must be a sequence of whole numbers (got <generator"),
        ((), "f4", "transpose.axes must hold each of 0, 1, ... once, 8 numbers at most, such as (1, 0) (got ())"),
        (range(9), "f4", "transpose.axes must hold each of 0, 1, ... once, 8 numbers at most"),
        (range(10**20), "f4", "transpose.axes must hold each of 0, 1, ... once, 8 numbers at most"),
        ((1, 0), "f33", "transpose.dtype must be one that NumPy knows, or one of bool, f16, bf16, f32"),
        ((1, 0), "f33", "b128, c64, c128, bfloat16 (got 'f33')"),
        ((1, 0), None, "c128, bfloat16 (got None)"),
        ((1, 0), object, "transpose.dtype must not hold Python objects"),
        ((1, 0), "S3", "transpose.dtype must have elements of 1, 2, 4, 8 or 16 bytes (got S3: 3 bytes)"),
    ],
)
def test_a_spec_that_cannot_be_says_why(axes: Any, dtype: Any, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        permutation(axes, dtype)
    assert says in str(caught.value)


@given(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 2))
@example(1, 2**31 - 2)
@example(2**31 - 1, 2**31 - 2)
@example(2**31 - 2, 2**31 - 2)
@example(641, 2**31 - 2)
def test_one_more_than_a_number_times_the_inverse_has_the_quotient_as_its_upper_bits(divisor: int, number: int) -> None:
    inverse = inverse_of(size("n")).at({"n": divisor})
    assert 0 < inverse < 2**64
    for near in {number, number // divisor * divisor, max(number // divisor * divisor - 1, 0)}:
        assert (2 * near + 2) * inverse >> 64 == near // divisor


@pytest.mark.parametrize(("in_row", "out_row", "says"), [(64, 2**23, True), (2**23, 64, True), (2**21, 64, False)])
def test_places_of_32_bits_are_for_outputs_and_inputs_that_have_as_many(in_row: int, out_row: int, says: bool) -> None:
    spec, known = TransposeSpec((0, 2, 1)), {"axis0": 8, "axis1": 64, "axis2": 64, "in_row": in_row, "out_row": out_row}
    extents = FAMILY.extents(spec, {operand.name: layout_of(operand, known) for operand in spec.operands})
    made = variant(FAMILY, spec, "vector_tile", VectorTileConfig(vec_bytes=16, index_bits=32))
    found = made.algorithm.unsupported_extents(spec, made.config, extents, Limits.of("sm_90"))
    assert (found is not None) == says
    assert found is None or "with 32 bits" in found


def test_nothing_over_no_tiles_fits_an_argument() -> None:
    assert 0 < inverse_of(size("n")).at({"n": 0}) < 2**64


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((32768, 32768), None),
        ((65536, 32768), "with 32 bits"),
        ((1, 2**31 - 64), "with 32 bits"),
        ((511, 2048, 2048), None),
        ((512, 2048, 2048), "with 32 bits"),
    ],
)
def test_places_of_32_bits_are_for_arrays_that_have_as_many(shape: tuple[int, ...], says: str | None) -> None:
    spec, limits = TransposeSpec((1, 0) if len(shape) == 2 else (0, 2, 1)), Limits.of("sm_90")
    made = variant(FAMILY, spec, "vector_tile", VectorTileConfig(vec_bytes=16, index_bits=32))
    found = made.algorithm.unsupported_extents(spec, made.config, extents_of(FAMILY, spec, shape), limits)
    assert found == says if says is None else says in str(found)


@pytest.mark.parametrize("name", ["naive", "tiled", "vector_tile", "window_tile", "shift_tile"])
def test_edge_cases_leave_the_last_tile_few_of_its_rows_and_columns_or_all_but_few(name: str) -> None:
    spec = permutation((0, 2, 1), "u1" if name == "shift_tile" else "f4")
    algorithm: Any = FAMILY.algorithms[name]
    for config in pairwise(search_space(algorithm, spec)):
        if getattr(config, "block_order", None) is Order.SQUARE:
            continue
        tiles = algorithm.tiles(spec, config)
        sizes = [*variant(FAMILY, spec, algorithm, config).edge_cases()]
        for extent, tile in ((tiles.rows, tiles.tile_rows), (tiles.cols, tiles.tile_cols)):
            last = {(extent.at(one) - 1) % tile + 1 for one in sizes}
            assert last >= {1, 2, tile - 1, tile}, config.tag
        whole = [all(one[pitch] % 16 == 0 for pitch in ("in_pitch", "out_pitch")) for one in sizes]
        assert {True, False} == {*whole}, config.tag
