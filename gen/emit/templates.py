"""Reads templates: what they are told, what they import, and the code that Jinja makes of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.resources.abc import Traversable
from types import CodeType
from typing import Any, NamedTuple

import jinja2
from jinja2 import meta
from jinja2.compiler import CodeGenerator, Frame

from gen.errors import TemplateError
from gen.families.base import Family
from gen.paths import templates_root

_INPUTS = re.compile(r"\{# inputs:(.*?)#\}")


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

    Raises TemplateError if the line is missing, or names other inputs than the template reads.
    """
    source = _source(environment, template)
    match = _INPUTS.match(source)
    if match is None:
        raise TemplateError(template, "must begin with {# inputs: ... #}", repr(source.partition("\n")[0]))
    declared = {name.strip() for name in match.group(1).split(",") if name.strip()}
    read = _made(template, source).read
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
        for partial in _made(name, _source(environment, name)).imported:
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
def digest(environment: jinja2.Environment, template: str) -> str:
    """Of the texts of the template and of all partials it imports: 16 hex digits."""
    content = hashlib.sha256()
    for name in sources(environment, template):
        text = _source(environment, name).encode()
        content.update(f"{name} {len(text)}\n".encode() + text)
    return content.hexdigest()[:16]


class _Loader(jinja2.BaseLoader):
    """Finds templates in folders, the first of which goes first."""

    def __init__(self, roots: tuple[Traversable, ...]) -> None:
        self._roots = roots

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, None, None]:
        """The text of a template."""
        for root in self._roots:
            place = root.joinpath(*template.split("/"))
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
        read: the names that it reads and does not define.
        imported: the partials that it imports; None for one without fixed name.
    """

    code: CodeType
    read: frozenset[str]
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
        return _Made(code, frozenset(generator.read), imported)


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
        raise TemplateError(template, "is no template") from error
