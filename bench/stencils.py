"""What a stencil must give at full size and after all of its steps: in double on the device, NumPy looking on.

A plain kernel steps the cells in double, and beside each how far a contender may be off by then, as
`gen.compare.checks` has it.

The kernel is nobody's contender, and NumPy computes the same in windows at the corners, the rims, and the centre of the
full array: `window` says after how many steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np

from bench.gpu import BenchGpu
from gen.compare.case import ComparisonCase, Shape
from gen.compare.checks import Checks, Prepare, Rounding, misshapen, stepped, wherever
from gen.compare.peers.base import Contender, SharedArray
from gen.compare.peers.base import window as slices
from gen.dtypes import F64, I64, DType
from gen.errors import RunError
from gen.families.base import Array
from gen.families.stencil import StencilSpec
from gen.proof.error_bounds import Allowance
from gen.runtime.arrays import read

WINDOW = 24  # cells along each side of a window
WINDOW_STEPS = 16  # after which NumPy looks
BLOCK = (64, 4, 1)
NAME = "gen_exact"
_HEADER = {"f16": "#include <cuda_fp16.h>\n"}
_THE_BOUND = Allowance(1.0, 0.0, 0.0, inf)  # what lies beside each value is the bound itself


class StencilChecks(Checks):
    """Checks results of the public stencils at every cell of the full size, beside what `Checks` does with ours."""

    def __init__(self, gpu: BenchGpu, case: ComparisonCase, inputs: Sequence[SharedArray]) -> None:
        """Asks NumPy, and steps the cells in double."""
        super().__init__(gpu, case, inputs)
        self._full, self._bench_gpu = case, gpu
        self._right = exact(gpu, case, inputs[0])
        steps = min(steps_of(case), WINDOW_STEPS)
        after = f"after {steps} steps" if steps < steps_of(case) else "after all steps"
        self.note = f"checked against a plain kernel in double, and that against NumPy in windows {after}"

    def wrong(self, contender: Contender, prepare: Prepare, *, roundings: int | None = None) -> str | None:
        """What is wrong with a contender's results, in words; ours, of known roundings, at a smaller size too."""
        reason = None if roundings is None else super().wrong(contender, prepare, roundings=roundings)
        return reason or wherever(contender, self._wrong_cells)

    def differences(self, results: Sequence[Any]) -> list[str]:
        """None: a result of another type is wrong."""
        return []

    def _wrong_cells(self, results: Sequence[Any]) -> str | None:
        (out,) = self._full.results
        if len(results) != 1:
            return f"it gave {len(results)} results, not 1"
        given = read(out.name, results[0])
        reason = misshapen(given, self._full.shape)
        if reason is None and not out.dtype.holds(given.dtype):
            reason = f": it holds {given.dtype}"
        if reason is None:
            right, size = self._right, prod(self._full.shape)
            count = self._bench_gpu.beyond(
                given.address, out.dtype, size, right.value.address, right.off.address, _THE_BOUND
            )
            reason = f": {count} cells are wrong" if count else None
        return None if reason is None else f"{out.name}{reason}"


def checks_of(gpu: BenchGpu, case: ComparisonCase, inputs: Sequence[SharedArray]) -> Checks:
    """What checks the results of a case: of a stencil at every cell, where its kernel in double computes it."""
    known = isinstance(case.spec, StencilSpec) and is_plain(case.spec)
    return (StencilChecks if known else Checks)(gpu, case, inputs)


def is_plain(spec: StencilSpec) -> bool:
    """Whether one radius and one boundary, `frozen` or `wrap`, say all of what lies around the weights."""
    return len({*spec.before, *spec.after}) == 1 and not spec.differ and spec.boundaries[0] in ("frozen", "wrap")


def steps_of(case: ComparisonCase) -> int:
    """How many time steps a call takes."""
    return case.runtime_parameters.get("steps", 1)


def macros_of(case: ComparisonCase) -> dict[str, str]:
    """What kernels read of a plain stencil: as the texts of `stencils.cu` and `peers/plain.cu` name it."""
    spec = case.spec
    assert isinstance(spec, StencilSpec)
    return {
        "kDim": str(len(spec.axes)), "kTaps": str(len(spec.taps)), "kRadius": str(spec.before[0]),
        "kFrozen": str(int(spec.boundaries[0] == "frozen")), "kExtents": listed(case.shape),
        "kOffsets": ", ".join(f"{{{listed(offset)}}}" for offset, _ in spec.taps),
        "kWeights": ", ".join(repr(weight) for _, weight in spec.taps),
    }  # fmt: skip


def listed(numbers: Sequence[int]) -> str:
    """Numbers as C++ lists them."""
    return ", ".join(map(str, numbers))


@dataclass(frozen=True)
class Cells:
    """Cells in double on the GPU, and how far each may be off."""

    value: SharedArray
    off: SharedArray


def exact(gpu: BenchGpu, case: ComparisonCase, source: SharedArray) -> Cells:
    """The cells after all steps.

    Raises RunError if NumPy computes other ones in a window.
    """
    now, other = (Cells(gpu.array(case.shape, F64), gpu.array(case.shape, F64)) for _ in range(2))
    rows, cols = case.elements // case.shape[-1], case.shape[-1]
    begin = gpu.compile(NAME, begin_text(case.dtype))
    step = gpu.compile(NAME, step_text(case))
    threads = prod(BLOCK)
    begin(
        0, (-(-case.elements // threads), 1, 1), (threads, 1, 1),
        [source.address, now.value.address, now.off.address, (I64, case.elements)],
    )  # fmt: skip
    grid = (-(-cols // BLOCK[0]) * -(-rows // BLOCK[1]), 1, 1)
    looked_at = min(steps_of(case), WINDOW_STEPS)
    for done in range(1, steps_of(case) + 1):
        arrays = [now.value.address, now.off.address, other.value.address, other.off.address]
        step(0, grid, BLOCK, [*arrays, (I64, rows), (I64, cols)])
        now, other = other, now
        if done == looked_at:
            _look(gpu, replace(case, runtime_parameters={"steps": done}), source, now)
    return now


def begin_text(dtype: DType) -> str:
    """The text of a kernel that widens the cells. Only f64 is read as a double: f16 converts to float alone."""
    # By value: a dtype that came from another process is equal to F64, and not the same object.
    number = "double" if dtype == F64 else "float"
    return _HEADER.get(dtype.name, "") + _defined({"GEN_BEGIN": "", "ELEMENT": dtype.cuda, "NUMBER": number})


def step_text(case: ComparisonCase) -> str:
    """The text of a kernel that does a step."""
    assert isinstance(case.spec, StencilSpec)
    rounding = Rounding.of(case.spec)
    bound = {"kRelative": repr(rounding.relative), "kAbsolute": repr(rounding.absolute)}
    return _defined({"GEN_STEP": "", **macros_of(case), **bound})


def window(
    gpu: BenchGpu, case: ComparisonCase, source: SharedArray, corner: Sequence[int]
) -> tuple[Array, Array]:  # fmt: skip
    """By NumPy: the cells of a window from `corner` on after all steps, and how far they may be off.

    Cells around it are read as far as they reach it: the radius times the steps.
    """
    spec = case.spec
    assert isinstance(spec, StencilSpec)
    radius, axes = spec.before[0], len(spec.axes)
    halo = radius * steps_of(case)
    places = [
        np.arange(start - halo, start + min(WINDOW, extent) + halo)
        for start, extent in zip(corner, case.shape, strict=True)
    ]
    # Around the corner lies the other side; beyond a frozen rim it is never read.
    around = [at % extent for at, extent in zip(places, case.shape, strict=True)]
    value = cells(gpu, source, around).astype(np.float64)
    frozen = np.zeros(value.shape, bool)
    if spec.boundaries[0] == "frozen":
        for axis, (at, extent) in enumerate(zip(places, case.shape, strict=True)):
            rim = (at < radius) | (at >= extent - radius)
            frozen |= rim.reshape([-1 if other == axis else 1 for other in range(axes)])
    off, rounding = np.zeros(value.shape), Rounding.of(spec)
    for _ in range(steps_of(case)):
        value, off = stepped(spec, rounding, value, off, frozen)
        frozen = frozen[slices(spec, (0,) * axes)]
    return value, off


def cells(gpu: BenchGpu, array: SharedArray, places: Sequence[Array]) -> Array:
    """The elements of an array at the places along each axis."""
    *lead, last = places
    lines = np.ravel_multi_index(np.ix_(*lead), array.shape[:-1]) if lead else np.zeros(1, np.int64)
    size = array.shape[-1] * array.element.size
    found = [gpu.download(array.address + int(line) * size, size).view(array.dtype)[last] for line in lines.ravel()]
    return np.stack(found).reshape([len(at) for at in places])


def corners(shape: Shape) -> Iterator[tuple[int, ...]]:
    """Where windows begin: at the start, the middle, and the end of each axis."""
    sides = [sorted({0, (extent - min(WINDOW, extent)) // 2, extent - min(WINDOW, extent)}) for extent in shape]
    yield from product(*sides)


def _look(gpu: BenchGpu, case: ComparisonCase, source: SharedArray, now: Cells) -> None:
    for corner in corners(case.shape):
        at = [np.arange(start, start + min(WINDOW, extent)) for start, extent in zip(corner, case.shape, strict=True)]
        value, off = window(gpu, case, source, corner)
        for name, right, got in (("cells", value, now.value), ("bounds", off, now.off)):
            found = cells(gpu, got, at)
            slack = 1e-12 * max(float(np.abs(right).max(initial=0.0)), 1e-300)  # both are doubles
            if not (np.abs(found - right) <= slack).all():
                raise RunError(
                    f"The {name} of {case.name} in double", f"must be NumPy's in the window at {corner}",
                    next_step="Report a bug",
                )  # fmt: skip


def _defined(macros: dict[str, str]) -> str:
    defines = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    return defines + (files("bench") / "stencils.cu").read_text(encoding="utf-8")
