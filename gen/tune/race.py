"""The race among those that were tried: halves it until few are left, and times these until their order is settled.

A trial's few samples are enough to drop what is slow, not to tell apart what is fast. So the best are timed again in
turns, in orders and in memory that change: half of them stays, then half of those, in heats that take equally long, and
so tell more and more apart; all that are left have taken the same turns, so a heat judges by those of the heats before
it too. The least of many noisy numbers flatters the one that has it: no time from before the finals decides who wins
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gen.gpu.trial import Entrant, Rounds, Session, Trial
from gen.tune.choose import NEAR, Interval, leader_of, margin_of, midmean_interval, over

FINALISTS = 8
FIRST_HEAT = 96  # the most that are timed again
HEAT_SECONDS = 0.12  # of each heat
HEAT_TURNS = (3, 200)  # of a heat, at least and at most
SAMPLE_US = 230.0  # what a sample takes beside the kernel: caches flushed, outputs poisoned
ROUND = 10  # turns of the finals before it is asked whether their order is settled; even: two share a place in memory
LEAST_TURNS = 30
MOST_TURNS = 1000
MOST_SECONDS = 1.5  # of the finals, once there are as many turns as are needed
NEAREST = 16  # the most short ones that are timed in graphs too
HOT_TURNS = 4  # of them, each of many launches
HOT_SECONDS = 0.2  # that must be left for it
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


def halve(
    session: Session, entrants: Mapping[str, Entrant], times_us: Mapping[str, float], faulty: Faulty,
    deadline: float | None = None, finalists: int = FINALISTS,
) -> tuple[list[Entrant], dict[str, float], frozenset[str]]:  # fmt: skip
    """The fastest of those given, fastest first, at most so many; times of all; and who else was on the GPU.

    Args:
        session: where they are timed.
        entrants: by name.
        times_us: of each, as far as known.
        faulty: is told of those that turn out to be wrong, which go no further.
        deadline: of `time.monotonic()`; then the order known so far decides.
        finalists: how many are left at most.
    """
    left = sorted(entrants.values(), key=lambda entrant: (times_us[entrant.name], entrant.name))[:FIRST_HEAT]
    taken: dict[str, list[float]] = {entrant.name: [] for entrant in left}
    known = dict(times_us)
    others: set[str] = set()
    while len(left) > finalists and (deadline is None or time.monotonic() < deadline):
        seconds = HEAT_SECONDS if deadline is None else min(HEAT_SECONDS, (deadline - time.monotonic()) / 6)
        turn_us = sum(times_us[entrant.name] + SAMPLE_US for entrant in left)
        turns = min(max(round(1e6 * seconds / turn_us), HEAT_TURNS[0]), HEAT_TURNS[1])
        rounds, left = _right(session, left, turns, faulty)
        others.update(rounds.foreign)
        for name, more in rounds.times_us.items():
            taken[name] += more
            known[name] = midmean_interval(taken[name]).center
        left.sort(key=lambda one: (known[one.name], times_us[one.name]))
        left = left[: max(finalists, len(left) // 2)]
    return left[:finalists], known, frozenset(others)


def hot_heat(
    session: Session, entrants: Sequence[Entrant], cold_us: Mapping[str, float], faulty: Faulty,
    previous: str | None = None,
) -> tuple[list[Entrant], Rounds]:  # fmt: skip
    """Those that go to the finals, and their times as one launch among many; all are given that are near the fastest.

    A short kernel is called once, and also over and over on data that stay in the caches: both count. So the best are
    those of the least product of both times, among those that are within 3 % of the fastest from cold caches.
    """
    fastest = min(cold_us[entrant.name] for entrant in entrants)
    near = [one for one in entrants if cold_us[one.name] <= NEAR * fastest or one.name == previous]
    if len(near) < 2:
        return list(entrants), Rounds()
    rounds, right = _right(session, near, HOT_TURNS, faulty, hot=True)
    product = {name: cold_us[name] * midmean_interval(times).center for name, times in rounds.times_us.items()}
    right.sort(key=lambda one: (product[one.name], one.name))
    return right or [one for one in entrants if one not in near], rounds


def finals(
    session: Session, entrants: Sequence[Entrant], faulty: Faulty, deadline: float | None = None,
    previous: str | None = None,
) -> tuple[list[Entrant], Finals]:  # fmt: skip
    """Those that stay right, and their times: turn after turn until it is settled who wins, or enough.

    Who is settled takes no more turns, once all have taken some; whoever leads takes them all. `previous` is the name
    of the winner so far, which more is forgiven.
    """
    left, found, start = list(entrants), Finals({}, settled=False), time.monotonic()
    racing, turns = left, ROUND
    while racing:
        rounds, right = _right(session, racing, turns, faulty)
        if len(right) < len(racing):  # times beside a kernel that breaks things count for nothing
            left = [entrant for entrant in left if entrant in right or entrant not in racing]
            found, racing, turns = Finals({}, settled=False), left, ROUND
            continue
        found = _joined(found, rounds, previous)
        now = time.monotonic()
        enough = found.turns >= LEAST_TURNS and (found.settled or now >= start + MOST_SECONDS)
        if enough or found.turns >= MOST_TURNS or (deadline is not None and now >= deadline):
            break
        if found.turns >= LEAST_TURNS:
            names = in_doubt(found.times_us, previous)
            racing = [entrant for entrant in left if entrant.name in names]
            turns = min(found.turns, MOST_TURNS - found.turns)
    return left, found


def in_doubt(times: Mapping[str, Sequence[float]], previous: str | None = None) -> set[str]:
    """The fastest, and those of which it is neither shown that they are too slow to win, nor that they are not.

    None but the fastest, if the winner so far is shown to stay.
    """
    leader = leader_of(times)
    ratios = {name: over(times[name], times[leader]) for name in times if name != leader}
    if previous == leader or (previous in ratios and ratios[previous].high <= margin_of(previous, previous)):
        return {leader}
    return {leader, *(name for name, ratio in ratios.items() if ratio.low <= margin_of(name, previous) < ratio.high)}


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


def _joined(before: Finals, rounds: Rounds, previous: str | None) -> Finals:
    more = {name: (*before.times_us.get(name, ()), *added) for name, added in rounds.times_us.items()}
    times: dict[str, Sequence[float]] = {**before.times_us, **more}
    seen = [mhz for mhz in (*before.sm_mhz, *rounds.sm_mhz) if mhz]
    why = tuple(sorted({*before.throttled, *rounds.throttled}))
    others = tuple(sorted({*before.foreign, *rounds.foreign}))
    return Finals(times, len(in_doubt(times, previous)) == 1, (min(seen), max(seen)) if seen else (0, 0), why, others)
