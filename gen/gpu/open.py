"""A GPU made ready to measure: device, service kernels, clock, calibration."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

from gen.emit.files import alone, read, write_if_changed
from gen.errors import MissingToolError, StoreError
from gen.families.plans import Step
from gen.gpu.device import CudaDevice, open_device
from gen.gpu.lock import gpu_uuid
from gen.gpu.nvml import Nvml
from gen.gpu.service import Service, source
from gen.gpu.session import GpuBench
from gen.gpu.timing import GRAPH_LAUNCHES, Calibration, Clock, calibrate
from gen.paths import lock_of
from gen.toolchain.compiled import Compiler

_log = logging.getLogger(__name__)
FILE = "calibration.json"
SCHEMA = 1


@dataclass(frozen=True)
class Instruments:
    """What measuring takes, on one device."""

    device: CudaDevice
    service: Service
    clock: Clock
    compiler: Compiler

    def calibrate(self) -> Calibration:
        """Measures what the device can do; some seconds."""
        cubin = self.compiler.compile("gen_service", source(), self.device.limits.arch).cubin
        empty = Step("", (1, 1, 1), (32, 1, 1), (), 0, (1, 1, 1), False)
        graph = self.device.graph(cubin, [empty], "gen_empty", {}, GRAPH_LAUNCHES)
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


def _nvml(index: int) -> Nvml | None:
    uuid = gpu_uuid(index)
    try:
        return None if uuid is None else Nvml(uuid)
    except MissingToolError as error:
        _log.warning("Clocks and other users of the GPU are not noted: %s", error)
        return None


def open_instruments(index: int, compiler: Compiler) -> Instruments:
    """Opens a GPU. Raises DeviceError or MissingToolError if there is none to use."""
    device = open_device(index)
    service = Service(device, compiler)
    return Instruments(device, service, Clock(device, service), compiler)


def stored_calibration(home: Path, device: CudaDevice) -> Calibration | None:
    """The calibration of this device under this driver that `home` holds; None without one."""
    for found in _read(home):
        if (found.device, found.driver) == (device.name, device.driver):
            return found
    return None


def store_calibration(home: Path, calibration: Calibration) -> Path:
    """Writes a calibration into `home`, over an earlier one of its device."""
    with alone(lock_of(home)):
        others = [found for found in _read(home) if found.device != calibration.device]
        ordered = sorted((*others, calibration), key=lambda found: found.device)
        content = {"schema": SCHEMA, "calibrations": [asdict(found) for found in ordered]}
        write_if_changed(home / FILE, json.dumps(content, indent=1) + "\n")
    return home / FILE


def _read(home: Path) -> list[Calibration]:
    text = read(home / FILE)
    if text is None:
        return []
    try:
        content = json.loads(text)
        if content["schema"] != SCHEMA:
            raise ValueError(content["schema"])
        return [_calibration(entry) for entry in content["calibrations"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreError(
            str(home / FILE), "is not what gen writes", error, next_step="Remove it, and run gen calibrate"
        ) from error


def _calibration(entry: Mapping[str, Any]) -> Calibration:
    """One that was stored. Raises ValueError for figures that no device has."""
    found = Calibration(**entry)
    figures = {**entry}
    texts = (figures.pop("device"), figures.pop("driver"))
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(texts)
    if not all(type(figure) is float and 0 < figure < inf for figure in figures.values()):
        raise ValueError(figures)
    return found
