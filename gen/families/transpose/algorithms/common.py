"""What the algorithms of transposes share: which block moves which tile, and what every kernel is given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import combinations
from typing import TypeVar

from typing_extensions import override

from gen.dtypes import I32, I64, U32, U64, DType
from gen.families.base import STATIC_SHARED_BYTES, Algorithm, Extents, Launch, Limits, Plan
from gen.families.config import Config
from gen.families.expr import ONE, Expr, constant, size
from gen.families.plans import Tiles, beyond_shared
from gen.families.transpose.literature import MatrixSpec, MoveSpec, repetitions
from gen.families.transpose.spec import TransposeSpec
from gen.families.transpose.values import BITS

S = TypeVar("S", bound=MatrixSpec)
C = TypeVar("C", bound=Config)

MATRICES = "matrices"
"""The extent that says how many square matrices are transposed in place."""
MAX_DIVIDEND = 2**31 - 2
"""The largest number that templates divide by multiplying."""
_WHOLE_ROWS = 16  # elements: as many are whole vectors of any element


class Order(Enum):
    """The order in which blocks go over the tiles of a matrix."""

    ROW = "row"  # along rows of the input
    COL = "col"  # along rows of the output: consecutive blocks extend what the one before has written
    GROUPED = "grouped"  # down 8 rows of tiles, then on to the next column
    DIAGONAL = "diagonal"  # along diagonals, of any grid
    SQUARE = "square"  # the literature's formula for them: right where there are as many tiles down as across

    def unsupported_extents(self, tiles: Tiles, extents: Extents) -> str | None:
        """Why a problem's tiles cannot be taken in this order."""
        if self is not Order.SQUARE:
            return None
        down, across = tiles.down.at(extents), tiles.across.at(extents)
        return (
            None
            if down == across
            else f"its block order needs as many tiles down as across, and these are {down} x {across}"
        )


class MatrixAlgorithm(Algorithm[S, C]):
    """Moves the elements of matrices."""

    def spec_inputs(self, spec: S) -> Mapping[str, object]:
        """Elements of both arrays as C++ types of their bits and in bytes, what becomes of them, and the other axes."""
        result = result_bits(spec)
        return {
            "element": BITS[spec.dtype.size].cuda,
            "size": spec.dtype.size,
            "result": result.cuda,
            "result_size": result.size,
            "values": (isinstance(spec, TransposeSpec) and spec.values) or False,
            "batches": spec.batches,
        }

    def dynamic_bytes(self, spec: S, config: C) -> int:
        """Of the shared memory that a launch asks for at all sizes; no launch forms clusters."""
        return 0

    @override
    def infeasible(self, spec: S, config: C, limits: Limits) -> str | None:
        return beyond_shared(self.dynamic_bytes(spec, config), limits)  # as its plan says, which need not be made


class StagedAlgorithm(MatrixAlgorithm[TransposeSpec, C]):
    """Stages elements in shared memory of a size that is known when the kernel is written."""

    @abstractmethod
    def staged_bytes(self, spec: TransposeSpec, config: C) -> int:
        """Shared memory of a block."""

    @override
    def dynamic_bytes(self, spec: TransposeSpec, config: C) -> int:
        """What of it a launch must ask for: all of it, or none where it can be static."""
        needed = self.staged_bytes(spec, config)
        return needed if needed > STATIC_SHARED_BYTES else 0

    def inputs(self, spec: TransposeSpec, config: C) -> Mapping[str, object]:
        """Whether the shared memory is dynamic."""
        return {"dynamic": self.dynamic_bytes(spec, config) > 0}


@dataclass(frozen=True)
class Axis:
    """One axis of a problem; strides in elements."""

    extent: int
    in_stride: int
    out_stride: int

    def continues(self, inner: Axis) -> bool:
        """Whether this axis and the next faster one are, in both arrays, one long axis."""
        return (
            self.in_stride == inner.extent * inner.in_stride and self.out_stride == inner.extent * inner.out_stride
        )  # fmt: skip


def merged(axes: Sequence[Axis]) -> list[Axis]:
    """The axes, slowest in the input first, with every two that are one long axis merged."""
    found: list[Axis] = []
    for axis in axes:
        if found and found[-1].continues(axis):
            found[-1] = Axis(found[-1].extent * axis.extent, axis.in_stride, axis.out_stride)
        else:
            found.append(axis)
    return found


@lru_cache(maxsize=256)
def matrices(spec: MatrixSpec) -> Expr:
    """How many matrices a call turns."""
    count = ONE
    for place in range(spec.batches):
        extent = size(f"batch{place}")
        count = extent if place == 0 else count * extent
    return count


def batch_arguments(spec: MatrixSpec, index: DType = I64) -> tuple[tuple[DType, Expr], ...]:
    """The arguments of a kernel about the other axes."""
    return tuple(
        (index, size(f"batch{place}{end}")) for place in range(spec.batches) for end in ("", "_in", "_out")
    )  # fmt: skip


def spanned(spec: MatrixSpec, extents: Extents, end: str) -> int:
    """Elements from an array's first matrix to its last; an axis counts two places at least, so that its step is in it.

    Args:
        spec: the spec.
        extents: its sizes.
        end: `_in` or `_out`.
    """
    steps = [(extents[f"batch{place}"], extents[f"batch{place}{end}"]) for place in range(spec.batches)]
    return sum(max(extent - 1, 1) * step for extent, step in steps)


def between_vectors(
    spec: TransposeSpec,
    extents: Extents,
    alignment: int,
    vec_bytes: int = 16,
    pitches: Sequence[str] = ("in_pitch", "out_pitch"),
) -> str | None:
    """Why rows or matrices begin between vectors of so many bytes; None if none does.

    Args:
        spec: the spec.
        extents: its sizes.
        alignment: bytes that divide the address of every array.
        vec_bytes: of a vector.
        pitches: from row to row, as far as there is more than one.
    """
    if alignment < vec_bytes:
        return f"addresses are aligned to {alignment} bytes only, and its vectors need {vec_bytes}"
    for name in (*pitches, *(f"batch{place}{end}" for place in range(spec.batches) for end in ("_in", "_out"))):
        size = spec.dtype.size if "in" in name.split("_") else spec.result.size
        if extents[name] * size % vec_bytes:
            return f"{name} is {extents[name]}, not a multiple of the {vec_bytes // size} elements of its vectors"
    return None


def arguments(spec: MatrixSpec, *counts: Expr) -> tuple[str | tuple[DType, Expr], ...]:
    """The arguments of most kernels, in the order of the templates' `parameters`; `counts`: tiles down and across."""
    numbers = tuple((I64, size(name)) for name in ("rows", "cols", "in_pitch", "out_pitch"))
    return ("in", "out", *numbers, *batch_arguments(spec), *((U32, count) for count in counts))


def tiled_launch(
    spec: MatrixSpec,
    tiles: Tiles,
    block: tuple[int, int, int],
    shared_bytes: Expr | int = 0,
    *,
    in_kernel: bool = False,
    order: Order | None = None,
) -> Plan:
    """Launches with a block for each tile, which it finds by `place_tile` of the templates.

    There are as many launches as repetitions; with `in_kernel` one, which has their number as an argument. With an
    order, which is ROW or COL, the kernel has inverses as arguments, by which it multiplies instead of dividing.
    """
    times = repetitions(spec)
    extra: tuple[tuple[DType, Expr], ...] = ((I64, times),) if in_kernel else ()
    if order is not None:
        extra = (*extra, *inverses(tiles, divisors(spec, order)))
    launch = Launch(
        grid=(tiles.count, ONE, ONE),
        block=block,
        arguments=(*arguments(spec, tiles.down, tiles.across), *extra),
        shared_bytes=constant(shared_bytes),
        times=ONE if in_kernel else times,
    )
    return Plan((launch,))


def launch_on_axes(
    spec: TransposeSpec, tiles: Tiles, vector: int, block: tuple[int, int, int], shared_bytes: int, order: Order
) -> Plan:  # fmt: skip
    """A launch with a block for each tile, which it finds by `place_on_axes` of the templates: it divides nothing.

    But for a matrix's number, where there are several axes of them. Elements' places have 32 bits.

    Args:
        spec: the spec.
        tiles: of each matrix.
        vector: its elements. Unless all steps are multiples of it no tile counts as full.
        block: the shape of a block.
        shared_bytes: that it is given.
        order: in which blocks go over tiles.
    """
    of_batches = [f"batch{place}{end}" for place in range(spec.batches) for end in ("_in", "_out")]
    left = size("in_pitch") % vector
    for step in ("out_pitch", *of_batches):
        left = left + size(step) % vector
    aligned = (ONE - left.at_most(1)).called("aligned")
    full_tiles_down = (size("rows") // tiles.tile_rows * aligned).called("full_tiles_down")
    full_tiles_across = (size("cols") // tiles.tile_cols * aligned).called("full_tiles_across")
    first = [(I32, number) for number in (size("in_pitch"), size("out_pitch"), full_tiles_down, full_tiles_across)]
    batches = (*batch_arguments(spec, I32), *inverses(tiles, extents_of_batch(spec)))
    launch = Launch(
        grid=axes(tiles, order),
        block=block,
        arguments=("in", "out", *first, *batches, (I32, size("rows")), (I32, size("cols"))),
        shared_bytes=constant(shared_bytes),
    )
    return Plan((launch,))


def axes(tiles: Tiles, order: Order) -> tuple[Expr, Expr, Expr]:
    """Blocks along x, as the order goes, which is ROW or COL; along y, across it; and along z, for the matrices."""
    along, across = (tiles.across, tiles.down) if order is Order.ROW else (tiles.down, tiles.across)
    return along, across, tiles.matrices


def divisors(spec: MatrixSpec, order: Order) -> tuple[str, ...]:
    """What a block's number is divided by, by name: tiles along the order and across it, extents of axes."""
    along, across = ("tiles_across", "tiles_down") if order is Order.ROW else ("tiles_down", "tiles_across")
    return (along, across, *extents_of_batch(spec)) if spec.batches else (along,)


def extents_of_batch(spec: MatrixSpec) -> tuple[str, ...]:
    """What a matrix's number is divided by, by name."""
    return tuple(f"batch{place}" for place in range(1, spec.batches))


def inverses(tiles: Tiles, names: Sequence[str]) -> tuple[tuple[DType, Expr], ...]:
    """By what a kernel multiplies instead of dividing."""
    counts = {"tiles_down": tiles.down, "tiles_across": tiles.across}
    return tuple((U64, inverse_of(counts.get(name, size(name))).called(f"{name}_inverse")) for name in names)


def inverse_of(divisor: Expr) -> Expr:
    """2^63 - 1 over a number; 2^63 - 1 for 0, by which nobody divides.

    Of a product of it and n + 1, for n below 2^31 - 1, the bits from the 63rd on are the quotient of n: the product is
    less than (n + 1) / divisor, but not by as much as 1 / divisor (Granlund and Montgomery, PLDI 1994).
    """
    return constant(2**63 - 1) // divisor.at_least(1)


def result_bits(spec: MatrixSpec) -> DType:
    """The result's elements, as kernels move them."""
    return BITS[spec.result.size if isinstance(spec, TransposeSpec) else spec.dtype.size]


def only_apart(spec: MatrixSpec) -> str | None:
    """Why an algorithm that writes to another array than it reads cannot compute a spec."""
    if isinstance(spec, TransposeSpec) and spec.in_place:
        return "it cannot work in place"
    return None


def only_moves(spec: TransposeSpec) -> str | None:
    """Why an algorithm that moves elements as they are, to another array, cannot compute a spec."""
    return "it cannot change the values of elements" if spec.values is not None else only_apart(spec)


def only_gaps_after_rows(spec: TransposeSpec) -> str | None:
    """Why an algorithm that moves elements as they are, along several axes at once, cannot compute a spec."""
    return "it supports gaps between rows alone" if spec.strided else only_moves(spec)


def only_turns(spec: TransposeSpec) -> str | None:
    """Why an algorithm that moves the elements of matrices, each turned, cannot compute a spec."""
    return only_moves(spec) or (None if turns(spec) else "it transposes, and here the axes keep their order")


def stays(extents: Extents) -> bool:
    """Whether elements that follow each other in the input do so in the output: what the call does is a copy."""
    return (extents["rows"] == 1 and extents["out_pitch"] == 1) or (extents["cols"] == 1 and extents["in_pitch"] == 1)


def turns(spec: TransposeSpec) -> bool:
    """Whether any two axes change their order: else the permutation turns no matrix."""
    return spec.axes != tuple(range(len(spec.axes)))


def turned(
    spec: TransposeSpec, rows: int, cols: int, matrices: int = 1, *, in_gap: int = 0, out_gap: int = 0
) -> Extents:
    """Axes and pitches of an array of matrices, each of rows x cols, that the permutation turns.

    Args:
        spec: one that `turns`.
        rows: of a matrix; each is a column of the output.
        cols: of a matrix.
        matrices: how many follow each other in both arrays; a single one where no axis comes before both of the
            matrix in both arrays.
        in_gap: elements after each row of the input, where its rows are those of the matrix.
        out_gap: the same in the output.
    """
    last = len(spec.axes) - 1
    there = _places(spec)
    found: list[tuple[tuple[bool, bool, bool], dict[int, int]]] = []
    for row, col in combinations(range(last + 1), 2):
        if there[row] > there[col]:
            before = next((axis for axis in range(row) if there[axis] < there[col]), None)
            many = {} if before is None or matrices == 1 else {before: matrices}
            wishes = (before is not None or matrices == 1, col == last or not in_gap, there[row] == last or not out_gap)
            found.append((wishes, {row: rows, col: cols, **many}))
    wishes, shape = max(found, key=lambda one: one[0])
    return known(spec, shape, in_gap * wishes[1], out_gap * wishes[2])


def tile_edges(spec: MatrixSpec, tiles: Tiles) -> Iterator[Extents]:
    """Sizes by which the last tile has 1, 2, all but 1 and all of its rows, and another such number of its columns.

    Rows are aligned to 16 bytes in both arrays; where matrices follow each other, or elements are few, also not.
    """
    high, wide, halo = tiles.tile_rows, tiles.tile_cols, tiles.rows.at({"rows": 0})
    # Rows, columns, matrices, elements that divide the pitches.
    for rows, cols, many, pitch in (
        (high + 1 - halo, wide - 1, 1, _WHOLE_ROWS),
        (high + 2 - halo, 2 * wide, 2, _WHOLE_ROWS),
        (2 * high - 1 - halo, wide + 1, 1, _WHOLE_ROWS),
        (2 * high - halo, wide + 2, 1, _WHOLE_ROWS),
        (high + 1 - halo, wide + 1, 3, 1),
        (high - 1, wide + 2, 1, 1),
    ):
        if isinstance(spec, MoveSpec):
            if not spec.by_tiles:
                in_pitch, out_pitch = (row + -row % pitch for row in (cols, rows if spec.swaps_axes else cols))
                yield {"rows": rows, "cols": cols, "in_pitch": in_pitch, "out_pitch": out_pitch}
        elif turns(spec):
            yield turned(spec, rows, cols, many, in_gap=-cols % pitch, out_gap=-rows % pitch)


def copied(spec: TransposeSpec, run: int, runs: Sequence[int] = (), *, gap: int = 1) -> Extents:
    """Axes and pitches of an array whose elements stay neighbours, in runs that do not follow each other.

    Args:
        spec: what is computed.
        run: elements of a run.
        runs: how many there are, along one axis between whose runs there is a gap, or along two axes that change their
            order. Where the spec has no such axes, along fewer.
        gap: elements between the runs of one axis, in the array, or both, whose rows they are.
    """
    last, there = len(spec.axes) - 1, _places(spec)
    for axes in combinations(range(last + 1), len(runs) + 1):
        *others, along = axes
        places = [there[axis] for axis in axes]
        gaps = (gap * (along == last), gap * (there[along] == last))
        apart = not others or (any(gaps) if len(others) == 1 else places[0] > places[1])
        if apart and max(places) == there[along]:
            pitched = gaps if len(others) == 1 else (0, 0)
            return known(spec, {**dict(zip(others, runs, strict=True)), along: run}, *pitched)
    return copied(spec, run, runs[1:], gap=gap)


def _places(spec: TransposeSpec) -> Mapping[int, int]:
    """Where each axis of the input is among those of the output."""
    return {axis: place for place, axis in enumerate(spec.axes)}


def known(spec: TransposeSpec, shape: Mapping[int, int], in_gap: int, out_gap: int) -> Extents:
    """The extents of every axis, those not named 1, and the pitches."""
    one, two = spec.operands
    known = {str(name): shape.get(axis, 1) for axis, name in enumerate(one.axes)}
    pitches = {o.pitch: known[str(o.axes[-1])] + gap for o, gap in ((one, in_gap), (two, out_gap)) if o.pitch}
    return known | pitches
