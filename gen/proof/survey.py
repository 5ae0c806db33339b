"""Which blocks of a launch are looked at, and for how many each stands.

All blocks of small launches run. Of a large launch the first and the last do, and some between, which stand for all
others. Every access of what runs is counted. Where these are too many to note, blocks that do as much at every place in
the code stand for each other, and of each thread at each place some rounds stand for all: they are scaled up to what
was counted. So what runs whole is exact in how much it asks for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gen.families.base import Array
from gen.proof.faults import HostFault
from gen.proof.native import ANY_STEPS, CodePlace, Trace
from gen.proof.native import Access as Slot
from gen.proof.traffic import EVENT

WHOLE = 512  # blocks: a launch of as many may run whole
SAMPLES = (256, 24, 8, 3, 2)  # blocks between the first and the last, one after the other until they do little enough
EVENTS = 1 << 18  # accesses of a launch that are noted, and as many again where only some rounds are
STEPS = 1 << 24  # of a launch, after which fewer blocks are tried
NOTED = (24, 8, 3, 2)  # blocks that are noted of those that run
ROUNDS = (8, 4, 2, 1)  # of a thread at a place, that are noted one after the other: they may share sectors
_GOLDEN = 0.6180339887  # of whose multiples no two have nearly the same fraction

# `gen.proof.native.CodePlace` as NumPy sees it.
PLACE = np.dtype({
    "names": ["pc", "count", "noted", "block"], "formats": ["u8", "u8", "u8", "u4"], "offsets": [0, 8, 16, 24],
    "itemsize": 32,
})  # fmt: skip


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
