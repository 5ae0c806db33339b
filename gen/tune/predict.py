"""How long a kernel takes, as far as its accesses and what it occupies say: a prediction, never a measurement.

A launch lasts as long as the slowest of what works at the same time: memory, the second-level cache, the load and store
units and the issue of instructions of each multiprocessor; or, where too few loads are under way, as long as they wait.
The figures are those of `gen.arch`, of data sheets or a device, and a few latencies; they rank variants, they do not
time them. What no data sheet says was set with the recorded spaces of `bench/trials` in view, the same that
`bench/predict.py` ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, prod

from gen.arch import LINE, SECTOR, WARP, Limits
from gen.families.base import Extents, Variant
from gen.families.plans import steps
from gen.proof.traffic import Access, Traffic
from gen.toolchain.usage import Usage

MEMORY, L2, UNITS, INSTRUCTIONS, LATENCY, STARTS, LAUNCHES = (
    "memory", "second-level cache", "load and store units", "instructions", "latency", "starts of blocks", "launches",
)  # fmt: skip
LAUNCH_US = 2.2  # the first launch of a call, an empty one
NEXT_LAUNCH_US = 1.2  # every other one
REACHED = 0.9  # of the bandwidth that a memory's clock and width give
LOAD_NS = 500.0  # from a load to its use
CACHED_LOAD_NS = 200.0  # of what a launch before it left in the second-level cache
CACHED = 0.64  # of that cache, which stay there
BLOCK_NS = 200.0  # from one block's end to the first load of the next in its place
WARP_NS = 30.0  # the same for each of its warps, which begin one after the other
START_NS = 60.0  # from one block's start to the next one's on the same multiprocessor, however little they do
BARRIER_NS = 30.0  # all warps of a block together
LOADS_AT_ONCE = 4  # of a loop that asks for one at a time: compilers unroll it
L2_BYTES_PER_CLOCK = 40.0  # of each multiprocessor; a store takes whole lines of it, however little it writes
INSTRUCTIONS_PER_ACCESS = 12.0  # addresses, bounds and arithmetic around a warp's request
EXECUTED = 0.3  # of the instructions in the machine code, by each warp
ISSUED_PER_CLOCK = 3.0  # of four
SHARPNESS = 2.0  # how little of the faster parts shows beside the slowest


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


def predict(variant: Variant, found: Traffic, used: Sequence[Usage], limits: Limits, extents: Extents) -> Prediction:
    """What one call of a variant takes.

    Args:
        variant: whose plan says which launches there are.
        found: its traffic at these extents.
        used: what its kernels occupy.
        limits: of the device, its clock and its bandwidth among them.
        extents: of the problem.
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
    cached: set[str] = set()  # buffers that a launch before has written
    for kernel, blocks in by_kernel.items():
        mine = [access for access in found.accesses if access.kernel == kernel]
        main = kernel == variant.name
        arithmetic = variant.algorithm.arithmetic(variant.spec, variant.config, extents, limits) if main else 0.0
        run = _Run(
            variant, mine, occupied[kernel], sum(blocks), len(blocks), arithmetic, limits, buffers, frozenset(cached)
        )
        parts = run.parts()
        kept = CACHED * limits.l2_bytes
        cached |= {a.buffer for a in mine if a.kind == "store" and buffers.get(a.buffer, inf) <= kept}
        slowest = max(parts.values())
        if slowest > 0:
            total += slowest * sum((us / slowest) ** SHARPNESS for us in parts.values()) ** (1 / SHARPNESS)
        for name, us in parts.items():
            totals[name] = totals.get(name, 0.0) + us
    totals[LAUNCHES] = LAUNCH_US + NEXT_LAUNCH_US * max(launches - 1, 0)
    parts_sorted = tuple(sorted(totals.items(), key=lambda part: -part[1]))
    return Prediction(total + totals[LAUNCHES], parts_sorted)


@dataclass(frozen=True)
class _Run:
    """All launches of one kernel.

    Attributes:
        blocks: of all launches together.
        times: launches.
        arithmetic: instructions of a thread that no access shows.
        buffers: bytes of each.
        cached: those that lie in the second-level cache when the kernel starts.
    """

    variant: Variant
    accesses: Sequence[Access]
    used: Usage
    blocks: float
    times: int
    arithmetic: float
    limits: Limits
    buffers: Mapping[str, float]
    cached: frozenset[str]

    def parts(self) -> dict[str, float]:
        """Microseconds of each part."""
        blocks = self.blocks / self.times
        resident = max(self.used.occupancy.blocks, 1)
        at_once = resident * self.limits.multiprocessors
        waves = blocks / at_once
        # The last wave may leave multiprocessors idle; where one is not filled, some have a block more than others.
        busy = min(self.limits.multiprocessors, blocks)
        spread = ceil(waves) / waves if 1 < waves < 16 else 1.0
        clocks = 1e6 / (self.limits.clock_hz * busy) * spread  # microseconds for a clock of work on all multiprocessors
        shared = [access for access in self.accesses if access.space == "shared"]
        moving = [access for access in self.accesses if access.space == "global"]
        # What all lanes read from constant memory at once is an operand of an instruction, and costs none.
        again = sum(a.wavefronts - a.least_wavefronts for a in self.accesses if a.space == "constant")
        units = sum(access.wavefronts for access in shared) + sum(max(a.lines, a.sectors / 4) for a in moving) + again
        requests = sum(access.requests for access in (*shared, *moving))
        warps = self.blocks * -(-self.used.threads_per_block // WARP)
        executed = warps * max(EXECUTED * self.used.instructions, self.arithmetic)
        issued = max(requests * INSTRUCTIONS_PER_ACCESS, executed)
        through_l2 = sum(SECTOR * a.block_sectors if a.kind == "load" else LINE * a.lines for a in moving)
        return {
            MEMORY: self._memory_bytes(moving) / (REACHED * self.limits.memory_bytes_per_second) * 1e6,
            L2: through_l2 / L2_BYTES_PER_CLOCK * clocks,
            UNITS: units * clocks,
            INSTRUCTIONS: issued / ISSUED_PER_CLOCK * clocks,
            STARTS: self.blocks / busy * START_NS * 1e-3,
            LATENCY: self.times * max(blocks / min(blocks, at_once), 1.0) * self._block_us(),
        }

    def _memory_bytes(self, moving: Sequence[Access]) -> float:
        """Bytes to and from memory: in each launch no more than a buffer holds, but for some evicted early."""
        seen: dict[tuple[str, bool], float] = {}
        for access in moving:
            place = (access.buffer, access.kind == "load")
            seen[place] = seen.get(place, 0.0) + SECTOR * access.block_sectors
        total = 0.0
        for (name, _), moved in seen.items():
            whole = self.buffers.get(name, inf) * self.times
            total += min(moved, whole) + 0.05 * max(moved - whole, 0.0)
        return total

    def _block_us(self) -> float:
        """What a block waits for, one thing after the other: its loads by rounds, its barriers, its start."""
        loads = [a for a in self.accesses if a.space == "global" and a.kind == "load"]
        threads = self.blocks * self.used.threads_per_block
        wait = CACHED_LOAD_NS if loads and all(a.buffer in self.cached for a in loads) else LOAD_NS
        asked = sum(a.requested_bytes for a in loads) / threads if threads else 0.0
        widest = max((a.bytes for a in loads), default=1)
        rounds = asked / self._in_flight(widest) if asked else 0.0
        stages = len({access.called_from for access in self.accesses if access.space == "shared"})
        start = BLOCK_NS + WARP_NS * self.used.threads_per_block / WARP
        return (max(rounds, 1.0) * wait + stages * BARRIER_NS + start) * 1e-3

    def _in_flight(self, widest: int) -> float:
        """Bytes of loads that a thread has under way at once."""
        variant, config = self.variant, self.variant.config
        stated = 0
        if self.used.kernel == variant.name:
            stated = variant.algorithm.bytes_in_flight(variant.spec, config)
        # A load with a cache operator is assembly to the compiler, which leaves its loop as it is.
        plain = not getattr(getattr(config, "load_modifier", None), "intrinsic", "")
        return max(stated, LOADS_AT_ONCE * widest if plain else widest)


def _buffer_bytes(variant: Variant, extents: Extents, sizes: Mapping[str, int]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, layout in variant.family.layouts(variant.spec, extents).items():
        found[name] = float(prod(layout.shape) * layout.dtype.itemsize)
    for scratch in variant.plan.scratch:
        found[scratch.name] = float(scratch.bytes.at(sizes))
    return found
