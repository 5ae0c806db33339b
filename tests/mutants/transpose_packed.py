"""Changes to the template of the transposes that move boxes of several axes."""

from __future__ import annotations

from gen.proof.failures import WRONG
from tests.mutants.change import MISALIGNED, OUTSIDE_READ, OUTSIDE_WRITE, RACE, UNINITIALISED, Mutant, Unchanged

PACKED = "transpose/packed.cu.jinja"

ON_BYTES = "transpose_0321_b8__packed_a4_tpb512_u4"
ON_HALVES = "transpose_210_b16__packed_a3_tpb512_u4_i32"
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
    Mutant("boxes: words of elements that another box writes", ON_BYTES, PACKED, "(left_out[first + e] & last) != 0",
           "false", RACE, at="word of two boxes"),
    Mutant("boxes: elements that another box writes", ON_BYTES, PACKED, "(left_out[first + e] & last) == 0", "true",
           RACE, at="element of two boxes"),
    Mutant("boxes: the tile behind the last element is not filled", ON_BYTES, PACKED, "thread == 0", "false",
           UNINITIALISED, at="behind the last"),
)  # fmt: skip

LARGE: tuple[Mutant, ...] = ()
UNCHANGED: tuple[Unchanged, ...] = ()
