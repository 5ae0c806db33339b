"""Extents and layouts are each other's inverse; arrays that do not fit are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.dtypes import DTYPES, F32
from gen.errors import ShapeError
from gen.families import FAMILIES
from gen.families.base import Array, Family, Layout, Operand, Spec
from gen.families.extents import is_contiguous, layouts_of, measure, shape_of, told_extents
from gen.families.reduction import Reduction, ReductionSpec
from gen.families.stencil import Stencil
from gen.families.transpose import Transpose, TransposeSpec
from gen.proof.cases import allocate
from tests.strategies import extents

SPECS = [(family, spec) for family in FAMILIES for spec in family.catalogue]
each_spec = pytest.mark.parametrize(
    ("family", "spec"), SPECS, ids=lambda part: getattr(part, "name", getattr(part, "label", ""))
)
REDUCTION, TRANSPOSE, STENCIL = Reduction(), Transpose(), Stencil()


def layouts(**arrays: Array) -> Mapping[str, Layout]:
    """Layouts by operand; `in_` stands for `in`."""
    return {name.rstrip("_"): Layout.of(array) for name, array in arrays.items()}


def zeros(*shape: int, dtype: str = "float32") -> Array:
    return np.zeros(shape, dtype)


@each_spec
@given(data=st.data())
def test_extents_are_measured_back_from_their_layouts(family: Family[Any], spec: Spec, data: st.DataObject) -> None:
    drawn = dict(data.draw(extents(spec)))
    found = family.extents(spec, family.layouts(spec, drawn))
    for operand in spec.operands:
        shape = shape_of(operand, drawn)
        if operand.pitch and (shape[0] <= 1 or shape[-1] == 0):
            drawn[operand.pitch] = shape[-1]  # no row follows another
    derived = {name for name in found if name.startswith(("box", "group"))} - drawn.keys()
    assert {name: found[name] for name in found.keys() - derived} == {**drawn, **family.runtime_parameters(spec)}


@each_spec
@given(data=st.data())
def test_arrays_of_these_layouts_have_these_extents(family: Family[Any], spec: Spec, data: st.DataObject) -> None:
    drawn = family.extents(spec, family.layouts(spec, data.draw(extents(spec))))
    offset = data.draw(st.integers(0, 3))
    arrays = {name: allocate(layout, offset, 0).array for name, layout in family.layouts(spec, drawn).items()}
    assert family.extents(spec, {name: Layout.of(array) for name, array in arrays.items()}) == drawn


@each_spec
def test_every_case_of_a_family_is_consistent(family: Family[Any], spec: Spec) -> None:
    cases = list(family.cases(spec))
    assert len(cases) > 10
    for sizes in cases:
        assert family.extents(spec, family.layouts(spec, sizes)) == {**sizes, **family.runtime_parameters(spec)}


def test_an_output_that_is_not_given_has_dense_rows() -> None:
    found = TRANSPOSE.extents(TransposeSpec(), layouts(in_=zeros(3, 8)[:, :5]))
    assert told_extents(found) == {"rows": 3, "cols": 5, "in_pitch": 8, "out_pitch": 3}


def test_a_sum_takes_arrays_of_any_shape() -> None:
    spec = ReductionSpec()
    for shape, n in (((), 1), ((0,), 0), ((3, 0, 5), 0), ((2, 3, 4), 24), ((1, 7, 1), 7)):
        assert REDUCTION.extents(spec, layouts(in_=zeros(*shape))) == {"n": n}
    # Strides of axes of extent 1 do not count.
    strided = np.lib.stride_tricks.as_strided(zeros(64), (1, 8), (100, 4))
    assert REDUCTION.extents(spec, layouts(in_=strided)) == {"n": 8}


@given(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 5), max_size=4))
def test_contiguous_is_what_numpy_calls_contiguous(name: str, shape: list[int]) -> None:
    array: Array = np.zeros(shape, DTYPES[name].numpy)
    for view in (array, array.T, array[::2] if shape else array, array[..., 1:] if shape else array):
        assert is_contiguous(Layout.of(view)) == view.flags.c_contiguous


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({}, "in is missing"),
        ({"out": zeros()}, "in is missing"),
        ({"in_": zeros(4), "other": zeros(4)}, "other is no operand; there are in, out"),
        (
            {"in_": zeros(4, dtype="float64")},
            "in must hold f32 elements (got f64). Convert it first, or load a kernel for f64",
        ),
        ({"in_": zeros(4, dtype="int32")}, "in must hold f32 elements (got i32). Convert it first, or load a"),
        ({"in_": zeros(4, dtype=">f4")}, "in must hold f32 elements (got >f4). Convert it first"),
        ({"in_": zeros(8)[::-1]}, "in must have no negative strides (got (-4,))"),
        (
            {"in_": np.zeros(17, np.uint8)[1:].view("f4")},
            "a multiple of 4 bytes (got multiples of 1, strides (4,)). Pass a copy whose elements follow",
        ),
        (
            {"in_": zeros(4), "out": np.zeros(5, np.uint8)[1:].view("f4")[0:1].reshape(())},
            "a multiple of 4 bytes (got multiples of 1, strides ()). Pass one that does, or none",
        ),
        ({"in_": zeros(4), "out": zeros(1)}, "out must have no axes (got (1,)). Pass one that does, or none"),
        ({"in_": zeros(4), "out": zeros(dtype="float64")}, "out must hold f32 elements, or those of a type that"),
    ],
)
def test_a_sum_refuses_arrays_that_do_not_fit(arrays: dict[str, Array], says: str) -> None:
    with pytest.raises(ShapeError) as caught:
        REDUCTION.extents(ReductionSpec(), layouts(**arrays))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({}, "in is missing"),
        ({"in_": zeros(4, 3), "b": zeros(3)}, "b is no operand; there are in, out"),
        ({"in_": zeros(4)}, "in must have 2 axes (got (4,))"),
        ({"in_": zeros(4, 3, 2)}, "in must have 2 axes (got (4, 3, 2))"),
        ({"in_": zeros(4, 3, dtype="float64")}, "of 4 bytes (got float64). Convert it first, or load a kernel for"),
        ({"in_": np.zeros((4, 3), object)}, "in must hold elements of 4 bytes (got object). Convert it first"),
        ({"in_": zeros(4, 3), "out": zeros(4, 3)}, "out must have 3 cols (got (4, 3)). Pass one that does, or none"),
        ({"in_": zeros(4, 3), "out": zeros(3)}, "out must have 2 axes (got (3,)). Pass one that does, or none"),
        ({"in_": zeros(4, 3), "out": zeros(3, 5)}, "out must have 4 rows (got (3, 5))"),
        ({"in_": zeros(4, 3).T}, "in must have elements 4 bytes apart along its rows (got 12)"),
        ({"in_": zeros(4, 6)[:, ::2]}, "in must have elements 4 bytes apart along its rows (got 8)"),
        ({"in_": zeros(4, 3)[:, ::-1]}, "in must have elements 4 bytes apart along its rows (got -4)"),
        ({"in_": zeros(4, 3)[::-1]}, "in must have rows a multiple of 4 and at least 12 bytes apart (got -12)"),
        ({"in_": np.broadcast_to(zeros(1, 3), (4, 3))}, "rows a multiple of 4 and at least 12 bytes apart (got 0)"),
        ({"in_": np.lib.stride_tricks.as_strided(zeros(12), (4, 3), (8, 4))}, "at least 12 bytes apart (got 8)"),
        ({"in_": np.lib.stride_tricks.as_strided(zeros(20), (4, 3), (14, 4))}, "a multiple of 4 bytes"),
    ],
)
def test_a_transpose_refuses_arrays_that_do_not_fit(arrays: dict[str, Array], says: str) -> None:
    with pytest.raises(ShapeError) as caught:
        TRANSPOSE.extents(TransposeSpec(), layouts(**arrays))
    assert says in str(caught.value)


def test_a_transpose_moves_any_elements_of_four_bytes() -> None:
    for dtype in ("int32", "uint32", ">f4", "S4", "M8[s]"):
        given_ = layouts(in_=np.zeros((2, 3), dtype))
        if np.dtype(dtype).itemsize == 4:
            assert TRANSPOSE.extents(TransposeSpec(), given_)["cols"] == 3
        else:
            with pytest.raises(ShapeError):
                TRANSPOSE.extents(TransposeSpec(), given_)


def test_cells_before_and_after_must_be_as_many() -> None:
    with pytest.raises(ShapeError, match=r"out must have 4 rows \(got \(3, 4\)\)"):
        STENCIL.extents(STENCIL.catalogue[0], layouts(in_=zeros(4, 3), out=zeros(3, 4)))


@each_spec
@given(data=st.data())
def test_any_layout_is_measured_or_refused(family: Family[Any], spec: Spec, data: st.DataObject) -> None:
    def layout(dtype: np.dtype[Any]) -> st.SearchStrategy[Layout]:
        stride = st.one_of(st.integers(-64, 64), st.sampled_from((4, 8, 12, 400)))
        axes = st.lists(st.tuples(st.integers(0, 100), stride), max_size=4)
        return axes.map(
            lambda axes: Layout(
                tuple(extent for extent, _ in axes),
                tuple(step for _, step in axes),
                dtype,
                int(np.gcd.reduce([256, *(step for _, step in axes)])),
            )
        )

    operands = tuple(operand.name for operand in spec.operands)
    names = st.sampled_from((*operands, "other", ""))
    dtypes = st.sampled_from(("f4", "f8", "u4", "O", "f2"))
    given_ = data.draw(st.dictionaries(names, dtypes.flatmap(lambda name: layout(np.dtype(name))), max_size=3))
    try:
        found = family.extents(spec, given_)
    except ShapeError as error:
        said = str(error)
        assert any(said.startswith(name) for name in (*operands, *given_))
    else:
        assert all(extent >= 0 for extent in found.values())


def test_only_the_rows_of_a_pitched_operand_lie_apart() -> None:
    operand = Operand("in", "in", F32, ("planes", "rows", "cols"), pitch="pitch")
    sizes = {"planes": 2, "rows": 3, "cols": 5, "pitch": 8}
    (layout,) = layouts_of([operand], sizes).values()
    assert layout.shape == (2, 3, 5)
    assert layout.strides == (96, 32, 4)
    assert measure([operand], {"in": layout}) == sizes


def test_an_extent_that_is_always_the_same_is_no_extent_of_the_problem() -> None:
    points = Operand("in", "in", F32, ("n", 3))
    sizes = {"n": 7}
    (layout,) = layouts_of([points], sizes).values()
    assert layout.shape == (7, 3)
    assert layout.strides == (12, 4)
    assert measure([points], {"in": layout}) == sizes
    with pytest.raises(ShapeError, match=r"in must have an extent of 3 along axis 1 \(got \(7, 2\)\)"):
        measure([points], {"in": Layout((7, 2), (8, 4), np.dtype("f4"))})


def test_alignment_is_what_divides_address_and_strides() -> None:
    memory = np.zeros(1024, np.uint8)
    start = -memory.ctypes.data % 256
    aligned = memory[start : start + 512].view(np.float32)
    assert Layout.of(aligned).alignment == 4  # the stride
    assert Layout.of(aligned.reshape(4, 32)[:, :3]).alignment == 4
    assert Layout.of(np.zeros(3, np.uint8)[1:]).alignment == 1
