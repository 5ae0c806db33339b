"""The literature's nested reductions: kernels that launch their own next step.

After Cheng, Grossman and McKercher, Professional CUDA C Programming, chapter 3, "Dynamic Parallelism". There a block
waits for the grid that it has launched, which device code cannot do any more: here a child begins when all blocks of
its parent have ended, as a tail launch (CUDA C++ Programming Guide, "CUDA Dynamic Parallelism"). So the parent's
writes are seen by the child, whether or not there was a barrier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from gen.dtypes import I64
from gen.families.base import Extents, Launch, Limits, Named, Plan, Scratch
from gen.families.config import tunable
from gen.families.expr import ONE, ZERO, size
from gen.families.reduction.blocks import BlockPartials, ShareConfig, copied
from gen.families.reduction.spec import ReductionSpec

MOST_BLOCKS = 2**15  # that launch a grid each: the literature's 2^24 elements, which take seconds on a Hopper


class Children(Enum):
    """Who launches the next step, and when."""

    SYNC = "sync"  # each block a grid of its own, behind a barrier
    NOSYNC = "nosync"  # each block a grid of its own, without one
    WHOLE = "whole"  # the first block one grid for all


@dataclass(frozen=True, kw_only=True)
class NestedConfig(ShareConfig):
    """How the steps follow each other."""

    threads_per_block: int = tunable("tpb", (64, 128, 256, 512, 1024), base=512, help="elements that a block adds up")
    children: Children = tunable(
        "", tuple(Children), base=Children.WHOLE, help="who launches the next step: each block, or the first for all"
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
            f"its {blocks} blocks launch a grid each, and room is made for those of {MOST_BLOCKS}: it takes up to "
            f"{MOST_BLOCKS * config.threads_per_block} elements"
        )

    def inputs(self, spec: ReductionSpec, config: NestedConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "threads_per_block": config.threads_per_block,
            "whole": config.children is Children.WHOLE,
            "barrier": config.children is Children.SYNC,
        }

    def plan(self, spec: ReductionSpec, config: NestedConfig) -> Plan:
        """A private copy, the first step, which launches the others, the sum of the blocks' partial results."""
        n = size("n")
        whole = config.children is Children.WHOLE
        threads = config.threads_per_block // (2 if whole else 1)
        reduce = Launch(
            grid=(self.blocks(config), ONE, ONE),
            block=(threads, 1, 1),
            arguments=("work", "partials", (I64, n)),
            # A grid that runs has not given back its place when it launches the next one.
            waiting=ZERO if whole else self.blocks(config) * 2,
        )
        scratch = (Scratch("work", n * spec.dtype.size), Scratch("partials", self.blocks(config) * spec.dtype.size))
        return Plan((copied(n), reduce, self.finish(config)), scratch)


NESTED = (
    Named("gpuRecursiveReduce", "nested", {"children": "sync"}, {}, 11, over=None),
    Named("gpuRecursiveReduceNosync", "nested", {"children": "nosync"}, {}, 12, published=0.172 / 0.059),
    Named("gpuRecursiveReduce2", "nested", {"children": "whole"}, {}, 13, published=0.059 / 0.0008),
)
