"""How blocks that share a result bring it together; their scratch memory."""

from __future__ import annotations

from enum import Enum

from gen.dtypes import U32, U64
from gen.families.base import Scratch
from gen.families.expr import Expr, constant


class Finish(Enum):
    """Which block combines what all blocks know, and how it learns that they do."""

    TICKET = "ticket"  # the one that counts itself as the last: a fence before, and one after
    FLAGS = "flags"  # the one of the highest number, which waits for a flag beside every word


def scratch(
    finish: Finish, splits: Expr, states: Expr, state_bytes: int, tickets: Expr | None = None
) -> tuple[Scratch, ...]:
    """What blocks leave to the one that finishes; nothing, to be zeroed neither, where a result has one block.

    Args:
        finish: how.
        splits: blocks of a result.
        states: that are kept.
        state_bytes: of each.
        tickets: how many there are; None for the one of a single result.
    """
    shared = (splits - 1).at_most(1)
    if finish is Finish.FLAGS:
        return (Scratch("slots", shared * states * (state_bytes // U32.size * U64.size), zeroed=True),)
    counters = constant(1) if tickets is None else tickets
    return (
        Scratch("partials", shared * states * state_bytes),
        Scratch("ticket" if tickets is None else "tickets", shared * counters * U32.size, zeroed=True),
    )


def arguments(finish: Finish, *, tickets: str) -> tuple[str, ...]:
    """The scratch memory among a kernel's arguments."""
    return ("slots",) if finish is Finish.FLAGS else ("partials", tickets)
