"""A whole array on several devices reduced to one number, in an order that does not depend on how many there are.

The rows of an array are taken in units, whose number and size follow from the shape alone. A unit is reduced by one
call of the kernel of one device, by the rank that has its first row; rows of it that others have are copied there
first. The partial results come to the first device in the order of the units, and are reduced by one call more. So a
result has the same bits for any number of devices of one model, and any split of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd, prod
from typing import Any

from typing_extensions import override

from gen.dtypes import BF16, F16
from gen.errors import ArgumentError
from gen.families.base import Family
from gen.families.reduction import ReductionSpec, reduction
from gen.gpu.device import Mark, Memory, Peer, Rows
from gen.runtime.arrays import DeviceArray, Given, Kind
from gen.runtime.kernel import Kernel
from gen.runtime.processes import Processes
from gen.runtime.sharded import Rank, Scattering, ShardedArray

UNITS = 64  # of an array, at most
ALIGNMENT = 256  # bytes: units lie so in every split, and memory is allocated so
MOST_CALLS = 1024  # that are remembered
FINAL = {"sum": "sum", "prod": "prod", "min": "min", "max": "max", "any": "any", "all": "all", "count_nonzero": "sum"}
"""How partial results are reduced."""


def final_spec(name: str, spec: ReductionSpec) -> ReductionSpec:
    """What reduces the partial results. Raises ArgumentError if several devices do not take the spec.

    Args:
        name: of the spec, for messages.
        spec: what is computed.
    """
    next_step = "Load it for one device: gen.load(spec, device=0)"
    if len(spec.op) > 1 or spec.op[0] not in FINAL or spec.axis is not None or spec.keepdims:
        rule = f"must be one of {', '.join(FINAL)} of a whole array to be computed on several devices"
        raise ArgumentError(name, rule, next_step=next_step)
    operator = FINAL[spec.op[0]]
    if operator in ("sum", "prod") and spec.result in (F16, BF16):
        rule = f"must have a result that holds partial results, not {spec.result.name}, on several devices"
        raise ArgumentError(name, rule, next_step='Say it: gen.reduction(..., dtype="float32")')
    return reduction(operator, spec.result.numpy, dtype=spec.result.numpy if operator in ("sum", "prod") else None)


def rows_of_unit(shape: Sequence[int], size: int) -> int:
    """How many rows a unit has, the last one perhaps fewer.

    Args:
        shape: of the array.
        size: bytes of an element.
    """
    row = size * prod(shape[1:])
    together = ALIGNMENT // gcd(ALIGNMENT, row)
    return -(-shape[0] // (UNITS * together)) * together


@dataclass(frozen=True)
class Piece:
    """Rows of a unit that one rank has."""

    rank: int
    first: int
    end: int


@dataclass
class _Room:
    """Memory of a rank: for a unit that does not lie there as it is needed, and for partial results."""

    unit: Memory
    slots: Memory
    read: Mark | None = None  # nobody reads the unit any more


@dataclass
class _Layout:
    """An array's units, who has their rows, and the memory that they take."""

    units: tuple[tuple[Piece, ...], ...]
    rooms: tuple[_Room, ...]
    slots: Memory
    calls: dict[tuple[int, int, int], Callable[[int], None]] = field(default_factory=dict)
    read: Mark | None = None  # the partial results are reduced: others may be written


class ShardedReduction(Scattering):
    """A reduction of a whole array on several devices. Threads may share one.

    `kernel.scatter(x)` brings an array to the devices, arrays of stencils on the same devices are taken too, and
    `kernel(a).numpy()` is the result. A call does not wait for the devices.
    """

    def __init__(
        self, family: Family[Any], spec: ReductionSpec, kernels: Mapping[Peer, Kernel], final: Kernel,
        devices: Sequence[Peer], processes: Processes | None = None,
    ) -> None:  # fmt: skip
        """Makes streams, and lets the devices reach each other.

        Args:
            family: of the spec.
            spec: what is computed, of which there is a `final_spec`.
            kernels: of each device.
            final: of the first device, for partial results.
            devices: of each rank.
            processes: those that share the work, one rank each; None if all ranks are of this process.
        """
        super().__init__(family.name_of(spec), devices, spec.dtype, (len(devices),), None, processes)
        self._spec, self._kernels, self._final = spec, kernels, final
        self._layouts: dict[tuple[tuple[int, ...], ...], _Layout] = {}

    def __call__(self, array: ShardedArray) -> DeviceArray:
        """Reduces an array.

        Args:
            array: split along its first axis alone.

        Returns:
            The result, without axes, on the first device, or on that of each process.

        Raises:
            GenError: the argument is not what the spec takes. Nothing was queued.
            RunError: a device refused a launch.
        """
        self.check_array("in", array)
        first = self.ranks[0]
        with self.queueing():
            layout = self._layout_of(array)
            self._reduce_units(layout, array)
            with first.current():
                out = DeviceArray((), self._spec.result.numpy, first.device, first.main.handle)
                units = len(layout.units)
                self._queue(layout, 0, self._final, layout.slots.address, units, out.address, cached=False)
                layout.read = first.device.mark(first.main.handle)
                rows = Rows.of(out.address, self._spec.result.size)
                with self.together():  # to every process: all have the stream of the first rank
                    for number in range(1, len(self.ranks) if first.processes is not None else 0):
                        self.copy(0, number, rows, rows, first.main.handle)
        return out

    def _reduce_units(self, layout: _Layout, array: ShardedArray) -> None:
        """Queues the calls for units, and brings what they give to the first device."""
        size, row = self._spec.result.size, self._row(array)
        counts = [0] * len(self.ranks)
        for pieces in layout.units:
            owner = pieces[0].rank
            rank, room = self.ranks[owner], layout.rooms[owner]
            address = self._place(array, pieces[0])
            if len(pieces) > 1 or address % ALIGNMENT:
                self._bring(layout, array, pieces)
                address = room.unit.address
            elements = (pieces[-1].end - pieces[0].first) * row // self._spec.dtype.size
            with rank.current():
                slot = room.slots.address + counts[owner] * size
                self._queue(layout, owner, self._kernels[rank.device], address, elements, slot)
                if address == room.unit.address:
                    room.read = rank.device.mark(rank.main.handle)
            counts[owner] += 1
        self._collect(layout, counts)

    def _bring(self, layout: _Layout, array: ShardedArray, pieces: tuple[Piece, ...]) -> None:
        """Puts the rows of a unit together, each sent by who has them."""
        row, owner = self._row(array), pieces[0].rank
        rank, room = self.ranks[owner], layout.rooms[owner]
        for piece in pieces:
            sender = self.ranks[piece.rank]
            size = (piece.end - piece.first) * row
            target = Rows.of(room.unit.address + (piece.first - pieces[0].first) * row, size)
            with sender.current():
                if room.read is not None:
                    sender.device.wait_for(sender.main.handle, room.read)
                source = Rows.of(self._place(array, piece), size)
                with self.together():
                    self.copy(piece.rank, owner, source, target, sender.main.handle)
                sent = sender.device.mark(sender.main.handle)
            with rank.current():
                rank.device.wait_for(rank.main.handle, sent)

    def _collect(self, layout: _Layout, counts: Sequence[int]) -> None:
        """Sends partial results to the first device, in the order of the units."""
        first, size, place = self.ranks[0], self._spec.result.size, 0
        for number, (rank, room, count) in enumerate(zip(self.ranks, layout.rooms, counts, strict=True)):
            if count:
                source, target = (
                    Rows.of(at, count * size) for at in (room.slots.address, layout.slots.address + place)
                )
                with rank.current():
                    if layout.read is not None:
                        rank.device.wait_for(rank.main.handle, layout.read)
                    with self.together():
                        self.copy(number, 0, source, target, rank.main.handle)
                    sent = rank.device.mark(rank.main.handle)
                with first.current():
                    first.device.wait_for(first.main.handle, sent)
            place += count * size

    def _queue(
        self, layout: _Layout, number: int, kernel: Kernel, source: int, elements: int, target: int, *,
        cached: bool = True,
    ) -> None:  # fmt: skip
        """Queues a call that reduces elements that follow each other."""
        rank = self.ranks[number]
        if not rank.here:
            return
        queue = layout.calls.get((source, elements, target)) if cached else None
        if queue is None:
            dtype = self._spec.dtype if kernel is not self._final else self._spec.result
            where = rank.device.index
            given = {
                "in": _given(source, (elements,), dtype.numpy, where),
                "out": _given(target, (), self._spec.result.numpy, where),
            }
            queue = kernel.queued(given, {}, {})
            if cached:
                if len(layout.calls) >= MOST_CALLS:
                    layout.calls.clear()
                layout.calls[source, elements, target] = queue
        queue(rank.main.handle)

    def _row(self, array: ShardedArray) -> int:
        return self._spec.dtype.size * prod(array.shape[1:])

    def _place(self, array: ShardedArray, piece: Piece) -> int:
        return array.held[piece.rank].address + (piece.first - array.cuts[0][piece.rank]) * self._row(array)

    def _layout_of(self, array: ShardedArray) -> _Layout:
        if array.cuts not in self._layouts:
            self.forget_unused()
            unit = rows_of_unit(array.shape, self._spec.dtype.size)
            units = tuple(
                tuple(_pieces(array.cuts[0], first, min(first + unit, array.shape[0])))
                for first in range(0, array.shape[0], unit)
            )
            rooms = tuple(self._made_room(rank, unit * self._row(array), len(units)) for rank in self.ranks)
            first = self.ranks[0]
            with first.current():
                slots = first.allocate(len(units) * self._spec.result.size)
            self._layouts[array.cuts] = _Layout(units, rooms, slots)
        return self._layouts[array.cuts]

    def _made_room(self, rank: Rank, size: int, units: int) -> _Room:
        with rank.current():
            return _Room(rank.allocate(size), rank.allocate(units * self._spec.result.size))

    @override
    def forget(self) -> None:
        self._layouts.clear()


def _pieces(cuts: Sequence[int], first: int, end: int) -> Iterator[Piece]:
    """Who has which of some rows."""
    for rank, (low, high) in enumerate(pairwise(cuts)):
        if max(low, first) < min(high, end):
            yield Piece(rank, max(low, first), min(high, end))


def _given(address: int, shape: tuple[int, ...], dtype: Any, device: int) -> Given:
    return Given(Kind.OTHER, address, shape, (dtype.itemsize,) * len(shape), dtype, True, device, None, None)
