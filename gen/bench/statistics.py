"""What times that were measured in turns say: a ratio with its interval, and a word for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import exp, log

import numpy as np

from gen.tune.choose import Interval, paired_ratio

PAIRS = 30  # at least, unless that takes longer than SLOW_US
MOST = 200
FEWEST = 3
QUICK_US, SLOW_US = 2e4, 2e6  # more pairs than PAIRS within the first, fewer beyond the second
PART = 20  # pairs between two looks at the clock
LATENCY_US = 20.0  # under this, the time of one launch and that of one of many are two different figures


class Verdict(Enum):
    """What an interval of peer / ours says."""

    WIN = "WIN"
    TIE = "TIE"
    LOSS = "LOSS"


class Change(Enum):
    """What became of a time since an earlier run."""

    SAME = "SAME"
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    UNCLEAR = "UNCLEAR"


@dataclass(frozen=True)
class Duel:
    """Two contenders timed in turns.

    Attributes:
        ours_us, peer_us: medians.
        ratio: of each pair's peer / ours, the median with its 95 % interval: over 1, ours is faster.
        pairs: how many.
    """

    ours_us: float
    peer_us: float
    ratio: Interval
    pairs: int

    @property
    def verdict(self) -> Verdict:
        """By the interval, whatever the median."""
        return verdict(self.ratio.low, self.ratio.high)


def turns(pairs: int) -> tuple[bool, ...]:
    """A B B A, over and over: whether it is the second's turn."""
    return tuple(place % 4 in (1, 2) for place in range(2 * pairs))


def duel(times: Sequence[float]) -> Duel:
    """The outcome of times that were measured in the order of `turns`."""
    order = turns(len(times) // 2)
    ours = [time for time, second in zip(times, order, strict=True) if not second]
    peer = [time for time, second in zip(times, order, strict=True) if second]
    return Duel(float(np.median(ours)), float(np.median(peer)), paired_ratio(peer, ours), len(ours))


def verdict(low: float, high: float) -> Verdict:
    """WIN if all of the interval of peer / ours lies above 1, LOSS if below."""
    return Verdict.WIN if low > 1 else Verdict.LOSS if high < 1 else Verdict.TIE


def pairs_within(pair_us: float) -> int:
    """How many pairs to time: PAIRS at least, more while they are quick, fewer only where so many take too long."""
    if pair_us <= 0:
        return MOST
    return max(FEWEST, min(MOST, max(int(QUICK_US / pair_us), min(PAIRS, int(SLOW_US / pair_us)))))


def parts(pairs: int) -> tuple[int, ...]:
    """That many pairs in parts, each a whole number of A B B A but the last."""
    whole, rest = divmod(pairs, PART)
    return (PART,) * whole + ((rest,) if rest else ())


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of ratios; NaN of none."""
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else float("nan")


def change(before: float, now: float, noise: float, threshold: float = 0.02) -> Change:
    """What a time became, given how far two runs of one kernel lie apart by chance.

    Args:
        before: median of the earlier run.
        now: median of this run, in the same unit.
        noise: how far from 1 the A/A interval of the noisier of the two runs reaches.
        threshold: a relative change that would matter.
    """
    if not (before > 0 and now > 0):
        return Change.UNCLEAR
    shift = now / before - 1
    if noise > threshold and abs(shift) <= noise:
        return Change.UNCLEAR
    if abs(shift) <= max(threshold, noise):
        return Change.SAME
    return Change.SLOWER if shift > 0 else Change.FASTER
