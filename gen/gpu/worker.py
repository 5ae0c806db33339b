"""The process that drives a GPU: does what it is told through a pipe, and ends with its parent.

`gen.gpu.isolated` is the side that tells it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Literal

from gen.errors import GenError, RunError
from gen.families.base import Limits
from gen.gpu.trial import Bench, BenchSession, Rounds, Trial

SWITCH_SECONDS = 2e-4  # a thread that computes for later must not keep waiting the one that measures now
What = Literal["hello", "floor", "prepare", "open", "attempt", "rounds", "close"]


@dataclass(frozen=True)
class Hello:
    """What the process says of its device when it has started; `about` is all that the bench adds."""

    name: str
    driver: str
    limits: Limits
    about: Any = None


@dataclass(frozen=True)
class Request:
    """What the process is to do; `arguments` are those of the bench's or the session's method."""

    number: int
    what: What
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Reply:
    """What came of a request.

    Attributes:
        error: what it raised.
        lost: the device does not answer any more; the process ends.
    """

    number: int
    value: Any = None
    error: GenError | None = None
    lost: bool = False


@dataclass(frozen=True)
class Now:
    """A request for several variants has come to this one."""

    name: str


def serve(pipe: Connection, factory: Callable[[], Bench]) -> None:
    """Drives a device until the pipe or the device ends. Runs on the main thread of a process of its own."""
    sys.setswitchinterval(SWITCH_SECONDS)
    requests: SimpleQueue[Request] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, requests), daemon=True).start()
    hello = requests.get()
    try:
        bench = factory()
    except GenError as error:
        pipe.send(Reply(hello.number, error=error))
        return
    pipe.send(Reply(hello.number, Hello(bench.name, bench.driver, bench.limits, getattr(bench, "about", None))))
    desk = _Desk(bench, lambda name: pipe.send(Now(name)))
    while True:
        reply = desk.answer(requests.get())
        pipe.send(reply)
        if reply.lost:
            os._exit(1)  # without a clean-up, which the device would answer with errors


class _Desk:
    """Answers one request after another."""

    def __init__(self, bench: Bench, tell: Callable[[str], None]) -> None:
        self._bench, self._tell = bench, tell
        self._session: BenchSession | None = None
        self._unopened: GenError = RunError("The GPU", "has no problem open")  # why there is no session

    def answer(self, request: Request) -> Reply:
        value, failed = None, None
        try:
            value = self._do(request)
        except GenError as error:
            failed = error
        suspect = (
            failed is not None
            or (isinstance(value, Trial) and value.status in ("launch_failed", "wrong_result"))
            or (isinstance(value, Rounds) and bool(value.faults))
        )
        return Reply(request.number, value, failed, suspect and not self._bench.alive())

    def _do(self, request: Request) -> Any:
        if request.what == "floor":
            return self._bench.floor_us(*request.arguments)
        if request.what == "prepare":
            self._bench.prepare(*request.arguments)
            return None
        if request.what == "open":
            self._close()
            try:
                self._session = self._bench.open(*request.arguments)
            except GenError as error:
                self._unopened = error
                raise
            return None
        if request.what == "close":
            self._close()
            return None
        if self._session is None:
            raise self._unopened
        if request.what == "attempt":
            return self._session.attempt(*request.arguments)
        entrants, turns, hot = request.arguments
        return self._session.rounds(entrants, turns, self._tell, hot=hot)

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _listen(pipe: Connection, requests: SimpleQueue[Request]) -> None:
    """Takes requests as they come, so that whoever sends them never waits; ends the process with its parent."""
    try:
        while True:
            requests.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(0)
