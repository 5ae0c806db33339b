"""The race among those that were tried: halves it until few are left, and times these until their order is settled.

A trial's few samples are enough to drop what is slow, not to tell apart what is fast. So the best are timed again in
turns, in orders and in memory that change: half of them stays, then half of those, in heats that take equally long, and
so tell more and more apart; all that are left have taken the same turns, so a heat judges by those of the heats before
it too. The least of many noisy numbers flatters the one that has it: what was timed from cold caches before the finals
decides who comes to them, never who wins.

A short kernel is called once, and also over and over on data that stay in the caches: both count. Dozens that are alike
from cold caches, to a step of the timer, may be far from alike among many launches. So all that are within 3 % of the
fastest are timed in graphs of many launches too, and halved by the product of both times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from gen.gpu.timing import GRAPH_LAUNCHES
from gen.store.trials import Trial
from gen.tune.choose import NEAR, Interval, leader_of, margin_of, midmean_interval, over
from gen.tune.device import Entrant, Rounds, Session

FINALISTS = 8
FIRST_HEAT = 96  # the most that are timed again
HEAT_SECONDS = 0.12  # of each heat
HEAT_TURNS = (3, 200)  # of a heat, at least and at most
SAMPLE_US = 230.0  # what a sample takes beside the kernel: caches flushed, outputs poisoned
ROUND = 10  # turns of the finals before it is asked whether their order is settled; even: two share a place in memory
LEAST_TURNS = 30
MOST_TURNS = 1000
MOST_SECONDS = 1.5  # of the finals, once there are as many turns as are needed
MOST_HOT = 64  # short ones that are timed in graphs too
HOT_TURNS = 2  # of a look at them, each a graph of many launches
LAST_TURNS = 4  # of the last look, at those that go to the finals
BESIDE = 2  # who may come along: the fastest from cold caches, and the incumbent
HOT_SAMPLE_US = 2000.0  # what a sample of them takes beside the launches, which run twice: the graph is made
HOT_SHARE = 1 / 3  # of the time that is left, for a look
Faulty = Callable[[Trial], None]


@dataclass(frozen=True)
class Finals:
    """The finalists in turns.

    Attributes:
        times_us: by name, of those that stayed right; who was settled earlier has fewer, of the first turns.
        settled: whether more turns would not change who wins.
        hot_us: of a launch among many, of short ones that are near the fastest; empty where there are none, or no time.
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
    def turns(self) -> int:
        """How often the fastest was timed, and all that were in doubt to the end."""
        return max((len(times) for times in self.times_us.values()), default=0)


@dataclass
class _Heats:
    """The heats of a race, and what they have told so far.

    Attributes:
        times_us: of each, from before.
        cold_us: from cold caches, of all turns so far.
        hot_us: among many launches, the same.
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
        """What is left until the deadline."""
        return inf if self.deadline is None else self.deadline - time.monotonic()

    def cold(self, left: list[Entrant]) -> list[Entrant]:
        """Times them once more from cold caches, while there is time; those that are right, fastest first."""
        if left and self.seconds > 0:
            turn_us = sum(self.times_us[one.name] + SAMPLE_US for one in left)
            turns = round(1e6 * min(HEAT_SECONDS, self.seconds / 6) / turn_us)
            rounds, left = _right(self.session, left, min(max(turns, HEAT_TURNS[0]), HEAT_TURNS[1]), self.faulty)
            self._add(rounds, self.cold_us)
        known = {one.name: self._cold(one).center for one in left}
        return sorted(left, key=lambda one: (known[one.name], self.times_us[one.name], one.name))

    def hot(self, left: list[Entrant], turns: int) -> list[Entrant]:
        """Times them once more among many launches; those that are right. Where none has memory for it, all stay."""
        faults: list[Trial] = []
        rounds, right = _right(self.session, left, turns, faults.append, hot=True)
        if not right and not self.hot_us and all(fault.status == "infeasible" for fault in faults):
            return left
        for fault in faults:
            self.faulty(fault)
        self._add(rounds, self.hot_us)
        return right

    def best(self, left: Sequence[Entrant], most: int, incumbent: str | None) -> list[Entrant]:
        """So many that are near the fastest from cold caches, by all that is known; it and `incumbent` beside them.

        Near is who is not shown to be over 3 % slower. Against the fastest the finals hold the others.
        """
        cold = {one.name: self._cold(one) for one in left}
        fastest = min(cold, key=lambda name: (cold[name].center, name), default="")
        near = [one for one in left if cold[one.name].low <= NEAR * cold[fastest].center]
        hot = {name: midmean_interval(self.hot_us.get(name, [1.0])).center for name in cold}
        product = {name: cold[name].center * hot[name] for name in cold}
        near.sort(key=lambda one: (product[one.name], one.name))
        stay = [one for one in left if one.name in (incumbent, fastest)]
        return stay + [one for one in near[:most] if one not in stay]

    def in_time(self, left: Sequence[Entrant], turns: int) -> int:
        """How many of them, from the first, there is time to look at among many launches."""
        each = (turns * (HOT_SAMPLE_US + 2 * GRAPH_LAUNCHES * self._cold(one).center) / 1e6 for one in left)
        return sum(seconds <= HOT_SHARE * self.seconds for seconds in accumulate(each))

    def _cold(self, entrant: Entrant) -> Interval:
        return midmean_interval(self.cold_us.get(entrant.name) or [self.times_us[entrant.name]])

    def _add(self, rounds: Rounds, times: dict[str, list[float]]) -> None:
        self.foreign.update(rounds.foreign)
        for name, more in rounds.times_us.items():
            times.setdefault(name, []).extend(more)


@dataclass(frozen=True)
class Halved:
    """Who goes to the finals.

    Attributes:
        hot_us: by name, of a launch among many: of the last look, or of all if there was no time for that one.
        foreign: processes of others on the GPU meanwhile, a text each.
    """

    left: list[Entrant]
    hot_us: Mapping[str, Sequence[float]]
    foreign: frozenset[str]


def halve(
    session: Session, entrants: Mapping[str, Entrant], times_us: Mapping[str, float], faulty: Faulty,
    deadline: float | None = None,
) -> Halved:  # fmt: skip
    """The fastest of those given, fastest first, at most so many as go to the finals.

    Args:
        session: where they are timed.
        entrants: by name.
        times_us: of each, as far as known.
        faulty: is told of those that turn out to be wrong, which go no further.
        deadline: of `time.monotonic()`; then the order known so far decides.
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
    """The best of short ones, by the product of a launch's time from cold caches and of one's among many.

    All that are near the fastest from cold caches get a look among many launches, as far as there is time, and the
    better half of them the next, until few are left; one more tells what these take. The variant named `incumbent`
    takes part to the end. Where there is no time, or none of them stays right, the others that are fastest from cold
    caches are left.
    """
    heats, left = _begin(session, entrants, times_us, faulty, deadline, incumbent)
    left = heats.cold(left)
    racing, looked = heats.best(left, MOST_HOT, incumbent), list[Entrant]()
    while len(racing) > FINALISTS + BESIDE:
        fit = heats.in_time(racing, HOT_TURNS)
        if fit < FINALISTS:
            break
        looked = looked or racing[:fit]
        racing = heats.hot(racing[:fit], HOT_TURNS)
        if not heats.hot_us:
            break
        most = max(FINALISTS, len(racing) // 2)
        racing = heats.best(racing, most, incumbent)
        if len(racing) > FINALISTS + BESIDE:
            racing = heats.best(heats.cold(racing), most, incumbent)
    fit = heats.in_time(racing, LAST_TURNS)
    needed = len(racing) if looked else min(len(racing), FINALISTS)
    if fit >= needed > 1 and (heats.hot_us or not looked):
        looked = looked or racing[:fit]
        heats.hot_us.clear()  # what decided who comes here flatters who does
        racing = heats.hot(racing[:fit], LAST_TURNS)
    best = heats.best(racing, FINALISTS, incumbent) if looked else []
    best = best or [one for one in left if one not in looked][:FINALISTS]
    return Halved(best, heats.hot_us, frozenset(heats.foreign))


def _begin(
    session: Session, entrants: Mapping[str, Entrant], times_us: Mapping[str, float], faulty: Faulty,
    deadline: float | None, incumbent: str | None = None,
) -> tuple[_Heats, list[Entrant]]:  # fmt: skip
    """The heats, and the fastest of those given."""
    by_time = sorted(entrants.values(), key=lambda one: (one.name != incumbent, times_us[one.name], one.name))
    return _Heats(session, faulty, deadline, times_us), by_time[:FIRST_HEAT]


def finals(
    session: Session, entrants: Sequence[Entrant], faulty: Faulty, deadline: float | None = None,
    incumbent: str | None = None,
) -> tuple[list[Entrant], Finals]:  # fmt: skip
    """Those that stay right, and their times: turn after turn until it is settled who wins, or enough.

    Who is settled takes no more turns, once all have taken some; whoever leads takes them all. `incumbent` is the name
    of the incumbent, which may be slower by a larger margin.
    """
    left, found, start = list(entrants), Finals({}, settled=False), time.monotonic()
    racing, turns = left, ROUND
    while racing:
        rounds, right = _right(session, racing, turns, faulty)
        if len(right) < len(racing):  # times beside a kernel that breaks things count for nothing
            left = [entrant for entrant in left if entrant in right or entrant not in racing]
            found, racing, turns = Finals({}, settled=False), left, ROUND
            continue
        found = _joined(found, rounds, incumbent)
        now = time.monotonic()
        enough = found.turns >= LEAST_TURNS and (found.settled or now >= start + MOST_SECONDS)
        if enough or found.turns >= MOST_TURNS or (deadline is not None and now >= deadline):
            break
        if found.turns >= LEAST_TURNS:
            names = in_doubt(found.times_us, incumbent)
            racing = [entrant for entrant in left if entrant.name in names]
            turns = min(found.turns, MOST_TURNS - found.turns)
    return left, found


def in_doubt(times: Mapping[str, Sequence[float]], incumbent: str | None = None) -> set[str]:
    """The fastest, and those of which it is neither shown that they are too slow to win, nor that they are not.

    None but the fastest, if the incumbent is shown to stay.
    """
    leader = leader_of(times)
    ratios = {name: over(times[name], times[leader]) for name in times if name != leader}
    if incumbent == leader or (incumbent in ratios and ratios[incumbent].high <= margin_of(incumbent, incumbent)):
        return {leader}
    return {leader, *(name for name, ratio in ratios.items() if ratio.low <= margin_of(name, incumbent) < ratio.high)}


def noise(times: Sequence[float]) -> Interval:
    """How far the times of one variant differ from themselves: each turn's over the next, in the same memory."""
    return midmean_interval([one / other for one, other in zip(times[::2], times[1::2], strict=False)])


def _right(
    session: Session, entrants: list[Entrant], turns: int, faulty: Faulty, *, hot: bool = False
) -> tuple[Rounds, list[Entrant]]:  # fmt: skip
    """Rounds of those that stay right, and who they are."""
    left = list(entrants)
    while left:
        rounds = session.rounds(left, turns, hot=hot)
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
