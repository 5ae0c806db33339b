"""A GPU driven by a process that may die: what a kernel does to it costs one trial and one restart."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from gen.errors import GenError, RunError
from gen.families.base import Limits
from gen.gpu.trial import Bench, BenchSession, Entrant, Problem, Rounds, Status, Trial
from gen.workers import Ended, Last, Report, Restore, Workers

WATCHDOG = 10.0  # seconds in which an attempt must end, and a turn of a finalist
PATIENCE = 600.0  # seconds for all else, where no kernel in doubt runs: NumPy may take its time
SWITCH_SECONDS = 2e-4  # a thread that computes for later must not keep waiting the one that measures now
_STATUS: dict[str, Status] = {"crashed": "launch_failed", "hung": "timeout", "killed": "launch_failed"}


@dataclass(frozen=True)
class Hello:
    """What the process says of its device when it has started; `about` is all that the bench adds."""

    name: str
    driver: str
    limits: Limits
    about: Any = None


class IsolatedDevice:
    """A device in a process that may die; implements `Device`.

    Attributes:
        name, driver, limits: the device's.
        about: what its bench adds.
    """

    def __init__(self, factory: Callable[[], Bench], *, watchdog: float = WATCHDOG) -> None:
        """Starts the process.

        Args:
            factory: makes the device ready there; can be pickled.
            watchdog: seconds in which an attempt must end.

        Raises:
            GenError: what the factory raises, or the process ends before it is ready.
        """
        self.workers = Workers(partial(_Desk, factory), doing="drives the GPU", seconds=PATIENCE)
        self._watchdog = watchdog
        try:
            hello: Hello = self._ask("hello").result()
        except BaseException:
            self.workers.close()
            raise
        self.name, self.driver, self.limits, self.about = hello.name, hello.driver, hello.limits, hello.about

    @property
    def restarts(self) -> int:
        """How often the process had to be started again."""
        return self.workers.restarts

    def open(self, problem: Problem, base: Entrant) -> IsolatedSession:
        """Begins to make a problem ready."""

        def opened(_: Any) -> None:  # a process that takes this one's place opens it too
            self.workers.restore = Restore(_Desk.do, ("open", problem, base), f"{base.name} on {problem}")

        return IsolatedSession(self, self._ask("open", problem, base, received=opened))

    def prepare(self, problem: Problem) -> None:
        """Announces a problem that will be opened later; whatever comes of it shows then."""
        self._ask("prepare", problem)

    def floor_us(self, problem: Problem) -> float:
        """The least time of such a problem, by the device's calibration."""
        return float(self._ask("floor_us", problem).result())

    def attempt(self, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        """Queues an attempt on the problem that is open."""

        def ours(trial: Trial) -> Trial:  # those that come back are copies, equal to none
            return replace(trial, variant=entrant.variant)

        def ended(how: Ended) -> Trial:
            trial = entrant.untimed(_STATUS[how.how], how.reason)
            return replace(trial, outside=how.how == "killed")

        return self._ask("attempt", entrant, give_up_us, seconds=self._watchdog, received=ours, ended=ended)

    def rounds(self, entrants: Sequence[Entrant], turns: int, *, hot: bool) -> Rounds:
        """Times variants on the problem that is open."""
        by_name = {entrant.name: entrant for entrant in entrants}

        def ours(rounds: Rounds) -> Rounds:
            faults = [replace(one, variant=by_name[one.variant.name].variant) for one in rounds.faults]
            return replace(rounds, faults=tuple(faults))

        def ended(how: Ended) -> Rounds:
            entrant = by_name.get(how.message, entrants[0])
            trial = entrant.untimed(_STATUS[how.how], f"among the finalists: {how.reason}")
            return Rounds(faults=(replace(trial, outside=how.how == "killed"),))

        asked = self._ask("rounds", tuple(entrants), turns, hot, seconds=self._watchdog, received=ours, ended=ended)
        found: Rounds = asked.result()
        return found

    def run(
        self, job: Callable[..., Any], *arguments: Any, seconds: float, ended: Callable[[Ended], Any],
        reported: Callable[[Any], object],
    ) -> Future[Any]:  # fmt: skip
        """Queues a job, which is given the bench, what it may report to, and the arguments.

        Args:
            job: a function of a module.
            *arguments: of the job.
            seconds: that its first step may take.
            ended: gives what the future holds where the process ended.
            reported: is told what the job reports.
        """
        return self.workers.submit(_Desk.run, job, *arguments, seconds=seconds, ended=ended, reported=reported)

    def close_problem(self) -> None:
        """Has the device's memory given back, as soon as it is done with what it is at."""

        def closed(_: Any) -> None:
            self.workers.restore = None

        with suppress(RunError):  # where the process is gone for good, so is its memory
            self._ask("close", received=closed)

    def close(self) -> None:
        """Ends the process, whatever it is at."""
        self.workers.close()

    def __enter__(self) -> IsolatedDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, what: What, *arguments: Any, **how: Any) -> Future[Any]:
        def failed(ended: Ended) -> Any:
            raise RunError("The GPU", f"failed while it was to {what}", ended.reason)

        return self.workers.submit(_Desk.do, what, *arguments, **{"ended": failed, **how})


class IsolatedSession:
    """A problem in that process; implements `Session`."""

    def __init__(self, device: IsolatedDevice, opening: Future[None]) -> None:
        self._device, self._opening = device, opening

    def ready(self) -> Future[None]:
        """Done when base is proven; holds the RunError if it is wrong."""
        return self._opening

    def submit(self, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        """Queues an attempt."""
        return self._device.attempt(entrant, give_up_us)

    def rounds(self, entrants: Sequence[Entrant], turns: int, *, hot: bool = False) -> Rounds:
        """Times variants in turns."""
        return self._device.rounds(entrants, turns, hot=hot)

    def close(self) -> None:
        """Has the device's memory given back, as soon as it is done with what it is at."""
        self._device.close_problem()


What = Literal["hello", "floor_us", "prepare", "open", "attempt", "rounds", "close"]


class _Desk:
    """The state of the process: the device, and the problem that is open on it."""

    def __init__(self, factory: Callable[[], Bench], report: Report) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        self._bench, self._report = factory(), report
        self._session: BenchSession | None = None
        self._unopened: GenError = RunError("The GPU", "has no problem open")  # why there is no session

    def do(self, what: What, *arguments: Any) -> Any:
        """Does one thing; the last one if the device does not answer any more."""
        value, failed = None, None
        try:
            value = self._do(what, *arguments)
        except GenError as error:
            failed = error
        suspect = (
            failed is not None
            or (isinstance(value, Trial) and value.status in ("launch_failed", "wrong_result"))
            or (isinstance(value, Rounds) and bool(value.faults))
        )
        if suspect and not self._bench.alive():
            return Last(value, failed)
        if failed is not None:
            raise failed
        return value

    def run(self, job: Callable[..., Any], *arguments: Any) -> Any:
        """Does any other job; the last one if the device does not answer any more."""
        try:
            return job(self._bench, self._report, *arguments)
        except GenError as error:
            if not self._bench.alive():
                return Last(error=error)
            raise

    def _do(self, what: What, *arguments: Any) -> Any:
        if what == "hello":
            bench = self._bench
            return Hello(bench.name, bench.driver, bench.limits, getattr(bench, "about", None))
        if what == "floor_us":
            return self._bench.floor_us(*arguments)
        if what == "prepare":
            self._bench.prepare(*arguments)
            return None
        if what == "open":
            self._close()
            try:
                self._session = self._bench.open(*arguments)
            except GenError as error:
                self._unopened = error
                raise
            return None
        if what == "close":
            self._close()
            return None
        if self._session is None:
            raise self._unopened
        if what == "attempt":
            return self._session.attempt(*arguments)
        entrants, turns, hot = arguments
        return self._session.rounds(entrants, turns, self._report, hot=hot)

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
