"""The sizes of reductions: the canonical form of an array, shape classes, and the sizes of proofs and of tuning.

From the axes of an array follow the few sizes that kernels know: one form for all arrays that lie alike. Axes of extent
1 are dropped, and neighbours that are both reduced or both kept, and follow each other in memory, are merged; axes that
do not lie in memory as they follow each other in the array are taken as they lie, where that is simpler. What is left
is a matrix, most of the time:

    whole    n elements that follow each other
    rows     `outer` rows of n elements each, `outer_pitch` apart
    columns  `outer` matrices of n rows and `inner` columns, reduced along the rows, which lie `row_pitch` apart
    strided  anything else: up to 4 kept and 4 reduced axes, each with an extent and a stride
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import cycle, islice, product
from math import prod

from gen.errors import ShapeError
from gen.families.base import WIDEST, Extents, Layout
from gen.families.extents import PASS_ANOTHER, check_dtype, dense_strides, is_contiguous, lie_otherwise
from gen.families.reduction.spec import ReductionSpec

MOST_GROUPS = 4
MANY_ROWS = 256
"""With so many rows, a block for each keeps a device busy, however long they are."""


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
    MULTI_ROWS = "several axes, the fastest one reduced"
    MULTI_COLUMNS = "several axes, the fastest one kept"
    STRIDED = "gaps between all elements"


SWEPT = frozenset({ShapeClass.FEW, ShapeClass.SMALL, ShapeClass.MIDDLE, ShapeClass.LARGE, ShapeClass.FEW_LONG_ROWS})
"""Classes of long rows, of which one variant is fast at most sizes."""

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
# Rows, and elements from one to the next, a multiple of every vector's: the last begins beyond element 2^33.
_FAR_ROWS, _FAR = 67, 2**27 + 4096
_LONG = 2**33 + 2**28 + 4101  # elements of few results
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
            if n > 2**15 and outer < MANY_ROWS:
                return ShapeClass.FEW_LONG_ROWS
            return ShapeClass.ROWS if n <= 2048 else ShapeClass.LONG_ROWS
        case Form.COLUMNS:
            if n <= 16 and extents["inner"] >= 512:
                return ShapeClass.SHORT_COLUMNS
            if outer > 1 or extents["inner"] > 1024 or extents["inner"] != extents["row_pitch"]:
                return ShapeClass.WIDE_COLUMNS
            return ShapeClass.TALL_COLUMNS if extents["inner"] <= 32 else ShapeClass.COLUMNS
    if extents["rs3"] == 1:
        return ShapeClass.MULTI_ROWS
    return ShapeClass.MULTI_COLUMNS if extents["ks3"] == 1 else ShapeClass.STRIDED


def shape_classes(spec: ReductionSpec) -> tuple[str, ...]:
    """Every class that an array reduced along these axes can be in."""
    return tuple(one.value for one in ShapeClass if _stands_for(spec, one) is not None)


def representative(spec: ReductionSpec, shape_class: str) -> Extents:
    """The sizes that stand for a class."""
    found = _stands_for(spec, ShapeClass(shape_class))
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
    for rank in _ranks_apart(spec):
        shape = tuple(3 + axis % 3 for axis in range(rank))
        yield problem(spec, shape)
        yield problem(spec, shape, gap=1)
        yield problem(spec, shape, step=2)
        for last in (38, 64):  # rows that begin anywhere, and at multiples of vectors
            yield problem(spec, (*shape[:-1], last))
        first = min(axis % rank for axis in spec.axis)
        yield problem(spec, (*shape[:first], 131, *shape[first + 1 : -1], 38))  # several blocks a result


def far_cases(spec: ReductionSpec) -> Iterator[Extents]:
    """Few elements in rows that lie far apart, the last of them beyond element 2^33; and few results of as many."""
    if spec.axis is None:
        yield problem(spec, (_FAR_ROWS, 13), gap=_FAR)
    elif spec.axis:
        shape = shape_of(spec, _FAR_ROWS, 4103, 1) or ()
        if shape and len(shape) - 1 in reduced_axes(spec, len(shape)):  # gaps lie between rows, not between elements
            yield problem(spec, (_FAR_ROWS, *(1,) * (len(shape) - 2), 4103), gap=_FAR - 4103)
        else:
            yield lying(spec, _FAR_ROWS, 4103, 1, gap=_FAR - 4103)
        yield lying(spec, 1, _FAR_ROWS, 261, gap=_FAR - 261)
        yield lying(spec, 3, _FAR_ROWS, 5, gap=_FAR)
        for rank in _ranks_apart(spec):
            shape = (_FAR_ROWS, *(3 + axis % 3 for axis in range(1, rank)))
            # However many axes there are, the first one's steps are so long that a few of them pass 2^32.
            yield problem(spec, shape, gap=4 * _FAR * _FAR_ROWS // prod(shape[:-1]))
        yield lying(spec, 1, _LONG, 1)
        yield lying(spec, 1, _LONG // 5, 5)


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


def rows_of(spec: ReductionSpec, outer: int, n: int) -> Extents:
    """The sizes of rows of n elements each; of a whole array there is one, where no axis is reduced n is 1."""
    if not spec.axis:
        return problem(spec, (n,) if spec.axis is None else (outer,))
    return lying(spec, outer, n, 1)


def edges(tile: int) -> tuple[int, int, int, int]:
    """Numbers of elements of which the last tile has 1, 2, all but 1 and all of its own."""
    return tile + 1, tile + 2, 2 * tile - 1, 2 * tile


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


def _ranks_apart(spec: ReductionSpec) -> tuple[int, ...]:
    """Numbers of axes of arrays whose kept axes may lie between reduced ones: the last axis reduced, and kept."""
    if not spec.axis or len(spec.axis) < 2:
        return ()
    least = _least_rank(spec.axis)
    ranks = (least, least + 1) if min(spec.axis) >= 0 or max(spec.axis) < 0 else (least + 1,)
    return tuple(rank for rank in ranks if _is_supported(spec, (2,) * rank))


def _is_supported(spec: ReductionSpec, shape: Sequence[int]) -> bool:
    """Whether arrays of this shape, with gaps, have no more axes apart than kernels take; each axis is named once."""
    try:
        problem(spec, shape, gap=1, step=2)
    except ShapeError:
        return False
    return True


def several_axes(
    spec: ReductionSpec, one: ShapeClass, extent: int | None, last: int | None, rows: int = 0
) -> Extents | None:
    """Sizes of a class whose axes do not merge to a matrix; None where no array that such a spec reduces is of it.

    Args:
        spec: what is computed.
        one: the class.
        extent: of every axis but the last; None: as many as give about 2^24 elements.
        last: extent of the axis that is the fastest in memory; None: the same.
        rows: extent of a reduced axis that is not the fastest, and so far apart that it is the slowest; 0: the same.
    """
    ranks = _ranks_apart(spec) or ((2,) if spec.axis is None else (_least_rank(spec.axis or ()) + 1,))
    for rank in (*ranks, max(ranks) + 1, max(ranks) + 2):
        usual = 2 ** round(24 / rank)
        shape = (*(extent or usual,) * (rank - 1), last or usual)
        tried = [partial(problem, spec, shape, gap=gap, step=step) for gap, step in ((0, 1), (64, 1), (64, 2))]
        if spec.axis and one is not ShapeClass.STRIDED:
            reduced = one is ShapeClass.MULTI_ROWS
            tried += [partial(_view, spec, shape, reduced=reduced, gap=gap) for gap in (0, 16)]
        for make in tried:
            try:
                found = make()
            except ShapeError:
                continue
            if form(found) is Form.STRIDED and shape_class(found) is one:
                return _with_rows(spec, found, rows) if rows else found
    return None


def apart(spec: ReductionSpec, last: int, *, reduced: bool, axes: int = MOST_GROUPS) -> Iterator[Extents]:
    """The sizes of arrays of which no two axes merge, those with most kept axes first.

    Args:
        spec: what is computed.
        last: extent of the axis that is the fastest in memory.
        reduced: whether that is a reduced one.
        axes: how many are kept at most, and reduced.
    """
    count = len(spec.axis or ())
    ranks = range(count + axes, _least_rank(spec.axis or ()) or 1, -1)
    for rank, step in product(ranks if count <= axes else (), (1, 2)):
        gone = set(range(rank)) if spec.axis is None else {axis % rank for axis in spec.axis}
        alike = [axis for axis in range(rank) if (axis in gone) == reduced]
        if (spec.axis is not None and len(gone) != count) or not alike:
            continue
        order = [alike[-1], *(axis for axis in reversed(range(rank)) if axis != alike[-1])]
        shape, strides, stride = [0] * rank, [0] * rank, step
        for axis, extent in zip(order, (last, *islice(cycle((2, 3)), rank - 1)), strict=True):
            shape[axis], strides[axis] = extent, stride * spec.dtype.size
            stride = stride * extent + max(WIDEST // spec.dtype.size, 1)
        with suppress(ShapeError):
            yield extents_of(spec, {"in": Layout(tuple(shape), tuple(strides), spec.dtype.numpy)})


def _with_rows(spec: ReductionSpec, extents: Extents, rows: int) -> Extents:
    """An array of more rows: so many elements along a reduced axis, which is the slowest then."""
    array = layouts_of(spec, extents)["in"]
    reduced = [axis for axis in reduced_axes(spec, len(array.shape)) if array.strides[axis] > spec.dtype.size]
    shape, strides = [*array.shape], [*array.strides]
    shape[reduced[0]] = rows
    strides[reduced[0]] = max(n * step for n, step in zip(array.shape, array.strides, strict=True))
    return extents_of(spec, {"in": Layout(tuple(shape), tuple(strides), array.dtype)})


def _view(spec: ReductionSpec, shape: Sequence[int], *, reduced: bool, gap: int) -> Extents:
    """The sizes of a view whose last axis that is reduced, or kept, is the fastest in memory; `gap` elements apart."""
    assert spec.axis
    rank, size = len(shape), spec.dtype.size
    axes = {axis % rank for axis in spec.axis}
    fastest = max((axis for axis in range(rank) if (axis in axes) == reduced), default=rank - 1)
    order = [fastest, *(axis for axis in reversed(range(rank)) if axis != fastest)]
    extents = dict(zip(reversed(order), shape, strict=True))
    strides, stride = dict.fromkeys(range(rank), size), size
    for axis in order:
        strides[axis] = stride
        stride = stride * extents[axis] + gap * size
    layout = Layout(tuple(extents[a] for a in range(rank)), tuple(strides[a] for a in range(rank)), spec.dtype.numpy)
    return extents_of(spec, {"in": layout})


def _stands_for(spec: ReductionSpec, one: ShapeClass) -> Extents | None:
    if spec.axis == ():
        return _element_by_element(spec, one)
    if one in (ShapeClass.MULTI_ROWS, ShapeClass.MULTI_COLUMNS, ShapeClass.STRIDED):
        return several_axes(spec, one, None, None)
    shape = shape_of(spec, *_REPRESENTATIVE[one])
    if shape is None:
        return None
    found = problem(spec, shape)
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
