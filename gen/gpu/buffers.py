"""The arrays of a problem on the device: inputs, outputs, and what is changed in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gen.families.base import Array
from gen.gpu.arrays import DeviceArray
from gen.gpu.device import CudaDevice
from gen.gpu.service import Service
from gen.gpu.trial import Problem


class Buffers:
    """One set of them. Every set holds the same elements, at addresses of its own.

    Attributes:
        inputs, outputs, changing: by their roles.
        filled_with: the word that fills the outputs before a kernel runs.
    """

    def __init__(self, device: CudaDevice, service: Service, problem: Problem) -> None:
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
