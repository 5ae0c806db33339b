"""What comes after a transpose: the variants that are compared differ in nothing but what they ask of the cache."""

from __future__ import annotations

import pytest

from bench.afterwards import CASES, MODIFIERS, table, variants
from bench.cases import public_cases
from gen.families.base import Limits


@pytest.mark.parametrize("number", range(len(CASES)))
def test_variants_of_a_case_take_it_and_differ_in_both_cache_operators_alone(number: int) -> None:
    case, algorithm, config = CASES[number]
    made = variants(case, algorithm, config)
    (found,) = (one for one in public_cases() if one.name == case)
    problem = found.problem
    operators = {"load_modifier", "store_modifier"}
    asked = set()
    for one in made:
        values = vars(one.config)
        asked.add((values["load_modifier"], values["store_modifier"]))
        assert {name: value for name, value in values.items() if name not in operators} == {
            name: value for name, value in vars(config).items() if name not in operators
        }
        assert one.algorithm.unsupported_extents(problem.spec, one.config, problem.extents, Limits.of("sm_90")) is None
    assert asked == set(MODIFIERS)
    assert len(made) == len(MODIFIERS) == 4


def test_the_table_has_the_range_of_times_over_those_that_ask_for_nothing() -> None:
    meta = {"device": "a GPU", "driver": "1", "date": "today", "command": "python bench/afterwards.py"}
    rows = [
        {"case": case, "afterwards": follows, "us": dict(zip("abcd", us, strict=True))}
        for case, follows, us in (
            ("one", "nothing", (100, 110, 90, 80)), ("two", "nothing", (50, 40, 55, 50)), ("one", "all", (4, 2, 1, 8)),
        )
    ]  # fmt: skip
    said = table({"meta": meta, "rows": rows}).splitlines()
    assert "`python bench/afterwards.py`" in said[0]
    assert said[2:] == [
        "| what comes next | `ldel` | `stel` | `ldel stel` |",
        "| --- | --- | --- | --- |",
        "| nothing | 0.800 to 1.100 | 0.900 to 1.100 | 0.800 to 1.000 |",
        "| all | 0.500 to 0.500 | 0.250 to 0.250 | 2.000 to 2.000 |",
    ]
