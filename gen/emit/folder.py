"""The folder of emitted files: what stands in it, what is stale, and how it is written."""

from __future__ import annotations

import difflib
import errno
import fcntl
import os
import re
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gen.emit.render import MARK, render
from gen.errors import GenError, StoreError
from gen.families.base import Family, Variant
from gen.families.names import base_variants, search_space, variant

ELSEWHERE = "Name another folder with --home or $GEN_HOME"
_ROOM = "Make room, or "
MAKE_ROOM = f"{_ROOM}name another folder with --home or $GEN_HOME"
ABANDONED_SECONDS = 3600.0  # after which nobody writes a file any more
_MADE = re.compile(r"\.[0-9a-f]{32}\.tmp")  # what a file is called until it is whole


def write_whole(path: Path, content: bytes, next_step: str = MAKE_ROOM) -> None:
    """Writes a file that appears complete or not at all, and makes the folders above it.

    Raises StoreError with that next step if it cannot be written.
    """
    made = path.with_name(f".{uuid.uuid4().hex}.tmp")  # beside it, since a rename does not cross file systems
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(content)
            made.replace(path)
        finally:
            with suppress(OSError):
                made.unlink()
    except OSError as error:
        raise StoreError(
            str(path), "cannot be written", error.strerror, next_step=_helping(error, next_step)
        ) from error


def _helping(error: OSError, next_step: str) -> str:
    """The next step, without room to be made where a disk is not full."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or not next_step.startswith(_ROOM):
        return next_step
    other = next_step.removeprefix(_ROOM)
    return other[0].upper() + other[1:]


def write_if_changed(path: Path, text: str, next_step: str = MAKE_ROOM) -> bool:
    """Writes the file unless it holds this text already. Returns whether it wrote.

    Raises GenError if it cannot be read, StoreError with that next step if it cannot be written.
    """
    if read(path) == text:
        return False
    write_whole(path, text.encode(), next_step)
    return True


def check_writable(path: Path, next_step: str = "Name another file") -> None:
    """Raises StoreError if the file could not be written, before what it is for is done."""
    if path.is_dir():
        raise StoreError(str(path), "cannot be written", "Is a directory", next_step=next_step)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise StoreError(str(path), "cannot be written", error.strerror, next_step=next_step) from error


def remove_abandoned(folder: Path) -> None:
    """Removes what processes that were killed left half written there, an hour later."""
    with suppress(OSError):  # no folder; or another process removes them
        for entry in list(os.scandir(folder)):
            if _MADE.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > ABANDONED_SECONDS:
                Path(entry).unlink(missing_ok=True)


def read(path: Path) -> str | None:
    """The file's text; None if there is none."""
    try:
        return path.read_bytes().decode()  # as it is: CRLF is not what gen writes
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        got = error.strerror if isinstance(error, OSError) else error
        raise GenError(str(path), "cannot be read as text", got) from error


@contextmanager
def holding(lock: Path) -> Iterator[None]:
    """Lets one process at a time read files and write them anew; the others wait. `lock` is a file for that alone."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise GenError(str(lock), "cannot be written", error.strerror, next_step=_helping(error, MAKE_ROOM)) from error
    with file:
        with suppress(OSError):  # a file system that knows no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


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


def texts(variants: Sequence[Variant]) -> dict[str, str]:
    """The folder's text files by name: a `.cu` file for each variant."""
    return {f"{made.name}.cu": render(made) for made in variants}


def generate(folder: Path, files: Mapping[str, str], prefixes: tuple[str, ...] = ("",)) -> Written:
    """Makes the folder hold these files; removes kernels that gen wrote there and would not write now.

    Only kernels whose names begin with one of `prefixes` are removed: those of families that are not at hand stay.
    What killed processes left half written goes too. Raises GenError if one cannot be written.
    """
    remove_abandoned(folder)
    changed: list[str] = []
    unchanged: list[str] = []
    for name in sorted(files):
        wrote = write_if_changed(folder / name, files[name])
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
