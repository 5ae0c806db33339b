"""Problems that several GPUs of a machine tune at once, each in a process of its own; the GPUs are none."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gen.errors import RunError, StoreError
from gen.families import FAMILIES
from gen.families.names import find_family
from gen.store.trials import Problem, Trials
from gen.store.winners import read_winners
from gen.tune import locked
from gen.tune.device import IsolatedDevice
from gen.tune.one_problem import Options
from gen.tune.outcome import Interrupted, TuningEndedError
from gen.tune.parallel import ParallelTuning
from gen.tune.search import InOrder, Search, Space
from gen.tune.several_problems import Run, run
from tests.fake_cluster import PlainCompiler
from tests.fake_tuning import DyingBench, FakeFarm, FakeTuningDevice, time_of

REDUCTION = find_family(FAMILIES, "reduction")
SUM = REDUCTION.catalogue[0]
PROBLEMS = tuple(
    Problem(REDUCTION, SUM, {"n": size}) for size in (1 << 10, 1 << 16, 1 << 22)
)  # fmt: skip


def few(space: Space) -> Search:
    """At most 24 of a space, from all over it."""
    numbers = [number for number in range(0, space.size, max(space.size // 600, 1)) if space.at(number)]
    return InOrder(space, numbers[:: -(-len(numbers) // 24)])


OPTIONS = Options(few)
LONG_SECONDS = 300.0  # in which all happens that is waited for
Start = Callable[..., ParallelTuning]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts tuning with so many GPUs; the misdeeds are by number. What a GPU does stands in a file of its number."""
    begun: list[ParallelTuning] = []

    def begin(
        count: int, home: str = "home", problems: int = len(PROBLEMS), **misdeeds: Mapping[str, str]
    ) -> ParallelTuning:
        openers = {
            f"GPU {number}": partial(
                IsolatedDevice, DyingBench(misdeeds.get(f"of_{number}", {}), tmp_path / f"{home}-{number}", 0.002)
            )
            for number in range(count)
        }
        begun.append(ParallelTuning(openers, PlainCompiler(), FAMILIES, tmp_path / home, problems))
        return begun[-1]

    yield begin
    for tuning in begun:
        tuning.close()


def told(done: Run) -> Any:
    """All that a run comes to, but times of the clock and the order of attempts."""
    return [
        (
            str(outcome.problem), outcome.winner and outcome.winner.variant.name, outcome.median_us,
            {trial.variant.name: trial.status for trial in outcome.trials},
        )
        for outcome in done.outcomes
    ]  # fmt: skip


def opened_by(what_it_did: Path) -> int:
    """How many problems a GPU has opened."""
    return what_it_did.read_text().count("open") if what_it_did.exists() else 0


def winners(home: Path) -> list[tuple[object, ...]]:
    return sorted((one.spec, one.shape, one.variant, str(one.evidence["trials"])) for one in read_winners(home))


def alone(home: Path, problems: Sequence[Problem] = PROBLEMS) -> Any:
    """What one GPU comes to, in this process."""
    device = FakeTuningDevice(lambda made: time_of(made.name), hot_us=lambda made: time_of(made.name) / 2)
    return told(run(problems, FAMILIES, device, FakeFarm(), home, options=OPTIONS))


def test_several_gpus_come_to_what_one_comes_to(start: Start, tmp_path: Path) -> None:
    tuning = start(2)
    nothing = tuning.run(PROBLEMS, budget=-1.0, options=OPTIONS)
    assert (nothing.outcomes, nothing.left_out) == ((), PROBLEMS)
    done = tuning.run(PROBLEMS, budget=600.0, options=OPTIONS)
    assert told(done) == alone(tmp_path / "alone")
    assert [outcome.problem for outcome in done.outcomes] == [*PROBLEMS]
    assert (done.gpus, done.left_out) == (2, ())
    assert winners(tmp_path / "home") == winners(tmp_path / "alone")
    opened = [opened_by(tmp_path / f"home-{number}") for number in range(2)]
    assert sum(opened) == len(PROBLEMS)  # each is tuned by one GPU, whole
    assert all(opened)
    locked.lock(tmp_path / "home", FAMILIES)
    with pytest.raises(StoreError, match="is locked by"):
        tuning.run(PROBLEMS, options=OPTIONS)


def test_gpus_share_a_problem_where_there_are_fewer_problems(start: Start, tmp_path: Path) -> None:
    tuning = start(3, problems=2)
    done = tuning.run(PROBLEMS[:2], options=OPTIONS)
    assert (len(tuning.tuners), tuning.width, done.gpus) == (2, 3, 3)
    assert told(done) == alone(tmp_path / "alone", PROBLEMS[:2])
    end = time.monotonic() + LONG_SECONDS
    while [opened_by(tmp_path / f"home-{number}") for number in range(3)] != [1, 1, 1]:  # the third may come late
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_gpu_that_is_lost_costs_a_new_start(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """A variant takes its process with it, which then never opens a problem again."""
    deadly, problems = some_names()[1], (*PROBLEMS, Problem(REDUCTION, SUM, {"n": 1 << 24}))
    tuning = start(2, of_0={deadly: "crash", "reopen": "crash"})
    done = tuning.run(problems, options=OPTIONS)
    assert "GPU 0 is lost, and the others go on" in caplog.text
    assert [tuner.name for tuner in tuning.tuners] == ["GPU 1"]
    assert [outcome.problem for outcome in done.outcomes] == [*problems]
    failed = [trial.variant.name for one in done.outcomes for trial in one.trials if trial.status == "launch_failed"]
    assert failed == [deadly]
    assert all(outcome.finals is not None for outcome in done.outcomes)


def test_where_the_last_is_lost_that_is_the_error(start: Start) -> None:
    with pytest.raises(TuningEndedError, match="could not be made ready again") as raised:
        start(1, of_0={some_names()[7]: "crash", "reopen": "crash"}).run(PROBLEMS, options=OPTIONS)
    assert raised.value.outcome.statuses["launch_failed"] == 1


def test_a_tuner_whose_process_dies_begins_anew(start: Start, tmp_path: Path) -> None:
    tuning, killed = start(2), list[int]()

    def tick(_problem: Problem, done: int, _every: int) -> None:
        if done == 10 and not killed:
            killed.extend(tuning.tuners[0].workers.pids)
            os.kill(killed[0], signal.SIGSEGV)

    done = tuning.run(PROBLEMS, options=OPTIONS, tick=tick)
    assert killed
    assert told(done) == alone(tmp_path / "alone")
    assert winners(tmp_path / "home") == winners(tmp_path / "alone")


def test_ctrl_c_keeps_what_was_tried_and_the_best_so_far(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the variants hang, so that no tuner comes to an end before the signal does; both have tried ten then."""
    pressed, late = threading.Event(), dict.fromkeys(some_names()[12:], "hang")
    tried: dict[str, int] = {}
    monkeypatch.setattr("gen.tune.parallel.STOP_SECONDS", LONG_SECONDS)

    def tick(problem: Problem, done: int, _every: int) -> None:
        tried[str(problem)] = done
        if len(tried) == 2 and min(tried.values()) >= 10 and not pressed.is_set():
            pressed.set()
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore the signal
    try:
        with pytest.raises(Interrupted) as raised:
            start(2, of_0=late, of_1=late).run(PROBLEMS, options=OPTIONS, tick=tick)
    finally:
        signal.signal(signal.SIGINT, before)
    assert raised.value.outcome.winner is not None
    assert raised.value.outcome.finals is None
    assert 1 <= len(read_winners(tmp_path / "home")) <= 2
    trials = Trials(tmp_path / "home")
    assert trials.count() >= 10
    trials.close()


def test_gpus_that_cannot_be_opened_are_left_out_and_a_wrong_base_ends_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dead = partial(IsolatedDevice, DyingBench({}, tmp_path / "dead", dies_at_start=True))
    wrong = partial(IsolatedDevice, DyingBench({"open": "wrong"}, tmp_path / "wrong"))
    with ParallelTuning({"GPU 0": dead, "GPU 1": wrong}, PlainCompiler(), FAMILIES, tmp_path / "home", 2) as tuning:
        assert [tuner.name for tuner in tuning.tuners] == ["GPU 1"]
        assert tuning.name == "Fake GPU"
        assert "GPU 0 is lost, and the others go on" in caplog.text
        with pytest.raises(RunError, match="is wrong"):
            tuning.run(PROBLEMS, options=OPTIONS)
    assert (tmp_path / "wrong").read_text().count("open") == 1  # none was begun after it


def some_names() -> list[str]:
    return [made.name for made in few(Space(REDUCTION, SUM)).ask(24)]
