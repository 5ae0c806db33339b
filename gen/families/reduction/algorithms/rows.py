"""Results of one group of threads each: `rows`, `short_rows` of a thread each, and `single` of a whole small array.

They take no scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from math import gcd

from typing_extensions import override

from gen.arch import WARP
from gen.dtypes import I32, I64, LoadModifier
from gen.families.base import WIDEST, Extents, Launch, Limits, Plan, beyond_grid
from gen.families.config import Config, choice, load_modifier, tunable
from gen.families.estimates import Demand, Least
from gen.families.expr import ONE, Expr, made_once, size
from gen.families.reduction.algorithms.common import (
    ReductionAlgorithm,
    block_roundings,
    has_rows,
    holds_no_element,
    lane_roundings,
    outputs,
)
from gen.families.reduction.algorithms.demands import demand_of, least_of
from gen.families.reduction.oracle import Share, chain, loads_of_thread, roundings
from gen.families.reduction.shapes import MANY_ROWS, Form, edges, form, lying, rows_of
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.state import state_of

MOST_OF_THREAD = 4096
"""Elements of a row for each thread: more threads would be faster by far."""
MOST_OF_BLOCK = 2**20
"""Elements that `single` takes: one multiprocessor reads a small part of what all of them do."""


@dataclass(frozen=True, kw_only=True)
class RowsConfig(Config):
    """How `rows` divides rows between threads."""

    threads_per_block: int = tunable("tpb", (128, 256, 512), base=256, help="threads per block")
    group: int = tunable("g", (1, 2, 4, 8, 16, 32, 128, 256, 512), base=8, help="threads per row")
    rows_at_once: int = choice("r", (1, 2, 4), help="rows that these threads read at once")
    unroll: int = tunable("u", (1, 2, 4, 8), base=2, help="vector loads of a row in flight per thread")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes per vector load")
    load_modifier: LoadModifier = load_modifier(LoadModifier.DEFAULT, LoadModifier.CS)

    def illegal(self) -> str | None:
        """More threads than a warp's are the block's."""
        if self.group > WARP and (self.group != self.threads_per_block or self.rows_at_once > 1):
            return f"{self.group} threads per row must be the whole block, which reads one row at a time"
        return None

    def unsearched(self) -> str | None:
        """What is loaded stays in registers."""
        loads = self.rows_at_once * self.unroll
        return f"a thread would have {loads} loads in flight; registers hold at most 8" if loads > 8 else None


SEVERAL_ROWS_INSTRUCTIONS = 60
"""To choose between rows at once and one by one, which `short_rows` need not: where both read all that they need at
once it is faster by that or more (bench/estimates-small-reduction-h200.json)."""
LINE_BYTES, SHORT_RUN_SHARE = (
    128,
    1.12,
)  # of what memory moves in the same time where each request takes all of its lines


class Rows(ReductionAlgorithm[RowsConfig]):
    """Groups of threads, each with a row."""

    name = "rows"
    template = "reduction/rows.cu.jinja"
    summary = (
        "A thread, a part of a warp, a warp or a block reads each row with vector loads. Shuffles combine the results "
        "of lanes, and shared memory those of warps."
    )
    config = RowsConfig

    def illegal(self, spec: ReductionSpec, config: RowsConfig) -> str | None:
        """There are rows; a vector holds at least one element."""
        if not has_rows(spec):
            return "a reduction of the whole array has a single row"
        return holds_no_element(spec, config.vec_bytes)

    def unsupported_extents(
        self, spec: ReductionSpec, config: RowsConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Rows of neighbouring elements."""
        if form(extents) not in (Form.WHOLE, Form.ROWS):
            return "it supports only elements that are contiguous along the reduced axes"
        alone = config.group > WARP and extents.get("outer", 1) >= MANY_ROWS
        if extents["n"] > MOST_OF_THREAD * config.group and not alone:
            return f"it supports at most {MOST_OF_THREAD} elements of a row per thread"
        return beyond_grid(self.blocks(config).at(extents))

    def edge_cases(self, spec: ReductionSpec, config: RowsConfig) -> Iterator[Extents]:
        """Rows of which the last round has 1, 2, all but 1 and all elements; the last block as many rows."""
        items = config.vec_bytes // spec.dtype.size
        for n in edges(config.group * config.unroll * items):
            yield rows_of(spec, 2, n)
        for outer in edges(config.threads_per_block // config.group * config.rows_at_once):
            yield rows_of(spec, outer, items + 1)

    @made_once
    def blocks(self, config: RowsConfig) -> Expr:
        """One for as many rows as it has groups."""
        return size("outer").ceil_div(config.threads_per_block // config.group * config.rows_at_once)

    @override
    def plan(self, spec: ReductionSpec, config: RowsConfig) -> Plan:
        counted = ("n", "outer_pitch") if config.group > WARP else ("outer", "n", "outer_pitch")
        launch = Launch(
            grid=(self.blocks(config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("in", *outputs(spec), *((I64, size(name)) for name in counted)),
        )
        return Plan((launch,))

    @override
    def roundings(self, spec: ReductionSpec, config: RowsConfig, extents: Extents, limits: Limits) -> int:
        n = extents["n"]
        share = Share.of_tiles(spec, n, config.unroll, config.vec_bytes, config.group)
        if config.rows_at_once > 1:  # short rows are read without runs
            share = replace(share, merges=max(share.merges, config.unroll + config.vec_bytes // spec.dtype.size))
        return roundings(spec, n, share, block_roundings(min(config.group, n)))

    @override
    def demand(
        self, spec: ReductionSpec, config: RowsConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        size, items = spec.dtype.size, config.vec_bytes // spec.dtype.size
        vectors = max(-(-extents["n"] // items), 1)
        steps = gcd(extents["n"] * size, extents.get("outer_pitch", 0) * size, alignment, WIDEST)
        ends = steps % config.vec_bytes != 0
        # Before the first vector and after the last, one after another by each thread.
        alone = min(extents["n"], 2 * -(-(items - 1) // config.group)) * ends
        groups = -(-extents.get("outer", 1) // config.rows_at_once)
        # Lines of which a request takes a part, of rows that go on for several of them.
        short = (
            config.vec_bytes == WIDEST and config.group * WIDEST < LINE_BYTES and extents["n"] * size > 2 * LINE_BYTES
        )
        return demand_of(
            spec, extents, blocks=-(-groups * config.group // config.threads_per_block),
            threads_per_block=config.threads_per_block, busy=min(vectors / config.group, 1.0),
            vectors=max(vectors / config.group, 1.0) * config.rows_at_once,
            at_once=min(config.unroll, -(-vectors // config.group)) * config.rows_at_once, vec_bytes=config.vec_bytes,
            more_rounds=1.5 * ends,
            more_instructions=(12 * config.group.bit_length() + 20 * ends + 10 * alone) * config.rows_at_once
            + SEVERAL_ROWS_INSTRUCTIONS * (config.rows_at_once > 1),
            reduces=config.group > WARP, moved_share=SHORT_RUN_SHARE if short else 1.0,
        )  # fmt: skip

    @override
    def least(self, spec: ReductionSpec, config: RowsConfig, limits: Limits) -> Least:
        return least_of(
            spec, config.threads_per_block, config.vec_bytes,
            more_instructions=12 * config.group.bit_length() * config.rows_at_once, reduces=config.group > WARP,
            threads=config.group / config.rows_at_once,
            at_once=config.group * config.unroll * (config.vec_bytes // spec.dtype.size),
        )  # fmt: skip

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: RowsConfig) -> int:
        return config.rows_at_once * config.unroll * config.vec_bytes


MOST_OF_SHORT_ROW = 16
"""Elements of the longest rows that a thread reads whole."""
FEWER_OF_SHORT_ROWS = 50
"""Instructions that other kernels have before their first load and after their last, and `short_rows` has not."""


@dataclass(frozen=True, kw_only=True)
class ShortRowsConfig(Config):
    """How long rows are, and how `short_rows` divides them between threads."""

    length: int = tunable("n", tuple(range(1, MOST_OF_SHORT_ROW + 1)), base=4, help="elements per row")
    rows_at_once: int = tunable("r", (1, 2, 4, 8), base=4, help="rows that a thread reads at once")
    threads_per_block: int = tunable("tpb", (128, 256), base=256, help="threads per block")

    def unsearched(self) -> str | None:
        """What is loaded stays in registers."""
        loads = self.length * self.rows_at_once
        return f"a thread would hold {loads} elements; registers hold at most 32" if loads > 32 else None


class ShortRows(ReductionAlgorithm[ShortRowsConfig]):
    """A thread for each of a few rows, whose length the compiler knows."""

    name = "short_rows"
    template = "reduction/short_rows.cu.jinja"
    summary = (
        "For rows of one length, known when the kernel is compiled: each thread reads whole rows, by vectors where "
        "these fill a row, and neighbouring threads read neighbouring rows. No results are combined between threads."
    )
    config = ShortRowsConfig

    def illegal(self, spec: ReductionSpec, config: ShortRowsConfig) -> str | None:
        """There are rows; of one element where no axis is reduced."""
        if spec.axis == () and config.length > 1:
            return "no axis is reduced: rows have one element"
        return None if has_rows(spec) else "a reduction of the whole array has a single row"

    def unsupported_extents(
        self, spec: ReductionSpec, config: ShortRowsConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Rows of neighbouring elements, of this length."""
        if form(extents) not in (Form.WHOLE, Form.ROWS):
            return "it supports only elements that are contiguous along the reduced axes"
        if extents["n"] != config.length:
            return f"it supports only rows of {config.length} elements"
        return beyond_grid(self.blocks(config).at(extents))

    def inputs(self, spec: ReductionSpec, config: ShortRowsConfig) -> dict[str, object]:
        """The longest vectors that fill a row."""
        return {"vec_bytes": gcd(config.length * spec.dtype.size, WIDEST)}

    def edge_cases(self, spec: ReductionSpec, config: ShortRowsConfig) -> Iterator[Extents]:
        """The last block has 1, 2, all but 1 and all of its rows; then rows with gaps between them."""
        for outer in edges(config.threads_per_block * config.rows_at_once):
            yield rows_of(spec, outer, config.length)
        if spec.axis:
            for gap in (1, config.length):
                pitched = lying(spec, 5, config.length, 1, gap=gap)
                if form(pitched) is Form.ROWS:
                    yield pitched

    @made_once
    def blocks(self, config: ShortRowsConfig) -> Expr:
        """One for as many rows as its threads read at once."""
        return size("outer").ceil_div(config.threads_per_block * config.rows_at_once)

    @override
    def plan(self, spec: ReductionSpec, config: ShortRowsConfig) -> Plan:
        launch = Launch(
            grid=(self.blocks(config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("in", *outputs(spec), *((I64, size(name)) for name in ("outer", "outer_pitch"))),
        )
        return Plan((launch,))

    @override
    def roundings(self, spec: ReductionSpec, config: ShortRowsConfig, extents: Extents, limits: Limits) -> int:
        return roundings(spec, config.length, Share(chain(config.length), 0, config.length), 0)

    @override
    def demand(
        self, spec: ReductionSpec, config: ShortRowsConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        item = spec.dtype.size
        filling = gcd(config.length * item, WIDEST)
        aligned = gcd(extents.get("outer_pitch", 0) * item, alignment) % filling == 0
        vec_bytes = filling if aligned else item
        vectors = config.rows_at_once * config.length * item // vec_bytes
        outer, per_block = extents.get("outer", 1), config.threads_per_block * config.rows_at_once
        blocks = -(-outer // per_block)
        return demand_of(
            spec, extents, blocks=blocks, threads_per_block=config.threads_per_block,
            busy=min(outer / (blocks * config.threads_per_block), 1.0) if blocks else 0.0, vectors=vectors,
            at_once=vectors, vec_bytes=vec_bytes,
            more_instructions=self._more_instructions(config), reduces=False,
        )  # fmt: skip

    @override
    def least(self, spec: ReductionSpec, config: ShortRowsConfig, limits: Limits) -> Least:
        return least_of(
            spec, config.threads_per_block, gcd(config.length * spec.dtype.size, WIDEST),
            more_instructions=self._more_instructions(config), reduces=False,
        )  # fmt: skip

    def _more_instructions(self, config: ShortRowsConfig) -> int:
        return config.rows_at_once * (20 + 2 * config.length) - FEWER_OF_SHORT_ROWS

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: ShortRowsConfig) -> int:
        return config.rows_at_once * config.length * spec.dtype.size


class BlockReduce(Enum):
    """How the threads of a block combine their states."""

    SHUFFLES = "shuffles"  # five shuffles in each warp, then five over the states of the warps
    SUMS = "sums"  # the instruction that adds up 32-bit integers of a warp, then one thread
    SHARED = "shared"  # shared memory: fewer dependent steps, where one thread combines 32 states fast


_WORDS = {
    BlockReduce.SHUFFLES: "by shuffles",
    BlockReduce.SUMS: "by the instruction that adds up a warp's integers",
    BlockReduce.SHARED: "by shared memory",
}
_EVERY_WAY = f"{_WORDS[BlockReduce.SHUFFLES]}, {_WORDS[BlockReduce.SUMS]}, or {_WORDS[BlockReduce.SHARED]}"


@dataclass(frozen=True, kw_only=True)
class SingleConfig(Config):
    """How the threads of the block divide the array."""

    threads_per_block: int = tunable("tpb", (32, 64, 128, 256, 512, 1024), base=256, help="threads of the only block")
    unroll: int = tunable("u", (1, 2, 4, 8), base=4, help="vector loads in flight per thread")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes per vector load")
    block_reduce: BlockReduce = choice(
        "", tuple(BlockReduce), help="how a block's threads combine their partial results"
    )


class Single(ReductionAlgorithm[SingleConfig]):
    """One block, no scratch."""

    name = "single"
    template = "reduction/single.cu.jinja"
    summary = (
        "One launch of one block, which strides through the array with vector loads: no other block is waited for, "
        "little is computed before the first load, and a small array is read at once. Its threads hand each other what "
        f"they know {_EVERY_WAY}."
    )
    config = SingleConfig

    def description(self, config: SingleConfig) -> str:
        """The summary with the block reduce of this variant alone."""
        return self.summary.replace(_EVERY_WAY, _WORDS[config.block_reduce])

    def illegal(self, spec: ReductionSpec, config: SingleConfig) -> str | None:
        """A vector holds at least one element; an instruction adds up a warp's integers."""
        if found := holds_no_element(spec, config.vec_bytes):
            return found
        if config.block_reduce is BlockReduce.SUMS and not state_of(spec).is_sum:
            return "redux.sync, which adds over a warp, exists only for sums of integers"
        return None

    def unsearched(self, spec: ReductionSpec, config: SingleConfig) -> str | None:
        """One thread takes 32 states where two are one operation away."""
        if config.block_reduce is BlockReduce.SHARED and not state_of(spec).light:
            return (
                "partial results of several numbers are combined by shuffles: one thread would take long for 32 of them"
            )
        return None

    def infeasible(self, spec: ReductionSpec, config: SingleConfig, limits: Limits) -> str | None:
        """The instruction that adds up a warp's integers is there from sm_80 on."""
        if config.block_reduce is BlockReduce.SUMS and not limits.has_warp_sums:
            return f"{limits.arch} has no redux.sync, which adds integers over a warp"
        return None

    def unsupported_extents(
        self, spec: ReductionSpec, config: SingleConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """One result of few elements, which follow each other."""
        if form(extents) is not Form.WHOLE:
            return "its one block only reduces contiguous elements to a single result"
        return f"its one block supports at most {MOST_OF_BLOCK} elements" if extents["n"] > MOST_OF_BLOCK else None

    def edge_cases(self, spec: ReductionSpec, config: SingleConfig) -> Iterator[Extents]:
        """Arrays of which the last round has 1, 2, all but 1 and all elements."""
        tile = config.threads_per_block * config.unroll * (config.vec_bytes // spec.dtype.size)
        return (rows_of(spec, 1, n) for n in edges(tile))

    @override
    def plan(self, spec: ReductionSpec, config: SingleConfig) -> Plan:
        block = (config.threads_per_block, 1, 1)
        return Plan((Launch((ONE, ONE, ONE), block, ("in", *outputs(spec), (I32, size("n")))),))

    @override
    def roundings(self, spec: ReductionSpec, config: SingleConfig, extents: Extents, limits: Limits) -> int:
        n, threads, items = extents["n"], config.threads_per_block, config.vec_bytes // spec.dtype.size
        loads, _ = loads_of_thread(n // items, config.unroll, threads)
        share = Share.of_vectors(spec, config.vec_bytes, loads, folds=loads, ends=int(items > 1))
        by_lanes = config.block_reduce is BlockReduce.SHARED
        return roundings(spec, n, share, (lane_roundings if by_lanes else block_roundings)(min(threads, n)))

    @override
    def demand(
        self, spec: ReductionSpec, config: SingleConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        vectors = max(extents["n"] * spec.dtype.size / config.vec_bytes, 1.0)
        return demand_of(
            spec, extents, blocks=1, threads_per_block=config.threads_per_block,
            busy=min(vectors / config.threads_per_block, 1.0), vectors=max(vectors / config.threads_per_block, 1.0),
            at_once=config.unroll, vec_bytes=config.vec_bytes, more_instructions=40,
        )  # fmt: skip

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: SingleConfig) -> int:
        return config.unroll * config.vec_bytes
