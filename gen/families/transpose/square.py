"""Square matrices in place: their sizes, classes, and what they get untuned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isqrt, prod

from gen.families.base import Extents, Layout
from gen.families.transpose.spec import TransposeSpec

MATRICES = "matrices"
"""How many there are, one behind the other."""

_LITTLE = 4 << 20  # bytes
_VECTOR = 16  # bytes
_ROWS = (0, 1, 2, 5, 16, 31, 32, 33, 63, 64, 65, 96, 128, 130, 200)


def counted(layout: Layout) -> Mapping[str, int]:
    """How many matrices an array holds."""
    return {MATRICES: prod(layout.shape[:-2])}


def is_aligned(spec: TransposeSpec, extents: Extents) -> bool:
    """Whether rows begin at whole vectors."""
    return extents["pitch"] * spec.dtype.size % _VECTOR == 0


def is_little(spec: TransposeSpec, extents: Extents) -> bool:
    """Whether the matrices fill no large device."""
    return extents["rows"] ** 2 * extents[MATRICES] * spec.dtype.size < _LITTLE


def examples(spec: TransposeSpec) -> Iterator[Mapping[str, int]]:
    """Sizes that stand for every class: a quarter of a gigabyte, and half a megabyte."""
    for total in (1 << 28, 1 << 19):
        side = isqrt(total // spec.dtype.size) // 64 * 64
        for rows in (side, side - 1):  # of elements of 16 bytes all rows are aligned
            yield {**_ones(spec), "rows": rows, "pitch": rows}


def cases(spec: TransposeSpec) -> Iterator[Mapping[str, int]]:
    """Nothing, one, one off a tile, pitched; one matrix and several."""
    for place, rows in enumerate(_ROWS):
        others = {name: (2, 3, 1)[(place + axis) % 3] for axis, name in enumerate(_ones(spec))}
        for gap in (0, 7, 16) if rows in (64, 65) else (0,):
            yield {**others, "rows": rows, "pitch": rows + gap}


def _ones(spec: TransposeSpec) -> dict[str, int]:
    return {str(axis): 1 for axis in spec.operands[0].axes[:-2]}
