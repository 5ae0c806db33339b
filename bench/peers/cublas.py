"""cuBLAS: a matrix sum, of which one term is a transpose and the other nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from bench.gpu import BenchGpu
from gen.compare.case import ComparisonCase
from gen.compare.peers.base import Contender, Handle, NotOfferedError, Outputs, SharedArray
from gen.dtypes import B32, B64
from gen.errors import MissingToolError, RunError
from gen.families.transpose import TransposeSpec

_FUNCTIONS = {"f32": ("cublasSgeam", ctypes.c_float), "f64": ("cublasDgeam", ctypes.c_double)}
_TRANSPOSED, _PLAIN = 1, 0  # cublasOperation_t


class Geam:
    """`cublas<S|D>geam`, called in the library that is installed."""

    name = "cublas"

    def version(self) -> str:
        """Of cuBLAS."""
        library, found = _library(), ctypes.c_int()
        parts = []
        for part in range(3):  # MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
            library.cublasGetProperty(part, ctypes.byref(found))
            parts.append(str(found.value))
        return ".".join(parts)

    def prepare(self, case: ComparisonCase, source: SharedArray, gpu: BenchGpu) -> Contender:
        """Transposes of matrices of floats and doubles."""
        if case.spec not in [TransposeSpec((1, 0), dtype) for dtype in (B32, B64)]:
            raise NotOfferedError("cuBLAS", "adds and transposes matrices of f32 and f64 only", case.name)
        library, handle, stream = _library(), ctypes.c_void_p(), Handle()
        _check("cublasCreate_v2", library.cublasCreate_v2(ctypes.byref(handle)))
        rows, cols = case.shape
        out = Outputs(gpu, (cols, rows), case.dtype)
        name, number = _FUNCTIONS[case.dtype.name]
        one, nothing = number(1), number(0)
        geam = getattr(library, name)
        x = ctypes.c_void_p(source.address)

        def launch() -> Sequence[Any]:
            y = ctypes.c_void_p(out.now.address)
            _check("cublasSetStream_v2", library.cublasSetStream_v2(handle, ctypes.c_void_p(stream.stream)))
            # Column-major: its matrix of rows x cols is ours transposed.
            status = geam(
                handle, _TRANSPOSED, _PLAIN, rows, cols, ctypes.byref(one), x, cols, ctypes.byref(nothing), y, rows,
                y, rows,
            )  # fmt: skip
            _check(name, status)
            return (out.now,)

        return Contender(
            launch,
            stream.on,
            "multiplies by 1: a NaN may change its payload",
            close=lambda: library.cublasDestroy_v2(handle),
            places=out.places,
            use=out.use,
        )


def _library() -> Any:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
    except (ImportError, RuntimeError, OSError) as error:
        raise MissingToolError(
            "cuBLAS", "is needed for this peer", error, next_step="Install nvidia-cublas, or the CUDA toolkit"
        ) from error


def _check(name: str, status: int) -> None:
    if status != 0:
        raise RunError(name, "failed", f"status {status}")
