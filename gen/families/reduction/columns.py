"""`columns`: neighbouring threads own neighbouring columns, and go down the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gen.dtypes import I64, U32, LoadModifier
from gen.families.base import STATIC_SHARED_BYTES, Algorithm, Extents, Launch, Limits, Plan, beyond_grid
from gen.families.config import Config, tunable
from gen.families.expr import ONE, Expr, size
from gen.families.plans import beyond_block
from gen.families.reduction.canonical import Form, form
from gen.families.reduction.finish import Finish, all_there, arguments, few_second_passes, scratch, second_pass
from gen.families.reduction.roundings import roundings
from gen.families.reduction.sharing import has_rows
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.text import state_bytes, state_text

MOST_STATE_BYTES = 128  # of a thread: more would not stay in registers
MOST_SHARED_BYTES = STATIC_SHARED_BYTES - 16


def no_shared_room(spec: ReductionSpec, vec_bytes: int, threads: int) -> str | None:
    """Why the states of all columns of a block find no room in static shared memory."""
    needed = vec_bytes // spec.dtype.size * state_bytes(spec) * threads
    if needed > MOST_SHARED_BYTES:
        return f"the states of a block take {needed} bytes; at most {MOST_SHARED_BYTES} are there"
    return None


def no_registers(spec: ReductionSpec, vec_bytes: int) -> str | None:
    """Why the states of a vector's columns leave registers; those of the narrowest vectors may."""
    own = vec_bytes // spec.dtype.size * state_bytes(spec)
    if own > MOST_STATE_BYTES and vec_bytes > max(spec.dtype.size, 4):
        return f"the states of a thread's columns take {own} bytes; at most {MOST_STATE_BYTES} stay in registers"
    return None


@dataclass(frozen=True, kw_only=True)
class ColumnsConfig(Config):
    """How `columns` divides columns and rows between threads and blocks."""

    columns_x: int = tunable(
        "x", (16, 32, 64, 128), base=32, help="threads side by side, each with a vector of columns"
    )
    rows_y: int = tunable("y", (1, 4, 8, 16, 32), base=8, help="threads one below the other")
    unroll: int = tunable("u", (2, 4, 8), base=4, help="vector loads each thread has in flight")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes of one vector load")
    blocks_per_sm: int = tunable("bpm", (2, 4, 8), base=4, help="most blocks for each multiprocessor that share strips")
    load_modifier: LoadModifier = tunable(
        "ld",
        (LoadModifier.DEFAULT, LoadModifier.CS),
        base=LoadModifier.DEFAULT,
        off=LoadModifier.DEFAULT,
        help="cache operator of the loads",
    )

    finish: Finish = tunable(
        "", tuple(Finish), base=Finish.TICKET, off=Finish.TICKET, help="how blocks that share a result end"
    )

    def illegal(self) -> str | None:
        """Where one block waits for the others they fit on the device together."""
        threads = self.columns_x * self.rows_y
        return beyond_block(threads) or (
            all_there(threads * self.blocks_per_sm) if self.finish is Finish.FLAGS else None
        )

    def unsearched(self) -> str | None:
        """Blocks are neither small nor thin, and few kinds of loads come before a second launch."""
        threads = self.columns_x * self.rows_y
        if threads < 128:
            return f"{self.columns_x} x {self.rows_y} are {threads} threads of a block: 128 and more are of use"
        if self.columns_x == 128 and self.rows_y > 1:
            return "128 threads side by side have none below them: few rows keep no more busy"
        if threads == 1024 and self.columns_x > 32:
            return "1024 threads are 16 or 32 side by side: wider strips are too few"
        if self.finish is Finish.SECOND_PASS and self.rows_y == 1:
            return "few rows leave nothing to a second launch"
        if self.finish is Finish.SECOND_PASS and threads == 1024:
            return "8 loads of 16 bytes do not stay in the 64 registers that 1024 threads have each"
        return few_second_passes(self.finish, self.unroll, self.vec_bytes, self.load_modifier)


class Columns(Algorithm[ReductionSpec, ColumnsConfig]):
    """Strips of columns, their rows split between blocks."""

    name = "columns"
    template = "reduction/columns.cu.jinja"
    summary = (
        "A thread owns a vector of columns and goes down the rows; where there are too few strips of columns for the "
        "device, several blocks share the rows of a strip, and the last of them, or one of a second launch, combines "
        "their results in order."
    )
    config = ColumnsConfig

    def illegal(self, spec: ReductionSpec, config: ColumnsConfig) -> str | None:
        """There are columns; their states fit into shared memory."""
        if not has_rows(spec):
            return "a whole array has no columns"
        if config.vec_bytes < spec.dtype.size:
            return f"vec_bytes {config.vec_bytes} holds no {spec.dtype.name}"
        return no_shared_room(spec, config.vec_bytes, config.columns_x * config.rows_y)

    def unsearched(self, spec: ReductionSpec, config: ColumnsConfig) -> str | None:
        """The states of a thread's columns stay in registers."""
        return no_registers(spec, config.vec_bytes)

    def infeasible(self, spec: ReductionSpec, config: ColumnsConfig, limits: Limits) -> str | None:
        """Where one block waits for the others they must fit on the device together."""
        resident = limits.threads_per_multiprocessor // (config.columns_x * config.rows_y)
        if config.finish is Finish.FLAGS and config.blocks_per_sm > resident:
            return f"a multiprocessor holds {resident} blocks of {config.columns_x * config.rows_y} threads"
        return None

    def unsupported_extents(
        self, spec: ReductionSpec, config: ColumnsConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Neighbouring columns."""
        if form(extents) is not Form.COLUMNS:
            return "it takes columns"
        return beyond_grid(self.plan(spec, config).launches[0].grid[0].at({**extents, **limits.sizes()}))

    def inputs(self, spec: ReductionSpec, config: ColumnsConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "s": state_text(spec),
            "flags": config.finish is Finish.FLAGS,
            "second_pass": config.finish is Finish.SECOND_PASS,
            "words": state_bytes(spec) // U32.size,
            "columns_x": config.columns_x,
            "rows_y": config.rows_y,
            "unroll": config.unroll,
            "vec_bytes": config.vec_bytes,
            "item_bytes": spec.dtype.size,
            "blocks_per_sm": config.blocks_per_sm,
            "load": config.load_modifier.intrinsic,
        }

    def strips(self, spec: ReductionSpec, config: ColumnsConfig) -> Expr:
        """Strips of a matrix."""
        return size("inner").ceil_div(config.columns_x * (config.vec_bytes // spec.dtype.size))

    def splits(self, spec: ReductionSpec, config: ColumnsConfig) -> Expr:
        """Blocks that share the rows of a strip: as many as the device wants, and a round's rows for each."""
        strips = size("outer") * self.strips(spec, config)
        wanted = (size("multiprocessors") * config.blocks_per_sm) // strips.at_least(1)
        return wanted.at_most(size("n").ceil_div(config.rows_y * config.unroll)).at_least(1)

    def plan(self, spec: ReductionSpec, config: ColumnsConfig) -> Plan:
        """One launch, after which what counts the blocks of a strip that are done is 0 again; a second if asked."""
        strips, splits = self.strips(spec, config), self.splits(spec, config)
        results = tuple(name for name, _, _ in spec.results)
        numbers = tuple((I64, size(name)) for name in ("n", "inner", "outer_pitch", "row_pitch"))
        block = (config.columns_x, config.rows_y, 1)
        launch = Launch(
            grid=(size("outer") * strips * splits, ONE, ONE),
            block=block,
            arguments=(
                "in",
                *results,
                *arguments(config.finish, tickets="tickets"),
                *numbers,
                (U32, strips),
                (U32, splits),
            ),
        )
        most = size("multiprocessors") * config.blocks_per_sm  # blocks, where strips are shared at all
        columns = config.columns_x * (config.vec_bytes // spec.dtype.size)
        memory = scratch(config.finish, splits, most * columns, state_bytes(spec), most)
        if config.finish is Finish.SECOND_PASS:
            of_strips = ((I64, size("n")), (I64, size("inner")), (U32, strips))
            return Plan((launch, second_pass(size("outer") * strips, splits, block, results, *of_strips)), memory)
        return Plan((launch,), memory)

    def roundings(self, spec: ReductionSpec, config: ColumnsConfig, extents: Extents, limits: Limits) -> int:
        """The rows of one thread, the threads below each other, the partials of one thread, those again."""
        splits = self.splits(spec, config).at({**extents, **limits.sizes()})
        tiles = -(-extents["n"] // (config.rows_y * config.unroll))
        own = -(-tiles // splits) * config.unroll
        tree = config.rows_y.bit_length()
        finish = -(-splits // config.rows_y) + tree if splits > 1 else 0
        return roundings(spec, extents["n"], config.unroll, own + tree + finish)

    def bytes_in_flight(self, spec: ReductionSpec, config: ColumnsConfig) -> int:
        """The loads of a round, none of which is used before all are asked for."""
        return config.unroll * config.vec_bytes
