"""What the literature measures beside transposes, and all its kernels in the order of a ladder.

It measures copies, and tiles that are only turned or only moved: a `MoveSpec` says which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from re import fullmatch
from typing import Any

from gen.dtypes import B32, DTYPES, DType, read_dtype
from gen.errors import SpecError
from gen.families.base import Extents, Named, Operand, ShownSpec
from gen.families.expr import ONE, Expr, size
from gen.families.transpose.spec import TransposeSpec
from gen.families.transpose.values import BITS

COPY, TURN, FINE, COARSE = "copy", "turn", "fine", "coarse"
TILE_EXTENTS = (16, 32, 64)
NREPS = "nreps"
_SHAPES = (
    (0, 0), (0, 5), (5, 0), (1, 1), (1, 37), (37, 1), (2, 3), (16, 16), (31, 33), (32, 32), (50, 50), (64, 96),
    (96, 64), (63, 130), (3, 521), (33, 65),
)  # fmt: skip
_TILE_COUNTS = ((0, 0), (1, 1), (1, 2), (2, 1), (2, 3), (3, 2), (1, 5), (0, 2))  # down and across
_DIAGNOSTIC_TILE = 32  # rows and columns of the diagnostics' tiles
_PARTITION_FLOATS = 64  # 256 bytes, which lie in one partition of memory
_REPETITIONS = 9  # more than one, in a loop


@dataclass(frozen=True)
class MoveSpec(ShownSpec):
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
        tiles = TILE_EXTENTS if self.by_tiles else (0,)
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

    @classmethod
    def from_label(cls, label: str) -> MoveSpec | None:
        """The spec of a label, which says all of it; None for other labels."""
        found = fullmatch(r"(copy|turn|fine|coarse)([1-9]\d)?_(\w+)", label)
        if found is None or found[3] not in DTYPES:
            return None
        return cls(found[1], int(found[2] or 0), DTYPES[found[3]])

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> MoveSpec:
        """The inverse of `to_json`."""
        dtype = read_dtype(content.get("dtype"), "transpose.dtype")
        return cls(content.get("op", ""), content.get("tile", 0), dtype)


MatrixSpec = TransposeSpec | MoveSpec
"""What moves the elements of matrices."""


def repetitions(spec: MatrixSpec) -> Expr:
    """How often all is moved."""
    return size(NREPS).at_least(1) if isinstance(spec, MoveSpec) else ONE


def cases(spec: MoveSpec) -> Iterator[Extents]:
    """Nothing, one, one off a tile, non-square, skinny; of tiles whole ones; pitched; once and more often."""
    shapes = [(spec.tile * r, spec.tile * c) for r, c in _TILE_COUNTS] if spec.by_tiles else _SHAPES
    for number, (rows, cols) in enumerate(shapes):
        yield problem(spec, rows, cols, gap=7 if number % 5 == 4 else 0, nreps=(1, 2, 3, 0)[number % 4])


def representative(spec: MoveSpec) -> Extents:
    """A quarter of a gigabyte, or somewhat less."""
    elements = (1 << 28) // spec.dtype.size
    rows = 1 << (elements.bit_length() // 2)
    return problem(spec, rows, elements // rows)


def problem(spec: MoveSpec, rows: int, cols: int, gap: int = 0, nreps: int = 1) -> Extents:
    """Dense matrices, or ones with a gap after their rows, where they have some that follow others."""
    sizes = {"rows": rows, "cols": cols}
    for operand in spec.operands:
        down, across = (sizes[str(axis)] for axis in operand.axes)
        sizes[operand.pitch] = across + (gap if down > 1 and across else 0)
    return {**sizes, NREPS: nreps}


def literature() -> Iterator[Named]:
    """Every kernel: copies as bounds, straight transposes, tiles, the orders of blocks, repetitions in the kernel."""
    rows = (*_straight(), *_tiles(), *_orders(), *_repeated())
    for rank, (name, algorithm, config, spec, more) in enumerate(rows):
        over, published = _STEPS.get(name, ("", None))
        yield Named(name, algorithm, config, spec, rank, more, over, published)


# Beside which kernel the literature shows what each gains, where that is not the one before, and how much: by the GB/s
# that it prints, of an M2090 in chapter 4, of a K40 in chapter 5.
_STEPS: Mapping[str, tuple[str | None, float | None]] = {
    "copyCol": ("copyRow", 58.76 / 125.67),
    "transposeNaiveRow": ("copyRow", 64.16 / 125.67),
    "transposeNaiveCol": ("transposeNaiveRow", 81.64 / 64.16),
    "transposeUnroll4Row": ("transposeNaiveRow", 44.15 / 64.16),
    "transposeUnroll4Col": ("transposeNaiveCol", 90.20 / 81.64),
    "transposeUnroll8Row": ("transposeUnroll4Row", None),
    "transposeUnroll8Col": ("transposeUnroll4Col", None),
    "transposeDiagonalRow": ("transposeNaiveRow", 73.42 / 64.16),
    "transposeDiagonalCol": ("transposeNaiveCol", 75.92 / 81.64),
    "transposeDiagonalRowUnroll4": ("transposeDiagonalRow", None),
    "transposeDiagonalColUnroll4": ("transposeDiagonalCol", None),
    "copyGmem": (None, None),
    "naiveGmem": ("copyGmem", 68.98 / 177.15),
    "copy": ("copyGmem", None),
    "transposeSmem": ("naiveGmem", 116.82 / 68.98),
    "transposeSmemPad": ("transposeSmem", 121.83 / 116.82),
    "transposeSmemUnrollPad": ("transposeSmemPad", 183.34 / 121.83),
    "transposeSmemUnrollPadDyn": ("transposeSmemUnrollPad", 183.33 / 183.34),
    "transposeSmem32x16": ("transposeSmem", None),
    "transposeSmemUnrollPadDyn16x16": ("transposeSmemUnrollPadDyn", 185.99 / 183.33),
    "transposeFineGrained": ("copySharedMem", None),
    "transposeCoarseGrained": ("transposeSmemPad", None),
    "transposeDiagonal": ("transposeSmemPad", None),
    "cartesian": ("transposeSmemPad", None),
    "swapped": ("cartesian", None),
    "diagonal-square": ("cartesian", None),
    "diagonal-general": ("cartesian", None),
    "output_pitch_padding": ("transposeSmemPad", None),
    "copyNrepsLaunches": ("copy", None),
    "copySharedMemNrepsLaunches": ("copySharedMem", None),
    "transposeSmemNrepsLaunches": ("transposeSmem", None),
    "transposeSmemPadNrepsLaunches": ("transposeSmemPad", None),
}


_Row = tuple[str, str, Mapping[str, object], Mapping[str, object], Mapping[str, int]]
_COPY: Mapping[str, object] = {"op": COPY}


def _straight() -> Iterator[_Row]:
    for end, order in (("Row", "row"), ("Col", "col")):
        yield f"copy{end}", "naive", {"order": order, "block_x": 16, "block_y": 16, "unroll": 1}, _COPY, {}
    for end, order in (("Row", "row"), ("Col", "col")):
        yield f"transposeNaive{end}", "naive", {"order": order, "unroll": 1}, {}, {}
    for unroll in (4, 8):
        for end, order in (("Row", "row"), ("Col", "col")):
            yield f"transposeUnroll{unroll}{end}", "naive", {"order": order, "unroll": unroll}, {}, {}
    diagonal = {"block_order": "diagonal", "block_x": 16, "block_y": 16}
    for unroll in (1, 4):
        for end, order in (("Row", "row"), ("Col", "col")):
            name = f"transposeDiagonal{end}" + ("Unroll4" if unroll > 1 else "")
            yield name, "naive", {**diagonal, "order": order, "unroll": unroll}, {}, {}
    wide = {"order": "row", "block_x": 32, "block_y": 16, "unroll": 1}
    yield "copyGmem", "naive", wide, _COPY, {}
    yield "naiveGmem", "naive", wide, {}, {}


def _tiles() -> Iterator[_Row]:
    plain = {"padding": 0, "unroll": 1}
    yield "copy", "tiled", {**plain, "direct": True}, _COPY, {}
    yield "copySharedMem", "tiled", plain, _COPY, {}
    squares = {"tile_dim": 32}
    halves = {"tile_dim": 32, "tile_rows": 16, "block_rows": 16}
    for shape, end, padding in ((squares, "", 1), (halves, "32x16", 2)):
        yield f"transposeSmem{end}", "tiled", {**shape, **plain}, {}, {}
        yield f"transposeSmemPad{end}", "tiled", {**shape, "padding": padding, "unroll": 1}, {}, {}
        yield f"transposeSmemUnrollPad{end}", "tiled", {**shape, "padding": padding, "unroll": 2}, {}, {}
        both = {**shape, "padding": padding, "unroll": 2, "dynamic": True}
        yield f"transposeSmemUnrollPadDyn{end}", "tiled", both, {}, {}
    little = {"tile_dim": 16, "block_rows": 16, "padding": 2, "unroll": 2, "dynamic": True}
    yield "transposeSmemUnrollPadDyn16x16", "tiled", little, {}, {}
    diagnostics = {"tile_dim": _DIAGNOSTIC_TILE, "padding": 1, "unroll": 1}
    for name, op in (("transposeFineGrained", FINE), ("transposeCoarseGrained", COARSE)):
        yield name, "tiled", diagnostics, {"op": op, "tile": _DIAGNOSTIC_TILE}, {}


def _orders() -> Iterator[_Row]:
    orders = {
        "transposeDiagonal": "diagonal", "cartesian": "row", "swapped": "col", "diagonal-square": "square",
        "diagonal-general": "diagonal",
    }  # fmt: skip
    for name, order in orders.items():
        yield name, "tiled", {"padding": 1, "unroll": 1, "block_order": order}, {}, {}
    yield "output_pitch_padding", "tiled", {"padding": 1, "unroll": 1}, {}, {"out_pitch": _PARTITION_FLOATS}


def _repeated() -> Iterator[_Row]:
    """Each as often in a loop of launches, and in a loop inside the kernel."""
    kernels: tuple[tuple[str, dict[str, object], str], ...] = (
        ("copy", {"padding": 0, "direct": True}, COPY),
        ("copySharedMem", {"padding": 0}, COPY),
        ("transposeSmem", {"padding": 0}, TURN),
        ("transposeSmemPad", {"padding": 1}, TURN),
    )
    for name, config, op in kernels:
        for end, in_kernel in (("NrepsLaunches", False), ("NrepsKernel", True)):
            yield (
                name + end,
                "tiled",
                {**config, "unroll": 1, "in_kernel": in_kernel},
                {"op": op},
                {NREPS: _REPETITIONS},
            )
