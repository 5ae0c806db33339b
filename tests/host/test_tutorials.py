"""Tutorials run as they are written, on the CPU, and print what they show.

In a block of `console` every command runs, and the lines below it are part of what it prints: it fails where they say
so. Blocks of `python` are one program; `text` is part of what the block above prints. A block below a comment with the
name of a file is that file. Blocks of `sh` need a GPU: tests/host/test_docs.py looks up their commands and options.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.notebook import NOTEBOOK, run
from gen.cli.app import app
from tests.host.cli.command import forget_modules

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((*DOCS.glob("tutorial-*.md"), DOCS / "howto.md", DOCS / "misleading.md", DOCS / "model.md"))
COLUMNS = "100"
FAILED = re.compile(r"failed:|^error:", re.MULTILINE)
# Exhaustive: it compiles two programs, and tests/host/test_export.py another such library.
MARKED = [pytest.param(one, marks=[pytest.mark.exhaustive] * (one.stem == "tutorial-cpp")) for one in PAGES]
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
    if name != "gen":
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    result = CliRunner(env={"COLUMNS": COLUMNS}).invoke(app, arguments, prog_name="gen")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    if file:
        Path(file).write_text(result.stdout, encoding="utf-8")
    return result.exit_code, result.output


@pytest.mark.usefixtures("runtime_at_home")
@pytest.mark.parametrize("page", MARKED, ids=[page.stem for page in PAGES])
def test_a_page_runs_and_prints_what_it_shows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for library in re.findall(r"^import (torch|jax)$", text, re.MULTILINE):
        pytest.importorskip(library)
    names: dict[str, object] = {}
    printed = ""
    for file, language, block in BLOCK.findall(text):
        if file:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(block, encoding="utf-8")
        elif language == "console":
            for command, shown in steps(block):
                status, output = ran(command)
                assert (status == 0) != bool(FAILED.search(shown)), (command, output)
                assert_shown(shown, output)
        elif language == "python":
            out = StringIO()
            with redirect_stdout(out):
                exec(compile(block, str(page), "exec"), names)
            printed = out.getvalue()
        elif language == "text":  # what the program above prints
            assert_shown(block, printed)


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
