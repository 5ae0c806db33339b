"""CUDA's headers and programs: from their wheels, wherever these are installed, or from a toolkit."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from gen.errors import MissingToolError

NEEDED = ("vector_types.h", "cuda_fp16.h", "crt/host_defines.h")


def headers_for_gpp() -> Path | None:
    """The first folder that has all that g++ reads; None if there is none.

    Two wheels bring them, and a library may have installed one of these elsewhere.
    """
    return next((place for place in places() if not lacking(place)), None)


def lacking(folder: Path) -> list[str]:
    """The needed headers that a folder does not have."""
    return [name for name in NEEDED if not (folder / name).is_file()]


def places() -> Iterator[Path]:
    """Where they may be, best first."""
    found = _found_by_pathfinder()
    if found is not None:
        yield found
    for folder in _wheels():
        yield folder / "cu13" / "include"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name]) / "include"
    yield Path("/usr/local/cuda/include")


def _found_by_pathfinder() -> Path | None:
    """The folder of headers that cuda-pathfinder finds; None if it finds none, or is not installed."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory  # slow to import, and not needed to emit
    except ImportError:
        return None
    found = find_nvidia_header_directory("cudart")
    return None if found is None else Path(found)


def find_program(name: str) -> Path | None:
    """A program of CUDA's: the one that pip installs, else one on the PATH; None where there is none."""
    for folder in _wheels():
        for found in sorted(folder.glob(f"*/bin/{name}")):
            return found
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def _wheels() -> Iterator[Path]:
    """The folders in which NVIDIA's wheels are installed."""
    package = find_spec("nvidia")
    yield from map(Path, (package and package.submodule_search_locations) or ())


def headers_folder() -> Path:
    """The folder of `cuda_fp16.h`.

    Raises:
        MissingToolError: there is none.
    """
    folder = _found_by_pathfinder()
    if folder is None or not (folder / "cuda_fp16.h").is_file():
        raise MissingToolError(
            "The header cuda_fp16.h", "must be installed", next_step="Run: pip install 'nvidia-cuda-runtime==13.0.*'"
        )
    return folder


def headers_version() -> str:
    """The version of CUDA's headers: `13.0.96` from their wheel, `13.0` from elsewhere."""
    folder = headers_folder()
    version = wheel_version("nvidia-cuda-runtime", str(folder))
    if version:
        return version
    declared = re.search(r"#define CUDART_VERSION\s+(\d+)", (folder / "cuda_runtime_api.h").read_text(errors="replace"))
    number = int(declared[1]) if declared else 0
    return f"{number // 1000}.{number % 1000 // 10}"


def wheel_version(distribution: str, file: str | None) -> str | None:
    """The version of an installed package, if `file` is of that package."""
    try:
        wheel = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    root = Path(str(wheel.locate_file(""))).resolve()
    return wheel.version if file and Path(file).resolve().is_relative_to(root) else None
