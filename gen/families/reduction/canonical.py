"""From the axes of an array to the few sizes that kernels know: one form for all arrays that lie alike.

Axes of extent 1 are dropped, and neighbours that are both reduced or both kept, and follow each other in memory, are
merged; axes that do not lie in memory as they follow each other in the array are taken as they lie, where that is
simpler. What is left is a matrix, most of the time:

    whole    n elements that follow each other
    rows     `outer` rows of n elements each, `outer_pitch` apart
    columns  `outer` matrices of n rows and `inner` columns, reduced along the rows, which lie `row_pitch` apart
    strided  anything else: up to 4 kept and 4 reduced axes, each with an extent and a stride
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod

from gen.errors import ShapeError
from gen.families.base import Extents, Layout
from gen.families.extents import PASS_ANOTHER, check_dtype, dense_strides, is_contiguous, lie_otherwise
from gen.families.reduction.spec import ReductionSpec

MOST_GROUPS = 4


class Form(Enum):
    """How what is reduced lies among what is kept."""

    WHOLE = "whole"
    ROWS = "rows"
    COLUMNS = "columns"
    STRIDED = "strided"


@dataclass(frozen=True)
class Group:
    """Neighbouring axes that are reduced, or kept, as one; the stride is in elements."""

    reduced: bool
    extent: int
    stride: int


def form(extents: Extents) -> Form:
    """The form of a problem."""
    if "r0" in extents:
        return Form.STRIDED
    if extents.get("inner", 1) > 1:
        return Form.COLUMNS
    return Form.ROWS if extents.get("outer", 1) != 1 else Form.WHOLE


def reduced_axes(spec: ReductionSpec, rank: int) -> tuple[int, ...]:
    """The reduced axes of an array, each from 0 to `rank` - 1. Raises ShapeError for one that it has not, or twice."""
    if spec.axis is None:
        return tuple(range(rank))
    if rank == 0 and all(axis in (0, -1) for axis in spec.axis) and len(spec.axis) <= 1:
        return ()  # as NumPy: an array without axes lets itself be reduced along its first
    has = f"in has {rank or 'no'} {'axis' if rank == 1 else 'axes'}"
    for axis in spec.axis:
        if not -rank <= axis < rank:
            rule = f"must be from {-rank} to {rank - 1}" if rank else "must be None, or one of 0 and -1"
            raise ShapeError(
                "reduction.axis",
                f"{rule}, since {has}",
                axis if rank else spec.axis,
                next_step="Name another axis, or pass an array of more",
            )
    by_axis: dict[int, int] = {}
    for axis in spec.axis:
        first = by_axis.setdefault(axis % rank, axis)
        if first != axis:
            raise ShapeError(
                "reduction.axis",
                f"must name each axis once, and {has}",
                spec.axis,
                next_step=f"Leave out one of {first} and {axis}",
            )
    return tuple(sorted(by_axis))


def result_shape(spec: ReductionSpec, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of each result."""
    axes = reduced_axes(spec, len(shape))
    if spec.keepdims:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def extents_of(spec: ReductionSpec, layouts: Mapping[str, Layout]) -> dict[str, int]:
    """The sizes of a problem: its form, and where that does not say it the array's shape and strides.

    Raises ShapeError naming operand, rule and value.
    """
    operands = {operand.name: operand for operand in spec.operands}
    for name, layout in layouts.items():
        if name not in operands:
            raise ShapeError(name, "is no operand; there are " + ", ".join(operands))
        check_dtype(operands[name], layout, wider=name != "in" and len(spec.op) == 1)
    if "in" not in layouts:
        raise ShapeError("in", "is missing")
    array = layouts["in"]
    results = result_shape(spec, array.shape)
    axes = reduced_axes(spec, len(array.shape))
    if 0 in [array.shape[axis] for axis in axes] and 0 not in results:
        for operator in spec.operators:
            if not operator.empty:
                rule = f"must have elements along the reduced axes, since {operator.name} of none is nothing"
                next_step = f"Leave out such arrays, or append an element that is to be the {operator.name} of none"
                raise ShapeError("in", rule, array.shape, next_step=next_step)
    for name, layout in layouts.items():
        if name != "in" and layout.shape != results:
            rule = f"must have shape {results}" if results else "must have no axes"
            raise ShapeError(name, rule, layout.shape, next_step=PASS_ANOTHER)
        if name != "in" and not is_contiguous(layout):
            what = f"strides {layout.strides} at shape {layout.shape}"
            raise lie_otherwise(name, "must be contiguous", what, output=True)
    if spec.axis is None and not spec.keepdims and is_contiguous(array):
        return {"n": prod(array.shape)}
    return _canonical(spec, array, axes) | _shape(array)


def layouts_of(spec: ReductionSpec, extents: Extents) -> dict[str, Layout]:
    """How the arrays of a problem lie in memory: the inverse of `extents_of`."""
    rank = sum(name[0] == "d" and name[1:].isdecimal() for name in extents)
    known = rank > 0 or "outer" in extents
    shape = tuple(extents[f"d{axis}"] for axis in range(rank)) if known else (extents["n"],)
    size = spec.dtype.size
    strides = dense_strides(shape, size)
    if "s0" in extents:
        strides = tuple(extents[f"s{axis}"] * size for axis in range(rank))
    found = {"in": Layout(shape, strides, spec.dtype.numpy)}
    results = result_shape(spec, shape)
    for name, _, dtype in spec.results:
        found[name] = Layout(results, dense_strides(results, dtype.size), dtype.numpy)
    return found


def _shape(array: Layout) -> dict[str, int]:
    """The shape, and the strides unless they are those of a contiguous array."""
    found = {f"d{axis}": extent for axis, extent in enumerate(array.shape)}
    if not is_contiguous(array):
        size = array.dtype.itemsize
        found |= {f"s{axis}": stride // size for axis, stride in enumerate(array.strides)}
    return found


def _canonical(spec: ReductionSpec, array: Layout, axes: Sequence[int]) -> dict[str, int]:
    if 0 in array.shape:  # nothing is read: only how many results there are, and of how many elements
        kept = prod(extent for axis, extent in enumerate(array.shape) if axis not in axes)
        return _matrix(kept, prod(array.shape[axis] for axis in axes), 1, 0, 0)
    for extent, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0 and extent > 1:
            raise lie_otherwise("in", "must have no negative strides", array.strides, output=False)
    orders = [_merged(array, axes, order) for order in _orders(spec, array, axes)]
    simple = next((found for found in map(_simple, orders) if found is not None), None)
    return _strided(min(orders, key=len), array) if simple is None else simple


def _simple(groups: Sequence[Group]) -> dict[str, int] | None:
    """The sizes of a whole, of rows or of columns; None if axes are none of them."""
    match [(group.reduced, group.stride) for group in groups]:
        case []:
            return _matrix(1, 1, 1, 1, 1)
        case [(True, 1)]:
            return _matrix(1, groups[0].extent, 1, groups[0].extent, 1)
        case [(False, pitch)]:
            return _matrix(groups[0].extent, 1, 1, pitch, 1)
        case [(False, pitch), (True, 1)]:
            return _matrix(groups[0].extent, groups[1].extent, 1, pitch, 1)
        case [(False, pitch), (False, 1)]:  # matrices of one row each
            return _matrix(groups[0].extent, 1, groups[1].extent, pitch, pitch)
        case [(True, pitch), (False, 1)]:
            return _matrix(1, groups[0].extent, groups[1].extent, 0, pitch)
        case [(False, outer_pitch), (True, pitch), (False, 1)]:
            return _matrix(groups[0].extent, groups[1].extent, groups[2].extent, outer_pitch, pitch)
    return None


def _orders(spec: ReductionSpec, array: Layout, axes: Sequence[int]) -> Iterator[list[int]]:
    """Orders in which a kernel may take the axes of more than one element: the array's own, and that of memory.

    Results keep the order of their axes, and so do elements where their places are counted.
    """
    own = [axis for axis, extent in enumerate(array.shape) if extent > 1]
    yield own
    lying = sorted(own, key=lambda axis: -array.strides[axis])
    counted = spec.indexed and len(axes) > 1
    fixed = [axis for axis in lying if counted or axis not in axes]
    if fixed == sorted(fixed):
        yield lying


def _merged(array: Layout, axes: Sequence[int], order: Sequence[int]) -> list[Group]:
    """Axes in this order, neighbours merged."""
    size = array.dtype.itemsize
    groups: list[Group] = []
    for axis in order:
        extent, stride = array.shape[axis], array.strides[axis]
        group = Group(axis in axes, extent, stride // size)
        last = groups[-1] if groups else None
        if last and last.reduced == group.reduced and last.stride == group.stride * extent:
            groups[-1] = Group(group.reduced, last.extent * extent, group.stride)
        else:
            groups.append(group)
    return groups


def _matrix(outer: int, n: int, inner: int, outer_pitch: int, row_pitch: int) -> dict[str, int]:
    return {"outer": outer, "n": n, "inner": inner, "outer_pitch": outer_pitch, "row_pitch": row_pitch}


def _strided(groups: Sequence[Group], array: Layout) -> dict[str, int]:
    found: dict[str, int] = {}
    for letter, reduced in (("k", False), ("r", True)):
        same = [group for group in groups if group.reduced == reduced]
        if len(same) > MOST_GROUPS:
            what = "reduced" if reduced else "kept"
            rule = f"must have at most {MOST_GROUPS} {what} axes that are not neighbours in memory"
            raise ShapeError(
                "in",
                rule,
                f"{len(same)} at shape {array.shape}",
                next_step="gen.permutation brings some of them together",
            )
        same = [Group(reduced, 1, 0)] * (MOST_GROUPS - len(same)) + same
        for place, group in enumerate(same):
            found |= {f"{letter}{place}": group.extent, f"{letter}s{place}": group.stride}
    outer = prod(group.extent for group in groups if not group.reduced)
    n = prod(group.extent for group in groups if group.reduced)
    return {"outer": outer, "n": n} | found
