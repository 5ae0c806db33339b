"""A domain split among ranks: what each of them computes in one call of a kernel, and which cells it gets from whom.

A rank computes some time steps without the others, from its own cells and a halo of `steps` times the reach of the
weights around them. At the ends of what it holds a kernel applies the spec's boundary, as everywhere. Where these are
no ends of the domain, that is wrong, and each time step spreads it by one reach: after all steps it has come through
the halo, and no further. Where they are ends of the domain it is right: nothing is added there, and what a boundary
reads from inside lies within one reach of the end. Around an axis that wraps the ranks form a ring; its cells repeat
with the period of the domain, and so do their values at every step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from math import prod
from typing import Protocol

from gen.families.stencil.spec import Boundary

Box = tuple[tuple[int, int], ...]
"""The first cell along each axis, and the one past the last. Where an axis wraps, cells outside of it repeat others."""

Cuts = tuple[tuple[int, ...], ...]
"""Where the cells of the ranks begin along each axis, and last its extent."""


class Reaching(Protocol):
    """A spec whose cells depend on those around them: a stencil, or a system."""

    @property
    def ends(self) -> tuple[tuple[Boundary, Boundary], ...]:
        """What lies before the first cell and past the last along each axis."""
        ...

    @property
    def before(self) -> tuple[int, ...]:
        """How far a time step reads towards lower indices, along each axis."""
        ...

    @property
    def after(self) -> tuple[int, ...]:
        """How far a time step reads towards higher indices, along each axis."""
        ...


@dataclass(frozen=True)
class Piece:
    """Cells that a part reads.

    Attributes:
        owner: the rank that has them.
        cells: which they are, in the domain.
        at: the place of the first among the cells of the part.
    """

    owner: int
    cells: Box
    at: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """What one call of a kernel computes.

    Attributes:
        cells: all that it reads, and writes.
        valid: those of them that are right when it has computed the steps.
        own: which it reads of the rank's own.
        others: what it reads of others, and of the rank's own once more where an axis wraps; together they are `cells`.
    """

    cells: Box
    valid: Box
    own: tuple[Piece, ...]
    others: tuple[Piece, ...]


@dataclass(frozen=True)
class Share:
    """What one rank computes.

    Attributes:
        own: the cells that it has.
        inside: what it computes of these alone; None where all of them are near to others.
        rims: what is near to cells of others, all that these read among it. Together with `inside` they make all of its
            own cells valid, each once.
    """

    own: Box
    inside: Part | None
    rims: tuple[Part, ...]

    @property
    def owners(self) -> frozenset[int]:
        """The ranks whose cells the rims read."""
        return frozenset(piece.owner for rim in self.rims for piece in rim.others)


def even_cuts(shape: Sequence[int], grid: Sequence[int]) -> Cuts:
    """As equal as possible, the first ones larger by one: as `numpy.array_split` has it."""
    return tuple(
        tuple(place * (extent // ranks) + min(place, extent % ranks) for place in range(ranks + 1))
        for extent, ranks in zip(shape, grid, strict=True)
    )


def cuts_of(extents: Sequence[Sequence[int]]) -> Cuts:
    """Those of ranks that have so many cells along each axis."""
    return tuple((0, *accumulate(along)) for along in extents)


def boxes_of(cuts: Cuts) -> tuple[Box, ...]:
    """The own cells of every rank: those along the last axis follow each other."""
    return tuple(product(*(tuple(pairwise(along)) for along in cuts)))


def extents_of_box(box: Box) -> tuple[int, ...]:
    """How many cells there are along each axis."""
    return tuple(end - begin for begin, end in box)


def common_cells(one: Box, other: Box) -> Box | None:
    """The cells that are in two boxes; None if there are none."""
    found = tuple((max(begin, low), min(end, high)) for (begin, end), (low, high) in zip(one, other, strict=True))
    return found if all(begin < end for begin, end in found) else None


def most_steps(spec: Reaching, grid: Sequence[int]) -> int | None:
    """How many time steps a rank can compute without the others: any number, or one.

    Where an axis wraps at one end alone, what lies beyond that end repeats cells which are near to the other end, and
    changes as these do: by that other boundary, which no kernel applies in the middle of its cells.
    """
    wraps = [sum(end == "wrap" for end in ends) for ends, ranks in zip(spec.ends, grid, strict=True) if ranks > 1]
    return 1 if 1 in wraps else None


def halos_of(spec: Reaching, cuts: Cuts, steps: int) -> tuple[int, ...]:
    """Cells of a halo along each axis, on both sides; none along an axis that is not split.

    A mirror image has cells of the one side where the weights reach to the other: so both sides have the larger reach.
    """
    reaches = (max(before, after) for before, after in zip(spec.before, spec.after, strict=True))
    return tuple(steps * reach if len(along) > 2 else 0 for reach, along in zip(reaches, cuts, strict=True))


def shares_of(spec: Reaching, cuts: Cuts, steps: int) -> tuple[Share, ...]:
    """What every rank computes in so many steps; `most_steps` allows them."""
    return tuple(_Rank(spec, cuts, steps, rank, own).share() for rank, own in enumerate(boxes_of(cuts)))


class _Rank:
    """One of those that share a domain."""

    def __init__(self, spec: Reaching, cuts: Cuts, steps: int, rank: int, own: Box) -> None:
        self._cuts, self._rank, self._own = cuts, rank, own
        self._halos = halos_of(spec, cuts, steps)
        self._wraps = [
            (len(along) > 2 and ends[0] == "wrap", len(along) > 2 and ends[1] == "wrap")
            for along, ends in zip(cuts, spec.ends, strict=True)
        ]

    def share(self) -> Share:
        inner = self._inner()
        if any(begin >= end for begin, end in inner):
            return Share(self._own, None, (self._part(self._own),))
        return Share(self._own, self._part(inner), tuple(map(self._part, self._rims(inner))))

    def _inner(self) -> Box:
        """The own cells that no halo reaches within the steps, and that are in no halo of others."""
        return tuple(
            (begin + halo * (begin > 0 or any(wraps)), end - halo * (end < along[-1] or any(wraps)))
            for (begin, end), halo, along, wraps in zip(self._own, self._halos, self._cuts, self._wraps, strict=True)
        )

    def _rims(self, inner: Box) -> Iterator[Box]:
        """What lies between these and the ends of the own cells, axis by axis, each cell once."""
        for axis, ((begin, end), (first, last)) in enumerate(zip(self._own, inner, strict=True)):
            for side in ((begin, first), (last, end)):
                if side[0] < side[1]:
                    yield (*inner[:axis], side, *self._own[axis + 1 :])

    def _part(self, valid: Box) -> Part:
        cells = tuple(
            (
                begin - halo if wraps_before else max(begin - halo, 0),
                end + halo if wraps_after else min(end + halo, along[-1]),
            )
            for (begin, end), halo, along, (wraps_before, wraps_after) in zip(
                valid, self._halos, self._cuts, self._wraps, strict=True
            )
        )
        own: list[Piece] = []
        others: list[Piece] = []
        for piece in self._pieces(cells):
            places = tuple(begin + at for (begin, _), at in zip(cells, piece.at, strict=True))
            stays = piece.owner == self._rank and places == tuple(begin for begin, _ in piece.cells)
            (own if stays else others).append(piece)
        return Part(cells, valid, tuple(own), tuple(others))

    def _pieces(self, cells: Box) -> Iterator[Piece]:
        """Every rank's part of some cells."""
        ranks = [len(along) - 1 for along in self._cuts]
        along_axes = [tuple(_segments(begin, end, cuts)) for (begin, end), cuts in zip(cells, self._cuts, strict=True)]
        for segments in product(*along_axes):
            owner = sum(place * prod(ranks[axis + 1 :]) for axis, (place, _, _) in enumerate(segments))
            yield Piece(owner, tuple(held for _, held, _ in segments), tuple(at for _, _, at in segments))


def _segments(begin: int, end: int, cuts: Sequence[int]) -> Iterator[tuple[int, tuple[int, int], int]]:
    """The ranks along an axis that have some cells of it: which, which cells, and the place of the first of them."""
    place = begin
    while place < end:
        inside = place % cuts[-1]
        rank = bisect_right(cuts, inside) - 1
        count = min(cuts[rank + 1] - inside, end - place)
        yield rank, (inside, inside + count), place - begin
        place += count
