"""`gen explain`: what a variant does on an architecture and why it is as fast as it is, without a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli import show
from gen.cli.common import Json, Out, families_of, find, home_of
from gen.cli.prove import ARCH

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gen.families.base import Extents, Limits, Variant
    from gen.report.explain import Explanation

Arch = Annotated[str, typer.Option("--arch", metavar="SM", help="The architecture to look at.")]
Shape = Annotated[
    str | None,
    typer.Option(
        "--shape",
        metavar="SHAPE",
        show_default=False,
        help="Of the first input: 8192x8192, 2^28. Default: the largest that stands for a shape class.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "explain",
        epilog="Examples: `gen explain transposeSmem --vs transposeSmemPad`, `gen explain reduceShfl --shape 2^20`.",
    )(explain)


def explain(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A full name, or what the literature calls the kernel: reduceShfl.")
    ],
    vs: Annotated[
        str | None, typer.Option("--vs", metavar="OTHER", show_default=False, help="Another, to compare with.")
    ] = None,
    shape: Shape = None,
    arch: Arch = ARCH,
    out: Out = None,
    json: Json = False,
) -> None:
    """Explain what a variant does and what bounds it; with --vs, what another does differently.

    The emitted text is run on the CPU, and every access of every warp is counted: sectors that global memory moves,
    turns that the banks of shared memory take. Machine code is compiled for the architecture: registers, occupancy,
    and instructions where nvdisasm is installed. From both follows what bounds it. Nothing is measured.
    """
    from gen.families.base import Limits
    from gen.report.explain import as_json, changes, metrics, parameters

    home, limits = home_of(out), Limits.of(arch)
    variants = [find(families_of(ctx), one, home) for one in (name, vs) if one is not None]
    found = explanations(variants, limits, home, [extents_for(variant, limits, shape) for variant in variants])
    if json:
        content: dict[str, Any] = {"explained": [as_json(one) for one in found]}
        if vs is not None:
            content["parameters"] = [vars(row) for row in parameters(*found)]
            content["changes"] = list(changes(*found))
        show.data(content)
        return
    if vs is None:
        _show(found[0])
        return
    show.text(f"{found[0].variant.name} and {found[1].variant.name} on {arch}", "bold")
    show.text()
    for sentence in changes(*found):
        show.text(sentence)
    show.text()
    rows = [(row.name, row.one, row.other) for row in (*parameters(*found), *metrics(*found))]
    show.table(("", name, vs), rows)


def extents_for(variant: Variant, limits: Limits, shape: str | None) -> Extents:
    """The problem that a shape of the first input means."""
    from gen.families.layout import extents_of
    from gen.toolchain.usage import largest
    from gen.tune.problems import read_shape

    if shape is None:
        return largest(variant, limits)
    return extents_of(variant.family, variant.spec, read_shape(shape))


def explanations(
    variants: Sequence[Variant], limits: Limits, home: Path, extents: Sequence[Extents]
) -> tuple[Explanation, ...]:
    """Each variant explained on its problem; built together."""
    from gen.emit.render import render
    from gen.paths import cache_home
    from gen.proof.host import HostRunner
    from gen.report.explain import explain as explained
    from gen.toolchain.nvrtc import Nvrtc
    from gen.toolchain.sass import disassembler, instructions

    cache = cache_home(home)
    kernels = HostRunner(limits, cache=cache, text=render).load(variants)
    compiler, program = Nvrtc(cache), disassembler()
    found = []
    for variant, kernel, sizes in zip(variants, kernels, extents, strict=True):
        compiled = compiler.compile(variant.name, render(variant), limits.arch)
        opcodes = instructions(compiled.cubin, program) if program else None
        found.append(explained(variant, kernel, compiled, limits, sizes, opcodes))
    return tuple(found)


def _show(one: Explanation) -> None:
    from gen.report.explain import METRICS, sentences

    sizes = ", ".join(f"{size} {extent}" for size, extent in one.extents.items())
    show.text(f"{one.variant.name} on {one.arch}, at {sizes}", "bold")
    show.text(one.variant.algorithm.summary)
    show.text()
    for sentence in sentences(one):
        show.text(sentence)
    show.text()
    values = [(metric, metric.of(one)) for metric in METRICS]
    rows = [(metric.name, metric.shown(value), metric.meaning) for metric, value in values if value is not None]
    show.table(("metric", "value", "meaning"), rows)
    show.text()
    rows_of_accesses = [
        (a.line, a.buffer, a.kind, f"{a.requests:.4g}", f"{a.lanes / a.requests:.3g}", _each(a), a.source)
        for a in one.found.accesses
    ]
    show.table(("line", "what", "how", "requests", "lanes", "a request", "text"), rows_of_accesses)
    if one.found.traced < one.found.blocks:
        show.text()
        show.text(f"Counted on {one.found.traced} of {one.found.blocks} blocks, and scaled.")


def _each(access: Any) -> str:
    if access.space == "shared":
        return f"{access.wavefronts / access.requests:.3g} of {access.least_wavefronts / access.requests:.3g} turns"
    return f"{access.sectors / access.requests:.3g} sectors"
