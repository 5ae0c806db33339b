"""First choices by estimate on recorded problems: near the fastest; reductions also by constants of other problems."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path

import pytest

from bench.estimates import DEVICE, Replayed, first_of_each, fitted, replayed, weighed
from bench.random_cases import random_cases
from gen.families.estimates import COSTS, estimated_us

FOLDER = Path(__file__).parents[2] / "bench"
MEDIAN, NINE_TENTHS, WORST = 1.05, 1.15, 1.30  # of the time of the fastest variant that was recorded
FOLDS = 4  # parts of the problems, each of which is left out once


@pytest.fixture(scope="module")
def problems() -> list[Replayed]:
    return recorded("estimates-h200.json")


def recorded(name: str) -> list[Replayed]:
    return replayed(json.loads((FOLDER / name).read_text(encoding="utf-8")))


def holds(regrets: list[float]) -> bool:
    ordered = sorted(regrets)
    return (
        statistics.median(ordered) <= MEDIAN
        and ordered[int(0.9 * len(ordered))] <= NINE_TENTHS
        and ordered[-1] <= WORST
    )


def test_first_choices_are_near_the_fastest(problems: list[Replayed]) -> None:
    assert len(problems) > 60
    assert sum(len(one.us) for one in problems) > 700
    assert holds([one.regret(COSTS) for one in problems])


@pytest.mark.exhaustive
def test_so_are_those_by_constants_that_were_fitted_to_other_problems(problems: list[Replayed]) -> None:
    regrets = []
    for part in range(FOLDS):
        costs = fitted([one for place, one in enumerate(problems) if place % FOLDS != part], passes=2)
        regrets += [one.regret(costs) for one in problems[part::FOLDS]]
    assert holds(regrets)


@pytest.mark.parametrize(
    ("file", "count", "worst"),
    [("volumes-stencils-h200.json", 3, 1.15), ("volumes-steps-h100.json", 3, 1.15)],
)
def test_first_choices_among_marches_are_near_the_fastest(file: str, count: int, worst: float) -> None:
    found = recorded(file)
    assert len(found) == count
    assert all(one.regret(COSTS) <= worst for one in found)
    assert all(sum(name.startswith("march") for name in one.names) > 1 for one in found)


def test_pipelined_is_estimated_near_its_times_where_it_was_asked_for() -> None:
    times = [
        (estimated_us(demand, one.limits), us)
        for one in recorded("estimates-asked-stencil-h100.json")
        for name, demand, us in zip(one.names, one.demands, one.us, strict=True)
        if name.startswith("pipelined")
    ]
    ratios = sorted(estimate / us for estimate, us in times)
    assert len(ratios) > 30
    assert 0.9 < statistics.median(ratios) < 1.1
    assert ratios[len(ratios) // 10] > 0.7
    assert ratios[-len(ratios) // 10] < 1.5


@pytest.mark.parametrize("file", ["estimates-small-stencil-h200.json", "estimates-steps-stencil-h200.json"])
def test_first_choices_among_stencils_are_near_the_fastest(file: str) -> None:
    """Of little arrays, thin ones, and such that take many steps."""
    regrets = [one.regret(COSTS) for one in recorded(file)]
    assert len(regrets) > 30
    assert statistics.mean(regrets) < 1.08
    assert statistics.median(regrets) < 1.02
    assert max(regrets) < 1.8


def test_of_each_algorithm_so_many_are_timed_and_base_first() -> None:
    case = next(one for one in random_cases(303, 30) if one.family.name == "stencil" and len(one.shape) == 2)
    base = case.family.base(case.spec, case.problem.shape_class)
    found = first_of_each(case, DEVICE, 2)
    assert (found[0].algorithm.name, found[0].config) == base
    counts = Counter(one.algorithm.name for one in found[1:])
    assert set(counts) == {one.algorithm.name for one in weighed(case, DEVICE)}
    assert max(counts.values()) == 2
