"""Which stencil variants come first: legal ones for every spec, and those that won where it was measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest

import gen
from gen.arch import KNOWN, Limits
from gen.dtypes import F16, F32, F64, DType
from gen.families.base import Algorithm
from gen.families.extents import extents_of
from gen.families.names import heuristic_variants, variant
from gen.families.plans import idle_multiprocessors
from gen.families.stencil import StencilSpec
from gen.families.stencil.algorithms.march import MarchConfig
from gen.families.stencil.algorithms.overlapped import OverlappedConfig
from gen.families.stencil.algorithms.resident import ResidentConfig
from gen.families.stencil.algorithms.temporal import TemporalConfig, most_registers, registers
from gen.families.stencil.shapes import MANY_STEPS, ONE_STEP
from gen.families.stencil.spec import BOUNDARIES, STEPS, Boundary
from gen.runtime.dispatch import Chooser
from tests.stencils import FAMILY

FORMS = {"star": gen.star, "box": gen.box}
EACH = [(form, radius) for form in FORMS for radius in range(1, 5)]


H100 = Limits.of("sm_90")
H200 = replace(H100, memory_bytes_per_second=4.917e12)  # as its driver says

SHORT_ROWS = ("naive_x4_y32_u1_i32", "naive_x8_y32_u1_i32")


def tags(spec: StencilSpec, shape_class: str, limits: Limits = H200) -> list[str]:
    return [made.name.partition("__")[2] for made in heuristic_variants(FAMILY, spec, shape_class, limits)]


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_every_star_and_box_has_fused_steps_among_the_first(boundary: Boundary, dtype: DType) -> None:
    for form, radius in EACH:
        spec = gen.stencil(FORMS[form](2, radius), boundary=boundary, dtype=dtype)
        many = tags(spec, MANY_STEPS)
        assert many[0].startswith("temporal"), (form, radius)
        assert len(many) == len(set(many)) <= FAMILY.most_candidates + 4  # no size is taken by all tiles


def test_march_takes_what_its_grid_holds_however_many_planes_there_are() -> None:
    spec, found = gen.stencil(gen.star(3, 1)), set[bool]()
    marching = [one for one in heuristic_variants(FAMILY, spec, ONE_STEP, H100) if isinstance(one.config, MarchConfig)]
    for made, shape in product(marching, ((5, 6, 7), (2**20, 2**15, 2**15), (4, 2**21, 2**21), (2**13, 2**18, 2**18))):
        sizes = extents_of(FAMILY, spec, shape)
        of_plan = Algorithm.unsupported_extents(made.algorithm, spec, made.config, sizes, H100)
        assert made.algorithm.unsupported_extents(spec, made.config, sizes, H100) == of_plan
        found.add(of_plan is None)
    assert found == {True, False}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_stars_and_boxes_of_three_axes_march(dtype: str) -> None:
    for form in FORMS:
        for radius in (1, 2):
            spec = gen.stencil(FORMS[form](3, radius), dtype=dtype)
            for shape_class in (ONE_STEP, MANY_STEPS):
                first = tags(spec, shape_class)
                assert first[0].startswith("march") or (form, radius) == ("box", 2), dtype


@pytest.mark.parametrize("cells", [96, 128, 192, 256, 512])
def test_what_marches_through_few_planes_has_a_block_for_every_multiprocessor(cells: int) -> None:
    spec = gen.stencil(gen.star(3, 1))
    sizes = dict.fromkeys(("planes", "rows", "cols", "in_pitch", "out_pitch"), cells) | {STEPS: 1}
    made = heuristic_variants(FAMILY, spec, ONE_STEP, H200)
    first = next(one for one in made if one.algorithm.slow_path_reason(spec, one.config, sizes, 16, H200) is None)
    assert first.algorithm.name == "march"
    launch = first.algorithm.plan(spec, first.config).launches[0]
    blocks = launch.grid[0].at({**sizes, "multiprocessors": H200.multiprocessors})
    assert idle_multiprocessors(blocks, H200) is None


@pytest.mark.parametrize(("multiprocessors", "least"), [(1, 1), (31, 31), (32, 31), (108, 105), (132, 128), (148, 144)])
def test_one_multiprocessor_of_32_may_be_without_a_block(multiprocessors: int, least: int) -> None:
    device = replace(H100, multiprocessors=multiprocessors)
    reason = f"{least - 1} blocks are too few: some of the {multiprocessors} multiprocessors would be idle"
    assert idle_multiprocessors(least - 1, device) == reason
    assert idle_multiprocessors(least, device) is None


def test_marches_are_slow_on_devices_that_they_do_not_fill() -> None:
    spec, march = gen.stencil(gen.star(3, 1)), FAMILY.algorithms["march"]
    sizes = dict.fromkeys(("planes", "rows", "cols", "in_pitch", "out_pitch"), 256) | {STEPS: 1}
    large = march.slow_path_reason(spec, MarchConfig(), sizes, 16, replace(H100, multiprocessors=10_000))
    assert large is not None
    assert large.endswith("some of the 10000 multiprocessors would be idle")
    assert march.slow_path_reason(spec, MarchConfig(), sizes, 16, H100) is None


def test_one_step_streams_unless_the_code_would_be_too_long() -> None:
    for form, radius in EACH:
        first = tags(gen.stencil(FORMS[form](2, radius)), ONE_STEP)
        assert [tag for tag in first if not tag.startswith(("shifted", "naive", "stacked"))] == [
            tag for tag in first if tag.startswith("stream")
        ]
        assert {*SHORT_ROWS} <= {*first}
        assert first[0].startswith("stream") or (form, radius) == ("box", 4)


@pytest.mark.parametrize(
    ("spec", "won"),
    [  # on an H200
        (gen.stencil(gen.star(2, 1)), "temporal_v1_r12_n1_t12"),
        (gen.stencil(gen.star(2, 1)), "temporal_v1_r16_n1_t8"),
        (gen.stencil(gen.star(2, 2)), "temporal_v1_r8_n1_t4"),
        (gen.stencil(gen.star(2, 1), dtype="f64"), "temporal_v1_r12_n3_t8"),
        (gen.stencil([1, 2, 3]), "overlapped_v16_w2_t48"),
        (gen.stencil([1, 2, 3], boundary="wrap"), "overlapped_v8_w2_t48"),
        (gen.stencil(np.arange(1.0, 10)), "overlapped_v16_w2_t24"),
        (gen.stencil(np.arange(1.0, 10), dtype="f64"), "overlapped_v16_w2_t16"),
    ],
)
def test_what_won_is_tried_early(spec: StencilSpec, won: str) -> None:
    assert won in tags(spec, MANY_STEPS)


def fused(spec: StencilSpec, limits: Limits) -> int:
    """Steps of a launch of what comes first."""
    first = next(iter(heuristic_variants(FAMILY, spec, MANY_STEPS, limits)))
    assert isinstance(first.config, TemporalConfig | OverlappedConfig)
    return first.config.steps


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=lambda dtype: dtype.name)
def test_the_slower_the_memory_the_more_steps_are_fused(dtype: DType) -> None:
    slow, fast = (replace(H200, memory_bytes_per_second=share * 5e12) for share in (0.1, 2))
    for weights in (gen.box(2, 1), gen.star(2, 3), np.arange(1.0, 10)):
        spec = gen.stencil(weights, dtype=dtype)
        assert fused(spec, slow) >= fused(spec, H200) >= fused(spec, fast)
    spec = gen.stencil(gen.box(2, 1), dtype=dtype)
    assert fused(spec, slow) > fused(spec, fast)


def test_where_f64_has_few_lanes_arithmetic_that_is_repeated_costs_more_than_memory() -> None:
    spec, few = gen.stencil(gen.box(2, 1), dtype=F64), replace(H200, f64_per_clock=2)
    assert fused(spec, few) < fused(spec, H200)
    assert fused(gen.stencil(gen.box(2, 1)), few) == fused(gen.stencil(gen.box(2, 1)), H200)


@pytest.mark.parametrize("arch", [known.arch for known in KNOWN])
def test_every_architecture_has_likely_variants_whose_warps_are_resident(arch: str) -> None:
    limits = Limits.of(arch)
    spec = gen.stencil(gen.star(2, 1), dtype=F64)
    configs = [one.config for one in heuristic_variants(FAMILY, spec, MANY_STEPS, limits)]
    warps = [config.warps_per_sm for config in configs if isinstance(config, TemporalConfig)]
    assert warps
    assert max(warps) <= limits.blocks_per_multiprocessor


@pytest.mark.parametrize(("form", "radius"), EACH)
def test_base_is_proven_in_less_than_tuning_takes(form: str, radius: int) -> None:
    spec = gen.stencil(FORMS[form](2, radius))
    sizes = {"rows": 16384, "cols": 16384, "in_pitch": 16384, "out_pitch": 16384}
    for steps in (1, 16, 1000):
        proven = FAMILY.sizes_for_numpy(spec, {**sizes, STEPS: steps})
        cells = proven["rows"] * proven["cols"]
        assert cells >= 64 * 64
        assert cells * proven[STEPS] * len(spec.taps) <= 12_000_000
        assert FAMILY.shape_class(spec, proven) == FAMILY.shape_class(spec, {**sizes, STEPS: steps})


def test_small_problems_are_proven_as_they_are() -> None:
    spec = gen.stencil(gen.star(2, 1))
    extents = {"rows": 60, "cols": 64, "in_pitch": 64, "out_pitch": 64, STEPS: 20}
    assert FAMILY.sizes_for_numpy(spec, extents) == extents


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_what_an_untuned_device_gets_has_registers_to_spare(boundary: Boundary, dtype: DType) -> None:
    for form, radius in EACH:
        spec = gen.stencil(FORMS[form](2, radius), boundary=boundary, dtype=dtype)
        first = next(iter(heuristic_variants(FAMILY, spec, MANY_STEPS, H200)))
        assert isinstance(first.config, TemporalConfig)
        assert most_registers(first.config) - registers(spec, first.config) >= 8, (form, radius)


@pytest.mark.parametrize(
    ("spec", "shape", "steps", "name"),
    [  # cases that lost to others on an H200, and neighbours that won
        (gen.stencil(gen.star(2, 2)), (1_500_000, 3), 1, "stacked"),
        (gen.stencil(gen.star(2, 7)), (65536, 12), 1, "stacked"),
        (gen.stencil(gen.star(2, 1), dtype="f64"), (15, 257), 1, "naive"),
        (gen.stencil(gen.star(2, 3)), (5, 75704), 1, "stacked"),
        (gen.stencil(gen.box(2, 4)), (127, 98), 110, "naive"),
        (gen.stencil(gen.star(2, 1), dtype="float16"), (8191, 8193), 1, "shifted"),
        (gen.stencil(gen.star(2, 2), dtype="f64"), (21, 2097153), 1, "naive_x32_y8"),
        (gen.stencil([0.25, 0, 0.5, 0, 0, 0.25]), (524288,), 5, "overlapped_v4"),
        (gen.stencil(gen.box(3, 1), boundary="wrap", dtype="float16"), (2_097_151, 5, 15), 1, "stacked"),
        (gen.stencil(gen.box(3, 3)), (281, 23, 200), 34, "stacked"),
        (gen.stencil(gen.box(3, 4), dtype="float16", boundary="reflect"), (7, 128, 515), 22, "naive_x8_y32_u4"),
        (gen.stencil(gen.star(2, 1)), (8192, 8192), 1, "stream"),
        (gen.stencil(gen.box(2, 1)), (2_236_304, 128), 1, "stream"),
        (gen.stencil(gen.star(2, 1)), (2048, 2048), 1000, "persistent"),
        (gen.stencil(gen.star(2, 5)), (16384, 2328), 12, "temporal"),
        # cases that lost to others on an H100
        (gen.stencil(gen.box(3, 1), boundary="frozen"), (3, 2, 256), 103, "resident"),
        (gen.stencil(gen.star(3, 3), boundary="reflect"), (128, 127, 147), 1, "naive_x32_y8"),
        (gen.stencil(gen.star(3, 3), boundary="constant"), (128, 127, 148), 1, "march"),
        (gen.stencil(gen.star(3, 1), dtype="f64"), (128, 128, 144), 1, "march"),
        (gen.stencil(gen.box(2, 1), dtype="f64", boundary="wrap"), (31, 2052553), 30, "temporal"),
        # short along all axes but one: by count alone, not measured
        (gen.stencil(gen.box(2, 5), dtype="f64"), (16, 380), 43, "resident_a1"),
        (gen.stencil(gen.box(2, 4), dtype="f64"), (16384, 16), 53, "resident_a0"),
        (gen.stencil(gen.star(3, 5), boundary="nearest"), (524_289, 4, 2), 8, "resident_a0"),
        (gen.stencil(gen.box(2, 1)), (13, 11136), 190, "resident_a1"),
        (gen.stencil(gen.star(3, 6), boundary="nearest"), (2, 65536, 7), 883, "resident_a1"),
        # batches of images; the first and the last two were not measured
        (gen.stencil(gen.star(2, 1)[None]), (64, 1024, 1024), 1, "stream"),
        (gen.stencil(gen.star(2, 1)[None]), (1000, 224, 224), 1, "naive_x32_y8_u4"),
        (gen.stencil(gen.star(2, 1)[None]), (64, 512, 512), 100, "temporal"),
        (gen.stencil(gen.star(2, 1)[None]), (4096, 32, 32), 100, "resident"),
    ],
)
def test_untuned_stencils_get_what_is_estimated_to_take_least(
    spec: StencilSpec, shape: tuple[int, ...], steps: int, name: str
) -> None:
    extents = {**extents_of(FAMILY, spec, shape), STEPS: steps}
    chosen = Chooser(FAMILY, spec, (), "", H100).choose(extents).variant
    assert chosen.name.partition("__")[2].startswith(name)
    assert chosen.algorithm.slow_path_reason(spec, chosen.config, extents, 16, H100) is None


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("dtype", [F16, F64], ids=lambda dtype: dtype.name)
def test_parts_of_resident_cover_the_axis_and_hold_what_their_steps_use_up(boundary: Boundary, dtype: DType) -> None:
    """However long and wide: a last part of one cell, more parts than multiprocessors, more cells than memory holds."""
    spec = gen.stencil(gen.star(3, 3), boundary=boundary, dtype=dtype)
    for along, steps, blocks, shape in product(
        range(3), (2, 8), (1, 2), ((5, 2, 3), (17, 131, 9), (9, 70_001, 15), (300, 7, 1057), (64, 64, 64))
    ):
        config = ResidentConfig(along=along, steps=steps, blocks_per_sm=blocks)
        made = variant(FAMILY, spec, "resident", config)
        sizes = {**extents_of(FAMILY, spec, shape), STEPS: steps, **H100.sizes()}
        launch = made.plan.launches[0]
        own, line_cells, _ = [one[1].at(sizes) for one in launch.arguments if not isinstance(one, str)][-3:]
        length, used = shape[along], 6 * steps
        parts = launch.grid[0].at(sizes)
        assert (parts - 1) * own < length <= parts * own
        assert line_cells % 2 == 1
        assert line_cells >= min(own + used, length) + 6 + config.unroll - 1
        refused = made.algorithm.unsupported_extents(spec, config, sizes, H100)
        assert (refused is None) == (launch.shared_bytes.at(sizes) <= H100.shared_bytes_per_block)
        least = prod(shape) // length * (used + 20) * 2 * spec.accumulator.size  # of a part of eight cells
        assert refused is None or least > 100_000
