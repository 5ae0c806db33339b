"""`grid`: every row has one or more blocks; the block that comes last finishes, or a second launch does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gen.dtypes import LoadModifier
from gen.families.config import tunable
from gen.families.reduction.finish import Finish, beyond_resident, few_second_passes
from gen.families.reduction.sharing import Sharing, SharingConfig
from gen.families.reduction.spec import ReductionSpec


@dataclass(frozen=True, kw_only=True)
class GridConfig(SharingConfig):
    """How `grid` divides the array between blocks and threads, and how it ends."""

    load_modifier: LoadModifier = tunable(
        "ld",
        (LoadModifier.DEFAULT, LoadModifier.CG, LoadModifier.CS),
        base=LoadModifier.DEFAULT,
        off=LoadModifier.DEFAULT,
        help="cache operator of the loads",
    )
    finish: Finish = tunable(
        "",
        (Finish.TICKET, Finish.SECOND_PASS),
        base=Finish.TICKET,
        off=Finish.TICKET,
        help="how blocks that share a result end",
    )

    def unsearched(self) -> str | None:
        """Past the first-level cache, and before a second launch, what is searched is what may pay."""
        if self.load_modifier is LoadModifier.CG and self.vec_bytes < 16:
            return "what is loaded past the first-level cache is loaded 16 bytes at a time"
        few = few_second_passes(self.finish, self.unroll, self.vec_bytes, self.load_modifier)
        return few or beyond_resident(self.threads_per_block, self.blocks_per_sm)


class Grid(Sharing[GridConfig]):
    """Block partials, finished in index order by the block that comes last, or by a second launch."""

    name = "grid"
    template = "reduction/grid.cu.jinja"
    summary = (
        "The blocks of a row stride through it with vector loads; the block that finishes last, or one of a second "
        "launch, combines the partial results in index order, so that every run gives the same bits."
    )
    config = GridConfig

    def finish(self, config: GridConfig) -> Finish:
        """As its config says."""
        return config.finish

    def inputs(self, spec: ReductionSpec, config: GridConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            **super().inputs(spec, config),
            "load": config.load_modifier.intrinsic,
            "second_pass": config.finish is Finish.SECOND_PASS,
        }
