"""Variants of every catalogue equal NumPy on random problems, on a machine without a GPU.

Every variant that tuning tries where an algorithm has few, else a pairwise cover of these; and some from all over what
is legal. The profile `deep` takes all that tuning tries, and more of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import given, settings

from gen.families import FAMILIES
from gen.families.base import Algorithm, Family, Spec, Variant
from gen.families.config import pairwise
from gen.families.names import legal_space, search_space, variant
from gen.paths import output_home
from gen.proof.cases import MULTIPROCESSOR_COUNTS, Case
from gen.proof.failures import Kept, cases_for, keep, read
from gen.proof.host import HostRunner
from gen.proof.prover import check, load, unsupported_extents
from tests.strategies import cases, not_simplest

FEW = 16  # variants of one algorithm and spec
BEYOND, DEEP_BEYOND = 5, 100  # the pairs, from all over what is legal
GROUP = 20  # as many as are built in one translation unit
# A part of the profile's: each example runs every variant of a group.
EXAMPLES = max(settings().max_examples // 16, 1)


def proven(family: Family[Any], spec: Spec, algorithm: Algorithm[Any, Any]) -> list[Variant]:
    """The variants of an algorithm that are proven here: most for the first spec of a catalogue."""
    deep, first = settings.get_current_profile_name() == "deep", spec == family.catalogue[0]
    searched, legal = search_space(algorithm, spec), legal_space(algorithm, spec)
    every = deep or (first and len(searched) <= FEW)
    chosen = dict.fromkeys(searched if every else pairwise(searched))
    if legal and (deep or first):
        chosen |= dict.fromkeys(legal[:: -(-len(legal) // (DEEP_BEYOND if deep else BEYOND))])
    return [variant(family, spec, algorithm, config) for config in chosen]


def groups() -> Iterator[ParameterSet]:
    """Variants of one spec and algorithm, at most GROUP together; exhaustive beyond an algorithm's first spec."""
    for family in FAMILIES:
        seen: set[str] = set()
        for spec, algorithm in product(family.catalogue, family.algorithms.values()):
            same = proven(family, spec, algorithm) if algorithm.not_on_host is None else []
            marks = [pytest.mark.exhaustive] if algorithm.name in seen else []
            for start in range(0, len(same), GROUP):
                group = tuple(same[start : start + GROUP])
                seen.add(algorithm.name)
                yield pytest.param(group, id=f"{group[0].name}+{len(group) - 1}", marks=marks)


@pytest.mark.parametrize("group", list(groups()))
def test_variants_equal_numpy(group: tuple[Variant, ...], host_runner: HostRunner) -> None:
    first, home = group[0], output_home()
    kept = cases_for(read(home), first)
    counts = {*MULTIPROCESSOR_COUNTS, *(case.multiprocessors for case in kept)}
    devices = {count: replace(host_runner.limits, multiprocessors=count) for count in counts}
    kernels = {count: load(host_runner, group, limits) for count, limits in devices.items()}
    failures: list[Kept] = []

    def equals_numpy(case: Case) -> None:
        for made in group:
            if unsupported_extents(made, case, devices[case.multiprocessors]) is None:
                failure = check(kernels[case.multiprocessors][made], devices[case.multiprocessors], case)
                if failure is not None:
                    failures.append(Kept.of(made, failure))
                assert failure is None, str(failure)

    for case in kept:
        equals_numpy(case)
    try:
        settings(max_examples=EXAMPLES)(given(not_simplest(cases(first.family, first.spec)))(equals_numpy))()
    finally:
        keep(home, failures[-1:])  # Hypothesis tries the smallest last
