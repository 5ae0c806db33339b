"""What a launch on the CPU is given: where its buffers lie, and which of its blocks run."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from gen.proof.faults import Place
from gen.proof.native import Level, Trace

Levels = tuple[tuple[int, int], ...]
"""Bytes from one row to the next, and how many of them are the row's: of the longest rows, of the rows in them, ..."""


def levels_of(shape: Sequence[int], strides: Sequence[int], size: int) -> Levels:
    """Where an array of elements of so many bytes has gaps; none where it has no gaps, or its rows overlap."""
    axes = [(abs(stride), extent) for extent, stride in zip(shape, strides, strict=True) if extent > 1]
    found: list[tuple[int, int]] = []
    used = follows = size
    for stride, extent in sorted(axes):
        if stride < used:
            return ()
        if stride not in (used, follows):  # the next row begins later than any before it would have
            found.append((stride, used))
        used += (extent - 1) * stride
        follows = stride * extent
    return tuple(reversed(found))


@dataclass(frozen=True)
class Storage:
    """Where one buffer of a call lies while it runs.

    Attributes:
        low, high: its bytes.
        pointer: its first element; not its first byte where a stride is negative.
        writable: whether a kernel may write it.
        written: a byte for each of its bytes, set once that has been written; None where all are.
        place: what a message says of it.
        touched: a byte for each of its bytes, marked by what touches that; None where nobody asks.
        touched_pages: a byte for each page of these, set where one is marked.
        granule: bytes of it that threads are likely to touch together.
        levels: its gaps, which belong to no element.
    """

    low: int
    high: int
    pointer: int
    writable: bool
    written: int | None
    place: Place
    touched: int | None = None
    touched_pages: int | None = None
    granule: int = 4
    levels: Levels = ()

    @classmethod
    def of_elements(
        cls, low: int, pointer: int, place: Place, *, writable: bool, written: int | None, levels: Levels = ()
    ) -> Storage:
        """That of as many bytes as `place` says."""
        granule = next(size for size in (4, 2, 1) if (place.element_bytes or 4) % size == 0)
        return cls(low, low + place.bytes, pointer, writable, written, place, granule=granule, levels=levels)

    @property
    def level_table(self) -> ctypes.Array[Level] | None:
        """The gaps as the runtime takes them."""
        return (Level * len(self.levels))(*(Level(*level) for level in self.levels)) if self.levels else None


@dataclass(frozen=True)
class Share:
    """The part of a large launch that is run.

    Attributes:
        blocks: the numbers of its blocks, x first, then y, then z.
        steps_per_thread: accesses and waits after which a thread hangs.
        steps: of all threads together, after which the launch is given up, with a fault of kind "too long".
        trace: takes a note of every access.
    """

    blocks: tuple[int, ...]
    steps_per_thread: int
    steps: int
    trace: Trace | None = None
