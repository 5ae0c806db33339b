"""Which variants of a stencil are tried first: the fastest by a count of instructions and bytes a cell.

Fused steps cost what their arithmetic does, unless so few are fused that memory is slower. The count takes the rates
of the device from its limits; which share of them is reached was set with what won on an H200 in view
(`bench/stencil_sweep.py`). It ranks variants, it does not time them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, product

from gen.arch import SHUFFLES_PER_CLOCK, Limits
from gen.dtypes import BF16, F16, F32, F64
from gen.families.config import Config
from gen.families.names import is_searched
from gen.families.stencil.algorithms.common import cells_of_vector, image_of, mirrored_reach_of, reach_of
from gen.families.stencil.algorithms.march import March, MarchConfig
from gen.families.stencil.algorithms.overlapped import Overlapped, OverlappedConfig
from gen.families.stencil.algorithms.persistent import Halo, Persistent, PersistentConfig
from gen.families.stencil.algorithms.pipelined import Pipelined, PipelinedConfig
from gen.families.stencil.algorithms.resident import Resident, ResidentConfig
from gen.families.stencil.algorithms.shifted import ShiftedConfig
from gen.families.stencil.algorithms.stacked import Stacked, StackedConfig
from gen.families.stencil.algorithms.stream import StreamConfig
from gen.families.stencil.algorithms.temporal import Columns, Temporal, TemporalConfig, most_registers, registers
from gen.families.stencil.algorithms.tiled import NaiveConfig, written_terms
from gen.families.stencil.spec import StencilSpec

Choice = tuple[str, Config]

MANY_WEIGHTS = 16  # weights from which a warp should compute as many rows as it can
MAX_FUSED_VARIANTS = 8
SHORT_SEGMENT = 4  # vectors of a lane
ASSUMED_ROWS = 8192  # that a launch is taken to have
F32_ISSUE_SHARE = 0.886  # of the operations on f32 that a device could do
# Left over: with so many NVRTC 13.0 spills none, whatever the boundary.
SPARE_REGISTERS, SPARE_REGISTERS_F16 = 8, 16
MAX_TERMS_OF_THREAD = 1400  # the same of a thread of `naive`, for each of which there is a load or less
MAX_TERMS_OF_LANE = 1400  # fused multiply-adds of a lane and row, all written out: more take long to compile
BANDWIDTH_SHARE = 0.712  # of the bandwidth of the memory, while there is arithmetic too
OTHER_INSTRUCTIONS = 0.7  # instructions a cell and step beside sums and shuffles

# Fast at 512 x 512 x 512 on an H100: warps, rows, blocks of a multiprocessor, waves, places of the ring, steps.
_MARCHES = ((8, 2, 2, 4, 3, 1), (16, 2, 1, 4, 3, 1), (8, 4, 1, 2, 3, 1), (8, 4, 2, 2, 2, 1), (8, 4, 1, 1, 4, 1))
_WIDE_MARCHES = (
    MarchConfig(warps=4, warps_across=4, rows=4, blocks_per_sm=1, waves=2, ring=3),
    MarchConfig(warps=8, warps_across=2, rows=4, blocks_per_sm=1, waves=1, ring=4),
)
_MARCHES_OF_FAR_WEIGHTS = (
    (4, 4, 2, 1, 2, 1),
    (8, 2, 1, 4, 3, 1),
    (4, 2, 2, 4, 3, 1),
    (8, 1, 2, 4, 3, 1),
)
_MARCHES_OF_FEW_CELLS = ((8, 2, 2, 1, 3, 1), (4, 2, 4, 1, 3, 1), (4, 1, 4, 1, 3, 1))  # more blocks; not timed
# The same of fused steps, most of them in bench/volumes-steps-h100.json.
_FUSED_MARCHES = ((8, 4, 1, 5, 4, 4), (8, 4, 1, 5, 4, 3), (16, 3, 1, 4, 3, 2), (8, 4, 1, 4, 3, 2))
_FUSED_MARCHES_OF_MANY_WEIGHTS = ((12, 3, 1, 4, 4, 2), (16, 3, 1, 4, 3, 2), (12, 4, 1, 4, 3, 2), (8, 4, 1, 5, 4, 2))
_FUSED_MARCHES_OF_SMALL_CELLS = ((8, 4, 1, 4, 3, 2), (8, 3, 1, 4, 3, 2), (12, 2, 1, 4, 3, 2))
# With more weights, or cells of other types, fused steps were not timed, or take longer than single ones.
_FEW_WEIGHTS, _MANY_WEIGHTS_TO_FUSE, _FAR_TO_FUSE = 8, 27, 2
_MANY_PLANES = 5  # that a cell reads

# Fastest of f64 at 16384 x 16384 and 8192 x 8192 on an H200, where those of little reach fuse more steps.
_PIPELINES = (
    PipelinedConfig(vectors=4, levels=4, rows=2, turns_ahead=4, waves=6),
    PipelinedConfig(vectors=4, levels=4, rows=2, turns_ahead=4, waves=3),
    PipelinedConfig(vectors=2, levels=2, rows=4, turns_ahead=2, waves=6),
)
_STACKS = (7, 4, 2)  # cells
# Tiles: cells, rows, warps; and how many rows of halo they may have. The first are what 2048 x 2048 cells need.
_TILES = ((8, 20, 8, 6), (8, 14, 8, 8), (8, 8, 8, 8), (4, 4, 12, 8), (4, 4, 8, 6))
_TILE_STEPS = (8, 6, 4, 3, 2)
_MOST_USED_UP = 64  # cells of a line, by the fused steps of `resident`
_ACROSS = (1, 2)  # cells along the last axis, of arrays that are as short as that


def one_step(spec: StencilSpec) -> tuple[Choice, ...]:
    """`stream`, or `march` through planes; the more neighbours a cell has, the more rows a warp computes."""
    spec = image_of(spec)
    if len(spec.axes) > 2:
        return (*_single_marches(spec), *_naive(spec), *_stacked(spec))
    return (*_streams(spec), *_shifted(), *_naive(spec), *_stacked(spec))


def many_steps(spec: StencilSpec, limits: Limits) -> tuple[Choice, ...]:
    """Variants that fuse steps, the fastest by the count first, and some that do not, which compile at once."""
    spec = image_of(spec)
    if len(spec.axes) > 2:
        return (*_fused_marches(spec), *_single_marches(spec), *_resident(spec), *_naive(spec), *_stacked(spec))
    fused = _lines(spec, limits) if len(spec.axes) == 1 else _rows(spec, limits)
    half = MAX_FUSED_VARIANTS // 2
    kept = (*_persistent(spec), *_resident(spec))
    return (*fused[:half], *_streams(spec)[:2], *fused[half:], *_shifted(), *kept, *_naive(spec), *_stacked(spec))


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
    # Of every number of steps the best: which one pays depends on the rows.
    each = {one.steps: one for one in reversed(tried)}
    pipelined = Pipelined()
    wide = [one for one in _PIPELINES if spec.dtype.size == 8 and is_searched(pipelined, spec, one)][:2]
    often = dict.fromkeys((*tried[: MAX_FUSED_VARIANTS - len(wide)], *more, *each.values()))
    fused = [("temporal", config) for config in often]
    return (*fused[:1], *(("pipelined", config) for config in wide), *fused[1:])


def _written(spec: StencilSpec, config: TemporalConfig) -> int:
    return spec.operations * config.steps * config.vectors * cells_of_vector(spec) * spec.accumulator.size // 4


def _lines(spec: StencilSpec, limits: Limits) -> tuple[Choice, ...]:
    made = [
        OverlappedConfig(vectors=vectors, warps=warps, steps=steps)
        for vectors, warps, steps in product((2, 4, 8, 16), (2,), (4, 8, 16, 24, 48))
    ]
    algorithm = Overlapped()
    tried = [one for one in made if is_searched(algorithm, spec, one)]
    tried.sort(key=lambda config: line_seconds(spec, config, limits))
    # Of every number of steps the best with short segments, of which little lines have enough.
    short = {one.steps: one for one in reversed(tried) if one.vectors <= SHORT_SEGMENT}
    return tuple(("overlapped", config) for config in dict.fromkeys((*tried[:MAX_FUSED_VARIANTS], *short.values())))


def _together(one: float, other: float) -> float:
    """Of two that work at the same time: the slower, and a little of the faster where it is nearly as slow."""
    return float((one**4 + other**4) ** 0.25)


def _slots(limits: Limits) -> float:
    """Operations on f32 that a device does in a second."""
    return F32_ISSUE_SHARE * limits.multiprocessors * limits.f32_per_clock * limits.clock_hz


def _sums(spec: StencilSpec, limits: Limits) -> float:
    """What the fused multiply-adds of a cell take."""
    return spec.operations * limits.slots(spec.accumulator)


def _moved(spec: StencilSpec, steps: int, limits: Limits) -> float:
    return 2 * spec.dtype.size / (BANDWIDTH_SHARE * limits.memory_bytes_per_second) / steps


def _rounded(spec: StencilSpec) -> float:
    """To f16 and back."""
    return 2.0 if spec.dtype != spec.accumulator else 0.0


def _fused_marches(spec: StencilSpec) -> tuple[Choice, ...]:
    """Of several steps, the fewer weights the more."""
    reach, weights = reach_of(spec), len(spec.taps)
    if max(reach.before + reach.after) > _FAR_TO_FUSE or weights > _MANY_WEIGHTS_TO_FUSE:
        return ()
    if spec.dtype in (F32, F64) and weights <= _FEW_WEIGHTS:
        return _marches(spec, _FUSED_MARCHES)
    if spec.dtype == F32:
        return _marches(spec, _FUSED_MARCHES_OF_MANY_WEIGHTS)
    return _marches(
        spec, _FUSED_MARCHES_OF_SMALL_CELLS if spec.dtype in (F16, BF16) and weights <= _FEW_WEIGHTS else ()
    )


def _single_marches(spec: StencilSpec) -> tuple[Choice, ...]:
    """Of one step; others where weights reach over many planes."""
    if reach_of(spec).deep > _MANY_PLANES:
        return _marches(spec, (*_MARCHES_OF_FAR_WEIGHTS, *_MARCHES_OF_FEW_CELLS))
    march = March()
    wide = tuple(("march", config) for config in _WIDE_MARCHES if is_searched(march, spec, config))
    return (*_marches(spec, _MARCHES), *wide, *_marches(spec, _MARCHES_OF_FEW_CELLS))


def _marches(spec: StencilSpec, choices: Iterable[tuple[int, int, int, int, int, int]]) -> tuple[Choice, ...]:
    made = (
        MarchConfig(warps=warps, rows=rows, blocks_per_sm=blocks, waves=waves, ring=ring, steps=steps)
        for warps, rows, blocks, waves, ring, steps in choices
    )
    march = March()
    return tuple(("march", config) for config in made if is_searched(march, spec, config))


def _naive(spec: StencilSpec) -> tuple[Choice, ...]:
    """Several rows a thread, which share what they read, and narrow blocks; places of 32 bits where they suffice."""
    if len(spec.axes) == 1:
        return ()
    shapes = (
        (32, 8, 1, 32),
        (32, 8, 2, 32),
        (32, 8, 4, 32),
        (8, 32, 1, 32),
        (8, 32, 4, 32),
        (4, 32, 1, 32),
        (4, 32, 4, 32),
        (2, 32, 4, 32),
        (32, 8, 1, 64),
        (32, 8, 4, 64),
    )
    return tuple(
        ("naive", NaiveConfig(block_x=x, block_y=y, unroll=rows, index_bits=bits))
        for x, y, rows, bits in shapes
        if rows == 1 or rows * written_terms(spec) <= MAX_TERMS_OF_THREAD
    )


def _persistent(spec: StencilSpec) -> tuple[Choice, ...]:
    """Of every tile the most steps that leave enough of it."""
    persistent = Persistent()
    found: list[Choice] = []
    for cells, rows, warps, halo in _TILES if len(spec.axes) == 2 else ():
        made = (PersistentConfig(cells=cells, rows=rows, warps=warps, steps=steps) for steps in _TILE_STEPS)
        fitting = (one for one in made if Halo.of(spec, one).rows <= halo and is_searched(persistent, spec, one))
        found += [("persistent", one) for one in islice(fitting, 1)]
    return tuple(found)


def _resident(spec: StencilSpec) -> tuple[Choice, ...]:
    """Along each axis all steps in a launch, and as many as use up few cells; short rows known before as well."""
    resident, reach, made = Resident(), reach_of(spec), list[ResidentConfig]()
    for along in range(len(spec.axes)):
        used = reach.before[along] + reach.after[along]
        fused = [steps for steps in (16, 8, 4, 2) if steps * used <= _MOST_USED_UP][:2]
        made.append(ResidentConfig(along=along, threads_per_block=1024))
        made += [ResidentConfig(along=along, unroll=cells, steps=steps) for steps in fused for cells in (5, 3, 1)]
        if along + 1 < len(spec.axes) > 2:
            made += [
                ResidentConfig(along=along, steps=steps, cells_across=count) for steps in fused for count in _ACROSS
            ]
    # The most cells of a thread that its code bears.
    found: dict[tuple[int, int, int], ResidentConfig] = {}
    for one in made:
        if is_searched(resident, spec, one):
            found.setdefault((one.along, one.steps, one.cells_across), one)
    return tuple(("resident", one) for one in found.values())


def _stacked(spec: StencilSpec) -> tuple[Choice, ...]:
    """High stacks first, which share most."""
    made = (StackedConfig(unroll=cells) for cells in _STACKS)
    stacked = Stacked()
    return tuple(("stacked", config) for config in made if is_searched(stacked, spec, config))


def _shifted() -> tuple[Choice, ...]:
    shapes = ((4, 32, 4), (2, 32, 4), (8, 32, 4), (4, 16, 4), (2, 16, 4))
    return tuple(("shifted", ShiftedConfig(rows=rows, lanes=lanes, warps=warps)) for rows, lanes, warps in shapes)


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
