"""The sizes of transposes: a problem as kernels see it, shape classes, what stands for each, and awkward cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import chain, permutations, product
from math import isqrt, prod
from typing import TypeVar

from gen.arch import SECTOR, Limits
from gen.dtypes import DType
from gen.families.base import STATIC_SHARED_BYTES, WIDEST, Extents
from gen.families.expr import also_in_cpp, traced_alone
from gen.families.transpose.algorithms.common import MATRICES, Axis, merged, only_moves, stays
from gen.families.transpose.algorithms.packed import (
    SIZES_IN_CPP,
    Packed,
    axes_of,
    base_config,
    boxes_for,
    boxes_of,
    strides_of,
)
from gen.families.transpose.algorithms.skinny import MAX_SKINNY_EXTENT
from gen.families.transpose.spec import TransposeSpec

T = TypeVar("T")


class ShapeClass(Enum):
    """What a problem is like, in words; those of a matrix first."""

    ALIGNED = "aligned rows"
    ODD = "odd rows"
    FEW_COLS = "few columns"
    FEW_ROWS = "few rows"
    PACKED = "short runs both ways"
    ALIGNED_LITTLE = "aligned rows, under 4 MiB"
    ODD_LITTLE = "odd rows, under 4 MiB"
    SMALL = "small matrices"
    COPY = "nothing moves: a copy"
    RUNS = "short runs are copied"


_SHORT_RUN_BYTES = 4096
_MIN_SIDE_BYTES = 256  # that tiles read or write side by side; of aligned rows two whole sectors are enough
_TINY_RUN_BYTES = 128  # of a run that is copied by itself
SMALL_MATRIX_BYTES = 16384
_LITTLE_BYTES = 4 << 20  # that fill no large device
_LARGE_BYTES = 1 << 28
_VECTOR = 16  # bytes
_ANY_DEVICE = replace(Limits.of("sm_75"), shared_bytes_per_block=STATIC_SHARED_BYTES)  # base runs on any
_SQUARE_ROWS = (0, 1, 2, 5, 16, 31, 32, 33, 63, 64, 65, 96, 128, 130, 200)
_SHAPES = {
    1: ((0,), (1,), (5,), (64,), (1000,), (65,)),
    2: (
        (0, 0), (0, 5), (5, 0), (37, 64), (64, 37), (1, 1), (1, 37), (37, 1), (2, 3), (513, 2), (2, 513), (16, 16),
        (31, 33), (32, 32), (33, 31), (50, 50), (64, 64), (64, 96), (96, 64), (63, 130), (100, 64), (129, 65),
        (3, 1021), (1021, 3), (33, 65), (3, 6000), (6000, 3), (4, 80), (80, 4), (8, 80), (80, 8),
    ),
}  # fmt: skip
_MANY = (
    (0, 3, 5), (3, 0, 5), (1, 1, 1), (1, 7, 1), (1, 33, 40), (40, 1, 33), (33, 40, 1), (2, 3, 4), (3, 16, 16),
    (4, 31, 33), (33, 4, 31), (31, 33, 4), (5, 3, 65), (64, 2, 65), (2, 64, 96), (3, 200, 3), (70, 30, 5), (5, 8, 24),
)  # fmt: skip
_RUN_BYTES, _RUNS, _GAP = 512, 60, 16  # of runs; as many along an axis as fill blocks; elements between whole ones
_FAR_ROWS, _FAR = 5, 2**31 + 5  # rows, and elements between them
_MANY_MATRICES = 2**31 + 11
_WHOLE_PITCHES = ((37, 64), (64, 37))  # rows begin at vectors, where the last of either array fill none
_LARGER = ((248, 253), (249, 251))  # for elements of which a word holds several: one of their tiles lies inside

Problems = Callable[[TransposeSpec, Mapping[str, int]], Extents]
"""Gives the extents of a problem of these axes and pitches."""


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


@lru_cache(maxsize=16)
def canonical_names(batches: int) -> tuple[str, ...]:
    """The names of what `canonical_sizes` gives."""
    return tuple(Canonical(0, 0, 0, 0, ()).extents(batches))


@also_in_cpp(SIZES_IN_CPP)
def canonical_sizes(batches: int, *numbers: int) -> tuple[int, ...]:
    """The extents of the canonical form, from extents, strides of the input and strides of the output, in elements."""
    axes = len(numbers) // 3
    found = canonical(numbers[:axes], numbers[axes : 2 * axes], numbers[2 * axes :])
    return tuple(found.extents(batches).values())


def shape_class(
    spec: TransposeSpec, extents: Extents, alignment: int = WIDEST, *, packs: Callable[[], bool] = lambda: True
) -> ShapeClass:
    """What a problem is like; unless `packs`, which is asked last, as if there were no boxes of several axes."""
    if spec.in_place:
        little = _is_little(spec, extents)
        aligned = alignment >= _VECTOR and _is_aligned(spec, extents)
        return _of_rows(aligned, little)
    rows, cols, size = extents["rows"], extents["cols"], spec.dtype.size
    batch = _batch(spec, extents)
    matrices = 1
    for extent, _, _ in batch:
        matrices *= extent
    aligned = _aligned(spec, extents, alignment, "in_pitch", "out_pitch")
    if rows * cols == 0 or stays(extents):
        run = rows * cols * size
        if matrices == 1 or run >= _SHORT_RUN_BYTES:
            return ShapeClass.COPY
        vectors = run % _VECTOR == 0 and run > _VECTOR and _aligned(spec, extents, alignment)
        if run < _TINY_RUN_BYTES and not vectors and _packs(spec, extents, rows * cols) and packs():
            return ShapeClass.PACKED
        return ShapeClass.RUNS
    dense_in, dense_out = extents["in_pitch"] == cols, extents["out_pitch"] == rows
    if matrices > 1 and dense_in and dense_out and _is_small(spec, extents):
        return ShapeClass.SMALL
    few_cols, few_rows = cols <= MAX_SKINNY_EXTENT and dense_in, rows <= MAX_SKINNY_EXTENT and dense_out
    shorter = min(cols * (rows if dense_in else 1), rows * (cols if dense_out else 1))
    little_at_once = (few_cols or few_rows) and rows * cols * size < _SHORT_RUN_BYTES
    if (little_at_once or _is_short(shorter * size, aligned)) and _packs(spec, extents, shorter) and packs():
        return ShapeClass.PACKED
    if few_cols:
        return ShapeClass.FEW_COLS
    if few_rows:
        return ShapeClass.FEW_ROWS
    return _of_rows(aligned, rows * cols * matrices * size < _LITTLE_BYTES)


def _of_rows(aligned: bool, little: bool) -> ShapeClass:
    """The class of tiles, by whether all rows are aligned to vectors, and whether they fill no large device."""
    if aligned:
        return ShapeClass.ALIGNED_LITTLE if little else ShapeClass.ALIGNED
    return ShapeClass.ODD_LITTLE if little else ShapeClass.ODD


def _batch(spec: TransposeSpec, extents: Extents) -> list[list[int]]:
    """Extent and strides of each axis beside those of a matrix."""
    return [[extents[f"batch{place}{end}"] for end in ("", "_in", "_out")] for place in range(spec.batches)]


@traced_alone
def _aligned(spec: TransposeSpec, extents: Extents, alignment: int, *pitches: str) -> bool:
    """Whether arrays, these pitches and the steps between matrices are multiples of vectors."""
    steps = [alignment]
    for pitch, dtype in zip(pitches, (spec.dtype, spec.result), strict=False):
        steps.append(extents[pitch] * dtype.size)
    for extent, there, here in _batch(spec, extents):
        if extent > 1:
            steps += [there * spec.dtype.size, here * spec.result.size]
    return all(step % _VECTOR == 0 for step in steps)


@traced_alone
def _is_small(spec: TransposeSpec, extents: Extents) -> bool:
    """Whether matrices that follow each other fit shared memory."""
    rows, cols = extents["rows"], extents["cols"]
    small = 1 < min(rows, cols) <= max(rows, cols) <= MAX_SKINNY_EXTENT
    return small and rows * cols * spec.dtype.size <= SMALL_MATRIX_BYTES and _follow(_batch(spec, extents), rows * cols)


@traced_alone
def _is_short(run_bytes: int, aligned: bool) -> bool:
    """Whether runs are shorter than what tiles should read or write side by side."""
    return run_bytes < (2 * SECTOR if aligned and run_bytes % SECTOR == 0 else _MIN_SIDE_BYTES)


@traced_alone
def _packs(spec: TransposeSpec, extents: Extents, run: int) -> bool:
    """Whether taking more axes along makes runs longer, in both arrays, in boxes that every device takes."""
    packed, config = Packed(), base_config(spec)
    if packed.illegal(spec, config):
        return False
    if "box_axes" not in extents:  # an example: most of these need no boxes
        extents = {**extents, **boxes_for(spec, extents)}
    found = boxes_of(spec, extents).runs
    return (
        min(found.read, found.written) > run and packed.unsupported_extents(spec, config, extents, _ANY_DEVICE) is None
    )


@lru_cache(maxsize=64)
def representatives(spec: TransposeSpec, problem: Problems) -> Mapping[ShapeClass, Extents]:
    """Every class that a spec's problems can have, with sizes that stand for it; those of a matrix first."""
    found: dict[ShapeClass, Extents] = {}
    for axes in _examples(spec):
        extents = problem(spec, axes)
        found.setdefault(shape_class(spec, extents), extents)
    for axes in _packed_examples(spec):
        extents = problem(spec, axes)
        if shape_class(spec, extents) == ShapeClass.PACKED:
            found.setdefault(ShapeClass.PACKED, extents)
            break
    return {name: found[name] for name in ShapeClass if name in found}


def known_class(spec: TransposeSpec, extents: Extents, alignment: int) -> ShapeClass:
    """The class of a problem among those that stand for its spec; oddly pitched ones may be of none of them."""
    found = shape_class(spec, extents, alignment, packs=lambda: is_known(spec, ShapeClass.PACKED))
    if is_known(spec, found):
        return found
    if found == ShapeClass.RUNS:
        return ShapeClass.COPY
    return ShapeClass.ODD if is_known(spec, ShapeClass.ODD) else ShapeClass.ODD_LITTLE


@lru_cache(maxsize=256)
def is_known(spec: TransposeSpec, wanted: ShapeClass) -> bool:
    """Whether a class is one of `representatives`: found without all of these, which are many where axes are."""
    packed = _packed_examples(spec) if wanted == ShapeClass.PACKED else iter(())
    examples = chain(packed, _in_turn(_examples_by_size(spec)))
    return any(shape_class(spec, _without_boxes(spec, axes)) == wanted for axes in examples)


def _without_boxes(spec: TransposeSpec, known: Mapping[str, int]) -> Extents:
    """The extents of a problem of these axes and pitches, but for those of boxes."""
    if spec.in_place:
        return {**known, MATRICES: prod(known[str(axis)] for axis in spec.operands[0].axes[:-2])}
    if len(spec.axes) > 1 and spec.operands[0].axes[0] == "rows":
        return known
    numbers = canonical_sizes(spec.batches, *strides_of(spec, known))
    return {**known, **dict(zip(canonical_names(spec.batches), numbers, strict=True))}


def _in_turn(several: Iterable[Iterator[T]]) -> Iterator[T]:
    """The first of each, then the second of each, and so on."""
    left = list(several)
    while left:
        for one in list(left):
            try:
                yield next(one)
            except StopIteration:
                left.remove(one)


def _follow(batch: list[list[int]], area: int) -> bool:
    """Whether matrices follow each other without a gap in both arrays."""
    step = area
    for extent, there, here in reversed(batch):
        if extent > 1 and (there, here) != (step, step):
            return False
        step *= extent
    return True


def _examples(spec: TransposeSpec) -> Iterator[Mapping[str, int]]:
    """Problems in which two or three axes are longer than 1, dense ones first."""
    return chain.from_iterable(_examples_by_size(spec))


def _examples_by_size(spec: TransposeSpec) -> Iterator[Iterator[Mapping[str, int]]]:
    """The same, those of the same extents together."""
    if spec.in_place:
        yield _square_examples(spec)
        return
    for gap in (0, 1) if spec.operands[0].pitch else (0,):
        for extents in _sizes(spec.dtype):
            yield _arranged(spec, extents, gap)


def _packed_examples(spec: TransposeSpec) -> Iterator[Mapping[str, int]]:
    """Problems in which all axes but one are short; none where no axis is left to be taken along."""
    if len(spec.axes) < 3 or len(axes_of(spec).order) < 3 or only_moves(spec):
        return
    elements = _LARGE_BYTES // spec.dtype.size
    for extents in ((elements // 63, 9, 7), (elements // 693, 11, 9, 7)):
        if len(extents) <= len(spec.axes):
            yield from _arranged(spec, extents, 0)


def _arranged(spec: TransposeSpec, extents: tuple[int, ...], gap: int) -> Iterator[Mapping[str, int]]:
    """The extents along any axes; rows of the input are a gap apart."""
    names = [str(axis) for axis in spec.operands[0].axes]
    for places in permutations(range(len(names)), min(len(extents), len(names))):
        shape = dict.fromkeys(names, 1)
        for place, extent in zip(places, extents, strict=False):
            shape[names[place]] = extent
        pitches = {o.pitch: shape[str(o.axes[-1])] + (gap if o.role == "in" else 0) for o in spec.operands}
        pitches.pop("", None)
        yield shape | pitches


def _sizes(dtype: DType) -> Iterator[tuple[int, ...]]:
    """Extents of axes: a quarter of a gigabyte, where a class does not ask for less."""
    elements = _LARGE_BYTES // dtype.size
    side = 1 << (elements.bit_length() // 2)
    yield side, elements // side
    yield side - 1, elements // side - 1
    yield elements // 16, 16
    yield 512, 512
    yield 511, 509
    yield elements // 1024, 32, 32
    yield (elements,)
    yield elements // 8192, 128, 64


def cases(spec: TransposeSpec) -> Iterator[Mapping[str, int]]:
    """Axes and pitches of awkward problems: nothing, one, one off a tile, non-square, skinny, pitched."""
    if spec.in_place:
        yield from _square_cases(spec)
        return
    source, result = spec.operands
    shapes = _SHAPES.get(len(source.axes), _MANY)
    if len(source.axes) == 2 and spec.dtype.size < 4:
        shapes = (*shapes, *_LARGER)
    for shape in shapes:
        known = dict(zip(map(str, source.axes), (*shape, *(2, 3, 1, 2, 1, 2))[: len(source.axes)], strict=True))
        for gap in (0, 7) if known[str(source.axes[-1])] in (65, 251) else (0,):
            rows = {o.pitch: known[str(o.axes[-1])] for o in (source, result) if o.pitch}
            whole = shape in _WHOLE_PITCHES
            yield known | {p: -(-row // 16) * 16 if whole else row + gap for p, row in rows.items()}
    if spec.strided:
        yield from _with_steps(spec)
    if spec.axes[-1] == len(spec.axes) - 1 and spec.values is None:
        yield from _whole_runs(spec)


def _with_steps(spec: TransposeSpec) -> Iterator[Mapping[str, int]]:
    """A gap after each axis but the last of either array, or of both; of one element, or of whole vectors."""
    names = [str(axis) for axis in spec.operands[0].axes]
    last = len(names) - 1
    for place, (there, here, gap) in enumerate(product(range(last), range(last), (1, 16))):
        known = dict(zip(names, (*(3, 5, 4, 2, 3, 2, 3)[:last], (33, 64)[place % 2]), strict=True))
        gaps = {("in", there): gap} if place % 3 else {("in", there): gap, ("out", here): gap}
        for operand in spec.operands:
            step = 1
            for axis in range(last, -1, -1):
                step += gaps.get((operand.name, axis), 0)
                if axis < last:
                    known[f"{operand.name}_step{axis}"] = step
                step *= known[str(operand.axes[axis])]
        yield known


def far_cases(spec: TransposeSpec) -> Iterator[Mapping[str, int]]:
    """Few elements in rows that lie far apart, in the input and then in the output: the last is beyond element 2^33.

    And so many small matrices that even their numbers pass 2^31.
    """
    if spec.in_place:
        yield {**_single_axes(spec), "rows": _FAR_ROWS, "pitch": _FAR}
        return
    one, two = spec.operands
    for far in (one, two):
        axes = [str(axis) for axis in far.axes]
        if not far.pitch:
            continue
        for rows, row in ((_FAR_ROWS, 37), (_FAR_ROWS, 4)):
            known = dict.fromkeys(map(str, one.axes), 1) | {axes[-2]: rows, axes[-1]: row}
            pitches = {o.pitch: known[str(o.axes[-1])] + (_FAR if o is far else 0) for o in (one, two)}
            yield known | pitches
    if len(one.axes) == 3 and (one.axes[0], one.axes[-1]) == (two.axes[0], two.axes[1]):
        known = dict(zip(map(str, one.axes), (_MANY_MATRICES, 2, 3), strict=True))
        yield known | {o.pitch: known[str(o.axes[-1])] for o in (one, two) if o.pitch}


def _whole_runs(spec: TransposeSpec) -> Iterator[Mapping[str, int]]:
    """Runs of whole vectors, many along each of the last three other axes; then few, along all others."""
    one, two = spec.operands
    behind, run = len(one.axes) - 1, max(_RUN_BYTES // spec.dtype.size, 1)
    shapes = [
        (*(_RUNS if place == long else 2 if place > behind - 4 else 1 for place in range(behind)), run)
        for long in range(max(behind - 3, 0), behind)
    ]
    if behind > 3:
        shapes.append((*((2, 3) * 4)[:behind], _GAP))
    for shape in shapes:
        known = dict(zip(map(str, one.axes), shape, strict=True))
        pitches = {o.pitch: shape[-1] + gap for o, gap in ((one, _GAP), (two, 3 * _GAP)) if o.pitch}
        yield known | pitches


def _is_aligned(spec: TransposeSpec, extents: Extents) -> bool:
    """Whether rows begin at whole vectors."""
    return extents["pitch"] * spec.dtype.size % _VECTOR == 0


def _is_little(spec: TransposeSpec, extents: Extents) -> bool:
    """Whether the matrices fill no large device."""
    return extents["rows"] ** 2 * extents[MATRICES] * spec.dtype.size < _LITTLE_BYTES


def _square_examples(spec: TransposeSpec) -> Iterator[Mapping[str, int]]:
    """Sizes that stand for every class: a quarter of a gigabyte, and half a megabyte."""
    for total in (1 << 28, 1 << 19):
        side = isqrt(total // spec.dtype.size) // 64 * 64
        for rows in (side, side - 1):  # of elements of 16 bytes all rows are aligned
            yield {**_single_axes(spec), "rows": rows, "pitch": rows}


def _square_cases(spec: TransposeSpec) -> Iterator[Mapping[str, int]]:
    """Nothing, one, one off a tile, pitched; one matrix and several."""
    for place, rows in enumerate(_SQUARE_ROWS):
        others = {name: (2, 3, 1)[(place + axis) % 3] for axis, name in enumerate(_single_axes(spec))}
        for gap in (0, 7, 16) if rows in (64, 65) else (0,):
            yield {**others, "rows": rows, "pitch": rows + gap}


def _single_axes(spec: TransposeSpec) -> dict[str, int]:
    return {str(axis): 1 for axis in spec.operands[0].axes[:-2]}
