"""`bench/torch_model.py` on the CPU run: a net with gen's operators gives torch's results and gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.exhaustive
def test_a_net_with_gens_operators_is_that_of_torch() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "bench/torch_model.py", "--check"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "GEN_DEVICE": "cpu"}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        "gen, eager", "torch, torch.compile", "gen, torch.compile",
    ]  # fmt: skip
