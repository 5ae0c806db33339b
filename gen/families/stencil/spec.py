"""What a stencil computes: weights, element type, and what lies outside."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import product
from numbers import Real
from typing import Any, Literal, cast, get_args

import numpy as np

from gen.dtypes import BF16, F16, F32, F64, I16, U8, U16, DType, read_dtype
from gen.errors import SpecError
from gen.families.base import Operand, ShownSpec, digest_label
from gen.families.stencil.reassociated import Terms

Boundary = Literal["constant", "nearest", "reflect", "mirror", "wrap", "frozen"]
"""What lies outside along one axis, in SciPy's words: `constant` cval, `nearest` aaaa|abcd, `reflect` dcba|abcd,
`mirror` dcb|abcd, `wrap` abcd|abcd. `frozen`, which SciPy has not: cells whose neighbours lie outside stay as they are.
"""

Outside = Boundary | tuple[Boundary, Boundary]
"""The same for both ends of an axis: one for both, or one before the first cell and one past the last.

Where they differ, a place is carried across the end that it lies beyond, as the boundary of that end says, until it
lies inside; what lies past a `frozen` end is the nearest cell.
"""

BOUNDARIES: tuple[Boundary, ...] = get_args(Boundary)
DTYPES = (F16, BF16, F32, F64, U8, I16, U16)
MAX_WEIGHTS_PER_AXIS = 17  # along an axis: radius 8
AXES = ("planes", "rows", "cols")  # slowest first: a spec has the last of them
MAX_AXES = len(AXES)
STEPS = "steps"

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,23}")


class GridSpec(ShownSpec):
    """What specs of cells on a grid share: what lies outside of it, and the type of sums."""

    dtype: DType
    boundary: Boundary | tuple[Outside, ...]
    cval: float

    @property
    def boundaries(self) -> tuple[Outside, ...]:
        """What lies outside along each axis; a pair only where the ends differ."""
        return cast("tuple[Outside, ...]", self.boundary)

    @property
    def ends(self) -> tuple[tuple[Boundary, Boundary], ...]:
        """What lies before the first cell and past the last along each axis."""
        return tuple(ends_of(outside) for outside in self.boundaries)

    @property
    def accumulator(self) -> DType:
        """The type in which sums are computed, for cells of any type."""
        return F64 if self.dtype == F64 else F32


@dataclass(frozen=True)
class StencilSpec(GridSpec):
    """A correlation: each cell is the weighted sum of its neighbours, as `scipy.ndimage.correlate` has it.

    Terms are added in the row-major order of the weights, by fused multiply-add, from 0, unless they are reassociated,
    as `gen.families.stencil.reassociated` says: either way a cell's value depends on nothing but this spec. A sum
    becomes the nearest number of the cells' type, of two that are as near the even one.
    Sums outside the range of an integer type become its least or greatest number, as OpenCV has it and SciPy has not.

    Attributes:
        word: what the reader calls it; stands in the label.
        weights: in row-major order, as the kernel's arithmetic rounds them; a weight of 0 reads nothing.
        shape: extents of the weights, one to three, each up to 17.
        dtype: of cells: f32, f64, or one that adds in f32: f16, bf16, u8, i16 or u16.
        boundary: what lies outside; one for all axes, or one for each, which may be a pair: one for each end.
        cval: the value outside along `constant` axes.
        origin: shifts the weights along each axis, as SciPy's `origin`; one for all axes, or one for each.
        reassociate: whether terms are added in an order that takes fewer operations, and rounds otherwise; False where
            none is saved.
    """

    word: str
    weights: tuple[float, ...]
    shape: tuple[int, ...] = (3, 3)
    dtype: DType = F32
    boundary: Boundary | tuple[Outside, ...] = "constant"
    cval: float = 0.0
    origin: int | tuple[int, ...] = 0
    reassociate: bool = False

    def __post_init__(self) -> None:
        word: object = self.word  # JSON may hold anything
        if not isinstance(word, str) or not _WORD.fullmatch(word):
            raise SpecError("stencil.word", "must be a letter and up to 23 letters and digits", repr(self.word))
        if self.dtype not in DTYPES:
            rule = "must be one of " + ", ".join(dtype.name for dtype in DTYPES)
            raise SpecError("stencil.dtype", rule, getattr(self.dtype, "name", repr(self.dtype)))
        # Specs that are equal have one JSON, and so one label.
        object.__setattr__(self, "shape", _shape(self.shape, len(self.weights)))
        object.__setattr__(self, "weights", self._rounded_weights())
        axes = len(self.shape)
        object.__setattr__(self, "boundary", boundaries_of(self.boundary, axes))
        object.__setattr__(self, "origin", _origins(self.origin, self.shape))
        object.__setattr__(self, "cval", self._rounded_cval())
        object.__setattr__(self, "reassociate", self._saves_operations())

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once, for there may be thousands of weights; of numbers alone, whose hash other processes share."""
        return hash((self.shape, self.weights))

    def _saves_operations(self) -> bool:
        """Whether terms are to be reassociated, and fewer operations are left."""
        given: object = self.reassociate
        if not isinstance(given, bool):
            raise SpecError("stencil.reassociate", "must be True or False", repr(given))
        if given and len(self.shape) == MAX_AXES and self.shape[0] > 1:
            rule = "must be False where weights reach over planes: terms are reassociated in two axes"
            raise SpecError("stencil.reassociate", rule, given)
        return given and len(self.shape) > 1 and self.terms.operations < len(self.taps)

    def _rounded_weights(self) -> tuple[float, ...]:
        rounded = tuple(rounded_to(weight, self.accumulator) for weight in self.weights)
        for given, weight in zip(self.weights, rounded, strict=True):
            if not np.isfinite(weight):
                rule = f"must be numbers, finite as {self.accumulator.name}"
                raise SpecError("stencil.weights", rule, repr(given))
        return rounded

    def _rounded_cval(self) -> float:
        if not any("constant" in ends for ends in self.ends):
            return 0.0  # nothing reads it
        if self.dtype.kind != "float":
            return self._whole_cval()
        rounded = rounded_to(self.cval, self.dtype)
        if not np.isfinite(rounded):
            raise SpecError("stencil.cval", f"must be a number, finite as {self.dtype.name}", repr(self.cval))
        return rounded

    def _whole_cval(self) -> float:
        number, range_of_type = rounded_to(self.cval, F64), np.iinfo(self.dtype.numpy)
        if not (number.is_integer() and range_of_type.min <= number <= range_of_type.max):
            rule = f"must be a whole number from {range_of_type.min} to {range_of_type.max}, since cells are {{}}"
            raise SpecError("stencil.cval", rule.format(self.dtype.name), repr(self.cval))
        return number

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes, slowest first."""
        return AXES[-len(self.shape) :]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The cells before and after; rows of both may be pitched, and planes follow each other."""
        pitched = len(self.axes) > 1
        return (
            Operand("in", "in", self.dtype, self.axes, pitch="in_pitch" if pitched else ""),
            Operand("out", "out", self.dtype, self.axes, pitch="out_pitch" if pitched else ""),
        )

    @cached_property
    def before(self) -> tuple[int, ...]:
        """How far the weights reach towards lower indices, along each axis."""
        origins = cast("tuple[int, ...]", self.origin)
        return tuple(extent // 2 + shift for extent, shift in zip(self.shape, origins, strict=True))

    @cached_property
    def after(self) -> tuple[int, ...]:
        """How far the weights reach towards higher indices, along each axis."""
        return tuple(extent - 1 - before for extent, before in zip(self.shape, self.before, strict=True))

    @cached_property
    def taps(self) -> tuple[tuple[tuple[int, ...], float], ...]:
        """Offset and weight of every neighbour that is read, in row-major order."""
        along = (range(-before, after + 1) for before, after in zip(self.before, self.after, strict=True))
        return tuple((offset, weight) for offset, weight in zip(product(*along), self.weights, strict=True) if weight)

    @cached_property
    def terms(self) -> Terms:
        """How terms are added where they are reassociated; of weights over two axes."""
        return Terms.of(self.taps, self.accumulator)

    @property
    def operations(self) -> int:
        """Additions and fused multiply-adds of a cell in a time step."""
        return self.terms.operations if self.reassociate else len(self.taps)

    @property
    def roundings(self) -> int:
        """The most on the way from a cell to its sum in a time step: the h of the bound gamma_h."""
        return self.terms.roundings if self.reassociate else len(self.taps)

    @property
    def label(self) -> str:
        """For instance `heat_3fa94c01_f32`: no name can hold the weights."""
        return digest_label(self.word, self, self.dtype)

    @property
    def summary(self) -> str:
        """What is computed."""
        where = " x ".join(self.axes)
        outside = outside_in_words(self.axes, self.boundaries, self.cval)
        pitches = ("", " Pitches count cells from row to row.", _PITCHES_OF_PLANES)[len(self.axes) - 1]
        count = len(self.taps)
        cells = "1 cell" if count == 1 else f"{count} cells"
        order = f", reassociated to {self.operations} operations" if self.reassociate else ""
        becomes = f"becomes the weighted sum of {cells} around it{order}, steps times"
        return f"Each cell of {where} {becomes}; {outside}.{pitches}"

    @property
    def differ(self) -> bool:
        """Whether the axes, or the ends of one, have different boundaries."""
        return differ(self.boundaries)

    def to_json(self) -> dict[str, Any]:
        """All fields; what is the same along all axes is said once."""
        content: dict[str, Any] = {
            "word": self.word,
            "shape": list(self.shape),
            "weights": list(self.weights),
            "dtype": self.dtype.name,
            "boundary": listed(self.boundaries) if self.differ else self.boundaries[0],
            "cval": self.cval,
        }
        if any(cast("tuple[int, ...]", self.origin)):
            content["origin"] = list(cast("tuple[int, ...]", self.origin))
        if self.reassociate:
            content["reassociate"] = True
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> StencilSpec:
        """The inverse of `to_json`. Raises SpecError for what is no spec."""
        weights, shape = content.get("weights"), content.get("shape")
        boundary, origin = content.get("boundary", "constant"), content.get("origin", 0)
        return cls(
            word=content.get("word", ""),
            weights=tuple(weights) if isinstance(weights, list | tuple) else (),
            shape=tuple(shape) if isinstance(shape, list | tuple) else (),
            dtype=read_dtype(content.get("dtype"), "stencil.dtype"),
            boundary=tuple(boundary) if isinstance(boundary, list | tuple) else boundary,
            cval=content.get("cval", 0.0),
            origin=tuple(origin) if isinstance(origin, list) else origin,
            reassociate=content.get("reassociate", False),
        )


_PITCHES_OF_PLANES = (
    " Pitches count cells from row to row; a plane begins a row after the last one of the plane before."
)
_OUTSIDE: Mapping[Boundary, str] = {
    "constant": "outside lies {cval}",
    "nearest": "outside lies the nearest cell",
    "reflect": "outside lies the mirror image, dcba|abcd",
    "mirror": "outside lies the mirror image, dcb|abcd",
    "wrap": "outside the array begins again",
    "frozen": "cells whose neighbours lie outside stay as they are",
}


def _shape(given: object, weights: int) -> tuple[int, ...]:
    shape = tuple(given) if isinstance(given, list | tuple) else ()
    extents = [int(n) for n in shape if isinstance(n, int | np.integer) and not isinstance(n, bool)]
    right = len(extents) == len(shape) and 1 <= len(shape) <= MAX_AXES
    if not right or any(not 1 <= n <= MAX_WEIGHTS_PER_AXIS for n in extents) or weights != np.prod(extents):
        rule = f"must be 1 to {MAX_WEIGHTS_PER_AXIS} along each of 1 to {MAX_AXES} axes, as many as their shape says"
        raise SpecError("stencil.weights", rule, f"{weights} weights of shape {given}")
    return tuple(extents)


def differ(boundaries: Sequence[Outside]) -> bool:
    """Whether the axes, or the ends of one, have different boundaries."""
    return len({end for outside in boundaries for end in ends_of(outside)}) > 1


def outside_in_words(axes: Sequence[str], boundaries: Sequence[Outside], cval: float) -> str:
    """What lies outside, in a sentence; once where it is the same everywhere."""
    several = differ(boundaries)
    return " and ".join(
        f"{_outside_in_words(boundary, cval)}{f' along {axis}' if several else ''}"
        for axis, boundary in zip(axes, boundaries, strict=True)
        if several or axis == axes[0]
    )


def _outside_in_words(outside: Outside, cval: float) -> str:
    if isinstance(outside, str):
        return _OUTSIDE[outside].format(cval=f"{cval:g}")
    before, after = (_outside_in_words(end, cval) for end in outside)
    return f"at the low end {before}, at the high end {after},"


def ends_of(outside: Outside) -> tuple[Boundary, Boundary]:
    """What lies before the first cell and past the last one of an axis."""
    return (outside, outside) if isinstance(outside, str) else outside


def frozen_cells(
    ends: Sequence[tuple[Boundary, Boundary]], before: Sequence[int], after: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many cells are frozen at the low and at the high end of each axis, of what reads so far beyond its own."""
    low, high = (
        tuple(cells if pair[side] == "frozen" else 0 for cells, pair in zip(reached, ends, strict=True))
        for side, reached in enumerate((before, after))
    )
    return low, high


def boundaries_of(given: object, axes: int, subject: str = "stencil.boundary") -> tuple[Outside, ...]:
    """What lies outside along each axis, given once or for each; pairs whose ends are alike become one.

    Raises SpecError, about `subject`, for what is no boundary.
    """
    listed = given if isinstance(given, tuple) else (given,) * axes
    pairs = [tuple(one) if isinstance(one, list | tuple) else (one, one) for one in listed]
    known = all(len(pair) == 2 and all(isinstance(end, str) and end in BOUNDARIES for end in pair) for pair in pairs)
    if len(listed) != axes or not known:
        several = f"{axes} of them, one an axis" if axes > 1 else "a list of one"
        rule = f"must be one of {', '.join(BOUNDARIES)}, or {several}; in a list a pair names one for each end"
        ends = [end for pair in pairs for end in pair if isinstance(end, str) and end not in BOUNDARIES]
        meant = get_close_matches(ends[0], BOUNDARIES, 1) if ends else ()
        raise SpecError(subject, rule, repr(given), next_step=f"Did you mean {meant[0]}?" if meant else "")
    return cast("tuple[Outside, ...]", tuple(pair[0] if pair[0] == pair[1] else pair for pair in pairs))


def listed(boundaries: Sequence[Outside]) -> list[str | list[str]]:
    """Boundaries as JSON has them."""
    return [outside if isinstance(outside, str) else list(outside) for outside in boundaries]


def _origins(given: object, shape: Sequence[int]) -> tuple[int, ...]:
    listed: tuple[Any, ...] = given if isinstance(given, tuple) else (given,) * len(shape)
    whole = [isinstance(one, int | np.integer) and not isinstance(one, bool) for one in listed]
    if len(listed) != len(shape) or not all(whole):
        raise SpecError("stencil.origin", f"must be a whole number, or {len(shape)}, one an axis", repr(given))
    for extent, shift in zip(shape, listed, strict=True):
        if not -(extent // 2) <= shift <= (extent - 1) // 2:
            rule = f"must be from {-(extent // 2)} to {(extent - 1) // 2} where there are {extent} weights"
            raise SpecError("stencil.origin", rule, repr(given))
    return tuple(int(shift) for shift in listed)


def rounded_to(number: object, dtype: DType) -> float:
    """The number as its type holds it, and 0 for -0; NaN for what is no number."""
    if isinstance(number, bool) or not isinstance(number, Real):
        return float("nan")
    try:
        with np.errstate(over="ignore"):
            return float(dtype.numpy.type(float(number))) + 0.0
    except OverflowError:  # an integer that no float holds
        return float("inf")
