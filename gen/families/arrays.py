"""The arrays and numbers of a call: what they are called, which axes they have, and how they lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gen.dtypes import DType

Array = np.ndarray[Any, Any]
Extents = Mapping[str, int]
"""Run-time sizes by name: `{"rows": 4097, "cols": 8191, "in_pitch": 8192, "out_pitch": 4097}`."""

WIDEST = 16  # bytes: no kernel asks for a larger alignment

Role = Literal["in", "out", "inout", "number"]


@dataclass(frozen=True)
class Operand:
    """One array or number of a call, in the user's order.

    Attributes:
        axes: the extents that are its shape, slowest first, a number for one that is always the same; none for a
            number or a 0-d array.
        pitch: the extent that counts elements from one row to the next; empty where rows follow each other.
    """

    name: str
    role: Role
    dtype: DType
    axes: tuple[str | int, ...] = ()
    pitch: str = ""


@dataclass(frozen=True)
class Layout:
    """How an array lies in memory: shape, strides in bytes, element, and the bytes that divide base and strides."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    alignment: int = 16

    @classmethod
    def of(cls, array: Array) -> Layout:
        """The layout of a NumPy array."""
        address = array.__array_interface__["data"][0]
        return cls(array.shape, array.strides, array.dtype, int(np.gcd.reduce([256, address, *array.strides])))
