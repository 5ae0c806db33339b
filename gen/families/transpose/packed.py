"""Permutations in which the fastest axis of both arrays is short: blocks that move several axes at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gen.arch import BANKS
from gen.dtypes import I32, I64, U32, DType, StoreModifier
from gen.families.base import Extents, Launch, Limits, Plan
from gen.families.config import Config, store_modifier, tunable
from gen.families.expr import ONE, Expr, constant, size
from gen.families.transpose.blocks import MatrixAlgorithm, Order, only_moves
from gen.families.transpose.boxes import axes_of, box_of, boxes_of, elements_of, product
from gen.families.transpose.spec import TransposeSpec
from gen.families.transpose.vector import Spread

PART = 128
"""Bytes that threads side by side move at least, where a box has as many: a part of it."""
MOST_ELEMENTS = 2**16 - 1  # of a box: quotients are exact for numbers of 16 bits
_TABLES = 20  # bytes for a part: where it lies in the input, and in the output and the tile
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

    def uncovered(self, spec: TransposeSpec, config: PackedConfig, extents: Extents, limits: Limits) -> str | None:
        """A box must fit in shared memory, and the boxes in a grid."""
        elements = elements_of(spec, config.times).at(extents)
        if elements > MOST_ELEMENTS:
            return f"a box has {elements} elements; it takes {MOST_ELEMENTS} at most"
        return super().uncovered(spec, config, extents, limits)

    def shared_bytes(self, spec: TransposeSpec, config: PackedConfig) -> Expr:
        """Of a block: the tile, whose parts begin at whole words, and what is known of each part."""
        box = elements_of(spec, config.times) * spec.dtype.size
        parts = (box // PART).at_least(1).called("parts")
        tile = (box + parts * 4).called("tile")
        if config.spread is Spread.PADDING:
            tile = tile + tile // _BANK_ROW * max(spec.dtype.size, 4)
        return (tile + parts * _TABLES).ceil_div(_BANK_ROW) * _BANK_ROW + _BANK_ROW

    def inputs(self, spec: TransposeSpec, config: PackedConfig) -> Mapping[str, object]:
        """The axes that a box has, as both arrays have them."""
        order = axes_of(spec).order
        return {"axes": len(order), "order": order, "part": PART}

    def plan(self, spec: TransposeSpec, config: PackedConfig) -> Plan:
        """One launch."""
        axes, boxes = axes_of(spec), boxes_of(spec, config.times)
        told: list[str | tuple[DType, Expr]] = ["in", "out"]
        for extent, box, count in zip(axes.extents, box_of(spec, config.times), boxes, strict=True):
            told += [(I64, extent), (I32, box), (U32, inverse(box)), (U32, count)]
        launch = Launch(
            grid=(product(boxes), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*told, (I64, size("in_row")), (I64, size("out_row"))),
            shared_bytes=self.shared_bytes(spec, config),
        )
        return Plan((launch,))

    def bytes_in_flight(self, spec: TransposeSpec, config: PackedConfig) -> int:
        """All loads of a thread before it keeps any."""
        return config.unroll * max(spec.dtype.size, 4)


def inverse(divisor: Expr) -> Expr:
    """2^32 over a divisor, rounded up; 0 for 1: what templates divide numbers of 16 bits by."""
    return (constant(2**32 - 1) // divisor + 1) % 2**32
