"""CUDA's headers for g++, and its programs: from their wheels, wherever these are installed, or from a toolkit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

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
    try:
        from cuda.pathfinder import find_nvidia_header_directory  # slow to import, and not needed to emit
    except ImportError:
        pass
    else:
        found = find_nvidia_header_directory("cudart")
        if found is not None:
            yield Path(found)
    for folder in _wheels():
        yield folder / "cu13" / "include"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name]) / "include"
    yield Path("/usr/local/cuda/include")


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
