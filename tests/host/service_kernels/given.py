"""The file of the kernels that the measuring side runs, as one plan on the CPU run; calls of each by its name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from gen.dtypes import B32, F32, F64, I32, I64, U8, U32, U64, DType
from gen.families.base import Array, Launch, Operand, Plan
from gen.families.expr import ONE, Expr, size
from gen.gpu.service import ElementRows, kind_of
from gen.proof.host import HostKernel
from tests.fake_family import called_variant

SOURCE = (files("gen.gpu") / "kernels.cu").read_text(encoding="utf-8")
THREADS = 256
NOT_FOUND = 2**64 - 1
WORDS = ("n",)
OPERANDS = (
    Operand("source", "in", U32, WORDS),
    Operand("other", "in", U32, WORDS),
    Operand("to", "out", U32, WORDS),
    Operand("sink", "inout", U32, WORDS),
    Operand("count", "inout", U64, WORDS),
    Operand("first", "inout", U64, WORDS),
    Operand("open", "in", I32, WORDS),
    Operand("bytes", "in", U8, WORDS),
    Operand("kept", "in", U8, WORDS),
    Operand("expected", "in", F64, WORDS),
    Operand("magnitude", "in", F64, WORDS),
    Operand("seed", "number", U32),
    Operand("relative", "number", F64),
    Operand("unit", "number", F64),
    Operand("absolute", "number", F64),
    Operand("largest", "number", F64),
)
LONG = (I64, size("n"))
ROWS = ((I64, size("row")), (I64, size("pitch")))
ARGUMENTS: Mapping[str, tuple[str | tuple[DType, Expr], ...]] = {
    "empty": (),
    "gate": ("open", LONG),
    "fill": ("to", "seed", LONG),
    "copy": ("source", "to", LONG),
    "read": ("source", "sink", LONG),
    "claim": ("source", "sink", LONG),
    "release": ("source", LONG),
    "random": ("to", "seed", (I32, size("kind")), LONG),
    "checksum": ("source", "count", LONG),
    "compare_words": ("source", "other", "count", "first", LONG),
    "compare_elements": ("bytes", "kept", (I32, size("size")), *ROWS, "count", "first", LONG),
    "compare_gaps": ("bytes", "seed", *ROWS, "count", "first", LONG),
    "compare_bound": (
        "bytes",
        (I32, size("kind")),
        (I32, size("size")),
        *ROWS,
        "expected",
        "magnitude",
        "relative",
        "unit",
        "absolute",
        "largest",
        "count",
        "first",
        LONG,
    ),
}
PLAN = Plan(
    tuple(
        Launch((size("blocks"), ONE, ONE), (THREADS, 1, 1), arguments, f"_{entry}", times=size(entry))
        for entry, arguments in ARGUMENTS.items()
    )
)
GEN = called_variant("gen", OPERANDS, PLAN)
NO_ROWS = ElementRows(0, 0, 1, 0)

SIZES = (0, 1, 255, 256, 257, 1000, 4999)
each_size = pytest.mark.parametrize("n", SIZES)
each_grid = pytest.mark.parametrize("blocks", [1, 3])


class Service:
    """Runs one of the kernels on arrays and numbers by operand name; what a kernel does not take is empty."""

    def __init__(self, kernels: Mapping[int, HostKernel]) -> None:
        self._kernels = kernels

    def __call__(
        self, entry: str, n: int, *, blocks: int = 3, dtype: DType = B32, rows: ElementRows = NO_ROWS, order: int = 0,
        **given: Any,
    ) -> None:  # fmt: skip
        row = rows.elements * rows.size if entry == "compare_gaps" else rows.elements
        extents = {
            **dict.fromkeys(ARGUMENTS, 0), entry: 1, "n": n, "blocks": blocks, "kind": kind_of(dtype),
            "size": rows.size, "row": row, "pitch": rows.pitch,
        }  # fmt: skip
        nothing = {o.name: np.zeros(0, o.dtype.numpy) if o.axes else 0 for o in OPERANDS}
        self._kernels[order].run(extents, nothing | given)

    def random(self, n: int, seed: int, **options: Any) -> Array:
        to = np.zeros(n, np.uint32)
        self("random", n, to=to, seed=seed, **options)
        return to

    def checksum(self, words: Array, **options: Any) -> int:
        count = np.zeros(1, np.uint64)
        self("checksum", len(words), count=count, source=words, **options)
        return int(count[0])

    def differing(self, one: Array, other: Array, **options: Any) -> tuple[int, int]:
        count, first = np.zeros(1, np.uint64), np.full(1, NOT_FOUND, np.uint64)
        self("compare_words", len(one), source=one, other=other, count=count, first=first, **options)
        return int(count[0]), int(first[0])

    def beyond(
        self, got: Any, expected: Any, magnitude: Any = 1.0, relative: float = 0.0, absolute: float = 0.0, *,
        unit: float = 0.0, largest: float = np.inf, dtype: DType = F32,
    ) -> tuple[int, int]:  # fmt: skip
        got = np.atleast_1d(np.asarray(got).astype(dtype.numpy))
        expected, magnitude = (
            np.ascontiguousarray(np.broadcast_to(np.asarray(x, np.float64), got.shape)) for x in (expected, magnitude)
        )
        count, first = np.zeros(1, np.uint64), np.full(1, NOT_FOUND, np.uint64)
        self(
            "compare_bound", len(got), bytes=got.view(np.uint8), expected=expected, magnitude=magnitude,
            relative=relative, unit=unit, absolute=absolute, largest=largest, count=count, first=first, dtype=dtype,
            rows=ElementRows(1, len(got), dtype.size, got.nbytes),
        )  # fmt: skip
        return int(count[0]), int(first[0])

    def differing_elements(self, one: Array, other: Array, rows: ElementRows) -> tuple[int, int]:
        count, first = np.zeros(1, np.uint64), np.full(1, NOT_FOUND, np.uint64)
        self("compare_elements", rows.total, bytes=one, kept=other, count=count, first=first, rows=rows)
        return int(count[0]), int(first[0])

    def gaps_written(self, memory: Array, rows: ElementRows, poison: int) -> tuple[int, int]:
        count, first = np.zeros(1, np.uint64), np.full(1, NOT_FOUND, np.uint64)
        gaps = (rows.count - 1) * (rows.pitch - rows.elements * rows.size)
        self("compare_gaps", gaps, bytes=memory, seed=poison, count=count, first=first, rows=rows)
        return int(count[0]), int(first[0])


def words(n: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).integers(0, 2**32, n, np.uint32)
