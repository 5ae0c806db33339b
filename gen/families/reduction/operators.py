"""The operators of reductions: what one state knows of the elements seen so far, and how two states become one.

From an operator follow the text of every kernel, the oracle and the bounds of its proof. Complex elements, operators
of the user, and sums that compensate or repeat across devices are further entries of `OPERATORS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from gen.dtypes import BOOL, F32, F64, I32, I64, U32, U64, DType
from gen.errors import SpecError


class Gives(Enum):
    """The dtype of a result, where the caller names none."""

    SAME = "that of the elements"
    WIDE = "64 bits of the sign for integers, else that of the elements"
    FLOAT = "f64 for integers, else that of the elements"
    BOOL = "bool"
    INDEX = "i64"


class Rounds(Enum):
    """How a result of floating-point elements may differ from the exact one."""

    NEVER = "not at all"
    SUM = "by the roundings on the longest path of additions"
    PRODUCT = "by the roundings of all multiplications"
    MOMENTS = "by the roundings of partial means and of sums of squares about them"


@dataclass(frozen=True)
class Operator:
    """One statistic of many elements.

    Attributes:
        name: `sum`, as NumPy and `gen.reduction` call it.
        words: in a sentence: `the sum`.
        gives: the result's dtype.
        rounds: whether and how it rounds.
        empty: what no elements give, in words; empty where NumPy refuses them.
    """

    name: str
    words: str
    gives: Gives
    rounds: Rounds
    empty: str

    @property
    def label(self) -> str:
        """The name as a label spells it: `countnonzero`."""
        return self.name.replace("_", "")

    @property
    def indexed(self) -> bool:
        """Whether the result is a place and not a value."""
        return self.gives is Gives.INDEX and self.rounds is Rounds.NEVER and self.name.startswith("arg")

    @property
    def takes_dtype(self) -> bool:
        """Whether the caller may name the dtype of the result, in which the kernel then adds."""
        return self.rounds is not Rounds.NEVER

    def result(self, dtype: DType) -> DType:
        """The dtype of the result of such elements."""
        match self.gives:
            case Gives.SAME:
                return dtype
            case Gives.WIDE:
                return dtype if dtype.kind == "float" else I64 if dtype.kind == "int" or dtype == BOOL else U64
            case Gives.FLOAT:
                return dtype if dtype.kind == "float" else F64
            case Gives.BOOL:
                return BOOL
            case Gives.INDEX:
                return I64

    def accumulator(self, dtype: DType, result: DType) -> DType:
        """The type in which the kernel adds; integers wrap, so they are unsigned where they are added.

        The mean of integers of up to 16 bits is that of an exact sum: no array is so large that it leaves 64 bits.
        """
        if self.name == "mean" and dtype.kind != "float" and dtype.size <= 2 and result == F64:
            return U64
        if self.rounds is not Rounds.NEVER:
            if result.kind == "float":
                return F64 if result == F64 else F32
            return U64 if result.size == 8 else U32
        if self.name == "count_nonzero":
            return U64
        if self.gives is Gives.BOOL:
            return U32
        return value_type(dtype)


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator("sum", "the sum", Gives.WIDE, Rounds.SUM, "0"),
        Operator("prod", "the product", Gives.WIDE, Rounds.PRODUCT, "1"),
        Operator("min", "the least", Gives.SAME, Rounds.NEVER, ""),
        Operator("max", "the greatest", Gives.SAME, Rounds.NEVER, ""),
        Operator("any", "whether any is not 0", Gives.BOOL, Rounds.NEVER, "false"),
        Operator("all", "whether none is 0", Gives.BOOL, Rounds.NEVER, "true"),
        Operator("argmin", "the place of the first least", Gives.INDEX, Rounds.NEVER, ""),
        Operator("argmax", "the place of the first greatest", Gives.INDEX, Rounds.NEVER, ""),
        Operator("mean", "the mean", Gives.FLOAT, Rounds.SUM, "NaN"),
        Operator("var", "the variance", Gives.FLOAT, Rounds.MOMENTS, "NaN"),
        Operator("std", "the standard deviation", Gives.FLOAT, Rounds.MOMENTS, "NaN"),
        Operator("count_nonzero", "how many are not 0", Gives.INDEX, Rounds.NEVER, "0"),
        Operator("sumsq", "the sum of the squares", Gives.WIDE, Rounds.SUM, "0"),
        Operator("norm", "the square root of the sum of the squares", Gives.FLOAT, Rounds.SUM, "0"),
    )
}
SEVERAL = {
    "minmax": ("min", "max"),
    "mean_var": ("mean", "var"),
    "stats": ("sum", "sumsq", "min", "max"),
}
"""Statistics that are often wanted together, computed in one read."""
WITH_PLACES = (("argmin", "min"), ("argmax", "max"))
"""A place with what stands there."""


def find_operators(op: object) -> tuple[Operator, ...]:
    """The operators of a name, or of several. Raises SpecError for a name that is none."""
    names = SEVERAL.get(op, (op,)) if isinstance(op, str) else op
    known = (*OPERATORS, *SEVERAL)
    if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names):
        raise SpecError("reduction.op", "must be a name or a tuple of names, out of " + ", ".join(known), repr(op))
    for name in names:
        if name not in OPERATORS:
            meant = get_close_matches(name, known, 1)
            next_step = f"Did you mean {meant[0]}?" if meant else ""
            raise SpecError("reduction.op", "must be one of " + ", ".join(known), repr(name), next_step=next_step)
    if len(set(names)) < len(names):
        raise SpecError("reduction.op", "must name each statistic once", repr(op))
    found = tuple(OPERATORS[name] for name in names)
    if len(found) > 1 and any(operator.indexed for operator in found) and names not in WITH_PLACES:
        rule = "must be alone where it is argmin or argmax, or " + " or ".join(map(repr, WITH_PLACES))
        raise SpecError("reduction.op", rule, repr(op))
    return found


def real_type(result: DType) -> DType:
    """The type in which a floating-point result is computed from a state."""
    return F64 if result == F64 else F32


def value_type(dtype: DType) -> DType:
    """The type of an element in a register: one that a shuffle moves."""
    if dtype.kind == "float":
        return F64 if dtype == F64 else F32
    if dtype.size == 8:
        return dtype
    return I32 if dtype.kind == "int" else U32
