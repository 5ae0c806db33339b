"""A GPU as the place where a caller's arrays are used, on the caller's stream, from any thread.

All calls go through the driver's bindings, in the primary context: PyCUDA knows neither a foreign stream nor a thread
in which it made no context current.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from cuda.bindings import driver as bindings

from gen.errors import DeviceError, RunError
from gen.families.backend import LEGACY_STREAM, PER_THREAD_STREAM
from gen.families.base import Array, Extents, Variant
from gen.families.plans import Step
from gen.gpu.device import CudaDevice, DriverModule, Graph, call
from gen.toolchain.nvrtc import Nvrtc

_SUCCESS = bindings.CUresult.CUDA_SUCCESS
_CAPTURE = bindings.CUstreamCaptureStatus
_ORDINAL = bindings.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_RELAXED = bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
_NO_TIMING = bindings.CUevent_flags.CU_EVENT_DISABLE_TIMING

GRAPH_FROM = 8  # launches of a call from which on it is replayed as a graph, if it is repeated
MOST_GRAPHS, MOST_SEEN = 4, 64  # of a call at fixed sizes: for other addresses each

_threads = threading.local()
_numbers = count()


class CudaBackend:
    """A GPU for `gen.load`; implements `gen.families.backend.Backend`."""

    def __init__(self, device: CudaDevice, cache: Path | None) -> None:
        """Prepares to load kernels.

        Args:
            device: the GPU, opened.
            cache: keeps what was compiled; None keeps nothing.
        """
        self.index = device.index
        self.name = device.name
        self.driver = device.driver
        self.limits = device.limits
        self._context = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", device.index))
        self._handle = int(self._context)
        self._cache = cache
        self._compiler: Nvrtc | None = None
        self._codes: dict[str, CudaCode] = {}
        self._lock = threading.Lock()

    def enter(self) -> bool:
        """Makes the primary context current, if it is not."""
        if int(call("cuCtxGetCurrent")) == self._handle:
            return False
        call("cuCtxPushCurrent", self._context)
        return True

    def leave(self, entered: bool) -> None:
        """Takes the context away again, if `enter` brought it."""
        if entered:
            call("cuCtxPopCurrent")

    def load(self, variant: Variant, text: str) -> CudaCode:
        """Compiles what is not in the cache, and loads it."""
        with self._lock:
            if text not in self._codes:
                if self._compiler is None:
                    self._compiler = Nvrtc(self._cache)
                cubin = self._compiler.compile(variant.name, text, self.limits.arch).cubin
                with _uncaptured():
                    self._codes[text] = CudaCode(variant, DriverModule(cubin))
            return self._codes[text]

    def allocate(self, size: int) -> DriverMemory:
        """Memory of so many bytes."""
        return DriverMemory(self, size)

    def zero(self, address: int, size: int, stream: int) -> None:
        """Queues setting bytes to 0; a node of the graph where the stream is capturing."""
        if size:
            call("cuMemsetD8Async", address, 0, size, stream)

    def upload(self, address: int, content: Array, stream: int) -> None:
        """Queues copying a contiguous array to the device."""
        if content.nbytes:
            call("cuMemcpyHtoDAsync", address, content.__array_interface__["data"][0], content.nbytes, stream)

    def download(self, content: Array, address: int, stream: int) -> None:
        """Queues copying from the device into a contiguous array."""
        if content.nbytes:
            call("cuMemcpyDtoHAsync", content.__array_interface__["data"][0], address, content.nbytes, stream)

    def synchronize(self, stream: int) -> None:
        """Waits for all that is queued there."""
        call("cuStreamSynchronize", stream)

    def wait(self, stream: int, other: int) -> None:
        """Lets later work on `stream` wait for what is now queued on `other`."""
        event = call("cuEventCreate", int(_NO_TIMING))
        try:
            call("cuEventRecord", event, other)
            call("cuStreamWaitEvent", stream, event, 0)
        finally:
            call("cuEventDestroy", event)  # the driver keeps it until the wait is over

    def device_of(self, address: int) -> int | None:
        """The number of the device that an address belongs to; None for memory of the host alone."""
        status, ordinal = bindings.cuPointerGetAttribute(_ORDINAL, address)
        return int(ordinal) if status == _SUCCESS and int(ordinal) >= 0 else None

    def capture_of(self, stream: int) -> int:
        """The driver's number of the capture, unique in the process; 0 for none."""
        status = call("cuStreamIsCapturing", stream)
        if status == _CAPTURE.CU_STREAM_CAPTURE_STATUS_NONE:
            return 0
        if status != _CAPTURE.CU_STREAM_CAPTURE_STATUS_ACTIVE:
            raise RunError("stream", "must not be capturing a graph that an error has spoilt", stream)
        failed, _, number, *_ = bindings.cuStreamGetCaptureInfo(stream)
        if failed != _SUCCESS:
            raise RunError("cuStreamGetCaptureInfo", "failed", failed)
        return int(number) + 1  # so that no capture has the number of none

    def identity_of(self, stream: int) -> Hashable:
        """The driver's number of the stream; a thread's own stream has one of ours."""
        if stream == LEGACY_STREAM:
            return "legacy"
        if stream == PER_THREAD_STREAM:
            if not hasattr(_threads, "number"):
                _threads.number = next(_numbers)
            return "thread", _threads.number
        return int(call("cuStreamGetId", stream))


class DriverMemory:
    """Bytes on the device, freed with the object; the driver waits for work in flight before it takes them back.

    Attributes:
        address: of the first byte, a multiple of 256.
        size: in bytes.
    """

    def __init__(self, backend: CudaBackend, size: int) -> None:
        try:
            with _uncaptured():
                self.address = int(call("cuMemAlloc", max(size, 16)))
        except RunError as error:
            raise DeviceError("The GPU's memory", f"does not hold {size} bytes more", error.value) from error
        self.size = size
        # Not at the end of the process: the driver frees everything then.
        weakref.finalize(self, _free, backend, self.address).atexit = False


class CudaCode:
    """A variant's machine code in the primary context."""

    def __init__(self, variant: Variant, module: DriverModule) -> None:
        self._variant = variant
        self._module = module
        self._numbers = {x.name: x.dtype.size for x in variant.spec.operands if x.role == "number"}
        for name, content in variant.plan.constants:
            module.fill(name, content)

    def prepare(self, extents: Extents, steps: Sequence[Step]) -> CudaPrepared:
        """Packs the arguments of every launch."""
        with _uncaptured():
            return CudaPrepared(self._variant.name, self._module, steps, self._numbers)


class CudaPrepared:
    """The launches of a call with all but addresses and numbers filled in.

    A call of many launches becomes a graph when it is repeated with the same addresses and numbers: the driver then
    queues all launches at once.
    """

    def __init__(self, name: str, module: DriverModule, steps: Sequence[Step], numbers: Mapping[str, int]) -> None:
        """Packs arguments.

        Args:
            name: the variant's.
            module: holds its kernels.
            steps: the launches.
            numbers: bytes of every operand that is a number.
        """
        self._name = name
        self._pointers: dict[str, ctypes.c_uint64] = {}
        self._values: dict[str, ctypes.Array[ctypes.c_char]] = {}
        self._kept: list[Any] = []  # what the driver reads at every launch
        self._launches: list[tuple[Any, ...]] = []
        packed: dict[int, tuple[Any, ...]] = {}  # by the step's identity: a call of many steps repeats a few
        for step in steps:
            if id(step) not in packed:
                packed[id(step)] = self._packed(module, step, numbers)
            self._launches.append(packed[id(step)])
        self._seen: set[Hashable] = set()  # what calls were given
        self._graphs: dict[Hashable, Graph] = {}

    def _packed(self, module: DriverModule, step: Step, numbers: Mapping[str, int]) -> tuple[Any, ...]:
        """A launch as the driver takes it; its arguments are kept."""
        cells: list[Any] = []
        for argument in step.arguments:
            if not isinstance(argument, str):
                dtype, value = argument
                cells.append(_cell(dtype.numpy.type(value).tobytes()))
            elif argument in numbers:
                cells.append(self._values.setdefault(argument, _cell(bytes(numbers[argument]))))
            else:
                cells.append(self._pointers.setdefault(argument, ctypes.c_uint64()))
        table = (ctypes.c_void_p * max(len(cells), 1))(*(ctypes.addressof(cell) for cell in cells))
        self._kept += [cells, table]
        function = module.function(self._name + step.entry, step.shared_bytes)
        return (function, *step.grid, *step.block, step.shared_bytes, ctypes.addressof(table))

    def launch(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> None:
        """Queues every launch."""
        for name, pointer in self._pointers.items():
            pointer.value = addresses[name]
        for name, cell in self._values.items():
            ctypes.memmove(cell, numbers[name], len(numbers[name]))
        graph = self._graph_of(addresses, numbers, stream) if len(self._launches) >= GRAPH_FROM else None
        if graph is not None:
            graph.replay(stream)
        else:
            _queue(self._name, self._launches, self._kept, stream)

    def _graph_of(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> Graph | None:
        """The graph of a call that is given what an earlier one was; none where it would become part of another."""
        if call("cuStreamIsCapturing", stream) != _CAPTURE.CU_STREAM_CAPTURE_STATUS_NONE:
            return None
        given = (
            tuple(addresses[name] for name in self._pointers),
            tuple(numbers[name] for name in self._values),
        )
        graph = self._graphs.get(given)
        if graph is None and given in self._seen and len(self._graphs) < MOST_GRAPHS:
            with _uncaptured():
                graph = self._graphs[given] = Graph(partial(_queue, self._name, self._launches, self._kept))
            weakref.finalize(self, _close, graph).atexit = False  # the driver keeps what still runs
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(given)
        return graph


def _queue(name: str, launches: Sequence[tuple[Any, ...]], _kept: object, stream: int) -> None:
    """Queues launches one by one; what is kept holds their arguments."""
    handle = bindings.CUstream(stream)
    for *launch, table in launches:
        try:
            call("cuLaunchKernel", *launch, handle, table, 0)
        except RunError as error:
            grid, block = tuple(launch[1:4]), tuple(launch[4:7])
            text = f"grid {grid}, block {block}: {error.value}"
            raise RunError(name, "cannot be launched", text) from error


def _close(graph: Graph) -> None:
    with suppress(RunError):  # after a failed launch the driver answers nothing any more
        graph.close()


def _cell(content: bytes) -> ctypes.Array[ctypes.c_char]:
    """A place for a kernel's argument, as aligned as any argument needs."""
    return ctypes.create_string_buffer(content, 16)


def _free(backend: CudaBackend, address: int) -> None:
    with suppress(RunError):  # after a failed launch the driver answers nothing any more
        entered = backend.enter()
        try:
            with _uncaptured():
                call("cuMemFree", address)
        finally:
            backend.leave(entered)


@contextmanager
def _uncaptured() -> Iterator[None]:
    """Lets this thread allocate and load while a stream is capturing; neither becomes part of the graph."""
    before = call("cuThreadExchangeStreamCaptureMode", _RELAXED)
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", before)
