"""`gen tune` without a GPU: everything up to measuring."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from gen.arch import DEFAULT_ARCH, Limits
from gen.cli import output
from gen.cli.common import families_of, home_of, limits_for
from gen.cli.first_minute import first_minute
from gen.cli.prove import STOPPED, as_json, keep_failures, show_reasons

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gen.families.base import Variant
    from gen.gpu.device import GpuInfo
    from gen.tune.rehearse import Prospect, Ranking, Rehearsal, Rehearsed


LISTED_PREDICTIONS = 5  # predicted variants that are shown


def rehearse(
    ctx: typer.Context,
    target: str | None,
    arch: str | None,
    results: Path | None,
    budget: float | None,
    *,
    everything: bool,
    json: bool,
) -> None:
    """Emits, compiles and proves, for so many seconds at most, and says what a GPU would measure.

    Without a target, a budget and `everything`: a minute of it, which shows what gen does.
    """
    from gen.gpu.device import find_gpu
    from gen.paths import cache_home
    from gen.proof.failures import read
    from gen.proof.verdicts import Host
    from gen.runtime.dispatch import family_and_spec
    from gen.store.folder import known_specs
    from gen.toolchain.farm import CompileFarm
    from gen.toolchain.nvrtc import Nvrtc
    from gen.tune.rehearse import prospects, rank
    from gen.tune.rehearse import rehearse as rehearsed
    from gen.tune.targets import of_specs, specs_of, to_tune

    deadline = None if budget is None else time.monotonic() + budget
    families, home, device = families_of(ctx), home_of(results), find_gpu()
    limits, compiler = limits_for(arch, device), Nvrtc(cache_home(home))
    if limits.arch not in compiler.architectures:
        if arch is not None:
            compiler.check(arch)
        # What the GPU here is does not stand in the way of a rehearsal.
        output.note(
            f"{compiler.version} does not compile for {limits.arch}: this rehearses for {DEFAULT_ARCH} instead."
        )
        limits = Limits.of(DEFAULT_ARCH)
    if target is None and budget is None and not everything:
        first_minute(families, home, limits, compiler, json=json)
        return
    variants = of_specs(
        families, target, lambda name: family_and_spec(families, name, home, to_tune(families, name)),
        cover=True, limits=limits,
    )  # fmt: skip
    host = Host(limits, cache_home(home), kept=read(home))
    specs = Counter(made.spec_name for made in variants)
    with (
        output.progress(emitted=len(variants), compiled=len(variants), proven=len(variants)) as bar,
        output.groups({spec: 3 * count for spec, count in specs.items()}) as line,
    ):
        counts = ", ".join(f"{spec} {count}" for spec, count in specs.items())
        output.hint(f"Variants to emit, compile and prove: {counts}")

        def tick(step: str, made: Variant) -> None:
            bar(step)
            line(made.spec_name, "emitted, compiled and proven")

        try:
            with CompileFarm(compiler, width=min(len(variants), len(os.sched_getaffinity(0)))) as farm:
                done = rehearsed(variants, limits, farm, host, deadline=deadline, tick=tick)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(STOPPED) from None
    keep_failures(home, [one.verdict for one in done.variants])
    # Fewer than are rehearsed: samples of algorithms, and kernels of the literature, have specs of their own.
    would = prospects(specs_of(families, target, known_specs(families, home)), limits, deadline)
    # Looking at every access of a whole catalogue takes minutes.
    over = deadline is not None and time.monotonic() >= deadline
    rankings = () if target is None or over else tuple(rank(done.variants, host.runner(), limits, deadline=deadline))
    if json:
        output.data(
            {**_as_json(done, would, compiler.version, device), "predicted": [_ranking(one) for one in rankings]}
        )
    else:
        _show(done, compiler.version)
        _show_prospects(would, target, limits.arch, device)
        _show_rankings(rankings, limits.arch)
    if not done.variants:
        output.note(
            "Nothing was rehearsed: the budget was over before the first variants, which are built together, were "
            "proven. Give --budget more, or leave it out."
        )
    if not done.ok or not done.variants:
        raise typer.Exit(1)


def _show(done: Rehearsal, compiler: str) -> None:
    from gen.errors import CompileError, UnlinkedError

    rows = [_row(name, made) for name, made in _by_family(done).items()]
    columns = ("family", "emitted", "compiled", "registers", "spill", "proven", "failed", "skipped", "cases")
    output.table(columns, rows)
    unlinked = [one.compiled for one in done.variants if isinstance(one.compiled, UnlinkedError)]
    for one in done.variants:
        if isinstance(one.compiled, CompileError) and one.compiled not in unlinked[1:]:
            output.text()
            output.verbatim(f"{one.compiled}\n")
    if len(unlinked) > 1:
        output.text(f"{len(unlinked) - 1} more are not linked for the same reason.")
    show_reasons([one.verdict for one in done.variants])
    output.text()
    for spec, count in Counter(made.spec_name for made in done.left_out).items():
        output.text(f"Left out for want of time: {count} {'variant' if count == 1 else 'variants'} of {spec}.")
    if len(done.variants) > 1 and not done.left_out:
        output.text("The base and named variants, and configs in which every pair of parameter values meets.")
    if done.variants:
        output.text(f"Compiled for {done.arch} with {compiler}; proven on the CPU against NumPy.")
    infeasible = sum(one.infeasible is not None for one in done.variants)
    if infeasible:
        output.text(f"{infeasible} of these variants cannot run on {done.arch}; gen tune --json says why.")


def _show_prospects(would: Sequence[Prospect], target: str | None, arch: str, device: GpuInfo | None) -> None:
    here = "there is no GPU here" if device is None else f"this was a rehearsal for {arch} beside a {device.name}"
    output.text()
    if not would:  # no time to count
        output.text(f"Nothing was measured: {here}.")
        return
    command = f"gen tune {target or ''}".rstrip()
    output.text(f"Nothing was measured: {here}. On a GPU, {command} measures:")
    for prospect in would:
        output.text(_prospect(prospect), indent=2)
    output.text(f"and keeps the fastest variant of each shape class. Feasible means: can run on {arch}.")


def _show_rankings(rankings: tuple[Ranking, ...], arch: str) -> None:
    from gen.families.extents import sizes_in_words

    for ranking in rankings:
        if ranking.order:
            output.text()
            sizes = sizes_in_words(ranking.extents)
            output.text(
                f"{ranking.spec_name}, {ranking.shape_class} ({sizes}): predicted for {arch}, not measured", "bold"
            )
            rows = [(made.name, f"{found.us:.4g}", found.bound) for made, found in ranking.order[:LISTED_PREDICTIONS]]
            output.table(("variant", "predicted us", "bound by"), rows)
            if len(ranking.order) > LISTED_PREDICTIONS:
                output.text(f"and {len(ranking.order) - LISTED_PREDICTIONS} more; gen tune --json shows all.")


def _ranking(ranking: Ranking) -> dict[str, Any]:
    return {
        "spec": ranking.spec_name,
        "shape_class": ranking.shape_class,
        "extents": dict(ranking.extents),
        "measured": False,
        "variants": [
            {"name": made.name, "predicted_us": found.us, "bound": found.bound} for made, found in ranking.order
        ],
    }


def _by_family(done: Rehearsal) -> dict[str, list[Rehearsed]]:
    grouped: dict[str, list[Rehearsed]] = {}
    for one in done.variants:
        grouped.setdefault(one.variant.family.name, []).append(one)
    return grouped


def _row(name: str, made: list[Rehearsed]) -> tuple[object, ...]:
    from gen.toolchain.compiled import Compiled

    compiled = [one.compiled for one in made if isinstance(one.compiled, Compiled)]
    registers = [one.registers for one in compiled]
    verdicts = [one.verdict.status for one in made]
    return (
        name,
        len(made),
        len(compiled),
        f"{min(registers)} to {max(registers)}" if registers else "-",
        sum(one.spill_bytes > 0 for one in compiled),
        verdicts.count("proven"),
        verdicts.count("failed"),
        verdicts.count("skipped"),
        sum(one.verdict.cases for one in made),
    )


def _prospect(prospect: Prospect) -> str:
    classes = len(prospect.family.shape_classes(prospect.spec))
    return (
        f"{prospect.family.name_of(prospect.spec)}: {prospect.feasible} feasible variants, in {classes} shape "
        f"{'class' if classes == 1 else 'classes'}, scored against the device's {prospect.limit} bandwidth"
    )


def _as_json(done: Rehearsal, would: Sequence[Prospect], compiler: str, device: GpuInfo | None) -> dict[str, Any]:
    return {
        "arch": done.arch,
        "compiler": compiler,
        "device": None if device is None else {"name": device.name, "arch": device.limits.arch},
        "measured": False,
        "variants": [_variant(one) for one in done.variants],
        "left_out": [made.name for made in done.left_out],
        "would_measure": [
            {
                "spec": prospect.family.name_of(prospect.spec),
                "feasible": prospect.feasible,
                "limit": prospect.limit,
                "shape_classes": list(prospect.family.shape_classes(prospect.spec)),
            }
            for prospect in would
        ],
    }


def _variant(one: Rehearsed) -> dict[str, Any]:
    from gen.errors import CompileError

    code = one.compiled
    failed = str(code) if isinstance(code, CompileError) else None
    return {
        **as_json(one.verdict),
        "infeasible": one.infeasible,
        "compiled": failed is None,
        "compile_error": failed,
        "registers": 0 if isinstance(code, CompileError) else code.registers,
        "spill_bytes": 0 if isinstance(code, CompileError) else code.spill_bytes,
    }
