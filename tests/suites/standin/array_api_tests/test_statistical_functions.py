"""Reductions, of arrays and along axes that Hypothesis draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from . import _array_module  # noqa: TID252 - as that suite imports it

xp: Any = _array_module  # its attributes are those of another module
SHAPES = arrays.array_shapes(max_dims=4, max_side=5)


def drawn(data: st.DataObject, *dtypes: str) -> tuple[Any, dict[str, Any]]:
    """An array of whole numbers, and an axis, axes or none."""
    shape = data.draw(SHAPES)
    x = data.draw(arrays.arrays(data.draw(st.sampled_from(dtypes)), shape, elements=st.integers(0, 50)))
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1) | arrays.valid_tuple_axes(x.ndim, min_size=1))
    return x, {"axis": axis, "keepdims": data.draw(st.booleans())}


@pytest.mark.parametrize("name", ["max", "min", "sum", "prod", "mean", "var", "std"])
@given(data=st.data())
def test_reduction(name: str, data: st.DataObject) -> None:
    x, named = drawn(data, "float32", "float64")
    if name == "prod":  # of small factors: whether a product overflows before it meets a 0 hangs on the order
        x = np.minimum(x, 3)
    expected = getattr(np.ndarray, name)(x, **named)  # a method, which nothing replaces
    np.testing.assert_allclose(getattr(xp, name)(x, **named), expected, rtol=1e-5)


@given(data=st.data())
def test_sum(data: st.DataObject) -> None:
    x, named = drawn(data, "int8", "uint16", "int64")
    out = xp.sum(x, **named)
    assert out.dtype == (np.uint64 if x.dtype == np.uint16 else np.int64)
    np.testing.assert_array_equal(out, np.add.reduce(x, dtype=out.dtype, **named))
