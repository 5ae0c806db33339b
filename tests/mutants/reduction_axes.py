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

ROWS, SHORT_ROWS = "reduction/rows.cu.jinja", "reduction/short_rows.cu.jinja"
COLUMNS = "reduction/columns.cu.jinja"
STREAM = "reduction/stream.cu.jinja"
STRIDED = "reduction/strided.cu.jinja"
MULTI_ROWS, MULTI_COLUMNS = "reduction/multi_rows.cu.jinja", "reduction/multi_columns.cu.jinja"
FLAT_COLUMNS, FLAT_ROWS = "reduction/flat_columns.cu.jinja", "reduction/flat_rows.cu.jinja"
STATE = "reduction/_state.cu.jinja"
END_OF_RESULT = "reduction/_end_of_result.cu.jinja"
STRIPS = "reduction/_columns.cu.jinja"
AXES, QUOTIENTS = "reduction/_axes.cu.jinja", "reduction/_quotients.cu.jinja"

ON_ROWS = "reduction_sum_f32_axis1__rows_tpb128_g4_u8_v8"
ON_ROWS_OF_BLOCKS = "reduction_sum_f32_axis1__rows_tpb128_g128_u2_v8"
ON_ROWS_AT_ONCE = "reduction_sum_f32_axis1__rows_tpb128_g4_r4_u2_v4"
ON_SHORT_ROWS = "reduction_sum_f32_axis1__short_rows_n8_r4_tpb128"
ON_SINGLE_ELEMENTS = "reduction_sum_f32_axis1__short_rows_n1_r8_tpb128"
ON_COLUMNS = "reduction_sum_f32_axis0__columns_x16_y8_u8_v16_bpm4"
ON_SINGLE_ROWS = "reduction_sum_f32_axis0__columns_x16_y8_u2_v4_bpm2"
ON_COLUMNS_TWICE = "reduction_sum_f32_axis0__columns_x16_y8_u8_v16_bpm4_secondpass"
ON_STREAM = "reduction_sum_f32_axis0__stream_tpb128_u4_v16_bpm8"
ON_STRIDED_TWICE = "reduction_sum_f32_axis0x2__strided_tpb64_u4_bpm8_secondpass"
ON_STRIDED = "reduction_sum_f32_axis0x2__strided_tpb64_u4_bpm8"
ON_STRIDED_THREE_AXES = "reduction_sum_f32_axis0x2x4__strided_tpb64_u4_bpm8"
ON_MULTI_ROWS = "reduction_sum_f32_axis0x2__multi_rows_g8_u2_v16_bpm8"
ON_MULTI_BLOCKS = "reduction_sum_f32_axis0x2__multi_rows_g256_u2_v8_bpm8"
ON_MULTI_TILES = "reduction_sum_f32_axis0x2__multi_rows_g256_u2_v8_bpm8_tiles"
ON_MULTI_COLUMNS = "reduction_sum_f32_axis0x2__multi_columns_x16_y8_u2_v16"
ON_FLAT_COLUMNS = "reduction_sum_f32_axis0__flat_columns_a1_tpb128_c32_u4"
# Where it waits for a flag that nobody sets, the CPU run sees that at once; with 128 threads it spends all steps first.
ON_WIDE_FLAT_COLUMNS = "reduction_sum_f32_axis0__flat_columns_a1_tpb256_c32_u4"
ON_FLAT_AXES = "reduction_sum_f32_axis0x2__flat_columns_a4_tpb128_c32_u4"
ON_FLAT_KEPT_AXES = "reduction_sum_f32_axis1__flat_columns_a2_tpb128_c32_u4"
ON_FLAT_TICKET = "reduction_sum_f32_axis0__flat_columns_a1_tpb128_c32_u4_ticket"
ON_FLAT_ALONE = "reduction_sum_f32_axis0__flat_columns_a1_tpb128_c128_u4_alone"
ON_FLAT_ROWS = "reduction_sum_f32_axis1__flat_rows_a1_g8_u4"
ON_FLAT_VECTORS = "reduction_sum_f32_axis0x2__flat_rows_a2_g8_u4_v16"
ON_FLAT_VARIANCE = "reduction_var_f32_axis1__flat_rows_a1_g8_u4"


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
        "rows: moments of a warp about the mean of each lane", ON_ROWS.replace("sum", "var"), STATE,
        "apart = own.mean - mean", "apart = own.mean - own.mean", WRONG,
    ),
    Mutant(
        "rows: means of a warp that no count weighs", ON_ROWS.replace("sum", "var"), STATE,
        "sum = count * own.mean", "sum = own.mean", WRONG,
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
        "columns: no barrier in the tree [5]", ON_COLUMNS, STRIPS, "", "", (RACE, UNINITIALISED),
        at="tree barrier",
    ),
    Mutant(
        "columns: tree without its last step", ON_COLUMNS, STRIPS, "half = kRowsY / 2; half > 0;",
        "half = kRowsY / 2; half > 1;", WRONG,
    ),
    Mutant("columns: no barrier after the partials", ON_COLUMNS, STRIPS, "", "", RACE, at="partials barrier"),
    Mutant("columns: no fence after the partials", ON_COLUMNS, STRIPS, "", "", RACE, at="fence"),
    Mutant(
        "columns: no fence after the ticket", ON_COLUMNS, STRIPS, "      if (is_last_block) __threadfence();", "     ",
        RACE,
    ),
    Mutant(
        "columns: no barrier after the ticket", ON_COLUMNS, STRIPS, "", "", (UNINITIALISED, RACE),
        at="ticket barrier",
    ),
    Mutant(
        "columns: counter not reset", "reduction_sumsq_u64_axis1_keep__multi_columns_x64_y16_u4_v16_i32", STRIPS,
        "atomicInc(tickets + matrix * strips + strip, splits - 1)", "atomicAdd(tickets + matrix * strips + strip, 1)",
        AGAIN,
    ),
    Mutant(
        "columns: strips share a counter", ON_COLUMNS, STRIPS, "tickets + matrix * strips + strip,", "tickets,",
        (WRONG, AGAIN, RACE, UNINITIALISED),
    ),
    Mutant(
        "columns: last columns unguarded", ON_COLUMNS, COLUMNS, "[item < last ? item : last]", "[item]", OUTSIDE_READ,
    ),
    Mutant(
        "columns: last rows unguarded", ON_COLUMNS, COLUMNS, "(u < left ? u : 0)", "u", OUTSIDE_READ,
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
        "columns: vectors of rows that are not there", ON_COLUMNS, COLUMNS,
        "(n - row + kRowsY - 1) / kRowsY", "kUnroll",
        (UNINITIALISED, WRONG), at="last rows",
    ),
    Mutant(
        "columns: the last row of vectors left out", ON_COLUMNS, COLUMNS, "n - row + kRowsY - 1", "n - row", WRONG,
        at="last rows",
    ),
    Mutant(
        "columns: moments of every tile taken for the first", ON_COLUMNS.replace("sum", "var"), STRIPS,
        '{{ moments_of(s, "states[0]") }}.count', "0", WRONG, at="weights",
    ),
    Mutant(
        "columns: a short run without its last place", ON_COLUMNS.replace("sum", "argmin"), STATE,
        "if (i < count && is_better", "if (i < count - 1 && is_better", WRONG, at="few places",
    ),
    Mutant(
        "columns: a short run without its last sum", ON_COLUMNS, STATE, "if (i < count)", "if (i < count - 1)", WRONG,
        at="few sums",
    ),
    Mutant(
        "columns: vectors where rows begin between them", ON_COLUMNS, COLUMNS, "if (whole && aligned) {",
        "if (whole) {", MISALIGNED,
    ),
    Mutant(
        "columns: results past the last", ON_COLUMNS, STRIPS, "if (result < columns) write", "write",
        (OUTSIDE_WRITE, RACE),
    ),
    Mutant("columns: no barrier before the results", ON_COLUMNS, STRIPS, "", "", (RACE, WRONG), at="results barrier"),
    Mutant(
        "columns: results of other columns", ON_COLUMNS, STRIPS,
        "place % kVecItems * kThreadsX + place / kVecItems", "place", WRONG,
    ),
    Mutant(
        "columns: a result too many [2]", ON_COLUMNS, STRIPS, "if (result < columns) write",
        "if (result <= columns) write", (OUTSIDE_WRITE, RACE, AGAIN, WRONG),
    ),
    Mutant(
        "columns: second pass drops the last block", ON_COLUMNS_TWICE, STRIPS, "split < splits;",
        "split + 1 < splits;", WRONG,
    ),
    Mutant(
        "columns: second pass reads one block too many", ON_COLUMNS_TWICE, STRIPS, "split < splits;",
        "split <= splits;", (OUTSIDE_READ, WRONG, UNINITIALISED),
    ),
    Mutant(
        "columns: second pass adds the same rows", ON_COLUMNS_TWICE, STRIPS, "split += kRowsY)", "split += 1)", WRONG,
    ),
    Mutant(
        "columns: second pass takes every strip for the first", ON_COLUMNS_TWICE, STRIPS,
        "of_strip = partials + (matrix * strips + strip) * splits * kStrip;", "of_strip = partials;", WRONG,
        at="second pass strip",
    ),
    Mutant(
        "columns: splits leave one partial", ON_COLUMNS_TWICE, STRIPS, "+ strip) * splits + split) * kStrip;",
        "+ strip) * splits) * kStrip;", RACE,
    ),
    Mutant(
        "columns: all rows of threads leave partials", ON_COLUMNS_TWICE, STRIPS, "if (threadIdx.y == 0) {",
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
    Mutant(
        "strided: the result of a single block left out", "reduction_sum_f32__strided_tpb64_u4_bpm8_secondpass",
        END_OF_RESULT, "  } else {\n    write_results(state, n, result, {{ output_names(s) }});\n  }\n}", "  }\n}",
        WRONG,
    ),
    Mutant(
        "strided: carry forgotten", ON_STRIDED_THREE_AXES, AXES, "way.apart.on[axis] + carry", "way.apart.on[axis]",
        WRONG,
    ),
    Mutant(
        "strided: places past the ends of axes", ON_STRIDED, AXES, "position.on[axis] -= extents[axis];", "",
        (OUTSIDE_READ, WRONG),
    ),
    Mutant(
        "strided: the way back at the end of an axis", ON_STRIDED, AXES, "position.offset += way.back[axis];", "",
        (OUTSIDE_READ, WRONG),
    ),
    Mutant(
        "strided: axes exchanged [6]", ON_STRIDED, STRIDED, "position_of(result, kept, kept_strides)",
        "position_of(result, kept, strides)", (OUTSIDE_READ, WRONG),
    ),
    Mutant(
        "strided: unrolled loop drops elements [1]", ON_STRIDED, STRIDED, "if (i + u * team < n) state",
        "if (i + (kUnroll - 1) * team < n) state", WRONG,
    ),
    Mutant(
        "strided: blocks read the same", ON_STRIDED, STRIDED, "static_cast<long long>(split) * kThreadsPerBlock",
        "0LL * kThreadsPerBlock", WRONG,
    ),
    Mutant("strided: no fence after the partial", ON_STRIDED, END_OF_RESULT, "", "", RACE, at="fence"),
    Mutant(
        "strided: no fence after the ticket", ON_STRIDED, END_OF_RESULT, "if (is_last_block) __threadfence();", "",
        RACE,
    ),
    Mutant(
        "strided: no barrier after the ticket", ON_STRIDED, END_OF_RESULT, "", "", (UNINITIALISED, RACE),
        at="ticket barrier",
    ),
    Mutant(
        "strided: counter not reset", ON_STRIDED, END_OF_RESULT, "atomicInc(tickets + result, splits - 1)",
        "atomicAdd(tickets + result, 1)", AGAIN,
    ),
    Mutant(
        "strided: results share partials", ON_STRIDED_TWICE, END_OF_RESULT,
        "partials[result * splits + split] = state;",
        "partials[split] = state;", RACE,
    ),
    Mutant("strided: all threads leave a partial", ON_STRIDED_TWICE, END_OF_RESULT, "", "", RACE, at="first thread"),
    # multi_rows
    Mutant(
        "multi_rows: results past the last", ON_MULTI_ROWS, MULTI_ROWS, " && result < results", "", OUTSIDE_WRITE,
    ),
    Mutant(
        "multi_rows: elements before the first vector counted from another place", ON_MULTI_ROWS, MULTI_ROWS,
        "(kVecItems - past) % kVecItems", "past % kVecItems", (MISALIGNED, WRONG),
    ),
    Mutant(
        "multi_rows: slots that end behind their row", ON_MULTI_ROWS, MULTI_ROWS, "start[u] + kVecItems <= r3",
        "start[u] < r3", (OUTSIDE_READ, WRONG),
    ),
    Mutant(
        "multi_rows: an end too few of rows that begin anywhere", ON_MULTI_ROWS, MULTI_ROWS,
        "? rest + kVecItems : rest", "? rest + kVecItems - 1 : rest", WRONG,
    ),
    Mutant(
        "multi_rows: ends of rows dropped [1]", ON_MULTI_ROWS, MULTI_ROWS, "combine(state_of(seen), ends)",
        "state_of(seen)", WRONG,
    ),
    Mutant(
        "multi_rows: rows taken for aligned", ON_MULTI_ROWS, MULTI_ROWS, "(address | strides * sizeof(Item))",
        "address", (MISALIGNED, WRONG),
    ),
    Mutant(
        "multi_rows: every block has the first results", ON_MULTI_ROWS, MULTI_ROWS,
        "static_cast<long long>(blockIdx.x) * kResults", "0", (RACE, WRONG),
    ),
    Mutant(
        "multi_rows: blocks read the same", ON_MULTI_BLOCKS, MULTI_ROWS,
        "static_cast<{{ index }}>(split) * kGroup", "0LL * kGroup", WRONG,
    ),
    Mutant(
        "multi_rows: a vector too many of the last tile [2]", ON_MULTI_TILES, MULTI_ROWS,
        "if (i + u * kGroup < vectors) loaded", "if (i + u * kGroup <= vectors) loaded", (OUTSIDE_READ, WRONG),
        at="last tile",
    ),
    Mutant(
        "multi_rows: heads of tiled rows dropped [1]", ON_MULTI_TILES, MULTI_ROWS, "threadIdx.x < head", "false", WRONG,
    ),
    Mutant(
        "multi_rows: tails of tiled rows dropped [1]", ON_MULTI_TILES, MULTI_ROWS, "threadIdx.x < r3 - behind", "false",
        WRONG,
    ),
    Mutant(
        "multi_rows: blocks begin with the same tile", ON_MULTI_TILES, MULTI_ROWS,
        "position_of(split, ", "position_of(0, ", WRONG,
    ),
    Mutant(
        "multi_rows: a tile too few", ON_MULTI_TILES, MULTI_ROWS, "(r3 / kVecItems + kTile - 1) / kTile",
        "r3 / kVecItems / kTile", WRONG,
    ),
    # multi_columns
    Mutant(
        "multi_columns: a second round of partial results left out",
        ON_MULTI_COLUMNS.replace("x16_y8_u2", "x4_y16_u4"), "reduction/_columns.cu.jinja",
        "block < splits; block += kRowsY", "block < min(splits, kRowsY); block += kRowsY", WRONG,
    ),
    Mutant(
        "multi_columns: a row too few counted", ON_MULTI_COLUMNS, MULTI_COLUMNS, "count += is_there;",
        "count += is_there && row + (u + 1) * team < n;", WRONG,
    ),
    Mutant(
        "multi_columns: vectors of columns that are not there", ON_MULTI_COLUMNS, MULTI_COLUMNS,
        "aligned && column + kVecItems <= columns", "aligned", OUTSIDE_READ,
    ),
    Mutant(
        "multi_columns: columns unguarded", ON_MULTI_COLUMNS, MULTI_COLUMNS,
        "[item < last ? item : last]", "[item]", OUTSIDE_READ,
    ),
    Mutant(
        "multi_columns: vectors where rows begin between them", ON_MULTI_COLUMNS, MULTI_COLUMNS,
        "(address | pitches * sizeof(Item))", "address", MISALIGNED,
    ),
    Mutant(
        "multi_columns: rows that are not there [1]", ON_MULTI_COLUMNS.replace("axis0x2", "axis0x2x4x6"), MULTI_COLUMNS,
        "is_there ? top + position.offset : items[0]", "top + position.offset", (OUTSIDE_READ, WRONG),
    ),
    Mutant(
        "multi_columns: a row instead of one that is not there, counted", ON_MULTI_COLUMNS, MULTI_COLUMNS,
        "if (count == kUnroll) {", "if (true) {", WRONG,
    ),
    Mutant(
        "multi_columns: matrices exchanged [6]", ON_MULTI_COLUMNS, MULTI_COLUMNS, "{1, k0, k1, k2}", "{1, k0, k2, k1}",
        (OUTSIDE_READ, WRONG),
    ),
    # short_rows
    Mutant(
        "short_rows: a row that is not there is read", ON_SHORT_ROWS, SHORT_ROWS,
        "(row < rows ? row : rows - 1)", "row",
        OUTSIDE_READ, at="row begins",
    ),
    Mutant(
        "short_rows: results past the last", ON_SHORT_ROWS, SHORT_ROWS, "if (result < rows) write", "write",
        OUTSIDE_WRITE,
    ),
    Mutant(
        "short_rows: rows taken for aligned", ON_SHORT_ROWS, SHORT_ROWS, "(address | pitch * sizeof(Item))", "address",
        MISALIGNED,
    ),
    Mutant(
        "short_rows: an address taken for aligned", ON_SHORT_ROWS, SHORT_ROWS, "(address | pitch * sizeof(Item))",
        "(pitch * sizeof(Item))", MISALIGNED,
    ),
    Mutant(
        "short_rows: results of a thread beside each other", ON_SHORT_ROWS, SHORT_ROWS,
        "row + r * kThreadsPerBlock;\n    if", "row + r;\n    if", (RACE, WRONG),
    ),
    Mutant(
        "short_rows: rows without gaps", ON_SHORT_ROWS, SHORT_ROWS, "rows - 1) * pitch", "rows - 1) * kLength",
        (OUTSIDE_READ, WRONG), at="row begins",
    ),
    Mutant(
        "short_rows: the first vector twice", ON_SHORT_ROWS, SHORT_ROWS, "loaded[r][i / kVecItems]", "loaded[r][0]",
        WRONG,
    ),
    # flat_columns
    Mutant(
        "flat_columns: results that are not there are read, of a thread each", ON_FLAT_ALONE, FLAT_COLUMNS,
        "is_active ? n : 0", "n", OUTSIDE_READ,
    ),
    Mutant(
        "flat_columns: results past the last, of a thread each", ON_FLAT_ALONE, FLAT_COLUMNS, "if (is_active) write",
        "write", OUTSIDE_WRITE,
    ),
    Mutant(
        "flat_columns: no barrier in the tree [5]", ON_FLAT_COLUMNS, FLAT_COLUMNS, "", "", (RACE, UNINITIALISED),
        at="tree barrier",
    ),
    Mutant(
        "flat_columns: an odd row dropped", ON_FLAT_COLUMNS, FLAT_COLUMNS, "half = (rows + 1) / 2", "half = rows / 2",
        (WRONG, RACE),
    ),
    Mutant(
        "flat_columns: blocks read the same", ON_FLAT_COLUMNS, FLAT_COLUMNS, "first = split * rows + y", "first = y",
        WRONG,
    ),
    Mutant(
        "flat_columns: an element too many [2]", ON_FLAT_COLUMNS, FLAT_COLUMNS,
        "n - first + team - 1", "n - first + team", OUTSIDE_READ,
    ),
    Mutant(
        "flat_columns: last elements dropped [1]", ON_FLAT_COLUMNS, FLAT_COLUMNS, "n - first + team - 1",
        "n - first", WRONG,
    ),
    Mutant(
        "flat_columns: results that are not there are read", ON_WIDE_FLAT_COLUMNS, FLAT_COLUMNS,
        "is_active = y < rows && result < results", "is_active = y < rows", "hang",
    ),
    Mutant(
        "flat_columns: results past the last", ON_FLAT_COLUMNS, FLAT_COLUMNS, "if (y == 0 && result < results) write",
        "if (y == 0) write", (OUTSIDE_WRITE, RACE),
    ),
    Mutant(
        "flat_columns: all threads of a column hand over", ON_FLAT_COLUMNS, FLAT_COLUMNS, "y == 0 && result", "result",
        (WRONG, RACE, AGAIN), at="first threads",
    ),
    Mutant(
        "flat_columns: no barrier before states are used again", ON_FLAT_COLUMNS, FLAT_COLUMNS, "", "", (RACE, WRONG),
        at="states barrier",
    ),
    Mutant(
        "flat_columns: the last block adds its own state once a thread", ON_FLAT_COLUMNS, FLAT_COLUMNS,
        "    if (y > 0) state = identity();\n", "", WRONG,
    ),
    Mutant(
        "flat_columns: the slowest kept axis left out", ON_FLAT_KEPT_AXES, AXES,
        "on[axis] = number - number_above", "on[axis] = axis == 0 ? 0 : number - number_above", WRONG,
    ),
    Mutant(
        "flat_columns: a result too many in the last block", ON_FLAT_KEPT_AXES, FLAT_COLUMNS,
        "const bool is_active = y < rows && result < results;", "const bool is_active = y < rows && result <= results;",
        (OUTSIDE_READ, OUTSIDE_WRITE),
    ),
    Mutant(
        "flat_columns: axes exchanged [6]", ON_FLAT_AXES, FLAT_COLUMNS, "kept_inverses, kept_strides)",
        "kept_inverses, strides)", (OUTSIDE_READ, WRONG),
    ),
    Mutant(
        "flat_columns: no barrier after the partials", ON_FLAT_TICKET, FLAT_COLUMNS, "", "", RACE,
        at="partials barrier",
    ),
    Mutant("flat_columns: no fence after the partials", ON_FLAT_TICKET, FLAT_COLUMNS, "", "", RACE, at="fence"),
    Mutant(
        "flat_columns: no fence after the ticket", ON_FLAT_TICKET, FLAT_COLUMNS, "if (is_last_block) __threadfence();",
        "", RACE,
    ),
    Mutant(
        "flat_columns: no barrier after the ticket", ON_FLAT_TICKET, FLAT_COLUMNS, "", "", (UNINITIALISED, RACE),
        at="ticket barrier",
    ),
    Mutant(
        "flat_columns: counter not reset", ON_FLAT_TICKET, FLAT_COLUMNS, "atomicInc(tickets + group, splits - 1)",
        "atomicAdd(tickets + group, 1)", AGAIN,
    ),
    Mutant(
        "flat_columns: the last partial left out", ON_FLAT_TICKET, FLAT_COLUMNS, "is_active && block < splits;",
        "is_active && block + 1 < splits;", WRONG,
    ),
    Mutant(
        "flat_columns: an inverse without its lower half [6]", ON_FLAT_AXES, QUOTIENTS,
        "upper + __umulhi(n, static_cast<unsigned>(inverse))", "upper", (WRONG, OUTSIDE_READ, OUTSIDE_WRITE, RACE),
    ),
    Mutant(
        "flat_columns: threads of a column begin at the same row", ON_FLAT_COLUMNS, FLAT_COLUMNS,
        "column + first * pitch", "column", WRONG,
    ),
    Mutant(
        "flat_columns: a place that stays", ON_FLAT_COLUMNS, FLAT_COLUMNS, "place += team * pitch", "place += pitch",
        (WRONG, OUTSIDE_READ),
    ),
    # flat_rows
    Mutant(
        "flat_rows: an element too many [2]", ON_FLAT_ROWS, FLAT_ROWS, "if (u < count) loaded",
        "if (u <= count) loaded", OUTSIDE_READ,
    ),
    Mutant(
        "flat_rows: results that are not there are read", ON_FLAT_ROWS, FLAT_ROWS, 'else "result < results" %}',
        'else "true" %}', OUTSIDE_READ,
    ),
    Mutant(
        "flat_rows: results past the last", ON_FLAT_ROWS, FLAT_ROWS, "lane == 0 && result < results", "lane == 0",
        OUTSIDE_WRITE,
    ),
    Mutant(
        "flat_rows: every lane writes", ON_FLAT_ROWS, FLAT_ROWS, "lane == 0 && result < results", "result < results",
        RACE,
    ),
    Mutant(
        "flat_rows: last elements dropped [1]", ON_FLAT_ROWS, FLAT_ROWS, "(n - lane + kGroup - 1)",
        "(n - lane)", WRONG,
    ),
    Mutant(
        "flat_rows: rows taken for aligned", ON_FLAT_VECTORS, FLAT_ROWS,
        "(address | apart_in_memory * sizeof(Item))", "address", (MISALIGNED, WRONG),
    ),
    Mutant(
        "flat_rows: last vectors dropped [1]", ON_FLAT_VECTORS, FLAT_ROWS, "if (i + u * kGroup < vectors) {",
        "if (i + (kUnroll - 1) * kGroup < vectors) {", WRONG, at="last vectors",
    ),
    Mutant(
        "flat_rows: vectors and elements", ON_FLAT_VECTORS, FLAT_ROWS, '"!by_vectors && result < results"',
        '"result < results"', WRONG,
    ),
    Mutant(
        "flat_rows: a short run without its last element", ON_FLAT_VARIANCE, STATE, "if (i < count)",
        "if (i < count - 1)", WRONG, at="few moments",
    ),
)  # fmt: skip

# Indices of 32 bits where 64 are needed: found on more than 2^32 elements, of which a few blocks are run.
LARGE = (
    Mutant(
        "columns: where a matrix begins in 32 bits", ON_COLUMNS, COLUMNS, "in + matrix * matrix_pitch",
        "in + static_cast<unsigned>(matrix * matrix_pitch)", OUTSIDE_READ,
    ),
    Mutant(
        "strided: offset in 32 bits", ON_STRIDED.replace("tpb64", "tpb256"), AXES,
        "position.offset += position.on[axis] * strides[axis];",
        "position.offset += static_cast<unsigned>(position.on[axis] * strides[axis]);", OUTSIDE_READ,
    ),
    Mutant(
        "strided: offset in 31 bits", ON_STRIDED_TWICE, AXES, "position.offset += position.on[axis] * strides[axis];",
        "position.offset += static_cast<int>(position.on[axis] * strides[axis]);", OUTSIDE_READ,
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
        "columns: places within a matrix in 32 bits", ON_COLUMNS, COLUMNS,
        "top + row * pitch;\n      Item rows", "top + static_cast<unsigned>(row * pitch);\n      Item rows", WRONG,
    ),
    Mutant(
        "stream of rows: elements counted in 32 bits", ON_STREAM, STREAM, "const long long items = n * columns;",
        "const unsigned items = n * columns;", UNTOUCHED,
    ),
    Mutant(
        "stream of rows: vectors from an index of 31 bits", ON_STREAM, STREAM, "    long long i = static",
        "    int i = static", OUTSIDE_READ,
    ),
    Mutant(
        "short_rows: first row in 31 bits", ON_SINGLE_ELEMENTS, SHORT_ROWS,
        "static_cast<long long>(blockIdx.x) * (kRows", "static_cast<int>(blockIdx.x) * (kRows", OVERFLOW,
    ),
    Mutant(
        "short_rows: first row in 32 bits", ON_SINGLE_ELEMENTS, SHORT_ROWS,
        "static_cast<long long>(blockIdx.x) * (kRows", "blockIdx.x * (kRows", (WRONG, UNTOUCHED, RACE),
    ),
    Mutant(
        "short_rows: where a row begins in 32 bits", ON_SINGLE_ELEMENTS, SHORT_ROWS,
        "(row < rows ? row : rows - 1) * pitch", "static_cast<unsigned>((row < rows ? row : rows - 1) * pitch)",
        (WRONG, UNTOUCHED), at="row begins",
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
        "stream of rows: no barrier before the last block waits", ON_STREAM + "_flags", STREAM,
        "  // The last block waits for all.\n  __syncthreads();\n", "",
        "a thread waits for every flag that it reads, and writes only the state that it alone has read",
    ),
    Unchanged(
        "strided: one element too many [2]", ON_STRIDED, STRIDED, "if (i + u * team < n) loaded",
        "if (i + u * team <= n) loaded", "behind the last element the places begin anew, and nothing is added",
    ),
)  # fmt: skip
