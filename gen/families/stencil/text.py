"""What every stencil template reads: weights as C++, element types, boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from gen.dtypes import F16, F32, F64, DType
from gen.families.stencil.plans import COPY_THREADS
from gen.families.stencil.spec import StencilSpec

_LINE = 88  # characters of a line of weights


class Coefficients(Enum):
    """Where a kernel finds its weights."""

    LITERAL = "literal"  # in the instructions
    CONSTANT = "const"  # in constant memory
    READ_ONLY = "ldg"  # in an array, through the read-only cache
    GLOBAL = "gmem"  # in an array


@dataclass(frozen=True)
class Line:
    """A piece of text that a template prints as it is."""

    text: str


def common(spec: StencilSpec) -> dict[str, object]:
    """What every template of the family may read."""
    two = len(spec.axes) > 1
    rows = spec.boundaries[0] if two else ""
    mapped = [boundary for boundary in dict.fromkeys(spec.boundaries) if boundary not in ("constant", "frozen")]
    return {
        "element": spec.dtype.cuda,
        "number": spec.accumulator.cuda,
        "fma": "fma" if spec.accumulator == F64 else "fmaf",
        "zero": literal(0.0, spec.accumulator),
        "cval": literal(spec.cval, spec.accumulator),
        "axes": len(spec.axes),
        "lines": weight_lines(rows_of(spec), spec.accumulator),
        "high": spec.shape[0] if two else 1,
        "wide": spec.shape[-1],
        "up": spec.before[0] if two else 0,
        "left": spec.before[-1],
        "rows_outside": rows,
        "cols_outside": spec.boundaries[-1],
        "mapped": tuple(Line(boundary) for boundary in mapped),
        "frozen": "frozen" in spec.boundaries,
        "copy_threads": COPY_THREADS,
    }


def rows_of(spec: StencilSpec) -> list[Sequence[float]]:
    """The weights, a row of them each."""
    wide = spec.shape[-1]
    return [spec.weights[first : first + wide] for first in range(0, len(spec.weights), wide)]


def weight_lines(rows: Sequence[Sequence[float]], dtype: DType) -> tuple[Line, ...]:
    """Weights as the lines of a C++ initializer, a row in braces."""
    lines: list[Line] = []
    for row in rows:
        words = [literal(weight, dtype) for weight in row]
        line = "{"
        for place, word in enumerate(words):
            more = word + ("}," if place == len(words) - 1 else ", ")
            if len(line) + len(more) > _LINE:
                lines.append(Line(line.rstrip()))
                line = " "
            line += more
        lines.append(Line(line.rstrip()))
    return tuple(lines)


def literal(value: float, dtype: DType) -> str:
    """The shortest C++ literal that reads back as the same number of this type."""
    return str(dtype.numpy.type(value)) + ("f" if dtype in (F16, F32) else "")


def weight_bytes(spec: StencilSpec) -> int:
    """Of an array of all weights."""
    return len(spec.weights) * spec.accumulator.size
