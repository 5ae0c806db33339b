"""Races of accesses that nothing orders: atomics of other sizes and scopes, volatile ones, plain ones side by side."""

from __future__ import annotations

from tests.races.race import INDEX, Planted

WORD = "using Word = unsigned long long;\nWord* const word = (Word*)flag + blockIdx.x;\n"

PLANTED = (
    Planted("atomics_of_two_sizes", "race", "part",
            "if (threadIdx.x > 0) return;\nunsigned* const word = (unsigned*)part;\n"
            "if (blockIdx.x == 0) atomicAdd((unsigned long long*)word, 1ull);  // here\n"
            "else atomicAdd(word + 1, 1u);  // here",
            "if (threadIdx.x > 0) return;\nunsigned* const word = (unsigned*)part;\n"
            "if (blockIdx.x == 0) atomicAdd((unsigned long long*)word, 1ull);\nelse atomicAdd(word + 2, 1u);"),
    Planted("shared_atomics_of_two_sizes", "race", "counts",
            "__shared__ __align__(8) unsigned counts[2];\nif (threadIdx.x < 2) counts[threadIdx.x] = 0;\n"
            "__syncthreads();\nif (threadIdx.x == 0) atomicAdd((unsigned long long*)counts, 1ull);  // here\n"
            "else atomicAdd(&counts[1], 1u);  // here",
            "__shared__ __align__(8) unsigned counts[2];\nif (threadIdx.x < 2) counts[threadIdx.x] = 0;\n"
            "__syncthreads();\natomicAdd(&counts[threadIdx.x / 32], 1u);\natomicAdd_block(&counts[0], 1u);"),
    Planted("atomics_of_the_block_only", "race", "flag", "atomicAdd_block(flag, 1u);  // here",
            "atomicAdd_block(flag + blockIdx.x, 1u);\natomicAdd_system(flag + 9, 1u);"),
    Planted("atomics_of_blocks_and_of_one", "race", "flag",
            "if (blockIdx.x == 0) atomicMax_block(flag, 1u);  // here\nelse atomicMax(flag, 1u);  // here",
            "atomicMax(flag, 1u);"),
    Planted("pairs_are_added_beside_a_plain_write", "race", "part",
            "atomicAdd((float2*)part, make_float2(1.0f, 2.0f));  // here\n"
            "if (threadIdx.x == 9) part[1] = 1.0f;  // here",
            "atomicAdd((float2*)part, make_float2(1.0f, 2.0f));\n"
            "atomicAdd((float4*)part + 1, make_float4(1.0f, 2.0f, 3.0f, 4.0f));"),
    Planted("volatile_lanes_in_lock_step", "race", "part",
            INDEX + "volatile float* const lanes = part;\nlanes[i] = in[i];\nfor (int d = 16; d > 0; d /= 2)\n"
            "if (threadIdx.x % 32 < d) lanes[i] += lanes[i + d];  // here",
            INDEX + "volatile float* const lanes = part;\nlanes[i] = in[i];\nfor (int d = 16; d > 0; d /= 2) {\n"
            "__syncwarp();\nconst float x = lanes[i + d];\n__syncwarp();\nif (threadIdx.x % 32 < d) lanes[i] += x;\n}"),
    Planted("volatile_question_to_a_lane_of_the_same_warp", "race", "flag",
            "volatile unsigned* const said = flag + blockIdx.x;\nif (threadIdx.x == 0) *said = 1;  // here\n"
            "if (threadIdx.x == 1) while (*said == 0) {}  // here",
            "volatile unsigned* const said = flag + blockIdx.x;\nif (threadIdx.x == 0) *said = 1;\n"
            "if (threadIdx.x == 33) while (*said == 0) {}"),
    Planted("volatile_question_about_half_an_atomic_answer", "race", "flag",
            WORD + "if (threadIdx.x == 0) atomicExch((unsigned*)word + 1, 1u);  // here\n"
            "if (threadIdx.x == 33) while (*(volatile Word*)word == 0) {}  // here",
            WORD + "if (threadIdx.x == 0) atomicExch(word, 1ull << 32);\n"
            "if (threadIdx.x == 33) while (*(volatile Word*)word == 0) {}"),
    Planted("volatile_question_about_half_a_volatile_answer", "race", "flag",
            WORD + "if (threadIdx.x == 0) ((volatile unsigned*)word)[1] = 1;  // here\n"
            "if (threadIdx.x == 33) while (*(volatile Word*)word == 0) {}  // here",
            WORD + "if (threadIdx.x == 0) *(volatile Word*)word = 1ull << 32;\n"
            "if (threadIdx.x == 33) while (*(volatile Word*)word == 0) {}"),
    Planted("blocks_write_the_same_value", "race", "out", "out[threadIdx.x] = 1.0f;  // here",
            "atomicExch(out + threadIdx.x, 1.0f);", "written by"),
    Planted("threads_write_the_same_value", "race", "part", INDEX + "part[blockIdx.x] = 1.0f;  // here",
            "if (threadIdx.x == 0) part[blockIdx.x] = 1.0f;"),
    Planted("neighbour_without_a_barrier", "race", "part",
            INDEX + "part[i] = in[i];\n__syncwarp();\nif (threadIdx.x < 32) out[i] = part[i ^ 32];  // here",
            INDEX + "part[i] = in[i];\n__syncthreads();\nif (threadIdx.x < 32) out[i] = part[i ^ 32];"),
    Planted("lanes_without_syncwarp", "race", "part",
            INDEX + "part[i] = in[i];  // here\n__shfl_xor_sync(0xffffffffu, 1, 1);\nout[i] = part[i ^ 1];  // here",
            INDEX + "part[i] = in[i];\n__syncwarp();\nout[i] = part[i ^ 1];"),
    Planted("write_after_another_blocks_read", "race", "part",
            INDEX + "part[i] = in[i];  // here\n__syncthreads();\nout[i] = part[(i + 64) % n];  // here",
            INDEX + "part[i] = in[i];\n__syncthreads();\nout[i] = part[i ^ 63];"),
    Planted("plain_read_of_what_is_counted", "race", "flag",
            "if (threadIdx.x == 0) atomicAdd(flag, 1u);  // here\n"
            "if (threadIdx.x == 1 && *flag > 99u) out[0] = 1.0f;  // here",
            "if (threadIdx.x == 0) atomicAdd(flag, 1u);\n"
            "if (threadIdx.x == 1 && atomicAdd(flag, 0u) > 99u) out[0] = 1.0f;"),
    Planted("plain_reset_by_another_block", "race", "flag",
            "if (threadIdx.x == 0) {\nif (blockIdx.x == 0) *flag = 0;  // here\nelse atomicAdd(flag, 1u);  // here\n}",
            "if (threadIdx.x == 0) {\nif (blockIdx.x == 0) atomicExch(flag, 0u);\nelse atomicAdd(flag, 1u);\n}"),
    Planted("bytes_of_a_word", "race", "part",
            INDEX + "((unsigned char*)part)[i / 2] = 1;  // here", INDEX + "((unsigned char*)part)[i] = 1;"),
    Planted("vector_over_anothers_element", "race", "part",
            INDEX + "part[i] = in[i];  // here\nif (threadIdx.x % 4 == 1) *(float4*)(part + i - 1) = "
            "make_float4(1.0f, 2.0f, 3.0f, 4.0f);  // here",
            INDEX + "if (threadIdx.x % 4 == 1) *(float4*)(part + i - 1) = make_float4(1.0f, 2.0f, 3.0f, 4.0f);"),
    Planted("copy_of_a_structure", "race", "part",
            INDEX + "struct Many { float x[16]; };\nif (threadIdx.x < 2)\n"
            "*(Many*)(part + 64 * blockIdx.x + 8 * threadIdx.x) = *(const Many*)in;  // here",
            INDEX + "struct Many { float x[16]; };\nif (threadIdx.x < 1)\n"
            "*(Many*)(part + 16 * blockIdx.x) = *(const Many*)in;"),
)  # fmt: skip
