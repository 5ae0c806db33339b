"""The sizes at which stencils are proven: awkward ones for every variant, and those that fit the tiles of one badly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gen.families.base import Extents
from gen.families.plans import Tiles
from gen.families.stencil.spec import STEPS, StencilSpec

_ONCE = (1, 2, 1, 1)  # steps of variants that take one a launch


def extents_of(spec: StencilSpec, shape: Sequence[int], steps: int, *, gap: int = 0) -> Extents:
    """Arrays of this shape whose rows begin `gap` elements after the row before has ended."""
    sizes = dict(zip(spec.axes, shape, strict=True))
    if len(spec.axes) > 1:
        sizes |= {"in_pitch": sizes["cols"] + gap, "out_pitch": sizes["cols"] + gap}
    return {**sizes, STEPS: steps}


def awkward(spec: StencilSpec) -> Iterator[Extents]:
    """Nothing, one, thinner than the radius, one off a block, pitched; no step, one, several."""
    if len(spec.axes) == 1:
        for place, cols in enumerate((0, 1, 2, 3, 5, 31, 33, 256, 257, 1023, 2049)):
            yield extents_of(spec, (cols,), (1, 2, 3, 0)[place % 4])
        for cols, steps in ((255, 3), (1282, 67), (256, 6), (5003, 11)):  # segments of a warp, and several launches
            yield extents_of(spec, (cols,), steps)
        return
    shapes = (
        (0, 0), (0, 4), (4, 0), (1, 1), (1, 2), (2, 1), (3, 3), (1, 131), (131, 1), (7, 31), (8, 32), (9, 33),
        (17, 127), (33, 65),
    )  # fmt: skip
    for place, shape in enumerate(shapes):
        yield extents_of(spec, shape, (1, 2, 5, 3, 1, 0, 17)[place % 7])
    yield {"rows": 19, "cols": 37, "in_pitch": 40, "out_pitch": 41, STEPS: 2}
    yield {"rows": 39, "cols": 260, "in_pitch": 264, "out_pitch": 268, STEPS: 7}


def beside(own: int, first: int = 0) -> tuple[int, ...]:
    """Extents that leave the last warp or tile 1, 2, all but 1 and all of the `own` cells that each of them writes.

    The first warp may write `first` cells more than the others.
    """
    return (first + own + 1, first + own + 2, first + 3 * own - 1, first + 2 * own)


def about(
    spec: StencilSpec, cols: Sequence[int], rows: Sequence[int] = (), steps: Sequence[int] = _ONCE
) -> Iterator[Extents]:
    """A problem of each of these numbers of columns, whose rows all begin at whole vectors of 16 bytes.

    The first number of rows and the first number of steps go with the first number of columns, and so on.
    """
    vector = 16 // spec.dtype.size
    for place, across in enumerate(cols):
        shape = (rows[place], across) if len(spec.axes) > 1 else (across,)
        yield extents_of(spec, shape, steps[place], gap=-across % vector)


def about_tiles(spec: StencilSpec, tiles: Tiles) -> Iterator[Extents]:
    """Sizes that leave the last tiles few of their rows and columns, or all but few."""
    high = tiles.tile_rows
    return about(spec, beside(tiles.tile_cols), (2 * high, high + 1, high + 2, 2 * high - 1))
