"""First choices by estimate on recorded reductions: near the fastest, also by constants fitted to other problems."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from bench.estimates import Replayed, fitted, replayed
from gen.families.estimates import COSTS

RECORDED = Path(__file__).parents[2] / "bench" / "estimates-h200.json"
MEDIAN, NINE_TENTHS, WORST = 1.05, 1.15, 1.30  # of the time of the fastest variant that was recorded
FOLDS = 4  # parts of the problems, each of which is left out once


@pytest.fixture(scope="module")
def problems() -> list[Replayed]:
    return replayed(json.loads(RECORDED.read_text(encoding="utf-8")))


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
        costs = fitted([one for place, one in enumerate(problems) if place % FOLDS != part], passes=1)
        regrets += [one.regret(costs) for one in problems[part::FOLDS]]
    assert holds(regrets)
