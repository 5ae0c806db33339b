"""Tiles by vectors: squares of elements turned in registers, and windows of rows that begin anywhere."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from typing_extensions import override

from gen.arch import REGISTERS_PER_BLOCK
from gen.dtypes import LoadModifier, StoreModifier
from gen.families.base import Extents, Limits, Plan, beyond_grid
from gen.families.config import Config, choice, store_modifier, tunable
from gen.families.estimates import COLD_SECONDS, SECTOR_BYTES, Demand, Least, resident_blocks
from gen.families.expr import made_once, size
from gen.families.plans import Tiles
from gen.families.transpose.algorithms.common import (
    Order,
    StagedAlgorithm,
    axes,
    between_vectors,
    divisors,
    extents_of_batch,
    launch_on_axes,
    matrices,
    only_apart,
    only_moves,
    spanned,
    tile_edges,
    tiled_launch,
)
from gen.families.transpose.algorithms.demands import (
    PROLOGUE,
    edge_share,
    elements_of,
    memory,
    tile_demand,
    whole_vectors,
)
from gen.families.transpose.spec import TransposeSpec

_MAX_INDEX = 2**31 - 1
_BLOCKS_AT_ONCE = 256  # about so many run at once
_CACHED_BYTES, _ENDS_AGAIN = 32 << 20, 0.3  # that the second-level cache joins to sectors, and what others take more
_OTHER_REGISTERS = 24  # about so many of a thread, beside its two squares


class Spread(Enum):
    """How the rows of a tile are spread over the banks."""

    SWIZZLE = "swz"
    PADDING = "pad"


@dataclass(frozen=True, kw_only=True)
class VectorTileConfig(Config):
    """How `vector_tile` cuts and moves its tiles."""

    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes per vector load and store")
    lanes: int = tunable("x", (8, 16, 32), base=16, help="width of a tile, in vectors")
    groups: int = tunable("g", (8, 16, 32), base=16, help="height of a tile, in vectors of the output")
    spread: Spread = tunable(
        "", tuple(Spread), base=Spread.SWIZZLE, help="swizzled or padded tile rows, against bank conflicts"
    )
    block_order: Order = tunable(
        "o",
        (Order.COL, Order.ROW),
        base=Order.COL,
        help="order of blocks: along rows of the input (row) or the output (col)",
    )
    load_modifier: LoadModifier = tunable(
        "ld",
        (LoadModifier.LDG, LoadModifier.CS, LoadModifier.EVICT_LAST),
        base=LoadModifier.LDG,
        help="cache operator of global loads",
    )
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS, StoreModifier.EVICT_LAST)
    index_bits: int = choice("i", (64, 32), help="bits of element indices; 32: small arrays, and a three-axis grid")

    def unsearched(self) -> str | None:
        """Padding, which meets more bank conflicts, is tried with the orders and operators of the base alone."""
        others = (self.block_order, self.load_modifier, self.store_modifier)
        if self.spread is Spread.PADDING and others != (Order.COL, LoadModifier.LDG, StoreModifier.DEFAULT):
            return "padded tiles are tried with the base's block order and cache operators alone"
        if self.load_modifier is LoadModifier.CS and self.store_modifier is StoreModifier.EVICT_LAST:
            return "cs loads (evict first) are not tried with evict_last stores"
        if self.index_bits == 32 and others[1:] != (LoadModifier.LDG, StoreModifier.DEFAULT):
            return "32-bit indices are tried with the base's cache operators alone"
        return None


class VectorTile(StagedAlgorithm[VectorTileConfig]):
    """Vectors on both sides of the tile, and squares of elements turned in registers."""

    name = "vector_tile"
    template = "transpose/vector_tile.cu.jinja"
    summary = (
        "A thread reads a square of elements by vectors, one from each row, transposes it in registers, and writes it "
        "to shared memory by vectors, one for each column. From there vectors are written along the rows of the "
        "output."
    )
    config = VectorTileConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: VectorTileConfig) -> str | None:
        """A vector must hold an element, and the result's elements must be as large."""
        if spec.in_place:
            return only_apart(spec)
        if spec.result.size != spec.dtype.size:
            return "input and output elements must have the same size"
        if config.vec_bytes < spec.dtype.size:
            return f"vec_bytes {config.vec_bytes} is smaller than one {spec.dtype.name}"
        return None

    def unsearched(self, spec: TransposeSpec, config: VectorTileConfig) -> str | None:
        """Two squares of each thread fit in registers."""
        words = 2 * self.elements(spec, config) * config.vec_bytes // 4
        if (words + _OTHER_REGISTERS) * config.lanes * config.groups > REGISTERS_PER_BLOCK:
            return f"{config.lanes * config.groups} threads that hold {words} words each need too many registers"
        return None

    def unsupported_extents(
        self, spec: TransposeSpec, config: VectorTileConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """The tiles must fit in a grid, and what they cover, past the edges too, in an index.

        A grid that finds tiles without a division has an axis for each of their numbers, two of them short.
        """
        tiles = self.tiles(spec, config)
        if config.index_bits == 32:
            down, across = tiles.down.at(extents) * tiles.tile_rows, tiles.across.at(extents) * tiles.tile_cols
            furthest = max(
                spanned(spec, extents, "_in") + down * extents["in_pitch"] + across,
                spanned(spec, extents, "_out") + across * extents["out_pitch"] + down,
            )
            if furthest > _MAX_INDEX:
                return f"an element's index may be {furthest}; with 32 bits it is {_MAX_INDEX} at most"
            if found := beyond_grid(*(blocks.at(extents) for blocks in axes(tiles, config.block_order))):
                return found
        elif found := tiles.unsupported_extents(extents):
            return found
        return self.infeasible(spec, config, limits)

    @override
    def edge_cases(self, spec: TransposeSpec, config: VectorTileConfig) -> Iterator[Extents]:
        return tile_edges(spec, self.tiles(spec, config))

    def slow_path_reason(
        self, spec: TransposeSpec, config: VectorTileConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """Vectors must not reach from one row into the next, and of many tiles more than a quarter must lie inside."""
        found = between_vectors(spec, extents, alignment, config.vec_bytes)
        return found or self.tiles(spec, config).mostly_outside(extents)

    def elements(self, spec: TransposeSpec, config: VectorTileConfig) -> int:
        """Of a vector."""
        return config.vec_bytes // spec.dtype.size

    @override
    def staged_bytes(self, spec: TransposeSpec, config: VectorTileConfig) -> int:
        groups = config.groups + (config.spread is Spread.PADDING)
        return config.lanes * self.elements(spec, config) * groups * config.vec_bytes

    @made_once
    def tiles(self, spec: TransposeSpec, config: VectorTileConfig) -> Tiles:
        """Tiles of the input."""
        per = self.elements(spec, config)
        return Tiles(size("rows"), size("cols"), config.groups * per, config.lanes * per, matrices(spec))

    def inputs(self, spec: TransposeSpec, config: VectorTileConfig) -> Mapping[str, object]:
        """By what a block multiplies to find its tile, and whether the shared memory is dynamic."""
        on_axes = config.index_bits == 32
        inverses = extents_of_batch(spec) if on_axes else divisors(spec, config.block_order)
        return {**super().inputs(spec, config), "inverses": inverses}

    @override
    def plan(self, spec: TransposeSpec, config: VectorTileConfig) -> Plan:
        tiles, block = self.tiles(spec, config), (config.lanes * config.groups, 1, 1)
        shared = self.dynamic_bytes(spec, config)
        if config.index_bits == 32:
            return launch_on_axes(spec, tiles, self.elements(spec, config), block, shared, config.block_order)
        return tiled_launch(spec, tiles, block, shared, order=config.block_order)

    @override
    def demand(
        self, spec: TransposeSpec, config: VectorTileConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand | None:
        if spec.values is not None:
            return None
        per, tiles = self.elements(spec, config), self.tiles(spec, config)
        tile = tiles.tile_rows, tiles.tile_cols
        by_vectors = whole_vectors(spec, extents, alignment, config.vec_bytes, "in_pitch", "out_pitch")
        fast, slow = self._of_element(spec, config)
        whole = extents["rows"] % per == extents["cols"] % per == 0
        edges = edge_share(extents, tile) if by_vectors else 1.0
        singly = 0.0 if by_vectors and whole else edges
        count = tiles.counted(extents)
        inside = elements_of(spec, extents) / max(count * tile[0] * tile[1], 1)  # threads outside do little
        return tile_demand(
            spec,
            extents,
            tile=tile,
            tiles=count,
            threads_per_block=config.lanes * config.groups,
            of_element=(1 - singly) * fast * (0.3 + 0.7 * inside) * (1 + edges / 2) + singly * slow,
            aligned=by_vectors,
            at_once=(1 - singly) * per * per + singly,
            rounds=1 + singly * (per * per - 1),
            registers=self._registers(spec, config),
            shared_bytes=self.staged_bytes(spec, config),
        )

    @override
    def least(self, spec: TransposeSpec, config: VectorTileConfig, limits: Limits) -> Least:
        tiles, threads = self.tiles(spec, config), config.lanes * config.groups
        area, (fast, slow) = tiles.tile_rows * tiles.tile_cols, self._of_element(spec, config)
        end = COLD_SECONDS * (PROLOGUE + min(0.3 * fast, slow) * area / threads)
        resident = resident_blocks(limits, threads, self._registers(spec, config), self.staged_bytes(spec, config))
        return Least(
            PROLOGUE * threads / area + min(fast, slow), end, threads=threads / area, resident=threads * resident
        )

    def _registers(self, spec: TransposeSpec, config: VectorTileConfig) -> int:
        return min(_OTHER_REGISTERS + 2 * self.elements(spec, config) * config.vec_bytes // 4, 255)

    def _of_element(self, spec: TransposeSpec, config: VectorTileConfig) -> tuple[float, float]:
        """Slots for an element: of vectors, and of those between them.

        Vectors are read, turned, staged, read again and written; what lies between them goes one by one.
        """
        size, per = spec.dtype.size, self.elements(spec, config)
        turned = per / 2 if size < 4 else 0
        return (4 * (memory(config.vec_bytes) + 2) + turned) / per, 2 * memory(size) + 2 * memory(size) + 14

    @override
    def bytes_in_flight(self, spec: TransposeSpec, config: VectorTileConfig) -> int:
        return self.elements(spec, config) * config.vec_bytes


MAX_WORDS_PER_THREAD = 64  # loaded before the first is used


@dataclass(frozen=True, kw_only=True)
class WindowTileConfig(Config):
    """How `window_tile` cuts and moves its tiles."""

    tile_rows: int = tunable("t", (64, 128, 256), base=128, help="height of a tile, in elements")
    tile_cols: int = tunable("c", (32, 64, 128), base=64, help="width of a tile, in elements")
    warps: int = tunable("w", (8, 16, 32), base=16, help="warps per block")
    align: int = tunable("a", (0, 32), base=32, off=0, help="alignment of a block's column stores, in bytes; 0: none")
    block_order: Order = tunable(
        "o",
        (Order.COL, Order.ROW),
        base=Order.COL,
        help="order of blocks: along rows of the input (row) or the output (col)",
    )
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.EVICT_LAST)

    def unsearched(self) -> str | None:
        """A thread has no more elements under way than registers for them."""
        words = self.tile_rows * self.tile_cols // (32 * self.warps)
        return (
            f"a thread would hold {words} elements; tuning tries at most {MAX_WORDS_PER_THREAD}"
            if words > MAX_WORDS_PER_THREAD
            else None
        )


@dataclass(frozen=True, kw_only=True)
class ShiftTileConfig(Config):
    """How `shift_tile` cuts and moves its tiles."""

    groups: int = tunable("g", (16, 32, 64, 128), base=64, help="height of a tile, in words of the output")
    chunks: int = tunable("c", (1, 2, 4), base=1, help="width of a tile, in chunks of 31 words")
    warps: int = tunable("w", (8, 16, 32), base=8, help="warps per block")
    align: int = tunable("a", (4, 32), base=32, help="alignment of a block's column stores, in bytes")
    block_order: Order = tunable(
        "o",
        (Order.COL, Order.ROW),
        base=Order.COL,
        help="order of blocks: along rows of the input (row) or the output (col)",
    )

    def illegal(self) -> str | None:
        """Every warp has a group."""
        return (
            f"{self.warps} warps are more than the {self.groups} words of the height of a tile"
            if self.warps > self.groups
            else None
        )


W = TypeVar("W", bound=WindowTileConfig | ShiftTileConfig)


class WindowAlgorithm(StagedAlgorithm[W]):
    """Blocks of warps that write, of every column of their tile, a window that begins at a multiple of a sector."""

    @abstractmethod
    def tiles(self, spec: TransposeSpec, config: W) -> Tiles:
        """Tiles of the input, which begin up to a halo early."""

    @override
    def edge_cases(self, spec: TransposeSpec, config: W) -> Iterator[Extents]:
        return tile_edges(spec, self.tiles(spec, config))

    @override
    def unsupported_extents(self, spec: TransposeSpec, config: W, extents: Extents, limits: Limits) -> str | None:
        return self.tiles(spec, config).unsupported_extents(extents) or self.infeasible(spec, config, limits)

    def slow_path_reason(
        self, spec: TransposeSpec, config: W, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """Of many tiles more than a quarter must lie inside."""
        return self.tiles(spec, config).mostly_outside(extents)

    def inputs(self, spec: TransposeSpec, config: W) -> Mapping[str, object]:
        """By what a block multiplies to find its tile, and whether the shared memory is dynamic."""
        return {**super().inputs(spec, config), "inverses": divisors(spec, config.block_order)}

    def plan(self, spec: TransposeSpec, config: W) -> Plan:
        """One launch, with a block for each tile."""
        shared = self.dynamic_bytes(spec, config)
        return tiled_launch(spec, self.tiles(spec, config), (32, config.warps, 1), shared, order=config.block_order)


class WindowTile(WindowAlgorithm[WindowTileConfig]):
    """Elements of 4 bytes and more, in rows that begin anywhere."""

    name = "window_tile"
    template = "transpose/window_tile.cu.jinja"
    summary = (
        "A tile is staged in shared memory. The part of each of its columns that is written is moved up by a few rows, "
        "so that it begins at a whole sector of memory, even where the rows of the output begin at any address."
    )
    config = WindowTileConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: WindowTileConfig) -> str | None:
        """It writes to another array; PTX has no store with a hint for less than 4 bytes."""
        if spec.in_place:
            return only_apart(spec)
        if config.store_modifier is StoreModifier.EVICT_LAST and spec.result.size < 4:
            return "evict_last needs elements of 4 bytes or more"
        return None

    def unsearched(self, spec: TransposeSpec, config: WindowTileConfig) -> str | None:
        """Small elements are moved in words, unless they change."""
        if spec.dtype.size < 4 and spec.values is None:
            return "elements under 4 bytes are left to shift_tile, which moves words"
        return None

    def halo(self, spec: TransposeSpec, config: WindowTileConfig) -> int:
        """Rows that a block reads before its own."""
        return max(config.align // spec.result.size - 1, 0)

    @override
    def staged_bytes(self, spec: TransposeSpec, config: WindowTileConfig) -> int:
        return (config.tile_rows + self.halo(spec, config)) * (config.tile_cols + 1) * spec.result.size

    @override
    @made_once
    def tiles(self, spec: TransposeSpec, config: WindowTileConfig) -> Tiles:
        rows = size("rows")
        halo = self.halo(spec, config)
        return Tiles(rows + halo if halo else rows, size("cols"), config.tile_rows, config.tile_cols, matrices(spec))

    @override
    def least(self, spec: TransposeSpec, config: WindowTileConfig, limits: Limits) -> Least:
        area, threads = config.tile_rows * config.tile_cols, 32 * config.warps
        of_element = (2 + self.halo(spec, config) / config.tile_rows) * (1.7 * memory(spec.dtype.size) + 1.5)
        of_thread = PROLOGUE + of_element * area / threads
        resident = resident_blocks(limits, threads, self._registers(spec, config), self.staged_bytes(spec, config))
        return Least(
            of_thread * threads / area, COLD_SECONDS * of_thread, threads=threads / area, resident=threads * resident,
            tile=(config.tile_rows, config.tile_cols),
        )  # fmt: skip

    def _registers(self, spec: TransposeSpec, config: WindowTileConfig) -> int:
        threads = 32 * config.warps
        of_elements = config.tile_rows * config.tile_cols // threads * max(spec.dtype.size, 4) // 4
        return min(30 + of_elements, 65536 // threads)

    @override
    def demand(
        self, spec: TransposeSpec, config: WindowTileConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand | None:
        if spec.values is not None:
            return None
        size, threads = spec.dtype.size, 32 * config.warps
        again = 1 + self.halo(spec, config) / config.tile_rows
        edges = edge_share(extents, (config.tile_rows, config.tile_cols))
        return tile_demand(
            spec,
            extents,
            tile=(config.tile_rows, config.tile_cols),
            tiles=self.tiles(spec, config).counted(extents),
            threads_per_block=threads,
            of_element=(again + 1) * (1.7 * memory(size) + 1.5 + 3 * edges),
            aligned=config.align > 0,
            at_once=config.tile_rows * config.tile_cols / threads,
            registers=self._registers(spec, config),
            shared_bytes=self.staged_bytes(spec, config),
        )

    def bytes_in_flight(self, spec: TransposeSpec, config: WindowTileConfig) -> int:
        """A thread's share of the tile."""
        return config.tile_rows * config.tile_cols // (32 * config.warps) * spec.dtype.size


class ShiftTile(WindowAlgorithm[ShiftTileConfig]):
    """Elements of 1 and 2 bytes, in rows that begin anywhere."""

    name = "shift_tile"
    template = "transpose/shift_tile.cu.jinja"
    summary = (
        "Aligned words are read, shifted so that they begin at columns of the tile, transposed in registers and staged "
        "in shared memory. When they are written they are shifted once more, to aligned words of the output."
    )
    config = ShiftTileConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: ShiftTileConfig) -> str | None:
        """Words must hold several elements."""
        if spec.in_place or spec.values is not None:
            return only_moves(spec)
        if spec.dtype.size >= 4:
            return "elements of 4 bytes and more are whole words: they need no shifting"
        return None

    def unsearched(self, spec: TransposeSpec, config: ShiftTileConfig) -> str | None:
        """The words of a thread fit in registers."""
        words = self.words(spec, config)
        return (
            f"a thread would hold {words} words; tuning tries at most {MAX_WORDS_PER_THREAD}"
            if words > MAX_WORDS_PER_THREAD
            else None
        )

    def words(self, spec: TransposeSpec, config: ShiftTileConfig) -> int:
        """Of a thread."""
        return config.groups // config.warps * config.chunks * (4 // spec.dtype.size)

    @override
    def staged_bytes(self, spec: TransposeSpec, config: ShiftTileConfig) -> int:
        return 31 * config.chunks * (4 // spec.dtype.size * config.groups + 1) * 4

    @override
    @made_once
    def tiles(self, spec: TransposeSpec, config: ShiftTileConfig) -> Tiles:
        per, halo = 4 // spec.dtype.size, config.align // spec.dtype.size
        rows = size("rows") + (halo - 1)
        return Tiles(rows, size("cols"), config.groups * per - halo, 31 * config.chunks * per, matrices(spec))

    @override
    def demand(
        self, spec: TransposeSpec, config: ShiftTileConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        per, tiles, threads = 4 // spec.dtype.size, self.tiles(spec, config), 32 * config.warps
        tile = tiles.tile_rows, tiles.tile_cols
        again = config.groups * per / tiles.tile_rows * 32 / 31
        # A word: it is read and shifted, with a shuffle, turned and staged; then two make one that is written.
        of_word = again * (3 * memory(4) + 4) + 3 * memory(4) + 4
        edges = edge_share(extents, tile)
        # Between blocks that extend the same rows of one array pass as many as a line of the other array has: where
        # they are many, memory has begun other pages meanwhile, for writes more so.
        rows_first = config.block_order is Order.ROW
        line = (tiles.across if rows_first else tiles.down).at(extents)
        apart = 1 + (0.025 if rows_first else 0.01) * (line // _BLOCKS_AT_ONCE).bit_length() ** 2
        if config.align < SECTOR_BYTES and elements_of(spec, extents) * spec.dtype.size > _CACHED_BYTES:
            apart += _ENDS_AGAIN
        return tile_demand(
            spec,
            extents,
            tile=tile,
            tiles=tiles.counted(extents),
            apart=apart,
            threads_per_block=threads,
            of_element=of_word * (1 + 2 * edges) / per,
            aligned=config.align >= SECTOR_BYTES,
            at_once=(1 - edges) * self.words(spec, config) * per + edges * 2 * per * per,
            rounds=4 + edges * (config.groups // config.warps * config.chunks / 2),
            registers=min(32 + self.words(spec, config), 65536 // threads),
            shared_bytes=self.staged_bytes(spec, config),
        )

    @override
    def bytes_in_flight(self, spec: TransposeSpec, config: ShiftTileConfig) -> int:
        return 4 * self.words(spec, config)
