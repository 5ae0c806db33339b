"""Pages of the reference that are made when Sphinx reads them: all families, and all commands.

`docs/conf.py` puts them in the place of `<!-- families -->` and `<!-- commands -->`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import typer

from gen.cli.app import app
from gen.cli.catalogue import listed
from gen.families import FAMILIES
from gen.families.config import word_of


def filled(text: str) -> str:
    """The text of a page, with what belongs in the place of each mark."""
    for mark, make in (("<!-- families -->", families_text), ("<!-- commands -->", commands_text)):
        if mark in text:
            text = text.replace(mark, make())
    return text


def families_text() -> str:
    """Every family with its specs, algorithms, parameters and kernels of the literature, as Markdown."""
    lines: list[str] = []
    for family in map(listed, FAMILIES):
        lines += [f"## {family['name']}", "", _sentence(family["summary"]), ""]
        lines += _table(("spec", "what it computes"), ((_code(one["name"]), one["summary"]) for one in family["specs"]))
        for algorithm in family["algorithms"]:
            counts = (
                f"{algorithm['legal_configs']} legal configs, of which tuning tries {algorithm['searched_configs']}"
            )
            lines += [f"### {family['name']}: {algorithm['name']}", "", algorithm["summary"], ""]
            lines += [_sentence(algorithm["why_none"] or counts), ""]
            rows = (
                (
                    _code(one["name"]), _code(one["label"]), " ".join(map(word_of, one["values"])),
                    word_of(one["base"]), one["help"],
                )
                for one in algorithm["parameters"]
            )  # fmt: skip
            lines += _table(("parameter", "in a tag", "values", "base", "meaning"), rows)
        if family["named_variants"]:
            named = ((_code(one["name"]), _code(one["variant"])) for one in family["named_variants"])
            lines += [f"### {family['name']}: the literature", ""]
            lines += _table(("kernel of the literature", "variant"), named)
    return "\n".join(lines)


def commands_text() -> str:
    """Every command with its arguments and options, as Markdown; those that `--help` leaves out too."""
    group: Any = typer.main.get_command(app)
    lines = ["## gen", "", *_parameters(group)]
    for name, command in group.commands.items():
        parts = {f"{name} {one}": sub for one, sub in getattr(command, "commands", {}).items()} or {name: command}
        for full, one in parts.items():
            lines += [f"## gen {full}", "", one.help, "", one.epilog or "", "", *_parameters(one)]
    return "\n".join(lines)


def _parameters(command: Any) -> list[str]:
    rows = []
    for one in command.params:
        is_argument = one.param_type_name == "argument"
        flag = getattr(one, "is_bool_flag", False)
        names = one.metavar if is_argument else ", ".join((*one.opts, *one.secondary_opts))
        value = "" if is_argument or flag else one.metavar or ""
        rare = " Shown by `--help-all`." if getattr(one, "hidden", False) else ""
        rows.append((_code(" ".join(filter(None, (names, value)))), (one.help or "") + rare))
    return _table(("argument or option", "meaning"), rows)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [columns, ["---"] * len(columns), *rows]
    return [*("| " + " | ".join(one.replace("|", r"\|") for one in row) + " |" for row in cells), ""]
