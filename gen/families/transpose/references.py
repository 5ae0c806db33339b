"""Copies and diagnostics of the literature: their sizes, cases and oracles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from re import fullmatch
from typing import Any

from gen.dtypes import DTYPES, read_dtype
from gen.families.base import Array, Expected, Extents, Work
from gen.families.config import Config
from gen.families.dense import DenseFamily
from gen.families.transpose.moves import FINE, NREPS, MoveSpec
from gen.families.transpose.tiled import TiledConfig

_SHAPES = (
    (0, 0), (0, 5), (5, 0), (1, 1), (1, 37), (37, 1), (2, 3), (16, 16), (31, 33), (32, 32), (50, 50), (64, 96),
    (96, 64), (63, 130), (3, 521), (33, 65),
)  # fmt: skip
_TILES = ((0, 0), (1, 1), (1, 2), (2, 1), (2, 3), (3, 2), (1, 5), (0, 2))  # down and across


class Moves(DenseFamily[MoveSpec]):
    """What the family of transposes says of them."""

    def spell(self, label: str) -> MoveSpec | None:
        """Every label says all of its spec."""
        found = fullmatch(r"(copy|turn|fine|coarse)([1-9]\d)?_(\w+)", label)
        if found is None or found[3] not in DTYPES:
            return None
        return MoveSpec(found[1], int(found[2] or 0), DTYPES[found[3]])

    def from_json(self, content: Mapping[str, Any]) -> MoveSpec:
        """The inverse of `MoveSpec.to_json`."""
        dtype = read_dtype(content.get("dtype"), "transpose.dtype")
        return MoveSpec(content.get("op", ""), content.get("tile", 0), dtype)

    def counts(self, spec: MoveSpec) -> Mapping[str, int]:
        """How often the matrix is moved."""
        return {NREPS: 1}

    def oracle(self, spec: MoveSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """NumPy's, bit for bit."""
        return {"out": Expected(_moved(spec, inputs["in"]))}

    def part(
        self, spec: MoveSpec, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """The elements of the input that get there."""
        row, col = index
        if spec.by_tiles:
            row, col = (one - one % spec.tile + other % spec.tile for one, other in ((row, col), (col, row)))
        matrix = inputs["in"].T if spec.swaps_axes else inputs["in"]
        return Expected(matrix[row, col])

    def work(self, spec: MoveSpec, extents: Extents) -> Work:
        """All of it as often as it is asked for: repetitions are there to be timed."""
        once, times = super().work(spec, extents), max(extents.get(NREPS, 1), 1)
        return Work(once.bytes_read * times, once.bytes_written * times, once.cells * times, once.limit)

    def representative(self, spec: MoveSpec, shape_class: str) -> Extents:
        """A quarter of a gigabyte, or somewhat less."""
        elements = (1 << 28) // spec.dtype.size
        rows = 1 << (elements.bit_length() // 2)
        return _problem(spec, rows, elements // rows)

    def cases(self, spec: MoveSpec) -> Iterator[Extents]:
        """Nothing, one, one off a tile, non-square, skinny; of tiles whole ones; pitched; once and more often."""
        shapes = [(spec.tile * r, spec.tile * c) for r, c in _TILES] if spec.by_tiles else _SHAPES
        for place, (rows, cols) in enumerate(shapes):
            yield _problem(spec, rows, cols, gap=7 if place % 5 == 4 else 0, nreps=(1, 2, 3, 0)[place % 4])

    def base(self, spec: MoveSpec, shape_class: str) -> tuple[str, Config]:
        """Staged in shared memory, both sides coalesced."""
        return "tiled", TiledConfig(tile_dim=spec.tile or 32)


def _moved(spec: MoveSpec, matrix: Array) -> Array:
    if not spec.by_tiles:
        return matrix.T if spec.swaps_axes else matrix
    rows, cols = matrix.shape
    tiles = matrix.reshape(rows // spec.tile, spec.tile, cols // spec.tile, spec.tile)
    if spec.op == FINE:
        return tiles.transpose(0, 3, 2, 1).reshape(rows, cols)
    return tiles.transpose(2, 1, 0, 3).reshape(cols, rows)


def _problem(spec: MoveSpec, rows: int, cols: int, gap: int = 0, nreps: int = 1) -> Extents:
    """Dense matrices, or ones with a gap after their rows, where they have some that follow others."""
    sizes = {"rows": rows, "cols": cols}
    for operand in spec.operands:
        down, across = (sizes[str(axis)] for axis in operand.axes)
        sizes[operand.pitch] = across + (gap if down > 1 and across else 0)
    return {**sizes, NREPS: nreps}
