"""From a variant to the text of its `.cu` file: a pure function of the variant and the templates.

Below: how templates are read, what they declare and import, and the code that Jinja makes of them.
"""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.resources.abc import Traversable
from types import CodeType
from typing import Any, NamedTuple

import jinja2
from jinja2 import meta, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.loaders import split_template_path

from gen.emit.launch import HOST_ONLY, Function, expressions, functions, listed, names_in_header
from gen.errors import TemplateError
from gen.families.base import Family, Launch, Plan, Variant
from gen.families.expr import Expr
from gen.families.names import did_you_mean, near
from gen.families.plans import TIME
from gen.paths import templates_root

_INPUTS = re.compile(r"\{# inputs:(.*?)#\}")
_IMPORTED = re.compile(r'\{%-?\s*(?:from|import|include|extends)\s+"([^"]+)"')
WIDTH = 99
MARK = "Written by gen: change the template, not this file."
_INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)
_LINKS = re.compile(r"^// Compile:  nvcc -rdc=true((?: -l\w+)+)$", re.MULTILINE)


def render(variant: Variant) -> str:
    """The text of the variant's file: a header that says where it comes from, every kernel of its plan, and `launch`.

    All but what is included stands in a namespace of the variant's name: files can be included in one program.

    Raises TemplateError if the template reads what it is not given, is given what it does not read, or prints a
    value that is neither text nor an integer.
    """
    environment, template = environment_of(variant.family), variant.algorithm.template
    inputs = template_inputs(variant)
    check_sources(environment, template)
    text = fill(environment, template, inputs)
    header = _header(variant, text)
    return fill(environment, "_file.cu.jinja", {
        "header": header, "name": variant.name, "host_only": HOST_ONLY,
        "includes": tuple(_INCLUDE.findall(text)), "kernels": _INCLUDE.sub("", text).strip("\n"),
        "functions": tuple({**vars(one), "parameters": _parameters(one)} for one in functions(variant, text, WIDTH)),
    })  # fmt: skip


def host_lines(variant: Variant, kernels: str) -> tuple[str, ...]:
    """The lines of the functions for the host that belong to a text of a variant's kernels, not the comments above."""
    return tuple(line for one in functions(variant, kernels, WIDTH) for line in (*_parameters(one), *one.body, "}"))


def _parameters(one: Function) -> tuple[str, ...]:
    """The lines of a function's parameters: behind its name where they fit, else below it."""
    line = f"{one.head}({', '.join(one.parameters)}) {{"
    if len(line) <= WIDTH:
        return (line,)
    return (f"{one.head}(", *listed(one.parameters, ") {", "    ", WIDTH))


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


def _header(variant: Variant, kernels: str) -> tuple[str, ...]:
    of_sources = digest_of_template(variant.family, variant.algorithm.template)
    lines = [variant.name, ""]
    lines += _wrap("", variant.spec.summary) + _wrap("", variant.algorithm.description(variant.config)) + [""]
    lines += _plan(variant.plan, names_in_header(variant, kernels))
    if variant.algorithm.links:
        lines.append("Compile:  nvcc -rdc=true " + " ".join(f"-l{library}" for library in variant.algorithm.links))
    lines += _wrap("Spec:     ", _json(variant.spec.to_json()))
    lines += _wrap("Config:   ", _json(variant.config.to_json()))
    lines += _wrap("Template: ", f"{variant.algorithm.template}, with its partials sha256 {of_sources}")
    lines += ["", MARK]
    return tuple(lines)


def _plan(plan: Plan, names: Mapping[Expr, str]) -> list[str]:
    lines: list[str] = []
    for part in dict.fromkeys(part for one in expressions(plan) for part in one.parts() if part in names):
        lines += _wrap("Let:      ", f"{names[part]} = {part.meaning(names.get)}")
    if any(TIME.name in one.names() for one in expressions(plan)):
        lines.append(f"Let:      {TIME.name} = how often a launch ran before")
    for launch in plan.launches:
        lines += _wrap("Launch:   ", _launch(launch, names))
        if str(launch.waiting) != "0":
            lines += _wrap("Room:     ", f"cudaLimitDevRuntimePendingLaunchCount of {launch.waiting.text(names.get)}")
    for scratch in plan.scratch:
        state = ", 0 before the first launch" if scratch.zeroed else ""
        lines += _wrap("Scratch:  ", f"{scratch.name}, {scratch.bytes.text(names.get)} bytes{state}")
    return lines


def _launch(launch: Launch, names: Mapping[Expr, str]) -> str:
    entry = f"..{launch.entry} " if launch.entry else ""
    grid = [extent.text(names.get) for extent in launch.grid]
    block = [str(extent) for extent in launch.block]
    shape = ", ".join(
        extents[0] if extents[1:] == ["1", "1"] else f"dim3({', '.join(extents)})" for extents in (grid, block)
    )
    if str(launch.shared_bytes) != "0":
        shape += f", {launch.shared_bytes.text(names.get)}"
    arguments = ", ".join(a if isinstance(a, str) else a[1].text(names.get) for a in launch.arguments)
    times = f", {launch.times.text(names.get)} times" if str(launch.times) != "1" else ""
    times = ", each time after that" if launch.follows else times
    swaps = "".join(f"; then {one} and {other} change places" for one, other in launch.swap)
    cluster = "x".join(str(extent) for extent in launch.cluster if extent > 1)
    clusters = f" in clusters of {cluster} blocks" if cluster else ""
    cooperative = ", all blocks at the same time (a cooperative launch)" if launch.cooperative else ""
    return f"{entry}<<<{shape}>>>({arguments}){clusters}{cooperative}{times}{swaps}"


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


@lru_cache(maxsize=64)
def environment_of(family: Family[Any]) -> jinja2.Environment:
    """The environment in which a family's templates are read: its own folder first, then the shared partials."""
    return _environment(_Loader((family.templates, templates_root())))


def fill(environment: jinja2.Environment, template: str, inputs: Mapping[str, object]) -> str:
    """What the template makes of its inputs. Raises TemplateError, which names the template."""
    with _errors_named(template):
        return environment.get_template(template).render(inputs)


@lru_cache(maxsize=256)
def declared_inputs(environment: jinja2.Environment, template: str) -> frozenset[str]:
    """The names on the template's first line: `{# inputs: name, unroll #}`.

    Raises TemplateError if the line is missing, or names other inputs than the template reads: first a name that the
    template reads, with its line, since that may be one of those declared, misspelt.
    """
    source = _source(environment, template)
    match = _INPUTS.match(source)
    if match is None:
        raise TemplateError(template, "must begin with {# inputs: ... #}", repr(source.partition("\n")[0]))
    declared = {name.strip() for name in match.group(1).split(",") if name.strip()}
    read = _made(template, source).read
    for name in sorted(read.keys() - declared, key=lambda name: read[name]):
        meant = did_you_mean(near(name, [*sorted(declared - read.keys()), *sorted(declared)]))
        raise TemplateError(f"{template}:{read[name]}: {name}", "is read, but not declared", next_step=meant)
    for name in sorted(declared - read.keys()):
        raise TemplateError(f"{template}: {name}", "is declared, but never read")
    return frozenset(declared)


def sources(environment: jinja2.Environment, template: str) -> tuple[str, ...]:
    """The template and every partial it imports, directly or not, by name.

    Found without a word from Jinja, which takes a tenth of a second to read the first templates.
    """
    found, left = {template}, [template]
    while left:
        name = left.pop()
        for partial in set(_IMPORTED.findall(_source(environment, name))) - found:
            try:
                _source(environment, partial)
            except TemplateError as error:
                raise TemplateError(name, "imports a partial that is not there", partial) from error
            found.add(partial)
            left.append(partial)
    return tuple(sorted(found))


@lru_cache(maxsize=256)
def check_sources(environment: jinja2.Environment, template: str) -> None:
    """Raises TemplateError for a partial that is not there, is imported by no fixed name, or reads an unknown name."""
    for name in sources(environment, template):
        made = _made(name, _source(environment, name))
        if None in made.imported:
            raise TemplateError(name, "must import partials by a fixed name")
        for unknown, line in made.read.items() if name != template else ():
            rule = "is read, but neither set there nor given to its macro"
            raise TemplateError(f"{name}:{line}: {unknown}", rule)


@lru_cache(maxsize=256)
def digest_of_template(family: Family[Any], template: str) -> str:
    """Of the texts of the template and of all partials it imports: 16 hex digits."""
    environment, content = environment_of(family), hashlib.sha256()
    for name in sources(environment, template):
        text = _source(environment, name).encode()
        content.update(f"{name} {len(text)}\n".encode() + text)
    return content.hexdigest()[:16]


class _Loader(jinja2.BaseLoader):
    """Finds templates in folders, the first of which goes first."""

    def __init__(self, roots: tuple[Traversable, ...]) -> None:
        self._roots = roots

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, None, None]:
        """The text of a template, which lies in one of the folders, not above them."""
        for root in self._roots:
            place = root.joinpath(*split_template_path(template))
            if place.is_file():
                return place.read_text(encoding="utf-8"), None, None
        raise jinja2.TemplateNotFound(template)

    def load(
        self,
        environment: jinja2.Environment,
        name: str,
        globals: MutableMapping[str, Any] | None = None,  # noqa: A002  Jinja names it
    ) -> jinja2.Template:
        """What was made of the same text, maybe in another environment: families share most partials."""
        source, *_ = self.get_source(environment, name)
        code = _made(name, source).code
        return environment.template_class.from_code(environment, code, {} if globals is None else globals)


class _Made(NamedTuple):
    """What a text comes to.

    Attributes:
        code: what renders it.
        read: the names that it reads and does not define, each with the first line on which it stands.
        imported: the partials that it imports; None for one without fixed name.
    """

    code: CodeType
    read: Mapping[str, int]
    imported: tuple[str | None, ...]


@lru_cache(maxsize=256)
def _made(template: str, source: str) -> _Made:
    """Parses a text and writes its code, which takes long, once for all that is asked of it."""
    with _errors_named(template):
        environment = _plain()
        tree = environment.parse(source, template)
        imported = tuple(meta.find_referenced_templates(tree))
        generator = _Generator(environment, template, None)
        generator.visit(tree)
        code = compile(generator.stream.getvalue(), "<template>", "exec")  # type: ignore[attr-defined]
        lines: dict[str, int] = {}
        for node in tree.find_all(nodes.Name):
            lines[node.name] = min(node.lineno, lines.get(node.name, node.lineno))
        return _Made(code, {name: lines.get(name, 1) for name in generator.read}, imported)


class _Generator(CodeGenerator):
    """Notes the names that are read and not defined, as `jinja2.meta` does, while it writes the code."""

    def __init__(self, environment: jinja2.Environment, name: str | None, filename: str | None) -> None:
        super().__init__(environment, name, filename)
        self.read: set[str] = set()

    def enter_frame(self, frame: Frame) -> None:
        super().enter_frame(frame)
        for action, name in frame.symbols.loads.values():
            if action == "resolve" and name is not None and name not in self.environment.globals:
                self.read.add(name)


@cache
def _plain() -> jinja2.Environment:
    """One that has no templates: all write the same code."""
    return _environment(None)


def _environment(loader: jinja2.BaseLoader | None) -> jinja2.Environment:
    return jinja2.Environment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _printable(value: object) -> object:
    """Refuses what Python would print in words of its own: None, True, 0.1, lists, objects."""
    if isinstance(value, jinja2.Undefined) or type(value) in (str, int):
        return value
    raise _UnprintableError(f"{value!r}, a {type(value).__name__}")


class _UnprintableError(Exception):
    """A value that Jinja is about to print; `fill` knows where."""


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
        raise TemplateError(template, "is no template of its family, nor one that all share") from error
