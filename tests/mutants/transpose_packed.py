"""Changes to the template of the transposes that move boxes of several axes."""

from __future__ import annotations

from gen.proof.failures import WRONG
from tests.mutants.change import MISALIGNED, OUTSIDE_READ, OUTSIDE_WRITE, RACE, UNINITIALISED, Mutant, Unchanged

PACKED = "transpose/packed.cu.jinja"

ON_BYTES = "transpose_0321_b8__packed_a4_tpb512_u4"
ON_HALVES = "transpose_210_b16__packed_a3_tpb512_u4_i32"
BY_WORDS = "transpose_0321_b8__packed_a4_tpb512_u4_rwords"
ON_ELEMENTS = "transpose_0321_b32__packed_a4_tpb512_u4_i32"

MUTANTS = (
    Mutant("boxes: no barrier after they are found [5]", ON_ELEMENTS, PACKED, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="found"),
    Mutant("boxes: no barrier after filling the tile [5]", ON_ELEMENTS, PACKED, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="staged"),
    Mutant("boxes: no barrier after a box is written [5]", ON_ELEMENTS, PACKED, "__syncthreads();", "",
           (RACE, WRONG), at="written"),
    Mutant("boxes: the last ones lie outside", ON_ELEMENTS, PACKED, "first -= skipped[i];", ";",
           (OUTSIDE_READ, OUTSIDE_WRITE), at="last box"),
    Mutant("boxes: what lies in two is written twice", ON_ELEMENTS, PACKED, "last |= 1u << i;", ";", RACE, at="last"),
    Mutant("boxes: a place too many is left out", ON_ELEMENTS, PACKED, "places < skipped", "places <= skipped",
           (UNINITIALISED, WRONG), at="left out"),
    Mutant("boxes: one too few for a block", ON_ELEMENTS, PACKED, ") + 1, kSteps", "), kSteps", UNINITIALISED,
           at="steps"),
    Mutant("boxes: one too many for a block", ON_ELEMENTS, PACKED, ") + 1, kSteps", ") + 2, kSteps",
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
    Mutant("boxes: the tile behind the last element is not filled", ON_BYTES, PACKED, "thread == 0", "false",
           UNINITIALISED, at="behind the last"),
    # of these by words
    Mutant("boxes: words begin between words", BY_WORDS, PACKED, "early_of(place)", "0", MISALIGNED,
           at="early of a unit"),
    Mutant("boxes: a unit's second word is not read", BY_WORDS, PACKED, "early > 0", "false",
           (UNINITIALISED, WRONG), at="second word"),
    Mutant("boxes: words that are read are not shifted", BY_WORDS, PACKED, "early_of(next + from[u])", "0", WRONG,
           at="shift of a unit"),
    Mutant("boxes: words before the array are read", BY_WORDS, PACKED, "(begins && early_of(in) > 0)", "false",
           OUTSIDE_READ, at="outside"),
    Mutant("boxes: words behind the array are read", BY_WORDS, PACKED, "(ends && early_of(in + count) > 0)", "false",
           OUTSIDE_READ, at="outside"),
    Mutant("boxes: elements of words past the end of a run", BY_WORDS, PACKED, "if (has(filled, u, e)) ", "",
           (OUTSIDE_WRITE, RACE, WRONG), at="element staged"),
)  # fmt: skip

LARGE: tuple[Mutant, ...] = ()
UNCHANGED: tuple[Unchanged, ...] = ()
