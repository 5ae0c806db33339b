"""Streams of every library, as the driver's handles."""

from __future__ import annotations

from typing import Any

from gen.errors import ArgumentError
from gen.gpu.device import LEGACY_STREAM


def handle_of(stream: Any) -> int:
    """The driver's handle of a stream: of torch, CuPy, PyCUDA, Numba, cuda.core, or a number.

    Raises ArgumentError for anything else.
    """
    handle = _number(stream)
    if handle is None:
        for name in ("cuda_stream", "ptr", "__cuda_stream__", "handle"):
            found = getattr(stream, name, None)
            if name == "__cuda_stream__":
                found = found()[1] if callable(found) else None if found is None else found[1]
            handle = _number(getattr(found, "value", found))  # Numba's handles are of ctypes
            if handle is not None:
                break
    if handle is None or not 0 <= handle < 1 << 64:
        raise ArgumentError(
            "stream", "must be a stream of torch or CuPy, or the driver's handle of one", type(stream).__name__
        )
    return handle or LEGACY_STREAM


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
