"""`single`: one block takes the whole array, where there is so little that starting and ending take the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from gen.dtypes import I32
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.expr import ONE, size
from gen.families.reduction.canonical import Form, form
from gen.families.reduction.roundings import block_roundings, lane_roundings, roundings
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.text import chains, is_light, is_sum, state_text

MOST = 2**20  # elements: one multiprocessor reads a small part of what all of them do


class Ending(Enum):
    """What threads hand each other their states by."""

    SHUFFLES = "shuffles"  # five in each warp, five again over the warps' states
    SUMS = "sums"  # the instruction that adds up a warp's 32-bit integers, then one thread
    SHARED = "shared"  # shared memory: few steps that wait for each other, where one thread combines 32 states fast


_WORDS = {
    Ending.SHUFFLES: "by shuffles",
    Ending.SUMS: "by the instruction that adds up a warp's integers",
    Ending.SHARED: "by shared memory",
}
_EVERY_WAY = f"{_WORDS[Ending.SHUFFLES]}, {_WORDS[Ending.SUMS]}, or {_WORDS[Ending.SHARED]}"


@dataclass(frozen=True, kw_only=True)
class SingleConfig(Config):
    """How the threads of the block divide the array."""

    threads_per_block: int = tunable("tpb", (32, 64, 128, 256, 512, 1024), base=256, help="threads in the block")
    unroll: int = tunable("u", (1, 2, 4, 8), base=4, help="vector loads each thread has in flight")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes of one vector load")
    ending: Ending = tunable(
        "", tuple(Ending), base=Ending.SHUFFLES, off=Ending.SHUFFLES, help="how threads bring together what they know"
    )


class Single(Algorithm[ReductionSpec, SingleConfig]):
    """One block, no scratch."""

    name = "single"
    template = "reduction/single.cu.jinja"
    summary = (
        "One launch of one block, which strides through the array with vector loads: no other block is waited for, "
        "little is computed before the first load, and a small array is read at once. Its threads hand each other what "
        f"they know {_EVERY_WAY}."
    )
    config = SingleConfig

    def description(self, config: SingleConfig) -> str:
        """What threads of this variant hand each other their states by."""
        return self.summary.replace(_EVERY_WAY, _WORDS[config.ending])

    def illegal(self, spec: ReductionSpec, config: SingleConfig) -> str | None:
        """A vector holds at least one element; an instruction adds up a warp's integers."""
        if config.vec_bytes < spec.dtype.size:
            return f"vec_bytes {config.vec_bytes} holds no {spec.dtype.name}"
        if config.ending is Ending.SUMS and not is_sum(spec):
            return "the instruction that adds up a warp's states is there for sums of integers"
        return None

    def unsearched(self, spec: ReductionSpec, config: SingleConfig) -> str | None:
        """One thread takes 32 states where two are one operation away."""
        if config.ending is Ending.SHARED and not is_light(spec):
            return "states of several numbers are handed on by shuffles: one thread would take long over 32 of them"
        return None

    def infeasible(self, spec: ReductionSpec, config: SingleConfig, limits: Limits) -> str | None:
        """The instruction that adds up a warp's integers is there from sm_80 on."""
        if config.ending is Ending.SUMS and not limits.has_warp_sums:
            return f"{limits.arch} has no instruction that adds up a warp's integers"
        return None

    def unsupported_extents(
        self, spec: ReductionSpec, config: SingleConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """One result of few elements, which follow each other."""
        if form(extents) is not Form.WHOLE:
            return "its one block reduces elements that follow each other to one result"
        return f"its one block takes at most {MOST} elements" if extents["n"] > MOST else None

    def inputs(self, spec: ReductionSpec, config: SingleConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "s": state_text(spec),
            "threads_per_block": config.threads_per_block,
            "unroll": config.unroll,
            "vec_bytes": config.vec_bytes,
            "item_bytes": spec.dtype.size,
            "chains": chains(spec, config.vec_bytes // spec.dtype.size),
            "shared": config.ending is Ending.SHARED,
            "summed": config.ending is Ending.SUMS,
        }

    def plan(self, spec: ReductionSpec, config: SingleConfig) -> Plan:
        """One block."""
        results = tuple(name for name, _, _ in spec.results)
        launch = Launch((ONE, ONE, ONE), (config.threads_per_block, 1, 1), ("in", *results, (I32, size("n"))))
        return Plan((launch,))

    def roundings(self, spec: ReductionSpec, config: SingleConfig, extents: Extents, limits: Limits) -> int:
        """Vectors of one thread, head and tail, the chains, the block's tree or one thread's chains."""
        items = config.vec_bytes // spec.dtype.size
        states = chains(spec, items)
        vectors = -(-extents["n"] // items)
        rounds = -(-vectors // (config.threads_per_block * config.unroll))
        own = rounds * config.unroll * max(items // states, 1) + 2 + states
        tree = block_roundings(config.threads_per_block)
        if config.ending is Ending.SHARED:
            tree = lane_roundings(config.threads_per_block)
        return roundings(spec, extents["n"], items, own + tree)

    def bytes_in_flight(self, spec: ReductionSpec, config: SingleConfig) -> int:
        """The loads of a round, none of which is used before all are asked for."""
        return config.unroll * config.vec_bytes
