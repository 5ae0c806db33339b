"""The doctor finds what is there, notices what is not, and survives both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

import gen
from gen.cli.doctor import Finding, examine

CHECKOUT = Path(__file__).parents[2]


def findings() -> dict[str, Finding]:
    return {finding.name: finding for finding in examine()}


def program(folder: Path, name: str) -> Callable[[str], None]:
    """Writes a shell script of that name."""

    def write(script: str) -> None:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


def test_what_this_environment_has_is_found_with_its_version() -> None:
    found = findings()
    assert found["gen"].version == gen.__version__
    assert found["Python"].version == ".".join(map(str, sys.version_info[:3]))
    for name, distribution in [
        ("NVRTC", "nvidia-cuda-nvrtc"),
        ("cuda-bindings", "cuda-bindings"),
        ("CUDA headers", "nvidia-cuda-runtime"),
        ("clang-format", "clang-format"),
    ]:
        assert found[name].version == version(distribution)
        assert found[name].ok
    assert found["g++"].ok


def test_every_finding_says_what_it_is_for_and_what_its_absence_costs() -> None:
    for finding in examine():
        assert finding.needed_for
        assert finding.missing_costs
        assert finding.install or finding.name in {"Python", "gen"}


def test_missing_programs_are_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = findings()
    for name in ("g++", "addr2line"):
        assert found[name].version is None
        assert not found[name].ok


@pytest.mark.parametrize("script", ["exit 127", "echo no number", "echo 12.2.0; exit 1", "printf '\\377\\376'", ""])
def test_a_program_that_does_not_run_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str
) -> None:
    program(tmp_path, "g++")(script)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert not findings()["g++"].ok
    assert findings()["g++"].version is None


@pytest.mark.parametrize(("says", "ok"), [("10.5.0", False), ("11.1.0", True), ("9", False), ("14", True)])
def test_an_old_compiler_is_named_and_not_ok(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, ok: bool
) -> None:
    program(tmp_path, "g++")(f"echo {says}")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert findings()["g++"].version == says
    assert findings()["g++"].ok == ok


NVDISASM = """nvdisasm: NVIDIA (R) CUDA disassembler
Copyright (c) 2005-2025 NVIDIA Corporation
Cuda compilation tools, release 13.0, V13.0.85
Build cuda_13.0.r13.0/compiler.36424714_0"""
NCU = """NVIDIA (R) Nsight Compute Command Line Profiler
Copyright (c) 2018-2025 NVIDIA Corporation
Version 2025.3.1.0 (build 36398880) (public-release)"""


@pytest.mark.parametrize(
    ("name", "where", "says", "expected"),
    [
        ("nvdisasm", "gen.toolchain.sass.disassembler", NVDISASM, "13.0"),
        ("Nsight Compute (ncu)", "gen.report.counters.profiler", NCU, "2025.3.1.0"),
    ],
)
def test_what_explain_makes_use_of_is_found_where_it_looks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, where: str, says: str, expected: str
) -> None:
    monkeypatch.setattr(where, lambda: tmp_path / "tool")
    for script, told in ((f"echo '{says}'", expected), ("echo no number", None), (f"echo '{says}'; exit 1", None)):
        program(tmp_path, "tool")(script)
        assert (findings()[name].version, findings()[name].ok) == (told, told is not None)
    monkeypatch.setattr(where, lambda: None)
    assert not findings()[name].ok
    assert "gen explain" in findings()[name].needed_for
    assert not findings()[name].required


@pytest.mark.parametrize("absent", ["cuda.bindings", "cuda.pathfinder", "pycuda"])
def test_missing_packages_are_noticed(absent: str) -> None:
    # In a process of its own: this one may have loaded them.
    code = (
        f"import sys; sys.modules[{absent!r}] = None\n"
        "import json; from dataclasses import asdict; from gen.cli.doctor import examine\n"
        "print(json.dumps([asdict(finding) for finding in examine()]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    missing = {finding["name"] for finding in json.loads(done.stdout) if not finding["ok"]}
    assert ("PyCUDA" if absent == "pycuda" else "NVRTC") in missing
