"""`gen ladder`: the kernels of the literature one after the other, and what each step gains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gen.cli import show
from gen.cli.common import Json, Out, families_of, home_of
from gen.cli.explain import Shape, explanations, extents_for
from gen.cli.prove import ARCH

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gen.report.explain import Explanation
    from gen.report.ladder import Step


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("ladder", epilog="Examples: `gen ladder transpose`, `gen ladder reduction --shape 2^24`.")(ladder)


def ladder(
    ctx: typer.Context,
    family: Annotated[str, typer.Argument(metavar="FAMILY", help="Whose kernels of the literature are shown.")],
    shape: Shape = None,
    arch: Annotated[
        str | None,
        typer.Option(metavar="SM", show_default=False, help=f"Predict for it. Default: measure on the GPU, or {ARCH}."),
    ] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Show a family's kernels of the literature in order: time, speed-up of each step and of all, and what changed.

    On a GPU they are measured; without one, or with --arch, their times are predicted, and marked as such. The metrics
    that explain a step come from the CPU run in both cases.
    """
    from gen.families.base import Limits
    from gen.families.names import find_family, named_variant
    from gen.report.ladder import Rung, as_json, climb, rungs_of
    from gen.tune.device import find_device

    found, home = find_family(families_of(ctx), family), home_of(out)
    device = find_device() if arch is None else None
    limits = Limits.of(device.arch if device else arch or ARCH)
    named = sorted(found.named, key=lambda one: one.rank)
    variants = [named_variant(found, one) for one in named]
    here = [made.algorithm.not_on_host is None for made in variants]
    shown = [made for made, possible in zip(variants, here, strict=True) if possible]
    explained = explanations(shown, limits, home, [extents_for(made, limits, shape) for made in shown])
    names = [(one.name, one.rank) for one, possible in zip(named, here, strict=True) if possible]
    rungs = list(rungs_of(names, explained, _clock(home) if device else None))
    rungs += [
        Rung(one.name, one.rank, None, None, False, str(made.algorithm.not_on_host))
        for one, made, possible in zip(named, variants, here, strict=True)
        if not possible
    ]
    rungs += [Rung(one.name, one.rank, None, None, False, one.reason) for one in found.absent]
    steps = list(climb(rungs))
    if json:
        show.data({
            "family": found.name,
            "arch": limits.arch,
            "device": device.name if device else None,
            "measured": device is not None,
            "rungs": [as_json(step) for step in steps],
        })  # fmt: skip
        return
    where = f"measured on {device.name}" if device else f"predicted for {limits.arch}: nothing was measured"
    show.text(f"{found.name}, {where}", "bold")
    show.table(("kernel", "us", "GB/s", "step", "in all", "what changed"), [_row(step) for step in steps])


def _row(step: Step) -> tuple[object, ...]:
    rung = step.rung
    if rung.us is None or rung.gb_per_s is None:
        return rung.name, "-", "-", "-", "-", rung.reason
    return (
        rung.name,
        f"{rung.us:.5g}",
        f"{rung.gb_per_s:.4g}",
        "-" if step.step is None else f"{step.step:.2f}x",
        "-" if step.cumulative is None else f"{step.cumulative:.2f}x",
        "; ".join(step.causes),
    )


def _clock(home: Path) -> Callable[[Explanation], float | str]:
    """Measures a variant as tuning does: right first, then in turns with cold caches."""
    from gen.emit.render import render
    from gen.errors import GenError
    from gen.families.names import variant
    from gen.gpu.open import open_instruments, store_calibration, stored_calibration
    from gen.gpu.trial import Entrant, Problem
    from gen.paths import cache_home
    from gen.toolchain.nvrtc import Nvrtc

    turns = 9
    compiler = Nvrtc(cache_home(home))
    instruments = open_instruments(0, compiler)
    calibration = stored_calibration(home, instruments.device)
    if calibration is None:
        calibration = instruments.calibrate()
        store_calibration(home, calibration)
    bench = instruments.bench(calibration)
    arch = instruments.device.limits.arch

    def time(one: Explanation) -> float | str:
        made = one.variant
        problem = Problem(made.family, made.spec, one.extents)
        base = variant(made.family, made.spec, *made.family.base(made.spec, problem.shape_class))
        entrants = [Entrant(v, compiler.compile(v.name, render(v), arch)) for v in (base, made)]
        try:
            session = bench.open(problem, entrants[0])
        except GenError as error:
            return str(error)
        try:
            trial = session.attempt(entrants[1], float("inf"))
            if trial.status != "ok":
                return trial.reason or trial.status
            rounds = session.rounds(entrants[1:], turns, lambda _: None)
        finally:
            session.close()
        times = sorted(rounds.times_us.get(made.name, ()) or trial.times_us)
        return times[len(times) // 2]

    return time
