"""What a launch on the CPU is given: where its buffers lie, and which of its blocks run."""

from __future__ import annotations

from dataclasses import dataclass

from gen.proof.faults import Place
from gen.proof.native import Trace


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
        granule: bytes of it that threads are likely to touch together.
    """

    low: int
    high: int
    pointer: int
    writable: bool
    written: int | None
    place: Place
    touched: int | None = None
    granule: int = 4

    @classmethod
    def of_elements(cls, low: int, pointer: int, place: Place, *, writable: bool, written: int | None) -> Storage:
        """That of as many bytes as `place` says."""
        granule = next(size for size in (4, 2, 1) if (place.element_bytes or 4) % size == 0)
        return cls(low, low + place.bytes, pointer, writable, written, place, granule=granule)


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
