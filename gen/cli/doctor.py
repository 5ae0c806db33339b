"""`gen doctor`: what is installed, what is missing, and what that costs."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import typer

import gen
from gen.cli import show
from gen.cli.common import Json
from gen.errors import GenError


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("doctor", epilog="Examples: `gen doctor`, `gen doctor --json`.")(doctor)


def doctor(json: Json = False) -> None:
    """Show what gen stands on: versions, what is missing, what that costs and how to get it.

    Exits with 1 if something is missing without which kernels cannot be compiled or proven.
    """
    findings = examine()
    missing = [finding for finding in findings if not finding.ok]
    if json:
        show.data({"findings": [asdict(finding) for finding in findings]})
    else:
        rows = [
            (
                finding.name,
                finding.version or "-",
                "ok" if finding.ok else "MISSING" if finding.required else "optional",
                finding.needed_for,
            )
            for finding in findings
        ]
        show.table(("what", "version", "state", "needed for"), rows)
        for finding in missing:
            show.text()
            how = "too old, or unusable" if finding.version else "missing"
            show.text(f"{finding.name} is {how}. What that costs: {finding.missing_costs}.")
            show.text(finding.install, indent=2)
    if any(finding.required for finding in missing):
        raise typer.Exit(1)


OLDEST_GXX = 11  # the first that knows `--param tsan-distinguish-volatile`
OLDEST_DRIVER = 13  # loads what NVRTC 13 compiles


@dataclass(frozen=True)
class Finding:
    """One thing that gen stands on.

    Attributes:
        name: what it is called.
        version: as it tells itself; None where there is none, or it does not say.
        needed_for: what gen does with it.
        missing_costs: what cannot be done without it.
        ok: whether it is there and usable.
        install: how to get it.
        required: whether kernels cannot be compiled or proven without it.
    """

    name: str
    version: str | None
    needed_for: str
    missing_costs: str
    ok: bool
    install: str = ""
    required: bool = False


def examine() -> tuple[Finding, ...]:
    """Everything that gen stands on, what it needs most first. Never raises; starts no GPU."""
    return (
        _python(), _gen(), _nvrtc(), _cuda_core(), _cuda_bindings(), _headers(),
        _gxx(), _addr2line(), _clang_format(), _driver(), _pycuda(), _nvml(), _linker(), _disassembler(),
        _profiler(),
    )  # fmt: skip


def _python() -> Finding:
    return Finding(
        "Python", platform.python_version(), "everything", "everything", sys.version_info >= (3, 11), required=True
    )


def _gen() -> Finding:
    return Finding("gen", gen.__version__, "everything", "everything", True, required=True)


def _nvrtc() -> Finding:
    version = None
    try:
        from gen.toolchain.nvrtc import nvrtc_version  # half a second: only doctor and compilers pay it

        version = nvrtc_version()
    except (GenError, OSError, RuntimeError):
        pass
    return Finding(
        "NVRTC", version, "compiling kernels", "kernels are written and proven, but not compiled, measured or loaded",
        version is not None, "pip install 'nvidia-cuda-nvrtc==13.0.*'", required=True,
    )  # fmt: skip


def _cuda_core() -> Finding:
    version = _distribution("cuda-core")
    return Finding(
        "cuda-core", version, f"calling NVRTC{'' if _has_pycuda() else '; loading and timing kernels in gen tune'}",
        "no kernel is compiled", version is not None and _major(version) == 1, "pip install 'cuda-core>=1.0,<2'",
        required=True,
    )  # fmt: skip


def _cuda_bindings() -> Finding:
    version = _distribution("cuda-bindings")
    return Finding(
        "cuda-bindings", version, "cuda-core, which does not work without it; calling kernels", "no kernel is compiled",
        version is not None and _major(version) == 13, "pip install 'cuda-bindings>=13,<14'", required=True,
    )  # fmt: skip


def _headers() -> Finding:
    version, complete = None, False
    try:
        from gen.toolchain.headers import headers_for_gpp, headers_version

        version = headers_version()
        complete = headers_for_gpp() is not None
    except (GenError, OSError, RuntimeError):
        pass
    return Finding(
        "CUDA headers", version, "kernels of half precision", "they are neither compiled nor proven",
        complete, "pip install 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*'", required=True,
    )  # fmt: skip


def _gxx() -> Finding:
    version = _says(shutil.which("g++"), "-dumpfullversion")
    return Finding(
        "g++", version, "proving kernels on the CPU", "nothing is proven without a GPU",
        version is not None and _major(version) >= OLDEST_GXX,
        f"apt install g++, version {OLDEST_GXX} or newer", required=True,
    )  # fmt: skip


def _addr2line() -> Finding:
    version = _says(shutil.which("addr2line"), "--version")
    return Finding(
        "addr2line", version, "naming the line of a kernel that broke a rule on the CPU",
        "the rule and the kernel are named, the line is not", version is not None, "apt install binutils",
    )  # fmt: skip


def _clang_format() -> Finding:
    # That of gen's own environment comes first: it need not be on the path.
    beside = Path(sys.executable).with_name("clang-format")
    version = _says(str(beside) if beside.is_file() else shutil.which("clang-format"), "--version")
    return Finding(
        "clang-format", version, "checking that emitted files are formatted (development)",
        "`make check` cannot run; using gen is not affected", version is not None, "pip install 'gen-cuda[dev]'",
    )  # fmt: skip


def _driver() -> Finding:
    from gen.gpu.device import cuda_of_driver

    version = cuda_of_driver()
    return Finding(
        "GPU driver (CUDA)", version, "running kernels on a GPU",
        "kernels are compiled and proven, but neither measured nor loaded",
        version is not None and _major(version) >= OLDEST_DRIVER, "install NVIDIA's driver, of CUDA 13.0 or newer",
    )  # fmt: skip


def _pycuda() -> Finding:
    return Finding(
        "PyCUDA", _distribution("pycuda"), "loading and timing kernels in gen tune; compiling with nvcc",
        "cuda-core loads and times kernels instead; --compiler nvcc cannot be used", _has_pycuda(),
        "pip install 'gen-cuda[pycuda]', which needs nvcc on the PATH",
    )  # fmt: skip


def _has_pycuda() -> bool:
    """Whether it is installed. Not imported: that would look for the driver."""
    try:
        return find_spec("pycuda") is not None
    except (ImportError, ValueError):  # something stands in its place that is no package
        return False


def _nvml() -> Finding:
    version = _distribution("nvidia-ml-py")
    return Finding(
        "nvidia-ml-py", version, "seeing clocks, and who else uses the GPU", "trials note neither",
        version is not None, "pip install 'gen-cuda[gpu]'",
    )  # fmt: skip


def _linker() -> Finding:
    version = None
    try:
        from gen.toolchain.link import find_linker

        version = find_linker().version
    except (GenError, OSError, RuntimeError):
        pass
    return Finding(
        "device linker", version, "kernels that launch kernels: gpuRecursiveReduce and its kin",
        "they are written, but not compiled, measured or loaded", version is not None, "pip install 'gen-cuda[link]'",
    )  # fmt: skip


def _disassembler() -> Finding:
    from gen.toolchain.sass import disassembler

    version = _says(disassembler(), "--version", "release")
    return Finding(
        "nvdisasm", version, "counting the instructions of machine code, in gen explain",
        "gen explain counts none, and does not say which cache operators are there", version is not None,
        "pip install 'gen-cuda[sass]'",
    )  # fmt: skip


def _profiler() -> Finding:
    from gen.report.counters import profiler

    version = _says(profiler(), "--version", "Version")
    return Finding(
        "Nsight Compute (ncu)", version, "reading the hardware's counters, in gen explain on a GPU",
        "gen explain shows only what is counted on the CPU run", version is not None,
        "install Nsight Compute, which comes with the CUDA toolkit; on Debian and Ubuntu: "
        "apt install cuda-nsight-compute-13-0",
    )  # fmt: skip


def _major(version: str) -> int:
    digits = re.match(r"\d+", version)
    return int(digits[0]) if digits else 0


def _distribution(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _says(program: str | Path | None, option: str, before: str = "") -> str | None:
    """The version that a program prints; None if it cannot be run or prints none.

    It stands in the first line, or right after the word `before`.
    """
    if program is None:
        return None
    try:
        done = subprocess.run([program, option], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    if before:
        told = re.search(rf"\b{before} (\d+(?:\.\d+)*)", done.stdout)
        return told[1] if done.returncode == 0 and told else None
    # The last number: some put a package's version in parentheses before their own.
    numbers = re.findall(r"\d+(?:\.\d+)+|^\d+$", done.stdout.partition("\n")[0])
    return numbers[-1] if done.returncode == 0 and numbers else None
