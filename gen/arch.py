"""Architectures of GPUs: what their devices allow at most, and how fast they are.

`Limits.of("sm_90")` is a table and needs no GPU; `Limits.of_device` asks a device's driver instead. Sources:

- limits of a multiprocessor, and its ratio of f32 to f64: CUDA C++ Programming Guide, "Compute Capabilities", tables
  "Device and Streaming Multiprocessor Information" and "Memory Information" (7.0: its releases before CUDA 13);
- operations on f32 in a clock: CUDA C++ Best Practices Guide, "Throughput of Native Arithmetic Instructions";
- how registers and shared memory are allocated: `cuda_occupancy.h` of CUDA 13.0;
- multiprocessors, clock, second-level cache and bandwidth: data sheets of the devices named beside them.

A test holds the limits and the allocation to `cuda_occupancy.h`, and another, on a GPU, to what the driver says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

from gen.errors import UnknownNameError

if TYPE_CHECKING:  # NumPy would come with it, and the command line reads this module before any command runs
    from gen.dtypes import DType

DEFAULT_ARCH = "sm_90"  # whose limits are taken where neither an architecture nor a device is named

# The same on every architecture from compute capability 5.0 on.
WARP = 32  # threads
BANKS = 32  # of shared memory
SECTOR, LINE = 32, 128  # bytes of the caches
MAX_THREADS_PER_BLOCK = 1024
MAX_THREADS_PER_MULTIPROCESSOR = 2048  # fewer on some
MAX_BLOCK_Z = 64
MAX_GRID_X = 2**31 - 1
MAX_GRID_YZ = 65535  # along y, and along z: so most fold everything into x
MAX_CLUSTER = 8  # blocks; more must be allowed kernel by kernel, and not every device has them
MAX_SHARED_BYTES_PER_BLOCK = 227 * 1024  # fewer on some
STATIC_SHARED_BYTES = 49152  # more must be dynamic, and a kernel must opt in to it
REGISTERS_PER_BLOCK = 65536
REGISTERS_PER_MULTIPROCESSOR = 65536
MAX_REGISTERS_PER_THREAD = 255
REGISTER_ALLOCATION = 256  # registers are allocated to a warp in such steps
SHUFFLES_PER_CLOCK = 32  # words that lanes of a multiprocessor get from other lanes
PARTITIONS = 4  # of a multiprocessor: each has its own registers, and warps are dealt out to them in turn

# Code for one architecture alone, and for its family: the compute capabilities from which compilers have them.
_SUFFIXES = {"": (5, 0), "a": (9, 0), "f": (10, 0)}


@dataclass(frozen=True)
class Architecture:
    """What machine code is for: `sm_90`, or with the features of one device or one family `sm_90a`, `sm_100f`.

    Attributes:
        compute_capability: major and minor number. The later architecture has the greater one.
        suffix: `a`, `f` or empty.
    """

    compute_capability: tuple[int, int]
    suffix: str = ""

    @classmethod
    def parse(cls, name: object) -> Architecture:
        """Reads `sm_90a`. Raises UnknownNameError for anything else than a compute capability from 5.0 on."""
        found = re.fullmatch(r"sm_([1-9][0-9]?)([0-9])([af]?)", name, re.ASCII) if isinstance(name, str) else None
        if found is not None:
            made = cls((int(found[1]), int(found[2])), found[3])
            if made.exists:
                return made
        rule = "must be sm_ and the digits of a compute capability from 5.0 on; an a may follow from 9.0 on, an f from"
        raise UnknownNameError("The architecture", f"{rule} 10.0 on: sm_90, sm_90a, sm_100f", repr(name))

    @property
    def exists(self) -> bool:
        """Whether compilers have such a suffix for such a compute capability."""
        return self.compute_capability >= _SUFFIXES[self.suffix]

    def __str__(self) -> str:
        return "sm_{}{}".format(*self.compute_capability) + self.suffix


def architectures_of(numbers: Iterable[int]) -> tuple[str, ...]:
    """Names of all architectures of compute capabilities given as 90 for 9.0, with every suffix that there is."""
    every = (Architecture(divmod(number, 10), suffix) for number in numbers for suffix in _SUFFIXES)
    return tuple(str(one) for one in every if one.exists)


class Attribute(IntEnum):
    """Device attributes that limits are asked for, by the driver's names and numbers (`CUdevice_attribute`)."""

    CLOCK_RATE = 13
    MULTIPROCESSOR_COUNT = 16
    INTEGRATED = 18
    MEMORY_CLOCK_RATE = 36
    GLOBAL_MEMORY_BUS_WIDTH = 37
    L2_CACHE_SIZE = 38
    MAX_THREADS_PER_MULTIPROCESSOR = 39
    COMPUTE_CAPABILITY_MAJOR = 75
    COMPUTE_CAPABILITY_MINOR = 76
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81
    MAX_REGISTERS_PER_MULTIPROCESSOR = 82
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
    MAX_BLOCKS_PER_MULTIPROCESSOR = 106
    RESERVED_SHARED_MEMORY_PER_BLOCK = 111


@dataclass(frozen=True)
class Limits:
    """What a device has at most, of memory, threads, bytes and operations a second.

    Attributes:
        arch: `sm_90`, or what else code is compiled for: `sm_90a`.
        multiprocessors: of the device.
        threads_per_multiprocessor: that are resident at the same time.
        blocks_per_multiprocessor: the same, however small they are.
        registers_per_multiprocessor: of 32 bits, of all partitions together.
        shared_bytes_per_multiprocessor: shared memory at its largest share of the first-level cache.
        shared_bytes_per_block: what a kernel can opt in to.
        reserved_shared_bytes_per_block: what the driver takes of it for each block.
        f32_per_clock: additions, multiplications or fused multiply-adds of a multiprocessor in a clock.
        f64_per_clock: the same of f64.
        l2_bytes: the second-level cache.
        clock_hz: of the multiprocessors, at boost.
        memory_bytes_per_second: of global memory, by its clock and width.
        needed_bytes_in_flight: bytes of loads under way with which a multiprocessor reads memory at full speed; None
            where nobody has said.
        figures_of: the architecture of the table that the figures are from. Not `arch` where that is in no table.
    """

    arch: str
    multiprocessors: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    registers_per_multiprocessor: int
    shared_bytes_per_multiprocessor: int
    shared_bytes_per_block: int
    reserved_shared_bytes_per_block: int
    f32_per_clock: int
    f64_per_clock: int
    l2_bytes: int
    clock_hz: float
    memory_bytes_per_second: float
    needed_bytes_in_flight: int | None
    figures_of: str

    def __hash__(self) -> int:
        """Found once: much that is known of a spec on a device is looked up by it."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Of numbers alone, whose hash other processes share."""
        return hash((self.multiprocessors, self.clock_hz, self.memory_bytes_per_second, self.l2_bytes))

    @classmethod
    def of(cls, arch: str) -> Limits:
        """Those of an architecture's best-known device, or where it has none in the table, of the nearest that has.

        Raises UnknownNameError for what names no architecture.
        """
        return replace(nearest(Architecture.parse(arch)), arch=arch)

    @classmethod
    def of_device(cls, name: str, ask: Callable[[Attribute], int]) -> Limits:
        """Those of a device; what its driver does not say is that of its architecture.

        Args:
            name: what the driver calls it: `NVIDIA H200`.
            ask: gives an attribute; 0 where the driver does not know it.
        """
        capability = ask(Attribute.COMPUTE_CAPABILITY_MAJOR), ask(Attribute.COMPUTE_CAPABILITY_MINOR)
        known = cls.of(str(Architecture(capability)))
        # An integrated GPU shares the host's memory: drivers say nothing of its clock and width, or another clock.
        width = 0 if ask(Attribute.INTEGRATED) else ask(Attribute.GLOBAL_MEMORY_BUS_WIDTH) // 8
        bandwidth = 2e3 * ask(Attribute.MEMORY_CLOCK_RATE) * width  # a clock in kHz, and two transfers in each
        in_flight = max(_NEEDED_IN_FLIGHT.get(word, 0) for word in re.split("[ -]", name))
        return replace(
            known,
            multiprocessors=ask(Attribute.MULTIPROCESSOR_COUNT) or known.multiprocessors,
            threads_per_multiprocessor=ask(Attribute.MAX_THREADS_PER_MULTIPROCESSOR)
            or known.threads_per_multiprocessor,
            blocks_per_multiprocessor=ask(Attribute.MAX_BLOCKS_PER_MULTIPROCESSOR) or known.blocks_per_multiprocessor,
            registers_per_multiprocessor=ask(Attribute.MAX_REGISTERS_PER_MULTIPROCESSOR)
            or known.registers_per_multiprocessor,
            shared_bytes_per_multiprocessor=ask(Attribute.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)
            or known.shared_bytes_per_multiprocessor,
            shared_bytes_per_block=ask(Attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) or known.shared_bytes_per_block,
            reserved_shared_bytes_per_block=ask(Attribute.RESERVED_SHARED_MEMORY_PER_BLOCK)
            or known.reserved_shared_bytes_per_block,
            l2_bytes=ask(Attribute.L2_CACHE_SIZE) or known.l2_bytes,
            clock_hz=1e3 * ask(Attribute.CLOCK_RATE) or known.clock_hz,
            memory_bytes_per_second=bandwidth or known.memory_bytes_per_second,
            needed_bytes_in_flight=in_flight or known.needed_bytes_in_flight,
        )

    @cached_property
    def compute_capability(self) -> tuple[int, int]:
        """Of the architecture: (9, 0)."""
        return Architecture.parse(self.arch).compute_capability

    @property
    def warps_per_multiprocessor(self) -> int:
        """The most that are resident at the same time."""
        return self.threads_per_multiprocessor // WARP

    @property
    def shared_allocation_bytes(self) -> int:
        """Shared memory is allocated to a block in such steps."""
        return 128 if self.compute_capability >= (8, 0) else 256

    @property
    def has_clusters(self) -> bool:
        """Whether blocks of a cluster can reach into each other's shared memory."""
        return self.compute_capability >= (9, 0)

    @property
    def has_warp_sums(self) -> bool:
        """Whether there is an instruction for the sum of a warp's 32-bit integers."""
        return self.compute_capability >= (8, 0)

    @property
    def has_asynchronous_copies(self) -> bool:
        """Whether a thread can have global memory copied to shared memory while it goes on."""
        return self.compute_capability >= (8, 0)

    @property
    def stand_in(self) -> str | None:
        """A sentence for the user where the architecture is in no table; None where it is."""
        if Architecture.parse(self.figures_of).compute_capability == self.compute_capability:
            return None
        return f"gen has no figures of {self.arch}: those of {self.figures_of} are taken, the nearest that it has."

    def slots(self, dtype: DType) -> float:
        """For how many operations on f32 a multiprocessor has the time of one on a type that is added as f32 or f64."""
        return self.f32_per_clock / self.f64_per_clock if dtype.name == "f64" else 1.0

    def sizes(self) -> dict[str, int]:
        """What a plan's expressions may name beside extents."""
        return {"multiprocessors": self.multiprocessors}


def max_registers_per_thread(warps: int) -> int:
    """The most registers of a thread with which so many warps, at least 1, are resident on a multiprocessor."""
    of_a_partition = -(-warps // PARTITIONS)
    units = REGISTERS_PER_MULTIPROCESSOR // PARTITIONS // of_a_partition // REGISTER_ALLOCATION
    return min(units * REGISTER_ALLOCATION // WARP, MAX_REGISTERS_PER_THREAD)


def nearest(arch: Architecture) -> Limits:
    """The limits in the table of the nearest architecture: of the same major number before others; of two the newer."""
    major, minor = arch.compute_capability

    def distance(known: Limits) -> tuple[int, int, int]:
        number = 10 * known.compute_capability[0] + known.compute_capability[1]
        return abs(known.compute_capability[0] - major), abs(number - 10 * major - minor), -number

    return min(KNOWN, key=distance)


def _row(
    arch: str, *, multiprocessors: int, threads: int, blocks: int, shared_kib: int,
    per_clock: tuple[int, int], l2_mib: int, ghz: float, gb_per_s: float, in_flight_kib: int | None = None,
) -> Limits:  # fmt: skip
    """One architecture of the table. Threads, blocks, shared memory, operations and bytes are of a multiprocessor."""
    reserved = 1024 if Architecture.parse(arch).compute_capability >= (8, 0) else 0
    return Limits(
        arch=arch,
        multiprocessors=multiprocessors,
        threads_per_multiprocessor=threads,
        blocks_per_multiprocessor=blocks,
        registers_per_multiprocessor=REGISTERS_PER_MULTIPROCESSOR,
        shared_bytes_per_multiprocessor=shared_kib * 1024,
        shared_bytes_per_block=shared_kib * 1024 - reserved,  # the largest block fills a multiprocessor
        reserved_shared_bytes_per_block=reserved,
        f32_per_clock=per_clock[0],
        f64_per_clock=per_clock[1],
        l2_bytes=l2_mib << 20,
        clock_hz=ghz * 1e9,
        memory_bytes_per_second=gb_per_s * 1e9,
        needed_bytes_in_flight=None if in_flight_kib is None else in_flight_kib * 1024,
        figures_of=arch,
    )


# Oldest first. Bytes in flight: what CUB's DeviceTransform asks for.
KNOWN = (
    _row(  # V100
        "sm_70", multiprocessors=80, threads=2048, blocks=32, shared_kib=96, per_clock=(64, 32),
        l2_mib=6, ghz=1.53, gb_per_s=900, in_flight_kib=12,
    ),
    _row(  # T4
        "sm_75", multiprocessors=40, threads=1024, blocks=16, shared_kib=64, per_clock=(64, 2),
        l2_mib=4, ghz=1.59, gb_per_s=320,
    ),
    _row(  # A100 of 80 GB
        "sm_80", multiprocessors=108, threads=2048, blocks=32, shared_kib=164, per_clock=(64, 32),
        l2_mib=40, ghz=1.41, gb_per_s=2039, in_flight_kib=16,
    ),
    _row(  # RTX 3090
        "sm_86", multiprocessors=82, threads=1536, blocks=16, shared_kib=100, per_clock=(128, 2),
        l2_mib=6, ghz=1.70, gb_per_s=936,
    ),
    _row(  # Jetson AGX Orin of 64 GB
        "sm_87", multiprocessors=16, threads=1536, blocks=16, shared_kib=164, per_clock=(128, 2),
        l2_mib=4, ghz=1.30, gb_per_s=204.8,
    ),
    _row(  # L40S
        "sm_89", multiprocessors=142, threads=1536, blocks=24, shared_kib=100, per_clock=(128, 2),
        l2_mib=96, ghz=2.52, gb_per_s=864,
    ),
    _row(  # H100 SXM
        "sm_90", multiprocessors=132, threads=2048, blocks=32, shared_kib=228, per_clock=(128, 64),
        l2_mib=50, ghz=1.98, gb_per_s=3350, in_flight_kib=32,
    ),
    _row(  # B200
        "sm_100", multiprocessors=148, threads=2048, blocks=32, shared_kib=228, per_clock=(128, 64),
        l2_mib=126, ghz=1.965, gb_per_s=8000, in_flight_kib=64,
    ),
    _row(  # B300
        "sm_103", multiprocessors=148, threads=2048, blocks=32, shared_kib=228, per_clock=(128, 2),
        l2_mib=126, ghz=2.03, gb_per_s=8000, in_flight_kib=64,
    ),
    _row(  # Jetson T5000 (Thor)
        "sm_110", multiprocessors=20, threads=1536, blocks=24, shared_kib=228, per_clock=(128, 2),
        l2_mib=32, ghz=1.57, gb_per_s=273,
    ),
    _row(  # RTX 5090
        "sm_120", multiprocessors=170, threads=1536, blocks=24, shared_kib=100, per_clock=(128, 2),
        l2_mib=96, ghz=2.41, gb_per_s=1792,
    ),
    _row(  # GB10 (DGX Spark)
        "sm_121", multiprocessors=48, threads=1536, blocks=24, shared_kib=100, per_clock=(128, 2),
        l2_mib=24, ghz=2.418, gb_per_s=273,
    ),
)  # fmt: skip

# Devices that need more bytes in flight than others of their architecture, by a word of their names.
_NEEDED_IN_FLIGHT = {"H200": 48 * 1024}


# Devices by a word of their names: those of one architecture are siblings.
_MODELS = {
    **dict.fromkeys(("V100", "V100S"), "sm_70"), **dict.fromkeys(("T4", "2080"), "sm_75"),
    **dict.fromkeys(("A100", "A30", "A800"), "sm_80"), **dict.fromkeys(("A10", "A40", "A6000", "3090"), "sm_86"),
    **dict.fromkeys(("L4", "L40", "L40S", "4090"), "sm_89"),
    **dict.fromkeys(("H100", "H200", "H800", "H20", "GH200"), "sm_90"),
    **dict.fromkeys(("B200", "GB200"), "sm_100"), **dict.fromkeys(("B300", "GB300"), "sm_103"), "5090": "sm_120",
}  # fmt: skip


def sibling_of(device: str, others: Iterable[str]) -> str | None:
    """The device among others that is most like one: of its architecture, sharing most words of its name.

    None where none is, or nobody knows what it is.
    """
    arch = arch_of(device)
    return None if arch is None else known_device(arch, set(others) - {device}, re.split("[ -]", device))


def arch_of(device: str) -> str | None:
    """The architecture of a device, by its name; None where nobody knows what it is."""
    return next((_MODELS[word] for word in re.split("[ -]", device) if word in _MODELS), None)


def known_device(arch: str, others: Iterable[str], words: Iterable[str] = ()) -> str | None:
    """The device of an architecture among others whose name has most of some words; None where there is none."""
    named = {other: set(re.split("[ -]", other)) for other in others}
    alike = [other for other, its in named.items() if any(_MODELS.get(word) == arch for word in its)]
    return min(alike, key=lambda other: (-len(named[other].intersection(words)), other), default=None)


@dataclass(frozen=True)
class MemoryModel:
    """How an architecture moves data.

    Attributes:
        load_bytes: what a load from global memory moves at least: a line where the first-level cache takes whole lines.
            A store moves a sector.
        bank_bytes: what a bank of shared memory gives at once. Of 8 bytes these are two words, 32 words apart.
    """

    load_bytes: int = SECTOR
    bank_bytes: int = 4


MODERN = MemoryModel()  # of every architecture from compute capability 5.0 on
# The architectures on which the literature measured: no compiler here knows them. Fermi loads whole lines through its
# first-level cache; that can be switched off. Kepler's banks are 8 bytes wide, and in the mode in which it starts give
# any two words of an aligned row of 64 that are 32 apart. CUDA C Programming Guide 4.2, appendix F.
LITERATURE: Mapping[str, MemoryModel] = {
    "fermi": MemoryModel(load_bytes=LINE),
    "fermi-uncached": MemoryModel(),
    "kepler": MemoryModel(load_bytes=LINE, bank_bytes=8),
}
