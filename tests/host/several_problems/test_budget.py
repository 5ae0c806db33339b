"""How a run divides its time, and what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gen.store.winners import TUNED_FILE, read_winners
from gen.tune import one_problem
from gen.tune import several_problems as module
from gen.tune.search import Space
from tests.fake_tuning import FakeTuningDevice
from tests.host.several_problems.given import ALL, TRANSPOSE, by_length, tuned


@dataclass
class Now:
    """A clock that stands in for the module `time`."""

    at: float = 100.0

    def monotonic(self) -> float:
        return self.at


def test_each_problem_gets_a_share_of_the_time_that_is_left(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shares = Now(), []
    takes = iter([5.0, 30.0, 7.0, 9.0, 8.0])
    five = (*ALL[:3], *ALL[-2:])  # of several specs

    def tune(*arguments: Any, deadline: float | None, **options: Any) -> Any:
        assert deadline is not None
        shares.append(deadline - clock.at)
        clock.at += next(takes)
        return one_problem.tune(*arguments, deadline=None, **options)

    monkeypatch.setattr(module, "tune", tune)
    monkeypatch.setattr(module, "time", clock)
    done = tuned(home, five, budget=65.0)
    counts = [module.PROBLEM_OVERHEAD_VARIANTS + Space(problem.family, problem.spec).count for problem in five]
    assert len(set(counts)) > 1
    left = [65.0, 60.0, 30.0, 23.0, 14.0]
    assert shares == pytest.approx([left[n] * counts[n] / sum(counts[n:]) for n in range(5)])
    assert done.seconds == 59.0
    assert done.left_out == ()


def test_what_the_budget_does_not_reach_is_left_out_and_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Now()

    def tune(*arguments: Any, **options: Any) -> Any:
        clock.at += 25
        return one_problem.tune(*arguments, **{**options, "deadline": None})

    monkeypatch.setattr(module, "tune", tune)
    monkeypatch.setattr(module, "time", clock)
    done = tuned(home, budget=40.0)
    assert [outcome.problem for outcome in done.outcomes] == list(ALL[:2])
    assert done.left_out == ALL[2:]
    assert len(read_winners(home)) == 2


def test_a_rerun_without_time_for_finals_keeps_the_winner_and_what_is_known_of_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tuned(home, TRANSPOSE)
    winner, base = done.outcomes[0].winner, one_problem.base_of(TRANSPOSE[0], FakeTuningDevice()).name
    assert winner is not None
    before = (home / TUNED_FILE).read_text()
    anew = FakeTuningDevice(by_length, driver="2.0")  # under which nothing was tried
    with monkeypatch.context() as patch:
        patch.setattr(module, "tune", lambda *them, **those: one_problem.tune(*them, **{**those, "deadline": -1.0}))
        tuned(home, TRANSPOSE, anew)
    assert [name for name, _ in anew.attempts] == [base] != [winner.variant.name]
    assert (home / TUNED_FILE).read_text() == before
    spoilt = FakeTuningDevice(by_length, driver="3.0", bad={winner.variant.name: "wrong_result"})
    tuned(home, TRANSPOSE, spoilt)
    assert [one.variant for one in read_winners(home)] != [winner.variant.name]


def test_without_time_nothing_is_tuned(home: Path) -> None:
    device = FakeTuningDevice(by_length)
    done = tuned(home, device=device, budget=-1.0)
    assert (done.outcomes, done.left_out) == ((), ALL)
    assert device.attempts == []


def test_without_a_budget_there_is_no_deadline(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float | None] = []

    def tune(*arguments: Any, deadline: float | None, **options: Any) -> Any:
        told.append(deadline)
        return one_problem.tune(*arguments, **options)

    monkeypatch.setattr(module, "tune", tune)
    tuned(home, TRANSPOSE)
    assert told == [None]
