"""Stencils: each cell from its neighbours."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from numbers import Real
from typing import Any, Literal

import numpy as np

from gen.dtypes import F32, I64, U32, DType, LoadModifier, read_dtype
from gen.errors import SpecError
from gen.families.base import (
    Algorithm,
    Array,
    Expected,
    Extents,
    Launch,
    Limits,
    Operand,
    Plan,
)
from gen.families.config import Config, tunable
from gen.families.dense import DenseFamily
from gen.families.exact import sums_are_exact
from gen.families.expr import ONE, size
from gen.families.tiles import Tiles
from gen.paths import templates_root

Boundary = Literal["constant", "nearest", "reflect", "mirror", "wrap", "frozen"]

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,23}")


@dataclass(frozen=True)
class StencilSpec:
    """A correlation: each cell is the weighted sum of its neighbours, as `scipy.ndimage.correlate` has it.

    Attributes:
        word: what the reader calls it; stands in the label.
        shape: extents of the weights, odd; (3, 3).
        weights: in row-major order, as the kernel's type rounds them; a weight of 0 reads nothing.
        dtype: of cells, weights and arithmetic.
        boundary: what lies outside: `constant`, the value `cval`.
    """

    word: str
    weights: tuple[float, ...]
    shape: tuple[int, ...] = (3, 3)
    dtype: DType = F32
    boundary: Boundary = "constant"
    cval: float = 0.0

    def __post_init__(self) -> None:
        word: object = self.word  # JSON may hold anything
        if not isinstance(word, str) or not _WORD.fullmatch(word):
            raise SpecError("StencilSpec.word", "must be a letter and up to 23 letters and digits", repr(self.word))
        if self.dtype != F32:
            raise SpecError("StencilSpec.dtype", "must be f32", getattr(self.dtype, "name", repr(self.dtype)))
        if self.boundary != "constant" or self.cval != 0.0:
            raise SpecError("StencilSpec.boundary", "must be 'constant' with cval 0", (self.boundary, self.cval))
        if self.shape != (3, 3) or len(self.weights) != 9:
            given = f"{len(self.weights)} weights of shape {self.shape}"
            raise SpecError("StencilSpec.weights", "must be 3 x 3", given)
        rounded = tuple(_rounded(weight, self.dtype) for weight in self.weights)
        if not np.all(np.isfinite(rounded)):
            raise SpecError("StencilSpec.weights", f"must be numbers, finite as {self.dtype.name}", self.weights)
        # Specs that are equal have one JSON, and so one label.
        object.__setattr__(self, "weights", rounded)
        object.__setattr__(self, "shape", tuple(int(extent) for extent in self.shape))
        object.__setattr__(self, "cval", 0.0)
        if any(self.weights[corner] != 0 for corner in (0, 2, 6, 8)):
            raise SpecError("StencilSpec.weights", "must be a star: 0 in the corners", self.weights)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The cells before and after; rows of both may be pitched."""
        return (
            Operand("in", "in", self.dtype, ("rows", "cols"), pitch="in_pitch"),
            Operand("out", "out", self.dtype, ("rows", "cols"), pitch="out_pitch"),
        )

    @property
    def taps(self) -> tuple[tuple[tuple[int, ...], float], ...]:
        """Offset and weight of every neighbour that is read, in row-major order."""
        centre = tuple(extent // 2 for extent in self.shape)
        offsets = (
            tuple(place - middle for place, middle in zip(index, centre, strict=True))
            for index in product(*(range(extent) for extent in self.shape))
        )
        return tuple((offset, weight) for offset, weight in zip(offsets, self.weights, strict=True) if weight != 0)

    @property
    def label(self) -> str:
        """For instance `heat_3fa94c01_f32`: no name can hold the weights."""
        content = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return f"{self.word}_{hashlib.sha256(content.encode()).hexdigest()[:8]}_{self.dtype.name}"

    @property
    def summary(self) -> str:
        """What is computed."""
        return (
            f"Each cell of rows x cols becomes the weighted sum of {len(self.taps)} cells around it; outside lies "
            f"{self.cval:g}. Pitches count cells from row to row."
        )

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {
            "word": self.word,
            "shape": list(self.shape),
            "weights": list(self.weights),
            "dtype": self.dtype.name,
            "boundary": self.boundary,
            "cval": self.cval,
        }


@dataclass(frozen=True)
class Tap:
    """One neighbour as the template prints it: C++ for its weight, its row and its column."""

    weight: str
    row: str
    col: str


@dataclass(frozen=True, kw_only=True)
class NaiveConfig(Config):
    """How `naive` lays threads over the cells."""

    block_x: int = tunable("x", (32, 64, 128), base=32, help="threads of a block along a row")
    block_y: int = tunable("y", (2, 4, 8), base=8, help="threads of a block down the rows")
    unroll: int = tunable("u", (1, 2, 4), base=1, help="rows of cells each thread computes")
    load_modifier: LoadModifier = tunable(
        "ld",
        (LoadModifier.DEFAULT, LoadModifier.CG),
        base=LoadModifier.DEFAULT,
        off=LoadModifier.DEFAULT,
        help="cache operator of the loads",
    )


class Naive(Algorithm[StencilSpec, NaiveConfig]):
    """Every cell reads its neighbours from global memory."""

    name = "naive"
    template = "stencil/naive.cu.jinja"
    summary = "Every thread computes cells of one column, a row at a time, straight from global memory."
    config = NaiveConfig

    def uncovered(self, spec: StencilSpec, config: NaiveConfig, extents: Extents, limits: Limits) -> str | None:
        """The tiles must fit in a grid."""
        return self.tiles(config).uncovered(extents)

    def inputs(self, spec: StencilSpec, config: NaiveConfig) -> Mapping[str, object]:
        """All that the template reads."""
        taps = tuple(
            Tap(_literal(weight, spec.dtype), _moved("row", dy), _moved("col", dx)) for (dy, dx), weight in spec.taps
        )
        return {
            "element": spec.dtype.cuda,
            "zero": _literal(0.0, spec.dtype),
            "fma": "fmaf",
            "block_x": config.block_x,
            "block_y": config.block_y,
            "unroll": config.unroll,
            "load": config.load_modifier.intrinsic,
            "taps": taps,
        }

    def tiles(self, config: NaiveConfig) -> Tiles:
        """Cells of a block."""
        return Tiles(size("rows"), size("cols"), config.block_y * config.unroll, config.block_x)

    def plan(self, spec: StencilSpec, config: NaiveConfig) -> Plan:
        """One launch."""
        tiles = self.tiles(config)
        numbers = tuple((I64, size(name)) for name in ("rows", "cols", "in_pitch", "out_pitch"))
        launch = Launch(
            grid=(tiles.count, ONE, ONE),
            block=(config.block_x, config.block_y, 1),
            arguments=("in", "out", *numbers, (U32, tiles.across)),
        )
        return Plan((launch,))

    def roundings(self, spec: StencilSpec, config: NaiveConfig, extents: Extents, limits: Limits) -> int:
        """One fused multiply-add for each tap."""
        return len(spec.taps)

    def bytes_in_flight(self, spec: StencilSpec, config: NaiveConfig) -> int:
        """One cell: a thread finishes it before it begins the next, and its neighbours are other threads' cells."""
        return spec.dtype.size


def _rounded(number: object, dtype: DType) -> float:
    """The number as its type holds it, and 0 for -0; NaN for what is no number."""
    if isinstance(number, bool) or not isinstance(number, Real):
        return float("nan")
    try:
        with np.errstate(over="ignore"):
            return float(dtype.numpy.type(float(number))) + 0.0
    except OverflowError:  # an integer that no float holds
        return float("inf")


def _literal(value: float, dtype: DType) -> str:
    """The shortest C++ literal that reads back as the same number of this type."""
    return str(dtype.numpy.type(value)) + ("f" if dtype == F32 else "")


def _moved(name: str, offset: int) -> str:
    return name if offset == 0 else f"{name} {'+' if offset > 0 else '-'} {abs(offset)}"


class Stencil(DenseFamily[StencilSpec]):
    """The family of stencils."""

    name = "stencil"
    summary = "each cell from its neighbours"
    algorithms: Mapping[str, Algorithm[StencilSpec, Any]] = {a.name: a for a in (Naive(),)}
    # An explicit step of the heat equation, at half the largest stable time step.
    catalogue = (StencilSpec("heat", (0, 0.125, 0, 0.125, 0.5, 0.125, 0, 0.125, 0)),)
    templates = templates_root()

    def from_json(self, content: Mapping[str, Any]) -> StencilSpec:
        """The inverse of `StencilSpec.to_json`."""
        weights, shape = content.get("weights"), content.get("shape")
        return StencilSpec(
            word=content.get("word", ""),
            weights=tuple(weights) if isinstance(weights, list | tuple) else (),
            shape=tuple(shape) if isinstance(shape, list | tuple) else (),
            dtype=read_dtype(content.get("dtype"), "StencilSpec.dtype"),
            boundary=content.get("boundary", "constant"),
            cval=content.get("cval", 0.0),
        )

    def oracle(self, spec: StencilSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """The correlation in float64 over an array padded with `cval`."""
        cells = inputs["in"].astype(np.float64)
        margin = [(extent // 2, extent // 2) for extent in spec.shape]
        padded = np.pad(cells, margin, constant_values=spec.cval)
        value, magnitude = np.zeros(cells.shape), np.zeros(cells.shape)
        with np.errstate(invalid="ignore"):
            for offset, weight in spec.taps:
                window = tuple(
                    slice(m + d, m + d + n) for (m, _), d, n in zip(margin, offset, cells.shape, strict=True)
                )
                value += weight * padded[window]
                magnitude += abs(weight) * np.where(np.isfinite(padded[window]), np.abs(padded[window]), 0.0)
        largest = float(magnitude.max(initial=0.0))
        if sums_are_exact(spec.dtype, largest, cells, np.asarray(spec.weights)):
            return {"out": Expected(value.astype(spec.dtype.numpy))}
        return {"out": Expected(value, magnitude, spec.dtype)}

    def representative(self, spec: StencilSpec, shape_class: str) -> Extents:
        """The size that stands for a class when it is tuned."""
        return {"rows": 8192, "cols": 8192, "in_pitch": 8192, "out_pitch": 8192}

    def cases(self, spec: StencilSpec) -> Iterator[Extents]:
        """Nothing, one, thinner than the radius, one off a block, pitched."""
        shapes = (
            (0, 0), (0, 4), (4, 0), (1, 1), (1, 2), (2, 1), (3, 3), (1, 131), (131, 1), (7, 31), (8, 32), (9, 33),
            (17, 127), (33, 65),
        )  # fmt: skip
        for rows, cols in shapes:
            yield {"rows": rows, "cols": cols, "in_pitch": cols, "out_pitch": cols}
        yield {"rows": 19, "cols": 37, "in_pitch": 40, "out_pitch": 41}

    def base(self, spec: StencilSpec, shape_class: str) -> tuple[str, Config]:
        """`naive`: whole warps along the rows, eight rows a block share their neighbours in the cache."""
        return "naive", NaiveConfig()
