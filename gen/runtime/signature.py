"""The arguments of a call, checked against a spec's operands before anything is launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import gcd, prod
from numbers import Real
from typing import Any

import numpy as np

from gen.errors import ArgumentError, ShapeError
from gen.families.base import WIDEST, Extents, Family, Layout, Operand, Spec
from gen.families.extents import PASS_ANOTHER, beyond_memory, checked_runtime_parameters, dense
from gen.gpu.device import Device
from gen.runtime.arrays import Given, Kind, Shape, lies_on_itself, overlap, read


def pack(operand: Operand, value: Any) -> bytes:
    """A number's bytes. Raises ArgumentError if its type does not hold the value; floats are rounded."""
    dtype = operand.dtype
    rule = f"must be a number that {dtype.name} holds"
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | np.number):
        raise ArgumentError(operand.name, rule, repr(value))
    number: Any = value
    try:
        if dtype.kind == "float":
            with np.errstate(over="raise"):
                return np.array(number, dtype.numpy).tobytes()
        if int(number) == number:
            return np.array(int(number), dtype.numpy).tobytes()
    except (OverflowError, FloatingPointError, ValueError, TypeError) as error:
        raise ArgumentError(operand.name, rule, repr(value)) from error
    raise ArgumentError(operand.name, rule, repr(value))


ALIGNMENT = 32  # bytes: the widest vector of any GPU
Results = Mapping[str, tuple[Shape, np.dtype[Any]]]
"""Shape and dtype of every output by name."""


class Signature:
    """What a spec takes and gives.

    Attributes:
        name: the spec's name.
        inputs: arrays that a call must bring, those changed in place among them.
        outputs: arrays that a call makes, or is given by `out=`.
        arrays: both.
        numbers: operands that are numbers.
        runtime_parameters: extents that a call states by name, with their values where it does not.
        measured: those of them that inputs have as axes, so that a call need not state them.
    """

    def __init__(self, family: Family[Any], spec: Spec) -> None:
        self._family = family
        self._spec = spec
        self.name = family.name_of(spec)
        self.inputs = tuple(x for x in spec.operands if x.role in ("in", "inout"))
        self.outputs = tuple(x for x in spec.operands if x.role == "out")
        self.arrays = self.inputs + self.outputs
        self.numbers = tuple(x for x in spec.operands if x.role == "number")
        self.runtime_parameters = dict(family.runtime_parameters(spec))
        self.measured = frozenset(axis for x in self.inputs for axis in x.axes if axis in self.runtime_parameters)

    def checked_runtime_parameters(self, numbers: dict[str, Any]) -> dict[str, int]:
        """Takes the runtime parameters out of the numbers of a call. Raises ArgumentError for a wrong value.

        One that an input has as an axis, and that is not stated, is left out.
        """
        if not self.runtime_parameters:
            return {}
        stated = {name: numbers.pop(name) for name in self.runtime_parameters if name in numbers}
        found = checked_runtime_parameters(self._family, self._spec, stated)
        return {name: value for name, value in found.items() if name in stated or name not in self.measured}

    def sort(self, arguments: Sequence[Any], numbers: dict[str, Any]) -> tuple[Sequence[Any], dict[str, bytes]]:
        """Arrays, and numbers as their types store them. Raises ArgumentError for too few, too many or unknown ones."""
        count, most = len(self.inputs), len(self.inputs) + len(self.numbers)
        wanted = ", ".join(x.name for x in (*self.inputs, *self.numbers))
        if not count <= len(arguments) <= most:
            rule = f"takes {count} arguments" if count == most else f"takes {count} to {most} arguments"
            raise ArgumentError(self.name, f"{rule}: {wanted}", len(arguments))
        if not self.numbers and not numbers:
            return arguments, {}
        by_name = dict(zip((x.name for x in self.numbers), arguments[count:], strict=False))
        for name in numbers:
            if name in by_name or not any(x.name == name for x in self.numbers):
                takes = ", ".join((wanted, *self.runtime_parameters))
                rule = "is given twice" if name in by_name else f"is no number of this kernel, which takes {takes}"
                raise ArgumentError(name, rule)
        by_name |= numbers
        for operand in self.numbers:
            if operand.name not in by_name:
                raise ArgumentError(operand.name, "is missing", next_step=f"{self.name} takes {wanted}")
        return arguments[:count], {x.name: pack(x, by_name[x.name]) for x in self.numbers}

    def outs(self, out: Any) -> Sequence[Any]:
        """What `out=` gives for each output; None for those not given. Raises ArgumentError unless they match."""
        if out is None:
            return (None,) * len(self.outputs)
        outs = out if isinstance(out, tuple | list) else (out,)
        if len(outs) != len(self.outputs):
            names = ", ".join(x.name for x in self.outputs) or "none, since it works in place"
            for place, one in enumerate(outs):
                if one is not None:
                    read(f"out[{place}]", one)  # what is no array is not to be counted as one
            rule = f"must be as many arrays as there are outputs: {names}"
            next_step = "Pass them in this order, or no out=: then they are made" if self.outputs else "Leave out= out"
            raise ArgumentError("out", rule, len(outs), next_step=next_step)
        return outs

    def check_kinds(self, given: Mapping[str, Given], device: Device) -> bool:
        """Whether all are on the host. Raises ArgumentError where some are, or one cannot be written or reached."""
        host = [one.host is not None for one in given.values()]
        for operand in self.arrays:
            one = given.get(operand.name)
            if one is None:
                continue
            if one.kind is Kind.HOST and device.index >= 0:
                rule = "must be a NumPy array or lie on a GPU"
                next_step = 'Move it there, or take the CPU run: gen.load(..., device="cpu"), or GEN_DEVICE=cpu'
                raise ArgumentError(operand.name, rule, one.described, next_step=next_step)
            if operand.role != "in" and not one.writable:
                raise ArgumentError(operand.name, "must be writable", "a read-only array")
            if operand.role != "in" and getattr(one.array, "requires_grad", False):  # of torch, while it records none
                rule = "must not require gradients, as torch does not see what a kernel writes"
                raise ArgumentError(operand.name, rule, next_step=f"Pass {operand.name}.detach()")
            if any(host):
                if not all(host):
                    first = given[self.inputs[0].name]
                    others = next(x for x in given if (given[x].host is None) != (first.host is None))
                    rule = f"must be where {self.inputs[0].name} is: NumPy arrays and arrays on a GPU do not mix"
                    raise ArgumentError(others, rule, given[others].kind.value)
                continue
            if 0 not in one.shape or one.device is not None:  # of what is empty, results need not be
                found = device.device_of(one.address) if one.device is None else one.device
                if found != device.index:
                    where = "no memory of a GPU" if found is None else f"device {found}"
                    rule, next_step = f"must be on device {device.index}, {device.name}", _elsewhere(found, device)
                    raise ArgumentError(operand.name, rule, where, next_step=next_step)
        return any(host)

    def check_overlap(self, given: Mapping[str, Given]) -> None:
        """Raises ArgumentError if what is written shares an element with another array."""
        for one, other in combinations(self.arrays, 2):
            if "in" == one.role == other.role or one.name not in given or other.name not in given:
                continue
            if overlap(given[one.name], given[other.name]):
                raise ArgumentError(other.name, f"must not overlap {one.name}", hex(given[other.name].address))

    def check(self, given: Mapping[str, Given], runtime_parameters: Mapping[str, int]) -> tuple[Extents, Results]:
        """The problem's sizes and its results. Raises ShapeError if an array is not what its operand says."""
        for name, one in given.items():
            if beyond_memory(one.shape, one.dtype.itemsize):
                rule = "must be of less than 2^63 bytes, as kernels count in 64 bits and extents of 0 as 1"
                raise ShapeError(name, rule, one.shape, next_step="Pass it in parts")
        # In the order of the spec's operands, so that errors name the first that is wrong.
        layouts = {x.name: _layout(x, given[x.name]) for x in self._spec.operands if x.name in given}
        extents = {**self._family.extents(self._spec, layouts), **runtime_parameters}
        self._check_stated(given, runtime_parameters)
        expected = self._family.layouts(self._spec, extents)
        results = {x.name: (expected[x.name].shape, self._result_dtype(x, layouts)) for x in self.outputs}
        for name, (shape, dtype) in results.items():
            if name in given and given[name].shape != shape:
                raise ShapeError(name, f"must have shape {shape}", given[name].shape, next_step=PASS_ANOTHER)
            if name in given and given[name].dtype != dtype:
                rule = f"must hold {dtype} elements"
                raise ShapeError(name, rule, given[name].dtype, next_step=PASS_ANOTHER)
        return extents, results

    def _check_stated(self, given: Mapping[str, Given], runtime_parameters: Mapping[str, int]) -> None:
        """Raises ShapeError if an input has other than what the call says of it."""
        for name in self.measured & runtime_parameters.keys():
            for operand in (x for x in self.inputs if name in x.axes):
                shape = given[operand.name].shape
                if shape[operand.axes.index(name)] != runtime_parameters[name]:
                    rule = f"must have {runtime_parameters[name]} {name}, as the call says"
                    raise ShapeError(operand.name, rule, shape)

    def alignment(self, given: Mapping[str, Given]) -> int:
        """The most bytes, up to 16, that divide the addresses of all arrays but those of a few bytes.

        Outputs that the call makes lie where they should.
        """
        large = [one for one in given.values() if prod(one.shape) * one.dtype.itemsize > WIDEST]
        return gcd(WIDEST, *(one.address for one in large))

    def _result_dtype(self, operand: Operand, layouts: Mapping[str, Layout]) -> np.dtype[Any]:
        """The operand's; elements that are only moved keep the type that the input gave them."""
        if operand.dtype.kind == "bits":
            for other in self.inputs:
                if other.dtype == operand.dtype:
                    return layouts[other.name].dtype
        return operand.dtype.numpy


def _elsewhere(found: int | None, device: Device) -> str:
    """What to do with an array that lies on another device, or on none that the driver knows."""
    if device.index < 0:
        return "Copy it to the host: the CPU run takes arrays of NumPy"
    there = "" if found is None else f", or call the kernel of that GPU: gen.load(..., device={found})"
    return f"Copy it there{there}"


def _layout(operand: Operand, given: Given) -> Layout:
    if given.host is not None:  # what kernels read and write then is a dense copy, whatever the strides
        if operand.role != "in" and lies_on_itself(given):
            rule = "must have elements that do not overlap each other"
            raise ShapeError(operand.name, rule, f"strides {given.strides}", next_step=PASS_ANOTHER)
        return replace(dense(operand, given.shape), dtype=given.dtype)
    alignment = int(np.gcd.reduce([ALIGNMENT, given.address % ALIGNMENT, *given.strides]))
    return Layout(given.shape, given.strides, given.dtype, alignment)
