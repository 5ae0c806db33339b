"""A GPU made of NumPy arrays, which knows what bytes were written, and a kernel that transposes there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gen.families import FAMILIES
from gen.families.base import Array, Extents, Limits, Variant
from gen.families.names import find_variant
from gen.families.plans import Step, steps

LEAST = 16  # bytes: the smallest allocation that is exact
APART = 1 << 22  # bytes from one allocation to the next
TRANSPOSE = find_variant(FAMILIES, "transposeSmemPad", {})


class FakeMemory:
    """An allocation."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self.content = np.zeros(size, np.uint8)
        self.written = np.zeros(size, np.bool_)
        self.freed = False

    def free(self) -> None:
        """Whatever comes next may not use it."""
        self.freed = True


class FakeGpu:
    """Refuses every access beyond an allocation, and to copy back what was never written."""

    name, driver = "Fake GPU", "1.0"

    def __init__(self) -> None:
        self.limits = Limits.of("sm_90")
        self.allocations: list[FakeMemory] = []

    def allocate(self, size: int) -> FakeMemory:
        assert size >= LEAST, "this would be rounded up, behind the array"
        self.allocations.append(FakeMemory(APART * (len(self.allocations) + 1), size))
        return self.allocations[-1]

    def upload(self, address: int, content: Array) -> None:
        memory, place = self._at(address, len(content))
        memory.content[place], memory.written[place] = content, True

    def download(self, address: int, size: int) -> Array:
        memory, place = self._at(address, size)
        assert memory.written[place].all(), "bytes that were never written"
        return memory.content[place].copy()

    def free_bytes(self) -> int:
        """More than any test takes."""
        return 1 << 40

    def synchronize(self) -> None:
        """Nothing is queued."""

    def _at(self, address: int, size: int) -> tuple[FakeMemory, slice]:
        memory = self.allocations[address // APART - 1]
        assert not memory.freed, "freed before"
        start = address - memory.address
        assert start + size <= memory.size, "out of bounds"
        return memory, slice(start, start + size)


class FakeKernel:
    """Transposes, whatever its variant says; `skip` leaves the last element of the output as it is."""

    def __init__(self, variant: Variant, gpu: FakeGpu, *, skip: bool = False) -> None:
        self.variant, self.gpu, self.skip = variant, gpu, skip
        self.cubin, self.symbol = b"", variant.name
        self.discarded = 0
        self._extents: Extents = {}

    def discard_scratch(self) -> None:
        self.discarded += 1

    def scratch(self, _: Extents, place: int = 0) -> dict[str, int]:
        return {}

    def steps(self, extents: Extents) -> tuple[Step, ...]:
        self._extents = extents
        return tuple(steps(self.variant.plan, {**extents, **self.gpu.limits.sizes()}))

    def queue(self, planned: Sequence[Step], addresses: Mapping[str, int]) -> None:
        rows, cols, in_pitch, out_pitch = (self._extents[n] for n in ("rows", "cols", "in_pitch", "out_pitch"))
        places = [(row, col) for _ in planned for row in range(rows) for col in range(cols)]
        for row, col in places[:-1] if self.skip else places:
            element = self.gpu.download(addresses["in"] + 4 * (row * in_pitch + col), 4)
            self.gpu.upload(addresses["out"] + 4 * (col * out_pitch + row), element)


class FakeCudaRunner:
    """Stands in for `gen.gpu.kernel.CudaRunner`."""

    def __init__(self, gpu: FakeGpu, _: Any, text: Callable[[Variant], str]) -> None:
        self.limits, self._gpu, self._text = gpu.limits, gpu, text

    def on(self, _: Limits) -> FakeCudaRunner:
        return self

    def cannot_run(self, _: Variant) -> str | None:
        return None

    def load(self, variants: Sequence[Variant]) -> tuple[FakeKernel, ...]:
        """A kernel whose text was spoilt does less than it should."""
        return tuple(FakeKernel(one, self._gpu, skip="__syncthreads" not in self._text(one)) for one in variants)
