"""Probes: what a pattern of accesses costs, the work itself being next to nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from re import fullmatch
from typing import Any, ClassVar, TypeVar

import numpy as np

from gen.dtypes import B8, B16, B32, B64, B128, DTYPES, F32, F64, I64, DType, read_dtype
from gen.errors import SpecError
from gen.families.base import MAX_GRID_X, Algorithm, Array, Expected, Extents, Launch, Limits, Named, Operand, Plan
from gen.families.config import Config, tunable
from gen.families.dense import DenseFamily
from gen.families.expr import ONE, Expr, constant, size
from gen.paths import templates_root

MOST_OFFSET, MOST_FIELDS = 1024, 16
TILE_EXTENTS = (16, 32)
BITS = (B8, B16, B32, B64, B128)


@dataclass(frozen=True)
class OffsetSpec:
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
        _check("OffsetSpec.shifts", self.shifts, ("read", "write"))
        if type(self.offset) is not int or not 0 <= self.offset <= MOST_OFFSET:
            raise SpecError("OffsetSpec.offset", f"must be a number from 0 to {MOST_OFFSET}", repr(self.offset))
        _check_dtype("OffsetSpec.dtype", self.dtype, (F32, F64))

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
class RecordSpec:
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
        _check("RecordSpec.layout", self.layout, ("aos", "soa"))
        if type(self.fields) is not int or not 2 <= self.fields <= MOST_FIELDS:
            raise SpecError("RecordSpec.fields", f"must be a number from 2 to {MOST_FIELDS}", repr(self.fields))
        _check_dtype("RecordSpec.dtype", self.dtype, (F32, F64))

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
class TileSpec:
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
        _check("TileSpec.layout", self.layout, layouts)
        for name, extent in (("rows", self.rows), ("cols", self.cols)):
            if type(extent) is not int or extent not in TILE_EXTENTS:
                raise SpecError(f"TileSpec.{name}", "must be one of " + ", ".join(map(str, TILE_EXTENTS)), repr(extent))
        _check_dtype("TileSpec.dtype", self.dtype, BITS)

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


def _check_dtype(subject: str, dtype: object, known: tuple[DType, ...]) -> None:
    if dtype not in known:
        rule = "must be one of " + ", ".join(one.name for one in known)
        raise SpecError(subject, rule, getattr(dtype, "name", repr(dtype)))


S = TypeVar("S", bound=ProbeSpec)
C = TypeVar("C", bound=Config)


class Probe(Algorithm[S, C]):
    """What the algorithms share: each takes the specs of one class, one launch, a block for each share of the work."""

    takes: ClassVar[type[Any]]

    def refuses(self, spec: S, config: C) -> str | None:
        """Specs of another class."""
        return None if isinstance(spec, self.takes) else f"it computes no {spec.label}"

    @abstractmethod
    def blocks(self, spec: S, config: C) -> Expr:
        """One for each share."""

    def uncovered(self, spec: S, config: C, extents: Extents, limits: Limits) -> str | None:
        """The grid must hold all blocks."""
        blocks = self.blocks(spec, config).at(extents)
        return f"it takes {blocks} blocks; a grid has at most {MAX_GRID_X}" if blocks > MAX_GRID_X else None


@dataclass(frozen=True, kw_only=True)
class StreamConfig(Config):
    """How `offset` and `records` divide an array between blocks and threads."""

    threads_per_block: int = tunable("tpb", (128, 256, 512, 1024), base=512, help="threads in a block")
    unroll: int = tunable("u", (1, 2, 4, 8), base=1, help="elements or records of each thread, a block apart")


class Stream(Probe[S, StreamConfig]):
    """Threads side by side go through arrays of `n`."""

    config = StreamConfig

    def blocks(self, spec: S, config: StreamConfig) -> Expr:
        """One for each share."""
        return size("n").ceil_div(config.threads_per_block * config.unroll)

    def plan(self, spec: S, config: StreamConfig) -> Plan:
        """One launch."""
        launch = Launch(
            grid=(self.blocks(spec, config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*(operand.name for operand in spec.operands), (I64, size("n"))),
        )
        return Plan((launch,))

    def roundings(self, spec: S, config: StreamConfig, extents: Extents, limits: Limits) -> int:
        """One addition."""
        return 1


class Offset(Stream[OffsetSpec]):
    """Accesses that begin off the boundaries of lines and sectors."""

    name = "offset"
    template = "probe/offset.cu.jinja"
    summary = (
        "Every warp reads and writes elements that follow each other; those it reads, or writes, begin at the offset, "
        "which may lie off the boundaries of cache lines and sectors."
    )
    takes = OffsetSpec

    def inputs(self, spec: OffsetSpec, config: StreamConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "element": spec.dtype.cuda,
            "shifts_read": spec.shifts == "read",
            "offset": spec.offset,
            "threads_per_block": config.threads_per_block,
            "unroll": config.unroll,
        }

    def bytes_in_flight(self, spec: OffsetSpec, config: StreamConfig) -> int:
        """Both elements of every sum: no load need wait for a store, since the arrays do not overlap."""
        return config.unroll * 2 * spec.dtype.size


class Records(Stream[RecordSpec]):
    """Fields that lie next to each other, or in arrays of their own."""

    name = "records"
    template = "probe/records.cu.jinja"
    summary = (
        "Every thread takes its records field by field. Where records follow each other a warp's accesses to one field "
        "lie a record apart; where each field has an array of its own they follow each other."
    )
    takes = RecordSpec

    def inputs(self, spec: RecordSpec, config: StreamConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            "element": spec.dtype.cuda,
            "by_record": spec.layout == "aos",
            "fields": spec.fields,
            "threads_per_block": config.threads_per_block,
            "unroll": config.unroll,
        }

    def bytes_in_flight(self, spec: RecordSpec, config: StreamConfig) -> int:
        """All fields of all records of a thread."""
        return config.unroll * spec.fields * spec.dtype.size


@dataclass(frozen=True, kw_only=True)
class TileConfig(Config):
    """How `tile` holds a tile in shared memory."""

    threads_per_block: int = tunable("tpb", (128, 256, 512, 1024), base=256, help="threads in a block")
    padding: int = tunable("p", (0, 1, 2), base=1, help="unused elements after each row of the tile")
    dynamic: bool = tunable("dyn", (False, True), base=False, off=False, help="its size is given when it is launched")


class Tile(Probe[TileSpec, TileConfig]):
    """Rows and columns of a tile in shared memory."""

    name = "tile"
    template = "probe/tile.cu.jinja"
    summary = (
        "Each block reads a tile from global memory in the order in which it lies, fills shared memory with it along "
        "rows or columns, and writes what it reads back along rows or columns, again in the order of global memory."
    )
    config = TileConfig
    takes = TileSpec

    def refuses(self, spec: TileSpec, config: TileConfig) -> str | None:
        """A thread has as many elements as any other."""
        reason = super().refuses(spec, config)
        if reason is None and (elements := spec.rows * spec.cols) % config.threads_per_block:
            return f"{config.threads_per_block} threads do not share a tile of {elements} elements evenly"
        return reason

    def blocks(self, spec: TileSpec, config: TileConfig) -> Expr:
        """One for each tile."""
        return size("tiles")

    def inputs(self, spec: TileSpec, config: TileConfig) -> Mapping[str, object]:
        """All that the template reads."""
        height, width = _stored(spec)
        return {
            "element": spec.dtype.cuda,
            "height": height,
            "width": width,
            "sets_rows": spec.sets_rows,
            "reads_rows": spec.reads_rows,
            "threads_per_block": config.threads_per_block,
            "padding": config.padding,
            "dynamic": config.dynamic,
        }

    def plan(self, spec: TileSpec, config: TileConfig) -> Plan:
        """One launch."""
        height, width = _stored(spec)
        needed = height * (width + config.padding) * spec.dtype.size
        launch = Launch(
            grid=(size("tiles"), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("in", "out"),
            shared_bytes=constant(needed if config.dynamic else 0),
        )
        return Plan((launch,))

    def bytes_in_flight(self, spec: TileSpec, config: TileConfig) -> int:
        """A thread's share of the tile, all of which is loaded before the barrier."""
        return spec.rows * spec.cols // config.threads_per_block * spec.dtype.size


def _stored(spec: TileSpec) -> tuple[int, int]:
    """Height and width of a tile in shared memory: what the input has as a row is a row or a column there."""
    return (spec.rows, spec.cols) if spec.sets_rows else (spec.cols, spec.rows)


def _literature() -> Iterator[Named]:
    """The book's probes in its order: offsets, records, shared memory."""
    kernels: list[tuple[str, str, dict[str, object], dict[str, object]]] = []
    for shifts in ("read", "write"):
        for unroll in (1, 4):
            for offset in (0, 11, 128):
                name = f"{shifts}Offset{offset or ''}" + (f"Unroll{unroll}" if unroll > 1 else "")
                spec = OffsetSpec(shifts, offset)
                kernels.append((name, "offset", {"unroll": unroll}, spec.to_json()))
    kernels += [(name, "records", {"unroll": 1}, RecordSpec(name.lower()).to_json()) for name in ("AoS", "SoA")]
    for rows, cols, padding, suffix in ((32, 32, 1, ""), (16, 32, 2, "32x16")):
        plain: dict[str, object] = {"threads_per_block": rows * cols, "padding": 0, "dynamic": False}
        padded = {**plain, "padding": padding}
        for name, layout, config in (
            ("setColReadCol", "set_col_read_col", plain),
            ("setRowReadRow", "set_row_read_row", plain),
            ("setColReadRow", "set_col_read_row", plain),
            ("setRowReadCol", "set_row_read_col", plain),
            ("setRowReadColDyn", "set_row_read_col", {**plain, "dynamic": True}),
            ("setRowReadColPad", "set_row_read_col", padded),
            ("setRowReadColDynPad", "set_row_read_col", {**padded, "dynamic": True}),
        ):
            kernels.append((name + suffix, "tile", config, TileSpec(layout, rows, cols).to_json()))
    for rank, (name, algorithm, config, content) in enumerate(kernels):
        yield Named(name, algorithm, config, content, rank)


class Probes(DenseFamily[ProbeSpec]):
    """The family of probes."""

    name = "probe"
    summary = "what a pattern of accesses costs"
    algorithms: Mapping[str, Algorithm[Any, Any]] = {a.name: a for a in (Offset(), Records(), Tile())}
    named = tuple(_literature())
    catalogue = (
        OffsetSpec("read", 11),
        OffsetSpec("write", 11),
        RecordSpec("aos"),
        RecordSpec("soa"),
        TileSpec("set_row_read_col", 32, 32),
        TileSpec("set_row_read_col", 16, 32),
    )
    templates = templates_root()

    def spell(self, label: str) -> ProbeSpec | None:
        """Every label says all of its spec."""
        words, _, dtype_name = label.rpartition("_")
        dtype = DTYPES.get(dtype_name)
        if dtype is None:
            return None
        if found := fullmatch(r"(read|write)(0|[1-9]\d{0,3})", words):
            return OffsetSpec(found[1], int(found[2]), dtype)
        if found := fullmatch(r"(aos|soa)([1-9]\d?)", words):
            return RecordSpec(found[1], int(found[2]), dtype)
        if found := fullmatch(r"(set_\w+_read_\w+)_([1-9]\d)x([1-9]\d)", words):
            return TileSpec(found[1], int(found[2]), int(found[3]), dtype)
        return None

    def from_json(self, content: Mapping[str, Any]) -> ProbeSpec:
        """The inverse of the specs' `to_json`."""
        probe, layout = content.get("probe"), content.get("layout", "")
        if probe not in ("offset", "records", "tile"):
            raise SpecError("ProbeSpec.probe", "must be one of offset, records, tile", repr(probe))
        dtype = read_dtype(content.get("dtype"), "ProbeSpec.dtype")
        if probe == "offset":
            return OffsetSpec(content.get("shifts", ""), content.get("offset", -1), dtype)
        if probe == "records":
            return RecordSpec(layout, content.get("fields", 0), dtype)
        return TileSpec(layout, content.get("rows", 0), content.get("cols", 0), dtype)

    def oracle(self, spec: ProbeSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """NumPy's: one addition in the operands' own type, or none; every bit must agree."""
        if isinstance(spec, OffsetSpec):
            with np.errstate(invalid="ignore", over="ignore"):
                total = inputs["a"] + inputs["b"]
            return {"out": Expected(np.roll(total, spec.offset if spec.shifts == "write" else -spec.offset))}
        if isinstance(spec, RecordSpec):
            raised = 10 * np.arange(1, spec.fields + 1, dtype=spec.dtype.numpy)
            return {"out": Expected(inputs["in"] + (raised if spec.layout == "aos" else raised[:, np.newaxis]))}
        copied = spec.sets_rows == spec.reads_rows
        return {"out": Expected(inputs["in"] if copied else inputs["in"].swapaxes(1, 2))}

    def representative(self, spec: ProbeSpec, shape_class: str) -> Extents:
        """2^26 elements."""
        if isinstance(spec, TileSpec):
            return {"tiles": 2**26 // (spec.rows * spec.cols)}
        return {"n": 2**26 // spec.fields if isinstance(spec, RecordSpec) else 2**26}

    def cases(self, spec: ProbeSpec) -> Iterator[Extents]:
        """Nothing, one, one off a warp, a block and an offset; few tiles."""
        if isinstance(spec, TileSpec):
            for tiles in (0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 31):
                yield {"tiles": tiles}
            return
        offset = spec.offset if isinstance(spec, OffsetSpec) else 64
        near = {max(offset + more, 0) for more in (-1, 0, 1, 512)}
        for n in sorted({0, 1, 2, 31, 32, 33, 127, 129, 300, 1021, 1024, 4100, *near}):
            yield {"n": n}

    def base(self, spec: ProbeSpec, shape_class: str) -> tuple[str, Config]:
        """Some loads in flight, a column spread over the banks."""
        if isinstance(spec, TileSpec):
            return "tile", TileConfig()
        stream = StreamConfig(threads_per_block=256, unroll=4)
        return ("offset" if isinstance(spec, OffsetSpec) else "records"), stream
