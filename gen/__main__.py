"""Runs the command line: `python -m gen`."""

from __future__ import annotations

from gen.cli import main

if __name__ == "__main__":
    main()
