"""Every legal variant of every catalogue equals NumPy on random problems, on a machine without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from gen.emit.generate import all_of_catalogue
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.proof.cases import Case
from gen.proof.host import HostRunner
from gen.proof.prover import check, load, uncovered
from tests.strategies import SM_COUNTS, cases

VARIANTS = tuple(all_of_catalogue(FAMILIES))
GROUP = 20  # as many as are built in one translation unit
# A part of the profile's: each example runs every variant of a group.
EXAMPLES = max(settings().max_examples // 16, 1)


def groups() -> list[tuple[Variant, ...]]:
    """Variants of one spec and algorithm, at most GROUP together."""
    found: list[tuple[Variant, ...]] = []
    for key in dict.fromkeys((variant.family, variant.spec, variant.algorithm) for variant in VARIANTS):
        same = [v for v in VARIANTS if (v.family, v.spec, v.algorithm) == key and v.algorithm.not_on_host is None]
        found += [tuple(same[place : place + GROUP]) for place in range(0, len(same), GROUP)]
    return found


@pytest.mark.parametrize("group", groups(), ids=lambda group: f"{group[0].name}+{len(group) - 1}")
def test_every_legal_variant_equals_numpy(group: tuple[Variant, ...], host_runner: HostRunner) -> None:
    devices = {count: replace(host_runner.limits, sm_count=count) for count in SM_COUNTS}
    kernels = {count: load(host_runner, group, limits) for count, limits in devices.items()}
    first = group[0]

    @settings(max_examples=EXAMPLES)
    @given(cases(first.family, first.spec))
    def equals_numpy(case: Case) -> None:
        for variant in group:
            if uncovered(variant, case, devices[case.sm_count]) is None:
                failure = check(kernels[case.sm_count][variant], devices[case.sm_count], case)
                assert failure is None, str(failure)

    equals_numpy()
