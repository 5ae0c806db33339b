"""Ctrl-C ends a wait, also where the signal comes to another thread than the one that waits."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from gen.waits import next_of, result_of

CHECKOUT = Path(__file__).parents[2]
# The signal comes to the other thread alone: the main one blocks it. Without a step of its own it would wait on.
ENDED = """
import os, signal, threading, time
from concurrent.futures import Future
from queue import SimpleQueue
from gen.waits import next_of, result_of
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
