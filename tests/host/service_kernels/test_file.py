"""The file of the kernels that the measuring side runs: each of it is tried, and it is formatted."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import clang_format  # type: ignore[import-untyped]

from tests.host.service_kernels.given import ARGUMENTS, SOURCE

CHECKOUT = Path(__file__).parents[3]


def test_every_kernel_of_the_file_is_tried_here() -> None:
    assert set(re.findall(r"\bgen_(\w+)\(", SOURCE)) == ARGUMENTS.keys()


def test_the_file_is_a_fixed_point_of_clang_format(tmp_path: Path) -> None:
    program = shutil.which("clang-format", path=Path(sys.executable).parent) or clang_format.get_executable(
        "clang-format"
    )
    shutil.copy(CHECKOUT / "out" / ".clang-format", tmp_path)
    (tmp_path / "kernels.cu").write_text(SOURCE)
    done = subprocess.run(
        [program, "--style=file", "kernels.cu"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == SOURCE
    assert max(map(len, SOURCE.splitlines())) <= 100
