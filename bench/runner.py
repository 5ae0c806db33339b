"""A GPU as a place where variants are proven: on NumPy arrays that are copied there, between red zones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gen.errors import RunError
from gen.families.base import Array, Extents, Limits, Variant
from gen.families.extents import byte_bounds
from gen.gpu.device import Device, bytes_at
from gen.gpu.kernel import CudaKernel
from gen.toolchain.compiled import Compiler

RED_ZONE = 4096  # bytes kept around each array, which no kernel may write
_RED = 0xC5


class ProvableKernel(CudaKernel):
    """A variant on a device that runs on NumPy arrays."""

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

    def load(self, variants: Sequence[Variant]) -> tuple[ProvableKernel, ...]:
        """Compiles what is not in the cache, and loads it."""
        return tuple(
            ProvableKernel(
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
        self._host = bytes_of(array)
        first = array.ctypes.data % 256
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


def bytes_of(array: Array) -> Array:
    """All bytes between an array's first and last, gaps between rows included, as a view."""
    _, size = byte_bounds(array.shape, array.strides, array.itemsize)
    interface = {"data": (array.ctypes.data, False), "shape": (size,), "typestr": "|u1", "version": 3}
    return np.asarray(type("_View", (), {"__array_interface__": interface, "_keep": array})())
