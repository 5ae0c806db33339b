"""The families of kernels: what can be computed, and how."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources.abc import Traversable
from inspect import isabstract
from typing import Any

from gen.errors import UnknownNameError
from gen.families.base import Family
from gen.families.merge import Merges
from gen.families.probe import Probes
from gen.families.reduction import Reduction
from gen.families.stencil import Stencil
from gen.families.system import System
from gen.families.transpose import Transpose

FAMILIES: tuple[Family[Any], ...] = (
    Reduction(),
    Transpose(),
    Stencil(),
    Probes(),
    System(),
    Merges(),
)

ENTRY_POINTS = "gen.families"


def families(*extra: str) -> tuple[Family[Any], ...]:
    """The built-in families, those that installed packages announce, and `extra` ones given as `module:NAME`.

    One that is derived from another of the same name, and has more algorithms for instance, takes its place.
    """
    announced = [entry.value for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name)]
    found = list(FAMILIES)
    for place in dict.fromkeys((*announced, *extra)):
        family = _outside(place)
        clash = next((known for known in found if known.name == family.name), None)
        if clash is None:
            found.append(family)
        elif type(family) is type(clash):
            continue
        elif isinstance(family, type(clash)):
            found[found.index(clash)] = family
        else:
            raise UnknownNameError("The family", f"must not be called {family.name}: there is one already", repr(place))
    return tuple(found)


def _outside(place: str) -> Family[Any]:
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:
        got = f"{place!r}: {error}"
        raise UnknownNameError("The family", "must be MODULE:NAME that can be imported", got) from error
    if isinstance(found, type) and issubclass(found, Family):
        if isabstract(found):
            missing = ", ".join(sorted(found.__abstractmethods__))
            raise UnknownNameError("The family", f"must be a class that also defines {missing}", repr(place))
        found = found()
    if not isinstance(found, Family):
        raise UnknownNameError("The family", "must be a class derived from gen.families.base.Family", repr(place))
    templates: object = found.templates
    if not isinstance(templates, Traversable) or not found.catalogue:
        rule = "must have templates, a folder such as a pathlib.Path, and a catalogue of at least one spec"
        raise UnknownNameError("The family", rule, repr(place))
    return found
