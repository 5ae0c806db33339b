"""What times that were measured in turns say: a ratio with its interval, and a word for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import exp, log

import numpy as np

from gen.tune.choose import Interval, median_interval

PAIRS = 30  # at least, unless that takes longer than SLOW_US
MOST = 200
FEWEST = 6  # of fewer values, the median has no interval of 95 %
BLOCK = 4  # pairs that are timed one after another in the same memory: what they have in common is one value
QUICK_US, SLOW_US = 1e5, 2e6  # more pairs than PAIRS within the first, fewer beyond the second
PART = 20  # pairs between two looks at the clock


class Verdict(Enum):
    """What an interval of peer / ours says."""

    WIN = "WIN"
    TIE = "TIE"
    LOSS = "LOSS"


class Change(Enum):
    """What became of a time since an earlier run; BROKEN: there is none any more."""

    SAME = "SAME"
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    BROKEN = "BROKEN"
    UNCLEAR = "UNCLEAR"


@dataclass(frozen=True)
class Duel:
    """Two contenders timed in turns.

    Attributes:
        ours_us, peer_us: medians.
        ratio: of each pair's peer / ours, the median with the 95 % interval of the blocks: over 1, ours is faster.
        pairs: how many.
    """

    ours_us: float
    peer_us: float
    ratio: Interval
    pairs: int

    @property
    def noise(self) -> float:
        """How far from 1 the interval reaches."""
        return noise(self.ratio.low, self.ratio.high)

    def verdict(self, aa: float) -> Verdict:
        """By the interval, whatever the median; `aa`: the noise of ours against itself."""
        return verdict(self.ratio.low, self.ratio.high, aa)


def turns(pairs: int) -> tuple[bool, ...]:
    """A B B A, over and over: whether it is the second's turn."""
    return tuple(place % 4 in (1, 2) for place in range(2 * pairs))


def duel(times: Sequence[float]) -> Duel:
    """The outcome of times that were measured in the order of `turns`."""
    order = turns(len(times) // 2)
    ours = [time for time, second in zip(times, order, strict=True) if not second]
    peer = [time for time, second in zip(times, order, strict=True) if second]
    ratios = [one / other for one, other in zip(peer, ours, strict=True)]
    return Duel(float(np.median(ours)), float(np.median(peer)), interval(ratios), len(ours))


def interval(ratios: Sequence[float]) -> Interval:
    """The median of pairs' ratios, with the 95 % interval of the medians of their blocks.

    Pairs that follow each other in the same memory are alike: as so many values each they would promise too much.
    """
    size = block_of(len(ratios))
    starts = range(0, len(ratios) - size + 1, size)
    medians = [float(np.median(ratios[start : start + size])) for start in starts]
    center, found = float(np.median(ratios)), median_interval(medians)
    return Interval(center, min(found.low, center), max(found.high, center))


def block_of(pairs: int) -> int:
    """How many pairs follow each other in the same memory: one, where there would be too few blocks for an interval."""
    return BLOCK if pairs >= FEWEST * BLOCK else 1


def noise(low: float, high: float) -> float:
    """How far from 1 an interval reaches."""
    return max(abs(low - 1), abs(high - 1))


def verdict(low: float, high: float, aa: float) -> Verdict:
    """WIN if all of the interval of peer / ours lies above 1 by more than the noise, LOSS if below.

    Args:
        low: where the interval begins.
        high: where it ends.
        aa: how far from 1 that of our kernel against itself reaches, on the same case under the same protocol.
    """
    return Verdict.WIN if low > 1 + aa else Verdict.LOSS if high < 1 - aa else Verdict.TIE


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
