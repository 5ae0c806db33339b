"""Runs a variant on the CPU to see what it touches: all blocks of small launches, chosen blocks of large ones.

Arrays hold zeros and exist only where they are touched, so that any size can be looked at. Of a large launch the first
and the last block run, and some between, which stand for all others: all but the last are alike. Blocks of a cluster
run together.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from gen.families.base import Array, Extents, Limits, Operand
from gen.families.steps import Step, steps
from gen.proof.faults import HostFault, Place
from gen.proof.host import HostKernel
from gen.proof.lazy import Range
from gen.proof.native import ANY_STEPS, Trace
from gen.proof.native import Access as Slot
from gen.proof.storage import Share, Storage
from gen.proof.traffic import EVENT, Access, Counted, MemoryModel, Traffic, count

WHOLE = 512  # blocks: a launch of as many may run whole
SAMPLES = (24, 8, 3, 2)  # blocks between the first and the last, one after the other until they do little enough
EVENTS = 1 << 18  # accesses of a launch that are noted
STEPS = 4 * EVENTS  # of a launch, after which fewer blocks are tried
STEPS_PER_THREAD = 1 << 24
_GOLDEN = 0.6180339887  # of whose multiples no two have nearly the same fraction


@dataclass(frozen=True)
class _Launch:
    """One launch that was looked at."""

    step: Step
    times: int
    events: Array
    weights: Array
    traced: int


def traffic(kernel: HostKernel, limits: Limits, extents: Extents, model: MemoryModel) -> Traffic:
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
        made = [_access(symbol, one, *lines[one.pc], memory.buffer(one)) for one in counted]
        found += sorted(_merged(made), key=lambda access: access.line)
    return Traffic(model, tuple(found), launches, blocks, traced)


def _access(kernel: str, one: Counted, line: int, source: str, buffer: str) -> Access:
    counts = (round(getattr(one, name), 3) for name in _SUMS)  # weights are no whole numbers, what they scale is
    return Access(kernel, line, source, buffer, one.space, one.kind, one.bytes, *counts)


def _merged(accesses: Sequence[Access]) -> Iterator[Access]:
    """One for each line, buffer and kind: a compiler makes several places of one."""
    groups: dict[tuple[object, ...], list[Access]] = {}
    for access in accesses:
        key = (access.line, access.buffer, access.kind, access.bytes)
        groups.setdefault(key, []).append(access)
    for same in groups.values():
        first = same[0]
        yield Access(
            first.kernel, first.line, first.source, first.buffer, first.space, first.kind, first.bytes,
            *(sum(getattr(one, name) for one in same) for name in _SUMS),
        )  # fmt: skip


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
        self._lows = sorted((storage.low, name) for name, storage in self._storage.items())

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
        place = bisect_right(self._lows, (one.address, "\uffff")) - 1
        return self._lows[place][1] if place >= 0 else ""

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
        units = prod(step.grid) // together
        numbers = (units, *SAMPLES) if units * together <= WHOLE else SAMPLES
        attempts = tuple(dict.fromkeys(_spread(units, middle) for middle in numbers))
        for chosen in attempts:
            events, made = self._trace(step, _blocks(chosen, together), STEPS)
            if made <= EVENTS:
                stands_for = np.ones(len(chosen))
                if len(chosen) < units:
                    stands_for[1:-1] = (units - 2) / (len(chosen) - 2)
                order = np.searchsorted(np.asarray(chosen, np.int64), events["block"] // together)
                return _Launch(step, times, events, stands_for[order], len(chosen) * together)
        # Blocks that do so much go round many times: the first rounds of all threads of one stand for all others.
        rounds = EVENTS // (prod(step.block) * together)
        events, made = self._trace(step, _blocks((units // 2,), together), ANY_STEPS, rounds)
        return _Launch(step, times, events, np.full(events.size, units * made / max(events.size, 1)), together)

    def _trace(
        self, step: Step, blocks: tuple[int, ...], most: int, steps_per_thread: int = ANY_STEPS
    ) -> tuple[Array, int]:
        """The first accesses of these blocks, and how many there are: more than EVENTS if they take too many steps."""
        for scratch in self._plan.scratch:
            if scratch.zeroed:  # what counts blocks starts anew
                self._ranges[scratch.name].zeros()
        events = np.empty(EVENTS, EVENT)
        trace = Trace(ctypes.cast(events.ctypes.data, ctypes.POINTER(Slot)), EVENTS, steps_per_thread)
        made = EVENTS + 1
        try:
            self._kernel.run_share(step, self._storage, self._numbers, Share(blocks, STEPS_PER_THREAD, most, trace))
            made = int(trace.count)
        except HostFault as fault:
            if fault.kind != "too long":
                raise
        return events[: int(trace.noted)], made


def _blocks(units: tuple[int, ...], together: int) -> tuple[int, ...]:
    """The blocks of these clusters, each of so many."""
    return tuple(unit * together + rank for unit in units for rank in range(together))


def _spread(count: int, middle: int) -> tuple[int, ...]:
    """The first, the last, and one from each of so many equal parts between; all of them if there are no more.

    Each lies elsewhere in its part: blocks a fixed step apart may all begin, or end, a row of tiles.
    """
    if middle >= count - 2:
        return tuple(range(count))
    between = {1 + int((k + (k + 1) * _GOLDEN % 1) * (count - 2) / middle) for k in range(middle)}
    return tuple(sorted({0, count - 1, *between}))


def _is_number(operand: Operand) -> bool:
    return operand.role == "number"
