"""What time steps ask of a device, from closed forms: how dispatch ranks the variants of a stencil.

The constants of instructions are counts of the emitted text; where they weigh more than an addition of f32, that says
by how much less of them a multiprocessor issues in a clock. The times of cold code, of single warps and of registers
that hold few cells are fits to the recorded times that `python -m bench.estimates` reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod

from gen.arch import Limits
from gen.families.base import Extents
from gen.families.estimates import COLD_SECONDS, COSTS, Demand, Least
from gen.families.expr import once_a_problem
from gen.families.stencil.algorithms.common import (
    VECTOR_BYTES,
    Sides,
    mirrored_reach_of,
    neighbours_of_rows,
    reach_of,
    rim_of,
)
from gen.families.stencil.spec import STEPS, StencilSpec

SHUFFLE, LOAD = 2.5, 2.5  # of 32 lanes in a clock: in instructions of which a multiprocessor issues as many in it
ONE_WARP_CLOCKS = 1.0  # for an instruction of a warp, where few others share its scheduler
# Of a warp that is alone: from a term of a sum to the next one, and until the cells come that its registers hold.
_TERM_CLOCKS, _BATCH_CLOCKS = 10.0, 250.0
_CACHED = 0.4  # of the time that memory takes: what the second-level cache takes for as many bytes
_CACHED_LATENCY = 0.5  # likewise
_SHARE_OF_CACHE = 0.8  # that two arrays and a spare one may fill
_REMEMBERED = 512


@dataclass(frozen=True)
class Work:
    """What is known of a spec before its sizes.

    Attributes:
        terms: of a cell.
        weights: instructions that move those of 64 bits to registers first.
        slots: that one of them takes, in additions of f32.
        words: of 32 bits of a number.
        cells: of a vector.
        converted: instructions that turn a cell into a number and back.
        reach, mirrored: how far the weights reach, and how far rows must be held.
        shuffled: cells that come from other lanes for a row of a window, on both sides, of all its rows.
    """

    terms: int
    weights: int
    slots: float
    words: int
    cells: int
    converted: float
    reach: Sides
    mirrored: Sides
    shuffled: int


@lru_cache(_REMEMBERED)
def work_of(spec: StencilSpec, limits: Limits) -> Work:
    """The work of a spec, found once."""
    reach = reach_of(spec)
    return Work(
        terms=spec.operations,
        weights=2 * spec.operations * (spec.accumulator.size // 4 - 1),
        slots=limits.slots(spec.accumulator),
        words=spec.accumulator.size // 4,
        cells=VECTOR_BYTES // spec.dtype.size,
        converted=0.0 if spec.dtype == spec.accumulator else 1.0,
        reach=reach,
        mirrored=mirrored_reach_of(spec),
        shuffled=2 * sum(neighbours_of_rows(spec, reach)),
    )


@lru_cache(_REMEMBERED)
def loads_of_rows(spec: StencilSpec, rows: int) -> int:
    """Cells that so many rows, one below the other, read of a few columns."""
    if len(spec.axes) == 1:
        return rows * len(spec.taps)
    return len({(*offset[:-2], offset[-2] + row, offset[-1]) for offset, _ in spec.taps for row in range(rows)})


def clocks_alone(work: Work, issued: float, loads: float, lines: float, registers: int) -> float:
    """Clocks of a warp that is alone, which issues so many instructions, with loads that touch so many lines each.

    Each term of a sum waits for the one before, and cells come in as many batches as registers ask for.
    """
    batches = loads * work.words * lines / registers
    return max(ONE_WARP_CLOCKS * issued, _TERM_CLOCKS * work.terms * work.words) + _BATCH_CLOCKS * batches


@lru_cache(_REMEMBERED)
def rows_of(spec: StencilSpec, rows: int) -> int:
    """Rows, of all planes, in which the cells lie that so many rows read."""
    if len(spec.axes) == 1:
        return 1
    return len({(*offset[:-2], offset[-2] + row) for offset, _ in spec.taps for row in range(rows)})


def moves_vectors(spec: StencilSpec, extents: Extents, alignment: int) -> bool:
    """Whether all rows of both arrays begin at multiples of a vector's bytes."""
    pitches = (extents[name] * spec.dtype.size for name in ("in_pitch", "out_pitch"))
    return gcd(alignment, VECTOR_BYTES, *pitches) == VECTOR_BYTES


def edge_share(extent: int, tile: int) -> float:
    """The share of tiles along an axis that lie at one of its ends."""
    return min(2 / max(-(-extent // tile), 1), 1.0)


@once_a_problem
def computed_share(spec: StencilSpec, extents: Extents) -> float:
    """The share of rows and planes of which a cell is computed: frozen ones are copied."""
    share, rim = 1.0, rim_of(spec)
    for axis, before, after in zip(spec.axes, rim.before, rim.after, strict=True):
        inner = max(extents[axis] - before - after, 0)
        share *= min(inner, 1) if axis == "cols" else inner / max(extents[axis], 1)
    return share


def steps_of_launch(extents: Extents, fused: int) -> float:
    """How many time steps the launches of a call compute, which fuse so many at most: their mean."""
    steps = max(extents.get(STEPS, 1), 1)
    return steps / -(-steps // fused)


def demand_of_steps(
    spec: StencilSpec,
    extents: Extents,
    limits: Limits,
    *,
    fused: int = 1,
    blocks: int,
    threads_per_block: int,
    bytes_in_flight: float,
    rounds: float,
    instructions: float,
    written: float,
    registers: int,
    shared_bytes: int = 0,
    clocks: float = 0.0,
    last_seconds: float = 0.0,
    moved_share: float = 1.0,
) -> Demand:
    """What a call asks of a device.

    Args:
        spec: what is computed.
        extents: the problem's sizes.
        limits: of the device.
        fused: time steps of a launch.
        blocks: of a launch.
        threads_per_block: of these blocks.
        bytes_in_flight: loads of a thread; it stores as much.
        rounds: of loads that wait for each other, of a thread in a launch.
        instructions: of a thread in a launch.
        written: instructions that a warp executes of the text, each counted once.
        registers: of a thread.
        shared_bytes: of a block.
        clocks: that a block takes by itself in a launch, however many others there are, and wherever its cells are.
        last_seconds: that some warps take after all others, in a launch.
        moved_share: bytes that move for each one of the cells, where these fill sectors in part.
    """
    launches, swept, of_bytes, of_rounds = _launched(spec, extents, fused, limits.l2_bytes)
    return Demand(
        moved_share * swept * of_bytes,
        max(blocks, 1),
        threads_per_block,
        2 * bytes_in_flight,
        rounds * of_rounds + launches * clocks / (limits.clock_hz * 1e-6 * COSTS.load_us),
        instructions * launches,
        registers,
        shared_bytes,
        launches,
        written * COLD_SECONDS + launches * last_seconds,
    )


def least_of_steps(
    instructions: float = 0.0,
    written: float = 0.0,
    fused: int = 1,
    last_seconds: float = 0.0,
    *,
    threads: float = 0.0,
    resident: int = 0,
    rounds: float = 1.0,
    tile: tuple[int, int] = (1, 1),
) -> Least:
    """What is below all demands of time steps.

    Args:
        instructions: for each cell of a step.
        written: as in `demand_of_steps`, at least.
        fused: time steps of a launch; 0: all of a call.
        last_seconds: as in `demand_of_steps`.
        threads: for each cell of a launch.
        resident: threads that a multiprocessor holds at once, at most; 0: as many as any kernel's.
        rounds: as in `demand_of_steps`, at least.
        tile: rows and columns of cells that threads have and issue for, also where an array has none.
    """
    end_seconds = written * COLD_SECONDS + last_seconds
    return Least(
        instructions, end_seconds, 0.0, fused, last_seconds, threads=threads, resident=resident, rounds=rounds,
        tile=tile,
    )  # fmt: skip


@once_a_problem
def _launched(spec: StencilSpec, extents: Extents, fused: int, l2_bytes: int) -> tuple[int, int, float, float]:
    """Launches that fuse so many steps, bytes that one moves, and how often all together take its time for these.

    The last is the same for its rounds of loads.
    """
    launches = max(-(-extents.get(STEPS, 1) // fused), 1)
    swept = 2 * prod(extents[axis] for axis in spec.axes) * spec.dtype.size
    again, of_memory = launches - 1, again_share(swept, l2_bytes)
    return launches, swept, 1 + again * of_memory, 1 + again * max(_CACHED_LATENCY, of_memory)


def again_share(swept: int, l2_bytes: int) -> float:
    """What each further launch takes of a launch's time for memory, where one moves so many bytes."""
    return _CACHED if 1.5 * swept <= _SHARE_OF_CACHE * l2_bytes else 1.0
