"""From a variant to the text of its `.cu` file: a pure function of the variant and the templates."""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from types import CodeType
from typing import Any

import jinja2
from jinja2 import meta
from jinja2.bccache import Bucket

from gen.errors import TemplateError
from gen.families.base import Family, Launch, Plan, Variant
from gen.families.expr import Expr
from gen.paths import templates_root

WIDTH = 99
MARK = "Written by gen: change the template, not this file."
_INPUTS = re.compile(r"\{# inputs:(.*?)#\}")
_LINKS = re.compile(r"^// Links:    nvcc -rdc=true((?: -l\w+)+)$", re.MULTILINE)


def render(variant: Variant) -> str:
    """The text of the variant's file: a header that says where it comes from, and every kernel of its plan.

    Raises TemplateError if the template reads what it is not given, is given what it does not read, or prints a
    value that is neither text nor an integer.
    """
    environment = environment_of(variant.family)
    inputs = {"name": variant.name, **variant.algorithm.inputs(variant.spec, variant.config)}
    template = variant.algorithm.template
    declared = declared_inputs(environment, template)
    for name in sorted(declared ^ inputs.keys()):
        rule = "is given to it, but not declared" if name in inputs else "is declared, but not given to it"
        raise TemplateError(f"{template}: {name}", rule)
    header = _render(environment, "_header.cu.jinja", {"lines": _header(variant, environment)})
    return header + "\n" + _render(environment, template, inputs)


def linked_with(text: str) -> tuple[str, ...]:
    """The libraries of device code that a file says it is linked with: `cudadevrt`. Such code must be relocatable."""
    found = _LINKS.search(text.partition(MARK)[0])
    return tuple(option.removeprefix("-l") for option in found[1].split()) if found else ()


@lru_cache(maxsize=256)
def declared_inputs(environment: jinja2.Environment, template: str) -> frozenset[str]:
    """The names on the template's first line: `{# inputs: name, unroll #}`.

    Raises TemplateError if the line is missing, or names other inputs than the template reads.
    """
    source = _source(environment, template)
    match = _INPUTS.match(source)
    if match is None:
        raise TemplateError(template, "must begin with {# inputs: ... #}", repr(source.partition("\n")[0]))
    declared = {name.strip() for name in match.group(1).split(",") if name.strip()}
    read, _ = _read_and_imported(template, source)
    for name in sorted(declared ^ read):
        rule = "is declared, but never read" if name in declared else "is read, but not declared"
        raise TemplateError(f"{template}: {name}", rule)
    return frozenset(declared)


def sources(environment: jinja2.Environment, template: str) -> tuple[str, ...]:
    """The template and every partial it imports, directly or not, by name."""
    found: dict[str, None] = {template: None}
    left = [template]
    while left:
        name = left.pop()
        _, imported = _read_and_imported(name, _source(environment, name))
        for partial in imported:
            if partial is None:
                raise TemplateError(name, "must import partials by a fixed name")
            if partial in found:
                continue
            try:
                _source(environment, partial)
            except TemplateError as error:
                raise TemplateError(name, "imports a partial that is not there", partial) from error
            found[partial] = None
            left.append(partial)
    return tuple(sorted(found))


@lru_cache(maxsize=256)
def _read_and_imported(template: str, source: str) -> tuple[frozenset[str], tuple[str | None, ...]]:
    """The names that a text reads and does not define, and the partials it imports: None for one without fixed name."""
    with _errors_named(template):
        tree = jinja2.Environment().parse(source, template)
        return frozenset(meta.find_undeclared_variables(tree)), tuple(meta.find_referenced_templates(tree))


class _Compiled(jinja2.BytecodeCache):
    """Texts that are compiled, each once: families share most partials."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """What was made of the same text under the same name."""
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keeps what was made of a text."""
        assert bucket.code is not None
        self._codes[bucket.key, bucket.checksum] = bucket.code


@cache
def _compiled() -> _Compiled:
    """What all environments have compiled."""
    return _Compiled()


@lru_cache(maxsize=64)
def environment_of(family: Family[Any]) -> jinja2.Environment:
    """The environment in which a family's templates are read: its own folder first, then the shared partials."""

    def read(name: str) -> str | None:
        for root in (family.templates, templates_root()):
            place = root.joinpath(*name.split("/"))
            if place.is_file():
                return place.read_text(encoding="utf-8")
        return None

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(read),
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        bytecode_cache=_compiled(),
    )


def _printable(value: object) -> object:
    """Refuses what Python would print in words of its own: None, True, 0.1, lists, objects."""
    if isinstance(value, jinja2.Undefined) or type(value) in (str, int):
        return value
    raise _UnprintableError(f"{value!r}, a {type(value).__name__}")


class _UnprintableError(Exception):
    """A value that Jinja is about to print; `_render` knows where."""


def _render(environment: jinja2.Environment, template: str, inputs: Mapping[str, object]) -> str:
    with _errors_named(template):
        return environment.get_template(template).render(inputs)


@contextmanager
def _errors_named(template: str) -> Iterator[None]:
    """Turns what Jinja and a template's own expressions raise into an error that names the template."""
    try:
        yield
    except jinja2.TemplateNotFound as error:
        raise TemplateError(template, "needs a template that is not there", error.name) from error
    except jinja2.TemplateSyntaxError as error:
        place = template if error.name in (None, "<introspection>") else error.name
        raise TemplateError(f"{place}:{error.lineno}", "is no Jinja", error.message) from error
    except jinja2.UndefinedError as error:
        raise TemplateError(template, "reads what is not defined", error.message) from error
    except _UnprintableError as error:
        raise TemplateError(template, "may print text and integers only", error) from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise TemplateError(template, "cannot be rendered", f"{type(error).__name__}: {error}") from error


def _source(environment: jinja2.Environment, template: str) -> str:
    assert environment.loader is not None
    try:
        return environment.loader.get_source(environment, template)[0]
    except jinja2.TemplateNotFound as error:
        raise TemplateError(template, "is no template") from error


@lru_cache(maxsize=256)
def _digest(environment: jinja2.Environment, template: str) -> str:
    digest = hashlib.sha256()
    for name in sources(environment, template):
        text = _source(environment, name).encode()
        digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:16]


def _header(variant: Variant, environment: jinja2.Environment) -> tuple[str, ...]:
    digest = _digest(environment, variant.algorithm.template)
    lines = [variant.name, ""]
    lines += _wrap("", variant.spec.summary) + _wrap("", variant.algorithm.described(variant.config)) + [""]
    lines += _plan(variant.plan)
    if variant.algorithm.links:
        lines.append("Links:    nvcc -rdc=true " + " ".join(f"-l{library}" for library in variant.algorithm.links))
    lines += _wrap("Spec:     ", _json(variant.spec.to_json()))
    lines += _wrap("Config:   ", _json(variant.config.to_json()))
    lines += _wrap("Template: ", f"{variant.algorithm.template}, with its partials sha256 {digest}")
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
