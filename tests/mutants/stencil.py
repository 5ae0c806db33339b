"""Changes to the templates of the stencils."""

from __future__ import annotations

from gen.families import FAMILIES
from gen.families.names import find_family
from gen.proof.failures import AGAIN, UNTOUCHED, WRONG
from tests.mutants.change import (
    BARRIER,
    HANG,
    IN_FLIGHT,
    MISALIGNED,
    OUTSIDE_READ,
    OUTSIDE_WRITE,
    OVERFLOW,
    RACE,
    UNINITIALISED,
    Mutant,
    Unchanged,
)

STENCIL = "stencil/naive.cu.jinja"
STACKED = "stencil/stacked.cu.jinja"
STREAM = "stencil/stream.cu.jinja"
SHIFTED = "stencil/shifted.cu.jinja"
RESIDENT = "stencil/resident.cu.jinja"
PERSISTENT = "stencil/persistent.cu.jinja"
OUTSIDE = "stencil/_outside.cu.jinja"
IMAGES = "stencil/_images.cu.jinja"
CELLS, VECTORS = "stencil/_cells.cu.jinja", "stencil/_vectors.cu.jinja"
TILED = "stencil/tiled.cu.jinja"
QUEUED = "stencil/queued.cu.jinja"
TEMPORAL = "stencil/temporal.cu.jinja"
PIPELINED = "stencil/pipelined.cu.jinja"
LEVELS = "stencil/_levels.cu.jinja"
TERMS = "stencil/_terms.cu.jinja"
OVERLAPPED = "stencil/overlapped.cu.jinja"
MARCH = "stencil/march.cu.jinja"
FETCH, EDGE = "stencil/_fetch.cu.jinja", "stencil/_edge.cu.jinja"

ON_STENCIL = f"stencil_{find_family(FAMILIES, 'stencil').catalogue[0].label}__naive_x32_y8_u2"
ON_STREAM = ON_STENCIL.replace("naive_x32_y8_u2", "stream_u8_x1_y2")
ON_LONG_STREAM = ON_STREAM.replace("u8", "u16")  # not all of its rows are on their way at once
ON_SHIFTED = ON_STENCIL.replace("naive_x32_y8_u2", "shifted_u4_l32_w2")
ON_LONG_SHIFTED = ON_SHIFTED.replace("u4", "u16")
ON_BYTES = f"stencil_{find_family(FAMILIES, 'stencil').extra_proof_specs['shifted'].label}__shifted_u4_l32_w2"
ON_RESIDENT = ON_STENCIL.replace("naive_x32_y8_u2", "resident_a0_tpb256_u3_t4")
ON_LAYER = f"stencil_{find_family(FAMILIES, 'stencil').extra_proof_specs['tiled'].label}__tiled_x32_y4_u4"
ON_IMAGES = f"stencil_{find_family(FAMILIES, 'stencil').extra_proof_specs['stream'].label}__stream_u2_x1_y4"
ON_RESIDENT_IMAGES = ON_IMAGES.replace("stream_u2_x1_y4", "resident_a0_tpb256_u3_t4")
ON_TILED = ON_STENCIL.replace("naive_x32_y8_u2", "tiled_x32_y4_u4")
ON_QUEUED = ON_STENCIL.replace("naive_x32_y8_u2", "queued_x32_u16")
ON_TEMPORAL = ON_STENCIL.replace("naive_x32_y8_u2", "temporal_v1_r8_n1_t4")
ON_PIPELINED = ON_STENCIL.replace("naive_x32_y8_u2", "pipelined_v2_w2_l2_u2_a2_n3_r2")
_BLUR = next(spec for _, spec, _ in find_family(FAMILIES, "stencil").proof_cover() if spec.reassociate)
ON_BLUR = f"stencil_{_BLUR.label}__temporal_v1_r8_n1_t4"
ON_TRANSPORT = f"stencil_{find_family(FAMILIES, 'stencil').extra_proof_specs['temporal'].label}__temporal_v1_r8_n1_t4"
ON_RESIDENT_TRANSPORT = ON_TRANSPORT.replace("temporal_v1_r8_n1_t4", "resident_a1_tpb256_u3_t4")
ON_PERSISTENT = ON_STENCIL.replace("naive_x32_y8_u2", "persistent_c4_y2_w12_t4")
ON_FEW_TILES = ON_STENCIL.replace("naive_x32_y8_u2", "persistent_c8_y8_w8_t4")
ON_TORUS = f"stencil_{find_family(FAMILIES, 'stencil').extra_proof_specs['persistent'].label}__persistent_c4_y2_w12_t4"
ON_PERSISTENT_TRANSPORT = ON_TRANSPORT.replace("temporal_v1_r8_n1_t4", "persistent_c4_y4_w8_t2")
ON_PERSISTENT_LAYER = ON_LAYER.replace("tiled_x32_y4_u4", "persistent_c4_y4_w8_t4")
ON_OVERLAPPED = f"stencil_{find_family(FAMILIES, 'stencil').extra_proof_specs['overlapped'].label}__overlapped_v2_w2_t4"
ON_WIDE_OVERLAPPED = ON_OVERLAPPED.replace("v2_w2", "v8_w8")
ON_SPACE = f"stencil_{find_family(FAMILIES, 'stencil').extra_proof_specs['naive'].label}__naive_x32_y8_u2"
ON_LEVELS = f"stencil_{find_family(FAMILIES, 'stencil').extra_proof_specs['march'].label}__march_w4_u4_n2_r2_s3_t3"
ON_SPACE_32_BITS = ON_SPACE.replace("naive_x32_y8_u2", "naive_x32_y8_u2_i32")
ON_STACKED = ON_SPACE.replace("naive_x32_y8_u2", "stacked_tpb128_u4")
_DRIFT = next(spec for _, spec, _ in find_family(FAMILIES, "stencil").proof_cover() if spec.word == "drift")
ON_WAITING_LEVELS = f"stencil_{_DRIFT.label}__march_w4_u4_n2_r2_s2_t3"
ON_DEEP_RING = ON_WAITING_LEVELS.replace("march_w4_u4_n2_r2_s2_t3", "march_w4_u2_n1_r2_s6_t2")
ON_RESIDENT_PAIRS = ON_SPACE.replace("naive_x32_y8_u2", "resident_a1_tpb256_u3_t2_c2")
ON_FROZEN_STACKED = ON_LEVELS.replace("march_w4_u4_n2_r2_s3_t3", "stacked_tpb128_u2")
ON_MARCH = ON_SPACE.replace("naive_x32_y8_u2", "march_w4_u2_n2_r2_s3")
ON_WIDE_MARCH = ON_MARCH.replace("w4_u2", "w4_x2_u2")
# Of weights that are no powers of two: how a term is rounded, and which comes first, shows in the last bits.
_DERIVATIVE = ON_OVERLAPPED.partition("__")[0]
_LAPLACIAN = "stencil_laplacian_029fdcc6_f32"

MUTANTS = (
    # The order and the roundings of terms.
    Mutant(
        "stencil: products and sums rounded apart", f"{_DERIVATIVE}__naive_x32_y2_u2", STENCIL,
        "(weight, {{ cell }}(i + x - kLeft), sum);", "(1.0f, weight * {{ cell }}(i + x - kLeft), sum);", WRONG,
    ),
    Mutant(
        "stencil: the last term first", f"{_DERIVATIVE}__naive_x32_y2_u2", STENCIL,
        "x = 0; x < kWide; ++x", "x = kWide - 1; x >= 0; --x", WRONG, at="terms of a line",
    ),
    Mutant(
        "tiled stencil: products and sums rounded apart", f"{_DERIVATIVE}__tiled_x32_y4_u4", TILED,
        '({{ weight(coefficients, "0", "x") }}, tile', '(1.0f, {{ weight(coefficients, "0", "x") }} * tile', WRONG,
    ),
    Mutant(
        "queued: products and sums rounded apart", f"{_LAPLACIAN}__queued_x32_u16", QUEUED,
        '({{ weight(coefficients, "y", "x") }}, near', '(1.0f, {{ weight(coefficients, "y", "x") }} * near', WRONG,
    ),
    Mutant(
        "stream: products and sums rounded apart", f"{_DERIVATIVE}__stream_u2_x1_y2", STREAM,
        "kWeights[dy][dx], window", "1.0f, kWeights[dy][dx] * window", WRONG,
    ),
    Mutant(
        "stream: the last term first", f"{_DERIVATIVE}__stream_u2_x1_y2", STREAM,
        "for (int dx = 0; dx < kWide; ++dx)", "for (int dx = kWide - 1; dx >= 0; --dx)", WRONG,
    ),
    Mutant(
        "temporal: products and sums rounded apart", f"{_LAPLACIAN}__temporal_v1_r8_n1_t2", LEVELS,
        "(kWeights[y][x], line", "(1.0f, kWeights[y][x] * line", WRONG, at="terms",
    ),
    Mutant(
        "temporal: products and sums rounded apart at the ends", f"{_LAPLACIAN}__temporal_v1_r8_n1_t2", EDGE,
        "(kWeights[y][x], line", "(1.0f, kWeights[y][x] * line", WRONG, at="terms",
    ),
    Mutant(
        "overlapped: products and sums rounded apart", ON_OVERLAPPED, OVERLAPPED,
        "(kWeights[0][x], line[i + x]", "(1.0f, kWeights[0][x] * line[i + x]", WRONG,
    ),
    Mutant(
        "overlapped: the last term first", ON_OVERLAPPED, OVERLAPPED,
        "x = 0; x < kWide; ++x", "x = kWide - 1; x >= 0; --x", WRONG, at="terms",
    ),
    # stencil
    Mutant(
        "stencil: planes of the halo unguarded", ON_SPACE, STENCIL, "kFront <= plane && plane + kBack < planes &&", "",
        OUTSIDE_READ,
    ),
    Mutant(
        "stencil: planes inside are read one off", ON_SPACE, STENCIL, "(plane + z - kFront) *",
        "(plane + z - 1 - kFront) *", (WRONG, OUTSIDE_READ),
    ),
    Mutant(
        "stencil: halo unguarded [11]", ON_STENCIL, STENCIL, "(inner)", "(true)", OUTSIDE_READ, at="inside",
    ),
    Mutant("stencil: place after the last [2]", ON_STENCIL, STENCIL, "i < n ? i : -1", "i <= n ? i : -1", OUTSIDE_READ),
    Mutant(
        "stencil: row after the last [2]", ON_STENCIL, STENCIL, "first_row + kUnroll + kDown <= rows",
        "first_row + kUnroll <= rows", OUTSIDE_READ,
    ),
    Mutant(
        "stencil: reads around the ends of rows", ON_STENCIL, STENCIL,
        "kLeft <= left && left + kBlockX + kRight <= cols", "left + kBlockX <= cols", (WRONG, OUTSIDE_READ),
    ),
    Mutant(
        "stencil: another value outside", ON_STENCIL, STENCIL, '"col_of[x]")) if "constant" in boundary_of[axis] %}',
        '"row_of[j]")) if "constant" in boundary_of[axis] %}', (WRONG, OUTSIDE_READ),
    ),
    Mutant("stencil: sum begins at 1", ON_STENCIL, STENCIL, "sum[kUnroll] = {};", "sum[kUnroll] = {1.0f};", WRONG),
    Mutant("stencil: whole numbers only", ON_STENCIL, STENCIL, "{{ number }} sum[", "int sum[", WRONG),
    Mutant(
        "stencil: rows of a thread with the weights of the first", ON_STENCIL, STENCIL,
        "const int y = j - u;  // the row of weights for the cell of row u\n          if",
        "const int y = j;\n          if", WRONG,
    ),
    Mutant(
        "stencil: a cell not read that a later row needs", ON_STENCIL, STENCIL, "is_read |= 0 <=", "is_read = 0 <=",
        WRONG,
    ),
    Mutant("stencil: last rows unguarded", ON_STENCIL, STENCIL, "", "", OUTSIDE_WRITE, at="last rows"),
    Mutant(
        "stencil: one row too many [2]", ON_STENCIL, STENCIL, "if (row >= rows) r", "if (row > rows) r", OUTSIDE_WRITE,
    ),
    Mutant("stencil: last columns unguarded", ON_STENCIL, STENCIL, "", "", OUTSIDE_WRITE, at="last columns"),
    Mutant(
        "stencil: swapped extents [6]", ON_STENCIL, STENCIL, "if (col >= cols || {{", "if (col >= rows || {{", WRONG,
    ),
    Mutant(
        "stencil: wrong pitch of the input", ON_STENCIL, STENCIL, '"row * in_pitch + col', '"row * cols + col',
        OUTSIDE_READ,
    ),
    Mutant(
        "stencil: wrong pitch of the output", ON_STENCIL, STENCIL, "* out_pitch + col;",
        "* in_pitch + col;", UNINITIALISED,
    ),
    # stacked
    Mutant(
        "stacked: products and sums rounded apart", f"{_LAPLACIAN}__stacked_tpb128_u2", STACKED,
        "(kWeights[z][n], near", "(1.0f, kWeights[z][n] * near", WRONG,
    ),
    Mutant(
        "stacked: the last column first", f"{_LAPLACIAN}__stacked_tpb128_u2", STACKED,
        "n = 0; n < kColumns; ++n", "n = kColumns - 1; n >= 0; --n", WRONG, at="columns",
    ),
    Mutant("stacked: one plane too few", ON_STACKED, STACKED, "j + 1 < kRead", "j + 2 < kRead", WRONG),
    Mutant(
        "stacked: all cells with the weights of the first", ON_STACKED, STACKED, "const int z = j - u;",
        "const int z = j;", WRONG,
    ),
    Mutant(
        "stacked: a cell not read that another needs", ON_STACKED, STACKED, "is_read |= 0 <=", "is_read = 0 <=", WRONG,
    ),
    Mutant("stacked: no column is outside", ON_STACKED, STACKED, "(inner", "(true", (WRONG, OUTSIDE_READ), at="inner"),
    Mutant(
        "stacked: rows lie beside each other", ON_STACKED, STACKED, "(kBelow[n] - kUp) * pitch", "(kBelow[n] - kUp)",
        WRONG,
    ),
    Mutant(
        "stacked: stacks of the next block too", ON_STACKED, STACKED, "behind >= stacks_behind || ", "",
        (RACE, OUTSIDE_WRITE),
    ),
    Mutant(
        "stacked: positions beyond the last", ON_STACKED, STACKED, "position >= positions || ", "",
        (RACE, OUTSIDE_WRITE, WRONG),
    ),
    Mutant("stacked: last cells unguarded", ON_STACKED, STACKED, "", "", OUTSIDE_WRITE, at="last cells"),
    Mutant(
        "stacked: wrong pitch of the input", ON_STACKED, STACKED, "in_apart = rows * in_pitch",
        "in_apart = rows * cols", (WRONG, OUTSIDE_READ),
    ),
    Mutant(
        "stacked: wrong pitch of the output", ON_STACKED, STACKED, "row * out_pitch",
        "row * in_pitch", (UNINITIALISED, RACE, WRONG),
    ),
    Mutant(
        "stacked: planes outside are read", ON_STACKED, STACKED, "is_inside = from >= 0", "is_inside = true",
        OUTSIDE_READ,
    ),
    Mutant(
        "stacked: columns outside are read", ON_STENCIL.replace("naive_x32_y8_u2", "stacked_tpb128_u4"), STACKED,
        '"(kInner || "', '"(true || "', (WRONG, OUTSIDE_READ),
    ),
    Mutant("stacked: frozen rows change", ON_FROZEN_STACKED, STACKED, '"stays" if stay', '"false" if stay', WRONG),
    # march
    Mutant("march: no barrier between planes", ON_MARCH, MARCH, "", "", (RACE, UNINITIALISED), at="barrier"),
    Mutant("march: a plane is used before it has come", ON_MARCH, MARCH, '"n"(kAhead - 1)', '"n"(kAhead)', IN_FLIGHT),
    Mutant(
        "march: each plane comes too late", ON_MARCH, MARCH, "fetch(turn + kAhead,",
        "fetch(turn + kAhead - 1,", (WRONG, IN_FLIGHT, OUTSIDE_READ),
    ),
    Mutant(
        "march: products and sums rounded apart", ON_MARCH, MARCH, "(kWeights[z][dy][x],",
        "(1.0f, kWeights[z][dy][x] *", WRONG, at="terms",
    ),
    Mutant(
        "march: the planes' sums change places", ON_MARCH, MARCH, "if (z > 0) next[i] = held[kOldest - z]",
        "if (z > 0) next[i] = held[0]", WRONG,
    ),
    Mutant(
        "march: writes planes of the block before", ON_MARCH, MARCH, "if (plane - kBack < steps * kFront) continue;",
        "", OUTSIDE_WRITE,
    ),
    Mutant(
        "march: last rows unguarded", ON_MARCH, MARCH, "end_written = same(within(rows - warp_row))",
        "end_written = kRows", (OUTSIDE_WRITE, RACE),
    ),
    Mutant("march: one plane too few", ON_MARCH, MARCH, "- from_plane) + steps * kBack;", "- from_plane);", WRONG),
    Mutant(
        "march: a vector past the end of a row", ON_MARCH, MARCH, "from_col + kCells <= cols", "true",
        (OUTSIDE_READ, WRONG), at="vectors",
    ),
    Mutant(
        "march: columns beyond the last are written", ON_MARCH, MARCH, "if (i < written_cells) to", "to",
        (OUTSIDE_WRITE, RACE),
    ),
    Mutant("march: the first lane looks at itself", ON_MARCH, MARCH, "lane * kCells < d) w", "false) w", WRONG),
    Mutant(
        "march: warps side by side compute the same columns", ON_WIDE_MARCH, MARCH, "kLanesBefore + 32 * warp_across",
        "kLanesBefore", WRONG,
    ),
    # shifted
    Mutant(
        "shifted: products and sums rounded apart", f"{_DERIVATIVE}__shifted_u2_l32_w2", SHIFTED,
        "kWeights[dy][dx], window", "1.0f, kWeights[dy][dx] * window", WRONG,
    ),
    Mutant(
        "shifted: a lane beyond the writers writes", ON_SHIFTED, SHIFTED, "lane < kSideLanes + kOwn",
        "lane <= kSideLanes + kOwn", (WRONG, RACE), at="writers",
    ),
    Mutant(
        "shifted: vectors that begin before a row", ON_SHIFTED, SHIFTED, "(0 <= first && ", "(", OUTSIDE_READ,
        at="vector inside",
    ),
    Mutant(
        "shifted: the same rows again", ON_LONG_SHIFTED, SHIFTED, "load(y + kAhead)", "load(y)", WRONG, at="next row",
    ),
    Mutant(
        "shifted: last rows unguarded", ON_SHIFTED, SHIFTED, '{{ " || (kEdge && row >= rows)" if axes == 2 }}', "",
        (OUTSIDE_WRITE, RACE), at="written row",
    ),
    Mutant(
        "shifted: one column too many", ON_SHIFTED, SHIFTED, "col + i < cols", "col + i <= cols",
        (OUTSIDE_WRITE, RACE), at="written column",
    ),
    Mutant(
        "shifted: vectors from the lane's first cell on", ON_SHIFTED, SHIFTED, "(past_vector(line) + 1) % kCells",
        "0", MISALIGNED,
    ),
    Mutant(
        "shifted: stored where a lane's cells begin", ON_SHIFTED, SHIFTED, "kCells - 1 - past_vector(to)", "0",
        MISALIGNED,
    ),
    Mutant(
        "shifted: warps at the beginning of a row are inner", ON_SHIFTED, SHIFTED, "kFarLeft <= begin && ", "",
        OUTSIDE_READ, at="inner",
    ),
    Mutant("shifted: words stay where they are", ON_SHIFTED, VECTORS, "by & step ? words[i + step] :", "", WRONG),
    Mutant(
        "shifted: the first lane looks at itself", ON_SHIFTED, SHIFTED,
        "__shfl_up_sync(kAllLanes, window[y][kSide + away * kCells - d], away, kLanes)",
        "window[y][kSide + away * kCells - d]", WRONG,
    ),
    Mutant("shifted: sums of integers are cut off", ON_BYTES, CELLS, "rintf(number)", "number", WRONG),
    Mutant(
        "shifted: sums beyond the greatest integer", ON_BYTES, CELLS, "{{ ends[element][1] }}.0f", "1e6f", WRONG,
    ),
    Mutant(
        "shifted: bytes stay where they are", ON_BYTES, VECTORS,
        "__funnelshift_r(words[i], words[i + 1], offset % 4 * 8)", "words[i]", WRONG,
    ),
    # ends that differ
    Mutant(
        "tiled: past one end lies what lies past the other", ON_LAYER, OUTSIDE,
        "i < 0 ? {{ carried_on(before) }} : {{ carried_back(after) }}", "{{ carried_back(after) }}", WRONG,
    ),
    Mutant(
        "tiled: cells before the first one are cval too", ON_LAYER, OUTSIDE, "while (i < 0) i =", "if (false) i =",
        WRONG,
    ),
    Mutant(
        "tiled: cells at the other end are frozen", ON_LAYER, OUTSIDE, 'place ~ " >= " ~ extent ~ " - " ~ after',
        'place ~ " < " ~ after', WRONG,
    ),
    # batches of images
    Mutant(
        "stream: images begin where rows without a pitch would end", ON_IMAGES, IMAGES,
        "in += plane * rows * in_pitch", "in += plane * rows * cols", OUTSIDE_READ,
    ),
    Mutant(
        "stream: all images are written to the first", ON_IMAGES, IMAGES,
        "out += plane * rows * out_pitch;", "", (RACE, UNTOUCHED, WRONG),
    ),
    # resident
    Mutant("resident: no barrier between steps", ON_RESIDENT, RESIDENT, "", "", (RACE, UNINITIALISED), at="step"),
    Mutant("resident: no barrier before cells are written", ON_RESIDENT, RESIDENT, "", "", RACE, at="written"),
    Mutant("resident: no barrier after copies past ends", ON_RESIDENT_TRANSPORT, RESIDENT, "", "", RACE, at="copied"),
    Mutant(
        "resident: products and sums rounded apart", f"{_DERIVATIVE}__resident_a0_tpb256_u3_t4", RESIDENT,
        "(kWeights[n], near[u], sum[u])", "(1.0f, kWeights[n] * near[u], sum[u])", WRONG, at="terms",
    ),
    Mutant(
        "resident: the last term first", f"{_LAPLACIAN}__resident_a0_tpb256_u1_t2", RESIDENT,
        "n = 0; n < kTaps; ++n", "n = kTaps - 1; n >= 0; --n", WRONG,
    ),
    Mutant(
        "resident: last cells unguarded", ON_RESIDENT, RESIDENT, "if (start + u < high) ", "", (WRONG, RACE),
        at="last cells",
    ),
    Mutant("resident: every step reads the first", ON_RESIDENT, RESIDENT, "now = next;", "", (WRONG, RACE)),
    Mutant(
        "resident: a step uses up what two do before", ON_RESIDENT, RESIDENT,
        "(step + 1) * kBefore", "(step + 2) * kBefore", WRONG,
    ),
    Mutant(
        "resident: a step uses up what two do after", ON_RESIDENT, RESIDENT,
        "(step + 1) * kAfter", "(step + 2) * kAfter", WRONG,
    ),
    Mutant(
        "resident: one cell too few is loaded before", ON_RESIDENT, RESIDENT,
        "used_before = steps * kBefore{{", "used_before = steps * kBefore - 1{{", WRONG,
    ),
    Mutant(
        "resident: no more cells where ends are mirrors of uneven reach", ON_RESIDENT_TRANSPORT, RESIDENT,
        '" + " ~ more_before if more_before', '"" if more_before', (WRONG, OUTSIDE_READ),
    ),
    Mutant(
        "resident: places outside are the nearest", ON_RESIDENT_TRANSPORT, RESIDENT,
        'static_cast<int>({{ inside(map, word, word ~ "s") }})',
        "static_cast<int>(min(max({{ word }}, 0LL), {{ word }}s - 1LL))", WRONG,
    ),
    Mutant(
        "resident: every block has the first image", ON_RESIDENT_IMAGES, "stencil/_images.cu.jinja",
        "in += plane * rows * in_pitch;", "", (WRONG, RACE),
    ),
    Mutant(
        "resident: every block has the first part", ON_RESIDENT, RESIDENT,
        "static_cast<long long>(blockIdx.x) * own", "0", (RACE, WRONG, UNTOUCHED),
    ),
    Mutant(
        "resident: a line has a group too many", ON_RESIDENT_PAIRS, RESIDENT, "if (group >= groups) {",
        "if (group > groups) {", (WRONG, UNINITIALISED),
    ),
    Mutant(
        "resident: a plane has a row too many", ON_RESIDENT_PAIRS, RESIDENT, "if (row >= rows) {",
        "if (row > rows) {", (OUTSIDE_READ, OUTSIDE_WRITE, WRONG),
    ),
    Mutant("resident: lines do not follow each other", ON_RESIDENT, RESIDENT, "++line;", "", (RACE, WRONG, HANG)),
    Mutant(
        "overlapped: every block has the first strips", ON_WIDE_OVERLAPPED, OVERLAPPED,
        "static_cast<long long>(blockIdx.x) * kWarps + warp", "warp", (RACE, WRONG),
    ),
    Mutant(
        "pipelined: rows of the output lie as those of the input", ON_PIPELINED, PIPELINED,
        "(first - steps * kDown) * out_pitch", "(first - steps * kDown) * in_pitch", (RACE, OUTSIDE_WRITE, WRONG),
    ),
    # persistent: within a block
    Mutant("persistent: no barrier in a step", ON_PERSISTENT, PERSISTENT, "", "", (RACE, UNINITIALISED), at="step"),
    Mutant("persistent: edges take no turns", ON_PERSISTENT, PERSISTENT, "", "", RACE, at="edges in turns"),
    Mutant(
        "persistent: products and sums rounded apart", ON_TORUS, PERSISTENT,
        "(kWeights[y][x], line[kSide - kLeft + x + i], sum)",
        "(1.0f, kWeights[y][x] * line[kSide - kLeft + x + i], sum)", WRONG, at="terms",
    ),
    Mutant("persistent: rows are handed up", ON_PERSISTENT, PERSISTENT, '"warp + 1"', '"warp"', WRONG),
    Mutant(
        "persistent: the last warp finds nothing below", ON_PERSISTENT, PERSISTENT, '"kWarps"', '"0"',
        (RACE, UNINITIALISED),
    ),
    # persistent: boundaries
    Mutant(
        "persistent: the left end is none", ON_PERSISTENT, PERSISTENT, "tile.at_left", "false", WRONG,
        at="beyond the left end",
    ),
    Mutant(
        "persistent: the right end is none", ON_PERSISTENT, PERSISTENT, "tile.at_right", "false", WRONG,
        at="beyond the right end",
    ),
    Mutant(
        "persistent: the rim takes steps", ON_PERSISTENT_LAYER, PERSISTENT, "if (!rim) cells", "cells", WRONG, at="rim",
    ),
    Mutant(
        "persistent: the end cell is mirrored too", ON_PERSISTENT_TRANSPORT, PERSISTENT,
        '"mirror": j', '"mirror": j ~ " - 1"', WRONG,
    ),
    Mutant(
        "persistent: a torus has no rows before the first", ON_TORUS, PERSISTENT,
        "", "", (OUTSIDE_READ, WRONG), at="rows before the first",
    ),
    # persistent: between blocks
    Mutant(
        "persistent: sent before all is collected", ON_PERSISTENT, PERSISTENT, "", "", (RACE, UNINITIALISED),
        at="collected",
    ),
    Mutant(
        "persistent: taken before all has arrived", ON_PERSISTENT, PERSISTENT, "", "", (RACE, UNINITIALISED),
        at="received",
    ),
    Mutant(
        "persistent: nothing is awaited", ON_PERSISTENT, PERSISTENT, "while (!arrived)", "while (false)",
        (WRONG, AGAIN),
    ),
    Mutant(
        "persistent: the second half of a vector is not awaited", ON_PERSISTENT, PERSISTENT,
        "vector.x >> 63 == mark >> 63 && vector.y >> 63 == mark >> 63", "vector.x >> 63 == mark >> 63",
        (WRONG, AGAIN),
    ),
    Mutant(
        "persistent: the first half of a vector is not awaited", ON_PERSISTENT, PERSISTENT,
        "vector.x >> 63 == mark >> 63 && vector.y >> 63 == mark >> 63", "vector.y >> 63 == mark >> 63",
        (WRONG, AGAIN),
    ),
    Mutant(
        "persistent: the tail of a chunk is not awaited", ON_PERSISTENT, PERSISTENT, "arrived = has_mark(tail, mark);",
        "", (WRONG, AGAIN),
    ),
    Mutant(
        "persistent: the mark of an exchange is that of the next", ON_PERSISTENT, PERSISTENT, "(exchange + 1) / 2 % 2",
        "exchange / 2 % 2", WRONG,
    ),
    Mutant("persistent: the mark stays the same", ON_PERSISTENT, PERSISTENT, "(exchange + 1) / 2 % 2", "1", WRONG),
    Mutant("persistent: marks stay", ON_PERSISTENT, PERSISTENT, "", "", WRONG, at="reset"),
    Mutant(
        "persistent: marks of the last exchange but one stay", ON_PERSISTENT, PERSISTENT,
        "left_over <= 2 * kSteps", "left_over <= kSteps", WRONG,
    ),
    Mutant(
        "persistent: the bits under the marks are lost", ON_PERSISTENT, PERSISTENT, "tail.x | mark, tail.y | mark",
        "tail.x | mark, mark", WRONG,
    ),
    Mutant(
        "persistent: all lanes have the bit of the first", ON_PERSISTENT, PERSISTENT, "x >> lane << 63", "x << 63",
        WRONG,
    ),
    Mutant(
        "persistent: a corner has no neighbour", ON_PERSISTENT, PERSISTENT, "exists ? min",
        "exists && neighbour < 7 ? min", (HANG, WRONG, UNINITIALISED),
    ),
    Mutant(
        "persistent: corners at the bottom are collected at the top", ON_TORUS, PERSISTENT,
        "end || place < 2 ? 0", "end || place < 3 ? 0", WRONG,
    ),
    Mutant(
        "persistent: sides are received as corners", ON_TORUS, PERSISTENT, "place == 0 ? 0 : kHaloRows +",
        "place == 0 ? 0 :", (WRONG, RACE, UNINITIALISED),
    ),
    Mutant(
        "persistent: warps above the last rows collect none", ON_TORUS, PERSISTENT,
        "first + kRows > own_rows - kHaloRows", "first >= own_rows - kHaloRows", (WRONG, UNINITIALISED),
    ),
    Mutant(
        "persistent: the first row above is not read", ON_TORUS, PERSISTENT, "from_end + y >= 0",
        "from_end + y >= before", WRONG,
    ),
    Mutant(
        "persistent: the last row above is not read", ON_TORUS, PERSISTENT,
        "from_end + y < kHaloRows", "from_end + y < kHaloRows - before", WRONG,
    ),
    Mutant(
        "persistent: the last row below is not read", ON_TORUS, PERSISTENT,
        "from_end + y < kHaloRows", "from_end + y < kHaloRows - !before", WRONG,
    ),
    Mutant(
        "persistent: warps that end in the halo read none", ON_TORUS, PERSISTENT,
        "from_end > -kRows && from_end < kHaloRows", "from_end >= 0 && from_end < kHaloRows", WRONG,
    ),
    Mutant(
        "persistent: the last lane at the left is not read", ON_TORUS, PERSISTENT,
        "from_left < kHaloCols", "from_left < kHaloCols - kCells", WRONG,
    ),
    Mutant(
        "persistent: the wrong side is read", ON_TORUS, PERSISTENT,
        "received.left : received.right", "received.right : received.left", WRONG,
    ),
    Mutant(
        "persistent: the right side is collected as the left", ON_TORUS, PERSISTENT, "right ? sent.right : sent.left",
        "sent.left", (RACE, UNINITIALISED),
    ),
    Mutant("persistent: halos are written too", ON_PERSISTENT, PERSISTENT, "", "", (RACE, WRONG), at="own columns"),
    Mutant("march: vectors are written where lanes begin", ON_MARCH, MARCH, '"to + by"', '"to"', MISALIGNED),
    Mutant(
        "march: the lane before is taken to write all first cells", ON_MARCH, MARCH,
        "lane > 0 && by <= written_cells", "true", (UNINITIALISED, WRONG),
    ),
    # fused steps of march
    Mutant(
        "march: planes that never come are left as they are", ON_DEEP_RING, MARCH, "read_planes * kPlane",
        "kRing * kPlane", UNINITIALISED, at="planes that never come",
    ),
    Mutant(
        "march: a level computes with what is being written", ON_LEVELS, MARCH, "(turn + 1) % 2", "turn % 2",
        (RACE, UNINITIALISED),
    ),
    Mutant(
        "march: rows that nobody has computed are left as they are", ON_LEVELS, MARCH,
        "(&edges[0][0][0][0])[i] = make_uint4(0, 0, 0, 0);", "", UNINITIALISED,
    ),
    Mutant(
        "march: the first rows of the warp before are looked at", ON_LEVELS, MARCH,
        "come[max(warp - 1, 0)][kDown + y]", "come[max(warp - 1, 0)][y]", WRONG,
    ),
    Mutant("march: a level lags too little", ON_LEVELS, MARCH, "turn - level * kLag", "turn", OUTSIDE_WRITE),
    Mutant(
        "march: a level that waits lags too little", ON_WAITING_LEVELS, MARCH, '"kBack" if hands_on', '"kBack" if true',
        WRONG,
    ),
    Mutant("march: levels hand on what came to the first", ON_LEVELS, MARCH, "arrived[j] = vector;", "", WRONG),
    Mutant(
        "march: levels compute with the plane that comes", ON_LEVELS, MARCH, '"before" if hands_on',
        '"now" if hands_on', WRONG,
    ),
    Mutant(
        "march: a plane comes to where the one before is read", ON_LEVELS, MARCH, "{{ 2 if hands_on else 1 }}", "1",
        (RACE, WRONG, IN_FLIGHT),
    ),
    Mutant(
        "march: the plane before the first is left as it is", ON_LEVELS, MARCH, "n < kRing - 1 ? vectors : 0",
        "vectors", UNINITIALISED,
    ),
    Mutant(
        "march: the last terms are those of the plane before", ON_LEVELS, MARCH,
        "[kUp][kLeft], last[i]", "[kUp][kLeft], window[j + kUp][kSide + i]", WRONG,
    ),
    Mutant(
        "march: a level keeps no plane for the next turn", ON_LEVELS, MARCH,
        "if (level > 0) finished[level - 1][j] = arrived[j];", "", WRONG,
    ),
    Mutant(
        "march: rows are written that steps use up", ON_LEVELS, MARCH, "first_written = kRowsAbove - warp * kRows",
        "first_written = 0", (OUTSIDE_WRITE, RACE, WRONG),
    ),
    Mutant(
        "march: columns are written that steps use up", ON_LEVELS, MARCH, "kLanesBefore <= lane && ", "",
        (OUTSIDE_WRITE, RACE, WRONG),
    ),
    Mutant(
        "march: cells outside are not put in place", ON_LEVELS, MARCH, "if (outside >>", "if (0 >>",
        WRONG,
    ),
    Mutant(
        "march: frozen cells are not kept", ON_LEVELS, MARCH, "z >= kFront && still[z - kFront] >>",
        "z >= kFront && 0 >>", WRONG,
    ),
    Mutant(
        "march: first turns are taken as if all cells had neighbours", ON_LEVELS, MARCH,
        "first_inner_turn <= turn && turn", "turn", WRONG,
    ),
    Mutant(
        "march: all blocks are taken to lie inside", ON_LEVELS, MARCH, "!at_ends && first_inner_turn <= turn",
        "first_inner_turn <= turn", WRONG,
    ),
    Mutant(
        "march: what is left has a step too few", ON_LEVELS, MARCH, "level < steps - 1", "level < steps",
        WRONG,
    ),
    # stencil of three axes
    Mutant(
        "stencil: planes in reverse", ON_SPACE, STENCIL, '"plane + z - kFront"', '"plane - z + kFront"',
        (WRONG, OUTSIDE_READ),
    ),
    Mutant(
        "stencil: rows of blocks of all planes", ON_SPACE, STENCIL, "(group - plane * groups) * kUnroll",
        "group * kUnroll", (UNTOUCHED, UNINITIALISED),
    ),
    Mutant(
        "stencil: planes read without the pitch of rows", ON_SPACE_32_BITS, STENCIL,
        "(rows * in_pitch)", "(rows * cols)", (WRONG, RACE, OUTSIDE_READ),
    ),
    Mutant(
        "stencil: rows that the thread computes begin late", ON_SPACE_32_BITS, STENCIL,
        '"first_row + j - kUp") }} * in', '"first_row + j") }} * in', (WRONG, OUTSIDE_READ),
    ),
    Mutant(
        "stencil: planes beyond the last", ON_SPACE, STENCIL, '"plane >= planes" if', '"false" if',
        OUTSIDE_WRITE,
    ),
    Mutant(
        "stencil: planes are square", ON_SPACE, STENCIL, '"(plane * rows + row)"', '"(plane * cols + row)"',
        (WRONG, RACE, OUTSIDE_READ, OUTSIDE_WRITE),
    ),
    Mutant("stencil: blocks overlap", ON_STENCIL, STENCIL, "(tile_row * kBlockY", "(tile_row", RACE),
    Mutant(
        "tiled stencil: no barrier after filling the tile [5]", ON_TILED, TILED,
        "", "", (RACE, UNINITIALISED), at="filled",
    ),
    Mutant(
        "tiled stencil: the tile without the columns beside it", ON_TILED, TILED, "x < kTileCols;", "x < kBlockX;",
        UNINITIALISED,
    ),
    Mutant(
        "tiled stencil: a row too far down", ON_TILED, TILED, "first_row + y - kUp, first_col",
        "first_row + y, first_col", WRONG,
    ),
    Mutant(
        "tiled stencil: return before the barrier [3]", ON_TILED, TILED, "for (int y = threadIdx.y; y < kTileRows",
        "if (first_col + threadIdx.x >= cols) return;\n  for (int y = threadIdx.y; y < kTileRows",
        (UNINITIALISED, BARRIER),
    ),
    Mutant(
        "tiled stencil: last columns unguarded", ON_TILED, TILED, "", "", (OUTSIDE_WRITE, RACE), at="last columns",
    ),
    Mutant(
        "queued: no barrier after the line [5]", ON_QUEUED, QUEUED, "", "", (RACE, UNINITIALISED), at="filled",
    ),
    Mutant(
        "queued: no barrier before the next line [5]", ON_QUEUED, QUEUED, "", "", RACE, at="read",
    ),
    Mutant(
        "queued: cells beside the block from a row above", ON_QUEUED, QUEUED, "cell(row, first_col",
        "cell(row - 1, first_col", WRONG,
    ),
    Mutant(
        "queued: the queue begins a row too late", ON_QUEUED, QUEUED, "first_row + y - 1 - kUp", "first_row + y - kUp",
        WRONG,
    ),
    Mutant(
        "queued: last columns unguarded", ON_QUEUED, QUEUED, "if (col < cols) out", "out", (OUTSIDE_WRITE, RACE),
    ),
    Mutant(
        "stream: a row is loaded in the place of another", ON_LONG_STREAM, STREAM, "kAhead",
        "kAhead - 1", WRONG, at="next row",
    ),
    Mutant(
        "stream: the last row is not loaded", ON_LONG_STREAM, STREAM, "kAhead", "kAhead + 1",
        WRONG, at="rows left",
    ),
    Mutant(
        "stream: rows above unguarded [11]", ON_STREAM, STREAM, "kFarUp <= first_row && first_row", "first_row",
        OUTSIDE_READ,
    ),
    Mutant(
        "stream: a vector past the end of a row [10]", ON_STREAM, STREAM, "first_col + kWarpCols <= cols && aligned(in",
        "aligned(in", OUTSIDE_READ,
    ),
    Mutant(
        "stream: vectors where rows begin between them", ON_STREAM, STREAM, " && aligned(in, in_pitch)", "",
        MISALIGNED, at="aligned",
    ),
    Mutant(
        "stream: last rows unguarded", ON_STREAM, STREAM, "if (!kEdge || row < rows)", "if (true)", OUTSIDE_WRITE,
    ),
    Mutant(
        "stream: another boundary above", ON_STREAM, STREAM, "first_row + y < kUp || first_row", "first_row", WRONG,
    ),
    Mutant(
        "stream: another boundary at the ends of rows", ON_STREAM, STREAM, "if (kEdge && from_col != col)",
        "if (false)", WRONG,
    ),
    Mutant(
        "stream: the first lane looks at itself", ON_STREAM, STREAM, "lane * kCells < d ? beside[y % kAhead][d] : left",
        "left",
        WRONG,
    ),
    Mutant(
        "stream: words of a vector change places", ON_STREAM, VECTORS, "{ %1, %2, %3, %4 }", "{ %1, %3, %2, %4 }",
        WRONG,
    ),
    Mutant(
        "stream: half of a vector is written", ON_STREAM, VECTORS, "st.global.v4.u32 [%0], { %1, %2, %3, %4 }",
        "st.global.v2.u32 [%0], { %1, %2 }", (UNTOUCHED, UNINITIALISED),
    ),
    Mutant("stream: blocks overlap", ON_STREAM, STREAM, "% kWarpsAcross) * kWarpCols", "% kWarpsAcross) * 32", RACE),
    Mutant(
        "temporal: rows below unguarded [11]", ON_TEMPORAL, LEVELS, "steps * kDown - 2 * kRound, first_inner",
        "steps * kDown, first_inner", OUTSIDE_READ,
    ),
    Mutant(
        "temporal: rows above unguarded [11]", ON_TEMPORAL, LEVELS, "inner ? min(steps * kUp, rows)", "inner ? 0",
        OUTSIDE_READ,
    ),
    Mutant(
        "temporal: columns unguarded [11]", ON_TEMPORAL, LEVELS, "!is_end && aligned(in", "aligned(in", OUTSIDE_READ,
    ),
    Mutant(
        "temporal: rows in flight as a piece begins", ON_TEMPORAL, FETCH, "", "", IN_FLIGHT,
        at="wait for all rows",
    ),
    Mutant(
        "temporal: a row is taken before it has come", ON_TEMPORAL, FETCH, '"n"(kRound - 1)', '"n"(kRound)',
        IN_FLIGHT,
    ),
    Mutant(
        "temporal: rows in no group", ON_TEMPORAL, FETCH, "", "", IN_FLIGHT, at="end of a row",
    ),
    Mutant(
        "temporal: half of a vector is copied", ON_TEMPORAL, FETCH,
        "cp.async.cg.shared.global{{ prefetch }} [%0], [%1], 16;", "cp.async.ca.shared.global [%0], [%1], 8;",
        (UNINITIALISED, WRONG),
    ),
    Mutant(
        "temporal: more than a cell is copied", ON_TEMPORAL, FETCH, '"n"(sizeof({{ element }}))', '"n"(8)',
        (MISALIGNED, OUTSIDE_READ),
    ),
    Mutant("temporal: the rows above forgotten", ON_TEMPORAL, EDGE, "centre == 0", "centre == 1", WRONG),
    Mutant(
        "temporal: sums change places", ON_TEMPORAL, LEVELS, "held[level][kHigh - 1 - y]", "held[level][0]", WRONG,
    ),
    Mutant(
        "temporal: one row too many", ON_TEMPORAL, TEMPORAL, "writes && from <= done && done < to",
        "writes && from <= done && done <= to", (RACE, OUTSIDE_WRITE, WRONG),
    ),
    Mutant(
        "temporal: writes rows that its steps used up", ON_TEMPORAL, TEMPORAL, "if (from <= done)",
        "if (true)", (RACE, WRONG, OUTSIDE_WRITE),
    ),
    Mutant(
        "temporal: lanes write what their steps used up", ON_TEMPORAL, TEMPORAL, "if (writes && ", "if (",
        (WRONG, RACE),
    ),
    Mutant(
        "temporal: columns at the right end left out", ON_TEMPORAL, LEVELS, "", "",
        (RACE, UNTOUCHED), at="columns at the right end",
    ),
    Mutant(
        "temporal: a level more in the launch that ends", ON_TEMPORAL, LEVELS, "level >= {{ passed }}",
        "level > {{ passed }}",
        WRONG,
    ),
    Mutant(
        "temporal: a last warp without the columns that its mirror image needs", ON_TRANSPORT, TEMPORAL,
        "constexpr int kHaloLeft = {{ halo_left }}, kHaloRight = {{ halo_right }};",
        "constexpr int kHaloLeft = (kSteps * kLeft + kCells - 1) / kCells * kCells;\n"
        "constexpr int kHaloRight = {{ halo_left + halo_right }} - kHaloLeft;", WRONG,
        also=(("}} <= kHaloLeft", "}} >= 0"),),
    ),
    Mutant(
        "pipelined: no barrier between turns", ON_PIPELINED, PIPELINED, "", "", (RACE, UNINITIALISED), at="turn",
    ),
    Mutant(
        "pipelined: one place for what is handed on and what is taken", ON_PIPELINED, PIPELINED,
        "hand_on(rings[next_place + i]", "hand_on(rings[next_ring + i]", (RACE, UNINITIALISED, WRONG),
    ),
    Mutant(
        "pipelined: a row of the turn before is taken", ON_PIPELINED, PIPELINED,
        "take(cells, rings[place + i])", "take(cells, rings[2 * ring + kRows - place + i])", IN_FLIGHT,
    ),
    Mutant(
        "pipelined: rows are taken before they have come", ON_PIPELINED, PIPELINED, "", "", IN_FLIGHT,
        at="rows that have come",
    ),
    Mutant(
        "pipelined: fetched rows take the place of those that are still to come", ON_PIPELINED, PIPELINED,
        "fetch_inner(rings[place + i]", "fetch_inner(rings[kRows - place + i]", IN_FLIGHT,
    ),
    Mutant(
        "pipelined: all warps begin at once", ON_PIPELINED, PIPELINED, "turn - warp;", "turn;",
        (RACE, UNINITIALISED, WRONG),
    ),
    Mutant(
        "pipelined: the last warp misses its last turns", ON_PIPELINED, PIPELINED, "turns + kWarps - 1; ++turn",
        "turns; ++turn", (UNTOUCHED, WRONG, UNINITIALISED),
    ),
    Mutant(
        "pipelined: levels count rows as the first warp does", ON_PIPELINED, PIPELINED,
        "row + i - passed * kDown", "row + i", WRONG,
    ),
    Mutant(
        "pipelined: all levels in the launch that ends", ON_PIPELINED, PIPELINED,
        "steps / kWarps + (more > 0 && warp < more)", "kLevels", WRONG,
    ),
    Mutant(
        "pipelined: each warp after the first misses a level of those before", ON_PIPELINED, PIPELINED,
        "min(warp, more)", "0", WRONG,
    ),
    Mutant(
        "pipelined: all steps in a short launch", ON_PIPELINED, PIPELINED, "kShortSteps, rings", "kSteps, rings",
        WRONG,
    ),
    Mutant(
        "pipelined: an end writes rows of the next strip", ON_PIPELINED, PIPELINED,
        "if (is_last && from <= done && done < to) {", "if (is_last && from <= done) {", (RACE, OUTSIDE_WRITE, WRONG),
    ),
    Mutant(
        "reassociated: both cells of a pair are the one before", ON_BLUR, TERMS, "cell(x) + cell(kLeft + distance)",
        "cell(x) + cell(x)", WRONG,
    ),
    Mutant(
        "reassociated: the cells of a pair are added one by one", ON_BLUR, TERMS,
        "{{ fma }}(weights[x], cell(x) + cell(kLeft + distance), sum)",
        "{{ fma }}(weights[x], cell(kLeft + distance), {{ fma }}(weights[x], cell(x), sum))", WRONG,
    ),
    Mutant(
        "reassociated: all rows have the first base", ON_BLUR.replace("temporal_v1_r8_n1_t4", "naive_x32_y8_u2"), TERMS,
        "kBases[kBaseOf[y]]", "kBases[0]", WRONG,
    ),
    Mutant(
        "reassociated: factors are left out", ON_BLUR.replace("temporal_v1_r8_n1_t4", "stream_u4_x2_y4"), TERMS,
        "{{ fma }}(kFactors[y], ", "{{ fma }}({{ zero }} + 1, ", WRONG,
    ),
    Mutant(
        "overlapped: the last segment goes past the end [11]", ON_OVERLAPPED, OVERLAPPED,
        "is_last ? cols - kSegment : place", "is_last ? place * kOwn : place", OUTSIDE_READ,
    ),
    Mutant(
        "overlapped: fewer cells than a segment", ON_OVERLAPPED, OVERLAPPED, "if (cols < kSegment)", "if (false)",
        OUTSIDE_READ,
    ),
    Mutant(
        "overlapped: one cell fewer than a segment", ON_OVERLAPPED, OVERLAPPED, "if (cols < kSegment)",
        "if (cols + 1 < kSegment)", OUTSIDE_READ,
    ),
    Mutant(
        "overlapped: segments beyond the last", ON_OVERLAPPED, OVERLAPPED, "", "", RACE, at="beyond the last segment",
    ),
    Mutant(
        "overlapped: vectors where the line begins between them", ON_OVERLAPPED, OVERLAPPED,
        "if (reinterpret_cast<unsigned long long>(in + first) % 16 == 0)", "if (true)", MISALIGNED,
    ),
    Mutant(
        "overlapped: vectors where the output begins between them", ON_OVERLAPPED, OVERLAPPED,
        "reinterpret_cast<unsigned long long>(out + first) % 16 == 0", "true", MISALIGNED,
    ),
    Mutant(
        "overlapped: vectors that begin before what is written", ON_OVERLAPPED, OVERLAPPED,
        "(begin | end) % kVectorCells == 0", "true", (WRONG, UNTOUCHED, UNINITIALISED),
    ),
    Mutant(
        "overlapped: no wait for what other lanes bring", ON_OVERLAPPED, OVERLAPPED, "", "", (RACE, UNINITIALISED),
        at="fetched",
    ),
    Mutant(
        "overlapped: no wait for what other lanes computed", ON_OVERLAPPED, OVERLAPPED, "", "", (RACE, WRONG),
        at="computed",
    ),
    Mutant(
        "overlapped: no barrier between the steps of few cells [5]", ON_OVERLAPPED, OVERLAPPED, "", "",
        (RACE, UNINITIALISED), at="stepped",
    ),
    Mutant(
        "overlapped: two vectors in one place", ON_OVERLAPPED, OVERLAPPED, "vector ^ vector / kVectors % 8",
        "vector & ~1", (RACE, WRONG),
    ),
    Mutant(
        "overlapped: neighbours two lanes away", ON_OVERLAPPED, OVERLAPPED, "cells[kCells - d], 1)",
        "cells[kCells - d], 2)", WRONG,
    ),
    Mutant(
        "overlapped: neighbours in reverse", ON_OVERLAPPED, OVERLAPPED, "cells[d - 1], 1)", "cells[kRight - d], 1)",
        WRONG,
    ),
    Mutant(
        "overlapped: the first cell's neighbours forgotten", ON_OVERLAPPED, OVERLAPPED, "kEnds && begins) {  //",
        "false) {  //", WRONG,
    ),
    Mutant(
        "overlapped: the last cell's neighbours forgotten", ON_OVERLAPPED, OVERLAPPED, "kEnds && ends) {  //",
        "false) {  //", WRONG,
    ),
    Mutant(
        "overlapped: the last segment like an inner one", ON_OVERLAPPED, OVERLAPPED, "if (place == 0 || is_last) {",
        "if (place == 0) {", WRONG,
    ),
    Mutant(
        "overlapped: writes cells that its steps used up on the left", ON_OVERLAPPED, OVERLAPPED,
        "place == 0 ? 0 : kHaloLeft +", "place == 0 ? 0 :", (RACE, WRONG),
    ),
    Mutant(
        "overlapped: writes cells that its steps used up on the right", ON_OVERLAPPED, OVERLAPPED,
        "is_last ? kSegment : kHaloLeft + kOwn", "kSegment", (RACE, WRONG),
    ),
    Mutant(
        "overlapped: a halo too short for all steps", ON_OVERLAPPED, OVERLAPPED,
        "constexpr int kHaloLeft = {{ halo_left }},", "constexpr int kHaloLeft = {{ halo_left }} - kVectorCells,",
        (WRONG, UNTOUCHED), also=(("kSteps * kLeft <= kHaloLeft &&", "0 <= kHaloLeft &&"),),
    ),
    Mutant(
        "overlapped: all steps in the launch that ends", ON_OVERLAPPED, OVERLAPPED,
        "step < steps; ++step) advance<false>", "step < kSteps; ++step) advance<false>", WRONG,
    ),
)  # fmt: skip

# Indices of 32 bits where 64 are needed: found on more than 2^32 elements, of which a few blocks are run.
LARGE = (
    Mutant(
        "resident: where parts begin in 31 bits", ON_RESIDENT, RESIDENT, "static_cast<long long>(blockIdx.x) * own",
        "static_cast<int>(blockIdx.x) * static_cast<int>(own)", OVERFLOW,
    ),
    Mutant(
        "resident: rows of both arrays in 31 bits", ON_RESIDENT, RESIDENT, '"row * " ~ pitch ~ " + "',
        '"int(row) * int(" ~ pitch ~ ") + "', OVERFLOW,
    ),
    Mutant(
        "resident: cells of the input in 32 bits", ON_RESIDENT, RESIDENT, '"in[" ~ cell_at("in_pitch") ~ "]"',
        '"in[unsigned(" ~ cell_at("in_pitch") ~ ")]"', (WRONG, UNTOUCHED),
    ),
    Mutant(
        "resident: cells of the output in 32 bits", ON_RESIDENT, RESIDENT, 'out[{{ cell_at("out_pitch") }}]',
        'out[unsigned({{ cell_at("out_pitch") }})]', (OUTSIDE_WRITE, RACE, WRONG),
    ),
    Mutant(
        "persistent: rows of the input in 31 bits", ON_FEW_TILES, PERSISTENT, "in + tile.row * in_pitch + col",
        "in + tile.row * int(in_pitch) + col", OVERFLOW,
    ),
    Mutant(
        "persistent: rows of the output in 32 bits", ON_FEW_TILES, PERSISTENT, "out + tile.row * out_pitch + tile.col",
        "out + unsigned(tile.row * out_pitch + tile.col)", (OUTSIDE_WRITE, RACE),
    ),
    Mutant(
        "march: planes of fused steps in 31 bits", ON_LEVELS, MARCH, "const long long out_plane = rows * out_pitch",
        "const int out_plane = int(rows) * int(out_pitch)", OVERFLOW,
    ),
    Mutant(
        "march: places of fused steps in 32 bits", ON_LEVELS, MARCH, "long long places[kFetches]",
        "unsigned places[kFetches]", (WRONG, OUTSIDE_READ),
    ),
    Mutant(
        "stencil: index of the input in 31 bits", ON_STENCIL, STENCIL, '"row * in_pitch + col + x - kLeft"',
        '"int(row) * int(in_pitch) + int(col) + x - kLeft"', OVERFLOW,
    ),
    Mutant(
        "stencil: index of the input in 32 bits", ON_STENCIL, STENCIL, '"row * in_pitch + col + x - kLeft"',
        '"unsigned(row * in_pitch + col + x - kLeft)"', (WRONG, UNTOUCHED),
    ),
    Mutant(
        "stencil: index of the output in 32 bits", ON_STENCIL, STENCIL,
        "const {{ index }} own = ", "const unsigned own = ",
        (WRONG, RACE, UNTOUCHED),
    ),
    Mutant(
        "stencil: columns in 31 bits", ON_STENCIL, STENCIL, "const {{ index }} col = left +",
        "const int col = int(left) +", OUTSIDE_WRITE,
    ),
    Mutant(
        "stencil: first row in 32 bits", ON_STENCIL, STENCIL, "const {{ index }} first_row = (tile_row",
        "const unsigned first_row = (unsigned(tile_row)", (WRONG, RACE, UNTOUCHED),
    ),
    Mutant(
        "shifted: index of the input in 31 bits", ON_SHIFTED, SHIFTED, "in + from * in_pitch",
        "in + int(from) * int(in_pitch)", OVERFLOW,
    ),
    Mutant(
        "overlapped: cells before a segment in 31 bits", ON_OVERLAPPED, OVERLAPPED,
        "const long long place = static_cast<long long>(blockIdx.x) * kWarps + warp",
        "const int place = static_cast<int>(blockIdx.x) * kWarps + warp", OVERFLOW,
    ),
)  # fmt: skip

UNCHANGED = (
    Unchanged(
        "stencil: goes on past the last row", ON_STENCIL, STENCIL, "return", "continue",
        "a thread's rows grow: none after the first past the end lies within",
        at="last rows",
    ),
)  # fmt: skip
