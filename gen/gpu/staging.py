"""Large arrays of the host to a GPU and back through pinned memory, which threads fill while the driver copies.

The driver's own copies of memory that is not pinned go through pinned memory too, but one thread of the host copies
there, and touches the pages of a new array one after the other: `python bench/staging.py` times both.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

from cuda.bindings import driver as bindings

from gen.families.base import Array
from gen.gpu.cuda import call, uncaptured

if TYPE_CHECKING:
    from gen.gpu.cuda import CudaDevice

LEAST_BYTES = 1 << 24  # of an array: 4 MiB reach the device sooner by the driver
PART_BYTES = 1 << 22  # of a buffer
LEAST_CORES, MOST_THREADS = 4, 8  # one thread is slower than the driver; on a small machine it has other work, too
_NO_TIMING = int(bindings.CUevent_flags.CU_EVENT_DISABLE_TIMING)


def usable_threads() -> int:
    """How many threads to copy with on this machine; 0 where the driver is to copy."""
    cores = len(os.sched_getaffinity(0))
    return min(cores, MOST_THREADS) if cores >= LEAST_CORES else 0


@dataclass(frozen=True)
class _Part:
    start: int
    size: int


class _Buffer:
    """Pinned memory, and the event of the last copy from it or to it."""

    def __init__(self, size: int) -> None:
        self.address = int(call("cuMemHostAlloc", size, 0))
        weakref.finalize(self, bindings.cuMemFreeHost, self.address).atexit = False
        self.event = call("cuEventCreate", _NO_TIMING)
        weakref.finalize(self, bindings.cuEventDestroy, self.event).atexit = False

    def queued(self, stream: int) -> None:
        """Notes that a copy was queued."""
        call("cuEventRecord", self.event, stream)

    def ready(self) -> None:
        """Waits for the last copy."""
        call("cuEventSynchronize", self.event)


class Staging:
    """Pinned buffers, two for each thread. Threads that copy at once take turns."""

    def __init__(self, device: CudaDevice, threads: int, part_bytes: int = PART_BYTES) -> None:
        """Allocates them; raises RunError where so much memory cannot be pinned."""
        self._part_bytes, self._lock = part_bytes, threading.Lock()
        with uncaptured():
            self._buffers = [_Buffer(part_bytes) for _ in range(2 * threads)]
        self._threads = ThreadPoolExecutor(threads, "gen-staging", initializer=device.enter)

    def upload(self, address: int, content: Array, stream: int) -> None:
        """Queues copies of a contiguous array to the device; all of it has been read when this returns."""
        source = content.ctypes.data
        filling: deque[tuple[_Buffer, _Part, Future[None]]] = deque()

        def fill(buffer: _Buffer, part: _Part) -> None:
            buffer.ready()
            ctypes.memmove(buffer.address, source + part.start, part.size)

        def send(buffer: _Buffer, part: _Part, filled: Future[None]) -> None:
            filled.result()
            call("cuMemcpyHtoDAsync", address + part.start, buffer.address, part.size, stream)
            buffer.queued(stream)

        with self._lock:
            try:
                for buffer, part in zip(cycle(self._buffers), self._parts(content), strict=False):
                    if len(filling) == len(self._buffers):
                        send(*filling.popleft())
                    filling.append((buffer, part, self._threads.submit(fill, buffer, part)))
                while filling:
                    send(*filling.popleft())
            finally:
                wait([filled for _, _, filled in filling])

    def download(self, content: Array, address: int, stream: int) -> None:
        """Copies from the device into a contiguous array; all of it is there when this returns."""
        target = content.ctypes.data
        emptying: deque[Future[None]] = deque()

        def empty(buffer: _Buffer, part: _Part) -> None:
            buffer.ready()
            ctypes.memmove(target + part.start, buffer.address, part.size)

        with self._lock:
            try:
                for buffer, part in zip(cycle(self._buffers), self._parts(content), strict=False):
                    if len(emptying) == len(self._buffers):
                        emptying.popleft().result()
                    buffer.ready()  # an upload on another stream may still read it
                    call("cuMemcpyDtoHAsync", buffer.address, address + part.start, part.size, stream)
                    buffer.queued(stream)
                    emptying.append(self._threads.submit(empty, buffer, part))
                while emptying:
                    emptying.popleft().result()
            finally:
                wait(emptying)

    def _parts(self, content: Array) -> Iterator[_Part]:
        for start in range(0, content.nbytes, self._part_bytes):
            yield _Part(start, min(self._part_bytes, content.nbytes - start))
