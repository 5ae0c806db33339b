"""What docs/json.md says that `--json` prints: every key that a command prints must stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "json.md"


def check(arguments: Sequence[str], printed: Any) -> None:
    """Fails if a command of gen, `["tune", "transpose", "--json"]`, printed a key that the page does not name."""
    known = documented()
    command = next(word for word in arguments if word in known)
    for path in set(paths(printed)):
        assert is_named(path, known[command]), f"docs/json.md names no {path} of gen {command}"


@cache
def documented() -> dict[str, frozenset[str]]:
    """The paths that the page names, braces resolved, by command."""
    found = {}
    for command, section in re.findall(r"^## gen (\w+)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        named: set[str] = set()
        for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE):
            for path in re.findall(r"`([^`]+)`", row):
                before, brace, within = path.partition("{")
                named |= {before + key.strip() for key in within.rstrip("}").split(",")} if brace else {path}
        found[command] = frozenset(named)
    return found


def paths(value: Any, at: str = "") -> Iterator[str]:
    """The paths of all that a value holds."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from paths(one, f"{at}.{key}" if at else key)
    elif isinstance(value, list) and value:
        for one in value:
            yield from paths(one, f"{at}[]")
    else:
        yield at + ("[]" if isinstance(value, list) else ".*" if isinstance(value, dict) else "")


def is_named(path: str, named: frozenset[str]) -> bool:
    """Whether the page names a path, or one that begins it and ends in a star; an empty list names nothing below it."""
    parts = path.split(".")
    begun = {".".join((*parts[:end], "*")) for end in range(1, len(parts))}
    empty = path.endswith("[]") and any(one.startswith(path) for one in named)
    return path in named or f"{path}[]" in named or bool(begun & named) or empty  # a list may be null
