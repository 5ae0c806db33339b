"""`gen explain`: what a variant does on an architecture and why it is as fast as it is, without a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.arch import DEFAULT_ARCH
from gen.cli import output
from gen.cli.common import (
    Home,
    Json,
    NameOrSpec,
    RuntimeParameters,
    Shape,
    check_feasible,
    families_of,
    find_or_choose,
    home_of,
    limits_for,
    option,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gen.arch import Limits, MemoryModel
    from gen.families.base import Extents, Variant
    from gen.proof.traffic import Access, Traffic
    from gen.report.counters import CountedMetric
    from gen.report.explain import Explanation

Arch = Annotated[
    str | None,
    option(
        "--arch",
        "SM",
        f"The architecture to look at. Default: the GPU's, with its counters, or {DEFAULT_ARCH}. With fermi, "
        "fermi-uncached or kepler, on which the literature measured, only what moves is shown.",
    ),
]


def explain(
    ctx: typer.Context,
    name: NameOrSpec,
    vs: Annotated[str | None, option("--vs", "OTHER", "Another variant, to compare with.")] = None,
    shape: Shape = None,
    given_parameters: RuntimeParameters = None,
    arch: Arch = None,
    results: Home = None,
    json: Json = False,
) -> None:
    """Explain what a variant does and what bounds it; with --vs, what another does differently.

    The emitted text is run on the CPU, and every access of every warp is counted: sectors that global memory moves,
    wavefronts of shared memory. Machine code is compiled for the architecture: registers, occupancy,
    and instructions where nvdisasm is installed. From both follows what bounds it. On a GPU with Nsight Compute the
    hardware's counters stand beside what was predicted; else nothing is measured.

    Examples: `gen explain transposeSmem --vs transposeSmemPad`, `gen explain reduceShfl --shape 2^20`.
    """
    from gen.arch import LITERATURE
    from gen.errors import RunError, ShapeError, UnknownNameError
    from gen.families.extents import check_runtime_parameters
    from gen.families.names import find_named
    from gen.gpu.device import find_gpu
    from gen.report.differences import changes, metrics, parameters
    from gen.report.explain import as_json, explanations, extents_for, moves
    from gen.tune.targets import read_runtime_parameters

    runtime_parameters = read_runtime_parameters(given_parameters or ())
    device = find_gpu() if arch is None else None
    old = None if arch is None else LITERATURE.get(arch)
    try:
        limits = limits_for(None if old else arch, device)
    except UnknownNameError as error:
        raise UnknownNameError(error.subject, f"{error.rule}; or {', '.join(LITERATURE)}", error.value) from None
    home = home_of(results)
    families, names = families_of(ctx), [one for one in (name, vs) if one is not None]
    chosen_for = None if old else arch
    variants = [find_or_choose(families, one, home, shape, given_parameters or (), chosen_for) for one in names]
    more = [named.more if (named := find_named(families, one)) else None for one in names]
    check_runtime_parameters(runtime_parameters, [(made.family, made.spec) for made in variants])
    sizes = [
        extents_for(made, limits, shape, added, runtime_parameters) for made, added in zip(variants, more, strict=True)
    ]
    for made, extents in zip(variants, sizes, strict=True):
        check_feasible(made, limits)
        reason = made.algorithm.unsupported_extents(made.spec, made.config, extents, limits)
        if reason is not None:
            raise ShapeError(made.name, f"does not take this problem: {reason}")
        if made.algorithm.not_on_host is not None:
            raise RunError(
                made.name, f"cannot be explained: {made.algorithm.not_on_host}",
                next_step=f"On a GPU gen ladder {made.family.name} shows what it takes, and make test-gpu proves it",
            )  # fmt: skip
    if old is not None:
        assert arch is not None
        _show_moves(variants, sizes, moves(variants, limits, home, sizes, old), arch, json=json)
        return
    found = explanations(variants, limits, home, sizes)
    counted = [_counters(one, limits, home) if device else () for one in found]
    if json:
        content: dict[str, Any] = {
            "explained": [
                {**as_json(one), "counted": [row.as_json() for row in rows] if device else None}
                for one, rows in zip(found, counted, strict=True)
            ]
        }
        if vs is not None:
            content["parameters"] = [vars(row) for row in parameters(*variants)]
            content["changes"] = list(changes(*found))
        output.data(content)
        return
    if vs is None:
        _show(found[0])
        _show_counters(counted[0], limits.arch)
        return
    names_at = " and ".join(f"{made.variant.name} at {made.problem}" for made in found)
    output.text(f"{names_at}, on {limits.arch}", "bold")
    output.text()
    for sentence in changes(*found):
        output.text(sentence)
    output.text()
    rows = [("problem", found[0].problem, found[1].problem)] * (found[0].problem != found[1].problem)
    rows += [(row.name, row.one, row.other) for row in (*parameters(*variants), *metrics(*found))]
    output.table(("", name, vs), rows)
    for one, beside in zip(found, counted, strict=True):
        _show_counters(beside, one.variant.name)


def _show_moves(
    variants: Sequence[Variant], sizes: Sequence[Extents], found: Sequence[Traffic], arch: str, *, json: bool
) -> None:
    """What variants move on an architecture that no compiler here knows."""
    from gen.report.explain import accesses_as_json, problem_of

    if json:
        content = [
            {
                "name": made.name, "arch": arch, "extents": dict(extents),
                "load_efficiency": one.efficiency("load"), "store_efficiency": one.efficiency("store"),
                "conflict_degree": one.conflict_degree, "accesses": accesses_as_json(one),
            }
            for made, extents, one in zip(variants, sizes, found, strict=True)
        ]  # fmt: skip
        output.data({"moved": content})
        return
    for made, extents, one in zip(variants, sizes, found, strict=True):
        output.text(f"{made.name} on {arch}, at {problem_of(made, extents)}: what moves", "bold")
        for kind in ("load", "store"):
            share = one.efficiency(kind)
            if share is not None:
                output.text(f"{kind.capitalize()}s are {share:.2%} efficient.")
        _show_accesses(made, one)


def _show_accesses(made: Variant, found: Traffic) -> None:
    rows = [
        (
            a.line,
            a.buffer,
            _how(a),
            f"{a.requests:.4g}",
            f"{a.lanes / a.requests:.3g}",
            _each(a, found.model),
            _where(a),
        )
        for a in found.accesses
    ]
    output.table(("line", "what", "how", "requests", "lanes", "a request", "text"), rows)
    if found.traced < found.blocks:
        output.text()
        output.text(f"Counted on {found.traced} of {found.blocks} blocks, and scaled.")
        results = {operand.name for operand in made.spec.operands if operand.role != "in"}
        if not any(access.buffer in results and access.kind != "load" for access in found.accesses):
            output.text(
                "The block that is done last was none of those: what that one does, the results too, is left out."
            )


def _counters(one: Explanation, limits: Limits, home: Path) -> tuple[CountedMetric, ...]:
    """What the hardware counts of a variant; nothing, and a note that says why, where it cannot."""
    from gen.errors import GenError
    from gen.report.counters import compared, counters, profiler

    program = profiler()
    if program is None:
        output.note("Nothing is counted on the GPU: Nsight Compute (ncu) is not installed.")
        return ()
    try:
        return tuple(compared(one, counters(program, one.variant, one.extents, limits, home)))
    except GenError as error:
        output.note(f"Nothing is counted on the GPU: {error}")
        return ()


def _show_counters(rows: Sequence[CountedMetric], where: str) -> None:
    if rows:
        output.text()
        output.text(f"Counted by the hardware, {where}", "bold")
        output.table(("counter", "predicted", "counted", "difference"), [row.shown() for row in rows])


def _show(one: Explanation) -> None:
    from gen.families.extents import sizes_in_words
    from gen.report.explain import METRICS, sentences

    output.text(f"{one.variant.name} on {one.limits.arch}, at {sizes_in_words(one.extents)}", "bold")
    output.text(one.variant.algorithm.description(one.variant.config))
    output.text()
    for sentence in sentences(one):
        output.text(sentence)
    output.text()
    values = [(metric, metric.of(one)) for metric in METRICS]
    rows = [(metric.name, metric.shown(value), metric.meaning) for metric, value in values if value is not None]
    output.table(("metric", "value", "meaning"), rows)
    output.text()
    _show_accesses(one.variant, one.found)


def _where(access: Access) -> str:
    """The text of a line, with that of the kernel that calls its function."""
    called = f" (from line {access.called_from})" if access.called_from != access.line else ""
    return access.source + called


def _how(access: Access) -> str:
    """How a line touches memory, with the cache that it goes through where the text says so."""
    path = {"constant": ", constant", "global": ", read-only"}.get(access.space, "") if access.kind == "load" else ""
    return access.kind + (path if access.space == "constant" or access.read_only else "")


def _each(access: Access, model: MemoryModel) -> str:
    from gen.arch import LINE

    if access.space in ("shared", "constant"):
        return (
            f"{access.wavefronts / access.requests:.4g} of {access.least_wavefronts / access.requests:.3g} wavefronts"
        )
    lines = model.load_bytes == LINE and access.kind == "load"
    return f"{access.lines / access.requests:.3g} lines" if lines else f"{access.sectors / access.requests:.3g} sectors"
