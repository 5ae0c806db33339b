"""What NumPy says a reduction gives, in a wider type, and how far a rounded result may lie from it.

The bounds are those of `gen.proof.oracle`: gamma_h, of which an algorithm states the h, times what stands here as the
magnitude. A magnitude that is infinite labels a result that may be anything, because intermediate results can leave
the accumulator's range.

* Sums, means, sums of squares: the sum of the magnitudes of what is added (Higham, Accuracy and Stability of Numerical
  Algorithms, section 4.2), divided as the result is. A root halves a relative error.
* Products: the magnitude of the product; every multiplication rounds it once (Higham, section 3.1).
* Variances: partial means are wrong by at most e = gamma_h X, X being the largest magnitude of an element. Chan's
  formula weighs the square of the distance of two partial means with n_a n_b / (n_a + n_b); those weights add up to at
  most n along a chain of merges and n / 4 on each level of a tree, here less than 9 n together. By Cauchy and Schwarz
  the standard deviation is then wrong by at most gamma_h times itself, and 3 e.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from gen.dtypes import F32, F64, DType
from gen.families.base import Array, Expected
from gen.families.exact import sums_are_exact
from gen.families.reduction.operators import Operator, Rounds, real_type
from gen.families.reduction.shapes import reduced_axes, result_shape
from gen.families.reduction.spec import ReductionSpec

MERGE = 8
"""Roundings of a mean, in units of the largest magnitude, in each merge of two sets' moments."""
_CHUNK = 4096  # elements that are added at once: few roundings, and little memory beside the array
_LARGEST_GAMMA = {F32: 2.0**-10, F64: 2.0**-38}  # of the roundings that are allowed for: 2^14 and more


def expected(spec: ReductionSpec, array: Array) -> dict[str, Expected]:
    """What each output must hold."""
    return _expected_of(spec, _rows(spec, array), result_shape(spec, array.shape))


def expected_at(spec: ReductionSpec, array: Array, index: tuple[Array, ...]) -> dict[str, Expected]:
    """What single elements of each output must hold; `index` is an array of places along each of its axes."""
    axes = reduced_axes(spec, array.ndim)
    kept = [axis for axis in range(array.ndim) if axis not in axes]
    places = [index[axis] for axis in kept] if spec.keepdims else list(index)
    rows = np.transpose(array, (*kept, *axes))[tuple(places)]
    return _expected_of(spec, rows.reshape(rows.shape[0], -1), rows.shape[:1])


def _expected_of(spec: ReductionSpec, rows: Array, shape: tuple[int, ...]) -> dict[str, Expected]:
    found = {}
    for name, operator, dtype in spec.results:
        one = _expected(operator, spec, rows, dtype)
        magnitude = None if one.magnitude is None else one.magnitude.reshape(shape)
        found[name] = Expected(one.value.reshape(shape), magnitude, one.accumulator, one.integral)
    return found


def _rows(spec: ReductionSpec, array: Array) -> Array:
    """A row of neighbouring elements for each result."""
    axes = reduced_axes(spec, array.ndim)
    kept = [axis for axis in range(array.ndim) if axis not in axes]
    moved = np.transpose(array, (*kept, *axes))
    results = prod(array.shape[axis] for axis in kept)
    return np.ascontiguousarray(moved).reshape(results, prod(array.shape[axis] for axis in axes))


def _expected(operator: Operator, spec: ReductionSpec, rows: Array, dtype: DType) -> Expected:
    if operator.rounds is Rounds.NEVER:
        return Expected(_exact(operator, rows).astype(dtype.numpy))
    accumulator = operator.accumulator(spec.dtype, dtype)
    if dtype.kind != "float":
        return Expected(_modular(operator, rows, accumulator).astype(dtype.numpy))
    with np.errstate(all="ignore"):
        return _rounded(operator, spec, rows, real_type(dtype))


def _exact(operator: Operator, rows: Array) -> Array:
    """What is found, not computed."""
    values = (
        rows.astype(np.float32) if rows.dtype.kind == "V" or (rows.dtype.itemsize == 2 and _is_float(rows)) else rows
    )
    match operator.name:
        case "min" | "max":
            if rows.shape[1] == 0:
                return np.zeros(rows.shape[0], rows.dtype)  # of no results
            return np.asarray(values.min(axis=1) if operator.name == "min" else values.max(axis=1))
        case "argmin" | "argmax":
            if rows.shape[1] == 0:
                return np.zeros(rows.shape[0], np.int64)
            return np.asarray(values.argmin(axis=1) if operator.name == "argmin" else values.argmax(axis=1))
        case "any":
            return np.asarray((values != 0).any(axis=1))
        case "all":
            return np.asarray((values != 0).all(axis=1))
        case _:
            return np.asarray(np.count_nonzero(values, axis=1))


def _is_float(array: Array) -> bool:
    return array.dtype.kind not in "biu"


def _modular(operator: Operator, rows: Array, accumulator: DType) -> Array:
    """Integers, exact modulo a power of two."""
    values = rows.astype(accumulator.numpy)
    if operator.name == "prod":
        return np.asarray(np.multiply.reduce(values, axis=1))
    if operator.name == "sumsq":
        values = values * values
    return np.asarray(np.add.reduce(values, axis=1))


def _rounded(operator: Operator, spec: ReductionSpec, rows: Array, accumulator: DType) -> Expected:
    wide = np.longdouble if accumulator == F64 else np.float64
    n = rows.shape[1]
    largest, unit = accumulator.largest, accumulator.unit_roundoff
    match operator.rounds:
        case Rounds.PRODUCT:
            return _product(rows.astype(wide), accumulator)
        case Rounds.MOMENTS:
            return _variance(operator, spec, rows, wide, accumulator)
    squares = operator.name in ("sumsq", "norm")
    value = _sum(rows, wide, lambda x: x * x if squares else x)
    magnitude = _sum(rows, wide, lambda x: np.where(np.isfinite(x), x * x if squares else np.abs(x), 0))
    alone = operator.name == "sum" and rows.shape[0] == 1 and rows.size > 0
    if alone and sums_are_exact(accumulator, float(magnitude[0]), rows):
        return Expected(value.astype(accumulator.numpy))
    if operator.name == "sumsq" or operator.name == "norm":  # squares of small numbers are lost
        magnitude = np.where((magnitude > 0) & (magnitude < n * accumulator.smallest_normal / unit), np.inf, magnitude)
    unbounded = magnitude > largest
    if operator.name == "mean":
        value, magnitude = value / n, magnitude / n
    elif operator.name == "norm":
        value, magnitude = np.sqrt(value), np.sqrt(magnitude)
    magnitude = np.where(unbounded, np.inf, magnitude)
    return Expected(value, magnitude, accumulator, operator.name == "sum" and _small_integers(rows))


def _small_integers(rows: Array) -> bool:
    for start in range(0, rows.shape[0], 64):
        part = rows[start : start + 64].astype(np.float64)
        if not ((np.abs(part) <= 8).all() and (part == np.rint(part)).all()):
            return False
    return True


def _product(values: Array, accumulator: DType) -> Expected:
    value = np.multiply.reduce(values, axis=1)
    sizes = np.abs(np.where(np.isfinite(values), values, 1))
    above, below = (np.multiply.reduce(side, axis=1) for side in (np.maximum(sizes, 1), np.minimum(sizes, 1)))
    outside = (above > accumulator.largest / 2) | (below < 2 * accumulator.smallest_normal)
    return Expected(value, np.where(outside, np.inf, np.abs(np.where(np.isfinite(value), value, 0))), accumulator)


def _variance(operator: Operator, spec: ReductionSpec, rows: Array, wide: type, accumulator: DType) -> Expected:
    n = rows.shape[1]
    if n == 0:
        return Expected(np.full(rows.shape[0], np.nan), np.zeros(rows.shape[0]), accumulator)
    mean = _sum(rows, wide, lambda x: x) / n
    m2 = _sum(rows, wide, lambda x, about: (x - about) ** 2, mean)
    reach = np.array([np.abs(row.astype(wide)).max() for row in rows])
    freedom = max(n - spec.ddof, 0)
    variance = m2 / freedom if freedom else m2 / np.zeros_like(m2)
    scale = np.sqrt(np.divide(n, freedom)) if freedom else 1.0
    deviation = np.sqrt(variance)
    error = deviation + 3 * reach * scale  # of the standard deviation, in units of gamma_h
    magnitude = error
    if operator.name == "var":
        magnitude = 2 * deviation * error + _LARGEST_GAMMA[accumulator] * error**2
    outside = n * (2 * reach) ** 2 > accumulator.largest
    if not freedom and n > 1:
        outside = np.ones_like(outside)  # 0 / 0 or x / 0, as the squares are rounded
    small = (reach > 0) & (reach**2 < accumulator.smallest_normal / accumulator.unit_roundoff)
    magnitude = np.where((outside | small) & np.isfinite(reach), np.inf, magnitude)
    return Expected(variance if operator.name == "var" else deviation, magnitude, accumulator)


def _sum(rows: Array, wide: type, term: Callable[..., Array], *each: Array) -> Array:
    """The sum along each row, in parts: NumPy adds pairwise within them, and then the parts."""
    results, n = rows.shape
    if n == 0:
        return np.zeros(results, wide)
    step = max(_CHUNK // n, 1)  # short rows, many at once
    found = np.empty(results, wide)
    for start in range(0, results, step):
        block = rows[start : start + step]
        about = [values[start : start + step, None] for values in each]
        sums = [
            np.add.reduce(term(block[:, place : place + _CHUNK * 16].astype(wide), *about), axis=1)
            for place in range(0, n, _CHUNK * 16)
        ]
        found[start : start + step] = np.add.reduce(np.ascontiguousarray(np.transpose(sums)), axis=1)
    return found


def roundings(spec: ReductionSpec, elements: int, items: int, combinations: int) -> int:
    """The h of gamma_h.

    Args:
        spec: what is computed.
        elements: reduced to one result.
        items: elements that a run of `fold` adds at once, before it merges their moments.
        combinations: of states on the longest path from an element to the result.

    The lift (a square, a narrower type) and the result (a quotient, a root) may each round too.
    """
    kinds = {operator.rounds for operator in spec.operators}
    most = combinations + (0 if spec.op == ("sum",) else 4)
    if Rounds.MOMENTS in kinds:
        most = 2 * items + MERGE * combinations + 8
    if Rounds.PRODUCT in kinds:
        most = max(most, elements + 4)  # every multiplication rounds the one result
    return most if kinds != {Rounds.NEVER} else 0
