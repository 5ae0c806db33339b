"""Templates broken on purpose: for each of these mutants the CPU run must fail, by the detector that is named here.

Numbers in brackets are those of the defects that the literature's printed listings have. Not among the mutants: 12 and
13, which are faults of a harness, not of a kernel.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from gen.emit.render import MARK, render
from gen.errors import CompileError
from gen.families import FAMILIES
from gen.families.base import Family, Limits, Variant
from gen.families.names import find_family, find_variant, variant
from gen.paths import cache_home, output_home, templates_root
from gen.proof.build import VARIANTS_PER_UNIT
from gen.proof.failure import AGAIN, UNTOUCHED, WRONG
from gen.proof.host import HostRunner
from gen.proof.prover import prove
from gen.proof.sampled import sampled_cases
from tests.outside.scan_family.scan import Scan

BLOCK = "_block.cu.jinja"
STATE = "reduction/_state.cu.jinja"
SHARE = "reduction/_share.cu.jinja"
GRID = "reduction/grid.cu.jinja"
INTERLEAVED = "reduction/interleaved.cu.jinja"
SHFL = "reduction/shfl.cu.jinja"
TILED = "transpose/tiled.cu.jinja"
TURNED = "transpose/naive.cu.jinja"
TILES = "transpose/_tile.cu.jinja"
STENCIL = "stencil/naive.cu.jinja"
STREAM = "stencil/stream.cu.jinja"
TEMPORAL = "stencil/temporal.cu.jinja"
SCANS = "scan/_scan.cu.jinja"
TOTALS = "scan/totals.cu.jinja"

ON_GRID = "reduction_sum_f32__grid_tpb128_u4_v16_bpm2"
ON_PAIRS = "reduction_sum_f32__grid_tpb128_u4_v8_bpm2"  # only an empty array ends before its first vector
ON_SINGLES = "reduction_sum_f32__grid_tpb128_u4_v4_bpm2"  # more than 2^15 vectors
ON_INTERLEAVED = "reduction_sum_f32__interleaved_tpb128_u4"
ON_WIDE = "reduction_sum_f32__interleaved_tpb512_u8"
ON_SHFL = "reduction_sum_f32__shfl_tpb128_u2"
ON_TILED = "transpose_10_b32__tiled_t32_r8_p1_u2"
ON_WHOLE_TILES = "transpose_10_b32__tiled_t16_r16_p1_u1"  # a block moves all rows of a tile at once
ON_TURNED = "transpose_10_b32__naive_row_x32_y8_u4"
ON_COLUMNS = "transpose_10_b32__naive_col_x32_y8_u4"
ON_STENCIL = f"stencil_{find_family(FAMILIES, 'stencil').catalogue[0].label}__naive_x32_y8_u2"
ON_STREAM = ON_STENCIL.replace("naive_x32_y8_u2", "stream_u4_x2_y1")
ON_TEMPORAL = ON_STENCIL.replace("naive_x32_y8_u2", "temporal_v1_r8_n1_t4")
ON_SCAN = "scan_sum_f32__block_tpb64"
ON_TOTALS = "scan_sum_f32__totals_tpb128_i4"

TAKEN_AS_CONST = "const State* __restrict__ partials, unsigned* ticket, long long n) {"
VOLATILE = "volatile float* const lanes = data; lanes[i] += lanes[i + stride];"
DIAGONAL = "(blockIdx.x % tiles_across + blockIdx.x / tiles_across) % tiles_across"

# Detectors: the kinds of a Failure, and the compiler.
REFUSED = "static_assert"
OUTSIDE_READ, OUTSIDE_WRITE = "out-of-bounds read", "out-of-bounds write"
UNINITIALISED, RACE, BARRIER, ABSENT, INDEX = "uninitialised read", "race", "barrier", "absent lane", "index"
OVERFLOW = "signed overflow"


@dataclass(frozen=True)
class Mutant:
    """One change to a template.

    Attributes:
        name: what is broken.
        variant: the kernel that is run.
        file: the template or partial.
        old: text that stands there, once.
        new: what stands there instead.
        detector: what must find it; several where the order in which threads run decides.
        also: further changes to the same file, old and new.
    """

    name: str
    variant: str
    file: str
    old: str
    new: str
    detector: str | tuple[str, ...]
    also: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Unchanged:
    """A change to a template that changes no result; fields are those of `Mutant`.

    Attributes:
        reason: why there is nothing to catch.
    """

    name: str
    variant: str
    file: str
    old: str
    new: str
    reason: str
    also: tuple[tuple[str, str], ...] = ()


MUTANTS = (
    # The sum over a warp and a block, which all reductions share.
    Mutant("block sum: no barrier [5]", ON_SHFL, BLOCK, "  __syncthreads();\n", "", (RACE, UNINITIALISED)),
    Mutant("block sum: mask of half a warp", ON_SHFL, BLOCK, "0xffffffffu", "0x0000ffffu", ABSENT),
    Mutant("block sum: first distance 8", ON_SHFL, BLOCK, "distance = 16", "distance = 8", WRONG),
    Mutant("block sum: identity 1", ON_SHFL, BLOCK, ": 0.0f);", ": 1.0f);", WRONG),
    Mutant("block sum: all lanes write", ON_SHFL, BLOCK, "if (threadIdx.x % 32 == 0) warp", "warp", RACE),
    Mutant("block sum: warps share a place", ON_SHFL, BLOCK, "[threadIdx.x / 32]", "[0]", RACE),
    Mutant("block sum: place of a half warp", ON_SHFL, BLOCK, "[threadIdx.x / 32]", "[threadIdx.x / 16]", INDEX),
    Mutant("block sum: one warp too many", ON_SHFL, BLOCK, "x < kWarps ?", "x <= kWarps ?", INDEX),
    Mutant("block sum: last warp left out", ON_SHFL, BLOCK, "x < kWarps ?", "x < kWarps - 1 ?", WRONG),
    Mutant(
        "block sum: shuffles in divergent code", ON_SHFL, BLOCK, "if (threadIdx.x < 32)", "if (threadIdx.x < kWarps)",
        ABSENT,
    ),
    Mutant("block sum: warps that do not exist [14]", ON_SHFL, SHFL, "kThreadsPerBlock / 32;", "32;", UNINITIALISED),
    # The second launch, which adds up the blocks' partial results.
    Mutant("finish: one partial too many", ON_SHFL, BLOCK, "i < count", "i <= count", OUTSIDE_READ),
    Mutant("finish: last partial left out", ON_SHFL, BLOCK, "i < count", "i < count - 1", WRONG),
    Mutant("finish: partials added twice", ON_INTERLEAVED, BLOCK, "i += kThreadsPerBlock)", "i += 32)", WRONG),
    Mutant("finish: whole numbers only", ON_SHFL, BLOCK, "  float sum = 0.0f;\n  for", "  int sum = 0;\n  for", WRONG),
    Mutant("finish: all threads write", ON_SHFL, BLOCK, "if (threadIdx.x == 0) *out", "*out", RACE),
    # The states of a warp and a block, which all reductions but the literature's share.
    Mutant("block: no barrier [5]", ON_GRID, STATE, "  __syncthreads();\n", "", (RACE, UNINITIALISED)),
    Mutant("block: first distance 8", ON_GRID, STATE, "distance = 16", "distance = 8", WRONG),
    Mutant("block: one warp too many", ON_GRID, STATE, "x < kWarps ?", "x <= kWarps ?", INDEX),
    Mutant("block: last warp left out", ON_GRID, STATE, "x < kWarps ?", "x < kWarps - 1 ?", WRONG),
    # grid: heads, tails and guards
    Mutant("grid: tail dropped [1]", ON_GRID, SHARE, "i = first; i < tail;", "i = first; i < 0;", WRONG),
    Mutant("grid: head dropped", ON_GRID, SHARE, "i = first; i < head;", "i = first; i < 0;", WRONG),
    Mutant("grid: vectors from the first element", ON_GRID, SHARE, "(in + head)", "(in)", "misaligned"),
    Mutant("grid: head longer than the array", ON_PAIRS, SHARE, "n < to_first ? n :", "false ? n :", OUTSIDE_READ),
    Mutant("grid: last lane dropped", ON_GRID, SHARE, "= 1; lane < kLanes;", "= 1; lane < kLanes - 1;", WRONG),
    Mutant("grid: last items of vectors dropped", ON_GRID, SHARE, "0; i < kVecItems;", "0; i < kVecItems - 1;", WRONG),
    Mutant("grid: leftover vectors dropped [1]", ON_GRID, SHARE, "  if (i < vectors) {", "  if (false) {", WRONG),
    Mutant(
        "grid: one vector too many [2]", ON_GRID, SHARE, "if (i + u * team < vectors) loaded",
        "if (i + u * team <= vectors) loaded", OUTSIDE_READ,
    ),
    Mutant("grid: unrolled loop unguarded", ON_GRID, SHARE, "i + (kUnroll - 1) * team < v", "i < v", OUTSIDE_READ),
    Mutant(
        "grid: neighbours, not a stride apart", ON_GRID, SHARE,
        'if (i + u * team < vectors) loaded[u].raw = {{ load_from(load, "body", "i + u * team") }}',
        'if (i + u * team < vectors) loaded[u].raw = {{ load_from(load, "body", "i + u") }}', WRONG,
    ),
    Mutant(
        "grid: blocks read the same", ON_GRID, GRID,
        "kThreadsPerBlock, {{ block }}, {{ blocks }}", "kThreadsPerBlock, 0, {{ blocks }}", WRONG,
    ),
    Mutant("grid: index of 16 bits", ON_SINGLES, SHARE, "  long long i = part", "  short i = part",
           OUTSIDE_READ),
    Mutant("grid: sums begin at 1", ON_GRID, SHARE, "states[lane] = identity();", "states[lane] = 1.0f;", WRONG),
    Mutant(
        "grid: return before a barrier [3]", ON_GRID, GRID, "  const State share",
        "  if (0 < n && n <= threadIdx.x) return;\n  const State share", ABSENT,
    ),
    Mutant(
        "grid: partials as narrow as bfloat16", ON_GRID, GRID, "{{ of_row }}[{{ block }}] = partial;",
        "partials[blockIdx.x] = __uint_as_float(__float_as_uint(partial) & 0xffff0000u);", WRONG,
    ),
    Mutant("grid: vector of the wrong width", ON_GRID, SHARE, '16: "uint4"', '16: "uint2"', REFUSED),
    # grid: the block that comes last
    Mutant(
        "grid: no fence after the partial", ON_GRID, GRID,
        "    __threadfence();  // the partial result is there before the ticket says so\n", "", RACE,
    ),
    Mutant(
        "grid: fence of the block only, before the ticket", ON_GRID, GRID, "__threadfence();  // the partial",
        "__threadfence_block();  // the partial", RACE,
    ),
    Mutant(
        "grid: no fence before the partials", ON_GRID, GRID, "  __threadfence();\n  State total", "  State total", RACE,
    ),
    Mutant(
        "grid: fence after the ticket", ON_GRID, GRID,
        "    __threadfence();  // the partial result is there before the ticket says so\n", "", RACE,
        (("== {{ blocks }} - 1;\n  }", "== {{ blocks }} - 1;\n    __threadfence();\n  }"),),
    ),
    Mutant(
        "grid: fence of the block only, after the ticket", ON_GRID, GRID, "  __threadfence();\n  State total",
        "  __threadfence_block();\n  State total", RACE,
    ),
    Mutant(
        "grid: plain counter", ON_GRID, GRID, "atomicInc({{ ticket }}, {{ blocks }} - 1)",
        "(*ticket = (*ticket + 1) % gridDim.x, (*ticket + gridDim.x - 1) % gridDim.x)", RACE,
    ),
    Mutant(
        "grid: counter not reset", ON_GRID, GRID, "atomicInc({{ ticket }}, {{ blocks }} - 1)", "atomicAdd(ticket, 1)",
        AGAIN,
    ),
    Mutant(
        "grid: counter wraps one late", ON_GRID, GRID, "atomicInc({{ ticket }}, {{ blocks }} - 1)",
        "atomicInc(ticket, gridDim.x)", AGAIN,
    ),
    Mutant(
        "grid: last but one takes itself for last", ON_GRID, GRID, ") == {{ blocks }} - 1;", ") == {{ blocks }} - 2;",
        (UNINITIALISED, RACE),
    ),
    Mutant("grid: all blocks finish", ON_GRID, GRID, "  if (!is_last_block) return;\n", "", (UNINITIALISED, RACE)),
    Mutant(
        "grid: no barrier after the ticket", ON_GRID, GRID, "  __syncthreads();\n  if (!is", "  if (!is",
        (UNINITIALISED, RACE),
    ),
    Mutant(
        "grid: barrier in divergent code [3]", ON_GRID, GRID, "    {{ of_row }}[{{ block }}] = partial;\n",
        "    partials[blockIdx.x] = partial;\n    __syncthreads();\n", BARRIER,
    ),
    Mutant("grid: partials by the read-only path", ON_GRID, STATE, "return __ldcg(", "return __ldg(", "read-only path"),
    Mutant(
        "grid: partials taken as const __restrict__", ON_GRID, GRID,
        "State* partials, unsigned* ticket, long long n) {",
        f"{TAKEN_AS_CONST}\n#define partials const_cast<float*>(partials)", "read-only path",
    ),
    Mutant("grid: blocks share a partial", ON_GRID, GRID, "{{ of_row }}[{{ block }}]", "partials[0]", RACE),
    Mutant(
        "grid: partial of the next block", ON_GRID, GRID, "{{ of_row }}[{{ block }}]", "partials[blockIdx.x + 1]",
        OUTSIDE_WRITE,
    ),
    Mutant("grid: last partial left out", ON_GRID, GRID, "block < {{ blocks }};", "block + 1 < {{ blocks }};", WRONG),
    Mutant("grid: one partial too many", ON_GRID, GRID, "block < {{ blocks }};", "block <= {{ blocks }};",
           OUTSIDE_READ),
    Mutant("grid: partials start one late", ON_GRID, GRID, "block = threadIdx.x;", "block = threadIdx.x + 1;", WRONG),
    # interleaved
    Mutant(
        "interleaved: barrier in divergent code [3]", ON_INTERLEAVED, INTERLEAVED,
        "data[i] += data[i + stride];\n    __syncthreads();", "{ data[i] += data[i + stride]; __syncthreads(); }",
        BARRIER,
    ),
    Mutant(
        "interleaved: no barrier between steps", ON_INTERLEAVED, INTERLEAVED,
        "data[i + stride];\n    __syncthreads();\n", "data[i + stride];\n", RACE,
    ),
    Mutant(
        "interleaved: no barrier after the fold [5]", ON_INTERLEAVED, INTERLEAVED, "  }\n  __syncthreads();\n\n",
        "  }\n\n", RACE,
    ),
    Mutant(
        "interleaved: warps in lock-step [4]", ON_INTERLEAVED, INTERLEAVED, "__syncthreads();\n  }\n  if",
        "if (stride > 32) __syncthreads();\n  }\n  if", RACE,
    ),
    Mutant(
        "interleaved: volatile warps in lock-step [4]", ON_INTERLEAVED, INTERLEAVED,
        "data[i] += data[i + stride];\n    __syncthreads();",
        f"{{ {VOLATILE} }}\n    if (stride > 32) __syncthreads();", RACE,
    ),
    Mutant(
        "interleaved: unroll drops the tail [1]", ON_WIDE, INTERLEAVED, "  if (i < left) {",
        "  if (i + (kUnroll - 1) * kThreadsPerBlock < left) {", WRONG,
    ),
    Mutant(
        "interleaved: unroll drops what fills no share [1]", ON_INTERLEAVED, INTERLEAVED,
        "i + u * kThreadsPerBlock < left", "kUnroll * kThreadsPerBlock <= left", WRONG,
    ),
    Mutant(
        "interleaved: off-by-one guard [2]", ON_INTERLEAVED, INTERLEAVED, "i + u * kThreadsPerBlock < left",
        "i + u * kThreadsPerBlock <= left", OUTSIDE_READ,
    ),
    Mutant(
        "interleaved: return before a barrier [3]", ON_INTERLEAVED, INTERLEAVED, "  const int i = threadIdx.x;\n",
        "  const int i = threadIdx.x;\n  if (0 < left && left <= i) return;\n", BARRIER,
    ),
    Mutant(
        "interleaved: tree past the end", ON_INTERLEAVED, INTERLEAVED, "i < stride && i + stride < left", "i < stride",
        OUTSIDE_READ,
    ),
    Mutant(
        "interleaved: tree of all threads", ON_INTERLEAVED, INTERLEAVED, "i < stride && i + stride < left",
        "i + stride < left", RACE,
    ),
    Mutant(
        "interleaved: shares overlap", ON_INTERLEAVED, INTERLEAVED, "(blockIdx.x) * kUnroll * kThreadsPerBlock",
        "(blockIdx.x) * kThreadsPerBlock", RACE,
    ),
    Mutant(
        "interleaved: empty array unguarded", ON_INTERLEAVED, INTERLEAVED, "left > 0 ? data[0] : 0.0f", "data[0]",
        OUTSIDE_READ,
    ),
    Mutant("interleaved: identity 1", ON_INTERLEAVED, INTERLEAVED, "data[0] : 0.0f", "data[0] : 1.0f", WRONG),
    Mutant(
        "interleaved: copy drops the last", ON_INTERLEAVED, INTERLEAVED, "i < n; i += stride", "i < n - 1; i += stride",
        UNINITIALISED,
    ),
    Mutant("interleaved: copy without end", ON_INTERLEAVED, INTERLEAVED, "i < n; i += stride", "i < n; i += 0", "hang"),
    Mutant(
        "interleaved: copy goes round once", ON_INTERLEAVED, INTERLEAVED, "i < n; i += stride", "i < n; i += n",
        UNINITIALISED,
    ),
    Mutant(
        "interleaved: block of no power of two", ON_INTERLEAVED, INTERLEAVED,
        "kThreadsPerBlock = {{ threads_per_block }};", "kThreadsPerBlock = {{ threads_per_block }} + 32;", REFUSED,
    ),
    # shfl
    Mutant(
        "shfl: return before a barrier [3]", ON_SHFL, SHFL, "if (i < n) sum += in[i];",
        "if (u == 0 && 0 < n && n <= i) return;\n    if (i < n) sum += in[i];", ABSENT,
    ),
    Mutant("shfl: unguarded", ON_SHFL, SHFL, "if (i < n) sum", "sum", OUTSIDE_READ),
    Mutant("shfl: off-by-one guard [2]", ON_SHFL, SHFL, "if (i < n) sum", "if (i <= n) sum", OUTSIDE_READ),
    Mutant(
        "shfl: unroll drops the tail [1]", ON_SHFL, SHFL, "if (i < n) sum",
        "if (begin + kUnroll * kThreadsPerBlock <= n) sum", WRONG,
    ),
    Mutant(
        "shfl: block sum in divergent code", ON_SHFL, SHFL, "  sum = block_sum(",
        "  if (begin + threadIdx.x < n) sum = block_sum(", ABSENT,
    ),
    Mutant(
        "shfl: works in the caller's array", ON_SHFL, SHFL, "sum += in[i];", "sum = const_cast<float*>(in)[i] += sum;",
        "write to input",
    ),
    # tiled transpose
    Mutant(
        "tiled: no barrier after filling the tile [5]", ON_TILED, TILED, "  __syncthreads();\n", "",
        (UNINITIALISED, RACE),
    ),
    Mutant(
        "tiled: return before a barrier [3]", ON_TILED, TILED, "  const int y = threadIdx.y;\n",
        "  const int y = threadIdx.y;\n  if (first_row + y >= rows) return;\n", BARRIER,
    ),
    Mutant(
        "tiled: barrier in divergent code [3]", ON_TILED, TILED, "  __syncthreads();\n",
        "  if (first_row + y < rows) __syncthreads();\n", BARRIER,
    ),
    Mutant(
        "tiled: loads unguarded", ON_TILED, TILED, "if (row < rows && col < cols) {\n        tile", "{\n        tile",
        OUTSIDE_READ,
    ),
    Mutant(
        "tiled: loads past the last column", ON_TILED, TILED, "if (row < rows && col < cols) {\n        tile",
        "if (row < rows) {\n        tile", OUTSIDE_READ,
    ),
    Mutant(
        "tiled: stores unguarded", ON_TILED, TILED, "if (row < rows && col < cols) {\n        {{", "{\n        {{",
        UNINITIALISED,
    ),
    Mutant(
        "tiled: swapped extents in the stores [6]", ON_TILED, TILED, "if (row < rows && col < cols) {\n        {{",
        "if (row < cols && col < rows) {\n        {{", UNINITIALISED,
    ),
    Mutant(
        "tiled: swapped extents in both guards [6]", ON_TILED, TILED, "if (row < rows && col < cols) {\n        {{",
        "if (row < cols && col < rows) {\n        {{", OUTSIDE_READ,
        (("if (row < rows && col < cols) {\n        tile", "if (row < cols && col < rows) {\n        tile"),),
    ),
    Mutant(
        "tiled: row of the tile too short", ON_TILED, TILED, "tile[kTileDim][kTileCols + kPadding];",
        "tile[kTileDim][kTileCols - 1];", INDEX,
    ),
    Mutant(
        "tiled: padding before the row when read", ON_TILED, TILED, 'at("x", "y + j + i")',
        'at("x", "kPadding + y + j + i")', UNINITIALISED,
    ),
    Mutant(
        "tiled: padding twice", ON_TILED, TILED, 'at("y + j", "x + i")', 'at("y + j", "2 * kPadding + x + i")',
        UNINITIALISED,
    ),
    Mutant(
        "tiled: tile read as it was written", ON_TILED, TILED, 'at("x", "y + j + i")', 'at("y + j", "x + i")',
        UNINITIALISED,
    ),
    Mutant("tiled: copies [9]", ON_TILED, TILED, '"col * out_pitch + row"', '"row * cols + col"',
           OUTSIDE_READ),
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
        "tiled: last strip not loaded", ON_TILED, TILED, "j < kTileDim; j += kBlockRows) {\n#",
        "j < kTileDim - kBlockRows; j += kBlockRows) {\n#", UNINITIALISED,
    ),
    Mutant(
        "tiled: second square not stored", ON_TILED, TILED, "i < kTileCols; i += kTileDim) {\n#",
        "i < kTileDim; i += kTileDim) {\n#", WRONG,
    ),
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
    # naive transpose
    Mutant(
        "turned: swapped extents in a guard [6]", ON_TURNED, TURNED, "{{ lane }} < {{ lane }}s)",
        "{{ lane }} < {{ other }}s)", WRONG,
    ),
    Mutant(
        "turned: swapped extents [6]", ON_COLUMNS, TURNED, "{{ lane }} < {{ lane }}s)", "{{ lane }} < {{ other }}s)",
        OUTSIDE_READ,
    ),
    Mutant(
        "turned: rows past the end", ON_TURNED, TURNED, "  if ({{ other }} >= {{ other }}s) return;\n", "",
        OUTSIDE_READ,
    ),
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
    Mutant("turned: copies [9]", ON_TURNED, TURNED, "out[col * out_pitch + row]", "out[row * in_pitch + col]", WRONG),
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
    # stencil
    Mutant(
        "stencil: halo unguarded [11]", ON_STENCIL, STENCIL, "if (rows_inside && cols_inside)", "if (true)",
        OUTSIDE_READ,
    ),
    Mutant("stencil: row before the first [11]", ON_STENCIL, STENCIL, "row < 0 || ", "", OUTSIDE_READ),
    Mutant("stencil: row after the last [2]", ON_STENCIL, STENCIL, "|| row >= rows)", "|| row > rows)", OUTSIDE_READ),
    Mutant(
        "stencil: column after the last [2]", ON_STENCIL, STENCIL, "|| col >= cols)", "|| col > cols)", OUTSIDE_READ,
    ),
    Mutant(
        "stencil: wraps at row ends and past both ends", ON_STENCIL, STENCIL, "rows_inside && cols_inside",
        "rows_inside", WRONG,
    ),
    Mutant(
        "stencil: another value outside", ON_STENCIL, STENCIL, "|| row >= rows) return {{ cval }};",
        "|| row >= rows) return 1.0f;", WRONG,
    ),
    Mutant("stencil: sum begins at 1", ON_STENCIL, STENCIL, "sum = {{ zero }};", "sum = 1.0f;", WRONG),
    Mutant("stencil: whole numbers only", ON_STENCIL, STENCIL, "{{ number }} sum =", "int sum =", WRONG),
    Mutant("stencil: last rows unguarded", ON_STENCIL, STENCIL, "    if (row >= rows) return;\n", "", OUTSIDE_WRITE),
    Mutant(
        "stencil: one row too many [2]", ON_STENCIL, STENCIL, "if (row >= rows) r", "if (row > rows) r", OUTSIDE_WRITE,
    ),
    Mutant("stencil: last columns unguarded", ON_STENCIL, STENCIL, "  if (col >= cols) return;\n", "", OUTSIDE_WRITE),
    Mutant(
        "stencil: swapped extents [6]", ON_STENCIL, STENCIL, "if (col >= cols) return;", "if (col >= rows) return;",
        WRONG,
    ),
    Mutant(
        "stencil: wrong pitch of the input", ON_STENCIL, STENCIL, '"row * in_pitch + col"', '"row * cols + col"',
        OUTSIDE_READ,
    ),
    Mutant(
        "stencil: wrong pitch of the output", ON_STENCIL, STENCIL, "out[row * out_pitch + col] = {{",
        "out[row * in_pitch + col] = {{", UNINITIALISED,
    ),
    Mutant("stencil: blocks overlap", ON_STENCIL, STENCIL, "(kBlockY * kUnroll)", "kBlockY", RACE),
    Mutant(
        "stream: rows above unguarded [11]", ON_STREAM, STREAM, "kFarUp <= first_row && first_row", "first_row",
        OUTSIDE_READ,
    ),
    Mutant(
        "stream: a vector past the end of a row [10]", ON_STREAM, STREAM, "first_col + kWarpCols <= cols && aligned(in",
        "aligned(in", OUTSIDE_READ,
    ),
    Mutant(
        "stream: vectors where rows begin between them", ON_STREAM, STREAM,
        "aligned(in, in_pitch) &&\n                       aligned", "aligned", "misaligned",
    ),
    Mutant(
        "stream: last rows unguarded", ON_STREAM, STREAM, "if (!kEdge || row < rows) {", "if (true) {", OUTSIDE_WRITE,
    ),
    Mutant(
        "stream: another boundary above", ON_STREAM, STREAM, "first_row + y < kUp || first_row", "first_row", WRONG,
    ),
    Mutant(
        "stream: another boundary at the ends of rows", ON_STREAM, STREAM, "if (kEdge && from_col != col)",
        "if (false)", WRONG,
    ),
    Mutant(
        "stream: the first lane looks at itself", ON_STREAM, STREAM, "lane * kCells < d ? beside[y][d] : left", "left",
        WRONG,
    ),
    Mutant("stream: blocks overlap", ON_STREAM, STREAM, "% kWarpsAcross) * kWarpCols", "% kWarpsAcross) * 32", RACE),
    Mutant(
        "temporal: rows below unguarded [11]", ON_TEMPORAL, TEMPORAL, "rows - 2 * kRound + 1", "rows", OUTSIDE_READ,
    ),
    Mutant(
        "temporal: columns unguarded [11]", ON_TEMPORAL, TEMPORAL, "!is_end && whole", "whole", OUTSIDE_READ,
    ),
    Mutant(
        "temporal: the rows above forgotten", ON_TEMPORAL, TEMPORAL, "kEdge && centre == 0", "kEdge && centre == 1",
        WRONG,
    ),
    Mutant(
        "temporal: inner too early", ON_TEMPORAL, TEMPORAL, "first_inner = steps * kDown + ", "first_inner = ", WRONG,
    ),
    Mutant(
        "temporal: one row too many", ON_TEMPORAL, TEMPORAL, "      if (first_row <= done && done < end_row) {",
        "      if (first_row <= done && done <= end_row) {", (RACE, OUTSIDE_WRITE),
    ),
    Mutant(
        "temporal: lanes write what their steps used up", ON_TEMPORAL, TEMPORAL, "if (writes && ", "if (",
        (WRONG, RACE),
    ),
    Mutant(
        "temporal: columns at the right end left out", ON_TEMPORAL, TEMPORAL,
        "  if (is_end && column > 0) column += inner_across;\n", "", (RACE, UNTOUCHED),
    ),
    Mutant(
        "temporal: a level more in the launch that ends", ON_TEMPORAL, TEMPORAL, "level >= steps) continue",
        "level > steps) continue", WRONG,
    ),
    # scan, the family from outside
    Mutant(
        "scan: no barrier at the end of a round [5]", ON_SCAN, SCANS,
        "    __syncthreads();  // all have read warp_sums before the next round writes it\n", "", RACE,
    ),
    Mutant(
        "scan: no barrier after filling shared memory [5]", ON_SCAN, SCANS,
        "sums[threadIdx.x / 32] = sum;\n  __syncthreads();\n", "sums[threadIdx.x / 32] = sum;\n", (RACE, UNINITIALISED),
    ),
    Mutant(
        "scan: no barrier after the warps' sums [5]", ON_SCAN, SCANS, "= running;\n  }\n  __syncthreads();\n",
        "= running;\n  }\n", (RACE, UNINITIALISED),
    ),
    Mutant("scan: distance off by one", ON_SCAN, SCANS, "lane >= distance", "lane > distance", WRONG),
    Mutant("scan: mask without the last lane", ON_SCAN, SCANS, "0xffffffffu", "0x7fffffffu", ABSENT),
    Mutant("scan: reads past the end", ON_SCAN, SCANS, "i < n ? in[i] : 0.0f", "in[i]", OUTSIDE_READ),
    Mutant("scan: writes past the end", ON_TOTALS, TOTALS, "if (i < n) out[i]", "out[i]", OUTSIDE_WRITE),
    Mutant(
        "scan: return before a barrier [3]", ON_SCAN, SCANS, "    const float sum = warp_scan(",
        "    if (i >= n) return;\n    const float sum = warp_scan(", ABSENT,
    ),
    Mutant(
        "scan: total of its own share", ON_TOTALS, TOTALS, "totals[blockIdx.x - 1]", "totals[blockIdx.x]", OUTSIDE_READ,
    ),
    Mutant("scan: carry from the last lane but one", ON_TOTALS, TOTALS, "sums[u], 31", "sums[u], 30", WRONG),
)  # fmt: skip

# Indices of 32 bits where 64 are needed: found on more than 2^32 elements, of which a few blocks are run.
LARGE_MUTANTS = (
    Mutant("grid: i of 31 bits", ON_SINGLES, SHARE, "  long long i = part", "  int i = part", OUTSIDE_READ),
    Mutant("grid: i of 32 bits", ON_SINGLES, SHARE, "  long long i = part", "  unsigned i = part", "hang"),
    Mutant(
        "grid: vectors counted in 31 bits", ON_PAIRS, SHARE, "long long vectors = (n", "int vectors = (n", OVERFLOW,
    ),
    Mutant(
        "grid: tail at an index of 31 bits", ON_GRID, SHARE, "const long long behind =", "const int behind =",
        UNTOUCHED,
    ),
    Mutant(
        "grid: tail at an index of 32 bits", ON_GRID, SHARE, "const long long behind =", "const unsigned behind =",
        UNTOUCHED,
    ),
    Mutant(
        "interleaved: share begins at 31 bits", ON_INTERLEAVED, INTERLEAVED,
        "static_cast<long long>(blockIdx.x) * kUnroll", "static_cast<int>(blockIdx.x) * kUnroll", OVERFLOW,
    ),
    Mutant(
        "interleaved: share begins at 32 bits", ON_INTERLEAVED, INTERLEAVED,
        "static_cast<long long>(blockIdx.x) * kUnroll", "blockIdx.x * kUnroll", (RACE, UNTOUCHED),
    ),
    Mutant(
        "interleaved: elements left in 31 bits", ON_INTERLEAVED, INTERLEAVED, "long long left =", "int left =",
        UNTOUCHED,
    ),
    Mutant(
        "interleaved: copy in 31 bits", ON_INTERLEAVED, INTERLEAVED, "for (long long i = first;", "for (int i = first;",
        OUTSIDE_READ,
    ),
    Mutant(
        "interleaved: copy in 32 bits", ON_INTERLEAVED, INTERLEAVED, "for (long long i = first;",
        "for (unsigned i = first;", "hang",
    ),
    Mutant(
        "interleaved: copy from 32 bits", ON_INTERLEAVED, INTERLEAVED, "work[i] = in[i];", "work[i] = in[unsigned(i)];",
        WRONG,
    ),
    Mutant(
        "interleaved: copy from and to 32 bits", ON_INTERLEAVED, INTERLEAVED, "work[i] = in[i];",
        "work[unsigned(i)] = in[unsigned(i)];", UNTOUCHED,
    ),
    Mutant(
        "shfl: share begins at 31 bits", ON_SHFL, SHFL, "static_cast<long long>(blockIdx.x)",
        "static_cast<int>(blockIdx.x)", OVERFLOW,
    ),
    Mutant(
        "shfl: share begins at 32 bits", ON_SHFL, SHFL, "static_cast<long long>(blockIdx.x)", "blockIdx.x", UNTOUCHED,
    ),
    Mutant("shfl: index of 31 bits", ON_SHFL, SHFL, "const long long i =", "const int i =", OUTSIDE_READ),
    Mutant("shfl: index of 32 bits", ON_SHFL, SHFL, "const long long i =", "const unsigned i =", UNTOUCHED),
    Mutant("shfl: guard of 31 bits", ON_SHFL, SHFL, "if (i < n) sum", "if (i < int(n)) sum", UNTOUCHED),
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
        "tiled: rows of tiles in 31 bits", ON_TILED, TILED, "const long long first_row = tile_row * kTileDim",
        "const int first_row = int(tile_row) * kTileDim", OVERFLOW,
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
    Mutant(
        "stencil: index of the input in 31 bits", ON_STENCIL, STENCIL, '"row * in_pitch + col"',
        '"int(row) * int(in_pitch) + int(col)"', OVERFLOW,
    ),
    Mutant(
        "stencil: index of the input in 32 bits", ON_STENCIL, STENCIL, '"row * in_pitch + col"',
        '"unsigned(row * in_pitch + col)"', (WRONG, UNTOUCHED),
    ),
    Mutant(
        "stencil: index of the output in 32 bits", ON_STENCIL, STENCIL, "out[row * out_pitch + col] = {{",
        "out[unsigned(row * out_pitch + col)] = {{", (WRONG, RACE, UNTOUCHED),
    ),
    Mutant(
        "stencil: columns in 31 bits", ON_STENCIL, STENCIL, "const long long col = tile_col * kBlockX",
        "const int col = int(tile_col) * kBlockX", OVERFLOW,
    ),
    Mutant(
        "stencil: first row in 32 bits", ON_STENCIL, STENCIL, "const long long first_row = tile_row *",
        "const unsigned first_row = unsigned(tile_row) *", (WRONG, RACE, UNTOUCHED),
    ),
)  # fmt: skip

UNCHANGED = (
    Unchanged(
        "grid: a tile counted in 31 bits", ON_GRID, SHARE, "static_cast<long long>(team) * kUnroll", "team * kUnroll",
        "a tile is 8192 vectors at most",
    ),
    Unchanged(
        "finish: partials counted in 31 bits", ON_SHFL, BLOCK, "for (long long i = threadIdx.x;",
        "for (int i = threadIdx.x;", "a grid has fewer than 2^31 blocks, and each one partial result",
    ),
    Unchanged(
        "block sum: shuffles down", ON_SHFL, BLOCK, "__shfl_xor_sync", "__shfl_down_sync",
        "only lane 0 of a warp uses the sum, and it adds the same lanes in the same order",
    ),
    Unchanged(
        "block sum: every warp adds up the warps' sums", ON_SHFL, BLOCK, "if (threadIdx.x < 32) value", "value",
        "only thread 0 uses the sum; the condition saves the other warps their work",
    ),
    Unchanged(
        "grid: thread 0 alone fences, before the barrier", ON_GRID, GRID, "  __threadfence();\n  State total",
        "  State total", "the barrier hands on to the block what thread 0's atomic and fence have seen",
        (("== {{ blocks }} - 1;\n  }", "== {{ blocks }} - 1;\n    __threadfence();\n  }"),),
    ),
    Unchanged(
        "grid: plain loads of the partials", ON_GRID, GRID, "load_partial({{ of_row }} + block)", "partials[block]",
        "the fence before them orders plain loads too",
    ),
    Unchanged(
        "grid: one block takes a ticket too", ON_GRID, GRID,
        "  if ({{ blocks }} == 1) {\n", "  if (false) {\n",
        "a single block is the last one; the condition saves it the ticket",
    ),
    Unchanged(
        "interleaved: no barrier after the last step", ON_INTERLEAVED, INTERLEAVED, "data[i + stride];\n    __sync",
        "data[i + stride];\n    if (stride > 1) __sync", "thread 0 alone takes the last step, and reads its result",
    ),
    Unchanged(
        "tiled: no padding", ON_TILED, TILED, "tile[kTileDim][kTileCols + kPadding];",
        "tile[kTileDim][kTileCols];",
        "padding decides over bank conflicts, which cost time only",
    ),
    Unchanged(
        "tiled: rows times height, whole tiles [7]", ON_WHOLE_TILES, TILED, '"col * out_pitch + row"',
        '"(first_col + y + i + j * rows) * out_pitch + row"', "with block_rows equal to tile_dim, j is 0 only",
    ),
    Unchanged(
        "stencil: goes on past the last row", ON_STENCIL, STENCIL, "if (row >= rows) return;\n",
        "if (row >= rows) continue;\n", "a thread's rows grow: none after the first past the end lies within",
    ),
)  # fmt: skip

CHANGES: tuple[Mutant | Unchanged, ...] = (*MUTANTS, *LARGE_MUTANTS, *UNCHANGED)
TOGETHER = 2 * VARIANTS_PER_UNIT  # two translation units, for two cores


@cache
def whole(name: str) -> Variant:
    """The variant as it is."""
    return find_variant((*FAMILIES, Scan()), name, {})


def changed(change: Mutant | Unchanged, folder: Path) -> Variant:
    """Its variant, of a family whose templates have the change, under a name that no other variant has."""
    made = whole(change.variant)
    own, shared = Path(str(made.family.templates)), Path(str(templates_root()))
    if own != shared:
        shutil.copytree(own, folder)
    place = folder / change.file
    text = (place if place.exists() else shared / change.file).read_text()
    for old, new in ((change.old, change.new), *change.also):
        assert text.count(old) == 1, f"{change.name}: {old!r} stands {text.count(old)} times in {change.file}"
        text = text.replace(old, new)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    # Variants of one translation unit have different names, since their kernels are extern "C".
    name = f"m{crc32(change.name.encode()):08x}_{made.family.name}"
    family: Family[Any] = type("Changed", (type(made.family),), {"name": name, "templates": folder})()
    return variant(family, made.spec, made.algorithm, made.config)


@cache
def text_of(made: Variant) -> str:
    """The text of its file, rendered once."""
    return render(made)


def body(made: Variant, name: str) -> str:
    """What is compiled, as if the variant had this name."""
    return text_of(made).partition(MARK)[2].replace(made.name, name)


@pytest.fixture(scope="session")
def runner() -> HostRunner:
    """The CPU run; what it builds is kept between runs of the tests, and what it renders for all tests."""
    return HostRunner(Limits.of("sm_90"), cache=cache_home(output_home()), text=text_of)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, runner: HostRunner) -> Callable[[Mutant | Unchanged], Variant]:
    """Gives the variant of a change, built together with its neighbours in the table."""
    folder = tmp_path_factory.mktemp("templates")

    @cache
    def part(start: int) -> Mapping[str, Variant]:
        changes = CHANGES[start : start + TOGETHER]
        made = {change.name: changed(change, folder / str(start + place)) for place, change in enumerate(changes)}
        # One text that g++ refuses would have all others of its translation unit built one by one.
        runner.load([made[change.name] for change in changes if REFUSED not in detectors(change)])
        return made

    return lambda change: part(CHANGES.index(change) // TOGETHER * TOGETHER)[change.name]


def detectors(change: Mutant | Unchanged) -> tuple[str, ...]:
    """What may find it."""
    if isinstance(change, Unchanged):
        return ()
    return (change.detector,) if isinstance(change.detector, str) else change.detector


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(
    mutant: Mutant,
    built: Callable[[Mutant | Unchanged], Variant],
    runner: HostRunner,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("mutant", "caught")  # counted in tests/conftest.py, if this test passes
    made = built(mutant)
    assert body(made, mutant.variant) != body(whole(mutant.variant), mutant.variant)
    if mutant.detector == REFUSED:
        with pytest.raises(CompileError, match="static assertion failed"):
            runner.load([made])
        return
    (proof,) = prove(runner, [made])
    assert proof.failure is not None, "nothing was reported"
    assert proof.failure.kind in detectors(mutant), str(proof.failure)


@pytest.mark.parametrize("mutant", LARGE_MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught_on_a_large_problem(
    mutant: Mutant,
    built: Callable[[Mutant | Unchanged], Variant],
    runner: HostRunner,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("mutant", "caught")
    made = built(mutant)
    assert body(made, mutant.variant) != body(whole(mutant.variant), mutant.variant)
    (proof,) = prove(runner, [made], tuple(sampled_cases(made.family, made.spec)))
    assert proof.failure is not None, "nothing was reported"
    assert proof.failure.kind in detectors(mutant), str(proof.failure)


@pytest.mark.parametrize("change", UNCHANGED, ids=lambda change: change.name)
def test_change_without_effect_is_proven(
    change: Unchanged,
    built: Callable[[Mutant | Unchanged], Variant],
    runner: HostRunner,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("mutant", "without effect")
    made = built(change)
    assert body(made, change.variant) != body(whole(change.variant), change.variant)
    (proof,) = prove(runner, [made])
    assert proof.failure is None, str(proof.failure)


def test_variants_without_the_changes_are_proven(runner: HostRunner) -> None:
    for proof in prove(runner, [whole(name) for name in sorted({change.variant for change in CHANGES})]):
        assert proof.failure is None, str(proof.failure)
        assert proof.cases > 10


def test_no_two_changes_are_one() -> None:
    assert len({change.name for change in CHANGES}) == len(CHANGES)
    edits = {(change.variant, change.file, change.old, change.new, change.also) for change in CHANGES}
    assert len(edits) == len(CHANGES)
