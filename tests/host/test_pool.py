"""Several GPUs as one: no attempt is lost with a GPU, and how many there are decides nothing but the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.errors import DeviceError, GenError, RunError
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import find_family
from gen.store.trials import Problem, Trial, Trials
from gen.toolchain.compiled import Compiled
from gen.tune.device import Entrant, IsolatedDevice, Rounds
from gen.tune.one_problem import Options, tune
from gen.tune.outcome import Outcome, TuningEndedError
from gen.tune.pool import DevicePool
from gen.tune.search import InOrder, Search, Space, exhaustive
from tests.fake_tuning import DyingBench, FakeFarm, FakeSession, FakeTuningDevice, time_of

REDUCTION = find_family(FAMILIES, "reduction")
PROBLEM = Problem(REDUCTION, REDUCTION.catalogue[0], {"n": 4096})
COUNT = 60  # variants that are tried
GONE = RunError("The process that drives the GPU", "ended before it was ready, 3 times")


def text_of(made: Variant) -> str:
    return f"{made.name} {made.algorithm.name}_{made.config.tag}"


def some(space: Space) -> Search:
    """At most COUNT of a space, from all over it."""
    numbers = [number for number in range(0, space.size, max(space.size // 1500, 1)) if space.at(number)]
    return InOrder(space, numbers[:: -(-len(numbers) // COUNT)])


def entrants() -> list[Entrant]:
    found = exhaustive(Space(REDUCTION, PROBLEM.spec)).ask(12)
    return [Entrant(made, Compiled(made.name, "sm_90", made.name.encode(), {})) for made in found]


@dataclass
class SlowDevice(FakeTuningDevice):
    """A fake that takes some time, one attempt after another, and may be lost.

    Attributes:
        lost_after: attempts, after which nothing is answered any more.
        unready: why a problem is never ready there.
        failing_rounds: the rounds fail, and all that comes then.
        held_by: no attempt ends before so many of this device have; none is waited for longer than a while.
        most: attempts that were there at once, at most, done or not.
    """

    time_us: Callable[[Variant], float] = lambda made: time_of(made.name)
    lost_after: int | None = None
    unready: GenError | None = None
    failing_rounds: bool = False
    held_by: tuple[SlowDevice, int] | None = None
    closed: int = 0
    most: int = 0
    waiting: int = 0
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    @property
    def is_lost(self) -> bool:
        return self.lost_after is not None and len(self.attempts) >= self.lost_after

    def open(self, problem: Problem, base: Entrant) -> FakeSession:
        if self.is_lost:
            raise GONE
        made = super().open(problem, base)
        opening: Future[None] = self.pool.submit(self._begin, made.ready())
        return SlowSession(self, opening)

    def _begin(self, fake: Future[None]) -> None:
        if self.unready is not None:
            raise self.unready
        fake.result()

    def floor_us(self, problem: Problem) -> float:
        if self.is_lost:
            raise GONE
        return super().floor_us(problem)

    def close(self) -> None:
        self.closed += 1
        self.pool.shutdown(wait=True)


class SlowSession(FakeSession):
    _device: SlowDevice

    def submit(self, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        device = self._device
        device.waiting += 1
        device.most = max(device.most, device.waiting)
        return device.pool.submit(self._attempt, entrant, give_up_us)

    def _attempt(self, entrant: Entrant, give_up_us: float) -> Trial:
        device = self._device
        end = time.monotonic() + 300
        while device.held_by is not None and len(device.held_by[0].attempts) < device.held_by[1]:
            assert time.monotonic() < end, "it waits for a device that has nothing to do"
            time.sleep(0.001)
        time.sleep(float(np.random.default_rng(len(device.attempts)).random()) / 500)
        device.waiting -= 1
        if device.is_lost or self._opening.exception() is not None:
            raise GONE
        return super().submit(entrant, give_up_us).result()

    def rounds(self, entrants: Sequence[Entrant], count: int, *, hot: bool = False) -> Rounds:
        if self._device.failing_rounds:
            self._device.lost_after = 0
        if self._device.is_lost:
            raise GONE
        return super().rounds(entrants, count, hot=hot)


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[Trials]:
    found = Trials(tmp_path / "home")
    yield found
    found.close()


def several(*devices: FakeTuningDevice) -> DevicePool:
    openers: Mapping[str, Any] = {f"GPU {place}": partial(lambda one: one, one) for place, one in enumerate(devices)}
    return DevicePool(openers)


def tuned(device: DevicePool, trials: Trials) -> Outcome:
    with device:
        return tune(PROBLEM, device, FakeFarm(), trials, options=Options(some), text=text_of)


def told(outcome: Outcome) -> Any:
    """All that a run comes to, but the order in which attempts ended."""
    assert outcome.winner is not None
    statuses = {trial.variant.name: trial.status for trial in outcome.trials}
    return outcome.winner.variant.name, outcome.median_us, statuses, outcome.left_out


def test_the_outcome_is_the_same_for_any_number_of_devices(tmp_path: Path) -> None:
    seen = []
    for count in (1, 2, 3, 8):
        trials, devices = Trials(tmp_path / str(count)), [SlowDevice() for _ in range(count)]
        for one, other in pairwise(devices):
            one.held_by = other, 1  # none tries all before another has begun
        seen.append(told(tuned(several(*devices), trials)))
        names = [name for device in devices for name, _ in device.attempts]
        assert len(names) == len(set(names)) > COUNT / 2
        assert all(device.attempts for device in devices)
        assert [bool(device.finals) for device in devices] == [True] + [False] * (count - 1)
        assert [(device.open_sessions, device.closed) for device in devices] == [(0, 1)] * count
        trials.close()
    assert seen == [seen[0]] * len(seen)


def test_a_device_that_is_slow_is_given_less(trials: Trials) -> None:
    quick = SlowDevice()
    tuned(several(SlowDevice(held_by=(quick, COUNT // 3)), quick), trials)
    assert len(quick.attempts) > COUNT // 3


def test_no_device_waits_while_another_has_more_than_it_needs(trials: Trials) -> None:
    devices = [SlowDevice() for _ in range(4)]
    tuned(several(*devices), trials)
    assert all(device.most <= 6 for device in devices)  # twice what one alone is given
    assert {name for device in devices for name, _ in device.attempts} == {
        trial.variant.name for trial in tuned(several(SlowDevice(driver="2")), trials).trials if trial.times_us
    }


@pytest.mark.parametrize("lost", [{0: 0}, {1: 5}, {0: 3, 2: 7}, {0: 9, 1: 4, 3: 0}])
def test_a_device_that_is_lost_costs_nothing(trials: Trials, lost: dict[int, int]) -> None:
    """Not its jobs either where others are left: what it had queued they try, each variant once."""
    devices = [SlowDevice(lost_after=lost.get(place)) for place in range(4)]
    outcome = tuned(several(*devices), trials)
    names = [name for device in devices for name, _ in device.attempts]
    assert len(names) == len(set(names))
    assert set(outcome.statuses) <= {"ok", "infeasible", "pruned"}
    assert told(outcome) == told(tuned(several(SlowDevice(driver="2")), trials))
    assert [len(device.attempts) for place, device in enumerate(devices) if place in lost] == [*lost.values()]
    assert [bool(device.finals) for device in devices] == [place == min({*range(4)} - {*lost}) for place in range(4)]


def test_finals_go_on_elsewhere_where_their_device_is_lost(trials: Trials) -> None:
    devices = [SlowDevice(failing_rounds=True), SlowDevice(), SlowDevice()]
    outcome = tuned(several(*devices), trials)
    assert outcome.finals is not None
    assert [bool(device.finals) for device in devices] == [False, True, False]


def test_where_all_are_lost_what_was_tried_is_kept(trials: Trials) -> None:
    devices = [SlowDevice(lost_after=5), SlowDevice(lost_after=8)]
    with pytest.raises(TuningEndedError, match="ended before it was ready") as raised:
        tuned(several(*devices), trials)
    assert raised.value.outcome.statuses["ok"] == trials.count() - raised.value.outcome.statuses["infeasible"] == 13


def test_a_problem_that_one_device_cannot_take_the_others_take(
    trials: Trials, caplog: pytest.LogCaptureFixture
) -> None:
    full = DeviceError("The GPU's memory", "does not hold 8 bytes more")
    devices = [SlowDevice(unready=full), SlowDevice(), SlowDevice(base_wrong=True)]
    with several(*devices) as both:
        first = tune(PROBLEM, both, FakeFarm(), trials, options=Options(some), text=text_of)
        devices[0].unready = None
        tune(PROBLEM, both, FakeFarm(version="2"), trials, options=Options(some), text=text_of)
    assert first.winner is not None
    assert "GPU 0 is left out until the next problem: The GPU's memory does not hold" in caplog.text
    assert "GPU 2 is left out until the next problem" in caplog.text
    assert [len(device.seen) for device in devices] == [2, 2, 2]
    assert devices[0].finals
    assert not devices[2].attempts


def test_where_base_is_wrong_on_all_that_is_the_error(trials: Trials) -> None:
    with pytest.raises(RunError, match="is wrong: out must be"):
        tuned(several(SlowDevice(base_wrong=True), SlowDevice(base_wrong=True)), trials)


def test_a_lost_device_is_closed_and_not_asked_again(trials: Trials, caplog: pytest.LogCaptureFixture) -> None:
    devices = [SlowDevice(lost_after=2), SlowDevice()]
    with several(*devices) as both:
        for version in ("1", "2"):
            tune(PROBLEM, both, FakeFarm(version=version), trials, options=Options(some), text=text_of)
        assert [len(device.seen) for device in devices] == [1, 2]
        assert devices[0].closed == 1
        both.prepare(PROBLEM)
    assert caplog.text.count("GPU 0 is lost, and the others go on") == 1
    assert [len(device.prepared) for device in devices] == [0, 1]


def test_devices_that_cannot_be_opened_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> Any:
        raise DeviceError("The GPU", "cannot be used", "out of memory")

    def fail() -> Any:
        raise ValueError("a bug")

    with DevicePool({"GPU 0": refuse, "GPU 1": SlowDevice, "GPU 2": SlowDevice}) as left:
        assert left.width == 2
    assert "GPU 0 is left out: The GPU cannot be used (got out of memory)" in caplog.text
    with pytest.raises(DeviceError, match="cannot be used"):
        DevicePool({"GPU 0": refuse, "GPU 1": refuse})
    with pytest.raises(ValueError, match="a bug"):
        DevicePool({"GPU 0": fail, "GPU 1": SlowDevice})
    others = [SlowDevice(), SlowDevice(name="Other GPU")]
    with pytest.raises(DeviceError, match=r"must be of one model \(got Fake GPU, Other GPU\)"):
        several(*others)
    assert [device.closed for device in others] == [1, 1]


def test_attempts_that_end_on_many_threads_are_all_answered() -> None:
    """Submitted by several threads, while two of four devices are lost."""
    devices = [SlowDevice(lost_after=lost) for lost in (None, 20, None, 11)]
    found: list[Trial] = []
    with several(*devices) as all_of_them:
        session = all_of_them.open(PROBLEM, entrants()[0])
        submit = lambda: found.extend(  # noqa: E731
            future.result(300) for future in [session.submit(one, 1e9) for one in entrants() * 5]
        )
        threads = [threading.Thread(target=submit) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        session.close()
    assert len(found) == 4 * 5 * 12
    assert sum(len(device.attempts) for device in devices) == len(found)


def test_one_of_four_processes_that_is_killed_for_good_costs_its_job_alone(tmp_path: Path, trials: Trials) -> None:
    """A variant takes its process with it, which then never gets ready again."""
    names = [made.name for made in some(Space(REDUCTION, PROBLEM.spec)).ask(COUNT)]
    deadly = names[len(names) // 2]
    benches = {
        f"GPU {place}": partial(
            IsolatedDevice, DyingBench({deadly: "crash", "reopen": "crash"}, tmp_path / f"starts{place}", 0.002)
        )
        for place in range(4)
    }
    outcome = tuned(DevicePool(benches), trials)
    failed = [trial.variant.name for trial in outcome.trials if trial.status not in ("ok", "infeasible", "pruned")]
    assert failed == [deadly]
    assert outcome.winner is not None
    alone = FakeTuningDevice(lambda made: time_of(made.name), driver="2", bad={deadly: "launch_failed"})
    again = tune(PROBLEM, alone, FakeFarm(), trials, options=Options(some), text=text_of)
    assert again.winner is not None
    assert outcome.winner.variant.name == again.winner.variant.name
    opened = [(tmp_path / f"starts{place}").read_text().count("open") for place in range(4)]
    assert sorted(opened) == [1, 1, 1, 4]  # three times it was tried again
