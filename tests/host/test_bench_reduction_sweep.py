"""The sweep behind the defaults of the reductions: what it covers, and what it makes of times."""

from __future__ import annotations

from bench.reduction_sweep import FAMILY, default, extents_of, groups, row_of, tried
from gen.families.reduction.classes import ShapeClass


def test_every_shape_class_that_has_a_form_is_swept_with_its_default_and_others() -> None:
    classes = set()
    for group in groups():
        variants = tried(group)
        assert len({one.name for one in variants}) == len(variants) > 100
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
