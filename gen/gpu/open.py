"""A GPU made ready to measure: the device, its service kernels, the clock, the calibration."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from gen.errors import MissingToolError
from gen.gpu.cuda import CudaDevice
from gen.gpu.device import find_gpu
from gen.gpu.nvml import Nvml
from gen.gpu.service import Service
from gen.gpu.session import GpuBench
from gen.gpu.timing import (
    GRAPH_LAUNCHES,
    Calibration,
    Clock,
    calibrate,
    store_calibration,
    stored_calibration,
)
from gen.toolchain.compiled import Compiler

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Instruments:
    """What measuring takes, on one device."""

    device: CudaDevice
    service: Service
    clock: Clock

    def calibrate(self) -> Calibration:
        """Measures what the device can do; some seconds."""
        graph = self.service.graph_of_empty(GRAPH_LAUNCHES)
        try:
            return calibrate(self.device, self.service, self.clock, graph)
        finally:
            graph.close()

    def bench(self, calibration: Calibration) -> GpuBench:
        """The device as the process that drives it uses it."""
        return GpuBench(self.device, self.service, self.clock, calibration, _nvml(self.device.index))


@dataclass(frozen=True)
class GpuFactory:
    """Makes a GPU ready in the process that drives it.

    Attributes:
        index: the driver's number of it.
        compiler: can be pickled.
        home: holds the calibration; measured and kept there if there is none of this device.
    """

    index: int
    compiler: Compiler
    home: Path

    def __call__(self) -> GpuBench:
        """Opens the GPU. Raises DeviceError or MissingToolError if there is none to use."""
        instruments = open_instruments(self.index, self.compiler)
        calibration = stored_calibration(self.home, instruments.device)
        if calibration is None:
            calibration = instruments.calibrate()
            store_calibration(self.home, calibration)
        return instruments.bench(calibration)


def open_instruments(index: int, compiler: Compiler) -> Instruments:
    """Opens a GPU, with all that measuring takes. Raises as `open_device`."""
    device = open_device(index, compiler)
    service = Service(device)
    return Instruments(device, service, Clock(device, service))


def open_device(index: int, compiler: Compiler) -> CudaDevice:
    """Opens a GPU for the main thread. PyCUDA loads and times kernels there where it is installed, else cuda-core.

    Raises DeviceError if there is no such GPU.
    """
    device = CudaDevice(index, compiler)
    device.enter()  # for good
    try:
        from gen.gpu.pycuda import PyCudaTimer

        device.timer = PyCudaTimer(device)
    except MissingToolError:  # it is not installed
        pass
    return device


def _nvml(index: int) -> Nvml | None:
    found = find_gpu(index)
    try:
        return None if found is None else Nvml(found.uuid)
    except MissingToolError as error:
        _log.warning("Clocks and other users of the GPU are not noted: %s", error)
        return None
