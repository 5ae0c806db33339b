"""The C library's fused multiply-add, which Python has from 3.13 on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from gen.dtypes import F64, DType


def fused_multiply_add(dtype: DType) -> Callable[[float, float, float], float]:
    """That of f64, or of f32."""
    library = ctypes.CDLL("libm.so.6")
    number, function = (ctypes.c_double, library.fma) if dtype == F64 else (ctypes.c_float, library.fmaf)
    function.argtypes, function.restype = [number] * 3, number
    return lambda a, b, c: float(function(a, b, c))
