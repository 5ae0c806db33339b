"""Operators of torch in C++ on the GPU: AOTInductor's runtime computes with them what torch computes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gen.cli.app import app
from gen.gpu.device import find_gpu
from tests import aoti


def test_the_runtime_of_aotinductor_runs_a_model_with_gens_operators(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    device, folder = find_gpu(), tmp_path / "kernels"
    assert device is not None
    command = ["export", "reduction_mean_f32_axism1", "transpose_10_b32", "-o", str(folder), "--name", "kernels"]
    done = CliRunner().invoke(app, [*command, "--arch", device.limits.arch, "--shape", "64x32"])
    assert done.exit_code == 0, done.output
    status, said = aoti.run(folder, aoti.operators(folder, "kernels"), "cuda")
    assert status == 0, said
    assert float(said) < 1e-5
