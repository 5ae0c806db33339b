"""Times of single variants on a GPU: right first, then those of one problem in turns, behind cold caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from gen.emit.render import render
from gen.errors import GenError
from gen.families.base import Variant
from gen.families.names import variant
from gen.gpu.trial import Device, Entrant, Problem, Rounds, Session
from gen.report.ladder import Rung, Time
from gen.toolchain.compiled import Compiler

TURNS = 20  # even, for there and back


def timed(device: Device, compiler: Compiler, rungs: Sequence[Rung]) -> list[Rung]:
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


def _of_problem(device: Device, compiler: Compiler, problem: Problem, variants: Sequence[Variant]) -> dict[str, Time]:
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
    session = device.open(problem, ready[base.name])
    try:
        session.ready().result()
        entrants = {made.name: ready[made.name] for made in variants if made.name in ready}
        trials = {name: session.submit(entrant, float("inf")) for name, entrant in entrants.items()}
        for name, future in trials.items():
            trial = future.result()
            if trial.status != "ok":
                found[name] = Time(None, reason=trial.reason or trial.status)
        right = [entrant for name, entrant in entrants.items() if name not in found]
        rounds = _rounds(session, right, found)
    except GenError as error:
        return {made.name: Time(None, reason=str(error)) for made in variants}
    finally:
        session.close()
    floor = device.floor_us(problem)
    for name, taken in rounds.times_us.items():
        found[name] = Time(median(taken), floor / median(taken))
    return found


def _rounds(session: Session, entrants: list[Entrant], found: dict[str, Time]) -> Rounds:
    """Turns of those that stay right; notes the others."""
    while entrants:
        rounds = session.rounds(entrants, TURNS)
        if not rounds.faults:
            return rounds
        for trial in rounds.faults:
            found[trial.variant.name] = Time(None, reason=trial.reason or trial.status)
        entrants = [entrant for entrant in entrants if entrant.name not in found]
    return Rounds()
