"""Looks for a GPU: asks the driver's library, makes no context."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from gen.arch import Attribute, Limits
from gen.errors import DeviceError


@dataclass(frozen=True)
class Device:
    """A GPU by its name, `NVIDIA H100 80GB HBM3`, and its limits."""

    name: str
    limits: Limits


def find_device(index: int = 0) -> Device | None:
    """The GPU of this number; None if there is no GPU, or no driver. Raises DeviceError if there are only others."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count, device = ctypes.c_int(), ctypes.c_int()
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
            return None
        if not 0 <= index < count.value:
            raise DeviceError("The GPU", f"must be one of {count.value}, counted from 0", index)
        name = ctypes.create_string_buffer(128)
        if driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetName(name, len(name), device):
            return None

        def ask(attribute: Attribute) -> int:
            value = ctypes.c_int()
            return 0 if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) else value.value

        known_as = name.value.decode(errors="replace")
        return Device(known_as, Limits.of_device(known_as, ask))
    except (OSError, AttributeError):  # no such library, or one of another make
        return None
