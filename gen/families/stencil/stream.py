"""Warps that sweep once over the cells: vectors of 16 bytes, all of a warp's rows on their way at once.

A lane has the same columns in every row of its warp, so rows are used again from registers, and neighbours come by
shuffles; the cells beside the warp's are loaded by its first and last lanes. Every lane writes, whole lines of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gen.arch import WARP, max_registers_per_thread
from gen.dtypes import U32, StoreModifier
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.expr import ONE, Expr, size
from gen.families.plans import Tiles, beyond_block
from gen.families.stencil.plans import numbers, stepping
from gen.families.stencil.sizes import edge_cases_of
from gen.families.stencil.spec import StencilSpec
from gen.families.stencil.text import Line, common
from gen.families.stencil.window import Reach, Rim, sides_of, window_lines

MOST_AHEAD = 16  # rows of a warp on their way at once
_ADDRESSES = 24  # registers beside cells
_MOST_TERMS = 4096  # of a lane, all written out: more, and the code leaves the instruction cache


@dataclass(frozen=True, kw_only=True)
class StreamConfig(Config):
    """How many rows a warp computes, and how warps lie in a block."""

    rows: int = tunable("u", (2, 4, 8, 16), base=4, help="rows of cells that a warp computes")
    warps_across: int = tunable("x", (1, 2, 4), base=2, help="warps of a block along a row")
    warps_down: int = tunable("y", (2, 4, 8), base=4, help="warps of a block down the rows")
    store_modifier: StoreModifier = tunable(
        "st",
        (StoreModifier.DEFAULT, StoreModifier.CS),
        base=StoreModifier.DEFAULT,
        off=StoreModifier.DEFAULT,
        help="cache operator of the stores",
    )

    def illegal(self) -> str | None:
        """A block has so many threads at most."""
        return beyond_block(self.warps_across * self.warps_down * WARP)

    def unsearched(self) -> str | None:
        """Warps of a large block wait for each other."""
        warps = self.warps_across * self.warps_down
        return f"blocks of up to 16 warps are tried, and this has {warps}" if warps > 16 else None


@dataclass(frozen=True)
class StreamText:
    """A kernel as the template prints it."""

    rows: int
    ahead: int
    warps_across: int
    warps_down: int
    store: str
    up: int
    down: int
    left: int
    right: int
    rim_up: int
    rim_down: int
    rim_left: int
    rim_right: int


class Stream(Algorithm[StencilSpec, StreamConfig]):
    """One step a launch, each row of a warp's cells loaded once."""

    name = "stream"
    template = "stencil/stream.cu.jinja"
    summary = (
        "Each warp loads all rows of its cells as vectors of 16 bytes; rows stay in registers, neighbours come by "
        "shuffles."
    )
    config = StreamConfig

    def unsearched(self, spec: StencilSpec, config: StreamConfig) -> str | None:
        """Registers for all rows, and code that is not too long."""
        needed, warps = registers(spec, config), config.warps_across * config.warps_down
        allowed = max_registers_per_thread(warps)
        if needed > allowed:
            return f"it needs about {needed} registers a thread, and blocks of {warps} warps leave {allowed}"
        if len(spec.taps) * config.rows * _cells(spec) > _MOST_TERMS:
            return "its code would be too long"
        return None

    def unsupported_extents(
        self, spec: StencilSpec, config: StreamConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """The tiles must fit in a grid."""
        return self.tiles(spec, config).unsupported_extents(extents)

    def edge_cases(self, spec: StencilSpec, config: StreamConfig) -> Iterator[Extents]:
        """Sizes that leave the last warps few of their cells, or all but few."""
        wide = 32 * _cells(spec)
        if len(spec.axes) == 1:
            return edge_cases_of(spec, Tiles(ONE, size("cols"), 1, wide * config.rows))
        return edge_cases_of(spec, Tiles(size("rows"), size("cols"), config.rows, wide))

    def inputs(self, spec: StencilSpec, config: StreamConfig) -> Mapping[str, object]:
        """All that the template reads."""
        reach, rim = Reach.of(spec), Rim.of(spec)
        shared = common(spec)
        window = sides_of(spec, reach)
        loaded = [  # row j is row j - output of the window of each output
            max((window[j - output] for output in range(config.rows) if 0 <= j - output < reach.high), default=0)
            for j in range(config.rows + reach.high - 1)
        ]
        text = StreamText(
            rows=config.rows,
            ahead=_ahead(spec, config),
            warps_across=config.warps_across,
            warps_down=config.warps_down,
            store=config.store_modifier.intrinsic,
            up=reach.up,
            down=reach.down,
            left=reach.left,
            right=reach.right,
            rim_up=rim.up,
            rim_down=rim.down,
            rim_left=rim.left,
            rim_right=rim.right,
        )
        # What is loaded outside and never looked at lies in the nearest cell.
        safe = ["nearest" if each in ("constant", "frozen") else each for each in spec.boundaries]
        mapped = dict.fromkeys(safe if len(spec.axes) > 1 else spec.boundaries)
        names = (
            "element", "number", "fma", "zero", "cval", "axes", "rows_outside", "cols_outside", "frozen",
            "copy_threads",
        )  # fmt: skip
        return {
            **{name: shared[name] for name in names},
            "mapped": tuple(Line(boundary) for boundary in mapped),
            "k": text,
            "lines": window_lines(spec, reach),
            "sides": tuple(Line(str(side)) for side in loaded),
        }

    def tiles(self, spec: StencilSpec, config: StreamConfig) -> Tiles:
        """Cells of a block."""
        wide = 32 * _cells(spec) * config.warps_across
        if len(spec.axes) == 1:
            return Tiles(ONE, size("cols"), 1, wide * config.warps_down * config.rows)
        return Tiles(size("rows"), size("cols"), config.warps_down * config.rows, wide)

    def plan(self, spec: StencilSpec, config: StreamConfig) -> Plan:
        """One launch a step."""
        tiles = self.tiles(spec, config)
        across = ((U32, tiles.across),) if len(spec.axes) > 1 else ()

        def sweep(source: str, target: str, in_pitch: Expr) -> Launch:
            return Launch(
                grid=(tiles.count, ONE, ONE),
                block=(32 * config.warps_across * config.warps_down, 1, 1),
                arguments=(source, target, *numbers(spec, in_pitch), *across),
                across=tiles.across,
            )

        return stepping(spec, sweep)

    def bytes_in_flight(self, spec: StencilSpec, config: StreamConfig) -> int:
        """The rows of a lane that are on their way."""
        return 16 * _ahead(spec, config)


def registers(spec: StencilSpec, config: StreamConfig) -> int:
    """How many a thread needs at most: rows on their way with what lies beside them, one window, addresses."""
    reach, words = Reach.of(spec), spec.accumulator.size // 4
    sides = sides_of(spec, reach)
    # From where it is loaded until it is the first row of the window that needs them, a row keeps its neighbours.
    widened = reach.high - next((y for y, side in enumerate(sides) if side), reach.high)
    window = (reach.high * _cells(spec) + widened * 2 * reach.side) * words
    return _ADDRESSES + _ahead(spec, config) * (4 + reach.side * words) + window


def _ahead(spec: StencilSpec, config: StreamConfig) -> int:
    return min(MOST_AHEAD, config.rows + Reach.of(spec).high - 1)


def _cells(spec: StencilSpec) -> int:
    return 16 // spec.dtype.size
