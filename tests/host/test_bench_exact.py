"""What a stencil must give: the kernel in double is what NumPy says, and so sharp that no fault passes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import exact as module
from bench.arrays import Shared
from bench.cases import public_cases
from bench.exact import Rounding, begin_text, corners, exact, step_text, stepped, window
from bench.judge import CellJudge
from bench.offers import problem_of
from bench.works import Case, Sweep
from gen.dtypes import F16, F32, F64, DType
from gen.errors import RunError
from gen.families import FAMILIES
from gen.families.base import Array
from tests.fake_ring import FakeRing, run_on_host, view

Step = Callable[[Array], Array]
MODEL, SMALLER = (112, 96), (64, 56)  # by the radius: so wide that 1,000 steps do not make all cells equal


def _stencils() -> Iterator[Case]:
    """Every public stencil in two dimensions, at the size of a model.

    A frozen rim settles a model of this size long before 1,000 steps, which it does not at the public size: far from
    the rim that is the field that `wrap` has. Doubles, whose bounds are the sharpest, are left out there.
    """
    found = {}
    for case in public_cases():
        work = case.work
        if isinstance(work, Sweep) and work.ndim == 2 and (case.dtype != F64 or work.steps < 1000):
            boundary = "wrap" if work.steps == 1000 else work.boundary
            shape = MODEL if work.radius > 1 else SMALLER
            made = replace(case, work=replace(work, boundary=boundary), shape=shape)
            found[made.name] = made
    return iter(found.values())


def stepping(work: Sweep, dtype: DType, weights: Array, shape: tuple[int, ...]) -> Step:
    """A step as a contender does it: weights, products and sums all rounded to the type of the cells."""
    number = dtype.numpy.type
    frozen = np.zeros(shape, bool)
    if work.boundary == "frozen":
        frozen[...] = True
        frozen[work.radius : -work.radius, work.radius : -work.radius] = False

    def step(cells: Array) -> Array:
        around = np.pad(cells, work.radius, "wrap")
        total = np.zeros_like(cells)
        for (offset, _), weight in zip(work.taps, weights, strict=True):
            y, x = (work.radius + move for move in offset)
            total += number(weight) * around[y : y + shape[0], x : x + shape[1]]
        return np.asarray(np.where(frozen, cells, total))

    return step


@pytest.mark.parametrize("case", list(_stencils()), ids=lambda case: case.name)
def test_a_step_too_few_or_mirrored_is_found_and_roundings_are_not(case: Case) -> None:
    work = case.work
    assert isinstance(work, Sweep)
    ring = FakeRing()
    source = ring.random(case.shape, case.dtype, 1)
    right = exact(ring, case, source)
    (out,) = (one for one in problem_of(case, FAMILIES).spec.operands if one.role == "out")
    judge = CellJudge(ring, out, case.shape, right.value, right.off)
    weights = np.array([weight for _, weight in work.taps])
    step, mirrored = (stepping(work, case.dtype, one, case.shape) for one in (weights, weights[::-1]))

    def given(cells: Array) -> Shared:
        made = ring.array(case.shape, case.dtype)
        view(made)[...] = cells
        return made

    first = last = cells = view(source).copy()
    for _ in range(work.steps):
        last, cells = cells, step(cells)
    assert judge.wrong([given(cells)]) is None
    assert "cells are wrong" in str(judge.wrong([given(last)])), "a step too few"
    assert "cells are wrong" in str(judge.wrong([given(step(cells))])), "a step too many"
    assert "cells are wrong" in str(judge.wrong([given(mirrored(last))])), "its last step mirrored"
    assert "cells are wrong" in str(judge.wrong([given(first * np.nan)]))
    spoiled = cells.copy()
    spoiled[5, 7] = np.nan
    assert judge.wrong([given(spoiled)]) == "out: 1 cells are wrong"


SMALL = (
    Case(Sweep("star", 2, 1, "frozen", 2), F32, (9, 35)),
    Case(Sweep("box", 2, 2, "wrap", 1), F16, (11, 13)),
)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_the_kernels_text_does_what_numpy_does(case: Case, ring_on_host: FakeRing) -> None:
    source = ring_on_host.random(case.shape, case.dtype, 1)
    found = exact(ring_on_host, case, source)  # which looks at windows by NumPy
    value, off = window(ring_on_host, case, source, (0,) * len(case.shape))
    size = value.shape
    assert np.allclose(view(found.value)[tuple(map(slice, size))], value, rtol=1e-13, atol=1e-13)
    assert np.allclose(view(found.off)[tuple(map(slice, size))], off, rtol=1e-13, atol=0)


@pytest.fixture
def ring_on_host(cache: Path) -> FakeRing:
    """A device that runs the very text, every access checked."""

    class Host(FakeRing):
        def compile(self, name: str, source: str) -> Callable[..., None]:
            return lambda _, grid, block, arguments: run_on_host(self, name, source, grid, block, arguments)

    return Host(cache=cache)


@pytest.mark.parametrize("boundary", ["frozen", "wrap"])
def test_windows_are_parts_of_the_whole(boundary: str) -> None:
    case = Case(Sweep("star", 2, 2, "wrap" if boundary == "wrap" else "frozen", 5), F32, (90, 61))
    ring = FakeRing()
    source = ring.random(case.shape, case.dtype, 1)
    found = exact(ring, case, source)
    assert len(list(corners(case.shape))) == 9
    for corner in corners(case.shape):
        value, off = window(ring, case, source, corner)
        at = tuple(slice(start, start + module.WINDOW) for start in corner)
        assert np.allclose(view(found.value)[at], value, rtol=1e-12, atol=1e-12)
        assert np.allclose(view(found.off)[at], off, rtol=1e-12, atol=0)


@pytest.mark.parametrize("step", [3, 16])
def test_a_kernel_in_double_that_is_wrong_is_not_believed(step: int) -> None:
    case = Case(Sweep("star", 2, 1, "frozen", 40), F32, (80, 70))
    steps = 0

    class Spoiled(FakeRing):
        def compile(self, name: str, source: str) -> Callable[..., None]:
            launch = super().compile(name, source)

            def spoiled(*arguments: object) -> None:
                nonlocal steps
                steps += "GEN_STEP" in source
                if steps != step:
                    launch(*arguments)

            return spoiled

    ring = Spoiled()
    with pytest.raises(RunError, match="must be NumPy's in the window at"):
        exact(ring, case, ring.random(case.shape, case.dtype, 1))


def test_the_bound_is_that_of_one_rounding_for_one_step_and_nothing_on_the_rim() -> None:
    work = Sweep("star", 2, 1, "frozen")
    cells = np.full((5, 5), 8.0)
    frozen = np.zeros((5, 5), bool)
    value, off = stepped(work, Rounding.of(work, F32), cells, np.zeros((5, 5)), frozen)
    assert np.allclose(value, 8)
    assert (off < 8 * 8 * F32.unit_roundoff).all()
    assert (off > 8 * 7 * F32.unit_roundoff).all()
    _, off = stepped(work, Rounding.of(work, F32), cells, np.zeros((5, 5)), ~frozen)
    assert not off.any()


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=lambda dtype: dtype.name)
def test_a_dtype_of_another_process_begins_alike(dtype: DType) -> None:
    assert begin_text(pickle.loads(pickle.dumps(dtype))) == begin_text(dtype)
    assert ("NUMBER double" in begin_text(dtype)) == (dtype is F64)


def test_the_text_names_what_it_computes() -> None:
    text = step_text(Sweep("star", 2, 1, "wrap"), (7, 9), Rounding(0.5, 0.0))
    assert "#define kExtents 7, 9\n" in text
    assert "#define kFrozen 0\n" in text
