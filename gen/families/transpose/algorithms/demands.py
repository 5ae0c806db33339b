"""What transposes ask of a device, in closed forms: sectors of the runs that a block reads and writes, instructions.

Instructions are counted as slots of a scheduler. Those of memory take more of these than others: a multiprocessor
finishes one of them in a clock, for a word of each thread, and issues several of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from gen.families.base import Extents
from gen.families.estimates import COLD_SECONDS, SECTOR_BYTES, Demand
from gen.families.expr import once_a_problem, traced_alone
from gen.families.transpose.spec import TransposeSpec

CACHE_SHARE = 0.7
"""Of the time that memory takes for a sector, what the second-level cache takes for it where it has the others."""
LINE_BYTES = 128  # of the first-level cache, which looks up one of them a clock
INDEX = 7  # instructions that divide an element's number by an extent, and add its step
PROLOGUE = 60  # instructions that find a block's tile
_MEMORY = 2.5  # slots of an instruction of memory for a word of each thread

Span = tuple[int, int]
"""Places along an axis, and elements from one to the next."""


def memory(size: int) -> float:
    """Slots of a load or a store of so many bytes by each thread, from or to shared memory or whole lines."""
    return _MEMORY * max(size, 4) / 4


@once_a_problem
def elements_of(spec: TransposeSpec, extents: Extents) -> int:
    """Of the array."""
    found = extents["rows"] * extents["cols"]
    for place in range(spec.batches):
        found *= extents[f"batch{place}"]
    return found


@traced_alone
def touched(spans: Sequence[Span], size: int, grain: int, *, aligned: bool) -> float:
    """Sectors, or lines, that elements lie in which are so many places along some axes.

    Args:
        spans: places, and the elements between them; of any order.
        size: bytes of an element.
        grain: bytes of a sector, or a line.
        aligned: whether what lies together begins at a multiple of it.
    """
    together, apart = size, 1
    for places, step in sorted(spans, key=itemgetter(1)):
        if step * size < together + grain:  # in a gap there is no whole one
            together += (places - 1) * step * size
        else:
            apart *= places
    return apart * (-(-together // grain) if aligned else (together + grain - size) / grain)


def taken(axes: Sequence[Span], count: int) -> list[Span]:
    """Of so many elements that follow each other along these axes, the fastest last: places along each."""
    found: list[Span] = []
    left = count
    for extent, step in reversed(axes):
        places = min(extent, left)
        found.append((places, step))
        left = -(-left // max(extent, 1))
        if left <= 1:
            break
    return found


def demand_of(
    spec: TransposeSpec,
    extents: Extents,
    *,
    blocks: int,
    threads_per_block: int,
    read: float,
    written: float,
    in_flight: float,
    instructions: float,
    prologue: float = PROLOGUE,
    rounds: float = 1.0,
    registers: int = 40,
    shared_bytes: int = 0,
    serial_instructions: float = 0.0,
    code: float | None = None,
) -> Demand:
    """What threads ask for that move all elements.

    Args:
        spec: what is computed.
        extents: the problem's sizes.
        blocks: of the launch.
        threads_per_block: of these blocks.
        read: sectors of the input that a block asks for, the mean of all blocks.
        written: sectors of the output.
        in_flight: bytes that a thread asks for before it waits, the mean of all threads.
        instructions: slots of a thread, for what it moves.
        prologue: beside them.
        rounds: of loads that wait for each other.
        registers: of a thread.
        shared_bytes: of a block.
        serial_instructions: before the first load, each of which waits for the one before.
        code: instructions of the text; as many as a thread executes unless given.
    """
    least = 2 * max(elements_of(spec, extents), 1) * spec.dtype.size
    moved = max(least, CACHE_SHARE * SECTOR_BYTES * blocks * (read + written))
    return Demand(
        moved,
        max(blocks, 1),
        threads_per_block,
        2 * max(in_flight, 0.1) * moved / least,  # whole sectors; as many are written meanwhile
        max(rounds, 1.0),
        prologue + instructions,
        registers,
        shared_bytes,
        1,
        COLD_SECONDS * (prologue + instructions if code is None else code),
        serial_instructions,
    )


def tile_demand(
    spec: TransposeSpec,
    extents: Extents,
    *,
    tile: tuple[int, int],
    tiles: int,
    threads_per_block: int,
    of_element: float,
    aligned: bool,
    at_once: float,
    apart: float = 1.0,
    rounds: float = 1.0,
    registers: int = 40,
    shared_bytes: int = 0,
) -> Demand:
    """Of tiles of matrices, which may lie outside in part.

    Args:
        spec: what is computed.
        extents: the problem's sizes.
        tile: its rows and columns, as far as it moves them.
        tiles: how many there are, each of a block.
        threads_per_block: of these blocks.
        of_element: slots for an element of a tile, inside or not.
        aligned: whether rows begin at sectors.
        at_once: elements that a thread asks for before it waits.
        apart: how often memory takes for a sector what it takes where blocks extend what others have just moved.
        rounds: of these.
        registers: of a thread.
        shared_bytes: of a block.
    """
    high, wide = tile
    size, inside = spec.dtype.size, elements_of(spec, extents) / max(tiles * high * wide, 1)
    elements, read, written = _of_tile(spec, extents, high, wide, aligned)
    share = min(inside * high * wide / max(elements, 1), 1.0)
    return demand_of(
        spec,
        extents,
        blocks=tiles,
        threads_per_block=threads_per_block,
        read=share * read * apart / CACHE_SHARE if apart > 1 else share * read,
        written=share * written * apart / CACHE_SHARE if apart > 1 else share * written,
        in_flight=inside * at_once * size,
        rounds=rounds,
        instructions=of_element * high * wide / threads_per_block,
        registers=registers,
        shared_bytes=shared_bytes,
    )


@once_a_problem
def _of_tile(spec: TransposeSpec, extents: Extents, high: int, wide: int, aligned: bool) -> tuple[int, float, float]:
    """Elements of a tile that lies inside as far as the matrix does; sectors that it reads, and that it writes."""
    size, rows, cols = spec.dtype.size, min(high, extents["rows"]), min(wide, extents["cols"])
    read = touched(((rows, extents["in_pitch"]), (cols, 1)), size, SECTOR_BYTES, aligned=aligned)
    written = touched(((cols, extents["out_pitch"]), (rows, 1)), size, SECTOR_BYTES, aligned=aligned)
    return rows * cols, read, written


def edge_share(extents: Extents, tile: tuple[int, int]) -> float:
    """The share of tiles that lie outside in part."""
    (rows, cols), (high, wide) = (extents["rows"], extents["cols"]), tile
    return 1.0 - rows // high / max(-(-rows // high), 1) * (cols // wide / max(-(-cols // wide), 1))


def whole_vectors(spec: TransposeSpec, extents: Extents, alignment: int, vec_bytes: int, *pitches: str) -> bool:
    """Whether addresses, pitches and steps between matrices are multiples of a vector."""
    if alignment < vec_bytes:
        return False
    names = [*pitches]
    for place in range(spec.batches):
        if extents[f"batch{place}"] > 1:
            names += [f"batch{place}_in", f"batch{place}_out"]
    return all(extents[name] * spec.dtype.size % vec_bytes == 0 for name in names)


def copy_demand(
    spec: TransposeSpec,
    extents: Extents,
    *,
    blocks: int,
    threads_per_block: int,
    vectors: float,
    of_thread: float,
    rounds: float = 1.0,
) -> Demand:
    """Of runs that are copied by vectors, as far as threads have any.

    Args:
        spec: what is computed.
        extents: the problem's sizes.
        blocks: of the launch.
        threads_per_block: of these blocks.
        vectors: that a thread asks for before it waits, at most.
        of_thread: slots of a thread.
        rounds: of loads that wait for each other.
    """
    nbytes = elements_of(spec, extents) * spec.dtype.size
    run = extents["rows"] * extents["cols"] * spec.dtype.size
    sectors = nbytes / max(run, 1) * (run + SECTOR_BYTES - 1 if run % SECTOR_BYTES else run) / SECTOR_BYTES
    return demand_of(
        spec,
        extents,
        blocks=blocks,
        threads_per_block=threads_per_block,
        read=sectors / max(blocks, 1),
        written=sectors / max(blocks, 1),
        in_flight=min(nbytes / max(blocks * threads_per_block, 1), 16.0 * vectors),
        rounds=rounds,
        instructions=of_thread,
    )


def piece_demand(
    spec: TransposeSpec,
    extents: Extents,
    *,
    matrices: int,
    blocks: int,
    threads_per_block: int,
    of_element: float,
    in_flight: float,
    rounds: float,
    registers: int = 40,
    shared_bytes: int = 0,
) -> Demand:
    """Of matrices that follow each other in both arrays: a block moves several, each array's in one piece.

    Args:
        spec: what is computed.
        extents: the problem's sizes.
        matrices: of a block.
        blocks: of the launch.
        threads_per_block: of these blocks.
        of_element: slots for an element.
        in_flight: bytes that a thread asks for before it waits.
        rounds: of these.
        registers: of a thread.
        shared_bytes: of a block.
    """
    elements = min(matrices * extents["rows"] * extents["cols"], elements_of(spec, extents))
    sectors = elements * spec.dtype.size / SECTOR_BYTES
    return demand_of(
        spec,
        extents,
        blocks=blocks,
        threads_per_block=threads_per_block,
        read=sectors,
        written=sectors,
        in_flight=in_flight,
        rounds=rounds,
        instructions=of_element * elements / threads_per_block,
        registers=registers,
        shared_bytes=shared_bytes,
    )
