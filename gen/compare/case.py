"""What is compared: a spec at one shape. All else follows from its family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd, prod
from typing import Any

from gen.dtypes import B8, B16, B32, B64, B128, C128, F16, F32, F64, U8, DType
from gen.errors import SpecError
from gen.families.base import WIDEST, Extents, Family, Layout, Operand, Spec
from gen.families.extents import checked_runtime_parameters, dense_strides, extents_of
from gen.families.regions import Region, sizes_of
from gen.store.trials import Problem

Shape = tuple[int, ...]
# Bits are moved and never computed with. No library has such a type, so their arrays hold numbers of the same size.
_NUMBERS = {B8: U8, B16: F16, B32: F32, B64: F64, B128: C128}


def number_type(dtype: DType) -> DType:
    """The type of the numbers in an array of this type: of bits, numbers of as many bytes."""
    return _NUMBERS.get(dtype, dtype)


@dataclass(frozen=True)
class ComparisonCase:
    """A spec at one shape.

    Attributes:
        family: of the spec.
        spec: what is computed.
        shape: of the first input.
        runtime_parameters: of the call: `{"steps": 100}`.
        name: in tables; empty: made from the spec and the shape.
        gap: elements by which rows of the first input lie further apart than they must.
        offset: elements by which it begins behind an address that 16 bytes divide.
    """

    family: Family[Any]
    spec: Spec
    shape: Shape
    runtime_parameters: Mapping[str, int] = field(default_factory=dict)
    name: str = ""
    gap: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        """Raises SpecError, ShapeError or ArgumentError if there is no such problem."""
        if any(operand.role == "number" for operand in self.spec.operands):
            rule = "takes numbers beside its arrays: what to compare it with cannot be known"
            raise SpecError(self.family.name_of(self.spec), rule)
        if not self.name:
            stated = "".join(f" {name}={value}" for name, value in self.runtime_parameters.items())
            lies = f" gap {self.gap}" * (self.gap > 0) + f" offset {self.offset}" * (self.offset > 0)
            text = f"{self.family.name_of(self.spec)} {'x'.join(map(str, self.shape))}{lies}{stated}"
            object.__setattr__(self, "name", text)
        _ = self.extents

    @cached_property
    def extents(self) -> Extents:
        """The problem's sizes, runtime parameters included."""
        sizes = extents_of(self.family, self.spec, self.shape)
        if self.gap:
            first = self.inputs[0]
            size = first.dtype.size
            strides = dense_strides((*self.shape[:-1], self.shape[-1] + self.gap), size)
            sizes = self.family.extents(self.spec, {first.name: Layout(self.shape, strides, first.dtype.numpy, size)})
        return {**sizes, **checked_runtime_parameters(self.family, self.spec, self.runtime_parameters)}

    @property
    def problem(self) -> Problem:
        """The case as a problem whose winner is for these sizes alone."""
        region = Region.exactly(sizes_of(self.family, self.spec, self.extents, self.alignment))
        return Problem(self.family, self.spec, self.extents, self.alignment, region)

    @property
    def alignment(self) -> int:
        """The most bytes, up to 16, that divide the address of every array."""
        return gcd(WIDEST, self.offset * self.inputs[0].dtype.size)

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The arrays that a call is given, those that it changes in place included."""
        return tuple(operand for operand in self.spec.operands if operand.role in ("in", "inout"))

    @property
    def results(self) -> tuple[Operand, ...]:
        """The arrays that a call writes."""
        return tuple(operand for operand in self.spec.operands if operand.role in ("out", "inout"))

    @property
    def result_dtypes(self) -> tuple[DType, ...]:
        """Of the elements of each result, as libraries see them."""
        return tuple(number_type(operand.dtype) for operand in self.results)

    @cached_property
    def layouts(self) -> Mapping[str, Layout]:
        """How every array lies in memory as the family sees it; that of the first input may have fewer axes."""
        return self.family.layouts(self.spec, self.extents)

    @property
    def dtype(self) -> DType:
        """Of the first input's elements, as libraries see them."""
        return number_type(self.inputs[0].dtype)

    @property
    def elements(self) -> int:
        """Of the first input."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Of the first input."""
        return self.elements * self.dtype.size

    @property
    def provable(self) -> ComparisonCase:
        """The case at the nearest sizes at which NumPy computes it in seconds: itself, or a smaller one."""
        extents = self.family.sizes_for_numpy(self.spec, self.extents)
        if extents == self.extents:
            return self
        shape = self.family.layouts(self.spec, extents)[self.inputs[0].name].shape
        stated = {name: extents[name] for name in self.runtime_parameters}
        return replace(self, shape=shape, runtime_parameters=stated, name="")
