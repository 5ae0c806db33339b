"""Every page runs as it is written, on the CPU, and prints what it shows.

In a block of `console` every command runs, and the lines below it are part of what it prints: it fails where they say
so. Blocks of `python` are one program; `text` is part of what the block above prints. A block below a comment with the
name of a file is that file. Blocks of `sh` need a GPU: their commands of gen run on a GPU that the tests simulate.
Where torch or JAX is not installed, the Python of their pages is compiled only. `FRAGMENTS` has other blocks.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from bench.notebook import NOTEBOOK, run
from gen.cli.app import app
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.names import base_variants
from gen.gpu.timing import Calibration, Instruments
from gen.tune.search import Space
from tests.fake_process import FakeProcess
from tests.fake_tuning import FakeTuningDevice, let_tune_find
from tests.fakes import FakeCompiler
from tests.host.cli.command import CHECKOUT, forget_modules

DOCS = CHECKOUT / "docs"
PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
COLUMNS = "100"
FAILED = re.compile(r"failed:|^error:", re.MULTILINE)
# Exhaustive: one compiles two programs, of which tests/host/test_export.py has the like; one explains seven long steps.
MARKED = [
    pytest.param(one, marks=[pytest.mark.exhaustive] * (one.stem in ("tutorial-cpp", "tutorial-ladders")), id=one.stem)
    for one in PAGES
]
# What pages show of a run that takes a minute, or a GPU: by page, with the file of the test.
SHOWN_BY = {"README": "tests/compile/test_readme.py", "wave": "tests/host/test_bench_wave.py"}
# Commands that set up or check the checkout itself, and libraries that other tests build: by page, with the file.
RUN_BY = {
    "README": {"make (tune|test)": "test_setup.py", "(.venv/bin/gen export|cmake) .*": "test_export.py"},
    "quickstart": {"make (tune|test)": "test_setup.py"},
    "CONTRIBUTING": {"(make|.venv/bin/pre-commit|.venv/bin/pytest) .*|[.]ci/run": "test_setup.py"},
    "export": {"(gen export|cmake|pip wheel|example/example) .*": "test_export.py"},
    "torch": {"cmake .*": "test_torch_operators_in_cpp.py"},
}
# Parts of programs and of kernels: by page and language, with the file of the test that builds or finds them.
FRAGMENTS = {
    ("README", "cpp"): "host/test_export.py", ("README", "cuda"): "host/test_docs.py",
    ("export", "cpp"): "host/test_export.py", ("export", "cmake"): "host/test_export.py",
    ("export", "py"): "host/test_export.py", ("export", "cuda"): "compile/test_nvcc.py",
}  # fmt: skip
# Programs of bench/, which have tests of their own, and of others.
BESIDE = ("bench", "alias", ".venv/bin/python", "python", "dask")
BLOCK = re.compile(r"(?:^<!-- file: (\S+) -->\n)?^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in, and one of results; what this process imports there it then forgets."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("GEN_HOME", str(home))
    monkeypatch.setenv("GEN_DEVICE", "cpu")
    monkeypatch.setattr(sys, "path", [str(work), *sys.path])
    yield home
    forget_modules(work)


def words(text: str) -> str:
    """The text with single blanks, however a table or a paragraph was laid out."""
    return " ".join(text.split())


def assert_shown(shown: str, output: str) -> None:
    """Every line that is shown stands in the output, in that order."""
    left = words(output)
    for line in shown.splitlines():
        _, found, left = left.partition(words(line))
        assert found or not words(line), (line, output)


def steps(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with what is shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield re.sub(r"\s+# .*", "", command), shown


def ran(command: str) -> tuple[int, str]:
    """The exit status and the output of a command, of gen in this process."""
    line, _, file = command.partition(" > ")
    name, *arguments = shlex.split(line)
    if name == "cd":
        os.chdir(arguments[0])
        return 0, ""
    if name.removeprefix(".venv/bin/") != "gen":
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    result = CliRunner(env={"COLUMNS": COLUMNS}).invoke(app, arguments, prog_name="gen")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    if file:
        Path(file).write_text(result.stdout, encoding="utf-8")
    return result.exit_code, result.output


def is_run_elsewhere(page: Path, command: str) -> bool:
    """Whether the tests in another file run a command of a page."""
    return any(re.fullmatch(pattern, command) for pattern in RUN_BY.get(page.stem, {}))


def test_the_tests_that_run_commands_of_pages_are_there() -> None:
    for page, others in RUN_BY.items():
        (path,) = (one for one in PAGES if one.stem == page)
        for pattern, file in others.items():
            assert (CHECKOUT / "tests" / "host" / file).is_file()
            assert any(re.fullmatch(pattern, command) for command, _ in commands_in(path)), (page, pattern)


def commands_in(page: Path) -> Iterator[tuple[str, str]]:
    """The commands in the blocks of `console`, each with what is shown below it."""
    for _, language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "console":
            yield from steps(block)


@pytest.mark.usefixtures("runtime_at_home")
@pytest.mark.parametrize("page", MARKED)
def test_a_page_runs_and_prints_what_it_shows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for _, language, block in BLOCK.findall(text):
        if language == "python":
            compile(block, str(page), "exec")
    for library in re.findall(r"^import (torch|jax)$", text, re.MULTILINE):
        pytest.importorskip(library)
    names: dict[str, Any] = {}
    printed = ""
    for file, language, block in BLOCK.findall(text):
        if file:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(block, encoding="utf-8")
        elif language == "console":
            for command, shown in steps(block):
                if is_run_elsewhere(page, command):
                    continue
                status, output = ran(command)
                assert (status == 0) != bool(FAILED.search(shown)), (command, output)
                assert_shown(shown, output)
        elif language == "python":
            out = StringIO()
            with redirect_stdout(out):
                exec(compile(block, str(page), "exec"), names)
            printed = out.getvalue()
        elif language == "text":  # what the program above prints
            if not printed:
                assert (CHECKOUT / SHOWN_BY[page.stem]).is_file()
            else:
                assert_shown(block, printed)
        elif (page.stem, language) == ("systems", "cuda"):
            (system,) = (family for family in FAMILIES if family.name == "system")
            assert block in render(base_variants(system, names["wave"])[0])
        elif language == "yaml":
            for step in yaml.safe_load(block)["steps"]:
                check_usage(step.get("run", ""))
        elif language != "sh" and not file:
            assert (CHECKOUT / "tests" / FRAGMENTS[page.stem, language]).is_file()


def check_usage(command: str) -> None:
    """Fails if a command is one of gen that it does not take."""
    name, *arguments = shlex.split(command) or [""]
    if name == "gen":
        group = typer.main.get_command(app)
        one = group.commands[arguments[0]]  # type: ignore[attr-defined]
        one.make_context(arguments[0], arguments[1:], parent=typer.Context(group))


def commands_on_a_gpu(page: Path) -> list[str]:
    """The commands of gen in the blocks of `sh`, as they are called where gen is installed."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = [re.sub(r"\s+# .*", "", line) for block in blocks for line in block.splitlines()]
    others = [line for line in lines if line.split()[0].removeprefix(".venv/bin/") != "gen"]
    assert all(line.split()[0] in BESIDE for line in others), others
    mine = [line.removeprefix(".venv/bin/") for line in lines if line not in others]
    return [line for line in mine if "--scheduler" not in line]  # tests/host/test_dask.py has workers


@pytest.fixture
def gpu(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that commands find: nothing runs on it, and everything takes as long. Of a space few variants are tried."""
    let_tune_find(FakeTuningDevice(), monkeypatch)
    figures = Calibration("Fake GPU", "1.0", 3200.0, 3300.0, 3000.0, 3.8, 0.8)
    monkeypatch.setattr(Instruments, "open", lambda *_: SimpleNamespace(calibrate=lambda: figures))
    whole = Space.at
    monkeypatch.setattr(Space, "at", lambda space, number: whole(space, number) if number % 97 == 0 else None)
    monkeypatch.setattr("gen.cli.gpu.compiler_of", lambda *_: FakeCompiler())
    monkeypatch.setattr("gen.tune.device.IsolatedDevice", lambda _: FakeProcess())
    monkeypatch.setattr("gen.report.ladder.looked_at", lambda rungs, *_: rungs)  # tests/compile/test_ladder.py explains
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "4")
    for number in range(1, 5):
        Path(f"part{number}").mkdir()
    home.mkdir(exist_ok=True)


@pytest.mark.usefixtures("gpu", "runtime_at_home")
@pytest.mark.parametrize("command", sorted({one for page in PAGES for one in commands_on_a_gpu(page)}))
def test_commands_that_need_a_gpu_run_on_one(command: str) -> None:
    status, output = ran(os.path.expandvars(command))
    assert status == 0, (command, output)


@pytest.mark.usefixtures("runtime_at_home")
def test_the_notebook_runs_and_holds_what_it_prints() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    held = printed(notebook)
    run(notebook)
    assert printed(notebook) == held, "stale: run python bench/notebook.py"
    shown = [one["data"]["text/html"] for cell in notebook["cells"] for one in cell.get("outputs", ()) if "data" in one]
    assert len(shown) == 3


def printed(notebook: dict[str, Any]) -> list[str]:
    """What the cells print; what they show otherwise changes with what is tuned."""
    streams = (one for cell in notebook["cells"] for one in cell.get("outputs", ()) if one["output_type"] == "stream")
    return ["".join(one["text"]) for one in streams]
