"""Lines that call a function with a barrier in it twice: `if (c) meet(); else meet();`.

Two calls of one function are two barriers, and threads that come by different ones do not meet on a GPU. Machine code
is traced back to lines, not to places in them; so of two ways that share their lines it is known that they are copies
of one call only where no line holds two. A text that is laid out with a statement a line has no such line.
"""

from __future__ import annotations

import re

_BARRIER = re.compile(r"\b(?:__syncthreads\w*|__barrier_sync\w*|__cluster_barrier_wait|sync)\s*\(|\bbarrier\.")
_CALL = re.compile(r"\b(?!(?:if|for|while|switch|return|sizeof)\b)([A-Za-z_]\w*)\s*(?:<[^;(){}]*>\s*)?\(")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\([^)\n]*\))?((?:\\\n|[^\n])*)", re.MULTILINE)
_DEEP = 8  # macros in macros, functions in functions


def called_twice(text: str, line: str) -> str | None:
    """A function of the text that a line of it calls more than once, and in which there is a barrier; None without."""
    plain = _COMMENT.sub(" ", text)
    macros = {match[1]: match[2].replace("\\\n", " ") for match in _MACRO.finditer(plain)}
    for _ in range(_DEEP):
        expanded = re.sub(r"\b[A-Za-z_]\w*", lambda word: macros.get(word[0], word[0]), _COMMENT.sub(" ", line))
        if expanded == line:
            break
        line = expanded
    names = _CALL.findall(line)
    for name in dict.fromkeys(names):
        if names.count(name) > 1 and _has_barrier(plain, name, _DEEP):
            return str(name)
    return None


def _has_barrier(text: str, name: str, depth: int) -> bool:
    """Whether any function of this name holds a barrier, or calls one that does."""
    bodies = [body for body in _bodies(text, name) if depth]
    return any(
        _BARRIER.search(body)
        or any(_has_barrier(text, called, depth - 1) for called in set(_CALL.findall(body)) - {name})
        for body in bodies
    )


def _bodies(text: str, name: str) -> list[str]:
    """What stands between the braces of the functions and lambdas of this name."""
    found = []
    for match in re.finditer(rf"\b{re.escape(name)}\s*(?:\([^;{{}}]*\)[^;{{}}]*|=\s*\[[^;{{}}]*)\{{", text):
        depth, place = 1, match.end()
        while depth and place < len(text):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            place += 1
        found.append(text[match.end() : place])
    return found
