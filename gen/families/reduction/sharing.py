"""What `grid` and its kin share: every row has one or more blocks, which stride through it with vector loads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from gen.dtypes import I64, U32
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan, beyond_grid
from gen.families.config import Config, tunable
from gen.families.expr import ONE, Expr, size
from gen.families.reduction.canonical import Form, form
from gen.families.reduction.finish import MANY, Finish, arguments, scratch, second_pass
from gen.families.reduction.roundings import block_roundings, roundings
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.text import chains, run, state_bytes, state_text


@dataclass(frozen=True, kw_only=True)
class SharingConfig(Config):
    """How rows are divided between blocks and threads."""

    threads_per_block: int = tunable("tpb", (128, 256, 512, 1024), base=256, help="threads in a block")
    unroll: int = tunable("u", (1, 2, 4, 8), base=4, help="vector loads each thread has in flight")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes of one vector load")
    blocks_per_sm: int = tunable(
        "bpm",
        (1, 2, 4, 8, MANY),
        base=2,
        help=f"most blocks for each multiprocessor; {MANY}: several times what it holds",
    )


C = TypeVar("C", bound=SharingConfig)


class Sharing(Algorithm[ReductionSpec, C]):
    """Rows that blocks share; how they bring their results together is what tells the algorithms apart."""

    @abstractmethod
    def finish(self, config: C) -> Finish:
        """How the blocks of a row bring their results together."""

    def illegal(self, spec: ReductionSpec, config: C) -> str | None:
        """A vector holds at least one element."""
        if config.vec_bytes < spec.dtype.size:
            return f"vec_bytes {config.vec_bytes} holds no {spec.dtype.name}"
        return None

    def unsupported_extents(self, spec: ReductionSpec, config: C, extents: Extents, limits: Limits) -> str | None:
        """Rows of neighbouring elements."""
        if form(extents) not in (Form.WHOLE, Form.ROWS):
            return "it takes elements that follow each other along the reduced axes"
        return beyond_grid(self.plan(spec, config).launches[0].grid[0].at({**extents, **limits.sizes()}))

    def inputs(self, spec: ReductionSpec, config: C) -> Mapping[str, object]:
        """What every template of these reads."""
        return {
            "s": state_text(spec),
            "rows": has_rows(spec),
            "threads_per_block": config.threads_per_block,
            "unroll": config.unroll,
            "vec_bytes": config.vec_bytes,
            "item_bytes": spec.dtype.size,
            "chains": chains(spec, config.vec_bytes // spec.dtype.size),
            "run": run(spec, config.unroll, config.vec_bytes // spec.dtype.size),
        }

    def blocks(self, spec: ReductionSpec, config: C) -> Expr:
        """Blocks of a row: one for every `unroll` vectors a thread, up to its part of `blocks_per_sm`."""
        per_block = config.threads_per_block * config.unroll * (config.vec_bytes // spec.dtype.size)
        most = size("multiprocessors") * config.blocks_per_sm
        if has_rows(spec):
            most = most // size("outer").at_least(1)
        return size("n").ceil_div(per_block).at_most(most).at_least(1)

    def plan(self, spec: ReductionSpec, config: C) -> Plan:
        """One launch, after which what counts the blocks of a row that are done is 0 again; a second if it is asked."""
        finish, blocks = self.finish(config), self.blocks(spec, config).called("blocks")
        results, state = tuple(name for name, _, _ in spec.results), state_bytes(spec)
        block = (config.threads_per_block, 1, 1)
        if not has_rows(spec):
            launch = Launch(
                grid=(blocks, ONE, ONE),
                block=block,
                arguments=("in", *results, *arguments(finish, tickets="ticket"), (I64, size("n"))),
            )
            rows, memory = ONE, scratch(finish, blocks, blocks, state)
        else:
            launch = Launch(
                grid=(size("outer") * blocks, ONE, ONE),
                block=block,
                arguments=(
                    "in", *results, *arguments(finish, tickets="tickets"),
                    (I64, size("n")), (I64, size("outer_pitch")), (U32, blocks),
                ),
            )  # fmt: skip
            most = size("multiprocessors") * config.blocks_per_sm
            rows, memory = size("outer"), scratch(finish, blocks, most, state, most)
        if finish is Finish.SECOND_PASS:
            return Plan((launch, second_pass(rows, blocks, block, results, (I64, size("n")))), memory)
        return Plan((launch,), memory)

    def tree(self, spec: ReductionSpec, config: C) -> int:
        """Combinations on a path through a block."""
        return block_roundings(config.threads_per_block)

    def roundings(self, spec: ReductionSpec, config: C, extents: Extents, limits: Limits) -> int:
        """Vectors of one thread, head and tail, the chains, two blocks' trees, the partials of one thread."""
        blocks = self.blocks(spec, config).at({**extents, **limits.sizes()})
        tree = self.tree(spec, config)
        finish = -(-blocks // config.threads_per_block) + tree if blocks > 1 else 0
        return self.roundings_after(spec, config, extents["n"], blocks, tree + finish)

    def roundings_after(self, spec: ReductionSpec, config: C, n: int, blocks: int, further: int) -> int:
        """Those of a row of n elements that so many blocks share, with `further` combinations of threads' states."""
        items = config.vec_bytes // spec.dtype.size
        vectors = -(-n // items)
        states = chains(spec, items)
        tiles = -(-vectors // (config.threads_per_block * config.unroll))
        own = -(-tiles // blocks) * config.unroll * max(items // states, 1) + 2 + states
        return roundings(spec, n, items * run(spec, config.unroll, items), own + further)

    def bytes_in_flight(self, spec: ReductionSpec, config: C) -> int:
        """The loads of a round, none of which is used before all are asked for."""
        return config.unroll * config.vec_bytes


def has_rows(spec: ReductionSpec) -> bool:
    """Whether there may be more than one result."""
    return spec.axis is not None
