"""A time step of a system the plain way: straight from global memory, a thread for each cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from gen.dtypes import U32
from gen.families.base import Algorithm, Extents, Launch, Plan
from gen.families.config import Config, tunable
from gen.families.expr import ONE, size
from gen.families.plans import Tiles, beyond_block
from gen.families.stencil.shapes import edge_extents
from gen.families.system.launches import extents_of, shape_numbers, stepping
from gen.families.system.spec import SystemSpec
from gen.families.system.text import inputs_of


@dataclass(frozen=True, kw_only=True)
class NaiveConfig(Config):
    """How `naive` lays threads over the cells."""

    block_x: int = tunable("x", (32, 64, 128, 256), base=64, help="threads of a block along a row (x)")
    block_y: int = tunable("y", (1, 2, 4, 8), base=4, help="threads of a block down the rows (y)")

    def illegal(self) -> str | None:
        """A block can have at most 1024 threads."""
        return beyond_block(self.block_x * self.block_y)

    def unsearched(self) -> str | None:
        """Blocks of 64 threads and more, which fill a multiprocessor."""
        return (
            "blocks of fewer than 64 threads leave a multiprocessor half empty"
            if self.block_x * self.block_y < 64
            else None
        )


class Naive(Algorithm[SystemSpec, NaiveConfig]):
    """Every cell of every field from global memory."""

    name = "naive"
    template = "system/naive.cu.jinja"
    summary = "Every thread computes the new values of all fields at one cell, straight from global memory."
    config = NaiveConfig

    @override
    def edge_cases(self, spec: SystemSpec, config: NaiveConfig) -> Iterator[Extents]:
        across = edge_extents(config.block_x * (config.block_y if spec.ndim == 1 else 1))
        down = edge_extents(config.block_y)
        for place, cols in enumerate(across):
            yield extents_of(spec, (2, down[place], cols)[-spec.ndim :], (1, 2, 1, 1)[place])

    @override
    def spec_inputs(self, spec: SystemSpec) -> Mapping[str, object]:
        return inputs_of(spec)

    @override
    def plan(self, spec: SystemSpec, config: NaiveConfig) -> Plan:
        tiles = _tiles(spec, config)
        numbers = shape_numbers(spec)
        if spec.ndim > 1:
            numbers += ((U32, tiles.across),)

        def sweep(targets: Sequence[str]) -> Launch:
            return Launch(
                grid=(tiles.count, ONE, ONE),
                block=(config.block_x, config.block_y, 1),
                arguments=(*spec.fields, *targets, *spec.scalars, *numbers),
                across=tiles.across,
            )

        return stepping(spec, sweep)

    def bytes_in_flight(self, spec: SystemSpec, config: NaiveConfig) -> int:
        """The thread's own cell of each field: their neighbours are other threads' cells."""
        return len(spec.fields) * spec.dtype.size


def _tiles(spec: SystemSpec, config: NaiveConfig) -> Tiles:
    """The cells of a block; the rows of all planes follow each other."""
    if spec.ndim == 1:
        return Tiles(ONE, size("cols"), 1, config.block_x * config.block_y)
    rows = size("rows") if spec.ndim == 2 else size("planes") * size("rows")
    return Tiles(rows, size("cols"), config.block_y, config.block_x)
