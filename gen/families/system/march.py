"""Blocks that march through planes of three axes: cells around are brought to shared memory once a plane.

A ring of planes of each field of which cells around are read lies in shared memory: those that a plane's cells read,
and some that are on their way. There is one barrier a plane. What is only read at the own cell comes straight from
global memory, a plane ahead. Expressions are the same as in `naive`, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from gen.arch import MAX_SHARED_BYTES_PER_BLOCK
from gen.dtypes import U32
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.expr import ONE, constant, size
from gen.families.plans import Tiles, beyond_block, beyond_shared, idle_multiprocessors
from gen.families.stencil.shapes import edge_extents
from gen.families.system.launches import extents_of, shape_numbers, stepping
from gen.families.system.spec import SystemSpec
from gen.families.system.text import inputs_of, reach_of, text_of_system

WORD_BITS = 32
_MOST_CELLS = 1 << 17  # of a block
_MOST_EDGE_PLANES = 32  # a block of more takes long on the CPU run


@dataclass(frozen=True, kw_only=True)
class MarchConfig(Config):
    """How large a block's part of a plane is, how many planes it computes, how many are on their way."""

    block_x: int = tunable("x", (32, 64), base=32, help="threads of a block along a row")
    block_y: int = tunable("y", (4, 8, 16), base=8, help="threads of a block down the rows")
    rows: int = tunable("u", (1, 2, 4, 8), base=4, help="rows of cells that a thread computes")
    planes: int = tunable("z", (32, 64, 128), base=64, help="planes that a block computes, one after the other")
    ahead: int = tunable("s", (1, 2), base=2, help="planes on their way to shared memory")

    def illegal(self) -> str | None:
        """A block can have at most 1024 threads."""
        return beyond_block(self.block_x * self.block_y)

    def unsearched(self) -> str | None:
        """Blocks of which there are several for each multiprocessor, where fields are as large as 512 x 512 x 512."""
        cells = self.block_x * self.block_y * self.rows * self.planes
        return f"a block has {cells} cells, so a device has few blocks" if cells > _MOST_CELLS else None


class March(Algorithm[SystemSpec, MarchConfig]):
    """Every cell of what is read around is brought to shared memory by each block that reads it, once."""

    name = "march"
    template = "system/march.cu.jinja"
    summary = (
        "Each block marches through planes, of which several are on their way to shared memory; cells around are read "
        "there, and every thread computes what all fields become at some rows of a plane."
    )
    config = MarchConfig

    def illegal(self, spec: SystemSpec, config: MarchConfig) -> str | None:
        """The spec must have three axes and read cells around, and a block's planes fit in shared memory."""
        if spec.ndim != 3:
            return f"it marches through planes, and fields of {spec.ndim} axes have none"
        if not spec.sums:
            return "no cells around are read"
        cells, threads = _plane_cells(spec, config), config.block_x * config.block_y
        if cells > WORD_BITS * threads:
            return f"a thread brings {-(-cells // threads)} cells of a plane; {WORD_BITS} bits say what becomes of them"
        needed = _shared_bytes(spec, config)
        if needed > MAX_SHARED_BYTES_PER_BLOCK:
            return f"its planes take {needed} bytes of shared memory; no block has over {MAX_SHARED_BYTES_PER_BLOCK}"
        return None

    def infeasible(self, spec: SystemSpec, config: MarchConfig, limits: Limits) -> str | None:
        """It needs asynchronous copies to shared memory, and a block's planes must fit there."""
        if not limits.has_asynchronous_copies:
            return f"{limits.arch} has no asynchronous copies"
        return beyond_shared(_shared_bytes(spec, config), limits)

    def slow_path_reason(
        self, spec: SystemSpec, config: MarchConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """Its blocks need planes to march through, rows to fill, and a device so many blocks."""
        deep = reach_of(spec).deep
        if extents["planes"] < deep:
            return f"{extents['planes']} planes are few: blocks bring {deep} for each cell"
        if 2 * extents["cols"] < config.block_x or 2 * extents["rows"] < config.block_y * config.rows:
            return "most of its threads have no cell"
        return idle_multiprocessors(_tiles(config).count.at(extents), limits)

    @override
    def edge_cases(self, spec: SystemSpec, config: MarchConfig) -> Iterator[Extents]:
        across, down = edge_extents(config.block_x), edge_extents(config.block_y * config.rows)[::-1]
        planes = (3, min(config.planes, _MOST_EDGE_PLANES) + 1, 1, reach_of(spec).deep)
        for place, shape in enumerate(zip(planes, down, across, strict=True)):
            yield extents_of(spec, shape, (1, 1, 2, 1)[place])

    @override
    def spec_inputs(self, spec: SystemSpec) -> Mapping[str, object]:
        text = text_of_system(spec)
        return {**inputs_of(spec), "far": tuple(name for name in text.own if name not in text.near)}

    @override
    def plan(self, spec: SystemSpec, config: MarchConfig) -> Plan:
        tiles, shared_bytes = _tiles(config), constant(_shared_bytes(spec, config))
        numbers = (*shape_numbers(spec), (U32, tiles.across), (U32, tiles.down))

        def sweep(targets: Sequence[str]) -> Launch:
            return Launch(
                grid=(tiles.count, ONE, ONE),
                block=(config.block_x, config.block_y, 1),
                arguments=(*spec.fields, *targets, *spec.scalars, *numbers),
                shared_bytes=shared_bytes,
                across=tiles.across,
            )

        return stepping(spec, sweep)

    def bytes_in_flight(self, spec: SystemSpec, config: MarchConfig) -> int:
        """The thread's share of the planes on their way, and its cells of other fields."""
        text = text_of_system(spec)
        others = sum(1 for name in text.own if name not in text.near)
        return spec.dtype.size * config.rows * (len(text.near) * config.ahead + others)


def _tiles(config: MarchConfig) -> Tiles:
    """The cells that a block writes of each plane; those of so many planes are one block's."""
    rows, parts = config.block_y * config.rows, size("planes").ceil_div(config.planes)
    return Tiles(size("rows"), size("cols"), rows, config.block_x, parts)


def _shared_bytes(spec: SystemSpec, config: MarchConfig) -> int:
    """What the rings of all fields take of which cells around are read."""
    fields = len({one.field for one in spec.sums})
    return fields * (reach_of(spec).deep + config.ahead) * _plane_cells(spec, config) * spec.dtype.size


def _plane_cells(spec: SystemSpec, config: MarchConfig) -> int:
    """A block's cells of a plane, with those around."""
    reach = reach_of(spec)
    return (config.block_y * config.rows + reach.high - 1) * (config.block_x + reach.wide - 1)
