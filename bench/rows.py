"""Results: one row for each case, peer and protocol; the file that keeps them, and what changed since another."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from bench.verdicts import FEWEST, Change, Verdict, change, noise, verdict
from gen.emit.files import read, write_if_changed
from gen.errors import CompileError, GenError, StoreError, UnlinkedError
from gen.gpu.timing import METHOD

SCHEMA = 1
OURS = "gen"  # in the place of a peer: what became of a case as such
NONE = "-"  # in the place of a verdict
ALIKE = 0.05  # two times of ours, in two runs, that differ by no more are taken for those of one kernel
_VERDICTS = (NONE, *(known.value for known in Verdict))
NOT_OFFERED = "not offered: "  # begins the note of a row
FAILED, WRONG, LEFT_OUT = "failed: ", "wrong: ", "left out: "  # so do these
CRASHED, HUNG, TOOK_DOWN = "crashed ", "hung ", "took the device down "
BASE, UNTUNED = "base: ", "untuned: "  # and so that of ours, where nothing is tuned: what `gen.load` gives then
_FOLDERS = re.compile(r"(?<![^\s'\"(])(?:/[^\s/]+)+/")  # of a path: those of one machine say nothing elsewhere
AGAIN = (FAILED, LEFT_OUT, CRASHED, HUNG, TOOK_DOWN)  # what may end otherwise another time


@dataclass(frozen=True)
class Row:
    """One contender on one case.

    Attributes:
        family, case, peer, protocol: what this row is about; `gen` as the peer: our kernel against itself.
        ours_us, peer_us: medians of microseconds; None where nothing was timed.
        ratio, low, high: of the pairs' peer / ours: the median and its 95 % interval.
        of_limit: the floor over our median.
        verdict: WIN, TIE or LOSS; `-` where nothing was timed.
        variant: of ours.
        pairs: how many were timed.
        seconds: what the contender took to get ready: compiling and tuning of its own included; of several
            compilations, what one took on average.
        note: what differs in meaning, and what else a reader must know; why nothing was timed.
        run: the run that measured it.
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
        return self.low is not None and self.high is not None and self.pairs >= FEWEST

    def against(self, aa: float) -> str:
        """The verdict, where our kernel against itself has such noise; `-` where there is no interval."""
        if not self.has_interval or self.low is None or self.high is None:
            return NONE
        return verdict(self.low, self.high, aa).value

    @property
    def untuned(self) -> str:
        """`base` or `untuned` for a kernel of ours that was not measured to be the fastest; else empty."""
        return next((prefix.removesuffix(": ") for prefix in (BASE, UNTUNED) if self.note.startswith(prefix)), "")

    @property
    def is_done(self) -> bool:
        """Whether measuring it again would tell no more: it was timed, or cannot be; it did not fail."""
        again = (*AGAIN, WRONG) if self.peer == OURS else AGAIN
        return self.ours_us is not None or not self.note.startswith(again)


@dataclass(frozen=True)
class Run:
    """One run of `python -m bench`: the command, when, and on what.

    Attributes:
        calibration: what the device could do, measured in the same process.
        versions: of all that took part, by name.
        origin: of gen itself: the commit, or the digest of its files; empty where nobody wrote it down.
        method: how times came about, as `gen.gpu.timing.METHOD` says it; empty where nobody wrote it down.
    """

    command: str
    date: str
    device: str
    driver: str
    calibration: Mapping[str, Any]
    versions: Mapping[str, str]
    origin: str = ""
    method: str = ""


@dataclass(frozen=True)
class Results:
    """Rows, and the runs that they come from."""

    rows: tuple[Row, ...] = ()
    runs: tuple[Run, ...] = ()
    path: Path | None = field(default=None, compare=False)

    def is_old(self, row: Row) -> bool:
        """Whether it was timed by another method than times are taken by now."""
        return row.ours_us is not None and self.runs[row.run].method != METHOD

    @property
    def device(self) -> str:
        """What all of it was measured on; empty for nothing."""
        return self.runs[-1].device if self.runs else ""

    def cases(self) -> dict[tuple[str, str], list[Row]]:
        """The rows of each case by family and name, in order."""
        found: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            found.setdefault((row.family, row.case), []).append(row)
        return found

    def with_run(self, run: Run, rows: Iterable[Row]) -> Results:
        """These results with another run's rows in the place of those of the same case, peer and protocol.

        Other rows of these cases stay if they belong to the kernel that is there now: of the same variant, timed by the
        same method, and beside it when it took as long, within ALIKE.

        Raises StoreError if it was measured on another device.
        """
        if self.runs and run.device != self.device:
            raise StoreError(
                str(self.path or "The results"), f"were measured on {self.device}", run.device,
                next_step="Give another file",
            )  # fmt: skip
        known, later = [*self.runs, run], [replace(row, run=len(self.runs)) for row in rows]
        ours = {(row.family, row.case, row.protocol): row for row in later if row.peer == OURS}
        anew = {(row.family, row.case) for row in later if row.ours_us is not None}
        kept = [
            row
            for row in self.rows
            if row.ours_us is None or (row.family, row.case) not in anew or self.runs[row.run].method == run.method
        ]
        merged = {row.key: row for row in kept if not _is_stale(row, ours)}
        merged.update({row.key: row for row in later})
        used = sorted({row.run for row in merged.values()})
        number = {old: new for new, old in enumerate(used)}
        renumbered = [replace(row, run=number[row.run]) for row in merged.values()]
        return Results(tuple(renumbered), tuple(known[old] for old in used), self.path)


def _is_stale(row: Row, ours: Mapping[tuple[str, str, str], Row]) -> bool:
    """Whether a row was measured with another kernel than one of these, or when it took another time."""
    if row.ours_us is None:
        return False
    now = ours.get((row.family, row.case, row.protocol))
    if now is None:  # under another protocol, the same kernel
        others = [one for (family, case, _), one in ours.items() if (family, case) == (row.family, row.case)]
        return any(one.variant != row.variant for one in others)
    return now.ours_us is None or now.variant != row.variant or abs(row.ours_us / now.ours_us - 1) > ALIKE


def in_order(results: Results, cases: Sequence[tuple[str, str]], peers: Sequence[str]) -> Results:
    """The rows in the order of cases and peers; what is in neither comes last."""
    case_place = {case: place for place, case in enumerate(cases)}
    peer_place = {peer: place for place, peer in enumerate((OURS, *peers))}

    def place(row: Row) -> tuple[int, str, str, int, str]:
        known = case_place.get((row.family, row.case), len(case_place))
        return known, row.case, row.protocol, peer_place.get(row.peer, len(peer_place)), row.peer

    return Results(tuple(sorted(results.rows, key=place)), results.runs, results.path)


def read_results(path: Path) -> Results:
    """The results in a file; none if there is no such file. Raises StoreError if it is of another schema."""
    again = "Give a file that python -m bench --json wrote"
    try:
        text = read(path)
    except GenError as error:
        raise StoreError(error.subject, error.rule, error.value, next_step=again) from error
    if text is None:
        return Results(path=path)
    try:
        content = json.loads(text)
        if content["schema"] != SCHEMA:
            raise StoreError(str(path), f"must have schema {SCHEMA}", content["schema"], next_step=again)
        runs = tuple(Run(**run) for run in content["meta"]["runs"])
        rows = tuple(Row(**row) for row in content["rows"])
        _check(rows, runs)
        _check_runs(runs)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError) as error:
        raise StoreError(str(path), "is not what python -m bench writes", error, next_step=again) from error
    return Results(rows, runs, path)


def _check(rows: Sequence[Row], runs: Sequence[Run]) -> None:
    """Raises ValueError for values that no run writes."""
    texts, numbers = ("family", "case", "peer", "protocol", "verdict", "variant", "note"), ("pairs", "run")
    for row in rows:
        for known in fields(Row):
            value = getattr(row, known.name)
            if known.name in texts:
                sound = isinstance(value, str)
            elif known.name in numbers:
                sound = type(value) is int
            else:
                sound = value is None or (type(value) in (int, float) and isfinite(value) and value >= 0)
            if not sound:
                raise ValueError(f"{row.case}, {row.peer}: {known.name} {value!r}")
        if row.verdict not in _VERDICTS:
            raise ValueError(f"{row.case}, {row.peer}: verdict {row.verdict!r}")
        if not 0 <= row.run < len(runs):
            raise ValueError(f"{row.case}, {row.peer}: run {row.run}")


def _check_runs(runs: Sequence[Run]) -> None:
    """Raises ValueError for values that no run writes."""
    for run in runs:
        for known in fields(Run):
            value = getattr(run, known.name)
            if known.name == "calibration":
                sound = isinstance(value, dict)
            elif known.name == "versions":
                sound = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
            else:
                sound = isinstance(value, str)
            if not sound:
                raise ValueError(f"a run's {known.name} {value!r}")


def lock_of(path: Path) -> Path:
    """The file that is locked while results are read and written anew: one for each file, whoever writes it."""
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
    return Path(gettempdir()) / f"gen-bench-{os.getuid()}" / f"{name}.lock"


def write_results(path: Path, results: Results) -> None:
    """Writes them, a row a line; verdicts are those of the numbers as they are written."""
    rows = ",\n".join(f"    {json.dumps(asdict(row))}" for row in _as_written(results.rows))
    runs = ",\n".join(f"      {json.dumps(asdict(run))}" for run in results.runs)
    meta = f'{{\n    "device": {json.dumps(results.device)},\n    "runs": [\n{runs}\n    ]\n  }}'
    text = f'{{\n  "schema": {SCHEMA},\n  "meta": {meta},\n  "rows": [\n{rows}\n  ]\n}}\n'
    write_if_changed(path, text, "Make room, or name another file")


def _as_written(rows: Sequence[Row]) -> list[Row]:
    """Rows by their first five digits, and what these say."""
    rounded = [Row(**_rounded(asdict(row))) for row in rows]
    noises = {(row.family, row.case, row.protocol): row.noise for row in rounded if row.peer == OURS}
    return [
        row
        if row.peer == OURS or row.ratio is None
        else replace(row, verdict=row.against(noises.get((row.family, row.case, row.protocol), 0.0)))
        for row in rounded
    ]


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in values.items()}


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


@dataclass(frozen=True)
class Difference:
    """Our time on a case in two runs; `now_us` is None where there is none any more, and `note` says why."""

    family: str
    case: str
    protocol: str
    before_us: float
    now_us: float | None
    change: Change
    note: str = ""


def differences(before: Results, now: Results) -> tuple[Difference, ...]:
    """What became of each time of ours, by the rows of ours against itself."""
    earlier = {row.key: row for row in before.rows if row.peer == OURS}
    found = []
    for row in now.rows:
        old = earlier.get(row.key)
        if row.peer != OURS or old is None or old.ours_us is None:
            continue
        what = Change.BROKEN if row.ours_us is None else change(old.ours_us, row.ours_us, max(old.noise, row.noise))
        note = row.note if row.ours_us is None else ""
        if row.ours_us is not None and before.is_old(old) != now.is_old(row):
            what, note = Change.UNCLEAR, "one of them was timed by an older method"
        found.append(Difference(row.family, row.case, row.protocol, old.ours_us, row.ours_us, what, note))
    return tuple(found)
