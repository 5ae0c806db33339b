"""A GPU through the driver's bindings, in its primary context, whose memory torch, CuPy and others can use in place.

cuda-core is not used: it takes a fifth of a second to load, and would change what is measured:

- `Buffer` is memory of a pool in stream order, at other addresses than `cuMemAlloc` gives, to which times are
  sensitive; given back, it is reused before the device is idle.
- `Kernel` is loaded by its first launch. Where what is timed waits for a flag of the host, that would wait for it too.
- `launch` packs arguments anew; a call packs them once here and changes addresses.
- `GraphBuilder` wants its device to be current in a way of its own, and replays on streams that it has wrapped.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.errors import DeviceError, MissingToolError, RunError
from gen.families.base import Array, Extents, Variant
from gen.families.plans import Step
from gen.gpu.device import (
    LEGACY_STREAM,
    PER_THREAD_STREAM,
    Code,
    DriverFunctions,
    Event,
    KernelAttributes,
    Mark,
    Peer,
    Rows,
    Timer,
    find_gpu,
)
from gen.toolchain.compiled import Compiled, Compiler

if TYPE_CHECKING:
    from gen.gpu.staging import Staging

try:
    from cuda.bindings import driver as bindings
except ImportError as error:
    raise MissingToolError(
        "cuda-bindings", "is needed to use a GPU", error, next_step="Run: pip install 'cuda-bindings>=13,<14'"
    ) from error

MIN_ALLOCATION_BYTES = 16  # bytes of an allocation
_SUCCESS = bindings.CUresult.CUDA_SUCCESS
_OUT_OF_MEMORY = bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY
_CAPTURE = bindings.CUstreamCaptureStatus
_RELAXED = bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
_ATTRIBUTE = bindings.CUfunction_attribute
_ORDINAL = int(bindings.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
_PENDING_LAUNCHES = bindings.CUlimit.CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT
_ON_DEVICE = bindings.CUmemorytype.CU_MEMORYTYPE_DEVICE
_ANYWHERE = bindings.CUmemorytype.CU_MEMORYTYPE_UNIFIED
_PEER_ALREADY_ENABLED = bindings.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
_TOO_MANY_PEERS = bindings.CUresult.CUDA_ERROR_TOO_MANY_PEERS
_DEVICE_MAPPED = 0x02  # CU_MEMHOSTALLOC_DEVICEMAP
_CUDA = 12000  # the version whose functions are meant; later ones may take other arguments
_FUNCTIONS = (
    b"cuLaunchKernel", b"cuCtxGetCurrent", b"cuCtxPushCurrent", b"cuCtxPopCurrent", b"cuStreamIsCapturing",
    b"cuStreamGetId", b"cuLaunchCooperativeKernel",
)  # fmt: skip
_NO_TIMING = int(bindings.CUevent_flags.CU_EVENT_DISABLE_TIMING)

_threads = threading.local()
_numbers = count()


class CudaDevice:
    """A GPU; implements `gen.gpu.device.Device`. Threads may share it.

    Attributes:
        index: the driver's number of it.
        name, driver, limits: what the driver says.
        timer: the driver's events, unless another is put in its place.
        spans_memory: addresses of all GPUs are of one space.
    """

    spans_memory = True

    def __init__(self, index: int, compiler: Compiler | Path | None) -> None:
        """Opens it.

        Args:
            index: the driver's number of it.
            compiler: what compiles for it; NVRTC, with a cache in this folder, or without one if None.

        Raises:
            DeviceError: there is no driver, or no such GPU.
        """
        found = find_gpu(index)
        if found is None:
            raise DeviceError(
                "An NVIDIA GPU with its driver", "must be there to run kernels",
                next_step="gen doctor says what is missing. GEN_DEVICE=cpu has Python call kernels on the CPU; "
                "commands that measure need a GPU",
            )  # fmt: skip
        self.index, self.name, self.driver, self.limits = index, found.name, found.driver, found.limits
        call("cuInit", 0)
        try:
            self._context = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", index))
        except RunError as error:
            raise DeviceError("The GPU", "cannot be used", error.value, next_step="See gen doctor") from error
        self._handle = int(self._context)
        self._reached = {index}  # GPUs that have a way to this one
        self._compiler = compiler
        self._lock = threading.Lock()
        self._staging: Staging | None = None
        self._can_stage = True
        self.timer: Timer = DriverTimer(self)

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

    def for_any_thread(self) -> CudaDevice:
        """The same GPU, timed by the driver's events: PyCUDA's are for the thread that opened it."""
        other = copy(self)
        other.timer = DriverTimer(other)
        return other

    def compiler(self) -> Compiler:
        """What compiles for it, loaded when it is first asked for."""
        with self._lock:  # one compiler, with one cache, for all threads
            if self._compiler is None or isinstance(self._compiler, Path):
                from gen.toolchain.nvrtc import Nvrtc

                self._compiler = Nvrtc(self._compiler)
            return self._compiler

    def compile(self, name: str, text: str) -> Compiled:
        """Compiles what is not in the cache."""
        return self.compiler().compile(name, text, self.limits.arch)

    def load(self, compiled: Compiled, variant: Variant | None = None) -> CudaCode:
        """Loads machine code."""
        with uncaptured():
            return CudaCode(compiled, variant)

    def allocate(self, size: int) -> CudaMemory:
        """Memory of so many bytes."""
        return CudaMemory(self, size)

    def driver_functions(self) -> DriverFunctions:
        """The driver's own."""
        found = [int(call("cuGetProcAddress", name, _CUDA, 0)[0]) for name in _FUNCTIONS]
        launch, get, push, pop, capturing, identity, cooperative = found
        return DriverFunctions(
            self._handle, (launch, get, push, pop, capturing, identity, cooperative), _handle,
            lambda name, grid, block, status: refused(name, grid, block, _words(bindings.CUresult(status))),
        )  # fmt: skip

    def free_bytes(self) -> int:
        """Memory that is left."""
        free, _ = call("cuMemGetInfo")
        return int(free)

    def flag(self) -> CudaFlag:
        """A number that the host sets and kernels wait for."""
        return CudaFlag()

    def upload(self, address: int, content: Array, stream: int | None = None) -> None:
        """Copies a contiguous array to the device."""
        if not content.nbytes:
            return
        if stream is None:
            call("cuMemcpyHtoD", address, content.ctypes.data, content.nbytes)
        elif (staging := self._staging_of(content)) is not None:
            staging.upload(address, content, stream)
        else:
            call("cuMemcpyHtoDAsync", address, content.ctypes.data, content.nbytes, stream)

    def download(self, content: Array, address: int, stream: int | None = None) -> None:
        """Copies from the device into a contiguous array."""
        if not content.nbytes:
            return
        if stream is None:
            call("cuMemcpyDtoH", content.ctypes.data, address, content.nbytes)
        elif (staging := self._staging_of(content)) is not None:
            staging.download(content, address, stream)
        else:
            call("cuMemcpyDtoHAsync", content.ctypes.data, address, content.nbytes, stream)

    def _staging_of(self, content: Array) -> Staging | None:
        """What copies an array faster than the driver; None where nothing does, or no memory can be pinned for it."""
        from gen.gpu.staging import LEAST_BYTES, Staging, usable_threads

        if content.nbytes < LEAST_BYTES or not self._can_stage:
            return None
        with self._lock:
            if self._staging is None and self._can_stage:
                threads = usable_threads()
                with suppress(RunError):
                    self._staging = Staging(self, threads) if threads else None
                self._can_stage = self._staging is not None
            return self._staging

    def copy(self, source: int, target: int, size: int, stream: int = LEGACY_STREAM) -> None:
        """Queues the driver's own copy on the device."""
        call("cuMemcpyDtoDAsync", target, source, size, stream)

    def zero(self, address: int, size: int, stream: int | None = LEGACY_STREAM) -> None:
        """Queues setting bytes to 0, a node of the graph if the stream is capturing; without a stream does it now."""
        if size and stream is not None:
            call("cuMemsetD8Async", address, 0, size, stream)
        elif size:
            with uncaptured():
                own = call("cuStreamCreate", bindings.CUstream_flags.CU_STREAM_NON_BLOCKING)
                try:
                    call("cuMemsetD8Async", address, 0, size, own)
                    call("cuStreamSynchronize", own)
                finally:
                    call("cuStreamDestroy", own)

    def capture(self, queue: Callable[[int], None], closed: Callable[[], None] = lambda: None) -> CudaGraph:
        """A graph of what is put on a stream."""
        with uncaptured():
            return CudaGraph(queue, closed)

    def synchronize(self, stream: int | None = None) -> None:
        """Waits for all that is queued, on a stream or on all."""
        if stream is None:
            call("cuCtxSynchronize")
        else:
            call("cuStreamSynchronize", stream)

    def wait(self, stream: int, other: int) -> None:
        """Lets later work on `stream` wait for what is now queued on `other`."""
        event = call("cuEventCreate", _NO_TIMING)
        try:
            call("cuEventRecord", event, other)
            call("cuStreamWaitEvent", stream, event, 0)
        finally:
            call("cuEventDestroy", event)  # the driver keeps it until the wait is over

    def stream(self, *, urgent: bool = False) -> CudaStream:
        """A new stream that takes turns with the legacy default stream."""
        least, greatest = call("cuCtxGetStreamPriorityRange")
        return CudaStream(self, int(greatest) if urgent else int(least))

    def mark(self, stream: int) -> CudaMark:
        """An event of the driver."""
        return CudaMark(stream)

    def wait_for(self, stream: int, mark: Mark) -> None:
        """Lets later work on `stream` wait for what was marked."""
        assert isinstance(mark, CudaMark)
        call("cuStreamWaitEvent", stream, mark.event, 0)

    def can_exchange(self, other: Peer) -> bool:
        """Whether it is a GPU too."""
        return isinstance(other, CudaDevice)

    def reach(self, other: Peer) -> bool:
        """Enables access from both sides, if the GPUs have a way to each other."""
        assert isinstance(other, CudaDevice)
        if other.index == self.index:
            return True
        if all(one._enable(another) for one, another in ((self, other), (other, self))):
            self._reached.add(other.index)
            other._reached.add(self.index)
            return True
        return False

    def _enable(self, other: CudaDevice) -> bool:
        if not int(call("cuDeviceCanAccessPeer", call("cuDeviceGet", self.index), call("cuDeviceGet", other.index))):
            return False
        entered = self.enter()
        try:
            status, *_ = bindings.cuCtxEnablePeerAccess(other._context, 0)
        finally:
            self.leave(entered)
        if status == _TOO_MANY_PEERS:
            return False
        if status != _PEER_ALREADY_ENABLED:
            check("cuCtxEnablePeerAccess", status)
        return True

    def copy_to(self, other: Peer, source: Rows, target: Rows, stream: int) -> None:
        """Queues the driver's own copy, which goes through the host where the GPUs have no way to each other."""
        assert isinstance(other, CudaDevice)
        if not source.bytes:
            return
        here = other.index == self.index
        if source.contiguous and target.contiguous:
            if other.index in self._reached:  # unlike a copy that names both, this one may be captured
                call("cuMemcpyDtoDAsync", target.address, source.address, source.bytes, stream)
            else:
                places = (target.address, other._context, source.address, self._context)
                call("cuMemcpyPeerAsync", *places, source.bytes, stream)
            return
        # Graphs take no copy that names both contexts; where one GPU reaches the other its addresses are enough.
        by_address = here or (other.index in self._reached and self.capture_of(stream) != 0)
        asked = bindings.CUDA_MEMCPY3D() if by_address else bindings.CUDA_MEMCPY3D_PEER()
        asked.srcMemoryType = asked.dstMemoryType = _ON_DEVICE if here or not by_address else _ANYWHERE
        asked.srcDevice, asked.srcPitch, asked.srcHeight = source.address, source.pitch, source.plane_rows
        asked.dstDevice, asked.dstPitch, asked.dstHeight = target.address, target.pitch, target.plane_rows
        asked.WidthInBytes, asked.Height, asked.Depth = source.row_bytes, source.rows, source.planes
        if not by_address:
            asked.srcContext, asked.dstContext = self._context, other._context
        call("cuMemcpy3DAsync" if by_address else "cuMemcpy3DPeerAsync", asked, stream)

    def device_of(self, address: int) -> int | None:
        """The number of the device that an address belongs to; None for memory of the host alone."""
        ordinal = ctypes.c_int(-1)  # not by the bindings: up to 13.3 they say 0 for every GPU
        status = _library().cuPointerGetAttribute(ctypes.byref(ordinal), _ORDINAL, ctypes.c_uint64(address))
        return ordinal.value if status == 0 and ordinal.value >= 0 else None

    def capture_of(self, stream: int) -> int:
        """The driver's number of the capture, unique in the process; 0 for none."""
        status = call("cuStreamIsCapturing", stream)
        if status == _CAPTURE.CU_STREAM_CAPTURE_STATUS_NONE:
            return 0
        if status != _CAPTURE.CU_STREAM_CAPTURE_STATUS_ACTIVE:
            raise RunError("stream", "must not be capturing a graph that an error has spoilt", stream)
        _, number, *_ = call("cuStreamGetCaptureInfo", stream)
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


class CudaMemory:
    """Bytes on the device, freed with the object; the driver waits for work in flight before it takes them back.

    Attributes:
        address: of the first byte, a multiple of 256.
        size: in bytes.
    """

    def __init__(self, device: CudaDevice, size: int) -> None:
        with uncaptured():
            status, address = bindings.cuMemAlloc(max(size, MIN_ALLOCATION_BYTES))
        if status == _OUT_OF_MEMORY:
            raise DeviceError("The GPU's memory", f"does not hold {size} bytes more")
        check("cuMemAlloc", status)
        self.address, self.size = int(address), size
        self._given_back = weakref.finalize(self, _free, device, self.address)
        self._given_back.atexit = False  # the driver frees everything then

    def free(self) -> None:
        """Gives the bytes back now."""
        self._given_back()


class CudaStream:
    """A stream of the driver, destroyed with the object, once all that is queued on it is done.

    Attributes:
        handle: the driver's.
    """

    def __init__(self, device: CudaDevice, priority: int) -> None:
        made = call("cuStreamCreateWithPriority", bindings.CUstream_flags.CU_STREAM_DEFAULT, priority)
        self.handle = int(made)
        self._device = device  # whose context it is of
        weakref.finalize(self, bindings.cuStreamDestroy, made).atexit = False


class CudaMark:
    """A point in the work of a stream: an event without a time.

    Attributes:
        event: the driver's.
    """

    def __init__(self, stream: int) -> None:
        self.event = call("cuEventCreate", _NO_TIMING)
        weakref.finalize(self, bindings.cuEventDestroy, self.event).atexit = False  # the driver keeps what is awaited
        call("cuEventRecord", self.event, stream)


class CudaFlag:
    """A number of 32 bits in the host's memory that kernels can read while they run.

    Attributes:
        address: where kernels find it.
    """

    def __init__(self) -> None:
        place = int(call("cuMemHostAlloc", ctypes.sizeof(ctypes.c_int32), _DEVICE_MAPPED))
        self.address = int(call("cuMemHostGetDevicePointer", place, 0))
        self._value = ctypes.c_int32.from_address(place)
        self._value.value = 0
        weakref.finalize(self, bindings.cuMemFreeHost, place).atexit = False

    def set(self, value: int) -> None:
        """Changes it, at once."""
        self._value.value = value


class CudaCode:
    """Machine code in the primary context, for every stream."""

    def __init__(self, compiled: Compiled, variant: Variant | None) -> None:
        self._name, self._cubin = compiled.name, compiled.cubin  # the driver may read it later
        try:
            self._module = call("cuModuleLoadData", self._cubin)
        except RunError as error:
            raise RunError("The machine code", "cannot be loaded on this GPU", error.value) from error
        operands = () if variant is None else variant.spec.operands
        self._numbers = {operand.name: operand.dtype.size for operand in operands if operand.role == "number"}
        self._functions: dict[str, Any] = {}
        self._shared_bytes: dict[str, int] = {}
        for name, content in () if variant is None else variant.plan.constants:
            place, _ = call("cuModuleGetGlobal", self._module, name.encode())
            call("cuMemcpyHtoD", place, content, len(content))

    def prepare(self, extents: Extents, steps: Sequence[Step]) -> CudaPrepared:
        """Packs the arguments of every launch."""
        with uncaptured():
            make_room(steps)
            return CudaPrepared(self._name, self.function, steps, self._numbers)

    def attributes(self, entry: str) -> KernelAttributes:
        """What a kernel takes."""
        function = self.function(entry)

        def ask(attribute: Any) -> int:
            return int(call("cuFuncGetAttribute", attribute, function))

        return KernelAttributes(
            ask(_ATTRIBUTE.CU_FUNC_ATTRIBUTE_NUM_REGS),
            ask(_ATTRIBUTE.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
            ask(_ATTRIBUTE.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
        )

    def function(self, entry: str, shared_bytes: int = 0) -> Any:
        """The driver's handle of a kernel, allowed so many bytes of dynamic shared memory."""
        if entry not in self._functions:
            symbol = self._name + entry
            try:
                self._functions[entry] = call("cuModuleGetFunction", self._module, symbol.encode())
            except RunError as error:
                raise RunError(symbol, "is no kernel of its module", error.value) from error
        if shared_bytes > self._shared_bytes.get(entry, 0):
            attribute = _ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call("cuFuncSetAttribute", self._functions[entry], attribute, shared_bytes)
            self._shared_bytes[entry] = shared_bytes
        return self._functions[entry]

    def unload(self) -> None:
        """Gives its memory back, once nothing of it runs or will run."""
        call("cuModuleUnload", self._module)


class CudaPrepared:
    """Launches whose arguments are packed, but for addresses and numbers."""

    def __init__(
        self, name: str, function: Callable[[str, int], Any], steps: Sequence[Step], numbers: Mapping[str, int]
    ) -> None:
        """Packs arguments.

        Args:
            name: of its kernels, in messages.
            function: gives the driver's handle of a kernel by entry and bytes of dynamic shared memory.
            steps: the launches.
            numbers: bytes of every operand that is a number.
        """
        self._name, self._function = name, function
        self._pointers: dict[str, ctypes.c_uint64] = {}
        self._values: dict[str, ctypes.Array[ctypes.c_char]] = {}
        self._kept: list[Any] = []  # what the driver reads at every launch
        self._launches: list[tuple[Any, ...]] = []
        packed: dict[int, tuple[Any, ...]] = {}  # by the step's identity: a call of many steps repeats a few
        for step in steps:
            if id(step) not in packed:
                packed[id(step)] = self._packed(step, numbers)
            self._launches.append(packed[id(step)])

    def _packed(self, step: Step, numbers: Mapping[str, int]) -> tuple[Any, ...]:
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
        function = self._function(step.entry, step.shared_bytes)
        return (step.cooperative, function, *step.grid, *step.block, step.shared_bytes, ctypes.addressof(table))

    def launch(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> None:
        """Queues every launch."""
        for name, pointer in self._pointers.items():
            pointer.value = addresses[name]
        for name, cell in self._values.items():
            ctypes.memmove(cell, numbers[name], len(numbers[name]))
        handle = bindings.CUstream(stream)
        for cooperative, *launch, table in self._launches:
            if cooperative:
                status, *_ = bindings.cuLaunchCooperativeKernel(*launch, handle, table)
            else:
                status, *_ = bindings.cuLaunchKernel(*launch, handle, table, 0)
            if status != _SUCCESS:
                raise refused(self._name, launch[1:4], launch[4:7], _words(status))


class CudaGraph:
    """Launches captured once and replayed as one."""

    def __init__(self, queue: Callable[[int], None], closed: Callable[[], None]) -> None:
        """Captures what `queue` puts on a stream."""
        self._queue, self._closed = queue, closed
        self._stream = call("cuStreamCreate", bindings.CUstream_flags.CU_STREAM_NON_BLOCKING)
        call("cuStreamBeginCapture", self._stream, _RELAXED)
        try:
            queue(int(self._stream))
        except BaseException:
            bindings.cuStreamEndCapture(self._stream)  # whatever it says: the error on its way says more
            call("cuStreamDestroy", self._stream)
            raise
        self._graph = call("cuStreamEndCapture", self._stream)
        self._executable = call("cuGraphInstantiate", self._graph, 0)

    def replay(self, stream: int = LEGACY_STREAM) -> None:
        """Queues all of it on a stream."""
        call("cuGraphLaunch", self._executable, bindings.CUstream(stream))

    def time_us(self) -> float:
        """Replays it twice; the time of the second on the GPU, which is queued while the first runs."""
        before, after = (call("cuEventCreate", 0) for _ in range(2))
        call("cuGraphLaunch", self._executable, self._stream)
        call("cuEventRecord", before, self._stream)
        call("cuGraphLaunch", self._executable, self._stream)
        call("cuEventRecord", after, self._stream)
        call("cuStreamSynchronize", self._stream)
        taken = 1000 * float(call("cuEventElapsedTime", before, after))
        for event in (before, after):
            call("cuEventDestroy", event)
        return taken

    def close(self) -> None:
        """Gives back what the driver holds for it."""
        call("cuGraphExecDestroy", self._executable)
        call("cuGraphDestroy", self._graph)
        call("cuStreamDestroy", self._stream)
        self._closed()


class DriverTimer:
    """Loads through the driver's bindings and times by its events; implements `gen.gpu.device.Timer`."""

    name = "cuda-bindings"

    def __init__(self, device: CudaDevice) -> None:
        self._device = device

    def load(self, compiled: Compiled, variant: Variant | None = None) -> CudaCode:
        """Loads machine code."""
        return self._device.load(compiled, variant)

    def event(self) -> DriverEvent:
        """A new event."""
        return DriverEvent()


class DriverEvent:
    """An event of the driver on the legacy default stream."""

    def __init__(self) -> None:
        self._event = call("cuEventCreate", 0)
        weakref.finalize(self, bindings.cuEventDestroy, self._event).atexit = False

    def record(self) -> None:
        """Queues it."""
        call("cuEventRecord", self._event, LEGACY_STREAM)

    def us_since(self, earlier: Event) -> float:
        """Microseconds between two events."""
        assert isinstance(earlier, DriverEvent)
        return 1000 * float(call("cuEventElapsedTime", earlier._event, self._event))


def open_device(index: int, compiler: Compiler) -> CudaDevice:
    """Opens a GPU for the main thread. PyCUDA loads and times kernels there where it is installed, else bindings do.

    Raises DeviceError if there is no such GPU.
    """
    device = CudaDevice(index, compiler)
    device.enter()  # for good
    with suppress(MissingToolError):  # PyCUDA is not installed
        from gen.gpu.pycuda import PyCudaTimer

        device.timer = PyCudaTimer(device)
    return device


@cache
def _library() -> ctypes.CDLL:
    """The driver's own."""
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: Any) -> Any:
    """Calls the driver. Gives its result, or a tuple of several. Raises RunError with the driver's own words."""
    status, *results = getattr(bindings, name)(*arguments)
    check(name, status)
    return tuple(results) if len(results) > 1 else results[0] if results else None


def check(name: str, status: Any) -> None:
    """Raises RunError if a function of the driver has failed."""
    if status != _SUCCESS:
        raise RunError("The GPU", f"reports an error in {name}", _words(status))


def refused(name: str, grid: Sequence[int], block: Sequence[int], reason: object) -> RunError:
    """The error of a launch that the driver refuses."""
    return RunError(name, "cannot be launched", f"grid {tuple(grid)}, block {tuple(block)}: {reason}")


def make_room(steps: Sequence[Step]) -> None:
    """Lets launches by kernels themselves wait at once, in the current context, which keeps memory for them.

    Raises RunError if there is not so much.
    """
    launches = max((step.waiting for step in steps), default=0)
    if launches and launches > int(call("cuCtxGetLimit", _PENDING_LAUNCHES)):
        call("cuCtxSetLimit", _PENDING_LAUNCHES, launches)


def _handle(code: Code, entry: str, shared_bytes: int) -> int:
    assert isinstance(code, CudaCode)
    return int(code.function(entry, shared_bytes))


def _words(status: Any) -> object:
    _, text = bindings.cuGetErrorString(status)
    return text.decode() if text else status


def _cell(content: bytes) -> ctypes.Array[ctypes.c_char]:
    """A place for a kernel's argument, as aligned as any argument needs."""
    return ctypes.create_string_buffer(content, 16)


def _free(device: CudaDevice, address: int) -> None:
    with suppress(RunError):  # after a failed launch the driver answers nothing any more
        entered = device.enter()
        try:
            with uncaptured():
                call("cuMemFree", address)
        finally:
            device.leave(entered)


@contextmanager
def uncaptured() -> Iterator[None]:
    """Lets this thread allocate and load while a stream is capturing; neither becomes part of the graph."""
    before = call("cuThreadExchangeStreamCaptureMode", _RELAXED)
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", before)
