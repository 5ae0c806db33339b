"""Single time steps the plain ways: straight from global memory, or staged in shared memory.

`tiled` and `queued` are kernels of the literature: its stencil_1d and its kernel_2dfd.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

from typing_extensions import override

from gen.arch import WARP
from gen.dtypes import I32, I64, LoadModifier
from gen.families.base import STATIC_SHARED_BYTES, Extents, Limits, Plan
from gen.families.config import Config, choice, load_modifier, tunable
from gen.families.estimates import SECTOR_BYTES, Demand, Least, resident_blocks
from gen.families.expr import ONE, size
from gen.families.plans import Tiles, beyond_block
from gen.families.stencil.algorithms.common import (
    Coefficients,
    Sides,
    StencilAlgorithm,
    beyond_axes,
    image_of,
    reach_of,
    row_tables,
    single_steps,
    window_lines,
)
from gen.families.stencil.algorithms.demands import (
    LOAD,
    clocks_alone,
    computed_share,
    demand_of_steps,
    edge_share,
    least_of_steps,
    loads_of_rows,
    rows_of,
    work_of,
)
from gen.families.stencil.shapes import edge_cases_of
from gen.families.stencil.spec import StencilSpec

_MAX_UNROLLED_TERMS = 343  # of a cell, all written out: more take NVRTC long to compile
_MAX_INNER_TERMS = 64  # of a thread in three axes, to be written out twice: inside, and where places are folded
_PLACES_OF_32_BITS = 2**31  # those outside, of neighbours, counted too
_OTHER_INSTRUCTIONS = 15  # of a thread, before its first load and after its last
_LEAST_REGISTERS, _OTHER_REGISTERS, _MOST_REGISTERS = 32, 16, 96  # of a thread; beside those for places outside
_COPY_CLOCKS = 420.0  # of a frozen cell of a thread: each is stored before the next one is loaded
# Of a weight in a loop over planes: instructions for each row; clocks of a warp that is alone, times bits of a place.
_LOOPED_INSTRUCTIONS, _LOOPED_CLOCKS = 2.2, 1150.0
_CACHED_INSTRUCTIONS, _UNCACHED = 1300, 1.4  # that a first-level cache holds; how much longer others take
_OF_SHORT_ROW = 0.74  # lines that a request touches for each of its rows
_WEIGHTS_HELP = "memory of the weights: literals in the code, global or constant memory"


@dataclass(frozen=True, kw_only=True)
class NaiveConfig(Config):
    """How `naive` lays threads over the cells."""

    block_x: int = tunable("x", (2, 4, 8, 32, 64, 128), base=32, help="threads of a block along a row (x)")
    block_y: int = tunable("y", (2, 4, 8, 32), base=8, help="threads of a block down the rows (y)")
    unroll: int = tunable("u", (1, 2, 4), base=1, help="consecutive rows per thread")
    load_modifier: LoadModifier = load_modifier(LoadModifier.DEFAULT, LoadModifier.CG)
    coefficients: Coefficients = choice("w", tuple(Coefficients), help=_WEIGHTS_HELP)
    index_bits: int = choice("i", (64, 32), help="bits of element indices; 32: for small arrays only")

    def illegal(self) -> str | None:
        """A block can have at most 1024 threads."""
        return beyond_block(self.block_x * self.block_y)

    def unsearched(self) -> str | None:
        """Weights in memory and operators are for comparison: they are offered where everything else is plain."""
        plain = self.load_modifier is LoadModifier.DEFAULT
        narrow = self.block_x < WARP
        if self.index_bits == 32 and not (plain and self.coefficients is Coefficients.LITERAL):
            return "32-bit indices are tried with default loads and literal weights alone"
        if narrow != (self.block_y == WARP):
            return "block_y 32 is tried with block_x under 32, and only there"
        if self.block_x == 2 and self.unroll < 4:
            return "block_x 2 is for short rows, and is tried with unroll 4 alone"
        if narrow and not (plain and self.coefficients is Coefficients.LITERAL):
            return "block_x under 32 is tried with default loads and literal weights alone"
        if self.unroll > 1 and not plain:
            return "cache operators are tried with unroll 1 alone"
        if self.coefficients is not Coefficients.LITERAL and (self.unroll > 1 or self.block_y != 8 or not plain):
            return "weights in memory are tried with block_y 8, unroll 1 and default loads alone"
        return None


@dataclass(frozen=True, kw_only=True)
class TiledConfig(Config):
    """How large a tile is."""

    block_x: int = tunable("x", (32, 64, 128), base=32, help="threads of a block along a row (x); columns of a tile")
    block_y: int = tunable("y", (1, 4, 8), base=8, help="threads of a block down the rows (y)")
    unroll: int = tunable("u", (1, 4), base=1, help="cells per thread")
    coefficients: Coefficients = choice("w", tuple(Coefficients), help=_WEIGHTS_HELP)

    def unsearched(self) -> str | None:
        """Weights in memory are for comparison: they are offered where everything else is plain."""
        if self.coefficients is not Coefficients.LITERAL and (self.unroll > 1 or self.block_y == 4):
            return "weights in memory are tried with block_y 1 or 8, and unroll 1 alone"
        return None


@dataclass(frozen=True, kw_only=True)
class QueuedConfig(Config):
    """How wide and how high a block's cells are."""

    block_x: int = tunable("x", (32, 64, 128, 256), base=128, help="threads per block, along a row")
    rows: int = tunable("u", (16, 64, 256), base=64, help="rows that a block computes one after another")
    coefficients: Coefficients = choice("w", tuple(Coefficients), help=_WEIGHTS_HELP)

    def unsearched(self) -> str | None:
        """Weights in memory are for comparison: they are offered where everything else is plain."""
        if self.coefficients is not Coefficients.LITERAL and self.rows != 64:
            return "weights in memory are tried with rows 64 alone"
        return None


class Naive(StencilAlgorithm[NaiveConfig]):
    """Every cell reads its neighbours from global memory."""

    name = "naive"
    template = "stencil/naive.cu.jinja"
    summary = (
        "Every thread computes cells of one column, straight from global memory. A cell that several of them read is "
        "loaded once."
    )
    reassociates = True
    config = NaiveConfig

    def illegal(self, spec: StencilSpec, config: NaiveConfig) -> str | None:
        """A line gains nothing by narrow places."""
        if config.index_bits == 32 and len(spec.axes) == 1:
            return "32-bit indices are for two and three axes"
        if spec.reassociate and config.coefficients is not Coefficients.LITERAL:
            return "with reassociated terms the weights must be literals"
        return None

    def unsupported_extents(
        self, spec: StencilSpec, config: NaiveConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Places of 32 bits number all elements, and those that the last threads would have."""
        if config.index_bits == 32:
            reach = _window(spec)
            planes = extents.get("planes", 1) + reach.deep
            rows = extents["rows"] + config.block_y * config.unroll + reach.high
            pitch = max(extents["in_pitch"], extents["out_pitch"]) + config.block_x + reach.wide
            if planes * rows * pitch >= _PLACES_OF_32_BITS:
                return f"its 32-bit indices support arrays of fewer than {_PLACES_OF_32_BITS} elements"
        return super().unsupported_extents(spec, config, extents, limits)

    @override
    def edge_cases(self, spec: StencilSpec, config: NaiveConfig) -> Iterator[Extents]:
        return edge_cases_of(spec, _tiles(spec, config))

    def inputs(self, spec: StencilSpec, config: NaiveConfig) -> Mapping[str, object]:
        """All weights, with rows and columns of zeros; whether the terms of all planes are written out, and twice."""
        reach = _window(spec)
        return {
            "reach": reach,
            "lines": window_lines(spec, reach),
            "terms": row_tables(spec, reach),
            "unroll_planes": len(spec.taps) <= _MAX_UNROLLED_TERMS,
            "tests_inner": _tests_inner(spec, config),
        }

    @override
    def plan(self, spec: StencilSpec, config: NaiveConfig) -> Plan:
        block = (config.block_x, config.block_y, 1)
        return single_steps(
            spec,
            _tiles(spec, config),
            block,
            config.coefficients,
            by_images=False,
            index=I32 if config.index_bits == 32 else I64,
        )

    @override
    def demand(
        self, spec: StencilSpec, config: NaiveConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        """Threads at the ends of an axis, and of blocks that reach beyond them, fold the places they read."""
        known, axes, computed = _instructions(spec, config, limits), len(spec.axes), computed_share(spec, extents)
        at_ends = edge_share(extents["cols"], known.along)
        if axes > 1:
            at_ends += (1 - at_ends) * min(known.high / max(extents["rows"], 1), 1.0)
        if axes > 2:
            of_planes = min(known.beyond_planes / max(extents["planes"], 1), 1.0)
            at_ends = at_ends + (1 - at_ends) * of_planes if known.tests_inner else 1.0
        own, copied = known.loaded + at_ends * known.folded, _OTHER_INSTRUCTIONS + known.copied * (1 - computed)
        blocks, threads = _tiles(spec, config).count.at(extents), config.block_x * config.block_y
        busy = _busy_warps(spec, config, extents) / max(blocks * threads // WARP, 1)
        return demand_of_steps(
            spec, extents, limits, blocks=blocks, threads_per_block=threads,
            bytes_in_flight=spec.dtype.size * config.unroll, rounds=1,
            clocks=copied + (known.alone + at_ends * known.folded if computed > 0 else 0.0)
            + (_COPY_CLOCKS * config.unroll if computed < 1 else 0.0),
            instructions=busy * (copied + own * computed) + (1 - busy) * _OTHER_INSTRUCTIONS,
            written=_OTHER_INSTRUCTIONS + (known.written + at_ends * known.folded if computed > 0 else 0.0),
            registers=known.registers, moved_share=known.moved_share if extents["cols"] > config.block_x else 1.0,
        )  # fmt: skip

    @override
    def least(self, spec: StencilSpec, config: NaiveConfig, limits: Limits) -> Least:
        """Where all cells are frozen, all are copied."""
        known = _instructions(spec, config, limits)
        of_thread, written = known.loaded, known.written
        if any("frozen" in ends for ends in spec.ends):
            of_thread, written = min(of_thread, known.copied), 0.0
        threads = config.block_x * config.block_y
        instructions = _OTHER_INSTRUCTIONS + of_thread
        return least_of_steps(
            instructions / config.unroll, written + _OTHER_INSTRUCTIONS, threads=1 / config.unroll,
            resident=threads * resident_blocks(limits, threads, known.registers, 0),
        )  # fmt: skip

    def bytes_in_flight(self, spec: StencilSpec, config: NaiveConfig) -> int:
        """The cells of its rows: their neighbours are other threads' cells."""
        return config.unroll * spec.dtype.size


class Tiled(StencilAlgorithm[TiledConfig]):
    """A tile in shared memory with all that it reads around it."""

    name = "tiled"
    template = "stencil/tiled.cu.jinja"
    summary = "Each block copies its cells and those around them to shared memory, where its threads read them."
    config = TiledConfig
    by_images = True

    def illegal(self, spec: StencilSpec, config: TiledConfig) -> str | None:
        """The tile must fit in static shared memory."""
        spec = image_of(spec)
        if found := beyond_axes(spec, 1, 2):
            return found
        reach, tiles = reach_of(spec), _tiles(spec, config)
        cells = (tiles.tile_rows + reach.high - 1) * (tiles.tile_cols + reach.wide - 1)
        needed = cells * spec.accumulator.size
        if needed > STATIC_SHARED_BYTES:
            return f"its tile takes {needed} bytes of shared memory; there are {STATIC_SHARED_BYTES}"
        return None

    @override
    def edge_cases(self, spec: StencilSpec, config: TiledConfig) -> Iterator[Extents]:
        return edge_cases_of(spec, _tiles(image_of(spec), config))

    @override
    def plan(self, spec: StencilSpec, config: TiledConfig) -> Plan:
        return single_steps(
            spec, _tiles(image_of(spec), config), (config.block_x, config.block_y, 1), config.coefficients
        )

    def bytes_in_flight(self, spec: StencilSpec, config: TiledConfig) -> int:
        """The cells that a thread brings to shared memory."""
        return config.unroll * spec.dtype.size


class Queued(StencilAlgorithm[QueuedConfig]):
    """Columns of threads that go down the rows: a queue in registers, neighbours through shared memory."""

    name = "queued"
    template = "stencil/queued.cu.jinja"
    summary = (
        "Each block goes down the rows. A queue in registers holds the cells of a thread's own column, and cells of "
        "other columns are read from shared memory."
    )
    config = QueuedConfig
    by_images = True

    def illegal(self, spec: StencilSpec, config: QueuedConfig) -> str | None:
        """The spec must have two axes, and weights along the axes alone."""
        spec = image_of(spec)
        if found := beyond_axes(spec, 2):
            return found
        if any(row and col for (row, col), _ in spec.taps):
            return "a thread has no other columns than its own above and below: weights must lie along the axes"
        return None

    @override
    def edge_cases(self, spec: StencilSpec, config: QueuedConfig) -> Iterator[Extents]:
        return edge_cases_of(spec, _column(config))

    @override
    def plan(self, spec: StencilSpec, config: QueuedConfig) -> Plan:
        return single_steps(spec, _column(config), (config.block_x, 1, 1), config.coefficients)

    def bytes_in_flight(self, spec: StencilSpec, config: QueuedConfig) -> int:
        """The row that comes next."""
        return spec.dtype.size


@lru_cache(512)
def _window(spec: StencilSpec) -> Sides:
    """How far all weights reach, zeros too."""
    return Sides(spec.before, spec.after)


def written_terms(spec: StencilSpec) -> int:
    """Terms of a cell that `naive` writes out: all of them, or of very many a plane's, zeros too, in a loop."""
    taps = len(spec.taps)
    return taps if taps <= _MAX_UNROLLED_TERMS else prod(spec.shape[-2:])


@lru_cache(512)
def _tests_inner(spec: StencilSpec, config: NaiveConfig) -> bool:
    """Whether threads tell whether all that they read lies inside."""
    return len(spec.axes) == 2 or (len(spec.axes) == 3 and len(spec.taps) * config.unroll <= _MAX_INNER_TERMS)


class _Instructions(NamedTuple):
    """What is known of a variant of `naive` before its sizes, of instructions of a thread above all.

    Attributes:
        along: cells of a row that a block has.
        high: rows that lead a thread to an end of them.
        beyond_planes: planes that do.
        tests_inner: whether threads tell whether all that they read lies inside.
        loaded: with loads and stores, where all of it does.
        alone: clocks of a warp that is alone, for that.
        written: of the text, for that.
        folded: more where places are folded.
        copied: of a thread that copies.
        registers: of a thread, about.
        moved_share: bytes that move for each one of the cells, where a row has several blocks.
    """

    along: int
    high: int
    beyond_planes: int
    tests_inner: bool
    loaded: float
    alone: float
    written: float
    folded: int
    copied: float
    registers: int
    moved_share: float


@lru_cache(512)
def _instructions(spec: StencilSpec, config: NaiveConfig, limits: Limits) -> _Instructions:
    work, loads, unroll = work_of(spec, limits), loads_of_rows(spec, config.unroll), config.unroll
    # A request of a warp of several short rows touches as many lines; one of f64 always touches two.
    lines = max(_OF_SHORT_ROW * min(spec.dtype.size / 3, 1.0) * WARP / config.block_x, spec.dtype.size / 4, 1.0)
    places = work.reach.deep + work.reach.high + unroll + work.reach.wide
    registers = min(max(_OTHER_REGISTERS + places * config.index_bits // 32, _LEAST_REGISTERS), _MOST_REGISTERS)
    of_place, of_address, of_row = (4, 2, 2) if config.index_bits == 32 else (8, 5, 8)
    terms = work.terms * unroll
    issued = loads * (1 + work.converted) + terms * work.slots + work.weights + of_row * rows_of(spec, unroll)
    written = loads * (2 + work.converted) + terms
    if loads * (1 + work.converted) + terms > _CACHED_INSTRUCTIONS:
        issued *= _UNCACHED
    alone = clocks_alone(work, issued, loads, lines, registers)
    if len(spec.taps) > _MAX_UNROLLED_TERMS:  # a loop over planes, which looks at weights of zero too
        issued = _LOOPED_INSTRUCTIONS * unroll * prod(spec.shape)
        alone = _LOOPED_CLOCKS / config.index_bits * work.words * prod(spec.shape)
    return _Instructions(
        along=config.block_x * (1 if len(spec.axes) > 1 else config.block_y * unroll),
        high=unroll + work.reach.high,
        beyond_planes=work.reach.deep - 1,
        tests_inner=_tests_inner(spec, config),
        loaded=max(issued, LOAD * (loads + unroll) * lines),
        alone=alone,
        written=written,
        folded=places * of_place + loads * of_address,
        copied=2 * unroll * LOAD,
        registers=registers,
        moved_share=1 + SECTOR_BYTES / 4 / (config.block_x * spec.dtype.size),  # some are fetched by two blocks
    )


def _busy_warps(spec: StencilSpec, config: NaiveConfig, extents: Extents) -> int:
    """Warps of which any thread has a cell."""
    if len(spec.axes) == 1:
        return -(-extents["cols"] // (WARP * config.unroll))
    groups = extents.get("planes", 1) * -(-extents["rows"] // config.unroll)
    wide = min(config.block_x, WARP)
    return -(-groups * wide // WARP) * -(-extents["cols"] // wide)


@lru_cache(512)
def _tiles(spec: StencilSpec, config: NaiveConfig | TiledConfig) -> Tiles:
    """The cells of a block."""
    if len(spec.axes) == 1:
        return Tiles(ONE, size("cols"), 1, config.block_x * config.block_y * config.unroll)
    if len(spec.axes) == 3:  # groups of rows of all planes
        groups = size("planes") * size("rows").ceil_div(config.unroll)
        return Tiles(groups, size("cols"), config.block_y, config.block_x)
    return Tiles(size("rows"), size("cols"), config.block_y * config.unroll, config.block_x)


def _column(config: QueuedConfig) -> Tiles:
    """The cells of a block of `queued`."""
    return Tiles(size("rows"), size("cols"), config.rows, config.block_x)
