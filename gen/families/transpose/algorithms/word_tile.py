"""Permutations of elements of 1 and 2 bytes that begin anywhere: tiles move by words, elements are picked up singly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from typing_extensions import override

from gen.arch import WARP
from gen.dtypes import I32, I64, U32, U64, DType, StoreModifier
from gen.families.base import STATIC_SHARED_BYTES, Extents, Launch, Limits, Plan
from gen.families.config import Config, store_modifier, tunable
from gen.families.estimates import COLD_SECONDS, SECTOR_BYTES, Demand, Least, resident_blocks
from gen.families.expr import ONE, Expr, constant, made_once, size
from gen.families.transpose.algorithms.common import (
    MAX_DIVIDEND,
    MatrixAlgorithm,
    Order,
    inverse_of,
    known,
    only_gaps_after_rows,
    only_turns,
    turned,
)
from gen.families.transpose.algorithms.demands import demand_of
from gen.families.transpose.algorithms.grouped_tile import sectors_of_groups
from gen.families.transpose.algorithms.packed import ceil_div, inverse
from gen.families.transpose.spec import MAX_AXES, TransposeSpec

_WORD, _VECTOR = 4, 16  # bytes
_LEAST_COLS = 8  # of a tile
_USUAL_COLS = 64  # or so
_BESIDE = 64  # elements of a dense tile beside its own, at most
_MOST_COLS = 256  # of a tile, whose addresses are kept
_BANK_CYCLE = 4  # rows of a multiple of so many elements, without padding, would meet few banks
_OF_AXIS = 14  # instructions of a division and of the steps along an axis
_OF_VECTOR, _OF_PART = 16, 50  # of a vector that is read, and where rows begin apart
_OF_WORD, _OF_CONFLICTS = 12, 4  # of a word that is made, and more from padded rows
_OF_ENDS = 7  # of an element of it at an end of a column
_OF_SQUARE = 160  # of those that wait for each other, of a square
_SERIAL = 60  # likewise, of an axis
_ENOUGH_WARPS = 28  # of a multiprocessor, of which fewer wait for themselves
_CACHED_BYTES = 32 << 20  # of an array whose sectors the second-level cache joins
_SHORT_COLUMN_BYTES, _SHORT_COLUMN_COST = 256, 2.0  # of a tile's columns, and what memory takes more for shorter ones
_SHORT_ROW_BYTES, _SHORT_ROW_COST = 64, 1.8  # of its rows
_REGISTERS = 48
_CODE = 1500  # instructions of its text that a block fetches


@dataclass(frozen=True, kw_only=True)
class WordTileConfig(Config):
    """How `word_tile` cuts and moves its tiles."""

    axes: int = tunable(
        "a", tuple(range(2, MAX_AXES + 1)), base=2, help="most axes, after axes that stay adjacent are merged"
    )
    row_words: int = tunable("r", (40, 56, 120), base=40, help="words of a column that a tile writes, at most")
    tile_words: int = tunable("w", (2048, 4096, 8192), base=8192, help="words of the input that a tile holds, at most")
    threads_per_block: int = tunable("tpb", (64, 128, 256), base=256, help="threads per block")
    block_order: Order = tunable(
        "o",
        (Order.COL, Order.ROW),
        base=Order.COL,
        help="order of blocks: along rows of the input (row) or the output (col)",
    )
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)


class WordTile(MatrixAlgorithm[TransposeSpec, WordTileConfig]):
    """Tiles of small elements, whose rows and columns run along several axes and begin anywhere."""

    name = "word_tile"
    template = "transpose/word_tile.cu.jinja"
    summary = (
        "For elements of 1 or 2 bytes, in tiles of rows and columns like those of grouped_tile, as high and as wide as "
        "the axes need. Rows of the input are read by aligned words, and lie in shared memory as in global memory. "
        "Each thread picks up the elements of a word of a column, shifts it together with the next lane's word, and "
        "writes an aligned word of the output."
    )
    config = WordTileConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: WordTileConfig) -> str | None:
        """Elements are parts of words, and are moved as they are, to another array."""
        if spec.dtype.size >= _WORD:
            return f"elements of {spec.dtype.size} bytes are whole words: they need no shifting"
        if len(spec.axes) < 2:
            return "it is for arrays of two axes or more"
        if config.axes > len(spec.axes):
            return f"it is for {config.axes} axes, and the array has {len(spec.axes)}"
        if config.row_words + 1 > _units(config):
            return f"{config.threads_per_block} threads do not write {config.row_words} words of a column at once"
        needed = self.staged_bytes(spec, config)
        if needed > STATIC_SHARED_BYTES:
            return f"the tile needs {needed} bytes; static shared memory has at most {STATIC_SHARED_BYTES}"
        return only_gaps_after_rows(spec) or only_turns(spec)

    def unsearched(self, spec: TransposeSpec, config: WordTileConfig) -> str | None:
        """A thread has enough to do, and not too much."""
        words = config.tile_words // config.threads_per_block
        return None if 16 <= words <= 64 else f"a thread moves {words} words; tuning tries 16 to 64"

    def _grain(self, spec: TransposeSpec) -> int:
        """Elements of a word."""
        return _WORD // spec.dtype.size

    def _rows_read(self, spec: TransposeSpec, config: WordTileConfig) -> int:
        """Rows of a tile at most: the last word of a column may end among those of the next tile."""
        return config.row_words * self._grain(spec) + self._grain(spec) - 1

    @made_once
    def _pitch(self, spec: TransposeSpec, config: WordTileConfig) -> Expr:
        """Vectors of a row of the tile: it begins anywhere in one, and a square at its last column has another word."""
        grain, (_, wide) = self._grain(spec), self.tile(spec, config)
        return ((wide + (4 * grain - 2)) // grain + 1) // 4 + 1

    @made_once
    def tile(self, spec: TransposeSpec, config: WordTileConfig) -> tuple[Expr, Expr]:
        """Rows and columns of a tile at a problem's sizes, of all tiles about the same: rows are whole sectors."""
        dense, run, most = self._dense(spec, config), _col_run(spec), self._most_cols(spec, config)
        wide = run.ceil_div(run.ceil_div(most).at_least(1))
        return self._tile_rows(spec, config), (dense * run + (ONE - dense) * wide).called("tile_cols")

    @made_once
    def _tile_rows(self, spec: TransposeSpec, config: WordTileConfig) -> Expr:
        grain, sector, rows = self._grain(spec), _sector(spec), size("group_rows")
        of_each = rows.ceil_div(rows.ceil_div(config.row_words * grain).at_least(1)).ceil_div(sector) * sector
        return of_each.at_most(rows.ceil_div(grain) * grain).called("tile_rows")

    @made_once
    def _most_cols(self, spec: TransposeSpec, config: WordTileConfig) -> Expr:
        """Columns of a tile at most, where each row has a pitch; 1 for none."""
        grain = self._grain(spec)
        read = self._tile_rows(spec, config) + (grain - 1)
        pitch = (constant(config.tile_words // 4 - 1) - read // grain) // read
        return (((pitch * 4).at_least(5) - 5) * grain + 1).at_most(_MOST_COLS).called("most_cols")

    @made_once
    def _dense(self, spec: TransposeSpec, config: WordTileConfig) -> Expr:
        """1 if rows follow each other without gaps, and fit with all of their columns, and banks differ; else 0."""
        run, step = _col_run(spec), size("group0_in")
        read = self._tile_rows(spec, config) + (self._grain(spec) - 1)
        room = (constant(config.tile_words * self._grain(spec) - _BESIDE) // read).at_most(_MOST_COLS)
        apart = step.at_least(run) - step.at_most(run)
        beyond = run.at_least(room) - room
        not_dense = apart + beyond + (size("group_row_axes") - 1) + (ONE - (run % _BANK_CYCLE).at_most(1))
        return (ONE - not_dense.at_most(1)).called("dense")

    @made_once
    def _tiles(self, spec: TransposeSpec, config: WordTileConfig) -> tuple[Expr, Expr, Expr]:
        """Tiles down, across a run of columns, and such runs."""
        high, wide = self.tile(spec, config)
        run = _col_run(spec)
        return size("group_rows").ceil_div(high), run.ceil_div(wide), size("group_cols") // run

    @made_once
    def tiles(self, spec: TransposeSpec, config: WordTileConfig) -> Expr:
        """How many there are."""
        down, across, runs = self._tiles(spec, config)
        return down * across * runs * size("group_others")

    @override
    def infeasible(self, spec: TransposeSpec, config: WordTileConfig, limits: Limits) -> str | None:
        """It needs asynchronous copies to shared memory."""
        if not limits.has_asynchronous_copies:
            return f"{limits.arch} has no asynchronous copies"
        return super().infeasible(spec, config, limits)

    def unsupported_extents(
        self, spec: TransposeSpec, config: WordTileConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """There must be two groups of axes, of which elements follow each other; all is found by numbers of 31 bits."""
        if extents["group_cols"] == 0:
            return "the fastest axes of input and output are the same, or the array is empty"
        if extents["group_axes"] > config.axes:
            return f"the array has {extents['group_axes']} axes after merging; it supports at most {config.axes}"
        source, result = spec.operands
        if extents[source.pitch] > extents[str(source.axes[-1])] and extents[str(source.axes[-1])] == 1:
            return "elements of the input have gaps between them"
        if extents[result.pitch] > extents[str(result.axes[-1])]:
            return "rows of the output have gaps between them"
        if self._dense(spec, config).at(extents) == 0 and self._most_cols(spec, config).at(extents) < _LEAST_COLS:
            return f"the tile holds fewer than {_LEAST_COLS} columns of as many rows"
        most = max(self.tiles(spec, config).at(extents), extents["group_rows"], extents["group_cols"])
        if most > MAX_DIVIDEND:
            return f"there are {most} rows, columns or tiles; it supports at most {MAX_DIVIDEND}"
        return None

    def edge_cases(self, spec: TransposeSpec, config: WordTileConfig) -> Iterator[Extents]:
        """Rows and columns that begin at any element of a word; last tiles of one row, and of fewer than a word has.

        Along two axes, and along all that it takes; with gaps between the rows of the input. A tile of few words has
        its highest form for few columns alone, whose rows follow each other.
        """
        high, wide = config.row_words * self._grain(spec), _USUAL_COLS
        several = config.axes > 2
        if self._most_cols(spec, config).at({"group_rows": high}) < _LEAST_COLS:
            yield turned(spec, high + 1, 13)
            yield turned(spec, 2 * high - 1, 5)
            yield turned(spec, 4 * high + 1, 13)
            yield turned(spec, 7, 5, 9 if several else 1)
            yield turned(spec, 9, 2, in_gap=3)
            return
        yield turned(spec, high + 1, 2 * wide + 3, 2 if several else 1)
        yield turned(spec, 2 * high - 1, wide - 1, 3 if several else 1, in_gap=1)
        yield turned(spec, 4 * high + 1, 17)
        yield turned(spec, 7, 5, 9 if several else 1)
        yield turned(spec, 9, 2, in_gap=3)
        yield turned(spec, 5, 4 * wide + 1, 2 if several else 1, in_gap=5)
        if several:
            # The last axis that changes its place, the output's fastest one before those that stay last, and others.
            last = max(axis for axis, source in enumerate(spec.axes) if axis != source)
            others = [axis for axis in reversed(range(last)) if axis != spec.axes[last]]
            axes = sorted((last, spec.axes[last], *others[: config.axes - 2]))
            for end in (0, -1):
                extents = [3 + place % 3 for place in range(len(axes))]
                extents[end] = high // 4 + 3
                yield known(spec, dict(zip(axes, extents, strict=True)), 0, 0)

    def inputs(self, spec: TransposeSpec, config: WordTileConfig) -> Mapping[str, object]:
        """Columns of a tile at most."""
        return {"most_cols": _MOST_COLS}

    @override
    def plan(self, spec: TransposeSpec, config: WordTileConfig) -> Plan:
        (high, wide), counts = self.tile(spec, config), self._tiles(spec, config)
        given: list[str | tuple[DType, Expr]] = ["in", "out"]
        for place in range(config.axes):
            extent, there, here = (size(f"group{place}_{what}") for what in ("extent", "in", "out"))
            given += [(U32, extent), (U64, inverse_of(extent)), (I64, there), (I64, here)]
        given += [(I32, size("group_row_axes")), (I32, size("group_col_axes"))]
        row, gap = _row(spec), _gap(spec)
        count = size("group_rows") * size("group_cols") * size("group_others")
        given += [(U32, size("group_rows")), (U32, _col_run(spec)), (I64, count + (count // row - 1) * gap)]
        pitch = self._pitch(spec, config).called("vectors_of_a_row")
        words = (high // self._grain(spec) + 1).called("words_of_a_column")
        groups = constant(_units(config)) // words
        given += [(I32, gap.at_most(1)), (I32, self._dense(spec, config)), (I32, high), (I32, wide)]
        given += [(I32, pitch), (U32, inverse(pitch)), (I32, constant(config.threads_per_block) // pitch)]
        given += [(I32, words), (U32, inverse(words)), (I32, wide.ceil_div(groups))]
        for number in counts:
            given += [(U32, number), (U64, inverse_of(number))]
        launch = Launch(
            grid=(self.tiles(spec, config), ONE, ONE), block=(config.threads_per_block, 1, 1), arguments=tuple(given)
        )
        return Plan((launch,))

    @override
    def demand(
        self, spec: TransposeSpec, config: WordTileConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        grain, threads, axes = self._grain(spec), config.threads_per_block, config.axes
        high, wide = (one.at(extents) for one in self.tile(spec, config))
        count, dense = self.tiles(spec, config).at(extents), self._dense(spec, config).at(extents)
        rows, cols, others = extents["group_rows"], extents["group_cols"], extents["group_others"]
        inside = rows * cols * others / max(count * high * wide, 1)
        share = min(inside * high * wide / max(min(high, rows) * min(wide, cols), 1), 1.0)
        read, written = sectors_of_groups(spec, extents, high, wide)
        nbytes = spec.dtype.size
        if rows * cols * others * nbytes > _CACHED_BYTES and high < rows and high * nbytes < _SHORT_COLUMN_BYTES:
            written *= _SHORT_COLUMN_COST
        if wide < cols and wide * nbytes < _SHORT_ROW_BYTES:
            read *= _SHORT_ROW_COST
        pitch = wide * nbytes / _VECTOR if dense else self._pitch(spec, config).at(extents)
        vectors = (high * pitch + 1) / threads  # that a thread reads
        of_group = ceil_div(wide, max(_units(config) // (high // grain + 1), 1))
        made = ceil_div(of_group, grain) * grain  # words that it makes
        gaps = extents[spec.operands[0].pitch] > extents[str(spec.operands[0].axes[-1])]
        of_vector = _OF_VECTOR + (_OF_PART if gaps else 0)
        ends = min(2 * high / rows, 1.0) if extents["group_grain"] % grain or alignment % _WORD else 0.0
        of_word = grain + _OF_WORD + (0 if dense else _OF_CONFLICTS) + _OF_ENDS * grain * ends
        of_places = ceil_div(wide if dense else high + wide, threads) * (_OF_AXIS * axes + 20)
        resident = resident_blocks(limits, threads, _REGISTERS, self.staged_bytes(spec, config))
        waiting = 0.5 + 0.5 * max(_ENOUGH_WARPS * WARP / (resident * threads), 1.0)
        return demand_of(
            spec,
            extents,
            blocks=count,
            threads_per_block=threads,
            read=share * read,
            written=share * written,
            in_flight=inside * vectors * _VECTOR,
            instructions=waiting * inside * (vectors * of_vector + made * of_word)
            + of_places
            + 2 * _OF_AXIS * axes
            + 60,
            registers=_REGISTERS,
            shared_bytes=self.staged_bytes(spec, config),
            serial_instructions=_SERIAL * axes + _OF_SQUARE * made / grain,
            code=_CODE,
        )

    @override
    def least(self, spec: TransposeSpec, config: WordTileConfig, limits: Limits) -> Least:
        grain = self._grain(spec)
        of_element = spec.dtype.size * _OF_VECTOR / _VECTOR + (grain + _OF_WORD) / grain
        return Least(of_element, COLD_SECONDS * _CODE, _SERIAL * config.axes)

    def staged_bytes(self, spec: TransposeSpec, config: WordTileConfig) -> int:
        """Shared memory of a block: the tile, and where its rows and columns begin."""
        places = _MOST_COLS + self._grain(spec)
        return _WORD * config.tile_words + 16 * self._rows_read(spec, config) + 8 * places

    @override
    def bytes_in_flight(self, spec: TransposeSpec, config: WordTileConfig) -> int:
        return config.tile_words // config.threads_per_block * _WORD


def _sector(spec: TransposeSpec) -> int:
    """Elements of a sector."""
    return SECTOR_BYTES // spec.dtype.size


def _units(config: WordTileConfig) -> int:
    """Words that a block makes at once: the last lane of a warp has the first one of the next warp."""
    return config.threads_per_block // 32 * 31


def _row(spec: TransposeSpec) -> Expr:
    """Elements of a row of the input."""
    return size(str(spec.operands[0].axes[-1]))


def _gap(spec: TransposeSpec) -> Expr:
    """Elements between rows of the input."""
    return size(spec.operands[0].pitch) - _row(spec)


def _col_run(spec: TransposeSpec) -> Expr:
    """Columns that follow each other in the input: all of them, or those of a row where gaps follow."""
    apart = _gap(spec).at_most(1)
    return (size("group_cols") * (ONE - apart) + _row(spec) * apart).called("col_run")
