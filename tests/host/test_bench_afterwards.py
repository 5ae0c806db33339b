"""What comes after a transpose: the variants that are compared differ in nothing but what they ask of the cache."""

from __future__ import annotations

import pytest

from bench.afterwards import CASES, FAMILY, MODIFIERS, variants
from gen.bench.cases import public_cases
from gen.bench.offers import problem_of
from gen.families.base import Limits


@pytest.mark.parametrize("number", range(len(CASES)))
def test_variants_of_a_case_take_it_and_differ_in_both_cache_operators_alone(number: int) -> None:
    case, algorithm, config = CASES[number]
    made = variants(case, algorithm, config)
    (found,) = (one for one in public_cases() if one.name == case)
    problem = problem_of(found, [FAMILY])
    operators = {"load_modifier", "store_modifier"}
    asked = set()
    for one in made:
        values = vars(one.config)
        asked.add((values["load_modifier"], values["store_modifier"]))
        assert {name: value for name, value in values.items() if name not in operators} == {
            name: value for name, value in vars(config).items() if name not in operators
        }
        assert one.algorithm.uncovered(problem.spec, one.config, problem.extents, Limits.of("sm_90")) is None
    assert asked == set(MODIFIERS)
    assert len(made) == len(MODIFIERS) == 4
