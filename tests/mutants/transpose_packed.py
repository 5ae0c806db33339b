"""Changes to the template of the transposes that move boxes of several axes."""

from __future__ import annotations

from gen.proof.failures import WRONG
from tests.mutants.change import MISALIGNED, OUTSIDE_READ, OUTSIDE_WRITE, RACE, UNINITIALISED, Mutant, Unchanged

PACKED = "transpose/packed.cu.jinja"

ON_WORDS = "transpose_0321_b8__packed_r1_tpb128_u2_swz_ocol"
ON_ELEMENTS = "transpose_0321_b32__packed_r1_tpb128_u2_swz_ocol"
ON_PADDED = "transpose_0321_b32__packed_r1_tpb128_u4_pad_orow"

MUTANTS = (
    Mutant(
        "boxes: no barrier after the first thread [5]", ON_ELEMENTS, PACKED,
        "  __syncthreads();\n\n  // Where each part lies", "  // Where each part lies", (RACE, UNINITIALISED),
    ),
    Mutant(
        "boxes: no barrier after the tables [5]", ON_PADDED, PACKED,
        "  __syncthreads();\n\n{% if swizzle %}", "{% if swizzle %}", (RACE, UNINITIALISED),
    ),
    Mutant(
        "boxes: no barrier after filling the tile [5]", ON_ELEMENTS, PACKED,
        "  }\n  __syncthreads();\n  if (box.inside) {", "  }\n  if (box.inside) {", (RACE, UNINITIALISED),
    ),
    Mutant(
        "boxes: inside at the ends too", ON_ELEMENTS, PACKED, "inside = inside && left >= axis.places;", "",
        OUTSIDE_READ,
    ),
    Mutant(
        "boxes: places past the last [2]", ON_WORDS, PACKED, "min(static_cast<long long>(axis.places), left)",
        "axis.places", (OUTSIDE_READ, OUTSIDE_WRITE, RACE, WRONG),
    ),
    Mutant(
        "boxes: gaps of a pitch taken for elements", ON_ELEMENTS, PACKED, "parts.run = false;", ";",
        (WRONG, OUTSIDE_READ),
    ),
    Mutant(
        "boxes: wrong pitch of the input", ON_ELEMENTS, PACKED, "i == kAxes - 1 ? in_pitch : ", "", OUTSIDE_READ,
    ),
    Mutant(
        "boxes: axes as in the input [6]", ON_WORDS, PACKED, "return kIn ? i : order[i];", "return i;",
        (OUTSIDE_WRITE, RACE, WRONG),
    ),
    Mutant(
        "boxes: units past the last", ON_ELEMENTS, PACKED, "min(first + u * kThreadsPerBlock, end - 1)",
        "first + u * kThreadsPerBlock", (OUTSIDE_READ, UNINITIALISED),
    ),
    Mutant(
        "boxes: one part too many [2]", ON_ELEMENTS, PACKED,
        "#pragma unroll 4\n    for (int number = group; number < parts.count;",
        "#pragma unroll 4\n    for (int number = group; number <= parts.count;",
        (OUTSIDE_READ, OUTSIDE_WRITE, UNINITIALISED, RACE, WRONG),
    ),
    Mutant(
        "boxes: threads left over", ON_PADDED, PACKED, "  if (group >= groups) return;\n", "", (RACE, OUTSIDE_WRITE),
    ),
    Mutant(
        "boxes: exchanged once only", ON_ELEMENTS, PACKED, '"tile[slot(tiles[number] + mine.tile" ~ argument ~ ")]"',
        '"tile[tiles[number] + mine.tile]"', (WRONG, UNINITIALISED),
    ),
    # elements of less than a word
    Mutant("boxes: words not shifted", ON_WORDS, PACKED, "apart * 8 * kSize", "0", WRONG),
    Mutant(
        "boxes: words begin between words", ON_WORDS, PACKED, "if (apart == 0 && first", "if (first", MISALIGNED,
    ),
    Mutant(
        "boxes: a word before the part", ON_WORDS, PACKED, "if (first >= apart && first - apart", "if (first - apart",
        OUTSIDE_READ,
    ),
    Mutant(
        "boxes: a word after the part", ON_WORDS, PACKED, "first - apart + 2 * kElements <= inside",
        "first - apart + kElements <= inside", OUTSIDE_READ,
    ),
    Mutant(
        "boxes: parts begin within a word", ON_WORDS, PACKED,
        "      if (kAxes - 1 - i == box.read.axes) step = (step + kElements - 1) / kElements * kElements;\n", "",
        WRONG,
    ),
    Mutant(
        "boxes: all parts begin as the first", ON_WORDS, PACKED, "if (now != early) {", "if (early < 0) {",
        (WRONG, MISALIGNED, OUTSIDE_WRITE, RACE),
    ),
    Mutant(
        "boxes: the last word dropped [1]", ON_WORDS, PACKED, "together % 4 == 0 ? 0 : kElements - 1;", "0;", WRONG,
    ),
)  # fmt: skip

LARGE: tuple[Mutant, ...] = ()
UNCHANGED: tuple[Unchanged, ...] = ()
