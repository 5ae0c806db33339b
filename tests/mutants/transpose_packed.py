"""Changes to the template of the transposes that move boxes of several axes."""

from __future__ import annotations

from gen.proof.failures import WRONG
from tests.mutants.change import MISALIGNED, OUTSIDE_READ, OUTSIDE_WRITE, RACE, UNINITIALISED, Mutant, Unchanged

PACKED, BOXES = "transpose/packed.cu.jinja", "transpose/_boxes.cu.jinja"
SHIFTED, GROUPED = "transpose/shift_box.cu.jinja", "transpose/grouped_tile.cu.jinja"

ON_BYTES = "transpose_0321_b8__packed_a4_tpb512_u4"
PAIRS = "transpose_10_b8__packed_a2_tpb512_u4"
ON_HALVES = "transpose_210_b16__packed_a3_tpb512_u4_i32"
BY_WORDS = "transpose_0321_b8__packed_a4_tpb512_u4_rwords"
BY_SQUARES = "transpose_210_b8__shift_box_a3_tpb512"
ON_ELEMENTS = "transpose_0321_b32__packed_a4_tpb512_u4_i32"
OTHERS = "transpose_0321_b32__grouped_tile_a4_v4_x32_y32_u4_orow_i32"
BY_VECTORS = "transpose_0321_b16__grouped_tile_a4_v8_x16_y16_u2_ocol"
SINGLY = "transpose_2310_b32__grouped_tile_a4_v4_x32_y32_u4_orow_i32"

MUTANTS = (
    Mutant("boxes: no barrier after they are found [5]", ON_ELEMENTS, PACKED, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="found"),
    Mutant("boxes: no barrier after filling the tile [5]", ON_ELEMENTS, PACKED, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="staged"),
    Mutant("boxes: no barrier after a box is written [5]", ON_ELEMENTS, PACKED, "__syncthreads();", "",
           (RACE, WRONG), at="written"),
    Mutant("boxes: the last ones lie outside", ON_ELEMENTS, BOXES, "first -= skipped[i];", ";",
           (OUTSIDE_READ, OUTSIDE_WRITE), at="last box"),
    Mutant("boxes: what lies in two is written twice", ON_ELEMENTS, BOXES, "last |= 1u << i;", ";", RACE, at="last"),
    Mutant("boxes: a place too many is left out", ON_ELEMENTS, PACKED, "places < skipped", "places <= skipped",
           (UNINITIALISED, WRONG), at="left out"),
    Mutant("boxes: one too few for a block", ON_ELEMENTS, BOXES, ") + 1, kSteps", "), kSteps", UNINITIALISED,
           at="steps"),
    Mutant("boxes: one too many for a block", ON_ELEMENTS, BOXES, ") + 1, kSteps", ") + 2, kSteps",
           (OUTSIDE_READ, OUTSIDE_WRITE, RACE, WRONG), at="steps"),
    Mutant("boxes: elements past the last", ON_ELEMENTS, PACKED, "unit < elements && ", "",
           (RACE, OUTSIDE_WRITE, UNINITIALISED), at="element written"),
    # elements of less than a word
    Mutant("boxes: elements past the end of a run", ON_BYTES, PACKED, " && in_run + e < read.length", "",
           (OUTSIDE_READ, OUTSIDE_WRITE, RACE, WRONG), at="filled"),
    Mutant("boxes: words are read between words", ON_BYTES, PACKED, " && early_of(next) == 0", "", MISALIGNED,
           at="words read"),
    Mutant("boxes: words that another box writes in part", ON_BYTES, PACKED, " && last == 0", "", RACE, at="exact"),
    Mutant("boxes: a run's last word is left out", ON_HALVES, PACKED, "exact ? 0 : kElements - 1", "0",
           (UNINITIALISED, WRONG), at="lacks"),
    Mutant("boxes: words are written past the end of a run", ON_BYTES, PACKED,
           " && in_run + kElements <= written.length", "", (OUTSIDE_WRITE, RACE, WRONG, UNINITIALISED),
           at="whole word"),
    Mutant("boxes: words are written between words", ON_BYTES, PACKED, "early_of(place)", "0", MISALIGNED, at="early"),
    Mutant("boxes: words of elements that another box writes", ON_BYTES, PACKED, "last == 0 ? 0", "true ? 0", RACE,
           at="of two boxes"),
    Mutant("boxes: elements that another box writes", ON_BYTES, PACKED,
           " && static_cast<{{ element }}>(others >> (8 * kSize * e)) == 0", "", RACE, at="element of two boxes"),
    Mutant("boxes: a word of the tile behind the last", ON_BYTES, PACKED, "min(unit + 1, (elements - 1) / kElements)",
           "unit + 1", (UNINITIALISED, OUTSIDE_READ), at="last unit"),
    Mutant("boxes: words of the tile are not shifted", ON_BYTES, PACKED, "8 * kSize * shift", "0", WRONG, at="shift"),
    Mutant("boxes: words more than threads keep are left out", ON_BYTES, PACKED, "i < written.units", "i < 0",
           (WRONG, UNINITIALISED), at="more units"),
    Mutant("boxes: the tile behind the last element is not filled", ON_BYTES, PACKED, "thread == 0", "false",
           UNINITIALISED, at="behind the last"),
    Mutant("boxes: a single place that the last ones leave out", PAIRS, PACKED, "all_skipped > 0", "all_skipped > 1",
           UNINITIALISED),
    # of these by words
    Mutant("boxes: words begin between words", BY_WORDS, PACKED, "early_of(place)", "0", MISALIGNED,
           at="early of a unit"),
    Mutant("boxes: a unit's second word is not read", BY_WORDS, PACKED, "early > 0", "false",
           (UNINITIALISED, WRONG), at="second word"),
    Mutant("boxes: words that are read are not shifted", BY_WORDS, PACKED, "early_of(next + from[u])", "0", WRONG,
           at="shift of a unit"),
    Mutant("boxes: words before the array are read", BY_WORDS, BOXES, "(begins && early_of(in) > 0)", "false",
           OUTSIDE_READ, at="outside"),
    Mutant("boxes: words behind the array are read", BY_WORDS, BOXES, "(ends && early_of(in + count) > 0)", "false",
           OUTSIDE_READ, at="outside"),
    Mutant("boxes: elements of words past the end of a run", BY_WORDS, PACKED, "if (has(filled, u, e)) ", "",
           (OUTSIDE_WRITE, RACE, WRONG), at="element staged"),
    # shift_box
    Mutant("squares: no barrier after boxes are found [5]", BY_SQUARES, SHIFTED, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="found"),
    Mutant("squares: no barrier after filling the tile [5]", BY_SQUARES, SHIFTED, "__syncthreads();", "",
           (RACE, WRONG), at="staged"),
    Mutant("squares: no barrier after a box is written [5]", BY_SQUARES, SHIFTED, "__syncthreads();", "",
           (RACE, WRONG), at="written"),
    Mutant("squares: words that are read are not shifted", BY_SQUARES, SHIFTED, "beside, shift", "beside, 0", WRONG,
           at="shift"),
    Mutant("squares: words that are written are not shifted", BY_SQUARES, SHIFTED, "8 * (at % 4)", "0", WRONG,
           at="joined"),
    Mutant("squares: words are written between words", BY_SQUARES, SHIFTED, "early_of(place)", "0", MISALIGNED,
           at="whole words"),
    Mutant("squares: words are written past the end of a column", BY_SQUARES, SHIFTED,
           "row + kElements <= rows_left && ", "", (OUTSIDE_WRITE, RACE, WRONG), at="word written"),
    Mutant("squares: words that another box writes", BY_SQUARES, SHIFTED,
           " && (left_out[u / 4] & last << (8 * (u % 4))) == 0", "", RACE, at="word written"),
    Mutant("squares: a fifth word is left out as the first", BY_SQUARES, SHIFTED, "left_out[u / 4] |=",
           "left_out[u / 5] |=", (RACE, WRONG, UNINITIALISED)),
    Mutant("squares: a place too many is left out", BY_SQUARES, SHIFTED, "at < skipped", "at <= skipped", WRONG,
           at="column left out"),
    Mutant("squares: a run's last word is read as if it began at a word", BY_SQUARES, SHIFTED, "early_of(place)", "0",
           (OUTSIDE_READ, WRONG), at="early"),
    Mutant("squares: words before a row are read", BY_SQUARES, SHIFTED, "early <= squares.col[s]", "true",
           OUTSIDE_READ, at="whole word read"),
    Mutant("squares: words behind a row are read", BY_SQUARES, SHIFTED, "early >= behind + kElements", "true",
           OUTSIDE_READ, at="whole word read"),
    Mutant("squares: words reach into gaps", BY_SQUARES, SHIFTED, "(kBeyond || whole)", "true", OUTSIDE_READ,
           at="row"),
    Mutant("squares: elements before a row are read", BY_SQUARES, SHIFTED, "col + e >= 0 && ", "", OUTSIDE_READ,
           at="part of a word"),
    Mutant("squares: rows past the last are read", BY_SQUARES, SHIFTED,
           "min(max(rows - group * kElements, 0), kElements)", "kElements", (OUTSIDE_READ, RACE, WRONG),
           at="rows of a square"),
    Mutant("squares: the last lane leaves a square too", BY_SQUARES, SHIFTED, "lane < 31", "true", (RACE, WRONG),
           at="square of a lane"),
    Mutant("squares: gaps are not seen", BY_SQUARES, SHIFTED, "apart == 0 && ", "", OUTSIDE_READ, at="beyond"),
    Mutant("squares: the end of a column has an element too many", BY_SQUARES, SHIFTED, "begin + e < end",
           "begin + e <= end", (OUTSIDE_WRITE, RACE, WRONG), at="end of a column"),
    # grouped_tile
    Mutant("groups: no barrier after rows and columns are found [5]", SINGLY, GROUPED, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="found"),
    Mutant("groups: no barrier after filling the tile [5]", SINGLY, GROUPED, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="filled"),
    Mutant("groups: no barrier between reading and writing singly [5]", BY_VECTORS, GROUPED, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="read singly"),
    Mutant("groups: rows behind the last are written", SINGLY, GROUPED, "down * kElements < rows_left", "true",
           (RACE, UNINITIALISED, OUTSIDE_WRITE), at="rows written"),
    Mutant("groups: columns behind the last are written", SINGLY, GROUPED, "col < cols_left", "true",
           (RACE, UNINITIALISED, OUTSIDE_WRITE), at="columns written"),
    Mutant("groups: a column too many is taken from the tile", SINGLY, GROUPED, "col < cols_left", "col <= cols_left",
           UNINITIALISED, at="columns of the tile"),
    Mutant("groups: other axes are those of columns too", OTHERS, GROUPED, "axes, behind", "axes, row_axes",
           (RACE, WRONG, OUTSIDE_READ, OUTSIDE_WRITE), at="place of the others"),
    Mutant("groups: elements behind the last are written singly", BY_VECTORS, GROUPED, " && col < cols_left", "",
           (RACE, UNINITIALISED, OUTSIDE_WRITE), at="element written"),
    Mutant("groups: vectors reach from one row into the next", BY_VECTORS, GROUPED, "!whole || ", "",
           (MISALIGNED, WRONG, OUTSIDE_READ, OUTSIDE_WRITE, RACE), at="whole"),
    Mutant("groups: addresses between vectors", BY_VECTORS, GROUPED, " || addresses % kVecBytes != 0", "", MISALIGNED,
           at="whole"),
    Mutant("groups: rows of a square follow each other", BY_VECTORS, GROUPED, "rows[row + i].in",
           "rows[row].in", WRONG, at="row of a square"),
    Mutant("groups: rows of the axis that follows", SINGLY, GROUPED, "axes, 0, row_axes", "axes, 0, row_axes - 1",
           (RACE, WRONG), at="place of a row"),
    Mutant("groups: columns of a tile begin one late", SINGLY, GROUPED, "first_col + i - kTileRows",
           "first_col + i - kTileRows + 1", (RACE, WRONG, UNINITIALISED), at="place of a column"),
)  # fmt: skip

LARGE: tuple[Mutant, ...] = ()
_LAST_AGAIN = "where a row behind the last one begins, the last one does: it is read again, and not written"
UNCHANGED = (
    Unchanged("groups: rows behind the last are read", SINGLY, GROUPED, "row < rows_left", "true", _LAST_AGAIN,
              at="loads"),
    Unchanged("groups: elements behind the last are read singly", BY_VECTORS, GROUPED, "row < rows_left && ", "",
              _LAST_AGAIN, at="element read"),
)  # fmt: skip
