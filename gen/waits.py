"""Waits that Ctrl-C ends, whichever thread its signal comes to.

Python's handler runs on the main thread, between two steps of its own. A wait for a lock goes on meanwhile where the
signal has come to another thread, or where a library has asked that signals interrupt no call: NVRTC does.
"""

from __future__ import annotations

from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from typing import TypeVar

_MOMENT = 0.1  # seconds until the main thread takes a step

T = TypeVar("T")


def result_of(future: Future[T]) -> T:
    """What a future holds once it is done. Raises what it raises."""
    while not wait([future], _MOMENT).done:
        pass
    return future.result()


def next_of(queue: SimpleQueue[T]) -> T:
    """The next that comes out of a queue."""
    while True:
        try:
            return queue.get(timeout=_MOMENT)
        except Empty:
            continue
