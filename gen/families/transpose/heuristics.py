"""Which variants of a transpose are often fast: base, and what tuning and untuned devices try first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from gen.dtypes import LoadModifier, StoreModifier
from gen.families.config import Config
from gen.families.transpose.algorithms.common import Order
from gen.families.transpose.algorithms.copies import FlatCopyConfig, RowCopyConfig
from gen.families.transpose.algorithms.gather import GatherConfig
from gen.families.transpose.algorithms.grouped_tile import GroupedTileConfig
from gen.families.transpose.algorithms.in_place import SwapTileConfig
from gen.families.transpose.algorithms.packed import Reads, base_config
from gen.families.transpose.algorithms.shift_box import ShiftBoxConfig
from gen.families.transpose.algorithms.skinny import Few, InterleaveConfig, SkinnyConfig, SmallConfig, SquaresConfig
from gen.families.transpose.algorithms.tiled import Lanes, NaiveConfig, TiledConfig
from gen.families.transpose.algorithms.vectors import ShiftTileConfig, Spread, VectorTileConfig, WindowTileConfig
from gen.families.transpose.algorithms.word_tile import WordTileConfig
from gen.families.transpose.literature import MoveSpec
from gen.families.transpose.shapes import SMALL_MATRIX_BYTES, ShapeClass
from gen.families.transpose.spec import TransposeSpec

_LAST = LoadModifier.EVICT_LAST
_STAYS = StoreModifier.EVICT_LAST
_COUNTS = (3, 8, 16, 4, 2)  # of few rows or columns
_BEFORE_OTHERS = 4  # of a class, which dispatch weighs however many take any sizes
_MANY_AXES = 4  # numbers of axes, of which not all have a candidate


def base(spec: TransposeSpec, shape_class: ShapeClass) -> tuple[str, Config]:
    """What was fast on an H100: for devices that nothing was tuned on."""
    size = spec.dtype.size
    if spec.in_place:
        return "swap_tile", _swapping(spec, shape_class)
    if spec.values is not None:
        return _changing(spec, shape_class)
    match shape_class:
        case ShapeClass.COPY:
            return "row_copy", RowCopyConfig(lanes=256, unroll=4)
        case ShapeClass.RUNS:
            return "row_copy", RowCopyConfig(lanes=16, unroll=2)
        case ShapeClass.SMALL:
            return "small", SmallConfig(piece=SMALL_MATRIX_BYTES)
        case ShapeClass.PACKED:
            return "packed", base_config(spec)
        case ShapeClass.FEW_COLS | ShapeClass.FEW_ROWS:
            few = Few.COLS if shape_class == ShapeClass.FEW_COLS else Few.ROWS
            return "skinny", SkinnyConfig(few=few)
        case ShapeClass.ALIGNED:
            return "vector_tile", VectorTileConfig()
        case ShapeClass.ALIGNED_LITTLE:
            return "vector_tile", VectorTileConfig(lanes=8, groups=8)
        case ShapeClass.ODD:
            if size < 4:
                groups = 32 if size == 1 else 64
                return "shift_tile", ShiftTileConfig(groups=groups, warps=8, block_order=Order.ROW)
            if size == 4:
                return "window_tile", WindowTileConfig(tile_rows=64, tile_cols=64)
            return "window_tile", WindowTileConfig(tile_rows=64, tile_cols=32, warps=16)
        case _:
            if size < 4:
                groups = 16 if size == 1 else 32
                return "shift_tile", ShiftTileConfig(groups=groups, warps=16, align=4, block_order=Order.ROW)
            return "window_tile", WindowTileConfig(tile_rows=64, tile_cols=32, warps=8)


def base_of_moves(spec: MoveSpec) -> tuple[str, Config]:
    """Staged in shared memory, both sides coalesced."""
    return "tiled", TiledConfig(tile_dim=spec.tile or 32)


def _swapping(spec: TransposeSpec, shape_class: ShapeClass) -> SwapTileConfig:
    """Tiles of 8 KiB or so, of whole vectors where rows are aligned to them."""
    size = spec.dtype.size
    if shape_class in (ShapeClass.ALIGNED, ShapeClass.ALIGNED_LITTLE):
        return SwapTileConfig(vec_bytes=16, lanes=8 if size < 4 else 16)
    return SwapTileConfig(vec_bytes=size, lanes=32, strips=4 if size < 8 else 8)


def _changing(spec: TransposeSpec, shape_class: ShapeClass) -> tuple[str, Config]:
    """Where elements become others on their way."""
    size = max(spec.dtype.size, spec.result.size)
    match shape_class:
        case ShapeClass.COPY:
            return "row_copy", RowCopyConfig(lanes=256, unroll=4)
        case ShapeClass.RUNS:
            return "row_copy", RowCopyConfig(lanes=16, unroll=2)
        case ShapeClass.FEW_COLS | ShapeClass.FEW_ROWS:
            order = Lanes.COL if shape_class == ShapeClass.FEW_COLS else Lanes.ROW
            return "naive", NaiveConfig(order=order, block_x=64, block_y=4, unroll=4)
        case ShapeClass.SMALL:
            return "tiled", TiledConfig()
        case ShapeClass.ALIGNED | ShapeClass.ALIGNED_LITTLE if spec.dtype.size == spec.result.size:
            lanes = 16 if shape_class == ShapeClass.ALIGNED else 8
            return "vector_tile", VectorTileConfig(lanes=lanes, groups=lanes)
        case ShapeClass.ALIGNED | ShapeClass.ODD if size <= 4:
            return "window_tile", WindowTileConfig(tile_rows=128, tile_cols=64, warps=32)
        case _:
            return "window_tile", WindowTileConfig(tile_rows=64, tile_cols=32, warps=8)


def heuristic_configs(spec: TransposeSpec, shape_class: ShapeClass) -> Iterator[tuple[str, Config]]:
    """What is made for the sizes of a class, base, and what was fast on an H100 or an H200 at one of the public sizes.

    Some is illegal for some elements, and what is made for some sizes takes no others.
    """
    moves = not spec.in_place and spec.values is None
    if moves:
        yield from _made_for(spec, shape_class)
    yield base(spec, shape_class)
    if not moves:
        return
    found = {
        ShapeClass.COPY: _copies,
        ShapeClass.RUNS: _runs,
        ShapeClass.SMALL: _small,
        ShapeClass.FEW_ROWS: _few_rows,
        ShapeClass.FEW_COLS: _few_cols,
        ShapeClass.ALIGNED: _aligned,
        ShapeClass.ALIGNED_LITTLE: _little,
        ShapeClass.ODD: _odd,
        ShapeClass.ODD_LITTLE: _odd_little,
    }.get(shape_class)
    of_class = iter(()) if found is None else found()
    yield from islice(of_class, _BEFORE_OTHERS)
    yield from _anywhere(spec)
    if shape_class in (ShapeClass.FEW_ROWS, ShapeClass.FEW_COLS):
        yield from _not_so_few()
    yield from of_class


def _made_for(spec: TransposeSpec, shape_class: ShapeClass) -> Iterator[tuple[str, Config]]:
    """What goes before base where it takes the sizes, few rows as its text says, whole squares or whole vectors."""
    if shape_class in (ShapeClass.FEW_COLS, ShapeClass.FEW_ROWS):
        few = Few.COLS if shape_class == ShapeClass.FEW_COLS else Few.ROWS
        for count in _COUNTS:
            yield "interleave", InterleaveConfig(few=few, count=count, store_modifier=_STAYS)
        lanes, groups = (8, 16) if few is Few.COLS else (16, 8)
        yield "vector_tile", VectorTileConfig(lanes=lanes, groups=groups, store_modifier=_STAYS)
    elif shape_class == ShapeClass.PACKED:
        yield from _boxes(spec)
    elif shape_class == ShapeClass.SMALL:
        yield "squares", SquaresConfig(threads_per_block=128, store_modifier=_STAYS)
    elif shape_class == ShapeClass.RUNS:
        for even in (True, False):
            yield "flat_copy", FlatCopyConfig(threads_per_block=256, unroll=2, even=even)


def _anywhere(spec: TransposeSpec) -> Iterator[tuple[str, Config]]:
    """What takes any sizes: elements one by one, or written by vectors, and boxes."""
    yield "gather", GatherConfig()
    wide = 16 if spec.dtype.size >= 4 else 8
    for vec_bytes, unroll in ((wide, 1), (wide, 2), (wide // 2, 2)):
        yield "gather", GatherConfig(unroll=unroll, vec_bytes=vec_bytes)
    if spec.dtype.size == 2:
        yield "gather", GatherConfig(threads_per_block=128, unroll=2, vec_bytes=16)
    yield "gather", GatherConfig(unroll=4)
    yield from _boxes(spec)


def _boxes(spec: TransposeSpec) -> Iterator[tuple[str, Config]]:
    """Tiles and boxes of no more axes than a problem has once neighbours that stay neighbours are one.

    Of elements smaller than words first those that are turned by squares; of bytes then those that are read by words.
    """
    numbers = range(2, len(spec.axes) + 1)
    tried = numbers if len(numbers) < _MANY_AXES else (*numbers[1:3], numbers[-1])
    for axes in tried:
        for config in _tiles_of_groups(spec.dtype.size):
            yield "grouped_tile", replace(config, axes=axes, index_bits=32)
    if spec.dtype.size < 4:
        for axes in tried:
            for words in _word_tiles(spec.dtype.size, axes):
                yield "word_tile", words
        for axes in tried:
            yield "shift_box", ShiftBoxConfig(axes=axes, index_bits=32)
    of_bytes = (Reads.WORDS,) if spec.dtype.size == 1 else ()
    for reads in (*of_bytes, Reads.SINGLY):
        for axes in tried:
            yield "packed", replace(base_config(spec), axes=axes, reads=reads, index_bits=32)


def _tiles_of_groups(size: int) -> Iterator[GroupedTileConfig]:
    """By elements, in tiles of 4 to 16 KiB, then by vectors: bench/estimates-groups-h200.json."""
    shapes = {
        1: ((32, 128, 8), (64, 64, 16)),
        2: ((32, 64, 8), (64, 32, 8)),
        4: ((32, 128, 8), (32, 64, 8), (32, 32, 4), (8, 128, 4), (32, 16, 4)),
        8: ((32, 64, 8), (64, 16, 4), (32, 32, 4)),
        16: ((16, 16, 1),),
    }[size]
    for across, down, unroll in shapes:
        yield GroupedTileConfig(vec_bytes=size, vectors_across=across, vectors_down=down, unroll=unroll)
    if size == 2:
        yield GroupedTileConfig(vectors_across=8)
        eight = GroupedTileConfig(vec_bytes=8, vectors_across=32, vectors_down=32, unroll=4)
        yield replace(eight, block_order=Order.ROW)


def _word_tiles(size: int, axes: int) -> Iterator[WordTileConfig]:
    """Tiles of 32 and 16 KiB, and for few columns higher ones: bench/estimates-words-h200.json."""
    yield WordTileConfig(axes=axes, row_words=40 if size == 1 else 120)
    yield WordTileConfig(axes=axes, tile_words=4096, threads_per_block=128)
    if axes == 2:
        yield WordTileConfig(axes=axes, row_words=120, tile_words=4096, threads_per_block=128)


def _copies() -> Iterator[tuple[str, Config]]:
    for unroll in (1, 2):
        yield "row_copy", RowCopyConfig(lanes=256, unroll=unroll)


def _runs() -> Iterator[tuple[str, Config]]:
    for even in (True, False):
        for threads, unroll in ((256, 4), (128, 4), (256, 2), (128, 2), (256, 1), (512, 1)):
            yield "flat_copy", FlatCopyConfig(threads_per_block=threads, unroll=unroll, even=even)
        for threads, unroll in ((128, 4), (256, 2), (128, 2), (512, 2)):
            streamed = FlatCopyConfig(threads_per_block=threads, unroll=unroll, even=even)
            yield "flat_copy", replace(streamed, store_modifier=StoreModifier.CS)
    yield "row_copy", RowCopyConfig(lanes=4, unroll=2)


def _small() -> Iterator[tuple[str, Config]]:
    for threads in (128, 256, 64):
        made = SquaresConfig(threads_per_block=threads)
        yield "squares", replace(made, store_modifier=_STAYS)
        yield "squares", made
        yield "squares", replace(made, load_modifier=_LAST)
    yield "small", SmallConfig(piece=8192, threads_per_block=128)
    for load in (LoadModifier.LDG, _LAST):
        yield "vector_tile", VectorTileConfig(lanes=8, groups=8, load_modifier=load)
    for order in (Order.COL, Order.ROW):
        for load, store in ((LoadModifier.LDG, StoreModifier.CS), (LoadModifier.LDG, _STAYS), (_LAST, _STAYS)):
            eight = VectorTileConfig(vec_bytes=8, block_order=order, load_modifier=load)
            yield "vector_tile", replace(eight, store_modifier=store)


def _not_so_few() -> Iterator[tuple[str, Config]]:
    """Tiles of odd rows: where there are dozens of the few, and they fill most of a tile."""
    for tile_rows, tile_cols in ((128, 64), (64, 64), (64, 32), (64, 128)):
        yield "window_tile", WindowTileConfig(tile_rows=tile_rows, tile_cols=tile_cols, warps=16)
    for order in (Order.ROW, Order.COL):
        yield "shift_tile", ShiftTileConfig(groups=32, warps=8, align=4, block_order=order)


def _few_rows() -> Iterator[tuple[str, Config]]:
    yield from _interleaved(Few.ROWS)
    yield "vector_tile", VectorTileConfig(lanes=16, groups=8, load_modifier=_LAST, store_modifier=_STAYS)
    yield "skinny", SkinnyConfig(few=Few.ROWS, piece=4096, threads_per_block=128)
    yield "skinny", SkinnyConfig(few=Few.ROWS, piece=8192, threads_per_block=128)


def _few_cols() -> Iterator[tuple[str, Config]]:
    for unroll in (8, 4):
        yield "naive", NaiveConfig(order=Lanes.COL, block_x=32, block_y=4, unroll=unroll)
    yield from _interleaved(Few.COLS)
    for order in (Order.COL, Order.ROW):
        for load in (_LAST, LoadModifier.LDG):
            made = VectorTileConfig(lanes=8, groups=16, block_order=order, load_modifier=load)
            yield "vector_tile", replace(made, store_modifier=_STAYS)
            yield "vector_tile", made
    for vec_bytes, lanes, groups in ((8, 8, 32), (16, 16, 16)):
        made = VectorTileConfig(vec_bytes=vec_bytes, lanes=lanes, groups=groups, load_modifier=_LAST)
        yield "vector_tile", replace(made, store_modifier=_STAYS)
        yield "vector_tile", made
    yield "skinny", SkinnyConfig(piece=8192, threads_per_block=128, vec_bytes=16)


def _interleaved(few: Few) -> Iterator[tuple[str, Config]]:
    """Of any number of them; those that a problem does not have are left out when it is known."""
    for count in _COUNTS:
        made = InterleaveConfig(few=few, count=count)
        for threads in (128, 256, 64):
            sized = replace(made, threads_per_block=threads)
            yield "interleave", replace(sized, load_modifier=_LAST, store_modifier=_STAYS)
            yield "interleave", replace(sized, store_modifier=_STAYS)
            yield "interleave", replace(sized, load_modifier=_LAST)
            yield "interleave", sized
            yield "interleave", replace(sized, store_modifier=StoreModifier.CS)


def _aligned() -> Iterator[tuple[str, Config]]:
    for order in (Order.COL, Order.ROW):
        for load in (_LAST, LoadModifier.LDG):
            made = VectorTileConfig(block_order=order, load_modifier=load)
            for lanes, groups in ((16, 16), (16, 32), (32, 16)):
                yield "vector_tile", replace(made, lanes=lanes, groups=groups, store_modifier=_STAYS)
                yield "vector_tile", replace(made, lanes=lanes, groups=groups)
    for vec_bytes, lanes, groups in ((8, 16, 16), (16, 8, 8), (8, 32, 16), (16, 8, 16), (8, 32, 32), (16, 16, 8)):
        made = VectorTileConfig(vec_bytes=vec_bytes, lanes=lanes, groups=groups)
        yield "vector_tile", made
        yield "vector_tile", replace(made, block_order=Order.ROW)
        for order in (Order.COL, Order.ROW):
            for load in (_LAST, LoadModifier.LDG):
                yield "vector_tile", replace(made, block_order=order, load_modifier=load, store_modifier=_STAYS)
    four = VectorTileConfig(vec_bytes=4, lanes=32, groups=16, load_modifier=_LAST)
    yield "vector_tile", replace(four, store_modifier=StoreModifier.CS)
    for vec_bytes, lanes, groups in ((8, 16, 16), (16, 8, 16), (16, 32, 8), (16, 16, 8), (4, 16, 16)):
        yield "vector_tile", VectorTileConfig(vec_bytes=vec_bytes, lanes=lanes, groups=groups, index_bits=32)
    for tile_rows, tile_cols, warps in ((64, 64, 16), (64, 32, 16), (128, 32, 32), (128, 32, 16), (64, 64, 32)):
        for align in (0, 32):
            yield "window_tile", WindowTileConfig(tile_rows=tile_rows, tile_cols=tile_cols, warps=warps, align=align)
    yield "window_tile", WindowTileConfig(tile_rows=64, tile_cols=64, warps=16, align=0, store_modifier=_STAYS)


def _little() -> Iterator[tuple[str, Config]]:
    yield "tiled", TiledConfig(tile_dim=16, block_rows=16, unroll=4, dynamic=True)
    for index_bits in (32, 64):
        for vec_bytes, lanes, groups in (
            (8, 8, 8), (4, 16, 16), (8, 16, 8), (8, 16, 16), (16, 8, 8), (16, 8, 16), (4, 16, 8), (4, 8, 8),
            (4, 8, 32), (8, 32, 16),
        ):  # fmt: skip
            made = VectorTileConfig(vec_bytes=vec_bytes, lanes=lanes, groups=groups, index_bits=index_bits)
            yield "vector_tile", made
            yield "vector_tile", replace(made, block_order=Order.ROW)
    of_four, wider = ((16, 16), (32, 16), (8, 32), (16, 32)), ((8, 8, 16), (8, 32, 16), (16, 16, 8))
    for vec_bytes, lanes, groups in (*((4, *sides) for sides in of_four), *wider):
        made = VectorTileConfig(vec_bytes=vec_bytes, lanes=lanes, groups=groups, index_bits=32)
        yield "vector_tile", replace(made, spread=Spread.PADDING)
    yield "tiled", TiledConfig(tile_dim=32, block_rows=16, unroll=4, tile_rows=16, dynamic=True)


def _odd() -> Iterator[tuple[str, Config]]:
    windows = [
        WindowTileConfig(tile_rows=tile_rows, tile_cols=tile_cols, warps=16)
        for tile_rows, tile_cols in ((64, 64), (64, 128), (128, 64), (64, 32))
    ]
    for window in windows:
        yield "window_tile", replace(window, store_modifier=_STAYS)
    for window in windows:
        yield "window_tile", replace(window, warps=32, store_modifier=_STAYS)
        yield "window_tile", window
    made = ShiftTileConfig(block_order=Order.ROW)
    for groups, chunks, warps in ((32, 1, 8), (64, 1, 8), (64, 1, 16), (32, 2, 8), (64, 2, 16), (64, 2, 8)):
        yield "shift_tile", replace(made, groups=groups, chunks=chunks, warps=warps)
    for warps in (8, 16):
        yield "shift_tile", replace(made, groups=32, warps=warps, align=4)
    for chunks in (1, 2):
        yield "shift_tile", ShiftTileConfig(groups=64, chunks=chunks, warps=16)


def _odd_little() -> Iterator[tuple[str, Config]]:
    yield from _little()
    for groups, warps in ((16, 16), (32, 16), (16, 8), (32, 8), (32, 32)):
        for order in (Order.ROW, Order.COL):
            yield "shift_tile", ShiftTileConfig(groups=groups, warps=warps, align=4, block_order=order)
    yield "tiled", TiledConfig(tile_dim=16, block_rows=16, padding=2, unroll=2, dynamic=True)
