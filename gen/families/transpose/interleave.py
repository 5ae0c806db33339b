"""Matrices of a few rows or columns, known when the kernel is written: interleaved, or parted, in registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gen.dtypes import LoadModifier, StoreModifier
from gen.families.base import Extents, Limits, Plan
from gen.families.config import Config, load_modifier, store_modifier, tunable
from gen.families.expr import ONE, size
from gen.families.plans import Tiles
from gen.families.transpose.arranged import turned
from gen.families.transpose.blocks import (
    Order,
    StagedAlgorithm,
    between_vectors,
    divisors,
    matrices,
    only_turns,
    tiled_launch,
)
from gen.families.transpose.flat import Few
from gen.families.transpose.spec import TransposeSpec


@dataclass(frozen=True, kw_only=True)
class InterleaveConfig(Config):
    """How `interleave` moves a matrix of few rows or columns."""

    few: Few = tunable("", tuple(Few), base=Few.ROWS, help="what there are few of")
    count: int = tunable("n", (2, 3, 4, 8, 16), base=3, help="how many of them there are")
    threads_per_block: int = tunable("tpb", (64, 128, 256, 512), base=128, help="threads of a block")
    load_modifier: LoadModifier = load_modifier(LoadModifier.LDG, LoadModifier.EVICT_LAST)
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS, StoreModifier.EVICT_LAST)


class Interleave(StagedAlgorithm[InterleaveConfig]):
    """Few rows or columns, as many as the text says."""

    name = "interleave"
    template = "transpose/interleave.cu.jinja"
    summary = (
        "A thread reads a vector of each of few rows, joins them in registers as their columns follow each other, and "
        "a warp writes what it has joined in one piece; with few columns the other way round."
    )
    config = InterleaveConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: InterleaveConfig) -> str | None:
        """Elements are moved in vectors."""
        return only_turns(spec)

    def uncovered(self, spec: TransposeSpec, config: InterleaveConfig, extents: Extents, limits: Limits) -> str | None:
        """They must be as many, and follow each other without a gap."""
        few, pitch = config.few.value, "in_pitch" if config.few is Few.COLS else "out_pitch"
        if extents[few] != config.count:
            return f"there are {extents[few]} {few}; it takes {config.count}"
        if extents[pitch] > extents[few]:
            return f"{pitch} is {extents[pitch]}, and must be the number of {few}, {extents[few]}"
        return super().uncovered(spec, config, extents, limits)

    def edge_cases(self, spec: TransposeSpec, config: InterleaveConfig) -> Iterator[Extents]:
        """More than a tile, of whole vectors, and pitched; several matrices, of whole vectors and not; few elements."""
        per = 16 // spec.dtype.size
        tile = config.threads_per_block * per
        for length, many, gap in (
            (4 * per, 3, 0), (tile + 2 * per, 1, 0), (tile + per + 1, 2, per - 1), (37, 3, 0), (2, 1, 0),
        ):  # fmt: skip
            if config.few is Few.COLS:
                yield turned(spec, length, config.count, many, out_gap=gap)
            else:
                yield turned(spec, config.count, length, many, in_gap=gap)

    def slow(self, spec: TransposeSpec, config: InterleaveConfig, extents: Extents, alignment: int) -> str | None:
        """The long rows must begin at whole vectors, and so must matrices."""
        long = "out_pitch" if config.few is Few.COLS else "in_pitch"
        return between_vectors(spec, extents, alignment, pitches=(long,))

    def staged_bytes(self, spec: TransposeSpec, config: InterleaveConfig) -> int:
        """Shared memory of a block."""
        return config.threads_per_block * config.count * 16

    def order(self, config: InterleaveConfig) -> Order:
        """Along the long side."""
        return Order.COL if config.few is Few.COLS else Order.ROW

    def tiles(self, spec: TransposeSpec, config: InterleaveConfig) -> Tiles:
        """Tiles that have all of what is few."""
        span = config.threads_per_block * 16 // spec.dtype.size
        if config.few is Few.COLS:
            return Tiles(size("rows"), ONE, span, 1, matrices(spec))
        return Tiles(ONE, size("cols"), 1, span, matrices(spec))

    def inputs(self, spec: TransposeSpec, config: InterleaveConfig) -> Mapping[str, object]:
        """In which order blocks go over tiles, by what they multiply for that, whether the shared memory is dynamic."""
        order = self.order(config)
        return {**super().inputs(spec, config), "order": order.value, "inverses": divisors(spec, order)}

    def plan(self, spec: TransposeSpec, config: InterleaveConfig) -> Plan:
        """One launch."""
        shared = self.dynamic_bytes(spec, config)
        block = (config.threads_per_block, 1, 1)
        return tiled_launch(spec, self.tiles(spec, config), block, shared, order=self.order(config))

    def bytes_in_flight(self, spec: TransposeSpec, config: InterleaveConfig) -> int:
        """A vector of each row or column."""
        return 16 * config.count
