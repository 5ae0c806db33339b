"""Warps that sweep once over the cells: vectors of 16 bytes, all of a warp's rows on their way at once.

A lane has the same columns in every row of its warp, so rows are used again from registers, and neighbours come by
shuffles; the cells beside the warp's are loaded by its first and last lanes. Every lane writes, whole lines of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from typing_extensions import override

from gen.arch import WARP, max_registers_per_thread
from gen.dtypes import StoreModifier
from gen.families.base import Extents, Plan
from gen.families.config import Config, store_modifier, tunable
from gen.families.expr import ONE, size
from gen.families.plans import Tiles, beyond_block
from gen.families.stencil.algorithms.common import (
    VECTOR_BYTES,
    StencilAlgorithm,
    beyond_axes,
    cells_of_vector,
    neighbours_of_loaded_rows,
    neighbours_of_rows,
    reach_of,
    single_steps,
    too_small_for_warps,
)
from gen.families.stencil.shapes import edge_cases_of
from gen.families.stencil.spec import StencilSpec

MAX_ROWS_AHEAD = 16  # rows of a warp on their way at once
_OTHER_REGISTERS = 24  # registers beside cells
_MAX_TERMS_OF_LANE = 4096  # of a lane, all written out: more, and the code leaves the instruction cache


@dataclass(frozen=True, kw_only=True)
class StreamConfig(Config):
    """How many rows a warp computes, and how the warps of a block lie over the cells."""

    rows: int = tunable("u", (2, 4, 8, 16), base=4, help="rows of cells that a warp computes")
    warps_across: int = tunable("x", (1, 2, 4), base=2, help="warps of a block along a row")
    warps_down: int = tunable("y", (2, 4, 8), base=4, help="warps of a block down the rows")
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)

    def illegal(self) -> str | None:
        """A block can have at most 1024 threads."""
        return beyond_block(self.warps_across * self.warps_down * WARP)

    def unsearched(self) -> str | None:
        """Warps of a large block wait for each other."""
        warps = self.warps_across * self.warps_down
        return f"blocks of up to 16 warps are tried, and this has {warps}" if warps > 16 else None


class Stream(StencilAlgorithm[StreamConfig]):
    """Computes one time step in a launch; each row of a warp's cells is loaded once."""

    name = "stream"
    template = "stencil/stream.cu.jinja"
    summary = (
        "Each warp loads all rows of its cells as vectors of 16 bytes; rows stay in registers, neighbours come by "
        "shuffles."
    )
    config = StreamConfig

    @override
    def illegal(self, spec: StencilSpec, config: StreamConfig) -> str | None:
        return beyond_axes(spec, 1, 2)

    def unsearched(self, spec: StencilSpec, config: StreamConfig) -> str | None:
        """Registers must suffice for all rows, and the code not be too long."""
        needed, warps = registers(spec, config), config.warps_across * config.warps_down
        allowed = max_registers_per_thread(warps)
        if needed > allowed:
            return f"it needs about {needed} registers a thread, and blocks of {warps} warps leave {allowed}"
        if len(spec.taps) * config.rows * cells_of_vector(spec) > _MAX_TERMS_OF_LANE:
            return "its code would be too long"
        return None

    def slow_path_reason(self, spec: StencilSpec, config: StreamConfig, extents: Extents, alignment: int) -> str | None:
        """Warps of many cells need many cells, and long rows.

        On an H200 it took 6 to 36 us for 8 to 400 thousand cells, and 572 for rows of 3 (bench/potholes-h200.json).
        """
        return too_small_for_warps(spec, extents)

    @override
    def edge_cases(self, spec: StencilSpec, config: StreamConfig) -> Iterator[Extents]:
        return edge_cases_of(spec, _tiles(spec, config.rows, 1, 1))

    def inputs(self, spec: StencilSpec, config: StreamConfig) -> Mapping[str, object]:
        """How many rows are on their way at once, and how many neighbours are read of every row."""
        neighbours = neighbours_of_loaded_rows(spec, reach_of(spec), config.rows)
        return {"ahead": _ahead(spec, config), "neighbours": neighbours}

    @override
    def plan(self, spec: StencilSpec, config: StreamConfig) -> Plan:
        tiles = _tiles(spec, config.rows, config.warps_across, config.warps_down)
        return single_steps(spec, tiles, (WARP * config.warps_across * config.warps_down, 1, 1))

    def bytes_in_flight(self, spec: StencilSpec, config: StreamConfig) -> int:
        """The rows of a lane that are on their way."""
        return VECTOR_BYTES * _ahead(spec, config)


def registers(spec: StencilSpec, config: StreamConfig) -> int:
    """How many a thread needs at most: for the rows on their way and what lies beside them, a window, and addresses."""
    reach, words = reach_of(spec), spec.accumulator.size // 4
    neighbours = neighbours_of_rows(spec, reach)
    # From where it is loaded until it is the first row of the window that needs them, a row keeps its neighbours.
    widened = reach.high - next((y for y, side in enumerate(neighbours) if side), reach.high)
    window = (reach.high * cells_of_vector(spec) + widened * 2 * reach.side) * words
    return _OTHER_REGISTERS + _ahead(spec, config) * (4 + reach.side * words) + window


def _ahead(spec: StencilSpec, config: StreamConfig) -> int:
    return min(MAX_ROWS_AHEAD, config.rows + reach_of(spec).high - 1)


def _tiles(spec: StencilSpec, rows: int, warps_across: int, warps_down: int) -> Tiles:
    """The cells of so many warps, each of which computes so many rows."""
    cols = WARP * cells_of_vector(spec) * warps_across
    if len(spec.axes) == 1:
        return Tiles(ONE, size("cols"), 1, cols * warps_down * rows)
    return Tiles(size("rows"), size("cols"), warps_down * rows, cols)
