"""The results of many comparisons: the file that keeps them, where they come from, and what changed since another."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from math import exp, isfinite, log
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import gen
from gen.compare.row import NONE, OURS, Row, WinTieLoss
from gen.emit.folder import read, write_if_changed
from gen.errors import GenError, StoreError
from gen.gpu.timing import METHOD

SCHEMA = 1
SAME_KERNEL = 0.05  # two times of ours, in two runs, that differ by no more are taken for those of one kernel
MATTERS = 0.02  # a relative change of a time that would matter
CODE = Path(gen.__file__).resolve().parent
_VERDICTS = (NONE, *(known.value for known in WinTieLoss))


class Change(Enum):
    """What became of a time since an earlier run; BROKEN: there is none any more."""

    SAME = "SAME"
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    BROKEN = "BROKEN"
    UNCLEAR = "UNCLEAR"


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
        same method, and beside it when it took as long, within SAME_KERNEL.

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
    return now.ours_us is None or now.variant != row.variant or abs(row.ours_us / now.ours_us - 1) > SAME_KERNEL


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


def change(before: float, now: float, noise: float) -> Change:
    """What a time became, given how far two runs of one kernel lie apart by chance.

    Args:
        before: median of the earlier run.
        now: median of this run, in the same unit.
        noise: how far from 1 the A/A interval of the noisier of the two runs reaches.
    """
    if not (before > 0 and now > 0):
        return Change.UNCLEAR
    shift = now / before - 1
    if noise > MATTERS and abs(shift) <= noise:
        return Change.UNCLEAR
    if abs(shift) <= max(MATTERS, noise):
        return Change.SAME
    return Change.SLOWER if shift > 0 else Change.FASTER


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of ratios; NaN of none."""
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else float("nan")


def origin(code: Path = CODE) -> str:
    """Which gen it is that was measured: the commit of a checkout, by `git describe --always --dirty`.

    Where there is none, the digest of the package: `commit 1234abc-dirty` or `files 0123456789ab`.
    """
    if (code.parent / ".git").exists():
        try:
            described = subprocess.run(
                ["git", "describe", "--always", "--dirty"], cwd=code.parent, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            pass
        else:
            return f"commit {described.stdout.strip()}"
    digest = hashlib.sha256()
    for path in sorted(path for path in code.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        digest.update(f"{path.relative_to(code).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"files {digest.hexdigest()[:12]}"
