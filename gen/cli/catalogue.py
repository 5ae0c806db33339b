"""`gen list` and `gen render`: what there is, and what a kernel looks like."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli import output
from gen.cli.common import (
    Home,
    Json,
    NameOrSpec,
    RuntimeParameters,
    complete_family,
    families_of,
    find_or_choose,
    home_of,
    limits_for,
    option,
)

if TYPE_CHECKING:
    from gen.families.base import Algorithm, Family, Named, Plan
    from gen.families.config import Parameter


def list_families(
    ctx: typer.Context,
    family: Annotated[
        str | None,
        typer.Argument(
            metavar="FAMILY", autocompletion=complete_family, show_default=False, help="List only this family."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List families, their algorithms with all tuning parameters, and the kernels of the literature.

    A full name is put together from what is listed: FAMILY_SPEC__ALGORITHM_TAG, where the tag gives each parameter's
    letters and value in order, for instance reduction_sum_f32__shfl_tpb128_u1.

    Examples: `gen list`, `gen list transpose`, `gen list --json`.
    """
    from gen.families.names import find_family

    known = families_of(ctx)
    found = [listed(one) for one in ((find_family(known, family),) if family else known)]
    if json:
        output.data({"families": found})
        return
    for place, one in enumerate(found):
        if place:
            output.text()
        _show_family(one)


def render(
    ctx: typer.Context,
    name: NameOrSpec,
    shape: Annotated[
        str | None,
        option("--shape", "SHAPE", "The shape of the first input of a spec: print what gen.load gives for it."),
    ] = None,
    parameters: RuntimeParameters = None,
    arch: Annotated[str | None, option("--arch", "SM", "With --shape: for GPUs of this architecture.")] = None,
    results: Home = None,
    json: Json = False,
) -> None:
    """Print the CUDA source of a variant.

    The text stands alone: NVRTC and nvcc compile it as it is. `gen list` says how names are put together. Specs that
    are in no catalogue are looked up in specs.json, in the folder of what gen writes.

    Examples: `gen render reduceShfl`, `gen render reduceShfl > reduce.cu`.
    """
    from gen.emit.render import render as text_of

    if arch is not None:
        limits_for(arch)
    variant = find_or_choose(families_of(ctx), name, home_of(results), shape, parameters or (), arch)
    text = text_of(variant)
    if not json:
        sys.stdout.write(text)
        return
    output.data(
        {
            "name": variant.name,
            "family": variant.family.name,
            "spec": dict(variant.spec.to_json()),
            "algorithm": variant.algorithm.name,
            "config": variant.config.to_json(),
            "plan": _plan(variant.plan, variant.name),
            "text": text,
        }
    )


def listed(family: Family[Any]) -> dict[str, Any]:
    """All that `gen list` says of a family, as data."""
    return {
        "name": family.name,
        "summary": family.summary,
        "specs": [
            {"name": family.name_of(spec), "summary": spec.summary, "content": dict(spec.to_json())}
            for spec in family.catalogue
        ],
        "algorithms": [_algorithm(family, algorithm) for algorithm in family.algorithms.values()],
        "named_variants": [_named(family, named) for named in sorted(family.named, key=lambda named: named.rank)],
    }


def _algorithm(family: Family[Any], algorithm: Algorithm[Any, Any]) -> dict[str, Any]:
    from gen.families.names import legal_space, unsearched

    # Specs differ in what they allow: a config counts if it is legal, or searched, for one of the catalogue.
    legal = {(spec, config) for spec in family.catalogue for config in legal_space(algorithm, spec)}
    searched = {config for spec, config in legal if unsearched(algorithm, spec, config) is None}
    return {
        "name": algorithm.name,
        "summary": algorithm.summary,
        "parameters": [_parameter(parameter) for parameter in algorithm.config.parameters()],
        "legal_configs": len({config for _, config in legal}),
        "searched_configs": len(searched),
        "why_none": None if legal else _why_none(family, algorithm),
    }


def _why_none(family: Family[Any], algorithm: Algorithm[Any, Any]) -> str:
    from gen.families.names import illegal

    spec = family.catalogue[0]
    return f"none for {family.name_of(spec)}: {illegal(algorithm, spec, algorithm.config())}"


def _parameter(parameter: Parameter) -> dict[str, Any]:
    from gen.families.config import plain

    return {
        "name": parameter.field,
        "label": parameter.label,
        "values": [plain(value) for value in parameter.values],
        "base": plain(parameter.base),
        "off": None if parameter.off is None else plain(parameter.off),
        "help": parameter.help,
    }


def _named(family: Family[Any], named: Named) -> dict[str, Any]:
    from gen.families.names import named_variant

    return {
        "name": named.name,
        "variant": named_variant(family, named).name,
        "algorithm": named.algorithm,
        "fixed": dict(named.config),
        "spec": dict(named.spec),
        "rank": named.rank,
    }


def _plan(plan: Plan, name: str) -> dict[str, Any]:
    """The plan with its expressions as text."""
    return {
        "launches": [
            {
                "kernel": name + launch.entry,
                "grid": [str(extent) for extent in launch.grid],
                "block": list(launch.block),
                "shared_bytes": str(launch.shared_bytes),
                "arguments": [given if isinstance(given, str) else str(given[1]) for given in launch.arguments],
                "times": str(launch.times),
                "follows": launch.follows,
                "setup": launch.setup,
            }
            for launch in plan.launches
        ],
        "scratch": [
            {"name": scratch.name, "bytes": str(scratch.bytes), "zeroed": scratch.zeroed} for scratch in plan.scratch
        ],
    }


def _show_family(family: dict[str, Any]) -> None:
    from gen.families.config import word_of

    output.text(f"{family['name']}: {family['summary']}", "bold")
    for spec in family["specs"]:
        output.text(f"spec {spec['name']}: {spec['summary']}", indent=2)
    for algorithm in family["algorithms"]:
        output.text()
        counts = f"{algorithm['legal_configs']} legal configs, of which tuning tries {algorithm['searched_configs']}"
        legal = algorithm["why_none"] or counts
        output.text(f"algorithm {algorithm['name']}, {legal}", "bold", indent=2)
        output.text(algorithm["summary"], indent=2)
        rows = [
            (
                parameter["name"],
                parameter["label"],
                " ".join(word_of(value) for value in parameter["values"]),
                word_of(parameter["base"]),
                parameter["help"],
            )
            for parameter in algorithm["parameters"]
        ]
        output.table(("parameter", "in a tag", "values", "base", "meaning"), rows, indent=2)
    if family["named_variants"]:
        output.text()
        named = [(one["name"], one["variant"]) for one in family["named_variants"]]
        output.table(("kernel of the literature", "variant"), named, indent=2)
