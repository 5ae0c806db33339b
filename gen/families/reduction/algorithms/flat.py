"""Results counted through all kept axes, elements read one by one: `flat_columns` and `flat_rows`.

They serve what vectors do not: few columns with gaps between rows, matrices of few columns, rows that begin anywhere,
small arrays, of which the time is that of the instructions before the first load and after the last. Numbers of
elements have 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import partial
from itertools import islice
from math import gcd

from typing_extensions import override

from gen.arch import WARP, Limits
from gen.dtypes import U32, DType
from gen.families.base import Extents, Launch, Plan, beyond_grid, with_limits
from gen.families.config import Config, choice, tunable
from gen.families.estimates import SECTOR_BYTES, Demand, Least
from gen.families.expr import ONE, Expr, constant, made_once, once_a_problem, size
from gen.families.reduction.algorithms.columns import no_shared_room
from gen.families.reduction.algorithms.common import (
    AXES,
    COMBINE_HELP,
    Combine,
    ReductionAlgorithm,
    block_roundings,
    combine_roundings,
    halving_roundings,
    holds_no_element,
    inverse,
    outputs,
    shared_plan,
    split_after,
    taken,
)
from gen.families.reduction.algorithms.demands import demand_of, handed_quarters, least_of
from gen.families.reduction.oracle import Share, chain, loads_of_thread, roundings, tree
from gen.families.reduction.shapes import (
    MOST_GROUPS,
    Form,
    ShapeClass,
    apart,
    edges,
    form,
    lying,
    problem,
    rows_of,
    several_axes,
)
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.state import state_of

MOST_SPAN = 2**31
"""Elements from the first to the last, so that their numbers have 32 bits."""
FEW_AXES = tuple(name for name in AXES if name[-1] in "23")
SHARING_THREADS = 1024
"""Threads of a multiprocessor whose blocks share results: no more are resident, whatever registers they take."""
MOST_HANDED, LEAST_HANDING = 4096, 4
"""Quarters of sectors that the last block takes over from all others, and how many blocks share all the same."""
MOST_OF_ROW_THREAD = 256
"""Elements of a result for each thread of `flat_rows`: vectors, or more blocks, would be faster by far."""


@once_a_problem
def beyond_span(_: ReductionSpec, extents: Extents) -> str | None:
    """Why elements of an array cannot be numbered in 32 bits."""
    if form(extents) is Form.STRIDED:
        span = sum(
            (extents[f"{axis}{place}"] - 1) * extents[f"{axis}s{place}"]
            for axis in "kr"
            for place in range(MOST_GROUPS)
        )
    else:
        outer, n, inner = extents.get("outer", 1), extents["n"], extents.get("inner", 1)
        across = (outer - 1) * extents.get("outer_pitch", 0) if outer else 0
        span = across + (n - 1) * extents.get("row_pitch", 1) + inner
    most = max(span, extents["n"], extents.get("outer", 1) * extents.get("inner", 1))  # elements may lie at one place
    return f"it supports only arrays that span less than {MOST_SPAN} elements" if most >= MOST_SPAN else None


def _numbers(axes: int, *matrix: str) -> tuple[tuple[DType, Expr], ...]:
    """The sizes that tell where elements lie, of a matrix or of several axes, and the inverses of these axes."""
    names = matrix if axes == 1 else AXES if axes == MOST_GROUPS else FEW_AXES
    divisors = () if axes == 1 else [size(f"{axis}{place}") for axis in "kr" for place in range(5 - axes, MOST_GROUPS)]
    return *((U32, size(name)) for name in names), *map(inverse, divisors)


def _beyond_axes(axes: int, extents: Extents, matrix: tuple[Form, ...], what: str) -> str | None:
    """Why a kernel for a matrix, two or four axes does not take these sizes; those with more axes than needed do."""
    if axes == 1:
        return None if form(extents) in matrix else f"it only reduces {what}"
    if form(extents) is not Form.STRIDED:
        return "it is for arrays whose axes do not merge to a matrix"
    if axes == 2 and any(extents[name] > 1 for name in ("k0", "k1", "r0", "r1")):
        return "it supports at most two kept and two reduced axes"
    return None


@dataclass(frozen=True, kw_only=True)
class FlatColumnsConfig(Config):
    """How `flat_columns` divides results and their elements between threads and blocks."""

    axes: int = tunable(
        "a", (1, 2, MOST_GROUPS), base=1, help="most kept and most reduced axes; 1: columns of a matrix"
    )
    threads_per_block: int = tunable("tpb", (128, 256, 512, 1024), base=256, help="threads per block")
    columns: int = tunable("c", (32, 128, 512), base=32, help="most results per block")
    unroll: int = tunable("u", (2, 4, 8, 16), base=8, help="loads in flight per thread")
    combine: Combine = choice("", (Combine.FLAGS, Combine.TICKET, Combine.ALONE), help=COMBINE_HELP)

    def illegal(self) -> str | None:
        """A result has a thread at least; and where nothing is combined, no more."""
        if self.columns > self.threads_per_block:
            return f"a block of {self.threads_per_block} threads computes at most one result per thread"
        if self.combine is Combine.ALONE and self.columns < self.threads_per_block:
            return f"with a thread for each result, columns must be threads_per_block, {self.threads_per_block}"
        return None

    def unsearched(self) -> str | None:
        """What is loaded stays in registers."""
        if self.unroll == 16 and self.threads_per_block == 1024:
            return "with 1024 threads per block each has 64 registers, too few for 16 loads in flight"
        return None


class FlatColumns(ReductionAlgorithm[FlatColumnsConfig]):
    """A thread for each of neighbouring results, however few columns a matrix has."""

    name = "flat_columns"
    template = "reduction/flat_columns.cu.jinja"
    summary = (
        "A block computes neighbouring results, counted through all kept axes, with as many threads for each as fit. "
        "Each thread goes down its column element by element, so that rows of any pitch, and several matrices of few "
        "columns, keep all threads busy. Where there are few results, several blocks share them, and the last one "
        "combines their partial results in order."
    )
    config = FlatColumnsConfig

    def illegal(self, spec: ReductionSpec, config: FlatColumnsConfig) -> str | None:
        """There are several results; the states of a block fit into shared memory."""
        if spec.axis is None:
            return "a reduction of the whole array has a single result"
        return no_shared_room(spec, spec.dtype.size, config.threads_per_block)

    def unsupported_extents(
        self, spec: ReductionSpec, config: FlatColumnsConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Columns, or several axes, as the config says, numbered in 32 bits."""
        if found := _beyond_axes(config.axes, extents, (Form.COLUMNS,), "columns"):
            return found
        return beyond_span(spec, extents) or beyond_grid(self.blocks_of_plan(spec, config, extents, limits))

    def edge_cases(self, spec: ReductionSpec, config: FlatColumnsConfig) -> Iterator[Extents]:
        """Blocks of which the last has 1, 2, all but 1 and all results; few results, which blocks share."""
        last, tile = config.columns, config.threads_per_block // config.columns * config.unroll
        if spec.axis:  # blocks share these
            rows, step = 6 * config.threads_per_block * config.unroll + 1, min(config.axes, 2)
            yield lying(spec, 1, rows, 3, gap=1, step=step)
        if config.axes > 1:
            found = (several_axes(spec, ShapeClass.MULTI_COLUMNS, 3, extent) for extent in (5, *edges(last)))
            yield from taken(self, spec, config, found)
            unmerged = apart(spec, last + 1, reduced=False, axes=config.axes)
            yield from islice(taken(self, spec, config, unmerged), 1)
            return
        for inner, n in zip(edges(last), (2 * tile, tile + 1, tile + 2, 5 * tile), strict=True):
            yield lying(spec, 1, n, inner, gap=n % 2) if spec.axis else problem(spec, (2, inner), gap=1)

    @made_once
    def across(self, config: FlatColumnsConfig) -> Expr:
        """Results of a block."""
        if config.combine is Combine.ALONE:
            return constant(config.columns)
        return self.results(config).at_most(config.columns).at_least(1).called("block_results")

    @made_once
    def results(self, config: FlatColumnsConfig) -> Expr:
        """All results."""
        return size("outer") * size("inner") if config.axes == 1 else size("outer")

    @made_once
    def rows(self, config: FlatColumnsConfig) -> Expr:
        """Threads of a block for each result."""
        return constant(config.threads_per_block) // self.across(config)

    @made_once
    def splits(self, spec: ReductionSpec, config: FlatColumnsConfig) -> Expr:
        """Blocks that share the elements of a result: no more than a device holds, nor than the last can wait for."""
        if config.combine is Combine.ALONE:
            return ONE
        across = self.across(config)
        groups = self.results(config).ceil_div(across).called("groups").at_least(1)
        most = self.most(config) // groups
        if config.combine is Combine.FLAGS:
            most = most.at_most((constant(MOST_HANDED) // (across * handed_quarters(spec))).at_least(LEAST_HANDING))
        return split_after(size("n"), self.rows(config) * config.unroll, most)

    def most(self, config: FlatColumnsConfig) -> Expr:
        """Blocks, where any share results."""
        return size("multiprocessors") * (SHARING_THREADS // config.threads_per_block)

    @override
    def plan(self, spec: ReductionSpec, config: FlatColumnsConfig) -> Plan:
        across, splits = self.across(config), self.splits(spec, config)
        where = _numbers(config.axes, "inner", "outer_pitch", "row_pitch")
        if config.axes == 1:
            where = *where, inverse(size("inner"))
        if config.combine is Combine.ALONE:
            grid = (self.results(config).ceil_div(across), ONE, ONE)
            known = ((U32, self.results(config)), (U32, size("n")), *where)
            return Plan((Launch(grid, (config.threads_per_block, 1, 1), ("in", *outputs(spec), *known)),))
        numbers = tuple((U32, one) for one in (self.results(config), size("n"), self.rows(config), splits))
        return shared_plan(
            spec, config.combine, (config.threads_per_block, 1, 1),
            (*numbers, inverse(across), inverse(splits), inverse(self.rows(config) * splits), *where), splits=splits,
            states=self.most(config) * across, groups=self.results(config).ceil_div(across), tickets=self.most(config),
        )  # fmt: skip

    @override
    def roundings(self, spec: ReductionSpec, config: FlatColumnsConfig, extents: Extents, limits: Limits) -> int:
        sizes = with_limits(extents, limits)
        n, rows, splits = extents["n"], self.rows(config).at(sizes), self.splits(spec, config).at(sizes)
        own = -(-n // (splits * rows))
        share = Share(chain(own), chain(-(-own // config.unroll)), config.unroll)
        reduce = partial(halving_roundings, rows)
        return roundings(spec, n, share, reduce(n) + combine_roundings(config.combine, splits, rows, reduce))

    @override
    def demand(
        self, spec: ReductionSpec, config: FlatColumnsConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        sizes = with_limits(extents, limits)
        results, across, rows = (one(config).at(sizes) for one in (self.results, self.across, self.rows))
        splits = self.splits(spec, config).at(sizes)
        own = extents["n"] / (splits * rows)
        groups = -(-results // across)
        active = results / max(groups, 1) * rows / config.threads_per_block
        # Neighbouring threads read elements of which memory moves whole sectors.
        apart = extents.get("ks3", 1) * spec.dtype.size
        return demand_of(
            spec, extents, blocks=groups * splits, threads_per_block=config.threads_per_block,
            busy=active * min(own, 1.0), vectors=max(own, 1.0), at_once=config.unroll, vec_bytes=spec.dtype.size,
            walk=3 + 5 * config.axes * (config.axes > 1),
            more_instructions=60 * config.axes - 40 * (config.combine is Combine.ALONE) + 12 * rows.bit_length(),
            combine=config.combine if splits > 1 else None, handed=(splits - 1) * across * handed_quarters(spec),
            in_turn=(config.combine is Combine.TICKET) * max(splits - rows, 0) / rows, reduces=rows > 1,
            moved_share=min(max(apart, spec.dtype.size), SECTOR_BYTES) / spec.dtype.size,
        )  # fmt: skip

    @override
    def least(self, spec: ReductionSpec, config: FlatColumnsConfig, limits: Limits) -> Least:
        rows, alone = config.threads_per_block // config.columns, config.combine is Combine.ALONE
        return least_of(
            spec, config.threads_per_block, spec.dtype.size, walk=3 + 5 * config.axes * (config.axes > 1),
            more_instructions=60 * config.axes - 40 * alone + 12 * rows.bit_length(), reduces=rows > 1, threads=rows,
            at_once=rows * config.unroll,
            shared=0 if alone else limits.multiprocessors * SHARING_THREADS * config.unroll,
        )  # fmt: skip

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: FlatColumnsConfig) -> int:
        return config.unroll * spec.dtype.size


@dataclass(frozen=True, kw_only=True)
class FlatRowsConfig(Config):
    """How `flat_rows` divides results between threads."""

    axes: int = tunable("a", (1, 2, MOST_GROUPS), base=1, help="most kept and most reduced axes; 1: rows")
    group: int = tunable("g", (8, WARP, 256, 1024), base=WARP, help="threads per result")
    unroll: int = tunable("u", (2, 4, 8), base=4, help="loads in flight per thread")
    vec_bytes: int = choice("v", (0, 4, 8, 16), help="bytes per vector load of aligned rows; 0: single elements")

    def illegal(self) -> str | None:
        """Vectors are for rows between others."""
        return (
            "with axes 1 vector loads are left to the algorithm rows: vec_bytes must be 0"
            if self.vec_bytes and self.axes == 1
            else None
        )

    @property
    def threads_per_block(self) -> int:
        """A group that fills more than a warp is the block."""
        return max(self.group, 128)


class FlatRows(ReductionAlgorithm[FlatRowsConfig]):
    """A group of threads for each result, which reads its elements one by one."""

    name = "flat_rows"
    template = "reduction/flat_rows.cu.jinja"
    summary = (
        "For few elements a result: a part of a warp, a warp or a block reads the elements of each result one by one, "
        "wherever they lie, or by vectors where all rows are aligned. Little is computed before the first load, and no "
        "block waits for another."
    )
    config = FlatRowsConfig

    def illegal(self, spec: ReductionSpec, config: FlatRowsConfig) -> str | None:
        """There are rows."""
        if spec.axis == ():
            return "no axis is reduced: there are no rows"
        if spec.axis is None and config.axes == 1:
            return "a reduction of the whole array has a single row"
        return holds_no_element(spec, config.vec_bytes) if config.vec_bytes else None

    def unsupported_extents(
        self, spec: ReductionSpec, config: FlatRowsConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Rows, or several axes, as the config says, of few elements, numbered in 32 bits."""
        if found := _beyond_axes(config.axes, extents, (Form.WHOLE, Form.ROWS), "rows"):
            return found
        if "outer" not in extents:
            return "it only reduces rows"
        if extents["n"] > MOST_OF_ROW_THREAD * config.group:
            return f"it supports at most {MOST_OF_ROW_THREAD} elements of a result per thread"
        return beyond_span(spec, extents) or beyond_grid(self.blocks(config).at(extents))

    def inputs(self, spec: ReductionSpec, config: FlatRowsConfig) -> dict[str, object]:
        """The threads of a block."""
        return {"threads_per_block": config.threads_per_block}

    def edge_cases(self, spec: ReductionSpec, config: FlatRowsConfig) -> Iterator[Extents]:
        """Results of which the last round has 1, 2, all but 1 and all elements; the last block as many results."""
        if config.axes > 1:
            tile = config.group * config.unroll
            if config.vec_bytes:
                tile = min(tile, WARP) * (config.vec_bytes // spec.dtype.size)
            found = (several_axes(spec, ShapeClass.MULTI_ROWS, 3, last) for last in (*edges(tile), 4 * tile))
            yield from taken(self, spec, config, found)
            unmerged = apart(spec, 5, reduced=True, axes=config.axes)
            yield from islice(taken(self, spec, config, unmerged), 1)
        else:
            yield from (rows_of(spec, 2, n) for n in edges(config.group * config.unroll))
            yield from (rows_of(spec, outer, 3) for outer in edges(config.threads_per_block // config.group))

    @made_once
    def blocks(self, config: FlatRowsConfig) -> Expr:
        """One for as many results as it has groups."""
        return size("outer").ceil_div(config.threads_per_block // config.group)

    @override
    def plan(self, spec: ReductionSpec, config: FlatRowsConfig) -> Plan:
        vectors = (inverse(size("r3") // (config.vec_bytes // spec.dtype.size)),) if config.vec_bytes else ()
        numbers = ((U32, size("outer")), (U32, size("n")), *vectors, *_numbers(config.axes, "outer_pitch"))
        launch = Launch(
            (self.blocks(config), ONE, ONE), (config.threads_per_block, 1, 1), ("in", *outputs(spec), *numbers)
        )
        return Plan((launch,))

    @override
    def roundings(self, spec: ReductionSpec, config: FlatRowsConfig, extents: Extents, limits: Limits) -> int:
        n = extents["n"]
        own = -(-n // config.group)
        share = Share(chain(own), chain(-(-own // config.unroll)), config.unroll)
        if config.vec_bytes:  # where rows are aligned; one by one elsewhere
            run = state_of(spec).run(config.unroll, config.vec_bytes)
            vectors = n // (config.vec_bytes // spec.dtype.size)
            loads, folds = loads_of_thread(vectors, config.unroll, config.group, run=run)
            other = Share.of_vectors(spec, config.vec_bytes, loads, folds, 0, run)
            share = Share(*(max(pair) for pair in zip(astuple(share), astuple(other), strict=True)))
        reduce = block_roundings if config.group > WARP else tree
        return roundings(spec, n, share, reduce(min(config.group, n)))

    @override
    def demand(
        self, spec: ReductionSpec, config: FlatRowsConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        apart, vec_bytes, items = extents.get("rs3", 1) * spec.dtype.size, spec.dtype.size, 1
        if config.vec_bytes and extents["rs3"] == 1:
            strides = gcd(
                extents["r3"], *(extents[f"{axis}s{place}"] for axis in "kr" for place in range(MOST_GROUPS - 1))
            )
            if gcd(strides * spec.dtype.size, alignment) % config.vec_bytes == 0:
                vec_bytes, items = config.vec_bytes, config.vec_bytes // spec.dtype.size
        own = extents["n"] / items / config.group
        slow = config.vec_bytes > 0 and items == 1  # its loop over elements lies behind that over vectors
        return demand_of(
            spec, extents, blocks=self.blocks(config).at(extents), threads_per_block=config.threads_per_block,
            busy=min(own, 1.0), vectors=max(own, 1.0), at_once=config.unroll, vec_bytes=vec_bytes,
            walk=3 + 5 * config.axes * (config.axes > 1), more_instructions=50 * config.axes + 100 * slow,
            reduces=config.group > WARP, moved_share=min(max(apart, spec.dtype.size), SECTOR_BYTES) / spec.dtype.size,
        )  # fmt: skip

    @override
    def least(self, spec: ReductionSpec, config: FlatRowsConfig, limits: Limits) -> Least:
        return least_of(
            spec, config.threads_per_block, max(config.vec_bytes, spec.dtype.size),
            walk=3 + 5 * config.axes * (config.axes > 1), more_instructions=50 * config.axes,
            reduces=config.group > WARP, threads=config.group,
            at_once=config.group * config.unroll * max(config.vec_bytes // spec.dtype.size, 1),
        )  # fmt: skip

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: FlatRowsConfig) -> int:
        return config.unroll * max(config.vec_bytes, spec.dtype.size)
