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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass

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
    """One tool on one family.

    Attributes:
        status: what compute-sanitizer ended with; None if it was stopped for taking too long.
        done: what the worker says it did; None if it did not get so far.
    """

    tool: str
    family: str
    status: int | None
    report: Report
    done: Mapping[str, Any] | None
    output: str
    seconds: float

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
        kept = ("algorithms", "variants", "skipped", "sizes", "sizes_available", "cases")
        return {
            "clean": self.clean,
            "errors": self.report.errors,
            "reported": len(self.report.lines),
            **{key: done.get(key) for key in kept},
            "wrong": len(done.get("wrong", ())),
            "seconds": round(self.seconds, 1),
        }


def digest_of(texts: Mapping[str, str]) -> str:
    """What tells whether evidence is of the kernels that gen writes now."""
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]


def evidence(outcomes: Sequence[Outcome], version: str, command: str, texts: str, seconds: float) -> dict[str, Any]:
    """What was run and found, as it is kept; `texts` is the digest of the kernels."""
    done = next((outcome.done for outcome in outcomes if outcome.done), {})
    tools: dict[str, Any] = {}
    for tool, group in groupby(outcomes, key=lambda outcome: outcome.tool):
        rows = {outcome.family: outcome.as_json() for outcome in group}
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
        "clean": bool(outcomes) and all(outcome.clean for outcome in outcomes),
        "seconds": round(seconds, 1),
        "tools": tools,
    }


def _sum(numbers: Sequence[int | None]) -> int | None:
    """Their sum; None if one of them is not known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def evidence_file(device: str) -> Path:
    """Where the evidence of a device is kept: `bench/sanitize-nvidia-h100-80gb-hbm3.json`."""
    return ROOT / "bench" / f"sanitize-{re.sub(r'[^a-z0-9]+', '-', device.lower()).strip('-')}.json"


def show(outcome: Outcome) -> None:
    """Prints one line for what is clean; what was reported, too, for what is not."""
    done = outcome.done or {}
    errors = "no count" if outcome.report.errors is None else f"{outcome.report.errors} errors"
    print(
        f"{outcome.tool:10} {outcome.family:10} {done.get('variants', 0):4} variants on {done.get('sizes', 0)} of "
        f"{done.get('sizes_available', 0)} sizes, {done.get('cases', 0)} cases: {errors}, {outcome.seconds:.0f} s"
        + ("" if outcome.clean else "  NOT CLEAN"),
        flush=True,
    )
    if done.get("skipped"):
        print(f"  {done['skipped']} variants were skipped: their algorithms say why")
    if outcome.clean:
        return
    if outcome.status is None:
        print(f"  stopped after {outcome.seconds:.0f} s")
    for line in (*outcome.report.lines[:30], *(f" {wrong}" for wrong in done.get("wrong", ())[:5])):
        print(f"  {line}")
    if not outcome.report.lines and not done.get("wrong"):
        for line in outcome.output.splitlines()[-30:]:
            print(f"  {line}")
