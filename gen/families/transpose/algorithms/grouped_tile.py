"""Permutations whose fastest axes are short: tiles of rows and columns that each run along several axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod

from typing_extensions import override

from gen.dtypes import I32, I64, U32, U64, DType, StoreModifier
from gen.families.base import STATIC_SHARED_BYTES, Extents, Launch, Limits, Plan
from gen.families.config import Config, choice, store_modifier, tunable
from gen.families.estimates import COLD_SECONDS, SECTOR_BYTES, Demand, Least, resident_blocks
from gen.families.expr import ONE, Expr, also_in_cpp, made_once, once_a_problem, size
from gen.families.plans import beyond_block
from gen.families.transpose.algorithms.common import (
    MAX_DIVIDEND,
    Axis,
    MatrixAlgorithm,
    Order,
    inverse_of,
    known,
    only_gaps_after_rows,
    only_turns,
    turned,
)
from gen.families.transpose.algorithms.demands import PROLOGUE, Span, demand_of, memory, taken, touched
from gen.families.transpose.algorithms.packed import SIZES_IN_CPP, axes_in_output, ceil_div, strides_of
from gen.families.transpose.spec import MAX_AXES, TransposeSpec

_WIDEST = 16  # elements of a vector at most
_OF_AXIS = 14  # instructions of a division and of the steps along an axis
_SERIAL = 30  # of them that wait for each other
_CACHED_BYTES = 32 << 20  # of an array whose sectors the second-level cache joins
_SHORT_BYTES, _SHORT_COST = 256, 1.25  # of runs, and what memory takes more for shorter ones


def groups_for(spec: TransposeSpec, extents: Extents) -> Extents:
    """The axes of a problem in the groups of `grouped_tile`, by name; no rows and no columns where it has no groups.

    `group0_extent`, `group0_in` and `group0_out` are those of the first axis: the axes of rows come first.
    `group_grain` divides the extents of the fastest axes and all strides but those of 1: vectors of as many elements
    begin and end where rows do. It is 1 where elements of the fastest axes have gaps.
    """
    numbers = group_sizes(*strides_of(spec, extents))
    return dict(zip(_names(len(spec.axes)), numbers, strict=True))


@lru_cache(maxsize=16)
def _names(axes: int) -> tuple[str, ...]:
    """The names of what `group_sizes` gives."""
    of_all = ("group_row_axes", "group_col_axes", "group_axes", "group_rows", "group_cols", "group_others")
    of_axes = (f"group{place}_{what}" for place in range(axes) for what in ("extent", "in", "out"))
    return (*of_all, "group_grain", *of_axes)


@also_in_cpp(SIZES_IN_CPP)
def group_sizes(*numbers: int) -> tuple[int, ...]:
    """The numbers that `groups_for` names, from extents, strides of the input, strides of the output."""
    return _group_sizes(axes_in_output(numbers), len(numbers) // 3)


@lru_cache(maxsize=256)
def _group_sizes(axes: tuple[Axis, ...], most: int) -> tuple[int, ...]:
    by_output, by_input = list(axes), sorted(axes, key=lambda axis: axis.in_stride)
    if by_output[0] is by_input[0]:
        return (0,) * (7 + 3 * most)
    rows, cols = [by_output[0]], [by_input[0]]
    while True:
        # The shorter group takes the next axis of its array, unless the other one has it.
        next_row, next_col = _next(by_output, rows, cols), _next(by_input, cols, rows)
        if next_row is None and next_col is None:
            break
        shorter_rows = prod(axis.extent for axis in rows) <= prod(axis.extent for axis in cols)
        if next_row is not None and (next_col is None or shorter_rows):
            rows.append(next_row)
        elif next_col is not None:
            cols.append(next_col)
    others = [axis for axis in by_output if axis not in rows and axis not in cols]
    steps = [axis.in_stride for axis in axes if axis is not cols[0]]
    steps += [axis.out_stride for axis in axes if axis is not rows[0]]
    found = [len(rows), len(cols), len(axes)]
    found += [prod(axis.extent for axis in group) for group in (rows, cols, others)]
    # A last axis of one element may leave a gap after every element of the next one: then there are no vectors.
    has_runs = cols[0].in_stride == rows[0].out_stride == 1
    found.append(gcd(_WIDEST, rows[0].extent, cols[0].extent, *steps) if has_runs else 1)
    for axis in (*rows, *cols, *others):
        found += [axis.extent, axis.in_stride, axis.out_stride]
    return (*found, *(1, 0, 0) * (most - len(axes)))


def _next(array: list[Axis], own: list[Axis], other: list[Axis]) -> Axis | None:
    """The axis of an array that follows those of a group; None if there is none, or the other group has it."""
    following = array[len(own)] if len(own) < len(array) else None
    return None if following in other else following


@dataclass(frozen=True, kw_only=True)
class GroupedTileConfig(Config):
    """How `grouped_tile` cuts and moves its tiles."""

    axes: int = tunable(
        "a", tuple(range(2, MAX_AXES + 1)), base=2, help="most axes, after axes that stay adjacent are merged"
    )
    vec_bytes: int = tunable("v", (1, 2, 4, 8, 16), base=16, help="bytes per vector load and store")
    vectors_across: int = tunable("x", (8, 16, 32, 64, 128), base=16, help="width of a tile, in vectors")
    vectors_down: int = tunable("y", (8, 16, 32, 64, 128), base=16, help="height of a tile, in vectors of the output")
    unroll: int = tunable("u", (1, 2, 4, 8, 16), base=1, help="squares per thread, each a vector wide and high")
    block_order: Order = tunable(
        "o",
        (Order.COL, Order.ROW),
        base=Order.COL,
        help="order of blocks: along rows of the input (row) or the output (col)",
    )
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)
    index_bits: int = choice("i", (64, 32), help="bits of element indices; 32: for small arrays only")

    @property
    def threads_per_block(self) -> int:
        """Threads that share the squares of a tile."""
        return self.vectors_across * self.vectors_down // self.unroll

    def illegal(self) -> str | None:
        """Threads have as many squares each, and a block has so many threads at most."""
        if self.unroll > min(self.vectors_across, self.vectors_down):
            return (
                f"unroll {self.unroll} is too large for a tile of {self.vectors_across} x {self.vectors_down} squares"
            )
        return beyond_block(self.threads_per_block)

    def unsearched(self) -> str | None:
        """Blocks of few threads leave multiprocessors empty."""
        found = self.threads_per_block
        return None if 128 <= found <= 512 else f"a block has {found} threads; tuning tries 128 to 512"


class GroupedTile(MatrixAlgorithm[TransposeSpec, GroupedTileConfig]):
    """Tiles whose rows and columns run along several axes."""

    name = "grouped_tile"
    template = "transpose/grouped_tile.cu.jinja"
    summary = (
        "The fastest axes of the output are taken as one, along which the rows of a tile lie, and so are the fastest "
        "axes of the input for its columns: both arrays have long runs, however short the axes are. The offsets of "
        "rows and columns are computed once for a tile. Elements are read, transposed and written by vectors where "
        "these fit."
    )
    config = GroupedTileConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: GroupedTileConfig) -> str | None:
        """Elements are moved as they are, to another array, and a vector must hold one."""
        if len(spec.axes) < 2:
            return "it is for arrays of two axes or more"
        if config.axes > len(spec.axes):
            return f"it is for {config.axes} axes, and the array has {len(spec.axes)}"
        if config.vec_bytes < spec.dtype.size:
            return f"vec_bytes {config.vec_bytes} is smaller than one {spec.dtype.name}"
        if spec.dtype.size < config.vec_bytes < 4:
            return f"a vector of {config.vec_bytes} bytes is smaller than a 4-byte word"
        needed = self.staged_bytes(spec, config)
        if needed > STATIC_SHARED_BYTES:
            return f"the tile needs {needed} bytes; static shared memory has at most {STATIC_SHARED_BYTES}"
        return only_gaps_after_rows(spec) or only_turns(spec)

    def unsearched(self, spec: TransposeSpec, config: GroupedTileConfig) -> str | None:
        """What a thread has under way fits in registers, and hides the time that memory takes."""
        nbytes = config.unroll * self.elements(spec, config) * config.vec_bytes
        return None if 4 <= nbytes <= 128 else f"a thread has {nbytes} bytes in flight; tuning tries 4 to 128"

    def elements(self, spec: TransposeSpec, config: GroupedTileConfig) -> int:
        """Of a vector."""
        return config.vec_bytes // spec.dtype.size

    def tile(self, spec: TransposeSpec, config: GroupedTileConfig) -> tuple[int, int]:
        """Rows and columns of a tile."""
        per = self.elements(spec, config)
        return config.vectors_down * per, config.vectors_across * per

    def unsupported_extents(
        self, spec: TransposeSpec, config: GroupedTileConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """There must be two groups of axes; rows, columns and tiles are numbered, and found, by their bits."""
        if extents["group_cols"] == 0:
            return "the fastest axes of input and output are the same, or the array is empty"
        if extents["group_axes"] > config.axes:
            return f"the array has {extents['group_axes']} axes after merging; it supports at most {config.axes}"
        most = max(self.tiles(spec, config).at(extents), extents["group_rows"], extents["group_cols"])
        if most > MAX_DIVIDEND:
            return f"there are {most} rows, columns or tiles; it supports at most {MAX_DIVIDEND}"
        if config.index_bits == 32:
            for furthest in _furthest(spec, extents):
                if furthest >= 2**32:
                    return f"an element's index may be {furthest}; with 32 bits it is {2**32 - 1} at most"
        return None

    @made_once
    def tiles(self, spec: TransposeSpec, config: GroupedTileConfig) -> Expr:
        """How many there are."""
        down, across = self._tiles_of_group(spec, config)
        return down * across * size("group_others")

    @made_once
    def _tiles_of_group(self, spec: TransposeSpec, config: GroupedTileConfig) -> tuple[Expr, Expr]:
        """Tiles down and across, of the rows and the columns that belong to one place of the other axes."""
        high, wide = self.tile(spec, config)
        return size("group_rows").ceil_div(high), size("group_cols").ceil_div(wide)

    def edge_cases(self, spec: TransposeSpec, config: GroupedTileConfig) -> Iterator[Extents]:
        """Last tiles of 1, all but 1 and all of their rows, and of their columns; of whole vectors, and between them.

        Along two axes, and along all that it takes: rows and columns that begin in the midst of an axis.
        """
        per, (high, wide) = self.elements(spec, config), self.tile(spec, config)
        several = config.axes > 2
        yield turned(spec, high + 1, wide + 1, 2 if several else 1)
        yield turned(spec, high + per, 2 * wide - per, 2 if several else 1)
        yield turned(spec, 2 * high, wide + per, 3 if several else 1, in_gap=16, out_gap=16)
        yield turned(spec, 2 * high - 1, wide, in_gap=1, out_gap=3)
        if several:
            # The last axis that changes its place, the output's fastest one before those that stay last, and others.
            last = max(axis for axis, source in enumerate(spec.axes) if axis != source)
            others = [axis for axis in reversed(range(last)) if axis != spec.axes[last]]
            axes = sorted((last, spec.axes[last], *others[: config.axes - 2]))
            for of_vectors in (True, False):
                extents = [3 + place % 3 for place in range(len(axes))]
                for end in (0, -1):
                    extents[end] = extents[end] * per if of_vectors else high // 4 + 3
                yield known(spec, dict(zip(axes, extents, strict=True)), 0, 0)

    @override
    def inputs(self, spec: TransposeSpec, config: GroupedTileConfig) -> Mapping[str, object]:
        return {}

    @override
    def plan(self, spec: TransposeSpec, config: GroupedTileConfig) -> Plan:
        down, across = self._tiles_of_group(spec, config)
        given: list[str | tuple[DType, Expr]] = ["in", "out"]
        for place in range(config.axes):
            extent, there, here = (size(f"group{place}_{what}") for what in ("extent", "in", "out"))
            given += [(U32, extent), (U64, inverse_of(extent)), (I64, there), (I64, here)]
        given += [(I32, size("group_row_axes")), (I32, size("group_col_axes"))]
        given += [(U32, size("group_rows")), (U32, size("group_cols"))]
        per = self.elements(spec, config)
        if per > 1:
            given.append((I32, (ONE - (size("group_grain") % per).at_most(1)).called("whole")))
        for count in (down, across):
            given += [(U32, count), (U64, inverse_of(count))]
        launch = Launch(
            grid=(self.tiles(spec, config), ONE, ONE), block=(config.threads_per_block, 1, 1), arguments=tuple(given)
        )
        return Plan((launch,))

    @override
    def slow_path_reason(
        self, spec: TransposeSpec, config: GroupedTileConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        per = self.elements(spec, config)
        if per > 1 and extents["group_grain"] % per:
            return (
                f"its vectors hold {per} elements, and some axis or step is a multiple of {extents['group_grain']} only"
            )
        if per > 1 and alignment < config.vec_bytes:
            return f"addresses are multiples of {alignment} bytes, and its vectors have {config.vec_bytes}"
        return None

    @override
    def demand(
        self, spec: TransposeSpec, config: GroupedTileConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        nbytes, per, threads = spec.dtype.size, self.elements(spec, config), config.threads_per_block
        high, wide = self.tile(spec, config)
        count = self.tiles(spec, config).at(extents)
        rows, cols, others = extents["group_rows"], extents["group_cols"], extents["group_others"]
        inside = rows * cols * others / max(count * high * wide, 1)
        share = min(inside * high * wide / max(min(high, rows) * min(wide, cols), 1), 1.0)
        if rows * cols * others * nbytes > _CACHED_BYTES and min(high, wide) * nbytes < _SHORT_BYTES:
            share *= _SHORT_COST
        by_vectors = self.slow_path_reason(spec, config, extents, alignment, limits) is None
        of_thread = self._of_thread(spec, config)[not by_vectors]
        if nbytes < 4:  # tiles that lie outside in part ask of each element whether it is there
            of_thread *= 2 - (rows // high * high) * (cols // wide * wide) / max(rows * cols, 1)
        read, written = sectors_of_groups(spec, extents, high, wide)
        of_places = ceil_div(high + wide, threads) * (_OF_AXIS * config.axes + 12)
        return demand_of(
            spec,
            extents,
            blocks=count,
            threads_per_block=threads,
            read=share * read,
            written=share * written,
            in_flight=inside * config.unroll * per * per * nbytes if by_vectors else 4 * inside * nbytes,
            rounds=1.0 if by_vectors else config.unroll * per * per / 4,
            instructions=of_thread * (0.3 + 0.7 * inside) + of_places,
            registers=self._registers(spec, config),
            shared_bytes=self.staged_bytes(spec, config),
            serial_instructions=_SERIAL * config.axes,
            code=3 * _OF_AXIS * config.axes + of_thread,
        )

    @override
    def least(self, spec: TransposeSpec, config: GroupedTileConfig, limits: Limits) -> Least:
        (high, wide), threads = self.tile(spec, config), config.threads_per_block
        of_thread = min(self._of_thread(spec, config))
        of_places = ceil_div(high + wide, threads) * (_OF_AXIS * config.axes + 12)
        return Least(
            (PROLOGUE + of_thread + of_places) * threads / (high * wide),
            COLD_SECONDS * (3 * _OF_AXIS * config.axes + of_thread),
            _SERIAL * config.axes,
            threads=threads / (high * wide),
            resident=threads
            * resident_blocks(limits, threads, self._registers(spec, config), self.staged_bytes(spec, config)),
        )

    def _registers(self, spec: TransposeSpec, config: GroupedTileConfig) -> int:
        return 32 + 2 * config.unroll * self.elements(spec, config) * config.vec_bytes // 4

    def _of_thread(self, spec: TransposeSpec, config: GroupedTileConfig) -> tuple[float, float]:
        """Slots of a thread for its squares: by vectors, and element by element."""
        nbytes, per = spec.dtype.size, self.elements(spec, config)
        by_vectors = config.unroll * per * (3 * memory(config.vec_bytes) + 3 + (per / 2 if nbytes < 4 else 0))
        return by_vectors, config.unroll * per * per * (4 * memory(nbytes) + 36) if per > 1 else by_vectors

    def staged_bytes(self, spec: TransposeSpec, config: GroupedTileConfig) -> int:
        """Shared memory of a block: the tile, and where its rows and columns begin."""
        high, wide = self.tile(spec, config)
        padding = wide * max(config.vec_bytes, 4)
        return high * wide * spec.dtype.size + padding + (high + wide) * 2 * config.index_bits // 8 + 16

    @override
    def bytes_in_flight(self, spec: TransposeSpec, config: GroupedTileConfig) -> int:
        return config.unroll * self.elements(spec, config) * config.vec_bytes


@once_a_problem
def _spans(spec: TransposeSpec, extents: Extents, end: str) -> tuple[list[Span], list[Span]]:
    """The axes of rows and of columns, the fastest first: extents, and strides in one of the arrays."""
    rows, cols = list[Span](), list[Span]()
    for place in range(len(spec.axes)):
        if place >= extents["group_row_axes"] + extents["group_col_axes"]:
            break
        span = extents[f"group{place}_extent"], extents[f"group{place}_{end}"]
        (rows if place < extents["group_row_axes"] else cols).append(span)
    return rows, cols


@once_a_problem
def _furthest(spec: TransposeSpec, extents: Extents) -> list[int]:
    """How far the last element of the input lies from its first one, and that of the output."""
    both = (_spans(spec, extents, end) for end in ("in", "out"))
    return [sum((extent - 1) * stride for extent, stride in (*rows, *cols)) for rows, cols in both]


@once_a_problem
def sectors_of_groups(spec: TransposeSpec, extents: Extents, high: int, wide: int) -> list[float]:
    """Of a tile of so many rows and columns in the input, and in the output."""
    both = (_spans(spec, extents, end) for end in ("in", "out"))
    spans = (taken(rows[::-1], high) + taken(cols[::-1], wide) for rows, cols in both)
    return [touched(one, spec.dtype.size, SECTOR_BYTES, aligned=False) for one in spans]
