"""One GPU: memory, modules, launches, events, streams and graphs.

With `backend.py` and `nvcc.py` the only importer of PyCUDA and of the driver's bindings. PyCUDA loads, launches and
times in the primary context, so that arrays of torch and CuPy are usable in place. It cannot wrap a stream of somebody
else's and has no graphs: for those the same cubin is loaded once more through the driver's bindings, in the same
context.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gen.arch import Attribute, Limits
from gen.dtypes import DType
from gen.errors import DeviceError, MissingToolError, RunError
from gen.families.base import Array
from gen.families.plans import Step

try:
    # A PyCUDA that was built where no driver was is not linked with it: its symbols must be there before.
    ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
except OSError as error:
    raise DeviceError(
        "An NVIDIA GPU with its driver", f"must be there to run kernels: {error}",
        next_step="gen doctor says what is missing; gen prove runs kernels on the CPU",
    ) from None  # fmt: skip
try:
    import pycuda.driver as pycuda
    from cuda.bindings import driver as bindings
except ImportError as error:
    raise MissingToolError(
        "PyCUDA", "is needed to use a GPU", error, next_step="Install it with pip install 'gen-cuda[gpu]'"
    ) from error

_STRUCT = {"f32": "f", "f64": "d", "i32": "i", "i64": "q", "u32": "I", "u64": "Q", "i16": "h", "u16": "H"}
_open: dict[int, CudaDevice] = {}


class Memory:
    """Bytes on the device, freed with the object.

    Attributes:
        address: of the first byte, a multiple of 256.
        size: in bytes.
    """

    def __init__(self, size: int) -> None:
        try:
            self._allocation = pycuda.mem_alloc(max(size, 16))
        except pycuda.MemoryError as error:
            raise DeviceError("The GPU's memory", f"does not hold {size} bytes more", error) from error
        except pycuda.Error as error:
            raise RunError("The GPU", "gives no memory", error) from error
        self.address = int(self._allocation)
        self.size = size

    def free(self) -> None:
        """Gives the bytes back now; where the device no longer answers, they are gone already."""
        with suppress(pycuda.Error):
            self._allocation.free()


class Flag:
    """A number in the host's memory that the device can read while kernels run.

    Attributes:
        address: where the device finds it.
    """

    def __init__(self) -> None:
        self._value = pycuda.pagelocked_zeros(1, np.int32, mem_flags=pycuda.host_alloc_flags.DEVICEMAP)
        self.address = int(self._value.base.get_device_pointer())

    def set(self, value: int) -> None:
        """Changes it, at once."""
        self._value[0] = value


class Function:
    """One kernel of a loaded module."""

    def __init__(self, module: Any, symbol: str, most_shared: int) -> None:
        self.symbol = symbol
        self._function = module.get_function(symbol)
        self._signature: str | None = None
        if most_shared > 0:  # what is declared in the kernel is taken from it
            left = most_shared - self.static_shared_bytes
            self._function.set_attribute(pycuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, left)

    @property
    def registers(self) -> int:
        """Registers of each thread."""
        return int(self._function.num_regs)

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory of each thread: spills and arrays."""
        return int(self._function.local_size_bytes)

    @property
    def static_shared_bytes(self) -> int:
        """Bytes of shared memory of each block, before any that a launch adds."""
        return int(self._function.shared_size_bytes)

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[tuple[str, int | float]],
        shared_bytes: int = 0,
        stream: Any = None,
    ) -> None:
        """Queues one launch; `arguments` are `struct` letters with values, `P` for an address."""
        signature = "".join(letter for letter, _ in arguments)
        if signature != self._signature:
            self._function.prepare(signature)
            self._signature = signature
        values = [value for _, value in arguments]
        try:
            self._function.prepared_async_call(grid, block, stream, *values, shared_size=shared_bytes)
        except pycuda.Error as error:
            raise RunError(self.symbol, "cannot be launched", f"grid {grid}, block {block}: {error}") from error


class Module:
    """A cubin, loaded."""

    def __init__(self, cubin: bytes) -> None:
        try:
            self._module = pycuda.module_from_buffer(cubin)
        except pycuda.Error as error:
            raise RunError("The cubin", "cannot be loaded on this GPU", error) from error

    def function(self, symbol: str, most_shared: int = 0) -> Function:
        """The kernel of this symbol, allowed so many bytes of dynamic shared memory."""
        try:
            return Function(self._module, symbol, most_shared)
        except pycuda.Error as error:
            raise RunError(symbol, "is no kernel of its module", error) from error


class CudaDevice:
    """A GPU in use, in its primary context. Where it is opened from the main thread, that stays current there.

    Attributes:
        index: the driver's number of it.
        name: what the driver calls it: `NVIDIA H100 80GB HBM3`.
        limits: what it allows.
        l2_bytes: its second-level cache.
        driver: the driver's version.
    """

    def __init__(self, index: int) -> None:
        device = pycuda.Device(index)
        self.index = index
        self.name = str(device.name())
        self.limits = Limits.of_device(self.name, partial(_attribute, index))
        self.l2_bytes = self.limits.l2_bytes
        self.driver = _driver_version()
        self._context = device.retain_primary_context()
        self._current = False

    def make_current(self) -> None:
        """Makes the context the main thread's until the process ends; no other thread's.

        PyCUDA aborts a process of which a thread ends with a context on its stack.
        """
        if not self._current and threading.current_thread() is threading.main_thread():
            self._context.push()
            self._current = True
            atexit.register(self._context.pop)

    def allocate(self, size: int) -> Memory:
        """Memory of so many bytes. Raises DeviceError if there is none left."""
        return Memory(size)

    def flag(self) -> Flag:
        """A number that the host sets and kernels wait for."""
        return Flag()

    def free_bytes(self) -> int:
        """Memory that is left."""
        return int(pycuda.mem_get_info()[0])

    def upload(self, address: int, content: Array | bytes) -> None:
        """Copies contiguous bytes to the device."""
        if len(content):
            with _reported("The GPU"):
                pycuda.memcpy_htod(address, content)

    def upload_async(self, address: int, content: Array) -> None:
        """Queues copying contiguous bytes to the device; they are read before this returns."""
        with _reported("The GPU"):
            pycuda.memcpy_htod_async(address, content)

    def copy_async(self, source: int, target: int, size: int) -> None:
        """Queues the driver's own copy on the device."""
        with _reported("The GPU"):
            pycuda.memcpy_dtod_async(target, source, size)

    def download(self, address: int, size: int) -> Array:
        """Copies bytes from the device."""
        content = np.empty(size, np.uint8)
        if size:
            with _reported("The GPU"):
                pycuda.memcpy_dtoh(content, address)
        return content

    def zero(self, address: int, size: int) -> None:
        """Sets bytes to 0, after all that is queued."""
        if size:
            with _reported("The GPU"):
                pycuda.memset_d8_async(address, 0, size)

    def module(self, cubin: bytes) -> Module:
        """Loads machine code."""
        return Module(cubin)

    def event(self) -> Any:
        """A new event; `record(event)`, then `later.time_since(event)` in milliseconds."""
        with _reported("The GPU"):
            return pycuda.Event()

    def record(self, event: Any) -> None:
        """Queues an event."""
        with _reported("The GPU"):
            event.record()

    def synchronize(self) -> None:
        """Waits for all that is queued. Raises RunError if a launch failed on the way."""
        with _reported("The GPU"):
            pycuda.Context.synchronize()

    def graph(
        self, cubin: bytes, steps: Sequence[Step], symbol: str, addresses: Mapping[str, int], times: int
    ) -> Graph:
        """A graph of the steps, carried out `times` times one after another; close it to have its memory back."""
        module = DriverModule(cubin)

        def queue(stream: int) -> None:
            for _ in range(times):
                for step in steps:
                    module.launch(symbol + step.entry, step, bind(step, addresses), stream)

        return Graph(queue, module.unload)


class DriverModule:
    """A cubin loaded through the driver's bindings: for streams of somebody else's, and for graphs."""

    def __init__(self, cubin: bytes) -> None:
        self._cubin = cubin  # the driver may read it later
        self._module = call("cuModuleLoadData", cubin)
        self._functions: dict[str, Any] = {}
        self._shared_bytes: dict[str, int] = {}

    def function(self, symbol: str, shared_bytes: int = 0) -> Any:
        """The driver's handle of a kernel, allowed so many bytes of dynamic shared memory."""
        if symbol not in self._functions:
            self._functions[symbol] = call("cuModuleGetFunction", self._module, symbol.encode())
        if shared_bytes > self._shared_bytes.get(symbol, 0):
            attribute = bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call("cuFuncSetAttribute", self._functions[symbol], attribute, shared_bytes)
            self._shared_bytes[symbol] = shared_bytes
        return self._functions[symbol]

    def resident_blocks(self, symbol: str, threads_per_block: int, shared_bytes: int = 0) -> int:
        """How many blocks of a kernel a multiprocessor holds, as the driver says; `shared_bytes` are dynamic."""
        function = self.function(symbol, shared_bytes)
        return int(call("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, threads_per_block, shared_bytes))

    def unload(self) -> None:
        """Gives its memory back, once nothing of it runs or will run."""
        call("cuModuleUnload", self._module)

    def fill(self, constant: str, content: bytes) -> None:
        """Writes a `__constant__` variable."""
        call("cuMemcpyHtoD", call("cuModuleGetGlobal", self._module, constant.encode()), content, len(content))

    def launch(self, symbol: str, step: Step, values: Sequence[tuple[str, int | float]], stream: int) -> None:
        """Queues one launch on a stream, given as the driver's handle."""
        make_room(step.waiting)
        function = self.function(symbol, step.shared_bytes)
        packed = [_C_TYPES[letter](value) for letter, value in values]
        pointers = (ctypes.c_void_p * max(len(packed), 1))(*(ctypes.addressof(value) for value in packed))
        call(
            "cuLaunchKernel", function, *step.grid, *step.block, step.shared_bytes,
            stream, ctypes.addressof(pointers), 0,
        )  # fmt: skip


class Graph:
    """Launches captured once and replayed as one."""

    def __init__(self, queue: Callable[[int], None], closed: Callable[[], None] = lambda: None) -> None:
        """Captures.

        Args:
            queue: queues the launches on a stream, given as the driver's handle. It is kept, with all that the
                launches need. It may allocate.
            closed: is called when the driver holds nothing of it any more.
        """
        self._queue, self._closed = queue, closed
        self.stream = call("cuStreamCreate", bindings.CUstream_flags.CU_STREAM_NON_BLOCKING)
        call("cuStreamBeginCapture", self.stream, bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            queue(int(self.stream))
        except BaseException:
            bindings.cuStreamEndCapture(self.stream)  # whatever it says: the error on its way says more
            call("cuStreamDestroy", self.stream)
            raise
        self._graph = call("cuStreamEndCapture", self.stream)
        self._executable = call("cuGraphInstantiate", self._graph, 0)

    def replay(self, stream: int = 0) -> None:
        """Queues all of it on a stream, given as the driver's handle; 0 is the legacy default stream."""
        call("cuGraphLaunch", self._executable, bindings.CUstream(stream))

    def time(self) -> float:
        """Replays it twice; microseconds of the second on the GPU, which is queued while the first runs."""
        before, after = (call("cuEventCreate", 0) for _ in range(2))
        call("cuGraphLaunch", self._executable, self.stream)
        call("cuEventRecord", before, self.stream)
        call("cuGraphLaunch", self._executable, self.stream)
        call("cuEventRecord", after, self.stream)
        call("cuStreamSynchronize", self.stream)
        taken = 1000 * float(call("cuEventElapsedTime", before, after))
        for event in (before, after):
            call("cuEventDestroy", event)
        return taken

    def close(self) -> None:
        """Gives back what the driver holds for it."""
        call("cuGraphExecDestroy", self._executable)
        call("cuGraphDestroy", self._graph)
        call("cuStreamDestroy", self.stream)
        self._closed()


def open_device(index: int = 0) -> CudaDevice:
    """The GPU of this number, opened once a process. Raises DeviceError without a driver or without such a GPU."""
    if index not in _open:
        try:
            pycuda.init()
            count = pycuda.Device.count()
        except pycuda.Error as error:
            raise DeviceError("The GPU", "cannot be used", error, next_step="See gen doctor") from error
        if not 0 <= index < count:
            raise DeviceError("The GPU", f"must be one of {count}, counted from 0", index)
        try:
            _open[index] = CudaDevice(index)
        except pycuda.Error as error:
            raise DeviceError("The GPU", "cannot be used", error, next_step="See gen doctor") from error
    _open[index].make_current()
    return _open[index]


def letter(dtype: DType) -> str:
    """How `struct` spells a number of this type."""
    return _STRUCT[dtype.name]


def bind(step: Step, addresses: Mapping[str, int]) -> list[tuple[str, int | float]]:
    """The arguments of a launch, each with its `struct` letter; operands and scratch by their addresses."""
    return [("P", addresses[a]) if isinstance(a, str) else (letter(a[0]), a[1]) for a in step.arguments]


_C_TYPES: Mapping[str, Any] = {
    "P": ctypes.c_void_p, "f": ctypes.c_float, "d": ctypes.c_double, "i": ctypes.c_int32, "q": ctypes.c_int64,
    "I": ctypes.c_uint32, "Q": ctypes.c_uint64, "h": ctypes.c_int16, "H": ctypes.c_uint16,
}  # fmt: skip


def make_room(launches: int) -> None:
    """Lets so many launches by kernels themselves wait at once, in the current context, which keeps memory for them.

    Raises RunError if there is not so much.
    """
    if launches:
        limit = bindings.CUlimit.CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT
        if launches > int(call("cuCtxGetLimit", limit)):
            call("cuCtxSetLimit", limit, launches)


def call(name: str, *arguments: Any) -> Any:
    """Calls the driver; its one result, if it has one. Raises RunError with the driver's own words if it fails."""
    status, *results = getattr(bindings, name)(*arguments)
    if status != bindings.CUresult.CUDA_SUCCESS:
        _, text = bindings.cuGetErrorString(status)
        raise RunError(name, "failed", text.decode() if text else status)
    return results[0] if results else None


@contextmanager
def _reported(subject: str) -> Iterator[None]:
    try:
        yield
    except pycuda.Error as error:
        raise RunError(subject, "reports that a launch failed", error) from error


def _attribute(index: int, which: Attribute) -> int:
    """A device attribute; 0 where the driver does not know it."""
    status, value = bindings.cuDeviceGetAttribute(bindings.CUdevice_attribute(which), index)
    return int(value) if status == bindings.CUresult.CUDA_SUCCESS else 0


def _driver_version() -> str:
    version = pycuda.get_driver_version()
    cuda = f"CUDA {version // 1000}.{version % 1000 // 10}"
    module = Path("/sys/module/nvidia/version")
    return f"{module.read_text().strip()}, {cuda}" if module.is_file() else cuda
