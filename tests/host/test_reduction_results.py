"""What reductions give where it is hard: ties, NaN, outliers, integers that wrap, no elements, axes in any order."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from gen.dtypes import F16, F32, I8, I16, I32, I64, U8, DType
from gen.errors import ShapeError
from gen.families.base import Array, Layout, Limits, Variant
from gen.families.names import variant
from gen.families.reduction import ReductionSpec
from gen.families.reduction.algorithms.rows import BlockReduce, SingleConfig
from gen.families.reduction.shapes import Form, form
from gen.proof.error_bounds import disagreement
from gen.proof.host import HostRunner
from gen.proof.prover import load
from tests.host.reductions import ALL_TOGETHER, FAMILY, base_of, spec


def run(host_runner: HostRunner, made: ReductionSpec, array: Array, one: Variant | None = None) -> dict[str, Array]:
    """The results of one variant, or of base, on an array."""
    extents = FAMILY.extents(made, {"in": Layout.of(array)})
    one = one or base_of(made, extents)
    kernel = load(host_runner, [one], host_runner.limits)[one]
    layouts = FAMILY.layouts(made, extents)
    results = {name: np.empty(layouts[name].shape, layouts[name].dtype) for name, _, _ in made.results}
    kernel.run(extents, {"in": array, **results})
    return results


SEARCHED: tuple[tuple[tuple[int, ...], int | None], ...] = (
    ((50_000,), None),
    ((3, 4000), -1),
    ((900, 7), 0),
    ((64, 33), 1),
)
SEARCHED_TYPES = (F32, U8, F16)


@pytest.fixture(scope="module")
def _searches_are_built(host_runner: HostRunner) -> None:
    """Builds together what would take long one by one."""
    bases = [
        base_of(made, FAMILY.extents(made, {"in": Layout.of(np.empty(shape, dtype.numpy))}))
        for (shape, axis), dtype, op in product(SEARCHED, SEARCHED_TYPES, ("argmax", "argmin"))
        for made in [spec(op, dtype, axis=axis)]
    ]
    host_runner.load(list({made.name: made for made in bases}.values()))


@pytest.mark.usefixtures("_searches_are_built")
@pytest.mark.parametrize("dtype", SEARCHED_TYPES)
@pytest.mark.parametrize(("shape", "axis"), SEARCHED)
def test_the_first_of_equals_is_the_place(
    dtype: DType, shape: tuple[int, ...], axis: int | None, host_runner: HostRunner
) -> None:
    for op, end in (("argmax", -np.inf), ("argmin", np.inf)):
        last = np.nan_to_num(end, posinf=255, neginf=0) if dtype == U8 else end
        for value in (3, last):  # nothing is better than the end of the range that the search begins with
            assert not run(host_runner, spec(op, dtype, axis=axis), np.full(shape, value, dtype.numpy))["out"].any()


@pytest.mark.parametrize("op", ["argmin", "argmax", "min", "max"])
def test_the_first_nan_wins(op: str, host_runner: HostRunner) -> None:
    array = np.random.default_rng(1).standard_normal((5, 3000)).astype(np.float32)
    array[:, 1700] = array[:, 2900] = np.nan
    array[:, 100], array[:, 200] = np.inf, -np.inf
    got = run(host_runner, spec(op, axis=1), array)["out"]
    np.testing.assert_array_equal(got, [1700] * 5 if op.startswith("arg") else [np.nan] * 5)


@pytest.mark.parametrize("op", ["var", "std", "mean_var"])
def test_a_variance_survives_an_outlier_as_first_element(op: str, host_runner: HostRunner) -> None:
    array = np.random.default_rng(2).standard_normal((2, 40_000)).astype(np.float32)
    array[:, 0] = 1e6
    array[1] += 1000
    got = list(run(host_runner, spec(op, axis=1), array).values())[-1]
    right = (np.std if op == "std" else np.var)(array.astype(np.float64), axis=1)
    np.testing.assert_allclose(got, right, rtol=1e-5)


def test_several_statistics_beside_a_variance_are_those_of_each_alone(host_runner: HostRunner) -> None:
    array = np.random.default_rng(3).integers(-9, 9, (300, 5)).astype(np.int16)
    got = run(host_runner, spec(("sumsq", "std", "min", "count_nonzero"), I16, axis=0), array)
    np.testing.assert_array_equal(got["sumsq"], (array.astype(np.int64) ** 2).sum(0))
    np.testing.assert_allclose(got["std"], array.std(0), rtol=1e-12)
    np.testing.assert_array_equal(got["min"], array.min(0))
    np.testing.assert_array_equal(got["countnonzero"], np.count_nonzero(array, 0))


@pytest.mark.parametrize("shape", [(300, 5), (40, 70), (9, 1100), (1200,), (3, 4)], ids=str)
def test_all_statistics_together_are_those_of_each_alone(shape: tuple[int, ...], host_runner: HostRunner) -> None:
    array = np.random.default_rng(4).integers(0, 9, shape).astype(np.uint8)
    made = spec(ALL_TOGETHER, U8, axis=0)
    right = FAMILY.oracle(made, {"in": array}, {})
    for (name, _, dtype), got in zip(made.results, run(host_runner, made, array).values(), strict=True):
        assert disagreement(right[name], got, 100, dtype) is None, name


def test_integers_wrap_as_numpys_and_narrow_ones_add_in_64_bits(host_runner: HostRunner) -> None:
    array = np.full(40_000, 127, np.int8)
    assert run(host_runner, spec("sum", I8), array)["out"] == 127 * 40_000
    assert run(host_runner, spec("sum", I8, dtype="i16"), array)["out"] == np.int64(127 * 40_000).astype(np.int16)
    many = np.full(1000, 2**62, np.int64)
    assert run(host_runner, spec("sum", I64), many)["out"] == np.sum(many)
    assert run(host_runner, spec("mean", I64), many)["out"] == 2.0**62
    assert run(host_runner, spec("sum", F16), np.full(4096, 1, np.float16))["out"] == 4096


def test_an_instruction_adds_up_a_warps_integers_as_numpy_does(host_runner: HostRunner) -> None:
    single = FAMILY.algorithms["single"]
    configs = [
        SingleConfig(threads_per_block=n, unroll=2, vec_bytes=8, block_reduce=BlockReduce.SUMS) for n in (32, 128)
    ]
    for config, (dtype, result) in product(configs, ((I64, None), (I32, None), (U8, None), (I32, "i32"))):
        made = spec("sum", dtype, dtype=result)
        ends = np.iinfo(dtype.numpy)
        array = np.random.default_rng(5).integers(ends.min, ends.max, 1003, dtype.numpy, endpoint=True)
        for one in (array, np.full_like(array, ends.min), np.full_like(array, ends.max)):
            got = run(host_runner, made, one, variant(FAMILY, made, "single", config))["out"]
            assert got == np.sum(one, dtype=made.result.numpy)
    for other in (spec("sum"), spec("mean", I64), spec("max", I32), spec("any", U8)):
        assert single.illegal(other, configs[0]) is not None
    assert single.infeasible(spec("sum", I32), configs[0], Limits.of("sm_75")) is not None
    assert single.infeasible(spec("sum", I32), configs[0], Limits.of("sm_80")) is None


def test_nothing_has_the_results_that_numpy_gives_it(host_runner: HostRunner) -> None:
    nothing = np.empty((3, 0), np.float32)
    for op, empty in (("sum", 0), ("prod", 1), ("any", False), ("all", True), ("mean", np.nan), ("var", np.nan)):
        np.testing.assert_array_equal(run(host_runner, spec(op, axis=1), nothing)["out"], [empty] * 3)
        np.testing.assert_array_equal(run(host_runner, spec(op), nothing)["out"], empty)
    for op in ("min", "max", "minmax", "argmin", "argmax"):
        says = (
            r"in must have elements along the reduced axes, since \w+ of none is nothing .*\. Leave out such arrays, or"
        )
        with pytest.raises(ShapeError, match=says):
            FAMILY.extents(spec(op, axis=1), {"in": Layout.of(nothing)})
        assert FAMILY.extents(spec(op, axis=0), {"in": Layout.of(nothing)})["outer"] == 0


@pytest.mark.parametrize("axis", [None, (), 0, -1])
def test_an_array_without_axes_has_results_without(axis: Any, host_runner: HostRunner) -> None:
    got = run(host_runner, spec("sum", I16, axis=axis), np.array(-7, np.int16))["out"]
    assert (got.shape, got.dtype, int(got)) == ((), np.dtype(np.int64), -7)


def test_no_axes_take_each_element_for_itself(host_runner: HostRunner) -> None:
    array = np.arange(-20, 20, dtype=np.int8).reshape(5, 8)
    np.testing.assert_array_equal(run(host_runner, spec("sum", I8, axis=()), array)["out"], array.astype(np.int64))
    np.testing.assert_array_equal(run(host_runner, spec("var", I8, axis=()), array)["out"], np.zeros((5, 8)))


CUBE = np.random.default_rng(7).integers(-9, 9, (6, 7, 40)).astype(np.float32)
MATRIX = CUBE[0]


@pytest.mark.parametrize(
    ("op", "array", "axis", "seen"),
    [
        ("sum", MATRIX.T, None, Form.WHOLE),
        ("sum", MATRIX.T, 0, Form.ROWS),
        ("sum", MATRIX.T, 1, Form.COLUMNS),
        ("argmax", MATRIX.T, 0, Form.ROWS),
        ("argmax", MATRIX.T, None, Form.STRIDED),  # places count in the order of the axes
        ("max", CUBE.transpose(0, 2, 1), (0, 1), Form.STRIDED),
        ("sum", CUBE.transpose(0, 2, 1), 2, Form.COLUMNS),
        ("sum", CUBE.transpose(2, 1, 0), (1, 2), Form.COLUMNS),
        ("sum", CUBE.transpose(2, 1, 0), 1, Form.STRIDED),  # results come in the order of the axes
        ("sum", CUBE[:, :5].transpose(2, 0, 1), (1, 2), Form.STRIDED),
        ("sum", np.broadcast_to(MATRIX[:1], MATRIX.shape), 1, Form.ROWS),
        ("sum", MATRIX[:, 3:], (), Form.COLUMNS),
        ("sum", CUBE[:, :1, 3:], 1, Form.COLUMNS),
    ],
)
def test_axes_are_seen_as_they_lie_in_memory(
    op: str, array: Array, axis: Any, seen: Form, host_runner: HostRunner
) -> None:
    made = spec(op, axis=axis)
    extents = FAMILY.extents(made, {"in": Layout.of(array)})
    assert form(extents) is seen
    np.testing.assert_array_equal(run(host_runner, made, array)["out"], getattr(np, op)(array, axis=axis))


@pytest.mark.parametrize("last", [5, 34])
@pytest.mark.parametrize(
    ("axis", "algorithms"),
    [
        ((0, 2, 4, 6), ("multi_columns", "flat_columns", "flat_rows", "strided")),
        ((1, 3, 5, 7), ("multi_rows", "flat_columns", "flat_rows", "strided")),
    ],
)
def test_four_axes_are_reduced_between_four_that_are_kept(
    axis: tuple[int, ...], algorithms: tuple[str, ...], last: int, host_runner: HostRunner
) -> None:
    """As many as kernels of several axes take; views of cells between which others lie, so that no two axes merge."""
    made = spec("sum", axis=axis)
    shape = (3, 2, 4, 3, 5, 4, 6) if 0 in axis else (2, 3, 3, 4, 4, 5, 5)  # neither like another's nor few
    array = np.random.default_rng(last).integers(-8, 8, (*shape, last + 1)).astype(np.float32)[..., :last]
    for name in algorithms:
        config = FAMILY.algorithms[name].config()
        one = variant(FAMILY, made, name, replace(config, axes=4) if name.startswith("flat") else config)
        np.testing.assert_array_equal(run(host_runner, made, array, one)["out"], array.sum(axis), name)


@pytest.mark.parametrize(("label", "algorithm", "shape"), [
    ("sum_i8", "grid", (513 * 33000,)), ("sum_i8_axis0x2", "multi_rows", (513, 2, 33000)),
])  # fmt: skip
def test_sums_of_bytes_that_need_more_than_32_bits(
    label: str, algorithm: str, shape: tuple[int, ...], host_runner: HostRunner
) -> None:
    made = FAMILY.from_label(label)
    assert made is not None
    one = variant(FAMILY, made, algorithm, FAMILY.algorithms[algorithm].config())
    results = run(host_runner, made, np.full(shape, 127, np.int8), one)
    assert np.all(results["out"] == 513 * 33000 * 127)
