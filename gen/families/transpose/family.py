"""The family of transposes: what the rest of gen asks about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from gen.arch import Limits
from gen.dtypes import B8, DTYPES, read_dtype
from gen.errors import SpecError
from gen.families.base import WIDEST, Algorithm, Array, Expected, Extents, Family, Layout
from gen.families.config import Config
from gen.families.dense import DenseFamily
from gen.families.kinds import Kinds
from gen.families.layout import layout_of, lie_otherwise, measure
from gen.families.transpose import square
from gen.families.transpose.boxes import RUN, longest_run
from gen.families.transpose.canonical import canonical
from gen.families.transpose.classes import base, known_class, representatives
from gen.families.transpose.flat import RowCopy, Skinny, Small
from gen.families.transpose.flat_copy import FlatCopy
from gen.families.transpose.interleave import Interleave
from gen.families.transpose.likely import likely
from gen.families.transpose.literature import literature
from gen.families.transpose.moves import MoveSpec
from gen.families.transpose.packed import Packed
from gen.families.transpose.references import Moves
from gen.families.transpose.spec import TransposeSpec
from gen.families.transpose.squares import Squares
from gen.families.transpose.swap import SwapTile
from gen.families.transpose.tiled import Naive, Tiled
from gen.families.transpose.values import BITS, NUMBERS, Values
from gen.families.transpose.vector import VectorTile
from gen.families.transpose.windows import ShiftTile, WindowTile
from gen.paths import templates_root

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
_RUN, _RUNS, _GAP = 512, 60, 16  # bytes of runs, as many along an axis as fill blocks; elements between whole ones
_WHOLE_PITCHES = ((37, 64), (64, 37))  # rows begin at vectors, where the last of either array fill none
_LARGER = ((248, 253), (249, 251))  # for elements of which a word holds several: one of their tiles lies inside


class Permutations(DenseFamily[TransposeSpec]):
    """Permutations of axes."""

    def spell(self, label: str) -> TransposeSpec | None:
        """`{axes}_{dtype}`, or `{axes}_{values}`; and `_in_place`."""
        axes, _, what = label.removesuffix("_in_place").partition("_")
        if not axes.isdecimal():
            return None
        order, in_place = tuple(int(axis) for axis in axes), label.endswith("_in_place")
        if what in DTYPES:
            return TransposeSpec(order, DTYPES[what], None, in_place)
        values = Values.spell(what.split("_"))
        return None if values is None else TransposeSpec(order, values.source, values, in_place)

    def from_json(self, content: Mapping[str, Any]) -> TransposeSpec:
        """The inverse of `TransposeSpec.to_json`."""
        axes: Any = content.get("axes")
        order = tuple(axes) if isinstance(axes, list) else axes
        values = Values.from_json(content) if "to" in content else None
        in_place: Any = content.get("in_place", False)
        if not isinstance(in_place, bool):
            raise SpecError("transpose.in_place", "must be True or False", repr(in_place))
        dtype = values.source if values else read_dtype(content.get("dtype"), "transpose.dtype")
        return TransposeSpec(order, dtype, values, in_place)

    def extents(self, spec: TransposeSpec, layouts: Mapping[str, Layout]) -> Extents:
        """Every axis, every pitch in elements, and the canonical form."""
        found = measure(spec.operands, layouts)
        for operand in spec.operands:
            if operand.pitch and operand.name in layouts:
                found[operand.pitch] = _pitch(operand.name, layouts[operand.name])
        planned = {operand.name: layout_of(operand, found) for operand in spec.operands}
        for name, layout in layouts.items():
            expected = planned[name].strides
            if 0 not in layout.shape and any(
                n > 1 and a != b for n, a, b in zip(layout.shape, layout.strides, expected, strict=True)
            ):
                rule = f"must have a gap after its rows at most, and none after other axes: strides {expected}"
                raise lie_otherwise(name, rule, layout.strides, output=name == "out")
        if spec.in_place:
            return {**found, **square.counted(planned["data"])}
        found |= self._canonical(spec, planned)
        return {**found, RUN: longest_run(spec, found)} if len(spec.axes) > 2 else found

    def layouts(self, spec: TransposeSpec, extents: Extents) -> Mapping[str, Layout]:
        """Both arrays."""
        return {operand.name: layout_of(operand, extents) for operand in spec.operands}

    def _canonical(self, spec: TransposeSpec, layouts: Mapping[str, Layout]) -> Extents:
        """How kernels see the problem; a matrix that is turned they see as it is."""
        if "axis0" not in spec.operands[0].axes:
            return {}
        source, result = layouts["in"], layouts["out"]
        size = spec.result.size
        there = {axis: stride // size for axis, stride in zip(spec.axes, result.strides, strict=True)}
        strides = [stride // spec.dtype.size for stride in source.strides]
        return canonical(source.shape, strides, [there[axis] for axis in range(len(strides))]).extents(spec.batches)

    def oracle(self, spec: TransposeSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """`numpy.transpose`, bit for bit."""
        ((name, array),) = inputs.items()
        turned = np.transpose(array, spec.axes)
        return {name if spec.in_place else "out": Expected(spec.values.apply(turned) if spec.values else turned)}

    def part(
        self, spec: TransposeSpec, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """NumPy transposes without a copy."""
        (array,) = inputs.values()
        chosen = np.transpose(array, spec.axes)[index]
        return Expected(spec.values.apply(chosen) if spec.values else chosen)

    def shape_classes(self, spec: TransposeSpec) -> tuple[str, ...]:
        """Those that problems of the spec can have."""
        return tuple(self._representatives(spec))

    def shape_class(self, spec: TransposeSpec, extents: Extents, alignment: int = WIDEST) -> str:
        """By what moves, how few rows or columns there are, and whether all rows are aligned to 16 bytes."""
        return known_class(spec, extents, alignment, self._representatives(spec))

    def alike(self, spec: TransposeSpec, other: TransposeSpec) -> bool:
        """Other axes of the same elements: once they are merged, a class tells what moves."""
        return (spec.dtype, spec.values, spec.in_place) == (other.dtype, other.values, other.in_place)

    def representative(self, spec: TransposeSpec, shape_class: str) -> Extents:
        """The size that stands for a class when it is tuned."""
        return self._representatives(spec)[shape_class]

    def _representatives(self, spec: TransposeSpec) -> Mapping[str, Extents]:
        return representatives(spec, self._problem)

    def _problem(self, spec: TransposeSpec, known: Mapping[str, int]) -> Extents:
        return self.extents(spec, self.layouts(spec, known))

    def cases(self, spec: TransposeSpec) -> Iterator[Extents]:
        """Nothing, one, one off a tile, non-square, skinny, pitched."""
        if spec.in_place:
            yield from (self._problem(spec, known) for known in square.cases(spec))
            return
        one, two = spec.operands
        shapes = _SHAPES.get(len(one.axes), _MANY)
        if len(one.axes) == 2 and spec.dtype.size < 4:
            shapes = (*shapes, *_LARGER)
        for shape in shapes:
            known = dict(zip(map(str, one.axes), (*shape, *(2, 3, 1, 2, 1, 2))[: len(one.axes)], strict=True))
            for gap in (0, 7) if known[str(one.axes[-1])] in (65, 251) else (0,):
                rows = {o.pitch: known[str(o.axes[-1])] for o in (one, two) if o.pitch}
                whole = shape in _WHOLE_PITCHES
                yield self._problem(
                    spec, known | {p: -(-row // 16) * 16 if whole else row + gap for p, row in rows.items()}
                )
        if spec.axes[-1] == len(spec.axes) - 1 and spec.values is None:
            yield from self._whole_runs(spec)

    def _whole_runs(self, spec: TransposeSpec) -> Iterator[Extents]:
        """Runs of whole vectors, many along each of the last three other axes; then few, along all others."""
        one, two = spec.operands
        behind, run = len(one.axes) - 1, max(_RUN // spec.dtype.size, 1)
        shapes = [
            (*(_RUNS if place == long else 2 if place > behind - 4 else 1 for place in range(behind)), run)
            for long in range(max(behind - 3, 0), behind)
        ]
        if behind > 3:
            shapes.append((*((2, 3) * 4)[:behind], _GAP))
        for shape in shapes:
            known = dict(zip(map(str, one.axes), shape, strict=True))
            pitches = {o.pitch: shape[-1] + gap for o, gap in ((one, _GAP), (two, 3 * _GAP)) if o.pitch}
            yield self._problem(spec, known | pitches)

    def base(self, spec: TransposeSpec, shape_class: str) -> tuple[str, Config]:
        """What was fast on an H100."""
        return base(spec, shape_class)

    def likely(self, spec: TransposeSpec, shape_class: str, limits: Limits) -> tuple[tuple[str, Config], ...]:
        """What an untuned device gets, made for its sizes, or base; then what was fast on an H100 or an H200."""
        return tuple(dict.fromkeys(likely(spec, shape_class)))


def _pitch(name: str, layout: Layout) -> int:
    """Elements from one row to the next, whichever axis parts them; of a single row, or none, its length.

    Raises ShapeError for rows that lie on each other.
    """
    rows = [stride for extent, stride in zip(layout.shape[:-1], layout.strides[:-1], strict=True) if extent > 1]
    if not rows or 0 in layout.shape:
        return layout.shape[-1]
    size = layout.dtype.itemsize
    if rows[-1] % size or rows[-1] < layout.shape[-1] * size:
        rule = f"must have rows a multiple of {size} and at least {layout.shape[-1] * size} bytes apart"
        raise lie_otherwise(name, rule, rows[-1], output=name == "out")
    return rows[-1] // size


_ALGORITHMS: tuple[Algorithm[Any, Any], ...] = (
    Naive(), Tiled(), VectorTile(), WindowTile(), ShiftTile(), Skinny(), Interleave(), Small(), Squares(), RowCopy(),
    FlatCopy(), Packed(), SwapTile(),
)  # fmt: skip


class Transpose(Kinds):
    """The family of transposes."""

    name = "transpose"
    summary = "the axes of an array in another order"
    kinds: ClassVar[Mapping[type[Any], Family[Any]]] = {TransposeSpec: Permutations(), MoveSpec: Moves()}
    algorithms: Mapping[str, Algorithm[Any, Any]] = {a.name: a for a in _ALGORITHMS}
    named = tuple(literature())
    catalogue = (TransposeSpec(),)
    samples: Mapping[str, Any] = {
        "shift_tile": TransposeSpec(dtype=B8),
        "packed": TransposeSpec((0, 3, 2, 1), B8),
        "swap_tile": TransposeSpec(in_place=True),
    }
    templates = templates_root()
    spelling = (
        "0312_b16, 10_b32_in_place, 10_f32_to_f16 or 10_c64_conj: axes in their new order and a type, one of "
        f"{', '.join(dtype.name for dtype in BITS.values())}, or {', '.join(NUMBERS)} where numbers change"
    )

    def kind_of(self, content: Mapping[str, Any]) -> type[Any]:
        """`op` is what copies and their like have."""
        return MoveSpec if "op" in content else TransposeSpec
