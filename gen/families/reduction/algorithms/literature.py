"""The literature's kernels: one partial result a block, then a second launch that adds them up.

After Cheng, Grossman and McKercher, Professional CUDA C Programming. In its chapter 3, "Dynamic Parallelism", a block
waits for the grid that it has launched, which device code cannot do any more: here a child begins when all blocks of
its parent have ended, as a tail launch (CUDA C++ Programming Guide, "CUDA Dynamic Parallelism"). So the parent's
writes are seen by the child, whether or not there was a barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from typing_extensions import override

from gen.dtypes import I64
from gen.families.base import Extents, Launch, Limits, Named, Plan, Scratch, beyond_grid
from gen.families.config import Config, tunable
from gen.families.expr import ONE, ZERO, Expr, constant, made_once, size
from gen.families.reduction.algorithms.common import ReductionAlgorithm, block_roundings
from gen.families.reduction.oracle import Share, chain, roundings, tree
from gen.families.reduction.shapes import Form, edges, form, rows_of
from gen.families.reduction.spec import ReductionSpec

_COPY_THREADS = 256
MOST_BLOCKS = 2**15
"""Blocks that launch a grid each: the literature's 2^24 elements, which take seconds on a Hopper."""


@dataclass(frozen=True, kw_only=True)
class ShareConfig(Config):
    """How one block reduces its share, an element for each thread."""

    threads_per_block: int = tunable("tpb", (64, 128, 256, 512, 1024), base=128, help="threads per block")

    @property
    def folded(self) -> int:
        """Elements of a share for each thread."""
        return 1


@dataclass(frozen=True, kw_only=True)
class BlocksConfig(ShareConfig):
    """The same, and of several data blocks: the two parameters of the literature's kernels."""

    unroll: int = tunable("u", (1, 2, 4, 8, 16), base=1, help="chunks of threads_per_block elements added up first")

    @property
    def folded(self) -> int:
        """One of each data block."""
        return self.unroll


C = TypeVar("C", bound=ShareConfig)


class BlockPartials(ReductionAlgorithm[C]):
    """What the literature's kernels share: one partial result a block, then a second launch that adds them up."""

    def illegal(self, spec: ReductionSpec, config: C) -> str | None:
        """They add f32s, as in the literature."""
        return None if spec == ReductionSpec() else "it only computes the sum of a whole array of f32"

    def unsupported_extents(self, spec: ReductionSpec, config: C, extents: Extents, limits: Limits) -> str | None:
        """One block for each share: the grid must hold them all."""
        if form(extents) is not Form.WHOLE:
            return "it supports only arrays without gaps"
        return beyond_grid(self.blocks(config).at(extents))

    def edge_cases(self, spec: ReductionSpec, config: C) -> Iterator[Extents]:
        """Arrays of which the last block's share has 1, 2, all but 1 and all elements."""
        return (rows_of(spec, 1, n) for n in edges(config.threads_per_block * config.folded))

    @made_once
    def blocks(self, config: C) -> Expr:
        """One block for each share of the array; one for an empty array."""
        return size("n").ceil_div(config.threads_per_block * config.folded).at_least(1)

    def in_place(self, config: C) -> bool:
        """Whether it works in place: in a private copy, which keeps the caller's array as it was."""
        return False

    def main(self, spec: ReductionSpec, config: C) -> Launch:
        """The launch that leaves the blocks' partial results."""
        return Launch(
            grid=(self.blocks(config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("work" if self.in_place(config) else "in", "partials", (I64, size("n"))),
        )

    @override
    def plan(self, spec: ReductionSpec, config: C) -> Plan:
        n, partials = size("n"), Scratch("partials", self.blocks(config) * spec.dtype.size)
        last = Launch(  # one block adds up the partial results in index order
            grid=(ONE, ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("partials", "out", (I64, self.blocks(config))),
            entry="_finish",
        )
        if not self.in_place(config):
            return Plan((self.main(spec, config), last), (partials,))
        copy = Launch(
            grid=(n.ceil_div(_COPY_THREADS).at_most(size("multiprocessors") * 8), ONE, ONE),
            block=(_COPY_THREADS, 1, 1),
            arguments=("in", "work", (I64, n)),
            entry="_copy",
            setup=True,
        )
        return Plan((copy, self.main(spec, config), last), (Scratch("work", n * spec.dtype.size), partials))

    @override
    def roundings(self, spec: ReductionSpec, config: C, extents: Extents, limits: Limits) -> int:
        n, threads = extents["n"], config.threads_per_block
        blocks = self.blocks(config).at(extents)
        second = chain(-(-blocks // threads)) + block_roundings(min(blocks, threads))
        return roundings(spec, n, Share(chain(min(config.folded, -(-n // threads))), 0), tree(min(threads, n)) + second)

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: C) -> int:
        return config.folded * spec.dtype.size


class Interleaved(BlockPartials[BlocksConfig]):
    """Pairs half the block apart, in place in global memory."""

    name = "interleaved"
    template = "reduction/interleaved.cu.jinja"
    summary = (
        "Each block halves its share in place in global memory: thread i adds the element that is one stride further "
        "on, and the stride is halved in each step. A private copy keeps the caller's array as it was."
    )
    config = BlocksConfig

    @override
    def in_place(self, config: BlocksConfig) -> bool:
        return True


class Shfl(BlockPartials[BlocksConfig]):
    """Warp shuffles, then the warps' sums."""

    name = "shfl"
    template = "reduction/shfl.cu.jinja"
    summary = (
        "Each warp adds its elements with shuffles, without a barrier; one warp then adds up the warps' sums, and a "
        "second launch the blocks'."
    )
    config = BlocksConfig


class Pairs(Enum):
    """Which elements are added to each other in a step, and by which threads."""

    NEIGHBORED = "neighbored"  # those a stride apart that doubles; every so-manieth thread works
    NEIGHBORED_LESS = "neighboredless"  # the same, and threads side by side work
    INTERLEAVED = "interleaved"  # those a stride apart that halves


class Memory(Enum):
    """Where sums lie meanwhile."""

    GLOBAL = "gmem"
    SHARED = "smem"
    DYNAMIC = "dyn"  # shared, its size given when it is launched


class Loop(Enum):
    """How the steps of a block are written."""

    LOOP = "loop"
    WARP = "warp"  # the last six unrolled, in one warp, without barriers of the block
    COMPLETE = "complete"  # all unrolled, for blocks of any size
    FIXED = "fixed"  # all unrolled, for blocks of one size


@dataclass(frozen=True, kw_only=True)
class TreeConfig(BlocksConfig):
    """How a block goes down its tree."""

    unroll: int = tunable("u", (1, 2, 4, 8), base=1, help="chunks of threads_per_block elements added up first")
    pairs: Pairs = tunable("", tuple(Pairs), base=Pairs.INTERLEAVED, help="which pairs of elements a step adds")
    memory: Memory = tunable("", tuple(Memory), base=Memory.SHARED, help="memory of the partial sums: global or shared")
    loop: Loop = tunable("", tuple(Loop), base=Loop.FIXED, help="steps in a loop, or the last or all of them unrolled")

    def illegal(self) -> str | None:
        """What is unrolled is the interleaved tree."""
        if self.pairs is not Pairs.INTERLEAVED and self.loop is not Loop.LOOP:
            return f"{self.pairs.value} pairs are only written with a loop"
        return None


class Tree(BlockPartials[TreeConfig]):
    """Sums of pairs, in one step after the other."""

    name = "tree"
    template = "reduction/tree.cu.jinja"
    summary = (
        "Each block adds pairs of its elements, then pairs of these sums, down to one, in global or shared memory; a "
        "second launch adds up the blocks' sums. Where it works in place, a private copy keeps the array as it was."
    )
    config = TreeConfig

    def inputs(self, spec: ReductionSpec, config: TreeConfig) -> Mapping[str, object]:
        """Where sums lie, and which steps are unrolled."""
        return {
            "in_place": config.memory is Memory.GLOBAL,
            "dynamic": config.memory is Memory.DYNAMIC,
            "last_warp": config.loop is not Loop.LOOP,
            "complete": config.loop in (Loop.COMPLETE, Loop.FIXED),
            "fixed_block": config.loop is Loop.FIXED,
        }

    @override
    def in_place(self, config: TreeConfig) -> bool:
        return config.memory is Memory.GLOBAL

    @override
    def main(self, spec: ReductionSpec, config: TreeConfig) -> Launch:
        dynamic = config.threads_per_block * spec.dtype.size if config.memory is Memory.DYNAMIC else 0
        return replace(super().main(spec, config), shared_bytes=constant(dynamic))


class Children(Enum):
    """Who launches the next step, and when."""

    SYNC = "sync"  # each block a grid of its own, behind a barrier
    NOSYNC = "nosync"  # each block a grid of its own, without one
    WHOLE = "whole"  # the first block one grid for all


@dataclass(frozen=True, kw_only=True)
class NestedConfig(ShareConfig):
    """How the steps follow each other."""

    threads_per_block: int = tunable(
        "tpb", (64, 128, 256, 512, 1024), base=512, help="threads per block, one element each"
    )
    children: Children = tunable(
        "",
        tuple(Children),
        base=Children.WHOLE,
        help="which block launches the next step: every block, or the first for all",
    )


class Nested(BlockPartials[NestedConfig]):
    """Each step of a block's tree is a grid that the step before has launched."""

    name = "nested"
    template = "reduction/nested.cu.jinja"
    summary = (
        "Each block adds the upper half of its elements to the lower half; the grid that does the same with that half "
        "is launched by the kernel itself, until one element is left, and a second launch adds up the blocks' sums. "
        "Proven on a GPU only. A private copy keeps the array as it was."
    )
    config = NestedConfig
    links = ("cudadevrt",)
    not_on_host = (
        "its kernel launches grids itself, which is no C++ that the CPU run could compile: it is proven on a GPU only"
    )

    def unsupported_extents(
        self, spec: ReductionSpec, config: NestedConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Where each block launches a grid, all of these wait at once."""
        reason = super().unsupported_extents(spec, config, extents, limits)
        blocks = self.blocks(config).at(extents) if reason is None else 0
        if config.children is Children.WHOLE or blocks <= MOST_BLOCKS:
            return reason
        return (
            f"each of its {blocks} blocks launches a grid, and room is reserved for {MOST_BLOCKS}: it supports up to "
            f"{MOST_BLOCKS * config.threads_per_block} elements"
        )

    @override
    def in_place(self, config: NestedConfig) -> bool:
        return True

    @override
    def main(self, spec: ReductionSpec, config: NestedConfig) -> Launch:
        whole = config.children is Children.WHOLE
        return replace(
            super().main(spec, config),
            block=(config.threads_per_block // (2 if whole else 1), 1, 1),
            # A grid that runs has not given back its place when it launches the next one.
            waiting=ZERO if whole else self.blocks(config) * 2,
        )


_IN_PLACE = {"pairs": "interleaved", "memory": "gmem"}
_SHARED = {"pairs": "interleaved", "memory": "smem", "loop": "fixed"}
NAMED = (
    Named("reduceInterleaved", "interleaved", {"unroll": 1}, {}, rank=3, published=1.34),
    Named("reduceUnrolling2", "interleaved", {"unroll": 2}, {}, rank=4),
    Named("reduceUnrolling4", "interleaved", {"unroll": 4}, {}, rank=5),
    Named("reduceUnrolling8", "interleaved", {"unroll": 8}, {}, rank=6, over="reduceInterleaved", published=4.90),
    Named("reduceUnrolling16", "interleaved", {"unroll": 16}, {}, rank=7),
    Named("reduceShfl", "shfl", {"unroll": 1}, {}, rank=18, over="reduceSmem", published=1.40),
    Named("reduceNeighbored", "tree", {"pairs": "neighbored", "memory": "gmem", "loop": "loop", "unroll": 1}, {}, 1),
    Named(
        "reduceNeighboredLess", "tree", {"pairs": "neighboredless", "memory": "gmem", "loop": "loop", "unroll": 1},
        {}, 2, published=1.26,
    ),
    Named(
        "reduceUnrollWarps8", "tree", {**_IN_PLACE, "loop": "warp", "unroll": 8},
        {}, 8, over="reduceUnrolling8", published=1.05,
    ),
    Named("reduceCompleteUnrollWarps8", "tree", {**_IN_PLACE, "loop": "complete", "unroll": 8}, {}, 9, published=1.06),
    Named("reduceCompleteUnroll", "tree", {**_IN_PLACE, "loop": "fixed", "unroll": 8}, {}, 10, published=1.02),
    Named("reduceGmem", "tree", {**_IN_PLACE, "loop": "fixed", "unroll": 1}, {}, 14, over=None),
    Named("reduceSmem", "tree", {**_SHARED, "unroll": 1}, {}, 15, published=60.35 / 31.67),
    Named("reduceSmemUnroll", "tree", {**_SHARED, "unroll": 4}, {}, 16, published=161.21 / 60.35),
    Named("reduceSmemUnrollDyn", "tree", {**_SHARED, "memory": "dyn", "unroll": 4}, {}, 17, published=161.29 / 161.21),
    Named("gpuRecursiveReduce", "nested", {"children": "sync"}, {}, 11, over=None),
    Named("gpuRecursiveReduceNosync", "nested", {"children": "nosync"}, {}, 12, published=0.172 / 0.059),
    Named("gpuRecursiveReduce2", "nested", {"children": "whole"}, {}, 13, published=0.059 / 0.0008),
)  # fmt: skip
