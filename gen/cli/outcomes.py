"""How `gen tune` shows what a run came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gen.cli import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gen.tune.outcome import Outcome
    from gen.tune.run import Run


def report(done: Run) -> None:
    """Shows a line for each problem, what was wrong, and what was left out."""
    show.text(f"{done.device}, driver {done.driver}")
    columns = ("problem", "winner", "us", "of limit", "over base", "tried", "right", "wrong", "failed", "seconds")
    if done.outcomes:
        show.table(columns, [_row(outcome) for outcome in done.outcomes])
    for outcome in done.outcomes:
        for trial in outcome.trials:
            if trial.status in ("wrong_result", "launch_failed", "compile_failed", "timeout") and not trial.same_as:
                show.text(f"{trial.variant.name}: {trial.status}: {trial.reason}", indent=2)
    tried = sum(outcome.tried for outcome in done.outcomes)
    if done.outcomes:
        show.text(f"{tried} variants in {done.seconds:.1f} s: {tried / done.seconds:.0f} a second, proven and timed.")
    for outcome in done.outcomes:
        if outcome.foreign:
            show.text(f"{beside(outcome.foreign)} while {outcome.problem} was tuned: its times may be off.")
    for outcome in done.outcomes:
        if outcome.left_out:
            show.text(f"Left out for want of time: about {outcome.left_out} variants of {outcome.problem}.")
    for problem in done.left_out:
        show.text(f"Left out for want of time: {problem}.")


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
