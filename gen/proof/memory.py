"""Memory in which kernels run on the CPU: far apart, so that a stray index never lands in another buffer by luck."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

from gen.families.base import Array

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
        low = high = int(array.__array_interface__["data"][0])
        if array.size == 0:
            return cls(low, low)
        for extent, stride in zip(array.shape, array.strides, strict=True):
            reach = (extent - 1) * stride
            low += min(reach, 0)
            high += max(reach, 0)
        return cls(low, high + array.itemsize)

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
