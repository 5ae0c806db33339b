"""What a transpose computes: which axes in which order, of which elements."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from gen.dtypes import B8, B16, B32, B64, B128, DTYPES, DType
from gen.errors import SpecError
from gen.families.base import Operand

MOST_AXES = 8
BITS = {dtype.size: dtype for dtype in (B8, B16, B32, B64, B128)}
_MATRIX = (1, 0)


@dataclass(frozen=True)
class TransposeSpec:
    """A permutation of axes: axis i of the result is axis `axes[i]` of the input, as `numpy.transpose` has it.

    Attributes:
        axes: each of 0 ... n - 1 once, for n of 1 to 8.
        dtype: bits of an element; elements are moved, never read as numbers.
    """

    axes: tuple[int, ...] = _MATRIX
    dtype: DType = B32

    def __post_init__(self) -> None:
        axes: Any = self.axes
        whole = isinstance(axes, tuple) and all(type(axis) is int for axis in axes)
        if not whole or sorted(axes) != list(range(len(axes))) or not 1 <= len(axes) <= MOST_AXES:
            rule = f"must hold each of 0, 1, ... once, {MOST_AXES} numbers at most, such as (1, 0)"
            raise SpecError("TransposeSpec.axes", rule, repr(axes))
        if self.dtype not in BITS.values():
            rule = "must be " + ", ".join(dtype.name for dtype in BITS.values())
            raise SpecError("TransposeSpec.dtype", rule, getattr(self.dtype, "name", repr(self.dtype)))

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The array, and the result with its axes permuted; rows of both, their last axis, may be pitched.

        The axes of a matrix that is turned are its `rows` and `cols`, any others `axis0`, `axis1`, ...
        """
        if self.axes == _MATRIX:
            return (
                Operand("in", "in", self.dtype, ("rows", "cols"), pitch="in_pitch"),
                Operand("out", "out", self.dtype, ("cols", "rows"), pitch="out_pitch"),
            )
        names = tuple(f"axis{axis}" for axis in range(len(self.axes)))
        pitched = len(names) > 1
        return (
            Operand("in", "in", self.dtype, names, pitch="in_row" if pitched else ""),
            Operand("out", "out", self.dtype, tuple(names[a] for a in self.axes), pitch="out_row" if pitched else ""),
        )

    @cached_property
    def batches(self) -> int:
        """Axes that are left, at most, beside those of the matrix that a tile is cut from.

        Neighbours that stay neighbours are one axis, but for the last two of an array, which a pitch may part.
        """
        axes, last = self.axes, len(self.axes) - 1
        merged = sum(
            after == before + 1 and after != last and place + 1 != last
            for place, (before, after) in enumerate(pairwise(axes))
        )
        return last - merged - (axes[last] != last)

    @property
    def label(self) -> str:
        """For instance `10_b32`."""
        return "".join(str(axis) for axis in self.axes) + f"_{self.dtype.name}"

    @property
    def summary(self) -> str:
        """What is computed."""
        size = self.dtype.size
        what = f"{size} byte{'s' if size > 1 else ''}"
        if self.axes == _MATRIX:
            return f"Transposes a matrix of rows x cols elements of {what}; pitches count elements from row to row."
        return (
            f"Permutes the axes of an array to {', '.join(map(str, self.axes))}; its elements have {what}. It is seen "
            "as matrices of rows x cols: cols is the axis whose elements follow each other in the input, rows that of "
            "the output."
        )

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {"axes": list(self.axes), "dtype": self.dtype.name}


def transpose(axes: Any = _MATRIX, dtype: Any = "float32") -> TransposeSpec:
    """The spec that `gen.load` takes: axis i of the result is axis `axes[i]` of the input.

    Args:
        axes: as for `numpy.transpose`: each of 0 ... n - 1 once, for n of 1 to 8; -1 is the last.
        dtype: of the elements, as NumPy takes it, or `bfloat16`, or gen's name of it (`f16`, `b32`): anything of 1, 2,
            4, 8 or 16 bytes, structured dtypes too. Elements are moved as bits, so all dtypes of a size share a spec.

    Raises:
        SpecError: the axes are no permutation, or elements have another size.
    """
    try:
        given = tuple(int(axis) for axis in axes)
    except (TypeError, ValueError) as error:
        raise SpecError("axes", "must be a sequence of whole numbers", repr(axes)) from error
    positive = tuple(axis + len(given) if -len(given) <= axis < 0 else axis for axis in given)
    return TransposeSpec(positive, bits_of(dtype))


def bits_of(dtype: Any) -> DType:
    """The bits that elements of a dtype are moved as. Raises SpecError if there are none of its size."""
    if isinstance(dtype, DType):
        size = dtype.size
    elif isinstance(dtype, str) and dtype in DTYPES:
        size = DTYPES[dtype].size
    elif isinstance(dtype, str) and dtype == "bfloat16":
        size = 2
    else:
        try:
            known = np.dtype(dtype)
        except TypeError as error:
            raise SpecError("dtype", "must be one that NumPy knows, or bfloat16", repr(dtype)) from error
        if known.hasobject:
            raise SpecError("dtype", "must not hold Python objects", repr(dtype))
        size = known.itemsize
    if size not in BITS:
        raise SpecError("dtype", "must have elements of 1, 2, 4, 8 or 16 bytes", f"{dtype}: {size} bytes")
    return BITS[size]
