"""A family's kernels of the literature in its order: what each step gains, and which metrics explain it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gen.report.explain import METRICS, Explanation

_CAUSES = (
    "load_efficiency", "store_efficiency", "conflict_degree", "active_lanes", "moved_over_least", "bytes_in_flight",
    "occupancy",
)  # fmt: skip
NOTEWORTHY = 0.04  # a change of a metric by less explains nothing


@dataclass(frozen=True)
class Rung:
    """One kernel of the literature.

    Attributes:
        name: as the literature has it.
        rank: its place.
        explained: what it does; None where it cannot be built.
        us: what a call takes; None without a kernel, or where it was not timed.
        measured: whether `us` is measured; else it is predicted.
        reason: why there is no kernel, or no time.
    """

    name: str
    rank: int
    explained: Explanation | None
    us: float | None
    measured: bool
    reason: str = ""

    @property
    def gb_per_s(self) -> float | None:
        """The least bytes of the problem over the time."""
        if self.explained is None or not self.us:
            return None
        return self.explained.least_bytes / self.us * 1e-3


@dataclass(frozen=True)
class Step:
    """A rung beside the one before it.

    Attributes:
        step: how much faster it is, by bytes of the problem a second; None for the first.
        cumulative: the same beside the first.
        causes: which metrics changed.
    """

    rung: Rung
    step: float | None
    cumulative: float | None
    causes: tuple[str, ...]


def climb(rungs: Sequence[Rung]) -> Iterator[Step]:
    """Every rung with what it gains; rungs without a time are passed over."""
    first: Rung | None = None
    last: Rung | None = None
    for rung in sorted(rungs, key=lambda rung: rung.rank):
        speed = rung.gb_per_s
        before, start = last and last.gb_per_s, first and first.gb_per_s
        yield Step(
            rung,
            speed / before if speed and before else None,
            speed / start if speed and start else 1.0 if speed else None,
            tuple(causes(last.explained, rung.explained)) if last and last.explained and rung.explained else (),
        )
        if speed:
            first, last = first or rung, rung


def causes(one: Explanation, other: Explanation) -> Iterator[str]:
    """The metrics that explain why one is faster, with both values."""
    for metric in METRICS:
        if metric.key not in _CAUSES:
            continue
        was, now = metric.of(one), metric.of(other)
        if was and now and abs(now / was - 1) > NOTEWORTHY:
            yield f"{metric.name} {metric.shown(was)} -> {metric.shown(now)}"
    if one.predicted.bound != other.predicted.bound:
        yield f"bound by {other.predicted.bound}, no longer by {one.predicted.bound}"


def rungs_of(
    names: Sequence[tuple[str, int]],
    explained: Sequence[Explanation],
    time: Callable[[Explanation], float | str] | None,
) -> tuple[Rung, ...]:
    """A rung for each explained kernel; `time` measures one in microseconds, or says in words why it could not."""
    found = []
    for (name, rank), one in zip(names, explained, strict=True):
        timed = one.predicted.us if time is None else time(one)
        if isinstance(timed, str):
            found.append(Rung(name, rank, one, None, True, timed))
        else:
            found.append(Rung(name, rank, one, timed, time is not None))
    return tuple(found)


def as_json(step: Step) -> dict[str, Any]:
    """A step as data."""
    rung = step.rung
    return {
        "name": rung.name,
        "rank": rung.rank,
        "variant": rung.explained.variant.name if rung.explained else None,
        "extents": dict(rung.explained.extents) if rung.explained else None,
        "us": rung.us,
        "measured": rung.measured,
        "gb_per_s": rung.gb_per_s,
        "step": step.step,
        "cumulative": step.cumulative,
        "causes": list(step.causes),
        "reason": rung.reason or None,
    }
