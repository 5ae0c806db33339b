"""What a kernel's text says that g++ does not hand on: how it takes its pointers, which blocks it is made for."""

from __future__ import annotations

import re
from enum import IntEnum

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CONST = re.compile(r"\bconst\b")
_BOUNDS = re.compile(r"\b__launch_bounds__\s*\(")
_CLUSTER = re.compile(r"\b__cluster_dims__\s*\(")
_RESTRICT = re.compile(r"\b__restrict(__)?\b")


class Taken(IntEnum):
    """What a kernel may do with a buffer, in the order of the runtime's `Taken`."""

    MUTABLE = 0
    CONST = 1
    READ_ONLY = 2  # const and __restrict__: it may be read through the read-only path
    MUTABLE_AND_READ_ONLY = 3  # through two parameters


def taken(text: str, kernel: str) -> tuple[Taken, ...]:
    """How the kernel of this name takes each parameter, as far as the text says; none where it is not found."""
    plain = _COMMENT.sub(" ", text)
    for match in re.finditer(rf"\b{re.escape(kernel)}\s*\(", plain):
        parameters = _within(plain, match.end())
        if plain[match.end() + len(parameters) + 1 :].lstrip().startswith("{"):
            return tuple(_taken(parameter) for parameter in _separate(parameters))
    return ()


def most_threads(text: str, kernel: str) -> str:
    """What the kernel of this name says of threads in its `__launch_bounds__`, an expression; empty if it has none."""
    plain = _COMMENT.sub(" ", text)
    for match in _BOUNDS.finditer(plain):
        bounds = _within(plain, match.end())
        if re.match(rf"\s*{re.escape(kernel)}\s*\(", plain[match.end() + len(bounds) + 1 :]):
            return _separate(bounds)[0].strip()
    return ""


def cluster(text: str, kernel: str) -> str:
    """What the kernel of this name says in its `__cluster_dims__`, expressions; empty if it has none."""
    plain = _COMMENT.sub(" ", text)
    for match in _CLUSTER.finditer(plain):
        size = _within(plain, match.end())
        behind = plain[match.end() + len(size) + 1 :]
        if re.match(rf"\s*(\w+\s*\([^{{}};]*?\)\s*)?(void\s+)?{re.escape(kernel)}\s*\(", behind):
            return size.strip()
    return ""


def together(ways: set[Taken]) -> Taken:
    """How a buffer is taken that a launch passes more than once."""
    mutable = Taken.MUTABLE in ways
    if Taken.READ_ONLY in ways:
        return Taken.MUTABLE_AND_READ_ONLY if mutable else Taken.READ_ONLY
    return Taken.CONST if ways == {Taken.CONST} else Taken.MUTABLE


def _taken(parameter: str) -> Taken:
    element, star, pointer = parameter.rpartition("*")
    if not star or not _CONST.search(element):
        return Taken.MUTABLE
    return Taken.READ_ONLY if _RESTRICT.search(pointer) else Taken.CONST


def _within(text: str, start: int) -> str:
    """What stands between a bracket that opens just before `start` and the one that closes it."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return text[start:]


def _separate(parameters: str) -> list[str]:
    """The parameters, split at the commas outside brackets."""
    parts, depth = [""], 0
    for letter in parameters:
        depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts if parameters.strip() else []
