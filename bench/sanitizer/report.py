"""What compute-sanitizer says of a run, and what of it is kept as evidence."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.sanitizer.faults import FAULTS, TOOLS
from gen.families import FAMILIES

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Report:
    """What one run of compute-sanitizer says.

    Attributes:
        errors: how many it counts, warnings included; None where it ended without counting.
        lines: what it reports, beside its banner and its count.
    """

    errors: int | None
    lines: tuple[str, ...]


_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards? displayed)\b")


def read_report(output: str) -> Report:
    """What compute-sanitizer printed, among what the program printed."""
    counts: list[int] = []
    lines: list[str] = []
    for line in output.splitlines():
        if not line.startswith("========="):
            continue
        said = line.removeprefix("=========").rstrip()
        if found := _SUMMARY.search(said):
            counts.append(int(found[1]))
        elif said.strip() and said.strip() != "COMPUTE-SANITIZER":
            lines.append(said)
    # A second summary tells how many of the first's were not printed.
    return Report(max(counts) if counts else None, tuple(lines))


@dataclass(frozen=True)
class Outcome:
    """One tool on one family, or on a part of it.

    Attributes:
        status: what compute-sanitizer ended with; None if it was stopped for taking too long.
        done: what the worker says it did; None if it did not get so far.
        planted: it ran the fault that is planted for it, and is to find it.
    """

    tool: str
    family: str
    status: int | None
    report: Report
    done: Mapping[str, Any] | None
    output: str
    seconds: float
    job: str = ""
    planted: bool = False

    @property
    def found(self) -> bool:
        """Whether it reports the fault that is planted for it."""
        return self.planted and any(FAULTS[self.tool].said in line for line in self.report.lines)

    @property
    def as_expected(self) -> bool:
        """Whether nothing was to be found, and was; or the planted fault."""
        return self.found if self.planted else self.clean

    @property
    def sizes(self) -> tuple[int, int]:
        """Of the problems of all specs that were run: on how many sizes, and how many there are."""
        every = (self.done or {}).get("sizes", {}).values()
        return sum(taken for taken, _ in every), sum(available for _, available in every)

    @property
    def clean(self) -> bool:
        """Whether everything ran, was right, and nothing at all was reported."""
        return (
            self.status == 0
            and self.report == Report(0, ())
            and self.done is not None
            and self.done["variants"] > 0
            and self.done["cases"] > 0
            and not self.done["wrong"]
        )

    def as_json(self) -> dict[str, Any]:
        """What is kept as evidence."""
        done = self.done or {}
        sizes, available = self.sizes
        return {
            "clean": self.clean,
            "errors": self.report.errors,
            "reported": len(self.report.lines),
            **{key: done.get(key) for key in ("algorithms", "variants", "skipped")},
            "sizes": sizes,
            "sizes_available": available,
            "cases": done.get("cases"),
            "wrong": len(done.get("wrong", ())),
            "seconds": round(self.seconds, 1),
        }


def merged(parts: Sequence[Outcome]) -> Outcome:
    """The parts of one tool on one family as one: as bad as the worst of them."""
    first = parts[0]
    done = [part.done for part in parts if part.done is not None]
    together: dict[str, Any] | None = None
    if len(done) == len(parts):
        together = {
            **done[0],
            "algorithms": sorted({name for one in done for name in one["algorithms"]}),
            "sizes": {spec: sizes for one in done for spec, sizes in one["sizes"].items()},
            "wrong": [wrong for one in done for wrong in one["wrong"]],
            **{key: sum(one[key] for one in done) for key in ("variants", "skipped", "cases")},
        }
    bad = [part.status for part in parts if part.status != 0]
    status = None if None in bad else next(iter(bad), 0)
    errors = [part.report.errors for part in parts]
    report = Report(_sum(errors), tuple(line for part in parts for line in part.report.lines))
    output = "\n".join(part.output for part in parts)
    return Outcome(first.tool, first.family, status, report, together, output, sum(part.seconds for part in parts))


def digest_of(texts: Mapping[str, str]) -> str:
    """What tells whether evidence is of the kernels that gen writes now."""
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]


def evidence(
    outcomes: Sequence[Outcome], version: str, command: str, texts: str, seconds: float,
    remained: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """What was run and found, as it is kept; `texts` is the digest of the kernels, `remained` what did not end."""
    done = next((outcome.done for outcome in outcomes if outcome.done), {})
    tools: dict[str, Any] = {}
    places = [family.name for family in FAMILIES]
    ordinary = [outcome for outcome in outcomes if not outcome.planted]
    ordered = sorted(ordinary, key=lambda outcome: (TOOLS.index(outcome.tool), places.index(outcome.family)))
    for tool, group in groupby(ordered, key=lambda outcome: outcome.tool):
        families = groupby(group, key=lambda outcome: outcome.family)
        rows = {family: merged(list(parts)).as_json() for family, parts in families}
        totals = {key: _sum([row[key] for row in rows.values()]) for key in ("variants", "cases", "errors")}
        tools[tool] = {**totals, "families": rows}
    return {
        "meta": {
            "command": command,
            "date": date.today().isoformat(),
            "device": done.get("device"),
            "driver": done.get("driver"),
            "compiler": done.get("compiler"),
            "compute_sanitizer": version,
            "texts": texts,
        },
        "clean": bool(ordinary) and not remained and all(outcome.clean for outcome in ordinary),
        "seconds": round(seconds, 1),
        **({"remained": list(remained)} if remained else {}),
        "planted": {
            outcome.tool: {"variant": FAULTS[outcome.tool].variant, "found": outcome.found, "status": outcome.status}
            for outcome in sorted(outcomes, key=lambda outcome: TOOLS.index(outcome.tool))
            if outcome.planted
        },
        "tools": tools,
    }


def _sum(numbers: Sequence[int | None]) -> int | None:
    """Their sum; None if one of them is not known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def evidence_file(device: str) -> Path:
    """Where the evidence of a device is kept: `bench/sanitize-nvidia-h100-80gb-hbm3.json`."""
    return ROOT / "bench" / f"sanitize-{re.sub(r'[^a-z0-9]+', '-', device.lower()).strip('-')}.json"


def show(outcome: Outcome, progress: str = "") -> None:
    """Prints one line for what is as expected; what was reported, too, for what is not."""
    done = outcome.done or {}
    errors = "no count" if outcome.report.errors is None else f"{outcome.report.errors} errors"
    sizes, available = outcome.sizes
    print(
        f"{progress}{outcome.job or f'{outcome.tool} {outcome.family}'}: {done.get('variants', 0)} variants on {sizes} "
        f"of {available} sizes, {done.get('cases', 0)} cases: {errors}, {outcome.seconds:.0f} s, "
        f"{max(outcome.seconds - done.get('seconds', outcome.seconds), 0):.0f} of them to start"
        + ("  FOUND" if outcome.found else "  MISSED" if outcome.planted else "" if outcome.clean else "  NOT CLEAN"),
        flush=True,
    )
    if done.get("skipped"):
        print(f"  {done['skipped']} variants were skipped: their algorithms say why")
    if outcome.as_expected:
        return
    if outcome.status is None:
        print(f"  stopped after {outcome.seconds:.0f} s")
    for line in (*outcome.report.lines[:30], *(f" {wrong}" for wrong in done.get("wrong", ())[:5])):
        print(f"  {line}")
    if not outcome.report.lines and not done.get("wrong"):
        for line in outcome.output.splitlines()[-30:]:
            print(f"  {line}")
