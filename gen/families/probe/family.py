"""The family of probes: what the rest of gen asks about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from re import fullmatch
from typing import Any

import numpy as np
from typing_extensions import override

from gen.dtypes import DTYPES, read_dtype
from gen.errors import SpecError
from gen.families.base import Algorithm, Array, Expected, Extents, Named
from gen.families.config import Config
from gen.families.extents import DenseFamily
from gen.families.probe.algorithms import Offset, Records, StreamConfig, Tile, TileConfig
from gen.families.probe.spec import BITS, NUMBERS, OffsetSpec, ProbeSpec, RecordSpec, TileSpec
from gen.paths import templates_root


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
        yield Named(name, algorithm, config, content, rank, over=_before(name))


def _before(name: str) -> str | None:
    """The kernel beside which a probe shows something; None for the first of its kind."""
    if name.endswith("Unroll4"):
        return name.removesuffix("Unroll4")
    if name[:4] in ("read", "writ"):
        plain = name.rstrip("0123456789")
        return None if name == plain else plain
    layout, size = name.removesuffix("32x16"), name[len(name.removesuffix("32x16")) :]
    before = {
        "SoA": "AoS", "setRowReadRow": "setColReadCol", "setColReadRow": "setRowReadRow",
        "setRowReadCol": "setRowReadRow", "setRowReadColDyn": "setRowReadCol", "setRowReadColPad": "setRowReadCol",
        "setRowReadColDynPad": "setRowReadColPad",
    }.get(layout)  # fmt: skip
    return before + size if before else None


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
    label_help = (
        "read11_f32, soa2_f64 or set_row_read_col_16x32_b32: a pattern and a type, one of "
        f"{', '.join(dtype.name for dtype in NUMBERS)}, or {', '.join(dtype.name for dtype in BITS)} for tiles"
    )

    @override
    def from_label(self, label: str) -> ProbeSpec | None:
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

    @override
    def from_json(self, content: Mapping[str, Any]) -> ProbeSpec:
        probe, layout = content.get("probe"), content.get("layout", "")
        if probe not in ("offset", "records", "tile"):
            raise SpecError("probe.probe", "must be one of offset, records, tile", repr(probe))
        dtype = read_dtype(content.get("dtype"), "probe.dtype")
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

    def oracle_at(
        self, spec: ProbeSpec, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """The elements that get there, and what is added to them."""
        if isinstance(spec, OffsetSpec):
            (place,) = index
            shift = -spec.offset if spec.shifts == "write" else spec.offset
            place = (place + shift) % extents["n"]
            with np.errstate(invalid="ignore", over="ignore"):
                return Expected(inputs["a"][place] + inputs["b"][place])
        if isinstance(spec, RecordSpec):
            field = index[1 if spec.layout == "aos" else 0]
            return Expected(inputs["in"][index] + (10 * (field + 1)).astype(spec.dtype.numpy))
        tile, row, col = index
        return Expected(inputs["in"][(tile, row, col) if spec.sets_rows == spec.reads_rows else (tile, col, row)])

    def representative(self, spec: ProbeSpec, shape_class: str) -> Extents:
        """2^26 elements."""
        if isinstance(spec, TileSpec):
            return {"tiles": 2**26 // (spec.rows * spec.cols)}
        return {"n": 2**26 // spec.fields if isinstance(spec, RecordSpec) else 2**26}

    def cases(self, spec: ProbeSpec) -> Iterator[Extents]:
        """Nothing, one, one off a warp, a block and an offset, two of the largest blocks; few tiles."""
        if isinstance(spec, TileSpec):
            for tiles in (0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 31):
                yield {"tiles": tiles}
            return
        offset = spec.offset if isinstance(spec, OffsetSpec) else 64
        near = {max(offset + more, 0) for more in (-1, 0, 1, 512)}
        for n in sorted({0, 1, 2, 31, 32, 33, 127, 129, 300, 1021, 1024, 4100, 8200, *near}):
            yield {"n": n}

    def base(self, spec: ProbeSpec, shape_class: str) -> tuple[str, Config]:
        """Some loads in flight, a column spread over the banks."""
        if isinstance(spec, TileSpec):
            return "tile", TileConfig()
        stream = StreamConfig(threads_per_block=256, unroll=4)
        return ("offset" if isinstance(spec, OffsetSpec) else "records"), stream
