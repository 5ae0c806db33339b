"""From arrays and runtime parameters to extents, and back, for every family: driven by a spec's operands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from gen.dtypes import name_of
from gen.errors import ArgumentError, ShapeError, UnknownNameError
from gen.families.base import WIDEST, Extents, Family, Layout, Operand, Spec, Work
from gen.families.expr import traced_alone

S = TypeVar("S", bound=Spec)

ANY = "any size"
_COPY = "Pass a copy whose elements follow each other, such as numpy.ascontiguousarray(a) or a.contiguous() of torch"


PASS_ANOTHER = "Pass one that does, or none: then it is made"
"""What to do next where an output is not what the kernel writes."""


def told_extents(extents: Mapping[str, int], *, pitches: bool = True) -> dict[str, int]:
    """The extents that people are told: without those of boxes and groups, which follow from the others.

    Args:
        extents: of a problem, by name.
        pitches: whether pitches are told.
    """
    return {
        name: extent
        for name, extent in extents.items()
        if not name.startswith(("box", "group", "wide")) and (pitches or not name.endswith("_pitch"))
    }


def sizes_in_words(extents: Mapping[str, int], *, pitches: bool = True) -> str:
    """The same as people read them: `rows 8192, cols 8192`."""
    return ", ".join(f"{name} {extent}" for name, extent in told_extents(extents, pitches=pitches).items())


def lie_otherwise(name: str, rule: str, value: object, *, output: bool) -> ShapeError:
    """The error for an array that holds what it should, where no kernel can find it."""
    next_step = PASS_ANOTHER if output else _COPY
    return ShapeError(name, rule, value, next_step=next_step)


def shape_of(operand: Operand, extents: Extents) -> tuple[int, ...]:
    """An operand's shape in a problem of these extents."""
    return tuple(axis if isinstance(axis, int) else extents[axis] for axis in operand.axes)


def byte_bounds(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """From its first element, where the first byte of an array lies, and what comes behind its last; 0, 0 if empty."""
    if 0 in shape:
        return 0, 0
    low, high = 0, itemsize
    for extent, stride in zip(shape, strides, strict=True):
        if stride > 0:
            high += (extent - 1) * stride
        else:
            low += (extent - 1) * stride
    return low, high


def layout_of(operand: Operand, extents: Extents) -> Layout:
    """How an operand of these extents lies in memory."""
    shape = shape_of(operand, extents)
    rows = shape if not operand.pitch else (*shape[:-1], extents[operand.pitch])
    return Layout(shape, dense_strides(rows, operand.dtype.size), operand.dtype.numpy)


def dense(operand: Operand, shape: Sequence[int]) -> Layout:
    """An array of this shape whose elements all follow each other."""
    return Layout(tuple(shape), dense_strides(shape, operand.dtype.size), operand.dtype.numpy)


def dense_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of an array in row-major order; an extent of 0 counts as 1."""
    strides, stride = [], itemsize
    for extent in reversed(shape):
        strides.append(stride)
        stride *= max(extent, 1)
    return tuple(reversed(strides))


def extents_of(family: Family[Any], spec: Spec, shape: Any) -> Extents:
    """The sizes of a problem whose first input has this shape, and is dense.

    Raises ShapeError if the shape is none, the spec takes no such input, or an array would be too large to be counted.
    """
    numbers = (shape,) if isinstance(shape, int | np.integer) else shape
    if not isinstance(numbers, tuple | list) or not all(
        isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= 0 for n in numbers
    ):
        raise ShapeError("shape", "must be a number or a tuple of numbers, none negative", repr(shape))
    first = tuple(int(n) for n in numbers)
    given = dense_inputs(family, spec, first)
    _check_shape(given, first)
    extents = family.extents(spec, given)
    _check_shape(family.layouts(spec, extents), first)
    return extents


def dense_inputs(family: Family[Any], spec: Spec, shape: tuple[int, ...]) -> dict[str, Layout]:
    """Dense inputs of which the first has this shape. Raises ShapeError where that does not say those of the others."""
    first, *others = [x for x in spec.operands if x.role in ("in", "inout")]
    known: dict[Any, int] = {**family.runtime_parameters(spec)}
    known |= zip(first.axes, shape, strict=False)
    given = {first.name: dense(first, shape)}
    for other in others:
        if not all(isinstance(axis, int) or axis in known for axis in other.axes):
            raise ShapeError("shape", f"of {first.name} alone does not say that of {other.name}", shape)
        given[other.name] = dense(other, [axis if isinstance(axis, int) else known[axis] for axis in other.axes])
    return given


def beyond_memory(shape: Sequence[int], size: int) -> bool:
    """Whether kernels cannot count the bytes of an array: in signed integers of 64 bits, as NumPy, 0 taken for 1."""
    return size * prod(max(extent, 1) for extent in shape) >= 2**63


def _check_shape(layouts: Mapping[str, Layout], shape: tuple[int, ...]) -> None:
    if any(beyond_memory(layout.shape, layout.dtype.itemsize) for layout in layouts.values()):
        rule = "must be of arrays of less than 2^63 bytes each, as kernels count in 64 bits and sizes of 0 as 1"
        raise ShapeError("shape", rule, shape, next_step="Call the kernel for parts of the array")


def layouts_of(operands: Sequence[Operand], extents: Extents) -> dict[str, Layout]:
    """The layout of every array among the operands."""
    return {operand.name: layout_of(operand, extents) for operand in operands if operand.role != "number"}


def measure(operands: Sequence[Operand], layouts: Mapping[str, Layout]) -> dict[str, int]:
    """The extents that arrays of these layouts have: the inverse of `layouts_of`.

    Outputs that are not given keep dense rows. Raises ShapeError naming operand, rule and value.
    """
    extents: dict[str, int] = {}
    given = [operand for operand in operands if operand.name in layouts]
    for name in layouts:
        if not any(operand.name == name for operand in operands):
            raise ShapeError(name, "is no operand; there are " + ", ".join(operand.name for operand in operands))
    for operand in operands:
        if operand.role in ("in", "inout") and operand.name not in layouts:
            raise ShapeError(operand.name, "is missing")
    for operand in given:
        layout = layouts[operand.name]
        check_dtype(operand, layout)
        next_step = PASS_ANOTHER if operand.role == "out" else ""
        if len(layout.shape) != len(operand.axes):
            rule = f"must have {len(operand.axes)} axes"
            raise ShapeError(operand.name, rule, layout.shape, next_step=next_step)
        for place, (axis, extent) in enumerate(zip(operand.axes, layout.shape, strict=True)):
            if isinstance(axis, int):
                if extent != axis:
                    rule = f"must have an extent of {axis} along axis {place}"
                    raise ShapeError(operand.name, rule, layout.shape, next_step=next_step)
            elif extents.setdefault(axis, extent) != extent:
                rule = f"must have {extents[axis]} {axis}"
                raise ShapeError(operand.name, rule, layout.shape, next_step=next_step)
    for operand in operands:
        if operand.name in layouts:
            extents |= _pitch(operand, layouts[operand.name])
        elif operand.pitch:
            extents[operand.pitch] = shape_of(operand, extents)[-1]
    return extents


def check_dtype(operand: Operand, layout: Layout, *, wider: bool = False) -> None:
    """Raises ShapeError unless the array holds the operand's elements, each at an address its size divides.

    Args:
        operand: which of the spec's.
        layout: how the array lies.
        wider: whether a call may bring it of a type that holds more, as the message then says.
    """
    if not operand.dtype.holds(layout.dtype):
        raise _holds_others(operand, layout.dtype, wider)
    if layout.alignment % min(operand.dtype.size, 16):
        rule = f"must start at, and step by, a multiple of {operand.dtype.size} bytes"
        value = f"multiples of {layout.alignment}, strides {layout.strides}"
        raise lie_otherwise(operand.name, rule, value, output=operand.role == "out")


def _holds_others(operand: Operand, got: np.dtype[Any], wider: bool) -> ShapeError:
    wanted, known = operand.dtype.name, name_of(got)
    if operand.dtype.kind == "bits":
        rule, value = f"must hold elements of {operand.dtype.size} bytes", str(got)
        kernel = f"elements of {got.itemsize} bytes" if got.itemsize in (1, 2, 4, 8, 16) and not got.hasobject else None
    else:
        rule, value, kernel = f"must hold {wanted} elements", known or str(got), known
        if wider:
            rule += f", or those of a type that holds every {wanted}"
    if operand.role == "out":
        return ShapeError(operand.name, rule, value, next_step=PASS_ANOTHER)
    other = f", or load a kernel for {kernel}" if kernel else ""
    return ShapeError(operand.name, rule, value, next_step=f"Convert it first{other}")


def timed_numbers(spec: Spec) -> dict[str, Any]:
    """What stands for the numbers of a call where kernels are timed: 1, by operand."""
    return {operand.name: operand.dtype.numpy.type(1) for operand in spec.operands if operand.role == "number"}


@traced_alone
def is_contiguous(layout: Layout) -> bool:
    """Whether the elements follow each other in row-major order; strides of axes of extent 0 and 1 do not count."""
    if prod(layout.shape) == 0:
        return True
    expected = layout.dtype.itemsize
    for extent, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def _pitch(operand: Operand, layout: Layout) -> dict[str, int]:
    size, output = operand.dtype.size, operand.role == "out"
    if not operand.pitch:
        if not is_contiguous(layout):
            what = f"strides {layout.strides} at shape {layout.shape}"
            raise lie_otherwise(operand.name, "must be contiguous", what, output=output)
        return {}
    rows, cols = layout.shape[-2:]
    row_bytes, column_bytes = layout.strides[-2:]
    if 0 in layout.shape:
        return {operand.pitch: cols}  # strides between no elements mean nothing
    if cols > 1 and column_bytes != size:
        rule = f"must have elements {size} bytes apart along its rows"
        raise lie_otherwise(operand.name, rule, column_bytes, output=output)
    if rows <= 1:
        return {operand.pitch: cols}  # no row follows another
    if row_bytes % size or row_bytes < cols * size:
        rule = f"must have rows a multiple of {size} and at least {cols * size} bytes apart"
        raise lie_otherwise(operand.name, rule, row_bytes, output=output)
    return {operand.pitch: row_bytes // size}


def check_gaps(operands: Sequence[Operand], extents: Extents, layouts: Mapping[str, Layout]) -> None:
    """Raises ShapeError for an array with gaps elsewhere than after its rows, which all are equally long."""
    for operand in operands:
        if operand.name not in layouts:
            continue
        layout, expected = layouts[operand.name], layout_of(operand, extents).strides
        if _lies_otherwise(layout, expected):
            rule = f"must have a gap after its rows at most, and none after other axes: strides {expected}"
            raise lie_otherwise(operand.name, rule, layout.strides, output=operand.role == "out")


@traced_alone
def _lies_otherwise(layout: Layout, strides: Sequence[int]) -> bool:
    """Whether elements lie elsewhere than these strides say."""
    return prod(layout.shape) > 0 and any(
        extent > 1 and own != other for extent, own, other in zip(layout.shape, layout.strides, strides, strict=True)
    )


def checked_runtime_parameters(family: Family[Any], spec: Spec, stated: Mapping[str, Any]) -> dict[str, int]:
    """Every runtime parameter of a spec: the stated value, else the family's.

    Raises ArgumentError for a name that the spec does not have, and for a value that is no whole number from 0.
    """
    found = dict(family.runtime_parameters(spec))
    for name, value in stated.items():
        if name not in found:
            raise ArgumentError(name, f"is no runtime parameter of {family.name_of(spec)}", repr(value))
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 2**31:
            raise ArgumentError(name, "must be a whole number, not negative and below 2^31", repr(value))
        found[name] = int(value)
    return found


def known_runtime_parameters(family: Family[Any], spec: Spec, stated: Mapping[str, int]) -> dict[str, int]:
    """Those of the stated runtime parameters that this spec has."""
    return {name: value for name, value in stated.items() if name in family.runtime_parameters(spec)}


def check_runtime_parameters(stated: Mapping[str, int], specs: Iterable[tuple[Family[Any], Spec]]) -> None:
    """Raises UnknownNameError for a runtime parameter that none of these specs has."""
    known = dict.fromkeys(name for family, spec in specs for name in family.runtime_parameters(spec))
    for name in stated:
        if name not in known:
            rule = (
                "must be one of " + ", ".join(known)
                if known
                else "must be left out: no kernel here has runtime parameters"
            )
            raise UnknownNameError("--param", rule, repr(name))


class DenseFamily(Family[S]):
    """A family that reads every input once and writes every output once, at copy speed at best.

    Extents, layouts and least work follow from the operands; there is one shape class, unless a family says more.
    """

    def extents(self, spec: S, layouts: Mapping[str, Layout]) -> Extents:
        """Every axis of the operands, every pitch in elements, and what a call may count."""
        return {**measure(spec.operands, layouts), **self.runtime_parameters(spec)}

    @override
    def layouts(self, spec: S, extents: Extents) -> Mapping[str, Layout]:
        return layouts_of(spec.operands, extents)

    def work(self, spec: S, extents: Extents) -> Work:
        """Each element read once and written once."""
        layouts = layouts_of(spec.operands, extents)
        moved = {o.name: prod(layouts[o.name].shape) for o in spec.operands if o.role != "number"}
        read = sum(moved[o.name] * o.dtype.size for o in spec.operands if o.role in ("in", "inout"))
        written = sum(moved[o.name] * o.dtype.size for o in spec.operands if o.role in ("out", "inout"))
        return Work(read, written, max(moved.values()), "copy")

    @override
    def shape_classes(self, spec: S) -> tuple[str, ...]:
        return (ANY,)

    @override
    def shape_class(self, spec: S, extents: Extents, alignment: int = WIDEST) -> str:
        return ANY
