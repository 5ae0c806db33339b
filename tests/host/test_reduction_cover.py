"""What `gen prove reduction` proves beside sums: every operator with every dtype, on every algorithm."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from gen.dtypes import F32, F64
from gen.families.base import Variant
from gen.families.names import find_variant, variant
from gen.proof.failures import WRONG
from gen.proof.host import HostRunner
from gen.proof.prover import prove
from gen.tune.targets import of_family
from tests.host.reductions import FAMILY, H100, NAMES, NUMBERS
from tests.host.test_mutants import changed
from tests.mutants.change import Mutant
from tests.part_of_cases import few, groups

COVER = [variant(FAMILY, spec, name, config) for name, spec, config in FAMILY.proof_cover()]
ALGORITHMS = {made.algorithm.name for made in COVER}
LARGEST = {F32: "3.402823466e38f", F64: "1.7976931348623157e308"}


def operator(made: Variant) -> str:
    """The operator, or the name of several."""
    return made.spec.label.split("_")[0]


def test_features_of_specs_meet_each_other_and_every_algorithm() -> None:
    labels = {name.replace("_", "") for name in NAMES}
    dtypes = {dtype.name for dtype in NUMBERS}
    seen = {(operator(made), made.spec.operands[0].dtype.name, made.algorithm.name) for made in COVER}
    assert {pair[:2] for pair in seen} == set(product(labels, dtypes))
    assert {pair[::2] for pair in seen} == set(product(labels, ALGORITHMS))
    assert {pair[1:] for pair in seen} == set(product(dtypes, ALGORITHMS))
    keeps = {(made.algorithm.name, made.spec.to_json()["keepdims"]) for made in COVER}
    assert keeps == set(product(ALGORITHMS, (False, True)))
    assert {made.spec.to_json()["ddof"] for made in COVER if operator(made) == "var"} == {0, 1}
    axes = [{str(made.spec.to_json()["axis"]) for made in COVER if made.algorithm.name == name} for name in ALGORITHMS]
    assert all(len(of_algorithm) > 1 for of_algorithm in axes)
    assert {name for name in FAMILY.algorithms if name not in ("interleaved", "shfl", "tree", "nested")} == ALGORITHMS


def test_gen_prove_reduction_proves_them_all() -> None:
    proven = {made.name for made in of_family(FAMILY, True, H100)}
    assert proven.issuperset(made.name for made in COVER)


@pytest.mark.parametrize("made", list(groups("cover", COVER, in_make_test=True)))
def test_every_operator_of_every_dtype_equals_numpy(made: list[Variant], host_runner: HostRunner) -> None:
    for proof in prove(host_runner, made, few):
        assert proof.failure is None, str(proof.failure)
        assert proof.cases > 0, proof.variant.name


@pytest.mark.parametrize(("op", "dtype"), list(product(("min", "max"), LARGEST)))
def test_an_identity_that_is_finite_is_found(op: str, dtype: object, host_runner: HostRunner, tmp_path: Path) -> None:
    (made,) = [one for one in COVER if operator(one) == op and one.spec.operands[0].dtype == dtype]
    assert find_variant([FAMILY], made.name, {}) == made
    finite = f"  return {'-' if op == 'max' else ''}{LARGEST[dtype]};\n"  # type: ignore[index]
    change = Mutant(f"{made.name} finite", made.name, "reduction/_state.cu.jinja", "", finite, WRONG, at="identity")
    (proof,) = prove(host_runner, [changed(change, tmp_path)])
    assert proof.failure is not None
    assert proof.failure.kind == WRONG
