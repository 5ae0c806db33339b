"""Algorithms that take none of the catalogues' specs: every pair of their parameters' values compiles all the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest

from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.config import pairwise
from gen.families.names import find_variant, search_space, variant
from gen.toolchain.farm import CompileFarm
from gen.toolchain.nvrtc import Nvrtc

NAMES = (
    "reduction_sum_f32_axis0__columns_x64_y8_u8_v4_bpm4_flags",
    "reduction_sum_f32_axis0__flat_columns_a1_tpb256_c32_u8",
    "reduction_sum_f32_axis0__stream_tpb512_u8_v8_bpm2_flags",
    "reduction_sum_f32_axis0x2__multi_columns_x32_y8_u4_v16",
    "reduction_sum_f32_axis1__rows_tpb128_g16_u8_v4_ldcs",
    "reduction_argmin_i8_axism1__short_rows_n6_r4_tpb256",  # vectors of two bytes, of what else is taken apart by words
    "transpose_10_b16__shift_box_a2_tpb512_i32",
    "transpose_10_b16__shift_tile_g32_c1_w16_a4_orow",
    "transpose_10_b16__word_tile_a2_r40_w8192_tpb256_ocol",
    "transpose_10_b32_in_place__swap_tile_v16_x8_s1",
)
ELSEWHERE = {"march", "overlapped"}  # whose own tests build such covers


def cover(name: str) -> list[Variant]:
    """Of the spec and the algorithm of a variant."""
    one = find_variant(FAMILIES, name, {})
    configs = pairwise(tuple(search_space(one.algorithm, one.spec)))
    return [variant(one.family, one.spec, one.algorithm, config) for config in configs]


def test_no_algorithm_is_left_out() -> None:
    outside = {
        algorithm.name
        for family in FAMILIES
        for algorithm in family.algorithms.values()
        if next(chain.from_iterable(search_space(algorithm, spec) for spec in family.catalogue), None) is None
    }
    assert {find_variant(FAMILIES, name, {}).algorithm.name for name in NAMES} | ELSEWHERE == outside


@pytest.fixture(scope="module")
def farm() -> Iterator[CompileFarm]:
    with CompileFarm(Nvrtc(None)) as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_every_pair_of_values_compiles(name: str, farm: CompileFarm) -> None:
    texts = [(made.name, render(made)) for made in cover(name)]
    found = list(farm.compile_many(texts, "sm_90"))
    assert len(found) == len(texts)
    assert [one for one in found if isinstance(one, Exception)] == []
