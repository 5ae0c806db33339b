"""A device as tuning uses it: what is asked of it, and a GPU that is driven by a process which a kernel may end.

Such a kernel costs one trial and one restart of the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gen.errors import GenError, RunError
from gen.families.base import Limits, Variant
from gen.store.trials import Problem, Status, Trial
from gen.toolchain.compiled import Compiled
from gen.workers import Ended, Last, Report, Restore, Workers

if TYPE_CHECKING:
    from gen.gpu.timing import Calibration
    from gen.tune.gpu_session import CalibratedGpu, GpuSession

ATTEMPT_SECONDS = 10.0  # in which an attempt must end, and a sample of a finalist
OTHER_SECONDS = 600.0  # for all else, where no kernel in doubt runs: NumPy may take its time
SWITCH_SECONDS = 2e-4  # a thread that computes for later must not keep waiting the one that measures now
_STATUS: dict[str, Status] = {"crashed": "launch_failed", "hung": "timeout", "killed": "launch_failed"}


@dataclass(frozen=True)
class Entrant:
    """A variant with its machine code."""

    variant: Variant
    compiled: Compiled

    @property
    def name(self) -> str:
        """The variant's."""
        return self.variant.name

    def untimed(self, status: Status, reason: str) -> Trial:
        """A trial that gave no time."""
        used = self.compiled
        return Trial(
            self.variant, status, (), used.registers, used.spill_bytes, used.static_shared_bytes, reason,
            used.compile_ms,
        )  # fmt: skip


@dataclass(frozen=True)
class Rounds:
    """Finalists timed in rounds, so that what disturbs one of them disturbs all.

    Attributes:
        times_us: of each, by name: one time a round. Empty where there are faults.
        faults: trials of those that were right before and are not now.
        sm_mhz: the lowest and the highest clock of the multiprocessors seen; 0 where nobody looked.
        throttled: why it was held down, in words.
        foreign: processes of others on the GPU meanwhile, a text each.
    """

    times_us: Mapping[str, Sequence[float]] = field(default_factory=dict)
    faults: tuple[Trial, ...] = ()
    sm_mhz: tuple[int, int] = (0, 0)
    throttled: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


class Session(Protocol):
    """A problem on a device, as a tuner sees it: nothing that a variant does ends it."""

    def ready(self) -> Future[None]:
        """Done when base is proven; holds the RunError if it is wrong."""
        ...

    def submit(self, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        """Queues an attempt: run, compare the result, time it.

        Two samples are all that a variant gets if both exceed `give_up_us`. A wrong, a crashing or a hanging variant is
        a trial with a status.
        """
        ...

    def rounds(self, entrants: Sequence[Entrant], count: int, *, hot: bool = False) -> Rounds:
        """Times variants in so many rounds, in orders and in memory that change; checks their results once more.

        Each launch is timed from cold caches, or, if `hot`, as one of many that follow each other in a graph.
        """
        ...

    def close(self) -> None:
        """Gives the device's memory back."""
        ...


class TuningDevice(Protocol):
    """Where variants are tried.

    Attributes:
        name, driver, limits: the device's.
        width: variants that are tried at once.
    """

    name: str
    driver: str
    limits: Limits
    width: int

    def open(self, problem: Problem, base: Entrant) -> Session:
        """Begins to make a problem ready; does not wait for it."""
        ...

    def prepare(self, problem: Problem) -> None:
        """Announces a problem that will be opened later: the host may compute its expected results meanwhile."""
        ...

    def floor_us(self, problem: Problem) -> float:
        """The least time of such a problem, by the device's calibration."""
        ...


class IsolatedDevice:
    """A device in a process that may die; implements `TuningDevice`.

    Attributes:
        name, driver, limits: the device's.
        width: it tries one variant at a time.
        about: its calibration.
        workers: the one process.
    """

    width = 1

    def __init__(self, factory: Callable[[], CalibratedGpu], *, watchdog: float = ATTEMPT_SECONDS) -> None:
        """Starts the process.

        Args:
            factory: makes the device ready there; can be pickled.
            watchdog: seconds in which an attempt must end.

        Raises:
            GenError: what the factory raises, or the process ends before it is ready.
        """
        self.workers = Workers(partial(_Driver, factory), doing="drives the GPU", seconds=OTHER_SECONDS)
        self.watchdog = watchdog
        try:
            self.name, self.driver, self.limits, self.about = self.ask(_Driver.describe).result()
        except BaseException:
            self.workers.close()
            raise

    @property
    def restarts(self) -> int:
        """How often the process had to be started again."""
        return self.workers.restarts

    def open(self, problem: Problem, base: Entrant) -> IsolatedSession:
        """Begins to make a problem ready."""

        def opened(_: Any) -> None:  # a process that takes this one's place opens it too
            restored = f"{base.name} on {problem}"
            self.workers.restore = Restore(_Driver.do, (_Driver.open, problem, base), restored)

        return IsolatedSession(self, self.ask(_Driver.open, problem, base, received=opened))

    def prepare(self, problem: Problem) -> None:
        """Announces a problem that will be opened later; errors show when it is opened."""
        self.ask(_Driver.prepare, problem)

    def floor_us(self, problem: Problem) -> float:
        """The least time of such a problem, by the device's calibration."""
        return float(self.ask(_Driver.floor_us, problem).result())

    def run(
        self, job: Callable[..., Any], *arguments: Any, seconds: float, ended: Callable[[Ended], Any],
        reported: Callable[[Any], object],
    ) -> Future[Any]:  # fmt: skip
        """Queues a job, which is given the GPU, what it may report to, and the arguments.

        Args:
            job: a function of a module.
            *arguments: of the job.
            seconds: that its first step may take.
            ended: gives what the future holds where the process ended.
            reported: is told what the job reports.
        """
        return self.ask(_Driver.run, job, *arguments, seconds=seconds, ended=ended, reported=reported)

    def close(self) -> None:
        """Ends the process, whatever it is at."""
        self.workers.close()

    def __enter__(self) -> IsolatedDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, job: Callable[..., Any], *arguments: Any, **how: Any) -> Future[Any]:
        """Queues one of the jobs of `_Driver`; `how` goes to `Workers.submit`."""

        def failed(ended: Ended) -> Any:
            raise RunError("The GPU", f"failed while it was to {job.__name__}", ended.reason)

        return self.workers.submit(_Driver.do, job, *arguments, **{"ended": failed, **how})


class IsolatedSession:
    """A problem in that process; implements `Session`."""

    def __init__(self, device: IsolatedDevice, opening: Future[None]) -> None:
        self._device, self._opening = device, opening

    def ready(self) -> Future[None]:
        """Done when base is proven; holds the RunError if it is wrong."""
        return self._opening

    def submit(self, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        """Queues an attempt."""

        def received(trial: Trial) -> Trial:  # a variant that was pickled is a copy, which equals none
            return replace(trial, variant=entrant.variant)

        def ended(how: Ended) -> Trial:
            return _fault(entrant, how, how.reason)

        device = self._device
        return device.ask(_Driver.attempt, entrant, give_up_us, seconds=device.watchdog, received=received, ended=ended)

    def rounds(self, entrants: Sequence[Entrant], count: int, *, hot: bool = False) -> Rounds:
        """Times variants in rounds."""
        by_name = {entrant.name: entrant for entrant in entrants}

        def received(rounds: Rounds) -> Rounds:
            return of_these(rounds, entrants)

        def ended(how: Ended) -> Rounds:
            entrant = by_name.get(how.message, entrants[0])
            return Rounds(faults=(_fault(entrant, how, f"among the finalists: {how.reason}"),))

        device = self._device
        asked = device.ask(
            _Driver.rounds, tuple(entrants), count, hot, seconds=device.watchdog, received=received, ended=ended
        )
        found: Rounds = asked.result()
        return found

    def close(self) -> None:
        """Has the device's memory given back, as soon as it is done with what it is at."""

        def closed(_: Any) -> None:
            self._device.workers.restore = None

        with suppress(RunError):  # where the process is gone for good, so is its memory
            self._device.ask(_Driver.close, received=closed)


def of_these(rounds: Rounds, entrants: Sequence[Entrant]) -> Rounds:
    """Rounds that came from another process, with the variants meant: one that was pickled is a copy."""
    by_name = {entrant.name: entrant.variant for entrant in entrants}
    return replace(rounds, faults=tuple(replace(one, variant=by_name[one.variant.name]) for one in rounds.faults))


def _fault(entrant: Entrant, how: Ended, reason: str) -> Trial:
    """The trial of a variant at which the process ended."""
    return replace(entrant.untimed(_STATUS[how.how], reason), outside=how.how == "killed")


class _Driver:
    """The state of the process: the device, and the problem that is open on it."""

    def __init__(self, factory: Callable[[], CalibratedGpu], report: Report) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        self._device, self._report = factory(), report
        self._session: GpuSession | None = None
        self._unopened: GenError = RunError("The GPU", "has no problem open")  # why there is no session

    def do(self, job: Callable[..., Any], *arguments: Any) -> Any:
        """Does one of the jobs below; the last one if the device does not answer any more."""
        value, failed = None, None
        try:
            value = job(self, *arguments)
        except GenError as error:
            failed = error
        suspect = (
            failed is not None
            or (isinstance(value, Trial) and value.status in ("launch_failed", "wrong_result"))
            or (isinstance(value, Rounds) and bool(value.faults))
        )
        if suspect and not self._device.alive():
            return Last(value, failed)
        if failed is not None:
            raise failed
        return value

    def describe(self) -> tuple[str, str, Limits, Calibration]:
        device = self._device
        return device.name, device.driver, device.limits, device.about

    def floor_us(self, problem: Problem) -> float:
        return self._device.floor_us(problem)

    def prepare(self, problem: Problem) -> None:
        self._device.prepare(problem)

    def open(self, problem: Problem, base: Entrant) -> None:
        self.close()
        try:
            self._session = self._device.open(problem, base)
        except GenError as error:
            self._unopened = error
            raise

    def attempt(self, entrant: Entrant, give_up_us: float) -> Trial:
        return self._open_session().attempt(entrant, give_up_us)

    def rounds(self, entrants: Sequence[Entrant], count: int, hot: bool) -> Rounds:
        return self._open_session().rounds(entrants, count, self._report, hot=hot)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def run(self, job: Callable[..., Any], *arguments: Any) -> Any:
        return job(self._device, self._report, *arguments)

    def _open_session(self) -> GpuSession:
        if self._session is None:
            raise self._unopened
        return self._session
