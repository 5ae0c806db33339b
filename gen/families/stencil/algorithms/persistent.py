"""Arrays that fit into the registers of all multiprocessors: a call of many steps is one launch, and reads them once.

Every block keeps a tile of cells with a halo of as many rows and columns as some steps use up. When these are done, it
writes its cells near the tile's ends to its neighbours' halos in global memory, which the second-level cache keeps, and
waits for its own halo: no block waits for any that is further away. One bit of each word of 8 bytes says whether it is
new, as in the protocols LL and LL128 of NCCL: a word is read with its bit, and no fence separates data from a flag. All
blocks run at the same time, one on each multiprocessor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from typing_extensions import override

from gen.arch import WARP, max_registers_per_thread
from gen.dtypes import I32, I64
from gen.families.base import Extents, Launch, Limits, Plan, Scratch
from gen.families.config import Config, tunable
from gen.families.estimates import Demand
from gen.families.expr import ONE, Expr, size
from gen.families.stencil.algorithms.common import (
    VECTOR_BYTES,
    StencilAlgorithm,
    beyond_axes,
    cells_of,
    neighbours_of_rows,
    reach_of,
    rim_of,
    window_lines,
)
from gen.families.stencil.algorithms.demands import SHUFFLE, work_of
from gen.families.stencil.shapes import extents_of
from gen.families.stencil.spec import STEPS, StencilSpec

_CHUNK_BYTES = 20  # of shared memory: what a chunk of a halo holds
_MAX_UNROLLED_TERMS = 6000  # of a lane in a step, all written out: more leave the instruction cache
# Of an exchange, and for each chunk of a halo: fitted to times of 23 variants on an H200, 6 % off on average.
_EXCHANGE_SECONDS, _CHUNK_SECONDS = 1.07e-6, 0.03e-6
_STEP_CLOCKS = 120.0  # of a barrier and shared memory
_ISSUED_FOR_A_TERM = 1.15
_LONGEST = 2**30
_MOST_SHARED_BYTES = 227 << 10  # of a block, on any device


@dataclass(frozen=True, kw_only=True)
class PersistentConfig(Config):
    """The tile of a block, and how many steps it computes without its neighbours."""

    cells: int = tunable("c", (4, 8), base=8, help="consecutive cells of a row per lane")
    rows: int = tunable("y", (2, 4, 8, 10, 14, 18, 20), base=8, help="rows per warp")
    warps: int = tunable("w", (4, 8, 12, 16), base=8, help="warps per block, down the rows")
    steps: int = tunable(
        "t", (2, 3, 4, 6, 8, 12, 16), base=4, help="time steps between halo exchanges; more need a wider halo"
    )

    @property
    def threads_per_block(self) -> int:
        """Of all warps."""
        return WARP * self.warps

    @property
    def tile_rows(self) -> int:
        """With those of the halo."""
        return self.warps * self.rows

    @property
    def tile_cols(self) -> int:
        """With those of the halo."""
        return WARP * self.cells


@dataclass(frozen=True)
class Halo:
    """What the steps between two exchanges use up on each side of a tile: rows, and columns in whole lanes."""

    rows: int
    lanes: int

    @classmethod
    def of(cls, spec: StencilSpec, config: PersistentConfig) -> Halo:
        """As far as the weights reach, on both sides alike: what is mirrored reaches as far the other way."""
        reach = reach_of(spec)
        return cls(config.steps * max(reach.up, reach.down), -(-config.steps * reach.side // config.cells))


@dataclass(frozen=True)
class Tiles:
    """How many tiles there are, of which each has some rows and columns of its own."""

    down: Expr
    across: Expr

    @classmethod
    def of(cls, spec: StencilSpec, config: PersistentConfig) -> Tiles:
        """Columns are shared in whole lanes."""
        halo = Halo.of(spec, config)
        own_rows, own_lanes = config.tile_rows - 2 * halo.rows, WARP - 2 * halo.lanes
        down = size("rows").ceil_div(own_rows).called("tiles_down")
        across = (size("cols") // config.cells).ceil_div(own_lanes).called("tiles_across")
        return cls(down, across)

    @property
    def count(self) -> Expr:
        """Blocks of the launch."""
        return self.down * self.across


class Persistent(StencilAlgorithm[PersistentConfig]):
    """Computes all time steps of two axes in one launch, whose blocks wait for their neighbours."""

    name = "persistent"
    template = "stencil/persistent.cu.jinja"
    summary = (
        "Every multiprocessor keeps a tile in registers for all time steps; neighbours exchange halos every few steps."
    )
    config = PersistentConfig

    def illegal(self, spec: StencilSpec, config: PersistentConfig) -> str | None:
        """The spec must have two axes, and what neighbours need of a tile must be its own."""
        if found := beyond_axes(spec, 2):
            return found
        if any((before == "wrap") != (after == "wrap") for before, after in spec.ends):
            return "if one end of an axis wraps, the other must wrap too"
        halo, reach, rim = Halo.of(spec, config), reach_of(spec), rim_of(spec)
        if 4 * halo.rows >= config.tile_rows or 6 * halo.lanes >= WARP:
            return (
                f"a tile is too small for a halo of {halo.rows} rows and {halo.lanes} lanes, for {config.steps} steps"
            )
        for held, what, far, ends in (
            (config.rows, "rows of a warp", max(reach.up, reach.down, rim.up, rim.down), spec.ends[0]),
            (config.cells, "cells of a lane", max(reach.side, rim.left, rim.right), spec.ends[1]),
        ):
            if far + ("mirror" in ends) > held:  # of a mirror image the first cell is the second inside
                return f"the weights reach over more than the {held} {what}"
        if (taken := _shared_bytes(spec, config)) > _MOST_SHARED_BYTES:
            return f"the rows that warps exchange need {taken} bytes of shared memory, more than {_MOST_SHARED_BYTES}"
        return None

    def unsearched(self, spec: StencilSpec, config: PersistentConfig) -> str | None:
        """The instruction cache must hold a step, and registers the cells of a lane."""
        terms = len(spec.taps) * config.rows * config.cells * (spec.accumulator.size // 4)
        if terms > _MAX_UNROLLED_TERMS:
            return f"its unrolled loop has {terms} terms; more than {_MAX_UNROLLED_TERMS} exceed the instruction cache"
        needed, allowed = registers(spec, config), max_registers_per_thread(config.warps)
        if needed > allowed:
            return f"it needs about {needed} registers per thread, and {config.warps} warps leave {allowed}"
        return None

    def unsupported_extents(
        self, spec: StencilSpec, config: PersistentConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """A tile must lie inside the array, and all tiles be on multiprocessors at the same time."""
        rows, cols = extents["rows"], extents["cols"]
        if rows < config.tile_rows or cols < config.tile_cols:
            return f"{rows} x {cols} cells are smaller than a tile of {config.tile_rows} x {config.tile_cols}"
        if cols % config.cells != 0:
            return f"{cols} columns are not a multiple of the {config.cells} cells of a lane"
        if rows > _LONGEST or cols > _LONGEST:
            return "it counts rows and columns in 32 bits"
        blocks = Tiles.of(spec, config).count.at(extents)
        if blocks > limits.multiprocessors:
            return (
                f"its {blocks} blocks must be resident at the same time, one per multiprocessor, and the device has "
                f"{limits.multiprocessors}"
            )
        return super().unsupported_extents(spec, config, extents, limits)

    @override
    def demand(
        self, spec: StencilSpec, config: PersistentConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        """The array moves once; a step takes what its terms do, and exchanges their time."""
        steps = extents.get(STEPS, 1)
        exchanges = max(-(-steps // config.steps) - 1, 0)
        an_exchange = _EXCHANGE_SECONDS + _CHUNK_SECONDS * _chunks(spec, config)
        seconds = steps * step_clocks(spec, config, limits) / limits.clock_hz + exchanges * an_exchange
        return Demand(
            moved_bytes=2.0 * cells_of(spec, extents) * spec.dtype.size,
            blocks=Tiles.of(spec, config).count.at(extents),
            threads_per_block=config.threads_per_block,
            bytes_in_flight=2.0 * self.bytes_in_flight(spec, config),
            rounds=4.0,
            instructions=2.0 * config.rows * config.cells,
            registers=min(registers(spec, config), max_registers_per_thread(config.warps)),
            shared_bytes=_shared_bytes(spec, config),
            end_seconds=seconds,
        )

    @override
    def edge_cases(self, spec: StencilSpec, config: PersistentConfig) -> Iterator[Extents]:
        """Four tiles, a few more of their rows than they need, and tiles with neighbours on all sides.

        The mark of an exchange is another one at the third.
        """
        halo = Halo.of(spec, config)
        rows, cols, lane = config.tile_rows, config.tile_cols, config.cells
        own_rows, own_cols = rows - 2 * halo.rows, cols - 2 * halo.lanes * lane
        across = max(2 * own_cols + lane, cols)
        sizes = ((rows, cols + lane), (2 * own_rows + 1, across), (rows + 1, cols), (own_rows + rows, cols))
        steps = (config.steps + 1, 5 * config.steps, config.steps, 2 * config.steps + 1)
        for place, (high, wide) in enumerate(sizes):
            yield extents_of(
                spec, (max(high, rows), wide), steps[place], gap=(0, 4, 3, 0)[place], out_gap=(0, 4, 2, 8)[place]
            )

    def inputs(self, spec: StencilSpec, config: PersistentConfig) -> Mapping[str, object]:
        """The words of the four ends, the halo, and vectors of numbers."""
        reach, halo = reach_of(spec), Halo.of(spec, config)
        (up, down), (left, right) = spec.ends
        return {
            "lines": window_lines(spec, reach),
            "neighbours": tuple(neighbours_of_rows(spec, reach)),
            "up_end": up,
            "down_end": down,
            "left_end": left,
            "right_end": right,
            "halo_rows": halo.rows,
            "halo_lanes": halo.lanes,
            "halo_bytes": _halo_bytes(spec, config),
            "vector": "double2" if spec.accumulator.size == 8 else "float4",
            "vector_cells": VECTOR_BYTES // spec.accumulator.size,
            "whole_vectors": spec.dtype == spec.accumulator,
        }

    @override
    def plan(self, spec: StencilSpec, config: PersistentConfig) -> Plan:
        tiles = Tiles.of(spec, config)
        launch = Launch(
            grid=(tiles.count, ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(
                "in", "out", "halos", (I32, size("rows")), (I32, size("cols")),
                (I64, size("in_pitch")), (I64, size("out_pitch")), (I32, tiles.down), (I32, tiles.across),
                (I64, size(STEPS)),
            ),
            shared_bytes=ONE * (_shared_bytes(spec, config) - _chunk_bytes(spec, config)),
            cooperative=True,
        )  # fmt: skip
        halos = tiles.count * (2 * _chunks(spec, config) * (WARP + 1) * VECTOR_BYTES)  # of two exchanges
        return Plan((launch,), (Scratch("halos", halos, zeroed=True, awaited=True),))

    def bytes_in_flight(self, spec: StencilSpec, config: PersistentConfig) -> int:
        """All cells of a thread are on their way at once."""
        return config.rows * config.cells * spec.dtype.size

    @override
    def arithmetic(self, spec: StencilSpec, config: PersistentConfig, extents: Extents, limits: Limits) -> float:
        """The terms of all rows and steps."""
        return extents.get(STEPS, 1) * config.rows * _issued_for_a_row(spec, config, limits)


def step_clocks(spec: StencilSpec, config: PersistentConfig, limits: Limits) -> float:
    """About what a step takes a multiprocessor: the terms of a tile, shuffles, and a barrier."""
    row = _issued_for_a_row(spec, config, limits)
    return config.tile_rows * WARP * row / limits.f32_per_clock + _STEP_CLOCKS


def _issued_for_a_row(spec: StencilSpec, config: PersistentConfig, limits: Limits) -> float:
    """The instructions of a lane for a row and step."""
    work = work_of(spec, limits)
    terms = work.terms * config.cells * work.slots * _ISSUED_FOR_A_TERM
    return float(terms + config.cells * work.converted + SHUFFLE * 2 * work.mirrored.side * work.words)


def registers(spec: StencilSpec, config: PersistentConfig) -> int:
    """How many a thread needs: its cells, sums that are not finished, and addresses. Few spill, in exchanges."""
    words, reach = spec.accumulator.size // 4, reach_of(spec)
    return 40 + words * (config.cells * (config.rows + reach.high) + 2 * reach.side)


def _halo_bytes(spec: StencilSpec, config: PersistentConfig) -> int:
    """A tile's halo: rows above and below, and columns on both sides, at least one of each."""
    halo = Halo.of(spec, config)
    cells = max(halo.rows, 1) * config.tile_cols + config.tile_rows * max(halo.lanes, 1) * config.cells
    return 2 * cells * spec.accumulator.size


def _chunks(spec: StencilSpec, config: PersistentConfig) -> int:
    """Of a halo: of the neighbours above and below, at both sides, and beyond the four corners."""
    halo = Halo.of(spec, config)
    row = config.tile_cols * spec.accumulator.size // VECTOR_BYTES
    column = halo.lanes * config.cells * spec.accumulator.size // VECTOR_BYTES
    ends, corners = -(-halo.rows * row // WARP), -(-halo.rows * column // WARP)
    sides = -(-(config.tile_rows - 2 * halo.rows) * column // WARP)
    return 2 * ends + 2 * sides + 4 * corners


def _chunk_bytes(spec: StencilSpec, config: PersistentConfig) -> int:
    """Of shared memory, for what the chunks of all warps hold."""
    return -(-_chunks(spec, config) // config.warps) * config.warps * _CHUNK_BYTES


def _shared_bytes(spec: StencilSpec, config: PersistentConfig) -> int:
    """The first and last rows of every warp, of two steps, and the halo that is sent and received."""
    reach = reach_of(spec)
    rows = 2 * (config.warps + 1) * (max(reach.up, 1) + max(reach.down, 1))
    return rows * config.tile_cols * spec.accumulator.size + 2 * _halo_bytes(spec, config) + _chunk_bytes(spec, config)
