"""A family's kernels of the literature in its order: what each step gains, and which metrics explain it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from gen.emit.render import render
from gen.errors import GenError, ShapeError
from gen.families.base import Extents, Family, Limits, Variant
from gen.families.extents import check_runtime_parameters
from gen.families.names import named_variant, variant
from gen.report.differences import written
from gen.report.explain import METRICS, Explanation, explanations, extents_for, is_dense, problem_of
from gen.store.trials import Problem, Trial
from gen.toolchain.compiled import Compiler
from gen.tune.device import Entrant, TuningDevice
from gen.tune.race import rounds_of_right

_CAUSES = (
    "load_efficiency", "store_efficiency", "conflict_degree", "active_lanes", "moved_over_least", "bytes_in_flight",
    "occupancy",
)  # fmt: skip
MIN_METRIC_CHANGE = 0.04  # a change of a metric by less explains nothing


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
        over: the kernel beside which the literature shows what it gains: by name; empty: the one before; None: none.
        published: how many times as fast as that the literature found it.
        extents: of its problem; None where it takes none such.
        explained: what it does; None where the CPU cannot run it.
        timed: what a call takes on a GPU; None where nothing was measured, and the prediction stands.
        reason: why there is no kernel, or no problem for it.
    """

    name: str
    rank: int
    variant: Variant | None = None
    over: str | None = ""
    published: float | None = None
    extents: Extents | None = None
    explained: Explanation | None = None
    timed: Time | None = None
    reason: str = ""

    @property
    def problem(self) -> str:
        """What tells its problem from others; empty without one."""
        if self.variant is None or self.extents is None:
            return ""
        return f"{self.variant.spec_name} {sorted(self.extents.items())}"

    @property
    def sizes(self) -> str:
        """Its problem for people: `f32, n 2^28`; empty without one."""
        if self.variant is None or self.extents is None:
            return ""
        return problem_of(self.variant, self.extents)

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
        return self.least_bytes / self.us * 1e-3

    @property
    def least_bytes(self) -> int:
        """What its problem must at least move; 0 without one."""
        if self.variant is None or self.extents is None:
            return 0
        work = self.variant.family.work(self.variant.spec, self.extents)
        return work.bytes_read + work.bytes_written

    @property
    def why_not(self) -> str:
        """Why it has no time; empty if it has one."""
        if self.reason or self.us is not None:
            return self.reason
        if self.timed is not None:
            return self.timed.reason
        return (self.variant and self.variant.algorithm.not_on_host) or "nothing was measured"


@dataclass(frozen=True)
class RungGain:
    """A rung beside the one that it goes on from.

    Attributes:
        before: that rung; None where a kernel begins anew.
        step: how much faster it is, by bytes of the problem a second; None where it begins anew.
        cumulative: the same beside the one that began.
        causes: which sizes and metrics changed, or else what is written otherwise.
    """

    rung: Rung
    before: Rung | None
    step: float | None
    cumulative: float | None
    causes: tuple[str, ...]


def said_of_problems(problems: Mapping[str, str]) -> str:
    """A sentence on what the kernels of these names are shown at: the problem of most, and who has another."""
    shown = [text for text in problems.values() if text]
    if not shown:
        return ""
    usual = max(dict.fromkeys(shown), key=shown.count)
    others: dict[str, list[str]] = {}
    for name, text in problems.items():
        if text not in ("", usual):
            others.setdefault(text, []).append(name)
    rest = "".join(f"; {text}: {', '.join(names)}" for text, names in others.items())
    return f"At {usual}{rest}."


MAX_BYTES_RATIO = 16  # times as many bytes: such problems are not held against each other
COLUMNS_EXPLAINED = (
    "GB/s: the least bytes of the problem over the time. Where a kernel repeats its work, the bytes of each repetition "
    "count, though caches keep what is repeated in one launch: then it may be more than memory gives. A step is over "
    "the kernel before, or the one that is named; in all is over the first of those that follow each other so. "
    "Published: the literature's own step, on a Fermi M2070 or M2090 or a Kepler K40."
)
"""What the columns of a ladder mean."""


def listed(
    family: Family[Any], limits: Limits, shape: str | None = None, runtime_parameters: Mapping[str, int] | None = None
) -> list[Rung]:
    """A rung for each kernel, at a shape of the first input, or the one that stands for most; nothing is run yet.

    Args:
        family: whose kernels.
        limits: of the device.
        shape: as `gen.tune.targets.read_shape` takes it.
        runtime_parameters: of the kernels that have them: `{"nreps": 20}`.

    Raises:
        ShapeError: none of them takes the shape.
        UnknownNameError: none of them has such a count.
    """
    check_runtime_parameters(
        runtime_parameters or {}, [(family, named_variant(family, one).spec) for one in family.named]
    )
    found: list[Rung] = []
    refused: list[ShapeError] = []
    before = ""
    for one in sorted(family.named, key=lambda named: named.rank):
        made = named_variant(family, one)
        rung = Rung(one.name, one.rank, made, before if one.over == "" else one.over, one.published)
        before = one.name
        try:
            extents = extents_for(made, limits, shape, one.more, runtime_parameters)
        except ShapeError as error:
            refused.append(error)
            found.append(replace(rung, reason=str(error)))
            continue
        reason = made.algorithm.infeasible(made.spec, made.config, limits)
        reason = reason or made.algorithm.unsupported_extents(made.spec, made.config, extents, limits)
        found.append(replace(rung, extents=None if reason else extents, reason=reason or ""))
    if refused and len(refused) == len(family.named):
        raise refused[0]
    return found


def on_host(rungs: Sequence[Rung]) -> dict[tuple[str, str], tuple[Variant, Extents]]:
    """The kernels that the CPU can run, each with its problem, by the names of both."""
    return {
        (rung.variant.name, rung.problem): (rung.variant, rung.extents)
        for rung in rungs
        if rung.variant and rung.extents is not None and rung.variant.algorithm.not_on_host is None
    }


def looked_at(
    rungs: Sequence[Rung], limits: Limits, home: Path, tick: Callable[[], None] = lambda: None
) -> list[Rung]:  # fmt: skip
    """The rungs with what the CPU run says of `on_host`, after each of which `tick` is called."""
    distinct = on_host(rungs)
    variants, extents = [made for made, _ in distinct.values()], [sizes for _, sizes in distinct.values()]
    explained = explanations(variants, limits, home, extents, tick)
    by_key = dict(zip(distinct, explained, strict=True))
    return [
        replace(rung, explained=by_key.get((rung.variant.name, rung.problem))) if rung.variant else rung
        for rung in rungs
    ]


def climb(rungs: Sequence[Rung]) -> Iterator[RungGain]:
    """Every rung with what it gains; rungs without a time are passed over."""
    known: dict[str, Rung] = {}
    began: dict[str, Rung] = {}  # who began, for each that has a time
    last: Rung | None = None
    for rung in sorted(rungs, key=lambda rung: rung.rank):
        speed = rung.gb_per_s
        before = _before(rung, known, last)
        if before is not None and not _alike(rung, before):
            before = None
        first = began.get(before.name) if before else None
        was, start = before and before.gb_per_s, first and first.gb_per_s
        yield RungGain(
            rung,
            before,
            speed / was if speed and was else None,
            speed / start if speed and start else 1.0 if speed else None,
            tuple(_changed(before, rung)) if before else (),
        )
        known[rung.name] = rung
        if speed:
            last, began[rung.name] = rung, first or rung


def _before(rung: Rung, known: Mapping[str, Rung], last: Rung | None) -> Rung | None:
    """The rung that this one goes on from: of those with a time, else what that one would go on from."""
    name = rung.over
    while name is not None:
        if name not in known:
            return last
        if known[name].gb_per_s:
            return known[name]
        name = known[name].over
    return None


def _alike(one: Rung, other: Rung) -> bool:
    """Whether GB/s of one problem say something of the other: at sizes too far apart, size is what makes them."""
    fewer, more = sorted((one.least_bytes, other.least_bytes))
    return more <= MAX_BYTES_RATIO * fewer


def _changed(one: Rung, other: Rung) -> Iterator[str]:
    """Sizes and metrics that are not what they were; where none is, what is written otherwise."""
    found = [*_other_problem(one, other), *_explained(one, other)]
    if not found and one.variant and other.variant:
        changes = written(one.variant, other.variant)
        found = [f"{change.name} {change.one} -> {change.other}" for change in changes]
        found = found or [f"the same kernel as {one.name}"]
    yield from found


def _other_problem(one: Rung, other: Rung) -> Iterator[str]:
    """The sizes in which the problems differ; what is counted by one of them alone is counted once by the other."""
    was, now = one.extents or {}, other.extents or {}
    counted = {**_runtime_parameters(one), **_runtime_parameters(other)}
    for name in dict.fromkeys((*was, *now)):
        before, after = was.get(name, counted.get(name)), now.get(name, counted.get(name))
        if name in was and name in now and is_dense(name, was) and is_dense(name, now):
            continue
        if before is not None and after is not None and before != after:
            yield f"{name} {before} -> {after}"


def _runtime_parameters(rung: Rung) -> Mapping[str, int]:
    return rung.variant.family.runtime_parameters(rung.variant.spec) if rung.variant and rung.extents else {}


def _explained(one: Rung, other: Rung) -> Iterator[str]:
    if one.explained and other.explained:
        yield from causes(one.explained, other.explained)


def causes(one: Explanation, other: Explanation) -> Iterator[str]:
    """The metrics that explain why one is faster, with both values."""
    for metric in METRICS:
        if metric.key not in _CAUSES:
            continue
        was, now = metric.of(one), metric.of(other)
        if was and now and abs(now / was - 1) > MIN_METRIC_CHANGE:
            yield f"{metric.name} {metric.shown(was)} -> {metric.shown(now)}"
    if one.predicted.bound != other.predicted.bound:
        yield f"bound by {other.predicted.bound}, no longer by {one.predicted.bound}"


def as_json(step: RungGain) -> dict[str, Any]:
    """A step as data."""
    rung = step.rung
    return {
        "name": rung.name,
        "rank": rung.rank,
        "variant": rung.variant.name if rung.variant else None,
        "extents": dict(rung.extents) if rung.extents else None,
        "problem": rung.sizes,
        "us": rung.us,
        "measured": rung.timed is not None and rung.timed.us is not None,
        "predicted_us": rung.explained.predicted.us if rung.explained else None,
        "of_limit": rung.timed.of_limit if rung.timed and rung.timed.us else None,
        "gb_per_s": rung.gb_per_s,
        "over": step.before.name if step.before else None,
        "step": step.step,
        "published": rung.published,
        "cumulative": step.cumulative,
        "causes": list(step.causes),
        "reason": rung.why_not or None,
    }


ROUNDS = 20  # even, for there and back


def timed(device: TuningDevice, compiler: Compiler, rungs: Sequence[Rung]) -> list[Rung]:
    """The rungs, those that have a problem with the time of a call, as tuning takes it."""
    problems: dict[str, Problem] = {}
    asked: dict[str, list[Variant]] = {}
    for rung in rungs:
        if rung.variant is not None and rung.extents is not None:
            key = rung.problem
            problems[key] = Problem(rung.variant.family, rung.variant.spec, rung.extents)
            asked.setdefault(key, []).append(rung.variant)
    found = {key: _of_problem(device, compiler, problem, asked[key]) for key, problem in problems.items()}
    return [
        replace(rung, timed=found[rung.problem][rung.variant.name]) if rung.variant and rung.extents else rung
        for rung in rungs
    ]


def _of_problem(
    device: TuningDevice, compiler: Compiler, problem: Problem, variants: Sequence[Variant]
) -> dict[str, Time]:
    """By name."""
    base = variant(problem.family, problem.spec, *problem.family.base(problem.spec, problem.shape_class))
    ready: dict[str, Entrant] = {}
    found: dict[str, Time] = {}
    for made in (base, *variants):
        try:
            ready[made.name] = Entrant(made, compiler.compile(made.name, render(made), device.limits.arch))
        except GenError as error:
            found[made.name] = Time(None, reason=str(error))
    if base.name not in ready:
        return {made.name: found[base.name] for made in variants}

    def faulty(trial: Trial) -> None:
        found[trial.variant.name] = Time(None, reason=trial.reason or trial.status)

    session = device.open(problem, ready[base.name])
    try:
        session.ready().result()
        entrants = {made.name: ready[made.name] for made in variants if made.name in ready}
        trials = {name: session.submit(entrant, float("inf")) for name, entrant in entrants.items()}
        for future in trials.values():
            if future.result().status != "ok":
                faulty(future.result())
        right = [entrant for name, entrant in entrants.items() if name not in found]
        rounds, _ = rounds_of_right(session, right, ROUNDS, faulty)
    except GenError as error:
        return {made.name: Time(None, reason=str(error)) for made in variants}
    finally:
        session.close()
    floor = device.floor_us(problem)
    for name, taken in rounds.times_us.items():
        found[name] = Time(median(taken), floor / median(taken))
    return found
