"""What wins, what never does, and what a rerun does again; on a GPU that replays times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.errors import CompileError, RunError
from gen.families import FAMILIES
from gen.families.base import Limits, Variant
from gen.families.names import find_family, find_variant, space
from gen.gpu.trial import Entrant, Problem, Status, Trial
from gen.store.trials import Setting, Trials
from gen.toolchain.compiled import Compiled
from gen.tune import attempts, race, tuner
from gen.tune.outcome import Interrupted, Outcome, displaces, outcome_of, winner_of
from gen.tune.race import FINALISTS, FIRST_HEAT, LEAST_TURNS, MOST_TURNS, ROUND, Finals
from gen.tune.search import Space, random
from gen.tune.sources import Sources
from gen.tune.tuner import METHOD, Options, candidates, tune
from tests.fake_device import SAMPLES, FakeDevice, FakeFarm, FakeSession

STENCIL = find_family(FAMILIES, "stencil")
SIZES = {"rows": 64, "cols": 96, "in_pitch": 96, "out_pitch": 96, "steps": 1}
PROBLEM = Problem(STENCIL, STENCIL.catalogue[0], SIZES)
REDUCTION = find_family(FAMILIES, "reduction")
SUM = Problem(REDUCTION, REDUCTION.catalogue[0], {"n": 4096})
H100, TURING = Limits.of("sm_90"), Limits.of("sm_75")
WHOLE = Space.at


def part(space: Space, number: int) -> Variant | None:
    """Every fifth number of a space: enough for anything that can happen to variants."""
    return WHOLE(space, number) if number % 5 == 0 else None


with pytest.MonkeyPatch.context() as patch:
    patch.setattr(Space, "at", part)
    ALL = candidates(PROBLEM, H100)[0]
NAMES = [made.name for made in ALL]
# Those that prepare private copies never win.
MAY_WIN = [made.name for made in ALL if not any(launch.setup for launch in made.plan.launches)]
BASE, FIRST, SECOND, THIRD = NAMES[0], MAY_WIN[10], MAY_WIN[20], MAY_WIN[30]


def text_of(made: Variant) -> str:
    """Quick to make, and no two the same without the name."""
    return f"{made.name} {made.algorithm.name}_{made.config.tag}"


def times(**fast: float) -> Callable[[Variant], float]:
    """20 us for base, 100 for any other, less what is given as _PLACE in MAY_WIN."""
    by_name = {MAY_WIN[int(place.lstrip("_"))]: us for place, us in fast.items()}
    return lambda made: by_name.get(made.name, 20.0 if made.name == BASE else 100.0)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of every space, and no variant that is expected to be fast: it may lie outside."""
    monkeypatch.setattr(Space, "at", part)
    monkeypatch.setattr(type(STENCIL), "likely", lambda *_: ())


@pytest.fixture
def whole(few: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001  undone
    """All of every space."""
    monkeypatch.setattr(Space, "at", WHOLE)


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[Trials]:
    found = Trials(tmp_path / "home")
    yield found
    found.close()


def tuned(
    device: FakeDevice, trials: Trials, farm: FakeFarm | None = None, problem: Problem = PROBLEM,
    text: Callable[[Variant], str] | None = None, **options: Any,
) -> Outcome:  # fmt: skip
    """Tunes with texts that are quick to make; every session is closed."""
    outcome = tune(problem, device, farm or FakeFarm(), trials, text=text or text_of, **options)
    assert device.open_sessions == 0
    return outcome


def won(outcome: Outcome) -> str:
    assert outcome.winner is not None
    return outcome.winner.variant.name


def recorded(trials: Trials, device: FakeDevice, name: str, problem: Problem = PROBLEM) -> tuple[str, str] | None:
    """Status and reason that stand in the store."""
    setting = Setting(device.name, device.driver, "fake 1.0", METHOD)
    made = find_variant(FAMILIES, name, {})
    found = trials.find(setting, problem, text_of(made), made)
    return None if found is None else (found.status, found.reason)


def test_every_candidate_is_tried_once_with_base_first(trials: Trials) -> None:
    device, compiler = FakeDevice(times(_10=5.0)), FakeFarm()
    outcome = tuned(device, trials, compiler)
    assert sorted(name for name, _ in device.attempts) == sorted(NAMES)
    assert sorted(set(compiler.compiled)) == sorted(NAMES)
    assert device.attempts[0][0] == BASE  # what its time is worth is known before anything slow is tried
    assert len(outcome.trials) == trials.count() == len(NAMES) == sum(outcome.statuses.values())
    assert [problem for problem, _ in device.seen] == [PROBLEM]
    assert won(outcome) == FIRST
    assert outcome.left_out == 0


def test_the_outcome_is_the_winners_by_its_rounds(trials: Trials) -> None:
    device = FakeDevice(times(_10=8.0), floor=6.0)
    outcome = tuned(device, trials)
    assert (outcome.median_us, outcome.floor_us, outcome.of_limit) == (8.0, 6.0, 0.75)
    assert outcome.against_base is not None
    assert outcome.against_base.center == outcome.against_base.high == 0.4
    line = winner_of(outcome, device, "fake 1.0", {"date": "2020-02-02"})
    assert (line.device, line.spec, line.shape, line.variant) == (
        "Fake GPU", PROBLEM.spec_name, PROBLEM.shape_class, FIRST,
    )  # fmt: skip
    assert line.evidence["gb_per_s"] == round(2 * 4 * 64 * 96 / 8.0e3, 1)
    assert line.evidence["trials"] == {"ok": len(NAMES)}
    assert line.evidence["over_base"] == 0.4
    assert line.evidence["date"] == "2020-02-02"


@pytest.mark.parametrize("fault", ["wrong_result", "launch_failed", "timeout", "compile_failed"])
def test_a_bad_candidate_never_wins_however_fast(trials: Trials, fault: Status) -> None:
    device = FakeDevice(times(_10=0.1, _20=5.0), bad={} if fault == "compile_failed" else {FIRST: fault})
    compiler = FakeFarm(refused=(FIRST,) if fault == "compile_failed" else ())
    outcome = tuned(device, trials, compiler)
    assert won(outcome) == SECOND
    assert outcome.statuses == {"ok": len(NAMES) - 1, fault: 1}
    (trial,) = [trial for trial in outcome.trials if trial.status != "ok"]
    assert (trial.variant.name, trial.times_us) == (FIRST, ())
    says = f"{FIRST}.cu(7): error: expected a ';'" if fault == "compile_failed" else f"made to: {fault}"
    assert recorded(trials, device, FIRST) == (fault, trial.reason) == (fault, says)
    assert all(FIRST not in finals for finals, _ in device.finals)


def test_a_variant_whose_copy_is_not_timed_never_wins(trials: Trials) -> None:
    device = FakeDevice(lambda made: 1.0 if made.algorithm.name == "interleaved" else float(len(made.name)))
    outcome = tuned(device, trials, problem=SUM)
    assert won(outcome) == min((t.median_us, t.variant.name) for t in outcome.trials if t.median_us > 1)[1]
    assert any(trial.median_us == 1.0 for trial in outcome.trials)  # it is tried all the same
    assert not any("interleaved" in name for finals, _ in device.finals for name in finals)
    previous = next(trial.variant.name for trial in outcome.trials if trial.variant.algorithm.name == "interleaved")
    assert "interleaved" not in won(tuned(device, trials, problem=SUM, previous=previous))


def test_when_all_but_base_are_bad_base_wins(trials: Trials) -> None:
    device = FakeDevice(bad={name: "timeout" if name in NAMES[1:30] else "launch_failed" for name in NAMES[1:]})
    outcome = tuned(device, trials)
    assert won(outcome) == BASE
    assert outcome.against_base is not None
    assert outcome.against_base.center == 1.0


def test_a_finalist_that_turns_wrong_is_found_out(trials: Trials) -> None:
    device = FakeDevice(times(_10=4.0, _20=5.0, _30=6.0), spoilt={FIRST: "wrong_result", SECOND: "timeout"})
    outcome = tuned(device, trials)
    assert won(outcome) == THIRD
    assert outcome.statuses == {"ok": len(NAMES) - 2, "wrong_result": 1, "timeout": 1}
    assert recorded(trials, device, FIRST) == ("wrong_result", "among the finalists: wrong_result")
    again = tuned(device, trials)  # and stays out
    assert won(again) == THIRD
    assert FIRST not in device.finals[-1][0]


def test_a_base_that_is_wrong_or_does_not_compile_ends_it(trials: Trials) -> None:
    with pytest.raises(RunError, match=f"{BASE} on stencil.* is wrong"):
        tuned(FakeDevice(base_wrong=True), trials)
    with pytest.raises(CompileError, match=BASE):
        tuned(FakeDevice(), trials, FakeFarm(refused=(BASE,)))
    assert trials.count() <= 1


@pytest.mark.usefixtures("whole")
def test_what_cannot_run_there_is_recorded_and_never_compiled(trials: Trials) -> None:
    device, compiler = FakeDevice(limits=TURING), FakeFarm()
    fit, unfit = candidates(SUM, TURING)
    assert unfit
    outcome = tuned(device, trials, compiler, SUM)
    names = {trial.variant.name for trial in unfit}
    assert names.isdisjoint(compiler.compiled)
    assert names.isdisjoint(name for name, _ in device.attempts)
    assert outcome.statuses == {"ok": len(fit), "infeasible": len(unfit)}
    for trial in unfit:
        made = trial.variant
        reason = made.algorithm.infeasible(made.spec, made.config, TURING)
        assert trial.reason == (reason or made.algorithm.uncovered(made.spec, made.config, SUM.extents, TURING))
        assert recorded(trials, device, made.name, SUM) == ("infeasible", trial.reason)


def test_what_was_infeasible_under_an_older_rule_is_tried(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = type(ALL[0].algorithm)
    with monkeypatch.context() as patch:
        patch.setattr(algorithm, "infeasible", lambda _s, _p, c, _l: "no" if c.unroll == 4 else None)
        assert tuned(FakeDevice(), trials).statuses["infeasible"] > 0
    device = FakeDevice()
    assert tuned(device, trials).statuses == {"ok": len(NAMES)}


def test_a_problem_that_nothing_can_run_is_an_error(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    for algorithm in STENCIL.algorithms.values():
        monkeypatch.setattr(type(algorithm), "uncovered", lambda *_: "too large")
    with pytest.raises(RunError, match="has no variant that this device can run"):
        tuned(FakeDevice(), trials)


@pytest.mark.usefixtures("whole")
def test_a_size_that_a_variant_does_not_take_rules_it_out() -> None:
    huge = Problem(REDUCTION, REDUCTION.catalogue[0], {"n": 2**40})
    fit, unfit = candidates(huge, H100)
    assert fit
    assert {trial.variant.algorithm.name for trial in unfit} >= {"shfl", "interleaved"}
    assert all("a grid has at most" in t.reason for t in unfit if t.variant.algorithm.name == "shfl")


@pytest.mark.parametrize(("ratio", "winner"), [(0.985, SECOND), (0.993, SECOND), (0.997, FIRST), (1.0, FIRST)])
def test_a_simpler_one_stays_unless_another_is_over_half_a_percent_faster(
    trials: Trials, ratio: float, winner: str
) -> None:
    device = FakeDevice(times(_10=10.0, _20=10.0 * ratio), noise=0.3)
    compiler = FakeFarm(registers={FIRST: 12})
    assert won(tuned(device, trials, compiler)) == winner


@pytest.mark.parametrize(("ratio", "winner"), [(0.98, SECOND), (0.995, FIRST)])
def test_the_winner_so_far_stays_unless_another_is_over_1_percent_faster(
    trials: Trials, ratio: float, winner: str
) -> None:
    device = FakeDevice(times(_10=10.0, _20=10.0 * ratio), noise=0.3)
    compiler = FakeFarm(registers={SECOND: 12, THIRD: 5})
    assert won(tuned(device, trials, compiler, previous=FIRST)) == winner


def test_base_and_the_winner_so_far_are_always_among_the_finalists(trials: Trials) -> None:
    device = FakeDevice(lambda made: 50.0 if made.name in (BASE, THIRD) else 10.0)
    tuned(device, trials, previous=THIRD)
    finals, _ = device.finals[-1]
    assert len(finals) == len(set(finals)) == FINALISTS + 2
    assert {BASE, THIRD} <= set(finals)


def test_an_unknown_winner_so_far_changes_nothing(trials: Trials) -> None:
    assert won(tuned(FakeDevice(times(_10=5.0)), trials, previous="stencil_gone__naive")) == FIRST


def test_slow_candidates_get_one_sample(trials: Trials) -> None:
    device = FakeDevice(lambda made: {BASE: 10.0, FIRST: 19.9, SECOND: 20.1}.get(made.name, 15.0))
    outcome = tuned(device, trials)
    samples = dict(device.attempts)
    assert (samples[BASE], samples[FIRST], samples[SECOND]) == (SAMPLES, SAMPLES, 2)
    assert [len(t.times_us) for t in outcome.trials if t.variant.name == SECOND] == [2]


def test_a_rerun_measures_nothing_anew_and_keeps_the_winner(trials: Trials) -> None:
    first = FakeDevice(times(_10=5.0), noise=0.1)
    winner = won(tuned(first, trials))
    before = trials.count()
    again, compiler = FakeDevice(times(_10=5.0), noise=0.1), FakeFarm()
    outcome = tuned(again, trials, compiler, previous=winner)
    assert won(outcome) == winner
    assert trials.count() == before
    assert len(outcome.trials) == len(NAMES)
    assert again.attempts == []
    assert set(compiler.compiled) == {*again.finals[0][0], BASE}


def test_a_rerun_tries_what_is_new(trials: Trials) -> None:
    tuned(FakeDevice(), trials)
    device = FakeDevice(times(_10=5.0, _20=4.0))
    outcome = tuned(device, trials, text=lambda made: text_of(made) + ("!" if made.name in (FIRST, SECOND) else ""))
    full = [name for name, count in device.attempts if count == SAMPLES]
    assert sorted(full) == sorted([FIRST, SECOND])
    assert won(outcome) == SECOND
    assert trials.count() == len(NAMES) + 2


def test_a_bad_trial_is_not_repeated(trials: Trials) -> None:
    tuned(FakeDevice(bad={FIRST: "wrong_result"}), trials, FakeFarm(refused=(SECOND,)))
    device, compiler = FakeDevice(times(_10=0.1, _20=0.1)), FakeFarm()
    outcome = tuned(device, trials, compiler)
    assert {FIRST, SECOND}.isdisjoint(compiler.compiled)
    assert won(outcome) == BASE


def test_a_recorded_finalist_that_fails_now_does_not_win(trials: Trials) -> None:
    tuned(FakeDevice(times(_10=5.0, _20=6.0)), trials)
    device = FakeDevice(times(_10=5.0, _20=6.0), bad={FIRST: "wrong_result"})
    outcome = tuned(device, trials, previous=FIRST)
    assert won(outcome) == SECOND
    assert outcome.statuses == {"ok": len(NAMES) - 1, "wrong_result": 1}
    assert recorded(trials, device, FIRST) == ("wrong_result", "among the finalists: wrong_result")


def test_another_device_driver_or_compiler_starts_anew(trials: Trials) -> None:
    tuned(FakeDevice(), trials)
    for device, compiler in (
        (FakeDevice(name="Other GPU"), FakeFarm()),
        (FakeDevice(driver="2.0"), FakeFarm()),
        (FakeDevice(), FakeFarm(version="fake 2.0")),
    ):
        tuned(device, trials, compiler)
        assert sorted(name for name, _ in device.attempts) == sorted(NAMES)
    assert trials.count() == 4 * len(NAMES)


def test_a_deadline_leaves_out_the_rest_and_still_has_a_winner(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(times(_5=5.0))
    clock = Ticking(lambda: float(len(device.attempts)))
    monkeypatch.setattr(attempts, "time", clock)
    monkeypatch.setattr(tuner, "time", clock)
    outcome = tuned(device, trials, deadline=20.0)  # a fifth of it is for the finals, 3 s at most
    assert won(outcome) == MAY_WIN[5]
    assert 17 <= len(outcome.trials) == trials.count() <= 17 + attempts.TRYING
    assert outcome.left_out - (len(NAMES) - len(outcome.trials)) in (0, 1)  # base, tried and not yet given
    assert outcome.finals is not None


def test_a_problem_whose_share_is_used_up_has_finals_while_the_run_has_time(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice(times(_5=5.0))
    clock = Ticking(lambda: 100.0 * (len(device.attempts) > 15))  # the last attempt takes too long
    monkeypatch.setattr(attempts, "time", clock)
    monkeypatch.setattr(tuner, "time", clock)
    outcome = tuned(device, trials, deadline=20.0, latest=200.0)
    assert won(outcome) == MAY_WIN[5]
    assert len(outcome.trials) < len(NAMES)
    assert outcome.finals is not None
    assert outcome.finals.turns >= ROUND
    assert tuned(FakeDevice(), trials, deadline=-1.0, latest=-1.0).finals is None


def test_what_one_problem_gave_up_another_of_the_run_tries_once(
    trials: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compilation that has begun cannot be called off."""
    farm = SlowFarm(quick=BASE)
    sources = Sources(farm, H100.arch, text_of)
    with monkeypatch.context() as patch:
        clock = Ticking(lambda: 100.0 * (len(farm.begun) > 4))
        patch.setattr(attempts, "time", clock)
        patch.setattr(tuner, "time", clock)
        tuned(FakeDevice(), trials, farm, sources=sources, deadline=20.0)
    assert len(farm.begun) > 4
    device, other = FakeDevice(), Trials(tmp_path / "other")
    ends = threading.Timer(0.2, farm.end)
    ends.start()
    tuned(device, other, farm, sources=sources)
    ends.join()
    other.close()
    assert sorted(name for name, _ in device.attempts) == sorted(NAMES)


@pytest.mark.usefixtures("whole")
def test_what_is_expected_to_be_fast_is_tried_first_after_base(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    expected = [made for made in ALL if made.name != BASE][3:6]
    pairs = tuple((made.algorithm.name, made.config) for made in expected)
    monkeypatch.setattr(type(STENCIL), "likely", lambda *_: pairs)
    tuned(device, trials)
    assert [name for name, _ in device.attempts][1:4] == [made.name for made in expected]


def test_the_first_heat_leaves_out_what_is_much_slower_or_takes_too_long(trials: Trials) -> None:
    fast = {f"_{place}": 10.0 + place / 10 for place in range(20)}
    device = FakeDevice(times(**fast))
    tuned(device, trials)
    assert len(device.finals[0][0]) == 20  # the others take ten times as long
    right = [Trial(made, "ok", times_us=(1e4 + place,)) for place, made in enumerate([*ALL, *ALL, *ALL])]
    assert len(tuner._first_heat(right, None)) == FIRST_HEAT
    assert FINALISTS < len(tuner._first_heat(right, 2.0)) < FIRST_HEAT
    assert [one.variant for one in tuner._first_heat(right, 0.1)] == ALL[:FINALISTS]


def test_who_is_settled_takes_no_more_turns_and_who_leads_takes_them_all(trials: Trials) -> None:
    device = FakeDevice(times(_10=5.0, _20=5.05, _30=6.0), own_noise=0.1)
    outcome = tuned(device, trials)
    assert outcome.finals is not None
    turns = {name: len(found) for name, found in outcome.finals.times_us.items()}
    assert turns[FIRST] == turns[SECOND] == outcome.finals.turns > LEAST_TURNS
    assert turns[THIRD] == turns[BASE] == LEAST_TURNS
    assert outcome.against_base is not None
    assert outcome.against_base.center == pytest.approx(0.25, rel=0.05)
    names, last = device.finals[-1]
    assert (sorted(names), last > ROUND) == (sorted((FIRST, SECOND)), True)


def test_finals_that_take_long_end_unsettled(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(times(_10=5.0, _20=5.05), own_noise=0.2)
    unhurried = tuned(device, trials).finals
    assert unhurried is not None
    assert unhurried.turns > LEAST_TURNS
    monkeypatch.setattr(race, "time", Ticking(lambda: 10.0 * len(again.finals)))
    again = FakeDevice(times(_10=5.0, _20=5.05), own_noise=0.2)
    outcome = tuned(again, trials)
    assert outcome.finals is not None
    assert (outcome.finals.turns, outcome.finals.settled) == (LEAST_TURNS, False)


def test_a_winner_without_finals_has_no_clock_and_no_noise(trials: Trials) -> None:
    device = FakeDevice(times(_10=5.0))
    outcome = tuned(device, trials, deadline=time.monotonic() - 1)
    evidence = winner_of(outcome, device, "fake 1.0", {}).evidence
    assert (evidence["sm_mhz"], evidence["noise"], evidence["settled"]) == (None, None, False)
    evidence = winner_of(tuned(device, trials), device, "fake 1.0", {}).evidence
    assert evidence["sm_mhz"] == [1900, 1980]


def test_after_the_deadline_base_alone_is_tried_and_wins(trials: Trials) -> None:
    device = FakeDevice(times(_10=5.0))
    outcome = tuned(device, trials, deadline=time.monotonic() - 1)
    assert won(outcome) == BASE
    assert [name for name, _ in device.attempts] == [BASE]
    assert (outcome.finals, outcome.median_us) == (None, 20.0)
    assert outcome.left_out - (len(NAMES) - 1) in (0, 1)  # base, tried and not yet given
    rest = FakeDevice(times(_10=5.0))
    assert won(tuned(rest, trials, previous=BASE)) == FIRST  # what was left out is made up for
    assert trials.count() == len(NAMES)


@dataclass
class SlowFarm(FakeFarm):
    """Has begun with everything, and ends it when it is told to; but for one that it compiles at once."""

    quick: str = ""
    begun: dict[str, Future[Compiled]] = field(default_factory=dict)

    def submit(self, name: str, text: str, arch: str) -> Future[Compiled]:
        made = super().submit(name, text, arch)
        if name == self.quick or not self.quick:
            return made
        self.begun[name] = Future()
        self.begun[name].set_running_or_notify_cancel()
        return self.begun[name]

    def end(self) -> None:
        """All of it, and what comes later at once."""
        self.quick = ""
        for name, future in list(self.begun.items()):
            future.set_result(super().submit(name, "", "sm_90").result())


class Ticking:
    """A clock that stands in for the module `time`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.monotonic = now


@pytest.mark.parametrize(
    ("previous", "slowest", "wins"),
    [(SECOND, 5.5, SECOND), (SECOND, 7.0, FIRST), (BASE, 5.5, FIRST), (None, 5.5, FIRST), (THIRD, 5.5, SECOND)],
)
def test_without_finals_the_winner_so_far_stays_unless_it_is_clearly_slower(
    previous: str | None, slowest: float, wins: str
) -> None:
    """Few samples of many variants flatter one of them."""
    by_name = {made.name: made for made in ALL}
    times_us = {BASE: (20.0, 21.0, 22.0), FIRST: (5.0, 5.1, 5.5), SECOND: (slowest, 7.5, 8.0)}
    done = {name: Trial(by_name[name], "ok", times_us=found) for name, found in times_us.items()}
    done[THIRD] = replace(done[SECOND], variant=by_name[THIRD], same_as=SECOND)
    none = Finals({}, settled=False)
    outcome = outcome_of(PROBLEM, FakeDevice(), done, [], none, BASE, previous, 1.0, 0)
    assert won(outcome) == (THIRD if previous == THIRD else wins)
    assert displaces(outcome, previous or "") is (won(outcome) == FIRST and previous is not None)


def test_an_interrupt_keeps_what_has_just_ended(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, late = FakeSession.submit, list[tuple[Future[Trial], Trial]]()

    def end_late(session: FakeSession, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        ended = submit(session, entrant, give_up_us)
        if entrant.name == BASE:
            return ended
        late.append((Future(), ended.result()))
        if len(late) == attempts.TRYING:
            for future, trial in late[:-1]:
                future.set_result(trial)
            raise KeyboardInterrupt
        return late[-1][0]

    monkeypatch.setattr(FakeSession, "submit", end_late)
    with pytest.raises(Interrupted):
        tuned(FakeDevice(), trials)
    assert trials.count() == 1 + attempts.TRYING - 1


def test_an_interrupt_keeps_what_was_tried_and_a_rerun_goes_on(trials: Trials) -> None:
    device = FakeDevice(times(_5=5.0), interrupt=15)
    with pytest.raises(Interrupted) as caught:
        tuned(device, trials)
    assert device.open_sessions == 0
    assert trials.count() == len(caught.value.outcome.trials) == 14  # every attempt that had ended
    assert won(caught.value.outcome) == MAY_WIN[5]
    done = {trial.variant.name for trial in caught.value.outcome.trials}
    again = FakeDevice(times(_5=5.0))
    outcome = tuned(again, trials)
    assert won(outcome) == MAY_WIN[5]
    assert trials.count() == len(outcome.trials) == len(NAMES)
    assert {name for name, _ in again.attempts} == set(NAMES) - done


@pytest.mark.usefixtures("whole")
def test_progress_counts_every_trial_up_to_all_of_them(trials: Trials) -> None:
    seen: list[tuple[int, int]] = []
    tuned(FakeDevice(limits=TURING), trials, problem=SUM, tick=lambda done, every: seen.append((done, every)))
    fit, unfit = candidates(SUM, TURING)
    every = len(fit) + len(unfit)
    assert [done for done, _ in seen] == list(range(1, every + 1))
    assert all(done <= most for done, most in seen)
    assert seen[-1] == (every, every)


@pytest.mark.usefixtures("whole")
def test_the_same_machine_code_with_the_same_plan_is_tried_once(trials: Trials) -> None:
    """Here whatever the cache operator: plans are the same then, and texts are not."""
    names = [made.name for made in candidates(PROBLEM, H100)[0]]
    device, compiler = FakeDevice(times(_10=5.0)), FakeFarm(same={name: name.partition("_ld")[0] for name in names})
    outcome = tuned(device, trials, compiler)
    tried = {name for name, _ in device.attempts}
    copies = {trial.variant.name: trial for trial in outcome.trials if trial.same_as}
    assert copies
    assert set(copies) == set(names) - tried
    assert len(tried) == len({name.partition("_ld")[0] for name in names})
    by_name = {trial.variant.name: trial for trial in outcome.trials}
    for name, trial in copies.items():
        original = by_name[trial.same_as]
        assert (trial.status, trial.times_us) == (original.status, original.times_us)
        assert recorded(trials, device, name) == (original.status, "")


def test_the_first_by_name_speaks_for_all_of_the_same_code_unless_another_won_before(trials: Trials) -> None:
    """Whichever of them was compiled first."""
    alike = [name for name in NAMES if name.startswith(NAMES[10].rpartition("_u")[0] + "_u")][:3]
    same = dict.fromkeys(alike, "the same")
    plan = {made.name: made.plan for made in ALL}
    alike = [name for name in alike if plan[name] == plan[alike[0]]]
    device = FakeDevice(lambda made: 5.0 if made.name in alike else 20.0)
    outcome = tuned(device, trials, FakeFarm(same=same), options=Options(random))
    assert won(outcome) == min(alike)
    line = winner_of(outcome, device, "fake 1.0", {})
    assert line.evidence["samples"] == outcome.finals.turns if outcome.finals else 0
    assert won(tuned(device, trials, FakeFarm(same=same), previous=alike[-1])) == alike[-1]


def test_texts_that_differ_in_name_and_comments_alone_are_compiled_once(trials: Trials) -> None:
    def text(made: Variant) -> str:
        unroll = made.config.to_json().get("unroll")
        return f"// {made.name}\n__global__ void {made.name}() {{ {unroll}; }} // of {made.name}"

    compiler = FakeFarm()
    outcome = tuned(FakeDevice(), trials, compiler, text=text)
    assert len(compiler.compiled) == len({made.config.to_json().get("unroll") for made in ALL}) < len(NAMES)
    assert outcome.statuses == {"ok": len(NAMES)}


def test_what_cannot_be_fast_is_pruned_by_rules_that_can_be_switched_off(trials: Trials) -> None:
    device, compiler = FakeDevice(times(_10=5.0, _20=6.0)), FakeFarm(spills={FIRST: 64, SECOND: 32})
    outcome = tuned(device, trials, compiler)
    assert won(outcome) == SECOND
    assert outcome.statuses == {"ok": len(NAMES) - 1, "pruned": 1}
    assert recorded(trials, device, FIRST) == ("pruned", "a thread spills 64 bytes")
    assert FIRST not in [name for name, _ in device.attempts]
    again = FakeDevice(times(_10=5.0, _20=6.0))
    outcome = tuned(again, trials, compiler, options=Options(prune=frozenset()))
    assert [name for name, _ in again.attempts] == [FIRST]
    assert won(outcome) == FIRST


def test_a_search_ends_where_it_is_good_enough(trials: Trials) -> None:
    device = FakeDevice(times(_10=5.1), floor=5.0)
    outcome = tuned(device, trials, options=Options(stop_at=0.98))
    assert won(outcome) == FIRST
    assert outcome.left_out - (len(NAMES) - len(outcome.trials)) in (0, 1)
    assert len(outcome.trials) < len(NAMES)
    more = tuned(FakeDevice(times(_10=5.2), floor=5.0, driver="2"), trials, options=Options(stop_at=0.98))
    assert more.left_out == 0


def test_the_finals_go_on_until_their_order_is_settled(trials: Trials) -> None:
    calm = tuned(FakeDevice(times(_10=10.0, _20=10.5)), trials)
    assert calm.finals is not None
    assert calm.finals.settled
    assert calm.finals.turns == LEAST_TURNS
    near = tuned(FakeDevice(times(_10=10.0, _20=10.09), own_noise=0.05, driver="2"), trials)
    assert near.finals is not None
    assert LEAST_TURNS < near.finals.turns <= MOST_TURNS
    assert near.interval is not None
    assert near.interval.low <= near.median_us <= near.interval.high
    line = winner_of(near, FakeDevice(), "fake 1.0", {}).evidence
    assert line["samples"] == near.finals.turns
    assert (line["sm_mhz"], line["throttled"]) == ([1900, 1980], ["power limit"])
    assert 0 < line["noise"] < 0.05


@pytest.mark.parametrize("seed", range(10))
def test_fresh_runs_in_a_noise_of_2_percent_end_within_1_percent_of_the_best(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(0)
    truth = dict(zip(NAMES, 10 + random.exponential(2, len(NAMES)), strict=True))
    store = Trials(tmp_path / "home")
    device = FakeDevice(lambda made: truth[made.name], own_noise=0.04, seed=seed)
    winner = won(tuned(device, store))
    assert truth[winner] <= 1.01 * min(truth.values())
    assert (
        won(tuned(FakeDevice(lambda made: truth[made.name], own_noise=0.04, seed=seed + 99), store, previous=winner))
        == winner
    )
    store.close()


def test_algorithms_that_cannot_promise_the_same_bits_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(REDUCTION.algorithms["shfl"]), "repeatable", False)
    fit, unfit = candidates(SUM, H100)
    names = {made.algorithm.name for made in (*fit, *(trial.variant for trial in unfit))}
    able = {name for name, algorithm in REDUCTION.algorithms.items() if space(algorithm, SUM.spec)}
    assert names == able - {"shfl", "nested"}  # the latter is linked with a library


def test_candidates_are_told_apart_by_name() -> None:
    fit, unfit = candidates(SUM, TURING)
    names = [made.name for made in (*fit, *(trial.variant for trial in unfit))]
    assert len(names) == len(set(names))
