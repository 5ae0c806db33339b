"""Compiles with nvcc, through PyCUDA: where a CUDA toolkit is, and a GPU."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import gen.gpu.device  # noqa: F401  loads the driver that PyCUDA stands on
from gen.emit.render import linked_with
from gen.errors import CompileError, MissingToolError
from gen.toolchain.cache import Cache, compiled_once, content_key, write_whole
from gen.toolchain.compiled import Compiled
from gen.toolchain.link import NvccLinker, find_library
from gen.toolchain.nvrtc import headers_folder

try:
    import pycuda.compiler as pycuda_compiler
    import pycuda.driver as pycuda
except ImportError as error:
    raise MissingToolError(
        "PyCUDA", "is needed to compile with nvcc", error, next_step="Install it with pip install 'gen-cuda[gpu]'"
    ) from error

OPTIONS = ("-std=c++17",)


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
