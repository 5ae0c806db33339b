"""Floating-point arithmetic to the last bit: sums that do not round, and the fused multiply-add, which NumPy lacks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from gen.dtypes import DType
from gen.families.base import Array

_PART = 1 << 15  # values looked at together, which a cache holds
_SPLITTER = 2.0**27 + 1  # of an f64 into two halves whose products are exact
_F32_LOST, _F32_HALF = 2**29 - 1, 2**28  # bits of an f64 that an f32 has not, and half of them all
# Products of f64 between these have an error that is an f64, and nothing on the way overflows.
_LEAST_PRODUCT, _LARGEST = 2.0**-900, 2.0**990


def sums_are_exact(accumulator: DType, magnitude: float, values: Array) -> bool:
    """Whether every partial sum of the values is exact in `accumulator`, in any order.

    That holds if all values are multiples of one power of two, and their magnitudes add up to less than 2^precision of
    it: then each partial sum is an integer times that power, and fits.
    """
    if not np.isfinite(magnitude):
        return False
    grain = _grain(values)
    return grain > 0 and magnitude <= grain * 2.0**accumulator.precision


def fused_multiply_add(factor: float | Array, values: Array, addends: Array) -> Array:
    """`factor * values + addends`, rounded once to the type of the addends, f32 or f64: CUDA's fmaf and fma.

    Args:
        factor: a number that this type holds, or such numbers, an array of the same shape and type.
        values: of this type.
        addends: of the same shape.

    What must be rounded once more is rounded to odd before (Boldo and Melquiond, Emulation of a FMA and Correctly
    Rounded Sums: Proved Algorithms Using Rounding to Odd, 2008).
    """
    compute = _of_f32 if addends.dtype == np.float32 else _of_f64
    found = np.empty(addends.size, addends.dtype)
    factors, all_values, all_addends = np.asarray(factor).reshape(-1), values.reshape(-1), addends.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, found.size, _PART):
            part = slice(start, start + _PART)
            found[part] = compute(factors if factors.size == 1 else factors[part], all_values[part], all_addends[part])
    return found.reshape(addends.shape)


def _of_f32(factor: Array, values: Array, addends: Array) -> Array:
    """As f64 the product is exact. Its sum is rounded twice: that shows half way between two f32, and near 0."""
    product, wide = factor.astype(np.float64) * values.astype(np.float64), addends.astype(np.float64)
    total = np.asarray(product + wide)
    halfway = total.view(np.int64) & _F32_LOST == _F32_HALF
    again = np.nonzero(halfway | (np.abs(total) < float(np.finfo(np.float32).tiny)))
    total[again] = _sum_to_odd(product[again], wide[again])
    return total.astype(np.float32)


def _of_f64(factors: Array, values: Array, addends: Array) -> Array:
    """The product, its error and the addend are added, the smallest part rounded to odd.

    Where the product's error may be no f64, or may overflow on the way, the arithmetic is that of fractions.
    """
    factor = np.broadcast_to(factors, values.shape)
    product = np.asarray(factor * values)
    inner, inner_error = _two_sum(addends, _product_error(factor, values, product))
    outer, outer_error = _two_sum(product, inner)
    total = outer + _sum_to_odd(inner_error, outer_error)
    sizes = np.maximum(np.maximum(np.abs(values), np.abs(product)), np.abs(addends))
    fits = (np.maximum(sizes, np.abs(factor)) < _LARGEST) & (np.abs(product) > _LEAST_PRODUCT)
    finite = np.isfinite(values) & np.isfinite(factor) & (values != 0) & (factor != 0)
    total = np.where(finite, np.where(np.isfinite(addends), total, addends), product + addends)
    for index in zip(*np.nonzero(~fits & finite & np.isfinite(addends)), strict=True):
        exact = Fraction(float(factor[index])) * Fraction(float(values[index]))
        total[index] = _rounded(exact + Fraction(float(addends[index])))
    return total


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum, and what it is short of the exact one (Knuth)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _product_error(factor: Array, values: Array, product: Array) -> Array:
    """What a product of f64s is short of the exact one (Dekker)."""
    high = _high_part(factor)
    values_high = _high_part(values)
    low, values_low = factor - high, values - values_high
    return np.asarray(((high * values_high - product) + high * values_low + low * values_high) + low * values_low)


def _high_part(values: Array) -> Array:
    scaled = _SPLITTER * values
    return np.asarray(scaled - (scaled - values))


def _sum_to_odd(a: Array, b: Array) -> Array:
    """The sum of f64s; an inexact one becomes that of its two neighbours whose last bit is 1."""
    total, error = _two_sum(a, b)
    bits = total.view(np.int64)
    even = (np.abs(error) > 0) & (bits % 2 == 0)
    return np.asarray((bits + np.where(even, np.where((error > 0) == (total > 0), 1, -1), 0)).view(np.float64))


def _rounded(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _grain(values: Array) -> float:
    """The largest power of two, at most 1, that divides every value; 0 if none above 2^-20 does."""
    grain = 1.0
    for part in np.array_split(values.reshape(-1), max(values.size // _PART, 1)):
        if grain:
            grain = min(grain, _grain_of_part(part))
    return grain


def _grain_of_part(values: Array) -> float:
    wide = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(wide)):
        return 0.0
    for exponent in (0, 4, 10, 20):
        scaled = np.ldexp(wide, exponent) if exponent else wide
        if np.array_equal(scaled, np.rint(scaled)):
            return 2.0**-exponent
    return 0.0
