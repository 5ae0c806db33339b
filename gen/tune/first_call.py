"""Tunes one problem within a second or two, in the process that calls it: for `gen.load(tune=)` and its kin.

`gen tune` compiles in processes, and drives the GPU by another, which a kernel may crash; they take seconds to start.
Here threads compile, and one thread drives the GPU in the caller's own context. It tries what dispatch would take, what
is often fast, and then what differs from the fastest in one parameter. Each result is compared on the device with that
of base, on random data; what is right is timed from cold caches and raced, as in `gen tune`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gen.emit.folder import holding, write_if_changed
from gen.errors import GenError
from gen.gpu.device import Device
from gen.gpu.service import Service
from gen.gpu.timing import Calibration, Clock
from gen.paths import lock_of
from gen.store.folder import stored_calibration
from gen.store.trials import Problem, Trial, Trials
from gen.store.winners import Winner, first_calls_of, found_at_first_calls, merged, text_of_winners
from gen.toolchain.compiled import Compiled, Compiler
from gen.tune.device import SWITCH_SECONDS, Entrant, Rounds
from gen.tune.gpu_session import CalibratedGpu, GpuSession
from gen.tune.one_problem import Options, tune
from gen.tune.outcome import winner_of
from gen.tune.search import Climb

STOP_FRACTION = 0.99  # of the limit: nothing is gained beyond it
MAX_COMPILING = 16  # sources at once; threads of one process wait for each other's memory beyond that
UNKNOWN = float("inf")  # of a calibration that nobody has made


class CompileThreads:
    """A compiler on threads of this process; implements `gen.toolchain.farm.Farm`.

    Attributes:
        version, options: the compiler's.
        width: how many it compiles at once.
    """

    def __init__(self, compiler: Compiler) -> None:
        """Starts nothing before something is to be compiled."""
        self.version, self.options = compiler.version, compiler.options
        self.width = min(len(os.sched_getaffinity(0)), MAX_COMPILING)
        self._compiler = compiler
        self._pool = ThreadPoolExecutor(self.width, thread_name_prefix="gen compiles")

    def submit(self, name: str, text: str, arch: str) -> Future[Compiled]:
        """Begins to compile a source; the future may hold its CompileError."""
        return self._pool.submit(self._compiler.compile, name, text, arch)

    def close(self) -> None:
        """Begins no more. What is being compiled is kept for later, and nobody waits for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class LocalDevice:
    """A device in this process, on one thread of its own; implements `gen.tune.device.TuningDevice`.

    Attributes:
        name, driver, limits: the device's.
        width: it tries one variant at a time.
        calibrated: whether its bandwidths were measured, so that there is a limit to compare with.
    """

    width = 1

    def __init__(self, device: Device, home: Path) -> None:
        """Starts nothing before a problem is opened; `home` may hold the device's calibration."""
        self.name, self.driver, self.limits = device.name, device.driver, device.limits
        about = stored_calibration(home, device)
        self.calibrated = about is not None
        unknown = (UNKNOWN, UNKNOWN, UNKNOWN, 0.0, 0.0)
        self._about = about or Calibration(device.name, device.driver, *unknown)
        self._device = device.for_any_thread()
        self._entered = False
        self._gpu: CalibratedGpu | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gen tunes")

    def open(self, problem: Problem, base: Entrant) -> LocalSession:
        """Begins to make a problem ready; does not wait for it."""
        return LocalSession(self._thread.submit, partial(self._open, problem, base))

    def prepare(self, problem: Problem) -> None:
        """Does nothing: there is no other problem."""

    def floor_us(self, problem: Problem) -> float:
        """The least time of such a problem, by the device's calibration; 0 without one."""
        return self._about.floor_us(problem.family.work(problem.spec, problem.extents))

    def close(self) -> None:
        """Ends the thread, and gives the device's memory back."""
        self._thread.submit(self._leave).result()
        self._thread.shutdown()

    def _open(self, problem: Problem, base: Entrant) -> GpuSession:
        self._entered = self._device.enter()
        self._device.synchronize()  # what the caller has queued would be timed too
        service = Service(self._device)
        self._gpu = CalibratedGpu(self._device, service, Clock(self._device, service), self._about)
        # NumPy may take seconds: base was proven when its template was, and here the others must agree with it.
        return GpuSession(self._gpu, problem, base, trusted=True)

    def _leave(self) -> None:
        self._gpu = None
        self._device.leave(self._entered)


class LocalSession:
    """A problem on that thread; implements `gen.tune.device.Session`."""

    def __init__(self, submit: Callable[..., Future[Any]], open_it: Callable[[], GpuSession]) -> None:
        self._submit = submit
        self._opened: list[GpuSession] = []
        self._opening: Future[None] = submit(lambda: self._opened.append(open_it()))

    def ready(self) -> Future[None]:
        """Done when base has run; holds the error if it could not."""
        return self._opening

    def submit(self, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        """Queues an attempt."""
        return self._submit(lambda: self._session().attempt(entrant, give_up_us))

    def rounds(self, entrants: Sequence[Entrant], count: int, *, hot: bool = False) -> Rounds:
        """Times variants in rounds."""
        timed: Future[Rounds] = self._submit(lambda: self._session().rounds(entrants, count, lambda _: None, hot=hot))
        return timed.result()

    def close(self) -> None:
        """Gives the device's memory back."""
        with suppress(GenError):  # after a failed launch the driver answers nothing any more
            self._submit(self._close).result()

    def _close(self) -> None:
        for session in self._opened:
            session.close()

    def _session(self) -> GpuSession:
        self._opening.result()
        return self._opened[0]


def tune_now(problem: Problem, device: Device, home: Path, seconds: float, incumbent: str) -> Winner | None:
    """The fastest variant of a problem that is found in so many seconds, kept in `home` for later calls.

    Args:
        problem: its region is that of the winner.
        device: where; the caller's own, whose memory it takes for a while.
        home: of the trials and winners.
        seconds: after which nothing is begun.
        incumbent: the name of what is called untuned. It stays unless another is over 1 % faster.

    Returns:
        None if nothing was right in time.

    Raises:
        GenError: base does not compile, cannot run or is wrong, or there is no memory for it.
    """
    deadline = time.monotonic() + seconds
    farm, trials, local = CompileThreads(device.compiler()), Trials(home), LocalDevice(device, home)
    options = Options(partial(Climb, nearest=True), stop_at=STOP_FRACTION if local.calibrated else None)
    try:
        with _in_turn():
            outcome = tune(problem, local, farm, trials, incumbent=incumbent, deadline=deadline, options=options)
    finally:
        farm.close()
        local.close()
        trials.close()
    if outcome.winner is None:
        return None
    winner = winner_of(outcome, local, farm.version, {"date": time.strftime("%Y-%m-%d"), "found": "at a first call"})
    if not local.calibrated:
        unknown = ("of_limit", "floor_us", "limit")
        winner = replace(winner, evidence={name: one for name, one in winner.evidence.items() if name not in unknown})
    with holding(lock_of(home)):
        kept = merged(found_at_first_calls(home), [winner])
        write_if_changed(first_calls_of(home), text_of_winners(kept))
    return winner


@contextmanager
def _in_turn() -> Iterator[None]:
    """Lets the thread that measures have its turn soon while others write texts."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
