"""What a stencil must give: the kernel in double is what NumPy says, and so sharp that no fault passes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import stencils as module
from bench.cases import public_cases, sweep
from bench.stencils import (
    StencilChecks,
    begin_text,
    corners,
    exact,
    step_text,
    steps_of,
    window,
)
from gen.compare.case import ComparisonCase
from gen.compare.checks import Rounding, stepped
from gen.compare.peers.base import Contender
from gen.dtypes import F16, F32, F64, DType
from gen.errors import RunError
from gen.families.base import Array
from gen.families.stencil import StencilSpec
from tests.fake_comparison import FakeGpu, run_on_host, view

Step = Callable[[Array], Array]
SOLID = (24, 20, 28)
MODEL, SMALLER = (112, 96), (64, 56)  # by the radius: so wide that 1,000 steps do not make all cells equal


def spec_of(case: ComparisonCase) -> StencilSpec:
    assert isinstance(case.spec, StencilSpec)
    return case.spec


def _stencils() -> Iterator[ComparisonCase]:
    """Every public stencil, at the size of a model.

    A frozen rim settles a model of this size long before 1,000 steps, which it does not at the public size: far from
    the rim that is the field that `wrap` has. Doubles, whose bounds are the sharpest, and what takes NumPy longest, a
    radius of 2 and three axes, are left out there.
    """
    found = {}
    for case in public_cases():
        if case.family.name == "stencil":
            spec, many = spec_of(case), steps_of(case) == 1000
            if many and (spec.dtype == F64 or spec.before[0] > 1 or len(spec.axes) > 2):
                continue
            spec = replace(spec, boundary="wrap") if many else spec
            shape = SOLID if len(spec.axes) > 2 else MODEL if spec.before[0] > 1 else SMALLER
            name = f"{spec.word} {spec.dtype.name} {spec.boundaries[0]} x{steps_of(case)}"
            found[name] = ComparisonCase(case.family, spec, shape, case.runtime_parameters, name)
    return iter(found.values())


def stepping(spec: StencilSpec, weights: Array, shape: tuple[int, ...]) -> Step:
    """A step as a contender does it: weights, products and sums all rounded to the type of the cells."""
    number, radius = spec.dtype.numpy.type, spec.before[0]
    frozen = np.zeros(shape, bool)
    if spec.boundaries[0] == "frozen":
        frozen[...] = True
        frozen[(slice(radius, -radius),) * len(shape)] = False

    def step(cells: Array) -> Array:
        around = np.pad(cells, radius, "wrap")
        total = np.zeros_like(cells)
        for (offset, _), weight in zip(spec.taps, weights, strict=True):
            starts = (radius + move for move in offset)
            near = tuple(slice(start, start + extent) for start, extent in zip(starts, shape, strict=True))
            total += number(weight) * around[near]
        return np.asarray(np.where(frozen, cells, total))

    return step


@pytest.mark.parametrize(
    "case",
    [
        # The widest of three axes takes longer than all others together.
        pytest.param(case, id=case.name, marks=[pytest.mark.exhaustive] * (spec_of(case).word == "star3d4r"))
        for case in _stencils()
    ],
)
def test_a_step_too_few_or_mirrored_is_found_and_roundings_are_not(case: ComparisonCase) -> None:
    spec, gpu = spec_of(case), FakeGpu()
    source = gpu.random(case.shape, case.dtype, 1)
    checks = StencilChecks(gpu, case, [source])
    weights = np.array([weight for _, weight in spec.taps])
    step, mirrored = (stepping(spec, one, case.shape) for one in (weights, weights[::-1]))

    def wrong(cells: Array) -> str | None:
        made = gpu.array(case.shape, case.dtype)
        view(made)[...] = cells
        return checks.wrong(Contender(lambda: [made]), lambda *_: Contender(list))

    first = last = cells = view(source).copy()
    for _ in range(steps_of(case)):
        last, cells = cells, step(cells)
    assert wrong(cells) is None
    assert "cells are wrong" in str(wrong(last)), "a step too few"
    assert "cells are wrong" in str(wrong(step(cells))), "a step too many"
    assert "cells are wrong" in str(wrong(mirrored(last))), "its last step mirrored"
    assert "cells are wrong" in str(wrong(first * np.nan))
    spoiled = cells.copy()
    spoiled[(5, 7, 9)[: len(case.shape)]] = np.nan
    assert wrong(spoiled) == "out: 1 cells are wrong"


SMALL = (
    sweep("star", 1, F32, (9, 35), steps=2),
    sweep("box", 2, F16, (11, 13), "wrap"),
)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_the_kernels_text_does_what_numpy_does(case: ComparisonCase, gpu_on_host: FakeGpu) -> None:
    source = gpu_on_host.random(case.shape, case.dtype, 1)
    found = exact(gpu_on_host, case, source)  # which looks at windows by NumPy
    value, off = window(gpu_on_host, case, source, (0,) * len(case.shape))
    size = value.shape
    assert np.allclose(view(found.value)[tuple(map(slice, size))], value, rtol=1e-13, atol=1e-13)
    assert np.allclose(view(found.off)[tuple(map(slice, size))], off, rtol=1e-13, atol=0)


@pytest.fixture
def gpu_on_host(cache: Path) -> FakeGpu:
    """A device that runs the very text, every access checked."""

    class Host(FakeGpu):
        def compile(self, name: str, source: str) -> Callable[..., None]:
            return lambda _, grid, block, arguments: run_on_host(self, name, source, grid, block, arguments)

    return Host(cache=cache)


@pytest.mark.parametrize("boundary", ["frozen", "wrap"])
def test_windows_are_parts_of_the_whole(boundary: str) -> None:
    case = sweep("star", 2, F32, (90, 61), "wrap" if boundary == "wrap" else "frozen", 5)
    gpu = FakeGpu()
    source = gpu.random(case.shape, case.dtype, 1)
    found = exact(gpu, case, source)
    assert len(list(corners(case.shape))) == 9
    for corner in corners(case.shape):
        value, off = window(gpu, case, source, corner)
        at = tuple(slice(start, start + module.WINDOW) for start in corner)
        assert np.allclose(view(found.value)[at], value, rtol=1e-12, atol=1e-12)
        assert np.allclose(view(found.off)[at], off, rtol=1e-12, atol=0)


@pytest.mark.parametrize("step", [3, 16])
def test_a_kernel_in_double_that_is_wrong_is_not_believed(step: int) -> None:
    case = sweep("star", 1, F32, (80, 70), steps=40)
    steps = 0

    class Spoiled(FakeGpu):
        def compile(self, name: str, source: str) -> Callable[..., None]:
            launch = super().compile(name, source)

            def spoiled(*arguments: object) -> None:
                nonlocal steps
                steps += "GEN_STEP" in source
                if steps != step:
                    launch(*arguments)

            return spoiled

    gpu = Spoiled()
    with pytest.raises(RunError, match="must be NumPy's in the window at"):
        exact(gpu, case, gpu.random(case.shape, case.dtype, 1))


def test_the_bound_is_that_of_one_rounding_for_one_step_and_nothing_on_the_rim() -> None:
    spec = spec_of(sweep("star", 1, F32, (5, 5)))
    cells = np.full((5, 5), 8.0)
    frozen = np.zeros((5, 5), bool)
    value, off = stepped(spec, Rounding.of(spec), cells, np.zeros((5, 5)), frozen)
    assert np.allclose(value, 8)
    assert (off < 8 * 8 * F32.unit_roundoff).all()
    assert (off > 8 * 7 * F32.unit_roundoff).all()
    _, off = stepped(spec, Rounding.of(spec), cells, np.zeros((5, 5)), ~frozen)
    assert not off.any()


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=lambda dtype: dtype.name)
def test_a_dtype_of_another_process_begins_alike(dtype: DType) -> None:
    assert begin_text(pickle.loads(pickle.dumps(dtype))) == begin_text(dtype)
    assert ("NUMBER double" in begin_text(dtype)) == (dtype is F64)


def test_the_text_names_what_it_computes() -> None:
    text = step_text(sweep("star", 1, F32, (7, 9), "wrap"))
    assert "#define kExtents 7, 9\n" in text
    assert "#define kFrozen 0\n" in text
