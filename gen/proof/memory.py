"""Memory in which kernels run on the CPU: far apart, so that a stray index never lands in another buffer by luck.

And what a launch is given of it: where its buffers lie, and which of its blocks run.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gen.dtypes import DType
from gen.families.base import Array, Layout
from gen.families.extents import byte_bounds
from gen.proof.cases import Content, fill
from gen.proof.faults import Place
from gen.proof.native import Level, Trace

GAP = 1 << 20  # bytes around every buffer that belong to none; never touched, so they cost no memory
_UNWRITTEN = b"\xf5\x7f"  # repeated it is no number in any floating-point type


class Region:
    """Zeroed memory that the system provides page by page when it is touched."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._map = mmap.mmap(-1, max(capacity, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._view)


@dataclass(frozen=True)
class Span:
    """The bytes of an array from its first to its last, gaps between rows included."""

    low: int
    high: int

    @classmethod
    def of(cls, array: Array) -> Span:
        """The span of an array of any strides; empty for an array without elements."""
        low, high = byte_bounds(array.shape, array.strides, array.itemsize)
        return cls(array.ctypes.data + low, array.ctypes.data + high)

    @property
    def bytes(self) -> int:
        """How many there are."""
        return self.high - self.low


class Arena:
    """Places copies of a call's arrays, with as much alignment as the originals have and no more."""

    def __init__(self) -> None:
        self._region = Region(0)

    def place(self, spans: Sequence[Span]) -> list[int]:
        """An address for each span, equal to its own modulo 256. The last call's places are given up."""
        offsets, end = [], GAP
        for span in spans:
            offsets.append(end + span.low % 256)
            end += -(-(span.bytes + 256 + GAP) // 4096) * 4096
        if end > self._region.capacity:
            self._region = Region(end)
        start = -(-self._region.address // 4096) * 4096
        return [start + offset for offset in offsets]


class ScratchMemory:
    """One scratch buffer of a kernel: stays from run to run, grows when a run needs more."""

    def __init__(self, *, zeroed: bool) -> None:
        self.zeroed = zeroed
        self._capacity = -1
        self.address = 0

    def ensure(self, size: int) -> None:
        """Makes it hold `size` bytes; new memory is zero if that was asked for, else no number."""
        if size <= self._capacity:
            return
        self._region = Region(size + 2 * GAP)
        self._capacity = size
        self.address = -(-(self._region.address + GAP) // 256) * 256
        if not self.zeroed:
            ctypes.memmove(self.address, _UNWRITTEN * (size // 2 + 1), size)


class Shadow:
    """One byte for each byte of a buffer: whether it has been written."""

    def __init__(self) -> None:
        self._region = Region(0)

    def cleared(self, size: int) -> int:
        """The address of `size` bytes that say: nothing has been written."""
        if size > self._region.capacity:
            self._region = Region(size)
        else:
            ctypes.memset(self._region.address, 0, size)
        return self._region.address


GUARD_BYTES = 1 << 39  # around each buffer that nothing else uses: an index that is off by 2^32 stays among them
PATTERN_BYTES = 2049 * mmap.PAGESIZE
PATTERNS = 4  # in a file, which is mapped again and again: a process may have 65,530 mappings
_NONE, _READ, _WRITE = 0, mmap.PROT_READ, mmap.PROT_WRITE
_NORESERVE, _FIXED = 0x4000, 0x10  # of <bits/mman-map-flags-generic.h>: Python does not name them all
_FAILED = ctypes.c_void_p(-1).value


class Range:
    """Addresses that belong to one buffer, with a wide gap on both sides; given back with the object."""

    def __init__(self, size: int) -> None:
        """Sets addresses for `size` bytes aside. Raises MemoryError if the system has none."""
        self.size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._whole = self.size + 2 * GUARD_BYTES
        self._start = _map(None, self._whole, _NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE, -1)
        self.address = self._start + GUARD_BYTES

    def __del__(self) -> None:
        if hasattr(self, "_start"):
            _libc().munmap(self._start, self._whole)

    def zeros(self) -> None:
        """Maps zeros, which can be written."""
        _map(self.address, self.size, _READ | _WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE | _FIXED, -1)

    def pattern(self, descriptor: int, *, writable: bool) -> None:
        """Maps a file of patterns again and again; what is written to it stays here."""
        access = _READ | _WRITE if writable else _READ
        for start in range(0, self.size, PATTERNS * PATTERN_BYTES):
            size = min(PATTERNS * PATTERN_BYTES, self.size - start)
            _map(self.address + start, size, access, mmap.MAP_PRIVATE | _NORESERVE | _FIXED, descriptor)

    def view(self, layout: Layout, offset: int) -> Array:
        """An array of this layout, `offset` bytes after the beginning. The range must outlive it."""
        memory: Any = (ctypes.c_char * self.size).from_address(self.address)
        return np.ndarray(layout.shape, layout.dtype, memory, offset, layout.strides)


class Marks:
    """A byte for each byte of a buffer, 0 until it is set, and one for each page of these.

    Where any are set is found without a look at them all.

    Attributes:
        address: of the first byte's mark.
        pages: the address of what says of each page of marks whether any are set.
    """

    def __init__(self, size: int) -> None:
        self._marks = Range(size)
        self._pages = Range(self._marks.size // MARKS_PER_PAGE)
        self._marks.zeros()
        self._pages.zeros()
        self.address, self.pages = self._marks.address, self._pages.address

    def elements(self, mark: int, size: int) -> Array:
        """The numbers, in order, of the elements of which at least one byte has this mark.

        Args:
            mark: the mark.
            size: bytes of an element, a power of two up to 16.
        """
        count = self._marks.size // MARKS_PER_PAGE
        marks = self._marks.view(Layout((count, MARKS_PER_PAGE), (MARKS_PER_PAGE, 1), np.dtype(np.uint8)), 0)
        pages = np.flatnonzero(self._pages.view(Layout((count,), (1,), np.dtype(np.bool_)), 0))
        found = [np.zeros(0, np.int64)]
        for start in range(0, pages.size, PAGES_TOGETHER):
            some = pages[start : start + PAGES_TOGETHER]
            place = _marked(marks[some], mark, size)
            within = MARKS_PER_PAGE // size
            found.append(some[place // within] * within + place % within)
        return np.concatenate(found)


MARKS_PER_PAGE = 4096  # as many as the runtime has in mind
PAGES_TOGETHER = 256  # that are looked through at once: what a cache holds


def _marked(flags: Array, mark: int, size: int) -> Array:
    """The numbers of the elements of so many bytes of which one has this mark."""
    words = np.flatnonzero(flags.view(np.uint64))  # most are 0
    width = min(size, 8)
    per_word = 8 // width
    parts = flags.view(f"u{width}").reshape(-1, per_word)[words] & int.from_bytes([mark] * width)
    part = np.flatnonzero(parts)
    return distinct((words[part // per_word] * per_word + part % per_word) // (size // width))


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


def distinct(numbers: Array) -> Array:
    """Each number once, of numbers in order."""
    return np.asarray(numbers[np.diff(numbers, prepend=-1) != 0])


@cache
def pattern(dtype: DType, content: Content, seed: int) -> int:
    """The file of patterns of such elements, kept open for good."""
    values: Array = np.zeros(PATTERN_BYTES // dtype.size, dtype.numpy)
    fill(values, dtype, content, seed)
    descriptor = os.memfd_create("pattern")
    for place in range(PATTERNS):
        os.pwrite(descriptor, values.tobytes(), place * PATTERN_BYTES)
    return descriptor


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong
    ]  # fmt: skip
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def _map(address: int | None, size: int, access: int, flags: int, descriptor: int) -> int:
    place = _libc().mmap(address, size, access, flags, descriptor, 0)
    if place in (None, _FAILED):
        raise MemoryError(f"no addresses for {size} bytes: {os.strerror(ctypes.get_errno())}")
    return int(place)
