"""An array on several devices, its axes permuted: every rank stores what it has where it belongs.

For each rank of the result a rank permutes what it has of that one's elements, a block, by one call of the kernel of
one device, whose output is the block's place in the other's memory. So nothing is packed, sent and unpacked. Where two
devices have no way to each other the block is permuted into memory of the sender, and copied from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from typing_extensions import override

from gen.errors import ArgumentError, ShapeError
from gen.families.base import Family
from gen.families.extents import dense_strides
from gen.families.stencil.split import Cuts, even_cuts
from gen.families.transpose import TransposeSpec
from gen.gpu.device import Memory, Peer
from gen.runtime.arrays import Shape
from gen.runtime.kernel import Kernel
from gen.runtime.processes import Processes
from gen.runtime.sharded import Block, Scattering, ShardedArray, block_of

MOST_CALLS = 1024  # that are remembered


def block_spec(spec: TransposeSpec) -> TransposeSpec:
    """What a block is permuted by: it is a part of larger arrays."""
    return replace(spec, strided=not spec.in_place)


class ShardedTranspose(Scattering):
    """A permutation of the axes of an array on several devices. Threads may share one.

    `kernel.scatter(x)` brings an array to the devices, `kernel(a)` permutes it, `b.gather()` brings it back. A call
    does not wait for the devices.
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
        self._spec, self._kernels = spec, kernels
        self._calls: dict[tuple[int, Block, Block], Callable[[int], None]] = {}
        self._rooms: dict[tuple[int, int], Memory] = {}  # of ranks, for blocks that are copied to others

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
        self.meet()
        with self.together():
            for number, rank in enumerate(self.ranks):
                with rank.current():
                    for turn in range(len(self.ranks)):  # each begins with another, so that all links are busy
                        self._store(array, out, number, (number + turn) % len(self.ranks))
        self.meet()

    def _store(self, array: ShardedArray, out: ShardedArray, number: int, other: int) -> None:
        """Permutes what one rank has of the elements of the result that another one has."""
        axes, rank, target = self._spec.axes, self.ranks[number], self.ranks[other]
        box = list(array.held[number].box)  # which elements of the whole these are, by axis of the input
        for axis, (low, high) in zip(axes, out.held[other].box, strict=True):
            box[axis] = max(box[axis][0], low), min(box[axis][1], high)
        if any(begin >= end for begin, end in box):
            return
        source = block_of(array, number, box)
        place = block_of(out, other, [box[axis] for axis in axes])
        if self.reaches(rank, target):
            self._queue(number, source, place, array, out)
            return
        size = out.dtype.itemsize
        room = self._room(number, other, prod(place.shape) * size)
        dense = Block(room.address, place.shape, dense_strides(place.shape, size))
        self._queue(number, source, dense, array, out)
        for one, there in zip(dense.rows(place, size), place.rows(dense, size), strict=True):
            self.copy(number, other, one, there, rank.main.handle)

    def _queue(self, number: int, source: Block, target: Block, array: ShardedArray, out: ShardedArray) -> None:
        rank = self.ranks[number]
        if not rank.here:
            return
        queue = self._calls.get((number, source, target))
        if queue is None:
            where = rank.device.index
            given = {"in": source.given(array.dtype, where), "out": target.given(out.dtype, where)}
            queue = self._kernels[rank.device].queued(given, {}, {})
            if len(self._calls) >= MOST_CALLS:
                self._calls.clear()
            self._calls[number, source, target] = queue
        queue(rank.main.handle)

    def _room(self, number: int, other: int, size: int) -> Memory:
        if (number, other) not in self._rooms or self._rooms[number, other].size < size:
            self._rooms[number, other] = self.ranks[number].allocate(size)
        return self._rooms[number, other]

    @override
    def forget(self) -> None:
        self._calls.clear()
        self._rooms.clear()
