"""The CPU run: each detector finds its planted fault, at its line, and passes the clean twin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from gen.families.base import Launch, Plan, Scratch, Variant
from gen.families.expr import constant
from gen.proof import faults, native
from gen.proof.host import HostFault, HostKernel, HostRunner
from gen.proof.twice import called_twice
from tests import races
from tests.fake_family import fake_variant
from tests.host import test_clusters
from tests.host.host_kernels import COUNT, H100, IN, OUT, N, arrays, grid


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
        steps: of all threads of a launch together, after which it is given up.
    """

    name: str
    kind: str
    faulty: str
    clean: str
    buffer: str = ""
    threads: int = 64
    shared_bytes: int = 0
    before: str = ""
    steps: int = native.ANY_STEPS


INDEX = "const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
GUARD = INDEX + "if (i >= n) return;\n"
TILE = "__shared__ float tile[64];\n" + INDEX
DYNAMIC = "extern __shared__ __align__(16) unsigned char shared_bytes[];\nfloat* tile = (float*)shared_bytes;\n" + INDEX
PAIRS = TILE.replace("float tile", "__align__(8) float tile") + "tile[threadIdx.x] = 1.0f;\n__syncthreads();\n"
NUMBERS = "__shared__ Pair pairs[6];\n__shared__ long long single;\n" + INDEX + "if (threadIdx.x == 0) single = i;\n"
TWO_ARRAYS = (
    "__shared__ float first[64], second[64];\n__shared__ __align__(16) float third[4];\n" + INDEX
    + "second[threadIdx.x] = 1.0f;\nif (threadIdx.x < 4) third[threadIdx.x] = 1.0f;\n__syncthreads();\n"
)  # fmt: skip
TWO_READ = "__syncthreads();\nif (i < n) out[i] = first[63 - threadIdx.x] + second[threadIdx.x];"
FULL = "0xffffffffu"
LANE = "const int lane = threadIdx.x % 32;\n"
RING = "__shared__ __align__(16) float ring[2][64];\n" + INDEX + "if (i >= 64) return;\nconst int t = threadIdx.x;\n"
COPY = RING + "__pipeline_memcpy_async(&ring[0][t], in + i, 4);\n__pipeline_commit();\n"
COPY_MORE = "__pipeline_memcpy_async(&ring[1][t], in + i, 4);\n__pipeline_commit();\n"
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
    Planted("structure_by_value_past_the_end", "out-of-bounds read",
            GUARD + "out[i] = sum(((const Many*)in)[i]);  // here\nout[i] += sum(((const Many*)in)[0]);",
            GUARD + "out[i] = sum(((const Many*)in)[i / 32]);\nout[i] += sum(((const Many*)in)[0]);", "in",
            before="struct Many { float x[16]; };\n__device__ float sum(Many many) {\nfloat sum = 0.0f;\n"
            "for (int k = 0; k < 16; ++k) sum += many.x[k] * many.x[15 - k];\nreturn sum;\n}\n"),
    Planted("structure_by_value_from_nowhere", "out-of-bounds read",
            GUARD + "out[i] = first(*(const Many*)(size_t)(64 * i));  // here",
            GUARD + "out[i] = first(*(const Many*)in);",
            before="struct Many { float x[16]; };\n"
            "__device__ __noinline__ float first(Many many) { return many.x[0]; }\n"),
    Planted("atomic_past_the_end", "out-of-bounds write", GUARD + "atomicAdd(scratch + n + i, 1.0f);  // here",
            GUARD + "scratch[i] = 0.0f; atomicAdd(scratch + i, 1.0f);", "scratch"),
    Planted("vector_misaligned", "misaligned",
            GUARD + "if (i < 64) out[i] = ((const float4*)(in + i))->x;  // here",
            GUARD + "if (i < 16) out[i] = ((const float4*)in)[i].x;", "in"),
    Planted("vector_store_misaligned", "misaligned",
            GUARD + "if (i < 64) __stcs((float2*)(out + i), make_float2(1.0f, 2.0f));  // here",
            GUARD + "if (i < 32) __stcs((float2*)out + i, make_float2(1.0f, 2.0f));", "out"),
    Planted("shared_vector_misaligned", "misaligned",
            PAIRS + "const float2 x = *(const float2*)(tile + threadIdx.x / 2);  // here\nif (i < n) out[i] = x.x;",
            PAIRS + "const float2 x = ((const float2*)tile)[threadIdx.x / 2];\nif (i < n) out[i] = x.x;", "tile"),
    Planted("shared_vector_store_misaligned", "misaligned",
            PAIRS + "if (threadIdx.x < 60) __stcg((float2*)(tile + threadIdx.x), make_float2(1.0f, 2.0f));  // here",
            PAIRS + "if (threadIdx.x < 30) __stcg((float2*)tile + threadIdx.x, make_float2(1.0f, 2.0f));", "tile"),
    Planted("shared_vector_of_an_array_of_floats", "misaligned",
            TILE + "if (i < 16) ((float4*)tile)[i] = make_float4(1.0f, 2.0f, 3.0f, 4.0f);  // here",
            TILE.replace("float tile", "__align__(16) float tile")
            + "if (i < 16) ((float4*)tile)[i] = make_float4(1.0f, 2.0f, 3.0f, 4.0f);", "tile"),
    Planted("shared_pair_between_numbers", "misaligned",
            NUMBERS + "*(Pair*)((char*)pairs + 16 * (threadIdx.x % 2) + 4) = Pair{2, 3};  // here",
            NUMBERS + "if (threadIdx.x < 4) pairs[threadIdx.x] = Pair{threadIdx.x, 3};\n"
            "if (threadIdx.x == 5) pairs[5] = pairs[4] = Pair{i, i};", "pairs",
            before="struct Pair { long long x, y; };\n"),
    Planted("shared_vector_of_a_later_array", "misaligned",
            "__shared__ float4 first[3];\n__shared__ unsigned short tile[64];\n"
            "if (threadIdx.x < 32) first[threadIdx.x % 3].x = ((unsigned*)tile)[threadIdx.x] = 0;  // here",
            "__shared__ float4 first[3];\n__shared__ __align__(4) unsigned short tile[64];\n"
            "if (threadIdx.x < 3) first[threadIdx.x].x = ((unsigned*)tile)[threadIdx.x] = 0;", "tile"),
    Planted("dynamic_shared_misaligned", "misaligned",
            DYNAMIC + "if (i < 48) *(float4*)(tile + i) = make_float4(1.0f, 2.0f, 3.0f, 4.0f);  // here",
            DYNAMIC + "if (i < 16) ((float4*)tile)[i] = make_float4(1.0f, 2.0f, 3.0f, 4.0f);",
            "shared_bytes", shared_bytes=256),
    Planted("shared_atomic_misaligned", "misaligned",
            TILE + "if (threadIdx.x == 0) tile[0] = tile[1] = 0.0f;\n__syncthreads();\n"
            "atomicAdd((unsigned*)((char*)tile + 2), 1u);  // here",
            TILE + "if (threadIdx.x == 0) tile[0] = tile[1] = 0.0f;\n__syncthreads();\natomicAdd((unsigned*)tile, 1u);",
            "tile"),
    Planted("shared_array_into_another", "out-of-bounds write",
            TWO_ARRAYS + "float* const p = first;\np[threadIdx.x + 8] = second[threadIdx.x];  // here\n" + TWO_READ,
            TWO_ARRAYS + "float* const p = first;\np[threadIdx.x] = second[threadIdx.x];\n" + TWO_READ, "first"),
    Planted("shared_array_before_itself", "out-of-bounds read",
            TWO_ARRAYS + "const float* const p = second;\nfirst[threadIdx.x] = p[int(threadIdx.x) - 70];  // here\n"
            + TWO_READ,
            TWO_ARRAYS + "const float* const p = second;\nfirst[threadIdx.x] = p[threadIdx.x];\n" + TWO_READ),
    Planted("shared_vector_over_the_end", "out-of-bounds read",
            TWO_ARRAYS + "first[threadIdx.x] = ((const float2*)(third + 2))[threadIdx.x % 2].y;  // here\n" + TWO_READ,
            TWO_ARRAYS + "first[threadIdx.x] = ((const float2*)(third + 2))[threadIdx.x % 1].y;\n" + TWO_READ, "third"),
    Planted("row_of_a_shared_array_past_the_last", "index",
            "__shared__ float tile[8][8];\n__shared__ float other[64];\n" + INDEX
            + "other[threadIdx.x] = 1.0f;\ntile[threadIdx.x / 8 + 1][threadIdx.x % 8] = 1.0f;  // here",
            "__shared__ float tile[8][8];\n__shared__ float other[64];\n" + INDEX
            + "other[threadIdx.x] = 1.0f;\ntile[threadIdx.x / 8][threadIdx.x % 8] = 1.0f;"),
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
    Planted("two_barriers_in_a_line", "barrier", "threadIdx.x < 32 ? __syncthreads() : __syncthreads();  // here",
            "__syncthreads(), __syncthreads();"),
    Planted("helper_with_a_barrier_on_both_sides", "barrier", "if (threadIdx.x < 32)\nmeet();\nelse\nmeet();",
            "if (blockIdx.x == 0)\nmeet();\nelse\nmeet();",
            before="__device__ __forceinline__ void meet() {\n__syncthreads();  // here\n}\n"),
    Planted("function_with_a_barrier_on_both_sides", "barrier", "if (threadIdx.x < 32)\nmeet();\nelse\nmeet();",
            "if (blockIdx.x == 0)\nmeet();\nelse\nmeet();",
            before="__device__ __noinline__ void meet() {\n__syncthreads();  // here\n}\n"),
    Planted("helper_on_both_sides_in_a_line", "barrier", "if (threadIdx.x < 32) meet(); else meet();",
            "if (blockIdx.x == 0) meet(); else meet();",
            before="__device__ __forceinline__ void meet() {\n__syncthreads();  // here\n}\n"),
    Planted("function_on_both_sides_in_a_line", "barrier", "threadIdx.x < 32 ? meet() : meet();",
            "blockIdx.x == 0 ? meet() : meet();",
            before="__device__ __noinline__ void meet() {\n__syncthreads();  // here\n}\n"),
    Planted("both_sides_in_a_macro", "barrier", "MEET(threadIdx.x < 32)", "MEET(blockIdx.x == 0)",
            before="__device__ __forceinline__ void meet() {\n__syncthreads();  // here\n}\n"
            "#define MEET(c) if (c) meet(); else meet();\n"),
    Planted("helper_of_a_helper_on_both_sides", "barrier",
            "if (threadIdx.x < 32)\nmeet_twice();\nelse {\nmeet();\nmeet();\n}",
            "for (int k = 0; k < 4; ++k)\nmeet_twice();",
            before="__device__ __forceinline__ void meet() {\n__syncthreads();  // here\n}\n"
            "__device__ __noinline__ void meet_twice() {\nmeet();\nmeet();\n}\n"),
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
    Planted("shuffles_up_and_down", "lanes disagree",
            LANE + f"if (lane < 16) __shfl_up_sync({FULL}, 1, 1);  // here\n"
            f"else __shfl_down_sync({FULL}, 1, 1);  // here",
            LANE + f"if (lane < 16) __shfl_up_sync({FULL}, 1, 1);\nelse __shfl_up_sync({FULL}, 1, 2);"),
    Planted("shuffles_of_two_sizes", "lanes disagree",
            LANE + f"if (lane < 16) __shfl_xor_sync({FULL}, 1, 1);  // here\n"
            f"else __shfl_xor_sync({FULL}, 1.0, 1);  // here",
            LANE + f"if (lane < 16) __shfl_xor_sync({FULL}, 1, 1);\nelse __shfl_xor_sync({FULL}, 1.0f, 1);"),
    Planted("votes_that_ask_differently", "lanes disagree",
            LANE + f"if (lane < 16) __any_sync({FULL}, 1);  // here\nelse __all_sync({FULL}, 1);  // here",
            f"__any_sync({FULL}, 1);\n__all_sync({FULL}, 1);"),
    Planted("matches_of_any_and_all", "lanes disagree",
            LANE + f"int all;\nif (lane < 16) __match_any_sync({FULL}, 1);  // here\n"
            f"else __match_all_sync({FULL}, 1, &all);  // here",
            f"int all;\n__match_any_sync({FULL}, 1);\n__match_all_sync({FULL}, 1, &all);"),
    Planted("sums_of_signed_and_unsigned", "lanes disagree",
            LANE + f"if (lane < 16) __reduce_add_sync({FULL}, 1);  // here\n"
            f"else __reduce_add_sync({FULL}, 1u);  // here",
            f"__reduce_add_sync({FULL}, 1);\n__reduce_add_sync({FULL}, 1u);"),
    Planted("masks_disagree", "lanes disagree",
            f"__syncwarp(threadIdx.x % 32 < 31 ? {FULL} : 0x80000001u);  // here", f"__syncwarp({FULL});"),
    Planted("masks_in_a_ring", "lanes disagree",
            LANE + "const int right = (lane + 1) % 32, left = (lane + 31) % 32;\n"
            "__syncwarp(1u << lane | 1u << right);  // here\n__syncwarp(1u << lane | 1u << left);",
            LANE + "for (int distance = 1; distance < 32; distance *= 2)\n"
            "__syncwarp(1u << lane | 1u << (lane ^ distance));\n"
            "if (lane == 0) __syncwarp(3u);\nif (lane == 1) __syncwarp(6u), __syncwarp(3u);\n"
            "if (lane == 2) __syncwarp(6u);"),
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
    Planted("float_to_int_out_of_range", "conversion", GUARD + "out[i] = in[int(in[i] * 1e9f) % 2];  // here",
            GUARD + "out[i] = in[(long long)(in[i] * 1e9f) % 2];"),
    Planted("nan_to_int", "conversion", GUARD + "out[i] = int(sqrtf(-in[i] - 1.0f));  // here",
            GUARD + "out[i] = int(sqrtf(in[i] + 1.0f));"),
    Planted("shifts_too_far", "shift", GUARD + "out[i] = 1u << (n - 50);  // here",
            GUARD + "out[i] = 1u << (n % 32);"),
    Planted("returns_nothing", "no return", GUARD + "out[i] = sign(in[i] - 50.0f);", GUARD + "out[i] = sign(in[i]);",
            before="__device__ float sign(float x) {  // here\nif (x >= 0.0f) return 1.0f;  // here\n}  // here\n"),
    Planted("more_steps_than_are_tried", "too long",
            "for (int k = 0; k < 50; ++k) __syncthreads();  // here", "for (int k = 0; k < 10; ++k) __syncthreads();",
            steps=100_000),
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
    Planted("copy_read_before_it_is_waited_for", "copy in flight", COPY + "out[i] = ring[0][t];  // here",
            COPY + "__pipeline_wait_prior(0);\nout[i] = ring[0][t];"),
    Planted("copy_of_a_later_group", "copy in flight",
            COPY + COPY_MORE + "__pipeline_wait_prior(1);\nout[i] = ring[1][t];  // here",
            COPY + COPY_MORE + "__pipeline_wait_prior(1);\nout[i] = ring[0][t];"),
    Planted("copy_that_is_in_no_group", "copy in flight",
            COPY + "__pipeline_memcpy_async(&ring[1][t], in + i, 4);\n__pipeline_wait_prior(0);\n"
            "out[i] = ring[1][t];  // here",
            COPY + COPY_MORE + "__pipeline_wait_prior(0);\nout[i] = ring[1][t];"),
    Planted("copy_into_what_is_being_copied", "copy in flight",
            COPY + "__pipeline_memcpy_async(&ring[0][t], in + i, 4);  // here",
            COPY + "__pipeline_wait_prior(0);\n__pipeline_memcpy_async(&ring[0][t], in + i, 4);"),
    Planted("write_into_what_is_being_copied", "copy in flight", COPY + "ring[0][t] = 1.0f;  // here",
            COPY + "__pipeline_wait_prior(0);\nring[0][t] = 1.0f;"),
    Planted("copy_of_a_neighbour_that_did_not_wait", "copy in flight",
            COPY + "__syncthreads();\nout[i] = ring[0][63 - t];  // here",
            COPY + "__pipeline_wait_prior(0);\n__syncthreads();\nout[i] = ring[0][63 - t];"),
    Planted("copy_past_the_end", "out-of-bounds read",
            RING + "__pipeline_memcpy_async(&ring[0][t], in + i + 64, 4);  // here",
            RING + "__pipeline_memcpy_async(&ring[0][t], in + i + 32, 4);", "in"),
    Planted("copy_misaligned", "misaligned",
            RING + "if (t < 8) __pipeline_memcpy_async(&ring[0][4 * t], in + t + 1, 16);  // here",
            RING + "if (t < 8) __pipeline_memcpy_async(&ring[0][4 * t], in + 4 * t, 16);", "in"),
    Planted("copy_of_three_bytes", "copy",
            RING + "__pipeline_memcpy_async(&ring[0][t], in + i, 3);  // here",
            RING + "__pipeline_memcpy_async(&ring[0][t], in + i, 4);"),
    Planted("copy_to_global_memory", "copy", RING + "__pipeline_memcpy_async(out + i, in + i, 4);  // here",
            RING + "__pipeline_memcpy_async(&ring[0][t], in + i, 4);", "out"),
    Planted("copy_from_shared_memory", "copy",
            RING + "ring[1][t] = 1.0f;\n__pipeline_memcpy_async(&ring[0][t], &ring[1][t], 4);  // here",
            RING + "ring[1][t] = 1.0f;\n__pipeline_memcpy_async(&ring[0][t], in + i, 4);"),
    Planted("copy_of_a_local_array", "copy",
            RING + "const float mine[2] = {in[t], 1.0f};\n"
            "__pipeline_memcpy_async(&ring[0][t], mine + t % 2, 4);  // here",
            RING + "__pipeline_memcpy_async(&ring[0][t], in + t % 2, 4);"),
    Planted("copy_of_what_is_overwritten", "copy in flight",
            RING + "scratch[i] = in[i];\n__pipeline_memcpy_async(&ring[0][t], scratch + i, 4);  // here\n"
            "__pipeline_commit();\nscratch[i] = -1.0f;\n__pipeline_wait_prior(0);",
            RING + "scratch[i] = in[i];\n__pipeline_memcpy_async(&ring[0][t], scratch + i, 4);\n"
            "__pipeline_commit();\n__pipeline_wait_prior(0);\nscratch[i] = -1.0f;", "scratch"),
    Planted("copy_of_what_a_neighbour_overwrites", "copy in flight",
            RING + "scratch[i] = in[i];\n__pipeline_memcpy_async(&ring[0][t], scratch + i, 4);  // here\n"
            "__pipeline_commit();\n__syncthreads();\nscratch[63 - i] = -1.0f;\n__syncthreads();\n"
            "__pipeline_wait_prior(0);",
            RING + "scratch[i] = in[i];\n__pipeline_memcpy_async(&ring[0][t], scratch + i, 4);\n"
            "__pipeline_commit();\n__pipeline_wait_prior(0);\n__syncthreads();\nscratch[63 - i] = -1.0f;", "scratch"),
    Planted("recursion_without_end", "stack overflow", GUARD + "out[i] = deep(i);",
            GUARD + "out[i] = deep(0);",
            before="__device__ __noinline__ int deep(int n) {  // here\nvolatile int kept = n;  // here\n"
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


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_planted_fault_is_found(
    planted: Planted,
    planted_kernels: Mapping[str, tuple[HostKernel, HostKernel]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel, _ = planted_kernels[planted.name]
    monkeypatch.setattr(native, "ANY_STEPS", planted.steps)
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
def test_clean_twin_passes(
    planted: Planted,
    planted_kernels: Mapping[str, tuple[HostKernel, HostKernel]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, kernel = planted_kernels[planted.name]
    monkeypatch.setattr(native, "ANY_STEPS", planted.steps)
    for _ in range(2):
        kernel.run({"n": 100}, arrays())


def test_an_access_near_no_buffer_is_reported_with_its_address(
    planted_kernels: Mapping[str, tuple[HostKernel, HostKernel]],
) -> None:
    faulty, _ = planted_kernels["null_pointer"]
    with pytest.raises(HostFault, match="address 0x0: a null pointer"):
        faulty.run({"n": 100}, arrays())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("if (c) meet(); else meet();", "meet"),
        ("if (a) { if (b) meet(); }  // meet()", None),
        ("meet(load(p), load(q));", None),
        ("both(load(p)); /* both() */ min(min(1, 2), 3);", None),
        ("c ? both<4>(p) : both<4>(q);", "both"),
        ("MEET(1)", "meet"),
        ("tell(1); tell(2);", "tell"),
    ],
)
def test_which_lines_call_a_barrier_twice(line: str, found: str | None) -> None:
    text = f"""#define MEET(c) \\
  if (c) meet();  \\
  else meet();
__device__ void meet() {{ if (true) {{ __syncthreads(); }} }}
__device__ float load(const float* p) {{ return *p; }}
template <int n> __device__ void both(float x) {{ for (;;) {{ meet(); }} }}
__global__ void k() {{ const auto tell = [&](int) {{ both<2>(1.0f); }}; if (1) {{ {line} }} }}
"""
    assert called_twice(text, line) == found


def test_process_lives_on_after_a_fault(planted_kernels: Mapping[str, tuple[HostKernel, HostKernel]]) -> None:
    faulty, clean = planted_kernels["barrier_missing"]
    for _ in range(3):
        with pytest.raises(HostFault):
            faulty.run({"n": 100}, arrays())
        clean.run({"n": 100}, arrays())


def test_every_kind_that_the_runtime_reports_has_a_planted_fault_and_a_clean_twin() -> None:
    """Of the kinds that stand in its sources: those of `enum class Kind`, and those that a report is made of."""
    runtime = Path(native.__file__).parent / "cuda_on_host" / "runtime"
    declared = re.search(r"enum class Kind : int32_t \{([^}]*)\}", (runtime / "interface.h").read_text())
    assert declared is not None
    names = re.findall(r"\bk\w+", declared[1])
    reported = {name for path in runtime.iterdir() for name in re.findall(r"\bKind::(k\w+)", path.read_text())}
    assert reported == set(names), "each is declared, and each is reported somewhere"
    kinds = dict(zip(names, native.KINDS, strict=True))
    planted = {one.kind for table in (PLANTED, races.PLANTED, test_clusters.PLANTED) for one in table}
    assert planted == set(kinds.values()) - {kinds["kNone"]}
    assert set(faults.RULES) == planted
