"""Changes to the templates of the transposes that move vectors, windows and shifted words."""

from __future__ import annotations

from gen.proof.failures import UNTOUCHED, WRONG
from tests.mutants.change import (
    BARRIER,
    MISALIGNED,
    OUTSIDE_READ,
    OUTSIDE_WRITE,
    RACE,
    REFUSED,
    UNINITIALISED,
    Mutant,
    Unchanged,
)  # fmt: skip

TILES = "transpose/_tile.cu.jinja"
VECTORS = "transpose/vector_tile.cu.jinja"
WINDOWS = "transpose/window_tile.cu.jinja"
SHIFTS = "transpose/shift_tile.cu.jinja"

ON_VECTORS = "transpose_10_b32__vector_tile_v16_x8_g8_swz_ocol_ldg"
ON_BATCHED = "transpose_0321_b32__vector_tile_v16_x8_g8_swz_ocol_ldg"
ON_AXES = "transpose_10_b32__vector_tile_v16_x8_g8_swz_ocol_ldg_i32"
ON_BATCHED_AXES = "transpose_0321_b32__vector_tile_v16_x8_g8_swz_ocol_ldg_i32"
ON_WINDOWS = "transpose_10_b32__window_tile_t64_c32_w8_a32_ocol"
ON_SHIFTS = "transpose_10_b8__shift_tile_g32_c1_w8_a4_ocol"
ON_SECTORS = "transpose_10_b8__shift_tile_g32_c1_w8_a32_ocol"


MUTANTS = (
    # vector_tile
    Mutant(
        "vectors: no barrier after filling the tile [5]", ON_VECTORS, VECTORS, "", "", (UNINITIALISED, RACE),
        at="filled",
    ),
    Mutant(
        "vectors: no barrier at the edges [5]", ON_VECTORS, VECTORS, "", "", (UNINITIALISED, RACE),
        at="filled at the edges",
    ),
    Mutant(
        "vectors: barrier in divergent code [3]", ON_VECTORS, VECTORS, "__syncthreads",
        "if (row < rows) __syncthreads", (BARRIER, RACE), at="filled",
    ),
    Mutant(
        "vectors: rows begin between them", ON_VECTORS, VECTORS, "if (aligned && rows", "if (rows", MISALIGNED,
    ),
    Mutant(
        "vectors: whole tiles begin between them", ON_VECTORS, VECTORS, "if (aligned && inside)", "if (inside)",
        MISALIGNED,
    ),
    Mutant(
        "vectors: all tiles are whole [1]", ON_VECTORS, VECTORS, "move_by_vectors<false>", "move_by_vectors<true>",
        (OUTSIDE_READ, OUTSIDE_WRITE),
    ),
    Mutant(
        "vectors: columns of tiles are counted for rows", ON_VECTORS, TILES,
        "tile_{{ one }} = blockIdx.x - line * tiles_{{ along }};",
        "tile_{{ one }} = blockIdx.x - line * tiles_{{ across }};", (WRONG, UNTOUCHED, OUTSIDE_READ),
    ),
    Mutant(
        "vectors: half the quotient", ON_VECTORS, TILES, "(2 * number + 2, inverse)", "(number + 1, inverse)",
        (WRONG, UNTOUCHED),
    ),
    Mutant(
        "vectors: the quotient of the number before", ON_VECTORS, TILES, "(2 * number + 2, inverse)",
        "(2 * number, inverse)", (WRONG, UNTOUCHED, OUTSIDE_READ),
    ),
    Mutant(
        "vectors: matrices are counted by columns of tiles", ON_BATCHED, TILES,
        "divided(line, tiles_{{ across }}_inverse)",
        "divided(line, tiles_{{ along }}_inverse)", (WRONG, UNTOUCHED, OUTSIDE_READ),
    ),
    Mutant(
        "vectors: the axes behind are not counted off", ON_BATCHED, TILES,
        " - others{{ b }} * static_cast<unsigned>(batch{{ b }});", ";", (WRONG, UNTOUCHED, OUTSIDE_READ),
    ),
    Mutant(
        "vectors: past the last row", ON_VECTORS, VECTORS, "rows % kElements == 0 && cols % kElements == 0",
        "cols % kElements == 0", OUTSIDE_READ,
    ),
    Mutant(
        "vectors: swapped extents [6]", ON_VECTORS, VECTORS, "(row < rows && col < cols)",
        "(row < cols && col < rows)", (OUTSIDE_READ, UNINITIALISED),
    ),
    Mutant(
        "vectors: columns past the last", ON_VECTORS, VECTORS, "if (kInside || first_col + c < cols) {", "{",
        (UNINITIALISED, OUTSIDE_WRITE),
    ),
    Mutant(
        "vectors: exchanged once only", ON_VECTORS, VECTORS, '"0", "tile[slot(c, below)]"',
        '"0", "tile[c * kGroups + below]"', (WRONG, UNINITIALISED),
    ),
    Mutant(
        "vectors: elements unguarded", ON_VECTORS, VECTORS, "if (first_row + r < rows && first_col + c < cols) ", "",
        OUTSIDE_READ, at="loads at the edges",
    ),
    Mutant(
        "vectors: swapped extents at the edges [6]", ON_VECTORS, VECTORS,
        "if (first_row + r < rows && first_col + c < cols", "if (first_row + r < cols && first_col + c < rows",
        UNINITIALISED, at="stores at the edges",
    ),
    Mutant(
        "vectors: wrong pitch of the input", ON_VECTORS, VECTORS, "in[(first_row + r) * in_pitch",
        "in[(first_row + r) * cols", OUTSIDE_READ,
    ),
    Mutant(
        "vectors: wrong pitch of the output", ON_VECTORS, VECTORS, "out[(first_col + c) * out_pitch",
        "out[(first_col + c) * rows", OUTSIDE_WRITE,
    ),
    Mutant(
        "axes: the grid's exchanged", ON_AXES, TILES, "const Index tile_{{ one }} = blockIdx.x;",
        "const Index tile_{{ one }} = blockIdx.y;", (WRONG, UNTOUCHED),
        (("const Index tile_{{ other }} = blockIdx.y;", "const Index tile_{{ other }} = blockIdx.x;"),),
    ),
    Mutant(
        "axes: one line of tiles", ON_AXES, TILES, "const Index tile_{{ other }} = blockIdx.y;",
        "const Index tile_{{ other }} = 0;", (RACE, UNTOUCHED),
    ),
    Mutant(
        "axes: matrices are counted by the grid's y", ON_BATCHED_AXES, TILES,
        'place_batch(batches, "blockIdx.z", true)', 'place_batch(batches, "blockIdx.y", true)',
        (WRONG, UNTOUCHED, RACE, OUTSIDE_READ),
    ),
    Mutant(
        "axes: whole tiles begin between vectors", ON_AXES, VECTORS,
        "if (addresses_aligned && tile_row", "if (tile_row", MISALIGNED,
    ),
    Mutant(
        "axes: the last tiles down count as full", ON_AXES, VECTORS, "tile_row < full_tiles_down && ", "", OUTSIDE_READ,
    ),
    Mutant(
        "axes: the last tiles across count as whole", ON_AXES, VECTORS, " && tile_col < full_tiles_across", "",
        OUTSIDE_READ,
    ),
    Mutant(
        "axes: wrong pitch of the input", ON_AXES, VECTORS, "in + (row * in_pitch + col)", "in + (row * cols + col)",
        OUTSIDE_READ,
    ),
    Mutant(
        "axes: vectors of the edge begin where the matrix does", ON_AXES, VECTORS, "{{ from }}", "in", WRONG,
        at="first row of the edges",
    ),
    # window_tile
    Mutant(
        "windows: no barrier after filling the tile [5]", ON_WINDOWS, WINDOWS, "", "", (UNINITIALISED, RACE),
        at="filled",
    ),
    Mutant(
        "windows: rows before the first", ON_WINDOWS, WINDOWS, "first_row + r >= 0 && first_row + r < rows",
        "first_row + r < rows", OUTSIDE_READ,
    ),
    Mutant(
        "windows: columns past the last", ON_WINDOWS, WINDOWS, "row_there && first_col + i + lane < cols",
        "row_there", OUTSIDE_READ,
    ),
    Mutant(
        "windows: rows of the halo twice", ON_WINDOWS, WINDOWS, "first = kHalo - early + lane;",
        "first = kHalo + lane;", OUTSIDE_WRITE,
    ),
    Mutant(
        "windows: stores before the first row", ON_WINDOWS, WINDOWS, "(row >= 0 && row < rows)", "(row < rows)",
        (UNINITIALISED, OUTSIDE_WRITE, RACE),
    ),
    Mutant(
        "windows: stores past the last row", ON_WINDOWS, WINDOWS, "(row >= 0 && row < rows)", "(row >= 0)",
        (UNINITIALISED, OUTSIDE_WRITE, RACE),
    ),
    Mutant(
        "windows: without a halo", ON_WINDOWS, WINDOWS, "tile_row * kTileRows - kHalo", "tile_row * kTileRows",
        (WRONG, UNINITIALISED, RACE, OUTSIDE_READ),
    ),
    Mutant(
        "windows: inside at the first row", ON_WINDOWS, WINDOWS, "first_row >= 0 && first_row + kHalo",
        "first_row + kHalo", OUTSIDE_READ,
    ),
    Mutant(
        "windows: wrong pitch of the input", ON_WINDOWS, WINDOWS, "from += kWarps * in_pitch", "from += kWarps * cols",
        OUTSIDE_READ,
    ),
    Mutant(
        "windows: wrong pitch of the output", ON_WINDOWS, WINDOWS, "start += kWarps * out_pitch",
        "start += kWarps * rows", OUTSIDE_WRITE,
    ),
    # shift_tile
    Mutant(
        "shifts: the tile at the end never goes", ON_SHIFTS, TILES, "(number > 0 ? number : tiles_{{ along }}) - 1",
        "number > 0 ? number - 1 : 0", (RACE, UNTOUCHED),
    ),
    Mutant(
        "shifts: the line at the end never goes", ON_SHIFTS, TILES, "(line > 0 ? line : tiles_{{ across }}) - 1",
        "line > 0 ? line - 1 : 0", (RACE, UNTOUCHED),
    ),
    Mutant(
        "shifts: the last line of a matrix never goes", "transpose_021_b16__shift_tile_g16_c1_w8_a4_orow",
        TILES, "(of_matrix > 0 ? of_matrix : tiles_{{ across }}) - 1", "of_matrix > 0 ? of_matrix - 1 : 0",
        (RACE, UNTOUCHED),
    ),
    Mutant(
        "shifts: no barrier after filling the tile [5]", ON_SHIFTS, SHIFTS, "", "", (UNINITIALISED, RACE),
        at="filled",
    ),
    Mutant(
        "shifts: rows stay where their words begin", ON_SHIFTS, SHIFTS, "next, early[i]", "next, 0", WRONG,
    ),
    Mutant("shifts: the lane before has the rest", ON_SHIFTS, SHIFTS, "__shfl_down_sync(", "__shfl_up_sync(", WRONG),
    Mutant(
        "shifts: mask without the last lane", ON_SHIFTS, SHIFTS, "0xffffffffu", "0x7fffffffu", "absent lane",
    ),
    Mutant(
        "shifts: the last lane's square", ON_SHIFTS, SHIFTS, "", "", (OUTSIDE_WRITE, RACE, "index"),
        at="square of a lane",
    ),
    Mutant(
        "shifts: a word before the first column", ON_SHIFTS, SHIFTS, "first_col >= kElements && first_col",
        "first_col", OUTSIDE_READ,
    ),
    Mutant(
        "shifts: a word after the last column", ON_SHIFTS, SHIFTS, "first_col + kTileCols + kElements <= cols",
        "first_col + kTileCols <= cols", OUTSIDE_READ,
    ),
    Mutant(
        "shifts: a word after the last row", ON_SHIFTS, SHIFTS, "first_row + kGroups * kElements < rows;",
        "first_row + kGroups * kElements <= rows;", OUTSIDE_READ,
    ),
    Mutant(
        "shifts: rows with gaps taken for others", ON_SHIFTS, SHIFTS, "in_pitch == cols && first_row > 0",
        "first_row > 0", OUTSIDE_READ,
    ),
    Mutant(
        "shifts: elements past the last column", ON_SHIFTS, SHIFTS, "e < min(right - col, kElements)",
        "e < kElements", OUTSIDE_READ,
    ),
    Mutant(
        "shifts: elements before the first column", ON_SHIFTS, SHIFTS, "int e = max(left - col, 0)", "int e = 0",
        OUTSIDE_READ,
    ),
    Mutant(
        "shifts: words past the last column", ON_SHIFTS, SHIFTS, "(col + kElements <= right || row < last)", "true",
        OUTSIDE_READ,
    ),
    Mutant(
        "shifts: words before the first column", ON_SHIFTS, SHIFTS, "(col >= left || row >= second)", "true",
        OUTSIDE_READ,
    ),
    Mutant(
        "shifts: a word after the last of all", ON_SHIFTS, SHIFTS, "rows - 1 - first_row", "rows - first_row",
        OUTSIDE_READ,
    ),
    Mutant(
        "shifts: a word before the first of all", ON_SHIFTS, SHIFTS, ": 1 - first_row", ": -first_row", OUTSIDE_READ,
    ),
    Mutant(
        "shifts: rows with gaps taken to follow", ON_SHIFTS, SHIFTS, "follow = in_pitch == cols && cols >= kElements",
        "follow = cols >= kElements", OUTSIDE_READ,
    ),
    Mutant(
        "shifts: rows shorter than a word", ON_SHIFTS, SHIFTS, "follow = in_pitch == cols && cols >= kElements",
        "follow = in_pitch == cols", OUTSIDE_READ,
    ),
    Mutant(
        "shifts: words that are there in part dropped [1]", ON_SHIFTS, SHIFTS,
        "across[s][i][0] = part_of_word(elements, col, left, right);", "", WRONG,
    ),
    Mutant(
        "shifts: rows before the first", ON_SECTORS, SHIFTS, "there = row >= top && row < bottom",
        "there = row < bottom", OUTSIDE_READ,
    ),
    Mutant(
        "shifts: rows past the last", ON_SHIFTS, SHIFTS, "there = row >= top && row < bottom",
        "there = row >= top", OUTSIDE_READ,
    ),
    Mutant(
        "shifts: words in part past the last row", ON_SHIFTS, SHIFTS, "row >= top && row < bottom && col < right && !",
        "row >= top && col < right && !", OUTSIDE_READ,
    ),
    Mutant(
        "shifts: words written past the last row", ON_SHIFTS, SHIFTS, "row + kElements <= bottom", "row < bottom",
        (OUTSIDE_WRITE, RACE),
    ),
    Mutant(
        "shifts: words written before the first row", ON_SHIFTS, SHIFTS, "row >= top && row + kElements <= bottom",
        "row + kElements <= bottom", (OUTSIDE_WRITE, RACE),
    ),
    Mutant(
        "shifts: elements written before the first row", ON_SHIFTS, SHIFTS, "row + e >= top && row + e < bottom",
        "row + e < bottom", (OUTSIDE_WRITE, RACE),
    ),
    Mutant(
        "shifts: whole columns past the last", ON_SHIFTS, SHIFTS, "kInside && c + kStep <= kTileCols", "kInside",
        (OUTSIDE_READ, WRONG, RACE, UNINITIALISED, OUTSIDE_WRITE),
    ),
    Mutant(
        "shifts: columns taken for inside", ON_SHIFTS, SHIFTS, "rows_inside && first_col + kTileCols <= cols",
        "rows_inside", (OUTSIDE_WRITE, RACE, UNINITIALISED),
    ),
    Mutant(
        "shifts: columns written past the last", ON_SHIFTS, SHIFTS, "|| first + c < tile_cols",
        "|| first + c < kTileCols", (OUTSIDE_WRITE, RACE, UNINITIALISED),
    ),
    Mutant(
        "shifts: later rows begin as the first", ON_SHIFTS, SHIFTS, "(start + i * in_pitch);", "(start);",
        (WRONG, OUTSIDE_READ),
    ),
    Mutant(
        "shifts: one phase for columns that begin apart", ON_SECTORS, SHIFTS,
        "kAlign > kWarps * kSize ? kAlign / (kWarps * kSize) : 1", "1", REFUSED,
    ),
    Mutant("shifts: windows not shifted", ON_SHIFTS, SHIFTS, "apart * kBits", "0", WRONG),
)  # fmt: skip

LARGE: tuple[Mutant, ...] = ()
UNCHANGED: tuple[Unchanged, ...] = ()
