"""Every cell reads its neighbours from global memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gen.dtypes import U32, LoadModifier
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan, Scratch
from gen.families.config import Config, tunable
from gen.families.expr import ONE, Expr, constant, size
from gen.families.plans import Tiles
from gen.families.stencil.plans import numbers, stepping
from gen.families.stencil.sizes import edge_cases_of
from gen.families.stencil.spec import StencilSpec
from gen.families.stencil.text import Coefficients, common, weight_bytes

WEIGHTS = "weights"


@dataclass(frozen=True, kw_only=True)
class NaiveConfig(Config):
    """How `naive` lays threads over the cells."""

    block_x: int = tunable("x", (32, 64, 128), base=32, help="threads of a block along a row")
    block_y: int = tunable("y", (2, 4, 8), base=8, help="threads of a block down the rows")
    unroll: int = tunable("u", (1, 2, 4), base=1, help="rows of cells each thread computes")
    load_modifier: LoadModifier = tunable(
        "ld",
        (LoadModifier.DEFAULT, LoadModifier.CG),
        base=LoadModifier.DEFAULT,
        off=LoadModifier.DEFAULT,
        help="cache operator of the loads",
    )
    coefficients: Coefficients = tunable(
        "w",
        tuple(Coefficients),
        base=Coefficients.LITERAL,
        off=Coefficients.LITERAL,
        help="where the kernel finds its weights",
    )

    def unsearched(self) -> str | None:
        """Weights in memory and operators are for comparison: they are offered where everything else is plain."""
        plain = self.load_modifier is LoadModifier.DEFAULT
        if self.unroll > 1 and not plain:
            return "a cache operator goes with unroll 1"
        if self.coefficients is not Coefficients.LITERAL and (self.unroll > 1 or self.block_y != 8 or not plain):
            return "weights in memory go with 8 rows of threads, unroll 1 and plain loads"
        return None


class Naive(Algorithm[StencilSpec, NaiveConfig]):
    """Every cell reads its neighbours from global memory."""

    name = "naive"
    template = "stencil/naive.cu.jinja"
    summary = "Every thread computes cells of one column, a row at a time, straight from global memory."
    config = NaiveConfig

    def unsupported_extents(
        self, spec: StencilSpec, config: NaiveConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """The tiles must fit in a grid."""
        return self.tiles(spec, config).unsupported_extents(extents)

    def edge_cases(self, spec: StencilSpec, config: NaiveConfig) -> Iterator[Extents]:
        """Sizes that leave the last tiles few of their cells, or all but few."""
        return edge_cases_of(spec, self.tiles(spec, config))

    def inputs(self, spec: StencilSpec, config: NaiveConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            **common(spec),
            "block_x": config.block_x,
            "block_y": config.block_y,
            "unroll": config.unroll,
            "load": config.load_modifier.intrinsic,
            "coefficients": config.coefficients.value,
        }

    def tiles(self, spec: StencilSpec, config: NaiveConfig) -> Tiles:
        """Cells of a block."""
        if len(spec.axes) == 1:
            return Tiles(ONE, size("cols"), 1, config.block_x * config.block_y * config.unroll)
        return Tiles(size("rows"), size("cols"), config.block_y * config.unroll, config.block_x)

    def plan(self, spec: StencilSpec, config: NaiveConfig) -> Plan:
        """One launch a step."""
        tiles = self.tiles(spec, config)
        across = ((U32, tiles.across),) if len(spec.axes) > 1 else ()
        weights = weights_of(spec, config.coefficients)

        def sweep(source: str, target: str, in_pitch: Expr) -> Launch:
            return Launch(
                grid=(tiles.count, ONE, ONE),
                block=(config.block_x, config.block_y, 1),
                arguments=(source, target, *weights.arguments, *numbers(spec, in_pitch), *across),
                across=tiles.across,
            )

        return weights.before(stepping(spec, sweep))

    def bytes_in_flight(self, spec: StencilSpec, config: NaiveConfig) -> int:
        """One cell: a thread finishes it before it begins the next, and its neighbours are other threads' cells."""
        return spec.dtype.size


@dataclass(frozen=True)
class Weights:
    """Weights in an array of their own, if a kernel wants them so: what its launches take, and what comes before."""

    spec: StencilSpec
    in_array: bool

    @property
    def arguments(self) -> tuple[str, ...]:
        """After the cells."""
        return (WEIGHTS,) if self.in_array else ()

    def before(self, plan: Plan) -> Plan:
        """The plan, once the weights are where the kernel reads them."""
        if not self.in_array:
            return plan
        threads = -(-len(self.spec.weights) // 32) * 32
        fill = Launch((ONE, ONE, ONE), (threads, 1, 1), (WEIGHTS,), entry="_weights", setup=True)
        scratch = Scratch(WEIGHTS, constant(weight_bytes(self.spec)))
        return replace(plan, launches=(fill, *plan.launches), scratch=(*plan.scratch, scratch))


def weights_of(spec: StencilSpec, coefficients: Coefficients) -> Weights:
    """How a kernel gets at its weights."""
    return Weights(spec, coefficients in (Coefficients.READ_ONLY, Coefficients.GLOBAL))
