"""Permutations: any axes, any element size, any pitch, bit for bit."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.errors import SpecError
from gen.families.base import Layout
from gen.families.layout import layout_of
from gen.families.transpose import Transpose, TransposeSpec, transpose
from gen.families.transpose.canonical import Axis, canonical
from gen.families.transpose.spec import BITS

FAMILY = Transpose()


@st.composite
def problems(draw: st.DrawFn) -> tuple[TransposeSpec, tuple[int, ...], int, int]:
    """A spec, the input's shape, and how many elements lie between rows of the input and of the output."""
    axes = tuple(draw(st.permutations(range(draw(st.integers(1, 8))))))
    most = 9 if len(axes) < 4 else 3
    shape = tuple(draw(st.lists(st.integers(0 if len(axes) < 4 else 1, most), min_size=len(axes), max_size=len(axes))))
    gaps = st.sampled_from((0, 0, 1, 3))
    return TransposeSpec(axes, draw(st.sampled_from(tuple(BITS.values())))), shape, draw(gaps), draw(gaps)


def walked(extents: Any, batches: int) -> dict[int, int]:
    """Where each element comes from, by where it goes, as the canonical form of a problem says."""
    places = {0: 0}
    for b in range(batches):
        one, there, here = (extents[f"batch{b}{end}"] for end in ("", "_in", "_out"))
        places = {o + k * here: i + k * there for o, i in places.items() for k in range(one)}
    return {
        o + col * extents["out_pitch"] + row: i + row * extents["in_pitch"] + col
        for o, i in places.items()
        for row in range(extents["rows"])
        for col in range(extents["cols"])
    }


@given(problems())
def test_the_canonical_form_moves_every_element_where_numpy_has_it(
    problem: tuple[TransposeSpec, tuple[int, ...], int, int],
) -> None:
    spec, shape, in_gap, out_gap = problem
    source, result = spec.operands
    known = dict(zip(map(str, source.axes), shape, strict=True))
    known |= {o.pitch: known[str(o.axes[-1])] + gap for o, gap in ((source, in_gap), (result, out_gap)) if o.pitch}
    layouts = {o.name: layout_of(o, known) for o in spec.operands}
    extents = FAMILY.extents(spec, layouts)
    assert sum(f"batch{b}" in extents for b in range(9)) == spec.batches
    size = spec.dtype.size
    places = [
        sum(np.multiply(np.indices(layouts[name].shape).T, np.array(layouts[name].strides) // size).T)
        for name in ("in", "out")
    ]
    expected = dict(zip(places[1].ravel().tolist(), places[0].transpose(spec.axes).ravel().tolist(), strict=True))
    assert walked(extents, spec.batches) == (expected if 0 not in shape else {})


def test_axes_that_stay_neighbours_are_one() -> None:
    # NHWC to NCHW: 64 matrices of 224 * 224 rows and 3 columns.
    shape, strides = (64, 224, 224, 3), (224 * 224 * 3, 224 * 3, 3, 1)
    found = canonical(shape, strides, (224 * 224 * 3, 224, 1, 224 * 224))
    assert (found.rows, found.cols, found.in_pitch, found.out_pitch) == (224 * 224, 3, 3, 224 * 224)
    assert found.batch == (Axis(64, 224 * 224 * 3, 224 * 224 * 3),)


@pytest.mark.parametrize("axes", [axes for n in (1, 2, 3, 4) for axes in permutations(range(n))], ids=str)
def test_where_no_axis_moves_past_another_of_more_than_one_element_it_is_a_copy(axes: tuple[int, ...]) -> None:
    spec = TransposeSpec(axes)
    for long in range(len(axes)):
        shape = tuple(7 if axis == long else 1 for axis in range(len(axes)))
        extents = FAMILY.extents(spec, {"in": Layout.of(np.zeros(shape, np.float32))})
        rows, cols = extents.get("rows"), extents.get("cols")
        assert {rows, cols} == {1, 7}
        assert extents["out_pitch" if rows == 1 else "in_pitch"] == 1


@pytest.mark.parametrize(
    ("axes", "dtype", "label"),
    [
        ((1, 0), "float32", "10_b32"),
        ([0, 2, 1], np.int8, "021_b8"),
        ((0, -1, 1), "bfloat16", "021_b16"),
        ((2, 1, 0), np.complex64, "210_b64"),
        ((1, 0), "c16", "10_b128"),
        ((1, 0), [("tag", "u1"), ("value", "<f4"), ("more", "u1", 3)], "10_b64"),
        ((1, 0), "b16", "10_b16"),
        ((1, 0), "M8[s]", "10_b64"),
    ],
)
def test_a_spec_is_built_from_what_numpy_takes(axes: Any, dtype: Any, label: str) -> None:
    assert transpose(axes, dtype).label == label


@pytest.mark.parametrize(
    ("axes", "dtype", "says"),
    [
        ((1, 1), "f4", "(got (1, 1))"),
        ((1, -3), "f4", "(got (1, -3))"),
        (5, "f4", "axes must be a sequence of whole numbers (got 5)"),
        ((1, "x"), "f4", "axes must be a sequence of whole numbers"),
        ((1, 0), "f33", "dtype must be one that NumPy knows, or bfloat16 (got 'f33')"),
        ((1, 0), object, "dtype must not hold Python objects"),
        ((1, 0), "S3", "dtype must have elements of 1, 2, 4, 8 or 16 bytes (got S3: 3 bytes)"),
    ],
)
def test_a_spec_that_cannot_be_says_why(axes: Any, dtype: Any, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        transpose(axes, dtype)
    assert says in str(caught.value)
