"""Stencils on the GPU: any weights, boundaries, steps and shapes equal NumPy, and every variant gives the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.runner import CudaRunner, ProvableKernel
from gen.emit.render import render
from gen.families.base import Variant
from gen.families.stencil import StencilSpec
from gen.gpu.cuda import CudaDevice
from gen.proof.cases import Case, Content, allocate, edge_cases, fill
from gen.proof.prover import check, unsupported_extents
from gen.toolchain.farm import CompileFarm
from gen.toolchain.nvrtc import Nvrtc
from tests.stencils import FAMILY, LINE_SPECS, SPECS, cases, legal, line_cases, overlapped, several, variants

VARIANTS = tuple(made for spec in SPECS for made in legal(spec))
LINES = tuple(made for spec in LINE_SPECS for made in legal(spec))


@pytest.fixture(scope="module")
def runner(device: CudaDevice, compiler: Nvrtc) -> CudaRunner:
    return CudaRunner(device, compiler, render)


def loaded(runner: CudaRunner, compiler: Nvrtc, made: Sequence[Variant]) -> dict[Variant, ProvableKernel]:
    """Compiled on all cores, then loaded."""
    with CompileFarm(compiler) as farm:
        list(farm.compile_many(((one.name, render(one)) for one in made), runner.limits.arch))
    return dict(zip(made, runner.load(made), strict=True))


@pytest.fixture(scope="module")
def kernels(runner: CudaRunner, compiler: Nvrtc) -> dict[Variant, ProvableKernel]:
    return loaded(runner, compiler, VARIANTS)


@pytest.fixture(scope="module")
def lines(runner: CudaRunner, compiler: Nvrtc) -> dict[Variant, ProvableKernel]:
    return loaded(runner, compiler, LINES)


@settings(max_examples=max(settings().max_examples // 10, 1))
@given(made=several(variants(), 8), each=st.lists(cases(), min_size=3, max_size=3))
def test_any_spec_equals_numpy(runner: CudaRunner, compiler: Nvrtc, made: list[Variant], each: list[Case]) -> None:
    ready = loaded(runner, compiler, made)
    for one in made:
        for case in (*edge_cases(one), *each):
            if unsupported_extents(one, case, runner.limits) is None:
                failure = check(ready[one], runner.limits, case)
                assert failure is None, str(failure)


@settings(max_examples=max(settings().max_examples // 10, 1))
@given(
    made=several(overlapped(), 8),
    each=st.lists(line_cases(), min_size=3, max_size=3),
)
def test_any_line_equals_numpy(runner: CudaRunner, compiler: Nvrtc, made: list[Variant], each: list[Case]) -> None:
    ready = loaded(runner, compiler, made)
    for one in made:
        for case in (*edge_cases(one), *each):
            failure = check(ready[one], runner.limits, case)
            assert failure is None, str(failure)


@settings(max_examples=max(settings().max_examples // 2, 1))
@given(case=cases())
def test_all_variants_of_a_spec_give_the_same_bits(
    runner: CudaRunner, kernels: dict[Variant, ProvableKernel], case: Case
) -> None:
    for spec in SPECS:
        assert same_bits(runner, [kernels[made] for made in VARIANTS if made.spec == spec], spec, case)


@settings(max_examples=max(settings().max_examples // 2, 1))
@given(case=line_cases())
def test_all_variants_of_a_line_give_the_same_bits(
    runner: CudaRunner, lines: dict[Variant, ProvableKernel], case: Case
) -> None:
    for spec in LINE_SPECS:
        assert same_bits(runner, [lines[made] for made in LINES if made.spec == spec], spec, case)


def same_bits(runner: CudaRunner, kernels: Sequence[ProvableKernel], spec: StencilSpec, case: Case) -> bool:
    """Whether all variants of one spec that take the case write the same."""
    layouts = FAMILY.layouts(spec, case.extents)
    cells = allocate(layouts["in"], case.offset, 0).array
    fill(cells, spec.dtype, Content.RANDOM, case.seed)
    results = set()
    for kernel in kernels:
        if unsupported_extents(kernel.variant, case, runner.limits) is None:
            out = allocate(layouts["out"], 0, 0).array
            kernel.run(case.extents, {"in": cells, "out": out})
            results.add(out.tobytes())
    return len(results) == 1
