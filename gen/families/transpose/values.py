"""What becomes of the elements on their way: `alpha * in`, the conjugate, another type."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from gen.dtypes import B8, B16, B32, B64, B128, BF16, C64, C128, DTYPES, F16, F32, F64, DType
from gen.errors import SpecError

BITS = {dtype.size: dtype for dtype in (B8, B16, B32, B64, B128)}
NUMBERS = {d.name: d for d in (*DTYPES.values(), C64, C128) if d.kind != "bits" and d.name != "bool"}
PARTS = {C64: F32, C128: F64}
"""Of complex numbers."""
# How CUDA's conversions name integers: `__float2int_rz`.
_CONVERSIONS = {
    "i8": "int", "i16": "int", "i32": "int", "i64": "ll", "u8": "uint", "u16": "uint", "u32": "uint", "u64": "ull",
}  # fmt: skip


@dataclass(frozen=True)
class Values:
    """The result's elements: `alpha` times the input's, or times their conjugates, as numbers of another type.

    The product is that of the wider of the two types, of f32 at least, and of f64 where integers have 32 bits, or the
    result's have 64: it is rounded as that type's, and once more to the result's where that is narrower. An integer of
    64 bits is multiplied exactly, in 128 bits, and the product is rounded once, to the result's type. Without alpha the
    number itself is rounded once. Real and imaginary part are two such numbers. Numbers become integers as C and NumPy
    have it, towards 0, and with `saturate` those that do not fit the nearest that does, NaN 0.

    Attributes:
        source: the input's elements.
        result: the result's.
        alpha: as the type of the product holds it, for integers of 64 bits as f64 does; None: the numbers themselves.
        conjugate: of complex numbers.
        saturate: what integers do not hold becomes the nearest that they do.
    """

    source: DType
    result: DType
    alpha: float | None = None
    conjugate: bool = False
    saturate: bool = False

    def __post_init__(self) -> None:
        for name, dtype in (("dtype", self.source), ("to", self.result)):
            if dtype not in NUMBERS.values():
                rule = "must be one of " + ", ".join(NUMBERS) + " where numbers change"
                raise SpecError(f"transpose.{name}", rule, getattr(dtype, "name", repr(dtype)))
        if (self.source in PARTS) != (self.result in PARTS):
            rule = "must be complex where the input is, and only there"
            raise SpecError("transpose.to", rule, f"{self.source.name} to {self.result.name}")
        for name in ("conjugate", "saturate"):
            if not isinstance(getattr(self, name), bool):
                raise SpecError(f"transpose.{name}", "must be True or False", repr(getattr(self, name)))
        if self.conjugate and self.source not in PARTS:
            raise SpecError("transpose.conjugate", "is for complex numbers", self.source.name)
        if self.saturate and not _is_integer(self.result):
            raise SpecError("transpose.saturate", "is for results that are integers", self.result.name)
        self._check_alpha()
        self._check_range()

    def _check_alpha(self) -> None:
        alpha: object = self.alpha
        if alpha is None:
            if self.source == self.result and self.saturate:
                rule = "must come with another type as to, or with alpha: else every number fits"
                raise SpecError("transpose.saturate", rule, self.saturate)
            if self.source == self.result and not self.conjugate:
                raise SpecError("transpose.to", "must be another type where there is no alpha", self.result.name)
            if self.result == BF16 and _is_integer(self.source) and self.source.size == 8:
                rule = "must not be bf16 for integers of 64 bits, which no single step of the GPU rounds to it"
                raise SpecError(
                    "transpose.to", rule, self.source.name, next_step="With alpha=1.0 they are rounded once"
                )
            return
        number = _finite(alpha)
        if number is None:
            raise SpecError("transpose.alpha", "must be a finite real number", repr(alpha))
        with np.errstate(over="ignore"):
            rounded = float(self.wide.numpy.type(number))
        if not math.isfinite(rounded):
            raise SpecError("transpose.alpha", f"must be a number, finite as {self.wide.name}", repr(alpha))
        least, why = (-63, "is 0") if _is_integer(self.result) else (-1022, "is 0 or not rounded once")
        if self.exact and abs(rounded) < 2.0**least:
            rule = f"must be 2^{least} in magnitude at least for integers of 64 bits, whose product {why} otherwise"
            raise SpecError("transpose.alpha", rule, repr(alpha))
        object.__setattr__(self, "alpha", rounded)

    def _check_range(self) -> None:
        if self.saturate or not _is_integer(self.result):
            return
        whole = self.alpha is None and _is_integer(self.source)
        if not whole or not _holds(self.result, self.source):
            what = f"{self.source.name} to {self.result.name}" + (f" times {self.alpha}" if self.alpha else "")
            raise SpecError(
                "transpose.to", "does not hold every number that may come", what,
                next_step="With saturate=True those become the nearest number that it holds",
            )  # fmt: skip

    @property
    def part(self) -> DType:
        """The input's numbers, parts of complex ones."""
        return PARTS.get(self.source, self.source)

    @property
    def result_part(self) -> DType:
        """The result's numbers, parts of complex ones."""
        return PARTS.get(self.result, self.result)

    @property
    def wide(self) -> DType:
        """The type in which a number is multiplied; where it is not, its own, of which f32 stands for narrower ones."""
        if self.alpha is None:
            return F32 if self.part in (F16, BF16) else self.part
        pair = (self.part, self.result_part)
        return F64 if any(d == F64 or (_is_integer(d) and d.size >= 4) for d in pair) else F32

    @property
    def exact(self) -> bool:
        """Whether products are exact before they are rounded: those of integers of 64 bits."""
        return self.alpha is not None and _is_integer(self.source) and self.source.size == 8

    @property
    def factor(self) -> tuple[int, int]:
        """An odd number and the power of 2 that make up the magnitude of alpha; without it, or of 0, 0."""
        numerator, denominator = abs(self.alpha or 0.0).as_integer_ratio()
        twos = (numerator & -numerator).bit_length() - 1 if numerator else 0
        return numerator >> twos, twos - (denominator.bit_length() - 1)

    @property
    def part_bits(self) -> DType:
        """The input's numbers, parts of complex ones, as kernels move them."""
        return BITS[self.part.size]

    @property
    def result_part_bits(self) -> DType:
        """The result's numbers, parts of complex ones, as kernels move them."""
        return BITS[self.result_part.size]

    @property
    def changes_parts(self) -> bool:
        """Whether parts change, beside the sign of imaginary ones."""
        return self.alpha is not None or self.source != self.result

    @property
    def is_read_wide(self) -> bool:
        """Whether a number that was read is of the type in which it is multiplied."""
        return (F32 if self.part in (F16, BF16) else self.part) == self.wide

    @property
    def alpha_literal(self) -> str:
        """Alpha in C++, as a hexadecimal literal, which is exact; empty without alpha."""
        if self.alpha is None:
            return ""
        return re.sub(r"\.?0*p", "p", self.alpha.hex()) + ("f" if self.wide == F32 else "")

    @property
    def conversion(self) -> str:
        """The CUDA intrinsic that makes a saturated integer of a product; empty where the product is an integer."""
        if not self.saturate or self.wide.kind != "float":
            return ""
        return f"__{self.wide.cuda}2{_CONVERSIONS[self.result.name]}_rz"

    @property
    def ends(self) -> tuple[str, str]:
        """The ends of an integer's range in C++, each empty where no number lies beyond after its conversion.

        Of exact products their magnitudes. A conversion to integers saturates at 32 or 64 bits itself.
        """
        if not self.saturate:
            return "", ""
        ends = np.iinfo(self.result.numpy)
        least, most = int(ends.min), int(ends.max)
        if self.exact:
            return f"{-least}ULL", f"{most}ULL"
        if self.wide.kind == "float":
            narrow = self.result.size < 4
            return (_integer_literal(least) if narrow and least else ""), (_integer_literal(most) if narrow else "")
        inner = np.iinfo(self.part.numpy)
        below, above = inner.min < least, inner.max > most
        return (_integer_literal(least) if below else ""), (_integer_literal(most) if above else "")

    @property
    def label(self) -> str:
        """For instance `f32_to_f16_times_40200000`, alpha as its bits, or `c64_conj`."""
        words = [self.source.name]
        if self.conjugate:
            words.append("conj")
        if self.result != self.source:
            words += ["to", self.result.name]
        if self.saturate:
            words.append("sat")
        if self.alpha is not None:
            words += ["times", np.array(self.alpha, self.wide.numpy.newbyteorder(">")).tobytes().hex()]
        return "_".join(words)

    @property
    def summary(self) -> str:
        """In words."""
        what = "the conjugate" if self.conjugate else "each element"
        if self.alpha is not None:
            what = f"{self.alpha!r} times {what}"
        where = f" as {self.result.name}" if self.result != self.source else ""
        return f"{self.source.name}: what arrives is {what}{where}{', saturated' if self.saturate else ''}."

    def to_json(self) -> dict[str, Any]:
        """All that is not as it would be without it."""
        content: dict[str, Any] = {"dtype": self.source.name, "to": self.result.name}
        if self.alpha is not None:
            content["alpha"] = self.alpha
        return {**content, **{name: True for name in ("conjugate", "saturate") if getattr(self, name)}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Values:
        """The inverse of `to_json`. Raises SpecError for what is none."""
        source = read_number(content.get("dtype"), "transpose.dtype")
        result = read_number(content.get("to"), "transpose.to")
        conjugate, saturate = content.get("conjugate", False), content.get("saturate", False)
        return cls(source, result, content.get("alpha"), conjugate, saturate)

    @classmethod
    def from_words(cls, words: list[str]) -> Values | None:
        """The values whose label has these words; None if there are none.

        Raises SpecError for words that do not go together.
        """
        left = list(words)

        def take(word: str) -> bool:
            found = left[:1] == [word]
            del left[: int(found)]
            return found

        source = NUMBERS.get(left.pop(0)) if left else None
        conjugate = take("conj")
        result = NUMBERS.get(left.pop(0)) if take("to") and left else source
        saturate, scaled = take("sat"), take("times")
        bits = left.pop(0) if scaled and left else ""
        if source is None or result is None or left:
            return None
        if not scaled:
            return cls(source, result, None, conjugate, saturate)
        wide = cls(source, result, 1.0, saturate=_is_integer(result)).wide
        try:
            alpha = float(np.frombuffer(bytes.fromhex(bits), wide.numpy.newbyteorder(">")).item())
        except ValueError:  # no such number of digits, or none
            return None
        return cls(source, result, alpha, conjugate, saturate)


def read_number(name: object, subject: str) -> DType:
    """The type of numbers that JSON spells. Raises SpecError, about `subject`, for any other value."""
    if not isinstance(name, str) or name not in NUMBERS:
        raise SpecError(subject, "must be one of " + ", ".join(NUMBERS), repr(name))
    return NUMBERS[name]


def _finite(number: object) -> float | None:
    """The f64 next to a real number; None where there is none."""
    if isinstance(number, bool) or not isinstance(number, Real):
        return None
    try:
        found = float(number)
    except OverflowError:  # of integers and fractions
        return None
    return found if math.isfinite(found) else None


def _integer_literal(number: int) -> str:
    if number == -(2**31):  # has no literal of its own
        return "-0x7fffffff - 1"
    suffix = "" if abs(number) < 2**31 else "u" if number < 2**32 else "LL" if number < 2**63 else "ULL"
    return f"{number}{suffix}"


def _is_integer(dtype: DType) -> bool:
    return dtype.kind in ("int", "uint")


def _holds(result: DType, source: DType) -> bool:
    outer, inner = np.iinfo(result.numpy), np.iinfo(source.numpy)
    return bool(outer.min <= inner.min and inner.max <= outer.max)
