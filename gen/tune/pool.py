"""Devices of one model as one: variants are tried on all of them at once, and decided between on one alone.

Each device times in a process and from a queue of its own, so that no launch waits for another device's. One that is
lost gives what it was to try to the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Protocol

from gen.errors import DeviceError, GenError
from gen.store.trials import Problem, Trial
from gen.tune.device import Entrant, Rounds, Session, TuningDevice

_log = logging.getLogger(__name__)


class PooledDevice(TuningDevice, Protocol):
    """A device that can be closed."""

    def close(self) -> None:
        """Ends what drives it."""
        ...


@dataclass(eq=False)
class _Place:
    """A device with the problem that is open there.

    Attributes:
        name: of the device, in the words of messages.
        queued: attempts that it has.
    """

    name: str
    session: Session
    queued: int = 0


class DevicePool:
    """Devices of one model; implements `TuningDevice`.

    Attributes:
        name, driver, limits: the first one's.
        width: how many there are; those that are lost count.
    """

    def __init__(self, openers: Mapping[str, Callable[[], PooledDevice]]) -> None:
        """Opens all at once.

        Args:
            openers: make one device each, by its name in the words of messages: `GPU 0`. A device that cannot be opened
                is left out, with a warning.

        Raises:
            GenError: why the first cannot be opened, where none can.
            DeviceError: they are of several models.
        """
        with ThreadPoolExecutor(len(openers)) as pool:
            opening = {name: pool.submit(opener) for name, opener in openers.items()}
        errors = {name: error for name, future in opening.items() if (error := future.exception()) is not None}
        self._devices = {name: future.result() for name, future in opening.items() if name not in errors}
        if not self._devices or not all(isinstance(error, GenError) for error in errors.values()):
            self.close()
            raise next(iter(errors.values()))
        for name, error in errors.items():
            _log.warning("%s is left out: %s", name, error)
        models = sorted({device.name for device in self._devices.values()})
        if len(models) > 1:
            self.close()
            raise DeviceError("GPUs that tune together", "must be of one model", ", ".join(models))
        first = next(iter(self._devices.values()))
        self.name, self.driver, self.limits = first.name, first.driver, first.limits
        self.width = len(self._devices)

    def open(self, problem: Problem, base: Entrant) -> PoolSession:
        """Begins to make a problem ready on all of them. Raises the last GenError where all are lost."""
        places: list[_Place] = []
        for name, device in tuple(self._devices.items()):
            try:
                places.append(_Place(name, device.open(problem, base)))
            except GenError as error:
                self._lose(name, error)
        return PoolSession(places)

    def prepare(self, problem: Problem) -> None:
        """Announces a problem that will be opened later; errors show when it is opened."""
        for device in tuple(self._devices.values()):
            with suppress(GenError):
                device.prepare(problem)

    def floor_us(self, problem: Problem) -> float:
        """The least time of such a problem, by the calibration of the first that answers."""
        while True:
            name, device = next(iter(self._devices.items()))
            try:
                return device.floor_us(problem)
            except GenError as error:
                self._lose(name, error)

    def close(self) -> None:
        """Ends what drives them, whatever it is at."""
        for device in self._devices.values():
            device.close()

    def __enter__(self) -> DevicePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lose(self, name: str, error: GenError) -> None:
        """Goes on without a device; raises the error where there is no other."""
        if len(self._devices) == 1:
            raise error
        self._devices.pop(name).close()
        _log.warning("%s is lost, and the others go on: %s", name, error)


class PoolSession:
    """One problem on all of them; implements `Session`. Base is proven on each."""

    def __init__(self, places: Sequence[_Place]) -> None:
        self._all, self._places = tuple(places), list(places)
        self._lock = Lock()  # attempts and openings end on the threads of their devices
        self._ready: Future[None] = Future()
        for place in self._all:
            place.session.ready().add_done_callback(partial(self._opened, place))

    def ready(self) -> Future[None]:
        """Done when base is proven on one of them; where it is proven on none, it holds the error of the last."""
        return self._ready

    def submit(self, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        """Queues an attempt on the device that has fewest."""
        future: Future[Trial] = Future()
        self._submit(entrant, give_up_us, future)
        return future

    def rounds(self, entrants: Sequence[Entrant], count: int, *, hot: bool = False) -> Rounds:
        """Times variants in rounds, all on the first device; on the next one if that is lost."""
        while True:
            self._ready.result()
            place = self._places[0]
            try:
                place.session.ready().result()
                return place.session.rounds(entrants, count, hot=hot)
            except GenError as error:
                if not self._without(place, error):
                    raise

    def close(self) -> None:
        """Has the memory of all of them given back."""
        for place in self._all:
            with suppress(GenError):
                place.session.close()

    def _opened(self, place: _Place, opening: Future[None]) -> None:
        """Goes on with a device that is ready, and without one that is not."""
        error = opening.exception()
        if error is None:
            with self._lock:
                if not self._ready.done():
                    self._ready.set_result(None)
        elif not self._without(place, error) and not self._ready.done():
            self._ready.set_exception(error)

    def _submit(self, entrant: Entrant, give_up_us: float, future: Future[Trial]) -> None:
        while True:
            with self._lock:
                place = min(self._places, key=lambda one: one.queued)
                place.queued += 1
            try:
                attempt = place.session.submit(entrant, give_up_us)
            except GenError as error:
                if not self._without(place, error):
                    raise
            else:
                attempt.add_done_callback(partial(self._ended, place, entrant, give_up_us, future))
                return

    def _ended(
        self, place: _Place, entrant: Entrant, give_up_us: float, future: Future[Trial], attempt: Future[Trial]
    ) -> None:
        """Hands on what came of an attempt; one that a lost device has not begun, another device is given."""
        error = attempt.exception()
        with self._lock:
            place.queued -= 1
        if error is None:
            future.set_result(attempt.result())
        elif isinstance(error, GenError) and self._without(place, error):
            try:
                self._submit(entrant, give_up_us, future)
            except GenError as last:
                future.set_exception(last)
        else:
            future.set_exception(error)

    def _without(self, place: _Place, error: BaseException) -> bool:
        """Leaves out a device for this problem; False if it is the last one, which stays, and says the error again."""
        with self._lock:
            if place not in self._places:
                return True
            if len(self._places) == 1:
                return False
            self._places.remove(place)
        _log.warning("%s is left out until the next problem: %s", place.name, error)
        return True
