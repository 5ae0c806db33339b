"""A time step of a system the plain way: straight from global memory, a thread for each cell."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from operator import mul

from typing_extensions import override

from gen.dtypes import F64, I64, U32, DType
from gen.families.base import Algorithm, Extents, Launch, Plan, Scratch
from gen.families.config import Config, tunable
from gen.families.expr import ONE, ZERO, Expr, constant, size
from gen.families.plans import TIME, Tiles, beyond_block
from gen.families.stencil.algorithms.common import COPY_THREADS, Sides, literal
from gen.families.stencil.shapes import edge_extents
from gen.families.stencil.spec import STEPS
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


def boundary_words(spec: SystemSpec) -> tuple[str, ...]:
    """Each axis's boundary; where its ends differ, both with a line between: `mirror_wrap`."""
    return tuple(one if isinstance(one, str) else "_".join(one) for one in spec.boundaries)


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


@dataclass(frozen=True, kw_only=True)
class NaiveConfig(Config):
    """How `naive` lays threads over the cells."""

    block_x: int = tunable("x", (32, 64, 128, 256), base=64, help="threads of a block along a row")
    block_y: int = tunable("y", (1, 2, 4, 8), base=4, help="threads of a block down the rows")

    def illegal(self) -> str | None:
        """A block can have at most 1024 threads."""
        return beyond_block(self.block_x * self.block_y)

    def unsearched(self) -> str | None:
        """Blocks of 64 threads and more, which fill a multiprocessor."""
        return "so few threads leave a multiprocessor half empty" if self.block_x * self.block_y < 64 else None


class Naive(Algorithm[SystemSpec, NaiveConfig]):
    """Every cell of every field from global memory."""

    name = "naive"
    template = "system/naive.cu.jinja"
    summary = "Every thread computes what all fields become at one cell, straight from global memory."
    config = NaiveConfig

    @override
    def edge_cases(self, spec: SystemSpec, config: NaiveConfig) -> Iterator[Extents]:
        across = edge_extents(config.block_x * (config.block_y if spec.ndim == 1 else 1))
        down = edge_extents(config.block_y)
        for place, cols in enumerate(across):
            yield extents_of(spec, (2, down[place], cols)[-spec.ndim :], (1, 2, 1, 1)[place])

    @override
    def spec_inputs(self, spec: SystemSpec) -> Mapping[str, object]:
        before, after = spec.reach(*spec.updated)
        boundaries = boundary_words(spec)
        return {
            "element": spec.dtype.cuda,
            "number": spec.accumulator.cuda,
            "fma": "fma" if spec.accumulator == F64 else "fmaf",
            "zero": literal(0.0, spec.accumulator),
            "cval": literal(spec.cval, spec.accumulator),
            "axes": spec.ndim,
            "boundaries": boundaries,
            "outsides": tuple(one.replace("frozen", "nearest") for one in boundaries),
            "reach": Sides(before, after),
            "fields": spec.fields,
            "computed": spec.computed,
            "scalars": spec.scalars,
            "text": text_of_system(spec),
            "copy_threads": COPY_THREADS,
            "has_sources": bool(spec.sources),
            "has_receivers": bool(spec.receivers),
        }

    @override
    def plan(self, spec: SystemSpec, config: NaiveConfig) -> Plan:
        tiles = _tiles(spec, config)
        numbers = _shape(spec)
        if spec.ndim > 1:
            numbers += ((U32, tiles.across),)

        def sweep(targets: Sequence[str]) -> Launch:
            return Launch(
                grid=(tiles.count, ONE, ONE),
                block=(config.block_x, config.block_y, 1),
                arguments=(*spec.fields, *targets, *spec.scalars, *numbers),
                across=tiles.across,
            )

        return stepping(spec, sweep)

    def bytes_in_flight(self, spec: SystemSpec, config: NaiveConfig) -> int:
        """The thread's own cell of each field: their neighbours are other threads' cells."""
        return len(spec.fields) * spec.dtype.size


def stepping(spec: SystemSpec, sweep: Callable[[Sequence[str]], Launch]) -> Plan:
    """The plan of a call of `steps` time steps, a launch each, which `sweep` makes of the arrays that it writes.

    A launch reads the fields by their names and writes the computed ones to arrays that it does not read. Then arrays
    change places: the array that was written is the field now, the one that the field lay in is what follows in its
    history, and so on; that of the last is free to be written. Inputs are only read, so they leave in the first steps.
    Which array the first step writes follows from the number of steps, so that the last ones write the outputs. A call
    of fewer steps than a history is long copies what is left of its inputs.
    """
    steps = size(STEPS)
    longest = max(map(len, spec.histories))
    rings = [_Ring(history, longest + 1) for history in spec.histories]
    planned = [
        replace(_copy(spec, source, f"{name}_out"), times=_equals(steps, count))
        for count in range(longest)
        for ring in rings
        for source, name in zip(ring.history, ring.history[count:], strict=False)
    ]

    planned += [_link(spec, name) for name in spec.sources]

    def stepped(
        step: Expr, targets: Sequence[str], times: Expr, swaps: Callable[[_Ring], Sequence[tuple[str, str]]]
    ) -> list[Launch]:
        now = {name: old for ring in rings for old, name in pairwise(ring.history)}
        now |= {ring.history[0]: target for ring, target in zip(rings, targets, strict=True)}
        turn = [replace(sweep(targets), times=times)]
        turn += [_add(name, now[name], step) for name in spec.sources]
        turn += [_record(spec, name, now[name], step) for name in spec.receivers]
        return [*turn[:-1], replace(turn[-1], swap=tuple(swap for ring in rings for swap in swaps(ring)))]

    for rest in (*range(1, longest + 1), 0):
        written = [ring.slots[(rest - 1) % ring.count] for ring in rings]
        rests = steps % (longest + 1)
        times = rests // longest if rest == longest else _equals(rests, rest)
        times = times if rest else steps.at_most(1) * times
        planned += stepped(ZERO, written, times, partial(_Ring.after_first, rest=rest))
    targets = [ring.history[0] + "_out" for ring in rings]
    for step in range(2, longest + 2):
        place, times = constant(step - 1), _exceeds(steps, step - 1)
        if step > longest:
            place, times = TIME + longest, steps.at_least(longest) - longest
        planned += stepped(place, targets, times, partial(_Ring.after, step=step))
    scratch = [
        Scratch(spare, _cells(spec) * spec.dtype.size * _exceeds(steps, len(ring.history) + place))
        for ring in rings
        for place, spare in enumerate(ring.spares)
    ]
    scratch += [Scratch(f"{name}_links", size(f"{name}_source_count") * 16) for name in spec.sources]
    return Plan(tuple(planned), tuple(scratch))


def _link(spec: SystemSpec, name: str) -> Launch:
    """A launch that finds, once a call, which sources lie in one cell."""
    count = size(f"{name}_source_count")
    return _each_point("_link", count, f"{name}_sources", f"{name}_links", *_shape(spec), (I64, count))


def _add(name: str, field: str, step: Expr) -> Launch:
    """A launch that adds what a step has for the sources of a field."""
    count = size(f"{name}_source_count")
    launch = _each_point("_add", count, f"{name}_links", f"{name}_wavelets", field, (I64, count), (I64, step))
    return replace(launch, follows=True)


def _record(spec: SystemSpec, name: str, field: str, step: Expr) -> Launch:
    """A launch that writes down what a field is at its receivers."""
    count = size(f"{name}_receiver_count")
    numbers = (*_shape(spec), (I64, count), (I64, step))
    launch = _each_point("_record", count, f"{name}_receivers", field, f"{name}_traces", *numbers)
    return replace(launch, follows=True)


def _each_point(entry: str, count: Expr, *arguments: str | tuple[DType, Expr]) -> Launch:
    return Launch((count.ceil_div(COPY_THREADS), ONE, ONE), (COPY_THREADS, 1, 1), arguments, entry=entry)


def _exceeds(one: Expr, number: int) -> Expr:
    """1 where it is larger, else 0."""
    return one.at_least(number).at_most(number + 1) - number if number else one.at_most(1)


def _equals(one: Expr, number: int) -> Expr:
    """1 where it is this number, else 0."""
    return ONE - (one.at_least(number) - one.at_most(number) if number else one).at_most(1)


@dataclass(frozen=True)
class _Ring:
    """The arrays of a history, which take turns: `count` are written, so that none is while a step still reads it.

    Step t of n writes slot (n - t) % count, so the last steps write the outputs, newest first.
    """

    history: tuple[str, ...]
    count: int

    @property
    def spares(self) -> tuple[str, ...]:
        """The slots that are scratch memory."""
        words = ("spare", *(f"spare{number}" for number in range(2, self.count)))
        return tuple(f"{self.history[0]}_{word}" for word in words[: self.count - len(self.history)])

    @property
    def slots(self) -> tuple[str, ...]:
        """All that are written."""
        return (*(f"{name}_out" for name in self.history), *self.spares)

    def after_first(self, rest: int) -> list[tuple[str, str]]:
        """The exchanges after the first of n steps, where n % count is `rest`.

        Then the history's names stand for what its fields are, the first output's name for the slot that is written
        next, the others for those that follow, and the last for the input that has left.
        """
        names = [*self.history, *self.slots]
        turns = [self.slots[(rest - turn) % self.count] for turn in range(1, self.count + 1)]
        wanted = [turns[0], *self.history[:-1], *turns[1:], self.history[-1]]
        now, swaps = list(names), []
        for place, array in enumerate(wanted):
            other = now.index(array)
            if other != place:
                now[place], now[other] = now[other], now[place]
                swaps.append((names[place], names[other]))
        return swaps

    def after(self, step: int) -> list[tuple[str, str]]:
        """The exchanges after a later step: each array goes one place on, as long as inputs leave among all names."""
        target, *queue = self.slots
        if step > len(self.history):
            queue = queue[: self.count - len(self.history) - 1]
        return [(target, name) for name in (*self.history, *reversed(queue))]


def extents_of(spec: SystemSpec, shape: Sequence[int], steps: int) -> Extents:
    """Fields of this shape."""
    return {**dict(zip(spec.axes, shape, strict=True)), STEPS: steps, **dict.fromkeys(spec.counts, 3)}


def _copy(spec: SystemSpec, source: str, target: str) -> Launch:
    """A launch that copies a field."""
    cells = _cells(spec)
    return Launch(
        grid=(cells.ceil_div(COPY_THREADS), ONE, ONE),
        block=(COPY_THREADS, 1, 1),
        arguments=(source, target, (I64, cells)),
        entry="_copy",
    )


def _shape(spec: SystemSpec) -> tuple[tuple[DType, Expr], ...]:
    return tuple((I64, size(axis)) for axis in spec.axes)


def _cells(spec: SystemSpec) -> Expr:
    return reduce(mul, [size(axis) for axis in spec.axes])


def _tiles(spec: SystemSpec, config: NaiveConfig) -> Tiles:
    """The cells of a block; the rows of all planes follow each other."""
    if spec.ndim == 1:
        return Tiles(ONE, size("cols"), 1, config.block_x * config.block_y)
    rows = size("rows") if spec.ndim == 2 else size("planes") * size("rows")
    return Tiles(rows, size("cols"), config.block_y, config.block_x)
