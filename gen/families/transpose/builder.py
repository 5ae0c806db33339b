"""Transposes in a line of Python: the spec that `gen.load` takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from gen.dtypes import BF16, DTYPES, DType, numpy_dtype, python_int
from gen.errors import SpecError
from gen.families.transpose.spec import MOST_AXES, TransposeSpec
from gen.families.transpose.values import BITS, NUMBERS, Values

_WORDS = {**DTYPES, **NUMBERS, "bfloat16": BF16}
"""Names of dtypes that go before NumPy's: `i8` has 8 bits."""


def transpose(
    axes: Any = (1, 0),
    dtype: Any = "float32",
    *,
    to: Any = None,
    alpha: float | None = None,
    conjugate: bool = False,
    saturate: bool = False,
    in_place: bool = False,
) -> TransposeSpec:
    """The spec that `gen.load` takes: axis i of the result is axis `axes[i]` of the input.

    Args:
        axes: as for `numpy.transpose`: a sequence (tuple, list, array of one axis, range) of each of 0 ... n - 1 once,
            for n of 1 to 8; -1 is the last.
        dtype: of the elements, as NumPy takes it, or `bfloat16`, or, which goes first, gen's name of it (`f16`, `b32`,
            `i8` of 8 bits): anything of 1, 2, 4, 8 or 16 bytes, structured dtypes too. Elements are moved as bits, so
            all dtypes of a size share a spec, unless one of the following changes them.
        to: the result's dtype, where it is another.
        alpha: a factor: the result is `alpha` times the input. See `Values` for how often it is rounded.
        conjugate: the result holds the conjugates of complex numbers.
        saturate: what an integer result does not hold becomes the nearest number that it does, NaN 0. Without it such
            a result is refused.
        in_place: square matrices, the last two axes, are transposed where they are: `kernel(a)` changes `a`.

    Raises:
        SpecError: the axes are no permutation, elements have another size, or an argument makes no sense with another;
            it names the argument, the rule and the value.
    """
    given = _in_order(axes)
    if given is None or any(type(axis) is not int for axis in given):
        rule, step = "must be a sequence of whole numbers", "Give a tuple, in the order of the result's axes"
        raise SpecError("transpose.axes", rule, repr(axes), next_step=step)
    positive = tuple(axis + len(given) if -len(given) <= axis < 0 else axis for axis in given)
    if sorted(positive) != list(range(len(given))) or not 1 <= len(given) <= MOST_AXES:
        rule = f"must hold each of 0, 1, ... once, {MOST_AXES} numbers at most, such as (1, 0)"
        raise SpecError("transpose.axes", rule, repr(axes))
    if not isinstance(in_place, bool):
        raise SpecError("transpose.in_place", "must be True or False", repr(in_place))
    if to is None and alpha is None and conjugate is False and saturate is False:
        return TransposeSpec(positive, bits_of(dtype), in_place=in_place)
    source = number_of(dtype, "transpose.dtype")
    result = source if to is None else number_of(to, "transpose.to")
    if result == source and alpha is None and conjugate is False and saturate is False:
        return TransposeSpec(positive, bits_of(dtype), in_place=in_place)  # nothing changes
    return TransposeSpec(positive, source, Values(source, result, alpha, conjugate, saturate), in_place)


def _in_order(axes: Any) -> tuple[Any, ...] | None:
    """What axes may hold, and one more at most; None where they are no sequence.

    Sets have no order, and that of a mapping is of its keys. What is gone once it is read (generators) is refused, as
    NumPy does: no error could show it. Bytes are numbers by accident.
    """
    if isinstance(axes, np.ndarray):
        is_sequence = axes.ndim == 1
    else:
        is_sequence = isinstance(axes, Sequence) and not isinstance(axes, str | bytes | bytearray | memoryview)
    return tuple(python_int(axis) for axis in islice(axes, MOST_AXES + 1)) if is_sequence else None


def bits_of(dtype: Any) -> DType:
    """The bits that elements of a dtype are moved as. Raises SpecError if there are none of its size."""
    if isinstance(dtype, DType):
        size = dtype.size
    elif isinstance(dtype, str) and dtype in _WORDS:
        size = _WORDS[dtype].size
    else:
        known = numpy_dtype(dtype)
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
    word = _WORDS.get(dtype) if isinstance(dtype, str) else dtype
    if isinstance(word, DType):
        found = word if word in NUMBERS.values() else None
    else:
        known = numpy_dtype(dtype)
        found = next((number for number in NUMBERS.values() if known is not None and number.numpy == known), None)
    if found is None:
        rule = "must be one of " + ", ".join(NUMBERS) + " where numbers change"
        bits = isinstance(word, DType) and word.kind == "bits"
        next_step = "Bits are moved as they are: say which numbers they stand for" if bits else ""
        raise SpecError(subject, rule, repr(dtype), next_step=next_step)
    return found
