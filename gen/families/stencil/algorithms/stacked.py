"""Threads that each compute a stack: cells of several planes, or of several rows of two axes, behind each other.

Where the slowest axis is much longer than the others, few threads fit beside each other in a row, and what costs most
is to find the places that a cell's neighbours have inside. All cells of a stack share these. Threads lie over the
positions of a plane without a gap, however short its rows are; a block takes as many stacks behind each other as it
has threads for. What several cells of a stack read is loaded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple

from typing_extensions import override

from gen.arch import WARP
from gen.dtypes import I32, U32
from gen.families.base import Extents, Launch, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.estimates import Demand, Least
from gen.families.expr import ONE, Expr, constant, once_a_problem, size
from gen.families.stencil.algorithms.common import (
    StencilAlgorithm,
    beyond_axes,
    numbers,
    reach_of,
    stepping,
    weight_lines,
)
from gen.families.stencil.algorithms.demands import (
    LOAD,
    clocks_alone,
    demand_of_steps,
    least_of_steps,
    work_of,
)
from gen.families.stencil.shapes import edge_extents, extents_of
from gen.families.stencil.spec import StencilSpec

_PLACES = 2**31  # of 32 bits
_MOST_TERMS = 700  # of a thread, all written out: more leave the instruction cache
_OTHER_INSTRUCTIONS = 35  # of a thread, divisions among them
_OF_PLACE = {"constant": 5, "frozen": 6, "nearest": 6, "wrap": 12, "reflect": 12, "mirror": 12}  # to find it inside
_WAIT_SECONDS = 0.055e-6  # for a plane that is read, of the last stacks
_REGISTERS = 40  # of a thread, about
_BANK_BYTES = 128  # that all banks of a first-level cache deliver at once


@dataclass(frozen=True, kw_only=True)
class StackedConfig(Config):
    """How high a stack is, and how many threads a block has."""

    threads_per_block: int = tunable("tpb", (128, 256), base=128, help="threads per block")
    unroll: int = tunable("u", (1, 2, 4, 7), base=4, help="cells per thread, in as many consecutive planes (2D: rows)")


class Stacked(StencilAlgorithm[StackedConfig]):
    """Computes one time step in a launch; threads lie over the positions of a plane, however short its rows are."""

    name = "stacked"
    template = "stencil/stacked.cu.jinja"
    summary = (
        "Every thread computes a stack, one cell of each of several planes, straight from global memory. The offsets "
        "of its neighbours are computed once, and a cell that several of them read is loaded once."
    )
    config = StackedConfig

    @override
    def illegal(self, spec: StencilSpec, config: StackedConfig) -> str | None:
        return beyond_axes(spec, 2, 3)

    def unsearched(self, spec: StencilSpec, config: StackedConfig) -> str | None:
        """The code must not be too long."""
        return (
            "its unrolled code would take too long to compile" if config.unroll * len(spec.taps) > _MOST_TERMS else None
        )

    def unsupported_extents(
        self, spec: StencilSpec, config: StackedConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Places of 32 bits number all elements, and those that the last stacks would have."""
        slow, *others = spec.axes
        apart = max(extents["in_pitch"], extents["out_pitch"]) * (extents["rows"] if len(others) > 1 else 1)
        if (extents[slow] + spec.shape[0] + config.unroll) * apart >= _PLACES:
            return f"its 32-bit indices support arrays of fewer than {_PLACES} elements"
        return super().unsupported_extents(spec, config, extents, limits)

    @override
    def edge_cases(self, spec: StencilSpec, config: StackedConfig) -> Iterator[Extents]:
        """Planes that several stacks of a block share, and that take several blocks; the last stack has few cells."""
        threads = config.threads_per_block
        for place, deep in enumerate(edge_extents(config.unroll)):
            for cells in (5, threads // 2 + place, threads + 1 + place):
                high = 2 + place % 2
                shape = (deep, high, cells // high) if len(spec.axes) > 2 else (deep, cells)
                yield extents_of(spec, shape, 1 + place % 2, gap=place, out_gap=place % 3)

    def inputs(self, spec: StencilSpec, config: StackedConfig) -> Mapping[str, object]:
        """The positions in a plane that are read, in the order of the weights, and their weights in each plane."""
        reach, columns = reach_of(spec), _columns(spec)
        weights = dict(spec.taps)
        planes = range(-reach.before[0], reach.after[0] + 1)
        lines = weight_lines([[weights.get((z, *column), 0.0) for column in columns] for z in planes], spec.accumulator)
        below = [column[0] + reach.up for column in columns] if len(spec.axes) > 2 else []
        return {
            "lines": lines,
            "below": _lines_of(below),
            "beside": _lines_of([column[-1] + reach.left for column in columns]),
            "columns": len(columns),
        }

    @override
    def plan(self, spec: StencilSpec, config: StackedConfig) -> Plan:
        across, behind, count = _blocks(spec, config)

        def sweep(source: str, target: str, in_pitch: Expr) -> Launch:
            return Launch(
                grid=(count, ONE, ONE),
                block=(config.threads_per_block, 1, 1),
                arguments=(source, target, *numbers(spec, in_pitch, I32), (U32, across), (U32, behind)),
                across=across,
            )

        return stepping(spec, sweep)

    @override
    def demand(
        self, spec: StencilSpec, config: StackedConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        """All threads find places inside, each of its own position and of its own planes."""
        known, (positions, inner, outer) = _instructions(spec, config, limits), _inside(spec, extents)
        _, _, count = _blocks(spec, config)
        stacks = positions * -(-extents[spec.axes[0]] // config.unroll)
        blocks = max(count.at(extents), 1)
        # Stacks of a warp that lie behind each other: whether they lie in the same banks.
        apart = positions * config.unroll * spec.dtype.size % _BANK_BYTES
        behind = -(-WARP // max(positions, 1))
        lines = max(behind * gcd(apart, _BANK_BYTES) / _BANK_BYTES, WARP * spec.dtype.size / _BANK_BYTES, 1.0)
        of_places = inner * 2 * known.rows + outer * known.folded
        # Of large planes no cache keeps what the stack before has read.
        kept = 4 * positions * spec.dtype.size * (known.high + config.unroll) < limits.l2_bytes
        alone = known.alone + ((inner + outer) * known.each + of_places) + 4 * config.unroll
        requests = (inner + outer) * known.loads + config.unroll
        busy = stacks / (blocks * config.threads_per_block)
        return demand_of_steps(
            spec, extents, limits, blocks=blocks, threads_per_block=config.threads_per_block,
            bytes_in_flight=spec.dtype.size * config.unroll,
            rounds=1, clocks=clocks_alone(work_of(spec, limits), alone, requests, lines, _REGISTERS),
            instructions=busy * max(alone, LOAD * requests * lines), written=alone, registers=_REGISTERS,
            moved_share=1.0 if kept else 1 + (known.high - 1) / (2 * config.unroll),
            last_seconds=_WAIT_SECONDS * (known.high + config.unroll),
        )  # fmt: skip

    @override
    def least(self, spec: StencilSpec, config: StackedConfig, limits: Limits) -> Least:
        """Where all read inside only, or none does."""
        known = _instructions(spec, config, limits)
        alone = known.alone + known.each + min(2 * known.rows, known.folded) + 4 * config.unroll
        requests = (known.loads + config.unroll) * max(WARP * spec.dtype.size / _BANK_BYTES, 1.0)
        last = _WAIT_SECONDS * (known.high + config.unroll)
        return least_of_steps(max(alone, LOAD * requests) / config.unroll, alone, last_seconds=last)

    def bytes_in_flight(self, spec: StencilSpec, config: StackedConfig) -> int:
        """The cells of its stack: their neighbours are other threads' cells."""
        return config.unroll * spec.dtype.size


class _Instructions(NamedTuple):
    """What is known of a variant before its sizes, of instructions of a thread above all.

    Attributes:
        high: planes, or rows of two axes, within reach of a cell.
        loads: of a stack.
        rows: in which these lie.
        alone: to find its own place, and those of planes.
        each: for what it loads, and its terms.
        folded: to find places outside.
    """

    high: int
    loads: int
    rows: int
    alone: int
    each: float
    folded: int


@lru_cache(512)
def _instructions(spec: StencilSpec, config: StackedConfig, limits: Limits) -> _Instructions:
    work, (loads, rows), (high, *wide) = work_of(spec, limits), _read(spec, config.unroll), _within_reach(spec)
    first, *others = (boundary if isinstance(boundary, str) else "mirror" for boundary in spec.boundaries)
    folded = sum(_OF_PLACE[word] * extent for word, extent in zip(others, wide, strict=True))
    checks = 2 * any("constant" in ends for ends in spec.ends)
    return _Instructions(
        high=high,
        loads=loads,
        rows=rows,
        alone=_OTHER_INSTRUCTIONS + _OF_PLACE[first] * (high + config.unroll - 1),
        each=loads * (1 + work.converted) + work.terms * config.unroll * work.slots + work.weights,
        folded=folded + (2 + checks) * loads,
    )


@once_a_problem
def _inside(spec: StencilSpec, extents: Extents) -> tuple[int, float, float]:
    """Positions of a plane; the shares of threads in whose warps some read inside only, and some do not.

    Where all columns lie inside, those of a row lie beside one place; a warp goes both ways if its threads do.
    """
    positions = prod(extents[axis] for axis in spec.axes[1:])
    wide = _within_reach(spec)[1:]
    insides = [max(extents[axis] + 1 - extent, 0) for axis, extent in zip(spec.axes[1:], wide, strict=True)]
    share = prod(insides[:-1]) / max(positions, 1)
    inner = min(share * (insides[-1] + (WARP - 1) * min(insides[-1], 1)), 1.0)
    return positions, inner, 1.0 - share * max(insides[-1] - (WARP - 1), 0)


@lru_cache(512)
def _within_reach(spec: StencilSpec) -> tuple[int, ...]:
    """Cells along each axis from the first to the last that a cell reads."""
    reach = reach_of(spec)
    return tuple(before + 1 + after for before, after in zip(reach.before, reach.after, strict=True))


@lru_cache(512)
def _blocks(spec: StencilSpec, config: StackedConfig) -> tuple[Expr, Expr, Expr]:
    """Blocks side by side over a plane, stacks behind each other of a block, and all blocks."""
    slow, *others = spec.axes
    positions = size(others[0]) * size(others[1]) if len(others) > 1 else size(others[0])
    threads = constant(config.threads_per_block)
    across = positions.ceil_div(config.threads_per_block).called("blocks_across")
    behind = (threads // positions.at_least(1)).at_least(1).called("stacks_behind")
    return across, behind, across * size(slow).ceil_div(config.unroll).ceil_div(behind)


@lru_cache(512)
def _columns(spec: StencilSpec) -> tuple[tuple[int, ...], ...]:
    """The positions beside a cell's own of which any plane is read, in the order of the weights."""
    return tuple(sorted({offset[1:] for offset, _ in spec.taps})) or ((0,) * (len(spec.axes) - 1),)


@lru_cache(512)
def _read(spec: StencilSpec, unroll: int) -> tuple[int, int]:
    """Cells that a stack of so many reads, and rows in which these lie."""
    places = {(offset[0] + u, *offset[1:]) for offset, _ in spec.taps for u in range(unroll)}
    return len(places), len({place[:-1] for place in places})


def _lines_of(places: list[int]) -> tuple[str, ...]:
    """Whole numbers as the lines of a C++ initializer."""
    words = [str(place) for place in places]
    return tuple(
        ", ".join(words[at : at + 20]) + ("," if at + 20 < len(words) else "") for at in range(0, len(words), 20)
    )
