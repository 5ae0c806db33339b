"""What a transpose computes: which axes in which order, of which elements. `permutation` makes specs for `gen.load`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import Any
from zlib import crc32

import numpy as np

from gen.dtypes import B32, BF16, DTYPES, DType, check_one_meaning, find_dtype, numpy_dtype, python_int, read_dtype
from gen.errors import SpecError
from gen.families.base import Operand, ShownSpec
from gen.families.transpose.values import BITS, NUMBERS, Values

MAX_AXES = 8
_MATRIX = (1, 0)
_WORDS = {**DTYPES, **NUMBERS, "bfloat16": BF16}
"""Names of dtypes that NumPy does not have."""


@dataclass(frozen=True)
class TransposeSpec(ShownSpec):
    """A permutation of axes: axis i of the result is axis `axes[i]` of the input, as `numpy.transpose` has it.

    Attributes:
        axes: each of 0 ... n - 1 once, for n of 1 to 8.
        dtype: of an element: bits, which are moved and never read as numbers; where `values` are given, theirs.
        values: what becomes of the elements on their way; None: nothing.
        in_place: square matrices, the last two axes, change places with their transposes in the array itself.
        strided: of three axes and more, both arrays may have gaps after any axis, as parts of larger ones have, and not
            after rows alone.
    """

    axes: tuple[int, ...] = _MATRIX
    dtype: DType = B32
    values: Values | None = None
    in_place: bool = False
    strided: bool = False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Found once, of the label, so that other processes share it."""
        return crc32(self.label.encode())

    def __post_init__(self) -> None:
        axes: Any = self.axes
        whole = isinstance(axes, tuple) and all(type(axis) is int for axis in axes)
        if not whole or sorted(axes) != list(range(len(axes))) or not 1 <= len(axes) <= MAX_AXES:
            rule = f"must hold each of 0, 1, ... once, {MAX_AXES} numbers at most, such as (1, 0)"
            raise SpecError("transpose.axes", rule, repr(axes))
        if self.values is not None and self.dtype != self.values.source:
            rule = f"must be that of its values, {self.values.source.name}"
            raise SpecError("transpose.dtype", rule, getattr(self.dtype, "name", repr(self.dtype)))
        if self.values is None and self.dtype not in BITS.values():
            rule = "must be " + ", ".join(dtype.name for dtype in BITS.values())
            raise SpecError("transpose.dtype", rule, getattr(self.dtype, "name", repr(self.dtype)))
        if self.in_place:
            self._check_in_place()
        if self.strided not in (False, True) or (self.strided and self.in_place):
            raise SpecError("transpose.strided", "must be False in place, else True or False", repr(self.strided))
        if self.strided and len(self.axes) < 3:
            object.__setattr__(self, "strided", False)  # rows are all that may have gaps after them

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

    @cached_property
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
        pitched = len(names) > 1 and not self.strided
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
        merged = (
            0
            if self.strided
            else sum(
                after == before + 1 and after != last and place + 1 != last
                for place, (before, after) in enumerate(pairwise(axes))
            )
        )
        return last - merged - (axes[last] != last)

    @property
    def label(self) -> str:
        """For instance `10_b32`, `021_b16_in_place`, `10_f32_to_f16`."""
        what = self.dtype.name if self.values is None else self.values.label
        return (
            "".join(str(axis) for axis in self.axes)
            + f"_{what}"
            + ("_in_place" if self.in_place else "_strided" if self.strided else "")
        )

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
        gaps = " Both arrays may have gaps after any axis." if self.strided else ""
        return (
            f"Permutes the axes of an array to {', '.join(map(str, self.axes))}; its elements have {what}. Most "
            "kernels see it as matrices of rows x cols: cols is the axis whose elements follow each other in the "
            f"input, rows that of the output.{gaps}{after}"
        )

    def to_json(self) -> dict[str, Any]:
        """All fields; those that say nothing are left out."""
        content: dict[str, Any] = {"axes": list(self.axes), "dtype": self.dtype.name}
        if self.values is not None:
            content |= self.values.to_json()
        if self.strided:
            return {**content, "strided": True}
        return {**content, "in_place": True} if self.in_place else content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TransposeSpec:
        """The inverse of `to_json`."""
        axes: Any = content.get("axes")
        order = tuple(axes) if isinstance(axes, list) else axes
        values = Values.from_json(content) if "to" in content else None
        in_place: Any = content.get("in_place", False)
        if not isinstance(in_place, bool):
            raise SpecError("transpose.in_place", "must be True or False", repr(in_place))
        dtype = values.source if values else read_dtype(content.get("dtype"), "transpose.dtype")
        return cls(order, dtype, values, in_place, content.get("strided", False))

    @classmethod
    def from_label(cls, label: str) -> TransposeSpec | None:
        """The spec of `{axes}_{dtype}` or `{axes}_{values}`, then perhaps `_in_place` or `_strided`; else None."""
        axes, _, what = label.removesuffix("_in_place").removesuffix("_strided").partition("_")
        if not axes.isdecimal():
            return None
        order = tuple(int(axis) for axis in axes)
        in_place, strided = label.endswith("_in_place"), label.endswith("_strided")
        if what in DTYPES:
            return cls(order, DTYPES[what], None, in_place, strided)
        values = Values.from_words(what.split("_"))
        return None if values is None else cls(order, values.source, values, in_place, strided)


def permutation(
    axes: Any = (1, 0),
    dtype: Any = "float32",
    *,
    to: Any = None,
    alpha: float | None = None,
    conjugate: bool = False,
    saturate: bool = False,
    in_place: bool = False,
    strided: bool = False,
) -> TransposeSpec:
    """The spec that `gen.load` takes: axis i of the result is axis `axes[i]` of the input.

    Args:
        axes: as for `numpy.transpose`: a sequence (tuple, list, array of one axis, range) of each of 0 ... n - 1 once,
            for n of 1 to 8; -1 is the last.
        dtype: of the elements, as NumPy takes it, or `bfloat16`, or gen's name of it (`f32`, `b16`) where that is no
            other type in NumPy: anything of 1, 2, 4, 8 or 16 bytes, structured dtypes too. Elements are moved as bits,
            so all dtypes of a size share a spec, unless one of the following changes them.
        to: the result's dtype, where it is another.
        alpha: a factor: the result is `alpha` times the input. See `Values` for how often it is rounded.
        conjugate: the result holds the conjugates of complex numbers.
        saturate: what an integer result does not hold becomes the nearest number that it does, NaN 0. Without it such
            a result is refused.
        in_place: square matrices, the last two axes, are transposed where they are: `kernel(a)` changes `a`.
        strided: the arrays may have gaps after any axis, as parts of larger arrays have; else after rows alone.

    Raises:
        SpecError: the axes are no permutation, elements have another size, or an argument makes no sense with another;
            it names the argument, the rule and the value.
    """
    given = _in_order(axes)
    if given is None or any(type(axis) is not int for axis in given):
        rule, step = "must be a sequence of whole numbers", "Give a tuple, in the order of the result's axes"
        raise SpecError("transpose.axes", rule, repr(axes), next_step=step)
    positive = tuple(axis + len(given) if -len(given) <= axis < 0 else axis for axis in given)
    if sorted(positive) != list(range(len(given))) or not 1 <= len(given) <= MAX_AXES:
        rule = f"must hold each of 0, 1, ... once, {MAX_AXES} numbers at most, such as (1, 0)"
        raise SpecError("transpose.axes", rule, repr(axes))
    if not isinstance(in_place, bool):
        raise SpecError("transpose.in_place", "must be True or False", repr(in_place))
    if to is None and alpha is None and conjugate is False and saturate is False:
        return TransposeSpec(positive, bits_of(dtype), None, in_place, strided)
    source = number_of(dtype, "transpose.dtype")
    result = source if to is None else number_of(to, "transpose.to")
    if result == source and alpha is None and conjugate is False and saturate is False:
        return TransposeSpec(positive, bits_of(dtype), None, in_place, strided)  # nothing changes
    return TransposeSpec(positive, source, Values(source, result, alpha, conjugate, saturate), in_place, strided)


def _in_order(axes: Any) -> tuple[Any, ...] | None:
    """What axes may hold, and one more at most; None where they are no sequence.

    Sets have no order, and that of a mapping is of its keys. What is gone once it is read (generators) is refused, as
    NumPy does: no error could show it. Bytes are numbers by accident.
    """
    if isinstance(axes, np.ndarray):
        is_sequence = axes.ndim == 1
    else:
        is_sequence = isinstance(axes, Sequence) and not isinstance(axes, str | bytes | bytearray | memoryview)
    return tuple(python_int(axis) for axis in islice(axes, MAX_AXES + 1)) if is_sequence else None


def bits_of(dtype: Any) -> DType:
    """The bits that elements of a dtype are moved as. Raises SpecError if there are none of its size."""
    if isinstance(dtype, DType):
        size = dtype.size
    else:
        known = numpy_dtype(dtype)
        if isinstance(dtype, str):
            check_one_meaning(dtype, known, "transpose.dtype")
            known = _WORDS[dtype].numpy if dtype in _WORDS else known
        if known is None:
            rule = "must be one that NumPy knows, or one of " + ", ".join(_WORDS)
            raise SpecError("transpose.dtype", rule, repr(dtype))
        if known.hasobject:
            raise SpecError("transpose.dtype", "must not hold Python objects", repr(dtype))
        size = known.itemsize
    if size not in BITS:
        raise SpecError("transpose.dtype", "must have elements of 1, 2, 4, 8 or 16 bytes", f"{dtype}: {size} bytes")
    return BITS[size]


def number_of(dtype: Any, subject: str) -> DType:
    """The type of numbers that is meant. Raises SpecError, about `subject`, if it is none that gen computes with."""
    word = dtype
    if isinstance(dtype, str):
        check_one_meaning(dtype, numpy_dtype(dtype), subject)
        word = _WORDS.get(dtype, dtype)
    found = find_dtype(word, NUMBERS.values(), subject)
    if found is None:
        rule = "must be one of " + ", ".join(NUMBERS) + " where numbers change"
        bits = isinstance(word, DType) and word.kind == "bits"
        next_step = "Bits are moved as they are: say which numbers they stand for" if bits else ""
        raise SpecError(subject, rule, repr(dtype), next_step=next_step)
    return found
