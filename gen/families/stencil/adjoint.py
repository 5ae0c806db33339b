"""The adjoint of a stencil, which gradients need: as far as it goes, a stencil of the same family.

A stencil is a linear map of its cells, but for `cval`. Its adjoint correlates with the weights turned round. What the
boundary read outside belongs to cells inside: `constant` and `wrap` are their own adjoints, and so is `reflect` where
the weights are the same in both directions. Along other axes the cells get a margin of zeros, as wide as the weights
reach, the turned stencil is computed there too, and the margin is added to the cells that it was read from. Cells that
`frozen` keeps pass their gradient on as it is. Along an axis whose ends differ, cells get the margin too, unless one
end is `constant` and the other `frozen`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gen.families.stencil.oracle import OUTSIDE, places_inside
from gen.families.stencil.spec import Outside, StencilSpec


@dataclass(frozen=True)
class Adjoint:
    """How one time step of an adjoint is computed.

    Attributes:
        spec: the turned stencil, to be computed on the cells with their margin.
        margins: how many zeros come before and behind the cells, along each axis.
        folds: what the margin was read by, along each axis that has one; else None.
        kept: how many cells before and behind keep their value, along each axis.
    """

    spec: StencilSpec
    margins: tuple[tuple[int, int], ...]
    folds: tuple[Outside | None, ...]
    kept: tuple[tuple[int, int], ...]

    @property
    def closed(self) -> bool:
        """Whether it is the turned stencil and nothing else, so that one call computes many time steps."""
        return not any(map(any, (*self.margins, *self.kept)))


def adjoint(spec: StencilSpec) -> Adjoint:
    """The adjoint of one time step of a stencil, its `cval` taken for 0."""
    weights = np.asarray(spec.weights).reshape(spec.shape)
    turned = np.flip(weights)
    origin = tuple(after - extent // 2 for after, extent in zip(spec.after, spec.shape, strict=True))
    boundaries: list[Outside] = []
    margins, folds, kept = [], [], []
    for axis, (boundary, before, after) in enumerate(zip(spec.boundaries, spec.before, spec.after, strict=True)):
        even = before == after and np.array_equal(np.flip(weights, axis), weights)
        apart = all(end in ("constant", "frozen") for end in spec.ends[axis])
        own = apart or boundary == "wrap" or (boundary == "reflect" and even)
        boundaries.append("constant" if apart or not own else boundary)
        margins.append((0, 0) if own else (before, after))
        folds.append(None if own else boundary)
        first, last = (end == "frozen" for end in spec.ends[axis])
        kept.append((before * first, after * last))
    flipped = replace(
        spec, weights=tuple(turned.reshape(-1).tolist()), boundary=tuple(boundaries), cval=0.0, origin=origin
    )  # fmt: skip
    return Adjoint(flipped, tuple(margins), tuple(folds), tuple(kept))


def folded_places(extent: int, before: int, after: int, boundary: Outside) -> list[tuple[int, int]]:
    """Pairs along one axis: a place of the margin, counted from its first cell, and the cell that it was read from."""
    margin = np.concatenate([np.arange(-before, 0), np.arange(extent, extent + after)])
    inside = places_inside(margin, extent, boundary)
    return [(int(place) + before, int(cell)) for place, cell in zip(margin, inside, strict=True) if cell != OUTSIDE]


def computed_cells(shape: tuple[int, ...], kept: tuple[tuple[int, int], ...]) -> tuple[slice, ...]:
    """The box of cells that do not keep their value."""
    return tuple(
        slice(before, max(extent - after, before)) for extent, (before, after) in zip(shape, kept, strict=True)
    )
