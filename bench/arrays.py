"""Arrays on a device that every library reads in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from bench.works import Shape
from gen.dtypes import DType


@dataclass(frozen=True)
class Shared:
    """A dense array in a device's memory.

    Attributes:
        address: of its first byte.
        owner: what keeps the memory.
    """

    address: int
    shape: Shape
    dtype: DType
    owner: Any = field(default=None, repr=False, compare=False)

    @property
    def elements(self) -> int:
        """How many."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """All of it."""
        return self.elements * self.dtype.size

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3, which has no bfloat16: libraries see its bits as short integers, and are told."""
        typestr = "<i2" if self.dtype.name == "bf16" else self.dtype.numpy.str
        return {
            "shape": self.shape, "typestr": typestr, "data": (self.address, False), "strides": None, "version": 3,
            "stream": None,
        }  # fmt: skip
