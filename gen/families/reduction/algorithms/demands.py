"""What reductions ask of a device, from closed forms: how dispatch ranks the variants of a reduction."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from gen.arch import WARP
from gen.dtypes import U32
from gen.families.base import Extents
from gen.families.estimates import Demand, Least
from gen.families.reduction.algorithms.common import Combine
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.state import state_of

TICKET_SECONDS, FLAGS_SECONDS = 2.0e-6, 1.2e-6
"""From the end of the last block's loads to the results of blocks that share them: fences, an atomic, a wait."""
TAKEN_SECONDS, READ_SECONDS = 0.22e-9, 0.03e-9
"""Of one block, for each quarter of a sector of partial results that it takes over, by an atomic, or reads."""
IN_TURN_SECONDS = 0.5e-6
"""Of a partial result that a thread reads once it has added the one before: the latency of a load."""
BLOCK_REDUCE_SECONDS = 0.3e-6
OVERHEAD_INSTRUCTIONS = 60
"""Of a thread before its first load and after its last."""

FEW_STRIPS = 8
"""Strips of a matrix up to which the one with columns that fill no vector is what all wait for. Var f16 of 253 columns
took 1.5 times what 8 strips of vectors were estimated to (bench/estimates-lost-reduction-h100.json)."""
CODE_OF_LOAD = 3
"""Instructions of ways that are not taken, of which some are fetched all the same, for each element loaded at once."""
MERGE_INSTRUCTIONS = 20
"""To merge one element with moments, its quotient among them."""


def demand_of(
    spec: ReductionSpec,
    extents: Extents,
    *,
    blocks: int,
    threads_per_block: int,
    busy: float,
    vectors: float,
    at_once: float,
    vec_bytes: int,
    walk: float = 0.0,
    more_rounds: float = 0.0,
    more_instructions: float = 0.0,
    combine: Combine | None = None,
    handed: int = 0,
    in_turn: float = 0.0,
    registers: int | None = None,
    shared_bytes: int = 0,
    moved_share: float = 1.0,
    reduces: bool = True,
    issuing: float | None = None,
) -> Demand:
    """What threads that read vectors ask of a device.

    Args:
        spec: what is computed.
        extents: the problem's sizes.
        blocks: of the launch.
        threads_per_block: of these blocks.
        busy: the share of threads that read anything.
        vectors: of each of these.
        at_once: vectors that a thread asks for before it waits.
        vec_bytes: of a vector.
        walk: instructions for each vector beside those of the load and of its elements.
        more_rounds: of loads that wait for each other, beside those of whole vectors.
        more_instructions: of a thread, beside those for vectors.
        combine: the strategy of blocks that share results; None where none do.
        handed: quarters of sectors of partial results that one block takes over from others.
        in_turn: partial results that a thread of the last block reads one after the other, but the first.
        registers: of a thread; estimated unless given.
        shared_bytes: of a block.
        moved_share: bytes that memory moves for a byte of the elements.
        reduces: whether warps of a block combine their states.
        issuing: the share of warps of which a thread reads anything; as many as are busy unless given.
    """
    item, of_item, state_bytes, of_results = _of_spec(spec)
    items, shared, taken = vec_bytes // item, 0.0, 0.0
    if combine is Combine.FLAGS:
        shared, taken = FLAGS_SECONDS, TAKEN_SECONDS
    elif combine is Combine.TICKET:
        shared, taken = TICKET_SECONDS, READ_SECONDS
    outer, inner = extents.get("outer", 1), extents.get("inner", 1)
    if registers is None:  # an element of fewer bytes takes a register, too
        loaded = round(at_once) * max(vec_bytes, U32.size)
        registers = min(32 + loaded // U32.size + items * state_bytes // U32.size // 2, 128)
    if issuing is None:
        issuing = busy
    return Demand(
        outer * extents["n"] * inner * item * moved_share + outer * inner * of_results,
        max(blocks, 1),
        threads_per_block,
        busy * min(at_once, max(vectors, 1.0)) * vec_bytes * moved_share,
        max(ceil(vectors / at_once), 1) + more_rounds,
        OVERHEAD_INSTRUCTIONS + more_instructions + issuing * vectors * (6 + walk + items * of_item),
        registers,
        shared_bytes,
        2 if combine is Combine.SECOND_PASS else 1,
        shared + BLOCK_REDUCE_SECONDS * (reduces and threads_per_block > WARP) + taken * handed
        + IN_TURN_SECONDS * in_turn,
        more_instructions,
    )  # fmt: skip


def least_of(
    spec: ReductionSpec,
    threads_per_block: int,
    vec_bytes: int,
    *,
    walk: float = 0.0,
    more_instructions: float = 0.0,
    reduces: bool = True,
    threads: float = 0.0,
    at_once: int = 0,
    shared: int = 0,
) -> Least:
    """What is below all demands of threads that read all elements by vectors of so many bytes, or narrower ones.

    Args:
        spec: what is computed.
        threads_per_block: of a block.
        vec_bytes: of a vector.
        walk: as in `demand_of`, at least.
        more_instructions: likewise.
        reduces: whether warps of a block combine their states at all sizes.
        threads: of a result, at least; each may have several.
        at_once: elements of a result that all of its threads ask for before they wait, at most; 0: any number.
        shared: of all results that several blocks share, likewise.
    """
    item, of_item, _, _ = _of_spec(spec)
    items = vec_bytes // item
    reduced = BLOCK_REDUCE_SECONDS * (reduces and threads_per_block > WARP)
    return Least(
        (6 + walk) / items + of_item, reduced, more_instructions, threads=threads,
        of_thread=OVERHEAD_INSTRUCTIONS + more_instructions, at_once=at_once, shared=shared,
    )  # fmt: skip


@lru_cache(maxsize=256)
def _of_spec(spec: ReductionSpec) -> tuple[int, float, int, int]:
    """Bytes of an element, instructions for it, bytes of a state, and of the results of one place."""
    state = state_of(spec)
    if state.bytes_summed or state.packed:
        of_item = 0.4
    elif state.moments or state.indexed:
        of_item = 4.0
    else:
        of_item = float(len(state.parts)) * (2 if spec.dtype.size < U32.size else 1)
    of_item *= 2 if state.bytes > U32.size and not state.indexed else 1
    return spec.dtype.size, of_item, state.bytes, sum(dtype.size for _, _, dtype in spec.results)


@lru_cache(maxsize=256)
def handed_quarters(spec: ReductionSpec) -> int:
    """Quarters of a sector's atomic that it takes to hand over a state: one for each word and state in the sector.

    A warp hands over one word of each of its states at once, and neighbouring states share sectors if they are small.
    """
    words = state_of(spec).bytes // U32.size
    return words * min(words, 4)


def columns_demand(
    spec: ReductionSpec, extents: Extents, block: tuple[int, int], *, unroll: int, vec_bytes: int, combine: Combine,
    columns: int, matrices: int, strips: int, splits: int, aligned: bool, walk: float = 0.0, before: float = 0.0,
    registers: int | None = None,
) -> Demand:  # fmt: skip
    """What blocks of threads that own neighbouring columns ask of a device.

    Args:
        spec: what is computed.
        extents: the problem's sizes.
        block: threads side by side, and one below the other.
        unroll: vectors that a thread asks for before it waits.
        vec_bytes: of a vector.
        combine: the strategy of blocks that share a strip.
        columns: of a matrix.
        matrices: that there are.
        strips: of a matrix.
        splits: blocks of a strip.
        aligned: whether rows begin at multiples of vectors: else elements are loaded one by one.
        walk: instructions for each row, to find the next.
        before: instructions of a thread before its first load.
        registers: of a thread; estimated unless given.
    """
    (columns_x, rows_y), items = block, vec_bytes // spec.dtype.size
    rows = max(extents["n"] / (splits * rows_y), 0.01)
    # Elements of unaligned rows, and of columns that fill no vector, for which a strip waits, are loaded one by one, as
    # many at once as vectors would have.
    by_elements = items > 1 and (not aligned or (columns % items != 0 and strips <= FEW_STRIPS))
    packed = state_of(spec).bytes_summed or state_of(spec).packed  # of single elements words must be made first
    lanes = min(columns_x, WARP)  # of a warp along a row: idle ones wait for the others
    issuing = min(-(-columns // (items * lanes)) * lanes / (strips * columns_x), 1.0)
    return demand_of(
        spec, extents, blocks=matrices * strips * splits, threads_per_block=columns_x * rows_y,
        busy=columns / (strips * columns_x * items) * min(rows, 1.0), issuing=issuing * min(rows, 1.0),
        vectors=max(rows, 1.0),
        at_once=unroll, vec_bytes=vec_bytes, walk=walk + (8 if packed else 6) * items * by_elements,
        more_instructions=before + _of_columns(items, rows_y, unroll),
        combine=combine if splits > 1 else None, handed=(splits - 1) * columns_x * items * handed_quarters(spec),
        registers=registers, shared_bytes=rows_y * columns_x * items * state_of(spec).bytes, reduces=rows_y > 1,
    )  # fmt: skip


def columns_least(
    spec: ReductionSpec,
    block: tuple[int, int],
    unroll: int,
    vec_bytes: int,
    sharing: int,
    *,
    walk: float = 0.0,
    before: float = 0.0,
) -> Least:
    """What is below all demands of such blocks, of which so many share strips; the others are `columns_demand`'s."""
    (columns_x, rows_y), items = block, vec_bytes // spec.dtype.size
    return least_of(
        spec, columns_x * rows_y, vec_bytes, walk=walk, more_instructions=before + _of_columns(items, rows_y, unroll),
        reduces=rows_y > 1, threads=rows_y / items, at_once=rows_y * unroll,
        shared=sharing * columns_x * items * rows_y * unroll,
    )._replace(tile=(1, items * min(columns_x, WARP)))  # fmt: skip


def _of_columns(items: int, rows_y: int, unroll: int) -> int:
    """Instructions of a thread for its columns, beside those for vectors."""
    return items * (10 * rows_y.bit_length() + 10 + CODE_OF_LOAD * unroll)
