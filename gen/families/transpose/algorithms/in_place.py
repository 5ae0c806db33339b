"""Square matrices in place: a tile and the one opposite change places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from typing_extensions import override

from gen.arch import REGISTERS_PER_BLOCK
from gen.dtypes import I64, U32, LoadModifier
from gen.families.base import Extents, Launch, Limits, Plan
from gen.families.config import Config, load_modifier, tunable
from gen.families.expr import ONE, Expr, constant, size
from gen.families.transpose.algorithms.common import MATRICES, StagedAlgorithm
from gen.families.transpose.spec import TransposeSpec

_OTHER_REGISTERS = 32  # about so many of a thread, beside its two squares


@dataclass(frozen=True, kw_only=True)
class SwapTileConfig(Config):
    """How `swap_tile` cuts and moves its tiles."""

    vec_bytes: int = tunable("v", (1, 2, 4, 8, 16), base=16, help="bytes per vector load and store")
    lanes: int = tunable("x", (8, 16, 32), base=16, help="width and height of a tile, in vectors")
    strips: int = tunable(
        "s", (1, 2, 4, 8), base=1, help="strips of a tile, moved one after another; more: smaller blocks"
    )
    load_modifier: LoadModifier = load_modifier(LoadModifier.DEFAULT, LoadModifier.CS)

    def unsearched(self) -> str | None:
        """A block has a warp at least."""
        threads = self.lanes * self.lanes // self.strips
        return f"a block has {threads} threads; tuning tries 32 and more" if threads < 32 else None


class SwapTile(StagedAlgorithm[SwapTileConfig]):
    """Two tiles of a block, which change places."""

    name = "swap_tile"
    takes = TransposeSpec
    template = "transpose/swap_tile.cu.jinja"
    summary = (
        "A block reads a tile above the diagonal and the opposite one below it, or a tile on the diagonal, stages them "
        "in shared memory, and writes the transpose of each to the place of the other. No other block accesses these "
        "tiles."
    )
    config = SwapTileConfig

    def illegal(self, spec: TransposeSpec, config: SwapTileConfig) -> str | None:
        """It works in place; a vector is an element, or words that hold several."""
        if not spec.in_place:
            return "it works in place, and the spec has a separate output array"
        if config.vec_bytes < spec.dtype.size or (config.vec_bytes > spec.dtype.size and config.vec_bytes < 4):
            return f"vec_bytes {config.vec_bytes} is neither one {spec.dtype.name} nor whole 4-byte words"
        return None

    def unsearched(self, spec: TransposeSpec, config: SwapTileConfig) -> str | None:
        """Two squares of each thread fit in registers."""
        square = 2 * self.elements(spec, config) * config.vec_bytes // 4
        if (square + _OTHER_REGISTERS) * config.lanes * config.lanes // config.strips > REGISTERS_PER_BLOCK:
            threads = config.lanes * config.lanes // config.strips
            return f"{threads} threads that hold {square} words each need too many registers"
        return None

    @override
    def edge_cases(self, spec: TransposeSpec, config: SwapTileConfig) -> Iterator[Extents]:
        tile = config.lanes * self.elements(spec, config)
        (data,) = spec.operands
        *others, rows = dict.fromkeys(str(axis) for axis in data.axes)
        for side, many, pitch in ((tile + 1, 1, 16), (2 * tile - 1, 1, 16), (2 * tile, 2, 16), (tile + 2, 1, 1)):
            yield {
                **dict.fromkeys(others, 1),
                **dict.fromkeys(others[-1:], many),
                rows: side,
                data.pitch: side + -side % pitch,
            }

    def slow_path_reason(
        self, spec: TransposeSpec, config: SwapTileConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """Rows must begin at whole vectors."""
        if alignment < config.vec_bytes:
            return f"the address is a multiple of {alignment} bytes, and its vectors have {config.vec_bytes}"
        per = self.elements(spec, config)
        return f"pitch is {extents['pitch']}, no multiple of {per}" if extents["pitch"] % per else None

    def elements(self, spec: TransposeSpec, config: SwapTileConfig) -> int:
        """Of a vector."""
        return config.vec_bytes // spec.dtype.size

    @override
    def staged_bytes(self, spec: TransposeSpec, config: SwapTileConfig) -> int:
        padding = 0 if config.vec_bytes > spec.dtype.size else max(4 // spec.dtype.size, 1)
        return 2 * config.lanes * self.elements(spec, config) * (config.lanes + padding) * config.vec_bytes

    def side(self, spec: TransposeSpec, config: SwapTileConfig) -> Expr:
        """Rows of tiles."""
        return size("rows").ceil_div(config.lanes * self.elements(spec, config))

    def pairs(self, spec: TransposeSpec, config: SwapTileConfig) -> Expr:
        """Tiles on the diagonal and above it."""
        side = self.side(spec, config)
        return side * (side + 1) // 2

    @override
    def plan(self, spec: TransposeSpec, config: SwapTileConfig) -> Plan:
        pairs = self.pairs(spec, config)
        launch = Launch(
            grid=(pairs * size(MATRICES), ONE, ONE),
            block=(config.lanes * config.lanes // config.strips, 1, 1),
            arguments=(
                "data", (I64, size("rows")), (I64, size("pitch")), (U32, self.side(spec, config)), (U32, pairs),
            ),
            shared_bytes=constant(self.dynamic_bytes(spec, config)),
        )  # fmt: skip
        return Plan((launch,))

    def bytes_in_flight(self, spec: TransposeSpec, config: SwapTileConfig) -> int:
        """The squares of a thread in both tiles."""
        return 2 * config.strips * self.elements(spec, config) * config.vec_bytes
