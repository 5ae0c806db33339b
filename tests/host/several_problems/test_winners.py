"""What a run leaves in the folder of results: winners, their files, their specs."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gen.emit.folder import base_of_catalogue
from gen.emit.render import render
from gen.errors import RunError, StoreError
from gen.families import FAMILIES
from gen.families.stencil import StencilSpec
from gen.store.folder import read_specs, variants_of_home
from gen.store.trials import Problem, Trials
from gen.store.winners import TUNED_FILE, Winner, merged, read_winners, text_of_winners
from gen.tune import one_problem
from gen.tune import several_problems as module
from gen.tune.device import Entrant
from gen.tune.targets import problems
from tests.fake_tuning import FakeSession, FakeTuningDevice, candidates
from tests.host.several_problems.given import ALL, EVIDENCE, FOREIGN, TRANSPOSE, by_length, gen, tuned


def test_a_run_writes_a_sorted_line_for_each_winner(home: Path) -> None:
    done = tuned(home, evidence={"date": "2020-02-02"})
    text = (home / TUNED_FILE).read_text()
    content = json.loads(text)
    assert content["schema"] == 1
    winners = content["winners"]
    assert len(winners) == len(ALL) == len(done.outcomes)
    assert winners == sorted(winners, key=lambda entry: (entry["spec"], entry["shape"], entry["device"]))
    lines = [line.strip().rstrip(",") for line in text.splitlines() if line.startswith("    {")]
    assert [json.loads(line) for line in lines] == winners
    by_problem = {(outcome.problem.spec_name, outcome.problem.shape_class): outcome for outcome in done.outcomes}
    for entry in winners:
        assert entry.keys() == {"device", "spec", "shape", "variant", "date"} | EVIDENCE
        outcome = by_problem[entry["spec"], entry["shape"]]
        assert outcome.winner is not None
        assert entry["variant"] == outcome.winner.variant.name
        assert entry["extents"] == outcome.problem.extents
        assert entry["median_us"] == pytest.approx(by_length(outcome.winner.variant), abs=1e-3)
        assert entry["of_limit"] == pytest.approx(5.0 / entry["median_us"], abs=1e-3)
        assert (entry["device"], entry["driver"], entry["compiler"]) == ("Fake GPU", "1.0", "fake 1.0")
        assert 0 < entry["over_base"] <= 1.01  # a simpler one wins a tie
    assert any(entry["over_base"] < 1 for entry in winners)


def test_winners_lie_there_as_files_and_nothing_is_stale(home: Path) -> None:
    tuned(home)
    winners = {winner.variant for winner in read_winners(home)}
    base = {made.name for made in base_of_catalogue(FAMILIES)}
    assert winners - base
    assert {path.stem for path in home.glob("*.cu")} == winners | base
    for made in variants_of_home(FAMILIES, home):
        assert (home / f"{made.name}.cu").read_text() == render(made)
    status, said = gen("generate", "--check", "--home", home)
    assert (status, "all as gen would write them" in said) == (0, True)


def test_a_winner_that_is_replaced_goes_with_its_file(home: Path) -> None:
    tuned(home, TRANSPOSE)
    (before,) = read_winners(home)
    slow = before.variant
    tuned(home, TRANSPOSE, FakeTuningDevice(lambda made: 90.0 if made.name == slow else by_length(made), driver="2.0"))
    (after,) = read_winners(home)
    assert after.variant != slow
    assert after.evidence["driver"] == "2.0"
    kept = {made.name for made in base_of_catalogue(FAMILIES)} | {after.variant}
    assert {path.stem for path in home.glob("*.cu")} == kept
    assert gen("generate", "--check", "--home", home)[0] == 0


def test_a_winner_for_one_shape_leaves_that_of_its_class(home: Path) -> None:
    tuned(home, TRANSPOSE)
    (before,) = read_winners(home)
    one = problems(FAMILIES, "transpose", {}, ["128x96"])
    tuned(home, one, FakeTuningDevice(lambda made: 3.0 if "t16" in made.name else 9.0))
    found = {winner.words: winner for winner in read_winners(home)}
    assert found.pop(before.words) == before
    ((words, special),) = found.items()
    assert words == "aligned rows, under 4 MiB, cols 96, rows 128, aligned to 16 bytes"
    assert "t16" in special.variant
    assert {path.stem for path in home.glob("*.cu")} >= {before.variant, special.variant}
    told: list[str | None] = [module._incumbent(home, FakeTuningDevice(), problem) for problem in (*TRANSPOSE, *one)]
    assert told == [before.variant, special.variant]


def test_winners_of_other_devices_stay(home: Path) -> None:
    home.mkdir()
    (home / TUNED_FILE).write_text(text_of_winners([FOREIGN]))
    tuned(home, TRANSPOSE)
    found = read_winners(home)
    assert FOREIGN in found
    assert {winner.device for winner in found} == {"Fake GPU", "Other GPU"}
    assert (home / f"{FOREIGN.variant}.cu").is_file()


def test_a_rerun_changes_no_file(home: Path) -> None:
    tuned(home)
    files = [path for path in home.iterdir() if path.is_file() and path.suffix != ".sqlite"]
    kept = {path: (path.read_text(), path.stat().st_mtime_ns) for path in files}
    device = FakeTuningDevice(by_length)
    again = tuned(home, device=device)
    assert {path: (path.read_text(), path.stat().st_mtime_ns) for path in kept} == kept
    assert device.attempts == []
    assert again.trials == sum(len(outcome.trials) for outcome in again.outcomes)
    trials = Trials(home)
    assert trials.count() == again.trials
    trials.close()


def test_the_winner_so_far_is_that_of_the_device_spec_and_class(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str | None] = []

    def tune(*arguments: Any, incumbent: str | None, **options: Any) -> Any:
        told.append(incumbent)
        return one_problem.tune(*arguments, incumbent=incumbent, **options)

    monkeypatch.setattr(module, "tune", tune)
    home.mkdir()
    (home / TUNED_FILE).write_text(text_of_winners([FOREIGN]))
    tuned(home)
    assert told == [None] * len(ALL)
    winners = {(w.spec, w.shape): w.variant for w in read_winners(home) if w.device == "Fake GPU"}
    told.clear()
    tuned(home)
    assert told == [winners[problem.spec_name, problem.shape_class] for problem in ALL]


def test_every_trial_is_told(home: Path) -> None:
    seen: list[tuple[Problem, int, int]] = []
    done = tuned(home, TRANSPOSE, tick=lambda *counts: seen.append(counts))
    (outcome,) = done.outcomes
    every = len(outcome.trials)
    assert [(problem, count) for problem, count, _ in seen] == [(TRANSPOSE[0], count) for count in range(1, every + 1)]


def test_what_was_won_before_an_error_is_kept(home: Path) -> None:
    class Failing(FakeTuningDevice):
        def open(self, problem: Problem, base: Entrant) -> FakeSession:
            self.base_wrong = problem == TRANSPOSE[0]
            return super().open(problem, base)

    with pytest.raises(RunError, match="is wrong"):
        tuned(home, device=Failing(by_length))
    before = ALL[: ALL.index(TRANSPOSE[0])]
    assert [winner.spec for winner in read_winners(home)] == [problem.spec_name for problem in before]
    assert gen("generate", "--check", "--home", home)[0] == 0


def test_the_best_so_far_is_kept_where_the_gpu_is_lost(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not where base is wrong: then nothing that was held against it counts."""
    submit, floor_us = FakeSession.submit, FakeTuningDevice.floor_us

    def check(device: FakeTuningDevice) -> None:
        if len(device.attempts) == 12:
            raise RunError("The process that drives the GPU", "ended before it was ready")

    def lost(session: FakeSession, entrant: Entrant, give_up_us: float) -> Any:
        check(session._device)
        return submit(session, entrant, give_up_us)

    def floor(device: FakeTuningDevice, problem: Problem) -> float:
        check(device)  # it answers nothing any more
        return floor_us(device, problem)

    device = FakeTuningDevice(by_length)
    with monkeypatch.context() as patch:
        patch.setattr(FakeSession, "submit", lost)
        patch.setattr(FakeTuningDevice, "floor_us", floor)
        with pytest.raises(RunError, match="ended before it was ready"):
            tuned(home, TRANSPOSE, device)
    tried = {made.name: by_length(made) for made in candidates(TRANSPOSE[0], device.limits)[0]}
    (winner,) = read_winners(home)
    assert winner.variant == min((tried[name], name) for name, _ in device.attempts)[1]
    with pytest.raises(RunError, match="is wrong"):
        tuned(home, TRANSPOSE, FakeTuningDevice(lambda made: by_length(made) / 2, base_wrong=True))
    assert read_winners(home) == (winner,)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", r"must be JSON.*Tune again, or restore the file"),
        ('{"schema": 2, "winners": []}', r"must have schema 1 \(got 2\)\. Tune again, or restore the file"),
        ('{"winners": []}', r"must have schema 1 \(got None\)\. Tune again, or restore the file"),
        ('{"schema": 1, "winners": [{"device": "H100", "spec": "s", "shape": "any"}]}',
         r"winner 0 must have a text 'variant'.*Tune again, or restore the file"),
        ('{"schema": 1, "winners": [7]}', r"winner 0 must be an object.*Tune again, or restore the file"),
        (text_of_winners([Winner("H100", "transpose_10_b32", "any size", "transpose_10_b32__tiled_t7", {})]),
         r"tuned\.json names a winner that there is not.*Tune again, or remove its line"),
    ],
    ids=["no JSON", "schema", "no schema", "missing key", "no object", "unknown variant"],
)  # fmt: skip
def test_a_file_of_winners_edited_by_hand_is_refused_before_anything_runs(home: Path, content: str, says: str) -> None:
    home.mkdir()
    (home / TUNED_FILE).write_text(content)
    device = FakeTuningDevice(by_length)
    with pytest.raises(StoreError, match=says):
        tuned(home, TRANSPOSE, device)
    assert device.attempts == []
    assert (home / TUNED_FILE).read_text() == content


def test_winners_are_read_back_as_they_were_written(home: Path) -> None:
    home.mkdir()
    winners = [FOREIGN, Winner("A GPU", "s", "any", "v", {"us": 1.5, "extents": {"n": 3}, "over_base": None})]
    (home / TUNED_FILE).write_text(text_of_winners(winners))
    found = read_winners(home)
    assert sorted(found, key=lambda w: w.device) == sorted(winners, key=lambda w: w.device)
    assert text_of_winners(reversed(found)) == (home / TUNED_FILE).read_text()
    (home / TUNED_FILE).write_text(text_of_winners([]))
    assert read_winners(home) == ()


def test_a_new_winner_takes_the_place_of_its_own_device_spec_and_class_alone() -> None:
    old = [Winner(device, spec, shape, "old", {}) for device in "ab" for spec in "cd" for shape in "ef"]
    found = merged(old, [Winner("a", "d", "e", "new", {})])
    assert len(found) == len(old)
    assert [(w.device, w.spec, w.shape) for w in found if w.variant == "new"] == [("a", "d", "e")]


def test_two_runs_at_once_keep_each_others_winners(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(folder: Path) -> tuple[Winner, ...]:
        found = read_winners(folder)
        time.sleep(0.1)
        return found

    monkeypatch.setattr("gen.store.winners.read_winners", slowly)
    winners = [replace(FOREIGN, device=device) for device in ("One GPU", "Other GPU", "Third GPU")]
    threads = [Thread(target=module._keep, args=(home, FAMILIES, TRANSPOSE[0], winner)) for winner in winners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(map(str, read_winners(home))) == set(map(str, winners))


def _names(problem: Problem) -> list[str]:
    return [made.name for made in candidates(problem, FakeTuningDevice().limits)[0]]


def test_a_winner_of_a_spec_that_no_name_can_hold_is_kept_with_its_spec(home: Path) -> None:
    family = next(family for family in FAMILIES if family.name == "stencil")
    specs = [StencilSpec(word, (0, 0.1, 0, 0.2, 0.4, 0.2, 0, 0.1, 0)) for word in ("one", "other")]
    wanted = tuple(Problem(family, spec, family.representative(spec, family.shape_classes(spec)[0])) for spec in specs)
    tuned(home, wanted)
    tuned(home, TRANSPOSE)  # writes the folder anew
    known = read_specs(home)
    for spec in specs:
        assert family.from_json(known[f"stencil_{spec.label}"]) == spec
        assert list(home.glob(f"stencil_{spec.label}__*.cu"))
    assert {winner.spec for winner in read_winners(home)} >= {f"stencil_{spec.label}" for spec in specs}
    assert gen("generate", "--check", "--home", home)[0] == 0
    (home / TUNED_FILE).write_text(text_of_winners([]))
    assert gen("generate", "--home", home)[0] == 0
    assert read_specs(home).keys() >= {f"stencil_{spec.label}" for spec in specs}  # no name says them: they stay


def test_a_spec_is_kept_with_its_winner_whatever_another_run_writes_meanwhile(home: Path) -> None:
    family = next(family for family in FAMILIES if family.name == "stencil")
    one, other = (
        Problem(family, spec, family.representative(spec, family.shape_classes(spec)[0]))
        for spec in (StencilSpec(word, (0.25, 0.5, 0.25), (3,)) for word in ("one", "other"))
    )
    begun: list[str] = []

    def meanwhile(problem: Problem, *_: int) -> None:
        if problem is one and not begun:
            begun.append("other")
            tuned(home, (other,))  # another process, which writes specs and winners of its own
            tuned(home, TRANSPOSE)

    tuned(home, (one,), tick=meanwhile)
    assert begun
    assert read_specs(home).keys() >= {one.spec_name, other.spec_name}
    assert {winner.spec for winner in read_winners(home)} >= {one.spec_name, other.spec_name}
    assert variants_of_home(FAMILIES, home)
