"""What this side of a GPU's process waits for, and what it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from gen.errors import RunError
from gen.gpu.trial import Entrant, Rounds, Status, Trial
from gen.gpu.worker import Request


@dataclass
class Pending:
    """A request, and who waits for it."""

    request: Request
    future: Future[Any] = field(default_factory=Future)


def ours(request: Request, value: Any) -> Any:
    """What the process gave, about our own variants: those that came back are copies, equal to none."""
    if isinstance(value, Trial):
        return replace(value, variant=request.arguments[0].variant)
    if isinstance(value, Rounds):
        variants = {entrant.name: entrant.variant for entrant in request.arguments[0]}
        return replace(value, faults=tuple(replace(one, variant=variants[one.variant.name]) for one in value.faults))
    return value


def bury(pending: Pending, at: str, status: Status, reason: str) -> None:
    """Answers for a process that has ended: what became of the request, or of the variant that it had come to."""
    request = pending.request
    if request.what == "attempt":
        pending.future.set_result(request.arguments[0].untimed(status, reason))
    elif request.what == "rounds":
        entrants: Sequence[Entrant] = request.arguments[0]
        entrant = next((one for one in entrants if one.name == at), entrants[0])
        pending.future.set_result(Rounds(faults=(entrant.untimed(status, f"among the finalists: {reason}"),)))
    else:
        pending.future.set_exception(RunError("The GPU", f"failed while it was to {request.what}", reason))
