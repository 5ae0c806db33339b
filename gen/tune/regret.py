"""How well a shape class's winner does on sizes that were not tuned, and where the class should be split.

The regret of a variant on a problem is how much longer it takes than the fastest there: 0.05 is 5 %.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import inf, isqrt
from pathlib import Path
from typing import Any

from gen.errors import GenError
from gen.families.base import WIDEST, Extents, Family
from gen.families.regions import ALIGNMENT, WHOLE, Region
from gen.store.trials import Problem, Trial, Trials
from gen.store.tuned import Winner, merged, read_winners
from gen.toolchain.farm import Farm
from gen.tune.attempts import Sources
from gen.tune.choose import STAY_RATIO, leader_of, median_interval, midmean_interval, over, paired_ratio
from gen.tune.device import TuningDevice
from gen.tune.outcome import Outcome, winner_of
from gen.tune.race import Finals, noise
from gen.tune.run import keep
from gen.tune.tuner import Options, time_variants, tune, with_rounds

MAX_REGRET = 0.05  # a class whose winner has more is split
STAY_REGRET = STAY_RATIO - 1  # within which the variant that a part had before stays
SHRINK_DIVISORS = (4, 16, 128)  # of the elements of the representative: the smaller problems that are tuned
SKEW_FACTOR = 64  # how much longer one axis gets, and another shorter


def probes(problem: Problem) -> tuple[Problem, ...]:
    """Problems of the shape class of a representative, at sizes that were not tuned.

    Smaller ones; one whose axes are each one shorter, so that rows begin at odd addresses; longer and wider ones; and
    one whose arrays are aligned no better than their elements.
    """
    spec, extents = problem.spec, problem.extents
    axes = [axis for axis in _axes(problem) if extents[axis] > 1]
    changed = [
        {axis: max(1, round(extents[axis] / part ** (1 / len(axes)))) for axis in axes} for part in SHRINK_DIVISORS
    ]
    changed.append({axis: extents[axis] - 1 for axis in axes})
    if len(axes) > 1:
        for longer, shorter in ((axes[0], axes[-1]), (axes[-1], axes[0])):
            changed.append({longer: extents[longer] * SKEW_FACTOR, shorter: max(1, extents[shorter] // SKEW_FACTOR)})
    found = [replace(problem, extents=sizes) for sizes in (_with(problem, change) for change in changed) if sizes]
    least = max(operand.dtype.size & -operand.dtype.size for operand in spec.operands if operand.role != "number")
    if least < WIDEST:
        found.append(replace(problem, alignment=least))
    of_class = [one for one in found if one.shape_class == problem.shape_class]
    return tuple({str(one): one for one in of_class if one != problem}.values())


@dataclass(frozen=True)
class Point:
    """A problem on which several variants were timed in the same rounds.

    Attributes:
        sizes: all that may bound a region.
        times_us: by variant, of the same rounds; without variants that were not right there, or not timed so.
        unable: variants that were tried and cannot be used there.
    """

    problem: Problem
    sizes: Mapping[str, int]
    times_us: Mapping[str, float]
    unable: frozenset[str] = frozenset()

    @classmethod
    def of(cls, problem: Problem, trials: Sequence[Trial], rounds_us: Mapping[str, Sequence[float]]) -> Point:
        """From all trials of a problem, and the rounds in which some of them were timed.

        The samples of a trial are not compared with those times: the least of many is too low by luck. Nor are times
        of launches that are not all that a caller waits for.
        """
        times: dict[str, float] = {}
        leader = leader_of(rounds_us) if rounds_us else ""
        for trial in trials:
            timed = next((name for name in (trial.variant.name, trial.same_as) if rounds_us.get(name)), None)
            if trial.status == "ok" and trial.is_full_time and timed is not None:
                center = midmean_interval(rounds_us[leader]).center
                times[trial.variant.name] = center * over(rounds_us[timed], rounds_us[leader]).center
        tried = [one for one in trials if one.status not in ("ok", "pruned") and not one.outside]
        unable = frozenset(trial.variant.name for trial in tried)
        return cls(problem, problem.sizes, times, unable)

    def tells_of(self, variant: str) -> bool:
        """Whether a variant was timed there beside others, or is known to be of no use."""
        return variant in self.times_us or variant in self.unable

    def regret(self, variant: str) -> float:
        """How much longer a variant takes than the fastest; infinite for one without a time."""
        return self.times_us[variant] / min(self.times_us.values()) - 1 if variant in self.times_us else inf


@dataclass(frozen=True)
class Part:
    """A part of a shape class, and the variant that does best there.

    Attributes:
        points: the problems of it that were measured.
        variant: has the least regret where it has most.
        regret: the variant's on the point where it has most.
    """

    region: Region
    points: tuple[Point, ...]
    variant: str
    regret: float


def worst(variant: str, points: Sequence[Point]) -> float:
    """A variant's regret on the point where it has most."""
    return max(point.regret(variant) for point in points)


def told(regret: float) -> float | None:
    """A regret as JSON has it: None where the variant cannot run."""
    return None if regret == inf else round(regret, 4)


def split(
    points: Sequence[Point], winner: str, region: Region = WHOLE, incumbents: Collection[str] = ()
) -> tuple[Part, ...]:
    """Cuts a shape class until no part's variant has more than 5 % regret on any of its points.

    Every cut is by one size, at a power of two between two measured problems where there is one. The winner of the
    class keeps the parts where it does well, and all of a class that nothing can divide.

    Args:
        points: every problem of the class that was measured, that of the winner among them.
        winner: the variant that won the class.
        region: the part of the class that holds all points.
        incumbents: variants that parts of the class have got before; they stay unless another is over 1 % better.
    """
    cuts = [(size, at) for size in points[0].sizes for at in _places(size, sorted({one.sizes[size] for one in points}))]
    if worst(winner, points) <= MAX_REGRET or not cuts:
        return (Part(region, tuple(points), winner, worst(winner, points)),)
    size, at = min(cuts, key=lambda cut: _cost(points, winner, incumbents, *cut))
    found: list[Part] = []
    for part, side in zip(region.cut(size, at), _sides(points, size, at), strict=True):
        best = _best(side, winner, incumbents)
        regret = worst(best, side)
        found += (
            [Part(part, tuple(side), best, regret)] if regret <= MAX_REGRET else split(side, winner, part, incumbents)
        )
    return tuple(found)


def _best(points: Sequence[Point], winner: str, incumbents: Collection[str]) -> str:
    """The winner, if it does well on all points; else the variant of the least regret where it has most."""
    if worst(winner, points) <= MAX_REGRET:
        return winner
    names = {name for point in points for name in point.times_us}
    best = min(sorted(names), key=lambda name: worst(name, points), default=winner)
    stays = [
        name
        for name in sorted(names.intersection(incumbents))
        if worst(name, points) <= worst(best, points) + STAY_REGRET
    ]
    return min(stays, key=lambda name: worst(name, points), default=best)


def _places(size: str, values: Sequence[int]) -> list[int]:
    """Where to cut between values: the first that belongs above."""
    if size == ALIGNMENT:
        return list(values[1:])  # what lies between was not measured, and may be as slow as the lower
    return [_between(low, high) for low, high in pairwise(values)]


def _between(low: int, high: int) -> int:
    """One over the power of two nearest to the middle of two sizes, as a factor; or the upper of them."""
    power = 1 << max(isqrt(low * high).bit_length() - 1, 0)
    for found in (power, 2 * power):
        if low <= found < high:
            return found + 1
    return high


def _sides(points: Sequence[Point], size: str, at: int) -> tuple[list[Point], list[Point]]:
    return [point for point in points if point.sizes[size] < at], [point for point in points if point.sizes[size] >= at]


def _cost(
    points: Sequence[Point], winner: str, incumbents: Collection[str], size: str, at: int
) -> tuple[int, float, int]:
    """How good a cut is, the least best: parts that need more cuts, the regret that stays, the points lost."""
    sides = _sides(points, size, at)
    chosen = [_best(side, winner, incumbents) for side in sides]
    regrets = [worst(name, side) for name, side in zip(chosen, sides, strict=True)]
    lost = sum(len(side) for name, side in zip(chosen, sides, strict=True) if name != winner)
    # Regrets under the limit are as good as none: then the class's winner should keep as much as it can.
    return sum(regret > MAX_REGRET for regret in regrets), max(0.0, max(regrets) - MAX_REGRET), lost


def _axes(problem: Problem) -> list[str]:
    """The axes of all operands by name, each once, slowest first."""
    found = [axis for operand in problem.spec.operands for axis in operand.axes if isinstance(axis, str)]
    return [axis for axis in dict.fromkeys(found) if axis in problem.extents]


def _with(problem: Problem, change: Mapping[str, int]) -> Extents | None:
    """Extents with other axes and dense rows; None where the spec has no such problem."""
    extents = {**problem.extents, **change}
    for operand in problem.spec.operands:
        if operand.pitch:
            last = operand.axes[-1]
            extents[operand.pitch] = last if isinstance(last, int) else extents[last]
    family, spec = problem.family, problem.spec
    try:
        layouts = family.layouts(spec, extents)
        measured = family.extents(spec, layouts)
    except GenError:
        return None
    names = {*_axes(problem), *(operand.pitch for operand in spec.operands if operand.pitch)}
    if any(extents[name] != measured.get(name) for name in names):
        return None
    stated = family.runtime_parameters(spec)
    return {**extents, **{name: value for name, value in measured.items() if name not in stated}}


COMPARISON_FRACTION = 0.2  # of a class's time, for timing all that won some size in the same rounds
Tune = Callable[[Problem, str, float | None], Outcome]
"""Tunes a problem, given the winner of its class and a deadline of `time.monotonic()`."""
TimeTogether = Callable[[Problem, Sequence[str], float | None], tuple[tuple[Trial, ...], Finals]]
"""Times variants on a problem in the same rounds, given their names and a deadline."""


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
    outcome: Outcome,
    winner: str,
    probe: Tune,
    time_together: TimeTogether,
    deadline: float | None = None,
    incumbents: Sequence[str] = (),
) -> Regret:
    """Tunes other sizes of an outcome's shape class, and compares the class's winner with the fastest there.

    Regrets come from times of the same rounds. Where the winner has too much, all that won a size are timed together on
    every size.

    Args:
        outcome: of the problem that stands for the class.
        winner: of the class, by name.
        probe: tunes one of the other sizes; the class's winner is always timed against the fastest there.
        time_together: times variants on a problem in the same rounds.
        deadline: of `time.monotonic()`; sizes share equally what is left, but for COMPARISON_FRACTION of it.
        incumbents: variants that parts of the class have got before.
    """
    wanted = probes(outcome.problem)
    outcomes = [outcome]
    until = None if deadline is None else deadline - COMPARISON_FRACTION * max(deadline - time.monotonic(), 0)
    for place, problem in enumerate(wanted):
        now = time.monotonic()
        if until is not None and now >= until:
            break
        share = None if until is None else now + (until - now) / (len(wanted) - place)
        outcomes.append(probe(problem, winner, share))
    names = list(dict.fromkeys([winner, *(one.winner.variant.name for one in outcomes if one.winner), *incumbents]))
    outcomes = [
        one if _point(one).tells_of(winner) else _timed_together(one, names, time_together, deadline)
        for one in outcomes
    ]
    known = [point for point in map(_point, outcomes) if point.tells_of(winner)]
    if known and worst(winner, known) > MAX_REGRET:
        outcomes = [_timed_together(one, names, time_together, deadline) for one in outcomes]
    timed = [one for one in outcomes if (point := _point(one)).times_us and point.tells_of(winner)]
    points = tuple(map(_point, timed))
    missed = tuple(problem for problem in wanted if problem not in [point.problem for point in points])
    parts = split(points, winner, outcome.problem.region, incumbents) if points else ()
    return Regret(outcome, winner, points, parts, tuple(timed), missed)


def _point(outcome: Outcome) -> Point:
    return Point.of(outcome.problem, outcome.trials, outcome.rounds_us if outcome.finals is not None else {})


def _timed_together(
    outcome: Outcome, names: Sequence[str], time_together: TimeTogether, deadline: float | None
) -> Outcome:
    """The outcome with times of all these variants from the same rounds, unless it has them or there is no time."""
    point = _point(outcome)
    if all(point.tells_of(name) for name in names) or (deadline is not None and time.monotonic() >= deadline):
        return outcome
    return with_rounds(outcome, *time_together(outcome.problem, names, deadline))


def winners_of(
    regret: Regret, stands: Winner, device: TuningDevice, compiler: str, evidence: Mapping[str, object]
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
    device: TuningDevice,
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
            problem, device, farm, trials, incumbent=winner, deadline=until, options=options, sources=sources,
            tick=partial(tick, problem),
        )  # fmt: skip

    def time_together(problem: Problem, names: Sequence[str], until: float | None) -> tuple[tuple[Trial, ...], Finals]:
        return time_variants(problem, names, device, sources, until)

    stand = {winner.key: winner for winner in read_winners(home)}
    classes = [one for one in outcomes if one.winner_key(device) in stand and not one.problem.region.one]
    try:
        for place, outcome in enumerate(classes):
            now = time.monotonic()
            share = None if deadline is None else now + max(deadline - now, 0) / (len(classes) - place)
            stands = stand[outcome.winner_key(device)]
            incumbents = [one.variant for one in stand.values() if _is_part(one, stands)]
            regret = regret_of(outcome, stands.variant, probe, time_together, share, incumbents)
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
