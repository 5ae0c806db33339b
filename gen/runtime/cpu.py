"""The CPU run in the place of a GPU: `gen.load(spec, device="cpu")` calls kernels without one, every access checked.

The emitted text is built by g++ and executed thread by thread, as the proof executes it, thousands of times slower
than a GPU. It serves to try kernels, and to run other people's test suites on them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gen.arch import Limits
from gen.emit.render import render
from gen.errors import DeviceError
from gen.families.base import Array, Extents, Kernel, Runner, Variant
from gen.families.plans import Step
from gen.gpu.device import LEGACY_STREAM, Code, Event, Flag, KernelAttributes, Timer
from gen.proof.host import HostRunner
from gen.runtime.arrays import host_array
from gen.toolchain.compiled import Compiled, Compiler

MULTIPROCESSORS = 4  # few: loops over the grid loop, and there are not many blocks to be executed one by one
ALIGNMENT = 256  # bytes: what the driver's allocations have


class CpuMemory:
    """Bytes of the host."""

    def __init__(self, size: int) -> None:
        self._bytes = np.empty(size + ALIGNMENT, np.uint8)
        start = self._bytes.ctypes.data
        self.address = -(-start // ALIGNMENT) * ALIGNMENT
        self.size = size

    def free(self) -> None:
        """Gives the bytes back."""
        self._bytes = np.empty(0, np.uint8)


class CpuDevice:
    """Implements `gen.gpu.device.Device` by the CPU run. Streams are numbers: every launch is done when it returns.

    Attributes:
        limits: of an H100 with few multiprocessors.
    """

    index: int = -1
    name: str = "CPU run"
    driver = "none"

    def __init__(self, cache: Path, runner: Runner | None = None) -> None:
        """Builds nothing yet.

        Args:
            cache: the folder where built code is kept.
            runner: what executes kernels; the CPU run if None.
        """
        self.limits = replace(Limits.of("sm_90"), multiprocessors=MULTIPROCESSORS)
        self.timer: Timer = _NoTimer()
        self._runner: Runner = runner or HostRunner(self.limits, cache=cache, text=render)

    def enter(self) -> bool:
        """Does nothing."""
        return False

    def leave(self, entered: bool) -> None:
        """Does nothing."""

    def for_any_thread(self) -> CpuDevice:
        """Itself."""
        return self

    def compiler(self) -> Compiler:
        """Raises DeviceError."""
        return _refuse("has a compiler of its own")

    def compile(self, name: str, text: str) -> Compiled:
        """An empty result: g++ builds the text when it is loaded."""
        return Compiled(name, self.limits.arch, b"", {})

    def load(self, compiled: Compiled, variant: Variant | None = None) -> CpuCode:
        """Builds the text of a variant. Raises RunError if the CPU run does not execute it."""
        if variant is None:
            _refuse("loads kernels that are of no variant")
        return CpuCode(variant, self._runner.load([variant])[0])

    def allocate(self, size: int) -> CpuMemory:
        """Memory of the host."""
        try:
            return CpuMemory(size)
        except MemoryError as error:
            raise DeviceError("The host's memory", f"does not hold {size} bytes more") from error

    def driver_functions(self) -> None:
        """None: there is no driver."""

    def free_bytes(self) -> NoReturn:
        """Raises DeviceError."""
        _refuse("counts free memory")

    def flag(self) -> Flag:
        """Raises DeviceError."""
        return _refuse("has flags")

    def upload(self, address: int, content: Array, stream: int | None = None) -> None:
        """Copies a contiguous array."""
        ctypes.memmove(address, content.ctypes.data, content.nbytes)

    def download(self, content: Array, address: int, stream: int | None = None) -> None:
        """Copies into a contiguous array."""
        ctypes.memmove(content.ctypes.data, address, content.nbytes)

    def copy(self, source: int, target: int, size: int, stream: int = LEGACY_STREAM) -> None:
        """Copies bytes."""
        ctypes.memmove(target, source, size)

    def zero(self, address: int, size: int, stream: int | None = LEGACY_STREAM) -> None:
        """Sets bytes to 0."""
        ctypes.memset(address, 0, size)

    def capture(self, queue: Callable[[int], None], closed: Callable[[], None] = lambda: None) -> CpuGraph:
        """What `queue` does, to be done again."""
        return CpuGraph(queue, closed)

    def synchronize(self, stream: int | None = None) -> None:
        """Does nothing: all is done."""

    def wait(self, stream: int, other: int) -> None:
        """Does nothing: all is done."""

    def device_of(self, address: int) -> int | None:
        """None: an address outside NumPy's arrays belongs to another device."""
        return None

    def capture_of(self, stream: int) -> int:
        """0: no stream is being captured."""
        return 0

    def identity_of(self, stream: int) -> Hashable:
        """The number."""
        return stream


class _NoTimer:
    """The CPU run times nothing: every method raises DeviceError."""

    name = "none"

    def load(self, compiled: Compiled, variant: Variant | None = None) -> Code:
        return _refuse("times kernels")

    def event(self) -> Event:
        return _refuse("has events")


class CpuCode:
    """A variant, built by g++."""

    def __init__(self, variant: Variant, kernel: Kernel) -> None:
        self._variant, self._kernel = variant, kernel

    def prepare(self, extents: Extents, steps: Sequence[Step]) -> CpuPrepared:
        """The launches at these sizes."""
        return CpuPrepared(self._variant, self._kernel, extents, run=bool(steps))

    def attributes(self, entry: str) -> KernelAttributes:
        """Raises DeviceError."""
        return _refuse("counts registers")

    def unload(self) -> None:
        """Does nothing: the process keeps what it has built."""


class CpuPrepared:
    """The launches of a variant at fixed sizes."""

    def __init__(self, variant: Variant, kernel: Kernel, extents: Extents, *, run: bool) -> None:
        self._spec, self._kernel, self._extents, self._run = variant.spec, kernel, extents, run
        self._layouts = variant.family.layouts(variant.spec, extents)

    def launch(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> None:
        """Executes all of them. Raises RunError, HostFault where the kernel breaks a rule."""
        if not self._run:
            return
        buffers: dict[str, Any] = {}
        for operand in self._spec.operands:
            if operand.role == "number":
                buffers[operand.name] = np.frombuffer(numbers[operand.name], operand.dtype.numpy)[0]
            else:
                layout = self._layouts[operand.name]
                array = host_array(addresses[operand.name], layout.shape, layout.strides, layout.dtype)
                buffers[operand.name] = array
        self._kernel.run(self._extents, buffers)


class CpuGraph:
    """Launches that are done again."""

    def __init__(self, queue: Callable[[int], None], closed: Callable[[], None]) -> None:
        self._queue, self._closed = queue, closed

    def replay(self, stream: int = LEGACY_STREAM) -> None:
        """Does them."""
        self._queue(stream)

    def time_us(self) -> float:
        """Raises DeviceError."""
        return _refuse("times graphs")

    def close(self) -> None:
        """Says that it is not needed any more."""
        self._closed()


def _refuse(what: str) -> NoReturn:
    raise DeviceError("The CPU run", f"is no GPU: it neither {what} nor measures anything")
