"""Stencils against the copy: `python bench/stencil_sweep.py [--seconds S] [--only TEXT] [--json FILE]`, on a GPU.

Tunes each case for so many seconds, in a fresh folder, and prints a line for it: one sweep as the fraction of the
calibrated copy, many steps as cells advanced a second, beside the goal. A case of another boundary takes the fastest
variants of the first boundary's. With `--variant ALGORITHM_TAG`, repeatable, it times these and no others, where they
are legal.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bench.program import ended, need_gpu, write_results
from gen.cli.gpu import alone
from gen.dtypes import F16, F32, F64, DType
from gen.emit.render import render
from gen.errors import GenError
from gen.families.base import Spec, Variant
from gen.families.names import find_algorithm, illegal, variant
from gen.families.stencil import Boundary, Stencil, StencilSpec
from gen.families.stencil.shapes import extents_of
from gen.families.stencil.spec import BOUNDARIES
from gen.store.trials import Problem, Trial, Trials
from gen.store.winners import TUNED_FILE, text_of_winners
from gen.toolchain.farm import CompileFarm
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.device import Entrant, TuningDevice
from gen.tune.one_problem import Options, base_of, tune
from gen.tune.outcome import Outcome
from gen.tune.search import InOrder, Search, Space

FAMILY = Stencil()
SIZES = (8192, 16384)
MANY = 48
BEST = 6  # variants that other boundaries are given
GIVE_UP_US = 1e7


@dataclass(frozen=True)
class Among:
    """A search of some algorithms, in an order that favours none of their variants."""

    algorithms: tuple[str, ...]

    def __call__(self, space: Space) -> Search:
        """The search, made for a space."""
        numbers = np.random.default_rng(0).permutation(space.size)
        made = {int(number): space.at(int(number)) for number in numbers}
        return InOrder(space, [n for n, one in made.items() if one and one.algorithm.name in self.algorithms])


ONE_SWEEP, MANY_STEPS = Among(("naive", "stream", "march")), Among(("temporal", "pipelined", "march"))
ON_CHIP = Among(("persistent", "temporal"))


@dataclass(frozen=True)
class Case:
    """A stencil at one size.

    Attributes:
        goal: of the copy for one sweep, cells advanced a second times 1e-12 for many; 0 without one. For three axes it
            is one H100's.
    """

    form: Literal["star", "box"]
    radius: int
    dtype: DType
    steps: int
    extent: int
    boundary: Boundary = "constant"
    goal: float = 0.0
    axes: int = 2

    def __str__(self) -> str:
        steps = "1 sweep" if self.steps == 1 else f"{self.steps} steps"
        return (
            f"{self.form}{self.axes}d{self.radius}r {self.dtype.name} {self.extent}^{self.axes} {self.boundary} {steps}"
        )

    @property
    def search(self) -> Among:
        """The algorithms that are tried."""
        on_chip = self.axes == 2 and self.extent < min(SIZES)
        return ONE_SWEEP if self.steps == 1 else ON_CHIP if on_chip else MANY_STEPS

    @property
    def problem(self) -> Problem:
        """The case as a tuner takes it; weights grow in row-major order, together 1."""
        shape = (2 * self.radius + 1,) * self.axes
        weights = np.arange(1.0, np.prod(shape) + 1).reshape(shape)
        if self.form == "star":
            off_axis = sum(index != self.radius for index in np.indices(weights.shape))
            weights[np.asarray(off_axis) > 1] = 0
        weights /= weights.sum()
        word = f"{self.form}{self.axes}d{self.radius}r"
        spec = StencilSpec(word, tuple(weights.reshape(-1)), weights.shape, self.dtype, self.boundary)
        return Problem(FAMILY, spec, extents_of(spec, (self.extent,) * self.axes, self.steps))

    def reached(self, median_us: float, floor_us: float) -> float:
        """What `goal` counts."""
        return floor_us / median_us if self.steps == 1 else self.extent**self.axes * self.steps / median_us / 1e6


def cases() -> Iterator[Case]:
    """One sweep and many steps, of each size; boundaries other than the first after it; three axes; on chip."""
    for extent in SIZES:
        large = extent == max(SIZES)
        for form, radius, dtype, goal in (
            ("star", 1, F32, 0.97), ("star", 2, F32, 0.97), ("star", 4, F32, 0.92), ("box", 1, F32, 0.97),
            ("box", 2, F32, 0.97), ("star", 1, F64, 0.97), ("star", 1, F16, 0.92),
        ):  # fmt: skip
            yield Case(form, radius, dtype, 1, extent, goal=goal)  # type: ignore[arg-type]
        for form, radius, dtype, goal in (
            ("star", 1, F32, 3.8), ("star", 1, F64, 1.9), ("box", 1, F32, 2.5), ("star", 2, F32, 2.2),
        ):  # fmt: skip
            for boundary in BOUNDARIES if (form, dtype) == ("star", F32) and radius == 1 else ("constant",):
                yield Case(form, radius, dtype, MANY, extent, boundary, goal if large else 0.0)  # type: ignore[arg-type]
    for form, radius, dtype, one, many in (
        ("star", 1, F32, 0.95, 1.2), ("star", 2, F32, 0.94, 0.7), ("star", 4, F32, 0.92, 0.35),
        ("box", 1, F32, 0.92, 0.6), ("star", 1, F64, 0.95, 0.6), ("star", 1, F16, 0.9, 1.5),
    ):  # fmt: skip
        for steps, goal in ((1, one), (MANY, many)):
            for boundary in (
                ("frozen", "constant", "wrap") if (form, radius, dtype) == ("star", 1, F32) else ("frozen",)
            ):
                yield Case(form, radius, dtype, steps, 512, boundary, goal, axes=3)  # type: ignore[arg-type]
    for extent, steps, goal in ((2048, 1000, 2.8), (2048, 16, 1.9), (512, 1000, 0.44)):  # fit into registers
        yield Case("star", 1, F32, steps, extent, goal=goal)


@dataclass(frozen=True)
class Row:
    """What a case came to."""

    case: Case
    variant: Variant
    median_us: float
    reached: float
    trials: Sequence[Trial]

    def __str__(self) -> str:
        unit = "of copy" if self.case.steps == 1 else "TCell-steps/s"
        goal = f" (goal {self.case.goal:g})" if self.case.goal else ""
        name = self.variant.name.split("__")[1]
        return f"{self.case!s:42s} {self.median_us:10.1f} us  {self.reached:.3f} {unit}{goal}  {name}"


def main() -> int:
    """Prints the table; status 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each case")
    parser.add_argument("--only", action="append", default=[], help="cases whose line begins with this; repeatable")
    parser.add_argument("--variant", action="append", default=[], help="ALGORITHM_TAG to time; repeatable")
    parser.add_argument("--json", type=Path, help="also write every trial to this file")
    options = parser.parse_args()
    need_gpu("python bench/stencil_sweep.py")
    from gen.tune.device import IsolatedDevice
    from gen.tune.gpu_session import GpuFactory

    wanted = [case for case in cases() if not options.only or any(text in str(case) for text in options.only)]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, alone(0, None, "bench/stencil_sweep.py"):
        home = Path(folder)
        (home / TUNED_FILE).write_text(text_of_winners([]), encoding="utf-8")
        compiler = Nvrtc(home / ".cache")
        with CompileFarm(compiler) as farm, IsolatedDevice(GpuFactory(0, compiler, home)) as device:
            print(f"{device.name}, {device.driver}, copy {device.about.copy:.0f} GB/s", flush=True)
            trials = Trials(home)
            for case in wanted:
                try:
                    if options.variant:
                        row = timed(case, case.problem, named(case.problem.spec, options.variant), device, farm)
                    else:
                        row = measure(case, rows, device, farm, trials, options.seconds)
                except GenError as error:
                    print(f"{case}: {error}", flush=True)
                    continue
                rows.append(row)
                print(row, flush=True)
                for trial in row.trials if options.variant else ():
                    print(f"  {trial.median_us:10.1f} us  {trial.variant.name.split('__')[1]}", flush=True)
                more = {"compiler": compiler.version, "copy": device.about.copy}
                write_results(options.json, "python bench/stencil_sweep.py", device, more, rows=as_json(rows))
            trials.close()
    return 0 if all(row.reached >= row.case.goal for row in rows) else 1


def measure(
    case: Case, earlier: Sequence[Row], device: TuningDevice, farm: CompileFarm, trials: Trials, seconds: float
) -> Row:
    """The fastest variant: of all that are reached in time, or of those that were fast with the first boundary."""
    problem = case.problem
    like = [row for row in earlier if replace(row.case, boundary=case.boundary) == case]
    if like:
        return again(case, problem, like[0], device, farm)
    outcome: Outcome = tune(
        problem,
        device,
        farm,
        trials,
        deadline=time.monotonic() + seconds,
        options=Options(case.search),
    )
    assert outcome.winner is not None
    median_us = outcome.median_us
    return Row(case, outcome.winner.variant, median_us, case.reached(median_us, outcome.floor_us), outcome.trials)


def again(case: Case, problem: Problem, like: Row, device: TuningDevice, farm: CompileFarm) -> Row:
    """The fastest of the variants that were fast with another boundary."""
    known = sorted((trial for trial in like.trials if trial.times_us), key=lambda trial: trial.median_us)
    names = [like.variant, *(trial.variant for trial in known[:BEST])]
    made = dict.fromkeys(
        variant(FAMILY, problem.spec, one.algorithm, one.config)
        for one in names
        if illegal(one.algorithm, problem.spec, one.config) is None
    )
    return timed(case, problem, tuple(made), device, farm)


def named(spec: Spec, names: Sequence[str]) -> Sequence[Variant]:
    """The variants of these algorithms and tags that are legal. Raises GenError where none is."""
    found = []
    for name in names:
        word, _, tag = name.partition("_")
        algorithm = find_algorithm(FAMILY, word)
        config = algorithm.config.from_tag(tag, word)
        if illegal(algorithm, spec, config) is None:
            found.append(variant(FAMILY, spec, algorithm, config))
    if not found:
        raise GenError(
            "--variant", f"must name a variant that is legal for {spec.label}", ", ".join(names),
            next_step="gen list shows all algorithms with their parameters",
        )  # fmt: skip
    return found


def timed(case: Case, problem: Problem, variants: Sequence[Variant], device: TuningDevice, farm: CompileFarm) -> Row:
    """The fastest of these, all checked and timed."""
    first = base_of(problem, device)
    compiling = [(one, farm.submit(one.name, render(one), device.limits.arch)) for one in (first, *variants)]
    entrants = [Entrant(one, compiled.result()) for one, compiled in compiling]
    session = device.open(problem, entrants[0])
    session.ready().result()
    done = [session.submit(entrant, GIVE_UP_US).result() for entrant in entrants[1:]]
    session.close()
    done = [trial for trial in done if trial.times_us]
    if not done:
        raise GenError(str(case), "must have a variant that ends in time and is right")
    fastest = min(done, key=lambda trial: trial.median_us)
    reached = case.reached(fastest.median_us, device.floor_us(problem))
    return Row(case, fastest.variant, fastest.median_us, reached, done)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """All of it; of the trials how they ended, and the fastest of each algorithm."""
    return [
        {
            "case": str(row.case), "steps": row.case.steps, "goal": row.case.goal, "reached": row.reached,
            "median_us": row.median_us, "variant": row.variant.name.split("__")[1],
            "statuses": Counter(trial.status for trial in row.trials),
            "fastest": {trial.variant.name.split("__")[1]: trial.median_us for trial in fastest(row.trials)},
        }
        for row in rows
    ]  # fmt: skip


def fastest(trials: Sequence[Trial]) -> Iterator[Trial]:
    """The fastest of each algorithm, all in the order of their times."""
    taken = Counter[str]()
    for trial in sorted((trial for trial in trials if trial.times_us), key=lambda trial: trial.median_us):
        taken[trial.variant.algorithm.name] += 1
        if taken[trial.variant.algorithm.name] <= BEST:
            yield trial


def table(content: dict[str, Any]) -> str:
    """The lines of docs/tuning.md about such a file."""
    meta = content["meta"]
    measured = (
        f"Measured on one {meta['device']} (driver {meta['driver']}), {meta['date']}, by `{meta['command']}`; copy "
        f"reaches {meta['copy']:.0f} GB/s. Of copy: the time of an empty kernel and of the bytes at that bandwidth, "
        "over the median. TCell-steps/s: cells times steps, in 10^12 a second."
    )
    lines = [
        measured,
        "",
        "| stencil | reached | goal | winner |",
        "| --- | --- | --- | --- |",
    ]
    for row in content["rows"]:
        unit = "of copy" if row["steps"] == 1 else "TCell-steps/s"
        goal = f"{row['goal']:g}" if row["goal"] else ""
        lines.append(f"| {row['case']} | {row['reached']:.3f} {unit} | {goal} | `{row['variant']}` |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(ended(main))
