"""How `gen tune` shows what a run came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gen.cli import output
from gen.errors import GenError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gen.store.trials import Problem
    from gen.tune.outcome import Outcome
    from gen.tune.several_problems import Run
    from gen.tune.verify import Check


def report(done: Run) -> None:
    """Shows a line for each problem, what was wrong, and what was left out."""
    several = "" if done.gpus == 1 else f"{done.gpus} x "
    output.text(f"{several}{done.device}, driver {done.driver}")
    columns = ("problem", "winner", "us", "of limit", "over base", "tried", "right", "wrong", "failed", "seconds")
    if done.outcomes:
        output.table(columns, [_row(outcome) for outcome in done.outcomes])
    for outcome in done.outcomes:
        for trial in outcome.trials:
            if trial.status in ("wrong_result", "launch_failed", "compile_failed", "timeout") and not trial.same_as:
                output.text(f"{trial.variant.name}: {trial.status}: {trial.reason}", indent=2)
    tried = sum(outcome.tried for outcome in done.outcomes)
    if done.outcomes:
        output.text(f"{tried} variants in {done.seconds:.1f} s: {tried / done.seconds:.0f} a second, proven and timed.")
    for outcome in done.outcomes:
        if outcome.foreign:
            output.text(f"{beside(outcome.foreign)} while {outcome.problem} was tuned: its times may be off.")
    for outcome in done.outcomes:
        if outcome.left_out:
            output.text(f"Left out for want of time: about {outcome.left_out} variants of {outcome.problem}.")
    for problem in done.left_out:
        output.text(f"Left out for want of time: {problem}.")


def beside(others: Sequence[str]) -> str:
    """Says that processes of others were on the GPU."""
    return f"{', '.join(others)} {'was' if len(others) == 1 else 'were'} on the GPU"


def _row(outcome: Outcome) -> tuple[object, ...]:
    counts = outcome.statuses
    failed = sum(counts.get(status, 0) for status in ("launch_failed", "compile_failed", "timeout"))
    return (
        str(outcome.problem),
        "none" if outcome.winner is None else outcome.winner.variant.name.partition("__")[2],
        f"{outcome.median_us:.2f}",
        f"{outcome.of_limit:.3f}",
        "-" if outcome.against_base is None else f"{outcome.against_base.center:.3f}",
        outcome.tried,
        counts.get("ok", 0),
        counts.get("wrong_result", 0),
        failed,
        f"{outcome.seconds:.1f}",
    )


def as_json(done: Run) -> dict[str, Any]:
    """All of it that a program may want."""
    return {
        "device": done.device,
        "driver": done.driver,
        "gpus": done.gpus,
        "seconds": done.seconds,
        "outcomes": [
            {
                "problem": str(outcome.problem),
                "extents": dict(outcome.problem.extents),
                "winner": outcome.winner and outcome.winner.variant.name,
                "median_us": outcome.median_us if outcome.winner else None,
                "of_limit": outcome.of_limit,
                "over_base": outcome.against_base and outcome.against_base.center,
                "statuses": dict(outcome.statuses),
                "beside": list(outcome.foreign),
                "left_out": outcome.left_out,
                "seconds": outcome.seconds,
            }
            for outcome in done.outcomes
        ],
        "left_out": [str(problem) for problem in done.left_out],
    }


class UntunedError(GenError):
    """A problem without a winner where nothing may be tuned."""


def insist(problems: Sequence[Problem], home: Path, device: str, *, json: bool) -> None:
    """Shows the winner of each problem. Raises UntunedError, naming all that have none."""
    from gen.store.winners import all_winners

    found = {winner.key: winner for winner in all_winners(home)}
    kept = [found.get((p.spec_name, p.shape_class, device, p.region)) for p in problems]
    missing = [_words(problem) for problem, winner in zip(problems, kept, strict=True) if winner is None]
    if missing:
        raise UntunedError(
            f"{len(missing)} of {len(problems)} problems", f"have no winner on {device}", "; ".join(missing),
            next_step="Run gen tune without --frozen",
        )  # fmt: skip
    rows = [(winner.spec, winner.words, winner.variant.partition("__")[2]) for winner in kept if winner is not None]
    if json:
        output.data([{"spec": spec, "for": words, "variant": variant} for spec, words, variant in rows])
    else:
        output.table(("spec", "for", "winner"), rows)


def report_checks(checks: Sequence[Check], *, json: bool) -> bool:
    """Shows what became of winners; whether all is well."""
    if json:
        output.data([_check_as_json(check) for check in checks])
    elif not checks:
        output.text("Nothing is tuned for this GPU that could be verified.")
    else:
        columns = ("spec", "for", "winner", "verdict", "time over base", "95 % interval")
        output.table(columns, [_check_row(check) for check in checks])
        for check in checks:
            if check.reason:
                output.text(f"{check.winner.variant}: {check.reason}", indent=2)
            if check.foreign:
                output.text(f"{check.winner.variant}: {beside(check.foreign)}: its times may be off.", indent=2)
    return not any(check.bad for check in checks)


def _words(problem: Problem) -> str:
    return ", ".join(part for part in (problem.spec_name, problem.shape_class, problem.region.words) if part)


def _check_row(check: Check) -> tuple[object, ...]:
    ratio = check.ratio
    return (
        check.winner.spec, check.winner.words, check.winner.variant.partition("__")[2], check.verdict or "FAILED",
        "" if ratio is None else f"{ratio.center:.3f}",
        "" if ratio is None else f"{ratio.low:.3f} to {ratio.high:.3f}",
    )  # fmt: skip


def _check_as_json(check: Check) -> dict[str, Any]:
    ratio = check.ratio
    return {
        "spec": check.winner.spec,
        "for": check.winner.words,
        "variant": check.winner.variant,
        "verdict": check.verdict,
        "over_base": ratio and ratio.center,
        "interval": ratio and [ratio.low, ratio.high],
        "reason": check.reason,
        "beside": list(check.foreign),
    }
