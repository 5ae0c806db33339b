"""A device made of host memory: kernels run on the CPU when they are launched, streams are numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gen.errors import DeviceError, RunError
from gen.families.base import Array, Extents, Layout, Limits, Runner, Variant
from gen.families.plans import Step

Run = Callable[[Extents, Mapping[str, Any]], None]


class FakeMemory:
    """Host memory that plays the device's."""

    def __init__(self, size: int) -> None:
        self._bytes = np.full(size + 512, 0xAA, np.uint8)
        start = int(self._bytes.__array_interface__["data"][0])
        self.address = -(-start // 256) * 256
        self.size = size

    def view(self, shape: tuple[int, ...], dtype: Any, offset: int = 0) -> Array:
        """An array on it."""
        start = self.address - int(self._bytes.__array_interface__["data"][0]) + offset
        return np.ndarray(shape, dtype, self._bytes.data, start)


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


class FakeBackend:
    """A GPU that is none.

    Attributes:
        runner: computes, when a call is launched; None leaves results as they are.
        launched: every call.
        zeroed: address, bytes and stream of every buffer that was zeroed.
        waits: pairs of streams.
        foreign: addresses on another device, with its number.
        captures: the number of the graph that a stream is being captured into.
        identities: of streams, where it is not the handle.
        failing: how many launches are refused.
        free: bytes that are left.
        depth: how often the device was made current, less how often it was left.
    """

    def __init__(self, runner: Runner | None = None, name: str = "Fake GPU", index: int = 0) -> None:
        self.index = index
        self.name = name
        self.driver = "580.1, CUDA 13.0"
        self.limits = Limits.of("sm_90")
        self.runner = runner
        self.launched: list[Launched] = []
        self.loaded: list[str] = []
        self.prepared: list[str] = []
        self.allocated: list[int] = []
        self.zeroed: list[tuple[int, int, int]] = []
        self.waits: list[tuple[int, int]] = []
        self.synchronized: list[int] = []
        self.foreign: dict[int, int | None] = {}
        self.captures: dict[int, int] = {}
        self.identities: dict[int, Hashable] = {}
        self.failing = 0
        self.free = 1 << 40
        self.depth = 0

    def enter(self) -> bool:
        self.depth += 1
        return True

    def leave(self, entered: bool) -> None:
        assert entered
        self.depth -= 1

    def load(self, variant: Variant, text: str) -> FakeCode:
        self._check_current()
        assert variant.name in text
        self.loaded.append(variant.name)
        return FakeCode(self, variant, None if self.runner is None else self.runner.load([variant])[0].run)

    def allocate(self, size: int) -> FakeMemory:
        self._check_current()
        if size > self.free:
            raise DeviceError("The GPU's memory", f"does not hold {size} bytes more")
        self.allocated.append(size)
        return FakeMemory(size)

    def zero(self, address: int, size: int, stream: int) -> None:
        self.zeroed.append((address, size, stream))
        ctypes.memset(address, 0, size)

    def upload(self, address: int, content: Array, stream: int) -> None:
        self._check_current()
        assert content.flags.c_contiguous
        ctypes.memmove(address, content.__array_interface__["data"][0], content.nbytes)

    def download(self, content: Array, address: int, stream: int) -> None:
        self._check_current()
        assert content.flags.c_contiguous
        ctypes.memmove(content.__array_interface__["data"][0], address, content.nbytes)

    def synchronize(self, stream: int) -> None:
        self.synchronized.append(stream)

    def wait(self, stream: int, other: int) -> None:
        self.waits.append((stream, other))

    def device_of(self, address: int) -> int | None:
        return self.foreign.get(address, self.index)

    def capture_of(self, stream: int) -> int:
        return self.captures.get(stream, 0)

    def identity_of(self, stream: int) -> Hashable:
        return self.identities.get(stream, stream)

    def _check_current(self) -> None:
        assert self.depth > 0, "the device is not current"


class FakeCode:
    """A variant that the device could run."""

    def __init__(self, backend: FakeBackend, variant: Variant, run: Run | None) -> None:
        self.backend = backend
        self.variant = variant
        self.run = run

    def prepare(self, extents: Extents, steps: Sequence[Step]) -> FakePrepared:
        self.backend.prepared.append(self.variant.name)
        return FakePrepared(self, extents, tuple(steps))


class FakePrepared:
    """A call that runs at once."""

    def __init__(self, code: FakeCode, extents: Extents, steps: tuple[Step, ...]) -> None:
        self._code = code
        self._extents = extents
        self._steps = steps

    def launch(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> None:
        backend, variant = self._code.backend, self._code.variant
        assert backend.depth > 0, "the device is not current"
        if backend.failing:
            backend.failing -= 1
            raise RunError(variant.name, "cannot be launched", "the test wants it")
        backend.launched.append(Launched(variant.name, dict(addresses), dict(numbers), stream, self._steps))
        if self._code.run is None:
            return
        layouts = variant.family.layouts(variant.spec, self._extents)
        buffers: dict[str, Any] = {name: at(addresses[name], layout) for name, layout in layouts.items()}
        for operand in variant.spec.operands:
            if operand.role == "number":
                buffers[operand.name] = np.frombuffer(numbers[operand.name], operand.dtype.numpy)[0]
        self._code.run(self._extents, buffers)


def at(address: int, layout: Layout) -> Array:
    """The array that lies at an address of host memory."""
    interface = {
        "data": (address, False), "shape": layout.shape, "strides": layout.strides, "typestr": layout.dtype.str,
        "version": 3,
    }  # fmt: skip
    found: Array = np.asarray(type("_At", (), {"__array_interface__": interface})())
    return found if found.dtype == layout.dtype else found.view(layout.dtype)  # of bfloat16 the text says the size
