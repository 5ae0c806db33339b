"""Warps that stream down their columns: every row passes through one level a fused step, all in registers.

A warp owns whole columns and needs its neighbours' cells by shuffles alone: no shared memory, no barrier. What the
steps use up on each side, neighbouring warps compute too. Cells outside the array are put in place at every level, from
the cells inside, so a fused step computes what a single one does, to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gen.dtypes import F64, U32
from gen.families.base import MAX_GRID_X, Algorithm, Extents, Launch, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.expr import ONE, Expr, size
from gen.families.stencil.plans import COPY_THREADS, numbers, stepping
from gen.families.stencil.spec import StencilSpec
from gen.families.stencil.text import Line, literal, weight_lines

REGISTERS_PER_SM = 65536
MOST_REGISTERS = 255
MOST_EXTENT = 2**31 - 2**20  # rows and columns are counted in 32 bits
_UNFOLDED = 72  # levels of a round that are written out: more, and the loop leaves the instruction cache
END_STRIPS = 4  # at the ends of the rows a strip takes up to four times as long
_ADDRESSES = 16  # registers beside cells


@dataclass(frozen=True)
class Reach:
    """How far the weights that are not 0 reach; at a mirror both ways alike, since what is mirrored must be held."""

    up: int
    down: int
    left: int
    right: int

    @classmethod
    def of(cls, spec: StencilSpec) -> Reach:
        """That of a spec of two axes."""
        rows = [offset[0] for offset, _ in spec.taps] or [0]
        cols = [offset[1] for offset, _ in spec.taps] or [0]
        up, down = max(0, -min(rows)), max(0, *rows)
        if spec.boundaries[0] in ("reflect", "mirror"):
            up = down = max(up, down)
        return cls(up, down, max(0, -min(cols)), max(0, *cols))

    @property
    def high(self) -> int:
        """Rows of a window."""
        return self.up + self.down + 1

    @property
    def side(self) -> int:
        """Neighbours on each side."""
        return max(self.left, self.right)


@dataclass(frozen=True, kw_only=True)
class PipelineConfig(Config):
    """How many columns a warp has, and how many warps fit on a multiprocessor."""

    vectors: int = tunable("v", (1, 2), base=1, help="vectors of 16 bytes next to each other in a lane")
    warps_per_sm: int = tunable("r", (8, 12, 16, 24), base=8, help="warps that registers must suffice for")
    waves: int = tunable("n", (1, 2), base=2, help="blocks that a multiprocessor gets, over those it holds")

    @property
    def fused(self) -> int:
        """Steps of a launch."""
        return 1

    @property
    def rows_ahead(self) -> int:
        """Rows on their way to shared memory."""
        return 4

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return 1


@dataclass(frozen=True, kw_only=True)
class StreamConfig(PipelineConfig):
    """One step a launch."""

    ahead: int = tunable("a", (4, 8), base=4, help="rows on their way to shared memory")

    @property
    def rows_ahead(self) -> int:
        """Rows on their way to shared memory."""
        return self.ahead

    @property
    def warps(self) -> int:
        """Warps of a block: neighbours, so that they find each other's columns in the cache."""
        return 4


@dataclass(frozen=True, kw_only=True)
class TemporalConfig(PipelineConfig):
    """Several steps a launch; blocks of one warp, so that multiprocessors can be filled evenly."""

    steps: int = tunable("t", (2, 4, 6, 8, 12, 16), base=4, help="steps that a launch fuses")

    @property
    def fused(self) -> int:
        """Steps of a launch."""
        return self.steps


@dataclass(frozen=True)
class PipelineText:
    """A kernel as the template prints it."""

    element: str
    number: str
    fma: str
    zero: str
    cval: str
    steps: int
    vectors: int
    ahead: int
    warps: int
    blocks_per_sm: int
    up: int
    down: int
    left: int
    right: int
    rim_up: int
    rim_down: int
    rim_left: int
    rim_right: int
    end_strips: int
    rows_outside: str
    cols_outside: str
    frozen: bool
    copy_threads: int


class Pipeline(Algorithm[StencilSpec, PipelineConfig]):
    """What both kinds share."""

    def refuses(self, spec: StencilSpec, config: PipelineConfig) -> str | None:
        """Two axes; a warp wider than what its steps use up; registers for all rows that the levels hold."""
        if len(spec.axes) != 2:
            return "it streams rows: a stencil of one axis has none"
        reach, cells = Reach.of(spec), _cells(spec, config)
        left, right = (_whole(config.fused * side, cells) for side in (reach.left, reach.right))
        if 2 * (left + right) > 32 * cells:
            return f"{config.fused} steps use up {left + right} of the {32 * cells} columns of a warp"
        if config.fused > 1 and config.fused * reach.high > _UNFOLDED:
            return "a round of its loop would be too long"
        needed, allowed = registers(spec, config), most_registers(config)
        if needed > allowed:
            return f"it needs about {needed} registers a thread, and {config.warps_per_sm} warps leave {allowed}"
        return None

    def infeasible(self, spec: StencilSpec, config: PipelineConfig, limits: Limits) -> str | None:
        """It copies to shared memory while it computes."""
        if int(limits.arch.removeprefix("sm_")) < 80:
            return f"{limits.arch} has no asynchronous copies"
        return None

    def uncovered(self, spec: StencilSpec, config: PipelineConfig, extents: Extents, limits: Limits) -> str | None:
        """Sizes must fit 32 bits, and a mirror image lie inside."""
        reach = Reach.of(spec)
        for axis, boundary, far in zip(spec.axes, spec.boundaries, (reach.up, reach.side), strict=True):
            least = far + (boundary == "mirror") if boundary in ("reflect", "mirror") else 0
            if 0 < extents[axis] < least:
                return f"{extents[axis]} {axis} are fewer than the {least} that are mirrored at their ends"
            if extents[axis] > MOST_EXTENT:
                return f"it counts {axis} in 32 bits"
        strips, across = self._strips(spec, config)
        count = blocks_of(strips, across).at({**extents, **limits.sizes()})
        return f"it takes {count} blocks; a grid has at most {MAX_GRID_X}" if count > MAX_GRID_X else None

    def inputs(self, spec: StencilSpec, config: PipelineConfig) -> Mapping[str, object]:
        """All that the template reads."""
        reach = Reach.of(spec)
        rim = [
            (before, after) if boundary == "frozen" else (0, 0)
            for boundary, before, after in zip(spec.boundaries, spec.before, spec.after, strict=True)
        ]
        text = PipelineText(
            element=spec.dtype.cuda,
            number=spec.accumulator.cuda,
            fma="fma" if spec.accumulator == F64 else "fmaf",
            zero=literal(0.0, spec.accumulator),
            cval=literal(spec.cval, spec.accumulator),
            steps=config.fused,
            vectors=config.vectors,
            ahead=config.rows_ahead,
            warps=config.warps,
            blocks_per_sm=config.warps_per_sm // config.warps,
            up=reach.up,
            down=reach.down,
            left=reach.left,
            right=reach.right,
            rim_up=rim[0][0],
            rim_down=rim[0][1],
            rim_left=rim[1][0],
            rim_right=rim[1][1],
            end_strips=END_STRIPS,
            rows_outside=spec.boundaries[0],
            cols_outside=spec.boundaries[1],
            frozen="frozen" in spec.boundaries,
            copy_threads=COPY_THREADS,
        )
        weights = dict(spec.taps)
        window = [
            [weights.get((y, x), 0.0) for x in range(-reach.left, reach.right + 1)]
            for y in range(-reach.up, reach.down + 1)
        ]
        sides = [max((abs(x) for (row, x) in weights if row == y), default=0) for y in range(-reach.up, reach.down + 1)]
        return {
            "kernels": (text,),
            "lines": weight_lines(window, spec.accumulator),
            "sides": tuple(Line(str(side)) for side in sides),
        }

    def plan(self, spec: StencilSpec, config: PipelineConfig) -> Plan:
        """Launches of all fused steps, and one for what is left."""
        strips, across = self._strips(spec, config)

        def sweep(source: str, target: str, in_pitch: Expr) -> Launch:
            return Launch(
                grid=(blocks_of(strips, across), ONE, ONE),
                block=(32 * config.warps, 1, 1),
                arguments=(source, target, *numbers(spec, in_pitch), (U32, strips), (U32, across)),
            )

        def rest(source: str, target: str, in_pitch: Expr, steps: Expr) -> Launch:
            whole = sweep(source, target, in_pitch)
            return Launch(whole.grid, whole.block, (*whole.arguments, (U32, steps)), entry="_rest")

        return stepping(spec, sweep, fused=config.fused, rest=rest if config.fused > 1 else None)

    def roundings(self, spec: StencilSpec, config: PipelineConfig, extents: Extents, limits: Limits) -> int:
        """One fused multiply-add for each weight."""
        return max(len(spec.taps), 1)

    def bytes_in_flight(self, spec: StencilSpec, config: PipelineConfig) -> int:
        """The rows loaded ahead."""
        return 16 * config.vectors * config.rows_ahead

    def _strips(self, spec: StencilSpec, config: PipelineConfig) -> tuple[Expr, Expr]:
        """Strips of rows, and blocks across.

        As many strips as fill the device so many times over, each long enough that what its ends use up stays small.
        """
        reach, cells = Reach.of(spec), _cells(spec, config)
        used_up = _whole(config.fused * reach.left, cells) + _whole(config.fused * reach.right, cells)
        across = size("cols").ceil_div((32 * cells - used_up) * config.warps).called("blocks_across")
        resident = size("sm_count") * (config.warps_per_sm // config.warps * config.waves)
        least = max(config.fused * (reach.up + reach.down), 8)
        strips = (resident // across.at_least(1)).at_most(size("rows") // least).at_least(1)
        return strips.at_most(size("rows")).called("strips"), across


class Stream(Pipeline):
    """One step."""

    name = "stream"
    template = "stencil/stream.cu.jinja"
    summary = "Each warp streams down its columns; rows stay in registers, neighbours come by shuffles."
    config = StreamConfig


class Temporal(Pipeline):
    """Several steps."""

    name = "temporal"
    template = "stencil/temporal.cu.jinja"
    summary = (
        "Each warp streams down its columns, every row through several steps; rows stay in registers, neighbours "
        "come by shuffles."
    )
    config = TemporalConfig


def blocks_of(strips: Expr, across: Expr) -> Expr:
    """Blocks of a grid: those at the two ends of the rows have shorter strips, and more of them."""
    return strips * (across + across.at_most(2) * (END_STRIPS - 1))


def registers(spec: StencilSpec, config: PipelineConfig) -> int:
    """How many a thread needs, by a rule fitted to what NVRTC 13.0 used for sm_90 without a spill.

    Those of the rows that levels hold and as much again by three eighths, where the compiler works ahead; seven times a
    lane's cells of one row; addresses and counters.
    """
    reach, words = Reach.of(spec), spec.accumulator.size // 4
    lane = _cells(spec, config) * words
    held = config.fused * (reach.high - 1) * lane
    return _ADDRESSES + 7 * lane + held * 11 // 8 + 2 * max(reach.side - 1, 0) * words


def most_registers(config: PipelineConfig) -> int:
    """What a thread may have if so many warps are to fit; eight a thread at a time."""
    return min(REGISTERS_PER_SM // (32 * config.warps_per_sm) // 8 * 8, MOST_REGISTERS)


def _cells(spec: StencilSpec, config: PipelineConfig) -> int:
    return config.vectors * 16 // spec.dtype.size


def _whole(count: int, of: int) -> int:
    return -(-count // of) * of
