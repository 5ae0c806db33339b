"""An array of a problem on the device, with red zones around it."""

from __future__ import annotations

import numpy as np

from gen.families.base import Array, Layout, Operand
from gen.gpu.device import CudaDevice, Memory
from gen.gpu.elements import Rows

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

    def __init__(self, device: CudaDevice, operand: Operand, layout: Layout, alignment: int = VECTOR) -> None:
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
        content = self._device.download(self.start, self.size)[self.offset :]
        return np.ndarray(self.layout.shape, self.layout.dtype, content.data, 0, self.layout.strides)

    def surroundings_changed(self, poison: int | None) -> bool:
        """Whether the red zones were written, or what fills up the first vector and the last.

        Those hold the poison; where `poison` is None they are not looked at.
        """
        end = self.offset + self.rows.span
        filled_up = self.size - end
        before = self._device.download(self.start - RED_ZONE, RED_ZONE + self.offset)
        behind = self._device.download(self.start + end, filled_up + RED_ZONE)
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
