"""What a merge computes: the results of a reduction, of what is known of units of its elements.

A sum is merged from sums, a variance from means and variances, a place from the places and what stands there. So the
units may be reduced anywhere, by kernels of `partial_spec`, and in any order; a merge takes them in the order of the
elements, and a result has the same bits whoever has reduced them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gen.dtypes import BF16, F16, I64, DType
from gen.errors import SpecError
from gen.families.base import Operand, ShownSpec
from gen.families.reduction.operators import Operator, Rounds
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.spec import from_json as reduction_from_json

COUNTS = "counts"
_PARTIAL = {
    "mean": ("sum",), "norm": ("sumsq",), "var": ("mean", "var"), "std": ("mean", "var"), "argmin": ("argmin", "min"),
    "argmax": ("argmax", "max"),
}  # fmt: skip
"""What must be known of each unit, where it is not the statistic itself."""


def partial_spec(whole: ReductionSpec) -> ReductionSpec:
    """What must be known of each unit: the same axes, in the types in which the reduction adds.

    Raises SpecError where no reduction gives that.
    """
    needed = tuple(dict.fromkeys(name for op in whole.op for name in _PARTIAL.get(op, (op,))))
    adds = {
        operator.accumulator(whole.dtype, dtype)
        for _, operator, dtype in whole.results
        if operator.rounds is not Rounds.NEVER
    }
    asked = whole.dtype_of_result if needed == whole.op else None
    if len(adds) == 1 and next(iter(adds)).kind == "float":
        asked = next(iter(adds))
    found = replace(whole, op=needed, dtype_of_result=None, ddof=0)
    if asked is not None and all(operator.takes_dtype for operator in found.operators):
        found = replace(found, dtype_of_result=asked)
    for _, operator, dtype in found.results:
        if operator.rounds is not Rounds.NEVER and dtype in (F16, BF16):
            rule = f"must not be {dtype.name} where {operator.name} is merged beside statistics that take no other"
            next_step = "Compute them one by one, or convert the elements"
            raise SpecError("reduction.elements", rule, whole.op, next_step=next_step)
    return found


@dataclass(frozen=True)
class MergeSpec(ShownSpec):
    """The results of a reduction, merged from those of units.

    Attributes:
        whole: the reduction; along which axes, and how results lie, is not asked.
    """

    whole: ReductionSpec

    def __post_init__(self) -> None:
        """Makes equal merges alike. Raises SpecError where there are no partial results."""
        object.__setattr__(self, "whole", replace(self.whole, axis=None, keepdims=False))
        partial_spec(self.whole)

    @property
    def partial(self) -> ReductionSpec:
        """What is known of each unit."""
        return partial_spec(self.whole)

    @property
    def partials(self) -> tuple[tuple[str, Operator, DType], ...]:
        """Each input but the counts: its name, what it holds, its dtype."""
        return tuple((f"partial_{one.label}", one, dtype) for _, one, dtype in self.partial.results)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The results of each unit, of how many elements they are, and the results of all."""
        return (
            *(Operand(name, "in", dtype, ("units", "n")) for name, _, dtype in self.partials),
            Operand(COUNTS, "in", I64, ("units",)),
            *(Operand(name, "out", dtype, ("n",)) for name, _, dtype in self.whole.results),
        )

    @property
    def label(self) -> str:
        """That of the reduction."""
        return self.whole.label

    @property
    def summary(self) -> str:
        """What is computed."""
        what = " and ".join(operator.words for operator in self.whole.operators)
        found = " and ".join(operator.words for operator in self.partial.operators)
        return (
            f"N results, each {what} of {self.whole.dtype.name} elements, from {found} of each of the units, "
            "which hold `counts` of these elements; one that holds none adds nothing."
        )

    def to_json(self) -> dict[str, Any]:
        """The reduction's fields."""
        return self.whole.to_json()


def from_json(content: Mapping[str, Any]) -> MergeSpec:
    """The inverse of `MergeSpec.to_json`."""
    try:
        return MergeSpec(reduction_from_json(content))
    except SpecError as error:
        subject = error.subject.replace("reduction.", "merge.", 1)
        raise SpecError(subject, error.rule, error.value, next_step=error.next_step) from error
