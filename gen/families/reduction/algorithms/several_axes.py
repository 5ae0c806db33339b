"""Reductions along axes with kept ones between them, whose fastest axis has neighbouring elements.

Sums over batch, height and width of images, say, whose channels stay: `multi_rows` where the fastest axis in memory is
reduced (NCHW), `multi_columns` where it is kept (NHWC). Whatever has gaps along its fastest axis is for `strided`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd

from typing_extensions import override

from gen.arch import WARP, Limits
from gen.dtypes import I64, U32
from gen.families.base import Extents, Launch, Plan, beyond_grid
from gen.families.config import Config, tunable
from gen.families.estimates import Demand
from gen.families.expr import ONE, Expr, size
from gen.families.plans import beyond_block
from gen.families.reduction.algorithms.columns import columns_demand, no_registers, no_shared_room
from gen.families.reduction.algorithms.common import (
    Combine,
    ReductionAlgorithm,
    block_roundings,
    combine_roundings,
    demand_of,
    holds_no_element,
    outputs,
    shared_plan,
)
from gen.families.reduction.oracle import Share, chain, roundings, tree
from gen.families.reduction.shapes import MOST_GROUPS, Form, ShapeClass, edges, form, several_axes
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.state import state_of

THREADS_PER_BLOCK = 256
MOST_COUNTED_ROWS = 4096  # whose ends are counted by thread; of more a bound is taken
BLOCKS_PER_SM = 8  # that share results, for each multiprocessor
AXES = tuple(
    name for axis in (f"{letter}{place}" for letter in "kr" for place in range(MOST_GROUPS))
    for name in (axis, f"{axis[0]}s{axis[1]}")
)  # fmt: skip
"""Extents and strides of the kept axes, then of the reduced ones, slowest first."""


@dataclass(frozen=True, kw_only=True)
class MultiRowsConfig(Config):
    """How `multi_rows` divides the rows of a result between threads and blocks."""

    group: int = tunable("g", (8, WARP, THREADS_PER_BLOCK), base=THREADS_PER_BLOCK, help="threads that share a result")
    unroll: int = tunable("u", (2, 4, 8), base=4, help="vector loads each thread has in flight")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes of one vector load")
    blocks_per_sm: int = tunable(
        "bpm", (4, BLOCKS_PER_SM), base=BLOCKS_PER_SM, help="most blocks for each multiprocessor that share results"
    )

    def illegal(self) -> str | None:
        """Only whole blocks share a result."""
        if self.group < THREADS_PER_BLOCK and self.blocks_per_sm != BLOCKS_PER_SM:
            return f"a group of {self.group} threads shares its result with no other block"
        return None


class MultiRows(ReductionAlgorithm[MultiRowsConfig]):
    """Many rows of neighbouring elements make one result."""

    name = "multi_rows"
    template = "reduction/multi_rows.cu.jinja"
    summary = (
        "For reduced axes with kept ones between them, the fastest of which is reduced: every result has several rows "
        "of neighbouring elements, which the threads of a part of a warp, a warp, or one or more blocks read with "
        "vector loads, however long the rows are."
    )
    config = MultiRowsConfig

    def illegal(self, spec: ReductionSpec, config: MultiRowsConfig) -> str | None:
        """No places are asked for; a vector holds at least one element."""
        if spec.axis == ():
            return "no axis is reduced: there are no rows"
        if spec.indexed:
            return "it keeps no places of elements"
        return holds_no_element(spec, config.vec_bytes)

    def unsupported_extents(
        self, spec: ReductionSpec, config: MultiRowsConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Neighbouring elements along the fastest reduced axis."""
        if form(extents) is not Form.STRIDED or extents["rs3"] != 1:
            return "it takes arrays whose axes do not merge to a matrix, of neighbours along the last reduced axis"
        return beyond_grid(self.plan(spec, config).launches[0].grid[0].at({**extents, **limits.sizes()}))

    def inputs(self, spec: ReductionSpec, config: MultiRowsConfig) -> Mapping[str, object]:
        """The threads of a block, the same for all."""
        return {"threads_per_block": THREADS_PER_BLOCK}

    @override
    def edge_cases(self, spec: ReductionSpec, config: MultiRowsConfig) -> Iterator[Extents]:
        """Rows of which a group's last slots have 1, 2, all but 1 and all of their elements."""
        tile = min(config.group, WARP) * max(config.vec_bytes // spec.dtype.size, 2)
        found = (several_axes(spec, ShapeClass.MULTI_ROWS, 3, last) for last in edges(tile))
        return (sizes for sizes in found if sizes is not None)

    def splits(self, spec: ReductionSpec, config: MultiRowsConfig) -> Expr:
        """Blocks of a result."""
        if config.group < THREADS_PER_BLOCK:
            return ONE
        most = (size("multiprocessors") * config.blocks_per_sm) // size("outer").at_least(1)
        per_block = THREADS_PER_BLOCK * config.unroll * (config.vec_bytes // spec.dtype.size)
        return size("n").ceil_div(per_block).at_most(most).at_least(1)

    @override
    def plan(self, spec: ReductionSpec, config: MultiRowsConfig) -> Plan:
        n, block = (I64, size("n")), (THREADS_PER_BLOCK, 1, 1)
        axes = tuple((I64, size(name)) for name in AXES)
        if config.group < THREADS_PER_BLOCK:
            blocks = size("outer").ceil_div(THREADS_PER_BLOCK // config.group)
            return Plan((Launch((blocks, ONE, ONE), block, ("in", *outputs(spec), (I64, size("outer")), n, *axes)),))
        splits, most = self.splits(spec, config), size("multiprocessors") * config.blocks_per_sm
        return shared_plan(
            spec, Combine.TICKET, block, ((U32, splits), n, *axes), splits=splits, states=most, groups=size("outer"),
            tickets=most,
        )  # fmt: skip

    @override
    def roundings(self, spec: ReductionSpec, config: MultiRowsConfig, extents: Extents, limits: Limits) -> int:
        n, items = extents["n"], config.vec_bytes // spec.dtype.size
        splits = self.splits(spec, config).at({**extents, **limits.sizes()})
        of_row = (extents["r3"] + items - 2) // items + 1 if items > 1 else extents["r3"]
        slots = -(-of_row * (n // max(extents["r3"], 1)) // (splits * config.group))
        run = state_of(spec).run(config.unroll, config.vec_bytes)
        share = Share.of_vectors(spec, config.vec_bytes, slots, slots, 0, run)
        if items > 1:  # elements of slots that rows do not fill are added one by one, to a state of their own
            partial = self._partial_slots(of_row, n // max(extents["r3"], 1), splits * config.group, slots)
            ends, joined = chain(partial * (items - 1)), int(slots > 1)
            share = Share(max(share.additions, ends) + joined, max(share.merges, ends) + joined, share.run)
        reduce = block_roundings if config.group > WARP else tree
        combined = combine_roundings(Combine.TICKET, splits, THREADS_PER_BLOCK, block_roundings)
        return roundings(spec, n, share, reduce(min(config.group, n)) + combined)

    def _partial_slots(self, of_row: int, rows: int, team: int, slots: int) -> int:
        """The most slots of one thread that rows may not fill: a row's first one, and one of its last two.

        Which of the last two it is depends on where the row begins.
        """
        if rows > MOST_COUNTED_ROWS:
            return min(slots, 3 * rows)
        at_ends = {0, max(of_row - 2, 0), of_row - 1}
        places = Counter((row * of_row + slot) % team for row in range(rows) for slot in at_ends)
        return min(max(places.values(), default=0), slots)

    @override
    def demand(
        self, spec: ReductionSpec, config: MultiRowsConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        length, rows, items = extents["r3"], extents["n"] // max(extents["r3"], 1), config.vec_bytes // spec.dtype.size
        strides = [extents[f"rs{axis}"] for axis in range(MOST_GROUPS - 1)] + [length]
        partial = 0.0 if gcd(gcd(*strides) * spec.dtype.size, alignment) % config.vec_bytes == 0 else 1.0
        slots = rows * (length / items + partial * (items > 1))
        splits = self.splits(spec, config).at({**extents, **limits.sizes()})
        vectors = slots / (splits * config.group)
        return demand_of(
            spec, extents, blocks=-(-extents["outer"] * splits * config.group // THREADS_PER_BLOCK),
            threads_per_block=THREADS_PER_BLOCK, busy=min(vectors, 1.0), vectors=max(vectors, 1.0),
            at_once=config.unroll, vec_bytes=config.vec_bytes,
            walk=35 + partial * (items > 1) * (20 + 60 * min(rows / max(slots, 1.0), 1.0)), more_instructions=600,
            combine=Combine.TICKET if splits > 1 else None,
        )  # fmt: skip

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: MultiRowsConfig) -> int:
        return config.unroll * config.vec_bytes


@dataclass(frozen=True, kw_only=True)
class MultiColumnsConfig(Config):
    """How `multi_columns` divides columns and rows between threads and blocks."""

    columns_x: int = tunable("x", (16, 32, 64, 128), base=32, help="threads side by side, each with some columns")
    rows_y: int = tunable("y", (1, 4, 8, 16), base=8, help="threads one below the other")
    unroll: int = tunable("u", (2, 4, 8), base=4, help="vector loads each thread has in flight")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes of one vector load")

    def illegal(self) -> str | None:
        """A block holds the threads."""
        return beyond_block(self.columns_x * self.rows_y)

    def unsearched(self) -> str | None:
        """Blocks are neither small nor thin."""
        threads = self.columns_x * self.rows_y
        if not 128 <= threads <= 512:
            return f"{self.columns_x} x {self.rows_y} are {threads} threads of a block: 128 to 512 are of use"
        return None


class MultiColumns(ReductionAlgorithm[MultiColumnsConfig]):
    """Strips of neighbouring columns, whose rows lie along several axes."""

    name = "multi_columns"
    template = "reduction/multi_columns.cu.jinja"
    summary = (
        "For reduced axes with kept ones between them, the fastest of which is kept: a thread owns a vector of "
        "neighbouring columns and goes from row to row over all reduced axes; blocks may share the rows of a strip."
    )
    config = MultiColumnsConfig

    def illegal(self, spec: ReductionSpec, config: MultiColumnsConfig) -> str | None:
        """There are columns, of which no places are asked for; their states fit into shared memory."""
        if not spec.axis:
            return "a whole array, or one of which no axis is reduced, has no columns"
        if spec.indexed:
            return "it keeps no places of elements"
        return holds_no_element(spec, config.vec_bytes) or no_shared_room(
            spec, config.vec_bytes, config.columns_x * config.rows_y
        )

    def unsearched(self, spec: ReductionSpec, config: MultiColumnsConfig) -> str | None:
        """The states of a thread's columns stay in registers."""
        return no_registers(spec, config.vec_bytes)

    def unsupported_extents(
        self, spec: ReductionSpec, config: MultiColumnsConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Neighbouring elements along the fastest kept axis."""
        if form(extents) is not Form.STRIDED or extents["ks3"] != 1:
            return "it takes arrays whose axes do not merge to a matrix, of neighbours along the last kept axis"
        return beyond_grid(self.plan(spec, config).launches[0].grid[0].at({**extents, **limits.sizes()}))

    @override
    def edge_cases(self, spec: ReductionSpec, config: MultiColumnsConfig) -> Iterator[Extents]:
        """Columns of which the last strip has 1, 2, all but 1 and all."""
        strip = config.columns_x * max(config.vec_bytes // spec.dtype.size, 1)
        found = (several_axes(spec, ShapeClass.MULTI_COLUMNS, 3, last) for last in edges(strip))
        return (sizes for sizes in found if sizes is not None)

    def strips(self, spec: ReductionSpec, config: MultiColumnsConfig) -> Expr:
        """Strips of a matrix of columns."""
        return size("k3").ceil_div(config.columns_x * (config.vec_bytes // spec.dtype.size))

    def groups(self, spec: ReductionSpec, config: MultiColumnsConfig) -> Expr:
        """Strips of all matrices."""
        return size("k0") * size("k1") * size("k2") * self.strips(spec, config)

    def splits(self, spec: ReductionSpec, config: MultiColumnsConfig) -> Expr:
        """Blocks that share the rows of a strip: as many as the device wants, and a round's rows for each."""
        most = (size("multiprocessors") * BLOCKS_PER_SM) // self.groups(spec, config).at_least(1)
        return most.at_most(size("n").ceil_div(config.rows_y * config.unroll)).at_least(1)

    @override
    def plan(self, spec: ReductionSpec, config: MultiColumnsConfig) -> Plan:
        strips, splits, n = self.strips(spec, config), self.splits(spec, config), (I64, size("n"))
        most = size("multiprocessors") * BLOCKS_PER_SM  # blocks, where strips are shared at all
        columns = config.columns_x * (config.vec_bytes // spec.dtype.size)
        return shared_plan(
            spec, Combine.TICKET, (config.columns_x, config.rows_y, 1),
            ((U32, strips), (U32, splits), n, *((I64, size(name)) for name in AXES)), splits=splits,
            states=most * columns, groups=self.groups(spec, config), tickets=most,
        )  # fmt: skip

    @override
    def roundings(self, spec: ReductionSpec, config: MultiColumnsConfig, extents: Extents, limits: Limits) -> int:
        n, threads = extents["n"], config.rows_y
        splits = self.splits(spec, config).at({**extents, **limits.sizes()})
        own = -(-n // (splits * threads))
        runs = extents["k3"] % (config.vec_bytes // spec.dtype.size) == 0  # else some columns fill no vector
        folds = own // config.unroll + own % config.unroll
        share = Share(chain(own), chain(folds if runs else own), config.unroll)
        combined = combine_roundings(Combine.TICKET, splits, threads, tree)
        return roundings(spec, n, share, tree(min(threads, n)) + combined)

    @override
    def demand(
        self, spec: ReductionSpec, config: MultiColumnsConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        sizes = {**extents, **limits.sizes()}
        strides = [extents[f"rs{axis}"] for axis in range(MOST_GROUPS)]
        strides += [extents[f"ks{axis}"] for axis in range(MOST_GROUPS - 1)]
        return columns_demand(
            spec, extents, (config.columns_x, config.rows_y), unroll=config.unroll, vec_bytes=config.vec_bytes,
            combine=Combine.TICKET, columns=extents["k3"], matrices=extents["outer"] // max(extents["k3"], 1),
            strips=self.strips(spec, config).at(sizes), splits=self.splits(spec, config).at(sizes),
            aligned=gcd(gcd(*strides) * spec.dtype.size, alignment) % config.vec_bytes == 0, walk=35,
        )  # fmt: skip

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: MultiColumnsConfig) -> int:
        return config.unroll * config.vec_bytes
