"""Fused steps of two axes that the warps of a block share: each row passes the levels of one, then those of the next.

A warp has few levels, so its lanes have registers for many cells, and the columns that the steps use up are a smaller
part of them: fewer shuffles a cell, fewer columns computed twice, and more steps in a launch. Rows are handed on
through shared memory, `rows` at a time, with one barrier of the block for them. Terms are added as `temporal` adds
them, by the same text, so both give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from typing_extensions import override

from gen.arch import STATIC_SHARED_BYTES, WARP, max_registers_per_thread
from gen.families.base import Extents, Limits, Plan, with_limits
from gen.families.config import Config, tunable
from gen.families.estimates import Demand
from gen.families.stencil.algorithms.common import (
    VECTOR_BYTES,
    StencilAlgorithm,
    beyond_axes,
    ends_differ,
    image_of,
    images_of,
    mirrored_reach_of,
)
from gen.families.stencil.algorithms.demands import (
    LOAD,
    SHUFFLE,
    demand_of_steps,
    moves_vectors,
    steps_of_launch,
    work_of,
)
from gen.families.stencil.algorithms.temporal import (
    END_STRIPS,
    Blocks,
    beyond_counts,
    cells_of_lane,
    edges_of_streams,
    plan_of_streams,
    stream_inputs,
    too_narrow,
)
from gen.families.stencil.spec import StencilSpec

_MAX_UNROLLED_TERMS = 1600  # of a turn, all written out: more, and the loop leaves the instruction cache
# Clocks of a warp, by a fit to times on an H100 (bench/estimates-asked-stencil-h100.json, bench/depths-h100.json): of a
# turn until all warps have come to the barrier, of a row, of each term of a lane and each word from another lane.
_BARRIER_CLOCKS, _CLOCKS_A_ROW, _CLOCKS_A_TERM, _CLOCKS_A_SHUFFLE = 66.0, 194.0, 1.37, 3.65
# The same where something lies outside: times as many, and of each cell that is compared with the ends of its row, of a
# line that is touched where cells move one by one, and of a cell whose place is wrapped.
_OUTSIDE, _CLOCKS_A_TEST, _CLOCKS_A_LINE, _CLOCKS_A_WRAPPED = 1.9, 1.0, 0.5, 20.0
# Instructions of a row beside its terms, and of a term beside an addition of f32, by the same fit.
_ISSUED_FOR_A_ROW, _ISSUED_FOR_A_TERM = 15.0, 0.36
_ROUNDS = 2.0  # of loads, until the first rows have come
_LINE_BYTES = 128


@dataclass(frozen=True, kw_only=True)
class PipelinedConfig(Config):
    """How many columns a block has, how its warps share the steps, and how they hand rows on."""

    vectors: int = tunable("v", (2, 4), base=4, help="consecutive 16-byte vectors per lane")
    warps: int = tunable("w", (2, 4, 8), base=4, help="warps per block; each computes other time steps of a launch")
    levels: int = tunable("l", (1, 2, 4), base=4, help="time steps per warp; a launch fuses warps x levels")
    rows: int = tunable("u", (1, 2, 4), base=2, help="rows between two barriers")
    turns_ahead: int = tunable("a", (2, 4), base=4, help="rows loaded ahead from global memory, as a multiple of rows")
    waves: int = tunable("n", (1, 3, 6), base=6, help="waves of blocks in a launch; with more, a block gets fewer rows")
    blocks_per_sm: int = tunable(
        "r", (2, 4), base=2, help="resident blocks per multiprocessor; more leave fewer registers per thread"
    )

    @property
    def steps(self) -> int:
        """That a launch fuses."""
        return self.warps * self.levels

    @property
    def short_steps(self) -> int:
        """Of a launch of fewer: one fewer in each warp; 0: there is none."""
        return self.warps * (self.levels - 1)

    @property
    def threads_per_block(self) -> int:
        """Of all warps of a block."""
        return WARP * self.warps

    @property
    def rows_ahead(self) -> int:
        """On their way to shared memory, for the first warp."""
        return self.turns_ahead * self.rows

    @property
    def shared_bytes(self) -> int:
        """Of a block: the rows on their way, and those of two turns for each other warp."""
        return VECTOR_BYTES * WARP * self.vectors * (self.rows_ahead + 2 * self.rows * (self.warps - 1))

    def illegal(self) -> str | None:
        """Shared memory is static."""
        if self.shared_bytes > STATIC_SHARED_BYTES:
            return f"its rows need {self.shared_bytes} bytes; static shared memory has at most {STATIC_SHARED_BYTES}"
        return None


class Pipelined(StencilAlgorithm[PipelinedConfig]):
    """Computes several time steps of two axes in one launch, by warps that each compute some of them."""

    name = "pipelined"
    template = "stencil/pipelined.cu.jinja"
    summary = (
        "Each block streams down its columns. Each of its warps takes a row through some of the time steps and hands "
        "it on to the next warp through shared memory."
    )
    reassociates = True
    config = PipelinedConfig
    by_images = True

    def illegal(self, spec: StencilSpec, config: PipelinedConfig) -> str | None:
        """The spec must have two axes, and a block be wider than what its fused steps use up."""
        return beyond_axes(image_of(spec), 2) or ends_differ(spec) or too_narrow(spec, config)

    def unsearched(self, spec: StencilSpec, config: PipelinedConfig) -> str | None:
        """The instruction cache must hold a turn, and registers the rows of a warp's levels."""
        words = spec.accumulator.size // 4
        terms = spec.operations * config.levels * config.rows * cells_of_lane(spec, config) * words
        if terms > _MAX_UNROLLED_TERMS:
            return f"its unrolled loop has {terms} terms; more than {_MAX_UNROLLED_TERMS} exceed the instruction cache"
        needed, allowed = registers(spec, config), most_registers(config)
        if needed > allowed:
            return f"it needs about {needed} registers per thread, and {config.blocks_per_sm} blocks leave {allowed}"
        return None

    def infeasible(self, spec: StencilSpec, config: PipelinedConfig, limits: Limits) -> str | None:
        """It needs asynchronous copies to shared memory."""
        if not limits.has_asynchronous_copies:
            return f"{limits.arch} has no asynchronous copies"
        return None

    def unsupported_extents(
        self, spec: StencilSpec, config: PipelinedConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Sizes must fit 32 bits, and a mirror image lie inside."""
        return beyond_counts(spec, extents) or super().unsupported_extents(spec, config, extents, limits)

    @override
    def demand(
        self, spec: StencilSpec, config: PipelinedConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        """Blocks at the ends of rows look at what lies outside, and where rows are not aligned all blocks do."""
        planned, sizes, work = Blocks.of(spec, config), with_limits(extents, limits), work_of(spec, limits)
        strips, inner = planned.strips.at(sizes), planned.inner.at(sizes)
        ends, depth, rows = planned.across.at(sizes) - inner, steps_of_launch(extents, config.steps), extents["rows"]
        aligned = moves_vectors(spec, extents, alignment)
        inside, outside = _rows_of_levels(spec, config, limits, bool(aligned))
        # Of inner columns, the share of rows that are treated as if something that they read lay outside.
        reach = work.mirrored
        near = min((config.steps * (reach.high - 1) + 2 * config.rows_ahead) / max(rows, 1), 1.0) if aligned else 1.0
        # The warps with most levels keep the others waiting.
        most, mean = min((depth + config.warps - 1) / config.warps, config.levels), depth / config.warps
        blocks = max(inner * strips + ends * strips * END_STRIPS, 1)
        clocks = issued = 0.0
        for columns, parts, share in ((inner, strips, near), (ends, strips * END_STRIPS, 1.0)):
            own = -(-rows // max(parts, 1))
            # A block passes through rows that its steps use up, too; above the first there are none.
            passed = own + config.steps * reach.down + min(config.steps * reach.up, max(rows - own, 0))
            a_row = share * outside.clocks(most) + (1 - share) * inside.clocks(most) + _BARRIER_CLOCKS / config.rows
            clocks = max(clocks, min(columns, 1) * (passed + config.rows * (config.warps - 1)) * a_row)
            issued += columns * parts * passed * (share * outside.issued(mean) + (1 - share) * inside.issued(mean))
        return demand_of_steps(
            spec, extents, limits, fused=config.steps, blocks=blocks * images_of(spec).at(sizes),
            threads_per_block=config.threads_per_block,
            bytes_in_flight=VECTOR_BYTES * config.vectors * config.rows_ahead // config.warps,
            rounds=_ROUNDS, clocks=clocks, instructions=issued / blocks,
            written=inside.issued(config.levels) * config.rows,
            registers=_registers(spec, config), shared_bytes=config.shared_bytes,
        )  # fmt: skip

    def edge_cases(self, spec: StencilSpec, config: PipelinedConfig) -> Iterator[Extents]:
        """Sizes that leave the last block of a row few of its columns, or all but few."""
        return edges_of_streams(spec, config, config.rows_ahead, config.short_steps)

    def inputs(self, spec: StencilSpec, config: PipelinedConfig) -> Mapping[str, object]:
        """The reach with what a mirror adds, the columns that steps use up, and how rows are divided into strips."""
        return {**stream_inputs(spec, config), "short_steps": config.short_steps}

    @override
    def plan(self, spec: StencilSpec, config: PipelinedConfig) -> Plan:
        return plan_of_streams(spec, config, config.threads_per_block, config.short_steps)

    def bytes_in_flight(self, spec: StencilSpec, config: PipelinedConfig) -> int:
        """The rows that are on their way to shared memory, of the first warp alone: a thread's share of them."""
        return VECTOR_BYTES * config.vectors * config.rows_ahead // config.warps

    @override
    def arithmetic(self, spec: StencilSpec, config: PipelinedConfig, extents: Extents, limits: Limits) -> float:
        """The terms of the rows of all turns, by the levels of one warp."""
        return _issued_for_a_row(spec, config, extents, limits) * _turns(spec, config, extents, limits) * config.rows


def _turns(spec: StencilSpec, config: PipelinedConfig, extents: Extents, limits: Limits) -> int:
    """How often a block goes from one barrier to the next, filling and emptying the pipeline too."""
    strips = Blocks.of(spec, config).strips.at(with_limits(extents, limits))
    rows = -(-extents["rows"] // max(strips, 1)) + config.steps * (mirrored_reach_of(spec).high - 1)
    return -(-rows // config.rows) + config.warps - 1


def _issued_for_a_row(spec: StencilSpec, config: PipelinedConfig, extents: Extents, limits: Limits) -> float:
    """The instructions of a lane for a row, of all levels of its warp."""
    work, cells = work_of(spec, limits), cells_of_lane(spec, config)
    shuffled = SHUFFLE * 2 * work.mirrored.side * work.words
    a_level = work.terms * cells * work.slots + shuffled + cells * work.converted
    levels = steps_of_launch(extents, config.steps) / config.warps
    return levels * a_level + 2 * LOAD * config.vectors


@dataclass(frozen=True)
class _Row:
    """What a row takes: clocks of a warp and instructions of a lane, and how many more for each of its levels."""

    clocks_of_row: float
    clocks_of_level: float
    issued_of_row: float
    issued_of_level: float

    def clocks(self, levels: float) -> float:
        """Of so many levels."""
        return self.clocks_of_row + levels * self.clocks_of_level

    def issued(self, levels: float) -> float:
        """Likewise."""
        return self.issued_of_row + levels * self.issued_of_level


@lru_cache(512)
def _rows_of_levels(spec: StencilSpec, config: PipelinedConfig, limits: Limits, aligned: bool) -> tuple[_Row, _Row]:
    """A row whose neighbours lie inside, and one of which some lie outside.

    The levels of the second hold the rows of a window, not sums, and look at the neighbours of all of them.
    """
    work, cells, cols_outside = work_of(spec, limits), cells_of_lane(spec, config), image_of(spec).boundaries[-1]
    terms = work.terms * cells * work.words
    shuffled, all_shuffled = 2 * work.mirrored.side * work.words, work.shuffled * work.words
    slots = _ISSUED_FOR_A_TERM * terms * work.slots**0.5
    inside = _Row(
        _CLOCKS_A_ROW, _CLOCKS_A_TERM * terms + _CLOCKS_A_SHUFFLE * shuffled,
        _ISSUED_FOR_A_ROW, slots + SHUFFLE * shuffled,
    )  # fmt: skip
    by_cells = cells if cols_outside == "wrap" or not aligned else 0
    lines = by_cells * max(WARP * cells * spec.dtype.size / _LINE_BYTES, 1.0)
    tested = 0.0 if cols_outside in ("wrap", "frozen") else (cells + work.mirrored.side) * work.mirrored.high
    moved = _CLOCKS_A_LINE * lines + (_CLOCKS_A_WRAPPED * by_cells if cols_outside == "wrap" else 0.0)
    outside = _Row(
        _OUTSIDE * _CLOCKS_A_ROW + moved,
        _OUTSIDE * (_CLOCKS_A_TERM * terms + _CLOCKS_A_SHUFFLE * all_shuffled) + _CLOCKS_A_TEST * tested,
        _OUTSIDE * _ISSUED_FOR_A_ROW + 2 * LOAD * lines / config.warps, _OUTSIDE * (slots + SHUFFLE * all_shuffled),
    )  # fmt: skip
    return inside, outside


@lru_cache(512)
def _registers(spec: StencilSpec, config: PipelinedConfig) -> int:
    """How many a thread has."""
    return min(registers(spec, config), most_registers(config))


def registers(spec: StencilSpec, config: PipelinedConfig) -> int:
    """How many a thread needs, by a rule fitted to what NVRTC 13.0 used for sm_90 without a spill.

    Those of the sums that the levels of a warp hold, of the cells of a row, and of addresses.
    """
    words = spec.accumulator.size // 4
    reach = mirrored_reach_of(spec)
    row = cells_of_lane(spec, config) * words
    return 64 + config.levels * (reach.high - 1) * row * 5 // 4 + row + 2 * max(reach.side - 1, 0) * words


def most_registers(config: PipelinedConfig) -> int:
    """How many registers a thread may have if so many blocks are to fit on a multiprocessor."""
    return max_registers_per_thread(config.blocks_per_sm * config.warps)
