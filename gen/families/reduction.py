"""Reductions: many elements to one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gen.dtypes import DTYPES, F32, I64, U32, DType, LoadModifier, read_dtype
from gen.errors import ShapeError, SpecError
from gen.families.base import (
    MAX_GRID_X,
    Algorithm,
    Array,
    Expected,
    Extents,
    Family,
    Launch,
    Layout,
    Limits,
    Named,
    Operand,
    Plan,
    Scratch,
    Work,
)
from gen.families.config import Config, tunable
from gen.families.exact import sums_are_exact
from gen.families.expr import ONE, Expr, constant, size
from gen.families.layout import check_dtype, is_contiguous, layouts_of
from gen.paths import templates_root

WARP = 32


@dataclass(frozen=True)
class ReductionSpec:
    """One operator over the elements of an array.

    Attributes:
        op: `sum`.
        dtype: of the input and the result.
        axes: `all`: the whole array, contiguous, of any shape.
    """

    op: str = "sum"
    dtype: DType = F32
    axes: str = "all"

    def __post_init__(self) -> None:
        if self.op != "sum":
            raise SpecError("ReductionSpec.op", "must be 'sum'", repr(self.op))
        if self.dtype != F32:
            raise SpecError("ReductionSpec.dtype", "must be f32", getattr(self.dtype, "name", repr(self.dtype)))
        if self.axes != "all":
            raise SpecError("ReductionSpec.axes", "must be 'all'", repr(self.axes))

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The array, and the 0-d result."""
        return (Operand("in", "in", self.dtype, ("n",)), Operand("out", "out", self.dtype))

    @property
    def label(self) -> str:
        """For instance `sum_f32`."""
        return f"{self.op}_{self.dtype.name}"

    @property
    def summary(self) -> str:
        """What is computed."""
        return f"The {self.op} of n {self.dtype.cuda}s; 0 for none."

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {"op": self.op, "dtype": self.dtype.name, "axes": self.axes}


@dataclass(frozen=True, kw_only=True)
class GridConfig(Config):
    """How `grid` divides the array between blocks and threads."""

    threads_per_block: int = tunable("tpb", (128, 256, 512, 1024), base=256, help="threads in a block")
    unroll: int = tunable("u", (1, 2, 4, 8), base=4, help="vector loads each thread has in flight")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes of one vector load")
    blocks_per_sm: int = tunable("bpm", (1, 2, 4, 8), base=2, help="most blocks for each multiprocessor")
    load_modifier: LoadModifier = tunable(
        "ld",
        (LoadModifier.DEFAULT, LoadModifier.CG, LoadModifier.CS),
        base=LoadModifier.DEFAULT,
        off=LoadModifier.DEFAULT,
        help="cache operator of the loads",
    )


class Grid(Algorithm[ReductionSpec, GridConfig]):
    """Block partials, finished in index order by the block that comes last."""

    name = "grid"
    template = "reduction/grid.cu.jinja"
    summary = (
        "One launch: every block strides through the array with vector loads; the block that finishes last adds up "
        "the partial results in index order, so that every run gives the same bits."
    )
    config = GridConfig

    def refuses(self, spec: ReductionSpec, config: GridConfig) -> str | None:
        """A vector holds at least one element."""
        if config.vec_bytes < spec.dtype.size:
            return f"vec_bytes {config.vec_bytes} holds no {spec.dtype.name}"
        return None

    def infeasible(self, spec: ReductionSpec, config: GridConfig, limits: Limits) -> str | None:
        """The blocks asked for must fit on a multiprocessor together."""
        resident = limits.threads_per_sm // config.threads_per_block
        if config.blocks_per_sm > resident:
            return f"a multiprocessor holds {resident} blocks of {config.threads_per_block} threads"
        return None

    def inputs(self, spec: ReductionSpec, config: GridConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "threads_per_block": config.threads_per_block,
            "unroll": config.unroll,
            "vec_bytes": config.vec_bytes,
            "load": config.load_modifier.intrinsic,
        }

    def blocks(self, spec: ReductionSpec, config: GridConfig) -> Expr:
        """One block for every `unroll` vectors a thread, up to `blocks_per_sm` a multiprocessor."""
        per_block = config.threads_per_block * config.unroll * (config.vec_bytes // spec.dtype.size)
        return size("n").ceil_div(per_block).at_most(size("sm_count") * config.blocks_per_sm).at_least(1)

    def plan(self, spec: ReductionSpec, config: GridConfig) -> Plan:
        """One launch; the ticket counts blocks that are done and wraps to 0 with the last."""
        blocks = self.blocks(spec, config)
        launch = Launch(
            grid=(blocks, ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("in", "out", "partials", "ticket", (I64, size("n"))),
        )
        scratch = (Scratch("partials", blocks * spec.dtype.size), Scratch("ticket", constant(U32.size), zeroed=True))
        return Plan((launch,), scratch)

    def roundings(self, spec: ReductionSpec, config: GridConfig, extents: Extents, limits: Limits) -> int:
        """Vectors of one thread, head and tail, the vector's items, two block sums, the partials of one thread."""
        items = config.vec_bytes // spec.dtype.size
        blocks = self.blocks(spec, config).at({**extents, **limits.sizes()})
        vectors = -(-extents["n"] // items)
        own = -(-vectors // (blocks * config.threads_per_block)) + 2 + (items - 1)
        finish = -(-blocks // config.threads_per_block) + _block_sum_roundings(config.threads_per_block)
        return own + _block_sum_roundings(config.threads_per_block) + (finish if blocks > 1 else 0)

    def bytes_in_flight(self, spec: ReductionSpec, config: GridConfig) -> int:
        """The loads of a round, none of which is used before all are asked for."""
        return config.unroll * config.vec_bytes


@dataclass(frozen=True, kw_only=True)
class BlocksConfig(Config):
    """How one block reduces its share: the two parameters of the literature's kernels."""

    threads_per_block: int = tunable("tpb", (64, 128, 256, 512, 1024), base=128, help="threads in a block")
    unroll: int = tunable("u", (1, 2, 4, 8, 16), base=1, help="data blocks that a block folds into one first")


class BlockPartials(Algorithm[ReductionSpec, BlocksConfig]):
    """What the literature's kernels share: one partial result a block, then a second launch that adds them up."""

    config = BlocksConfig

    def uncovered(self, spec: ReductionSpec, config: BlocksConfig, extents: Extents, limits: Limits) -> str | None:
        """One block for each share: the grid must hold them all."""
        blocks = self.blocks(config).at(extents)
        return f"it takes {blocks} blocks; a grid has at most {MAX_GRID_X}" if blocks > MAX_GRID_X else None

    def inputs(self, spec: ReductionSpec, config: BlocksConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {"threads_per_block": config.threads_per_block, "unroll": config.unroll}

    def blocks(self, config: BlocksConfig) -> Expr:
        """One block for each share of the array; one for an empty array."""
        return size("n").ceil_div(config.threads_per_block * config.unroll).at_least(1)

    def finish(self, config: BlocksConfig) -> Launch:
        """One block adds up the partial results in index order."""
        return Launch(
            grid=(ONE, ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("partials", "out", (I64, self.blocks(config))),
            entry="_finish",
        )

    def roundings(self, spec: ReductionSpec, config: BlocksConfig, extents: Extents, limits: Limits) -> int:
        """The data blocks, the block's tree, the partials of one thread, the last block's tree."""
        finish = -(-self.blocks(config).at(extents) // config.threads_per_block)
        tree = max(config.threads_per_block.bit_length() - 1, _block_sum_roundings(config.threads_per_block))
        return config.unroll + tree + finish + _block_sum_roundings(config.threads_per_block)

    def bytes_in_flight(self, spec: ReductionSpec, config: BlocksConfig) -> int:
        """An element of each data block."""
        return config.unroll * spec.dtype.size


class Interleaved(BlockPartials):
    """Pairs half the block apart, in place in global memory."""

    name = "interleaved"
    template = "reduction/interleaved.cu.jinja"
    summary = (
        "Each block halves its share in place in global memory: thread i adds the element one stride further, and the "
        "stride halves. A private copy keeps the caller's array as it was."
    )

    def plan(self, spec: ReductionSpec, config: BlocksConfig) -> Plan:
        """A private copy, the blocks' partial results, their sum."""
        n = size("n")
        copy_block = 256
        copy = Launch(
            grid=(n.ceil_div(copy_block).at_most(size("sm_count") * 8), ONE, ONE),
            block=(copy_block, 1, 1),
            arguments=("in", "work", (I64, n)),
            entry="_copy",
            setup=True,
        )
        reduce = Launch(
            grid=(self.blocks(config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("work", "partials", (I64, n)),
        )
        scratch = (Scratch("work", n * spec.dtype.size), Scratch("partials", self.blocks(config) * spec.dtype.size))
        return Plan((copy, reduce, self.finish(config)), scratch)


class Shfl(BlockPartials):
    """Warp shuffles, then the warps' sums."""

    name = "shfl"
    template = "reduction/shfl.cu.jinja"
    summary = (
        "Each warp adds its elements with shuffles, without a barrier; one warp then adds up the warps' sums, and a "
        "second launch the blocks'."
    )

    def plan(self, spec: ReductionSpec, config: BlocksConfig) -> Plan:
        """The blocks' partial results, their sum."""
        reduce = Launch(
            grid=(self.blocks(config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("in", "partials", (I64, size("n"))),
        )
        scratch = (Scratch("partials", self.blocks(config) * spec.dtype.size),)
        return Plan((reduce, self.finish(config)), scratch)


def _block_sum_roundings(threads_per_block: int) -> int:
    """Roundings of the partial `block_sum`: five shuffles in each warp, five over the warps' sums."""
    return 5 + 5 * (threads_per_block > WARP)


# The shape classes: how many elements there are, in words, and the most a class takes.
_SMALL, _MIDDLE, _LARGE = "at most 2^15 elements", "2^15 to 2^20 elements", "more than 2^20 elements"


class Reduction(Family[ReductionSpec]):
    """The family of reductions."""

    name = "reduction"
    summary = "many elements to one"
    algorithms: Mapping[str, Algorithm[ReductionSpec, Any]] = {a.name: a for a in (Grid(), Interleaved(), Shfl())}
    named = (
        Named("reduceInterleaved", "interleaved", {"unroll": 1}, {}, rank=3),
        Named("reduceUnrolling2", "interleaved", {"unroll": 2}, {}, rank=4),
        Named("reduceUnrolling4", "interleaved", {"unroll": 4}, {}, rank=5),
        Named("reduceUnrolling8", "interleaved", {"unroll": 8}, {}, rank=6),
        Named("reduceUnrolling16", "interleaved", {"unroll": 16}, {}, rank=7),
        Named("reduceShfl", "shfl", {"unroll": 1}, {}, rank=15),
    )
    catalogue = (ReductionSpec(),)
    templates = templates_root()

    def spell(self, label: str) -> ReductionSpec | None:
        """`{op}_{dtype}`."""
        op, separator, dtype = label.partition("_")
        return ReductionSpec(op, DTYPES[dtype]) if separator and dtype in DTYPES else None

    def from_json(self, content: Mapping[str, Any]) -> ReductionSpec:
        """The inverse of `ReductionSpec.to_json`."""
        dtype = read_dtype(content.get("dtype"), "ReductionSpec.dtype")
        return ReductionSpec(content.get("op", ""), dtype, content.get("axes", ""))

    def extents(self, spec: ReductionSpec, layouts: Mapping[str, Layout]) -> Extents:
        """`n`: an array of any shape is as many elements, provided they follow each other."""
        operand, result = spec.operands
        if "in" not in layouts:
            raise ShapeError("in", "is missing")
        for name, layout in layouts.items():
            if name not in ("in", "out"):
                raise ShapeError(name, "is no operand; there are in, out")
            check_dtype(operand if name == "in" else result, layout)
        if not is_contiguous(layouts["in"]):
            layout = layouts["in"]
            raise ShapeError("in", "must be contiguous", f"strides {layout.strides} at shape {layout.shape}")
        if "out" in layouts and layouts["out"].shape != ():
            raise ShapeError("out", "must have no axes", layouts["out"].shape)
        return {"n": prod(layouts["in"].shape)}

    def layouts(self, spec: ReductionSpec, extents: Extents) -> Mapping[str, Layout]:
        """As many elements in; a 0-d result."""
        return layouts_of(spec.operands, extents)

    def oracle(self, spec: ReductionSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """The sum in float64, which NumPy adds pairwise: fewer than 64 roundings of 2^-53 up to 2^40 elements."""
        wide = inputs["in"].astype(np.float64)
        with np.errstate(invalid="ignore"):
            value = np.asarray(wide.sum())
        magnitudes = np.abs(wide)
        magnitude = np.asarray(magnitudes.sum(where=np.isfinite(wide)))
        if sums_are_exact(spec.dtype, float(magnitude), wide):
            return {"out": Expected(value.astype(spec.dtype.numpy))}
        integral = bool((magnitudes <= 8).all() and (wide == np.rint(wide)).all())
        return {"out": Expected(value, magnitude, spec.dtype, integral)}

    def part(
        self, spec: ReductionSpec, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """The sum of what was read; partial results of 0 change it in nothing."""
        return self.oracle(spec, inputs, extents)[name] if spec.op == "sum" else None

    def work(self, spec: ReductionSpec, extents: Extents) -> Work:
        """Each element read once, one result written."""
        return Work(extents["n"] * spec.dtype.size, spec.dtype.size, extents["n"], "read")

    def shape_classes(self, spec: ReductionSpec) -> tuple[str, ...]:
        """By the number of elements."""
        return (_SMALL, _MIDDLE, _LARGE)

    def shape_class(self, spec: ReductionSpec, extents: Extents) -> str:
        """By the number of elements: a block's work, a wave of blocks, more."""
        n = extents["n"]
        return _SMALL if n <= 2**15 else _MIDDLE if n <= 2**20 else _LARGE

    def representative(self, spec: ReductionSpec, shape_class: str) -> Extents:
        """The size that stands for a class when it is tuned."""
        return {"n": {_SMALL: 2**15, _MIDDLE: 2**20, _LARGE: 2**28}[shape_class]}

    def cases(self, spec: ReductionSpec) -> Iterator[Extents]:
        """Nothing, one, one off a warp, a vector, a block's share; primes."""
        for n in (0, 1, 2, 3, 4, 5, 31, 32, 33, 127, 300, 1021, 1024, 4100, 5000, 8191, 32768, 33 * 1031):
            yield {"n": n}

    def base(self, spec: ReductionSpec, shape_class: str) -> tuple[str, Config]:
        """`grid`: wide blocks for small arrays, where latency counts; bytes in flight for large ones."""
        if shape_class == _SMALL:
            return "grid", GridConfig(threads_per_block=1024, unroll=8, blocks_per_sm=1)
        if shape_class == _MIDDLE:
            return "grid", GridConfig(threads_per_block=512, unroll=4, blocks_per_sm=1)
        return "grid", GridConfig(threads_per_block=512, unroll=8, blocks_per_sm=2)
