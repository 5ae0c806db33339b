"""What NumPy says of transposes: elements in their new places, and changed on their way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gen.dtypes import BF16, F64, DType
from gen.families.base import Array, Expected
from gen.families.transpose.literature import FINE, MoveSpec
from gen.families.transpose.spec import TransposeSpec
from gen.families.transpose.values import PARTS, Values

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_MORE, _BEHIND = np.uint64(11), np.uint64(0x7FF)  # bits that an f64 has not, of 64


def transposed(spec: TransposeSpec, inputs: Mapping[str, Array]) -> Mapping[str, Expected]:
    """`numpy.transpose`, bit for bit."""
    ((name, array),) = inputs.items()
    turned = np.transpose(array, spec.axes)
    return {name if spec.in_place else "out": Expected(converted(spec.values, turned))}


def transposed_at(spec: TransposeSpec, inputs: Mapping[str, Array], index: tuple[Array, ...]) -> Expected:
    """The elements of the result at these places: NumPy transposes without a copy."""
    (array,) = inputs.values()
    return Expected(converted(spec.values, np.transpose(array, spec.axes)[index]))


def moved(spec: MoveSpec, matrix: Array) -> Array:
    """A matrix, copied, transposed, or with its tiles transposed or moved."""
    if not spec.by_tiles:
        return matrix.T if spec.swaps_axes else matrix
    rows, cols = matrix.shape
    tiles = matrix.reshape(rows // spec.tile, spec.tile, cols // spec.tile, spec.tile)
    if spec.op == FINE:
        return tiles.transpose(0, 3, 2, 1).reshape(rows, cols)
    return tiles.transpose(2, 1, 0, 3).reshape(cols, rows)


def moved_at(spec: MoveSpec, matrix: Array, index: tuple[Array, ...]) -> Array:
    """The elements of the same result at these places."""
    row, col = index
    if spec.by_tiles:
        row, col = (own - own % spec.tile + other % spec.tile for own, other in ((row, col), (col, row)))
    found: Array = (matrix.T if spec.swaps_axes else matrix)[row, col]
    return found


def converted(values: Values | None, elements: Array) -> Array:
    """What becomes of elements on their way."""
    if values is None:
        return elements
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if values.source not in PARTS:
            return _converted_parts(values, np.asarray(elements))
        result: Array = np.empty(elements.shape, values.result.numpy)
        result.real = _converted_parts(values, elements.real)
        result.imag = _converted_parts(values, -elements.imag if values.conjugate else elements.imag)
        return result


def _converted_parts(values: Values, numbers: Array) -> Array:
    """The same of real numbers, or of the parts of complex ones."""
    result = values.result_part
    if values.exact:
        numbers = _exact_products(numbers, (values.alpha or 0.0) < 0, values.factor, result)
    elif values.alpha is not None or values.wide.kind == "float":
        numbers = numbers.astype(values.wide.numpy)
        if values.alpha is not None:
            numbers = numbers * values.wide.numpy.type(values.alpha)
    if values.saturate:
        return _saturated(numbers, result.numpy)
    if result == BF16:
        numbers = _odd(numbers) if numbers.dtype.itemsize > 4 or numbers.dtype.kind != "f" else numbers
    return numbers.astype(result.numpy)


def _saturated(numbers: Array, integer: np.dtype[Any]) -> Array:
    """As integers, towards 0; the ends of the range for what lies outside, 0 for NaN."""
    ends = np.iinfo(integer)
    if numbers.dtype.kind != "f":
        least = max(int(ends.min), int(np.iinfo(numbers.dtype).min))
        most = min(int(ends.max), int(np.iinfo(numbers.dtype).max))
        return np.clip(numbers, least, most).astype(integer)
    beyond, below = numbers >= 2.0 ** int(ends.max).bit_length(), numbers <= float(ends.min)
    inside = np.where(beyond | below | np.isnan(numbers), 0, numbers).astype(integer)
    return np.where(beyond, integer.type(ends.max), np.where(below, integer.type(ends.min), inside))


def _odd(numbers: Array) -> Array:
    """As f32, of which every narrower type's rounding is that of the number itself: inexact ones rounded to odd."""
    wide = numbers.astype(np.float64)  # integers of at most 32 bits, or f64: exact
    near = wide.astype(np.float32)
    beyond = np.abs(near) > np.abs(wide)
    near = np.where(beyond & np.isfinite(wide), np.nextafter(near, np.float32(0)), near).astype(np.float32)
    inexact = np.isfinite(wide) & (near != wide)
    bits = near.view(np.uint32)
    return np.where(inexact, bits | np.uint32(1), bits).astype(np.uint32).view(np.float32)


def _exact_products(numbers: Array, negative: bool, factor: tuple[int, int], result: DType) -> Array:
    """Integers of 64 bits times a number: the product has 128 bits, is exact, and is rounded once.

    For an integer type it is cut off towards 0 and saturated; else it is an f64, rounded to nearest, even.

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
