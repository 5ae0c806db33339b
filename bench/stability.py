"""Whether the winner stays the winner: `python bench/stability.py [--json FILE]`, on a GPU.

Tunes problems from nothing, ten times each, and then times all that won in turns, a thousand samples each: their
midmeans must lie within 1 % of each other. Then times all that were in any finals in the same way. How far the winners
are from the fastest of those says how well was chosen; how far each one's time in its finals is from this reference,
how well was measured. And it tunes the last time's folder ten times more: its winner must stay.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from bench.program import ended, need_gpu, write_results
from gen.cli.gpu import alone
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import find_variant
from gen.store.trials import Problem, Trials
from gen.store.winners import TUNED_FILE, text_of_winners
from gen.toolchain.farm import CompileFarm
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.choose import midmean_interval
from gen.tune.device import Entrant, TuningDevice
from gen.tune.one_problem import tune
from gen.tune.pipeline import Sources
from gen.tune.targets import problems

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
    need_gpu("python bench/stability.py")
    from gen.tune.device import IsolatedDevice
    from gen.tune.gpu_session import GpuFactory

    rows = []
    with tempfile.TemporaryDirectory() as folder, alone(0, None, "bench/stability.py"):
        home = Path(folder)
        (home / TUNED_FILE).write_text(text_of_winners([]), encoding="utf-8")
        compiler = Nvrtc(home / ".cache")
        with CompileFarm(compiler) as farm, IsolatedDevice(GpuFactory(0, compiler, home)) as device:
            for spec, shape in PROBLEMS:
                if options.spec not in (None, spec):
                    continue
                (problem,) = problems(FAMILIES, spec, {}, (shape,))
                rows.append(measure(problem, device, farm, home))
            write_results(options.json, "python bench/stability.py", device, {"compiler": compiler.version}, rows=rows)
    return 0 if all(row["spread"] <= WITHIN and row["kept"] == RUNS for row in rows) else 1


@dataclass(frozen=True)
class Fresh:
    """A run that began with nothing.

    Attributes:
        finalists: the midmean of each one's times in its finals, in microseconds, by name.
    """

    winner: Variant
    seconds: float
    finalists: dict[str, float]


def measure(problem: Problem, device: TuningDevice, farm: CompileFarm, home: Path) -> dict[str, Any]:
    """Fresh runs, the reference of all their finalists, and reruns of the last."""
    runs: list[Fresh] = []
    sources = Sources(farm, device.limits.arch)  # what is compiled is the same every time: compiling does not choose
    stores = [Trials(home / f"{problem}-{number}") for number in range(RUNS)]
    with ExitStack() as stack:
        for number, store in enumerate(stores):
            stack.callback(store.close)
            outcome = tune(problem, device, farm, store, sources=sources)
            assert outcome.winner is not None
            finals = {name: midmean_interval(times).center for name, times in outcome.rounds_us.items()}
            runs.append(Fresh(outcome.winner.variant, outcome.seconds, finals))
            print(f"  run {number + 1}: {runs[-1].winner.name} in {outcome.seconds:.1f} s", flush=True)
        last = runs[-1].winner
        again = [tune(problem, device, farm, stores[-1], incumbent=last.name, sources=sources) for _ in range(RUNS)]
    kept = sum(one.winner is not None and one.winner.variant == last for one in again)
    won = Counter(run.winner.name for run in runs)
    winners = timed(problem, device, farm, sorted(won))
    reference = timed(problem, device, farm, sorted({*won, *(name for run in runs for name in run.finalists)}))
    spread = max(winners.values()) / min(winners.values())
    loss = max(reference[name] for name in won) / min(reference.values())
    deviations = [deviation for run in runs for deviation in deviations_of(run, reference)]
    print(f"{problem}: {RUNS} fresh runs, winners within {100 * (spread - 1):.2f} % by {SAMPLES} samples and "
          f"{100 * (loss - 1):.2f} % of the fastest finalist; {kept} of {RUNS} reruns keep the winner")  # fmt: skip
    print(f"  times in the finals differ from the reference by {100 * float(np.std(deviations)):.2f} % (one deviation)")
    for name, count in won.most_common():
        print(f"  {count:2d} x {name}  {winners[name]:.3f} us, {reference[name]:.3f} us among all finalists")
    return {
        "problem": str(problem), "spread": spread, "loss": loss, "kept": kept, "deviation": float(np.std(deviations)),
        "winners": {name: {"times": count, "midmean_us": winners[name]} for name, count in won.items()},
        "finalists": reference,
        "runs": [{"winner": run.winner.name, "seconds": run.seconds, "finalists": run.finalists} for run in runs],
    }  # fmt: skip


def timed(problem: Problem, device: TuningDevice, farm: CompileFarm, names: Sequence[str]) -> dict[str, float]:
    """The midmean of SAMPLES times of each variant, in microseconds, all in turns."""
    made = [find_variant(FAMILIES, name, {}) for name in names]
    codes = [farm.submit(one.name, render(one), device.limits.arch) for one in made]
    entrants = [Entrant(one, code.result()) for one, code in zip(made, codes, strict=True)]
    session = device.open(problem, entrants[0])
    session.ready().result()
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(SAMPLES // TURNS):
        for name, more in session.rounds(entrants, TURNS).times_us.items():
            times[name] += more
    session.close()
    return {name: midmean_interval(found).center for name, found in times.items()}


def deviations_of(run: Fresh, reference: Mapping[str, float]) -> list[float]:
    """How far each finalist's time is from the reference, where both are over the mean of that run's finalists."""
    ratios = {name: us / reference[name] for name, us in run.finalists.items()}
    usual = fmean(ratios.values())
    return [ratio / usual - 1 for ratio in ratios.values()]


if __name__ == "__main__":
    sys.exit(ended(main))
