"""Permutations in which the fastest axis of both arrays is short: boxes of several axes, with long runs in both."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt, prod
from typing import Generic, TypeVar

from typing_extensions import override

from gen.dtypes import I64, U32, DType, StoreModifier
from gen.families.base import Extents, Launch, Limits, Plan
from gen.families.config import Config, choice, store_modifier, tunable
from gen.families.estimates import SECTOR_BYTES, Demand
from gen.families.expr import ONE, Expr, constant, size
from gen.families.plans import beyond_shared
from gen.families.transpose.algorithms.common import (
    Order,
    StagedAlgorithm,
    copied,
    only_moves,
    turned,
    turns,
)
from gen.families.transpose.algorithms.demands import CACHE_SHARE, INDEX, demand_of, memory, touched
from gen.families.transpose.spec import TransposeSpec

FILLED_BYTES = 16384  # of a box whose runs are that long, at most
FILLED_UNITS = 2048  # of it, at most: elements, or words of smaller ones
_WORD = 4  # bytes
RUNS = (*range(1, 8), *(eighths << power for power in range(11) for eighths in range(8, 16)))
"""Lengths of runs that are tried, in elements."""
_MANY_PARTS = 12
_SHORT_BYTES, _SHORT_COST = 256, 1.25
_SERIAL = 2500  # instructions in which a block finds its boxes, and threads their places, in chains
_FOUND_BYTES = 2048  # of shared memory, at most, in which threads find where boxes begin
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


def boxes_for(spec: TransposeSpec, extents: Extents) -> Extents:
    """How long a box is along each axis: with the longest runs of which it has `FILLED_UNITS` and `FILLED_BYTES`.

    Then longer along the axes whose places lie nearest to each other, as far as these allow.
    """
    axes, element = measured(axes_of(spec), extents), spec.dtype.size

    def filled(box: Sequence[int]) -> float:
        found = _units(axes, box, element)
        return max(max(found.read, found.written) / FILLED_UNITS, found.elements * element / FILLED_BYTES)

    place = bisect_left(RUNS, True, key=lambda run: filled(_box(axes, run, element)) > 1)
    while place > 1 and filled(_box(axes, RUNS[place - 1], element)) > 1:
        place -= 1
    box = _box(axes, RUNS[max(place - 1, 0)], element)
    for axis in sorted(range(len(box)), key=lambda axis: min(axes.in_strides[axis], axes.out_strides[axis])):
        wanted = min(int(box[axis] / filled(box)), axes.extents[axis])
        if wanted > box[axis]:
            longer = [*box[:axis], _even(axes.extents[axis], wanted, _grain(axes, axis, element)), *box[axis + 1 :]]
            if box[axis] < longer[axis] and filled(longer) <= 1:
                box = longer
    return {_name(axis): places for axis, places in enumerate(box)}


def _grain(axes: Axes[int], axis: int, element: int) -> int:
    """By how many places a box is longer or shorter: along an array's fastest axis by whole words."""
    return max(_WORD // element, 1) if axis in (len(axes.order) - 1, axes.order[-1]) else 1


def _name(place: int) -> str:
    """The extent that says how long a box is along an axis."""
    return f"box{place}_places"


def _box(axes: Axes[int], run: int, element: int) -> list[int]:
    """A box whose runs have so many elements in both arrays, or all there are.

    It is as long along an axis as runs need, or all of it where that is under twice as long.
    """
    found = []
    for place, there in enumerate(axes.extents):
        grain, needed = _grain(axes, place, element), 1
        for stride in (axes.in_strides[place], axes.out_strides[place]):
            places = (run - 1) // max(stride, 1) + (grain == 1)
            needed = max(needed, ceil_div(places, grain) * grain)
        most = max(there, 1)
        found.append(_even(most, most if most < 2 * needed else needed, grain))
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
        axes: of the problem.
        box: places of a box along each of them.
        count: how many boxes there are.
        units: of a box.
        runs: of a box.
    """

    axes: Axes[int]
    box: tuple[int, ...]
    count: int
    units: Units
    runs: Runs


def boxes_of(spec: TransposeSpec, extents: Extents) -> Boxes:
    """The boxes of a problem that `boxes_for` belongs to."""
    return _boxes(spec, tuple(extents.items()))


@lru_cache(maxsize=256)
def _boxes(spec: TransposeSpec, extents: tuple[tuple[str, int], ...]) -> Boxes:
    sizes = dict(extents)
    axes = measured(axes_of(spec), sizes)
    box = tuple(sizes[_name(place)] for place in range(len(axes.order)))
    count = prod(ceil_div(extent, places) for extent, places in zip(axes.extents, box, strict=True))
    runs = Runs(_run(box, axes.in_strides, range(len(box))), _run(box, axes.out_strides, axes.order))
    return Boxes(axes, box, count, _units(axes, box, spec.dtype.size), runs)


def measured(axes: Axes[Expr], extents: Extents) -> Axes[int]:
    """The same of a problem."""
    found, there, here = (
        tuple(one.at(extents) for one in each) for each in (axes.extents, axes.in_strides, axes.out_strides)
    )
    return Axes(found, there, here, axes.order)


def _units(axes: Axes[int], box: Sequence[int], element: int) -> Units:
    """As the template counts them: a run of the input ends at the output's fastest axis, if it has two units then."""
    elements, grain = prod(box), max(_WORD // element, 1)
    in_fastest, out_fastest = (
        next((axis for axis in reversed(order) if box[axis] > 1), None) for order in (range(len(box)), axes.order)
    )
    padded = None if in_fastest == out_fastest else out_fastest
    read = _run(box, axes.in_strides, range(len(box)), padded, 2 * grain)
    written = _run(box, axes.out_strides, axes.order)
    return Units(elements, *(elements // run * ceil_div(run, grain) for run in (read, written)))


def _run(
    box: Sequence[int], strides: Sequence[int], order: Sequence[int], padded: int | None = None, least: int = 1
) -> int:
    found = 1
    for axis in reversed(order):
        if box[axis] > 1 and (strides[axis] != found or (axis == padded and found >= least)):
            break
        found *= box[axis]
    return found


@dataclass(frozen=True, kw_only=True)
class PackedConfig(Config):
    """How `packed` moves boxes."""

    threads_per_block: int = tunable("tpb", (128, 256, 512), base=256, help="threads of a block")
    unroll: int = tunable("u", (2, 4, 8), base=8, help="units that a thread has under way: elements, or words")
    steps: int = tunable("s", (1, 2, 4, 8, 16), base=8, help="boxes that a block moves, one after another")
    block_order: Order = tunable(
        "o", (Order.COL, Order.ROW), base=Order.COL, help="the array in whose order blocks go over boxes: col: output"
    )
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)
    index_bits: int = choice("i", (64, 32), help="bits of an element's place in its box")


def most_units(spec: TransposeSpec) -> int:
    """Of a box."""
    return min(FILLED_UNITS, FILLED_BYTES // spec.dtype.size)


def base_config(spec: TransposeSpec) -> PackedConfig:
    """Threads for as many units as boxes have at most: of words and more, fewer threads with more each.

    On an H200 these took 0.84 of the time of elements of 4 bytes, and 1.2 to 1.5 times that of smaller ones.
    """
    if spec.dtype.size < _WORD:
        return PackedConfig(threads_per_block=512, unroll=4)
    return PackedConfig(unroll=8 if spec.dtype.size <= FILLED_BYTES // FILLED_UNITS else 4)


class Packed(StagedAlgorithm[PackedConfig]):
    """Boxes of several axes, so that runs are long in both arrays."""

    name = "packed"
    template = "transpose/packed.cu.jinja"
    summary = (
        "A block moves boxes: so many places of the fastest axes of the input, and of the output, that both have them "
        "in long runs. A box is read in the order of the input, staged in shared memory, and written in that of the "
        "output, while the next one is on its way; where a thread's elements lie in a box is found once for all boxes."
    )
    config = PackedConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: PackedConfig) -> str | None:
        """Elements are moved as they are, to another array."""
        if len(spec.axes) < 2:
            return "it packs several axes, and an array of one has no others"
        units, most = config.threads_per_block * config.unroll, most_units(spec)
        if units < most:
            return f"its blocks move {units} units, and a box may have {most}"
        return only_moves(spec)

    def unsearched(self, spec: TransposeSpec, config: PackedConfig) -> str | None:
        """No threads are idle in all boxes."""
        units, most = config.threads_per_block * config.unroll, most_units(spec)
        return f"its blocks move {units} units, and a box has {most} at most" if units > most else None

    def unsupported_extents(
        self, spec: TransposeSpec, config: PackedConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Boxes must be found by their number, and elements in one by a number of `index_bits`."""
        boxes = boxes_of(spec, extents)
        if boxes.count > MAX_BOXES:
            return f"there are {boxes.count} boxes; it takes {MAX_BOXES} at most"
        if config.index_bits == 32:
            for strides in (boxes.axes.in_strides, boxes.axes.out_strides):
                furthest = 1 + sum((places - 1) * stride for places, stride in zip(boxes.box, strides, strict=True))
                if furthest > 2**32:
                    return f"a box's last element may be element {furthest}; with 32 bits it is {2**32} at most"
        return beyond_shared(self.dynamic_bytes(spec, config), limits)

    def edge_cases(self, spec: TransposeSpec, config: PackedConfig) -> Iterator[Extents]:
        """Boxes that begin early, by one place and by several; more of them than a round of blocks; runs of odd length.

        Pitched rows; places of an axis that are all of it, and one more than all.
        """
        side = isqrt(FILLED_UNITS * max(_WORD // spec.dtype.size, 1))
        make = turned if turns(spec) else lambda one, rows, cols, many=1, **_: copied(one, cols, (rows, many))
        yield make(spec, 2 * side - 1, 2 * side + 1)
        yield make(spec, side + 1, 3, 5, in_gap=1)
        yield make(spec, 6, 2 * side + 3, 7, out_gap=3)
        yield make(spec, 3 * side, (config.steps // 3 + 2) * side, in_gap=4, out_gap=8)
        yield make(spec, 12, 16, config.steps + 1)

    @override
    def staged_bytes(self, spec: TransposeSpec, config: PackedConfig) -> int:
        return config.threads_per_block * config.unroll * 3 // 2 * max(spec.dtype.size, _WORD) + _FOUND_BYTES

    def inputs(self, spec: TransposeSpec, config: PackedConfig) -> Mapping[str, object]:
        """The axes that a box has, as both arrays have them, and whether the shared memory is dynamic."""
        order = axes_of(spec).order
        return {**super().inputs(spec, config), "axes": len(order), "order": order}

    @override
    def plan(self, spec: TransposeSpec, config: PackedConfig) -> Plan:
        axes, box = axes_of(spec), [size(_name(place)) for place in range(len(axes_of(spec).order))]
        boxes = [extent.ceil_div(places) for extent, places in zip(axes.extents, box, strict=True)]
        given: list[str | tuple[DType, Expr]] = ["in", "out"]
        for extent, there, here, places, count in zip(
            axes.extents, axes.in_strides, axes.out_strides, box, boxes, strict=True
        ):
            given += [(I64, extent), (I64, there), (I64, here), (U32, places), (U32, inverse(places)), (U32, count)]
        count = product(boxes).called("boxes")
        launch = Launch(
            grid=(count.ceil_div(config.steps), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*given, (U32, count)),
            shared_bytes=constant(self.dynamic_bytes(spec, config)),
        )
        return Plan((launch,))

    @override
    def demand(
        self, spec: TransposeSpec, config: PackedConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        found, threads = boxes_of(spec, extents), config.threads_per_block
        size, axes, box, units = spec.dtype.size, found.axes, found.box, found.units
        grain, unit = max(_WORD // size, 1), max(size, _WORD)
        blocks = ceil_div(found.count, config.steps)
        steps = found.count / max(blocks, 1)
        inside = prod(axes.extents) / max(found.count * units.elements, 1)
        # Where all strides of runs are whole words, words are moved, else elements.
        in_words, out_words = (
            alignment % unit == 0 and all(s % grain == 0 for p, s in zip(box, strides, strict=True) if p > 1 and s > 1)
            for strides in (axes.in_strides, axes.out_strides)
        )
        alone = 1.5 * memory(size) + 4  # an element that is moved by itself, and joined to others or cut off
        of_read = memory(unit) + 3 + (0 if grain == 1 or in_words else 6 + (grain - 1) * alone)
        of_written = memory(unit) + 4 + (0 if grain == 1 or out_words else 6 + (grain - 1) * alone)
        of_staged = memory(unit) + grain * (memory(size) + (0 if grain == 1 else 3.5))
        of_place = INDEX * sum(places > 1 for places in box) * (2 if grain == 1 else 2 + grain) + 10
        of_thread = max(units.read, units.written) / threads
        read, written = (
            touched([*zip(box, strides, strict=True)], size, SECTOR_BYTES, aligned=False)
            for strides in (axes.in_strides, axes.out_strides)
        )
        # Parts of sectors that other boxes have come from memory too, and short runs from many of its pages.
        again = inside * steps / CACHE_SHARE
        if min(found.runs.read, found.runs.written) * size < _SHORT_BYTES:
            again *= _SHORT_COST
        return demand_of(
            spec,
            extents,
            blocks=blocks,
            threads_per_block=threads,
            read=again * read,
            written=again * written,
            in_flight=inside * of_thread * unit,
            rounds=steps + 0.3,
            instructions=of_thread * (of_place + 1.3 * steps * (of_read + of_staged + of_written)) + 80 * len(box),
            registers=64,
            shared_bytes=self.staged_bytes(spec, config),
            serial_instructions=_SERIAL,
        )

    def bytes_in_flight(self, spec: TransposeSpec, config: PackedConfig) -> int:
        """All units of a thread."""
        return config.unroll * max(spec.dtype.size, _WORD)


def inverse(divisor: Expr) -> Expr:
    """2^32 over a divisor, rounded up; 0 for 1: what templates divide numbers of 16 bits by."""
    return (constant(2**32 - 1) // divisor + 1) % 2**32
