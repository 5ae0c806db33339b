"""What the accesses of a kernel cost: requests of warps, the sectors and lines they move, conflicts of banks.

A request is one instruction of one warp. It moves the 32-byte sectors, or 128-byte lines, that its lanes touch; in
shared memory it takes as many wavefronts as the fullest bank holds different words. What lanes ask for is compared
with that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gen.arch import BANKS, LINE, SECTOR, WARP, MemoryModel
from gen.families.base import Array
from gen.proof import native

WORD = 4  # bytes: banks count in such words

Space = Literal["global", "shared", "constant"]
GLOBAL, SHARED, CONSTANT = range(3)  # as events have them; the runtime knows the first two
_SPACES: tuple[Space, ...] = ("global", "shared", "constant")
Kind = Literal["load", "store", "atomic"]


@dataclass(frozen=True)
class Counts:
    """What accesses of one kind come to, summed over all warps.

    Attributes:
        read_only: by `__ldg`, through the read-only path of the first-level cache.
        bytes: of one lane.
        requests: of warps.
        lanes: that took part, of all requests together.
        sectors: different ones in each request; global memory only.
        lines: the same.
        block_sectors: different ones in each block: what is left where a first-level cache keeps all.
        wavefronts: that shared memory takes; of constant memory, one for every different address of a request.
        least_wavefronts: that it would take without conflicts: one for every 128 bytes that lanes side by side ask for;
            of constant memory, one for a request, whose lanes all ask for the same.
    """

    space: Space
    kind: Kind
    read_only: bool
    bytes: int
    requests: float
    lanes: float
    sectors: float
    lines: float
    block_sectors: float
    wavefronts: float
    least_wavefronts: float

    @property
    def requested_bytes(self) -> float:
        """What the lanes asked for, each for itself."""
        return self.lanes * self.bytes

    def moved_bytes(self, model: MemoryModel) -> float:
        """What global memory moves for it."""
        granule = model.load_bytes if self.kind == "load" else SECTOR
        return granule * (self.lines if granule == LINE else self.sectors)

    @property
    def conflict_degree(self) -> float:
        """Wavefronts over the least: 1 is free of conflicts, 32 the worst."""
        return self.wavefronts / self.least_wavefronts if self.least_wavefronts else 1.0


@dataclass(frozen=True)
class Counted(Counts):
    """What one place in the machine code did, by the warps that were run; `address` is that of one access."""

    pc: int
    address: int


@dataclass(frozen=True)
class Access(Counts):
    """One access in a kernel's text.

    Attributes:
        kernel: the symbol of its kernel.
        line: of the emitted text, in the innermost function; 0 where it is not known.
        source: that line.
        called_from: the line of the kernel that leads there; the same where no function is called.
        buffer: the operand, scratch buffer or array concerned: `shared` for shared memory.
    """

    kernel: str
    line: int
    source: str
    called_from: int
    buffer: str


@dataclass(frozen=True)
class Traffic:
    """All accesses of one call, private copies' set-up left out.

    Attributes:
        model: by which wavefronts are counted.
        accesses: in the order of launches and lines.
        launches: kernels that were launched, each as often.
        blocks: of all launches together.
        traced: of which so many were run.
    """

    model: MemoryModel
    accesses: tuple[Access, ...]
    launches: int
    blocks: int
    traced: int

    def of(self, space: Space, *kinds: Kind) -> tuple[Access, ...]:
        """The accesses of a space, of these kinds if any are given."""
        return tuple(a for a in self.accesses if a.space == space and (not kinds or a.kind in kinds))

    def efficiency(self, *kinds: Kind) -> float | None:
        """Bytes that lanes asked for over bytes that global memory moved; None where nothing moved.

        More than 1 where lanes of a warp ask for the same bytes.
        """
        found = self.of("global", *kinds)
        moved = sum(access.moved_bytes(self.model) for access in found)
        return sum(access.requested_bytes for access in found) / moved if moved else None

    def moved_bytes(self, *kinds: Kind) -> float:
        """Bytes that global memory moves, by sectors or lines of each request."""
        return sum(access.moved_bytes(self.model) for access in self.of("global", *kinds))

    def cached_bytes(self, *kinds: Kind) -> float:
        """The same where each block's accesses to one sector are one: what the second-level cache sees at least."""
        return SECTOR * sum(access.block_sectors for access in self.of("global", *kinds))

    @property
    def conflict_degree(self) -> float:
        """Wavefronts of shared memory over the least; 1 where there are none."""
        found = self.of("shared")
        least = sum(access.least_wavefronts for access in found)
        return sum(access.wavefronts for access in found) / least if least else 1.0

    @property
    def active_lanes(self) -> float:
        """Lanes of a warp that take part in an access to global or shared memory, on average; 0 without any."""
        found = self.of("global") + self.of("shared")
        requests = sum(access.requests for access in found)
        return sum(access.lanes for access in found) / requests if requests else 0.0


EVENT: np.dtype[Any] = np.dtype(native.Access)  # one access of one thread


def count(events: Array, weights: Array, model: MemoryModel) -> Iterable[Counted]:
    """What the accesses of a launch come to, by place in the machine code.

    Args:
        events: of type EVENT, those of each thread in the order in which it made them.
        weights: for how many blocks each event's block stands.
        model: how wide banks are.
    """
    for pc in np.unique(events["pc"]):
        chosen = np.flatnonzero(events["pc"] == pc)
        for space in range(len(_SPACES)):
            mine = chosen[events["space"][chosen] == space]
            if mine.size:
                yield _one(events[mine], weights[mine], model)


_KINDS: tuple[Kind, ...] = ("load", "load", "store", "atomic")  # by `TOUCHED_BY_READ` and `TOUCHED_BY_WRITE`


def _one(events: Array, weights: Array, model: MemoryModel) -> Counted:
    request, first = _requests(events)
    weight = weights[first]  # of each request
    space = _SPACES[int(events["space"][0])]
    touch, size = int(events["touch"][0]), int(events["bytes"].max())
    sectors = lines = wavefronts = least = 0.0
    if space == "global":
        sectors, lines = (_moved(events, request, weight, unit) for unit in (SECTOR, LINE))
    elif space == "shared":
        wavefronts, least = _wavefronts(events, request, weight, size, model)
    else:
        wavefronts, least = _moved(events, request, weight, size), float(weight.sum())
    _, first_of_block, block = np.unique(events["block"], return_index=True, return_inverse=True)
    return Counted(
        pc=int(events["pc"][0]),
        address=int(events["address"][0]),
        space=space,
        kind=_KINDS[touch],
        read_only=bool(events["read_only"][0]),
        bytes=size,
        requests=float(weight.sum()),
        lanes=float(weights.sum()),
        sectors=sectors,
        lines=lines,
        block_sectors=_moved(events, block.reshape(-1), weights[first_of_block], SECTOR) if space == "global" else 0.0,
        wavefronts=wavefronts,
        least_wavefronts=least,
    )


def _requests(events: Array) -> tuple[Array, Array]:
    """The request that each event belongs to, and the first event of each: the k-th time that its warp is there.

    Lanes that come there less often than others take part in the first of them.
    """
    _, block = np.unique(events["block"], return_inverse=True)
    thread = block.reshape(-1).astype(np.int64) * 1024 + events["thread"]
    order = np.argsort(thread, kind="stable")
    ordered = thread[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1) != 0)
    place = np.arange(ordered.size) - np.repeat(starts, np.diff(starts, append=ordered.size))
    turn = np.empty(ordered.size, np.int64)
    turn[order] = place
    warp = thread // WARP
    _, first, request = np.unique(warp << 28 | turn, return_index=True, return_inverse=True)
    return request.reshape(-1), first


def _moved(events: Array, group: Array, weight: Array, unit: int) -> float:
    """How many different pieces of `unit` bytes each group of events touches, weighted."""
    begin, group = _split(events["address"], events["bytes"], group, unit)
    begin -= begin.min()
    distinct = np.unique(group.astype(np.int64) << 36 | begin)  # no buffer has 2^36 sectors
    return float(weight[distinct >> 36].sum())


def _split(address: Array, size: Array, group: Array, unit: int) -> tuple[Array, Array]:
    """The number of every piece of `unit` bytes that an access touches, and its group."""
    first = (address // unit).astype(np.int64)
    pieces = (address + size - 1).astype(np.int64) // unit - first + 1
    within = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.repeat(first, pieces) + within, np.repeat(group, pieces)


def _wavefronts(events: Array, request: Array, weight: Array, size: int, model: MemoryModel) -> tuple[float, float]:
    """Wavefronts of all requests, and the least there could be, weighted.

    Wider accesses than a bank are served a part of the warp after the other, each with as many lanes as fill all banks.
    """
    lanes = WARP * model.bank_bytes // max(size, model.bank_bytes)
    part = request * WARP + (events["thread"] % WARP) // max(lanes, 1)
    word, of_part = _split(events["address"], events["bytes"], part, WORD)
    row = word // (BANKS * model.bank_bytes // WORD)
    rows = np.unique((of_part.astype(np.int64) * BANKS + word % BANKS) << 24 | row)  # different ones of each bank
    banks, fullness = np.unique(rows >> 24, return_counts=True)
    parts, start = np.unique(banks // BANKS, return_index=True)
    fullest = np.maximum.reduceat(fullness, start)
    weights = weight[parts // WARP]
    return float((fullest * weights).sum()), float(weights.sum())
