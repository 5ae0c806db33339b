"""What a spec gets on a device for which nothing is tuned."""

from __future__ import annotations

import logging

import pytest

import gen
from gen.families import FAMILIES
from gen.families.base import Limits
from gen.families.extents import extents_of
from gen.families.names import find_family
from gen.families.stencil.spec import BOUNDARIES, STEPS, Boundary, StencilSpec
from gen.families.transpose.algorithms.packed import PackedConfig
from gen.runtime.dispatch import Chooser
from gen.store.winners import Winner

H100 = Limits.of("sm_90")
STENCIL = find_family(FAMILIES, "stencil")


def chooser(spec: StencilSpec) -> Chooser:
    return Chooser(STENCIL, spec, (), "Some GPU", H100)


def extents(rows: int, cols: int, steps: int) -> dict[str, int]:
    return {"rows": rows, "cols": cols, "in_pitch": cols, "out_pitch": cols, STEPS: steps}


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("dtype", ["float16", "f32", "f64"])
def test_untuned_stencils_stream_and_fuse_steps(boundary: Boundary, dtype: str) -> None:
    one = chooser(gen.stencil(gen.star(2, 1), dtype=dtype, boundary=boundary))
    single, many = (one.choose(extents(4096, 4096, steps)) for steps in (1, 100))
    assert single.variant.algorithm.name == "stream"
    assert many.variant.algorithm.name in ("temporal", "pipelined")
    assert not single.tuned
    assert "nothing is tuned" in many.why
    assert one.covering(many, extents(4096, 4096, 100)) is many


def test_sizes_that_an_expected_variant_does_not_take_get_one_that_does_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = chooser(gen.stencil(gen.star(2, 2), boundary="mirror"))
    large, tiny = extents(4096, 4096, 100), extents(2, 1 << 19, 100)
    with caplog.at_level(logging.WARNING):
        many = one.choose(large)
        base, taken = one.covering(many, tiny), one.choose(tiny)
    assert "mirrored" in str(
        many.variant.algorithm.unsupported_extents(many.variant.spec, many.variant.config, tiny, H100)
    )
    assert base.variant.algorithm.name == "naive"
    assert many.variant.name in base.why
    assert "nothing is tuned" in taken.why
    assert one.covering(taken, tiny) is taken
    assert not caplog.records


def test_specs_for_which_nothing_expected_is_legal_get_base() -> None:
    one = chooser(gen.stencil(gen.box(2, 8), dtype="f64"))
    assert one.choose(extents(512, 512, 50)).variant.algorithm.name == "naive"


def test_a_winner_for_even_runs_serves_others_undivided_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    spec = gen.permutation((0, 2, 1, 3), "f2")
    transpose = find_family(FAMILIES, "transpose")
    stands = transpose.shape_class(spec, extents_of(transpose, spec, (32, 128, 16, 64)))
    name = "transpose_0213_b16__flat_copy_tpb128_u4_even_stcs"
    winner = Winner(device="Some GPU", spec="transpose_0213_b16", shape=stands, variant=name, evidence={})
    one = Chooser(transpose, spec, (winner,), "Some GPU", H100)
    assert one.choose(extents_of(transpose, spec, (32, 128, 16, 64))).variant.name == name
    with caplog.at_level(logging.INFO):
        taken = one.choose(extents_of(transpose, spec, (32, 128, 16, 80)))
    assert taken.variant.name == name.replace("_even", "")
    assert taken.why.startswith(f"like {name}, which cannot take these sizes: a block of 128 threads")
    assert not caplog.records


@pytest.mark.parametrize("asked", [True, False])
def test_only_who_asked_is_warned_that_a_winner_takes_other_sizes(
    caplog: pytest.LogCaptureFixture, asked: bool
) -> None:
    spec, transpose = gen.permutation((1, 0), "f4"), find_family(FAMILIES, "transpose")
    few = extents_of(transpose, spec, (1 << 20, 3))
    name = "transpose_10_b32__interleave_cols_n16_tpb64_stel"
    won = Winner("Some GPU", "transpose_10_b32", transpose.shape_class(spec, few), name, {})
    taken = Chooser(transpose, spec, (won,), "Some GPU", H100, asked_by_calls=asked).choose(few)
    assert "__interleave_cols_n3_" in taken.variant.name
    assert ("cannot take these sizes" in caplog.text) == asked


@pytest.mark.parametrize("shape", [(0, 12303), (0, 5), (0, 2**20), (0, 0)])
def test_rows_of_which_there_are_none_get_a_variant(shape: tuple[int, int]) -> None:
    reduction, spec = find_family(FAMILIES, "reduction"), gen.reduction("sum", axis=1)
    sizes = extents_of(reduction, spec, shape)
    assert Chooser(reduction, spec, (), "Some GPU", H100).choose(sizes).variant.spec == spec


@pytest.mark.parametrize(("rows", "cols"), [(0, 0), (0, 5), (5, 0), (0, 4096)])
@pytest.mark.parametrize("steps", [0, 1, 100])
def test_stencils_without_cells_get_a_variant(rows: int, cols: int, steps: int) -> None:
    one = chooser(gen.stencil(gen.star(2, 1)))
    assert one.choose(extents(rows, cols, steps)).variant.spec == one.spec


def test_a_choice_is_remembered_until_a_winner_is_learned() -> None:
    one = chooser(gen.stencil(gen.star(2, 1)))
    sizes = extents(4096, 4096, 1)
    first = one.for_call(sizes)
    assert one.for_call(dict(sizes)) is first
    assert one.for_call(extents(4096, 4096, 100)) is not first
    assert one.for_call(sizes, alignment=4) is not first
    other = next(made for made in one.row(STENCIL.shape_class(one.spec, sizes)).others if made != first.variant)
    one.learn([Winner("Some GPU", one.name, STENCIL.shape_class(one.spec, sizes), other.name, {})])
    assert one.for_call(sizes) is not first


def test_a_chooser_remembers_only_so_many_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gen.runtime.dispatch._REMEMBERED", 2)
    one = chooser(gen.stencil(gen.star(2, 1)))
    found = [one.for_call(extents(64, 64, steps)) for steps in (1, 2, 3)]
    assert one.for_call(extents(64, 64, 1)) is not found[0]


@pytest.mark.parametrize(("axes", "shape", "bits"), [
    ((3, 2, 1, 0, 5, 4), (16, 43, 3, 223, 46, 16), 32), ((2, 1, 0), (5, 1_000_000_009, 5), 64),
])  # fmt: skip
def test_boxes_are_indexed_with_32_bits_where_these_reach(
    axes: tuple[int, ...], shape: tuple[int, ...], bits: int
) -> None:
    transpose, spec = find_family(FAMILIES, "transpose"), gen.permutation(axes, "u1")
    one = Chooser(transpose, spec, (), "Some GPU", H100)
    config = one.for_call(extents_of(transpose, spec, shape)).variant.config
    assert isinstance(config, PackedConfig)
    assert config.index_bits == bits
