"""How well a shape class's winner does on sizes that were not tuned, and where the class should be split.

The regret of a variant on a problem is how much longer it takes than the fastest there: 0.05 is 5 %.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isqrt

from gen.errors import GenError
from gen.families.base import WIDEST, Extents
from gen.families.regions import ALIGNMENT, WHOLE, Region
from gen.gpu.trial import Problem, Trial
from gen.tune.choose import MARGIN, leader_of, midmean_interval, over

MOST_REGRET = 0.05  # a class whose winner has more is split
MORE = MARGIN - 1  # regret that is no reason to give up what stands
SHRINK = (4, 16, 128)  # the parts of the representative that are probed
SKEW = 64  # how much longer one axis gets, and another shorter


def probes(problem: Problem) -> tuple[Problem, ...]:
    """Problems of the same shape class that nobody tuned for, from sizes that stand for the class.

    Smaller ones; one whose axes are each one shorter, and so rows start anywhere; longer and wider ones; and arrays
    that are aligned no better than their elements.
    """
    spec, extents = problem.spec, problem.extents
    axes = [axis for axis in _axes(problem) if extents[axis] > 1]
    changed = [{axis: max(1, round(extents[axis] / part ** (1 / len(axes)))) for axis in axes} for part in SHRINK]
    changed.append({axis: extents[axis] - 1 for axis in axes})
    if len(axes) > 1:
        for longer, shorter in ((axes[0], axes[-1]), (axes[-1], axes[0])):
            changed.append({longer: extents[longer] * SKEW, shorter: max(1, extents[shorter] // SKEW)})
    found = [replace(problem, extents=sizes) for sizes in (_with(problem, change) for change in changed) if sizes]
    least = max(operand.dtype.size & -operand.dtype.size for operand in spec.operands if operand.role != "number")
    if least < WIDEST:
        found.append(replace(problem, alignment=least))
    of_class = [one for one in found if one.shape_class == problem.shape_class]
    return tuple({str(one): one for one in of_class if one != problem}.values())


@dataclass(frozen=True)
class Point:
    """A problem on which several variants were timed in turns.

    Attributes:
        sizes: all that may bound a region.
        times_us: by variant, of the same turns; one that is missing was not right there, or not among those timed so.
        unable: variants that were tried and cannot be used there.
    """

    problem: Problem
    sizes: Mapping[str, int]
    times_us: Mapping[str, float]
    unable: frozenset[str] = frozenset()

    @classmethod
    def of(cls, problem: Problem, trials: Sequence[Trial], rounds_us: Mapping[str, Sequence[float]]) -> Point:
        """From all trials of a problem and the turns that some of them took beside each other.

        The few samples of a trial are not held against those: a variant that only they flatter is no fastest. Nor are
        times of less than what a caller pays.
        """
        times: dict[str, float] = {}
        leader = leader_of(rounds_us) if rounds_us else ""
        for trial in trials:
            timed = next((name for name in (trial.variant.name, trial.same_as) if rounds_us.get(name)), None)
            if trial.status == "ok" and trial.whole and timed is not None:
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
    points: Sequence[Point], winner: str, region: Region = WHOLE, so_far: Collection[str] = ()
) -> tuple[Part, ...]:
    """Cuts a shape class until no part's variant has more than 5 % regret on any of its points.

    Every cut is by one size, at a power of two between two measured problems where there is one. The winner of the
    class keeps the parts where it does well, and all of a class that nothing can divide.

    Args:
        points: every problem of the class that was measured, that of the winner among them.
        winner: the variant that won the class.
        region: the part of the class that holds all points.
        so_far: variants that parts of the class have got before; they stay unless another is over 1 % better.
    """
    cuts = [(size, at) for size in points[0].sizes for at in _places(size, sorted({one.sizes[size] for one in points}))]
    if worst(winner, points) <= MOST_REGRET or not cuts:
        return (Part(region, tuple(points), winner, worst(winner, points)),)
    size, at = min(cuts, key=lambda cut: _cost(points, winner, so_far, *cut))
    found: list[Part] = []
    for part, side in zip(region.cut(size, at), _sides(points, size, at), strict=True):
        best = _best(side, winner, so_far)
        regret = worst(best, side)
        found += [Part(part, tuple(side), best, regret)] if regret <= MOST_REGRET else split(side, winner, part, so_far)
    return tuple(found)


def _best(points: Sequence[Point], winner: str, so_far: Collection[str]) -> str:
    """The winner, if it does well on all points; else the variant of the least regret where it has most."""
    if worst(winner, points) <= MOST_REGRET:
        return winner
    names = {name for point in points for name in point.times_us}
    best = min(sorted(names), key=lambda name: worst(name, points), default=winner)
    stays = [name for name in sorted(names.intersection(so_far)) if worst(name, points) <= worst(best, points) + MORE]
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


def _cost(points: Sequence[Point], winner: str, so_far: Collection[str], size: str, at: int) -> tuple[int, float, int]:
    """How good a cut is, the least best: parts that need more cuts, the regret that stays, the points lost."""
    sides = _sides(points, size, at)
    chosen = [_best(side, winner, so_far) for side in sides]
    regrets = [worst(name, side) for name, side in zip(chosen, sides, strict=True)]
    lost = sum(len(side) for name, side in zip(chosen, sides, strict=True) if name != winner)
    # Regrets under the limit are as good as none: then the class's winner should keep as much as it can.
    return sum(regret > MOST_REGRET for regret in regrets), max(0.0, max(regrets) - MOST_REGRET), lost


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
    return extents if all(extents[name] == measured.get(name) for name in names) else None
