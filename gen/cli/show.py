"""`gen show`: what is tuned for a spec, on which devices, and what this machine's GPU gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli import output
from gen.cli.common import Json, Out, families_of, find, home_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gen.families.base import Family, Spec, Variant
    from gen.store.tuned import Winner


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("show", epilog="Examples: `gen show reduction_sum_f32`, `gen show reduceShfl --json`.")(show_tuned)


def show_tuned(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="SPEC|NAME", help="A spec such as reduction_sum_f32, or a variant's name.")
    ],
    out: Out = None,
    json: Json = False,
) -> None:
    """Show what is tuned for a spec, or where a variant was chosen.

    For each device and shape class: the chosen variant, its time, the part of the limit it reaches, and its file. Then
    what gen.load gives on the GPU of this machine, and why; or base, which devices get that nothing was tuned for.
    """
    from gen.runtime.dispatch import winners_of

    families, home = families_of(ctx), home_of(out)
    variant, family, spec = _named(families, name, home)
    spec_name = family.name_of(spec)
    winners = _in_order([winner for winner in winners_of(home) if winner.spec == spec_name], family.shape_classes(spec))
    device, choices = _choices(family, spec, winners)
    if variant is not None:
        winners = [winner for winner in winners if winner.variant == variant.name]
    report: dict[str, Any] = {
        "spec": spec_name,
        "summary": spec.summary,
        "variant": None if variant is None else variant.name,
        "file": None if variant is None else _file(home, variant.name),
        "winners": [{**_winner(winner), "file": _file(home, winner.variant)} for winner in winners],
        "device": device,
        "choices": [one for one in choices if variant is None or one["variant"] == variant.name],
    }
    if json:
        output.data(report)
    else:
        _print(report)


def _named(families: tuple[Family[Any], ...], name: str, home: Path) -> tuple[Variant | None, Family[Any], Spec]:
    """The variant of a name, or none where it is that of a spec; the family, and the spec."""
    from gen.families.names import Takes, names_variant
    from gen.runtime.dispatch import family_and_spec

    if names_variant(families, name):
        variant = find(families, name, home)
        return variant, variant.family, variant.spec
    named = [one.name for family in families for one in family.named]
    rule = "must be a variant's full name, a kernel of the literature or a spec, FAMILY_LABEL"
    return None, *family_and_spec(families, name, home, Takes("The name", rule, named))


def _in_order(winners: Sequence[Winner], classes: Sequence[str]) -> list[Winner]:
    """By device, then as the family orders its shape classes; those that it no longer has come last."""
    places = {shape: place for place, shape in enumerate(classes)}
    last = len(places)
    return sorted(winners, key=lambda winner: (winner.device, places.get(winner.shape, last), winner.words))


def _choices(family: Family[Any], spec: Spec, winners: Sequence[Winner]) -> tuple[str | None, list[dict[str, str]]]:
    """The GPU of this machine, if there is one, and what it gets for each shape class; else base."""
    from gen.families.names import variant
    from gen.gpu.device import find_gpu
    from gen.runtime.dispatch import Chooser

    classes = family.shape_classes(spec)
    device = find_gpu()
    if device is not None:
        chooser = Chooser(family, spec, winners, device.name, device.limits)
        found = [part for shape in classes for part in chooser.choices(shape)]
        return device.name, [{"shape": shape, "variant": one.variant.name, "why": one.why} for shape, one in found]
    base = [(shape, variant(family, spec, *family.base(spec, shape)).name) for shape in classes]
    return None, [{"shape": shape, "variant": made, "why": "base"} for shape, made in base]


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
                one["device"], one["for"], one["variant"], _format(one["median_us"], 1, " us"),
                _format(one["of_limit"], 100, " %"), one["file"] or "not written",
            )
            for one in report["winners"]
        ]  # fmt: skip
        output.table(("tuned on", "for", "variant", "median", "of the limit", "file"), rows)
    else:
        what = "Nothing is tuned for it" if report["variant"] is None else "It was chosen on no device"
        output.text(f"{what}. On a machine with a GPU, gen tune {report['spec']} finds the fastest.")
    if report["choices"]:
        output.text()
        output.text(f"On {report['device']}:" if report["device"] else "Base, for devices that nothing is tuned for:")
        for one in report["choices"]:
            output.text(f"{one['shape']}: {one['variant']}", indent=2)
            if report["device"]:
                output.text(one["why"], indent=4)


def _format(value: float | None, factor: float, unit: str) -> str:
    return "" if value is None else f"{factor * value:.4g}{unit}"
