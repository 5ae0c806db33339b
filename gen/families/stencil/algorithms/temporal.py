"""Fused steps of two axes: each row that a warp streams passes through one level for each fused step, in registers.

A warp owns whole columns and needs its neighbours' cells by shuffles alone: no shared memory, no barrier. What the
steps use up on each side, neighbouring warps compute too. Cells outside the array are put in place at every level, from
the cells inside, so a fused step computes what a single one does, to the last bit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Protocol

from typing_extensions import override

from gen.arch import WARP, max_registers_per_thread
from gen.dtypes import U32
from gen.families.base import Extents, Launch, Limits, Plan, with_limits
from gen.families.config import Config, tunable
from gen.families.estimates import Demand, Least
from gen.families.expr import Expr, once_a_problem, size
from gen.families.stencil.algorithms.common import (
    VECTOR_BYTES,
    Short,
    StencilAlgorithm,
    beyond_axes,
    blocks_of_images,
    cells_of_vector,
    ends_differ,
    image_of,
    images_of,
    mirrored_reach_of,
    neighbours_of_rows,
    numbers,
    reach_of,
    rim_of,
    row_tables,
    stepping,
    window_lines,
)
from gen.families.stencil.algorithms.demands import (
    Work,
    demand_of_steps,
    least_of_steps,
    moves_vectors,
    steps_of_launch,
    work_of,
)
from gen.families.stencil.shapes import edge_problems
from gen.families.stencil.spec import StencilSpec

MAX_EXTENT = 2**31 - 2**20  # rows and columns are counted in 32 bits
ROWS_AHEAD = 4  # on their way to shared memory
_MAX_UNROLLED_ROWS = 72  # levels of a round that are written out: more, and the loop leaves the instruction cache
EDGE_COST = 3  # rows inside that take as long as one at an end
# Clocks of a warp for a row, for each term of a lane in it, and for each word that comes from another lane; rounds of
# loads that a launch waits for; rows inside that take as long as one of a warp at an end, and instructions issued for a
# term, and for a cell that moves alone, by a fit to the recorded times of `python -m bench.estimates`.
_CLOCKS_A_ROW, _CLOCKS_A_TERM, _CLOCKS_A_SHUFFLE, _ROUNDS = 20.0, 1.7, 6.0, 8.75
_SLOW_ROW, _ISSUED_FOR_A_TERM, _ISSUED_FOR_A_CELL = 2.16, 0.905, 8.0
END_STRIPS = 3  # at the ends of the rows a strip takes two to three times as long


@dataclass(frozen=True, kw_only=True)
class TemporalConfig(Config):
    """How many columns a warp has, how many warps fit on a multiprocessor, and how many steps a launch fuses."""

    vectors: int = tunable("v", (1, 2), base=1, help="consecutive 16-byte vectors per lane")
    warps_per_sm: int = tunable(
        "r", (8, 12, 16, 24), base=8, help="resident warps per multiprocessor; more leave fewer registers per thread"
    )
    waves: int = tunable("n", (1, 2, 3), base=1, help="waves of blocks in a launch; with more, a block gets fewer rows")
    steps: int = tunable("t", (2, 4, 6, 8, 12, 16), base=4, help="time steps fused per launch; more need a wider halo")

    @property
    def blocks_per_sm(self) -> int:
        """A block is a warp."""
        return self.warps_per_sm


class Fused(Hashable, Protocol):
    """What the columns and strips of fused steps depend on, beside the spec."""

    @property
    def vectors(self) -> int:
        """Of 16 bytes, next to each other in a lane."""

    @property
    def steps(self) -> int:
        """That a launch fuses."""

    @property
    def blocks_per_sm(self) -> int:
        """That registers must suffice for."""

    @property
    def waves(self) -> int:
        """Blocks that a multiprocessor gets, over those it holds."""


class Temporal(StencilAlgorithm[TemporalConfig]):
    """Computes several time steps of two axes in one launch."""

    name = "temporal"
    template = "stencil/temporal.cu.jinja"
    summary = (
        "Each warp streams down its columns and takes every row through several time steps. Rows stay in registers, "
        "and neighbours come by shuffles."
    )
    reassociates = True
    config = TemporalConfig
    by_images = True

    def illegal(self, spec: StencilSpec, config: TemporalConfig) -> str | None:
        """The spec must have two axes, and a warp be wider than what its fused steps use up."""
        if found := beyond_axes(image_of(spec), 2) or ends_differ(spec):
            return found
        return too_narrow(spec, config)

    def unsearched(self, spec: StencilSpec, config: TemporalConfig) -> str | None:
        """The instruction cache must hold a round of its loop, and registers the rows of all levels."""
        if config.steps * mirrored_reach_of(spec).high > _MAX_UNROLLED_ROWS:
            return "its unrolled loop would be too long for the instruction cache"
        needed, allowed = registers(spec, config), most_registers(config)
        if needed > allowed:
            return f"it needs about {needed} registers per thread, and {config.warps_per_sm} warps leave {allowed}"
        return None

    def infeasible(self, spec: StencilSpec, config: TemporalConfig, limits: Limits) -> str | None:
        """It needs asynchronous copies to shared memory."""
        if not limits.has_asynchronous_copies:
            return f"{limits.arch} has no asynchronous copies"
        return None

    def unsupported_extents(
        self, spec: StencilSpec, config: TemporalConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Sizes must fit 32 bits, and a mirror image lie inside."""
        return beyond_counts(spec, extents) or super().unsupported_extents(spec, config, extents, limits)

    @override
    def demand(
        self, spec: StencilSpec, config: TemporalConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        """A warp takes its time for each row; where many share a multiprocessor, that issues their terms."""
        work = work_of(spec, limits)
        planned, sizes = Blocks.of(spec, config), with_limits(extents, limits)
        blocks = planned.count.at(sizes) * images_of(spec).at(sizes)
        strips = planned.strips.at(sizes)
        rows = _rows_of_warp(spec, config, extents, strips)
        # Where strips are short, warps at the ends take longest: for what their steps use up, too.
        at_ends = _SLOW_ROW * _rows_of_warp(spec, config, extents, strips * END_STRIPS)
        depth = steps_of_launch(extents, config.steps)
        terms = work.terms * depth * cells_of_lane(spec, config) * work.words
        shuffled = 2 * work.mirrored.side * depth * work.words
        # Where rows are not aligned, cells move to shared memory one by one.
        single = 0 if moves_vectors(spec, extents, alignment) else cells_of_lane(spec, config)
        clocks = max(rows, at_ends) * (_CLOCKS_A_ROW + _CLOCKS_A_TERM * terms + _CLOCKS_A_SHUFFLE * shuffled)
        return demand_of_steps(
            spec, extents, limits, fused=config.steps, blocks=blocks, threads_per_block=WARP,
            bytes_in_flight=VECTOR_BYTES * config.vectors * ROWS_AHEAD,
            rounds=_ROUNDS, clocks=clocks,
            instructions=(_issued_for_a_row(work, terms) + _ISSUED_FOR_A_CELL * single) * rows,
            written=terms * work.mirrored.high, registers=_registers(spec, config),
        )  # fmt: skip

    @override
    def least(self, spec: StencilSpec, config: TemporalConfig, limits: Limits) -> Least:
        work, own = work_of(spec, limits), Columns.of(spec, config).own
        terms = work.terms * cells_of_lane(spec, config) * work.words
        of_cell = WARP * _issued_for_a_row(work, terms) / own
        return least_of_steps(of_cell, fused=config.steps, rounds=_ROUNDS, tile=(1, own))

    def edge_cases(self, spec: StencilSpec, config: TemporalConfig) -> Iterator[Extents]:
        """Sizes that leave the last warp of a row few of its columns, or all but few; one has inner rows and warps."""
        return edges_of_streams(spec, config, ROWS_AHEAD)

    def inputs(self, spec: StencilSpec, config: TemporalConfig) -> Mapping[str, object]:
        """The reach with what a mirror adds, the columns that steps use up, and how rows are divided into strips."""
        return {**stream_inputs(spec, config), "rows_ahead": ROWS_AHEAD}

    @override
    def plan(self, spec: StencilSpec, config: TemporalConfig) -> Plan:
        return plan_of_streams(spec, config, WARP)

    def bytes_in_flight(self, spec: StencilSpec, config: TemporalConfig) -> int:
        """The rows that are on their way to shared memory."""
        return VECTOR_BYTES * config.vectors * ROWS_AHEAD

    @override
    def arithmetic(self, spec: StencilSpec, config: TemporalConfig, extents: Extents, limits: Limits) -> float:
        """The terms of all rows and fused steps."""
        work, depth = work_of(spec, limits), steps_of_launch(extents, config.steps)
        strips = Blocks.of(spec, config).strips.at(with_limits(extents, limits))
        terms = work.terms * depth * cells_of_lane(spec, config) * work.words
        return _issued_for_a_row(work, terms) * _rows_of_warp(spec, config, extents, strips)


def _rows_of_warp(spec: StencilSpec, config: Fused, extents: Extents, strips: int) -> int:
    """How many rows a warp passes through in one of so many strips, those that its steps use up too.

    Above the first row there are none, unless rows wrap.
    """
    reach, rows = mirrored_reach_of(spec), extents["rows"]
    own = -(-rows // max(strips, 1))
    above = config.steps * reach.up if image_of(spec).boundaries[0] == "wrap" else rows - own
    return own + config.steps * reach.down + min(config.steps * reach.up, above)


def _issued_for_a_row(work: Work, terms: float) -> float:
    """The instructions of a lane for so many terms of a row: shuffles and addresses are counted with these."""
    found: float = _ISSUED_FOR_A_TERM * terms * work.slots**0.5
    return found


@dataclass(frozen=True)
class Columns:
    """The columns of a warp: those that it writes, and those on each side that its steps use up, in whole lanes."""

    own: int
    left: int
    right: int

    @classmethod
    def of(cls, spec: StencilSpec, config: Fused) -> Columns:
        """Every step uses up as many columns as the weights reach.

        The last warp of a row may write the last column alone. At a folded end that column is computed from what is
        mirrored, up to `right` columns to its left, even where the weights reach less far to the left. The steps before
        use up `left` columns each. The first warp of a row writes at least half of its columns, more than its steps
        use up, so the left end asks for nothing more.
        """
        reach, cells = reach_of(spec), cells_of_lane(spec, config)
        mirrored = {"mirror": reach.right, "reflect": reach.right - 1}.get(spec.ends[-1][1], 0)
        left = (config.steps - 1) * reach.left + max(reach.left, mirrored)
        left, right = (-(-used // cells) * cells for used in (left, config.steps * reach.right))
        return cls(32 * cells - left - right, left, right)

    @property
    def halo(self) -> int:
        """How many columns the fused steps use up on both sides."""
        return self.left + self.right

    @property
    def wide(self) -> int:
        """All columns of a warp."""
        return self.own + self.halo


@dataclass(frozen=True)
class Blocks:
    """How warps cover the cells: in strips of rows, and in columns of warps, of which `inner` are not at an end."""

    across: Expr
    inner: Expr
    strips: Expr

    @classmethod
    @lru_cache(512)
    def of(cls, spec: StencilSpec, config: Fused) -> Blocks:
        """There are as many strips as fill the device `waves` times, if each is long beside what its ends use up."""
        reach, columns = mirrored_reach_of(spec), Columns.of(spec, config)
        across = size("cols").ceil_div(columns.own).called("across")
        # From the first column that a warp writes to the last that it reads, and what is frozen behind it.
        least_cols = columns.own + columns.right + rim_of(spec).right
        inner = ((size("cols").at_least(least_cols) - least_cols) // columns.own).called("inner_across")
        resident = size("multiprocessors") * (config.blocks_per_sm * config.waves)
        warps = (inner + (across - inner) * END_STRIPS) * images_of(spec)
        least = max(config.steps * (reach.up + reach.down), 8)
        strips = (resident // warps.at_least(1)).at_most(size("rows") // least).at_least(1)
        return cls(across, inner, strips.at_most(size("rows")).called("strips"))

    @cached_property
    def count(self) -> Expr:
        """The blocks of a grid. Those at the ends of the rows have shorter strips, so there are more of them."""
        return self.strips * (self.inner + (self.across - self.inner) * END_STRIPS)


def too_narrow(spec: StencilSpec, config: Fused) -> str | None:
    """Why the columns of a warp are too few for its steps; None if they are not."""
    columns = Columns.of(spec, config)
    if 2 * columns.halo > columns.wide:
        rule = f"more than half of the {columns.wide} columns of a warp"
        return f"the halo of {config.steps} steps takes {columns.halo} columns, {rule}"
    if rim_of(spec).left > columns.own - columns.left:
        return "the frozen cells at the left end would reach into the second warp of a row"
    return None


@once_a_problem
def beyond_counts(spec: StencilSpec, extents: Extents) -> str | None:
    """Why sizes cannot be counted in 32 bits, or mirrored; None if they can."""
    reach, image = mirrored_reach_of(spec), image_of(spec)
    for axis, boundary, far in zip(image.axes, image.boundaries, (reach.up, reach.side), strict=True):
        least = far + (boundary == "mirror") if boundary in ("reflect", "mirror") else 0
        if 0 < extents[axis] < least:
            return f"{extents[axis]} {axis} are fewer than the {least} that are mirrored at their ends"
        if extents[axis] > MAX_EXTENT:
            return f"it counts {axis} in 32 bits"
    return None


def stream_inputs(spec: StencilSpec, config: Fused) -> Mapping[str, object]:
    """The reach with what a mirror adds, the columns that steps use up, and how rows are divided into strips."""
    reach, columns = mirrored_reach_of(spec), Columns.of(spec, config)
    return {
        "reach": reach,
        "lines": window_lines(image_of(spec), reach),
        "terms": row_tables(image_of(spec), reach),
        "neighbours": tuple(neighbours_of_rows(spec, reach)),
        "halo_left": columns.left,
        "halo_right": columns.right,
        "end_strips": END_STRIPS,
        "edge_cost": EDGE_COST,
    }


def edges_of_streams(spec: StencilSpec, config: Fused, ahead: int, short_steps: int = 0) -> Iterator[Extents]:
    """Sizes that leave the last columns few cells, or all but few; one has inner rows and columns, and so few images.

    Args:
        spec: what is computed.
        config: how steps are fused.
        ahead: rows that are on their way.
        short_steps: of a launch of fewer; 0: there is none.
    """
    reach, rim, own = mirrored_reach_of(spec), rim_of(spec), Columns.of(spec, config).own
    few = reach.up + 2
    ends = config.steps * (reach.up + reach.down) + rim.up + rim.down + 2 * ahead
    rows = (few, few + 1, few, ends + ahead + 1)
    steps = (config.steps, config.steps + short_steps, config.steps - 1, config.steps + 1)
    return edge_problems(spec, (2 * own + 1, own + 2, 2 * own - 1, 3 * own), rows, steps, planes=(3, 4, 1, 2))


def plan_of_streams(spec: StencilSpec, config: Fused, threads_per_block: int, short_steps: int = 0) -> Plan:
    """The plan of launches whose blocks stream down columns; some may compute `short_steps`."""
    blocks = Blocks.of(spec, config)

    def sweep(source: str, target: str, in_pitch: Expr) -> Launch:
        return Launch(
            grid=blocks_of_images(spec, blocks.count),
            block=(threads_per_block, 1, 1),
            arguments=(source, target, *numbers(spec, in_pitch), (U32, blocks.strips), (U32, blocks.inner)),
        )

    def rest(source: str, target: str, in_pitch: Expr, steps: Expr) -> Launch:
        whole = sweep(source, target, in_pitch)
        return Launch(whole.grid, whole.block, (*whole.arguments, (U32, steps)), entry="_rest")

    def fewer(source: str, target: str, in_pitch: Expr) -> Launch:
        return replace(sweep(source, target, in_pitch), entry="_short")

    short = Short(short_steps, fewer) if short_steps else None
    return stepping(spec, sweep, fused=config.steps, short=short, rest=rest)


def registers(spec: StencilSpec, config: TemporalConfig) -> int:
    """How many a thread needs, by a rule fitted to what NVRTC 13.0 used for sm_90 without a spill.

    Those of the sums that levels hold, an eighth more, addresses and the cells of a row on their way.
    """
    words = spec.accumulator.size // 4
    reach = mirrored_reach_of(spec)
    held = config.steps * (reach.high - 1) * cells_of_lane(spec, config) * words
    return 48 + held * 9 // 8 + 64 * (config.vectors - 1) + 2 * max(reach.side - 1, 0) * words


@lru_cache(512)
def _registers(spec: StencilSpec, config: TemporalConfig) -> int:
    return min(registers(spec, config), most_registers(config))


def most_registers(config: TemporalConfig) -> int:
    """How many registers a thread may have if so many warps are to fit on a multiprocessor."""
    return max_registers_per_thread(config.warps_per_sm)


def cells_of_lane(spec: StencilSpec, config: Fused) -> int:
    """Cells next to each other in a lane."""
    return config.vectors * cells_of_vector(spec)
