"""Scratch memory of blocks that share a result: nothing where each result has a block of its own."""

from __future__ import annotations

from gen.dtypes import U32
from gen.families.base import Scratch
from gen.families.expr import Expr, constant


def partials_and_tickets(
    splits: Expr, partials: Expr, state_bytes: int, tickets: Expr | None = None
) -> tuple[Scratch, ...]:
    """What blocks leave to the one that finishes, and what counts them.

    Args:
        splits: blocks of a result; where it is one there is no scratch memory, and nothing to be zeroed.
        partials: states that are kept.
        state_bytes: of each.
        tickets: counters; None for the one of a single result.
    """
    shared = (splits - 1).at_most(1)
    name = "ticket" if tickets is None else "tickets"
    counters = constant(1) if tickets is None else tickets
    return (
        Scratch("partials", shared * partials * state_bytes),
        Scratch(name, shared * counters * U32.size, zeroed=True),
    )
