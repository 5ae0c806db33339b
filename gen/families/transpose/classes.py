"""Shape classes of transposes: what a problem is like, which kernel it gets untuned, and a size that stands for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import permutations

from gen.dtypes import DType
from gen.families.base import Extents
from gen.families.config import Config
from gen.families.transpose import square
from gen.families.transpose.flat import FEW, Few, RowCopyConfig, SkinnyConfig, SmallConfig, stays
from gen.families.transpose.spec import TransposeSpec
from gen.families.transpose.swap import SwapTileConfig
from gen.families.transpose.tiled import Lanes, NaiveConfig, TiledConfig
from gen.families.transpose.vector import VectorTileConfig
from gen.families.transpose.windows import ShiftTileConfig, WindowTileConfig

COPY = "nothing moves: a copy"
RUNS = "short runs are copied"
SMALL = "small matrices"
FEW_COLS = "few columns"
FEW_ROWS = "few rows"
ALIGNED = "aligned rows"
ALIGNED_LITTLE = "aligned rows, under 4 MiB"
ODD = "odd rows"
ODD_LITTLE = "odd rows, under 4 MiB"

_SHORT_RUN = 4096  # bytes
_SMALL_MATRIX = 16384  # bytes
_LITTLE = 4 << 20  # bytes
_VECTOR = 16  # bytes

Problems = Callable[[TransposeSpec, Mapping[str, int]], Extents]
"""Gives the extents of a problem of these axes and pitches."""


def shape_class(spec: TransposeSpec, extents: Extents) -> str:
    """What a problem is like."""
    if spec.in_place:
        little, aligned = square.is_little(spec, extents), square.is_aligned(spec, extents)
        return (ALIGNED_LITTLE if little else ALIGNED) if aligned else (ODD_LITTLE if little else ODD)
    rows, cols, size = extents["rows"], extents["cols"], spec.dtype.size
    batch = [[extents[f"batch{b}{end}"] for end in ("", "_in", "_out")] for b in range(spec.batches)]
    matrices = 1
    for extent, _, _ in batch:
        matrices *= extent
    if rows * cols == 0 or stays(extents):
        return RUNS if matrices > 1 and rows * cols * size < _SHORT_RUN else COPY
    dense_in, dense_out = extents["in_pitch"] == cols, extents["out_pitch"] == rows
    small = 1 < min(rows, cols) <= max(rows, cols) <= FEW and rows * cols * size <= _SMALL_MATRIX
    if matrices > 1 and small and dense_in and dense_out and _follow(batch, rows * cols):
        return SMALL
    if cols <= FEW and dense_in:
        return FEW_COLS
    if rows <= FEW and dense_out:
        return FEW_ROWS
    steps = [extents["in_pitch"] * size, extents["out_pitch"] * spec.result.size]
    for extent, there, here in batch:
        if extent > 1:
            steps += [there * size, here * spec.result.size]
    little = rows * cols * matrices * size < _LITTLE
    if all(step % _VECTOR == 0 for step in steps):
        return ALIGNED_LITTLE if little else ALIGNED
    return ODD_LITTLE if little else ODD


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
        case "few columns" | "few rows":
            few = Few.COLS if shape_class == FEW_COLS else Few.ROWS
            return "skinny", SkinnyConfig(few=few)
        case "aligned rows":
            return "vector_tile", VectorTileConfig()
        case "aligned rows, under 4 MiB":
            return "vector_tile", VectorTileConfig(lanes=8, groups=8)
        case "odd rows":
            if size < 4:
                return "shift_tile", ShiftTileConfig(chunks=2, warps=16)
            if size == 4:
                return "window_tile", WindowTileConfig(tile_rows=128, tile_cols=64, warps=32)
            return "window_tile", WindowTileConfig(tile_rows=64, tile_cols=32, warps=16)
        case _:
            if size < 4:
                return "shift_tile", ShiftTileConfig(groups=32, warps=8, align=4)
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
    order = (ALIGNED, ODD, FEW_COLS, FEW_ROWS, ALIGNED_LITTLE, ODD_LITTLE, SMALL, COPY, RUNS)
    return {name: found[name] for name in order if name in found}


def known_class(found: str, known: Mapping[str, Extents]) -> str:
    """The class of a problem among those that stand for its spec; oddly pitched ones may be of none of them."""
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
    source = spec.operands[0]
    names = [str(axis) for axis in source.axes]
    gaps = (0, 1) if source.pitch else (0,)
    for gap in gaps:
        for extents in _sizes(spec.dtype):
            for places in permutations(range(len(names)), min(len(extents), len(names))):
                shape = dict.fromkeys(names, 1)
                for place, extent in zip(places, extents, strict=False):
                    shape[names[place]] = extent
                pitches = {o.pitch: shape[str(o.axes[-1])] + (gap if o.role == "in" else 0) for o in spec.operands}
                pitches.pop("", None)
                yield shape | pitches


def _sizes(dtype: DType) -> Iterator[tuple[int, ...]]:
    """Extents of axes: a quarter of a gigabyte, where a class does not ask for less."""
    elements = (1 << 28) // dtype.size
    side = 1 << (elements.bit_length() // 2)
    yield side, elements // side
    yield side - 1, elements // side - 1
    yield elements // 16, 16
    yield 512, 512
    yield 511, 509
    yield elements // 1024, 32, 32
    yield (elements,)
    yield elements // 8192, 128, 64
