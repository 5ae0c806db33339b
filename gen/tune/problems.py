"""Which problems a tuning run means: specs, each at the sizes that stand for its shape classes or at a given shape."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gen.errors import ShapeError, UnknownNameError
from gen.families.base import WIDEST, Extents, Family, Spec
from gen.families.extents import beyond_memory, check_runtime_parameters, extents_of, known_runtime_parameters
from gen.families.names import Known, Takes, find_spec, names_variant, spec_of_variant, unknown
from gen.families.regions import ALIGNMENT, WHOLE, Bound, Region, sizes_of
from gen.store.trials import Problem

_TIME = re.compile(r"([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)([smh]?)")
_POWER = re.compile(r"([0-9]{1,20})\^([0-9]{1,2})")


def problems(
    families: Sequence[Family[Any]],
    target: str | None,
    known: Known,
    shapes: Sequence[str] = (),
    *,
    runtime_parameters: Mapping[str, int] | None = None,
    classes: Sequence[str] = (),
    alignment: int = WIDEST,
) -> tuple[Problem, ...]:
    """The problems of a family, of a spec, or of every catalogue.

    Args:
        families: all families.
        target: a family, or a spec by name; None for every catalogue.
        known: JSON of specs by name.
        shapes: of the first input, such as `8192x8192` or `2^28`: what wins is for that shape alone. None: one that
            stands for each shape class.
        runtime_parameters: of the call, `{"steps": 100}`; only with `shapes`, of specs that have them.
        classes: only these shape classes, in words.
        alignment: bytes that divide the address of every array; where less than 16, what wins is for no more than that,
            and classes that are for more have no problem.

    Raises:
        UnknownNameError: nothing has this name, or no spec has this shape class or count.
        ShapeError: a shape cannot be read, or is none of the spec's; or its elements are never aligned so.
    """
    found: list[Problem] = []
    specs = specs_of(families, target, known)
    _check_classes(classes, specs)
    check_runtime_parameters(runtime_parameters or {}, specs)
    for family, spec in specs:
        _check_alignment(spec, alignment)
        if shapes:
            found += [problem_at(family, spec, shape, runtime_parameters or {}, alignment) for shape in shapes]
            continue
        region = WHOLE if alignment == WIDEST else Region((Bound(ALIGNMENT, 0, alignment),))
        for shape_class in family.shape_classes(spec):
            one = Problem(family, spec, family.representative(spec, shape_class), alignment, region)
            if one.shape_class == shape_class and (not classes or shape_class in classes):
                found.append(one)
    if not found:  # a class of aligned rows
        raise ShapeError("--alignment", f"must be {WIDEST} for " + "; ".join(classes), alignment)
    return tuple(found)


def read_shape(text: str) -> tuple[int, ...]:
    """The shape that a text spells: `8192x8192`, `2^28`, `1000`. Raises ShapeError for any other text."""
    shape = tuple(_number(part) for part in text.lower().split("x"))
    if None in shape:
        raise ShapeError("--shape", "must be numbers joined by x, such as 8192x8192 or 2^28", repr(text))
    return tuple(extent for extent in shape if extent is not None)


def read_seconds(text: str) -> float | None:
    """The seconds that a text spells: `60s`, `5m`, `1h`, `12.5`; None if it spells no positive time."""
    found = _TIME.fullmatch(text.strip().lower())
    seconds = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    return seconds if seconds > 0 else None


def read_runtime_parameters(texts: Sequence[str]) -> dict[str, int]:
    """The runtime parameters that texts spell: `steps=100`. Raises ShapeError for another text or a repeated name."""
    runtime_parameters: dict[str, int] = {}
    for text in texts:
        name, _, value = text.partition("=")
        number = _number(value)
        if not name.isidentifier() or number is None or not 1 <= number < 2**31:
            raise ShapeError("--param", "must be NAME=N, N from 1 and below 2^31, such as steps=100", repr(text))
        if name in runtime_parameters:
            raise ShapeError("--param", f"must say once how many {name} there are", repr(text))
        runtime_parameters[name] = number
    return runtime_parameters


def _number(text: str) -> int | None:
    """The number that a text spells: `8192`, `2^28`; None if it spells none."""
    power = _POWER.fullmatch(text)
    if power:
        raised: int = int(power.group(1)) ** int(power.group(2))
        return raised
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 20 else None


def specs_of(families: Sequence[Family[Any]], target: str | None, known: Known) -> list[tuple[Family[Any], Spec]]:
    """The specs of a family, of every catalogue, or the one of a name. Raises UnknownNameError for a variant's name."""
    chosen = [family for family in families if target in (None, family.name)]
    if chosen:
        return [(family, spec) for family in chosen for spec in family.catalogue]
    assert target is not None
    return [find_spec(families, target, known, to_tune(families, target))]


def to_tune(families: Sequence[Family[Any]], name: str) -> Takes:
    """What tuning takes beside specs. Raises UnknownNameError for the name of a variant."""
    if names_variant(families, name):
        rule = "must be a family or a spec: tuning chooses the variant"
        spec_name = spec_of_variant(families, name)
        raise UnknownNameError("The name", rule, repr(name), next_step=f"Give {spec_name}" if spec_name else "")
    return Takes("The name", "must be a family or a spec, FAMILY_LABEL", [family.name for family in families])


def problem_at(
    family: Family[Any], spec: Spec, text: str, runtime_parameters: Mapping[str, int], alignment: int = WIDEST
) -> Problem:
    """The problem of a spec at a shape that a text spells. Raises ShapeError for one that the spec does not take."""
    shape = read_shape(text)
    first = next(operand for operand in spec.operands if operand.role != "number")
    dtype = first.dtype.numpy
    if beyond_memory(shape, dtype.itemsize):
        raise ShapeError("--shape", f"must be of less than 2^63 bytes as {first.dtype.name}", repr(text))
    if 0 in shape:
        raise ShapeError("--shape", "must have no extent of 0: there is nothing to time", repr(text))
    extents = {**extents_at(family, spec, text), **known_runtime_parameters(family, spec, runtime_parameters)}
    return Problem(family, spec, extents, alignment, Region.exactly(sizes_of(family, spec, extents, alignment)))


def extents_at(family: Family[Any], spec: Spec, text: str) -> Extents:
    """The extents that a text means, which spells the shape of the first input. Raises ShapeError for any other."""
    try:
        return extents_of(family, spec, read_shape(text))
    except ShapeError as error:
        if error.subject == "--shape":
            raise
        rule = f"must be a shape that {family.name_of(spec)} takes: {error.subject} {error.rule}"
        raise ShapeError("--shape", rule, text) from error


def _check_alignment(spec: Spec, alignment: int) -> None:
    largest = max(operand.dtype.size for operand in spec.operands if operand.role != "number")
    least = min(largest & -largest, WIDEST)
    if alignment not in (1, 2, 4, 8, WIDEST) or alignment < least:
        rule = f"must be a power of two from {least}, which divides the elements, to {WIDEST}"
        raise ShapeError("--alignment", rule, alignment)


def _check_classes(classes: Sequence[str], specs: Sequence[tuple[Family[Any], Spec]]) -> None:
    """Raises UnknownNameError for a class that none of the specs has."""
    known = list(dict.fromkeys(name for family, spec in specs for name in family.shape_classes(spec)))
    for name in classes:
        if name not in known:
            raise unknown("--class", name, known, "must be one of " + "; ".join(known))
