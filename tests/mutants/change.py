"""What a change to a template is, and what may find it.

A change is made in the line that follows a marker, a comment of Jinja on its own line, which prints nothing:

    {# mutants: guard #}
    if (i >= n) return;

So another spelling of the line, or a line like it elsewhere, breaks no test. Without a marker the change is made where
its old text stands in the file; that suffices for a token or an expression that the file has once.
"""

from __future__ import annotations

from dataclasses import dataclass

# Detectors: the kinds of a Failure, and the compiler.
REFUSED = "static_assert"
OUTSIDE_READ, OUTSIDE_WRITE = "out-of-bounds read", "out-of-bounds write"
UNINITIALISED, RACE, BARRIER, ABSENT, INDEX = "uninitialised read", "race", "barrier", "absent lane", "index"
OVERFLOW, MISALIGNED = "signed overflow", "misaligned"
IN_FLIGHT, OPERAND, HANG = "copy in flight", "operand", "hang"
CLUSTER_BARRIER, LIFETIME = "cluster barrier", "lifetime"


@dataclass(frozen=True)
class Mutant:
    """One change to a template.

    Attributes:
        name: what is broken.
        variant: the kernel that is run.
        file: the template or partial.
        old: text that stands there, once; nothing: the whole line that the marker names.
        new: what stands there instead.
        detector: what must find it; several where the order in which threads run decides.
        also: further changes to the same file, old and new.
        at: the marker of the line in which `old` stands; None where `old` stands once in the file.
    """

    name: str
    variant: str
    file: str
    old: str
    new: str
    detector: str | tuple[str, ...]
    also: tuple[tuple[str, str], ...] = ()
    at: str | None = None


@dataclass(frozen=True)
class Unchanged:
    """A change to a template that changes no result; fields are those of `Mutant`.

    Attributes:
        reason: why there is nothing to catch.
    """

    name: str
    variant: str
    file: str
    old: str
    new: str
    reason: str
    also: tuple[tuple[str, str], ...] = ()
    at: str | None = None


def apply(change: Mutant | Unchanged, text: str) -> str:
    """The text of a template with a change. Raises AssertionError where the text lacks what the change names."""
    begin, end = _marked(change, text)
    changed = _replaced(change, text[begin:end], change.old or text[begin:end], change.new)
    text = text[:begin] + changed + text[end:]
    for old, new in change.also:
        text = _replaced(change, text, old, new)
    return text


def _marked(change: Mutant | Unchanged, text: str) -> tuple[int, int]:
    """Where the line begins and ends that a change is made in; where the text does, if the change has no marker."""
    if change.at is None:
        return 0, len(text)
    marker = f"{{# mutants: {change.at} #}}\n"
    assert text.count(marker) == 1, f"{change.name}: {marker!r} stands {text.count(marker)} times in {change.file}"
    begin = text.index(marker) + len(marker)
    return begin, text.index("\n", begin) + 1


def _replaced(change: Mutant | Unchanged, text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{change.name}: {old!r} stands {text.count(old)} times in {change.file}, {change.at}"
    return text.replace(old, new)
