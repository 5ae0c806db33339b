"""Estimates of times: what each part of a demand does to them, what they count, and how dispatch goes by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gen
from bench.random_cases import random_cases
from gen.arch import Limits
from gen.export.program import problems, ranks_of
from gen.families import FAMILIES
from gen.families.base import Family, Variant
from gen.families.estimates import SECTOR_BYTES, Demand, estimated_us, least_us_of
from gen.families.extents import extents_of
from gen.families.names import find_family, find_variant, heuristic_variants, search_space
from gen.families.reduction import ReductionSpec
from gen.families.reduction.algorithms.rows import RowsConfig
from gen.proof.host import HostRunner
from gen.proof.trace import traffic
from gen.runtime.dispatch import LESS_THAN_TUNED, Chooser, family_and_spec
from gen.store.winners import Winner

FAMILY, TRANSPOSES = find_family(FAMILIES, "reduction"), find_family(FAMILIES, "transpose")
H100 = Limits.of("sm_90")
DEMANDS = st.builds(
    Demand, moved_bytes=st.floats(1, 1e10), blocks=st.integers(1, 1 << 20), threads_per_block=st.integers(32, 1024),
    bytes_in_flight=st.floats(0.1, 256), rounds=st.floats(1, 1e4), instructions=st.floats(10, 1e5),
    registers=st.integers(16, 64), shared_bytes=st.integers(0, 48 << 10), launches=st.integers(1, 3),
    end_seconds=st.floats(0, 1e-5), serial_instructions=st.floats(0, 1e4),
)  # fmt: skip


@given(DEMANDS, st.sampled_from(["moved_bytes", "rounds", "instructions", "end_seconds"]), st.floats(1.01, 10))
def test_more_work_never_takes_less_time(demand: Demand, name: str, times: float) -> None:
    more = demand._replace(**{name: getattr(demand, name) * times + 1e-9})
    assert estimated_us(more, H100) >= estimated_us(demand, H100)


@given(DEMANDS, st.floats(1.01, 10))
def test_more_bytes_in_flight_never_take_more_time(demand: Demand, times: float) -> None:
    more = demand._replace(bytes_in_flight=demand.bytes_in_flight * times)
    assert estimated_us(more, H100) <= estimated_us(demand, H100)
    assert estimated_us(demand._replace(launches=demand.launches + 1), H100) > estimated_us(demand, H100)


MOVED = [
    ("sum_f32_axis1__rows_tpb128_g4_u4_v16", (3000, 64)), ("sum_f32_axis1__rows_tpb256_g32_u8_v4", (700, 513)),
    ("sum_f32__flags_tpb256_u4_v16_bpm2", (300_000,)), ("max_i16_axis0__columns_x32_y8_u4_v8_bpm4", (900, 256)),
    ("sum_f32_axis0x2__multi_rows_g32_u4_v16_bpm8", (16, 90, 64)),
    ("sum_f32_axis0x2__multi_columns_x32_y8_u4_v16", (9, 30, 12, 128)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), MOVED)
def test_moved_bytes_are_the_sectors_that_the_cpu_run_counts_where_each_is_read_once(
    name: str, shape: tuple[int, ...], host_runner: HostRunner
) -> None:
    made = find_variant(FAMILIES, f"reduction_{name}", {})
    sizes = extents_of(FAMILY, made.spec, shape)
    demand = made.algorithm.demand(made.spec, made.config, sizes, 16, host_runner.limits)
    assert demand is not None
    found = traffic(host_runner.load([made])[0], host_runner.limits, sizes)
    sectors = sum(access.sectors for access in found.of("global", "load") if access.buffer == "in")
    assert demand.moved_bytes == pytest.approx(SECTOR_BYTES * sectors, rel=0.25)


TURNED = [
    ("10_b32__vector_tile_v16_x16_g16_swz_ocol_ldg", (256, 320)), ("10_b32__window_tile_t64_c64_w16_ocol", (256, 192)),
    ("10423_b32__packed_a4_tpb256_u8", (20, 8, 16, 2, 15)),
    ("1023_b16__packed_a4_tpb512_u4", (24, 32, 4, 40)),
    ("102_b32__gather_tpb256_u1", (16, 32, 40)), ("10_b64__skinny_rows_b4096_tpb128", (8, 2048)),
    ("102_b32__flat_copy_tpb128_u1", (20, 30, 64)), ("021_b32__squares_tpb128_u1", (40, 16, 16)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), TURNED)
def test_moved_bytes_of_transposes_are_the_sectors_that_the_cpu_run_counts(
    name: str, shape: tuple[int, ...], host_runner: HostRunner
) -> None:
    made = find_variant(FAMILIES, f"transpose_{name}", {})
    sizes = extents_of(TRANSPOSES, made.spec, shape)
    demand = made.algorithm.demand(made.spec, made.config, sizes, 16, host_runner.limits)
    assert demand is not None
    found = traffic(host_runner.load([made])[0], host_runner.limits, sizes)
    sectors = sum(access.sectors for access in found.of("global"))
    assert demand.moved_bytes == pytest.approx(SECTOR_BYTES * sectors, rel=0.35)


def estimate(made: Variant, sizes: dict[str, int]) -> float:
    demand = made.algorithm.demand(made.spec, made.config, sizes, 16, H100)
    assert demand is not None
    return estimated_us(demand, H100)


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (gen.reduction("sum", axis=0), (100_000, 15)), (gen.reduction("sum", axis=0), (4096, 4096)),
        (gen.reduction("var", axis=(0, 2, 3)), (32, 256, 14, 14)),
        (gen.reduction("sum", axis=(0, 2)), (64, 64, 64, 64)),
        (gen.reduction("max", "int8", axis=1), (5, 1000, 3)), (gen.reduction("mean", axis=-1), (10_000, 33)),
    ],
)  # fmt: skip
def test_untuned_nothing_often_fast_is_estimated_to_take_much_less(spec: ReductionSpec, shape: tuple[int, ...]) -> None:
    sizes = dict(extents_of(FAMILY, spec, shape))
    chosen = Chooser(FAMILY, spec, (), "Some GPU", H100).choose(sizes)
    often = heuristic_variants(FAMILY, spec, FAMILY.shape_class(spec, sizes), H100)
    able = [one for one in often if one.algorithm.unsupported_extents(spec, one.config, sizes, H100) is None]
    least = min(estimate(one, sizes) for one in able)
    assert chosen.variant in able
    assert estimate(chosen.variant, sizes) <= least / FAMILY.first_stays(FAMILY.shape_class(spec, sizes)) * 1.001


@pytest.mark.parametrize(
    ("op", "dtype", "shape"),
    [
        ("mean_var", "float16", (579_333, 131)), ("max", "uint8", (586_240, 173)), ("mean", "uint8", (2_240_064, 140)),
        ("var", "int16", (963_461, 512)), ("sum", "float32", (300_000, 256)), ("sum", "float32", (20, 300)),
    ],
)  # fmt: skip
def test_rows_of_any_length_have_a_candidate_that_shares_them_among_few_enough_threads(
    op: str, dtype: str, shape: tuple[int, int]
) -> None:
    spec = gen.reduction(op, dtype, axis=1)
    sizes = dict(extents_of(FAMILY, spec, shape))
    chosen = Chooser(FAMILY, spec, (), "Some GPU", H100).choose(sizes)
    rows = FAMILY.algorithms["rows"]
    configs = (one for one in search_space(rows, spec) if isinstance(one, RowsConfig))
    coalesced = (one for one in configs if one.group * one.vec_bytes >= 2 * SECTOR_BYTES)
    able = (one for one in coalesced if rows.unsupported_extents(spec, one, sizes, H100) is None)
    least = min(estimate(Variant(FAMILY, spec, rows, one), sizes) for one in able)
    assert estimate(chosen.variant, sizes) <= 1.25 * least


def test_a_winner_stays_until_another_is_estimated_to_take_much_less() -> None:
    spec = gen.reduction("sum", axis=1)
    wide = "reduction_sum_f32_axis1__columns_x128_y8_u4_v16_bpm4"
    winner = Winner("Some GPU", FAMILY.name_of(spec), "more than 1024 columns, or several matrices", wide, {})
    one = Chooser(FAMILY, spec, (winner,), "Some GPU", H100)
    assert one.choose(dict(extents_of(FAMILY, spec, (4, 4096, 65536)))).variant.name == wide
    narrow = dict(extents_of(FAMILY, spec, (7, 400_000, 9)))  # of the same class: several matrices
    chosen = one.choose(narrow)
    made = find_variant(FAMILIES, wide, {})
    assert estimate(chosen.variant, narrow) < LESS_THAN_TUNED * estimate(made, narrow)
    assert "by estimate" in chosen.why


def test_the_winner_of_another_spec_gives_way_sooner_than_an_own_one() -> None:
    spec = find_variant(FAMILIES, "transpose_1230_b32__gather_tpb256_u4", {}).spec
    sizes = dict(extents_of(TRANSPOSES, spec, (200, 1, 129_288, 2)))
    words, narrow = TRANSPOSES.shape_class(spec, sizes), "window_tile_t64_c64_w16_a32_ocol_stel"

    def chosen(name: str) -> str:
        winner = Winner("Some GPU", name, words, f"{name}__{narrow}", {})
        return Chooser(TRANSPOSES, spec, (winner,), "Some GPU", H100, text_of=lambda _: "").choose(sizes).variant.name

    own = TRANSPOSES.name_of(spec)
    assert chosen(own).endswith(narrow)
    assert not chosen("transpose_10_b32").endswith(narrow)


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_90", "sm_120"])
def test_untuned_every_family_has_a_choice_on_every_architecture(arch: str) -> None:
    """Drivers take no shared memory for a block before sm_80, and many kernels take none either."""
    for family in FAMILIES:
        for shape_class in family.shape_classes(spec := family.catalogue[0]):
            chooser = Chooser(family, spec, (), arch, Limits.of(arch))
            assert chooser.choose(family.representative(spec, shape_class)).variant.spec == spec


def test_warps_of_short_rows_go_both_ways() -> None:
    family, spec = find_family(FAMILIES, "stencil"), gen.stencil([[1.0] * 9, *[[0.0] * 4 + [1.0] + [0.0] * 4] * 8])
    name = family.name_of(spec)
    made = find_variant(FAMILIES, f"{name}__stacked_tpb128_u4", {name: spec.to_json()})

    def of_cell(cols: int) -> float:
        sizes = dict(extents_of(family, spec, (65_536, cols)))
        demand = made.algorithm.demand(made.spec, made.config, sizes, 16, H100)
        assert demand is not None
        return demand.instructions * demand.blocks * demand.threads_per_block / (65_536 * cols)

    assert of_cell(9) > 1.6 * of_cell(4096)


def problems_of_families() -> Iterator[tuple[Family[Any], Any, dict[str, int], int, Limits]]:
    """Random cases, and problems of every family, systems and empty arrays among them, on two devices."""
    others = ("system_wave_7d72a419_f32", "reduction_sum_f32_axism1", "transpose_10_b32", "stencil_heat_de794a2b_f32")
    for limits in (H100, Limits.of("sm_86")):
        for case in random_cases(11, 48):
            yield case.family, case.spec, dict(case.extents), case.alignment, limits
        for name in others:
            family, spec = family_and_spec(FAMILIES, name, Path())
            for problem in problems(family, spec, ranks_of(family, spec), 20, 3):
                yield family, spec, dict(problem.extents(family, spec)), problem.alignment, limits
        for name, shape in ((others[1], (8, 0, 1)), (others[2], (0, 5)), (others[3], (7, 0))):
            family, spec = family_and_spec(FAMILIES, name, Path())
            yield family, spec, {**extents_of(family, spec, shape), **family.runtime_parameters(spec)}, 16, limits


def time_of(made: Variant, sizes: dict[str, int], alignment: int, limits: Limits) -> float | None:
    demand = made.algorithm.demand(made.spec, made.config, sizes, alignment, limits)
    return None if demand is None else estimated_us(demand, limits)


def least_of_all(
    chooser: Chooser, family: Family[Any], sizes: dict[str, int], alignment: int, limits: Limits
) -> Variant | None:
    """What dispatch promises to choose untuned, by estimates of all candidates; None where the first has none."""
    shape_class = family.shape_class(chooser.spec, sizes, alignment)
    others = chooser.row(shape_class).others
    able = (one for one in others if one.algorithm.unsupported_extents(one.spec, one.config, sizes, limits) is None)
    times = [(one, time_of(one, sizes, alignment, limits)) for one in islice(able, family.most_candidates)]
    known = [(time, place) for place, (_, time) in enumerate(times) if time is not None]
    if not times or times[0][0] is not others[0] or times[0][1] is None:
        return None
    (first_us, _), (least_us, place), (first, _) = known[0], min(known), times[0]
    slow = first.algorithm.slow_path_reason(first.spec, first.config, sizes, alignment, limits)
    return first if least_us > first_us * family.first_stays(shape_class) and slow is None else times[place][0]


def test_untuned_the_choice_is_that_by_estimates_of_all_candidates() -> None:
    compared: Counter[str] = Counter()
    for family, spec, sizes, alignment, limits in problems_of_families():
        chooser = Chooser(family, spec, (), "Some GPU", limits)
        wanted = least_of_all(chooser, family, sizes, alignment, limits)
        if wanted is not None:
            assert chooser.choose(sizes, alignment).variant == wanted, (sizes, alignment)
            compared[family.name] += 1
    assert min(compared[name] for name in ("reduction", "transpose", "stencil")) > 30


def test_no_estimate_is_below_the_bound_by_which_dispatch_passes_a_variant_over() -> None:
    estimated: Counter[str] = Counter()
    for family, spec, sizes, alignment, limits in problems_of_families():
        bound_of = least_us_of(family.smallest(spec, sizes, limits), limits)
        for made in (
            Chooser(family, spec, (), "Some GPU", limits).row(family.shape_class(spec, sizes, alignment)).others
        ):
            algorithm, config = made.algorithm, made.config
            if algorithm.unsupported_extents(spec, config, sizes, limits) is None:
                time = time_of(made, sizes, alignment, limits)
                if time is not None:
                    assert bound_of(algorithm.least(spec, config, limits)) <= time, (made, sizes, alignment)
                    estimated[algorithm.name] += 1
    assert len(estimated) > 20
