"""Changes to the templates of the transposes."""

from __future__ import annotations

from gen.proof.failures import UNTOUCHED, WRONG
from tests.mutants.change import (
    BARRIER,
    INDEX,
    OUTSIDE_READ,
    OUTSIDE_WRITE,
    OVERFLOW,
    RACE,
    REFUSED,
    UNINITIALISED,
    Mutant,
    Unchanged,
)

TILED = "transpose/tiled.cu.jinja"
TURNED = "transpose/naive.cu.jinja"
TILES = "transpose/_tile.cu.jinja"

ON_TILED = "transpose_10_b32__tiled_t32_r8_p1_u2"
ON_WHOLE_TILES = "transpose_10_b32__tiled_t16_r16_p1_u1"  # a block moves all rows of a tile at once
ON_HALVES = "transpose_10_b32__tiled_t32_r16_p1_u2_h16"
ON_REPEATED = "transpose_turn_b32__tiled_t32_r8_p1_u1_nreps"
ON_FINE = "transpose_fine16_b32__tiled_t16_r8_p1_u1"
ON_COARSE = "transpose_coarse16_b32__tiled_t16_r8_p1_u1"
ON_COPY = "transpose_copy_b32__tiled_t32_r8_p0_u1_direct"
ON_TURNED = "transpose_10_b32__naive_row_x32_y8_u4"
ON_COLUMNS = "transpose_10_b32__naive_col_x32_y8_u4"

GUARD, SWAPPED = "if (row < rows && col < cols)", "if (row < cols && col < rows)"
LOADS = GUARD + " {\n{% if direct %}"
STORES = GUARD + ' {\n{{ pad }}        {{ store(store_modifier, "out", place, "tile"'
DIAGONAL = "(blockIdx.x % tiles_across + blockIdx.x / tiles_across) % tiles_across"

MUTANTS = (
    # tiled transpose
    Mutant(
        "tiled: no barrier after filling the tile [5]", ON_TILED, TILED, "", "", (UNINITIALISED, RACE), at="filled",
    ),
    Mutant(
        "tiled: return before a barrier [3]", ON_TILED, TILED, "",
        "  const int y = threadIdx.y;\n  if (first_row + y >= rows) return;\n", BARRIER, at="row",
    ),
    Mutant(
        "tiled: barrier in divergent code [3]", ON_TILED, TILED, "__syncthreads",
        "if (first_row + y < rows) __syncthreads", (BARRIER, UNINITIALISED), at="filled",
    ),
    Mutant("tiled: loads unguarded", ON_TILED, TILED, "if (row < rows && col < cols)", "", OUTSIDE_READ, at="loads"),
    Mutant(
        "tiled: loads past the last column", ON_TILED, TILED, "if (row < rows && col < cols", "if (row < rows",
        OUTSIDE_READ, at="loads",
    ),
    Mutant(
        "tiled: stores unguarded", ON_TILED, TILED, "if (row < rows && col < cols)", "", UNINITIALISED, at="stores",
    ),
    Mutant(
        "tiled: swapped extents in the stores [6]", ON_TILED, TILED, "if (row < rows && col < cols",
        "if (row < cols && col < rows", UNINITIALISED, at="stores",
    ),
    Mutant(
        "tiled: swapped extents in both guards [6]", ON_TILED, TILED, STORES,
        STORES.replace(GUARD, SWAPPED), OUTSIDE_READ,
        ((LOADS, LOADS.replace(GUARD, SWAPPED)),),
    ),
    Mutant(
        "tiled: row of the tile too short", ON_TILED, TILED, "tile[{{ height }}][kTileCols + kPadding];",
        "tile[kTileDim][kTileCols - 1];", INDEX,
    ),
    Mutant(
        "tiled: padding before the row when read", ON_TILED, TILED, 'at("x", "y + j + i")',
        'at("x", "kPadding + y + j + i")', UNINITIALISED,
    ),
    Mutant(
        "tiled: padding twice", ON_TILED, TILED, 'at("y + j", "x + i") }} =',
        'at("y + j", "2 * kPadding + x + i") }} =',
        (UNINITIALISED, INDEX),
    ),
    Mutant(
        "tiled: tile read as it was written", ON_TILED, TILED, 'at("x", "y + j + i")', 'at("y + j", "x + i")',
        UNINITIALISED,
    ),
    Mutant("tiled: copies [9]", ON_TILED, TILED, '"col * out_pitch + row"', '"row * cols + col"',
           (WRONG, OUTSIDE_WRITE)),
    Mutant(
        "tiled: rows times height [7]", ON_TILED, TILED, '"col * out_pitch + row"',
        '"(first_col + y + i + j * rows) * out_pitch + row"', OUTSIDE_WRITE,
    ),
    Mutant(
        "tiled: wrong pitch of the output", ON_TILED, TILED, '"col * out_pitch + row"', '"col * rows + row"',
        OUTSIDE_WRITE,
    ),
    Mutant("tiled: wrong pitch of the input", ON_TILED, TILED, '"row * in_pitch + col"', '"row * cols + col"',
           OUTSIDE_READ),
    Mutant(
        "tiled: last strip not loaded", ON_TILED, TILED, "j < {{ height }}", "j < kTileDim - kBlockRows",
        UNINITIALISED, at="strips",
    ),
    Mutant("tiled: second square not stored", ON_TILED, TILED, "i < kTileCols", "i < kTileDim", WRONG, at="squares"),
    Mutant("tiled: tiles overlap", ON_TILED, TILED, "tile_col * kTileCols", "tile_col * kTileDim", RACE),
    Mutant(
        "tiled: rows and columns of tiles exchanged", ON_TILED, TILES, "tile_row = {{ tile }} / tiles_across;",
        "tile_row = {{ tile }} % tiles_across;", WRONG,
        (("tile_col = {{ tile }} % tiles_across;", "tile_col = {{ tile }} / tiles_across;"),),
    ),
    Mutant(
        "tiled: square diagonal formula [8]", ON_TILED, TILES, "tile_row = {{ tile }} / tiles_across;",
        "tile_row = blockIdx.x % tiles_across;", RACE,
        (("tile_col = {{ tile }} % tiles_across;", f"tile_col = {DIAGONAL};"),),
    ),
    Mutant(
        "tiled: strips that do not fill a tile", ON_TILED, TILED, "kBlockRows = {{ block_rows }};",
        "kBlockRows = {{ block_rows }} - 1;", REFUSED,
    ),
    Mutant(
        "repeated: no barrier before the tile is filled anew [5]", ON_REPEATED, TILED, "", "", RACE,
        at="filled anew",
    ),
    Mutant("halves: as if they were squares", ON_HALVES, TILED, "x) % kTileRows;", "x) % kTileDim;", (WRONG, INDEX)),
    Mutant("halves: columns as if of squares", ON_HALVES, TILED, "x) / kTileRows;", "x) / kTileDim;", (WRONG, RACE)),
    Mutant("fine: tiles as they were", ON_FINE, TILED, 'at("x", "y + j + i")', 'at("y + j", "x + i")', WRONG),
    Mutant(
        "coarse: tiles turned", ON_COARSE, TILED, "if transposes_tiles else", "if transposes_tiles or swaps_axes else",
        WRONG,
    ),
    Mutant(
        "copy: wrong pitch of the output", ON_COPY, TILED, 'else "row * out_pitch', 'else "row * cols', OUTSIDE_WRITE,
    ),
    # naive transpose
    Mutant(
        "turned: swapped extents in a guard [6]", ON_TURNED, TURNED, "{{ lane }} < {{ lane }}s)",
        "{{ lane }} < {{ other }}s)", WRONG,
    ),
    Mutant(
        "turned: swapped extents [6]", ON_COLUMNS, TURNED, "{{ lane }} < {{ lane }}s)", "{{ lane }} < {{ other }}s)",
        OUTSIDE_READ,
    ),
    Mutant("turned: rows past the end", ON_TURNED, TURNED, "", "", OUTSIDE_READ, at="guard"),
    Mutant(
        "turned: one row too many [2]", ON_TURNED, TURNED, "{{ other }} >= {{ other }}s", "{{ other }} > {{ other }}s",
        OUTSIDE_READ,
    ),
    Mutant(
        "turned: one column too many [2]", ON_COLUMNS, TURNED, "{{ lane }} < {{ lane }}s)",
        "{{ lane }} <= {{ lane }}s)", OUTSIDE_READ,
    ),
    Mutant(
        "turned: unroll drops columns [10]", ON_TURNED, TURNED, "{{ lane }} < {{ lane }}s)",
        "first + (kUnroll - 1) * kBlockX < {{ lane }}s)", WRONG,
    ),
    Mutant("turned: copies [9]", ON_TURNED, TURNED, "out[col * out_pitch + row]", "out[row * in_pitch + col]",
           (WRONG, OUTSIDE_WRITE)),
    Mutant("turned: wrong pitch of the output", ON_TURNED, TURNED, "out[col * out_pitch", "out[col * rows",
           OUTSIDE_WRITE),
    Mutant("turned: wrong pitch of the input", ON_TURNED, TURNED, "in[row * in_pitch", "in[row * cols",
           OUTSIDE_READ),
    Mutant("turned: blocks overlap", ON_TURNED, TURNED, "(kBlockX * kUnroll)", "kBlockX", RACE),
    Mutant("turned: elements kBlockY apart", ON_TURNED, TURNED, "first + u * kBlockX", "first + u * kBlockY", RACE),
    Mutant(
        "turned: square diagonal formula [8]", ON_COLUMNS, TILES, "tile_row = {{ tile }} / tiles_across;",
        "tile_row = blockIdx.x % tiles_across;", RACE,
        (("tile_col = {{ tile }} % tiles_across;", f"tile_col = {DIAGONAL};"),),
    ),
)  # fmt: skip

# Indices of 32 bits where 64 are needed: found on more than 2^32 elements, of which a few blocks are run.
LARGE = (
    Mutant(
        "tiled: loads at row times pitch in 31 bits", ON_TILED, TILED, '"row * in_pitch + col"',
        '"int(row) * int(in_pitch) + int(col)"', OVERFLOW,
    ),
    Mutant(
        "tiled: loads at an index of 32 bits", ON_TILED, TILED, '"row * in_pitch + col"',
        '"unsigned(row * in_pitch + col)"', (WRONG, UNTOUCHED),
    ),
    Mutant(
        "tiled: stores at an index of 32 bits", ON_TILED, TILED, '"col * out_pitch + row"',
        '"unsigned(col * out_pitch + row)"', (WRONG, RACE, UNTOUCHED),
    ),
    Mutant(
        "tiled: rows of tiles in 31 bits", ON_TILED, TILED, "const long long first_row = tile_row",
        "const int first_row = int(tile_row)", OVERFLOW,
    ),
    Mutant(
        "tiled: columns of tiles in 32 bits", ON_TILED, TILED, "const long long first_col = tile_col * kTileCols",
        "const unsigned first_col = unsigned(tile_col) * kTileCols", (WRONG, RACE, UNTOUCHED),
    ),
    Mutant(
        "tiled: index of both arrays in 32 bits", ON_TILED, TILED, '"row * in_pitch + col"',
        '"unsigned(row * in_pitch + col)"', (WRONG, RACE, UNTOUCHED),
        (('"col * out_pitch + row"', '"unsigned(col * out_pitch + row)"'),),
    ),
    Mutant(
        "turned: index of the output in 31 bits", ON_TURNED, TURNED, "out[col * out_pitch + row]",
        "out[int(col) * int(out_pitch) + int(row)]", OVERFLOW,
    ),
    Mutant(
        "turned: index of the input in 32 bits", ON_COLUMNS, TURNED, "in[row * in_pitch + col]",
        "in[unsigned(row * in_pitch + col)]", (WRONG, UNTOUCHED),
    ),
    Mutant(
        "turned: first element of a thread in 32 bits", ON_TURNED, TURNED, "const long long first = tile_col",
        "const unsigned first = unsigned(tile_col)", (WRONG, RACE, UNTOUCHED),
    ),
    Mutant(
        "turned: rows in 31 bits", ON_TURNED, TURNED, "const long long {{ other }} = tile_row * kBlockY",
        "const int {{ other }} = int(tile_row) * kBlockY", OVERFLOW,
    ),
)  # fmt: skip

UNCHANGED = (
    Unchanged(
        "tiled: no padding", ON_TILED, TILED, "tile[{{ height }}][kTileCols + kPadding];",
        "tile[kTileDim][kTileCols];",
        "padding decides over bank conflicts, which cost time only",
    ),
    Unchanged(
        "tiled: rows times height, whole tiles [7]", ON_WHOLE_TILES, TILED, '"col * out_pitch + row"',
        '"(first_col + y + i + j * rows) * out_pitch + row"', "with block_rows equal to tile_dim, j is 0 only",
    ),
)  # fmt: skip
