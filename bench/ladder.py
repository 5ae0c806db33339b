"""The ladders of all families on a GPU: `python bench/ladder.py [--json FILE]`.

Every kernel of the literature is proven at its problem, then timed in turns with those of the same problem, behind
cold caches. Then the CPU run counts what explains the steps; `--explain FILE` does that alone, for a file that was
measured where it could not be done. `--show FILE` prints a file's tables, and `python bench/readme.py` puts them where
they belong.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

from bench.program import ended, need_gpu
from gen.cli.gpu import alone
from gen.errors import MissingToolError
from gen.families import FAMILIES
from gen.families.base import Family, Limits
from gen.families.names import find_family
from gen.paths import cache_home, output_home
from gen.report.ladder import (
    COLUMNS_EXPLAINED,
    ROUNDS,
    Rung,
    Time,
    as_json,
    climb,
    listed,
    looked_at,
    said_of_problems,
    timed,
)
from gen.toolchain.nvrtc import Nvrtc


def main() -> int:
    """Prints the tables of what it measures, of what it explains, or of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--json", type=Path, help="also write the results to this file")
    what.add_argument("--explain", type=Path, help="measure nothing: count what explains the steps in this file")
    what.add_argument("--show", type=Path, help="measure nothing: print the tables of this file")
    options = parser.parse_args()
    file = options.show or options.explain or options.json
    if options.show:
        content = _read(file)
    elif options.explain:
        content = explain(_read(file), file)
    else:
        content = measure(file)
        try:
            content = explain(content, file)
        except MissingToolError as error:  # the times are there all the same
            print(f"Nothing explains the steps: {error}", file=sys.stderr)
    print(full(content, file), end="")
    return 0


def measure(file: Path | None) -> dict[str, Any]:
    """The times of all kernels; the file has those of a family when it is done."""
    need_gpu("python bench/ladder.py")
    from gen.tune.device import IsolatedDevice
    from gen.tune.gpu_session import GpuFactory

    home = output_home()
    compiler = Nvrtc(cache_home(home))
    with alone(0, None, "bench/ladder.py"), IsolatedDevice(GpuFactory(0, compiler, home)) as device:
        meta = {
            "command": "python bench/ladder.py",
            "date": date.today().isoformat(),
            "compiler": compiler.version,
            "arch": device.limits.arch,
            "turns": ROUNDS,
            "words": COLUMNS_EXPLAINED,
            "calibration": asdict(device.about),
        }
        content: dict[str, Any] = {"meta": meta, "families": {}}
        for family in FAMILIES:
            content["families"][family.name] = _steps(timed(device, compiler, listed(family, device.limits)))
            _write(file, content)
    return content


def explain(content: dict[str, Any], file: Path | None) -> dict[str, Any]:
    """The same with what the CPU run counts, which the file has of a family when it is done."""
    limits = Limits.of(content["meta"]["arch"])
    for name, steps in content["families"].items():
        rungs = looked_at(_measured(find_family(FAMILIES, name), limits, steps), limits, output_home())
        content["families"][name] = _steps(rungs)
        _write(file, content)
    return content


def _measured(family: Family[Any], limits: Limits, steps: Sequence[Mapping[str, Any]]) -> list[Rung]:
    """The rungs that a file has, as far as the literature still has them."""
    known = {rung.name: rung for rung in listed(family, limits)}
    return [
        replace(known[step["name"]], timed=Time(step["us"], step["of_limit"] or 0.0, step["reason"] or ""))
        for step in steps
        if step["name"] in known
    ]


def _steps(rungs: Sequence[Rung]) -> list[dict[str, Any]]:
    return [as_json(step) for step in climb(rungs)]


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _write(file: Path | None, content: Mapping[str, Any]) -> None:
    if file is not None:
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _command(meta: Mapping[str, Any], file: Path | None) -> str:
    """What makes the file."""
    return shlex.join([*meta["command"].split(), *(() if file is None else ("--json", str(file)))])


def full(content: dict[str, Any], file: Path | None = None) -> str:
    """All ladders, with what explains each step; `file` holds them."""
    meta = content["meta"]
    calibration = meta["calibration"]
    lines = [
        (
            f"Measured on one {calibration['device']} (driver {calibration['driver']}), {meta['date']}, by "
            f"`{_command(meta, file)}`: medians of {meta['turns']} turns behind cold caches; it copies "
            f"{calibration['copy']:.0f} GB/s. {COLUMNS_EXPLAINED} What changed is counted on the CPU run."
        ),
    ]
    for family, rungs in content["families"].items():
        if rungs:
            said = said_of_problems({rung["name"]: rung["problem"] for rung in rungs})
            lines += ["", f"## {family}", "", said, "", *_table(rungs)]
    return "\n".join(lines) + "\n"


SHORT = (
    ("reduceInterleaved", "reduceUnrolling2", "reduceUnrolling4", "reduceUnrolling8", "reduceUnrolling16"),
    ("transposeNaiveRow", "transposeNaiveCol", "transposeSmem", "transposeSmemPad", "copySharedMem"),
    ("stencil_1d_gmem", "stencil_1d_read_only", "stencil_1d"),
    ("readOffset", "readOffset11"),
    ("setRowReadCol", "setRowReadColPad"),
)
"""What docs/literature.md shows: kernels that are steps from one to the next."""


def short(content: dict[str, Any], file: Path | None = None) -> str:
    """Some rungs, each beside the one above it; `file` holds them."""
    meta = content["meta"]
    calibration = meta["calibration"]
    lines = [
        (
            f"Measured on one {calibration['device']} (driver {calibration['driver']}), {meta['date']}, by "
            f"`{_command(meta, file)}`; it copies {calibration['copy']:.0f} GB/s. Published: the literature's own "
            "step, on GPUs of 2010 to 2013."
        ),
        "",
        "| kernel | problem | us | GB/s | over the one above | published |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    known = {rung["name"]: rung for rungs in content["families"].values() for rung in rungs if rung["us"] is not None}
    for names in SHORT:
        before = None
        for rung in (known[name] for name in names if name in known):
            step = "" if before is None else f"{rung['gb_per_s'] / before['gb_per_s']:.2f}x"
            problem = "" if before is not None and before["problem"] == rung["problem"] else rung["problem"]
            same = before is not None and before["name"] == rung["over"]
            row = (rung["name"], problem, f"{rung['us']:.1f}", f"{rung['gb_per_s']:.0f}", step, _published(rung, same))
            lines.append(f"| {' | '.join(row)} |")
            before = rung
    return "\n".join(lines) + "\n"


def _published(rung: Mapping[str, Any], same: bool = True) -> str:
    return f"{rung['published']:.2f}x" if same and rung["published"] is not None else ""


def _table(rungs: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| kernel | us | GB/s | step | published | in all | what changed |", "| --- " * 7 + "|"]
    above = None
    for rung in rungs:
        if rung["us"] is None:
            lines.append(f"| {rung['name']} | | | | {_published(rung)} | | {rung['reason']} |".replace("|  |", "| |"))
        else:
            over = f" over {rung['over']}" if rung["over"] not in (None, above) else ""
            step = "" if rung["step"] is None else f"{rung['step']:.2f}x{over}"
            row = (
                rung["name"], f"{rung['us']:.2f}", f"{rung['gb_per_s']:.0f}", step, _published(rung),
                f"{rung['cumulative']:.2f}x", "; ".join(rung["causes"]),
            )  # fmt: skip
            lines.append("| " + " | ".join(row) + " |")
        above = rung["name"]
    return lines


if __name__ == "__main__":
    sys.exit(ended(main))
