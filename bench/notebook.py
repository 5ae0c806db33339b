"""Runs the notebook of docs/ on the CPU, and writes what its cells give into it: `python bench/notebook.py`."""

from __future__ import annotations

import ast
import json
import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "first.ipynb"


def main() -> None:
    """Writes the notebook with its outputs."""
    os.environ["GEN_DEVICE"] = "cpu"
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    run(notebook)
    NOTEBOOK.write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")


def run(notebook: dict[str, Any]) -> None:
    """Runs the cells of a notebook in this process, one after another, and replaces their outputs."""
    names: dict[str, Any] = {}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        printed, value = _ran("".join(cell["source"]), names)
        outputs: list[dict[str, Any]] = []
        if printed:
            outputs.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)})
        if value is not None:
            data = {"text/html": [value._repr_html_()], "text/plain": [repr(value)]}
            outputs.append(
                {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
            )  # fmt: skip
        cell.update(execution_count=number, outputs=outputs)


def _ran(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of its last line where that is an expression."""
    tree, value, out = ast.parse(source), None, StringIO()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(out):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return out.getvalue(), value


if __name__ == "__main__":
    main()
