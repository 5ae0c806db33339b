"""Two blocks of equal extents that one launch permutes in turns, for arrays on several devices.

Blocks of threads come in the order of their numbers, so that two launches run one after the other, and where one of
them stores to another device it waits for the link alone. Here parts of both blocks follow each other: while some
blocks of threads wait for the link, others work in the device's own memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from gen.arch import Limits
from gen.families.base import Extents, Family, Variant
from gen.families.names import variant
from gen.families.transpose.algorithms.common import Axis
from gen.families.transpose.algorithms.vectors import VectorTile, VectorTileConfig
from gen.families.transpose.shapes import Canonical, canonical
from gen.families.transpose.spec import MAX_AXES, TransposeSpec

LEAST_ROW = 128  # bytes of a tile's rows in the result: what a link moves at once


def pair_of(
    family: Family[Any],
    spec: TransposeSpec,
    block: Sequence[tuple[int, int, int]],
    apart: tuple[int, int],
    part_bytes: int,
    alignment: int,
    limits: Limits,
) -> tuple[Variant, Extents] | None:
    """The variant that permutes two blocks in turns, and its extents; None where it is not made for them.

    Args:
        family: of transposes.
        spec: what each block is permuted by.
        block: of each axis of the input the extent, and the strides in both arrays, in elements.
        apart: elements from the first block to the second, in both arrays.
        part_bytes: of the parts of each block that follow each other, about.
        alignment: bytes that divide the addresses of the first block, in both arrays.
        limits: of the device.
    """
    if len(spec.axes) + 2 > MAX_AXES or spec.in_place:
        return None
    # Both blocks are an axis, within an axis of parts; the parts are of columns, whose axis the spec does not name.
    both = TransposeSpec((0, 1, *(axis + 2 for axis in spec.axes)), spec.dtype, spec.values, strided=True)
    algorithm, config = VectorTile(), VectorTileConfig()
    if algorithm.illegal(both, config) is not None:
        return None
    whole = canonical(*zip(*block, strict=True))
    parts = _parts_of(whole, algorithm.tiles(both, config).tile_cols, spec.dtype.size, part_bytes)
    if parts is None or whole.rows * spec.result.size < LEAST_ROW:
        return None
    cols = whole.cols // parts
    axes = (*whole.batch, Axis(parts, cols, cols * whole.out_pitch), Axis(2, *apart))
    found = Canonical(whole.rows, cols, whole.in_pitch, whole.out_pitch, axes).extents(both.batches)
    extents = {**_named(both, block, apart), **found}
    reason = algorithm.unsupported_extents(both, config, extents, limits)
    if reason is None:
        reason = algorithm.slow_path_reason(both, config, extents, alignment, limits)
    return (variant(family, both, algorithm, config), extents) if reason is None else None


def _parts_of(whole: Canonical, tile_cols: int, size: int, part_bytes: int) -> int | None:
    """Into how many parts of equal columns, whole tiles, matrices are cut; None where a part would be a whole block."""
    matrices = prod(axis.extent for axis in whole.batch)
    tiles = whole.cols // tile_cols if whole.cols % tile_cols == 0 else 1
    most = min(max(whole.rows * whole.cols * size // part_bytes, 1), tiles)
    parts = next(parts for parts in range(most, 0, -1) if tiles % parts == 0)
    return parts if parts * matrices > 1 else None


def _named(spec: TransposeSpec, block: Sequence[tuple[int, int, int]], apart: tuple[int, int]) -> dict[str, int]:
    """The extents of all axes, and the steps along all but the last of each array; there is one part."""
    axes = ((1, 1, 1), (2, *apart), *block)
    found = {str(name): extent for name, (extent, _, _) in zip(spec.operands[0].axes, axes, strict=True)}
    found |= {f"in_step{axis}": step for axis, (_, step, _) in enumerate(axes[:-1])}
    return found | {f"out_step{place}": axes[axis][2] for place, axis in enumerate(spec.axes[:-1])}
