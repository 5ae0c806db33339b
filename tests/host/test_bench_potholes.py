"""Random cases against other libraries: what a run keeps, survives and goes on from; views that are no dense arrays."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench import potholes
from bench.ahead import Ahead
from bench.potholes import PEERS, TUNED, Pothole, Results, Tuned, case_of, measure, pothole_of, read_results, resumed
from bench.potholes_by_model import estimated
from bench.random_cases import RandomCase, random_cases
from gen.arch import DEFAULT_ARCH, Limits
from gen.compare import comparison
from gen.compare.comparison import ContenderStep
from gen.compare.process import Comparisons
from gen.compare.row import OURS, WRONG, Row
from gen.errors import GenError, StoreError
from gen.gpu.timing import Protocol
from tests import fake_libraries
from tests.fake_comparison import FakeGpu
from tests.fake_process import FakePeer, FakeProcess

CASES = random_cases(3, 6)
LITTLE = 1 << 14  # elements, which NumPy computes at once
META = {"seed": 3, "device": "Fake GPU"}


def run(process: FakeProcess, results: Results, seconds: float = 100.0, **options: Any) -> Comparisons:
    comparisons = Comparisons(process, (FakePeer("torch"), FakePeer("torch.compile")), Protocol.COLD, Path())
    measure(comparisons, CASES, results, seconds, options.pop("ahead", Ahead(Path(), 0, 0)), **options)
    return comparisons


def test_a_row_says_the_fastest_peer_and_how_to_make_the_case_again(tmp_path: Path) -> None:
    results = Results(dict(META), [], tmp_path / "found.json")
    run(FakeProcess(), results)
    content = json.loads((tmp_path / "found.json").read_text())
    assert [row["case"] for row in content["rows"]] == [case.name for case in CASES]
    first = content["rows"][0]
    assert (first["family"], first["untuned_us"], first["peer_us"], first["ratio"]) == ("reduction", 1.0, 2.0, 2.0)
    assert first["peer"] in ("torch", "torch.compile")
    for row, case in zip(read_results(tmp_path / "found.json").rows, CASES, strict=True):
        assert case_of(row) == case


def test_what_one_case_does_to_the_process_costs_that_case_alone() -> None:
    results = Results(dict(META), [])
    run(FakeProcess(crash=frozenset({f"{CASES[1].name} {OURS}", f"{CASES[2].name} torch"})), results)
    by_case = {row.case: row for row in results.rows}
    assert len(by_case) == len(CASES)
    assert by_case[CASES[1].name].untuned_us is None
    assert "crashed" in by_case[CASES[1].name].notes[OURS]
    assert by_case[CASES[2].name].peer == "torch.compile"
    assert "crashed" in by_case[CASES[2].name].notes["torch"]
    assert by_case[CASES[3].name].untuned_us == 1.0


def test_a_run_ends_in_time_and_another_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "found.json"
    now = iter(range(0, 10_000, 10))  # every look at the clock is 10 s later
    with monkeypatch.context() as patched:
        patched.setattr("bench.potholes.time.monotonic", lambda: float(next(now)))
        run(FakeProcess(), Results(dict(META), [], file), seconds=45.0)
    before = read_results(file).rows
    assert 0 < len(before) < len(CASES)
    process, again = FakeProcess(), resumed(file, META)
    run(process, again)
    assert [name for name, _ in process.orders] == [case.name for case in CASES[len(before) :]]
    assert len(read_results(file).rows) == len(CASES)


def test_a_file_of_another_seed_or_device_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    Results(dict(META), [Pothole("reduction", "one")], file).write()
    for name, other in (("seed", 4), ("device", "Other GPU")):
        with pytest.raises(StoreError, match=name):
            resumed(file, {**META, name: other})
    file.write_text("{}")
    with pytest.raises(StoreError):
        resumed(file, META)


def test_torch_compile_is_left_out_of_a_case_that_was_not_compiled_in_time() -> None:
    class Late(Ahead):
        def wait(self, case: Any, seconds: float) -> str:
            assert seconds > 0
            return "not compiled after 45 s more" if case == CASES[0] else ""

    process, results = FakeProcess(), Results(dict(META), [])
    run(process, results, ahead=Late(Path(), 0, 0))
    assert dict(process.orders)[CASES[0].name] == ("torch",)
    assert dict(process.orders)[CASES[1].name] == ("torch", "torch.compile")
    assert results.rows[0].notes["torch.compile"] == "not compiled after 45 s more"


def test_what_is_compiled_already_comes_before_what_is_not() -> None:
    class Slow(Ahead):
        def is_ready(self, case: Any) -> bool:
            return bool(case != CASES[0])

    process, results = FakeProcess(), Results(dict(META), [])
    run(process, results, ahead=Slow(Path(), 0, 0))
    assert [row.case for row in results.rows] == [case.name for case in (*CASES[1:], CASES[0])]


def test_tuned_times_are_of_the_peer_that_is_our_own_kernel() -> None:
    def row(peer: str, ours_us: float, peer_us: float) -> Row:
        return Row("reduction", CASES[0].name, peer, "cold", ours_us, peer_us, peer_us / ours_us, verdict="LOSS")

    found = pothole_of(CASES[0], [row(OURS, 10, 10), row("torch", 10, 8), row("cupy", 10, 9), row(TUNED, 10, 7)], 1.0)
    assert (found.untuned_us, found.tuned_us, found.peer, found.peer_us) == (10, 7, "torch", 8)
    assert found.verdict == "LOSS"


def test_a_summary_has_the_worst_first_and_says_what_classes_lose() -> None:
    rows = [
        Pothole("reduction", f"case {place}", 10.0, None, "torch", 10 * ratio, ratio, "LOSS", shape_class="rows")
        for place, ratio in enumerate((1.5, 0.5, 0.8))
    ]
    lines = potholes.summary(rows)
    assert lines[0] == "all: 3 of 3 cases, geomean 0.843, 33% at 0.95 or more, worst 0.50"
    assert any("reduction, rows: 3 of 3" in line for line in lines)
    worst = [line for line in lines if ": 10.00 us" in line]
    assert [line.split()[0] for line in worst] == ["0.50", "0.80", "1.50"]


@pytest.fixture
def _libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_libraries.install(monkeypatch)
    monkeypatch.setattr(comparison, "WARM_UP_US", 1.0)
    monkeypatch.setattr(comparison, "WARM_UP_AGAIN_US", 1.0)


def rows_of(case: RandomCase, home: Path, *more: Any) -> list[Row]:
    rows: list[Row] = []

    def report(message: ContenderStep | Row, seconds: float | None = None) -> None:  # noqa: ARG001
        if isinstance(message, Row):
            rows.append(message)

    made: Any = potholes._InTurn(FakeGpu(), case, Protocol.COLD, report, potholes._Checks, short_hot_too=False)
    made.turns = home
    made.run((*PEERS, *more), home)
    return rows


@cache
def views() -> tuple[RandomCase, ...]:
    """Small cases with a gap or an offset."""
    return tuple(
        case for case in random_cases(21, 2000)
        if case.elements <= LITTLE and (case.gap or case.offset) and case.runtime_parameters.get("steps", 1) < 20
    )  # fmt: skip


@pytest.mark.usefixtures("_libraries")
@pytest.mark.parametrize("number", range(8))
def test_views_with_gaps_and_offsets_are_right_for_us_and_for_all_libraries(number: int, tmp_path: Path) -> None:
    case = [one for one in views() if one.gap][number] if number % 2 else views()[number]
    rows = rows_of(case, tmp_path)
    (ours,) = (row for row in rows if row.peer == OURS)
    assert ours.ours_us is not None, (case.name, ours.note)
    assert not [row for row in rows if row.note.startswith(WRONG)], rows


@pytest.mark.usefixtures("_libraries")
def test_what_is_tuned_is_timed_beside_what_is_not(tmp_path: Path) -> None:
    case = replace(CASES[1], shape=(7,) * len(CASES[1].shape), name="", gap=0)
    rows = rows_of(case, tmp_path, Tuned(tmp_path, "2s"))
    (tuned,) = (row for row in rows if row.peer == TUNED)
    assert tuned.ratio == 1.0
    assert pothole_of(case, rows, 1.0).tuned_us is not None


def test_what_bounds_a_kernel_is_said_or_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gen.arch import Limits

    row = pothole_of(CASES[0], [Row("reduction", CASES[0].name, OURS, "cold", 1.0, 1.0, 1.0, variant="no")], 1.0)
    assert potholes.explained(row, Limits.of("sm_90"), tmp_path).reason.startswith("failed: ")

    def explanations(*_: object) -> Any:
        raise GenError("it", "cannot be")

    monkeypatch.setattr("gen.report.explain.explanations", explanations)
    assert "failed" in potholes.explained(row, Limits.of("sm_90"), tmp_path).reason


def test_the_cases_of_a_file_can_be_measured_again_whatever_is_drawn_now(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    run(FakeProcess(), Results(dict(META), [], file))
    options = Namespace(again=file, only="", most_mib=2048, seed=0, count=0)
    assert potholes.wanted_cases(options) == CASES
    options.only = "transpose"
    assert potholes.wanted_cases(options) == CASES[1::3]


def test_without_a_gpu_a_pick_is_compared_with_all_that_tuning_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits.of(DEFAULT_ARCH)
    case = next(case for case in CASES if case.family.name == "reduction")
    row = estimated(case, limits, 1.0)
    assert row.ratio is not None
    assert 0.8 < row.ratio <= 1.0
    assert row.others[row.peer] == row.peer_us
    monkeypatch.setattr(type(case.family), "heuristic_configs", lambda *_: iter(()))  # base is left, which is slower
    base = estimated(case, limits, 1.0)
    assert base.peer_us == row.peer_us
    assert base.ratio is not None
    assert base.ratio < 0.99 * row.ratio
    assert estimated(case, limits, 0.0).ratio == 1.0  # the pick itself
