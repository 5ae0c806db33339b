"""`gen ladder`: the kernels of the literature one after the other, and what each step gains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gen.arch import DEFAULT_ARCH
from gen.cli import gpu as gpus
from gen.cli import output
from gen.cli.common import (
    Home,
    Json,
    OptionError,
    RuntimeParameters,
    Shape,
    complete_family,
    families_of,
    home_of,
    limits_for,
    option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gen.report.ladder import Rung, RungGain


def ladder(
    ctx: typer.Context,
    family: Annotated[
        str,
        typer.Argument(metavar="FAMILY", autocompletion=complete_family, help="The family whose kernels are shown."),
    ],
    shape: Shape = None,
    parameters: RuntimeParameters = None,
    arch: Annotated[
        str | None,
        option(
            "--arch",
            "SM",
            f"Predict for this architecture. Default: measure on the GPU; without one, predict for {DEFAULT_ARCH}.",
        ),
    ] = None,
    results: Home = None,
    json: Json = False,
) -> None:
    """Show a family's kernels of the literature in order: time, speed-up of each step and of all, and what changed.

    On a GPU they are measured; without one, or with --arch, their times are predicted, and marked as such. The metrics
    that explain a step come from the CPU run in both cases.

    Examples: `gen ladder transpose`, `gen ladder transpose --param nreps=100`.
    """
    from gen.errors import MissingToolError
    from gen.families.names import find_family
    from gen.gpu.device import find_gpu
    from gen.report.ladder import COLUMNS_EXPLAINED, as_json, climb, listed, looked_at, on_host, said_of_problems
    from gen.tune.targets import read_runtime_parameters

    with_ladders = [one for one in families_of(ctx) if one.named or one.name == family]
    found, home, runtime_parameters = (
        find_family(with_ladders, family),
        home_of(results),
        read_runtime_parameters(parameters or ()),
    )
    if not found.named:
        known = ", ".join(one.name for one in families_of(ctx) if one.named)
        raise OptionError("The family", f"must have kernels of the literature: {known}", family)
    device = find_gpu() if arch is None else None
    limits = limits_for(arch, device)
    if arch is not None:
        from gen.toolchain.nvrtc import Nvrtc

        Nvrtc(None).check(arch)  # before all kernels are built for the CPU
    rungs = listed(found, limits, shape, runtime_parameters)
    told = [rung.name for rung in rungs if rung.extents and runtime_parameters.keys() & rung.extents.keys()]
    if 0 < len(told) < len(rungs):
        spelled = ", ".join(f"{name}={value}" for name, value in runtime_parameters.items())
        output.note(f"{spelled} holds for {', '.join(told)}; the others count no such thing, and do their work once.")
    if device is not None:
        rungs = _timed(rungs, home)
    try:
        kernels = len(on_host(rungs))
        output.hint(f"Kernels to build for the CPU, and to count: {kernels}")
        with output.progress(kernels=kernels) as step:
            rungs = looked_at(rungs, limits, home, lambda: step("kernels"))
    except MissingToolError as error:
        if device is None:
            raise
        output.note(f"Nothing explains the steps: {error}")
    steps = list(climb(rungs))
    if json:
        output.data({
            "family": found.name,
            "arch": limits.arch,
            "device": device.name if device else None,
            "measured": device is not None,
            "rungs": [as_json(step) for step in steps],
        })  # fmt: skip
        return
    where = f"measured on {device.name}" if device else f"predicted for {limits.arch}: nothing was measured"
    output.text(f"{found.name}, {where}", "bold")
    output.text(said_of_problems({rung.name: rung.sizes for rung in rungs}))
    columns = ("kernel", "us", "GB/s", "step", "published", "in all", "what changed")
    above = [None, *(step.rung.name for step in steps)]
    output.table(columns, [_row(step, name) for step, name in zip(steps, above, strict=False)])
    output.text()
    output.text(COLUMNS_EXPLAINED)


def _row(step: RungGain, above: str | None) -> tuple[object, ...]:
    """A row of the table, with the kernel that it is over where that does not stand above it."""
    rung, before = step.rung, step.before
    published = "-" if rung.published is None else f"{rung.published:.2f}x"
    if rung.us is None or rung.gb_per_s is None:
        return rung.name, "-", "-", "-", published, "-", rung.why_not
    over = f" over {before.name}" if before and before.name != above else ""
    return (
        rung.name,
        f"{rung.us:.5g}",
        f"{rung.gb_per_s:.4g}",
        "-" if step.step is None else f"{step.step:.2f}x{over}",
        published,
        "-" if step.cumulative is None else f"{step.cumulative:.2f}x",
        "; ".join(step.causes),
    )


def _timed(rungs: list[Rung], home: Path) -> list[Rung]:
    """The rungs with their times on the first GPU, which this run has to itself."""
    from gen.report.ladder import timed

    compiler = gpus.compiler_of("nvrtc", home)
    with gpus.alone(0, None, "gen ladder"), gpus.device_of(0, "nvrtc", home) as device:
        return timed(device, compiler, rungs)
