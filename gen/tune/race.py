"""The race among the variants that were tried: heats halve it, finals settle the order of those that are left.

A trial has few samples: enough to drop what is slow, not to tell apart what is fast. So the fastest variants are timed
again in rounds, whose order and whose memory change. Each heat takes about the same time and drops the slower half, by
the times of all heats so far, since all that are left have run in the same rounds. The finals count only their own
rounds: of many noisy times the least flatters its variant, so earlier times choose the finalists and never the winner.

A short kernel may be called once, or over and over on data that stay in the caches. From cold caches dozens of short
kernels differ by less than a step of the timer, and still differ much among many launches. So all that are within 3 %
of the fastest from cold caches are timed in graphs of many launches too, and halved by the product of both times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from gen.gpu.timing import GRAPH_LAUNCHES
from gen.store.trials import Trial
from gen.tune.choose import HOT_RATIO, Interval, leader_of, margin_of, midmean_interval, over
from gen.tune.device import Entrant, Rounds, Session

FINALISTS = 8
FIRST_HEAT_VARIANTS = 96  # timed again at most
HEAT_SECONDS = 0.12  # of each heat
HEAT_ROUNDS = (3, 200)  # of a heat, at least and at most
SAMPLE_OVERHEAD_US = 230.0  # of a sample, beside the kernel: caches are flushed, outputs poisoned
ROUNDS_PER_CHECK = 10  # of the finals, before it is asked whether the order is settled; even, as pairs share memory
MIN_ROUNDS = 30  # of the finals
MAX_ROUNDS = 1000
MAX_SECONDS = 1.5  # of the finals, once there are MIN_ROUNDS
MAX_HOT_VARIANTS = 64  # short ones that are timed in graphs too
HOT_ROUNDS = 2  # of a heat in graphs of many launches
LAST_HOT_ROUNDS = 4  # of the last such heat, for those that go to the finals
EXTRA_FINALISTS = 2  # the fastest from cold caches, and the incumbent, stay beside those with the best products
HOT_SAMPLE_OVERHEAD_US = 2000.0  # of a sample in a graph, beside its launches, which run twice: the graph is made
HOT_FRACTION = 1 / 3  # of the time that is left, for one heat in graphs
Faulty = Callable[[Trial], None]


@dataclass(frozen=True)
class Finals:
    """The times of the finalists.

    Attributes:
        times_us: by name, of those that stayed right: one time a round. A finalist whose order was settled early was
            timed in the first rounds only, and has fewer.
        settled: whether more rounds would not change which one wins.
        hot_us: of a launch among many, of short finalists; empty where there are none, or was no time.
        sm_mhz: the lowest and the highest clock seen; 0 where nobody looked.
        throttled: why the GPU held it down, in words.
        foreign: processes of others on the GPU meanwhile, a text each.
    """

    times_us: Mapping[str, Sequence[float]]
    settled: bool
    sm_mhz: tuple[int, int] = (0, 0)
    throttled: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    hot_us: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """How many rounds there were. The fastest was timed in all of them."""
        return max((len(times) for times in self.times_us.values()), default=0)


@dataclass
class _Heats:
    """The heats of a race, and the times of all heats so far.

    Attributes:
        session: where they are timed.
        faulty: is told of variants that turn out to be wrong.
        deadline: of `time.monotonic()`; None: there is none.
        times_us: of each variant by name, as known before the race.
        cold_us: from cold caches, of all rounds so far.
        hot_us: of one launch among many, of all rounds so far.
        foreign: processes of others on the GPU meanwhile.
    """

    session: Session
    faulty: Faulty
    deadline: float | None
    times_us: Mapping[str, float]
    cold_us: dict[str, list[float]] = field(default_factory=dict)
    hot_us: dict[str, list[float]] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)

    @property
    def seconds(self) -> float:
        """Seconds until the deadline."""
        return inf if self.deadline is None else self.deadline - time.monotonic()

    def cold(self, left: list[Entrant]) -> list[Entrant]:
        """Times variants from cold caches, if there is time. Gives those that are right, fastest first."""
        if left and self.seconds > 0:
            round_us = sum(self.times_us[one.name] + SAMPLE_OVERHEAD_US for one in left)
            count = round(1e6 * min(HEAT_SECONDS, self.seconds / 6) / round_us)
            rounds, left = rounds_of_right(
                self.session, left, min(max(count, HEAT_ROUNDS[0]), HEAT_ROUNDS[1]), self.faulty
            )
            self._add(rounds, self.cold_us)
        known = {one.name: self._cold(one).center for one in left}
        return sorted(left, key=lambda one: (known[one.name], self.times_us[one.name], one.name))

    def hot(self, left: list[Entrant], count: int) -> list[Entrant]:
        """Times variants among many launches, in so many rounds. Gives those that are right.

        Where the device has no memory for the graph of any of them, it gives all.
        """
        faults: list[Trial] = []
        rounds, right = rounds_of_right(self.session, left, count, faults.append, hot=True)
        if not right and not self.hot_us and all(fault.status == "infeasible" for fault in faults):
            return left
        for fault in faults:
            self.faulty(fault)
        self._add(rounds, self.hot_us)
        return right

    def best(self, left: Sequence[Entrant], most: int, incumbent: str | None) -> list[Entrant]:
        """The best by the product of both times, at most so many, and beside them the fastest and the incumbent.

        Only variants count that are not shown to be more than 3 % slower than the fastest from cold caches. The
        fastest itself stays because the finals compare all others with it.
        """
        cold = {one.name: self._cold(one) for one in left}
        fastest = min(cold, key=lambda name: (cold[name].center, name), default="")
        near = [one for one in left if cold[one.name].low <= HOT_RATIO * cold[fastest].center]
        hot = {name: midmean_interval(self.hot_us.get(name, [1.0])).center for name in cold}
        product = {name: cold[name].center * hot[name] for name in cold}
        near.sort(key=lambda one: (product[one.name], one.name))
        stay = [one for one in left if one.name in (incumbent, fastest)]
        return stay + [one for one in near[:most] if one not in stay]

    def in_time(self, left: Sequence[Entrant], count: int) -> int:
        """How many of these variants, from the first, there is time to time among many launches in so many rounds."""
        each = (count * (HOT_SAMPLE_OVERHEAD_US + 2 * GRAPH_LAUNCHES * self._cold(one).center) / 1e6 for one in left)
        return sum(seconds <= HOT_FRACTION * self.seconds for seconds in accumulate(each))

    def _cold(self, entrant: Entrant) -> Interval:
        return midmean_interval(self.cold_us.get(entrant.name) or [self.times_us[entrant.name]])

    def _add(self, rounds: Rounds, times: dict[str, list[float]]) -> None:
        self.foreign.update(rounds.foreign)
        for name, more in rounds.times_us.items():
            times.setdefault(name, []).extend(more)


@dataclass(frozen=True)
class Halved:
    """The finalists.

    Attributes:
        left: the finalists, best first.
        hot_us: by name, of a launch among many: of the last heat in graphs, or of all if there was no time for it.
        foreign: processes of others on the GPU meanwhile, a text each.
    """

    left: list[Entrant]
    hot_us: Mapping[str, Sequence[float]]
    foreign: frozenset[str]


def halve(
    session: Session, entrants: Mapping[str, Entrant], times_us: Mapping[str, float], faulty: Faulty,
    deadline: float | None = None,
) -> Halved:  # fmt: skip
    """The fastest variants, fastest first, at most FINALISTS.

    Args:
        session: where they are timed.
        entrants: by name.
        times_us: of each, as far as known.
        faulty: is told of variants that turn out to be wrong; they are no finalists.
        deadline: of `time.monotonic()`; then the times known so far decide.
    """
    heats, left = _begin(session, entrants, times_us, faulty, deadline)
    while len(left) > FINALISTS and heats.seconds > 0:
        left = heats.cold(left)
        left = left[: max(FINALISTS, len(left) // 2)]
    return Halved(left[:FINALISTS], {}, frozenset(heats.foreign))


def halve_short(
    session: Session, entrants: Mapping[str, Entrant], times_us: Mapping[str, float], faulty: Faulty,
    deadline: float | None = None, incumbent: str | None = None,
) -> Halved:  # fmt: skip
    """The best of short kernels, by the product of the times of a launch from cold caches and of one among many.

    All that are within 3 % of the fastest from cold caches are timed among many launches, as far as there is time. The
    better half stays, until about FINALISTS are left; these are timed so once more. The incumbent takes part to the
    end. Where there is no time, or none of these stays right, the finalists are the others that are fastest from cold
    caches.
    """
    heats, left = _begin(session, entrants, times_us, faulty, deadline, incumbent)
    left = heats.cold(left)
    racing, timed = heats.best(left, MAX_HOT_VARIANTS, incumbent), list[Entrant]()
    while len(racing) > FINALISTS + EXTRA_FINALISTS:
        fit = heats.in_time(racing, HOT_ROUNDS)
        if fit < FINALISTS:
            break
        timed = timed or racing[:fit]
        racing = heats.hot(racing[:fit], HOT_ROUNDS)
        if not heats.hot_us:
            break
        most = max(FINALISTS, len(racing) // 2)
        racing = heats.best(racing, most, incumbent)
        if len(racing) > FINALISTS + EXTRA_FINALISTS:
            racing = heats.best(heats.cold(racing), most, incumbent)
    fit = heats.in_time(racing, LAST_HOT_ROUNDS)
    needed = len(racing) if timed else min(len(racing), FINALISTS)
    if fit >= needed > 1 and (heats.hot_us or not timed):
        timed = timed or racing[:fit]
        heats.hot_us.clear()  # the times that chose these variants flatter them
        racing = heats.hot(racing[:fit], LAST_HOT_ROUNDS)
    best = heats.best(racing, FINALISTS, incumbent) if timed else []
    best = best or [one for one in left if one not in timed][:FINALISTS]
    return Halved(best, heats.hot_us, frozenset(heats.foreign))


def _begin(
    session: Session, entrants: Mapping[str, Entrant], times_us: Mapping[str, float], faulty: Faulty,
    deadline: float | None, incumbent: str | None = None,
) -> tuple[_Heats, list[Entrant]]:  # fmt: skip
    """The heats, and the fastest variants, the incumbent first."""
    by_time = sorted(entrants.values(), key=lambda one: (one.name != incumbent, times_us[one.name], one.name))
    return _Heats(session, faulty, deadline, times_us), by_time[:FIRST_HEAT_VARIANTS]


def finals(
    session: Session, entrants: Sequence[Entrant], faulty: Faulty, deadline: float | None = None,
    incumbent: str | None = None,
) -> tuple[list[Entrant], Finals]:  # fmt: skip
    """The finalists that stay right, and their times, in rounds until the winner is settled or a limit is reached.

    From MIN_ROUNDS on, only the fastest is timed further and those that may still win: which of the others are too slow
    is settled. The limits are MAX_ROUNDS, MAX_SECONDS and the deadline of `time.monotonic()`. The incumbent, given by
    name, may be slower by a larger margin than others and still win.
    """
    left, found, start = list(entrants), Finals({}, settled=False), time.monotonic()
    racing, count = left, ROUNDS_PER_CHECK
    while racing:
        rounds, right = rounds_of_right(session, racing, count, faulty)
        if len(right) < len(racing):  # times beside a kernel that breaks things count for nothing
            left = [entrant for entrant in left if entrant in right or entrant not in racing]
            found, racing, count = Finals({}, settled=False), left, ROUNDS_PER_CHECK
            continue
        found = _joined(found, rounds, incumbent)
        now = time.monotonic()
        enough = found.rounds >= MIN_ROUNDS and (found.settled or now >= start + MAX_SECONDS)
        if enough or found.rounds >= MAX_ROUNDS or (deadline is not None and now >= deadline):
            break
        if found.rounds >= MIN_ROUNDS:
            names = in_doubt(found.times_us, incumbent)
            racing = [entrant for entrant in left if entrant.name in names]
            count = min(found.rounds, MAX_ROUNDS - found.rounds)
    return left, found


def in_doubt(times: Mapping[str, Sequence[float]], incumbent: str | None = None) -> set[str]:
    """The fastest, and those that are not shown to be too slow to win, nor shown to be fast enough.

    Only the fastest, if the incumbent is shown to be fast enough to stay.
    """
    leader = leader_of(times)
    ratios = {name: over(times[name], times[leader]) for name in times if name != leader}
    if incumbent == leader or (incumbent in ratios and ratios[incumbent].high <= margin_of(incumbent, incumbent)):
        return {leader}
    return {leader, *(name for name, ratio in ratios.items() if ratio.low <= margin_of(name, incumbent) < ratio.high)}


def noise(times: Sequence[float]) -> Interval:
    """How much the time of one variant varies: the ratio of the times of two rounds that share memory."""
    return midmean_interval([one / other for one, other in zip(times[::2], times[1::2], strict=False)])


def rounds_of_right(
    session: Session, entrants: list[Entrant], count: int, faulty: Faulty, *, hot: bool = False
) -> tuple[Rounds, list[Entrant]]:  # fmt: skip
    """So many rounds of the variants that stay right, and these variants; `faulty` is told of the others."""
    left = list(entrants)
    while left:
        rounds = session.rounds(left, count, hot=hot)
        if not rounds.faults:
            return rounds, left
        names = {trial.variant.name for trial in rounds.faults}
        for trial in rounds.faults:
            faulty(trial)
        left = [entrant for entrant in left if entrant.name not in names]
    return Rounds(), left


def _joined(before: Finals, rounds: Rounds, incumbent: str | None) -> Finals:
    more = {name: (*before.times_us.get(name, ()), *added) for name, added in rounds.times_us.items()}
    times: dict[str, Sequence[float]] = {**before.times_us, **more}
    seen = [mhz for mhz in (*before.sm_mhz, *rounds.sm_mhz) if mhz]
    why = tuple(sorted({*before.throttled, *rounds.throttled}))
    others = tuple(sorted({*before.foreign, *rounds.foreign}))
    return Finals(times, len(in_doubt(times, incumbent)) == 1, (min(seen), max(seen)) if seen else (0, 0), why, others)
