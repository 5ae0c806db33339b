"""`bench/calls.py` on a stand-in for the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.exhaustive
def test_every_way_to_call_is_timed_without_a_gpu(tmp_path: Path) -> None:
    file = tmp_path / "calls.json"
    command = [sys.executable, "bench/calls.py", "--stub", "--rounds", "1", "--many", "3000", "--json", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    content = json.loads(file.read_text())
    assert content["meta"]["device"] == "Stub GPU"
    assert content["meta"]["command"].startswith("python bench/calls.py --stub")
    rows = {row["call"]: row["host_us"] for row in content["rows"]}
    assert len(rows) == len(content["rows"]) == done.stdout.count(" us  ")
    assert all(us > 0 for us in rows.values())
    for case in ("sum of 2^12", "sum of 2^20", "row sums of 512 x 128", "transpose of 256 x 256"):
        assert {f"gen {case}: {how}" for how in ("bound, out=", "unbound, out=", "unbound, making its output")} <= set(
            rows
        )
    of_driver = "cuLaunchKernel alone, from C,"
    assert [name for name in rows if not name.startswith("gen ")] == [
        f"{of_driver} of a sum of 2^12", f"{of_driver}: 1 threads on 1 streams", f"{of_driver}: 8 threads on 8 streams"
    ]  # fmt: skip
