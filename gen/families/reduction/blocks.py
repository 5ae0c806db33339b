"""The literature's kernels: one partial result a block, then a second launch that adds them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from gen.dtypes import I64
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan, Scratch, beyond_grid
from gen.families.config import Config, tunable
from gen.families.expr import ONE, Expr, size
from gen.families.reduction.canonical import Form, form
from gen.families.reduction.roundings import block_roundings
from gen.families.reduction.spec import ReductionSpec


@dataclass(frozen=True, kw_only=True)
class ShareConfig(Config):
    """How one block reduces its share, an element for each thread."""

    threads_per_block: int = tunable("tpb", (64, 128, 256, 512, 1024), base=128, help="threads in a block")

    @property
    def folded(self) -> int:
        """Elements of a share for each thread."""
        return 1


@dataclass(frozen=True, kw_only=True)
class BlocksConfig(ShareConfig):
    """The same, and of several data blocks: the two parameters of the literature's kernels."""

    unroll: int = tunable("u", (1, 2, 4, 8, 16), base=1, help="data blocks that a block folds into one first")

    @property
    def folded(self) -> int:
        """One of each data block."""
        return self.unroll


C = TypeVar("C", bound=ShareConfig)


class BlockPartials(Algorithm[ReductionSpec, C]):
    """What the literature's kernels share: one partial result a block, then a second launch that adds them up."""

    def illegal(self, spec: ReductionSpec, config: C) -> str | None:
        """They add f32s, as in the literature."""
        return None if spec == ReductionSpec() else "it computes the sum of a whole array of f32"

    def unsupported_extents(self, spec: ReductionSpec, config: C, extents: Extents, limits: Limits) -> str | None:
        """One block for each share: the grid must hold them all."""
        if form(extents) is not Form.WHOLE:
            return "it takes arrays without gaps"
        return beyond_grid(self.blocks(config).at(extents))

    def inputs(self, spec: ReductionSpec, config: C) -> Mapping[str, object]:
        """All that the template reads."""
        return {"threads_per_block": config.threads_per_block, "unroll": config.folded}

    def blocks(self, config: C) -> Expr:
        """One block for each share of the array; one for an empty array."""
        return size("n").ceil_div(config.threads_per_block * config.folded).at_least(1)

    def finish(self, config: C) -> Launch:
        """One block adds up the partial results in index order."""
        return Launch(
            grid=(ONE, ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("partials", "out", (I64, self.blocks(config))),
            entry="_finish",
        )

    def roundings(self, spec: ReductionSpec, config: C, extents: Extents, limits: Limits) -> int:
        """The data blocks, the block's tree, the partials of one thread, the last block's tree."""
        finish = -(-self.blocks(config).at(extents) // config.threads_per_block)
        tree = max(config.threads_per_block.bit_length() - 1, block_roundings(config.threads_per_block))
        return config.folded + tree + finish + block_roundings(config.threads_per_block)

    def bytes_in_flight(self, spec: ReductionSpec, config: C) -> int:
        """An element of each data block."""
        return config.folded * spec.dtype.size


def copied(n: Expr) -> Launch:
    """The private copy that a kernel works in."""
    block = 256
    return Launch(
        grid=(n.ceil_div(block).at_most(size("multiprocessors") * 8), ONE, ONE),
        block=(block, 1, 1),
        arguments=("in", "work", (I64, n)),
        entry="_copy",
        setup=True,
    )


class Interleaved(BlockPartials[BlocksConfig]):
    """Pairs half the block apart, in place in global memory."""

    name = "interleaved"
    template = "reduction/interleaved.cu.jinja"
    summary = (
        "Each block halves its share in place in global memory: thread i adds the element one stride further, and the "
        "stride halves. A private copy keeps the caller's array as it was."
    )
    config = BlocksConfig

    def plan(self, spec: ReductionSpec, config: BlocksConfig) -> Plan:
        """A private copy, the blocks' partial results, their sum."""
        n = size("n")
        reduce = Launch(
            grid=(self.blocks(config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("work", "partials", (I64, n)),
        )
        scratch = (Scratch("work", n * spec.dtype.size), Scratch("partials", self.blocks(config) * spec.dtype.size))
        return Plan((copied(n), reduce, self.finish(config)), scratch)


class Shfl(BlockPartials[BlocksConfig]):
    """Warp shuffles, then the warps' sums."""

    name = "shfl"
    template = "reduction/shfl.cu.jinja"
    summary = (
        "Each warp adds its elements with shuffles, without a barrier; one warp then adds up the warps' sums, and a "
        "second launch the blocks'."
    )
    config = BlocksConfig

    def plan(self, spec: ReductionSpec, config: BlocksConfig) -> Plan:
        """The blocks' partial results, their sum."""
        reduce = Launch(
            grid=(self.blocks(config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("in", "partials", (I64, size("n"))),
        )
        scratch = (Scratch("partials", self.blocks(config) * spec.dtype.size),)
        return Plan((reduce, self.finish(config)), scratch)
