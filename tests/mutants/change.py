"""What a change to a template is, and what may find it."""

from __future__ import annotations

from dataclasses import dataclass

# Detectors: the kinds of a Failure, and the compiler.
REFUSED = "static_assert"
OUTSIDE_READ, OUTSIDE_WRITE = "out-of-bounds read", "out-of-bounds write"
UNINITIALISED, RACE, BARRIER, ABSENT, INDEX = "uninitialised read", "race", "barrier", "absent lane", "index"
OVERFLOW, MISALIGNED = "signed overflow", "misaligned"
IN_FLIGHT, OPERAND = "copy in flight", "operand"
CLUSTER_BARRIER, LIFETIME = "cluster barrier", "lifetime"


@dataclass(frozen=True)
class Mutant:
    """One change to a template.

    Attributes:
        name: what is broken.
        variant: the kernel that is run.
        file: the template or partial.
        old: text that stands there, once.
        new: what stands there instead.
        detector: what must find it; several where the order in which threads run decides.
        also: further changes to the same file, old and new.
    """

    name: str
    variant: str
    file: str
    old: str
    new: str
    detector: str | tuple[str, ...]
    also: tuple[tuple[str, str], ...] = ()


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
