"""What `gen prove FAMILY` proves beside its catalogue, and that it has more than one block to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain, product
from math import prod
from typing import Any

import pytest

from gen.families import FAMILIES
from gen.families.base import Family, Launch, Limits, Spec, Variant
from gen.families.names import variant
from gen.families.stencil import Stencil
from gen.families.stencil.spec import BOUNDARIES, DTYPES
from gen.families.transpose import Transpose
from gen.proof.cases import Case, cases_of, edge_cases
from gen.proof.host import HostRunner
from gen.proof.prover import prove, unsupported_extents
from gen.tune.targets import of_family
from tests.part_of_cases import DEEP, few, groups

TRANSPOSES, STENCILS = (
    [variant(family, spec, name, config) for name, spec, config in family.proof_cover()]
    for family in (Transpose(), Stencil())
)
LIMITS = Limits.of("sm_90")


def test_every_algorithm_that_changes_elements_meets_every_change() -> None:
    changes: dict[str, set[object]] = {}
    for made in TRANSPOSES:
        if made.spec.values is not None:  # type: ignore[attr-defined]
            changes.setdefault(made.algorithm.name, set()).add(made.spec.values)  # type: ignore[attr-defined]
    assert {name: len(found) for name, found in changes.items()} == {
        "naive": 10, "tiled": 10, "window_tile": 10, "row_copy": 10, "vector_tile": 4, "swap_tile": 3,
    }  # fmt: skip


def test_every_algorithm_of_transposes_meets_stacks_of_matrices() -> None:
    stacks = {made.algorithm.name for made in TRANSPOSES if made.spec.axes == (0, 2, 1)}  # type: ignore[attr-defined]
    assert stacks == {*Transpose.algorithms}


def test_cells_boundaries_and_algorithms_of_stencils_meet() -> None:
    seen = {(one.algorithm.name, one.spec.operands[0].dtype, one.spec.boundaries[-1]) for one in STENCILS}  # type: ignore[attr-defined]
    names = Stencil.algorithms
    assert {one[:2] for one in seen} == set(product(names, DTYPES))
    assert {one[1:] for one in seen} == set(product(DTYPES, BOUNDARIES))
    assert {one[::2] for one in seen} == set(product(names, BOUNDARIES))


def test_gen_prove_proves_them_all() -> None:
    for family, cover in ((Transpose(), TRANSPOSES), (Stencil(), STENCILS)):
        proven = {made.name for made in of_family(family, True, LIMITS)}
        assert proven.issuperset(made.name for made in cover)


@cache
def shared(family: Family[Any], spec: Spec) -> tuple[tuple[Case, ...], Mapping[str, int]]:
    """The cases of all variants of a spec; a large problem: a million of each size that is not the same in all cases.

    A whole array has one result, however large it is.
    """
    cases = tuple(cases_of(family, spec))
    names = {name for case in cases for name in case.extents}
    values = {name: {case.extents[name] for case in cases if name in case.extents} for name in names}
    large = {name: 10**6 if len(found) > 1 else min(found) for name, found in values.items()}
    return cases, {**large, "multiprocessors": LIMITS.multiprocessors}


def has_several_blocks(made: Variant, launch: Launch, cases: Iterable[Case]) -> bool:
    """Whether a launch has more than one block on some case that the variant takes."""
    for case in cases:
        if unsupported_extents(made, case, replace(LIMITS, multiprocessors=case.multiprocessors)) is None:
            sizes = {**case.extents, "multiprocessors": case.multiprocessors}
            if prod(extent.at(sizes) for extent in launch.grid) > 1:
                return True
    return False


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_has_several_blocks_of_large_problems_has_them_in_a_case(family: Family[Any]) -> None:
    have_several: dict[str, bool] = {}
    for made in of_family(family, True, LIMITS):
        cases, large = shared(family, made.spec)
        for launch in made.plan.launches:
            if all(extent.fixed() == 1 for extent in launch.grid):
                continue
            several = has_several_blocks(made, launch, chain(edge_cases(made), cases))
            assert several or prod(extent.at(large) for extent in launch.grid) <= 1, made.name + launch.entry
            have_several[made.algorithm.name] = several or have_several.get(made.algorithm.name, False)
    assert all(have_several.values()), have_several


@pytest.mark.parametrize(
    "made",
    [*groups("transposes", TRANSPOSES, in_make_test=True), *groups("stencils", STENCILS, in_make_test=False)],
)
def test_a_cover_equals_numpy(host_runner: HostRunner, made: list[Variant]) -> None:
    for proof in prove(host_runner, made, None if DEEP else few):
        assert proof.failure is None, str(proof.failure)
        assert proof.cases > 0, proof.untried
