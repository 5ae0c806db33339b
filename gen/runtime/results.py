"""Results on a GPU, of the kind that the inputs are."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from math import prod
from typing import Any

import numpy as np

from gen.families.base import Array
from gen.gpu.device import LEGACY_STREAM, Device, Memory
from gen.runtime.arrays import Given, Kind, Shape, read


class DeviceArray:
    """A result on a GPU, where the input belonged to no library that makes arrays: dense, in row-major order.

    Attributes:
        shape: extents.
        dtype: NumPy's.
        device: the driver's number of the GPU.
    """

    def __init__(self, shape: Shape, dtype: np.dtype[Any], device: Device, stream: int) -> None:
        """Allocates it.

        Args:
            shape: extents.
            dtype: of the elements.
            device: where.
            stream: on which its content will be produced.
        """
        self.shape = shape
        self.dtype = dtype
        self.device = device.index
        self._device = device
        self._stream = stream
        self._memory: Memory = device.allocate(prod(shape) * dtype.itemsize)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3; `stream` is where its content is produced."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._memory.address, False),
            "strides": None,
            "stream": self._stream,
            "version": 3,
        }

    def numpy(self) -> Array:
        """A copy as a NumPy array; waits until the content is there."""
        content: Array = np.empty(self.shape, self.dtype)
        entered = self._device.enter()
        try:
            self._device.download(content, self._memory.address, self._stream)
            self._device.synchronize(self._stream)
        finally:
            self._device.leave(entered)
        return content

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"


def make(like: Given, shape: Shape, dtype: np.dtype[Any], device: Device, stream: int, chosen: bool) -> Given:
    """A result of the kind that `like` is, not yet written.

    Args:
        like: the first input.
        shape: extents.
        dtype: of the elements.
        device: where.
        stream: on which it is written.
        chosen: whether the caller named that stream; else it is the current one of the caller's library.
    """
    if like.kind is Kind.TORCH:
        torch: Any = sys.modules["torch"]
        kind = like.array.dtype if dtype == like.dtype else getattr(torch, dtype.name)
        with ExitStack() as context:
            if chosen:  # torch reuses memory in the order of the stream for which it was made
                handle = 0 if stream == LEGACY_STREAM else stream
                context.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(handle, device=like.array.device)))
            return read("out", torch.empty(shape, dtype=kind, device=like.array.device))
    if like.kind is Kind.CUPY:
        cupy: Any = sys.modules["cupy"]
        with ExitStack() as context:
            context.enter_context(cupy.cuda.Device(like.device))
            if chosen:
                context.enter_context(cupy_stream(cupy, stream))
            return read("out", cupy.empty(shape, dtype))
    return read("out", DeviceArray(shape, dtype, device, stream))


class _Stream:
    """A stream by its handle, as the CUDA stream protocol shows it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


def cupy_stream(cupy: Any, handle: int) -> Any:
    """CuPy's object for somebody's stream."""
    if handle == LEGACY_STREAM:
        return cupy.cuda.Stream.null
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_Stream(handle))
    return cupy.cuda.ExternalStream(handle)  # CuPy before 14
