"""What gen says that kernels occupy is what the driver says, on the GPU at hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gen.emit.render import render
from gen.errors import CompileError
from gen.families import FAMILIES
from gen.families.base import Limits, Variant
from gen.families.config import pairwise
from gen.families.names import search_space, variant
from gen.gpu.cuda import CudaCode, CudaDevice, call
from gen.toolchain.compiled import compile_each
from gen.toolchain.nvrtc import Nvrtc
from gen.toolchain.occupancy import occupancy
from gen.toolchain.usage import largest, usage

DYNAMIC = """\
extern "C" __global__ void __launch_bounds__(256) staged(float* out) {
  extern __shared__ float tile[];
  __shared__ float own[33];
  tile[threadIdx.x] = out[threadIdx.x];
  own[threadIdx.x % 33] = tile[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[255 - threadIdx.x] + own[threadIdx.x % 32];
}
"""


def resident_blocks(code: CudaCode, entry: str, threads_per_block: int, dynamic_bytes: int) -> int:
    """How many blocks of a kernel a multiprocessor holds, as the driver says."""
    function = code.function(entry, dynamic_bytes)
    return int(call("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, threads_per_block, dynamic_bytes))


def covers() -> list[tuple[Variant, ...]]:
    """For each algorithm of each catalogue: a pairwise cover of its space, where it computes the spec at all."""
    return [
        tuple(variant(family, spec, algorithm, config) for config in pairwise(legal))
        for family in FAMILIES
        for spec in family.catalogue
        for algorithm in family.algorithms.values()
        if (legal := search_space(algorithm, spec))
    ]


@pytest.mark.parametrize("cover", covers(), ids=lambda cover: f"{cover[0].family.name}-{cover[0].algorithm.name}")
def test_registers_shared_memory_and_occupancy_are_the_drivers(
    cover: tuple[Variant, ...], device: CudaDevice, compiler: Nvrtc
) -> None:
    by_name = {made.name: made for made in cover}
    compared = 0
    texts = [(name, render(made)) for name, made in by_name.items()]
    for compiled in compile_each(compiler, texts, device.limits.arch):
        assert not isinstance(compiled, CompileError), str(compiled)
        made = by_name[compiled.name]
        codes = device.load(compiled, made), device.timer.load(compiled, made)
        for used in usage(made, compiled, device.limits, largest(made, device.limits)):
            ours = used.resources
            entry = used.kernel.removeprefix(made.name)
            for code in codes:
                takes = code.attributes(entry)
                assert takes.registers == ours.registers, used.kernel
                assert takes.static_shared_bytes == ours.static_shared_bytes, used.kernel
                # Without a stack nothing is spilled; the driver rounds what there is up.
                assert takes.local_bytes >= ours.stack_bytes, used.kernel
                assert (takes.local_bytes == 0) == (ours.stack_bytes == 0), used.kernel
            blocks = resident_blocks(codes[0], entry, used.threads_per_block, used.dynamic_shared_bytes)
            assert used.occupancy.blocks == blocks, f"{used.kernel}: {used}"
            compared += 1
    assert compared >= len(cover)


@pytest.mark.parametrize("threads", [1, 32, 96, 128, 256])
def test_dynamic_shared_memory_counts_as_the_driver_counts_it(
    threads: int, device: CudaDevice, compiler: Nvrtc
) -> None:
    compiled = compiler.compile("staged", DYNAMIC, device.limits.arch)
    used, code = compiled.resources["staged"], device.load(compiled)
    most = device.limits.shared_bytes_per_block - used.static_shared_bytes
    for dynamic in (0, 1, 1000, 4096, 16_384, 48 * 1024, 64 * 1024, 100_000, most):
        if dynamic <= most:
            ours = occupancy(
                device.limits, registers=used.registers, static_shared_bytes=used.static_shared_bytes,
                dynamic_shared_bytes=dynamic, threads_per_block=threads,
            )  # fmt: skip
            assert ours.blocks == resident_blocks(code, "", threads, dynamic), (threads, dynamic, ours)


def test_the_table_is_that_of_the_device(device: CudaDevice) -> None:
    """What the driver says of a multiprocessor is what the table has. Figures of the whole GPU may be another one's."""
    table = Limits.of(device.limits.arch)
    of_the_gpu = ("multiprocessors", "l2_bytes", "clock_hz", "memory_bytes_per_second", "needed_bytes_in_flight")
    assert replace(device.limits, **{name: getattr(table, name) for name in of_the_gpu}) == table
