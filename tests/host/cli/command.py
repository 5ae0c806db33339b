"""Commands of gen, in this process and in another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from gen.cli.app import app
from tests import documented

CHECKOUT = Path(__file__).parents[3]


class Ended:
    """How a command ended."""

    def __init__(self, arguments: Sequence[str], app: typer.Typer, name: str) -> None:
        result = CliRunner(env={"COLUMNS": "240"}).invoke(app, list(arguments), prog_name=name)
        self.status, self.out, self.err = result.exit_code, result.stdout, result.stderr
        self._of_gen = arguments if name == "gen" else None
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception

    @property
    def data(self) -> Any:
        """The JSON that it printed; of gen, with no key that docs/json.md does not name."""
        found = json.loads(self.out)
        if self._of_gen is not None:
            documented.check(self._of_gen, found)
        return found


def run(*arguments: str | Path, app: typer.Typer = app, name: str = "gen") -> Ended:
    """Runs a command in this process. What is no planned end fails the test."""
    return Ended([str(argument) for argument in arguments], app, name)


def forget_modules(folder: Path) -> None:
    """Lets this process import what lies in a folder anew, or not at all."""
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(folder):
            del sys.modules[name]


def start(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gen", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=False, **options
    )
