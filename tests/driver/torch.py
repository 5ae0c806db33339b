"""Torch on a GPU, as far as gen asks it: tensors of memory that a test brings, read through DLPack's exchange API."""

from __future__ import annotations

import ctypes
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class DLTensor(ctypes.Structure):
    """DLPack's structure."""

    _fields_ = (
        ("data", ctypes.c_uint64), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class Tensor:
    """A tensor that lies where a NumPy array does, or where `address` says."""

    requires_grad = False
    is_cuda = True
    layout = "strided"
    negated = False

    def __init__(self, array: Any, address: int | None = None, index: int = 0) -> None:
        self.array, self.index = array, index
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, f"torch.{array.dtype}"
        self.device = f"cuda:{index}"
        self._steps = tuple(stride // array.itemsize for stride in array.strides)
        place = int(array.__array_interface__["data"][0]) if address is None else address
        axes = ctypes.c_int64 * max(array.ndim, 1)
        self._axes = axes(*array.shape), axes(*self._steps)
        shape, strides = map(ctypes.addressof, self._axes)
        code, bits = _CODES[array.dtype.kind], 8 * array.itemsize
        self._tensor = DLTensor(place, 2, index, array.ndim, code, bits, 1, shape, strides, 0)
        self.dltensor = ctypes.addressof(self._tensor)

    def stride(self) -> tuple[int, ...]:
        return self._steps

    def data_ptr(self) -> int:
        return int(self._tensor.data)

    def get_device(self) -> int:
        return self.index

    def is_conj(self) -> bool:
        return False

    def is_neg(self) -> bool:
        return self.negated


def module(folder: Path, allocate: Callable[[int], int] | None = None) -> Any:
    """A module to stand as `torch` in `sys.modules`.

    Its `set_stream` sets the current stream, and `made_on` has the stream that was current for each tensor it made.

    Args:
        folder: where its library is built.
        allocate: gives addresses of memory on a device, of so many bytes; without it tensors are made on the host.
    """
    library = folder / "exchange.so"
    include = f"-I{sysconfig.get_path('include')}"
    source = Path(__file__).with_name("exchange.cpp")
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", include, "-o", str(library), str(source)], check=True)
    exchange = ctypes.PyDLL(str(library))
    exchange.capsule.restype = ctypes.py_object
    exchange.set_current_stream.argtypes = [ctypes.c_void_p]
    state = SimpleNamespace(cuda_stream=0)

    def set_stream(stream: int) -> None:
        state.cuda_stream = stream
        exchange.set_current_stream(stream)

    def empty(shape: tuple[int, ...], dtype: str, device: str) -> Tensor:
        made.made_on.append(state.cuda_stream)
        array: Any = np.empty(shape, dtype.removeprefix("torch."))
        return Tensor(array, None if allocate is None else allocate(array.nbytes), int(device.rpartition(":")[2]))

    def empty_strided(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Tensor:
        tensor: Tensor = made.empty(shape, dtype, f"cuda:{made.current_device}")
        assert tensor.stride() == strides or 0 in shape  # of which NumPy has others
        return tensor

    @contextmanager
    def stream(handle: int) -> Iterator[None]:
        before = state.cuda_stream
        set_stream(handle)
        yield
        set_stream(before)

    made: Any = ModuleType("torch")
    made.made_on, made.current_device = [], 0
    guards = SimpleNamespace(_empty_strided_cuda=empty_strided)
    made._C = SimpleNamespace(_dynamo=SimpleNamespace(guards=guards))
    made.Tensor, made.strided, made.empty, made.set_stream = Tensor, "strided", empty, set_stream
    for name in ("float16", "float32", "float64", "int32", "int64", "uint8", "int16", "bool"):
        setattr(made, name, f"torch.{name}")
    made.is_grad_enabled = lambda: True
    made.cuda = SimpleNamespace(
        current_stream=lambda _: state, stream=stream, ExternalStream=lambda handle, **_: handle
    )
    Tensor.__dlpack_c_exchange_api__ = exchange.capsule()  # type: ignore[attr-defined]
    return made
