"""Writes what was measured into the pages of docs/: `python bench/pages.py`.

The comparison with other libraries, by `python -m bench`, and the ladders, by `bench/ladder.py`, with the full tables
beside their files; what tuning reached, by `bench/tune.py`; how well predictions rank, by `bench/predict.py`; stencils
against the copy, by `bench/stencil_sweep.py`, and many steps of them, by `bench/depths.py`; what lines that a kernel
keeps in the L2 cost what comes next, by `bench/afterwards.py`. A page names the files in comments: `<!-- bench: FILE
-->` to `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import afterwards, depths, goals, ladder, predict, stencil_sweep
from bench.cases import public_cases
from bench.program import ended
from bench.results import Results, geometric_mean, read_results
from bench.stencils import steps_of
from bench.table import full, lines, markdown, summary
from bench.tune import table
from gen.store.winners import read_winners

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs"
BLOCK = re.compile(r"(<!-- (\w+): ([^>]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_MAX_NAMES = 8  # of cases, in a sentence
_LARGE = 8192**2  # cells, which no cache holds
LEVEL = 0.95  # of a peer's time over ours: what is above is called level with it, or faster


def updated(page: str) -> str:
    """A page's text, each of its blocks made anew from the files that it names."""
    return BLOCK.sub(lambda found: found[1] + _block(found[2], found[3].split()) + found[5], page)


def _block(kind: str, files: Sequence[str]) -> str:
    """What stands between the comments of a block. Raises KeyError for a kind that there is not."""
    paths = [ROOT / file for file in files]
    makers: dict[str, Callable[[], str]] = {
        "measured": lambda: table(_content(paths[0]), read_winners(ROOT / "out")),
        "ladder": lambda: ladder.short(_content(paths[0]), Path(files[0])),
        "predicted": lambda: predict.sentence(_content(paths[0])),
        "stencils": lambda: stencil_sweep.table(_content(paths[0])),
        "depths": lambda: depths.table(_content(paths[0])),
        "afterwards": lambda: afterwards.table(_content(paths[0])),
        "steps": lambda: many_steps(paths),
        "potholes": lambda: potholes_table(_content(paths[0])),
        "bench": lambda: compared(read_results(paths[0])),
    }
    return makers[kind]()


def potholes_table(content: dict[str, Any]) -> str:
    """Cases that nobody chose: a line a family, and where and when they were timed."""
    timed = [row for row in content["rows"] if row.get("ratio")]
    found = []
    for family in ("reduction", "transpose", "stencil"):
        ratios = sorted(row["ratio"] for row in timed if row["family"] == family)
        if ratios:
            found.append((family, str(len(ratios)), *_shares(ratios)))
        tuned = sorted(row["peer_us"] / row["tuned_us"] for row in timed if row["family"] == family and row["tuned_us"])
        if tuned:
            found.append((f"{family}, tuned at its first call", str(len(tuned)), *_shares(tuned)))
    when = f"{content['device']} ({content['driver']}), {content['date']}, by `{content['command']}`"
    said = f"Measured on one {when}; gen's {content['gen']}, so without kernels and estimates that came later."
    columns = ("family", "cases", "geomean of the peer's time over ours", f"at {LEVEL} or more", "worst")
    return f"{said}\n\n{markdown(columns, found)}"


def _shares(ratios: Sequence[float]) -> tuple[str, str, str]:
    level = sum(ratio >= LEVEL for ratio in ratios) / len(ratios)
    return f"{geometric_mean(ratios):.3f}", f"{level:.0%}", f"{min(ratios):.2f}"


def compared(results: Results) -> str:
    """The comparison in short, and which of the public cases it lacks."""
    if not results.rows:
        return summary(results)
    missing = [case.name for case in public_cases() if (case.family.name, case.name) not in results.cases()]
    names = ", ".join(missing) if len(missing) <= _MAX_NAMES else f"{missing[0]} to {missing[-1]}"
    said = f"\nOf the {len(public_cases())} public cases {len(missing)} are not measured yet: {names}.\n"
    return summary(results) + (said if missing else "")


def many_steps(files: Sequence[Path]) -> str:
    """How far a second takes five points of f32, and how much faster that is than the best peer, on each device."""
    goal = next(one for one in goals.goals() if one.name == "Many steps, 5 points, f32")
    cases = {case.name: case for case in public_cases() if goal.takes(case) and case.elements >= _LARGE}
    said = []
    for file in files:
        results = read_results(file)
        found = [
            (cases[line.case], line.ours.ours_us, goal.reached(line)) for line in lines(results) if line.case in cases
        ]
        cells = [case.elements * steps_of(case) / us / 1e6 for case, us, _ in found if us]
        ratios = [ratio for _, _, ratio in found if ratio is not None]
        if cells and ratios:
            said.append(
                f"{results.device}: {min(cells):.1f} to {max(cells):.1f} x 10^12 cells a second, {min(ratios):.1f} to "
                f"{max(ratios):.1f} times as fast as the best peer"
            )
    return f"Five points of f32, 8192^2 and 16384^2 cells, 16 and 1,000 steps. {'; '.join(said)}.\n"


def _content(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def tables() -> dict[Path, str]:
    """The full tables of the files that the pages name, each beside its file."""
    named = [
        (kind, ROOT / file)
        for page in PAGES.glob("*.md")
        for _, kind, file, *_ in BLOCK.findall(page.read_text(encoding="utf-8"))
    ]
    return {
        **{file.with_suffix(".md"): _whole(read_results(file)) for kind, file in named if kind == "bench"},
        **{
            file.with_suffix(".md"): ladder.full(_content(file), file.relative_to(ROOT))
            for kind, file in named
            if kind == "ladder"
        },
    }


def _whole(results: Results) -> str:
    """Every case, and those that are under their goals."""
    return full(results) + "\n" + goals.section(results)


def main() -> int:
    """Writes them."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for page in PAGES.glob("*.md"):
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
    for path, text in tables().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
