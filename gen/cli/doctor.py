"""`gen doctor`: what is installed, what is missing, and what does not work without it."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import typer

import gen
from gen.cli import output
from gen.cli.common import Home, Json, home_of
from gen.errors import GenError
from gen.paths import how_to_install


def doctor(results: Home = None, json: Json = False) -> None:
    """Show what gen needs: versions, what is missing, what does not work without it, and how to install it.

    Exits with 1 if something is missing without which kernels cannot be compiled or proven.

    Examples: `gen doctor`, `gen doctor --json`.
    """
    findings = examine(home_of(results))
    missing = [finding for finding in findings if not finding.ok]
    if json:
        output.data({"findings": [asdict(finding) for finding in findings]})
    else:
        rows = [
            (
                finding.name,
                finding.version or "-",
                _state(finding),
                finding.needed_for,
            )
            for finding in findings
        ]
        output.table(("what", "version", "state", "needed for"), rows)
        for finding in missing:
            output.text()
            how = "cannot be used in this version" if finding.version else "is not installed"
            how = "are stale in part" if finding.name == WINNERS else how
            output.text(f"{finding.name} {how}: {finding.missing_costs}.")
            output.text(finding.install, indent=2)
    if any(finding.required for finding in missing):
        raise typer.Exit(1)


def _state(finding: Finding) -> str:
    """`ok`; what is required in capitals; what gen does without in small letters."""
    if finding.ok:
        return "ok"
    state = "stale" if finding.name == WINNERS else "unusable" if finding.version else "missing"
    return state.upper() if finding.required else state


WINNERS = "tuned winners"
OLDEST_GXX = 11  # the first that knows `--param tsan-distinguish-volatile`
OLDEST_DRIVER = 13  # loads what NVRTC 13 compiles


@dataclass(frozen=True)
class Finding:
    """One thing that gen needs.

    Attributes:
        name: what it is called.
        version: as it tells itself; None where there is none, or it does not say.
        needed_for: what gen does with it.
        missing_costs: what cannot be done without it.
        install: how to get it.
        ok: whether it is there and usable.
        required: whether kernels cannot be compiled or proven without it.
    """

    name: str
    version: str | None
    needed_for: str
    missing_costs: str
    install: str
    ok: bool
    required: bool = False


def examine(home: Path | None = None) -> tuple[Finding, ...]:
    """Everything that gen needs, what it needs most first. Never raises; starts no GPU.

    Args:
        home: the folder of results, whose winners are looked at; where commands look if None.
    """
    from gen.gpu.device import cuda_of_driver
    from gen.report.counters import profiler
    from gen.runtime import launcher
    from gen.toolchain.headers import headers_for_gpp, headers_version
    from gen.toolchain.link import find_linker
    from gen.toolchain.sass import disassembler

    def finding(
        name: str, version: str | None, needed_for: str, missing_costs: str, install: str, *,
        least: int = 0, most: int | None = None, ok: bool = True, required: bool = False,
    ) -> Finding:  # fmt: skip
        """With the major versions that are usable; where there is no version, it is missing."""
        major = None if version is None else _major(version)
        usable = major is not None and least <= major and (most is None or major <= most)
        return Finding(name, version, needed_for, missing_costs, install, usable and ok, required)

    python, pycuda = platform.python_version(), _has_pycuda()
    in_tuning = "" if pycuda else "; timing them in gen tune"
    return (
        finding("Python", python, "everything", "everything", "", ok=sys.version_info >= (3, 11), required=True),
        finding("gen", gen.__version__, "everything", "everything", "", required=True),
        finding(
            "NVRTC", _asked(_nvrtc_version), "compiling kernels",
            "kernels are written and proven, but not compiled for a GPU, so neither measured nor called there",
            "pip install 'nvidia-cuda-nvrtc==13.0.*'", required=True,
        ),
        finding(
            "cuda-bindings", _distribution("cuda-bindings"),
            f"calling NVRTC; calling kernels{in_tuning}", "no kernel is compiled for a GPU",
            "pip install 'cuda-bindings>=13,<14'", least=13, most=13, required=True,
        ),
        finding(
            "CUDA headers", _asked(headers_version), "kernels of float16 and bfloat16",
            "these kernels are neither compiled nor proven",
            "pip install 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*'",
            ok=headers_for_gpp() is not None, required=True,
        ),
        finding(
            "g++", _says(shutil.which("g++"), "-dumpfullversion"), "proving kernels on the CPU",
            "no kernel is proven", f"apt install g++, version {OLDEST_GXX} or newer",
            least=OLDEST_GXX, required=True,
        ),
        Finding(
            "Python's headers", python, "calling kernels with little overhead", "a call takes about 30 us, not a few",
            "apt install python3-dev, and g++", launcher.lacking() is None,
        ),
        _winners(home),
        finding(
            "addr2line", _says(shutil.which("addr2line"), "--version"),
            "naming the line of a kernel that broke a rule on the CPU",
            "errors of a proof name the kernel, and not the line", "apt install binutils",
        ),
        finding(
            "clang-format", _says(_clang_format(), "--version"),
            "checking that emitted files are formatted, in make check",
            "make check fails; all else works", how_to_install("dev"),
        ),
        finding(
            "GPU driver (CUDA)", cuda_of_driver(), "running kernels on a GPU",
            "kernels are compiled and proven, but neither measured nor called on a GPU",
            "install NVIDIA's driver, of CUDA 13.0 or newer", least=OLDEST_DRIVER,
        ),
        Finding(
            "PyCUDA", _distribution("pycuda"), "loading and timing kernels in gen tune; compiling with nvcc",
            "cuda-bindings is used in its place, and gen tune --compiler nvcc does not work",
            f"{how_to_install('pycuda')}, with nvcc on the PATH", pycuda,
        ),
        finding(
            "nvidia-ml-py", _distribution("nvidia-ml-py"), "seeing clocks, and who else uses the GPU",
            "gen tune does not notice that clocks fall, or that others use the GPU", how_to_install("gpu"),
        ),
        finding(
            "device linker", _asked(lambda: find_linker().version),
            "kernels that launch kernels, such as gpuRecursiveReduce",
            "these kernels are written, but not compiled", how_to_install("link"),
        ),
        finding(
            "nvdisasm", _says(disassembler(), "--version", "release"),
            "counting the instructions of machine code, in gen explain",
            "gen explain counts no instructions, and names no cache operators",
            how_to_install("sass"),
        ),
        finding(
            "Nsight Compute (ncu)", _says(profiler(), "--version", "Version"),
            "reading the hardware's counters, in gen explain on a GPU",
            "gen explain shows only what is counted on the CPU",
            "install Nsight Compute, which comes with the CUDA toolkit; on Debian and Ubuntu: "
            "apt install cuda-nsight-compute-13-0",
        ),
    )  # fmt: skip


def _winners(results: Path | None) -> Finding:
    """The winners of the GPU here, or of all where there is none, and how many of them are stale."""
    from gen.cli.common import limits_for
    from gen.families import families
    from gen.gpu.device import find_gpu
    from gen.paths import output_home
    from gen.runtime.dispatch import winners_of
    from gen.store.folder import known_specs
    from gen.store.stale import stale

    home, known, device = output_home(results), families(), find_gpu()
    winners = [one for one in winners_of(home) if device is None or one.device == device.name]
    found = len(list(stale(winners, known, known_specs(known, home), limits_for(None, device))))
    return Finding(
        WINNERS, str(len(winners)), "calling what was measured to be the fastest",
        f"{found} of these {len(winners)} were measured with an older kernel, so an estimate may choose another one",
        "gen tune --stale, on the GPU",
        not found,
    )  # fmt: skip


def _asked(version: Callable[[], str]) -> str | None:
    """The version of what tells it when it is loaded; None where it cannot be."""
    try:
        return version()
    except (GenError, OSError, RuntimeError):
        return None


def _nvrtc_version() -> str:
    from gen.toolchain.nvrtc import nvrtc_version  # loads the compiler: only doctor and compilers pay it

    return nvrtc_version()


def _clang_format() -> str | None:
    # That of gen's own environment comes first: it need not be on the path.
    beside = Path(sys.executable).with_name("clang-format")
    return str(beside) if beside.is_file() else shutil.which("clang-format")


def _has_pycuda() -> bool:
    """Whether it is installed. Not imported: that would look for the driver."""
    try:
        return find_spec("pycuda") is not None
    except (ImportError, ValueError):  # something stands in its place that is no package
        return False


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
