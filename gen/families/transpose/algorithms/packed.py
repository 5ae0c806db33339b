"""Permutations in which the fastest axis of both arrays is short: boxes of several axes, with long runs in both."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import inf, isqrt, prod
from typing import Generic, TypeVar

from typing_extensions import override

from gen.arch import WARP
from gen.dtypes import I32, I64, U32, DType, StoreModifier
from gen.families.base import Extents, Launch, Limits, Plan
from gen.families.config import Config, choice, store_modifier, tunable
from gen.families.estimates import COLD_SECONDS, SECTOR_BYTES, Demand, Least
from gen.families.expr import ONE, Expr, also_in_cpp, constant, once_a_problem, size
from gen.families.transpose.algorithms.common import (
    Axis,
    MatrixAlgorithm,
    copied,
    merged,
    only_gaps_after_rows,
    turned,
    turns,
)
from gen.families.transpose.algorithms.demands import CACHE_SHARE, demand_of, memory, touched
from gen.families.transpose.spec import MAX_AXES, TransposeSpec

FILLED_BYTES = 16384  # of a box whose runs are that long, at most
FILLED_UNITS = 2048  # of it, at most: elements, or words of smaller ones
WIDE_WORDS = 4096  # that a block of `shift_box` reads
TILE_WORDS, COLUMNS = 4352, 1024  # of a box of it at most, and what parts its columns
MOST_ROWS = 8191
LEAST_ROWS = 16  # of a box of it, else much of what it writes are ends of columns
STEPS = 64  # boxes that a block moves at most
SIZES_IN_CPP = "transpose/sizes.hpp"
_WORD = 4  # bytes
RUNS = (*range(1, 8), *(eighths << power for power in range(11) for eighths in range(8, 16)))
"""Lengths of runs that are tried, in elements."""
_MANY_PARTS = 12
_SHORT_BYTES, _SHORT_COST = 256, 1.25
_RESIDENT_THREADS = 1024  # for which a multiprocessor has registers
_FOUND_BYTES = 20 * STEPS  # of shared memory in which threads find where boxes begin
_INDEX, _SERIAL = 6.0, 60  # slots of a division of an element's number, and instructions of a box's, for each axis
MAX_BOXES = 2**31 - 1 - 32  # and a last round of blocks, by numbers of 32 bits

A = TypeVar("A")


@dataclass(frozen=True)
class Axes(Generic[A]):
    """The axes of a permutation, those that stay neighbours taken as one; the input's order, slowest first.

    Attributes:
        extents, in_strides, out_strides: of each; strides in elements.
        order: axis i of the output is axis `order[i]` of the input.
    """

    extents: tuple[A, ...]
    in_strides: tuple[A, ...]
    out_strides: tuple[A, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class Runs:
    """How many elements follow each other in a box: in the input, and in the output."""

    read: int
    written: int


@dataclass(frozen=True)
class Units:
    """Elements of a box, and what threads move of it: words of small elements, or parts of them where a run ends."""

    elements: int
    read: int
    written: int


@lru_cache(maxsize=256)
def axes_of(spec: TransposeSpec) -> Axes[Expr]:
    """The axes of a spec that has two or more. The last of both arrays stay single: a pitch may part them."""
    if spec.axes == (1, 0):
        return Axes((size("rows"), size("cols")), (size("in_pitch"), ONE), (ONE, size("out_pitch")), (1, 0))
    last = len(spec.axes) - 1
    there = {axis: place for place, axis in enumerate(spec.axes)}
    groups: list[list[int]] = []
    for axis in range(last + 1):
        follows = axis > 0 and there[axis] == there[axis - 1] + 1
        if follows and last not in (axis, there[axis]):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    extents = [product([size(f"axis{axis}") for axis in group]) for group in groups]
    order = sorted(range(len(groups)), key=lambda group: there[groups[group][0]])
    there_strides = dict(zip(order, _strides([extents[group] for group in order], size("out_row")), strict=True))
    return Axes(
        tuple(extents),
        _strides(extents, size("in_row")),
        tuple(there_strides[group] for group in range(len(groups))),
        tuple(order),
    )


def _strides(extents: Sequence[Expr], pitch: Expr) -> tuple[Expr, ...]:
    strides = [ONE, pitch]
    while len(strides) < len(extents):
        strides.append(strides[-1] * extents[-len(strides)])
    return tuple(reversed(strides[: len(extents)]))


def product(factors: Sequence[Expr]) -> Expr:
    """Of one or more."""
    found = factors[0]
    for factor in factors[1:]:
        found = found * factor
    return found


@once_a_problem
def measured(spec: TransposeSpec, extents: Extents) -> Axes[int]:
    """The axes of a problem."""
    axes = axes_of(spec)
    found, there, here = (
        tuple(one.at(extents) for one in each) for each in (axes.extents, axes.in_strides, axes.out_strides)
    )
    return Axes(found, there, here, axes.order)


def strides_of(spec: TransposeSpec, extents: Extents) -> tuple[int, ...]:
    """The extents of a problem's axes, their strides in the input, and in the output; those of the input's order."""
    if spec.axes == (1, 0):
        shape, there, here = [extents["rows"], extents["cols"]], [extents["in_pitch"], 1], [1, extents["out_pitch"]]
    else:
        last = len(spec.axes) - 1
        shape = [extents[f"axis{axis}"] for axis in range(last + 1)]
        there, here = [1] * (last + 1), [1] * (last + 1)
        if "in_step0" in extents:
            for place in range(last):
                there[place], here[spec.axes[place]] = extents[f"in_step{place}"], extents[f"out_step{place}"]
            return (*shape, *there, *here)
        row, out_row = (shape[-1], shape[spec.axes[-1]]) if spec.strided else (1, 1)
        step, out_step = extents.get("in_row", row), extents.get("out_row", out_row)
        for place in range(last - 1, -1, -1):
            there[place], step = step, step * shape[place]
            here[spec.axes[place]], out_step = out_step, out_step * shape[spec.axes[place]]
    return (*shape, *there, *here)


def boxes_for(spec: TransposeSpec, extents: Extents) -> Extents:
    """The axes of boxes and how long these are along each, by name: what `packed` gives its kernels.

    `box0_extent`, its strides `box0_in` and `box0_out`, and `box0_places` of a box are of the output's fastest axis;
    `box0_read_places`, their stride and their step in the tile, which is laid out as the output, of the input's.
    """
    numbers = box_sizes(spec.dtype.size, *strides_of(spec, extents))
    return dict(zip(_box_names(len(spec.axes)), numbers, strict=True))


def wide_boxes_for(spec: TransposeSpec, extents: Extents) -> Extents:
    """The same of the boxes of `shift_box`, of elements that are smaller than a word; else nothing.

    `wide0_column` is the step of an axis in the columns of these, as the input has them.
    """
    if spec.dtype.size >= _WORD:
        return {}
    numbers = wide_sizes(spec.dtype.size, *strides_of(spec, extents))
    return dict(zip(_wide_names(len(spec.axes)), numbers, strict=True))


@lru_cache(maxsize=16)
def _box_names(axes: int) -> tuple[str, ...]:
    """The names of what `box_sizes` gives."""
    along = ("extent", "in", "out", "places", "read_places", "read_stride", "read_step")
    of_all = ("box_axes", "box_read_run", "box_written_run", "box_whole_read", "box_whole_written")
    return of_all + tuple(f"box{place}_{what}" for place in range(axes) for what in along)


@lru_cache(maxsize=16)
def _wide_names(axes: int) -> tuple[str, ...]:
    """The names of what `wide_sizes` gives."""
    along = ("places", "column", "read_places", "read_step")
    return ("wide_run", *(f"wide{place}_{what}" for place in range(axes) for what in along))


@also_in_cpp(SIZES_IN_CPP)
def box_sizes(element: int, *numbers: int) -> tuple[int, ...]:
    """The numbers that `boxes_for` names, from extents, strides of the input, strides of the output.

    Of the axes, those count that are longer than 1, neighbours that stay neighbours as one; the output's fastest first.
    There is always one: of extent 0 where there are no elements, of extent 1 where there is a single one.
    """
    return _box_sizes(axes_in_output(numbers), element, len(numbers) // 3)


@also_in_cpp(SIZES_IN_CPP)
def wide_sizes(element: int, *numbers: int) -> tuple[int, ...]:
    """The same of `shift_box`: a run of 0 where it takes no boxes, or none with runs as long as those of `packed`."""
    return _wide_sizes(axes_in_output(numbers), element, len(numbers) // 3)


def axes_in_output(numbers: Sequence[int]) -> tuple[Axis, ...]:
    """The axes that are longer than 1, neighbours that stay neighbours as one, the output's fastest first; always one.

    Args:
        numbers: extents, strides of the input, strides of the output, in elements.
    """
    count = len(numbers) // 3
    found = [Axis(*axis) for axis in zip(*(numbers[count * k : count * (k + 1)] for k in range(3)), strict=True)]
    if any(axis.extent == 0 for axis in found):
        return (Axis(0, 1, 1),)
    several = merged([axis for axis in found if axis.extent > 1]) or [Axis(1, 1, 1)]
    return tuple(sorted(several, key=lambda axis: axis.out_stride))


@lru_cache(maxsize=256)
def _box_sizes(axes: tuple[Axis, ...], element: int, most: int) -> tuple[int, ...]:
    sides = Sides.of(axes, element)
    box = _longest(sides, _filled)
    runs = Runs(_run(sides.read, box), _run(sides.written, box))
    found = [
        len(axes), runs.read, runs.written, int(_is_whole(sides.read, box, runs.read, sides.grain)),
        int(_is_exact(sides, box, runs.written)),
    ]  # fmt: skip
    steps, step = [], 1
    for places in box:
        steps.append(step)
        step *= places
    for axis, places, (stride, read) in zip(axes, box, sides.read, strict=True):
        found += [axis.extent, axis.in_stride, axis.out_stride, places, box[read], stride, steps[read]]
    return (*found, *(1, 0, 0, 1, 1, 0, 0) * (most - len(axes)))


@lru_cache(maxsize=256)
def _wide_sizes(axes: tuple[Axis, ...], element: int, most: int) -> tuple[int, ...]:
    sides = Sides.of(axes, element)
    box, worse = _longest(sides, _shifted), min(_box_sizes(axes, element, most)[1:3])
    run = _run(sides.read, box)
    if _shifted(sides, box) > 1 or box[0] < LEAST_ROWS or min(run, box[0]) < worse:
        run, box = 0, (1,) * len(axes)
    in_order = [place for _, place in sides.read]
    steps, step, columns, column = [], 1, [0] * len(axes), 1
    for places in box:
        steps.append(step)
        step *= places
    for place in in_order:
        if place > 0:
            columns[place] = column
            column *= box[place]
    found = [run]
    for places, column, read in zip(box, columns, in_order, strict=True):
        found += [places, column, box[read], steps[read]]
    return (*found, *(1, 0, 1, 0) * (most - len(axes)))


Strides = tuple[tuple[int, int], ...]
"""The strides of axes in one of the arrays, the shortest first, each with the axis's place."""


@dataclass(frozen=True)
class Sides:
    """The axes of a problem, and what their boxes are measured by.

    Attributes:
        axes: the output's fastest first.
        element: bytes.
        grain: elements of a word, or 1.
        grains: by how many places boxes are longer or shorter along each axis.
        read, written: strides.
    """

    axes: tuple[Axis, ...]
    element: int
    grain: int
    grains: tuple[int, ...]
    read: Strides
    written: Strides

    @classmethod
    def of(cls, axes: tuple[Axis, ...], element: int) -> Sides:
        """Those of elements of so many bytes: along an array's fastest axis boxes have whole words."""
        grain = max(_WORD // element, 1)
        grains = tuple(grain if min(axis.in_stride, axis.out_stride) == 1 else 1 for axis in axes)
        read = sorted((axis.in_stride, place) for place, axis in enumerate(axes))
        written = sorted((axis.out_stride, place) for place, axis in enumerate(axes))
        return cls(axes, element, grain, grains, tuple(read), tuple(written))


def _filled(sides: Sides, box: Sequence[int]) -> float:
    """How much of what a box may have it has."""
    runs = Runs(_run(sides.read, box), _run(sides.written, box))
    found = _units(prod(box), runs, _is_exact(sides, box, runs.written), sides.element)
    return max(max(found.read, found.written) / FILLED_UNITS, found.elements * sides.element / FILLED_BYTES)


def _shifted(sides: Sides, box: Sequence[int]) -> float:
    """The same of the boxes of `shift_box`; infinite where runs of the input lie along the output's, or it has none."""
    run, apart, element = _run(sides.read, box), sides.axes[0].in_stride, sides.element
    if box[0] == 1 or apart < run or apart == 1 or sides.axes[0].out_stride > 1:
        return inf
    squares = squares_of(box[0], prod(box) // box[0], run, element)
    return max(
        squares.count / squares_at_once(element),
        column_slot(squares.columns, element, squares.groups) / TILE_WORDS,
        squares.columns / COLUMNS,
        box[0] / MOST_ROWS,
    )


@dataclass(frozen=True)
class Squares:
    """A box as a matrix whose columns lie along the output's fastest axis.

    Attributes:
        columns: of it.
        groups: squares down a column.
        count: squares that are read, where runs begin between words.
    """

    columns: int
    groups: int
    count: int


def squares_of(rows: int, columns: int, run: int, element: int) -> Squares:
    """Of a box of small elements, in which so many columns follow each other in the input."""
    grain = _WORD // element
    groups = ceil_div(rows, grain)
    return Squares(columns, groups, groups * (columns // run) * ceil_div(run + grain - 1, grain))


def squares_at_once(element: int) -> int:
    """Squares of small elements that a block of `shift_box` reads; a warp's last lane has the next warp's first."""
    return WIDE_WORDS * element // _WORD // WARP * (WARP - 1)


def column_slot(columns: int, element: int, groups: int) -> int:
    """Words of a tile of so many columns, as the template of `shift_box` has them."""
    grain = _WORD // element
    return columns // grain * (grain * groups + 1) + columns % grain * groups


def _longest(sides: Sides, how_full: Callable[[Sides, Sequence[int]], float]) -> tuple[int, ...]:
    """How long a box is along each axis: with the longest runs that fill it.

    Then longer along the axes whose places lie nearest to each other, as far as there is room.
    """
    place = bisect_left(RUNS, True, key=lambda run: how_full(sides, _box(sides, run)) > 1)
    while place > 1 and how_full(sides, _box(sides, RUNS[place - 1])) > 1:
        place -= 1
    box = _box(sides, RUNS[max(place - 1, 0)])
    full = how_full(sides, box)
    nearest = [min(axis.in_stride, axis.out_stride) for axis in sides.axes]
    for number in sorted(range(len(box)), key=nearest.__getitem__):
        extent = sides.axes[number].extent
        wanted = min(int(box[number] / full), extent)
        if wanted > box[number]:
            places = _even(extent, wanted, sides.grains[number])
            longer = [*box[:number], places, *box[number + 1 :]]
            if box[number] < places and (longer_full := how_full(sides, longer)) <= 1:
                box, full = longer, longer_full
    return tuple(box)


def _box(sides: Sides, run: int) -> list[int]:
    """A box whose runs have so many elements in both arrays, or all there are.

    It is as long along an axis as runs need, or all of it where that is under twice as long.
    """
    found = []
    for axis, grain in zip(sides.axes, sides.grains, strict=True):
        places = (run - 1) // max(min(axis.in_stride, axis.out_stride), 1) + (grain == 1)
        needed, most = max(ceil_div(places, grain) * grain, 1), max(axis.extent, 1)
        found.append(most if most < 2 * needed else _even(most, needed, grain))
    return found


def ceil_div(one: int, other: int) -> int:
    """The quotient, rounded up."""
    return -(-one // other)


def _even(extent: int, longest: int, grain: int) -> int:
    """How long parts of an axis are, of whole words, so that the last one lies in the one before by least.

    They are a quarter shorter than `longest` at most, or a third longer.
    """
    fewest, most = ceil_div(3 * extent, 4 * longest), ceil_div(extent, longest)
    if most > _MANY_PARTS:  # of which the last one weighs little
        fewest = most
    found, waste = longest, extent
    for parts in range(fewest, min(ceil_div(4 * extent, 3 * longest), most + _MANY_PARTS) + 1):
        places = min(ceil_div(ceil_div(extent, parts), grain) * grain, extent)
        over = ceil_div(extent, places) * places - extent
        if over < waste and 4 * places >= 3 * longest:
            found, waste = places, over
        if 50 * waste <= extent:
            break
    return found


@dataclass(frozen=True)
class Boxes:
    """The boxes of a problem.

    Attributes:
        axes: of the problem, the output's fastest first.
        box: places of a box along each of them.
        count: how many boxes there are.
        units: of a box.
        runs: of a box.
    """

    axes: tuple[Axis, ...]
    box: tuple[int, ...]
    count: int
    units: Units
    runs: Runs


@once_a_problem
def boxes_of(spec: TransposeSpec, extents: Extents) -> Boxes:
    """The boxes of a problem that `boxes_for` belongs to."""
    axes, box = [], []
    for place in range(len(spec.axes)):
        if place >= extents["box_axes"]:
            break
        axes.append(Axis(*(extents[f"box{place}_{what}"] for what in ("extent", "in", "out"))))
        box.append(extents[f"box{place}_places"])
    count = prod(ceil_div(axis.extent, places) for axis, places in zip(axes, box, strict=True))
    runs = Runs(extents["box_read_run"], extents["box_written_run"])
    units = _units(prod(box), runs, bool(extents["box_whole_written"]), spec.dtype.size)
    return Boxes(tuple(axes), tuple(box), count, units, runs)


@once_a_problem
def _furthest(spec: TransposeSpec, extents: Extents) -> tuple[int, int]:
    """Where a box's last word may end, in elements of the input, and of the output."""
    boxes = boxes_of(spec, extents)
    places = list(zip(boxes.axes, boxes.box, strict=True))
    there = sum((some - 1) * axis.in_stride for axis, some in places)
    return _WORD + there, _WORD + sum((some - 1) * axis.out_stride for axis, some in places)


@once_a_problem
def _moved(spec: TransposeSpec, extents: Extents) -> tuple[float, bool, float, float]:
    """The share of boxes that lies inside; whether some begin early; sectors that one reads, and that it writes."""
    found = boxes_of(spec, extents)
    places = list(zip(found.axes, found.box, strict=True))
    inside = prod(axis.extent for axis in found.axes) / max(found.count * found.units.elements, 1)
    read, written = (
        touched([(some, getattr(axis, stride)) for axis, some in places], spec.dtype.size, SECTOR_BYTES, aligned=False)
        for stride in ("in_stride", "out_stride")
    )
    return inside, any(axis.extent % some for axis, some in places), read, written


def _units(elements: int, runs: Runs, exact: bool, element: int) -> Units:
    """As the template counts them: where runs may begin within words of the output, a word more for each."""
    grain = max(_WORD // element, 1)
    lacks = 0 if exact else grain - 1
    return Units(
        elements,
        elements // runs.read * ceil_div(runs.read, grain),
        elements // runs.written * ceil_div(runs.written + lacks, grain),
    )


def _run(strides: Strides, box: Sequence[int]) -> int:
    """How many elements follow each other in one of the arrays."""
    found = 1
    for step, place in strides:
        if box[place] > 1:
            if step != found:
                break
            found *= box[place]
    return found


def _is_whole(strides: Strides, box: Sequence[int], run: int, grain: int) -> bool:
    """Whether all runs of a box are of whole words, and begin at some if the box does."""
    return run % grain == 0 and all(step < run or step % grain == 0 or box[place] == 1 for step, place in strides)


def _is_exact(sides: Sides, box: Sequence[int], run: int) -> bool:
    """Whether all runs of the output are of whole words, and boxes begin at some if the array does."""
    grain = sides.grain
    if grain == 1:
        return True
    if not _is_whole(sides.written, box, run, grain):
        return False
    for axis, places in zip(sides.axes, box, strict=True):
        left = axis.extent - places
        if left > 0 and (places * axis.out_stride % grain or left * axis.out_stride % grain):
            return False
    return True


class Reads(Enum):
    """How elements of less than a word are read."""

    SINGLY = "singly"  # by words only where all rows begin at some, and end there
    WORDS = "words"  # by aligned words, two of which are shifted into one


@dataclass(frozen=True, kw_only=True)
class PackedConfig(Config):
    """How `packed` moves boxes."""

    axes: int = tunable(
        "a", tuple(range(2, MAX_AXES + 1)), base=2, help="most axes, after axes that stay adjacent are merged"
    )
    threads_per_block: int = tunable("tpb", (128, 256, 512), base=256, help="threads per block")
    unroll: int = tunable("u", (2, 4, 8), base=8, help="elements or 4-byte words in flight per thread")
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)
    reads: Reads = choice(
        "r", (Reads.SINGLY, Reads.WORDS), help="how 1- or 2-byte elements are read: singly or by aligned words"
    )
    index_bits: int = choice("i", (64, 32), help="bits of element indices in a box; 32: for small arrays only")


def most_units(spec: TransposeSpec) -> int:
    """Of a box."""
    return min(FILLED_UNITS, FILLED_BYTES // spec.dtype.size)


def base_config(spec: TransposeSpec) -> PackedConfig:
    """Threads for as many units as boxes have at most: of words and more, fewer threads with more each."""
    axes = max(len(spec.axes), 2)
    if spec.dtype.size < _WORD:
        return PackedConfig(axes=axes, threads_per_block=512, unroll=4)
    return PackedConfig(axes=axes, unroll=8 if spec.dtype.size <= FILLED_BYTES // FILLED_UNITS else 4)


class Packed(MatrixAlgorithm[TransposeSpec, PackedConfig]):
    """Boxes of several axes, so that runs are long in both arrays."""

    name = "packed"
    template = "transpose/packed.cu.jinja"
    summary = (
        "A block moves boxes, which extend along the fastest axes of the input and those of the output, so that both "
        "arrays have long runs of them. A box is read in the order of the input, staged in shared memory, and written "
        "in the order of the output, while the loads of the next box are in flight. The offsets of a thread's elements "
        "within a box are computed once for all boxes."
    )
    config = PackedConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: PackedConfig) -> str | None:
        """Elements are moved as they are, to another array."""
        if len(spec.axes) < 2:
            return "it is for arrays of two axes or more"
        if config.reads is Reads.WORDS and spec.dtype.size >= _WORD:
            return f"elements of {spec.dtype.size} bytes are whole words: reads has no effect"
        if config.axes > len(spec.axes):
            return f"it is for {config.axes} axes, and the array has {len(spec.axes)}"
        units, most = config.threads_per_block * config.unroll, most_units(spec)
        if units < most:
            return f"a block moves {units} elements or words, and a box may have {most}"
        return only_gaps_after_rows(spec)

    def unsearched(self, spec: TransposeSpec, config: PackedConfig) -> str | None:
        """No threads are idle in all boxes."""
        units, most = config.threads_per_block * config.unroll, most_units(spec)
        return f"a block moves {units} elements or words, more than the {most} of a box" if units > most else None

    def unsupported_extents(
        self, spec: TransposeSpec, config: PackedConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Its axes must do; boxes must be found by their number, and elements in one by a number of `index_bits`."""
        if extents["box_axes"] > config.axes:
            return f"the array has {extents['box_axes']} axes after merging; it supports at most {config.axes}"
        boxes = boxes_of(spec, extents)
        row = str(spec.operands[0].axes[-1])
        if config.reads is Reads.WORDS and extents[spec.operands[0].pitch] != extents[row]:
            return f"rows of {extents[row]} elements have gaps between them, which its word loads may not touch"
        if boxes.count > MAX_BOXES:
            return f"there are {boxes.count} boxes; it supports at most {MAX_BOXES}"
        if config.index_bits == 32:
            for furthest in _furthest(spec, extents):
                if furthest > 2**32:
                    return f"a box's last word may end at element {furthest}; with 32 bits it is {2**32} at most"
        return None

    def edge_cases(self, spec: TransposeSpec, config: PackedConfig) -> Iterator[Extents]:
        """Boxes that begin early, by one place and by several; more of them than blocks; runs of odd length.

        Pitched rows; places of an axis that are all of it, and one more than all. Where two axes are all that it
        takes, a single matrix.
        """
        several, gap = config.axes > 2, config.reads is not Reads.WORDS  # whose rows have none
        side = isqrt(FILLED_UNITS * max(_WORD // spec.dtype.size, 1))
        make = turned if turns(spec) else lambda one, rows, cols, many=1, **_: copied(one, cols, (rows, many))
        yield make(spec, 2 * side - 1, 2 * side + 1)
        yield make(spec, side + 1, 3, 5 if several else 1, in_gap=1 * gap)
        yield make(spec, 6, 2 * side + 3, 7 if several else 1, out_gap=3)
        yield make(spec, 3 * side, 6 * side, in_gap=4 * gap, out_gap=8)
        yield make(spec, 12, 16, 9 if several else 1)
        yield make(spec, 256, 64, 2 if several else 1)  # of bytes a full box of whole words
        yield make(spec, 119, 69)  # of elements of less than a word the last box leaves out one place in all

    def inputs(self, spec: TransposeSpec, config: PackedConfig) -> Mapping[str, object]:
        """Units of a box at most, and boxes of a block."""
        return {"units": most_units(spec), "steps": STEPS}

    @override
    def plan(self, spec: TransposeSpec, config: PackedConfig) -> Plan:
        given: list[str | tuple[DType, Expr]] = ["in", "out"]
        boxes = []
        for place in range(config.axes):
            extent, there, here, places = (size(f"box{place}_{what}") for what in ("extent", "in", "out", "places"))
            boxes.append(extent.ceil_div(places))
            given += [(I64, extent), (I64, there), (I64, here), (U32, places), (U32, inverse(places)), (U32, boxes[-1])]
        for place in range(config.axes):
            places, stride, step = (size(f"box{place}_read_{what}") for what in ("places", "stride", "step"))
            given += [(U32, places), (U32, inverse(places)), (I64, stride), (U32, step)]
        if spec.dtype.size < _WORD:
            named = ("box_read_run", "box_written_run", "box_whole_read", "box_whole_written")
            given += [(I32, size(name)) for name in named]
        count = product(boxes).called("boxes")
        elements = product([size(f"box{place}_places") for place in range(config.axes)])
        at_once = size("multiprocessors") * (_RESIDENT_THREADS // config.threads_per_block)
        steps = count.ceil_div(at_once).at_least(1).at_most(STEPS).called("boxes_of_a_block")
        launch = Launch(
            grid=(count.ceil_div(steps), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*given, (I32, elements), (U32, count)),
        )
        return Plan((launch,))

    @override
    def demand(
        self, spec: TransposeSpec, config: PackedConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        found, threads = boxes_of(spec, extents), config.threads_per_block
        size, units = spec.dtype.size, found.units
        grain, unit = max(_WORD // size, 1), max(size, _WORD)
        waves = ceil_div(found.count, limits.multiprocessors * (_RESIDENT_THREADS // threads))
        blocks = ceil_div(found.count, max(min(waves, STEPS), 1))
        steps = found.count / max(blocks, 1)
        inside, begun_early, read, written = _moved(spec, extents)
        whole = alignment % unit == 0
        words_read, words_written = whole and extents["box_whole_read"], whole and extents["box_whole_written"]
        alone = memory(size) + 2  # an element that is moved by itself
        of_read = memory(unit) + 3 if words_read else grain * alone + 4
        of_staged = grain * alone if words_read or grain == 1 else grain * (alone + 1) + 4
        if config.reads is Reads.WORDS:
            begins_between = 0.0 if words_read else 1 - 1 / grain  # units, which take a second word
            of_read = memory(unit) * (1 + begins_between) + 8
            of_staged = grain * alone + 6
        of_written = memory(unit) + 4
        if not words_written:  # words of the tile that two words of the output share, and ends of runs
            ends = min(2 * grain / found.runs.written, 1.0) * 2  # in units, of which a warp takes both ways
            of_written = 2 * memory(unit) + 18 + min(8 * ends, 1.0) * grain * (memory(size) + 4)
            of_written += 2 * memory(unit) + 6 if begun_early else 0  # what other boxes write
        if words_read and words_written:
            of_staged += memory(unit)
        of_place = (_INDEX * config.axes + 4) * (1 + grain if grain > 1 else 1) + _INDEX * config.axes + 4
        of_place += (_INDEX + 2) * config.axes * (grain if begun_early else 0)
        of_thread, of_unit = max(units.read, units.written) / threads, of_read + of_staged + of_written
        # Parts of sectors that other boxes have come from memory too, and short runs from many of its pages. What a box
        # that begins early has of another one it reads, and does not write.
        again = steps / CACHE_SHARE
        if min(found.runs.read, found.runs.written) * size < _SHORT_BYTES:
            again *= _SHORT_COST
        return demand_of(
            spec,
            extents,
            blocks=blocks,
            threads_per_block=threads,
            read=again * read,
            written=inside * again * written,
            in_flight=inside * of_thread * unit,
            rounds=steps + 0.3,
            instructions=of_thread * (of_place + steps * of_unit) + 30 * steps,
            code=2 * config.unroll * (of_place + of_unit),  # there are two ways for most of it
            registers=64,
            shared_bytes=self.staged_bytes(spec),
            serial_instructions=_SERIAL * config.axes,
        )

    @override
    def least(self, spec: TransposeSpec, config: PackedConfig, limits: Limits) -> Least:
        size, grain, unit = spec.dtype.size, max(_WORD // spec.dtype.size, 1), max(spec.dtype.size, _WORD)
        alone, of_index = memory(size) + 2, _INDEX * config.axes + 4
        of_unit = min(memory(unit) + 3, grain * alone + 4) + grain * alone + memory(unit) + 4
        of_place = of_index * (1 + grain if grain > 1 else 1) + of_index
        return Least(of_unit / grain, COLD_SECONDS * 2 * config.unroll * (of_place + of_unit), _SERIAL * config.axes)

    def staged_bytes(self, spec: TransposeSpec) -> int:
        """Shared memory of a block: the tile, of small elements whether boxes leave them out, and where boxes begin."""
        units, element = most_units(spec), spec.dtype.size
        return units * max(element, _WORD) + (units * _WORD // element if element < _WORD else 0) + _FOUND_BYTES

    def bytes_in_flight(self, spec: TransposeSpec, config: PackedConfig) -> int:
        """All units of a thread."""
        return config.unroll * max(spec.dtype.size, _WORD)


def inverse(divisor: Expr) -> Expr:
    """2^32 over a divisor, rounded up; 0 for 1: what templates divide numbers of 16 bits by."""
    return (constant(2**32 - 1) // divisor + 1) % 2**32
