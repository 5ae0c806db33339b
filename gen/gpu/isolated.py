"""A GPU driven by a process that may die: what a kernel does to it costs one trial and one restart.

The process has two requests at a time, so that it never waits for this one. Where a request takes longer than the
watchdog allows, or ends the process, this side answers it with what happened, starts the process anew, opens the
problem again, and sends once more what had not begun. A request during which somebody else ended the process is sent
once more too: it is not at fault.
"""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from gen.errors import GenError, RunError
from gen.forks import fork
from gen.gpu.pending import Pending, bury, ours
from gen.gpu.trial import Bench, Entrant, Problem, Rounds, Status, Trial
from gen.gpu.worker import Hello, Now, Reply, Request, What, serve

WATCHDOG = 10.0  # seconds in which an attempt must end, and a turn of a finalist
PATIENCE = 600.0  # seconds for all else, where no kernel in doubt runs: NumPy may take its time
STARTS = 3  # times in a row that the process may end before it is ready, or before the problem is open again
# What others end a process by: a user, a scheduler, the kernel for want of memory. A fault of its own is none of them.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
ENDS = 60.0  # seconds that the driver may take to end a process
AHEAD = 2  # requests that the process has: the one it is at, and the next


class IsolatedDevice:
    """A device in a process that may die; implements `Device`.

    Attributes:
        name, driver, limits: the device's.
        about: what its bench adds.
        restarts: how often the process had to be started again.
    """

    def __init__(self, factory: Callable[[], Bench], *, watchdog: float = WATCHDOG) -> None:
        """Starts the process.

        Args:
            factory: makes the device ready there; can be pickled.
            watchdog: seconds in which an attempt must end.

        Raises:
            GenError: what the factory raises, or the process ends before it is ready.
        """
        self.restarts = 0
        self._factory, self._watchdog = factory, watchdog
        self._numbers = itertools.count()
        self._waiting: deque[Pending] = deque()  # not sent
        self._sent: deque[Pending] = deque()  # the process is at the first
        self._opened: Request | None = None  # the problem to open again
        self._reopened = 0  # times in a row that the process ended while it was to
        self._at = ""  # the variant that a request for several has come to
        self._began = 0.0  # the first of `_sent`, or its variant
        self._lock = threading.Lock()
        self._end: GenError | None = None  # why no more is taken
        self._woken, self._wake = Pipe(duplex=False)
        self._process, self._pipe, hello = self._start()
        self.name, self.driver, self.limits, self.about = hello.name, hello.driver, hello.limits, hello.about
        self._thread = threading.Thread(target=self._run, name="gpu", daemon=True)
        self._thread.start()

    def open(self, problem: Problem, base: Entrant) -> IsolatedSession:
        """Begins to make a problem ready."""
        return IsolatedSession(self, self.ask("open", problem, base))

    def prepare(self, problem: Problem) -> None:
        """Announces a problem that will be opened later; whatever comes of it shows then."""
        self.ask("prepare", problem)

    def floor_us(self, problem: Problem) -> float:
        """The least time of such a problem, by the device's calibration."""
        return float(self.ask("floor", problem).result())

    def close(self) -> None:
        """Ends the process, whatever it is at."""
        with self._lock:
            self._end = self._end or RunError("The GPU", "has been given back")
        self._wake.send(None)
        self._thread.join()

    def __enter__(self) -> IsolatedDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, what: What, *arguments: Any) -> Future[Any]:
        """Queues a request."""
        pending = Pending(Request(next(self._numbers), what, arguments))
        with self._lock:
            if self._end is not None:
                raise self._end
            self._waiting.append(pending)
        self._wake.send(None)
        return pending.future

    def _start(self) -> tuple[BaseProcess, Connection, Hello]:
        process, ours = fork(serve, self._factory, name="gen-gpu")
        ours.send(Request(next(self._numbers), "hello"))
        reply = None
        try:
            if ours.poll(PATIENCE):
                reply = ours.recv()
        except (EOFError, OSError):
            pass
        if reply is None or reply.error is not None:
            _kill(process, ours)
            raise (
                RunError("The process that drives the GPU", "ended before it was ready")
                if reply is None
                else reply.error
            )
        return process, ours, reply.value

    # What follows runs on the thread alone.

    def _run(self) -> None:
        try:
            while self._take():
                self._serve()
        except GenError as error:  # the process cannot be started again
            with self._lock:
                self._end = error
        _kill(self._process, self._pipe)
        assert self._end is not None
        for pending in (*self._sent, *self._waiting):
            if pending.future.running() or pending.future.set_running_or_notify_cancel():
                pending.future.set_exception(self._end)

    def _take(self) -> bool:
        """Sends what the process has room for; False if it is to end."""
        with self._lock:
            if self._end is not None:
                return False
            while self._waiting and len(self._sent) < AHEAD:
                pending = self._waiting.popleft()
                if pending.future.set_running_or_notify_cancel():
                    if not self._sent:
                        self._begin()
                    self._sent.append(pending)
                    self._send(pending.request)
        return True

    def _serve(self) -> None:
        """Waits for the process, for the watchdog, or for a new request, and does what is due."""
        left, most = None, PATIENCE
        if self._sent:
            if self._sent[0].request.what in ("attempt", "rounds"):  # a kernel in doubt
                most = self._watchdog
            left = max(self._began + most - time.monotonic(), 0)
        ready = wait([self._pipe, self._woken], left)
        if self._woken in ready:
            self._woken.recv()
        if self._pipe in ready:
            try:
                message = self._pipe.recv()
            except (EOFError, OSError):
                self._process.join(ENDS)
                by = -(self._process.exitcode or 0)
                if by in FROM_OUTSIDE:
                    self._killed(f"somebody else ended the process that drives the GPU ({signal.Signals(by).name})")
                else:
                    self._died("launch_failed", "the process that drives the GPU died of it")
                return
            self._begin(message.name if isinstance(message, Now) else "")
            if isinstance(message, Reply):
                self._answer(message)
        elif not ready:
            self._died("timeout", f"it did not end within {most:g} s")

    def _begin(self, at: str = "") -> None:
        self._began, self._at = time.monotonic(), at

    def _send(self, request: Request) -> None:
        with suppress(OSError):  # where it has died, the pipe tells next
            self._pipe.send(request)

    def _answer(self, reply: Reply) -> None:
        pending = self._sent.popleft()
        assert pending.request.number == reply.number
        if reply.error is None and pending.request.what in ("open", "close"):
            self._opened = pending.request if pending.request.what == "open" else None
        try:
            if pending.again == "reopen" and reply.lost:
                self._count_reopening(str(reply.error))
            elif pending.again == "reopen":
                self._reopened = 0
            if reply.lost:
                self._restart()
        finally:  # also where no process starts any more: somebody waits
            if reply.error is not None:
                pending.future.set_exception(reply.error)
            else:
                pending.future.set_result(ours(pending.request, reply.value))

    def _died(self, status: Status, reason: str, *, outside: bool = False) -> None:
        """Says for the process what became of the request that it was at, and starts it anew."""
        at = self._at
        pending = self._sent.popleft() if self._sent else None
        try:
            if pending is not None and pending.again == "reopen":
                self._count_reopening(reason)
            self._restart()
        finally:
            if pending is not None:
                bury(pending, at, status, reason, outside=outside)

    def _killed(self, reason: str) -> None:
        """Starts the process anew, and has it do once more what it was at, but not a third time."""
        if self._sent and self._sent[0].again:
            self._died("launch_failed", f"{reason}, twice", outside=True)
            return
        if self._sent:
            self._sent[0].again = "retry"
        self._restart()

    def _count_reopening(self, reason: str) -> None:
        """Raises RunError if the process has ended too often while it was to open the problem again."""
        self._reopened += 1
        if self._reopened >= STARTS:
            assert self._opened is not None
            problem, base = self._opened.arguments
            raise RunError(f"{base.name} on {problem}", f"could not be made ready again, {STARTS} times", reason)

    def _restart(self) -> None:
        """A new process, the problem open in it, which has been sent what the old one had not begun."""
        _kill(self._process, self._pipe)
        self.restarts += 1
        for start in range(1, STARTS + 1):
            try:
                self._process, self._pipe, _ = self._start()
                break
            except RunError:
                if start == STARTS:
                    raise
        if self._opened is not None:
            self._sent.appendleft(Pending(self._opened, again="reopen"))
        self._begin()
        for pending in self._sent:
            self._send(pending.request)


class IsolatedSession:
    """A problem in that process; implements `Session`."""

    def __init__(self, device: IsolatedDevice, opening: Future[None]) -> None:
        self._device, self._opening = device, opening

    def ready(self) -> Future[None]:
        """Done when base is proven; holds the RunError if it is wrong."""
        return self._opening

    def submit(self, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        """Queues an attempt."""
        return self._device.ask("attempt", entrant, give_up_us)

    def rounds(self, entrants: Sequence[Entrant], turns: int, *, hot: bool = False) -> Rounds:
        """Times variants in turns."""
        found: Rounds = self._device.ask("rounds", tuple(entrants), turns, hot).result()
        return found

    def close(self) -> None:
        """Has the device's memory given back, as soon as it is done with what it is at."""
        with suppress(RunError):  # where the process is gone for good, so is its memory
            self._device.ask("close")


def _kill(process: BaseProcess, pipe: Connection) -> None:
    pipe.close()
    process.kill()
    process.join(ENDS)  # a kernel that hangs is ended with it, which takes the driver some time
