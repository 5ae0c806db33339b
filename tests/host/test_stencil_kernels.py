"""Stencil kernels on the CPU run: any weights, boundaries, steps and shapes, smaller than a tile and the halo too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gen.dtypes import F32, F64
from gen.families.base import Limits, Variant
from gen.families.names import illegal, legal_space, unsearched, variant
from gen.families.stencil import StencilSpec
from gen.families.stencil.algorithms.common import reach_of, window_lines
from gen.families.stencil.algorithms.march import MarchConfig
from gen.families.stencil.algorithms.temporal import most_registers, registers
from gen.families.stencil.builder import box, star, stencil
from gen.families.stencil.spec import BOUNDARIES, DTYPES
from gen.proof.cases import Case, Content
from gen.proof.host import HostRunner
from gen.proof.prover import check, load, prove, unsupported_extents
from gen.proof.sampled import sampled_cases
from tests.part_of_cases import DEEP, every_edge, some_and_others, some_edges
from tests.stencils import (
    ENDS_SPECS,
    FAMILY,
    FUSED_SPECS,
    IMAGE_SPECS,
    LINE_SPECS,
    ONE_SIDED,
    SPACE_SPECS,
    SPECS,
    cases,
    ends_differ,
    in_turns,
    legal,
    line_cases,
    narrow,
    overlapped,
    several,
    space_cases,
    variants,
)
from tests.strategies import not_simplest

# As many algorithms take turns as share no divisor with the number of reaches: each algorithm meets all of them.
VARIANTS = in_turns(
    SPECS,
    ("temporal",),
    ("pipelined", "persistent", "persistent"),
    ("queued", "stream", "shifted", "stream", "tiled", "stacked", "stream", "naive", "stream"),
)
LINES = in_turns(LINE_SPECS, ("overlapped",), ("stream", "naive", "shifted", "resident", "tiled"))
SPACE = (
    *in_turns(SPACE_SPECS, ("march",), ("naive", "stacked", "resident")),
    *in_turns(FUSED_SPECS, ("march fused",)),
)
STREAMS = [made for made in VARIANTS if made.algorithm.name == "stream"]
IMAGES = in_turns(
    IMAGE_SPECS,
    ("queued", "stream", "shifted", "tiled", "stacked", "stream", "naive"),
)
NARROW, DIFFER = narrow(), ends_differ()
# Of variants that are drawn: each that Hypothesis made of them to find a simpler one would have to be compiled.
UNSHRUNK = tuple(phase for phase in Phase if phase is not Phase.shrink)


@pytest.fixture(scope="module")
def streams(host_runner: HostRunner) -> dict[Variant, Any]:
    return dict(load(host_runner, STREAMS, host_runner.limits))


@pytest.fixture(scope="module")
def lines(host_runner: HostRunner) -> dict[Variant, Any]:
    return dict(load(host_runner, LINES, host_runner.limits))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(LINES, id="lines"),
        *(
            pytest.param(part, id=f"{axes}, {which}", marks=mark)
            for axes, made in (("two axes", VARIANTS), ("three axes", SPACE))
            for part, which, mark in zip(
                some_and_others(made, 3), ("some", "others"), (pytest.mark.exhaustive, pytest.mark.further), strict=True
            )
        ),
    ],
)
def test_kernels_equal_numpy_on_their_edge_cases(host_runner: HostRunner, made: Sequence[Variant]) -> None:
    for proof in prove(host_runner, made, some_edges):
        assert proof.failure is None, str(proof.failure)
        assert proof.cases == len(some_edges(proof.variant)) > 0  # it takes them all


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(NARROW[:-4:9], id="some"),  # not the last: fused steps of march take seconds
        pytest.param(NARROW if DEEP else NARROW[::2], id="many", marks=pytest.mark.further),
    ],
)
def test_cells_of_bf16_and_integers_equal_numpy(host_runner: HostRunner, made: list[Variant]) -> None:
    def tried(one: Variant) -> tuple[Case, ...]:
        # Integers from all over the range, and from its ends: sums saturate.
        return tuple(
            replace(case, content=content)
            for case, content in zip(some_edges(one), cycle((Content.RANDOM, Content.EXTREME)), strict=False)
        )

    for proof in prove(host_runner, made, tried):
        assert proof.failure is None, str(proof.failure)
        assert proof.cases > 0


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(DIFFER[::4], id="some"),
        pytest.param(DIFFER, id="all", marks=pytest.mark.exhaustive),
    ],
)
def test_axes_whose_ends_differ_equal_numpy(host_runner: HostRunner, made: list[Variant]) -> None:
    for proof in prove(host_runner, made, some_edges):
        assert proof.failure is None, str(proof.failure)
        assert proof.cases > 0


def test_ends_that_differ_are_refused_by_kernels_that_have_one_boundary_an_axis() -> None:
    takes = {made.algorithm.name for spec in ENDS_SPECS for made in legal(spec)}
    assert takes == {"naive", "stacked", "resident", "persistent", "tiled", "queued"}
    spec = StencilSpec("any", (1.0,) * 9, boundary=("wrap", ("frozen", "mirror")))
    stream = FAMILY.algorithms["stream"]
    reason = "both ends of an axis must have the same boundary; cols have frozen before and mirror past them"
    assert illegal(stream, spec, stream.config()) == reason


@pytest.mark.parametrize(
    "made",
    [
        pytest.param((IMAGES[0], *IMAGES[1::10]), id="some"),
        pytest.param(some_and_others(IMAGES, 9)[0], id="one of each", marks=pytest.mark.exhaustive),
        pytest.param(IMAGES, id="all", marks=pytest.mark.further),
    ],
)
def test_batches_of_images_equal_numpy(host_runner: HostRunner, made: Sequence[Variant]) -> None:
    for proof in prove(host_runner, made, some_edges):
        assert proof.failure is None, str(proof.failure)
        assert proof.cases > 0


def test_more_images_than_blocks_along_y_of_a_grid_go_on_along_z(host_runner: HostRunner) -> None:
    spec, tiled = StencilSpec("b", (0.5, 0.25), (1, 1, 2), boundary="wrap"), FAMILY.algorithms["tiled"]
    made = variant(FAMILY, spec, tiled, tiled.config.from_tag("x32_y1_u1", "tiled"))
    sizes = {"planes": 65537, "rows": 1, "cols": 3, "in_pitch": 3, "out_pitch": 3, "steps": 1}
    (proof,) = prove(host_runner, [made], (Case(sizes),))
    assert proof.failure is None, str(proof.failure)


def test_the_last_columns_of_a_row_read_their_mirror_image(host_runner: HostRunner) -> None:
    (fused,) = (made for made in VARIANTS if made.spec == ONE_SIDED and made.algorithm.name == "temporal")
    kernels = load(host_runner, [fused], host_runner.limits)
    for cols in (121, 122, 241, 242):  # the last warp writes one column, or two
        sizes = {"rows": 3, "cols": cols, "in_pitch": cols, "out_pitch": cols, "steps": 4}
        failure = check(kernels[fused], host_runner.limits, Case(sizes, Content.INTEGERS))
        assert failure is None, str(failure)


@pytest.mark.exhaustive
def test_every_strip_has_rows_where_a_device_holds_more_strips_than_rows_pay_for(host_runner: HostRunner) -> None:
    temporal = FAMILY.algorithms["temporal"]
    made = variant(FAMILY, FAMILY.catalogue[0], temporal, temporal.config.from_tag("v2_r24_n3_t4", "temporal"))
    (aligned,) = (case for case in sampled_cases(FAMILY, made.spec) if case.offset == 0)
    (proof,) = prove(host_runner, [made], (aligned,))
    assert proof.failure is None, str(proof.failure)  # such as: a block touches no element
    assert proof.cases == 1


def six_equal_numpy(host_runner: HostRunner, variants: Sequence[Variant], case: Case, seed: int) -> None:
    """Six of these, and no others are built: g++ takes longer than the CPU run."""
    chosen = np.random.default_rng(seed).choice(np.array(variants, object), 6, replace=False)
    for made, kernel in load(host_runner, [*chosen], host_runner.limits).items():
        if unsupported_extents(made, case, host_runner.limits) is None:
            failure = check(kernel, host_runner.limits, case)
            assert failure is None, str(failure)


@pytest.mark.exhaustive
@settings(max_examples=max(settings().max_examples // 10, 1), phases=UNSHRUNK)
@given(case=not_simplest(cases()), seed=st.integers(0, 10**6))
def test_kernels_equal_numpy(host_runner: HostRunner, case: Case, seed: int) -> None:
    six_equal_numpy(host_runner, VARIANTS, case, seed)


@pytest.mark.exhaustive
@settings(max_examples=max(settings().max_examples // 10, 1), phases=UNSHRUNK)
@given(case=space_cases(), seed=st.integers(0, 10**6))
def test_kernels_of_three_axes_equal_numpy(host_runner: HostRunner, case: Case, seed: int) -> None:
    six_equal_numpy(host_runner, SPACE, case, seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("made", STREAMS, ids=lambda one: one.name)
def test_whole_vectors_of_fewer_rows_than_a_warp_computes(
    streams: dict[Variant, Any], host_runner: HostRunner, made: Variant
) -> None:
    for rows in (1, 2, 3, 5, 8, 13, 20):
        case = Case({"rows": rows, "cols": 512, "in_pitch": 512, "out_pitch": 512, "steps": 1})
        failure = check(streams[made], host_runner.limits, case)
        assert failure is None, str(failure)


@pytest.mark.exhaustive
@settings(max_examples=max(settings().max_examples // 50, 1), phases=UNSHRUNK)
@given(made=not_simplest(several(variants(), 6)), each=st.lists(cases(), min_size=3, max_size=3))
def test_any_spec_equals_numpy(host_runner: HostRunner, made: list[Variant], each: list[Case]) -> None:
    for proof in prove(host_runner, made, lambda one: (*every_edge(one), *each), shrink=True):
        assert proof.failure is None, f"{proof.failure}\nof {proof.variant.spec.to_json()}"


def test_the_specs_are_of_every_kind() -> None:
    assert {made.algorithm.name for made in (*VARIANTS, *LINES, *SPACE)} == set(FAMILY.algorithms)
    for name, proven in (("temporal", VARIANTS), ("stream", VARIANTS), ("overlapped", LINES), ("march", SPACE)):
        specs = [made.spec for made in proven if made.algorithm.name == name and isinstance(made.spec, StencilSpec)]
        small = {made.spec.operands[0].dtype for made in NARROW if made.algorithm.name == name}
        assert {spec.dtype for spec in specs} | small == set(DTYPES), name
        for axis in range(len(specs[0].axes)):
            assert {spec.boundaries[axis] for spec in specs} == set(BOUNDARIES), name
        if name != "stream":  # of every second spec
            sides = {(spec.boundaries[-1], np.sign(reach_of(spec).right - reach_of(spec).left)) for spec in specs}
            assert len(sides) == 3 * len(BOUNDARIES), name
    for name in ("pipelined", "persistent", "stream"):
        reaches = [reach_of(made.spec) for made in VARIANTS if made.algorithm.name == name]
        assert {np.sign(reach.right - reach.left) for reach in reaches} == {-1, 0, 1}, name


@pytest.mark.parametrize("name", [name for name in FAMILY.algorithms if name != "overlapped"])  # takes one axis
def test_edge_cases_have_rows_of_the_output_further_apart_than_those_of_the_input(name: str) -> None:
    algorithm = FAMILY.algorithms[name]
    specs = (SPECS[1], SPACE_SPECS[0], FAMILY.catalogue[0])
    made = next(
        variant(FAMILY, spec, algorithm, algorithm.config())
        for spec in specs
        if illegal(algorithm, spec, algorithm.config()) is None
    )
    apart = {case.extents["out_pitch"] - case.extents["in_pitch"] for case in every_edge(made)}
    assert apart > {0}


def test_levels_that_hand_their_cells_on_need_two_planes_and_one_on_its_way() -> None:
    march, planes = FAMILY.algorithms["march"], {"star": star(3, 1), "box": box(3, 1)}
    found = {
        form: [illegal(march, stencil(weights, boundary="frozen"), MarchConfig(ring=ring, steps=2)) for ring in (2, 3)]
        for form, weights in planes.items()
    }
    assert found == {
        "star": ["each fused step reads two planes in shared memory, and a ring of 2 loads one ahead", None],
        "box": [None, None],
    }


def test_what_needs_too_many_registers_is_unsearched() -> None:
    spec = FAMILY.catalogue[0]
    temporal = FAMILY.algorithms["temporal"]
    wide = temporal.config.from_tag("v1_r16_n2_t12", "temporal")
    assert registers(spec, wide) > most_registers(wide) == 128
    assert illegal(temporal, spec, wide) is None
    assert unsearched(temporal, spec, wide) == "it needs about 156 registers per thread, and 16 warps leave 128"
    assert unsearched(temporal, spec, temporal.config.from_tag("v1_r12_n2_t12", "temporal")) is None


def test_rows_of_a_large_block_have_fewer_registers() -> None:
    spec = StencilSpec("wide", (1.0,) * 81, (9, 9))
    stream = FAMILY.algorithms["stream"]
    reasons = [unsearched(stream, spec, stream.config.from_tag(tag, "stream")) for tag in ("u2_x2_y4", "u2_x4_y4")]
    assert reasons == [None, "it needs about 212 registers per thread, and blocks of 16 warps leave 128"]


def test_a_mirror_needs_what_it_mirrors() -> None:
    spec = StencilSpec("m", (1.0,) * 25, (5, 5), boundary="mirror")
    temporal = FAMILY.algorithms["temporal"]
    config = temporal.config.from_tag("v1_r8_n2_t2", "temporal")
    sizes = {"rows": 2, "cols": 9, "in_pitch": 9, "out_pitch": 9, "steps": 2}
    reason = temporal.unsupported_extents(spec, config, sizes, Limits.of("sm_90"))
    assert reason == "2 rows are fewer than the 3 that are mirrored at their ends"
    assert temporal.unsupported_extents(spec, config, {**sizes, "rows": 3}, Limits.of("sm_90")) is None


def test_a_stencil_of_one_axis_has_no_rows_to_fuse() -> None:
    line = StencilSpec("l", (1.0, 2.0, 1.0), (3,))
    assert "the spec has 1" in str(illegal(FAMILY.algorithms["temporal"], line, FAMILY.algorithms["temporal"].config()))


@settings(max_examples=max(settings().max_examples // 10, 1))
@given(case=not_simplest(line_cases()), seed=st.integers(0, 10**6))
def test_lines_equal_numpy(lines: dict[Variant, Any], host_runner: HostRunner, case: Case, seed: int) -> None:
    for made in np.random.default_rng(seed).choice(np.array(LINES, object), 12, replace=False):
        failure = check(lines[made], host_runner.limits, case)
        assert failure is None, f"{made.name}: {failure}"


@settings(max_examples=max(settings().max_examples // 50, 1), phases=UNSHRUNK)
@given(
    made=not_simplest(several(overlapped(), 3)),
    each=st.lists(line_cases(), min_size=3, max_size=3),
)
def test_any_line_equals_numpy(host_runner: HostRunner, made: list[Variant], each: list[Case]) -> None:
    for proof in prove(host_runner, made, lambda one: (*every_edge(one), *each), shrink=True):
        assert proof.failure is None, f"{proof.failure}\nof {proof.variant.spec.to_json()}"


def test_what_the_steps_of_a_line_use_up_is_refused() -> None:
    algorithm = FAMILY.algorithms["overlapped"]
    spec = StencilSpec("l", (1.0,) * 17, (17,))
    config = algorithm.config.from_tag("v4_w4_t24", "overlapped")
    assert (
        illegal(algorithm, spec, config) == "the halo of 24 steps takes 384 of the 512 cells of a warp, more than half"
    )
    assert illegal(algorithm, spec, algorithm.config.from_tag("v4_w4_t16", "overlapped")) is None
    reason = "it is written for 1 axis, and the spec has 2"
    assert illegal(algorithm, FAMILY.catalogue[0], algorithm.config()) == reason


def test_cells_next_to_an_end_are_of_one_lane() -> None:
    algorithm = FAMILY.algorithms["overlapped"]
    config = algorithm.config.from_tag("v2_w2_t4", "overlapped")
    eight = (1.0,) * 8 + (2.0,) + (1.0,) * 8
    assert illegal(algorithm, StencilSpec("l", eight, (17,), F32, "reflect"), config) is None
    reason = "a lane has 8 cells, and the 9 cells next to an end must belong to one lane"
    assert illegal(algorithm, StencilSpec("l", eight, (17,), F32, "mirror"), config) == reason
    reason = "a lane has 4 cells, and the 8 cells next to an end must belong to one lane"
    assert illegal(algorithm, StencilSpec("l", eight, (17,), F64, "reflect"), config) == reason


def test_three_axes_have_base_and_no_kernels_that_are_written_for_fewer() -> None:
    spec = SPACE_SPECS[0]
    assert {FAMILY.base(spec, shape_class)[0] for shape_class in FAMILY.shape_classes(spec)} == {"naive"}
    for name, known in (
        ("tiled", "1 or 2 axes"),
        ("queued", "2 axes"),
        ("temporal", "2 axes"),
        ("overlapped", "1 axis"),
    ):
        algorithm = FAMILY.algorithms[name]
        reason = f"it is written for {known}, and the spec has 3"
        assert {illegal(algorithm, spec, config) for config in algorithm.config.space()} == {reason}


def test_the_weights_of_a_large_box_of_three_axes_are_found_in_memory(host_runner: HostRunner) -> None:
    weights = np.random.default_rng(0).integers(1, 9, (9, 11, 17)) / 8  # more of them than a block has threads
    spec = StencilSpec("large", tuple(weights.reshape(-1).tolist()), weights.shape, boundary="wrap")
    naive = FAMILY.algorithms["naive"]
    made = [
        variant(FAMILY, spec, naive, naive.config.from_tag(tag, "naive")) for tag in ("x32_y8_u1", "x32_y8_u1_wgmem")
    ]
    sizes = {"planes": 3, "rows": 9, "cols": 40, "in_pitch": 40, "out_pitch": 41, "steps": 1}
    for proof in prove(host_runner, made, (Case(sizes),)):
        assert proof.failure is None, str(proof.failure)


def test_every_block_of_a_legal_config_can_be_launched() -> None:
    for spec in (FAMILY.catalogue[0], LINE_SPECS[0], SPACE_SPECS[0]):
        for algorithm in FAMILY.algorithms.values():
            for config in legal_space(algorithm, spec):
                assert all(prod(launch.block) <= 1024 for launch in algorithm.plan(spec, config).launches), config.tag


def test_rows_of_no_weight_are_empty_and_those_at_the_end_of_a_plane_are_left_out() -> None:
    spec = stencil(star(3, 8))
    lines = window_lines(spec, reach_of(spec))
    assert lines[:9] == ("{", *["    {},"] * 8)
    assert lines[9].startswith("    {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.020408163f, 0.0f,")
    assert len(lines) < 240
    assert lines.count("    {},") == 16 * 8
