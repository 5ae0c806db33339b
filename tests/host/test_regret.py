"""What a class's winner loses on sizes that nobody tuned, and how classes are split where that is too much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.families import FAMILIES
from gen.families.base import Launch, Plan
from gen.families.expr import ONE
from gen.families.names import base_variants, search_space, variant
from gen.families.regions import WHOLE, Bound, Region
from gen.store.trials import Problem, Trial
from gen.tune.problems import problems
from gen.tune.regret import MAX_REGRET, Part, Point, probes, split, worst
from tests.fake_family import called_variant

TRANSPOSE = problems(FAMILIES, "transpose", {})[0]
EVERY = [(problem.spec_name, problem) for problem in problems(FAMILIES, None, {})]


@pytest.mark.parametrize("problem", [one for _, one in EVERY], ids=[f"{name}-{k}" for k, (name, _) in enumerate(EVERY)])
def test_probes_are_other_problems_of_the_same_class(problem: Problem) -> None:
    found = probes(problem)
    arrays = [operand for operand in problem.spec.operands if operand.role != "number"]
    stated = {name for name in problem.extents if not name.startswith("box")}
    plain = stated <= {name for one in arrays for name in (*one.axes, one.pitch)} | {"steps"}
    unaligned = replace(problem, alignment=4).shape_class == problem.shape_class  # else another class has those
    assert len(found) >= (2 + unaligned if plain else 1)  # whose extents say more than axes is probed unaligned
    assert len(set(map(str, found))) == len(found)
    assert problem not in found
    for one in found:
        assert one.shape_class == problem.shape_class
        measured = one.family.extents(one.spec, one.family.layouts(one.spec, one.extents))
        for name in {
            name for operand in arrays for name in map(str, (*operand.axes, operand.pitch)) if name in measured
        }:
            assert measured[name] == one.extents[name]
        assert one.sizes["cells"] <= problem.sizes["cells"]
    assert {one.alignment for one in found} == {*([16] if plain else []), *([4] if unaligned else [])}


def test_probes_of_a_matrix_are_smaller_odd_long_wide_and_unaligned() -> None:
    """Those of aligned rows, which lie at aligned addresses, and of odd rows, whose even parts are of another class."""
    found = {
        one.shape_class: [str(probe).removeprefix("transpose_10_b32 ") for probe in probes(one)]
        for one in problems(FAMILIES, "transpose_10_b32", {})
    }
    assert found["aligned rows"] == ["4096 x 4096", "2048 x 2048", "524288 x 128", "128 x 524288"]
    assert found["odd rows"] == ["8190 x 8190", "524224 x 127", "127 x 524224", "8191 x 8191 at 4 bytes"]


def point(times: dict[str, float], **sizes: int) -> Point:
    return Point(TRANSPOSE, {"rows": 64, "cols": 64, "cells": 4096, "alignment": 16, **sizes}, times)


def words(parts: tuple[Part, ...]) -> dict[str, str]:
    return {part.region.words: part.variant for part in parts}


def test_regret_is_the_time_lost_to_the_fastest() -> None:
    one = point({"a": 11.0, "b": 10.0})
    assert one.regret("a") == pytest.approx(0.1)
    assert one.regret("b") == 0.0
    assert one.regret("c") == float("inf")
    assert worst("a", [one, point({"a": 9.0, "b": 10.0})]) == pytest.approx(0.1)


def test_a_class_whose_winner_does_well_stays_whole() -> None:
    points = [point({"a": 10.0, "b": 9.6}, rows=64), point({"a": 10.4, "b": 10.0}, rows=8)]
    (part,) = split(points, "a")
    assert (part.region, part.variant) == (WHOLE, "a")
    assert part.regret == pytest.approx(10.0 / 9.6 - 1)


def test_a_class_is_cut_where_its_winner_stops_to_do_well() -> None:
    parts = split(
        [
            point({"a": 10.0, "b": 20.0}, rows=8192, cells=2**20),
            point({"a": 10.0, "b": 11.0}, rows=1024, cells=2**12),
            point({"a": 20.0, "b": 10.0}, rows=64, cells=2**20),
            point({"a": 30.0, "b": 10.0}, rows=1, cells=2**12),
        ],
        "a",
    )
    assert words(parts) == {"rows up to 256": "b", "rows over 256": "a"}


def test_arrays_that_are_not_aligned_become_a_part_of_their_own() -> None:
    parts = split([point({"a": 10.0, "b": 20.0}), point({"a": 20.0, "b": 10.0}, alignment=4)], "a")
    assert words(parts) == {"aligned to 8 bytes at most": "b", "aligned to 16 bytes": "a"}
    assert parts[0].region == Region((Bound("alignment", 0, 15),))


def test_a_part_may_be_cut_again() -> None:
    times = {"a": 20.0, "b": 20.0, "c": 20.0}
    parts = split(
        [
            point({**times, "a": 10.0}, rows=8192),
            point({**times, "b": 10.0}, rows=128),
            point({**times, "c": 10.0}, rows=2),
        ],
        "a",
    )
    assert words(parts) == {"rows up to 16": "c", "rows over 16 up to 1024": "b", "rows over 1024": "a"}


def test_a_variant_that_cannot_run_somewhere_is_cut_off_there() -> None:
    able, unable = point({"a": 10.0, "b": 20.0}, rows=2**20), point({"b": 20.0}, rows=2**25)
    assert (able.tells_of("a"), unable.tells_of("a"), replace(unable, unable=frozenset("a")).tells_of("a")) == (
        True, False, True,
    )  # fmt: skip
    parts = split([able, unable], "a")
    assert words(parts) == {"rows up to 2^22": "a", "rows over 2^22": "b"}


def test_a_region_is_cut_within_its_bounds() -> None:
    within = Region((Bound("rows", 0, 2**20),))
    parts = split([point({"a": 10.0, "b": 20.0}, rows=64), point({"a": 20.0, "b": 10.0}, rows=2**16)], "a", within)
    assert words(parts) == {"rows up to 2048": "a", "rows over 2048 up to 2^20": "b"}


def test_the_winner_of_a_class_is_never_replaced_in_all_of_it() -> None:
    better = [point({"a": 11.0, "b": 10.0}, rows=rows) for rows in (64, 128)]
    assert {part.variant for part in split(better[:1], "a")} == {"a"}
    parts = split([*better, point({"a": 10.0, "b": 10.4}, rows=4096)], "a")
    assert words(parts) == {"rows up to 512": "b", "rows over 512": "a"}


NAMES = ("a", "b", "c", "d")


@st.composite
def measured(draw: st.DrawFn) -> list[Point]:
    several = []
    for _ in range(draw(st.integers(1, 6))):
        sizes = {name: draw(st.integers(1, 40)) for name in ("rows", "cols", "cells")}
        sizes["alignment"] = draw(st.sampled_from([4, 8, 16]))
        names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
        several.append(Point(TRANSPOSE, sizes, {name: draw(st.floats(1, 2)) for name in names}))
    return several


@given(measured(), st.sampled_from(NAMES))
def test_every_point_lies_in_one_part_whose_variant_does_well(points: list[Point], winner: str) -> None:
    parts = split(points, winner)
    assert sum(len(part.points) for part in parts) == len(points)
    for one in points:
        assert [part.region.holds(one.sizes) for part in parts].count(True) == 1
    for part in parts:
        assert all(part.region.holds(one.sizes) for one in part.points)
        assert part.regret == worst(part.variant, part.points)
        alike = len({tuple(one.sizes.items()) for one in part.points}) == 1
        assert part.regret <= MAX_REGRET or alike
        if worst(winner, part.points) <= MAX_REGRET:
            assert part.variant == winner


def test_a_variant_that_a_part_has_got_before_stays_unless_another_is_over_1_percent_better() -> None:
    points = [point({"a": 10.0}, rows=64), point({"a": 20.0, "b": 10.0, "c": 10.08, "d": 10.2}, rows=4096)]
    assert words(split(points, "a", incumbents=("c",))) == {"rows up to 512": "a", "rows over 512": "c"}
    assert words(split(points, "a", incumbents=("d",))) == {"rows up to 512": "a", "rows over 512": "b"}
    assert words(split(points, "a", incumbents=("gone",))) == {"rows up to 512": "a", "rows over 512": "b"}


def test_a_point_holds_times_that_were_taken_in_the_same_turns_alone() -> None:
    """Not what few samples flatter, nor what hides a part of a call; another of the same code stands for a variant."""
    spec = TRANSPOSE.spec
    base = base_variants(TRANSPOSE.family, spec)[0]
    twin, wrong, flattered = (
        variant(TRANSPOSE.family, spec, base.algorithm, config) for config in search_space(base.algorithm, spec)[:3]
    )
    copying = called_variant("copying", (), Plan((Launch((ONE, ONE, ONE), (1, 1, 1), (), setup=True),)))
    trials: list[Any] = [
        Trial(base, "ok", (12.0,)), Trial(twin, "ok", (12.0,), same_as=base.name), Trial(wrong, "wrong_result"),
        Trial(flattered, "ok", (9.0,)), Trial(copying, "ok", (2.0,)),
    ]  # fmt: skip
    turns = {base.name: [10.0, 11.0, 10.5, 10.5], copying.name: [2.0] * 4}
    found = Point.of(TRANSPOSE, trials, turns)
    assert found.times_us == pytest.approx({base.name: 10.5, twin.name: 10.5})
    assert found.sizes == TRANSPOSE.sizes
    assert (found.tells_of(twin.name), found.tells_of(wrong.name), found.tells_of(flattered.name)) == (
        True, True, False,
    )  # fmt: skip
    assert Point.of(TRANSPOSE, trials, {}).times_us == {}
    ended = Trial(wrong, "launch_failed", outside=True)  # by others: which says nothing of it
    assert not Point.of(TRANSPOSE, [trials[0], ended], turns).tells_of(wrong.name)


def test_regret_is_that_of_the_turns_that_both_have_taken() -> None:
    """One that was settled early took the first turns alone, when all were slower."""
    base = base_variants(TRANSPOSE.family, TRANSPOSE.spec)[0]
    other = variant(TRANSPOSE.family, TRANSPOSE.spec, base.algorithm, search_space(base.algorithm, TRANSPOSE.spec)[0])
    trials = [Trial(base, "ok", (1.0,)), Trial(other, "ok", (1.0,))]
    found = Point.of(TRANSPOSE, trials, {base.name: [20.0] * 30 + [10.0] * 300, other.name: [22.0] * 30})
    assert found.regret(other.name) == pytest.approx(0.1)
