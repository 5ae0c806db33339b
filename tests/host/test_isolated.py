"""What a kernel does to the process that drives the GPU costs one trial; on a device that is none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from gen.errors import RunError
from gen.families import FAMILIES
from gen.families.names import find_family
from gen.store.trials import Problem
from gen.toolchain.compiled import Compiled
from gen.tune.device import Entrant, IsolatedDevice, _Driver
from gen.tune.search import Space, exhaustive
from gen.workers import MAX_STARTS
from tests.fake_tuning import DyingBench, time_of

STENCIL = find_family(FAMILIES, "stencil")
SPEC = STENCIL.catalogue[0]
PROBLEM = Problem(STENCIL, SPEC, {"rows": 64, "cols": 96, "in_pitch": 96, "out_pitch": 96})
ENTRANTS = [
    Entrant(made, Compiled(made.name, "sm_90", b"code", {})) for made in exhaustive(Space(STENCIL, SPEC)).ask(6)
]
BASE, FIRST, SECOND, THIRD = ENTRANTS[:4]
Start = Callable[..., IsolatedDevice]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a device whose variants misbehave as told; the watchdog is short."""
    begun: list[IsolatedDevice] = []

    def begin(watchdog: float = 30.0, **misdeeds: str) -> IsolatedDevice:
        names = {"base": BASE.name, "first": FIRST.name, "second": SECOND.name, "third": THIRD.name}
        spelled = {}
        for key, misdeed in misdeeds.items():
            head, _, tail = key.rpartition("_")
            spelled[f"final:{names[tail]}" if head == "final" else names.get(key, key)] = misdeed
        begun.append(IsolatedDevice(DyingBench(spelled, tmp_path / "starts"), watchdog=watchdog))
        return begun[-1]

    yield begin
    for device in begun:
        device.close()


def notes(folder: Path) -> list[str]:
    return (folder / "starts").read_text().splitlines()


def test_it_says_what_the_device_is_and_does_what_it_is_asked(start: Start, tmp_path: Path) -> None:
    device = start()
    assert (device.name, device.driver, device.limits.arch, device.about) == ("Fake GPU", "1.0", "sm_90", "about it")
    assert device.floor_us(PROBLEM) == 5.0
    session = device.open(PROBLEM, BASE)
    session.ready().result()
    futures = [session.submit(one, 100.0) for one in ENTRANTS]
    assert [future.result().variant for future in futures] == [one.variant for one in ENTRANTS]
    assert {future.result().times_us[0] for future in futures} == {time_of(one.name) for one in ENTRANTS}
    rounds = session.rounds(ENTRANTS[:2], 6)
    assert {name: len(times) for name, times in rounds.times_us.items()} == {BASE.name: 6, FIRST.name: 6}
    session.close()
    device.floor_us(PROBLEM)
    assert notes(tmp_path) == ["start", f"open {BASE.name}", "close"]
    assert device.restarts == 0


@pytest.mark.parametrize(
    ("misdeed", "status", "reason"),
    [
        ("crash", "launch_failed", "died of it"),
        ("hang", "timeout", "did not end within 3 s"),
        ("lose", "launch_failed", "lose"),
        ("wrong", "wrong_result", "wrong"),
    ],
)
def test_a_bad_variant_costs_one_trial_and_one_restart(
    start: Start, tmp_path: Path, misdeed: str, status: str, reason: str
) -> None:
    device = start(watchdog=3.0 if misdeed == "hang" else 30.0, second=misdeed)
    session = device.open(PROBLEM, BASE)
    trials = [future.result() for future in [session.submit(one, 100.0) for one in ENTRANTS]]
    assert [trial.status for trial in trials] == ["ok", "ok", status, "ok", "ok", "ok"]
    assert reason in trials[2].reason
    assert device.restarts == (misdeed != "wrong")
    again = ["start", f"open {BASE.name}"] * device.restarts
    assert notes(tmp_path) == ["start", f"open {BASE.name}", *again]


@pytest.mark.parametrize(
    ("misdeed", "status"), [("crash", "launch_failed"), ("hang", "timeout"), ("wrong", "wrong_result")]
)
def test_a_bad_finalist_is_named(start: Start, misdeed: str, status: str) -> None:
    device = start(watchdog=3.0 if misdeed == "hang" else 30.0, final_second=misdeed)
    session = device.open(PROBLEM, BASE)
    (fault,) = session.rounds([FIRST, SECOND, THIRD], 4).faults
    assert (fault.variant, fault.status) == (SECOND.variant, status)
    assert set(session.rounds([FIRST, THIRD], 4).times_us) == {FIRST.name, THIRD.name}


def test_what_somebody_else_ends_is_tried_once_more(start: Start, tmp_path: Path) -> None:
    device = start(second="killed once")
    session = device.open(PROBLEM, BASE)
    trials = [future.result(300) for future in [session.submit(one, 100.0) for one in ENTRANTS]]
    assert [trial.status for trial in trials] == ["ok"] * 6
    assert notes(tmp_path) == ["start", f"open {BASE.name}", "killed", "start", f"open {BASE.name}"]


def test_what_somebody_else_ends_again_is_no_fault_of_the_variant(start: Start) -> None:
    device = start(second="killed", final_third="killed")
    session = device.open(PROBLEM, BASE)
    trials = [future.result(300) for future in [session.submit(one, 100.0) for one in ENTRANTS]]
    assert [trial.status for trial in trials] == ["ok", "ok", "launch_failed", "ok", "ok", "ok"]
    assert [trial.outside for trial in trials] == [False, False, True, False, False, False]
    assert trials[2].reason == "somebody else ended the process that drives the GPU (SIGKILL), twice"
    (fault,) = session.rounds([FIRST, THIRD], 4).faults
    assert (fault.variant, fault.outside) == (THIRD.variant, True)
    assert session.ready().result() is None


def test_an_opening_that_somebody_ends_is_begun_anew(start: Start, tmp_path: Path) -> None:
    session = start(open="killed once").open(PROBLEM, BASE)
    assert session.submit(FIRST, 100.0).result(300).status == "ok"
    assert notes(tmp_path) == ["start", f"open {BASE.name}", "killed", "start", f"open {BASE.name}"]


@pytest.mark.parametrize("misdeed", ["crash", "killed", "lose"])
def test_a_problem_that_cannot_be_opened_again_is_an_error_in_words(start: Start, tmp_path: Path, misdeed: str) -> None:
    device = start(first="crash", reopen=misdeed)
    session = device.open(PROBLEM, BASE)
    futures = [session.submit(one, 100.0) for one in ENTRANTS]
    assert futures[0].result(300).status == "ok"
    assert futures[1].result(300).status == "launch_failed"
    with pytest.raises(RunError, match=f"{BASE.name} on .* could not be made ready again, {MAX_STARTS} times"):
        futures[2].result(300)
    assert [note.split()[0] for note in notes(tmp_path) if note != "killed"] == ["start", "open"] * (1 + MAX_STARTS)


def test_what_waits_hears_why_a_problem_is_not_open_again(start: Start) -> None:
    session = start(first="crash", reopen="wrong").open(PROBLEM, BASE)
    failed, later = session.submit(FIRST, 100.0), session.submit(SECOND, 100.0)
    assert failed.result(300).status == "launch_failed"
    with pytest.raises(RunError, match=f"{BASE.name} is wrong"):
        later.result(300)


def test_an_opening_that_takes_too_long_is_told_by_its_own_limit(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gen.tune.device.OTHER_SECONDS", 2.0)
    session = start(watchdog=1.0, open="hang").open(PROBLEM, BASE)
    with pytest.raises(RunError, match=r"failed while it was to open \(got it did not end within 2 s\)"):
        session.ready().result(300)


def test_every_variant_may_kill_it(start: Start) -> None:
    device = start(first="crash", second="crash", third="lose")
    session = device.open(PROBLEM, BASE)
    trials = [future.result() for future in [session.submit(one, 100.0) for one in ENTRANTS]]
    assert [trial.status for trial in trials] == ["ok", "launch_failed", "launch_failed", "launch_failed", "ok", "ok"]
    assert device.restarts == 3


def test_a_wrong_base_is_an_error_of_the_opening_alone(start: Start) -> None:
    device = start(open="wrong")
    session = device.open(PROBLEM, BASE)
    with pytest.raises(RunError, match="is wrong"):
        session.ready().result()
    assert device.floor_us(PROBLEM) == 5.0


def test_a_process_that_never_gets_ready_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="ended before it was ready"):
        IsolatedDevice(DyingBench({}, tmp_path / "starts", dies_at_start=True))


@pytest.mark.parametrize("misdeed", ["crash", "lose"])
def test_where_it_cannot_start_again_all_who_wait_hear_of_it(
    start: Start, monkeypatch: pytest.MonkeyPatch, misdeed: str
) -> None:
    """Whether the process died, or answered and has lost the device."""
    device = start(first=misdeed)
    session = device.open(PROBLEM, BASE)
    session.ready().result()
    begin = partial(_Driver, DyingBench({}, Path("/dev/null"), dies_at_start=True))
    monkeypatch.setattr(device.workers, "_begin", begin)
    futures = [session.submit(one, 100.0) for one in (FIRST, SECOND)]
    assert futures[0].result(300).status == "launch_failed"
    with pytest.raises(RunError, match="ended before it was ready"):
        futures[1].result(300)
    with pytest.raises(RunError, match="ended before it was ready"):
        session.submit(THIRD, 1.0).result(300)
    assert device.restarts == MAX_STARTS


@pytest.mark.parametrize("refusal", [BlockingIOError(11, "Resource temporarily unavailable"), EOFError("unexpected")])
def test_where_the_system_starts_no_process_all_who_wait_hear_of_it(
    start: Start, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    device = start(first="crash")
    session = device.open(PROBLEM, BASE)
    session.ready().result()

    def refused(_: object) -> None:
        raise refusal

    monkeypatch.setattr("multiprocessing.forkserver.connect_to_new_process", refused)
    futures = [session.submit(one, 100.0) for one in (FIRST, SECOND)]
    assert futures[0].result(300).status == "launch_failed"
    with pytest.raises(RunError, match="A process that drives the GPU cannot be started"):
        futures[1].result(300)


def test_closing_ends_the_process_whatever_it_is_at(start: Start) -> None:
    device = start(first="hang")
    session = device.open(PROBLEM, BASE)
    session.ready().result()
    hanging = session.submit(FIRST, 1.0)
    (pid,) = device.workers.pids
    time.sleep(0.05)
    device.close()
    with pytest.raises(RunError, match="was closed"):  # not by the watchdog, nor when the variant had ended
        hanging.result(0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
