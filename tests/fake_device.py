"""A device made of host memory: kernels run on the CPU when they are launched, streams are numbers."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gen.errors import DeviceError, RunError
from gen.families import FAMILIES
from gen.families.base import Array, Extents, Layout, Limits, Runner, Variant
from gen.families.names import find_variant
from gen.families.plans import Step
from gen.gpu.device import DriverFunctions, KernelAttributes, Timer
from gen.toolchain.compiled import Compiled, Compiler
from tests.host.numpy_kernel import last

LEAST = 16  # bytes: the smallest allocation that is exact
APART = 4096  # bytes from one allocation to the next, at least
ALIGNED = 1 << 16  # an allocation begins at a multiple of it
TRANSPOSE = find_variant(FAMILIES, "transposeSmemPad", {})
After = Callable[["FakeDevice", Mapping[str, int], int], None]
"""What a kernel does after it has computed, given the addresses and the number of its launch, counted from 1."""
DTYPES = {1: "f4", 2: "f8", 3: "f2"}  # of elements, as kernels.cu numbers them


class FakeMemory:
    """Host memory that plays the device's.

    Attributes:
        written: for each byte, whether it has been.
        freed: nobody may use it any more.
    """

    def __init__(self, size: int) -> None:
        self._bytes = np.full(size + APART + ALIGNED, 0xAA, np.uint8)
        self._start = int(self._bytes.__array_interface__["data"][0])
        self.address = -(-self._start // ALIGNED) * ALIGNED
        self.size = size
        self.written = np.zeros(size, np.bool_)
        self.freed = False

    def view(self, shape: tuple[int, ...], dtype: Any, offset: int = 0) -> Array:
        """An array on it."""
        return np.ndarray(shape, dtype, self._bytes.data, self.address - self._start + offset)

    def free(self) -> None:
        """Whatever comes next may not use it."""
        self.freed = True


@dataclass
class OnDevice:
    """An array that has nothing but `__cuda_array_interface__`."""

    array: Array
    interface: dict[str, Any] = field(default_factory=dict)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.array.shape, "strides": self.array.strides, "typestr": self.array.dtype.str,
            "data": (self.array.__array_interface__["data"][0], False), "version": 3, "stream": None, **self.interface,
        }  # fmt: skip


@dataclass
class Launched:
    """One call, as the device saw it."""

    variant: str
    addresses: dict[str, int]
    numbers: dict[str, bytes]
    stream: int
    steps: tuple[Step, ...]


class FakeDevice:
    """Implements `gen.gpu.device.Device`, and is its own timer.

    It refuses every access beyond an allocation, or to one that was freed, and to copy back what was never written.
    Addresses that it has not allocated are those of arrays that a test brings.

    Attributes:
        runner: computes, when a call is launched; None leaves results as they are.
        after: what variants do after that, by name.
        idle: from which launch on a variant does nothing, by name.
        skipping: variants that leave the last element of their outputs as it is, by name.
        takes_us: how long those launches take that come next; then `times_us` says it by name, else `usual_us`.
        launched: every call of a variant, but those replayed in a graph.
        queue: by name, all that was queued or set.
        zeroed: address, bytes and stream of every buffer that was zeroed.
        waits: pairs of streams.
        foreign: addresses on another device, with its number.
        captures: the number of the graph that a stream is being captured into.
        identities: of streams, where it is not the handle.
        failing: how many launches are refused.
        free: bytes that are left.
        captured: every graph that was.
        graphs: those not closed.
        depth: how often the device was made current, less how often it was left.
        functions: what a program launches with that needs no Python.
    """

    def __init__(self, runner: Runner | None = None, name: str = "Fake GPU", index: int = 0) -> None:
        self.index = index
        self.name = name
        self.driver = "580.1, CUDA 13.0"
        self.limits = replace(Limits.of("sm_90"), l2_bytes=64)
        self.timer: Timer = self
        self.runner = runner
        self.after: dict[str, After] = {}
        self.idle: dict[str, int] = {}
        self.skipping: set[str] = set()
        self.takes_us: list[float] = []
        self.times_us: dict[str, float] = {}
        self.usual_us = 3.0
        self.now_us = 0.0
        self.counts: dict[str, int] = {}  # launches of each variant
        self.launched: list[Launched] = []
        self.queue: list[str] = []
        self.loaded: list[str] = []
        self.prepared: list[str] = []
        self.allocations: list[FakeMemory] = []
        self.zeroed: list[tuple[int, int, int | None]] = []
        self.waits: list[tuple[int, int]] = []
        self.synchronized: list[int] = []
        self.foreign: dict[int, int | None] = {}
        self.captures: dict[int, int] = {}
        self.identities: dict[int, Hashable] = {}
        self.failing = 0
        self.free = 1 << 40
        self.captured: list[FakeGraph] = []
        self.graphs: list[FakeGraph] = []
        self.capturing: FakeGraph | None = None
        self.depth = 0
        self.functions: DriverFunctions | None = None
        self.handles: list[tuple[str, str]] = []  # of functions: variant and entry
        self._starts: list[int] = []  # of allocations, in order
        self._by_start: dict[int, FakeMemory] = {}

    @property
    def allocated(self) -> list[int]:
        """Bytes of every allocation."""
        return [memory.size for memory in self.allocations]

    def enter(self) -> bool:
        self.depth += 1
        return True

    def leave(self, entered: bool) -> None:
        assert entered
        self.depth -= 1

    def for_any_thread(self) -> FakeDevice:
        return self

    def compiler(self) -> Compiler:
        return FakeCompiler(self)

    def compile(self, name: str, text: str) -> Compiled:
        assert name in text
        return Compiled(name, self.limits.arch, name.encode(), {})

    def load(self, compiled: Compiled, variant: Variant | None = None) -> FakeCode:
        self._check_current()
        if variant is not None:
            self.loaded.append(variant.name)
        return FakeCode(self, compiled, variant)

    def allocate(self, size: int) -> FakeMemory:
        self._check_current()
        if size > self.free:
            raise DeviceError("The GPU's memory", f"does not hold {size} bytes more")
        self.allocations.append(FakeMemory(size))
        made = self.allocations[-1]
        self._starts.insert(bisect_right(self._starts, made.address), made.address)
        self._by_start[made.address] = made
        return made

    def driver_functions(self) -> DriverFunctions | None:
        return self.functions

    def free_bytes(self) -> int:
        return self.free

    def flag(self) -> FakeFlag:
        return FakeFlag(self)

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def upload(self, address: int, content: Array, stream: int | None = None) -> None:
        self._check_current()
        assert content.flags.c_contiguous
        memory, place = self.at(address, content.nbytes)
        if memory is not None:
            memory.written[place] = True
        ctypes.memmove(address, content.__array_interface__["data"][0], content.nbytes)

    def download(self, content: Array, address: int, stream: int | None = None) -> None:
        self._check_current()
        assert content.flags.c_contiguous
        memory, place = self.at(address, content.nbytes)
        assert memory is None or memory.written[place].all(), "bytes that were never written"
        ctypes.memmove(content.__array_interface__["data"][0], address, content.nbytes)

    def copy(self, source: int, target: int, size: int, stream: int = 1) -> None:
        self.upload(target, self.read(source, size), stream)

    def read(self, address: int, size: int) -> Array:
        """Bytes that must have been written."""
        content: Array = np.empty(size, np.uint8)
        self.download(content, address)
        return content

    def zero(self, address: int, size: int, stream: int | None = 1) -> None:
        self.zeroed.append((address, size, stream))
        self.upload(address, np.zeros(size, np.uint8))

    def capture(self, queue: Callable[[int], None], closed: Callable[[], None] = lambda: None) -> FakeGraph:
        made = FakeGraph(self, queue, closed)
        self.capturing = made
        try:
            queue(7)
        finally:
            self.capturing = None
        self.captured.append(made)
        self.graphs.append(made)
        return made

    def synchronize(self, stream: int | None = None) -> None:
        self.queue.append("wait")
        if stream is not None:
            self.synchronized.append(stream)

    def wait(self, stream: int, other: int) -> None:
        self.waits.append((stream, other))

    def device_of(self, address: int) -> int | None:
        return self.foreign.get(address, self.index)

    def capture_of(self, stream: int) -> int:
        return self.captures.get(stream, 0)

    def identity_of(self, stream: int) -> Hashable:
        return self.identities.get(stream, stream)

    def at(self, address: int, size: int) -> tuple[FakeMemory | None, slice]:
        """The allocation that holds these bytes, and where; None for those of arrays that a test brings."""
        place = bisect_right(self._starts, address + APART // 2) - 1
        memory = self._by_start[self._starts[place]] if place >= 0 else None
        if memory is None or address >= memory.address + memory.size + APART // 2:
            return None, slice(0)
        assert not memory.freed, "freed before"
        start = address - memory.address
        assert 0 <= start <= start + size <= memory.size, "out of bounds"
        return memory, slice(start, start + size)

    def _check_current(self) -> None:
        assert self.depth > 0, "the device is not current"


@dataclass(frozen=True)
class FakeCompiler:
    """The device's."""

    gpu: FakeDevice
    version: str = "fake 1.0"
    options: str = ""

    def compile(self, name: str, text: str, _: str) -> Compiled:
        return self.gpu.compile(name, text)


class FakeFlag:
    """A number that nobody waits for."""

    def __init__(self, gpu: FakeDevice) -> None:
        self.address, self._gpu = 0, gpu

    def set(self, value: int) -> None:
        self._gpu.queue.append(f"gate {value}")


class FakeEvent:
    """The time at which it is recorded: what is queued is done at once."""

    def __init__(self, gpu: FakeDevice) -> None:
        self._gpu, self.at_us = gpu, 0.0

    def record(self) -> None:
        self._gpu.queue.append("event")
        self.at_us = self._gpu.now_us

    def us_since(self, earlier: Any) -> float:
        return float(self.at_us - earlier.at_us)


class FakeGraph:
    """Launches that are carried out when it is replayed; each takes 2 us."""

    def __init__(self, gpu: FakeDevice, queue: Callable[[int], None], closed: Callable[[], None]) -> None:
        self.gpu, self.queue, self.closed = gpu, queue, closed  # a graph keeps all that its launches need
        self.launches: list[tuple[str, Mapping[str, int], Callable[[], None]]] = []  # by variant and addresses
        self.replayed: list[int] = []  # on which streams

    def replay(self, stream: int = 1) -> None:
        assert self in self.gpu.graphs
        self.replayed.append(stream)
        for _, _, launch in self.launches:
            launch()

    def time_us(self) -> float:
        self.replay(7)
        return 2.0 * len(self.launches)

    def close(self) -> None:
        self.gpu.graphs.remove(self)
        self.closed()


class FakeCode:
    """A variant that the device can run, or service kernels."""

    def __init__(self, gpu: FakeDevice, compiled: Compiled, variant: Variant | None) -> None:
        self.gpu, self.compiled, self.variant = gpu, compiled, variant

    def prepare(self, extents: Extents, steps: Sequence[Step]) -> FakePrepared:
        if self.variant is not None:
            self.gpu.prepared.append(self.variant.name)
        return FakePrepared(self, extents, tuple(steps))

    def function(self, entry: str, _: int) -> int:
        """A handle, from 1 on."""
        named = (self.compiled.name, entry)
        if named not in self.gpu.handles:
            self.gpu.handles.append(named)
        return 1 + self.gpu.handles.index(named)

    def attributes(self, entry: str) -> KernelAttributes:
        return KernelAttributes(24, 8, 512)

    def unload(self) -> None:
        """Nothing is kept."""


class FakePrepared:
    """Launches that run at once."""

    def __init__(self, code: FakeCode, extents: Extents, steps: tuple[Step, ...]) -> None:
        self._code, self._extents, self._steps = code, extents, steps

    def launch(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> None:
        gpu, variant = self._code.gpu, self._code.variant
        assert gpu.depth > 0, "the device is not current"
        if variant is None:
            for step in self._steps:
                gpu.queue.append(step.entry)
                _SERVICE.get(step.entry, _nothing)(gpu, *(one[1] for one in step.arguments if not isinstance(one, str)))
            return
        if gpu.failing:
            gpu.failing -= 1
            raise RunError(variant.name, "cannot be launched", "the test wants it")
        given, values = dict(addresses), dict(numbers)
        if gpu.capturing is not None:
            gpu.capturing.launches.append((variant.name, given, lambda: self._run(given, values)))
            return
        if self._steps:
            gpu.launched.append(Launched(variant.name, given, values, stream, self._steps))
            self._run(given, values)

    def _run(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes]) -> None:
        gpu, variant = self._code.gpu, self._code.variant
        assert variant is not None
        name = variant.name
        gpu.queue.append("launch")
        gpu.now_us += gpu.takes_us.pop(0) if gpu.takes_us else gpu.times_us.get(name, gpu.usual_us)
        count = gpu.counts[name] = gpu.counts.get(name, 0) + 1
        if count < gpu.idle.get(name, 1 << 30):
            compute(gpu, variant, self._extents, addresses, numbers)
        if name in gpu.after:
            gpu.after[name](gpu, addresses, count)


def compute(
    gpu: FakeDevice, variant: Variant, extents: Extents, addresses: Mapping[str, int], numbers: Mapping[str, bytes]
) -> None:
    """Has a variant computed on the arrays that lie at these addresses."""
    buffers: dict[str, Any] = {}
    written: dict[str, Array] = {}
    layouts = variant.family.layouts(variant.spec, extents)
    for operand in variant.spec.operands:
        if operand.role == "number":
            given = numbers.get(operand.name, operand.dtype.numpy.type(1).tobytes())  # 1: launches that are timed
            buffers[operand.name] = np.frombuffer(given, operand.dtype.numpy)[0]
            continue
        layout, address = layouts[operand.name], addresses[operand.name]
        buffers[operand.name] = at(address, layout)
        memory, _ = gpu.at(address, 0)
        if memory is not None:
            written[operand.name] = _elements(memory, address, layout)
            assert operand.role != "in" or written[operand.name].all(), "bytes that were never written"
    outputs = [operand.name for operand in variant.spec.operands if operand.role in ("out", "inout")]
    skipped = {name: buffers[name][last(buffers[name])].copy() for name in outputs if variant.name in gpu.skipping}
    if gpu.runner is not None:
        gpu.runner.load([variant])[0].run(extents, buffers)
    for name in outputs:
        place = last(buffers[name]) if name in skipped else None
        flags = written.get(name, np.zeros(0, np.bool_))
        kept = flags[place].copy() if place is not None and flags.size else None
        flags[...] = True
        if place is not None:
            buffers[name][place] = skipped[name]
        if kept is not None:
            flags[place] = kept


def at(address: int, layout: Layout) -> Array:
    """The array that lies at an address of host memory."""
    interface = {
        "data": (address, False), "shape": layout.shape, "strides": layout.strides, "typestr": layout.dtype.str,
        "version": 3,
    }  # fmt: skip
    found: Array = np.asarray(type("_At", (), {"__array_interface__": interface})())
    return found if found.dtype == layout.dtype else found.view(layout.dtype)  # of bfloat16 the text says the size


def _elements(memory: FakeMemory, address: int, layout: Layout) -> Array:
    """Whether the bytes of an array's elements were written; the array must lie in its allocation."""
    shape, strides = (*layout.shape, layout.dtype.itemsize), (*layout.strides, 1)
    found: Array = np.ndarray(shape, np.bool_, memory.written.data, address - memory.address, strides)
    return found


# ---- the kernels of kernels.cu, by NumPy


def _nothing(*_: object) -> None:
    """Neither reads nor writes anything that shows."""


def _fill(gpu: FakeDevice, address: int, word: int, vectors: int) -> None:
    gpu.upload(address, np.full(4 * vectors, word, np.uint32).view(np.uint8))


def _random(gpu: FakeDevice, address: int, seed: int, kind: int, words: int) -> None:
    random = np.random.default_rng((seed, kind))
    if kind in DTYPES:
        dtype = np.dtype(DTYPES[kind])
        count = 4 * words // dtype.itemsize
        content = (random.integers(1, 9, count) * random.choice((-1, 1), count)).astype(dtype)
    else:
        content = random.integers(0, 2 if kind == 5 else 256, 4 * words, np.uint8)
    gpu.upload(address, content.view(np.uint8))


def _checksum(gpu: FakeDevice, address: int, words_at: int, words: int) -> None:
    content = gpu.read(address, 4 * words).view(np.uint32)
    place = np.arange(words, dtype=np.uint64)
    digest = ((content + np.uint64(0x9E3779B97F4A7C15)) * (2 * place + np.uint64(1))).sum(dtype=np.uint64)
    gpu.upload(words_at, np.array([digest], np.uint64).view(np.uint8))


def _count(gpu: FakeDevice, wrong: Array, places: Array, count_at: int, first_at: int) -> None:
    if wrong.any():
        gpu.upload(count_at, np.array([wrong.sum()], np.uint64).view(np.uint8))
        gpu.upload(first_at, np.array([places[wrong].min()], np.uint64).view(np.uint8))


def _compare_words(gpu: FakeDevice, got: int, expected: int, count_at: int, first_at: int, words: int) -> None:
    one, other = (gpu.read(address, 4 * words).view(np.uint32) for address in (got, expected))
    _count(gpu, one != other, np.arange(words), count_at, first_at)


def _rows(gpu: FakeDevice, address: int, size: int, row: int, pitch: int, count: int) -> Array:
    """Elements of rows, as bytes."""
    place = np.arange(count)
    starts = place // row * pitch + place % row * size
    content = gpu.read(address, int(starts[-1]) + size)
    found: Array = content[starts[:, None] + np.arange(size)]
    return found


def _compare_elements(
    gpu: FakeDevice, got: int, expected: int, size: int, row: int, pitch: int, count_at: int, first_at: int, count: int
) -> None:
    one, other = (_rows(gpu, address, size, row, pitch, count) for address in (got, expected))
    _count(gpu, (one != other).any(axis=1), np.arange(count), count_at, first_at)


def _compare_gaps(
    gpu: FakeDevice, address: int, poison: int, row: int, pitch: int, count_at: int, first_at: int, count: int
) -> None:
    gap = pitch - row
    places = np.arange(count) // gap * pitch + row + np.arange(count) % gap
    content = gpu.read(address, int(places[-1]) + 1)[places]
    word = np.array([poison], np.uint32).view(np.uint8)
    _count(gpu, content != word[places % 4], places, count_at, first_at)


def _compare_bound(
    gpu: FakeDevice, got: int, kind: int, size: int, row: int, pitch: int, expected: int, magnitude: int,
    relative: float, unit: float, absolute: float, largest: float, count_at: int, first_at: int, count: int,
) -> None:  # fmt: skip
    one = _rows(gpu, got, size, row, pitch, count)
    value = one.copy().view(DTYPES[kind]).reshape(-1).astype(np.float64)
    right, scale = (gpu.read(address, 8 * count).view(np.float64) for address in (expected, magnitude))
    with np.errstate(invalid="ignore"):
        near = np.isfinite(right) & (np.abs(value - right) <= relative * scale + unit * np.abs(right) + absolute)
        fits = (value == right) | (np.isnan(value) & np.isnan(right)) | (scale > largest) | near
    _count(gpu, ~fits, np.arange(count), count_at, first_at)


_SERVICE: Mapping[str, Callable[..., None]] = {
    "_fill": _fill, "_copy": lambda gpu, source, target, vectors: gpu.copy(source, target, 16 * vectors),
    "_random": _random, "_checksum": _checksum, "_compare_words": _compare_words,
    "_compare_elements": _compare_elements, "_compare_gaps": _compare_gaps, "_compare_bound": _compare_bound,
}  # fmt: skip
