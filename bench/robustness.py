"""What a tuning run survives on a real GPU: `python bench/robustness.py [--json FILE]`.

Kills runs at random moments and counts what was recorded; starts two at once; times the winners again;
insists on them. All by the commands that a user types. Every step stands alone: `--only` measures some of them anew.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.program import ended, need_gpu, write_results
from gen.store.winners import TUNED_FILE, read_winners, text_of_winners

KILLS = 3
BRIEFLY = ("--budget", "5s")
SHAPE = ("transpose_10_b32", "--shape", "2048x1024")
Report = dict[str, Any]
Step = Callable[[Path], Report]


def main() -> int:
    """Prints what became of each; status 1 if one went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the results to this file, over those it holds")
    parser.add_argument("--only", action="append", choices=[step.__name__ for step in STEPS], help="repeatable")
    options = parser.parse_args()
    device = need_gpu("python bench/robustness.py")
    reports: dict[str, Report] = {}
    if options.json and options.json.is_file():
        reports = json.loads(options.json.read_text(encoding="utf-8"))
        reports.pop("meta")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / TUNED_FILE).write_text(text_of_winners([]), encoding="utf-8")
        for step in STEPS:
            if step.__name__ not in (options.only or [step.__name__]):
                continue
            start = time.monotonic()
            report = reports[step.__name__] = step(home)
            report["seconds"] = round(time.monotonic() - start, 1)
            print(f"{step.__name__}: {json.dumps(report)}", flush=True)
            write_results(options.json, "python bench/robustness.py", device, None, **reports)
    return 0 if all(report["well"] for report in reports.values()) else 1


def kills(home: Path) -> Report:
    """Ends runs by SIGKILL; each finds again what those before it recorded, and the last one ends by itself."""
    moments, seen, lost = random.Random(3), 0, 0
    counts = []
    for _ in range(KILLS):
        process = begun(home, *SHAPE)
        while rows(home) <= seen and process.poll() is None:
            time.sleep(0.02)
        time.sleep(moments.uniform(0.0, 0.3))
        known = rows(home)
        process.send_signal(signal.SIGKILL)
        process.wait()
        seen = rows(home)
        lost += known - seen if seen < known else 0
        counts.append(seen)
    last = begun(home, *SHAPE)
    last.communicate()
    return {"recorded": counts, "lost": lost, "in_the_end": rows(home),
            "well": last.returncode == 0 and lost == 0 and counts == sorted(set(counts))}  # fmt: skip


def two_at_once(home: Path) -> Report:
    """The second waits for the first, and says so; both keep what they find."""
    shapes = [("reduction_sum_f32", "--shape", shape, "--budget", "15s") for shape in ("2^16", "2^17")]
    first, second = [begun(home, *shape) for shape in shapes]
    said = [process.communicate()[1] for process in (first, second)]
    waiting = [line for text in said for line in text.splitlines() if "in use by" in line or "aits for" in line]
    winners = {winner.words for winner in read_winners(home) if winner.spec == "reduction_sum_f32"}
    statuses = [first.returncode, second.returncode]
    return {"statuses": statuses, "waited": waiting, "winners": sorted(winners),
            "well": statuses == [0, 0] and len(waiting) >= 1 and len(winners) == 2}  # fmt: skip


def verified(home: Path) -> Report:
    """The verdict on each winner."""
    _tuned(home)
    process = begun(home, "--verify", "--json")
    out, _ = process.communicate()
    checks = json.loads(out)
    verdicts = [(check["for"], check["verdict"], check["over_base"]) for check in checks]
    return {"verdicts": verdicts, "well": process.returncode == 0 and bool(checks)}


def insisted(home: Path) -> Report:
    """What is tuned suffices, what is not fails; nothing is measured."""
    _tuned(home)
    before, statuses = rows(home), []
    for target in (SHAPE, ("transpose_10_b32", "--shape", "77x99")):
        process = begun(home, *target, "--frozen")
        process.communicate()
        statuses.append(process.returncode)
    return {"statuses": statuses, "well": statuses == [0, 1] and rows(home) == before}


def _tuned(home: Path) -> None:
    """Sees to a winner for SHAPE, where an earlier step left none."""
    frozen = begun(home, *SHAPE, "--frozen")
    frozen.communicate()
    if frozen.returncode != 0:
        begun(home, *SHAPE, *BRIEFLY).communicate()


def begun(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """`gen tune` with these arguments."""
    return subprocess.Popen(
        [sys.executable, "-m", "gen", "tune", *arguments, "--home", str(home)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def rows(home: Path) -> int:
    """Recorded trials."""
    if not (home / "trials.sqlite").exists():
        return 0
    with closing(sqlite3.connect(home / "trials.sqlite", timeout=30)) as base:
        try:
            return int(base.execute("SELECT count(*) FROM trials").fetchone()[0])
        except sqlite3.OperationalError:  # no table yet
            return 0


STEPS: tuple[Step, ...] = (kills, two_at_once, verified, insisted)

if __name__ == "__main__":
    sys.exit(ended(main))
