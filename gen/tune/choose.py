"""Which of the finalists wins: the fastest, unless a simpler one is as fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np

from gen.gpu.trial import Trial

MARGIN = 1.01  # a difference within 1 % decides nothing


@dataclass(frozen=True)
class Interval:
    """A median ratio of paired times, with its 95 % interval."""

    median: float
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


def leader_of(times: Mapping[str, Sequence[float]]) -> str:
    """The fastest by its median, among those that took every turn."""
    turns = max(map(len, times.values()))
    return min(
        (name for name in times if len(times[name]) == turns), key=lambda one: (float(np.median(times[one])), one)
    )


def choose(finalists: Sequence[Trial], times: Mapping[str, Sequence[float]], previous: str | None = None) -> Trial:
    """The winner among finalists, given their times in turns.

    The fastest by its median leads. Another takes its place if the leader is not shown to be over 1 % faster: the
    previous winner first, else the simplest, by registers, then shared memory, then name.
    """
    leader = leader_of({trial.variant.name: times[trial.variant.name] for trial in finalists})
    equals = [
        trial
        for trial in finalists
        if trial.variant.name == leader or paired_ratio(times[trial.variant.name], times[leader]).low <= MARGIN
    ]
    for trial in equals:
        if trial.variant.name == previous:
            return trial
    return min(equals, key=lambda trial: (trial.registers, trial.shared_bytes, trial.variant.name))
