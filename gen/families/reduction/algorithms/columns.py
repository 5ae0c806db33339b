"""Columns: `columns` goes down strips of them, `stream` reads a few of many rows as one stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import gcd

from typing_extensions import override

from gen.dtypes import F32, I32, I64, U32, LoadModifier
from gen.families.base import STATIC_SHARED_BYTES, Extents, Limits, Plan, beyond_grid, with_limits
from gen.families.config import Config, choice, load_modifier, tunable
from gen.families.estimates import Demand, Least
from gen.families.expr import Expr, constant, made_once, size
from gen.families.plans import beyond_block
from gen.families.reduction.algorithms.common import (
    COMBINE_HELP,
    SHARED,
    Combine,
    ReductionAlgorithm,
    beyond_resident,
    combine_roundings,
    few_second_passes,
    halving_roundings,
    has_rows,
    holds_no_element,
    inverse,
    never_resident,
    not_resident,
    shared_plan,
)
from gen.families.reduction.algorithms.demands import columns_demand, columns_least, demand_of, handed_quarters
from gen.families.reduction.oracle import Share, chain, loads_of_thread, roundings, tree
from gen.families.reduction.shapes import Form, edges, form, lying, problem
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.state import state_of

MOST_STATE_BYTES = 128  # of a thread: more would not stay in registers
MOST_SHARED_BYTES = STATIC_SHARED_BYTES - 16


def no_shared_room(spec: ReductionSpec, vec_bytes: int, threads: int) -> str | None:
    """Why the states of all columns of a block find no room in static shared memory."""
    needed = vec_bytes // spec.dtype.size * state_of(spec).bytes * threads
    if needed > MOST_SHARED_BYTES:
        return f"the partial results of a block need {needed} bytes of shared memory; it has {MOST_SHARED_BYTES}"
    return None


def no_registers(spec: ReductionSpec, vec_bytes: int) -> str | None:
    """Why the states of a vector's columns leave registers; those of the narrowest vectors may."""
    own = vec_bytes // spec.dtype.size * state_of(spec).bytes
    if own > MOST_STATE_BYTES and vec_bytes > max(spec.dtype.size, 4):
        return f"the partial results of a thread take {own} bytes; registers hold at most {MOST_STATE_BYTES}"
    return None


@dataclass(frozen=True, kw_only=True)
class ColumnsConfig(Config):
    """How `columns` divides columns and rows between threads and blocks."""

    columns_x: int = tunable(
        "x", (16, 32, 64, 128), base=32, help="threads along a row (x), one vector of columns each"
    )
    rows_y: int = tunable("y", (1, 4, 8, 16, 32), base=8, help="threads per column, down the rows (y)")
    unroll: int = tunable("u", (2, 4, 8), base=4, help="vector loads in flight per thread")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes per vector load")
    blocks_per_sm: int = tunable(
        "bpm", (2, 4, 8), base=4, help="most blocks per multiprocessor; more split each strip further"
    )
    load_modifier: LoadModifier = load_modifier(LoadModifier.DEFAULT, LoadModifier.CS)
    combine: Combine = choice("", SHARED, help=COMBINE_HELP)

    def illegal(self) -> str | None:
        """Where one block waits for the others they fit on the device together."""
        threads = self.columns_x * self.rows_y
        return beyond_block(threads) or never_resident(self.combine, threads, self.blocks_per_sm)

    def unsearched(self) -> str | None:
        """Blocks are neither small nor thin, and few kinds of loads come before a second launch."""
        threads = self.columns_x * self.rows_y
        if threads < 128:
            return f"a block of {self.columns_x} x {self.rows_y} has only {threads} threads; tuning tries 128 and more"
        if self.columns_x == 128 and self.rows_y > 1:
            return "columns_x 128 is for few rows, and is tried with rows_y 1 alone"
        if threads == 1024 and self.columns_x > 32:
            return "blocks of 1024 threads are tried with columns_x 16 or 32: wider strips would be too few"
        if self.combine is Combine.SECOND_PASS and self.rows_y == 1:
            return "rows_y 1 is for few rows, which need no second launch"
        if self.combine is Combine.SECOND_PASS and threads == 1024:
            return "with 1024 threads per block each has 64 registers, too few for 8 loads of 16 bytes in flight"
        return few_second_passes(self.combine, self.unroll, self.vec_bytes, self.load_modifier)


class Columns(ReductionAlgorithm[ColumnsConfig]):
    """Strips of columns, their rows split between blocks."""

    name = "columns"
    template = "reduction/columns.cu.jinja"
    summary = (
        "A thread computes a vector of columns and goes down the rows. Where there are too few strips of columns for "
        "the device, several blocks share the rows of a strip, and the last of them, or a block of a second launch, "
        "combines their results in order."
    )
    config = ColumnsConfig

    def illegal(self, spec: ReductionSpec, config: ColumnsConfig) -> str | None:
        """There are columns; their states fit into shared memory."""
        if not has_rows(spec):
            return "a whole array has no columns"
        threads = config.columns_x * config.rows_y
        return holds_no_element(spec, config.vec_bytes) or no_shared_room(spec, config.vec_bytes, threads)

    def unsearched(self, spec: ReductionSpec, config: ColumnsConfig) -> str | None:
        """The states of a thread's columns stay in registers."""
        return no_registers(spec, config.vec_bytes)

    def infeasible(self, spec: ReductionSpec, config: ColumnsConfig, limits: Limits) -> str | None:
        """Where one block waits for the others they must fit on the device together."""
        return not_resident(config.combine, config.columns_x * config.rows_y, config.blocks_per_sm, limits)

    def unsupported_extents(
        self, spec: ReductionSpec, config: ColumnsConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Neighbouring columns."""
        if form(extents) is not Form.COLUMNS:
            return "it only reduces the columns of a matrix"
        return beyond_grid(self.blocks_of_plan(spec, config, extents, limits))

    def edge_cases(self, spec: ReductionSpec, config: ColumnsConfig) -> Iterator[Extents]:
        """Matrices of which the last strip has 1, 2, all but 1 and all of its columns, and the last tile some rows."""
        strip, tile = config.columns_x * (config.vec_bytes // spec.dtype.size), config.rows_y * config.unroll
        for inner, n in zip(edges(strip), (2 * tile, tile + 1, tile + 2, 2 * tile - 1), strict=True):
            yield lying(spec, 1, n, inner) if spec.axis else problem(spec, (2, inner), gap=1)

    @made_once
    def strips(self, spec: ReductionSpec, config: ColumnsConfig) -> Expr:
        """Strips of a matrix."""
        return size("inner").ceil_div(config.columns_x * (config.vec_bytes // spec.dtype.size))

    @made_once
    def splits(self, spec: ReductionSpec, config: ColumnsConfig) -> Expr:
        """Blocks that share the rows of a strip: as many as the device wants, and a round's rows for each."""
        strips = size("outer") * self.strips(spec, config)
        wanted = (size("multiprocessors") * config.blocks_per_sm) // strips.at_least(1)
        return wanted.at_most(size("n").ceil_div(config.rows_y * config.unroll)).at_least(1)

    @override
    def plan(self, spec: ReductionSpec, config: ColumnsConfig) -> Plan:
        strips, splits = self.strips(spec, config), self.splits(spec, config)
        n, inner = (I64, size("n")), (I64, size("inner"))
        most = size("multiprocessors") * config.blocks_per_sm  # blocks, where strips are shared at all
        return shared_plan(
            spec,
            config.combine,
            (config.columns_x, config.rows_y, 1),
            (
                n,
                inner,
                (I64, size("outer_pitch")),
                (I64, size("row_pitch")),
                (U32, strips),
                (U32, splits),
                inverse(strips),
                inverse(splits),
            ),
            splits=splits,
            states=most * (config.columns_x * (config.vec_bytes // spec.dtype.size)),
            groups=size("outer") * strips,
            tickets=most,
            second=(n, inner, (U32, strips)),
        )

    @override
    def roundings(self, spec: ReductionSpec, config: ColumnsConfig, extents: Extents, limits: Limits) -> int:
        n, threads = extents["n"], config.rows_y
        splits = self.splits(spec, config).at(with_limits(extents, limits))
        own, _ = loads_of_thread(n, config.unroll, threads, splits)
        share = Share(chain(own), chain(-(-own // config.unroll)), config.unroll)
        combined = combine_roundings(config.combine, splits, threads, tree)
        return roundings(spec, n, share, tree(min(threads, n)) + combined)

    @override
    def demand(
        self, spec: ReductionSpec, config: ColumnsConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        sizes, item = with_limits(extents, limits), spec.dtype.size
        pitches = gcd(extents["row_pitch"], extents["outer_pitch"]) * item
        state, threads, items = state_of(spec), config.columns_x * config.rows_y, config.vec_bytes // item
        words, large = items * state.bytes // U32.size, None
        if state.moments == F32.cuda and state.alone:
            large = (config.unroll + 4) * items + 40
        elif state.moments and words > 4:  # all registers that the template leaves a thread
            large = 6 * words + config.unroll * config.vec_bytes // U32.size + 36
        return columns_demand(
            spec, extents, (config.columns_x, config.rows_y), unroll=config.unroll, vec_bytes=config.vec_bytes,
            combine=config.combine, columns=extents["inner"], matrices=extents["outer"],
            strips=self.strips(spec, config).at(sizes), splits=self.splits(spec, config).at(sizes),
            aligned=gcd(pitches, alignment) % config.vec_bytes == 0,
            registers=large and min(large, limits.registers_per_multiprocessor // threads),
        )  # fmt: skip

    @override
    def least(self, spec: ReductionSpec, config: ColumnsConfig, limits: Limits) -> Least:
        sharing = limits.multiprocessors * config.blocks_per_sm
        return columns_least(spec, (config.columns_x, config.rows_y), config.unroll, config.vec_bytes, sharing)

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: ColumnsConfig) -> int:
        return config.unroll * config.vec_bytes


@dataclass(frozen=True, kw_only=True)
class StreamConfig(Config):
    """How `stream` divides the array between threads and blocks."""

    threads_per_block: int = tunable("tpb", (128, 256, 512), base=256, help="threads per block")
    unroll: int = tunable("u", (2, 4, 8), base=4, help="vector loads in flight per thread")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes per vector load")
    blocks_per_sm: int = tunable("bpm", (1, 2, 4, 8), base=4, help="most blocks per multiprocessor")
    load_modifier: LoadModifier = load_modifier(LoadModifier.DEFAULT, LoadModifier.CS)
    combine: Combine = choice("", (Combine.TICKET, Combine.FLAGS), help=COMBINE_HELP)

    def unsearched(self) -> str | None:
        """The blocks asked for fit on a multiprocessor together."""
        return beyond_resident(self.threads_per_block, self.blocks_per_sm)


class Stream(ReductionAlgorithm[StreamConfig]):
    """The whole matrix as a stream of vectors, whose items stay in their columns."""

    name = "stream"
    template = "reduction/stream.cu.jinja"
    summary = (
        "Blocks stride through the whole matrix by a multiple of its columns, so that every item of a thread's vector "
        "stays in one column, however few there are; the block that finishes last combines the partial results."
    )
    config = StreamConfig

    def illegal(self, spec: ReductionSpec, config: StreamConfig) -> str | None:
        """There are columns, of one matrix; their states fit into shared memory."""
        if spec.axis == ():
            return "no axis is reduced: a matrix has no columns to reduce"
        if not has_rows(spec):
            return "a whole array has no columns"
        return holds_no_element(spec, config.vec_bytes) or no_shared_room(
            spec, config.vec_bytes, config.threads_per_block
        )

    def unsearched(self, spec: ReductionSpec, config: StreamConfig) -> str | None:
        """The states of a thread's columns stay in registers."""
        return no_registers(spec, config.vec_bytes)

    def infeasible(self, spec: ReductionSpec, config: StreamConfig, limits: Limits) -> str | None:
        """Where one block waits for the others they must fit on the device together."""
        return not_resident(config.combine, config.threads_per_block, config.blocks_per_sm, limits)

    def unsupported_extents(
        self, spec: ReductionSpec, config: StreamConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """One matrix without gaps, of at most as many columns as a block has threads."""
        if form(extents) is not Form.COLUMNS or extents["outer"] != 1:
            return "it only reduces the columns of a single matrix"
        if extents["row_pitch"] != extents["inner"]:
            return "it supports only rows without gaps between them"
        if extents["inner"] > config.threads_per_block:
            return f"it supports at most {config.threads_per_block} columns"
        return None

    def edge_cases(self, spec: ReductionSpec, config: StreamConfig) -> Iterator[Extents]:
        """Columns from the fewest to the most, of which the last of a block's tiles has few rows, or all of them."""
        threads, items = config.threads_per_block, config.vec_bytes // spec.dtype.size
        for place, columns in enumerate((2, threads // 2, threads // 2 + 1, threads)):
            rows = threads // columns * config.unroll * items
            yield lying(spec, 1, edges(rows)[place], columns)

    @made_once
    def active(self, config: StreamConfig) -> Expr:
        """Threads that read: the largest multiple of the columns that a block has."""
        return constant(config.threads_per_block) // size("inner") * size("inner")

    @made_once
    def blocks(self, spec: ReductionSpec, config: StreamConfig) -> Expr:
        """One block for every `unroll` vectors a thread, up to `blocks_per_sm` a multiprocessor."""
        per_block = self.active(config) * (config.unroll * (config.vec_bytes // spec.dtype.size))
        most = size("multiprocessors") * config.blocks_per_sm
        return (size("n") * size("inner")).ceil_div(per_block).at_most(most).at_least(1)

    @override
    def plan(self, spec: ReductionSpec, config: StreamConfig) -> Plan:
        blocks = self.blocks(spec, config)
        block = (config.threads_per_block, 1, 1)
        numbers = ((I64, size("n")), (I32, size("inner")), (I32, self.active(config)))
        return shared_plan(spec, config.combine, block, numbers, splits=blocks, states=blocks * size("inner"))

    @override
    def roundings(self, spec: ReductionSpec, config: StreamConfig, extents: Extents, limits: Limits) -> int:
        sizes = with_limits(extents, limits)
        blocks, active, columns = (
            self.blocks(spec, config).at(sizes),
            self.active(config).at(sizes),
            extents["inner"],
        )
        n, items = extents["n"], config.vec_bytes // spec.dtype.size
        own, _ = loads_of_thread(n * columns // items, config.unroll, blocks * active)
        share = Share(chain(own), chain(-(-own // config.unroll)), config.unroll)
        ends = 2 * -(-(items - 1) // columns)  # of a column, before the first vector and behind the last
        teams = max(config.threads_per_block // columns, 1)
        combined = halving_roundings(active * items // columns, n) + ends
        combined += combine_roundings(config.combine, blocks, teams, partial(halving_roundings, teams))
        return roundings(spec, n, share, combined)

    @override
    def demand(
        self, spec: ReductionSpec, config: StreamConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        sizes = with_limits(extents, limits)
        blocks, active = self.blocks(spec, config).at(sizes), self.active(config).at(sizes)
        vectors = max(extents["n"] * extents["inner"] * spec.dtype.size / config.vec_bytes / (blocks * active), 0.01)
        items = config.vec_bytes // spec.dtype.size
        levels = (active * items // extents["inner"]).bit_length()
        return demand_of(
            spec, extents, blocks=blocks, threads_per_block=config.threads_per_block,
            busy=active / config.threads_per_block * min(vectors, 1.0), vectors=max(vectors, 1.0),
            at_once=config.unroll, vec_bytes=config.vec_bytes, more_rounds=1.0,
            more_instructions=levels * items * 10 + 60, combine=config.combine if blocks > 1 else None,
            handed=(blocks - 1) * extents["inner"] * handed_quarters(spec),
            shared_bytes=config.threads_per_block * items * state_of(spec).bytes,
        )  # fmt: skip

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: StreamConfig) -> int:
        return config.unroll * config.vec_bytes
