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
from math import ceil
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
        threads: of a launch, for each result.
        of_thread: instructions of each of these beside those for elements, of a launch.
        resident: threads that a multiprocessor holds at once, at most; 0: as many as any kernel's.
        rounds: as in a demand, of a launch.
        at_once: elements of a result that its threads load before they wait, at most; 0: any number.
        shared: of all results that blocks share, likewise; 0: they share none.
        step_seconds: after the last load, for each time step of a call.
        cell_seconds: likewise, for each cell of a step; the larger of both counts.
        tile: rows and columns that threads have and issue for, also where a matrix has none; both 1: any number.
    """

    instructions: float = 0.0
    end_seconds: float = 0.0
    serial_instructions: float = 0.0
    fused: int = 0
    again_seconds: float = 0.0
    threads: float = 0.0
    of_thread: float = 0.0
    resident: int = 0
    rounds: float = 1.0
    at_once: int = 0
    shared: int = 0
    step_seconds: float = 0.0
    cell_seconds: float = 0.0
    tile: tuple[int, int] = (1, 1)


class Smallest(NamedTuple):
    """What every variant that computes a problem has to do.

    Attributes:
        elements: that are read.
        moved_bytes: of a launch.
        steps: of time.
        results: of a reduction; 0: one for each element.
        rows, cols: of a matrix that tiles cover.
        again_share: of a launch's time for memory, what each further one takes of it.
    """

    elements: int
    moved_bytes: int
    steps: int = 1
    results: int = 0
    rows: int = 1
    cols: int = 1
    again_share: float = 0.0


def least_us_of(smallest: Smallest, limits: Limits, costs: Costs = COSTS) -> Callable[[Least], float]:
    """Gives the microseconds below which no estimate of a variant at a problem is."""
    elements, moved_bytes, steps, results, rows, cols, again_share = smallest
    results = results or elements
    memory_us = 1e6 * moved_bytes / (limits.memory_bytes_per_second * costs.bandwidth_share)
    issued = limits.multiprocessors * costs.issued_per_clock * limits.clock_hz
    issue_us = 1e6 * elements * max(steps, 1) / (WARP * issued)
    thread_us, most = 1e6 * results / (WARP * issued), limits.multiprocessors * limits.threads_per_multiprocessor
    load_us, start_us = costs.load_us, costs.launch_us + costs.start_us

    def bound(least: Least) -> float:
        instructions, end_seconds, serial, fused, again_seconds, threads, of_thread, resident, rounds = least[:9]
        at_once, shared, step_seconds, cell_seconds, tile = least[9:]
        if at_once:
            rounds = max(rounds, ceil(_ROUNDED * elements / max(at_once * results, shared)))
        memory, latency, end_us = memory_us, load_us * rounds, 1e6 * end_seconds
        issue = issue_us * instructions + thread_us * threads * of_thread
        high, wide = tile
        if high > 1 or wide > 1:
            covered = -(-rows // high) * high * (-(-cols // wide) * wide) / (rows * cols)
            threads, issue = covered * threads, covered * issue
        if step_seconds:
            end_us += 1e6 * steps * max(step_seconds, cell_seconds * elements)
        if fused and steps > fused:
            again = -(-steps // fused) - 1
            memory, latency = memory * (1 + again_share * again), latency * (1 + again_share * again)
            end_us += again * (costs.next_launch_us + 1e6 * again_seconds)
        waves = threads * results / (limits.multiprocessors * resident if resident else most)
        if waves * _ROUNDED > 1:
            latency = ceil(waves * _ROUNDED) * (latency + costs.block_us)
        longest, middle = (memory, latency) if memory > latency else (latency, memory)
        if issue > middle:
            longest, middle = (issue, longest) if issue > longest else (longest, issue)
        busy = longest + costs.second_share * middle + costs.instruction_us * serial
        return (start_us + busy + end_us) * _ROUNDED

    return bound if elements else lambda _: 0.0  # nothing is computed of no elements


def resident_blocks(limits: Limits, threads_per_block: int, registers: int, shared_bytes: int) -> int:
    """Blocks that a multiprocessor holds at once."""
    # Drivers take no shared memory of a block before sm_80.
    threads, taken = -(-threads_per_block // WARP) * WARP, shared_bytes + limits.reserved_shared_bytes_per_block
    resident = min(
        limits.threads_per_multiprocessor // threads, limits.blocks_per_multiprocessor,
        limits.registers_per_multiprocessor // (threads * registers),
        limits.shared_bytes_per_multiprocessor // max(taken, 1),
    )  # fmt: skip
    return max(resident, 1)


def estimated_us(demand: Demand, limits: Limits, costs: Costs = COSTS) -> float:
    """The time of a call in microseconds, from cold caches."""
    moved_bytes, blocks, threads, bytes_in_flight, loads, instructions, registers, shared_bytes = demand[:8]
    launches, end_seconds, serial = demand[8:]
    most, clock_hz, warps_of_block = limits.multiprocessors, limits.clock_hz, -(-threads // WARP)
    resident = resident_blocks(limits, threads, registers, shared_bytes)
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
