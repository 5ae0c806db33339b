"""What a command means by its target: the variants of a family, a spec or a name, and the problems that it tunes.

The target is what stands behind `gen tune` or `gen prove`, together with `--shape`, `--param` and `--class`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from gen.errors import ShapeError, UnknownNameError
from gen.families.base import WIDEST, Algorithm, Extents, Family, Limits, Spec, Variant
from gen.families.config import pairwise
from gen.families.extents import beyond_memory, check_runtime_parameters, extents_of, known_runtime_parameters
from gen.families.names import (
    Known,
    Takes,
    base_variants,
    find_spec,
    heuristic_variants,
    is_searched,
    named_variant,
    names_variant,
    search_space,
    spec_of_variant,
    unknown,
    variant,
)
from gen.families.regions import ALIGNMENT, WHOLE, Bound, Region, sizes_of
from gen.store.trials import Problem

FAST_IN_SAMPLE = 2  # variants that a family expects to be fast
FEWEST_IN_SAMPLE, MOST_IN_SAMPLE = 3, 6
Find = Callable[[str], Variant]
FindSpec = Callable[[str], tuple[Family[Any], Spec]]
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


def select(
    families: Sequence[Family[Any]],
    target: str | None,
    find: Find,
    find_spec: FindSpec,
    *,
    cover: bool,
    limits: Limits,
) -> tuple[Variant, ...]:
    """The variants that `target` stands for, those of one spec next to each other.

    Args:
        families: all families.
        target: a family, a spec, a variant; None stands for every catalogue.
        find: finds a variant by name.
        find_spec: finds a spec by name.
        cover: whether a catalogue brings, beside its base and named variants, a pairwise cover of every search space,
            those of the family's samples too. A family or a spec that is named always does.
        limits: covers hold what is feasible on such a device.

    Raises:
        UnknownNameError: nothing has this name.
    """
    if target is not None and names_variant(families, target):
        return (find(target),)
    return of_specs(families, target, find_spec, cover=cover, limits=limits)


def of_specs(
    families: Sequence[Family[Any]], target: str | None, find_spec: FindSpec, *, cover: bool, limits: Limits
) -> tuple[Variant, ...]:
    """The same, of a family, a spec or every catalogue: what is no family is looked for as a spec."""
    if target is None:
        return _distinct(made for family in families for made in of_family(family, cover, limits))
    for family in families:
        if family.name == target:
            return of_family(family, True, limits)
    return of_spec(*find_spec(target), True, limits)


def of_family(family: Family[Any], cover: bool, limits: Limits) -> tuple[Variant, ...]:
    """The base and named variants of a family's catalogue; with `cover`, a cover of every algorithm's space too."""
    found = [made for spec in family.catalogue for made in of_spec(family, spec, cover, limits)]
    if cover:
        for name, spec in family.extra_proof_specs.items():
            found += _cover(family, spec, family.algorithms[name], limits)
        for name, spec, config in family.proof_cover():
            if family.algorithms[name].infeasible(spec, config, limits) is None:
                found.append(variant(family, spec, family.algorithms[name], config))
    # A kernel of the literature may fix fields of its spec, and so be of none that the catalogue holds.
    return _distinct([*found, *(named_variant(family, named) for named in family.named)])


def of_spec(family: Family[Any], spec: Spec, cover: bool, limits: Limits) -> tuple[Variant, ...]:
    """The same for one spec."""
    found = [*base_variants(family, spec)]
    found += [made for made in (named_variant(family, named) for named in family.named) if made.spec == spec]
    if cover:
        for algorithm in family.algorithms.values():
            found += _cover(family, spec, algorithm, limits)
    return _distinct(found)


@lru_cache(maxsize=512)  # it takes up to half a second, and one process selects the same for several ends
def _cover(family: Family[Any], spec: Spec, algorithm: Algorithm[Any, Any], limits: Limits) -> tuple[Variant, ...]:
    """Configs that tuning tries, in which every pair of parameter values that it tries meets."""
    configs = pairwise(search_space(algorithm, spec, limits))
    return tuple(variant(family, spec, algorithm, config) for config in configs)


@dataclass(frozen=True)
class Sample:
    """A few variants of one spec that differ much, for one shape class.

    Attributes:
        variants: what the family expects to be fastest first, then further algorithms at their base config.
    """

    family: Family[Any]
    spec: Spec
    shape_class: str
    variants: tuple[Variant, ...]


def sample(family: Family[Any], limits: Limits) -> Sample | None:
    """Of the first spec of a catalogue, for the shape class of the most work; None of a family with little choice."""
    if not family.catalogue:
        return None
    spec = family.catalogue[0]

    def cells(shape_class: str) -> int:
        return family.work(spec, family.representative(spec, shape_class)).cells

    shape_class = max(family.shape_classes(spec), key=cells)
    extents = family.representative(spec, shape_class)
    fast = islice(heuristic_variants(family, spec, shape_class, limits), FAST_IN_SAMPLE)
    bases = (
        variant(family, spec, algorithm, algorithm.config())
        for algorithm in family.algorithms.values()
        if is_searched(algorithm, spec, algorithm.config())
    )
    found = _distinct(
        made
        for made in chain(fast, base_variants(family, spec), bases)
        if made.algorithm.infeasible(spec, made.config, limits) is None
        and made.algorithm.unsupported_extents(spec, made.config, extents, limits) is None
        and made.algorithm.not_on_host is None
    )
    return Sample(family, spec, shape_class, found[:MOST_IN_SAMPLE]) if len(found) >= FEWEST_IN_SAMPLE else None


def feasible(family: Family[Any], spec: Spec, limits: Limits) -> int:
    """How many variants of a spec tuning tries on such a device."""
    tried = [algorithm for algorithm in family.algorithms.values() if algorithm.excluded_from_tuning is None]
    return sum(len(search_space(algorithm, spec, limits)) for algorithm in tried)


def _distinct(variants: Iterable[Variant]) -> tuple[Variant, ...]:
    return tuple({made.name: made for made in variants}.values())
