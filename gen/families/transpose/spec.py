"""What a transpose computes: which axes in which order, of which elements."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from gen.dtypes import B32, DType
from gen.errors import SpecError
from gen.families.base import Operand
from gen.families.transpose.values import BITS, Values

MOST_AXES = 8
_MATRIX = (1, 0)


@dataclass(frozen=True)
class TransposeSpec:
    """A permutation of axes: axis i of the result is axis `axes[i]` of the input, as `numpy.transpose` has it.

    Attributes:
        axes: each of 0 ... n - 1 once, for n of 1 to 8.
        dtype: of an element: bits, which are moved and never read as numbers; where `values` are given, theirs.
        values: what becomes of the elements on their way; None: nothing.
        in_place: square matrices, the last two axes, change places with their transposes in the array itself.
    """

    axes: tuple[int, ...] = _MATRIX
    dtype: DType = B32
    values: Values | None = None
    in_place: bool = False

    def __post_init__(self) -> None:
        axes: Any = self.axes
        whole = isinstance(axes, tuple) and all(type(axis) is int for axis in axes)
        if not whole or sorted(axes) != list(range(len(axes))) or not 1 <= len(axes) <= MOST_AXES:
            rule = f"must hold each of 0, 1, ... once, {MOST_AXES} numbers at most, such as (1, 0)"
            raise SpecError("transpose.axes", rule, repr(axes))
        if self.values is not None and self.dtype != self.values.source:
            rule = f"must be that of its values, {self.values.source.name}"
            raise SpecError("transpose.dtype", rule, getattr(self.dtype, "name", repr(self.dtype)))
        if self.values is None and self.dtype not in BITS.values():
            rule = "must be " + ", ".join(dtype.name for dtype in BITS.values())
            raise SpecError("transpose.dtype", rule, getattr(self.dtype, "name", repr(self.dtype)))
        if self.in_place:
            self._check_in_place()

    def _check_in_place(self) -> None:
        last = len(self.axes) - 1
        if last < 1 or self.axes != (*range(last - 1), last, last - 1):
            rule = "must exchange the last two and leave the others where they are, to work in place"
            raise SpecError("transpose.axes", rule, repr(self.axes))
        if self.result.size != self.dtype.size:
            rule = f"must have elements of {self.dtype.size} bytes, as the input, to work in place"
            raise SpecError("transpose.to", rule, self.result.name)
        if self.result != self.dtype:
            raise SpecError(
                "transpose.to", "must be left out to work in place: an array keeps its type", self.result.name
            )

    @property
    def result(self) -> DType:
        """Of the result's elements."""
        return self.dtype if self.values is None else self.values.result

    @property
    def bits(self) -> DType:
        """The input's elements, as kernels move them."""
        return BITS[self.dtype.size]

    @property
    def result_bits(self) -> DType:
        """The result's elements, as kernels move them."""
        return BITS[self.result.size]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The array, and the result with its axes permuted; rows of both, their last axis, may be pitched.

        The axes of a matrix that is turned are its `rows` and `cols`, any others `axis0`, `axis1`, ... In place there
        is the one array, `data`, of square matrices of `rows` rows.
        """
        if self.in_place:
            others = tuple(f"axis{axis}" for axis in range(len(self.axes) - 2))
            return (Operand("data", "inout", self.dtype, (*others, "rows", "rows"), pitch="pitch"),)
        if self.axes == _MATRIX:
            return (
                Operand("in", "in", self.dtype, ("rows", "cols"), pitch="in_pitch"),
                Operand("out", "out", self.result, ("cols", "rows"), pitch="out_pitch"),
            )
        names = tuple(f"axis{axis}" for axis in range(len(self.axes)))
        pitched = len(names) > 1
        return (
            Operand("in", "in", self.dtype, names, pitch="in_row" if pitched else ""),
            Operand("out", "out", self.result, tuple(names[a] for a in self.axes), pitch="out_row" if pitched else ""),
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
        """For instance `10_b32`, `021_b16_in_place`, `10_f32_to_f16`."""
        what = self.dtype.name if self.values is None else self.values.label
        return "".join(str(axis) for axis in self.axes) + f"_{what}" + ("_in_place" if self.in_place else "")

    @property
    def summary(self) -> str:
        """What is computed."""
        size = self.dtype.size
        what = f"{size} byte{'s' if size > 1 else ''}"
        after = "" if self.values is None else f" Elements are {self.values.summary}"
        if self.in_place:
            return (
                f"Transposes square matrices of rows x rows elements of {what} in place, one after another; pitch "
                f"counts elements from row to row.{after}"
            )
        if self.axes == _MATRIX:
            pitches = "pitches count elements from row to row."
            return f"Transposes a matrix of rows x cols elements of {what}; {pitches}{after}"
        return (
            f"Permutes the axes of an array to {', '.join(map(str, self.axes))}; its elements have {what}. Most "
            "kernels see it as matrices of rows x cols: cols is the axis whose elements follow each other in the "
            f"input, rows that of the output.{after}"
        )

    def to_json(self) -> dict[str, Any]:
        """All fields; those that say nothing are left out."""
        content: dict[str, Any] = {"axes": list(self.axes), "dtype": self.dtype.name}
        if self.values is not None:
            content |= self.values.to_json()
        return {**content, "in_place": True} if self.in_place else content
