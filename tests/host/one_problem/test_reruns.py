"""Reruns, deadlines, interrupts and progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gen.families.base import Variant
from gen.store.trials import Status, Trial, Trials
from gen.toolchain.compiled import Compiled
from gen.tune import one_problem, pipeline
from gen.tune.device import Entrant
from gen.tune.one_problem import Options
from gen.tune.outcome import Interrupted, displaces
from gen.tune.pipeline import Sources
from gen.tune.race import ROUNDS_PER_CHECK
from gen.tune.search import Climb, InOrder, Search, Space
from tests.fake_tuning import SAMPLES, FakeFarm, FakeSession, FakeTuningDevice, candidates
from tests.host.one_problem.given import (
    ALL,
    BASE,
    FIRST,
    H100,
    MAY_WIN,
    NAMES,
    SECOND,
    STENCIL,
    SUM,
    THIRD,
    TURING,
    recorded,
    text_of,
    times,
    tuned,
    won,
)


def test_a_rerun_measures_nothing_anew_and_keeps_the_winner(trials: Trials) -> None:
    first = FakeTuningDevice(times(_10=5.0), noise=0.1)
    winner = won(tuned(first, trials))
    before = trials.count()
    again, compiler = FakeTuningDevice(times(_10=5.0), noise=0.1), FakeFarm()
    outcome = tuned(again, trials, compiler, incumbent=winner)
    assert won(outcome) == winner
    assert trials.count() == before
    assert len(outcome.trials) == len(NAMES)
    assert again.attempts == []
    assert set(compiler.compiled) == {*again.finals[0][0], BASE}


def test_a_rerun_tries_what_is_new(trials: Trials) -> None:
    tuned(FakeTuningDevice(), trials)
    device = FakeTuningDevice(times(_10=5.0, _20=4.0))
    outcome = tuned(device, trials, text=lambda made: text_of(made) + ("!" if made.name in (FIRST, SECOND) else ""))
    full = [name for name, count in device.attempts if count == SAMPLES]
    assert sorted(full) == sorted([FIRST, SECOND])
    assert won(outcome) == SECOND
    assert trials.count() == len(NAMES) + 2


@dataclass
class Recorder:
    """Notes what it is told, and when; implements `Search`."""

    search: Search
    told: list[str] = field(default_factory=list)
    before: list[str] | None = None
    given: list[str] = field(default_factory=list)

    def ask(self, count: int) -> Sequence[Variant]:
        self.before = self.told.copy() if self.before is None else self.before
        asked = self.search.ask(count)
        self.given += [made.name for made in asked]
        return asked

    def tell(self, trial: Trial) -> None:
        self.told.append(trial.variant.name)
        self.search.tell(trial)

    @property
    def left(self) -> int:
        return self.search.left


def test_a_search_is_told_of_all_that_is_known_and_of_the_fastest_first(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of base, of what is expected to be fast, of earlier runs, and of what is not worth compiling or timing."""
    expected = [made for made in ALL if made.name not in (BASE, FIRST)][3:6]
    pairs = tuple((made.algorithm.name, made.config) for made in expected)
    monkeypatch.setattr(type(STENCIL), "heuristic_configs", lambda *_: pairs)
    some = Options(lambda space: InOrder(space, [n for n in range(0, space.size, 10) if n % 20 or n < 200]))
    earlier = tuned(FakeTuningDevice(times(_10=5.0)), trials, options=some)
    found = [trial.variant.name for trial in earlier.trials]
    recorders: list[Recorder] = []

    def begin(space: Space) -> Recorder:
        recorders.append(Recorder(Climb(space)))
        return recorders[-1]

    device = FakeTuningDevice(times(_10=5.0))
    outcome = tuned(device, trials, FakeFarm(spills={THIRD: 64}), options=Options(begin))
    (recorder,) = recorders
    fastest = [one.variant.name for one in sorted(earlier.trials, key=lambda one: (one.median_us, one.variant.name))]
    assert recorder.before is not None
    assert set(fastest[: pipeline.FIRST_RECORDED_TRIALS]) <= set(recorder.before)
    assert sorted(recorder.told) == sorted(NAMES)
    assert sorted({*found, *recorder.given}) == sorted(NAMES)
    assert {name for name, _ in device.attempts} == set(NAMES) - set(found) - {THIRD}
    assert outcome.left_out == 0


def test_what_earlier_runs_found_is_known_however_little_time_there_is(trials: Trials) -> None:
    tuned(FakeTuningDevice(times(_10=5.0, _20=6.0)), trials)
    device = FakeTuningDevice()
    outcome = tuned(device, trials, deadline=time.monotonic() - 1)
    assert won(outcome) == FIRST
    assert device.attempts == []


def test_a_bad_trial_is_not_repeated(trials: Trials) -> None:
    tuned(FakeTuningDevice(bad={FIRST: "wrong_result"}), trials, FakeFarm(refused=(SECOND,)))
    device, compiler = FakeTuningDevice(times(_10=0.1, _20=0.1)), FakeFarm()
    outcome = tuned(device, trials, compiler)
    assert {FIRST, SECOND}.isdisjoint(compiler.compiled)
    assert won(outcome) == BASE


def test_a_recorded_finalist_that_fails_now_does_not_win(trials: Trials) -> None:
    tuned(FakeTuningDevice(times(_10=5.0, _20=6.0)), trials)
    device = FakeTuningDevice(times(_10=5.0, _20=6.0), bad={FIRST: "wrong_result"})
    outcome = tuned(device, trials, incumbent=FIRST)
    assert won(outcome) == SECOND
    assert outcome.statuses == {"ok": len(NAMES) - 1, "wrong_result": 1}
    assert recorded(trials, device, FIRST) == ("wrong_result", "among the finalists: wrong_result")


def test_what_others_ended_is_tried_by_the_next_run_and_is_no_fault_of_the_winner_so_far(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an attempt nor a finalist that the process was killed at."""
    calm = FakeTuningDevice(
        times(_10=5.0, _20=6.0, _30=4.0), bad={THIRD: "launch_failed"}, spoilt={FIRST: "launch_failed"}
    )
    untimed = Entrant.untimed

    def killed(entrant: Entrant, status: Status, reason: str) -> Trial:
        return replace(untimed(entrant, status, reason), outside=status == "launch_failed")

    with monkeypatch.context() as patch:
        patch.setattr(Entrant, "untimed", killed)
        outcome = tuned(calm, trials, incumbent=FIRST)
    assert not displaces(outcome, FIRST)
    assert displaces(outcome, SECOND)
    assert recorded(trials, calm, FIRST) == ("ok", "")
    assert recorded(trials, calm, THIRD) is None
    again = FakeTuningDevice(times(_10=5.0, _20=6.0, _30=4.0))
    assert won(tuned(again, trials, incumbent=FIRST)) == THIRD
    assert [name for name, _ in again.attempts] == [THIRD]


def test_another_device_driver_or_compiler_starts_anew(trials: Trials) -> None:
    tuned(FakeTuningDevice(), trials)
    for device, compiler in (
        (FakeTuningDevice(name="Other GPU"), FakeFarm()),
        (FakeTuningDevice(driver="2.0"), FakeFarm()),
        (FakeTuningDevice(), FakeFarm(version="fake 2.0")),
    ):
        tuned(device, trials, compiler)
        assert sorted(name for name, _ in device.attempts) == sorted(NAMES)
    assert trials.count() == 4 * len(NAMES)


def test_a_deadline_leaves_out_the_rest_and_still_has_a_winner(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeTuningDevice(times(_5=5.0))
    clock = Ticking(lambda: float(len(device.attempts)))
    monkeypatch.setattr(pipeline, "time", clock)
    monkeypatch.setattr(one_problem, "time", clock)
    outcome = tuned(device, trials, deadline=20.0)  # a fifth of it is for the finals, 3 s at most
    assert won(outcome) == MAY_WIN[5]
    assert 17 <= len(outcome.trials) == trials.count() <= 17 + pipeline.MAX_QUEUED_ATTEMPTS
    assert outcome.left_out == len(NAMES) - len(outcome.trials)
    assert outcome.finals is not None


def test_a_problem_whose_share_is_used_up_has_finals_while_the_run_has_time(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeTuningDevice(times(_5=5.0))
    clock = Ticking(lambda: 100.0 * (len(device.attempts) > 15))  # the last attempt takes too long
    monkeypatch.setattr(pipeline, "time", clock)
    monkeypatch.setattr(one_problem, "time", clock)
    outcome = tuned(device, trials, deadline=20.0, latest=200.0)
    assert won(outcome) == MAY_WIN[5]
    assert len(outcome.trials) < len(NAMES)
    assert outcome.finals is not None
    assert outcome.finals.rounds >= ROUNDS_PER_CHECK
    assert tuned(FakeTuningDevice(), trials, deadline=-1.0, latest=-1.0).finals is None


def test_finals_wait_for_no_code_longer_than_there_is_time(trials: Trials) -> None:
    """What earlier runs tried is compiled once more. Those that are there in time do not race without the others."""
    tuned(FakeTuningDevice(times(_5=5.0, _10=5.02)), trials)
    farm, device = SlowFarm(quick=BASE), FakeTuningDevice(times(_5=5.0, _10=5.02))
    start = time.monotonic()
    outcome = tuned(device, trials, farm, deadline=start + 1.0)
    assert time.monotonic() - start < 30
    assert set(farm.begun) >= {MAY_WIN[5], FIRST}
    assert device.finals == []
    assert trials.count() == len(outcome.trials) == len(NAMES)
    assert outcome.statuses == {"ok": len(NAMES)}
    assert won(outcome) == MAY_WIN[5]
    assert (
        won(tuned(FakeTuningDevice(), trials, SlowFarm(quick=BASE), deadline=time.monotonic() + 0.1, incumbent=FIRST))
        == FIRST
    )


def test_variants_of_one_source_that_is_not_there_in_time_are_both_left_out() -> None:
    class Waiting(FakeFarm):
        """Begins with nothing, so that all can be called off."""

        def submit(self, name: str, text: str, arch: str) -> Future[Compiled]:
            super().submit(name, text, arch)
            return Future()

    farm = Waiting()
    sources = Sources(farm, H100.arch, lambda made: made.name)
    assert list(sources.codes(ALL[1:4], deadline=time.monotonic() - 1)) == []
    assert len(farm.compiled) == 1


def test_what_one_problem_gave_up_another_of_the_run_tries_once(
    trials: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compilation that has begun cannot be called off."""
    farm = SlowFarm(quick=BASE)
    sources = Sources(farm, H100.arch, text_of)
    with monkeypatch.context() as patch:
        clock = Ticking(lambda: 100.0 * (len(farm.begun) > 4))
        patch.setattr(pipeline, "time", clock)
        patch.setattr(one_problem, "time", clock)
        tuned(FakeTuningDevice(), trials, farm, sources=sources, deadline=20.0)
    assert len(farm.begun) > 4
    device, other = FakeTuningDevice(), Trials(tmp_path / "other")
    ends = threading.Timer(0.2, farm.end)
    ends.start()
    tuned(device, other, farm, sources=sources)
    ends.join()
    other.close()
    assert sorted(name for name, _ in device.attempts) == sorted(NAMES)


def test_after_the_deadline_base_alone_is_tried_and_wins(trials: Trials) -> None:
    device = FakeTuningDevice(times(_10=5.0))
    outcome = tuned(device, trials, deadline=time.monotonic() - 1)
    assert won(outcome) == BASE
    assert [name for name, _ in device.attempts] == [BASE]
    assert (outcome.finals, outcome.median_us) == (None, 20.0)
    assert outcome.left_out == len(NAMES) - 1
    rest = FakeTuningDevice(times(_10=5.0))
    assert won(tuned(rest, trials, incumbent=BASE)) == FIRST  # what was left out is made up for
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


def test_an_interrupt_keeps_what_has_just_ended(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, late = FakeSession.submit, list[tuple[Future[Trial], Trial]]()

    def end_late(session: FakeSession, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        ended = submit(session, entrant, give_up_us)
        if entrant.name == BASE:
            return ended
        late.append((Future(), ended.result()))
        if len(late) == pipeline.MAX_QUEUED_ATTEMPTS:
            for future, trial in late[:-1]:
                future.set_result(trial)
            raise KeyboardInterrupt
        return late[-1][0]

    monkeypatch.setattr(FakeSession, "submit", end_late)
    with pytest.raises(Interrupted):
        tuned(FakeTuningDevice(), trials)
    assert trials.count() == 1 + pipeline.MAX_QUEUED_ATTEMPTS - 1


def test_an_interrupt_keeps_what_was_tried_and_a_rerun_goes_on(trials: Trials) -> None:
    device = FakeTuningDevice(times(_5=5.0), interrupt=15)
    with pytest.raises(Interrupted) as caught:
        tuned(device, trials)
    assert device.open_sessions == 0
    assert trials.count() == len(caught.value.outcome.trials) == 14  # every attempt that had ended
    assert won(caught.value.outcome) == MAY_WIN[5]
    done = {trial.variant.name for trial in caught.value.outcome.trials}
    again = FakeTuningDevice(times(_5=5.0))
    outcome = tuned(again, trials)
    assert won(outcome) == MAY_WIN[5]
    assert trials.count() == len(outcome.trials) == len(NAMES)
    assert {name for name, _ in again.attempts} == set(NAMES) - done


@pytest.mark.usefixtures("whole")
def test_progress_counts_every_trial_up_to_all_of_them(trials: Trials) -> None:
    seen: list[tuple[int, int]] = []
    tuned(FakeTuningDevice(limits=TURING), trials, problem=SUM, tick=lambda done, every: seen.append((done, every)))
    fit, unfit = candidates(SUM, TURING)
    every = len(fit) + len(unfit)
    assert [done for done, _ in seen] == list(range(1, every + 1))
    assert all(done <= most for done, most in seen)
    assert seen[-1] == (every, every)
