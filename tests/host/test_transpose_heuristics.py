"""What is often fast for a transpose: kernels that are legal and take the sizes they are meant for, base among them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gen.dtypes import B8, B16, B32, B64, B128, DType
from gen.families.base import Algorithm, Limits
from gen.families.extents import extents_of
from gen.families.names import heuristic_variants, search_space
from gen.families.transpose import Transpose, TransposeSpec, permutation, shapes
from gen.families.transpose.algorithms.grouped_tile import GroupedTileConfig
from gen.families.transpose.algorithms.packed import PackedConfig
from gen.families.transpose.algorithms.shift_box import ShiftBoxConfig
from gen.families.transpose.algorithms.word_tile import WordTileConfig
from gen.runtime.dispatch import Chooser, _Kept

FAMILY, LIMITS = Transpose(), Limits.of("sm_90")
ELEMENTS = (B8, B16, B32, B64, B128)


@pytest.mark.parametrize("dtype", ELEMENTS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("axes", [(1, 0), (0, 2, 1), (0, 2, 1, 3), (0, 3, 1, 2)], ids=str)
def test_before_base_comes_only_what_is_made_for_some_sizes_and_others_are_legal(
    axes: tuple[int, ...], dtype: DType
) -> None:
    spec = TransposeSpec(axes, dtype)
    for shape_class in FAMILY.shape_classes(spec):
        pairs = tuple(FAMILY.heuristic_configs(spec, shape_class, LIMITS))
        before = pairs[: pairs.index(FAMILY.base(spec, shape_class))]
        special = {
            name
            for name, config in before
            if not (isinstance(config, PackedConfig | ShiftBoxConfig | GroupedTileConfig) and config.index_bits == 32)
            and not isinstance(config, WordTileConfig)
        }
        assert special <= {"interleave", "vector_tile", "squares", "flat_copy"}
        assert len(set(pairs)) == len(pairs)
        made = list(heuristic_variants(FAMILY, spec, shape_class, LIMITS))
        assert made[0].algorithm.name == pairs[0][0]
        if shape_class != "short runs both ways":
            extents = FAMILY.representative(spec, shape_class)
            takes = [
                one for one in made[1:] if one.algorithm.unsupported_extents(spec, one.config, extents, LIMITS) is None
            ]
            assert takes, shape_class


@pytest.mark.parametrize(
    ("axes", "dtype", "shape", "name"),
    [
        ((0, 2, 3, 1), B8, (64, 3, 224, 224), "interleave_rows_n3_tpb128"),
        ((0, 3, 1, 2), B8, (64, 224, 224, 3), "interleave_cols_n3_tpb128"),
        ((1, 0), B64, (8, 4_000_000), "interleave_rows_n8_tpb64_ldel"),
        ((0, 2, 1), B32, (4096, 32, 32), "squares_tpb128_u1"),
        ((0, 2, 1, 3), B16, (32, 128, 16, 64), "flat_copy_tpb256_u1"),
        ((1, 0), B32, (8192, 8192), "vector_tile_v16_x16_g16_swz_ocol_ldel"),
        ((1, 0), B64, (4096, 16384), "vector_tile_v16_x32_g16_swz_orow_ldel"),
        ((1, 0), B8, (1024, 1024), "vector_tile_v4_x16_g16_swz_ocol_ldg_i32"),
        ((1, 0), B8, (1024, 1024), "vector_tile_v4_x16_g16_pad_ocol_ldg_i32"),
        ((1, 0), B32, (10_000_000, 3), "interleave_cols_n3_tpb64_stel"),
        ((1, 0), B32, (4097, 4099), "window_tile_t128_c64_w32_a32_ocol_stel"),
        ((0, 2, 1), B32, (65536, 16, 16), "squares_tpb128_u1_stel"),
        ((0, 2, 1), B32, (4096, 32, 32), "vector_tile_v8_x16_g16_swz_orow_ldg_stcs"),
        ((1, 0), B32, (4096, 4096), "window_tile_t64_c64_w16_ocol_stel"),
        ((1, 0), B8, (8192, 8192), "vector_tile_v16_x16_g8_swz_ocol_ldg_stel"),
        ((1, 0), B32, (1024, 1024), "vector_tile_v8_x16_g16_swz_ocol_ldg_i32"),
        ((3, 2, 1, 0), B32, (128, 128, 128, 16), "packed_a4_tpb256_u8_i32"),
        ((0, 2, 1, 3), B16, (32, 128, 16, 64), "flat_copy_tpb128_u2_stcs"),
    ],
)
def test_what_was_fast_on_an_h100_or_an_h200_is_tried_early(
    axes: tuple[int, ...], dtype: DType, shape: tuple[int, ...], name: str
) -> None:
    spec = TransposeSpec(axes, dtype)
    extents = extents_of(FAMILY, spec, shape)
    made = {
        one.name.partition("__")[2]: one
        for one in heuristic_variants(FAMILY, spec, FAMILY.shape_class(spec, extents), LIMITS)
    }
    assert made[name].algorithm.unsupported_extents(spec, made[name].config, extents, LIMITS) is None


def test_what_changes_elements_or_works_in_place_has_base_alone() -> None:
    for spec in (permutation((1, 0), "f4", to="f2"), permutation((1, 0), "f4", in_place=True)):
        for shape_class in FAMILY.shape_classes(spec):
            assert tuple(FAMILY.heuristic_configs(spec, shape_class, LIMITS)) == (FAMILY.base(spec, shape_class),)


@pytest.mark.parametrize(
    ("axes", "dtype"),
    [
        ((1, 0), B8), ((1, 0), B128), ((0, 1), B32), ((0,), B16), ((0, 2, 1), B32), ((2, 1, 0), B128),
        ((0, 2, 1, 3), B16), ((3, 2, 1, 0), B8), ((4, 0, 3, 1, 2), B64),
    ],
)  # fmt: skip
def test_whether_a_class_is_known_is_found_without_what_stands_for_all(axes: tuple[int, ...], dtype: DType) -> None:
    for spec in (TransposeSpec(axes, dtype), *([TransposeSpec(axes, dtype, None, True)] if axes == (1, 0) else [])):
        known = shapes.representatives(spec, FAMILY._problem)
        for one in shapes.ShapeClass:
            assert shapes.is_known(spec, one) == (one in known), (spec.label, one)


@pytest.mark.parametrize("name", [name for name in FAMILY.algorithms if name != "swap_tile"])
def test_what_a_device_cannot_run_is_known_without_a_plan_as_with_it(name: str) -> None:
    algorithm, spec = FAMILY.algorithms[name], FAMILY.extra_proof_specs.get(name, TransposeSpec())
    little = replace(LIMITS, shared_bytes_per_block=20_000)
    # For word_tile sm_75 lacks asynchronous copies, which no plan says.
    for limits in (little,) if name == "word_tile" else (Limits.of("sm_75"), little):
        for config in search_space(algorithm, spec)[::5]:
            known = Algorithm.infeasible(algorithm, spec, config, limits)
            assert algorithm.infeasible(spec, config, limits) == known, config


def test_heuristics_are_made_when_they_are_asked_for() -> None:
    spec = TransposeSpec()
    chooser = Chooser(FAMILY, spec, (), "Some GPU", LIMITS)
    kept = chooser._others("aligned rows")
    first = next(iter(kept))
    assert isinstance(kept, _Kept)
    assert len(kept._made) == 1
    every = tuple(kept)
    assert every[0] is first
    assert tuple(kept) == every == tuple(dict.fromkeys(every))
    assert chooser._base("aligned rows") in every
