"""How blocks that share a result bring it together; their scratch memory."""

from __future__ import annotations

from enum import Enum

from gen.arch import MAX_THREADS_PER_MULTIPROCESSOR
from gen.dtypes import U32, U64, DType, LoadModifier
from gen.families.base import Launch, Scratch
from gen.families.expr import ONE, Expr, constant

MANY = 64  # blocks for each multiprocessor, which come one after another


class Finish(Enum):
    """Which block combines what all blocks know, and how it learns that they do."""

    TICKET = "ticket"  # the one that counts itself as the last: a fence before, and one after
    FLAGS = "flags"  # the one of the highest number, which waits for a flag beside every word; see `all_there`
    SECOND_PASS = "secondpass"  # one of a second launch, which comes when all others are done


def all_there(threads: int) -> str | None:
    """Why a block cannot wait for those of smaller numbers: a multiprocessor never holds so many threads at once.

    It relies on it that they are started before it, as GPUs do though CUDA promises no order: where registers or
    other work leave room for fewer blocks, they end and it is among the last to come.
    """
    return (
        f"blocks that wait for each other never run at once: {threads} threads"
        if threads > MAX_THREADS_PER_MULTIPROCESSOR
        else None
    )


def beyond_resident(threads_per_block: int, blocks_per_sm: int) -> str | None:
    """Why so many blocks for each multiprocessor are not searched: no device holds them at once, and they are few."""
    resident = MAX_THREADS_PER_MULTIPROCESSOR // threads_per_block
    if resident < blocks_per_sm < MANY:
        return f"a multiprocessor holds at most {resident} blocks of {threads_per_block} threads"
    return None


def few_second_passes(finish: Finish, unroll: int, vec_bytes: int, load_modifier: LoadModifier) -> str | None:
    """Why a second launch is not searched with such loads: what it costs is the same whatever comes before."""
    usual = unroll == 8 and vec_bytes == 16 and load_modifier is LoadModifier.DEFAULT
    if finish is not Finish.SECOND_PASS or usual:
        return None
    return "a second launch follows 8 plain loads of 16 bytes"


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
        size = shared * states * (state_bytes // U32.size * U64.size)
        return (Scratch("slots", size, zeroed=True, awaited=True),)
    partials = Scratch("partials", shared * states * state_bytes)
    if finish is Finish.SECOND_PASS:
        return (partials,)
    counters = constant(1) if tickets is None else tickets
    return (
        partials,
        Scratch("ticket" if tickets is None else "tickets", shared * counters * U32.size, zeroed=True),
    )


def arguments(finish: Finish, *, tickets: str) -> tuple[str, ...]:
    """The scratch memory among a kernel's arguments."""
    return {Finish.FLAGS: ("slots",), Finish.SECOND_PASS: ("partials",)}.get(finish, ("partials", tickets))


def second_pass(
    results: Expr, splits: Expr, block: tuple[int, int, int], outputs: tuple[str, ...], *numbers: tuple[DType, Expr]
) -> Launch:
    """The launch that combines partial results in index order; of no block where a result has one block.

    Args:
        results: blocks of it, each with results of its own.
        splits: blocks of the first launch that share a result.
        block: threads of a block.
        outputs: by name.
        numbers: that the kernel takes before the number of splits.
    """
    grid = (results * (splits - 1).at_most(1), ONE, ONE)
    return Launch(grid, block, ("partials", *outputs, *numbers, (U32, splits)), entry="_finish")
