"""What `gen prove transpose` and `gen prove stencil` prove beside their catalogues."""

from __future__ import annotations

from itertools import product

import pytest

from gen.families.base import Limits, Variant
from gen.families.names import variant
from gen.families.stencil import Stencil
from gen.families.stencil.spec import BOUNDARIES, DTYPES
from gen.families.transpose import Transpose
from gen.proof.host import HostRunner
from gen.proof.prover import prove
from gen.tune.select import of_family

TRANSPOSES, STENCILS = (
    [variant(family, spec, name, config) for name, spec, config in family.proof_cover()]
    for family in (Transpose(), Stencil())
)
GROUP = 20  # as many as are built in one translation unit


def test_every_algorithm_that_changes_elements_meets_every_change() -> None:
    changes: dict[str, set[object]] = {}
    for made in TRANSPOSES:
        changes.setdefault(made.algorithm.name, set()).add(made.spec.values)  # type: ignore[attr-defined]
    assert {name: len(found) for name, found in changes.items()} == {
        "naive": 10, "tiled": 10, "window_tile": 10, "row_copy": 10, "vector_tile": 4, "swap_tile": 3,
    }  # fmt: skip


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
