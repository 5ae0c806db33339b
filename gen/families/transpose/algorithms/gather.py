"""Elements one by one, in the order of the output: whatever the axes, no thread is idle and no tile is mostly empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from typing_extensions import override

from gen.arch import WARP
from gen.dtypes import U32, U64, DType
from gen.families.base import Extents, Launch, Limits, Plan
from gen.families.config import Config, choice, tunable
from gen.families.estimates import COLD_SECONDS, DEFAULT_REGISTERS, SECTOR_BYTES, Demand, Least, resident_blocks
from gen.families.expr import ONE, Expr, made_once, once_a_problem, size
from gen.families.transpose.algorithms.common import (
    MAX_DIVIDEND,
    MatrixAlgorithm,
    copied,
    inverse_of,
    known,
    only_gaps_after_rows,
    turned,
    turns,
)
from gen.families.transpose.algorithms.demands import LINE_BYTES, Span, demand_of, memory, taken, touched
from gen.families.transpose.algorithms.packed import axes_of, measured, product
from gen.families.transpose.spec import TransposeSpec

_INDICES = 2**32  # elements are found by numbers of 32 bits
_CACHED_BYTES, _CACHED = 32 << 20, 1.0  # of an array whose sectors the second-level cache keeps, and what they cost
_SCATTERED = 1.5  # by how much more memory takes for sectors of as many lines as a warp has lanes
_PROLOGUE = 12  # slots of a thread before all others
_OF_LINE = 0.7  # slots of a line that a warp's load looks up
_OF_AXIS = 4.5  # slots of a division, and of the step along an axis


@dataclass(frozen=True, kw_only=True)
class GatherConfig(Config):
    """How `gather` lays threads over the output."""

    threads_per_block: int = tunable("tpb", (128, 256, 512), base=256, help="threads per block")
    unroll: int = tunable("u", (1, 2, 4), base=1, help="elements or vectors per thread, threads_per_block apart")
    vec_bytes: int = choice("v", (0, 4, 8, 16), help="bytes per vector store; 0: single elements")


class Gather(MatrixAlgorithm[TransposeSpec, GatherConfig]):
    """A thread an element, numbered as in the output."""

    name = "gather"
    template = "transpose/gather.cu.jinja"
    summary = (
        "Elements are numbered and written in the order of the output. To find an element in the input, a thread "
        "divides its number by the extents of the axes, one after another."
    )
    config = GatherConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: GatherConfig) -> str | None:
        """Elements are moved as they are, to another array."""
        if len(spec.axes) < 2:
            return "it is for arrays of two axes or more"
        if 0 < config.vec_bytes < 2 * spec.dtype.size:
            return f"a vector of {config.vec_bytes} bytes cannot hold two {spec.dtype.name}"
        return only_gaps_after_rows(spec)

    def together(self, spec: TransposeSpec, config: GatherConfig) -> int:
        """Elements of a store."""
        return max(config.vec_bytes // spec.dtype.size, 1)

    def unsupported_extents(
        self, spec: TransposeSpec, config: GatherConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Elements are numbered, and found, in 32 bits; a vector's lie in two rows, which follow each other."""
        together = self.together(spec, config)
        (elements, furthest), piece = _counted(spec, extents), config.threads_per_block * config.unroll * together
        row = extents[str(spec.operands[1].axes[-1])]
        if together > 1 and not self._rows_hold(spec, together, extents):
            apart = extents[_out_row(spec)]
            return (
                f"rows of the output have {row} elements, {apart} apart; it supports {together} or more, without gaps"
            )
        if elements > MAX_DIVIDEND - piece:
            return f"there are {elements} elements; it supports at most {MAX_DIVIDEND - piece}"
        if furthest > _INDICES:
            return f"an element's index may be {furthest}; it supports at most {_INDICES}"
        return None  # a grid has as many blocks along x as that

    def _rows_hold(self, spec: TransposeSpec, together: int, extents: Extents) -> bool:
        """Whether rows of the output hold so many elements, and follow each other."""
        return together <= extents[str(spec.operands[1].axes[-1])] >= extents[_out_row(spec)]

    def edge_cases(self, spec: TransposeSpec, config: GatherConfig) -> Iterator[Extents]:
        """Elements of which the last block has 1, 2, all but 1 and all; pitched rows."""
        together = self.together(spec, config)
        piece = config.threads_per_block * config.unroll * together
        make = turned if turns(spec) else lambda one, rows, cols, **_: copied(one, cols, (rows,))
        if together > 1:
            fastest = spec.axes[-1]  # of the output; the other axis is any one
            other = 0 if fastest else 1
            lengths = dict.fromkeys((together, together + 1, 2 * together - 1, 2 * together + 1, 3 * together + 1))
            for place, rows in enumerate(lengths):
                found = [copied(spec, rows, (3, piece // (3 * rows) + 1), gap=0)]
                if turns(spec) and place < 3:
                    found.append(turned(spec, rows, piece // rows + 1, in_gap=3))
                    found.append(turned(spec, rows, piece // (3 * rows) + 1, 3))
                held = [one for one in found if self._rows_hold(spec, together, one)]
                yield from held or [known(spec, {fastest: rows, other: piece // rows + 1}, 0, 0)]
            return
        yield make(spec, 1, piece + 1)
        yield make(spec, 2, piece // 2 + 1, in_gap=3)
        yield make(spec, 3, piece - 1, out_gap=5)
        yield make(spec, piece // 4, 8)

    @made_once
    def elements(self, spec: TransposeSpec) -> Expr:
        """Of the array."""
        return product(axes_of(spec).extents)

    def inputs(self, spec: TransposeSpec, config: GatherConfig) -> Mapping[str, object]:
        """The axes, and which of the input's each of the output's is."""
        order = axes_of(spec).order
        return {"axes": len(order), "order": order}

    @override
    def plan(self, spec: TransposeSpec, config: GatherConfig) -> Plan:
        axes = axes_of(spec)
        given: list[str | tuple[DType, Expr]] = ["in", "out"]
        for axis in axes.order[1:]:
            extent = axes.extents[axis]
            given += [(U32, extent), (U64, inverse_of(extent).called(f"extent{axis}_inverse"))]
        given += [(U32, axes.in_strides[axis]) for axis in axes.order]
        elements, together = self.elements(spec), self.together(spec, config)
        piece = config.threads_per_block * config.unroll * together
        if together == 1:
            given.append((U32, size(_out_row(spec))))
        launch = Launch(
            grid=((elements + (together - 1)).ceil_div(piece), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*given, (U32, elements)),
        )
        return Plan((launch,))

    @override
    def demand(
        self, spec: TransposeSpec, config: GatherConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        size, (in_steps, out_steps, divisions) = spec.dtype.size, _steps(spec, extents)
        elements, _ = _counted(spec, extents)
        threads, unroll, together = config.threads_per_block, config.unroll, self.together(spec, config)
        # A warp looks up its lines; what a block reads of a sector stays in the first-level cache.
        lines = min(touched(taken(in_steps, WARP * together), size, LINE_BYTES, aligned=False), WARP)
        count = min(threads * unroll * together, elements)
        read, written = (
            touched(taken(steps, count), size, SECTOR_BYTES, aligned=False) for steps in (in_steps, out_steps)
        )
        again = 1 + _SCATTERED * min(lines / WARP, 1.0) if elements * size > _CACHED_BYTES else _CACHED
        of_row = _OF_AXIS * max(divisions - 1, 1)
        of_load = memory(size) + _OF_LINE * lines
        of_vector = of_row + 3 + memory(size)
        if together > 1:  # where one of a warp's vectors lies in two rows, all find both
            twice = min(WARP * (together - 1) / max(in_steps[-1][0], 1), 1.0)
            of_vector = of_row * (1 + twice) + 8 + 3 * together + memory(config.vec_bytes) / 2
        return demand_of(
            spec,
            extents,
            blocks=-(-elements // (threads * unroll * together)),
            threads_per_block=threads,
            read=read * again,
            written=written,
            in_flight=unroll * together * size,
            instructions=unroll * (of_vector + together * of_load),
            prologue=_PROLOGUE,
            code=self._code(spec, config),
        )

    @override
    def least(self, spec: TransposeSpec, config: GatherConfig, limits: Limits) -> Least:
        size, together, unroll = spec.dtype.size, self.together(spec, config), config.unroll
        of_vector = _OF_AXIS + 3 + memory(size)
        if together > 1:
            of_vector = _OF_AXIS + 8 + 3 * together + memory(config.vec_bytes) / 2
        of_thread = _PROLOGUE + unroll * (of_vector + together * memory(size))
        threads, elements = config.threads_per_block, unroll * together
        return Least(
            of_thread / elements, COLD_SECONDS * self._code(spec, config), threads=1 / elements,
            resident=threads * resident_blocks(limits, threads, DEFAULT_REGISTERS, 0),
        )  # fmt: skip

    def _code(self, spec: TransposeSpec, config: GatherConfig) -> int:
        """Instructions of the text."""
        together, axes = self.together(spec, config), len(axes_of(spec).order)
        return 20 + config.unroll * ((28 if together > 1 else 10) * axes + 6 * together - 8)

    def bytes_in_flight(self, spec: TransposeSpec, config: GatherConfig) -> int:
        """All elements of a thread: no load need wait for a store, since the arrays do not overlap."""
        return config.unroll * max(config.vec_bytes, spec.dtype.size)


def _out_row(spec: TransposeSpec) -> str:
    """The extent that is the pitch of the output's rows."""
    return spec.operands[1].pitch


@once_a_problem
def _steps(spec: TransposeSpec, extents: Extents) -> tuple[tuple[Span, ...], tuple[Span, ...], int]:
    """The axes in the order of the output, with strides in the input, and in the output; how many are longer than 1."""
    axes = measured(spec, extents)
    in_steps, out_steps = (
        tuple((axes.extents[axis], steps[axis]) for axis in axes.order) for steps in (axes.in_strides, axes.out_strides)
    )
    return in_steps, out_steps, sum(extent > 1 for extent in axes.extents)


@once_a_problem
def _counted(spec: TransposeSpec, extents: Extents) -> tuple[int, int]:
    """How many elements there are, and the largest index that is made of one."""
    axes = measured(spec, extents)
    elements = prod(axes.extents)
    steps = zip(axes.extents, axes.in_strides, strict=True)
    furthest = 1 + sum(max(extent - 1, 1) * step for extent, step in steps)
    rows = elements // max(axes.extents[axes.order[-1]], 1)
    return elements, max(furthest, max(rows, 1) * extents[_out_row(spec)])
