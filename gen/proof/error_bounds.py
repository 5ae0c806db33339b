"""How far a result may lie from the exact one: stated bounds, never a guessed tolerance.

A sum in which no term passes more than h roundings of unit u is within gamma_h = h u / (1 - h u) times the sum of the
magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gen.dtypes import DType
from gen.families.base import Array, Expected

# The oracle adds in float64, pairwise: fewer roundings than this up to 2^40 elements.
ORACLE_ROUNDINGS = 64


@dataclass(frozen=True)
class Disagreement:
    """The first element outside its bound, and how many there are."""

    index: tuple[int, ...]
    expected: float | int
    got: float | int
    bound: float
    count: int

    def __str__(self) -> str:
        place = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        allowed = "exactly" if self.bound == 0 else f"within {self.bound:.3g}"
        return f"{place} must be {self.expected!r} {allowed} (got {self.got!r}); {self.count} elements are wrong"


def sharpened(expected: Expected, *, random_signs: bool) -> Expected:
    """What must hold of integers up to 8 whose signs are random: every bit, where a bound alone would let much pass.

    Partial sums, whichever elements a thread or block adds, are then random walks: with m the sum of all magnitudes
    they stay within 40 standard deviations, 40 sqrt(8 m), but for a chance of e^-800, and below 2^precision are exact.
    """
    magnitude, accumulator = expected.magnitude, expected.accumulator
    if not (random_signs and expected.integral) or magnitude is None or accumulator is None:
        return expected
    if 40 * np.sqrt(8 * float(np.max(magnitude, initial=0.0))) >= 2.0**accumulator.precision:
        return expected
    return Expected(expected.value.astype(accumulator.numpy))


def gamma(roundings: int, unit: float) -> float:
    """The bound h u / (1 - h u); infinite where no bound can be given."""
    product = roundings * unit
    return product / (1 - product) if product < 1 else float("inf")


@dataclass(frozen=True)
class Allowance:
    """How far an element may lie from the exact one.

    Attributes:
        relative: times its sum of magnitudes: the accumulator's gamma_h, and the oracle's own.
        unit: times its value: one rounding to the type of the result.
        absolute: for each rounding the smallest number of the type, which is what underflow costs.
        largest: the accumulator's range, less the errors; an element whose sum of magnitudes leaves it may be anything.
    """

    relative: float
    unit: float
    absolute: float
    largest: float

    @classmethod
    def of(cls, expected: Expected, roundings: int, result: DType) -> Allowance:
        """That of a variant with so many roundings on a path, whose results are stored as `result`."""
        assert expected.accumulator is not None
        accumulator = expected.accumulator
        relative = gamma(roundings, accumulator.unit_roundoff) + gamma(ORACLE_ROUNDINGS, 2.0**-53)
        absolute = roundings * accumulator.smallest
        largest = (accumulator.largest - absolute) / (1 + relative)
        if result == accumulator or result.kind != "float":
            return cls(relative, 0.0, absolute, largest)
        # What is rounded is the computed value, which need not be the exact one; and it may underflow.
        unit = result.unit_roundoff
        return cls(relative * (1 + unit), unit, absolute * (1 + unit) + result.smallest / 2, largest)


def bounds(expected: Expected, roundings: int, result: DType) -> Array:
    """How far each element of a result may lie from `expected.value`."""
    assert expected.magnitude is not None
    allowed = Allowance.of(expected, roundings, result)
    rounding = allowed.unit * np.abs(expected.value) if allowed.unit else 0.0
    with np.errstate(invalid="ignore"):  # where the magnitude is infinite anything goes
        return np.asarray(allowed.relative * expected.magnitude + rounding + allowed.absolute)


def disagreement(expected: Expected, got: Array, roundings: int, result: DType) -> Disagreement | None:
    """Where and how `got` differs from what it must hold; None if it does not.

    Elements whose sum of magnitudes, errors included, leaves the accumulator's range may be anything: the order of
    additions decides whether they overflow. One that only the result's type does not hold must be infinite, and one at
    the edge of its range may be. Infinities and NaN among the inputs must come out as NumPy has them.
    """
    value = np.asarray(expected.value)
    if value.shape != got.shape:
        return Disagreement((), value.size, got.size, 0.0, value.size)
    if expected.magnitude is None or expected.accumulator is None:
        allowed = np.zeros(value.shape)
        if result.kind == "float":
            value = value.astype(result.numpy)  # an exact sum is rounded once, to the result's type
        wrong = ~_same(value, got, result)
    else:
        allowed = bounds(expected, roundings, result)
        wide = got.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            overflows = expected.magnitude > Allowance.of(expected, roundings, result).largest
            near = np.abs(wide - value) <= allowed
            if result.kind == "float":
                near |= np.isinf(wide) & (np.sign(wide) == np.sign(value)) & (np.abs(value) + allowed > result.largest)
        same = np.where(np.isfinite(value), near, _same(value, wide, result))
        wrong = ~(same | overflows)
    if not wrong.any():
        return None
    index = tuple(int(place) for place in np.argwhere(wrong)[0])
    return Disagreement(index, value[index].item(), got[index].item(), float(allowed[index]), int(wrong.sum()))


def _same(value: Array, got: Array, result: DType) -> Array:
    if result.kind == "bits":
        if value.dtype == got.dtype and value.dtype.kind == "u":  # as they lie: no copy of a transposed view
            return np.asarray(value == got)
        return np.asarray((_bytes(value, result) == _bytes(got, result)).all(axis=-1))
    if result.kind == "complex":
        return np.asarray(_same_parts(value.real, got.real) & _same_parts(value.imag, got.imag))
    if result.kind == "float":
        return _same_parts(value, got)
    return np.asarray(value == got)


def _same_parts(value: Array, got: Array) -> Array:
    """Of numbers, or of parts of complex ones: zeros of the same sign too; NaN for NaN, whatever its bits."""
    equal = (value == got) & (np.signbit(value) == np.signbit(got))
    return np.asarray(equal | (np.isnan(value) & np.isnan(got)))


def _bytes(array: Array, dtype: DType) -> Array:
    """The elements as bytes, along a new last axis."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(*array.shape, dtype.size)
