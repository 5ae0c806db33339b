"""Stencils as callers meet them: specs in a line, any number of steps in a call, errors in words."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import gen
from gen.arch import Limits
from gen.dtypes import F16, F64, I64
from gen.errors import ArgumentError, GenError, ShapeError, SpecError
from gen.families.base import Launch, Layout
from gen.families.expr import ONE, Expr, constant
from gen.families.plans import steps as plan_steps
from gen.families.stencil import Stencil, StencilSpec
from gen.families.stencil.algorithms.common import Short, stepping
from gen.families.stencil.oracle import expected
from gen.families.stencil.shapes import extents_of
from gen.proof.host import HostRunner
from tests.fake_device import FakeDevice


@pytest.fixture
def computing(host_runner: HostRunner) -> FakeDevice:
    """Launches run the emitted text on the CPU."""
    return FakeDevice(host_runner)


def whole_numbers(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(1).integers(-8, 9, shape).astype(np.float32)


def test_a_spec_in_one_line_is_scipys_correlation(computing: FakeDevice, tmp_path: Path) -> None:
    weights = np.array([[0, 1, 0], [2, -4, 3], [0, 1, 0.5]])
    image = whole_numbers(19, 37)
    kernel = gen.load(gen.stencil(weights, boundary="mirror"), device=computing, home=tmp_path)
    assert np.array_equal(kernel(image), ndimage.correlate(image.astype(np.float64), weights, mode="mirror"))


def test_a_spec_of_three_axes_is_scipys_correlation(computing: FakeDevice, tmp_path: Path) -> None:
    weights = np.random.default_rng(2).integers(-4, 5, (3, 2, 5)).astype(np.float32)
    cells = whole_numbers(5, 9, 37)
    kernel = gen.load(gen.stencil(weights, boundary="reflect"), device=computing, home=tmp_path)
    assert np.array_equal(kernel(cells), ndimage.correlate(cells.astype(np.float64), weights, mode="reflect"))
    assert np.array_equal(kernel(cells, steps=0), cells)
    spec = gen.stencil(gen.central_difference(2, 2, ndim=3))
    assert len(spec.taps) == 7
    assert np.array_equal(
        gen.load(spec, device=computing, home=tmp_path)(cells), ndimage.laplace(cells, mode="constant")
    )


def shorter(fused: int) -> int:
    """A quarter fewer steps, as many as launches of three kinds have."""
    return fused - max(fused // 4, 1)


@pytest.mark.parametrize("fused", [1, 2, 3, 4, 6, 8, 12, 16])
@pytest.mark.parametrize("short", [None, shorter, lambda fused: fused // 2])
def test_few_launches_take_all_steps_and_none_is_shallow(fused: int, short: Callable[[int], int] | None) -> None:
    """Each reads what the one before wrote, and the last writes the output; only the first has the input's pitch."""
    spec, few = gen.stencil(gen.star(1, 1)), 0 if short is None else short(fused)

    def rest(source: str, target: str, in_pitch: Expr, steps: Expr) -> Launch:
        return Launch((ONE, ONE, ONE), (32, 1, 1), (source, target, (I64, in_pitch), (I64, steps)))

    fewer = Short(few, partial(rest, steps=constant(few))) if few else None
    sweep = partial(rest, steps=constant(fused))
    plan = stepping(spec, sweep, fused=fused, short=fewer, rest=rest if fused > 1 else None)
    sizes = {"cols": 9, "in_pitch": 10, "out_pitch": 11}
    for steps in range(1, 100):
        made: list[Any] = [step.arguments for step in plan_steps(plan, {**sizes, "steps": steps})]
        depths = [depth for _, _, _, (_, depth) in made]
        assert sum(depths) == steps
        assert len(made) == -(-steps // fused)
        assert sum(depth < few for depth in depths) == (steps < len(made) * few)
        assert (made[0][0], made[-1][1]) == ("in", "out")
        assert [pitch for _, _, (_, pitch), _ in made] == [10, *[11] * (len(made) - 1)]
        assert all(one[1] == other[0] != other[1] for one, other in pairwise(made))
        assert "in" not in [target for _, target, _, _ in made]
    (copied,) = plan_steps(plan, {**sizes, "steps": 0})
    assert copied.entry == "_copy"
    (spare,) = plan.scratch
    assert [spare.bytes.at({**sizes, "steps": steps}) > 0 for steps in (0, fused, fused + 1)] == [False, False, True]


def test_planes_that_do_not_follow_each_other_are_refused() -> None:
    spec = gen.stencil(gen.star(3, 1))
    within = Layout.of(np.zeros((6, 8, 16), np.float32)[1:-1, 1:-1, 1:-1])
    with pytest.raises(ShapeError, match="in must have a gap after its rows at most, and none after other axes"):
        Stencil().extents(spec, {"in": within})
    found = Stencil().extents(spec, {"in": Layout.of(np.zeros((6, 8, 16), np.float32)[:, :, 1:-1])})
    assert found == {"planes": 6, "rows": 8, "cols": 14, "in_pitch": 16, "out_pitch": 14, "steps": 1}


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 6, 7])
def test_a_call_takes_any_number_of_steps(computing: FakeDevice, tmp_path: Path, steps: int) -> None:
    spec = Stencil().catalogue[0]
    image = whole_numbers(9, 40)
    kernel = gen.load(spec, device=computing, home=tmp_path)
    out = np.full((9, 48), -1, np.float32)[:, :40]
    assert kernel(image, steps=steps, out=out) is out
    now = image
    for _ in range(steps):
        now = np.asarray(expected(spec, now, 1).value, np.float32)
    if steps <= 3:  # eighths of whole numbers: nothing is rounded
        assert np.array_equal(out, now)
    np.testing.assert_allclose(out, now, atol=1e-5)


@pytest.mark.parametrize("steps", [-1, 1.5, True, "3", 2**31])
def test_steps_are_a_whole_number_that_is_not_negative(computing: FakeDevice, tmp_path: Path, steps: Any) -> None:
    kernel = gen.load(Stencil().catalogue[0], device=computing, home=tmp_path)
    with pytest.raises(ArgumentError, match=r"steps must be a whole number, not negative and below 2\^31"):
        kernel(whole_numbers(4, 4), steps=steps)
    with pytest.raises(ArgumentError, match="steps must be a whole number"):
        gen.load(Stencil().catalogue[0], shape=(4, 4), steps=steps, device=computing, home=tmp_path)


def test_counts_go_with_a_shape_and_with_a_spec_that_has_them(computing: FakeDevice, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="steps must come with shape"):
        gen.load(Stencil().catalogue[0], steps=3, device=computing, home=tmp_path)
    with pytest.raises(ArgumentError, match="steps is no runtime parameter of transpose_10_b32"):
        gen.load("transpose_10_b32", shape=(4, 4), steps=3, device=computing, home=tmp_path)
    with pytest.raises(ArgumentError, match="steps is no number of this kernel"):
        gen.load("transpose_10_b32", device=computing, home=tmp_path)(whole_numbers(4, 4), steps=3)
    with pytest.raises(ArgumentError, match="step is no number of this kernel, which takes in, steps"):
        gen.load(Stencil().catalogue[0], device=computing, home=tmp_path)(whole_numbers(4, 4), step=3)


def test_the_choice_is_by_steps(computing: FakeDevice, tmp_path: Path) -> None:
    kernel = gen.load(Stencil().catalogue[0], device=computing, home=tmp_path)
    assert "(1 step)" in kernel.why_for((64, 64))
    assert "(many steps)" in kernel.why_for((64, 64), steps=5)
    assert kernel.variant_for((64, 64), steps=5).startswith("stencil_heat")


def test_an_output_that_overlaps_the_input_is_refused(computing: FakeDevice, tmp_path: Path) -> None:
    image = whole_numbers(8, 8)
    with pytest.raises(ArgumentError, match="out must not overlap in"):
        gen.load(Stencil().catalogue[0], device=computing, home=tmp_path)(image, out=image, steps=2)


def test_weights_with_a_name() -> None:
    assert gen.star(2, 1).tolist() == [[0, 0.2, 0], [0.2, 0.2, 0.2], [0, 0.2, 0]]
    assert gen.star(1, 2).tolist() == [0.2] * 5
    assert gen.box(2, 1).tolist() == [[1 / 9] * 3] * 3
    assert np.count_nonzero(gen.star(2, 8)) == 33
    np.testing.assert_allclose(gen.central_difference(1, 2), [-0.5, 0, 0.5])
    eighth = [1 / 280, -4 / 105, 1 / 5, -4 / 5, 0, 4 / 5, -1 / 5, 4 / 105, -1 / 280]
    np.testing.assert_allclose(gen.central_difference(1, 8), eighth, atol=1e-15)
    second = [-1 / 560, 8 / 315, -1 / 5, 8 / 5, -205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560]
    np.testing.assert_allclose(gen.central_difference(2, 8, spacing=0.5), np.multiply(second, 4), atol=1e-13)
    laplacian = gen.central_difference(2, 2, ndim=2)
    np.testing.assert_allclose(laplacian, [[0, 1, 0], [1, -4, 1], [0, 1, 0]], atol=1e-15)
    assert np.count_nonzero(gen.central_difference(2, 8, ndim=2)) == 17
    assert gen.central_difference(1, 2, spacing=np.float32(0.5)).tolist() == [-1, 0, 1]  # type: ignore[arg-type]


@pytest.mark.parametrize("ends", [(1, 16), (2, 16), (8, 10), (14, 4), (16, 2)])
def test_weights_of_a_central_difference_are_rounded_once(ends: tuple[int, int]) -> None:
    derivative, order = ends
    weights = gen.central_difference(derivative, order, spacing=0.1)
    radius = len(weights) // 2
    rounding, step = Fraction(1, 2**53), Fraction(0.1) ** derivative
    for power in range(2 * radius + 1):
        terms = [Fraction(float(weight)) * place**power for place, weight in enumerate(weights, -radius)]
        exact = factorial(derivative) / step if power == derivative else 0
        assert abs(sum(terms) - exact) <= rounding * sum(map(abs, terms))


@pytest.mark.parametrize("derivative", [1, 2, 3, 4])
@pytest.mark.parametrize("order", [2, 4, 6])
def test_a_central_difference_is_exact_for_polynomials_of_its_order(derivative: int, order: int) -> None:
    weights = gen.central_difference(derivative, order)
    radius = len(weights) // 2
    for power in range(derivative + order):
        polynomial = np.polynomial.Polynomial([0] * power + [1])
        found = float(weights @ polynomial(np.arange(-radius, radius + 1.0)))
        assert found == pytest.approx(float(polynomial.deriv(derivative)(0.0)), abs=1e-6)


def test_dtypes_are_taken_by_any_of_their_names() -> None:
    for name in ("float16", "f2", np.float16, np.dtype("f2"), F16):
        assert gen.stencil(gen.star(1, 1), dtype=name).dtype == F16
    assert gen.stencil(gen.star(1, 1), dtype=float).dtype == F64


class OnTheGpu:
    """What NumPy makes no array of, such as a tensor of torch on a GPU."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        raise TypeError("use .cpu() first")


WRONG: list[tuple[Callable[[], StencilSpec], str]] = [
    (lambda: gen.stencil([[[[1.0]]]]), "stencil.weights must be an array of numbers with 1 to 3 axes"),
    (lambda: gen.stencil(["a"]), "stencil.weights must be an array of numbers"),
    (lambda: gen.stencil([[1, 2], [3]]), "stencil.weights must be an array whose rows are equally long"),
    (lambda: gen.stencil(3.0), "(got 0 axes of float64)"),
    (lambda: gen.stencil([1.0, np.inf]), "stencil.weights must be numbers, finite as f32"),
    (lambda: gen.stencil([1.0, np.nan]), "stencil.weights must be numbers, finite as f32"),
    (lambda: gen.stencil([1.0], boundary="periodic"), "stencil.boundary must be one of"),  # type: ignore[arg-type]
    (
        lambda: gen.stencil([1.0], dtype="int32"),
        "stencil.dtype must be one of f16, bf16, f32, f64, u8, i16, u16 (got 'int32')",
    ),
    (
        lambda: gen.stencil([1.0], dtype="f33"),
        "stencil.dtype must be one of f16, bf16, f32, f64, u8, i16, u16 (got 'f33')",
    ),
    (lambda: gen.stencil(gen.star(4, 1)), "star.ndim must be a whole number from 1 to 3 (got 4)"),
    (lambda: gen.stencil(gen.box(2, 9)), "box.radius must be a whole number from 0 to 8 (got 9)"),
    (lambda: gen.stencil(gen.central_difference(1, 18)), "order must be a whole number from 1 to 17 (got 18)"),
    (
        lambda: gen.stencil(gen.central_difference(3, 16)),
        "order must be at most 14 for derivative 3, whose weights reach",
    ),
    (lambda: gen.stencil(gen.central_difference(1, 3)), "order must be even"),
    (lambda: gen.stencil(gen.central_difference(0, 2)), "derivative must be a whole number from 1"),
    (lambda: gen.stencil(gen.central_difference(1, 2, spacing=0.0)), "spacing must be a positive, finite"),
    (lambda: gen.stencil(gen.central_difference(1, 2, spacing="h")), "spacing must be a positive, finite number"),  # type: ignore[arg-type]
    (
        lambda: gen.stencil(gen.central_difference(2, 2, spacing=1e-200)),
        "spacing must leave weights for derivative 2 that f64 holds (got 1e-200)",
    ),
    (lambda: gen.stencil(gen.central_difference(2, 2, spacing=1e200)), "that f64 holds (got 1e+200)"),
    (lambda: gen.stencil(gen.central_difference(2, 2, spacing=10**400)), "that f64 holds (got 1000"),
    (lambda: gen.stencil(gen.central_difference(2, 2, spacing="1")), "spacing must be a positive, finite number"),  # type: ignore[arg-type]
    (lambda: gen.stencil(gen.central_difference(17, 2)), "central_difference.derivative must be at most 16 (got 17)"),
    (lambda: gen.stencil(gen.central_difference(1, 2.0)), "order must be a whole number from 1 to 17 (got 2.0)"),  # type: ignore[arg-type]
    (lambda: gen.stencil(gen.star(2, 1.0)), "star.radius must be a whole number from 0 to 8 (got 1.0)"),  # type: ignore[arg-type]
    (lambda: gen.stencil(gen.box(np.array([1, 2]), 1)), "box.ndim must be a whole number from 1 to 3"),  # type: ignore[arg-type]
    (lambda: gen.stencil(OnTheGpu()), "stencil.weights must be what NumPy makes an array of (got use .cpu() first)"),
    (lambda: gen.stencil([1.0], boundary=3), "stencil.boundary must be one of"),  # type: ignore[arg-type]
    (lambda: gen.stencil([1.0], boundary=np.array(3)), "stencil.boundary must be one of"),  # type: ignore[arg-type]
    (lambda: gen.stencil([1.0], origin=0.5), "stencil.origin must be a whole number"),  # type: ignore[arg-type]
    (
        lambda: gen.stencil([1.0], dtype=None),
        "stencil.dtype must be one of f16, bf16, f32, f64, u8, i16, u16 (got None)",
    ),
]


@pytest.mark.parametrize(("make", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_is_no_stencil_is_refused_in_words(make: Callable[[], StencilSpec], says: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert isinstance(caught.value, GenError)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((2048, 2048), None),
        (
            (2200, 2048),
            "its 135 blocks must be resident at the same time, one per multiprocessor, and the device has 132",
        ),
        ((2048, 2050), "2050 columns are not a multiple of the 8 cells of a lane"),
        ((159, 2048), "159 x 2048 cells are smaller than a tile of 160 x 256"),
        ((160, 248), "160 x 248 cells are smaller than a tile of 160 x 256"),
    ],
)
def test_what_does_not_stay_on_the_multiprocessors_is_refused(shape: tuple[int, int], reason: str | None) -> None:
    family = Stencil()
    spec, persistent = gen.stencil(gen.star(2, 1)), family.algorithms["persistent"]
    extents = extents_of(spec, shape, steps=100)
    config = persistent.config.from_tag("c8_y20_w8_t6", "persistent")
    assert persistent.unsupported_extents(spec, config, extents, Limits.of("sm_90")) == reason


def test_many_steps_of_what_stays_on_the_multiprocessors_are_one_launch() -> None:
    spec, persistent = gen.stencil(gen.star(2, 1)), Stencil().algorithms["persistent"]
    plan = persistent.plan(spec, persistent.config.from_tag("c8_y20_w8_t6", "persistent"))
    sizes = {**extents_of(spec, (2048, 2048), steps=1000), **Limits.of("sm_90").sizes()}
    (step,) = plan_steps(plan, sizes)
    assert step.cooperative
    assert step.grid == (126, 1, 1)
