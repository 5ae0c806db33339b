"""compute-sanitizer finds the faults that are planted for it, and nothing where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.sanitizer.faults import FAULTS, TOOLS

CHECKOUT = Path(__file__).parents[2]


def sanitize(results: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Its status, what it writes, what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.sanitize", *arguments, "--json", str(results)],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert results.is_file(), done.stdout + done.stderr
    return done.returncode, json.loads(results.read_text()), done.stdout + done.stderr


@pytest.mark.parametrize("tool", TOOLS)
def test_a_planted_fault_is_found(tool: str, tmp_path: Path) -> None:
    status, found, said = sanitize(tmp_path / "found.json", "--plant", "--tool", tool)
    assert status == 0, said
    assert found["planted"][tool]["found"]
    assert "every planted fault was found" in said


@pytest.mark.parametrize("tool", TOOLS)
def test_its_clean_twin_passes(tool: str, tmp_path: Path) -> None:
    status, found, said = sanitize(tmp_path / "found.json", "--tool", tool, "--name", FAULTS[tool].variant)
    assert status == 0, said
    assert found["clean"], said
    assert found["tools"][tool]["errors"] == 0
    assert found["tools"][tool]["cases"] > 10
