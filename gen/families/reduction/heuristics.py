"""What a reduction gets untuned, and what tuning tries first: by shape class.

Both follow a sweep of 2026-11-22 on an NVIDIA H200, for f32 mostly (bench/reduction-h200.json): what stands first takes
least at the worst over all problems of its class that were swept, up to a tenth more than the fastest of one, and the
others are the fastest of some, there or of the public cases on an H100. Wide columns, and the largest arrays of narrow
types, were swept at a few sizes only. `python -m bench.estimates --measure --others N` times variants that stand in no
list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gen.dtypes import LoadModifier
from gen.families.config import Config
from gen.families.reduction.algorithms.columns import MOST_SHARED_BYTES, ColumnsConfig, StreamConfig, no_shared_room
from gen.families.reduction.algorithms.common import Combine
from gen.families.reduction.algorithms.flat import FlatColumnsConfig, FlatRowsConfig
from gen.families.reduction.algorithms.grid import FlagsConfig, StridedConfig
from gen.families.reduction.algorithms.rows import (
    MOST_OF_SHORT_ROW,
    BlockReduce,
    RowsConfig,
    ShortRowsConfig,
    SingleConfig,
)
from gen.families.reduction.algorithms.several_axes import MultiColumnsConfig, MultiRowsConfig
from gen.families.reduction.shapes import MOST_GROUPS, ShapeClass
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.state import state_of

Choice = tuple[str, Config]
_GROUPS = {ShapeClass.SHORT_ROWS: ((8, 4), (32, 4)), ShapeClass.ROWS: ((32, 8), (256, 4), (1024, 4))}
"""Threads of `flat_rows` that share a row, and their loads at once."""
CS, PLAIN = LoadModifier.CS, LoadModifier.DEFAULT
_FLAT_BLOCKS = (
    "flat_columns",
    FlatColumnsConfig(axes=2, threads_per_block=512, columns=512, unroll=8, combine=Combine.TICKET),
)
"""Of very many results of few elements, fast also where the fastest axis is reduced.

As bench/estimates-asked-reduction-h100.json has it, which a few other entries follow, too.
"""


def base(spec: ReductionSpec, one: ShapeClass) -> Choice:
    """The stated default: what is fast on an H200, and nearly so on an H100, for most operators and types."""
    return heuristic_configs(spec, one)[0]


def heuristic_configs(spec: ReductionSpec, one: ShapeClass) -> tuple[Choice, ...]:
    """The default, and what is faster for some problems of the class; legal for most specs."""
    size = spec.dtype.size
    match one:
        case ShapeClass.FEW:
            sums = ((128, 2, 16), (32, 2, 16), (64, 4, 16)) if state_of(spec).is_sum else ()
            return (
                _single(spec, 256, min(size, 8), 16), *(_single(spec, *of, BlockReduce.SUMS) for of in sums),
                _single(spec, 512, 2, 16),
            )  # fmt: skip
        case ShapeClass.SMALL:
            block, several = _single(spec, 1024, min(size, 8), 16), _flags(256, 2, 16, 2)
            first = (block, several) if size < 8 else (several, block)  # one block takes long over 2^18 bytes
            return (
                *first, _single(spec, 1024, 8, 16), _single(spec, 512, 4, 16), _flags(128, 2, 16, 1),
            )  # fmt: skip
        case ShapeClass.MIDDLE:
            return (
                _flags(256, 2, 16, 2), _flags(256, 4, 16, 2), _flags(512, 4, 8, 4), _flags(128, 2, 8, 2),
                _flags(256, 2, 16, 8), _flags(512, 8, 16, 1), _flags(128, 8, 16, 1), _flags(128, 4, 16, 4),
                _flags(512, 8, 8, 2),
            )  # fmt: skip
        case ShapeClass.FEW_LONG_ROWS:
            return (
                _flags(256, 4, 16, 4, CS), _flags(128, 8, 16, 8, CS), _flags(256, 8, 16, 4),
            )  # fmt: skip
        case ShapeClass.LARGE:
            return (
                _flags(512, 8, 16, 2), _flags(512, 8, 16, 2, CS), _flags(1024, 8, 16, 2), _flags(512, 4, 16, 2, CS),
                _flags(256, 8, 16, 4),
            )  # fmt: skip
        case ShapeClass.TINY_ROWS | ShapeClass.SHORT_ROWS | ShapeClass.ROWS | ShapeClass.LONG_ROWS:
            return (*_rows_of(size, one), *_flat_rows(1, _GROUPS.get(one, ())))
        case ShapeClass.TALL_COLUMNS | ShapeClass.COLUMNS | ShapeClass.SHORT_COLUMNS | ShapeClass.WIDE_COLUMNS:
            return _columns_of(spec, one)
        case ShapeClass.MULTI_ROWS | ShapeClass.MULTI_COLUMNS:
            return _several_axes(spec, one)
    return (("strided", StridedConfig()), *_flat_of_axes(), *_flat_columns(2, MOST_GROUPS))


def _several_axes(spec: ReductionSpec, one: ShapeClass) -> tuple[Choice, ...]:
    strided = (("strided", StridedConfig()), ("strided", StridedConfig(unroll=8)))
    vectors = sorted({max(vec, spec.dtype.size) for vec in (4, 8, 16)}, reverse=True)
    if one is ShapeClass.MULTI_ROWS:
        configs = (
            *(MultiRowsConfig(group=256, unroll=4, vec_bytes=vec, blocks_per_sm=8) for vec in vectors),
            *(MultiRowsConfig(group=32, unroll=4, vec_bytes=vec) for vec in vectors),
            MultiRowsConfig(group=8, unroll=2, vec_bytes=vectors[0]),
            *(MultiRowsConfig(group=256, unroll=4, vec_bytes=vectors[0], blocks_per_sm=blocks, tiles=True)
              for blocks in (8, 4)),
        )  # fmt: skip
        return _narrow_first("multi_rows", configs, (*_flat_of_axes(), _FLAT_BLOCKS, *strided))
    columns = [
        MultiColumnsConfig(columns_x=across, rows_y=down, unroll=4, vec_bytes=vec)
        for across, down in ((32, 8), (128, 1), (32, 4), (4, 16), (2, 32)) for vec in vectors
    ]  # fmt: skip
    threads = [(config, config.columns_x * config.rows_y) for config in columns]
    legal = [config for config, size in threads if no_shared_room(spec, config.vec_bytes, size) is None]
    others = (*_flat_columns(2, MOST_GROUPS), *_flat_rows(2, ((32, 8),)))
    return _narrow_first("multi_columns", legal, (*others, *strided))


def _narrow_first(
    name: str, configs: Sequence[MultiRowsConfig | MultiColumnsConfig], others: tuple[Choice, ...]
) -> tuple[Choice, ...]:
    """Base, then indices of 32 bits; those of 64 are for what these do not take."""
    base, *more = ((name, config) for config in configs)
    narrow = ((name, replace(config, index_bits=32)) for config in configs)
    return (base, *narrow, *others, *more)


def _flat_rows(axes: int, groups: tuple[tuple[int, int], ...], vec_bytes: int = 0) -> tuple[Choice, ...]:
    return tuple(
        ("flat_rows", FlatRowsConfig(axes=axes, group=group, unroll=unroll, vec_bytes=vec_bytes))
        for group, unroll in groups
    )


def _flat_of_axes() -> tuple[Choice, ...]:
    """Of two axes, which most arrays have, and some of four."""
    few = _flat_rows(2, ((8, 4), (32, 4), (256, 4), (32, 8), (256, 8), (1024, 8)))
    vectors = (choice for vec in (16, 8) for choice in _flat_rows(2, ((32, 4), (256, 4), (256, 8)), vec))
    many = _flat_rows(MOST_GROUPS, ((8, 4), (32, 4), (256, 4), (1024, 8)))
    return (*few, *vectors, *many)


def _flat_columns(*axes: int) -> tuple[Choice, ...]:
    shapes = (
        (256, 32, 8, Combine.FLAGS), (128, 32, 8, Combine.FLAGS), (128, 128, 2, Combine.FLAGS),
        (1024, 32, 8, Combine.FLAGS), (256, 32, 16, Combine.TICKET), (1024, 32, 8, Combine.TICKET),
        (512, 512, 8, Combine.TICKET), (512, 512, 8, Combine.ALONE), (128, 128, 16, Combine.ALONE),
        (128, 128, 8, Combine.ALONE), (128, 128, 4, Combine.ALONE),
    )  # fmt: skip
    return tuple(
        ("flat_columns",
         FlatColumnsConfig(axes=few, threads_per_block=threads, columns=columns, unroll=unroll, combine=combine))
        for few in axes for threads, columns, unroll, combine in shapes
    )  # fmt: skip


def _rows_of(size: int, one: ShapeClass) -> tuple[Choice, ...]:
    single = max(size, 4)
    if one is ShapeClass.TINY_ROWS:
        return (
            _rows(256, 1, 8, single), _rows(512, 1, 4, single, at_once=2), _rows(512, 1, 2, 16, at_once=2, load=CS),
            _rows(128, 4, 4, single, at_once=2, load=CS), *_short_rows(),
        )  # fmt: skip
    if one is ShapeClass.SHORT_ROWS:
        return (
            _rows(128, size, 4, 16, load=CS), _rows(256, 8, 2, 8, at_once=2, load=CS),
            _rows(256, 8, 2, 16, at_once=2, load=CS), _rows(128, 16, 8, single, load=CS),
        )  # fmt: skip
    if one is ShapeClass.ROWS:
        return (
            _rows(256, 32, 8, single), _rows(128, 32, 4, 16, load=CS), _rows(128, 128, 4, 16, load=CS),
            _rows(512, 32, 8, 8, load=CS), _rows(256, 256, 8, single),
            # Of very many rows a part of a warp each, so that fewer threads combine states. By counts, not timed.
            _rows(128, 16, 4, 16, load=CS), _rows(128, 8, 4, 16, load=CS), _rows(128, 4, 8, 16, load=CS),
        )  # fmt: skip
    return (
        _flags(256, 8, 16, 1), _rows(256, 256, 8, 16, load=CS), _rows(256, 32, 8, 16),
        _rows(512, 512, 8, single, load=CS), _rows(128, 128, 8, 16, load=CS),
    )  # fmt: skip


def _short_rows() -> Iterator[Choice]:
    """Of every length, with about as many elements at once as registers hold, and with one row."""
    for length in range(1, MOST_OF_SHORT_ROW + 1):
        for rows in sorted({1, max(rows for rows in (1, 2, 4, 8) if rows * length <= 32)}):
            for threads in (256, 128):
                yield "short_rows", ShortRowsConfig(length=length, rows_at_once=rows, threads_per_block=threads)


def _columns_of(spec: ReductionSpec, one: ShapeClass) -> tuple[Choice, ...]:
    """Vectors are as wide as is fast, narrower where a thread's columns would take more than its registers hold."""
    size, per_column = spec.dtype.size, state_of(spec).bytes
    single = max(size, 4)
    narrow = max((v for v in (4, 8, 16) if v >= size and v // size * per_column <= 64), default=single)
    middle = max(min(narrow, 8), size)
    stream = (
        "stream",
        StreamConfig(
            threads_per_block=_room_for(narrow // size * per_column), unroll=4, vec_bytes=narrow, blocks_per_sm=2,
            combine=Combine.FLAGS,
        ),
    )  # fmt: skip
    few = _columns(16, _room_for(single // size * per_column) // 16, 8, single, 2)
    short = (
        _columns(128, 1, 4, narrow, 8), _columns(128, 1, 8, narrow, 4), _columns(128, 1, 4, middle, 8),
        _columns(128, 1, 8, middle, 8, CS),
    )  # fmt: skip
    wide = (
        _columns(32, min(_room_for(middle // size * per_column) // 32, 8), 8, middle, 4),
        _columns(32, 16, 8, single, 4),
    )
    others = (stream, few, short[0], wide[0], _columns(32, 8, 4, single, 8), _columns(128, 1, 4, single, 8))
    first: Mapping[ShapeClass, tuple[Choice, ...]] = {
        ShapeClass.TALL_COLUMNS: (stream,),
        ShapeClass.COLUMNS: (few,),
        ShapeClass.SHORT_COLUMNS: short,  # threads below each other would wait for those that have rows
        ShapeClass.WIDE_COLUMNS: wide,
    }
    return tuple(dict.fromkeys((*first[one], *others, *_flat_columns(1))))


def _room_for(state_bytes: int) -> int:
    """Threads of a block whose states shared memory holds, of so many bytes a thread."""
    if state_bytes <= 64:
        return 512
    return 256 if 256 * state_bytes <= MOST_SHARED_BYTES else 128


def _single(
    spec: ReductionSpec, threads: int, unroll: int, vec: int, block_reduce: BlockReduce = BlockReduce.SHARED
) -> Choice:  # fmt: skip
    block_reduce = block_reduce if state_of(spec).light else BlockReduce.SHUFFLES
    vec = max(vec, spec.dtype.size)
    return "single", SingleConfig(threads_per_block=threads, unroll=unroll, vec_bytes=vec, block_reduce=block_reduce)


def _flags(threads: int, unroll: int, vec: int, per_sm: int, load: LoadModifier = PLAIN) -> Choice:
    return "flags", FlagsConfig(
        threads_per_block=threads, unroll=unroll, vec_bytes=vec, blocks_per_sm=per_sm, load_modifier=load
    )


def _rows(
    threads: int, group: int, unroll: int, vec: int, *, at_once: int = 1, load: LoadModifier = PLAIN
) -> Choice:  # fmt: skip
    return "rows", RowsConfig(
        threads_per_block=threads, group=group, rows_at_once=at_once, unroll=unroll, vec_bytes=vec, load_modifier=load
    )


def _columns(
    across: int, down: int, unroll: int, vec: int, per_sm: int, load: LoadModifier = PLAIN
) -> Choice:  # fmt: skip
    return "columns", ColumnsConfig(
        columns_x=across, rows_y=down, unroll=unroll, vec_bytes=vec, blocks_per_sm=per_sm, load_modifier=load,
        combine=Combine.FLAGS,
    )  # fmt: skip
