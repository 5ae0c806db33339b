"""How often a result is rounded on its way: what the bounds of the proof are made of."""

from __future__ import annotations

from gen.arch import WARP
from gen.families.reduction.operators import Rounds
from gen.families.reduction.spec import ReductionSpec

CHAINS = 4  # of states, side by side, in which one thread combines those of a warp
MERGE = 8  # roundings of a mean, in units of the largest magnitude, in each merge of two sets' moments


def block_roundings(threads_per_block: int) -> int:
    """Combinations on a path through a block: five shuffles in each warp, five over the warps' states."""
    return 5 + 5 * (threads_per_block > WARP)


def lane_roundings(threads_per_block: int) -> int:
    """Combinations where a lane takes a state of each warp, and one thread those of all lanes in chains."""
    return threads_per_block // WARP - 1 + WARP // CHAINS + CHAINS


def roundings(spec: ReductionSpec, elements: int, items: int, combinations: int) -> int:
    """The h of gamma_h.

    Args:
        spec: what is computed.
        elements: reduced to one result.
        items: elements that a run of `fold` adds at once, before it merges their moments.
        combinations: of states on the longest path from an element to the result.

    The lift (a square, a narrower type) and the result (a quotient, a root) may each round too.
    """
    kinds = {operator.rounds for operator in spec.operators}
    most = combinations + (0 if spec.op == ("sum",) else 4)
    if Rounds.MOMENTS in kinds:
        most = 2 * items + MERGE * combinations + 8
    if Rounds.PRODUCT in kinds:
        most = max(most, elements + 4)  # every multiplication rounds the one result
    return most if kinds != {Rounds.NEVER} else 0
