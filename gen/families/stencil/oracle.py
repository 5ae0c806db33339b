"""What NumPy says a stencil computes, to the last bit.

A spec fixes the order of its terms and their arithmetic: from 0 on, each weight times its cell is added by a fused
multiply-add of the accumulator's type, in the weights' order or as `terms` says, and what is stored is rounded to the
type of the cells. So there is one right
result, whatever the variant, the compiler's options and the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from gen.dtypes import DType
from gen.families.base import Array, Expected
from gen.families.exact import fused_multiply_add
from gen.families.stencil.reassociated import Row, Terms
from gen.families.stencil.spec import Boundary, Outside, StencilSpec

OUTSIDE = -1


def expected(spec: StencilSpec, cells: Array, steps: int) -> Expected:
    """The cells after so many steps."""
    everywhere = np.ix_(*(np.arange(extent) for extent in cells.shape))
    around = np.ix_(
        *(
            np.arange(-low, extent + high)
            for low, high, extent in zip(spec.before, spec.after, cells.shape, strict=True)
        )
    )
    for _ in range(steps):
        grown = cells_at(cells, around, spec.boundaries, spec.cval).astype(spec.accumulator.numpy)
        cells = _stepped(spec, cells, everywhere, partial(_moved, grown, spec.before, cells.shape))
    return Expected(cells.copy())


def _moved(grown: Array, before: Sequence[int], shape: Sequence[int], *offset: int) -> Array:
    """The cells at an offset from all of an array, of the array grown on every side, by `before` in front."""
    return grown[
        tuple(slice(low + move, low + move + extent) for low, move, extent in zip(before, offset, shape, strict=True))
    ]


def expected_at(spec: StencilSpec, cells: Array, index: tuple[Array, ...]) -> Expected:
    """Single cells after one step: an array of places along each axis says which."""
    dtype = spec.accumulator.numpy

    @cache
    def along(axis: int, move: int) -> Array:
        return places_inside(index[axis] + move, cells.shape[axis], spec.boundaries[axis])

    def near(*offset: int) -> Array:
        return _taken(cells, [along(axis, move) for axis, move in enumerate(offset)], spec.cval).astype(dtype)

    return Expected(_stepped(spec, cells, index, near))


def places_inside(place: Array, extent: int, boundary: Outside) -> Array:
    """The cell that stands at each place of an axis.

    OUTSIDE where there is none: along `constant` axes, where cval is read, and `frozen` ones, where nothing is.
    """
    if extent == 0:
        return np.full(place.shape, OUTSIDE)
    if not isinstance(boundary, str):
        return _carried(place, extent, *boundary)
    match boundary:
        case "nearest":
            return np.asarray(place.clip(0, extent - 1))
        case "wrap":
            return np.asarray(place % extent)
        case "reflect":
            turned = place % (2 * extent)
            return np.asarray(np.minimum(turned, 2 * extent - 1 - turned))
        case "mirror":
            period = max(2 * (extent - 1), 1)
            turned = place % period
            return np.asarray(np.minimum(turned, period - turned) if extent > 1 else np.zeros_like(place))
        case "constant" | "frozen":
            return np.asarray(np.where((place >= 0) & (place < extent), place, OUTSIDE))


def _carried(place: Array, extent: int, before: Boundary, after: Boundary) -> Array:
    """The cell that stands at each place of an axis whose ends differ: carried until it lies inside."""
    found = place.copy()
    for number in np.flatnonzero((place < 0) | (place >= extent)):
        at = int(found.flat[number])
        while not 0 <= at < extent:
            boundary = before if at < 0 else after
            if boundary == "constant":
                at = OUTSIDE
                break
            at = _across(at, extent, boundary)
        found.flat[number] = at
    return found


def _across(place: int, extent: int, boundary: Boundary) -> int:
    """Where a place beyond one end of an axis comes to lie, which may be beyond the other end."""
    last = extent - 1
    match boundary:
        case "wrap":
            return place + extent if place < 0 else place - extent
        case "reflect":
            return -1 - place if place < 0 else 2 * last + 1 - place
        case "mirror":
            return -place if place < 0 else 2 * last - place
    return 0 if place < 0 else last


def cells_at(cells: Array, index: tuple[Array, ...], boundaries: Sequence[Outside], cval: float) -> Array:
    """The cells at places that may lie outside; the places along each axis are broadcast against each other."""
    at = [
        places_inside(place, extent, boundary)
        for place, extent, boundary in zip(index, cells.shape, boundaries, strict=True)
    ]
    return _taken(cells, at, cval)


def _taken(cells: Array, at: Sequence[Array], cval: float) -> Array:
    """The cells at places along each axis; cval where one of them is OUTSIDE."""
    beyond = [places == OUTSIDE for places in at]
    if cells.size and not any(one.any() for one in beyond):
        return np.asarray(cells[tuple(at)])
    outside = np.zeros(np.broadcast_shapes(*(places.shape for places in at)), bool)
    for one in beyond:
        outside |= one
    inside = (
        cells[tuple(np.where(one, 0, places) for one, places in zip(beyond, at, strict=True))] if cells.size else cval
    )
    return np.where(outside, cval, inside)


def frozen_at(
    shape: Sequence[int],
    index: tuple[Array, ...],
    ends: Sequence[tuple[Boundary, Boundary]],
    before: Sequence[int],
    after: Sequence[int],
) -> Array:
    """Whether cells at these places stay as they are: those at `frozen` ends, so many before and after."""
    frozen = np.zeros(np.broadcast_shapes(*(place.shape for place in index)), bool)
    for place, extent, low, high, (first, last) in zip(index, shape, before, after, ends, strict=True):
        frozen |= (first == "frozen") & (place < low)
        frozen |= (last == "frozen") & (place >= extent - high)
    return frozen


def stored(sums: Array, dtype: DType) -> Array:
    """The cells that are nearest to sums: of two that are as near the even one; no sum of integers is NaN."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if dtype.kind == "float":
            return np.asarray(sums.astype(dtype.numpy))
        ends = np.iinfo(dtype.numpy)
        return np.asarray(np.rint(sums).clip(ends.min, ends.max).astype(dtype.numpy))


def _reassociated(terms: Terms, near: Callable[[int, int], Array], zero: Array) -> Array:
    """The sum of all rows, from the cells at an offset of rows and columns."""

    def of_row(down: int, row: Row, total: Array) -> Array:
        for along, weight in row.items():
            if abs(along) not in terms.pairs:
                total = fused_multiply_add(weight, near(down, along), total)
            elif along < 0:
                with np.errstate(over="ignore", invalid="ignore"):
                    pair = near(down, along) + near(down, -along)
                total = fused_multiply_add(weight, pair, total)
        return total

    total = zero
    for down, one in terms.sums.items():
        if one.base is None:
            total = of_row(down, terms.rows[down], total)
        else:
            total = fused_multiply_add(one.factor, of_row(down, terms.bases[one.base], zero), total)
    return total


def _stepped(spec: StencilSpec, cells: Array, index: tuple[Array, ...], near: Callable[..., Array]) -> Array:
    """The cells at some places after one step; the places along each axis are broadcast against each other.

    `near` gives the cells at an offset from all of them, in the accumulator's type.
    """
    shape = np.broadcast_shapes(*(place.shape for place in index))
    zero: Array = np.zeros(shape, spec.accumulator.numpy)
    if spec.reassociate:
        total = _reassociated(spec.terms, partial(near, *(0,) * (len(spec.axes) - 2)), zero)
    else:
        total = zero
        for offset, weight in spec.taps:
            total = fused_multiply_add(weight, near(*offset), total)
    found = stored(total, spec.dtype)
    return np.where(frozen_at(cells.shape, index, spec.ends, spec.before, spec.after), cells[index], found)
