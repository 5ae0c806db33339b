"""A case in which a variant is wrong, and what found it."""

from __future__ import annotations

from dataclasses import dataclass

from gen.proof.cases import Case

WRONG, AGAIN, BESIDE, CHANGED, REFUSED, UNTOUCHED = (
    "wrong result", "other bits the second time", "write beside the output", "changed input", "refused launch",
    "far elements untouched",
)  # fmt: skip
"""What a failure can be, beside the kinds of a `HostFault`."""

UNTRIED = "no case"
"""The kind of a verdict on a variant that takes none of the problems."""


@dataclass(frozen=True)
class Failure:
    """A case in which a variant is wrong, and how.

    Attributes:
        kind: what found it: a `HostFault`'s kind, or one of the names above.
    """

    case: Case
    reason: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}\n  on {self.case}"
