"""What NumPy says a stencil computes, to the last bit.

A spec fixes the order of its terms and their arithmetic: from 0 on, each weight times its cell is added by a fused
multiply-add of the accumulator's type, and what is stored is rounded to the type of the cells. So there is one right
result, whatever the variant, the compiler's options and the device.
"""

from __future__ import annotations

import numpy as np

from gen.dtypes import DType
from gen.families.base import Array, Expected
from gen.families.exact import fused_multiply_add
from gen.families.stencil.spec import Boundary, Outside, StencilSpec

OUTSIDE = -1


def expected(spec: StencilSpec, cells: Array, steps: int) -> Expected:
    """The cells after so many steps."""
    everywhere = np.ix_(*(np.arange(extent) for extent in cells.shape))
    for _ in range(steps):
        cells = _stepped(spec, cells, everywhere)
    return Expected(cells.copy())


def expected_at(spec: StencilSpec, cells: Array, index: tuple[Array, ...]) -> Expected:
    """Single cells after one step: an array of places along each axis says which."""
    return Expected(_stepped(spec, cells, index))


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


def _stored(sums: Array, dtype: DType) -> Array:
    """The cells that are nearest to sums: of two that are as near the even one; no sum of integers is NaN."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if dtype.kind == "float":
            return np.asarray(sums.astype(dtype.numpy))
        ends = np.iinfo(dtype.numpy)
        return np.asarray(np.rint(sums).clip(ends.min, ends.max).astype(dtype.numpy))


def _stepped(spec: StencilSpec, cells: Array, index: tuple[Array, ...]) -> Array:
    """The cells at some places after one step; the places along each axis are broadcast against each other."""
    shape = np.broadcast_shapes(*(place.shape for place in index))
    total: Array = np.zeros(shape, spec.accumulator.numpy)
    for offset, weight in spec.taps:
        at = [
            places_inside(place + move, extent, boundary)
            for place, move, extent, boundary in zip(index, offset, cells.shape, spec.boundaries, strict=True)
        ]
        beyond = np.zeros(shape, bool)
        for places in at:
            beyond |= places == OUTSIDE
        near = cells[tuple(np.where(places == OUTSIDE, 0, places) for places in at)] if cells.size else spec.cval
        total = fused_multiply_add(weight, np.where(beyond, spec.cval, near).astype(total.dtype), total)
    found = _stored(total, spec.dtype)
    frozen = np.zeros(shape, bool)
    for place, extent, before, after, ends in zip(index, cells.shape, spec.before, spec.after, spec.ends, strict=True):
        frozen |= (ends[0] == "frozen") & (place < before)
        frozen |= (ends[1] == "frozen") & (place >= extent - after)
    return np.where(frozen, cells[index], found)
