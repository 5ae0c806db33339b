"""What is asked of a device: by calls of kernels, by tuning, by proof on a GPU and by comparison with other libraries.

`gen.gpu.cuda.CudaDevice` implements it, and a fake in tests. Importing this needs neither a GPU nor a driver.

Streams are the driver's handles. Addresses are the device's. Every method but those that find and open devices wants
the device to be current in the calling thread: between `enter` and `leave`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable
from uuid import UUID

import numpy as np

from gen.arch import Attribute, Limits
from gen.errors import DeviceError, RunError
from gen.families.base import Array, Extents, Variant
from gen.families.plans import Step
from gen.toolchain.compiled import Compiled, Compiler

LEGACY_STREAM = 1  # the legacy default stream
PER_THREAD_STREAM = 2  # the calling thread's own default stream
GRAPH_FROM = 8  # launches of a call from which on it is replayed as a graph, if it is repeated


class Memory(Protocol):
    """Bytes on a device, given back with the object; the device waits for the work that still uses them."""

    @property
    def address(self) -> int:
        """Of the first byte, a multiple of 256."""
        ...

    @property
    def size(self) -> int:
        """In bytes."""
        ...

    def free(self) -> None:
        """Gives the bytes back now."""
        ...


class Flag(Protocol):
    """A number of 32 bits in the host's memory that kernels can read while they run."""

    @property
    def address(self) -> int:
        """Where kernels find it."""
        ...

    def set(self, value: int) -> None:
        """Changes it, at once."""
        ...


class Event(Protocol):
    """A point in the work of the legacy default stream, with its time."""

    def record(self) -> None:
        """Queues it."""
        ...

    def us_since(self, earlier: Event) -> float:
        """Microseconds between two events that have both happened. They are of the same timer."""
        ...


class Stream(Protocol):
    """A stream that is made here, and lives as long as this object."""

    @property
    def handle(self) -> int:
        """The driver's handle of it."""
        ...


class Mark(Protocol):
    """A point in the work of one stream, for which streams of any device may wait: an event without a time (CUDA)."""


@dataclass(frozen=True)
class Rows:
    """Where bytes lie that are copied from device to device: rows, as many in every plane.

    Attributes:
        address: of the first byte.
        planes, rows: how many planes there are, and how many rows in each.
        row_bytes: of a row.
        pitch: bytes from the start of a row to that of the next one.
        plane_rows: rows from the start of a plane to that of the next one, at least `rows`.
    """

    address: int
    planes: int
    rows: int
    row_bytes: int
    pitch: int
    plane_rows: int

    @classmethod
    def of(cls, address: int, size: int) -> Rows:
        """Bytes that follow each other."""
        return cls(address, 1, 1, size, size, 1)

    @property
    def contiguous(self) -> bool:
        """Whether all bytes follow each other."""
        follow = self.pitch == self.row_bytes or self.rows * self.planes == 1
        return follow and (self.plane_rows == self.rows or self.planes == 1)

    @property
    def bytes(self) -> int:
        """How many there are."""
        return self.planes * self.rows * self.row_bytes

    @property
    def end(self) -> int:
        """What lies behind the last byte."""
        last = (self.planes - 1) * self.plane_rows + self.rows - 1
        return self.address + last * self.pitch + self.row_bytes


class Graph(Protocol):
    """Launches that were captured once, and are replayed as one."""

    def replay(self, stream: int = LEGACY_STREAM) -> None:
        """Queues all of them on a stream."""
        ...

    def time_us(self) -> float:
        """Replays it twice; the time of the second on the device, which is queued while the first runs."""
        ...

    def close(self) -> None:
        """Gives back what the device holds for it."""
        ...


class Prepared(Protocol):
    """Launches with all but addresses and numbers filled in. One thread at a time may use it."""

    def launch(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> None:
        """Queues them all: operands and scratch by address, operands that are numbers as their types store them.

        Raises RunError if the device refuses one.
        """
        ...


@dataclass(frozen=True)
class KernelAttributes:
    """What one kernel takes, as the driver says.

    Attributes:
        registers: of a thread.
        local_bytes: of local memory of a thread: spills and arrays.
        static_shared_bytes: of shared memory of a block, before any that a launch adds.
    """

    registers: int
    local_bytes: int
    static_shared_bytes: int


@dataclass(frozen=True)
class DriverFunctions:
    """What a program needs that launches kernels without Python.

    Attributes:
        context: the handle of the device's context.
        addresses: of `cuLaunchKernel`, `cuCtxGetCurrent`, `cuCtxPushCurrent`, `cuCtxPopCurrent`,
            `cuStreamIsCapturing`, `cuStreamGetId` and `cuLaunchCooperativeKernel`.
        handle: that of a kernel, by code, entry and bytes of dynamic shared memory.
        refused: the error of a kernel by name, grid, block and the driver's status.
    """

    context: int
    addresses: tuple[int, int, int, int, int, int, int]
    handle: Callable[[Code, str, int], int]
    refused: Callable[[str, Sequence[int], Sequence[int], int], RunError]


class Code(Protocol):
    """Machine code, loaded."""

    def prepare(self, extents: Extents, steps: Sequence[Step]) -> Prepared:
        """Makes launches ready to be repeated."""
        ...

    def attributes(self, entry: str) -> KernelAttributes:
        """What a kernel takes."""
        ...

    def unload(self) -> None:
        """Gives its memory back, once nothing of it runs or will run."""
        ...


class Timer(Protocol):
    """What loads kernels that are timed, and times them, on the legacy default stream of one device.

    Attributes:
        name: of the library that does it.
    """

    name: str

    def load(self, compiled: Compiled, variant: Variant | None = None) -> Code:
        """As `Device.load`, for the legacy default stream alone."""
        ...

    def event(self) -> Event:
        """A new event."""
        ...


@runtime_checkable
class Device(Protocol):
    """A device.

    Attributes:
        index: the driver's number of it.
        name: what the driver calls it: `NVIDIA H100 80GB HBM3`.
        driver: the driver's version.
        limits: what it allows.
        timer: what times kernels on it.
    """

    index: int
    name: str
    driver: str
    limits: Limits
    timer: Timer

    def enter(self) -> bool:
        """Makes the device the calling thread's current one. Gives what `leave` wants to know."""
        ...

    def leave(self, entered: bool) -> None:
        """Puts back what was current before."""
        ...

    def for_any_thread(self) -> Device:
        """The same device, with a timer that any thread may use."""
        ...

    def compiler(self) -> Compiler:
        """What compiles for this device; threads may share it."""
        ...

    def compile(self, name: str, text: str) -> Compiled:
        """Compiles a text for this device, or takes what was compiled before. Raises CompileError."""
        ...

    def load(self, compiled: Compiled, variant: Variant | None = None) -> Code:
        """Loads machine code, also while a stream is capturing.

        Args:
            compiled: its name is that of its kernels, without the entry that a step names.
            variant: whose kernels these are; None if they are of no variant.
        """
        ...

    def allocate(self, size: int) -> Memory:
        """Memory of so many bytes, also while a stream is capturing. Raises DeviceError if there is none left."""
        ...

    def driver_functions(self) -> DriverFunctions | None:
        """What launches without Python; None where only `Prepared.launch` does."""
        ...

    def free_bytes(self) -> int:
        """Memory that is left."""
        ...

    def flag(self) -> Flag:
        """A number that the host sets and kernels wait for."""
        ...

    def upload(self, address: int, content: Array, stream: int | None = None) -> None:
        """Copies a contiguous array to the device; queues it on a stream, if one is given."""
        ...

    def download(self, content: Array, address: int, stream: int | None = None) -> None:
        """Copies from the device into a contiguous array; queues it on a stream, if one is given."""
        ...

    def copy(self, source: int, target: int, size: int, stream: int = LEGACY_STREAM) -> None:
        """Queues the driver's own copy on the device."""
        ...

    def zero(self, address: int, size: int, stream: int | None = LEGACY_STREAM) -> None:
        """Queues setting bytes to 0; without a stream it is done when this returns, also while one is capturing."""
        ...

    def capture(self, queue: Callable[[int], None], closed: Callable[[], None] = lambda: None) -> Graph:
        """A graph of what `queue` puts on a stream, which it is given. It may allocate.

        Args:
            queue: is kept as long as the graph, with all that the launches need.
            closed: is called when the device holds nothing of the graph any more.
        """
        ...

    def synchronize(self, stream: int | None = None) -> None:
        """Waits for all that is queued, on a stream or on all. Raises RunError if a launch failed on the way."""
        ...

    def wait(self, stream: int, other: int) -> None:
        """Lets later work on `stream` wait for what is now queued on `other`."""
        ...

    def device_of(self, address: int) -> int | None:
        """The number of the device that an address belongs to; None if it is no memory of the driver's."""
        ...

    def capture_of(self, stream: int) -> int:
        """A number for the graph that a stream is being captured into, never used again; 0 if there is none."""
        ...

    def identity_of(self, stream: int) -> Hashable:
        """What distinguishes a stream from all others, also from one that has its handle later."""
        ...


@runtime_checkable
class Peer(Device, Protocol):
    """A device that computes with others: its streams wait for theirs, and its memory is copied to theirs.

    Attributes:
        spans_memory: whether a launch may take an array of which parts lie in memory of several devices, anywhere.
    """

    spans_memory: bool

    def stream(self, *, urgent: bool = False) -> Stream:
        """A new stream, which takes turns with the legacy default stream.

        Args:
            urgent: whether blocks of its kernels start before those of other streams that wait for room too.
        """
        ...

    def mark(self, stream: int) -> Mark:
        """What is now queued on one of its streams, to be waited for."""
        ...

    def wait_for(self, stream: int, mark: Mark) -> None:
        """Lets later work on one of its streams wait for what was marked, on whichever device that is."""
        ...

    def can_exchange(self, other: Peer) -> bool:
        """Whether it is a device of the same kind, so that copies can go from one to the other."""
        ...

    def reach(self, other: Peer) -> bool:
        """Lets both devices use each other's memory. Whether they can: else copies go through the host's memory."""
        ...

    def copy_to(self, other: Peer, source: Rows, target: Rows, stream: int) -> None:
        """Queues a copy on one of its streams, from its own memory to that of another device, or of itself.

        Args:
            other: whose memory the target is.
            source: what is copied.
            target: where to; as many planes, rows and bytes of a row.
            stream: of this device.
        """
        ...


def bytes_at(device: Device, address: int, size: int) -> Array:
    """A copy of bytes of the device."""
    content: Array = np.empty(size, np.uint8)
    device.download(content, address)
    return content


@dataclass(frozen=True)
class GpuInfo:
    """A GPU that is there.

    Attributes:
        name: what the driver calls it: `NVIDIA H100 80GB HBM3`.
        limits: what it allows.
        uuid: tells it from every other, as NVML spells it: `GPU-4d6f...`.
        driver: the driver's version: `580.95.05, CUDA 13.0`.
    """

    name: str
    limits: Limits
    uuid: str = ""
    driver: str = ""


def find_gpu(index: int = 0) -> GpuInfo | None:
    """The GPU of this number; None if there is no GPU, or no driver. Raises DeviceError if there are only others.

    Asks the driver's library alone: makes no context.
    """
    count = count_gpus()
    if not count:
        return None
    if not 0 <= index < count:
        raise DeviceError("The GPU", f"must be one of {count}, counted from 0", index)
    try:
        driver, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
        name, number = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
        failed = (
            driver.cuDeviceGet(ctypes.byref(device), index)
            or driver.cuDeviceGetName(name, len(name), device)
            or driver.cuDeviceGetUuid_v2(ctypes.byref(number), device)
        )
        if failed:
            return None

        def ask(attribute: Attribute) -> int:
            value = ctypes.c_int()
            return 0 if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) else value.value

        known_as = name.value.decode(errors="replace")
        limits = Limits.of_device(known_as, ask)
        return GpuInfo(known_as, limits, f"GPU-{UUID(bytes=bytes(number))}", _driver_version())
    except (OSError, AttributeError):  # no such library, or one of another make
        return None


def count_gpus() -> int:
    """How many GPUs the driver knows; 0 where there is no driver. Asks the driver's library alone."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        return 0 if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) else count.value
    except (OSError, AttributeError):  # no such library, or one of another make
        return 0


def cuda_of_driver() -> str | None:
    """The newest CUDA that the driver runs: `13.0`; None where there is no driver. Asks for no device."""
    version = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):  # no such library, or one of another make
        return None
    if failed or not version.value:  # a stub to link against: there is no driver behind it
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def _driver_version() -> str:
    module = Path("/sys/module/nvidia/version")
    cuda = f"CUDA {cuda_of_driver()}"
    return f"{module.read_text().strip()}, {cuda}" if module.is_file() else cuda
