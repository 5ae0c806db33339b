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
    from gen.tune.regret import Regret
    from gen.tune.run import Run
    from gen.tune.verify import Check


def report(done: Run) -> None:
    """Shows a line for each problem, what was wrong, and what was left out."""
    output.text(f"{done.device}, driver {done.driver}")
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
    from gen.store.tuned import all_winners

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


def report_regrets(regrets: Sequence[Regret]) -> None:
    """Shows what classes' winners lose on sizes that were not tuned, and what was split off."""
    if not regrets:
        return
    output.text()
    rows = []
    for regret in [one for one in regrets if one.points]:
        worst = max(regret.points, key=lambda point: point.regret(regret.winner))
        rows.append(
            (
                regret.outcome.problem.spec_name, regret.outcome.problem.shape_class,
                regret.winner.partition("__")[2], len(regret.points) - 1, _percent(regret.before),
                str(worst.problem).partition(" ")[2], _percent(regret.after),
            )
        )  # fmt: skip
    if rows:
        output.table(("spec", "class", "winner", "other sizes", "worst regret", "at", "after splitting"), rows)
    for regret in regrets:
        for part in regret.special:
            name = f"{regret.outcome.problem.spec_name}, {regret.outcome.problem.shape_class}, {part.region.words}"
            output.text(f"Split off: {name}: {part.variant.partition('__')[2]}")
        if regret.partly:
            output.text(
                f"On {regret.partly} sizes there was no time for all variants: the regret of "
                f"{regret.winner.partition('__')[2]} may be more."
            )
        others = sorted({one for outcome in regret.outcomes for one in outcome.foreign})
        if others:
            output.text(f"{beside(others)} while the regret of {regret.winner.partition('__')[2]} was measured.")
        for problem in regret.left_out:
            output.text(f"Left out for want of time: {problem}.")


def regret_as_json(regret: Regret) -> dict[str, Any]:
    """All of it that a program may want."""
    from gen.tune.regret import told

    return {
        "problem": str(regret.outcome.problem),
        "shape_class": regret.outcome.problem.shape_class,
        "winner": regret.winner,
        "regret": {str(point.problem): told(point.regret(regret.winner)) for point in regret.points},
        "parts": [
            {
                "for": part.region.words,
                "within": part.region.to_json(),
                "variant": part.variant,
                "regret": told(part.regret),
            }
            for part in regret.parts
        ],
        "partly": regret.partly,
        "left_out": [str(problem) for problem in regret.left_out],
    }


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


def _percent(regret: float) -> str:
    return "cannot run" if regret == float("inf") else f"{100 * regret:.1f} %"
