"""An array on several devices, its axes permuted: every rank stores what it has where it belongs.

For each rank of the result a rank permutes what it has of that one's elements, a block. Its own block and one of equal
extents are permuted by one call in turns, where vectors do it: what is for the other is stored to its memory while what
stays is read and written. Any other block of long rows is permuted in pieces into a ring of buffers of the sender, and
copy engines move a piece while the next one is permuted, and pieces of the rank's own block beside them. Other blocks
are permuted by one call of the kernel of one device, whose output is the block's place in the other's memory: that
takes no memory, but multiprocessors wait for the link. Where two devices have no way to each other all blocks go
through the ring, and between processes through memory of a block's size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise, zip_longest
from math import gcd, prod
from typing import Any

from typing_extensions import override

from gen.errors import ArgumentError, ShapeError
from gen.families.base import WIDEST, Family
from gen.families.extents import dense_strides
from gen.families.stencil.split import Box, Cuts, common_cells, even_cuts, extents_of_box
from gen.families.transpose import TransposeSpec
from gen.families.transpose.pairs import pair_of
from gen.gpu.device import Mark, Memory, Peer, Rows
from gen.runtime.arrays import Shape
from gen.runtime.graphs import CallGraphs
from gen.runtime.kernel import Kernel
from gen.runtime.processes import Processes
from gen.runtime.sharded import Block, Held, Scattering, ShardedArray, block_of

MOST_CALLS, MOST_GRAPHS = 64, 4  # that are remembered


@dataclass(frozen=True)
class Pieces:
    """How blocks are cut.

    Attributes:
        size: bytes of a piece that copy engines move, for each rank, but for one index more along the axis that is cut:
            the host queues the pieces of all ranks, each in about 60 us (bench/devices-h100.json).
        fewest: pieces; a smaller block is stored by kernels where the device can be reached.
        slots: how many pieces a rank's ring has room for.
        least_row: bytes of rows in the result; shorter ones are stored by kernels too.
        least_copy: bytes of rows that are equally apart, and are moved by one copy; fewer are stored by kernels too.
        paired: bytes of the parts of two blocks that one call permutes in turns; 0: no call does.
    """

    size: int = 32 << 20
    fewest: int = 8
    slots: int = 3
    least_row: int = 1 << 10
    least_copy: int = 1 << 20
    paired: int = 4 << 20


@dataclass(frozen=True)
class Move:
    """What a rank does with a piece of a block, or with a whole one.

    Attributes:
        number: of the rank.
        other: the rank that gets it.
        queue: permutes it on a stream; None in another process.
        copies: from memory of the sender to the other's, after that; none where the kernel has stored it there.
        turn: how many pieces the rank has put into its ring before; None if it does not go there.
    """

    number: int
    other: int
    queue: Callable[[int], None] | None
    copies: tuple[tuple[Rows, Rows], ...] = ()
    turn: int | None = None


def block_spec(spec: TransposeSpec) -> TransposeSpec:
    """What a block is permuted by: it is a part of larger arrays."""
    return replace(spec, strided=not spec.in_place)


class ShardedTranspose(Scattering):
    """A permutation of the axes of an array on several devices. Threads may share one.

    `kernel.scatter(x)` brings an array to the devices, `kernel(a)` permutes it, `b.gather()` brings it back. A call
    does not wait for the devices.

    Attributes:
        pieces: how blocks are cut.
        replays: whether a call is replayed as a graph when it is made again with the same arrays.
    """

    def __init__(
        self, family: Family[Any], spec: TransposeSpec, kernels: Mapping[Peer, Kernel], devices: Sequence[Peer],
        processes: Processes | None = None,
    ) -> None:  # fmt: skip
        """Makes streams, and lets the devices reach each other.

        Args:
            family: of the spec.
            spec: what is computed.
            kernels: of each device, of its `block_spec`.
            devices: of each rank.
            processes: those that share the work, one rank each; None if all ranks are of this process.

        Raises:
            ArgumentError: several devices take no such spec.
        """
        name = family.name_of(spec)
        if spec.in_place:
            rule = "must not work in place to be computed on several devices"
            raise ArgumentError(name, rule, next_step="Load it for one device: gen.load(spec, device=0)")
        axes = tuple(map(str, spec.operands[0].axes))
        super().__init__(name, devices, spec.dtype, (len(devices),), axes, processes)
        self._family, self._spec, self._kernels = family, spec, kernels
        self.pieces = Pieces()
        self._calls: dict[tuple[tuple[Held, ...], tuple[Held, ...], Pieces], tuple[Move, ...]] = {}
        self.replays = True
        self._graphs = CallGraphs(MOST_GRAPHS, MOST_CALLS)
        self._memory: dict[tuple[int, int], Memory] = {}  # by rank, and by slot of its ring or ~other for a whole block

    def __call__(self, array: ShardedArray, *, out: ShardedArray | None = None) -> ShardedArray:
        """Permutes the axes of an array.

        Args:
            array: the array, which stays as it is.
            out: where the result goes, split in any way; made if None, split along its first axis: as the array is
                where that is its first axis too, and the array is split along it alone, else as equal as possible.

        Returns:
            `out`.

        Raises:
            GenError: an argument is not what the spec takes. Nothing was queued.
            RunError: a device refused a launch.
        """
        with self.checking() as noted:
            out = self._checked_out(array, out)
            noted |= {"dtype": array.dtype, "cuts": array.cuts, "cuts of out": out.cuts}
        with self.queueing():
            self._turn(array, out)
        return out

    def _checked_out(self, array: ShardedArray, out: ShardedArray | None) -> ShardedArray:
        """Where the result goes. Raises GenError for what the spec does not take."""
        self.check_array("in", array, split=False)
        shape = tuple(array.shape[axis] for axis in self._spec.axes)
        dtype = array.dtype if self._spec.values is None else self._spec.result.numpy
        if out is None:
            out = ShardedArray(self.ranks, self._cuts_of_result(array, shape), dtype)
        elif out is array:
            raise ArgumentError("out", "must not be the array that in is", next_step="Pass another, or none")
        else:
            self.check_array("out", out, dtype, split=False)
            if out.shape != shape:
                raise ShapeError("out", f"must have shape {shape}", out.shape, next_step="Pass another, or none")
        return out

    def _cuts_of_result(self, array: ShardedArray, shape: Shape) -> Cuts:
        if self._spec.axes[0] == 0 and len(array.cuts[0]) == len(self.ranks) + 1:
            return (array.cuts[0], *((0, extent) for extent in shape[1:]))
        if shape[0] < len(self.ranks):
            rule = f"must have, along axis {self._spec.axes[0]}, an element for each of {len(self.ranks)} ranks"
            raise ShapeError("in", rule, array.shape, next_step="Take fewer devices, or a larger array")
        return even_cuts(shape, (len(self.ranks), *(1,) * (len(shape) - 1)))

    def _turn(self, array: ShardedArray, out: ShardedArray) -> None:
        key = array.held, out.held, self.pieces
        if key not in self._calls:
            if len(self._calls) >= MOST_CALLS:
                self._forget_calls()
            self._calls[key] = self._moves(array, out)
        moves, graph = self._calls[key], None
        if self.replays and self.is_captured:
            graph = self._graphs.of(key, lambda: self.captured(lambda: self._queue(moves)))
        if graph is None:
            self._queue(moves)
        else:
            self.replay(graph)

    def _queue(self, moves: Sequence[Move]) -> None:
        self.meet()
        copied: dict[tuple[int, int], Mark] = {}  # by rank and turn
        with self.together():
            for move in moves:
                self._move(move, copied)
        for (number, _), mark in copied.items():
            with self.ranks[number].current():
                self.ranks[number].device.wait_for(self.ranks[number].main.handle, mark)
        self.meet()

    def _move(self, move: Move, copied: dict[tuple[int, int], Mark]) -> None:
        """Queues a move; `copied` has what must be waited for before a slot of the ring is used again."""
        rank, number = self.ranks[move.number], move.number
        with rank.current():
            if move.turn is None:
                if move.queue is not None:
                    move.queue(rank.main.handle)
                for one, there in move.copies:
                    self.copy(number, move.other, one, there, rank.main.handle)
                return
            assert move.queue is not None  # a ring is of a rank of this process
            before = copied.pop((number, move.turn - self.pieces.slots), None)
            if before is not None:
                rank.device.wait_for(rank.main.handle, before)
            move.queue(rank.main.handle)
            rank.device.wait_for(rank.rim.handle, rank.device.mark(rank.main.handle))
            for one, there in move.copies:
                self.copy(number, move.other, one, there, rank.rim.handle)
            copied[number, move.turn] = rank.device.mark(rank.rim.handle)

    def _moves(self, array: ShardedArray, out: ShardedArray) -> tuple[Move, ...]:
        """All that the ranks do, in an order in which all of them begin early, each with another rank."""
        found = []
        for number, rank in enumerate(self.ranks):
            with rank.current():
                found.append(self._moves_of(number, array, out))
        return tuple(move for together in zip_longest(*found) for move in together if move is not None)

    def _moves_of(self, number: int, array: ShardedArray, out: ShardedArray) -> list[Move]:
        """What a rank does: pieces of its own block stand between those of others, and need no place in the ring."""
        ranks = len(self.ranks)
        others = [(number + turn) % ranks for turn in range(1, ranks)]
        pair = next((move for other in others if (move := self._pair(array, out, number, other))), None)
        sent = [
            (other, box, ring)
            for other in others
            if pair is None or other != pair.other
            for box, ring in self._cut(array, out, number, other)
        ]
        through = [box for _, box, ring in sent if ring]
        largest = max((prod(extents_of_box(box)) for box in through), default=0) * out.dtype.itemsize
        turns, moves = count(), list[Move]()
        for other, box, ring in sent:
            if not ring:
                moves.append(self._stored(array, out, number, other, box))
                continue
            turn = next(turns)
            address = self._room(number, turn % self.pieces.slots, largest)
            moves.append(replace(self._copied(array, out, number, other, box, address), turn=turn))
        if pair is None:
            own = [self._stored(array, out, number, number, box) for box, _ in self._cut(array, out, number, number)]
        else:
            own = [pair]
        return [move for pair in zip_longest(moves, own) for move in pair if move is not None]

    def _pair(self, array: ShardedArray, out: ShardedArray, number: int, other: int) -> Move | None:
        """What permutes the own block and that of another rank by one call; None where no kernel is made for them."""
        rank, target = self.ranks[number], self.ranks[other]
        if not (self.pieces.paired and rank.device.spans_memory and rank.here and self.reaches(rank, target)):
            return None
        own, sent = (self._shared_box(array, out, number, one) for one in (number, other))
        if own is None or sent is None or extents_of_box(own) != extents_of_box(sent):
            return None
        source, place = self._places(array, out, number, number, own)
        second, there = self._places(array, out, number, other, sent)
        sizes = array.dtype.itemsize, out.dtype.itemsize
        apart = (second.address - source.address) // sizes[0], (there.address - place.address) // sizes[1]
        if place.strides != there.strides:
            return None
        out_strides = {axis: stride // sizes[1] for axis, stride in zip(self._spec.axes, place.strides, strict=True)}
        block = [
            (extent, stride // sizes[0], out_strides[axis])
            for axis, (extent, stride) in enumerate(zip(source.shape, source.strides, strict=True))
        ]
        alignment = gcd(WIDEST, source.address, place.address)
        limits = rank.device.limits
        found = pair_of(self._family, self._spec, block, apart, self.pieces.paired, alignment, limits)
        if found is None:
            return None
        addresses = {"in": source.address, "out": place.address}
        return Move(number, other, self._kernels[rank.device].queued_as(*found, addresses))

    def _shared_box(self, array: ShardedArray, out: ShardedArray, number: int, other: int) -> Box | None:
        """The elements, by axes of the input, that a rank has and another one gets; None if there are none."""
        there = sorted(zip(self._spec.axes, out.held[other].box, strict=True))
        return common_cells(array.held[number].box, tuple(along for _, along in there))

    def _cut(self, array: ShardedArray, out: ShardedArray, number: int, other: int) -> Iterator[tuple[Box, bool]]:
        """Pieces of the elements, by axes of the input, that a rank has and another one gets; whether by the ring."""
        axes, rank, target, pieces = self._spec.axes, self.ranks[number], self.ranks[other], self.pieces
        box = self._shared_box(array, out, number, other)
        if box is None:
            return
        whole = list(box)
        place = block_of(out, other, [whole[axis] for axis in axes])
        size = prod(place.shape) * out.dtype.itemsize
        reached = self.reaches(rank, target)
        run = next(place.rows(place, out.dtype.itemsize))
        short = run.row_bytes < pieces.least_row or run.bytes < pieces.least_copy
        parts = -(-size // (pieces.size * len(self.ranks)))
        stored = reached and (short or parts < pieces.fewest)
        if stored or not (rank.here and target.here):
            yield tuple(whole), False
            return
        extents = {axis: whole[axis][1] - whole[axis][0] for axis in axes}  # in the order of the result
        along = next((axis for axis in axes if extents[axis] >= parts), max(axes, key=extents.__getitem__))
        begin, end = whole[along]
        parts = min(parts, end - begin)
        edges = [begin + (end - begin) * piece // parts for piece in range(parts + 1)]
        for edge in pairwise(edges):
            whole[along] = edge
            yield tuple(whole), True

    def _stored(self, array: ShardedArray, out: ShardedArray, number: int, other: int, box: Box) -> Move:
        """Permutes elements to their place in the memory of their rank, or, of a process, to memory of the sender."""
        if not (number == other or (self.ranks[number].here and self.ranks[other].here)):
            room = self._room(number, ~other, prod(extents_of_box(box)) * out.dtype.itemsize)
            return self._copied(array, out, number, other, box, room)
        source, place = self._places(array, out, number, other, box)
        return Move(number, other, self._queued(number, source, place, array, out))

    def _copied(self, array: ShardedArray, out: ShardedArray, number: int, other: int, box: Box, address: int) -> Move:
        """Permutes elements to memory of the sender, from where they are copied."""
        source, place = self._places(array, out, number, other, box)
        size = out.dtype.itemsize
        dense = Block(address, place.shape, dense_strides(place.shape, size))
        copies = tuple(zip(dense.rows(place, size), place.rows(dense, size), strict=True))
        return Move(number, other, self._queued(number, source, dense, array, out), copies)

    def _places(self, array: ShardedArray, out: ShardedArray, number: int, other: int, box: Box) -> tuple[Block, Block]:
        return block_of(array, number, box), block_of(out, other, [box[axis] for axis in self._spec.axes])

    def _queued(
        self, number: int, source: Block, target: Block, array: ShardedArray, out: ShardedArray
    ) -> Callable[[int], None] | None:
        """Permutes a block on a stream of a rank; None for a rank of another process."""
        rank = self.ranks[number]
        if not rank.here:
            return None
        where = rank.device.index
        given = {"in": source.given(array.dtype, where), "out": target.given(out.dtype, where)}
        return self._kernels[rank.device].queued(given, {}, {})

    def _room(self, number: int, place: int, size: int) -> int:
        """The address of memory of a rank; what was planned with a smaller one is forgotten."""
        known = self._memory.get((number, place))
        if known is None or known.size < size:
            if known is not None:
                self._forget_calls()
            known = self._memory[number, place] = self.ranks[number].allocate(size)
        return known.address

    @override
    def forget(self) -> None:
        self._forget_calls()
        self._memory.clear()

    def _forget_calls(self) -> None:
        self._graphs.forget()
        self._calls.clear()
