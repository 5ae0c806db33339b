"""PyCUDA: compiles with nvcc, and in tuning loads and times kernels. Where it is not installed, cuda-bindings does.

The only importer of PyCUDA.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gen.emit.folder import write_whole
from gen.emit.render import linked_with
from gen.errors import CompileError, MissingToolError, RunError
from gen.families.base import Extents, Variant
from gen.families.plans import Step
from gen.gpu.cuda import CudaDevice, make_room, refused
from gen.gpu.device import LEGACY_STREAM, Code, Event, KernelAttributes
from gen.paths import how_to_install
from gen.toolchain.cache import Cache, compiled_once, content_key
from gen.toolchain.compiled import Compiled
from gen.toolchain.headers import headers_folder
from gen.toolchain.link import NvccLinker, find_library
from gen.toolchain.nvrtc import NO_CONTRACTION

try:
    # A PyCUDA that was built where no driver was is not linked with it: its symbols must be there before.
    ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    import pycuda.compiler as pycuda_compiler
    import pycuda.driver as pycuda
except (ImportError, OSError) as error:
    next_step = f"Run, with nvcc on the PATH: {how_to_install('pycuda')}"
    raise MissingToolError("PyCUDA", "must be installed, beside NVIDIA's driver", error, next_step=next_step) from error

OPTIONS = ("-std=c++17", NO_CONTRACTION)  # of nvcc
_LETTERS = {"f32": "f", "f64": "d", "i32": "i", "i64": "q", "u32": "I", "u64": "Q", "i16": "h", "u16": "H"}


class PyCudaTimer:
    """Loads, launches and times through PyCUDA; implements `gen.gpu.device.Timer`."""

    name = "PyCUDA"

    def __init__(self, device: CudaDevice) -> None:
        """Makes the primary context PyCUDA's current one on this thread, until the process ends.

        PyCUDA aborts a process of which a thread ends with a context on its stack: so only on the main thread.

        Raises:
            MissingToolError: this is another thread.
        """
        if threading.current_thread() is not threading.main_thread():
            raise MissingToolError("PyCUDA", "can only be used on the main thread")
        self._device = device
        with _reported():
            pycuda.init()
            self._context = pycuda.Device(device.index).retain_primary_context()
            self._context.push()
        atexit.register(self._context.pop)

    def load(self, compiled: Compiled, variant: Variant | None = None) -> Code:
        """Loads machine code. PyCUDA has no cooperative launch: the driver itself makes these."""
        if variant is not None and any(launch.cooperative for launch in variant.plan.launches):
            return self._device.load(compiled, variant)
        return PyCudaCode(compiled, variant, self._device.limits.shared_bytes_per_block)

    def event(self) -> PyCudaEvent:
        """A new event."""
        with _reported():
            return PyCudaEvent(pycuda.Event())


class PyCudaEvent:
    """An event on the legacy default stream."""

    def __init__(self, event: Any) -> None:
        self._event = event

    def record(self) -> None:
        """Queues it."""
        with _reported():
            self._event.record()

    def us_since(self, earlier: Event) -> float:
        """Microseconds between two events."""
        assert isinstance(earlier, PyCudaEvent)
        with _reported():
            return 1000 * float(self._event.time_since(earlier._event))


class PyCudaCode:
    """Machine code in the primary context, for the legacy default stream: PyCUDA cannot wrap another's stream."""

    def __init__(self, compiled: Compiled, variant: Variant | None, shared_bytes_per_block: int) -> None:
        try:
            self._module = pycuda.module_from_buffer(compiled.cubin)
        except pycuda.Error as error:
            raise RunError("The machine code", "cannot be loaded on this GPU", error) from error
        self._name = compiled.name
        self._functions: dict[str, Any] = {}
        launches = () if variant is None else variant.plan.launches
        for entry in {launch.entry for launch in launches if str(launch.shared_bytes) != "0"}:
            function = self.function(entry)
            left = shared_bytes_per_block - int(function.shared_size_bytes)  # what is declared is taken from it
            with _reported():
                function.set_attribute(pycuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, left)
        for name, content in () if variant is None else variant.plan.constants:
            with _reported():
                pycuda.memcpy_htod(self._module.get_global(name)[0], content)

    def prepare(self, extents: Extents, steps: Sequence[Step]) -> PyCudaPrepared:
        """Finds the kernels of the launches."""
        make_room(steps)
        return PyCudaPrepared(self._name, [(step, self.function(step.entry)) for step in steps])

    def attributes(self, entry: str) -> KernelAttributes:
        """What a kernel takes."""
        function = self.function(entry)
        return KernelAttributes(function.num_regs, function.local_size_bytes, function.shared_size_bytes)

    def function(self, entry: str) -> Any:
        """PyCUDA's object of a kernel."""
        if entry not in self._functions:
            try:
                self._functions[entry] = self._module.get_function(self._name + entry)
            except pycuda.Error as error:
                raise RunError(self._name + entry, "is no kernel of its module", error) from error
        return self._functions[entry]

    def unload(self) -> None:
        """Gives its memory back, once nothing of it runs or will run: with the last that holds it."""
        self._functions.clear()


class PyCudaPrepared:
    """Launches on the legacy default stream."""

    def __init__(self, name: str, steps: Sequence[tuple[Step, Any]]) -> None:
        self._name, self._steps = name, steps
        for step, function in steps:
            function.prepare(_signature(step))

    def launch(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> None:
        """Queues every launch."""
        assert stream == LEGACY_STREAM
        assert not numbers
        for step, function in self._steps:
            values = [addresses[one] if isinstance(one, str) else one[1] for one in step.arguments]
            try:
                function.prepared_async_call(step.grid, step.block, None, *values, shared_size=step.shared_bytes)
            except pycuda.Error as error:
                raise refused(self._name, step.grid, step.block, error) from error


class Nvcc:
    """The toolkit's compiler, as a `Compiler` with a cache. What it gives back names no resources.

    Attributes:
        version: `nvcc 13.0.88`.
        options: those beside the architecture.
    """

    def __init__(self, cache: Path | None) -> None:
        """Finds nvcc. Raises MissingToolError without one."""
        try:
            said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise MissingToolError("nvcc", "must be on the PATH", error, next_step="Or leave out --compiler") from error
        found = re.search(r"V(\d+\.\d+\.\d+)", said)
        self.version = f"nvcc {found.group(1) if found else said.split()[-1]}"
        self.options = " ".join(OPTIONS)
        self._entries = None if cache is None else Cache(cache / "nvcc", ".cubin")
        self._failed = None if cache is None else cache / "failed"

    def compile(self, name: str, text: str, arch: str) -> Compiled:
        """Compiles one source, or takes what was compiled before. Raises CompileError with nvcc's own text."""
        if self._entries is None:
            return self._compile(name, text, arch)
        key = content_key({"compiler": self.version, "arch": arch, "options": OPTIONS, "source": text})
        return compiled_once(self._entries, key, name, lambda: self._compile(name, text, arch))

    def _compile(self, name: str, text: str, arch: str) -> Compiled:
        start, libraries = time.monotonic(), linked_with(text)
        options = [*OPTIONS, *(["-rdc=true"] if libraries else [])]
        try:
            cubin = pycuda_compiler.compile(
                text, no_extern_c=True, arch=arch, options=options, cache_dir=False, target="cubin"
            )
        except pycuda.CompileError as error:
            kept = Path(f"{name}.cu") if self._failed is None else self._failed / f"{name}.cu"
            write_whole(kept, text.encode())
            raise CompileError(name, str(error.stderr or error), kept) from error
        code = bytes(cubin)
        if libraries:
            headers = headers_folder()
            code = NvccLinker().link(name, code, arch, [find_library(one, headers) for one in libraries]).cubin
        return Compiled(name, arch, code, {}, 1000 * (time.monotonic() - start))


def _signature(step: Step) -> str:
    """How `struct` spells the arguments of a launch; operands and scratch are addresses."""
    return "".join("P" if isinstance(one, str) else _LETTERS[one[0].name] for one in step.arguments)


@contextmanager
def _reported() -> Iterator[None]:
    """Turns what PyCUDA raises into a RunError."""
    try:
        yield
    except pycuda.Error as error:
        raise RunError("The GPU", "reports an error", error) from error
