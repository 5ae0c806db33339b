"""Runs a variant on the CPU to see what it touches: all blocks of small launches, chosen blocks of large ones.

Arrays hold zeros and exist only where they are touched, so that any size can be looked at. `gen.proof.survey` says
which blocks of a launch are looked at, and for how many each stands.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from gen.arch import MODERN, Limits, MemoryModel
from gen.families.base import Array, Extents, Operand
from gen.families.plans import Step, steps
from gen.proof.apart import LINE
from gen.proof.code import Variable
from gen.proof.faults import Line, Place
from gen.proof.host import HostKernel
from gen.proof.lazy import Range
from gen.proof.storage import Share, Storage
from gen.proof.survey import Asked, Notes, Seen, survey
from gen.proof.traffic import CONSTANT, GLOBAL, Access, Counted, Traffic, count

STEPS_PER_THREAD = 1 << 24


@dataclass(frozen=True)
class _Launch:
    """One launch that was looked at."""

    step: Step
    times: int
    events: Array
    weights: Array
    traced: int


def traffic(kernel: HostKernel, limits: Limits, extents: Extents, model: MemoryModel = MODERN) -> Traffic:
    """What one call on a problem of these sizes moves.

    Args:
        kernel: of the variant.
        limits: of the device that is played: its multiprocessors decide the grids of some kernels.
        extents: of the problem, as large as any.
        model: how the device moves data.

    Raises:
        RunError: the kernel breaks a rule on the way.
    """
    memory = _Memory(kernel, limits, extents)
    found: list[Access] = []
    launches = blocks = traced = 0
    for launch in memory.launches():
        launches += launch.times
        blocks += launch.times * prod(launch.step.grid)
        traced += launch.traced
        counted = tuple(count(launch.events, launch.weights * launch.times, model))
        lines = kernel.lines([one.pc for one in counted])
        symbol = kernel.variant.name + launch.step.entry
        made = [_access(symbol, one, lines[one.pc], memory.buffer(one)) for one in counted]
        found += sorted(_merged(made), key=lambda access: (access.called_from, access.line))
    return Traffic(model, tuple(found), launches, blocks, traced)


def _access(kernel: str, one: Counted, line: Line, buffer: str) -> Access:
    counts = (round(getattr(one, name), 3) for name in _SUMS)  # weights are no whole numbers, what they scale is
    return Access(
        kernel, line.number, line.text, line.called_from, buffer, one.space, one.kind, one.read_only, one.bytes, *counts
    )


def _merged(accesses: Sequence[Access]) -> Iterator[Access]:
    """One for each line, buffer and kind: a compiler makes several places of one."""
    groups: dict[tuple[object, ...], list[Access]] = {}
    for access in accesses:
        key = (
            access.line,
            access.called_from,
            access.buffer,
            access.space,
            access.kind,
            access.read_only,
            access.bytes,
        )
        groups.setdefault(key, []).append(access)
    for same in groups.values():
        yield replace(same[0], **{name: sum(getattr(one, name) for one in same) for name in _SUMS})


_SUMS = ("requests", "lanes", "sectors", "lines", "block_sectors", "wavefronts", "least_wavefronts")


class _Memory:
    """The arrays of a call, and its launches on them."""

    def __init__(self, kernel: HostKernel, limits: Limits, extents: Extents) -> None:
        variant = kernel.variant
        self._kernel = kernel
        self._sizes = {**extents, **limits.sizes()}
        self._plan = variant.plan
        layouts = variant.family.layouts(variant.spec, extents)
        operands = {operand.name: operand for operand in variant.spec.operands}
        self._numbers = {name: operand.dtype.numpy.type(1) for name, operand in operands.items() if _is_number(operand)}
        sizes = {
            name: (layout.strides[0] * layout.shape[0] if layout.shape else layout.dtype.itemsize, operands[name])
            for name, layout in layouts.items()
        }
        self._ranges: dict[str, Range] = {}
        self._storage: dict[str, Storage] = {}
        for name, (size, operand) in sizes.items():
            self._add(name, size, operand.dtype.size, writable=operand.role != "in")
        for scratch in self._plan.scratch:
            self._add(scratch.name, scratch.bytes.at(self._sizes), 0, writable=True)
        self._lows = sorted((storage.low, storage.high, name) for name, storage in self._storage.items())
        self._lows += [(one.start, one.start + one.bytes, one.name) for one in kernel.constants]
        self._lows.sort()

    def _add(self, name: str, size: int, element: int, *, writable: bool) -> None:
        memory = Range(size)
        memory.zeros()
        place = Place(name, size, element)
        self._ranges[name] = memory
        self._storage[name] = Storage.of_elements(
            memory.address, memory.address, place, writable=writable, written=None
        )

    def buffer(self, one: Counted) -> str:
        """The name of what an access touches."""
        if one.space == "shared":
            return "shared"
        place = bisect_right(self._lows, one.address, key=lambda buffer: buffer[0]) - 1
        _, high, name = self._lows[place] if place >= 0 else (0, 0, "")
        return name if one.address < high else ""

    def launches(self) -> Iterator[_Launch]:
        """Every launch but those that set up, equal ones once."""
        found: Counter[object] = Counter()
        first: dict[object, Step] = {}
        for step in steps(self._plan, self._sizes):
            numbers = tuple(argument for argument in step.arguments if not isinstance(argument, str))
            key = (step.entry, step.grid, step.block, step.shared_bytes, step.cluster, numbers)
            found[key] += not step.setup
            first.setdefault(key, step)
        for same, step in first.items():
            if found[same]:
                yield self._look(step, found[same])

    def _look(self, step: Step, times: int) -> _Launch:
        together = prod(step.cluster)  # neighbours along x, of which none can run alone
        notes = survey(lambda asked: self._trace(step, asked), prod(step.grid), together, prod(step.block), step.across)
        events, weights = self._sorted(notes, step)
        return _Launch(step, times, events, weights, notes.blocks)

    def _sorted(self, notes: Notes, step: Step) -> tuple[Array, Array]:
        """The events with the space that each is in, and their weights; without the compiler's own tables.

        Shared arrays are moved to multiples of a line: on the CPU each begins as badly aligned as it may.
        """
        events = notes.events
        outside = events["space"] == GLOBAL
        starts = sorted(variable.start for variable in self._kernel.shared(step.entry))
        if starts:
            addresses, end = events["address"], self._kernel.static_bytes(step.entry)
            own = np.searchsorted(np.array(starts, np.uint64), addresses, side="right") - 1
            inside = ~outside & (own >= 0) & (addresses < end)
            addresses[~outside & (addresses >= end)] += np.uint64(-end % LINE)
            addresses[inside] -= np.array(starts, np.uint64)[own[inside]] % np.uint64(LINE)
        for constant in self._kernel.constants:
            events["space"][outside & _within(events, constant)] = CONSTANT
        kept = np.ones(events.size, np.bool_)
        for table in self._kernel.tables:
            kept &= ~(outside & _within(events, table))
        return (events, notes.weights) if kept.all() else (events[kept], notes.weights[kept])

    def _trace(self, step: Step, asked: Asked) -> Seen:
        """What these blocks do; raises HostFault, of kind "too long" if they take more steps than they may."""
        for scratch in self._plan.scratch:
            if scratch.zeroed:  # what counts blocks starts anew
                self._ranges[scratch.name].zeros()
            if scratch.awaited and len(asked.blocks) < prod(step.grid):  # by blocks that wait for some that do not run
                ctypes.memset(self._ranges[scratch.name].address, 0xFF, scratch.bytes.at(self._sizes))
        share = Share(asked.blocks, STEPS_PER_THREAD, asked.steps, asked.trace)
        self._kernel.run_share(step, self._storage, self._numbers, share)
        return asked.seen()


def _within(events: Array, variable: Variable) -> Array:
    place = events["address"]
    return np.asarray((place >= variable.start) & (place < variable.start + variable.bytes))


def _is_number(operand: Operand) -> bool:
    return operand.role == "number"
