"""The transposes of the literature: straight, and through a tile of shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from gen.dtypes import LoadModifier, StoreModifier
from gen.families.base import STATIC_SHARED_BYTES, Algorithm, Extents, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.expr import size
from gen.families.tiles import Tiles
from gen.families.transpose.blocks import Order, matrices, placing, tiled_launch
from gen.families.transpose.spec import TransposeSpec


class Lanes(Enum):
    """Along which rows the threads of a warp lie: those of the input, or those of the output."""

    ROW = "row"
    COL = "col"


@dataclass(frozen=True, kw_only=True)
class NaiveConfig(Config):
    """How `naive` lays threads over the matrix."""

    order: Lanes = tunable("", tuple(Lanes), base=Lanes.ROW, help="warps along rows of the input (row) or output (col)")
    block_x: int = tunable("x", (8, 16, 32, 64), base=32, help="threads of a block along those rows")
    block_y: int = tunable("y", (4, 8, 16), base=8, help="threads of a block across them")
    unroll: int = tunable("u", (1, 4, 8), base=1, help="elements of each thread, block_x apart")


@dataclass(frozen=True, kw_only=True)
class TiledConfig(Config):
    """How `tiled` stages the matrix in shared memory."""

    tile_dim: int = tunable("t", (16, 32, 64), base=32, help="rows of a tile, and columns of each of its squares")
    block_rows: int = tunable("r", (4, 8, 16), base=8, help="rows that a block moves at a time")
    padding: int = tunable("p", (0, 1, 2), base=1, help="unused elements after each row of the tile")
    unroll: int = tunable("u", (1, 2, 4), base=1, help="squares side by side in a tile")
    load_modifier: LoadModifier = tunable(
        "ld",
        (LoadModifier.DEFAULT, LoadModifier.LDG, LoadModifier.CS),
        base=LoadModifier.DEFAULT,
        off=LoadModifier.DEFAULT,
        help="cache operator of the loads",
    )
    store_modifier: StoreModifier = tunable(
        "st",
        (StoreModifier.DEFAULT, StoreModifier.CS),
        base=StoreModifier.DEFAULT,
        off=StoreModifier.DEFAULT,
        help="cache operator of the stores",
    )
    block_order: Order = tunable(
        "o", tuple(Order), base=Order.ROW, off=Order.ROW, help="the order in which blocks go over the tiles"
    )
    swizzle: bool = tunable(
        "swz", (False, True), base=False, off=False, help="exchange columns within a row of the tile, to spread banks"
    )
    dynamic: bool = tunable("dyn", (False, True), base=False, off=False, help="dynamic shared memory")

    def problem(self) -> str | None:
        """Blocks end at 1,024 threads; swizzle does what padding does; other departures come one at a time."""
        threads = self.tile_dim * self.block_rows
        if threads > 1024:
            return f"tile_dim x block_rows is {threads} threads; a block has at most 1024"
        if self.swizzle and self.padding:
            return "swizzle does what padding does: one of them is enough"
        departures = [
            parameter.field
            for parameter in self.parameters()
            if parameter.off is not None and getattr(self, parameter.field) != parameter.off
        ]
        if len(departures) > 1:
            both = " and ".join(departures[:2])
            return f"the literature's tile departs in one thing at a time, not in {both}: vector_tile varies more"
        if departures and self.unroll > 1 and not self.dynamic:
            return f"{departures[0]} is varied with one square a tile"
        return None


class Naive(Algorithm[TransposeSpec, NaiveConfig]):
    """One side coalesced, the other strided."""

    name = "naive"
    template = "transpose/naive.cu.jinja"
    summary = (
        "Every element goes straight to its place. Warps lie along the rows of one matrix, which is then coalesced, "
        "and across the rows of the other, which is then strided."
    )
    config = NaiveConfig

    def uncovered(self, spec: TransposeSpec, config: NaiveConfig, extents: Extents, limits: Limits) -> str | None:
        """The tiles must fit in a grid."""
        return self.tiles(spec, config).uncovered(extents)

    def inputs(self, spec: TransposeSpec, config: NaiveConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "element": spec.dtype.cuda,
            "batches": spec.batches,
            "by_rows": config.order is Lanes.ROW,
            "block_x": config.block_x,
            "block_y": config.block_y,
            "unroll": config.unroll,
        }

    def tiles(self, spec: TransposeSpec, config: NaiveConfig) -> Tiles:
        """Blocks over the matrix whose rows the warps follow."""
        along, across = ("cols", "rows") if config.order is Lanes.ROW else ("rows", "cols")
        return Tiles(size(across), size(along), config.block_y, config.block_x * config.unroll, matrices(spec))

    def plan(self, spec: TransposeSpec, config: NaiveConfig) -> Plan:
        """One launch."""
        return tiled_launch(spec, self.tiles(spec, config), (config.block_x, config.block_y, 1))

    def bytes_in_flight(self, spec: TransposeSpec, config: NaiveConfig) -> int:
        """All elements of a thread: no load need wait for a store, since the arrays do not overlap."""
        return config.unroll * spec.dtype.size


class Tiled(Algorithm[TransposeSpec, TiledConfig]):
    """A padded tile in shared memory, so that both sides are coalesced."""

    name = "tiled"
    template = "transpose/tiled.cu.jinja"
    summary = (
        "A tile is read along the rows of the input, staged in shared memory, and written along the rows of the "
        "output: both sides are coalesced. Padding spreads a column of the tile over the banks."
    )
    config = TiledConfig

    def refuses(self, spec: TransposeSpec, config: TiledConfig) -> str | None:
        """The tile must fit in static shared memory, unless it is dynamic."""
        needed = self.tile_bytes(spec, config)
        if needed > STATIC_SHARED_BYTES and not config.dynamic:
            return f"the tile takes {needed} bytes; static shared memory ends at {STATIC_SHARED_BYTES}"
        return None

    def infeasible(self, spec: TransposeSpec, config: TiledConfig, limits: Limits) -> str | None:
        """The tile must fit in a block's shared memory."""
        needed = self.tile_bytes(spec, config)
        if needed > limits.shared_bytes_per_block:
            return f"the tile takes {needed} bytes; a block has at most {limits.shared_bytes_per_block}"
        return None

    def uncovered(self, spec: TransposeSpec, config: TiledConfig, extents: Extents, limits: Limits) -> str | None:
        """The tiles must fit in a grid, and suit the block order."""
        tiles = self.tiles(spec, config)
        return tiles.uncovered(extents) or config.block_order.uncovered(tiles, extents)

    def inputs(self, spec: TransposeSpec, config: TiledConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            **placing(spec, config.block_order),
            "tile_dim": config.tile_dim,
            "block_rows": config.block_rows,
            "padding": config.padding,
            "unroll": config.unroll,
            "load": config.load_modifier.intrinsic,
            "store": config.store_modifier.intrinsic,
            "swizzle": config.swizzle,
            "dynamic": config.dynamic,
        }

    def tiles(self, spec: TransposeSpec, config: TiledConfig) -> Tiles:
        """Tiles of the input."""
        wide = config.tile_dim * config.unroll
        return Tiles(size("rows"), size("cols"), config.tile_dim, wide, matrices(spec))

    def tile_bytes(self, spec: TransposeSpec, config: TiledConfig) -> int:
        """Shared memory of a block."""
        return config.tile_dim * (config.tile_dim * config.unroll + config.padding) * spec.dtype.size

    def plan(self, spec: TransposeSpec, config: TiledConfig) -> Plan:
        """One launch."""
        block = (config.tile_dim, config.block_rows, 1)
        shared = self.tile_bytes(spec, config) if config.dynamic else 0
        return tiled_launch(spec, self.tiles(spec, config), block, shared)

    def bytes_in_flight(self, spec: TransposeSpec, config: TiledConfig) -> int:
        """A thread's share of the tile, all of which is loaded before the barrier."""
        return config.unroll * (config.tile_dim // config.block_rows) * spec.dtype.size
