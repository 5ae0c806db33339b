"""Which of the finalists wins: the fastest, unless a simpler one is as fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb, sqrt
from statistics import NormalDist

import numpy as np

from gen.store.trials import Trial

MARGIN = 1.01  # a difference within 1 % is no reason to give up what stands
# What a simpler one may be slower by and win. Two runs that start from nothing may choose so far apart, and each be as
# far from the truth: a third of the margin keeps their winners within it of each other.
TIE = 1.003
NEAR = 1.03  # of short kernels, what a launch from cold caches may take longer if one among many is that much faster
TAIL = 4  # a midmean drops one value in so many, at each end


@dataclass(frozen=True)
class Interval:
    """Where noisy values lie, with the 95 % interval of that."""

    center: float
    low: float
    high: float


def median_interval(values: Sequence[float]) -> Interval:
    """The median of values, with a 95 % interval that holds whatever their distribution.

    Each value lies below the true median with probability 1/2. So how many do is binomial, and the interval lies
    between two of the values in order: David and Nagaraja, Order Statistics, 2003, section 7.1. Five values or fewer
    give less than 95 %; then it spans all of them.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    outside = _outside(len(ordered))
    return Interval(float(np.median(ordered)), float(ordered[outside]), float(ordered[-1 - outside]))


def midmean_interval(values: Sequence[float]) -> Interval:
    """The mean of the middle half of values, with a 95 % interval.

    A GPU tells times in steps, of 32 ns on Hopper, which is 0.4 % of 8 us: a median is one of the steps, while the mean
    of those between the quartiles lies between steps, and outliers do not move it either. Its interval is Student's, by
    the winsorized variance: Tukey and McLaughlin, Sankhya A 25, 1963, pages 331-352.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    dropped = count // TAIL
    kept = count - 2 * dropped
    center = float(ordered[dropped : count - dropped].mean())
    if kept < 2:
        return Interval(center, float(ordered[0]), float(ordered[-1]))
    winsorized = np.clip(ordered, ordered[dropped], ordered[count - 1 - dropped])
    error = float(winsorized.std(ddof=1)) / (kept / count * sqrt(count))
    reach = _student(kept - 1) * error
    return Interval(center, center - reach, center + reach)


@cache
def _student(freedom: int) -> float:
    """What Student's t stays below with 97.5 %: Abramowitz and Stegun, 26.7.5; exact for one and for two degrees."""
    if freedom <= 2:
        return (12.7062, 4.3027)[freedom - 1]
    z: float = NormalDist().inv_cdf(0.975)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(freedom) ** power for power, term in enumerate(terms, 1))


@cache
def _outside(count: int) -> int:
    """How many values lie beyond each end of the interval.

    The most for which it is unlikely, by 2.5 % or less, that all of them and one more lie on the wrong side.
    """
    below, tail = 0, 1  # of 2^count outcomes, those with `below` values on one side or fewer
    while 40 * tail <= 2**count:
        below += 1
        tail += comb(count, below)
    return max(below - 1, 0)


def paired_ratio(times: Sequence[float], others: Sequence[float]) -> Interval:
    """The ratio of times that were measured in turns, with its interval; of the turns that both have taken."""
    return median_interval([one / other for one, other in zip(times, others, strict=False)])


def over(times: Sequence[float], leader: Sequence[float]) -> Interval:
    """How much longer a finalist takes than another, by the turns that both have taken; finer than a timer's steps.

    Two turns that follow each other are one look, since they share the place in memory.
    """
    return midmean_interval([one / other for one, other in zip(_looks(times), _looks(leader), strict=False)])


def _looks(times: Sequence[float]) -> list[float]:
    """The times of turns, two by two; a single one as it is."""
    return [sum(times[at : at + 2]) for at in range(0, max(len(times) - 1, 1), 2)]


def leader_of(times: Mapping[str, Sequence[float]]) -> str:
    """The fastest by its midmean, among those that took every turn."""
    turns = max(map(len, times.values()))
    centers = {name: midmean_interval(times[name]).center for name in times if len(times[name]) == turns}
    return min(centers, key=lambda name: (centers[name], name))


def margin_of(name: str, incumbent: str | None) -> float:
    """What a finalist may be slower by than the leader and still win."""
    return MARGIN if name == incumbent else TIE


def choose(
    finalists: Sequence[Trial], times: Mapping[str, Sequence[float]], incumbent: str | None = None,
    hot: Mapping[str, Sequence[float]] | None = None,
) -> Trial:  # fmt: skip
    """The winner among finalists, given their times in turns, and those of launches in a graph where they are alike.

    The fastest by its midmean leads. The previous winner takes its place unless the leader is shown to be over 1 %
    faster; else the simplest does, by registers, then shared memory, then name, of those that the leader was not over
    0.3 % faster than. Where that could not be settled, what was measured is the best guess there is: whoever is only
    not shown to be slower would win the oftener the less is known.

    With `hot`, who is within 3 % of the leader competes by the product of both times; to stay, the previous winner must
    be within 3 % of the least product, too.
    """
    if hot and any(trial.variant.name in hot for trial in finalists):
        return _choose_for_both(finalists, times, hot, incumbent)
    leader = leader_of({trial.variant.name: times[trial.variant.name] for trial in finalists})
    behind = {trial.variant.name: over(times[trial.variant.name], times[leader]) for trial in finalists}
    for trial in finalists:
        name = trial.variant.name
        if name == incumbent and behind[name].low <= margin_of(name, incumbent):
            return trial
    equals = [trial for trial in finalists if behind[trial.variant.name].center <= TIE]
    return min(equals, key=_simplicity)


def _choose_for_both(
    finalists: Sequence[Trial], times: Mapping[str, Sequence[float]], hot: Mapping[str, Sequence[float]],
    incumbent: str | None,
) -> Trial:  # fmt: skip
    """The winner where a single launch counts as much as one among many: of those of which both times are known."""
    both = {trial.variant.name: trial for trial in finalists if trial.variant.name in hot}
    leader = leader_of({name: times[name] for name in both})
    behind = {name: over(times[name], times[leader]) for name in both}
    near = [name for name in both if behind[name].center <= NEAR]
    products = {name: behind[name].center * midmean_interval(hot[name]).center for name in near}
    least = min(products.values())
    if incumbent in products and behind[incumbent].low <= MARGIN and products[incumbent] <= NEAR * least:
        return both[incumbent]
    return min((both[name] for name in products if products[name] <= TIE * least), key=_simplicity)


def _simplicity(trial: Trial) -> tuple[int, int, str]:
    return trial.registers, trial.shared_bytes, trial.variant.name
