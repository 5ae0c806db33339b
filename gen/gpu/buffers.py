"""The arrays of a problem on a device: inputs, outputs, and what is changed in place, each between red zones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gen.families.base import Array, Layout, Operand
from gen.gpu.device import Device, Memory, bytes_at
from gen.gpu.service import Rows, Service
from gen.gpu.trial import Problem

RED_ZONE = 4096  # bytes
_ZONE = np.full(RED_ZONE, 0xC5, np.uint8)
VECTOR = 16  # bytes: what service kernels move at a time


class DeviceArray:
    """An array operand on the device.

    Attributes:
        operand, layout, rows: what it is, and how its elements lie.
        start, size: whole vectors that hold its elements. Before and behind them lies a red zone that no kernel may
            write.
        offset: bytes from `start` to its first element.
        address: of its first element.
    """

    def __init__(self, device: Device, operand: Operand, layout: Layout, alignment: int = VECTOR) -> None:
        """Allocates it at an address that so many bytes divide, and no larger power of two up to 16."""
        self.operand, self.layout, self.rows = operand, layout, Rows.of(layout)
        self.offset = alignment % VECTOR
        self.size = -(-max(self.offset + self.rows.span, 1) // VECTOR) * VECTOR
        self._device = device
        self._memory: Memory = device.allocate(2 * RED_ZONE + self.size)
        self.start = self._memory.address + RED_ZONE
        self.address = self.start + self.offset
        self._mark()

    def download(self) -> Array:
        """The array, copied to the host."""
        content = bytes_at(self._device, self.start, self.size)[self.offset :]
        return np.ndarray(self.layout.shape, self.layout.dtype, content.data, 0, self.layout.strides)

    def surroundings_changed(self, poison: int | None) -> bool:
        """Whether the red zones were written, or what fills up the first vector and the last.

        Those hold the poison; where `poison` is None they are not looked at.
        """
        end = self.offset + self.rows.span
        filled_up = self.size - end
        before = bytes_at(self._device, self.start - RED_ZONE, RED_ZONE + self.offset)
        behind = bytes_at(self._device, self.start + end, filled_up + RED_ZONE)
        head, tail = before[RED_ZONE:], behind[:filled_up]
        if poison is not None:
            vector = np.full(VECTOR // 4, poison, np.uint32).view(np.uint8)
            head, tail = vector[: self.offset], vector[VECTOR - filled_up :]
        whole_before = np.array_equal(before, np.concatenate((_ZONE, head)))
        if whole_before and np.array_equal(behind, np.concatenate((tail, _ZONE))):
            return False
        self._mark()  # whole again for the next kernel
        return True

    def free(self) -> None:
        """Gives its memory back."""
        self._memory.free()

    def _mark(self) -> None:
        for zone in (self.start - RED_ZONE, self.start + self.size):
            self._device.upload(zone, _ZONE)


class Buffers:
    """One set of them. Every set holds the same elements, at addresses of its own.

    Attributes:
        inputs, outputs, changing: by their roles.
        filled_with: the word that fills the outputs before a kernel runs.
    """

    def __init__(self, device: Device, service: Service, problem: Problem) -> None:
        """Allocates and fills. Raises DeviceError if there is no memory for it."""
        self._service, self._problem = service, problem
        self.filled_with = 0
        layouts = problem.family.layouts(problem.spec, problem.extents)
        arrays: list[DeviceArray] = []
        try:
            for operand in problem.spec.operands:
                if operand.role != "number":
                    array = DeviceArray(device, operand, layouts[operand.name], problem.alignment)
                    arrays.append(array)
        except BaseException:
            for array in arrays:
                array.free()
            raise
        self.inputs, self.outputs, self.changing = (
            [array for array in arrays if array.operand.role == role] for role in ("in", "out", "inout")
        )
        for array in (*self.inputs, *self.changing):
            self.fill(array)
        self._checksums = self._digests()

    @property
    def written(self) -> tuple[DeviceArray, ...]:
        """Arrays that a kernel writes."""
        return (*self.outputs, *self.changing)

    @property
    def addresses(self) -> Mapping[str, int]:
        """Of every array's first element, by operand."""
        return {array.operand.name: array.address for array in self}

    @property
    def size(self) -> int:
        """Bytes of all arrays, without what surrounds them."""
        return sum(array.size for array in self)

    def fill_inputs(self) -> None:
        """Writes the inputs anew: a kernel may have changed them under those that come next."""
        for array in self.inputs:
            self.fill(array)

    def download(self) -> Mapping[str, Array]:
        """What is read, by operand, as it is before anything runs."""
        for array in self.changing:
            self.fill(array)
        return {array.operand.name: array.download() for array in (*self.inputs, *self.changing)}

    def reset(self, poison: int) -> None:
        """Queues what comes before each run: outputs hold the poison, and what is changed in place is as it was."""
        self.poison(poison)
        for array in self.changing:
            self.fill(array)

    def poison(self, word: int) -> None:
        """Queues filling the outputs with a word."""
        self.filled_with = word
        for array in self.outputs:
            self._service.fill(array.start, array.size, word)

    def input_changed(self) -> str | None:
        """What is wrong with the inputs."""
        return None if self._digests() == self._checksums else "an input was written"

    def free(self) -> None:
        """Gives the memory back."""
        for array in self:
            array.free()

    def __iter__(self) -> Iterator[DeviceArray]:
        return iter((*self.inputs, *self.outputs, *self.changing))

    def fill(self, array: DeviceArray) -> None:
        """Queues writing random elements, always the same."""
        place = self._problem.spec.operands.index(array.operand)
        self._service.random(array.start, array.size, place + 1, array.operand.dtype)

    def _digests(self) -> list[int]:
        return [self._service.checksum(array.start, array.size) for array in self.inputs]
