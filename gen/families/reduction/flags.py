"""`flags`: as `grid`, but one block waits for the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gen.dtypes import I64, U32, U64, DType, LoadModifier
from gen.families.base import Launch, Plan, Scratch
from gen.families.config import tunable
from gen.families.expr import ONE, Expr, size
from gen.families.reduction.grid import Grid, GridConfig, has_rows
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.text import state_bytes


@dataclass(frozen=True, kw_only=True)
class FlagsConfig(GridConfig):
    """How `flags` divides the array between blocks and threads: no more blocks than the device holds at once."""

    vec_bytes: int = tunable("v", (8, 16), base=16, help="bytes of one vector load")
    blocks_per_sm: int = tunable("bpm", (1, 2, 4, 8), base=2, help="most blocks for each multiprocessor")
    load_modifier: LoadModifier = tunable(
        "ld",
        (LoadModifier.DEFAULT, LoadModifier.CS),
        base=LoadModifier.DEFAULT,
        off=LoadModifier.DEFAULT,
        help="cache operator of the loads",
    )


class Flags(Grid):
    """Block partials, handed with a flag to the last block, which waits for them."""

    name = "flags"
    template = "reduction/flags.cu.jinja"
    summary = (
        "One launch: the blocks of a row stride through it with vector loads; each hands its partial result, a flag "
        "beside every word, to the last of them, which waits and combines them in index order. Without fences and "
        "atomics the end comes sooner than where the block that happens to finish last does that."
    )
    config = FlagsConfig
    not_sampled = "its last block waits for all others"

    def inputs(self, spec: ReductionSpec, config: GridConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {**super().inputs(spec, config), "words": state_bytes(spec) // U32.size}

    def plan(self, spec: ReductionSpec, config: GridConfig) -> Plan:
        """One launch; the block that waits sets the slots back to 0."""
        blocks = self.blocks(spec, config)
        results = tuple(name for name, _, _ in spec.results)
        words = state_bytes(spec) // U32.size
        grid, most = blocks, blocks
        arguments: tuple[str | tuple[DType, Expr], ...] = ("in", *results, "slots", (I64, size("n")))
        if has_rows(spec):
            grid, most = size("outer") * blocks, size("sm_count") * config.blocks_per_sm
            arguments = (*arguments, (I64, size("outer_pitch")), (U32, blocks))
        launch = Launch((grid, ONE, ONE), (config.threads_per_block, 1, 1), arguments)
        shared = (blocks - 1).at_most(1)
        return Plan((launch,), (Scratch("slots", shared * most * (words * U64.size), zeroed=True),))
