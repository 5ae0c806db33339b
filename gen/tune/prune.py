"""Which variants are not worth a compilation, or a launch: rules that are stated, and can be switched off.

No rule compares a variant with others, so that every run prunes the same. `gen.tune.search.Space` applies the rule
`unsearched`; this module applies the others, which hold a variant against what the device needs. Base is never pruned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from gen.arch import PARTITIONS
from gen.errors import UnknownNameError
from gen.families.base import Limits, Variant
from gen.store.trials import Problem
from gen.toolchain.occupancy import bytes_in_flight
from gen.toolchain.usage import residency, usage
from gen.tune.device import Entrant

MAX_SPILLED_BYTES = 32  # bytes a thread
IN_FLIGHT_DIVISOR = 8  # a multiprocessor with less than this part of the bytes it needs in flight reads at a crawl
MIN_WARPS = PARTITIONS  # one for each partition of a multiprocessor
LARGE_PROBLEM_BYTES = 1 << 27  # bytes moved; a problem of less is over before its traffic decides
RULES = {
    "spills": f"a thread spills more than {MAX_SPILLED_BYTES} bytes",
    "in-flight": (
        f"the problem moves {LARGE_PROBLEM_BYTES >> 20} MiB or more, and a multiprocessor has less than a "
        f"{IN_FLIGHT_DIVISOR}th of the bytes in flight with which it reads at full speed, even if registers set no "
        "limit"
    ),
    "occupancy": f"a multiprocessor holds fewer than {MIN_WARPS} warps, and the grid has more for it",
    "unsearched": "by policy its algorithm does not try the variant, though it is correct",
}


@dataclass(frozen=True)
class Pruning:
    """The rules in force for one problem on one device.

    Attributes:
        rules: the names of those in force.
    """

    problem: Problem
    limits: Limits
    rules: frozenset[str] = frozenset(RULES)

    def before_compiling(self, variant: Variant) -> str | None:
        """Why this variant is not worth compiling, by its plan alone; None if it may be."""
        needed = self.limits.needed_bytes_in_flight
        if "in-flight" not in self.rules or needed is None or not self._large:
            return None
        per_thread = variant.algorithm.bytes_in_flight(variant.spec, variant.config)
        sizes = {**self.problem.extents, **self.limits.sizes()}
        found = [  # as if registers and static shared memory set no limit
            bytes_in_flight(per_thread, prod(launch.block), residency(launch, self.limits, sizes)[1])
            for launch in variant.plan.launches
            if not launch.entry and not launch.setup
        ]
        most = max((had for had in found if had is not None), default=None)
        if most is None or most * IN_FLIGHT_DIVISOR >= needed:
            return None
        return f"at most {most} bytes in flight on a multiprocessor, which needs {needed}"

    def before_timing(self, entrant: Entrant) -> str | None:
        """Why this variant is not worth timing, by what its machine code takes; None if it may be."""
        if not entrant.compiled.resources:
            return None  # a compiler that does not tell
        every = usage(entrant.variant, entrant.compiled, self.limits, self.problem.extents)
        used = [one for one in every if not one.setup]
        if "spills" in self.rules:
            worst = max((one.resources.spill_store_bytes for one in used), default=0)
            if worst > MAX_SPILLED_BYTES:
                return f"a thread spills {worst} bytes"
        if "occupancy" in self.rules:
            for one in used:
                if one.occupancy.blocks == one.resident_blocks and one.occupancy.warps < MIN_WARPS:
                    return f"only {one.occupancy.warps} warps fit on a multiprocessor: {one.occupancy.limiter}"
        return None

    @property
    def _large(self) -> bool:
        work = self.problem.family.work(self.problem.spec, self.problem.extents)
        return work.bytes_read + work.bytes_written >= LARGE_PROBLEM_BYTES


def read_rules(names: Sequence[str]) -> frozenset[str]:
    """The rules of these names; `all` and `none` are names too. Raises UnknownNameError for any other."""
    found: set[str] = set()
    for name in names:
        if name not in (*RULES, "all", "none"):
            raise UnknownNameError("The pruning rule", "must be one of all, none, " + ", ".join(RULES), repr(name))
        found |= set(RULES) if name == "all" else {name} - {"none"}
    return frozenset(found)
