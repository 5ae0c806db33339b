"""Warps that sweep once over rows at any address: aligned vectors, shifted into place in registers.

Rows of odd length or pitch, and views, begin anywhere between two multiples of 16 bytes, each row elsewhere. A lane
loads the aligned vector in which its first cell lies, and takes the rest from the next lane's by shuffles; what it has
computed it hands on likewise, so that every lane stores an aligned vector too. A few lanes at both ends of a row of
lanes write nothing: neighbouring warps load their cells as well, from a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from typing_extensions import override

from gen.arch import WARP
from gen.families.base import Extents, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.estimates import Demand, Least
from gen.families.expr import ONE, size
from gen.families.plans import Tiles
from gen.families.stencil.algorithms.common import (
    VECTOR_BYTES,
    StencilAlgorithm,
    beyond_axes,
    cells_of_vector,
    ends_differ,
    image_of,
    images_of,
    neighbours_of_loaded_rows,
    neighbours_of_rows,
    reach_of,
    single_steps,
)
from gen.families.stencil.algorithms.demands import (
    ONE_WARP_CLOCKS,
    SHUFFLE,
    demand_of_steps,
    edge_share,
    least_of_steps,
    work_of,
)
from gen.families.stencil.shapes import edge_extents, extents_of
from gen.families.stencil.spec import StencilSpec

_MOST_ROWS_AHEAD = 12  # rows of a warp on their way at once
_SHIFT = {
    1: 4 * SHUFFLE + 17,
    2: 4 * SHUFFLE + 17,
    4: 3 * SHUFFLE + 9,
    8: 2 * SHUFFLE + 4,
}  # of a vector, by the bytes of a cell
_OTHER_REGISTERS = 40  # registers beside cells
_MOST_REGISTERS = 232
_MOST_TERMS_OF_LANE = 2048  # of a lane, all written out: more, and the code leaves the instruction cache


@dataclass(frozen=True, kw_only=True)
class ShiftedConfig(Config):
    """How many rows a lane computes, and how lanes lie over the cells."""

    rows: int = tunable("u", (2, 4, 8, 16), base=4, help="rows per lane; more need more registers")
    lanes: int = tunable("l", (8, 16, 32), base=32, help="lanes along a row; the others of a warp compute other rows")
    warps: int = tunable("w", (2, 4, 8), base=4, help="warps per block, down the rows")


class Shifted(StencilAlgorithm[ShiftedConfig]):
    """Computes one time step in a launch; rows may begin at any address."""

    name = "shifted"
    template = "stencil/shifted.cu.jinja"
    summary = (
        "Each warp loads and stores aligned vectors, wherever rows begin. Cells are shifted between lanes, and "
        "neighbours come by shuffles."
    )
    config = ShiftedConfig
    by_images = True

    @override
    def illegal(self, spec: StencilSpec, config: ShiftedConfig) -> str | None:
        """The spec must have one or two axes, and some lanes must have all neighbours in their row of lanes."""
        if found := beyond_axes(image_of(spec), 1, 2) or ends_differ(spec):
            return found
        if own_lanes(spec, config) < 1:
            return (
                f"the weights reach {reach_of(spec).side} cells to one side: none of {config.lanes} lanes would write"
            )
        return None

    def unsearched(self, spec: StencilSpec, config: ShiftedConfig) -> str | None:
        """Registers must suffice for all rows, the code not be too long, and most lanes write."""
        needed = registers(spec, config)
        if needed > _MOST_REGISTERS:
            return f"it needs about {needed} registers per thread; tuning tries up to {_MOST_REGISTERS}"
        if len(spec.taps) * config.rows * cells_of_vector(spec) > _MOST_TERMS_OF_LANE:
            return "its unrolled code would be too long for the instruction cache"
        own = own_lanes(spec, config)
        if 2 * own < config.lanes:
            return f"only {own} of {config.lanes} lanes would write"
        return None

    @override
    def edge_cases(self, spec: StencilSpec, config: ShiftedConfig) -> Iterator[Extents]:
        """The last tile has few columns, or all; rows begin at other places between two vectors."""
        high = config.rows * (WARP // config.lanes)
        rows = (2 * high, high + 1, high + 2 + 2 * reach_of(spec).high, 2 * high - 1)
        for place, cols in enumerate(edge_extents(own_lanes(spec, config) * cells_of_vector(spec))):
            for gap, across in ((place, cols), (place + 3, 3 * cols + place)):
                shape = (1 + place % 3, rows[place], across)[-len(spec.axes) :]
                yield extents_of(spec, shape, 1 + place % 2, gap=gap, out_gap=place % 3)

    def inputs(self, spec: StencilSpec, config: ShiftedConfig) -> Mapping[str, object]:
        """How many rows are on their way at once, and how many neighbours are read of every row."""
        neighbours = neighbours_of_loaded_rows(spec, reach_of(spec), config.rows)
        return {"ahead": _ahead(spec, config), "neighbours": neighbours}

    @override
    def plan(self, spec: StencilSpec, config: ShiftedConfig) -> Plan:
        return single_steps(spec, tiles_of(spec, config), (WARP * config.warps, 1, 1))

    @override
    def demand(
        self, spec: StencilSpec, config: ShiftedConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        """Every vector is shifted twice; at the ends of rows, lanes load and store single cells."""
        tiles, known = tiles_of(spec, config), _instructions(spec, config, limits)
        at_ends = edge_share(extents["cols"], tiles.tile_cols) * known.of_ends
        instructions = known.vectors + at_ends
        return demand_of_steps(
            spec, extents, limits, blocks=tiles.count.at(extents) * images_of(spec).at(extents),
            threads_per_block=WARP * config.warps, bytes_in_flight=known.bytes_in_flight,
            rounds=known.rounds + (at_ends > 0), clocks=ONE_WARP_CLOCKS * instructions,
            instructions=instructions, written=known.vectors, registers=known.registers,
        )  # fmt: skip

    @override
    def least(self, spec: StencilSpec, config: ShiftedConfig, limits: Limits) -> Least:
        known, tiles = _instructions(spec, config, limits), tiles_of(spec, config)
        of_cell = known.vectors * WARP * config.warps / (tiles.tile_rows * tiles.tile_cols)
        return least_of_steps(of_cell, known.vectors, tile=(tiles.tile_rows, tiles.tile_cols))

    def bytes_in_flight(self, spec: StencilSpec, config: ShiftedConfig) -> int:
        """The rows of a lane that are on their way."""
        return VECTOR_BYTES * _ahead(spec, config)


class _Instructions(NamedTuple):
    """What is known of a variant before its sizes: instructions of a lane for vectors, and more at the ends of rows.

    Attributes:
        vectors: for its vectors.
        of_ends: for single cells, where a row ends.
        rounds: of loads of whole vectors.
        bytes_in_flight: of a lane.
        registers: of a thread.
    """

    vectors: float
    of_ends: int
    rounds: int
    bytes_in_flight: float
    registers: int


@lru_cache(512)
def _instructions(spec: StencilSpec, config: ShiftedConfig, limits: Limits) -> _Instructions:
    work, shift, ahead = work_of(spec, limits), _SHIFT[spec.dtype.size], _ahead(spec, config)
    loaded = config.rows + work.reach.high - 1
    of_row = 16 + shift + work.cells * work.converted + SHUFFLE * work.words * work.shuffled / work.reach.high
    of_sums = 16 + shift + work.cells * (work.terms * work.slots + work.converted)
    return _Instructions(
        vectors=loaded * of_row + config.rows * of_sums,
        of_ends=work.cells * (12 * loaded + 4 * config.rows),
        rounds=-(-loaded // ahead),
        bytes_in_flight=VECTOR_BYTES * ahead * own_lanes(spec, config) / config.lanes,
        registers=min(registers(spec, config), 255),
    )


def own_lanes(spec: StencilSpec, config: ShiftedConfig) -> int:
    """Lanes of a row of lanes that write: not those that the outermost writers read, and two that end elsewhere."""
    return config.lanes - 2 * -(-reach_of(spec).side // cells_of_vector(spec)) - 2


def registers(spec: StencilSpec, config: ShiftedConfig) -> int:
    """How many a thread needs at most: for the rows on their way, a window of rows, and addresses."""
    reach, words = reach_of(spec), spec.accumulator.size // 4
    # From the first row of a window that needs them on, a row keeps its neighbours.
    neighbours = neighbours_of_rows(spec, reach)
    widened = reach.high - next((y for y, side in enumerate(neighbours) if side), reach.high)
    window = (reach.high * cells_of_vector(spec) + widened * 2 * reach.side) * words
    return _OTHER_REGISTERS + _ahead(spec, config) * 5 + window


@lru_cache(512)
def tiles_of(spec: StencilSpec, config: ShiftedConfig) -> Tiles:
    """The cells of a block. Where rows begin between two vectors, they lie in one vector more."""
    cells = cells_of_vector(spec)
    own, groups = own_lanes(spec, config) * cells, config.warps * (WARP // config.lanes)
    cols = size("cols") + size("cols").at_most(1) * (cells - 1)
    if len(spec.axes) == 1:
        return Tiles(ONE, cols, 1, own * groups * config.rows)
    return Tiles(size("rows"), cols, groups * config.rows, own)


def _ahead(spec: StencilSpec, config: ShiftedConfig) -> int:
    return min(_MOST_ROWS_AHEAD, config.rows + reach_of(spec).high - 1)
