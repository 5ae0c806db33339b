"""Kernels on a GPU whose arrays have nothing around them, so that memcheck sees who reads or writes there.

The runner of the other tests keeps red zones around arrays, in the same allocation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.runner import CudaRunner, bytes_of
from gen.errors import RunError
from gen.families.base import Array, Kernel, Limits, Variant

if TYPE_CHECKING:
    from gen.gpu.device import Device
    from gen.gpu.kernel import CudaKernel

LEAST_BYTES = 16  # bytes: gen's smallest allocation


class Span:
    """An array's bytes on the device, with nothing behind them, at the same place within 256 bytes.

    The runner of the other tests keeps red zones around arrays, in the same allocation: memcheck would not see who
    reads there.
    """

    def __init__(self, device: Device, array: Array, *, blank: bool) -> None:
        """Copies an array to the device; with `blank`, all but its elements, so that initcheck sees who reads those."""
        self._device = device
        self._host = bytes_of(array)
        first = int(array.__array_interface__["data"][0]) % 256
        # A smaller allocation would be rounded up, behind the array.
        before = first if first + self._host.size >= LEAST_BYTES else 256 + first
        self._memory = device.allocate(before + self._host.size)
        self.address = self._memory.address + before
        for start, end in gaps_of(array) if blank else [(0, self._host.size)]:
            device.upload(self.address + start, self._host[start:end])

    def fetch(self) -> None:
        """Copies the bytes back; initcheck reports those that were never written."""
        if self._host.size:
            self._device.download(self._host, self.address)


@dataclass
class ExactKernel:
    """A kernel whose arrays, and whose scratch in every problem, lie in allocations of exactly their size."""

    variant: Variant
    kernel: CudaKernel
    device: Device
    blank: bool
    _sizes: dict[str, int] = field(default_factory=dict)

    def run(self, extents: Mapping[str, int], buffers: Mapping[str, Any]) -> None:
        """Runs the plan once on NumPy arrays, copied to the device and back. Raises RunError if a launch fails."""
        if self._sizes != dict(extents):
            self.kernel.discard_scratch()
            self._sizes = dict(extents)
        written = {operand.name for operand in self.variant.spec.operands if operand.role == "out"}
        spans = {
            name: Span(self.device, array, blank=self.blank and name in written) for name, array in buffers.items()
        }
        addresses = self.kernel.scratch(extents) | {name: span.address for name, span in spans.items()}
        try:
            self.kernel.launches(self.kernel.steps(extents), extents, addresses)()
            self.device.synchronize()
        except RunError:
            self.kernel.discard_scratch()
            raise
        for span in spans.values():
            span.fetch()


@dataclass
class ExactRunner:
    """A GPU as a place where kernels run on arrays with nothing around them.

    Attributes:
        blank: outputs are not initialised.
        limits: of the device it plays.
    """

    runner: CudaRunner
    device: Device
    blank: bool
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = self.runner.limits

    def on(self, limits: Limits) -> ExactRunner:
        """The same device, with plans made for other limits."""
        return ExactRunner(self.runner.on(limits), self.device, self.blank)

    def cannot_run(self, variant: Variant) -> str | None:
        """Its tools are for kernels that the host launches."""
        return "its kernels launch kernels" if variant.algorithm.links else None

    def load(self, variants: Sequence[Variant]) -> tuple[Kernel, ...]:
        """Makes variants ready."""
        kernels = self.runner.load(variants)
        return tuple(ExactKernel(kernel.variant, kernel, self.device, self.blank) for kernel in kernels)


def gaps_of(array: Array) -> list[tuple[int, int]]:
    """Where the bytes of `bytes_of` belong to no element, as (start, end)."""
    inside = np.zeros(bytes_of(array).size, np.bool_)
    if array.size:
        shape, strides = (*array.shape, array.itemsize), (*array.strides, 1)
        np.lib.stride_tricks.as_strided(inside, shape, strides)[...] = True
    edges = np.flatnonzero(np.diff(np.concatenate(([True], inside, [True])).astype(np.int8)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]
