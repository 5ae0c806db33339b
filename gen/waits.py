"""Waits that Ctrl-C ends, whichever thread its signal comes to.

Python's handler runs on the main thread, between two steps of its own. A wait for a lock goes on meanwhile where the
signal has come to another thread, or where a library has asked that signals interrupt no call: NVRTC does.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from typing import TypeVar

_MOMENT = 0.1  # seconds until the main thread takes a step

T = TypeVar("T")


def result_of(future: Future[T], deadline: float | None = None) -> T:
    """What a future holds once it is done. Raises what it raises, or TimeoutError after a deadline of `monotonic()`."""
    while not wait([future], _left(deadline)).done:
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError
    return future.result()


def next_of(queue: SimpleQueue[T], deadline: float | None = None) -> T:
    """The next that comes out of a queue. Raises Empty after a deadline of `time.monotonic()`."""
    while True:
        try:
            return queue.get(timeout=_left(deadline))
        except Empty:
            if deadline is not None and time.monotonic() >= deadline:
                raise


def _left(deadline: float | None) -> float:
    return _MOMENT if deadline is None else min(max(deadline - time.monotonic(), 0.0), _MOMENT)
