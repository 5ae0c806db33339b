"""Sizes that break kernels: one source for Hypothesis, for `gen prove` and for what a tuner rehearses."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, Protocol

import numpy as np

from gen.arch import DEFAULT_ARCH, Limits
from gen.errors import RunError, ShapeError
from gen.families.base import Extents, Family, Spec
from gen.families.extents import shape_of

DEVICE = Limits.of(DEFAULT_ARCH)  # that is played on the CPU
MULTIPROCESSOR_COUNTS = (1, 2, 3, DEVICE.multiprocessors)  # few make grid-stride loops go round
# Where arrays begin, as `begins` has it: each alone between vectors of 16 bytes, and both. Up to 3 elements after a
# boundary, one less than such a vector holds of f32.
OFFSETS = (0, 11, 9, 4, 14, 1, 12)
MOST_GAP = 9  # elements between rows
COUNTS = (1, 0, 2, 3, 5, 8, 13)  # of what a call counts, steps for instance
# The largest extent by the number of axes: small enough for the CPU run.
_LARGEST = {0: 0, 1: 40_000, 2: 200, 3: 30}
_LARGEST_OF_MANY = 12
_TRIES = 100
_AROUND = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 4096, 8192, 16_384, 32_768)  # warps, tiles, shares
_PRIMES = (2, 3, 5, 7, 11, 13, 31, 37, 61, 67, 97, 127, 131, 193, 199, 1021, 4093, 8191, 10_007, 32_771, 39_989)


class Draw(Protocol):
    """Whoever chooses."""

    def among(self, name: str, choices: tuple[int, ...]) -> int:
        """One of these, the simplest first."""
        ...

    def size(self, name: str, largest: int) -> int:
        """An extent from 0 to `largest`: one of `awkward` as often as any other."""
        ...


class RandomDraw:
    """Chooses by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def among(self, name: str, choices: tuple[int, ...]) -> int:
        """Any of them."""
        return choices[int(self._random.integers(len(choices)))]

    def size(self, name: str, largest: int) -> int:
        """Awkward three times of four: nobody looks for a simpler one."""
        if self._random.integers(4):
            return self.among(name, awkward(largest))
        return int(self._random.integers(largest + 1))


@cache
def awkward(largest: int) -> tuple[int, ...]:
    """0, 1, primes, multiples of warps, tiles and blocks and one off, `largest` itself."""
    around = {size + near for size in _AROUND for near in (-1, 0, 1)}
    return tuple(sorted(size for size in {0, 1, largest, *_PRIMES, *around} if size <= largest))


def draw_shape(spec: Spec, draw: Draw, times: int = 1) -> Extents:
    """Every axis of a spec's operands, and pitches at least as long as their rows; `times` the size for the CPU run."""
    found: dict[str, int] = {}
    for operand in spec.operands:
        free = [axis for axis in operand.axes if isinstance(axis, str)]
        fixed = prod(axis for axis in operand.axes if isinstance(axis, int))
        for axis in free:
            if axis not in found:
                found[axis] = draw.size(axis, times * _LARGEST.get(len(free), _LARGEST_OF_MANY) // fixed)
    for operand in spec.operands:
        if operand.pitch and operand.pitch not in found:
            row = shape_of(operand, found)[-1]
            found[operand.pitch] = row + draw.among(operand.pitch, tuple(range(MOST_GAP + 1)))
    return found


def draw_extents(family: Family[Any], spec: Spec, draw: Draw) -> Extents:
    """A problem as its arrays are measured (one row, or none, has no pitch to be found), and what a call counts."""
    for _ in range(_TRIES):
        try:
            measured = family.extents(spec, family.layouts(spec, draw_shape(spec, draw)))
        except ShapeError:  # sizes that the spec refuses: the least of no elements
            continue
        return {**measured, **{name: draw.among(name, COUNTS) for name in family.counts(spec)}}
    raise RunError(family.name_of(spec), f"refuses {_TRIES} problems, one after another")
