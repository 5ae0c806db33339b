"""Permutations of small elements in which runs are odd: boxes of several axes, read by words and turned by squares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isqrt, prod

from typing_extensions import override

from gen.dtypes import I32, I64, U32, DType, StoreModifier
from gen.families.base import Extents, Launch, Limits, Plan
from gen.families.config import Config, choice, store_modifier, tunable
from gen.families.estimates import SECTOR_BYTES, Demand
from gen.families.expr import ONE, Expr, once_a_problem, size
from gen.families.transpose.algorithms.common import (
    Axis,
    MatrixAlgorithm,
    known,
    only_gaps_after_rows,
    only_turns,
    turned,
)
from gen.families.transpose.algorithms.demands import CACHE_SHARE, demand_of, memory, touched
from gen.families.transpose.algorithms.packed import (
    COLUMNS,
    LEAST_ROWS,
    MAX_BOXES,
    STEPS,
    TILE_WORDS,
    WIDE_WORDS,
    ceil_div,
    inverse,
    product,
)
from gen.families.transpose.spec import MAX_AXES, TransposeSpec

_WORD = 4  # bytes
_RESIDENT_THREADS = 1024  # for which a multiprocessor has registers
_FOUND_BYTES = 21 * STEPS  # of shared memory in which threads find where boxes begin
_CODE = 2400  # instructions of its text, by nvdisasm
_INDEX = 6.0  # slots of a division of an element's number
_WAITING = (1.3, 1.65)  # slots that go by for each one, of elements of 1 and of 2 bytes: barriers keep warps in step


@dataclass(frozen=True, kw_only=True)
class ShiftBoxConfig(Config):
    """How `shift_box` moves boxes."""

    axes: int = tunable(
        "a", tuple(range(2, MAX_AXES + 1)), base=2, help="most axes, after axes that stay adjacent are merged"
    )
    threads_per_block: int = tunable("tpb", (512, 1024), base=512, help="threads per block")
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)
    index_bits: int = choice("i", (64, 32), help="bits of element indices in a box; 32: for small arrays only")


class ShiftBox(MatrixAlgorithm[TransposeSpec, ShiftBoxConfig]):
    """Boxes of several axes, of small elements."""

    name = "shift_box"
    template = "transpose/shift_box.cu.jinja"
    summary = (
        "A block moves boxes like those of packed, with elements of 1 or 2 bytes, wherever rows and columns begin. "
        "Rows are read by aligned words, which are shifted into place with the words of the next lane. Squares of "
        "elements are transposed in registers, and columns are written from shared memory by words."
    )
    config = ShiftBoxConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: ShiftBoxConfig) -> str | None:
        """Elements are parts of words, and are moved as they are, to another array."""
        if spec.dtype.size >= _WORD:
            return f"elements of {spec.dtype.size} bytes are whole words: they need no shifting"
        if config.axes > len(spec.axes):
            return f"it is for {config.axes} axes, and the array has {len(spec.axes)}"
        return only_gaps_after_rows(spec) or only_turns(spec)

    def unsupported_extents(
        self, spec: TransposeSpec, config: ShiftBoxConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Its axes must do; boxes must have long columns, and be found by their number, elements by `index_bits`."""
        if extents["box_axes"] > config.axes:
            return f"the array has {extents['box_axes']} axes after merging; it supports at most {config.axes}"
        if extents["wide_run"] == 0:
            return f"runs are too short, or lie along the same axis in both arrays, for boxes of {LEAST_ROWS} rows"
        axes, box = _boxes(spec, extents)
        count = _count(axes, box)
        if count > MAX_BOXES:
            return f"there are {count} boxes; it supports at most {MAX_BOXES}"
        if config.index_bits == 32:
            for stride in ("in_stride", "out_stride"):
                furthest = _WORD + sum(
                    (places - 1) * getattr(axis, stride) for axis, places in zip(axes, box, strict=True)
                )
                if furthest > 2**32:
                    return f"a box's last word may end at element {furthest}; with 32 bits it is {2**32} at most"
        return None

    def edge_cases(self, spec: TransposeSpec, config: ShiftBoxConfig) -> Iterator[Extents]:
        """Boxes that begin early; more of them than blocks; rows and columns that are odd, pitched, few."""
        several = config.axes > 2
        side = isqrt(WIDE_WORDS * _WORD // spec.dtype.size)
        yield turned(spec, 2 * side - 1, 2 * side + 1)
        yield turned(spec, side + 1, 37, 5 if several else 1, in_gap=1)
        yield turned(spec, 37, 2 * side + 3, 7 if several else 1, out_gap=3)
        yield turned(spec, 3 * side, 2 * side, in_gap=4, out_gap=8)
        yield turned(spec, 2 * side, side, 3 if several else 1)
        if several:  # boxes of more words than threads, of which the last leaves out some columns
            yield known(spec, dict(enumerate((113, 5, 28))), 0, 0)
        yield turned(spec, side + 3, 2 * side, in_gap=3)  # rows that begin at any element of a word

    def inputs(self, spec: TransposeSpec, config: ShiftBoxConfig) -> Mapping[str, object]:
        """Words of a tile and columns of a box at most, boxes of a block, words that a thread reads of each."""
        return {
            "tile_words": TILE_WORDS, "columns": COLUMNS, "steps": STEPS,
            "words": WIDE_WORDS // config.threads_per_block,
        }  # fmt: skip

    @override
    def plan(self, spec: TransposeSpec, config: ShiftBoxConfig) -> Plan:
        given: list[str | tuple[DType, Expr]] = ["in", "out"]
        boxes, numbers = [], range(config.axes)
        for place in numbers:
            extent, there, here = (size(f"box{place}_{what}") for what in ("extent", "in", "out"))
            places = size(f"wide{place}_places")
            boxes.append(extent.ceil_div(places))
            given += [(I64, extent), (I64, there), (I64, here), (U32, places), (U32, inverse(places)), (U32, boxes[-1])]
        for place in numbers:
            places, step = size(f"wide{place}_read_places"), size(f"wide{place}_read_step")
            given += [(U32, places), (U32, inverse(places)), (I64, size(f"box{place}_read_stride")), (U32, step)]
        given += [(U32, size(f"wide{place}_column")) for place in numbers[1:]]
        count = product(boxes).called("boxes")
        columns = product([size(f"wide{place}_places") for place in numbers[1:]]).called("columns")
        operand = spec.operands[0]
        gaps = (size(operand.pitch) - size(str(operand.axes[-1]))).called("gap")
        at_once = size("multiprocessors") * (_RESIDENT_THREADS // config.threads_per_block)
        steps = count.ceil_div(at_once).at_least(1).at_most(STEPS).called("boxes_of_a_block")
        launch = Launch(
            grid=(count.ceil_div(steps), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*given, (I32, columns), (I32, size("wide_run")), (I32, gaps.at_most(1)), (U32, count)),
        )
        return Plan((launch,))

    @override
    def demand(
        self, spec: TransposeSpec, config: ShiftBoxConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        threads, element = config.threads_per_block, spec.dtype.size
        axes, box = _boxes(spec, extents)
        count, grain = _count(axes, box), _WORD // element
        waves = ceil_div(count, limits.multiprocessors * (_RESIDENT_THREADS // threads))
        blocks = ceil_div(count, max(min(waves, STEPS), 1))
        steps = count / max(blocks, 1)
        elements = prod(box)
        columns = elements // box[0]
        inside = prod(axis.extent for axis in axes) / max(count * elements, 1)
        gaps = extents[spec.operands[0].pitch] > extents[str(spec.operands[0].axes[-1])]
        of_word = 3 * memory(_WORD) + 6  # read, taken from the next lane, turned and left in the tile
        of_column = 3 * memory(_WORD) + 9  # of a word that is written
        of_end = 2 * (grain - 1) * memory(element) + 30
        of_box = WIDE_WORDS / threads * (of_word + of_column) + of_end * ceil_div(2 * columns, threads)
        if gaps:  # ends of runs, element by element
            of_box += WIDE_WORDS / threads * (grain * (memory(element) + 2) + 8)
        of_place = 3 * _INDEX * config.axes * WIDE_WORDS / (grain * threads)
        of_place += 2 * _INDEX * config.axes * ceil_div(columns, threads)
        read, written = (
            touched(
                [(places, getattr(axis, stride)) for axis, places in zip(axes, box, strict=True)],
                element, SECTOR_BYTES, aligned=False,
            )
            for stride in ("in_stride", "out_stride")
        )  # fmt: skip
        again = steps / CACHE_SHARE  # what a box that begins early has of another one it reads, and does not write
        return demand_of(
            spec,
            extents,
            blocks=blocks,
            threads_per_block=threads,
            read=again * read,
            written=inside * again * written,
            in_flight=inside * elements * element / threads,
            rounds=steps + 0.3,
            instructions=of_place + steps * _WAITING[element - 1] * (of_box + 30),
            registers=64,
            shared_bytes=self.staged_bytes(config),
            serial_instructions=60 * config.axes,
            code=_CODE,
        )

    def staged_bytes(self, config: ShiftBoxConfig) -> int:
        """Shared memory of a block: the tile, where columns lie, and where boxes begin."""
        return _WORD * TILE_WORDS + COLUMNS * (_WORD + config.index_bits // 8) + _FOUND_BYTES

    @override
    def bytes_in_flight(self, spec: TransposeSpec, config: ShiftBoxConfig) -> int:
        return _WORD * WIDE_WORDS // config.threads_per_block


@once_a_problem
def _boxes(spec: TransposeSpec, extents: Extents) -> tuple[tuple[Axis, ...], tuple[int, ...]]:
    """The axes of a problem, the output's fastest first, and places of a box along each."""
    axes, box = [], []
    for place in range(len(spec.axes)):
        if place >= extents["box_axes"]:
            break
        axes.append(Axis(*(extents[f"box{place}_{what}"] for what in ("extent", "in", "out"))))
        box.append(extents[f"wide{place}_places"])
    return tuple(axes), tuple(box)


def _count(axes: tuple[Axis, ...], box: tuple[int, ...]) -> int:
    return prod(ceil_div(axis.extent, places) for axis, places in zip(axes, box, strict=True))
