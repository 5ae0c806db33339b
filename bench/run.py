"""A run over many cases: each is tuned, if that was asked for, and compared, in the one process that drives the GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.gpu import BenchGpu
from bench.stencils import checks_of, steps_of
from gen.compare.case import ComparisonCase
from gen.compare.comparison import Comparison
from gen.compare.peers.base import Peer
from gen.compare.process import Comparisons
from gen.compare.row import FAILED, OURS, Row, said
from gen.errors import DeviceError, GenError, MissingToolError, StoreError
from gen.families.base import Family
from gen.families.regions import Bound, Region
from gen.gpu.timing import Protocol
from gen.paths import cache_home
from gen.store.trials import Problem
from gen.toolchain.farm import CompileFarm, Farm
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.device import TuningDevice
from gen.tune.one_problem import Options
from gen.tune.outcome import TuningEndedError
from gen.tune.search import Climb
from gen.tune.several_problems import run
from gen.workers import Report

if TYPE_CHECKING:
    from gen.tune.gpu_session import CalibratedGpu

MAX_TUNED_STEPS = 48  # of a case as it is tuned: a call of 1,000 tells no more, and takes all of the time

Tune = Callable[[ComparisonCase], float]
"""Tunes a case, and gives the seconds that took."""


@dataclass
class Bench:
    """A run.

    Attributes:
        comparisons: on the GPU.
        left_out: cases that the budget did not reach, or that came after the GPU was lost.
        lost: why the run ended early.
    """

    comparisons: Comparisons
    left_out: list[ComparisonCase] = field(default_factory=list)
    lost: DeviceError | None = None

    def rows(
        self, cases: Sequence[ComparisonCase], budget: float | None = None, tune: Tune | None = None
    ) -> Iterator[tuple[ComparisonCase, list[Row]]]:
        """The rows of one case after another, each tuned first; what the budget, in seconds, bars is `left_out`.

        Where the GPU is lost, and does not come back, the rows so far are the last.
        """
        start, longest = time.monotonic(), 0.0
        for place, case in enumerate(cases):
            begun = time.monotonic()
            if budget is not None and begun - start + longest > budget:
                self.left_out += cases[place:]
                break
            found = self._of(case, tune)
            if found:
                yield case, found
            if self.lost is not None:
                self.left_out += cases[place + bool(found) :]
                break
            longest = max(longest, time.monotonic() - begun)

    def _of(self, case: ComparisonCase, tune: Tune | None) -> list[Row]:
        """The rows of a case; only why, if its base is wrong or does not compile. Raises what is no fault of a case."""
        try:
            seconds = 0.0 if tune is None else tune(case)
        except (StoreError, MissingToolError):
            raise
        except TuningEndedError as error:
            self._end(f"the GPU was lost while {case.name} was tuned", error)
            return []
        except GenError as error:
            row = Row(case.family.name, case.name, OURS, Protocol.COLD.value)
            return [replace(row, note=f"{FAILED}{said(error)}")]
        rows = self.comparisons.rows(case, seconds)
        if self.comparisons.lost is not None:
            self._end(f"no process could begin any more on {case.name}", self.comparisons.lost)
        return rows

    def _end(self, why: str, error: GenError) -> None:
        again = "Leave the peer that was at work out, and let --missing measure the rest"
        self.lost = DeviceError("The benchmark", f"ended early: {why}", error, next_step=again)


def compare_public(
    bench: CalibratedGpu, report: Report, case: ComparisonCase, peers: Sequence[Peer], caches: Protocol, home: Path,
    tuned_seconds: float,
) -> None:  # fmt: skip
    """A job of the process that drives the GPU: one case, the cells of stencils checked at full size."""
    gpu = BenchGpu(bench, Nvrtc(cache_home(home)), cache_home(home))
    Comparison(gpu, case, caches, report, checks_of).run(peers, home, tuned_seconds)


@contextmanager
def tuning(device: TuningDevice, families: Sequence[Family[Any]], home: Path, seconds: float) -> Iterator[Tune]:
    """Gives what tunes a case for so long, and says how long it took."""
    with CompileFarm(Nvrtc(cache_home(home))) as farm:
        yield lambda case: tune(case, families, device, farm, home, seconds)


def tune(
    case: ComparisonCase, families: Sequence[Family[Any]], device: TuningDevice, farm: Farm, home: Path, seconds: float
) -> float:  # fmt: skip
    """Keeps the winner of a case in `home`; gives the seconds it took.

    Raises GenError if base is wrong or does not compile.
    """
    start = time.monotonic()
    evidence = {"date": time.strftime("%Y-%m-%d")}
    options = Options(Climb)
    run([problem_to_tune(case)], families, device, farm, home, budget=seconds, options=options, evidence=evidence)
    return time.monotonic() - start


def problem_to_tune(case: ComparisonCase) -> Problem:
    """The case with no more steps than tell which variant is fastest; its winner is also for more of them."""
    problem, steps = case.problem, steps_of(case)
    if steps <= MAX_TUNED_STEPS:
        return problem
    bounds = {bound.size: bound for bound in problem.region.bounds}
    bounds["steps"] = Bound("steps", MAX_TUNED_STEPS, steps)
    region = Region(tuple(bounds.values()))
    return replace(problem, extents={**problem.extents, "steps": MAX_TUNED_STEPS}, region=region)
