"""A class is split where its winner lags, and keeps what is known of each: on a GPU that replays times."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.regions import Bound, Region
from gen.store.trials import Problem, Trial, Trials
from gen.store.tuned import FILE, Winner, read_winners
from gen.tune.attempts import Sources
from gen.tune.device import Entrant
from gen.tune.outcome import Outcome
from gen.tune.problems import problems
from gen.tune.race import Finals
from gen.tune.regret import Regret, regret_of, regrets, replaced
from gen.tune.run import run
from gen.tune.tuner import Options, time_variants, tune
from tests.fake_tuning import FakeFarm, FakeSession, FakeTuningDevice
from tests.host.winners.given import BASE, EVERY, TALL, TRANSPOSE, WIDE, Sized, kept, tall_matrices, timed


def split(home: Path, times: Callable[[str, Problem], float | None], **options: Any) -> Any:
    device = Sized(times)
    done = run(TRANSPOSE, FAMILIES, device, FakeFarm(), home)
    found = regrets(done.outcomes, FAMILIES, device, FakeFarm(), home, **options)
    assert device.open_sessions == 0
    return found


def test_a_class_is_split_where_its_winner_lags(home: Path) -> None:
    (regret,) = split(home, tall_matrices)
    assert regret.winner == WIDE.name
    assert regret.before == pytest.approx(0.4)
    assert regret.after <= 0.05
    assert len(regret.points) == len(regret.outcomes) == 8
    assert kept(home) == {"any size": WIDE.name, "any size, rows over 2^16": TALL.name}
    whole, part = read_winners(home)
    assert whole.evidence["regret"]["transpose_10_b32 524288 x 128"] == pytest.approx(0.4)
    assert part.evidence["extents"]["rows"] == 524288
    assert part.evidence["over_base"] == 0.5
    assert (part.evidence["median_us"], part.evidence["of_limit"]) == (10.0, 0.5)
    assert {path.stem for path in home.glob("*.cu")} >= {WIDE.name, TALL.name}


def test_a_class_whose_winner_does_well_keeps_one_line_with_its_regret(home: Path) -> None:
    (regret,) = split(home, lambda name, _: {WIDE.name: 10.0, TALL.name: 9.8}.get(name))
    assert kept(home).keys() == {"any size"}
    assert regret.special == ()
    (winner,) = read_winners(home)
    assert set(winner.evidence["regret"].values()) == {0.0}
    assert winner.evidence["split_regret"] == 0.0


def test_parts_of_a_class_go_when_it_is_split_anew_and_single_shapes_stay(home: Path) -> None:
    split(home, tall_matrices)
    one = problems(FAMILIES, "transpose_10_b32", {}, ["64x96"])
    run(one, FAMILIES, Sized(tall_matrices), FakeFarm(), home)
    assert len(kept(home)) == 3
    later = Sized(lambda name, _: {WIDE.name: 10.0}.get(name))
    later.driver = "2.0"  # so that all is measured anew
    done = run(TRANSPOSE, FAMILIES, later, FakeFarm(), home)
    regrets(done.outcomes, FAMILIES, later, FakeFarm(), home)
    assert kept(home).keys() == {"any size", "any size, cols 96, rows 64, aligned to 16 bytes"}


def test_a_winner_that_a_run_without_finals_left_in_place_stays_with_what_is_known_of_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the run has tried it or not; its regret is told all the same."""
    first = Sized(lambda name, _: {WIDE.name: 10.0}.get(name))
    run(TRANSPOSE, FAMILIES, first, FakeFarm(), home)
    (before,) = read_winners(home)
    with monkeypatch.context() as patch:
        patch.setattr("gen.tune.run.tune", lambda *them, **those: tune(*them, **{**those, "deadline": -1.0}))
        later = Sized(lambda name, _: {WIDE.name: 10.0, TALL.name: 9.8}.get(name))
        later.driver = "2.0"
        done = run(TRANSPOSE, FAMILIES, later, FakeFarm(), home)
    assert done.outcomes[0].winner is not None
    assert done.outcomes[0].winner.variant != WIDE
    (regret,) = regrets(done.outcomes, FAMILIES, later, FakeFarm(), home)
    (after,) = read_winners(home)
    assert (after.variant, regret.winner) == (WIDE.name, WIDE.name)
    assert {**after.evidence, "regret": 0, "split_regret": 0} == {**before.evidence, "regret": 0, "split_regret": 0}
    assert after.evidence["driver"] == "1.0"
    assert after.evidence["regret"][str(TRANSPOSE[0])] == pytest.approx(10 / 9.8 - 1, abs=1e-3)
    assert len(after.evidence["regret"]) == 8


def test_where_a_winner_cannot_run_its_regret_is_no_number(home: Path) -> None:
    """JSON has none for it: other programs could not read the file."""

    class Picky(Sized):
        def open(self, problem: Problem, base: Entrant) -> FakeSession:
            self.bad = {WIDE.name: "launch_failed"} if problem.alignment < TRANSPOSE[0].alignment else {}
            return super().open(problem, base)

    device = Picky(lambda name, _: {WIDE.name: 10.0, TALL.name: 12.0}.get(name))
    done = run(TRANSPOSE, FAMILIES, device, FakeFarm(), home)
    (regret,) = regrets(done.outcomes, FAMILIES, device, FakeFarm(), home)
    assert regret.before == float("inf")
    assert "Infinity" not in (home / FILE).read_text()
    whole, part = read_winners(home)
    assert (whole.variant, part.variant) == (WIDE.name, TALL.name)
    assert list(whole.evidence["regret"].values()).count(None) == 1
    assert whole.evidence["split_regret"] == 0.0


def test_where_a_winner_lags_all_that_won_a_size_meet_on_every_size(home: Path) -> None:
    """Else a variant that was no finalist on one size could not have a part that holds it."""
    device, sources = Sized(tall_matrices), Sources(FakeFarm(), "sm_90")
    (outcome,) = run(TRANSPOSE, FAMILIES, device, FakeFarm(), home).outcomes
    others = [made.name for made in EVERY if made not in (BASE, WIDE, TALL)]
    met: list[tuple[str, tuple[str, ...]]] = []

    def alone(problem: Problem, winner: str, _: float | None) -> Outcome:
        """Times the winner and one other that nobody else met: the fastest there."""
        trials, found = time_variants(problem, [winner, TALL.name], device, sources)
        tall = problem.extents["rows"] > problem.extents["cols"]
        best = next(one for one in trials if one.variant == (TALL if tall else WIDE))
        few = {name: times for name, times in found.times_us.items() if name in (winner, best.variant.name)}
        probed = replace(outcome, problem=problem, trials=trials, winner=best)
        return replace(probed, rounds_us=few, finals=replace(found, times_us=few))

    def meet(problem: Problem, names: Sequence[str], until: float | None) -> tuple[tuple[Trial, ...], Finals]:
        met.append((str(problem), tuple(names)))
        return time_variants(problem, names, device, sources, until)

    regret = regret_of(outcome, WIDE.name, alone, meet, incumbents=others[:1])
    assert {names for _, names in met} == {(WIDE.name, TALL.name, others[0])}
    assert len(met) == len(set(met)) == 7  # in the finals of the class itself were all of them
    assert [part.variant for part in regret.parts] == [WIDE.name, TALL.name]
    assert all({WIDE.name, TALL.name} <= point.times_us.keys() for point in regret.points)
    met.clear()
    calm = regret_of(outcome, WIDE.name, lambda problem, *_: replace(outcome, problem=problem), meet)
    assert (calm.before, met) == (0.0, [])


def test_a_contest_leaves_out_what_is_not_right_and_says_so(home: Path) -> None:
    device = timed(9.0, bad={TALL.name: "wrong_result"}, spoilt={EVERY[3].name: "timeout"})
    names = [made.name for made in EVERY[1:]]
    trials, found = time_variants(
        TRANSPOSE[0], [*names, "gone"], device, Sources(FakeFarm(refused=(EVERY[4].name,)), "sm_90")
    )
    status = {trial.variant.name: trial.status for trial in trials}
    assert status == {made.name: "ok" for made in EVERY} | {
        TALL.name: "wrong_result", EVERY[3].name: "timeout", EVERY[4].name: "compile_failed",
    }  # fmt: skip
    assert found.times_us.keys() == {name for name, one in status.items() if one == "ok"}
    assert device.open_sessions == 0
    assert not (home / FILE).exists()


def test_without_time_no_size_is_probed_and_nothing_is_split(home: Path) -> None:
    (regret,) = split(home, tall_matrices, deadline=0.0)
    assert len(regret.left_out) == 7
    assert kept(home) == {"any size": WIDE.name}
    assert "regret" not in read_winners(home)[0].evidence


def test_single_shapes_have_no_regret(home: Path) -> None:
    device = Sized(tall_matrices)
    one = problems(FAMILIES, "transpose_10_b32", {}, ["64x96"])
    assert regrets(run(one, FAMILIES, device, FakeFarm(), home).outcomes, FAMILIES, device, FakeFarm(), home) == ()


def test_other_classes_and_devices_keep_their_parts() -> None:
    part = Region((Bound("rows", 0, 64),))
    mine = Winner("a", "s", "any size", "v", {}, part)
    others = [replace(mine, device="b"), replace(mine, spec="t"), replace(mine, shape="large")]
    new = [Winner("a", "s", "any size", "w", {})]
    assert replaced([mine, *others], new) == (*others, *new)


def test_a_part_that_is_split_anew_leaves_the_others() -> None:
    """Those of less alignment, say, where only that was looked at."""
    whole = Winner("a", "s", "any size", "v", {})
    unaligned = replace(whole, region=Region((Bound("alignment", 0, 4),)))
    tall, within = (
        replace(whole, region=Region((Bound("rows", 65, None), *more))) for more in ((), (Bound("alignment", 0, 4),))
    )
    old = [whole, tall, within, unaligned]
    assert replaced(old, [replace(unaligned, variant="w")]) == (whole, tall, replace(unaligned, variant="w"))
    assert replaced(old, [replace(whole, variant="w")]) == (replace(whole, variant="w"),)


def test_classes_share_the_time_for_their_regret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []

    def note(outcome: Outcome, winner: str, _probe: object, _meet: object, deadline: float | None, _: object) -> Regret:
        assert deadline is not None
        shares.append(deadline)
        return Regret(outcome, winner, (), (), (outcome,), ())

    device, start = Sized(tall_matrices), time.monotonic()
    done = run(TRANSPOSE, FAMILIES, device, FakeFarm(), home)
    monkeypatch.setattr("gen.tune.regret.regret_of", note)
    regrets((*done.outcomes, *done.outcomes), FAMILIES, device, FakeFarm(), home, deadline=start + 100)
    assert shares == [pytest.approx(start + 50, abs=20), start + 100]


def test_the_winner_so_far_is_tried_first_whatever_the_search(tmp_path: Path) -> None:
    """So that a rerun without time for everything, or a probe of other sizes, still compares with it."""
    for incumbent, tried in ((WIDE.name, [BASE.name, WIDE.name]), ("transpose_10_b32__gone", [BASE.name])):
        device, trials = FakeTuningDevice(), Trials(tmp_path / incumbent)
        options = Options(search=lambda _: Last())
        tune(
            TRANSPOSE[0], device, FakeFarm(), trials, incumbent=incumbent, options=options, text=lambda made: made.name
        )
        trials.close()
        assert [name for name, _ in device.attempts] == tried


class Last:
    """A search that has no time to give anything."""

    left = 5

    def ask(self, _: int) -> list[Variant]:
        return []

    def tell(self, _: object) -> None:
        """Learns nothing."""
