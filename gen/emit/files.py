"""Files that gen writes: made under another name, then renamed; left alone when their text is the same."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gen.errors import GenError

ELSEWHERE = "Name another folder with --out or $GEN_HOME"
MAKE_ROOM = "Make room, or name another folder with --out or $GEN_HOME"
ABANDONED = 3600.0  # seconds after which nobody writes a file any more
_MADE = re.compile(r"\.\w+\.(?:cu|json)\.\d+")  # what a file is called until it is whole


def write_if_changed(path: Path, text: str, next_step: str = MAKE_ROOM) -> bool:
    """Writes the file unless it holds this text already. Returns whether it wrote.

    Raises GenError with that next step if it cannot be written.
    """
    if read(path) == text:
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f".{path.name}.{os.getpid()}")  # as `_MADE` has it
        try:
            made.write_text(text, encoding="utf-8", newline="\n")
            made.replace(path)
        finally:
            made.unlink(missing_ok=True)
    except OSError as error:
        raise GenError(str(path), "cannot be written", error.strerror, next_step=next_step) from error
    return True


def check_writable(path: Path, next_step: str = "Name another file") -> None:
    """Raises GenError if the file could not be written, before what it is for is done."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "Is a directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            made.touch()
        finally:
            made.unlink(missing_ok=True)
    except OSError as error:
        raise GenError(str(path), "cannot be written", error.strerror, next_step=next_step) from error


def remove_abandoned(folder: Path) -> None:
    """Removes what processes that were killed left half written there, an hour later."""
    with suppress(OSError):  # no folder; or another process removes them
        for entry in list(os.scandir(folder)):
            if _MADE.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > ABANDONED:
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
def alone(lock: Path) -> Iterator[None]:
    """Lets one process at a time read files and write them anew; the others wait. `lock` is a file for that alone."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise GenError(str(lock), "cannot be written", error.strerror, next_step=MAKE_ROOM) from error
    with file:
        with suppress(OSError):  # a file system that knows no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
