"""Measures the regret of shape classes on a device, and splits those where it is too much."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gen.families.base import Family
from gen.gpu.trial import Device, Problem, Trial
from gen.store.trials import Trials
from gen.store.tuned import Winner, merged, read_winners
from gen.toolchain.farm import Farm
from gen.tune.choose import median_interval, paired_ratio
from gen.tune.contest import after, contest
from gen.tune.outcome import Outcome, winner_of
from gen.tune.race import Finals, noise
from gen.tune.regret import MOST_REGRET, Part, Point, probes, split, told, worst
from gen.tune.run import keep
from gen.tune.sources import Sources
from gen.tune.tuner import Options, tune

MEETING_SHARE = 0.2  # of a class's time, for times of all that won beside each other
Tune = Callable[[Problem, str, float | None], Outcome]
"""Tunes a problem, given the winner of its class and a deadline of `time.monotonic()`."""
Meet = Callable[[Problem, Sequence[str], float | None], tuple[tuple[Trial, ...], Finals]]
"""Times variants on a problem in turns, given their names and a deadline."""


@dataclass(frozen=True)
class Regret:
    """What a class's winner loses on sizes that were not tuned, and the parts that lose too much.

    Attributes:
        outcome: of the problem that stands for the class.
        winner: the variant that won the class, by name.
        points: every problem of the class that was measured, that one first.
        parts: the class, cut until no part loses more than 5 %.
        outcomes: of the points, in their order.
        left_out: problems that the time did not reach.
    """

    outcome: Outcome
    winner: str
    points: tuple[Point, ...]
    parts: tuple[Part, ...]
    outcomes: tuple[Outcome, ...]
    left_out: tuple[Problem, ...]

    @property
    def before(self) -> float:
        """The winner's regret where it has most; 0 where nothing was measured."""
        return worst(self.winner, self.points) if self.points else 0.0

    @property
    def after(self) -> float:
        """The most regret of any part's variant."""
        return max((part.regret for part in self.parts), default=0.0)

    @property
    def partly(self) -> int:
        """Problems on which not every variant was tried: there the regret may be more."""
        return sum(one.left_out > 0 for one in self.outcomes)

    @property
    def special(self) -> tuple[Part, ...]:
        """The parts that get another variant than the class."""
        return tuple(part for part in self.parts if part.variant != self.winner)


def regret_of(
    outcome: Outcome, winner: str, probe: Tune, meet: Meet, deadline: float | None = None, so_far: Sequence[str] = ()
) -> Regret:
    """Tunes other sizes of an outcome's shape class, and compares the class's winner with the fastest there.

    All is told from times that were taken in turns. Where the winner lags, all that won a size meet on every size.

    Args:
        outcome: of the problem that stands for the class.
        winner: of the class, by name.
        probe: tunes one of the other sizes; the class's winner is always timed against the fastest there.
        meet: times those that won.
        deadline: of `time.monotonic()`; sizes share equally what is left but for a part, which is for meeting.
        so_far: variants that parts of the class have got before.
    """
    wanted = probes(outcome.problem)
    outcomes = [outcome]
    until = None if deadline is None else deadline - MEETING_SHARE * max(deadline - time.monotonic(), 0)
    for place, problem in enumerate(wanted):
        now = time.monotonic()
        if until is not None and now >= until:
            break
        share = None if until is None else now + (until - now) / (len(wanted) - place)
        outcomes.append(probe(problem, winner, share))
    names = list(dict.fromkeys([winner, *(one.winner.variant.name for one in outcomes if one.winner), *so_far]))
    outcomes = [one if _point(one).tells_of(winner) else _met(one, names, meet, deadline) for one in outcomes]
    known = [point for point in map(_point, outcomes) if point.tells_of(winner)]
    if known and worst(winner, known) > MOST_REGRET:
        outcomes = [_met(one, names, meet, deadline) for one in outcomes]
    timed = [one for one in outcomes if (point := _point(one)).times_us and point.tells_of(winner)]
    points = tuple(map(_point, timed))
    missed = tuple(problem for problem in wanted if problem not in [point.problem for point in points])
    parts = split(points, winner, outcome.problem.region, so_far) if points else ()
    return Regret(outcome, winner, points, parts, tuple(timed), missed)


def _point(outcome: Outcome) -> Point:
    return Point.of(outcome.problem, outcome.trials, outcome.rounds_us if outcome.finals is not None else {})


def _met(outcome: Outcome, names: Sequence[str], meet: Meet, deadline: float | None) -> Outcome:
    """An outcome in which all of these were timed in turns, unless that is known, or there is no time."""
    point = _point(outcome)
    if all(point.tells_of(name) for name in names) or (deadline is not None and time.monotonic() >= deadline):
        return outcome
    return after(outcome, *meet(outcome.problem, names, deadline))


def winners_of(
    regret: Regret, stands: Winner, device: Device, compiler: str, evidence: Mapping[str, object]
) -> tuple[Winner, ...]:
    """The lines of tuned.json: the one of the class's winner, with its regret, and one for each part that gets another.

    What stands of the winner stays: that other sizes were looked at is no reason to give it up.
    """
    lost = {"regret": _told(regret.winner, regret.points), "split_regret": told(regret.after)}
    found = [replace(stands, evidence={**stands.evidence, **lost})]
    for part in regret.special:
        problems = [point.problem for point in part.points if part.variant in point.times_us]
        outcomes = [one for one in regret.outcomes if one.problem in problems]
        if not outcomes:  # nothing was right there
            continue
        outcome = _won_by(max(outcomes, key=lambda one: one.problem.sizes["cells"]), part)
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

    Outcomes of single shapes, and classes of which `home` holds no winner, are passed over. Classes share the time
    equally. For the arguments see `gen.tune.run.run`.
    """
    found = []
    trials, sources = Trials(home), Sources(farm, device.limits.arch)

    def probe(problem: Problem, winner: str, until: float | None) -> Outcome:
        return tune(
            problem, device, farm, trials, previous=winner, deadline=until, options=options, sources=sources,
            tick=partial(tick, problem),
        )  # fmt: skip

    def meet(problem: Problem, names: Sequence[str], until: float | None) -> tuple[tuple[Trial, ...], Finals]:
        return contest(problem, names, device, sources, until)

    stand = {winner.place: winner for winner in read_winners(home)}
    classes = [one for one in outcomes if one.place(device) in stand and not one.problem.region.one]
    try:
        for place, outcome in enumerate(classes):
            now = time.monotonic()
            share = None if deadline is None else now + max(deadline - now, 0) / (len(classes) - place)
            stands = stand[outcome.place(device)]
            so_far = [one.variant for one in stand.values() if _is_part(one, stands)]
            regret = regret_of(outcome, stands.variant, probe, meet, share, so_far)
            found.append(regret)
            if len(regret.points) > 1:
                new = winners_of(regret, stands, device, farm.version, evidence or {})
                keep(home, families, partial(replaced, new=new))
    finally:
        trials.close()
    return tuple(found)


def replaced(old: Iterable[Winner], new: Sequence[Winner]) -> tuple[Winner, ...]:
    """All winners, those of a class's parts replaced by the new ones: the first of `new` is the class's."""
    return merged([winner for winner in old if not _is_part(winner, new[0])], new)


def _is_part(winner: Winner, whole: Winner) -> bool:
    """Whether a winner is for a part of what another one is for, and for more than a single shape."""
    mine = (winner.spec, winner.shape, winner.device) == (whole.spec, whole.shape, whole.device)
    return mine and bool(winner.region.bounds) and not winner.region.one and winner.region.lies_in(whole.region)


def _told(variant: str, points: Sequence[Point]) -> dict[str, float | None]:
    """A variant's regret on each problem."""
    return {str(point.problem): told(point.regret(variant)) for point in points}


def _won_by(outcome: Outcome, part: Part) -> Outcome:
    """The outcome on a part's problem as if the part's variant had won there: it did, or lost by 5 % at most."""
    trial = next(trial for trial in outcome.trials if trial.variant.name == part.variant)
    name = part.variant if part.variant in outcome.rounds_us else trial.same_as
    times, base = outcome.rounds_us[name], outcome.base
    interval = median_interval(times)
    return replace(
        outcome, problem=replace(outcome.problem, region=part.region), winner=trial, median_us=interval.center,
        of_limit=outcome.floor_us / interval.center, interval=interval, noise=noise(times) if len(times) > 1 else None,
        against_base=paired_ratio(times, outcome.rounds_us[base]) if base in outcome.rounds_us else None,
    )  # fmt: skip
