"""A matrix on several devices, transposed: every rank turns its rows, and stores them where they belong.

The rows of the matrix are split among ranks, and so are those of the result, which are the columns of the matrix. For
each rank of the result a rank turns a block of its rows by one call of the kernel of one device, whose output is the
block's place in the other's memory. So nothing is packed, sent and unpacked. Where two devices have no way to each
other the block is turned into memory of the sender, and copied from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from gen.errors import ArgumentError, ShapeError
from gen.families.base import Family
from gen.families.stencil.split import even_cuts
from gen.families.transpose import TransposeSpec
from gen.gpu.device import Memory, Peer, Rows
from gen.runtime.arrays import Given, Kind
from gen.runtime.kernel import Kernel
from gen.runtime.processes import Processes
from gen.runtime.sharded import Scattering, ShardedArray

MOST_CALLS = 1024  # that are remembered


@dataclass(frozen=True)
class _Block:
    """Rows of one rank that become columns of another's rows: where they are read, and where they are written.

    Attributes:
        source, target: the address of the first element.
        rows, cols: of the source.
        in_pitch, out_pitch: elements from the start of a row to that of the next one.
    """

    source: int
    target: int
    rows: int
    cols: int
    in_pitch: int
    out_pitch: int


class ShardedTranspose(Scattering):
    """A transpose of a matrix on several devices. Threads may share one.

    `kernel.scatter(x)` brings a matrix to the devices, `kernel(a)` turns it, `b.gather()` brings it back. A call does
    not wait for the devices.
    """

    def __init__(
        self, family: Family[Any], spec: TransposeSpec, kernels: Mapping[Peer, Kernel], devices: Sequence[Peer],
        processes: Processes | None = None,
    ) -> None:  # fmt: skip
        """Makes streams, and lets the devices reach each other.

        Args:
            family: of the spec.
            spec: what is computed.
            kernels: of each device.
            devices: of each rank.
            processes: those that share the work, one rank each; None if all ranks are of this process.

        Raises:
            ArgumentError: several devices take no such spec.
        """
        name = family.name_of(spec)
        if spec.axes != (1, 0) or spec.in_place:
            rule = "must turn a matrix, not in place, to be computed on several devices"
            raise ArgumentError(name, rule, next_step="Load it for one device: gen.load(spec, device=0)")
        super().__init__(name, devices, spec.dtype, (len(devices), 1), ("rows", "cols"), processes)
        self._spec, self._kernels = spec, kernels
        self._calls: dict[tuple[int, _Block], Callable[[int], None]] = {}
        self._rooms: dict[tuple[int, int], Memory] = {}  # of ranks, for blocks that are copied to others

    def __call__(self, array: ShardedArray, *, out: ShardedArray | None = None) -> ShardedArray:
        """Turns a matrix.

        Args:
            array: the matrix, which stays as it is.
            out: where its transpose goes, split in any way along its rows; made, as equal as possible, if None.

        Returns:
            `out`.

        Raises:
            GenError: an argument is not what the spec takes. Nothing was queued.
            RunError: a device refused a launch.
        """
        self.check_array("in", array)
        shape, dtype = array.shape[::-1], array.dtype if self._spec.values is None else self._spec.result.numpy
        if out is None:
            if shape[0] < len(self.ranks):
                rule = f"must have a column for each of {len(self.ranks)} ranks"
                raise ShapeError("in", rule, shape[0], next_step="Take fewer devices, or a larger matrix")
            out = ShardedArray(self.ranks, even_cuts(shape, self.grid), dtype)
        elif out is array:
            raise ArgumentError("out", "must not be the array that in is", next_step="Pass another, or none")
        else:
            self.check_array("out", out, dtype)
            if out.shape != shape:
                raise ShapeError("out", f"must have shape {shape}", out.shape, next_step="Pass another, or none")
        with self.queueing():
            self._turn(array, out)
        return out

    def _turn(self, array: ShardedArray, out: ShardedArray) -> None:
        free = []
        for rank in self.ranks:
            with rank.current():
                free.append(rank.device.mark(rank.main.handle))
        with self.together():
            for number, rank in enumerate(self.ranks):
                with rank.current():
                    for other, mark in enumerate(free):
                        if other != number:
                            rank.device.wait_for(rank.main.handle, mark)
                    for turn in range(len(self.ranks)):  # each begins with another, so that all links are busy
                        self._store(array, out, number, (number + turn) % len(self.ranks))
        done = []
        for rank in self.ranks:
            with rank.current():
                done.append(rank.device.mark(rank.main.handle))
        for number, rank in enumerate(self.ranks):
            with rank.current():
                for other, mark in enumerate(done):
                    if other != number:
                        rank.device.wait_for(rank.main.handle, mark)

    def _store(self, array: ShardedArray, out: ShardedArray, number: int, other: int) -> None:
        """Turns what one rank has of the rows of the result that another one has."""
        rank, target = self.ranks[number], self.ranks[other]
        (first, end), (low, high) = (a.cuts[0][n : n + 2] for a, n in ((array, number), (out, other)))
        size, out_size = array.dtype.itemsize, out.dtype.itemsize
        source = array.held[number].address + low * size
        place = out.held[other].address + first * out_size
        block = _Block(source, place, end - first, high - low, array.shape[1], out.shape[1])
        if self.reaches(rank, target):
            self._queue(number, block, array, out)
            return
        room = self._room(number, other, block.rows * block.cols * out_size)
        packed = _Block(source, room.address, block.rows, block.cols, block.in_pitch, block.rows)
        self._queue(number, packed, array, out)
        row, pitch = block.rows * out_size, out.shape[1] * out_size
        places = (room.address, row), (place, pitch)
        packed_rows, rows = (Rows(address, 1, block.cols, row, apart, block.cols) for address, apart in places)
        self.copy(number, other, packed_rows, rows, rank.main.handle)

    def _queue(self, number: int, block: _Block, array: ShardedArray, out: ShardedArray) -> None:
        rank = self.ranks[number]
        if not rank.here:
            return
        queue = self._calls.get((number, block))
        if queue is None:
            given = {
                "in": _matrix(block.source, (block.rows, block.cols), block.in_pitch, array.dtype, rank.device.index),
                "out": _matrix(block.target, (block.cols, block.rows), block.out_pitch, out.dtype, rank.device.index),
            }
            queue = self._kernels[rank.device].queued(given, {}, {})
            if len(self._calls) >= MOST_CALLS:
                self._calls.clear()
            self._calls[number, block] = queue
        queue(rank.main.handle)

    def _room(self, number: int, other: int, size: int) -> Memory:
        if (number, other) not in self._rooms or self._rooms[number, other].size < size:
            self._rooms[number, other] = self.ranks[number].allocate(size)
        return self._rooms[number, other]

    @override
    def forget(self) -> None:
        self._calls.clear()
        self._rooms.clear()


def _matrix(address: int, shape: tuple[int, int], pitch: int, dtype: Any, device: int) -> Given:
    strides = pitch * dtype.itemsize, dtype.itemsize
    return Given(Kind.OTHER, address, shape, strides, dtype, True, device, None, None)
