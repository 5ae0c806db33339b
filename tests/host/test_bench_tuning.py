"""A case is tuned at exactly its shape, and with no more steps than it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cases import permute, sweep
from bench.tuning import problem_to_tune, tune
from gen.dtypes import F32
from gen.families import FAMILIES
from gen.families.regions import sizes_of
from gen.store.tuned import read_winners
from gen.tune.search import Space
from tests.fake_device import FakeDevice, FakeFarm


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 29th number of a space, and no winners that came with gen."""
    at = Space.at
    monkeypatch.setattr(Space, "at", lambda space, number: at(space, number) if number % 29 == 0 else None)
    monkeypatch.setattr("gen.store.tuned.shipped_winners", lambda: None)


def test_the_winner_is_for_the_shape_of_the_case_alone(tmp_path: Path) -> None:
    case = permute((1, 0), F32, (1000, 1000))
    assert tune(case, FAMILIES, FakeDevice(), FakeFarm(), tmp_path, 60.0) > 0
    (winner,) = read_winners(tmp_path)
    problem = case.problem
    assert winner.place == (problem.spec_name, problem.shape_class, "Fake GPU", problem.region)


@pytest.mark.parametrize(("steps", "tuned"), [(1, 1), (16, 16), (48, 48), (49, 48), (1000, 48)])
def test_a_case_of_many_steps_is_tuned_with_fewer_and_takes_that_winner(
    steps: int, tuned: int, tmp_path: Path
) -> None:  # fmt: skip
    case = sweep("star", 1, F32, (64, 64), "wrap", steps)
    whole, shortened = case.problem, problem_to_tune(case)
    assert shortened.extents == {**whole.extents, "steps": tuned}
    assert shortened.shape_class == whole.shape_class
    tune(case, FAMILIES, FakeDevice(), FakeFarm(), tmp_path, 60.0)
    (winner,) = read_winners(tmp_path)
    for problem in (whole, shortened):
        assert winner.region.holds(sizes_of(problem.family, problem.spec, problem.extents))
