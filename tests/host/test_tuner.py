"""What wins, what never does, and what a rerun does again; on a GPU that replays times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gen.errors import CompileError, RunError
from gen.families import FAMILIES
from gen.families.base import Limits, Variant
from gen.families.names import find_family, find_variant
from gen.gpu.trial import Problem
from gen.store.trials import Setting, Trials
from gen.tune import tuner
from gen.tune.tuner import FINALISTS, METHOD, Outcome, candidates, tune, winner_of
from tests.fake_device import SAMPLES, CountingCompiler, FakeDevice

STENCIL = find_family(FAMILIES, "stencil")
SIZES = {"rows": 64, "cols": 96, "in_pitch": 96, "out_pitch": 96, "steps": 1}
PROBLEM = Problem(STENCIL, STENCIL.catalogue[0], SIZES)
REDUCTION = find_family(FAMILIES, "reduction")
SUM = Problem(REDUCTION, REDUCTION.catalogue[0], {"n": 4096})
H100, TURING = Limits.of("sm_90"), Limits.of("sm_75")
ALL = candidates(PROBLEM, H100)[0]
NAMES = [made.name for made in ALL]
# Those that prepare private copies never win.
MAY_WIN = [made.name for made in ALL if not any(launch.setup for launch in made.plan.launches)]
BASE, FIRST, SECOND, THIRD = NAMES[0], MAY_WIN[10], MAY_WIN[20], MAY_WIN[30]


def times(**fast: float) -> Callable[[Variant], float]:
    """20 us for base, 100 for any other, less what is given as _PLACE in MAY_WIN."""
    by_name = {MAY_WIN[int(place.lstrip("_"))]: us for place, us in fast.items()}
    return lambda made: by_name.get(made.name, 20.0 if made.name == BASE else 100.0)


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[Trials]:
    found = Trials(tmp_path / "home")
    yield found
    found.close()


def tuned(
    device: FakeDevice, trials: Trials, compiler: CountingCompiler | None = None, problem: Problem = PROBLEM,
    text: Callable[[Variant], str] = lambda made: made.name, **options: Any,
) -> Outcome:  # fmt: skip
    """Tunes with texts that are quick to make; every session is closed."""
    outcome = tune(problem, device, compiler or CountingCompiler(), trials, text=text, **options)
    assert device.open_sessions == 0
    return outcome


def won(outcome: Outcome) -> str:
    assert outcome.winner is not None
    return outcome.winner.variant.name


def recorded(trials: Trials, device: FakeDevice, name: str, problem: Problem = PROBLEM) -> tuple[str, str] | None:
    """Status and reason that stand in the store."""
    setting = Setting(device.name, device.driver, "fake 1.0", METHOD)
    found = trials.find(setting, problem, name, find_variant(FAMILIES, name, {}))
    return None if found is None else (found.status, found.reason)


def test_every_candidate_is_tried_once_with_base_first(trials: Trials) -> None:
    device, compiler = FakeDevice(times(_10=5.0)), CountingCompiler()
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
    assert outcome.against_base.median == outcome.against_base.high == 0.4
    line = winner_of(outcome, device, "fake 1.0", {"date": "2020-02-02"})
    assert (line.device, line.spec, line.shape, line.variant) == (
        "Fake GPU", PROBLEM.spec_name, PROBLEM.shape_class, FIRST,
    )  # fmt: skip
    assert line.evidence["gb_per_s"] == round(2 * 4 * 64 * 96 / 8.0e3, 1)
    assert line.evidence["trials"] == {"ok": len(NAMES)}
    assert line.evidence["over_base"] == 0.4
    assert line.evidence["date"] == "2020-02-02"


@pytest.mark.parametrize("fault", ["wrong_result", "launch_failed", "compile_failed"])
def test_a_bad_candidate_never_wins_however_fast(trials: Trials, fault: str) -> None:
    bad = frozenset({FIRST})
    device = FakeDevice(
        times(_10=0.1, _20=5.0),
        wrong=bad if fault == "wrong_result" else frozenset(),
        crashing=bad if fault == "launch_failed" else frozenset(),
    )
    compiler = CountingCompiler(refused=(FIRST,) if fault == "compile_failed" else ())
    outcome = tuned(device, trials, compiler)
    assert won(outcome) == SECOND
    assert outcome.statuses == {"ok": len(NAMES) - 1, fault: 1}
    (trial,) = [trial for trial in outcome.trials if trial.status != "ok"]
    assert (trial.variant.name, trial.times_us) == (FIRST, ())
    reasons = {
        "wrong_result": "out: 3 elements are wrong",
        "launch_failed": "an illegal address",
        "compile_failed": f"{FIRST}.cu(7): error: expected a ';'",
    }
    assert recorded(trials, device, FIRST) == (fault, trial.reason) == (fault, reasons[fault])
    assert all(FIRST not in finals for finals in device.finals)


def test_a_variant_whose_copy_is_not_timed_never_wins(trials: Trials) -> None:
    device = FakeDevice(lambda made: 1.0 if made.algorithm.name == "interleaved" else float(len(made.name)))
    outcome = tuned(device, trials, problem=SUM)
    assert won(outcome) == min((t for t in outcome.trials if t.median_us > 1), key=lambda t: t.median_us).variant.name
    assert any(trial.median_us == 1.0 for trial in outcome.trials)  # it is tried all the same
    assert not any("interleaved" in name for finals in device.finals for name in finals)
    previous = next(trial.variant.name for trial in outcome.trials if trial.variant.algorithm.name == "interleaved")
    assert "interleaved" not in won(tuned(device, trials, problem=SUM, previous=previous))


def test_a_candidate_that_takes_the_gpu_down_is_named_and_left_out_the_next_time(trials: Trials) -> None:
    device = FakeDevice(times(_20=5.0), deadly=frozenset({FIRST}))
    with pytest.raises(RunError, match=f"{FIRST} took the GPU down .*Run gen tune again"):
        tuned(device, trials)
    assert device.open_sessions == 0
    before = len(device.attempts)
    again = FakeDevice(times(_20=5.0), deadly=frozenset({FIRST}))  # opened anew
    outcome = tuned(again, trials)
    assert won(outcome) == SECOND
    assert outcome.statuses == {"ok": len(NAMES) - 1, "launch_failed": 1}
    assert FIRST not in [name for name, _ in again.attempts]
    assert before < len(NAMES)


def test_when_all_but_base_are_bad_base_wins(trials: Trials) -> None:
    device = FakeDevice(wrong=frozenset(NAMES[1:30]), crashing=frozenset(NAMES[30:]))
    outcome = tuned(device, trials)
    assert won(outcome) == BASE
    assert outcome.against_base is not None
    assert outcome.against_base.median == 1.0


def test_a_finalist_that_turns_wrong_is_found_out(trials: Trials) -> None:
    device = FakeDevice(times(_10=4.0, _20=5.0, _30=6.0), spoilt=frozenset({FIRST, SECOND}))
    outcome = tuned(device, trials)
    assert won(outcome) == THIRD
    assert outcome.statuses == {"ok": len(NAMES) - 2, "wrong_result": 2}
    assert recorded(trials, device, FIRST) == (
        "wrong_result", f"{FIRST} was right before and is wrong now (got out: 1 element is wrong)",
    )  # fmt: skip
    again = tuned(device, trials)  # and stays out
    assert won(again) == THIRD
    assert FIRST not in device.finals[-1]


def test_a_base_that_is_wrong_or_does_not_compile_ends_it(trials: Trials) -> None:
    with pytest.raises(RunError, match=f"{BASE} on stencil.* is wrong"):
        tuned(FakeDevice(base_wrong=True), trials)
    with pytest.raises(CompileError, match=BASE):
        tuned(FakeDevice(), trials, CountingCompiler(refused=(BASE,)))
    assert trials.count() == 0


def test_what_cannot_run_there_is_recorded_and_never_compiled(trials: Trials) -> None:
    device, compiler = FakeDevice(limits=TURING), CountingCompiler()
    fit, unfit = candidates(SUM, TURING)
    assert unfit
    outcome = tuned(device, trials, compiler, SUM)
    names = {trial.variant.name for trial in unfit}
    assert names.isdisjoint(compiler.compiled)
    assert names.isdisjoint(name for name, _ in device.attempts)
    assert outcome.statuses == {"ok": len(fit), "infeasible": len(unfit)}
    for trial in unfit:
        made = trial.variant
        assert trial.reason == made.algorithm.infeasible(made.spec, made.config, TURING)
        assert recorded(trials, device, made.name, SUM) == ("infeasible", trial.reason)


def test_what_was_infeasible_under_an_older_rule_is_tried(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = type(ALL[0].algorithm)
    with monkeypatch.context() as patch:
        patch.setattr(algorithm, "infeasible", lambda _s, _p, c, _l: "no" if c.unroll == 4 else None)
        assert tuned(FakeDevice(), trials).statuses["infeasible"] > 0
    device = FakeDevice()
    assert tuned(device, trials).statuses == {"ok": len(NAMES)}


def test_a_problem_that_nothing_can_run_is_an_error(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(ALL[0].algorithm), "uncovered", lambda *_: "too large")
    with pytest.raises(RunError, match="has no variant that this device can run"):
        tuned(FakeDevice(), trials)


def test_a_size_that_a_variant_does_not_take_rules_it_out() -> None:
    huge = Problem(REDUCTION, REDUCTION.catalogue[0], {"n": 2**40})
    fit, unfit = candidates(huge, H100)
    assert fit
    assert {trial.variant.algorithm.name for trial in unfit} >= {"shfl", "interleaved"}
    assert all("a grid has at most" in t.reason for t in unfit if t.variant.algorithm.name == "shfl")


@pytest.mark.parametrize(("ratio", "winner"), [(0.985, SECOND), (0.989, SECOND), (0.995, FIRST), (1.0, FIRST)])
def test_a_simpler_one_stays_unless_another_is_over_1_percent_faster(trials: Trials, ratio: float, winner: str) -> None:
    device = FakeDevice(times(_10=10.0, _20=10.0 * ratio), noise=0.3)
    compiler = CountingCompiler(registers={FIRST: 12})
    assert won(tuned(device, trials, compiler)) == winner


@pytest.mark.parametrize(("ratio", "winner"), [(0.98, SECOND), (0.995, FIRST)])
def test_the_winner_so_far_stays_unless_another_is_over_1_percent_faster(
    trials: Trials, ratio: float, winner: str
) -> None:
    device = FakeDevice(times(_10=10.0, _20=10.0 * ratio), noise=0.3)
    compiler = CountingCompiler(registers={SECOND: 12, THIRD: 5})
    assert won(tuned(device, trials, compiler, previous=FIRST)) == winner


def test_base_and_the_winner_so_far_are_always_among_the_finalists(trials: Trials) -> None:
    device = FakeDevice(lambda made: 50.0 if made.name in (BASE, THIRD) else 10.0)
    tuned(device, trials, previous=THIRD)
    (finals,) = device.finals
    assert len(finals) == len(set(finals)) == FINALISTS + 2
    assert {BASE, THIRD} <= set(finals)


def test_an_unknown_winner_so_far_changes_nothing(trials: Trials) -> None:
    assert won(tuned(FakeDevice(times(_10=5.0)), trials, previous="stencil_gone__naive")) == FIRST


def test_slow_candidates_get_one_sample(trials: Trials) -> None:
    device = FakeDevice(lambda made: {BASE: 10.0, FIRST: 19.9, SECOND: 20.1}.get(made.name, 15.0))
    outcome = tuned(device, trials)
    samples = dict(device.attempts)
    assert (samples[BASE], samples[FIRST], samples[SECOND]) == (SAMPLES, SAMPLES, 1)
    assert [len(t.times_us) for t in outcome.trials if t.variant.name == SECOND] == [1]


def test_a_rerun_measures_nothing_anew_and_keeps_the_winner(trials: Trials) -> None:
    first = FakeDevice(times(_10=5.0), noise=0.1)
    winner = won(tuned(first, trials))
    before = trials.count()
    again, compiler = FakeDevice(times(_10=5.0), noise=0.1), CountingCompiler()
    outcome = tuned(again, trials, compiler, previous=winner)
    assert won(outcome) == winner
    assert trials.count() == before
    assert len(outcome.trials) == len(NAMES)
    finals = again.finals[0]
    assert len(again.attempts) == len(finals) <= FINALISTS + 1  # made ready again for the rounds
    assert {count for _, count in again.attempts} == {1}
    assert set(compiler.compiled) == {*finals, BASE}


def test_a_rerun_tries_what_is_new(trials: Trials) -> None:
    tuned(FakeDevice(), trials)
    device = FakeDevice(times(_10=5.0, _20=4.0))
    outcome = tuned(device, trials, text=lambda made: made.name + ("!" if made.name in (FIRST, SECOND) else ""))
    full = [name for name, count in device.attempts if count == SAMPLES]
    assert sorted(full) == sorted([FIRST, SECOND])
    assert won(outcome) == SECOND
    assert trials.count() == len(NAMES) + 2


def test_a_bad_trial_is_not_repeated(trials: Trials) -> None:
    tuned(FakeDevice(wrong=frozenset({FIRST})), trials, CountingCompiler(refused=(SECOND,)))
    device, compiler = FakeDevice(times(_10=0.1, _20=0.1)), CountingCompiler()
    outcome = tuned(device, trials, compiler)
    assert {FIRST, SECOND}.isdisjoint(compiler.compiled)
    assert won(outcome) == BASE


def test_a_recorded_finalist_that_fails_now_does_not_win(trials: Trials) -> None:
    tuned(FakeDevice(times(_10=5.0, _20=6.0)), trials)
    device = FakeDevice(times(_10=5.0, _20=6.0), wrong=frozenset({FIRST}))
    outcome = tuned(device, trials, previous=FIRST)
    assert won(outcome) == SECOND
    assert outcome.statuses == {"ok": len(NAMES) - 1, "wrong_result": 1}
    assert recorded(trials, device, FIRST) == ("wrong_result", "out: 3 elements are wrong")


def test_another_device_driver_or_compiler_starts_anew(trials: Trials) -> None:
    tuned(FakeDevice(), trials)
    for device, compiler in (
        (FakeDevice(name="Other GPU"), CountingCompiler()),
        (FakeDevice(driver="2.0"), CountingCompiler()),
        (FakeDevice(), CountingCompiler(version="fake 2.0")),
    ):
        tuned(device, trials, compiler)
        assert sorted(name for name, _ in device.attempts) == sorted(NAMES)
    assert trials.count() == 4 * len(NAMES)


def test_a_deadline_leaves_out_the_rest_and_still_has_a_winner(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(times(_5=5.0))
    monkeypatch.setattr(tuner, "time", Ticking(lambda: len(device.attempts)))
    outcome = tuned(device, trials, deadline=11.5)
    assert won(outcome) == MAY_WIN[5]
    assert len(outcome.trials) == trials.count() == 12
    assert outcome.left_out == len(NAMES) - 12


def test_after_the_deadline_base_alone_is_tried_and_wins(trials: Trials) -> None:
    device = FakeDevice(times(_10=5.0))
    outcome = tuned(device, trials, deadline=time.monotonic() - 1)
    assert won(outcome) == BASE
    assert [name for name, _ in device.attempts] == [BASE]
    assert outcome.left_out == len(NAMES) - 1
    rest = FakeDevice(times(_10=5.0))
    assert won(tuned(rest, trials, previous=BASE)) == FIRST  # what was left out is made up for
    assert trials.count() == len(NAMES)


class Ticking:
    """A clock that stands in for the module `time`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.monotonic = now


def test_an_interrupt_keeps_what_was_tried_and_a_rerun_goes_on(trials: Trials) -> None:
    device = FakeDevice(times(_10=5.0), interrupt=8)
    with pytest.raises(KeyboardInterrupt):
        tuned(device, trials)
    assert device.open_sessions == 0
    assert trials.count() == 7
    done = {name for name, _ in device.attempts}
    again = FakeDevice(times(_10=5.0))
    outcome = tuned(again, trials)
    assert won(outcome) == FIRST
    assert trials.count() == len(outcome.trials) == len(NAMES)
    full = {name for name, _ in again.attempts[: len(NAMES) - 7]}
    assert full == set(NAMES) - done


def test_progress_counts_every_trial_up_to_all_of_them(trials: Trials) -> None:
    seen: list[tuple[int, int]] = []
    tuned(FakeDevice(limits=TURING), trials, problem=SUM, tick=lambda done, every: seen.append((done, every)))
    fit, unfit = candidates(SUM, TURING)
    every = len(fit) + len(unfit)
    assert seen == [(len(unfit) + place, every) for place in range(1, len(fit) + 1)]


def test_algorithms_that_cannot_promise_the_same_bits_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(REDUCTION.algorithms["shfl"]), "repeatable", False)
    fit, unfit = candidates(SUM, H100)
    assert {made.algorithm.name for made in (*fit, *(trial.variant for trial in unfit))} == {"grid", "interleaved"}


def test_candidates_are_told_apart_by_name() -> None:
    fit, unfit = candidates(SUM, TURING)
    names = [made.name for made in (*fit, *(trial.variant for trial in unfit))]
    assert len(names) == len(set(names))
