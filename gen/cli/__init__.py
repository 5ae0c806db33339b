"""The command line: the one place in gen that prints."""

from __future__ import annotations


def main() -> None:
    """Runs the command that the process was started with, and ends the process with its exit status."""
    try:
        from gen.cli.app import app  # a Ctrl-C can come as early as this

        app(prog_name="gen")
    except KeyboardInterrupt:
        raise SystemExit(130) from None
