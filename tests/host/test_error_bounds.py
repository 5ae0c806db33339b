"""What NumPy says, and how far from it a result may lie."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.dtypes import B32, B128, BF16, DTYPES, F16, F32, F64, DType
from gen.families.base import Array, Expected, Limits
from gen.families.exact import fused_multiply_add, sums_are_exact
from gen.families.reduction import Grid, GridConfig, Reduction, ReductionSpec
from gen.families.stencil import Stencil, StencilSpec
from gen.families.transpose import Transpose, TransposeSpec
from gen.proof.cases import Content, fill
from gen.proof.error_bounds import ORACLE_ROUNDINGS, bounds, disagreement, gamma, sharpened
from tests import libm

SUM, SPEC = Reduction(), ReductionSpec()
INF, NAN = float("inf"), float("nan")


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def content(kind: Content, *shape: int, seed: int = 0) -> Array:
    array: Array = np.zeros(shape, np.float32)
    fill(array, F32, kind, seed)
    return array


def sum_of(values: Array) -> Expected:
    return SUM.oracle(SPEC, {"in": values}, {"n": values.size})["out"]


@given(st.integers(0, 2**24), st.sampled_from((8, 11, 24, 53)))
def test_gamma_is_highams(roundings: int, precision: int) -> None:
    product = Fraction(roundings, 2**precision)
    if product < 1:
        assert gamma(roundings, 2.0**-precision) == pytest.approx(float(product / (1 - product)), rel=1e-15)
    else:
        assert gamma(roundings, 2.0**-precision) == INF


def test_without_roundings_there_is_no_error() -> None:
    assert gamma(0, 2.0**-24) == 0


def test_the_bound_of_a_long_sum_is_tight_and_never_accepts_zero() -> None:
    n = 2**28
    config = GridConfig(threads_per_block=1024, unroll=4, vec_bytes=16, blocks_per_sm=2)
    roundings = Grid().roundings(SPEC, config, {"n": n}, Limits.of("sm_90"))
    assert 260 <= roundings <= 280
    total = np.asarray(float(n))
    expected = Expected(total, total, F32)
    assert float(bounds(expected, roundings, F32)) / n == pytest.approx(1.6e-5, rel=0.05)
    assert disagreement(expected, np.asarray(0.0, np.float32), roundings, F32) is not None
    assert disagreement(expected, np.asarray(n * (1 - 1.7e-5), np.float32), roundings, F32) is not None
    assert disagreement(expected, np.asarray(n * (1 - 1.5e-5), np.float32), roundings, F32) is None


@given(st.floats(1e-20, 1e20), st.floats(1, 1e6), st.integers(1, 1000), st.sampled_from((-1, 1)))
def test_a_result_at_its_bound_is_right_and_one_beyond_is_not(
    value: float, spread: float, roundings: int, sign: int
) -> None:
    expected = Expected(np.asarray(value), np.asarray(value * spread), F64)
    bound = float(bounds(expected, roundings, F64))
    at, beyond = value + sign * bound * (1 - 1e-3), value + sign * bound * (1 + 1e-3)
    # Only where the numbers around the value are close enough to tell the two apart.
    if np.spacing(abs(value) + bound) < bound * 1e-4:
        assert disagreement(expected, np.asarray(at), roundings, F64) is None
        wrong = disagreement(expected, np.asarray(beyond), roundings, F64)
        assert wrong is not None
        assert (wrong.expected, wrong.got, wrong.count) == (value, beyond, 1)


def test_the_bound_counts_the_oracle_the_rounding_of_the_result_and_underflow() -> None:
    value, magnitude = np.asarray(3.0), np.asarray(10.0)
    oracle = gamma(ORACLE_ROUNDINGS, 2.0**-53) * 10
    same = float(bounds(Expected(value, magnitude, F32), 5, F32))
    assert same == pytest.approx(gamma(5, 2.0**-24) * 10 + oracle, rel=1e-12)
    narrower = float(bounds(Expected(value, magnitude, F32), 5, F16))
    assert narrower - same == pytest.approx((3 + same) * 2.0**-11 + 2.0**-25, rel=1e-12)
    none = float(bounds(Expected(np.asarray(0.0), np.asarray(0.0), F32), 5, F32))
    assert none == 5 * 2.0**-149


@pytest.mark.parametrize("result", [F16, BF16, F32], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_result_that_its_type_does_not_hold_is_infinite(result: DType, sign: int) -> None:
    def wrong(value: float, got: float) -> bool:
        expected = Expected(np.asarray(sign * value), np.asarray(value), F64)
        return disagreement(expected, np.asarray(sign * got).astype(result.numpy), 1, result) is not None

    assert not wrong(result.largest * 1.01, INF)
    assert wrong(result.largest * 1.01, -INF)
    assert wrong(result.largest * 1.01, result.largest)
    assert wrong(result.largest * 0.99, INF)
    for got in (result.largest, INF):  # half way to the next number, had the type one
        assert not wrong(result.largest * (1 + result.unit_roundoff / 2), got)
    assert not wrong(result.smallest / 2, 0.0)
    assert wrong(result.smallest, 0.0)


def test_errors_of_intermediate_results_may_overflow() -> None:
    largest = np.asarray(F32.largest)
    assert disagreement(Expected(largest, largest, F32), np.asarray(INF, np.float32), 2, F32) is None
    assert disagreement(Expected(largest / 2, largest / 2, F32), np.asarray(INF, np.float32), 2, F32) is not None


@given(st.integers(0, 2**20), st.integers(1, 2000), st.data())
def test_one_dropped_or_doubled_element_is_reported(seed: int, n: int, data: st.DataObject) -> None:
    values = content(Content.INTEGERS, n, seed=seed)
    expected = sum_of(values)
    assert expected.magnitude is None
    total = np.asarray(values.sum(dtype=np.float32))
    assert disagreement(expected, total, 1000, F32) is None
    one = values[data.draw(st.integers(0, n - 1))]
    for wrong in (total - one, total + one):
        found = disagreement(expected, np.asarray(wrong, np.float32), 1000, F32)
        assert found is not None
        assert found.bound == 0
        assert "exactly" in str(found)


@given(st.integers(0, 2**20), st.integers(0, 3000), st.sampled_from((Content.RANDOM, Content.SPREAD)))
def test_any_order_of_additions_is_within_the_bound(seed: int, n: int, kind: Content) -> None:
    values = content(kind, n, seed=seed)
    expected = sum_of(values)
    order = np.random.default_rng(seed).permutation(n)
    one_by_one = np.asarray(np.cumsum(values[order], dtype=np.float32)[-1] if n else np.float32(0))
    pairwise = np.asarray(values[order].sum(dtype=np.float32))
    assert disagreement(expected, one_by_one, max(n - 1, 1), F32) is None
    assert disagreement(expected, pairwise, max(n - 1, 1), F32) is None


@given(
    st.lists(st.integers(-(2**23), 2**23), min_size=1, max_size=40),
    st.sampled_from((0, 2, 4, 7, 10, 18, 20, 21, 24)),
    st.randoms(use_true_random=False),
)
def test_sums_called_exact_are_so_in_every_order(numbers: list[int], exponent: int, random: Any) -> None:
    values = np.ldexp(np.array(numbers, np.float64), -exponent).astype(np.float32)
    wide = values.astype(np.float64)
    if sums_are_exact(F32, float(np.abs(wide).sum()), wide):
        exact = sum((Fraction(float(value)) for value in values), Fraction(0))
        for _ in range(4):
            order = list(values)
            random.shuffle(order)
            total = np.float32(0)
            for value in order:
                total += value
            assert Fraction(float(total)) == exact


def test_sums_are_called_exact_up_to_the_precision_and_no_further() -> None:
    ones = np.ones(3)
    assert sums_are_exact(F32, 2.0**24, ones)
    assert not sums_are_exact(F32, 2.0**24 + 1, ones)
    assert sums_are_exact(F32, 2.0**14, ones / 1024)
    assert not sums_are_exact(F32, 2.0**14 + 1, ones / 1024)
    assert sums_are_exact(F16, 2.0**11, ones)
    assert not sums_are_exact(F16, 2.0**12, ones)
    assert not sums_are_exact(F32, 1.0, np.array([0.1]))
    assert not sums_are_exact(F32, INF, np.array([INF]))
    assert not sums_are_exact(F32, NAN, np.array([NAN]))
    assert not sums_are_exact(F32, 1.0, np.array([NAN]))


@pytest.mark.parametrize("dtype", [F32, F64], ids=lambda dtype: dtype.name)
@given(seed=st.integers(0, 2**20))
def test_a_fused_multiply_add_is_the_c_librarys(dtype: DType, seed: int) -> None:
    random = np.random.default_rng(seed)
    factor, values, addends = any_floats(random, dtype, 1), any_floats(random, dtype, 60), any_floats(random, dtype, 60)
    factor[~np.isfinite(factor)] = 0.3
    with np.errstate(all="ignore"):
        addends[::3] = -(factor * values[::3])  # what is left is what the product was rounded by
        addends[1::3] = np.ldexp(factor * values[1::3], random.integers(-60, 60, 20))
    fma = libm.fused_multiply_add(dtype)
    expected = [fma(float(factor[0]), float(a), float(b)) for a, b in zip(values, addends, strict=True)]
    found = fused_multiply_add(float(factor[0]), values, addends)
    assert found.dtype == dtype.numpy
    np.testing.assert_array_equal(found, np.array(expected, dtype.numpy))


def any_floats(random: np.random.Generator, dtype: DType, count: int) -> Array:
    """Normal deviates, short numbers, any exponent, the ends of the range, zeros, infinities and NaN."""
    limits = np.finfo(dtype.numpy)
    signs = random.choice((-1.0, 1.0), count)
    exponents = random.integers(limits.minexp - 10, limits.maxexp, count)
    ends = (limits.max, limits.tiny, limits.smallest_subnormal, 1 + limits.eps, 0.0, INF, NAN)
    kinds = (
        random.standard_normal(count),
        np.ldexp(random.integers(1, 2**12, count).astype(np.float64), random.integers(-40, 10, count)),
        np.ldexp(random.uniform(1, 2, count), exponents) * signs,
        np.array(random.choice(np.array(ends, np.float64), count)) * signs,
    )
    return np.choose(random.integers(0, len(kinds), count), kinds).astype(dtype.numpy)


@pytest.mark.parametrize(
    ("values", "expected"),
    [((), 0.0), ((1, NAN), NAN), ((INF, 1), INF), ((-INF, 1), -INF), ((INF, -INF), NAN), ((INF, NAN), NAN)],
)
def test_a_sum_treats_nan_and_infinities_as_numpy_does(values: tuple[float, ...], expected: float) -> None:
    found = sum_of(f32(*values))
    right = np.asarray(expected, np.float32)
    np.testing.assert_array_equal(found.value, right)
    assert disagreement(found, right, 10, F32) is None
    for wrong in (0.5, INF, -INF, NAN):
        if not np.array_equal(np.float32(wrong), right, equal_nan=True):
            assert disagreement(found, np.asarray(wrong, np.float32), 10, F32) is not None


def test_a_nan_or_an_infinity_that_nothing_explains_is_wrong() -> None:
    expected = sum_of(f32(0.1, 0.7))
    for wrong in (NAN, INF, -INF):
        assert disagreement(expected, np.asarray(wrong, np.float32), 10, F32) is not None


def test_where_the_order_decides_whether_a_sum_overflows_anything_is_right() -> None:
    expected = sum_of(f32(3e38, 3e38, -3e38))
    for result in (3e38, INF, NAN):
        assert disagreement(expected, np.asarray(result, np.float32), 2, F32) is None


def test_a_result_of_another_shape_is_wrong() -> None:
    expected = Expected(np.zeros((3, 4), np.float32))
    assert disagreement(expected, np.zeros((4, 3), np.float32), 0, F32) is not None


def test_the_first_wrong_element_is_named_with_all_their_number() -> None:
    expected = Expected(np.arange(12, dtype=np.float32).reshape(3, 4))
    got = expected.value.copy()
    got[1, 2], got[2, 0] = 9, 9
    assert str(disagreement(expected, got, 0, F32)) == "[1, 2] must be 6.0 exactly (got 9.0); 2 elements are wrong"


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0)])
def test_a_stencil_of_no_cells_has_none(shape: tuple[int, int]) -> None:
    found = Stencil().oracle(StencilSpec("any", (1.0,) * 9), {"in": f32().reshape(shape)}, {})["out"]
    assert found.value.shape == shape


def transposed(array: Array) -> Expected:
    return Transpose().oracle(TransposeSpec(), {"in": array}, {})["out"]


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 1000))
def test_a_transpose_is_numpys_bit_for_bit(rows: int, cols: int, seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 2**32, (rows, cols), np.uint32)
    floats = bits.view(np.float32)  # NaN of every payload among them
    expected = transposed(floats)
    right = bits.T.copy()
    assert disagreement(expected, right.view(np.float32), 0, B32) is None
    if bits.size:
        right[-1, -1] ^= 1
        found = disagreement(expected, right.view(np.float32), 0, B32)
        assert found is not None
        assert found.index == (cols - 1, rows - 1)
        assert found.count == 1


def test_bits_are_told_apart_where_numbers_are_not() -> None:
    quiet, other = np.array([[0x7FC00000]], np.uint32), np.array([[0x7FC00001]], np.uint32)
    expected = transposed(quiet.view(np.float32))
    assert disagreement(expected, quiet.view(np.float32), 0, B32) is None
    assert disagreement(expected, other.view(np.float32), 0, B32) is not None
    zero = transposed(np.zeros((1, 1), np.float32))
    assert disagreement(zero, -np.zeros((1, 1), np.float32), 0, B32) is not None


def test_zeros_have_the_sign_that_every_bit_asks_for() -> None:
    wrong = disagreement(Expected(f32(0.0, -0.0, NAN)), f32(0.0, 0.0, NAN), 0, F32)
    assert wrong is not None
    assert (wrong.index, wrong.count) == ((1,), 1)


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.kind == "bits"], ids=lambda dtype: dtype.name)
def test_bits_of_every_size_are_compared_whole(dtype: DType) -> None:
    for byte in range(dtype.size):
        value: Array = np.zeros((2, 3), dtype.numpy)
        got = value.copy()
        got.view(np.uint8).reshape(2, 3, dtype.size)[1, 2, byte] = 0x80
        found = disagreement(Expected(value), got, 0, dtype)
        assert found is not None
        assert (found.index, found.count) == ((1, 2), 1)
        assert disagreement(Expected(value), value.copy(), 0, dtype) is None


def test_bits_are_compared_however_they_lie() -> None:
    value = np.arange(6, dtype=np.complex128).reshape(2, 3)
    assert disagreement(Expected(value.T), np.ascontiguousarray(value.T), 0, B128) is None


@pytest.mark.parametrize("n", [2**22, 2**24])
def test_random_integers_are_exact_beyond_what_their_magnitudes_tell(n: int) -> None:
    family = Reduction()
    spec = family.catalogue[0]
    values = np.empty(n, np.float32)
    fill(values, F32, Content.INTEGERS, 1)
    expected = family.oracle(spec, {"in": values}, {"n": n})["out"]
    assert expected.magnitude is not None  # larger than 2^24: the magnitudes alone promise nothing
    sharp = sharpened(expected, random_signs=True)
    assert sharp.magnitude is None
    total = np.float32(values.sum(dtype=np.float64))
    assert disagreement(sharp, np.asarray(total), 4117, F32) is None
    assert disagreement(sharp, np.asarray(total - values[7]), 4117, F32) is not None
    assert disagreement(expected, np.asarray(total - values[7]), 4117, F32) is None  # the bound lets that pass
    assert sharpened(expected, random_signs=False) is expected


def test_what_is_no_random_walk_of_small_integers_keeps_its_bound() -> None:
    family = Reduction()
    spec = family.catalogue[0]
    for values in (np.full(2**22, 8.5, np.float32), np.full(2**22, 9, np.float32), np.full(2**22, np.inf, np.float32)):
        expected = family.oracle(spec, {"in": values}, {"n": values.size})["out"]
        assert sharpened(expected, random_signs=True) is expected


def test_infinity_among_finite_values_whose_sum_overflows_may_be_anything() -> None:
    family = Reduction()
    values = np.array([3e38, 3e38, -np.inf], np.float32)
    expected = family.oracle(family.catalogue[0], {"in": values}, {"n": 3})["out"]
    for got in (-np.inf, np.nan):
        assert disagreement(expected, np.asarray(np.float32(got)), 8, F32) is None
    calm = family.oracle(family.catalogue[0], {"in": values[1:]}, {"n": 2})["out"]
    assert disagreement(calm, np.asarray(np.float32(-np.inf)), 8, F32) is None
    assert disagreement(calm, np.asarray(np.float32(np.nan)), 8, F32) is not None
