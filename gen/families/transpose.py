"""Transposes: the axes of an array in another order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from gen.dtypes import B32, DTYPES, I64, U32, DType, LoadModifier, StoreModifier, read_dtype
from gen.errors import SpecError
from gen.families.base import (
    STATIC_SHARED_BYTES,
    Algorithm,
    Array,
    Expected,
    Extents,
    Launch,
    Limits,
    Named,
    Operand,
    Plan,
)
from gen.families.config import Config, tunable
from gen.families.dense import DenseFamily
from gen.families.expr import ONE, size
from gen.families.tiles import Tiles
from gen.paths import templates_root


@dataclass(frozen=True)
class TransposeSpec:
    """A permutation of axes: axis i of the result is axis `axes[i]` of the input, as `numpy.transpose` has it.

    Attributes:
        axes: `(1, 0)`.
        dtype: bits of an element; elements are moved, never read as numbers.
    """

    axes: tuple[int, ...] = (1, 0)
    dtype: DType = B32

    def __post_init__(self) -> None:
        if self.axes != (1, 0) or not all(type(axis) is int for axis in self.axes):
            raise SpecError("TransposeSpec.axes", "must be (1, 0)", repr(self.axes))
        if self.dtype != B32:
            raise SpecError("TransposeSpec.dtype", "must be b32", getattr(self.dtype, "name", repr(self.dtype)))

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The matrix, and the result with its rows and columns exchanged; rows of both may be pitched."""
        return (
            Operand("in", "in", self.dtype, ("rows", "cols"), pitch="in_pitch"),
            Operand("out", "out", self.dtype, ("cols", "rows"), pitch="out_pitch"),
        )

    @property
    def label(self) -> str:
        """For instance `10_b32`."""
        return "".join(str(axis) for axis in self.axes) + f"_{self.dtype.name}"

    @property
    def summary(self) -> str:
        """What is computed."""
        return (
            f"Transposes a matrix of rows x cols elements of {self.dtype.size} bytes; pitches count elements from row "
            "to row."
        )

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {"axes": list(self.axes), "dtype": self.dtype.name}


class Order(Enum):
    """Along which rows the threads of a warp lie: those of the input, or those of the output."""

    ROW = "row"
    COL = "col"


@dataclass(frozen=True, kw_only=True)
class NaiveConfig(Config):
    """How `naive` lays threads over the matrix."""

    order: Order = tunable("", tuple(Order), base=Order.ROW, help="warps along rows of the input (row) or output (col)")
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
        (LoadModifier.DEFAULT, LoadModifier.CG, LoadModifier.CS),
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

    def problem(self) -> str | None:
        """Blocks end at 1,024 threads."""
        threads = self.tile_dim * self.block_rows
        return f"tile_dim x block_rows is {threads} threads; a block has at most 1024" if threads > 1024 else None


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
        return self.tiles(config).uncovered(extents)

    def inputs(self, spec: TransposeSpec, config: NaiveConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "element": spec.dtype.cuda,
            "by_rows": config.order is Order.ROW,
            "block_x": config.block_x,
            "block_y": config.block_y,
            "unroll": config.unroll,
        }

    def tiles(self, config: NaiveConfig) -> Tiles:
        """Blocks over the matrix whose rows the warps follow."""
        along, across = ("cols", "rows") if config.order is Order.ROW else ("rows", "cols")
        return Tiles(size(across), size(along), config.block_y, config.block_x * config.unroll)

    def plan(self, spec: TransposeSpec, config: NaiveConfig) -> Plan:
        """One launch."""
        return _one_launch(self.tiles(config), (config.block_x, config.block_y, 1))

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
        """The tile is static shared memory."""
        needed = config.tile_dim * (config.tile_dim * config.unroll + config.padding) * spec.dtype.size
        if needed > STATIC_SHARED_BYTES:
            return f"the tile takes {needed} bytes; static shared memory ends at {STATIC_SHARED_BYTES}"
        return None

    def uncovered(self, spec: TransposeSpec, config: TiledConfig, extents: Extents, limits: Limits) -> str | None:
        """The tiles must fit in a grid."""
        return self.tiles(config).uncovered(extents)

    def inputs(self, spec: TransposeSpec, config: TiledConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "element": spec.dtype.cuda,
            "tile_dim": config.tile_dim,
            "block_rows": config.block_rows,
            "padding": config.padding,
            "unroll": config.unroll,
            "load": config.load_modifier.intrinsic,
            "store": config.store_modifier.intrinsic,
        }

    def tiles(self, config: TiledConfig) -> Tiles:
        """Tiles of the input."""
        return Tiles(size("rows"), size("cols"), config.tile_dim, config.tile_dim * config.unroll)

    def plan(self, spec: TransposeSpec, config: TiledConfig) -> Plan:
        """One launch."""
        return _one_launch(self.tiles(config), (config.tile_dim, config.block_rows, 1))

    def bytes_in_flight(self, spec: TransposeSpec, config: TiledConfig) -> int:
        """A thread's share of the tile, all of which is loaded before the barrier."""
        return config.unroll * (config.tile_dim // config.block_rows) * spec.dtype.size


def _one_launch(tiles: Tiles, block: tuple[int, int, int]) -> Plan:
    numbers = tuple((I64, size(name)) for name in ("rows", "cols", "in_pitch", "out_pitch"))
    launch = Launch(grid=(tiles.count, ONE, ONE), block=block, arguments=("in", "out", *numbers, (U32, tiles.across)))
    return Plan((launch,))


class Transpose(DenseFamily[TransposeSpec]):
    """The family of transposes."""

    name = "transpose"
    summary = "the axes of an array in another order"
    algorithms: Mapping[str, Algorithm[TransposeSpec, Any]] = {a.name: a for a in (Naive(), Tiled())}
    named = (
        Named("transposeNaiveRow", "naive", {"order": "row", "unroll": 1}, {}, rank=3),
        Named("transposeNaiveCol", "naive", {"order": "col", "unroll": 1}, {}, rank=4),
        Named("transposeUnroll4Row", "naive", {"order": "row", "unroll": 4}, {}, rank=5),
        Named("transposeUnroll4Col", "naive", {"order": "col", "unroll": 4}, {}, rank=6),
        Named("transposeSmem", "tiled", {"padding": 0, "unroll": 1}, {}, rank=11),
        Named("transposeSmemPad", "tiled", {"padding": 1, "unroll": 1}, {}, rank=12),
        Named("transposeSmemUnrollPad", "tiled", {"padding": 1, "unroll": 2}, {}, rank=13),
    )
    catalogue = (TransposeSpec(),)
    templates = templates_root()

    def spell(self, label: str) -> TransposeSpec | None:
        """`{axes}_{dtype}`."""
        axes, _, dtype = label.partition("_")
        if not axes.isdecimal() or dtype not in DTYPES:
            return None
        return TransposeSpec(tuple(int(axis) for axis in axes), DTYPES[dtype])

    def from_json(self, content: Mapping[str, Any]) -> TransposeSpec:
        """The inverse of `TransposeSpec.to_json`."""
        axes: Any = content.get("axes")
        dtype = read_dtype(content.get("dtype"), "TransposeSpec.dtype")
        return TransposeSpec(tuple(axes) if isinstance(axes, list) else axes, dtype)

    def oracle(self, spec: TransposeSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """`numpy.transpose`, bit for bit."""
        return {"out": Expected(np.transpose(inputs["in"], spec.axes))}

    def representative(self, spec: TransposeSpec, shape_class: str) -> Extents:
        """The size that stands for a class when it is tuned."""
        return {"rows": 8192, "cols": 8192, "in_pitch": 8192, "out_pitch": 8192}

    def cases(self, spec: TransposeSpec) -> Iterator[Extents]:
        """Nothing, one, one off a tile, non-square, skinny, pitched."""
        shapes = (
            (0, 0), (0, 5), (5, 0), (1, 1), (1, 37), (37, 1), (2, 3), (16, 16), (31, 33), (32, 32), (33, 31), (50, 50),
            (64, 64), (64, 96), (96, 64), (63, 130), (100, 64), (129, 65), (3, 1021), (1021, 3),
        )  # fmt: skip
        for rows, cols in shapes:
            yield {"rows": rows, "cols": cols, "in_pitch": cols, "out_pitch": rows}
        yield {"rows": 33, "cols": 65, "in_pitch": 72, "out_pitch": 40}

    def base(self, spec: TransposeSpec, shape_class: str) -> tuple[str, Config]:
        """`tiled`, 64 wide: half as many, twice as long row segments as the literature's 32."""
        return "tiled", TiledConfig(tile_dim=64, block_rows=8, padding=1)
