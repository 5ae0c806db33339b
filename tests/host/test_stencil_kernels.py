"""Stencil kernels on the CPU run: any weights, boundaries, steps and shapes, smaller than a tile and the halo too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.dtypes import F32, F64
from gen.families.base import Limits, Variant
from gen.families.names import illegal
from gen.families.stencil import StencilSpec
from gen.families.stencil.temporal import most_registers, registers
from gen.proof.cases import Case, Content, allocate, fill
from gen.proof.host import HostRunner
from gen.proof.prover import check, load, uncovered
from tests.stencils import FAMILY, LINE_SPECS, SPECS, cases, legal, line_cases, overlapped, variants


def in_turns() -> Iterator[Variant]:
    """Of every spec and algorithm every second config, in the next spec the others."""
    for place, spec in enumerate(SPECS):
        for _, found in groupby(legal(spec), key=lambda made: made.algorithm.name):
            same = list(found)
            yield from same[place % min(2, len(same)) :: 2]


VARIANTS = tuple(in_turns())


@pytest.fixture(scope="module")
def kernels(host_runner: HostRunner) -> dict[Variant, Any]:
    return dict(load(host_runner, VARIANTS, host_runner.limits))


@pytest.fixture(scope="module")
def lines(host_runner: HostRunner) -> dict[Variant, Any]:
    return dict(load(host_runner, LINES, host_runner.limits))


@settings(max_examples=max(settings().max_examples // 5, 1))
@given(case=cases(), seed=st.integers(0, 10**6))
def test_kernels_equal_numpy(kernels: dict[Variant, Any], host_runner: HostRunner, case: Case, seed: int) -> None:
    for made in np.random.default_rng(seed).choice(np.array(VARIANTS, object), 6, replace=False):
        if uncovered(made, case, host_runner.limits) is None:
            failure = check(kernels[made], host_runner.limits, case)
            assert failure is None, str(failure)


@pytest.mark.parametrize("made", [one for one in VARIANTS if one.algorithm.name == "stream"], ids=lambda one: one.name)
def test_whole_vectors_of_fewer_rows_than_a_warp_computes(
    kernels: dict[Variant, Any], host_runner: HostRunner, made: Variant
) -> None:
    for rows in (1, 2, 3, 5, 8, 13, 20):
        case = Case({"rows": rows, "cols": 512, "in_pitch": 512, "out_pitch": 512, "steps": 1})
        failure = check(kernels[made], host_runner.limits, case)
        assert failure is None, str(failure)


@settings(max_examples=max(settings().max_examples // 5, 1))
@given(case=cases())
def test_all_variants_of_a_spec_give_the_same_bits(
    kernels: dict[Variant, Any], host_runner: HostRunner, case: Case
) -> None:
    for spec in SPECS:
        assert len(results(kernels, [made for made in VARIANTS if made.spec == spec], host_runner, case)) == 1


@settings(max_examples=max(settings().max_examples // 50, 1))
@given(made=st.lists(variants(), min_size=6, max_size=6, unique=True), each=st.lists(cases(), min_size=3, max_size=3))
def test_any_spec_equals_numpy(host_runner: HostRunner, made: list[Variant], each: list[Case]) -> None:
    ready = load(host_runner, made, host_runner.limits)  # compiled together: that is what takes long
    for one in made:
        for case in each:
            if uncovered(one, case, host_runner.limits) is None:
                failure = check(ready[one], host_runner.limits, case)
                assert failure is None, str(failure)


def test_what_needs_too_many_registers_is_refused() -> None:
    spec = FAMILY.catalogue[0]
    temporal = FAMILY.algorithms["temporal"]
    wide = temporal.config.from_tag("v1_r16_n2_t12", "temporal")
    assert registers(spec, wide) > most_registers(wide) == 128
    assert illegal(temporal, spec, wide) == "it needs about 156 registers a thread, and 16 warps leave 128"
    assert illegal(temporal, spec, temporal.config.from_tag("v1_r12_n2_t12", "temporal")) is None


def test_rows_of_a_large_block_have_fewer_registers() -> None:
    spec = StencilSpec("wide", (1.0,) * 81, (9, 9))
    stream = FAMILY.algorithms["stream"]
    reasons = [illegal(stream, spec, stream.config.from_tag(tag, "stream")) for tag in ("u2_x2_y4", "u2_x4_y4")]
    assert reasons == [None, "it needs about 212 registers a thread, and blocks of 16 warps leave 128"]


def test_a_mirror_needs_what_it_mirrors() -> None:
    spec = StencilSpec("m", (1.0,) * 25, (5, 5), boundary="mirror")
    temporal = FAMILY.algorithms["temporal"]
    config = temporal.config.from_tag("v1_r8_n2_t2", "temporal")
    sizes = {"rows": 2, "cols": 9, "in_pitch": 9, "out_pitch": 9, "steps": 2}
    reason = temporal.uncovered(spec, config, sizes, Limits.of("sm_90"))
    assert reason == "2 rows are fewer than the 3 that are mirrored at their ends"
    assert temporal.uncovered(spec, config, {**sizes, "rows": 3}, Limits.of("sm_90")) is None


def test_a_stencil_of_one_axis_has_no_rows_to_fuse() -> None:
    line = StencilSpec("l", (1.0, 2.0, 1.0), (3,))
    assert "one axis" in str(illegal(FAMILY.algorithms["temporal"], line, FAMILY.algorithms["temporal"].config()))


LINES = tuple(made for spec in LINE_SPECS for made in legal(spec))


@settings(max_examples=max(settings().max_examples // 5, 1))
@given(case=line_cases(), seed=st.integers(0, 10**6))
def test_lines_equal_numpy(lines: dict[Variant, Any], host_runner: HostRunner, case: Case, seed: int) -> None:
    for made in np.random.default_rng(seed).choice(np.array(LINES, object), 12, replace=False):
        failure = check(lines[made], host_runner.limits, case)
        assert failure is None, f"{made.name}: {failure}"


def test_a_line_of_whole_vectors_is_read_no_further(lines: dict[Variant, Any], host_runner: HostRunner) -> None:
    for made in LINES:
        for cols in (256, 512, 1024, 2048):
            failure = check(lines[made], host_runner.limits, Case({"cols": cols, "steps": 1}))
            assert failure is None, f"{made.name}: {failure}"


@settings(max_examples=max(settings().max_examples // 10, 1))
@given(case=line_cases())
def test_all_variants_of_a_line_give_the_same_bits(
    lines: dict[Variant, Any], host_runner: HostRunner, case: Case
) -> None:
    for spec in LINE_SPECS:
        assert len(results(lines, [made for made in LINES if made.spec == spec], host_runner, case)) == 1


@settings(max_examples=max(settings().max_examples // 50, 1))
@given(
    made=st.lists(overlapped(), min_size=3, max_size=3, unique=True),
    each=st.lists(line_cases(), min_size=3, max_size=3),
)
def test_any_line_equals_numpy(host_runner: HostRunner, made: list[Variant], each: list[Case]) -> None:
    ready = load(host_runner, made, host_runner.limits)
    for one in made:
        for case in each:
            failure = check(ready[one], host_runner.limits, case)
            assert failure is None, f"{one.name}: {failure}"


def results(kernels: dict[Variant, Any], made: Sequence[Variant], runner: HostRunner, case: Case) -> set[bytes]:
    """What variants of one spec write."""
    (spec,) = {one.spec for one in made if isinstance(one.spec, StencilSpec)}
    layouts = FAMILY.layouts(spec, case.extents)
    cells = allocate(layouts["in"], case.offset, 0).array
    fill(cells, spec.dtype, Content.RANDOM, case.seed)
    found = set()
    for one in made:
        if uncovered(one, case, runner.limits) is None:
            out = allocate(layouts["out"], 0, 0).array
            kernels[one].run(case.extents, {"in": cells, "out": out})
            found.add(out.tobytes())
    return found


def test_what_the_steps_of_a_line_use_up_is_refused() -> None:
    algorithm = FAMILY.algorithms["overlapped"]
    spec = StencilSpec("l", (1.0,) * 17, (17,))
    config = algorithm.config.from_tag("v4_w4_t24", "overlapped")
    assert illegal(algorithm, spec, config) == "24 steps use up 384 of the 512 cells of a warp"
    assert illegal(algorithm, spec, algorithm.config.from_tag("v4_w4_t16", "overlapped")) is None
    assert "two axes" in str(illegal(algorithm, FAMILY.catalogue[0], algorithm.config()))


def test_cells_next_to_an_end_are_of_one_lane() -> None:
    algorithm = FAMILY.algorithms["overlapped"]
    config = algorithm.config.from_tag("v2_w2_t4", "overlapped")
    eight = (1.0,) * 8 + (2.0,) + (1.0,) * 8
    assert illegal(algorithm, StencilSpec("l", eight, (17,), F32, "reflect"), config) is None
    reason = "a lane has 8 cells; 9 next to an end must be of one lane"
    assert illegal(algorithm, StencilSpec("l", eight, (17,), F32, "mirror"), config) == reason
    reason = "a lane has 4 cells; 8 next to an end must be of one lane"
    assert illegal(algorithm, StencilSpec("l", eight, (17,), F64, "reflect"), config) == reason
