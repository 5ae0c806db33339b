"""`rows`: a thread, a part of a warp, a warp or a block reduces a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gen.arch import WARP
from gen.dtypes import I64, LoadModifier
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan, beyond_grid
from gen.families.config import Config, tunable
from gen.families.expr import ONE, Expr, size
from gen.families.reduction.canonical import Form, form
from gen.families.reduction.roundings import block_roundings, roundings
from gen.families.reduction.sharing import has_rows
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.text import chains, run, state_text

MOST_OF_THREAD = 4096  # elements of a row: more threads would be faster by far
MANY = 256  # rows: with so many, a block for each keeps a device busy however long they are


@dataclass(frozen=True, kw_only=True)
class RowsConfig(Config):
    """How `rows` divides rows between threads."""

    threads_per_block: int = tunable("tpb", (128, 256, 512), base=256, help="threads in a block")
    group: int = tunable("g", (1, 2, 4, 8, 16, 32, 128, 256, 512), base=8, help="threads that share a row")
    rows_at_once: int = tunable("r", (1, 2, 4), base=1, off=1, help="rows that such threads read at once")
    unroll: int = tunable("u", (1, 2, 4, 8), base=2, help="vector loads of a row each thread has in flight")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes of one vector load")
    load_modifier: LoadModifier = tunable(
        "ld",
        (LoadModifier.DEFAULT, LoadModifier.CS),
        base=LoadModifier.DEFAULT,
        off=LoadModifier.DEFAULT,
        help="cache operator of the loads",
    )

    def illegal(self) -> str | None:
        """More threads than a warp's are the block's."""
        if self.group > WARP and (self.group != self.threads_per_block or self.rows_at_once > 1):
            return f"{self.group} threads that share a row are the whole block, which reads one row at once"
        return None

    def unsearched(self) -> str | None:
        """What is loaded stays in registers."""
        loads = self.rows_at_once * self.unroll
        return f"{loads} loads in flight do not stay in registers: at most 8 do" if loads > 8 else None


class Rows(Algorithm[ReductionSpec, RowsConfig]):
    """Groups of threads, each with a row."""

    name = "rows"
    template = "reduction/rows.cu.jinja"
    summary = (
        "A thread, a part of a warp, a warp or a block reads a row with vector loads; shuffles combine what they read, "
        "and shared memory what a block's warps did."
    )
    config = RowsConfig

    def illegal(self, spec: ReductionSpec, config: RowsConfig) -> str | None:
        """There are rows; a vector holds at least one element."""
        if not has_rows(spec):
            return "a whole array is one row"
        if config.vec_bytes < spec.dtype.size:
            return f"vec_bytes {config.vec_bytes} holds no {spec.dtype.name}"
        return None

    def unsupported_extents(
        self, spec: ReductionSpec, config: RowsConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Rows of neighbouring elements."""
        if form(extents) not in (Form.WHOLE, Form.ROWS):
            return "it takes elements that follow each other along the reduced axes"
        alone = config.group > WARP and extents.get("outer", 1) >= MANY
        if extents["n"] > MOST_OF_THREAD * config.group and not alone:
            return f"it takes at most {MOST_OF_THREAD} elements of a row a thread"
        return beyond_grid(self.blocks(config).at(extents))

    def inputs(self, spec: ReductionSpec, config: RowsConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "s": state_text(spec),
            "threads_per_block": config.threads_per_block,
            "group": config.group,
            "at_once": config.rows_at_once,
            "unroll": config.unroll,
            "vec_bytes": config.vec_bytes,
            "item_bytes": spec.dtype.size,
            "chains": chains(spec, config.vec_bytes // spec.dtype.size),
            "run": run(spec, config.unroll, config.vec_bytes // spec.dtype.size),
            "load": config.load_modifier.intrinsic,
        }

    def blocks(self, config: RowsConfig) -> Expr:
        """One for as many rows as it has groups."""
        return size("outer").ceil_div(config.threads_per_block // config.group * config.rows_at_once)

    def plan(self, spec: ReductionSpec, config: RowsConfig) -> Plan:
        """One launch."""
        results = tuple(name for name, _, _ in spec.results)
        counted = ("n", "outer_pitch") if config.group > WARP else ("outer", "n", "outer_pitch")
        numbers = tuple((I64, size(name)) for name in counted)
        return Plan(
            (Launch((self.blocks(config), ONE, ONE), (config.threads_per_block, 1, 1), ("in", *results, *numbers)),)
        )

    def roundings(self, spec: ReductionSpec, config: RowsConfig, extents: Extents, limits: Limits) -> int:
        """Vectors of one thread, head and tail, the chains, the group's shuffles or the block's tree."""
        items = config.vec_bytes // spec.dtype.size
        states = chains(spec, items)
        vectors = -(-extents["n"] // items)
        tree = config.group.bit_length() if config.group <= WARP else block_roundings(config.group)
        own = -(-vectors // config.group) * max(items // states, 1) + 2 * -(-items // config.group) + states
        return roundings(spec, extents["n"], items * run(spec, config.unroll, items), own + tree)

    def bytes_in_flight(self, spec: ReductionSpec, config: RowsConfig) -> int:
        """The loads of a round, none of which is used before all are asked for."""
        return config.rows_at_once * config.unroll * config.vec_bytes
