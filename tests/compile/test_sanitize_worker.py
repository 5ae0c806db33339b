"""What runs under compute-sanitizer, on a GPU that is none."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import sanitize
from bench.runner import CudaRunner, ProvableKernel
from bench.sanitizer import worker
from bench.sanitizer.faults import FAULTS, TOOLS
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import find_variant
from gen.proof.cases import DRAWN
from gen.toolchain.nvrtc import Nvrtc
from tests.fake_device import TRANSPOSE, FakeDevice
from tests.fakes import OracleRunner


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDevice:
    """Its kernels compute with NumPy; one whose text has no barrier leaves out the last element."""
    found = FakeDevice(OracleRunner())
    found.enter()

    class Runner(CudaRunner):
        def load(self, variants: Sequence[Variant]) -> tuple[ProvableKernel, ...]:
            found.skipping.update(one.name for one in variants if "__syncthreads" not in self._text(one))
            return super().load(variants)

    monkeypatch.setattr("gen.gpu.cuda.open_device", lambda *_: found)
    monkeypatch.setattr("bench.runner.CudaRunner", Runner)
    monkeypatch.setenv("GEN_HOME", str(tmp_path))
    return found


def work(monkeypatch: pytest.MonkeyPatch, result: Path, *arguments: str) -> tuple[int, dict[str, object]]:
    words = ["--worker", "--family", "transpose", "--name", TRANSPOSE.name, "--result", str(result), *arguments]
    monkeypatch.setattr(sys, "argv", ["sanitize.py", *words])
    status = sanitize.main()
    return status, json.loads(result.read_text())


@pytest.mark.parametrize("tool", ["memcheck", "initcheck"])
def test_a_worker_runs_its_cases_and_says_what_it_did(
    tool: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status, done = work(monkeypatch, tmp_path / "result.json", "--tool", tool, "--cases", "6")
    assert status == 0
    assert done["wrong"] == []
    assert (done["variants"], done["skipped"], done["cases"]) == (1, 0, 6)
    available = len(list(TRANSPOSE.family.cases(TRANSPOSE.spec))) + len(list(TRANSPOSE.edge_cases())) + DRAWN
    assert done["sizes"] == {TRANSPOSE.spec.label: [6, available]}
    assert (done["device"], done["driver"]) == ("Fake GPU", "580.1, CUDA 13.0")
    assert str(done["compiler"]).startswith("nvrtc ")


def test_a_worker_whose_planted_fault_shows_ends_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    status, done = work(monkeypatch, result, "--tool", "racecheck", "--plant")
    assert status == 0  # the tool must find the fault, not the program's failure
    assert len(str(done["wrong"])) > 2


def test_a_worker_that_is_wrong_without_one_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(worker, "render", lambda made: render(made).replace("__syncthreads", "__syncwarp"))
    status, done = work(monkeypatch, tmp_path / "result.json", "--tool", "racecheck")
    assert status == 1
    assert "on rows" in str(done["wrong"])


@pytest.mark.parametrize("tool", TOOLS)
def test_a_planted_fault_compiles(tool: str) -> None:
    made = find_variant(FAMILIES, FAULTS[tool].variant, {})
    assert Nvrtc(None).compile(made.name, FAULTS[tool].text(made), "sm_90").cubin
