"""Changes to the templates of the reductions along axes."""

from __future__ import annotations

from gen.proof.failures import AGAIN, UNTOUCHED, WRONG
from tests.mutants.change import (
    ABSENT,
    MISALIGNED,
    OUTSIDE_READ,
    OUTSIDE_WRITE,
    OVERFLOW,
    RACE,
    UNINITIALISED,
    Mutant,
    Unchanged,
)  # fmt: skip

ROWS = "reduction/rows.cu.jinja"
COLUMNS = "reduction/columns.cu.jinja"
STREAM = "reduction/stream.cu.jinja"
STRIDED = "reduction/strided.cu.jinja"

ON_ROWS = "reduction_sum_f32_axis1__rows_tpb128_g4_u8_v8"
ON_ROWS_OF_BLOCKS = "reduction_sum_f32_axis1__rows_tpb128_g128_u2_v8"
ON_ROWS_AT_ONCE = "reduction_sum_f32_axis1__rows_tpb128_g4_r4_u2_v4"
ON_COLUMNS = "reduction_sum_f32_axis0__columns_x16_y8_u8_v16_bpm4"
ON_SINGLE_ROWS = "reduction_sum_f32_axis0__columns_x16_y8_u2_v4_bpm2"
ON_COLUMNS_TWICE = "reduction_sum_f32_axis0__columns_x16_y8_u8_v16_bpm4_secondpass"
ON_STREAM = "reduction_sum_f32_axis0__stream_tpb128_u4_v16_bpm8"
ON_STRIDED_TWICE = "reduction_sum_f32_axis0x2__strided_tpb64_u4_bpm8_secondpass"
ON_STRIDED = "reduction_sum_f32_axis0x2__strided_tpb64_u4_bpm8"


MUTANTS = (
    # rows
    Mutant(
        "rows: unguarded", ON_ROWS, ROWS, "if (row < rows) state = read_share(in + row * pitch, n, threadIdx",
        "state = read_share(in + row * pitch, n, threadIdx", OUTSIDE_READ,
    ),
    Mutant(
        "rows: return before the shuffles [3]", ON_ROWS, ROWS,
        "  State state = identity();\n  if (row < rows) state = read_share(in + row * pitch, n, threadIdx",
        "  if (row >= rows) return;\n  State state = read_share(in + row * pitch, n, threadIdx", ABSENT,
    ),
    Mutant(
        "rows: wrong pitch", ON_ROWS, ROWS, "in + row * pitch, n, threadIdx", "in + row * n, n, threadIdx",
        OUTSIDE_READ,
    ),
    Mutant(
        "rows: every lane writes", ON_ROWS, ROWS, "if (row < rows && threadIdx.x % kGroup == 0) write",
        "if (row < rows) write", RACE,
    ),
    Mutant(
        "rows: results past the last", ON_ROWS, ROWS, "if (row < rows && threadIdx.x % kGroup == 0) write",
        "if (threadIdx.x % kGroup == 0) write", OUTSIDE_WRITE,
    ),
    Mutant(
        "rows: first distance of half a group", ON_ROWS_AT_ONCE, ROWS,
        "distance = kGroup / 2; distance > 0; distance /= 2) {",
        "distance = kGroup / 4; distance > 0; distance /= 2) {", WRONG, at="group",
    ),
    Mutant(
        "rows: several at once, unguarded", ON_ROWS_AT_ONCE, ROWS, "if (row < rows && i < vectors) loaded",
        "if (i < vectors) loaded", OUTSIDE_READ,
    ),
    Mutant(
        "rows: several at once, one element too many [2]", ON_ROWS_AT_ONCE, ROWS,
        "if (row < rows && i < vectors) loaded", "if (row < rows && i <= vectors) loaded", OUTSIDE_READ,
    ),
    Mutant(
        "rows: several at once, last element dropped [1]", ON_ROWS_AT_ONCE, ROWS,
        "if (row < rows && i < vectors) fold", "if (row < rows && i < vectors - 1) fold", WRONG,
    ),
    Mutant(
        "rows: half of several long ones left out", ON_ROWS_AT_ONCE, ROWS, "for (int r = 0; r < kAtOnce; ++r) {",
        "for (int r = 0; r < kAtOnce / 2; ++r) {", (WRONG, AGAIN), at="rows one by one",
    ),
    Mutant(
        "rows: a warp's share to each thread of a block", ON_ROWS_OF_BLOCKS, ROWS,
        "(begin, n, threadIdx.x, kThreadsPerBlock, 0, 1)", "(begin, n, threadIdx.x % 32, 32, 0, 1)", WRONG,
    ),
    Mutant(
        "rows: a block's without their gaps", ON_ROWS_OF_BLOCKS, ROWS, "begin = in + row * pitch",
        "begin = in + row * n", OUTSIDE_READ,
    ),
    Mutant(
        "rows: every thread of a block writes", ON_ROWS_OF_BLOCKS, ROWS, "if (threadIdx.x == 0) write", "write", RACE,
    ),
    Mutant(
        "rows: two blocks take one row", ON_ROWS_OF_BLOCKS, ROWS, "row = blockIdx.x;", "row = blockIdx.x / 2;",
        (WRONG, AGAIN, RACE),
    ),
    # columns
    Mutant(
        "columns: no barrier in the tree [5]", ON_COLUMNS, COLUMNS, "", "", (RACE, UNINITIALISED),
        at="tree barrier",
    ),
    Mutant(
        "columns: tree without its last step", ON_COLUMNS, COLUMNS, "half = kRowsY / 2; half > 0;",
        "half = kRowsY / 2; half > 1;", WRONG,
    ),
    Mutant("columns: no barrier after the partials", ON_COLUMNS, COLUMNS, "", "", RACE, at="partials barrier"),
    Mutant("columns: no fence after the partials", ON_COLUMNS, COLUMNS, "", "", RACE, at="fence"),
    Mutant(
        "columns: no fence after the ticket", ON_COLUMNS, COLUMNS, "      if (is_last_block) __threadfence();", "     ",
        RACE,
    ),
    Mutant(
        "columns: no barrier after the ticket", ON_COLUMNS, COLUMNS, "", "", (UNINITIALISED, RACE),
        at="ticket barrier",
    ),
    Mutant(
        "columns: counter not reset", ON_COLUMNS, COLUMNS, "atomicInc(tickets + matrix * strips + strip, splits - 1)",
        "atomicAdd(tickets + matrix * strips + strip, 1)", AGAIN,
    ),
    Mutant(
        "columns: strips share a counter", ON_COLUMNS, COLUMNS, "tickets + matrix * strips + strip,", "tickets,",
        (WRONG, AGAIN, RACE, UNINITIALISED),
    ),
    Mutant(
        "columns: last columns unguarded", ON_COLUMNS, COLUMNS, "if (here < n && column + item < columns) loaded",
        "if (here < n) loaded", OUTSIDE_READ,
    ),
    Mutant(
        "columns: last rows unguarded", ON_COLUMNS, COLUMNS, "if (here < n && column + item < columns) loaded",
        "if (column + item < columns) loaded", OUTSIDE_READ,
    ),
    Mutant(
        "columns: a row too many [2]", ON_SINGLE_ROWS, COLUMNS,
        "for (; row + (kUnroll - 1) * kRowsY < n; row += stride) {",
        "for (; row + (kUnroll - 1) * kRowsY <= n; row += stride) {", OUTSIDE_READ, at="loop",
    ),
    Mutant(
        "columns: last tile dropped [1]", ON_COLUMNS, COLUMNS, "for (; row < n; row += stride) {",
        "for (; false; row += stride) {", WRONG,
    ),
    Mutant(
        "columns: last rows of vectors dropped [1]", ON_COLUMNS, COLUMNS, "if (row < n) {", "if (false) {", WRONG,
        at="last tile",
    ),
    Mutant(
        "columns: a row of vectors too many [2]", ON_COLUMNS, COLUMNS, "if (row + u * kRowsY < n) loaded",
        "if (row + u * kRowsY <= n) loaded", OUTSIDE_READ,
    ),
    Mutant(
        "columns: vectors of rows that are not there", ON_COLUMNS, COLUMNS, "if (here < n) {", "{",
        (UNINITIALISED, WRONG), at="last rows",
    ),
    Mutant(
        "columns: vectors where rows begin between them", ON_COLUMNS, COLUMNS, "if (whole && aligned) {",
        "if (whole) {", MISALIGNED,
    ),
    Mutant(
        "columns: results past the last", ON_COLUMNS, COLUMNS, "if (result < columns) write", "write",
        (OUTSIDE_WRITE, RACE),
    ),
    Mutant("columns: no barrier before the results", ON_COLUMNS, COLUMNS, "", "", (RACE, WRONG), at="results barrier"),
    Mutant(
        "columns: results of other columns", ON_COLUMNS, COLUMNS,
        "place % kVecItems * kThreadsX + place / kVecItems", "place", WRONG,
    ),
    Mutant(
        "columns: a result too many [2]", ON_COLUMNS, COLUMNS, "if (result < columns) write",
        "if (result <= columns) write", (OUTSIDE_WRITE, RACE, AGAIN, WRONG),
    ),
    Mutant(
        "columns: second pass drops the last block", ON_COLUMNS_TWICE, COLUMNS, "split < splits;",
        "split + 1 < splits;", WRONG,
    ),
    Mutant(
        "columns: second pass reads one block too many", ON_COLUMNS_TWICE, COLUMNS, "split < splits;",
        "split <= splits;", (OUTSIDE_READ, WRONG, UNINITIALISED),
    ),
    Mutant(
        "columns: second pass adds the same rows", ON_COLUMNS_TWICE, COLUMNS, "split += kRowsY)", "split += 1)", WRONG,
    ),
    Mutant(
        "columns: second pass takes every strip for the first", ON_COLUMNS_TWICE, COLUMNS,
        "of_strip = partials + (matrix * strips + strip) * splits * kStrip;", "of_strip = partials;", WRONG,
        at="second pass strip",
    ),
    Mutant(
        "columns: splits leave one partial", ON_COLUMNS_TWICE, COLUMNS, "+ strip) * splits + split) * kStrip;",
        "+ strip) * splits) * kStrip;", RACE,
    ),
    Mutant(
        "columns: all rows of threads leave partials", ON_COLUMNS_TWICE, COLUMNS, "if (threadIdx.y == 0) {",
        "if (true) {", RACE, at="first threads",
    ),
    # stream
    Mutant(
        "stream of rows: no barrier in the tree [5]", ON_STREAM, STREAM, "", "", (RACE, UNINITIALISED),
        at="tree barrier",
    ),
    Mutant(
        "stream of rows: an odd row dropped", ON_STREAM, STREAM, "i < (rows - half) * columns;",
        "i < (rows / 2 - 1) * columns;", WRONG,
    ),
    Mutant("stream of rows: no fence after the partials", ON_STREAM, STREAM, "", "", RACE, at="fence"),
    Mutant(
        "stream of rows: no fence after the ticket", ON_STREAM, STREAM, "if (is_last_block) __threadfence();", "", RACE,
    ),
    Mutant("stream of rows: no barrier after the partials", ON_STREAM, STREAM, "", "", RACE, at="partials barrier"),
    Mutant(
        "stream of rows: no barrier after the ticket", ON_STREAM, STREAM, "", "", (UNINITIALISED, RACE),
        at="ticket barrier",
    ),
    Mutant(
        "stream of rows: counter not reset", ON_STREAM, STREAM, "atomicInc(ticket, gridDim.x - 1)",
        "atomicAdd(ticket, 1)", AGAIN,
    ),
    Mutant(
        "stream of rows: head dropped", ON_STREAM, STREAM, "i = column; i < head;", "i = column; i < 0;", WRONG,
    ),
    Mutant("stream of rows: tail dropped [1]", ON_STREAM, STREAM, "behind + next; i < items;", "behind + next; i < 0;",
           WRONG),
    Mutant(
        "stream of rows: leftover vectors dropped [1]", ON_STREAM, STREAM, "if (i < vectors) {", "if (false) {",
        WRONG, at="last vectors",
    ),
    Mutant(
        "stream of rows: one vector too many [2]", ON_STREAM, STREAM, "if (i + u * stride < vectors) loaded",
        "if (i + u * stride <= vectors) loaded", OUTSIDE_READ,
    ),
    Mutant(
        "stream of rows: the head turns no columns", ON_STREAM, STREAM, "(head + place) % columns", "place", WRONG,
    ),
    # strided
    Mutant("strided: carry forgotten", ON_STRIDED, STRIDED, "apart[axis] + carry", "apart[axis]", WRONG),
    Mutant(
        "strided: places past the ends of axes", ON_STRIDED, STRIDED, "if (carry) place[axis] -= reduced[axis];", "",
        (OUTSIDE_READ, WRONG),
    ),
    Mutant(
        "strided: axes exchanged [6]", ON_STRIDED, STRIDED, "offset_of(place_of_result, kept_strides)",
        "offset_of(place_of_result, reduced_strides)", (OUTSIDE_READ, WRONG),
    ),
    Mutant(
        "strided: unrolled loop drops elements [1]", ON_STRIDED, STRIDED, "if (i + u * team < n) state",
        "if (i + (kUnroll - 1) * team < n) state", WRONG,
    ),
    Mutant(
        "strided: blocks read the same", ON_STRIDED, STRIDED, "static_cast<long long>(split) * kThreadsPerBlock",
        "0LL * kThreadsPerBlock", WRONG,
    ),
    Mutant("strided: no fence after the partial", ON_STRIDED, STRIDED, "", "", RACE, at="fence"),
    Mutant(
        "strided: no fence after the ticket", ON_STRIDED, STRIDED, "if (is_last_block) __threadfence();", "", RACE,
    ),
    Mutant(
        "strided: no barrier after the ticket", ON_STRIDED, STRIDED, "", "", (UNINITIALISED, RACE),
        at="ticket barrier",
    ),
    Mutant(
        "strided: counter not reset", ON_STRIDED, STRIDED, "atomicInc(tickets + result, splits - 1)",
        "atomicAdd(tickets + result, 1)", AGAIN,
    ),
    Mutant(
        "strided: results share partials", ON_STRIDED_TWICE, STRIDED, "partials[result * splits + split] = state;",
        "partials[split] = state;", RACE,
    ),
    Mutant("strided: all threads leave a partial", ON_STRIDED_TWICE, STRIDED, "", "", RACE, at="first thread"),
)  # fmt: skip

# Indices of 32 bits where 64 are needed: found on more than 2^32 elements, of which a few blocks are run.
LARGE = (
    Mutant(
        "columns: where a matrix begins in 32 bits", ON_COLUMNS, COLUMNS, "in + matrix * matrix_pitch",
        "in + static_cast<unsigned>(matrix * matrix_pitch)", OUTSIDE_READ,
    ),
    Mutant(
        "strided: offset in 32 bits", ON_STRIDED, STRIDED, "offset += places[axis] * strides[axis];",
        "offset += static_cast<unsigned>(places[axis] * strides[axis]);", OUTSIDE_READ,
    ),
    Mutant(
        "strided: offset in 31 bits", ON_STRIDED_TWICE, STRIDED, "offset += places[axis] * strides[axis];",
        "offset += static_cast<int>(places[axis] * strides[axis]);", OUTSIDE_READ,
    ),
    Mutant(
        "columns: column in 31 bits", ON_COLUMNS, COLUMNS,
        "const long long column = strip * kStrip + threadIdx.x * kVecItems;",
        "const int column = static_cast<int>(strip) * kStrip + threadIdx.x * kVecItems;", OVERFLOW, at="column",
    ),
    Mutant(
        "columns: column in 32 bits", ON_COLUMNS, COLUMNS,
        "const long long column = strip * kStrip + threadIdx.x * kVecItems;",
        "const unsigned column = strip * kStrip + threadIdx.x * kVecItems;", (WRONG, UNTOUCHED, RACE), at="column",
    ),
    Mutant(
        "columns: places within a matrix in 32 bits", ON_COLUMNS, COLUMNS, "top[here * pitch + item]",
        "top[static_cast<unsigned>(here * pitch) + item]", WRONG,
    ),
    Mutant(
        "rows: first row in 31 bits", ON_ROWS_AT_ONCE, ROWS,
        "const long long first = static_cast<long long>(blockIdx.x)",
        "const int first = static_cast<int>(blockIdx.x)", OVERFLOW,
    ),
    Mutant(
        "rows: first row in 32 bits", ON_ROWS_AT_ONCE, ROWS,
        "const long long first = static_cast<long long>(blockIdx.x)",
        "const unsigned first = blockIdx.x", (WRONG, UNTOUCHED, RACE),
    ),
    Mutant(
        "rows: where a row begins in 32 bits", ON_ROWS_AT_ONCE, ROWS, "Raw*>(in + row * pitch);",
        "Raw*>(in + static_cast<unsigned>(row * pitch));", (WRONG, UNTOUCHED), at="row begins",
    ),
)  # fmt: skip

UNCHANGED = (
    Unchanged(
        "stream of rows: no barrier after the tree", ON_STREAM, STREAM, "", "",
        "each thread reads the states of the first row that it has itself written last", at="last barrier",
    ),
    Unchanged(
        "stream of rows: threads that keep no column", ON_STREAM, STREAM, "if (threadIdx.x < active) {", "if (true) {",
        "their states lie behind the rows that the tree adds up",
    ),
    Unchanged(
        "strided: one element too many [2]", ON_STRIDED, STRIDED, "if (i + u * team < n) loaded",
        "if (i + u * team <= n) loaded", "behind the last element the places begin anew, and nothing is added",
    ),
)  # fmt: skip
