"""Blocks that march through planes: every cell is loaded once, by copies that are on their way while others are used.

A plane is in shared memory while the block computes with it. It adds its terms to the sums of all planes whose weights
reach it, which stay in registers, so the terms of a cell come in the order of the weights, and each plane is looked at
once. Down the rows cells come from shared memory, along them from the next lanes by shuffles; there is one barrier a
plane.

A launch may fuse steps. Each is a level of the block: it computes with the plane that the level before has finished in
the turn before, so that all levels work between the same two barriers. A warp keeps its rows of that plane in
registers; only those at its edges, which other warps look at, go through shared memory. What the steps use up around a
block's cells, its neighbours compute too.

Where a cell looks at itself alone in the last plane that it reads, as in every star, a level needs nothing of other
warps to complete the plane before, and may hand it on to the next level in the same turn. So a level holds a plane of
sums less, and lags one plane less, but levels wait for each other. Frozen ends, which take registers, do so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from typing_extensions import override

from gen.arch import (
    MAX_GRID_X,
    MAX_SHARED_BYTES_PER_BLOCK,
    MAX_THREADS_PER_BLOCK,
    PARTITIONS,
    WARP,
    max_registers_per_thread,
)
from gen.dtypes import F32, U32, StoreModifier
from gen.families.base import Extents, Launch, Limits, Plan, with_limits
from gen.families.config import Config, store_modifier, tunable
from gen.families.estimates import COSTS, Demand, Least
from gen.families.expr import ONE, Expr, constant, made_once, size
from gen.families.plans import Tiles, beyond_shared, idle_multiprocessors
from gen.families.stencil.algorithms.common import (
    VECTOR_BYTES,
    StencilAlgorithm,
    beyond_axes,
    cells_of_vector,
    ends_differ,
    neighbours_of_loaded_rows,
    numbers,
    reach_of,
    stepping,
    too_small_for_warps,
)
from gen.families.stencil.algorithms.demands import (
    SHUFFLE,
    demand_of_steps,
    edge_share,
    least_of_steps,
    moves_vectors,
    steps_of_launch,
    work_of,
)
from gen.families.stencil.shapes import edge_cases_of
from gen.families.stencil.spec import StencilSpec

FUSED_BOUNDARIES = ("constant", "frozen", "wrap")  # whose cells outside need no others of the same step
_LEAST_PLANES, _MANY = 8, 4  # of a block, and how many times as many are many
_VERY_MANY_PLANES, _PLANES_OF_VERY_MANY = 4096, 64  # of an array, and of a block then: 32 bits count those of a block
_MOST_COVERED = 1.2  # columns of blocks of several warps across, for each column of a row
_OTHER_REGISTERS = 62  # beside cells and sums
_OTHER_REGISTERS_OF_LEVELS, _REGISTERS_OF_FROZEN = 45, 12  # the same where steps are fused
_LEAST_RING_TO_HAND_ON = 3
# By a fit to times on an H200 (bench/volumes-stencils-h200.json) and an H100 (128x128x144 cells in
# bench/estimates-stencil-h100.json, and bench/volumes-steps-h100.json). Clocks: of a turn until all warps have come to
# the barrier, of an instruction of a warp, until a plane that was asked for has come, and of a level that hands on.
_BARRIER_CLOCKS, _CLOCKS_AN_INSTRUCTION, _PLANE_CLOCKS, _CLOCKS_TO_HAND_ON = 180.0, 2.2, 1170.0, 216.0
# Instructions: of a turn, of a level, of a vector from shared memory, of one that is asked for, of a row that is stored
# or handed to the next level. Terms are issued faster than the mean: one of each scheduler in a clock.
_ISSUED_FOR_A_TURN, _ISSUED_FOR_A_LEVEL, _ISSUED_FOR_A_VECTOR, _ISSUED_FOR_A_COPY = 31.0, 6.4, 2.8, 7.2
_ISSUED_FOR_A_ROW, _ISSUED_FOR_A_TERM = 4.0, COSTS.issued_per_clock / PARTITIONS
_IDLE_SHARE = 0.75  # of what the last wave leaves idle: its blocks are faster where they are fewer
# Clocks of a cell that moves alone to a folded place, and more of one that is too small to be copied ahead: by times of
# unaligned rows, which move all of their cells so (bench/estimates-stencil-h100.json).
_CLOCKS_A_FOLDED_CELL, _CLOCKS_A_SMALL_CELL = 310.0, 750.0
_ROUNDS = 2.0  # of loads, until the first plane has come
_MORE_REGISTERS = 8  # than the rule says, which NVRTC uses where there is room
_MAX_TERMS_OF_LANE = 2048  # of a plane, all written out: more, and the loop leaves the instruction cache


@dataclass(frozen=True, kw_only=True)
class MarchConfig(Config):
    """How large a block's part of a plane is, how many blocks share the planes, how many planes are on their way."""

    warps: int = tunable("w", (4, 8, 12, 16), base=8, help="warps of a block down the rows (y)")
    warps_across: int = tunable("x", (1, 2, 4), base=1, off=1, help="warps of a block along a row (x)")
    rows: int = tunable("u", (1, 2, 3, 4), base=2, help="rows per warp in each plane; more need more registers")
    blocks_per_sm: int = tunable(
        "n", (1, 2, 3, 4), base=2, help="resident blocks per multiprocessor; more leave fewer registers per thread"
    )
    waves: int = tunable(
        "r", (1, 2, 3, 4, 5, 6, 8), base=2, help="waves of blocks in a launch; with more, a block gets fewer planes"
    )
    ring: int = tunable("s", (2, 3, 4, 6), base=3, help="planes in shared memory; a larger ring loads further ahead")
    steps: int = tunable("t", (1, 2, 3, 4), base=1, off=1, help="time steps fused per launch")
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)

    @property
    def threads_per_block(self) -> int:
        """Of all warps."""
        return WARP * self.warps * self.warps_across


class March(StencilAlgorithm[MarchConfig]):
    """Computes one time step or several in a launch; a block loads each plane of its cells once."""

    name = "march"
    template = "stencil/march.cu.jinja"
    summary = (
        "Each block marches through planes and loads several of them ahead into shared memory. The unfinished sums of "
        "all planes that read the current one stay in registers."
    )
    config = MarchConfig

    def illegal(self, spec: StencilSpec, config: MarchConfig) -> str | None:
        """The spec must have three axes, a block outlast its steps, and its planes fit in shared memory."""
        if found := beyond_axes(spec, 3) or ends_differ(spec):
            return found
        if (cells := config.rows * cells_of_vector(spec)) > WARP:
            return f"a lane has {cells} cells of a plane; its bit mask has {WARP} bits"
        block = _Block.of(spec, config)
        needed, most = config.blocks_per_sm * block.shared_bytes, MAX_SHARED_BYTES_PER_BLOCK
        if needed > most:
            return f"the planes of its resident blocks need {needed} bytes of shared memory; there are at most {most}"
        if config.threads_per_block > MAX_THREADS_PER_BLOCK:
            return f"a block would have {config.threads_per_block} threads; CUDA allows at most {MAX_THREADS_PER_BLOCK}"
        if config.steps == 1:
            return None
        if config.ring < _LEAST_RING_TO_HAND_ON and hands_on(spec, config):
            return f"each fused step reads two planes in shared memory, and a ring of {config.ring} loads one ahead"
        if config.warps_across > 1:
            return "with fused steps all warps of a block lie down the rows: warps_across must be 1"
        for axis, boundary in zip(spec.axes, spec.boundaries, strict=True):
            if boundary not in FUSED_BOUNDARIES:
                return f"fused steps do not support the boundary {boundary} of {axis}"
        if min(block.own_rows, block.own_lanes) < 1:
            return f"the halo of {config.steps} steps leaves a block no cells to write"
        if max(reach_of(spec).up, reach_of(spec).down) > config.rows:
            return f"the weights reach over more than the {config.rows} rows of the next warp"
        return None

    def unsearched(self, spec: StencilSpec, config: MarchConfig) -> str | None:
        """Registers must suffice for all sums, the code not be too long, and half of what is computed be written."""
        warps = config.warps * config.warps_across * config.blocks_per_sm
        needed, allowed = registers(spec, config), max_registers_per_thread(warps)
        if needed > allowed:
            return f"it needs about {needed} registers a thread, and {warps} warps leave {allowed}"
        if len(spec.taps) * config.rows * config.steps * cells_of_vector(spec) > _MAX_TERMS_OF_LANE:
            return "its unrolled code would be too long for the instruction cache"
        block = _Block.of(spec, config)
        if config.steps > 1 and 2 * block.own_rows * block.own_lanes < block.plane_rows * WARP:
            return "the halo of its steps is more than half of what a block computes"
        return None

    def infeasible(self, spec: StencilSpec, config: MarchConfig, limits: Limits) -> str | None:
        """It needs asynchronous copies to shared memory, and a block's planes must fit there."""
        if not limits.has_asynchronous_copies:
            return f"{limits.arch} has no asynchronous copies"
        return beyond_shared(_Block.of(spec, config).shared_bytes, limits)

    def unsupported_extents(
        self, spec: StencilSpec, config: MarchConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """A grid must hold its blocks, of which there are no more than of one plane each."""
        if _blocks(spec, config).tiles.at(extents) * extents["planes"] <= MAX_GRID_X:
            return beyond_shared(_Block.of(spec, config).shared_bytes, limits)
        return super().unsupported_extents(spec, config, extents, limits)

    def slow_path_reason(
        self, spec: StencilSpec, config: MarchConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """Its warps need as many cells as those of `stream`, its blocks planes to march through, a device blocks."""
        if (planes := extents["planes"]) < reach_of(spec).deep:
            return f"{planes} planes are too few: each cell reads from {reach_of(spec).deep}"
        least = _least_planes(spec, config) * (1 if config.steps == 1 else 2)
        blocks = _blocks(spec, config).tiles.at(extents) * max(planes // least, 1)
        if found := idle_multiprocessors(blocks, limits):
            return found
        wide, cols = _Block.of(spec, config).own_lanes * cells_of_vector(spec), extents["cols"]
        if config.warps_across > 1 and -(-cols // wide) * wide > _MOST_COVERED * cols:
            return f"blocks of {wide} columns do not fit rows of {cols}: too many threads lie outside"
        if not moves_vectors(spec, extents, alignment):
            return f"its vector loads need rows that are aligned to {VECTOR_BYTES} bytes"
        return too_small_for_warps(spec, extents)

    @override
    def edge_cases(self, spec: StencilSpec, config: MarchConfig) -> Iterator[Extents]:
        two_blocks = 2 * _least_planes(spec, config) - 1
        return edge_cases_of(spec, _Block.of(spec, config).tiles(spec), two_blocks, config.steps)

    def inputs(self, spec: StencilSpec, config: MarchConfig) -> Mapping[str, object]:
        """How many neighbours are read of every row, and vectors beside a block's cells."""
        block = _Block.of(spec, config)
        return {
            "hands_on": hands_on(spec, config),
            "neighbours": neighbours_of_loaded_rows(spec, reach_of(spec), config.rows),
            "lanes_before": block.lanes_before,
            "lanes_after": block.lanes_after,
        }

    @override
    def plan(self, spec: StencilSpec, config: MarchConfig) -> Plan:
        block, count = _Block.of(spec, config), _blocks(spec, config)
        tiles, block_planes = block.tiles(spec), count.planes
        blocks = count.tiles * size("planes").ceil_div(block_planes.at_least(1))

        def sweep(source: str, target: str, in_pitch: Expr) -> Launch:
            return Launch(
                grid=(blocks, ONE, ONE),
                block=(config.threads_per_block, 1, 1),
                arguments=(
                    source,
                    target,
                    *numbers(spec, in_pitch),
                    (U32, tiles.across),
                    (U32, tiles.down),
                    (U32, block_planes),
                ),
                shared_bytes=constant(block.shared_bytes),
                across=tiles.across,
            )

        def rest(source: str, target: str, in_pitch: Expr, steps: Expr) -> Launch:
            whole = sweep(source, target, in_pitch)
            return replace(whole, arguments=(*whole.arguments, (U32, steps)), entry="_rest")

        return stepping(spec, sweep, fused=config.steps, rest=rest if config.steps > 1 else None)

    def bytes_in_flight(self, spec: StencilSpec, config: MarchConfig) -> int:
        """A thread's share of the planes that are on their way to shared memory."""
        return VECTOR_BYTES * config.rows * _planes_ahead(spec, config)

    @override
    def demand(
        self, spec: StencilSpec, config: MarchConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand | None:
        """A block takes a turn for each plane that it reads, as long as its slowest warp, or as a plane takes to come.

        What takes a slow path is not estimated: wherever that was timed, others were faster.
        """
        if self.slow_path_reason(spec, config, extents, alignment, limits) is not None:
            return None
        block, count, planes = _Block.of(spec, config), _blocks(spec, config), extents["planes"]
        written = min(max(count.planes.at(with_limits(extents, limits)), 1), planes)
        work, depth = work_of(spec, limits), steps_of_launch(extents, config.steps)
        beside = depth * (work.reach.deep - 1)
        turns = written + beside + depth - 1
        copies = -(-block.plane_rows * block.plane_lanes // config.threads_per_block)
        issued = _ISSUED_FOR_A_TURN + _ISSUED_FOR_A_COPY * copies + depth * _issued_for_a_level(spec, config, limits)
        ahead, hands = _planes_ahead(spec, config), hands_on(spec, config)
        a_turn = _BARRIER_CLOCKS + _CLOCKS_AN_INSTRUCTION * issued + (_CLOCKS_TO_HAND_ON * depth if hands else 0.0)
        if block.lanes_before + block.lanes_after and spec.boundaries[-1] in ("nearest", "reflect", "mirror"):
            a_cell = _CLOCKS_A_FOLDED_CELL + (_CLOCKS_A_SMALL_CELL if spec.dtype.size < F32.size else 0.0)
            a_turn += edge_share(extents["cols"], block.own_lanes * work.cells) * copies * work.cells * a_cell
        blocks = count.tiles.at(extents) * -(-planes // written)
        at_once = limits.multiprocessors * config.blocks_per_sm
        idle = 1 + _IDLE_SHARE * (-(-blocks // at_once) * at_once / max(blocks, at_once) - 1)
        return demand_of_steps(
            spec, extents, limits, fused=config.steps, blocks=blocks,
            threads_per_block=config.threads_per_block, bytes_in_flight=VECTOR_BYTES * config.rows * ahead,
            rounds=_ROUNDS, clocks=turns * max(a_turn, _PLANE_CLOCKS / ahead),
            instructions=idle * turns * issued, written=issued,
            registers=_registers(spec, config),
            shared_bytes=block.shared_bytes, moved_share=idle * (1 + beside / written / 2),
        )  # fmt: skip

    @override
    def least(self, spec: StencilSpec, config: MarchConfig, limits: Limits) -> Least:
        block, threads = _Block.of(spec, config), config.threads_per_block
        copies = -(-block.plane_rows * block.plane_lanes // threads)
        a_step = (_ISSUED_FOR_A_TURN + _ISSUED_FOR_A_COPY * copies) / config.steps
        a_step += _issued_for_a_level(spec, config, limits)
        high, wide = block.own_rows, block.own_lanes * work_of(spec, limits).cells
        return least_of_steps(threads * a_step / (high * wide), fused=config.steps, rounds=_ROUNDS, tile=(high, wide))


def planes_of_blocks(tiles: Expr, blocks_per_sm: int, waves: int, least: int) -> Expr:
    """How many planes a block marches through: so many that blocks fill a device, if each has `least` planes.

    Args:
        tiles: blocks that a plane takes.
        blocks_per_sm: that a multiprocessor holds at once.
        waves: how many times blocks fill the device, if each has many planes.
        least: planes of a block.
    """
    at_once = size("multiprocessors") * blocks_per_sm
    few = (at_once // tiles.at_least(1)).at_most(size("planes") // least)
    many = size("planes") // (_MANY * least)
    parts = (at_once * waves // tiles.at_least(1)).at_most(many).at_least(few).at_least(1)
    parts = parts.at_least(size("planes") // _VERY_MANY_PLANES * (_VERY_MANY_PLANES // _PLANES_OF_VERY_MANY))
    return size("planes").ceil_div(parts.called("parts")).called("block_planes")


@dataclass(frozen=True)
class _Block:
    """What a block holds of a plane: rows, lanes of vectors, and those of them that it writes.

    Attributes:
        plane_rows, plane_lanes: in shared memory.
        lanes_before, lanes_after: vectors that are read before and after those that are written.
        own_rows, own_lanes: that are written.
        shared_bytes: of the planes of the ring, and two from each level to the next.
    """

    plane_rows: int
    plane_lanes: int
    lanes_before: int
    lanes_after: int
    own_rows: int
    own_lanes: int
    shared_bytes: int

    @classmethod
    @lru_cache(512)
    def of(cls, spec: StencilSpec, config: MarchConfig) -> _Block:
        """With one step the neighbours of a block's cells are loaded, with several they are computed too."""
        reach, steps = reach_of(spec), config.steps
        rows, beside = config.warps * config.rows, reach.high - 1
        if steps == 1:
            pad = -(-reach.side // cells_of_vector(spec))
            before, after, own_rows, own_lanes = pad, pad, rows, WARP * config.warps_across
            plane_rows, lanes, edges = rows + beside, own_lanes + 2 * pad, 0
        else:
            plane_rows, lanes, edges = rows, WARP, 2 * (steps - 1) * config.warps * max(beside, 1) * WARP
            before, after = (-(-steps * far // cells_of_vector(spec)) for far in (reach.left, reach.right))
            own_rows, own_lanes = rows - steps * beside, WARP - before - after
        shared_bytes = (config.ring * plane_rows * lanes + edges) * VECTOR_BYTES
        return cls(plane_rows, lanes, before, after, own_rows, own_lanes, shared_bytes)

    def tiles(self, spec: StencilSpec) -> Tiles:
        """The cells that a block writes of each plane."""
        return Tiles(size("rows"), size("cols"), self.own_rows, self.own_lanes * cells_of_vector(spec))


class _Blocks(NamedTuple):
    """Blocks that a plane takes, and planes that each of them writes."""

    tiles: Expr
    planes: Expr


@made_once
def _blocks(spec: StencilSpec, config: MarchConfig) -> _Blocks:
    tiles = _Block.of(spec, config).tiles(spec).count
    return _Blocks(tiles, planes_of_blocks(tiles, config.blocks_per_sm, config.waves, _least_planes(spec, config)))


def _planes_ahead(spec: StencilSpec, config: MarchConfig) -> int:
    """How many are on their way to shared memory."""
    return config.ring - (2 if hands_on(spec, config) else 1)


@lru_cache(512)
def _issued_for_a_level(spec: StencilSpec, config: MarchConfig, limits: Limits) -> float:
    """The instructions of a lane for a plane of one level: its terms, and the cells of its rows and beside them."""
    work, loaded = work_of(spec, limits), config.rows + reach_of(spec).high - 1
    neighbours = neighbours_of_loaded_rows(spec, work.reach, config.rows)
    if config.steps == 1 and work.reach.side > 1:  # cells of the next lanes come as vectors
        beside = _ISSUED_FOR_A_VECTOR * sum(2 * -(-side // work.cells) for side in neighbours)
    else:
        beside = SHUFFLE * 2 * sum(neighbours) * work.words
    terms = _ISSUED_FOR_A_TERM * work.terms * config.rows * work.cells * work.slots
    moved = _ISSUED_FOR_A_VECTOR * loaded + _ISSUED_FOR_A_ROW * config.rows
    converted = (loaded + config.rows) * work.cells * work.converted
    return terms + moved + beside + converted + _ISSUED_FOR_A_LEVEL


@lru_cache(512)
def _registers(spec: StencilSpec, config: MarchConfig) -> int:
    """How many a thread has."""
    warps = config.warps * config.warps_across * config.blocks_per_sm
    return min(registers(spec, config) + _MORE_REGISTERS, max_registers_per_thread(warps))


@lru_cache(512)
def hands_on(spec: StencilSpec, config: MarchConfig) -> bool:
    """Whether a level hands its cells on in the same turn: of the last plane a cell reads one, in its own place."""
    if config.steps == 1 or spec.dtype != F32 or not any("frozen" in ends for ends in spec.ends):
        return False  # constant and wrapped ends take longer so
    back = reach_of(spec).back
    last = [offset[1:] for offset, _ in spec.taps if offset[0] == back]
    return back > 0 and last == [(0, 0)]


@lru_cache(512)
def _least_planes(spec: StencilSpec, config: MarchConfig) -> int:
    """That a block writes, where there are as many: twice those that its ends use up, which are computed twice."""
    return max(_LEAST_PLANES, 2 * config.steps * (reach_of(spec).deep - 1))


def registers(spec: StencilSpec, config: MarchConfig) -> int:
    """How many a thread needs, by a rule that holds for what NVRTC 13.0 used for sm_90 without a spill.

    Those of the sums that are not finished, of the rows that one level gives the next, most of the rows of the plane
    with their neighbours, and addresses.
    """
    reach, words = reach_of(spec), spec.accumulator.size // 4
    cells, on = cells_of_vector(spec), hands_on(spec, config)
    held = (reach.deep - (2 if on else 1)) * config.rows * cells * config.steps * words
    finished = config.rows * (config.steps - (0 if on else 1)) * VECTOR_BYTES // 4
    beside = 2 * sum(neighbours_of_loaded_rows(spec, reach, config.rows))
    window = ((config.rows + reach.high - 1) * cells + beside) * 3 // 4 * words
    if config.steps == 1:
        return _OTHER_REGISTERS + held + window
    frozen = any("frozen" in ends for ends in spec.ends)
    others = _OTHER_REGISTERS_OF_LEVELS + _REGISTERS_OF_FROZEN * frozen
    if on:
        others += config.rows * config.steps * 5 // 2 - 2
    return others + held + finished + window
