"""Links machine code with libraries of device code: kernels that launch kernels need CUDA's device runtime.

By nvJitLink, where PyPI or a toolkit brought it, else by nvcc. The driver links too, but only in a process
that has made a context on a GPU, and those that compile have none. Like `nvrtc`, to be imported on the main thread.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from gen.errors import CompileError, MissingToolError
from gen.paths import how_to_install
from gen.toolchain.compiled import Resources
from gen.toolchain.headers import find_program

_KERNEL = re.compile(r"Function properties for '([^']+)':\n.*?used (\d+) registers, .*?(\d+) stack,")
_VERSION = re.compile(r"V(\d+\.\d+\.\d+)")


@dataclass(frozen=True)
class Linked:
    """What the driver can load, and what the linker says of it."""

    cubin: bytes
    log: str

    def resources(self, compiled: Mapping[str, Resources]) -> dict[str, Resources]:
        """What kernels occupy now: a kernel that calls a library may need more than its compiler knew, by symbol."""
        found = dict(compiled)
        for symbol, registers, stack in _KERNEL.findall(self.log):
            if symbol in found:
                found[symbol] = replace(found[symbol], registers=int(registers), stack_bytes=int(stack))
        return found


class Linker(Protocol):
    """Joins relocatable machine code and libraries.

    Attributes:
        version: `nvJitLink 13.0`, `nvcc 13.0.88`: all of it that can change its output.
    """

    version: str

    def link(self, name: str, cubin: bytes, arch: str, libraries: Sequence[Path]) -> Linked:
        """Links one source's code. Raises CompileError with the linker's own text."""
        ...


class JitLinker:
    """nvJitLink, called by cuda-core."""

    def __init__(self) -> None:
        """Loads it. Raises MissingToolError if it is not installed."""
        try:
            import cuda.core  # noqa: F401  what links
            from cuda.bindings import nvjitlink

            major, minor = nvjitlink.version()  # loads it: where it is there, cuda-core takes it, else the driver's
        except (ImportError, RuntimeError) as error:
            raise MissingToolError("nvJitLink", "must be installed", error) from error
        self.version = f"nvJitLink {major}.{minor}"

    def link(self, name: str, cubin: bytes, arch: str, libraries: Sequence[Path]) -> Linked:
        """Links one source's code."""
        from cuda.bindings.nvjitlink import nvJitLinkError
        from cuda.core import Linker as CoreLinker
        from cuda.core import LinkerOptions, ObjectCode

        objects = [ObjectCode.from_cubin(cubin), *(ObjectCode.from_library(str(path)) for path in libraries)]
        try:
            linker = CoreLinker(*objects, options=LinkerOptions(arch=arch, verbose=True))
            code = bytes(linker.link("cubin").code)
        except nvJitLinkError as error:
            raise CompileError(name, f"nvJitLink: {error}", Path(f"{name}.cu")) from error
        return Linked(code, linker.get_info_log())


class NvccLinker:
    """nvcc, as a process."""

    def __init__(self) -> None:
        """Finds it. Raises MissingToolError without one."""
        found = find_program("nvcc")
        if found is None:
            raise MissingToolError("nvcc", "must be installed by pip, or be on the PATH")
        self._program = found
        said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        version = _VERSION.search(said)
        if version is None:
            raise MissingToolError("nvcc", "must tell its version", said.strip() or None)
        self.version = f"nvcc {version[1]}"

    def link(self, name: str, cubin: bytes, arch: str, libraries: Sequence[Path]) -> Linked:
        """Links one source's code."""
        with tempfile.TemporaryDirectory(prefix="gen-link-") as folder:
            code, linked = Path(folder) / "code.cubin", Path(folder) / "linked.cubin"
            code.write_bytes(cubin)
            places = [argument for path in libraries for argument in ("-L", path.parent, "-l" + path.stem[3:])]
            command = [self._program, f"-arch={arch}", "-dlink", "-cubin", "-Xnvlink", "-v", code, *places]
            done = subprocess.run([*command, "-o", linked], capture_output=True, text=True, check=False)
            if done.returncode or not linked.is_file():
                said = done.stderr or done.stdout or f"nvcc ended with status {done.returncode}"
                raise CompileError(name, said, Path(f"{name}.cu"))
            return Linked(linked.read_bytes(), done.stdout + done.stderr)


def find_linker() -> Linker:
    """The first linker that is installed. Raises MissingToolError if there is none."""
    for kind in (JitLinker, NvccLinker):
        try:
            return kind()
        except MissingToolError:
            continue
    raise MissingToolError(
        "A linker of device code", "must be installed: nvJitLink or nvcc",
        next_step=f"Run: {how_to_install('link')}",
    )  # fmt: skip


def find_library(name: str, headers: Path) -> Path:
    """A library of device code, which lies beside CUDA's headers, in their wheel as in a toolkit.

    Args:
        name: `cudadevrt`.
        headers: the folder of `cuda_fp16.h`.

    Raises:
        MissingToolError: it is not there.
    """
    for folder in ("lib", "lib64"):
        path = headers.parent / folder / f"lib{name}.a"
        if path.is_file():
            return path
    raise MissingToolError(
        f"The library lib{name}.a", "must lie beside CUDA's headers", headers,
        next_step="Run: pip install 'nvidia-cuda-runtime==13.0.*'",
    )  # fmt: skip
