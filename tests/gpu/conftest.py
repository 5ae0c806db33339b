"""What the tests on a GPU share. Without one they fail: they are for the machine that has it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gen.paths import cache_home, output_home

if TYPE_CHECKING:
    from gen.gpu.cuda import CudaDevice
    from gen.gpu.timing import Instruments
    from gen.toolchain.nvrtc import Nvrtc


os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes most memory of a GPU that tests share


@pytest.fixture(autouse=True)
def taking_turns(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests in several processes share the GPU, but those marked `alone` have it to themselves."""
    how = fcntl.LOCK_EX if request.node.get_closest_marker("alone") else fcntl.LOCK_SH
    with (Path(tempfile.gettempdir()) / "gen-tests-gpu.lock").open("a") as file:
        fcntl.flock(file, how)
        yield


@pytest.fixture(scope="session")
def compiler() -> Nvrtc:
    """NVRTC, with the cache of the checkout."""
    from gen.toolchain.nvrtc import Nvrtc

    return Nvrtc(cache_home(output_home()))


@pytest.fixture(scope="session")
def instruments(compiler: Nvrtc) -> Instruments:
    """What measuring takes, on the first GPU."""
    from gen.gpu.timing import Instruments

    return Instruments.open(0, compiler)


@pytest.fixture(scope="session")
def device(instruments: Instruments) -> CudaDevice:
    """The first GPU."""
    return instruments.device


@pytest.fixture(scope="session")
def torch(device: CudaDevice) -> Any:  # noqa: ARG001  opened before torch makes its context
    """PyTorch, which must be installed."""
    return import_module("torch")


@pytest.fixture(scope="session")
def cupy(device: CudaDevice) -> Any:  # noqa: ARG001
    """CuPy, which must be installed."""
    return import_module("cupy")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results without winners, so that tests do not depend on what was tuned; its cache stays."""
    folder: Path = tmp_path_factory.mktemp("home")
    (folder / "tuned.json").write_text('{"schema": 1, "winners": []}', encoding="utf-8")
    kept = cache_home(output_home())
    kept.mkdir(parents=True, exist_ok=True)
    cache_home(folder).symlink_to(kept.absolute(), target_is_directory=True)
    return folder


@pytest.fixture(scope="session")
def photograph() -> np.ndarray[Any, np.dtype[np.float32]]:
    """512 x 512 grey levels, 0 to 255."""
    image: np.ndarray[Any, np.dtype[np.float32]] = import_module("skimage.data").camera().astype(np.float32)
    return image
