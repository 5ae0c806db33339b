"""The parameters of a kernel, read from its text."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def without_comments(text: str) -> str:
    """The text, a space in the place of each comment."""
    return _COMMENT.sub(" ", text)


def parameters(text: str, kernel: str) -> tuple[str, ...] | None:
    """Each parameter of the kernel of this name as the text, without comments, has it; None where it defines none."""
    for match in re.finditer(rf"\b{re.escape(kernel)}\s*\(", text):
        found = within(text, match.end())
        if text[match.end() + len(found) + 1 :].lstrip().startswith("{"):
            return tuple(" ".join(parameter.split()) for parameter in separate(found))
    return None


def within(text: str, start: int) -> str:
    """What stands between a bracket that opens just before `start` and the one that closes it."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return text[start:]


def separate(listed: str) -> list[str]:
    """What commas outside brackets separate."""
    parts, depth = [""], 0
    for letter in listed:
        depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts if listed.strip() else []
