"""The device layer on a stand-in for the driver, where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
DRIVER = CHECKOUT / "tests" / "driver"


@pytest.mark.exhaustive
def test_the_driver_is_called_as_it_wants_to_be(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    build = ["g++", "-shared", "-fPIC", "-std=c++17", "-Wall", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run([*build, str(DRIVER / "stub.cpp"), "-ldl"], check=True)
    # In a process of its own: for all others there is to be no driver. PyCUDA is linked with the real one.
    code = (
        "import sys, pytest; sys.modules['pycuda'] = None; "
        f"raise SystemExit(pytest.main(['-q', '-p', 'no:cacheprovider', {str(DRIVER)!r}]))"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "GEN_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
