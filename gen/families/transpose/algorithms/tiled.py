"""The transposes and copies of the literature: straight, and through a tile of shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from typing_extensions import override

from gen.arch import WARP
from gen.dtypes import LoadModifier, StoreModifier
from gen.families.base import STATIC_SHARED_BYTES, Extents, Limits, Plan
from gen.families.config import Config, choice, load_modifier, store_modifier, tunable
from gen.families.estimates import Demand
from gen.families.expr import made_once, size
from gen.families.plans import Tiles, beyond_block
from gen.families.transpose.algorithms.common import (
    MatrixAlgorithm,
    Order,
    copied,
    matrices,
    only_apart,
    result_bits,
    tile_edges,
    tiled_launch,
    turned,
    turns,
)
from gen.families.transpose.algorithms.demands import LINE_BYTES, memory, tile_demand, touched
from gen.families.transpose.literature import COPY, MatrixSpec, MoveSpec
from gen.families.transpose.spec import TransposeSpec


class Lanes(Enum):
    """Along which rows the threads of a warp lie: those of the input, or those of the output."""

    ROW = "row"
    COL = "col"


_WIDE_AGAIN = 2.0  # what memory takes for rows of wide elements, whose sectors leave the first-level cache half used


@dataclass(frozen=True, kw_only=True)
class NaiveConfig(Config):
    """How `naive` lays threads over the matrix."""

    order: Lanes = tunable(
        "", tuple(Lanes), base=Lanes.ROW, help="warps lie along rows of the input (row) or output (col)"
    )
    block_x: int = tunable("x", (8, 16, 32, 64), base=32, help="threads of a block along these rows (x)")
    block_y: int = tunable("y", (4, 8, 16, 32), base=8, help="threads of a block across these rows (y)")
    unroll: int = tunable("u", (1, 4, 8), base=1, help="elements per thread, block_x apart")
    block_order: Order = choice("o", (Order.ROW, Order.DIAGONAL), help="order of blocks over the tiles")

    def illegal(self) -> str | None:
        """A block has so many threads at most."""
        return beyond_block(self.block_x * self.block_y)

    def unsearched(self) -> str | None:
        """High blocks are thin, and the literature's diagonals have square ones."""
        if self.block_y == 32 and self.block_x > 16:
            return "block_y 32 is tried with block_x 8 or 16 alone"
        if self.block_order is Order.DIAGONAL and (self.block_y != 16 or self.block_x != 16):
            return "the diagonal order is tried with blocks of 16 x 16 alone"
        return None


@dataclass(frozen=True, kw_only=True)
class TiledConfig(Config):
    """How `tiled` stages the matrix in shared memory."""

    tile_dim: int = tunable("t", (16, 32, 64), base=32, help="height of a tile, and width of its squares, in elements")
    block_rows: int = tunable("r", (4, 8, 16), base=8, help="threads of a block in y: rows moved at a time")
    padding: int = tunable("p", (0, 1, 2), base=1, help="unused elements after each tile row, against bank conflicts")
    unroll: int = tunable("u", (1, 2, 4), base=1, help="squares per tile, side by side")
    load_modifier: LoadModifier = load_modifier(LoadModifier.DEFAULT, LoadModifier.LDG, LoadModifier.CS)
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)
    block_order: Order = choice("o", tuple(Order), help="order of blocks over the tiles")
    swizzle: bool = choice("swz", (False, True), help="XOR the tile's columns with the row, against bank conflicts")
    tile_rows: int = choice("h", (0, 16), help="height of a tile that is no square; 0: tile_dim")
    direct: bool = choice("direct", (False, True), help="straight to the output, without shared memory")
    in_kernel: bool = choice("nreps", (False, True), help="repeat in a loop in the kernel, not by more launches")
    dynamic: bool = choice("dyn", (False, True), help="dynamic shared memory: the launch gives its size")

    @property
    def height(self) -> int:
        """Rows of a tile."""
        return self.tile_rows or self.tile_dim

    def illegal(self) -> str | None:
        """A block has so many threads at most; what has no effect is left out."""
        if self.swizzle and self.padding:
            return "swizzle replaces padding: set padding to 0"
        if self.direct and (self.padding or self.swizzle or self.dynamic):
            return "without shared memory padding, swizzle and dynamic have no effect"
        return beyond_block(self.tile_dim * self.block_rows)

    def unsearched(self) -> str | None:
        """The literature's tiles depart from the plain one in one thing at a time."""
        departures = [
            parameter.field
            for parameter in self.parameters()
            if parameter.off is not None and getattr(self, parameter.field) != parameter.off
        ]
        if self.tile_rows:
            if (self.tile_dim, self.block_rows) != (2 * self.tile_rows, self.tile_rows):
                return "tiles that are no squares are tried twice as wide as high, with tile_rows threads in y"
            departures.remove("tile_rows")
        if self.direct:
            if self.unroll > 1 or not {"direct", "in_kernel"}.issuperset(departures):
                return "without shared memory tuning tries unroll 1 and default cache operators alone"
            return None
        if self.tile_rows and departures and not self.dynamic:
            return f"{departures[0]} is tried with square tiles alone"
        if len(departures) > 1:
            both = " and ".join(departures[:2])
            return f"{both} are not tried together: the literature varies one at a time, and vector_tile more"
        if departures and self.unroll > 1 and not self.dynamic:
            return f"{departures[0]} is tried with unroll 1 alone"
        return None


class Naive(MatrixAlgorithm[MatrixSpec, NaiveConfig]):
    """One side coalesced, the other strided."""

    name = "naive"
    template = "transpose/naive.cu.jinja"
    summary = (
        "Every element goes straight to its place. Warps lie along the rows of one matrix, which is then coalesced, "
        "and across the rows of the other, which is then strided."
    )
    config = NaiveConfig
    takes = (TransposeSpec, MoveSpec)

    def illegal(self, spec: MatrixSpec, config: NaiveConfig) -> str | None:
        """It knows of no tiles, and a thread reads what another may have written."""
        return (
            "it has no tiles, which the spec needs"
            if isinstance(spec, MoveSpec) and spec.by_tiles
            else only_apart(spec)
        )

    def inputs(self, spec: MatrixSpec, config: NaiveConfig) -> Mapping[str, object]:
        """Whether columns stay columns."""
        return {"copies": isinstance(spec, MoveSpec) and spec.op == COPY}

    @made_once
    def tiles(self, spec: MatrixSpec, config: NaiveConfig) -> Tiles:
        """Blocks over the matrix whose rows the warps follow."""
        along, across = ("cols", "rows") if config.order is Lanes.ROW else ("rows", "cols")
        return Tiles(size(across), size(along), config.block_y, config.block_x * config.unroll, matrices(spec))

    def edge_cases(self, spec: MatrixSpec, config: NaiveConfig) -> Iterator[Extents]:
        """The last blocks have few of their rows and columns, or all but few."""
        high, wide = config.block_y, config.block_x * config.unroll
        if config.order is not Lanes.ROW:
            high, wide = wide, high
        return tile_edges(spec, Tiles(size("rows"), size("cols"), high, wide))

    def plan(self, spec: MatrixSpec, config: NaiveConfig) -> Plan:
        """One launch, repeated."""
        return tiled_launch(spec, self.tiles(spec, config), (config.block_x, config.block_y, 1))

    @override
    def demand(
        self, spec: MatrixSpec, config: NaiveConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand | None:
        if isinstance(spec, MoveSpec) or spec.values is not None:
            return None
        size, tiles = spec.dtype.size, self.tiles(spec, config)
        tile = tiles.tile_rows, tiles.tile_cols
        if config.order is Lanes.COL:
            tile = tiles.tile_cols, tiles.tile_rows
        step = extents["out_pitch" if config.order is Lanes.ROW else "in_pitch"]
        lines = touched(((min(config.block_x, WARP), step),), size, LINE_BYTES, aligned=False)
        return tile_demand(
            spec,
            extents,
            tile=tile,
            tiles=tiles.counted(extents),
            threads_per_block=config.block_x * config.block_y,
            of_element=2 * memory(size) + lines / 2 + 4,
            aligned=False,
            at_once=config.unroll,
            apart=_WIDE_AGAIN if size > 4 else 1.0,
        )

    def bytes_in_flight(self, spec: MatrixSpec, config: NaiveConfig) -> int:
        """All elements of a thread: no load need wait for a store, since the arrays do not overlap."""
        return config.unroll * spec.dtype.size


class Tiled(MatrixAlgorithm[MatrixSpec, TiledConfig]):
    """A padded tile in shared memory, so that both sides are coalesced."""

    name = "tiled"
    template = "transpose/tiled.cu.jinja"
    summary = (
        "A tile is read along the rows of the input, staged in shared memory, and written along the rows of the "
        "output: both sides are coalesced. Padding spreads a column of the tile over the banks."
    )
    config = TiledConfig

    def description(self, config: TiledConfig) -> str:
        """Without shared memory, or without padding, where there is none."""
        if config.direct:
            return "The elements of a tile go straight from the input to the output, without shared memory."
        return self.summary if config.padding else self.summary.partition(" Padding")[0]

    takes = (TransposeSpec, MoveSpec)

    def illegal(self, spec: MatrixSpec, config: TiledConfig) -> str | None:
        """The tile must fit in static shared memory, unless it is dynamic; what a spec says of tiles must hold."""
        if isinstance(spec, TransposeSpec):
            if config.in_kernel or spec.in_place:
                return only_apart(spec) or "a transpose is computed once: in_kernel is for copies that repeat"
        elif spec.by_tiles and config.direct:
            return f"{spec.op} needs tiles in shared memory"
        elif spec.by_tiles and (config.tile_rows or config.tile_dim != spec.tile):
            return f"its tiles must be {spec.tile} x {spec.tile}, as in the spec"
        needed = self.tile_bytes(spec, config)
        if needed > STATIC_SHARED_BYTES and not config.dynamic:
            return f"the tile needs {needed} bytes; static shared memory has at most {STATIC_SHARED_BYTES}"
        return None

    def unsearched(self, spec: MatrixSpec, config: TiledConfig) -> str | None:
        """Tiles that are no squares have shared memory spread what is transposed; copies need none of it."""
        if isinstance(spec, MoveSpec) and config.tile_rows and not spec.transposes_tiles:
            return "tiles that are no squares are tried for transposes alone"
        return None

    def unsupported_extents(
        self, spec: MatrixSpec, config: TiledConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """The tiles must fit in a grid, and suit the block order."""
        if isinstance(spec, MoveSpec) and spec.by_tiles:
            for name in ("rows", "cols"):
                if extents[name] % spec.tile:
                    return f"{name} must be a multiple of the tile extent {spec.tile}, and is {extents[name]}"
        tiles = self.tiles(spec, config)
        return super().unsupported_extents(spec, config, extents, limits) or config.block_order.unsupported_extents(
            tiles, extents
        )

    def edge_cases(self, spec: MatrixSpec, config: TiledConfig) -> Iterator[Extents]:
        """The last tiles in part; of the order that needs as many down as across, whole, or a row and a column less."""
        if config.block_order is not Order.SQUARE:
            yield from tile_edges(spec, self.tiles(spec, config))
            return
        high, wide = config.height, config.tile_dim * config.unroll
        for tiles, less in ((1, 1), (2, 0), (3, 1), (4, 0)):
            if isinstance(spec, MoveSpec):
                rows, cols = (tiles * side - (0 if spec.by_tiles else less) for side in (high, wide))
                yield {"rows": rows, "cols": cols, "in_pitch": cols, "out_pitch": rows if spec.swaps_axes else cols}
            elif turns(spec):
                yield turned(spec, tiles * high - less, tiles * wide - less, tiles)
            else:
                yield copied(spec, wide - tiles, (tiles + less,))

    def slow_path_reason(
        self, spec: MatrixSpec, config: TiledConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """Of many tiles more than a quarter must lie inside."""
        return self.tiles(spec, config).mostly_outside(extents)

    def inputs(self, spec: MatrixSpec, config: TiledConfig) -> Mapping[str, object]:
        """What becomes of a tile, and of the matrix of tiles."""
        return {
            "transposes_tiles": isinstance(spec, TransposeSpec) or spec.transposes_tiles,
            "swaps_axes": isinstance(spec, TransposeSpec) or spec.swaps_axes,
        }

    @made_once
    def tiles(self, spec: MatrixSpec, config: TiledConfig) -> Tiles:
        """Tiles of the input."""
        wide = config.tile_dim * config.unroll
        return Tiles(size("rows"), size("cols"), config.height, wide, matrices(spec))

    def tile_bytes(self, spec: MatrixSpec, config: TiledConfig) -> int:
        """Shared memory of a block."""
        cells = config.height * (config.tile_dim * config.unroll + config.padding)
        return 0 if config.direct else cells * result_bits(spec).size

    @override
    def dynamic_bytes(self, spec: MatrixSpec, config: TiledConfig) -> int:
        return self.tile_bytes(spec, config) if config.dynamic else 0

    def plan(self, spec: MatrixSpec, config: TiledConfig) -> Plan:
        """One launch, repeated, unless the repetitions are in the kernel."""
        block, shared = (config.tile_dim, config.block_rows, 1), self.dynamic_bytes(spec, config)
        return tiled_launch(spec, self.tiles(spec, config), block, shared, in_kernel=config.in_kernel)

    @override
    def demand(
        self, spec: MatrixSpec, config: TiledConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand | None:
        if isinstance(spec, MoveSpec) or spec.values is not None:
            return None
        tiles, threads = self.tiles(spec, config), config.tile_dim * config.block_rows
        return tile_demand(
            spec,
            extents,
            tile=(tiles.tile_rows, tiles.tile_cols),
            tiles=tiles.counted(extents),
            threads_per_block=threads,
            of_element=3.4 * memory(spec.dtype.size) + 6,
            aligned=False,
            at_once=tiles.tile_rows * tiles.tile_cols / threads,
            shared_bytes=self.tile_bytes(spec, config),
        )

    def bytes_in_flight(self, spec: MatrixSpec, config: TiledConfig) -> int:
        """A thread's share of the tile, all of which is loaded before the barrier, or with nothing to wait for."""
        if config.direct and config.in_kernel:
            return spec.dtype.size  # arrays may be the same, as far as the compiler knows
        return config.unroll * (config.height // config.block_rows) * spec.dtype.size
