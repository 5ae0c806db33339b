"""Whether a contender computed what NumPy computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod, sqrt
from typing import Any, Protocol

import numpy as np

from bench.arrays import Shared
from bench.works import Case, Reduce, Shape, Sweep
from gen.dtypes import DType
from gen.families.base import Array, Expected, Operand, Spec
from gen.proof.oracle import Allowance, disagreement, sharpened
from gen.runtime.arrays import Given, read

ON_HOST = 1 << 18  # elements: results of more are compared where they are
# No library lets a term pass more roundings: its threads are many, and their sums are added as a tree. The bound for
# any order whatever is of no use: for 2^26 terms in f32 it is infinite, and lets everything pass.
MOST_ROUNDINGS = 1 << 12
# A library may round partial sums to the 16 bits of its elements. Of n whole numbers from 1 to 8 of random signs, those
# are random walks of sqrt(25.5 n): what they are off by stays within eight times that, times the unit of rounding.
NARROW = 8 * 25.5**0.5
_ITSELF = Allowance(1.0, 0.0, 0.0, inf)  # what lies beside each value is the bound itself


class Comparer(Protocol):
    """What compares on the device."""

    def upload(self, content: Array) -> Any:
        """Memory on the device, with an `address`, that holds a contiguous array."""
        ...

    def download(self, address: int, size: int) -> Array:
        """Bytes from the device, after all that is queued."""
        ...

    def differing(self, got: int, expected: int, size: int, elements: int) -> int:
        """How many elements of so many bytes differ in a bit."""
        ...

    def beyond(
        self, got: int, dtype: DType, elements: int, value: int, magnitude: int, allowed: Allowance
    ) -> int:  # fmt: skip
        """How many elements lie further from the doubles expected than is allowed."""
        ...


class Judge:
    """Holds what NumPy says that a case must give, and compares."""

    def __init__(
        self, comparer: Comparer, case: Case, spec: Spec, expected: Mapping[str, Expected]
    ) -> None:  # fmt: skip
        self._comparer, self._case = comparer, case
        self._roundings = roundings(case)
        self._outputs = [(operand, expected[operand.name]) for operand in spec.operands if operand.role == "out"]
        self._kept: dict[tuple[str, str], Any] = {}

    def wrong(self, results: Sequence[Any], *, narrow: bool = False) -> str | None:
        """What is wrong with a contender's results, in words; None if they are right.

        Args:
            results: as it gives them.
            narrow: whether it may add 16-bit floats in 16 bits.
        """
        if len(results) != len(self._outputs):
            return f"it gave {len(results)} results, not {len(self._outputs)}"
        for (operand, expected), result in zip(self._outputs, results, strict=True):
            given = _read(operand, result)
            reason = _misshapen(given, tuple(np.shape(expected.value))) or self._compare(operand, expected, given)
            if reason is not None and not (narrow and self._narrow(operand, expected, given)):
                return f"{operand.name}{reason}"
        return None

    def differences(self, results: Sequence[Any]) -> list[str]:
        """Where a contender's results have another type than ours, or another accumulator."""
        found = []
        for (operand, expected), result in zip(self._outputs, results, strict=False):
            given = _read(operand, result)
            if not operand.dtype.holds(given.dtype):
                found.append(f"gives {given.dtype}, gen {operand.dtype.name}")
            elif note := self._narrow(operand, expected, given):
                found.append(note if self._compare(operand, expected, given) else "")
        return list(filter(None, found))

    def _narrow(self, operand: Operand, expected: Expected, given: Given) -> str:
        """How far sums are off whose partial sums are rounded to 16 bits; empty where that does not explain it."""
        dtype, work = operand.dtype, self._case.work
        sums = isinstance(work, Reduce) and set(work.ops) == {"sum"}
        if not sums or dtype.kind != "float" or dtype.size != 2 or not dtype.holds(given.dtype):
            return ""
        value = np.asarray(expected.value, np.float64)
        if _misshapen(given, value.shape) is not None or value.size > ON_HOST:
            return ""
        content = self._comparer.download(given.address, value.size * dtype.size)
        off = np.abs(content.view(dtype.numpy).reshape(value.shape).astype(np.float64) - value).max(initial=0.0)
        allowed = NARROW * sqrt(self._case.elements / max(value.size, 1)) * dtype.unit_roundoff
        return f"adds in {dtype.name}: off by {off:.3g}, of {allowed:.3g} that this may cost" if off <= allowed else ""

    def _compare(self, operand: Operand, expected: Expected, given: Given) -> str | None:
        exact = expected.magnitude is None or sharpened(expected, random_signs=True).magnitude is None
        roundings = 0 if exact else self._roundings
        elements = prod(given.shape)
        if elements > ON_HOST and operand.dtype.holds(given.dtype):
            return self._on_device(operand, expected, given, roundings)
        content = self._comparer.download(given.address, elements * given.dtype.itemsize)
        got = content.view(given.dtype).reshape(np.shape(expected.value))
        if not operand.dtype.holds(given.dtype):
            got = got.astype(operand.dtype.numpy)
        wrong = disagreement(expected, got, roundings, operand.dtype)
        return None if wrong is None else str(wrong)

    def _on_device(self, operand: Operand, expected: Expected, given: Given, roundings: int) -> str | None:
        elements = prod(given.shape)
        if expected.magnitude is None:
            reference = self._keep(operand.name, "bits", lambda: np.ascontiguousarray(expected.value))
            count = self._comparer.differing(given.address, reference.address, given.dtype.itemsize, elements)
        else:
            value = self._keep(operand.name, "value", lambda: np.ascontiguousarray(expected.value, np.float64))
            beside = expected.magnitude
            magnitude = self._keep(operand.name, "magnitude", lambda: np.ascontiguousarray(beside, np.float64))
            allowed = Allowance.of(expected, roundings, operand.dtype)
            count = self._comparer.beyond(
                given.address, operand.dtype, elements, value.address, magnitude.address, allowed
            )
        return f": {count} elements are wrong" if count else None

    def _keep(self, name: str, what: str, content: Callable[[], Array]) -> Any:
        """What NumPy says, on the device: made and brought there once, which may take it seconds."""
        if (name, what) not in self._kept:
            self._kept[name, what] = self._comparer.upload(content())
        return self._kept[name, what]


class CellJudge:
    """Holds what a stencil must give at every cell, in double, and how far it may be off there."""

    def __init__(self, comparer: Comparer, operand: Operand, shape: Shape, value: Shared, off: Shared) -> None:
        self._comparer, self._operand, self._shape = comparer, operand, shape
        self._value, self._off = value, off

    def wrong(self, results: Sequence[Any]) -> str | None:
        """What is wrong with a contender's results, in words; None if they are right."""
        if len(results) != 1:
            return f"it gave {len(results)} results, not 1"
        given, dtype = _read(self._operand, results[0]), self._operand.dtype
        reason = _misshapen(given, self._shape)
        if reason is None and not dtype.holds(given.dtype):
            reason = f": it holds {given.dtype}"
        if reason is None:
            count = self._comparer.beyond(
                given.address, dtype, prod(self._shape), self._value.address, self._off.address, _ITSELF
            )
            reason = f": {count} cells are wrong" if count else None
        return None if reason is None else f"{self._operand.name}{reason}"


def roundings(case: Case) -> int:
    """The most roundings on a path to a result: all that there are terms, but no more than any library has."""
    work = case.work
    if isinstance(work, Reduce):
        axes = range(len(case.shape)) if work.axes is None else work.axes
        return min(prod(case.shape[axis] for axis in axes) + 2, MOST_ROUNDINGS)
    return work.steps * (len(work.taps) + 2) if isinstance(work, Sweep) else 0


def _read(operand: Operand, result: Any) -> Given:
    given = read(operand.name, result)
    if isinstance(result, Shared):  # whose interface cannot say bfloat16
        return given._replace(dtype=result.dtype.numpy)
    return given


def _misshapen(given: Given, shape: Sequence[int]) -> str | None:
    """What is wrong with an array's shape or strides; extents of 1 may be there or not."""
    if prod(given.shape) != prod(shape) or _longer(given.shape) != _longer(shape):
        return f": its shape is {given.shape}, not {tuple(shape)}"
    return None if _is_dense(given) else ": its elements do not follow each other"


def _longer(shape: Sequence[int]) -> list[int]:
    return [extent for extent in shape if extent != 1]


def _is_dense(given: Given) -> bool:
    expected = given.dtype.itemsize
    for extent, stride in zip(reversed(given.shape), reversed(given.strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True
