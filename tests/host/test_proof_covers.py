"""What `gen prove FAMILY` proves beside its catalogue, and that it has more than one block to run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product
from math import prod
from typing import Any

import pytest

from gen.families import FAMILIES
from gen.families.base import Family, Limits, Variant
from gen.families.names import variant
from gen.families.stencil import Stencil
from gen.families.stencil.spec import BOUNDARIES, DTYPES
from gen.families.transpose import Transpose
from gen.proof.cases import cases_of, edge_cases
from gen.proof.host import HostRunner
from gen.proof.prover import prove, unsupported_extents
from gen.tune.select import of_family

TRANSPOSES, STENCILS = (
    [variant(family, spec, name, config) for name, spec, config in family.proof_cover()]
    for family in (Transpose(), Stencil())
)
GROUP = 20  # as many as are built in one translation unit


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
        proven = {made.name for made in of_family(family, True, Limits.of("sm_90"))}
        assert proven.issuperset(made.name for made in cover)


def problems(made: Variant) -> Iterator[dict[str, int]]:
    """The sizes of the cases that a variant takes, and of the devices that they are on."""
    for case in chain(edge_cases(made), cases_of(made.family, made.spec)):
        limits = replace(Limits.of("sm_90"), multiprocessors=case.multiprocessors)
        if unsupported_extents(made, case, limits) is None:
            yield {**case.extents, "multiprocessors": case.multiprocessors}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_has_several_blocks_of_large_problems_has_them_in_a_case(family: Family[Any]) -> None:
    have_several: dict[str, bool] = {}
    for made in of_family(family, True, Limits.of("sm_90")):
        sizes = list(problems(made))
        # A whole array has one result, however large it is.
        by_name = {name: {one.get(name, 0) for one in sizes} for name in sizes[0]}
        large = {name: 10**6 if len(values) > 1 else min(values) for name, values in by_name.items()}
        for launch in made.plan.launches:
            if all(extent.fixed() == 1 for extent in launch.grid):
                continue
            several = any(prod(extent.at(one) for extent in launch.grid) > 1 for one in sizes)
            assert several or prod(extent.at(large) for extent in launch.grid) <= 1, made.name + launch.entry
            have_several[made.algorithm.name] = several or have_several.get(made.algorithm.name, False)
    assert all(have_several.values()), have_several


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(TRANSPOSES[::11], id="some transposes"),
        pytest.param(TRANSPOSES, id="transposes", marks=pytest.mark.exhaustive),
        pytest.param(STENCILS, id="stencils", marks=pytest.mark.exhaustive),
    ],
)
def test_a_cover_equals_numpy(host_runner: HostRunner, made: list[Variant]) -> None:
    for start in range(0, len(made), GROUP):
        for proof in prove(host_runner, made[start : start + GROUP]):
            assert proof.failure is None, str(proof.failure)
            assert proof.cases > 0, proof.untried
