"""Blocks that stage cells in shared memory: a tile with all that it reads around it, or one row of a column of blocks.

The kernels of the literature: `tiled` is its stencil_1d, `queued` its kernel_2dfd.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gen.dtypes import U32
from gen.families.base import STATIC_SHARED_BYTES, Algorithm, Extents, Launch, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.expr import ONE, Expr, size
from gen.families.plans import Tiles
from gen.families.stencil.naive import weights_of
from gen.families.stencil.plans import numbers, stepping
from gen.families.stencil.sizes import edge_cases_of
from gen.families.stencil.spec import StencilSpec
from gen.families.stencil.text import Coefficients, Line, common
from gen.families.stencil.window import Reach, Rim, window_lines


@dataclass(frozen=True, kw_only=True)
class TiledConfig(Config):
    """How large a tile is."""

    block_x: int = tunable("x", (32, 64, 128), base=32, help="threads of a block along a row, and columns of a tile")
    block_y: int = tunable("y", (1, 4, 8), base=8, help="threads of a block down the rows")
    unroll: int = tunable("u", (1, 4), base=1, help="cells that each thread computes")
    coefficients: Coefficients = tunable(
        "w",
        tuple(Coefficients),
        base=Coefficients.LITERAL,
        off=Coefficients.LITERAL,
        help="where the kernel finds its weights",
    )

    def unsearched(self) -> str | None:
        """Weights in memory are for comparison: they are offered where everything else is plain."""
        if self.coefficients is not Coefficients.LITERAL and (self.unroll > 1 or self.block_y == 4):
            return "weights in memory go with 1 or 8 rows of threads, and unroll 1"
        return None


@dataclass(frozen=True, kw_only=True)
class QueuedConfig(Config):
    """How wide and how high a block's cells are."""

    block_x: int = tunable("x", (32, 64, 128, 256), base=128, help="threads of a block, next to each other")
    rows: int = tunable("u", (16, 64, 256), base=64, help="rows that a block goes down")
    coefficients: Coefficients = tunable(
        "w",
        tuple(Coefficients),
        base=Coefficients.LITERAL,
        off=Coefficients.LITERAL,
        help="where the kernel finds its weights",
    )

    def unsearched(self) -> str | None:
        """Weights in memory are for comparison: they are offered where everything else is plain."""
        if self.coefficients is not Coefficients.LITERAL and self.rows != 64:
            return "weights in memory go with 64 rows"
        return None


class Tiled(Algorithm[StencilSpec, TiledConfig]):
    """A tile in shared memory with all that it reads around it."""

    name = "tiled"
    template = "stencil/tiled.cu.jinja"
    summary = "Each block copies its cells and those around them to shared memory, where its threads read them."
    config = TiledConfig

    def illegal(self, spec: StencilSpec, config: TiledConfig) -> str | None:
        """Static shared memory."""
        reach = Reach.of(spec)
        across = config.block_x * (1 if len(spec.axes) > 1 else config.block_y * config.unroll)
        down = config.block_y * config.unroll if len(spec.axes) > 1 else 1
        needed = (down + reach.high - 1) * (across + reach.left + reach.right) * spec.accumulator.size
        if needed > STATIC_SHARED_BYTES:
            return f"its tile takes {needed} bytes of shared memory; there are {STATIC_SHARED_BYTES}"
        return None

    def unsupported_extents(
        self, spec: StencilSpec, config: TiledConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """The tiles must fit in a grid."""
        return self.tiles(spec, config).unsupported_extents(extents)

    def edge_cases(self, spec: StencilSpec, config: TiledConfig) -> Iterator[Extents]:
        """Sizes that leave the last tiles few of their cells, or all but few."""
        return edge_cases_of(spec, self.tiles(spec, config))

    def inputs(self, spec: StencilSpec, config: TiledConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            **_text(spec, config.coefficients),
            "block_x": config.block_x,
            "block_y": config.block_y,
            "unroll": config.unroll,
        }

    def tiles(self, spec: StencilSpec, config: TiledConfig) -> Tiles:
        """Cells of a block."""
        if len(spec.axes) == 1:
            return Tiles(ONE, size("cols"), 1, config.block_x * config.block_y * config.unroll)
        return Tiles(size("rows"), size("cols"), config.block_y * config.unroll, config.block_x)

    def plan(self, spec: StencilSpec, config: TiledConfig) -> Plan:
        """One launch a step."""
        return _plan(spec, config.coefficients, self.tiles(spec, config), (config.block_x, config.block_y, 1))

    def bytes_in_flight(self, spec: StencilSpec, config: TiledConfig) -> int:
        """The cells that a thread brings to shared memory."""
        return spec.dtype.size * config.unroll


class Queued(Algorithm[StencilSpec, QueuedConfig]):
    """Columns of threads that go down the rows: a queue in registers, neighbours through shared memory."""

    name = "queued"
    template = "stencil/queued.cu.jinja"
    summary = (
        "Each block goes down the rows: a thread's own column waits in a queue of registers, its neighbours' cells "
        "come through shared memory."
    )
    config = QueuedConfig

    def illegal(self, spec: StencilSpec, config: QueuedConfig) -> str | None:
        """Two axes, and weights along the axes alone."""
        if len(spec.axes) != 2:
            return "it goes down rows: a stencil of one axis has none"
        if any(row and col for (row, col), _ in spec.taps):
            return "a thread has no other columns than its own above and below: weights must lie along the axes"
        return None

    def unsupported_extents(
        self, spec: StencilSpec, config: QueuedConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """The tiles must fit in a grid."""
        return self.tiles(config).unsupported_extents(extents)

    def edge_cases(self, spec: StencilSpec, config: QueuedConfig) -> Iterator[Extents]:
        """Sizes that leave the last tiles few of their cells, or all but few."""
        return edge_cases_of(spec, self.tiles(config))

    def inputs(self, spec: StencilSpec, config: QueuedConfig) -> Mapping[str, object]:
        """All that the template reads."""
        text = _text(spec, config.coefficients)
        del text["axes"]
        return {**text, "block_x": config.block_x, "rows": config.rows}

    def tiles(self, config: QueuedConfig) -> Tiles:
        """Cells of a block."""
        return Tiles(size("rows"), size("cols"), config.rows, config.block_x)

    def plan(self, spec: StencilSpec, config: QueuedConfig) -> Plan:
        """One launch a step."""
        return _plan(spec, config.coefficients, self.tiles(config), (config.block_x, 1, 1))

    def bytes_in_flight(self, spec: StencilSpec, config: QueuedConfig) -> int:
        """The row that comes next."""
        return spec.dtype.size


def _text(spec: StencilSpec, coefficients: Coefficients) -> dict[str, object]:
    """What both templates read: the window without rows and columns of zeros, and rims that are frozen."""
    reach, rim = Reach.of(spec), Rim.of(spec)
    shared = common(spec)
    names = (
        "element", "number", "fma", "zero", "cval", "axes", "rows_outside", "cols_outside", "frozen", "copy_threads",
    )  # fmt: skip
    # What is loaded outside and never looked at lies in the nearest cell.
    safe = dict.fromkeys("nearest" if each == "frozen" else each for each in spec.boundaries if each != "constant")
    return {
        **{name: shared[name] for name in names},
        "mapped": tuple(Line(boundary) for boundary in safe),
        "lines": window_lines(spec, reach),
        "high": reach.high,
        "wide": reach.left + reach.right + 1,
        "up": reach.up,
        "left": reach.left,
        "rim": rim,
        "coefficients": coefficients.value,
    }


def _plan(spec: StencilSpec, coefficients: Coefficients, tiles: Tiles, block: tuple[int, int, int]) -> Plan:
    across = ((U32, tiles.across),) if len(spec.axes) > 1 else ()
    weights = weights_of(spec, coefficients)

    def sweep(source: str, target: str, in_pitch: Expr) -> Launch:
        return Launch(
            grid=(tiles.count, ONE, ONE),
            block=block,
            arguments=(source, target, *weights.arguments, *numbers(spec, in_pitch), *across),
            across=tiles.across,
        )

    return weights.before(stepping(spec, sweep))
