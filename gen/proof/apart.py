"""Sets the shared arrays of a kernel apart, and no better aligned than they promise to be.

g++ lays static variables one behind the other, and arrays at multiples of 16 or 32 bytes. An index past the end of one
array then names an element of the next, and a vector that is read from an array of floats is aligned by luck. So the
text says of each array that it is as aligned as its elements, and the assembly then gets a gap before each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

GAP = 1024  # bytes before each array
LINE = 128  # each begins at a multiple of that, and as many bytes further on as it is aligned to

_TYPE = r"(?:(?:unsigned|signed|long|short)(?:\s+(?:long|int|short|char))*|[A-Za-z_][\w:]*(?:<[^;{}<>]*>)?)"
_DECLARED = re.compile(rf"\b__shared__((?:\s+(?:volatile|const|__align__\([^()]*\)))*)\s+({_TYPE})(?=\s+\w+\s*[\[;,])")
_SECTION = re.compile(r"\s*\.(section|text|data|bss)\b\s*([\w.]*)")
_ALIGN = re.compile(r"\s*\.align (\d+)$")
_OBJECT = re.compile(r"\s*\.type\s+\w+, @object$")


def aligned_as_declared(text: str) -> str:
    """The text of a variant, each shared array aligned as its elements and its own `__align__` say, by no more."""
    return _DECLARED.sub(r"__shared__ __attribute__((aligned(alignof(\2))))\1 \2", text)


def set_apart(assembly: str) -> str:
    """The assembly of a unit, a gap before each variable in a section `shared_N`."""
    return "\n".join(_lines(assembly.split("\n")))


def _lines(lines: list[str]) -> Iterator[str]:
    shared, alignment = False, 1
    for line in lines:
        if found := _SECTION.match(line):
            shared, alignment = found[2].startswith("shared_"), 1
        elif shared and (found := _ALIGN.match(line)):
            alignment = int(found[1])
            continue
        elif shared and _OBJECT.match(line):
            apart = max(LINE, 2 * alignment)
            yield f"\t.balign {apart}\n\t.zero {-(-GAP // apart) * apart + alignment}"
            alignment = 1
        yield line
