"""Whether the winner stays the winner: `python bench/stability.py [--json FILE]`, on a GPU.

Tunes problems from nothing, ten times each, and then times all that won in turns, a thousand samples each: their
midmeans must lie within 1 % of each other. Then tunes the last time's folder ten times more: its winner must stay.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from datetime import date
from pathlib import Path

import numpy as np

from gen.emit.render import render
from gen.families import FAMILIES
from gen.gpu.trial import Device, Entrant, Problem
from gen.store import tuned
from gen.store.trials import Trials
from gen.toolchain.farm import CompileFarm
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.choose import midmean_interval
from gen.tune.problems import problems
from gen.tune.sources import Sources
from gen.tune.tuner import tune

RUNS = 10
SAMPLES = 1000
TURNS = 50  # of one call, which a watchdog watches
WITHIN = 1.01
PROBLEMS = (("reduction_sum_f32", "2^20"), ("transpose_10_b32", "4096x4096"))


def main() -> int:
    """Prints a line a problem; status 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", choices=[spec for spec, _ in PROBLEMS], help="only this one")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    from gen.gpu.isolated import IsolatedDevice
    from gen.gpu.open import GpuFactory

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / tuned.FILE).write_text(tuned.text_of_winners([]), encoding="utf-8")
        compiler = Nvrtc(home / ".cache")
        with CompileFarm(compiler) as farm, IsolatedDevice(GpuFactory(0, compiler, home)) as device:
            for spec, shape in PROBLEMS:
                if options.spec not in (None, spec):
                    continue
                (problem,) = problems(FAMILIES, spec, {}, (shape,))
                rows.append(measure(problem, device, farm, home))
            content = {
                "meta": {"command": "python bench/stability.py", "date": date.today().isoformat(),
                         "device": device.name, "driver": device.driver, "compiler": compiler.version},
                "rows": rows,
            }  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["spread"] <= WITHIN and row["kept"] == RUNS for row in rows) else 1


def measure(problem: Problem, device: Device, farm: CompileFarm, home: Path) -> dict[str, object]:
    """Fresh runs, the reference of their winners, and reruns of the last."""
    winners = []
    sources = Sources(farm, device.limits.arch)  # what is compiled is the same every time: compiling does not choose
    for number in range(RUNS):
        trials = Trials(home / f"{problem.spec_name}-{number}")
        outcome = tune(problem, device, farm, trials, sources=sources)
        assert outcome.winner is not None
        winners.append(outcome.winner)
        print(f"  run {number + 1}: {outcome.winner.variant.name} in {outcome.seconds:.1f} s", flush=True)
        if number < RUNS - 1:
            trials.close()
    kept = 0
    for _ in range(RUNS):
        again = tune(problem, device, farm, trials, previous=winners[-1].variant.name, sources=sources)
        kept += again.winner is not None and again.winner.variant == winners[-1].variant
    trials.close()
    distinct = {winner.variant.name: winner.variant for winner in winners}
    entrants = [
        Entrant(made, farm.submit(name, render(made), device.limits.arch).result()) for name, made in distinct.items()
    ]
    session = device.open(problem, entrants[0])
    session.ready().result()
    times: dict[str, list[float]] = {name: [] for name in distinct}
    for _ in range(SAMPLES // TURNS):
        for name, more in session.rounds(entrants, TURNS).times_us.items():
            times[name] += more
    session.close()
    centers = {name: midmean_interval(found).center for name, found in times.items()}
    spread = max(centers.values()) / min(centers.values())
    counts = Counter(winner.variant.name for winner in winners)
    print(f"{problem}: {RUNS} fresh runs, winners within {100 * (spread - 1):.2f} % by {SAMPLES} samples; "
          f"{kept} of {RUNS} reruns keep the winner")  # fmt: skip
    for name, count in counts.most_common():
        print(f"  {count:2d} x {name}  {centers[name]:.3f} us")
    return {
        "problem": str(problem), "spread": spread, "kept": kept,
        "winners": {
            name: {"times": count, "midmean_us": centers[name], "median_us": float(np.median(times[name]))}
            for name, count in counts.items()
        },
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
