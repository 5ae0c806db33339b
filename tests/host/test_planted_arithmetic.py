"""Arithmetic that is wrong by a sign or by a rounding fails in every algorithm that adds, on the cases of its proof.

Each text holds all faults, and an environment variable chooses one while it runs: so each algorithm is built once, and
without a fault it is proven.
"""

from __future__ import annotations

import re
from itertools import islice
from math import frexp
from pathlib import Path

import pytest

from gen.dtypes import F32
from gen.emit.render import MARK, render
from gen.families.base import Variant
from gen.families.names import search_space, variant
from gen.families.stencil import Stencil
from gen.proof.cases import Content, cases_of, edge_cases
from gen.proof.failures import WRONG
from gen.proof.host import HostRunner
from gen.proof.prover import prove
from tests.host.reductions import FAMILY, H100

# `planted` names no variable of a device: the environment is the process's own.
CHOSEN = """
extern "C" char* getenv(const char*) noexcept;
__device__ inline bool planted(const char* fault) { return getenv(fault) != nullptr; }
"""
TERM = """
__device__ inline float term(float weight, float near, float sum) {
  if (planted("PLANTED_APART")) return weight * near + sum;
  if (planted("PLANTED_WEIGHT") && weight == kPlanted) return fmaf(-weight, near, sum);
  if (planted("PLANTED_OPERAND") && near > 2.0f) return fmaf(weight, -near, sum);
  return fmaf(weight, near, sum);
}
"""
SUM = """
__device__ inline float sum_of(float a, float b) {
  return planted("PLANTED_OPERAND") && b > 1.0f && b < 1.25f ? a - b : a + b;
}
"""
BACKWARDS = (
    r"for (int \1 = planted("
    r'"PLANTED_ORDER") ? \2 - 1 : 0; 0 <= \1 && \1 < \2; \1 += planted("PLANTED_ORDER") ? -1 : 1) {'
)
FEW = 8  # cases on which a text without a fault is proven


def with_faults(made: Variant) -> str:
    """The text of a stencil or of a sum of f32 that has all faults, of which none is chosen."""
    head, mark, body = render(made).partition(MARK)
    if made.family.name == "stencil":
        weight = made.spec.taps[0][1]  # type: ignore[attr-defined]
        body, terms = re.subn(r"\bfmaf\(", "term(", body)
        body, loops = re.subn(r"for \(int (\w+) = 0; \1 < (kWide|kColumns|kTaps); \+\+\1\) \{", BACKWARDS, body)
        assert min(terms, loops) > 0, made.name
        return f"{head}{mark}\n{CHOSEN}constexpr float kPlanted = {weight!r}f;{TERM}{body.lstrip('/')}"
    add = "{ return a + b; }"
    if add in body:
        body, changes = body.replace(add, "{ return sum_of(a, b); }"), body.count(add)
    else:  # the literature's
        body, changes = re.subn(r"\b(sum|value|data\[\w+\]) \+= ([^;]+);", r"\1 = sum_of(\1, \2);", body)
        body = body.replace("data[i] = mine + other;", "data[i] = sum_of(mine, other);")
    assert changes > 0, made.name
    return f"{head}{mark}\n{CHOSEN}{SUM}{body}"


def sums() -> list[Variant]:
    """A sum of f32 by every algorithm, of an array for which it is made."""
    found = []
    for name, algorithm in FAMILY.algorithms.items():
        if algorithm.not_on_host is None:
            made = FAMILY.extra_proof_specs.get(name, FAMILY.catalogue[0])
            found.append(variant(FAMILY, made, algorithm, search_space(algorithm, made)[0]))
    return found


STENCILS = [
    variant(Stencil(), made, name, config) for name, made, config in Stencil().proof_cover() if made.dtype == F32
]
SUMS = sums()
FAULTS = {"stencil": ("APART", "ORDER", "WEIGHT", "OPERAND"), "reduction": ("OPERAND",)}
TOGETHER = (
    pytest.param([*STENCILS[3::5], *SUMS[::5]], id="some"),
    pytest.param([*STENCILS, *SUMS], id="all", marks=pytest.mark.exhaustive),
)


@pytest.fixture(scope="module")
def faulty(cache: Path) -> HostRunner:
    """The CPU run of texts with faults."""
    return HostRunner(H100, cache=cache, text=with_faults)


def test_every_algorithm_has_faults_and_few_weights_are_powers_of_two() -> None:
    assert {made.algorithm.name for made in STENCILS} == set(Stencil.algorithms)
    for made in STENCILS:
        weights = [weight for _, weight in made.spec.taps]  # type: ignore[attr-defined]
        assert sum(frexp(weight)[0] == 0.5 for weight in weights) < len(weights) / 2, made.name


@pytest.mark.parametrize("variants", TOGETHER)
def test_a_wrong_sign_rounding_or_order_of_terms_is_found(
    variants: list[Variant], faulty: HostRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty.load(variants)
    for made, fault in [(one, fault) for one in variants for fault in FAULTS[one.family.name]]:
        # Not on whole numbers: their sums are exact, and what hides behind an error bound shows there.
        every = (*cases_of(made.family, made.spec), *edge_cases(made))
        with monkeypatch.context() as chosen:
            chosen.setenv(f"PLANTED_{fault}", "1")
            (proof,) = prove(faulty, [made], [case for case in every if case.content is Content.RANDOM])
        assert proof.failure is not None, f"{fault} in {made.name}: {proof.cases} cases are right"
        assert proof.failure.kind == WRONG, str(proof.failure)


@pytest.mark.parametrize("variants", TOGETHER)
def test_without_a_fault_the_same_texts_are_proven(variants: list[Variant], faulty: HostRunner) -> None:
    for proof in prove(faulty, variants, lambda made: tuple(islice(edge_cases(made), FEW))):
        assert proof.failure is None, str(proof.failure)
        assert proof.cases > 0, proof.untried
