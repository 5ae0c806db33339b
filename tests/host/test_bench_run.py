"""A run over many cases: what its budget bars, what is tuned first, and what ends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.cases import permute, reduce, sweep
from bench.run import Bench, problem_to_tune, tune
from gen.compare.case import ComparisonCase
from gen.compare.process import Comparisons
from gen.compare.row import OURS, Row
from gen.dtypes import F32
from gen.errors import CompileError, RunError, StoreError
from gen.families import FAMILIES
from gen.families.regions import sizes_of
from gen.gpu.timing import Protocol
from gen.store.winners import read_winners
from gen.tune.outcome import TuningEndedError
from gen.tune.search import Space
from tests.fake_process import FakePeer, FakeProcess
from tests.fake_tuning import FakeFarm, FakeTuningDevice

CASES = tuple(reduce(("sum",), F32, (n,)) for n in (10, 20, 30, 40))
PEERS = (FakePeer("torch"), FakePeer("cub"))


def rows_of(process: FakeProcess, **options: Any) -> tuple[dict[tuple[str, str], Row], Bench]:
    bench = Bench(Comparisons(process, PEERS, Protocol.COLD, Path()))
    return {(row.case, row.peer): row for _, found in bench.rows(CASES, **options) for row in found}, bench


def test_what_the_budget_does_not_reach_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 10))  # every look at the clock is 10 s later
    monkeypatch.setattr("bench.run.time.monotonic", lambda: float(next(now)))
    rows, bench = rows_of(FakeProcess(), budget=45)
    assert {case for case, _ in rows} == {CASES[0].name, CASES[1].name}
    assert bench.left_out == list(CASES[2:])


def test_each_case_is_tuned_right_before_it_is_measured(tmp_path: Path) -> None:
    process = FakeProcess()
    seen: list[tuple[str, int]] = []

    def tune_one(case: ComparisonCase) -> float:
        seen.append((case.name, len(process.orders)))
        if case == CASES[1]:
            raise CompileError("base", "a.cu(3): error: no\n    int x", tmp_path / "base.cu")
        return 2.5

    rows, _ = rows_of(process, tune=tune_one)
    assert seen == [(CASES[0].name, 0), (CASES[1].name, 1), (CASES[2].name, 1), (CASES[3].name, 2)]
    assert process.tuned == [2.5] * 3
    assert rows[CASES[1].name, OURS].note == "failed: base does not compile: a.cu(3): error: no"
    assert len(rows) == 3 * (1 + len(PEERS)) + 1


def test_a_gpu_that_is_lost_while_a_case_is_tuned_ends_the_run_and_breaks_no_row() -> None:
    outcome: Any = None

    def tune_one(case: ComparisonCase) -> float:
        if case == CASES[1]:
            raise TuningEndedError(RunError("The GPU", "answers no more"), outcome)
        return 1.0

    rows, bench = rows_of(FakeProcess(), tune=tune_one)
    assert {case for case, _ in rows} == {CASES[0].name}
    assert bench.left_out == list(CASES[1:])
    assert f"ended early: the GPU was lost while {CASES[1].name} was tuned (got The GPU answers no" in str(bench.lost)


def test_a_gpu_that_does_not_come_back_ends_the_run_after_the_rows_that_there_are() -> None:
    rows, bench = rows_of(FakeProcess(lose=frozenset({f"{CASES[1].name} cub"}), processes=1))
    assert rows[CASES[1].name, "cub"].note.startswith("took the device down")
    assert bench.left_out == list(CASES[2:])
    assert f"no process could begin any more on {CASES[1].name}" in str(bench.lost)


def test_winners_that_cannot_be_kept_are_no_fault_of_a_case() -> None:
    def tune_one(_: ComparisonCase) -> float:
        raise StoreError("tuned.json", "must have schema 1")

    with pytest.raises(StoreError):
        rows_of(FakeProcess(), tune=tune_one)


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 29th number of a space, and no winners that came with gen."""
    at = Space.at
    monkeypatch.setattr(Space, "at", lambda space, number: at(space, number) if number % 29 == 0 else None)
    monkeypatch.setattr("gen.store.winners.shipped", lambda _: None)


@pytest.mark.usefixtures("_few")
def test_the_winner_is_for_the_shape_of_the_case_alone(tmp_path: Path) -> None:
    case = permute((1, 0), F32, (1000, 1000))
    assert tune(case, FAMILIES, FakeTuningDevice(), FakeFarm(), tmp_path, 60.0) > 0
    (winner,) = read_winners(tmp_path)
    problem = case.problem
    assert winner.key == (problem.spec_name, problem.shape_class, "Fake GPU", problem.region)


@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize(("steps", "tuned"), [(16, 16), (48, 48), (1000, 48)])
def test_a_case_of_many_steps_is_tuned_with_fewer_and_takes_that_winner(
    steps: int, tuned: int, tmp_path: Path
) -> None:  # fmt: skip
    case = sweep("star", 1, F32, (64, 64), "wrap", steps)
    whole, shortened = case.problem, problem_to_tune(case)
    assert shortened.extents == {**whole.extents, "steps": tuned}
    assert shortened.shape_class == whole.shape_class
    tune(case, FAMILIES, FakeTuningDevice(), FakeFarm(), tmp_path, 60.0)
    (winner,) = read_winners(tmp_path)
    for problem in (whole, shortened):
        assert winner.region.holds(sizes_of(problem.family, problem.spec, problem.extents))
