"""From a variant to the text of its `.cu` file: a pure function of the variant and the templates."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping

import jinja2

from gen.emit.templates import declared_inputs, digest, environment_of, fill
from gen.errors import TemplateError
from gen.families.base import Launch, Plan, Variant
from gen.families.expr import Expr

WIDTH = 99
MARK = "Written by gen: change the template, not this file."
_LINKS = re.compile(r"^// Compile:  nvcc -rdc=true((?: -l\w+)+)$", re.MULTILINE)


def render(variant: Variant) -> str:
    """The text of the variant's file: a header that says where it comes from, and every kernel of its plan.

    Raises TemplateError if the template reads what it is not given, is given what it does not read, or prints a
    value that is neither text nor an integer.
    """
    environment, template = environment_of(variant.family), variant.algorithm.template
    inputs = template_inputs(variant)
    header = fill(environment, "_header.cu.jinja", {"lines": _header(variant, environment)})
    return header + "\n" + fill(environment, template, inputs)


def template_inputs(variant: Variant) -> dict[str, object]:
    """The value of every name that the variant's template declares; see `Algorithm.inputs`.

    Raises TemplateError if the template declares a name without a value, or not all that is derived for it.
    """
    algorithm, spec, config = variant.algorithm, variant.spec, variant.config
    declared = declared_inputs(environment_of(variant.family), algorithm.template)
    required = {"name": variant.name, **algorithm.inputs(spec, config)}
    offered = {**config.template_inputs(), **algorithm.spec_inputs(spec), **required}
    for names, rule in (
        (required.keys() - declared, "is given to it, but not declared"),
        (declared - offered.keys(), "is declared, but not given to it"),
    ):
        for name in sorted(names):
            raise TemplateError(f"{algorithm.template}: {name}", rule)
    return {name: offered[name] for name in declared}


def linked_with(text: str) -> tuple[str, ...]:
    """The libraries of device code that a file says it is linked with: `cudadevrt`. Such code must be relocatable."""
    found = _LINKS.search(text.partition(MARK)[0])
    return tuple(option.removeprefix("-l") for option in found[1].split()) if found else ()


def _header(variant: Variant, environment: jinja2.Environment) -> tuple[str, ...]:
    of_sources = digest(environment, variant.algorithm.template)
    lines = [variant.name, ""]
    lines += _wrap("", variant.spec.summary) + _wrap("", variant.algorithm.described(variant.config)) + [""]
    lines += _plan(variant.plan)
    if variant.algorithm.links:
        lines.append("Compile:  nvcc -rdc=true " + " ".join(f"-l{library}" for library in variant.algorithm.links))
    lines += _wrap("Spec:     ", _json(variant.spec.to_json()))
    lines += _wrap("Config:   ", _json(variant.config.to_json()))
    lines += _wrap("Template: ", f"{variant.algorithm.template}, with its partials sha256 {of_sources}")
    lines += ["", MARK]
    return tuple(lines)


def _plan(plan: Plan) -> list[str]:
    lines: list[str] = []
    for word, meaning in dict(word for expression in _expressions(plan) for word in expression.words()).items():
        lines += _wrap("Let:      ", f"{word} = {meaning}")
    for launch in plan.launches:
        lines += _wrap("Launch:   ", _launch(launch))
        if str(launch.waiting) != "0":
            lines += _wrap("Room:     ", f"cudaLimitDevRuntimePendingLaunchCount of {launch.waiting.brief()}")
    for scratch in plan.scratch:
        state = ", 0 before the first launch" if scratch.zeroed else ""
        lines += _wrap("Scratch:  ", f"{scratch.name}, {scratch.bytes.brief()} bytes{state}")
    return lines


def _expressions(plan: Plan) -> Iterator[Expr]:
    """All that stand in the text of a plan."""
    for launch in plan.launches:
        yield from launch.grid
        yield launch.shared_bytes
        yield launch.times
        yield launch.waiting
        yield from (argument[1] for argument in launch.arguments if not isinstance(argument, str))
    yield from (scratch.bytes for scratch in plan.scratch)


def _launch(launch: Launch) -> str:
    entry = f"..{launch.entry} " if launch.entry else ""
    grid = [extent.brief() for extent in launch.grid]
    block = [str(extent) for extent in launch.block]
    shape = ", ".join(
        extents[0] if extents[1:] == ["1", "1"] else f"dim3({', '.join(extents)})" for extents in (grid, block)
    )
    if str(launch.shared_bytes) != "0":
        shape += f", {launch.shared_bytes.brief()}"
    arguments = ", ".join(a if isinstance(a, str) else a[1].brief() for a in launch.arguments)
    times = f", {launch.times.brief()} times" if str(launch.times) != "1" else ""
    swaps = "".join(f"; then {one} and {other} change places" for one, other in launch.swap)
    cluster = "x".join(str(extent) for extent in launch.cluster if extent > 1)
    clusters = f" in clusters of {cluster} blocks" if cluster else ""
    return f"{entry}<<<{shape}>>>({arguments}){clusters}{times}{swaps}"


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, sort_keys=True)


def _wrap(label: str, text: str) -> list[str]:
    if text and len(label) + len(text) <= WIDTH - 3 and text.split() == text.split(" "):
        return [label + text]  # as most are: what follows takes long, and comes to the same
    return textwrap.wrap(
        text,
        WIDTH - 3,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
