"""Variants on a device: compiled, loaded, launched step by step; the runner that proves them there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gen.errors import DeviceError, RunError
from gen.families.base import Array, Extents, Limits, Scratch, Variant
from gen.families.plans import Step, steps
from gen.gpu.device import LEGACY_STREAM, Device, Graph, KernelAttributes, Memory, bytes_at
from gen.toolchain.compiled import Compiled, Compiler

RED_ZONE = 4096  # bytes kept around each array, which no kernel may write
MOVED = 1 << 20  # bytes of scratch that are cheap to have in several places
SPREAD, STEP = 1 << 16, 15 << 9  # bytes of which such a place is a part, and by which it lies further in than the last
_RED = 0xC5


class CudaKernel:
    """A variant on a device, on the legacy default stream, with scratch of its own that stays from run to run."""

    def __init__(self, variant: Variant, compiled: Compiled, device: Device, limits: Limits) -> None:
        self.variant = variant
        self._compiled, self._device, self._limits = compiled, device, limits
        self._plan = variant.plan
        self._code = device.timer.load(compiled, variant)
        self._scratch: dict[tuple[str, int], Memory] = {}

    @property
    def attributes(self) -> KernelAttributes:
        """What its kernels take: the most of each."""
        every = [self._code.attributes(launch.entry) for launch in self._plan.launches]
        return KernelAttributes(
            max(one.registers for one in every),
            max(one.local_bytes for one in every),
            max(one.static_shared_bytes for one in every),
        )

    def steps(self, extents: Extents) -> tuple[Step, ...]:
        """Every launch of a call at these sizes."""
        return tuple(steps(self._plan, {**extents, **self._limits.sizes()}))

    def launches(self, planned: Sequence[Step], extents: Extents, addresses: Mapping[str, int]) -> Callable[[], None]:
        """What queues launches, time after time; `addresses` are those of operands and scratch by name."""
        prepared = self._code.prepare(extents, planned)
        return lambda: prepared.launch(addresses, {}, LEGACY_STREAM)

    def graph(self, planned: Sequence[Step], extents: Extents, addresses: Mapping[str, int], times: int) -> Graph:
        """A graph of the launches, carried out `times` times one after another; close it to have its memory back."""
        code = self._device.load(self._compiled, self.variant)
        prepared = code.prepare(extents, planned)

        def queue(stream: int) -> None:
            for _ in range(times):
                prepared.launch(addresses, {}, stream)

        return self._device.capture(queue, code.unload)

    def scratch(self, extents: Extents, place: int = 0) -> dict[str, int]:
        """Addresses of the scratch memory; what is kept zero is zeroed when it is made.

        Blocks meet in scratch, and how far that is from each of them is a matter of its address, of its lower bits as
        well: `place` numbers places that are equally good. Large scratch has one place only.
        """
        sizes = {**extents, **self._limits.sizes()}
        found = {}
        for scratch in self._plan.scratch:
            needed = scratch.bytes.at(sizes)
            try:
                found[scratch.name] = self._address(scratch, needed, place if needed <= MOVED else 0)
            except DeviceError:  # no room: it stays where it was
                found[scratch.name] = self._address(scratch, needed, 0)
        return found

    def _address(self, scratch: Scratch, needed: int, place: int) -> int:
        """Of one of its places. Raises DeviceError if there is no memory for it."""
        key, offset = (scratch.name, place), place * STEP % SPREAD
        size = needed + SPREAD if place else needed
        if key not in self._scratch or self._scratch[key].size < size:
            self._scratch[key] = self._device.allocate(size)
            if scratch.zeroed:
                self._device.zero(self._scratch[key].address + offset, needed)
        return self._scratch[key].address + offset

    def discard_scratch(self) -> None:
        """Forgets scratch that a failed launch may have left in any state."""
        self._scratch.clear()

    def run(self, extents: Extents, buffers: Mapping[str, Any]) -> None:
        """Runs the plan once on NumPy arrays, copied to the device and back.

        Raises RunError if a launch fails, or writes next to an array.
        """
        spans = {name: _Span(self._device, buffers[name]) for name in buffers}
        addresses = self.scratch(extents) | {name: span.address for name, span in spans.items()}
        try:
            self.launches(self.steps(extents), extents, addresses)()
            self._device.synchronize()
        except RunError:
            self.discard_scratch()
            raise
        for name, span in spans.items():
            if not span.fetch():
                raise RunError(f"{self.variant.name}: {name}", "must not be written outside of its bytes")


class CudaRunner:
    """A device as a place where plans run.

    Attributes:
        limits: the device it plays; the real one's, unless `on` says otherwise.
    """

    def __init__(self, device: Device, compiler: Compiler, text: Callable[[Variant], str]) -> None:
        self.limits = device.limits
        self._device = device
        self._compiler = compiler
        self._text = text

    def on(self, limits: Limits) -> CudaRunner:
        """The same device, with plans made for other limits: fewer multiprocessors make loops over the grid loop."""
        other = CudaRunner(self._device, self._compiler, self._text)
        other.limits = limits
        return other

    def cannot_run(self, _: Variant) -> str | None:
        """It runs all."""
        return None

    def load(self, variants: Sequence[Variant]) -> tuple[CudaKernel, ...]:
        """Compiles what is not in the cache, and loads it."""
        return tuple(
            CudaKernel(
                variant,
                self._compiler.compile(variant.name, self._text(variant), self._device.limits.arch),
                self._device,
                self.limits,
            )
            for variant in variants
        )


class _Span:
    """A NumPy array's bytes on the device, from the first to the last, at the same place within 256 bytes."""

    def __init__(self, device: Device, array: Array) -> None:
        self._device = device
        self._host = _bytes_of(array)
        first = int(array.__array_interface__["data"][0]) % 256
        size = self._host.size
        self._memory = device.allocate(2 * RED_ZONE + first + size)
        self._before = RED_ZONE + first
        self.address = self._memory.address + self._before
        content = np.full(self._memory.size, _RED, np.uint8)
        content[self._before : self._before + size] = self._host
        device.upload(self._memory.address, content)

    def fetch(self) -> bool:
        """Copies the bytes back; whether the red zones around them are whole."""
        content = bytes_at(self._device, self._memory.address, self._memory.size)
        end = self._before + self._host.size
        self._host[...] = content[self._before : end]
        return bool((content[: self._before] == _RED).all() and (content[end:] == _RED).all())


def _bytes_of(array: Array) -> Array:
    """All bytes between an array's first and last, gaps between rows included, as a view."""
    low = int(array.__array_interface__["data"][0])
    high = low
    if array.size:
        high += array.itemsize + sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True))
    interface = {"data": (low, False), "shape": (high - low,), "typestr": "|u1", "version": 3}
    return np.asarray(type("_View", (), {"__array_interface__": interface, "_keep": array})())
