"""The literature's trees: a block adds pairs of its elements, pairs of these sums, and so on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from gen.dtypes import I64
from gen.families.base import Launch, Named, Plan, Scratch
from gen.families.config import tunable
from gen.families.expr import ONE, ZERO, constant, size
from gen.families.reduction.blocks import BlockPartials, BlocksConfig, copied
from gen.families.reduction.spec import ReductionSpec


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

    unroll: int = tunable("u", (1, 2, 4, 8), base=1, help="data blocks that a block folds into one first")
    pairs: Pairs = tunable("", tuple(Pairs), base=Pairs.INTERLEAVED, help="which elements a step adds to each other")
    memory: Memory = tunable("", tuple(Memory), base=Memory.SHARED, help="where sums lie: global or shared memory")
    loop: Loop = tunable("", tuple(Loop), base=Loop.FIXED, help="steps in a loop, or the last or all of them unrolled")

    def illegal(self) -> str | None:
        """What is unrolled is the interleaved tree."""
        if self.pairs is not Pairs.INTERLEAVED and self.loop is not Loop.LOOP:
            return f"{self.pairs.value} pairs are added in a loop"
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
        """All that the template reads."""
        return {
            **super().inputs(spec, config),
            "pairs": config.pairs.value,
            "in_place": config.memory is Memory.GLOBAL,
            "dynamic": config.memory is Memory.DYNAMIC,
            "last_warp": config.loop is not Loop.LOOP,
            "complete": config.loop in (Loop.COMPLETE, Loop.FIXED),
            "fixed_block": config.loop is Loop.FIXED,
        }

    def plan(self, spec: ReductionSpec, config: TreeConfig) -> Plan:
        """A private copy if it works in place, the blocks' partial results, their sum."""
        n, in_place = size("n"), config.memory is Memory.GLOBAL
        dynamic = config.memory is Memory.DYNAMIC
        reduce = Launch(
            grid=(self.blocks(config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("work" if in_place else "in", "partials", (I64, n)),
            shared_bytes=constant(config.threads_per_block * spec.dtype.size) if dynamic else ZERO,
        )
        partials = Scratch("partials", self.blocks(config) * spec.dtype.size)
        if not in_place:
            return Plan((reduce, self.finish(config)), (partials,))
        return Plan((copied(n), reduce, self.finish(config)), (Scratch("work", n * spec.dtype.size), partials))


_IN_PLACE = {"pairs": "interleaved", "memory": "gmem"}
_SHARED = {"pairs": "interleaved", "memory": "smem", "loop": "fixed"}
NAMED = (
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
)  # fmt: skip
