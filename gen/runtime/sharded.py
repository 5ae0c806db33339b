"""Arrays that lie on several devices: every rank has a box of their elements, dense, in memory of its own."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, count, product
from math import prod
from typing import Any

import numpy as np

from gen.dtypes import DType, is_whole
from gen.errors import ArgumentError, GenError, RunError, ShapeError
from gen.families.base import Array
from gen.families.extents import beyond_memory, dense_strides
from gen.families.stencil.split import Box, Cuts, boxes_of, cuts_of, even_cuts, extents_of_box
from gen.gpu.device import LEGACY_STREAM, Graph, Memory, Peer, Rows, Stream
from gen.runtime.arrays import DeviceArray, Given, Kind, Shape, read, stream_of
from gen.runtime.processes import Processes, alike
from gen.runtime.transport import transport_of

log = logging.getLogger("gen")
_lock = threading.Lock()
_elsewhere = count(1 << 56, 1 << 48)  # addresses, as aligned as those of memory
_streams: weakref.WeakKeyDictionary[Peer, list[tuple[Stream, Stream]]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Rank:
    """One of those that share the work; several may share a device.

    Attributes:
        device: where it computes; for a rank of another process, the device of this one.
        main: the stream on which its arrays are written and read; for a rank of another process, on which what it sends
            is received.
        rim: the urgent stream, for what others wait for.
        processes: those that share the work, one rank each; None if all ranks are of this process.
        number: of the process.
    """

    device: Peer
    main: Stream
    rim: Stream
    processes: Processes | None = None
    number: int = 0

    @property
    def here(self) -> bool:
        """Whether it is of this process."""
        return self.processes is None or self.processes.rank == self.number

    def allocate(self, size: int) -> Memory:
        """Memory of its device, which is current; for a rank of another process an address alone."""
        return self.device.allocate(size) if self.here else Elsewhere(size)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes its device the calling thread's current one."""
        entered = self.device.enter()
        try:
            yield
        finally:
            self.device.leave(entered)


@dataclass(frozen=True)
class Elsewhere:
    """Memory of another process: its address tells it from others, and nothing reads or writes it here."""

    size: int
    address: int = field(default_factory=lambda: next(_elsewhere))

    def free(self) -> None:
        """Does nothing."""


class ShardedArray:
    """An array whose elements lie on several devices.

    Attributes:
        shape: of the whole.
        dtype: NumPy's.
        ranks: who has the elements.
        cuts: which of them: along each axis where the elements of the ranks begin, and last the extent.
        held: where those of each rank lie.
        shards: the elements of each rank of this process; other libraries use their memory by DLPack or
            `__cuda_array_interface__`.
        slices: which these are, as indices of the whole.
    """

    def __init__(self, ranks: tuple[Rank, ...], cuts: Cuts, dtype: np.dtype[Any]) -> None:
        """Allocates it, on each device at once what that has.

        Args:
            ranks: who has the elements.
            cuts: which they are.
            dtype: of the elements.

        Raises:
            DeviceError: a device has no memory left.
        """
        self.shape: Shape = tuple(along[-1] for along in cuts)
        self.dtype = dtype
        self.ranks, self.cuts = ranks, cuts
        boxes = boxes_of(cuts)
        here = [(rank, box) for rank, box in zip(ranks, boxes, strict=True) if rank.here]
        self.slices = tuple(_index(box) for _, box in here)
        self.shards = tuple(_allocated(rank, box, dtype) for rank, box in here)
        mine = iter(self.shards)
        self.held = tuple(
            Held(next(mine).address if rank.here else next(_elsewhere), box, dtype.itemsize)
            for rank, box in zip(ranks, boxes, strict=True)
        )

    def gather(self) -> Array:
        """A copy as a NumPy array, in each process; waits until the content is there.

        Raises:
            ProcessError: one of several processes has died.
        """
        whole: Array = np.empty(self.shape, self.dtype)
        for cells, shard in zip(self.slices, self.shards, strict=True):
            whole[cells] = shard.numpy()
        processes = self.ranks[0].processes
        if processes is not None:
            processes.check()  # else what this one has may not be what was asked for
            own = whole[self.slices[0]].tobytes()
            for other in processes.others:
                processes.send(other, own)
            for other in processes.others:
                shape = extents_of_box(self.held[other].box)
                came = processes.receive(other, prod(shape) * self.dtype.itemsize)
                whole[_index(self.held[other].box)] = np.frombuffer(came, self.dtype).reshape(shape)
        return whole

    def synchronize(self) -> None:
        """Waits until the content is there. Raises ProcessError if one of several processes has died."""
        for rank in self.ranks:
            with rank.current():
                rank.device.synchronize(rank.main.handle)
            if rank.processes is not None:
                rank.processes.check()

    def __repr__(self) -> str:
        return f"ShardedArray(shape={self.shape}, dtype={self.dtype}, shards={len(self.ranks)})"


@dataclass(frozen=True)
class Held:
    """A dense box of cells in memory.

    Attributes:
        address: of its first cell.
        box: which cells they are.
        size: bytes of a cell.
    """

    address: int
    box: Box
    size: int

    @lru_cache(1 << 12)  # a call asks for the same ones at every exchange  # noqa: B019
    def rows(self, cells: Box) -> Rows:
        """Where some of them lie."""
        shape, extents = extents_of_box(self.box), extents_of_box(cells)
        strides = dense_strides(shape, self.size)
        begins = zip(cells, self.box, strides, strict=True)
        address = self.address + sum((first - begin) * stride for (first, _), (begin, _), stride in begins)
        planes, rows, cols = (1,) * (3 - len(extents)) + extents
        plane_rows, wide = (1, 1, *shape)[-2:]
        return Rows(address, planes, rows, cols * self.size, wide * self.size, max(plane_rows, rows))

    def given(self, dtype: np.dtype[Any], device: int) -> Given:
        """The array, as a kernel takes it."""
        return Given.dense(self.address, extents_of_box(self.box), dtype, device)


@dataclass(frozen=True)
class Block:
    """A part of an array in memory: the address of its first element, its shape, and its strides in bytes."""

    address: int
    shape: Shape
    strides: Shape

    def given(self, dtype: np.dtype[Any], device: int) -> Given:
        """The array, as a kernel takes it."""
        return Given(Kind.OTHER, self.address, self.shape, self.strides, dtype, True, device, None, None)

    def rows(self, other: Block, size: int) -> Iterator[Rows]:
        """Rows of it, as long as elements follow each other in another block too, and as many as are equally apart.

        Args:
            other: the other block, of its shape.
            size: bytes of an element.
        """
        run, axes = size, len(self.shape)
        while axes and (self.shape[axes - 1] == 1 or self.strides[axes - 1] == run == other.strides[axes - 1]):
            run, axes = run * self.shape[axes - 1], axes - 1
        rows = self.shape[axes - 1] if axes else 1
        pitch = self.strides[axes - 1] if axes else run
        for place in product(*map(range, self.shape[: max(axes - 1, 0)])):
            address = self.address + sum(at * stride for at, stride in zip(place, self.strides, strict=False))
            yield Rows(address, 1, rows, run, pitch, rows)


def block_of(array: ShardedArray, number: int, box: Sequence[tuple[int, int]]) -> Block:
    """Where elements lie that a rank has."""
    held, size = array.held[number], array.dtype.itemsize
    strides = dense_strides(extents_of_box(held.box), size)
    before = zip(box, held.box, strides, strict=True)
    address = held.address + sum((first - begin) * stride for (first, _), (begin, _), stride in before)
    return Block(address, extents_of_box(tuple(box)), strides)


def _index(box: Box) -> tuple[slice, ...]:
    return tuple(slice(*along) for along in box)


def _allocated(rank: Rank, box: Box, dtype: np.dtype[Any]) -> DeviceArray:
    with rank.current():
        return DeviceArray(extents_of_box(box), dtype, rank.device, rank.main.handle)


class Scattering:
    """What computes with sharded arrays: brings arrays to ranks, checks those that come, makes calls one by one.

    Attributes:
        spec: the spec's name.
        dtype: NumPy's, of the elements.
        grid: ranks along each axis; further axes are not split.
        ranks: who has the elements; those along the last axis follow each other.
    """

    def __init__(
        self, name: str, devices: Sequence[Peer], dtype: DType, grid: tuple[int, ...], axes: tuple[str, ...] | None,
        processes: Processes | None,
    ) -> None:  # fmt: skip
        """Makes streams, and lets the devices reach each other.

        Args:
            name: of the spec.
            devices: of each rank.
            dtype: of the elements.
            grid: ranks along each axis.
            axes: names of the axes that an array must have; None: one or more.
            processes: those that share the work, one rank each; None if all ranks are of this process.
        """
        self.spec, self.dtype, self.grid, self.ranks = name, dtype.numpy, grid, _ranks_of(devices, processes)
        self._transport = None if processes is None else transport_of(processes, devices[0])
        self._lock = threading.RLock()
        self._elements, self._axes = dtype, axes
        apart = [pair for pair in combinations(dict.fromkeys(devices), 2) if not pair[0].reach(pair[1])]
        self._apart = set(map(frozenset, apart))
        if apart:
            pairs = ", ".join(f"{one.index} and {other.index}" for one, other in apart)
            said = "%s %s have no way to each other: what they exchange goes through the host's memory"
            log.warning(said, "GPUs" if devices[0].index >= 0 else "Devices", pairs)

    def __repr__(self) -> str:
        return f"<gen kernel {self.spec} on {' x '.join(map(str, self.grid))} ranks>"

    def forget(self) -> None:
        """Gives back what is kept between calls."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other threads out; what fails forgets all that is kept between calls, once no device uses it."""
        with self._lock:
            try:
                yield
            except BaseException:
                self.forget_unused()
                raise

    @contextmanager
    def queueing(self) -> Iterator[None]:
        """The same while a call is queued; where that fails, other processes learn it."""
        with self.locked():
            try:
                yield
            except BaseException as error:
                if self.ranks[0].processes is not None:
                    self.ranks[0].processes.give_up(error)
                raise

    def checking(self, call: str = "") -> AbstractContextManager[dict[str, object]]:
        """Checks the arguments of a call within it; of several processes all must be alike (`Processes.alike`).

        Args:
            call: the method's name; empty: a call of the kernel itself.
        """
        return alike(self.ranks[0].processes, f"{call or 'a call'} of {self.spec}")

    def forget_unused(self) -> None:
        """Waits for every rank, and gives back what is kept between calls."""
        for rank in self.ranks:
            with rank.current(), suppress(GenError):  # after a failed launch the driver answers nothing any more
                rank.device.synchronize(rank.rim.handle)
                rank.device.synchronize(rank.main.handle)
        self.forget()

    def reaches(self, one: Rank, other: Rank) -> bool:
        """Whether kernels of a rank can use the memory of another."""
        here = one.here and other.here
        return one is other or (here and frozenset((one.device, other.device)) not in self._apart)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Within it ranks copy; copies from process to process are queued where it ends."""
        yield
        if self._transport is not None:
            with self.ranks[0].current():
                self._transport.flush()

    def meet(self) -> None:
        """Puts what every main stream is given later behind what all of them were given before."""
        marks = []
        for rank in self.ranks:
            with rank.current():
                marks.append(rank.device.mark(rank.main.handle))
        for number, rank in enumerate(self.ranks):
            with rank.current():
                for other, mark in enumerate(marks):
                    if other != number:
                        rank.device.wait_for(rank.main.handle, mark)

    @property
    def is_captured(self) -> bool:
        """Whether all that a call queues can be a graph of all devices."""
        return len(self.ranks) > 1 and self._transport is None and not self._apart

    def captured(self, run: Callable[[], object]) -> Graph | None:
        """The graph of all that `run` queues, whose memory is there already; None if the driver takes none."""
        first = self.ranks[0]

        def queue(stream: int) -> None:
            begin = first.device.mark(stream)
            for rank in self.ranks:
                with rank.current():
                    rank.device.wait_for(rank.main.handle, begin)
            run()
            for rank in self.ranks:
                with rank.current():
                    end = rank.device.mark(rank.main.handle)
                first.device.wait_for(stream, end)

        with first.current():
            try:
                return first.device.capture(queue)
            except RunError:  # of copies, say, that the driver does not capture
                return None
            finally:
                self.meet()

    def replay(self, graph: Graph) -> None:
        """Queues a graph behind all that the main streams were given; what they are given later comes behind it."""
        first = self.ranks[0]
        self.meet()
        with first.current():
            graph.replay(first.main.handle)
        self.meet()

    def copy(self, number: int, other: int, source: Rows, target: Rows, stream: int) -> None:
        """Queues a copy from a rank to another on a stream of the first."""
        sender, receiver = self.ranks[number], self.ranks[other]
        if sender.here and receiver.here:
            sender.device.copy_to(receiver.device, source, target, stream)
        elif self._transport is not None and sender.here:
            self._transport.send(other, source, stream)
        elif self._transport is not None and receiver.here:
            self._transport.receive(number, target, stream)

    def hand_over(self, number: int, other: int, copies: Iterable[tuple[Rows, Rows]]) -> None:
        """Copies from a rank to another one, whose main stream comes after that with what it is given later."""
        sender, receiver = self.ranks[number], self.ranks[other]
        with sender.current():
            with self.together():
                for source, target in copies:
                    self.copy(number, other, source, target, sender.main.handle)
            sent = sender.device.mark(sender.main.handle)
        with receiver.current():
            receiver.device.wait_for(receiver.main.handle, sent)

    def empty(
        self, shape: int | Sequence[int], extents: Sequence[Sequence[int]] | None = None, dtype: Any = None
    ) -> ShardedArray:  # fmt: skip
        """An array on the devices with any content, to be filled by other libraries through its shards.

        Args:
            shape: of the whole.
            extents: cells of the ranks along each axis, `[(10, 30), (20,)]`; as equal as possible if None.
            dtype: NumPy's, of the elements, for a spec that moves them as bits; the spec's if None.

        Raises:
            ShapeError: the spec takes no such array, or a rank would have no cell, or `dtype` is none of NumPy's.
            DeviceError: a device has no memory left.
        """
        with self.checking("empty") as noted:
            return self._noted(noted, self._empty(shape, extents, dtype))

    def _empty(self, shape: int | Sequence[int], extents: Sequence[Sequence[int]] | None, dtype: Any) -> ShardedArray:
        numbers = (shape,) if isinstance(shape, int | np.integer) else items_of(shape)
        if numbers is None or not self._has_axes(len(numbers)) or not all(is_count(n, 0) for n in numbers):
            rule = "must be whole numbers, none negative"
            if self._axes is not None:
                rule = f"must be {len(self._axes)} whole numbers, none negative: {', '.join(self._axes)}"
            raise ShapeError("shape", rule, repr(shape))
        elements = self.dtype if dtype is None else _numpy_type(dtype)
        if elements is None:
            next_step = "Leave it out: it is the spec's then"
            raise ShapeError("dtype", "must be a type of NumPy's, of numbers", repr(dtype), next_step=next_step)
        whole = tuple(map(int, numbers))
        if beyond_memory(whole, elements.itemsize):
            raise ShapeError("shape", "must be of less than 2^63 bytes", whole, next_step="Take it in parts")
        return ShardedArray(self.ranks, self._cuts(whole, extents), elements)

    def scatter(self, array: Any, extents: Sequence[Sequence[int]] | None = None) -> ShardedArray:
        """A copy of an array on the devices; returns when it is there.

        Args:
            array: of NumPy or of another library, on the host or on one of the devices.
            extents: as in `empty`.

        Raises:
            ShapeError: the spec takes no such array, or a rank would have no cell.
            ArgumentError: it is none, or lies on a device that is not one of these.
        """
        with self.checking("scatter") as noted:
            return self._noted(noted, self._scattered(array, extents))

    def _noted(self, noted: dict[str, object], made: ShardedArray) -> ShardedArray:
        noted |= {"dtype": made.dtype, "cuts": made.cuts}
        return made

    def _scattered(self, array: Any, extents: Sequence[Sequence[int]] | None) -> ShardedArray:
        given = read("array", array)
        if not self._elements.holds(given.dtype):
            rule = f"must hold {self._elements.name} elements"
            raise ShapeError("array", rule, given.dtype, next_step="Convert it first, or load a kernel for its type")
        made = ShardedArray(self.ranks, self._cuts(given.shape, extents), given.dtype)
        if given.host is not None:
            self._upload(given.host, made)
        else:
            self._copy_from_device(given, made)
        return made

    def _cuts(self, shape: tuple[int, ...], extents: Sequence[Sequence[int]] | None) -> Cuts:
        self._check_axes("The array", shape)
        if 0 in shape:
            raise ShapeError("The array", "must have elements to be split", shape)
        grid = self._grid_of(len(shape))
        for place, (extent, ranks) in enumerate(zip(shape, grid, strict=True)):
            if extent < ranks:
                axis = "rows" if self._axes is None else self._axes[place]
                rule = f"must have {axis} for each of {ranks} ranks"
                raise ShapeError("The array", rule, extent, next_step="Take fewer devices, or a larger array")
        if extents is None:
            return even_cuts(shape, grid)
        listed = [items_of(along) or () for along in items_of(extents) or ()]
        right = [
            len(along) == ranks and all(is_count(n, 1) for n in along) and sum(along) == extent
            for along, extent, ranks in zip(listed, shape, grid, strict=False)
        ]
        if len(listed) != len(shape) or not all(right):
            rule = f"must be, for each axis, {grid} positive numbers whose sums are {shape}"
            raise ShapeError("extents", rule, extents, next_step="Leave them out: they are as equal as possible then")
        return cuts_of([[int(n) for n in along] for along in listed])

    def _grid_of(self, axes: int) -> tuple[int, ...]:
        return self.grid + (1,) * (axes - len(self.grid))

    def _has_axes(self, count: int) -> bool:
        return count > 0 if self._axes is None else count == len(self._axes)

    def _check_axes(self, name: str, shape: Shape) -> None:
        if not self._has_axes(len(shape)):
            axes = "an axis or more" if self._axes is None else f"{len(self._axes)} axes: {', '.join(self._axes)}"
            next_step = "Reshape it first, or load a kernel for its axes"
            raise ShapeError(name, f"must have {axes}", shape, next_step=next_step)

    def check_array(self, name: str, array: object, dtype: np.dtype[Any] | None = None, *, split: bool = True) -> None:
        """Raises GenError unless it is a sharded array of these ranks, and of a dtype: the spec's if None.

        Args:
            name: of the operand.
            array: what is given.
            dtype: NumPy's, of the elements.
            split: whether it must be split as the kernel's grid has it.
        """
        if not isinstance(array, ShardedArray):
            rule = "must be a sharded array"
            raise ArgumentError(name, rule, type(array).__name__, next_step="kernel.scatter(array) makes one")
        if array.ranks != self.ranks:
            found, wanted = (", ".join(_named(one.device) for one in ranks) for ranks in (array.ranks, self.ranks))
            if found == wanted:  # of another machine, or opened a second time
                found = "others of these names"
            rule = f"must lie on the devices of the kernel, in their order: {wanted}"
            raise ArgumentError(name, rule, found, next_step="Gather it, and scatter it by this kernel")
        self._check_axes(name, array.shape)
        if split and tuple(len(along) - 1 for along in array.cuts) != self._grid_of(len(array.cuts)):
            rule = f"must be split among {' x '.join(map(str, self.grid))} ranks"
            raise ShapeError(name, rule, array.cuts, next_step="Gather it, and scatter it by this kernel")
        if array.dtype != dtype if dtype is not None else not self._elements.holds(array.dtype):
            raise ShapeError(name, f"must hold {dtype or self._elements.name} elements", array.dtype)

    def _upload(self, whole: Array, made: ShardedArray) -> None:
        here = (rank for rank in self.ranks if rank.here)
        for rank, shard, cells in zip(here, made.shards, made.slices, strict=True):
            with rank.current():
                rank.device.upload(shard.address, np.ascontiguousarray(whole[cells]))

    def _copy_from_device(self, given: Given, made: ShardedArray) -> None:
        owner = self._owner_of(given)
        if given.strides != dense_strides(given.shape, given.dtype.itemsize):
            raise ShapeError(
                "array", "must be dense on a device", f"strides {given.strides}", next_step="Copy it first"
            )
        stream, size = owner.main.handle, given.dtype.itemsize
        with owner.current():
            owner.device.wait_for(stream, owner.device.mark(stream_of(given) or LEGACY_STREAM))
            for number, (rank, held) in enumerate(zip(self.ranks, made.held, strict=True)):
                begins = zip(held.box, given.strides, strict=True)
                address = given.address + sum(begin * stride for (begin, _), stride in begins)
                part, target = Block(address, extents_of_box(held.box), given.strides), block_of(made, number, held.box)
                for rows in zip(part.rows(target, size), target.rows(part, size), strict=True):
                    if rank.here:
                        owner.device.copy_to(rank.device, *rows, stream)
            owner.device.synchronize(stream)

    def _owner_of(self, given: Given) -> Rank:
        with self.ranks[0].current():
            found = self.ranks[0].device.device_of(given.address) if given.device is None else given.device
        for rank in self.ranks:
            if rank.device.index == found:
                return rank
        rule = f"must be on the host or on one of the devices {sorted({rank.device.index for rank in self.ranks})}"
        raise ArgumentError("array", rule, "no memory of a GPU" if found is None else f"device {found}")


def _ranks_of(devices: Sequence[Peer], processes: Processes | None) -> tuple[Rank, ...]:
    """The ranks of devices: every kernel has the same, so that arrays of one are arrays of all."""
    counts: dict[Peer, int] = {}
    found = []
    for device in devices:
        place = counts[device] = counts.get(device, -1) + 1
        with _lock:
            made = _streams.setdefault(device, [])
            if place == len(made):
                entered = device.enter()
                try:
                    made.append((device.stream(), device.stream(urgent=True)))
                finally:
                    device.leave(entered)
        found.append(Rank(device, *made[place], processes, 0 if processes is None else place))
    return tuple(found)


def _named(device: Peer) -> str:
    """A device by its number and name; a simulated one has a name of its own."""
    return device.name if device.index < 0 else f"device {device.index}, {device.name}"


def items_of(value: Any) -> tuple[Any, ...] | None:
    """What a sequence holds; None if it is none, which the caller refuses."""
    try:
        return tuple(value)
    except TypeError:
        return None


def _numpy_type(dtype: Any) -> np.dtype[Any] | None:
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # of a text such as "f4,(" too
        return None
    return None if found.hasobject or not found.itemsize else found


def as_many(out: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """What `out=` gives for each output, None where it says nothing. Raises ArgumentError for more or fewer."""
    if out is None:
        return (None,) * len(names)
    outs = tuple(out) if isinstance(out, tuple | list) else (out,)
    if len(outs) != len(names):
        rule = f"must be as many arrays as there are outputs: {', '.join(names)}"
        raise ArgumentError("out", rule, len(outs), next_step="Pass them in this order, or no out=")
    return outs


def is_count(number: object, least: int) -> bool:
    """Whether it is a whole number, and not below another."""
    return is_whole(number) and int(number) >= least


def check_distinct(devices: Sequence[Peer], *, shared: bool) -> None:
    """Raises ArgumentError if there are none, or of two kinds, or one is named twice and not said to be shared."""
    if not devices:
        raise ArgumentError("devices", "must name at least one")
    for one, other in combinations(devices, 2):
        if (one is other or one.index == other.index >= 0) and not shared:
            next_step = "Name each once, or say shared=True: then several ranks share it, which is slower"
            raise ArgumentError("devices", "must not name a device twice", _named(one), next_step=next_step)
        if not one.can_exchange(other):
            raise ArgumentError("devices", "must all be GPUs, or devices of one machine", f"{one.name}, {other.name}")
