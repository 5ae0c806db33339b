"""How the elements of an array lie in memory, and how service kernels read one."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from gen.dtypes import DType
from gen.errors import ShapeError
from gen.families.base import Layout

# As kernels.cu numbers them.
_KINDS = {"f32": 1, "f64": 2, "f16": 3, "bf16": 4, "bool": 5}


def kind_of(dtype: DType) -> int:
    """How service kernels read an element: as a floating-point number, as a truth value, or as bits."""
    return _KINDS.get(dtype.name, 0)


@dataclass(frozen=True)
class Rows:
    """How the elements of an array lie: `count` rows of `elements` of `size` bytes, `pitch` bytes apart.

    An array whose elements all follow each other is one row.
    """

    count: int
    elements: int
    size: int
    pitch: int

    @classmethod
    def of(cls, layout: Layout) -> Rows:
        """Those of an array. Raises ShapeError if its rows are not equally far apart."""
        size = layout.dtype.itemsize
        if 0 in layout.shape:
            return cls(0, 0, size, 0)
        axes = [(n, stride) for n, stride in zip(layout.shape, layout.strides, strict=True) if n > 1]
        elements = 1
        while axes and axes[-1][1] == elements * size:
            elements *= axes.pop()[0]
        pitch = axes[-1][1] if axes else elements * size
        expected = pitch
        for n, stride in reversed(axes):
            if stride != expected:
                raise ShapeError("An array", "must have rows that are equally far apart", layout)
            expected *= n
        return cls(prod(n for n, _ in axes), elements, size, pitch)

    @property
    def has_gaps(self) -> bool:
        """Whether bytes between the first and the last element belong to none."""
        return self.count > 1 and self.pitch > self.elements * self.size

    @property
    def total(self) -> int:
        """All elements."""
        return self.count * self.elements

    @property
    def span(self) -> int:
        """Bytes from the first element to the last."""
        return (self.count - 1) * self.pitch + self.elements * self.size if self.total else 0
