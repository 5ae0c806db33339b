"""What NumPy says a stencil computes: a correlation in float64 over padded indices, and how far a kernel may be off.

One step adds up k terms w u with k roundings, so it is within gamma_k times the sum of |w u| of the exact step of the
same cells (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). What the cells themselves were off
before passes on through the weights' magnitudes; f16 rounds once more when a step is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gen.dtypes import DType
from gen.families.base import Array, Expected
from gen.families.exact import sums_are_exact
from gen.families.stencil.spec import Boundary, StencilSpec

OUTSIDE = -1


def expected(spec: StencilSpec, cells: Array, steps: int) -> Expected:
    """The cells after so many steps."""
    now = _Cells(cells.astype(np.float64), np.zeros(cells.shape))
    if steps == 0:
        return Expected(cells.copy())
    for step in range(steps):
        now = _stepped(spec, now, last=step == steps - 1)
    exact = not now.off.any()
    if exact:
        with np.errstate(over="ignore"):
            return Expected(now.value.astype(spec.dtype.numpy))
    wild = np.where(np.isinf(now.off), np.inf, 0.0)
    slack = np.where(np.isinf(now.off), 0.0, now.off)
    return Expected(now.value, wild, spec.accumulator, slack=slack, same_bits=True)


def expected_at(spec: StencilSpec, cells: Array, index: tuple[Array, ...]) -> Expected:
    """Single cells after one step: an array of places along each axis says which."""
    value, magnitude = np.zeros(index[0].shape), np.zeros(index[0].shape)
    frozen = np.zeros(index[0].shape, bool)
    for place, extent, before, after, boundary in zip(
        index, cells.shape, spec.before, spec.after, spec.boundaries, strict=True
    ):
        frozen |= (boundary == "frozen") & ((place < before) | (place >= extent - after))
    seen = [np.asarray([spec.cval])]
    for offset, weight in spec.taps:
        at = [
            places_inside(place + move, extent, boundary)
            for place, move, extent, boundary in zip(index, offset, cells.shape, spec.boundaries, strict=True)
        ]
        beyond = np.any([places == OUTSIDE for places in at], axis=0)
        near = cells[tuple(np.where(beyond, 0, places) for places in at)].astype(np.float64)
        around = np.where(beyond, spec.cval, near)
        seen.append(around)
        value += weight * around
        magnitude += abs(weight) * np.abs(around)
    value = np.where(frozen, cells[index], value)
    largest = float(magnitude.max(initial=0.0))
    if sums_are_exact(spec.accumulator, largest, np.concatenate(seen), np.asarray(spec.weights)):
        return Expected(value.astype(spec.dtype.numpy))
    return Expected(value, np.where(frozen, 0.0, magnitude), spec.accumulator)


def padded_indices(extent: int, before: int, after: int, boundary: Boundary) -> Array:
    """For each place from `before` below the first to `after` beyond the last: the cell that stands there.

    OUTSIDE where there is none: along `constant` axes, where cval is read, and `frozen` ones, where nothing is.
    """
    return places_inside(np.arange(-before, extent + after), extent, boundary)


def places_inside(place: Array, extent: int, boundary: Boundary) -> Array:
    """The cell that stands at each place of an axis; OUTSIDE where there is none."""
    if extent == 0:
        return np.full(place.shape, OUTSIDE)
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


def frozen_cells(spec: StencilSpec, shape: tuple[int, ...]) -> Array:
    """Which cells never change: those whose weights reach past the end of a frozen axis."""
    frozen = np.zeros(shape, bool)
    for axis, boundary in enumerate(spec.boundaries):
        if boundary == "frozen":
            place = np.arange(shape[axis])
            rim = (place < spec.before[axis]) | (place >= shape[axis] - spec.after[axis])
            frozen |= rim.reshape([-1 if other == axis else 1 for other in range(len(shape))])
    return frozen


@dataclass(frozen=True)
class _Cells:
    """Cells in float64, and how far each may be off; infinite where it may be anything: its range was left."""

    value: Array
    off: Array


def _stepped(spec: StencilSpec, now: _Cells, *, last: bool) -> _Cells:
    value, magnitude, passed_on = (np.zeros(now.value.shape) for _ in range(3))
    outside = 0.0 if spec.cval == 0 else spec.cval
    with np.errstate(invalid="ignore", over="ignore"):
        for weight, around, off in _windows(spec, now, outside):
            value += weight * around
            magnitude += abs(weight) * np.where(np.isfinite(around), np.abs(around), 0.0)
            passed_on += abs(weight) * off
        off = _off(spec, now, value, magnitude, passed_on, last=last)
        if spec.dtype != spec.accumulator and not off.any():  # rounded as the kernel rounds it
            value = value.astype(spec.dtype.numpy).astype(np.float64)
    frozen = frozen_cells(spec, value.shape)
    return _Cells(np.where(frozen, now.value, value), np.where(frozen, now.off, off))


def _off(
    spec: StencilSpec, now: _Cells, value: Array, magnitude: Array, passed_on: Array, *, last: bool
) -> Array:  # fmt: skip
    """How far each cell may be off after a step; 0 everywhere where nothing was rounded but what f16 stores."""
    kernel = np.finfo(spec.accumulator.numpy)
    store = np.finfo(spec.dtype.numpy)
    largest = float(magnitude.max(initial=0.0))
    if not now.off.any() and largest <= float(store.max):
        seen = now.value if "constant" not in spec.boundaries else np.append(now.value.reshape(-1), spec.cval)
        if sums_are_exact(spec.accumulator, largest, seen, np.asarray(spec.weights)):
            return np.zeros(value.shape)
    terms = len(spec.taps)
    relative = _gamma(terms, spec.accumulator) + _gamma(terms, 2.0**-53)
    off = passed_on * (1 + relative) + relative * magnitude + terms * float(kernel.smallest_subnormal)
    if spec.dtype != spec.accumulator:
        off = off + float(store.smallest_subnormal)
        if not last:  # the last rounding is the result's, which whoever compares allows for
            off = off + spec.dtype.unit_roundoff * (np.abs(np.where(np.isfinite(value), value, 0.0)) + off)
    return np.where((magnitude + off) * (1 + 2.0**-10) > float(store.max), np.inf, off)


def _windows(spec: StencilSpec, now: _Cells, outside: float) -> Iterator[tuple[float, Array, Array]]:
    """For each weight: what every cell reads there, and how far that may be off."""
    shape = now.value.shape
    index = [
        padded_indices(extent, before, after, boundary)
        for extent, before, after, boundary in zip(shape, spec.before, spec.after, spec.boundaries, strict=True)
    ]
    for offset, weight in spec.taps:
        at = [
            places[before + step : before + step + extent]
            for places, before, step, extent in zip(index, spec.before, offset, shape, strict=True)
        ]
        beyond = np.zeros(shape, bool)
        for axis, places in enumerate(at):
            beyond |= (places == OUTSIDE).reshape([-1 if other == axis else 1 for other in range(len(shape))])
        grid = np.ix_(*at)
        yield weight, np.where(beyond, outside, now.value[grid]), np.where(beyond, 0.0, now.off[grid])


def _gamma(roundings: int, unit: DType | float) -> float:
    product = roundings * (unit if isinstance(unit, float) else unit.unit_roundoff)
    return product / (1 - product)
