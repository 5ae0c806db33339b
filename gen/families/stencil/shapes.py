"""The sizes of stencils: shape classes and what stands for each, and the sizes at which variants are proven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gen.families.base import Extents
from gen.families.plans import Tiles
from gen.families.stencil.spec import STEPS, StencilSpec

ONE_STEP, MANY_STEPS = "1 step", "many steps"
TUNED_STEPS = 48  # divisible by every number of steps that a launch fuses; few enough to be queued at once
# By the number of axes:
_REPRESENTATIVE = {1: (1 << 26,), 2: (8192, 8192), 3: (512, 512, 512)}
_PROVABLE = {1: 1 << 20, 2: 1000, 3: 100}  # the largest extents that base is proven at
_PROVABLE_LEAST = {1: 1 << 12, 2: 64, 3: 16}  # many blocks of base all the same
_PROVABLE_STEPS = 20
_PROVABLE_TERMS = 10_000_000  # weights times cells times steps: NumPy takes a fifth of a second
_ONCE = (1, 2, 1, 1)  # steps for variants whose launches compute one
_PLANES = (3, 1, 2, 4)  # of edge cases
_MAX_PLANES = 80  # of an edge case: more take the CPU run long
_FAR = 2**33  # cells from the first row of a plane to the last
_FAR_SHAPES = {2: (68, 256), 3: (3, 15, 136)}  # a few tiles of most algorithms
_FAR_STEPS = 5


def extents_of(spec: StencilSpec, shape: Sequence[int], steps: int, *, gap: int = 0, out_gap: int = 0) -> Extents:
    """Arrays of this shape whose rows begin `gap` elements after the row before has ended, in the output more.

    A single row has none after it, so that planes of one row follow each other.
    """
    sizes = dict(zip(spec.axes, shape, strict=True))
    if len(spec.axes) > 1:
        several = sizes["rows"] > 1
        pitch = sizes["cols"] + several * gap
        sizes |= {"in_pitch": pitch, "out_pitch": pitch + several * out_gap}
    return {**sizes, STEPS: steps}


def shape_class(extents: Extents) -> str:
    """One time step, which moves bytes, or many, which may stay on chip."""
    return ONE_STEP if extents.get(STEPS, 1) <= 1 else MANY_STEPS


def representative(spec: StencilSpec, shape_class: str) -> Extents:
    """The size that stands for a class when it is tuned."""
    return extents_of(spec, _REPRESENTATIVE[len(spec.axes)], 1 if shape_class == ONE_STEP else TUNED_STEPS)


def sizes_for_numpy(spec: StencilSpec, extents: Extents) -> Extents:
    """As much of it as NumPy computes in a fraction of a second, so that tuning need not wait for it."""
    axes = len(spec.axes)
    steps = min(extents.get(STEPS, 1), _PROVABLE_STEPS)
    cells = _PROVABLE_TERMS // (max(len(spec.taps), 1) * max(steps, 1))
    most = min(max(int(cells ** (1 / axes)), _PROVABLE_LEAST[axes]), _PROVABLE[axes])
    shape = [min(extents[axis], most) for axis in spec.axes]
    if steps == extents.get(STEPS, 1) and all(extents[axis] <= most for axis in spec.axes):
        return extents
    return extents_of(spec, shape, steps)


def cases(spec: StencilSpec) -> Iterator[Extents]:
    """Nothing, one, thinner than the radius, one off a block, pitched; no step, one, several."""
    if len(spec.axes) == 1:
        for place, cols in enumerate((0, 1, 2, 3, 5, 31, 33, 256, 257, 1023, 2049)):
            yield extents_of(spec, (cols,), (1, 2, 3, 0)[place % 4])
        for cols, steps in ((255, 3), (1282, 67), (256, 6), (5003, 11)):  # segments of a warp, and several launches
            yield extents_of(spec, (cols,), steps)
        return
    if len(spec.axes) == 3:
        yield from _cases_of_planes(spec)
        return
    shapes = (
        (0, 0), (0, 4), (4, 0), (1, 1), (1, 2), (2, 1), (3, 3), (1, 131), (131, 1), (7, 31), (8, 32), (9, 33),
        (17, 127), (33, 65),
    )  # fmt: skip
    for place, shape in enumerate(shapes):
        yield extents_of(spec, shape, (1, 2, 5, 3, 1, 0, 17)[place % 7])
    yield {"rows": 19, "cols": 37, "in_pitch": 40, "out_pitch": 41, STEPS: 2}
    yield {"rows": 39, "cols": 260, "in_pitch": 264, "out_pitch": 268, STEPS: 7}


def _cases_of_planes(spec: StencilSpec) -> Iterator[Extents]:
    shapes = (
        (0, 0, 0), (0, 3, 4), (3, 0, 4), (4, 3, 0), (1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (3, 3, 3), (17, 1, 33),
        (1, 9, 65), (2, 17, 31), (9, 8, 32), (5, 33, 7), (8, 7, 130),
    )  # fmt: skip
    for place, shape in enumerate(shapes):
        yield extents_of(spec, shape, (1, 2, 5, 3, 1, 0, 4)[place % 7])
    yield {"planes": 5, "rows": 11, "cols": 37, "in_pitch": 40, "out_pitch": 41, STEPS: 2}
    yield {"planes": 6, "rows": 9, "cols": 132, "in_pitch": 136, "out_pitch": 140, STEPS: 3}


def far_cases(spec: StencilSpec) -> Iterator[Extents]:
    """Rows that lie far apart, the last beyond cell 2^33, of whole vectors and of none; steps that launches fuse."""
    if shape := _FAR_SHAPES.get(len(spec.axes)):
        gap = _FAR // (shape[-2] - 1) // 16 * 16
        for more in (16, 17):
            yield extents_of(spec, shape, _FAR_STEPS, gap=gap + more)


def edge_extents(cells: int, first: int = 0) -> tuple[int, ...]:
    """Extents of which the last tile has 1, 2, all but 1 and all of its cells.

    Args:
        cells: that every tile writes along this axis.
        first: how many more the first tile writes.
    """
    return (first + cells + 1, first + cells + 2, first + 3 * cells - 1, first + 2 * cells)


def edge_problems(
    spec: StencilSpec,
    cols: Sequence[int],
    rows: Sequence[int] = (),
    steps: Sequence[int] = _ONCE,
    planes: Sequence[int] = _PLANES,
) -> Iterator[Extents]:
    """A problem for each entry of `cols`, with the entries of `rows`, `steps` and `planes` at the same place.

    All rows begin at multiples of 16 bytes, so that vectors are loaded and stored; those of every other output lie
    further apart than those of its input.
    """
    vector = 16 // spec.dtype.size
    for place, across in enumerate(cols):
        shape = (planes[place], *((rows[place],) if rows else ()), across)[-len(spec.axes) :]
        yield extents_of(spec, shape, steps[place], gap=-across % vector, out_gap=place % 2 * vector)


def edge_cases_of(spec: StencilSpec, tiles: Tiles, planes: int = 1, fused: int = 1) -> Iterator[Extents]:
    """Problems of which the last tiles have 1, 2, all but 1 and all of their columns, and others of their rows.

    Where a block computes several planes, the last has one of them; where launches fuse steps, some have fewer, and one
    problem has a single plane.
    """
    high = tiles.tile_rows
    rows = (2 * high, high + 1, high + 2, 2 * high - 1)
    last = (
        _PLANES[0],
        planes + 1 if 1 < planes < _MAX_PLANES else _PLANES[1],
        _PLANES[2],
        1 if fused > 1 else _PLANES[3],
    )
    steps = (fused, fused, fused - 1, fused + 1) if fused > 1 else _ONCE
    return edge_problems(spec, edge_extents(tiles.tile_cols), rows, steps, last)
