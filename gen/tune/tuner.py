"""Tunes a problem: feasible, compiled, proven on the device, timed; the fastest of what is right wins.

A wrong variant, or one that does not compile or launch, is a trial with a status: never the end of a run, and never
the winner.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gen.emit.render import render
from gen.errors import CompileError, RunError
from gen.families.base import Limits, Variant
from gen.families.names import base_variants, space, variant
from gen.gpu.trial import Device, Problem, Session, Status, Trial
from gen.store.trials import Setting, Trials
from gen.store.tuned import Winner
from gen.toolchain.compiled import Compiled
from gen.tune.choose import Interval, choose, paired_ratio

# How times come about: the protocol, and the number of the method, raised when old times no longer compare.
METHOD = "cold 2"
FINALISTS = 8
ROUNDS = 30
SLOWER = 2.0  # two samples that much over the best so far end an attempt


class ManyCompiler(Protocol):
    """Compiles many sources at once, in threads that go on while a result is used."""

    @property
    def version(self) -> str:
        """Which compiler, in all that can change its output but its options."""
        ...

    @property
    def options(self) -> str:
        """Its options, but for the architecture."""
        ...

    def compile_many(self, items: Iterable[tuple[str, str]], arch: str) -> Iterator[Compiled | CompileError]:
        """Takes name and text of each; each result as it is finished."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What tuning one problem came to.

    Attributes:
        trials: every variant tried, in order.
        winner: the chosen one; None if nothing was right in time.
        median_us: of the winner, over the rounds of the finalists.
        against_base: the winner's time over base's, from the same rounds; None if base did not finish.
        of_limit: the floor over the median.
        seconds: from start to end.
        left_out: variants that the budget did not reach.
        rounds_us: times of the finalists in turns, by name.
    """

    problem: Problem
    trials: tuple[Trial, ...]
    winner: Trial | None
    median_us: float
    against_base: Interval | None
    of_limit: float
    floor_us: float
    seconds: float
    left_out: int
    rounds_us: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def statuses(self) -> Mapping[Status, int]:
        """How many trials ended how."""
        return Counter(trial.status for trial in self.trials)


def candidates(problem: Problem, limits: Limits) -> tuple[list[Variant], list[Trial]]:
    """The variants worth compiling, base first; and those that this device or this size rules out, as trials."""
    family, spec = problem.family, problem.spec
    fit: dict[str, Variant] = {}
    unfit: dict[str, Trial] = {}
    found = list(base_variants(family, spec))
    for algorithm in family.algorithms.values():
        if algorithm.repeatable:
            found += [variant(family, spec, algorithm, config) for config in space(algorithm, spec)]
    for made in found:
        reason = made.algorithm.infeasible(spec, made.config, limits)
        reason = reason or made.algorithm.uncovered(spec, made.config, problem.extents, limits)
        if reason is None:
            fit[made.name] = made
        else:
            unfit[made.name] = Trial(made, "infeasible", reason=reason)
    return list(fit.values()), list(unfit.values())


def tune(
    problem: Problem,
    device: Device,
    compiler: ManyCompiler,
    trials: Trials,
    *,
    previous: str | None = None,
    deadline: float | None = None,
    tick: Callable[[int, int], None] = lambda _done, _all: None,
    text: Callable[[Variant], str] = render,
) -> Outcome:
    """Tries every variant of a problem's spec on a device.

    Args:
        problem: what is computed, at which size.
        device: where.
        compiler: for the device's architecture.
        trials: where every trial is recorded as it ends, and found again.
        previous: the name of the winner so far; it stays unless another is shown to be over 1 % faster.
        deadline: of `time.monotonic()`; what is not begun by then is left out.
        tick: told after each trial how many of how many are done.
        text: gives the text of a variant.

    Raises:
        CompileError: base does not compile.
        RunError: base is wrong.
    """
    start = time.monotonic()
    setting = Setting(device.name, device.driver, compiler.version, METHOD, compiler.options)
    fit, unfit = candidates(problem, device.limits)
    if not fit:
        raise RunError(str(problem), "has no variant that this device can run", device.name)
    texts = {made.name: text(made) for made in fit}
    base = _base(problem, fit)
    compiled = _compiled(compiler, base, texts, device.limits.arch)
    session = device.open(problem, base, compiled)
    try:
        done = {trial.variant.name: trial for trial in unfit}
        for trial in unfit:
            trials.record(setting, problem, text(trial.variant), trial)
        for made in fit:
            found = trials.find(setting, problem, texts[made.name], made)
            if found is not None and found.status != "infeasible":  # what it was under another rule
                done[made.name] = found
        missing = [made for made in fit if made.name not in done]

        def record(trial: Trial) -> None:
            if trial.status == "launch_failed" and not session.alive():
                trials.record(setting, problem, texts[trial.variant.name], trial)
                raise RunError(
                    trial.variant.name, "took the GPU down", trial.reason,
                    next_step="Run gen tune again: all other trials are kept, and this variant is left out",
                )  # fmt: skip
            trials.record(setting, problem, texts[trial.variant.name], trial)
            done[trial.variant.name] = trial
            tick(len(done), len(fit) + len(unfit))

        if base in missing:  # whatever the deadline: it stands ready, and gives a first time to beat
            record(session.attempt(base, compiled, float("inf")))
        best = min((trial.median_us for trial in done.values()), default=float("inf"))
        others = [made for made in missing if made != base]
        left = _attempt_all(session, others, texts, compiler, device, deadline, record, best)
        finalists = _finalists(session, done, missing, texts, compiler, device, base, previous, record)
        finalists, times = _rounds(session, finalists, record)
    finally:
        session.close()
    tried = tuple(done.values())
    return _outcome(problem, device, tried, finalists, times, base, previous, time.monotonic() - start, left)


def winner_of(outcome: Outcome, device: Device, compiler: str, evidence: Mapping[str, object]) -> Winner:
    """The outcome as a line of tuned.json."""
    assert outcome.winner is not None
    work = outcome.problem.family.work(outcome.problem.spec, outcome.problem.extents)
    moved = work.bytes_read + work.bytes_written
    measured = {
        "median_us": round(outcome.median_us, 3),
        "of_limit": round(outcome.of_limit, 4),
        "floor_us": round(outcome.floor_us, 3),
        "limit": work.limit,
        "gb_per_s": round(moved / outcome.median_us / 1e3, 1),
        "over_base": None if outcome.against_base is None else round(outcome.against_base.median, 4),
        "extents": dict(outcome.problem.extents),
        "trials": dict(sorted(outcome.statuses.items())),
        "protocol": "cold",
        "driver": device.driver,
        "compiler": compiler,
        "registers": outcome.winner.registers,
        **evidence,
    }
    problem = outcome.problem
    variant = outcome.winner.variant.name
    return Winner(device.name, problem.spec_name, problem.shape_class, variant, measured, problem.region)


def _base(problem: Problem, fit: Sequence[Variant]) -> Variant:
    """The base variant of the problem's shape class, or the first that can run."""
    made = variant(problem.family, problem.spec, *problem.family.base(problem.spec, problem.shape_class))
    return made if made in fit else fit[0]


def _compiled(compiler: ManyCompiler, made: Variant, texts: Mapping[str, str], arch: str) -> Compiled:
    (result,) = compiler.compile_many([(made.name, texts[made.name])], arch)
    if isinstance(result, CompileError):
        raise result
    return result


def _attempt_all(
    session: Session,
    missing: Sequence[Variant],
    texts: Mapping[str, str],
    compiler: ManyCompiler,
    device: Device,
    deadline: float | None,
    record: Callable[[Trial], None],
    best: float,
) -> int:
    """Attempts what is missing, each as soon as it is compiled; returns how many the deadline left out."""
    by_name = {made.name: made for made in missing}
    results = compiler.compile_many(((made.name, texts[made.name]) for made in missing), device.limits.arch)
    attempted = 0
    for result in results:
        if deadline is not None and time.monotonic() > deadline:
            break
        attempted += 1
        if isinstance(result, CompileError):
            record(Trial(by_name[result.subject], "compile_failed", reason=result.log))
            continue
        trial = session.attempt(by_name[result.name], result, SLOWER * best)
        best = min(best, trial.median_us)
        record(trial)
    return len(missing) - attempted


def _finalists(
    session: Session,
    done: Mapping[str, Trial],
    missing: Sequence[Variant],
    texts: Mapping[str, str],
    compiler: ManyCompiler,
    device: Device,
    base: Variant,
    previous: str | None,
    record: Callable[[Trial], None],
) -> list[Trial]:
    """The fastest trials, with base and the winner so far, all ready in the session.

    None whose call does more than was timed: a caller pays for the private copy too.
    """
    right = [t for t in done.values() if t.status == "ok" and (t.variant == base or not _prepares(t.variant))]
    fast = sorted(right, key=lambda t: (t.median_us, t.variant.name))
    chosen = fast[:FINALISTS] + [t for t in fast[FINALISTS:] if t.variant == base or t.variant.name == previous]
    ready = {made.name for made in missing}
    finalists = []
    for trial in chosen:
        if trial.variant.name in ready:
            finalists.append(trial)
            continue
        compiled = _compiled(compiler, trial.variant, texts, device.limits.arch)
        again = session.attempt(trial.variant, compiled, 0.0)
        if again.status == "ok":
            finalists.append(trial)
        else:
            record(again)
    return finalists


def _prepares(made: Variant) -> bool:
    return any(launch.setup for launch in made.plan.launches)


def _rounds(
    session: Session, finalists: list[Trial], record: Callable[[Trial], None]
) -> tuple[list[Trial], Mapping[str, Sequence[float]]]:
    """The finalists that stay right, and their times in turns."""
    while finalists:
        try:
            return finalists, session.rounds([trial.variant for trial in finalists], ROUNDS).times_us
        except RunError as error:
            faulty = next((trial for trial in finalists if trial.variant.name == error.subject), None)
            if faulty is None:
                raise
            record(replace(faulty, status="wrong_result", times_us=(), reason=str(error)))
            finalists = [trial for trial in finalists if trial is not faulty]
    return [], {}


def _outcome(
    problem: Problem,
    device: Device,
    done: tuple[Trial, ...],
    finalists: Sequence[Trial],
    times: Mapping[str, Sequence[float]],
    base: Variant,
    previous: str | None,
    seconds: float,
    left: int,
) -> Outcome:
    floor = device.floor_us(problem)
    if not finalists:
        return Outcome(problem, done, None, float("inf"), None, 0.0, floor, seconds, left)
    winner = choose(finalists, times, previous)
    median = Trial(winner.variant, "ok", tuple(times[winner.variant.name])).median_us
    against = paired_ratio(times[winner.variant.name], times[base.name]) if base.name in times else None
    return Outcome(problem, done, winner, median, against, floor / median, floor, seconds, left, times)
