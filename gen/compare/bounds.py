"""How far the cells of a library's stencil may be from the exact ones, after all of its time steps.

A spec fixes gen's own bits. A library adds terms in an order and a type of its own, and rounds what it stores between
steps. Each term of a step passes at most k + 2 roundings where there are k: of its weight, of the product, of k - 1
additions, and of what is stored. So what is new is within gamma_(k+2) times the sum of |w u| of that very cell (Higham,
Accuracy and Stability of Numerical Algorithms, section 3.1), and what the neighbours were off by passes on through the
weights' magnitudes. Cells decay as they are smoothed, and the bound with them: one step more or less shows, as does one
mirrored step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gen.compare.peers.base import window
from gen.dtypes import F64
from gen.families.base import Array
from gen.families.stencil import Boundary, StencilSpec
from gen.proof.oracle import gamma

_PAD_MODES: Mapping[Boundary, Any] = {
    "constant": "constant", "nearest": "edge", "reflect": "symmetric", "mirror": "reflect", "wrap": "wrap",
    "frozen": "edge",
}  # fmt: skip


@dataclass(frozen=True)
class Rounding:
    """What a step costs: `relative` of the sum of |w u|, and `absolute`, for what underflows."""

    relative: float
    absolute: float

    @classmethod
    def of(cls, spec: StencilSpec) -> Rounding:
        """That of any library that steps in the type of the cells; and of the double that says what is right."""
        roundings, dtype = len(spec.taps) + 2, spec.dtype
        relative = gamma(roundings, dtype.unit_roundoff) + gamma(roundings, F64.unit_roundoff)
        return cls(relative, roundings * dtype.smallest)


def stepped(
    spec: StencilSpec, rounding: Rounding, value: Array, off: Array, frozen: Array
) -> tuple[Array, Array]:  # fmt: skip
    """One step in double, of all cells whose neighbours lie within the arrays.

    Args:
        spec: what is computed.
        rounding: what a step costs.
        value: cells.
        off: how far each may be off.
        frozen: which of them stay as they are.

    Returns:
        Cells, and how far they may be off, of as many fewer along each axis as the weights reach.
    """
    inner = window(spec, (0,) * len(spec.axes))
    total, error = np.zeros(value[inner].shape), np.full(value[inner].shape, rounding.absolute)
    costs = off + rounding.relative * (np.abs(value) + off)  # of a neighbour of weight 1
    for offset, weight in spec.taps:
        there = window(spec, offset)
        total += weight * value[there]
        error += abs(weight) * costs[there]
    stay = frozen[inner]
    return np.where(stay, value[inner], total), np.where(stay, off[inner], error)


def bounded(spec: StencilSpec, cells: Array, steps: int) -> tuple[Array, Array]:
    """The cells of a whole array after so many steps, in double, and how far each may be off."""
    value, off, rounding = cells.astype(np.float64), np.zeros(cells.shape), Rounding.of(spec)
    frozen = np.zeros(cells.shape, bool)
    for axis, (boundary, before, after) in enumerate(zip(spec.boundaries, spec.before, spec.after, strict=True)):
        if boundary == "frozen":
            place = np.arange(cells.shape[axis])
            rim = (place < before) | (place >= cells.shape[axis] - after)
            frozen |= rim.reshape([-1 if other == axis else 1 for other in range(cells.ndim)])
    around = _padded(spec, frozen, 0)
    for _ in range(steps):
        value, off = stepped(spec, rounding, _padded(spec, value, spec.cval), _padded(spec, off, 0), around)
    return value, off


def _padded(spec: StencilSpec, array: Array, outside: float) -> Array:
    """An array with what lies outside around it."""
    for axis, (boundary, *reach) in enumerate(zip(spec.boundaries, spec.before, spec.after, strict=True)):
        widths = [tuple(reach) if other == axis else (0, 0) for other in range(array.ndim)]
        options = {"constant_values": outside} if boundary == "constant" else {}
        array = np.pad(array, widths, _PAD_MODES[boundary], **options)
    return array
