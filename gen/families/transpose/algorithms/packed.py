"""Permutations in which the fastest axis of both arrays is short: boxes of several axes, with long runs in both."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Generic, TypeAlias, TypeVar

from typing_extensions import override

from gen.arch import BANKS
from gen.dtypes import I32, I64, U32, DType, StoreModifier
from gen.families.base import Extents, Launch, Limits, Plan
from gen.families.config import Config, store_modifier, tunable
from gen.families.expr import ONE, Expr, constant, size
from gen.families.transpose.algorithms.common import MatrixAlgorithm, Order, few_pieces, only_moves, stays
from gen.families.transpose.algorithms.vectors import Spread
from gen.families.transpose.spec import TransposeSpec

RUN = "run"
"""The extent that says how long runs are, in elements."""
FILLED_BYTES = 8192  # bytes of a box whose runs are that long, at most
_WORD = 4  # bytes
MAX_RUN_ELEMENTS = 4096  # boxes of several times as many are told apart by numbers of 16 bits

Amount: TypeAlias = Any
"""A number, or an expression for it: a plan and the search for a run share formulas."""


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


@lru_cache(maxsize=256)
def axes_of(spec: TransposeSpec) -> Axes[Expr]:
    """The axes of a spec that has three or more. The last of both arrays stay single: a pitch may part them."""
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


@lru_cache(maxsize=256)
def box_of(spec: TransposeSpec, times: int = 1) -> tuple[Expr, ...]:
    """How long a box is along each axis; its runs are `times` as long as those that fill `FILLED` bytes at most."""
    axes, run = axes_of(spec), (size(RUN) * times).called("length")
    return tuple(_along(axes, place, run, spec.dtype.size) for place in range(len(axes.order)))


def _along(axes: Axes[Amount], place: int, run: Amount, element: int) -> Amount:
    """How long a box is along an axis: whole words that runs need, or all of it where that is under twice as long."""
    grain = max(_WORD // element, 1)
    there, strides = axes.extents[place], (axes.in_strides[place], axes.out_strides[place])
    wanted = _called(_most(*(_places(stride, run, grain) for stride in strides)), f"wanted{place}")
    most = _most(there, 1)
    part = _called(_least(most, wanted), f"part{place}")
    return _called(most - (most - part) * _least(most // (part * 2), 1), f"box{place}")


def _places(stride: Amount, run: Amount, grain: int) -> Amount:
    """Places of an axis that runs take up: one of an axis that they do not need."""
    needed = (run - 1) // _most(stride, 1)
    return _most((needed + (grain - 1)) // grain * grain, 1) if grain > 1 else needed + 1


def _most(one: Amount, other: Amount) -> Amount:
    return one.at_least(other) if isinstance(one, Expr) else max(one, other)


def _least(one: Amount, other: Amount) -> Amount:
    return one.at_most(other) if isinstance(one, Expr) else min(one, other)


def _called(one: Amount, word: str) -> Amount:
    return one.called(word) if isinstance(one, Expr) else one


def boxes_of(spec: TransposeSpec, times: int = 1) -> tuple[Expr, ...]:
    """How many of them there are along each axis."""
    each = zip(axes_of(spec).extents, box_of(spec, times), strict=True)
    return tuple(extent.ceil_div(box).called(f"boxes{place}") for place, (extent, box) in enumerate(each))


def elements_of(spec: TransposeSpec, times: int = 1) -> Expr:
    """Of a box."""
    return product(box_of(spec, times)).called("elements")


def longest_run(spec: TransposeSpec, extents: Extents) -> int:
    """The longest runs, a power of two, whose boxes fill `FILLED` bytes at most."""
    axes, element = measured(axes_of(spec), extents), spec.dtype.size
    places = range(len(axes.order))

    def overfills(exponent: int) -> bool:
        filled = prod(_along(axes, place, 1 << exponent, element) for place in places)
        return bool(filled * element > FILLED_BYTES)

    return 1 << bisect_left(range(1, MAX_RUN_ELEMENTS.bit_length()), True, key=overfills)


def measured(axes: Axes[Expr], extents: Extents) -> Axes[int]:
    """The same of a problem."""
    found, there, here = (
        tuple(one.at(extents) for one in each) for each in (axes.extents, axes.in_strides, axes.out_strides)
    )
    return Axes(found, there, here, axes.order)


def runs_of(spec: TransposeSpec, extents: Extents, times: int = 1) -> Runs:
    """How long the runs of a box turn out to be: axes that are short, or pitched, end them."""
    axes, run = measured(axes_of(spec), extents), extents[RUN] * times
    box = [_along(axes, place, run, spec.dtype.size) for place in range(len(axes.order))]
    return Runs(_run(box, axes.in_strides, range(len(box))), _run(box, axes.out_strides, axes.order))


def _run(box: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> int:
    found = 1
    for axis in reversed(order):
        if box[axis] > 1 and strides[axis] != found:
            break
        found *= box[axis]
    return found


MIN_PART_BYTES = 128
"""Bytes that threads side by side move at least, where a box has as many: a part of it."""
MAX_BOX_ELEMENTS = 2**16 - 1  # quotients are exact for numbers of 16 bits
_PART_TABLE_BYTES = 20  # for each part: where it lies in the input, and in the output and the tile
_BANK_ROW = 4 * BANKS  # bytes that all banks hold side by side


@dataclass(frozen=True, kw_only=True)
class PackedConfig(Config):
    """How `packed` cuts an array into boxes, and moves them."""

    times: int = tunable("r", (1, 2, 4), base=2, help="length of runs, over that at which boxes fill 8 KiB")
    threads_per_block: int = tunable("tpb", (128, 256, 512), base=256, help="threads of a block")
    unroll: int = tunable("u", (2, 4, 8), base=4, help="loads that a thread has under way")
    spread: Spread = tunable("", tuple(Spread), base=Spread.SWIZZLE, help="how the tile is spread over the banks")
    block_order: Order = tunable(
        "o", (Order.COL, Order.ROW), base=Order.COL, help="the array in whose order blocks go over boxes: col: output"
    )
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)


class Packed(MatrixAlgorithm[TransposeSpec, PackedConfig]):
    """Boxes of several axes, so that runs are long in both arrays."""

    name = "packed"
    template = "transpose/packed.cu.jinja"
    summary = (
        "A block moves a box: so many places of the fastest axes of the input, and of the output, that both have them "
        "in long runs. Runs of the input are staged in shared memory, and those of the output are gathered from there."
    )
    config = PackedConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: PackedConfig) -> str | None:
        """A matrix has no other axes to take along."""
        if len(spec.axes) < 3:
            return "it packs several axes, and a matrix has no others"
        return only_moves(spec)

    def unsupported_extents(
        self, spec: TransposeSpec, config: PackedConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """A box must fit in shared memory, and the boxes in a grid."""
        elements = elements_of(spec, config.times).at(extents)
        if elements > MAX_BOX_ELEMENTS:
            return f"a box has {elements} elements; it takes {MAX_BOX_ELEMENTS} at most"
        return super().unsupported_extents(spec, config, extents, limits)

    def slow_path_reason(
        self, spec: TransposeSpec, config: PackedConfig, extents: Extents, alignment: int
    ) -> str | None:
        """There must be enough boxes, and elements that change their neighbours, or are single bytes.

        Of runs of 51 x 2 bytes the counted model has `packed` at four times the time of `gather`, of 10 x 8 at 1.6.
        """
        if stays(extents) and spec.dtype.size > 1:
            return "runs stay as they are: threads that take an element each read and write them side by side"
        return few_pieces(spec, extents)

    def shared_bytes(self, spec: TransposeSpec, config: PackedConfig) -> Expr:
        """Of a block: the tile, whose parts begin at whole words, and what is known of each part."""
        box = elements_of(spec, config.times) * spec.dtype.size
        parts = (box // MIN_PART_BYTES).at_least(1).called("parts")
        tile = (box + parts * 4).called("tile")
        if config.spread is Spread.PADDING:
            tile = tile + tile // _BANK_ROW * max(spec.dtype.size, 4)
        return (tile + parts * _PART_TABLE_BYTES).ceil_div(_BANK_ROW) * _BANK_ROW + _BANK_ROW

    def inputs(self, spec: TransposeSpec, config: PackedConfig) -> Mapping[str, object]:
        """The axes that a box has, as both arrays have them."""
        order = axes_of(spec).order
        return {"axes": len(order), "order": order, "part": MIN_PART_BYTES}

    @override
    def plan(self, spec: TransposeSpec, config: PackedConfig) -> Plan:
        axes, boxes = axes_of(spec), boxes_of(spec, config.times)
        given: list[str | tuple[DType, Expr]] = ["in", "out"]
        for extent, box, count in zip(axes.extents, box_of(spec, config.times), boxes, strict=True):
            given += [(I64, extent), (I32, box), (U32, inverse(box)), (U32, count)]
        launch = Launch(
            grid=(product(boxes), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*given, (I64, size("in_row")), (I64, size("out_row"))),
            shared_bytes=self.shared_bytes(spec, config),
        )
        return Plan((launch,))

    def bytes_in_flight(self, spec: TransposeSpec, config: PackedConfig) -> int:
        """All loads of a thread before it keeps any."""
        return config.unroll * max(spec.dtype.size, 4)


def inverse(divisor: Expr) -> Expr:
    """2^32 over a divisor, rounded up; 0 for 1: what templates divide numbers of 16 bits by."""
    return (constant(2**32 - 1) // divisor + 1) % 2**32
