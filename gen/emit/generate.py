"""Writes the folder of emitted kernels, and says where it differs from what would be written."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gen.emit.files import MAKE_ROOM, read, remove_abandoned, write_if_changed
from gen.emit.render import MARK, render
from gen.families.base import Family, Variant
from gen.families.names import base_variants, search_space, variant


@dataclass(frozen=True)
class Written:
    """What a run of `generate` did, as file names."""

    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]


def base_of_catalogue(families: Sequence[Family[Any]]) -> tuple[Variant, ...]:
    """The base variants of every spec of every catalogue."""
    return tuple(made for family in families for spec in family.catalogue for made in base_variants(family, spec))


def all_of_catalogue(families: Sequence[Family[Any]]) -> Iterator[Variant]:
    """Every variant that tuning tries of every spec of every catalogue."""
    for family in families:
        for spec in family.catalogue:
            for algorithm in family.algorithms.values():
                for config in search_space(algorithm, spec):
                    yield variant(family, spec, algorithm, config)


def texts(variants: Sequence[Variant], others: Mapping[str, str]) -> dict[str, str]:
    """The folder's text files by name: a `.cu` file for each variant, and the `others`."""
    return {f"{made.name}.cu": render(made) for made in variants} | dict(others)


def generate(
    folder: Path, files: Mapping[str, str], prefixes: tuple[str, ...] = ("",), next_step: str = MAKE_ROOM
) -> Written:
    """Makes the folder hold these files; removes kernels that gen wrote there and would not write now.

    Only kernels whose names begin with one of `prefixes` are removed: those of families that are not at hand stay.
    What killed processes left half written goes too. Raises GenError with that next step if one cannot be written.
    """
    remove_abandoned(folder)
    changed: list[str] = []
    unchanged: list[str] = []
    for name in sorted(files):
        wrote = write_if_changed(folder / name, files[name], next_step)
        (changed if wrote else unchanged).append(name)
    removed = sorted(_left_over(folder, files, prefixes))
    for name in removed:
        (folder / name).unlink()
    return Written(tuple(changed), tuple(unchanged), tuple(removed))


def differences(folder: Path, files: Mapping[str, str], prefixes: tuple[str, ...] = ("",)) -> str:
    """What `generate` would change there, as a unified diff; empty if nothing."""
    found: list[str] = []
    for name in sorted({*files, *_left_over(folder, files, prefixes)}):
        here, there = read(folder / name) or "", files.get(name, "")
        found += difflib.unified_diff(
            here.splitlines(keepends=True),
            there.splitlines(keepends=True),
            f"{folder / name}",
            f"{name} as gen would write it" if name in files else "nothing: gen would remove it",
        )
    return "".join(line if line.endswith("\n") else line + "\n" for line in found)


def _left_over(folder: Path, files: Mapping[str, str], prefixes: tuple[str, ...]) -> list[str]:
    if not folder.is_dir():
        return []
    return [
        path.name
        for path in folder.glob("*.cu")
        if path.name not in files and path.name.startswith(prefixes) and path.is_file() and _is_gens(path)
    ]


def _is_gens(path: Path) -> bool:
    """Whether gen wrote a kernel, under this name: one that was copied and renamed is its owner's."""
    content = path.read_bytes()  # others' files may be no text
    return content.startswith(f"// {path.stem}\n".encode()) and MARK.encode() in content
