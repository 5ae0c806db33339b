"""The result of a comparison: one row for each contender and protocol."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gen.compare.timing import MIN_PAIRS, noise, verdict
from gen.errors import CompileError, GenError, UnlinkedError

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
