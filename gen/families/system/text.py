"""The expressions of a system as kernels spell them, which all algorithms share."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gen.dtypes import F64
from gen.families.stencil.algorithms.common import Sides, boundary_words, grid_inputs, literal
from gen.families.system.spec import SystemSpec
from gen.families.system.terms import Field, Number, Scalar, Sum, Taps, Term, fused, text_of, walk

_WIDTH = 88  # of an expression


@dataclass(frozen=True)
class Tap:
    """A term of a stencil sum, as C++ spells it."""

    offset: str
    weight: str


@dataclass(frozen=True)
class SumFunction:
    """A stencil sum as a function of the kernel."""

    name: str
    taps: tuple[Tap, ...]


@dataclass(frozen=True)
class Reading:
    """A value of the kernel that is found from cells around: `laplace_u`, by `laplace(near_u)`."""

    name: str
    call: str


@dataclass(frozen=True)
class Rim:
    """The frozen ends of an axis, as the kernel names them.

    Attributes:
        boundary: of the axis.
        extent: its name.
        place: of a cell along it.
        before, after: constants that say how many cells are frozen.
        cells_before, cells_after: so many.
    """

    boundary: str
    extent: str
    place: str
    before: str
    after: str
    cells_before: int
    cells_after: int


@dataclass(frozen=True)
class Update:
    """What becomes of a field.

    Attributes:
        field: its name.
        said: the expression as its author wrote it, in lines.
        lines: the same as the kernel computes it.
        rims: the axes along which some of its cells are frozen.
    """

    field: str
    said: tuple[str, ...]
    lines: tuple[str, ...]
    rims: tuple[Rim, ...]


@dataclass(frozen=True)
class Text:
    """The expressions of a system as a kernel spells them.

    Attributes:
        functions: its stencil sums.
        readings: the values that it finds from cells around.
        near: the fields of which cells around are read.
        own: the fields whose own cell an expression names.
        updates: what becomes of each field that changes.
    """

    functions: tuple[SumFunction, ...]
    readings: tuple[Reading, ...]
    near: tuple[str, ...]
    own: tuple[str, ...]
    updates: tuple[Update, ...]


def text_of_system(spec: SystemSpec) -> Text:
    """The names and lines of a kernel for this spec."""
    taken = {*spec.fields, *spec.scalars, *(f"{name}{end}" for name in spec.fields for end in ("_in", "_out"))}
    functions: dict[Taps, SumFunction] = {}
    readings: dict[Sum, Reading] = {}
    for one in spec.sums:
        if one.is_neighbour:
            call = f"near_{one.field}({_joined(one.taps[0][0])})"
            readings[one] = Reading(_free(f"{one.field}_{_direction(one.taps[0][0])}", taken), call)
            continue
        if one.taps not in functions:
            terms = tuple(Tap(_joined(offset), literal(weight, spec.accumulator)) for offset, weight in one.taps)
            functions[one.taps] = SumFunction(_free(one.word, taken), terms)
        name = functions[one.taps].name
        readings[one] = Reading(_free(f"{name}_{one.field}", taken), f"{name}(near_{one.field})")
    names = {one: reading.name for one, reading in readings.items()}
    computed = [(field, term) for field, term in spec.updates if field in spec.computed]
    updates = tuple(_update(spec, field, term, names) for field, term in computed)
    own = {part.name for _, term in computed for part in _walk_fields(term)}
    near = tuple(dict.fromkeys(one.field for one in spec.sums))
    return Text(
        tuple(functions.values()),
        tuple(readings.values()),
        near,
        tuple(name for name in spec.fields if name in own),
        updates,
    )


def _update(spec: SystemSpec, field: str, term: Term, names: Mapping[Sum, str]) -> Update:
    def leaf(one: Term) -> str:
        match one:
            case Number(value):
                return literal(value, spec.accumulator)
            case Field(name, _) | Scalar(name):
                return name
            case Sum():
                return names[one]
        raise AssertionError(one)

    lines = textwrap.wrap(
        text_of(fused(term), leaf, "fma" if spec.accumulator == F64 else "fmaf"), _WIDTH, break_long_words=False
    )
    said = textwrap.wrap(f"{field} becomes {spec.said(term)}.", _WIDTH, break_long_words=False)
    return Update(field, tuple(said), tuple(lines), tuple(_rims(spec, field)))


_NAMES = {"planes": ("plane", "Front", "Back"), "rows": ("row", "Up", "Down"), "cols": ("col", "Left", "Right")}


def _rims(spec: SystemSpec, field: str) -> Iterator[Rim]:
    boundaries = boundary_words(spec)
    for axis, boundary, before, after in zip(spec.axes, boundaries, *spec.rim(field), strict=True):
        if before or after:
            place, low, high = _NAMES[axis]
            owner = field.capitalize()
            yield Rim(boundary, axis, place, f"k{low}Of{owner}", f"k{high}Of{owner}", before, after)


def _walk_fields(term: Term) -> Iterator[Field]:
    return (part for part in walk(term) if isinstance(part, Field))


def _joined(offset: tuple[int, ...]) -> str:
    return ", ".join(map(str, offset))


_DIRECTIONS = {(-1, -1): "left", (-1, 1): "right", (-2, -1): "up", (-2, 1): "down", (-3, -1): "front", (-3, 1): "back"}


def _direction(offset: tuple[int, ...]) -> str:
    """Where a neighbour lies, in words: `up_left`."""
    moved = [(axis - len(offset), place) for axis, place in enumerate(offset) if place]
    if not all(step in _DIRECTIONS for step in moved):
        return "near"
    return "_".join(_DIRECTIONS[step] for step in moved) or "here"


def _free(word: str, taken: set[str]) -> str:
    """The word, or the first with a number behind it that nothing is called yet; from now on something is."""
    found, number = word, 1
    while found in taken:
        number += 1
        found = f"{word}_{number}"
    taken.add(found)
    return found


def inputs_of(spec: SystemSpec) -> Mapping[str, object]:
    """What templates may read of a spec."""
    return {
        **grid_inputs(spec),
        "outsides": tuple(one.replace("frozen", "nearest") for one in boundary_words(spec)),
        "reach": reach_of(spec),
        "fields": spec.fields,
        "computed": spec.computed,
        "scalars": spec.scalars,
        "text": text_of_system(spec),
        "has_sources": bool(spec.sources),
        "has_receivers": bool(spec.receivers),
    }


def reach_of(spec: SystemSpec) -> Sides:
    """How far any update reads."""
    return Sides(spec.before, spec.after)
