"""The CPU run: each detector finds its planted fault, at its line, and passes the clean twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.dtypes import B32, F32, I32, U32, DType
from gen.errors import RunError
from gen.families.base import Launch, Limits, Operand, Plan, Scratch, Variant
from gen.families.expr import ONE, Expr, constant, size
from gen.proof.host import HostFault, HostKernel, HostRunner
from gen.proof.storage import levels_of
from tests.fake_family import fake_variant

H100 = Limits.of("sm_90")
N = size("n")
IN = Operand("in", "in", F32, ("n",))
OUT = Operand("out", "out", F32, ("n",))
COUNT = (I32, N)


def grid(blocks: Expr) -> tuple[Expr, Expr, Expr]:
    return (blocks, ONE, ONE)


@dataclass(frozen=True)
class Planted:
    """A kernel `(const float* in, float* out, float* scratch, int n)` with a fault, and the same without.

    Attributes:
        kind: what the fault must be called.
        faulty: the body with the fault, in the line that ends in `// here`.
        clean: the body without.
        buffer: the buffer the fault must name.
        threads: of a block; the grid covers 100 elements.
        before: what stands before the kernel.
    """

    name: str
    kind: str
    faulty: str
    clean: str
    buffer: str = ""
    threads: int = 64
    shared_bytes: int = 0
    before: str = ""


INDEX = "const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
GUARD = INDEX + "if (i >= n) return;\n"
TILE = "__shared__ float tile[64];\n" + INDEX
DYNAMIC = "extern __shared__ __align__(16) unsigned char shared_bytes[];\nfloat* tile = (float*)shared_bytes;\n" + INDEX
FULL = "0xffffffffu"

PLANTED = (
    Planted(
        "read_past_the_end", "out-of-bounds read", GUARD + "out[i] = in[i + 1];  // here",
        GUARD + "out[i] = i + 1 < n ? in[i + 1] : 0.0f;", "in",
    ),
    Planted("read_before_the_start", "out-of-bounds read", GUARD + "out[i] = in[i - 1];  // here",
            GUARD + "out[i] = i > 0 ? in[i - 1] : 0.0f;", "in"),
    Planted("write_past_the_end", "out-of-bounds write", INDEX + "out[i] = 1.0f;  // here", GUARD + "out[i] = 1.0f;",
            "out"),
    Planted("write_far_outside", "out-of-bounds write", GUARD + "out[i + 100000LL * i] = 1.0f;  // here",
            GUARD + "out[i] = 1.0f;"),
    Planted("null_pointer", "out-of-bounds read", GUARD + "out[i] = *(const float*)(size_t)(i * 0);  // here",
            GUARD + "out[i] = in[0];"),
    Planted("structure_past_the_end", "out-of-bounds read",
            GUARD + "struct Many { float x[16]; };\nif (i == n - 5) *(Many*)scratch = *(const Many*)(in + i);  // here",
            GUARD + "struct Many { float x[16]; };\nif (i == 0) *(Many*)scratch = *(const Many*)(in + i);", "in"),
    Planted("atomic_past_the_end", "out-of-bounds write", GUARD + "atomicAdd(scratch + n + i, 1.0f);  // here",
            GUARD + "scratch[i] = 0.0f; atomicAdd(scratch + i, 1.0f);", "scratch"),
    Planted("vector_misaligned", "misaligned",
            GUARD + "if (i < 64) out[i] = ((const float4*)(in + i))->x;  // here",
            GUARD + "if (i < 16) out[i] = ((const float4*)in)[i].x;", "in"),
    Planted("vector_store_misaligned", "misaligned",
            GUARD + "if (i < 64) __stcs((float2*)(out + i), make_float2(1.0f, 2.0f));  // here",
            GUARD + "if (i < 32) __stcs((float2*)out + i, make_float2(1.0f, 2.0f));", "out"),
    Planted("write_to_input", "write to input", GUARD + "((float*)in)[i] = 0.0f;  // here", GUARD + "out[i] = in[i];",
            "in"),
    Planted("shared_never_written", "uninitialised read",
            TILE + "if (i < n) tile[threadIdx.x] = 1.0f;\n__syncthreads();\nif (i < n) out[i] = tile[63];  // here",
            TILE + "tile[threadIdx.x] = 1.0f;\n__syncthreads();\nif (i < n) out[i] = tile[63];", "tile"),
    Planted("dynamic_shared_never_written", "uninitialised read",
            DYNAMIC + "__syncthreads();\nif (i < n) out[i] = tile[threadIdx.x];  // here",
            DYNAMIC + "tile[threadIdx.x] = 1.0f;\n__syncthreads();\nif (i < n) out[i] = tile[threadIdx.x];",
            "shared_bytes", shared_bytes=256),
    Planted("dynamic_shared_overrun", "out-of-bounds write",
            DYNAMIC + "tile[threadIdx.x + 1] = 1.0f;  // here", DYNAMIC + "tile[threadIdx.x] = 1.0f;",
            "shared_bytes", shared_bytes=256),
    Planted("output_never_written", "uninitialised read", GUARD + "out[i] += in[i];  // here",
            GUARD + "out[i] = in[i];", "out"),
    Planted("scratch_never_written", "uninitialised read", GUARD + "out[i] = scratch[i];  // here",
            GUARD + "scratch[i] = in[i];\nout[i] = scratch[i];", "scratch"),
    Planted("barrier_missing", "race",
            TILE + "tile[threadIdx.x] = 1.0f;\n__syncthreads();\n"
            "const float x = tile[threadIdx.x ^ 1];  // here\ntile[threadIdx.x] = x + 1.0f;  // here",
            TILE + "tile[threadIdx.x] = 1.0f;\n__syncthreads();\n"
            "const float x = tile[threadIdx.x ^ 1];\n__syncthreads();\ntile[threadIdx.x] = x + 1.0f;", "tile"),
    Planted("all_write_one_place", "race",
            TILE + "tile[0] = 1.0f;  // here\n__syncthreads();\nif (i < n) out[i] = tile[0];",
            TILE + "if (threadIdx.x == 0) tile[0] = 1.0f;\n__syncthreads();\nif (i < n) out[i] = tile[0];", "tile"),
    Planted("warp_without_syncwarp", "race",
            "__shared__ volatile float tile[64];\ntile[threadIdx.x] = 1.0f;\n__syncthreads();\n"
            "for (int d = 16; d > 0; d /= 2)\n"
            "if (threadIdx.x < d) tile[threadIdx.x] = tile[threadIdx.x] + tile[threadIdx.x + d];  // here",
            "__shared__ volatile float tile[64];\ntile[threadIdx.x] = 1.0f;\n__syncthreads();\n"
            "for (int d = 16; d > 0; d /= 2) {\nfloat x = 0.0f;\n"
            "if (threadIdx.x < 32) x = tile[threadIdx.x] + tile[threadIdx.x + d];\n__syncwarp();\n"
            "if (threadIdx.x < 32) tile[threadIdx.x] = x;\n__syncwarp();\n}", "tile"),
    Planted("barrier_in_a_branch", "barrier", "if (threadIdx.x < 32) __syncthreads();  // here", "__syncthreads();"),
    Planted("return_before_a_barrier", "barrier", GUARD + "__syncthreads();  // here\nout[i] = 1.0f;",
            INDEX + "__syncthreads();\nif (i < n) out[i] = 1.0f;"),
    Planted("two_barriers", "barrier",
            "if (threadIdx.x < 32)\n__syncthreads();  // here\nelse\n__syncthreads();  // here",
            "__syncthreads();\n__syncthreads();"),
    Planted("shuffle_after_return", "absent lane",
            GUARD + f"out[i] = __shfl_down_sync({FULL}, in[i], 1);  // here",
            INDEX + f"float x = i < n ? in[i] : 0.0f;\nx = __shfl_down_sync({FULL}, x, 1);\nif (i < n) out[i] = x;"),
    Planted("shuffle_in_half_a_warp", "absent lane",
            f"if (threadIdx.x % 32 < 16) __shfl_xor_sync({FULL}, 1, 1);  // here",
            "if (threadIdx.x % 32 < 16) __shfl_xor_sync(0x0000ffffu, 1, 1);"),
    Planted("partial_warp", "absent lane", f"__shfl_xor_sync({FULL}, 1, 1);  // here",
            f"const unsigned mask = threadIdx.x < 32 ? {FULL} : 0x0000ffffu;\n__shfl_xor_sync(mask, 1, 1);",
            threads=48),
    Planted("mask_without_the_caller", "absent lane", "__ballot_sync(1u, 1);  // here",
            "if (threadIdx.x % 32 == 0) __ballot_sync(1u, 1);"),
    Planted("warp_at_two_collectives", "lanes disagree",
            f"if (threadIdx.x % 2) __syncwarp();  // here\nelse __ballot_sync({FULL}, 1);  // here",
            f"__syncwarp();\n__ballot_sync({FULL}, 1);"),
    Planted("masks_disagree", "lanes disagree",
            f"__syncwarp(threadIdx.x % 32 < 31 ? {FULL} : 0x80000001u);  // here", f"__syncwarp({FULL});"),
    Planted("shuffle_among_twelve", "shuffle width", f"__shfl_down_sync({FULL}, 1, 3, n / 8);  // here",
            f"__shfl_down_sync({FULL}, 1, 3, n / 6);"),
    Planted("shuffle_among_more_than_a_warp", "shuffle width", f"__shfl_xor_sync({FULL}, 1, 3, blockDim.x);  // here",
            f"__shfl_xor_sync({FULL}, 1, 3, blockDim.x / 2);"),
    Planted("endless_loop_that_reads", "hang", GUARD + "while (in[i] == in[i]) {}  // here", GUARD + "out[i] = in[i];"),
    Planted("endless_loop_of_shuffles", "hang",
            f"for (int d = 16; d >= 0; d /= 2) __shfl_xor_sync({FULL}, d, d);  // here",
            f"for (int d = 16; d > 0; d /= 2) __shfl_xor_sync({FULL}, d, d);"),
    Planted("endless_loop_of_arithmetic", "hang",
            GUARD + "unsigned x = i;\nwhile (x != 101) x *= 2;  // here\nout[i] = x;",
            GUARD + "unsigned x = i;\nwhile (x != 0) x *= 2;\nout[i] = x;"),
    Planted("index_overflows", "signed overflow", GUARD + "out[i] = in[(n * 50000000) % 2];  // here",
            GUARD + "out[i] = in[(n * 50000000LL) % 2];"),
    Planted("column_past_its_row", "index",
            "__shared__ float tile[64][3];\nfor (int k = 0; k <= 3; ++k) tile[threadIdx.x / 2][k] = 1.0f;  // here",
            "__shared__ float tile[64][3];\nfor (int k = 0; k < 3; ++k) tile[threadIdx.x][k] = 1.0f;"),
    Planted("divides_by_zero", "division", GUARD + "out[i] = 7 / (n - 100);  // here", GUARD + "out[i] = 7 / n;"),
    Planted("shifts_too_far", "shift", GUARD + "out[i] = 1u << (n - 50);  // here",
            GUARD + "out[i] = 1u << (n % 32);"),
    Planted("half_past_the_end", "out-of-bounds read",
            GUARD + "out[i] = __half2float(((const __half*)in)[i + n + 1]);  // here",
            GUARD + "out[i] = __half2float(((const __half*)in)[i + n]);", "in", before="#include <cuda_fp16.h>\n"),
    Planted("half_made_float_past_the_end", "out-of-bounds read",
            GUARD + "out[i] = float(((const __half*)in)[i + n + 1]);  // here",
            GUARD + "out[i] = float(((const __half*)in)[i + n]);", "in", before="#include <cuda_fp16.h>\n"),
    Planted("bfloat16_past_the_end", "out-of-bounds read",
            GUARD + "out[i] = __bfloat162float(((const __nv_bfloat16*)in)[i + n + 1]);  // here",
            GUARD + "out[i] = __bfloat162float(((const __nv_bfloat16*)in)[i + n]);", "in",
            before="#include <cuda_bf16.h>\n"),
    Planted("recursion_without_end", "stack overflow", GUARD + "out[i] = deep(i);",
            GUARD + "out[i] = deep(0);",
            before="__device__ __noinline__ int deep(int n) {\nvolatile int kept = n;  // here\n"
            "return kept == 0 ? 0 : deep(kept + 1) + kept;  // here\n}\n"),
    Planted("array_larger_than_the_stack", "stack overflow", GUARD + "out[i] = wide<90000>(i);",
            GUARD + "out[i] = wide<900>(i);",
            before="template <int n>\n__device__ __noinline__ float wide(int i) {  // here\n"
            "volatile float kept[n];  // here\nkept[i] = 1.0f;  // here\nreturn kept[i];\n}\n"),
    Planted("index_in_a_helper", "out-of-bounds read", GUARD + "out[i] = get(in, i + 1);",
            GUARD + "out[i] = get(in, i);",
            "in", before="__device__ __forceinline__ float get(const float* p, int i) {\nreturn p[i];  // here\n}\n"),
)  # fmt: skip


def planted_text(name: str, body: str, before: str) -> str:
    head = f'extern "C" __global__ void {name}(const float* in, float* out, float* scratch, int n) {{'
    return f"{before}{head}\n{body}\n}}\n"


def planted_variants(planted: Planted) -> tuple[Variant, Variant]:
    launch = Launch(
        grid(N.ceil_div(planted.threads)), (planted.threads, 1, 1), ("in", "out", "scratch", COUNT),
        shared_bytes=constant(planted.shared_bytes),
    )  # fmt: skip
    plan = Plan((launch,), (Scratch("scratch", N * 4),))
    return fake_variant(f"{planted.name}_faulty", (IN, OUT), plan), fake_variant(planted.name, (IN, OUT), plan)


@pytest.fixture(scope="module")
def planted_kernels(cache: Path) -> Mapping[str, tuple[HostKernel, HostKernel]]:
    """Every planted fault and its clean twin, built together."""
    pairs = {planted.name: planted_variants(planted) for planted in PLANTED}
    texts = {}
    for planted in PLANTED:
        faulty, clean = pairs[planted.name]
        texts[faulty.name] = planted_text(faulty.name, planted.faulty, planted.before)
        texts[clean.name] = planted_text(clean.name, planted.clean, planted.before)
    runner = HostRunner(H100, cache=cache, text=lambda variant: texts[variant.name])
    kernels = iter(runner.load([variant for pair in pairs.values() for variant in pair]))
    return {name: (next(kernels), next(kernels)) for name in pairs}


def arrays(n: int = 100) -> dict[str, Any]:
    return {"in": np.arange(n, dtype=np.float32), "out": np.zeros(n, np.float32)}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_planted_fault_is_found(planted: Planted, planted_kernels: Mapping[str, tuple[HostKernel, HostKernel]]) -> None:
    kernel, _ = planted_kernels[planted.name]
    with pytest.raises(HostFault) as caught:
        kernel.run({"n": 100}, arrays())
    fault = caught.value
    assert fault.kind == planted.kind
    assert fault.kernel == kernel.variant.name
    assert fault.source.endswith("// here"), str(fault)
    assert fault.thread[0] < planted.threads
    if planted.buffer:
        assert fault.buffer == planted.buffer
    assert f"{kernel.variant.name}.cu:{fault.line}: `{fault.source}`" in str(fault)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_clean_twin_passes(planted: Planted, planted_kernels: Mapping[str, tuple[HostKernel, HostKernel]]) -> None:
    _, kernel = planted_kernels[planted.name]
    for _ in range(2):
        kernel.run({"n": 100}, arrays())


def run_text(
    cache: Path, text: str, operands: Sequence[Operand], plan: Plan, extents: Mapping[str, int],
    buffers: Mapping[str, Any], *, limits: Limits = H100, seed: int = 0, label: str = "made", runs: int = 1,
) -> None:  # fmt: skip
    """Builds `text`, in which NAME is the kernel's name, and runs it."""
    made = fake_variant(label, tuple(operands), plan)
    runner = HostRunner(limits, cache=cache, text=lambda variant: text.replace("NAME", variant.name), seed=seed)
    (kernel,) = runner.load([made])
    for _ in range(runs):
        kernel.run(extents, buffers)


def one_launch(threads: int = 64, blocks: Expr = ONE, *arguments: str | tuple[DType, Expr], **others: Any) -> Plan:
    return Plan((Launch(grid(blocks), (threads, 1, 1), arguments or ("in", "out", COUNT), **others),))


SHUFFLE = """
extern "C" __global__ void NAME(const float* in, float* out, int n) {
  if (threadIdx.x >= 24) return;
  const float other = __shfl_down_sync(0x00ffffffu, in[threadIdx.x], 8);
  out[threadIdx.x] = USED ? other : 0.0f;
}
"""


def _text_in(texts: Mapping[str, str], variant: Variant) -> str:
    return texts[variant.name]


def test_a_value_from_a_lane_outside_the_mask_may_be_dropped_and_shows_where_it_is_used(cache: Path) -> None:
    """PTX ISA: a shuffle from a lane that its mask does not name gives an undefined value, and breaks no rule."""
    results = {}
    for used in ("threadIdx.x < 16", "true"):
        made = fake_variant(f"shuffle_{len(used)}", (IN, OUT), one_launch(32))
        texts = {made.name: SHUFFLE.replace("NAME", made.name).replace("USED", used)}
        (kernel,) = HostRunner(H100, cache=cache, text=partial(_text_in, texts)).load([made])
        runs = [arrays(24), arrays(24)]
        for buffers in runs:
            kernel.run({"n": 24}, buffers)
        assert "which its mask 0x00ffffff does not name" in kernel.undefined
        assert f"{made.name}.cu:4: `const float other" in kernel.undefined
        results[used] = [buffers["out"] for buffers in runs]
    first, second = results["threadIdx.x < 16"]
    assert np.array_equal(first, second)
    assert np.array_equal(first[:16], np.arange(8, 24))
    first, second = results["true"]
    assert not np.array_equal(first[16:], second[16:])


COPY = """
extern "C" __global__ void NAME(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}
"""
COPY_PLAN = one_launch(64, N.ceil_div(64))


@pytest.mark.parametrize("offset", range(4))
def test_arrays_may_start_at_any_element(cache: Path, offset: int) -> None:
    source = np.arange(104, dtype=np.float32)[offset : offset + 100]
    memory = np.full(104, 7.0, np.float32)
    run_text(cache, COPY, (IN, OUT), COPY_PLAN, {"n": 100}, {"in": source, "out": memory[offset : offset + 100]})
    assert np.array_equal(memory[offset : offset + 100], source)
    assert (memory[:offset] == 7.0).all()
    assert (memory[offset + 100 :] == 7.0).all()


def test_base_alignment_is_the_callers(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME(const float* in, float* out, int n) {
      out[0] = (float)((size_t)in % 256);
    }
    """
    memory = np.zeros(300, np.float32)
    for start in (0, 1, 2, 33):
        out = np.zeros(1, np.float32)
        source = memory[start : start + 100]
        run_text(cache, text, (IN, OUT), one_launch(1), {"n": 100}, {"in": source, "out": out})
        assert out[0] == source.ctypes.data % 256


PITCHED = """
extern "C" __global__ void NAME(const float* in, float* out, long long in_pitch, long long out_pitch, int n) {
  out[blockIdx.x * out_pitch + threadIdx.x] = in[blockIdx.x * in_pitch + threadIdx.x];
}
"""


def pitched_plan() -> Plan:
    from gen.dtypes import I64

    pitches = ((I64, size("in_pitch")), (I64, size("out_pitch")))
    return one_launch(8, size("rows"), "in", "out", *pitches, COUNT)


def test_pitched_rows(cache: Path) -> None:
    source = np.arange(5 * 12, dtype=np.float32).reshape(5, 12)[:, 2:10]
    memory = np.full((5, 11), 7.0, np.float32)
    extents = {"rows": 5, "in_pitch": 12, "out_pitch": 11, "n": 8}
    buffers = {"in": source, "out": memory[:, 1:9]}
    run_text(cache, PITCHED, (IN, OUT), pitched_plan(), extents, buffers)
    assert np.array_equal(memory[:, 1:9], source)
    assert (memory[:, 0] == 7.0).all()
    assert (memory[:, 9:] == 7.0).all()


@pytest.mark.parametrize(("name", "in_pitch", "out_pitch"), [("out", 11, 10), ("in", 10, 11)])
def test_what_lies_between_rows_belongs_to_no_element(cache: Path, name: str, in_pitch: int, out_pitch: int) -> None:
    """Rows of 8 that begin 11 elements apart; a pitch of 10 has the second begin where the gap ends."""
    memory = np.full((2, 2, 11), 7.0, np.float32)
    extents = {"rows": 2, "in_pitch": in_pitch, "out_pitch": out_pitch, "n": 8}
    with pytest.raises(HostFault, match="outside the row") as caught:
        run_text(cache, PITCHED, (IN, OUT), pitched_plan(), extents, {"in": memory[0, :, :8], "out": memory[1, :, :8]})
    fault = caught.value
    assert fault.kind == f"out-of-bounds {'write' if name == 'out' else 'read'}"
    assert (fault.buffer, fault.offset, fault.block, fault.thread) == (name, 40, (1, 0, 0), (0, 0, 0))
    assert fault.source.startswith("out[blockIdx.x * out_pitch")


def test_a_vector_over_the_end_of_a_row_is_out_of_bounds(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME(const float* in, float* out, long long in_pitch, long long out_pitch, int n) {
      const float2 pair = *(const float2*)(in + blockIdx.x * in_pitch + 2 * threadIdx.x);
      out[blockIdx.x * out_pitch + threadIdx.x] = pair.x;
    }
    """
    memory = np.zeros((3, 16), np.float32)
    for width in (16, 15):
        buffers = {"in": memory[:, :width], "out": np.zeros((3, 8), np.float32)}
        extents = {"rows": 3, "in_pitch": 16, "out_pitch": 8, "n": 8}
        if width == 16:
            run_text(cache, text, (IN, OUT), pitched_plan(), extents, buffers)
        else:
            with pytest.raises(HostFault, match="out-of-bounds read") as caught:
                run_text(cache, text, (IN, OUT), pitched_plan(), extents, buffers)
            assert (caught.value.thread[0], caught.value.offset % 64) == (7, 56)


def test_gaps_of_an_array() -> None:
    memory = np.zeros((6, 5, 8), np.float32)
    assert levels(memory) == levels(memory[2:4]) == levels(memory.transpose(2, 0, 1)) == levels(memory[::-1]) == ()
    assert levels(memory[:, :, :7]) == ((32, 28),)
    assert levels(memory[:, :3]) == ((160, 96),)
    assert levels(memory[:, :3, 1:4]) == levels(memory[::-1, :3, 1:4]) == ((160, 76), (32, 12))
    assert levels(memory[:, :3, ::2]) == ((160, 92), (8, 4))
    assert levels(memory[:, :1, :2]) == ((160, 8),)
    assert levels(memory[0, 0, ::3]) == ((12, 4),)
    assert levels(np.broadcast_to(memory[0], (3, 5, 8))) == ()  # rows on each other
    assert levels(np.lib.stride_tricks.sliding_window_view(memory[0, 0], 3)) == ()


def levels(array: np.ndarray[Any, Any]) -> tuple[tuple[int, int], ...]:
    return levels_of(array.shape, array.strides, array.itemsize)


def test_rows_in_reverse(cache: Path) -> None:
    source = np.arange(5 * 8, dtype=np.float32).reshape(5, 8)
    out = np.zeros((5, 8), np.float32)
    extents = {"rows": 5, "in_pitch": -8, "out_pitch": 8, "n": 8}
    run_text(cache, PITCHED, (IN, OUT), pitched_plan(), extents, {"in": source[::-1], "out": out})
    assert np.array_equal(out, source[::-1])


def test_nothing_is_launched_where_the_grid_is_empty(cache: Path) -> None:
    empty = np.zeros(0, np.float32)
    run_text(cache, COPY, (IN, OUT), COPY_PLAN, {"n": 0}, {"in": empty, "out": empty.copy()})


def test_scratch_stays_and_is_zeroed_once(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME(float* out, unsigned* ticket) { out[0] = (float)atomicAdd(ticket, 1u); }
    """
    plan = Plan((Launch(grid(ONE), (1, 1, 1), ("out", "ticket")),), (Scratch("ticket", constant(4), zeroed=True),))
    out = np.zeros(1, np.float32)
    for runs in (1, 2, 3):
        run_text(cache, text, (OUT,), plan, {"n": 1}, {"out": out}, runs=runs)
        assert out[0] == runs - 1


def test_launches_repeat_and_swap(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME_fill(const float* in, float* a) { a[threadIdx.x] = in[threadIdx.x]; }
    extern "C" __global__ void NAME(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x] * 2.0f; }
    extern "C" __global__ void NAME_store(const float* a, float* out) { out[threadIdx.x] = a[threadIdx.x]; }
    """
    block = (8, 1, 1)
    plan = Plan(
        (
            Launch(grid(ONE), block, ("in", "a"), entry="_fill"),
            Launch(grid(ONE), block, ("a", "b"), times=size("steps"), swap=(("a", "b"),)),
            Launch(grid(ONE), block, ("a", "out"), entry="_store"),
        ),
        (Scratch("a", constant(32)), Scratch("b", constant(32))),
    )
    for steps in (0, 1, 2, 5):
        buffers = arrays(8)
        run_text(cache, text, (IN, OUT), plan, {"n": 8, "steps": steps}, buffers, runs=2)
        assert np.array_equal(buffers["out"], buffers["in"] * 2.0**steps)


def test_constants_and_numbers(cache: Path) -> None:
    text = """
    __constant__ float weights[3];
    extern "C" __global__ void NAME(float* out, float factor, int n) {
      for (int i = 0; i < n; ++i) out[i] = weights[i] * factor;
    }
    """
    weights = np.array([1.0, 2.0, 4.0], np.float32)
    launch = Launch(grid(ONE), (1, 1, 1), ("out", "factor", COUNT))
    out = np.zeros(3, np.float32)
    operands = (OUT, Operand("factor", "number", F32))
    plan = Plan((launch,), constants=(("weights", weights.tobytes()),))
    run_text(cache, text, operands, plan, {"n": 3}, {"out": out, "factor": 0.5})
    assert np.array_equal(out, weights * 0.5)
    with pytest.raises(HostFault) as caught:
        run_text(cache, text, operands, plan, {"n": 4}, {"out": np.zeros(4, np.float32), "factor": 0.5})
    assert caught.value.kind in ("out-of-bounds read", "index")
    wrong = Plan((launch,), constants=(("weights", weights.tobytes()[:8]),))
    with pytest.raises(RunError, match=r"weights must be a __constant__ variable of 8 bytes.*12 bytes"):
        run_text(cache, text, operands, wrong, {"n": 3}, {"out": out, "factor": 0.5})


def test_order_is_the_seeds(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME(float* out, unsigned* ticket, int n) {
      __shared__ int turn;
      if (threadIdx.x == 0) turn = 0;
      __syncthreads();
      const int first = atomicAdd(&turn, 1) == 0;
      if (first) out[blockIdx.x] = 1000.0f * threadIdx.x + atomicInc(ticket, n - 1);
    }
    """
    launch = Launch(grid(N), (64, 1, 1), ("out", "ticket", COUNT))
    plan = Plan((launch,), (Scratch("ticket", constant(4), zeroed=True),))
    orders = []
    for seed in (1, 1, 2):
        out = np.zeros(50, np.float32)
        run_text(cache, text, (OUT,), plan, {"n": 50}, {"out": out}, seed=seed)
        assert sorted(out % 1000) == list(range(50))  # every block once
        orders.append(out)
    assert np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0] % 1000, orders[2] % 1000)
    assert not np.array_equal(orders[0] // 1000, orders[2] // 1000)


def test_another_device_runs_the_same_code(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME(float* out, int n) {
      for (int i = blockIdx.x; i < n; i += gridDim.x) out[i] = gridDim.x;
    }
    """
    made = fake_variant("device", (OUT,), one_launch(1, size("sm_count") * 2, "out", COUNT))
    runner = HostRunner(H100, cache=cache, text=lambda variant: text.replace("NAME", variant.name))
    small = Limits("sm_90", 1, H100.shared_bytes_per_block, H100.registers_per_sm, H100.threads_per_sm)
    for limits in (H100, small):
        out = np.zeros(300, np.float32)
        (kernel,) = runner.on(limits).load([made])
        kernel.run({"n": 300}, {"out": out})
        assert (out == 2 * limits.sm_count).all()


LAUNCHES = {
    "threads": (Launch(grid(ONE), (1025, 1, 1), ("in", "out", COUNT)), "1 to 1024 threads"),
    "block z": (Launch(grid(ONE), (1, 1, 65), ("in", "out", COUNT)), "at most 64 along z"),
    "grid y": (Launch((ONE, constant(65536), ONE), (1, 1, 1), ("in", "out", COUNT)), "65535"),
    "grid z": (Launch((ONE, ONE, constant(65536)), (1, 1, 1), ("in", "out", COUNT)), "65535"),
    "dynamic": (Launch(grid(ONE), (1, 1, 1), ("in", "out", COUNT), shared_bytes=constant(232449)), "232448 bytes"),
    "too few arguments": (Launch(grid(ONE), (1, 1, 1), ("in", "out")), "arguments that its plan passes"),
    "a pointer for a number": (Launch(grid(ONE), (1, 1, 1), ("in", "out", "out")), "arguments that its plan passes"),
    "a wide number": (Launch(grid(ONE), (1, 1, 1), ("in", "out", (DType("i64", "long long", 8, "int"), N))), "p8 i8"),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_launch_that_a_gpu_refuses(cache: Path, name: str) -> None:
    launch, says = LAUNCHES[name]
    with pytest.raises(RunError, match=says):
        run_text(cache, COPY, (IN, OUT), Plan((launch,)), {"n": 4}, arrays(4))


def test_static_shared_memory_has_a_limit(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME(float* out) {
      __shared__ float tile[COUNT];
      tile[threadIdx.x] = 1.0f;
      out[0] = tile[threadIdx.x];
    }
    """
    plan = one_launch(1, ONE, "out")
    run_text(cache, text.replace("COUNT", "12288"), (OUT,), plan, {"n": 1}, {"out": np.zeros(1, np.float32)})
    with pytest.raises(RunError, match="49152"):
        run_text(cache, text.replace("COUNT", "12289"), (OUT,), plan, {"n": 1}, {"out": np.zeros(1, np.float32)})


def test_number_that_its_type_cannot_hold(cache: Path) -> None:
    with pytest.raises(RunError, match="number of type i32"):
        run_text(cache, COPY, (IN, OUT), one_launch(64, ONE, "in", "out", (I32, N * 2**31)), {"n": 4}, arrays(4))


def test_arrays_that_are_not_the_specs(cache: Path) -> None:
    with pytest.raises(RunError, match=r"out must be given"):
        run_text(cache, COPY, (IN, OUT), COPY_PLAN, {"n": 4}, {"in": np.zeros(4, np.float32)})
    with pytest.raises(RunError, match=r"in must be an array of f32.*float64"):
        run_text(cache, COPY, (IN, OUT), COPY_PLAN, {"n": 4}, {**arrays(4), "in": np.zeros(4)})


def test_process_lives_on_after_a_fault(planted_kernels: Mapping[str, tuple[HostKernel, HostKernel]]) -> None:
    faulty, clean = planted_kernels["barrier_missing"]
    for _ in range(3):
        with pytest.raises(HostFault):
            faulty.run({"n": 100}, arrays())
        clean.run({"n": 100}, arrays())


SHUFFLES = """
extern "C" __global__ void NAME(const unsigned* in, unsigned* out, int width) {
  const unsigned all = 0xffffffffu, x = in[threadIdx.x];
  unsigned* mine = out + threadIdx.x * 12;
  mine[0] = __shfl_sync(all, x, 5, width);
  mine[1] = __shfl_up_sync(all, x, 3, width);
  mine[2] = __shfl_down_sync(all, x, 3, width);
  mine[3] = __shfl_xor_sync(all, x, 5, width);
  mine[4] = __ballot_sync(all, x % 3 == 0);
  mine[5] = __any_sync(all, x == 7) + 2 * __all_sync(all, x < 32);
  mine[6] = __reduce_add_sync(all, x);
  mine[7] = __reduce_max_sync(all, x) + 100 * __reduce_min_sync(all, x);
  mine[8] = __reduce_xor_sync(all, x) + __reduce_or_sync(all, x) + __reduce_and_sync(all, x);
  mine[9] = __match_any_sync(all, x % 4);
  mine[10] = __reduce_min_sync(all, (int)x - 16);
  mine[11] = (unsigned)(__shfl_down_sync(all, (unsigned long long)x << 32, 1, width) >> 32);
}
"""


@pytest.mark.parametrize("width", [32, 16, 8, 4])
def test_warp_collectives(cache: Path, width: int) -> None:
    lanes = np.arange(32)
    values = np.random.default_rng(5).permutation(32).astype(np.uint32)
    out = np.zeros((32, 12), np.uint32)
    operands = (Operand("in", "in", U32, ("n",)), Operand("out", "out", U32, ("n",)))
    plan = one_launch(32, ONE, "in", "out", (I32, size("width")))
    run_text(cache, SHUFFLES, operands, plan, {"n": 32, "width": width}, {"in": values, "out": out})
    first = lanes // width * width
    last = first + width - 1

    def sources(wanted: np.ndarray[Any, Any], valid: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return values[np.where(valid, wanted, lanes)]

    always = np.ones(32, bool)
    below, above, across = lanes - 3, lanes + 3, lanes ^ 5
    assert np.array_equal(out[:, 0], sources(first + 5 % width, always))
    assert np.array_equal(out[:, 1], values[np.where(below >= first, below, lanes)])
    assert np.array_equal(out[:, 2], values[np.where(above <= last, above, lanes)])
    assert np.array_equal(out[:, 3], values[np.where(across <= last, across, lanes)])
    assert (out[:, 4] == sum(1 << int(lane) for lane in lanes if values[lane] % 3 == 0)).all()
    assert (out[:, 5] == 3).all()
    assert (out[:, 6] == 31 * 16).all()
    assert (out[:, 7] == 31).all()
    assert (out[:, 8] == 31).all()  # 0..31: exclusive or 0, or 31, and 0
    for lane in lanes:
        equal = sum(1 << int(other) for other in lanes if values[other] % 4 == values[lane] % 4)
        assert out[lane, 9] == equal
    assert (out[:, 10].view(np.int32) == -16).all()
    after = lanes + 1
    assert np.array_equal(out[:, 11], values[np.where(after <= last, after, lanes)])


INTRINSICS = """
extern "C" __global__ void NAME(const unsigned* in, unsigned* out) {
  const unsigned a = in[0], b = in[1], c = in[2];
  out[0] = __byte_perm(a, b, 0x5140);
  out[1] = __byte_perm(a, b, 0xf7a2);
  out[2] = __funnelshift_r(a, b, c);
  out[3] = __funnelshift_l(a, b, c);
  out[4] = __funnelshift_rc(a, b, 40);
  out[5] = __funnelshift_lc(a, b, 40);
  out[6] = __dp4a(a, b, c);
  out[7] = (unsigned)__dp4a((int)a, (int)b, (int)c);
  out[8] = __vminu4(a, b);
  out[9] = __vmaxs4(a, b);
  out[10] = __vadd4(a, b);
  out[11] = (unsigned)__popc(a) + 100u * (unsigned)__clz((int)(a >> 3)) + 10000u * (unsigned)__ffs((int)(a & ~1u));
  out[12] = __brev(a);
  out[13] = __float_as_uint(fmaf(__uint_as_float(0x3f800001u), __uint_as_float(0x3f800001u), -1.0f));
  out[14] = (unsigned)min(3, -5) + max(7u, 4u) + (unsigned)min(9LL, 1LL << 40);
  out[15] = __vmaxu2(a, b);
  out[16] = __umulhi(a, b);
}
"""


def test_intrinsics_of_a_word(cache: Path) -> None:
    a, b, c = 0x81F2037C, 0x7E0DFC83, 13
    out = np.zeros(17, np.uint32)
    operands = (Operand("in", "in", B32, ("n",)), Operand("out", "out", B32, ("n",)))
    plan = one_launch(1, ONE, "in", "out")
    run_text(cache, INTRINSICS, operands, plan, {"n": 17}, {"in": np.array([a, b, c], np.uint32), "out": out})
    bytes_a, bytes_b = a.to_bytes(4, "little"), b.to_bytes(4, "little")
    both = bytes_a + bytes_b

    def signed(byte: int) -> int:
        return byte - 256 if byte > 127 else byte

    def word(parts: Sequence[int]) -> int:
        return int.from_bytes(bytes(part % 256 for part in parts), "little")

    joined = b << 32 | a
    product = np.float32(1.0000001192092896) ** 2
    assert float(product) == 1.000000238418579  # rounded: the fused result keeps 2^-46 more
    exact = np.float32(2.0**-22 + 2.0**-46)
    halves = [max(a >> shift & 65535, b >> shift & 65535) << shift for shift in (0, 16)]
    assert out.tolist() == [
        word([both[0], both[4], both[1], both[5]]),
        word([both[2], 255 * (both[2] >> 7), both[7], 255 * (both[7] >> 7)]),
        joined >> c & 0xFFFFFFFF,
        joined << c >> 32 & 0xFFFFFFFF,
        b,
        a,
        (sum(x * y for x, y in zip(bytes_a, bytes_b, strict=True)) + c) % 2**32,
        (sum(signed(x) * signed(y) for x, y in zip(bytes_a, bytes_b, strict=True)) + c) % 2**32,
        word([min(x, y) for x, y in zip(bytes_a, bytes_b, strict=True)]),
        word([max(signed(x), signed(y)) for x, y in zip(bytes_a, bytes_b, strict=True)]),
        word([x + y for x, y in zip(bytes_a, bytes_b, strict=True)]),
        a.bit_count() + 100 * (32 - (a >> 3).bit_length()) + 10000 * 3,
        int(f"{a:032b}"[::-1], 2),
        int(exact.view(np.uint32)),
        (-5 + 7 + 9) % 2**32,
        sum(halves),
        a * b >> 32,
    ]


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


def compute(cache: Path, expressions: Sequence[str], rows: np.ndarray[Any, Any], before: str = "") -> Any:
    """For each row of three words a, b, c the value of each expression; out has a column for each."""
    stores = "\n".join(f"mine[{place}] = (unsigned)({text});" for place, text in enumerate(expressions))
    text = f"""{before}
    extern "C" __global__ void NAME(const unsigned* in, unsigned* out) {{
      const unsigned a = in[3 * threadIdx.x], b = in[3 * threadIdx.x + 1], c = in[3 * threadIdx.x + 2];
      unsigned* mine = out + threadIdx.x * {len(expressions)};
      {stores}
    }}
    """
    out = np.zeros((len(rows), len(expressions)), np.uint32)
    operands = (Operand("in", "in", B32, ("n",)), Operand("out", "out", B32, ("n",)))
    plan = one_launch(len(rows), ONE, "in", "out")
    run_text(cache, text, operands, plan, {"n": 1}, {"in": np.ascontiguousarray(rows), "out": out})
    return out


def words(count: int, seed: int = 3) -> np.ndarray[Any, Any]:
    """Rows of three words; many of their bytes are the ends of a range."""
    random = np.random.default_rng(seed)
    drawn = random.integers(0, 256, (count, 12), np.uint8)
    ends = random.choice(np.array([0, 1, 127, 128, 129, 255], np.uint8), drawn.shape)
    return np.where(random.random(drawn.shape) < 0.5, drawn, ends).astype(np.uint8).view(np.uint32)


def simd(lanes: int) -> dict[str, np.ndarray[Any, Any]]:
    """What the intrinsics on so many lanes of a word must give, for `words(64)`."""
    size, bits = 4 // lanes, 32 // lanes
    raw = np.ascontiguousarray(words(64)[:, :2])
    unsigned = [raw[:, i].copy().view(f"u{size}").astype(np.int64).reshape(-1, lanes) for i in range(2)]
    signed = [raw[:, i].copy().view(f"i{size}").astype(np.int64).reshape(-1, lanes) for i in range(2)]
    low, high, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 2**bits - 1
    (a, b), (x, y) = unsigned, signed
    parts = {
        "vminu": np.minimum(a, b), "vmaxu": np.maximum(a, b), "vmins": np.minimum(x, y), "vmaxs": np.maximum(x, y),
        "vadd": a + b, "vaddss": np.clip(x + y, low, high), "vaddus": np.clip(a + b, 0, most),
        "vsub": a - b, "vsubss": np.clip(x - y, low, high), "vsubus": np.clip(a - b, 0, most),
        "vabsdiffs": abs(x - y), "vabsdiffu": abs(a - b), "vhaddu": (a + b) // 2, "vavgu": (a + b + 1) // 2,
        "vavgs": np.where(x + y < 0, (x + y) // 2, (x + y + 1) // 2),
        "vabs": abs(x), "vabsss": np.clip(abs(x), 0, high), "vneg": -x, "vnegss": np.clip(-x, low, high),
    }  # fmt: skip
    compared = {
        "eq": a == b, "ne": a != b, "ges": x >= y, "geu": a >= b, "gts": x > y, "gtu": a > b,
        "les": x <= y, "leu": a <= b, "lts": x < y, "ltu": a < b,
    }  # fmt: skip
    for name, holds in compared.items():
        parts[f"vcmp{name}"] = np.where(holds, most, 0)
        parts[f"vset{name}"] = holds.astype(np.int64)
    shifts = np.arange(lanes) * bits
    found = {f"__{name}{lanes}": ((part & most) << shifts).sum(axis=1) for name, part in parts.items()}
    return {**found, f"__vsads{lanes}": abs(x - y).sum(axis=1), f"__vsadu{lanes}": abs(a - b).sum(axis=1)}


@pytest.mark.parametrize("lanes", [2, 4])
def test_simd_within_a_word(cache: Path, lanes: int) -> None:
    expected = simd(lanes)
    one = ("vabs", "vneg")
    unary = {f"__{name}{suffix}{lanes}" for name in one for suffix in ("", "ss")}
    expressions = [f"{name}(a)" if name in unary else f"{name}(a, b)" for name in expected]
    out = compute(cache, expressions, words(64))
    assert len(expected) == 41
    for column, (name, values) in enumerate(expected.items()):
        assert np.array_equal(out[:, column], values.astype(np.uint32)), name


def test_more_intrinsics_of_a_word(cache: Path) -> None:
    rows = words(64, seed=4)
    unsigned = [[int(value) for value in row] for row in rows]
    signed = [[int(value) for value in row] for row in rows.view(np.int32)]

    def half(word: int, place: int) -> int:
        return int(np.uint16(word >> 16 * place & 65535).view(np.int16))

    def byte(word: int, place: int) -> int:
        return int(np.uint8(word >> 8 * place & 255).view(np.int8))

    def low24(word: int) -> int:
        return (word & 0xFFFFFF) - (1 << 24 if word & 0x800000 else 0)

    def wrapped(value: int) -> int:
        return (value + 2**31) % 2**32 - 2**31

    def halves(word: int) -> list[int]:
        return [half(word, 0), half(word, 1)]

    def joined(parts: Sequence[int]) -> int:
        return parts[0] % 65536 | parts[1] % 65536 << 16

    def wrapped16(value: int) -> int:
        return (value + 2**15) % 2**16 - 2**15

    pairs = [list(zip(*map(halves, row), strict=True)) for row in unsigned]
    table: list[tuple[str, list[int]]] = [
        ("__dp2a_lo(a, b, c)",
         [c + sum((a >> 16 * i & 65535) * (b >> 8 * i & 255) for i in (0, 1)) for a, b, c in unsigned]),
        ("__dp2a_hi((int)a, (int)b, (int)c)",
         [c + sum(half(a, i) * byte(b, i + 2) for i in (0, 1)) for a, b, c in unsigned]),
        ("__hadd((int)a, (int)b)", [(a + b) >> 1 for a, b, _ in signed]),
        ("__rhadd((int)a, (int)b)", [(a + b + 1) >> 1 for a, b, _ in signed]),
        ("__uhadd(a, b)", [(a + b) >> 1 for a, b, _ in unsigned]),
        ("__urhadd(a, b)", [(a + b + 1) >> 1 for a, b, _ in unsigned]),
        ("__mul24((int)a, (int)b)", [low24(a) * low24(b) for a, b, _ in unsigned]),
        ("__umul24(a, b)", [(a % 2**24) * (b % 2**24) for a, b, _ in unsigned]),
        ("__mulhi((int)a, (int)b)", [a * b >> 32 for a, b, _ in signed]),
        ("__mul64hi((long long)(int)a << 32, (long long)(int)b << 32)", [a * b for a, b, _ in signed]),
        ("__umul64hi((unsigned long long)a << 32, b)", [a * b >> 32 for a, b, _ in unsigned]),
        ("__sad((int)a, (int)b, c)", [abs(a - b) + c for a, b, c in signed]),
        ("__usad(a, b, c)", [abs(a - b) + c for a, b, c in unsigned]),
        ("__popcll((unsigned long long)a << 32 | b)", [a.bit_count() + b.bit_count() for a, b, _ in unsigned]),
        ("__clzll((long long)b)", [64 - b.bit_length() for _, b, _ in unsigned]),
        ("__ffsll((long long)a << 32)", [(a & -a).bit_length() + 32 if a else 0 for a, _, _ in unsigned]),
        ("__brevll((unsigned long long)a << 32)", [int(f"{a:032b}"[::-1], 2) for a, _, _ in unsigned]),
        ("__viaddmax_s32((int)a, (int)b, (int)c)", [max(wrapped(a + b), c) for a, b, c in signed]),
        ("__viaddmin_u32(a, b, c)", [min((a + b) % 2**32, c) for a, b, c in unsigned]),
        ("__vimax3_u32(a, b, c)", [max(row) for row in unsigned]),
        ("__vimin3_s32_relu((int)a, (int)b, (int)c)", [max(min(row), 0) for row in signed]),
        ("__vimax_s32_relu((int)a, (int)b)", [max(a, b, 0) for a, b, _ in signed]),
        ("__viaddmin_s16x2_relu(a, b, c)",
         [joined([max(min(wrapped16(x + y), z), 0) for x, y, z in row]) for row in pairs]),
        ("__vimax3_s16x2(a, b, c)", [joined([max(part) for part in row]) for row in pairs]),
        ("__byte_perm(a, b, c)",
         [sum((255 * ((a | b << 32) >> 8 * (n & 7) + 7 & 1) if n & 8 else (a | b << 32) >> 8 * (n & 7) & 255) << 8 * i
              for i in range(4) for n in [c >> 4 * i & 15]) for a, b, c in unsigned]),
    ]  # fmt: skip
    out = compute(cache, [expression for expression, _ in table], rows)
    for column, (expression, values) in enumerate(table):
        assert out[:, column].tolist() == [value % 2**32 for value in values], expression


def test_numbers_become_integers(cache: Path) -> None:
    """Rounded in all four ways; what does not fit becomes the nearest that does."""
    numbers = np.array([0.5, 1.5, -0.5, -2.5, 2.49, 3e9, -3e9, 5e9, 1e19, -1e19, np.inf, -np.inf, np.nan], np.float32)
    rounds = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
    ranges = {"int": (-(2**31), 2**31 - 1), "uint": (0, 2**32 - 1)}
    expressions, expected = [], []
    for target, (low, high) in ranges.items():
        for name, rounded in rounds.items():
            for source in ("float", "double"):
                expressions.append(f"__{source}2{target}_{name}(__uint_as_float(a))")
                values = np.nan_to_num(np.clip(rounded(numbers.astype(np.float64)), low, high))
                expected.append([int(value) % 2**32 for value in values])
    rows = np.repeat(numbers.view(np.uint32)[:, None], 3, axis=1)
    out = compute(cache, expressions, rows)
    for column, expression in enumerate(expressions):
        assert out[:, column].tolist() == expected[column], expression


def test_matches_and_the_active_mask(cache: Path) -> None:
    votes = """
    __device__ unsigned match_all(unsigned mask, unsigned long long value) {
      int all;
      const unsigned lanes = __match_all_sync(mask, value, &all);
      return lanes ^ (all ? 0x10000u : 0u);
    }
    """
    rows = np.zeros((32, 3), np.uint32)
    rows[:, 0] = np.arange(32) // 8
    rows[:16, 1] = 7
    rows[16:, 1] = np.arange(16)
    mask = "(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u)"
    expressions = [
        "__match_any_sync(0xffffffffu, a)", f"match_all({mask}, (unsigned long long)b << 32)", "__activemask()",
        f"__any_sync({mask}, b == 15)", f"__all_sync({mask}, b == 7)", f"__ballot_sync({mask}, a & 1)",
        f"__reduce_add_sync({mask}, b)", f"__reduce_max_sync({mask}, b)", f"__reduce_or_sync({mask}, b)",
    ]  # fmt: skip
    out = compute(cache, expressions, rows, votes)
    lanes = np.arange(32)
    assert out[:, 0].tolist() == [0xFF << lane // 8 * 8 for lane in range(32)]
    assert out[:, 1].tolist() == [0xFFFF ^ 0x10000] * 16 + [0] * 16
    assert (out[:, 2] >> lanes.astype(np.uint32) & 1 == 1).all()
    assert out[:, 3].tolist() == [0] * 16 + [1] * 16
    assert out[:, 4].tolist() == [1] * 16 + [0] * 16
    assert out[:, 5].tolist() == [0x0000FF00] * 16 + [0xFF000000] * 16
    assert out[:, 6].tolist() == [112] * 16 + [120] * 16
    assert out[:, 7].tolist() == [7] * 16 + [15] * 16
    assert out[:, 8].tolist() == [7] * 16 + [15] * 16


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
