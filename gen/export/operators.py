"""Which calls of the operators of `gen.torch` an exported library computes: for programs of C++, which have no Python.

AOTInductor's runtime calls operators by name, with the arguments that stood in the exported program.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gen.dtypes import DType
from gen.errors import GenError
from gen.export.program import Program
from gen.families.reduction import ReductionSpec
from gen.families.stencil.spec import StencilSpec
from gen.families.transpose import TransposeSpec
from gen.functions import reduction_of

SCALARS = {
    "bool": "Bool", "i8": "Char", "i16": "Short", "i32": "Int", "i64": "Long", "u8": "Byte", "u16": "UInt16",
    "u32": "UInt32", "u64": "UInt64", "f16": "Half", "bf16": "BFloat16", "f32": "Float", "f64": "Double",
}  # fmt: skip
"""What torch calls the types of elements, by gen's names."""


@dataclass(frozen=True)
class Call:
    """A call that a function of the library computes, as rows of tables in C++.

    Attributes:
        operator: behind `gen::`.
        key: what must be equal, as the members of a struct.
    """

    operator: str
    spec: str
    key: str


def calls_of(programs: Sequence[Program]) -> tuple[Call, ...]:
    """Every call of an operator that these compute."""
    return tuple(call for program in programs for call in _calls(program))


def _calls(program: Program) -> Iterator[Call]:
    spec = program.spec
    ranks = [rank.axes for rank in program.ranks]
    if isinstance(spec, ReductionSpec) and len(spec.op) == 1 and not spec.keepdims:
        for rank in ranks:
            axes = range(rank) if spec.axis is None else sorted({axis % rank for axis in spec.axis})
            yield from (
                Call("reduce", program.name, f'"{spec.op[0]}", {_scalar(spec.dtype)}, {rank}, {_listed(axes)}, '
                     f"{spec.ddof}, {asked}, {_scalar(spec.result)}")
                for asked in _results(spec, rank, tuple(axes))
            )  # fmt: skip
    elif isinstance(spec, TransposeSpec) and spec.values is None and not spec.in_place:
        yield Call("permute", program.name, f"{spec.dtype.size}, {_listed(spec.axes)}")
    elif isinstance(spec, StencilSpec):
        modes = ",".join(one if isinstance(one, str) else "/".join(one) for one in spec.boundaries)
        origin = [before - extent // 2 for before, extent in zip(spec.before, spec.shape, strict=True)]
        yield Call("correlate", program.name, f"{_scalar(spec.dtype)}, {_listed(spec.weights)}, {_listed(spec.shape)}, "
                   f"{json.dumps(modes)}, {spec.cval!r}, {_listed(origin)}")  # fmt: skip


def _results(spec: ReductionSpec, rank: int, axes: tuple[int, ...]) -> Iterator[str]:
    """The types of results that a call may ask for, where it asks for one, to mean this spec."""
    for asked in (None, spec.result):
        try:
            meant = reduction_of(
                spec.op[0], spec.dtype.numpy, rank, axes, False, None if asked is None else asked.numpy, spec.ddof
            )
        except GenError:
            continue
        if meant == spec:
            yield "kNotAsked" if asked is None else f"static_cast<int>({_scalar(asked)})"


def _scalar(dtype: DType) -> str:
    return f"at::ScalarType::{SCALARS[dtype.name]}"


def _listed(numbers: Sequence[float]) -> str:
    return "{" + ", ".join(map(repr, numbers)) + "}"
