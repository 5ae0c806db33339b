"""`gen doctor`: what is installed, what is missing, and what that costs."""

from __future__ import annotations

from dataclasses import asdict

import typer

from gen.cli import show
from gen.cli.common import Json

# What gen does without: it then names no lines, formats nothing, measures nothing, explains less.
OPTIONAL = frozenset({
    "addr2line", "clang-format", "GPU driver (CUDA)", "PyCUDA", "nvidia-ml-py", "device linker", "nvdisasm",
    "Nsight Compute (ncu)",
})  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("doctor", epilog="Examples: `gen doctor`, `gen doctor --json`.")(doctor)


def doctor(json: Json = False) -> None:
    """Show what gen stands on: versions, what is missing, what that costs and how to get it.

    Exits with 1 if something is missing without which kernels cannot be compiled or proven.
    """
    from gen.doctor import examine

    findings = examine()
    missing = [finding for finding in findings if not finding.ok]
    if json:
        content = [asdict(finding) | {"required": finding.name not in OPTIONAL} for finding in findings]
        show.data({"findings": content})
    else:
        rows = [
            (
                finding.name,
                finding.version or "-",
                "ok" if finding.ok else "optional" if finding.name in OPTIONAL else "MISSING",
                finding.needed_for,
            )
            for finding in findings
        ]
        show.table(("what", "version", "state", "needed for"), rows)
        for finding in missing:
            show.text()
            how = "too old, or unusable" if finding.version else "missing"
            show.text(f"{finding.name} is {how}. What that costs: {finding.missing_costs}.")
            show.text(finding.install, indent=2)
    if any(finding.name not in OPTIONAL for finding in missing):
        raise typer.Exit(1)
