"""The family of stencils: sizes, shape classes, cases, least work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, product
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from gen.arch import Limits
from gen.dtypes import F64, U8, DType
from gen.families.base import WIDEST, Algorithm, Array, Expected, Extents, Layout, Named, searched_cover
from gen.families.config import Config
from gen.families.estimates import Smallest
from gen.families.extents import DenseFamily, check_gaps
from gen.families.stencil import shapes
from gen.families.stencil.algorithms.common import cells_of
from gen.families.stencil.algorithms.demands import again_share
from gen.families.stencil.algorithms.march import March, MarchConfig
from gen.families.stencil.algorithms.overlapped import Overlapped
from gen.families.stencil.algorithms.persistent import Persistent
from gen.families.stencil.algorithms.pipelined import Pipelined, PipelinedConfig
from gen.families.stencil.algorithms.resident import Resident
from gen.families.stencil.algorithms.shifted import Shifted
from gen.families.stencil.algorithms.stacked import Stacked
from gen.families.stencil.algorithms.stream import Stream, StreamConfig
from gen.families.stencil.algorithms.temporal import Temporal, TemporalConfig
from gen.families.stencil.algorithms.tiled import Naive, NaiveConfig, Queued, Tiled
from gen.families.stencil.heuristics import many_steps, one_step
from gen.families.stencil.oracle import expected, expected_at
from gen.families.stencil.shapes import MANY_STEPS, ONE_STEP
from gen.families.stencil.spec import BOUNDARIES, DTYPES, STEPS, StencilSpec
from gen.paths import templates_root

_ALGORITHMS = (
    Naive(),
    Stacked(),
    Tiled(),
    Queued(),
    Stream(),
    Shifted(),
    Temporal(),
    Pipelined(),
    Overlapped(),
    Resident(),
    Persistent(),
    March(),
)
# What the literature's kernels compute, of order 8: the slope, and the sum of the curvatures along both axes.
_SLOPE = (1 / 280, -4 / 105, 1 / 5, -4 / 5, 0.0, 4 / 5, -1 / 5, 4 / 105, -1 / 280)
_CURVATURE = (-1 / 560, 8 / 315, -1 / 5, 8 / 5, -205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)
_DERIVATIVE = {"word": "derivative", "shape": [9], "weights": _SLOPE}
_LAPLACIAN = {
    "word": "laplacian",
    "shape": [9, 9],
    "weights": [(y == 4) * _CURVATURE[x] + (x == 4) * _CURVATURE[y] for y in range(9) for x in range(9)],
}
# A step of transport by upwind differences of second order, a quarter of a cell along both axes: on one side alone.
_UPWIND = (-1 / 8, 0, 0, 1 / 2, 0, 0, 1 / 4, 1 / 2, -1 / 8)
_TRANSPORT = StencilSpec("transport", _UPWIND, (3, 3), boundary=("reflect", "mirror"), origin=(1, -1))
# Heat that spreads in space, not alike in all directions, with another boundary along each axis.
_SPACE_WEIGHTS = {4: 0.25, 10: 0.125, 12: 0.125, 13: 0.3125, 14: 0.0625, 16: 0.0625, 22: 0.0625}
_SPACE = StencilSpec(
    "heat",
    tuple(_SPACE_WEIGHTS.get(place, 0.0) for place in range(27)),
    (3, 3, 3),
    boundary=("constant", "nearest", "mirror"),
    cval=1.5,
)
# What spreads through a channel and is carried along it: what march fuses, with another boundary along each axis.
_CHANNEL = StencilSpec(
    "channel",
    tuple(
        {4: 0.125, 10: 0.1875, 12: 0.3, 13: 0.1, 14: 0.0625, 16: 0.125, 22: 0.1}.get(place, 0.0) for place in range(27)
    ),
    (3, 3, 3),
    boundary=("constant", "frozen", "wrap"),
    cval=1.5,
)
# The same with a weight beside the axes in the last plane: levels of fused steps wait for all of that plane.
_DRIFT = replace(_CHANNEL, word="drift", weights=(*_CHANNEL.weights[:25], 0.05, 0.0))
# What sharpens a picture of bytes: many of its sums lie half-way between two, and outside the range.
_SHARPER = StencilSpec(
    "sharpen",
    (-0.125, 0.25, -0.125, 0.25, 1, 0.25, -0.125, 0.25, -0.125),
    dtype=U8,
    boundary=("mirror", "constant"),
    cval=7,
)
# Waves in a layer: free above and held below, absorbed where they come from and carried on at the other end.
_LAYER = StencilSpec(
    "layer",
    (0.0625, 0.25, 0.0, 0.125, 0.125, 0.25, 0.0, 0.125, 0.0625),
    boundary=(("mirror", "frozen"), ("reflect", "constant")),
    cval=0.75,
)
# Photographs of a batch, each blurred by itself.
_PHOTOGRAPHS = StencilSpec("blur", (0.0625, 0.125, 0.0625, 0.125, 0.25, 0.125, 0.0625, 0.125, 0.0625), (1, 3, 3))
# What spreads on a torus, faster along its rows and with the wind.
_TORUS = StencilSpec("torus", (0.05, 0.1, 0.03, 0.2, 0.3, 0.12, 0.04, 0.1, 0.06), boundary="wrap")
# A blur whose terms are reassociated: two bases, rows that are multiples of them, a row of its own, and pairs of cells.
_BLUR = StencilSpec(
    "blur",
    tuple(
        weight / 128
        for row in ((0.5, 1, 1.5, 1, 0.5), (4, 5, 6, 5, 4), (7, 8, 9, 8, 7), (2, 2.5, 3, 2.5, 2), (1, 2, 3, 2, 1))
        for weight in row
    ),
    (5, 5),
    F64,
    boundary=("reflect", "mirror"),
    reassociate=True,
)
_REASSOCIATED: tuple[tuple[str, Config], ...] = (
    ("naive", NaiveConfig(unroll=2)),
    ("stream", StreamConfig()),
    ("temporal", TemporalConfig(vectors=1)),
    ("pipelined", PipelinedConfig(vectors=2, warps=2, levels=2)),
)
# Further in one direction, by weights along the axes alone, which every algorithm takes; by the number of axes.
_ASYMMETRIC = {
    1: ((0.3, 0.4, 0.2, 0.1), (4,)),
    2: ((0, 0, 0.1, 0, 0.2, 0.3, 0.15, 0.05, 0, 0, 0.2, 0), (3, 4)),
    3: (tuple({4: 0.1, 10: 0.2, 12: 0.15, 13: 0.3, 14: 0.05, 16: 0.1, 22: 0.1}.get(i, 0) for i in range(27)), (3,) * 3),
}
_FIRST = {"block_y": 1, "unroll": 1}


def _asymmetric(dtype: DType, first: int) -> Iterator[StencilSpec]:
    """Specs of two, one and three axes, whose boundaries differ; the last axis has each of them in turn."""
    for turn, axes in product(range(len(BOUNDARIES)), (2, 1, 3)):
        kinds = tuple(BOUNDARIES[(first + turn + axis) % len(BOUNDARIES)] for axis in range(axes))[::-1]
        weights, shape = _ASYMMETRIC[axes]
        yield StencilSpec("cover", weights, shape, dtype, kinds, cval=2)


class Stencil(DenseFamily[StencilSpec]):
    """The family of stencils."""

    name = "stencil"
    summary = "each cell from its neighbours, once or many times over"
    algorithms: Mapping[str, Algorithm[StencilSpec, Any]] = {a.name: a for a in _ALGORITHMS}
    named = (
        Named("stencil_1d", "tiled", {**_FIRST, "coefficients": "const"}, _DERIVATIVE, rank=1),
        Named(
            "stencil_1d_read_only", "tiled", {**_FIRST, "coefficients": "ldg"}, _DERIVATIVE, rank=2,
            published=3.4517 / 3.6816,
        ),
        Named(
            "stencil_1d_gmem", "tiled", {**_FIRST, "coefficients": "gmem"}, _DERIVATIVE, rank=3, over="stencil_1d"
        ),
        Named("kernel_2dfd", "queued", {"coefficients": "const"}, _LAPLACIAN, rank=4, over=None),
    )  # fmt: skip
    # An explicit step of the heat equation, at half the largest stable time step.
    catalogue = (StencilSpec("heat", (0, 0.125, 0, 0.125, 0.5, 0.125, 0, 0.125, 0)),)
    extra_proof_specs = MappingProxyType(
        {
            "naive": _SPACE,
            "march": _CHANNEL,
            "overlapped": StencilSpec("derivative", _SLOPE, (9,)),
            "resident": _PHOTOGRAPHS,
            "persistent": _TORUS,
            "shifted": _SHARPER,
            "stream": _PHOTOGRAPHS,
            "temporal": _TRANSPORT,
            "tiled": _LAYER,
        }
    )
    templates = templates_root()
    label_help = (
        f"{catalogue[0].label}: a word, a digest of all that is computed and a type, one of "
        f"{', '.join(dtype.name for dtype in DTYPES)}"
    )

    from_json = staticmethod(StencilSpec.from_json)
    representative = staticmethod(shapes.representative)
    sizes_for_numpy = staticmethod(shapes.sizes_for_numpy)
    cases = staticmethod(shapes.cases)
    far_cases = staticmethod(shapes.far_cases)

    def from_label(self, label: str) -> StencilSpec | None:
        """The samples, and the specs of the literature's kernels."""
        named = (self.from_json({**self.catalogue[0].to_json(), **named.spec}) for named in self.named)
        return next(
            (spec for spec in (*self.extra_proof_specs.values(), _BLUR, _DRIFT, *named) if spec.label == label), None
        )

    def runtime_parameters(self, spec: StencilSpec) -> Mapping[str, int]:
        """How many time steps a call takes."""
        return {STEPS: 1}

    def extents(self, spec: StencilSpec, layouts: Mapping[str, Layout]) -> Extents:
        """Every axis, both pitches, and the time steps; planes must follow each other."""
        found = super().extents(spec, layouts)
        check_gaps(spec.operands, found, layouts)
        return found

    def oracle(self, spec: StencilSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """The correlation, its terms rounded as the spec says, as often as there are time steps."""
        return {"out": expected(spec, inputs["in"], extents.get(STEPS, 1))}

    def oracle_at(
        self, spec: StencilSpec, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """One time step, of these cells alone."""
        return expected_at(spec, inputs["in"], index) if extents.get(STEPS, 1) == 1 else None

    @override
    def shape_classes(self, spec: StencilSpec) -> tuple[str, ...]:
        return (ONE_STEP, MANY_STEPS)

    @override
    def first_stays(self, shape_class: str) -> float:
        """Of many steps estimates alone choose, which the times of bench/depths-h100.json bear out.

        Of one step a ratio nearer to 1 lets in what is estimated too low: bench/estimates-stencil-h200.json.
        """
        return 1.0 if shape_class == MANY_STEPS else 0.92

    @override
    def smallest(self, spec: StencilSpec, extents: Extents, limits: Limits) -> Smallest:
        cells = cells_of(spec, extents)
        swept = 2 * cells * spec.dtype.size
        return Smallest(
            cells, swept, extents.get(STEPS, 1), rows=extents.get("rows", 1), cols=extents["cols"],
            again_share=again_share(swept, limits.l2_bytes),
        )  # fmt: skip

    @override
    def shape_class(self, spec: StencilSpec, extents: Extents, alignment: int = WIDEST) -> str:
        return shapes.shape_class(extents)

    def proof_cover(self) -> Iterator[tuple[str, StencilSpec, Config]]:
        """Every type of cells with every algorithm, and every boundary with both; configs in turns.

        And terms in another order than the weights' with all algorithms that add them so, and levels of fused steps
        that wait for all of a plane.
        """
        for first, (name, algorithm) in enumerate(self.algorithms.items()):
            configs = searched_cover(algorithm)
            for place, dtype in enumerate(DTYPES):
                found = (
                    (spec, config)
                    for spec in _asymmetric(dtype, first + place)
                    for config in (*configs[place % len(configs) :], *configs[: place % len(configs)])
                    if algorithm.illegal(spec, config) is None and algorithm.unsearched(spec, config) is None
                )
                yield from ((name, *one) for one in islice(found, 1))
        yield from ((name, _BLUR, config) for name, config in _REASSOCIATED)
        yield "march", _DRIFT, MarchConfig(warps=4, rows=2, blocks_per_sm=1, ring=2, steps=2)
        yield (
            "naive",
            replace(_BLUR, shape=(1, *_BLUR.shape), boundary=("constant", *_BLUR.boundaries), origin=0),
            NaiveConfig(),
        )

    def base(self, spec: StencilSpec, shape_class: str) -> tuple[str, Config]:
        """`naive`: whole warps along the rows, eight rows a block share their neighbours in the cache."""
        return "naive", NaiveConfig()

    def heuristic_configs(self, spec: StencilSpec, shape_class: str, limits: Limits) -> tuple[tuple[str, Config], ...]:
        """For one time step rows through registers, for many as many at once as pay."""
        return one_step(spec) if shape_class == ONE_STEP else many_steps(spec, limits)
