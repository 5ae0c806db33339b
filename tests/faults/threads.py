"""Faults of threads together: races in shared memory, barriers and warps that do not meet, loops without end."""

from __future__ import annotations

from tests.faults.fault import GUARD, INDEX, TILE, Planted

FULL = "0xffffffffu"
LANE = "const int lane = threadIdx.x % 32;\n"

PLANTED = (
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
    Planted("more_steps_than_are_tried", "too long",
            "for (int k = 0; k < 50; ++k) __syncthreads();  // here", "for (int k = 0; k < 10; ++k) __syncthreads();",
            steps=100_000),
)  # fmt: skip
