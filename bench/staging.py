"""What copies of NumPy arrays to and from a GPU cost: `python bench/staging.py [--json FILE]`, on a GPU.

`driver` is the driver's own copy of memory that is not pinned. `staged` copies part after part into buffers of pinned
memory, which threads fill while the driver copies from others, and back, as calls do with large arrays. `registered`
pins the array itself for the time of its copy. Downloads go into an array that nobody has touched, as results do, or
into one that is there, as `out=` is. Rows hold GB/s, medians of turns; the content is compared each time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.program import ended, need_gpu, write_results
from gen.families.base import Array
from gen.gpu.cuda import CudaDevice, call
from gen.gpu.staging import Staging

SIZES = (2**16, 2**20, 2**22, 2**24, 2**26, 2**28)  # bytes
ROUNDS = 9
THREADS = (1, 2, 4, 8)  # that copy


@dataclass(frozen=True)
class Row:
    """GB/s of one way to copy so many bytes."""

    way: str
    bytes: int
    upload: float
    download_new: float
    download: float


class Driver:
    """Copies as the driver does."""

    def upload(self, address: int, content: Array, stream: int) -> None:
        """Copies to the device."""
        call("cuMemcpyHtoDAsync", address, content.ctypes.data, content.nbytes, stream)

    def download(self, content: Array, address: int, stream: int) -> None:
        """Copies from the device."""
        call("cuMemcpyDtoHAsync", content.ctypes.data, address, content.nbytes, stream)


class Registered:
    """Pins the array for the time of the copy."""

    def upload(self, address: int, content: Array, stream: int) -> None:
        """Copies to the device."""
        call("cuMemHostRegister", content.ctypes.data, content.nbytes, 0)
        call("cuMemcpyHtoDAsync", address, content.ctypes.data, content.nbytes, stream)
        call("cuStreamSynchronize", stream)
        call("cuMemHostUnregister", content.ctypes.data)

    def download(self, content: Array, address: int, stream: int) -> None:
        """Copies from the device."""
        call("cuMemHostRegister", content.ctypes.data, content.nbytes, 0)
        call("cuMemcpyDtoHAsync", content.ctypes.data, address, content.nbytes, stream)
        call("cuStreamSynchronize", stream)
        call("cuMemHostUnregister", content.ctypes.data)


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measured(device: CudaDevice, ways: Sequence[tuple[str, Any]], size: int, rounds: int) -> list[Row]:
    """A row a way, which take turns."""
    stream = 1
    memory = device.allocate(size)
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    times: dict[str, list[list[float]]] = {name: [[], [], []] for name, _ in ways}
    back = np.zeros_like(content)
    for turn in range(rounds + 1):
        for name, way in ways:

            def up(way: Any = way) -> None:
                way.upload(memory.address, content, stream)
                device.synchronize(stream)

            def down(target: Callable[[], Array], way: Any = way) -> None:
                way.download(target(), memory.address, stream)
                device.synchronize(stream)

            device.zero(memory.address, size)
            device.synchronize()
            works = (up, partial(down, lambda: np.empty(size, np.uint8)), partial(down, lambda: back))
            took = [seconds(work) for work in works]
            if not np.array_equal(back, content):
                raise AssertionError(f"{name} copies something else")
            back[:] = 0
            if turn:  # the first one warms up
                for kept, one in zip(times[name], took, strict=True):
                    kept.append(one)
    return [
        Row(name, size, *(round(size / statistics.median(one) / 1e9, 2) for one in kept))
        for name, kept in times.items()
    ]


def main() -> int:
    """Prints a line a way and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of every way")
    options = parser.parse_args()
    gpu = need_gpu("python bench/staging.py")
    device = CudaDevice(0, None)
    device.enter()
    ways: list[tuple[str, Any]] = [("driver", Driver()), ("registered", Registered())]
    ways += [(f"staged, {threads} threads", Staging(device, threads)) for threads in THREADS]
    rows: list[Row] = []
    for size in SIZES:
        rows += measured(device, ways, size, options.rounds if size < 2**28 else 3)
        for row in rows[-len(ways) :]:
            print(
                f"{row.bytes:10d} bytes: {row.upload:6.2f} GB/s up, {row.download_new:6.2f} down into a new array, "
                f"{row.download:6.2f} into an old one  {row.way}", flush=True,
            )  # fmt: skip
        write_results(options.json, "python bench/staging.py", gpu, None, rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
