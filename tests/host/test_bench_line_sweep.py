"""Many steps of one axis: what the sweep covers, and what it makes of times."""

from __future__ import annotations

from bench.line_sweep import FUSED, SWEEPS, Row, disturbed, lines, row_of, tried
from gen.families.stencil.spec import BOUNDARIES, DTYPES


def test_every_type_and_boundary_is_taken_both_ways() -> None:
    every = list(lines())
    assert {line.dtype for line in every} == set(DTYPES)
    assert {line.boundary for line in every} == set(BOUNDARIES)
    for line in every:
        variants = tried(line)
        assert len({one.name for one in variants}) == len(variants)
        assert {one.algorithm.name for one in variants} == {FUSED, *SWEEPS}


def test_a_row_compares_fused_steps_with_one_sweep_a_step_and_names_other_bits() -> None:
    line = next(lines())
    us = {"naive_x32_y8_u1": 80.0, "stream_u4_x2_y4": 50.0, "overlapped_v8_w4_t8": 5.0, "overlapped_v8_w4_t16": 4.0}
    row = row_of(line, us, dict(zip(us, (1, 1, 1, 2), strict=True)), 4000.0)
    assert row.fastest(FUSED) == ("overlapped_v8_w4_t16", 4.0)
    assert row.fastest(*SWEEPS) == ("stream_u4_x2_y4", 50.0)
    assert row.odd == ("overlapped_v8_w4_t16",)
    assert "stream_u4_x2_y4 12.5 times longer" in str(row)


def test_a_row_beside_which_copies_were_slow_is_taken_again() -> None:
    rows = [Row("a line", 1, {}, (), copy) for copy in (1100.0, 4290.0, 4200.0, 3800.0)]
    assert disturbed(rows) == [0, 3]
    assert disturbed([]) == []
