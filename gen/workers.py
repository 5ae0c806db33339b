"""Supervised processes that do jobs one after another.

A job that crashes its process, or takes too long, fails and costs one restart; all other jobs go on. A job during which
somebody else ends the process is done once more. When this process ends, in any way, its workers end too.

How to run jobs on what one process holds, a GPU for instance::

    def begin(report): ...                      # runs once in each new process; returns the state
    def measure(state, kernel, samples): ...    # a job: a function of a module, given the state and its arguments

    with Workers(begin, doing="drives the GPU") as workers:
        future = workers.submit(measure, kernel, 3, seconds=10.0)
        print(future.result())

A job of several steps calls `report(message, seconds)` before each: the message goes to the `reported` of its
submission, and the step has `seconds` of its own. Jobs, arguments, messages and results are pickled.

`concurrent.futures` and loky do not serve here: one crash breaks their whole pool and fails every job in it, no job
has a time limit, and a running job cannot be ended.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from multiprocessing import Pipe, connection, forkserver, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import Empty, SimpleQueue
from typing import Any, Generic, Literal, Protocol, TypeVar, TypeVarTuple

from gen.errors import GenError, RunError

MAX_STARTS = 3  # times in a row that a process may end before it is ready
START_SECONDS = 600.0  # until it is ready
END_SECONDS = 60.0  # until a process that was killed has ended: a driver may hold it for so long
# What others end a process by: a user, a scheduler, the system for want of memory. A fault of its own is none of them.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
# Imported before any process is forked, where it is installed; none of it starts a thread.
PRELOADED = [
    "numpy", "cuda.bindings.nvrtc", "gen.families", "gen.tune.device", "gen.toolchain.compiled", "gen.store.trials"
]  # fmt: skip
WAIT_SECONDS = 0.1  # seconds of a wait until the main thread takes a step, between which Ctrl-C is heard
_PR_SET_PDEATHSIG = 1  # as sys/prctl.h numbers it

S = TypeVar("S")
R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Report(Protocol):
    """Tells whoever submitted a job how far it has come."""

    def __call__(self, message: Any, seconds: float | None = None) -> None:
        """Sends a message. From now on the job may take so many seconds, as many as before if None."""
        ...


@dataclass(frozen=True)
class Last:
    """What a job returns that leaves its process unusable: the process ends, and another takes its place.

    Attributes:
        value: the job's result.
        error: what the job raises instead of having one.
    """

    value: Any = None
    error: GenError | None = None


@dataclass(frozen=True)
class Ended:
    """How a process ended during a job.

    Attributes:
        how: `crashed` by the job, `hung` for longer than the job may take, or `killed` by somebody else, twice.
        reason: the same in words.
        message: the last that the job reported; None if it reported nothing.
    """

    how: Literal["crashed", "hung", "killed"]
    reason: str
    message: Any = None


@dataclass(frozen=True)
class Restore:
    """A job that every new process does first, to bring its state to where that of the old one was.

    Attributes:
        job, arguments: as they are submitted.
        what: it makes ready, in the words of the error where it never does.
    """

    job: Callable[..., Any]
    arguments: tuple[Any, ...]
    what: str


def _fail(ended: Ended) -> Any:
    raise RunError("A job", "must not end its process", ended.reason)


def _itself(value: Any) -> Any:
    return value


def _ignore(_message: Any) -> None:
    pass


@dataclass
class _Job:
    """A job, and who waits for it; `retried` if somebody ended its process before."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    seconds: float
    received: Callable[[Any], Any]
    ended: Callable[[Ended], Any]
    reported: Callable[[Any], object]
    future: Future[Any] = field(default_factory=Future)
    retried: bool = False

    def settle(self, give: Callable[[], Any]) -> None:
        """Tells who waits for it."""
        try:
            self.future.set_result(give())
        except BaseException as error:  # noqa: BLE001  whatever it is, somebody waits for it on another thread
            self.future.set_exception(error)


@dataclass
class _Worker:
    """A process.

    Attributes:
        jobs: that it has been sent; it is at the first.
        starts: times in a row that a process had to be started in this place.
        stage: it makes its state; or brings it to where that of the old process was; or it does jobs.
        since, seconds: when its present step began, and how long that may take.
        message: the last that its job reported.
    """

    process: BaseProcess
    pipe: Connection
    jobs: deque[_Job]
    starts: int
    stage: Literal["beginning", "restoring", "ready"] = "beginning"
    since: float = field(default_factory=time.monotonic)
    seconds: float = START_SECONDS
    message: Any = None

    @property
    def end(self) -> float:
        """When its present step has taken too long."""
        return self.since + self.seconds if self.jobs or self.stage != "ready" else inf

    def send(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Sends a job; where the process has ended, its pipe will tell."""
        with suppress(OSError):
            self.pipe.send((function, arguments))

    def begin(self) -> None:
        """The time of its first job starts."""
        self.since, self.message = time.monotonic(), None
        self.seconds = self.jobs[0].seconds if self.jobs else inf

    def kill(self) -> None:
        """Ends the process, whatever it is at."""
        self.pipe.close()
        self.process.kill()
        self.process.join(END_SECONDS)


@dataclass(frozen=True)
class _Ready:
    """A process has made its state; or why it cannot."""

    error: GenError | None = None


@dataclass(frozen=True)
class _Reported:
    message: Any
    seconds: float | None


@dataclass(frozen=True)
class _Done:
    """What came of a job; `last` if its process is of no use any more."""

    value: Any
    error: GenError | None
    last: bool

    def give(self, received: Callable[[Any], Any]) -> Any:
        """The result, or what the job raised."""
        if self.error is not None:
            raise self.error
        return received(self.value)


class Workers(Generic[S]):
    """Processes that do jobs, one or several; threads may share them.

    Attributes:
        restarts: how often a process had to be replaced.
        restore: what every new process does first; None if there is nothing. To be set in a job's `received`.
    """

    def __init__(
        self, begin: Callable[[Report], S], *, doing: str, count: int = 1, ahead: int = 2, seconds: float = inf
    ) -> None:
        """Starts nothing before there is a job.

        Args:
            begin: makes the state in a new process; can be pickled. A GenError that it raises ends all workers.
            doing: what the processes are for, in the words of messages: `drives the GPU`.
            count: of processes.
            ahead: jobs that a process has: the one it is at, and the next, for which it then does not wait.
            seconds: that a job may take, where its submission does not say.
        """
        self.restarts = 0
        self.restore: Restore | None = None
        self._begin, self._doing, self._count, self._ahead, self._seconds = begin, doing, count, ahead, seconds
        self._waiting: deque[_Job] = deque()  # not sent
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._end: GenError | None = None  # why no more is taken
        self._woken, self._wake = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._run, name=doing, daemon=True)

    def submit(
        self, job: Callable[[S, *Ts], R], *arguments: *Ts, seconds: float | None = None,
        received: Callable[[R], R] = _itself, ended: Callable[[Ended], R] = _fail,
        reported: Callable[[Any], object] = _ignore,
    ) -> Future[R]:  # fmt: skip
        """Queues a job, which can be cancelled until a process has it.

        The three functions run on the thread that serves all workers, so they must be quick.

        Args:
            job: a function of a module, which is given the state and the arguments.
            *arguments: of the job.
            seconds: that it may take, or its first step.
            received: makes of the job's result what the future holds: that result itself by default.
            ended: gives what the future holds, or raises, where the process ended: a RunError by default.
            reported: is told what the job reports.

        Returns:
            What comes of the job; a GenError that it raises is raised by the future.

        Raises:
            GenError: the workers were closed, or no process can be started.
        """
        made = _Job(job, arguments, self._seconds if seconds is None else seconds, received, ended, reported)
        with self._lock:
            if self._end is not None:
                raise self._end
            self._waiting.append(made)
            if not self._thread.is_alive():
                atexit.register(self.close)
                self._thread.start()
        self._wake.send(None)
        return made.future

    @property
    def pids(self) -> tuple[int, ...]:
        """The numbers of the processes that there are now."""
        return tuple(worker.process.pid or 0 for worker in self._workers)

    def close(self) -> None:
        """Ends all processes, whatever they are at. Jobs that are not done get a RunError."""
        with self._lock:
            self._end = self._end or RunError(f"The process that {self._doing}", "was closed")
            begun = self._thread.is_alive()
        if begun:
            self._wake.send(None)
            self._thread.join()
        atexit.unregister(self.close)

    def __enter__(self) -> Workers[S]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What follows runs on the thread alone.

    def _run(self) -> None:
        failure: GenError = RunError(f"The process that {self._doing}", "is not served any more")
        try:
            for _ in range(self._count):
                self._workers.append(self._start(deque(), 1))
            while self._deal():
                self._collect()
        except GenError as error:  # no process can do any job
            failure = error
        finally:
            with self._lock:
                self._end = self._end or failure
            for worker in self._workers:
                worker.kill()
            for job in itertools.chain(*(worker.jobs for worker in self._workers), self._waiting):
                if job.future.running() or job.future.set_running_or_notify_cancel():
                    job.future.set_exception(self._end)

    def _start(self, jobs: deque[_Job], starts: int) -> _Worker:
        """A new process, which is sent jobs."""
        process, pipe = fork(_serve, self._begin, doing=self._doing)
        worker = _Worker(process, pipe, jobs, starts)
        if self.restore is not None:
            worker.send(self.restore.job, self.restore.arguments)
        for job in jobs:
            worker.send(job.function, job.arguments)
        return worker

    def _deal(self) -> bool:
        """Gives every process its share of what waits; False if all are to end."""
        with self._lock:
            if self._end is not None:
                return False
            for most in range(1, self._ahead + 1):
                for worker in self._workers:
                    while self._waiting and len(worker.jobs) < most:
                        job = self._waiting.popleft()
                        if job.future.set_running_or_notify_cancel():
                            worker.jobs.append(job)
                            if worker.stage == "ready" and len(worker.jobs) == 1:
                                worker.begin()
                            worker.send(job.function, job.arguments)
        return True

    def _collect(self) -> None:
        """Waits for a message, for a process that ends or takes too long, or for a new job; does what is due."""
        end = min(worker.end for worker in self._workers)
        left = None if end == inf else max(end - time.monotonic(), 0)
        found = connection.wait([self._woken, *(worker.pipe for worker in self._workers)], left)
        if self._woken in found:
            self._woken.recv()
        for worker in tuple(self._workers):
            if worker.pipe in found:
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    self._died(worker)
                else:
                    self._heard(worker, message)
            elif time.monotonic() >= worker.end:
                self._blame(worker, "hung", f"it did not end within {worker.seconds:g} s")

    def _heard(self, worker: _Worker, message: _Ready | _Reported | _Done) -> None:
        """Deals with what a process says."""
        if isinstance(message, _Ready):
            if message.error is not None:
                raise message.error
            worker.since, worker.stage = time.monotonic(), "ready" if self.restore is None else "restoring"
        elif isinstance(message, _Reported):
            worker.since, worker.message = time.monotonic(), message.message
            worker.seconds = worker.seconds if message.seconds is None else message.seconds
            if worker.stage == "ready":
                worker.jobs[0].reported(message.message)
            return
        elif worker.stage == "restoring":
            if message.last:
                self._replace(worker, str(message.error))
                return
            worker.stage = "ready"  # what went wrong the jobs that come will say
        else:
            job = worker.jobs.popleft()
            give = partial(message.give, job.received)
            if message.last:
                self._replace(worker, str(message.error), partial(job.settle, give))
                return
            job.settle(give)
        if worker.stage == "ready":
            worker.begin()

    def _died(self, worker: _Worker) -> None:
        """Finds out who ended a process. What somebody else ended is begun once more."""
        worker.process.join(END_SECONDS)
        by = -(worker.process.exitcode or 0)
        if by not in FROM_OUTSIDE:
            self._blame(worker, "crashed", f"the process that {self._doing} died of it")
            return
        reason = f"somebody else ended the process that {self._doing} ({signal.Signals(by).name})"
        if worker.stage == "ready" and worker.jobs and not worker.jobs[0].retried:
            worker.jobs[0].retried = True
            self._replace(worker, reason)
        else:
            self._blame(worker, "killed", f"{reason}, twice")

    def _blame(self, worker: _Worker, how: Literal["crashed", "hung", "killed"], reason: str) -> None:
        """Replaces a process that the job it was at has ended, if it was at one."""
        if worker.stage != "ready" or not worker.jobs:
            self._replace(worker, reason)
            return
        job = worker.jobs.popleft()
        self._replace(worker, reason, partial(job.settle, partial(job.ended, Ended(how, reason, worker.message))))

    def _replace(self, worker: _Worker, reason: str, settle: Callable[[], None] = lambda: None) -> None:
        """Starts another process in the place of one; then settles the job that ended it, also where none starts."""
        try:
            worker.kill()
            starts = 1 if worker.stage == "ready" else worker.starts + 1
            if starts > MAX_STARTS:
                raise self._unready(worker, reason)
            self._workers[self._workers.index(worker)] = self._start(worker.jobs, starts)
            self.restarts += 1
        finally:
            settle()

    def _unready(self, worker: _Worker, reason: str) -> RunError:
        if worker.stage == "restoring" and self.restore is not None:
            return RunError(self.restore.what, f"could not be made ready again, {MAX_STARTS} times", reason)
        return RunError(
            f"The process that {self._doing}", f"ended before it was ready, {MAX_STARTS} times", reason,
            next_step="A script that starts processes must be a file, which begins under if __name__ == '__main__'",
        )  # fmt: skip


def fork(target: Callable[..., None], *arguments: Any, doing: str) -> tuple[BaseProcess, Connection]:
    """Starts a process, and gives this end of a pipe; `target` is called with the other end and the arguments.

    It is forked from a clean process, which has imported what all of them need, and not from this one, which has
    threads, and may use a GPU. Ctrl-C does not reach it: whoever started it ends it.

    Raises RunError where the system has no room for one more.
    """
    try:
        return _fork(target, *arguments, name=doing)
    except (OSError, EOFError) as error:  # on a thread of ours nobody else would hear of it
        subject, next_step = f"A process that {doing}", "End others and try again"
        raise RunError(subject, "cannot be started", error, next_step=next_step) from error


def _fork(target: Callable[..., None], *arguments: Any, name: str) -> tuple[BaseProcess, Connection]:
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which it inherits, if it starts now
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    ours, theirs = context.Pipe()
    # No daemon, which could have no processes of its own: libraries that compile have some.
    process = context.Process(target=_enter, args=(target, theirs, *arguments), name=name)
    process.start()
    theirs.close()
    return process, ours


def _enter(target: Callable[..., None], pipe: Connection, *arguments: Any) -> None:
    """What a new process does. The kernel kills it when the process ends that it was forked from.

    That one would go on for as long as any process has its pipe: without ours it ends with the process that asked for
    workers, however that ends, and whatever they are at.
    """
    server: Any = forkserver._forkserver
    os.close(server._forkserver_alive_fd)
    server._forkserver_alive_fd = None
    with suppress(AttributeError):  # where no Linux is
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError):
        target(pipe, *arguments)


def _serve(pipe: Connection, begin: Callable[[Report], Any]) -> None:
    """Does jobs, on the main thread of its process, until the pipe ends."""
    jobs: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, jobs), daemon=True).start()

    def report(message: Any, seconds: float | None = None) -> None:
        pipe.send(_Reported(message, seconds))

    try:
        state = begin(report)
    except GenError as error:
        pipe.send(_Ready(error))
        return
    pipe.send(_Ready())
    while True:
        function, arguments = jobs.get()
        try:
            found = function(state, *arguments)
        except GenError as error:
            done = _Done(None, error, last=False)
        else:
            last = isinstance(found, Last)
            done = _Done(found.value, found.error, last=True) if last else _Done(found, None, last=False)
        pipe.send(done)
        if done.last:
            os._exit(1)  # without a clean-up, which a device that is lost would answer with errors


def _listen(pipe: Connection, jobs: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
    """Takes jobs as they come, so that whoever sends them never waits; ends the process with its parent."""
    try:
        while True:
            jobs.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(0)
    except BaseException:  # noqa: BLE001  a job that cannot be read here
        traceback.print_exc()
        os._exit(1)


def result_of(future: Future[R], deadline: float | None = None) -> R:
    """What a future holds once it is done; unlike its own `result`, a wait that Ctrl-C ends.

    Python's handler runs on the main thread, between two steps of its own. A wait for a lock goes on meanwhile where
    the signal has come to another thread, or where a library has asked that signals interrupt no call: NVRTC does.

    Raises what the future raises, or TimeoutError after a deadline of `time.monotonic()`.
    """
    while not futures.wait([future], _moment(deadline)).done:
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError
    return future.result()


def next_of(queue: SimpleQueue[T], deadline: float | None = None) -> T:
    """The next that comes out of a queue; a wait that Ctrl-C ends, as above.

    Raises Empty after a deadline of `time.monotonic()`.
    """
    while True:
        try:
            return queue.get(timeout=_moment(deadline))
        except Empty:
            if deadline is not None and time.monotonic() >= deadline:
                raise


def _moment(deadline: float | None) -> float:
    """How long a wait may last until the main thread takes a step."""
    return WAIT_SECONDS if deadline is None else min(max(deadline - time.monotonic(), 0.0), WAIT_SECONDS)
