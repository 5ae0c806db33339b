"""`gen merge`: folders of results become one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gen.cli import output
from gen.cli.common import Json, Out, families_of, folder_of, home_of


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("merge", epilog="Examples: `gen merge part1 part2`, `gen merge part* --out tuned --json`.")(merge)


def merge(
    ctx: typer.Context,
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", parser=folder_of("DIR"), help="Folders that gen tune has written.")
    ],
    out: Out = None,
    json: Json = False,
) -> None:
    """Take winners, trials, specs and calibrations of other folders into the folder of results, and write the kernels.

    With `gen tune --part K/N --out DIR` the jobs of a cluster tune a part each; this makes one folder of theirs. Of two
    winners for the same device, spec and sizes the later one stays, of two of one day the faster.
    """
    from gen.tune.merge import merge as merged

    home = home_of(out)
    found = merged(folders, families_of(ctx), home)
    if json:
        output.data({"folder": str(home), **vars(found)})
        return
    counts = (("winner", found.winners), ("trial", found.trials), ("spec", found.specs))
    taken = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts)
    output.text(f"{home}: {taken} came from {len(folders)} folder{'' if len(folders) == 1 else 's'}")
