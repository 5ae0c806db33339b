"""`strided`: whatever no other algorithm takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gen.dtypes import I64, U32
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan, beyond_grid
from gen.families.config import Config, tunable
from gen.families.expr import ONE, Expr, size
from gen.families.reduction.canonical import MOST_GROUPS, Form, form
from gen.families.reduction.finish import Finish, arguments, scratch, second_pass
from gen.families.reduction.roundings import block_roundings, roundings
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.text import state_bytes, state_text


@dataclass(frozen=True, kw_only=True)
class StridedConfig(Config):
    """How `strided` divides the elements of a result between threads and blocks."""

    threads_per_block: int = tunable("tpb", (64, 128, 256), base=128, help="threads in a block")
    unroll: int = tunable("u", (1, 4, 8), base=4, help="loads each thread has in flight")
    blocks_per_sm: int = tunable("bpm", (4, 8), base=8, help="most blocks for each multiprocessor that share results")
    finish: Finish = tunable(
        "",
        (Finish.TICKET, Finish.SECOND_PASS),
        base=Finish.TICKET,
        off=Finish.TICKET,
        help="how blocks that share a result end",
    )


class Strided(Algorithm[ReductionSpec, StridedConfig]):
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
            return "it takes arrays whose axes do not merge to a matrix"
        return beyond_grid(self.plan(spec, config).launches[0].grid[0].at({**extents, **limits.sizes()}))

    def inputs(self, spec: ReductionSpec, config: StridedConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "s": state_text(spec),
            "second_pass": config.finish is Finish.SECOND_PASS,
            "threads_per_block": config.threads_per_block,
            "unroll": config.unroll,
        }

    def splits(self, config: StridedConfig) -> Expr:
        """Blocks of a result."""
        most = (size("multiprocessors") * config.blocks_per_sm) // size("outer").at_least(1)
        return size("n").ceil_div(config.threads_per_block * config.unroll).at_most(most).at_least(1)

    def plan(self, spec: ReductionSpec, config: StridedConfig) -> Plan:
        """One launch, after which what counts the blocks of a result that are done is 0 again; a second if asked."""
        splits, results = self.splits(config), tuple(name for name, _, _ in spec.results)
        block = (config.threads_per_block, 1, 1)
        axes = [f"{letter}{axis}" for letter in "kr" for axis in range(MOST_GROUPS)]
        sizes = [name for axis in axes for name in (axis, f"{axis[0]}s{axis[1]}")]
        launch = Launch(
            grid=(size("outer") * splits, ONE, ONE),
            block=block,
            arguments=(
                "in", *results, *arguments(config.finish, tickets="tickets"),
                (U32, splits), *((I64, size(name)) for name in ("n", *sizes)),
            ),
        )  # fmt: skip
        most = size("multiprocessors") * config.blocks_per_sm
        memory = scratch(config.finish, splits, most, state_bytes(spec), most)
        if config.finish is Finish.SECOND_PASS:
            return Plan((launch, second_pass(size("outer"), splits, block, results, (I64, size("n")))), memory)
        return Plan((launch,), memory)

    def roundings(self, spec: ReductionSpec, config: StridedConfig, extents: Extents, limits: Limits) -> int:
        """The elements of one thread, two blocks' trees, the partials of one thread."""
        splits = self.splits(config).at({**extents, **limits.sizes()})
        own = -(-extents["n"] // (splits * config.threads_per_block))
        tree = block_roundings(config.threads_per_block)
        finish = -(-splits // config.threads_per_block) + tree if splits > 1 else 0
        return roundings(spec, extents["n"], 1, own + tree + finish)

    def bytes_in_flight(self, spec: ReductionSpec, config: StridedConfig) -> int:
        """The loads of a round."""
        return config.unroll * spec.dtype.size
