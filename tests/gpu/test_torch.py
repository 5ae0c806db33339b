"""gen's operators of torch on the GPU: what tests/host/test_torch.py holds on the CPU run, and what only a GPU has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gen.torch  # noqa: E402
from tests.torch_operators import *  # noqa: E402, F403

pytestmark = pytest.mark.filterwarnings("default")  # torch warns of its own


@pytest.fixture
def place(device: Any) -> str:  # noqa: ARG001  opened before torch makes its context
    return "cuda"


def test_operators_run_on_the_current_stream_and_in_graphs(place: str) -> None:
    x, stream = torch.ones(512, 1024, device=place), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            gen.torch.sum(x, axis=-1)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = gen.torch.sum(x, axis=-1)
    x.fill_(2)
    graph.replay()
    assert torch.equal(result, torch.full_like(result, 2048))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_large_tensors_through_inductor(mode: str, place: str) -> None:
    def normed(x: Any) -> Any:
        return gen.torch.permute_dims(x - gen.torch.mean(x, axis=-1, keepdims=True), (1, 0))

    compiled = torch.compile(normed, fullgraph=True, mode=mode)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(1500, 2049, device=place)
        torch.testing.assert_close(compiled(x), (x - x.mean(-1, keepdim=True)).t())


def test_a_net_with_gens_operators_is_that_of_torch_and_is_timed(tmp_path: Path) -> None:
    checkout, file = Path(__file__).parents[2], tmp_path / "model.json"
    command = [sys.executable, "-m", "bench.torch_model", "--rounds", "1", "--json", str(file)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(file.read_text())["rows"]
    assert [row["model"] for row in rows] == [
        "torch, eager", "gen, eager", "torch, torch.compile", "gen, torch.compile",
    ]  # fmt: skip
    assert all(row["forward_us"] > 0 for row in rows)
