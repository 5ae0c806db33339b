"""What a stencil must give at full size and after all of its steps: in double on the device, NumPy looking on.

A plain kernel steps the cells in double, and beside each how far a contender may be off by then. A step adds up k
products; each term passes at most k + 2 roundings: of its weight, of the product, of k - 1 additions, and of what is
stored between steps. So what is new is within gamma_(k+2) times the sum of |w u| of that very cell (Higham, Accuracy
and Stability of Numerical Algorithms, section 3.1), and what the neighbours were off by passes on through the weights.
Cells decay as they are smoothed, and the bound with them: one step more or less shows, as does one mirrored step.

The kernel is nobody's contender, and NumPy computes the same in windows at the corners, the rims, and the centre of the
full array: `window` says after how many steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import product
from math import prod
from typing import Protocol

import numpy as np

from bench.arrays import Shared
from bench.peers.base import Place
from bench.works import Case, Shape, Sweep
from gen.dtypes import F64, DType
from gen.errors import RunError
from gen.families.base import Array
from gen.proof.oracle import gamma

WINDOW = 24  # cells along each side of a window
WINDOW_STEPS = 16  # after which NumPy looks
BLOCK = (64, 4, 1)
NAME = "gen_exact"
_HEADER = {"f16": "#include <cuda_fp16.h>\n"}


class Memory(Place, Protocol):
    """The device, as stepping needs it."""

    def download(self, address: int, size: int) -> Array:
        """Bytes from the device, after all that is queued."""
        ...


@dataclass(frozen=True)
class Rounding:
    """What a step costs: `relative` of the sum of |w u|, and `absolute`, for what underflows."""

    relative: float
    absolute: float

    @classmethod
    def of(cls, work: Sweep, dtype: DType) -> Rounding:
        """That of any contender that steps in a type; and of the double that says what is right."""
        roundings = len(work.taps) + 2
        relative = gamma(roundings, dtype.unit_roundoff) + gamma(roundings, F64.unit_roundoff)
        return cls(relative, roundings * dtype.smallest)


@dataclass(frozen=True)
class Cells:
    """Cells in double on the device, and how far each may be off."""

    value: Shared
    off: Shared


def exact(place: Memory, case: Case, source: Shared) -> Cells:
    """The cells after all steps.

    Raises RunError if NumPy computes other ones in a window.
    """
    work = case.work
    assert isinstance(work, Sweep)
    now, other = (Cells(place.array(case.shape, F64), place.array(case.shape, F64)) for _ in range(2))
    rows, cols = case.elements // case.shape[-1], case.shape[-1]
    begin = place.compile(NAME, begin_text(case.dtype))
    step = place.compile(NAME, step_text(work, case.shape, Rounding.of(work, case.dtype)))
    threads = prod(BLOCK)
    begin(
        0, (-(-case.elements // threads), 1, 1), (threads, 1, 1),
        [source.address, now.value.address, now.off.address, ("q", case.elements)],
    )  # fmt: skip
    grid = (-(-cols // BLOCK[0]) * -(-rows // BLOCK[1]), 1, 1)
    looked_at = min(work.steps, WINDOW_STEPS)
    for done in range(1, work.steps + 1):
        arrays = [now.value.address, now.off.address, other.value.address, other.off.address]
        step(0, grid, BLOCK, [*arrays, ("q", rows), ("q", cols)])
        now, other = other, now
        if done == looked_at:
            _look(place, replace(case, work=replace(work, steps=done)), source, now)
    return now


def begin_text(dtype: DType) -> str:
    """The text of a kernel that widens the cells. Only f64 is read as a double: f16 converts to float alone."""
    # By value: a dtype that came from another process is equal to F64, and not the same object.
    number = "double" if dtype == F64 else "float"
    return _HEADER.get(dtype.name, "") + _defined({"GEN_BEGIN": "", "ELEMENT": dtype.cuda, "NUMBER": number})


def step_text(work: Sweep, shape: Shape, rounding: Rounding) -> str:
    """The text of a kernel that does a step."""
    macros = {
        "GEN_STEP": "", "kDim": str(work.ndim), "kTaps": str(len(work.taps)), "kRadius": str(work.radius),
        "kFrozen": str(int(work.boundary == "frozen")), "kExtents": _list(shape),
        "kOffsets": ", ".join(f"{{{_list(offset)}}}" for offset, _ in work.taps),
        "kWeights": ", ".join(repr(weight) for _, weight in work.taps),
        "kRelative": repr(rounding.relative), "kAbsolute": repr(rounding.absolute),
    }  # fmt: skip
    return _defined(macros)


def stepped(work: Sweep, rounding: Rounding, value: Array, off: Array, frozen: Array) -> tuple[Array, Array]:
    """The same step by NumPy, of all cells but those within the radius of an end; `frozen` ones stay as they are."""
    inner = _within(work, (0,) * work.ndim)
    total, error = np.zeros(value[inner].shape), np.full(value[inner].shape, rounding.absolute)
    costs = off + rounding.relative * (np.abs(value) + off)  # of a neighbour of weight 1; no weight is negative
    for offset, weight in work.taps:
        there = _within(work, offset)
        total += weight * value[there]
        error += weight * costs[there]
    stay = frozen[inner]
    return np.where(stay, value[inner], total), np.where(stay, off[inner], error)


def window(place: Memory, case: Case, source: Shared, corner: Sequence[int]) -> tuple[Array, Array]:
    """By NumPy: the cells of a window from `corner` on after all steps, and how far they may be off.

    Cells around it are read as far as they reach it: the radius times the steps.
    """
    work = case.work
    assert isinstance(work, Sweep)
    halo = work.radius * work.steps
    places = [
        np.arange(start - halo, start + min(WINDOW, extent) + halo)
        for start, extent in zip(corner, case.shape, strict=True)
    ]
    # Around the corner lies the other side; beyond a frozen rim it is never read.
    value = cells(place, source, [at % extent for at, extent in zip(places, case.shape, strict=True)]).astype(
        np.float64
    )
    frozen = np.zeros(value.shape, bool)
    if work.boundary == "frozen":
        for axis, (at, extent) in enumerate(zip(places, case.shape, strict=True)):
            rim = (at < work.radius) | (at >= extent - work.radius)
            frozen |= rim.reshape([-1 if other == axis else 1 for other in range(work.ndim)])
    off, rounding = np.zeros(value.shape), Rounding.of(work, case.dtype)
    for _ in range(work.steps):
        value, off = stepped(work, rounding, value, off, frozen)
        frozen = frozen[_within(work, (0,) * work.ndim)]
    return value, off


def cells(place: Memory, array: Shared, places: Sequence[Array]) -> Array:
    """The elements of an array at the places along each axis."""
    *lead, last = places
    cols = array.shape[-1]
    lines = np.ravel_multi_index(np.ix_(*lead), array.shape[:-1]) if lead else np.zeros(1, np.int64)
    size = cols * array.dtype.size
    found = [
        place.download(array.address + int(line) * size, size).view(array.dtype.numpy)[last] for line in lines.ravel()
    ]
    return np.stack(found).reshape([len(at) for at in places])


def corners(shape: Shape) -> Iterator[tuple[int, ...]]:
    """Where windows begin: at the start, the middle, and the end of each axis."""
    sides = [sorted({0, (extent - min(WINDOW, extent)) // 2, extent - min(WINDOW, extent)}) for extent in shape]
    yield from product(*sides)


def _look(place: Memory, case: Case, source: Shared, now: Cells) -> None:
    for corner in corners(case.shape):
        at = [np.arange(start, start + min(WINDOW, extent)) for start, extent in zip(corner, case.shape, strict=True)]
        value, off = window(place, case, source, corner)
        for name, right, got in (("cells", value, now.value), ("bounds", off, now.off)):
            found = cells(place, got, at)
            slack = 1e-12 * max(float(np.abs(right).max(initial=0.0)), 1e-300)  # both are doubles
            if not (np.abs(found - right) <= slack).all():
                raise RunError(
                    f"The {name} of {case.name} in double", f"must be NumPy's in the window at {corner}",
                    next_step="Report a bug",
                )  # fmt: skip


def _within(work: Sweep, offset: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(work.radius + step, (step - work.radius) or None) for step in offset)


def _defined(macros: dict[str, str]) -> str:
    defines = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    return defines + (files("bench") / "exact.cu").read_text(encoding="utf-8")


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
