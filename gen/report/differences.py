"""How two variants differ: parameter by parameter, metric by metric, and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gen.arch import WARP
from gen.families.base import Variant
from gen.report.explain import KINDS, METRICS, Explanation, Metric, in_bytes


@dataclass(frozen=True)
class Difference:
    """One parameter, spec field or metric in which two variants differ; as text."""

    name: str
    one: str
    other: str


def parameters(one: Variant, other: Variant) -> tuple[Difference, ...]:
    """Where specs, algorithms and configs differ."""

    def told(made: Variant) -> dict[str, object]:
        spec = {f"spec {name}": value for name, value in made.spec.to_json().items()}
        return {"family": made.family.name, **spec, "algorithm": made.algorithm.name, **made.config.values()}

    mine, theirs = told(one), told(other)
    return tuple(
        Difference(name, _shown(mine[name]) if name in mine else "-", _shown(theirs[name]) if name in theirs else "-")
        for name in dict.fromkeys((*mine, *theirs))
        if mine.get(name) != theirs.get(name)
    )


MAX_LISTED_NUMBERS = 4  # numbers that are told one by one


def _shown(value: object) -> str:
    """As people write it."""
    if value == "":  # a cache operator that is not asked for
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(_shown, value)) if len(value) <= MAX_LISTED_NUMBERS else f"{len(value)} numbers"
    return str(value)


def metrics(one: Explanation, other: Explanation) -> tuple[Difference, ...]:
    """All metrics of both."""

    def text(metric: Metric, e: Explanation) -> str:
        value = metric.of(e)
        return "-" if value is None else metric.shown(value)

    rows = (Difference(metric.name, text(metric, one), text(metric, other)) for metric in METRICS)
    return tuple(row for row in rows if (row.one, row.other) != ("-", "-"))


def _only_padded(differ: tuple[Difference, ...]) -> bool:
    """Whether the same algorithm has longer rows in shared memory, and whatever else: then conflicts fall for that."""
    names = {change.name for change in differ}
    return "padding" in names and "algorithm" not in names


def changes(one: Explanation, other: Explanation) -> Iterator[str]:
    """What the other does differently, cause before effect."""
    differ = parameters(one.variant, other.variant)
    same_problem = one.problem == other.problem and one.least_bytes == other.least_bytes
    if one.variant.family.name != other.variant.family.name:
        yield (
            f"They compute different things, {one.variant.spec_name} and {other.variant.spec_name}: what follows says "
            "how each goes about it; their speeds have no common measure."
        )
    if differ:
        told = [f"{change.name} from {change.one} to {change.other}" for change in written(one.variant, other.variant)]
        yield f"{other.variant.name} changes {', '.join(told)}."
    elif same_problem:
        yield "Both are the same variant."
        return
    else:
        yield "Both are the same variant, at different problems."
    if not same_problem:
        yield f"The problems differ: {one.problem}, and {other.problem}."
    yield from _costs(one, other, differ)
    yield from _moves(one, other, same_problem=same_problem)
    if one.main.occupancy.fraction != other.main.occupancy.fraction:
        yield f"Occupancy is {other.main.occupancy.fraction:.0%}, and was {one.main.occupancy.fraction:.0%}."
    yield _speed(one, other, same_problem=same_problem)


def written(one: Variant, other: Variant) -> tuple[Difference, ...]:
    """What is written otherwise; of two kinds of specs or algorithms only that they are such."""
    changes = parameters(one, other)
    both = [change for change in changes if "-" not in (change.one, change.other)]
    if any(change.name.startswith("spec ") for change in changes if change not in both):
        rest = [change for change in both if not change.name.startswith("spec ")]
        return Difference("spec", one.spec.label, other.spec.label), *rest
    return tuple(both)


def _times(ratio: float) -> str:
    return "the least possible" if abs(ratio - 1) < 0.005 else f"{ratio:.3g} times the least possible"


def _costs(one: Explanation, other: Explanation, differ: tuple[Difference, ...]) -> Iterator[str]:
    """Conflicts, efficiency, lanes."""
    before, after = one.found.conflict_degree, other.found.conflict_degree
    if abs(before - after) > 0.05 * before:
        yield (
            f"Bank conflicts {'fall' if after < before else 'rise'}: shared memory takes "
            f"{_wavefronts(after)}, and took {_wavefronts(before)}."
            + (" Rows that are longer by the padding begin in other banks, so that a column meets them all."
               if _only_padded(differ) and after < before else "")
        )  # fmt: skip
    for kind in KINDS:
        was, now = one.found.efficiency(kind), other.found.efficiency(kind)
        if was and now and abs(was - now) > 0.02:
            yield f"{kind.capitalize()}s are {now:.1%} efficient, and were {was:.1%}."
    lanes, had = other.found.active_lanes, one.found.active_lanes
    if lanes and had and abs(lanes - had) > 0.02 * WARP:
        yield (
            f"In an access {lanes / WARP:.0%} of a warp's lanes take part, and {had / WARP:.0%} did: "
            f"{'fewer' if lanes > had else 'more'} wait past an end, or behind a branch."
        )


def _wavefronts(degree: float) -> str:
    return "no more wavefronts than it must" if degree < 1.005 else f"{degree:.3g} times the wavefronts that it must"


def _moves(one: Explanation, other: Explanation, *, same_problem: bool) -> Iterator[str]:
    """Bytes that are moved, and those in flight."""
    was, now = one.found.moved_bytes(), other.found.moved_bytes()
    if same_problem and was and abs(now / was - 1) > 0.02:
        yield f"It moves {in_bytes(now)}, and moved {in_bytes(was)}."
    elif not same_problem and one.least_bytes and other.least_bytes:
        over, had = now / other.least_bytes, was / one.least_bytes
        if abs(over / had - 1) > 0.02:
            yield f"For its problem it moves {_times(over)}, and moved {_times(had)}."
    flew, fly = one.main.bytes_in_flight, other.main.bytes_in_flight
    if flew and fly and flew != fly:
        yield f"A multiprocessor has {in_bytes(fly)} of loads in flight, and had {in_bytes(flew)}."


def _speed(one: Explanation, other: Explanation, *, same_problem: bool) -> str:
    """What bounds it, and how much faster it is: by time at one problem, by bytes a second at two of one family."""
    bound = f"It is bound by {other.predicted.bound}"
    was_bound = "still" if other.predicted.bound == one.predicted.bound else f"no longer by {one.predicted.bound}"
    if same_problem:
        ratio = one.predicted.us / other.predicted.us
        return f"{bound}, {was_bound}; the model expects {_speeds(ratio)}."
    if one.variant.family.name != other.variant.family.name or not (one.least_bytes and other.least_bytes):
        return f"{bound}, {was_bound}."
    rates = [e.least_bytes / e.predicted.us * 1e-3 for e in (one, other)]
    return (
        f"{bound}, {was_bound}; by the least bytes of each problem over its time the model expects {rates[1]:.4g} GB/s "
        f"instead of {rates[0]:.4g}: {_speeds(rates[1] / rates[0])}."
    )


def _speeds(ratio: float) -> str:
    return "the same speed" if abs(ratio - 1) < 0.005 else f"{ratio:.3g} times the speed"
