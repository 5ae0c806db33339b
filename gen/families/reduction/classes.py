"""Shape classes of reductions: which sizes share a tuned variant, and what stands for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from gen.families.base import Extents, Layout
from gen.families.extents import dense_strides
from gen.families.reduction import rows
from gen.families.reduction.canonical import Form, extents_of, form
from gen.families.reduction.spec import ReductionSpec


class ShapeClass(Enum):
    """The form of a problem and its size, in words."""

    FEW = "at most 2^12 elements"
    SMALL = "2^12 to 2^15 elements"
    MIDDLE = "2^15 to 2^20 elements"
    LARGE = "more than 2^20 elements"
    TINY_ROWS = "rows of at most 16 elements"
    SHORT_ROWS = "rows of 17 to 128 elements"
    ROWS = "rows of 129 to 2048 elements"
    LONG_ROWS = "rows of more than 2048 elements"
    FEW_LONG_ROWS = "fewer than 256 rows of more than 2^15 elements"
    TALL_COLUMNS = "at most 32 columns"
    COLUMNS = "33 to 1024 columns"
    SHORT_COLUMNS = "512 or more columns of at most 16 elements"
    WIDE_COLUMNS = "more than 1024 columns, or several matrices"
    STRIDED = "several axes between others, or gaps"


_REPRESENTATIVE = {  # outer, n, inner
    ShapeClass.FEW: (1, 2**10, 1),
    ShapeClass.SMALL: (1, 2**15, 1),
    ShapeClass.MIDDLE: (1, 2**20, 1),
    ShapeClass.LARGE: (1, 2**28, 1),
    ShapeClass.TINY_ROWS: (2**21, 8, 1),
    ShapeClass.SHORT_ROWS: (2**18, 64, 1),
    ShapeClass.ROWS: (2**15, 512, 1),
    ShapeClass.LONG_ROWS: (4096, 4096, 1),
    ShapeClass.FEW_LONG_ROWS: (4, 2**24, 1),
    ShapeClass.TALL_COLUMNS: (1, 10**7, 8),
    ShapeClass.COLUMNS: (1, 2**18, 64),
    ShapeClass.SHORT_COLUMNS: (1, 4, 2**24),
    ShapeClass.WIDE_COLUMNS: (1, 4096, 4096),
}
_SIZES = (0, 1, 2, 3, 4, 5, 31, 32, 33, 127, 300, 1021, 1024, 4100, 5000, 8191, 32768, 33 * 1031)
_MATRICES = (
    (0, 5, 1), (5, 0, 1), (5, 0, 3), (1, 1, 1), (3, 1, 1), (37, 3, 1), (301, 8, 1), (65, 33, 1), (7, 1030, 1),
    (2, 9001, 1), (1, 5, 3), (1, 700, 3), (1, 1000, 8), (1, 333, 37), (1, 260, 64), (1, 9, 300), (1, 17, 1029),
    (3, 40, 5), (2, 9, 130), (1, 5, 1), (1, 33, 1), (1, 1021, 1), (1, 33 * 1031, 1),
)  # fmt: skip
_APART = ((1, 300, 1), (1, 1021, 1), (7, 13, 1), (1, 9, 30))  # elements that do not follow each other
_KEPT: tuple[tuple[int, ...], ...] = (
    (),
    (1,),
    (1, 1),
    (1, 1, 1),
    (0,),
    (37,),
    (1021,),
    (3, 5),
    (31, 33),
    (9, 130),
    (2, 1029),
)  # nothing is reduced


def shape_class(extents: Extents) -> ShapeClass:
    """The class of sizes that shares a tuned variant."""
    n, outer = extents["n"], extents.get("outer", 1)
    match form(extents):
        case Form.WHOLE:
            if n <= 2**15:
                return ShapeClass.FEW if n <= 2**12 else ShapeClass.SMALL
            return ShapeClass.MIDDLE if n <= 2**20 else ShapeClass.LARGE
        case Form.ROWS:
            if n <= 128:
                return ShapeClass.TINY_ROWS if n <= 16 else ShapeClass.SHORT_ROWS
            if n > 2**15 and outer < rows.MANY:
                return ShapeClass.FEW_LONG_ROWS
            return ShapeClass.ROWS if n <= 2048 else ShapeClass.LONG_ROWS
        case Form.COLUMNS:
            if n <= 16 and extents["inner"] >= 512:
                return ShapeClass.SHORT_COLUMNS
            if outer > 1 or extents["inner"] > 1024 or extents["inner"] != extents["row_pitch"]:
                return ShapeClass.WIDE_COLUMNS
            return ShapeClass.TALL_COLUMNS if extents["inner"] <= 32 else ShapeClass.COLUMNS
    return ShapeClass.STRIDED


def shape_classes(spec: ReductionSpec) -> tuple[str, ...]:
    """Every class that an array reduced along these axes can be in."""
    return tuple(one.value for one in ShapeClass if _stands_for(spec, one) is not None)


def representative(spec: ReductionSpec, name: str) -> Extents:
    """The sizes that stand for a class."""
    found = _stands_for(spec, ShapeClass(name))
    assert found is not None
    return found


def cases(spec: ReductionSpec) -> Iterator[Extents]:
    """Awkward sizes of every form that the axes allow, and pitched ones."""
    empty = all(operator.empty for operator in spec.operators)
    if spec.axis is None:
        for n in _SIZES:
            if n or empty:
                yield problem(spec, (n,))
        yield problem(spec, (7, 13), gap=3)
        yield problem(spec, (300,), step=3)
        yield problem(spec, (1021,), step=2)
        yield problem(spec, (5, 3, 41), gap=1, step=2)
        return
    if not spec.axis:
        for shape in _KEPT:
            yield problem(spec, shape)
            if len(shape) > 1 and shape[0] > 1:
                yield problem(spec, shape, gap=1 + len(shape) % 3)
                yield problem(spec, shape, gap=1, step=2)
        return
    for outer, n, inner in _MATRICES:
        if n or empty:
            yield lying(spec, outer, n, inner)
            if (outer, inner) != (1, 1) and 0 not in (outer, n):
                yield lying(spec, outer, n, inner, gap=1 + n % 3)
    for outer, n, inner in _APART:
        yield lying(spec, outer, n, inner, gap=1, step=2)
    several = _several(spec)
    if several is not None:
        yield problem(spec, several)
        first = spec.axis[0]
        yield problem(spec, (*several[:first], 131, *several[first + 1 :]))  # enough for several blocks a result


def problem(spec: ReductionSpec, shape: Sequence[int], *, gap: int = 0, step: int = 1) -> Extents:
    """The sizes of an array of this shape.

    Args:
        spec: what is computed.
        shape: of the array.
        gap: elements by which its rows lie further apart than they must.
        step: from one element of a row to the next.
    """
    strides = dense_strides((*shape[:-1], (shape[-1] + gap) * step) if shape else shape, spec.dtype.size)
    strides = (*strides[:-1], spec.dtype.size * step)[: len(shape)]
    return extents_of(spec, {"in": Layout(tuple(shape), strides, spec.dtype.numpy)})


def lying(spec: ReductionSpec, outer: int, n: int, inner: int, *, gap: int = 0, step: int = 1) -> Extents:
    """The sizes of an array that has this form in memory; a transposed view where the axes come in another order.

    Args:
        spec: what is computed; it reduces an axis at least.
        outer: kept elements, the slowest in memory.
        n: reduced elements of each.
        inner: kept elements of each of these.
        gap: elements by which rows lie further apart than they must.
        step: from one element of a row to the next.
    """
    shape = shape_of(spec, outer, n, inner)
    if shape is not None:
        return problem(spec, shape, gap=gap, step=step)
    assert spec.axis
    kept = [extent for extent in (outer, inner) if extent != 1]
    rank = _least_rank(spec.axis) + len(kept)
    reduced = sorted(axis % rank for axis in spec.axis)
    others = [axis for axis in range(rank) if axis not in reduced][: len(kept)]
    extents = dict(zip(others, kept, strict=True)) | {reduced[0]: n}
    # By their places in memory: what is kept after the first of two, or alone and inside, is the fastest.
    inside = others[-1:] if inner != 1 else []
    order = [*inside, reduced[0], *(axis for axis in others if axis not in inside)]
    strides, stride = dict.fromkeys(range(rank), spec.dtype.size), spec.dtype.size * step
    for place, axis in enumerate(order):
        strides[axis] = stride
        stride *= max(extents[axis], 1) + (gap if place == 0 else 0)
    layout = Layout(tuple(extents.get(axis, 1) for axis in range(rank)), tuple(strides.values()), spec.dtype.numpy)
    return extents_of(spec, {"in": layout})


def _least_rank(axes: Sequence[int]) -> int:
    """The axes that an array has at least which is reduced along these."""
    front, back = [axis for axis in axes if axis >= 0], [axis for axis in axes if axis < 0]
    return (max(front) + 1 if front else 0) - (min(back) if back else 0)


def shape_of(spec: ReductionSpec, outer: int, n: int, inner: int) -> tuple[int, ...] | None:
    """The shape of an array whose reduction along the spec's axes has this form; None if there is none."""
    if spec.axis is None:
        return (n,) if (outer, inner) == (1, 1) else None
    if not spec.axis:
        return (outer, inner) if n == 1 else None
    front = [axis for axis in spec.axis if axis >= 0]
    back = [axis for axis in spec.axis if axis < 0]
    rank = _least_rank(spec.axis) + (0 if back and front else outer != 1 if back else inner != 1)
    axes = sorted(axis % rank for axis in spec.axis)
    before, behind = axes[0] > 0, axes[-1] < rank - 1
    if len(set(axes)) < len(axes) or (outer != 1 and not before) or (inner != 1 and not behind):
        return None
    shape = [1] * rank
    shape[axes[0]] = n
    if before:
        shape[0] = outer
    if behind:
        shape[-1] = inner
    return tuple(shape)


def _several(spec: ReductionSpec) -> tuple[int, ...] | None:
    """A shape without extents of 1 where kept axes lie between reduced ones."""
    if not spec.axis or len(spec.axis) < 2 or min(spec.axis) < 0:
        return None
    rank = max(spec.axis) + 2
    return tuple(3 + axis % 3 for axis in range(rank))


def _stands_for(spec: ReductionSpec, one: ShapeClass) -> Extents | None:
    if spec.axis == ():
        return _element_by_element(spec, one)
    if one is ShapeClass.STRIDED:
        several = _several(spec)
        if several is not None:
            shape = tuple(64 * extent for extent in several[:3]) + several[3:]
            found = problem(spec, shape)
            if form(found) is not Form.STRIDED:  # axes that are neighbours
                found = problem(spec, shape, gap=1, step=2)
        else:
            shape = next(s for s in (shape_of(spec, o, n, 1) for o, n in ((4096, 4096), (1, 2**24), (2**24, 1))) if s)
            found = problem(spec, shape, step=2)
    else:
        shape_or_none = shape_of(spec, *_REPRESENTATIVE[one])
        if shape_or_none is None:
            return None
        found = problem(spec, shape_or_none)
    return found if shape_class(found) is one else None


def _element_by_element(spec: ReductionSpec, one: ShapeClass) -> Extents | None:
    """An element, elements that follow each other, those of pitched rows, those with gaps."""
    match one:
        case ShapeClass.FEW:
            return problem(spec, (1,))
        case ShapeClass.TINY_ROWS:
            return problem(spec, (2**24,))
        case ShapeClass.SHORT_COLUMNS:
            return problem(spec, (4096, 4096), gap=64)
        case ShapeClass.WIDE_COLUMNS:
            return problem(spec, (2**16, 256), gap=64)
        case ShapeClass.STRIDED:
            return problem(spec, (4096, 4096), gap=1, step=2)
    return None
