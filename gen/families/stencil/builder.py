"""Stencils in a line of Python: weights that have a name, and the spec that `gen.load` takes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import factorial
from numbers import Real
from typing import Any

import numpy as np

from gen.dtypes import DType, find_dtype, is_whole
from gen.errors import SpecError
from gen.families.base import Array
from gen.families.stencil.spec import DTYPES, MAX_AXES, MAX_WEIGHTS_PER_AXIS, Boundary, StencilSpec

MAX_RADIUS = MAX_WEIGHTS_PER_AXIS // 2


def stencil(
    weights: Any,
    *,
    boundary: Boundary | Sequence[Boundary | Sequence[Boundary]] = "constant",
    dtype: Any = "f32",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    reassociate: bool = False,
    word: str = "weights",
) -> StencilSpec:
    """The spec of a correlation, as `scipy.ndimage.correlate` has it; `gen.load(spec)` computes it.

    Args:
        weights: an array of one to three axes, up to 17 along each; a weight of 0 reads nothing.
        boundary: what lies outside, one for all axes or one for each: `constant` (cval), `nearest`, `reflect`
            (dcba|abcd), `mirror` (dcb|abcd), `wrap`, or `frozen`: cells whose neighbours lie outside stay as they are.
            In place of one of an axis a pair names one for each end: `[("constant", "mirror"), "wrap"]`.
        dtype: of the cells, as NumPy takes it: float32, float64, or one that adds in float32: float16, bfloat16, uint8,
            int16 or uint16; sums are then rounded to the nearest cell, and integers saturate.
        cval: the value outside where the boundary is `constant`.
        origin: shifts the weights, as SciPy's `origin`.
        reassociate: whether terms may be added in an order that takes fewer operations: rows of weights that are
            multiples of one another as one sum, symmetric neighbours first. A box of 25 weights takes 10 or 15. The
            result rounds otherwise, within gamma_h of the spec's `roundings`, and is the same for all variants.
        word: what stands in the kernel's name.

    Raises:
        SpecError: names the argument, the rule and the value.
    """
    try:
        array = np.asarray(weights)
    except ValueError as error:
        raise SpecError("stencil.weights", "must be an array whose rows are equally long", repr(weights)) from error
    except (TypeError, RuntimeError) as error:  # a tensor on a GPU, say, or one that requires gradients
        raise SpecError("stencil.weights", "must be what NumPy makes an array of", error) from error
    if array.dtype.kind not in "fiu" or array.ndim not in range(1, MAX_AXES + 1):
        got = f"{array.ndim} axes of {array.dtype}"
        raise SpecError("stencil.weights", f"must be an array of numbers with 1 to {MAX_AXES} axes", got)
    return StencilSpec(
        word=word,
        weights=tuple(float(weight) for weight in array.reshape(-1)),
        shape=array.shape,
        dtype=_dtype_of(dtype),
        boundary=_one_an_axis(boundary),
        cval=cval,
        origin=_one_an_axis(origin),
        reassociate=reassociate,
    )


def star(ndim: int, radius: int) -> Array:
    """Equal weights, together 1, of a cell and its neighbours up to `radius` along each axis."""
    _check("star", ndim, radius)
    shape = (2 * radius + 1,) * ndim
    off_axis = sum(index != radius for index in np.indices(shape))
    weights = np.asarray(off_axis <= 1, np.float64)
    return np.asarray(weights / weights.sum())


def box(ndim: int, radius: int) -> Array:
    """Equal weights, together 1, of all cells up to `radius` away along every axis."""
    _check("box", ndim, radius)
    shape = (2 * radius + 1,) * ndim
    return np.full(shape, 1.0 / np.prod(shape))


def central_difference(derivative: int, order: int, *, ndim: int = 1, spacing: float = 1.0) -> Array:
    """Weights of a central difference; with a larger `ndim` the sum of those along all axes.

    The weights of least width for which Taylor's series holds up to the error h^order.

    Args:
        derivative: 1 for the slope, 2 for the curvature, and so on.
        order: of the error, even.
        ndim: axes.
        spacing: h, between cells.

    Raises:
        SpecError: the radius would be over 8, or a number is none that makes sense.
    """
    for name, value in (("derivative", derivative), ("order", order)):
        if not is_whole(value) or not 1 <= value <= MAX_WEIGHTS_PER_AXIS:
            raise SpecError(
                f"central_difference.{name}", f"must be a whole number from 1 to {MAX_WEIGHTS_PER_AXIS}", repr(value)
            )
    if order % 2:
        raise SpecError("central_difference.order", "must be even: central differences have no odd errors", order)
    given: object = spacing  # a caller may give anything
    if not isinstance(given, Real) or not 0 < spacing < float("inf"):
        raise SpecError("central_difference.spacing", "must be a positive, finite number", repr(spacing))
    radius = (derivative + 1) // 2 - 1 + order // 2
    _check("central_difference", ndim, 0)
    if radius > MAX_RADIUS:
        most = order - 2 * (radius - MAX_RADIUS)
        if most < 2:
            raise SpecError("central_difference.derivative", f"must be at most {2 * MAX_RADIUS}", derivative)
        rule = f"must be at most {most} for derivative {derivative}, whose weights reach {MAX_RADIUS} cells then"
        raise SpecError("central_difference.order", rule, order)
    line = _difference(int(derivative), radius, spacing)
    weights = np.zeros((2 * radius + 1,) * ndim)
    for axis in range(ndim):
        weights[tuple(slice(None) if other == axis else radius for other in range(ndim))] += line
    return weights


def _difference(derivative: int, radius: int, spacing: Any) -> Array:
    """The derivative at 0 of the polynomial through all points, as weights of these: Lagrange's, in whole numbers.

    Weight j is d! times the coefficient of x^d in the product over m != j of (x - m) / (j - m), each rounded once.
    """
    places = range(-radius, radius + 1)
    weights: list[float] = []
    try:
        step = Fraction(float(spacing)) ** derivative
        for place in places:
            product, below = [1], 1  # coefficients, lowest power first
            for other in places:
                if other != place:
                    product = [up - other * own for up, own in zip([0, *product], [*product, 0], strict=True)]
                    below *= place - other
            weights.append(float(Fraction(factorial(derivative) * product[derivative], below) / step))
    except OverflowError:
        weights = []
    if not any(weights):
        rule = f"must leave weights for derivative {derivative} that f64 holds"
        raise SpecError("central_difference.spacing", rule, repr(spacing))
    return np.asarray(weights)


def _check(function: str, ndim: int, radius: int) -> None:
    if not is_whole(ndim) or not 1 <= ndim <= MAX_AXES:
        raise SpecError(f"{function}.ndim", f"must be a whole number from 1 to {MAX_AXES}", repr(ndim))
    if not is_whole(radius) or not 0 <= radius <= MAX_RADIUS:
        raise SpecError(f"{function}.radius", f"must be a whole number from 0 to {MAX_RADIUS}", repr(radius))


def _dtype_of(dtype: Any) -> DType:
    """An element type, given by its short name, by NumPy's, or as a type."""
    found = find_dtype(dtype, DTYPES, "stencil.dtype")
    if found is None:
        raise SpecError("stencil.dtype", "must be one of " + ", ".join(known.name for known in DTYPES), repr(dtype))
    return found


def _one_an_axis(given: Any) -> Any:
    """A tuple of what is several; anything else as it is, for the spec to judge."""
    try:
        return given if isinstance(given, str) else tuple(given)
    except TypeError:  # of NumPy's array without axes too, which has `__iter__`
        return given
