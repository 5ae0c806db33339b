"""Times winners again, each against base, and says what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gen.emit.render import render
from gen.errors import GenError, StoreError
from gen.families.base import WIDEST, Family
from gen.families.extents import told_extents
from gen.families.names import Known, find_spec, find_variant
from gen.store.trials import Problem
from gen.store.winners import TUNED_FILE, Winner
from gen.toolchain.farm import Farm
from gen.tune.choose import STAY_RATIO, Interval, paired_ratio
from gen.tune.device import Entrant, Session, TuningDevice
from gen.tune.one_problem import base_of

Verdict = Literal["SAME", "FASTER", "SLOWER", "UNCLEAR"]
FIRST_ROUNDS = 30  # before the first verdict; then as many again as there were, until it is clear
MAX_ROUNDS = 240


@dataclass(frozen=True)
class Check:
    """What became of a winner.

    Attributes:
        verdict: against base; None if it could not be timed.
        ratio: its time over base's, with its interval; None without times.
        reason: why there are none.
        foreign: processes of others on the GPU meanwhile, a text each.
    """

    winner: Winner
    verdict: Verdict | None
    ratio: Interval | None = None
    reason: str = ""
    foreign: tuple[str, ...] = ()

    @property
    def bad(self) -> bool:
        """Whether base would do better."""
        return self.verdict in (None, "SLOWER")


def verify(
    winners: Iterable[Winner],
    families: Sequence[Family[Any]],
    known: Known,
    device: TuningDevice,
    farm: Farm,
) -> Iterator[Check]:
    """Times the winners of a device in rounds with base; writes nothing.

    Args:
        winners: of any device; those of others are left out.
        families: where their specs are looked up.
        known: JSON of specs by name.
        device: where they are timed.
        farm: compiles for the device's architecture.
    """
    for winner in winners:
        if winner.device == device.name:
            try:
                yield _check(winner, families, known, device, farm)
            except GenError as error:
                yield Check(winner, None, reason=str(error))


def verdict_of(ratio: Interval) -> Verdict:
    """What the interval of a time over base's shows; a difference within 1 % is none."""
    if ratio.high < 1 / STAY_RATIO:
        return "FASTER"
    if ratio.low > STAY_RATIO:
        return "SLOWER"
    return "SAME" if ratio.low >= 1 / STAY_RATIO and ratio.high <= STAY_RATIO else "UNCLEAR"


def problem_of(winner: Winner, families: Sequence[Family[Any]], known: Known) -> Problem:
    """The problem that a winner was measured on. Raises StoreError if its line does not say."""
    family, spec = find_spec(families, winner.spec, known)
    subject, again = f"{TUNED_FILE}: {winner.variant}", "Tune it again"
    classes = family.shape_classes(spec)
    if winner.shape not in classes:
        raise StoreError(subject, "must be for one of: " + "; ".join(classes), winner.shape, next_step=again)
    extents = winner.evidence.get("extents")
    names = told_extents(family.representative(spec, winner.shape)).keys()
    axes = {str(axis) for operand in spec.operands for axis in operand.axes}  # steps along an axis of 1 are 0
    if (
        not isinstance(extents, dict)
        or told_extents(extents).keys() != names
        or not all(type(extent) is int and extent >= (name in axes) for name, extent in extents.items())
    ):
        rule = "must have the extents it was measured at: " + ", ".join(names)
        raise StoreError(subject, rule, repr(extents), next_step=again)
    # What follows from the others is not what every gen has derived.
    derived = family.extents(spec, family.layouts(spec, extents))
    sizes = {**derived, **told_extents(extents)}
    for alignment in (WIDEST, 8, 4, 2, 1):
        problem = Problem(family, spec, sizes, alignment, winner.region)
        if problem.shape_class == winner.shape and winner.region.holds(problem.sizes):
            return problem
    raise StoreError(subject, "must have extents of the sizes that it is for", winner.words, next_step=again)


def _check(winner: Winner, families: Sequence[Family[Any]], known: Known, device: TuningDevice, farm: Farm) -> Check:
    problem = problem_of(winner, families, known)
    made = find_variant(families, winner.variant, known)
    base = base_of(problem, device)
    if made == base:
        return Check(winner, "SAME", Interval(1.0, 1.0, 1.0), "it is base")
    codes = [farm.submit(one.name, render(one), device.limits.arch) for one in (base, made)]
    entrants = [Entrant(one, code.result()) for one, code in zip((base, made), codes, strict=True)]
    session = device.open(problem, entrants[0])
    try:
        session.ready().result()
        for entrant in entrants:
            trial = session.submit(entrant, float("inf")).result()
            if trial.status != "ok":
                return Check(winner, None, reason=f"{entrant.name}: {trial.status}: {trial.reason}")
        return _timed(winner, session, entrants)
    finally:
        session.close()


def _timed(winner: Winner, session: Session, entrants: Sequence[Entrant]) -> Check:
    """Times the winner and base in rounds, until the verdict is clear or there are MAX_ROUNDS."""
    times: dict[str, list[float]] = {entrant.name: [] for entrant in entrants}
    base, made = times
    others: set[str] = set()
    while True:
        rounds = session.rounds(entrants, max(FIRST_ROUNDS, len(times[base])))
        if rounds.faults:
            fault = rounds.faults[0]
            return Check(winner, None, reason=f"{fault.variant.name}: {fault.status}: {fault.reason}")
        for name, more in rounds.times_us.items():
            times[name] += more
        others.update(rounds.foreign)
        ratio = paired_ratio(times[made], times[base])
        verdict = verdict_of(ratio)
        if verdict != "UNCLEAR" or len(times[base]) >= MAX_ROUNDS:
            return Check(winner, verdict, ratio, foreign=tuple(sorted(others)))
