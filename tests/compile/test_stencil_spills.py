"""What the register rules of the fused stencils let through does not spill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gen
from gen.dtypes import F16, F32, F64, DType
from gen.emit.render import render
from gen.families.base import Array, Variant
from gen.families.names import search_space, unsearched, variant
from gen.families.stencil import Boundary, Stencil, StencilSpec
from gen.families.stencil.algorithms.march import MarchConfig
from gen.families.stencil.algorithms.march import registers as registers_of_march
from gen.families.stencil.algorithms.temporal import TemporalConfig, most_registers, registers
from gen.toolchain.nvrtc import Nvrtc
from gen.toolchain.sass import disassembler, instructions

FAMILY = Stencil()
TEMPORAL = FAMILY.algorithms["temporal"]


def spec_of(form: str, radius: int, dtype: DType, boundary: Boundary) -> StencilSpec:
    """Weights that all differ."""
    high = 2 * radius + 1
    weights = [1.0 + place if form == "box" or radius in divmod(place, high) else 0.0 for place in range(high * high)]
    return StencilSpec(form, tuple(weights), (high, high), dtype, boundary)


def closest(spec: StencilSpec) -> Iterator[Variant]:
    """Of each number of warps the config that the rule gives the fewest registers beyond what it needs."""
    legal = [
        config for config in search_space(TEMPORAL, spec) if isinstance(config, TemporalConfig) and config.waves == 1
    ]
    for warps in {config.warps_per_sm for config in legal}:
        fit = [config for config in legal if config.warps_per_sm == warps]
        yield variant(FAMILY, spec, TEMPORAL, min(fit, key=lambda c: most_registers(c) - registers(spec, c)))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("form", "radius", "dtype", "boundary"),
    [("star", 1, F32, "reflect"), ("box", 1, F32, "constant")],
)
def test_a_variant_that_just_fits_spills_nothing(form: str, radius: int, dtype: DType, boundary: Boundary) -> None:
    compiler = Nvrtc(None)
    for made in closest(spec_of(form, radius, dtype, boundary)):
        compiled = compiler.compile(made.name, render(made), "sm_90")
        assert compiled.spill_bytes == 0, made.name


@pytest.mark.parametrize(
    ("weights", "dtype", "boundary", "tag"),
    [(9, F64, "mirror", "v8_w2_t8"), (3, F16, "constant", "v8_w8_t8")],
)
def test_a_segment_and_its_neighbours_spill_nothing(weights: int, dtype: DType, boundary: Boundary, tag: str) -> None:
    spec = StencilSpec("l", tuple(range(1, weights + 1)), (weights,), dtype, boundary)
    overlapped = FAMILY.algorithms["overlapped"]
    made = variant(FAMILY, spec, overlapped, overlapped.config.from_tag(tag, "overlapped"))
    compiled = Nvrtc(None).compile(made.name, render(made), "sm_90")
    assert compiled.spill_bytes == 0


@pytest.mark.parametrize(
    ("weights", "dtype", "boundary", "tag"),
    [
        (gen.star(3, 1), "float32", "constant", "w8_u2_n2_r2_s3"),
        (gen.star(3, 1), "float32", "constant", "w4_u4_n4_r2_s3"),
        (gen.box(3, 1), "float64", "constant", "w8_u2_n2_r2_s3"),
        (gen.star(3, 1), "float32", "frozen", "w8_u4_n1_r4_s3_t4"),
        (gen.star(3, 1), "float32", "frozen", "w12_u3_n1_r4_s3_t3"),
    ],
)
def test_sums_of_planes_spill_nothing(weights: Array, dtype: str, boundary: Boundary, tag: str) -> None:
    spec, march = gen.stencil(weights, dtype=dtype, boundary=boundary), FAMILY.algorithms["march"]
    config = march.config.from_tag(tag, "march")
    assert isinstance(config, MarchConfig)
    made = variant(FAMILY, spec, march, config)
    compiled = Nvrtc(None).compile(made.name, render(made), "sm_90")
    assert compiled.spill_bytes == 0
    assert compiled.resources[made.name].registers <= registers_of_march(spec, config)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_levels_shared_by_warps_spill_nothing(dtype: str) -> None:
    spec, pipelined = gen.stencil(gen.star(2, 1), dtype=dtype), FAMILY.algorithms["pipelined"]
    made = variant(FAMILY, spec, pipelined, pipelined.config())
    compiled = Nvrtc(None).compile(made.name, render(made), "sm_90")
    assert compiled.spill_bytes == 0


def test_cells_that_take_too_many_registers_are_unsearched() -> None:
    overlapped = FAMILY.algorithms["overlapped"]
    config = overlapped.config.from_tag("v16_w4_t4", "overlapped")
    halves = StencilSpec("l", (1.0, 2.0, 1.0), (3,), F16)
    reason = "a lane's 128 cells take 128 registers; more than 64 leave too few for the rest"
    assert unsearched(overlapped, halves, config) == reason
    assert unsearched(overlapped, StencilSpec("l", (1.0, 2.0, 1.0), (3,), F64), config) is None


@pytest.mark.parametrize(("algorithm", "tag"), [("stream", "u2_x1_y4"), ("shifted", "u4_l32_w4")])
def test_rows_with_many_neighbours_stay_in_registers(algorithm: str, tag: str) -> None:
    spec = StencilSpec("l", tuple(range(1, 18)), (17,))
    made = variant(FAMILY, spec, algorithm, FAMILY.algorithms[algorithm].config.from_tag(tag, algorithm))
    program = disassembler()
    assert program is not None, "nvdisasm is not installed: pip install nvidia-cuda-nvdisasm"
    found = instructions(Nvrtc(None).compile(made.name, render(made), "sm_90").cubin, program)[made.name]
    assert [name for name in found if name.startswith(("LDL", "STL"))] == []
