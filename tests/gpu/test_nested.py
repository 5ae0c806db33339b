"""Kernels that launch kernels, which a GPU alone can prove: built, right, told apart from broken ones, and timed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.runner import CudaRunner
from gen.emit.render import render
from gen.errors import GenError
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import find_family, find_variant, search_space, variant
from gen.families.reduction.algorithms.literature import MOST_BLOCKS, NestedConfig
from gen.gpu.cuda import CudaDevice
from gen.gpu.device import bytes_at
from gen.gpu.pycuda import Nvcc
from gen.proof.cases import Case, Content
from gen.proof.prover import check, prove, unsupported_extents
from gen.report.ladder import listed, timed
from gen.toolchain.link import find_linker
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.device import IsolatedDevice
from gen.tune.gpu_session import GpuFactory
from tests.host.test_mutants import changed
from tests.mutants import nested
from tests.mutants.change import Mutant

REDUCTION = find_family(FAMILIES, "reduction")
SPEC = REDUCTION.catalogue[0]
VARIANTS = tuple(
    variant(REDUCTION, SPEC, "nested", config) for config in search_space(REDUCTION.algorithms["nested"], SPEC)
)
NAMES = ("gpuRecursiveReduce", "gpuRecursiveReduceNosync", "gpuRecursiveReduce2")


@pytest.fixture(scope="module")
def built(compiler: Nvrtc) -> Nvrtc:
    """NVRTC, where what it compiles can be linked."""
    try:
        find_linker()
        for name in NAMES:
            made = find_variant(FAMILIES, name, {})
            compiler.compile(made.name, render(made), "sm_90")
    except GenError as error:
        pytest.fail(f"Kernels that launch kernels cannot be built on this machine: {error}")
    return compiler


@pytest.mark.parametrize("made", VARIANTS, ids=lambda made: made.name)
def test_awkward_sizes(made: Variant, device: CudaDevice, built: Nvrtc) -> None:
    (proof,) = prove(CudaRunner(device, built, render), [made])
    assert proof.skipped is None
    assert proof.failure is None, str(proof.failure)
    assert proof.cases > 10


@pytest.mark.parametrize("name", NAMES)
def test_as_many_elements_as_it_takes(name: str, device: CudaDevice, built: Nvrtc) -> None:
    """Room is made for the launches of all blocks, which no program gets unasked."""
    made = find_variant(FAMILIES, name, {})
    assert isinstance(made.config, NestedConfig)
    (kernel,) = CudaRunner(device, built, render).load([made])
    for n in (2**20, 2**20, 2**22, 2**28 if name.endswith("2") else MOST_BLOCKS * made.config.threads_per_block):
        case = Case({"n": n})
        assert unsupported_extents(made, case, device.limits) is None
        failure = check(kernel, device.limits, case)
        assert failure is None, str(failure)


@pytest.mark.parametrize("change", nested.MUTANTS, ids=lambda change: change.name)
def test_a_broken_kernel_is_found(change: Mutant, device: CudaDevice, built: Nvrtc, tmp_path: Path) -> None:
    made = changed(change, tmp_path / "templates")
    seed = nested.MUTANTS.index(change)  # what another has left in memory is not what this one should write
    count = device.limits.multiprocessors
    cases = [Case({"n": n}, Content.INTEGERS, 1000 * seed + n, multiprocessors=count) for n in nested.SIZES]
    (proof,) = prove(CudaRunner(device, built, render), [made], cases)
    assert proof.failure is not None, change.name


def test_nvcc_builds_it_too(device: CudaDevice, tmp_path: Path) -> None:
    made = find_variant(FAMILIES, "gpuRecursiveReduce2", {})
    (proof,) = prove(CudaRunner(device, Nvcc(tmp_path), render), [made])
    assert proof.failure is None, str(proof.failure)
    assert proof.cases > 10


def test_the_ladder_times_them(built: Nvrtc, home: Path) -> None:
    """Each is proven at its problem by the process that drives the GPU, then timed in turns."""
    with IsolatedDevice(GpuFactory(0, built, home)) as device:
        rungs = [rung for rung in listed(REDUCTION, device.limits) if rung.name in NAMES]
        found = {rung.name: rung for rung in timed(device, built, rungs)}
    assert found.keys() == set(NAMES)
    for name, rung in found.items():
        assert rung.us is not None, f"{name} has no time: {rung.why_not}"


def test_a_launch_without_room_gives_nan_and_no_wrong_number(device: CudaDevice, built: Nvrtc) -> None:
    """Where nobody made room, and a child finds none, the sum says so. More room is right, too."""
    made = find_variant(FAMILIES, "gpuRecursiveReduce", {})
    (kernel,) = CudaRunner(device, built, render).load([made])
    extents = {"n": 2 * MOST_BLOCKS * 512}
    array, out = device.allocate(4 * extents["n"]), device.allocate(4)
    device.upload(array.address, np.ones(extents["n"], np.float32))
    planned = [replace(step, waiting=0) for step in kernel.steps(extents)]
    addresses = {**kernel.scratch(extents), "in": array.address, "out": out.address}
    kernel.launches(planned, extents, addresses)()
    device.synchronize()
    found = bytes_at(device, out.address, 4).view(np.float32)[0]
    assert np.isnan(found) or found == extents["n"], f"the sum of {extents['n']} ones is {found}"
