"""`gen generate`: writes kernels, or says where what is written is stale."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gen.cli import output
from gen.cli.common import Json, OptionError, families_of, home_of, home_option

_MOST_NAMED = 12  # more changes than this are counted, not named


def generate(
    ctx: typer.Context,
    results: Annotated[Path | None, home_option("out/")] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; print what would change as a diff, and exit with 1 if anything."),
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Write every variant of the catalogue that tuning tries, into --home."),
    ] = False,
    json: Json = False,
) -> None:
    """Write the base and the tuned variants of every catalogue as .cu files.

    A file is written only when its text changes. Kernels that gen wrote earlier and would not write now are removed;
    other files are left alone.

    Examples: `gen generate`, `gen generate --check`, `gen generate --all --home /tmp/all`.
    """
    from gen.emit.folder import all_of_catalogue, differences
    from gen.emit.folder import generate as write
    from gen.emit.render import render
    from gen.paths import catalogue_home
    from gen.store.folder import prefixes_of, variants_of_home

    families, folder = families_of(ctx), home_of(results or catalogue_home())
    if everything and results is None:
        raise OptionError("--all", "must come with --home DIR: there are thousands of files")
    variants = tuple(all_of_catalogue(families)) if everything else variants_of_home(families, folder)
    with output.progress(kernels=len(variants)) as tick:
        files = {}
        for variant in variants:
            files[f"{variant.name}.cu"] = render(variant)
            tick("kernels")
    if check:
        _check(folder, differences(folder, files, prefixes_of(families)), len(files), json)
        return
    done = write(folder, files, prefixes_of(families))
    if json:
        output.data(
            {
                "folder": str(folder),
                "changed": list(done.changed),
                "unchanged": len(done.unchanged),
                "removed": list(done.removed),
            }
        )
        return
    _name("wrote", done.changed)
    _name("removed", done.removed)
    output.text(
        f"{folder}: {len(files)} files, {len(done.changed)} written, {len(done.unchanged)} as they were, "
        f"{len(done.removed)} removed"
    )


def _check(folder: Path, difference: str, files: int, json: bool) -> None:
    if json:
        output.data({"folder": str(folder), "stale": bool(difference), "diff": difference})
    elif difference:
        output.verbatim(difference)
    else:
        output.text(f"{folder}: {files} files, all as gen would write them")
    if difference:
        output.note(f"{folder} is stale. The same gen generate without --check writes it anew.")
        raise typer.Exit(1)


def _name(what: str, names: tuple[str, ...]) -> None:
    for name in names[:_MOST_NAMED]:
        output.text(f"{what} {name}")
    if len(names) > _MOST_NAMED:
        output.text(f"{what} {len(names) - _MOST_NAMED} more")
