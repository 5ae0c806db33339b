"""Which variants of a stencil are tried first: the fastest by a count of instructions and bytes a cell.

Fused steps cost what their arithmetic does, unless so few are fused that memory is slower. The count takes the rates
of the device from its limits; which share of them is reached was set with what won on an H200 in view
(`bench/stencil_sweep.py`, `bench/line_sweep.py`). It ranks variants, it does not time them.
"""

from __future__ import annotations

from itertools import product

from gen.arch import SHUFFLES_PER_CLOCK, Limits
from gen.families.config import Config
from gen.families.names import is_searched
from gen.families.stencil.algorithms.common import cells_of_vector, mirrored_reach_of, reach_of
from gen.families.stencil.algorithms.march import MarchConfig
from gen.families.stencil.algorithms.overlapped import Overlapped, OverlappedConfig
from gen.families.stencil.algorithms.stream import StreamConfig
from gen.families.stencil.algorithms.temporal import Columns, Temporal, TemporalConfig, most_registers, registers
from gen.families.stencil.algorithms.tiled import NaiveConfig
from gen.families.stencil.spec import StencilSpec

Choice = tuple[str, Config]

MANY_WEIGHTS = 16  # weights from which a warp should compute as many rows as it can
MAX_FUSED_VARIANTS = 8
ASSUMED_ROWS = 8192  # that a launch is taken to have
F32_ISSUE_SHARE = 0.886  # of the operations on f32 that a device could do
# Left over: with so many NVRTC 13.0 spills none, whatever the boundary.
SPARE_REGISTERS, SPARE_REGISTERS_F16 = 8, 16
MAX_TERMS_OF_LANE = 1400  # fused multiply-adds of a lane and row, all written out: more take long to compile
BANDWIDTH_SHARE = 0.712  # of the bandwidth of the memory, while there is arithmetic too
OTHER_INSTRUCTIONS = 0.7  # instructions a cell and step beside sums and shuffles

# The fastest of seven for 7 weights at 512 x 512 x 512 by the prediction for sm_90; none of them was timed.
_MARCHES = tuple(
    ("march", MarchConfig(warps=warps, rows=rows, planes=planes, ring=ring))
    for warps, rows, planes, ring in ((8, 2, 64, 3), (8, 2, 256, 3), (4, 2, 64, 4), (8, 1, 64, 3), (4, 1, 64, 3))
)


def one_step(spec: StencilSpec) -> tuple[Choice, ...]:
    """`stream`, or `march` through planes; the more neighbours a cell has, the more rows a warp computes."""
    if len(spec.axes) > 2:
        return (*_MARCHES, *_short_rows(spec))
    return (*_streams(spec), *_short_rows(spec))


def many_steps(spec: StencilSpec, limits: Limits) -> tuple[Choice, ...]:
    """Variants that fuse steps, the fastest by the count first, and two that do not, which compile at once."""
    if len(spec.axes) > 2:
        return one_step(spec)
    fused = _lines(spec, limits) if len(spec.axes) == 1 else _rows(spec, limits)
    half = MAX_FUSED_VARIANTS // 2
    return (*fused[:half], *_streams(spec)[:2], *fused[half:], *_short_rows(spec))


def step_seconds(spec: StencilSpec, config: TemporalConfig, limits: Limits) -> float:
    """What a cell and step of `temporal` takes, by the count."""
    words = spec.accumulator.size // 4
    reach, cells = mirrored_reach_of(spec), config.vectors * cells_of_vector(spec)
    columns = Columns.of(spec, config)
    # Each warp streams a strip of rows, and over what its steps use up above and below.
    strips = max(limits.multiprocessors * config.warps_per_sm * config.waves * columns.own // ASSUMED_ROWS, 1)
    strip = ASSUMED_ROWS / strips
    repeated = columns.wide / columns.own * (strip + config.steps * (reach.high - 1)) / strip
    shuffled = 2 * reach.side * words / cells
    slots = _sums(spec, limits) + shuffled + OTHER_INSTRUCTIONS * words + _rounded(spec)
    busy = config.warps_per_sm / (config.warps_per_sm + 1)
    return _together(slots * repeated / (_slots(limits) * busy), _moved(spec, config.steps, limits))


def line_seconds(spec: StencilSpec, config: OverlappedConfig, limits: Limits) -> float:
    """What a cell and step of `overlapped` takes, by the count."""
    words, reach = spec.accumulator.size // 4, reach_of(spec)
    cells = config.vectors * cells_of_vector(spec)
    repeated = 32 * cells / (32 * cells - config.steps * (reach.left + reach.right))
    shuffled = limits.f32_per_clock / SHUFFLES_PER_CLOCK * words * (reach.left + reach.right) / cells
    slots = _sums(spec, limits) + shuffled + 4 / cells + _rounded(spec)
    return _together(slots * repeated / _slots(limits), _moved(spec, config.steps, limits) * repeated)


def _rows(spec: StencilSpec, limits: Limits) -> tuple[Choice, ...]:
    parameters = ((1, 2), (8, 12, 16, 24), (1,), (2, 4, 6, 8, 12, 16))
    made = [
        TemporalConfig(vectors=vectors, warps_per_sm=warps, waves=waves, steps=steps)
        for vectors, warps, waves, steps in product(*parameters)
        if warps <= limits.blocks_per_multiprocessor  # a block is a warp
    ]
    algorithm = Temporal()
    tried = [one for one in made if _written(spec, one) <= MAX_TERMS_OF_LANE and is_searched(algorithm, spec, one)]
    tried.sort(key=lambda config: step_seconds(spec, config, limits))
    # The first is what a device gets on which nothing is tuned: it must not spill, whatever the compiler, and its
    # steps divide what people ask for more often than 6 and 12 do.
    room = SPARE_REGISTERS_F16 if spec.dtype != spec.accumulator else SPARE_REGISTERS
    safe = [one for one in tried if one.steps in (2, 4, 8) and most_registers(one) - registers(spec, one) >= room]
    tried = [*safe[:1], *(one for one in tried if one not in safe[:1])]
    # More blocks than fit at once, where few fit.
    more = [
        TemporalConfig(vectors=one.vectors, warps_per_sm=one.warps_per_sm, waves=3, steps=one.steps)
        for one in tried[:3]
        if one.warps_per_sm < 16
    ]
    return tuple(("temporal", config) for config in (*tried[:MAX_FUSED_VARIANTS], *more))


def _written(spec: StencilSpec, config: TemporalConfig) -> int:
    return len(spec.taps) * config.steps * config.vectors * cells_of_vector(spec) * spec.accumulator.size // 4


def _lines(spec: StencilSpec, limits: Limits) -> tuple[Choice, ...]:
    made = [
        OverlappedConfig(vectors=vectors, warps=warps, steps=steps)
        for vectors, warps, steps in product((2, 4, 8, 16), (2,), (4, 8, 16, 24, 48))
    ]
    algorithm = Overlapped()
    tried = [one for one in made if is_searched(algorithm, spec, one)]
    tried.sort(key=lambda config: line_seconds(spec, config, limits))
    return tuple(("overlapped", config) for config in tried[:MAX_FUSED_VARIANTS])


def _together(one: float, other: float) -> float:
    """Of two that work at the same time: the slower, and a little of the faster where it is nearly as slow."""
    return float((one**4 + other**4) ** 0.25)


def _slots(limits: Limits) -> float:
    """Operations on f32 that a device does in a second."""
    return F32_ISSUE_SHARE * limits.multiprocessors * limits.f32_per_clock * limits.clock_hz


def _sums(spec: StencilSpec, limits: Limits) -> float:
    """What the fused multiply-adds of a cell take."""
    return len(spec.taps) * limits.slots(spec.accumulator)


def _moved(spec: StencilSpec, steps: int, limits: Limits) -> float:
    return 2 * spec.dtype.size / (BANDWIDTH_SHARE * limits.memory_bytes_per_second) / steps


def _rounded(spec: StencilSpec) -> float:
    """To f16 and back."""
    return 2.0 if spec.dtype != spec.accumulator else 0.0


def _short_rows(spec: StencilSpec) -> tuple[Choice, ...]:
    """Narrow blocks, where an array has rows."""
    return tuple(("naive", NaiveConfig(block_x=lanes, block_y=32)) for lanes in (4, 8) if len(spec.axes) > 1)


def _streams(spec: StencilSpec) -> tuple[Choice, ...]:
    narrow = ((2, 1, 4), (4, 1, 4), (4, 1, 8), (2, 1, 8), (8, 1, 4), (4, 2, 4))
    wide = ((8, 1, 2), (8, 2, 2), (16, 1, 2), (8, 1, 4), (16, 1, 4), (16, 2, 2), (4, 1, 4), (2, 1, 4))
    shapes: tuple[tuple[int, int, int], ...] = wide
    if len(spec.taps) <= MANY_WEIGHTS:
        plain = spec.dtype.size > 2 and reach_of(spec).high <= 3
        shapes = narrow if plain else (*narrow[1:3], *narrow[:1], *narrow[3:])
    return tuple(
        ("stream", StreamConfig(rows=rows, warps_across=across, warps_down=down)) for rows, across, down in shapes
    )
