"""Compiles with NVRTC: no toolkit, no GPU.

Through the driver's bindings, which let other threads run while it compiles. cuda-core would load five times as long.
"""

from __future__ import annotations

import logging
import re
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gen.arch import architectures_of
from gen.emit.folder import write_whole
from gen.emit.render import linked_with
from gen.errors import CompileError, MissingToolError, UnknownNameError, UnlinkedError
from gen.toolchain.cache import Cache, compiled_once, content_key
from gen.toolchain.compiled import Compiled, Resources, read_ptxas
from gen.toolchain.headers import headers_folder, headers_version, wheel_version
from gen.toolchain.link import Linker, find_library, find_linker

try:
    from cuda.bindings import nvrtc
    from cuda.pathfinder import load_nvidia_dynamic_lib
except ImportError as error:
    raise MissingToolError(
        "NVRTC's Python packages", f"must be installed: {error}",
        next_step="Run: pip install 'cuda-bindings>=13,<14' 'cuda-pathfinder>=1.4.2'",
    ) from error  # fmt: skip


# A product and a sum are rounded apart unless the source says fma, as on the CPU run: NVRTC's default fuses them.
NO_CONTRACTION = "-fmad=false"
STANDARD = "-std=c++17"
_log = logging.getLogger(__name__)


class Nvrtc:
    """The compiler of CUDA's runtime, as a `Compiler` with a cache. Threads may share one.

    Attributes:
        version: `nvrtc 13.0.88, headers 13.0.96`.
        options: `-std=c++17 -fmad=false`.
        architectures: what it compiles for: `sm_75`, ... `sm_90`, `sm_90a`, ...
    """

    def __init__(self, cache: Path | None, *, line_info: bool = False) -> None:
        """Loads the compiler.

        Args:
            cache: keeps what was compiled, and the sources that were refused; None keeps nothing.
            line_info: whether the code knows its source lines, for a profiler.

        Raises:
            MissingToolError: NVRTC or the CUDA headers are not installed.
        """
        self.options = " ".join((STANDARD, NO_CONTRACTION, *(["-lineinfo"] if line_info else [])))
        self.version = f"nvrtc {nvrtc_version()}, headers {headers_version()}"
        self.architectures = architectures_of(nvrtc.nvrtcGetSupportedArchs()[1])
        self._headers = str(headers_folder())
        self._linker: Linker | None = None  # found when a source needs it
        self._entries = None if cache is None else Cache(cache / "nvrtc", ".cubin")
        self._failed = None if cache is None else cache / "failed"

    def check(self, arch: str) -> None:
        """Raises UnknownNameError for an architecture that this NVRTC does not know."""
        if arch not in self.architectures:
            known = ", ".join(self.architectures)
            raise UnknownNameError("The architecture", f"must be one that {self.version} knows: {known}", repr(arch))

    def compile(self, name: str, text: str, arch: str) -> Compiled:
        """Compiles one source, or takes what was compiled before.

        Args:
            name: stands in the compiler's messages as `NAME.cu`.
            text: CUDA C++.
            arch: `sm_90`.

        Raises:
            UnknownNameError: this NVRTC does not know the architecture.
            CompileError: the source is refused; it is kept beside the cache.
            UnlinkedError: the source names libraries that it is linked with, and no linker is installed, or no such
                library.
        """
        self.check(arch)
        if self._entries is None:
            return self._compile(name, text, arch)
        key = self.key(text, arch)
        return compiled_once(self._entries, key, name, lambda: self._compile(name, text, arch))

    def ptx(self, name: str, text: str, arch: str) -> bytes:
        """The source as PTX, which drivers translate for later architectures; it ends in a zero byte.

        Args:
            name: stands in the compiler's messages as `NAME.cu`.
            text: CUDA C++; kernels that launch kernels have no PTX that a driver takes.
            arch: the earliest architecture.

        Raises:
            CompileError: the source is refused.
        """
        options = self._arguments(arch.replace("sm_", "compute_"), linked=False)
        try:
            made, _ = _machine_code(text, f"{name}.cu", options, ptx=True)
        except _RefusedError as error:
            raise CompileError(name, _compilers_text(str(error)), Path(f"{name}.cu")) from None
        finally:
            _interrupt_calls()
        return made.rstrip(b"\0") + b"\0"

    def key(self, text: str, arch: str) -> str:
        """The cache key of a source: all that determines its machine code, and nothing of the machine at hand."""
        linker = {"linker": self._linker_version()} if linked_with(text) else {}
        return content_key(
            {
                "compiler": self.version,
                "arch": arch,
                "options": self.options,
                "source": text,
                **linker,
            }
        )

    def _linker_version(self) -> str:
        """Empty without a linker: then nothing is kept."""
        try:
            self._linker = self._linker or find_linker()
        except MissingToolError:
            return ""
        return self._linker.version

    def _compile(self, name: str, text: str, arch: str) -> Compiled:
        file = re.sub(r"[^\w.-]", "_", name) + ".cu"
        libraries = linked_with(text)
        start = time.monotonic()
        try:
            cubin, log = _machine_code(text, file, self._arguments(arch, linked=bool(libraries)))
        except _RefusedError as error:
            folder = self._failed or Path(tempfile.mkdtemp(prefix="gen-failed-"))
            write_whole(folder / file, text.encode())
            raise CompileError(name, _compilers_text(str(error)), folder / file) from None
        finally:
            _interrupt_calls()
        resources = read_ptxas(log)
        if libraries:
            cubin, resources = self._link(name, cubin, arch, libraries, resources)
        took = 1000 * (time.monotonic() - start)
        _log.info("NVRTC on %s for %s: %.0f ms", name, arch, took)
        return Compiled(name, arch, cubin, resources, took)

    def _arguments(self, arch: str, *, linked: bool) -> list[str]:
        """The compiler's options; code that is linked with libraries is relocatable."""
        return [
            f"-arch={arch}",
            *self.options.split(),
            f"--include-path={self._headers}",
            "--ptxas-options=-v",
            # Without textures and CUDA's runtime functions, where no kernel uses them: the same code, a fifth sooner.
            "--relocatable-device-code=true" if linked else "--minimal",
            # Where there is a driver, NVRTC keeps a cache of its own: it may answer from there without ptxas's log.
            "--no-cache",
        ]

    def _link(
        self, name: str, cubin: bytes, arch: str, libraries: tuple[str, ...], resources: dict[str, Resources]
    ) -> tuple[bytes, dict[str, Resources]]:
        try:
            found = [find_library(library, Path(self._headers)) for library in libraries]
            self._linker = self._linker or find_linker()
        except MissingToolError as error:
            raise UnlinkedError(name, f"{error.subject} {error.rule}", Path(f"{name}.cu"), error.next_step) from error
        linked = self._linker.link(name, cubin, arch, found)
        return linked.cubin, linked.resources(resources)


class _RefusedError(Exception):
    """NVRTC refuses a source; holds its log."""


def _machine_code(text: str, file: str, arguments: Sequence[str], *, ptx: bool = False) -> tuple[bytes, str]:
    """The machine code of a source, or its PTX, and the log. Raises _RefusedError with the log, or the reason."""
    program = _call(nvrtc.nvrtcCreateProgram, text.encode(), file.encode(), 0, [], [])
    try:
        status, *_ = nvrtc.nvrtcCompileProgram(program, len(arguments), [one.encode() for one in arguments])
        log = bytearray(_call(nvrtc.nvrtcGetProgramLogSize, program))
        _call(nvrtc.nvrtcGetProgramLog, program, log)
        said = log.decode(errors="replace").replace("\0", "")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _RefusedError(said.strip() or status.name)
        size, get = (
            (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX) if ptx else (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
        )
        code = bytearray(_call(size, program))
        _call(get, program, code)
        return bytes(code), said
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _call(function: Any, *arguments: Any) -> Any:
    """What a function of NVRTC gives. Raises _RefusedError with the name of what went wrong."""
    status, *found = function(*arguments)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise _RefusedError(status.name)
    return found[0] if found else None


def _interrupt_calls() -> None:
    """Lets Ctrl-C interrupt calls again, as Python has it.

    NVRTC puts back the handlers that it found such that calls go on behind them: a program that waits for a lock, in
    code that has nothing to do with gen, would then hear of Ctrl-C when the wait is over.
    """
    if callable(signal.getsignal(signal.SIGINT)):  # one of Python's
        signal.siginterrupt(signal.SIGINT, True)


def nvrtc_version() -> str:
    """The version of NVRTC: `13.0.88` from its wheel, `13.0` from elsewhere, since the library tells no more.

    Raises:
        MissingToolError: the library is not installed.
    """
    try:
        status, major, minor = nvrtc.nvrtcVersion()
        library = load_nvidia_dynamic_lib("nvrtc").abs_path
    except RuntimeError as error:
        raise MissingToolError(
            "The library NVRTC", "must be installed", next_step="Run: pip install 'nvidia-cuda-nvrtc==13.0.*'"
        ) from error
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise MissingToolError("The library NVRTC", "must tell its version", status.name)
    return wheel_version("nvidia-cuda-nvrtc", library) or f"{major}.{minor}"


def _compilers_text(log: str) -> str:
    """A log without what differs from one compilation to the next."""
    return "\n".join(line for line in log.strip("\n").splitlines() if "Compile time" not in line)
