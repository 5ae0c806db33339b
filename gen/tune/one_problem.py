"""Tunes a problem: compiles its feasible variants, proves and times them on the device, and chooses the fastest.

A variant that is wrong, does not compile, crashes or hangs is a trial with a status: it neither ends the run nor wins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from gen.emit.render import render
from gen.errors import RunError
from gen.families.base import Variant
from gen.families.names import heuristic_variants, variant
from gen.gpu.timing import LATENCY_US, METHOD
from gen.store.trials import Problem, Setting, Trial, Trials
from gen.toolchain.farm import Farm
from gen.tune.device import Session, TuningDevice
from gen.tune.outcome import Interrupted, Outcome, TuningEndedError, is_callers_time, outcome_of, tried_as
from gen.tune.pipeline import MAX_READY_VARIANTS, RETRIED_STATUSES, Attempts, Sources, why_unable
from gen.tune.prune import RULES, Pruning
from gen.tune.race import FINALISTS, FIRST_HEAT_VARIANTS, Finals, finals, halve, halve_short
from gen.tune.search import First, Search, Space, exhaustive, known

FINALS_FRACTION = 0.2  # of the time until the deadline, for the race
FINALS_SECONDS = 3.0  # more than a race needs
LATE_SECONDS = 0.5  # for the finals of a problem whose share is used up, while the run has time
HEAT_RATIO = 1.3  # of a median over the fastest, beyond which a variant is not timed again
RUNS_PER_HEAT = 6  # of each variant in the first heat: rounds, and checks before and after
RUN_OVERHEAD_US = 500.0  # of each run, beside the kernel: caches are flushed, outputs poisoned and compared


@dataclass(frozen=True)
class Options:
    """How a problem is searched.

    Attributes:
        search: in which order, made for a space.
        prune: the rules in force, by name.
        stop_at: a fraction of the limit that ends the search when a variant reaches it; None: never.
    """

    search: Callable[[Space], Search] = exhaustive
    prune: frozenset[str] = frozenset(RULES)
    stop_at: float | None = None

    @property
    def complete(self) -> bool:
        """Whether variants are tried that are legal but unsearched."""
        return "unsearched" not in self.prune


def tune(
    problem: Problem,
    device: TuningDevice,
    farm: Farm,
    trials: Trials,
    *,
    incumbent: str | None = None,
    deadline: float | None = None,
    latest: float | None = None,
    options: Options | None = None,
    sources: Sources | None = None,
    upcoming: Problem | None = None,
    tick: Callable[[int, int], None] = lambda _done, _all: None,
    text: Callable[[Variant], str] = render,
) -> Outcome:
    """Tries the variants of a problem's spec on a device.

    Args:
        problem: what is computed, at which size.
        device: where.
        farm: compiles for the device's architecture.
        trials: where every trial is recorded as it ends, and found again.
        incumbent: its name: tried first, it stays unless another is shown to be over 1 % faster.
        deadline: of `time.monotonic()`: a variant that is not begun by then is left out; base is tried all the same.
        latest: the same of the whole run: until then finals may be held that the deadline would leave out.
        options: how it is searched.
        sources: the compilations of a run of several problems; of this one alone if None.
        upcoming: the problem that will be tuned next: what NumPy says of it is computed meanwhile.
        tick: told after each trial how many of at most how many are done.
        text: gives the text of a variant, where `sources` does not.

    Raises:
        CompileError: base does not compile.
        RunError: base is wrong.
        TuningEndedError: the GPU answers no more; holds the outcome so far.
        Interrupted: Ctrl-C; holds the outcome so far.
    """
    start = time.monotonic()
    options = options or Options()
    base = base_of(problem, device)
    sources = sources or Sources(farm, device.limits.arch, text)
    setting = setting_of(device, farm)
    pruning = Pruning(problem, device.limits, options.prune)
    floor_us = device.floor_us(problem)  # a device that is lost says it no more
    enough = 0.0 if options.stop_at is None else floor_us / options.stop_at
    heuristic_configs = heuristic_variants(problem.family, problem.spec, problem.shape_class, device.limits)
    space = sources.space(problem, complete=options.complete)
    search = First(options.search(space), [*known(problem, [incumbent or ""]), *heuristic_configs])
    attempts = Attempts(problem, device, sources, trials, setting, pruning, search, tick)

    def outcome(finalists: list[Trial], found: Finals, left: int) -> Outcome:
        seconds = time.monotonic() - start
        tried = attempts.done
        return outcome_of(
            problem, floor_us, tried, finalists, found, base.name, incumbent, seconds, left, device.limits
        )  # fmt: skip

    entrant = attempts.base(base)
    session = device.open(problem, entrant)
    if upcoming is not None:
        device.prepare(upcoming)
    try:
        until = None if deadline is None else deadline - min(FINALS_FRACTION * (deadline - start), FINALS_SECONDS)
        left = attempts.run(session, entrant, deadline=until, enough_us=enough)
        while deadline is None and sources.compile_ahead(MAX_READY_VARIANTS):
            pass
        if deadline is not None and latest is not None:
            deadline = min(max(deadline, time.monotonic() + LATE_SECONDS), max(latest, deadline))
        finalists, found = _race(session, attempts, base, incumbent, deadline)
        return outcome(finalists, found, left)
    except KeyboardInterrupt:
        raise Interrupted(outcome([], Finals({}, settled=False), search.left)) from None
    except RunError as error:
        opening = session.ready()
        if not opening.done() or opening.exception() is not None:  # base is wrong, and nothing that was held against it
            raise
        raise TuningEndedError(error, outcome([], Finals({}, settled=False), search.left)) from error
    finally:
        session.close()


def setting_of(device: TuningDevice, farm: Farm) -> Setting:
    """What the keys of trials hold of the device and the compiler."""
    return Setting(device.name, device.driver, farm.version, METHOD, farm.options)


def to_come(
    problems: Sequence[Problem], device: TuningDevice, farm: Farm, trials: Trials, options: Options, sources: Sources
) -> Iterator[Variant | None]:
    """The variants that tuning these problems will compile, in the order in which it will ask for them.

    None stands for a variant that needs no compilation, so that no step takes long.
    """
    setting = setting_of(device, farm)
    for problem in problems:
        pruning = Pruning(problem, device.limits, options.prune)
        search = options.search(sources.space(problem, complete=options.complete))
        while asked := search.ask(1):
            made = asked[0]
            if why_unable(made, problem, device.limits) is None and pruning.before_compiling(made) is None:
                found = trials.find(setting, problem, sources.text(made), made)
                yield made if found is None or found.status in RETRIED_STATUSES else None
            else:
                yield None


def base_of(problem: Problem, device: TuningDevice) -> Variant:
    """The base variant of the problem's shape class, or the first that can run."""
    made = variant(problem.family, problem.spec, *problem.family.base(problem.spec, problem.shape_class))
    if why_unable(made, problem, device.limits) is None:
        return made
    for complete in (False, True):
        search = exhaustive(Space(problem.family, problem.spec, complete))
        while asked := search.ask(1):
            if why_unable(asked[0], problem, device.limits) is None:
                return asked[0]
    raise RunError(str(problem), "has no variant that this device can run", device.name)


def _race(
    session: Session, attempts: Attempts, base: Variant, incumbent: str | None, deadline: float | None
) -> tuple[list[Trial], Finals]:
    """The finalists as trials, and their times; base and the incumbent are always among them."""
    found = attempts.done
    right = [
        trial
        for trial in found.values()
        if trial.status == "ok" and trial.same_as not in found and is_callers_time(trial, base.name)
    ]
    if deadline is not None and time.monotonic() >= deadline:
        return [], Finals({}, settled=False)
    fast = _first_heat(right, None if deadline is None else deadline - time.monotonic())
    always = [
        found[name] for name in (tried_as(found, base.name), tried_as(found, incumbent)) if name and name in found
    ]
    names_of_right = {trial.variant.name for trial in right}
    wanted = {trial.variant.name: trial.variant for trial in (*fast, *always) if trial.variant.name in names_of_right}
    entrants = {entrant.name: entrant for entrant in attempts.compiled(wanted.values(), deadline)}
    if any(name not in entrants and found[name].status == "ok" for name in wanted):  # no time: all race, or none
        return [], Finals({}, settled=False)
    already, short = tried_as(found, incumbent), bool(fast) and fast[0].median_us < LATENCY_US
    times_us = {trial.variant.name: trial.median_us for trial in fast if trial.variant.name in entrants}
    if short and already in entrants:
        times_us.setdefault(already, found[already].median_us)
    field = {name: entrants[name] for name in times_us}
    if short:
        halved = halve_short(session, field, times_us, attempts.fail, deadline, already)
    else:
        halved = halve(session, field, times_us, attempts.fail, deadline)
    left = list(halved.left)
    names = {entrant.name for entrant in left}
    for trial in always:
        name = trial.variant.name
        if name in entrants and name not in names and found[name].status == "ok":
            left.append(entrants[name])
            names.add(name)
    right_to_the_end, times = finals(session, left, attempts.fail, deadline, already)
    times = replace(times, foreign=tuple(sorted(halved.foreign.union(times.foreign))), hot_us=halved.hot_us)
    return [found[entrant.name] for entrant in right_to_the_end], times


def _first_heat(right: Sequence[Trial], seconds: float | None) -> list[Trial]:
    """The variants that may be the fastest, fastest first: as many as there is time for."""
    ordered = sorted(right, key=lambda trial: (trial.median_us, trial.variant.name))
    worth = [trial for trial in ordered[:FIRST_HEAT_VARIANTS] if trial.median_us <= HEAT_RATIO * ordered[0].median_us]
    if seconds is not None:
        costs = accumulate(RUNS_PER_HEAT * (trial.median_us + RUN_OVERHEAD_US) / 1e6 for trial in worth)
        worth = worth[: sum(cost <= seconds / 2 for cost in costs)]
    return worth if len(worth) > FINALISTS else ordered[:FINALISTS]
