"""Who asks that problems are tuned at their first call, and who forbids it.

A problem is a spec at the sizes, strides and alignment of a call. It is tuned once: the winner is kept in the folder of
results, where later calls and processes find it. Threads tune one after another. Of several processes that meet new
problems on a GPU at the same time, one tunes; the others call what they would untuned, and do not wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gen.errors import ArgumentError, GenError
from gen.families.base import Extents
from gen.families.extents import told_extents
from gen.families.regions import Region, sizes_of
from gen.gpu import device as gpus
from gen.gpu.device import Device
from gen.runtime.dispatch import Chooser, winners_of
from gen.store.winners import is_locked
from gen.tune.targets import read_seconds

log = logging.getLogger("gen")
LEAST_CALLS = 40  # that a budget must have room for: base and a few variants, each run and timed some times
_budget: ContextVar[float | None] = ContextVar("_budget", default=None)
_frozen: ContextVar[bool] = ContextVar("_frozen", default=False)
_one_thread = threading.Lock()


class Scope(AbstractContextManager[None], ContextDecorator):
    """What `tuning` and `frozen` give: for `with`, or before a function."""


def tuning(budget: float | str = "2s") -> Scope:
    """Tunes problems at their first call, within a `with` block or a function that this decorates, in this thread.

    Kernels that were loaded before are meant too, and functions such as `gen.sum`; a problem that a kernel object was
    already called for stays as it is.

    Args:
        budget: the time for one problem: seconds, or a text such as `"2s"`.

    Raises:
        ArgumentError: it is no time.
    """
    return cast("Scope", _set(_budget, seconds_of(budget)))


def frozen() -> Scope:
    """Forbids that anything is tuned, within a `with` block or a function that this decorates, in this thread.

    A call that would tune, by `tuning`, `gen.load(tune=)` or `gen.tune`, raises GenError instead.
    """
    return cast("Scope", _set(_frozen, True))


@contextmanager
def _set(variable: ContextVar[Any], value: object) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def seconds_of(budget: float | str) -> float:
    """A budget in seconds. Raises ArgumentError unless it is a positive time."""
    if isinstance(budget, str):
        seconds = read_seconds(budget)
    else:
        seconds = float(budget) if type(budget) in (int, float) and 0 < budget < float("inf") else None
    if seconds is None:
        raise ArgumentError("The budget", "must be a positive time: 2.0, in seconds, or '2s'", repr(budget))
    return seconds


@dataclass(frozen=True)
class FirstCalls:
    """Tunes the problems that a kernel object meets, if somebody asks for it.

    Attributes:
        home: the folder of what gen writes.
        budget: seconds for each problem, from `gen.load(tune=)`; None: only within `tuning`.
    """

    home: Path
    budget: float | None = None

    def tune(
        self, chooser: Chooser, device: Device, extents: Extents, alignment: int,
        capturing: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """Tunes a problem, and tells the chooser, unless it was tuned, nobody asks for it, or it cannot be.

        Args:
            chooser: for the spec and the device.
            device: the caller's.
            extents: of the problem.
            alignment: of its addresses.
            capturing: whether the call becomes part of a graph: then nothing can be timed.

        Raises:
            GenError: `frozen` forbids it, or that the folder is locked.
        """
        budget = _budget.get() if self.budget is None else self.budget
        if budget is None or not self._can_be_timed(chooser, device, extents, alignment):
            return
        sizes = sizes_of(chooser.family, chooser.spec, extents, alignment)
        if _frozen.get() or is_locked(self.home):
            words = " x ".join(map(str, told_extents(extents, pitches=False).values()))
            who = "gen.frozen()" if _frozen.get() else f"gen lock of {self.home}"
            raise GenError(
                f"{chooser.name} at {words}", f"is not tuned, and {who} forbids to tune it",
                next_step=f"Tune it before, by gen.tune or gen tune {chooser.name} --shape, or ask for no tuning",
            )  # fmt: skip
        if capturing():
            log.info("%s is not tuned by a call that is captured into a graph: call it once before", chooser.name)
            return
        with _one_thread:
            chooser.learn(winners_of(self.home))  # of other threads and processes
            if chooser.measured(extents, alignment) is None:
                self._tune(chooser, device, extents, alignment, Region.exactly(sizes), budget)

    def _can_be_timed(self, chooser: Chooser, device: Device, extents: Extents, alignment: int) -> bool:
        return (
            device.index >= 0  # on the CPU run nothing is ever timed
            and chooser.family.work(chooser.spec, extents).cells > 0
            and chooser.measured(extents, alignment) is None
        )

    def _tune(
        self, chooser: Chooser, device: Device, extents: Extents, alignment: int, region: Region, budget: float
    ) -> None:  # fmt: skip
        # Imported here, since a process that tunes nothing does without.
        from gen.gpu.lock import alone_on
        from gen.store.trials import Problem
        from gen.tune.first_call import tune_now

        problem = Problem(chooser.family, chooser.spec, extents, alignment, region)
        work = chooser.family.work(chooser.spec, extents)
        least = (work.bytes_read + work.bytes_written) / device.limits.memory_bytes_per_second
        if least * LEAST_CALLS > budget:
            said = "%s is not tuned: a call takes %.2g s at least, and %g s are for %d such calls or more"
            log.warning(said, problem, least, budget, LEAST_CALLS)
            return
        untuned = chooser.for_call(extents, alignment).variant.name
        try:
            with alone_on(f"{_identity(device)}-first-call", "tunes a first call", say=log.info, seconds=0):
                winner = tune_now(problem, device, self.home, budget, untuned)
        except GenError as error:
            log.warning("%s is not tuned, and %s is called: %s", problem, untuned, error)
            return
        if winner is None:
            log.warning("%s is not tuned, and %s is called: %g s were too few", problem, untuned, budget)
            return
        chooser.learn((winner,))


def _identity(device: Device) -> str:
    """What tells a GPU from every other, in all processes."""
    found = gpus.find_gpu(device.index)
    return f"{device.name}-{device.index}".replace("/", "-") if found is None else found.uuid
