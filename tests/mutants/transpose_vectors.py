"""Changes to the templates of the transposes that move whole vectors of few rows, small matrices and short runs."""

from __future__ import annotations

from gen.proof.failures import UNTOUCHED, WRONG
from tests.mutants.change import (
    MISALIGNED,
    OPERAND,
    OUTSIDE_READ,
    OUTSIDE_WRITE,
    RACE,
    UNINITIALISED,
    Mutant,
    Unchanged,
)

INTERLEAVE = "transpose/interleave.cu.jinja"
SQUARES = "transpose/squares.cu.jinja"
FLAT_COPY = "transpose/flat_copy.cu.jinja"
EVICT = "transpose/_evict.cu.jinja"

ON_JOINED = "transpose_10_b8__interleave_rows_n3_tpb64"
ON_PARTED = "transpose_10_b16__interleave_cols_n3_tpb64"
ON_EVEN = "transpose_10_b32__interleave_cols_n16_tpb64"
ON_STORES_THAT_STAY = "transpose_10_b32__interleave_cols_n3_tpb64_stel"
ON_WINDOWS_THAT_STAY = "transpose_10_b64__window_tile_t64_c32_w8_a32_ocol_stel"
ON_LOADS_THAT_STAY = "transpose_10_b32__vector_tile_v16_x16_g16_swz_ocol_ldel_stel"
ON_SQUARES = "transpose_021_b32__squares_tpb64_u2"
ON_ONE_RUN = "transpose_10_b32__flat_copy_tpb128_u2"
ON_WHOLE_RUNS = "transpose_0213_b128__flat_copy_tpb256_u2"
ON_LONG_RUNS = "transpose_102_b128__flat_copy_tpb128_u4"
ON_SHORT_RUNS = "transpose_0213_b16__flat_copy_tpb128_u2_even"
ON_SHORT_RUNS_OF_4 = "transpose_102_b32__flat_copy_tpb256_u4_even"
ON_MANY_AXES = "transpose_432105_b8__flat_copy_tpb128_u2"
ON_ALL_RUNS = "transpose_0213_b8__flat_copy_tpb256_u2"

BETWEEN_VECTORS = "if (!all_vectors || (in_address | out_address) % 16 != 0) {"

MUTANTS = (
    # squares
    Mutant(
        "squares: no barrier before they are written [5]", ON_SQUARES, SQUARES, "", "", (UNINITIALISED, RACE),
        at="read",
    ),
    Mutant(
        "squares: begin between vectors", ON_SQUARES, SQUARES, "if ((in_address | out_address) % 16 != 0) {",
        "if (false) {", MISALIGNED,
    ),
    Mutant(
        "squares: matrices past the last", ON_SQUARES, SQUARES, "min(together, matrices - first)", "together",
        (OUTSIDE_READ, MISALIGNED),
    ),
    Mutant(
        "squares: every block turns the first matrices", ON_SQUARES, SQUARES, "blockIdx.x * together;", "0;",
        (RACE, WRONG),
    ),
    Mutant("squares: past those of a block", ON_SQUARES, SQUARES, "", "", (OUTSIDE_READ, MISALIGNED), at="guard"),
    Mutant(
        "squares: not turned among each other [9]", ON_SQUARES, SQUARES,
        "(matrix * area + col * high) * kElements + row",
        "(matrix * area + row * wide) * kElements + col", (WRONG, RACE, UNINITIALISED),
    ),
    Mutant(
        "squares: heights and widths exchanged [6]", ON_SQUARES, SQUARES, "slot(places[u] + e * high)",
        "slot(places[u] + e * wide)", (WRONG, RACE, UNINITIALISED),
    ),
    Mutant(
        "squares: all of the first matrix", ON_SQUARES, SQUARES, "(matrix * area + row * wide) * kElements + col",
        "row * wide * kElements + col", WRONG,
    ),
    # interleave
    Mutant(
        "interleave: lanes do not wait for each other [5]", ON_JOINED, INTERLEAVE, "", "", (UNINITIALISED, RACE),
        at="lanes have written",
    ),
    Mutant(
        "interleave: lanes do not wait for what was read [5]", ON_PARTED, INTERLEAVE, "", "", (UNINITIALISED, RACE),
        at="lanes have read",
    ),
    Mutant(
        "interleave: vectors begin between vectors", ON_JOINED, INTERLEAVE, "aligned ? length / kVector : 0",
        "length / kVector", MISALIGNED,
    ),
    Mutant(
        "interleave: a vector past the last column", ON_JOINED, INTERLEAVE, "if (thread <", "if (thread <=",
        (OUTSIDE_READ, RACE, MISALIGNED), at="guard",
    ),
    Mutant(
        "interleave: vectors past the last row", ON_PARTED, INTERLEAVE, "min(warp + j * 32, last)", "warp + j * 32",
        (OUTSIDE_READ, MISALIGNED),
    ),
    Mutant(
        "interleave: the last of no vectors", ON_PARTED, INTERLEAVE, "if (last >= 0) {", "{",
        (OUTSIDE_READ, MISALIGNED),
    ),
    Mutant(
        "interleave: bytes in each other's places", ON_JOINED, INTERLEAVE, "elements[2] | (4 + elements[3]) << 4",
        "elements[3] | (4 + elements[2]) << 4", WRONG,
    ),
    Mutant(
        "interleave: the lower half of a word only", ON_PARTED, INTERLEAVE, "0x54 + 0x22 * elements[1]", "0x54", WRONG,
    ),
    Mutant(
        "interleave: rows and columns exchanged [6]", ON_JOINED, INTERLEAVE,
        "r = (w * kElements + e) % kCount;\n      const int i = (w * kElements + e) / kCount;",
        "r = (w * kElements + e) / kVector;\n      const int i = (w * kElements + e) % kVector;", WRONG,
    ),
    Mutant(
        "interleave: what is left dropped [1]", ON_JOINED, INTERLEAVE, "    together[k] = apart[k % kCount * in_pitch",
        "    if (k < 0) together[k] = apart[k % kCount * in_pitch", WRONG,
    ),
    Mutant(
        "interleave: exchanged once only", ON_EVEN, INTERLEAVE, "staged[slot(thread * kCount + j)];",
        "staged[thread * kCount + j];", (WRONG, UNINITIALISED, RACE),
    ),
    # flat_copy
    Mutant(
        "one run: every block copies the first elements", ON_ONE_RUN, FLAT_COPY,
        "(blockIdx.x * kUnroll + u) * kThreadsPerBlock", "u * kThreadsPerBlock", (RACE, WRONG),
    ),
    Mutant(
        "one run: every block copies the first vectors", ON_ONE_RUN, FLAT_COPY,
        "blockIdx.x * (kUnroll * kThreadsPerBlock) + threadIdx.x", "threadIdx.x", (RACE, WRONG),
    ),
    Mutant(
        "all runs: past the last", ON_WHOLE_RUNS, FLAT_COPY,
        "if (number < vectors) loaded[u] = {{ load(load_modifier, \"from\", \"there",
        "loaded[u] = {{ load(load_modifier, \"from\", \"there", (OUTSIDE_READ, MISALIGNED),
    ),
    Mutant(
        "all runs: begin between vectors", ON_ALL_RUNS, FLAT_COPY,
        BETWEEN_VECTORS, "if (!all_vectors) {", MISALIGNED,
    ),
    Mutant(
        "all runs: end between vectors", ON_ALL_RUNS, FLAT_COPY, BETWEEN_VECTORS,
        "if ((in_address | out_address) % 16 != 0) {",
        (MISALIGNED, OUTSIDE_READ, OUTSIDE_WRITE, WRONG, RACE),
    ),
    Mutant(
        "all runs: ends dropped [1]", ON_ALL_RUNS, FLAT_COPY,
        "min(run, first + kVector)", "min(run - 1, first + kVector)",
        WRONG,
    ),
    Mutant(
        "all runs: places along the axis before exchanged", ON_ALL_RUNS, FLAT_COPY,
        "    in += {{ place }} * batch{{ b }}_in;", "    in += {{ place }} * batch{{ b }}_out;",
        (WRONG, OUTSIDE_READ, MISALIGNED),
    ),
    Mutant(
        "all runs: places of vectors along the axis before exchanged", ON_WHOLE_RUNS, FLAT_COPY,
        "here[0] += {{ place }} * out_step{{ b }};", "here[0] += {{ place }} * in_step{{ b }};",
        (WRONG, OUTSIDE_WRITE, RACE, UNTOUCHED),
    ),
    Mutant(
        "all runs: as far apart in the output as in the input", ON_WHOLE_RUNS, FLAT_COPY,
        "here[kUnroll] = {run * out_step{{", "here[kUnroll] = {run * in_step{{",
        (WRONG, OUTSIDE_WRITE, RACE, UNTOUCHED),
    ),
    Mutant(
        "all runs: a thread's next vector as far apart in the output as in the input", ON_WHOLE_RUNS, FLAT_COPY,
        "here[u - 1] + out_on + (ends", "here[u - 1] + in_on + (ends", (WRONG, OUTSIDE_WRITE, RACE, UNTOUCHED),
    ),
    Mutant(
        "all runs: from run to run as far in the output as in the input", ON_LONG_RUNS, FLAT_COPY,
        "(ends ? out_step{{", "(ends ? in_step{{", (WRONG, OUTSIDE_WRITE, RACE, UNTOUCHED),
    ),
    Mutant(
        "all runs: a thread's next vector in the same run", ON_LONG_RUNS, FLAT_COPY,
        "part >= run_vectors;", "part > 2 * run_vectors;", (WRONG, OUTSIDE_READ, UNTOUCHED),
    ),
    Mutant(
        "all runs: a run that ends stays counted", ON_LONG_RUNS, FLAT_COPY, "", "", (WRONG, OUTSIDE_READ, UNTOUCHED),
        at="end of a run",
    ),
    Mutant(
        "even runs: counted as one", ON_SHORT_RUNS, FLAT_COPY,
        "first >> run_shift;", "0 * run_shift;", (WRONG, OUTSIDE_READ, OUTSIDE_WRITE, RACE, UNTOUCHED),
    ),
    Mutant(
        "even runs: at their beginnings", ON_SHORT_RUNS, FLAT_COPY,
        "part = first - (run << run_shift);", "part = 0;", (WRONG, RACE, UNTOUCHED),
    ),
    Mutant(
        "even runs: a thread's next vector as far apart in the output as in the input", ON_SHORT_RUNS, FLAT_COPY,
        "here[u] = here[u - 1] + out_on;", "here[u] = here[u - 1] + in_on;", (WRONG, OUTSIDE_WRITE, RACE, UNTOUCHED),
    ),
    Mutant(
        "even runs: a thread's next vector is its first", ON_SHORT_RUNS, FLAT_COPY, "", "", (WRONG, UNTOUCHED),
        at="next vector",
    ),
    Mutant(
        "even runs: a third vector as far on as the second", ON_SHORT_RUNS_OF_4, FLAT_COPY,
        "here[u] = here[u - 1] + out_on;", "here[u] = here[0] + out_on;", (WRONG, RACE, UNTOUCHED),
    ),
    Mutant(
        "all runs: along z are places of one axis", ON_MANY_AXES, FLAT_COPY,
        "if above == 1 else \"others1\" }};", "}};", (WRONG, OUTSIDE_READ, OUTSIDE_WRITE, RACE, UNTOUCHED),
    ),
    # stores that leave the second-level cache last
    Mutant(
        "stores that stay: a vector further on", ON_STORES_THAT_STAY, EVICT, ': "l"(to), ', ': "l"(to + 1), ',
        (OUTSIDE_WRITE, RACE, UNTOUCHED),
    ),
    Mutant(
        "stores that stay: half of each element", ON_WINDOWS_THAT_STAY, EVICT, '8: "[%0], { %1, %2 }',
        '8: "[%0], { %1, %1 }', WRONG,
    ),
    Mutant(
        "loads that stay: words change places", ON_LOADS_THAT_STAY, EVICT, "{ %0, %1, %2, %3 }, [%4]",
        "{ %0, %1, %3, %2 }, [%4]", WRONG,
    ),
    Mutant("loads that stay: a policy that nothing has made", ON_LOADS_THAT_STAY, EVICT, "", "", OPERAND, at="policy"),
)  # fmt: skip

LARGE: tuple[Mutant, ...] = ()
UNCHANGED: tuple[Unchanged, ...] = ()
