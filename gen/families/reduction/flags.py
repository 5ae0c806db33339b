"""`flags`: as `grid`, but one block waits for the others, which have smaller numbers and so were started before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gen.dtypes import U32, LoadModifier
from gen.families.base import Limits
from gen.families.config import tunable
from gen.families.reduction.finish import Finish, all_there
from gen.families.reduction.roundings import lane_roundings
from gen.families.reduction.sharing import Sharing, SharingConfig
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.text import is_light, state_bytes


@dataclass(frozen=True, kw_only=True)
class FlagsConfig(SharingConfig):
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

    def illegal(self) -> str | None:
        """The blocks that one waits for are there with it."""
        return all_there(self.threads_per_block * self.blocks_per_sm)


class Flags(Sharing[FlagsConfig]):
    """Block partials, handed with a flag to the last block, which waits for them."""

    name = "flags"
    template = "reduction/flags.cu.jinja"
    summary = (
        "One launch: the blocks of a row stride through it with vector loads; each hands its partial result, a flag "
        "beside every word, to the last of them, which waits and combines them in index order. No fence and no counter "
        "of blocks is needed, so the end comes sooner than where the block that finishes last does that. It relies on "
        "it that blocks of smaller numbers are started first, as GPUs do though CUDA promises no order."
    )
    config = FlagsConfig
    flag_word_of_finished_block = 1 << 32  # `kThere` in the template, and no bit of a state

    def infeasible(self, spec: ReductionSpec, config: FlagsConfig, limits: Limits) -> str | None:
        """The blocks that one waits for must fit on the device together with it."""
        resident = limits.threads_per_multiprocessor // config.threads_per_block
        if config.blocks_per_sm > resident:
            return f"a multiprocessor holds {resident} blocks of {config.threads_per_block} threads"
        return None

    def finish(self, config: FlagsConfig) -> Finish:
        """The block of the highest number waits for a flag beside every word."""
        return Finish.FLAGS

    def tree(self, spec: ReductionSpec, config: FlagsConfig) -> int:
        """By lanes, where one thread combines the states of a warp fast."""
        return lane_roundings(config.threads_per_block) if is_light(spec) else super().tree(spec, config)

    def inputs(self, spec: ReductionSpec, config: FlagsConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            **super().inputs(spec, config),
            "load": config.load_modifier.intrinsic,
            "words": state_bytes(spec) // U32.size,
            "light": is_light(spec),
        }
