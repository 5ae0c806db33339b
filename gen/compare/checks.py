"""Whether a contender computed what NumPy computes: by stated bounds, before it is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np

from gen.compare.case import ComparisonCase, number_type
from gen.compare.gpu import ComparisonGpu, elements_of
from gen.compare.peers.base import Contender, SharedArray, window
from gen.dtypes import F64, DType
from gen.families.base import Array, Expected, Operand
from gen.families.extents import timed_numbers
from gen.families.reduction import ReductionSpec
from gen.families.stencil import Boundary, StencilSpec
from gen.proof.error_bounds import disagreement, gamma, sharpened
from gen.runtime.arrays import Given, read

MAX_ON_HOST = 1 << 18  # elements: results of more that must be exact are compared on the GPU
# No library lets a term pass more roundings: its threads are many, and their sums are added as a tree. The bound for
# any order whatever is of no use: for 2^26 terms in f32 it is infinite, and lets everything pass.
MAX_ROUNDINGS = 1 << 12
# A library may round partial sums to the 16 bits of its elements. Of n whole numbers from 1 to 8 of random signs, those
# are random walks of sqrt(25.5 n): what they are off by stays within eight times that, times the unit roundoff.
_SUM_OFF = 8 * 25.5**0.5

Prepare = Callable[[ComparisonCase, Sequence[SharedArray]], Contender]
"""Makes a contender ready for a case and its inputs."""


def random_inputs(gpu: ComparisonGpu, case: ComparisonCase, seed: int) -> tuple[SharedArray, ...]:
    """The inputs of a case, each of elements of its own."""
    first, *others = case.inputs
    return (
        gpu.random(case.shape, number_type(first.dtype), seed, gap=case.gap, offset=case.offset),
        *(
            gpu.random(case.layouts[operand.name].shape, number_type(operand.dtype), seed + 16 * number)
            for number, operand in enumerate(others, 1)
        ),
    )


class Checks:
    """Knows what NumPy says that a case must give, or the nearest case that NumPy computes in seconds.

    Attributes:
        note: what is not checked, in words; empty for nothing.
    """

    def __init__(self, gpu: ComparisonGpu, case: ComparisonCase, inputs: Sequence[SharedArray]) -> None:
        """Asks NumPy."""
        self._gpu, self._case, self._provable = gpu, case, case.provable
        whole = self._provable is case
        self._inputs = inputs if whole else random_inputs(gpu, self._provable, 2)
        self._arrays = {
            operand.name: self._download(array, self._provable.layouts[operand.name].shape)
            for operand, array in zip(case.inputs, self._inputs, strict=True)
        }
        problem = self._provable.problem
        given = {**self._arrays, **timed_numbers(problem.spec)}
        self._expected = problem.family.oracle(problem.spec, given, problem.extents)
        self._uploaded: dict[str, SharedArray] = {}
        self._cells: tuple[Array, Array] | None = None  # of a stencil, in double, and how far a peer's may be off
        self.note = "" if whole else f"checked on {self._provable.name}"

    def wrong(self, contender: Contender, prepare: Prepare, *, roundings: int | None = None) -> str | None:
        """What is wrong with a contender's results, wherever it writes them; None if they are right.

        Args:
            contender: made ready for the case.
            prepare: makes it ready for a smaller one, where only that is checked.
            roundings: the most on a path from an input to a result, of our own kernel. None for a peer: those of any
                library, which may also add 16-bit numbers in 16 bits.
        """
        if self._provable is self._case:
            return wherever(contender, lambda results: self._compare_all(results, roundings))
        smaller = prepare(self._provable, self._inputs)
        try:
            reason = wherever(smaller, lambda results: self._compare_all(results, roundings))
        finally:
            smaller.close()
        return None if reason is None else f"on {self._provable.name}: {reason}"

    def differences(self, results: Sequence[Any]) -> list[str]:
        """Where a peer's results have another type than ours, or another accumulator."""
        found = []
        for operand, result in zip(self._case.results, results, strict=False):
            given = read(operand.name, result)
            if not operand.dtype.holds(given.dtype):
                found.append(f"gives {given.dtype}, gen {operand.dtype.name}")
            elif self._provable is self._case and (note := self._narrow_sums(operand, given)):
                found.append(note if self._compare(operand, given, self._roundings(operand)) else "")
        return list(filter(None, found))

    def _compare_all(self, results: Sequence[Any], roundings: int | None) -> str | None:
        operands = self._case.results
        if len(results) != len(operands):
            return f"it gave {len(results)} results, not {len(operands)}"
        for operand, result in zip(operands, results, strict=True):
            given = read(operand.name, result)
            reason = misshapen(given, np.shape(self._expected[operand.name].value))
            if reason is None:
                most = self._roundings(operand) if roundings is None else roundings
                reason = self._compare(operand, given, most)
                if reason is not None and roundings is None:
                    reason = self._wrong_of_peer(operand, given, reason)
            if reason is not None:
                return f"{operand.name}{reason}"
        return None

    def _roundings(self, operand: Operand) -> int:
        """The most roundings of a library on a path to a result: all its terms, but no more than any library has."""
        results = max(np.size(self._expected[operand.name].value), 1)
        return min(-(-sum(array.size for array in self._arrays.values()) // results) + 2, MAX_ROUNDINGS)

    def _compare(self, operand: Operand, given: Given, roundings: int) -> str | None:
        expected = self._expected[operand.name]
        exact = expected.magnitude is None or sharpened(expected, random_signs=True).magnitude is None
        elements = prod(given.shape)
        if expected.magnitude is None and elements > MAX_ON_HOST and operand.dtype.holds(given.dtype):
            count = self._gpu.differing(given.address, self._on_gpu(operand), given.dtype.itemsize, elements)
            return f": {count} elements are wrong" if count else None
        return self._disagreement(operand, given, expected, 0 if exact else roundings)

    def _disagreement(self, operand: Operand, given: Given, expected: Expected, roundings: int) -> str | None:
        got = self._gpu.download(given.address, prod(given.shape) * given.dtype.itemsize).view(given.dtype)
        if not operand.dtype.holds(given.dtype):
            got = got.astype(operand.dtype.numpy)
        wrong = disagreement(expected, got.reshape(np.shape(expected.value)), roundings, operand.dtype)
        return None if wrong is None else str(wrong)

    def _wrong_of_peer(self, operand: Operand, given: Given, reason: str) -> str | None:
        """What is wrong with a result that is not as gen must give it: a library may round elsewhere."""
        spec = self._case.spec
        if not isinstance(spec, StencilSpec) or not operand.dtype.holds(given.dtype):
            return None if self._narrow_sums(operand, given) else reason
        if self._cells is None:
            self._cells = bounded(spec, self._arrays["in"], self._provable.extents.get("steps", 1))
        value, off = self._cells
        got = self._gpu.download(given.address, value.size * operand.dtype.size).view(given.dtype)
        count = int((~(np.abs(got.astype(np.float64).reshape(value.shape) - value) <= off)).sum())
        return f": {count} cells are wrong" if count else None

    def _narrow_sums(self, operand: Operand, given: Given) -> str:
        """How far sums are off whose partial sums are rounded to 16 bits; empty where that does not explain it."""
        dtype, spec = operand.dtype, self._case.spec
        sums = isinstance(spec, ReductionSpec) and spec.op == ("sum",)
        value = np.asarray(self._expected[operand.name].value, np.float64)
        if not sums or not _is_narrow(dtype) or not dtype.holds(given.dtype) or misshapen(given, value.shape):
            return ""
        content = self._gpu.download(given.address, value.size * dtype.size)
        off = np.abs(content.view(dtype.numpy).reshape(value.shape).astype(np.float64) - value).max(initial=0.0)
        allowed = _SUM_OFF * sqrt(self._case.elements / max(value.size, 1)) * dtype.unit_roundoff
        return f"adds in {dtype.name}: off by {off:.3g}, of {allowed:.3g} that this may cost" if off <= allowed else ""

    def _on_gpu(self, operand: Operand) -> int:
        """The address of what NumPy says: brought there once, which may take seconds."""
        if operand.name not in self._uploaded:
            self._uploaded[operand.name] = self._gpu.upload(np.ascontiguousarray(self._expected[operand.name].value))
        return self._uploaded[operand.name].address

    def _download(self, array: SharedArray, shape: Sequence[int]) -> Array:
        return elements_of(array, self._gpu.download(array.address, array.nbytes)).reshape(shape)


def wherever(contender: Contender, wrong: Callable[[Sequence[Any]], str | None]) -> str | None:
    """What is wrong with a contender's results in the first place where they are."""
    for number in range(contender.places):
        contender.use(number)
        reason = wrong(contender.launch())
        if reason is not None:
            return reason
    return None


def misshapen(given: Given, shape: Sequence[int]) -> str | None:
    """What is wrong with an array's shape or strides; extents of 1 may be there or not."""
    if [extent for extent in given.shape if extent != 1] != [extent for extent in shape if extent != 1]:
        return f": its shape is {given.shape}, not {tuple(shape)}"
    expected = given.dtype.itemsize
    for extent, stride in zip(reversed(given.shape), reversed(given.strides), strict=True):
        if extent > 1 and stride != expected:
            return ": its elements do not follow each other"
        expected *= extent
    return None


def _is_narrow(dtype: DType) -> bool:
    return dtype.kind == "float" and dtype.size == 2


_PAD_MODES: Mapping[Boundary, Any] = {
    "constant": "constant", "nearest": "edge", "reflect": "symmetric", "mirror": "reflect", "wrap": "wrap",
    "frozen": "edge",
}  # fmt: skip


@dataclass(frozen=True)
class Rounding:
    """What a step costs: `relative` of the sum of |w u|, and `absolute`, for what underflows."""

    relative: float
    absolute: float

    @classmethod
    def of(cls, spec: StencilSpec) -> Rounding:
        """That of any library that steps in the type of the cells; and of the double that says what is right."""
        roundings, dtype = max(len(spec.taps), spec.roundings) + 2, spec.dtype
        relative = gamma(roundings, dtype.unit_roundoff) + gamma(roundings, F64.unit_roundoff)
        return cls(relative, roundings * dtype.smallest)


def stepped(
    spec: StencilSpec, rounding: Rounding, value: Array, off: Array, frozen: Array
) -> tuple[Array, Array]:  # fmt: skip
    """One step in double, of all cells whose neighbours lie within the arrays.

    Args:
        spec: what is computed.
        rounding: what a step costs.
        value: cells.
        off: how far each may be off.
        frozen: which of them stay as they are.

    Returns:
        Cells, and how far they may be off, of as many fewer along each axis as the weights reach.
    """
    inner = window(spec, (0,) * len(spec.axes))
    total, error = np.zeros(value[inner].shape), np.full(value[inner].shape, rounding.absolute)
    costs = off + rounding.relative * (np.abs(value) + off)  # of a neighbour of weight 1
    for offset, weight in spec.taps:
        there = window(spec, offset)
        total += weight * value[there]
        error += abs(weight) * costs[there]
    stay = frozen[inner]
    return np.where(stay, value[inner], total), np.where(stay, off[inner], error)


def bounded(spec: StencilSpec, cells: Array, steps: int) -> tuple[Array, Array]:
    """The cells of a whole array after so many steps, in double, and how far each may be off."""
    value, off, rounding = cells.astype(np.float64), np.zeros(cells.shape), Rounding.of(spec)
    frozen = np.zeros(cells.shape, bool)
    for axis, (boundary, before, after) in enumerate(zip(spec.boundaries, spec.before, spec.after, strict=True)):
        if boundary == "frozen":
            place = np.arange(cells.shape[axis])
            rim = (place < before) | (place >= cells.shape[axis] - after)
            frozen |= rim.reshape([-1 if other == axis else 1 for other in range(cells.ndim)])
    around = _padded(spec, frozen, 0)
    for _ in range(steps):
        value, off = stepped(spec, rounding, _padded(spec, value, spec.cval), _padded(spec, off, 0), around)
    return value, off


def _padded(spec: StencilSpec, array: Array, outside: float) -> Array:
    """An array with what lies outside around it."""
    # No library is asked for ends that differ.
    for axis, ((boundary, _), *reach) in enumerate(zip(spec.ends, spec.before, spec.after, strict=True)):
        widths = [tuple(reach) if other == axis else (0, 0) for other in range(array.ndim)]
        options = {"constant_values": outside} if boundary == "constant" else {}
        array = np.pad(array, widths, _PAD_MODES[boundary], **options)
    return array
