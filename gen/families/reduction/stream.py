"""`stream`: few columns of many rows, read as one stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gen.dtypes import I32, I64, U32, LoadModifier
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.expr import ONE, Expr, constant, size
from gen.families.reduction.canonical import Form, form
from gen.families.reduction.columns import no_registers, no_shared_room
from gen.families.reduction.finish import Finish, arguments, beyond_resident, scratch
from gen.families.reduction.roundings import roundings
from gen.families.reduction.sharing import has_rows
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.text import state_bytes, state_text


@dataclass(frozen=True, kw_only=True)
class StreamConfig(Config):
    """How `stream` divides the array between threads and blocks."""

    threads_per_block: int = tunable("tpb", (128, 256, 512), base=256, help="threads in a block")
    unroll: int = tunable("u", (2, 4, 8), base=4, help="vector loads each thread has in flight")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes of one vector load")
    blocks_per_sm: int = tunable("bpm", (1, 2, 4, 8), base=4, help="most blocks for each multiprocessor")
    load_modifier: LoadModifier = tunable(
        "ld",
        (LoadModifier.DEFAULT, LoadModifier.CS),
        base=LoadModifier.DEFAULT,
        off=LoadModifier.DEFAULT,
        help="cache operator of the loads",
    )
    finish: Finish = tunable(
        "",
        (Finish.TICKET, Finish.FLAGS),
        base=Finish.TICKET,
        off=Finish.TICKET,
        help="how blocks that share a result end",
    )

    def unsearched(self) -> str | None:
        """The blocks asked for fit on a multiprocessor together."""
        return beyond_resident(self.threads_per_block, self.blocks_per_sm)


class Stream(Algorithm[ReductionSpec, StreamConfig]):
    """The whole matrix as a stream of vectors, whose items stay in their columns."""

    name = "stream"
    template = "reduction/stream.cu.jinja"
    summary = (
        "Blocks stride through the whole matrix by a multiple of its columns, so that every item of a thread's vector "
        "stays in one column, however few there are; the block that finishes last combines the partial results."
    )
    config = StreamConfig

    def illegal(self, spec: ReductionSpec, config: StreamConfig) -> str | None:
        """There are columns, of one matrix; their states fit into shared memory."""
        if spec.axis == ():
            return "no axis is reduced: a matrix has no columns to reduce"
        if not has_rows(spec):
            return "a whole array has no columns"
        if config.vec_bytes < spec.dtype.size:
            return f"vec_bytes {config.vec_bytes} holds no {spec.dtype.name}"
        return no_shared_room(spec, config.vec_bytes, config.threads_per_block)

    def unsearched(self, spec: ReductionSpec, config: StreamConfig) -> str | None:
        """The states of a thread's columns stay in registers."""
        return no_registers(spec, config.vec_bytes)

    def infeasible(self, spec: ReductionSpec, config: StreamConfig, limits: Limits) -> str | None:
        """Where one block waits for the others they must fit on the device together."""
        resident = limits.threads_per_multiprocessor // config.threads_per_block
        if config.finish is Finish.FLAGS and config.blocks_per_sm > resident:
            return f"a multiprocessor holds {resident} blocks of {config.threads_per_block} threads"
        return None

    def unsupported_extents(
        self, spec: ReductionSpec, config: StreamConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """One matrix without gaps, of at most as many columns as a block has threads."""
        if form(extents) is not Form.COLUMNS or extents["outer"] != 1:
            return "it takes the columns of one matrix"
        if extents["row_pitch"] != extents["inner"]:
            return "it takes rows without gaps"
        if extents["inner"] > config.threads_per_block:
            return f"it takes at most {config.threads_per_block} columns"
        return None

    def inputs(self, spec: ReductionSpec, config: StreamConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "s": state_text(spec),
            "flags": config.finish is Finish.FLAGS,
            "words": state_bytes(spec) // U32.size,
            "threads_per_block": config.threads_per_block,
            "unroll": config.unroll,
            "vec_bytes": config.vec_bytes,
            "item_bytes": spec.dtype.size,
            "load": config.load_modifier.intrinsic,
        }

    def active(self, config: StreamConfig) -> Expr:
        """Threads that read: the largest multiple of the columns that a block has."""
        return constant(config.threads_per_block) // size("inner") * size("inner")

    def blocks(self, spec: ReductionSpec, config: StreamConfig) -> Expr:
        """One block for every `unroll` vectors a thread, up to `blocks_per_sm` a multiprocessor."""
        per_block = self.active(config) * (config.unroll * (config.vec_bytes // spec.dtype.size))
        most = size("multiprocessors") * config.blocks_per_sm
        return (size("n") * size("inner")).ceil_div(per_block).at_most(most).at_least(1)

    def plan(self, spec: ReductionSpec, config: StreamConfig) -> Plan:
        """One launch; what counts the blocks that are done is 0 again with the last."""
        blocks = self.blocks(spec, config)
        results = tuple(name for name, _, _ in spec.results)
        launch = Launch(
            grid=(blocks, ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(
                "in", *results, *arguments(config.finish, tickets="ticket"),
                (I64, size("n")), (I32, size("inner")), (I32, self.active(config)),
            ),
        )  # fmt: skip
        return Plan((launch,), scratch(config.finish, blocks, blocks * size("inner"), state_bytes(spec)))

    def roundings(self, spec: ReductionSpec, config: StreamConfig, extents: Extents, limits: Limits) -> int:
        """The vectors of one thread, the block's tree, head and tail, the last block's partials and its tree."""
        sizes = {**extents, **limits.sizes()}
        blocks, active, columns = self.blocks(spec, config).at(sizes), self.active(config).at(sizes), extents["inner"]
        items = config.vec_bytes // spec.dtype.size
        own = -(-extents["n"] * columns // (blocks * active * items)) + 1
        tree = (active * items // columns).bit_length() + 2 * items
        teams = max(config.threads_per_block // columns, 1)
        finish = -(-blocks // teams) + teams.bit_length() if teams > 1 else blocks
        return roundings(spec, extents["n"], config.unroll, own + tree + finish)

    def bytes_in_flight(self, spec: ReductionSpec, config: StreamConfig) -> int:
        """The loads of a round, none of which is used before all are asked for."""
        return config.unroll * config.vec_bytes
