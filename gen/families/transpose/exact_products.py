"""Integers of 64 bits times a number: the product is exact, in 128 bits, and rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np

from gen.dtypes import F64, DType
from gen.families.base import Array

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_MORE, _BEHIND = np.uint64(11), np.uint64(0x7FF)  # bits that an f64 has not, of 64


def exact_products(numbers: Array, negative: bool, factor: tuple[int, int], result: DType) -> Array:
    """Products, cut off towards 0 and saturated for an integer type; else as f64, rounded to nearest, even.

    For types narrower than f64 they are rounded to odd, of which every further rounding is that of the product itself.

    Args:
        numbers: int64 or uint64.
        negative: whether they change sign.
        factor: what magnitudes are multiplied by: an odd number below 2^53 and a power of 2, over -128 for integers.
        result: its type. No product but 0 may be subnormal as f64.
    """
    below = numbers < 0
    magnitudes = np.where(below, np.uint64(0) - numbers.astype(np.uint64), numbers.astype(np.uint64))
    high, low = _times(magnitudes, np.uint64(factor[0]))
    changed = below != negative
    if result.kind in ("int", "uint"):
        return _whole(high, low, changed, factor[1], result.numpy)
    return _rounded(high, low, changed, factor[1], odd=result != F64)


def _times(one: Array, other: np.uint64) -> tuple[Array, Array]:
    """The product, 64 bits above and 64 below, by halves of 32 bits."""
    high, low = one >> _HALF, one & _LOW
    above, below = other >> _HALF, other & _LOW
    middle = high * below + (low * below >> _HALF)
    carried = low * above + (middle & _LOW)
    return high * above + (middle >> _HALF) + (carried >> _HALF), one * other


def _whole(high: Array, low: Array, negative: Array, exponent: int, integer: np.dtype[Any]) -> Array:
    ends = np.iinfo(integer)
    if exponent >= 0:
        lost = (high != 0) | (
            low >> np.uint64(64 - exponent) != 0 if 0 < exponent < 64 else (exponent > 0) & (low != 0)
        )
        whole = low << np.uint64(exponent) if exponent < 64 else np.zeros_like(low)
    elif exponent > -64:
        shift = np.uint64(-exponent)
        lost, whole = high >> shift != 0, low >> shift | high << np.uint64(64 + exponent)
    else:
        lost, whole = np.zeros(low.shape, np.bool_), high >> np.uint64(-64 - exponent)
    most = np.where(negative, np.uint64(-int(ends.min)), np.uint64(int(ends.max)))
    whole = np.where(lost | (whole > most), most, whole)
    return np.where(negative, np.uint64(0) - whole, whole).astype(integer)


def _rounded(high: Array, low: Array, negative: Array, exponent: int, odd: bool) -> Array:
    empty = high == 0
    first, rest = np.where(empty, low, high), np.where(empty, np.uint64(0), low)
    lead = _leading_zeros(first)
    kept = first << lead | np.where(lead > 0, rest >> (np.uint64(64) - lead & np.uint64(63)), np.uint64(0))
    kept |= (rest << lead != 0).astype(np.uint64)  # 64 bits; what lies behind them shows in the last
    power = np.where(empty, 0, 64) - lead.astype(np.int64) + exponent
    if odd:
        kept = (kept >> _MORE | (kept & _BEHIND != 0).astype(np.uint64)) << _MORE
    with np.errstate(over="ignore"):
        found: Array = np.ldexp(kept.astype(np.float64), power)
    return np.where(negative & (first != 0), -found, found)


def _leading_zeros(numbers: Array) -> Array:
    """Of 64 bits; 0 for 0, which has nothing to shift."""
    found, left = np.zeros(numbers.shape, np.uint64), numbers.copy()
    for step in (32, 16, 8, 4, 2, 1):
        small = (left != 0) & (left >> np.uint64(64 - step) == 0)
        found += np.where(small, np.uint64(step), np.uint64(0))
        left = np.where(small, left << np.uint64(step), left)
    return found
