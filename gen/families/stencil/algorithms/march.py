"""Blocks that march through planes: every cell is loaded once, by copies that are on their way while others are used.

A plane is in shared memory while the block computes with it. It adds its terms to the sums of all planes whose weights
reach it, which stay in registers, so the terms of a cell come in the order of the weights, and each plane is looked at
once. Down the rows cells come from shared memory, along them from the next lanes by shuffles; there is one barrier a
plane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from typing_extensions import override

from gen.arch import WARP, max_registers_per_thread
from gen.dtypes import StoreModifier
from gen.families.base import STATIC_SHARED_BYTES, Extents, Limits, Plan
from gen.families.config import Config, store_modifier, tunable
from gen.families.expr import size
from gen.families.plans import Tiles
from gen.families.stencil.algorithms.common import (
    VECTOR_BYTES,
    StencilAlgorithm,
    beyond_axes,
    cells_of_vector,
    neighbours_of_loaded_rows,
    reach_of,
    single_steps,
    too_small_for_warps,
)
from gen.families.stencil.shapes import edge_cases_of
from gen.families.stencil.spec import StencilSpec

_OTHER_REGISTERS = 48  # beside cells and sums
_MAX_TERMS_OF_LANE = 2048  # of a plane, all written out: more, and the loop leaves the instruction cache


@dataclass(frozen=True, kw_only=True)
class MarchConfig(Config):
    """How large a block's part of a plane is, how many planes it computes, how many are on their way."""

    warps: int = tunable("w", (4, 8), base=8, help="warps of a block, down the rows")
    rows: int = tunable("u", (1, 2, 4), base=2, help="rows of cells that a warp computes")
    planes: int = tunable("z", (16, 64, 256), base=64, help="planes that a block computes, one after the other")
    ring: int = tunable("s", (2, 3, 4), base=3, help="planes in shared memory")
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)


class March(StencilAlgorithm[MarchConfig]):
    """Computes one time step in a launch; a block loads each plane of its cells once."""

    name = "march"
    template = "stencil/march.cu.jinja"
    summary = (
        "Each block marches through planes, of which several are on their way to shared memory; the sums of all planes "
        "that one reaches stay in registers."
    )
    config = MarchConfig

    def illegal(self, spec: StencilSpec, config: MarchConfig) -> str | None:
        """The spec must have three axes, and a ring of planes fit in static shared memory."""
        if found := beyond_axes(spec, 3):
            return found
        reach, pads = reach_of(spec), 2 * _pad(spec)
        rows = config.warps * config.rows + reach.high - 1
        needed = config.ring * rows * (WARP + pads) * VECTOR_BYTES
        if needed > STATIC_SHARED_BYTES:
            return f"its planes take {needed} bytes of shared memory; there are {STATIC_SHARED_BYTES}"
        return None

    def unsearched(self, spec: StencilSpec, config: MarchConfig) -> str | None:
        """Registers must suffice for all sums, and the code not be too long."""
        needed, allowed = registers(spec, config), max_registers_per_thread(config.warps)
        if needed > allowed:
            return f"it needs about {needed} registers a thread, and blocks of {config.warps} warps leave {allowed}"
        if len(spec.taps) * config.rows * cells_of_vector(spec) > _MAX_TERMS_OF_LANE:
            return "its code would be too long"
        return None

    def infeasible(self, spec: StencilSpec, config: MarchConfig, limits: Limits) -> str | None:
        """It needs asynchronous copies to shared memory."""
        if not limits.has_asynchronous_copies:
            return f"{limits.arch} has no asynchronous copies"
        return None

    def slow_path_reason(self, spec: StencilSpec, config: MarchConfig, extents: Extents, alignment: int) -> str | None:
        """Its warps need as many cells as those of `stream`, and its blocks planes to march through."""
        if (planes := extents["planes"]) < reach_of(spec).deep:
            return f"{planes} planes are few: blocks bring {reach_of(spec).deep} for each cell"
        return too_small_for_warps(spec, extents)

    @override
    def edge_cases(self, spec: StencilSpec, config: MarchConfig) -> Iterator[Extents]:
        return edge_cases_of(spec, _tiles(spec, config), config.planes)

    def inputs(self, spec: StencilSpec, config: MarchConfig) -> Mapping[str, object]:
        """How many neighbours are read of every row, and vectors beside a block's cells."""
        return {
            "neighbours": neighbours_of_loaded_rows(spec, reach_of(spec), config.rows),
            "pad_left": _pad(spec),
            "pad_right": _pad(spec),
        }

    @override
    def plan(self, spec: StencilSpec, config: MarchConfig) -> Plan:
        return single_steps(spec, _tiles(spec, config), (WARP * config.warps, 1, 1))

    def bytes_in_flight(self, spec: StencilSpec, config: MarchConfig) -> int:
        """A thread's share of the planes that are on their way to shared memory."""
        return VECTOR_BYTES * config.rows * (config.ring - 1)


def registers(spec: StencilSpec, config: MarchConfig) -> int:
    """How many a thread needs, by a rule that holds for what NVRTC 13.0 used for sm_90 without a spill.

    Those of the sums that are not finished, half of the rows of the plane, and addresses.
    """
    reach, words = reach_of(spec), spec.accumulator.size // 4
    cells = cells_of_vector(spec)
    held = (reach.deep - 1) * config.rows * cells
    window = (config.rows + reach.high - 1) * (cells + 2 * reach.side)
    return _OTHER_REGISTERS + (held + window // 2) * words


def _pad(spec: StencilSpec) -> int:
    """Vectors on each side of a block's cells that hold all neighbours."""
    return -(-reach_of(spec).side // cells_of_vector(spec))


def _tiles(spec: StencilSpec, config: MarchConfig) -> Tiles:
    """The cells of a block in each plane; those of so many planes are one block's."""
    rows, cols = config.warps * config.rows, WARP * cells_of_vector(spec)
    return Tiles(size("rows"), size("cols"), rows, cols, size("planes").ceil_div(config.planes))
