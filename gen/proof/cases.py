"""The problems that variants are proven on: sizes, how arrays lie in memory, what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import cycle
from typing import Any

import numpy as np

from gen.dtypes import DType
from gen.families.base import Array, Extents, Family, Layout, Spec

MARGIN = 256  # bytes kept free before and after each array


class Content(Enum):
    """What arrays hold. Bits are always random."""

    RANDOM = "random"  # normal deviates
    INTEGERS = "integers"  # non-zero, -8 to 8: every partial sum is exact, so one dropped element shows
    SPREAD = "spread"  # magnitudes over 2^-60 to 2^60
    SPECIAL = "special"  # NaN and infinities among normal deviates


@dataclass(frozen=True)
class Case:
    """One problem.

    Attributes:
        extents: its sizes.
        content: what its inputs hold.
        seed: of their random numbers.
        offset: elements between a 256-byte boundary and the first array; the k-th begins k times that, modulo 4.
        sm_count: multiprocessors of the device that is played; few make grid-stride loops go round.
    """

    extents: Extents
    content: Content = Content.RANDOM
    seed: int = 0
    offset: int = 0
    sm_count: int = 132

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} {extent}" for name, extent in self.extents.items())
        return f"{sizes}; {self.content.value} seed {self.seed}; offset {self.offset}; {self.sm_count} multiprocessors"


def cases_of(family: Family[Any], spec: Spec) -> Iterator[Case]:
    """The family's awkward sizes, each with exact integers and with another content.

    The two differ in where arrays begin and in the device too: also the smallest sizes meet more than one.
    """
    others = cycle((Content.RANDOM, Content.SPREAD, Content.SPECIAL))
    devices = cycle((1, 2, 3, 132))
    for seed, extents in enumerate(family.cases(spec)):
        for place, content in enumerate((Content.INTEGERS, next(others))):
            yield Case(extents, content, seed, offset=(seed + place) % 4, sm_count=next(devices))


@dataclass(frozen=True)
class Block:
    """An array with the memory around it.

    Attributes:
        array: the view that a kernel is given.
        memory: all bytes, margins and the gaps of a pitch included.
    """

    array: Array
    memory: Array = field(repr=False)

    def outside(self) -> Array:
        """A copy of all bytes, those of the array itself set to 0."""
        bytes_around = self.memory.copy()
        start = self.array.__array_interface__["data"][0] - self.memory.__array_interface__["data"][0]
        itemsize = self.array.dtype.itemsize
        inside: Array = np.ndarray(
            (*self.array.shape, itemsize), np.uint8, bytes_around.data, start, (*self.array.strides, 1)
        )
        inside[...] = 0
        return bytes_around


def allocate(layout: Layout, offset: int, fill: int) -> Block:
    """An array of this layout, `offset` elements after a 256-byte boundary, every byte of its memory set to `fill`."""
    size = layout.dtype.itemsize
    span = size + sum((extent - 1) * stride for extent, stride in zip(layout.shape, layout.strides, strict=True))
    if 0 in layout.shape:
        span = size
    total = 2 * MARGIN + offset * size + span + 256
    memory = np.full(total, fill, np.uint8)
    address = memory.__array_interface__["data"][0]
    start = MARGIN + (-(address + MARGIN)) % 256 + offset * size
    array: Array = np.ndarray(layout.shape, layout.dtype, buffer=memory.data, offset=start, strides=layout.strides)
    return Block(array, memory)


def fill(array: Array, dtype: DType, content: Content, seed: int) -> None:
    """Sets an array to random data, never zeros."""
    random = np.random.default_rng(seed)
    if dtype.kind != "float":
        bits = random.integers(1, 256, (*array.shape, array.dtype.itemsize), np.uint8)
        array[...] = bits.reshape(-1).view(array.dtype).reshape(array.shape)
        return
    values: Array = np.asarray(random.standard_normal(array.shape))
    if content is Content.INTEGERS:
        values = np.asarray(random.integers(1, 9, array.shape) * random.choice((-1.0, 1.0), array.shape))
    elif content is Content.SPREAD:
        values = np.ldexp(values, random.integers(-60, 61, array.shape))
    elif content is Content.SPECIAL and array.size:
        values.reshape(-1)[random.integers(0, array.size, 2)] = random.choice((np.nan, np.inf, -np.inf), 2)
    array[...] = values
