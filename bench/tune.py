"""Tuning on a GPU against its goals: `python bench/tune.py [--json FILE]`.

Measures first how many kernels a second the host compiles with nothing else to do. Then tunes the catalogue from
nothing, in a fresh folder, and prints for each goal what was reached. Compiling is part of it.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.program import ended, need_gpu, write_results
from gen.cli.gpu import alone
from gen.emit.render import render
from gen.families import FAMILIES
from gen.store.trials import Problem
from gen.store.winners import TUNED_FILE, Winner, text_of_winners
from gen.toolchain.farm import CompileFarm
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.one_problem import Options
from gen.tune.search import Climb, Space, exhaustive
from gen.tune.several_problems import Run, run
from gen.tune.targets import problems, read_seconds

# Of the calibrated limit, by the problem's name.
GOALS = {"reduction_sum_f32 268435456": 0.95, "transpose_10_b32 8192 x 8192": 0.85}
VARIANTS_PER_SECOND = 100
ARCH = "sm_90"
SOURCES = 320  # compiled to see how fast the host is


def seconds_of(text: str) -> float:
    """What `gen tune --budget` reads too. Raises ValueError for another text."""
    found = read_seconds(text)
    if found is None:
        raise ValueError(text)
    return found


def main() -> int:
    """Prints the table; status 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--budget", type=seconds_of, help="for all problems: 80, 80s, 2m; else all of each space")
    options = parser.parse_args()
    need_gpu("python bench/tune.py")
    from gen.tune.device import IsolatedDevice  # here, so that the table can be made without a GPU
    from gen.tune.gpu_session import GpuFactory

    wanted = problems(FAMILIES, None, {})
    with tempfile.TemporaryDirectory() as folder, alone(0, None, "bench/tune.py"):
        home = Path(folder)
        # Else the winners that came with gen would be those so far, which stay among equals.
        (home / TUNED_FILE).write_text(text_of_winners([]), encoding="utf-8")
        by_itself, width = compile_rate(wanted, Nvrtc(None))
        print(f"the host alone compiles {by_itself:.0f} kernels a second in {width} processes")
        compiler = Nvrtc(home / ".cache")
        start = time.monotonic()
        with CompileFarm(compiler) as farm, IsolatedDevice(GpuFactory(0, compiler, home)) as device:
            opened = time.monotonic() - start
            search = Options(Climb if options.budget else exhaustive)  # as `gen tune` does
            done = run(wanted, FAMILIES, device, farm, home, budget=options.budget, options=search)
            calibration = device.about
        seconds = time.monotonic() - start
    tried = sum(outcome.tried for outcome in done.outcomes)
    names = {trial.variant.name for outcome in done.outcomes for trial in outcome.trials if trial.compile_ms > 0}
    own = sum(
        trial.status not in ("infeasible", "pruned") and not trial.same_as for o in done.outcomes for trial in o.trials
    )
    met = show(done)
    rate = tried / seconds
    print(f"{tried} variants compiled, proven and timed in {seconds:.1f} s: {rate:.0f}/s (goal {VARIANTS_PER_SECOND})")
    print(f"{own} of them ran, the others shared code and plan with one; {len(names)} kernels were compiled, once for "
          f"all problems; {opened:.1f} s until the device was ready")  # fmt: skip
    if options.json:
        more = {"python": platform.python_version(), "compiler": compiler.version, "calibration": calibration}
        rows = [
            {
                "problem": str(outcome.problem),
                "spec": outcome.problem.spec_name,
                "shape": outcome.problem.shape_class,
                "variant": outcome.winner and outcome.winner.variant.name,
                "median_us": outcome.median_us,
                "of_limit": outcome.of_limit,
                "over_base": outcome.against_base,
                "statuses": dict(outcome.statuses),
                "tried": outcome.tried,
                "left_out": outcome.left_out,
                "turns": outcome.finals and outcome.finals.rounds,
                "settled": outcome.finals and outcome.finals.settled,
                "sm_mhz": outcome.finals and outcome.finals.sm_mhz,
                "throttled": outcome.finals and outcome.finals.throttled,
                "noise": outcome.noise,
                "seconds": outcome.seconds,
            }
            for outcome in done.outcomes
        ]
        write_results(
            options.json, "python bench/tune.py", None, more, variants_per_second=rate, seconds=seconds,
            variants=tried, ran=own, compiled=len(names), compiles_per_second_alone=by_itself, rows=rows,
        )  # fmt: skip
    return 0 if met and rate >= VARIANTS_PER_SECOND else 1


def compile_rate(wanted: Sequence[Problem], compiler: Nvrtc) -> tuple[float, int]:
    """Kernels a second that the host compiles when it does nothing else, and in how many processes."""
    specs = {problem.spec_name: problem for problem in wanted}.values()
    found = [made for problem in specs for made in exhaustive(Space(problem.family, problem.spec)).ask(10**5)]
    sources = [(made.name, render(made)) for made in found[:: max(len(found) // SOURCES, 1)]]
    with CompileFarm(compiler) as farm:
        for future in [farm.submit(*source, ARCH) for source in sources[: 2 * farm.width]]:
            future.result()  # every process has begun
        start = time.monotonic()
        for future in [farm.submit(*source, ARCH) for source in sources]:
            future.result()
        return len(sources) / (time.monotonic() - start), farm.width


def table(content: dict[str, Any], winners: Sequence[Winner]) -> str:
    """What stands in docs/tuning.md: how fast tuning was, by a file of results, and the winners that came with gen."""
    meta = content["meta"]
    device, day, command = meta["calibration"]["device"], meta["date"], meta["command"]
    lines = [
        (
            f"{content['variants_per_second']:.0f} variants a second were compiled, proven and timed on one {device} "
            f"(driver {meta['calibration']['driver']}), {day}, by `{command}`. The winners that come with gen for this "
            "GPU; of the limit: the time of an empty kernel and of the bytes at calibrated bandwidth, over the median."
        ),
        "",
        "| spec | for | winner | us | of the limit | base over it |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for winner in winners:
        if winner.device == device:
            name, evidence = winner.variant.partition("__")[2], winner.evidence
            lines.append(
                f"| {winner.spec} | {winner.words} | `{name}` | {evidence['median_us']:.2f} | "
                f"{evidence['of_limit']:.3f} | {1 / evidence['over_base']:.2f} |"
            )
    return "\n".join(lines) + "\n"


def show(done: Run) -> bool:
    """Prints a line a problem; whether every goal is met."""
    met = True
    for outcome in done.outcomes:
        goal = GOALS.get(str(outcome.problem))
        met = met and (goal is None or outcome.of_limit >= goal)
        said = "" if goal is None else f"  goal {goal}"
        print(f"{outcome.problem!s:40} {outcome.median_us:9.2f} us  {outcome.of_limit:.3f} of the limit{said}")
    return met


if __name__ == "__main__":
    sys.exit(ended(main))
