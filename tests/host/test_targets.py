"""Which problems a tuning run means, and what it says to those it cannot read."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gen.errors import GenError, ShapeError, UnknownNameError
from gen.families import FAMILIES
from gen.families.base import Family, Spec
from gen.families.extents import told_extents
from gen.families.names import find_family
from gen.families.stencil import StencilSpec
from gen.store.winners import Winner
from gen.tune.targets import problems, read_runtime_parameters, read_shape
from gen.tune.verify import problem_of

SPECS = [(family, spec) for family in FAMILIES for spec in family.catalogue]
each_spec = pytest.mark.parametrize(
    ("family", "spec"), SPECS, ids=lambda part: getattr(part, "name", getattr(part, "label", ""))
)
STENCIL = find_family(FAMILIES, "stencil")


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("8192x8192", (8192, 8192)),
        ("8192X4096", (8192, 4096)),
        ("2^28", (2**28,)),
        ("1000", (1000,)),
        ("0", (0,)),
        ("2^13x2^12x3", (8192, 4096, 3)),
        ("007", (7,)),
        ("10^9", (10**9,)),
    ],
)
def test_a_shape_is_read(text: str, shape: tuple[int, ...]) -> None:
    assert read_shape(text) == shape


@pytest.mark.parametrize(
    "text",
    ["", "x", "8192x", "x8192", "8192xx8192", "-1", "+1", "1.5", "1e3", "2^", "^2", "2^^3", "2**3", "2^-1", "2^3^2",
     " 8", "8 x 8", "8,8", "(8, 8)", "1_000", "0x10x", "\u0663", "\u0662^3", "2^\u0663", "\u00b2", "8\n",
     "9" * 21, "2^100", "9" * 5000],
)  # fmt: skip
def test_a_text_that_is_no_shape_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ShapeError, match=r"--shape must be numbers joined by x, such as 8192x8192 or 2\^28") as caught:
        read_shape(text)
    assert repr(text) in str(caught.value)


def test_counts_are_read() -> None:
    assert read_runtime_parameters(()) == {}
    assert read_runtime_parameters(("steps=100", "nreps=2^10")) == {"steps": 100, "nreps": 1024}


@pytest.mark.parametrize(
    "text", ["", "steps", "steps=", "=3", "steps=0", "steps=-1", "steps=1.5", "steps==3", "2=3", "a b=3", "steps=2^31",
             "steps=\u0663", "steps= 3", "steps=" + "9" * 5000]
)  # fmt: skip
def test_a_text_that_is_no_count_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ShapeError, match=r"--param must be NAME=N, .*such as steps=100") as caught:
        read_runtime_parameters((text,))
    assert repr(text) in str(caught.value)


def test_a_count_is_stated_once() -> None:
    with pytest.raises(ShapeError, match=r"--param must say once how many steps there are .*'steps=3'"):
        read_runtime_parameters(("steps=2", "steps=3"))


def test_a_shape_is_tuned_for_what_a_call_counts() -> None:
    spec = STENCIL.catalogue[0]
    name = f"stencil_{spec.label}"
    once, often = (
        problems(FAMILIES, name, {}, ["64x64"], runtime_parameters=stated)[0] for stated in ({}, {"steps": 100})
    )
    assert (once.extents["steps"], once.shape_class) == (1, "1 step")
    assert (often.extents["steps"], often.shape_class) == (100, "many steps")
    assert {**once.extents, "steps": 100} == often.extents
    assert often.region.holds(often.sizes)
    assert not often.region.holds({**often.sizes, "steps": 99})
    with pytest.raises(UnknownNameError, match=r"--param must be one of steps \(got 'nreps'\)"):
        problems(FAMILIES, name, {}, ["64x64"], runtime_parameters={"nreps": 5})
    with pytest.raises(
        UnknownNameError, match=r"--param must be left out: no kernel here has runtime parameters \(got 'steps'\)"
    ):
        problems(FAMILIES, "transpose", {}, ["64x64"], runtime_parameters={"steps": 5})


@given(st.one_of(st.text(max_size=30), st.text("0123456789x^X- ", max_size=30)))
@example("x".join(["9" * 20 + "^99"] * 3))  # more digits than Python prints
@example("0x2^62")
def test_any_text_is_a_shape_or_an_error_in_words(text: str) -> None:
    for family in FAMILIES:
        try:
            found = problems(FAMILIES, family.name, {}, [text])
        except GenError:
            continue
        assert len(found) == len(family.catalogue)
        assert all(str(problem) for problem in found)
        assert all(extent < 2**63 for problem in found for extent in problem.extents.values())


@given(st.lists(st.integers(0, 10**20 - 1), min_size=1, max_size=4))
def test_numbers_are_read_back(shape: list[int]) -> None:
    assert read_shape("x".join(map(str, shape))) == tuple(shape)


@each_spec
def test_every_class_is_stood_for_by_sizes_of_its_own(family: Family[Any], spec: Spec) -> None:
    classes = family.shape_classes(spec)
    assert len(set(classes)) == len(classes) > 0
    for shape_class in classes:
        assert family.shape_class(spec, family.representative(spec, shape_class)) == shape_class
    found = problems(FAMILIES, f"{family.name}_{spec.label}", {})
    assert [problem.shape_class for problem in found] == list(classes)
    assert {problem.spec_name for problem in found} == {f"{family.name}_{spec.label}"}


@each_spec
def test_sizes_that_stand_for_a_class_fit_the_operands(family: Family[Any], spec: Spec) -> None:
    for problem in problems(FAMILIES, f"{family.name}_{spec.label}", {}):
        assert family.extents(spec, family.layouts(spec, problem.extents)) == {
            **problem.extents,
            **family.runtime_parameters(spec),
        }
        work = family.work(spec, problem.extents)
        assert work.bytes_read + work.bytes_written > 0


def test_without_a_target_every_class_of_every_catalogue_is_meant() -> None:
    found = problems(FAMILIES, None, {})
    every = [(family, spec, shape_class) for family, spec in SPECS for shape_class in family.shape_classes(spec)]
    assert [(problem.family, problem.spec, problem.shape_class) for problem in found] == every


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_means_its_catalogue(family: Family[Any]) -> None:
    found = problems(FAMILIES, family.name, {})
    assert [problem.spec for problem in found] == [
        spec for spec in family.catalogue for _ in family.shape_classes(spec)
    ]


def test_shapes_are_those_of_the_first_input() -> None:
    found = problems(FAMILIES, "transpose", {}, ["300x200", "7x5"])
    assert [told_extents(problem.extents) for problem in found] == [
        {"rows": 300, "cols": 200, "in_pitch": 200, "out_pitch": 300},
        {"rows": 7, "cols": 5, "in_pitch": 5, "out_pitch": 7},
    ]
    assert [str(problem) for problem in found] == ["transpose_10_b32 300 x 200", "transpose_10_b32 7 x 5"]
    (one,) = problems(FAMILIES, "reduction", {}, ["300x200"])
    assert one.extents == {"n": 60_000}
    assert str(one) == "reduction_sum_f32 60000"


def test_what_wins_for_a_shape_is_for_that_alone() -> None:
    (one,) = problems(FAMILIES, "transpose", {}, ["300x200"])
    assert one.region.holds(one.sizes)
    assert one.region.words == "cols 200, rows 300, aligned to 16 bytes"
    for other in problems(FAMILIES, "transpose", {}, ["300x201", "301x200", "200x300", "60000x1"]):
        assert not one.region.holds(other.sizes)
    assert not one.region.holds({**one.sizes, "alignment": 8})
    assert one.region.holds({**one.sizes, "cells": 1})


def test_what_wins_for_less_alignment_is_for_that_and_less() -> None:
    found = problems(FAMILIES, "transpose", {}, alignment=8)
    assert {one.shape_class for one in found} >= {"odd rows", "few columns", "nothing moves: a copy"}
    for problem in found:
        assert problem.alignment == 8
        assert problem.sizes["alignment"] <= 8
        assert [problem.region.holds({"alignment": by}) for by in (4, 8, 16)] == [True, True, False]
    (one,) = problems(FAMILIES, "reduction", {}, ["2^20"], alignment=4)
    assert one.region.words == "n 2^20, aligned to 4 bytes"
    assert str(one) == "reduction_sum_f32 1048576 at 4 bytes"


def test_aligned_rows_lie_at_aligned_addresses() -> None:
    found = problems(FAMILIES, "transpose", {}, alignment=8)
    assert not {"aligned rows", "aligned rows, under 4 MiB"} & {one.shape_class for one in found}
    assert len({(one.spec_name, one.shape_class) for one in found}) == len(found)  # none is there twice
    with pytest.raises(ShapeError, match=r"^--alignment must be 16 for aligned rows \(got 8\)"):
        problems(FAMILIES, "transpose", {}, classes=["aligned rows"], alignment=8)


@pytest.mark.parametrize("alignment", [0, -4, 1, 2, 3, 12, 32])
def test_an_alignment_that_elements_cannot_have_is_refused(alignment: int) -> None:
    with pytest.raises(ShapeError, match=r"--alignment must be a power of two from 4, .* to 16"):
        problems(FAMILIES, "reduction", {}, alignment=alignment)


def test_one_shape_class_is_meant_by_its_words() -> None:
    large = "more than 2^20 elements"
    assert [one.shape_class for one in problems(FAMILIES, None, {}, classes=[large])] == [large]
    with pytest.raises(UnknownNameError, match=r"--class must be one of .*; .*'large'"):
        problems(FAMILIES, "reduction", {}, classes=[large, "large"])


def test_a_shape_that_is_none_of_the_specs_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"--shape .* transpose_10_b32 takes: in must have.*2\^20"):
        problems(FAMILIES, "transpose", {}, ["2^20"])


@pytest.mark.parametrize("text", ["2^61", "2^31x2^30", "0x2^61", "2^99"])
def test_a_shape_that_no_memory_holds_is_refused(text: str) -> None:
    with pytest.raises(ShapeError, match=r"less than 2\^63 bytes as f32") as caught:
        problems(FAMILIES, "reduction", {}, [text])
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["0", "0x5", "5x0"])
def test_a_shape_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="must have no extent of 0"):
        problems(FAMILIES, "reduction", {}, [text])


def test_a_spec_of_the_stores_is_found_by_its_name() -> None:
    spec = StencilSpec("mean", (0.0, 0.25, 0.0, 0.25, 0.0, 0.25, 0.0, 0.25, 0.0))
    name = f"stencil_{spec.label}"
    found = problems(FAMILIES, name, {name: spec.to_json()})
    assert [(one.family, one.spec) for one in found] == [(STENCIL, spec)] * len(STENCIL.shape_classes(spec))
    with pytest.raises(UnknownNameError):
        problems(FAMILIES, name, {})


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("reduction_sum_f32__grid_tpb128_u1_v16_bpm1", "tuning chooses the variant.*Give reduction_sum_f32"),
        ("transposeSmem", "tuning chooses the variant.*Give transpose_10_b32"),
        ("redution", "Did you mean reduction"),
        ("transpose_10_b3", "transpose_10_b32"),
        ("", "The name must be a family or a spec, FAMILY_LABEL, such as reduction_sum_f32"),
        ("__", "must be a family or a spec"),
    ],
)
def test_a_target_that_is_none_is_answered(target: str, says: str) -> None:
    with pytest.raises(UnknownNameError, match=says):
        problems(FAMILIES, target, {})


@given(st.one_of(st.text(max_size=20), st.text("_abx10f32", max_size=12).map(lambda rest: f"transpose_{rest}")))
def test_any_target_is_known_or_an_error_in_words(target: str) -> None:
    with suppress(GenError):
        assert problems(FAMILIES, target, {})


@pytest.mark.parametrize("alignment", [16, 8, 4])
def test_a_winner_for_a_shape_is_verified_at_the_alignment_it_was_tuned_at(alignment: int) -> None:
    (one,) = problems(FAMILIES, "transpose_201_b32", {}, ["64x10x100"], alignment=alignment)
    assert one.sizes["alignment"] <= 8  # 10 elements are 40 bytes; as a matrix of 640 x 100 it is aligned
    winner = Winner("GPU", one.spec_name, one.shape_class, "any", {"extents": dict(one.extents)}, one.region)
    assert problem_of(winner, FAMILIES, {}) == one
