"""What a reduction computes: statistics of the elements along some axes of an array."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, SupportsIndex
from zlib import crc32

from gen.dtypes import BOOL, DTYPES, F32, DType, find_dtype, python_int, read_dtype
from gen.errors import SpecError
from gen.families.base import Operand, ShownSpec, digest_label
from gen.families.reduction.operators import OPERATORS, SEVERAL, Operator, Rounds, find_operators

MOST_AXIS = 63  # NumPy's arrays have at most 64 axes
MOST_DDOF = 99
MOST_LABEL = 64  # characters, beside which a variant's name has room for all else
_DIGEST = re.compile(r"several_[0-9a-f]{8}_[a-z0-9]+")
_AXES = re.compile(r"axis((?:m?[0-9]+)(?:x(?:m?[0-9]+))*)")


@dataclass(frozen=True)
class ReductionSpec(ShownSpec):
    """One or several statistics of the elements along some axes; `gen.reduction` makes one from NumPy's words.

    Attributes:
        op: names of the statistics; one name stands for itself, `minmax`, `mean_var` and `stats` for several.
        dtype: of the elements.
        dtype_of_result: NumPy's `dtype=`, or that of its `out=` which holds more; None, also where it names what NumPy
            would choose anyway.
        axis: None for the whole array; else axes, those from the end negative; none of them: element by element.
        keepdims: whether the result keeps the reduced axes, with extent 1.
        ddof: what is subtracted from the number of elements that a variance is divided by.
    """

    op: tuple[str, ...] = ("sum",)
    dtype: DType = F32
    dtype_of_result: DType | None = None
    axis: tuple[int, ...] | None = None
    keepdims: bool = False
    ddof: int = 0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Found once, of the label, so that other processes share it."""
        return crc32(self.label.encode())

    def __post_init__(self) -> None:
        """Checks every field, and makes equal specs alike."""
        operators = find_operators(self.op)
        if self.dtype not in DTYPES.values() or self.dtype.kind == "bits":
            got = getattr(self.dtype, "name", repr(self.dtype))
            raise SpecError("reduction.elements", "must be bool, an integer or a floating-point type", got)
        self._check_axis()
        if type(self.keepdims) is not bool:
            raise SpecError("reduction.keepdims", "must be True or False", repr(self.keepdims))
        if type(self.ddof) is not int or not 0 <= self.ddof <= MOST_DDOF:
            raise SpecError("reduction.ddof", f"must be a whole number from 0 to {MOST_DDOF}", repr(self.ddof))
        if self.ddof and not any(operator.rounds is Rounds.MOMENTS for operator in operators):
            raise SpecError("reduction.ddof", "must be 0 unless a variance is asked for", self.ddof)
        self._check_result(operators)

    def _check_axis(self) -> None:
        if self.axis is None:
            return
        given: object = self.axis
        if not isinstance(given, tuple) or not all(type(axis) is int for axis in given):
            raise SpecError("reduction.axis", "must be None, a number or a tuple of numbers", repr(given))
        for axis in self.axis:
            if not -MOST_AXIS - 1 <= axis <= MOST_AXIS:
                raise SpecError("reduction.axis", f"must be from {-MOST_AXIS - 1} to {MOST_AXIS}", axis)
        if len(set(self.axis)) < len(self.axis):
            raise SpecError("reduction.axis", "must name each axis once", self.axis)
        if any(operator.indexed for operator in self.operators) and len(self.axis) != 1:
            raise SpecError("reduction.axis", f"of {self.op[0]} must be None or one axis", self.axis)
        object.__setattr__(self, "axis", tuple(sorted(self.axis, key=lambda axis: (axis < 0, axis))))

    def _check_result(self, operators: tuple[Operator, ...]) -> None:
        usual, asked = operators[0].result(self.dtype), self.dtype_of_result
        if asked is None or all(one.result(self.dtype) == asked for one in operators):
            object.__setattr__(self, "dtype_of_result", None)
            return
        subject, name = "reduction.dtype", getattr(asked, "name", repr(asked))
        if asked not in DTYPES.values() or asked.kind == "bits" or asked == BOOL:
            raise SpecError(subject, "must be an integer or a floating-point type", name)
        if not all(one.takes_dtype for one in operators) and (len(operators) > 1 or not usual.casts_to(asked)):
            raise _own_dtype(operators, self.dtype, name, wider=len(operators) == 1)
        for one in operators:
            if one.result(self.dtype).kind == "float" and asked.kind != "float":
                raise SpecError(subject, f"must be a floating-point type, since {one.name} of these gives one", name)

    @property
    def result(self) -> DType:
        """The dtype of the result; of several statistics, that of the first."""
        return self.dtype_of_result or self.operators[0].result(self.dtype)

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """The statistics."""
        return tuple(OPERATORS[name] for name in self.op)

    @property
    def indexed(self) -> bool:
        """Whether the result is a place."""
        return self.operators[0].indexed  # beside which stands no other statistic than what is there

    @cached_property
    def results(self) -> tuple[tuple[str, Operator, DType], ...]:
        """Each output: its name, what it holds, its dtype."""
        if len(self.op) == 1:
            return (("out", self.operators[0], self.result),)
        asked = self.dtype_of_result
        return tuple((operator.label, operator, asked or operator.result(self.dtype)) for operator in self.operators)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The array and each result; an array may have more axes, or fewer where none of them is named."""
        needed = max((axis + 2 if axis >= 0 else 1 - axis for axis in self.axis or ()), default=1)
        while len({axis % needed for axis in self.axis or ()}) < len(self.axis or ()):  # 1 and -2 of three are the same
            needed += 1
        axes = ("n",) if self.axis is None else tuple(f"d{axis}" for axis in range(needed))
        return (
            Operand("in", "in", self.dtype, axes),
            *(Operand(name, "out", dtype) for name, _, dtype in self.results),
        )

    @property
    def label(self) -> str:
        """For instance `sum_f32`, `var_f32_ddof1_axis0x2_keep`, `sum_i8_to_f32`.

        Where that would be too long, `several_3fa94c01_f32`, a digest of it all.
        """
        together = next((name for name, several in SEVERAL.items() if several == self.op), None)
        words = [together.replace("_", "")] if together else [operator.label for operator in self.operators]
        words.append(self.dtype.name)
        if self.dtype_of_result:
            words += ["to", self.dtype_of_result.name]
        if self.ddof:
            words.append(f"ddof{self.ddof}")
        if self.axis is not None:
            spelled = "x".join(f"m{-axis}" if axis < 0 else str(axis) for axis in self.axis)
            words.append(f"axis{spelled}" if spelled else "elementwise")
        label = "_".join([*words, "keep"] if self.keepdims else words)
        if len(label) <= MOST_LABEL:
            return label
        return digest_label("several", self, self.dtype)

    @property
    def summary(self) -> str:
        """What is computed."""
        what = " and ".join(operator.words for operator in self.operators)
        if self.axis is None:
            along = f"of all {self.dtype.name} elements of an array"
        elif not self.axis:
            along = f"of each {self.dtype.name} element of an array"
        else:
            along = f"of {self.dtype.name} elements along axis {', '.join(map(str, self.axis))} of an array"
        nothing = [f"{operator.empty}" for operator in self.operators if operator.empty]
        none = f"; of none: {', '.join(nothing)}" if nothing else ""
        result = f", as {self.dtype_of_result.name}" if self.dtype_of_result else ""
        ddof = f", n - {self.ddof} for n" if self.ddof else ""
        text = f"{what} {along}{result}{ddof}{none}."
        return text[0].upper() + text[1:]

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {
            "op": list(self.op),
            "dtype": self.dtype.name,
            "result": self.result.name,
            "axis": None if self.axis is None else list(self.axis),
            "keepdims": self.keepdims,
            "ddof": self.ddof,
        }


def from_json(content: Mapping[str, Any]) -> ReductionSpec:
    """The inverse of `ReductionSpec.to_json`."""
    dtype = read_dtype(content.get("dtype"), "reduction.dtype")
    result = content.get("result")
    op, axis = content.get("op", ()), content.get("axis")
    op = tuple(op) if isinstance(op, list | tuple) else op
    asked = None if result is None else read_dtype(result, "reduction.result")
    return ReductionSpec(
        op,
        dtype,
        None if asked == find_operators(op)[0].result(dtype) else asked,
        tuple(axis) if isinstance(axis, list | tuple) else axis,
        content.get("keepdims", False),
        content.get("ddof", 0),
    )


def spell(label: str) -> ReductionSpec | None:
    """The spec of a label: `sum_f32_axism1`; None if no spec has it, or the label does not say it.

    Raises SpecError for words that do not fit.
    """
    if _DIGEST.fullmatch(label):
        return None
    words = label.split("_")
    place = next((i for i, word in enumerate(words) if word in DTYPES), None)
    if not place:
        return None
    dtype, rest = DTYPES[words[place]], words[place + 1 :]
    op = _ops(words[:place])
    result: DType | None = None
    axis: tuple[int, ...] | None = None
    keepdims, ddof = False, 0
    if rest[:1] == ["to"] and len(rest) > 1 and rest[1] in DTYPES:
        result, rest = DTYPES[rest[1]], rest[2:]
    if rest and re.fullmatch(r"ddof[0-9]{1,4}", rest[0]):
        ddof, rest = int(rest[0][4:]), rest[1:]
    if rest and rest[0] == "elementwise":
        axis, rest = (), rest[1:]
    elif rest and (found := _AXES.fullmatch(rest[0])):
        axis, rest = tuple(int(part.replace("m", "-")) for part in found[1].split("x")), rest[1:]
    if rest == ["keep"]:
        keepdims, rest = True, []
    if rest:
        return None
    spec = ReductionSpec(op, dtype, result, axis, keepdims, ddof)
    return spec if spec.label == label else None


def _ops(words: list[str]) -> tuple[str, ...]:
    """Names of statistics from their labels; what is none stays as it is."""
    if len(words) == 1:
        several = next((names for name, names in SEVERAL.items() if name.replace("_", "") == words[0]), None)
        if several:
            return several
    names = {operator.label: name for name, operator in OPERATORS.items()}
    return tuple(names.get(word, word) for word in words)


def reduction(
    op: str | tuple[str, ...],
    elements: Any = F32,
    *,
    axis: SupportsIndex | tuple[SupportsIndex, ...] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    ddof: SupportsIndex = 0,
) -> ReductionSpec:
    """The spec of a reduction, to be given to `gen.load`.

    Args:
        op: `sum`, `prod`, `min`, `max`, `any`, `all`, `argmin`, `argmax`, `mean`, `var`, `std`, `count_nonzero`,
            `sumsq` (sum of squares), `norm` (its root); `minmax`, `mean_var`, `stats` (sum, sum of squares, min, max)
            or a tuple of names for several statistics in one read, such as `("argmax", "max")`.
        elements: their dtype: a name such as `"f32"`, a NumPy dtype or what NumPy takes for one.
        axis: as in NumPy: None for the whole array, an axis, or a tuple of them; `()` takes each element for itself.
            Of an array whose reduced axes lie between kept ones at most four may be apart, and four kept ones.
        keepdims: whether the result keeps the reduced axes, with extent 1.
        dtype: as in NumPy: that of each result, in which the kernel also adds; None for NumPy's own choice.
        ddof: `var` and `std` divide by the number of elements less this.

    Raises:
        SpecError: there is no such operator or dtype, or the arguments do not go together.
    """
    axes: Any = tuple(map(python_int, axis)) if isinstance(axis, tuple) else python_int(axis)
    if type(axes) is int:
        axes = (axes,)
    operators = find_operators(op)
    result = None if dtype is None else read(dtype, "reduction.dtype")
    if result is not None and not all(operator.takes_dtype for operator in operators):
        own = read(elements, "reduction.elements")
        if any(operator.result(own) != result for operator in operators):
            raise _own_dtype(operators, own, result.name, wider=False)
    return ReductionSpec(
        tuple(operator.name for operator in operators),
        read(elements, "reduction.elements"),
        result,
        axes,
        keepdims,
        python_int(ddof),
    )


def _own_dtype(operators: tuple[Operator, ...], elements: DType, got: str, *, wider: bool) -> SpecError:
    """The error for a dtype that statistics do not take; `wider`: they would take one that holds all of their own."""
    *others, last = [operator.name for operator in operators]
    names = f"{', '.join(others)} and {last}" if others else last
    own = {operator.result(elements).name for operator in operators}
    if len(own) > 1:
        rule = f"must be left out: {names} have dtypes of their own"
    else:
        usual = own.pop()
        rule = f"must be {usual}{f', or hold every {usual}' if wider else ''}"
        rule = f"{rule}: {names} {'take' if others else 'takes'} no other"
    return SpecError("reduction.dtype", rule, got, next_step="Leave it out, or convert what the kernel gives")


def read(value: Any, subject: str) -> DType:
    """The element type that a caller means. Raises SpecError, about `subject`, if there is none."""
    if isinstance(value, DType):  # the spec says which it takes
        return value
    numbers = {name: dtype for name, dtype in DTYPES.items() if dtype.kind != "bits"}
    found = find_dtype(value, numbers.values(), subject)
    if found is None:
        raise SpecError(subject, f"must be one of {', '.join(numbers)}", repr(value))
    return found
