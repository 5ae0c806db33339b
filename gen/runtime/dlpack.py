"""DLPack 1: arrays of any library read through `__dlpack__`, and memory of ours offered in the same way.

The structures are those of https://dmlc.github.io/dlpack/latest/c_api.html.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gen.families.extents import dense_strides

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # kinds of devices
READ_ONLY = 1  # a flag
LARGEST_VERSION = (1, 0)
_VERSIONED, _PLAIN = b"dltensor_versioned", b"dltensor"  # names of capsules
_KINDS = {0: "int", 1: "uint", 2: "float", 5: "complex"}
_NAMED = {
    (4, 16): "bfloat16", (6, 8): "bool", (7, 8): "float8_e3m4", (8, 8): "float8_e4m3", (9, 8): "float8_e4m3b11fnuz",
    (10, 8): "float8_e4m3fn", (11, 8): "float8_e4m3fnuz", (12, 8): "float8_e5m2", (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
}  # fmt: skip


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


@dataclass(frozen=True)
class Described:
    """What a capsule says of an array.

    Attributes:
        address: of its first element.
        shape, strides: strides in bytes.
        dtype: NumPy's, or that of `ml_dtypes`.
        read_only: whether its owner forbids writing.
        device: the kind of device, and its number.
        capsule: keeps the description, and the memory, alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    read_only: bool
    device: tuple[int, int]
    capsule: Any


def describe(array: Any, stream: int | None) -> Described:
    """Asks an array for its capsule, and reads it; the capsule is not consumed.

    Args:
        array: with `__dlpack__` and `__dlpack_device__`.
        stream: of CUDA, on which its content is to be ready; arrays on a GPU alone are asked for it. None: it is ready.

    Raises:
        TypeError, ValueError, BufferError, RuntimeError: it has none, or one that cannot be read.
    """
    kind, number = (int(part) for part in array.__dlpack_device__())
    on_gpu = kind in (CUDA, CUDA_MANAGED)
    ask: dict[str, Any] = {"stream": stream} if on_gpu and stream is not None else {}
    try:
        capsule = array.__dlpack__(max_version=LARGEST_VERSION, **ask)
    except TypeError:  # of a library that knows version 0 alone
        capsule = array.__dlpack__(**ask)
    python = _python()
    if python.PyCapsule_IsValid(id(capsule), _VERSIONED):
        versioned = _ManagedVersioned.from_address(python.PyCapsule_GetPointer(id(capsule), _VERSIONED))
        if versioned.major != LARGEST_VERSION[0]:
            raise ValueError(f"DLPack {versioned.major}.{versioned.minor}, where 1 is known")
        tensor, read_only = versioned.tensor, bool(versioned.flags & READ_ONLY)
    else:
        tensor, read_only = _Managed.from_address(python.PyCapsule_GetPointer(id(capsule), _PLAIN)).tensor, False
    dtype = _dtype(tensor.code, tensor.bits, tensor.lanes)
    if tensor.ndim < 0 or (tensor.ndim and not tensor.shape):
        raise ValueError(f"{tensor.ndim} axes, and {'a' if tensor.shape else 'no'} shape")
    shape = tuple(tensor.shape[: tensor.ndim])
    if any(extent < 0 for extent in shape):
        raise ValueError(f"negative extents {shape}")
    if tensor.strides:
        strides = tuple(dtype.itemsize * step for step in tensor.strides[: tensor.ndim])
    else:
        strides = dense_strides(shape, dtype.itemsize)
    address = (tensor.data or 0) + tensor.byte_offset
    return Described(address, shape, strides, dtype, read_only, (kind, number), capsule)


def offer(
    owner: Any, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: tuple[int, int], *, versioned: bool
) -> Any:
    """A capsule of dense, row-major memory, which `owner` holds; it is kept until the consumer lets go.

    Args:
        owner: lives as long as the capsule, or whoever consumes it.
        address: of the first element.
        shape: extents.
        dtype: NumPy's, or that of `ml_dtypes`.
        device: the kind of device, and its number.
        versioned: whether the consumer knows DLPack 1; else the capsule is of version 0.

    Raises:
        BufferError: DLPack has no name for the dtype.
    """
    axes = ctypes.c_int64 * max(len(shape), 1)
    steps = tuple(step // dtype.itemsize for step in dense_strides(shape, dtype.itemsize))
    extents, strides = axes(*shape), axes(*steps)
    made = _ManagedVersioned() if versioned else _Managed()
    if isinstance(made, _ManagedVersioned):
        made.major, made.minor = LARGEST_VERSION
    pointer = ctypes.POINTER(ctypes.c_int64)
    made.tensor = _Tensor(
        address, *device, len(shape), *_code(dtype), 1, ctypes.cast(extents, pointer), ctypes.cast(strides, pointer), 0
    )  # fmt: skip
    made.deleter = ctypes.cast(_callbacks().deleter, ctypes.c_void_p).value
    destructor = ctypes.cast(_callbacks().destructor, ctypes.c_void_p)
    place = ctypes.addressof(made)
    _offered[place] = (made, extents, strides, owner)
    return _python().PyCapsule_New(place, _VERSIONED if versioned else _PLAIN, destructor)


_offered: dict[int, tuple[object, ...]] = {}
"""What consumers hold, by the address of its description."""


@dataclass(frozen=True)
class _Callbacks:
    """Functions that consumers and capsules call in the end."""

    deleter: Any
    destructor: Any


@cache
def _callbacks() -> _Callbacks:
    def forget(place: int) -> None:
        _offered.pop(place, None)

    def destroy(capsule: int) -> None:
        python = _python()
        for name in (_VERSIONED, _PLAIN):
            if python.PyCapsule_IsValid(capsule, name):  # a capsule that was consumed has another name
                forget(python.PyCapsule_GetPointer(capsule, name))

    made = _Callbacks(
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(forget), ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(destroy)
    )
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))  # other libraries may call them when Python ends
    return made


@cache
def _python() -> Any:
    """Python's functions on capsules, which are named by address: their destructor must not hold them."""
    api = ctypes.PyDLL(None)
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "PyCapsule_IsValid": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)),
        "PyCapsule_GetPointer": (ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)),
        "PyCapsule_New": (ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(api, name)
        function.restype, function.argtypes = result, arguments
    return api


def _dtype(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    name = _NAMED.get((code, bits)) or (f"{_KINDS[code]}{bits}" if code in _KINDS else None)
    if lanes != 1 or name is None or bits % 8:  # several in a byte, where NumPy's int4 takes one
        raise ValueError(f"elements of DLPack's type {code} with {bits} bits and {lanes} lanes")
    return named_dtype(name)


def _code(dtype: np.dtype[Any]) -> tuple[int, int]:
    found = next((key for key, name in _NAMED.items() if name == dtype.name), None)
    if found is None:
        bits = 8 * dtype.itemsize
        found = next(((code, bits) for code, kind in _KINDS.items() if dtype.name == f"{kind}{bits}"), None)
    if found is None or not dtype.isnative:
        raise BufferError(f"DLPack has no name for {dtype}")
    return found


def named_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a name, or that of `ml_dtypes`. Raises TypeError where there is none."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # slow to import; names bfloat16 and its kin
    return np.dtype(getattr(ml_dtypes, name, name))
