"""The device on which contenders meet, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from bench.arrays import Shared
from bench.judge import Comparer
from bench.peers.base import Place
from bench.works import Shape
from gen.dtypes import DType
from gen.errors import GenError, RunError
from gen.families.base import Work
from gen.gpu.timing import Protocol as Caches
from gen.gpu.timing import Sample


class LostError(GenError):
    """A device that no longer answers: whoever was at work took it down."""


class Ring(Place, Comparer, Protocol):
    """The device, with its clock."""

    name: str
    driver: str
    backend: Any

    def random(self, shape: Shape, dtype: DType, seed: int) -> Shared:
        """New memory with random elements."""
        ...

    def in_turns(self, samples: Sequence[Sample], protocol: Caches) -> list[float]:
        """Microseconds, one after another in this order."""
        ...

    def floor_us(self, work: Work, protocol: Caches) -> float:
        """The least time of such work."""
        ...

    def clock_mhz(self) -> int:
        """Of the multiprocessors; 0 where nobody can tell."""
        ...

    def synchronize(self) -> None:
        """Waits for all that is queued. Raises RunError if a launch failed on the way."""
        ...


def check_alive(ring: Ring) -> None:
    """Raises LostError where the device no longer answers."""
    try:
        ring.synchronize()
    except RunError as error:
        raise LostError("The GPU", "no longer answers", error) from error
