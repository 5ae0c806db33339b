"""An array on several devices reduced, in an order that does not depend on how many there are.

The rows of an array are taken in units. A unit is reduced by one call of the kernel of one device, by the rank that has
its first row; rows of it that others have are copied there first. Where rows are reduced, what is known of the units
comes to slots of the first device, in their order, and is merged there by one call more (`gen.families.merge`); kernels
of devices that reach it store to the slots. Where rows are kept, their results stay where they are.

Where results are rounded, the number and size of units follow from the shape alone, and the memory of all of them is
aligned alike. So a result has the same bits for any number of devices of one model, and any split of the rows. Where
nothing is rounded, as in sums of integers and places of extremes, each rank has one unit: its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd, prod
from typing import Any

import numpy as np
from typing_extensions import override

from gen.errors import ArgumentError, ShapeError
from gen.families.base import Family, Spec
from gen.families.merge import Merges, MergeSpec, partial_spec
from gen.families.reduction import ReductionSpec
from gen.families.reduction.operators import Rounds
from gen.families.reduction.shapes import reduced_axes, result_shape
from gen.families.stencil.split import Cuts, common_cells, extents_of_box
from gen.gpu.device import Mark, Memory, Peer, Rows
from gen.runtime.arrays import DeviceArray, Given, Shape
from gen.runtime.graphs import CallGraphs
from gen.runtime.kernel import Kernel
from gen.runtime.processes import Processes
from gen.runtime.sharded import Rank, Scattering, ShardedArray, as_many, block_of

UNITS = 32  # of an array whose results are rounded, at most
LEAST_ROWS = 16  # of a unit of which more than one result is merged: partial results are few beside the elements
ALIGNMENT = 256  # bytes: units lie so in every split, and memory is allocated so
GRAPH_FROM = 4  # calls of a rank from which on they are replayed as a graph, if they are repeated
MOST_CALLS, MOST_PLANS, MOST_LAYOUTS = 1024, 8, 8  # that are remembered
MERGES = Merges()

KernelOf = Callable[[Family[Any], Spec, Peer], Kernel]
"""The kernel of a spec for a device."""

Queue = Callable[[int], None]
"""Queues a call on a stream."""


def rows_of_unit(shape: Sequence[int], size: int, least: int = 1) -> int:
    """How many rows a unit has, the last one perhaps fewer.

    Args:
        shape: of the array.
        size: bytes of an element.
        least: rows of a unit, unless the array has fewer.
    """
    row = size * prod(shape[1:])
    together = ALIGNMENT // gcd(ALIGNMENT, row)
    return max(-(-shape[0] // (UNITS * together)), -(-min(least, shape[0]) // together)) * together


def is_exact(spec: ReductionSpec, *, kept: bool = False) -> bool:
    """Whether every bit of the results is the same in any order of the elements.

    Args:
        spec: what is computed.
        kept: whether rows are kept: then nothing is merged. Of floating-point numbers 0 and -0 are alike, and all NaN:
            a merge gives 0 for both of the former, one NaN for the latter.
    """
    return spec.indexed or all(
        operator.accumulator(spec.dtype, dtype).kind != "float" or (operator.rounds is Rounds.NEVER and not kept)
        for _, operator, dtype in spec.results
    )


def is_split_in_rows(array: ShardedArray) -> bool:
    """Whether it is split along its first axis alone, if at all."""
    return all(len(along) == 2 for along in array.cuts[1:])


@dataclass(frozen=True)
class Piece:
    """Rows of a unit that one rank has."""

    rank: int
    first: int
    end: int


@dataclass
class _Room:
    """Memory of a rank: for a unit that does not lie there as it is needed, and for the results of each unit."""

    unit: Memory
    slots: tuple[Memory, ...]
    read: Mark | None = None  # nobody reads the unit any more


class _Alone:
    """Calls of one rank that wait for no other: once they have been repeated, they are replayed as a graph."""

    def __init__(self, queues: tuple[Queue, ...]) -> None:
        self._queues, self._graphs = queues, CallGraphs(1, 1)

    def queue(self, rank: Rank) -> None:
        """Queues them on the main stream of a rank, whose device is current."""
        queues, graph = self._queues, None
        if len(queues) >= GRAPH_FROM:
            graph = self._graphs.of(None, lambda: rank.device.capture(lambda own: _queue_all(queues, own)))
        if graph is None:
            _queue_all(queues, rank.main.handle)
        else:
            graph.replay(rank.main.handle)


@dataclass(frozen=True)
class _Plan:
    """What ranks do with the units that lie there as they are needed, and which units are put together first."""

    alone: tuple[_Alone, ...]
    others: tuple[int, ...]


@dataclass(frozen=True)
class _Output:
    """A result of units: its name among the kernel's operands, and its dtype."""

    name: str
    dtype: np.dtype[Any]


@dataclass
class _Layout:
    """An array's units, who has their rows, and the memory that they take.

    Attributes:
        kernels: of each rank, for a unit.
        units: the pieces of each.
        outputs: what a unit gives.
        kept: whether rows are kept, each with results of its own.
        exact: whether every bit of the results is the same in any order: then each rank has one unit.
        of_row: elements of each output for a row; of a unit where rows are reduced.
        rooms: of each rank.
        slots: for each output the results of all units on the first device, where rows are reduced.
        counts: of the elements of each unit, on the first device, where rows are reduced.
        calls: that were prepared.
        plans: of arrays, by the addresses of their shards.
        read: the slots are merged: others may be written.
    """

    kernels: tuple[Kernel, ...]
    units: tuple[tuple[Piece, ...], ...]
    outputs: tuple[_Output, ...]
    kept: bool
    exact: bool
    of_row: int
    rooms: tuple[_Room, ...]
    slots: tuple[Memory, ...] = ()
    counts: Memory | None = None
    calls: dict[tuple[int, ...], Queue] = field(default_factory=dict)
    plans: dict[tuple[int, ...], _Plan] = field(default_factory=dict)
    read: Mark | None = None

    def remember(self, key: tuple[int, ...], queue: Queue) -> None:
        """Keeps a call that was prepared."""
        if len(self.calls) >= MOST_CALLS:
            self.calls.clear()
        self.calls[key] = queue

    def place(self, unit: int) -> int:
        """Where a unit's results begin among those of all, in elements."""
        return self.of_row * (self.units[unit][0].first if self.kept else unit)


class ShardedReduction(Scattering):
    """A reduction of an array on several devices. Threads may share one.

    `kernel.scatter(x)` brings an array to the devices, and arrays of stencils on the same devices are taken too. Where
    the first axis, along which the array is split, is reduced, `kernel(a).numpy()` is the result; where it is kept the
    result is split as the array is, and `kernel(a).gather()` brings it back. A call does not wait for the devices.
    """

    def __init__(
        self, family: Family[Any], spec: ReductionSpec, kernel_of: KernelOf, devices: Sequence[Peer],
        processes: Processes | None = None,
    ) -> None:  # fmt: skip
        """Makes streams, and lets the devices reach each other.

        Args:
            family: of the spec.
            spec: what is computed.
            kernel_of: gives kernels of this and of other specs.
            devices: of each rank.
            processes: those that share the work, one rank each; None if all ranks are of this process.

        Raises:
            SpecError: there are no partial results that could be merged.
        """
        super().__init__(family.name_of(spec), devices, spec.dtype, (len(devices),), None, processes)
        self._family, self._spec, self._make = family, spec, kernel_of
        if spec.axis is None:
            partial_spec(spec)
        self._layouts: dict[tuple[tuple[int, ...], ...], _Layout] = {}
        self._kernels: dict[tuple[Spec, Peer], Kernel] = {}
        self._rows: ShardedArray | None = None  # for arrays that are split otherwise

    def __call__(self, array: ShardedArray, *, out: Any = None) -> Any:
        """Reduces an array.

        Args:
            array: split along its first axis alone; one that is split otherwise is brought into rows first, unless all
                axes along which it is split are reduced, and the order does not matter.
            out: where the result goes, as an earlier call has given it: a sharded array, or one on the first device; or
                a tuple where the spec has several. Made if None: memory that is given back makes its device wait.

        Returns:
            The result, or a tuple of them where the spec has several: on the first device, or on that of each process,
            where the first axis is reduced; else split as the array is.

        Raises:
            GenError: the argument is not what the spec takes. Nothing was queued.
            RunError: a device refused a launch.
        """
        with self.checking() as noted:
            self.check_array("in", array, split=False)
            noted |= {"dtype": array.dtype, "cuts": array.cuts}
            shape = result_shape(self._spec, array.shape)
            with self.locked():
                rows = self._room_in_rows(array)
                layout = self._layout_of(rows)
                if layout.kept:
                    cuts = (rows.cuts[0], *((0, extent) for extent in shape[1:]))
                    results: tuple[Any, ...] = self._outs(layout, rows, cuts, out)
                else:
                    results = self._outs_on_first(shape, out)
        with self.queueing():
            if rows is not array:
                self._bring_in_rows(array, rows)
            self._reduce_units(layout, rows, results if layout.kept else ())
            if not layout.kept:
                self._merge(layout, results)
        return results[0] if len(results) == 1 else results

    def _room_in_rows(self, array: ShardedArray) -> ShardedArray:
        """The array as units are taken of it: room for a copy of one that is split along other axes than the first."""
        if is_split_in_rows(array) or self._in_boxes(array):
            return array
        cuts = self._cuts(array.shape, None)
        if self._rows is None or (self._rows.cuts, self._rows.dtype) != (cuts, array.dtype):
            self._rows = None  # gives its memory back before more is taken
            self._rows = ShardedArray(self.ranks, cuts, array.dtype)
        return self._rows

    def _bring_in_rows(self, array: ShardedArray, made: ShardedArray) -> None:
        """Copies an array there, from rank to rank."""
        size = array.dtype.itemsize
        self.meet()
        with self.together():
            for number, rank in enumerate(self.ranks):
                with rank.current():
                    for other, there in enumerate(made.held):
                        box = common_cells(array.held[number].box, there.box)
                        if box is not None:
                            source, target = block_of(array, number, box), block_of(made, other, box)
                            for rows in zip(source.rows(target, size), target.rows(source, size), strict=True):
                                self.copy(number, other, *rows, rank.main.handle)
        self.meet()

    def _in_boxes(self, array: ShardedArray) -> bool:
        """Whether what each rank has can be reduced by itself, along whichever axes the array is split."""
        axes = reduced_axes(self._spec, len(array.shape))
        split = [axis for axis, along in enumerate(array.cuts) if len(along) > 2]
        return set(split) <= set(axes) and is_exact(self._spec) and not self._spec.indexed

    def _outs(self, layout: _Layout, array: ShardedArray, cuts: Cuts, out: Any) -> tuple[ShardedArray, ...]:
        """Where results that are split go. Raises GenError if they cannot go there."""
        if out is None:
            return tuple(ShardedArray(self.ranks, cuts, output.dtype) for output in layout.outputs)
        outs = as_many(out, [name for name, _, _ in self._spec.results])
        for place, (output, one) in enumerate(zip(layout.outputs, outs, strict=True)):
            self.check_array(output.name, one, output.dtype)
            if one.cuts != cuts:
                rule = f"must be split as the array is: {cuts}"
                raise ShapeError(output.name, rule, one.cuts, next_step="Pass another, or no out=")
            if one is array or any(one is other for other in outs[:place]):
                rule = "must not be an array that the call reads or writes too"
                raise ArgumentError(output.name, rule, next_step="Pass another, or no out=")
        return outs

    def _outs_on_first(self, shape: Shape, out: Any) -> tuple[DeviceArray, ...]:
        """Where merged results go. Raises GenError if they cannot go there."""
        first = self.ranks[0]
        if out is None:
            with first.current():
                return tuple(
                    DeviceArray(shape, dtype.numpy, first.device, first.main.handle)
                    for _, _, dtype in self._spec.results
                )
        outs = as_many(out, [name for name, _, _ in self._spec.results])
        for place, ((name, _, dtype), one) in enumerate(zip(self._spec.results, outs, strict=True)):
            if not isinstance(one, DeviceArray) or one.device != first.device.index:
                rule = "must be a result of an earlier call, on the first device, where the first axis is reduced"
                raise ArgumentError(name, rule, type(one).__name__, next_step="Pass none: then it is made")
            if (one.shape, one.dtype) != (shape, dtype.numpy) or any(one is other for other in outs[:place]):
                rule = f"must be one array of shape {shape} and {dtype.name} for each result"
                raise ShapeError(name, rule, one, next_step="Pass none: then it is made")
        return outs

    def _reduce_units(self, layout: _Layout, array: ShardedArray, outs: tuple[ShardedArray, ...]) -> None:
        """Queues the calls for units, whose results come to the slots, or to the arrays where rows are kept."""
        plan = self._plan_of(layout, array, outs)
        for rank, alone in zip(self.ranks, plan.alone, strict=True):
            with rank.current():
                if layout.read is not None:
                    rank.device.wait_for(rank.main.handle, layout.read)
                alone.queue(rank)
        row = self._row(array)
        for number in plan.others:
            pieces = layout.units[number]
            owner = pieces[0].rank
            rank, room = self.ranks[owner], layout.rooms[owner]
            address = self._place(array, pieces[0])
            if self._is_brought(layout, array, pieces):
                self._bring(layout, array, pieces)
                address = room.unit.address
            targets = self._targets(layout, number, outs)
            with rank.current():
                queue = self._prepared(layout, owner, address, (pieces[-1].end - pieces[0].first) * row, targets, array)
                if rank.here:
                    queue(rank.main.handle)
                room.read = rank.device.mark(rank.main.handle)
            if layout.kept:
                self._hand_out(layout, number, targets, outs)
        if not layout.kept:
            self._collect(layout)

    def _plan_of(self, layout: _Layout, array: ShardedArray, outs: tuple[ShardedArray, ...]) -> _Plan:
        """What each rank does with the units that lie there as they are needed, made once for the same arrays."""
        key = tuple(held.address for one in (array, *outs) for held in one.held)
        if key not in layout.plans:
            if len(layout.plans) >= MOST_PLANS:
                layout.plans.clear()
            alone: list[list[Queue]] = [[] for _ in self.ranks]
            others = []
            for number, pieces in enumerate(layout.units):
                owner = pieces[0].rank
                rank, targets = self.ranks[owner], self._targets(layout, number, outs)
                if self._is_brought(layout, array, pieces) or (
                    layout.kept and targets != self._places(layout, number, outs)
                ):
                    others.append(number)
                elif rank.here:
                    address, size = self._place(array, pieces[0]), (pieces[0].end - pieces[0].first) * self._row(array)
                    with rank.current():
                        alone[owner].append(self._prepared(layout, owner, address, size, targets, array))
            layout.plans[key] = _Plan(tuple(_Alone(tuple(one)) for one in alone), tuple(others))
        return layout.plans[key]

    def _is_brought(self, layout: _Layout, array: ShardedArray, pieces: tuple[Piece, ...]) -> bool:
        """Whether the rows of a unit are put together before it is reduced."""
        return len(pieces) > 1 or (self._place(array, pieces[0]) % ALIGNMENT > 0 and not layout.exact)

    def _places(self, layout: _Layout, unit: int, outs: tuple[ShardedArray, ...]) -> tuple[int, ...]:
        """Where the results of a unit's rows are with who has the first of them."""
        piece = layout.units[unit][0]
        return tuple(
            out.held[piece.rank].address + (piece.first - out.cuts[0][piece.rank]) * layout.of_row * out.dtype.itemsize
            for out in outs
        )

    def _targets(self, layout: _Layout, unit: int, outs: tuple[ShardedArray, ...]) -> tuple[int, ...]:
        """Where a unit's results go: to slots of its rank unless they can go at once to where they belong."""
        pieces = layout.units[unit]
        owner = pieces[0].rank
        sizes = tuple(output.dtype.itemsize for output in layout.outputs)
        rooms, slots = (
            tuple(one.address + layout.place(unit) * size for one, size in zip(memory, sizes, strict=True))
            for memory in (layout.rooms[owner].slots, layout.slots or layout.rooms[owner].slots)
        )
        if not layout.kept:
            return slots if self.reaches(self.ranks[owner], self.ranks[0]) else rooms
        places = self._places(layout, unit, outs)
        if layout.exact:
            return places
        return tuple(
            there if len(pieces) == 1 and (there - own) % ALIGNMENT == 0 else own
            for there, own in zip(places, rooms, strict=True)
        )

    def _bring(self, layout: _Layout, array: ShardedArray, pieces: tuple[Piece, ...]) -> None:
        """Puts the rows of a unit together, each sent by who has them."""
        row, owner = self._row(array), pieces[0].rank
        room = layout.rooms[owner]
        for piece in pieces:
            sender = self.ranks[piece.rank]
            size = (piece.end - piece.first) * row
            target = Rows.of(room.unit.address + (piece.first - pieces[0].first) * row, size)
            with sender.current():
                if room.read is not None:
                    sender.device.wait_for(sender.main.handle, room.read)
            self.hand_over(piece.rank, owner, [(Rows.of(self._place(array, piece), size), target)])

    def _hand_out(
        self, layout: _Layout, unit: int, targets: tuple[int, ...], outs: tuple[ShardedArray, ...]
    ) -> None:  # fmt: skip
        """Sends results of a unit's rows to who has the rows, where they are not there already.

        Who has them has sent them: the rank has waited for all that was done there before.
        """
        pieces = layout.units[unit]
        owner = pieces[0].rank
        for output, out, computed in zip(layout.outputs, outs, targets, strict=True):
            of_row = layout.of_row * output.dtype.itemsize
            for piece in pieces:
                source = computed + (piece.first - pieces[0].first) * of_row
                there = out.held[piece.rank].address + (piece.first - out.cuts[0][piece.rank]) * of_row
                if source != there:
                    size = (piece.end - piece.first) * of_row
                    self.hand_over(owner, piece.rank, [(Rows.of(source, size), Rows.of(there, size))])

    def _collect(self, layout: _Layout) -> None:
        """Sends what is known of units to the first device, in their order, unless kernels have stored it there."""
        for number, (rank, room) in enumerate(zip(self.ranks, layout.rooms, strict=True)):
            own = [unit for unit, pieces in enumerate(layout.units) if pieces[0].rank == number]
            copies = []
            for output, memory, slots in zip(layout.outputs, room.slots, layout.slots, strict=True) if own else ():
                size = layout.of_row * output.dtype.itemsize
                source, target = (Rows.of(one.address + own[0] * size, len(own) * size) for one in (memory, slots))
                copies.append((source, target))
            if own:
                self.hand_over(number, 0, [] if self.reaches(rank, self.ranks[0]) else copies)

    def _merge(self, layout: _Layout, results: tuple[DeviceArray, ...]) -> None:
        """Queues the call that merges what is known of all units; the results come to every process."""
        first = self.ranks[0]
        with first.current():
            if first.here:
                key = (0, *(result.address for result in results))
                if key not in layout.calls:
                    layout.remember(key, self._merging(layout, results))
                layout.calls[key](first.main.handle)
            layout.read = first.device.mark(first.main.handle)
            with self.together():  # to every process: all have the stream of the first rank
                for result in results:
                    rows = Rows.of(result.address, layout.of_row * result.dtype.itemsize)
                    for number in range(1, len(self.ranks) if first.processes is not None else 0):
                        self.copy(0, number, rows, rows, first.main.handle)

    def _merging(self, layout: _Layout, results: tuple[DeviceArray, ...]) -> Queue:
        """What queues the call that merges what is known of all units."""
        merge, device = MergeSpec(self._spec), self.ranks[0].device
        units, count, where = len(layout.units), layout.of_row, device.index
        assert layout.counts is not None
        given = {
            name: Given.dense(memory.address, (units, count), dtype.numpy, where)
            for (name, _, dtype), memory in zip(merge.partials, layout.slots, strict=True)
        }
        given["counts"] = Given.dense(layout.counts.address, (units,), np.dtype(np.int64), where)
        for (name, _, dtype), result in zip(self._spec.results, results, strict=True):
            given[name] = Given.dense(result.address, (count,), dtype.numpy, where)
        return self._kernel_of(MERGES, merge, device).queued(given, {}, {})

    def _prepared(
        self, layout: _Layout, number: int, source: int, size: int, targets: tuple[int, ...], array: ShardedArray
    ) -> Queue:  # fmt: skip
        """What queues a call that reduces a unit of so many bytes."""
        rank = self.ranks[number]
        queue = layout.calls.get((source, size, *targets))
        if queue is None and rank.here:
            where = rank.device.index
            unit = (size // self._row(array), *array.shape[1:])
            if not is_split_in_rows(array):
                unit = extents_of_box(array.held[number].box)
            spec = self._unit_spec(kept=layout.kept)
            results = result_shape(spec, unit)
            given = {"in": Given.dense(source, unit, self._spec.dtype.numpy, where)}
            for output, target in zip(layout.outputs, targets, strict=True):
                given[output.name] = Given.dense(target, results, output.dtype, where)
            queue = layout.kernels[number].queued(given, {}, {})
            layout.remember((source, size, *targets), queue)
        return queue or _nothing

    def _kernel_of(self, family: Family[Any], spec: Spec, device: Peer) -> Kernel:
        if (spec, device) not in self._kernels:
            self._kernels[spec, device] = self._make(family, spec, device)
        return self._kernels[spec, device]

    def _unit_spec(self, *, kept: bool) -> ReductionSpec:
        """What a unit is reduced by."""
        return self._spec if kept else partial_spec(self._spec)

    def _row(self, array: ShardedArray) -> int:
        return self._spec.dtype.size * prod(array.shape[1:])

    def _place(self, array: ShardedArray, piece: Piece) -> int:
        if not is_split_in_rows(array):
            return array.held[piece.rank].address
        return array.held[piece.rank].address + (piece.first - array.cuts[0][piece.rank]) * self._row(array)

    def _layout_of(self, array: ShardedArray) -> _Layout:
        if array.cuts not in self._layouts:
            if len(self._layouts) >= MOST_LAYOUTS:
                self.forget_unused()
            self._layouts[array.cuts] = self._made_layout(array)
        return self._layouts[array.cuts]

    def _made_layout(self, array: ShardedArray) -> _Layout:
        shape, size = array.shape, self._spec.dtype.size
        axes = reduced_axes(self._spec, len(shape))
        boxes = not is_split_in_rows(array)
        kept = 0 not in axes and not boxes
        spec = self._unit_spec(kept=kept)
        of_row = prod(extent for axis, extent in enumerate(shape) if axis not in axes and (axis > 0 or boxes))
        exact = is_exact(self._spec, kept=kept)
        unit = rows_of_unit(shape, size, LEAST_ROWS if of_row > 1 and not kept else 1)
        begins = array.cuts[0] if exact else (*range(0, shape[0], unit), shape[0])
        units = tuple(tuple(_pieces(array.cuts[0], first, end)) for first, end in pairwise(begins))
        if boxes:
            units = tuple((Piece(rank, *held.box[0]),) for rank, held in enumerate(array.held))
        outputs = tuple(_Output(name, dtype.numpy) for name, _, dtype in spec.results)
        all_of_unit = of_row * (shape[0] if kept else len(units))
        largest = 1 if exact else unit * self._row(array)
        rooms = tuple(self._made_room(rank, largest, outputs, all_of_unit) for rank in self.ranks)
        kernels = tuple(self._kernel_of(self._family, spec, rank.device) for rank in self.ranks)
        layout = _Layout(kernels, units, outputs, kept, exact, of_row, rooms)
        if not kept:
            first = self.ranks[0]
            each = prod(shape[axis] for axis in axes if axis > 0)
            counts = np.array([(pieces[-1].end - pieces[0].first) * each for pieces in units], np.int64)
            if boxes:
                extents = [extents_of_box(held.box) for held in array.held]
                counts = np.array([prod(one[axis] for axis in axes) for one in extents], np.int64)
            with first.current():
                layout.slots = tuple(first.allocate(all_of_unit * output.dtype.itemsize) for output in outputs)
                layout.counts = first.allocate(counts.nbytes)
                if first.here:
                    first.device.upload(layout.counts.address, counts)
        return layout

    def _made_room(self, rank: Rank, size: int, outputs: Sequence[_Output], elements: int) -> _Room:
        with rank.current():
            slots = tuple(rank.allocate(elements * output.dtype.itemsize) for output in outputs)
            return _Room(rank.allocate(size), slots)

    @override
    def forget(self) -> None:
        self._layouts.clear()
        self._rows = None


def _pieces(cuts: Sequence[int], first: int, end: int) -> Iterator[Piece]:
    """Who has which of some rows."""
    for rank, (low, high) in enumerate(pairwise(cuts)):
        if max(low, first) < min(high, end):
            yield Piece(rank, max(low, first), min(high, end))


def _nothing(stream: int) -> None:
    """Queues nothing: it is another process that does."""


def _queue_all(queues: Sequence[Queue], stream: int) -> None:
    for queue in queues:
        queue(stream)
