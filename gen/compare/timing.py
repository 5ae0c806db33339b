"""What times measured in alternating rounds say: a ratio with its interval, and a verdict by a stated rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from gen.tune.choose import Interval, median_interval

PAIRS = 30  # at least, unless that takes longer than MAX_PAIRS_US
MAX_PAIRS = 200
MIN_PAIRS = 6  # of fewer values, the median has no interval of 95 %
PAIRS_PER_BLOCK = 4  # timed one after another in the same memory: what they have in common is one value
MORE_PAIRS_US, MAX_PAIRS_US = 1e5, 2e6  # more pairs than PAIRS within the first, fewer beyond the second
PAIRS_PER_CLOCK_CHECK = 20


class Verdict(Enum):
    """What an interval of peer / ours says."""

    WIN = "WIN"
    TIE = "TIE"
    LOSS = "LOSS"


@dataclass(frozen=True)
class PairedTimes:
    """Two contenders timed in alternating rounds.

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


def abba(pairs: int) -> tuple[bool, ...]:
    """A B B A, over and over: whether it is the second's turn."""
    return tuple(place % 4 in (1, 2) for place in range(2 * pairs))


def paired(times: Sequence[float]) -> PairedTimes:
    """The outcome of times that were measured in the order of `abba`."""
    order = abba(len(times) // 2)
    ours = [time for time, second in zip(times, order, strict=True) if not second]
    peer = [time for time, second in zip(times, order, strict=True) if second]
    ratios = [one / other for one, other in zip(peer, ours, strict=True)]
    return PairedTimes(float(np.median(ours)), float(np.median(peer)), interval(ratios), len(ours))


def interval(ratios: Sequence[float]) -> Interval:
    """The median of pairs' ratios, with the 95 % interval of the medians of their blocks.

    Pairs that follow each other in the same memory are alike: as so many values each they would promise too much.
    """
    size = block_size(len(ratios))
    starts = range(0, len(ratios) - size + 1, size)
    medians = [float(np.median(ratios[start : start + size])) for start in starts]
    center, found = float(np.median(ratios)), median_interval(medians)
    return Interval(center, min(found.low, center), max(found.high, center))


def block_size(pairs: int) -> int:
    """How many pairs follow each other in the same memory: one, where there would be too few blocks for an interval."""
    return PAIRS_PER_BLOCK if pairs >= MIN_PAIRS * PAIRS_PER_BLOCK else 1


def noise(low: float, high: float) -> float:
    """How far from 1 an interval reaches."""
    return max(abs(low - 1), abs(high - 1))


def verdict(low: float, high: float, noise: float) -> Verdict:
    """WIN if all of the interval of peer / ours lies above 1 by more than the noise, LOSS if below, else TIE.

    Args:
        low: where the interval begins.
        high: where it ends.
        noise: how far from 1 that of our kernel against itself reaches, on the same case under the same protocol.
    """
    return Verdict.WIN if low > 1 + noise else Verdict.LOSS if high < 1 - noise else Verdict.TIE


def pairs_within(pair_us: float) -> int:
    """How many pairs to time: PAIRS at least, more while they are quick, fewer only where so many take too long."""
    if pair_us <= 0:
        return MAX_PAIRS
    return max(MIN_PAIRS, min(MAX_PAIRS, max(int(MORE_PAIRS_US / pair_us), min(PAIRS, int(MAX_PAIRS_US / pair_us)))))


def parts(pairs: int) -> tuple[int, ...]:
    """That many pairs in parts, each a whole number of A B B A but the last."""
    whole, rest = divmod(pairs, PAIRS_PER_CLOCK_CHECK)
    return (PAIRS_PER_CLOCK_CHECK,) * whole + ((rest,) if rest else ())
