"""Stencil kernels on the CPU run: any weights, boundaries, steps and shapes, smaller than a tile and the halo too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.dtypes import F16, F32, F64
from gen.families.base import Limits, Variant
from gen.families.names import illegal, variant
from gen.families.stencil import StencilSpec
from gen.families.stencil.spec import BOUNDARIES
from gen.families.stencil.temporal import most_registers, registers
from gen.proof.cases import Case, Content, allocate, fill
from gen.proof.host import HostRunner
from gen.proof.prover import check, load, uncovered
from tests.stencils import FAMILY, SPECS, cases, legal, variants

VARIANTS = tuple(made for spec in SPECS for made in legal(spec))


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


@settings(max_examples=max(settings().max_examples // 5, 1))
@given(case=cases())
def test_all_variants_of_a_spec_give_the_same_bits(
    kernels: dict[Variant, Any], host_runner: HostRunner, case: Case
) -> None:
    for spec in SPECS:
        layouts = FAMILY.layouts(spec, case.extents)
        cells = allocate(layouts["in"], case.offset, 0).array
        fill(cells, spec.dtype, Content.RANDOM, case.seed)
        results = set()
        for made in VARIANTS:
            if made.spec == spec and uncovered(made, case, host_runner.limits) is None:
                out = allocate(layouts["out"], 0, 0).array
                kernels[made].run(case.extents, {"in": cells, "out": out})
                results.add(out.tobytes())
        assert len(results) == 1


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


LINES = tuple(
    variant(FAMILY, spec, algorithm, algorithm.config.from_tag(tag, algorithm.name))
    for spec in (
        *(StencilSpec("l", (1.0, -2.0, 0.5, 3.0), (4,), F32, boundary, 1.5, origin=-1) for boundary in BOUNDARIES),
        StencilSpec("w", tuple(range(-8, 9)), (17,), F64, "wrap"),
        StencilSpec("h", tuple(range(1, 10)), (9,), F16, "mirror"),
    )
    for algorithm, tag in (
        (FAMILY.algorithms["naive"], "x32_y2_u2"),
        (FAMILY.algorithms["tiled"], "x32_y8_u1_wldg"),
        (FAMILY.algorithms["stream"], "u2_x2_y2"),
    )
)


@settings(max_examples=max(settings().max_examples // 5, 1))
@given(
    extents=st.builds(
        lambda cols, steps: {"cols": cols, "steps": steps},
        st.one_of(st.integers(0, 70), st.integers(250, 2100)),
        st.sampled_from((1, 2, 0, 3)),
    ),
    content=st.sampled_from(Content),
    offset=st.integers(0, 3),
)
def test_lines_equal_numpy(
    lines: dict[Variant, Any], host_runner: HostRunner, extents: dict[str, int], content: Content, offset: int
) -> None:
    for made, kernel in lines.items():
        failure = check(kernel, host_runner.limits, Case(extents, content, 7, offset))
        assert failure is None, f"{made.name}: {failure}"
