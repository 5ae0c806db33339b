"""Memory far larger than the machine's, of which only what is touched exists: arrays of more than 2^32 elements.

An input repeats one pattern of 8 MiB; its length shares no factor but the page with 2^31, so that an index that lost
its upper bits finds other values.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from gen.dtypes import DType
from gen.families.base import Array, Layout
from gen.proof.cases import Content, fill

FAR = 1 << 39  # bytes around each buffer that nothing else uses: an index that is off by 2^32 stays among them
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
        self._whole = self.size + 2 * FAR
        self._start = _map(None, self._whole, _NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE, -1)
        self.address = self._start + FAR

    def __del__(self) -> None:
        if hasattr(self, "_start"):
            _libc().munmap(self._start, self._whole)

    def zeros(self) -> None:
        """Maps zeros, which can be written."""
        _map(self.address, self.size, _READ | _WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE | _FIXED, -1)

    def file(self, descriptor: int) -> None:
        """Maps a file, which can be written."""
        _map(self.address, self.size, _READ | _WRITE, mmap.MAP_SHARED | _NORESERVE | _FIXED, descriptor)

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
    """A byte for each byte of a buffer, 0 until it is set; where any are set is found without a look at them all."""

    def __init__(self, size: int) -> None:
        self._file = os.memfd_create("marks")
        self._range = Range(size)
        os.ftruncate(self._file, self._range.size)
        self._range.file(self._file)
        self.address = self._range.address

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def pieces(self) -> Iterator[tuple[int, Array]]:
        """Where marks may be set: the first byte's number, and a copy of the marks."""
        end = 0
        while True:
            try:
                start = os.lseek(self._file, end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            end = os.lseek(self._file, start, os.SEEK_HOLE)
            yield start, np.frombuffer(os.pread(self._file, end - start, start), np.uint8)

    def elements(self, mark: int, size: int) -> Array:
        """The numbers, in order, of the elements of so many bytes of which at least one byte has this mark."""
        found = [(np.flatnonzero(flags & mark) + start) // size for start, flags in self.pieces()]
        return distinct(np.concatenate([np.zeros(0, np.int64), *found]))


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
