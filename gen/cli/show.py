"""`gen show`: what is tuned for a spec, on which devices, and what this machine's GPU gets."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.arch import DEFAULT_ARCH
from gen.cli import output
from gen.cli.common import (
    Home,
    Json,
    OptionError,
    RuntimeParameters,
    complete_spec_or_variant,
    families_of,
    find,
    home_of,
    limits_for,
    option,
)
from gen.errors import MissingToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gen.families.base import Family, Spec, Variant
    from gen.runtime.dispatch import Choice, Chooser
    from gen.store.winners import Winner


def show(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="SPEC|NAME",
            autocompletion=complete_spec_or_variant,
            help="A spec such as reduction_sum_f32, or a variant's name, which may leave out parameters at its end.",
        ),
    ],
    shape: Annotated[
        str | None,
        option(
            "--shape",
            "SHAPE",
            "The shape of the first input, 8192x8192 or 2^28: show only what gen.load gives for it, and why.",
        ),
    ] = None,
    parameters: RuntimeParameters = None,
    arch: Annotated[
        str | None,
        option("--arch", "SM", f"For GPUs of this architecture. Default: the GPU's, or {DEFAULT_ARCH} without one."),
    ] = None,
    results: Home = None,
    json: Json = False,
) -> None:
    """Show what is tuned for a spec, what gen.load gives and why, or where a variant was chosen.

    For each device and shape class: the chosen variant, its time, the part of the limit it reaches, and its file. Then
    what gen.load gives on the GPU of this machine, or on one of an architecture, for the sizes that stand for each
    shape class, or for one shape. This needs no GPU.

    Examples: `gen show reduction_sum_f32`, `gen show reduction_sum_f32 --shape 10^6`.
    """
    from gen.gpu.device import find_gpu
    from gen.runtime.dispatch import winners_of
    from gen.runtime.load import chooser_for

    families, home = families_of(ctx), home_of(results)
    variant, family, spec = _named(families, name, home)
    spec_name = family.name_of(spec)
    chooser = chooser_for(family, spec, home, arch)
    if arch is not None:
        with suppress(MissingToolError):  # without a compiler nobody says what it knows
            from gen.toolchain.nvrtc import Nvrtc

            Nvrtc(None).check(arch)
        limits_for(arch)  # says so where no figures of it are known
    if shape is not None:
        if variant is not None:
            raise OptionError("--shape", "goes with a spec: a variant is chosen already", name)
        _show_problem(chooser, shape, parameters or (), home, json=json)
        return
    winners = _in_order([winner for winner in winners_of(home) if winner.spec == spec_name], family.shape_classes(spec))
    numbers = {one: place for place, one in enumerate(numbered(family, spec, home), 1)}
    device = None if arch is not None or (found := find_gpu()) is None else found.name
    choices = [
        {"shape": words, "number": numbers.get(choice.variant.name), "variant": choice.variant.name, "why": choice.why}
        for words, choice in _parts(chooser)
    ]
    if variant is not None:
        winners = [winner for winner in winners if winner.variant == variant.name]
    report: dict[str, Any] = {
        "spec": spec_name,
        "summary": spec.summary,
        "variant": None if variant is None else variant.name,
        "file": None if variant is None else _file(home, variant.name),
        "winners": [
            {
                "number": numbers[winner.variant],
                **_winner(winner),
                "unusable": chooser.why_unusable(winner),
                "stale": chooser.why_stale(winner),
                "file": _file(home, winner.variant),
            }
            for winner in winners
        ],
        "device": device,
        "chosen_for": chooser.device,
        "choices": [one for one in choices if variant is None or one["variant"] == variant.name],
    }
    if json:
        output.data(report)
    else:
        _print(report)


def _named(families: tuple[Family[Any], ...], name: str, home: Path) -> tuple[Variant | None, Family[Any], Spec]:
    """The variant of a name, or none where it is that of a spec; the family, and the spec."""
    from gen.emit.kernel_file import SUFFIX
    from gen.families.names import Takes, names_variant
    from gen.runtime.dispatch import family_and_spec

    if names_variant(families, name) or (name.endswith(SUFFIX) and Path(name).is_file()):
        variant = find(families, name, home)
        return variant, variant.family, variant.spec
    named = [one.name for family in families for one in family.named]
    rule = "must be a variant's full name, a kernel of the literature or a spec, FAMILY_LABEL"
    return None, *family_and_spec(families, name, home, Takes("The name", rule, named))


def numbered(family: Family[Any], spec: Spec, home: Path) -> tuple[str, ...]:
    """The variants that are shown of a spec, in that order, so that they have numbers: `transpose_10_b32:2` is one."""
    from gen.runtime.dispatch import winners_of
    from gen.runtime.load import chooser_for

    name = family.name_of(spec)
    winners = _in_order([one for one in winners_of(home) if one.spec == name], family.shape_classes(spec))
    choices = [choice.variant.name for _, choice in _parts(chooser_for(family, spec, home, None))]
    return tuple(dict.fromkeys([*(winner.variant for winner in winners), *choices]))


def _parts(chooser: Chooser) -> list[tuple[str, Choice]]:
    """What each shape class gets, in words."""
    return [part for one in chooser.family.shape_classes(chooser.spec) for part in chooser.choices(one)]


def _in_order(winners: Sequence[Winner], classes: Sequence[str]) -> list[Winner]:
    """By device, then as the family orders its shape classes; those that it no longer has come last."""
    places = {shape: place for place, shape in enumerate(classes)}
    last = len(places)
    return sorted(winners, key=lambda winner: (winner.device, places.get(winner.shape, last), winner.words))


def _show_problem(chooser: Chooser, shape: str, parameters: Sequence[str], home: Path, *, json: bool) -> None:
    """What one shape gets, by what `gen.load` does."""
    from gen.tune.targets import problem_at, read_runtime_parameters

    problem = problem_at(chooser.family, chooser.spec, shape, read_runtime_parameters(parameters))
    choice = chooser.for_call(problem.extents)
    report = {
        "spec": chooser.name, "extents": dict(problem.extents), "shape_class": problem.shape_class,
        "chosen_for": chooser.device, "variant": choice.variant.name, "why": choice.why, "tuned": choice.tuned,
        "file": _file(home, choice.variant.name),
    }  # fmt: skip
    if json:
        output.data(report)
        return
    output.text(choice.variant.name, "bold")
    output.text(f"for {problem} ({problem.shape_class}) on {chooser.device}: {choice.why}")
    output.text(f"File: {report['file'] or 'not written; gen render prints it'}")


def _winner(winner: Winner) -> dict[str, Any]:
    return {
        "device": winner.device, "shape": winner.shape, "within": winner.region.to_json(), "for": winner.words,
        "variant": winner.variant,
        "median_us": _number(winner.evidence.get("median_us")), "of_limit": _number(winner.evidence.get("of_limit")),
        "driver": winner.evidence.get("driver"),
    }  # fmt: skip


def _number(value: Any) -> float | None:
    from gen.runtime.dispatch import is_number

    return value if is_number(value) else None


def _file(home: Path, variant: str) -> str | None:
    """Where a variant's text lies, if it was written."""
    name = f"{variant}.cu"
    place = home / name
    return str(place) if place.name == name and place.is_file() else None  # the name may come from an edited file


def _print(report: dict[str, Any]) -> None:
    output.text(report["variant"] or report["spec"], "bold")
    output.text(report["summary"])
    if report["variant"] is not None:
        output.text(f"File: {report['file'] or 'not written; gen render prints it'}")
    output.text()
    if report["winners"]:
        rows = [
            (
                one["number"], one["device"], one["for"], one["variant"], _format(one["median_us"], 1, " us"),
                _format(one["of_limit"], 100, " %"),
                "cannot be used" if one["unusable"] else one["file"] or "not written",
            )
            for one in report["winners"]
        ]  # fmt: skip
        output.table(("", "tuned on", "for", "variant", "median", "of the limit", "file"), rows)
        for one in report["winners"]:
            if one["unusable"]:
                output.text(f"{one['variant']} on {one['device']} cannot be used: {one['unusable']}", indent=2)
            if one["stale"]:
                output.text(f"{one['variant']} on {one['device']} is stale: {one['stale']}", indent=2)
    else:
        what = "Nothing is tuned for it" if report["variant"] is None else "It was chosen on no device"
        output.text(f"{what}. On a machine with a GPU, gen tune {report['spec']} finds the fastest.")
    if report["choices"]:
        output.text()
        here = "" if report["device"] else "Without a GPU: "
        output.text(f"{here}what gen.load gives on {report['chosen_for']}, for sizes that stand for each class:")
        for one in report["choices"]:
            number = "" if one["number"] is None else f"{one['number']}  "
            output.text(f"{number}{one['shape']}: {one['variant']}", indent=2)
            output.text(one["why"], indent=4)
    if report["variant"] is None:
        output.text()
        output.text(f"A number names its variant in other commands: gen render {report['spec']}:1.")


def _format(value: float | None, factor: float, unit: str) -> str:
    return "" if value is None else f"{factor * value:.4g}{unit}"
