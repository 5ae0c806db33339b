"""Libraries made of NumPy, with the few functions that peers call, on host memory."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import ndimage

from gen.compare.peers.base import SharedArray
from gen.families.base import Array
from tests.fake_comparison import at, view

_kept: list[SharedArray] = []


class FakeTensor(np.ndarray[Any, Any]):
    """A tensor of torch, as far as the peers know it."""

    def permute(self, axes: Sequence[int]) -> FakeTensor:
        return self.transpose(axes)

    def to(self, dtype: Any) -> FakeTensor:
        return self.astype(dtype, copy=False).view(FakeTensor)

    def clone(self, memory_format: str = "preserve") -> FakeTensor:
        return self.copy("C" if memory_format == "contiguous" else "K").view(FakeTensor)

    def copy_(self, other: Array) -> FakeTensor:
        self[...] = other
        return self

    def add_(self, other: Array, alpha: float) -> FakeTensor:
        self[...] = self + self.dtype.type(alpha) * other
        return self


def tensor(array: Any) -> FakeTensor:
    """Anything on host memory as a tensor."""
    content = interface(array) if isinstance(array, SharedArray) else np.asarray(array)
    return content.view(FakeTensor)


def interface(array: SharedArray) -> Array:
    """What a library sees of an array, whose memory it keeps: no bfloat16."""
    _kept.append(array)
    dtype = np.dtype(array.__cuda_array_interface__["typestr"])
    if array.strides is not None:
        memory = at(array.address, (array.nbytes,), np.dtype(np.uint8))
        return np.ndarray(array.shape, dtype, memory.data, strides=array.strides)
    return at(array.address, array.shape, dtype)


def torch() -> Any:
    """Torch."""
    made: Any = ModuleType("torch")
    made.__version__ = "2.fake"
    made.Tensor, made.bfloat16 = FakeTensor, np.dtype(ml_dtypes.bfloat16)
    made.as_tensor = lambda array, device: tensor(array)  # noqa: ARG005
    made.from_dlpack = tensor
    streams: list[int] = []

    @contextmanager
    def stream(handle: int) -> Iterator[None]:
        streams.append(handle)
        yield
        streams.append(-handle)

    made.streams = streams
    made.cuda = SimpleNamespace(stream=stream, ExternalStream=int, empty_cache=lambda: None)
    made.compiler = SimpleNamespace(reset=lambda: None)
    made.contiguous_format = "contiguous"
    made.compiled = []

    def compile_(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        made.compiled.append((function, options))
        return function

    made.compile = compile_
    for name in ("uint8", "float16", "float32", "float64"):
        setattr(made, name, np.dtype(name))
    modes = {"replicate": "edge", "reflect": "reflect"}

    def pad(x: Array, widths: Sequence[int], mode: str = "constant", value: float = 0.0) -> FakeTensor:
        pairs = list(zip(widths[::2], widths[1::2], strict=True))[::-1]
        pairs = [(0, 0)] * (x.ndim - len(pairs)) + pairs
        given: dict[str, Any] = {"constant_values": value} if mode == "constant" else {}
        numpys: Any = modes.get(mode, mode)
        return tensor(np.pad(np.asarray(x), pairs, numpys, **given))

    made.nn = SimpleNamespace(functional=SimpleNamespace(pad=pad))
    for name, own in {"sum": "sum", "mean": "mean", "amin": "min", "amax": "max"}.items():
        setattr(made, name, _along(getattr(np, own)))
    made.argmax = lambda x, dim=None: tensor(np.argmax(x, axis=dim))
    made.argmin = lambda x, dim=None: tensor(np.argmin(x, axis=dim))
    made.roll = np.roll
    made.mul = lambda x, weight, out: np.multiply(x, x.dtype.type(weight), out=out)
    return made


def _along(function: Callable[..., Any]) -> Callable[..., FakeTensor]:
    return lambda x, dim=None, dtype=None: tensor(_wide(function, x, dim, dtype))


def _wide(function: Callable[..., Any], x: Any, axis: Any, dtype: Any = None) -> Any:
    """As libraries add: halves in f32, rounded once."""
    if x.dtype.kind == "f" and x.dtype.itemsize == 2:
        return np.asarray(function(np.asarray(x).astype(np.float32), axis=axis)).astype(x.dtype)
    return function(np.asarray(x), axis=axis, **({} if dtype is None else {"dtype": dtype}))


def _over(function: Callable[..., Any]) -> Callable[..., Array]:
    return lambda x, axis=None, dtype=None: np.asarray(_wide(function, x, axis, dtype))


def inductor() -> Any:
    """What empties torch's caches of compiled kernels."""
    made: Any = ModuleType("torch._inductor.utils")
    made.emptied = []

    @contextmanager
    def fresh_cache() -> Iterator[None]:
        made.emptied.append(True)
        yield
        made.emptied.append(False)

    made.fresh_cache = fresh_cache
    return made


def triton() -> Any:
    """Triton."""
    made: Any = ModuleType("triton")
    made.__version__ = "3.fake"
    return made


def cupy() -> Any:
    """CuPy."""
    made: Any = ModuleType("cupy")
    made.__version__ = "14.fake"
    made.asarray = lambda array, dtype=None: interface(array) if dtype is None else np.asarray(array, dtype)
    made.copyto, made.float64 = np.copyto, np.float64
    for name in ("sum", "prod", "min", "max", "mean", "var", "any", "all"):
        setattr(made, name, _over(getattr(np, name)))
    made.argmax = lambda x, axis=None: np.asarray(np.argmax(x, axis=axis))
    made.argmin = lambda x, axis=None: np.asarray(np.argmin(x, axis=axis))

    def elementwise(arguments: str, result: str, text: str, name: str) -> Callable[..., None]:
        assert result == "T out"
        assert name.isidentifier()
        weights = [float(weight) for weight in re.findall(r"T\(([^)]+)\) \* a\d+", text)]
        assert len(weights) == len(arguments.split(", "))

        def kernel(*arrays: Array) -> None:
            *neighbours, out = arrays
            out[...] = sum(out.dtype.type(w) * x for w, x in zip(weights, neighbours, strict=True))

        return kernel

    made.ElementwiseKernel = elementwise

    @contextmanager
    def stream(handle: int) -> Iterator[None]:  # noqa: ARG001
        yield

    made.cuda = SimpleNamespace(Stream=SimpleNamespace(null=None), ExternalStream=stream)
    return made


def cupyx() -> Any:
    """cupyx.scipy.ndimage."""
    made: Any = ModuleType("cupyx.scipy.ndimage")
    made.correlate = ndimage.correlate
    return made


class FakeJaxArray(np.ndarray[Any, Any]):
    """An array of JAX: never changed in place."""

    @property
    def at(self) -> Any:
        def item(place: Any) -> Any:
            def put(values: Array) -> FakeJaxArray:
                made = self.copy()
                made[place] = values
                return made

            return SimpleNamespace(set=put)

        return type("_At", (), {"__getitem__": lambda _, place: item(place)})()


def jax() -> Any:
    """JAX, which sees 64 bits."""
    made: Any = ModuleType("jax")
    made.__version__ = "0.fake"
    made.jit = lambda function: function
    made.dlpack = SimpleNamespace(from_dlpack=lambda x: np.asarray(x).view(FakeJaxArray))
    return made


def jax_numpy() -> Any:
    """jax.numpy."""
    made: Any = ModuleType("jax.numpy")
    made.transpose, made.roll = (lambda x, axes: np.ascontiguousarray(np.transpose(x, axes))), np.roll
    for name in ("sum", "prod", "min", "max", "mean", "var"):
        setattr(made, name, _over(getattr(np, name)))
    made.argmax = lambda x, axis=None: np.argmax(x, axis=axis)
    made.pad, made.float64 = np.pad, np.float64
    return made


class FakeCublas:
    """cuBLAS, of which there is one function for floats and one for doubles."""

    def __init__(self) -> None:
        self.streams: list[int | None] = []
        self.status = 0
        self.cublasSgeam = self._geam(np.float32)
        self.cublasDgeam = self._geam(np.float64)

    def cublasCreate_v2(self, handle: Any) -> int:  # noqa: N802
        handle._obj.value = 1
        return 0

    def cublasDestroy_v2(self, handle: Any) -> int:  # noqa: N802
        handle.value = None
        return 0

    def cublasSetStream_v2(self, _: Any, stream: ctypes.c_void_p) -> int:  # noqa: N802
        self.streams.append(stream.value)
        return 0

    def cublasGetProperty(self, part: int, found: Any) -> int:  # noqa: N802
        found._obj.value = 13 - part
        return 0

    def _geam(self, dtype: Any) -> Callable[..., int]:
        def geam(
            handle: Any, op_a: int, op_b: int, m: int, n: int, alpha: Any, a: Any, lda: int, beta: Any, b: Any,
            ldb: int, c: Any, ldc: int,
        ) -> int:  # fmt: skip
            assert (op_a, op_b, b.value, ldb) == (1, 0, c.value, ldc)
            assert (handle.value, alpha._obj.value, beta._obj.value, lda, ldc) == (1, 1.0, 0.0, n, m)
            source = at(a.value, (m, n), np.dtype(dtype))  # column-major n x m, so row-major m x n
            at(c.value, (n, m), np.dtype(dtype))[...] = source.T
            return self.status

        return geam


class FakeCub:
    """A library that nvcc built of cub.cu, for the operator and types of its name."""

    def __init__(self, op: str, dtype: Any, result: Any) -> None:
        self._op, self._dtype, self._result = op, dtype, result

    def gen_cub_reduce(self, temporary: Any, size: Any, source: Any, out: Any, n: Any, stream: Any) -> int:
        return self._run(temporary, size, source, out, 1, n.value, stream)

    def gen_cub_rows(self, temporary: Any, size: Any, source: Any, out: Any, rows: Any, cols: Any, stream: Any) -> int:
        return self._run(temporary, size, source, out, rows.value, cols.value, stream)

    def _run(self, temporary: Any, size: Any, source: Any, out: Any, rows: int, cols: int, _: Any) -> int:
        if temporary.value is None:
            size._obj.value = 99
            return 0
        assert size._obj.value == 99
        x = at(source.value, (rows, cols), self._dtype.numpy)
        if self._op.startswith("arg"):
            at(out.value + 16, (), np.dtype(np.int64))[...] = getattr(np, self._op)(x)
        else:
            wide = x.astype(np.float64 if self._dtype.kind == "float" else self._result.numpy)
            at(out.value, (rows,), self._result.numpy)[...] = getattr(np, self._op)(wide, axis=1)
        return 0


MODULES: dict[str, Callable[[], Any]] = {
    "torch": torch, "torch._inductor.utils": inductor, "triton": triton, "cupy": cupy, "cupyx.scipy.ndimage": cupyx,
    "jax": jax, "jax.numpy": jax_numpy,
}  # fmt: skip


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts them all where imports find them."""
    for name, make in MODULES.items():
        monkeypatch.setitem(sys.modules, name, make())


def remove(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes all of them impossible to import."""
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, None)


__all__ = ["FakeCub", "FakeCublas", "install", "remove", "view"]
