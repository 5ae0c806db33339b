"""What probes compute: sums that are rolled, records that are raised, tiles that pass through shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gen.dtypes import B8, B16, B32, B64, B128, F32, F64, DType
from gen.errors import SpecError
from gen.families.base import Operand, ShownSpec

MAX_OFFSET, MAX_FIELDS = 1024, 16
TILE_EXTENTS = (16, 32)
NUMBERS = (F32, F64)
BITS = (B8, B16, B32, B64, B128)


@dataclass(frozen=True)
class OffsetSpec(ShownSpec):
    """The sum of two arrays, rolled: warps read, or write, `offset` elements after their own place.

    Attributes:
        shifts: `read`: out[i] = a[i + offset] + b[i + offset]; `write`: out[i + offset] = a[i] + b[i]; around the end.
        offset: in elements.
        dtype: of all three arrays.
    """

    shifts: str = "read"
    offset: int = 0
    dtype: DType = F32

    def __post_init__(self) -> None:
        _check("probe.shifts", self.shifts, ("read", "write"))
        if type(self.offset) is not int or not 0 <= self.offset <= MAX_OFFSET:
            raise SpecError("probe.offset", f"must be a number from 0 to {MAX_OFFSET}", repr(self.offset))
        _check_dtype(self.dtype, NUMBERS)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Two arrays, and their sum."""
        return (
            Operand("a", "in", self.dtype, ("n",)),
            Operand("b", "in", self.dtype, ("n",)),
            Operand("out", "out", self.dtype, ("n",)),
        )

    @property
    def label(self) -> str:
        """For instance `read11_f32`."""
        return f"{self.shifts}{self.offset}_{self.dtype.name}"

    @property
    def summary(self) -> str:
        """What is computed."""
        where = "back" if self.shifts == "read" else "on"
        return f"The sum of two arrays of n {self.dtype.cuda}s, rolled {self.offset} elements {where}."

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {"probe": "offset", "shifts": self.shifts, "offset": self.offset, "dtype": self.dtype.name}


@dataclass(frozen=True)
class RecordSpec(ShownSpec):
    """Records whose fields are raised: f-th by 10 (f + 1).

    Attributes:
        layout: `aos`: an array of records, shape (n, fields); `soa`: an array for each field, shape (fields, n).
        fields: of a record.
        dtype: of a field.
    """

    layout: str = "aos"
    fields: int = 2
    dtype: DType = F32

    def __post_init__(self) -> None:
        _check("probe.layout", self.layout, ("aos", "soa"))
        if type(self.fields) is not int or not 2 <= self.fields <= MAX_FIELDS:
            raise SpecError("probe.fields", f"must be a number from 2 to {MAX_FIELDS}", repr(self.fields))
        _check_dtype(self.dtype, NUMBERS)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The records, and as many out."""
        axes = ("n", self.fields) if self.layout == "aos" else (self.fields, "n")
        return (Operand("in", "in", self.dtype, axes), Operand("out", "out", self.dtype, axes))

    @property
    def label(self) -> str:
        """For instance `aos2_f32`."""
        return f"{self.layout}{self.fields}_{self.dtype.name}"

    @property
    def summary(self) -> str:
        """What is computed."""
        stored = "one after the other" if self.layout == "aos" else "each field in an array of its own"
        return (
            f"Adds 10, 20, ... to the {self.fields} {self.dtype.cuda} fields of n records, which are stored {stored}."
        )

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {"probe": "records", "layout": self.layout, "fields": self.fields, "dtype": self.dtype.name}


@dataclass(frozen=True)
class TileSpec(ShownSpec):
    """Tiles that pass through shared memory, filled along its rows or columns, read along its rows or columns.

    Where both are the same a tile comes out as it was, else transposed.

    Attributes:
        layout: `set_row_read_row`, `set_row_read_col`, `set_col_read_row`, `set_col_read_col`.
        rows: of a tile of the input.
        cols: of a tile of the input.
        dtype: bits of an element.
    """

    layout: str = "set_row_read_row"
    rows: int = 32
    cols: int = 32
    dtype: DType = B32

    def __post_init__(self) -> None:
        layouts = tuple(f"set_{one}_read_{other}" for one in ("row", "col") for other in ("row", "col"))
        _check("probe.layout", self.layout, layouts)
        for name, extent in (("rows", self.rows), ("cols", self.cols)):
            if type(extent) is not int or extent not in TILE_EXTENTS:
                raise SpecError(f"probe.{name}", "must be one of " + ", ".join(map(str, TILE_EXTENTS)), repr(extent))
        _check_dtype(self.dtype, BITS)

    @property
    def sets_rows(self) -> bool:
        """Whether shared memory is filled along its rows."""
        return self.layout.startswith("set_row")

    @property
    def reads_rows(self) -> bool:
        """Whether shared memory is read along its rows."""
        return self.layout.endswith("read_row")

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The tiles, and as many out."""
        transposed = self.sets_rows != self.reads_rows
        out = (self.cols, self.rows) if transposed else (self.rows, self.cols)
        return (
            Operand("in", "in", self.dtype, ("tiles", self.rows, self.cols)),
            Operand("out", "out", self.dtype, ("tiles", *out)),
        )

    @property
    def label(self) -> str:
        """For instance `set_row_read_col_16x32_b32`, rows first."""
        return f"{self.layout}_{self.rows}x{self.cols}_{self.dtype.name}"

    @property
    def summary(self) -> str:
        """What is computed."""
        what = "Copies" if self.sets_rows == self.reads_rows else "Transposes"
        filled, read = ("rows" if along else "columns" for along in (self.sets_rows, self.reads_rows))
        return (
            f"{what} tiles of {self.rows} x {self.cols} elements of {self.dtype.size} bytes through shared memory, "
            f"which is filled along its {filled} and read along its {read}."
        )

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {
            "probe": "tile",
            "layout": self.layout,
            "rows": self.rows,
            "cols": self.cols,
            "dtype": self.dtype.name,
        }


ProbeSpec = OffsetSpec | RecordSpec | TileSpec


def _check(subject: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise SpecError(subject, "must be one of " + ", ".join(known), repr(value))


def _check_dtype(dtype: object, known: tuple[DType, ...]) -> None:
    if dtype not in known:
        rule = "must be one of " + ", ".join(one.name for one in known)
        raise SpecError("probe.dtype", rule, getattr(dtype, "name", repr(dtype)))
