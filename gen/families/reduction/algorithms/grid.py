"""Results that blocks share: `grid`, `flags` and `cluster` of rows, `strided` of whatever no other algorithm takes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from typing_extensions import override

from gen.arch import WARP
from gen.dtypes import I64, U32, LoadModifier
from gen.families.base import Extents, Launch, Limits, Plan, beyond_grid, with_limits
from gen.families.config import Config, choice, load_modifier, tunable
from gen.families.estimates import SECTOR_BYTES, Demand, Least
from gen.families.expr import ONE, Expr, made_once, size
from gen.families.reduction.algorithms.common import (
    COMBINE_HELP,
    SEVERAL_WAVES,
    Combine,
    ReductionAlgorithm,
    arguments,
    beyond_resident,
    block_roundings,
    combine_roundings,
    few_second_passes,
    has_rows,
    holds_no_element,
    lane_roundings,
    never_resident,
    not_resident,
    outputs,
    scratch,
    shared_plan,
    taken,
)
from gen.families.reduction.algorithms.demands import demand_of, handed_quarters, least_of
from gen.families.reduction.oracle import Share, chain, roundings, tree
from gen.families.reduction.shapes import MOST_GROUPS, Form, apart, edges, form, lying, problem, rows_of
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.state import state_of

ALONE = 0
"""Blocks for each multiprocessor: one cluster for a row, whatever its length."""
LARGEST_CLUSTER = 8
"""Blocks in a cluster that every device with clusters allows."""
MOST_OF_CLUSTERED_THREAD = 256
"""Elements of a row that one cluster reduces, for each thread: with more, more blocks are faster by far."""


@dataclass(frozen=True, kw_only=True)
class SharingConfig(Config):
    """How rows are divided between blocks and threads."""

    threads_per_block: int = tunable("tpb", (128, 256, 512, 1024), base=256, help="threads per block")
    unroll: int = tunable("u", (1, 2, 4, 8), base=4, help="vector loads in flight per thread")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes per vector load")
    blocks_per_sm: int = tunable(
        "bpm",
        (1, 2, 4, 8, SEVERAL_WAVES),
        base=2,
        help=f"most blocks per multiprocessor; {SEVERAL_WAVES}: several waves of blocks",
    )


C = TypeVar("C", bound=SharingConfig)


class Sharing(ReductionAlgorithm[C]):
    """Rows that blocks share; the algorithms differ in how partial results are combined."""

    @abstractmethod
    def combine(self, config: C) -> Combine:
        """The combine strategy of the blocks of a row."""

    def illegal(self, spec: ReductionSpec, config: C) -> str | None:
        """A vector holds at least one element."""
        return holds_no_element(spec, config.vec_bytes)

    def unsupported_extents(self, spec: ReductionSpec, config: C, extents: Extents, limits: Limits) -> str | None:
        """Rows of neighbouring elements."""
        if form(extents) not in (Form.WHOLE, Form.ROWS):
            return "it supports only elements that are contiguous along the reduced axes"
        return beyond_grid(self.blocks_of_plan(spec, config, extents, limits))

    def edge_cases(self, spec: ReductionSpec, config: C) -> Iterator[Extents]:
        """Rows of which the last of a block's tiles has 1, 2, all but 1 and all of its elements."""
        tile = config.threads_per_block * config.unroll * (config.vec_bytes // spec.dtype.size)
        return (rows_of(spec, 2, n) for n in edges(tile) if spec.axis != ())

    @made_once
    def blocks(self, spec: ReductionSpec, config: C) -> Expr:
        """Blocks of a row: one for every `unroll` vectors a thread, up to its part of `blocks_per_sm`."""
        per_block = config.threads_per_block * config.unroll * (config.vec_bytes // spec.dtype.size)
        most = size("multiprocessors") * config.blocks_per_sm
        if has_rows(spec):
            most = most // size("outer").at_least(1)
        return size("n").ceil_div(per_block).at_most(most).at_least(1)

    @override
    def plan(self, spec: ReductionSpec, config: C) -> Plan:
        combine, blocks = self.combine(config), self.blocks(spec, config).called("blocks")
        block, n = (config.threads_per_block, 1, 1), (I64, size("n"))
        if not has_rows(spec):
            return shared_plan(spec, combine, block, (n,), splits=blocks, states=blocks, second=(n,))
        most = size("multiprocessors") * config.blocks_per_sm
        numbers = (n, (I64, size("outer_pitch")), (U32, blocks))
        return shared_plan(
            spec, combine, block, numbers, splits=blocks, states=most, groups=size("outer"), tickets=most, second=(n,)
        )

    def block_reduce(self, spec: ReductionSpec, states: int) -> int:
        """Roundings of the block reduce of so many states."""
        return block_roundings(states)

    @override
    def roundings(self, spec: ReductionSpec, config: C, extents: Extents, limits: Limits) -> int:
        n, threads = extents["n"], config.threads_per_block
        blocks = self.blocks(spec, config).at(with_limits(extents, limits))
        reduce = partial(self.block_reduce, spec)
        combined = combine_roundings(self.combine(config), blocks, threads, reduce)
        share = Share.of_tiles(spec, n, config.unroll, config.vec_bytes, threads, blocks)
        return roundings(spec, n, share, reduce(min(threads, n)) + combined)

    @override
    def demand(self, spec: ReductionSpec, config: C, extents: Extents, alignment: int, limits: Limits) -> Demand:
        blocks = self.blocks_of_plan(spec, config, extents, limits)
        vectors = max(extents["n"] * spec.dtype.size / config.vec_bytes, 1.0) * extents.get("outer", 1)
        threads = max(blocks, 1) * config.threads_per_block  # of no rows there are no blocks
        shared = blocks > extents.get("outer", 1)
        return demand_of(
            spec, extents, blocks=blocks, threads_per_block=config.threads_per_block,
            busy=min(vectors / threads, 1.0), vectors=max(vectors / threads, 1.0), at_once=config.unroll,
            vec_bytes=config.vec_bytes, more_instructions=40 + 10 * config.threads_per_block // WARP,
            combine=self.combine(config) if shared else None,
            handed=(blocks // max(extents.get("outer", 1), 1) - 1) * handed_quarters(spec) * shared,
        )  # fmt: skip

    @override
    def least(self, spec: ReductionSpec, config: C, limits: Limits) -> Least:
        return least_of(
            spec, config.threads_per_block, config.vec_bytes,
            more_instructions=40 + 10 * config.threads_per_block // WARP,
        )  # fmt: skip

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: C) -> int:
        return config.unroll * config.vec_bytes


@dataclass(frozen=True, kw_only=True)
class GridConfig(SharingConfig):
    """How `grid` divides the array between blocks and threads, and how it combines partial results."""

    load_modifier: LoadModifier = load_modifier(LoadModifier.DEFAULT, LoadModifier.CG, LoadModifier.CS)
    combine: Combine = choice("", (Combine.TICKET, Combine.SECOND_PASS), help=COMBINE_HELP)

    def unsearched(self) -> str | None:
        """Past the first-level cache, and before a second launch, what is searched is what may pay."""
        if self.load_modifier is LoadModifier.CG and self.vec_bytes < 16:
            return "loads that bypass L1 (cg) are tried with vec_bytes 16 alone"
        few = few_second_passes(self.combine, self.unroll, self.vec_bytes, self.load_modifier)
        return few or beyond_resident(self.threads_per_block, self.blocks_per_sm)


class Grid(Sharing[GridConfig]):
    """Partial results of blocks, combined in index order by the block that ends last, or by a second launch."""

    name = "grid"
    template = "reduction/grid.cu.jinja"
    summary = (
        "The blocks of a row stride through it with vector loads; the block that finishes last, or one of a second "
        "launch, combines the partial results in index order, so that every run gives the same bits."
    )
    config = GridConfig

    @override
    def combine(self, config: GridConfig) -> Combine:
        return config.combine


@dataclass(frozen=True, kw_only=True)
class FlagsConfig(SharingConfig):
    """How `flags` divides the array between blocks and threads: no more blocks than the device holds at once."""

    vec_bytes: int = tunable("v", (8, 16), base=16, help="bytes per vector load")
    blocks_per_sm: int = tunable("bpm", (1, 2, 4, 8), base=2, help="most blocks per multiprocessor")
    load_modifier: LoadModifier = load_modifier(LoadModifier.DEFAULT, LoadModifier.CS)

    def illegal(self) -> str | None:
        """The blocks that one waits for are there with it."""
        return never_resident(Combine.FLAGS, self.threads_per_block, self.blocks_per_sm)


class Flags(Sharing[FlagsConfig]):
    """Block partials, handed with a flag to the last block, which waits for them."""

    name = "flags"
    template = "reduction/flags.cu.jinja"
    summary = (
        "One launch: the blocks of a row stride through it with vector loads. Each hands its partial result to the "
        "last block, with a flag beside every word; that block waits for all of them and combines them in index order. "
        "It needs no fence and no counter of blocks, and so ends sooner than grid. It relies on blocks with smaller "
        "numbers being started first, which GPUs do, though CUDA does not promise an order."
    )
    config = FlagsConfig

    def infeasible(self, spec: ReductionSpec, config: FlagsConfig, limits: Limits) -> str | None:
        """The blocks that one waits for must fit on the device together with it."""
        return not_resident(Combine.FLAGS, config.threads_per_block, config.blocks_per_sm, limits)

    @override
    def combine(self, config: FlagsConfig) -> Combine:
        return Combine.FLAGS

    @override
    def block_reduce(self, spec: ReductionSpec, states: int) -> int:
        return lane_roundings(states) if state_of(spec).light else block_roundings(states)


@dataclass(frozen=True, kw_only=True)
class ClusterConfig(SharingConfig):
    """How `cluster` divides rows between clusters, blocks and threads."""

    threads_per_block: int = tunable("tpb", (256, 512, 1024), base=512, help="threads per block")
    unroll: int = tunable("u", (2, 4, 8), base=2, help="vector loads in flight per thread")
    vec_bytes: int = tunable("v", (8, 16), base=16, help="bytes per vector load")
    blocks_per_sm: int = tunable(
        "bpm", (ALONE, 1, 2), base=ALONE, help=f"most blocks per multiprocessor; {ALONE}: one cluster per row"
    )
    blocks_per_cluster: int = tunable("c", (2, 4, LARGEST_CLUSTER), base=LARGEST_CLUSTER, help="blocks per cluster")

    def unsearched(self) -> str | None:
        """Narrow vectors spread a small array over more threads; several clusters serve long rows."""
        if self.vec_bytes < 16 and (self.unroll > 2 or self.blocks_per_sm != ALONE):
            return "vec_bytes under 16 is for little data: it is tried with one cluster per row and unroll 2"
        if self.blocks_per_sm != ALONE and (self.blocks_per_cluster < LARGEST_CLUSTER or self.unroll < 4):
            return f"several clusters per row are tried with {LARGEST_CLUSTER} blocks per cluster and unroll 4 or more"
        return beyond_resident(self.threads_per_block, self.blocks_per_sm)


class Cluster(Sharing[ClusterConfig]):
    """The warps' results of a cluster in one block's shared memory; those of several clusters as in `grid`."""

    name = "cluster"
    template = "reduction/cluster.cu.jinja"
    summary = (
        "One launch: the blocks of a cluster stride through a row with vector loads, and every warp writes its result "
        "to the shared memory of the first block, which combines them in order. Where a row has one cluster, no "
        "scratch memory, fence or atomic is needed. Otherwise the cluster that finishes last combines the partial "
        "results in index order."
    )
    config = ClusterConfig

    @override
    def combine(self, config: ClusterConfig) -> Combine:
        return Combine.TICKET

    def illegal(self, spec: ReductionSpec, config: ClusterConfig) -> str | None:
        """A result has more than one element, which the blocks of a cluster share."""
        if spec.axis == ():
            return "no axis is reduced: the blocks of a cluster would share single elements"
        return super().illegal(spec, config)

    def unsearched(self, spec: ReductionSpec, config: ClusterConfig) -> str | None:
        """Vectors under 16 bytes spread a small array over more threads; rows are many."""
        return "for rows tuning tries vec_bytes 16 alone" if has_rows(spec) and config.vec_bytes < 16 else None

    def unsupported_extents(
        self, spec: ReductionSpec, config: ClusterConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Rows of neighbouring elements, no longer than one cluster takes if there is to be no other.

        And, where there are several, no shorter than to give each thread of a cluster something to do.
        """
        threads = config.blocks_per_cluster * config.threads_per_block
        if extents.get("outer", 1) > 1 and extents["n"] < threads:
            return f"with several rows, each must have at least one element per thread, {threads}"
        if config.blocks_per_sm == ALONE and extents["n"] > MOST_OF_CLUSTERED_THREAD * threads:
            return f"it supports at most {MOST_OF_CLUSTERED_THREAD} elements of a row per thread"
        return super().unsupported_extents(spec, config, extents, limits)

    def edge_cases(self, spec: ReductionSpec, config: ClusterConfig) -> Iterator[Extents]:
        """Rows of two clusters; those of which the last block has 1, 2, all but 1 and all elements of a tile."""
        tile = config.threads_per_block * config.unroll * (config.vec_bytes // spec.dtype.size)
        whole = tile * config.blocks_per_cluster
        return (rows_of(spec, 2, n) for n in (whole + 1, *edges(whole - tile)[:2], whole - 1, whole))

    def clusters(self, spec: ReductionSpec, config: ClusterConfig) -> Expr:
        """Clusters of a row: one for every `unroll` vectors a thread, up to its part of `blocks_per_sm`."""
        if config.blocks_per_sm == ALONE:
            return ONE
        per_block = config.threads_per_block * config.unroll * (config.vec_bytes // spec.dtype.size)
        return size("n").ceil_div(per_block * config.blocks_per_cluster).at_most(self._most(spec, config)).at_least(1)

    @override
    def plan(self, spec: ReductionSpec, config: ClusterConfig) -> Plan:
        clusters, rows = self.clusters(spec, config).called("clusters"), has_rows(spec)
        alone = config.blocks_per_sm == ALONE
        most = size("multiprocessors") * config.blocks_per_sm // config.blocks_per_cluster
        tickets = most if rows else None
        numbers = ((I64, size("n")), (I64, size("outer_pitch")), (U32, clusters))
        launch = Launch(
            grid=((size("outer") if rows else ONE) * clusters * config.blocks_per_cluster, ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(
                "in", *outputs(spec), *(() if alone else arguments(Combine.TICKET, tickets)),
                *numbers[: 1 if not rows else 2 if alone else 3],
            ),
            cluster=(config.blocks_per_cluster, 1, 1),
        )  # fmt: skip
        if alone:
            return Plan((launch,))
        return Plan((launch,), scratch(spec, Combine.TICKET, clusters, most if rows else clusters, tickets))

    @override
    def roundings(self, spec: ReductionSpec, config: ClusterConfig, extents: Extents, limits: Limits) -> int:
        n, threads = extents["n"], config.threads_per_block
        clusters = self.clusters(spec, config).at(with_limits(extents, limits))
        blocks = clusters * config.blocks_per_cluster
        share = Share.of_tiles(spec, n, config.unroll, config.vec_bytes, threads, blocks)
        # One warp takes the states of all warps of the cluster, and that of the last cluster those of the others.
        tiles = -(-n // (threads * config.unroll * (config.vec_bytes // spec.dtype.size)))
        warps = min(config.blocks_per_cluster, tiles) * threads // WARP
        combined = chain(-(-warps // WARP)) + tree(min(warps, WARP))
        combined += combine_roundings(Combine.TICKET, clusters, WARP, tree)
        return roundings(spec, n, share, tree(min(WARP, n)) + combined)

    def _most(self, spec: ReductionSpec, config: ClusterConfig) -> Expr:
        """Clusters that there may be of a row."""
        most = size("multiprocessors") * config.blocks_per_sm // config.blocks_per_cluster
        return most // size("outer").at_least(1) if has_rows(spec) else most


@dataclass(frozen=True, kw_only=True)
class StridedConfig(Config):
    """How `strided` divides the elements of a result between threads and blocks."""

    threads_per_block: int = tunable("tpb", (64, 128, 256), base=128, help="threads per block")
    unroll: int = tunable("u", (1, 4, 8), base=4, help="loads in flight per thread")
    blocks_per_sm: int = tunable(
        "bpm", (4, 8), base=8, help="most blocks per multiprocessor; more split each result further"
    )
    combine: Combine = choice("", (Combine.TICKET, Combine.SECOND_PASS), help=COMBINE_HELP)


class Strided(ReductionAlgorithm[StridedConfig]):
    """Blocks that walk over up to four reduced axes, with any strides."""

    name = "strided"
    template = "reduction/strided.cu.jinja"
    summary = (
        "For axes that alternate between kept and reduced ones, and arrays with gaps: every result has one or more "
        "blocks, whose threads go from element to element over all reduced axes."
    )
    config = StridedConfig

    def unsupported_extents(
        self, spec: ReductionSpec, config: StridedConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Only what has no simpler form."""
        if form(extents) is not Form.STRIDED:
            return "it is for arrays whose axes do not merge to a matrix"
        return beyond_grid(self.blocks_of_plan(spec, config, extents, limits))

    def edge_cases(self, spec: ReductionSpec, config: StridedConfig) -> Iterator[Extents]:
        """Elements apart: few, or the last of a block's tiles has 1, 2, all but 1 and all; axes that do not merge."""
        for n in (5, *edges(config.threads_per_block * config.unroll)):
            if spec.axis:
                yield lying(spec, 2, n, 1, gap=1, step=2)
            else:
                yield problem(spec, (n,) if spec.axis is None else (2, n), gap=1, step=2)
        yield from islice(taken(self, spec, config, apart(spec, WARP + 1, reduced=spec.axis != ())), 1)

    @made_once
    def splits(self, config: StridedConfig) -> Expr:
        """Blocks of a result."""
        most = (size("multiprocessors") * config.blocks_per_sm) // size("outer").at_least(1)
        return size("n").ceil_div(config.threads_per_block * config.unroll).at_most(most).at_least(1)

    @override
    def plan(self, spec: ReductionSpec, config: StridedConfig) -> Plan:
        splits, n = self.splits(config), (I64, size("n"))
        axes = [f"{letter}{axis}" for letter in "kr" for axis in range(MOST_GROUPS)]
        sizes = [name for axis in axes for name in (axis, f"{axis[0]}s{axis[1]}")]
        most = size("multiprocessors") * config.blocks_per_sm
        return shared_plan(
            spec,
            config.combine,
            (config.threads_per_block, 1, 1),
            ((U32, splits), n, *((I64, size(name)) for name in sizes)),
            splits=splits,
            states=most,
            groups=size("outer"),
            tickets=most,
            second=(n,),
        )

    @override
    def roundings(self, spec: ReductionSpec, config: StridedConfig, extents: Extents, limits: Limits) -> int:
        n, threads = extents["n"], config.threads_per_block
        splits = self.splits(config).at(with_limits(extents, limits))
        own = chain(-(-n // (splits * threads)))
        combined = combine_roundings(config.combine, splits, threads, block_roundings)
        return roundings(spec, n, Share(own, own), block_roundings(min(threads, n)) + combined)

    @override
    def demand(
        self, spec: ReductionSpec, config: StridedConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        splits = self.splits(config).at(with_limits(extents, limits))
        threads = splits * config.threads_per_block
        # Neighbouring threads read elements of which memory moves whole sectors.
        apart = extents["rs3"] * spec.dtype.size
        return demand_of(
            spec, extents, blocks=extents["outer"] * splits, threads_per_block=config.threads_per_block,
            busy=min(extents["n"] / threads, 1.0), vectors=max(extents["n"] / threads, 1.0), at_once=config.unroll,
            vec_bytes=spec.dtype.size, walk=35, more_instructions=600,
            combine=config.combine if splits > 1 else None,
            moved_share=min(max(apart, spec.dtype.size), SECTOR_BYTES) / spec.dtype.size,
        )  # fmt: skip

    @override
    def least(self, spec: ReductionSpec, config: StridedConfig, limits: Limits) -> Least:
        return least_of(spec, config.threads_per_block, spec.dtype.size, walk=35, more_instructions=600)

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: StridedConfig) -> int:
        return config.unroll * spec.dtype.size
