"""The family of systems: sizes, cases, oracle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from typing_extensions import override

from gen.dtypes import I64
from gen.errors import ShapeError
from gen.families.base import Algorithm, Array, Expected, Extents, Layout, Limits, Operand
from gen.families.config import Config
from gen.families.extents import DenseFamily, measure
from gen.families.stencil.spec import STEPS
from gen.families.system.launches import extents_of
from gen.families.system.march import March, MarchConfig
from gen.families.system.naive import Naive, NaiveConfig
from gen.families.system.oracle import expected, expected_at
from gen.families.system.spec import DTYPES, SystemSpec, system
from gen.families.system.terms import fields, scalars
from gen.families.system.text import reach_of
from gen.paths import templates_root

_REPRESENTATIVE = {1: (1 << 24,), 2: (4096, 4096), 3: (256, 256, 256)}  # by the number of axes
_SEVERAL_PLANES = 3
_MARCHES = (  # those that a block of any device has room for come last
    MarchConfig(),
    MarchConfig(blocks_per_sm=3, ahead=2),
    MarchConfig(block_y=4, blocks_per_sm=2, ahead=1),
)
_FOR_NUMPY = 3_000_000  # terms of sums, cells and steps, multiplied: a second


def _wave() -> SystemSpec:
    """Waves of two axes whose speed differs from place to place, and which are damped."""
    u, v, m = fields("u v m")
    damping = 0.0625
    return system(
        {u: (2 - damping) * u - (1 - damping) * v + 0.25 * m * u.laplace(order=2), v: u}, boundary="frozen", word="wave"
    )


def _reaction() -> SystemSpec:
    """Gray and Scott's two substances, which diffuse in space, react, and decay in places; all kinds of boundaries."""
    u, v, m = fields("u v m", ndim=3)
    feed, kill = 0.0625, 0.03125
    return system(
        {
            u: u + 0.125 * u.laplace(order=4) - u * v**2 + feed * (1 - u),
            v: v + 0.0625 * v.laplace() + u * v**2 - (feed + kill) * m * v,
        },
        boundary=["mirror", ("nearest", "constant"), ("wrap", "frozen")],
        cval=0.5,
        word="reaction",
    )


def _survey() -> SystemSpec:
    """Waves from sources, which receivers hear; what they were two steps before counts too."""
    u, v, w, m = fields("u v w m")
    (damping,) = scalars("damping")
    return system(
        {u: 2 * u - damping * v - 0.0625 * w + 0.125 * m * u.laplace(), v: u, w: v},
        boundary="frozen",
        sources=[u],
        receivers=[u, v],
        word="survey",
    )


SAMPLES = (_reaction(), _survey())
"""What is proven beside the catalogue, and found by its label."""


class System(DenseFamily[SystemSpec]):
    """The family of systems."""

    name = "system"
    summary = "several fields that change together, each by an expression over its neighbours and the others"
    algorithms: Mapping[str, Algorithm[SystemSpec, Any]] = {a.name: a for a in (Naive(), March())}
    catalogue = (_wave(),)
    extra_proof_specs = MappingProxyType(dict.fromkeys(("naive", "march"), SAMPLES[0]))
    templates = templates_root()
    label_help = (
        f"{catalogue[0].label}: a word, a digest of all that is computed and a type, one of "
        f"{', '.join(dtype.name for dtype in DTYPES)}"
    )

    from_json = staticmethod(SystemSpec.from_json)

    def from_label(self, label: str) -> SystemSpec | None:
        """The samples."""
        return next((spec for spec in SAMPLES if spec.label == label), None)

    def runtime_parameters(self, spec: SystemSpec) -> Mapping[str, int]:
        """How many time steps a call takes, and how many points it has: where it brings arrays of these, they say."""
        return {STEPS: 1, **dict.fromkeys(spec.counts, 1)}

    @override
    def extents(self, spec: SystemSpec, layouts: Mapping[str, Layout]) -> Extents:
        return {**self.runtime_parameters(spec), **measure(spec.operands, layouts)}

    @override
    def check_content(self, spec: SystemSpec, inputs: Mapping[str, Array], extents: Extents) -> None:
        shape = tuple(extents[axis] for axis in spec.axes)
        for name in (*(f"{x}_sources" for x in spec.sources), *(f"{x}_receivers" for x in spec.receivers)):
            points = inputs[name]
            outside = ((points < 0) | (points >= np.array(shape, np.int64))).any(axis=1)
            if outside.any():
                place = int(outside.argmax())
                value = f"point {place}: {tuple(points[place].tolist())}"
                raise ShapeError(name, f"must be points of fields of shape {shape}, counted from 0", value)

    def oracle(self, spec: SystemSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """The expressions, rounded as the spec says, as often as there are time steps."""
        return expected(spec, inputs, extents.get(STEPS, 1))

    def oracle_at(
        self, spec: SystemSpec, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """One time step, of these cells alone."""
        if extents.get(STEPS, 1) != 1 or spec.counts:
            return None
        return expected_at(spec, inputs, name.removesuffix("_out"), index)

    @override
    def holds_places(self, spec: SystemSpec, operand: Operand) -> bool:
        return operand.dtype == I64

    @override
    def representative(self, spec: SystemSpec, shape_class: str) -> Extents:
        return extents_of(spec, _REPRESENTATIVE[spec.ndim], 1)

    @override
    def sizes_for_numpy(self, spec: SystemSpec, extents: Extents) -> Extents:
        """As much of it as NumPy computes in about a second, so that tuning need not wait for it."""
        steps = min(extents.get(STEPS, 1), 4)
        counts = {name: extents[name] for name in spec.counts}
        cells = _FOR_NUMPY // (spec.operations * max(steps, 1))
        most = max(int(cells ** (1 / spec.ndim)), 16)
        if steps == extents.get(STEPS, 1) and prod(extents[axis] for axis in spec.axes) <= cells:
            return extents
        return {**extents_of(spec, [min(extents[axis], most) for axis in spec.axes], steps), **counts}

    @override
    def cases(self, spec: SystemSpec) -> Iterator[Extents]:
        """Nothing, one, thinner than the radius, one off a block; no step, one, several; points that share cells."""
        for place, shape in enumerate(_SHAPES[spec.ndim]):
            counts = dict.fromkeys(spec.counts, (3, 0, 90, 90, 90)[place % 5])
            yield {**extents_of(spec, shape, (1, 2, 5, 3, 1, 0, 4)[place % 7]), **counts}

    def heuristic_configs(
        self, spec: SystemSpec, shape_class: str, limits: Limits
    ) -> Sequence[tuple[str, Config]]:  # fmt: skip
        """`march` where several planes are read: in `naive` each cell is then read as often, from the cache."""
        if reach_of(spec).deep < _SEVERAL_PLANES:
            return ()
        return tuple(("march", config) for config in _MARCHES)

    def base(self, spec: SystemSpec, shape_class: str) -> tuple[str, Config]:
        """`naive`: warps along the rows, four rows a block share their neighbours in the cache."""
        return "naive", NaiveConfig()


_SHAPES: Mapping[int, tuple[tuple[int, ...], ...]] = {
    1: ((0,), (1,), (2,), (3,), (5,), (31,), (33,), (256,), (257,), (1023,), (2049,)),
    2: (
        (0, 0), (0, 4), (4, 0), (1, 1), (1, 2), (2, 1), (3, 3), (1, 131), (131, 1), (7, 31), (8, 32), (9, 33),
        (17, 127), (33, 65),
    ),
    3: (
        (0, 0, 0), (0, 3, 4), (3, 0, 4), (4, 3, 0), (1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (3, 3, 3), (17, 1, 33),
        (1, 9, 65), (2, 17, 31), (9, 8, 32), (5, 33, 7), (8, 7, 130),
    ),
}  # fmt: skip
