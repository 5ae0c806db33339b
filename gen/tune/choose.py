"""Which of the finalists wins: the fastest, unless a simpler one is as fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gen.gpu.trial import Trial

MARGIN = 1.01  # a difference within 1 % decides nothing
RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A median ratio of paired times, with its 95 % interval."""

    median: float
    low: float
    high: float


def paired_ratio(times: Sequence[float], others: Sequence[float]) -> Interval:
    """The ratio of times that were measured in turns, with a bootstrap interval; the same for the same numbers."""
    ratios = np.asarray(times) / np.asarray(others)
    picks = np.random.default_rng(0).integers(0, len(ratios), (RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(ratios[picks], axis=1), (2.5, 97.5))
    return Interval(float(np.median(ratios)), float(low), float(high))


def choose(finalists: Sequence[Trial], times: Mapping[str, Sequence[float]], previous: str | None = None) -> Trial:
    """The winner among finalists, given their times in turns.

    The fastest by its median leads. Another takes its place if the leader is not shown to be over 1 % faster: the
    previous winner first, else the simplest, by registers, then shared memory, then name.
    """
    leader = min(finalists, key=lambda trial: (float(np.median(times[trial.variant.name])), trial.variant.name))
    equals = [
        trial
        for trial in finalists
        if trial is leader or paired_ratio(times[trial.variant.name], times[leader.variant.name]).low <= MARGIN
    ]
    for trial in equals:
        if trial.variant.name == previous:
            return trial
    return min(equals, key=lambda trial: (trial.registers, trial.shared_bytes, trial.variant.name))
