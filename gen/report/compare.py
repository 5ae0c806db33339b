"""How two variants differ: parameter by parameter, metric by metric, and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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


MANY = 4  # numbers that are told one by one


def _shown(value: object) -> str:
    """As people write it."""
    if value == "":  # a cache operator that is not asked for
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(_shown, value)) if len(value) <= MANY else f"{len(value)} numbers"
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
    if differ:
        told = ", ".join(f"{change.name} from {change.one} to {change.other}" for change in differ)
        yield f"{other.variant.name} changes {told}."
    else:
        yield "Both are the same variant."
        return
    before, after = one.found.conflict_degree, other.found.conflict_degree
    if abs(before - after) > 0.05 * before:
        yield (
            f"Bank conflicts {'fall' if after < before else 'rise'}: shared memory takes {after:.3g} times the turns "
            f"that it must, and took {before:.3g} times."
            + (" Rows that are longer by the padding begin in other banks, so that a column meets them all."
               if _only_padded(differ) and after < before else "")
        )  # fmt: skip
    for kind in KINDS:
        was, now = one.found.efficiency(kind), other.found.efficiency(kind)
        if was and now and abs(was - now) > 0.02:
            yield f"{kind.capitalize()}s are {now:.1%} efficient, and were {was:.1%}."
    was_moved, now_moved = one.found.moved_bytes(), other.found.moved_bytes()
    if was_moved and abs(now_moved / was_moved - 1) > 0.02:
        yield f"It moves {in_bytes(now_moved)}, and moved {in_bytes(was_moved)}."
    flew, fly = one.main.bytes_in_flight, other.main.bytes_in_flight
    if flew and fly and flew != fly:
        yield f"A multiprocessor has {in_bytes(fly)} of loads in flight, and had {in_bytes(flew)}."
    if one.main.occupancy.fraction != other.main.occupancy.fraction:
        yield f"Occupancy is {other.main.occupancy.fraction:.0%}, and was {one.main.occupancy.fraction:.0%}."
    bound = f"It is bound by {other.predicted.bound}"
    was_bound = "still" if other.predicted.bound == one.predicted.bound else f"no longer by {one.predicted.bound}"
    ratio = one.predicted.us / other.predicted.us
    yield f"{bound}, {was_bound}; the model expects {ratio:.3g} times the speed."
