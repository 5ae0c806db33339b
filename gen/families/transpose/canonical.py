"""Any permutation as matrices: axes of extent 1 dropped, neighbours merged, the two axes that matter found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gen.families.base import Extents


@dataclass(frozen=True)
class Axis:
    """One axis of a problem; strides in elements."""

    extent: int
    in_stride: int
    out_stride: int

    def continues(self, inner: Axis) -> bool:
        """Whether this axis and the next faster one are, in both arrays, one long axis."""
        return (
            self.in_stride == inner.extent * inner.in_stride and self.out_stride == inner.extent * inner.out_stride
        )  # fmt: skip


@dataclass(frozen=True)
class Canonical:
    """A permutation as a batch of matrices, each of which is turned.

    Element (row, col) is read at `row * in_pitch + col` and written at `col * out_pitch + row`, both from where its
    matrix begins. Where the fastest axis stays the fastest, rows is 1 and out_pitch is 1: cols elements are copied.

    Attributes:
        batch: the other axes, in the order of the output.
    """

    rows: int
    cols: int
    in_pitch: int
    out_pitch: int
    batch: tuple[Axis, ...]

    def extents(self, most: int) -> Extents:
        """By name: `batch0`, its strides `batch0_in` and `batch0_out`, and so on; those not needed have extent 1."""
        found = {"rows": self.rows, "cols": self.cols, "in_pitch": self.in_pitch, "out_pitch": self.out_pitch}
        padded = (Axis(1, 0, 0),) * (most - len(self.batch)) + self.batch
        for place, axis in enumerate(padded):
            name = f"batch{place}"
            found |= {name: axis.extent, f"{name}_in": axis.in_stride, f"{name}_out": axis.out_stride}
        return found


def canonical(shape: Sequence[int], in_strides: Sequence[int], out_strides: Sequence[int]) -> Canonical:
    """The canonical form of a permutation; shape and strides by axis of the input, strides in elements."""
    if 0 in shape:
        return Canonical(0, 0, 0, 0, ())
    axes = merged([Axis(*axis) for axis in zip(shape, in_strides, out_strides, strict=True) if axis[0] > 1])
    col = next((axis for axis in axes if axis.in_stride == 1), None)
    row = next((axis for axis in axes if axis.out_stride == 1), None)
    batch = sorted((a for a in axes if a is not col and a is not row), key=lambda axis: -axis.out_stride)
    if row is col:
        row = None
    rows, cols = row.extent if row else 1, col.extent if col else 1
    return Canonical(
        rows, cols, row.in_stride if row else cols, col.out_stride if col else rows, tuple(batch)
    )  # fmt: skip


def merged(axes: Sequence[Axis]) -> list[Axis]:
    """The axes, slowest in the input first, with every two that are one long axis merged."""
    found: list[Axis] = []
    for axis in axes:
        if found and found[-1].continues(axis):
            found[-1] = Axis(found[-1].extent * axis.extent, axis.in_stride, axis.out_stride)
        else:
            found.append(axis)
    return found
