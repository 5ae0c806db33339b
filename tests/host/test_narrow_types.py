"""Halves, bfloat16 and vectors on the CPU run, through every cache operator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.families.base import Operand
from gen.families.expr import ONE
from tests.host.host_kernels import IN, OUT, one_launch, run_text


def test_halves_and_bfloat16(cache: Path) -> None:
    import ml_dtypes

    from gen.dtypes import BF16, F16

    text = """
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void NAME(const __half* in, __half* out, const __nv_bfloat16* low, __nv_bfloat16* low_out) {
      __shared__ __half tile[32];
      const int i = threadIdx.x;
      tile[i] = __ldg(in + i);
      __syncthreads();
      out[i] = __hfma(tile[31 - i], tile[i], __shfl_xor_sync(0xffffffffu, tile[i], 1));
      low_out[i] = __hadd(__ldcs(low + i), hsqrt(low[0]));
    }
    """
    halves = np.linspace(-3, 5, 32).astype(np.float16)
    low = np.linspace(2, 90, 32).astype(ml_dtypes.bfloat16)
    buffers = {"in": halves, "out": np.zeros(32, np.float16), "low": low, "low_out": np.zeros(32, ml_dtypes.bfloat16)}
    operands = (
        Operand("in", "in", F16, ("n",)), Operand("out", "out", F16, ("n",)),
        Operand("low", "in", BF16, ("n",)), Operand("low_out", "out", BF16, ("n",)),
    )  # fmt: skip
    run_text(cache, text, operands, one_launch(32, ONE, "in", "out", "low", "low_out"), {"n": 32}, buffers)
    wide = halves.astype(np.float64)
    expected = (wide[::-1] * wide + wide[np.arange(32) ^ 1]).astype(np.float16)
    assert np.array_equal(buffers["out"], expected)
    root = np.sqrt(low[:1].astype(np.float64)).astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(buffers["low_out"], (low.astype(np.float32) + root).astype(ml_dtypes.bfloat16))


VECTORS = ("char4", "uchar2", "short2", "ushort4", "int2", "int4", "uint4", "longlong2", "float2", "float4", "double2")


@pytest.mark.parametrize("vector", VECTORS)
def test_vectors_move_through_every_cache_operator(cache: Path, vector: str) -> None:
    loads = ("__ldg", "__ldca", "__ldcg", "__ldcs", "__ldlu", "__ldcv")
    stores = ("__stwb", "__stcg", "__stcs", "__stwt")
    moves = "\n".join(
        f"{stores[place % 4]}((VECTOR*)out + {place}, {load}((const VECTOR*)in + {place}));"
        for place, load in enumerate(loads)
    )
    text = f'extern "C" __global__ void NAME(const float* in, float* out, int n) {{\n{moves}\n}}\n'
    memory = np.random.default_rng(6).standard_normal(128).astype(np.float32)
    first = -memory.ctypes.data % 16 // 4
    source = memory[first : first + 100]
    space = np.zeros(128, np.float32)
    first = -space.ctypes.data % 16 // 4
    out = space[first : first + 100]
    moved = {"char4": 4, "uchar2": 2, "short2": 4, "ushort4": 8, "int2": 8, "float2": 8}.get(vector, 16) * len(loads)
    run_text(cache, text.replace("VECTOR", vector), (IN, OUT), one_launch(1), {"n": 1}, {"in": source, "out": out})
    assert out.tobytes()[:moved] == source.tobytes()[:moved]
    assert not any(out.tobytes()[moved:])


NARROW_1: dict[str, Callable[[Any], Any]] = {
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "rcp": lambda x: 1 / x, "exp": np.exp, "exp2": np.exp2,
    "exp10": lambda x: 10.0**x, "log": np.log, "log2": np.log2, "log10": np.log10, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "tanh_approx": np.tanh, "ceil": np.ceil, "floor": np.floor, "trunc": np.trunc, "rint": np.rint,
}  # fmt: skip


@pytest.mark.parametrize("name", ["half", "bfloat16"])
def test_functions_of_narrow_types(cache: Path, name: str) -> None:
    import ml_dtypes

    from gen.dtypes import BF16, F16

    dtype, scalar, pair, header, kind = (
        (F16, "__half", "__half2", "cuda_fp16.h", np.dtype(np.float16))
        if name == "half"
        else (BF16, "__nv_bfloat16", "__nv_bfloat162", "cuda_bf16.h", np.dtype(ml_dtypes.bfloat16))
    )
    ones = "\n".join(f"out[{place} * 32 + i] = h{one}(x);" for place, one in enumerate(NARROW_1))
    count = len(NARROW_1)
    text = f"""
    #include <{header}>
    extern "C" __global__ void NAME(const {scalar}* in, {scalar}* out) {{
      const int i = threadIdx.x;
      const {scalar} x = in[i], y = in[31 - i];
      {ones}
      out[{count} * 32 + i] = __hfma_relu(-x, y, x);
      out[{count + 1} * 32 + i] = __hfma_sat(x, y, -x);
      out[{count + 2} * 32 + i] = __hmax(x, y) * __hmin(x, y);
      const {pair} z = __hcmadd({pair}(x, y), {pair}(y, x), {pair}(x, x));
      out[{count + 3} * 32 + i] = z.y;
      out[{count + 4} * 32 + i] = h2sqrt({pair}(y, x)).y;
      out[{count + 5} * 32 + i] = __float2{name}_rn((float)__{name}2int_ru(x) + __{name}2int_rd(x));
      out[{count + 6} * 32 + i] = i == 0 ? x : x;
      if (i == 31) atomicAdd(out + {count + 6} * 32 + i, y);
    }}
    """
    values = np.linspace(0.3, 4.6, 32).astype(kind)
    out = np.zeros((count + 7, 32), kind)
    operands = (Operand("in", "in", dtype, ("n",)), Operand("out", "out", dtype, ("n",)))
    run_text(cache, text, operands, one_launch(32, ONE, "in", "out"), {"n": 1}, {"in": values, "out": out})
    x = values.astype(np.float64)
    y = x[::-1]

    def narrow(wide: Any) -> Any:
        return wide.astype(kind).astype(np.float64)

    expected = [narrow(function(x)) for function in NARROW_1.values()]
    expected += [
        narrow(np.maximum(x - x * y, 0)), narrow(np.clip(x * y - x, 0, 1)), narrow(x * y),
        narrow(y * y + narrow(x * x + x)), narrow(np.sqrt(x)), narrow(np.ceil(x) + np.floor(x)),
        np.concatenate([x[:31], narrow(x[31:] + y[31:])]),
    ]  # fmt: skip
    for row, wanted in enumerate(expected):
        assert np.array_equal(out[row].astype(np.float64), wanted), (row, out[row], wanted)
