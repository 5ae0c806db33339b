"""Variants that are named, timed in turns on one problem: nothing is searched, and nothing recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gen.errors import CompileError
from gen.gpu.trial import Device, Entrant, Problem, Trial
from gen.tune.attempts import against
from gen.tune.known import known
from gen.tune.outcome import Outcome
from gen.tune.race import Finals, finals
from gen.tune.sources import Sources
from gen.tune.tuner import base_of


def contest(
    problem: Problem, names: Iterable[str], device: Device, sources: Sources, deadline: float | None = None
) -> tuple[tuple[Trial, ...], Finals]:
    """What became of base and of the variants of these names, and the times of those that are right to the end.

    Args:
        problem: where they meet.
        names: those that are no variants of its spec are passed over.
        device: where it runs.
        sources: compiles.
        deadline: of `time.monotonic()`; then as many turns as there are must do.

    Raises:
        CompileError: base does not compile.
        RunError: base is wrong.
    """
    base = base_of(problem, device)
    wanted = {made.name: made for made in (base, *known(problem, names))}
    session = device.open(problem, Entrant(base, sources.begin(base).future.result()))
    trials: dict[str, Trial] = {}

    def note(trial: Trial) -> None:
        trials[trial.variant.name] = trial

    try:
        session.ready().result()
        right = []
        for made, code in sources.codes(wanted.values(), deadline):
            reason = against(made, problem, device.limits)
            if reason is not None:
                note(Trial(made, "infeasible", reason=reason))
            elif isinstance(code, CompileError):
                note(Trial(made, "compile_failed", reason=code.log))
            else:
                right.append(Entrant(made, code))
                note(session.submit(right[-1], float("inf")).result())
        right = [one for one in right if trials[one.name].status == "ok"]
        _, found = finals(session, right, note, deadline)
    finally:
        session.close()
    return tuple(trials.values()), found


def after(outcome: Outcome, trials: Iterable[Trial], found: Finals) -> Outcome:
    """An outcome with the trials and times of a contest on its problem in the place of those it had."""
    by_name = {trial.variant.name: trial for trial in (*outcome.trials, *trials)}
    return replace(outcome, trials=tuple(by_name.values()), rounds_us=found.times_us, finals=found)
