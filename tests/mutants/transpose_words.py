"""Changes to the template of the transposes that move tiles of small elements by words."""

from __future__ import annotations

from gen.proof.failures import UNTOUCHED, WRONG
from tests.mutants.change import IN_FLIGHT, MISALIGNED, OUTSIDE_READ, OUTSIDE_WRITE, RACE, UNINITIALISED, Mutant

WORDS = "transpose/word_tile.cu.jinja"

ON_BYTES = "transpose_10_b8__word_tile_a2_r40_w4096_tpb128_ocol"
ON_HALVES = "transpose_0321_b16__word_tile_a4_r40_w2048_tpb128_orow"
SEVERAL = "transpose_210_b8__word_tile_a3_r40_w2048_tpb64_ocol"

MUTANTS = (
    Mutant("words: no barrier after the tile's place is found [5]", ON_BYTES, WORDS, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="begun"),
    Mutant("words: no barrier after filling the tile [5]", ON_BYTES, WORDS, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="filled"),
    Mutant("words: no barrier after filling a dense tile [5]", ON_BYTES, WORDS, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="filled densely"),
    Mutant("words: words are not waited for", ON_BYTES, WORDS, "cp.async.wait_all;", "cp.async.commit_group;",
           IN_FLIGHT, at="wait for rows"),
    Mutant("words: vectors are not waited for", ON_BYTES, WORDS, "cp.async.wait_all;", "cp.async.commit_group;",
           IN_FLIGHT, at="wait for vectors"),
    Mutant("words: threads that are left read rows too", ON_BYTES, WORDS, "beside < at_once", "true", RACE,
           at="threads left"),
    Mutant("words: elements behind a row are read", SEVERAL, WORDS, "(end - col)", "(end - col + 1)", OUTSIDE_READ,
           at="end of a row"),
    Mutant("words: words before a row are read", ON_HALVES, WORDS, "if (col + i >= 0) ", "", OUTSIDE_READ,
           at="words of the first vector"),
    Mutant("words: elements before a row are read", ON_BYTES, WORDS, "e >= early && ", "", OUTSIDE_READ,
           at="first word"),
    Mutant("words: elements of a row's first word behind the row are read", ON_BYTES, WORDS,
           " && e - early < cols_here", "", OUTSIDE_READ, at="first word"),
    Mutant("words: vectors before the array are not seen", SEVERAL, WORDS, " || from - early < in", "", OUTSIDE_READ,
           at="apart"),
    Mutant("words: vectors in gaps are not seen", ON_HALVES, WORDS, "apart > 0 || ", "", OUTSIDE_READ, at="apart"),
    Mutant("words: vectors before the array are read", ON_BYTES, WORDS, "from + i >= in && ", "", OUTSIDE_READ,
           at="vectors in part"),
    Mutant("words: vectors behind the array are read", ON_BYTES, WORDS, " && from + i + kVector <= in + elements", "",
           OUTSIDE_READ, at="vectors in part"),
    Mutant("words: elements behind the array are read", ON_BYTES, WORDS, " && from + e < in + elements", "",
           OUTSIDE_READ, at="elements of the array"),
    Mutant("words: rows lie on each other", ON_BYTES, WORDS, "i * pitch", "i * (pitch - 2)", (RACE, WRONG),
           at="slot of a row"),
    Mutant("words: groups have columns of the next group", ON_BYTES, WORDS, "min(begin + each, cols_here)",
           "min(begin + each + 1, cols_here)", RACE, at="columns of a group"),
    Mutant("words: columns of a square begin at a word", ON_BYTES, WORDS,
           "8 * kSize * ((from[e] + start) % kElements)", "0", WRONG, at="columns of a square"),
    Mutant("words: words of the output are not shifted", ON_BYTES, WORDS, "8 * static_cast<unsigned>(to)", "0", WRONG,
           at="shift"),
    Mutant("words: the last lane writes too", ON_BYTES, WORDS, "lane < 31 && ", "", (RACE, WRONG),
           at="words of a lane"),
    Mutant("words: a word behind a column's last is written", ON_BYTES, WORDS, " && word + 1 < words", "",
           (RACE, WRONG, OUTSIDE_WRITE), at="words of a lane"),
    Mutant("words: columns behind the last are written", ON_BYTES, WORDS, " && begin + first + u < end", "",
           (RACE, WRONG, OUTSIDE_WRITE), at="columns written"),
    Mutant("words: words are written past the last row", ON_BYTES, WORDS, "(kInside || row + kElements <= rows_here)",
           "true", (OUTSIDE_WRITE, RACE, WRONG), at="whole word"),
    Mutant("words: elements are written past the last row", ON_BYTES, WORDS, "if (row + e < rows_here) ", "",
           (OUTSIDE_WRITE, RACE, WRONG), at="last rows"),
    Mutant("words: rows before the first word are left out", ON_BYTES, WORDS, "head && ", "false && ",
           (UNTOUCHED, WRONG), at="first rows"),
    Mutant("words: each tile writes the rows before its first word", ON_BYTES, WORDS, "head && ", "", RACE,
           at="first rows"),
    Mutant("words: a word of the output begins at any row", ON_BYTES, WORDS, "% kElements;", "* 0;",
           (MISALIGNED, OUTSIDE_WRITE),
           at="rows before a word"),
    Mutant("words: rows behind the last are taken", SEVERAL, WORDS, "min(word * kElements + e, rows_here - 1)",
           "word * kElements + e", (UNINITIALISED, OUTSIDE_READ), at="rows of a word"),
    Mutant("words: rows behind the last are taken from a dense tile", ON_BYTES, WORDS,
           "min(word * kElements + e, rows_here - 1)", "word * kElements + e", (UNINITIALISED, OUTSIDE_READ),
           at="rows of a dense word"),
    Mutant("words: no barrier after rows are found [5]", SEVERAL, WORDS, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="found"),
)  # fmt: skip

LARGE: tuple[Mutant, ...] = ()
UNCHANGED = ()
