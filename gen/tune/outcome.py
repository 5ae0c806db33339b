"""What tuning a problem came to, and the line of tuned.json that keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gen.errors import RunError
from gen.families.base import Limits, Variant
from gen.store.stale import provenance
from gen.store.trials import Problem, Status, Trial
from gen.store.winners import Winner
from gen.tune.choose import STAY_RATIO, Interval, choose, median_interval, midmean_interval, paired_ratio
from gen.tune.device import TuningDevice
from gen.tune.race import Finals, noise
from gen.tune.search import known


@dataclass(frozen=True)
class Outcome:
    """What tuning one problem came to.

    Attributes:
        trials: every variant tried, in order.
        winner: the chosen one; None if nothing was right in time.
        median_us: of the winner, over the rounds of the finals; without finals, over its own samples.
        against_base: the winner's time over base's, from the same rounds; None if base did not finish.
        of_limit: the floor over the median.
        seconds: from start to end.
        left_out: about how many variants the budget did not reach.
        rounds_us: times of the finalists by name, one a round.
        interval: of the winner's median time: the 95 % interval.
        noise: of the winner's times over themselves; None without finals.
        finals: clocks and throttling meanwhile, and whether the order was settled.
        base: the name of base.
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
    interval: Interval | None = None
    noise: Interval | None = None
    finals: Finals | None = None
    base: str = ""

    @property
    def statuses(self) -> Mapping[Status, int]:
        """How many trials ended how."""
        return Counter(trial.status for trial in self.trials)

    @property
    def foreign(self) -> tuple[str, ...]:
        """Processes of others that were on the GPU while something of it was timed, a text each."""
        found = {one for trial in self.trials for one in trial.foreign}
        return tuple(sorted(found | set(self.finals.foreign if self.finals is not None else ())))

    @property
    def tried(self) -> int:
        """Variants that were compiled, or stand for the same code as one that was."""
        return sum(trial.status not in ("infeasible", "pruned") for trial in self.trials)


class TuningEndedError(RunError):
    """The GPU gave up while a problem was tuned; `outcome` is what it came to by then."""

    def __init__(self, error: RunError, outcome: Outcome) -> None:
        super().__init__(error.subject, error.rule, error.value, next_step=error.next_step)
        self.outcome = outcome


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a problem was tuned; `outcome` is what it came to by then."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def outcome_of(
    problem: Problem, floor_us: float, done: Mapping[str, Trial], finalists: Sequence[Trial], found: Finals,
    base: str, incumbent: str | None, seconds: float, left_out: int, limits: Limits,
) -> Outcome:  # fmt: skip
    """Chooses the winner among the finalists by the times of the finals; without finals, by the samples of all."""
    trials = tuple(done.values())
    if finalists:
        issued = {one.variant.name: count for one in finalists if (count := issued_by(one.variant, problem, limits))}
        times = found.times_us
        winner = choose(finalists, times, tried_as(done, incumbent), found.hot_us, issued)
    else:
        right = [one for one in trials if one.status == "ok" and one.same_as not in done and is_callers_time(one, base)]
        if not right:
            return Outcome(problem, trials, None, float("inf"), None, 0.0, floor_us, seconds, left_out, base=base)
        winner = _fastest(right, done, incumbent)
        times = {winner.variant.name: winner.times_us}
    own = times[winner.variant.name]
    interval = median_interval(own)
    return Outcome(
        problem,
        trials,
        _named_winner(winner, trials, incumbent),
        interval.center,
        paired_ratio(own, times[base]) if base in times else None,
        floor_us / interval.center,
        floor_us,
        seconds,
        left_out,
        times,
        interval,
        noise(own) if finalists and len(own) > 1 else None,
        found if finalists else None,
        base,
    )


def issued_by(made: Variant, problem: Problem, limits: Limits) -> float | None:
    """Instructions that a call of a variant issues, by estimate; None where nothing is known of it."""
    demand = made.algorithm.demand(made.spec, made.config, problem.extents, problem.alignment, limits)
    return None if demand is None else demand.issued


def displaces(outcome: Outcome, incumbent: str) -> bool:
    """Whether an outcome is a reason to give up the incumbent, or to renew what is known of it.

    One without finals is none, unless the incumbent turned out to be wrong, or clearly slower. Nor is one that had
    no time to try the incumbent, or whose runs of it were ended by others.
    """
    again = next((trial for trial in outcome.trials if trial.variant.name == incumbent), None)
    if outcome.winner is None or (again is not None and again.outside):
        return False
    if again is None and any(known(outcome.problem, [incumbent])):
        return False
    return outcome.finals is not None or (again is not None and outcome.winner.variant.name != incumbent)


def _fastest(right: Sequence[Trial], done: Mapping[str, Trial], incumbent: str | None) -> Trial:
    """The fastest by its few samples; the incumbent, unless each of its samples is over 1 % slower than any."""
    found = min(right, key=lambda trial: (trial.median_us, trial.variant.name))
    alike = tried_as(done, incumbent)
    for trial in right:
        if trial.variant.name == alike and min(trial.times_us) <= STAY_RATIO * max(found.times_us):
            return trial
    return found


def tried_as(done: Mapping[str, Trial], name: str | None) -> str | None:
    """Under which name a variant was timed: that of the one that has the same machine code, if it was tried."""
    twin = done[name].same_as if name is not None and name in done else ""
    return twin if twin in done else name


def is_callers_time(trial: Trial, base: str) -> bool:
    """Whether a caller pays what was timed: one whose call makes a private copy first never wins, unless it is base."""
    return trial.variant.name == base or trial.is_full_time


def winner_of(outcome: Outcome, device: TuningDevice, compiler: str, evidence: Mapping[str, object]) -> Winner:
    """The outcome as a line of tuned.json."""
    assert outcome.winner is not None
    assert outcome.interval is not None
    problem, finals = outcome.problem, outcome.finals
    work = problem.family.work(problem.spec, problem.extents)
    moved = work.bytes_read + work.bytes_written
    measured = {
        "median_us": round(outcome.median_us, 3),
        "interval_us": [round(outcome.interval.low, 3), round(outcome.interval.high, 3)],
        "samples": len(outcome.rounds_us[_timed(outcome)]),
        "noise": None if outcome.noise is None else round((outcome.noise.high - outcome.noise.low) / 2, 5),
        "hot_us": None if finals is None else _hot_us(finals.hot_us.get(_timed(outcome))),
        "settled": finals is not None and finals.settled,
        "sm_mhz": list(finals.sm_mhz) if finals is not None and any(finals.sm_mhz) else None,
        "throttled": [] if finals is None else list(finals.throttled),
        "beside": list(outcome.winner.foreign if finals is None else finals.foreign),
        "of_limit": round(outcome.of_limit, 4),
        "floor_us": round(outcome.floor_us, 3),
        "limit": work.limit,
        "gb_per_s": round(moved / outcome.median_us / 1e3, 1),
        "over_base": None if outcome.against_base is None else round(outcome.against_base.center, 4),
        "extents": dict(problem.extents),
        "trials": dict(sorted(outcome.statuses.items())),
        "protocol": "cold",
        "driver": device.driver,
        "compiler": compiler,
        "registers": outcome.winner.registers,
        **provenance(outcome.winner.variant),
        **evidence,
    }
    variant = outcome.winner.variant.name
    return Winner(device.name, problem.spec_name, problem.shape_class, variant, measured, problem.region)


def _hot_us(times: Sequence[float] | None) -> float | None:
    return None if times is None else round(midmean_interval(times).center, 3)


def _timed(outcome: Outcome) -> str:
    """The name under which the winner's code was timed."""
    assert outcome.winner is not None
    name = outcome.winner.variant.name
    return name if name in outcome.rounds_us else outcome.winner.same_as


def _named_winner(winner: Trial, trials: Sequence[Trial], incumbent: str | None) -> Trial:
    """Of all variants with the winner's machine code, the incumbent, else the first by name: one of them was timed."""
    alike = [winner, *(trial for trial in trials if trial.same_as == winner.variant.name and trial.status == "ok")]
    for trial in alike:
        if trial.variant.name == incumbent:
            return trial
    return min(alike, key=lambda trial: trial.variant.name)
