"""`gen tune` and `gen calibrate`: what a GPU can do, and which variant does it best."""

from __future__ import annotations

import re
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli import show, winners
from gen.cli.common import Json, OptionError, Out, families_of, home_of
from gen.cli.prove import ARCH
from gen.cli.rehearse import rehearse
from gen.errors import MissingToolError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from gen.families.base import Family
    from gen.gpu.isolated import IsolatedDevice
    from gen.gpu.open import Instruments
    from gen.gpu.trial import Problem
    from gen.toolchain.farm import CompileFarm
    from gen.tune.classes import Regret
    from gen.tune.outcome import Outcome
    from gen.tune.run import Run
    from gen.tune.tuner import Options

Gpu = Annotated[int, typer.Option("--gpu", metavar="N", help="The number of the GPU.")]
CompilerName = Annotated[
    str, typer.Option("--compiler", metavar="nvrtc|nvcc", help="What compiles: NVRTC, or nvcc through PyCUDA.")
]


_TIME = re.compile(r"([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)([smh]?)")
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
            "--shape",
            metavar="SHAPE",
            show_default=False,
            help="Of the first input: 8192x8192, 2^28; repeatable. Default: one that stands for each shape class.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            show_default=False,
            help="The time that the whole run may take, compiling included: 60s, 5m, 1h; a bare number is seconds. "
            "Default: 170s for every catalogue, no bound for what is named.",
        ),
    ] = None,
    stop_at: Annotated[
        float | None,
        typer.Option(
            "--stop-at",
            metavar="FRACTION",
            show_default=False,
            help="End the search of a problem at this fraction of the limit: 0.98.",
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            "--search",
            metavar="exhaustive|random",
            show_default=False,
            help="In which order variants are tried. Default: random with --budget, else exhaustive.",
        ),
    ] = None,
    shape_class: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            metavar="WORDS",
            show_default=False,
            help="Only this shape class, in the words of gen show; repeatable.",
        ),
    ] = None,
    alignment: Annotated[
        int, typer.Option(metavar="BYTES", help="Tune for arrays whose addresses no more than so many bytes divide.")
    ] = 16,
    regret: Annotated[
        bool,
        typer.Option("--regret", help="Tune other sizes of each shape class too, and split it where its winner lags."),
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only time the winners again, each against base; write nothing.")
    ] = False,
    frozen: Annotated[
        bool, typer.Option("--frozen", help="Measure nothing: fail if a problem has no winner on this GPU.")
    ] = False,
    prune: Annotated[
        list[str] | None,
        typer.Option(
            "--prune",
            metavar="RULE",
            show_default=False,
            help="Do not time variants that cannot be fast: spills, in-flight, occupancy; all or none; repeatable. "
            "Default: all.",
        ),
    ] = None,
    gpu: Gpu = 0,
    compiler: CompilerName = "nvrtc",
    arch: Annotated[
        str | None,
        typer.Option(
            "--arch",
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

    Variants that cannot be fast are pruned by rules. spills: a thread spills more than 32 bytes. in-flight: the problem
    moves 128 MiB or more, and a multiprocessor has less than an eighth of the bytes in flight with which it reads at
    full speed. occupancy: a multiprocessor holds fewer than 4 warps, and the grid has more for it.

    Without one: emits, compiles and proves on the CPU the base and named variants of every catalogue, and configs of
    each algorithm in which every pair of parameter values meets; and says what a GPU would measure.
    """
    from gen.store.folder import known_specs
    from gen.store.tuned import read_winners
    from gen.tune.device import find_device
    from gen.tune.problems import problems
    from gen.tune.prune import read_rules
    from gen.tune.search import find_search
    from gen.tune.tuner import Options

    seconds = None if budget is None else read_seconds(budget)
    if stop_at is not None and not 0 < stop_at <= 1:
        raise OptionError("--stop-at", "must be a fraction above 0, up to 1", stop_at)
    options = Options(
        find_search(search or ("exhaustive" if budget is None else "random")), read_rules(prune or ["all"]), stop_at
    )
    if budget is None and target is None and not shape:
        seconds = WHOLE_CATALOGUE
    _check_together(shape, shape_class, regret=regret, verify=verify, frozen=frozen)
    device = None if arch is not None else find_device()
    if device is not None:
        families, home = families_of(ctx), home_of(out)
        wanted = problems(
            families, target, known_specs(families, home), shape or (), classes=shape_class or (), alignment=alignment
        )
        if frozen:
            winners.insist(wanted, read_winners(home), device.name, json=json)
            return
        if _can_measure():
            if verify:
                of = None if target is None and not (shape or shape_class) else wanted
                _verify(of, families, home, gpu, compiler, json=json)
            else:
                _measure(wanted, families, home, seconds, options, gpu, compiler, regret=regret, json=json)
            return
    elif verify or frozen or regret or shape_class:
        raise OptionError("--verify, --frozen, --regret and --class", "need a GPU", arch or "none")
    elif shape or any(given is not None for given in (budget, stop_at, search, prune)):
        raise OptionError(
            "--shape, --budget, --stop-at, --search and --prune", "need a GPU that measures", arch or "none"
        )
    rehearse(ctx, target, arch, out, json=json)


def read_seconds(text: str) -> float:
    """The seconds that a text spells: `60s`, `5m`, `1h`, `12.5`."""
    found = _TIME.fullmatch(text.strip().lower())
    seconds = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if not seconds > 0:
        raise OptionError("--budget", "must be a positive time such as 60s, 5m or 1h", text)
    return seconds


def calibrate(gpu: Gpu = 0, compiler: CompilerName = "nvrtc", out: Out = None, json: Json = False) -> None:
    """Measure what the GPU can do: bandwidths as slopes between 1 and 4 GiB, and what an empty launch costs.

    Tuning scores every variant against these figures. They are kept beside the winners.
    """
    from dataclasses import asdict

    from gen.gpu.open import store_calibration

    home = home_of(out)
    with _alone(gpu, None, "gen calibrate"):
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
    options: Options,
    gpu: int,
    compiler: str,
    *,
    regret: bool,
    json: bool,
) -> None:
    from gen.tune.classes import regrets
    from gen.tune.run import run

    start = time.monotonic()
    evidence = {"date": time.strftime("%Y-%m-%d")}
    deadline = None if budget is None else start + budget
    with (
        _alone(gpu, budget),
        _farm(compiler, home) as farm,
        _device(gpu, compiler, home) as device,
        show.bars() as tick,
    ):
        if budget is not None:
            budget -= time.monotonic() - start
        done = run(
            wanted, families, device, farm, home, budget=budget, options=options,
            evidence=evidence,
            tick=lambda problem, count, every: tick(str(problem), count, every),
        )  # fmt: skip
        lost: tuple[Regret, ...] = ()
        if regret:
            lost = regrets(
                done.outcomes, families, device, farm, home, deadline=deadline, options=options, evidence=evidence,
                tick=lambda problem, count, every: tick(str(problem), count, every),
            )  # fmt: skip
    if json:
        show.data({**_as_json(done), **({"regrets": [winners.regret_as_json(one) for one in lost]} if regret else {})})
    else:
        _show(done)
        winners.report_regrets(lost)
    if any(outcome.winner is None for outcome in done.outcomes):
        raise typer.Exit(1)


def _verify(
    wanted: tuple[Problem, ...] | None,
    families: tuple[Family[Any], ...],
    home: Path,
    gpu: int,
    compiler: str,
    *,
    json: bool,
) -> None:
    """Verifies the winners of the problems, or all."""
    from gen.store.folder import known_specs, prefixes_of
    from gen.store.tuned import read_winners
    from gen.tune.verify import verify

    found = [winner for winner in read_winners(home) if winner.variant.startswith(prefixes_of(families))]
    if wanted is not None:
        parts = {(problem.spec_name, problem.shape_class) for problem in wanted if not problem.region.one}
        ones = {(problem.spec_name, problem.shape_class, problem.region) for problem in wanted if problem.region.one}
        found = [w for w in found if (w.spec, w.shape) in parts or (w.spec, w.shape, w.region) in ones]
    with _alone(gpu, None), _farm(compiler, home) as farm, _device(gpu, compiler, home) as device:
        checks = list(verify(found, families, known_specs(families, home), device, farm))
    if not winners.report_checks(checks, json=json):
        raise typer.Exit(1)


def _check_together(
    shape: list[str] | None, shape_class: list[str] | None, *, regret: bool, verify: bool, frozen: bool
) -> None:
    if shape and shape_class:
        raise OptionError("--shape and --class", "do not go together")
    if shape and regret:
        raise OptionError("--shape and --regret", "do not go together: a single shape has no other sizes")
    if regret + verify + frozen > 1:
        raise OptionError("--regret, --verify and --frozen", "do not go together")


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


def _farm(compiler: str, home: Path) -> CompileFarm:
    """The compiler, on all cores."""
    from gen.toolchain.farm import CompileFarm

    return CompileFarm(_compiler(compiler, home))


def _device(index: int, compiler: str, home: Path) -> IsolatedDevice:
    """The GPU, in a process of its own."""
    from gen.gpu.isolated import IsolatedDevice
    from gen.gpu.open import GpuFactory

    return IsolatedDevice(GpuFactory(index, _compiler(compiler, home), home))


def _alone(index: int, seconds: float | None, doing: str = "gen tune") -> AbstractContextManager[None]:
    """Keeps the GPU to this run; says for whom it waits."""
    from gen.gpu.lock import alone_on, gpu_uuid

    uuid = gpu_uuid(index)
    return nullcontext() if uuid is None else alone_on(uuid, doing, say=show.note, seconds=seconds)


def _show(done: Run) -> None:
    show.text(f"{done.device}, driver {done.driver}")
    columns = ("problem", "winner", "us", "of limit", "over base", "tried", "right", "wrong", "failed", "seconds")
    show.table(columns, [_row(outcome) for outcome in done.outcomes])
    for outcome in done.outcomes:
        for trial in outcome.trials:
            if trial.status in ("wrong_result", "launch_failed", "compile_failed", "timeout") and not trial.same_as:
                show.text(f"{trial.variant.name}: {trial.status}: {trial.reason}", indent=2)
    tried = sum(outcome.tried for outcome in done.outcomes)
    show.text(f"{tried} variants in {done.seconds:.1f} s: {tried / done.seconds:.0f} a second, proven and timed.")
    for outcome in done.outcomes:
        if outcome.left_out:
            show.text(f"Left out for want of time: up to {outcome.left_out} variants of {outcome.problem}.")
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
        outcome.tried,
        counts.get("ok", 0),
        counts.get("wrong_result", 0),
        failed,
        f"{outcome.seconds:.1f}",
    )


def _as_json(done: Run) -> dict[str, Any]:
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
                "over_base": outcome.against_base and outcome.against_base.median,
                "statuses": dict(outcome.statuses),
                "left_out": outcome.left_out,
                "seconds": outcome.seconds,
            }
            for outcome in done.outcomes
        ],
        "left_out": [str(problem) for problem in done.left_out],
    }
