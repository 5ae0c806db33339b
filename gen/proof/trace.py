"""Runs a variant on the CPU to see what it touches: all blocks of small launches, chosen blocks of large ones.

Arrays hold zeros and exist only where they are touched, so that any size can be looked at. `gen.proof.trace` says
which blocks of a launch are looked at, and for how many each stands.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from gen.arch import MODERN, Limits, MemoryModel
from gen.errors import RunError
from gen.families.base import Array, Extents
from gen.families.extents import timed_numbers
from gen.families.plans import Step, steps
from gen.proof.build import LINE
from gen.proof.code import Variable
from gen.proof.faults import HostFault, Line, Place
from gen.proof.host import HostKernel
from gen.proof.memory import Range, Share, Storage
from gen.proof.native import ANY_STEPS, CodePlace, Trace
from gen.proof.native import Access as Slot
from gen.proof.traffic import CONSTANT, EVENT, GLOBAL, Access, Counted, Traffic, count

WHOLE = 512  # blocks: a launch of as many may run whole
SAMPLES = (256, 24, 8, 3, 2)  # blocks between the first and the last, one after the other until they do little enough
EVENTS = 1 << 18  # accesses of a launch that are noted, and as many again where only some rounds are
STEPS = 1 << 24  # of a launch, after which fewer blocks are tried
NOTED = (24, 8, 3, 2)  # blocks that are noted of those that run
ROUNDS = (8, 4, 2, 1)  # of a thread at a place, that are noted one after the other: they may share sectors
_GOLDEN = 0.6180339887  # of whose multiples no two have nearly the same fraction

PLACE: np.dtype[Any] = np.dtype(CodePlace)


@dataclass(frozen=True)
class Seen:
    """What some blocks did.

    Attributes:
        events: the accesses that were noted, of type EVENT.
        places: how many there were, by place in the code and block, of type PLACE.
        count: of them all.
    """

    events: Array
    places: Array
    count: int


class Asked:
    """What is to be looked at in a run of some blocks.

    Attributes:
        blocks: those that run.
        steps: of all threads, after which the run is given up.
        trace: takes the notes.
    """

    def __init__(self, blocks: Sequence[int], steps: int, capacity: int, noted: Array | None = None,
                 together: int = 1, every: int = 1) -> None:  # fmt: skip
        """Makes room.

        Args:
            blocks: those that run.
            steps: of all threads, after which the run is given up.
            capacity: accesses that are noted at most.
            noted: for each block whether it is; None: all are.
            together: rounds of a thread at a place that are noted one after the other,
            every: out of so many times as many.
        """
        self.blocks = tuple(blocks)
        self.steps = steps
        self._events = np.empty(capacity, EVENT)
        self._noted = None if noted is None else noted.astype(np.uint8)
        chosen = None if self._noted is None else self._noted.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        room = ctypes.cast(self._events.ctypes.data, ctypes.POINTER(Slot))
        self.trace = Trace(room, capacity, together, every, chosen)

    def seen(self) -> Seen:
        """What the run has left; to be asked before the next one."""
        count = int(self.trace.place_count)
        size = count * ctypes.sizeof(CodePlace)
        content = ctypes.string_at(self.trace.places, size) if count else b""
        return Seen(self._events[: int(self.trace.noted)], np.frombuffer(content, PLACE), int(self.trace.count))


@dataclass(frozen=True)
class Notes:
    """What stands for a launch.

    Attributes:
        events: accesses, of type EVENT.
        weights: for how many each stands.
        blocks: that were run.
    """

    events: Array
    weights: Array
    blocks: int


def survey(run: Callable[[Asked], Seen], blocks: int, together: int, threads: int, across: int = 1) -> Notes:
    """What stands for a launch.

    Args:
        run: runs chosen blocks.
        blocks: of the launch.
        together: blocks of a cluster, which run together.
        threads: of a block.
        across: blocks in a row, where the launch is rows of them.
    """
    units = blocks // together
    numbers = (units, *SAMPLES) if blocks <= WHOLE else SAMPLES
    attempts = [_chosen(units, middle, across if together == 1 else 1) for middle in numbers]
    seen, sample = _first(run, attempts, together)
    if seen.count <= EVENTS:
        weights = sample.stands_for[_numbers(seen.events["block"] // together, sample.units)]
        return Notes(seen.events, weights, sample.units.size * together)
    return _some(run, seen.places, sample, together, threads)


@dataclass(frozen=True)
class _Sample:
    """Some units of a launch, its blocks or clusters, in order, and for how many each stands."""

    units: Array
    stands_for: Array


def _first(run: Callable[[Asked], Seen], attempts: Sequence[_Sample], together: int) -> tuple[Seen, _Sample]:
    """The first sample that does little enough, or else the last one, and what it does."""
    most = attempts[0].units.size
    for sample in attempts[:-1]:
        if sample.units.size > most:
            continue
        asked = Asked(_blocks(sample.units, together), STEPS, EVENTS)
        try:
            return run(asked), sample
        except HostFault as fault:
            if fault.kind != "too long":
                raise
        # As many as came to their turn, one after the other, will do it again.
        most = np.unique(asked.seen().places["block"]).size // together
    return run(Asked(_blocks(attempts[-1].units, together), ANY_STEPS, EVENTS)), attempts[-1]


def _some(run: Callable[[Asked], Seen], places: Array, sample: _Sample, together: int, threads: int) -> Notes:
    """What stands for a launch whose accesses are too many to note all of them.

    Args:
        run: runs chosen blocks.
        places: what was counted of the blocks that were run.
        sample: these, as clusters.
        together: blocks of a cluster.
        threads: of a block.
    """
    unit = _numbers(places["block"] // together, sample.units)  # of each place
    pcs, pc = np.unique(places["pc"], return_inverse=True)
    total = np.bincount(pc, places["count"] * sample.stands_for[unit])
    done = np.zeros((sample.units.size, pcs.size), np.int64)  # by each cluster at each place in the code
    np.add.at(done, (unit, pc), places["count"].astype(np.int64))
    rounds, weights = _fitting(done, sample.stands_for, threads)
    rest = np.maximum(done[weights > 0] - rounds * threads, 0)
    every = (int(rest.sum()) // EVENTS + 1) | 1  # odd: what alternates is met in all its forms
    blocks = _blocks(sample.units, together)
    asked = Asked(blocks, ANY_STEPS, 2 * EVENTS, np.repeat(weights > 0, together), rounds, every)
    seen = run(asked)
    if np.unique(seen.places["pc"][seen.places["noted"] > 0]).size < pcs.size:
        # Blocks come in two orders in turn, and some work is only that of the last: in this order it is noted.
        seen = run(Asked(blocks, ANY_STEPS, 2 * EVENTS, np.repeat(weights > 0, together), rounds, every))
    met = seen.places[np.isin(seen.places["pc"], pcs)]
    events = seen.events[np.isin(seen.events["pc"], pcs)]
    at, block = _numbers(met["pc"], pcs), _numbers(met["block"], np.asarray(blocks))
    weight = weights[block // together]
    stand_in = np.bincount(at, met["count"] * weight * (met["noted"] > 0), minlength=pcs.size)
    scales = np.zeros((pcs.size, len(blocks)))
    scales[at, block] = weight * met["count"] / np.maximum(met["noted"], 1) * (total / np.maximum(stand_in, 1))[at]
    place = _numbers(events["pc"], pcs), _numbers(events["block"], np.asarray(blocks))
    return Notes(events, scales[place], len(blocks))


def _fitting(done: Array, stands_for: Array, threads: int) -> tuple[int, Array]:
    """How many rounds are noted one after the other, and for how many each cluster stands: as many as there is room."""
    found = ROUNDS[-1], _stand_ins(done, stands_for, NOTED[-1])
    for rounds in ROUNDS:
        for most in NOTED:
            weights = _stand_ins(done, stands_for, most)
            if np.minimum(done[weights > 0], rounds * threads).sum() <= EVENTS:
                return rounds, weights
    return found


def _stand_ins(done: Array, stands_for: Array, most: int) -> Array:
    """For how many each of some clusters stands, so that about `most` of them do; 0 for the others.

    Args:
        done: what each does at each place in the code: those that do the same stand for each other.
        stands_for: for how many each stands without that.
        most: those wanted.
    """
    found = np.zeros(len(done))
    _, kinds, sizes = np.unique(done, axis=0, return_inverse=True, return_counts=True)
    if sizes.size > max(NOTED):  # hardly any two are alike: neighbours stand for each other, and for what is rare one
        kept = np.zeros(len(done), np.bool_)
        kept[list(spread(len(done), most))] = True
        for place in np.flatnonzero(~(done[kept] > 0).any(axis=0)):
            kept[np.argmax(done[:, place] > 0)] = True
        places = np.flatnonzero(kept)
        nearest = places[np.argmin(np.abs(np.arange(len(done))[:, np.newaxis] - places), axis=1)]
        return np.bincount(nearest, stands_for, minlength=len(done))
    for kind, size in enumerate(sizes):
        mine = np.flatnonzero(kinds.reshape(-1) == kind)
        picked = mine[list(spread(int(size), max(int(most * size / len(done)) - 2, -1)))]
        found[picked] = stands_for[mine].sum() / picked.size
    return found


def _chosen(units: int, middle: int, across: int) -> _Sample:
    """About so many of the units between the first and the last; `across` of them are a row."""
    if not (1 < across < units and units % across == 0 and 8 <= middle < units - 2):
        line = spread(units, middle)
        stands_for = np.full(len(line), (units - 2) / max(len(line) - 2, 1))
        stands_for[[0, -1]] = 1
        return _Sample(np.array(line), stands_for)
    found: dict[int, float] = {}
    columns, rows = _parts(across), _parts(units // across)
    for first_row, high in rows:
        for first_col, wide in columns:
            # As many of the inner ones as of those at all four sides, whatever their share is.
            count = min(high * wide, middle // 2 if (high, wide) == (rows[-1][1], columns[-1][1]) else middle // 8)
            places = {
                (first_row + int((k + 1) * _GOLDEN % 1 * high)) * across + first_col + int((k + 0.5) * wide / count)
                for k in range(count)
            }
            found |= dict.fromkeys(places, high * wide / len(places))
    order = sorted(found)
    return _Sample(np.array(order), np.array([found[one] for one in order]))


def _parts(count: int) -> list[tuple[int, int]]:
    """The first, the last and what is between, as starts and lengths."""
    return [(0, 1)] + [(count - 1, 1)] * (count > 1) + [(1, count - 2)] * (count > 2)


def _numbers(values: Array, of: Array) -> Array:
    """The place of each value among numbers in order."""
    return np.searchsorted(of, values)


def _blocks(units: Array, together: int) -> tuple[int, ...]:
    """The blocks of these clusters, each of so many."""
    return tuple(int(unit) * together + rank for unit in units for rank in range(together))


def spread(count: int, middle: int) -> tuple[int, ...]:
    """The first, the last, and one from each of so many equal parts between; all of them if there are no more.

    Each lies elsewhere in its part: blocks a fixed step apart may all begin, or end, a row of tiles.
    """
    if middle >= count - 2:
        return tuple(range(count))
    if middle < 0:
        return (count // 2,)
    between = {1 + int((k + (k + 1) * _GOLDEN % 1) * (count - 2) / middle) for k in range(middle)}
    return tuple(sorted({0, count - 1, *between}))


STEPS_PER_THREAD = 1 << 24
_TOO_MANY_STEPS = "it takes more steps than any thread that ends"  # as the runtime says


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
        RunError: the kernel breaks a rule on the way, or its threads do more than is looked at.
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
    counts = {name: round(getattr(one, name), 3) for name in _SUMS}  # weights are no whole numbers, what they scale is
    return Access(
        one.space, one.kind, one.read_only, one.bytes, **counts,
        kernel=kernel, line=line.number, source=line.text, called_from=line.called_from, buffer=buffer,
    )  # fmt: skip


def _merged(accesses: Sequence[Access]) -> Iterator[Access]:
    """One for each line, buffer and kind: a compiler makes several places of one."""
    groups: dict[Access, list[Access]] = {}
    for access in accesses:
        groups.setdefault(replace(access, **_NO_COUNTS), []).append(access)
    for same in groups.values():
        yield replace(same[0], **{name: sum(getattr(one, name) for one in same) for name in _SUMS})


_SUMS = ("requests", "lanes", "sectors", "lines", "block_sectors", "wavefronts", "least_wavefronts")
_NO_COUNTS: dict[str, Any] = dict.fromkeys(_SUMS, 0.0)


class _Memory:
    """The arrays of a call, and its launches on them."""

    def __init__(self, kernel: HostKernel, limits: Limits, extents: Extents) -> None:
        variant = kernel.variant
        self._kernel = kernel
        self._sizes = {**extents, **limits.sizes()}
        self._plan = variant.plan
        layouts = variant.family.layouts(variant.spec, extents)
        operands = {operand.name: operand for operand in variant.spec.operands}
        self._numbers = timed_numbers(variant.spec)
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
        """Every launch but those that set up; equal ones, and those that differ in their time alone, once."""
        found: Counter[object] = Counter()
        first: dict[object, Step] = {}
        for step in steps(self._plan, self._sizes):
            numbers = tuple(argument for argument in step.arguments if not isinstance(argument, str))
            numbers = numbers if step.time is None else ()
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
        try:
            self._kernel.run_share(step, self._storage, self._numbers, share)
        except HostFault as fault:
            if _TOO_MANY_STEPS in str(fault):  # which on so large a problem is no fault
                raise RunError(
                    self._kernel.variant.name,
                    f"has threads with more than {STEPS_PER_THREAD:,} accesses each, which is more than is looked at",
                    next_step="Give smaller sizes",
                ) from None
            raise
        return asked.seen()


def _within(events: Array, variable: Variable) -> Array:
    place = events["address"]
    return np.asarray((place >= variable.start) & (place < variable.start + variable.bytes))
