"""What tests of reductions share: the family, its operators and types, a spec by operator, base for a problem."""

from __future__ import annotations

from typing import Any

import gen
from gen.dtypes import DTYPES, F32
from gen.families.base import Limits, Variant
from gen.families.names import variant
from gen.families.reduction import Reduction, ReductionSpec
from gen.families.reduction.operators import OPERATORS, SEVERAL

FAMILY = Reduction()
H100 = Limits.of("sm_90")
NUMBERS = [dtype for dtype in DTYPES.values() if dtype.kind != "bits"]
NAMES = [*OPERATORS, *SEVERAL]
ALL_TOGETHER = tuple(name for name, operator in OPERATORS.items() if not operator.indexed)


def spec(op: str | tuple[str, ...], elements: Any = F32, **more: Any) -> ReductionSpec:
    return gen.reduction(op, elements, **more)


def base_of(made: ReductionSpec, extents: Any) -> Variant:
    return variant(FAMILY, made, *FAMILY.base(made, FAMILY.shape_class(made, extents)))
