"""The family of stencils: sizes, shape classes, cases, least work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isqrt
from types import MappingProxyType
from typing import Any

from gen.arch import Limits
from gen.families.base import WIDEST, Algorithm, Array, Expected, Extents, Named
from gen.families.config import Config
from gen.families.extents import DenseFamily
from gen.families.stencil.heuristics import many_steps, one_step
from gen.families.stencil.naive import Naive, NaiveConfig
from gen.families.stencil.oracle import expected, expected_at
from gen.families.stencil.overlapped import Overlapped
from gen.families.stencil.sizes import awkward, extents_of
from gen.families.stencil.spec import DTYPES, STEPS, StencilSpec
from gen.families.stencil.staged import Queued, Tiled
from gen.families.stencil.stream import Stream
from gen.families.stencil.temporal import Temporal
from gen.paths import templates_root

ONE_STEP, MANY_STEPS = "1 step", "many steps"
TUNED_STEPS = 48  # divisible by every number of steps that a launch fuses; few enough to be queued at once
_ALGORITHMS = (Naive(), Tiled(), Queued(), Stream(), Temporal(), Overlapped())
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
_FIRST = {"block_y": 1, "unroll": 1}
_PROVABLE = {1: 1 << 20, 2: 1000}  # the largest extents of one and two axes that base is proven at
_PROVABLE_LEAST = {1: 1 << 12, 2: 64}  # many blocks of base all the same
_PROVABLE_STEPS = 20
_PROVABLE_TERMS = 10_000_000  # weights times cells times steps: NumPy takes a fifth of a second


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
        {"overlapped": StencilSpec("derivative", _SLOPE, (9,)), "temporal": _TRANSPORT}
    )
    templates = templates_root()
    label_help = (
        f"{catalogue[0].label}: a word, a digest of all that is computed and a type, one of "
        f"{', '.join(dtype.name for dtype in DTYPES)}"
    )

    def from_json(self, content: Mapping[str, Any]) -> StencilSpec:
        """The inverse of `StencilSpec.to_json`."""
        return StencilSpec.from_json(content)

    def from_label(self, label: str) -> StencilSpec | None:
        """The samples, and the specs of the literature's kernels."""
        named = (self.from_json({**self.catalogue[0].to_json(), **named.spec}) for named in self.named)
        return next((spec for spec in (*self.extra_proof_specs.values(), *named) if spec.label == label), None)

    def runtime_parameters(self, spec: StencilSpec) -> Mapping[str, int]:
        """How many steps a call takes."""
        return {STEPS: 1}

    def oracle(self, spec: StencilSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """The correlation, its terms rounded as the spec says, as often as there are steps."""
        return {"out": expected(spec, inputs["in"], extents.get(STEPS, 1))}

    def oracle_at(
        self, spec: StencilSpec, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """One step, of these cells alone."""
        return expected_at(spec, inputs["in"], index) if extents.get(STEPS, 1) == 1 else None

    def shape_classes(self, spec: StencilSpec) -> tuple[str, ...]:
        """One sweep, which moves bytes, and many, which may stay on chip."""
        return (ONE_STEP, MANY_STEPS)

    def shape_class(self, spec: StencilSpec, extents: Extents, alignment: int = WIDEST) -> str:
        """By the steps."""
        return ONE_STEP if extents.get(STEPS, 1) <= 1 else MANY_STEPS

    def representative(self, spec: StencilSpec, shape_class: str) -> Extents:
        """The size that stands for a class when it is tuned."""
        steps = 1 if shape_class == ONE_STEP else TUNED_STEPS
        return extents_of(spec, (1 << 26,) if len(spec.axes) == 1 else (8192, 8192), steps)

    def sizes_for_numpy(self, spec: StencilSpec, extents: Extents) -> Extents:
        """As much of it as NumPy computes in a fraction of a second, so that tuning need not wait for it."""
        axes = len(spec.axes)
        steps = min(extents.get(STEPS, 1), _PROVABLE_STEPS)
        cells = _PROVABLE_TERMS // (max(len(spec.taps), 1) * max(steps, 1))
        most = min(max(cells if axes == 1 else isqrt(cells), _PROVABLE_LEAST[axes]), _PROVABLE[axes])
        shape = [min(extents[axis], most) for axis in spec.axes]
        if steps == extents.get(STEPS, 1) and all(extents[axis] <= most for axis in spec.axes):
            return extents
        return extents_of(spec, shape, steps)

    def cases(self, spec: StencilSpec) -> Iterator[Extents]:
        """Nothing, one, thinner than the radius, one off a block, pitched; no step, one, several."""
        return awkward(spec)

    def base(self, spec: StencilSpec, shape_class: str) -> tuple[str, Config]:
        """`naive`: whole warps along the rows, eight rows a block share their neighbours in the cache."""
        return "naive", NaiveConfig()

    def heuristic_configs(self, spec: StencilSpec, shape_class: str, limits: Limits) -> tuple[tuple[str, Config], ...]:
        """For one step rows through registers, for many as many at once as pay."""
        return one_step(spec) if shape_class == ONE_STEP else many_steps(spec, limits)
