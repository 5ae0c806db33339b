"""How merges are computed: a thread for each result takes the units in their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from typing_extensions import override

from gen.dtypes import BOOL, I64
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.expr import ONE, size
from gen.families.merge.spec import COUNTS, MergeSpec
from gen.families.reduction.oracle import Share, chain, roundings
from gen.families.reduction.state import state_of

AT_ONCE = 8
"""Units whose partial results a thread loads before it merges them: `kUnroll` in the template."""


@dataclass(frozen=True)
class Partial:
    """An input: its name, its type in C++, and the statistic that it holds."""

    name: str
    type: str
    statistic: str


@dataclass(frozen=True, kw_only=True)
class UnitsConfig(Config):
    """How `units` divides results between blocks."""

    threads_per_block: int = tunable("tpb", (64, 128, 256), base=128, help="threads per block")


class Units(Algorithm[MergeSpec, UnitsConfig]):
    """A thread for each result."""

    name = "units"
    template = "merge/units.cu.jinja"
    summary = (
        "Every thread merges the partial results of one element of the outputs, unit after unit. Neighbouring threads "
        "merge neighbouring elements."
    )
    config = UnitsConfig

    @override
    def spec_inputs(self, spec: MergeSpec) -> Mapping[str, object]:
        partials = tuple(
            Partial(name, "unsigned char" if dtype == BOOL else dtype.cuda, operator.name)
            for name, operator, dtype in spec.partials
        )
        return {"s": state_of(spec.whole), "partials": partials}

    @override
    def edge_cases(self, spec: MergeSpec, config: UnitsConfig) -> Iterator[Extents]:
        for n in (config.threads_per_block + near for near in (-1, 0, 1)):
            yield {"units": AT_ONCE + 1, "n": n}

    @override
    def plan(self, spec: MergeSpec, config: UnitsConfig) -> Plan:
        launch = Launch(
            grid=(size("n").ceil_div(config.threads_per_block), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*(operand.name for operand in spec.operands), (I64, size("units")), (I64, size("n"))),
        )
        assert COUNTS in launch.arguments
        return Plan((launch,))

    @override
    def roundings(self, spec: MergeSpec, config: UnitsConfig, extents: Extents, limits: Limits) -> int:
        merges = chain(extents["units"])
        return 1 + roundings(spec.whole, extents["units"], Share(merges, merges), 0)

    def bytes_in_flight(self, spec: MergeSpec, config: UnitsConfig) -> int:
        """The partial results of the units that are loaded at once."""
        return AT_ONCE * sum(dtype.size for _, _, dtype in spec.partials)
