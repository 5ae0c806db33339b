"""What the literature measures beside transposes: copies, and tiles that are only turned or only moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gen.dtypes import B32, DType
from gen.errors import SpecError
from gen.families.base import Operand
from gen.families.expr import ONE, Expr, size
from gen.families.transpose.spec import TransposeSpec
from gen.families.transpose.values import BITS

COPY, TURN, FINE, COARSE = "copy", "turn", "fine", "coarse"
TILES = (16, 32, 64)
NREPS = "nreps"


@dataclass(frozen=True)
class MoveSpec:
    """A matrix of rows x cols elements, moved `nreps` times over, of which 0 are one.

    Attributes:
        op: `copy`; `turn`: a transpose; `fine`: every tile is turned where it lies; `coarse`: every tile goes where a
            transpose has it, and is not turned itself.
        tile: rows, and columns, of a tile of `fine` and `coarse`, of which rows and cols are multiples; 0 for others.
        dtype: bits of an element.
    """

    op: str = COPY
    tile: int = 0
    dtype: DType = B32

    def __post_init__(self) -> None:
        if self.op not in (COPY, TURN, FINE, COARSE):
            raise SpecError("transpose.op", f"must be one of {COPY}, {TURN}, {FINE}, {COARSE}", repr(self.op))
        tiles = TILES if self.by_tiles else (0,)
        if type(self.tile) is not int or self.tile not in tiles:
            rule = f"must be {', '.join(map(str, tiles))} where op is {self.op}"
            raise SpecError("transpose.tile", rule, repr(self.tile))
        if self.dtype not in BITS.values():
            rule = "must be " + ", ".join(dtype.name for dtype in BITS.values())
            raise SpecError("transpose.dtype", rule, getattr(self.dtype, "name", repr(self.dtype)))

    @property
    def by_tiles(self) -> bool:
        """Whether the result depends on what a tile is."""
        return self.op in (FINE, COARSE)

    @property
    def transposes_tiles(self) -> bool:
        """Whether elements of a tile change rows for columns."""
        return self.op in (TURN, FINE)

    @property
    def swaps_axes(self) -> bool:
        """Whether the result is cols x rows."""
        return self.op in (TURN, COARSE)

    @property
    def batches(self) -> int:
        """Other axes than those of the matrix: none."""
        return 0

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The matrix, and the result; rows of both may be pitched."""
        out = ("cols", "rows") if self.swaps_axes else ("rows", "cols")
        return (
            Operand("in", "in", self.dtype, ("rows", "cols"), pitch="in_pitch"),
            Operand("out", "out", self.dtype, out, pitch="out_pitch"),
        )

    @property
    def label(self) -> str:
        """For instance `copy_b32`, `fine32_b32`."""
        return f"{self.op}{self.tile or ''}_{self.dtype.name}"

    @property
    def summary(self) -> str:
        """What is computed."""
        elements = f"elements of {self.dtype.size} byte{'s' if self.dtype.size > 1 else ''}"
        tiles = f"tiles of {self.tile} x {self.tile} {elements} of a matrix of rows x cols"
        what = {
            COPY: f"Copies a matrix of rows x cols {elements}",
            TURN: f"Transposes a matrix of rows x cols {elements}",
            FINE: f"Transposes the {tiles}, each where it lies",
            COARSE: f"Moves the {tiles} to where a transpose has them, each as it is",
        }
        return f"{what[self.op]}, nreps times over; pitches count elements from row to row."

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {"op": self.op, "tile": self.tile, "dtype": self.dtype.name}


MatrixSpec = TransposeSpec | MoveSpec
"""What moves the elements of matrices."""


def repetitions(spec: MatrixSpec) -> Expr:
    """How often all is moved."""
    return size(NREPS).at_least(1) if isinstance(spec, MoveSpec) else ONE
