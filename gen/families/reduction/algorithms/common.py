"""What the algorithms of reductions share: what templates read of a spec, and how blocks combine partial results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import TypeVar

from typing_extensions import override

from gen.arch import DEFAULT_ARCH, MAX_THREADS_PER_MULTIPROCESSOR, WARP, Limits
from gen.dtypes import U32, U64, DType, LoadModifier
from gen.families.base import Algorithm, Extents, Launch, Plan, Scratch, plan_of, with_limits
from gen.families.config import Config
from gen.families.expr import ONE, Expr, constant
from gen.families.reduction.oracle import chain, tree
from gen.families.reduction.shapes import MOST_GROUPS
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.state import state_of

C = TypeVar("C", bound=Config)
E = TypeVar("E")

SEVERAL_WAVES = 64
"""Blocks for each multiprocessor that come one after another: several times what it holds."""
LANE_CHAINS = 4
"""Chains in which one thread combines the states of a warp: `kLaneChains` in the template."""
TAKEN_AT_ONCE = 4
"""States that a thread waits for at once: `kBatch` in the template."""
ROUNDS_ALONE = 4
"""Rounds of loads up to which one block takes no longer than several that wait for each other."""
AXES = tuple(
    name for axis in (f"{letter}{place}" for letter in "kr" for place in range(MOST_GROUPS))
    for name in (axis, f"{axis[0]}s{axis[1]}")
)  # fmt: skip
"""Extents and strides of the kept axes, then of the reduced ones, slowest first."""


class Combine(Enum):
    """Which block combines the partial results of all blocks of a result, and how it learns that they are there."""

    TICKET = "ticket"  # the block that counts itself as the last one: a fence before it counts, and one after
    FLAGS = "flags"  # the block of the highest number, which waits for a flag beside every word; see `never_resident`
    SECOND_PASS = "secondpass"  # a block of a second launch, which begins when all blocks of the first have ended
    ALONE = "alone"  # none: each thread has all elements of its result


SHARED = (Combine.TICKET, Combine.FLAGS, Combine.SECOND_PASS)
"""The strategies of blocks that share results."""


COMBINE_HELP = "how blocks that share a result combine their partial results"


class ReductionAlgorithm(Algorithm[ReductionSpec, C]):
    """Reduces the elements of every result to one state."""

    flag_word_of_finished_block = 1 << 32  # `kThere` in the template, and no bit of a state

    @override
    def spec_inputs(self, spec: ReductionSpec) -> Mapping[str, object]:
        return {"s": state_of(spec), "rows": has_rows(spec)}

    def blocks_of_plan(self, spec: ReductionSpec, config: C, extents: Extents, limits: Limits) -> int:
        """Blocks of the first launch."""
        return plan_of(self, spec, config).launches[0].grid[0].at(with_limits(extents, limits))


def has_rows(spec: ReductionSpec) -> bool:
    """Whether there may be more than one result."""
    return spec.axis is not None


def outputs(spec: ReductionSpec) -> tuple[str, ...]:
    """The results among a kernel's arguments."""
    return tuple(name for name, _, _ in spec.results)


def holds_no_element(spec: ReductionSpec, vec_bytes: int) -> str | None:
    """Why vectors of so many bytes cannot be loaded: an element is larger."""
    return f"vec_bytes {vec_bytes} is smaller than one {spec.dtype.name}" if vec_bytes < spec.dtype.size else None


def never_resident(combine: Combine, threads_per_block: int, blocks_per_sm: int) -> str | None:
    """Why no device can have a block wait for those of smaller numbers: no multiprocessor holds so many threads.

    The waiting block relies on blocks of smaller numbers being started first, which CUDA does not promise and GPUs do.
    Where registers or other work leave room for fewer blocks, these end, and the waiting block starts among the last.
    """
    threads = threads_per_block * blocks_per_sm
    if combine is Combine.FLAGS and threads > MAX_THREADS_PER_MULTIPROCESSOR:
        return f"blocks that wait for each other must be resident, and no multiprocessor holds {threads} threads"
    return None


def not_resident(combine: Combine, threads_per_block: int, blocks_per_sm: int, limits: Limits) -> str | None:
    """Why a device cannot hold all blocks of a launch at once, which one block that waits for the others needs."""
    resident = limits.threads_per_multiprocessor // threads_per_block
    if combine is Combine.FLAGS and blocks_per_sm > resident:
        return f"a multiprocessor of this device holds only {resident} blocks of {threads_per_block} threads"
    return None


def beyond_resident(threads_per_block: int, blocks_per_sm: int) -> str | None:
    """Why so many blocks for each multiprocessor are not searched: no device holds them at once, and they are few."""
    resident = MAX_THREADS_PER_MULTIPROCESSOR // threads_per_block
    if resident < blocks_per_sm < SEVERAL_WAVES:
        return f"a multiprocessor holds at most {resident} blocks of {threads_per_block} threads"
    return None


def few_second_passes(combine: Combine, unroll: int, vec_bytes: int, load_modifier: LoadModifier) -> str | None:
    """Why a second launch is not searched with such loads: what it costs is the same whatever comes before."""
    usual = unroll == 8 and vec_bytes == 16 and load_modifier is LoadModifier.DEFAULT
    if combine is not Combine.SECOND_PASS or usual:
        return None
    return "a second launch is tried with unroll 8, vec_bytes 16 and the default cache operator"


def arguments(combine: Combine, tickets: Expr | None) -> tuple[str, ...]:
    """The scratch memory among a kernel's arguments; see `scratch`."""
    counters = "ticket" if tickets is None else "tickets"
    return {Combine.FLAGS: ("slots",), Combine.SECOND_PASS: ("partials",)}.get(combine, ("partials", counters))


def scratch(
    spec: ReductionSpec, combine: Combine, splits: Expr, states: Expr, tickets: Expr | None
) -> tuple[Scratch, ...]:
    """The scratch memory through which blocks hand over partial results; of 0 bytes where a result has one block.

    Args:
        spec: what is computed.
        combine: the combine strategy.
        splits: blocks of a result.
        states: partial results that it has room for.
        tickets: how many there are; None for the one of a single result.
    """
    shared, state = (splits - 1).at_most(1), state_of(spec).bytes
    if combine is Combine.FLAGS:
        return (Scratch("slots", shared * states * (state // U32.size * U64.size), zeroed=True, awaited=True),)
    partials = Scratch("partials", shared * states * state)
    if combine is Combine.SECOND_PASS:
        return (partials,)
    counters = shared * (ONE if tickets is None else tickets) * U32.size
    return partials, Scratch("ticket" if tickets is None else "tickets", counters, zeroed=True)


def shared_plan(
    spec: ReductionSpec,
    combine: Combine,
    block: tuple[int, int, int],
    numbers: tuple[tuple[DType, Expr], ...],
    *,
    splits: Expr,
    states: Expr,
    groups: Expr = ONE,
    tickets: Expr | None = None,
    second: tuple[tuple[DType, Expr], ...] = (),
) -> Plan:
    """The launch of blocks that share results, and with `SECOND_PASS` a second, which combines their partial results.

    A ticket is 0 before the launch and after it. The grid of the second launch is empty where a result has one block.

    Args:
        spec: what is computed.
        combine: the combine strategy.
        block: threads of a block.
        numbers: that the kernel takes behind its arrays.
        splits: blocks that share one group of results.
        states: partial results that scratch memory has room for.
        groups: of results, each with blocks of its own.
        tickets: how many there are; None for the one of a single group.
        second: numbers that the second launch takes before the number of splits.
    """
    grid = splits if tickets is None else groups * splits
    arrays = ("in", *outputs(spec), *arguments(combine, tickets))
    launch = Launch((grid, ONE, ONE), block, (*arrays, *numbers))
    memory = scratch(spec, combine, splits, states, tickets)
    if combine is not Combine.SECOND_PASS:
        return Plan((launch,), memory)
    blocks = (groups * (splits - 1).at_most(1), ONE, ONE)
    last = Launch(blocks, block, ("partials", *outputs(spec), *second, (U32, splits)), entry="_finish")
    return Plan((launch, last), memory)


def inverse(divisor: Expr) -> tuple[DType, Expr]:
    """What a kernel multiplies numbers under 2^31 by, to divide them: 2^62 / the divisor, rounded up."""
    return U64, constant(2**62 - 1) // divisor.at_least(1) + 1


def split_after(n: Expr, tile: Expr | int, most: Expr) -> Expr:
    """Blocks that share n elements of a result: one for each tile that is read at once, and one alone for few tiles.

    Args:
        n: elements, or rows of them.
        tile: of these, that a block reads at once.
        most: blocks of a result.
    """
    several = (n // (constant(tile) * ROUNDS_ALONE + 1)).at_most(1)
    return (n.ceil_div(tile).at_most(most).at_least(1) - 1) * several + 1


def taken(
    algorithm: ReductionAlgorithm[C], spec: ReductionSpec, config: C, found: Iterable[Extents | None]
) -> Iterator[Extents]:
    """Those of these sizes that there are, and that a variant takes on the architecture of the proof."""
    limits = Limits.of(DEFAULT_ARCH)
    for sizes in found:
        if sizes is not None and algorithm.unsupported_extents(spec, config, sizes, limits) is None:
            yield sizes


def block_roundings(states: int) -> int:
    """Roundings of a block reduce by shuffles of so many states: those of each warp, then those of the warps."""
    return tree(min(states, WARP)) + tree(-(-states // WARP))


def halving_roundings(rows: int, states: int) -> int:
    """Those where rows of threads are halved, the odd one last, and only the first so many states are no identity."""
    found, left = 0, min(rows, states)
    while rows > 1:
        rows = (rows + 1) // 2
        found += left > rows
        left = min(left, rows)
    return found


def lane_roundings(states: int) -> int:
    """The same where a lane takes a state of each warp, and one thread those of all lanes, in chains."""
    lanes = min(states, WARP)
    return chain(-(-states // WARP)) + chain(-(-lanes // LANE_CHAINS)) + chain(min(lanes, LANE_CHAINS))


def combine_roundings(combine: Combine, splits: int, threads: int, block_reduce: Callable[[int], int]) -> int:
    """Roundings on a path from the partial result of a block to the result.

    Args:
        combine: the combine strategy.
        splits: blocks of a result.
        threads: of the block that combines partial results, as far as they share those of one result.
        block_reduce: roundings of its block reduce, by the number of states.
    """
    if splits == 1:
        return 0
    if combine is Combine.FLAGS:  # those taken over at once are added first, then to what the thread has
        own = -(-(splits - 1) // threads)
        taken = chain(min(own, TAKEN_AT_ONCE)) + -(-own // TAKEN_AT_ONCE)
    else:
        taken = chain(-(-splits // threads))
    return taken + block_reduce(min(splits, threads))
