"""Races that fences, flags and atomics should have ordered: what others read before they may know it is written."""

from __future__ import annotations

from tests.races.race import INDEX, Planted, last_block


def handed_over(write: str, fence: str, ticket: str) -> str:
    """All threads write, the first one says so; the last block reads what the threads of the others wrote."""
    return f"""{INDEX}__shared__ bool last;
{write}
{fence}
{ticket}
__syncthreads();
if (last) out[i] = __ldcg(part + (i + 64) % n);  // here
"""


TICKET = "if (threadIdx.x == 0) {\nlast = atomicInc(flag, gridDim.x - 1) == gridDim.x - 1;\n__threadfence();\n}"
READ = "out[threadIdx.x] = __ldcg(part + threadIdx.x);  // here"

# Block 0 does something, says so in a way that orders nothing, and block 1 goes on.
SAID = """if (threadIdx.x > 0) return;
if (blockIdx.x == 0) {{
  {}
  *(volatile unsigned*)(flag + 1) = 1;
}}
if (blockIdx.x == 1) {{
  while (*(volatile unsigned*)(flag + 1) == 0) {{}}
  {}
}}
"""
ASKED = "atomicAdd(flag, 0u);\n__threadfence();\nout[0] = part[0];"
COUNT_SHARED = """__shared__ unsigned said, count;
if (threadIdx.x == 0) said = 0;
__syncthreads();
if (threadIdx.x == 0) {{
  count = 0;
  {}
  atomicAdd(&count, 1u);
  atomicExch(&said, 1u);
}}
if (threadIdx.x == 33) {{
  while (atomicAdd(&said, 0u) == 0) {{}}
  {}
  atomicAdd(&count, 1u);{}
}}
"""
PIECES = """if (threadIdx.x > 0) return;
for (unsigned k = 0; k < 40; ++k) {
  if (blockIdx.x == 0) {
    part[k] = in[k];  // here
    __threadfence();
    atomicAdd(flag, 1u);
  }
  if (blockIdx.x == 1) {
    while (atomicAdd(flag, 0u) <= k) {}
    ACQUIRE
    out[k] = __ldcg(part + k);  // here
  }
}
"""
# Block 0 hands a number to block 1 by a flag: the order of its store, what comes between, the order of the load.
FLAG = """if (threadIdx.x > 0) return;
unsigned told = 0;
if (blockIdx.x == 0) {{
  part[0] = 1.0f;  // here
  {}
  asm volatile("st.{}.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(1u) : "memory");
}}
if (blockIdx.x == 1) {{
  do asm volatile("ld.{}.gpu.global.u32 %0, [%1];" : "=r"(told) : "l"(flag) : "memory"); while (told == 0);
  {}
  out[0] = part[0];  // here
}}
"""
LOOKED = 'asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(told) : "l"(flag + 1) : "memory");'
SHOWN = 'asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag + 1), "r"(1u) : "memory");'
# One block after the other, in an order that orders nothing, reads a place and says so; the last one writes there.
TURNS = """if (threadIdx.x > 0) return;
while (*(volatile unsigned*)(flag + 1) != blockIdx.x) {{}}
if (blockIdx.x < gridDim.x - 1) {{
  out[blockIdx.x] = part[0];  // here
  {}
  __threadfence();
  atomicAdd(flag, 1u);
  atomicExch(flag + 1, blockIdx.x + 1);
}} else {{
  atomicAdd(flag, 0u);
  __threadfence();
  part[0] = 1.0f;  // here
}}
"""
# Lanes 0 and 1 read a place, at different clocks; lane 2 waits for both, and writes there.
LANES = """if (threadIdx.x >= 32 || blockIdx.x > 0) return;
const int lane = threadIdx.x;
{0}
__syncwarp();
if (lane == 1) {{
  __threadfence_block();
  __threadfence_block();
  __syncwarp(6u);
  out[1] = {1};  // here
  atomicExch(flag, 1u);
  {2}
}}
if (lane == 0) {{
  out[0] = {1};
  __syncwarp(5u);
}}
if (lane == 2) {{
  __syncwarp(6u);
  __syncwarp(5u);
  while (atomicAdd(flag, 0u) == 0) {{}}
  {2}
  {1} = 1.0f;  // here
}}
"""
LANES_SHARED = "__shared__ float kept;\nif (lane == 5) kept = 2.0f;"
# Lane 0 meets itself more often than a number of 16 bits counts, then writes a place that lane 1 reads.
OFTEN = """if (threadIdx.x > 1 || blockIdx.x > 0) return;
if (threadIdx.x == 0) {{
  for (int k = 0; k < 66000; ++k) __syncwarp(1u);
  __syncwarp(3u);
  part[0] = 1.0f;  // here
  atomicExch(flag, 1u);
  {0}
}} else {{
  __syncwarp(3u);
  while (atomicAdd(flag, 0u) == 0) {{}}
  {0}
  out[0] = part[0];  // here
}}
"""
# Threads of two warps read a word, one after the other; then a third writes a byte of it.
BYTE = """if (blockIdx.x > 0) return;
if (threadIdx.x == 0) {{
  out[0] = part[0];
  atomicExch(flag, 1u);
  __syncwarp(3u);
}}
if (threadIdx.x == 33) {{
  while (atomicAdd(flag, 0u) != 1) {{}}
  out[1] = part[0];  // here
  {0}
  atomicExch(flag, 2u);
}}
if (threadIdx.x == 1) {{
  __syncwarp(3u);
  while (atomicAdd(flag, 0u) != 2) {{}}
  {0}
  ((unsigned char*)part)[1] = 1;  // here
}}
"""
SPIN = "if (blockIdx.x > 0) while ({}) {{}}\n"

PLANTED = (
    Planted("first_fence_missing", "race", "part", last_block(before="", read=READ), last_block(), "no __threadfence"),
    Planted("second_fence_missing", "race", "part", last_block(after="", read=READ), last_block(), "of block"),
    Planted("fence_of_the_block_only", "race", "part", last_block(before="__threadfence_block();", read=READ),
            last_block(before="__threadfence_system();")),
    Planted("read_fence_of_the_block_only", "race", "part", last_block(after="__threadfence_block();", read=READ),
            last_block()),
    Planted("fence_after_the_atomic", "race", "part",
            last_block(before="", after="__threadfence();\n__threadfence();", read=READ),
            last_block(after="__threadfence();\n__threadfence();")),
    Planted("fence_of_others_after_the_barrier", "race", "part",
            last_block(after="", late="__threadfence();", read=READ), last_block(late="__threadfence();")),
    Planted("fence_of_another_lane", "race", "part",
            last_block(after="", late="if (threadIdx.x == 1) __threadfence();\n__syncthreads();", read=READ),
            last_block(after="", late="if (threadIdx.x == 0) __threadfence();\n__syncthreads();")),
    Planted("plain_counter", "race", "flag",
            last_block(ticket="const unsigned seen = *flag;  // here\n"
                       "*flag = seen + 1 == gridDim.x ? 0 : seen + 1;  // here\nlast = seen == gridDim.x - 1;"),
            last_block()),
    Planted("volatile_counter", "race", "flag",
            last_block(ticket="last = (*(volatile unsigned*)flag)++ == gridDim.x - 1;  // here"), last_block()),
    Planted("atomics_on_different_places", "race", "part",
            "__shared__ bool last;\nif (threadIdx.x == 0) {\npart[blockIdx.x] = 1.0f;\n__threadfence();\n"
            "atomicExch(flag + blockIdx.x, 0u);\nlast = atomicInc(flag + gridDim.x, gridDim.x - 1) == gridDim.x - 1;\n}"
            "\n__syncthreads();\nif (!last || threadIdx.x > 0) return;\natomicAdd(flag + 30, 0u);\n"
            "if (atomicAdd(flag + 31, 0u) == 0) out[0] = part[(blockIdx.x + 1) % gridDim.x];  // here",
            last_block()),
    Planted("plain_beginning_of_what_others_count", "race", "flag",
            SAID.format("*flag = 0;  // here\natomicAdd(flag, 1u);", "atomicAdd(flag, 1u);  // here"),
            SAID.format("atomicExch(flag, 0u);\natomicAdd(flag, 1u);", "atomicAdd(flag, 1u);"), "written by"),
    Planted("plain_beginning_of_what_others_ask_for", "race", "flag",
            SAID.format("*flag = 0;  // here\natomicAdd(flag, 1u);", "out[0] = *(volatile unsigned*)flag;  // here"),
            SAID.format("atomicExch(flag, 0u);\natomicAdd(flag, 1u);", "out[0] = *(volatile unsigned*)flag;"),
            "written by"),
    Planted("plain_beginning_that_others_wait_for", "race", "flag",
            SAID.format("*flag = 0;  // here\natomicAdd(flag, 1u);", ASKED + "\natomicAdd(flag, 1u);  // here").replace(
                "atomicAdd(flag, 0u);", "atomicAdd(flag + 2, 0u);"),
            SAID.format("*flag = 0;\n__threadfence();\natomicAdd(flag + 2, 1u);\natomicAdd(flag, 1u);",
                        "atomicAdd(flag + 2, 0u);\n__threadfence();\natomicAdd(flag, 1u);"), runs=1),
    Planted("plain_beginning_in_shared_memory", "race", "count",
            COUNT_SHARED.format("", "", "  // here"), COUNT_SHARED.format(*["__threadfence_block();"] * 2, ""),
            "without an atomic"),
    Planted("publication_by_a_cas_that_fails", "race", "part",
            SAID.format("part[0] = 1.0f;\n__threadfence();\natomicCAS(flag, 7u, 1u);", ASKED + "  // here"),
            SAID.format("part[0] = 1.0f;\n__threadfence();\natomicCAS(flag, 0u, 1u);", ASKED), runs=1),
    Planted("all_write_one_says_so", "race", "part",
            handed_over("part[i] = in[i];", "if (threadIdx.x == 0) __threadfence();", TICKET),
            handed_over("part[i] = in[i];", "__syncthreads();\nif (threadIdx.x == 0) __threadfence();", TICKET)),
    Planted("waits_by_volatile_reads", "race", "part",
            INDEX + "if (threadIdx.x > 0) return;\n" + SPIN.format("*(volatile unsigned*)(flag + blockIdx.x - 1) == 0")
            + "__threadfence();\nconst float before = blockIdx.x > 0 ? __ldcg(part + blockIdx.x - 1) : 0.0f;  // here\n"
            "part[blockIdx.x] = before + 1.0f;\n__threadfence();\natomicExch(flag + blockIdx.x, 1u);",
            INDEX + "if (threadIdx.x > 0) return;\n" + SPIN.format("atomicAdd(flag + blockIdx.x - 1, 0u) == 0")
            + "__threadfence();\nconst float before = blockIdx.x > 0 ? __ldcg(part + blockIdx.x - 1) : 0.0f;\n"
            "part[blockIdx.x] = before + 1.0f;\n__threadfence();\natomicExch(flag + blockIdx.x, 1u);", runs=1),
    Planted("chain_of_three_blocks", "race", "part",
            "if (threadIdx.x > 0) return;\nif (blockIdx.x == 0) part[0] = 1.0f;\n"
            + SPIN.format("atomicAdd(flag + blockIdx.x - 1, 0u) == 0") + "if (blockIdx.x != 1) __threadfence();\n"
            "if (blockIdx.x == 3) out[0] = part[0];  // here\nif (blockIdx.x != 1) __threadfence();\n"
            "atomicExch(flag + blockIdx.x, 1u);",
            "if (threadIdx.x > 0) return;\nif (blockIdx.x == 0) part[0] = 1.0f;\n"
            + SPIN.format("atomicAdd(flag + blockIdx.x - 1, 0u) == 0") + "__threadfence();\n"
            "if (blockIdx.x == 3) out[0] = part[0];\n__threadfence();\natomicExch(flag + blockIdx.x, 1u);", runs=1),
    Planted("pieces_behind_the_first_fence", "race", "part",
            PIECES.replace("ACQUIRE", "if (k == 0) __threadfence();"), PIECES.replace("ACQUIRE", "__threadfence();"),
            runs=1),
    Planted("flag_that_releases_nothing", "race", "part", FLAG.format("", "relaxed", "acquire", ""),
            FLAG.format("", "release", "acquire", ""), runs=1),
    Planted("flag_that_is_not_acquired", "race", "part", FLAG.format("", "release", "relaxed", ""),
            FLAG.format("", "release", "relaxed", "__threadfence();"), runs=1),
    Planted("acquire_that_releases_nothing", "race", "part", FLAG.format(LOOKED, "relaxed", "acquire", ""),
            FLAG.format("__threadfence();", "relaxed", "acquire", ""), runs=1),
    Planted("release_that_acquires_nothing", "race", "part", FLAG.format("", "release", "relaxed", SHOWN),
            FLAG.format("", "release", "acquire", SHOWN), runs=1),
    Planted("pieces_one_ahead", "race", "part",
            PIECES.replace("ACQUIRE", "__threadfence();").replace("part + k)", "part + k + 1)"),
            PIECES.replace("ACQUIRE", "__threadfence();"), runs=1),
    Planted("reader_beyond_the_32nd", "race", "part", TURNS.format("if (blockIdx.x == 36) atomicExch(flag + 1, 37u);\n"
            "if (blockIdx.x == 36) return;"), TURNS.format(""), "read by", runs=1, blocks=40),
    Planted("lane_that_reads_at_a_later_clock", "race", "part", LANES.format("", "part[0]", ""),
            LANES.format("", "part[0]", "__syncwarp(6u);"), runs=1),
    Planted("lane_that_reads_shared_memory_at_a_later_clock", "race", "kept", LANES.format(LANES_SHARED, "kept", ""),
            LANES.format(LANES_SHARED, "kept", "__syncwarp(6u);"), runs=1),
    Planted("clock_beyond_16_bits", "race", "part", OFTEN.format(""), OFTEN.format("__syncwarp(3u);"), runs=1),
    Planted("byte_of_a_word_that_two_warps_have_read", "race", "part", BYTE.format(""), BYTE.format("__threadfence();"),
            runs=1),
)  # fmt: skip
