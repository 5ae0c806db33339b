"""Regions hold what their words say, come back from JSON, and are asked in order."""

from __future__ import annotations

from math import gcd
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.families import FAMILIES
from gen.families.base import Family, Spec
from gen.families.extents import shape_of
from gen.families.regions import WHOLE, Bound, Region, alignment_of, most_special_first, sizes_of
from tests.strategies import json_values

SPECS = [(family, spec) for family in FAMILIES for spec in family.catalogue]
NAMES = ("rows", "cols", "alignment", "cells")


@st.composite
def regions(draw: st.DrawFn) -> Region:
    bounds = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        least = draw(st.integers(0, 100))
        bounds.append(Bound(name, least, draw(st.none() | st.integers(least, 200))))
    return Region(tuple(bounds))


def sizes() -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries({name: st.integers(0, 250) for name in NAMES})


@given(regions())
def test_a_region_comes_back_from_json(region: Region) -> None:
    assert Region.from_json(region.to_json()) == region


@given(json_values())
def test_any_json_is_a_region_or_refused(content: Any) -> None:
    try:
        region = Region.from_json(content)
    except ValueError:
        return
    assert region.to_json() == content


@pytest.mark.parametrize(
    "content",
    [[], "rows", {"rows": 3}, {"rows": [1]}, {"rows": [1, 2, 3]}, {"rows": [True, 2]}, {"rows": [-1, None]},
     {"rows": [None, 3]}, {"rows": [5, 3]}, {"rows": [1.0, 2]}],
)  # fmt: skip
def test_what_is_no_region_is_refused(content: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  whatever its words
        Region.from_json(content)


@given(sizes())
def test_a_region_of_one_problem_holds_it_alone(at: dict[str, int]) -> None:
    region = Region.exactly(at)
    assert region.one
    assert region.holds(at)
    for name in NAMES[:3]:
        assert not region.holds({**at, name: at[name] + 1})
    assert WHOLE.holds(at)
    assert not WHOLE.one


def test_a_bound_on_what_is_not_known_does_not_hold() -> None:
    assert not Region((Bound("steps", 0),)).holds({"rows": 3})


def test_the_most_special_comes_first() -> None:
    one = Region.exactly({"rows": 64, "cols": 64, "alignment": 16})
    narrow = Region((Bound("rows", 0, 64), Bound("alignment", 16)))
    wide = Region((Bound("rows", 0, 64),))
    small = Region.exactly({"n": 64})
    assert sorted([WHOLE, wide, one, small, narrow], key=most_special_first) == [one, small, narrow, wide, WHOLE]


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Bound("rows", 0, 64), "rows up to 64"),
        (Bound("n", 2**20), "n from 2^20"),
        (Bound("n", 2**20 + 1, 2**24), "n over 2^20 up to 2^24"),
        (Bound("n", 7, 2**24), "n from 7 up to 2^24"),
        (Bound("n", 65), "n over 64"),
        (Bound("n"), "n"),
        (Bound("rows", 7, 7), "rows 7"),
        (Bound("alignment", 16), "aligned to 16 bytes"),
        (Bound("alignment", 0, 8), "aligned to 8 bytes at most"),
        (Bound("alignment", 0, 15), "aligned to 8 bytes at most"),
        (Bound("alignment", 16, 16), "aligned to 16 bytes"),
        (Bound("alignment", 4, 4), "aligned to 4 bytes"),
    ],
)
def test_a_bound_is_said_in_words(bound: Bound, words: str) -> None:
    assert bound.words == words


def test_alignment_stands_last_in_words() -> None:
    assert Region((Bound("alignment", 16), Bound("rows", 0, 64))).words == "rows up to 64, aligned to 16 bytes"


@pytest.mark.parametrize(("family", "spec"), SPECS, ids=lambda part: getattr(part, "label", ""))
def test_every_problem_has_its_axes_cells_and_alignment(family: Family[Any], spec: Spec) -> None:
    for shape_class in family.shape_classes(spec):
        extents = family.representative(spec, shape_class)
        found = sizes_of(family, spec, extents)
        rows = [shape_of(o, extents)[-1] * o.dtype.size for o in spec.operands if len(o.axes) > 1]
        assert found["alignment"] == gcd(16, *rows)
        assert found["cells"] == family.work(spec, extents).cells
        pitches = {operand.pitch for operand in spec.operands}
        derived = {name for name in extents if name.startswith(("box", "group"))}
        assert found.keys() - {"cells", "alignment"} == extents.keys() - pitches - derived
        assert sizes_of(family, spec, extents, 4)["alignment"] == 4


@pytest.mark.parametrize(
    ("extents", "alignment"),
    [((64, 96, 96, 64), 16), ((64, 95, 95, 64), 4), ((64, 94, 94, 64), 8), ((64, 95, 96, 64), 16), ((1, 95, 95, 1), 4)],
)
def test_rows_align_an_array_too(extents: tuple[int, ...], alignment: int) -> None:
    family, spec = next((family, spec) for family, spec in SPECS if family.name == "transpose")
    named = dict(zip(("rows", "cols", "in_pitch", "out_pitch"), extents, strict=True))
    assert alignment_of(family.layouts(spec, named).values()) == alignment
