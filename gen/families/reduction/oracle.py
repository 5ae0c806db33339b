"""What NumPy says a reduction gives, in a wider type, and how far a rounded result may lie from it.

The bounds are those of `gen.proof.error_bounds`: gamma_h, of which an algorithm states the h, times what stands here as
the magnitude. A magnitude that is infinite labels a result that may be anything, because intermediate results can leave
the accumulator's range.

* Sums, means, sums of squares: the sum of the magnitudes of what is added (Higham, Accuracy and Stability of Numerical
  Algorithms, section 4.2), divided as the result is. A root halves a relative error.
* Products: the magnitude of the product; every multiplication rounds it once (Higham, section 3.1).
* Variances: partial means are wrong by at most e = gamma_h X, X being the largest magnitude of an element. Chan's
  formula weighs the square of the distance of two partial means with n_a n_b / (n_a + n_b); those weights add up to at
  most n along a chain of merges and n / 4 on each level of a tree, here less than 9 n together. By Cauchy and Schwarz
  the standard deviation is then wrong by at most gamma_h times itself, and 3 e. The lanes of a warp add their means,
  weighed by their counts, then their squares about the common mean: that rounds a mean less often than the merges of a
  tree, which are counted, and an error d of the common mean adds d to the standard deviation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from gen.dtypes import F32, F64, DType
from gen.families.base import Array, Expected
from gen.families.exact import sums_are_exact
from gen.families.reduction.operators import Operator, Rounds, real_type
from gen.families.reduction.shapes import reduced_axes, result_shape
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.state import state_of

MERGE = 8
"""Roundings of a mean, in units of the largest magnitude, in each merge of two sets' moments."""
_CHUNK = 4096  # elements that are added at once: few roundings, and little memory beside the array
LARGEST_GAMMA = {F32: 2.0**-10, F64: 2.0**-38}  # of the roundings that are allowed for: 2^14 and more


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
            return product_of(rows.astype(wide), accumulator)
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


def product_of(values: Array, accumulator: DType) -> Expected:
    """What the products of rows must be."""
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
        magnitude = 2 * deviation * error + LARGEST_GAMMA[accumulator] * error**2
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


def chain(count: int) -> int:
    """Roundings where so many numbers are added one after another: adding the first to the identity is exact."""
    return max(count - 1, 0)


def tree(count: int) -> int:
    """Roundings on a path where pairs of so many numbers are added, then pairs of their sums, down to one."""
    return chain(count).bit_length()


@dataclass(frozen=True)
class Share:
    """What the thread that reads most does by itself.

    Attributes:
        additions: to sums, on the longest path from an element.
        merges: of the moments of two sets, on the longest path.
        run: most elements whose moments are found at once.
    """

    additions: int
    merges: int
    run: int = 1

    @classmethod
    def of_vectors(cls, spec: ReductionSpec, vec_bytes: int, loads: int, folds: int, ends: int, run: int = 1) -> Share:
        """The share of a thread that reads vectors.

        Args:
            spec: what is computed.
            vec_bytes: of a vector, whose items are added to several states, side by side, which are added at the end.
            loads: vectors.
            folds: how often moments of vectors are merged.
            ends: elements that no vector holds, which are added one by one.
            run: vectors whose moments are found at once.
        """
        items, chains = vec_bytes // spec.dtype.size, state_of(spec).chains(vec_bytes)
        additions = chain(loads * (items // chains) + ends) + (chains - 1 if loads else 0)
        return cls(additions, chain(folds + ends), items * run)

    @classmethod
    def of_tiles(cls, spec: ReductionSpec, n: int, unroll: int, vec_bytes: int, team: int, parts: int = 1) -> Share:
        """The share of a thread that reads a row by `read_share` of the templates.

        Args:
            spec: what is computed.
            n: elements of the row.
            unroll: vectors that a thread loads at once.
            vec_bytes: of a vector.
            team: threads that share a tile.
            parts: teams that share the row.
        """
        items, run = vec_bytes // spec.dtype.size, state_of(spec).run(unroll, vec_bytes)
        loads, folds = loads_of_thread(n // items, unroll, team, parts, run)
        ends = 2 * -(-min(items - 1, n) // (team * parts))  # before the first vector, and behind the last
        return cls.of_vectors(spec, vec_bytes, loads, folds, ends, run)


def loads_of_thread(count: int, unroll: int, team: int, parts: int = 1, run: int = 1) -> tuple[int, int]:
    """How many of `count` loads the thread has that has most, and how often it folds some of them into its state.

    Tiles of `team` x `unroll` are dealt to `parts` teams in turns. A thread folds `run` loads at once, but those of the
    last tile, where that is not full, one by one.
    """
    tiles, left = divmod(count, team * unroll)
    rounds, more = divmod(tiles, parts)  # full tiles of every team, and how many teams have one more
    last, folds = min(unroll, -(-left // team)), unroll // run
    loads_at_last = unroll if more else last
    folds_at_last = max(min(last, unroll - 1), folds if more or left > (unroll - 1) * team else 0)
    return rounds * unroll + loads_at_last, rounds * folds + folds_at_last


def roundings(spec: ReductionSpec, elements: int, share: Share, combinations: int) -> int:
    """The h of gamma_h.

    Of so many elements no more than one less are added to what is not the identity. An element that is converted or
    squared is rounded before it is added. A root rounds once, a quotient twice: its divisor, the number of elements, is
    converted.

    Args:
        spec: what is computed.
        elements: reduced to one result.
        share: what a thread does before it hands on its state.
        combinations: of states of threads and blocks, on the longest path to the result.
    """
    converted = any(part.converts for part in state_of(spec).parts)
    additions = min(share.additions + combinations, chain(elements))
    merges = min(share.merges + combinations, chain(elements))
    most = 0
    for operator in spec.operators:
        match operator.rounds:
            case Rounds.SUM:
                lifted = converted + (operator.name in ("sumsq", "norm"))
                finished = {"mean": 2, "norm": 1}.get(operator.name, 0)
                most = max(most, lifted + additions + finished)
            case Rounds.PRODUCT:  # every multiplication, and every conversion, rounds the one result
                most = max(most, elements * (1 + converted))
            case Rounds.MOMENTS:
                most = max(most, 2 * share.run + MERGE * merges + 8)
    return most
