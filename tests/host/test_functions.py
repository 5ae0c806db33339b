"""Functions on arrays: NumPy's and SciPy's results for any shape and axis, by the CPU run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import gen
from gen import functions
from gen.errors import ArgumentError, GenError, ShapeError
from gen.families.reduction import ReductionSpec

REDUCTIONS = ("sum", "prod", "min", "max", "any", "all", "argmin", "argmax", "count_nonzero", "mean", "var", "std")
DTYPES = (np.float32, np.int8)
EXACT = [0.0, 1.0, -2.0, 3.0, 0.5]
"""Whose sums and products of a few are exact in f32, so that results are equal, whatever the order."""


@st.composite
def calls(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    """An array, and arguments of a reduction."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    dtype = draw(st.sampled_from(DTYPES))
    array = draw(arrays(dtype, shape, elements=st.sampled_from(EXACT if dtype == np.float32 else [0.0, 1.0, -2.0])))
    if draw(st.booleans()):
        array = array.T
    if draw(st.booleans()):
        array = array[::-1]
    places = st.integers(-array.ndim, array.ndim - 1)
    several = st.lists(places, min_size=1, max_size=2, unique_by=lambda axis: axis % array.ndim).map(tuple)
    axis = draw(st.one_of(st.none(), places, several))
    return array, {"axis": axis, "keepdims": draw(st.booleans())}


@settings(max_examples=max(settings().max_examples // 5, 1))
@given(calls())
def test_every_reduction_gives_what_numpy_gives(call: tuple[np.ndarray[Any, Any], dict[str, Any]]) -> None:
    array, arguments = call
    for name in REDUCTIONS:
        if name.startswith("arg") and isinstance(arguments["axis"], tuple):
            continue
        found = getattr(gen, name)(array, **arguments, device="cpu")
        wanted = getattr(np, name)(array, **arguments)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_axes_that_mean_the_same_share_a_kernel(ndim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    specs: list[ReductionSpec] = []

    def loaded(spec: ReductionSpec, _: object) -> Callable[..., None]:
        specs.append(spec)
        return lambda *_arguments, **_named: None

    monkeypatch.setattr(functions, "loaded", loaded)
    functions._kernels.clear()
    array = np.ones((2,) * ndim, np.float32)
    every: list[Any] = [None, tuple(range(ndim)), list(range(-ndim, 0))]
    for axes in every:
        gen.sum(array, axis=axes, device="cpu")
    for axis in (ndim - 1, -1):
        gen.max(array, axis=axis, device="cpu")
    functions._kernels.clear()
    assert [spec.axis for spec in specs[:3]] == [None] * 3
    assert len(set(specs[3:])) == 1
    assert specs[3].axis == (None if ndim == 1 else (-1,))  # the last axis, of however many


BOX = np.ones((3, 3))
CALLS: dict[str, Callable[[Any], object]] = {
    "sum": lambda x: gen.sum(x, axis=-1, device="cpu"),
    "var": lambda x: gen.var(x, axis=0, correction=1, device="cpu"),
    "permute_dims": lambda x: gen.permute_dims(x, (1, 0), device="cpu"),
    "transpose": lambda x: gen.transpose(x, device="cpu"),
    "matrix_transpose": lambda x: gen.matrix_transpose(x, device="cpu"),
    "correlate": lambda x: gen.correlate(x, BOX, mode="wrap", device="cpu"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_second_call_looks_its_kernel_up_and_calls_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(*_: object, **__: object) -> None:
        """Stands for the launcher, which is C++."""

    monkeypatch.setattr(functions, "loaded", lambda *_: kernel)
    monkeypatch.setattr(functions, "_kernels", {})
    functions._correlation.cache_clear()
    x, called = np.ones((4, 5), np.float32), []
    CALLS[name](x)

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        CALLS[name](x)
    finally:
        sys.setprofile(None)
        functions._correlation.cache_clear()
    known = {"<lambda>", name, "_reduced", "_permuted", "_warn", "_weights", "_whole", "kernel"}
    assert called[-1] == "kernel"
    assert set(called) <= known
    assert len(called) == len(set(called))


def test_arguments_that_are_equal_and_mean_something_else_are_not_taken_for_each_other() -> None:
    x = np.ones((2, 3), np.float32)
    assert gen.sum(x, axis=1, device="cpu").shape == (2,)
    for axis in (True, 1.0):
        with pytest.raises(GenError, match="axis"):
            gen.sum(x, axis=axis, device="cpu")
    assert gen.permute_dims(x, [1, 0], device="cpu").shape == gen.permute_dims(x, (1, 0), device="cpu").shape


@pytest.mark.parametrize("axes", list(permutations(range(3))))
def test_permutations_move_what_numpy_moves(axes: tuple[int, ...]) -> None:
    array = np.arange(2 * 3 * 5, dtype=np.int32).reshape(2, 3, 5)
    np.testing.assert_array_equal(gen.permute_dims(array, axes, device="cpu"), array.transpose(axes))
    if axes == (2, 1, 0):
        np.testing.assert_array_equal(gen.transpose(array, device="cpu"), array.T)
    if axes == (0, 2, 1):
        np.testing.assert_array_equal(gen.matrix_transpose(array, device="cpu"), array.swapaxes(1, 2))


@settings(max_examples=10)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.integers(-4, 4)),
    st.sampled_from(["reflect", "constant", "nearest", "mirror", "wrap", "grid-wrap"]),
    st.sampled_from([((0, 1), (3, 2)), ((1, 0), (3, 2)), ((0,), (4,)), ((-1,), (3,))]),
    st.data(),
)
def test_correlations_give_what_scipy_gives(
    cells: np.ndarray[Any, Any], mode: str, lying: tuple[tuple[int, ...], tuple[int, ...]], data: st.DataObject
) -> None:
    axes, shape = lying
    weights = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
    origin = tuple(data.draw(st.integers(-(extent // 2), (extent - 1) // 2)) for extent in shape)
    arguments: dict[str, Any] = {"mode": mode, "cval": 2.0, "axes": axes}
    for name, shift in (("correlate", origin), ("convolve", tuple(-one for one in origin))):
        try:
            wanted = getattr(scipy.ndimage, name)(cells, weights, origin=shift, **arguments)
        except ValueError:  # of even extents the other side has no such origin
            continue
        found = getattr(gen, name)(cells, weights, origin=shift, **arguments, device="cpu")
        np.testing.assert_array_equal(found, wanted)  # integers: nothing is rounded
    np.testing.assert_array_equal(gen.laplace(cells, device="cpu"), scipy.ndimage.laplace(cells))


@pytest.mark.parametrize("axes", [None, 0, -1, np.int64(1), (1, 0), ()])
def test_filters_lie_along_the_axes_that_scipy_takes(axes: Any) -> None:
    array = np.random.default_rng(2).random((5, 6))
    np.testing.assert_allclose(
        gen.laplace(array, axes=axes, device="cpu"), scipy.ndimage.laplace(array, axes=axes), atol=1e-12
    )
    if np.ndim(axes or ()) == 0 and axes is not None:
        found = gen.convolve(array, [1, 2, 4, 8], axes=axes, origin=1, device="cpu")
        np.testing.assert_allclose(found, scipy.ndimage.convolve(array, [1.0, 2, 4, 8], axes=(axes,), origin=1))


def test_correlations_have_a_boundary_for_each_end() -> None:
    cells = np.random.default_rng(0).integers(-8, 8, (5, 40)).astype(np.float64)
    weights = np.arange(1.0, 10.0).reshape(3, 3)
    padded = np.pad(np.pad(cells, ((0, 1), (0, 1)), "symmetric"), ((1, 0), (0, 0)), constant_values=2.0)
    padded = np.pad(padded, ((0, 0), (1, 0)), "edge")
    wanted = scipy.ndimage.correlate(padded, weights)[1:-1, 1:-1]
    mode = [("constant", "grid-mirror"), ("nearest", "reflect")]
    np.testing.assert_array_equal(gen.correlate(cells, weights, mode=mode, cval=2.0, device="cpu"), wanted)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16])
def test_correlations_of_integers_round_to_the_nearest_and_saturate(dtype: type[np.integer[Any]]) -> None:
    ends = np.iinfo(dtype)
    cells = np.random.default_rng(0).integers(ends.min, ends.max, (5, 40), dtype, endpoint=True)
    weights = [[0.5, -0.25, 0.5], [0.25, 0.5, 0.25]]
    sums = scipy.ndimage.correlate(cells.astype(np.float64), weights)  # exact in f32 too
    found = gen.correlate(cells, weights, device="cpu")
    np.testing.assert_array_equal(found, np.rint(sums).clip(ends.min, ends.max).astype(dtype))
    assert (sums > ends.max).any()
    assert (sums % 1 == 0.5).any()


def test_results_go_where_out_says() -> None:
    array, out = np.arange(6.0).reshape(2, 3), np.zeros(2)
    assert gen.sum(array, axis=1, out=out, device="cpu") is out
    np.testing.assert_array_equal(out, array.sum(axis=1))
    cells = np.zeros((2, 3))
    assert gen.correlate(array, np.ones((1, 1)), cells, device="cpu") is cells
    np.testing.assert_array_equal(cells, array)


@pytest.mark.parametrize(
    ("name", "array", "arguments"),
    [
        ("mean", np.zeros((0, 3)), {"axis": 0}),
        ("mean", np.zeros((0, 3)), {"axis": np.int64(0)}),
        ("mean", np.zeros(0), {}),
        ("var", np.zeros((3, 1)), {"axis": 1, "correction": 1}),
        ("std", np.zeros(2), {"correction": 3}),
    ],
)
def test_what_numpy_warns_of_is_warned_of(name: str, array: np.ndarray[Any, Any], arguments: dict[str, Any]) -> None:
    with pytest.warns(RuntimeWarning, match=f"{name} of {array.shape[arguments.get('axis', 0)]} elements"):
        found = getattr(gen, name)(array, **arguments, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(found, getattr(np, name)(array, **arguments))


WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("sum", (np.zeros(3),), {"axis": 1}, "axis must be a whole number from -1 to 0, or None"),
    ("sum", (np.zeros((3, 3)),), {"axis": (0, -2)}, "axis must name each axis once"),
    ("sum", (np.zeros(3),), {"axis": True}, "axis must be a whole number from -1 to 0"),
    ("sum", (np.zeros(3),), {"axis": [[0]]}, "axis must be one value for all axes, or a tuple"),
    ("sum", ([1.0],), {}, "x must be a NumPy array"),
    ("var", (np.zeros(3),), {"correction": 0.5}, "correction must be a whole number"),
    ("std", (np.zeros(3),), {"correction": -1}, "correction must be a whole number from 0 to 99"),
    *(
        ("var", (np.zeros(3),), {"correction": odd}, "correction must be a whole number")
        for odd in (np.inf, np.nan, None)
    ),
    ("sum", (np.zeros(()),), {"axis": 0}, r"axis must be None or \(\) for an array without axes"),
    ("argmax", (np.zeros((2, 3)),), {"axis": (0, 1)}, "axis must be one axis, or None for all of them together"),
    *(("vector_norm", (np.zeros(3),), {"ord": odd}, "ord must be 2") for odd in (1, "2", np.full(2, 2))),
    *(
        ("permute_dims", (np.zeros(3), odd), {}, "axes must name each of the 1 axes")
        for odd in (None, 0, {0}, np.array(0))
    ),
    ("permute_dims", (np.zeros(3), np.timedelta64(0)), {}, "axes must name each of the 1 axes"),
    ("sum", (np.zeros(3),), {"axis": np.timedelta64(0)}, "axis must be one value for all axes, or a tuple"),
    *(
        ("correlate", (np.zeros(2), np.ones(2)), {"cval": odd, "mode": "constant"}, "cval must be ")
        for odd in ([0], {0}, np.zeros(1), "a")
    ),
    ("transpose", (np.zeros(()),), {}, "axes must name each of the 0 axes of x once, and there must be one"),
    ("permute_dims", (np.zeros((2, 3)), (0,)), {}, "axes must name each of the 2 axes of x once"),
    ("matrix_transpose", (np.zeros(3),), {}, "x must have two axes or more"),
    ("correlate", (np.zeros((2, 2)), np.ones(2)), {}, "weights must have 2 axes"),
    *(
        ("correlate", (np.zeros(2), np.ones(2)), {"axes": odd}, "axes must name axes of an array of 1 once each")
        for odd in (1, (1,), "x", (0.5,))
    ),
    ("correlate", (np.zeros(2), [[1], [1, 2]]), {}, "weights must be an array of numbers"),
    ("correlate", (np.zeros(2), np.ones(2, object)), {}, "weights must be an array of numbers"),
    ("convolve", (np.zeros(2), np.ones(2)), {"origin": None}, "origin must be a whole number"),
    ("correlate", (np.zeros(2), np.ones(2)), {"mode": ("wrap", "wrap")}, "mode must be one for all axes, or 1"),
    ("correlate", (np.zeros(2), np.ones(2), np.int32), {}, "output must be an array, or the dtype of input, float64"),
    ("correlate", (np.zeros(2), np.ones(2)), {"mode": "periodic"}, "^mode must be one of"),
    *(
        (
            name,
            (np.zeros(2), *more),
            {"device": odd},
            "device must be the number of a GPU, .cpu., or a GPU that was opened",
        )
        for name, more in (("sum", ()), ("permute_dims", ((0,),)), ("correlate", (np.ones(2),)))
        for odd in ("tpu", [0])
    ),
    ("correlate", (np.zeros(2, int), np.ones(2)), {}, "^The dtype of input must be one of"),
    ("sum", (np.zeros(3, "U1"),), {}, "^The dtype of x must be one of"),
    ("sum", (np.zeros(3),), {"dtype": "f33"}, "^dtype must be one of"),
]


@pytest.mark.parametrize(("name", "arguments", "named", "says"), WRONG)
def test_wrong_arguments_are_named(name: str, arguments: tuple[Any, ...], named: dict[str, Any], says: str) -> None:
    with pytest.raises(GenError, match=says):
        getattr(gen, name)(*arguments, **{"device": "cpu", **named})


class OfNumpy(functions.ArrayFunctions[Any]):
    """Of a library with gradients, in whose place NumPy stands."""

    def reduced(self, op: str, x: Any, axes: list[int], dtype: Any, ddof: int) -> Any:
        return x.sum(tuple(axes))

    def expanded(self, y: Any, axes: list[int]) -> Any:
        return np.expand_dims(y, tuple(axes))

    def permuted(self, x: Any, order: list[int]) -> Any:
        return x.transpose(order)

    def correlated(self, x: Any, weights: Any, *_: Any) -> Any:
        return weights

    def ndim(self, x: Any) -> int:
        return int(x.ndim)


class Traced:
    """Weights that nobody knows yet."""

    def tolist(self) -> Any:
        raise TypeError("abstract")


def test_axes_of_functions_with_gradients_are_whole_numbers_of_any_kind() -> None:
    known, x = OfNumpy(), np.arange(6.0).reshape(2, 3)
    for axis in (1, -1, np.int64(1), (1,), [1], range(1, 2), np.array([1])):
        assert known.sum(x, axis=axis).tolist() == [3, 12]
    assert (known.sum(x), known.sum(x, keepdims=True).shape) == (15, (1, 1))
    axes: Any
    for axes in ((1, 0), [-1, 0], range(1, -1, -1), np.array([1, 0]), (np.int8(1), 0)):
        np.testing.assert_array_equal(known.permute_dims(x, axes), x.T)
    odd: Any
    for odd in (2, "a", 0.5, True, (0, 0), ("a",), np.zeros((1, 1)), np.array(0.5), object()):
        with pytest.raises(ShapeError, match="axis must name axes from -2 to 1 once each, or be None"):
            known.sum(x, axis=odd)
    for odd in (None, 1, "ab", (0,), (0.0, 1.0), (True, False), np.zeros((2, 2))):
        with pytest.raises(ShapeError, match="axes must name each of the 2 axes of x once"):
            known.permute_dims(x, odd)
    with pytest.raises(ArgumentError, match=r"weights must be known while a program is traced. They stand in the text"):
        known.correlate(x, Traced())


def test_an_environment_variable_names_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    functions._kernels.clear()
    functions.loaded.cache_clear()
    monkeypatch.setenv("GEN_DEVICE", "cpu")
    assert gen.sum(np.ones(5, np.float32)) == 5
    functions.loaded.cache_clear()
    monkeypatch.setenv("GEN_DEVICE", "first")
    with pytest.raises(GenError, match=r"\$GEN_DEVICE must be the number of a GPU"):
        gen.load(gen.reduction("sum"))
    functions._kernels.clear()
