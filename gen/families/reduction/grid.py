"""`grid`: every row has one or more blocks; the block that comes last finishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gen.dtypes import I64, U32, LoadModifier
from gen.families.base import MAX_GRID_X, Algorithm, Extents, Launch, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.expr import ONE, Expr, size
from gen.families.reduction.canonical import Form, form
from gen.families.reduction.finish import Finish, arguments, scratch
from gen.families.reduction.roundings import block_roundings, roundings
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.text import lanes, run, state_bytes, state_text

MANY = 64  # blocks for each multiprocessor, which come one after another


@dataclass(frozen=True, kw_only=True)
class GridConfig(Config):
    """How `grid` divides the array between blocks and threads."""

    threads_per_block: int = tunable("tpb", (128, 256, 512, 1024), base=256, help="threads in a block")
    unroll: int = tunable("u", (1, 2, 4, 8), base=4, help="vector loads each thread has in flight")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes of one vector load")
    blocks_per_sm: int = tunable(
        "bpm",
        (1, 2, 4, 8, MANY),
        base=2,
        help=f"most blocks for each multiprocessor; {MANY}: several times what it holds",
    )
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
        "One launch: the blocks of a row stride through it with vector loads; the block that finishes last combines "
        "the partial results in index order, so that every run gives the same bits."
    )
    config = GridConfig
    finish = Finish.TICKET

    def refuses(self, spec: ReductionSpec, config: GridConfig) -> str | None:
        """A vector holds at least one element; narrower ones serve where searching them has paid."""
        if config.vec_bytes < spec.dtype.size:
            return f"vec_bytes {config.vec_bytes} holds no {spec.dtype.name}"
        return None

    def infeasible(self, spec: ReductionSpec, config: GridConfig, limits: Limits) -> str | None:
        """The blocks asked for must fit on a multiprocessor together, unless there are to be many."""
        resident = limits.threads_per_sm // config.threads_per_block
        if resident < config.blocks_per_sm < MANY:
            return f"a multiprocessor holds {resident} blocks of {config.threads_per_block} threads"
        return None

    def uncovered(self, spec: ReductionSpec, config: GridConfig, extents: Extents, limits: Limits) -> str | None:
        """Rows of neighbouring elements."""
        if form(extents) not in (Form.WHOLE, Form.ROWS):
            return "it takes elements that follow each other along the reduced axes"
        blocks = self.plan(spec, config).launches[0].grid[0].at({**extents, **limits.sizes()})
        return f"it takes {blocks} blocks; a grid has at most {MAX_GRID_X}" if blocks > MAX_GRID_X else None

    def inputs(self, spec: ReductionSpec, config: GridConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "s": state_text(spec),
            "rows": has_rows(spec),
            "threads_per_block": config.threads_per_block,
            "unroll": config.unroll,
            "vec_bytes": config.vec_bytes,
            "item_bytes": spec.dtype.size,
            "lanes": lanes(spec, config.vec_bytes // spec.dtype.size),
            "run": run(spec, config.unroll, config.vec_bytes // spec.dtype.size),
            "load": config.load_modifier.intrinsic,
        }

    def blocks(self, spec: ReductionSpec, config: GridConfig) -> Expr:
        """Blocks of a row: one for every `unroll` vectors a thread, up to its part of `blocks_per_sm`."""
        per_block = config.threads_per_block * config.unroll * (config.vec_bytes // spec.dtype.size)
        most = size("sm_count") * config.blocks_per_sm
        if has_rows(spec):
            most = most // size("outer").at_least(1)
        return size("n").ceil_div(per_block).at_most(most).at_least(1)

    def plan(self, spec: ReductionSpec, config: GridConfig) -> Plan:
        """One launch; what counts the blocks of a row that are done is 0 again with the last."""
        blocks = self.blocks(spec, config).called("blocks")
        results = tuple(name for name, _, _ in spec.results)
        state = state_bytes(spec)
        if not has_rows(spec):
            launch = Launch(
                grid=(blocks, ONE, ONE),
                block=(config.threads_per_block, 1, 1),
                arguments=("in", *results, *arguments(self.finish, tickets="ticket"), (I64, size("n"))),
            )
            return Plan((launch,), scratch(self.finish, blocks, blocks, state))
        launch = Launch(
            grid=(size("outer") * blocks, ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(
                "in", *results, *arguments(self.finish, tickets="tickets"),
                (I64, size("n")), (I64, size("outer_pitch")), (U32, blocks),
            ),
        )  # fmt: skip
        most = size("sm_count") * config.blocks_per_sm
        return Plan((launch,), scratch(self.finish, blocks, most, state, most))

    def roundings(self, spec: ReductionSpec, config: GridConfig, extents: Extents, limits: Limits) -> int:
        """Vectors of one thread, head and tail, the lanes, two blocks' trees, the partials of one thread."""
        items = config.vec_bytes // spec.dtype.size
        blocks = self.blocks(spec, config).at({**extents, **limits.sizes()})
        vectors = -(-extents["n"] // items)
        states = lanes(spec, items)
        tiles = -(-vectors // (config.threads_per_block * config.unroll))
        own = -(-tiles // blocks) * config.unroll * max(items // states, 1) + 2 + states
        finish = -(-blocks // config.threads_per_block) + block_roundings(config.threads_per_block)
        tree = block_roundings(config.threads_per_block)
        return roundings(
            spec, extents["n"], items * run(spec, config.unroll, items), own + tree + (finish if blocks > 1 else 0)
        )

    def bytes_in_flight(self, spec: ReductionSpec, config: GridConfig) -> int:
        """The loads of a round, none of which is used before all are asked for."""
        return config.unroll * config.vec_bytes


def has_rows(spec: ReductionSpec) -> bool:
    """Whether there may be more than one result."""
    return spec.axis is not None
