"""The algorithm `mine` of stencils: `gen --family mine:Stencils prove stencil_heat_de794a2b_f32__mine_x32_y8`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gen.dtypes import F32
from gen.families.base import Algorithm, Extents, Plan
from gen.families.config import Config, tunable
from gen.families.expr import size
from gen.families.plans import Tiles
from gen.families.stencil import Stencil, StencilSpec
from gen.families.stencil.algorithms.common import StencilAlgorithm, literal, single_steps
from gen.families.stencil.shapes import edge_cases_of


@dataclass(frozen=True)
class Term:
    """One neighbour: how far away it lies, and its weight as C++."""

    down: int
    right: int
    weight: str


@dataclass(frozen=True, kw_only=True)
class MineConfig(Config):
    """The tuning parameters: the letters in a tag, all values, the one without tuning, the meaning."""

    block_x: int = tunable("x", (32, 64), base=32, help="threads of a block along a row (x)")
    block_y: int = tunable("y", (2, 8), base=8, help="threads of a block down the rows (y)")


class Mine(StencilAlgorithm[MineConfig]):
    """A config, a template, and the launches."""

    name = "mine"
    template = "stencil/mine.cu.jinja"
    summary = "Every thread computes one cell; all neighbours are read from global memory."
    config = MineConfig

    def illegal(self, spec: StencilSpec, config: MineConfig) -> str | None:
        """Why its kernel cannot compute a spec, in words; None if it can."""
        if len(spec.axes) != 2 or spec.dtype != F32 or set(spec.boundaries) != {"constant"}:
            return "it computes cells of f32 of two axes, outside of which lies a constant"
        return None

    def tiles(self, config: MineConfig) -> Tiles:
        """Which block computes which part of the array: they cover it."""
        return Tiles(size("rows"), size("cols"), config.block_y, config.block_x)

    def inputs(self, spec: StencilSpec, config: MineConfig) -> Mapping[str, object]:
        """What the template reads beside the config and the spec: the neighbours, in the order of their sum."""
        return {"terms": tuple(Term(down, right, literal(weight, F32)) for (down, right), weight in spec.taps)}

    def plan(self, spec: StencilSpec, config: MineConfig) -> Plan:
        """A launch for each time step, with a block for each tile."""
        return single_steps(spec, self.tiles(config), (config.block_x, config.block_y, 1), by_images=False)

    def edge_cases(self, spec: StencilSpec, config: MineConfig) -> Iterator[Extents]:
        """Sizes that leave the last tile 1, 2, all but 1 or all of its rows and columns: the proof tries them."""
        return edge_cases_of(spec, self.tiles(config))


class Stencils(Stencil):
    """The family of stencils, with `mine` among its algorithms."""

    algorithms: Mapping[str, Algorithm[StencilSpec, Any]] = {**Stencil.algorithms, Mine.name: Mine()}
    templates = Path(__file__).parent / "templates"
