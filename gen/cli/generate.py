"""`gen generate`: writes kernels, or says where what is written is stale."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli import output
from gen.cli.common import Json, OptionError, families_of, folder_of, home_of

if TYPE_CHECKING:
    from gen.families.base import Family, Variant

_MOST_NAMED = 12  # more changes than this are counted, not named


def generate(
    ctx: typer.Context,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=folder_of("--out"),
            metavar="DIR",
            show_default=False,
            help="The folder of the kernels. Default: $GEN_HOME, else out/ in a checkout, else a data folder.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; print what would change as a diff, and exit with 1 if anything."),
    ] = False,
    every: Annotated[
        Path | None,
        typer.Option(
            "--all",
            parser=folder_of("--all"),
            metavar="DIR",
            show_default=False,
            help="Write every variant of the catalogue that tuning tries there instead.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write the base and the tuned variants of every catalogue as .cu files.

    A file is written only when its text changes. Kernels that gen wrote earlier and would not write now are removed;
    other files are left alone.

    Examples: `gen generate`, `gen generate --check`, `gen generate --all /tmp/all`.
    """
    from gen.emit.folder import MAKE_ROOM, differences
    from gen.emit.folder import generate as write
    from gen.emit.render import render
    from gen.paths import catalogue_home
    from gen.store.folder import prefixes_of, variants_of_home

    families = families_of(ctx)
    if every is None:
        folder = home_of(out, catalogue_home)
        variants = variants_of_home(families, folder)
    elif out is not None:
        raise OptionError("--all DIR", "cannot be combined with --out: it names the folder itself")
    else:
        folder, variants = _folder(every), _every(families)
    with output.progress(kernels=len(variants)) as tick:
        files = {}
        for variant in variants:
            files[f"{variant.name}.cu"] = render(variant)
            tick("kernels")
    if check:
        _check(folder, differences(folder, files, prefixes_of(families)), len(files), json)
        return
    elsewhere = MAKE_ROOM if every is None else "Make room, or name another folder with --all"
    done = write(folder, files, prefixes_of(families), elsewhere)
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


def _every(families: tuple[Family[Any], ...]) -> tuple[Variant, ...]:
    from gen.emit.folder import all_of_catalogue

    return tuple(all_of_catalogue(families))


def _folder(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise OptionError("--all", "must be a folder", path)
    return path


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
