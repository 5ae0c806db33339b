"""What every family promises, and what only one of them does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import gen
from gen.dtypes import B32, DTYPES, F16, F32, F64, I32, DType, LoadModifier, StoreModifier, read_dtype
from gen.emit.folder import all_of_catalogue
from gen.emit.render import template_inputs
from gen.errors import SpecError
from gen.families import FAMILIES
from gen.families.base import MAX_GRID_X, Algorithm, Extents, Family, Launch, Limits, Plan, Spec
from gen.families.expr import ONE, size
from gen.families.names import base_variants, illegal, named_variant, parse_label, search_space, unsearched
from gen.families.plans import Tiles, steps
from gen.families.reduction import BlocksConfig, Grid, GridConfig, Reduction, ReductionSpec, Shfl
from gen.families.reduction.algorithms.grid import Flags, FlagsConfig
from gen.families.stencil import StencilSpec
from gen.families.transpose import NaiveConfig, Transpose, TransposeSpec
from gen.proof.cases import MULTIPROCESSOR_COUNTS
from tests.strategies import cases, extents, json_values, stencils, variants

SPECS = [(family, spec) for family in FAMILIES for spec in family.catalogue]
each_spec = pytest.mark.parametrize(
    ("family", "spec"), SPECS, ids=lambda part: getattr(part, "name", getattr(part, "label", ""))
)
each_algorithm = pytest.mark.parametrize(
    "algorithm",
    [algorithm for family in FAMILIES for algorithm in family.algorithms.values()],
    ids=lambda algorithm: algorithm.template.removesuffix(".cu.jinja"),
)
HEAT = (0, 0.125, 0, 0.125, 0.5, 0.125, 0, 0.125, 0)


@each_spec
def test_a_spec_reads_back_from_its_json(family: Family[Any], spec: Spec) -> None:
    assert family.from_json(spec.to_json()) == spec
    assert re.fullmatch(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*", spec.label)
    assert spec.summary.endswith(".")


@given(stencils())
def test_any_stencil_reads_back_from_its_json(spec: StencilSpec) -> None:
    again = FAMILIES[2].from_json(spec.to_json())
    assert again == spec
    assert again.label == spec.label
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9]*_[0-9a-f]{8}_f(16|32|64)", spec.label)


def test_stencils_that_are_equal_have_one_label() -> None:
    zero = (0, -0.0, 0.0, -0.0, 1, 0, 0, 0, -0.0)
    one = StencilSpec("s", zero)
    other = StencilSpec("s", tuple(float(weight) + 0.0 for weight in zero), cval=-0.0)
    assert one == other
    assert one.label == other.label == StencilSpec("s", zero, (3, 3), boundary=("constant", "constant")).label
    assert StencilSpec("s", zero, boundary="wrap", cval=3.0) == StencilSpec("s", zero, boundary="wrap")
    assert "-0" not in str(one.to_json()) + str(other.to_json())
    assert one.label != StencilSpec("s", (0, 0, 0, 0, 2, 0, 0, 0, 0)).label


def test_weights_are_what_the_kernel_holds() -> None:
    spec = StencilSpec("s", (0, 0.1, 0, 0, 0, 0, 0, 0, 0))
    assert spec.weights[1] == float(np.float32(0.1)) != 0.1
    assert spec.taps == (((-1, 0), float(np.float32(0.1))),)


def test_taps_are_offsets_from_the_centre() -> None:
    star = StencilSpec("s", (0, 1, 0, 2, 3, 4, 0, 5, 0))
    assert star.taps == (((-1, 0), 1.0), ((0, -1), 2.0), ((0, 0), 3.0), ((0, 1), 4.0), ((1, 0), 5.0))


HEAT_JSON = StencilSpec("s", HEAT).to_json()
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: ReductionSpec(op=("median",)), "reduction.op must be one of sum, prod, min"),
    (lambda: ReductionSpec(op=("sun",)), "minmax, mean_var, stats (got 'sun'). Did you mean sum?"),
    (lambda: ReductionSpec(dtype=B32), "reduction.elements must be bool, an integer or a floating-point type"),
    (lambda: TransposeSpec(axes=(0, 2)), "transpose.axes must hold each of 0, 1, ... once, 8 numbers at most"),
    (lambda: TransposeSpec(axes=(True, False)), "such as (1, 0) (got (True, False))"),
    (lambda: TransposeSpec(axes=()), "such as (1, 0) (got ())"),
    (lambda: TransposeSpec(axes=tuple(range(9))), "such as (1, 0) (got (0, 1, 2, 3, 4, 5, 6, 7, 8))"),
    (lambda: TransposeSpec(dtype=F32), "transpose.dtype must be b8, b16, b32, b64, b128 (got f32)"),
    (lambda: StencilSpec("", HEAT), "stencil.word must be a letter and up to 23 letters and digits (got '')"),
    (lambda: StencilSpec("9lives", HEAT), "stencil.word must be a letter and up to 23 letters and digits"),
    (lambda: StencilSpec("two words", HEAT), "(got 'two words')"),
    (lambda: StencilSpec("h\u00e4", HEAT), "(got 'h\u00e4')"),
    (lambda: StencilSpec("heat\n", HEAT), "(got 'heat\\n')"),
    (lambda: StencilSpec("w" * 25, HEAT), f"(got '{'w' * 25}')"),
    (lambda: StencilSpec("heat", HEAT, dtype=I32), "stencil.dtype must be one of f16, bf16, f32, f64, u8, i16, u16"),
    (lambda: StencilSpec("heat", HEAT[1:]), "as many as their shape says (got 8 weights of shape (3, 3))"),
    (lambda: StencilSpec("heat", (1.0,) * 18, shape=(18,)), "stencil.weights must be 1 to 17 along each of 1 to 3"),
    (lambda: StencilSpec("heat", (1.0,) * 8, shape=(2, 2, 2, 1)), "1 to 3 axes, as many as their shape says (got 8"),
    (lambda: StencilSpec("heat", (), shape=(0,)), "(got 0 weights of shape (0,))"),
    (lambda: FAMILIES[2].from_json({**HEAT_JSON, "boundary": "around"}), "stencil.boundary must be one of constan"),
    (lambda: FAMILIES[2].from_json({"word": "w", "weights": [1], "shape": [1], "boundary": 3, "dtype": "f32"}),
     "names one for each end (got 3)"),
    (lambda: StencilSpec("heat", HEAT, boundary=("wrap",)), "a pair names one for each end (got ('wrap',))"),
    (lambda: StencilSpec("heat", HEAT, cval=float("nan")), "cval must be a number, finite as f32 (got nan)"),
    (lambda: StencilSpec("heat", HEAT, cval=True), "stencil.cval must be a number, finite as f32 (got True)"),
    (lambda: StencilSpec("heat", HEAT, dtype=F16, cval=1e5), "stencil.cval must be a number, finite as f16"),
    (lambda: StencilSpec("heat", HEAT, origin=2), "stencil.origin must be from -1 to 1 where there are 3 weights"),
    (lambda: FAMILIES[2].from_json({**HEAT_JSON, "origin": [0, 0.5]}), "or 2, one an axis (got (0, 0.5))"),
    (lambda: StencilSpec("heat", (0, 1e39, *HEAT[2:])), "weights must be numbers, finite as f32 (got 1e+39)"),
    (lambda: StencilSpec("heat", (0, float("nan"), *HEAT[2:])), "must be numbers, finite as f32 (got nan)"),
    (lambda: StencilSpec("heat", (0, 10**400, *HEAT[2:])), "must be numbers, finite as f32 (got 1000"),
    (lambda: FAMILIES[0].from_json({}), "reduction.dtype must be one of bool, f16, bf16"),
    (lambda: FAMILIES[0].from_json({"dtype": ["f32"]}), "(got ['f32'])"),
    (lambda: FAMILIES[1].from_json({"dtype": "b32", "axes": 10}), "such as (1, 0) (got 10)"),
    (lambda: FAMILIES[2].from_json({**HEAT_JSON, "weights": 3}), "shape says (got 0 weights of shape (3, 3))"),
    (lambda: FAMILIES[2].from_json({**HEAT_JSON, "word": 3}), "stencil.word must be a letter"),
    (lambda: FAMILIES[2].from_json({**HEAT_JSON, "weights": ["0"] * 9}), "must be numbers"),
    (lambda: FAMILIES[2].from_json({**HEAT_JSON, "weights": [True] * 9}), "must be numbers"),
    (lambda: read_dtype("f33", "X.dtype"), "X.dtype must be one of bool, f16, bf16, f32"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "says"), WRONG, ids=[says for _, says in WRONG])
def test_a_spec_that_no_family_computes_is_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert says in str(caught.value)


@given(st.sampled_from(SPECS), st.data())
def test_any_json_is_a_spec_or_an_error(family_and_spec: tuple[Family[Any], Spec], data: st.DataObject) -> None:
    family, spec = family_and_spec
    fields = spec.to_json()
    changed: Mapping[str, Any] = data.draw(st.dictionaries(st.sampled_from(sorted(fields)), json_values(), max_size=2))
    left_out = data.draw(st.sampled_from(("", *fields)))
    content = {name: value for name, value in {**fields, **changed}.items() if name != left_out}
    try:
        read = family.from_json(content)
    except SpecError as error:
        subject = error.subject
        assert subject.startswith(f"{family.name}."), "an argument of gen's function, or a field of the JSON"
    else:
        assert family.from_json(read.to_json()) == read
        assert family.from_json(read.to_json()).label == read.label


@each_spec
def test_every_shape_class_has_a_base_and_every_case_a_class(family: Family[Any], spec: Spec) -> None:
    classes = family.shape_classes(spec)
    assert len(set(classes)) == len(classes) > 0
    assert {family.shape_class(spec, sizes) for sizes in family.cases(spec)} <= set(classes)
    bases = {made.config for made in base_variants(family, spec)}
    assert {family.base(spec, name)[1] for name in classes} == bases


def test_sums_of_all_sizes_have_a_class() -> None:
    reduction, spec = Reduction(), ReductionSpec()
    sizes = (0, 2**12, 2**12 + 1, 2**15, 2**15 + 1, 2**20, 2**20 + 1, 2**40)
    found = [reduction.shape_class(spec, {"n": n}) for n in sizes]
    few, small, middle, large, *_ = reduction.shape_classes(spec)
    assert found == [few, few, small, small, middle, middle, large, large]


@each_spec
@given(data=st.data())
def test_the_least_work_is_every_operand_once(family: Family[Any], spec: Spec, data: st.DataObject) -> None:
    sizes = data.draw(extents(spec))
    work = family.work(spec, sizes)
    layouts = family.layouts(spec, sizes)
    for roles, moved in (("in", work.bytes_read), ("out", work.bytes_written)):
        arrays = [layouts[operand.name] for operand in spec.operands if operand.role in (roles, "inout")]
        assert moved == sum(int(np.prod(layout.shape)) * layout.dtype.itemsize for layout in arrays)
    assert work.cells >= 0


@each_spec
@given(data=st.data())
def test_the_oracle_answers_in_the_shape_of_the_outputs(family: Family[Any], spec: Spec, data: st.DataObject) -> None:
    case = data.draw(cases(family, spec))
    layouts = family.layouts(spec, case.extents)
    inputs = {o.name: np.ones(layouts[o.name].shape, layouts[o.name].dtype) for o in spec.operands if o.role != "out"}
    expected = family.oracle(spec, inputs, case.extents)
    outputs = {operand.name for operand in spec.operands if operand.role in ("out", "inout")}
    assert expected.keys() == outputs
    for name in outputs:
        assert expected[name].value.shape == layouts[name].shape


@each_algorithm
def test_an_algorithm_is_known_by_its_name_and_says_what_it_does(algorithm: Algorithm[Any, Any]) -> None:
    (family,) = [family for family in FAMILIES if algorithm in family.algorithms.values()]
    assert family.algorithms[algorithm.name] is algorithm
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", algorithm.name)
    assert algorithm.template == f"{family.name}/{algorithm.name}.cu.jinja"
    assert family.templates.joinpath(algorithm.template).is_file()
    assert algorithm.summary.endswith(".")
    assert algorithm.repeatable


@given(st.data())
def test_a_plan_can_be_launched_at_every_size(data: st.DataObject) -> None:
    made = data.draw(variants())
    case = data.draw(cases(made.family, made.spec))
    sizes = {**case.extents, "multiprocessors": case.multiprocessors}
    limits = replace(Limits.of("sm_90"), multiprocessors=case.multiprocessors)
    assume(made.algorithm.unsupported_extents(made.spec, made.config, case.extents, limits) is None)
    plan = made.plan
    scratch = {buffer.name for buffer in plan.scratch}
    operands = {operand.name for operand in made.spec.operands}
    assert scratch.isdisjoint(operands)
    used: set[str] = set()
    for launch in plan.launches:
        x, y, z = (extent.at(sizes) for extent in launch.grid)
        assert 0 <= x <= MAX_GRID_X
        assert 0 <= y <= 65_535
        assert 0 <= z <= 65_535
        assert 1 <= np.prod(launch.block) <= 1024
        assert launch.times.at(sizes) >= 0
        for argument in launch.arguments:
            if isinstance(argument, str):
                assert argument in operands | scratch
                used.add(argument)
            else:
                dtype, number = argument
                assert 0 <= number.at(sizes) < 2 ** (8 * dtype.size - (dtype.kind == "int"))
    assert used == operands | scratch
    assert all(buffer.bytes.at(sizes) >= 0 for buffer in plan.scratch)


@each_algorithm
def test_the_outputs_are_written_even_if_nothing_is_read(algorithm: Algorithm[Any, Any]) -> None:
    (family,) = [family for family in FAMILIES if algorithm in family.algorithms.values()]
    limits = Limits.of("sm_90")
    for spec in family.catalogue:
        config = next(iter(search_space(algorithm, spec)), None)
        if config is None:
            continue
        for empty in family.cases(spec):
            layouts = family.layouts(spec, empty)
            nothing = all(0 in layouts[o.name].shape for o in spec.operands if o.role == "in")
            if not nothing or algorithm.unsupported_extents(spec, config, empty, limits) is not None:
                continue
            sizes = {**empty, **limits.sizes()}
            launched = [launch for launch in algorithm.plan(spec, config).launches if launch.grid[0].at(sizes)]
            written = {argument for launch in launched for argument in launch.arguments if isinstance(argument, str)}
            for operand in spec.operands:
                if operand.role == "out" and np.prod(layouts[operand.name].shape) > 0:
                    assert operand.name in written


@given(st.data())
def test_roundings_are_counted_where_something_is_rounded(data: st.DataObject) -> None:
    made = data.draw(variants())
    case = data.draw(cases(made.family, made.spec))
    limits = replace(Limits.of("sm_90"), multiprocessors=case.multiprocessors)
    assume(made.algorithm.unsupported_extents(made.spec, made.config, case.extents, limits) is None)
    found = made.algorithm.roundings(made.spec, made.config, case.extents, limits)
    moved_only = all(operand.dtype.kind == "bits" for operand in made.spec.operands)
    to_the_last_bit = moved_only or made.family.name in ("stencil", "system")
    least = 0 if case.extents.get("n", 2) < 2 else 1  # a sum of one element is that
    assert found == 0 if to_the_last_bit else least <= found < 40_000


def test_a_template_is_given_text_numbers_and_frozen_records() -> None:
    for made in all_of_catalogue(FAMILIES):
        for value in template_inputs(made).values():
            assert _is_plain(value)


def _is_plain(value: object) -> bool:
    """Text, a number, or what holds them. Of a record the template prints fields, which rendering holds to text."""
    if type(value) in (str, int, bool):
        return True
    if is_dataclass(value):
        return bool(vars(type(value))["__dataclass_params__"].frozen)
    parts = value if isinstance(value, tuple) else (value.__dict__,)
    return all(_is_plain(part) for part in parts)


def test_buffers_that_are_swapped_stay_so_for_the_launches_after() -> None:
    def launch(**more: Any) -> Launch:
        return Launch((size("n"), ONE, ONE), (1, 1, 1), ("a", "b", (F32, size("n") * 2)), **more)

    plan = Plan((launch(times=size("steps"), swap=(("a", "b"),)), launch(entry="_last")))
    found = [(step.entry, step.grid, step.arguments) for step in steps(plan, {"n": 4, "steps": 3})]
    there, back = ("a", "b", (F32, 8)), ("b", "a", (F32, 8))
    assert found == [("", (4, 1, 1), there), ("", (4, 1, 1), back), ("", (4, 1, 1), there), ("_last", (4, 1, 1), back)]
    assert list(steps(plan, {"n": 0, "steps": 3})) == []
    assert [step.entry for step in steps(plan, {"n": 1, "steps": 0})] == ["_last"]


def grid(config: GridConfig, n: int, multiprocessors: int) -> int:
    return Grid().plan(ReductionSpec(), config).launches[0].grid[0].at({"n": n, "multiprocessors": multiprocessors})


def test_grid_launches_a_block_for_its_share_up_to_what_is_resident() -> None:
    config = GridConfig(threads_per_block=256, unroll=4, vec_bytes=16, blocks_per_sm=2)
    share = 256 * 4 * 4
    assert [grid(config, n, 132) for n in (0, 1, share, share + 1, 5 * share, 2**40)] == [1, 1, 1, 2, 5, 264]
    assert [grid(config, 2**20, multiprocessors) for multiprocessors in MULTIPROCESSOR_COUNTS] == [2, 4, 6, 256]


def test_a_vector_that_holds_no_element_is_refused() -> None:
    class Wide:
        dtype = F64

    assert Grid().illegal(Wide(), GridConfig(vec_bytes=4)) == "vec_bytes 4 is smaller than one f64"  # type: ignore[arg-type]
    assert Grid().illegal(ReductionSpec(), GridConfig(vec_bytes=4)) is None


@pytest.mark.parametrize(
    ("algorithm", "spec", "config", "sizes", "blocks"),
    [
        (Shfl(), ReductionSpec(), BlocksConfig(threads_per_block=64), {"n": 64 * MAX_GRID_X}, MAX_GRID_X),
        (Shfl(), ReductionSpec(), BlocksConfig(threads_per_block=64), {"n": 64 * MAX_GRID_X + 1}, MAX_GRID_X + 1),
        (
            Transpose().algorithms["naive"], TransposeSpec(), NaiveConfig(),
            {"rows": 8 * 2**16, "cols": 32 * 2**15}, 2**31,
        ),
    ],
)  # fmt: skip
def test_a_size_that_no_grid_holds_is_not_taken(
    algorithm: Algorithm[Any, Any], spec: Spec, config: Any, sizes: Extents, blocks: int
) -> None:
    reason = algorithm.unsupported_extents(spec, config, sizes, Limits.of("sm_90"))
    if blocks <= MAX_GRID_X:
        assert reason is None
    else:
        assert reason == f"it needs {blocks} blocks; a grid has at most {MAX_GRID_X}"


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from((1, 4, 8, 32)), st.sampled_from((1, 16, 32)))
def test_tiles_cover_a_matrix_and_no_more(rows: int, cols: int, high: int, wide: int) -> None:
    tiles = Tiles(size("rows"), size("cols"), high, wide)
    sizes = {"rows": rows, "cols": cols}
    across, count = tiles.across.at(sizes), tiles.count.at(sizes)
    covered = {(block // across * high, block % across * wide) for block in range(count)}
    assert covered == {(row, col) for row in range(0, rows, high) for col in range(0, cols, wide)}


def test_blocks_that_do_not_fit_a_multiprocessor_together_are_unsearched_and_infeasible_where_one_waits() -> None:
    config = GridConfig(threads_per_block=1024, blocks_per_sm=4)
    assert unsearched(Grid(), ReductionSpec(), config) == "a multiprocessor holds at most 2 blocks of 1024 threads"
    waiting = FlagsConfig(threads_per_block=1024, blocks_per_sm=2)
    reason = Flags().infeasible(ReductionSpec(), waiting, Limits.of("sm_86"))
    assert reason == "a multiprocessor of this device holds only 1 blocks of 1024 threads"


def test_named_variants_are_legal() -> None:
    for family in FAMILIES:
        for named in family.named:
            made = named_variant(family, named)
            assert illegal(made.algorithm, made.spec, made.config) is None
            assert parse_label(family, made.spec.label, {}) == made.spec


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda dtype: dtype.name)
def test_a_dtype_is_what_numpy_stores(dtype: DType) -> None:
    assert dtype.numpy.itemsize == dtype.size
    assert dtype.holds(dtype.numpy)
    assert read_dtype(dtype.name, "") is dtype
    if dtype.kind == "float":
        import ml_dtypes

        assert dtype.unit_roundoff == float(ml_dtypes.finfo(dtype.numpy).eps) / 2  # type: ignore[no-untyped-call]
    else:
        assert dtype.unit_roundoff == 0


def test_bits_hold_any_type_of_their_size_and_numbers_only_their_own() -> None:
    assert B32.holds(np.dtype("f4"))
    assert B32.holds(np.dtype("i4"))
    assert not B32.holds(np.dtype("f8"))
    assert not DTYPES["b64"].holds(np.dtype(object))
    assert not F32.holds(np.dtype("i4"))


def test_cache_operators_are_spelled_as_intrinsics() -> None:
    assert [modifier.intrinsic for modifier in LoadModifier] == [
        "", "__ldca", "__ldcg", "__ldcs", "__ldg", "__ldlu", "__ldcv", "ld_evict_last",
    ]  # fmt: skip
    assert [modifier.intrinsic for modifier in StoreModifier] == [
        "", "__stwb", "__stcg", "__stcs", "__stwt", "st_evict_last",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "dtype", [[("a", "f4"), ("a", "f4")], "f4,(", {"names": ["a"]}, ("f4", 10**30), "\ud800"], ids=repr
)
def test_what_numpy_takes_for_no_dtype_is_refused_by_name(dtype: Any) -> None:
    for make, name in (
        (lambda: gen.permutation(dtype=dtype), "transpose.dtype"),
        (lambda: gen.permutation(to=dtype), "transpose.to"),
        (lambda: gen.reduction("sum", dtype), "reduction.elements"),
        (lambda: gen.reduction("sum", dtype=dtype), "reduction.dtype"),
        (lambda: gen.stencil([1, 2, 1], dtype=dtype), "stencil.dtype"),
    ):
        with pytest.raises(SpecError, match=f"{name} must be one"):
            make()
