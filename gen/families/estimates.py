"""How long a kernel takes at given sizes, from a few closed forms: what dispatch compares variants by.

The counted model of `gen.tune.predict` runs a kernel's blocks on the CPU, which takes a second; this takes
microseconds. It knows what differs between variants at one problem (bytes that memory moves, bytes in flight, rounds
of loads that wait for each other, instructions, blocks that find no multiprocessor, launches) and nothing of what is
equal for all of them.

The bandwidth that bytes in flight allow follows from Little's law: bytes in flight over the latency of a load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gen.arch import WARP, Limits


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What estimates go by. Fitted to times on an H200 by `python -m bench.estimates --fit`.

    Attributes:
        launch_us: a call's first launch, whose code and arguments no cache holds yet.
        next_launch_us: each further one.
        load_us: from a load to its use, in a memory that others read as well.
        bandwidth_share: of a memory's bandwidth that its clock and width promise.
        bytes_per_clock: between a multiprocessor and the second-level cache.
        issued_per_clock: instructions of a multiprocessor; four schedulers, one each at most.
        start_us: of the first blocks of a multiprocessor, one after another.
        block_us: from a block's end to the first load of the next one in its place.
        instruction_us: of one thread's instructions, each of which waits for the one before.
        second_share: of the second longest of what bounds a kernel, that still shows.
    """

    launch_us: float = 3.9
    next_launch_us: float = 1.2
    load_us: float = 0.5
    bandwidth_share: float = 0.95
    bytes_per_clock: float = 64.0
    issued_per_clock: float = 2.5
    start_us: float = 0.03
    block_us: float = 0.4
    instruction_us: float = 0.001
    second_share: float = 0.4


COSTS = Costs()
SECTOR_BYTES = 32
COLD_SECONDS = 2e-9  # for each instruction that is written out, when the first block fetches it
AGAIN_SHARE = 0.4  # of a launch's time for memory, what each further one takes of it at least: the second-level cache's
_ROUNDED = 1 - 1e-9  # of a bound, so that its sums, rounded in another order, are none above an estimate's
DEFAULT_REGISTERS = 40  # of a thread, where an algorithm does not say


class Demand(NamedTuple):
    """What a variant asks of a device at given sizes.

    Attributes:
        moved_bytes: between memory and the second-level cache, unused parts of sectors included.
        blocks: of the launch that moves them.
        threads_per_block: of these blocks.
        bytes_in_flight: of one thread, the mean over all threads: what it asks for before it waits.
        rounds: of loads that wait for each other, of one thread.
        instructions: of one thread, the mean over all threads.
        registers: of one thread.
        shared_bytes: of a block.
        launches: of a call.
        end_seconds: after the last load: barriers, partial results that blocks wait for.
        serial_instructions: before the first load and after the last, each of which waits for the one before.
    """

    moved_bytes: float
    blocks: int
    threads_per_block: int
    bytes_in_flight: float
    rounds: float
    instructions: float
    registers: int = DEFAULT_REGISTERS
    shared_bytes: int = 0
    launches: int = 1
    end_seconds: float = 0.0
    serial_instructions: float = 0.0

    @property
    def issued(self) -> float:
        """Instructions of all threads of a call."""
        return self.instructions * self.threads_per_block * self.blocks


class Least(NamedTuple):
    """What a variant asks of a device at least, whatever the sizes: no estimate of it is below `least_us_of` this.

    Dispatch counts the demands of those variants only that may take least.

    Attributes:
        instructions: of all threads, for each element of a problem; of time steps, for each cell of a step.
        end_seconds: as in a demand, of a launch.
        serial_instructions: as in a demand.
        fused: time steps of a launch; 0: all of a call.
        again_seconds: of each further launch, beside those of a launch.
    """

    instructions: float = 0.0
    end_seconds: float = 0.0
    serial_instructions: float = 0.0
    fused: int = 0
    again_seconds: float = 0.0


class Smallest(NamedTuple):
    """What every variant that computes a problem has to do: elements, bytes that a launch moves, and time steps."""

    elements: int
    moved_bytes: int
    steps: int = 1


def least_us_of(smallest: Smallest, limits: Limits, costs: Costs = COSTS) -> Callable[[Least], float]:
    """Gives the microseconds below which no estimate of a variant at a problem is."""
    elements, moved_bytes, steps = smallest
    memory_us = 1e6 * moved_bytes / (limits.memory_bytes_per_second * costs.bandwidth_share)
    issued = limits.multiprocessors * costs.issued_per_clock * limits.clock_hz
    issue_us = 1e6 * elements * max(steps, 1) / (WARP * issued)
    load_us, start_us = costs.load_us, costs.launch_us + costs.start_us

    def bound(least: Least) -> float:
        instructions, end_seconds, serial, fused, again_seconds = least
        memory, latency, issue, end_us = memory_us, load_us, issue_us * instructions, 1e6 * end_seconds
        if fused and steps > fused:
            again = -(-steps // fused) - 1
            memory, latency = memory * (1 + AGAIN_SHARE * again), latency * (1 + AGAIN_SHARE * again)
            end_us += again * (costs.next_launch_us + 1e6 * again_seconds)
        _, middle, longest = sorted((memory, latency, issue))
        busy = longest + costs.second_share * middle + costs.instruction_us * serial
        return (start_us + busy + end_us) * _ROUNDED

    return bound if elements else lambda _: 0.0  # nothing is computed of no elements


def estimated_us(demand: Demand, limits: Limits, costs: Costs = COSTS) -> float:
    """The time of a call in microseconds, from cold caches."""
    moved_bytes, blocks, threads, bytes_in_flight, loads, instructions, registers, shared_bytes = demand[:8]
    launches, end_seconds, serial = demand[8:]
    most, clock_hz, warps_of_block = limits.multiprocessors, limits.clock_hz, -(-threads // WARP)
    # Blocks that a multiprocessor holds at once; drivers take no shared memory of a block before sm_80.
    taken = shared_bytes + limits.reserved_shared_bytes_per_block
    resident = min(
        limits.threads_per_multiprocessor // (warps_of_block * WARP), limits.blocks_per_multiprocessor,
        limits.registers_per_multiprocessor // (warps_of_block * WARP * registers),
        limits.shared_bytes_per_multiprocessor // max(taken, 1),
    )  # fmt: skip
    resident = max(resident, 1)
    multiprocessors = max(min(blocks, most), 1)
    on_each = min(-(-blocks // most), resident)
    of_one = min(on_each * threads * bytes_in_flight / (1e-6 * costs.load_us), costs.bytes_per_clock * clock_hz)
    bandwidth = min(limits.memory_bytes_per_second * costs.bandwidth_share, max(of_one, 1.0) * multiprocessors)
    memory = 1e6 * moved_bytes / bandwidth
    # The last wave is as long as the others, however few blocks it has.
    at_once = most * resident
    rounds = max(-(-blocks // at_once), 1)
    latency = rounds * (loads * costs.load_us + (costs.block_us if blocks > at_once else 0.0))
    issue = 1e6 * (blocks * warps_of_block) * instructions / (multiprocessors * costs.issued_per_clock * clock_hz)
    # What is bound by one of them still shows a part of the next.
    longest, middle, _ = sorted((memory, latency, issue), reverse=True)
    busy = longest + costs.second_share * middle + costs.instruction_us * serial + costs.start_us * on_each
    return costs.launch_us + costs.next_launch_us * (launches - 1) + busy + 1e6 * end_seconds
