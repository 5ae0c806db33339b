"""`gen new`: the files of an algorithm or a family of one's own, which prove as they are."""

from __future__ import annotations

import keyword
import re
from collections.abc import Container
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from gen.cli import output
from gen.cli.common import Command, Json, OptionError, families_of, folder_of

# The class and the name that `gen --family` and `gen prove` take, once `mine` is replaced; by the built-in family.
_ALGORITHMS = {
    "reduction": ("Reductions", "reduction_sum_f32__mine_tpb256"),
    "stencil": ("Stencils", "stencil_heat_de794a2b_f32__mine_x32_y8"),
    "transpose": ("Transposes", "transpose_10_b32__mine_x32_y8"),
}
_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*", re.ASCII)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Its name: lower-case letters, digits and single underscores.")
]
Folder = Annotated[
    Path,
    typer.Option("--out", "-o", parser=folder_of("--out"), metavar="DIR", help="The folder to write into."),
]


def add_to(app: typer.Typer, panel: str) -> None:
    """Adds the commands under a heading."""
    new = typer.Typer(no_args_is_help=True)
    new.callback(help="Write the files of an algorithm or a family of your own, which prove as they are.")(_new)
    examples = "Examples: `gen new algorithm transpose mine`, then what it prints."
    new.command("algorithm", cls=Command, epilog=examples)(algorithm)
    examples = "Examples: `gen new family mine`, `gen new family mine -o kernels`."
    new.command("family", cls=Command, epilog=examples)(family)
    app.add_typer(
        new,
        name="new",
        rich_help_panel=panel,
        epilog="Examples: `gen new algorithm reduction mine`, `gen new family mine`.",
    )


def _new() -> None:
    """A group of commands needs a function."""


def algorithm(
    ctx: typer.Context,
    of: Annotated[
        str,
        typer.Argument(
            metavar="|".join(_ALGORITHMS), autocompletion=lambda: list(_ALGORITHMS), help="The family of the algorithm."
        ),
    ],
    name: Name,
    folder: Folder = Path(),
    json: Json = False,
) -> None:
    """Write a short algorithm: its config, its launches and its template, which you then change.

    The module also has the family with that algorithm among its own. `gen --family MODULE:CLASS`, before any command,
    takes it in the place of the built-in one: nothing of gen is changed.
    """
    if of not in _ALGORITHMS:
        raise OptionError("The family", "must be one of " + ", ".join(_ALGORITHMS), repr(of))
    known = next(one for one in families_of(ctx) if one.name == of)
    _check(name, folder, known.algorithms, f"an algorithm of {of}")
    _write(of, name, folder, *_ALGORITHMS[of], json=json)


def family(ctx: typer.Context, name: Name, folder: Folder = Path(), json: Json = False) -> None:
    """Write a short family: its spec, what NumPy computes, one algorithm and its template, which you then change."""
    _check(name, folder, [one.name for one in families_of(ctx)], "a family")
    _write("family", name, folder, "Mine", "mine", json=json)


def _check(name: str, folder: Path, taken: Container[str], what: str) -> None:
    """Raises OptionError for a name that no module can have, or that means something else."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or len(name) > 24:
        rule = "must be a small letter and up to 23 small letters, digits and single underscores, and no word of Python"
        raise OptionError("The name", rule, repr(name))
    if name in taken:
        raise OptionError("The name", f"must be new: there is {what} of that name", repr(name))
    if not (folder / f"{name}.py").exists() and find_spec(name) is not None:
        raise OptionError("The name", "must be new: Python has a module of that name", repr(name))


def _write(skeleton: str, name: str, folder: Path, class_name: str, proven: str, *, json: bool) -> None:
    """Writes a skeleton under another name, and says what to do next."""
    from gen.emit.folder import write_whole

    source = files("gen.cli") / "skeletons"
    templates = "mine" if skeleton == "family" else skeleton
    named = {f"{name}.py": (source / f"{skeleton}.py").read_text(encoding="utf-8")}
    for template in (source / "templates" / templates).iterdir():
        place = f"templates/{_renamed(templates, name)}/{_renamed(template.name, name)}"
        named[place] = template.read_text(encoding="utf-8")
    others = set(re.findall(r"\w+", named[f"{name}.py"])) - {"Mine"}
    if _camel(name) in others:
        raise OptionError("The name", f"must be another: its class would be called {_camel(name)}, which there is")
    for place in named:
        if (folder / place).exists():
            raise OptionError(str(folder / place), "is there already, and is left as it is")
    for place, text in named.items():
        path = folder / place
        write_whole(path, _renamed(text, name).encode(), "Make room, or name another folder with -o")
        if not json:
            output.text(str(path))
    away = "" if folder.resolve() == Path.cwd() else f"cd {folder}; "
    gen = f"gen --family {name}:{_renamed(class_name, name)}"
    if json:
        output.data({
            "files": [str(folder / place) for place in named],
            "family": f"{name}:{_renamed(class_name, name)}",
            "variant": _renamed(proven, name),
        })  # fmt: skip
    output.note(f"Next: {away}{gen} prove {_renamed(proven, name)}")


def _renamed(text: str, name: str) -> str:
    """The text with another name in the place of `mine`, and its class in that of `Mine`."""
    text = re.sub(r"(?<![A-Za-z])mine(?![A-Za-z])", name, text)
    return re.sub(r"(?<![A-Za-z])Mine(?![a-z])", _camel(name), text)


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
