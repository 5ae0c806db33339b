"""Which candidates are tried, and which can never win."""

from __future__ import annotations

import pytest

from gen.errors import CompileError, RunError
from gen.families.base import Variant
from gen.families.names import search_space
from gen.store.trials import Problem, Status, Trials
from gen.tune.one_problem import Options
from gen.tune.outcome import winner_of
from gen.tune.search import Climb
from tests.fake_tuning import SAMPLES, FakeFarm, FakeTuningDevice, candidates
from tests.host.one_problem.given import (
    ALL,
    BASE,
    FIRST,
    H100,
    NAMES,
    PROBLEM,
    REDUCTION,
    SECOND,
    STENCIL,
    SUM,
    THIRD,
    TURING,
    recorded,
    times,
    tuned,
    won,
)


def test_every_candidate_is_tried_once_with_base_first(trials: Trials) -> None:
    device, compiler = FakeTuningDevice(times(_10=5.0)), FakeFarm()
    outcome = tuned(device, trials, compiler)
    assert sorted(name for name, _ in device.attempts) == sorted(NAMES)
    assert sorted(set(compiler.compiled)) == sorted(NAMES)
    assert device.attempts[0][0] == BASE  # what its time is worth is known before anything slow is tried
    assert len(outcome.trials) == trials.count() == len(NAMES) == sum(outcome.statuses.values())
    assert [problem for problem, _ in device.seen] == [PROBLEM]
    assert won(outcome) == FIRST
    assert outcome.left_out == 0


def test_the_outcome_is_the_winners_by_its_rounds(trials: Trials) -> None:
    device = FakeTuningDevice(times(_10=8.0), floor=6.0)
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
    device = FakeTuningDevice(times(_10=0.1, _20=5.0), bad={} if fault == "compile_failed" else {FIRST: fault})
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
    device = FakeTuningDevice(lambda made: 1.0 if made.algorithm.name == "interleaved" else float(len(made.name)))
    outcome = tuned(device, trials, problem=SUM)
    assert won(outcome) == min((t.median_us, t.variant.name) for t in outcome.trials if t.median_us > 1)[1]
    assert any(trial.median_us == 1.0 for trial in outcome.trials)  # it is tried all the same
    assert not any("interleaved" in name for finals, _ in device.finals for name in finals)
    incumbent = next(trial.variant.name for trial in outcome.trials if trial.variant.algorithm.name == "interleaved")
    assert "interleaved" not in won(tuned(device, trials, problem=SUM, incumbent=incumbent))


def test_a_variant_whose_copy_is_not_timed_neither_ends_a_search_nor_cuts_others_short(trials: Trials) -> None:
    device = FakeTuningDevice(lambda made: 5.0 if made.algorithm.name == "interleaved" else 20.0, floor=5.0)
    outcome = tuned(device, trials, problem=SUM, options=Options(stop_at=0.9))
    assert outcome.left_out == 0
    assert any(trial.median_us == 5.0 for trial in outcome.trials)
    assert {count for _, count in device.attempts} == {SAMPLES}


def test_when_all_but_base_are_bad_base_wins(trials: Trials) -> None:
    device = FakeTuningDevice(bad={name: "timeout" if name in NAMES[1:30] else "launch_failed" for name in NAMES[1:]})
    outcome = tuned(device, trials)
    assert won(outcome) == BASE
    assert outcome.against_base is not None
    assert outcome.against_base.center == 1.0


def test_a_finalist_that_turns_wrong_is_found_out(trials: Trials) -> None:
    device = FakeTuningDevice(times(_10=4.0, _20=5.0, _30=6.0), spoilt={FIRST: "wrong_result", SECOND: "timeout"})
    outcome = tuned(device, trials)
    assert won(outcome) == THIRD
    assert outcome.statuses == {"ok": len(NAMES) - 2, "wrong_result": 1, "timeout": 1}
    assert recorded(trials, device, FIRST) == ("wrong_result", "among the finalists: wrong_result")
    again = tuned(device, trials)  # and stays out
    assert won(again) == THIRD
    assert FIRST not in device.finals[-1][0]


def test_a_base_that_is_wrong_or_does_not_compile_ends_it(trials: Trials) -> None:
    with pytest.raises(RunError, match=f"{BASE} on stencil.* is wrong"):
        tuned(FakeTuningDevice(base_wrong=True), trials)
    with pytest.raises(CompileError, match=BASE):
        tuned(FakeTuningDevice(), trials, FakeFarm(refused=(BASE,)))
    assert trials.count() <= 1


@pytest.mark.usefixtures("whole")
def test_what_cannot_run_there_is_recorded_and_never_compiled(trials: Trials) -> None:
    device, compiler = FakeTuningDevice(limits=TURING), FakeFarm()
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
        assert trial.reason == (
            reason or made.algorithm.unsupported_extents(made.spec, made.config, SUM.extents, TURING)
        )
        assert recorded(trials, device, made.name, SUM) == ("infeasible", trial.reason)


def test_what_was_infeasible_under_an_older_rule_is_tried(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = type(ALL[0].algorithm)
    with monkeypatch.context() as patch:
        patch.setattr(algorithm, "infeasible", lambda _s, _p, c, _l: "no" if c.unroll == 4 else None)
        assert tuned(FakeTuningDevice(), trials).statuses["infeasible"] > 0
    device = FakeTuningDevice()
    assert tuned(device, trials).statuses == {"ok": len(NAMES)}


def test_a_problem_that_nothing_can_run_is_an_error(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    for algorithm in STENCIL.algorithms.values():
        monkeypatch.setattr(type(algorithm), "unsupported_extents", lambda *_: "too large")
    with pytest.raises(RunError, match="has no variant that this device can run"):
        tuned(FakeTuningDevice(), trials)


@pytest.mark.usefixtures("whole")
def test_a_size_that_a_variant_does_not_take_rules_it_out() -> None:
    huge = Problem(REDUCTION, REDUCTION.catalogue[0], {"n": 2**40})
    fit, unfit = candidates(huge, H100)
    assert fit
    assert {trial.variant.algorithm.name for trial in unfit} >= {"shfl", "interleaved"}
    assert all("a grid has at most" in t.reason for t in unfit if t.variant.algorithm.name == "shfl")


@pytest.mark.usefixtures("whole")
def test_what_is_expected_to_be_fast_is_tried_first_after_base(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeTuningDevice()
    expected = [made for made in ALL if made.name != BASE][3:6]
    pairs = tuple((made.algorithm.name, made.config) for made in expected)
    monkeypatch.setattr(type(STENCIL), "heuristic_configs", lambda *_: pairs)
    tuned(device, trials)
    assert [name for name, _ in device.attempts][1:4] == [made.name for made in expected]


@pytest.mark.usefixtures("whole")
def test_the_same_machine_code_with_the_same_plan_is_tried_once(trials: Trials) -> None:
    """Here whatever the cache operator: plans are the same then, and texts are not."""
    names = [made.name for made in candidates(PROBLEM, H100)[0]]
    device, compiler = (
        FakeTuningDevice(times(_10=5.0)),
        FakeFarm(same={name: name.partition("_ld")[0] for name in names}),
    )
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
    device = FakeTuningDevice(lambda made: 5.0 if made.name in alike else 20.0)
    outcome = tuned(device, trials, FakeFarm(same=same), options=Options(Climb))
    assert won(outcome) == min(alike)
    line = winner_of(outcome, device, "fake 1.0", {})
    assert line.evidence["samples"] == outcome.finals.rounds if outcome.finals else 0
    assert won(tuned(device, trials, FakeFarm(same=same), incumbent=alike[-1])) == alike[-1]


def test_texts_that_differ_in_name_and_comments_alone_are_compiled_once(trials: Trials) -> None:
    def text(made: Variant) -> str:
        unroll = made.config.to_json().get("unroll")
        return f"// {made.name}\n__global__ void {made.name}() {{ {unroll}; }} // of {made.name}"

    compiler = FakeFarm()
    outcome = tuned(FakeTuningDevice(), trials, compiler, text=text)
    assert len(compiler.compiled) == len({made.config.to_json().get("unroll") for made in ALL}) < len(NAMES)
    assert outcome.statuses == {"ok": len(NAMES)}


def test_what_cannot_be_fast_is_pruned_by_rules_that_can_be_switched_off(trials: Trials) -> None:
    device, compiler = FakeTuningDevice(times(_10=5.0, _20=6.0)), FakeFarm(spills={FIRST: 64, SECOND: 32})
    outcome = tuned(device, trials, compiler)
    assert won(outcome) == SECOND
    assert outcome.statuses == {"ok": len(NAMES) - 1, "pruned": 1}
    assert recorded(trials, device, FIRST) == ("pruned", "a thread spills 64 bytes")
    assert FIRST not in [name for name, _ in device.attempts]
    again = FakeTuningDevice(times(_10=5.0, _20=6.0))
    outcome = tuned(again, trials, compiler, options=Options(prune=frozenset({"unsearched"})))
    assert [name for name, _ in again.attempts] == [FIRST]
    assert won(outcome) == FIRST


def test_a_search_ends_where_it_is_good_enough(trials: Trials) -> None:
    device = FakeTuningDevice(times(_10=5.1), floor=5.0)
    outcome = tuned(device, trials, options=Options(stop_at=0.98))
    assert won(outcome) == FIRST
    assert outcome.left_out == len(NAMES) - len(outcome.trials)
    assert len(outcome.trials) < len(NAMES)
    more = tuned(FakeTuningDevice(times(_10=5.2), floor=5.0, driver="2"), trials, options=Options(stop_at=0.98))
    assert more.left_out == 0


def test_algorithms_that_cannot_promise_the_same_bits_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(REDUCTION.algorithms["shfl"]), "repeatable", False)
    fit, unfit = candidates(SUM, H100)
    names = {made.algorithm.name for made in (*fit, *(trial.variant for trial in unfit))}
    able = {name for name, algorithm in REDUCTION.algorithms.items() if search_space(algorithm, SUM.spec)}
    assert names == able - {"shfl", "nested"}  # the latter is linked with a library


def test_candidates_are_told_apart_by_name() -> None:
    fit, unfit = candidates(SUM, TURING)
    names = [made.name for made in (*fit, *(trial.variant for trial in unfit))]
    assert len(names) == len(set(names))
