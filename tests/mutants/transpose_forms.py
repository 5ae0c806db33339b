"""Changes to the templates of transposes in place, and of those whose elements become others on their way."""

from __future__ import annotations

from gen.proof.failures import WRONG
from tests.mutants.change import (
    MISALIGNED,
    OUTSIDE_READ,
    OUTSIDE_WRITE,
    OVERFLOW,
    RACE,
    UNINITIALISED,
    Mutant,
    Unchanged,
)

SWAPS = "transpose/swap_tile.cu.jinja"
VALUES = "transpose/_values.cu.jinja"
PRODUCTS = "transpose/_products.cu.jinja"
VECTORS = "transpose/vector_tile.cu.jinja"

ON_SWAPS = "transpose_10_b32_in_place__swap_tile_v16_x8_s1"
ON_SINGLES = "transpose_10_b32_in_place__swap_tile_v4_x8_s1"
ON_STACK = "transpose_021_b128_in_place__swap_tile_v16_x8_s1"
ON_MANY = "transpose_021_b16_in_place__swap_tile_v4_x8_s2"
ON_HALF = "transpose_10_f32_to_f16__tiled_t32_r8_p1_u1"
ON_BYTES = "transpose_10_f64_to_i8_sat__tiled_t16_r8_p1_u1"
ON_UNSIGNED = "transpose_10_i16_to_u8_sat__tiled_t16_r8_p1_u1"
ON_SCALED = "transpose_10_f32_times_3dcccccd__vector_tile_v16_x8_g8_swz_ocol_ldg"
ON_PRODUCTS = "transpose_10_i64_to_f32_times_3fb999999999999a__tiled_t16_r8_p1_u1"  # of 0.1
ON_WHOLE = "transpose_10_i64_to_i32_sat_times_3fb999999999999a__tiled_t16_r8_p1_u1"
ON_SHORT = "transpose_10_u16_to_f32_times_40400000__naive_row_x32_y8_u1"
ON_WORD = "transpose_10_u32_to_f32_times_4008000000000000__naive_row_x32_y8_u1"
ON_WIDE_CONJUGATE = "transpose_10_c128_conj__naive_row_x32_y8_u1"
ON_NARROWED_CONJUGATE = "transpose_10_c128_conj_to_c64__naive_row_x32_y8_u1"
ON_CONJUGATE = "transpose_10_c64_conj__vector_tile_v16_x8_g8_swz_ocol_ldg"

MUTANTS = (
    # swap_tile
    Mutant(
        "in place: no barrier after filling the tiles [5]", ON_SWAPS, SWAPS, "", "", (RACE, UNINITIALISED),
        at="filled",
    ),
    Mutant(
        "in place: no barrier where rows begin anywhere [5]", ON_SWAPS, SWAPS, "", "", (RACE, UNINITIALISED),
        at="filled by elements",
    ),
    Mutant(
        "in place: all matrices are the first", ON_STACK, SWAPS, "static_cast<long long>(blockIdx.x / pairs)", "0",
        (RACE, WRONG),
    ),
    Mutant(
        "in place: tiles stay where they were", ON_SINGLES, SWAPS, "write_tile(both[0], opposite",
        "write_tile(both[0], here", (RACE, WRONG, OUTSIDE_WRITE),
    ),
    Mutant(
        "in place: the tile opposite is not written", ON_SINGLES, SWAPS, "if (apart) write_tile",
        "if (false) write_tile", WRONG,
    ),
    Mutant(
        "in place: extents of the tile opposite exchanged [6]", ON_SINGLES, SWAPS,
        "read_tile(both[1], opposite, pitch, width, height)", "read_tile(both[1], opposite, pitch, height, width)",
        (OUTSIDE_READ, UNINITIALISED, RACE),
    ),
    Mutant(
        "in place: rows of tiles one too low", ON_SINGLES, SWAPS, "far ? tiles - 1 - pair : pair",
        "far ? tiles - pair : pair", (OUTSIDE_READ, RACE, WRONG, UNINITIALISED),
    ),
    Mutant("in place: rows begin between vectors", ON_SWAPS, SWAPS, "(address | pitch * kSize) % kVecBytes != 0 || ",
           "", MISALIGNED),
    Mutant(
        "in place: vectors past the last column", ON_SWAPS, SWAPS, " || (height | width) % kElements != 0", "",
        (OUTSIDE_READ, RACE, UNINITIALISED, OUTSIDE_WRITE),
    ),
    Mutant(
        "in place: matrices follow without their gaps", ON_MANY, SWAPS, "rows * pitch;", "rows * rows;",
        (OUTSIDE_READ, RACE, WRONG),
    ),
    Mutant(
        "in place: exchanged once only", ON_SWAPS, SWAPS, "slot(c, below)", "c * kLanes + below",
        (WRONG, UNINITIALISED), at="exchanged",
    ),
    # what becomes of elements
    Mutant("values: rounded towards 0", ON_HALF, VALUES, '"__float2half_rn"', '"__float2half_rz"', WRONG),
    Mutant(
        "values: what is too large is cut off", ON_BYTES, VALUES,
        "if (number > {{ v.ends[1] }}) number = {{ v.ends[1] }};", ";", WRONG,
    ),
    Mutant(
        "values: what is too small is cut off", ON_UNSIGNED, VALUES,
        "if (number < {{ v.ends[0] }}) number = {{ v.ends[0] }};", ";", WRONG,
    ),
    Mutant("values: without alpha", ON_SCALED, VALUES, "= kAlpha * {{", "= {{", WRONG),
    Mutant("values: only where there are no vectors", ON_SCALED, VECTORS, "", "", WRONG, at="changed"),
    Mutant("values: the first word of a vector", ON_SCALED, VALUES, "w < kWords; w += {{", "w < 1; w += {{", WRONG),
    Mutant("values: no sign changes", ON_CONJUGATE, VALUES, '" ^ 0x80000000u"', '" ^ 0u"', WRONG),
    Mutant(
        "values: the real part's sign changes", ON_CONJUGATE, VALUES,
        '"make_uint2(bits.x, bits.y" }}{{ sign }}', '"make_uint2(bits.x ^ 0x80000000u, bits.y" }}', WRONG,
    ),
    Mutant("values: u16 read as signed", ON_SHORT, VALUES, '"u16": "bits"', '"u16": "static_cast<short>(bits)"', WRONG),
    Mutant("values: u32 read as signed", ON_WORD, VALUES, '"u32": "bits"', '"u32": "static_cast<int>(bits)"', WRONG),
    Mutant(
        "values: the sign of an imaginary part's lower word changes", ON_WIDE_CONJUGATE, VALUES,
        'bits.z, bits.w" if complex == 16', 'bits.z ^ 0x80000000u, bits.w ^ 0x80000000u" if complex == 16', WRONG,
    ),
    Mutant(
        "values: the sign of the lower word changes before it is another type's", ON_NARROWED_CONJUGATE, VALUES,
        '"make_uint2(bits.z, bits.w" ~ sign ~ ")"', '"make_uint2(bits.z" ~ sign ~ ", bits.w)"', WRONG,
    ),
    Mutant(
        "values: what is no number left to the conversion", ON_BYTES, VALUES,
        "product == product ? {{ v.conversion }}(product) : 0", "{{ v.conversion }}(product)", WRONG,
    ),
    # products of 128 bits
    Mutant("products: of 64 bits", ON_PRODUCTS, PRODUCTS, "__umul64hi(magnitude, kFactor)", "0", WRONG),
    Mutant("products: rounded twice", ON_PRODUCTS, PRODUCTS, "if (behind != 0) significant |= 1;", "", WRONG),
    Mutant("products: bits between the words", ON_PRODUCTS, PRODUCTS, "kept |= rest >> (64 - lead);", ";", WRONG),
    Mutant("products: without a sign", ON_PRODUCTS, PRODUCTS, "negative && first != 0", "false", WRONG),
    Mutant("products: past the range", ON_WHOLE, PRODUCTS, "if (lost || whole > most) whole = most;", "", WRONG),
)  # fmt: skip

LARGE = (
    Mutant(
        "in place: rows of tiles at an index of 31 bits", ON_SINGLES, SWAPS, "opposite = data + first_col * pitch",
        "opposite = data + int(first_col) * int(pitch)", OVERFLOW,
    ),
)  # fmt: skip
UNCHANGED = (
    Unchanged(
        "in place: tiles on the diagonal twice", ON_SINGLES, SWAPS, "const bool apart = tile_row != tile_col;",
        "const bool apart = true;", "every thread writes once more what it wrote, where it wrote it",
    ),
)  # fmt: skip
