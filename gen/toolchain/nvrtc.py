"""Compiles with NVRTC: no toolkit, no GPU.

Import this module on the main thread, and only where something is compiled: cuda-core takes half a second to load, and
its first import from two threads at once fails.
"""

from __future__ import annotations

import io
import re
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from gen.arch import architectures_of
from gen.emit.render import linked_with
from gen.errors import CompileError, MissingToolError, UnknownNameError, UnlinkedError
from gen.toolchain.cache import Cache, compiled_once, content_key, write_whole
from gen.toolchain.compiled import Compiled, Resources, read_ptxas
from gen.toolchain.headers import headers_folder, headers_version, wheel_version
from gen.toolchain.link import Linker, find_library, find_linker

try:
    from cuda.bindings import nvrtc
    from cuda.core import Program, ProgramOptions
    from cuda.pathfinder import load_nvidia_dynamic_lib
except ImportError as error:
    raise MissingToolError(
        "NVRTC's Python packages", f"must be installed: {error}",
        next_step="Run: pip install 'cuda-core>=1.0,<2' 'cuda-bindings>=13,<14'",
    ) from error  # fmt: skip


# A product and a sum are rounded apart unless the source says fma, as on the CPU run: NVRTC's default fuses them.
NO_CONTRACTION = "-fmad=false"


@dataclass(frozen=True)
class Flags:
    """How NVRTC compiles, beyond the source and the architecture. Products and sums are never fused unasked.

    Attributes:
        std: the C++ standard.
        line_info: whether the code knows its source lines, for a profiler.
        max_registers: of one thread; None leaves it to the compiler.
        ptxas: further options of ptxas: `-dlcm=cg`.
    """

    std: str = "c++17"
    line_info: bool = False
    max_registers: int | None = None
    ptxas: tuple[str, ...] = ()

    def __str__(self) -> str:
        texts = [f"-std={self.std}", NO_CONTRACTION, "-lineinfo" if self.line_info else ""]
        texts.append("" if self.max_registers is None else f"-maxrregcount={self.max_registers}")
        return " ".join(text for text in (*texts, *self.ptxas) if text)


class Nvrtc:
    """The compiler of CUDA's runtime, as a `Compiler` with a cache. Threads may share one.

    Attributes:
        version: `nvrtc 13.0.88, headers 13.0.96`.
        options: `-std=c++17 -fmad=false`.
        architectures: what it compiles for: `sm_75`, ... `sm_90`, `sm_90a`, ...
    """

    def __init__(self, cache: Path | None, flags: Flags | None = None) -> None:
        """Loads the compiler.

        Args:
            cache: keeps what was compiled, and the sources that were refused; None keeps nothing.
            flags: options beyond the usual ones.

        Raises:
            MissingToolError: NVRTC or the CUDA headers are not installed.
        """
        self.flags = flags or Flags()
        self.options = str(self.flags)
        self.version = f"nvrtc {nvrtc_version()}, headers {headers_version()}"
        self.architectures = architectures_of(nvrtc.nvrtcGetSupportedArchs()[1])
        self._headers = str(headers_folder())
        self._linker: Linker | None = None  # found when a source needs it
        self._entries = None if cache is None else Cache(cache / "nvrtc", ".cubin")
        self._failed = None if cache is None else cache / "failed"

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
        if arch not in self.architectures:
            known = ", ".join(self.architectures)
            raise UnknownNameError("The architecture", f"must be one that {self.version} knows: {known}", repr(arch))
        if self._entries is None:
            return self._compile(name, text, arch)
        key = self.key(text, arch)
        return compiled_once(self._entries, key, name, lambda: self._compile(name, text, arch))

    def key(self, text: str, arch: str) -> str:
        """The cache key of a source: all that determines its machine code, and nothing of the machine at hand."""
        flags = self.flags
        linker = {"linker": self._linker_version()} if linked_with(text) else {}
        return content_key(
            {
                "compiler": self.version,
                "arch": arch,
                "std": flags.std,
                "contraction": NO_CONTRACTION,
                "line info": int(flags.line_info),
                "max registers": flags.max_registers or 0,
                "ptxas": flags.ptxas,
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
        options = ProgramOptions(
            name=file,
            arch=arch,
            std=self.flags.std,
            fma=False,
            include_path=[self._headers],
            lineinfo=self.flags.line_info,
            max_register_count=self.flags.max_registers,
            ptxas_options=["-v", *self.flags.ptxas],
            relocatable_device_code=True if libraries else None,
            # Without textures and CUDA's runtime functions, where no kernel uses them: the same code, a fifth sooner.
            minimal=not libraries,
            # Where there is a driver, NVRTC keeps a cache of its own: it may answer from there without ptxas's log.
            no_cache=True,
        )
        log, start = io.StringIO(), time.monotonic()
        try:
            code = Program(text, "c++", options).compile("cubin", logs=log).code
        except Exception as error:
            if type(error).__name__ != "NVRTCError":  # the class lies in a private module
                raise
            folder = self._failed or Path(tempfile.mkdtemp(prefix="gen-failed-"))
            write_whole(folder / file, text.encode())
            raise CompileError(name, _compilers_text(str(error)), folder / file) from None
        finally:
            _interrupt_calls()
        cubin, resources = bytes(code), read_ptxas(log.getvalue())
        if libraries:
            cubin, resources = self._link(name, cubin, arch, libraries, resources)
        return Compiled(name, arch, cubin, resources, 1000 * (time.monotonic() - start))

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


def _compilers_text(message: str) -> str:
    """The log in an exception of cuda-core, which puts a status before it and zero bytes behind."""
    _, _, log = message.replace("\0", "").partition("compilation log:")
    lines = (log or message).strip("\n").splitlines()
    return "\n".join(line for line in lines if "Compile time" not in line)
