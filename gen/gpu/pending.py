"""What this side of a GPU's process waits for, and what it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gen.errors import RunError
from gen.gpu.trial import Entrant, Rounds, Status, Trial
from gen.gpu.worker import Request


@dataclass
class Pending:
    """A request, and who waits for it.

    Attributes:
        again: why it is sent once more: the process is a new one and the problem is to be opened there, for which
            nobody waits; or somebody had ended the process while it was at this. Empty if it is not.
    """

    request: Request
    future: Future[Any] = field(default_factory=Future)
    again: Literal["", "reopen", "retry"] = ""


def ours(request: Request, value: Any) -> Any:
    """What the process gave, about our own variants: those that came back are copies, equal to none."""
    if isinstance(value, Trial):
        return replace(value, variant=request.arguments[0].variant)
    if isinstance(value, Rounds):
        variants = {entrant.name: entrant.variant for entrant in request.arguments[0]}
        return replace(value, faults=tuple(replace(one, variant=variants[one.variant.name]) for one in value.faults))
    return value


def bury(pending: Pending, at: str, status: Status, reason: str, *, outside: bool = False) -> None:
    """Answers for a process that has ended: what became of the request, or of the variant that it had come to.

    Args:
        pending: the request.
        at: the variant's name.
        status: of its trial.
        reason: in words.
        outside: nobody's fault but that of others.
    """
    request = pending.request
    if request.what == "attempt":
        pending.future.set_result(replace(request.arguments[0].untimed(status, reason), outside=outside))
    elif request.what == "rounds":
        entrants: Sequence[Entrant] = request.arguments[0]
        entrant = next((one for one in entrants if one.name == at), entrants[0])
        fault = replace(entrant.untimed(status, f"among the finalists: {reason}"), outside=outside)
        pending.future.set_result(Rounds(faults=(fault,)))
    else:
        pending.future.set_exception(RunError("The GPU", f"failed while it was to {request.what}", reason))
