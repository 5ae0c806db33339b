"""Places and counts of elements, of arrays that Hypothesis draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from . import _array_module  # noqa: TID252 - as that suite imports it

xp: Any = _array_module


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@given(data=st.data())
def test_argmax_and_argmin(name: str, data: st.DataObject) -> None:
    x = data.draw(arrays.arrays("int8", arrays.array_shapes(max_dims=3, max_side=6), elements=st.integers(0, 3)))
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1))
    np.testing.assert_array_equal(getattr(xp, name)(x, axis=axis), getattr(np.ndarray, name)(x, axis=axis))


@pytest.mark.parametrize("name", ["any", "all", "count_nonzero"])
@given(data=st.data())
def test_all_and_any(name: str, data: st.DataObject) -> None:
    x = data.draw(arrays.arrays("bool", arrays.array_shapes(max_dims=3, max_side=6)))
    expected = x.sum() if name == "count_nonzero" else getattr(np.ndarray, name)(x)
    np.testing.assert_array_equal(getattr(xp, name)(x), expected)
