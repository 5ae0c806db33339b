"""Changes to the reduction of few elements by one block."""

from __future__ import annotations

from gen.proof.failures import WRONG
from tests.mutants.change import (
    ABSENT,
    INDEX,
    MISALIGNED,
    OUTSIDE_READ,
    RACE,
    REFUSED,
    UNINITIALISED,
    Mutant,
    Unchanged,
)

STATE = "reduction/_state.cu.jinja"
SUMS = "reduction/_sums.cu.jinja"
SINGLE = "reduction/single.cu.jinja"

ON_SINGLE = "reduction_sum_f32__single_tpb128_u2_v16"
ON_WARP = "reduction_sum_f32__single_tpb32_u2_v16"
ON_SHARED = "reduction_sum_f32__single_tpb128_u2_v16_shared"
ON_SUMS = "reduction_sum_i32__single_tpb128_u2_v16_sums"
ON_FIRST = "reduction_argmax_f32__single_tpb128_u2_v16"

# Of states without moments.
COMBINE_WARP = "\n__device__ __forceinline__ State combine_warp(State state) {\n#pragma"

MUTANTS = (
    Mutant(
        "single: tail dropped [1]", ON_SINGLE, SINGLE, "if (end < n) ends", "if (thread < head && end < n) ends", WRONG,
    ),
    Mutant("single: head dropped", ON_SINGLE, SINGLE, "if (end < n) ends", "if (end >= head && end < n) ends", WRONG),
    Mutant("single: tail one too long [2]", ON_SINGLE, SINGLE, "if (end < n)", "if (end <= n)", OUTSIDE_READ),
    Mutant(
        "single: the tail begins behind the head's threads", ON_SINGLE, SINGLE, ": vectors * kVecItems + thread",
        ": head + vectors * kVecItems + thread", WRONG,
    ),
    Mutant(
        "single: vectors from the first element", ON_SINGLE, SINGLE, "const unsigned char*>(in) + bytes",
        "const unsigned char*>(in)", MISALIGNED,
    ),
    Mutant("single: head counted in bytes", ON_SINGLE, SINGLE, "bytes / sizeof(Item)", "bytes", WRONG),
    Mutant(
        "single: one vector too many [2]", ON_SINGLE, SINGLE, "if (i < vectors) loaded", "if (i <= vectors) loaded",
        OUTSIDE_READ,
    ),
    Mutant("single: first round only", ON_SINGLE, SINGLE, "} while (done < vectors);", "} while (false);", WRONG),
    Mutant("single: rounds overlap", ON_SINGLE, SINGLE, "done += kUnroll * kThreads", "done += kThreads", WRONG),
    Mutant("single: all threads write", ON_SINGLE, SINGLE, "if (threadIdx.x == 0) write", "write", RACE),
    Mutant(
        "single: block of one warp sums half of it", ON_WARP, STATE, f"kCount = 32>{COMBINE_WARP}",
        f"kCount = 16>{COMBINE_WARP}", WRONG,
    ),
    Mutant("single: half of the warps left out", ON_SINGLE, STATE, "warp<kWarps>", "warp<kWarps / 2>", WRONG),
    Mutant("single: no barrier [5]", ON_SINGLE, STATE, "", "", (RACE, UNINITIALISED), at="barrier"),
    Mutant("single: one warp too many", ON_SINGLE, STATE, "x < kWarps ?", "x <= kWarps ?", INDEX),
    Mutant("single: mask of half a warp", ON_WARP, STATE, "0xffffffffu, state, d", "0x0000ffffu, state, d", ABSENT),
    Mutant("single: places from the head on", ON_FIRST, SINGLE, '"head + i * kVecItems"', '"i * kVecItems"', WRONG),
    Mutant("single: place of the tail", ON_FIRST, SINGLE, '"lift(in[end], end)"', '"lift(in[end], thread)"', WRONG),
    Mutant(
        "single: no barrier before the first warp takes over [5]", ON_SHARED, STATE, "", "", (RACE, UNINITIALISED),
        at="lanes barrier",
    ),
    Mutant(
        "single: no barrier before one thread adds the warps' sums [5]", ON_SUMS, SUMS, "", "",
        (RACE, UNINITIALISED), at="barrier",
    ),
    Mutant("single: a warp's sum left out", ON_SUMS, SUMS, "int other = 1;", "int other = 2;", WRONG),
    Mutant(
        "single: the upper bits of a sum left out", ON_SUMS, SUMS, "i < 3; ++i", "i < 2; ++i", (UNINITIALISED, WRONG),
    ),
    Mutant("single: pieces of a sum that overlap", ON_SUMS, SUMS, "state >> i * kPieceBits", "state >> i * 21", WRONG),
    Mutant("single: pieces of a sum too wide", ON_SUMS, SUMS, "kPieceBits = 22", "kPieceBits = 28", REFUSED),
    Mutant("single: half a warp adds", ON_SUMS, SUMS, "0xffffffffu, piece", "0x0000ffffu, piece", ABSENT),
    Mutant("single: no order between lanes", ON_SHARED, STATE, "", "", (RACE, UNINITIALISED), at="lanes order"),
    Mutant("single: all warps take over", ON_SHARED, STATE, "", "", (INDEX, RACE), at="first warp"),
    Mutant("single: the last warp left out", ON_SHARED, STATE, "warp < kWarps;", "warp < kWarps - 1;", WRONG),
    Mutant("single: the last lane left out", ON_SHARED, STATE, "lane < 32; ++lane", "lane < 31; ++lane", WRONG),
    Mutant(
        "single: the last chain left out", ON_SHARED, STATE, "i = 1; i < kLaneChains", "i = 1; i < kLaneChains - 1",
        WRONG,
    ),
    Mutant(
        "single: a chain begins with another's", ON_SHARED, STATE, "chains[i] = states[i]", "chains[i] = states[0]",
        WRONG,
    ),
)  # fmt: skip
LARGE: tuple[Mutant, ...] = ()
UNCHANGED = (
    Unchanged(
        "single: all lanes of the first warp combine them", ON_SHARED, STATE, "", "",
        "the first lane alone writes; the others' reads of the same states are for nothing", at="first thread",
    ),
    Unchanged(
        "single: all lanes of the first warp take part", ON_SINGLE, STATE, "warp<kWarps>", "warp<32>",
        "the lanes beyond the warps' hold identities; fewer shuffles end sooner",
    ),
)  # fmt: skip
