"""Sizes that a call states by name, because no array has them: how many steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gen.errors import ArgumentError, UnknownNameError
from gen.families.base import Family, Spec


def counted(family: Family[Any], spec: Spec, stated: Mapping[str, Any]) -> dict[str, int]:
    """Every count of a spec: what is stated, else what the family says.

    Raises ArgumentError for what is no count of this spec, or no whole number from 0.
    """
    found = dict(family.counts(spec))
    for name, value in stated.items():
        if name not in found:
            raise ArgumentError(name, f"is nothing that {family.name}_{spec.label} counts", repr(value))
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 2**31:
            raise ArgumentError(name, "must be a whole number, not negative and below 2^31", repr(value))
        found[name] = int(value)
    return found


def among(family: Family[Any], spec: Spec, stated: Mapping[str, int]) -> dict[str, int]:
    """Those of the stated counts that this spec has."""
    return {name: value for name, value in stated.items() if name in family.counts(spec)}


def check_counts(stated: Mapping[str, int], specs: Iterable[tuple[Family[Any], Spec]]) -> None:
    """Raises UnknownNameError for a count that none of these specs has."""
    known = dict.fromkeys(name for family, spec in specs for name in family.counts(spec))
    for name in stated:
        if name not in known:
            rule = "must be one of " + ", ".join(known) if known else "must be left out: nothing is counted here"
            raise UnknownNameError("--count", rule, repr(name))
