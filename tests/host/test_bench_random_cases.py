"""Cases that nobody chose: legal, within bounds, of every feature, the same whenever they are drawn."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import pytest

from bench.random_cases import (
    BITS,
    GAPS,
    LEAST_BYTES,
    MOST_BYTES,
    MOST_SPAN_BYTES,
    NUMBERS,
    OFFSETS,
    OPERATORS,
    PROVABLE,
    Deck,
    RandomCase,
    random_cases,
)  # fmt: skip
from gen.families.names import base_variants
from gen.families.reduction import ReductionSpec
from gen.families.reduction.operators import SEVERAL
from gen.families.stencil import StencilSpec
from gen.families.stencil.spec import BOUNDARIES, MAX_AXES
from gen.families.transpose import TransposeSpec

COUNT = 500


@cache
def drawn(seed: int = 11) -> tuple[RandomCase, ...]:
    return random_cases(seed, COUNT)


def of(family: str) -> list[RandomCase]:
    return [case for case in drawn() if case.family.name == family]


def specs(family: str) -> list[Any]:
    return [case.spec for case in of(family)]


def test_a_seed_gives_the_same_cases_and_the_first_of_them_to_whoever_wants_fewer() -> None:
    drawn.cache_clear()
    assert random_cases(11, COUNT) == drawn()
    assert random_cases(11, 40) == drawn()[:40]
    assert random_cases(12, 40) != drawn()[:40]
    assert len({case.name for case in drawn()}) == COUNT


def test_families_take_turns_so_that_a_run_that_is_cut_off_has_seen_all() -> None:
    names = [case.family.name for case in drawn()[:30]]
    assert names == ["reduction", "transpose", "stencil"] * 10


@pytest.mark.exhaustive
def test_every_case_is_a_problem_that_has_a_variant() -> None:
    for case in drawn():
        problem = case.problem
        assert problem.shape_class in case.family.shape_classes(case.spec), case.name
        assert base_variants(case.family, case.spec)


def test_sizes_are_within_bounds() -> None:
    for case in drawn():
        assert LEAST_BYTES <= case.nbytes <= MOST_BYTES, case.name
        span = prod((*case.shape[:-1], case.shape[-1] + case.gap)) * case.dtype.size
        assert span <= MOST_SPAN_BYTES, case.name
        assert case.provable.elements <= PROVABLE, case.name
    octaves = {case.nbytes.bit_length() for case in drawn()}
    assert octaves >= set(range(LEAST_BYTES.bit_length(), MOST_BYTES.bit_length()))


def test_every_feature_of_a_reduction_occurs() -> None:
    found: list[ReductionSpec] = specs("reduction")
    assert {spec.op for spec in found} == {SEVERAL.get(op, (op,)) for op in OPERATORS}
    assert {spec.dtype for spec in found} == set(NUMBERS)
    assert {len(case.shape) for case in of("reduction")} == set(range(1, 7))
    assert {spec.axis is None for spec in found} == {True, False}
    apart = [spec.axis for spec in found if spec.axis and max(spec.axis) - min(spec.axis) >= len(spec.axis)]
    assert len(apart) > 10


def test_every_feature_of_a_transpose_occurs() -> None:
    found: list[TransposeSpec] = specs("transpose")
    assert {spec.dtype for spec in found} == set(BITS)
    assert {len(spec.axes) for spec in found} == set(range(2, 8))
    assert all(spec.axes != tuple(range(len(spec.axes))) for spec in found)


def test_every_feature_of_a_stencil_occurs() -> None:
    found: list[StencilSpec] = specs("stencil")
    assert {spec.dtype.name for spec in found} == {"f16", "f32", "f64"}
    assert {len(spec.axes) for spec in found} == set(range(1, MAX_AXES + 1))
    assert {boundary for spec in found for boundary in spec.boundaries} == set(BOUNDARIES)
    assert {spec.word[:3] for spec in found} == {"sta", "box", "asy"}
    assert {max(*spec.before, *spec.after) for spec in found} >= set(range(1, 9))
    steps = [case.runtime_parameters["steps"] for case in of("stencil")]
    assert 1 in steps
    assert all(1 <= count <= 1000 for count in steps)
    assert max(steps) > 500


@pytest.mark.parametrize("family", ["reduction", "transpose", "stencil"])
def test_extents_are_odd_and_round_and_rows_lie_apart_and_off(family: str) -> None:
    extents = [extent for case in of(family) for extent in case.shape if extent > 64]
    assert any(extent & (extent - 1) == 0 for extent in extents)
    assert any((extent + 1) & extent == 0 for extent in extents)
    assert any((extent - 1) & (extent - 2) == 0 for extent in extents)
    assert sum(extent % 2 for extent in extents) > len(extents) // 5
    assert {case.gap for case in of(family)} >= set(GAPS)
    assert {case.offset for case in of(family)} == set(OFFSETS)
    assert any(case.shape[0] < 512 < case.shape[-1] for case in of(family) if len(case.shape) > 1)
    assert any(case.shape[-1] < 512 < case.shape[0] for case in of(family) if len(case.shape) > 1)


def test_a_case_that_numpy_cannot_compute_in_time_is_checked_at_one_that_is_as_odd() -> None:
    large = next(case for case in drawn() if case.elements > PROVABLE and all(n % 2 for n in case.shape))
    small = large.provable
    assert small.elements <= PROVABLE
    assert all(n % 2 for n in small.shape)
    assert (small.spec, small.gap, small.offset) == (large.spec, large.gap, large.offset)


def test_a_deck_deals_each_option_before_one_comes_too_often() -> None:
    from random import Random

    deck = Deck(Random(1), {"a": 2, "b": 1})
    for _ in range(5):
        assert sorted(deck.draw() for _ in range(3)) == ["a", "a", "b"]
