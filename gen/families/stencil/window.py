"""The window of cells that a kernel reads: how far it reaches, its weights, which of its rows need neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gen.families.stencil.spec import StencilSpec
from gen.families.stencil.text import Line, weight_lines


@dataclass(frozen=True)
class Reach:
    """How far the weights that are not 0 reach from a cell."""

    up: int
    down: int
    left: int
    right: int

    @classmethod
    def of(cls, spec: StencilSpec) -> Reach:
        """That of a spec of one axis or two."""
        rows = [offset[0] for offset, _ in spec.taps if len(offset) > 1] or [0]
        cols = [offset[-1] for offset, _ in spec.taps] or [0]
        return cls(max(0, -min(rows)), max(0, *rows), max(0, -min(cols)), max(0, *cols))

    def mirrored(self, spec: StencilSpec) -> Reach:
        """At a mirror both ways alike: rows that are mirrored must be held."""
        if spec.boundaries[0] not in ("reflect", "mirror"):
            return self
        both = max(self.up, self.down)
        return Reach(both, both, self.left, self.right)

    @property
    def high(self) -> int:
        """Rows of a window."""
        return self.up + self.down + 1

    @property
    def side(self) -> int:
        """Neighbours on each side."""
        return max(self.left, self.right)


@dataclass(frozen=True)
class Rim:
    """Cells at the ends of each axis that are frozen: none along other axes."""

    up: int
    down: int
    left: int
    right: int

    @classmethod
    def of(cls, spec: StencilSpec) -> Rim:
        """That of a spec of one axis or two."""
        ends = [
            (before, after) if boundary == "frozen" else (0, 0)
            for boundary, before, after in zip(spec.boundaries, spec.before, spec.after, strict=True)
        ]
        return cls(*(ends[0] if len(ends) > 1 else (0, 0)), *ends[-1])


def window_lines(spec: StencilSpec, reach: Reach) -> tuple[Line, ...]:
    """The weights of a window as the lines of a C++ initializer."""
    weights = dict(spec.taps)
    rows: list[Sequence[float]] = []
    for y in range(-reach.up, reach.down + 1):
        place = (y,) if len(spec.axes) > 1 else ()
        rows.append([weights.get((*place, x), 0.0) for x in range(-reach.left, reach.right + 1)])
    return weight_lines(rows, spec.accumulator)


def sides_of(spec: StencilSpec, reach: Reach) -> list[int]:
    """How many neighbours on each side every row of a window needs."""
    return [
        max((abs(offset[-1]) for offset, _ in spec.taps if len(offset) == 1 or offset[0] == y), default=0)
        for y in range(-reach.up, reach.down + 1)
    ]
