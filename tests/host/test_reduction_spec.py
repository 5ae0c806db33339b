"""Reductions of every operator and type, along any axes: what they are called, what they mean, what they refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import gen
from gen.dtypes import BOOL, F16, F32, F64, I8, I32, I64, U8, DType
from gen.emit.render import render
from gen.errors import GenError, ShapeError, SpecError, UnknownNameError
from gen.families.base import Layout
from gen.families.names import illegal, parse_label, search_space, variant
from gen.families.reduction import ReductionSpec
from gen.families.reduction.algorithms.columns import ColumnsConfig
from gen.families.reduction.operators import OPERATORS
from gen.families.reduction.shapes import problem
from gen.proof.cases import Case
from gen.proof.error_bounds import disagreement
from gen.proof.prover import unsupported_extents
from tests.host.reductions import ALL_TOGETHER, FAMILY, H100, NAMES, NUMBERS, base_of, spec

AXES = (None, (), (0,), (-1,), (1,), (0, 1), (0, 2), (-2, -1), (0, -1))


@st.composite
def specs(draw: st.DrawFn) -> ReductionSpec:
    """Any spec that there is."""
    op = draw(st.sampled_from(NAMES))
    axis = draw(st.sampled_from(AXES))
    dtype = draw(st.sampled_from((None, None, None, *NUMBERS)))
    ddof = draw(st.sampled_from((0, 1))) if op in ("var", "std") else 0
    try:
        return gen.reduction(
            op, draw(st.sampled_from(NUMBERS)), axis=axis, keepdims=draw(st.booleans()), dtype=dtype, ddof=ddof
        )
    except SpecError:
        assume(False)
        raise


@given(specs())
def test_a_spec_reads_back_from_its_label_and_its_json(made: ReductionSpec) -> None:
    assert FAMILY.from_label(made.label) == made
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


@pytest.mark.parametrize("dtype", [BOOL, I8, F16, F64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_however_many_statistics_every_class_has_a_base(axis: int | None, dtype: DType) -> None:
    for count in range(1, len(ALL_TOGETHER) + 1):
        made = spec(ALL_TOGETHER[-count:], dtype, axis=axis)
        for name in FAMILY.shape_classes(made):
            extents = FAMILY.representative(made, name)
            assert unsupported_extents(base_of(made, extents), Case(extents), H100) is None


@given(
    st.sampled_from(NAMES), st.sampled_from(NUMBERS), st.integers(1, 2**16), st.integers(2, 16), st.integers(512, 2**20)
)
def test_no_thread_waits_below_others_where_there_are_few_rows(
    op: str, dtype: DType, outer: int, n: int, inner: int
) -> None:
    assume(outer > 1 or inner > 1024)
    try:
        made = spec(op, dtype, axis=1)
    except SpecError:
        assume(False)
    config = base_of(made, problem(made, (outer, n, inner))).config
    assert isinstance(config, ColumnsConfig)
    assert config.rows_y == 1


@pytest.mark.parametrize(
    "made",
    [
        spec(ALL_TOGETHER, "bf16", axis=(0, 1, 2, 3), ddof=99, keepdims=True),
        spec(ALL_TOGETHER, "float16", axis=-1),
        spec("count_nonzero", "bool", axis=tuple(range(32))),
    ],
    ids=lambda made: f"{len(made.op)} along {len(made.axis)}",
)
def test_a_spec_that_no_name_can_hold_is_called_by_a_digest(made: ReductionSpec) -> None:
    assert re.fullmatch(f"several_[0-9a-f]{{8}}_{made.dtype.name}", made.label)
    assert parse_label(FAMILY, made.label, {made.label: made.to_json()}) == made
    with pytest.raises(UnknownNameError):
        parse_label(FAMILY, made.label, {})
    assert replace(made, keepdims=not made.keepdims).label != made.label
    for algorithm in FAMILY.algorithms.values():
        for config in algorithm.config.space():
            if illegal(algorithm, made, config) is None:
                assert variant(FAMILY, made, algorithm, config).spec == made


@pytest.mark.parametrize("gap", [0, 3])
@given(specs(), st.data(), st.sampled_from((1, 2)))
def test_every_problem_is_of_a_class_of_its_spec(gap: int, made: ReductionSpec, data: st.DataObject, step: int) -> None:
    known = made.axis or ()
    axes = max(len(known), *(axis + 1 if axis >= 0 else -axis for axis in known), 1)
    shape = data.draw(st.lists(st.integers(1, 4), min_size=axes, max_size=max(axes, 4)))
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


@pytest.mark.parametrize("op", ["min", "minmax", "mean_var", "stats", ("any", "all")])
def test_statistics_take_the_dtype_that_they_have(op: str | tuple[str, ...]) -> None:
    dtype = BOOL if "any" in op else F32
    assert gen.reduction(op, "f32", dtype=dtype) == gen.reduction(op, "f32")


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: spec("median"), "reduction.op must be one of sum, prod, min, max, any"),
    (lambda: spec("sum", "f33"), "reduction.elements must be one of bool, f16"),
    (lambda: gen.reduction("sum", None), "reduction.elements must be one of bool, f16"),
    (lambda: spec("sum", dtype="what"), "reduction.dtype must be one of bool, f16"),
    (lambda: spec("sum", axis=(0, 0)), "reduction.axis must name each axis once (got (0, 0))"),
    (lambda: spec("sum", axis=1.5), "reduction.axis must be None, a number or a tuple of numbers"),
    (lambda: spec("sum", axis=np.timedelta64(1, "s")), "reduction.axis must be None, a number or a tuple of numbers"),
    (lambda: spec("sum", axis=64), "reduction.axis must be from -64 to 63 (got 64)"),
    (lambda: spec("argmin", axis=(0, 1)), "reduction.axis of argmin must be None or one axis (got (0, 1))"),
    (lambda: spec("sum", F32, dtype="i32"), "must be a floating-point type, since sum of these gives one (got i32)"),
    (lambda: spec("max", F32, dtype="f64"), "reduction.dtype must be f32: max takes no other (got f64). Leave it out"),
    (lambda: spec("minmax", dtype="f64"), "reduction.dtype must be f32: min and max take no other (got f64). Leave"),
    (lambda: spec("stats", I8, dtype="i64"), "left out: sum, sumsq, min and max have dtypes of their own (got i64)"),
    (lambda: ReductionSpec(("max",), F64, F32), "must be f64, or hold every f64: max takes no other (got f32). Leave"),
    (lambda: ReductionSpec(("min", "max"), F32, F64), "must be f32: min and max take no other (got f64). Leave it out"),
    (lambda: spec("sum", ddof=1), "reduction.ddof must be 0 unless a variance is asked for"),
    (lambda: spec("var", ddof=-1), "reduction.ddof must be a whole number from 0 to 99 (got -1)"),
    (lambda: gen.reduction(("sum", "sum")), "must name each statistic once"),
    (lambda: gen.reduction(("sum", "argmax")), "must be alone where it is argmin or argmax"),
    (
        lambda: FAMILY.extents(spec("sum", axis=2), {"in": zeros(3, 4)}),
        "reduction.axis must be from -2 to 1, since in has 2 axes (got 2). Name another axis, or pass an array of more",
    ),
    (lambda: FAMILY.extents(spec("sum", axis=(0, -1)), {"in": zeros()}), "one of 0 and -1, since in has no axes (got"),
    (
        lambda: FAMILY.extents(spec("sum", axis=(1, -1)), {"in": zeros(3, 4)}),
        "reduction.axis must name each axis once, and in has 2 axes (got (1, -1)). Leave out one of 1 and -1",
    ),
    (
        lambda: FAMILY.extents(spec("sum", axis=0), {"in": zeros(3, 4), "out": zeros(3)}),
        "out must have shape (4,) (got (3,)). Pass one that does, or none: then it is made",
    ),
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
        assert unsupported_extents(base, Case(extents), H100) is None
        assert "kThreads" in render(base)


def test_a_default_takes_the_largest_rows_of_its_class() -> None:
    made = spec("sum", axis=(-1,))
    for outer, n in ((256, 2**31), (2**20, 2048), (2**25, 16), (255, 2**33), (4096, 2**15)):
        extents = problem(made, (outer, n))
        assert unsupported_extents(base_of(made, extents), Case(extents), H100) is None


def test_the_whole_space_of_a_spec_stays_small() -> None:
    for op, axis in (("sum", None), ("sum", (0,)), ("sum", (-1,)), ("argmax", (1,))):
        made = spec(op, F32, axis=axis)
        spaces = [search_space(algorithm, made) for algorithm in FAMILY.algorithms.values()]
        searched = sum(getattr(config, "length", 4) == 4 for space in spaces for config in space)  # of rows of 4
        assert 50 < searched < 4040
