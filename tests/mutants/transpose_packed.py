"""Changes to the template of the transposes that move boxes of several axes."""

from __future__ import annotations

from gen.proof.failures import WRONG
from tests.mutants.change import MISALIGNED, OUTSIDE_READ, OUTSIDE_WRITE, RACE, UNINITIALISED, Mutant, Unchanged

PACKED = "transpose/packed.cu.jinja"

ON_BYTES = "transpose_0321_b8__packed_tpb256_u8_s2_ocol"
ON_HALVES = "transpose_210_b16__packed_tpb512_u4_s2_orow_i32"
ON_ELEMENTS = "transpose_0321_b32__packed_tpb512_u4_s2_ocol_i32"

MUTANTS = (
    Mutant("boxes: no barrier after they are found [5]", ON_ELEMENTS, PACKED, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="found"),
    Mutant("boxes: no barrier after filling the tile [5]", ON_ELEMENTS, PACKED, "__syncthreads();", "",
           (RACE, UNINITIALISED), at="staged"),
    Mutant("boxes: no barrier after a box is written [5]", ON_ELEMENTS, PACKED, "__syncthreads();", "",
           (RACE, WRONG), at="written"),
    Mutant("boxes: strides as in the input [6]", ON_ELEMENTS, PACKED, "kIn ? axis.in_stride : axis.out_stride",
           "axis.in_stride", (OUTSIDE_WRITE, RACE, WRONG), at="box stride"),
    Mutant("boxes: the last ones lie outside", ON_ELEMENTS, PACKED,
           "min(early, extents[a] - static_cast<long long>(axes[a].places))", "early", OUTSIDE_READ, at="last box"),
    Mutant("boxes: what lies in two is written twice", ON_ELEMENTS, PACKED, "early - first", "0", RACE, at="skipped"),
    Mutant("boxes: a place too many is left out", ON_ELEMENTS, PACKED, ">= skipped", "> skipped",
           (UNINITIALISED, WRONG), at="own"),
    Mutant("boxes: one too few for a block", ON_ELEMENTS, PACKED, ") + 1, kSteps", "), kSteps", UNINITIALISED,
           at="steps"),
    Mutant("boxes: one too many for a block", ON_ELEMENTS, PACKED, ") + 1, kSteps", ") + 2, kSteps",
           (OUTSIDE_READ, OUTSIDE_WRITE, RACE, WRONG), at="steps"),
    Mutant("boxes: elements past the last", ON_ELEMENTS, PACKED, "thread + u * kThreadsPerBlock < elements", "true",
           (RACE, OUTSIDE_WRITE), at="element written"),
    Mutant("boxes: elements past the last of one that is not whole", ON_ELEMENTS, PACKED, "unit < elements && ", "",
           (RACE, OUTSIDE_WRITE), at="own element written"),
    Mutant("boxes: all elements of the last ones", ON_ELEMENTS, PACKED, "is_own(axes, unit, skipped[now])", "true",
           RACE, at="own element written"),
    # elements of less than a word
    Mutant("boxes: gaps of a pitch taken for elements", ON_HALVES, PACKED, "follow = false;", ";",
           (WRONG, OUTSIDE_READ), at="gap"),
    Mutant("boxes: words past the end of a run", ON_BYTES, PACKED, "min(kElements, runs.length - at)", "kElements",
           (OUTSIDE_READ, OUTSIDE_WRITE, RACE, WRONG), at="filled"),
    Mutant("boxes: runs of no whole words", ON_BYTES, PACKED, " && runs.length % kElements == 0", "",
           (MISALIGNED, OUTSIDE_READ), at="whole runs"),
    Mutant("boxes: runs that begin between words", ON_BYTES, PACKED, "stride % kElements != 0", "false", MISALIGNED,
           at="whole strides"),
    Mutant("boxes: words are read between words", ON_BYTES, PACKED, " && is_word(box)", "", MISALIGNED,
           at="word read"),
    Mutant("boxes: words are written between words", ON_BYTES, PACKED, " && is_word(box)", "", MISALIGNED,
           at="word written"),
    Mutant("boxes: words that another box writes in part", ON_BYTES, PACKED, "whole && ", "", RACE, at="word written"),
    Mutant("boxes: elements past the end of a run are read", ON_BYTES, PACKED, "e < filled", "true", OUTSIDE_READ,
           at="end of a run"),
    Mutant("boxes: elements past the end of a run are written", ON_BYTES, PACKED, "e < filled && ", "",
           (OUTSIDE_WRITE, RACE, WRONG), at="elements written"),
    Mutant("boxes: runs of the tile begin within words", ON_BYTES, PACKED,
           "(step + kElements - 1) / kElements * kElements", "step", (RACE, WRONG), at="words of the tile"),
    Mutant("boxes: padding that steps know nothing of", ON_BYTES, PACKED, "axes[i].padding", "0", (RACE, WRONG),
           at="padding of steps"),
)  # fmt: skip

LARGE: tuple[Mutant, ...] = ()
UNCHANGED: tuple[Unchanged, ...] = ()
