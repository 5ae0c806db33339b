"""Fused steps of one axis: each warp holds a segment of the line over several time steps, in registers.

A warp loads a segment and the cells that its steps use up on both sides, which neighbouring warps compute too, and
needs its neighbours' cells by shuffles alone. A step costs no memory: many cost what one sweep does, until the
arithmetic takes longer. The idea is that of overlapped tiling (Krishnamoorthy et al., PLDI 2007; Holewinski et al.,
ICS 2012).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from typing_extensions import override

from gen.arch import SHUFFLES_PER_CLOCK, WARP
from gen.dtypes import U32
from gen.families.base import STATIC_SHARED_BYTES, Extents, Launch, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.estimates import Demand, Least
from gen.families.expr import ONE, Expr, constant, size
from gen.families.stencil.algorithms.common import (
    VECTOR_BYTES,
    StencilAlgorithm,
    beyond_axes,
    cells_of_vector,
    ends_differ,
    numbers,
    reach_of,
    rim_of,
    stepping,
)
from gen.families.stencil.algorithms.demands import (
    SHUFFLE,
    demand_of_steps,
    least_of_steps,
    steps_of_launch,
    work_of,
)
from gen.families.stencil.shapes import edge_extents, edge_problems
from gen.families.stencil.spec import StencilSpec

MAX_CELL_REGISTERS = (
    64  # registers of cells: with these NVRTC 13.0 used up to 154 of 255 for sm_90, with 128 all of them
)
CELLS_AT_ONCE = 16  # of a lane on their way, where a segment moves cell by cell
# In additions of f32:
_ROUNDING = 2  # a cell that is rounded to f16, and back, two at once
_LOOP = 4  # a step's counter and branches
_CLOCKS_OF_ONE_WARP = 0.55  # for an instruction of a warp that has a scheduler for itself


@dataclass(frozen=True, kw_only=True)
class OverlappedConfig(Config):
    """How long a segment is, how many a block has, and how many steps a launch fuses."""

    vectors: int = tunable("v", (2, 4, 8, 16), base=8, help="consecutive 16-byte vectors per lane")
    warps: int = tunable("w", (2, 4, 8), base=4, help="warps per block, one segment of the line each")
    steps: int = tunable("t", (4, 8, 16, 24, 48), base=8, help="time steps fused per launch; more need a wider halo")

    def illegal(self) -> str | None:
        """The segments must fit in static shared memory."""
        needed = self.warps * self.vectors * 32 * 16
        if needed > STATIC_SHARED_BYTES:
            return f"its segments need {needed} bytes; static shared memory has at most {STATIC_SHARED_BYTES}"
        return None


class Overlapped(StencilAlgorithm[OverlappedConfig]):
    """Computes several time steps of one axis in one launch."""

    name = "overlapped"
    template = "stencil/overlapped.cu.jinja"
    summary = (
        "Each warp keeps a segment of the line in registers over several time steps. Neighbours come by shuffles, and "
        "segments overlap by the halo of the steps."
    )
    config = OverlappedConfig

    def illegal(self, spec: StencilSpec, config: OverlappedConfig) -> str | None:
        """The spec must have one axis, a segment exceed what its steps use up, and a lane hold what is near an end."""
        if found := beyond_axes(spec, 1) or ends_differ(spec):
            return found
        reach, rim, cells = reach_of(spec), rim_of(spec), _cells(spec, config)
        near = max(reach.side + (spec.boundary == ("mirror",)), rim.left, rim.right)
        if near > cells:
            return f"a lane has {cells} cells, and the {near} cells next to an end must belong to one lane"
        used = sum(_halos(spec, config))
        if 2 * used > 32 * cells:
            return f"the halo of {config.steps} steps takes {used} of the {32 * cells} cells of a warp, more than half"
        return None

    def unsearched(self, spec: StencilSpec, config: OverlappedConfig) -> str | None:
        """A lane's cells must leave registers for the rest."""
        cells = _cells(spec, config)
        held = cells * spec.accumulator.size // 4
        if held > MAX_CELL_REGISTERS:
            rule = f"more than {MAX_CELL_REGISTERS} leave too few for the rest"
            return f"a lane's {cells} cells take {held} registers; {rule}"
        return None

    @override
    def edge_cases(self, spec: StencilSpec, config: OverlappedConfig) -> Iterator[Extents]:
        halos = sum(_halos(spec, config))
        own = 32 * _cells(spec, config) - halos
        first = 0 if spec.boundary == ("wrap",) else halos
        one, two, *others = edge_extents(own, first)
        # Of several blocks, the last of which has one cell.
        cols = (first + config.warps * own + 1, two, *others) if config.warps > 2 else (one, two, *others)
        return edge_problems(spec, cols, steps=(config.steps + 1, config.steps, config.steps, config.steps - 1))

    def inputs(self, spec: StencilSpec, config: OverlappedConfig) -> Mapping[str, object]:
        """How many cells the fused steps use up on both sides."""
        halo_left, halo_right = _halos(spec, config)
        return {"halo_left": halo_left, "halo_right": halo_right, "cells_at_once": CELLS_AT_ONCE}

    @override
    def plan(self, spec: StencilSpec, config: OverlappedConfig) -> Plan:
        blocks = _blocks(spec, config)

        def rest(source: str, target: str, in_pitch: Expr, steps: Expr) -> Launch:
            return Launch(
                grid=(blocks, ONE, ONE),
                block=(32 * config.warps, 1, 1),
                arguments=(source, target, *numbers(spec, in_pitch), (U32, steps)),
            )

        def sweep(source: str, target: str, in_pitch: Expr) -> Launch:
            return rest(source, target, in_pitch, constant(config.steps))

        return stepping(spec, sweep, fused=config.steps, rest=rest)

    @override
    def demand(
        self, spec: StencilSpec, config: OverlappedConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        """A warp brings its segment, takes the steps that a launch has, and writes it."""
        work, steps = work_of(spec, limits), steps_of_launch(extents, config.steps)
        cells, (a_step, moved) = _cells(spec, config), _instructions(spec, config, limits)
        segments = WARP * config.vectors * VECTOR_BYTES
        # The segments at the ends of a line move cell by cell, but where all vectors are aligned.
        aligned = gcd(alignment, extents["cols"] * spec.dtype.size, VECTOR_BYTES) == VECTOR_BYTES
        by_cells = 0 if aligned and spec.boundary != ("wrap",) else cells / CELLS_AT_ONCE
        return demand_of_steps(
            spec, extents, limits, fused=config.steps, blocks=_blocks(spec, config).at(extents),
            threads_per_block=WARP * config.warps, bytes_in_flight=VECTOR_BYTES * config.vectors,
            rounds=1 + by_cells, clocks=(steps * a_step + moved) * _CLOCKS_OF_ONE_WARP,
            instructions=steps * a_step + moved, written=a_step + moved,
            registers=min(40 + 2 * cells * work.words, 255), shared_bytes=config.warps * segments,
        )  # fmt: skip

    @override
    def least(self, spec: StencilSpec, config: OverlappedConfig, limits: Limits) -> Least:
        a_step, moved = _instructions(spec, config, limits)
        return least_of_steps(a_step / _cells(spec, config), a_step + moved, config.steps)

    def bytes_in_flight(self, spec: StencilSpec, config: OverlappedConfig) -> int:
        """All cells of a lane are loaded before the first step."""
        return VECTOR_BYTES * config.vectors

    def arithmetic(self, spec: StencilSpec, config: OverlappedConfig, extents: Extents, limits: Limits) -> float:
        """The multiply-adds and shuffles of the fused steps, and the branch that closes their loop."""
        reach, words = reach_of(spec), spec.accumulator.size // 4
        stored = _ROUNDING if spec.dtype != spec.accumulator else 0
        cells = _cells(spec, config) * (len(spec.taps) * limits.slots(spec.accumulator) + stored)
        shuffled = limits.f32_per_clock / SHUFFLES_PER_CLOCK * words * (reach.left + reach.right)
        a_step = cells + shuffled + _LOOP
        return a_step * steps_of_launch(extents, config.steps)


@lru_cache(512)
def _instructions(spec: StencilSpec, config: OverlappedConfig, limits: Limits) -> tuple[float, float]:
    """Of a lane for its cells: in a step, and to load and to store them."""
    work, cells = work_of(spec, limits), _cells(spec, config)
    shuffled = SHUFFLE * work.words * (work.reach.left + work.reach.right)
    a_step = cells * (work.terms * work.slots + _ROUNDING * work.converted) + shuffled + _LOOP
    return a_step, config.vectors * 30 + cells * work.converted * 2


def _cells(spec: StencilSpec, config: OverlappedConfig) -> int:
    return config.vectors * cells_of_vector(spec)


def _halos(spec: StencilSpec, config: OverlappedConfig) -> tuple[int, int]:
    """How many cells the fused steps use up to the left and to the right, in full vectors."""
    reach, rim, vector = reach_of(spec), rim_of(spec), cells_of_vector(spec)
    left, right = config.steps * reach.left, config.steps * reach.right + max(rim.right - reach.right, 0)
    return -(-left // vector) * vector, -(-right // vector) * vector


@lru_cache(512)
def _blocks(spec: StencilSpec, config: OverlappedConfig) -> Expr:
    """The blocks of a launch. Segments begin as far apart as a warp writes cells; the last one ends with the array."""
    segment = 32 * _cells(spec, config)
    own = segment - sum(_halos(spec, config))
    cols = size("cols")
    if spec.boundary == ("wrap",):
        segments = cols.ceil_div(own)
    else:
        segments = (cols.at_least(segment) - segment).ceil_div(own) + cols.at_most(1)
    return segments.called("segments").ceil_div(config.warps)
