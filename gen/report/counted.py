"""What was predicted beside what the hardware counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gen.gpu.counters import (
    ACTIVE_WARPS,
    BYTES_READ,
    BYTES_WRITTEN,
    INSTRUCTIONS,
    LOAD_SECTORS,
    NANOSECONDS,
    SHARED_LOAD_WAVEFRONTS,
    SHARED_STORE_WAVEFRONTS,
    STORE_SECTORS,
    total,
)
from gen.proof.traffic import Kind, Space
from gen.report.explain import Explanation

Counted = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Counter:
    """A counter of the hardware.

    Attributes:
        name: for people.
        key: for JSON.
        metrics: Nsight Compute's, which are added up.
        predicted: None where nothing is.
        scale: by which they are multiplied.
        exact: whether the prediction counts the same thing, rather than estimates it.
    """

    name: str
    key: str
    metrics: Sequence[str]
    predicted: Callable[[Explanation], float | None]
    scale: float = 1.0
    exact: bool = False


def _sum(space: Space, kind: Kind, what: str) -> Callable[[Explanation], float]:
    return lambda one: sum(getattr(access, what) for access in one.found.of(space, kind))


COUNTERS = (
    Counter("sectors loaded", "load_sectors", LOAD_SECTORS, _sum("global", "load", "sectors"), exact=True),
    Counter("sectors stored", "store_sectors", STORE_SECTORS, _sum("global", "store", "sectors"), exact=True),
    Counter(
        "turns of shared loads", "shared_load_wavefronts", SHARED_LOAD_WAVEFRONTS,
        _sum("shared", "load", "wavefronts"), exact=True,
    ),
    Counter(
        "turns of shared stores", "shared_store_wavefronts", SHARED_STORE_WAVEFRONTS,
        _sum("shared", "store", "wavefronts"), exact=True,
    ),
    Counter("instructions of warps", "warp_instructions", INSTRUCTIONS, lambda _: None),
    Counter("bytes read from memory", "memory_bytes_read", BYTES_READ, lambda one: float(one.work.bytes_read)),
    Counter("bytes written to memory", "memory_bytes_written", BYTES_WRITTEN, lambda _: None),  # some stay in a cache
    Counter("us, by the profiler", "profiled_us", NANOSECONDS, lambda one: one.predicted.us, 1e-3),
)  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """A counter of one variant on one problem."""

    counter: Counter
    predicted: float | None
    counted: float

    @property
    def difference(self) -> float | None:
        """By how much what was counted exceeds what was predicted, as a share; None where that says nothing."""
        if self.predicted is None:
            return None
        if self.predicted == 0:
            return 0.0 if self.counted == 0 else float("inf")
        return self.counted / self.predicted - 1

    def shown(self) -> tuple[str, str, str, str]:
        """As a row of text."""
        predicted = "-" if self.predicted is None else f"{self.predicted:.6g}"
        difference = "-" if self.difference is None else f"{self.difference:+.1%}"
        return self.counter.name, predicted, f"{self.counted:.6g}", difference

    def as_json(self) -> dict[str, Any]:
        """As data."""
        return {"counter": self.counter.key, "predicted": self.predicted, "counted": self.counted}


def compared(one: Explanation, found: Counted) -> Iterator[Compared]:
    """Every counter that there is."""
    for counter in COUNTERS:
        value = total(found, counter.metrics)
        if value is not None:
            yield Compared(counter, counter.predicted(one), value * counter.scale)


def resident_warps(one: Explanation, found: Counted) -> float | None:
    """The warps that a multiprocessor held on average, of those that it could hold: of the main kernel."""
    percent = total({key: value for key, value in found.items() if key == one.main.kernel}, ACTIVE_WARPS)
    return None if percent is None else percent / 100
