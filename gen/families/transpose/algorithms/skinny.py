"""Few rows or columns, and many small matrices: arrays of which a block takes a piece that lies together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from typing_extensions import override

from gen.arch import REGISTERS_PER_BLOCK
from gen.dtypes import I32, U32, U64, LoadModifier, StoreModifier
from gen.families.base import STATIC_SHARED_BYTES, Extents, Launch, Limits, Plan
from gen.families.config import Config, choice, load_modifier, store_modifier, tunable
from gen.families.estimates import Demand
from gen.families.expr import ONE, Expr, constant, made_once, size
from gen.families.plans import Tiles
from gen.families.transpose.algorithms.common import (
    MatrixAlgorithm,
    Order,
    StagedAlgorithm,
    arguments,
    between_vectors,
    divisors,
    extents_of_batch,
    inverse_of,
    matrices,
    only_turns,
    tiled_launch,
    turned,
)
from gen.families.transpose.algorithms.demands import memory, piece_demand, tile_demand, whole_vectors
from gen.families.transpose.algorithms.packed import inverse
from gen.families.transpose.spec import TransposeSpec

_SMALL_SLOTS, _SMALL_SLOTS_BETWEEN_WORDS, _FEW_COLS_SLOTS, _ODD_COLS_OF_BYTES_SLOTS = 22.0, 36.0, 20.0, 13.0
"""Slots for an element of less than a word: in rows that begin at words, in others, in few columns, and in few columns
of bytes, an odd number, whose words lie in different banks: bench/estimates-words-h200.json."""
_ENDS_AGAIN = 1.08  # what memory takes for sectors that pieces of two blocks share
MAX_SKINNY_EXTENT = 64
"""So many rows or columns are few."""
# Of what there are few, whole tiles, elements of the long side beyond them, matrices, elements between rows.
# Rows of whole tiles begin at whole vectors, and of 4 elements more at whole words, of elements of any size.
_EDGES = (
    (2, 0, 2, 1, 0), (7, 1, 1, 1, 3), (5, 1, 0, 2, 0), (6, 1, 4, 1, 0), (3, 0, 31, 3, 5),
    (MAX_SKINNY_EXTENT, 0, 33, 1, 0),
)  # fmt: skip


class Few(Enum):
    """Of what there are few."""

    COLS = "cols"
    ROWS = "rows"


TILE_LENGTH_MULTIPLE = 32
"""The length of a tile of `skinny` is a multiple: tiles begin at whole vectors, whatever the elements."""


def _pieces(help: str) -> Any:
    """The parameter that says how much of an array a block stages."""
    return tunable("b", (4096, 8192, 16384, 32768), base=16384, help=help)


def _block_sizes() -> Any:
    """The parameter of the block's threads."""
    return tunable("tpb", (128, 256, 512), base=256, help="threads per block")


@dataclass(frozen=True, kw_only=True)
class SkinnyConfig(Config):
    """How `skinny` cuts a long matrix."""

    few: Few = tunable("", tuple(Few), base=Few.COLS, help="which dimension is short; a tile spans it")
    piece: int = _pieces("approximate bytes per tile")
    threads_per_block: int = _block_sizes()
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)
    vec_bytes: int = choice("v", (4, 16), help="bytes per store of elements under 4 bytes")


class Skinny(MatrixAlgorithm[TransposeSpec, SkinnyConfig]):
    """Matrices with few rows or columns."""

    name = "skinny"
    template = "transpose/skinny.cu.jinja"
    summary = (
        "With few columns, a tile that has all of them is contiguous in the input. It is read as it lies, and written "
        "as one long piece of each row of the output. With few rows it is the other way round."
    )
    config = SkinnyConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: SkinnyConfig) -> str | None:
        """Elements are moved in words; small ones of few columns are put together to vectors too."""
        if config.vec_bytes > 4 and (config.few is Few.ROWS or spec.dtype.size >= 4):
            return "vec_bytes 16 is for few columns of elements under 4 bytes"
        return only_turns(spec)

    def unsupported_extents(
        self, spec: TransposeSpec, config: SkinnyConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """They must be few, and follow each other without a gap; the tile must fit in shared memory."""
        few, pitch = config.few.value, "in_pitch" if config.few is Few.COLS else "out_pitch"
        if not 2 <= extents[few] <= MAX_SKINNY_EXTENT:
            return f"there are {extents[few]} {few}; it supports 2 to {MAX_SKINNY_EXTENT}"
        if extents[pitch] > extents[few]:
            return f"{pitch} is {extents[pitch]}, and must be the number of {few}, {extents[few]}"
        return super().unsupported_extents(spec, config, extents, limits)

    def edge_cases(self, spec: TransposeSpec, config: SkinnyConfig) -> Iterator[Extents]:
        """Two, several and as many as are few; two of what is long, several matrices; whole tiles, and more."""
        for few, tiles, more, many, gap in _EDGES:
            length = tiles * self.length(spec, config).at({config.few.value: few}) + more
            if config.few is Few.COLS:
                yield turned(spec, length, few, many, out_gap=gap)
            else:
                yield turned(spec, few, length, many, in_gap=gap)

    @made_once
    def length(self, spec: TransposeSpec, config: SkinnyConfig) -> Expr:
        """Of a tile along the long side, a multiple of `TILE_LENGTH_MULTIPLE`."""
        across = (size(config.few.value) * spec.dtype.size).at_least(1)
        length = (size(config.few.value) * 0 + config.piece) // across
        return (length // TILE_LENGTH_MULTIPLE * TILE_LENGTH_MULTIPLE).at_least(TILE_LENGTH_MULTIPLE)

    @made_once
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

    @made_once
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

    @override
    def dynamic_bytes(self, spec: TransposeSpec, config: SkinnyConfig) -> int:
        return self.shared_bytes(spec, config).fixed() or 0

    @override
    def plan(self, spec: TransposeSpec, config: SkinnyConfig) -> Plan:
        tiles = self.down(spec, config)
        down, across = (tiles, ONE) if config.few is Few.COLS else (ONE, tiles)
        extra = (
            (U64, inverse_of(size(name) if name.startswith("batch") else tiles).called(f"{name}_inverse"))
            for name in self.divisors(spec, config)
        )
        launch = Launch(
            grid=(self.grid(spec, config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*arguments(spec, down, across), *extra, (I32, self.length(spec, config))),
            shared_bytes=self.shared_bytes(spec, config),
        )
        return Plan((launch,))

    @override
    def demand(
        self, spec: TransposeSpec, config: SkinnyConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        size, few = spec.dtype.size, extents[config.few.value]
        length = self.length(spec, config).at(extents)
        in_cols, pitch = config.few is Few.COLS, "out_pitch" if config.few is Few.COLS else "in_pitch"
        by_vectors, by_words = (whole_vectors(spec, extents, alignment, width, pitch) for width in (16, 4))
        of_cols = _ODD_COLS_OF_BYTES_SLOTS if size == 1 and few % 2 else _FEW_COLS_SLOTS
        of_small = of_cols if in_cols else _SMALL_SLOTS if by_words else _SMALL_SLOTS_BETWEEN_WORDS
        of_element = of_small if size < 4 else 4 * memory(size) + 10
        loads = few * length * size / (16 if in_cols or by_vectors else max(size, 4) if by_words else size)
        each = few * length * size / loads
        of_thread = max(loads / config.threads_per_block, 1.0)
        return tile_demand(
            spec,
            extents,
            tile=(length, few) if in_cols else (few, length),
            tiles=self.grid(spec, config).at(extents),
            threads_per_block=config.threads_per_block,
            of_element=of_element,
            aligned=by_vectors,
            apart=1.0 if by_vectors or size < 4 else _ENDS_AGAIN,
            at_once=min(4.0, of_thread) * each / size,
            rounds=of_thread / 4 + (8 if in_cols and size < 4 else 2),  # and what is written in chains
            shared_bytes=self.shared_bytes(spec, config).at(extents),
        )

    def bytes_in_flight(self, spec: TransposeSpec, config: SkinnyConfig) -> int:
        """Four loads."""
        return 4 * (16 if config.few is Few.COLS or spec.dtype.size < 4 else spec.dtype.size)


@dataclass(frozen=True, kw_only=True)
class SmallConfig(Config):
    """How many small matrices a block of `small` turns."""

    piece: int = _pieces("most bytes of matrices per block")
    threads_per_block: int = _block_sizes()
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)


class Small(MatrixAlgorithm[TransposeSpec, SmallConfig]):
    """Many small matrices that follow each other."""

    name = "small"
    template = "transpose/small.cu.jinja"
    summary = (
        "A block reads and writes as many whole matrices as fit in shared memory, as contiguous pieces, and changes "
        "the order of their elements when it writes them."
    )
    config = SmallConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: SmallConfig) -> str | None:
        """Matrices of small elements are turned from one tile to another, both of static shared memory."""
        if (found := only_turns(spec)) is not None:
            return found
        if spec.dtype.size < 4 and 2 * (config.piece + 128) > STATIC_SHARED_BYTES:
            return f"two tiles of {config.piece} bytes; static shared memory has at most {STATIC_SHARED_BYTES}"
        return None

    def unsupported_extents(
        self, spec: TransposeSpec, config: SmallConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """A matrix must fit, and those of a batch must follow each other in both arrays."""
        rows, cols = extents["rows"], extents["cols"]
        if min(rows, cols) < 2:
            return f"the matrices are {rows} x {cols}: there is nothing to transpose"
        if rows * cols * spec.dtype.size > config.piece:
            return f"a matrix has {rows * cols * spec.dtype.size} bytes; it supports at most {config.piece}"
        step = rows * cols
        for place in range(spec.batches - 1, -1, -1):
            extent, there, here = (extents[f"batch{place}{end}"] for end in ("", "_in", "_out"))
            if extent > 1 and (there, here) != (step, step):
                return f"matrices must be contiguous, {step} elements apart; they are {there} and {here} apart"
            step *= extent
        if (extents["in_pitch"], extents["out_pitch"]) != (cols, rows):
            return "rows must be contiguous, without gaps"
        return super().unsupported_extents(spec, config, extents, limits)

    def edge_cases(self, spec: TransposeSpec, config: SmallConfig) -> Iterator[Extents]:
        """Two rows, matrices of more blocks than one, a matrix that fills a block, few matrices of whole words."""
        elements = config.piece // spec.dtype.size
        for rows, cols, many in ((2, 3, 1), (5, 7, elements // 35 + 2), (3, elements // 3, 2), (4, 8, 3)):
            yield turned(spec, rows, cols, many)

    @made_once
    def grid(self, spec: TransposeSpec, config: SmallConfig) -> Expr:
        """Blocks; where there are no elements none are needed."""
        area = (size("rows") * size("cols")).at_least(1)
        together = (size("rows") * 0 + config.piece // spec.dtype.size) // area
        return matrices(spec).ceil_div(together.at_least(1))

    @override
    def plan(self, spec: TransposeSpec, config: SmallConfig) -> Plan:
        launch = Launch(
            grid=(self.grid(spec, config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=arguments(spec, ONE, ONE),
        )
        return Plan((launch,))

    @override
    def demand(
        self, spec: TransposeSpec, config: SmallConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        size, area = spec.dtype.size, max(extents["rows"] * extents["cols"], 1)
        together = max(config.piece // size // area, 1)
        whole = extents["rows"] * size % 4 == extents["cols"] * size % 4 == 0
        of_element = 4 * memory(size) + 14 if size >= 4 else _SMALL_SLOTS if whole else _SMALL_SLOTS_BETWEEN_WORDS
        of_thread = max(together * area * size / 16 / config.threads_per_block, 1.0)
        return piece_demand(
            spec,
            extents,
            matrices=together,
            blocks=self.grid(spec, config).at(extents),
            threads_per_block=config.threads_per_block,
            of_element=of_element,
            in_flight=16 * min(of_thread, 4.0),
            rounds=of_thread / 4 + 2,
            shared_bytes=(config.piece + 128) * (2 if size < 4 else 1),
        )

    def bytes_in_flight(self, spec: TransposeSpec, config: SmallConfig) -> int:
        """Four vectors."""
        return 64


@dataclass(frozen=True, kw_only=True)
class InterleaveConfig(Config):
    """How `interleave` moves a matrix of few rows or columns."""

    few: Few = tunable("", tuple(Few), base=Few.ROWS, help="which dimension is short: columns or rows")
    count: int = tunable("n", (2, 3, 4, 8, 16), base=3, help="number of these columns or rows")
    threads_per_block: int = tunable("tpb", (64, 128, 256, 512), base=128, help="threads per block")
    load_modifier: LoadModifier = load_modifier(LoadModifier.LDG, LoadModifier.EVICT_LAST)
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS, StoreModifier.EVICT_LAST)


class Interleave(StagedAlgorithm[InterleaveConfig]):
    """Few rows or columns, as many as the text says."""

    name = "interleave"
    template = "transpose/interleave.cu.jinja"
    summary = (
        "With few rows, a thread reads a vector of each row and interleaves them in registers; a warp then writes the "
        "interleaved elements as one contiguous piece. With few columns it is the other way round."
    )
    config = InterleaveConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: InterleaveConfig) -> str | None:
        """Elements are moved in vectors."""
        return only_turns(spec)

    def unsupported_extents(
        self, spec: TransposeSpec, config: InterleaveConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """They must be as many, and follow each other without a gap."""
        few, pitch = config.few.value, "in_pitch" if config.few is Few.COLS else "out_pitch"
        if extents[few] != config.count:
            return f"there are {extents[few]} {few}; it supports only {config.count}"
        if extents[pitch] > extents[few]:
            return f"{pitch} is {extents[pitch]}, and must be the number of {few}, {extents[few]}"
        return super().unsupported_extents(spec, config, extents, limits)

    def edge_cases(self, spec: TransposeSpec, config: InterleaveConfig) -> Iterator[Extents]:
        """More than a tile, of whole vectors, and pitched; several matrices, of whole vectors and not; few elements."""
        per = 16 // spec.dtype.size
        tile = config.threads_per_block * per
        for length, many, gap in (
            (4 * per, 3, 0), (tile + 2 * per, 1, 0), (tile + per + 1, 2, per - 1), (37, 3, 0), (2, 1, 0),
        ):  # fmt: skip
            if config.few is Few.COLS:
                yield turned(spec, length, config.count, many, out_gap=gap)
            else:
                yield turned(spec, config.count, length, many, in_gap=gap)

    def slow_path_reason(
        self, spec: TransposeSpec, config: InterleaveConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """The long rows must begin at whole vectors, and so must matrices."""
        long = "out_pitch" if config.few is Few.COLS else "in_pitch"
        return between_vectors(spec, extents, alignment, pitches=(long,))

    @override
    def staged_bytes(self, spec: TransposeSpec, config: InterleaveConfig) -> int:
        return config.threads_per_block * config.count * 16

    def order(self, config: InterleaveConfig) -> Order:
        """Along the long side."""
        return Order.COL if config.few is Few.COLS else Order.ROW

    @made_once
    def tiles(self, spec: TransposeSpec, config: InterleaveConfig) -> Tiles:
        """Tiles that have all of what is few."""
        span = config.threads_per_block * 16 // spec.dtype.size
        if config.few is Few.COLS:
            return Tiles(size("rows"), ONE, span, 1, matrices(spec))
        return Tiles(ONE, size("cols"), 1, span, matrices(spec))

    def inputs(self, spec: TransposeSpec, config: InterleaveConfig) -> Mapping[str, object]:
        """In which order blocks go over tiles, by what they multiply for that, whether the shared memory is dynamic."""
        order = self.order(config)
        return {**super().inputs(spec, config), "order": order.value, "inverses": divisors(spec, order)}

    @override
    def plan(self, spec: TransposeSpec, config: InterleaveConfig) -> Plan:
        shared = self.dynamic_bytes(spec, config)
        block = (config.threads_per_block, 1, 1)
        return tiled_launch(spec, self.tiles(spec, config), block, shared, order=self.order(config))

    @override
    def demand(
        self, spec: TransposeSpec, config: InterleaveConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        size, per, tiles = spec.dtype.size, 16 // spec.dtype.size, self.tiles(spec, config)
        in_cols = config.few is Few.COLS
        span = max(tiles.tile_rows, tiles.tile_cols)
        slow = self.slow_path_reason(spec, config, extents, alignment, limits) is not None
        fast = (4 * memory(16) + 8) / per + (4 if size < 4 else 1)
        return tile_demand(
            spec,
            extents,
            tile=(span, config.count) if in_cols else (config.count, span),
            tiles=tiles.counted(extents),
            threads_per_block=config.threads_per_block,
            of_element=4 * memory(size) + 16 if slow else fast,
            aligned=not slow,
            at_once=1 if slow else config.count * per,
            rounds=config.count * per if slow else 1,
            registers=40 + 8 * config.count,
            shared_bytes=self.staged_bytes(spec, config),
        )

    def bytes_in_flight(self, spec: TransposeSpec, config: InterleaveConfig) -> int:
        """A vector of each row or column."""
        return 16 * config.count


MAX_MATRIX_BYTES = 32768
_VECTOR = 16  # bytes
_OTHER_REGISTERS = 24  # about so many of a thread, beside its two squares


@dataclass(frozen=True, kw_only=True)
class SquaresConfig(Config):
    """How many squares a block of `squares` turns."""

    threads_per_block: int = tunable("tpb", (64, 128, 256, 512), base=256, help="threads per block")
    unroll: int = tunable("u", (1, 2, 4), base=1, help="squares of elements per thread")
    load_modifier: LoadModifier = load_modifier(LoadModifier.LDG, LoadModifier.EVICT_LAST)
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS, StoreModifier.EVICT_LAST)


class Squares(StagedAlgorithm[SquaresConfig]):
    """Small matrices of whole squares."""

    name = "squares"
    template = "transpose/squares.cu.jinja"
    summary = (
        "A block takes many small matrices. A thread reads squares of their elements by vectors and transposes them in "
        "registers; the block then writes the transposed matrices as one contiguous piece."
    )
    config = SquaresConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: SquaresConfig) -> str | None:
        """Elements are moved in vectors."""
        return only_turns(spec)

    def unsearched(self, spec: TransposeSpec, config: SquaresConfig) -> str | None:
        """The squares of a thread, and one more, fit in registers."""
        words = (config.unroll + 1) * self.elements(spec) * 4
        if words > 160 or (words + _OTHER_REGISTERS) * config.threads_per_block > REGISTERS_PER_BLOCK:
            return f"{config.threads_per_block} threads that hold {words} words each need too many registers"
        return None

    def unsupported_extents(
        self, spec: TransposeSpec, config: SquaresConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """A matrix must be made of whole squares, no more than a block's, and matrices must follow each other."""
        rows, cols, per = extents["rows"], extents["cols"], self.elements(spec)
        if rows % per or cols % per or rows * cols == 0:
            return f"the matrices are {rows} x {cols}, not made of whole squares of {per} x {per}"
        squares, most = rows * cols // per**2, config.threads_per_block * config.unroll
        if squares > most:
            return f"a matrix has {squares} squares; it supports at most {most}"
        apart = Small().unsupported_extents(spec, SmallConfig(piece=MAX_MATRIX_BYTES), extents, limits)
        if apart is not None:
            return apart
        if matrices(spec).at(extents) >= 2**32:
            return f"there are {matrices(spec).at(extents)} matrices; it supports at most 2^32 - 1"
        return super().unsupported_extents(spec, config, extents, limits)

    def edge_cases(self, spec: TransposeSpec, config: SquaresConfig) -> Iterator[Extents]:
        """Few matrices, and of more blocks than one; a matrix of few squares, of many and of a whole block's."""
        per, most = self.elements(spec), config.threads_per_block * config.unroll
        widest = min(most, MAX_MATRIX_BYTES // (_VECTOR * per)) // 2
        for high, wide, many in ((3, 7, 2), (3, 2, most // 6 + 1), (2, 2, 1), (2, widest, 1), (5, 11, 1)):
            yield turned(spec, high * per, wide * per, many)

    def slow_path_reason(
        self, spec: TransposeSpec, config: SquaresConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """Matrices must begin at whole vectors."""
        return between_vectors(spec, extents, alignment, pitches=())

    def elements(self, spec: TransposeSpec) -> int:
        """Of a vector."""
        return _VECTOR // spec.dtype.size

    @override
    def staged_bytes(self, spec: TransposeSpec, config: SquaresConfig) -> int:
        return config.threads_per_block * config.unroll * self.elements(spec) * _VECTOR

    def sides(self, spec: TransposeSpec) -> tuple[Expr, Expr]:
        """Squares down a matrix, and across it; 1 at least."""
        per = self.elements(spec)
        return (size("rows") // per).at_least(1), (size("cols") // per).at_least(1)

    def together(self, spec: TransposeSpec, config: SquaresConfig) -> Expr:
        """Matrices of a block."""
        high, wide = self.sides(spec)
        return (constant(config.threads_per_block * config.unroll) // (high * wide)).at_least(1)

    @made_once
    def grid(self, spec: TransposeSpec, config: SquaresConfig) -> Expr:
        """Blocks."""
        return matrices(spec).ceil_div(self.together(spec, config))

    @override
    def plan(self, spec: TransposeSpec, config: SquaresConfig) -> Plan:
        high, wide = self.sides(spec)
        area = high * wide
        extra = (
            (I32, high),
            (I32, wide),
            (I32, area),
            (U32, inverse(wide)),
            (U32, inverse(area)),
        )
        launch = Launch(
            grid=(self.grid(spec, config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*arguments(spec, self.together(spec, config), ONE), *extra),
            shared_bytes=constant(self.dynamic_bytes(spec, config)),
        )
        return Plan((launch,))

    @override
    def demand(
        self, spec: TransposeSpec, config: SquaresConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        size, per = spec.dtype.size, self.elements(spec)
        together = self.together(spec, config).at(extents)
        slow = self.slow_path_reason(spec, config, extents, alignment, limits) is not None
        area = extents["rows"] * extents["cols"]
        busy = min(together * area / per**2 / (config.threads_per_block * config.unroll), 1.0)
        return piece_demand(
            spec,
            extents,
            matrices=together,
            blocks=self.grid(spec, config).at(extents),
            threads_per_block=config.threads_per_block,
            of_element=4 * memory(size) + 16
            if slow
            else (4 * memory(16) + 10) / per + (per / 2 if size < 4 else 0) / per,
            in_flight=size if slow else busy * config.unroll * per * _VECTOR,
            rounds=per * per if slow else 1,
            registers=min(_OTHER_REGISTERS + (config.unroll + 1) * per * 4, 255),
            shared_bytes=self.staged_bytes(spec, config),
        )

    @override
    def bytes_in_flight(self, spec: TransposeSpec, config: SquaresConfig) -> int:
        return config.unroll * self.elements(spec) * _VECTOR
