"""How long a kernel takes at given sizes, from a few closed forms: what dispatch compares variants by.

The counted model of `gen.tune.predict` runs a kernel's blocks on the CPU, which takes a second; this takes
microseconds. It knows what differs between variants at one problem (bytes that memory moves, bytes in flight, rounds
of loads that wait for each other, instructions, blocks that find no multiprocessor, launches) and nothing of what is
equal for all of them.

The bandwidth that bytes in flight allow follows from Little's law: bytes in flight over the latency of a load.
"""

from __future__ import annotations

from dataclasses import dataclass

from gen.arch import WARP, Limits

LAUNCH_US = 3.5  # of a call's first launch, whose code and arguments no cache holds yet
NEXT_LAUNCH_US = 1.2
LOAD_SECONDS = 650e-9  # from a load to its use, in a memory that others read as well
BANDWIDTH_SHARE = 0.9  # of a memory's bandwidth that its clock and width promise
MULTIPROCESSOR_BYTES_PER_CLOCK = 64  # between a multiprocessor and the second-level cache
ISSUED_PER_CLOCK = 2.5  # instructions of a multiprocessor; four schedulers, one each at most
BLOCK_SECONDS = 300e-9  # from a block's end to the first load of the next one in its place
SECTOR_BYTES = 32
DEFAULT_REGISTERS = 40  # of a thread, where an algorithm does not say


@dataclass(frozen=True, kw_only=True)
class Demand:
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


def estimated_us(demand: Demand, limits: Limits) -> float:
    """The time of a call in microseconds, from cold caches."""
    resident = _resident_blocks(demand, limits)
    multiprocessors = max(min(demand.blocks, limits.multiprocessors), 1)
    on_each = min(-(-demand.blocks // limits.multiprocessors), resident)
    waves = demand.blocks / (limits.multiprocessors * resident)
    in_flight = on_each * demand.threads_per_block * demand.bytes_in_flight
    of_one = min(in_flight / LOAD_SECONDS, MULTIPROCESSOR_BYTES_PER_CLOCK * limits.clock_hz)
    bandwidth = min(limits.memory_bytes_per_second * BANDWIDTH_SHARE, max(of_one, 1.0) * multiprocessors)
    memory = demand.moved_bytes / bandwidth
    # The last wave is as long as the others, however few blocks it has.
    rounds = max(-(-demand.blocks // (limits.multiprocessors * resident)), 1)
    latency = rounds * (demand.rounds * LOAD_SECONDS + (BLOCK_SECONDS if waves > 1 else 0.0))
    warps = demand.blocks * -(-demand.threads_per_block // WARP)
    issue = warps * demand.instructions / (multiprocessors * ISSUED_PER_CLOCK * limits.clock_hz)
    # What is bound by one of them still shows a part of the next.
    longest, middle, _ = sorted((memory, latency, issue), reverse=True)
    busy = longest + 0.3 * middle
    return LAUNCH_US + NEXT_LAUNCH_US * (demand.launches - 1) + 1e6 * (busy + demand.end_seconds)


def _resident_blocks(demand: Demand, limits: Limits) -> int:
    """Blocks that a multiprocessor holds at once."""
    threads = -(-demand.threads_per_block // WARP) * WARP
    by_registers = limits.registers_per_multiprocessor // (threads * demand.registers)
    by_shared = limits.shared_bytes_per_multiprocessor // (demand.shared_bytes + limits.reserved_shared_bytes_per_block)
    return max(
        min(limits.threads_per_multiprocessor // threads, limits.blocks_per_multiprocessor, by_registers, by_shared), 1
    )
