"""Variants on the GPU equal NumPy, whichever compiler made them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from bench.runner import CudaRunner
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.config import pairwise
from gen.families.names import base_variants, find_variant, named_variant, search_space, variant
from gen.gpu.cuda import CudaDevice
from gen.gpu.pycuda import Nvcc
from gen.paths import output_home
from gen.proof.cases import MULTIPROCESSOR_COUNTS, Case
from gen.proof.prover import check, load, prove, unsupported_extents
from gen.store.folder import known_specs
from gen.toolchain.nvrtc import Nvrtc
from tests.strategies import cases

OUT = tuple(sorted(output_home().glob("*.cu")))


def groups() -> list[tuple[Variant, ...]]:
    """For each algorithm of each catalogue: base, named variants and a cover of its space; other named ones."""
    found: list[tuple[Variant, ...]] = []
    for family in FAMILIES:
        named = [named_variant(family, one) for one in family.named]
        others = {one.spec.label: one.spec for one in named if one.spec not in family.catalogue}.values()
        found += [tuple({one.name: one for one in named if one.spec == spec}.values()) for spec in others]
        for spec in family.catalogue:
            fixed = [*base_variants(family, spec), *named]
            for algorithm in family.algorithms.values():
                cover = [variant(family, spec, algorithm, config) for config in pairwise(search_space(algorithm, spec))]
                made = [*cover, *(one for one in fixed if one.algorithm is algorithm and one.spec == spec)]
                if made:  # not every algorithm computes every spec
                    found.append(tuple({one.name: one for one in made}.values()))
    return found


@pytest.fixture(scope="session")
def runner(device: CudaDevice, compiler: Nvrtc) -> CudaRunner:
    return CudaRunner(device, compiler, render)


@pytest.mark.parametrize("group", groups(), ids=lambda group: f"{group[0].spec.label}-{group[0].algorithm.name}")
def test_awkward_sizes(group: tuple[Variant, ...], runner: CudaRunner) -> None:
    failures = [str(proof.failure) for proof in prove(runner, group) if proof.failure]
    assert not failures, failures[0]


@pytest.mark.parametrize("group", groups(), ids=lambda group: f"{group[0].spec.label}-{group[0].algorithm.name}")
def test_random_problems(group: tuple[Variant, ...], runner: CudaRunner) -> None:
    devices = {count: replace(runner.limits, multiprocessors=count) for count in MULTIPROCESSOR_COUNTS}
    kernels = {count: load(runner, group, limits) for count, limits in devices.items()}
    first = group[0]

    @settings(max_examples=settings().max_examples // 2)
    @given(cases(first.family, first.spec))
    def equals_numpy(case: Case) -> None:
        for made in group:
            if unsupported_extents(made, case, devices[case.multiprocessors]) is None:
                failure = check(kernels[case.multiprocessors][made], devices[case.multiprocessors], case)
                assert failure is None, str(failure)

    equals_numpy()


@pytest.mark.parametrize("path", OUT, ids=lambda path: path.stem)
def test_nvcc_makes_the_same_kernel_of_every_file_in_out(path: Path, device: CudaDevice, tmp_path: Path) -> None:
    made = find_variant(FAMILIES, path.stem, known_specs(FAMILIES, output_home()))
    runner = CudaRunner(device, Nvcc(tmp_path), lambda _: path.read_text(encoding="utf-8"))
    (proof,) = prove(runner, [made])
    assert proof.failure is None, str(proof.failure)
    assert proof.cases > 3  # `strided` takes only arrays with gaps
