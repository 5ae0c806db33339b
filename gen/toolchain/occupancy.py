"""How many blocks and warps a multiprocessor holds, and how many bytes of loads they keep in flight.

Pure arithmetic from what the compiler reports and what an architecture allows: no GPU, no compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

from gen.arch import (
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    PARTITIONS,
    REGISTER_ALLOCATION,
    REGISTERS_PER_BLOCK,
    WARP,
    Limits,
)


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel one multiprocessor holds, and what keeps it from more.

    Attributes:
        blocks: resident blocks; 0 where not even one fits.
        warps: resident warps.
        fraction: `warps` of the most that could be resident.
        by_registers: blocks that the registers suffice for; None where the kernel uses none.
        by_shared_memory: blocks that the shared memory suffices for; None where a block takes none.
        by_threads: blocks that the threads suffice for.
        by_blocks: the most blocks of any size.
        registers_per_block: as they are given, in whole steps.
        shared_bytes_per_block: as they are given, in whole steps, the driver's reserve included.
    """

    blocks: int
    warps: int
    fraction: float
    by_registers: int | None
    by_shared_memory: int | None
    by_threads: int
    by_blocks: int
    registers_per_block: int
    shared_bytes_per_block: int

    @property
    def limiters(self) -> tuple[str, ...]:
        """What allows no more blocks, in words: of registers, shared memory, threads, blocks."""
        bounds = {
            "registers": self.by_registers,
            "shared memory": self.by_shared_memory,
            "threads": self.by_threads,
            "blocks": self.by_blocks,
        }
        return tuple(name for name, bound in bounds.items() if bound == self.blocks)

    @property
    def limiter(self) -> str:
        """The same as one phrase: `registers and threads`."""
        return " and ".join(self.limiters)


def occupancy(
    limits: Limits, *, registers: int, static_shared_bytes: int, dynamic_shared_bytes: int, threads_per_block: int
) -> Occupancy:
    """How many blocks of a kernel a multiprocessor holds.

    Args:
        limits: of the device, or of an architecture: `Limits.of("sm_90")`.
        registers: of one thread, as the compiler reports them.
        static_shared_bytes: of one block, as the compiler reports them.
        dynamic_shared_bytes: of one block, as it is launched.
        threads_per_block: at least 1.
    """
    warps = _ceil_div(threads_per_block, WARP)
    per_warp = registers_per_warp(registers)
    reserved, step = limits.reserved_shared_bytes_per_block, limits.shared_allocation_bytes
    shared = _round_up(static_shared_bytes + dynamic_shared_bytes + reserved, step)
    by_registers = _by_registers(limits, per_warp, warps)
    by_shared = _by_shared_memory(limits, shared)
    by_threads = limits.warps_per_multiprocessor // warps if threads_per_block <= MAX_THREADS_PER_BLOCK else 0
    by_blocks = limits.blocks_per_multiprocessor
    bounds = (by_registers, by_shared, by_threads, by_blocks)
    blocks = min(bound for bound in bounds if bound is not None)
    return Occupancy(
        blocks=blocks,
        warps=blocks * warps,
        fraction=blocks * warps / limits.warps_per_multiprocessor,
        by_registers=by_registers,
        by_shared_memory=by_shared,
        by_threads=by_threads,
        by_blocks=by_blocks,
        registers_per_block=per_warp * warps,
        shared_bytes_per_block=shared,
    )


def registers_per_warp(registers: int) -> int:
    """What a warp is allocated whose threads need so many registers each."""
    return _round_up(registers * WARP, REGISTER_ALLOCATION)


def _by_registers(limits: Limits, per_warp: int, warps: int) -> int | None:
    # A launch is refused as if every partition took as many warps as the fullest.
    too_many = per_warp * _round_up(warps, PARTITIONS) > REGISTERS_PER_BLOCK
    if too_many or per_warp > registers_per_warp(MAX_REGISTERS_PER_THREAD):
        return 0
    if per_warp == 0:
        return None
    return limits.registers_per_multiprocessor // PARTITIONS // per_warp * PARTITIONS // warps


def _by_shared_memory(limits: Limits, shared: int) -> int | None:
    if shared > limits.shared_bytes_per_block + limits.reserved_shared_bytes_per_block:
        return 0
    return limits.shared_bytes_per_multiprocessor // shared if shared else None


def bytes_in_flight(per_thread: int, threads_per_block: int, resident_blocks: int) -> int | None:
    """Bytes of loads that a multiprocessor has in flight; None where `per_thread` is 0, which says unknown."""
    return per_thread * threads_per_block * resident_blocks or None


def _ceil_div(number: int, step: int) -> int:
    return -(-number // step)


def _round_up(number: int, step: int) -> int:
    return _ceil_div(number, step) * step
