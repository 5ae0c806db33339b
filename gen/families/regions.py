"""Parts of a shape class: which sizes a tuned variant is for, checked by a program and said in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from gen.families.base import WIDEST, Extents, Family, Layout, Spec
from gen.families.extents import told_extents

CELLS, ALIGNMENT = "cells", "alignment"


def alignment_of(layouts: Iterable[Layout], base: int = WIDEST) -> int:
    """The most bytes, a power of two up to 16, that divide every address and every step from one row to the next.

    Args:
        layouts: of all arrays.
        base: what divides every array's first address.
    """
    found = gcd(WIDEST, base)
    for layout in layouts:
        if 0 not in layout.shape:
            pairs = zip(layout.shape[:-1], layout.strides[:-1], strict=True)
            found = gcd(found, *(stride for extent, stride in pairs if extent > 1))
    return found


def sizes_of(family: Family[Any], spec: Spec, extents: Extents, base: int = WIDEST) -> Mapping[str, int]:
    """All that may bound a region: the operands' axes by name, `cells`, the size of the work, and `alignment`.

    Pitches do not, nor what follows from the others: `_places` of boxes.
    """
    layouts = family.layouts(spec, extents)
    pitches = {operand.pitch for operand in spec.operands if operand.pitch}
    return {
        **{name: extent for name, extent in told_extents(extents).items() if name not in pitches},
        CELLS: family.work(spec, extents).cells,
        ALIGNMENT: alignment_of(layouts.values(), base),
    }


@dataclass(frozen=True, order=True)
class Bound:
    """What one size may be: from `least` to `most`, both of them included; None: no upper end."""

    size: str
    least: int = 0
    most: int | None = None

    def holds(self, value: int) -> bool:
        """Whether a value lies within."""
        return self.least <= value and (self.most is None or value <= self.most)

    @property
    def words(self) -> str:
        """For instance `rows up to 64`."""
        if self.size == ALIGNMENT:
            if self.most is None or self.most in (WIDEST, self.least):
                return f"aligned to {self.least} bytes"
            return f"aligned to {1 << self.most.bit_length() - 1} bytes at most"  # the power of two that it allows
        if self.least == self.most:
            return f"{self.size} {_power(self.least)}"
        least = f"from {_power(self.least)}" if self.least else ""
        if self.least > 2 and _is_power(self.least - 1):
            least = f"over {_power(self.least - 1)}"
        most = "" if self.most is None else f"up to {_power(self.most)}"
        return " ".join(part for part in (self.size, least, most) if part)


@dataclass(frozen=True)
class Region:
    """A part of a shape class: sizes that lie within all bounds, one for each size at most. Without bounds: all of it.

    Attributes:
        bounds: in the order of their sizes' names.
    """

    bounds: tuple[Bound, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", tuple(sorted(self.bounds)))

    @classmethod
    def exactly(cls, sizes: Mapping[str, int]) -> Region:
        """One problem, and whatever else has its sizes: all but `cells`, which follow from the others."""
        return cls(tuple(Bound(name, value, value) for name, value in sizes.items() if name != CELLS))

    @classmethod
    def from_json(cls, content: object) -> Region:
        """The inverse of `to_json`. Raises ValueError for anything else."""
        if not isinstance(content, dict):
            raise ValueError(content)
        bounds = []
        for name, pair in content.items():
            if not (isinstance(name, str) and isinstance(pair, list) and len(pair) == 2):
                raise ValueError(pair)
            least, most = pair
            if type(least) is not int or least < 0 or not (most is None or (type(most) is int and most >= least)):
                raise ValueError(pair)
            bounds.append(Bound(name, least, most))
        return cls(tuple(bounds))

    def to_json(self) -> dict[str, list[int | None]]:
        """Least and most by the size's name."""
        return {bound.size: [bound.least, bound.most] for bound in self.bounds}

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes lie within; one that is bounded and not known does not."""
        return all(bound.size in sizes and bound.holds(sizes[bound.size]) for bound in self.bounds)

    @property
    def one(self) -> bool:
        """Whether it is a single problem's."""
        return bool(self.bounds) and all(bound.least == bound.most for bound in self.bounds)

    @property
    def words(self) -> str:
        """For instance `rows up to 64, aligned to 16 bytes`; nothing without bounds."""
        shown = sorted(self.bounds, key=lambda bound: bound.size == ALIGNMENT)  # that last
        return ", ".join(bound.words for bound in shown)


WHOLE = Region()


def most_special_first(region: Region) -> tuple[bool, int, str]:
    """Sorts regions as they are asked: single problems, then those of most bounds, then a whole class."""
    return not region.one, -len(region.bounds), region.words


def _power(value: int) -> str:
    """A number as people say it: powers of two from 2^15 on as such."""
    return f"2^{value.bit_length() - 1}" if value >= 2**15 and _is_power(value) else str(value)


def _is_power(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0
