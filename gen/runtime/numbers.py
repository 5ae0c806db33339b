"""Operands that are numbers, as their types store them."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from gen.errors import ArgumentError
from gen.families.base import Operand


def pack(operand: Operand, value: Any) -> bytes:
    """A number's bytes. Raises ArgumentError if its type does not hold the value; floats are rounded."""
    dtype = operand.dtype
    rule = f"must be a number that {dtype.name} holds"
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | np.number):
        raise ArgumentError(operand.name, rule, repr(value))
    number: Any = value
    try:
        if dtype.kind == "float":
            with np.errstate(over="raise"):
                return np.array(number, dtype.numpy).tobytes()
        if int(number) == number:
            return np.array(int(number), dtype.numpy).tobytes()
    except (OverflowError, FloatingPointError, ValueError, TypeError) as error:
        raise ArgumentError(operand.name, rule, repr(value)) from error
    raise ArgumentError(operand.name, rule, repr(value))
