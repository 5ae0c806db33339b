"""How many blocks and warps a multiprocessor holds, and how many bytes of loads they keep in flight.

Pure arithmetic from what the compiler reports and what an architecture allows: no GPU, no compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

from gen.errors import UnknownNameError
from gen.families.base import Limits

WARP = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_REGISTERS_PER_THREAD = 256
REGISTERS_PER_BLOCK = 65536
REGISTER_UNIT = 256  # registers are given to a warp in such steps
PARTITIONS = 4  # a multiprocessor's quarters: each has its own registers, and warps are dealt out to them in turn


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor of an architecture has to give, and in which steps.

    Attributes:
        blocks: the most that are resident, however small they are.
        threads: the most that are resident.
        registers: of all quarters together.
        shared_bytes: shared memory at its largest share of the first-level cache.
        shared_bytes_per_block: what a block can opt in to.
        shared_unit: shared memory is given to a block in such steps.
        reserved_shared_bytes: what the driver keeps of it in each block.
    """

    arch: str
    blocks: int
    threads: int
    registers: int
    shared_bytes: int
    shared_bytes_per_block: int
    shared_unit: int
    reserved_shared_bytes: int

    @property
    def warps(self) -> int:
        """The most that are resident."""
        return self.threads // WARP

    @classmethod
    def of(cls, limits: Limits) -> Multiprocessor:
        """A multiprocessor of a device of these limits. Raises UnknownNameError for an architecture of no table."""
        if limits.arch not in _STEPS:
            raise UnknownNameError("The architecture", "must be one of " + ", ".join(_STEPS), repr(limits.arch))
        blocks, unit, reserved = _STEPS[limits.arch]
        return cls(
            arch=limits.arch,
            blocks=blocks,
            threads=limits.threads_per_sm,
            registers=limits.registers_per_sm,
            # Everywhere the largest block's opt-in and its reserve fill the multiprocessor.
            shared_bytes=limits.shared_bytes_per_block + reserved,
            shared_bytes_per_block=limits.shared_bytes_per_block,
            shared_unit=unit,
            reserved_shared_bytes=reserved,
        )


# Most blocks, step of shared memory, reserve of each block: CUDA C++ Programming Guide, "Compute Capabilities", and
# cuda_occupancy.h, against which a test holds every number here.
_STEPS = {
    "sm_70": (32, 256, 0),
    "sm_75": (16, 256, 0),
    "sm_80": (32, 128, 1024),
    "sm_86": (16, 128, 1024),
    "sm_89": (24, 128, 1024),
    "sm_90": (32, 128, 1024),
    "sm_100": (32, 128, 1024),
    "sm_120": (24, 128, 1024),
}


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

    Raises:
        UnknownNameError: the architecture is in no table.
    """
    has = Multiprocessor.of(limits)
    warps = _ceil_div(threads_per_block, WARP)
    per_warp = _round_up(registers * WARP, REGISTER_UNIT)
    shared = _round_up(static_shared_bytes + dynamic_shared_bytes + has.reserved_shared_bytes, has.shared_unit)
    by_registers = _by_registers(has, registers, per_warp, warps)
    by_shared = _by_shared_memory(has, shared)
    by_threads = has.warps // warps if threads_per_block <= MAX_THREADS_PER_BLOCK else 0
    bounds = (by_registers, by_shared, by_threads, has.blocks)
    blocks = min(bound for bound in bounds if bound is not None)
    return Occupancy(
        blocks=blocks,
        warps=blocks * warps,
        fraction=blocks * warps / has.warps,
        by_registers=by_registers,
        by_shared_memory=by_shared,
        by_threads=by_threads,
        by_blocks=has.blocks,
        registers_per_block=per_warp * warps,
        shared_bytes_per_block=shared,
    )


def _by_registers(has: Multiprocessor, registers: int, per_warp: int, warps: int) -> int | None:
    # A launch is refused as if every quarter took as many warps as the fullest.
    if per_warp * _round_up(warps, PARTITIONS) > REGISTERS_PER_BLOCK or registers > MAX_REGISTERS_PER_THREAD:
        return 0
    if per_warp == 0:
        return None
    return has.registers // PARTITIONS // per_warp * PARTITIONS // warps


def _by_shared_memory(has: Multiprocessor, shared: int) -> int | None:
    if shared > has.shared_bytes_per_block + has.reserved_shared_bytes:
        return 0
    return has.shared_bytes // shared if shared else None


def bytes_in_flight(per_thread: int, threads_per_block: int, resident_blocks: int) -> int | None:
    """Bytes of loads that a multiprocessor has in flight; None where `per_thread` is 0, which says unknown."""
    return per_thread * threads_per_block * resident_blocks or None


# Bytes in flight with which a multiprocessor reads memory at full speed: what CUB's DeviceTransform asks for.
_NEEDED_BY_NAME = {"V100": 12, "A100": 16, "H100": 32, "H200": 48, "B200": 64}
_NEEDED_BY_ARCH = {"sm_70": 12, "sm_80": 16, "sm_90": 32, "sm_100": 64}


def needed_in_flight(arch: str, device: str = "") -> int | None:
    """Bytes in flight that a multiprocessor needs to read at full speed; None where nobody has said.

    Args:
        arch: stands for its best-known device.
        device: what the driver calls the device, which goes before the architecture: `NVIDIA H200`.
    """
    words = device.replace("-", " ").split()
    by_name = next((kib for name, kib in _NEEDED_BY_NAME.items() if name in words), None)
    kib = by_name if by_name is not None else _NEEDED_BY_ARCH.get(arch)
    return None if kib is None else kib * 1024


def _ceil_div(number: int, step: int) -> int:
    return -(-number // step)


def _round_up(number: int, step: int) -> int:
    return _ceil_div(number, step) * step
