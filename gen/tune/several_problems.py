"""A tuning run over several problems: tunes each, and keeps what won."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gen.emit.folder import generate, holding, texts, write_if_changed
from gen.families.base import Family
from gen.paths import lock_of
from gen.store.folder import prefixes_of, remember, variants_of_home, write_down
from gen.store.trials import Problem, Trials
from gen.store.winners import (
    TUNED_FILE,
    Winner,
    all_winners,
    check_unlocked,
    forget_first_calls,
    merged,
    read_winners,
    text_of_winners,
)
from gen.toolchain.farm import Farm
from gen.tune.device import TuningDevice
from gen.tune.one_problem import Options, to_come, tune
from gen.tune.outcome import Interrupted, Outcome, TuningEndedError, displaces, winner_of
from gen.tune.pipeline import Sources

PROBLEM_OVERHEAD_VARIANTS = 150  # variants that could be tried while a problem is made ready and its finals are held
Winners = tuple[Winner, ...]


@dataclass(frozen=True)
class Run:
    """What a run came to: an outcome for each problem begun, and the problems the budget left out.

    Attributes:
        gpus: on how many variants were tried.
    """

    device: str
    driver: str
    outcomes: tuple[Outcome, ...]
    left_out: tuple[Problem, ...]
    seconds: float
    gpus: int = 1

    @property
    def trials(self) -> int:
        """Variants measured in this run or before, over all problems."""
        return sum(len(outcome.trials) for outcome in self.outcomes)


def run(
    problems: Sequence[Problem],
    families: Sequence[Family[Any]],
    device: TuningDevice,
    farm: Farm,
    home: Path,
    *,
    budget: float | None = None,
    options: Options | None = None,
    evidence: Mapping[str, object] | None = None,
    tick: Callable[[Problem, int, int], None] = lambda _problem, _done, _all: None,
    sources: Sources | None = None,
    later: Problem | None = None,
) -> Run:
    """Tunes the problems one after another and writes winners, and their files, into `home` after each.

    Args:
        problems: what to tune.
        families: whose catalogues `home` holds.
        device: where.
        farm: compiles for the device's architecture.
        home: of tuned.json, the trials and the kernels.
        budget: seconds for everything; of what is left each problem gets a share by its variants.
        options: how each problem is searched.
        evidence: what else stands beside each winner.
        tick: told after each trial.
        sources: what earlier runs with this farm compiled; nothing if None.
        later: the problem of a run that comes next: what is idle in this one makes it ready.

    Raises:
        StoreError: what `home` holds is not what gen writes, or is locked.
        CompileError: a base variant does not compile.
        RunError: a base variant is wrong, or the GPU answers no more; then the best variant of the problem at hand is
            kept before.
        KeyboardInterrupt: Ctrl-C; the same.
    """
    start = time.monotonic()
    check_unlocked(home)
    variants_of_home(families, home)  # an edited tuned.json is reported before anything runs
    trials = Trials(home)
    options = options or Options()
    sources = sources or Sources(farm, device.limits.arch)
    ahead = (*problems[1:], *(() if later is None else (later,)))
    sources.plan_ahead(to_come(ahead, device, farm, trials, options, sources))
    outcomes: list[Outcome] = []
    weights = [] if budget is None else weights_of(problems, sources, options)

    def keep(outcome: Outcome, incumbent: str | None) -> None:
        if outcome.winner is not None and (incumbent is None or displaces(outcome, incumbent)):
            _keep(home, families, outcome.problem, winner_of(outcome, device, farm.version, evidence or {}))

    try:
        for place, (problem, upcoming) in enumerate(zip(problems, (*problems[1:], later), strict=True)):
            now = time.monotonic()
            if budget is not None and now > start + budget:
                break
            remember(home, problem.family, problem.spec)
            latest = None if budget is None else start + budget
            deadline = None if latest is None else now + (latest - now) * weights[place] / sum(weights[place:])
            incumbent = _incumbent(home, device, problem)
            try:
                outcome = tune(
                    problem, device, farm, trials, incumbent=incumbent, deadline=deadline, latest=latest,
                    options=options, sources=sources, upcoming=upcoming, tick=partial(tick, problem),
                )  # fmt: skip
            except (Interrupted, TuningEndedError) as ended:
                keep(ended.outcome, incumbent)
                raise
            outcomes.append(outcome)
            keep(outcome, incumbent)
    finally:
        trials.close()
    left_out, seconds = tuple(problems[len(outcomes) :]), time.monotonic() - start
    return Run(device.name, device.driver, tuple(outcomes), left_out, seconds, device.width)


def weights_of(problems: Sequence[Problem], sources: Sources, options: Options) -> list[int]:
    """What each problem takes of a budget: by its variants, and for what comes before and after them."""
    return [PROBLEM_OVERHEAD_VARIANTS + sources.space(one, complete=options.complete).count for one in problems]


def _incumbent(home: Path, device: TuningDevice, problem: Problem) -> str | None:
    place = (problem.spec_name, problem.shape_class, device.name, problem.region)
    return next((winner.variant for winner in all_winners(home) if winner.key == place), None)


def _keep(home: Path, families: Sequence[Family[Any]], problem: Problem, winner: Winner) -> None:
    keep(home, families, lambda old: merged(old, [winner]), problem)


def keep(
    home: Path, families: Sequence[Family[Any]], change: Callable[[Winners], Winners], problem: Problem | None = None
) -> None:
    """Changes the winners in `home`, and writes their files; with the spec of a problem that one of them is for.

    Raises StoreError where `home` is locked.
    """
    with holding(lock_of(home)):  # another run may keep a winner of its own
        check_unlocked(home)
        if problem is not None:  # that run may have forgotten a spec that no winner was for
            write_down(home, problem.family, problem.spec)
        winners = change(read_winners(home))
        write_if_changed(home / TUNED_FILE, text_of_winners(winners))
        forget_first_calls(home, winners)
        generate(home, texts(variants_of_home(families, home)), prefixes_of(families))
