"""Names find what they name, and nothing but a GenError comes of any other text."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.dtypes import DTYPES
from gen.emit.folder import all_of_catalogue
from gen.emit.render import render
from gen.errors import ConfigError, GenError, ShapeError, SpecError, UnknownNameError
from gen.families import FAMILIES, families
from gen.families.base import Family, Limits, Named, Spec, Variant
from gen.families.names import (
    MAX_NAME,
    base_variants,
    find_algorithm,
    find_family,
    find_spec,
    find_variant,
    illegal,
    legal_space,
    named_variant,
    parse_label,
    search_space,
    unsearched,
    variant,
)
from gen.families.reduction import BlocksConfig, Grid, GridConfig, Reduction, ReductionSpec
from gen.families.reduction.algorithms.grid import Flags, FlagsConfig
from gen.families.stencil import Stencil, StencilSpec
from gen.families.transpose import TiledConfig, Transpose, TransposeSpec
from tests.strategies import spoiled, stencils, variants

SEARCHED = tuple(all_of_catalogue(FAMILIES))
NAMED = [pytest.param(family, named, id=named.name) for family in FAMILIES for named in family.named]
SPECS = [(family, spec) for family in FAMILIES for spec in family.catalogue]
WHOLE_NAMES = [made.name for made in SEARCHED] + [named.name for family in FAMILIES for named in family.named]


def found_or_refused(name: str) -> Variant | None:
    try:
        return find_variant(FAMILIES, name, {})
    except GenError:
        return None


def test_every_variant_that_tuning_tries_is_found_by_its_name() -> None:
    for made in SEARCHED:
        assert find_variant(FAMILIES, made.name, {}) == made


def test_every_name_is_a_c_identifier_of_its_own_and_short() -> None:
    names = [made.name for made in SEARCHED]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)
        assert len(name) < MAX_NAME


def test_every_kernel_of_a_plan_has_a_symbol_of_its_own() -> None:
    # A plan may launch one kernel more than once.
    entries = [symbol for made in SEARCHED for symbol in {made.name + launch.entry for launch in made.plan.launches}]
    assert len(set(entries)) == len(entries)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", entry) for entry in entries)


def test_no_family_name_begins_another_one_with_an_underscore() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9]*", name) for name in names)


@pytest.mark.parametrize(("family", "named"), NAMED)
def test_a_kernel_of_the_literature_is_found_with_what_it_fixes(family: Family[Any], named: Named) -> None:
    made = find_variant(FAMILIES, named.name, {})
    assert made == named_variant(family, named)
    assert made.algorithm.name == named.algorithm
    chosen, base = made.config.values(), made.algorithm.config().values()
    assert chosen == {**base, **named.config}
    assert find_variant(FAMILIES, made.name, {}) == made


# Orders of blocks that other kernels have already.
SAME = {"cartesian": "transposeSmemPad", "diagonal-general": "transposeDiagonal"}


def test_kernels_of_the_literature_differ() -> None:
    for family in FAMILIES:
        shown: dict[tuple[str, str], str] = {}  # the same kernel may be shown at several problems
        for one in family.named:
            key = named_variant(family, one).name, str(sorted(one.more.items()))
            assert SAME.get(one.name, one.name) == shown.setdefault(key, one.name)
        assert len({named.rank for named in family.named}) == len(family.named)


@pytest.mark.parametrize(("family", "spec"), SPECS, ids=lambda part: getattr(part, "name", getattr(part, "label", "")))
def test_a_spec_is_found_by_its_name_and_has_legal_base_variants(family: Family[Any], spec: Spec) -> None:
    assert find_spec(FAMILIES, f"{family.name}_{spec.label}", {}) == (family, spec)
    for made in base_variants(family, spec):
        assert illegal(made.algorithm, spec, made.config) is None
        assert made.spec == spec
    assert len({made.name for made in base_variants(family, spec)}) == len(base_variants(family, spec))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "transpose_10_b32__naive_col_x32_y8_u1",
            "and this is a variant of one",
        ),
        ("transpose_10_b32__naive_col_x32_y8_u1", "Its spec is transpose_10_b32"),
        ("transposeSmem", "must be FAMILY_LABEL, and this is a variant of one (got 'transposeSmem'). Its spec"),
        ("copyRow", "Its spec is transpose_copy_b32"),
        ("transpose", "must be FAMILY_LABEL, and this is a family (got 'transpose'). Its catalogue holds transpose_10"),
        ("TRANSPOSE_0312_B16", "(got 'TRANSPOSE_0312_B16'). Did you mean transpose_0312_b16?"),
        ("transpos_0312_b16", "(got 'transpos_0312_b16'). Did you mean transpose_0312_b16?"),
        ("reductoin_sum_f16", "must be FAMILY_LABEL, such as reduction_sum_f32 (got 'reductoin_sum_f16'). Did"),
        ("quick__sort", "must be FAMILY_LABEL, such as reduction_sum_f32 (got 'quick__sort')"),
        ("quicksort", "In Python, gen.remember(spec) writes one of your own down"),
        ("transpose_01x", "In Python, gen.remember(spec) writes one of your own down"),
    ],
)
def test_a_name_that_is_no_specs_says_what_to_do_next(name: str, says: str) -> None:
    with pytest.raises(UnknownNameError, match=re.escape(says)):
        find_spec(FAMILIES, name, {})


@given(stencils())
def test_a_spec_no_name_can_spell_is_found_by_its_json(spec: StencilSpec) -> None:
    name = f"stencil_{spec.label}"
    assert find_spec(FAMILIES, name, {name: spec.to_json()}) == (FAMILIES[2], spec)
    with pytest.raises(UnknownNameError, match="must be stencil_LABEL, with a LABEL such as heat_de794a2b_f32: a word"):
        find_spec(FAMILIES, name, {})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("transpose_10_b3", "transpose_10_b32"),
        ("transpose_10_f32_to_f17", "transpose_10_f32_to_f16"),
        ("transpose_0132_b17_in_place", "transpose_0132_b16_in_place"),
        ("transpose_021_uint8_to_f32", "transpose_021_u8_to_f32"),
        ("transpose_0312_B16", "transpose_0312_b16"),
        ("transpose_fine32_b33", "transpose_fine32_b32"),
        ("reduction_max_int32_axis0", "reduction_max_i32_axis0"),
        ("stencil_heat_de794a2c_f32", "stencil_heat_de794a2b_f32"),
        ("probe_read77_f65", "probe_read77_f64"),
    ],
)
def test_a_label_that_no_spec_has_is_answered_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(UnknownNameError, match=rf"\(got '{name}'\)\. Did you mean {meant}\b"):
        find_spec(FAMILIES, name, {})


def test_a_label_that_no_spec_has_is_answered_with_those_written_down_too() -> None:
    known = {"stencil_mine_12345678_f64": FAMILIES[2].catalogue[0].to_json()}
    with pytest.raises(UnknownNameError, match="Did you mean stencil_mine_12345678_f64"):
        find_spec(FAMILIES, "stencil_mine_12345678_f6", known)


TYPES = (*DTYPES, "c64", "c128")


def test_the_rule_for_a_spec_is_true_of_what_it_calls_an_example() -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_spec(FAMILIES, "quicksort", {})
    (example,) = re.findall(r"such as (\w+)", str(caught.value))
    family, spec = find_spec(FAMILIES, example, {})
    assert example == f"{family.name}_{spec.label}"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_says_what_labels_are_made_of_and_of_which_types(family: Family[Any]) -> None:
    examples, _, parts = family.label_help.partition(":")
    named = set(re.findall(r"\w+", parts)) & set(TYPES)
    taken: set[str] = set()
    for label in re.split(", | or ", examples):
        assert parse_label(family, label, {}).label == label
        words = label.split("_")
        for place in [place for place, word in enumerate(words) if word in TYPES]:
            for one in TYPES:
                with suppress(SpecError):
                    if family.from_label("_".join([*words[:place], one, *words[place + 1 :]])) is not None:
                        taken.add(one)
    # Labels of these hold a digest each.
    taken |= {
        "stencil": {"f16", "bf16", "f32", "f64", "u8", "i16", "u16"},
        "system": {"f16", "bf16", "f32", "f64"},
    }.get(family.name, set())
    assert named == taken


def test_a_spec_outside_the_catalogue_is_spelled_by_its_label() -> None:
    assert Reduction().from_label("sum_f32") == ReductionSpec()
    assert Transpose().from_label("10_b32") == TransposeSpec()
    assert [family.from_label("nothing") for family in FAMILIES] == [None] * len(FAMILIES)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "The variant must be FAMILY_SPEC__ALGORITHM_TAG or a kernel of the literature (got '')"),
        ("reduceShlf", "(got 'reduceShlf'). Did you mean reduceShfl"),
        ("reduction_sum_f32", "(got 'reduction_sum_f32'). gen show reduction_sum_f32 lists variants of it"),
        ("REDUCESHFL", "(got 'REDUCESHFL'). Did you mean reduceShfl?"),
        (
            "reductoin_sum_f32__grid",
            "and 'reductoin_sum_f32' is no spec (got 'reductoin_sum_f32__grid'). Did you mean reduction_sum_f32?",
        ),
        (
            "out/transpose_10_b32__tiled_t64_r8_p1_u1.cu",
            "(got 'out/transpose_10_b32__tiled_t64_r8_p1_u1.cu'). Did you mean transpose_10_b32__tiled_t64_r8_p1_u1?",
        ),
        (
            "TRANSPOSE_10_B32__TILED_T64_R8_P1_U1",
            "(got 'TRANSPOSE_10_B32__TILED_T64_R8_P1_U1'). Did you mean transpose_10_b32__tiled_t64_r8_p1_u1?",
        ),
        ("out/nothing__at_all.cu", "and 'out/nothing' is no spec (got 'out/nothing__at_all.cu')"),
        ("reduction_sum_f64__grid", "The tag of grid cannot be read at its end"),
        ("reduction_median_f32__grid", "reduction.op must be one of sum, prod, min"),
        ("reduction_sum_f33__grid", "(got 'reduction_sum_f33'). Did you mean reduction_sum_f32?"),
        ("transpose_02_b32__naive", "(got (0, 2))"),
        (
            "reduction_sum_f32__gird_tpb256",
            "The algorithm of reduction must be one of grid, flags, cluster, single, rows, short_rows, columns, stream",
        ),
        ("reduction_sum_f32__grid", "The tag of grid cannot be read at its end: threads_per_block comes there"),
        ("reduction_sum_f32__grid_tpb100_u4_v16_bpm2", "cannot be read at 'tpb100': threads_per_block comes there"),
        ("reduction_sum_f32__grid_tpb256_u4_v16_bpm2_", "cannot be read at ''"),
        ("reduction_sum_f32__grid_tpb256_u4_v16_bpm2_ldca", "cannot be read at 'ldca'"),
        (
            "transpose_10_b32__tiled_t64_r16_p1_u4",
            "is illegal: the tile needs 65792 bytes; static shared memory has at most",
        ),
        ("transpose_\u0661\u0660_b32__tiled_t64_r8_p1_u1", "is spelled transpose_10_b32__tiled_t64_r8_p1_u1"),
    ],
)
def test_a_name_that_finds_nothing_says_why(name: str, says: str) -> None:
    with pytest.raises(GenError) as caught:
        find_variant(FAMILIES, name, {})
    assert says in str(caught.value)


@given(st.one_of(st.text(max_size=40), st.sampled_from(WHOLE_NAMES).flatmap(spoiled)))
def test_any_text_names_a_variant_or_is_refused(name: str) -> None:
    found = found_or_refused(name)
    assert found is None or name in (found.name, *(named.name for family in FAMILIES for named in family.named))


@given(variants().flatmap(lambda made: spoiled(made.name)))
def test_a_spoiled_name_finds_itself_or_nothing(name: str) -> None:
    found = found_or_refused(name)
    assert found is None or (found.name == name and illegal(found.algorithm, found.spec, found.config) is None)


def test_an_unknown_family_or_algorithm_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_family(FAMILIES, "sort")
    names = ", ".join(family.name for family in FAMILIES)
    assert str(caught.value) == f"The family must be one of {names} (got 'sort')"
    with pytest.raises(UnknownNameError) as caught:
        find_algorithm(FAMILIES[0], "zzz")
    there_are = ", ".join(Reduction().algorithms)
    assert str(caught.value) == f"The algorithm of reduction must be one of {there_are} (got 'zzz')"


def test_an_illegal_config_or_one_of_another_algorithm_is_refused() -> None:
    transpose, reduction = Transpose(), Reduction()
    with pytest.raises(ConfigError, match=r"takes a GridConfig \(got BlocksConfig\)"):
        variant(reduction, ReductionSpec(), "grid", BlocksConfig())
    with pytest.raises(ConfigError, match="is illegal: the tile needs 65792 bytes"):
        variant(transpose, TransposeSpec(), "tiled", TiledConfig(tile_dim=64, unroll=4))


def test_a_name_that_is_too_long_is_refused() -> None:
    class Wordy(Grid):
        name = "g" * MAX_NAME

    with pytest.raises(ConfigError, match="must be at most 120 characters long"):
        variant(Reduction(), ReductionSpec(), Wordy(), GridConfig())


def test_a_space_on_a_device_holds_what_is_feasible_there() -> None:
    limits = Limits.of("sm_75")
    flags, spec = Flags(), ReductionSpec()
    feasible = set(search_space(flags, spec, limits))
    assert feasible < set(search_space(flags, spec))
    for config in FlagsConfig.space():
        assert (config in feasible) == (flags.infeasible(spec, config, limits) is None)
    assert FlagsConfig(threads_per_block=1024, blocks_per_sm=2) not in feasible  # 1,024 threads a multiprocessor


@pytest.mark.parametrize("name", ["grid_tpb256_u4_v16_bpm2_secondpass", "grid_tpb1024_u4_v16_bpm4"])
def test_what_is_legal_but_unsearched_has_a_name_and_a_text_and_is_in_no_search_space(name: str) -> None:
    made = find_variant(FAMILIES, f"reduction_sum_f32__{name}", {})
    assert made.config in legal_space(made.algorithm, made.spec)
    assert made.config not in search_space(made.algorithm, made.spec)
    assert unsearched(made.algorithm, made.spec, made.config) is not None
    assert made.name in render(made)


class Elsewhere(Stencil):
    name = "elsewhere"


class Impostor(Stencil):
    name = "reduction"


def test_a_family_from_elsewhere_is_found_by_module_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("a_module_from_elsewhere")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.__dict__.update(Elsewhere=Elsewhere, Impostor=Impostor)
    assert families() == FAMILIES
    assert families("gen.families.stencil:Stencil") == FAMILIES
    extra = families("a_module_from_elsewhere:Elsewhere")
    assert extra[:-1] == FAMILIES
    assert isinstance(extra[-1], Elsewhere)
    with pytest.raises(UnknownNameError, match="there is one already"):
        families("a_module_from_elsewhere:Impostor")


@pytest.mark.parametrize(
    "place",
    ["", ":", "absent_module:Sort", "gen.families.stencil:Absent", "gen.families.stencil", ".stencil:Stencil",
     "builtins:int", "builtins:type", "gen.families.base:Family", "gen.families.stencil:StencilSpec",
     "gen.families.reduction:WARP", "a b:c", "gen..families:Reduction"],
)  # fmt: skip
def test_a_family_that_cannot_be_found_is_refused(place: str) -> None:
    with pytest.raises(UnknownNameError, match="The family must be ") as caught:
        families(place)
    assert repr(place) in str(caught.value)


def test_errors_are_told_apart_by_their_class() -> None:
    for kind in (ConfigError, ShapeError, UnknownNameError):
        assert issubclass(kind, GenError)
    assert str(GenError("in", "must be contiguous")) == "in must be contiguous"
    assert str(GenError("n", "must be even", 3, next_step="Add one")) == "n must be even (got 3). Add one"
