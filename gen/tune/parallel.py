"""A tuning run on several GPUs of a machine: each tunes a problem of its own, so that no part of it waits for another.

A tuner is a process with a GPU, or several where there are fewer problems, and its share of the cores: texts are made
there, compiled and timed, as on one GPU. Every problem is tuned by one tuner, whole. One that is lost costs its problem
a new start, which finds the trials that were recorded.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from gen.errors import GenError, RunError
from gen.families.base import Family, Limits
from gen.store.trials import Problem
from gen.store.winners import check_unlocked
from gen.toolchain.compiled import Compiler
from gen.toolchain.farm import CompileFarm
from gen.tune.one_problem import Options
from gen.tune.outcome import Interrupted, Outcome, TuningEndedError
from gen.tune.pipeline import Sources
from gen.tune.pool import DevicePool, PooledDevice
from gen.tune.several_problems import Run, run, weights_of
from gen.workers import WAIT_SECONDS, Ended, Report, Workers, result_of

_log = logging.getLogger(__name__)
STOP = signal.SIGUSR1  # ends what a tuner is at; Ctrl-C does not reach it
STOP_SECONDS = 10.0  # in which a tuner must then keep what it has
MAX_STARTS = 3  # of a problem, whose tuners die of it

Opener = Callable[[], PooledDevice]
"""Makes a device; can be pickled."""


@dataclass(frozen=True)
class Equipment:
    """What a tuner makes in its process; can be pickled.

    Attributes:
        openers: of its devices, by their names in messages.
        compiler, width: what compiles, in so many processes.
        families, home: as `run` takes them.
    """

    openers: Mapping[str, Opener]
    compiler: Compiler
    width: int
    families: tuple[Family[Any], ...]
    home: Path


@dataclass(frozen=True)
class _Order:
    """A problem to tune, and how; `later` is what the tuner will be given next."""

    problem: Problem
    later: Problem | None
    budget: float | None
    options: Options
    evidence: Mapping[str, object]


@dataclass(frozen=True)
class _Answer:
    """What came of an order.

    Attributes:
        outcome: None if it was not begun in time, or was not come to.
        error: what ended it.
        lost: whether the devices of the tuner are of no use any more.
        died: whether the tuner's process died of it; another takes its place.
    """

    outcome: Outcome | None = None
    error: GenError | None = None
    lost: bool = False
    died: bool = False


class _State:
    """A tuner in its process."""

    def __init__(self, equipment: Equipment, report: Report) -> None:
        self.equipment, self.report, self.busy = equipment, report, False
        signal.signal(STOP, self._stop)
        openers = equipment.openers
        self.device = next(iter(openers.values()))() if len(openers) == 1 else DevicePool(openers)
        self.farm = CompileFarm(equipment.compiler, width=equipment.width)
        self.sources = Sources(self.farm, self.device.limits.arch)

    def describe(self) -> tuple[str, str, Limits]:
        return self.device.name, self.device.driver, self.device.limits

    def weigh(self, problems: Sequence[Problem], options: Options) -> list[int]:
        return weights_of(problems, self.sources, options)

    def tune(self, order: _Order) -> _Answer:
        def tick(_: Problem, done: int, every: int) -> None:
            self.report((done, every))

        self.busy, has = True, self.equipment
        try:
            done = run(
                [order.problem], has.families, self.device, self.farm, has.home, budget=order.budget,
                options=order.options, evidence=order.evidence, tick=tick, sources=self.sources, later=order.later,
            )  # fmt: skip
            return _Answer(done.outcomes[0] if done.outcomes else None)
        except Interrupted as stopped:
            return _Answer(stopped.outcome)
        except KeyboardInterrupt:
            return _Answer()
        except TuningEndedError as error:
            return _Answer(error.outcome, error=error, lost=True)
        except GenError as error:
            return _Answer(error=error, lost=not self._answers(order.problem))
        finally:
            self.busy = False

    def _answers(self, problem: Problem) -> bool:
        try:
            self.device.floor_us(problem)
        except GenError:
            return False
        return True

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self.busy:
            self.busy = False  # once
            raise KeyboardInterrupt


@dataclass(eq=False)
class _Tuner:
    """A tuner as its owner sees it; `later` is the place of the problem that it was told will be next."""

    name: str
    workers: Workers[_State]
    later: int | None = None


class ParallelTuning:
    """Several GPUs of one model, each with a share of the cores.

    Attributes:
        name, driver, limits: the first one's.
        width: how many GPUs there are.
    """

    def __init__(
        self,
        openers: Mapping[str, Opener],
        compiler: Compiler,
        families: Sequence[Family[Any]],
        home: Path,
        problems: int,
    ) -> None:
        """Starts them all at once.

        Args:
            openers: of the devices, by their names in messages: `GPU 0`.
            compiler: can be pickled.
            families: whose catalogues `home` holds.
            home: of the winners and the trials.
            problems: so many will be tuned: there are no more tuners, but several GPUs in each.

        Raises:
            GenError: why the first cannot be opened, where none can; the others go on without those that cannot.
        """
        names, count = list(openers), min(len(openers), problems)
        width = max(len(os.sched_getaffinity(0)) // count, 1)
        self.width = len(openers)
        self._home, self._tuners = home, list[_Tuner]()
        for number in range(count):
            group = {name: openers[name] for name in names[number::count]}
            begin = partial(_State, Equipment(group, compiler, width, tuple(families), home))
            self._tuners.append(_Tuner(", ".join(group), Workers(begin, doing="tunes on a GPU", ahead=1)))
        try:
            self.name, self.driver, self.limits = self._describe()
        except BaseException:
            self.close()
            raise

    def _describe(self) -> tuple[str, str, Limits]:
        asked = [(tuner, tuner.workers.submit(_State.describe)) for tuner in self._tuners]
        errors = [(tuner, error) for tuner, future in asked if (error := future.exception()) is not None]
        found = [future.result() for _, future in asked if future.exception() is None]
        if not found or not all(isinstance(error, GenError) for _, error in errors):
            raise errors[0][1]
        for tuner, error in errors:
            self._lose(tuner, error)
        return found[0]

    def run(
        self, problems: Sequence[Problem], *, budget: float | None = None, options: Options | None = None,
        evidence: Mapping[str, object] | None = None,
        tick: Callable[[Problem, int, int], None] = lambda _problem, _done, _all: None,
    ) -> Run:  # fmt: skip
        """Tunes the problems in order, as many at once as there are tuners; otherwise as `several_problems.run`.

        Raises what that raises, once all that was begun has ended.
        """
        check_unlocked(self._home)
        work = _Work(self, problems, budget, options or Options(), evidence or {}, tick)
        try:
            work.do()
        except KeyboardInterrupt:
            work.stop()
            if work.stopped:
                raise Interrupted(work.stopped[0]) from None
            raise
        outcomes = tuple(work.outcomes[place] for place in sorted(work.outcomes))
        left_out = tuple(problem for place, problem in enumerate(problems) if place not in work.outcomes)
        return Run(self.name, self.driver, outcomes, left_out, time.monotonic() - work.start, self.width)

    @property
    def tuners(self) -> Sequence[_Tuner]:
        """Those that are not lost."""
        return self._tuners

    def lose(self, tuner: _Tuner, error: BaseException) -> None:
        """Goes on without a tuner; raises the error where there is no other."""
        if len(self._tuners) == 1:
            raise error
        self._lose(tuner, error)

    def close(self) -> None:
        """Ends them, whatever they are at."""
        for tuner in self._tuners:
            tuner.workers.close()

    def __enter__(self) -> ParallelTuning:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lose(self, tuner: _Tuner, error: BaseException) -> None:
        self._tuners.remove(tuner)
        tuner.workers.close()
        _log.warning("%s is lost, and the others go on: %s", tuner.name, error)


class _Work:
    """The problems of a run, and who is at which."""

    def __init__(
        self, tuners: ParallelTuning, problems: Sequence[Problem], budget: float | None, options: Options,
        evidence: Mapping[str, object], tick: Callable[[Problem, int, int], None],
    ) -> None:  # fmt: skip
        self.start = time.monotonic()
        self.outcomes: dict[int, Outcome] = {}
        self.stopped: list[Outcome] = []
        self._tuners, self._problems, self._options, self._evidence, self._tick = (
            tuners, problems, options, evidence, tick
        )  # fmt: skip
        self._end = None if budget is None else self.start + budget
        self._queue = deque(range(len(problems)))
        self._running: dict[Future[_Answer], tuple[_Tuner, int]] = {}
        self._starts = Counter[int]()
        self._weights: list[int] = []

    def do(self) -> None:
        """Tunes them all, as far as the budget goes."""
        error: GenError | None = None
        if self._end is not None:  # all of them look at all spaces, which each will need
            asked = [one.workers.submit(_State.weigh, self._problems, self._options) for one in self._tuners.tuners]
            self._weights = result_of(asked[0])
        while True:
            busy = {id(tuner) for tuner, _ in self._running.values()}
            for tuner in [one for one in self._tuners.tuners if id(one) not in busy and error is None]:
                self._begin(tuner)
            if not self._running:
                break
            done = futures.wait(self._running, WAIT_SECONDS, futures.FIRST_COMPLETED).done
            for future in done:
                error = self._finish(*self._running.pop(future), future) or error
        if error is not None:
            raise error

    def stop(self) -> None:
        """Has each tuner keep what it has, and waits for that."""
        for tuner, _ in self._running.values():
            for pid in tuner.workers.pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, STOP)
        done = futures.wait(self._running, STOP_SECONDS).done
        answers = [future.result() for future in done if future.exception() is None]
        self.stopped = [answer.outcome for answer in answers if answer.outcome is not None]

    def _begin(self, tuner: _Tuner) -> None:
        """Gives a tuner the problem that it was told of, else the next, else one that another was told of."""
        place, tuner.later = tuner.later, None
        if place is None and self._queue:
            place = self._queue.popleft()
        if place is None:
            other = next((one for one in self._tuners.tuners if one.later is not None), None)
            if other is None:
                return
            place, other.later = other.later, None
        assert place is not None
        tuner.later = self._queue.popleft() if self._queue else None
        later = None if tuner.later is None else self._problems[tuner.later]
        problem = self._problems[place]
        order = _Order(problem, later, self._share(place), self._options, self._evidence)

        def told(message: tuple[int, int]) -> None:
            self._tick(problem, *message)

        def ended(how: Ended) -> _Answer:
            return _Answer(error=RunError(f"The process that tuned {problem}", "ended", how.reason), died=True)

        self._starts[place] += 1
        future = tuner.workers.submit(_State.tune, order, reported=told, ended=ended)
        self._running[future] = (tuner, place)

    def _share(self, place: int) -> float | None:
        """The seconds that a problem may take: all tuners' time until the end, shared with what is not done."""
        if self._end is None:
            return None
        left = {*range(len(self._problems))} - {*self.outcomes}
        share: float = len(self._tuners.tuners) * self._weights[place] / sum(self._weights[one] for one in left)
        return (self._end - time.monotonic()) * min(share, 1.0)

    def _finish(self, tuner: _Tuner, place: int, future: Future[_Answer]) -> GenError | None:
        """Notes an outcome. Gives the error that must end the run, if there is one."""
        lost = future.exception()
        answer = _Answer() if lost is not None else future.result()
        if lost is not None and not isinstance(lost, GenError):
            raise lost
        if lost is not None or answer.lost:
            error = lost or answer.error
            assert isinstance(error, GenError)
            self._queue.appendleft(place)
            if tuner.later is not None:
                self._queue.append(tuner.later)
                tuner.later = None
            self._tuners.lose(tuner, error)
        elif answer.error is not None:
            if not answer.died or self._starts[place] == MAX_STARTS:
                return answer.error
            self._queue.appendleft(place)
        elif answer.outcome is not None:
            self.outcomes[place] = replace(answer.outcome, problem=self._problems[place])
        return None
