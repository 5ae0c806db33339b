"""A family's kernels of the literature in its order: what each step gains, and which metrics explain it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gen.errors import ShapeError
from gen.families.base import Extents, Family, Limits, Variant
from gen.families.counts import check_counts
from gen.families.names import named_variant
from gen.report.explain import METRICS, Explanation
from gen.report.look import explanations, extents_for

_CAUSES = (
    "load_efficiency", "store_efficiency", "conflict_degree", "active_lanes", "moved_over_least", "bytes_in_flight",
    "occupancy",
)  # fmt: skip
NOTEWORTHY = 0.04  # a change of a metric by less explains nothing


@dataclass(frozen=True)
class Time:
    """What a call takes on a GPU.

    Attributes:
        us: the median; None where there is none.
        of_limit: the least time of the problem over it; 0 without one.
        reason: why there is none.
    """

    us: float | None
    of_limit: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Rung:
    """One kernel of the literature.

    Attributes:
        name: as the literature has it.
        rank: its place.
        variant: None where it cannot be built.
        extents: of its problem; None where it takes none such.
        explained: what it does; None where the CPU cannot run it.
        timed: what a call takes on a GPU; None where nothing was measured, and the prediction stands.
        reason: why there is no kernel, or no problem for it.
    """

    name: str
    rank: int
    variant: Variant | None = None
    extents: Extents | None = None
    explained: Explanation | None = None
    timed: Time | None = None
    reason: str = ""

    @property
    def problem(self) -> str:
        """What tells its problem from others; empty without one."""
        if self.variant is None or self.extents is None:
            return ""
        return f"{self.variant.family.name}_{self.variant.spec.label} {sorted(self.extents.items())}"

    @property
    def us(self) -> float | None:
        """What a call takes: measured, or else predicted."""
        if self.timed is not None:
            return self.timed.us
        return None if self.explained is None else self.explained.predicted.us

    @property
    def gb_per_s(self) -> float | None:
        """The least bytes of the problem over the time."""
        if self.variant is None or self.extents is None or not self.us:
            return None
        work = self.variant.family.work(self.variant.spec, self.extents)
        return (work.bytes_read + work.bytes_written) / self.us * 1e-3

    @property
    def why_not(self) -> str:
        """Why it has no time; empty if it has one."""
        if self.reason or self.us is not None:
            return self.reason
        if self.timed is not None:
            return self.timed.reason
        return (self.variant and self.variant.algorithm.not_on_host) or "nothing was measured"


@dataclass(frozen=True)
class Step:
    """A rung beside the one before it.

    Attributes:
        step: how much faster it is, by bytes of the problem a second; None for the first.
        cumulative: the same beside the first.
        causes: which sizes and metrics changed.
    """

    rung: Rung
    step: float | None
    cumulative: float | None
    causes: tuple[str, ...]


def listed(
    family: Family[Any], limits: Limits, shape: str | None = None, counts: Mapping[str, int] | None = None
) -> list[Rung]:
    """A rung for each kernel, at a shape of the first input, or the one that stands for most; nothing is run yet.

    Args:
        family: whose kernels.
        limits: of the device.
        shape: as `gen.tune.problems.read_shape` takes it.
        counts: what those kernels count that count it: `{"nreps": 20}`.

    Raises:
        ShapeError: none of them takes the shape.
        UnknownNameError: none of them has such a count.
    """
    check_counts(counts or {}, [(family, named_variant(family, one).spec) for one in family.named])
    found: list[Rung] = []
    refused: list[ShapeError] = []
    for one in family.named:
        made = named_variant(family, one)
        try:
            extents = extents_for(made, limits, shape, one.more, counts)
        except ShapeError as error:
            refused.append(error)
            found.append(Rung(one.name, one.rank, made, reason=str(error)))
            continue
        reason = made.algorithm.infeasible(made.spec, made.config, limits)
        reason = reason or made.algorithm.uncovered(made.spec, made.config, extents, limits)
        found.append(Rung(one.name, one.rank, made, None if reason else extents, reason=reason or ""))
    if refused and len(refused) == len(family.named):
        raise refused[0]
    return sorted(found, key=lambda rung: rung.rank)


def looked_at(rungs: Sequence[Rung], limits: Limits, home: Path) -> list[Rung]:
    """The rungs with what the CPU run says of their kernels, but for those that it cannot run."""
    distinct = {
        (rung.variant.name, rung.problem): (rung.variant, rung.extents)
        for rung in rungs
        if rung.variant and rung.extents is not None and rung.variant.algorithm.not_on_host is None
    }
    explained = explanations([made for made, _ in distinct.values()], limits, home, [e for _, e in distinct.values()])
    by_key = dict(zip(distinct, explained, strict=True))
    return [
        replace(rung, explained=by_key.get((rung.variant.name, rung.problem))) if rung.variant else rung
        for rung in rungs
    ]


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
            (*_other_problem(last, rung), *_explained(last, rung)) if last else (),
        )
        if speed:
            first, last = first or rung, rung


def _other_problem(one: Rung, other: Rung) -> Iterator[str]:
    """The sizes that both problems have, where they differ."""
    for name, size in (other.extents or {}).items():
        was = (one.extents or {}).get(name, size)
        if was != size:
            yield f"{name} {was} -> {size}"


def _explained(one: Rung, other: Rung) -> Iterator[str]:
    if one.explained and other.explained:
        yield from causes(one.explained, other.explained)


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


def as_json(step: Step) -> dict[str, Any]:
    """A step as data."""
    rung = step.rung
    return {
        "name": rung.name,
        "rank": rung.rank,
        "variant": rung.variant.name if rung.variant else None,
        "extents": dict(rung.extents) if rung.extents else None,
        "us": rung.us,
        "measured": rung.timed is not None and rung.timed.us is not None,
        "predicted_us": rung.explained.predicted.us if rung.explained else None,
        "of_limit": rung.timed.of_limit if rung.timed and rung.timed.us else None,
        "gb_per_s": rung.gb_per_s,
        "step": step.step,
        "cumulative": step.cumulative,
        "causes": list(step.causes),
        "reason": rung.why_not or None,
    }
