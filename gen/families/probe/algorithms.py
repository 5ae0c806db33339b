"""How probes access memory: off boundaries, field by field, along the rows and columns of a tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from typing_extensions import override

from gen.dtypes import I64
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan
from gen.families.config import Config, choice, tunable
from gen.families.expr import ONE, constant, size
from gen.families.probe.spec import OffsetSpec, RecordSpec, TileSpec

S = TypeVar("S", OffsetSpec, RecordSpec)


@dataclass(frozen=True, kw_only=True)
class StreamConfig(Config):
    """How `offset` and `records` divide an array between blocks and threads."""

    threads_per_block: int = tunable("tpb", (128, 256, 512, 1024), base=512, help="threads per block")
    unroll: int = tunable("u", (1, 2, 4, 8), base=1, help="elements or records per thread, threads_per_block apart")


class Stream(Algorithm[S, StreamConfig]):
    """Threads side by side go through arrays of `n`."""

    config = StreamConfig

    @override
    def plan(self, spec: S, config: StreamConfig) -> Plan:
        launch = Launch(
            grid=(size("n").ceil_div(config.threads_per_block * config.unroll), ONE, ONE),
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
        "Every warp reads and writes consecutive elements. Those that it reads, or writes, begin at the offset, so "
        "that they may not be aligned to cache lines and sectors."
    )
    takes = OffsetSpec

    @override
    def spec_inputs(self, spec: OffsetSpec) -> Mapping[str, object]:
        return {"element": spec.dtype.cuda, "shifts_read": spec.shifts == "read", "offset": spec.offset}

    def bytes_in_flight(self, spec: OffsetSpec, config: StreamConfig) -> int:
        """Both elements of every sum: no load need wait for a store, since the arrays do not overlap."""
        return config.unroll * 2 * spec.dtype.size


class Records(Stream[RecordSpec]):
    """Fields that lie next to each other, or in arrays of their own."""

    name = "records"
    template = "probe/records.cu.jinja"
    summary = (
        "Every thread processes its records field by field. Where the fields of a record are consecutive, a warp's "
        "accesses to one field are a record apart; where each field has an array of its own, they are consecutive."
    )
    takes = RecordSpec

    @override
    def spec_inputs(self, spec: RecordSpec) -> Mapping[str, object]:
        return {"element": spec.dtype.cuda, "by_record": spec.layout == "aos", "fields": spec.fields}

    def bytes_in_flight(self, spec: RecordSpec, config: StreamConfig) -> int:
        """All fields of all records of a thread."""
        return config.unroll * spec.fields * spec.dtype.size


@dataclass(frozen=True, kw_only=True)
class TileConfig(Config):
    """How `tile` holds a tile in shared memory."""

    threads_per_block: int = tunable("tpb", (128, 256, 512, 1024), base=256, help="threads per block")
    padding: int = tunable("p", (0, 1, 2), base=1, help="unused elements after each tile row, against bank conflicts")
    dynamic: bool = choice("dyn", (False, True), help="dynamic shared memory: the launch gives its size")


class Tile(Algorithm[TileSpec, TileConfig]):
    """Rows and columns of a tile in shared memory."""

    name = "tile"
    template = "probe/tile.cu.jinja"
    summary = (
        "Each block reads a tile from global memory in the order in which it lies, fills shared memory with it along "
        "rows or columns, and writes what it reads back along rows or columns, again in the order of global memory."
    )
    config = TileConfig
    takes = TileSpec

    def illegal(self, spec: TileSpec, config: TileConfig) -> str | None:
        """A thread has as many elements as any other."""
        if (elements := spec.rows * spec.cols) % config.threads_per_block:
            return f"{config.threads_per_block} threads do not divide a tile of {elements} elements"
        return None

    @override
    def spec_inputs(self, spec: TileSpec) -> Mapping[str, object]:
        height, width = _stored(spec)
        return {
            "element": spec.dtype.cuda,
            "height": height,
            "width": width,
            "sets_rows": spec.sets_rows,
            "reads_rows": spec.reads_rows,
        }

    @override
    def plan(self, spec: TileSpec, config: TileConfig) -> Plan:
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
