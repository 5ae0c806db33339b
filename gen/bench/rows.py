"""Results: one row for each case, peer and protocol; the file that keeps them, and what changed since another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import Any

from gen.bench.statistics import Change, change, noise, verdict
from gen.emit.files import read, write_if_changed
from gen.errors import StoreError

SCHEMA = 1
OURS = "gen"  # in the place of a peer: what became of a case as such
NONE = "-"  # in the place of a verdict


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
        seconds: what the contender took to get ready: compiling and tuning of its own included.
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

    def against(self, aa: float) -> str:
        """The verdict, where our kernel against itself has such noise; `-` where nothing was timed."""
        return NONE if self.low is None or self.high is None else verdict(self.low, self.high, aa).value


@dataclass(frozen=True)
class Run:
    """One run of `gen bench`: the command, when, and on what.

    Attributes:
        calibration: what the device could do, measured in the same process.
        versions: of all that took part, by name.
    """

    command: str
    date: str
    device: str
    driver: str
    calibration: Mapping[str, Any]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Results:
    """Rows, and the runs that they come from."""

    rows: tuple[Row, ...] = ()
    runs: tuple[Run, ...] = ()
    path: Path | None = field(default=None, compare=False)

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

        Raises StoreError if it was measured on another device.
        """
        if self.runs and run.device != self.device:
            raise StoreError(
                str(self.path or "The results"), f"were measured on {self.device}", run.device,
                next_step="Give another file",
            )  # fmt: skip
        known = [*self.runs, run]
        merged = {row.key: row for row in self.rows}
        for row in rows:
            merged[row.key] = Row(**{**asdict(row), "run": len(known) - 1})
        used = sorted({row.run for row in merged.values()})
        number = {old: new for new, old in enumerate(used)}
        renumbered = [Row(**{**asdict(row), "run": number[row.run]}) for row in merged.values()]
        return Results(tuple(renumbered), tuple(known[old] for old in used), self.path)


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
    text = read(path)
    if text is None:
        return Results(path=path)
    again = "Give a file that gen bench --json wrote"
    try:
        content = json.loads(text)
        if content["schema"] != SCHEMA:
            raise StoreError(str(path), f"must have schema {SCHEMA}", content["schema"], next_step=again)
        runs = tuple(Run(**run) for run in content["meta"]["runs"])
        rows = tuple(Row(**row) for row in content["rows"])
        _check(rows, runs)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise StoreError(str(path), "is not what gen bench writes", error, next_step=again) from error
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
        if not 0 <= row.run < len(runs):
            raise ValueError(f"{row.case}, {row.peer}: run {row.run}")


def write_results(path: Path, results: Results) -> None:
    """Writes them, a row a line."""
    rows = ",\n".join(f"    {json.dumps(_rounded(asdict(row)))}" for row in results.rows)
    runs = ",\n".join(f"      {json.dumps(asdict(run))}" for run in results.runs)
    meta = f'{{\n    "device": {json.dumps(results.device)},\n    "runs": [\n{runs}\n    ]\n  }}'
    text = f'{{\n  "schema": {SCHEMA},\n  "meta": {meta},\n  "rows": [\n{rows}\n  ]\n}}\n'
    write_if_changed(path, text)


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in values.items()}


@dataclass(frozen=True)
class Difference:
    """Our time on a case in two runs."""

    family: str
    case: str
    protocol: str
    before_us: float
    now_us: float
    change: Change


def differences(before: Results, now: Results) -> tuple[Difference, ...]:
    """What became of our time on each case that both have, by the rows of ours against itself."""
    earlier = {row.key: row for row in before.rows if row.peer == OURS}
    found = []
    for row in now.rows:
        old = earlier.get(row.key)
        if row.peer != OURS or old is None or old.ours_us is None or row.ours_us is None:
            continue
        what = change(old.ours_us, row.ours_us, max(old.noise, row.noise))
        found.append(Difference(row.family, row.case, row.protocol, old.ours_us, row.ours_us, what))
    return tuple(found)
