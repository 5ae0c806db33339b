"""Files that gen writes: made under another name, then renamed; left alone when their text is the same."""

from __future__ import annotations

import os
from pathlib import Path

from gen.errors import GenError


def write_if_changed(path: Path, text: str) -> bool:
    """Writes the file unless it holds this text already. Returns whether it wrote."""
    if read(path) == text:
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            made.write_text(text, encoding="utf-8", newline="\n")
            made.replace(path)
        finally:
            made.unlink(missing_ok=True)
    except OSError as error:
        raise GenError(str(path), "cannot be written", error.strerror) from error
    return True


def read(path: Path) -> str | None:
    """The file's text; None if there is none."""
    try:
        return path.read_bytes().decode()  # as it is: CRLF is not what gen writes
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise GenError(str(path), "cannot be read as text", error) from error
