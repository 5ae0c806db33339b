"""Shape classes of transposes: what a problem is like, which kernel it gets untuned, and a size that stands for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import permutations

from gen.arch import SECTOR
from gen.dtypes import DType
from gen.families.base import STATIC_SHARED_BYTES, WIDEST, Extents, Limits
from gen.families.config import Config
from gen.families.transpose import square
from gen.families.transpose.blocks import Order, only_moves
from gen.families.transpose.boxes import axes_of, runs_of
from gen.families.transpose.flat import FEW, Few, RowCopyConfig, SkinnyConfig, SmallConfig, stays
from gen.families.transpose.packed import Packed, PackedConfig
from gen.families.transpose.spec import TransposeSpec
from gen.families.transpose.swap import SwapTileConfig
from gen.families.transpose.tiled import Lanes, NaiveConfig, TiledConfig
from gen.families.transpose.vector import VectorTileConfig
from gen.families.transpose.windows import ShiftTileConfig, WindowTileConfig

COPY = "nothing moves: a copy"
RUNS = "short runs are copied"
SMALL = "small matrices"
PACKED = "short runs both ways"
FEW_COLS = "few columns"
FEW_ROWS = "few rows"
ALIGNED = "aligned rows"
ALIGNED_LITTLE = "aligned rows, under 4 MiB"
ODD = "odd rows"
ODD_LITTLE = "odd rows, under 4 MiB"

_SHORT_RUN = 4096  # bytes
_SHORTEST = 256  # bytes that tiles read or write side by side at least
_TINY = 128  # bytes of a run that is copied by itself
_SMALL_MATRIX = 16384  # bytes
_LITTLE = 4 << 20  # bytes
_LARGE = 1 << 28  # bytes
_VECTOR = 16  # bytes
_SMALLEST = replace(Limits.of("sm_75"), shared_bytes_per_block=STATIC_SHARED_BYTES)  # what base runs on everywhere

Problems = Callable[[TransposeSpec, Mapping[str, int]], Extents]
"""Gives the extents of a problem of these axes and pitches."""


def shape_class(spec: TransposeSpec, extents: Extents, alignment: int = WIDEST, *, packs: bool = True) -> str:
    """What a problem is like; without `packs` as if there were no boxes of several axes."""
    if spec.in_place:
        little = square.is_little(spec, extents)
        aligned = alignment >= _VECTOR and square.is_aligned(spec, extents)
        return (ALIGNED_LITTLE if little else ALIGNED) if aligned else (ODD_LITTLE if little else ODD)
    rows, cols, size = extents["rows"], extents["cols"], spec.dtype.size
    batch = [[extents[f"batch{b}{end}"] for end in ("", "_in", "_out")] for b in range(spec.batches)]
    matrices = 1
    for extent, _, _ in batch:
        matrices *= extent
    steps = [alignment, extents["in_pitch"] * size, extents["out_pitch"] * spec.result.size]
    for extent, there, here in batch:
        if extent > 1:
            steps += [there * size, here * spec.result.size]
    aligned = all(step % _VECTOR == 0 for step in steps)
    if rows * cols == 0 or stays(extents):
        run = rows * cols * size
        if matrices == 1 or run >= _SHORT_RUN:
            return COPY
        vectors = run % _VECTOR == 0 and run > _VECTOR and all(step % _VECTOR == 0 for step in (alignment, *steps[3:]))
        return PACKED if packs and run < _TINY and not vectors and _packs(spec, extents, rows * cols) else RUNS
    dense_in, dense_out = extents["in_pitch"] == cols, extents["out_pitch"] == rows
    small = 1 < min(rows, cols) <= max(rows, cols) <= FEW and rows * cols * size <= _SMALL_MATRIX
    if matrices > 1 and small and dense_in and dense_out and _follow(batch, rows * cols):
        return SMALL
    few_cols, few_rows = cols <= FEW and dense_in, rows <= FEW and dense_out
    shorter = min(cols * (rows if dense_in else 1), rows * (cols if dense_out else 1))
    little_at_once = (few_cols or few_rows) and rows * cols * size < _SHORT_RUN
    whole = aligned and shorter * size % SECTOR == 0
    short = shorter * size < (2 * SECTOR if whole else _SHORTEST)
    if packs and (short or little_at_once) and _packs(spec, extents, shorter):
        return PACKED
    if few_cols:
        return FEW_COLS
    if few_rows:
        return FEW_ROWS
    little = rows * cols * matrices * size < _LITTLE
    if aligned:
        return ALIGNED_LITTLE if little else ALIGNED
    return ODD_LITTLE if little else ODD


def _packs(spec: TransposeSpec, extents: Extents, run: int) -> bool:
    """Whether taking more axes along makes runs longer, in both arrays, in boxes that every device takes."""
    packed, config = Packed(), PackedConfig()
    if packed.illegal(spec, config):
        return False
    found = runs_of(spec, extents, config.times)
    return min(found.read, found.written) > run and packed.uncovered(spec, config, extents, _SMALLEST) is None


def base(spec: TransposeSpec, shape_class: str) -> tuple[str, Config]:
    """What was fast on an H100: for devices that nothing was tuned on."""
    size = spec.dtype.size
    if spec.in_place:
        return "swap_tile", _swapping(spec, shape_class)
    if spec.values is not None:
        return _changing(spec, shape_class)
    match shape_class:
        case "nothing moves: a copy":
            return "row_copy", RowCopyConfig(lanes=256, unroll=4)
        case "short runs are copied":
            return "row_copy", RowCopyConfig(lanes=16, unroll=2)
        case "small matrices":
            return "small", SmallConfig(piece=_SMALL_MATRIX)
        case "short runs both ways":
            return "packed", PackedConfig()
        case "few columns" | "few rows":
            few = Few.COLS if shape_class == FEW_COLS else Few.ROWS
            return "skinny", SkinnyConfig(few=few)
        case "aligned rows":
            return "vector_tile", VectorTileConfig()
        case "aligned rows, under 4 MiB":
            return "vector_tile", VectorTileConfig(lanes=8, groups=8)
        case "odd rows":
            if size < 4:
                groups = 32 if size == 1 else 64
                return "shift_tile", ShiftTileConfig(groups=groups, warps=8, block_order=Order.ROW)
            if size == 4:
                return "window_tile", WindowTileConfig(tile_rows=128, tile_cols=64, warps=32)
            return "window_tile", WindowTileConfig(tile_rows=64, tile_cols=32, warps=16)
        case _:
            if size < 4:
                groups = 16 if size == 1 else 32
                return "shift_tile", ShiftTileConfig(groups=groups, warps=16, align=4, block_order=Order.ROW)
            return "window_tile", WindowTileConfig(tile_rows=64, tile_cols=32, warps=8)


def _swapping(spec: TransposeSpec, shape_class: str) -> SwapTileConfig:
    """Tiles of 8 KiB or so, of whole vectors where rows are aligned to them."""
    size = spec.dtype.size
    if shape_class in (ALIGNED, ALIGNED_LITTLE):
        return SwapTileConfig(vec_bytes=16, lanes=8 if size < 4 else 16)
    return SwapTileConfig(vec_bytes=size, lanes=32, strips=4 if size < 8 else 8)


def _changing(spec: TransposeSpec, shape_class: str) -> tuple[str, Config]:
    """Where elements become others on their way."""
    size = max(spec.dtype.size, spec.result.size)
    match shape_class:
        case "nothing moves: a copy":
            return "row_copy", RowCopyConfig(lanes=256, unroll=4)
        case "short runs are copied":
            return "row_copy", RowCopyConfig(lanes=16, unroll=2)
        case "few columns" | "few rows":
            order = Lanes.COL if shape_class == FEW_COLS else Lanes.ROW
            return "naive", NaiveConfig(order=order, block_x=64, block_y=4, unroll=4)
        case "small matrices":
            return "tiled", TiledConfig()
        case "aligned rows" | "aligned rows, under 4 MiB" if spec.dtype.size == spec.result.size:
            lanes = 16 if shape_class == ALIGNED else 8
            return "vector_tile", VectorTileConfig(lanes=lanes, groups=lanes)
        case "aligned rows" | "odd rows" if size <= 4:
            return "window_tile", WindowTileConfig(tile_rows=128, tile_cols=64, warps=32)
        case _:
            return "window_tile", WindowTileConfig(tile_rows=64, tile_cols=32, warps=8)


@lru_cache(maxsize=64)
def representatives(spec: TransposeSpec, problem: Problems) -> Mapping[str, Extents]:
    """Every class that a spec's problems can have, with sizes that stand for it; those of a matrix first."""
    found: dict[str, Extents] = {}
    for axes in _examples(spec):
        extents = problem(spec, axes)
        found.setdefault(shape_class(spec, extents), extents)
    for axes in _packed_examples(spec):
        extents = problem(spec, axes)
        if shape_class(spec, extents) == PACKED:
            found.setdefault(PACKED, extents)
            break
    order = (ALIGNED, ODD, FEW_COLS, FEW_ROWS, PACKED, ALIGNED_LITTLE, ODD_LITTLE, SMALL, COPY, RUNS)
    return {name: found[name] for name in order if name in found}


def known_class(spec: TransposeSpec, extents: Extents, alignment: int, known: Mapping[str, Extents]) -> str:
    """The class of a problem among those that stand for its spec; oddly pitched ones may be of none of them."""
    found = shape_class(spec, extents, alignment)
    if found == PACKED and PACKED not in known:
        found = shape_class(spec, extents, alignment, packs=False)
    if found in known:
        return found
    return COPY if found == RUNS else ODD if ODD in known else ODD_LITTLE


def _follow(batch: list[list[int]], area: int) -> bool:
    """Whether matrices follow each other without a gap in both arrays."""
    step = area
    for extent, there, here in reversed(batch):
        if extent > 1 and (there, here) != (step, step):
            return False
        step *= extent
    return True


def _examples(spec: TransposeSpec) -> Iterator[Mapping[str, int]]:
    """Problems in which two or three axes are longer than 1, dense ones first."""
    if spec.in_place:
        yield from square.examples(spec)
        return
    for gap in (0, 1) if spec.operands[0].pitch else (0,):
        for extents in _sizes(spec.dtype):
            yield from _arranged(spec, extents, gap)


def _packed_examples(spec: TransposeSpec) -> Iterator[Mapping[str, int]]:
    """Problems in which all axes but one are short; none where no axis is left to be taken along."""
    if len(spec.axes) < 3 or len(axes_of(spec).order) < 3 or only_moves(spec):
        return
    elements = _LARGE // spec.dtype.size
    for extents in ((elements // 63, 9, 7), (elements // 693, 11, 9, 7)):
        if len(extents) <= len(spec.axes):
            yield from _arranged(spec, extents, 0)


def _arranged(spec: TransposeSpec, extents: tuple[int, ...], gap: int) -> Iterator[Mapping[str, int]]:
    """The extents along any axes; rows of the input are a gap apart."""
    names = [str(axis) for axis in spec.operands[0].axes]
    for places in permutations(range(len(names)), min(len(extents), len(names))):
        shape = dict.fromkeys(names, 1)
        for place, extent in zip(places, extents, strict=False):
            shape[names[place]] = extent
        pitches = {o.pitch: shape[str(o.axes[-1])] + (gap if o.role == "in" else 0) for o in spec.operands}
        pitches.pop("", None)
        yield shape | pitches


def _sizes(dtype: DType) -> Iterator[tuple[int, ...]]:
    """Extents of axes: a quarter of a gigabyte, where a class does not ask for less."""
    elements = _LARGE // dtype.size
    side = 1 << (elements.bit_length() // 2)
    yield side, elements // side
    yield side - 1, elements // side - 1
    yield elements // 16, 16
    yield 512, 512
    yield 511, 509
    yield elements // 1024, 32, 32
    yield (elements,)
    yield elements // 8192, 128, 64
