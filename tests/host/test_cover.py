"""A pairwise cover holds every pair of values that can meet."""

from __future__ import annotations

from itertools import combinations
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.families import FAMILIES
from gen.families.base import Algorithm, Spec
from gen.families.config import Config, pairwise
from gen.families.names import search_space
from tests.host.test_config import Toy

SPACES = [
    pytest.param(algorithm, spec, id=f"{family.name}-{name}")
    for family in FAMILIES
    for spec in family.catalogue
    for name, algorithm in family.algorithms.items()
]


def pairs_of(configs: tuple[Config, ...]) -> set[tuple[object, ...]]:
    """Every two tokens that some config holds, counted here in another way than `pairwise` does."""
    found: set[tuple[object, ...]] = set()
    for config in configs:
        values = [(name, value) for name, value in vars(config).items() if not name.startswith("_")]
        found.update(combinations(values, 2))
    return found


@pytest.mark.parametrize(("algorithm", "spec"), SPACES)
def test_every_pair_of_the_search_space_is_in_the_cover(algorithm: Algorithm[Any, Any], spec: Spec) -> None:
    searched = search_space(algorithm, spec)
    cover = pairwise(searched)
    assert set(cover) <= set(searched)
    assert len(set(cover)) == len(cover)
    assert pairs_of(cover) == pairs_of(searched)


@pytest.mark.parametrize(("algorithm", "spec"), SPACES)
def test_a_cover_is_small_and_in_the_order_of_the_space(algorithm: Algorithm[Any, Any], spec: Spec) -> None:
    searched = search_space(algorithm, spec)
    cover = pairwise(searched)
    assert list(cover) == sorted(cover, key=searched.index)
    # Two parameters alone need the product of their values; a greedy cover stays below twice that. Where a config
    # may hold one of several things alone, each of them takes configs of its own.
    counts = sorted(len(parameter.values) for parameter in algorithm.config.parameters())
    kind = algorithm.config
    free = kind.illegal is Config.illegal and kind.unsearched is Config.unsearched
    assert len(cover) <= (2 if free else 4) * prod(counts[-2:])


@given(st.sets(st.sampled_from(tuple(Toy.space())), min_size=1))
def test_any_set_of_configs_is_covered(chosen: set[Toy]) -> None:
    configs = tuple(sorted(chosen, key=lambda config: config.tag))
    cover = pairwise(configs)
    assert set(cover) <= chosen
    assert pairs_of(cover) == pairs_of(configs)


def test_no_configs_have_an_empty_cover() -> None:
    assert pairwise(()) == ()
