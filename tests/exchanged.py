"""Arrays that are known by DLPack alone, as tests bring them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

from gen.runtime import dlpack
from gen.runtime.arrays import host_array

CUDA = (dlpack.CUDA, 0)


class Exchanged:
    """An array that is known by DLPack alone, dense, on any device."""

    def __init__(self, array: Any, device: tuple[int, int] = CUDA, *, version: int = 1) -> None:
        self.array, self.device, self.version = array, device, version
        self.asked: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **asked: Any) -> Any:
        if self.version == 0 and "max_version" in asked:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.asked.append(asked)
        place = int(self.array.__array_interface__["data"][0])
        return dlpack.offer(
            self, place, self.array.shape, self.array.dtype, self.device, versioned=self.version > 0
        )  # fmt: skip


class InLibrary(Exchanged):
    """One of a library that takes arrays of others."""

    taken: ClassVar[list[Any]] = []

    def block_until_ready(self) -> None:
        """Waits for nothing."""

    def __array_namespace__(self) -> Any:
        return SimpleNamespace(from_dlpack=lambda made: InLibrary(taken_from(made)), asarray=InLibrary)


def taken_from(made: Any) -> Any:
    """What a consumer of a capsule reads, as if the GPU's memory were the host's."""
    found = dlpack.describe(made, 9)
    InLibrary.taken.append(found.capsule)
    return host_array(found.address, found.shape, found.strides, found.dtype)
