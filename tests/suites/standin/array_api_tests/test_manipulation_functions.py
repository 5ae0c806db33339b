"""Permutations of axes that Hypothesis draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from . import _array_module  # noqa: TID252 - as that suite imports it

xp: Any = _array_module


@given(data=st.data())
def test_permute_dims(data: st.DataObject) -> None:
    x = data.draw(arrays.arrays("int32", arrays.array_shapes(max_dims=4, max_side=5)))
    axes = tuple(data.draw(st.permutations(range(x.ndim))))
    np.testing.assert_array_equal(xp.permute_dims(x, axes), x.transpose(axes))


@given(data=st.data())
def test_matrix_transpose(data: st.DataObject) -> None:
    x = data.draw(arrays.arrays("int16", arrays.array_shapes(min_dims=2, max_dims=4, max_side=5)))
    np.testing.assert_array_equal(xp.matrix_transpose(x), x.swapaxes(-1, -2))
    np.testing.assert_array_equal(xp.linalg.matrix_transpose(x), x.swapaxes(-1, -2))


@given(data=st.data())
def test_vector_norm(data: st.DataObject) -> None:
    x = data.draw(arrays.arrays("float64", arrays.array_shapes(max_dims=3, max_side=5), elements=st.integers(-9, 9)))
    expected = np.sqrt(np.square(x).sum(-1, keepdims=True))
    np.testing.assert_allclose(xp.linalg.vector_norm(x, axis=-1, keepdims=True), expected)
