"""`gen export`: the folder builds with CMake and with pip, and runs without gen up to the launch."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gen.cli.app import app

RUNNER = CliRunner()
DOCUMENT = Path(__file__).parents[2] / "docs" / "export.md"
NO_DRIVER = "There is no CUDA driver on this machine"


def run(*command: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program with no more of the environment than it is given."""
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("export") / "sums"
    command = ["export", "reduction_sum_f32", "-o", str(made), "--shape", "2^20", "--ptx"]
    done = RUNNER.invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "reduction_sum_f32: arrays of 1 axis" in done.output
    assert ": 1 function, " in done.output
    return made


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs CMake")
def test_the_package_and_its_example_build_as_the_document_says(folder: Path) -> None:
    blocks = re.findall(r"```console\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    commands = next(block for block in blocks if block.startswith("$ cmake"))
    *builds, example = [line.removeprefix("$ ") for line in commands.strip().splitlines()]
    for line in builds:
        done = run("sh", "-c", line, cwd=folder.parent, PWD=str(folder.parent))
        assert done.returncode == 0, done.stdout + done.stderr
    done = run(*example.split(), cwd=folder.parent)
    if done.returncode != 0:
        assert NO_DRIVER in done.stderr
    done = run(example.split()[0], "abc", cwd=folder.parent)
    assert (done.returncode, "must be a whole number" in done.stderr) == (2, True)


def test_the_wheel_holds_the_library_and_needs_no_gen(folder: Path, tmp_path: Path) -> None:
    done = run(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", folder, "-w", tmp_path,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert "reduction_sum_f32-1.0.dist-info/licenses/LICENSE" in names
    assert "reduction_sum_f32-1.0.dist-info/provenance.json" in names
    code = "import reduction_sum_f32 as m; print(m.plan(m.reduction_sum_f32, (2**20,), device='sm_90'))"
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); {code}"
    done = run(sys.executable, "-I", "-S", "-c", code, cwd=tmp_path)
    assert done.stdout.startswith("reduction_sum_f32__"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--arch", "sm_12"], "sm_"),
        (["--name", "2fast"], "--name must begin with a letter"),
        (["--shape", "wide"], "--shape must be numbers joined by x"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(tmp_path: Path, arguments: list[str], words: str) -> None:
    made = tmp_path / "made"
    done = RUNNER.invoke(app, ["export", "reduction_sum_f32", "-o", str(made), *arguments])
    assert done.exit_code != 0
    assert words in done.output
    assert not made.exists()


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    done = RUNNER.invoke(app, ["export", "reduction_sum_f32", "-o", str(tmp_path)])
    assert done.exit_code != 0
    assert "must be a new or an empty folder" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
