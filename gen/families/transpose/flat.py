"""Where an array lies in one piece: few rows or columns, many small matrices, and copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gen.dtypes import I32, U64, StoreModifier
from gen.families.base import STATIC_SHARED_BYTES, Extents, Launch, Limits, Plan
from gen.families.config import Config, store_modifier, tunable
from gen.families.expr import ONE, Expr, size
from gen.families.plans import Tiles
from gen.families.transpose.arranged import copied, turned
from gen.families.transpose.blocks import (
    MOST,
    MatrixAlgorithm,
    arguments,
    extents_of_batch,
    inverse_of,
    inverses,
    matrices,
    only_apart,
    only_turns,
    stays,
)
from gen.families.transpose.spec import TransposeSpec

FEW = 64
"""Rows or columns that are few."""


class Few(Enum):
    """Of what there are few."""

    COLS = "cols"
    ROWS = "rows"


STEP = 32
"""The length of a tile of `skinny` is a multiple: tiles begin at whole vectors, whatever the elements."""


def _pieces(help: str) -> Any:
    """The parameter that says how much of an array a block stages."""
    return tunable("b", (4096, 8192, 16384, 32768), base=16384, help=help)


def _block_sizes() -> Any:
    """The parameter of the block's threads."""
    return tunable("tpb", (128, 256, 512), base=256, help="threads of a block")


@dataclass(frozen=True, kw_only=True)
class SkinnyConfig(Config):
    """How `skinny` cuts a long matrix."""

    few: Few = tunable("", tuple(Few), base=Few.COLS, help="what there are few of, so that a tile has all of them")
    piece: int = _pieces("bytes of a tile, about")
    threads_per_block: int = _block_sizes()
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)
    vec_bytes: int = tunable("v", (4, 16), base=4, off=4, help="bytes of a store of elements under 4 bytes")


class Skinny(MatrixAlgorithm[TransposeSpec, SkinnyConfig]):
    """Matrices with few rows or columns."""

    name = "skinny"
    template = "transpose/skinny.cu.jinja"
    summary = (
        "With few columns, a tile that has all of them lies in one piece in the input, is read as it lies, and "
        "written to as many long pieces; with few rows the other way round."
    )
    config = SkinnyConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: SkinnyConfig) -> str | None:
        """Elements are moved in words; small ones of few columns are put together to vectors too."""
        if config.vec_bytes > 4 and (config.few is Few.ROWS or spec.dtype.size >= 4):
            return "wider stores are for few columns of elements under 4 bytes"
        return only_turns(spec)

    def uncovered(self, spec: TransposeSpec, config: SkinnyConfig, extents: Extents, limits: Limits) -> str | None:
        """They must be few, and follow each other without a gap; the tile must fit in shared memory."""
        few, pitch = config.few.value, "in_pitch" if config.few is Few.COLS else "out_pitch"
        if not 2 <= extents[few] <= FEW:
            return f"there are {extents[few]} {few}; it takes 2 to {FEW}"
        if extents[pitch] > extents[few]:
            return f"{pitch} is {extents[pitch]}, and must be the number of {few}, {extents[few]}"
        return super().uncovered(spec, config, extents, limits)

    def edge_cases(self, spec: TransposeSpec, config: SkinnyConfig) -> Iterator[Extents]:
        """Two, several and as many as are few; two of what is long, several matrices, and more than a tile, pitched."""
        for few, tiles, more, many, gap in ((2, 0, 2, 1, 0), (7, 1, 1, 1, 3), (3, 0, 31, 3, 5), (FEW, 0, 33, 1, 0)):
            length = tiles * self.length(spec, config).at({config.few.value: few}) + more
            if config.few is Few.COLS:
                yield turned(spec, length, few, many, out_gap=gap)
            else:
                yield turned(spec, few, length, many, in_gap=gap)

    def length(self, spec: TransposeSpec, config: SkinnyConfig) -> Expr:
        """Of a tile along the long side."""
        across = (size(config.few.value) * spec.dtype.size).at_least(1)
        return ((size(config.few.value) * 0 + config.piece) // across // STEP * STEP).at_least(STEP)

    def shared_bytes(self, spec: TransposeSpec, config: SkinnyConfig) -> Expr:
        """Of a block: the tile, a vector more for where it begins, and what fills up the last line of the banks."""
        few = size(config.few.value)
        if config.few is Few.ROWS and spec.dtype.size < 4:  # columns of whole words
            few = few.ceil_div(4 // spec.dtype.size) * (4 // spec.dtype.size)
        return (few * self.length(spec, config) * spec.dtype.size + 16).ceil_div(128) * 128

    def down(self, spec: TransposeSpec, config: SkinnyConfig) -> Expr:
        """Tiles of a matrix, one beside the other along the long side."""
        many = "rows" if config.few is Few.COLS else "cols"
        return size(many).ceil_div(self.length(spec, config))

    def grid(self, spec: TransposeSpec, config: SkinnyConfig) -> Expr:
        """Blocks; none where there are no elements."""
        return self.down(spec, config) * size(config.few.value).at_most(1) * matrices(spec)

    def divisors(self, spec: TransposeSpec, config: SkinnyConfig) -> tuple[str, ...]:
        """What a block's number is divided by: tiles of a matrix, extents of axes."""
        along = "tiles_down" if config.few is Few.COLS else "tiles_across"
        return (along, *extents_of_batch(spec)) if spec.batches else ()

    def inputs(self, spec: TransposeSpec, config: SkinnyConfig) -> Mapping[str, object]:
        """By what a block multiplies to find its tile."""
        return {"inverses": self.divisors(spec, config)}

    def plan(self, spec: TransposeSpec, config: SkinnyConfig) -> Plan:
        """One launch."""
        tiles = self.down(spec, config)
        down, across = (tiles, ONE) if config.few is Few.COLS else (ONE, tiles)
        told = (
            (U64, inverse_of(size(name) if name.startswith("batch") else tiles).called(f"{name}_inverse"))
            for name in self.divisors(spec, config)
        )
        launch = Launch(
            grid=(self.grid(spec, config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*arguments(spec, down, across), *told, (I32, self.length(spec, config))),
            shared_bytes=self.shared_bytes(spec, config),
        )
        return Plan((launch,))

    def bytes_in_flight(self, spec: TransposeSpec, config: SkinnyConfig) -> int:
        """Four loads."""
        return 4 * (16 if config.few is Few.COLS or spec.dtype.size < 4 else spec.dtype.size)


@dataclass(frozen=True, kw_only=True)
class SmallConfig(Config):
    """How many small matrices a block of `small` turns."""

    piece: int = _pieces("bytes of a block, at most")
    threads_per_block: int = _block_sizes()
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)


class Small(MatrixAlgorithm[TransposeSpec, SmallConfig]):
    """Many small matrices that follow each other."""

    name = "small"
    template = "transpose/small.cu.jinja"
    summary = (
        "As many whole matrices as fit in shared memory are read and written in one piece; the order of their "
        "elements is changed on the way out."
    )
    config = SmallConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: SmallConfig) -> str | None:
        """Matrices of small elements are turned from one tile to another, both of static shared memory."""
        if (found := only_turns(spec)) is not None:
            return found
        if spec.dtype.size < 4 and 2 * (config.piece + 128) > STATIC_SHARED_BYTES:
            return f"two tiles of {config.piece} bytes; static shared memory ends at {STATIC_SHARED_BYTES}"
        return None

    def uncovered(self, spec: TransposeSpec, config: SmallConfig, extents: Extents, limits: Limits) -> str | None:
        """A matrix must fit, and those of a batch must follow each other in both arrays."""
        rows, cols = extents["rows"], extents["cols"]
        if min(rows, cols) < 2:
            return f"the matrices are {rows} x {cols}: nothing moves within one"
        if rows * cols * spec.dtype.size > config.piece:
            return f"a matrix has {rows * cols * spec.dtype.size} bytes; it takes {config.piece} at most"
        step = rows * cols
        for place in range(spec.batches - 1, -1, -1):
            extent, there, here = (extents[f"batch{place}{end}"] for end in ("", "_in", "_out"))
            if extent > 1 and (there, here) != (step, step):
                return f"matrices must follow each other, {step} elements apart; they are {there} and {here} apart"
            step *= extent
        if (extents["in_pitch"], extents["out_pitch"]) != (cols, rows):
            return "rows must follow each other without a gap"
        return super().uncovered(spec, config, extents, limits)

    def edge_cases(self, spec: TransposeSpec, config: SmallConfig) -> Iterator[Extents]:
        """Two rows, few matrices, matrices of more blocks than one, a matrix that fills a block."""
        elements = config.piece // spec.dtype.size
        for rows, cols, many in ((2, 3, 1), (5, 7, elements // 35 + 2), (4, 2, 3), (3, elements // 3, 2)):
            yield turned(spec, rows, cols, many)

    def grid(self, spec: TransposeSpec, config: SmallConfig) -> Expr:
        """Blocks; where there are no elements none are needed."""
        area = (size("rows") * size("cols")).at_least(1)
        together = (size("rows") * 0 + config.piece // spec.dtype.size) // area
        return matrices(spec).ceil_div(together.at_least(1))

    def plan(self, spec: TransposeSpec, config: SmallConfig) -> Plan:
        """One launch."""
        launch = Launch(
            grid=(self.grid(spec, config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=arguments(spec, ONE, ONE),
        )
        return Plan((launch,))

    def bytes_in_flight(self, spec: TransposeSpec, config: SmallConfig) -> int:
        """Four vectors."""
        return 64


@dataclass(frozen=True, kw_only=True)
class RowCopyConfig(Config):
    """How `row_copy` lays threads over the runs."""

    lanes: int = tunable("x", (4, 16, 64, 256), base=64, help="threads along a run")
    threads_per_block: int = tunable("tpb", (256, 512), base=256, help="threads of a block")
    unroll: int = tunable("u", (1, 2, 4), base=2, help="vectors of each thread")
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)


class RowCopy(MatrixAlgorithm[TransposeSpec, RowCopyConfig]):
    """The fastest axis stays the fastest: its runs are copied."""

    name = "row_copy"
    template = "transpose/row_copy.cu.jinja"
    summary = (
        "Elements that follow each other in the input do so in the output: runs of them are copied by 16-byte "
        "vectors, or, where one of the two is not aligned, by words that are shifted into place."
    )
    config = RowCopyConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: RowCopyConfig) -> str | None:
        """A thread reads what another may have written."""
        return only_apart(spec)

    def uncovered(self, spec: TransposeSpec, config: RowCopyConfig, extents: Extents, limits: Limits) -> str | None:
        """Nothing may move within a matrix."""
        if extents["rows"] * extents["cols"] and not stays(extents):
            return f"the elements of {extents['rows']} x {extents['cols']} matrices move: there are no runs to copy"
        runs = matrices(spec).at(extents)
        if runs > MOST:
            return f"there are {runs} runs; it takes {MOST} at most"
        return super().uncovered(spec, config, extents, limits)

    def edge_cases(self, spec: TransposeSpec, config: RowCopyConfig) -> Iterator[Extents]:
        """Runs shorter than a vector, and longer than a block's part; more of them than a block takes; of two axes."""
        vector = 16 // spec.dtype.size
        part, together = config.lanes * config.unroll * vector, config.threads_per_block // config.lanes
        yield copied(spec, 3, (together + 1,), gap=1)
        yield copied(spec, 2 * part, (2,), gap=vector)
        yield copied(spec, part + 1, (2,), gap=3)
        yield copied(spec, 4 * vector, (3, 5))
        yield copied(spec, 2 * vector + 1, (2, together))

    def tiles(self, spec: TransposeSpec, config: RowCopyConfig) -> Tiles:
        """Parts of runs: `down` counts groups of runs, `across` the parts of one."""
        span = config.lanes * config.unroll * (16 // spec.dtype.size)
        run = size("rows") * size("cols")
        return Tiles(matrices(spec), run, config.threads_per_block // config.lanes, span)

    def divisors(self, spec: TransposeSpec) -> tuple[str, ...]:
        """What numbers are divided by."""
        return ("tiles_across", *extents_of_batch(spec))

    def inputs(self, spec: TransposeSpec, config: RowCopyConfig) -> Mapping[str, object]:
        """By what a block multiplies to find its run."""
        return {"inverses": self.divisors(spec)}

    def plan(self, spec: TransposeSpec, config: RowCopyConfig) -> Plan:
        """One launch."""
        tiles = self.tiles(spec, config)
        launch = Launch(
            grid=(tiles.count, ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*arguments(spec, tiles.down, tiles.across), *inverses(tiles, self.divisors(spec))),
        )
        return Plan((launch,))

    def bytes_in_flight(self, spec: TransposeSpec, config: RowCopyConfig) -> int:
        """All vectors of a thread."""
        return 16 * config.unroll
