"""The adjoint of a stencil: <A x, y> = <x, A* y> for whole numbers, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.dtypes import F64
from gen.families.stencil.adjoint import Adjoint, adjoint, computed_cells, folded_places
from gen.families.stencil.oracle import expected
from gen.families.stencil.spec import BOUNDARIES, StencilSpec
from tests.stencils import ENDS

Cells = np.ndarray[Any, np.dtype[np.float64]]


def applied(turned: Adjoint, cells: Cells) -> Cells:
    """One time step of an adjoint, by NumPy."""
    box = computed_cells(cells.shape, turned.kept)
    inner, kept = np.zeros_like(cells), cells.copy()
    inner[box], kept[box] = cells[box], 0
    found = np.asarray(expected(turned.spec, np.pad(inner, turned.margins), 1).value)
    for axis, (boundary, (before, after)) in enumerate(zip(turned.folds, turned.margins, strict=True)):
        if boundary is None:
            continue
        extent = cells.shape[axis]
        found = np.moveaxis(found, axis, 0)
        within = found[before : before + extent].copy()
        for place, cell in folded_places(extent, before, after, boundary):
            within[cell] += found[place]
        found = np.moveaxis(within, 0, axis)
    return found + kept


@st.composite
def problems(draw: st.DrawFn) -> tuple[StencilSpec, tuple[int, ...]]:
    """A stencil of whole weights, any reaches and boundaries, and an array that may be shorter than the weights."""
    axes = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 5)) for _ in range(axes))
    count = int(np.prod(shape))
    weights = np.array(draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count))).reshape(shape)
    if draw(st.booleans()):
        weights = weights + np.flip(weights, draw(st.integers(0, axes - 1)))
    origin = tuple(draw(st.integers(-(extent // 2), (extent - 1) // 2)) for extent in shape)
    ends = st.one_of(st.sampled_from(BOUNDARIES), st.sampled_from(ENDS))
    boundary = tuple(draw(ends) for _ in range(axes))
    spec = StencilSpec("any", tuple(weights.reshape(-1).astype(float)), shape, F64, boundary, 0.0, origin)
    return spec, tuple(draw(st.integers(1, 6)) for _ in range(axes))


@settings(max_examples=300, deadline=None)
@given(problems(), st.integers(0, 2**31))
def test_a_product_with_the_adjoint_is_one_with_the_stencil(
    problem: tuple[StencilSpec, tuple[int, ...]], seed: int
) -> None:
    spec, shape = problem
    random = np.random.default_rng(seed)
    x, y = (random.integers(-8, 9, shape).astype(np.float64) for _ in range(2))
    forward = np.asarray(expected(spec, x, 1).value)
    assert np.sum(forward * y) == np.sum(x * applied(adjoint(spec), y))


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_what_is_a_stencil_itself_is_known_to_be(boundary: Any) -> None:
    even = StencilSpec("even", (1.0, 2.0, 1.0), (3,), F64, boundary)
    odd = replace(even, weights=(1.0, 2.0, 3.0))
    assert adjoint(odd).closed == (boundary in ("constant", "wrap"))
    assert adjoint(even).closed == (boundary in ("constant", "wrap", "reflect"))
    if adjoint(even).closed:
        assert adjoint(even).spec == even
