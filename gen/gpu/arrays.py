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
        size: bytes of whole vectors that its elements take.
        address: of its first byte. Before it, and behind `size`, lies a red zone that no kernel may write.
    """

    def __init__(self, device: CudaDevice, operand: Operand, layout: Layout) -> None:
        self.operand, self.layout, self.rows = operand, layout, Rows.of(layout)
        self.size = -(-max(self.rows.span, 1) // VECTOR) * VECTOR
        self._device = device
        self._memory: Memory = device.allocate(2 * RED_ZONE + self.size)
        self.address = self._memory.address + RED_ZONE
        self._mark()

    def download(self) -> Array:
        """The array, copied to the host."""
        content = self._device.download(self.address, self.size)
        return np.ndarray(self.layout.shape, self.layout.dtype, content.data, 0, self.layout.strides)

    def surroundings_changed(self, poison: int | None) -> bool:
        """Whether the red zones were written, or what fills up the last vector.

        That holds the poison; where `poison` is None it is not looked at.
        """
        span, filled_up = self.rows.span, self.size - self.rows.span
        before = self._device.download(self.address - RED_ZONE, RED_ZONE)
        behind = self._device.download(self.address + span, filled_up + RED_ZONE)
        tail = behind[:filled_up]
        if poison is not None:
            tail = np.full(VECTOR // 4, poison, np.uint32).view(np.uint8)[VECTOR - filled_up :]
        if np.array_equal(before, _ZONE) and np.array_equal(behind, np.concatenate((tail, _ZONE))):
            return False
        self._mark()  # whole again for the next kernel
        return True

    def free(self) -> None:
        """Gives its memory back."""
        self._memory.free()

    def _mark(self) -> None:
        for zone in (self.address - RED_ZONE, self.address + self.size):
            self._device.upload(zone, _ZONE)
