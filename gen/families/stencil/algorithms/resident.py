"""Arrays that are short along all axes but one: blocks keep cells in shared memory for many time steps.

A block has a part of one axis, and of the others all cells, so that nothing but the ends of its part comes from other
blocks: it loads what its steps use up there too, as in overlapped tiling. Where one block holds the whole array, a call
is one launch. Of each place of the other axes there is a line of cells along that axis; where a cell's neighbours lie
outside these axes, a table says which line stands for theirs, whatever the boundary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from gen.arch import WARP
from gen.dtypes import I32, I64
from gen.families.base import Extents, Launch, Limits, Plan, with_limits
from gen.families.config import Config, choice, tunable
from gen.families.estimates import Demand, Least, resident_blocks
from gen.families.expr import ONE, Expr, constant, size
from gen.families.stencil.algorithms.common import (
    COPY_THREADS,
    StencilAlgorithm,
    blocks_of_images,
    image_of,
    images_of,
    literal,
    numbers,
    reach_of,
    rim_of,
    stepping,
)
from gen.families.stencil.algorithms.demands import demand_of_steps, least_of_steps, steps_of_launch, work_of
from gen.families.stencil.oracle import places_inside
from gen.families.stencil.shapes import edge_extents, extents_of
from gen.families.stencil.spec import STEPS, StencilSpec

_MOST_TERMS = 1000  # of a thread, all written out: more take NVRTC long to compile
_SHARED_BYTES = {1: 226 * 1024, 2: 112 * 1024}  # of a block, by the blocks of a multiprocessor of sm_90
_AT_ONCE = 4  # cells that a thread loads before it waits for the first
_LEAST_OWN = 8  # cells of a line that a block writes
_OFFSET_BYTES = 4  # of an entry of a table of lines
_BARRIER_CLOCKS, _PLACE_CLOCKS, _TERM_CLOCKS = 520.0, 260.0, 27.0  # of a step; of a thread's cells; of their terms
_OF_GROUP, _OF_CELL, _ISSUED = 25.0, 2.9, 2.5  # instructions of a thread's cells, of each; issued in a clock
_MOVED_INSTRUCTIONS, _MOVED_CLOCKS = 150.0, 28.0  # of a cell of a thread, to load and to write it
_REGISTERS = 32  # of a thread, about
_STEP_US = 2.2  # that a launch of a step takes at least
_FEW_STEPS = 4


@dataclass(frozen=True, kw_only=True)
class ResidentConfig(Config):
    """Along which axis blocks share an array, how many steps a launch takes, and how threads share a block's cells."""

    along: int = tunable("a", (0, 1, 2), base=0, help="axis that is divided among blocks; 0: the slowest")
    threads_per_block: int = tunable("tpb", (256, 512, 1024), base=512, help="threads per block")
    unroll: int = tunable("u", (1, 3, 5), base=3, help="consecutive cells per thread along the divided axis")
    steps: int = choice("t", (0, 2, 4, 8, 16), help="time steps fused per launch; 0: all of them, in one block")
    blocks_per_sm: int = choice("n", (1, 2), help="resident blocks per multiprocessor, which share its shared memory")
    cells_across: int = choice("c", (0, 1, 2, 3, 4), help="fixed extent of the fastest undivided axis; 0: any extent")

    def illegal(self) -> str | None:
        """One block that has all cells may take all memory."""
        if self.steps == 0 and self.blocks_per_sm > 1:
            return "steps 0 launches a single block: blocks_per_sm must be 1"
        return None


class Resident(StencilAlgorithm[ResidentConfig]):
    """Computes several or all time steps in one launch, of arrays that are short along all axes but one."""

    name = "resident"
    template = "stencil/resident.cu.jinja"
    summary = (
        "Each block keeps a part of one axis, with all cells along the other axes, in shared memory over several time "
        "steps. Parts overlap by the halo of the steps."
    )
    config = ResidentConfig
    by_images = True

    @override
    def bytes_in_flight(self, spec: StencilSpec, config: ResidentConfig) -> int:
        """Cells that a thread loads before it waits."""
        return _AT_ONCE * spec.dtype.size

    def illegal(self, spec: StencilSpec, config: ResidentConfig) -> str | None:
        """The axis must be one, and what lies past both its ends be found in the same part."""
        image = image_of(spec)
        if config.along >= len(image.axes):
            return f"there is no axis {config.along}: axes are numbered from 0, and the array has {len(image.axes)}"
        if config.cells_across and _others(image, config)[1] < 0:
            return "an array of one axis has no other axis for cells_across"
        before, after = image.ends[config.along]
        if before != after and "wrap" in (before, after) and config.steps:
            return (
                f"{image.axes[config.along]} wraps at one end alone, and other blocks have the cells of the other end"
            )
        return None

    def unsearched(self, spec: StencilSpec, config: ResidentConfig) -> str | None:
        """The code must not be too long."""
        terms = config.unroll * max(config.cells_across, 1) * len(spec.taps)
        return "its unrolled code would take too long to compile" if terms > _MOST_TERMS else None

    def unsupported_extents(
        self, spec: StencilSpec, config: ResidentConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Where cells across are known there must be as many."""
        image = image_of(spec)
        if config.cells_across:
            axis = image.axes[_others(image, config)[1]]
            if extents[axis] != config.cells_across:
                return f"it supports only {axis} = {config.cells_across}"
        return super().unsupported_extents(spec, config, extents, limits)

    def slow_path_reason(
        self, spec: StencilSpec, config: ResidentConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """One multiprocessor must be as fast as a launch of all."""
        if config.steps:
            return None
        length = extents[image_of(spec).axes[config.along]]
        us = step_clocks(spec, config, extents, length, 1, Limits.of("sm_90")) / 1700
        if us > _STEP_US or extents.get(STEPS, 1) < _FEW_STEPS:
            return f"its single block would take about {us:.1f} us per step"
        return None

    @override
    def edge_cases(self, spec: StencilSpec, config: ResidentConfig) -> Iterator[Extents]:
        """Several parts, the last of them short; more cells than threads; arrays that weights reach far beyond."""
        axes, along = len(spec.axes), config.along + len(spec.axes) - len(image_of(spec).axes)
        own = _LEAST_OWN
        lengths = (
            (*edge_extents(own), COPY_THREADS + 1, config.unroll * config.threads_per_block + 1)
            if config.steps
            else (5, config.threads_per_block + 1, 1, 2 * config.unroll + 1)
        )
        for place, length in enumerate(lengths):
            shape = [(2, 3, 5)[(axis + place) % 3] if place < 5 else 2 for axis in range(axes)]
            shape[along] = length
            if config.cells_across:
                shape[_others(image_of(spec), config)[1] - len(image_of(spec).axes)] = config.cells_across
            steps = (config.steps + 1, config.steps, 2 * config.steps, 3, 0, 2)[place] if config.steps else place + 1
            yield extents_of(spec, shape, steps, gap=place, out_gap=place % 3)

    def inputs(self, spec: StencilSpec, config: ResidentConfig) -> Mapping[str, object]:
        """Which axes are which, and where each weight's cell is, counted from the first that any weight reads."""
        image = image_of(spec)
        reach = reach_of(image)
        outer, inner = _others(image, config)
        more = _more(image, config)
        columns, stay = _columns(image, inner, config.cells_across)

        def wide(axis: int) -> int:
            return reach.before[axis] + 1 + reach.after[axis] if axis >= 0 else 1

        def place(offset: tuple[int, ...], axis: int) -> int:
            return offset[axis] + reach.before[axis] if axis >= 0 else 0

        return {
            "along": config.along,
            "outer": outer,
            "inner": inner,
            "before": reach.before[config.along],
            "after": reach.after[config.along],
            "outer_before": reach.before[outer] if outer >= 0 else 0,
            "outer_wide": wide(outer),
            "inner_before": reach.before[inner] if inner >= 0 else 0,
            "inner_wide": wide(inner),
            "more_before": more[0],
            "more_after": more[1],
            "taps": tuple(
                (*(place(offset, axis) for axis in (config.along, outer, inner)), literal(weight, spec.accumulator))
                for offset, weight in image.taps
            ),
            "tiles": config.steps > 0,
            "cells_at_once": _AT_ONCE,
            "columns": columns,
            "columns_stay": stay,
        }

    @override
    def plan(self, spec: StencilSpec, config: ResidentConfig) -> Plan:
        parts = _parts(spec, config)

        def rest(source: str, target: str, in_pitch: Expr, steps: Expr) -> Launch:
            return Launch(
                grid=blocks_of_images(spec, parts.count),
                block=(config.threads_per_block, 1, 1),
                arguments=(
                    source, target, *numbers(spec, in_pitch), (I64, parts.own), (I32, parts.line_cells), (I64, steps),
                ),
                shared_bytes=parts.shared_bytes,
            )  # fmt: skip

        if config.steps == 0:
            return Plan((rest("in", "out", size("in_pitch"), size(STEPS)),))

        def sweep(source: str, target: str, in_pitch: Expr) -> Launch:
            return rest(source, target, in_pitch, constant(config.steps))

        return stepping(spec, sweep, fused=config.steps, rest=rest)

    @override
    def demand(
        self, spec: StencilSpec, config: ResidentConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        """A step takes what its instructions or its loads from shared memory take, or each thread its cells."""
        image, steps = image_of(spec), steps_of_launch(extents, config.steps or max(extents.get(STEPS, 1), 1))
        parts, sizes = _parts(spec, config), with_limits(extents, limits)
        blocks = parts.count.at(sizes) * images_of(spec).at(extents)
        lines, _ = _lines(spec, config, extents)
        length, of_step = extents[image.axes[config.along]], _used(image, config)
        own = min(parts.own.at(sizes), length)
        used = min(steps * of_step, length - own) if config.steps else 0.0
        loaded = lines * (own + used) / config.threads_per_block
        shared_bytes = parts.shared_bytes.at(sizes)
        at_once = resident_blocks(limits, config.threads_per_block, _REGISTERS, shared_bytes)
        resident = max(min(at_once, -(-blocks // limits.multiprocessors)), 1)
        turns = -(-blocks // (limits.multiprocessors * resident))
        # A step computes what the ones after it use up, until that is the whole line: the mean of all.
        growing = used / of_step if config.steps and of_step else steps
        cells = (growing * (own + max(used - of_step, 0) / 2) + (steps - growing) * length) / steps
        clocks = step_clocks(spec, config, extents, cells, resident, limits)
        moving = _MOVED_CLOCKS * (-(-loaded // 1))
        return demand_of_steps(
            spec, extents, limits, fused=config.steps or max(extents.get(STEPS, 1), 1), blocks=blocks,
            threads_per_block=config.threads_per_block, bytes_in_flight=_AT_ONCE * spec.dtype.size,
            rounds=2 + loaded / _AT_ONCE, instructions=_MOVED_INSTRUCTIONS * loaded,
            written=200 + config.unroll * len(image.taps), registers=_REGISTERS, shared_bytes=shared_bytes,
            last_seconds=turns * (steps * clocks + moving) / limits.clock_hz,
        )  # fmt: skip

    @override
    def least(self, spec: StencilSpec, config: ResidentConfig, limits: Limits) -> Least:
        least = least_of_steps(written=200 + config.unroll * len(image_of(spec).taps), fused=config.steps, rounds=2.0)
        known = _clocks(spec, config, limits)
        blocks = 1 if config.steps == 0 and image_of(spec) == spec else limits.multiprocessors
        cells = WARP * config.unroll * max(config.cells_across, 1) * blocks
        frozen = any("frozen" in ends for ends in spec.ends)  # cells of which steps do not compute
        a_step = _BARRIER_CLOCKS + _PLACE_CLOCKS + known.of_terms * (not frozen)
        return least._replace(
            step_seconds=a_step / limits.clock_hz,
            cell_seconds=0.0 if frozen else known.of_warp / cells / limits.clock_hz,
        )


def step_clocks(
    spec: StencilSpec, config: ResidentConfig, extents: Extents, cells: float, resident: int, limits: Limits
) -> float:
    """About what a step of so many cells of each line takes a multiprocessor that has so many blocks.

    Shared memory delivers a word to each lane of a warp in a clock.
    """
    known = _clocks(spec, config, limits)
    lines, computed = _lines(spec, config, extents)
    groups = -(-cells // config.unroll) / max(config.cells_across, 1)
    of_warps = resident * computed * groups / WARP * known.of_warp
    a_turn = _PLACE_CLOCKS + known.of_terms * computed / max(lines, 1)
    return max(of_warps, -(-lines * groups // config.threads_per_block) * a_turn) + _BARRIER_CLOCKS


class _Clocks(NamedTuple):
    """Clocks of a step: a multiprocessor's for a warp, of a group of cells a lane, and a thread's for one's terms."""

    of_warp: float
    of_terms: float


@lru_cache(512)
def _clocks(spec: StencilSpec, config: ResidentConfig, limits: Limits) -> _Clocks:
    work, across = work_of(spec, limits), max(config.cells_across, 1)
    loads, columns = _loads(image_of(spec), config)
    instructions = (
        loads + columns + work.weights + config.unroll * across * (work.terms * work.slots + _OF_CELL) + _OF_GROUP
    )
    return _Clocks(max(loads * work.words, instructions / _ISSUED), _TERM_CLOCKS * work.terms * across)


@dataclass(frozen=True)
class _Parts:
    """How blocks share an axis.

    Attributes:
        own: cells of a line that a block writes.
        line_cells: that a line has in shared memory, those past an end included.
        count: of blocks.
        shared_bytes: of a block.
    """

    own: Expr
    line_cells: Expr
    count: Expr
    shared_bytes: Expr


@lru_cache(512)
def _parts(spec: StencilSpec, config: ResidentConfig) -> _Parts:
    image = image_of(spec)
    reach, length = reach_of(image), size(image.axes[config.along])
    others = [axis for axis in _others(image, config) if axis >= 0]
    lines: Expr = ONE
    for axis in others:
        lines = lines * size(image.axes[axis])
    tables = others[:-1] if config.cells_across else others
    table: Expr = constant(0)
    for axis in tables:
        table = table + size(image.axes[axis]) * (reach.before[axis] + 1 + reach.after[axis])
    kept = lines + int(any("constant" in image.ends[axis] for axis in tables))
    of_place = (kept * 2 * image.accumulator.size).called("bytes_across")
    table = (table * _OFFSET_BYTES).called("table_bytes")
    past = _used(image, config)
    used, more = config.steps * past + sum(_more(image, config)), past + config.unroll + 1  # to an odd number
    own = length
    if config.steps:
        most = constant(_SHARED_BYTES[config.blocks_per_sm]).at_least(table) - table
        most = ((most // of_place.at_least(1)).at_least(used + more + 1) - (used + more)).called("most_own")
        at_once = (
            (size("multiprocessors") * config.blocks_per_sm)
            .ceil_div(images_of(spec).at_least(1))
            .called("parts_at_once")
        )
        waves = length.ceil_div((most * at_once).called("most_at_once")).at_least(1).called("waves")
        own = length.ceil_div((waves * at_once).called("parts")).at_least(_LEAST_OWN).called("own")
    loaded = own + used
    if image.boundaries[config.along] != "wrap":
        loaded = loaded.at_most(length)
    line_cells = ((loaded + more) // 2 * 2 + 1).called("line_cells")
    return _Parts(
        own=own,
        line_cells=line_cells,
        count=length.ceil_div(own.at_least(1)) * lines.at_most(1),
        shared_bytes=line_cells * of_place + table,
    )


@lru_cache(512)
def _loads(image: StencilSpec, config: ResidentConfig) -> tuple[int, int]:
    """Loads of a thread for its cells, those from tables among them, and what it takes to find the lines of these."""
    along, reach, (outer, inner) = config.along, reach_of(image), _others(image, config)
    columns, _ = _columns(image, inner, config.cells_across)
    places, lines = set(), set()
    for number, (offset, _) in enumerate(image.taps):
        read = columns[number] if config.cells_across else (offset[inner] if inner >= 0 else 0,)
        for column in read:
            line = (offset[outer] if outer >= 0 else 0, column)
            lines.add(line)
            places |= {(*line, offset[along] + cell) for cell in range(config.unroll)}
    looked_up = [outer] if config.cells_across else [outer, inner]
    tables = sum(reach.before[axis] + 1 + reach.after[axis] for axis in looked_up if axis >= 0)
    return len(places) + tables, 2 * len(lines)


def _lines(spec: StencilSpec, config: ResidentConfig, extents: Extents) -> tuple[int, int]:
    """All lines, and those that are not frozen."""
    image = image_of(spec)
    rim, others = rim_of(image), [axis for axis in _others(image, config) if axis >= 0]
    lengths = [extents[image.axes[axis]] for axis in others]
    inner = (max(length - rim.before[axis] - rim.after[axis], 0) for axis, length in zip(others, lengths, strict=True))
    return prod(lengths), prod(inner)


def _used(image: StencilSpec, config: ResidentConfig) -> int:
    """Cells of a line that a step uses up."""
    reach = reach_of(image)
    return reach.before[config.along] + reach.after[config.along]


def _others(image: StencilSpec, config: ResidentConfig) -> tuple[int, int]:
    """The other axes, the slower one first; -1 for one that there is not."""
    others = [axis for axis in range(len(image.axes)) if axis != config.along]
    return (others[0], others[1]) if len(others) == 2 else (-1, others[0] if others else -1)


def _columns(image: StencilSpec, inner: int, count: int) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Of each weight, where its cell lies for each of so many along an axis, -1 outside; which of them are frozen."""
    if not count:
        return (), ()
    boundary, cells = image.boundaries[inner], np.arange(count)
    inside = tuple(
        tuple(int(place) for place in np.maximum(places_inside(cells + offset[inner], count, boundary), -1))
        for offset, _ in image.taps
    )
    rim = rim_of(image)
    frozen = [not rim.before[inner] <= cell < count - rim.after[inner] for cell in range(count)]
    return inside, tuple("true" if one else "false" for one in frozen) if any(frozen) else ()


def _more(image: StencilSpec, config: ResidentConfig) -> tuple[int, int]:
    """Cells before and after those that steps use up: where ends are mirrors, what weights reach past the other end."""
    reach, ends = reach_of(image), image.ends[config.along]
    before, after = reach.before[config.along], reach.after[config.along]
    if not {"reflect", "mirror"}.intersection(ends):
        return 0, 0
    return max(after - before, 0), max(before - after, 0)
