"""What the templates' `value` is written from."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from gen.dtypes import F32, DType
from gen.families.transpose.values import BITS, PARTS, Values

_INTEGERS = {
    "i8": "int",
    "i16": "int",
    "i32": "int",
    "i64": "ll",
    "u8": "uint",
    "u16": "uint",
    "u32": "uint",
    "u64": "ull",
}


@dataclass(frozen=True)
class ValuesText:
    """Names and literals as C++ spells them.

    Attributes:
        source, result: names of the numbers' types, parts of complex ones.
        element, result_element: the types of their bits.
        wide: the type of the product, or of the number where there is none.
        exact: whether a number that was read is of that type.
        alpha: as a literal; empty without one.
        alpha_words: for the reader.
        conjugate, saturate: as in `Values`.
        changes: whether parts change beside their sign.
        complex, complex_result: bytes of complex elements; 0 for others.
        round: the intrinsic that rounds a product to an integer; empty where it is one.
        least, most: ends of the result's range as literals; empty where no number lies beyond. Of exact products that
            become integers their magnitudes.
        product: whether products are exact, in 128 bits, before they are rounded.
        negative: whether alpha is less than 0.
        factor, power: the magnitude of alpha is such a whole number times 2 to that power.
    """

    source: str
    result: str
    element: str
    result_element: str
    wide: str
    exact: bool
    alpha: str
    alpha_words: str
    conjugate: bool
    saturate: bool
    changes: bool
    complex: int
    complex_result: int
    round: str
    least: str
    most: str
    product: bool
    negative: bool
    factor: str
    power: int

    @classmethod
    def of(cls, values: Values) -> ValuesText:
        """Of these."""
        part, result, wide = values.part, values.result_part, values.wide
        least, most = _clamped(values)
        from_float = values.saturate and wide.kind == "float"
        is_complex = values.source in PARTS
        factor, power = values.factor
        read_as = F32 if part.kind == "float" and part.size < 4 else part
        return cls(
            source=part.name,
            result=result.name,
            element=BITS[part.size].cuda,
            result_element=BITS[result.size].cuda,
            wide=wide.cuda,
            exact=read_as == wide,
            alpha="" if values.alpha is None else _float(values.alpha, wide),
            alpha_words="" if values.alpha is None else repr(values.alpha),
            conjugate=values.conjugate,
            saturate=values.saturate,
            changes=values.alpha is not None or values.source != values.result,
            complex=values.source.size if is_complex else 0,
            complex_result=values.result.size if is_complex else 0,
            round=f"__{wide.cuda}2{_INTEGERS[result.name]}_rz" if from_float else "",
            least=least,
            most=most,
            product=values.exact,
            negative=(values.alpha or 0.0) < 0,
            factor=f"{factor:#x}ULL",
            power=power,
        )


def _clamped(values: Values) -> tuple[str, str]:
    """The ends of an integer's range, where a number may lie beyond after it was made an integer of 32 or 64 bits."""
    if not values.saturate:
        return "", ""
    ends = np.iinfo(values.result.numpy)
    if values.exact:
        return f"{-int(ends.min)}ULL", f"{int(ends.max)}ULL"
    if values.wide.kind == "float":  # its conversion ends where integers of 32 or 64 bits do
        narrow = values.result.size < 4
        return (_whole(int(ends.min)) if narrow and ends.min < 0 else ""), (_whole(int(ends.max)) if narrow else "")
    inner = np.iinfo(values.part.numpy)
    least = _whole(int(ends.min)) if inner.min < ends.min else ""
    return least, _whole(int(ends.max)) if inner.max > ends.max else ""


def _float(number: float, dtype: DType) -> str:
    return re.sub(r"\.?0*p", "p", number.hex()) + ("f" if dtype == F32 else "")


def _whole(number: int) -> str:
    """The least of 32 bits has no literal of its own."""
    if number == -(2**31):
        return "-0x7fffffff - 1"
    suffix = "" if abs(number) < 2**31 else "u" if number < 2**32 else "LL" if number < 2**63 else "ULL"
    return f"{number}{suffix}"
