"""Winners that there are: split where they lag, timed again, insisted on; on a GPU that replays times."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gen.cli.app import app
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import find_family, space, variant
from gen.families.regions import Bound, Region
from gen.gpu.trial import Entrant, Problem, Trial
from gen.store.trials import Trials
from gen.store.tuned import FILE, Winner, read_winners, text_of_winners
from gen.tune.choose import Interval
from gen.tune.classes import Regret, regret_of, regrets, replaced
from gen.tune.contest import contest
from gen.tune.outcome import Outcome
from gen.tune.problems import problems
from gen.tune.race import Finals
from gen.tune.regret import probes
from gen.tune.run import run
from gen.tune.search import Space
from gen.tune.sources import Sources
from gen.tune.tuner import Options, base_of, tune
from gen.tune.verify import MOST_TURNS, TURNS, Check, verdict_of, verify
from tests.fake_device import FakeDevice, FakeFarm, FakeSession

TRANSPOSE = problems(FAMILIES, "transpose_10_b32", {})[:1]
FAMILY = find_family(FAMILIES, "transpose")
SPEC = TRANSPOSE[0].spec
BASE = base_of(TRANSPOSE[0], FakeDevice())
EVERY = (BASE, *(variant(FAMILY, SPEC, BASE.algorithm, config) for config in space(BASE.algorithm, SPEC)[10:60:10]))
WIDE, TALL = EVERY[1:3]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One shape class with a space of six variants, and no winners that came with gen."""
    extents = TRANSPOSE[0].extents
    monkeypatch.setattr(type(FAMILY), "shape_classes", lambda *_: ("any size",))
    monkeypatch.setattr(type(FAMILY), "shape_class", lambda *_: "any size")
    monkeypatch.setattr(type(FAMILY), "representative", lambda *_: extents)
    monkeypatch.setattr(type(FAMILY), "base", lambda *_: (BASE.algorithm.name, BASE.config))
    monkeypatch.setattr(type(FAMILY), "likely", lambda *_: ())
    monkeypatch.setattr(Space, "size", len(EVERY))
    monkeypatch.setattr(Space, "count", len(EVERY))
    monkeypatch.setattr(Space, "at", lambda _, number: EVERY[number])
    monkeypatch.setattr(Space, "number", lambda _, made: EVERY.index(made))
    monkeypatch.setattr("gen.store.tuned.shipped_winners", lambda: None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


class Sized(FakeDevice):
    """Its times depend on the problem too: `times` gives them, 20 us where it gives none."""

    def __init__(self, times: Callable[[str, Problem], float | None]) -> None:
        super().__init__(lambda made: times(made.name, self.seen[-1][0]) or 20.0)


def tall_matrices(name: str, problem: Problem) -> float | None:
    """WIDE is best, but for matrices of many rows and few columns."""
    tall = problem.extents["rows"] > problem.extents["cols"]
    return {WIDE.name: 14.0 if tall else 10.0, TALL.name: 10.0 if tall else 12.0}.get(name)


def split(home: Path, times: Callable[[str, Problem], float | None], **options: Any) -> Any:
    device = Sized(times)
    done = run(TRANSPOSE, FAMILIES, device, FakeFarm(), home)
    found = regrets(done.outcomes, FAMILIES, device, FakeFarm(), home, **options)
    assert device.open_sessions == 0
    return found


def kept(home: Path) -> dict[str, str]:
    return {winner.words: winner.variant for winner in read_winners(home)}


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
        trials, found = contest(problem, [winner, TALL.name], device, sources)
        tall = problem.extents["rows"] > problem.extents["cols"]
        best = next(one for one in trials if one.variant == (TALL if tall else WIDE))
        few = {name: times for name, times in found.times_us.items() if name in (winner, best.variant.name)}
        probed = replace(outcome, problem=problem, trials=trials, winner=best)
        return replace(probed, rounds_us=few, finals=replace(found, times_us=few))

    def meet(problem: Problem, names: Sequence[str], until: float | None) -> tuple[tuple[Trial, ...], Finals]:
        met.append((str(problem), tuple(names)))
        return contest(problem, names, device, sources, until)

    regret = regret_of(outcome, WIDE.name, alone, meet, so_far=others[:1])
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
    trials, found = contest(
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


# Verifying


def winner_line(made: Variant, **evidence: Any) -> Winner:
    told = {"extents": dict(TRANSPOSE[0].extents), **evidence}
    return Winner("Fake GPU", "transpose_10_b32", "any size", made.name, told)


def verified(winner: Winner, device: FakeDevice, farm: FakeFarm | None = None) -> Check:
    (check,) = verify([winner], FAMILIES, {}, device, farm or FakeFarm())
    assert device.open_sessions == 0
    return check


def timed(us: float, **options: Any) -> FakeDevice:
    return FakeDevice(lambda made: us if made == WIDE else 10.0, **options)


@pytest.mark.parametrize(
    ("us", "verdict", "bad"),
    [(9.8, "FASTER", False), (10.05, "SAME", False), (9.95, "SAME", False), (10.3, "SLOWER", True)],
)  # fmt: skip
def test_a_winner_is_compared_with_base(us: float, verdict: str, bad: bool) -> None:
    device = timed(us, noise=0.5)
    check = verified(winner_line(WIDE), device)
    assert (check.verdict, check.bad) == (verdict, bad)
    assert check.ratio is not None
    assert check.ratio.center == pytest.approx(us / 10)
    assert device.finals == [([BASE.name, WIDE.name], TURNS)]


def test_what_is_not_clear_is_timed_longer_and_then_said() -> None:
    device = timed(10.1, own_noise=2.0)
    assert verified(winner_line(WIDE), device).verdict == "UNCLEAR"
    assert sum(turns for _, turns in device.finals) == MOST_TURNS


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.5, 0.99, "FASTER"), (0.5, 0.995, "UNCLEAR"), (0.995, 1.005, "SAME"), (1.02, 1.5, "SLOWER"),
     (1.0, 1.5, "UNCLEAR")],
)  # fmt: skip
def test_a_verdict_is_what_the_interval_shows(low: float, high: float, verdict: str) -> None:
    assert verdict_of(Interval((low + high) / 2, low, high)) == verdict


def test_base_as_a_winner_is_the_same_and_needs_no_time() -> None:
    device = timed(9.0)
    assert verified(winner_line(BASE), device).verdict == "SAME"
    assert device.seen == []


def test_a_winner_that_cannot_be_timed_is_bad_and_says_why() -> None:
    wrong = verified(winner_line(WIDE), timed(9.0, bad={WIDE.name: "wrong_result"}))
    assert (wrong.verdict, wrong.bad) == (None, True)
    assert f"{WIDE.name}: wrong_result: made to" in wrong.reason
    spoilt = verified(winner_line(WIDE), timed(9.0, spoilt={WIDE.name: "wrong_result"}))
    assert "among the finalists" in spoilt.reason
    refused = verified(winner_line(WIDE), timed(9.0), FakeFarm(refused=(WIDE.name,)))
    assert "does not compile" in refused.reason
    assert "is wrong" in verified(winner_line(WIDE), timed(9.0, base_wrong=True)).reason
    old = verified(replace(winner_line(WIDE), shape="an old class"), timed(9.0))
    assert "must be for one of: any size (got an old class)" in old.reason
    gone = verified(replace(winner_line(WIDE), variant="transpose_10_b32__magic"), timed(9.0))
    assert "must be one of" in gone.reason


@pytest.mark.parametrize("extents", [None, 7, {}, {"rows": 3}, {"rows": "3"}, {"rows": -1, "cols": 2}])
def test_a_line_that_does_not_say_what_it_was_measured_at_is_bad(extents: object) -> None:
    check = verified(winner_line(WIDE, extents=extents), timed(9.0))
    assert check.bad
    assert FILE in check.reason


def test_a_winner_is_timed_at_its_alignment_and_other_devices_are_left_alone() -> None:
    device = timed(9.0)
    part = Region((Bound("alignment", 0, 15),))
    winners = [replace(winner_line(WIDE), region=part), replace(winner_line(WIDE), device="Other GPU")]
    assert len(list(verify(winners, FAMILIES, {}, device, FakeFarm()))) == 1
    assert [problem.alignment for problem, _ in device.seen] == [8]


# The command


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """A GPU that `gen tune` finds."""
    device = Sized(tall_matrices)
    monkeypatch.setattr("gen.tune.device.find_device", lambda _index=0: device)
    monkeypatch.setattr("gen.cli.gpu.importable", lambda: None)
    monkeypatch.setattr("gen.cli.gpu.device_of", lambda _index, _compiler, _home: nullcontext(device))
    monkeypatch.setattr("gen.cli.gpu.farm_of", lambda _compiler, _home: nullcontext(FakeFarm()))
    yield device
    assert device.open_sessions == 0


def gen(*arguments: str | Path, status: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["tune", *map(str, arguments)], prog_name="gen")
    assert result.exit_code == status, result.output
    return result.output


def test_the_command_splits_and_says_so(gpu: FakeDevice, home: Path) -> None:
    said = gen("transpose_10_b32", "--regret", "--out", home)
    assert "40.0 %" in said
    assert f"Split off: transpose_10_b32, any size, rows over 2^16: {TALL.name.partition('__')[2]}" in said
    again = json.loads(gen("transpose_10_b32", "--regret", "--out", home, "--json"))
    assert [part["variant"] for part in again["regrets"][0]["parts"]] == [WIDE.name, TALL.name]
    assert len(kept(home)) == 2
    assert gpu.seen


def test_frozen_measures_nothing_and_fails_where_a_winner_is_missing(gpu: FakeDevice, home: Path) -> None:
    said = gen("transpose_10_b32", "--frozen", "--out", home, status=1)
    assert "1 of 1 problems have no winner on Fake GPU (got transpose_10_b32, any size)" in said
    assert "Run gen tune without --frozen" in said
    gen("transpose_10_b32", "--out", home)
    before = (len(gpu.seen), (home / FILE).read_text())
    assert WIDE.name.partition("__")[2] in gen("transpose_10_b32", "--frozen", "--out", home)
    shape = ("transpose_10_b32", "--shape", "64x96", "--frozen", "--out", home)
    assert "have no winner on Fake GPU (got transpose_10_b32, any size, cols 96, rows 64" in gen(*shape, status=1)
    assert before == (len(gpu.seen), (home / FILE).read_text())


def test_verify_reports_each_winner_and_writes_nothing(gpu: FakeDevice, home: Path) -> None:
    assert "Nothing is tuned for this GPU" in gen("--verify", "--out", home)
    gen("transpose_10_b32", "--regret", "--out", home)
    before = (home / FILE).read_text()
    said = gen("transpose_10_b32", "--verify", "--out", home)
    assert said.count("FASTER") == 2
    assert (home / FILE).read_text() == before
    lines = [replace(winner, variant=EVERY[-1].name) for winner in read_winners(home)]
    assert EVERY[-1] not in (WIDE, TALL)
    gpu.time_us = lambda made: 30.0 if made == EVERY[-1] else 10.0
    (home / FILE).write_text(text_of_winners(lines))
    assert [one["verdict"] for one in json.loads(gen("--verify", "--json", "--out", home, status=1))] == ["SLOWER"] * 2
    assert "Nothing is tuned" in gen("transpose_10_b32", "--shape", "64x96", "--verify", "--out", home)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    "options",
    [("--verify", "--frozen"), ("--regret", "--verify"), ("--shape", "4x4", "--class", "any size"),
     ("--shape", "4x4", "--regret"), ("--class", "large"), ("--alignment", "3"), ("--frozen", "--budget", "5"),
     ("--verify", "--search", "random"), ("--compiler", "clang"), ("--verify", "--alignment", "4"),
     ("--frozen", "--compiler", "nvcc")],
)  # fmt: skip
def test_options_that_make_no_sense_together_are_refused(options: tuple[str, ...], home: Path) -> None:
    assert "error: --" in gen("transpose_10_b32", *options, "--out", home, status=2)


def test_a_winner_for_one_shape_is_verified_at_the_alignment_that_is_asked_for(gpu: FakeDevice, home: Path) -> None:
    shape = ("transpose_10_b32", "--shape", "64x96")
    gen(*shape, "--alignment", "8", "--out", home)
    assert "Nothing is tuned" in gen(*shape, "--verify", "--out", home)
    gpu.seen.clear()
    assert json.loads(gen(*shape, "--alignment", "8", "--verify", "--json", "--out", home))[0]["verdict"] is not None
    assert {problem.alignment for problem, _ in gpu.seen} == {8}


def test_an_unknown_class_is_answered_with_those_there_are(gpu: FakeDevice, home: Path) -> None:
    said = gen("transpose_10_b32", "--class", "any sise", "--out", home, status=2)
    assert "--class must be one of any size (got 'any sise'). Did you mean any size?" in said
    assert gpu.seen == []


def test_frozen_asks_for_winners_of_the_gpu_that_is_meant(
    gpu: FakeDevice, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gen("transpose_10_b32", "--out", home)
    others = {0: gpu, 1: FakeDevice(name="Other GPU")}
    monkeypatch.setattr("gen.tune.device.find_device", lambda index=0: others[index])
    gen("transpose_10_b32", "--frozen", "--gpu", "0", "--out", home)
    said = gen("transpose_10_b32", "--frozen", "--gpu", "1", "--out", home, status=1)
    assert "have no winner on Other GPU" in said


def test_with_regret_the_time_is_for_all_sizes(gpu: FakeDevice, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def note(*arguments: Any, budget: float | None, **options: Any) -> Any:
        given.append(budget)
        return run(*arguments, budget=budget, **options)

    monkeypatch.setattr("gen.tune.run.run", note)
    gen("transpose_10_b32", "--regret", "--budget", "60s", "--out", home)
    gen("transpose_10_b32", "--budget", "60s", "--out", home)
    others = len(probes(problems(FAMILIES, "transpose_10_b32", {})[0]))
    assert given[0] == pytest.approx(60 / (1 + others), rel=0.1)
    assert given[1] == pytest.approx(60, rel=0.1)
    assert gpu.seen


def test_classes_share_the_time_for_their_regret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []

    def note(outcome: Outcome, winner: str, _probe: object, _meet: object, deadline: float | None, _: object) -> Regret:
        assert deadline is not None
        shares.append(deadline)
        return Regret(outcome, winner, (), (), (outcome,), ())

    device, start = Sized(tall_matrices), time.monotonic()
    done = run(TRANSPOSE, FAMILIES, device, FakeFarm(), home)
    monkeypatch.setattr("gen.tune.classes.regret_of", note)
    regrets((*done.outcomes, *done.outcomes), FAMILIES, device, FakeFarm(), home, deadline=start + 100)
    assert shares == [pytest.approx(start + 50, abs=20), start + 100]


def test_one_class_and_less_alignment_can_be_tuned(gpu: FakeDevice, home: Path) -> None:
    gen("transpose_10_b32", "--class", "any size", "--alignment", "8", "--out", home)
    assert kept(home) == {"any size, aligned to 8 bytes at most": WIDE.name}
    assert [problem.alignment for problem, _ in gpu.seen] == [8]


def test_the_winner_so_far_is_tried_first_whatever_the_search(tmp_path: Path) -> None:
    """So that a rerun without time for everything, or a probe of other sizes, still compares with it."""
    for previous, tried in ((WIDE.name, [BASE.name, WIDE.name]), ("transpose_10_b32__gone", [BASE.name])):
        device, trials = FakeDevice(), Trials(tmp_path / previous)
        options = Options(search=lambda _: Last())
        tune(TRANSPOSE[0], device, FakeFarm(), trials, previous=previous, options=options, text=lambda made: made.name)
        trials.close()
        assert [name for name, _ in device.attempts] == tried


class Last:
    """A search that has no time to give anything."""

    left = 5

    def ask(self, _: int) -> list[Variant]:
        return []

    def tell(self, _: object) -> None:
        """Learns nothing."""
