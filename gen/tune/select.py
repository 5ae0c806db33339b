"""Which variants a command means when it is given a family, a spec, a name, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from gen.families.base import Algorithm, Family, Limits, Spec, Variant
from gen.families.config import pairwise
from gen.families.names import (
    base_variants,
    heuristic_variants,
    is_searched,
    named_variant,
    names_variant,
    search_space,
    variant,
)

Find = Callable[[str], Variant]
FAST_IN_SAMPLE = 2  # variants that a family expects to be fast
FEWEST_IN_SAMPLE, MOST_IN_SAMPLE = 3, 6

FindSpec = Callable[[str], tuple[Family[Any], Spec]]


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
