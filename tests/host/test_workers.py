"""Processes that do jobs: what a job does to its process costs that job alone, and none outlives its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from gen.errors import ConfigError, GenError, RunError
from gen.workers import Ended, Last, Report, Workers, next_of, result_of

State = list[Report]
CHECKOUT = Path(__file__).parents[2]


def begin(report: Report) -> State:
    return [report]


def add(_: State, *numbers: int) -> int:
    return sum(numbers)


def refuse(_: object) -> State:
    raise ConfigError("x", "must be y")


def spoil(_: State, value: int | None) -> Any:
    return Last(value, None if value is not None else RunError("The state", "is lost"))


def step(state: State, names: tuple[str, ...], seconds: float, last: str) -> str:
    """Reports each name, works for a while, and comes to an end at one of them."""
    for name in names:
        state[0](name, 1.0)
        time.sleep(seconds)
        if name == last:
            os.abort()
    return "done"


def wait_in_c(_: State) -> None:
    """Waits without giving up the interpreter's lock: no thread of the process can do anything."""
    ctypes.PyDLL(None).sleep(600)


class Unreadable:
    def __reduce__(self) -> tuple[object, ...]:
        return int, ("no number",)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers[State]]:
    with Workers(begin, doing="adds", count=2) as made:
        yield made


def failed(ended: Ended) -> str:
    return f"{ended.how} at {ended.message}: {ended.reason}"


def test_jobs_give_what_they_return_or_raise(workers: Workers[State]) -> None:
    futures = [workers.submit(add, n, 1) for n in range(20)]
    refused = workers.submit(refuse)
    assert [future.result(300) for future in futures] == list(range(1, 21))
    with pytest.raises(ConfigError, match="x must be y"):
        refused.result(300)
    assert workers.submit(add, 2, received=lambda value: value * 21).result(300) == 42
    assert len(set(workers.pids)) == 2


def test_a_job_reports_and_each_step_has_its_own_time(workers: Workers[State]) -> None:
    heard: list[str] = []
    future = workers.submit(step, ("a", "b", "c"), 0.6, "", seconds=5.0, reported=heard.append)
    assert future.result(300) == "done"  # longer than any of its steps may take
    assert heard == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("seconds", "how"),
    [(0.0, "crashed at b: the process that adds died of it"), (2.0, "hung at a: it did not end within 1 s")],
)
def test_who_ends_a_process_is_known_by_the_last_that_it_reported(
    workers: Workers[State], seconds: float, how: str
) -> None:
    before = workers.restarts
    future = workers.submit(step, ("a", "b", "c"), seconds, "b", ended=failed)
    others = [workers.submit(add, n) for n in range(4)]
    assert future.result(300) == how
    assert [other.result(300) for other in others] == list(range(4))
    assert workers.restarts == before + 1


def test_a_job_that_spoils_the_state_gives_its_result_and_ends_its_process(workers: Workers[State]) -> None:
    before = set(workers.pids)
    assert workers.submit(spoil, 3).result(300) == 3
    with pytest.raises(RunError, match="The state is lost"):
        workers.submit(spoil, None).result(300)
    assert workers.submit(add, 1).result(300) == 1
    assert len(before & set(workers.pids)) <= 1


def test_a_job_that_cannot_be_read_ends_its_process_and_no_more(workers: Workers[State]) -> None:
    with pytest.raises(RunError, match="died of it"):
        workers.submit(add, Unreadable()).result(300)  # type: ignore[arg-type]
    assert workers.submit(add, 1).result(300) == 1


def test_a_result_that_cannot_be_used_is_told_to_who_waits(workers: Workers[State]) -> None:
    def received(_: object) -> None:
        raise KeyError("unexpected")

    with pytest.raises(KeyError, match="unexpected"):
        workers.submit(add, 1, received=received).result(300)
    assert workers.submit(add, 1).result(300) == 1


def test_what_begin_raises_is_told_to_everybody() -> None:
    with Workers(refuse, doing="refuses") as workers:
        for future in [workers.submit(add, 1) for _ in range(2)]:
            with pytest.raises(GenError, match="x must be y"):
                future.result(300)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_workers_end_with_the_process_that_started_them_whatever_they_are_at(number: signal.Signals) -> None:
    code = (
        "import time; from gen.workers import Workers; from tests.host import test_workers as t\n"
        "workers = Workers(t.begin, doing='adds', count=2)\n"
        "workers.submit(t.add, 1).result(); workers.submit(t.wait_in_c)\n"
        "time.sleep(0.1); print(*workers.pids, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(running, pids))
    parent.send_signal(number)
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 300
    while any(map(running, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(running, pids))


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


# waits that Ctrl-C ends

# The signal comes to the other thread alone: the main one blocks it. Without a step of its own it would wait on.
ENDED = """
import os, signal, threading, time
from concurrent.futures import Future
from queue import SimpleQueue
from gen.workers import next_of, result_of
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
def interrupt():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {{signal.SIGINT}})
    os.kill(os.getpid(), signal.SIGINT)
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})
threading.Timer(0.2, interrupt).start()
{wait}
"""


@pytest.mark.parametrize("wait", ["result_of(Future())", "next_of(SimpleQueue())"])
def test_a_signal_that_another_thread_gets_ends_a_wait(wait: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDED.format(wait=wait)], cwd=CHECKOUT, stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert b"KeyboardInterrupt" in done.stderr


def test_waits_give_what_was_waited_for() -> None:
    future: Future[int] = Future()
    future.set_result(3)
    queue: SimpleQueue[int] = SimpleQueue()
    queue.put(4)
    assert (result_of(future), next_of(queue)) == (3, 4)


def test_an_error_comes_through() -> None:
    future: Future[int] = Future()
    future.set_exception(TimeoutError("its own"))
    with pytest.raises(TimeoutError, match="its own"):
        result_of(future)


def test_waits_end_at_a_deadline_and_take_what_is_there_by_then() -> None:
    past = time.monotonic() - 1
    with pytest.raises(TimeoutError):
        result_of(Future[int](), past)
    with pytest.raises(Empty):
        next_of(SimpleQueue[int](), past)
    future, queue = Future[int](), SimpleQueue[int]()
    future.set_result(3)
    queue.put(4)
    assert (result_of(future, past), next_of(queue, past)) == (3, 4)
