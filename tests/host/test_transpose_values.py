"""Elements that change on their way, against exact arithmetic: ends, halves between neighbours, what is no number."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from gen.dtypes import BF16, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType
from gen.emit.render import render
from gen.families.base import Array, Kernel, Layout, Limits, Variant
from gen.families.names import variant
from gen.families.transpose import Transpose, TransposeSpec, oracle
from gen.families.transpose.algorithms.tiled import NaiveConfig
from gen.families.transpose.values import Values
from gen.proof.host import HostRunner

FAMILY = Transpose()
FORMATS = {BF16: (8, -126, 127), F16: (11, -14, 15), F32: (24, -126, 127), F64: (53, -1022, 1023)}
"""Bits of a significand, and the exponents of the least and the largest normal numbers."""
PARTS = {C64: F32, C128: F64}

INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)


@dataclass(frozen=True)
class Row:
    """What becomes of elements; fields are those of `Values`, beside one.

    Attributes:
        rounded_as: the type as whose number the product is rounded first; None: it is exact.
    """

    source: DType
    result: DType
    alpha: float | None = None
    rounded_as: DType | None = None
    conjugate: bool = False
    saturate: bool = False

    @property
    def values(self) -> Values:
        """As kernels have it."""
        return Values(self.source, self.result, self.alpha, self.conjugate, self.saturate)

    @property
    def spec(self) -> TransposeSpec:
        """Of a matrix."""
        return TransposeSpec((1, 0), self.source, self.values)

    @property
    def parts(self) -> tuple[DType, DType]:
        """The numbers that elements are made of, before and after."""
        return PARTS.get(self.source, self.source), PARTS.get(self.result, self.result)


TABLE = (
    # Without alpha: rounded once, cut off, or as they are.
    Row(F64, F16),
    Row(F64, BF16),
    Row(F64, F32),
    Row(F32, F16),
    Row(F32, BF16),
    Row(F16, F64),
    Row(U32, F16),
    Row(I32, BF16),
    Row(U32, F32),
    Row(U16, I64),
    Row(I8, I16),
    Row(I64, F16),
    Row(U64, F32),
    Row(I64, F64),
    Row(I16, U8, saturate=True),
    Row(I64, U8, saturate=True),
    Row(I64, U64, saturate=True),
    Row(I64, I32, saturate=True),
    Row(U64, I64, saturate=True),
    Row(U32, I8, saturate=True),
    Row(F32, I32, saturate=True),
    Row(F64, I16, saturate=True),
    Row(F64, U32, saturate=True),
    Row(I32, U16, saturate=True),
    Row(F16, I64, saturate=True),
    Row(BF16, U64, saturate=True),
    # The product is that of f32 ...
    Row(F16, BF16, 3.0, F32),
    Row(BF16, F16, -0.1, F32),
    Row(U16, F16, 3.0, F32),
    Row(I16, F32, -0.3, F32),
    Row(F32, U8, 3.0, F32, saturate=True),
    # ... or of f64, where integers have 32 bits or the result has 64
    Row(I32, F32, 3.0, F64),
    Row(U32, F32, -0.3, F64),
    Row(F32, I32, 3.0, F64, saturate=True),
    Row(F32, BF16, 3.0, F32),
    Row(U8, I64, 1e17, F64, saturate=True),
    Row(F64, U64, 3.0, F64, saturate=True),
    Row(F32, F64, -0.1, F64),
    # ... or exact.
    Row(I64, F64, -3.0),
    Row(U64, F64, 0.1),
    Row(U64, F64, 3 * 2.0**960),
    Row(I64, F32, 5.0),
    Row(U64, F16, -3 * 2.0**-60),
    Row(I64, BF16, 1.0),
    Row(I64, I64, 3 * 2.0**62, saturate=True),
    Row(U64, I64, 2.0**64, saturate=True),
    Row(I64, U64, 6.0, saturate=True),
    Row(U64, U64, 3.0, saturate=True),
    Row(I64, I32, -0.1, saturate=True),
    Row(U64, I16, -(2.0**-40) / 3, saturate=True),
    # Real and imaginary part.
    Row(C64, C64, conjugate=True),
    Row(C128, C128, conjugate=True),
    Row(C128, C64, conjugate=True),
    Row(C64, C128, 3.0, F64, conjugate=True),
)

Number = Fraction | int | float
"""Floating-point numbers of all formats as f64 holds them; a fraction where that may be too narrow."""


def exponent_of(magnitude: Fraction) -> int:
    """Of its leading bit."""
    power = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return power if magnitude >= Fraction(2) ** power else power - 1


def unit_of(number: Number, dtype: DType) -> Fraction:
    """How far floating-point numbers of this magnitude lie apart."""
    precision, least, _ = FORMATS[dtype]
    magnitude = abs(Fraction(number))
    return Fraction(2) ** (max(exponent_of(magnitude) if magnitude else least, least) - precision + 1)


def nearest(number: Number, dtype: DType) -> float:
    """Rounded to the nearest floating-point number, to the even one of two."""
    if isinstance(number, float) and (not math.isfinite(number) or number == 0):
        return number
    unit = unit_of(number, dtype)
    magnitude = round(abs(Fraction(number)) / unit) * unit
    found = math.inf if magnitude >= 2 ** (FORMATS[dtype][2] + 1) else float(magnitude)
    return -found if number < 0 else found


def cut_off(number: Number, dtype: DType) -> int:
    """As an integer, towards 0: the nearest in range; 0 for what is no number."""
    low, high = ends_of(dtype)
    if isinstance(number, float) and not math.isfinite(number):
        return 0 if math.isnan(number) else high if number > 0 else low
    return min(max(math.trunc(number), low), high)


def converted(number: Number, row: Row) -> Number:
    """What must become of a number, a part of a complex one."""
    _, result = row.parts
    if row.alpha is not None:
        alpha = nearest(row.alpha, row.rounded_as or F64)
        if row.rounded_as is None:
            number = Fraction(number) * Fraction(alpha)
        elif math.isfinite(number) and number != 0:
            number = nearest(Fraction(number) * Fraction(alpha), row.rounded_as)
        else:
            number = float(number) * alpha
    return nearest(number, result) if result in FORMATS else cut_off(number, result)


def turns(row: Row) -> Iterator[Fraction]:
    """Magnitudes at which the result becomes another: halves between its numbers, ends of integers' ranges."""
    source, result = row.parts
    if result not in FORMATS:
        bits = {8 * result.size - 1, 8 * result.size, 31, 32, 63, 64}
        yield from (2**n + Fraction(offset, 2) for n in sorted(bits) for offset in range(-4, 5))
        yield from (Fraction(offset, 2) for offset in range(5))
        return
    precision, least, most = FORMATS[result]
    exponents = [least, least + 1, -1, 0, most]
    if source not in FORMATS:
        top = min(exponent_of(abs(Fraction(row.alpha or 1.0))) + 8 * source.size, most)
        exponents = [max(top - down, least) for down in range(13)]
    for exponent, first in product(exponents, (1 << (precision - 1), (1 << precision) - 4)):
        yield from ((first + k + Fraction(1, 2)) * Fraction(2) ** (exponent - precision + 1) for k in range(4))
    yield from ((k + Fraction(1, 2)) * unit_of(0, result) for k in range(4))


def numbers_for(row: Row) -> list[Number]:
    """The source's numbers next to the turns, its own ends, and some from anywhere."""
    source, _ = row.parts
    drawn = random.Random(row.spec.label)
    wanted = [sign * turn / abs(Fraction(row.alpha or 1.0)) for turn in turns(row) for sign in (1, -1)]
    if source not in FORMATS:
        low, high = ends_of(source)
        bits = 8 * source.size
        near = {math.floor(place) + k for place in wanted for k in (-1, 0, 1, 2)}
        near |= {2**n + k for n in (7, 8, 15, 16, 31, 32, bits - 1, bits) for k in (-1, 0, 1)}
        near |= {drawn.getrandbits(drawn.randint(1, bits)) for _ in range(40)} | {0, 1, low}
        return [number for number in sorted(near | {-one for one in near}) if low <= number <= high]
    precision, least, most = FORMATS[source]
    tiny, normal, large = float(unit_of(0, source)), math.ldexp(1, least), math.ldexp(2 - 2.0 ** (1 - precision), most)
    floats = {nearest(place + k * unit_of(place, source), source) for place in wanted for k in (-1, 0, 1)}
    floats |= {nearest(drawn.uniform(-2, 2) * 2.0 ** drawn.randint(-9, 40), source) for _ in range(40)}
    floats |= {sign * one for one in (tiny, 2 * tiny, normal - tiny, normal, large) for sign in (1, -1)}
    return [*sorted(floats - {0.0, math.inf, -math.inf}), 0.0, -0.0, math.inf, -math.inf, math.nan]


def ends_of(dtype: DType) -> tuple[int, int]:
    """The least and the largest integer."""
    ends = np.iinfo(dtype.numpy)
    return int(ends.min), int(ends.max)


def array_of(numbers: Sequence[Number], dtype: DType) -> Array:
    """Numbers that the type holds."""
    return np.array(numbers, np.float64 if dtype in FORMATS else dtype.numpy).astype(dtype.numpy)


def spelled(array: Array) -> list[str]:
    """So that zeros differ by their signs, and nothing that is no number differs."""
    if array.dtype.kind in "iu":
        return [str(one) for one in array.ravel().tolist()]
    return ["nan" if math.isnan(one) else one.hex() for one in array.astype(np.float64).ravel().tolist()]


def compare(numbers: Sequence[Number], found: Array, expected: Array) -> None:
    """Says what first differs."""
    rows = zip(numbers, spelled(found), spelled(expected), strict=True)
    wrong = [row for row in rows if row[1] != row[2]]
    assert not wrong, f"{len(wrong)} of {len(numbers)} differ: of {wrong[0][0]!r} came {wrong[0][1:]}"


@pytest.fixture(scope="module")
def kernels(host_runner: HostRunner) -> dict[Row, Kernel]:
    """Those with the shortest texts."""
    made = [variant(FAMILY, row.spec, "naive", NaiveConfig()) for row in TABLE]
    return dict(zip(TABLE, host_runner.load(made), strict=True))


def prove(row: Row, kernel: Kernel) -> None:
    """Runs the kernel on all that may go wrong."""
    (part, result_part), numbers = row.parts, numbers_for(row)
    numbers += [1] * (-len(numbers) % 8)
    expected = [converted(number, row) for number in numbers]
    matrix = array_of(numbers, part).reshape(8, -1)
    if part != row.source:  # the imaginary parts are the same numbers, the other way round
        matrix = matrix.astype(row.source.numpy)
        matrix.imag = array_of(numbers[::-1], part).reshape(8, -1)
    out = np.empty(matrix.shape[::-1], row.result.numpy)
    extents = FAMILY.extents(row.spec, {"in": Layout.of(matrix), "out": Layout.of(out)})
    kernel.run(extents, {"in": matrix, "out": out})
    for found in (
        out.T,
        oracle.converted(row.values, matrix),
    ):  # of the kernel, and of what other tests compare kernels with
        compare(numbers, found.real, array_of(expected, result_part))
        if part != row.source:
            signed = [-number if row.conjugate else number for number in expected[::-1]]
            compare(numbers[::-1], found.imag, array_of(signed, result_part))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.values.label)
def test_elements_become_what_exact_arithmetic_says(row: Row, kernels: dict[Row, Kernel]) -> None:
    prove(row, kernels[row])


MUTANTS = {
    Row(F64, F16): ("__double2half(number)", "__float2half_rn(number)"),
    Row(F64, BF16): ("__double2bfloat16(number)", "__float2bfloat16_rn(number)"),
    Row(I64, F64, -3.0): ("if (rest << lead != 0) kept |= 1;", ""),
    Row(I64, F32, 5.0): ("if (rest << lead != 0) kept |= 1;", ""),
    Row(U64, F64, 3 * 2.0**960): ("(behind == 0x400 && significant % 2 == 1)", "behind == 0x400"),
}
"""Texts broken on purpose: rounded twice, or without a look at what lies behind a half, or always up."""


def test_what_is_rounded_otherwise_is_told_from_it(cache: Path) -> None:
    """Few numbers lie at halves, or next to them: the cases of all transposes hardly have one."""
    made = {variant(FAMILY, row.spec, "naive", NaiveConfig()): row for row in MUTANTS}

    def changed(one: Variant) -> str:
        old, new = MUTANTS[made[one]]
        text = render(one)
        assert text.count(old) == 1
        return text.replace(old, new)

    runner = HostRunner(Limits.of("sm_90"), cache=cache, text=changed)
    for row, kernel in zip(MUTANTS, runner.load(list(made)), strict=True):
        with pytest.raises(AssertionError, match=r"differ: of"):
            prove(row, kernel)


def test_every_type_is_read_and_written() -> None:
    every = {*FORMATS, *INTEGERS, *PARTS}
    assert {row.source for row in TABLE} == every
    assert {row.result for row in TABLE} == every
