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
from gen.families.stencil import Stencil, StencilSpec
from gen.families.stencil.spec import BOUNDARIES
from gen.families.stencil.temporal import most_registers, registers
from gen.proof.cases import Case, Content, allocate, fill
from gen.proof.host import HostRunner
from gen.proof.prover import check, load, uncovered

FAMILY = Stencil()
SIXTEENTHS = st.integers(-32, 32).map(lambda n: n / 16)

# One of each kind, each in many specs: star and box, radius 1 to 4, asymmetric, even extents, every boundary.
SPECS = (
    StencilSpec("a", tuple(range(1, 10)), boundary="reflect"),
    StencilSpec("b", (0, 1, 0, 2, -4, 3, 0, 5, 0), dtype=F16, boundary=("mirror", "wrap")),
    StencilSpec("c", (1, 0, 0, 0, 0.5, 0, 0, 0, -1), dtype=F64, boundary=("wrap", "nearest")),
    StencilSpec("d", tuple(range(-4, 4)), (2, 4), boundary=("constant", "mirror"), cval=2.5, origin=(-1, 1)),
    StencilSpec("e", tuple(x - 12.0 for x in range(25)), (5, 5), boundary=("nearest", "frozen")),
    StencilSpec("f", tuple(x / 8 if x % 9 == 4 or x // 9 == 4 else 0 for x in range(81)), (9, 9), boundary="frozen"),
    StencilSpec("g", tuple(range(1, 10)), boundary=("wrap", "frozen")),
    StencilSpec("h", tuple(range(1, 10)), boundary=("frozen", "wrap")),
    StencilSpec("i", tuple(x - 16.0 for x in range(33)), (11, 3), boundary=("reflect", "constant")),  # loads in turns
)
TAGS = {
    "naive": ("x32_y2_u2", "x32_y8_u1_wldg"),
    "tiled": ("x32_y4_u4", "x64_y1_u1_wconst"),
    "queued": ("x32_u16", "x64_u64_wgmem"),
    "stream": ("u4_x2_y2", "u2_x1_y2_stcs", "u8_x1_y2"),
    "temporal": ("v1_r8_n2_t4", "v2_r8_n1_t2"),
}


def legal(spec: StencilSpec) -> list[Variant]:
    found = []
    for name, tags in TAGS.items():
        algorithm = FAMILY.algorithms[name]
        for tag in tags:
            config = algorithm.config.from_tag(tag, name)
            if illegal(algorithm, spec, config) is None:
                found.append(variant(FAMILY, spec, algorithm, config))
    return found


VARIANTS = tuple(made for spec in SPECS for made in legal(spec))


@pytest.fixture(scope="module")
def kernels(host_runner: HostRunner) -> dict[Variant, Any]:
    return dict(load(host_runner, VARIANTS, host_runner.limits))


@pytest.fixture(scope="module")
def lines(host_runner: HostRunner) -> dict[Variant, Any]:
    return dict(load(host_runner, LINES, host_runner.limits))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows, cols = (
        draw(st.integers(0, 40)),
        draw(st.one_of(st.integers(0, 40), st.integers(100, 290), st.integers(480, 560))),
    )
    pitched = rows > 1 and cols > 0
    gaps = [draw(st.sampled_from((0, 1, 4, 7))) if pitched else 0 for _ in range(2)]
    sizes = {"rows": rows, "cols": cols, "in_pitch": cols + gaps[0], "out_pitch": cols + gaps[1]}
    steps = draw(st.sampled_from((1, 0, 2, 3, 4, 5, 7, 9)))
    return Case(
        {**sizes, "steps": steps}, draw(st.sampled_from(Content)), draw(st.integers(0, 99)), draw(st.integers(0, 3))
    )


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


@st.composite
def variants(draw: st.DrawFn) -> Variant:
    """Any weights of radius 1 to 3 and any boundaries, by any algorithm that takes them."""
    radius = draw(st.sampled_from((1, 1, 2, 3)))
    shape = (2 * radius + 1, 2 * radius + 1)
    star = draw(st.booleans())
    weights = [
        draw(SIXTEENTHS) if not star or radius in divmod(place, shape[1]) else 0.0
        for place in range(shape[0] * shape[1])
    ]
    boundary = (draw(st.sampled_from(BOUNDARIES)), draw(st.sampled_from(BOUNDARIES)))
    dtype = draw(st.sampled_from((F32, F16, F64)))
    spec = StencilSpec("any", tuple(weights), shape, dtype, boundary, draw(st.sampled_from((0.0, 3.0))))
    return draw(st.sampled_from(legal(spec)))


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
