"""What the algorithms of stencils share: how far weights reach, weights as C++, and the launches of many time steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache, reduce
from math import prod
from operator import mul
from typing import ClassVar, NamedTuple, TypeVar

from typing_extensions import override

from gen.arch import MAX_GRID_YZ, MAX_THREADS_PER_BLOCK, WARP
from gen.dtypes import F32, F64, I64, U32, DType
from gen.families.base import Algorithm, Extents, Launch, Plan, Scratch
from gen.families.config import Config
from gen.families.expr import ONE, ZERO, Expr, constant, size
from gen.families.plans import Tiles
from gen.families.stencil.reassociated import RowSum
from gen.families.stencil.spec import MAX_AXES, STEPS, GridSpec, StencilSpec, frozen_cells

C = TypeVar("C", bound=Config)

SPARE, WEIGHTS = "spare", "weights"  # scratch memory
COPY_THREADS = 256  # of a block that copies
LITTLE_CELLS = 1 << 19  # so few that each should have a thread, on a large device
_FEW_LANES = 4  # a part of those of a warp, of which rows should fill more
VECTOR_BYTES = 16
_LINE_CHARACTERS = 88  # of weights

Sweep = Callable[[str, str, Expr], Launch]
"""A launch that reads one array and writes another; the last is the pitch of the first."""


class Coefficients(Enum):
    """Where a kernel finds its weights."""

    LITERAL = "literal"  # in the instructions
    CONSTANT = "const"  # in constant memory
    READ_ONLY = "ldg"  # in an array, through the read-only cache
    GLOBAL = "gmem"  # in an array


@dataclass(frozen=True)
class Sides:
    """How many cells there are before and after something along each axis, slowest first."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    @cached_property
    def left(self) -> int:
        """Cells before it in its row."""
        return self.before[-1]

    @cached_property
    def right(self) -> int:
        """Cells after it in its row."""
        return self.after[-1]

    @cached_property
    def up(self) -> int:
        """Rows before its row."""
        return self.before[-2] if len(self.before) > 1 else 0

    @cached_property
    def down(self) -> int:
        """Rows after its row."""
        return self.after[-2] if len(self.after) > 1 else 0

    @cached_property
    def front(self) -> int:
        """Planes before its plane."""
        return self.before[-3] if len(self.before) > 2 else 0

    @cached_property
    def back(self) -> int:
        """Planes after its plane."""
        return self.after[-3] if len(self.after) > 2 else 0

    @cached_property
    def deep(self) -> int:
        """All planes, its own among them."""
        return self.front + 1 + self.back

    @cached_property
    def high(self) -> int:
        """All rows, its own among them."""
        return self.up + 1 + self.down

    @cached_property
    def wide(self) -> int:
        """All cells of its row, itself among them."""
        return self.left + 1 + self.right

    @cached_property
    def side(self) -> int:
        """The longer of both sides of a row."""
        return max(self.left, self.right)


@lru_cache(512)
def reach_of(spec: StencilSpec) -> Sides:
    """How far the weights that are not 0 reach from a cell, on both sides along each axis."""
    places = [[offset[axis] for offset, _ in spec.taps] or [0] for axis in range(len(spec.axes))]
    return Sides(tuple(max(0, -min(along)) for along in places), tuple(max(0, *along, 0) for along in places))


@lru_cache(512)
def are_images(spec: StencilSpec) -> bool:
    """Whether planes are a batch of images, of which each is computed by itself: no weight reaches into another."""
    return len(spec.axes) == MAX_AXES and spec.shape[0] == 1


@lru_cache(512)
def image_of(spec: StencilSpec) -> StencilSpec:
    """What is computed of one image, where planes are a batch of these; any other spec as it is."""
    if not are_images(spec):
        return spec
    origins = tuple(before - extent // 2 for before, extent in zip(spec.before[1:], spec.shape[1:], strict=True))
    return replace(spec, shape=spec.shape[1:], boundary=spec.boundaries[1:], origin=origins)


@lru_cache(512)
def images_of(spec: StencilSpec) -> Expr:
    """How many images one kernel computes: one, unless planes are a batch of them."""
    return size(spec.axes[0]) if are_images(spec) else ONE


def blocks_of_images(spec: StencilSpec, blocks: Expr) -> tuple[Expr, Expr, Expr]:
    """The grid of so many blocks of each image: along y there are images, along z the next ones."""
    images = images_of(spec)
    return blocks, images.at_most(MAX_GRID_YZ), images.ceil_div(MAX_GRID_YZ)


@lru_cache(512)
def mirrored_reach_of(spec: StencilSpec) -> Sides:
    """How far rows must be held: where rows are mirrored, as far above as below."""
    spec = image_of(spec)
    reach = reach_of(spec)
    if spec.boundaries[0] not in ("reflect", "mirror"):
        return reach
    both = max(reach.up, reach.down)
    return Sides((both, reach.left), (both, reach.right))


@lru_cache(512)
def rim_of(spec: StencilSpec) -> Sides:
    """How many cells are frozen at both ends of each axis."""
    return Sides(*frozen_cells(spec.ends, spec.before, spec.after))


def window_lines(spec: StencilSpec, reach: Sides) -> tuple[str, ...]:
    """The weights of the cells within reach, as the lines of a C++ initializer."""
    weights = dict(spec.taps)
    lines: list[str] = []
    for z in range(-reach.front, reach.back + 1):
        rows = [
            [weights.get((z, y, x)[-len(spec.axes) :], 0.0) for x in range(-reach.left, reach.right + 1)]
            for y in range(-reach.up, reach.down + 1)
        ]
        plane = weight_lines(rows, spec.accumulator)
        lines += plane if len(spec.axes) < 3 else ("{", *(f"    {line}" for line in plane), "},")
    return tuple(lines)


@dataclass(frozen=True)
class RowTables:
    """How rows of a window are added where terms are reassociated, as a template writes it.

    Attributes:
        lines: the weights of an image, as the lines of a C++ initializer.
        base_lines: the bases, likewise.
        base_of: of each row, -1 for none.
        factors: of these bases.
        paired: whether cells at each distance from the centre are added to those on the other side first.
    """

    lines: tuple[str, ...]
    base_lines: tuple[str, ...]
    base_of: tuple[int, ...]
    factors: tuple[str, ...]
    paired: tuple[str, ...]


def row_tables(spec: StencilSpec, reach: Sides) -> RowTables | bool:
    """Those of the rows within reach; False where terms are added in the order of the weights."""
    if not spec.reassociate:
        return False
    terms, number = spec.terms, spec.accumulator
    sums = [terms.sums.get(down, RowSum()) for down in range(-reach.up, reach.down + 1)]
    bases = [[base.get(along, 0.0) for along in range(-reach.left, reach.right + 1)] for base in terms.bases]
    return RowTables(
        window_lines(image_of(spec), reach),
        weight_lines(bases, number) if bases else (),
        tuple(-1 if one.base is None else one.base for one in sums),
        tuple(literal(one.factor, number) for one in sums),
        tuple("true" if distance in terms.pairs else "false" for distance in range(reach.wide)),
    )


@lru_cache(512)
def neighbours_of_rows(spec: StencilSpec, reach: Sides) -> tuple[int, ...]:
    """How many neighbours on each side are read of every row within reach."""
    return tuple(
        max((abs(offset[-1]) for offset, _ in spec.taps if len(offset) == 1 or offset[-2] == y), default=0)
        for y in range(-reach.up, reach.down + 1)
    )


def neighbours_of_loaded_rows(spec: StencilSpec, reach: Sides, rows: int) -> tuple[int, ...]:
    """How many neighbours are read of every row that a warp loads: row j is row j - i of the window of its row i."""
    window = neighbours_of_rows(spec, reach)
    return tuple(
        max((window[j - output] for output in range(rows) if 0 <= j - output < reach.high), default=0)
        for j in range(rows + reach.high - 1)
    )


def weight_lines(rows: Sequence[Sequence[float]], dtype: DType) -> tuple[str, ...]:
    """Weights as lines of a C++ initializer, a row in braces. Rows of 0 are empty; those at the end are left out."""
    lines: list[str] = []
    last = max((place for place, row in enumerate(rows) if any(row)), default=0)
    for row in rows[: last + 1]:
        if not any(row):
            lines.append("{},")
            continue
        words = [literal(weight, dtype) for weight in row]
        line = "{"
        for place, word in enumerate(words):
            more = word + ("}," if place == len(words) - 1 else ", ")
            if len(line) + len(more) > _LINE_CHARACTERS:
                lines.append(line.rstrip())
                line = " "
            line += more
        lines.append(line.rstrip())
    return tuple(lines)


def literal(value: float, dtype: DType) -> str:
    """The shortest C++ literal that reads back as the same number of this type."""
    return str(dtype.numpy.type(value)) + ("f" if dtype == F32 else "")


def boundary_words(spec: GridSpec) -> tuple[str, ...]:
    """Each axis's boundary; where its ends differ, both with a line between: `mirror_wrap`."""
    return tuple(one if isinstance(one, str) else "_".join(one) for one in spec.boundaries)


def grid_inputs(spec: GridSpec) -> Mapping[str, object]:
    """What templates may read of any cells on a grid."""
    return {
        "element": spec.dtype.cuda,
        "number": spec.accumulator.cuda,
        "fma": "fma" if spec.accumulator == F64 else "fmaf",
        "zero": literal(0.0, spec.accumulator),
        "cval": literal(spec.cval, spec.accumulator),
        "axes": len(spec.boundaries),
        "boundaries": boundary_words(spec),
        "copy_threads": COPY_THREADS,
    }


class StencilAlgorithm(Algorithm[StencilSpec, C]):
    """Computes time steps of a stencil."""

    by_images: ClassVar[bool] = False  # whether its kernel computes one image of a batch
    reassociates: ClassVar[bool] = False  # whether it can add terms in another order than the weights'

    @override
    def illegal_spec(self, spec: StencilSpec) -> str | None:
        if super().illegal_spec(spec) is None and spec.reassociate and not self.reassociates:
            return "it adds terms in the order of the weights, and the spec asks for reassociated ones"
        return super().illegal_spec(spec)

    @override
    def spec_inputs(self, spec: StencilSpec) -> Mapping[str, object]:
        images = self.by_images and are_images(spec)
        spec = image_of(spec) if images else spec
        reach = reach_of(spec)
        boundaries = boundary_words(spec)
        return {
            **grid_inputs(spec),
            "planes_outside": boundaries[-3] if len(spec.axes) > 2 else "",
            "rows_outside": boundaries[-2] if len(spec.axes) > 1 else "",
            "cols_outside": boundaries[-1],
            "frozen": any("frozen" in ends for ends in spec.ends),
            "reach": reach,
            "rim": rim_of(spec),
            "lines": window_lines(spec, reach),
            "terms": row_tables(spec, reach),
            "images": images,
            "copy_axes": len(spec.axes) + images,
        }


def beyond_axes(spec: StencilSpec, *axes: int) -> str | None:
    """Why an algorithm for so many axes cannot compute a spec; None if it can."""
    if len(spec.axes) in axes:
        return None
    known = " or ".join(map(str, axes)) + (" axis" if axes == (1,) else " axes")
    return f"it is written for {known}, and the spec has {len(spec.axes)}"


def ends_differ(spec: StencilSpec) -> str | None:
    """Why an algorithm whose axes have the same boundary at both ends cannot compute a spec; None if it can."""
    for axis, (before, after) in zip(spec.axes, spec.ends, strict=True):
        if before != after:
            return (
                f"both ends of an axis must have the same boundary; {axis} have {before} before and {after} past them"
            )
    return None


def cells_of_vector(spec: StencilSpec) -> int:
    """Cells of a vector of 16 bytes."""
    return VECTOR_BYTES // spec.dtype.size


def numbers(spec: StencilSpec, in_pitch: Expr, dtype: DType = I64) -> tuple[tuple[DType, Expr], ...]:
    """The extents and pitches that every kernel takes after its arrays."""
    names = [size(axis) for axis in spec.axes]
    if len(spec.axes) > 1:
        names += [in_pitch, size("out_pitch")]
    return tuple((dtype, name) for name in names)


def single_steps(
    spec: StencilSpec,
    tiles: Tiles,
    block: tuple[int, int, int],
    where: Coefficients = Coefficients.LITERAL,
    *,
    by_images: bool = True,
    index: DType = I64,
) -> Plan:
    """The plan whose launches compute a time step each, with a block for each tile, of each image where these are."""
    in_array = where in (Coefficients.READ_ONLY, Coefficients.GLOBAL)
    counts = (tiles.across,) if len(spec.axes) > 1 else ()
    grid = blocks_of_images(spec, tiles.count) if by_images else (tiles.count, ONE, ONE)

    def sweep(source: str, target: str, in_pitch: Expr) -> Launch:
        return Launch(
            grid=grid,
            block=block,
            arguments=(
                source,
                target,
                *((WEIGHTS,) if in_array else ()),
                *numbers(spec, in_pitch, index),
                *((U32, count) for count in counts),
            ),
            across=tiles.across,
        )

    plan = stepping(spec, sweep)
    if not in_array:
        return plan
    threads = min(-(-len(spec.weights) // WARP) * WARP, MAX_THREADS_PER_BLOCK)
    fill = Launch((ONE, ONE, ONE), (threads, 1, 1), (WEIGHTS,), entry="_weights", setup=True)
    weights = Scratch(WEIGHTS, constant(len(spec.weights) * spec.accumulator.size))
    return replace(plan, launches=(fill, *plan.launches), scratch=(*plan.scratch, weights))


@dataclass(frozen=True)
class Short:
    """Launches of fewer time steps than most, so that what is left at the end is no shallow launch.

    Attributes:
        steps: that such a launch computes.
        sweep: makes it.
    """

    steps: int
    sweep: Sweep


def stepping(
    spec: StencilSpec,
    sweep: Sweep,
    *,
    fused: int = 1,
    short: Short | None = None,
    rest: Callable[[str, str, Expr, Expr], Launch] | None = None,
) -> Plan:
    """The plan of a call of `steps` time steps, of which each launch computes `fused`, and the last ones may fewer.

    There are as few launches as possible. A launch of few steps takes as long as memory does, so where there are short
    ones, they take the place of one that would be shallow: 33 steps are 12 + 12 + 9, not 16 + 16 + 1.

    The input is read once; a spare array and the output then change places so that the last launch writes the output.
    A row of the spare array is as long as one of the output, pitch included. A call of no time step copies the cells.

    Args:
        spec: what is computed.
        sweep: makes a launch of `fused` steps.
        fused: time steps of a launch.
        short: launches of fewer.
        rest: makes the last launch, of the time steps that are left; its last argument says how many.
    """
    counts = _counts(fused, 0 if short is None else short.steps)
    full, shorts, last, again = counts.full, counts.shorts, counts.last, size("out_pitch")

    def turns(made: Sweep, times: Expr, first: Expr) -> list[Launch]:
        """So many launches; where `first` is 1, one of them is the first of all."""
        return [
            replace(made("in", "out", size("in_pitch")), times=first * odd, swap=(("in", "out"), ("out", SPARE))),
            replace(made("in", SPARE, size("in_pitch")), times=first * (ONE - odd), swap=(("in", SPARE),)),
            replace(made("in", "out", again), times=times - first, swap=(("in", "out"),)),
        ]

    odd, some = counts.launches % 2, full.at_most(1)
    planned = turns(sweep, full, some)
    if short is not None:
        planned += turns(short.sweep, shorts, shorts.at_most(1) * (ONE - some))
    if rest is not None:
        some = (full + shorts).at_most(1)
        pitch = (size("in_pitch") * (ONE - some) + again * some).called("last_in_pitch")
        planned.append(replace(rest("in", "out", pitch, last), times=last.at_most(1)))
    needed = counts.launches.at_least(1).at_most(2) - 1
    return Plan((*planned, _copy(spec)), (Scratch(SPARE, _bytes(spec) * needed),))


class _Counts(NamedTuple):
    """Launches in all, of `fused` steps and of fewer, and the time steps that are left for the last one."""

    launches: Expr
    full: Expr
    shorts: Expr
    last: Expr


@lru_cache(maxsize=64)
def _counts(fused: int, short: int) -> _Counts:
    """Those of a call whose launches compute so many time steps; `short` is 0 where none of fewer are planned."""
    steps = size(STEPS)
    launches = steps.ceil_div(fused).called("launches") if fused > 1 else steps
    left, shorts = steps, ZERO
    if short:
        missing = launches * fused - steps
        shorts = (missing // (fused - short)).at_most(steps // short).called("short_launches")
        left = (steps - shorts * short).called("other_steps")
    full = (left // fused).called("full_launches") if fused > 1 else steps
    return _Counts(launches, full, shorts, left % fused)


@lru_cache(maxsize=64)
def _bytes(spec: StencilSpec) -> Expr:
    """Bytes of an array that lies as the output does."""
    return _product([*spec.axes[:-1], "out_pitch" if len(spec.axes) > 1 else "cols"]) * spec.dtype.size


def _product(names: Sequence[str]) -> Expr:
    """The product of these sizes."""
    first, *others = (size(name) for name in names)
    return reduce(mul, others, first)


@lru_cache(maxsize=64)
def _copy(spec: StencilSpec) -> Launch:
    """The launch of a call of no time step, and of no other."""
    return Launch(
        grid=(_product(spec.axes).ceil_div(COPY_THREADS), ONE, ONE),
        block=(COPY_THREADS, 1, 1),
        arguments=("in", "out", *numbers(spec, size("in_pitch"))),
        entry="_copy",
        times=ONE - size(STEPS).at_most(1),
    )


def cells_of(spec: StencilSpec, extents: Extents) -> int:
    """Cells of an array."""
    return prod(extents[axis] for axis in spec.axes)


def too_small_for_warps(spec: StencilSpec, extents: Extents) -> str | None:
    """Why an array is too small for warps that have a vector of cells in each lane; None if it is not."""
    cells, lanes = cells_of(spec, extents), WARP * cells_of_vector(spec)
    if cells < LITTLE_CELLS:
        return f"{cells} cells are too few for several per thread: each should have its own thread"
    if len(spec.axes) > 1 and extents["cols"] * _FEW_LANES < lanes:
        return f"rows of {extents['cols']} cells are short: a warp covers {lanes} cells along a row"
    return None
