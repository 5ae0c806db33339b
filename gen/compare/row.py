"""The result of a comparison: one row for each contender and protocol."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from gen.errors import CompileError, GenError, UnlinkedError
from gen.tune.choose import Interval, median_interval

OURS = "gen"  # in the place of a peer: our kernel against itself, or what became of the case as such
NONE = "-"  # in the place of a verdict
NOT_OFFERED = "not offered: "  # begins the note of a row
FAILED, WRONG, LEFT_OUT = "failed: ", "wrong: ", "left out: "  # so do these
CRASHED, HUNG, TOOK_DOWN = "crashed ", "hung ", "took the device down "
BASE, UNTUNED = "base: ", "untuned: "  # and so that of ours, where nothing is tuned: what `gen.load` gives then
_RETRIED = (FAILED, LEFT_OUT, CRASHED, HUNG, TOOK_DOWN)  # what may end otherwise another time
_FOLDERS = re.compile(r"(?<![^\s'\"(])(?:/[^\s/]+)+/")  # of a path: those of one machine say nothing elsewhere


@dataclass(frozen=True)
class Row:
    """One contender on one case.

    Attributes:
        family, case, peer, protocol: what this row is about; `gen` as the peer: our kernel against itself.
        ours_us, peer_us: medians of microseconds; None where nothing was timed.
        ratio, low, high: of the pairs' peer / ours: the median and its 95 % interval.
        of_limit: the least time of the work over our median.
        verdict: WIN, TIE or LOSS; `-` where nothing was timed.
        variant: of ours.
        pairs: how many were timed.
        seconds: what the contender took to get ready: compiling and tuning of its own included; of several
            compilations, what one took on average.
        note: what differs in meaning, and what else a reader must know; why nothing was timed.
        run: the run that measured it, where several are kept.
    """

    family: str
    case: str
    peer: str
    protocol: str
    ours_us: float | None = None
    peer_us: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    of_limit: float | None = None
    verdict: str = NONE
    variant: str = ""
    pairs: int = 0
    seconds: float | None = None
    note: str = ""
    run: int = 0

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a later row takes the place of."""
        return self.family, self.case, self.peer, self.protocol

    @property
    def noise(self) -> float:
        """How far from 1 the interval reaches: of a kernel against itself, what a difference must exceed."""
        return 0.0 if self.low is None or self.high is None else noise(self.low, self.high)

    @property
    def has_interval(self) -> bool:
        """Whether enough pairs were timed for one."""
        return self.low is not None and self.high is not None and self.pairs >= MIN_PAIRS

    def against(self, noise: float) -> str:
        """The verdict, where our kernel against itself has such noise; `-` where there is no interval."""
        if not self.has_interval or self.low is None or self.high is None:
            return NONE
        return verdict(self.low, self.high, noise).value

    @property
    def untuned(self) -> str:
        """`base` or `untuned` for a kernel of ours that was not measured to be the fastest; else empty."""
        return next((prefix.removesuffix(": ") for prefix in (BASE, UNTUNED) if self.note.startswith(prefix)), "")

    @property
    def is_done(self) -> bool:
        """Whether measuring it again would tell no more: it was timed, or cannot be; it did not fail."""
        again = (*_RETRIED, WRONG) if self.peer == OURS else _RETRIED
        return self.ours_us is not None or not self.note.startswith(again)


def digits(us: float) -> str:
    """A time by its first four digits, written out."""
    return f"{us:.4g}" if us < 9999.5 else f"{us:.0f}"


def said(error: Exception) -> str:
    """What an error says, as a note of one line: of a compiler's many its first error."""
    if isinstance(error, CompileError) and not isinstance(error, UnlinkedError):
        lines = error.log.strip().splitlines()
        first = [*(line for line in lines if "error" in line), *lines, "the compiler does not say why"][0]
        return f"{error.subject} {error.rule}: {first}"
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, GenError) else f"{type(error).__name__}: {_FOLDERS.sub('', text)}"[:300]


PAIRS = 30  # at least, unless that takes longer than MAX_PAIRS_US
MAX_PAIRS = 200
MIN_PAIRS = 6  # of fewer values, the median has no interval of 95 %
PAIRS_PER_BLOCK = 4  # timed one after another in the same memory: what they have in common is one value
MORE_PAIRS_US, MAX_PAIRS_US = 1e5, 2e6  # more pairs than PAIRS within the first, fewer beyond the second
PAIRS_PER_CLOCK_CHECK = 20


class WinTieLoss(Enum):
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


def verdict(low: float, high: float, noise: float) -> WinTieLoss:
    """WIN if all of the interval of peer / ours lies above 1 by more than the noise, LOSS if below, else TIE.

    Args:
        low: where the interval begins.
        high: where it ends.
        noise: how far from 1 that of our kernel against itself reaches, on the same case under the same protocol.
    """
    return WinTieLoss.WIN if low > 1 + noise else WinTieLoss.LOSS if high < 1 - noise else WinTieLoss.TIE


def pairs_within(pair_us: float) -> int:
    """How many pairs to time: PAIRS at least, more while they are quick, fewer only where so many take too long."""
    if pair_us <= 0:
        return MAX_PAIRS
    return max(MIN_PAIRS, min(MAX_PAIRS, max(int(MORE_PAIRS_US / pair_us), min(PAIRS, int(MAX_PAIRS_US / pair_us)))))


def parts(pairs: int) -> tuple[int, ...]:
    """That many pairs in parts, each a whole number of A B B A but the last."""
    whole, rest = divmod(pairs, PAIRS_PER_CLOCK_CHECK)
    return (PAIRS_PER_CLOCK_CHECK,) * whole + ((rest,) if rest else ())
