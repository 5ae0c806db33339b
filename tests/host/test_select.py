"""What a command that is given no name runs: every algorithm, and every pair of its parameters' values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import gen
from gen.dtypes import B8, B16, B32, B64, B128
from gen.errors import SpecError
from gen.families import FAMILIES
from gen.families.base import Family, Limits, Spec, Variant
from gen.families.config import Config
from gen.families.names import find_spec, find_variant, illegal, named_variant, search_space, variant
from gen.families.reduction import ReductionSpec
from gen.families.transpose import MoveSpec, TransposeSpec
from gen.proof.cases import Case, cases_of, edge_cases, has_elements
from gen.proof.prover import unsupported_extents
from gen.tune.targets import select
from tests.host.reductions import NAMES, NUMBERS
from tests.strategies import stencils, transposes_that_change

LIMITS = Limits.of("sm_90")
LEAST = 4  # sizes that every variant takes

each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def covered(family: Family[Any]) -> Mapping[str, tuple[Variant, ...]]:
    """The variants of a family that `gen prove --all` runs, by algorithm."""
    found = select(
        [family], None, lambda name: find_variant(FAMILIES, name, {}), lambda name: find_spec(FAMILIES, name, {}),
        cover=True, limits=LIMITS,
    )  # fmt: skip
    return {name: tuple(made for made in found if made.algorithm.name == name) for name in family.algorithms}


@st.composite
def permutations(draw: st.DrawFn) -> TransposeSpec:
    """Orders of up to six axes, of any elements, in place where that can be."""
    axes = tuple(draw(st.permutations(range(draw(st.integers(1, 6))))))
    dtype = draw(st.sampled_from((B32, B8, B16, B64, B128)))
    last = len(axes) - 1
    exchanged = (*range(last - 1), last, last - 1)
    return (
        TransposeSpec(exchanged, dtype, in_place=True) if last and draw(st.booleans()) else TransposeSpec(axes, dtype)
    )


@st.composite
def reductions(draw: st.DrawFn) -> ReductionSpec:
    """Any statistic of any elements along any axes."""
    axes = st.lists(st.integers(-3, 3), max_size=3, unique=True).map(tuple)
    try:
        return gen.reduction(
            draw(st.sampled_from(NAMES)), draw(st.sampled_from(NUMBERS)), axis=draw(st.none() | axes),
            keepdims=draw(st.booleans()),
        )  # fmt: skip
    except SpecError:  # the place of the least along two axes
        assume(False)
        raise


def specs(family: Family[Any]) -> st.SearchStrategy[Spec]:
    """Specs of a family: of its catalogue, of its samples, of the literature, and any others."""
    known = (
        *family.catalogue,
        *family.extra_proof_specs.values(),
        *(named_variant(family, one).spec for one in family.named),
    )
    moves = st.builds(MoveSpec, st.just("turn")) | st.builds(MoveSpec, st.sampled_from(("fine", "coarse")), st.just(32))
    drawn: dict[str, st.SearchStrategy[Any]] = {
        "transpose": permutations() | transposes_that_change() | moves,
        "reduction": reductions(),
        "stencil": stencils(),
    }
    return st.sampled_from(known) | drawn.get(family.name, st.nothing())


@each_family
@settings(max_examples=max(settings().max_examples // 2, 1))
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_every_legal_variant_is_proven_on_problems_that_it_takes(
    family: Family[Any], data: st.DataObject, seed: int
) -> None:
    """Whole ones, of arrays that have elements; and all that its algorithm names for it are such."""
    random = Random(seed)  # Hypothesis would take longer to choose than all else takes
    spec = data.draw(specs(family), label="spec")
    shared = {str(case.extents): case for case in cases_of(family, spec)}
    for algorithm in family.algorithms.values():
        configs = every_config(family, algorithm.name)
        tried = random.sample(configs, min(len(configs), 200))  # of some spaces a few are legal for a spec
        legal = (config for config in tried if illegal(algorithm, spec, config) is None)
        config = next((one for one in legal if algorithm.infeasible(spec, one, LIMITS) is None), None)
        if config is not None and algorithm.not_on_host is None:
            made = variant(family, spec, algorithm, config)
            own = {str(case.extents): case for case in edge_cases(made)}
            taken = {sizes for sizes, case in (shared | own).items() if takes(made, case)}
            assert own.keys() <= taken, made.name
            assert len(taken) >= LEAST, made.name


@cache
def every_config(family: Family[Any], algorithm: str) -> tuple[Config, ...]:
    return tuple(family.algorithms[algorithm].config.space())


def takes(made: Variant, case: Case) -> bool:
    """Whether a variant is run on all of a problem that has elements."""
    limits = replace(LIMITS, multiprocessors=case.multiprocessors)
    whole = not case.sampled and has_elements(made.family, made.spec, case.extents)
    return whole and unsupported_extents(made, case, limits) is None


@each_family
def test_every_variant_takes_its_edge_cases_and_several_sizes(family: Family[Any]) -> None:
    for made in (made for variants in covered(family).values() for made in variants):
        if made.algorithm.not_on_host is None:
            edges = tuple(edge_cases(made))
            assert all(takes(made, case) for case in edges), made.name
            taken: set[str] = set()
            for case in (*edges, *shared(family, made.spec)):
                if len(taken) < LEAST and takes(made, case):
                    taken.add(str(case.extents))
            assert len(taken) == LEAST, made.name


@cache
def shared(family: Family[Any], spec: Spec) -> tuple[Case, ...]:
    return tuple(cases_of(family, spec))[::2]  # each size comes twice


@each_family
def test_every_pair_of_values_that_may_meet_meets(family: Family[Any]) -> None:
    for name, variants in covered(family).items():
        for spec in {made.spec for made in variants}:
            if spec not in (*family.catalogue, family.extra_proof_specs.get(name)):
                continue  # of a kernel of the literature
            legal = search_space(family.algorithms[name], spec, LIMITS)
            fields = [parameter.field for parameter in family.algorithms[name].config.parameters()]
            chosen = [made.config for made in variants if made.spec == spec]
            for first, second in combinations(fields, 2):
                pairs = {(getattr(config, first), getattr(config, second)) for config in legal}
                assert pairs == {(getattr(config, first), getattr(config, second)) for config in chosen}, (name, spec)
