"""What families have in common whose problems are all that their operands' axes and pitches say."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TypeVar

from gen.families.base import WIDEST, Extents, Family, Layout, Spec, Work
from gen.families.layout import layouts_of, measure

S = TypeVar("S", bound=Spec)

ANY = "any size"


class DenseFamily(Family[S]):
    """A family that reads every input once and writes every output once, at copy speed at best.

    Extents, layouts and least work follow from the operands; there is one shape class, unless a family says more.
    """

    def extents(self, spec: S, layouts: Mapping[str, Layout]) -> Extents:
        """Every axis of the operands, every pitch in elements, and what a call may count."""
        return {**measure(spec.operands, layouts), **self.counts(spec)}

    def layouts(self, spec: S, extents: Extents) -> Mapping[str, Layout]:
        """Every array among the operands."""
        return layouts_of(spec.operands, extents)

    def work(self, spec: S, extents: Extents) -> Work:
        """Each element read once and written once."""
        layouts = layouts_of(spec.operands, extents)
        moved = {o.name: prod(layouts[o.name].shape) for o in spec.operands if o.role != "number"}
        read = sum(moved[o.name] * o.dtype.size for o in spec.operands if o.role in ("in", "inout"))
        written = sum(moved[o.name] * o.dtype.size for o in spec.operands if o.role in ("out", "inout"))
        return Work(read, written, max(moved.values()), "copy")

    def shape_classes(self, spec: S) -> tuple[str, ...]:
        """One for all sizes."""
        return (ANY,)

    def shape_class(self, spec: S, extents: Extents, alignment: int = WIDEST) -> str:
        """One for all sizes."""
        return ANY
