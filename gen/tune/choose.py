"""Which of the finalists wins: the fastest, unless one that issues fewer instructions, or is simpler, is as fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb, sqrt
from statistics import NormalDist

import numpy as np

from gen.store.trials import Trial

STAY_RATIO = 1.01  # of a time over the fastest, within which the incumbent stays
# Within which a simpler variant wins. Two independent runs may each choose a winner that is so much slower than the
# fastest, and misjudge the fastest by as much: a third of 1 % keeps their winners within 1 % of each other.
TIE_RATIO = 1.003
ISSUED_RATIO = 1.02  # of instructions over the least, up to which estimates count as many
HOT_RATIO = 1.03  # from cold caches, within which short kernels compete by the product of both times
TAIL_DIVISOR = 4  # a midmean drops this part of the values at each end


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
    dropped = count // TAIL_DIVISOR
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
    """The ratio of times that were measured in the same rounds, with its interval; rounds of one alone do not count."""
    return median_interval([one / other for one, other in zip(times, others, strict=False)])


def over(times: Sequence[float], leader: Sequence[float]) -> Interval:
    """The ratio of a finalist's times to another's, of the rounds that both have; finer than the steps of a timer.

    Two rounds that follow each other count as one value, since they share the place in memory.
    """
    return midmean_interval([one / other for one, other in zip(_in_pairs(times), _in_pairs(leader), strict=False)])


def _in_pairs(times: Sequence[float]) -> list[float]:
    """The sums of the times of two rounds each; a single time as it is."""
    return [sum(times[at : at + 2]) for at in range(0, max(len(times) - 1, 1), 2)]


def leader_of(times: Mapping[str, Sequence[float]]) -> str:
    """The fastest by its midmean, of those that were timed in every round."""
    rounds = max(map(len, times.values()))
    centers = {name: midmean_interval(times[name]).center for name in times if len(times[name]) == rounds}
    return min(centers, key=lambda name: (centers[name], name))


def margin_of(name: str, incumbent: str | None) -> float:
    """The most that the ratio of a finalist's time to the fastest may be for it to win."""
    return STAY_RATIO if name == incumbent else TIE_RATIO


def choose(
    finalists: Sequence[Trial], times: Mapping[str, Sequence[float]], incumbent: str | None = None,
    hot: Mapping[str, Sequence[float]] | None = None, issued: Mapping[str, float] | None = None,
) -> Trial:  # fmt: skip
    """The winner among the finalists.

    The incumbent wins unless the fastest, by its midmean, is shown to be more than 1 % faster. Else one wins of those
    that are at most 0.3 % slower than the fastest by what was measured: where the instructions of all are known, of
    those that issue least, since what is computed and thrown away takes power, and so lowers the clock of long calls;
    then the simplest, by registers, then shared memory, then name. Intervals do not decide here: the less is known, the
    more variants would count as equal.

    With times in `hot`, those that are within 3 % of the fastest compete by the product of both times. To stay, the
    incumbent must be within 3 % of the least product, too.

    Args:
        finalists: all of them were right.
        times: from cold caches, by name, of the same rounds.
        incumbent: its name.
        hot: of one launch among many, by name, where they were taken.
        issued: instructions of a call, by name, as far as they are known.
    """
    if hot and any(trial.variant.name in hot for trial in finalists):
        return _choose_for_both(finalists, times, hot, incumbent, issued or {})
    leader = leader_of({trial.variant.name: times[trial.variant.name] for trial in finalists})
    behind = {trial.variant.name: over(times[trial.variant.name], times[leader]) for trial in finalists}
    for trial in finalists:
        name = trial.variant.name
        if name == incumbent and behind[name].low <= margin_of(name, incumbent):
            return trial
    equals = [trial for trial in finalists if behind[trial.variant.name].center <= TIE_RATIO]
    return _least(equals, issued or {})


def _choose_for_both(
    finalists: Sequence[Trial], times: Mapping[str, Sequence[float]], hot: Mapping[str, Sequence[float]],
    incumbent: str | None, issued: Mapping[str, float],
) -> Trial:  # fmt: skip
    """The winner where a single launch counts as much as one among many, of those of which both times are known."""
    both = {trial.variant.name: trial for trial in finalists if trial.variant.name in hot}
    leader = leader_of({name: times[name] for name in both})
    behind = {name: over(times[name], times[leader]) for name in both}
    near = [name for name in both if behind[name].center <= HOT_RATIO]
    products = {name: behind[name].center * midmean_interval(hot[name]).center for name in near}
    least = min(products.values())
    if incumbent in products and behind[incumbent].low <= STAY_RATIO and products[incumbent] <= HOT_RATIO * least:
        return both[incumbent]
    return _least([both[name] for name in products if products[name] <= TIE_RATIO * least], issued)


def _least(equals: Sequence[Trial], issued: Mapping[str, float]) -> Trial:
    """Of those that are as fast, the simplest of those that issue the fewest instructions."""
    known = [issued[trial.variant.name] for trial in equals if trial.variant.name in issued]
    if len(known) == len(equals):
        equals = [trial for trial in equals if issued[trial.variant.name] <= ISSUED_RATIO * min(known)]
    return min(equals, key=_simplicity)


def _simplicity(trial: Trial) -> tuple[int, int, str]:
    return trial.registers, trial.shared_bytes, trial.variant.name
