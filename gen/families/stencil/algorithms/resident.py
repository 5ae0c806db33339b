"""Little arrays for many steps: one block keeps all cells in shared memory, and a call is one launch.

The cells around the array, which weights reach, lie in shared memory too: each of them is computed once more from the
neighbours of the cell that it stands for, so that a step has one barrier, whatever the boundary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from typing_extensions import override

from gen.arch import WARP
from gen.dtypes import I64
from gen.families.base import Extents, Launch, Limits, Plan
from gen.families.config import Config, tunable
from gen.families.estimates import Demand
from gen.families.expr import ONE, Expr, size
from gen.families.stencil.algorithms.common import (
    Sides,
    StencilAlgorithm,
    blocks_of_images,
    image_of,
    images_of,
    numbers,
    reach_of,
)
from gen.families.stencil.algorithms.demands import computed_share, work_of
from gen.families.stencil.shapes import extents_of
from gen.families.stencil.spec import STEPS, StencilSpec

_MOST_TERMS = 400  # of a cell, all written out: more take NVRTC long to compile
_SOURCE_BYTES = 2  # of a place: where the cell lies that it is computed from
_BARRIER_CLOCKS, _PLACE_CLOCKS, _TERM_CLOCKS = 300.0, 70.0, 4.5  # of a step; of a place of a thread; of its terms
_OTHER_LOADS = 3.0  # of a place, beside those of its terms
_STEP_US = 2.2  # that a launch of a step takes at least
_FEW_STEPS = 4


@dataclass(frozen=True, kw_only=True)
class ResidentConfig(Config):
    """How many threads share the cells."""

    threads_per_block: int = tunable("tpb", (128, 256, 512, 1024), base=1024, help="threads of the only block")


class Resident(StencilAlgorithm[ResidentConfig]):
    """Computes all time steps in one launch, of arrays that shared memory holds."""

    name = "resident"
    template = "stencil/resident.cu.jinja"
    summary = "One block keeps the whole array in shared memory for all time steps."
    config = ResidentConfig
    by_images = True

    @override
    def bytes_in_flight(self, spec: StencilSpec, config: ResidentConfig) -> int:
        """A thread loads its cells one after another."""
        return spec.dtype.size

    def unsearched(self, spec: StencilSpec, config: ResidentConfig) -> str | None:
        """The code must not be too long."""
        return "its code would be too long" if len(spec.taps) > _MOST_TERMS else None

    def slow_path_reason(
        self, spec: StencilSpec, config: ResidentConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """One multiprocessor must be as fast as a launch of all."""
        us = step_clocks(spec, config, extents, Limits.of("sm_90")) / 1700
        if us > _STEP_US or extents.get(STEPS, 1) < _FEW_STEPS:
            return f"a step takes one block about {us:.1f} us"
        return None

    @override
    def edge_cases(self, spec: StencilSpec, config: ResidentConfig) -> Iterator[Extents]:
        """Lines around a block's threads, and arrays of which weights reach far beyond."""
        for place, cols in enumerate((config.threads_per_block + 1, config.threads_per_block // 2 - 1, 5, 1)):
            yield extents_of(spec, (2, 3, cols)[-len(spec.axes) :], place + 1, gap=place, out_gap=place % 3)

    @override
    def plan(self, spec: StencilSpec, config: ResidentConfig) -> Plan:
        places: Expr = ONE
        cells: Expr = ONE
        image = image_of(spec)
        for axis, around in zip(image.axes, _around(reach_of(image)), strict=True):
            places, cells = places * (size(axis) + around), cells * size(axis)
        launch = Launch(
            grid=blocks_of_images(spec, cells.at_most(1)),
            block=(config.threads_per_block, 1, 1),
            arguments=("in", "out", *numbers(spec, size("in_pitch")), (I64, size(STEPS))),
            shared_bytes=places * _bytes_of_place(spec),
        )
        return Plan((launch,))

    @override
    def demand(
        self, spec: StencilSpec, config: ResidentConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        """A step takes one multiprocessor what its loads from shared memory take, or each thread its places."""
        places = _places(spec, extents)
        own = -(-places // config.threads_per_block)
        turns = -(-images_of(spec).at(extents) // limits.multiprocessors)
        seconds = turns * extents.get(STEPS, 1) * step_clocks(spec, config, extents, limits) / limits.clock_hz
        return Demand(
            moved_bytes=2.0 * prod(extents[axis] for axis in spec.axes) * spec.dtype.size,
            blocks=images_of(spec).at(extents),
            threads_per_block=config.threads_per_block,
            bytes_in_flight=2.0 * spec.dtype.size,
            rounds=1 + own,
            instructions=120.0 * own,
            shared_bytes=places * _bytes_of_place(spec),
            end_seconds=seconds,
        )


def step_clocks(spec: StencilSpec, config: ResidentConfig, extents: Extents, limits: Limits) -> float:
    """About what a step takes: what shared memory delivers in a clock is a word to each lane of a warp."""
    work, places = work_of(spec, limits), _places(spec, extents)
    computed = computed_share(spec, extents)  # the others are looked up, and stay
    loaded = places * (computed * work.terms * work.words + _OTHER_LOADS) / WARP
    own = -(-places // config.threads_per_block) * (_PLACE_CLOCKS + _TERM_CLOCKS * work.terms * computed)
    return max(loaded, own) + _BARRIER_CLOCKS


def _places(spec: StencilSpec, extents: Extents) -> int:
    """Cells of an image and around it."""
    image = image_of(spec)
    return prod(extents[axis] + around for axis, around in zip(image.axes, _around(reach_of(image)), strict=True))


def _around(reach: Sides) -> tuple[int, ...]:
    return tuple(before + after for before, after in zip(reach.before, reach.after, strict=True))


def _bytes_of_place(spec: StencilSpec) -> int:
    """A number before and after a step, and the source."""
    return 2 * spec.accumulator.size + _SOURCE_BYTES
