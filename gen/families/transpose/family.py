"""The family of transposes: what the rest of gen asks about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from typing_extensions import override

from gen.arch import Limits
from gen.dtypes import B8, B16, BF16, C64, C128, F16, F32, F64, I8, I32, I64, U8
from gen.families.base import WIDEST, Algorithm, Array, Expected, Extents, Layout, Operand, Work, searched_cover
from gen.families.config import Config
from gen.families.estimates import Smallest
from gen.families.expr import traced_alone
from gen.families.extents import (
    DenseFamily,
    check_dtype,
    check_gaps,
    dense_strides,
    layout_of,
    layouts_of,
    lie_otherwise,
    measure,
)
from gen.families.transpose import heuristics, literature, shapes
from gen.families.transpose.algorithms.common import MATRICES
from gen.families.transpose.algorithms.copies import FlatCopy, RowCopy
from gen.families.transpose.algorithms.demands import elements_of
from gen.families.transpose.algorithms.gather import Gather
from gen.families.transpose.algorithms.grouped_tile import GroupedTile, groups_for
from gen.families.transpose.algorithms.in_place import SwapTile
from gen.families.transpose.algorithms.packed import Packed, boxes_for, wide_boxes_for
from gen.families.transpose.algorithms.shift_box import ShiftBox
from gen.families.transpose.algorithms.skinny import Interleave, Skinny, Small, Squares
from gen.families.transpose.algorithms.tiled import Naive, Tiled
from gen.families.transpose.algorithms.vectors import ShiftTile, VectorTile, WindowTile
from gen.families.transpose.algorithms.word_tile import WordTile
from gen.families.transpose.literature import NREPS, MatrixSpec, MoveSpec
from gen.families.transpose.oracle import moved, moved_at, transposed, transposed_at
from gen.families.transpose.shapes import ShapeClass, canonical_names, canonical_sizes
from gen.families.transpose.spec import TransposeSpec
from gen.families.transpose.values import BITS, NUMBERS, Values
from gen.paths import templates_root

_ALGORITHMS: tuple[Algorithm[Any, Any], ...] = (
    Naive(), Tiled(), VectorTile(), WindowTile(), ShiftTile(), Skinny(), Interleave(), Small(), Squares(), RowCopy(),
    FlatCopy(), Packed(), ShiftBox(), GroupedTile(), WordTile(), Gather(), SwapTile(),
)  # fmt: skip

# Every way in which elements change, between types of all sizes; and axes that they change along.
_VALUES = (
    Values(F32, F16), Values(F64, BF16), Values(U8, F32), Values(F32, I8, saturate=True), Values(I32, F32, 3.0),
    Values(I64, I64, 3.0, saturate=True), Values(F32, F32, 0.3), Values(C64, C64, conjugate=True),
    Values(C128, C64, -0.1), Values(BF16, F64),
)  # fmt: skip
_ORDERS = ((1, 0), (0, 2, 1), (2, 1, 0), (0, 3, 1, 2))


class Transpose(DenseFamily[MatrixSpec]):
    """The family of transposes, and of the literature's copies."""

    name = "transpose"
    summary = "the axes of an array in another order"
    most_candidates = 26
    algorithms: Mapping[str, Algorithm[Any, Any]] = {a.name: a for a in _ALGORITHMS}
    named = tuple(literature.literature())
    catalogue: tuple[MatrixSpec, ...] = (TransposeSpec(),)
    extra_proof_specs: Mapping[str, Any] = {
        "shift_tile": TransposeSpec(dtype=B8),
        "packed": TransposeSpec((0, 3, 2, 1), B8),
        "shift_box": TransposeSpec((2, 1, 0), B8),
        "grouped_tile": TransposeSpec((0, 3, 2, 1), B16),
        "word_tile": TransposeSpec((2, 1, 0), B8),
        "swap_tile": TransposeSpec(in_place=True),
        # Of a single matrix these have one block.
        "small": TransposeSpec((0, 2, 1)),
        "squares": TransposeSpec((0, 2, 1)),
        "flat_copy": TransposeSpec((1, 0, 2)),
    }
    templates = templates_root()
    label_help = (
        "0312_b16, 10_b32_in_place, 10_f32_to_f16 or 10_c64_conj: axes in their new order and a type, one of "
        f"{', '.join(dtype.name for dtype in BITS.values())}, or {', '.join(NUMBERS)} where numbers change"
    )

    def takes(self, spec: object) -> bool:
        """Transposes, and the literature's copies and their like."""
        return isinstance(spec, MatrixSpec)

    @override
    def from_label(self, label: str) -> MatrixSpec | None:
        return TransposeSpec.from_label(label) or MoveSpec.from_label(label)

    def from_json(self, content: Mapping[str, Any]) -> MatrixSpec:
        """The inverse of the specs' `to_json`: `op` is what copies and their like have."""
        return (MoveSpec if "op" in content else TransposeSpec).from_json(content)

    def runtime_parameters(self, spec: MatrixSpec) -> Mapping[str, int]:
        """How often a matrix is moved."""
        return {NREPS: 1} if isinstance(spec, MoveSpec) else {}

    def extents(self, spec: MatrixSpec, layouts: Mapping[str, Layout]) -> Extents:
        """Every axis, every pitch in elements, and for transposes the canonical form."""
        if isinstance(spec, MoveSpec):
            return super().extents(spec, layouts)
        if spec.strided:
            return _strided(spec, layouts)
        found = measure(spec.operands, layouts)
        for operand in spec.operands:
            if operand.pitch and operand.name in layouts:
                found[operand.pitch] = _pitch(operand.name, layouts[operand.name])
        check_gaps(spec.operands, found, layouts)
        planned = layouts_of(spec.operands, found)
        if spec.in_place:
            return {**found, MATRICES: prod(planned["data"].shape[:-2])}
        found |= _canonical(spec, planned)
        if len(spec.axes) < 2 or spec.values is not None:
            return found
        return {**found, **boxes_for(spec, found), **wide_boxes_for(spec, found), **groups_for(spec, found)}

    @override
    def layouts(self, spec: MatrixSpec, extents: Extents) -> Mapping[str, Layout]:
        found = super().layouts(spec, extents)
        if not (isinstance(spec, TransposeSpec) and spec.strided and "in_step0" in extents):
            return found
        steps = {name: [extents[f"{name}_step{axis}"] for axis in range(len(spec.axes) - 1)] for name in found}
        return {
            name: replace(one, strides=tuple(step * one.dtype.itemsize for step in (*steps[name], 1)))
            for name, one in found.items()
        }

    def oracle(self, spec: MatrixSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """NumPy's, bit for bit."""
        if isinstance(spec, MoveSpec):
            return {"out": Expected(moved(spec, inputs["in"]))}
        return transposed(spec, inputs)

    def oracle_at(
        self, spec: MatrixSpec, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """The elements of the input that get there."""
        if isinstance(spec, MoveSpec):
            return Expected(moved_at(spec, inputs["in"], index))
        return transposed_at(spec, inputs, index)

    def work(self, spec: MatrixSpec, extents: Extents) -> Work:
        """Each element read once and written once, as often as a call asks for: repetitions are there to be timed."""
        once, times = super().work(spec, extents), max(extents.get(NREPS, 1), 1)
        read, written = once.bytes_read * times, once.bytes_written * times
        return replace(once, bytes_read=read, bytes_written=written, cells=once.cells * times)

    @override
    def shape_classes(self, spec: MatrixSpec) -> tuple[str, ...]:
        if isinstance(spec, MoveSpec):
            return super().shape_classes(spec)
        return tuple(known.value for known in self._representatives(spec))

    def shape_class(self, spec: MatrixSpec, extents: Extents, alignment: int = WIDEST) -> str:
        """By what moves, how few rows or columns there are, and whether all rows are aligned to 16 bytes."""
        if isinstance(spec, MoveSpec):
            return super().shape_class(spec, extents, alignment)
        return shapes.known_class(spec, extents, alignment).value

    def can_share_tuning(self, spec: MatrixSpec, other: MatrixSpec) -> bool:
        """Other axes of the same elements: once they are merged, a class tells what moves."""
        if isinstance(spec, MoveSpec) or isinstance(other, MoveSpec):
            return False
        return (spec.dtype, spec.values, spec.in_place) == (other.dtype, other.values, other.in_place)

    @override
    def first_stays(self, shape_class: str) -> float:
        """But of copies the least estimate is the better choice: bench/estimates-transpose-h200.json."""
        return super().first_stays(shape_class) if shape_class == ShapeClass.COPY.value else 0.98

    @override
    def smallest(self, spec: MatrixSpec, extents: Extents, limits: Limits) -> Smallest:
        elements = elements_of(spec, extents) if isinstance(spec, TransposeSpec) else 0
        rows, cols = extents["rows"], extents["cols"]
        return Smallest(elements, 2 * elements * spec.dtype.size, rows=rows, cols=cols)

    @override
    def representative(self, spec: MatrixSpec, shape_class: str) -> Extents:
        if isinstance(spec, MoveSpec):
            return literature.representative(spec)
        return self._representatives(spec)[ShapeClass(shape_class)]

    def cases(self, spec: MatrixSpec) -> Iterator[Extents]:
        """Nothing, one, one off a tile, non-square, skinny, pitched."""
        if isinstance(spec, MoveSpec):
            yield from literature.cases(spec)
        else:
            yield from (self._problem(spec, known) for known in shapes.cases(spec))

    @override
    def far_cases(self, spec: MatrixSpec) -> Iterator[Extents]:
        if isinstance(spec, TransposeSpec):
            yield from (self._problem(spec, known) for known in shapes.far_cases(spec))

    def proof_cover(self) -> Iterator[tuple[str, MatrixSpec, Config]]:
        """Every way in which elements change, and stacks of matrices, by every algorithm that can compute them so.

        Axes, elements and configs in turns.
        """
        for first, algorithm in enumerate(self.algorithms.values()):
            configs = searched_cover(algorithm)
            for place, values in enumerate(_VALUES):
                axes = _ORDERS[(first + place) % len(_ORDERS)]
                strided = (first + place) // 4 % 2 == 1  # of axes in every order
                spec = TransposeSpec(axes, values.source, values, False, strided)
                yield from _first_taken(algorithm, [spec], configs, place)
                if values.source == values.result:
                    axes = _ORDERS[(first + place) % 2]
                    spec = TransposeSpec(axes, values.source, values, in_place=True)
                    yield from _first_taken(algorithm, [spec], configs, place)
            dtypes = [*BITS.values()] * 2
            for in_place in (False, True):
                stacks = [TransposeSpec((0, 2, 1), dtype, in_place=in_place) for dtype in dtypes[first % len(BITS) :]]
                yield from _first_taken(algorithm, stacks, configs, first)

    def base(self, spec: MatrixSpec, shape_class: str) -> tuple[str, Config]:
        """What was fast on an H100; of the literature's copies, a tile in shared memory."""
        if isinstance(spec, MoveSpec):
            return heuristics.base_of_moves(spec)
        return heuristics.base(spec, ShapeClass(shape_class))

    def heuristic_configs(self, spec: MatrixSpec, shape_class: str, limits: Limits) -> Iterator[tuple[str, Config]]:
        """What an untuned device gets, made for its sizes, or base; then what was fast on an H100 or an H200."""
        seen: set[tuple[str, Config]] = set()
        if isinstance(spec, TransposeSpec):
            for one in heuristics.heuristic_configs(spec, ShapeClass(shape_class)):
                if one not in seen:
                    seen.add(one)
                    yield one

    def _representatives(self, spec: TransposeSpec) -> Mapping[ShapeClass, Extents]:
        return shapes.representatives(spec, self._problem)

    def _problem(self, spec: TransposeSpec, known: Mapping[str, int]) -> Extents:
        return self.extents(spec, self.layouts(spec, known))


def _first_taken(
    algorithm: Algorithm[Any, Any], specs: Sequence[TransposeSpec], configs: Sequence[Config], start: int
) -> Iterator[tuple[str, MatrixSpec, Config]]:
    """The first of the specs that an algorithm can compute, by the first config from `start` on; if there is one."""
    start %= len(configs)
    for spec, config in product(specs, (*configs[start:], *configs[:start])):
        if isinstance(spec, algorithm.takes) and algorithm.illegal(spec, config) is None:
            yield algorithm.name, spec, config
            return


def _strided(spec: TransposeSpec, layouts: Mapping[str, Layout]) -> Extents:
    """Every axis, the steps along all but the last of each array in elements, and the canonical form.

    Raises ShapeError for elements apart along the last axis, and for axes that lie within others.
    """
    shapes = {name: replace(one, strides=dense_strides(one.shape, one.dtype.itemsize)) for name, one in layouts.items()}
    found = measure(spec.operands, shapes)
    planned = {}
    for operand in spec.operands:
        dense_one = layout_of(operand, found)
        if operand.name in layouts:
            check_dtype(operand, layouts[operand.name])
        planned[operand.name] = replace(dense_one, strides=_steps(operand, layouts.get(operand.name, dense_one)))
        size = operand.dtype.size
        for axis, stride in enumerate(planned[operand.name].strides[:-1]):
            found[f"{operand.name}_step{axis}"] = stride // size
    return {**found, **_canonical(spec, planned)}


def _steps(operand: Operand, layout: Layout) -> tuple[int, ...]:
    """The strides in bytes, those along axes without a second element as if there were no gap."""
    step, found = operand.dtype.size, list[int]()
    for extent, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        own = stride if extent > 1 and 0 not in layout.shape else step
        if own < step or (not found and own != step):
            rule = "must have axes each of which lies within the one before, and the last one without gaps"
            raise lie_otherwise(operand.name, rule, layout.strides, output=operand.role == "out")
        found.append(own)
        step = own * max(extent, 1)
    return tuple(reversed(found))


def _canonical(spec: TransposeSpec, layouts: Mapping[str, Layout]) -> Extents:
    """How kernels see the problem; a matrix that is turned they see as it is."""
    if "axis0" not in spec.operands[0].axes:
        return {}
    source, result = layouts["in"], layouts["out"]
    size = spec.result.size
    there = {axis: stride // size for axis, stride in zip(spec.axes, result.strides, strict=True)}
    strides = [stride // spec.dtype.size for stride in source.strides]
    numbers = canonical_sizes(spec.batches, *source.shape, *strides, *(there[axis] for axis in range(len(strides))))
    return dict(zip(canonical_names(spec.batches), numbers, strict=True))


def _pitch(name: str, layout: Layout) -> int:
    """Elements from one row to the next, whichever axis parts them; of a single row, or none, its length.

    Raises ShapeError for rows that lie on each other.
    """
    if prod(layout.shape[:-1]) <= 1 or layout.shape[-1] == 0:
        return layout.shape[-1]
    size, row_bytes = layout.dtype.itemsize, _row_bytes(layout)
    if row_bytes % size or row_bytes < layout.shape[-1] * size:
        rule = f"must have rows a multiple of {size} and at least {layout.shape[-1] * size} bytes apart"
        raise lie_otherwise(name, rule, row_bytes, output=name == "out")
    return row_bytes // size


@traced_alone
def _row_bytes(layout: Layout) -> int:
    """From one row to the next, of several."""
    rows = [stride for extent, stride in zip(layout.shape[:-1], layout.strides[:-1], strict=True) if extent > 1]
    return rows[-1]
