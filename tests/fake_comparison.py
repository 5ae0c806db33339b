"""A GPU made of host memory on which contenders are compared: times are invented, results are not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from bench.gpu import BenchGpu
from bench.stencils import NAME as EXACT
from gen.compare.case import Shape
from gen.compare.checks import Rounding, stepped
from gen.compare.gpu import lying
from gen.compare.peers.base import SharedArray
from gen.compare.row import abba
from gen.dtypes import I64, U8, DType
from gen.errors import RunError
from gen.families.base import Array, Launch, Limits, Operand, Plan, Work
from gen.families.expr import constant
from gen.gpu.timing import Protocol, Sample
from gen.paths import cache_home, output_home
from gen.proof.error_bounds import Allowance
from gen.proof.host import HostRunner
from tests.fake_device import FakeDevice, FakeMemory
from tests.fake_family import fake_variant
from tests.fakes import OracleRunner


@dataclass
class FakeReplay:
    """Queues again what was captured, at once."""

    queue: Callable[[int], None]
    open: list[FakeReplay]

    def replay(self, stream: int = 7) -> None:
        self.queue(stream)

    def time_us(self) -> float:
        return 1.0

    def close(self) -> None:
        self.open.remove(self)


@dataclass
class FakeGpu(BenchGpu):
    """Where a comparison runs without a GPU.

    Attributes:
        times: of one launch by our own kernel and by the other, in microseconds.
        runner: computes our kernels.
        graphs: captured, and not closed.
        orders: the protocol and the number of samples of every call of `time_in_order`.
        lost: it no longer answers.
        sizes: bytes of every array, by address.
        clocks: what the next looks at the clock see.
        again: how much longer our kernel takes when it is timed against itself.
        beside: how much longer it takes beside another contender.
        captures: how many graphs there may be yet.
        timed: every sample, by its identity, and whether it launches our kernel.
    """

    times: tuple[float, float] = (10.0, 12.0)
    runner: OracleRunner = field(default_factory=OracleRunner)
    cache: Path = field(default_factory=lambda: cache_home(output_home()))
    arch: str = "sm_90"
    index: int = 0
    graphs: list[FakeReplay] = field(default_factory=list)
    orders: list[tuple[Protocol, int]] = field(default_factory=list)
    lost: bool = False
    sizes: dict[int, int] = field(default_factory=dict)
    clocks: list[int] = field(default_factory=list)
    backend: Any = None
    again: float = 1.0
    beside: float = 1.0
    captures: int = 1 << 30
    timed: dict[int, tuple[Sample, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.backend = FakeDevice(self.runner)

    def array(self, shape: Shape, element: DType) -> SharedArray:
        made = FakeMemory(max(int(np.prod(shape)) * element.size, 1))  # full of 0xAA
        self.sizes[made.address] = made.size
        return SharedArray(made.address, shape, element, made)

    def random(self, shape: Shape, element: DType, seed: int, *, gap: int = 0, offset: int = 0) -> SharedArray:
        lies = lying(shape, element, gap)
        memory = self.array((offset + -(-lies.nbytes // element.size),), element)
        made = replace(lies, address=memory.address + offset * element.size, owner=memory.owner)
        random = np.random.default_rng(seed)
        if element.kind == "float":
            content = random.integers(1, 9, shape) * random.choice((-1, 1), shape)
        else:
            content = random.integers(0, 100, shape)
        view(made)[...] = content
        return made

    def copy(self, source: SharedArray) -> SharedArray:
        made = self.array(source.shape, source.element)
        view(made)[...] = view(source)
        return made

    def upload(self, content: Array) -> SharedArray:
        made = self.array((content.nbytes,), U8)
        view(made)[...] = content.reshape(-1).view(np.uint8)
        return made

    def download(self, address: int, size: int) -> Array:
        return at(address, (size,), np.dtype(np.uint8)).copy()

    def differing(self, got: int, expected: int, size: int, elements: int) -> int:
        one, other = (at(address, (elements, size), np.dtype(np.uint8)) for address in (got, expected))
        return int((one != other).any(axis=1).sum())

    def beyond(self, got: int, dtype: DType, elements: int, value: int, magnitude: int, allowed: Allowance) -> int:
        one = at(got, (elements,), dtype.numpy).astype(np.float64)
        right, size = (at(address, (elements,), np.dtype(np.float64)) for address in (value, magnitude))
        bound = allowed.relative * size + allowed.unit * np.abs(right) + allowed.absolute
        return int((~(np.abs(one - right) <= bound)).sum())

    def graph(self, queue: Callable[[int], None]) -> FakeReplay:
        self.captures -= 1
        if self.captures < 0:
            raise RunError("cuGraphInstantiate", "failed", "out of memory")
        queue(7)
        self.graphs.append(FakeReplay(queue, self.graphs))
        return self.graphs[-1]

    def compile(self, name: str, source: str) -> Callable[..., None]:
        if name == EXACT:  # many steps: its text itself is run by the test of it
            return exact_kernel(source)

        def launch(_: int, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any]) -> None:
            run_on_host(self, name, source, grid, block, arguments)

        return launch

    def time_in_order(self, samples: Sequence[Sample], caches: Protocol) -> list[float]:
        self.orders.append((caches, len(samples)))
        ours = {id(sample): self._is_ours(sample) for sample in dict.fromkeys(samples)}
        factor = 50 if caches is Protocol.HOT else 1
        itself = all(ours.values())
        times = []
        for sample, second in zip(samples, abba(len(samples) // 2), strict=True):
            own, other = self.times
            time = own * (self.again if second and itself else self.beside if not itself else 1.0)
            times.append(factor * (time if ours[id(sample)] else other))
        return times

    def _is_ours(self, sample: Sample) -> bool:
        """Whether it launches our kernel: it is run once, however often it is timed."""
        if id(sample) not in self.timed:
            before = len(self.backend.launched)
            sample.setup()
            sample.launch()
            self.timed[id(sample)] = sample, len(self.backend.launched) > before
        return self.timed[id(sample)][1]

    def time_us(self, launch: Callable[[], None]) -> float:
        return 1.0

    def limit_us(self, work: Work, caches: Protocol) -> float:
        return 5.0

    def clock_mhz(self) -> int:
        return self.clocks.pop(0) if self.clocks else 0

    def synchronize(self) -> None:
        if self.lost:
            raise RunError("The GPU", "reports that a launch failed", "an illegal address")


def view(array: SharedArray) -> Array:
    """The array's elements."""
    if array.strides is not None:
        memory = at(array.address, (array.nbytes,), np.dtype(np.uint8))
        return np.ndarray(array.shape, array.dtype, memory.data, strides=array.strides)
    return at(array.address, array.shape, array.dtype)


def at(address: int, shape: Shape, dtype: Any) -> Array:
    """Elements at an address of host memory."""
    size = dtype.itemsize
    interface = {"data": (address, False), "shape": (*shape, size), "typestr": "|u1", "version": 3}
    raw = np.asarray(type("_At", (), {"__array_interface__": interface})())
    return np.ndarray(shape, dtype, raw.data if raw.size else b"")


def exact_kernel(source: str) -> Callable[..., None]:
    """What the kernel that says what a stencil must give does, by NumPy: the macros before its text say what."""
    macros = dict(re.findall(r"#define (\w+) ?(.*)", source))

    def begin(*launch: Any) -> None:
        source_at, value, off, (_, count) = launch[-1]
        dtype = {"float": np.float32, "double": np.float64, "__half": np.float16}[macros["ELEMENT"]]
        at(value, (count,), np.dtype(np.float64))[...] = at(source_at, (count,), np.dtype(dtype))
        at(off, (count,), np.dtype(np.float64))[...] = 0

    if "GEN_BEGIN" in macros:
        return begin
    shape, radius = _numbers(macros["kExtents"], int), int(macros["kRadius"])
    offsets = [_numbers(one, int) for one in re.findall(r"{([^}]*)}", macros["kOffsets"])]
    taps = tuple(zip(offsets, _numbers(macros["kWeights"], float), strict=True))
    reach = (radius,) * len(shape)
    spec: Any = SimpleNamespace(taps=taps, axes=shape, before=reach, after=reach)
    frozen = np.full(shape, macros["kFrozen"] == "1")
    frozen[(slice(radius, -radius),) * len(shape)] = False
    frozen = np.pad(frozen, radius)
    rounding = Rounding(float(macros["kRelative"]), float(macros["kAbsolute"]))

    def step(*launch: Any) -> None:
        value, off, next_value, next_off = (at(address, shape, np.dtype(np.float64)) for address in launch[-1][:4])
        values, offs = (np.pad(array, radius, "wrap") for array in (value, off))
        next_value[...], next_off[...] = stepped(spec, rounding, values, offs, frozen)

    return step


def _numbers(text: str, kind: Any) -> tuple[Any, ...]:
    return tuple(kind(part) for part in text.split(","))


def run_on_host(
    gpu: FakeGpu, name: str, source: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any]
) -> None:
    """Runs a kernel's text once on the CPU, every access checked."""
    values = [argument if isinstance(argument, tuple) else ("P", argument) for argument in arguments]
    arrays = {f"array{place}": value for place, (kind, value) in enumerate(values) if kind == "P"}
    numbers = [f"array{place}" if kind == "P" else (I64, constant(value)) for place, (kind, value) in enumerate(values)]
    x, y, z = map(constant, grid)
    launch = Launch((x, y, z), (block[0], block[1], block[2]), tuple(numbers))
    made = fake_variant("plain", tuple(Operand(array, "inout", U8, (array,)) for array in arrays), Plan((launch,)))
    runner = HostRunner(
        Limits.of("sm_90"), cache=gpu.cache, text=lambda one: source.replace(f"void {name}(", f"void {one.name}(")
    )
    extents = {array: gpu.sizes[address] for array, address in arrays.items()}
    buffers = {array: at(address, (extents[array],), np.dtype(np.uint8)) for array, address in arrays.items()}
    runner.load([made])[0].run(extents, buffers)
