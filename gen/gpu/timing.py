"""Times of launches under a stated cache protocol, and the calibration of a device.

A protocol says what the caches hold when a kernel starts:

* COLD: nothing of its data and no dirty line. Twice the size of the second-level cache is written, then as much other
  memory read.
* DIRTY: nothing of its data, but lines that must be written back. Twice the size of the cache is written.
* HOT: the data that the launch before it left there, in a CUDA graph of many launches.

A kernel may ask the cache to evict its data last. No normal access displaces such lines, so they would be there still
when the next kernel reads the same input. So four times the size of the cache is read in that way first.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from gen.dtypes import B32, F32
from gen.errors import RunError
from gen.families.base import Work
from gen.gpu.device import Device, Graph
from gen.gpu.service import GATE_SECONDS, THREADS, Service
from gen.toolchain.compiled import Compiler

if TYPE_CHECKING:
    from gen.gpu.cuda import CudaDevice

# How times come about: the protocol, and the number of the method, raised when old times no longer compare.
METHOD = "cold 6"
GRAPH_LAUNCHES = 50
LATENCY_US = 20.0  # under this, the time of one launch and that of one of many are two different figures
_SLOPE_FROM_BYTES, _SLOPE_TO_BYTES = 1 << 30, 1 << 32  # bytes between which bandwidths are slopes
_BATCH_SAMPLES = 50  # samples queued behind one gate: the driver holds about a thousand launches
_MAX_LATE_BATCHES = 5  # times that the host may be too late for one batch


class Protocol(Enum):
    """What the caches hold when a timed kernel starts."""

    COLD = "cold"
    DIRTY = "dirty"
    HOT = "hot"


@dataclass(frozen=True)
class Calibration:
    """What a device can do: bandwidths in GB/s (1e9 bytes, read and written both counted), launches in microseconds."""

    device: str
    driver: str
    read: float
    write: float
    copy: float
    empty_pair_us: float
    empty_node_us: float

    def floor_us(self, work: Work, protocol: Protocol = Protocol.COLD) -> float:
        """The least time of such work: an empty launch, and its bytes at the bandwidth it is scored against."""
        launch = self.empty_node_us if protocol is Protocol.HOT else self.empty_pair_us
        bandwidth = {"read": self.read, "write": self.write, "copy": self.copy}[work.limit]
        return launch + (work.bytes_read + work.bytes_written) / bandwidth / 1e3


def _nothing() -> None:
    """Queues nothing."""


@dataclass(frozen=True)
class Sample:
    """What is timed once: `launch`, with `setup` queued before the flush."""

    launch: Callable[[], None]
    setup: Callable[[], None] = _nothing


class Clock:
    """Times launches on one device under a protocol."""

    def __init__(self, device: Device, service: Service) -> None:
        self._device = device
        self._service = service
        self._bytes = 2 * device.limits.l2_bytes
        self._memory = device.allocate(2 * self._bytes)
        self._open = device.flag()
        service.random(self._memory.address, 2 * self._bytes, 1, B32)

    def flush(self, protocol: Protocol) -> None:
        """Queues accesses that bring the caches to the state of the protocol."""
        if protocol is Protocol.HOT:
            return
        written, read = self._memory.address, self._memory.address + self._bytes
        self._service.claim(written, 2 * self._bytes)
        self._service.release(written, 2 * self._bytes)
        self._service.fill(written, self._bytes, 0x5AA5C33C)
        if protocol is Protocol.COLD:
            self._service.read(read, self._bytes)

    def times(
        self, launch: Callable[[], None], samples: int, protocol: Protocol = Protocol.COLD,
        setup: Callable[[], None] = _nothing,
    ) -> list[float]:  # fmt: skip
        """Microseconds of isolated launches of one kind. Raises what `in_order` raises."""
        return self.in_order([Sample(launch, setup)] * samples, protocol)

    def in_order(self, samples: Sequence[Sample], protocol: Protocol = Protocol.COLD) -> list[float]:
        """Microseconds of isolated launches, each between two events, one after another in this order.

        Nothing starts before all of it is queued: a host that is busy, or waits for its turn, is never timed.

        Raises RunError if the host does not queue it before the gate lets go, time after time.
        """
        times: list[float] = []
        late, batch = 0, _BATCH_SAMPLES
        while len(times) < len(samples):
            queued = samples[len(times) : len(times) + batch]
            timer = self._device.timer
            pairs = [(timer.event(), timer.event()) for _ in queued]
            self._open.set(0)
            start = time.monotonic()
            self._service.gate(self._open)
            try:
                for sample, (before, after) in zip(queued, pairs, strict=True):
                    sample.setup()
                    self.flush(protocol)
                    before.record()
                    sample.launch()
                    after.record()
            finally:
                self._open.set(1)
            queueing = time.monotonic() - start
            self._device.synchronize()
            if queueing > GATE_SECONDS:
                late, batch = late + 1, max(len(pairs) // 2, 1)  # the driver's queue may have been full
                if late == _MAX_LATE_BATCHES:
                    raise RunError("The host", f"must queue launches within {GATE_SECONDS} s", f"{queueing:.1f} s")
                continue
            times += [after.us_since(before) for before, after in pairs]
        return times

    def times_in_graph(self, graph: Graph, samples: int) -> list[float]:
        """Microseconds a launch in a graph of GRAPH_LAUNCHES of them."""
        return [graph.time_us() / GRAPH_LAUNCHES for _ in range(samples)]


@dataclass(frozen=True)
class Instruments:
    """A GPU with what measuring takes: its service kernels, and a clock."""

    device: CudaDevice
    service: Service
    clock: Clock

    @classmethod
    def open(cls, index: int, compiler: Compiler) -> Instruments:
        """Opens a GPU. Raises as `gen.gpu.cuda.open_device`."""
        from gen.gpu.cuda import open_device

        device = open_device(index, compiler)
        service = Service(device)
        return cls(device, service, Clock(device, service))

    def calibrate(self) -> Calibration:
        """Measures the GPU, which takes some seconds.

        Bandwidths are slopes between 1 and 4 GiB, the best of several grids and of the driver's own copy.
        """
        device, service, clock = self.device, self.service, self.clock
        source, target = device.allocate(_SLOPE_TO_BYTES), device.allocate(_SLOPE_TO_BYTES)
        for memory in (source, target):
            service.random(memory.address, _SLOPE_TO_BYTES, 7, F32)
        grids = [0, *(per_sm * device.limits.multiprocessors for per_sm in (2, 4, 16, 32)), -1]

        def bandwidth(factor: int, *works: Callable[[int, int], None]) -> float:
            best = 0.0
            for work in works:
                for grid in grids:
                    small, large = (
                        statistics.median(clock.times(lambda: work(size, _blocks(grid, size)), 7))  # noqa: B023
                        for size in (_SLOPE_FROM_BYTES, _SLOPE_TO_BYTES)
                    )
                    best = max(best, factor * (_SLOPE_TO_BYTES - _SLOPE_FROM_BYTES) / (large - small) / 1e3)
            return best

        def copy(size: int, blocks: int) -> None:
            service.copy(source.address, target.address, size, blocks)

        def driver_copy(size: int, _: int) -> None:
            device.copy(source.address, target.address, size)

        def read(size: int, blocks: int) -> None:
            service.read(source.address, size, blocks)

        def write(size: int, blocks: int) -> None:
            service.fill(target.address, size, 0x3F8CCCCD, blocks)

        empty_graph = service.graph_of_empty(GRAPH_LAUNCHES)
        found = Calibration(
            device=device.name,
            driver=device.driver,
            read=bandwidth(1, read),
            write=bandwidth(1, write),
            copy=bandwidth(2, copy, driver_copy),
            empty_pair_us=statistics.median(clock.times(service.empty, 50)),
            empty_node_us=statistics.median(clock.times_in_graph(empty_graph, 20)),
        )
        empty_graph.close()
        source.free()
        target.free()
        return found


def _blocks(grid: int, size: int) -> int:
    """The grid meant: -1 stands for a thread a vector."""
    return -(-size // (16 * THREADS)) if grid < 0 else grid
