"""What is timed beside what dispatch chooses for many steps, and how that is shown."""

from __future__ import annotations

from typing import Any

from bench.depths import FAMILY, Row, cases, table, weighed
from gen.arch import Limits
from gen.families.stencil.spec import BOUNDARIES
from gen.runtime.dispatch import Chooser

H100 = Limits.of("sm_90")


def test_what_is_chosen_is_timed_beside_launches_of_other_depths() -> None:
    first = next(cases())
    chosen, several = weighed(first, Chooser(FAMILY, first.spec, (), "Some GPU", H100), H100)
    assert several[0] == chosen
    assert len(set(several)) == len(several)
    depths = {getattr(made.config, "steps", 1) for made in several}
    assert {1, 4, 8, 12, 16} <= depths


def test_every_boundary_and_both_orders_of_terms_are_among_the_cases() -> None:
    lines = [str(case) for case in cases()]
    assert len(set(lines)) == len(lines)
    boundaries = [line.split()[3] for line in lines if line.startswith("boundary") and "2048x2048" in line]
    assert sorted(boundaries) == sorted(BOUNDARIES)
    plain = [line for line in lines if line.startswith("terms") and "reassociated" not in line]
    assert {line.replace(" reassociated", "") for line in lines if "reassociated" in line} == set(plain)


def test_a_line_says_what_the_choice_loses_and_a_table_has_the_fastest() -> None:
    row = Row("terms: box1 f32 constant 8x8, 48 steps", "one", 48_000_000, {"one": 20.0, "other": 16.0}, joules=0.5)
    assert " 0.80  one; fastest other" in str(row)
    assert "2.400 TCell-steps/s" in str(row)
    assert "0.10e9 cell-steps a joule" in str(row)
    meta = {"device": "Some GPU", "driver": "1.0", "date": "2026-01-02", "command": "python -m bench.depths"}
    other: dict[str, Any] = {"case": "steps: star1 f32 constant 8x8, 48 steps", "us": {"one": 1.0}, "cell_steps": 1}
    made = table({"meta": meta, "rows": [vars(row), other]})
    assert "| box1 f32 constant 8x8, 48 steps | 3.00 | `other` |" in made
    assert "star1" not in made
    assert "Measured on one Some GPU (driver 1.0), 2026-01-02, by `python -m bench.depths`." in made
