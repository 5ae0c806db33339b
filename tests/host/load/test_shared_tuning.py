"""Where nothing is tuned for a spec, what was tuned for the same class of one like it goes before what is expected."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

import gen
from gen.families import FAMILIES
from gen.families.base import Family
from gen.families.names import named_variant
from gen.families.transpose.algorithms.vectors import WindowTile
from tests.fake_device import FakeDevice
from tests.host.load.given import LARGE, TRANSPOSE, tuned, winner

ALIGNED = "aligned rows"
TAG = "window_tile_t64_c64_w16_ocol"
TURNED = winner(f"{TRANSPOSE}__{TAG}", spec=TRANSPOSE, shape=ALIGNED)
EACH = gen.permutation((0, 2, 1), "float32")


def test_a_permutation_gets_what_was_tuned_for_other_axes(backend: FakeDevice, tmp_path: Path) -> None:
    kernel = gen.load(EACH, shape=(8, 1024, 2048), device=backend, home=tuned(tmp_path, TURNED))
    assert kernel.variant == f"transpose_021_b32__{TAG}"
    assert kernel.why == (
        f"what was tuned for {TRANSPOSE}, because nothing is tuned for transpose_021_b32 ({ALIGNED}) on Fake GPU; "
        "gen tune transpose_021_b32 would find the fastest"
    )
    assert not kernel.tuned


def test_what_was_tuned_for_itself_goes_before(backend: FakeDevice, tmp_path: Path) -> None:
    own = "transpose_021_b32__window_tile_t64_c32_w16_ocol"
    home = tuned(tmp_path, TURNED, winner(own, spec="transpose_021_b32", shape=ALIGNED))
    assert gen.load(EACH, shape=(8, 1024, 2048), device=backend, home=home).variant == own


def test_of_several_the_shortest_name_that_can_be_used(backend: FakeDevice, tmp_path: Path) -> None:
    others = [
        winner(f"transpose_{axes}_b32__{tag}", spec=f"transpose_{axes}_b32", shape=ALIGNED)
        for axes, tag in (("10", "magic_u7"), ("0213", "window_tile_t64_c32_w16_ocol"), ("102", TAG))
    ]
    kernel = gen.load(EACH, shape=(8, 1024, 2048), device=backend, home=tuned(tmp_path, *others))
    assert kernel.variant == f"transpose_021_b32__{TAG}"


@pytest.mark.parametrize(
    "other",
    [
        winner("transpose_10_b16__vector_tile_v8_x16_g16_swz_ocol_ldg", spec="transpose_10_b16", shape=ALIGNED),
        winner(f"transpose_10_f32_to_f16__{TAG}", spec="transpose_10_f32_to_f16", shape=ALIGNED),
        {**TURNED, "device": "Another GPU"}, {**TURNED, "shape": "odd rows"}, {**TURNED, "within": {"rows": [1, 64]}},
        winner("reduction_sum_f32__shfl_tpb256_u8", shape=ALIGNED),
    ],
)  # fmt: skip
def test_what_is_not_like_it_tells_nothing(backend: FakeDevice, tmp_path: Path, other: dict[str, object]) -> None:
    kernel = gen.load(EACH, shape=(8, 1024, 2048), device=backend, home=tuned(tmp_path, other))
    assert kernel.variant == gen.load(EACH, shape=(8, 1024, 2048), device=backend).variant
    assert kernel.why.startswith("base, because nothing is tuned")


def test_it_is_left_where_it_is_not_made_for_the_sizes(backend: FakeDevice, tmp_path: Path) -> None:
    few = winner(f"{TRANSPOSE}__interleave_cols_n16_tpb64_stel", spec=TRANSPOSE, shape="few columns")
    kernel = gen.load(EACH, device=backend, home=tuned(tmp_path, few))
    assert kernel.variant_for((4, 65536, 16)) == "transpose_021_b32__interleave_cols_n16_tpb64_stel"
    assert kernel.variant_for((4, 65536, 3)) == "transpose_021_b32__interleave_cols_n3_tpb128_stel"
    assert kernel.why_for((4, 65536, 3)).startswith("what is often fast, because nothing is tuned")


def test_a_reduction_along_other_axes(backend: FakeDevice, tmp_path: Path) -> None:
    tag = "grid_tpb128_u8_v16_bpm4"
    home = tuned(tmp_path, winner(f"reduction_sum_f32__{tag}"))
    for spec in (gen.reduction("sum", "f32", axis=(0, 1)), gen.reduction("sum", "f32", keepdims=True)):
        found = gen.load(spec, shape=(2**14, 2**14), device=backend, home=home)
        assert found.variant.endswith(f"__{tag}")
        assert found.why.startswith("what was tuned for reduction_sum_f32, because nothing is tuned")
    other = gen.load(gen.reduction("max", "f32"), shape=2**28, device=backend, home=home)
    assert LARGE in other.why
    assert "what was tuned for" not in other.why


def test_what_the_device_cannot_run_is_left(
    backend: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WindowTile, "infeasible", lambda *_: "the test wants it")
    kernel = gen.load(EACH, shape=(8, 1024, 2048), device=backend, home=tuned(tmp_path, TURNED))
    assert kernel.why.startswith("base, because nothing is tuned")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_likeness_goes_both_ways_and_no_spec_of_another_kind_has_it(family: Family[Any]) -> None:
    for one, other in product(family.catalogue + tuple(family.extra_proof_specs.values()), repeat=2):
        assert family.can_share_tuning(one, other) == family.can_share_tuning(other, one)
    first = family.catalogue[0]
    for named in family.named:
        spec = named_variant(family, named).spec
        if type(spec) is not type(first):
            assert not family.can_share_tuning(first, spec)
            assert not family.can_share_tuning(spec, first)
