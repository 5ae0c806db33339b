"""The algorithm `mine` of reductions: `gen --family mine:Reductions prove reduction_sum_f32__mine_tpb256`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gen.dtypes import I64
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.expr import ONE, size
from gen.families.reduction import Reduction
from gen.families.reduction.algorithms.common import block_roundings
from gen.families.reduction.oracle import Share, chain, roundings
from gen.families.reduction.shapes import Form, edges, form, rows_of
from gen.families.reduction.spec import ReductionSpec

MOST_ELEMENTS = 2**31


@dataclass(frozen=True, kw_only=True)
class MineConfig(Config):
    """The tuning parameters: the letters in a tag, all values, the one without tuning, the meaning."""

    threads_per_block: int = tunable("tpb", (64, 256, 1024), base=256, help="threads of the only block")


class Mine(Algorithm[ReductionSpec, MineConfig]):
    """A config, a template, the launches, and how often a sum is rounded."""

    name = "mine"
    template = "reduction/mine.cu.jinja"
    summary = "One block adds up all elements: every thread its own, then the block by shuffles."
    config = MineConfig

    def illegal(self, spec: ReductionSpec, config: MineConfig) -> str | None:
        """Why its kernel cannot compute a spec, in words; None if it can."""
        return None if spec == ReductionSpec() else "it computes the sum of a whole array of f32"

    def unsupported_extents(
        self, spec: ReductionSpec, config: MineConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Why it cannot compute a problem, in words; None if it can."""
        if form(extents) is not Form.WHOLE:
            return "it takes arrays without gaps"
        return None if extents["n"] < MOST_ELEMENTS else f"one block would take too long for {MOST_ELEMENTS} elements"

    def plan(self, spec: ReductionSpec, config: MineConfig) -> Plan:
        """One launch of one block."""
        return Plan((Launch((ONE, ONE, ONE), (config.threads_per_block, 1, 1), ("in", "out", (I64, size("n")))),))

    def edge_cases(self, spec: ReductionSpec, config: MineConfig) -> Iterator[Extents]:
        """Sizes that leave the last round 1, 2, all but 1 or all of its elements: the proof tries them."""
        return (rows_of(spec, 1, n) for n in edges(config.threads_per_block))

    def roundings(self, spec: ReductionSpec, config: MineConfig, extents: Extents, limits: Limits) -> int:
        """The most additions that an element goes through: the proof allows no larger error than they explain."""
        n, threads = extents["n"], config.threads_per_block
        return roundings(spec, n, Share(chain(-(-n // threads)), 0), block_roundings(min(n, threads)))


class Reductions(Reduction):
    """The family of reductions, with `mine` among its algorithms."""

    algorithms: Mapping[str, Algorithm[ReductionSpec, Any]] = {**Reduction.algorithms, Mine.name: Mine()}
    templates = Path(__file__).parent / "templates"
