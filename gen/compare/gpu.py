"""One GPU as all contenders use it: memory, graphs, and times from one clock."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gen.compare.case import Shape
from gen.compare.peers.base import SharedArray
from gen.dtypes import U8, DType
from gen.errors import GenError, RunError
from gen.families.base import Array, Work
from gen.families.extents import dense_strides
from gen.gpu.device import Device, Graph, bytes_at
from gen.gpu.service import ElementRows
from gen.gpu.timing import Protocol as Caches
from gen.gpu.timing import Sample

if TYPE_CHECKING:
    from gen.tune.gpu_session import CalibratedGpu

POISON = 0xFFC1A5A5  # not a number in f32, and large in all integers
_VECTOR = 16  # bytes: what service kernels move at a time
_QUICK_SAMPLES = 5  # of a time that only chooses


class LostError(GenError):
    """The GPU no longer answers: whoever was at work took it down."""


class ComparisonGpu:
    """A GPU with the instruments that measure it.

    Attributes:
        backend: what `gen.load` takes as its device.
        arch: for instance `sm_90`.
        index: the driver's number of it.
    """

    def __init__(self, gpu: CalibratedGpu) -> None:
        """Takes the instruments of the process that drives the GPU."""
        self.backend: Device = gpu.device
        self.arch, self.index = gpu.device.limits.arch, gpu.device.index
        self._gpu, self._service, self._clock = gpu, gpu.service, gpu.clock

    def array(self, shape: Shape, element: DType) -> SharedArray:
        """New memory, full of NaN or large numbers."""
        made = self._empty(shape, element)
        self._service.fill(made.address, _in_vectors(made.nbytes), POISON)
        return made

    def random(self, shape: Shape, element: DType, seed: int, *, gap: int = 0, offset: int = 0) -> SharedArray:
        """New memory with random elements, as tuning has them.

        Args:
            shape: of the array.
            element: its type.
            seed: of its content.
            gap: elements by which rows lie further apart than they must.
            offset: elements that lie in front of the first.
        """
        view = lying(shape, element, gap)
        made = self._empty((offset + -(-view.nbytes // element.size),), element)
        self._service.random(made.address, _in_vectors(made.nbytes), seed, element)
        return replace(view, address=made.address + offset * element.size, owner=made.owner)

    def copy(self, source: SharedArray) -> SharedArray:
        """New memory with the same content, whose elements follow each other."""
        if source.strides is not None:
            content = elements_of(source, self.download(source.address, source.nbytes))
            return replace(self.upload(content), shape=source.shape, element=source.element)
        made = self._empty(source.shape, source.element)
        self.backend.copy(source.address, made.address, source.nbytes)
        return made

    def upload(self, content: Array) -> SharedArray:
        """Memory that holds a contiguous array."""
        made = self._empty((content.nbytes,), U8)
        self.backend.upload(made.address, content.reshape(-1).view(U8.numpy))
        return made

    def download(self, address: int, size: int) -> Array:
        """Bytes from the GPU, after all that is queued."""
        self.backend.synchronize()
        return bytes_at(self.backend, address, size)

    def differing(self, got: int, expected: int, size: int, elements: int) -> int:
        """How many elements of so many bytes differ in a bit."""
        return self._service.differing(got, expected, ElementRows(1, elements, size, elements * size))[0]

    def graph(self, queue: Callable[[int], None]) -> Graph:
        """Captures what `queue` queues on the stream whose handle it is given."""
        return self.backend.capture(queue)

    def time_in_order(self, samples: Sequence[Sample], caches: Caches) -> list[float]:
        """Microseconds, one sample after another in this order."""
        return self._clock.in_order(samples, caches)

    def time_us(self, launch: Callable[[], None]) -> float:
        """A quick time, to choose between launches."""
        launch()
        return statistics.median(self._clock.times(launch, _QUICK_SAMPLES))

    def limit_us(self, work: Work, caches: Caches) -> float:
        """The least time of such work, by the calibration."""
        return self._gpu.about.floor_us(work, caches)

    def clock_mhz(self) -> int:
        """The clock of the multiprocessors; 0 where NVML cannot tell."""
        return self._gpu.clocks().sm_mhz

    def synchronize(self) -> None:
        """Waits for all that is queued. Raises RunError if a launch failed on the way."""
        self.backend.synchronize()

    def check_alive(self) -> None:
        """Raises LostError where the GPU no longer answers."""
        try:
            self.synchronize()
        except RunError as error:
            raise LostError("The GPU", "no longer answers", error) from error

    def _empty(self, shape: Shape, element: DType) -> SharedArray:
        size = element.size
        for extent in shape:
            size *= extent
        memory: Any = self.backend.allocate(_in_vectors(size))
        return SharedArray(memory.address, shape, element, memory)


def lying(shape: Shape, element: DType, gap: int) -> SharedArray:
    """An array without memory yet, whose rows lie `gap` elements further apart than they must."""
    strides = dense_strides((*shape[:-1], shape[-1] + gap), element.size) if gap else None
    return SharedArray(0, shape, element, strides=strides)


def elements_of(array: SharedArray, content: Array) -> Array:
    """The elements of an array by its bytes, from its first to its last."""
    if array.strides is None:
        return content.view(array.dtype).reshape(array.shape)
    return np.ascontiguousarray(np.ndarray(array.shape, array.dtype, content.data, strides=array.strides))


def _in_vectors(size: int) -> int:
    """So many bytes, and what makes them whole vectors."""
    return -(-max(size, 1) // _VECTOR) * _VECTOR
