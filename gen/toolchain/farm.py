"""Compiling in processes: as many at once as there are cores.

Sixteen threads of one process compile little faster than eight: NVRTC asks the system for memory and gives it back all
the time, and the threads of a process wait for each other there. Processes do not, and those here keep what they have.
A compiler that crashes, or finds no end, takes one source with it. And NVRTC takes Ctrl-C for itself while it compiles:
in a process of its own it takes nobody's.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from gen.errors import CompileError, GenError, RunError
from gen.forks import fork
from gen.toolchain.compiled import Compiled, Compiler

AHEAD = 2  # sources that a process has: the one it is at, and the next
LONGEST = 120.0  # seconds for one source
STARTS = 3  # processes in a row that end before they compile anything
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # as malloc.h numbers them
_KEPT = 1 << 30  # bytes that malloc keeps before it gives any back
_STEP = 1 << 26  # bytes that it asks for at once
Source = tuple[str, str, str]
"""Name, text, architecture."""


class Farm(Protocol):
    """Where many sources are compiled at once.

    Attributes:
        version, options: the compiler's: all that can change its output but the architecture.
        width: how many it compiles at once.
    """

    version: str
    options: str
    width: int

    def submit(self, name: str, text: str, arch: str) -> Future[Compiled]:
        """Begins to compile a source; the future may hold its CompileError."""
        ...


@dataclass
class _Job:
    """A source, and who waits for its code."""

    source: Source
    future: Future[Compiled] = field(default_factory=Future)


@dataclass
class _Hand:
    """A process that compiles: it is at the first of its jobs, since `began`; before it is ready, that is infinite."""

    process: BaseProcess
    pipe: Connection
    jobs: deque[_Job] = field(default_factory=deque)
    began: float = inf
    idle_ends: int = 0


class CompileFarm:
    """A compiler on all cores; implements `Farm`.

    Attributes:
        version, options: the compiler's.
        width: how many it compiles at once.
    """

    def __init__(self, compiler: Compiler, *, width: int | None = None, longest: float = LONGEST) -> None:
        """Starts nothing before something is to be compiled.

        Args:
            compiler: can be pickled.
            width: processes; as many as there are cores if None.
            longest: seconds that one source may take.
        """
        self.version, self.options = compiler.version, compiler.options
        self.width = width or len(os.sched_getaffinity(0))
        self._compiler, self._longest = compiler, longest
        self._waiting: deque[_Job] = deque()
        self._hands: list[_Hand] = []
        self._lock = threading.Lock()
        self._end: GenError | None = None  # why no more is taken
        self._woken, self._wake = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._run, name="compile", daemon=True)

    def submit(self, name: str, text: str, arch: str) -> Future[Compiled]:
        """Begins to compile a source; the future may hold its CompileError."""
        job = _Job((name, text, arch))
        with self._lock:
            if self._end is not None:
                raise self._end
            self._waiting.append(job)
            if not self._thread.is_alive():
                self._thread.start()
        self._wake.send(None)
        return job.future

    def close(self) -> None:
        """Ends all processes, whatever they are at."""
        with self._lock:
            self._end = self._end or RunError("The compiler", "has been given back")
            begun = self._thread.is_alive()
        if begun:
            self._wake.send(None)
            self._thread.join()

    def __enter__(self) -> CompileFarm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compile_many(self, items: Iterable[tuple[str, str]], arch: str) -> Iterator[Compiled | CompileError]:
        """Compiles many sources; each result as it is finished: what was compiled, or why it was not."""
        futures = [self.submit(name, text, arch) for name, text in items]
        try:
            for future in as_completed(futures):
                try:
                    yield future.result()
                except CompileError as error:
                    yield error
        finally:  # the caller stopped listening
            for future in futures:
                future.cancel()

    # What follows runs on the thread alone.

    def _run(self) -> None:
        try:
            self._hands = [self._hire() for _ in range(self.width)]
            while self._deal():
                self._collect()
        except GenError as error:  # no process compiles
            with self._lock:
                self._end = error
        for hand in self._hands:
            hand.process.kill()
            hand.pipe.close()
        assert self._end is not None
        for job in itertools.chain(self._waiting, *(hand.jobs for hand in self._hands)):
            if job.future.running() or job.future.set_running_or_notify_cancel():
                job.future.set_exception(self._end)

    def _hire(self) -> _Hand:
        return _Hand(*fork(_compile, self._compiler, name="gen-compile"))

    def _deal(self) -> bool:
        """Gives every process its share; False if it is to end."""
        with self._lock:
            if self._end is not None:
                return False
            for ahead in range(1, AHEAD + 1):
                for hand in self._hands:
                    while self._waiting and len(hand.jobs) < ahead:
                        job = self._waiting.popleft()
                        if job.future.set_running_or_notify_cancel():
                            if not hand.jobs and hand.began < inf:
                                hand.began = time.monotonic()
                            hand.jobs.append(job)
                            _send(hand, job)
        return True

    def _collect(self) -> None:
        """Waits for code, or for a process that ends or takes too long."""
        ends = [hand.began + self._longest for hand in self._hands if hand.jobs]
        left = max(min(ends) - time.monotonic(), 0) if ends and min(ends) < inf else None
        ready = wait([self._woken, *(hand.pipe for hand in self._hands)], left)
        if self._woken in ready:
            self._woken.recv()
        for place, hand in enumerate(self._hands):
            if hand.pipe in ready:
                try:
                    result: Compiled | CompileError | None = hand.pipe.recv()
                except (EOFError, OSError):
                    self._replace(place, "The compiler ended its process.")
                    continue
                hand.began = time.monotonic()
                if result is None:  # it is ready
                    continue
                job, hand.idle_ends = hand.jobs.popleft(), 0
                if isinstance(result, Compiled):
                    job.future.set_result(result)
                else:
                    job.future.set_exception(result)
            elif hand.jobs and time.monotonic() >= hand.began + self._longest:
                self._replace(place, f"The compiler did not end within {self._longest:g} s.")

    def _replace(self, place: int, reason: str) -> None:
        """Another process in the place of one that was at a source it does not get over."""
        old = self._hands[place]
        old.process.kill()
        old.pipe.close()
        ends = old.idle_ends
        if old.jobs and old.began < inf:
            job = old.jobs.popleft()
            job.future.set_exception(CompileError(job.source[0], reason, Path(f"{job.source[0]}.cu")))
        else:  # no source is to blame
            ends += 1
            if ends == STARTS:
                raise RunError(
                    "The compiler", "ends its process before it compiles anything", self.version,
                    next_step="A script that compiles must be a file, which begins under if __name__ == '__main__'",
                )  # fmt: skip
        new = self._hire()
        new.idle_ends = ends
        for job in old.jobs:
            new.jobs.append(job)
            _send(new, job)
        self._hands[place] = new


def _send(hand: _Hand, job: _Job) -> None:
    with suppress(OSError):  # where it has ended, the pipe tells next
        hand.pipe.send(job.source)


def _compile(pipe: Connection, compiler: Compiler) -> None:
    """What each process does, until the pipe ends."""
    _keep_memory()
    pipe.send(None)
    while True:
        try:
            name, text, arch = pipe.recv()
        except (EOFError, OSError):
            return
        result: Compiled | GenError
        try:
            result = compiler.compile(name, text, arch)
        except GenError as error:
            result = error
        pipe.send(result)


def _keep_memory() -> None:
    """Lets malloc keep what it has: a compilation touches the same megabytes as the one before it."""
    malloc = ctypes.CDLL(None)
    settings: Sequence[tuple[int, int]] = (
        (_M_TRIM_THRESHOLD, _KEPT), (_M_MMAP_THRESHOLD, _KEPT), (_M_TOP_PAD, _STEP)
    )  # fmt: skip
    for option, value in settings:
        if hasattr(malloc, "mallopt"):  # glibc's
            malloc.mallopt(option, value)
