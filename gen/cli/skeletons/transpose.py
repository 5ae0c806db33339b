"""The algorithm `mine` of transposes: `gen --family mine:Transposes prove transpose_10_b32__mine_x32_y8`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gen.dtypes import I64, U32
from gen.families.base import Algorithm, Extents, Launch, Plan
from gen.families.config import Config, tunable
from gen.families.expr import ONE, size
from gen.families.plans import Tiles
from gen.families.transpose import Transpose
from gen.families.transpose.algorithms.common import tile_edges
from gen.families.transpose.spec import TransposeSpec


@dataclass(frozen=True, kw_only=True)
class MineConfig(Config):
    """The tuning parameters: the letters in a tag, all values, the one without tuning, the meaning."""

    block_x: int = tunable("x", (16, 32, 64), base=32, help="threads of a block along a row of the input (x)")
    block_y: int = tunable("y", (4, 8), base=8, help="threads of a block across the rows (y)")


class Mine(Algorithm[TransposeSpec, MineConfig]):
    """A config, a template, and the launches."""

    name = "mine"
    template = "transpose/mine.cu.jinja"
    summary = "Every thread moves one element: loads are coalesced, stores are not."
    config = MineConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: MineConfig) -> str | None:
        """Why its kernel cannot compute a spec, in words; None if it can."""
        return None if spec == TransposeSpec() else "it transposes matrices of elements of 4 bytes"

    def tiles(self, config: MineConfig) -> Tiles:
        """Which block moves which part of the matrix: they cover it."""
        return Tiles(size("rows"), size("cols"), config.block_y, config.block_x)

    def plan(self, spec: TransposeSpec, config: MineConfig) -> Plan:
        """One launch, with a block for each tile. Pitches count elements from one row to the next."""
        tiles, names = self.tiles(config), ("rows", "cols", "in_pitch", "out_pitch")
        launch = Launch(
            grid=(tiles.count, ONE, ONE),
            block=(config.block_x, config.block_y, 1),
            arguments=("in", "out", *((I64, size(name)) for name in names), (U32, tiles.across)),
        )
        return Plan((launch,))

    def edge_cases(self, spec: TransposeSpec, config: MineConfig) -> Iterator[Extents]:
        """Sizes that leave the last tile 1, 2, all but 1 or all of its rows and columns: the proof tries them."""
        return tile_edges(spec, self.tiles(config))

    def bytes_in_flight(self, spec: TransposeSpec, config: MineConfig) -> int:
        """Of loads, by each thread at once: what the model of a GPU asks."""
        return spec.dtype.size


class Transposes(Transpose):
    """The family of transposes, with `mine` among its algorithms."""

    algorithms: Mapping[str, Algorithm[Any, Any]] = {**Transpose.algorithms, Mine.name: Mine()}
    templates = Path(__file__).parent / "templates"
