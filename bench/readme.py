"""Writes what was measured into the README: `python bench/readme.py`.

The comparison with other libraries, by `python -m bench`, and the ladders, by `bench/ladder.py`, with the full tables
beside their files; what tuning reached, by `bench/tune.py`; how well predictions rank, by `bench/predict.py`; stencils
against the copy, by `bench/stencil_sweep.py`; what lines that a kernel keeps in the L2 cost what comes next, by
`bench/afterwards.py`. The README names the files.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import afterwards, goals, ladder, predict, stencil_sweep
from bench.cases import public_cases
from bench.program import ended
from bench.results import Results, read_results
from bench.stencils import steps_of
from bench.table import full, lines, summary
from bench.tune import table
from gen.store.tuned import read_winners

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- bench: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
LADDER = re.compile(r"(<!-- ladder: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
PREDICTED = re.compile(r"(<!-- predicted: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
STENCILS = re.compile(r"(<!-- stencils: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
AFTERWARDS = re.compile(r"(<!-- afterwards: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_MAX_NAMES = 8  # of cases, in a sentence
_LARGE = 8192**2  # cells, which no cache holds
STEPS = re.compile(r"(<!-- steps: (\S+) (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
TUNED = re.compile(r"(<!-- measured: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def updated(readme: str) -> str:
    """The README's text, each of its blocks made anew from the file that it names."""
    winners = read_winners(ROOT / "out")
    readme = TUNED.sub(lambda found: found[1] + table(_content(ROOT / found[2]), winners) + found[4], readme)
    readme = LADDER.sub(
        lambda found: found[1] + ladder.short(_content(ROOT / found[2]), Path(found[2])) + found[4], readme
    )
    readme = PREDICTED.sub(lambda found: found[1] + predict.sentence(_content(ROOT / found[2])) + found[4], readme)
    readme = STENCILS.sub(lambda found: found[1] + stencil_sweep.table(_content(ROOT / found[2])) + found[4], readme)
    readme = AFTERWARDS.sub(lambda found: found[1] + afterwards.table(_content(ROOT / found[2])) + found[4], readme)
    readme = STEPS.sub(lambda found: found[1] + many_steps([ROOT / found[2], ROOT / found[3]]) + found[5], readme)
    return BLOCK.sub(lambda found: found[1] + compared(read_results(ROOT / found[2])) + found[4], readme)


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


def tables(readme: str) -> dict[Path, str]:
    """The full tables of the files that the README names, each beside its file."""
    files = [ROOT / found[2] for found in BLOCK.finditer(readme)]
    ladders = [Path(found[2]) for found in LADDER.finditer(readme)]
    return {
        **{file.with_suffix(".md"): _whole(read_results(file)) for file in files if file.is_file()},
        **{ROOT / file.with_suffix(".md"): ladder.full(_content(ROOT / file), file) for file in ladders},
    }


def _whole(results: Results) -> str:
    """Every case, and those that are under their goals."""
    return full(results) + "\n" + goals.section(results)


def main() -> int:
    """Writes them."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    place = ROOT / "README.md"
    readme = place.read_text(encoding="utf-8")
    place.write_text(updated(readme), encoding="utf-8")
    for path, text in tables(readme).items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
