"""Warps that sweep once over the cells: vectors of 16 bytes, all of a warp's rows on their way at once.

A lane has the same columns in every row of its warp, so rows are used again from registers, and neighbours come by
shuffles; the cells beside the warp's are loaded by its first and last lanes. Every lane writes, whole lines of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from typing_extensions import override

from gen.arch import WARP, max_registers_per_thread
from gen.dtypes import StoreModifier
from gen.families.base import Extents, Limits, Plan
from gen.families.config import Config, store_modifier, tunable
from gen.families.estimates import Demand, Least
from gen.families.expr import ONE, size
from gen.families.plans import Tiles, beyond_block
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
from gen.families.stencil.shapes import edge_cases_of
from gen.families.stencil.spec import StencilSpec

BESIDE = 10  # instructions of the first and last lanes for a cell beside the warp's
SLOW_TERM = 9  # instructions of a term of a cell that is computed by itself
SLOW_SECONDS = 0.4e-6  # of a row of its neighbours
BLOCKS_AT_ONCE = 8  # of a multiprocessor, about
_MOST_SLOW = 0.25  # of all cells
MAX_ROWS_AHEAD = 16  # rows of a warp on their way at once
_OTHER_REGISTERS = 24  # registers beside cells
_MAX_TERMS_OF_LANE = 4096  # of a lane, all written out: more, and the code leaves the instruction cache


@dataclass(frozen=True, kw_only=True)
class StreamConfig(Config):
    """How many rows a warp computes, and how the warps of a block lie over the cells."""

    rows: int = tunable("u", (2, 4, 8, 16), base=4, help="rows per warp; more need more registers")
    warps_across: int = tunable("x", (1, 2, 4), base=2, help="warps of a block along a row (x)")
    warps_down: int = tunable("y", (2, 4, 8), base=4, help="warps of a block down the rows (y)")
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)

    def illegal(self) -> str | None:
        """A block can have at most 1024 threads."""
        return beyond_block(self.warps_across * self.warps_down * WARP)

    def unsearched(self) -> str | None:
        """Warps of a large block wait for each other."""
        warps = self.warps_across * self.warps_down
        return f"a block has {warps} warps; tuning tries up to 16" if warps > 16 else None


class Stream(StencilAlgorithm[StreamConfig]):
    """Computes one time step in a launch; each row of a warp's cells is loaded once."""

    name = "stream"
    template = "stencil/stream.cu.jinja"
    summary = (
        "Each warp loads all rows of its cells as vectors of 16 bytes; rows stay in registers, neighbours come by "
        "shuffles."
    )
    reassociates = True
    config = StreamConfig
    by_images = True

    @override
    def illegal(self, spec: StencilSpec, config: StreamConfig) -> str | None:
        return beyond_axes(image_of(spec), 1, 2) or ends_differ(spec)

    def unsearched(self, spec: StencilSpec, config: StreamConfig) -> str | None:
        """Registers must suffice for all rows, and the code not be too long."""
        needed, warps = registers(spec, config), config.warps_across * config.warps_down
        allowed = max_registers_per_thread(warps)
        if needed > allowed:
            return f"it needs about {needed} registers per thread, and blocks of {warps} warps leave {allowed}"
        if len(spec.taps) * config.rows * cells_of_vector(spec) > _MAX_TERMS_OF_LANE:
            return "its unrolled code would be too long for the instruction cache"
        return None

    def slow_path_reason(
        self, spec: StencilSpec, config: StreamConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """Cells that no whole vector of a warp holds are computed one by one."""
        if _slow_share(spec, config, extents, alignment) > _MOST_SLOW:
            return "many cells lie outside whole aligned vectors, and are computed one by one"
        return None

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

    @override
    def demand(
        self, spec: StencilSpec, config: StreamConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        """Cells that no whole vector of a warp holds go the slow path, one by one."""
        known = _instructions(spec, config, limits)
        tiles = _tiles(spec, config.rows, config.warps_across, config.warps_down)
        at_ends = edge_share(extents["rows"], tiles.tile_rows) if len(spec.axes) > 1 else 0.0
        vectors, share = known.loaded * (1 + at_ends) + known.summed, _slow_share(spec, config, extents, alignment)
        blocks = tiles.count.at(extents) * images_of(spec).at(extents)
        # A warp of such cells waits for each row of each one's neighbours; other warps hide it while there are any.
        waits = known.waits if share else 0
        waves = blocks / (limits.multiprocessors * BLOCKS_AT_ONCE)
        return demand_of_steps(
            spec, extents, limits, blocks=blocks,
            threads_per_block=WARP * config.warps_across * config.warps_down, bytes_in_flight=known.bytes_in_flight,
            rounds=known.rounds + at_ends, clocks=ONE_WARP_CLOCKS * vectors,
            instructions=vectors * (1 - share) + known.slow * share, written=vectors if share < 1 else known.slow_term,
            registers=known.registers, last_seconds=waits * SLOW_SECONDS / max(waves, 1.0),
        )  # fmt: skip

    @override
    def least(self, spec: StencilSpec, config: StreamConfig, limits: Limits) -> Least:
        known, cells = _instructions(spec, config, limits), config.rows * cells_of_vector(spec)
        vectors = known.loaded + known.summed
        tiles = _tiles(spec, config.rows, config.warps_across, config.warps_down)
        return least_of_steps(
            min(vectors, known.slow) / cells, min(vectors, known.slow_term), tile=(tiles.tile_rows, tiles.tile_cols)
        )

    def bytes_in_flight(self, spec: StencilSpec, config: StreamConfig) -> int:
        """The rows of a lane that are on their way."""
        return VECTOR_BYTES * _ahead(spec, config)


class _Instructions(NamedTuple):
    """What is known of a variant before its sizes, of instructions of a lane above all.

    Attributes:
        loaded: for the rows that it loads.
        summed: for the sums of its rows.
        slow: for its cells, where they are computed one by one.
        slow_term: of the text, for these.
        waits: for rows of neighbours of such cells.
        rounds: of loads of whole vectors.
        bytes_in_flight: of a lane.
        registers: of a thread.
    """

    loaded: float
    summed: float
    slow: int
    slow_term: int
    waits: int
    rounds: int
    bytes_in_flight: int
    registers: int


@lru_cache(512)
def _instructions(spec: StencilSpec, config: StreamConfig, limits: Limits) -> _Instructions:
    work, ahead = work_of(spec, limits), _ahead(spec, config)
    loaded, cells = config.rows + work.reach.high - 1, config.rows * work.cells
    of_row = 10 + work.cells * work.converted + (2 * SHUFFLE * work.words + BESIDE) * work.shuffled / work.reach.high
    return _Instructions(
        loaded=loaded * of_row,
        summed=config.rows * (10 + work.cells * (work.terms * work.slots + work.converted)),
        slow=cells * (30 + SLOW_TERM * work.terms),
        slow_term=SLOW_TERM * work.terms,
        waits=cells * (work.reach.high if len(spec.axes) > 1 else 1),
        rounds=-(-loaded // ahead),
        bytes_in_flight=VECTOR_BYTES * ahead,
        registers=min(registers(spec, config), 255),
    )


def registers(spec: StencilSpec, config: StreamConfig) -> int:
    """How many a thread needs at most: for the rows on their way and what lies beside them, a window, and addresses."""
    reach, words = reach_of(spec), spec.accumulator.size // 4
    neighbours = neighbours_of_rows(spec, reach)
    # From where it is loaded until it is the first row of the window that needs them, a row keeps its neighbours.
    widened = reach.high - next((y for y, side in enumerate(neighbours) if side), reach.high)
    window = (reach.high * cells_of_vector(spec) + widened * 2 * reach.side) * words
    return _OTHER_REGISTERS + _ahead(spec, config) * (4 + reach.side * words) + window


def _slow_share(spec: StencilSpec, config: StreamConfig, extents: Extents, alignment: int) -> float:
    """The share of cells that are computed one by one."""
    cols, size = extents["cols"], spec.dtype.size
    pitches = (extents[name] * size for name in ("in_pitch", "out_pitch") if len(spec.axes) > 1)
    if gcd(alignment, VECTOR_BYTES, *pitches) < VECTOR_BYTES:
        return 1.0
    folds = len(spec.axes) > 1 and image_of(spec).boundaries[0] in ("reflect", "mirror", "wrap")
    if folds and extents["rows"] < config.rows + reach_of(spec).high:  # rows may be folded more than once
        return 1.0
    warp = WARP * cells_of_vector(spec) * (config.rows if len(spec.axes) == 1 else 1)
    return cols % warp / max(cols, 1)


def _ahead(spec: StencilSpec, config: StreamConfig) -> int:
    return min(MAX_ROWS_AHEAD, config.rows + reach_of(spec).high - 1)


@lru_cache(512)
def _tiles(spec: StencilSpec, rows: int, warps_across: int, warps_down: int) -> Tiles:
    """The cells of so many warps, each of which computes so many rows."""
    cols = WARP * cells_of_vector(spec) * warps_across
    if len(spec.axes) == 1:
        return Tiles(ONE, size("cols"), 1, cols * warps_down * rows)
    return Tiles(size("rows"), size("cols"), warps_down * rows, cols)
