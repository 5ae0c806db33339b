"""Plans: every launch of a call as expressions over sizes, and the limits of the device that the sizes meet."""

from __future__ import annotations

from dataclasses import dataclass

from gen.dtypes import DType
from gen.errors import UnknownNameError
from gen.families.expr import ONE, ZERO, Expr


def architectures() -> tuple[str, ...]:
    """Those whose limits are known."""
    return tuple(_LIMITS)


@dataclass(frozen=True)
class Limits:
    """What a device allows. `Limits.of("sm_90")` is a table and needs no GPU."""

    arch: str
    sm_count: int
    shared_bytes_per_block: int
    registers_per_sm: int
    threads_per_sm: int

    @classmethod
    def of(cls, arch: str) -> Limits:
        """The limits of an architecture's best-known device."""
        if arch not in _LIMITS:
            raise UnknownNameError("The architecture", "must be one of " + ", ".join(_LIMITS), repr(arch))
        return cls(arch, *_LIMITS[arch])

    @property
    def has_clusters(self) -> bool:
        """Whether blocks of a cluster can reach into each other's shared memory."""
        return int(self.arch.removeprefix("sm_").rstrip("af")) >= 90

    @property
    def has_warp_sums(self) -> bool:
        """Whether there is an instruction for the sum of a warp's 32-bit integers."""
        return int(self.arch.removeprefix("sm_").rstrip("af")) >= 80

    def sizes(self) -> dict[str, int]:
        """What a plan's expressions may name beside extents."""
        return {"sm_count": self.sm_count}


# CUDA C++ Programming Guide, "Compute Capabilities"; multiprocessors of V100, T4, A100, RTX 3090, L40S, H100, B200,
# RTX 5090; shared memory is what a block can opt in to.
_LIMITS = {
    "sm_70": (80, 98304, 65536, 2048),
    "sm_75": (40, 65536, 65536, 1024),
    "sm_80": (108, 166912, 65536, 2048),
    "sm_86": (82, 101376, 65536, 1536),
    "sm_89": (142, 101376, 65536, 1536),
    "sm_90": (132, 232448, 65536, 2048),
    "sm_100": (148, 232448, 65536, 2048),
    "sm_120": (170, 101376, 65536, 1536),
}
STATIC_SHARED_BYTES = 49152  # more must be dynamic, on every architecture
MAX_GRID_X = 2**31 - 1
MAX_GRID_YZ = 65535  # along y, and along z: so most fold everything into x


@dataclass(frozen=True)
class Launch:
    """One kernel launch, as expressions over extents and limits: Python evaluates them, an export prints them as C.

    Attributes:
        grid: blocks along x, y, z; where one of them is 0 nothing is launched.
        block: threads along x, y, z.
        arguments: an operand or scratch by name, or a number with its type.
        entry: what the kernel's symbol adds to the variant's name: `_finish`.
        shared_bytes: dynamic shared memory.
        cluster: blocks in a cluster.
        times: how often it runs: `steps // 4`.
        swap: pairs of buffers that change places after each time.
        setup: it prepares private copies; it is not part of what is timed.
        waiting: launches by the kernels themselves, of which so many may wait at once.
        across: blocks in a row, where grid.x is rows of blocks one after the other; those at the ends may do less.
    """

    grid: tuple[Expr, Expr, Expr]
    block: tuple[int, int, int]
    arguments: tuple[str | tuple[DType, Expr], ...]
    entry: str = ""
    shared_bytes: Expr = ZERO
    cluster: tuple[int, int, int] = (1, 1, 1)
    times: Expr = ONE
    swap: tuple[tuple[str, str], ...] = ()
    setup: bool = False
    waiting: Expr = ZERO
    across: Expr = ONE


@dataclass(frozen=True)
class Scratch:
    """Device memory that a kernel object owns.

    Attributes:
        name: of the kernel's argument.
        bytes: its size.
        zeroed: zeroed once; every run leaves it zero.
        awaited: blocks wait until others have written to it.
    """

    name: str
    bytes: Expr
    zeroed: bool = False
    awaited: bool = False


@dataclass(frozen=True)
class Plan:
    """All launches of one call, in order, for every shape; every runner interprets the same plan."""

    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...] = ()
    constants: tuple[tuple[str, bytes], ...] = ()


def beyond_grid(blocks: int, *behind: int) -> str | None:
    """Why a grid cannot hold so many blocks along x, and so many along y and z; None if it can."""
    if blocks > MAX_GRID_X:
        return f"it takes {blocks} blocks; a grid has at most {MAX_GRID_X}"
    most = max(behind, default=0)
    return f"it takes {most} blocks along y or z; a grid has at most {MAX_GRID_YZ}" if most > MAX_GRID_YZ else None
