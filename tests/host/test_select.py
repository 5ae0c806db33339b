"""What a command that is given no name runs: every algorithm, and every pair of its parameters' values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from gen.families import FAMILIES
from gen.families.base import Family, Limits, Variant
from gen.families.names import find_spec, find_variant, search_space
from gen.proof.cases import cases_of, edge_cases
from gen.proof.prover import uncovered
from gen.tune.select import select

LIMITS = Limits.of("sm_90")
LEAST = 4  # cases that one of an algorithm's variants takes: what an algorithm is proven on where nothing is named

each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def covered(family: Family[Any]) -> Mapping[str, tuple[Variant, ...]]:
    """The variants of a family that `gen prove --all-algorithms` runs, by algorithm."""
    found = select(
        [family], None, lambda name: find_variant(FAMILIES, name, {}), lambda name: find_spec(FAMILIES, name, {}),
        cover=True, limits=LIMITS,
    )  # fmt: skip
    return {name: tuple(made for made in found if made.algorithm.name == name) for name in family.algorithms}


@each_family
def test_every_algorithm_is_proven_on_problems_that_it_takes(family: Family[Any]) -> None:
    for name, variants in covered(family).items():
        taken = sum(
            any(
                uncovered(made, case, replace(LIMITS, multiprocessors=case.multiprocessors)) is None
                for made in variants
                if made.spec == spec
            )
            for spec in {made.spec for made in variants}
            for case in cases_of(family, spec)
        )
        assert taken >= LEAST, name


@each_family
def test_every_variant_takes_its_edge_cases(family: Family[Any]) -> None:
    for made in (made for variants in covered(family).values() for made in variants):
        for case in edge_cases(made):
            assert uncovered(made, case, replace(LIMITS, multiprocessors=case.multiprocessors)) is None, (
                f"{made.name}: {case}"
            )
            measured = family.extents(made.spec, family.layouts(made.spec, case.extents))
            assert {**measured, **{name: case.extents[name] for name in family.counts(made.spec)}} == case.extents


@each_family
def test_every_pair_of_values_that_may_meet_meets(family: Family[Any]) -> None:
    for name, variants in covered(family).items():
        for spec in {made.spec for made in variants}:
            if spec not in (*family.catalogue, family.samples.get(name)):
                continue  # of a kernel of the literature
            legal = search_space(family.algorithms[name], spec, LIMITS)
            fields = [parameter.field for parameter in family.algorithms[name].config.parameters()]
            chosen = [made.config for made in variants if made.spec == spec]
            for first, second in combinations(fields, 2):
                pairs = {(getattr(config, first), getattr(config, second)) for config in legal}
                assert pairs == {(getattr(config, first), getattr(config, second)) for config in chosen}, (name, spec)
