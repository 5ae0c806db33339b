"""The sweep behind the defaults of the reductions: what it covers, and what it makes of times."""

from __future__ import annotations

import gen
from bench.reduction_sweep import FAMILY, Group, default, extents_of, groups, over_classes, row_of, tried, worth
from gen.families.base import Variant
from gen.families.names import find_variant
from gen.families.reduction.shapes import ShapeClass
from gen.families.reduction.spec import ReductionSpec


def test_every_shape_class_that_has_a_form_is_swept_with_its_default_and_others() -> None:
    classes = set()
    for group in groups():
        variants = tried(group)
        assert len({one.name for one in variants}) == len(variants) > 50
        for shape in group.shapes:
            extents = extents_of(group.spec, shape)
            classes.add(FAMILY.shape_class(group.spec, extents))
            assert default(group.spec, shape) in variants
    assert classes == {one.value for one in ShapeClass} - {ShapeClass.STRIDED.value}


def test_a_row_holds_the_fastest_of_each_algorithm_and_counts_results_that_are_odd() -> None:
    group = next(groups())
    own = default(group.spec, (2**12,)).name
    spec, _, rest = own.partition("__")
    times = {own: 5.0, f"{spec}__flags_tpb128_u2_v8_bpm1": 4.5, f"{spec}__flags_tpb128_u4_v8_bpm1": 4.25}
    results = dict(zip(times, (1, 1, 2), strict=True))
    row = row_of(group, (2**12,), 4.0, times, results)
    assert (row.default_us, row.variants, row.odd) == (5.0, 3, 1)
    assert row.best["flags"] == ("tpb128_u4_v8_bpm1", 4.25)
    assert row.best[rest.partition("_")[0]][1] == 5.0


def test_what_suits_a_class_is_never_far_behind_on_any_of_its_problems() -> None:
    spec, size = gen.reduction("sum"), (2**12,)
    group = Group(spec, (size, (1000,)), ("single",))
    own, even, odd = default(spec, size).name, "single_tpb32_u1_v4", "single_tpb32_u2_v4"
    head = own.partition("__")[0]
    first = {own: 6.0, f"{head}__{even}": 5.5, f"{head}__{odd}": 5.0}
    second = {own: 5.5, f"{head}__{even}": 5.25, f"{head}__{odd}": 6.5, f"{head}__single_tpb32_u4_v4": 5.0}
    (found,) = over_classes([(group, size, first), (group, (1000,), second)])
    assert (found.shape_class, found.problems, found.default) == ("at most 2^12 elements", 2, 1.2)
    assert found.best[0] == (even, 1.1, 1.075)
    assert {tag for tag, _, _ in found.best} == {own.partition("__")[2], even, odd}
    max_of = Group(gen.reduction("max"), (size,), ("single",))
    both = [(group, size, first), (max_of, size, {name.replace("sum", "max"): us for name, us in first.items()})]
    assert [one.spec for one in over_classes(both)] == ["", "sum_f32", "max_f32"]


def variant_of(spec: ReductionSpec, name: str) -> Variant:
    """The variant of a spec by its algorithm and tag."""
    return find_variant((FAMILY,), f"reduction_{spec.label}__{name}", {})


def test_threads_that_would_share_too_little_or_too_much_are_left_out() -> None:
    spec = gen.reduction("sum", axis=1)
    names = ("rows_tpb128_g1_u4_v4", "rows_tpb128_g32_u4_v16", "grid_tpb128_u2_v16_bpm2")
    for n, expected in ((3, (True, False, False)), (512, (False, True, True)), (2**14, (False, False, True))):
        made = (variant_of(spec, name) for name in names)
        assert tuple(worth(one, extents_of(spec, (64, n))) for one in made) == expected
