"""Arrays of NumPy, torch, CuPy, JAX and everything with `__cuda_array_interface__` or `__dlpack__`, read alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gen.errors import ArgumentError
from gen.families.base import Array
from gen.families.extents import byte_bounds, dense_strides
from gen.gpu.device import LEGACY_STREAM, Device, Memory
from gen.runtime import dlpack

Shape = tuple[int, ...]
_BEYOND = 1 << 64  # addresses, and handles of the driver


class Kind(Enum):
    """Whose array it is."""

    NUMPY = "NumPy"
    TORCH = "torch"
    CUPY = "CuPy"
    HOST = "another library on the host"
    OTHER = "another library on a GPU"


class Given(NamedTuple):
    """One array of a call.

    Attributes:
        kind: whose array it is.
        address: of its first element.
        shape, strides: strides in bytes.
        dtype: NumPy's, also for arrays of others.
        writable: whether its owner lets it be written.
        device: the driver's number of its device; None where its owner does not say.
        ready: the stream on which its content is produced; None where its owner does not say.
        array: the array itself.
        host: NumPy's view of it, where it lies in the host's memory.
        kept: DLPack's capsule, which holds its memory until nothing reads or writes it any more.
    """

    kind: Kind
    address: int
    shape: Shape
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    writable: bool
    device: int | None
    ready: int | None
    array: Any
    host: Array | None = None
    kept: Any = None

    @property
    def described(self) -> str:
        """Whose it is, for messages about what lies on the host: `a torch tensor on cpu`."""
        if _is(self.array, "torch", "Tensor"):
            return f"a torch tensor on {self.array.device}"
        return f"an array of {type(self.array).__module__.partition('.')[0]}, on the host"

    @classmethod
    def dense(cls, address: int, shape: Shape, dtype: np.dtype[Any], device: int | None) -> Given:
        """Elements that follow each other, from an address of a device on."""
        strides = dense_strides(shape, dtype.itemsize)
        return cls(Kind.OTHER, address, shape, strides, dtype, True, device, None, None)


Reader = Callable[[str, Any], Given]
_readers: dict[type, Reader] = {}


def read(name: str, value: Any) -> Given:
    """What a call needs to know of an array. Raises ArgumentError, about `name`, if it is none that gen can use."""
    reader = _readers.get(type(value))
    if reader is None:
        reader = _reader_of(value)
        if reader is not _other:  # classes of others may come and go
            _readers[type(value)] = reader
    return reader(name, value)


def stream_of(given: Given) -> int | None:
    """The stream on which an array's content is produced: its library's current one, or what its interface says."""
    if given.kind is Kind.TORCH:
        return sys.modules["torch"].cuda.current_stream(given.device).cuda_stream or LEGACY_STREAM
    if given.kind is Kind.CUPY:
        return sys.modules["cupy"].cuda.get_current_stream().ptr or LEGACY_STREAM
    return given.ready


def overlap(one: Given, other: Given) -> bool:
    """Whether two arrays share an element. Rows of pitched arrays may lie between each other."""
    if not _spans_meet(one, other):
        return False
    work: Any = 10**6
    try:
        return bool(np.shares_memory(_phantom(one), _phantom(other), max_work=work))
    except np.exceptions.TooHardError:
        return True


def lies_on_itself(given: Given) -> bool:
    """Whether two elements of an array may share a byte: each axis must step over all that the narrower ones span."""
    if 0 in given.shape:
        return False
    span = given.dtype.itemsize
    axes = zip(given.shape, given.strides, strict=True)
    for step, extent in sorted((abs(stride), extent) for extent, stride in axes if extent > 1):
        if step < span:
            return True
        span += (extent - 1) * step
    return False


def as_bytes(array: Array) -> Array:
    """An array of records as they lie in memory: NumPy copies records field by field, without what lies between."""
    return array.view(f"V{array.dtype.itemsize}") if array.dtype.names else array


def _spans_meet(one: Given, other: Given) -> bool:
    if 0 in one.shape or 0 in other.shape:
        return False
    (low, high), (start, end) = span(one), span(other)
    return low < end and start < high


def span(given: Given) -> tuple[int, int]:
    """The first byte of an array that is not empty, and what comes behind its last."""
    low, high = byte_bounds(given.shape, given.strides, given.dtype.itemsize)
    return given.address + low, given.address + high


def _phantom(given: Given) -> Array:
    """NumPy's idea of an array that may lie on a device: only where it lies is ever asked."""
    shape, strides = (*given.shape, given.dtype.itemsize), (*given.strides, 1)
    return host_array(given.address, shape, strides, np.dtype(np.uint8), writable=False)


def _is(value: Any, library: str, name: str) -> bool:
    """Whether `value` is of a library's class; a library that nobody imported has made no array."""
    found = getattr(sys.modules.get(library), name, None)
    return isinstance(found, type) and isinstance(value, found)


def _reader_of(value: Any) -> Reader:
    if isinstance(value, np.ndarray):
        return _masked if isinstance(value, np.ma.MaskedArray) else _numpy
    if _is(value, "torch", "Tensor"):
        return _torch
    if _is(value, "jax", "Array"):
        return _jax
    return _cupy if _is(value, "cupy", "ndarray") else _other


def _numpy(_: str, array: Array) -> Given:
    address, read_only = array.__array_interface__["data"]
    return Given(
        Kind.NUMPY, address, array.shape, array.strides, array.dtype, not read_only, None, None, array, array
    )  # fmt: skip


def _masked(name: str, _: Array) -> Given:
    raise ArgumentError(name, "must have no mask", next_step="Pass array.filled(value), or array.data")


def _cupy(_: str, array: Any) -> Given:
    data = array.data
    return Given(
        Kind.CUPY, int(data.ptr), array.shape, array.strides, array.dtype, True, data.device_id, None, array
    )  # fmt: skip


_torch_dtypes: dict[Any, np.dtype[Any]] = {}


def _torch(name: str, tensor: Any) -> Given:
    if not tensor.is_cuda and str(tensor.device) != "cpu":
        raise ArgumentError(name, "must be a NumPy array or lie on a GPU", f"a torch tensor on {tensor.device}")
    torch: Any = sys.modules["torch"]
    if tensor.layout is not torch.strided or getattr(tensor, "is_nested", False):
        raise ArgumentError(
            name, "must be dense", "a nested tensor" if tensor.layout is torch.strided else tensor.layout
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        next_step = "Pass tensor.detach(), or call the function of gen.torch, which has gradients"
        raise ArgumentError(name, "must not require gradients here, where none are computed", next_step=next_step)
    if tensor.is_conj() or tensor.is_neg():
        raise ArgumentError(name, "must hold its own values", next_step="Pass tensor.resolve_conj().resolve_neg()")
    dtype = _torch_dtypes.get(tensor.dtype)
    if dtype is None:
        dtype = _torch_dtypes[tensor.dtype] = _numpy_dtype(name, tensor.dtype)
    size = dtype.itemsize
    shape, strides = tuple(tensor.shape), tuple([size * stride for stride in tensor.stride()])
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # under a transformation, or while it is traced
        address = 0
    if address == 0 and 0 not in shape:
        next_step = "Call the function of gen.torch, which can be traced"
        raise ArgumentError(name, "must have memory", f"a {type(tensor).__name__}", next_step=next_step)
    if tensor.is_cuda:
        return Given(Kind.TORCH, address, shape, strides, dtype, True, tensor.get_device(), None, tensor)
    return _on_host(address, shape, strides, dtype, True, tensor, None)


def _numpy_dtype(name: str, torch_dtype: Any) -> np.dtype[Any]:
    try:
        return dlpack.named_dtype(str(torch_dtype).removeprefix("torch."))
    except TypeError as error:
        raise ArgumentError(name, "must hold elements that NumPy knows", torch_dtype) from error


def _jax(name: str, array: Any) -> Given:
    if isinstance(array, sys.modules["jax"].core.Tracer):
        next_step = "Call the function of gen.jax, which can be traced"
        raise ArgumentError(name, "must have memory", "a tracer of JAX", next_step=next_step)
    try:
        array.block_until_ready()  # its content may be an error, of which JAX makes no capsule
    except RuntimeError as error:
        raise ArgumentError(name, "must hold what its program computed", error) from error
    return _by_dlpack(name, array, None)._replace(writable=False)  # what others hold of it must not change


def _by_dlpack(name: str, array: Any, stream: int | None = LEGACY_STREAM) -> Given:
    try:
        found = dlpack.describe(array, stream)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, BufferError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ArgumentError(f"{name}.__dlpack__", "cannot be read", reason) from error
    (kind, number), writable = found.device, not found.read_only
    if kind in (dlpack.CPU, dlpack.CUDA_HOST):
        try:
            return _on_host(found.address, found.shape, found.strides, found.dtype, writable, array, found.capsule)
        except ValueError as error:  # no memory, or more than there can be
            raise ArgumentError(f"{name}.__dlpack__", "must describe memory of the host", error) from error
    if kind not in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        raise ArgumentError(name, "must be a NumPy array or lie on a GPU of NVIDIA", f"DLPack's device {found.device}")
    return Given(
        Kind.OTHER, found.address, found.shape, found.strides, found.dtype, writable, number, LEGACY_STREAM, array,
        None, found.capsule,
    )  # fmt: skip


def _on_host(
    address: int, shape: Shape, strides: tuple[int, ...], dtype: np.dtype[Any], writable: bool, array: Any, kept: Any
) -> Given:  # fmt: skip
    view = host_array(address, shape, strides, dtype, writable)
    return Given(Kind.HOST, address, shape, strides, dtype, writable, None, None, array, view, kept)


def host_array(
    address: int, shape: Shape, strides: tuple[int, ...], dtype: np.dtype[Any], writable: bool = True
) -> Array:
    """NumPy's view of memory of the host, which must outlive it."""
    if 0 in shape:
        return np.empty(shape, dtype)
    interface = {
        "data": (address, not writable), "shape": shape, "strides": strides, "version": 3,
        "typestr": f"|V{dtype.itemsize}",
    }  # fmt: skip
    return np.asarray(type("_At", (), {"__array_interface__": interface})()).view(dtype)


def _other(name: str, value: Any) -> Given:
    """Reads the interface, which may hold anything; where there is none, by DLPack."""
    by_dlpack = hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
    except (RuntimeError, TypeError, ValueError) as error:
        if not by_dlpack:
            raise ArgumentError(name, "must tell its __cuda_array_interface__", error) from error
        interface = None
    if interface is None and by_dlpack:
        return _by_dlpack(name, value)
    if interface is None:
        next_step = "Pass numpy.asarray(value), or an array on the GPU"
        if hasattr(value, "gather"):  # of several devices, of which NumPy would make an object
            next_step = "Pass value.gather(), or load the kernel with devices="
        raise ArgumentError(
            name, "must be a NumPy array or have __cuda_array_interface__ or __dlpack__", f"{type(value).__module__}."
            f"{type(value).__qualname__}", next_step=next_step,
        )  # fmt: skip
    try:
        return _parse(name, interface, value)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, SyntaxError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ArgumentError(f"{name}.__cuda_array_interface__", "cannot be read", reason) from error


@lru_cache(maxsize=64)
def _dtype(typestr: str) -> np.dtype[Any]:
    return np.dtype(typestr)


def _parse(name: str, interface: Mapping[str, Any], value: Any) -> Given:
    subject = f"{name}.__cuda_array_interface__"
    shape = tuple(map(int, interface["shape"]))
    dtype = _dtype(interface["typestr"])
    if dtype.kind == "V":  # of bfloat16 and of records it says the size alone
        said = getattr(value, "dtype", None)
        dtype = said if isinstance(said, np.dtype) and said.itemsize == dtype.itemsize else dtype
    address, read_only = interface["data"]
    address = int(address or 0)
    if not 0 <= address < _BEYOND:
        raise ArgumentError(subject, "must have an address of 64 bits", address)
    strides = interface.get("strides")
    if strides is None:
        strides = dense_strides(shape, dtype.itemsize)
    strides = tuple(map(int, strides))
    if len(strides) != len(shape):
        raise ArgumentError(subject, "must have as many strides as extents", strides)
    if any(extent < 0 for extent in shape):
        raise ArgumentError(subject, "must have no negative extent", shape)
    if interface.get("mask") is not None:
        raise ArgumentError(subject, "must have no mask")
    ready = interface.get("stream")
    if ready is not None and (type(ready) is not int or not 1 <= ready < _BEYOND):
        raise ArgumentError(subject, "must have a stream that is None, 1, 2 or a handle", repr(ready))
    return Given(
        Kind.OTHER, address, shape, strides, dtype, not bool(read_only), None, ready, value
    )  # fmt: skip


def handle_of(stream: Any) -> int:
    """The driver's handle of a stream: of torch, CuPy, PyCUDA, Numba, cuda.core, or a number.

    Raises ArgumentError for anything else.
    """
    handle = _number(stream)
    if handle is None:
        for name in ("cuda_stream", "ptr", "__cuda_stream__", "handle"):
            found = getattr(stream, name, None)
            if name == "__cuda_stream__":
                found = found()[1] if callable(found) else None if found is None else found[1]
            handle = _number(getattr(found, "value", found))  # Numba's handles are of ctypes
            if handle is not None:
                break
    if handle is None or not 0 <= handle < 1 << 64:
        raise ArgumentError(
            "stream", "must be a stream of torch or CuPy, or the driver's handle of one", type(stream).__name__
        )
    return handle or LEGACY_STREAM


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class DeviceArray:
    """A result on a GPU, where the input belonged to no library that makes arrays: dense, in row-major order.

    Attributes:
        shape: extents.
        dtype: NumPy's.
        device: the driver's number of the GPU.
    """

    def __init__(self, shape: Shape, dtype: np.dtype[Any], device: Device, stream: int) -> None:
        """Allocates it.

        Args:
            shape: extents.
            dtype: of the elements.
            device: where.
            stream: on which its content will be produced.
        """
        self.shape = shape
        self.dtype = dtype
        self.device = device.index
        self._device = device
        self._stream = stream
        self._memory: Memory = device.allocate(prod(shape) * dtype.itemsize)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3; `stream` is where its content is produced. A simulated device has none."""
        if self.device < 0:
            raise AttributeError("__cuda_array_interface__ is for memory of a GPU")
        return {
            "shape": self.shape,
            # NumPy does not read the words of types that are not its own, such as `<f1`.
            "typestr": self.dtype.str if self.dtype.isbuiltin == 1 else f"|V{self.dtype.itemsize}",
            "data": (self._memory.address, False),
            "strides": None,
            "stream": self._stream,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's number for CUDA, and the GPU's; that of the host on a simulated device."""
        return (dlpack.CUDA, self.device) if self.device >= 0 else (dlpack.CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of its memory, as the array API standard has it.

        Args:
            stream: on which the consumer reads; it waits for what is queued here. None: the legacy default stream; -1:
                nothing waits.
            max_version: the latest version of DLPack that the consumer knows.
            dl_device: where the consumer wants it, which must be where it is.
            copy: whether it must be a copy.

        Raises:
            BufferError: it would have to go to another device, or DLPack does not know its dtype.
        """
        if dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"the array is on device {self.__dlpack_device__()} of DLPack, not on {dl_device}")
        entered = self._device.enter()
        try:
            offered = self._copy() if copy else self
            if self.device < 0:
                self._device.synchronize()  # the host's memory is read at once
            elif stream != -1:
                reading = stream or LEGACY_STREAM
                if reading != self._stream:
                    self._device.wait(reading, self._stream)
        finally:
            self._device.leave(entered)
        versioned = max_version is not None and max_version[0] >= dlpack.LARGEST_VERSION[0]
        device = offered.__dlpack_device__()
        return dlpack.offer(offered, offered.address, self.shape, self.dtype, device, versioned=versioned)

    @property
    def address(self) -> int:
        """Of the first element."""
        return self._memory.address

    def _copy(self) -> DeviceArray:
        made = DeviceArray(self.shape, self.dtype, self._device, self._stream)
        self._device.copy(self.address, made.address, prod(self.shape) * self.dtype.itemsize, self._stream)
        return made

    def numpy(self) -> Array:
        """A copy as a NumPy array; waits until the content is there."""
        content: Array = np.empty(self.shape, self.dtype)
        entered = self._device.enter()
        try:
            self._device.download(content, self._memory.address, self._stream)
            self._device.synchronize(self._stream)
        finally:
            self._device.leave(entered)
        return content

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"


def make(like: Given, shape: Shape, dtype: np.dtype[Any], device: Device, stream: int, chosen: bool) -> Given:
    """A result of the kind that `like` is, not yet written.

    Args:
        like: the first input.
        shape: extents.
        dtype: of the elements.
        device: where.
        stream: on which it is written.
        chosen: whether the caller named that stream; else it is the current one of the caller's library.
    """
    made = maker(like, shape, dtype)
    if made is None:
        return read("out", DeviceArray(shape, dtype, device, stream))
    with ExitStack() as context:
        if like.kind is Kind.TORCH and chosen:  # it reuses memory in the order of the stream for which it was made
            torch, handle = sys.modules["torch"], 0 if stream == LEGACY_STREAM else stream
            context.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(handle, device=like.array.device)))
        elif like.kind is Kind.CUPY:
            cupy: Any = sys.modules["cupy"]
            context.enter_context(cupy.cuda.Device(like.device))
            if chosen:
                context.enter_context(cupy_stream(cupy, stream))
        return read("out", made())


def adopted(like: Given, made: Any) -> Any:
    """What a call made, as an array of the library of `like`, where that takes arrays of others; else as it is."""
    if not isinstance(made, DeviceArray):
        return made
    library = type(like.array).__module__.partition(".")[0]
    if library == "numba":  # whose kernels run on the legacy default stream, as the call did
        return sys.modules["numba.cuda"].as_cuda_array(made, sync=False)
    if library == "pycuda":
        gpuarray: Any = sys.modules["pycuda.gpuarray"]
        return gpuarray.GPUArray(made.shape, made.dtype, base=made, gpudata=made.address)
    from_dlpack = getattr(_namespace(like.array), "from_dlpack", None)
    return made if from_dlpack is None else from_dlpack(made)


def adopted_on_host(like: Given, content: Any) -> Any:
    """A result on the host as an array of the library of `like`; of NumPy, a number where it has no axes."""
    if like.kind is not Kind.HOST:
        return content[()]
    if _is(like.array, "torch", "Tensor"):
        torch: Any = sys.modules["torch"]
        tensor = torch.empty(content.shape, dtype=getattr(torch, content.dtype.name))
        host_array(tensor.data_ptr(), content.shape, content.strides, content.dtype)[...] = content
        return tensor
    asarray = getattr(_namespace(like.array), "asarray", None)
    return content[()] if asarray is None else asarray(content)


def _namespace(array: Any) -> Any:
    """The functions of an array's library, as the array API standard has them; None where it has none."""
    found = getattr(array, "__array_namespace__", None)
    return None if found is None else found()


@dataclass(frozen=True)
class Maker:
    """How a library makes an array: a function and its arguments, the last of which have names."""

    function: Any
    arguments: tuple[Any, ...]
    names: tuple[str, ...] = ()

    def __call__(self) -> Any:
        """Makes one."""
        first = len(self.arguments) - len(self.names)
        return self.function(*self.arguments[:first], **dict(zip(self.names, self.arguments[first:], strict=True)))


def maker(like: Given, shape: Shape, dtype: np.dtype[Any]) -> Maker | None:
    """How the library of `like` makes an array on its device; None where it has none that does."""
    if like.kind is Kind.TORCH:
        torch: Any = sys.modules["torch"]
        return Maker(torch.empty, (shape, _kind_of(like, dtype), like.array.device), ("dtype", "device"))
    return Maker(sys.modules["cupy"].empty, (shape, dtype)) if like.kind is Kind.CUPY else None


def quick_maker(like: Given, shape: Shape, dtype: np.dtype[Any]) -> Maker | None:
    """As `maker`, in less time, but on the device that is current: whoever calls it looks where the array lies.

    Programs that torch's compiler writes make their tensors by this function, since `torch.empty` first sorts its
    arguments and then goes through torch's dispatcher. Of a torch without it the usual maker is given.
    """
    found: Any = sys.modules["torch"] if like.kind is Kind.TORCH else None
    for name in ("_C", "_dynamo", "guards", "_empty_strided_cuda"):
        found = getattr(found, name, None)
    if found is None:
        return maker(like, shape, dtype)
    return Maker(found, (shape, dense_strides(shape, 1), _kind_of(like, dtype)))


def _kind_of(like: Given, dtype: np.dtype[Any]) -> Any:
    """Torch's name of a dtype: that of `like` where it has the same, which NumPy may not tell from others."""
    return like.array.dtype if dtype == like.dtype else getattr(sys.modules["torch"], dtype.name)


def source_of(given: Given) -> Any | None:
    """How the launcher reads arrays of this very class: DLPack's C exchange API, or the function for their stream.

    None for a class that it cannot read.
    """
    kind = type(given.array)
    if given.kind is Kind.TORCH and kind is sys.modules["torch"].Tensor:  # a subclass may mean something else
        return getattr(kind, "__dlpack_c_exchange_api__", None)
    if given.kind is Kind.CUPY and kind is sys.modules["cupy"].ndarray:
        return sys.modules["cupy"].cuda.get_current_stream
    return None


class _Stream:
    """A stream by its handle, as the CUDA stream protocol shows it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


def cupy_stream(cupy: Any, handle: int) -> Any:
    """CuPy's object for somebody's stream."""
    if handle == LEGACY_STREAM:
        return cupy.cuda.Stream.null
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_Stream(handle))
    return cupy.cuda.ExternalStream(handle)  # CuPy before 14
