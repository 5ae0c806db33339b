"""`gen tune` and `gen calibrate`: what a GPU can do, and which variant does it best."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli import show
from gen.cli.common import Json, OptionError, Out, families_of, home_of
from gen.cli.prove import ARCH
from gen.cli.rehearse import rehearse
from gen.errors import MissingToolError

if TYPE_CHECKING:
    from pathlib import Path

    from gen.families.base import Family
    from gen.gpu.open import Instruments
    from gen.gpu.timing import Calibration
    from gen.gpu.trial import Problem
    from gen.tune.run import Run
    from gen.tune.tuner import Outcome

Gpu = Annotated[int, typer.Option("--gpu", metavar="N", help="The number of the GPU.")]
CompilerName = Annotated[
    str, typer.Option("--compiler", metavar="nvrtc|nvcc", help="What compiles: NVRTC, or nvcc through PyCUDA.")
]


WHOLE_CATALOGUE = 170.0  # seconds, unless told otherwise


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(
        "tune", epilog="Examples: `gen tune`, `gen tune transpose --shape 4096x4096`, `gen tune --arch sm_80`."
    )(tune)
    app.command("calibrate", epilog="Examples: `gen calibrate`, `gen calibrate --json`.")(calibrate)


def tune(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="FAMILY|SPEC",
            show_default=False,
            help="A family, or a spec such as reduction_sum_f32. Default: all.",
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SHAPE",
            show_default=False,
            help="Of the first input: 8192x8192, 2^28; repeatable. Default: one that stands for each shape class.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            show_default=False,
            help="The time that the whole run may take. Default: 170 for every catalogue, no bound for what is named.",
        ),
    ] = None,
    gpu: Gpu = 0,
    compiler: CompilerName = "nvrtc",
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="SM",
            show_default=False,
            help=f"Measure nothing, and rehearse for this architecture. Without a GPU that is so anyway, for {ARCH}.",
        ),
    ] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Find the fastest variant of each spec on the GPU at hand; without a GPU, rehearse that.

    On a GPU: compiles every variant that can run there, compares its result with that of a variant proven against
    NumPy, times it with cold caches, and writes the winners to tuned.json and as .cu files. Every trial is kept; a
    rerun measures what is missing.

    Without one: emits, compiles and proves on the CPU the base and named variants of every catalogue, and configs of
    each algorithm in which every pair of parameter values meets; and says what a GPU would measure.
    """
    from gen.store.folder import known_specs
    from gen.tune.device import find_device
    from gen.tune.problems import problems

    if budget is None and target is None and not shape:
        budget = WHOLE_CATALOGUE
    elif budget is not None and not budget > 0:
        raise OptionError("--budget", "must be a positive number of seconds", budget)
    if arch is None and find_device() is not None:
        families, home = families_of(ctx), home_of(out)
        wanted = problems(families, target, known_specs(families, home), shape or ())
        if _can_measure():
            _measure(wanted, families, home, budget, gpu, compiler, json=json)
            return
    elif shape or budget not in (None, WHOLE_CATALOGUE):
        raise OptionError("--shape and --budget", "need a GPU that measures", arch or "none")
    rehearse(ctx, target, arch, out, json=json)


def calibrate(gpu: Gpu = 0, compiler: CompilerName = "nvrtc", out: Out = None, json: Json = False) -> None:
    """Measure what the GPU can do: bandwidths as slopes between 1 and 4 GiB, and what an empty launch costs.

    Tuning scores every variant against these figures. They are kept beside the winners.
    """
    from dataclasses import asdict

    from gen.gpu.open import store_calibration

    home = home_of(out)
    found = _open(gpu, _compiler(compiler, home)).calibrate()
    place = store_calibration(home, found)
    if json:
        show.data(asdict(found))
        return
    show.text(f"{found.device}, driver {found.driver}")
    rows = [("read", f"{found.read:.0f} GB/s"), ("write", f"{found.write:.0f} GB/s"),
            ("copy, read and written", f"{found.copy:.0f} GB/s"),
            ("empty kernel between events", f"{found.empty_pair_us:.2f} us"),
            ("empty kernel in a graph", f"{found.empty_node_us:.2f} us")]  # fmt: skip
    show.table(("what", "at best"), rows)
    show.text(f"kept in {place}")


def _measure(
    wanted: tuple[Problem, ...],
    families: tuple[Family[Any], ...],
    home: Path,
    budget: float | None,
    gpu: int,
    compiler: str,
    *,
    json: bool,
) -> None:
    from gen.tune.run import run

    start = time.monotonic()
    made = _compiler(compiler, home)
    instruments = _open(gpu, made)
    calibration = _calibration(home, instruments)
    bench = instruments.bench(calibration)
    if budget is not None:
        budget -= time.monotonic() - start
    with show.bars() as tick:
        done = run(
            wanted, families, bench, made, home, budget=budget, evidence={"date": time.strftime("%Y-%m-%d")},
            tick=lambda problem, count, every: tick(str(problem), count, every),
        )  # fmt: skip
    if json:
        show.data(_as_json(done, calibration))
    else:
        _show(done, calibration)
    if any(outcome.winner is None for outcome in done.outcomes):
        raise typer.Exit(1)


def _can_measure() -> bool:
    """Whether what talks to a GPU is installed; says so if it is not."""
    try:
        import gen.gpu.device  # noqa: F401
    except MissingToolError as error:
        show.note(f"There is a GPU, but it cannot be used: {error}")
        return False
    return True


def _compiler(name: str, home: Path) -> Any:
    from gen.paths import cache_home

    if name == "nvrtc":
        from gen.toolchain.nvrtc import Nvrtc

        return Nvrtc(cache_home(home))
    if name == "nvcc":
        from gen.gpu.nvcc import Nvcc

        return Nvcc(cache_home(home))
    raise OptionError("--compiler", "must be nvrtc or nvcc", name)


def _open(index: int, compiler: Any) -> Instruments:
    from gen.gpu.open import open_instruments

    return open_instruments(index, compiler)


def _calibration(home: Path, instruments: Instruments) -> Calibration:
    from gen.gpu.open import store_calibration, stored_calibration

    found = stored_calibration(home, instruments.device)
    if found is None:
        found = instruments.calibrate()
        store_calibration(home, found)
    return found


def _show(done: Run, calibration: Calibration) -> None:
    show.text(f"{calibration.device}, driver {calibration.driver}")
    columns = ("problem", "winner", "us", "of limit", "over base", "tried", "right", "wrong", "failed", "seconds")
    show.table(columns, [_row(outcome) for outcome in done.outcomes])
    for outcome in done.outcomes:
        for trial in outcome.trials:
            if trial.status in ("wrong_result", "launch_failed", "compile_failed"):
                show.text(f"{trial.variant.name}: {trial.status}: {trial.reason}", indent=2)
    tried = sum(len(outcome.trials) - outcome.statuses.get("infeasible", 0) for outcome in done.outcomes)
    show.text(f"{tried} variants in {done.seconds:.1f} s: {tried / done.seconds:.0f} a second, proven and timed.")
    for outcome in done.outcomes:
        if outcome.left_out:
            show.text(f"Left out for want of time: {outcome.left_out} variants of {outcome.problem}.")
    for problem in done.left_out:
        show.text(f"Left out for want of time: {problem}.")


def _row(outcome: Outcome) -> tuple[object, ...]:
    counts = outcome.statuses
    failed = sum(counts.get(status, 0) for status in ("launch_failed", "compile_failed", "timeout"))
    return (
        str(outcome.problem),
        "none" if outcome.winner is None else outcome.winner.variant.name.partition("__")[2],
        f"{outcome.median_us:.2f}",
        f"{outcome.of_limit:.3f}",
        "-" if outcome.against_base is None else f"{outcome.against_base.median:.3f}",
        len(outcome.trials) - counts.get("infeasible", 0),
        counts.get("ok", 0),
        counts.get("wrong_result", 0),
        failed,
        f"{outcome.seconds:.1f}",
    )


def _as_json(done: Run, calibration: Calibration) -> dict[str, Any]:
    return {
        "device": calibration.device,
        "driver": calibration.driver,
        "seconds": done.seconds,
        "outcomes": [
            {
                "problem": str(outcome.problem),
                "extents": dict(outcome.problem.extents),
                "winner": outcome.winner and outcome.winner.variant.name,
                "median_us": outcome.median_us if outcome.winner else None,
                "of_limit": outcome.of_limit,
                "over_base": outcome.against_base and outcome.against_base.median,
                "statuses": dict(outcome.statuses),
                "left_out": outcome.left_out,
                "seconds": outcome.seconds,
            }
            for outcome in done.outcomes
        ],
        "left_out": [str(problem) for problem in done.left_out],
    }
