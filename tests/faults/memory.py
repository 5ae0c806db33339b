"""Faults of a place in memory: outside its buffer, misaligned, written though an input, read before it is written."""

from __future__ import annotations

from tests.faults.fault import GUARD, INDEX, TILE, Planted

DYNAMIC = "extern __shared__ __align__(16) unsigned char shared_bytes[];\nfloat* tile = (float*)shared_bytes;\n" + INDEX
PAIRS = TILE.replace("float tile", "__align__(8) float tile") + "tile[threadIdx.x] = 1.0f;\n__syncthreads();\n"
NUMBERS = "__shared__ Pair pairs[6];\n__shared__ long long single;\n" + INDEX + "if (threadIdx.x == 0) single = i;\n"
TWO_ARRAYS = (
    "__shared__ float first[64], second[64];\n__shared__ __align__(16) float third[4];\n" + INDEX
    + "second[threadIdx.x] = 1.0f;\nif (threadIdx.x < 4) third[threadIdx.x] = 1.0f;\n__syncthreads();\n"
)  # fmt: skip
TWO_READ = "__syncthreads();\nif (i < n) out[i] = first[63 - threadIdx.x] + second[threadIdx.x];"

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
    Planted("index_in_a_helper", "out-of-bounds read", GUARD + "out[i] = get(in, i + 1);",
            GUARD + "out[i] = get(in, i);",
            "in", before="__device__ __forceinline__ float get(const float* p, int i) {\nreturn p[i];  // here\n}\n"),
)  # fmt: skip
