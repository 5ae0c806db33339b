"""Races over global memory on the CPU run: each planted one is found at its line, each clean twin passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gen.dtypes import F32, I32
from gen.families.base import Launch, Limits, Operand, Plan, Scratch, Variant
from gen.families.expr import ONE, constant, size
from gen.proof.host import HostFault, HostKernel, HostRunner
from gen.proof.parameters import Taken, taken, together
from tests.fake_family import fake_variant

N = size("n")
BLOCKS, THREADS, COUNT = 4, 64, 256
HEAD = "(const float* in, float* out, float* part, unsigned* flag, int n)"


@dataclass(frozen=True)
class Planted:
    """A kernel of 4 blocks of 64 threads with a fault in a line that ends in `// here`, and the same without.

    Attributes:
        says: what the report must hold beside the line.
        head: its parameters, and of the clean twin where they differ.
        again: `part` is passed a second time.
        runs: how often the clean twin runs; once where it leaves flags behind.
        blocks: of the grid.
    """

    name: str
    kind: str
    buffer: str
    faulty: str
    clean: str
    says: str = ""
    head: str = HEAD
    clean_head: str = ""
    again: bool = False
    runs: int = 2
    blocks: int = BLOCKS


INDEX = "const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"


def last_block(
    write: str = "part[blockIdx.x] = in[i];", before: str = "__threadfence();",
    ticket: str = "last = atomicInc(flag, gridDim.x - 1) == gridDim.x - 1;", after: str = "__threadfence();",
    late: str = "", read: str = "out[threadIdx.x] = __ldcg(part + threadIdx.x);",
) -> str:  # fmt: skip
    """A sum over blocks in one launch: the block that comes last reads what all have written."""
    return f"""{INDEX}__shared__ bool last;
if (threadIdx.x == 0) {{
{write}
{before}
{ticket}
{after}
}}
__syncthreads();
if (!last) return;
{late}
if (threadIdx.x < gridDim.x)
{read}
"""


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
WORD = "using Word = unsigned long long;\nWord* const word = (Word*)flag + blockIdx.x;\n"
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
    Planted("partials_by_ldg", "read-only path", "part",
            last_block(read="out[threadIdx.x] = __ldg(part + threadIdx.x);  // here"), last_block(), "written by"),
    Planted("own_element_by_ldg", "read-only path", "part",
            INDEX + "part[i] = in[i];\nout[i] = __ldg(part + i);  // here",
            INDEX + "part[i] = in[i];\nout[i] = __ldcs(part + i) + __ldg(in + i);"),
    Planted("ldg_before_the_write", "read-only path", "part",
            INDEX + "atomicExch(part + i, 1.0f);  // here\nout[i] = __ldg(part + i);  // here",
            INDEX + "part[i] = in[i];\nout[i] = __ldg(in + i);"),
    Planted("written_though_const_restrict", "read-only path", "part",
            INDEX + "((float*)part)[i] = in[i];  // here", INDEX + "((float*)part)[i] = in[i];",
            head=HEAD.replace("float* part", "const float* __restrict__ part")),
    Planted("written_though_const", "write to input", "part",
            INDEX + "((float*)part)[i] = in[i];  // here", INDEX + "((float*)part)[i] = in[i];",
            head=HEAD.replace("float* part", "float const * part")),
    Planted("const_restrict_beside_a_writer", "read-only path", "part",
            INDEX + "part[i] = in[i];\nout[i] = again[i];  // here", INDEX + "part[i] = in[i];\nout[i] = again[i];",
            head=HEAD.replace("int n", "const float* __restrict__ again, int n"),
            clean_head=HEAD.replace("int n", "const float* again, int n"), again=True),
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


def variants(planted: Planted) -> tuple[Variant, Variant]:
    launch = Launch(
        (constant(planted.blocks), ONE, ONE), (THREADS, 1, 1),
        ("in", "out", "part", "flag", *(("part",) if planted.again else ()), (I32, N)),
    )  # fmt: skip
    plan = Plan((launch,), (Scratch("part", N * 16, zeroed=True), Scratch("flag", constant(256), zeroed=True)))
    operands = (Operand("in", "in", F32, ("n",)), Operand("out", "inout", F32, ("n",)))
    return fake_variant(f"{planted.name}_faulty", operands, plan), fake_variant(planted.name, operands, plan)


@pytest.fixture(scope="module")
def kernels(cache: Path) -> Mapping[str, tuple[HostKernel, HostKernel]]:
    pairs = {planted.name: variants(planted) for planted in PLANTED}
    texts = {}
    for planted in PLANTED:
        faulty, clean = pairs[planted.name]
        clean_head = planted.clean_head or HEAD
        texts[faulty.name] = f'extern "C" __global__ void {faulty.name}{planted.head} {{\n{planted.faulty}\n}}\n'
        texts[clean.name] = f'extern "C" __global__ void {clean.name}{clean_head} {{\n{planted.clean}\n}}\n'
    runner = HostRunner(Limits.of("sm_90"), cache=cache, text=lambda variant: texts[variant.name])
    made = iter(runner.load([variant for pair in pairs.values() for variant in pair]))
    return {name: (next(made), next(made)) for name in pairs}


def run(kernel: HostKernel) -> None:
    kernel.run({"n": COUNT}, {"in": np.arange(COUNT, dtype=np.float32), "out": np.zeros(COUNT, np.float32)})


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_planted_race_is_found(planted: Planted, kernels: Mapping[str, tuple[HostKernel, HostKernel]]) -> None:
    kernel, _ = kernels[planted.name]
    with pytest.raises(HostFault) as caught:
        run(kernel)
    fault = caught.value
    assert fault.kind == planted.kind, str(fault)
    assert fault.buffer == planted.buffer
    assert fault.kernel == kernel.variant.name
    assert fault.source.endswith("// here"), str(fault)
    assert planted.says in str(fault)
    assert f"thread {fault.thread} of block {fault.block}" in str(fault)
    assert f"{kernel.variant.name}.cu:{fault.line}: `{fault.source}`" in str(fault)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_clean_twin_of_a_race_passes(planted: Planted, kernels: Mapping[str, tuple[HostKernel, HostKernel]]) -> None:
    _, kernel = kernels[planted.name]
    for _ in range(planted.runs):
        run(kernel)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("const float* __restrict__ in", (Taken.READ_ONLY,)),
        ("float const* const __restrict__ in", (Taken.READ_ONLY,)),
        ("const float* in", (Taken.CONST,)),
        ("float* __restrict__ out", (Taken.MUTABLE,)),
        ("float* const out", (Taken.MUTABLE,)),
        ("const float** __restrict__ in /* const */, int n", (Taken.READ_ONLY, Taken.MUTABLE)),
        ("Pair<const int, int>* out,\n  const Pair<int, int>* __restrict in  // (", (Taken.CONST, Taken.READ_ONLY)),
        ("", ()),
    ],
)
def test_how_a_kernel_takes_its_pointers(parameters: str, expected: tuple[Taken, ...]) -> None:
    text = f"void k({parameters}\n);\nvoid __launch_bounds__(32) other(k(1)) {{}}\nvoid k (\n{parameters}\n) {{ }}"
    assert taken(text, "k") == expected
    assert taken(text, "absent") == ()


def test_a_buffer_that_is_passed_twice() -> None:
    assert together({Taken.CONST}) is Taken.CONST
    assert together({Taken.CONST, Taken.READ_ONLY}) is Taken.READ_ONLY
    assert together({Taken.MUTABLE, Taken.READ_ONLY}) is Taken.MUTABLE_AND_READ_ONLY
    assert together({Taken.MUTABLE, Taken.CONST}) is Taken.MUTABLE
    assert together(set()) is Taken.MUTABLE
