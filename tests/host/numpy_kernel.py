"""Kernels computed by NumPy, right or wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from gen.families.base import Array, Expected, Extents, Family, Limits, Spec, Variant

Buffers = Mapping[str, Array]
Spoil = Callable[[Buffers, int], None]
"""What a kernel does wrong after it has computed: to which buffers, in which of its runs, counted from 1."""


def nothing(_buffers: Buffers, _run: int) -> None:
    """The kernel is right."""


@dataclass
class NumpyKernel:
    """Computes what the family's oracle says.

    Attributes:
        spoil: what it does wrong afterwards.
        drop_last: it reads the last element of its input as 0.
        leave: it does not write the last element of its output.
    """

    variant: Variant
    spoil: Spoil = nothing
    drop_last: bool = False
    leave: bool = False
    runs: int = 0

    def run(self, extents: Extents, buffers: Buffers) -> None:
        self.runs += 1
        family, spec = self.variant.family, self.variant.spec
        inputs = {o.name: buffers[o.name].copy() for o in spec.operands if o.role in ("in", "inout")}
        if self.drop_last:
            for array in inputs.values():
                array[last(array)] = np.zeros((), array.dtype)
        inputs |= {o.name: buffers[o.name] for o in spec.operands if o.role == "number"}
        given = tuple((name, array.shape, array.dtype, array.tobytes()) for name, array in inputs.items())
        for name, expected in _computed(family, spec, tuple(extents.items()), given).items():
            out = buffers[name]
            kept = out[last(out)].copy() if self.leave else None
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                out[...] = expected.value.astype(out.dtype) if expected.magnitude is not None else expected.value
            if kept is not None:
                out[last(out)] = kept
        self.spoil(buffers, self.runs)


@lru_cache(maxsize=8)
def _computed(
    family: Family[Any], spec: Spec, extents: tuple[tuple[str, int], ...], inputs: tuple[tuple[Any, ...], ...]
) -> Mapping[str, Expected]:
    """What the oracle says of the last problems: kernels are launched a thousand times on the same arrays."""
    arrays = {name: np.frombuffer(content, dtype).reshape(shape).copy() for name, shape, dtype, content in inputs}
    return family.oracle(spec, arrays, dict(extents))


@dataclass
class NumpyRunner:
    """Loads such kernels.

    Attributes:
        make: makes the kernel of a variant.
        loaded: every load, as (multiprocessors, names of variants).
    """

    limits: Limits
    make: Callable[[Variant], NumpyKernel] = NumpyKernel
    loaded: list[tuple[int, list[str]]] = field(default_factory=list)

    def on(self, limits: Limits) -> Self:
        return replace(self, limits=limits)

    def cannot_run(self, variant: Variant) -> str | None:
        return variant.algorithm.not_on_host

    def keep(self, variant: Variant) -> Path:
        """No text of it ran."""
        return Path(f"{variant.name}.cu")

    def load(self, variants: Sequence[Variant]) -> tuple[NumpyKernel, ...]:
        self.loaded.append((self.limits.multiprocessors, [variant.name for variant in variants]))
        return tuple(self.make(variant) for variant in variants)


def last(array: Array) -> tuple[int, ...]:
    """The index of the last element."""
    return tuple(extent - 1 for extent in array.shape)


def flip(array: Array, index: tuple[int, ...]) -> None:
    """Changes the lowest bit of an element."""
    element = bytearray(np.asarray(array[index]).tobytes())
    element[0] ^= 1
    array[index] = np.frombuffer(bytes(element), array.dtype)[0]


def beside(array: Array) -> Array:
    """The array with one more element after each row: the gap of a pitch, or what lies behind the array."""
    rows = array if array.ndim else array.reshape(1)
    shape, strides = (*rows.shape[:-1], rows.shape[-1] + 1), rows.strides
    wider: Any = np.lib.stride_tricks.as_strided(rows, shape, strides)
    return np.asarray(wider)
