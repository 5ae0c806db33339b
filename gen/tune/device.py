"""Looks for a GPU: asks the driver's library, makes no context."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from gen.errors import DeviceError

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


@dataclass(frozen=True)
class Device:
    """A GPU by its name and architecture: `NVIDIA H100 80GB HBM3`, `sm_90`."""

    name: str
    arch: str


def find_device(index: int = 0) -> Device | None:
    """The GPU of this number; None if there is no GPU, or no driver. Raises DeviceError if there are only others."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count, device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
            return None
        if not 0 <= index < count.value:
            raise DeviceError("The GPU", f"must be one of {count.value}, counted from 0", index)
        name = ctypes.create_string_buffer(128)
        failed = (
            driver.cuDeviceGet(ctypes.byref(device), index)
            or driver.cuDeviceGetName(name, len(name), device)
            or driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
            or driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
        )
    except (OSError, AttributeError):  # no such library, or one of another make
        return None
    return None if failed else Device(name.value.decode(errors="replace"), f"sm_{major.value}{minor.value}")
