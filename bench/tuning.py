"""Tuning each case before it is measured: exactly its spec at its shape, but for steps beyond many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gen.compare.case import ComparisonCase
from gen.families.base import Family
from gen.families.regions import Bound, Region
from gen.gpu.trial import Device, Problem
from gen.paths import cache_home
from gen.toolchain.farm import Farm
from gen.tune.run import run
from gen.tune.searches import find_search
from gen.tune.tuner import Options

MAX_TUNED_STEPS = 48  # of a case as it is tuned: a call of 1,000 tells no more, and takes all of the time

Tune = Callable[[ComparisonCase], float]


@contextmanager
def tuning(gpu: int, families: Sequence[Family[Any]], home: Path, seconds: float) -> Iterator[Tune]:
    """Opens a GPU in a process of its own; gives what tunes a case for so long, and says how long it took."""
    from gen.gpu.isolated import IsolatedDevice
    from gen.gpu.open import GpuFactory
    from gen.toolchain.farm import CompileFarm
    from gen.toolchain.nvrtc import Nvrtc

    compiler = Nvrtc(cache_home(home))
    with CompileFarm(compiler) as farm, IsolatedDevice(GpuFactory(gpu, compiler, home)) as device:
        yield lambda case: tune(case, families, device, farm, home, seconds)


def tune(
    case: ComparisonCase, families: Sequence[Family[Any]], device: Device, farm: Farm, home: Path, seconds: float
) -> float:  # fmt: skip
    """Keeps the winner of a case in `home`; gives the seconds it took.

    Raises GenError if base is wrong or does not compile.
    """
    start = time.monotonic()
    evidence = {"date": time.strftime("%Y-%m-%d")}
    options = Options(find_search("climb"))
    run([problem_to_tune(case)], families, device, farm, home, budget=seconds, options=options, evidence=evidence)
    return time.monotonic() - start


def problem_to_tune(case: ComparisonCase) -> Problem:
    """The case with no more steps than tell which variant is fastest; its winner is also for more of them."""
    problem, steps = case.problem, case.counts.get("steps", 1)
    if steps <= MAX_TUNED_STEPS:
        return problem
    bounds = (
        Bound("steps", MAX_TUNED_STEPS, steps) if bound.size == "steps" else bound for bound in problem.region.bounds
    )
    region = Region(tuple(bounds))
    return replace(problem, extents={**problem.extents, "steps": MAX_TUNED_STEPS}, region=region)
