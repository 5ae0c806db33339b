"""A GPU as the place of a comparison: memory, launches and times that all contenders share."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.arrays import Shared
from bench.works import Shape
from gen.dtypes import U8, DType
from gen.errors import MissingToolError
from gen.families.base import Array, Work
from gen.families.steps import Step
from gen.gpu.device import CudaDevice, DriverModule, Graph, Memory
from gen.gpu.elements import Rows
from gen.gpu.lock import gpu_uuid
from gen.gpu.nvml import Nvml
from gen.gpu.open import Instruments
from gen.gpu.timing import Calibration, Protocol, Sample
from gen.proof.oracle import Allowance

POISON = 0xFFC1A5A5
_VECTOR = 16
_QUICK = 5  # samples of a time that only chooses


class GpuPlace:
    """One GPU, with the instruments that measure it.

    Attributes:
        name, driver: the device's.
        arch: for instance `sm_90`.
        index: the driver's number of it.
        backend: what `gen.load` takes as its device.
        cache: where what was built is kept.
        calibration: what it can do.
    """

    def __init__(self, instruments: Instruments, calibration: Calibration, cache: Path) -> None:
        device = instruments.device
        self.name, self.driver, self.arch, self.index = device.name, device.driver, device.limits.arch, device.index
        self.backend: CudaDevice = device
        self.cache = cache
        self.calibration = calibration
        self._device, self._service, self._clock = device, instruments.service, instruments.clock
        self._compiler = instruments.compiler
        self._nvml = _nvml(device.index)

    def array(self, shape: Shape, dtype: DType) -> Shared:
        """New memory, full of poison."""
        made = self._empty(shape, dtype)
        self._service.fill(made.address, _rounded(made.nbytes), POISON)
        return made

    def random(self, shape: Shape, dtype: DType, seed: int) -> Shared:
        """New memory with random elements, as tuning has them."""
        made = self._empty(shape, dtype)
        self._service.random(made.address, _rounded(made.nbytes), seed, dtype)
        return made

    def copy(self, source: Shared) -> Shared:
        """New memory with the same content."""
        made = self._empty(source.shape, source.dtype)
        self._device.copy_async(source.address, made.address, source.nbytes)
        return made

    def upload(self, content: Array) -> Memory:
        """Memory that holds a contiguous array."""
        memory = self._device.allocate(_rounded(content.nbytes))
        self._device.upload(memory.address, content.reshape(-1).view(U8.numpy))
        return memory

    def download(self, address: int, size: int) -> Array:
        """Bytes from the device, after all that is queued."""
        self._device.synchronize()
        return self._device.download(address, size)

    def differing(self, got: int, expected: int, size: int, elements: int) -> int:
        """How many elements differ in a bit."""
        return self._service.differing(got, expected, Rows(1, elements, size, elements * size))[0]

    def beyond(
        self, got: int, dtype: DType, elements: int, value: int, magnitude: int, allowed: Allowance
    ) -> int:  # fmt: skip
        """How many elements lie further from the doubles expected than is allowed."""
        rows = Rows(1, elements, dtype.size, elements * dtype.size)
        return self._service.beyond_bounds(got, rows, dtype, value, magnitude, allowed)[0]

    def graph(self, queue: Callable[[int], None]) -> Graph:
        """Captures what is queued."""
        return Graph(queue)

    def compile(self, name: str, source: str) -> Callable[..., None]:
        """Compiles one kernel; gives what queues it."""
        module = DriverModule(self._compiler.compile(name, source, self.arch).cubin)

        def launch(
            stream: int, grid: tuple[int, int, int], block: tuple[int, int, int],
            arguments: Sequence[int | tuple[str, int | float]],
        ) -> None:  # fmt: skip
            values = [argument if isinstance(argument, tuple) else ("P", argument) for argument in arguments]
            module.launch(name, Step("", grid, block, (), 0, (1, 1, 1), False), values, stream)

        return launch

    def in_turns(self, samples: Sequence[Sample], protocol: Protocol) -> list[float]:
        """Microseconds, one after another in this order."""
        return self._clock.in_turns(samples, protocol)

    def time_us(self, launch: Callable[[], None]) -> float:
        """A quick time, to choose between launches."""
        launch()
        return statistics.median(self._clock.times(launch, _QUICK))

    def floor_us(self, work: Work, protocol: Protocol) -> float:
        """The least time of such work."""
        return self.calibration.floor_us(work, protocol)

    def clock_mhz(self) -> int:
        """Of the multiprocessors; 0 where NVML cannot tell."""
        clocks = None if self._nvml is None else self._nvml.clocks()
        return 0 if clocks is None else clocks.sm_mhz

    def synchronize(self) -> None:
        """Waits for all that is queued. Raises RunError if a launch failed on the way."""
        self._device.synchronize()

    def _empty(self, shape: Shape, dtype: DType) -> Shared:
        size = dtype.size
        for extent in shape:
            size *= extent
        memory: Any = self._device.allocate(_rounded(size))
        return Shared(memory.address, shape, dtype, memory)


def _nvml(index: int) -> Nvml | None:
    uuid = gpu_uuid(index)
    try:
        return None if uuid is None else Nvml(uuid)
    except MissingToolError:
        return None


def _rounded(size: int) -> int:
    return -(-max(size, 1) // _VECTOR) * _VECTOR
