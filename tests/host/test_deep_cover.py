"""Every feature of a spec with every value of a parameter: as many variants as that takes, all of them under `deep`.

A feature is what a spec says of itself: its operator, dtype, axes, what lies outside along an axis, on which side its
weights reach further. `gen prove FAMILY` proves features beside each other and with algorithms; pairs of a feature and
a value of a parameter that no spec has together are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from gen.dtypes import DTYPES
from gen.families import FAMILIES
from gen.families.base import Algorithm, Family, Spec, Variant
from gen.families.config import Config
from gen.families.names import is_searched, variant
from gen.families.stencil import StencilSpec
from gen.families.transpose import MoveSpec, TransposeSpec
from gen.proof.host import HostRunner
from gen.proof.prover import prove
from tests.host.reductions import H100
from tests.part_of_cases import DEEP, GROUP, few
from tests.stencils import ENDS_SPECS, FUSED_SPECS, IMAGE_SPECS, LINE_SPECS, SPACE_SPECS, SPECS

FEW = 2  # variants of an algorithm where they are not all
TRIES = 200  # drawn for a pair before it counts as one that no spec and config have together
ORDERS = ((1, 0), (0, 2, 1), (2, 0, 1), (2, 1, 0), (0, 3, 1, 2), (2, 0, 3, 1))
BITS = tuple(dtype for dtype in DTYPES.values() if dtype.kind == "bits")
Feature = tuple[str, Hashable]


def features(spec: Spec) -> tuple[Feature, ...]:
    """What a spec says of itself, but for its word and its weights."""
    if not isinstance(spec, StencilSpec):
        return tuple((key, str(value)) for key, value in spec.to_json().items())
    sides = [int(np.sign(after - before)) for before, after in zip(spec.before, spec.after, strict=True)]
    return (
        ("axes", len(spec.axes)),
        ("dtype", spec.dtype.name),
        *((f"outside {place}", outside) for place, outside in enumerate(spec.boundaries[::-1])),
        *((f"further {place}", side) for place, side in enumerate(sides[::-1])),
    )


def values(config: Config) -> tuple[Feature, ...]:
    return tuple((parameter.field, getattr(config, parameter.field)) for parameter in config.parameters())


def specs_of(family: Family[Any]) -> tuple[Spec, ...]:
    """Those that the family is proven on, stencils of drawn weights, and permutations of elements of every size."""
    found = [*family.catalogue, *family.extra_proof_specs.values(), *(spec for _, spec, _ in family.proof_cover())]
    if family.name == "stencil":
        found += [*SPECS, *LINE_SPECS, *SPACE_SPECS, *FUSED_SPECS, *IMAGE_SPECS, *ENDS_SPECS]
    if family.name == "transpose":
        found += [MoveSpec(), *(TransposeSpec(axes, dtype) for axes, dtype in product(ORDERS, BITS))]
    return tuple(dict.fromkeys(found))


@cache
def cover(family: Family[Any], algorithm: Algorithm[Any, Any]) -> tuple[Variant, ...]:
    """Variants that hold every pair of a feature and a value, one after another drawn for a pair that is missing."""
    random = np.random.default_rng(0)
    holding: dict[Feature, list[Spec]] = defaultdict(list)
    taking: dict[Feature, list[Config]] = defaultdict(list)
    for spec in specs_of(family):
        for feature in features(spec) if isinstance(spec, algorithm.takes) else ():
            holding[feature].append(spec)
    for config in algorithm.config.space():
        for value in values(config) if config.unsearched() is None else ():
            taking[value].append(config)
    met: set[tuple[Feature, Feature]] = set()
    found: list[Variant] = []
    for feature, value in product(holding, taking):
        for _ in range(TRIES if (feature, value) not in met else 0):
            spec = holding[feature][random.integers(len(holding[feature]))]
            config = taking[value][random.integers(len(taking[value]))]
            if is_searched(algorithm, spec, config) and algorithm.infeasible(spec, config, H100) is None:
                met.update(product(features(spec), values(config)))
                found.append(variant(family, spec, algorithm, config))
                break
    return tuple(found)


ALGORITHMS = [
    pytest.param(family, algorithm, id=f"{family.name}-{algorithm.name}")
    for family in FAMILIES
    for algorithm in family.algorithms.values()
    if algorithm.not_on_host is None
]


@pytest.mark.further
@pytest.mark.parametrize(("family", "algorithm"), ALGORITHMS)
def test_every_feature_with_every_value_equals_numpy(
    family: Family[Any], algorithm: Algorithm[Any, Any], host_runner: HostRunner
) -> None:
    found = cover(family, algorithm)
    chosen = found if DEEP else found[:: -(-len(found) // FEW)]
    for start in range(0, len(chosen), GROUP):
        for place, proof in enumerate(prove(host_runner, chosen[start : start + GROUP], few)):
            assert proof.failure is None, str(proof.failure)
            assert proof.cases > 0, f"{chosen[start + place].name}: {proof.untried}"


def test_pairs_that_can_meet_do() -> None:
    family = next(family for family in FAMILIES if family.name == "reduction")
    made = cover(family, family.algorithms["strided"])
    met = {pair for one in made for pair in product(features(one.spec), values(one.config))}
    seen = {feature for one in made for feature in features(one.spec)}
    assert {feature for spec in specs_of(family) for feature in features(spec)} == seen
    assert met == set(product(seen, {value for one in made for value in values(one.config)}))
    assert len(made) < 200
