"""Results as people read them: a line a case, a line a family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.results import Results, geometric_mean
from gen.compare.row import NONE, NOT_OFFERED, OURS, PAIRS, Row, WinTieLoss, digits

_WORST_FIRST = (WinTieLoss.LOSS.value, WinTieLoss.TIE.value, NONE, WinTieLoss.WIN.value)


@dataclass(frozen=True)
class Line:
    """A case under one protocol.

    Attributes:
        ours: our kernel against itself; how long it takes, and the noise.
        best: the peer that beats us, else one that we do not beat, else one that comes closest; None if none was timed.
        peers: all rows of peers.
    """

    family: str
    case: str
    protocol: str
    ours: Row
    best: Row | None
    peers: tuple[Row, ...]

    @property
    def verdict(self) -> str:
        """Against the best peer, beyond the noise; `-` where there is none."""
        return NONE if self.best is None else self.best.against(self.ours.noise)


def lines(results: Results) -> tuple[Line, ...]:
    """The cases in the order of the file; those that gen has no kernel for are lines without a time."""
    found = []
    for (family, case), rows in results.cases().items():
        for protocol in dict.fromkeys(row.protocol for row in rows):
            same = [row for row in rows if row.protocol == protocol]
            ours = next((row for row in same if row.peer == OURS), None)
            if ours is None:
                continue
            peers = tuple(row for row in same if row.peer != OURS)
            timed = [row for row in peers if row.ratio is not None]
            aa = ours.noise
            best = min(timed, key=lambda row: (_WORST_FIRST.index(row.against(aa)), row.ratio or 0.0), default=None)
            found.append(Line(family, case, protocol, ours, best, peers))
    return tuple(found)


def text_of(line: Line) -> tuple[str, ...]:
    """The cells of a line: case, protocol, us, of limit, noise, best peer, its ratio, verdict."""
    ours, best = line.ours, line.best
    if ours.ours_us is None or ours.of_limit is None:
        return line.case, line.protocol, NONE, NONE, NONE, NONE, NONE, NONE
    cells = (line.case, line.protocol, digits(ours.ours_us), f"{ours.of_limit:.3f}", f"{100 * ours.noise:.1f} %")
    if best is None or best.ratio is None or best.low is None or best.high is None:
        return (*cells, NONE, NONE, NONE)
    interval = f"[{best.low:.3f}, {best.high:.3f}]" if best.has_interval else NONE
    return (*cells, best.peer, f"{best.ratio:.3f} {interval}", line.verdict)


_LEGEND = (
    "`of limit`: the time of an empty kernel and of the bytes at calibrated bandwidth, over ours; over 1 where the "
    "caches keep what is written. `peer / ours`: the median ratio of times taken in turns; over 1, gen is faster. A "
    "verdict holds against the best peer: WIN or LOSS only if all of the 95 % interval lies further from 1 than "
    "that of our kernel against itself reaches, the noise. cold: caches flushed; hot: one of 50 launches in a graph; "
    "verdicts of both are counted; failed: our kernel was wrong, or ended in an error."
)
_SUMMARY = (
    "family", "cases", "win", "tie", "loss", "of limit", "best peer / ours", "torch / ours", "not offered", "failed"
)  # fmt: skip
COLUMNS = ("case", "protocol", "us", "of limit", "noise", "best peer", "peer / ours", "verdict")


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    head = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def full(results: Results) -> str:
    """Every case of every family, with every peer's ratio; what was not timed, and why, after it."""
    parts = [f"# Against other libraries, on {results.device}\n", _when(results)]
    all_lines = lines(results)
    for family in dict.fromkeys(line.family for line in all_lines):
        own = [line for line in all_lines if line.family == family]
        timed = [line for line in own if line.ours.ours_us is not None]
        peers = list(dict.fromkeys(row.peer for line in timed for row in line.peers if row.ratio is not None))
        parts.append(f"## {family}\n")
        if timed:
            columns = ("case", "protocol", "variant", "us", "of limit", "verdict", *peers)
            parts.append(markdown(columns, [_full_row(line, peers) for line in timed]))
        losses = "; ".join(map(str, lost(own)))
        parts += [f"Losses, peer / ours: {losses}.\n" if losses else "", _why_not(own)]
    return "\n".join(part for part in parts if part)


def summary(results: Results) -> str:
    """What stands in docs/benchmarks.md: a line a family, the losses in short, when and where it was measured."""
    all_lines = lines(results)
    if not all_lines:
        return "Nothing is measured yet.\n"
    rows = []
    for family in dict.fromkeys(line.family for line in all_lines):
        own = [line for line in all_lines if line.family == family]
        rows.append(_summary_row(family, own))
    return "\n".join([_when(results), markdown(_SUMMARY, rows), *_losses_in_short(lost(all_lines))])


@dataclass(frozen=True)
class Loss:
    """A case that a peer is faster at; `ratio` is peer / ours."""

    line: Line
    peer: str
    ratio: float

    def __str__(self) -> str:
        return f"{self.line.case} ({self.line.protocol}) {self.peer} {self.ratio:.2f}"


def lost(all_lines: Sequence[Line]) -> tuple[Loss, ...]:
    """Every loss, the worst first."""
    found = [
        Loss(line, line.best.peer, line.best.ratio)
        for line in all_lines
        if line.best is not None and line.best.ratio is not None and line.verdict == WinTieLoss.LOSS.value
    ]
    return tuple(sorted(found, key=lambda loss: loss.ratio))


def _losses_in_short(losses: Sequence[Loss]) -> list[str]:
    """For each family and peer: how often it is faster, by how much, and where most."""
    if not losses:
        return []
    groups: dict[tuple[str, str], list[Loss]] = {}
    for loss in losses:
        groups.setdefault((loss.line.family, loss.peer), []).append(loss)
    words = []
    for (family, peer), group in sorted(groups.items()):
        span, worst = f"{group[0].ratio:.2f}", f"{group[0].line.case} ({group[0].line.protocol})"
        if len(group) > 1:
            span += f" to {group[-1].ratio:.2f}, the median {median(loss.ratio for loss in group):.2f}"
        words.append(f"- {family}: {len(group)} to {peer}, {span}; the worst: {worst}")
    return ["Losses, by peer / ours (the full table lists each):\n", "\n".join(words) + "\n"]


def _summary_row(family: str, own: Sequence[Line]) -> tuple[str, ...]:
    timed = [line for line in own if line.ours.ours_us is not None]
    counts = [sum(line.verdict == verdict.value for line in timed) for verdict in WinTieLoss]
    limits = [line.ours.of_limit for line in timed if line.ours.of_limit]
    best = [line.best.ratio for line in timed if line.best is not None and line.best.ratio]
    torch = [row.ratio for line in timed for row in line.peers if row.peer == "torch" and row.ratio]
    untimed = {line.case: line.ours.note for line in own} | {line.case: "" for line in timed}
    not_offered = sum(note.startswith(NOT_OFFERED) for note in untimed.values())
    failed = sum(bool(note) and not note.startswith(NOT_OFFERED) for note in untimed.values())
    cells = (f"{geometric_mean(values):.3f}" if values else NONE for values in (limits, best, torch))
    return (family, str(len({line.case for line in own})), *map(str, counts), *cells, str(not_offered), str(failed))


def _full_row(line: Line, peers: Sequence[str]) -> tuple[str, ...]:
    ratios = {row.peer: row for row in line.peers if row.ratio is not None}
    ours = line.ours
    variant = ours.variant.partition("__")[2] + (f" ({ours.untuned})" if ours.untuned else "")
    cells = (f"{ratios[name].ratio:.3f}" if name in ratios else NONE for name in peers)
    return (
        line.case, line.protocol, f"`{variant}`", digits(ours.ours_us or 0), f"{ours.of_limit or 0:.3f}",
        line.verdict + _few(line), *cells,
    )  # fmt: skip


def _few(line: Line) -> str:
    """How many pairs the verdict is by, if they are few."""
    pairs = line.ours.pairs if line.best is None else line.best.pairs
    return f" ({pairs} pairs)" if 0 < pairs < PAIRS else ""


def _why_not(own: Sequence[Line]) -> str:
    """Who was not timed on what, and what differs in meaning: each reason once, with its cases."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for line in own:
        for row in (line.ours, *line.peers):
            for reason in _reasons(row):
                reasons.setdefault((row.peer, reason), []).append(row.case)
    if not reasons:
        return ""
    found = []
    for (peer, note), cases in sorted(reasons.items()):
        distinct = list(dict.fromkeys(cases))
        where = ", ".join(distinct[:3]) + (f" and {len(distinct) - 3} more" if len(distinct) > 3 else "")
        found.append(f"- {peer}: {note}: {where}")
    return "Notes:\n\n" + "\n".join(found) + "\n"


def _reasons(row: Row) -> list[str]:
    """What is noted of a row, but for the case, which stands beside it; of one that was timed, each by itself."""
    note = row.note.replace(f" (got {row.case})", "")
    parts = [note] if row.ours_us is None else note.split("; ")  # what a library says of a failure may hold any sign
    return list(filter(None, parts))


def _when(results: Results) -> str:
    if not results.runs:
        return ""
    days = sorted({run.date for run in results.runs})
    last = results.runs[-1]
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    names = dict.fromkeys(name for run in results.runs for name in run.versions)
    said = {name: _each(_versions(results, name)) for name in names}
    versions = ", ".join(f"{name} {version}" for name, version in said.items() if version)
    origins = ", ".join(dict.fromkeys(run.origin for run in results.runs if run.origin))
    versions += f"; gen's {origins}" if origins else ""
    where, runs = f"one {last.device}", ""
    if len(results.runs) > 1:
        where, runs = f"{last.device}s, each run on one", f"in {len(results.runs)} runs, the last "
    drivers = _each(run.driver for run in results.runs)
    old = len({(row.family, row.case) for row in results.rows if results.is_old(row)})
    again = "" if not old else f" {old} of the cases were timed by an older method, and are to be timed again."
    return f"Measured on {where} (driver {drivers}), {span}, {runs}by `{last.command}`; {versions}. {_LEGEND}{again}\n"


def _versions(results: Results, name: str) -> list[str]:
    """Of a library in each run that timed it, or of what is no library in each run."""
    timed = {row.run for row in results.rows if row.peer == name and row.ours_us is not None}
    return [run.versions.get(name, "") for number, run in enumerate(results.runs) if not timed or number in timed]


def _each(values: Iterable[str]) -> str:
    """What runs have in common, or each of what they have."""
    return " and ".join(filter(None, dict.fromkeys(values)))
