"""`make` finds a Python that works, sets up once, and removes only what it made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]

# Stands in for an interpreter: says whether it is new enough, makes an environment, notes every call.
WORKING = """\
echo "$0 $*" >> calls
case "$2" in
  venv) mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
esac
"""
BROKEN = 'echo "no such version is installed" >&2; exit 127\n'
TOO_OLD = f"exec {sys.executable} -c 'import sys; sys.version_info = (3, 10); '\"$2\"\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile and a path that holds nothing but `sh` and what make itself needs."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, tmp_path)
    (tmp_path / "path").mkdir()
    for tool in ("awk", "cp", "find", "make", "mkdir", "rm", "sh", "touch"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "path" / tool).symlink_to(found)
    return tmp_path


def put(checkout: Path, name: str, script: str) -> None:
    path = checkout / "path" / name
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)


def make(checkout: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    path = checkout / "path"
    environment = {**os.environ, "PATH": str(path)}
    environment.pop("MAKEFLAGS", None)  # of the make that runs these tests
    environment.pop("MAKELEVEL", None)
    return subprocess.run(
        [path / "make", *targets], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )


def calls(checkout: Path) -> list[str]:
    file = checkout / "calls"
    return [Path(line).name for line in file.read_text().splitlines()] if file.exists() else []


def test_make_alone_lists_every_target(checkout: Path) -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    done = make(checkout)
    assert done.returncode == 0
    assert re.findall(r"^make (\S+) +\w", done.stdout, re.MULTILINE) == phony.split()
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("unfit", [BROKEN, TOO_OLD])
def test_a_python_that_does_not_do_is_passed_over(checkout: Path, unfit: str) -> None:
    put(checkout, "python3", unfit)
    put(checkout, "python3.13", BROKEN)
    put(checkout, "python3.12", WORKING)
    put(checkout, "python3.11", BROKEN)
    done = make(checkout, "setup")
    assert done.returncode == 0, done.stderr
    assert (checkout / ".venv" / "bin" / "python").exists()
    assert "no such version" not in done.stdout + done.stderr


@pytest.mark.parametrize("script", [BROKEN, TOO_OLD, None])
def test_without_a_python_make_says_what_it_needs(checkout: Path, script: str | None) -> None:
    if script is not None:
        put(checkout, "python3", script)
    done = make(checkout, "setup")
    assert done.returncode != 0
    assert "gen needs Python 3.11 or newer with venv" in done.stderr
    assert not (checkout / ".venv").exists()


def test_gen_is_installed_once_and_again_when_its_project_file_changes(checkout: Path) -> None:
    put(checkout, "python3", WORKING)
    make(checkout, "setup")
    first = calls(checkout)
    assert [call.split()[-1] for call in first if "--editable" in call] == [".", ".[dev]"]
    make(checkout, "setup")
    assert calls(checkout) == first
    later = (checkout / ".venv" / "installed").stat().st_mtime + 10
    os.utime(checkout / "pyproject.toml", (later, later))
    make(checkout, "setup")
    assert len(calls(checkout)) > len(first)


def test_tuning_waits_for_no_tools_of_the_tests(checkout: Path) -> None:
    put(checkout, "python3", WORKING)
    make(checkout, "tune")
    assert [call.split()[-1] for call in calls(checkout) if "--editable" in call] == ["."]


def test_a_failed_installation_is_tried_again(checkout: Path) -> None:
    put(checkout, "python3", WORKING + 'case "$2" in pip) exit 1 ;; esac\n')
    assert make(checkout, "setup").returncode != 0
    first = len(calls(checkout))
    assert make(checkout, "setup").returncode != 0
    assert len(calls(checkout)) > first


@pytest.mark.parametrize("target", ["test", "check"])
def test_failing_tests_fail_the_target(checkout: Path, target: str) -> None:
    put(checkout, "python3", WORKING)
    make(checkout, "setup")
    for tool in ("ruff", "mypy", "gen", "pytest"):
        path = checkout / ".venv" / "bin" / tool
        path.write_text(f"#!/bin/sh\nexit {1 if tool == 'pytest' else 0}\n")
        path.chmod(0o755)
    assert make(checkout, target).returncode != 0


def test_clean_removes_what_make_made_and_nothing_else(checkout: Path) -> None:
    put(checkout, "python3", WORKING)
    make(checkout, "setup")
    for others in ("gen", "dist", "env/lib/__pycache__"):
        (checkout / others).mkdir(parents=True)
    before = {path for path in checkout.rglob("*") if ".venv" not in path.parts}
    for made in ("out/.cache/nvrtc", "gen/__pycache__", ".mypy_cache"):
        (checkout / made).mkdir(parents=True)
    (checkout / "out" / "kernel.cu").touch()
    assert make(checkout, "clean").returncode == 0
    kept = before | {checkout / "out", checkout / "out" / "kernel.cu"}
    assert set(checkout.rglob("*")) == kept


def test_clean_elsewhere_looks_into_no_other_folder(checkout: Path) -> None:
    """`find` that is given no folder takes them all."""
    (checkout / "env/lib/__pycache__").mkdir(parents=True)
    assert make(checkout, "clean").returncode == 0
    assert (checkout / "env/lib/__pycache__").exists()


def test_clean_leaves_an_environment_that_make_did_not_make(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    assert make(checkout, "clean").returncode == 0
    assert (checkout / ".venv").exists()


def test_an_environment_that_was_there_is_used_and_stays(checkout: Path) -> None:
    put(checkout, "python3", WORKING)
    (checkout / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(checkout / "path" / "python3", checkout / ".venv" / "bin" / "python")
    assert make(checkout, "setup").returncode == 0
    assert [call.split()[:3] for call in calls(checkout)] == [["python", "-m", "pip"]] * 2  # nothing is made anew
    assert make(checkout, "clean").returncode == 0
    assert (checkout / ".venv" / "bin" / "python").exists()


def test_clean_called_from_another_folder_removes_nothing_there(checkout: Path) -> None:
    elsewhere = checkout / "elsewhere"
    (elsewhere / ".pytest_cache").mkdir(parents=True)
    path = checkout / "path"
    done = subprocess.run(
        [path / "make", "-f", checkout / "Makefile", "clean"], cwd=elsewhere, env={**os.environ, "PATH": str(path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Run make clean in gen's own folder." in done.stderr
    assert (elsewhere / ".pytest_cache").exists()
