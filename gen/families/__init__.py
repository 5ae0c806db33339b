"""The families of kernels: what can be computed, and how."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from inspect import isabstract
from typing import Any

from gen.errors import UnknownNameError
from gen.families.base import Family
from gen.families.reduction import Reduction
from gen.families.stencil import Stencil
from gen.families.transpose import Transpose

FAMILIES: tuple[Family[Any], ...] = (
    Reduction(),
    Transpose(),
    Stencil(),
)

ENTRY_POINTS = "gen.families"


def families(*extra: str) -> tuple[Family[Any], ...]:
    """The built-in families, those that installed packages announce, and `extra` ones given as `module:NAME`."""
    announced = [entry.value for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name)]
    return FAMILIES + tuple(_outside(place) for place in (*announced, *extra))


def _outside(place: str) -> Family[Any]:
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UnknownNameError("The family", "must be MODULE:NAME that can be imported", repr(place)) from error
    if isinstance(found, type) and issubclass(found, Family) and not isabstract(found):
        found = found()
    if not isinstance(found, Family):
        raise UnknownNameError("The family", "must be a class derived from gen.families.base.Family", repr(place))
    return found
