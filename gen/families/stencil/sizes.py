"""The sizes at which stencils are proven: those of every variant, and those at the edges of one variant's tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gen.families.base import Extents
from gen.families.plans import Tiles
from gen.families.stencil.spec import STEPS, StencilSpec

_ONCE = (1, 2, 1, 1)  # steps for variants whose launches compute one


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


def edge_extents(cells: int, first: int = 0) -> tuple[int, ...]:
    """Extents of which the last tile has 1, 2, all but 1 and all of its cells.

    Args:
        cells: that every tile writes along this axis.
        first: how many more the first tile writes.
    """
    return (first + cells + 1, first + cells + 2, first + 3 * cells - 1, first + 2 * cells)


def edge_problems(
    spec: StencilSpec, cols: Sequence[int], rows: Sequence[int] = (), steps: Sequence[int] = _ONCE
) -> Iterator[Extents]:
    """A problem for each entry of `cols`, with the entries of `rows` and `steps` at the same place.

    All rows begin at multiples of 16 bytes, so that vectors are loaded and stored.
    """
    vector = 16 // spec.dtype.size
    for place, across in enumerate(cols):
        shape = (rows[place], across) if len(spec.axes) > 1 else (across,)
        yield extents_of(spec, shape, steps[place], gap=-across % vector)


def edge_cases_of(spec: StencilSpec, tiles: Tiles) -> Iterator[Extents]:
    """Problems of which the last tiles have 1, 2, all but 1 and all of their columns, and others of their rows."""
    high = tiles.tile_rows
    return edge_problems(spec, edge_extents(tiles.tile_cols), (2 * high, high + 1, high + 2, 2 * high - 1))
