"""Measures the regret of shape classes on a device, and splits those where it is too much."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gen.families.base import Family
from gen.gpu.trial import Device, Problem
from gen.store.trials import Trials
from gen.store.tuned import Winner, merged
from gen.toolchain.farm import Farm
from gen.tune.choose import median_interval
from gen.tune.outcome import Outcome, winner_of
from gen.tune.regret import Part, Point, probes, split, worst
from gen.tune.run import keep
from gen.tune.sources import Sources
from gen.tune.tuner import Options, tune

Tune = Callable[[Problem, str, float | None], Outcome]
"""Tunes a problem, given the winner of its class and a deadline of `time.monotonic()`."""


@dataclass(frozen=True)
class Regret:
    """What a class's winner loses on sizes that were not tuned, and the parts that lose too much.

    Attributes:
        outcome: of the problem that stands for the class.
        points: every problem of the class that was measured, that one first.
        parts: the class, cut until no part loses more than 5 %.
        outcomes: of the points, in their order.
        left_out: problems that the time did not reach.
    """

    outcome: Outcome
    points: tuple[Point, ...]
    parts: tuple[Part, ...]
    outcomes: tuple[Outcome, ...]
    left_out: tuple[Problem, ...]

    @property
    def winner(self) -> str:
        """The variant that won the class."""
        assert self.outcome.winner is not None
        return self.outcome.winner.variant.name

    @property
    def before(self) -> float:
        """The winner's regret where it has most."""
        return worst(self.winner, self.points)

    @property
    def after(self) -> float:
        """The most regret of any part's variant."""
        return max(part.regret for part in self.parts)

    @property
    def partly(self) -> int:
        """Problems on which not every variant was tried: there the regret may be more."""
        return sum(one.left_out > 0 for one in self.outcomes)

    @property
    def special(self) -> tuple[Part, ...]:
        """The parts that get another variant than the class."""
        return tuple(part for part in self.parts if part.variant != self.winner)


def regret_of(outcome: Outcome, probe: Tune, deadline: float | None = None) -> Regret:
    """Tunes other sizes of an outcome's shape class, and compares the class's winner with the fastest there.

    Args:
        outcome: of the problem that stands for the class; it has a winner.
        probe: tunes one of the other sizes; the class's winner is always timed against the fastest there.
        deadline: of `time.monotonic()`; sizes share what is left equally.
    """
    assert outcome.winner is not None
    winner, wanted = outcome.winner.variant.name, probes(outcome.problem)
    outcomes = [outcome]
    for place, problem in enumerate(wanted):
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            break
        share = None if deadline is None else now + (deadline - now) / (len(wanted) - place)
        outcomes.append(probe(problem, winner, share))
    every = [(Point.of(one.problem, one.trials, one.rounds_us), one) for one in outcomes]
    timed = [(point, one) for point, one in every if point.times_us and point.tells_of(winner)]
    points, kept = tuple(point for point, _ in timed), tuple(one for _, one in timed)
    missed = tuple(problem for problem in wanted if problem not in [point.problem for point in points])
    return Regret(outcome, points, split(points, winner, outcome.problem.region), kept, missed)


def winners_of(regret: Regret, device: Device, compiler: str, evidence: Mapping[str, object]) -> tuple[Winner, ...]:
    """The lines of tuned.json: the class's winner with its regret, and one for each part that gets another variant."""
    told = {"regret": _told(regret.winner, regret.points), "split_regret": round(regret.after, 4)}
    found = [winner_of(regret.outcome, device, compiler, {**evidence, **told})]
    for part in regret.special:
        outcomes = [one for one in regret.outcomes if one.problem in [point.problem for point in part.points]]
        stand_in = max(outcomes, key=lambda one: one.problem.sizes["cells"])
        outcome = _won_by(stand_in, part)
        found.append(winner_of(outcome, device, compiler, {**evidence, "regret": _told(part.variant, part.points)}))
    return tuple(found)


def share_of_tuning(problems: Iterable[Problem]) -> float:
    """The part of a run's time that is for the problems themselves: any other size that is probed gets as much."""
    wanted = list(problems)
    others = sum(len(probes(problem)) for problem in wanted if not problem.region.one)
    return len(wanted) / (len(wanted) + others) if wanted else 1.0


def regrets(
    outcomes: Iterable[Outcome],
    families: Sequence[Family[Any]],
    device: Device,
    farm: Farm,
    home: Path,
    *,
    deadline: float | None = None,
    options: Options | None = None,
    evidence: Mapping[str, object] | None = None,
    tick: Callable[[Problem, int, int], None] = lambda _problem, _done, _all: None,
) -> tuple[Regret, ...]:
    """Measures the regret of every shape class among the outcomes, and keeps winners for what is split off in `home`.

    Outcomes of single shapes, and those without a winner, are passed over. Classes share the time equally. For the
    arguments see `gen.tune.run.run`.
    """
    found = []
    trials, sources = Trials(home), Sources(farm, device.limits.arch)

    def probe(problem: Problem, winner: str, until: float | None) -> Outcome:
        return tune(
            problem, device, farm, trials, previous=winner, deadline=until, options=options, sources=sources,
            tick=partial(tick, problem),
        )  # fmt: skip

    classes = [one for one in outcomes if one.winner is not None and not one.problem.region.one]
    try:
        for place, outcome in enumerate(classes):
            now = time.monotonic()
            share = None if deadline is None else now + max(deadline - now, 0) / (len(classes) - place)
            regret = regret_of(outcome, probe, share)
            found.append(regret)
            if len(regret.points) > 1:
                new = winners_of(regret, device, farm.version, evidence or {})
                keep(home, families, partial(replaced, new=new))
    finally:
        trials.close()
    return tuple(found)


def replaced(old: Iterable[Winner], new: Sequence[Winner]) -> tuple[Winner, ...]:
    """All winners, those of a class's parts replaced by the new ones: the first of `new` is the class's."""
    first = new[0]

    def stale(winner: Winner) -> bool:
        mine = (winner.spec, winner.shape, winner.device) == (first.spec, first.shape, first.device)
        return mine and bool(winner.region.bounds) and not winner.region.one

    return merged([winner for winner in old if not stale(winner)], new)


def _told(variant: str, points: Sequence[Point]) -> dict[str, float]:
    """A variant's regret on each problem."""
    return {str(point.problem): round(point.regret(variant), 4) for point in points}


def _won_by(outcome: Outcome, part: Part) -> Outcome:
    """The outcome on a part's problem as if the part's variant had won there: it did, or lost by 5 % at most."""
    trial = next(trial for trial in outcome.trials if trial.variant.name == part.variant)
    times = outcome.rounds_us.get(part.variant) or outcome.rounds_us.get(trial.same_as) or trial.times_us
    interval = median_interval(times)
    problem = replace(outcome.problem, region=part.region)
    if outcome.winner is not None and outcome.winner.variant.name == part.variant:
        return replace(outcome, problem=problem)
    return replace(
        outcome, problem=problem, winner=trial, median_us=interval.center, of_limit=outcome.floor_us / interval.center,
        against_base=None, rounds_us={**outcome.rounds_us, part.variant: times}, interval=interval, noise=None,
    )  # fmt: skip
