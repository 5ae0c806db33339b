"""Changes to the template of the literature's reductions."""

from __future__ import annotations

from gen.proof.failures import WRONG
from tests.mutants.change import (
    BARRIER,
    OUTSIDE_READ,
    OUTSIDE_WRITE,
    RACE,
    REFUSED,
    UNINITIALISED,
    Mutant,
    Unchanged,
)  # fmt: skip

TREE = "reduction/tree.cu.jinja"

ON_NEIGHBORED = "reduction_sum_f32__tree_tpb128_u1_neighbored_gmem_loop"
ON_NEIGHBOREDLESS = "reduction_sum_f32__tree_tpb128_u1_neighboredless_gmem_loop"
ON_WARPS = "reduction_sum_f32__tree_tpb128_u8_interleaved_gmem_warp"
ON_SHARED = "reduction_sum_f32__tree_tpb128_u4_interleaved_smem_fixed"
ON_DYNAMIC = "reduction_sum_f32__tree_tpb128_u4_interleaved_dyn_fixed"


MUTANTS = (
    Mutant("tree: no barrier between steps", ON_NEIGHBORED, TREE, "", "", RACE, at="step barrier"),
    Mutant("tree: pairs overlap", ON_NEIGHBORED, TREE, "i % (2 * stride) == 0", "i % stride == 0", RACE),
    Mutant(
        "tree: pairs past the end", ON_NEIGHBORED, TREE, 'i % (2 * stride) == 0{{ inside("i + stride") }}',
        "i % (2 * stride) == 0", (OUTSIDE_READ, UNINITIALISED, RACE),
    ),
    Mutant(
        "tree: barrier in divergent code [3]", ON_NEIGHBOREDLESS, TREE,
        "data[first] += data[first + stride];\n    __syncthreads();",
        "{ data[first] += data[first + stride]; __syncthreads(); }", BARRIER,
    ),
    Mutant("tree: last warp in lock-step [4]", ON_WARPS, TREE, "", "", RACE, at="read before write"),
    Mutant("tree: last warp's steps in lock-step [4]", ON_WARPS, TREE, "", "", RACE, at="write before read"),
    Mutant("tree: all warps take the last steps", ON_WARPS, TREE, "if (i < 32) {  // one", "if (true) {  // one", RACE),
    Mutant(
        "tree: last warp past the end", ON_WARPS, TREE, "i + stride < left ? data[i + stride] : 0.0f",
        "data[i + stride]", OUTSIDE_READ,
    ),
    Mutant("tree: no barrier after the fold [5]", ON_WARPS, TREE, "", "", RACE, at="fold barrier"),
    Mutant(
        "tree: no barrier after filling shared memory [5]", ON_SHARED, TREE, "", "", (RACE, UNINITIALISED),
        at="shared barrier",
    ),
    Mutant(
        "tree: unroll drops the tail [1]", ON_SHARED, TREE, "if (i + u * kThreadsPerBlock < left) sum += in",
        "if (kUnroll * kThreadsPerBlock <= left) sum += in", WRONG,
    ),
    Mutant(
        "tree: off-by-one guard [2]", ON_SHARED, TREE, "if (i + u * kThreadsPerBlock < left) sum += in",
        "if (i + u * kThreadsPerBlock <= left) sum += in", OUTSIDE_READ,
    ),
    Mutant(
        "tree: return before a barrier [3]", ON_SHARED, TREE, "",
        "  const int i = threadIdx.x;\n  if (0 < left && left <= i) return;\n", BARRIER, at="thread",
    ),
    Mutant(
        "tree: dynamic shared memory is too small", ON_DYNAMIC, TREE, "data[i] = sum;", "data[i + 1] = sum;",
        OUTSIDE_WRITE, at="shared sum",
    ),
    Mutant(
        "tree: shared memory of what does not exist [14]", ON_DYNAMIC, TREE, "data[i] = sum;",
        "if (i < left) data[i] = sum;", UNINITIALISED, at="shared sum",
    ),
    Mutant(
        "tree: block of no power of two", ON_SHARED, TREE, "kThreadsPerBlock = {{ threads_per_block }};",
        "kThreadsPerBlock = {{ threads_per_block }} + 32;", REFUSED,
    ),
)  # fmt: skip

LARGE: tuple[Mutant, ...] = ()
UNCHANGED: tuple[Unchanged, ...] = ()
