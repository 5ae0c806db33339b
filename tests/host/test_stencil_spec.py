"""What a stencil means: its oracle against SciPy, its boundaries, the cone of a NaN, the error it may make."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import ndimage

from gen.dtypes import BF16, F16, F32, F64, I16, U8, U16, DType
from gen.errors import SpecError
from gen.families.base import Array
from gen.families.stencil import StencilSpec
from gen.families.stencil.oracle import OUTSIDE, expected, expected_at, places_inside
from gen.families.stencil.spec import BOUNDARIES, Boundary
from gen.proof.cases import Content, fill
from gen.proof.error_bounds import gamma
from tests import libm
from tests.stencils import ENDS

SCIPYS: tuple[Boundary, ...] = ("constant", "nearest", "reflect", "mirror", "wrap")
each_boundary = pytest.mark.parametrize("boundary", BOUNDARIES)
WEIGHT = st.one_of(st.just(0.0), st.integers(-4, 4), st.floats(2**-8, 2**8, width=16))


def cells_of(shape: tuple[int, ...], dtype: DType = F32, content: Content = Content.RANDOM, seed: int = 0) -> Array:
    array = np.empty(shape, dtype.numpy)
    fill(array, dtype, content, seed)
    return array


@st.composite
def problems(draw: st.DrawFn) -> tuple[StencilSpec, Array]:
    """A spec of one boundary for all axes, and cells: fewer than the weights reach, too."""
    axes = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, (17, 6, 4)[axes - 1])) for _ in range(axes))
    count = int(np.prod(shape))
    spec = StencilSpec(
        "any",
        tuple(draw(st.lists(WEIGHT, min_size=count, max_size=count))),
        shape,
        draw(st.sampled_from((F32, F64))),
        draw(st.sampled_from(SCIPYS)),
        draw(st.sampled_from((0.0, 2.5))),
        tuple(draw(st.integers(-(n // 2), (n - 1) // 2)) for n in shape),
    )
    cells = tuple(draw(st.integers(1, 9)) for _ in range(axes))
    return spec, cells_of(cells, spec.dtype, draw(st.sampled_from((Content.RANDOM, Content.INTEGERS))))


@given(problems())
def test_one_step_is_scipys_correlation(problem: tuple[StencilSpec, Array]) -> None:
    spec, cells = problem
    found = expected(spec, cells, 1)
    kernel = np.array(spec.weights).reshape(spec.shape)
    wide = cells.astype(np.float64)
    if not kernel.any():
        assert not found.value.any()
        return
    mode, origin = spec.boundaries[0], spec.origin
    # SciPy 1.17 reads outside the array where it reflects from four lengths of an axis on, before the first cell.
    assume(
        mode != "reflect" or all(before < 4 * n for before, n in zip(spec.before, cells.shape, strict=True) if n > 1)
    )
    scipys = ndimage.correlate(wide, kernel, mode=mode, cval=spec.cval, origin=origin)
    sizes = ndimage.correlate(np.abs(wide), np.abs(kernel), mode=mode, cval=abs(spec.cval), origin=origin)
    terms = len(spec.taps)
    allowed = gamma(terms, spec.dtype.unit_roundoff) + gamma(terms + 1, 2.0**-53)  # ours, and SciPy's
    assert (np.abs(found.value - scipys) <= allowed * sizes + terms * float(spec.dtype.smallest)).all()


@given(problems(), st.integers(0, 4))
def test_steps_are_one_after_another(problem: tuple[StencilSpec, Array], steps: int) -> None:
    spec, cells = problem
    now = cells.astype(np.float64)
    wide = StencilSpec("any", spec.weights, spec.shape, F64, spec.boundary, spec.cval, spec.origin)
    for _ in range(steps):
        now = np.asarray(expected(wide, now, 1).value, np.float64)
    found = expected(wide, cells.astype(np.float64), steps)
    assert np.array_equal(found.value, now)


@pytest.mark.parametrize("boundary", SCIPYS)
@given(extent=st.integers(1, 8), reach=st.integers(0, 16))
def test_what_lies_outside_is_what_scipy_pads(boundary: Boundary, extent: int, reach: int) -> None:
    places = np.arange(float(extent))
    found = places_inside(np.arange(-reach, extent + reach), extent, boundary)
    kernel = np.zeros(2 * reach + 1)
    for offset in range(-reach, reach + 1):
        kernel[:] = 0
        kernel[offset + reach] = 1
        moved = ndimage.correlate1d(places, kernel, mode=boundary, cval=OUTSIDE)
        assert np.array_equal(found[reach + offset : reach + offset + extent], moved)


@pytest.mark.parametrize(("before", "after"), ENDS)
@given(extent=st.integers(2, 8), data=st.data())
def test_what_lies_outside_ends_that_differ_is_what_numpy_pads(
    before: Boundary, after: Boundary, extent: int, data: st.DataObject
) -> None:
    reach = data.draw(st.integers(0, extent - 1))  # where a place is carried across one end alone
    modes: Any = {"nearest": "edge", "frozen": "edge", "reflect": "symmetric", "mirror": "reflect", "wrap": "wrap"}
    padded = np.arange(extent)
    for ends, boundary in (((reach, 0), before), ((0, reach), after)):
        options = {"constant_values": OUTSIDE} if boundary == "constant" else {}
        inside = np.pad(np.arange(extent), ends, modes.get(boundary, boundary), **options)
        padded = np.concatenate([inside[:reach], padded] if ends[0] else [padded, inside[extent:]])
    assert np.array_equal(places_inside(np.arange(-reach, extent + reach), extent, (before, after)), padded)


def test_only_the_cells_at_a_frozen_end_stay() -> None:
    spec = StencilSpec("any", (1.0,) * 15, (3, 5), boundary=(("frozen", "wrap"), ("mirror", "frozen")))
    cells = cells_of((7, 9))
    changed = np.asarray(expected(spec, cells, 3).value) != cells
    assert changed[1:, :-2].all()
    assert not changed[0].any()
    assert not changed[:, -2:].any()


def test_ends_that_are_alike_are_said_once() -> None:
    alike = StencilSpec("any", (1.0,) * 9, boundary=(("wrap", "wrap"), "mirror"))
    assert alike == StencilSpec("any", (1.0,) * 9, boundary=("wrap", "mirror"))
    for boundary in ((("frozen", "mirror"), "wrap"), (("frozen", "mirror"), ("frozen", "mirror"))):
        spec = StencilSpec("any", (1.0,) * 9, boundary=boundary)
        assert StencilSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
        assert "at the low end cells whose" in spec.summary


@each_boundary
@given(rows=st.integers(1, 9), cols=st.integers(1, 9), steps=st.integers(1, 4), seed=st.integers(0, 99))
def test_a_nan_spreads_through_its_cone_and_no_further(
    boundary: Boundary, rows: int, cols: int, steps: int, seed: int
) -> None:
    spec = StencilSpec("any", (0, 1, 0, 2, 3, 0, 0, 0, 0), boundary=boundary)  # up, left and itself
    cells = cells_of((rows, cols), seed=seed)
    row, col = seed % rows, seed // rows % cols
    cells[row, col] = np.nan
    cone = np.zeros((rows, cols))
    cone[row, col] = 1
    ones = StencilSpec("any", spec.weights, spec.shape, F64, boundary)
    for _ in range(steps):
        cone = (np.asarray(expected(ones, cone, 1).value) != 0).astype(np.float64)
    assert np.array_equal(np.isnan(np.asarray(expected(spec, cells, steps).value, np.float64)), cone != 0)


def test_frozen_cells_are_those_whose_weights_reach_outside() -> None:
    spec = StencilSpec("any", (1.0,) * 15, (3, 5), boundary=("frozen", "wrap"))
    cells = cells_of((7, 9))
    found = np.asarray(expected(spec, cells, 3).value)
    changed = found != cells
    assert changed[1:-1].all()
    assert not changed[[0, -1]].any()
    both = StencilSpec("any", (1.0,) * 15, (3, 5), boundary="frozen")
    changed = np.asarray(expected(both, cells, 3).value) != cells
    assert changed[1:-1, 2:-2].all()
    assert changed.sum() == 5 * 5


@given(st.sampled_from((F16, BF16, F32, F64)), st.integers(0, 5), st.integers(0, 99), st.sampled_from(BOUNDARIES))
def test_every_bit_follows_from_the_order_of_the_weights(
    dtype: DType, steps: int, seed: int, boundary: Boundary
) -> None:
    weights = tuple(np.random.default_rng(seed).standard_normal(9) / 3)
    spec = StencilSpec("any", weights, dtype=dtype, boundary=boundary, cval=1.7)
    cells = cells_of((6, 7), dtype, seed=seed)
    found = expected(spec, cells, steps)
    assert found.magnitude is None  # no bound: nothing else is right
    assert np.array_equal(found.value, in_order(spec, cells, steps))
    one = (np.full(3, 2), np.array([0, 3, 6]))
    assert np.array_equal(expected_at(spec, cells, one).value, in_order(spec, cells, 1)[one])


@pytest.mark.parametrize("dtype", [U8, I16, U16], ids=lambda dtype: dtype.name)
def test_sums_of_integers_are_rounded_to_even_and_saturate(dtype: DType) -> None:
    ends = np.iinfo(dtype.numpy)
    cells = np.array([0, 1, 2, 3, 5, 7, ends.max - 1, ends.max, ends.min, ends.min + 1], dtype.numpy)
    for weight in (0.5, 1.0, 1.5, -0.5, -1.0, 2.5, 3e38):
        found = np.asarray(expected(StencilSpec("any", (weight,), (1,), dtype), cells, 1).value)
        exact = [round(Fraction(weight) * int(cell)) for cell in cells]  # Python rounds half-way cases to even
        assert found.tolist() == [min(max(number, ends.min), ends.max) for number in exact]
        assert found.dtype == dtype.numpy
    # A sum that f32 does not hold is infinite, and stays so.
    apart = StencilSpec("any", (-3e38, 3e38), (2,), dtype)
    assert expected(apart, np.array([100, 100], dtype.numpy), 1).value.tolist() == [ends.max, ends.min]


@pytest.mark.parametrize("cval", [0.5, -40000.0, 70000.0, float("nan"), float("inf")])
def test_what_lies_outside_integers_is_one_of_them(cval: float) -> None:
    with pytest.raises(SpecError, match=r"stencil\.cval must be a whole number from -32768 to 32767"):
        StencilSpec("any", (1.0,), (1,), I16, cval=cval)
    assert StencilSpec("any", (1.0,), (1,), I16, cval=-5.0).cval == -5.0


def in_order(spec: StencilSpec, cells: Array, steps: int) -> Array:
    """The same cell by cell, with the C library's fused multiply-add."""
    fma = libm.fused_multiply_add(spec.accumulator)
    for _ in range(steps):
        after = cells.copy()
        for index, _ in np.ndenumerate(cells):
            total = 0.0
            for offset, weight in spec.taps:
                near = (place + move for place, move in zip(index, offset, strict=True))
                places = zip(near, cells.shape, spec.boundaries, strict=True)
                at = tuple(int(places_inside(np.asarray(place), *axis)) for place, *axis in places)
                if OUTSIDE in at and "frozen" in spec.boundaries:
                    break
                total = fma(weight, spec.cval if OUTSIDE in at else float(cells[at]), total)
            else:
                after[index] = spec.accumulator.numpy.type(total)
        cells = after
    return cells
