"""`gen tune`: which variant does it best; `gen merge`: what several of its jobs found, as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.arch import DEFAULT_ARCH
from gen.cli import gpu as gpus
from gen.cli import outcomes, output
from gen.cli.common import (
    Home,
    Json,
    OptionError,
    RuntimeParameters,
    complete_family_or_spec,
    families_of,
    folder_of,
    home_of,
    note_stand_in,
    option,
)
from gen.cli.gpu import CompilerName, check_compiler
from gen.cli.rehearse import rehearse

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gen.cli.compare import Measured
    from gen.families.base import Family, Limits
    from gen.gpu.device import GpuInfo
    from gen.store.trials import Problem
    from gen.tune.one_problem import Options


WHOLE_CATALOGUE = 60.0  # seconds, unless told otherwise; a rerun goes on from there
BESIDE_TORCH = 15.0  # of these, where torch is installed


def tune(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="FAMILY|SPEC",
            autocompletion=complete_family_or_spec,
            show_default=False,
            help="A family, or a spec such as reduction_sum_f32. Default: all.",
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        option(
            "--shape",
            "SHAPE",
            "The shape of the first input: 8192x8192, 2^28; repeatable. Default: one that stands for each shape class.",
        ),
    ] = None,
    parameters: RuntimeParameters = None,
    budget: Annotated[
        str | None,
        option(
            "--budget",
            "TIME",
            "The time that the whole run may take, compiling included: 60s, 5m, 1h; a bare number is seconds. "
            "Default: 60s for every catalogue, no bound for what is named.",
        ),
    ] = None,
    shape_class: Annotated[
        list[str] | None,
        option("--class", "WORDS", "Only this shape class, in the words of gen show; repeatable.", rare=True),
    ] = None,
    alignment: Annotated[
        int,
        typer.Option(
            metavar="BYTES", hidden=True, help="Tune for arrays whose addresses are aligned to this many bytes only."
        ),
    ] = 16,
    part: Annotated[
        str | None,
        option(
            "--part",
            "K/N",
            "Only the K-th of N parts of the problems, for the jobs of a cluster: each with a --home of its own, which "
            "gen merge makes one folder of.",
            rare=True,
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only time the winners again, each against base; write nothing.")
    ] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="Tune again what has a winner on this GPU that gen show calls stale.")
    ] = False,
    frozen: Annotated[
        bool,
        typer.Option("--frozen", hidden=True, help="Measure nothing: fail if a problem has no winner on this GPU."),
    ] = False,
    prune: Annotated[
        list[str] | None,
        option(
            "--prune",
            "RULE",
            "Do not time variants that cannot be fast: spills, in-flight, occupancy, unsearched; all or none; "
            "repeatable. Default: all.",
            rare=True,
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Without a GPU: rehearse the whole catalogue, which takes minutes, not a sample."),
    ] = False,
    gpu: Annotated[
        str | None,
        option(
            "--gpu",
            "N,...",
            "The numbers of the GPUs that variants are tried on, of one model: 0, or 0,1. Default: all of the first "
            "one's model that nobody uses.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        option(
            "--scheduler",
            "ADDRESS",
            "Compile and time on the workers of a Dask cluster, tcp://HOST:8786; those beside GPUs announce them by "
            "--resources GPU=N.",
            rare=True,
        ),
    ] = None,
    model: Annotated[
        str | None,
        option("--device", "TEXT", "With --scheduler: only on GPUs whose names contain this text.", rare=True),
    ] = None,
    compiler: CompilerName = "nvrtc",
    arch: Annotated[
        str | None,
        option(
            "--arch",
            "SM",
            "Measure nothing, and rehearse for this architecture. Without a GPU that is so anyway, for "
            f"{DEFAULT_ARCH}.",
        ),
    ] = None,
    results: Home = None,
    json: Json = False,
) -> None:
    """Find the fastest variant of each spec on the GPUs at hand; without one, rehearse that.

    On a GPU: compiles every variant that can run there, compares its result with that of a variant proven against
    NumPy, times it with cold caches, and writes the winners to tuned.json and as .cu files. Every trial is kept; a
    rerun measures what is missing. Without a name that takes a minute, and ends beside torch, where it is installed.

    Variants that cannot be fast are pruned by rules. spills: a thread spills more than 32 bytes. in-flight: the problem
    moves 128 MiB or more, and a multiprocessor has less than an eighth of the bytes in flight with which it reads at
    full speed. occupancy: a multiprocessor holds fewer than 4 warps, and the grid has more for it.

    Without a GPU, and without a name: emits, compiles and proves on the CPU a sample of three families' variants, ranks
    them by a model of the GPU, and finds a planted fault, within a minute. With a name, --budget or --all: the base and
    named variants of the spec, the family or every catalogue, and configs of each algorithm in which every pair of
    parameter values meets; and says what a GPU would measure.

    Examples: `gen tune`, `gen tune transpose --shape 4096x4096`, `gen tune --arch sm_80`.
    """
    from gen.errors import DeviceError
    from gen.families.base import WIDEST
    from gen.gpu.device import find_gpu
    from gen.store.folder import known_specs
    from gen.tune.one_problem import Options
    from gen.tune.prune import read_rules
    from gen.tune.search import Climb, exhaustive
    from gen.tune.targets import problems, read_runtime_parameters

    limit = seconds = None if budget is None else read_seconds(budget)
    number, parts = (1, 1) if part is None else read_part(part)
    numbers = None if gpu is None else gpus.read_numbers(gpu)
    if budget is None and target is None and not shape:
        seconds = WHOLE_CATALOGUE
    plain = seconds is not None and budget is None and not (shape_class or part or prune or scheduler)
    if plain and find_spec("torch") is not None:
        seconds = WHOLE_CATALOGUE - BESIDE_TORCH
    options = Options(exhaustive if seconds is None else Climb, read_rules(prune or ["all"]))
    check_compiler(compiler)
    how = {"--budget": budget, "--prune": prune}
    what = {"--verify": verify, "--stale": stale, "--frozen": frozen}
    which = {
        "--shape": shape,
        "--param": parameters,
        "--class": shape_class,
        "--alignment": alignment != WIDEST,
        "--part": part,
        "--gpu": gpu,
        "--compiler": compiler != "nvrtc",
    }
    asked: dict[str, Any] = {**what, **which, **how}
    given = [name for name, value in asked.items() if not (value is None or value is False or name == "--budget")]
    not_there = [name for name, value in {**what, "--arch": arch, "--gpu": gpu}.items() if value]
    if scheduler is not None and not_there:
        rule = "do not go together: the workers of a cluster only search, on all GPUs of the model that --device names"
        raise OptionError(f"--scheduler and {not_there[0]}", rule)
    if model is not None and scheduler is None:
        raise OptionError("--device", "must come with --scheduler: --gpu names GPUs of this machine")
    here = arch is None and scheduler is None
    device = find_gpu(0 if numbers is None else numbers[0]) if here else None
    if device is None and scheduler is None:
        if given:
            at_hand = "none here" if arch is None else f"--arch {arch}"
            alone = f"gen tune {target or ''}".rstrip()
            rule = f"{alone} rehearses, which takes minutes: it compiles and proves, and measures nothing"
            error = DeviceError if arch is None else OptionError
            raise error(*needs(given), at_hand, next_step=f"Without {' and '.join(given)}, {rule}")
        rehearse(ctx, target, arch, results, limit, everything=everything, json=json)
        return
    check_together(what, which, how)
    families, home = families_of(ctx), home_of(results)
    wanted = () if stale else problems(
        families, target, known_specs(families, home), shape or (),
        runtime_parameters=read_runtime_parameters(parameters or ()), classes=shape_class or (), alignment=alignment,
    )  # fmt: skip
    if stale and device is not None:
        wanted = _stale(families, home, target, device)
        if not wanted:
            output.text(f"No winner on {device.name} is stale.")
            return
    every, wanted = len(wanted), wanted[number - 1 :: parts]
    if not wanted:
        output.text(f"Part {part} has nothing to tune: there are {every} problems.")
        return
    if frozen and device is not None:
        outcomes.insist(wanted, home, device.name, json=json)
        return
    if device is not None:
        note_stand_in(device.limits)
    if verify:
        every_winner = target is None and not (shape or shape_class or part)
        at = 0 if numbers is None else numbers[0]
        _verify(None if every_winner else wanted, families, home, at, compiler, json)
    elif scheduler is None:
        place = gpus.of_machine(numbers, seconds, compiler, families, home, len(wanted))
        assert device is not None
        first = 0 if numbers is None else numbers[0]
        then = partial(_beside_torch, families, home, first, device.limits) if plain and not stale else None
        _measure(wanted, place, seconds, options, then, json=json)
    else:
        place = gpus.of_cluster(scheduler, model, compiler, families, home)
        _measure(wanted, place, seconds, options, json=json)


def _stale(families: tuple[Family[Any], ...], home: Path, target: str | None, device: GpuInfo) -> tuple[Problem, ...]:
    """The problems of stale winners on a GPU, of a family, a spec or all; without those that are no problems now."""
    from gen.errors import StoreError
    from gen.store.folder import known_specs
    from gen.store.stale import stale
    from gen.store.winners import all_winners
    from gen.tune.targets import specs_of
    from gen.tune.verify import problem_of

    known, found = known_specs(families, home), []
    specs = None if target is None else {family.name_of(spec) for family, spec in specs_of(families, target, known)}
    mine = [
        winner for winner in all_winners(home) if winner.device == device.name and (not specs or winner.spec in specs)
    ]
    for winner, reason in stale(mine, families, known, device.limits):
        try:
            found.append(problem_of(winner, families, known))
        except StoreError:
            output.note(f"{winner.variant} for {winner.words} is not tuned again: {reason}.")
    return tuple(found)


def _measure(
    wanted: tuple[Problem, ...],
    place: AbstractContextManager[gpus.Tuner],
    budget: float | None,
    options: Options,
    then: Callable[[], Measured | None] | None = None,
    *,
    json: bool,
) -> None:
    """Tunes the problems by what `place` gives; `then` compares winners."""
    from gen.tune.outcome import Interrupted

    start = time.monotonic()
    evidence = {"date": time.strftime("%Y-%m-%d")}

    with place as tuner, output.bars() as bar:

        def tick(problem: Problem, count: int, every: int) -> None:
            bar(str(problem), count, every)

        ready = time.monotonic() - start
        left = None if budget is None else budget - ready
        try:
            done = tuner(wanted, budget=left, options=options, evidence=evidence, tick=tick)
        except Interrupted as stopped:
            at = stopped.outcome.problem
            said = f"Stopped at {at}. Every trial is kept: the same command goes on from here."
            raise KeyboardInterrupt(said) from None
    begun = bool(done.outcomes)
    if not begun:
        output.note(
            f"Nothing was measured: the budget of {budget:g} s was over when the GPU and the compilers were ready, "
            f"after {ready:.1f} s. The winners so far stay, and base where there is none. Give --budget more than that."
        )
    if not json:
        outcomes.report(done)
    beside = then() if begun and then is not None else None
    if json:
        output.data({**outcomes.as_json(done), "compared": [] if beside is None else beside.as_json()})
    elif beside is not None:
        beside.show()
    if then is not None and not json:
        output.text("Next: gen tune again refines this; gen compare SPEC --shape SHAPE; gen report; gen show SPEC.")
    if not begun or any(outcome.winner is None for outcome in done.outcomes):
        raise typer.Exit(1)


def _beside_torch(families: Sequence[Family[Any]], home: Path, gpu: int, limits: Limits) -> Measured | None:
    """Times the winners of one large problem of each family beside torch; None where that is not installed."""
    from gen.cli.compare import measured
    from gen.compare.case import ComparisonCase
    from gen.compare.peers import find_peers
    from gen.errors import GenError
    from gen.tune.targets import sample

    if find_spec("torch") is None:
        return None
    cases = []
    for one in (chosen for family in families if (chosen := sample(family, limits)) is not None):
        family, spec = one.family, one.spec
        extents = family.representative(spec, one.shape_class)
        first = next(operand for operand in spec.operands if operand.role != "number")
        steps = {name: extents[name] for name in family.runtime_parameters(spec)}
        cases.append(ComparisonCase(family, spec, family.layouts(spec, extents)[first.name].shape, steps))
    try:
        found = measured(cases, find_peers(("torch",)), gpu, home, "gen tune")
    except GenError as error:  # the winners are kept all the same
        output.note(f"Not compared with torch: {error}")
        return None
    if found.lost is not None:
        output.note(f"Not all is compared with torch: {found.lost}")
    return found


def _verify(
    wanted: tuple[Problem, ...] | None,
    families: tuple[Family[Any], ...],
    home: Path,
    gpu: int,
    compiler: str,
    json: bool,
) -> None:
    """Verifies the winners of the problems, or all."""
    from gen.store.folder import known_specs, prefixes_of
    from gen.store.winners import all_winners
    from gen.tune.verify import verify

    found = [winner for winner in all_winners(home) if winner.variant.startswith(prefixes_of(families))]
    if wanted is not None:
        parts = {(problem.spec_name, problem.shape_class) for problem in wanted if not problem.region.one}
        ones = {(problem.spec_name, problem.shape_class, problem.region) for problem in wanted if problem.region.one}
        found = [w for w in found if (w.spec, w.shape) in parts or (w.spec, w.shape, w.region) in ones]
    with gpus.alone(gpu, None), gpus.farm_of(compiler, home) as farm, gpus.device_of(gpu, compiler, home) as device:
        checks = list(verify(found, families, known_specs(families, home), device, farm))
    if not outcomes.report_checks(checks, json=json):
        raise typer.Exit(1)


def read_seconds(text: str) -> float:
    """The seconds that a text spells: `60s`, `5m`, `1h`, `12.5`. Raises OptionError for another text."""
    from gen.tune import targets

    seconds = targets.read_seconds(text)
    if seconds is None:
        raise OptionError("--budget", "must be a positive time such as 60s, 5m or 1h", text)
    return seconds


def read_part(text: str) -> tuple[int, int]:
    """The number of a part, from 1 on, and how many parts there are: `2/4`. Raises OptionError for another text."""
    numbers = [int(word) if word.isascii() and word.isdigit() else 0 for word in text.split("/")]
    if len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1]:
        raise OptionError("--part", "must be K/N, a whole number from 1 to N and N", text)
    return numbers[0], numbers[1]


def check_together(what: Mapping[str, bool], which: Mapping[str, Any], how: Mapping[str, Any]) -> None:
    """Raises OptionError for options that contradict each other; each by its name, with what was given."""
    asked = [name for name, value in what.items() if value]
    if len(asked) > 1:
        raise OptionError(" and ".join(asked), "do not go together")
    if which["--param"] and not which["--shape"]:
        raise OptionError("--param", "must come with --shape: a shape class has its own runtime parameters")
    sizes = [name for name in ("--shape", "--class", "--alignment") if which[name]]
    if what["--stale"] and sizes:
        raise OptionError(f"--stale and {sizes[0]}", "do not go together: stale winners say their sizes")
    if which["--shape"] and which["--class"]:
        raise OptionError("--shape and --class", "do not go together")
    if which["--alignment"] and what["--verify"] and not which["--shape"]:
        rule = "do not go together: a winner of a class is timed at the alignment that it is for"
        raise OptionError("--alignment and --verify", rule)
    if what["--verify"] and which["--gpu"] is not None and "," in which["--gpu"]:
        rule = "do not go together but for one GPU: the times of a winner and of base are compared there"
        raise OptionError("--gpu and --verify", rule, which["--gpu"])
    if which["--compiler"] and what["--frozen"]:
        raise OptionError("--compiler and --frozen", "do not go together: nothing is compiled")
    idle = [name for name, value in how.items() if value is not None]
    if idle and (what["--verify"] or what["--frozen"]):
        raise OptionError(f"{asked[0]} and {idle[0]}", "do not go together: nothing is searched")


def needs(given: list[str]) -> tuple[str, str]:
    """Subject and rule where options were given that only a GPU can honour."""
    return " and ".join(given), "needs a GPU" if len(given) == 1 else "need a GPU"


def merge(
    ctx: typer.Context,
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", parser=folder_of("DIR"), help="Folders that gen tune has written.")
    ],
    results: Home = None,
    json: Json = False,
) -> None:
    """Take what other folders hold into the folder of results, and write the kernels of the winners.

    That is winners, trials, comparisons, specs and calibrations. With `gen tune --part K/N --home DIR` the jobs of a
    cluster tune a part each; this makes one folder of theirs. Of two winners for the same device, spec and sizes the
    later one stays, of two of one day the faster.

    Examples: `gen merge part1 part2`, `gen merge part* --home tuned --json`.
    """
    from gen.compare.results import merge as merge_comparisons
    from gen.tune.merge import merge as merged

    home = home_of(results)
    found = merged(folders, families_of(ctx), home)
    comparisons = merge_comparisons(folders, home)
    if json:
        output.data({"folder": str(home), **vars(found), "comparisons": comparisons})
        return
    counts = (
        ("winner", found.winners), ("trial", found.trials), ("comparison", comparisons), ("spec", found.specs),
    )  # fmt: skip
    taken = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts)
    output.text(f"{home}: {taken} came from {len(folders)} folder{'' if len(folders) == 1 else 's'}")
