"""Compares gen's kernels with other libraries: `python -m bench --help`."""

from __future__ import annotations

from gen.cli import run


def _app() -> None:
    from bench.cli import app

    app(prog_name="python -m bench")


if __name__ == "__main__":
    run(_app)
