"""How long a kernel takes, as far as its accesses and what it occupies say: a prediction, never a measurement.

A launch lasts as long as the slowest of what works at the same time: memory, the second-level cache, the load and store
units and the issue of instructions of each multiprocessor; or, where too few loads are under way, as long as they wait.
The figures are those of data sheets, rounded, and a few latencies; they rank variants, they do not time them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod

from gen.errors import UnknownNameError
from gen.families.base import Extents, Limits, Variant
from gen.families.steps import steps
from gen.proof.traffic import SECTOR, Access, Traffic
from gen.toolchain.usage import Usage

MEMORY, L2, UNITS, INSTRUCTIONS, LATENCY, LAUNCHES = (
    "memory", "second-level cache", "load and store units", "instructions", "latency", "launches",
)  # fmt: skip
LAUNCH_US = 2.2  # the first launch of a call, an empty one
NEXT_LAUNCH_US = 1.2  # every other one
LOAD_NS = 600.0  # from a load to its use, memory being busy
BARRIER_NS = 30.0  # all warps of a block together
L2_BYTES_PER_CLOCK = 40.0  # of each multiprocessor
INSTRUCTIONS_PER_ACCESS = 8.0  # addresses, bounds and arithmetic around a warp's request
ISSUED_PER_CLOCK = 4.0
SHARPNESS = 2.0  # how little of the faster parts shows beside the slowest


@dataclass(frozen=True)
class Speeds:
    """What an architecture's best-known device does at most.

    Attributes:
        gigabytes_per_s: of memory, as it can be reached: nine tenths of the data sheet's.
        gigahertz: of its multiprocessors, at boost.
    """

    gigabytes_per_s: float
    gigahertz: float

    @classmethod
    def of(cls, arch: str) -> Speeds:
        """Those of an architecture. Raises UnknownNameError if it is in no table."""
        if arch not in _SPEEDS:
            raise UnknownNameError("The architecture", "must be one of " + ", ".join(_SPEEDS), repr(arch))
        sheet, clock = _SPEEDS[arch]
        return cls(0.9 * sheet, clock)


# Data sheets of the V100, T4, A100 (80 GB), RTX 3090, L40S, H100 SXM, B200 and RTX 5090.
_SPEEDS = {
    "sm_70": (900, 1.53),
    "sm_75": (320, 1.59),
    "sm_80": (2039, 1.41),
    "sm_86": (936, 1.70),
    "sm_89": (864, 2.52),
    "sm_90": (3350, 1.755),
    "sm_100": (8000, 1.85),
    "sm_120": (1792, 2.41),
}


@dataclass(frozen=True)
class Prediction:
    """What a call is expected to take.

    Attributes:
        us: microseconds.
        parts: microseconds of each part alone, by name, most first.
    """

    us: float
    parts: tuple[tuple[str, float], ...]

    @property
    def bound(self) -> str:
        """The part that takes longest."""
        return self.parts[0][0]


def predict(
    variant: Variant, found: Traffic, used: Sequence[Usage], limits: Limits, extents: Extents, speeds: Speeds
) -> Prediction:
    """What one call of a variant takes.

    Args:
        variant: whose plan says which launches there are.
        found: its traffic at these extents.
        used: what its kernels occupy.
        limits: of the device.
        extents: of the problem.
        speeds: of the device.
    """
    sizes = {**extents, **limits.sizes()}
    buffers = _buffer_bytes(variant, extents, sizes)
    occupied = {one.kernel: one for one in used}
    totals: dict[str, float] = {}
    total = launches = 0.0
    by_kernel: dict[str, list[float]] = {}  # blocks of each launch
    for step in steps(variant.plan, sizes):
        if not step.setup:
            by_kernel.setdefault(variant.name + step.entry, []).append(prod(step.grid))
            launches += 1
    for kernel, blocks in by_kernel.items():
        mine = [access for access in found.accesses if access.kernel == kernel]
        parts = _parts(variant, mine, occupied[kernel], sum(blocks), len(blocks), limits, buffers, speeds)
        slowest = max(parts.values())
        if slowest > 0:
            total += slowest * sum((us / slowest) ** SHARPNESS for us in parts.values()) ** (1 / SHARPNESS)
        for name, us in parts.items():
            totals[name] = totals.get(name, 0.0) + us
    totals[LAUNCHES] = LAUNCH_US + NEXT_LAUNCH_US * max(launches - 1, 0)
    parts_sorted = tuple(sorted(totals.items(), key=lambda part: -part[1]))
    return Prediction(total + totals[LAUNCHES], parts_sorted)


def _parts(
    variant: Variant, accesses: Sequence[Access], used: Usage, blocks: float, times: int, limits: Limits,
    buffers: Mapping[str, float], speeds: Speeds,
) -> dict[str, float]:  # fmt: skip
    """Microseconds of each part, all launches of one kernel together."""
    resident = max(used.occupancy.blocks, 1)
    at_once = min(blocks / times, resident * limits.sm_count)
    waves = blocks / times / (resident * limits.sm_count)
    # The last wave may leave multiprocessors idle; where a wave is not filled, some have one block more than others.
    busy = min(limits.sm_count, blocks / times)
    full = ceil(waves) / waves if waves > 1 else 1.0
    spread = full if waves < 16 else 1.0
    clocks = 1e-3 / (speeds.gigahertz * busy)  # microseconds for a clock of work on all multiprocessors
    shared = [access for access in accesses if access.space == "shared"]
    moving = [access for access in accesses if access.space == "global"]
    units = sum(access.wavefronts for access in shared) + sum(max(a.lines, a.sectors / 4) for a in moving)
    requests = sum(access.requests for access in accesses)
    through_l2 = SECTOR * sum(a.block_sectors if a.kind == "load" else a.sectors for a in moving)
    return {
        MEMORY: sum(_memory_bytes(moving, buffers).values()) / speeds.gigabytes_per_s * 1e-3,
        L2: through_l2 / L2_BYTES_PER_CLOCK * clocks * spread,
        UNITS: units * clocks * spread,
        INSTRUCTIONS: requests * INSTRUCTIONS_PER_ACCESS / ISSUED_PER_CLOCK * clocks * spread,
        LATENCY: _latency_us(variant, accesses, used, blocks, at_once, times),
    }


def _memory_bytes(accesses: Sequence[Access], buffers: Mapping[str, float]) -> dict[tuple[str, bool], float]:
    """Bytes between memory and the second-level cache: no more than a buffer holds, but for some evicted early."""
    seen: dict[tuple[str, bool], float] = {}
    for access in accesses:
        place = (access.buffer, access.kind == "load")
        seen[place] = seen.get(place, 0.0) + SECTOR * access.block_sectors
    return {
        (name, load): min(moved, buffers.get(name, moved)) + 0.05 * max(moved - buffers.get(name, moved), 0.0)
        for (name, load), moved in seen.items()
    }


def _latency_us(
    variant: Variant, accesses: Sequence[Access], used: Usage, blocks: float, at_once: float, times: int
) -> float:
    """Rounds of loads that wait for memory one after the other, and barriers, in every wave of blocks."""
    threads = blocks * used.threads_per_block
    loads = sum(a.requested_bytes for a in accesses if a.space == "global" and a.kind == "load")
    per_thread = loads / threads if threads else 0.0
    main = used.kernel == variant.name
    in_flight = variant.algorithm.bytes_in_flight(variant.spec, variant.config) if main else 0
    rounds = per_thread / in_flight if in_flight else sum(a.lanes for a in accesses if a.kind == "load") / threads
    stages = len({access.line for access in accesses if access.space == "shared"})
    each = max(rounds, 1.0) * LOAD_NS + stages * BARRIER_NS
    return times * max(blocks / times / max(at_once, 1.0), 1.0) * each * 1e-3


def _buffer_bytes(variant: Variant, extents: Extents, sizes: Mapping[str, int]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, layout in variant.family.layouts(variant.spec, extents).items():
        found[name] = float(prod(layout.shape) * layout.dtype.itemsize)
    for scratch in variant.plan.scratch:
        found[scratch.name] = float(scratch.bytes.at(sizes))
    return found
