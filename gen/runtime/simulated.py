"""Several devices simulated in one process: the CPU run, with streams whose work is done late, in a random order.

What is queued waits until somebody synchronizes. Then the streams advance in turns that are drawn, as far as what they
wait for is done: every order that the marks permit can come up. Where two copies or kernels use the same bytes, one of
them writing, and nothing orders them, the one that is queued later is refused: for that no unlucky order is needed. So
is memory that is given back while a stream of another device may still use it. New memory holds no zeros.
"""

from __future__ import annotations

import ctypes
import weakref
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod
from operator import mul
from pathlib import Path
from random import Random
from secrets import randbelow
from typing import Any

import numpy as np

from gen.dtypes import python_int
from gen.errors import ArgumentError, DeviceError, RunError
from gen.families.base import Array, Extents, Kernel, Layout, Runner, Variant
from gen.families.plans import Step
from gen.gpu.device import LEGACY_STREAM, Mark, Peer, Rows
from gen.paths import cache_home, output_home
from gen.runtime.arrays import Given, Kind, overlap
from gen.runtime.cpu import ALIGNMENT, CpuCode, CpuDevice, CpuGraph, CpuPrepared
from gen.toolchain.compiled import Compiled

POISON = 0xA5  # every byte of new memory
_FIRST_HANDLE = 16  # of a stream: smaller ones have a meaning of their own
_SEEDS = 1 << 32

Clock = dict[int, int]
"""How much of the work of every stream is done before something."""


@dataclass(frozen=True)
class SimulatedMark:
    """A point in the work of a stream.

    Attributes:
        clock: what is done when it is reached.
        number: of it in the graph that was captured when it was made; None outside of one.
    """

    clock: Clock
    number: int | None = None


@dataclass(frozen=True)
class Access:
    """Bytes that work reads or writes."""

    rows: Rows
    writes: bool


@dataclass(frozen=True)
class SimulatedStream:
    """A stream of the machine.

    Attributes:
        handle: its number.
    """

    handle: int


@dataclass(frozen=True)
class _Work:
    needs: Clock
    run: Callable[[], object]


@dataclass
class _Queue:
    """One stream: its device, how much was queued, how much is done, and what the next work comes after.

    Attributes:
        alone: whether it takes no turns with the legacy default stream.
    """

    device: int
    alone: bool = False
    queued: int = 0
    done: int = 0
    clock: Clock = field(default_factory=dict)
    waiting: deque[_Work] = field(default_factory=deque)


@dataclass
class _Capture:
    """A graph while it is captured: what streams were given that have joined it, and what each of them comes after."""

    origin: int
    done: list[_Captured] = field(default_factory=list)
    clocks: dict[int, Clock] = field(default_factory=dict)
    marks: list[SimulatedMark] = field(default_factory=list)


@dataclass(frozen=True)
class _Captured:
    """Work of a stream, or a mark on it by number, or a wait for one."""

    stream: int
    run: Callable[[], object] | None = None
    accesses: tuple[Access, ...] = ()
    mark: int | None = None
    awaited: int | None = None


@dataclass
class _Use:
    """Who last used some bytes: for each stream the number of its work."""

    written: tuple[int, int] | None = None
    read: Clock = field(default_factory=dict)


@dataclass
class _Block:
    """Memory of a device, and who used which of its bytes."""

    device: int
    address: int
    end: int
    content: Array
    uses: dict[Rows, _Use] = field(default_factory=dict)


class Machine:
    """What simulated devices share: streams, the order of their work, and who uses which memory. For one thread.

    Attributes:
        seed: of the order in which streams advance: the same calls with the same seed have the same order.
    """

    def __init__(self, *, seed: int | np.integer[Any] | None = None, runner: Runner | None = None) -> None:
        """Builds nothing yet.

        Args:
            seed: of the order; drawn if None.
            runner: what executes kernels; the CPU run if None.

        Raises:
            ArgumentError: the seed is no whole number.
        """
        self.seed = randbelow(_SEEDS) if seed is None else _whole("seed", seed)
        self._runner = runner
        self._random = Random(self.seed)
        self._queues: dict[int, _Queue] = {}
        self._legacy: list[int] = []  # of each device: the handle of its legacy default stream
        self._known: Clock = {}  # what the host knows to be done
        self._starts: list[int] = []
        self._blocks: dict[int, _Block] = {}
        self._given_back: deque[_Block] = deque()
        self._kept: list[_Block] = []  # given back, and perhaps still in use
        self._capture: _Capture | None = None

    def devices(self, count: int, *, peer_access: bool = True) -> list[SimulatedDevice]:
        """New devices of this machine; without `peer_access` they have no way to each other but the host's memory.

        Raises ArgumentError unless `count` is a number of devices.
        """
        if _whole("count", count) < 1:
            raise ArgumentError("count", "must be a number of devices, 1 or more", count)
        cache = cache_home(output_home())
        return [SimulatedDevice(self, cache, self._runner, peer_access=peer_access) for _ in range(count)]

    def __repr__(self) -> str:
        return f"Machine(seed={self.seed})"

    def new_device(self) -> tuple[int, int]:
        """The number of a new device, and the handle of its legacy default stream."""
        self._legacy.append(0)
        self._legacy[-1] = self.new_stream(len(self._legacy) - 1)
        return len(self._legacy) - 1, self._legacy[-1]

    def new_stream(self, device: int, *, alone: bool = False) -> int:
        """The handle of a new stream of a device, which takes turns with its legacy default stream unless `alone`."""
        handle = _FIRST_HANDLE + len(self._queues)
        self._queues[handle] = _Queue(device, alone, clock=dict(self._known))
        return handle

    def queue(self, stream: int, run: Callable[[], object], *accesses: Access) -> None:
        """Queues work. Raises RunError if it would race with other work, or uses bytes that no device has."""
        if self.captures(stream):
            self._note(_Captured(stream, run, accesses))
            return
        self._settle()
        queue = self._queues[stream]
        self._take_turns(stream)
        used = [access for access in accesses if access.rows.bytes]
        uses = [self._checked(access, queue.clock, stream) for access in used]
        queue.queued += 1
        for access, use in zip(used, uses, strict=True):
            if access.writes:
                use.written, use.read = (stream, queue.queued), {}
            else:
                use.read[stream] = queue.queued
        queue.waiting.append(_Work(dict(queue.clock), run))
        queue.clock[stream] = queue.queued

    def mark(self, stream: int) -> SimulatedMark:
        """What is queued on a stream, and all that it comes after."""
        if self._capture is not None and self.captures(stream):
            made = SimulatedMark(dict(self._capture.clocks[stream]), len(self._capture.marks))
            self._capture.marks.append(made)
            self._note(_Captured(stream, mark=made.number))
            return made
        self._take_turns(stream)
        return SimulatedMark(dict(self._queues[stream].clock))

    def wait_for(self, stream: int, mark: SimulatedMark) -> None:
        """Puts what was marked before all later work of a stream, which joins the capture that the mark is of."""
        capture = self._capture
        of_capture = capture is not None and any(mark is one for one in capture.marks)
        if not of_capture and (self.captures(stream) or mark.number is not None):
            raise RunError(
                self._named(stream), "must wait for marks of the graph that it is captured into, and no others"
            )
        if capture is None or not of_capture:
            _join(self._queues[stream].clock, mark.clock)
            return
        _join(capture.clocks.setdefault(stream, {}), mark.clock)
        self._note(_Captured(stream, awaited=mark.number))

    def captures(self, stream: int) -> bool:
        """Whether a stream has joined a graph that is being captured."""
        return self._capture is not None and stream in self._capture.clocks

    def _note(self, one: _Captured) -> None:
        assert self._capture is not None
        self._capture.done.append(one)
        clock = self._capture.clocks[one.stream]
        clock[one.stream] = clock.get(one.stream, 0) + (one.run is not None)

    def capture(self, device: int, queue: Callable[[int], None]) -> _Capture:
        """What `queue` gives a new stream, and those that join it. Raises RunError if one does not come back."""
        origin = self.new_stream(device, alone=True)
        made = self._capture = _Capture(origin, clocks={origin: {}})
        try:
            queue(origin)
        finally:
            self._capture = None
        for stream, clock in made.clocks.items():
            if clock.get(stream, 0) > made.clocks[origin].get(stream, 0):
                raise RunError(self._named(stream), "must be waited for by the stream whose capture it has joined")
        return made

    def replay(self, captured: _Capture, stream: int) -> None:
        """Queues a graph, in its own order: after what a stream was given, and before what it is given later."""
        streams = {
            one: self.new_stream(self._queues[one].device, alone=True) for one in captured.clocks
        }  # fmt: skip
        marks: dict[int, SimulatedMark] = {}
        self.wait_for(streams[captured.origin], self.mark(stream))
        for one in captured.done:
            if one.run is not None:
                self.queue(streams[one.stream], one.run, *one.accesses)
            elif one.mark is not None:
                marks[one.mark] = self.mark(streams[one.stream])
            elif one.awaited is not None:
                self.wait_for(streams[one.stream], marks[one.awaited])
        self.wait_for(stream, self.mark(streams[captured.origin]))

    def synchronize(self, stream: int | None = None) -> None:
        """Does work in a random order until a stream has none left, or all of them have."""
        self._settle()
        if stream is not None:
            self._take_turns(stream)
        awaited = [self._queues[stream]] if stream is not None else list(self._queues.values())
        while any(one.waiting or not self._reached(one.clock) for one in awaited):
            able = [one for one in self._queues.values() if one.waiting and self._reached(one.waiting[0].needs)]
            queue = self._random.choice(able)
            queue.waiting.popleft().run()
            queue.done += 1
        for queue in awaited:
            _join(self._known, queue.clock)
        for queue in self._queues.values():
            _join(queue.clock, self._known)
        if not any(queue.waiting for queue in self._queues.values()):
            self._kept.clear()

    def register(self, device: int, size: int) -> int:
        """The address of new memory."""
        self._settle()
        content: Array = np.full(size + ALIGNMENT, POISON, np.uint8)
        start = content.ctypes.data
        address = -(-start // ALIGNMENT) * ALIGNMENT
        insort(self._starts, address)
        self._blocks[address] = _Block(device, address, address + size, content)
        return address

    def give_back(self, address: int) -> None:
        """Notes that memory is not needed any more; may be called at any time, by Python's garbage collector too."""
        self._given_back.append(self._blocks[address])

    def device_of(self, address: int) -> int | None:
        """The number of the device that has the byte of an address."""
        block = self._block_of(address)
        return None if block is None else block.device

    def holds(self, rows: Rows) -> bool:
        """Whether a memory has all of these bytes, and what lies between them."""
        block = self._block_of(rows.address)
        return block is not None and rows.end <= block.end

    def _settle(self) -> None:
        """Takes back what was given back. The driver waits for the device whose memory it is, and for no other."""
        while self._given_back:
            block = self._given_back.popleft()
            del self._blocks[block.address]
            self._starts.remove(block.address)
            self._kept.append(block)
            waited: Clock = dict(self._known)
            for queue in self._queues.values():
                if queue.device == block.device:
                    _join(waited, queue.clock)
            for rows, use in block.uses.items():
                users = [*use.read.items(), *([] if use.written is None else [use.written])]
                if any(waited.get(stream, 0) < number for stream, number in users):
                    rule = "must not be given back while a stream of another device may use it"
                    raise RunError(f"Memory of device {block.device}", rule, rows)

    def _take_turns(self, stream: int) -> None:
        """Puts what comes next on the legacy default stream after all streams of its device, and on these after it."""
        queue = self._queues[stream]
        legacy = self._legacy[queue.device]
        if queue.alone:
            return
        if stream != legacy:
            _join(queue.clock, self._queues[legacy].clock)
            return
        for other in self._queues.values():
            if other.device == queue.device and not other.alone:
                _join(queue.clock, other.clock)

    def _reached(self, clock: Clock) -> bool:
        return all(self._queues[stream].done >= number for stream, number in clock.items())

    def _block_of(self, address: int) -> _Block | None:
        place = bisect_right(self._starts, address) - 1
        block = self._blocks[self._starts[place]] if place >= 0 else None
        return block if block is not None and address < block.end else None

    def _checked(self, access: Access, clock: Clock, stream: int) -> _Use:
        """Who used these bytes, all of them before the next work of a stream. Raises RunError if that is not so."""
        rows = access.rows
        block = self._block_of(rows.address)
        if block is None or not self.holds(rows):
            raise RunError("A simulated device", "must not use memory that it does not have", rows)
        for other, use in block.uses.items():
            earlier = [] if use.written is None else [use.written]
            earlier += use.read.items() if access.writes else []
            unordered = [by for by, at in earlier if clock.get(by, 0) < at]
            if unordered and _overlap(rows, other):
                found = f"{rows} on {self._named(stream)}, {other} on {', '.join(map(self._named, unordered))}"
                raise RunError("The work of two streams", "must be ordered where it uses the same bytes", found)
        return block.uses.setdefault(rows, _Use())

    def _named(self, stream: int) -> str:
        return f"stream {stream} of device {self._queues[stream].device}"


class SimulatedMemory:
    """Bytes of the host that play those of a device."""

    def __init__(self, machine: Machine, device: int, size: int) -> None:
        self.address, self.size = machine.register(device, size), size
        self._given_back = weakref.finalize(self, machine.give_back, self.address)

    def free(self) -> None:
        """Gives the bytes back."""
        self._given_back()


class SimulatedDevice(CpuDevice):
    """One of several devices of a machine; implements `gen.gpu.device.Peer`. Its number is negative.

    Attributes:
        spans_memory: not by the CPU run, which copies arrays with all that lies between their elements.
    """

    def __init__(self, machine: Machine, cache: Path, runner: Runner | None, *, peer_access: bool) -> None:
        """Adds a device to a machine; `Machine.devices` does it."""
        super().__init__(cache, runner)
        self._machine, self._peer_access = machine, peer_access
        self.spans_memory = runner is not None
        self._number, self._legacy = machine.new_device()
        self.index = -1 - self._number
        self.name = f"simulated device {self._number}"
        self._reached = {self.index}

    def load(self, compiled: Compiled, variant: Variant | None = None) -> SimulatedCode:
        """Builds the text of a variant, once for all devices."""
        if variant is None:
            raise DeviceError(f"The {self.name}", "loads kernels of variants alone")
        return SimulatedCode(self, variant, self._runner.load([variant])[0])

    def allocate(self, size: int) -> SimulatedMemory:  # type: ignore[override]
        """Memory of the host."""
        try:
            return SimulatedMemory(self._machine, self._number, size)
        except MemoryError as error:
            raise DeviceError("The host's memory", f"does not hold {size} bytes more") from error

    def upload(self, address: int, content: Array, stream: int | None = None) -> None:
        """Copies a contiguous array as it is now; queued on a stream, or at once, after all that is queued."""
        held = content.tobytes()
        self._do(stream, lambda: ctypes.memmove(address, held, len(held)), Access(Rows.of(address, len(held)), True))

    def download(self, content: Array, address: int, stream: int | None = None) -> None:
        """Copies into a contiguous array; queued on a stream, or at once, after all that is queued."""

        def run() -> None:
            ctypes.memmove(content.ctypes.data, address, content.nbytes)

        self._do(stream, run, Access(Rows.of(address, content.nbytes), False))

    def copy(self, source: int, target: int, size: int, stream: int = LEGACY_STREAM) -> None:
        """Queues a copy."""
        accesses = Access(Rows.of(source, size), False), Access(Rows.of(target, size), True)
        self._do(stream, lambda: ctypes.memmove(target, source, size), *accesses)

    def zero(self, address: int, size: int, stream: int | None = LEGACY_STREAM) -> None:
        """Queues setting bytes to 0."""
        self._do(stream, lambda: ctypes.memset(address, 0, size), Access(Rows.of(address, size), True))

    def capture(self, queue: Callable[[int], None], closed: Callable[[], None] = lambda: None) -> SimulatedGraph:
        """A graph of what `queue` puts on a stream, and on those of other devices that wait for it."""
        return SimulatedGraph(self, self._machine, self._machine.capture(self._number, queue), closed)

    def capture_of(self, stream: int) -> int:
        """1 for a stream that is being captured."""
        return int(self._machine.captures(self._handle(stream)))

    def synchronize(self, stream: int | None = None) -> None:
        """Does what is queued on a stream, or on all, and perhaps some of what is queued on others."""
        self._machine.synchronize(None if stream is None else self._handle(stream))

    def wait(self, stream: int, other: int) -> None:
        """Lets later work on `stream` wait for what is now queued on `other`."""
        self.wait_for(stream, self.mark(other))

    def stream(self, *, urgent: bool = False) -> SimulatedStream:
        """A new stream; none is more urgent than others."""
        return SimulatedStream(self._machine.new_stream(self._number))

    def mark(self, stream: int) -> SimulatedMark:
        """What is now queued on a stream."""
        return self._machine.mark(self._handle(stream))

    def wait_for(self, stream: int, mark: Mark) -> None:
        """Lets later work on `stream` wait for what was marked."""
        assert isinstance(mark, SimulatedMark)
        self._machine.wait_for(self._handle(stream), mark)

    def can_exchange(self, other: Peer) -> bool:
        """Whether it is of the same machine."""
        return isinstance(other, SimulatedDevice) and other._machine is self._machine

    def reach(self, other: Peer) -> bool:
        """Whether both have a way to each other: then kernels of each may use the memory of the other."""
        assert isinstance(other, SimulatedDevice)
        if self._peer_access and other._peer_access:
            self._reached.add(other.index)
            other._reached.add(self.index)
        return other.index in self._reached

    def copy_to(self, other: Peer, source: Rows, target: Rows, stream: int) -> None:
        """Queues a copy, row by row. Raises RunError where source or target is not of the device that is said."""
        assert isinstance(other, SimulatedDevice)
        for device, rows in ((self, source), (other, target)):
            if rows.bytes and self._machine.device_of(rows.address) != device._number:
                raise RunError(f"The {device.name}", "must have the memory that is copied", rows)
        starts = [
            tuple(_starts_of_rows(rows)) if not (source.contiguous and target.contiguous) else (rows.address,)
            for rows in (source, target)
        ]
        size = source.bytes if len(starts[0]) == 1 else source.row_bytes

        def run() -> None:
            for begin, into in zip(*starts, strict=True):
                ctypes.memmove(into, begin, size)

        self._do(stream, run, Access(source, False), Access(target, True))

    def device_of(self, address: int) -> int | None:
        """The number of the simulated device that an address belongs to."""
        found = self._machine.device_of(address)
        return None if found is None else -1 - found

    def launch(self, run: Callable[[], object], accesses: Sequence[Access], stream: int) -> None:
        """Queues a kernel. Raises RunError where it uses memory of a device to which this one was given no way."""
        for access in accesses:
            found = self.device_of(access.rows.address) if access.rows.bytes else self.index
            if found is not None and found not in self._reached:
                raise RunError(f"A kernel of the {self.name}", "must not use memory of others", access.rows)
        self._machine.queue(self._handle(stream), run, *accesses)

    def apart(self, rows: Rows) -> list[Rows]:
        """Rows one by one, where they do not lie in one memory."""
        if self._machine.holds(rows):
            return [rows]
        return [Rows.of(start, rows.row_bytes) for start in _starts_of_rows(rows)]

    def _handle(self, stream: int) -> int:
        return self._legacy if stream == LEGACY_STREAM else stream

    def _do(self, stream: int | None, run: Callable[[], object], *accesses: Access) -> None:
        if stream is None:
            self._machine.synchronize()
            self._machine.queue(self._legacy, run, *accesses)
            self._machine.synchronize()
        else:
            self._machine.queue(self._handle(stream), run, *accesses)


class SimulatedGraph(CpuGraph):
    """Work that was captured, of one device or several."""

    def __init__(
        self, device: SimulatedDevice, machine: Machine, captured: _Capture, closed: Callable[[], None]
    ) -> None:
        super().__init__(lambda stream: machine.replay(captured, device._handle(stream)), closed)


class SimulatedCode(CpuCode):
    """A variant whose launches are queued."""

    def __init__(self, device: SimulatedDevice, variant: Variant, kernel: Kernel) -> None:
        super().__init__(variant, kernel)
        self._device = device

    def prepare(self, extents: Extents, steps: Sequence[Step]) -> SimulatedPrepared:
        """The launches at these sizes."""
        return SimulatedPrepared(self._device, self._variant, self._kernel, extents, run=bool(steps))


class SimulatedPrepared(CpuPrepared):
    """The launches of a variant at fixed sizes, as one piece of work."""

    def __init__(
        self, device: SimulatedDevice, variant: Variant, kernel: Kernel, extents: Extents, *, run: bool
    ) -> None:
        super().__init__(variant, kernel, extents, run=run)
        self._device = device

    def launch(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> None:
        """Queues them."""
        now, values, run = dict(addresses), dict(numbers), super().launch
        accesses = [
            Access(rows, writes)
            for operand in self._spec.operands
            for writes in {"in": (False,), "out": (True,), "inout": (False, True)}.get(operand.role, ())
            for whole in _rows_of(now[operand.name], self._layouts[operand.name])
            for rows in self._device.apart(whole)
        ]
        self._device.launch(lambda: run(now, values, stream), accesses, stream)


def _whole(name: str, number: object) -> int:
    """A whole number. Raises ArgumentError if it is none."""
    found = python_int(number)
    if type(found) is not int:
        raise ArgumentError(name, "must be a whole number", repr(number))
    return found


def _join(clock: Clock, other: Clock) -> None:
    for stream, number in other.items():
        if number > clock.get(stream, 0):
            clock[stream] = number


def _rows_of(address: int, layout: Layout) -> list[Rows]:
    """Where an operand's elements lie: an array with gaps after some axes, or one that is taken to be dense."""
    run = layout.dtype.itemsize
    if 0 in layout.shape:
        return [Rows.of(address, 0)]
    levels: list[tuple[int, int]] = []  # of runs: how many, and bytes from one to the next; the fastest first
    for extent, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        if extent > 1 and not levels and stride == run:
            run *= extent
        elif extent > 1 and levels and stride == levels[-1][0] * levels[-1][1]:
            levels[-1] = levels[-1][0] * extent, levels[-1][1]
        elif extent > 1:
            levels.append((extent, stride))
    if not levels:
        return [Rows.of(address, run)]
    (rows, pitch), *outer = levels
    if pitch < 0:
        address, pitch = address + (rows - 1) * pitch, -pitch
    if pitch < run:
        return [Rows.of(address, layout.dtype.itemsize * prod(layout.shape))]
    places = (sum(map(mul, at, (step for _, step in outer))) for at in product(*(range(many) for many, _ in outer)))
    return [Rows(address + place, 1, rows, run, pitch, rows) for place in places]


def _starts_of_rows(rows: Rows) -> list[int]:
    return [
        rows.address + (plane * rows.plane_rows + row) * rows.pitch
        for plane in range(rows.planes)
        for row in range(rows.rows)
    ]


@lru_cache(1 << 14)
def _overlap(one: Rows, other: Rows) -> bool:
    return overlap(_given(one), _given(other))


def _given(rows: Rows) -> Given:
    shape, strides = (rows.planes, rows.rows, rows.row_bytes), (rows.pitch * rows.plane_rows, rows.pitch, 1)
    return Given(Kind.OTHER, rows.address, shape, strides, np.dtype(np.uint8), True, None, None, None)
