"""Reductions of every operator and type, along any axes: what they are called, what they mean, what they refuse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import gen
from gen.dtypes import BOOL, DTYPES, F16, F32, F64, I8, I16, I32, I64, U8, DType
from gen.emit.render import render
from gen.errors import GenError, ShapeError, SpecError, UnknownNameError
from gen.families.base import Array, Layout, Limits, Variant
from gen.families.config import Config
from gen.families.names import illegal, variant
from gen.families.reduction import GridConfig, Reduction, ReductionSpec
from gen.families.reduction.canonical import Form, form
from gen.families.reduction.classes import problem
from gen.families.reduction.cluster import ALONE, ClusterConfig
from gen.families.reduction.columns import ColumnsConfig
from gen.families.reduction.finish import Finish
from gen.families.reduction.flags import FlagsConfig
from gen.families.reduction.operators import OPERATORS, SEVERAL
from gen.families.reduction.rows import RowsConfig
from gen.families.reduction.single import Ending, SingleConfig
from gen.families.reduction.stream import StreamConfig
from gen.families.reduction.strided import StridedConfig
from gen.proof.cases import Case
from gen.proof.host import HostRunner
from gen.proof.oracle import disagreement
from gen.proof.prover import check, load, uncovered
from gen.proof.sizes import SM_COUNTS
from tests.strategies import cases, configs

FAMILY = Reduction()
H100 = Limits.of("sm_90")
NUMBERS = [dtype for dtype in DTYPES.values() if dtype.kind != "bits"]
NAMES = [*OPERATORS, *SEVERAL]
AXES = (None, (), (0,), (-1,), (1,), (0, 1), (0, 2), (-2, -1), (0, -1))


def spec(op: str | tuple[str, ...], elements: Any = F32, **more: Any) -> ReductionSpec:
    return gen.reduction(op, elements, **more)


@st.composite
def specs(draw: st.DrawFn) -> ReductionSpec:
    """Any spec that there is."""
    op = draw(st.sampled_from(NAMES))
    axis = draw(st.sampled_from(AXES))
    dtype = draw(st.sampled_from((None, None, None, *NUMBERS)))
    ddof = draw(st.sampled_from((0, 0, 1)))
    try:
        return gen.reduction(
            op, draw(st.sampled_from(NUMBERS)), axis=axis, keepdims=draw(st.booleans()), dtype=dtype, ddof=ddof
        )
    except SpecError:
        assume(False)
        raise


@given(specs())
def test_a_spec_reads_back_from_its_label_and_its_json(made: ReductionSpec) -> None:
    assert FAMILY.spell(made.label) == made
    assert FAMILY.from_json(made.to_json()) == made
    assert re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", made.label)
    assert made.summary.endswith(".")


@given(specs(), st.lists(st.sampled_from((0, 1, 2, 3, 5)), max_size=4), st.sampled_from((0, 2)))
def test_any_array_is_measured_and_laid_out_alike(made: ReductionSpec, shape: list[int], gap: int) -> None:
    try:
        extents = problem(made, shape, gap=gap)
    except ShapeError:
        assume(False)
    layouts = FAMILY.layouts(made, extents)
    assert FAMILY.extents(made, layouts) == extents
    if (made.axis is not None or made.keepdims) and (shape or not made.axis):
        array = np.zeros(shape, np.int8)
        axis: Any = made.axis if made.axis is None or made.axis else ()
        assert layouts["in"].shape == tuple(shape)
        assert layouts[made.results[0][0]].shape == np.sum(array, axis=axis, keepdims=made.keepdims).shape


NUMPY: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "any": np.any, "all": np.all, "argmin": np.argmin,
    "argmax": np.argmax, "mean": np.mean, "var": np.var, "std": np.std,
    "count_nonzero": lambda x, axis: np.asarray(np.count_nonzero(x, axis=axis), np.int64),
    "sumsq": lambda x, axis: np.sum(x * x if x.dtype.kind == "f" else x.astype(np.int64) ** 2, axis=axis),
    "norm": lambda x, axis: np.sqrt(np.sum(x.astype(np.float64) ** 2, axis=axis)),
}  # fmt: skip


@pytest.mark.parametrize("op", OPERATORS)
@given(data=st.data())
def test_the_oracle_is_numpy(op: str, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from((BOOL, I8, I32, U8, I64, F32, F64)))
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = data.draw(st.sampled_from((None, *range(-len(shape), len(shape)))))
    values = data.draw(st.lists(st.integers(-3, 3), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    array = np.array(values).reshape(shape).astype(dtype.numpy)
    made = spec(op, dtype, axis=axis)
    found = FAMILY.oracle(made, {"in": array}, {})["out"]
    right = np.asarray(NUMPY[op](array, axis=axis))
    assert made.result.numpy == right.dtype or op in ("norm", "sumsq")
    np.testing.assert_allclose(found.value.astype(np.float64), right.astype(np.float64), rtol=1e-6, atol=1e-6)
    assert disagreement(found, right.astype(made.result.numpy), 40, made.result) is None
    if right.dtype.kind != "b" and not np.isinf(0.0 if found.magnitude is None else found.magnitude).any():
        wrong = (right + 1).astype(made.result.numpy)
        assert disagreement(found, wrong, 40, made.result) is not None


# Each algorithm as small as it can be, so that small arrays take every turn; its operators take turns at several.
HALVES: dict[str, tuple[Config, ...]] = {
    "grid": (
        GridConfig(threads_per_block=128, unroll=2, vec_bytes=16, blocks_per_sm=2),
        GridConfig(threads_per_block=128, unroll=8, vec_bytes=16, blocks_per_sm=2, finish=Finish.SECOND_PASS),
    ),
    "flags": (FlagsConfig(threads_per_block=128, unroll=2, vec_bytes=16, blocks_per_sm=2),),
    "cluster": (
        ClusterConfig(threads_per_block=256, unroll=2, vec_bytes=8, blocks_per_sm=ALONE, blocks_per_cluster=2),
        ClusterConfig(threads_per_block=256, unroll=4, vec_bytes=16, blocks_per_sm=ALONE, blocks_per_cluster=2),
        ClusterConfig(threads_per_block=256, unroll=4, vec_bytes=16, blocks_per_sm=1, blocks_per_cluster=8),
    ),
    "rows": (
        RowsConfig(threads_per_block=128, group=4, unroll=2, vec_bytes=8),
        RowsConfig(threads_per_block=128, group=128, unroll=2, vec_bytes=8),
    ),
    "rows at once": (RowsConfig(threads_per_block=128, group=4, rows_at_once=4, unroll=2, vec_bytes=8),),
    "columns": (
        ColumnsConfig(columns_x=16, rows_y=8, unroll=2, vec_bytes=8, blocks_per_sm=2),
        ColumnsConfig(columns_x=16, rows_y=8, unroll=8, vec_bytes=16, blocks_per_sm=2, finish=Finish.SECOND_PASS),
    ),
    "columns flags": (
        ColumnsConfig(columns_x=16, rows_y=8, unroll=2, vec_bytes=8, blocks_per_sm=2, finish=Finish.FLAGS),
    ),
    "stream flags": (StreamConfig(threads_per_block=128, unroll=2, vec_bytes=8, blocks_per_sm=2, finish=Finish.FLAGS),),
    "stream": (StreamConfig(threads_per_block=128, unroll=2, vec_bytes=8, blocks_per_sm=2),),
    "strided": (
        StridedConfig(threads_per_block=64, unroll=4),
        StridedConfig(threads_per_block=64, unroll=4, finish=Finish.SECOND_PASS),
    ),
    "single": (
        SingleConfig(threads_per_block=32, unroll=1, vec_bytes=16),
        SingleConfig(threads_per_block=64, unroll=2, vec_bytes=8),
        SingleConfig(threads_per_block=32, unroll=2, vec_bytes=16, ending=Ending.SHARED),
        SingleConfig(threads_per_block=128, unroll=1, vec_bytes=16, ending=Ending.SHARED),
    ),
}
PLACES = {
    "grid": (None, (-1,)),
    "flags": (None, (-1,)),
    "cluster": (None, (-1,)),
    "rows": ((-1,),),
    "rows at once": ((-1,),),
    "columns": ((0,), (1,)),
    "stream": ((0,),),
    "columns flags": ((0,), (1,)),
    "stream flags": ((0,),),
    "strided": (None, (0, 2)),
    "single": (None,),
}


# They differ from others in how a block ends or begins: every second operator, between two of them all.
EACH_SECOND = {"rows at once": 0, "columns flags": 0, "stream flags": 1}


def proven(which: str) -> Iterator[Variant]:
    """Every operator and every type, in pairs that differ from algorithm to algorithm."""
    algorithm = which.split()[0]
    dtypes, turns = cycle(NUMBERS), cycle(product(HALVES[which], PLACES[which]))
    for _ in range(5 * list(HALVES).index(which)):
        next(dtypes)
    for place, op in enumerate(NAMES):
        (config, axis), dtype = next(turns), next(dtypes)
        if place % 2 != EACH_SECOND.get(which, place % 2):
            continue
        if op.startswith("arg") and axis is not None and len(axis) > 1:
            axis = None
        made = spec(op, dtype, axis=axis)
        if FAMILY.algorithms[algorithm].refuses(made, config) is None:
            yield variant(FAMILY, made, algorithm, config)


@pytest.mark.parametrize("algorithm", HALVES)
def test_operators_and_types_equal_numpy_along_any_axes(algorithm: str, host_runner: HostRunner) -> None:
    variants = tuple(proven(algorithm))
    devices = {count: replace(host_runner.limits, sm_count=count) for count in SM_COUNTS}
    kernels = {count: load(host_runner, variants, limits) for count, limits in devices.items()}

    @settings(max_examples=max(settings().max_examples // 4, 1))
    @given(st.data())
    def equals_numpy(data: st.DataObject) -> None:
        made = data.draw(st.sampled_from(variants), label="variant")
        case = data.draw(cases(FAMILY, made.spec), label="case")
        assume(uncovered(made, case, devices[case.sm_count]) is None)
        failure = check(kernels[case.sm_count][made], devices[case.sm_count], case)
        assert failure is None, str(failure)

    equals_numpy()


def test_every_family_case_of_some_operators(host_runner: HostRunner) -> None:
    variants = [made for name in HALVES for made in tuple(proven(name))[::9]]
    kernels = load(host_runner, variants, host_runner.limits)
    for made in variants:
        for seed, extents in enumerate(made.family.cases(made.spec)):
            case = Case(extents, seed=seed, offset=seed % 4)
            if uncovered(made, case, host_runner.limits) is None:
                failure = check(kernels[made], host_runner.limits, case)
                assert failure is None, str(failure)


def run(host_runner: HostRunner, made: ReductionSpec, array: Array, one: Variant | None = None) -> dict[str, Array]:
    """The results of one variant, or of base, on an array."""
    extents = FAMILY.extents(made, {"in": Layout.of(array)})
    one = one or base_of(made, extents)
    kernel = load(host_runner, [one], host_runner.limits)[one]
    layouts = FAMILY.layouts(made, extents)
    results = {name: np.empty(layouts[name].shape, layouts[name].dtype) for name, _, _ in made.results}
    kernel.run(extents, {"in": array, **results})
    return results


def base_of(made: ReductionSpec, extents: Any) -> Variant:
    return variant(FAMILY, made, *FAMILY.base(made, FAMILY.shape_class(made, extents)))


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


ALL_TOGETHER = tuple(name for name, operator in OPERATORS.items() if not operator.indexed)


@pytest.mark.parametrize("dtype", [BOOL, I8, F16, F64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_however_many_statistics_every_class_has_a_base(axis: int | None, dtype: DType) -> None:
    for count in range(1, len(ALL_TOGETHER) + 1):
        made = spec(ALL_TOGETHER[-count:], dtype, axis=axis)
        for name in FAMILY.shape_classes(made):
            extents = FAMILY.representative(made, name)
            assert uncovered(base_of(made, extents), Case(extents), H100) is None


@pytest.mark.parametrize(
    "made",
    [
        spec(ALL_TOGETHER, "bf16", axis=(0, 1, 2, 3), ddof=99, keepdims=True),
        spec(ALL_TOGETHER, "f16", axis=-1),
        spec("count_nonzero", "bool", axis=tuple(range(32))),
    ],
    ids=lambda made: f"{len(made.op)} along {len(made.axis)}",
)
def test_a_spec_that_no_name_can_hold_is_called_by_a_digest(made: ReductionSpec) -> None:
    assert re.fullmatch(f"several_[0-9a-f]{{8}}_{made.dtype.name}", made.label)
    assert FAMILY.parse(made.label, {made.label: made.to_json()}) == made
    with pytest.raises(UnknownNameError):
        FAMILY.parse(made.label, {})
    assert replace(made, keepdims=not made.keepdims).label != made.label
    for algorithm in FAMILY.algorithms.values():
        for config in algorithm.config.space():
            if illegal(algorithm, made, config) is None:
                assert variant(FAMILY, made, algorithm, config).spec == made


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
    configs = [SingleConfig(threads_per_block=n, unroll=2, vec_bytes=8, ending=Ending.SUMS) for n in (32, 128)]
    for config, (dtype, result) in product(configs, ((I64, None), (I32, None), (U8, None), (I32, "i32"))):
        made = spec("sum", dtype, dtype=result)
        ends = np.iinfo(dtype.numpy)
        array = np.random.default_rng(5).integers(ends.min, ends.max, 1003, dtype.numpy, endpoint=True)
        for one in (array, np.full_like(array, ends.min), np.full_like(array, ends.max)):
            got = run(host_runner, made, one, variant(FAMILY, made, "single", config))["out"]
            assert got == np.sum(one, dtype=made.result.numpy)
    for other in (spec("sum"), spec("mean", I64), spec("max", I32), spec("any", U8)):
        assert single.refuses(other, configs[0]) is not None
    assert single.infeasible(spec("sum", I32), configs[0], Limits.of("sm_75")) is not None
    assert single.infeasible(spec("sum", I32), configs[0], Limits.of("sm_80")) is None


def test_nothing_has_the_results_that_numpy_gives_it(host_runner: HostRunner) -> None:
    nothing = np.empty((3, 0), np.float32)
    for op, empty in (("sum", 0), ("prod", 1), ("any", False), ("all", True), ("mean", np.nan), ("var", np.nan)):
        np.testing.assert_array_equal(run(host_runner, spec(op, axis=1), nothing)["out"], [empty] * 3)
        np.testing.assert_array_equal(run(host_runner, spec(op), nothing)["out"], empty)
    for op in ("min", "max", "minmax", "argmin", "argmax"):
        with pytest.raises(ShapeError, match=r"in must have elements along the reduced axes, since \w+ of none"):
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


@pytest.mark.parametrize("gap", [0, 3])
@given(specs(), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.sampled_from((1, 2)))
def test_every_problem_is_of_a_class_of_its_spec(gap: int, made: ReductionSpec, shape: list[int], step: int) -> None:
    try:
        extents = problem(made, [5 * extent for extent in shape], gap=gap, step=step)
    except ShapeError:
        assume(False)
    assert FAMILY.shape_class(made, extents) in FAMILY.shape_classes(made)


def zeros(*shape: int, dtype: str = "float32") -> Layout:
    return Layout.of(np.zeros(shape, dtype))


def test_integers_of_numpy_are_axes_too() -> None:
    made = gen.reduction("var", "f4", axis=(np.int64(1), np.uint8(0)), ddof=np.int32(1))
    assert made == gen.reduction("var", "f4", axis=(0, 1), ddof=1)
    assert made.label == "var_f32_ddof1_axis0x1"
    assert gen.reduction("sum", axis=np.int16(-1)) == gen.reduction("sum", axis=-1)


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: spec("median"), "reduction.op must be one of sum, prod, min, max, any"),
    (lambda: spec("sum", "f33"), "reduction.elements must be one of bool, f16"),
    (lambda: gen.reduction("sum", None), "reduction.elements must be one of bool, f16"),
    (lambda: spec("sum", dtype="what"), "reduction.dtype must be one of bool, f16"),
    (lambda: spec("sum", axis=(0, 0)), "reduction.axis must name each axis once (got (0, 0))"),
    (lambda: spec("sum", axis=1.5), "reduction.axis must be None, a number or a tuple of numbers"),
    (lambda: spec("sum", axis=64), "reduction.axis must be from -64 to 63 (got 64)"),
    (lambda: spec("argmin", axis=(0, 1)), "reduction.axis of argmin must be None or one axis (got (0, 1))"),
    (lambda: spec("sum", F32, dtype="i32"), "must be a floating-point type, since sum of these gives one (got i32)"),
    (lambda: spec("max", F32, dtype="f64"), "must be f32, as NumPy has it: max take no dtype"),
    (lambda: spec("sum", ddof=1), "reduction.ddof must be 0 unless a variance is asked for"),
    (lambda: spec("var", ddof=-1), "reduction.ddof must be a whole number from 0 to 99 (got -1)"),
    (lambda: gen.reduction(("sum", "sum")), "must name each statistic once"),
    (lambda: gen.reduction(("sum", "argmax")), "must be alone where it is argmin or argmax"),
    (lambda: FAMILY.extents(spec("sum", axis=2), {"in": zeros(3, 4)}), "in must have an axis 2, which is to be"),
    (lambda: FAMILY.extents(spec("sum", axis=(1, -1)), {"in": zeros(3, 4)}), "but some are the same (got 2 axes)"),
    (lambda: FAMILY.extents(spec("sum", axis=0), {"in": zeros(3, 4), "out": zeros(3)}), "out must have shape (4,)"),
    (lambda: FAMILY.extents(spec("sum"), {"in": zeros(3), "out": zeros(dtype="int32")}), "out must hold f32 elements"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_is_no_reduction_is_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(GenError) as caught:
        make()
    assert says in str(caught.value)


@given(specs())
def test_every_class_has_sizes_that_stand_for_it_and_a_base(made: ReductionSpec) -> None:
    for name in FAMILY.shape_classes(made):
        extents = FAMILY.representative(made, name)
        assert FAMILY.shape_class(made, extents) == name
        base = base_of(made, extents)
        assert uncovered(base, Case(extents), H100) is None
        assert "kThreads" in render(base)


def test_a_default_takes_the_largest_rows_of_its_class() -> None:
    made = spec("sum", axis=(-1,))
    for outer, n in ((256, 2**31), (2**20, 2048), (2**25, 16), (255, 2**33), (4096, 2**15)):
        extents = problem(made, (outer, n))
        assert uncovered(base_of(made, extents), Case(extents), H100) is None


def test_the_whole_space_of_a_spec_stays_small() -> None:
    for op, axis in (("sum", None), ("sum", (0,)), ("sum", (-1,)), ("argmax", (1,))):
        made = spec(op, F32, axis=axis)
        legal = sum(
            config.problem() is None and algorithm.refuses(made, config) is None
            for algorithm in FAMILY.algorithms.values()
            for config in algorithm.config.space()
        )
        assert 50 < legal < 3500


WAITING = ("flags", "columns", "stream")


@pytest.mark.parametrize("arch", ["sm_75", "sm_86", "sm_90"])
@given(data=st.data())
def test_a_block_that_waits_for_others_has_room_beside_them(arch: str, data: st.DataObject) -> None:
    limits = Limits.of(arch)
    name = data.draw(st.sampled_from(WAITING), label="algorithm")
    made = spec("sum", axis=(-1,) if name == "flags" else (0,))
    algorithm = FAMILY.algorithms[name]
    config = data.draw(configs(algorithm.config), label="config")
    shape = [data.draw(st.integers(1, 3000)), data.draw(st.integers(1, 300_000))]
    extents = problem(made, shape if name == "flags" else shape[::-1])
    if getattr(config, "finish", Finish.FLAGS) is not Finish.FLAGS or algorithm.refuses(made, config) is not None:
        return
    if algorithm.infeasible(made, config, limits) or algorithm.uncovered(made, config, extents, limits):
        return
    plan, sizes = algorithm.plan(made, config), {**extents, **limits.sizes()}
    threads = int(np.prod(plan.launches[0].block))
    blocks = plan.launches[0].grid[0].at(sizes)
    waits = plan.scratch[0].bytes.at(sizes) > 0
    assert not waits or blocks * threads <= limits.sm_count * limits.threads_per_sm


def test_clusters_begin_with_sm_90_and_need_no_scratch_memory_alone() -> None:
    made, algorithm = spec("sum"), FAMILY.algorithms["cluster"]
    alone, several = HALVES["cluster"][0], HALVES["cluster"][-1]
    for config in (alone, several):
        assert algorithm.infeasible(made, config, Limits.of("sm_89")) is not None
        assert all(algorithm.infeasible(made, config, Limits.of(arch)) is None for arch in ("sm_90", "sm_100"))
        for n in (0, 1, 2**16, 2**26):
            launch = algorithm.plan(made, config).launches[0]
            assert launch.grid[0].at({"n": n, **H100.sizes()}) % launch.cluster[0] == 0
    assert algorithm.plan(made, alone).scratch == ()
    assert "<<<2, 256>>>(in, out, n) in clusters of 2 blocks\n" in render(variant(FAMILY, made, "cluster", alone))
    assert algorithm.plan(made, alone).launches[0].arguments[:2] == ("in", "out")
    assert algorithm.uncovered(made, alone, {"n": 2**16}, H100) is None
    assert algorithm.uncovered(made, alone, {"n": 2**28}, H100) is not None


def test_a_second_pass_runs_where_there_are_partial_results() -> None:
    made, config = spec("sum"), HALVES["grid"][-1]
    first, second = FAMILY.algorithms["grid"].plan(made, config).launches
    for n, passes in ((0, 0), (1, 0), (4096, 0), (4097, 1), (2**28, 1)):
        sizes = {"n": n, **H100.sizes()}
        assert (first.grid[0].at(sizes) > 1, second.grid[0].at(sizes)) == (passes == 1, passes)
