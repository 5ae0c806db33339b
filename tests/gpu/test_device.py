"""The device layer: what it says of the GPU, and of launches that fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gen.dtypes import F32, I32
from gen.emit.render import render
from gen.errors import CompileError, DeviceError, RunError
from gen.families.names import find_variant
from gen.families.plans import Step
from gen.families.transpose import Transpose
from gen.gpu.buffers import Buffers
from gen.gpu.device import CudaDevice, open_device
from gen.gpu.kernel import CudaKernel
from gen.gpu.nvcc import Nvcc
from gen.gpu.open import Instruments
from gen.gpu.timing import GRAPH_LAUNCHES, Protocol
from gen.gpu.trial import Problem
from gen.toolchain.nvrtc import Nvrtc

ADD = 'extern "C" __global__ void add(int* to, int what) { to[threadIdx.x] += what; }'


def test_limits_are_those_of_a_real_gpu(device: CudaDevice) -> None:
    assert device.limits.multiprocessors >= 1
    assert device.limits.arch.startswith("sm_")
    assert device.limits.shared_bytes_per_block >= 48 * 1024
    assert device.l2_bytes > 0
    assert "CUDA" in device.driver
    assert open_device(0) is device


def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(DeviceError, match="99"):
        open_device(99)


def test_bytes_go_there_and_back(device: CudaDevice) -> None:
    content = np.random.default_rng(1).integers(0, 256, 1_000_003, np.uint8)
    memory = device.allocate(content.size)
    device.upload(memory.address, content)
    assert np.array_equal(device.download(memory.address, content.size), content)


def test_more_memory_than_there_is_is_refused(device: CudaDevice) -> None:
    with pytest.raises(DeviceError, match="does not hold"):
        device.allocate(1 << 50)


def test_a_launch_that_the_driver_refuses_is_named(device: CudaDevice, compiler: Nvrtc) -> None:
    module = device.module(compiler.compile("add", ADD, device.limits.arch).cubin)
    memory = device.allocate(4096)
    with pytest.raises(RunError, match="add cannot be launched"):
        module.function("add").launch((1, 1, 1), (2048, 1, 1), [("P", memory.address), ("i", 1)])
    with pytest.raises(RunError, match="subtract is no kernel"):
        module.function("subtract")
    device.synchronize()


def test_a_graph_carries_out_its_launches_every_time(device: CudaDevice, compiler: Nvrtc) -> None:
    cubin = compiler.compile("add", ADD, device.limits.arch).cubin
    memory = device.allocate(128)
    device.upload(memory.address, np.zeros(32, np.int32))
    step = Step("", (1, 1, 1), (32, 1, 1), ("to", (I32, 3)), 0, (1, 1, 1), False)
    graph = device.graph(cubin, [step], "add", {"to": memory.address}, 5)
    for _ in range(2):
        assert graph.time() > 0  # of the second of two
    graph.close()
    assert np.array_equal(device.download(memory.address, 128).view(np.int32), np.full(32, 60))


def test_nvcc_says_why_it_refuses_and_keeps_the_source(device: CudaDevice, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="identifier") as caught:
        Nvcc(tmp_path).compile("bad", "__global__ void f() { x; }", device.limits.arch)
    assert caught.value.source.is_file()


@pytest.mark.alone
def test_calibration_is_sane(instruments: Instruments) -> None:
    found = instruments.calibrate()
    assert 100 < found.copy < 20_000
    assert found.read > 0.8 * found.copy
    assert 0.5 < found.write / found.copy < 2
    assert 0.1 < found.empty_node_us < found.empty_pair_us < 50


@pytest.mark.alone
def test_a_flush_also_takes_what_a_kernel_asked_the_cache_to_keep(instruments: Instruments) -> None:
    device, service = instruments.device, instruments.service
    size = device.l2_bytes // 4
    source = device.allocate(size)
    service.random(source.address, size, 3, F32)
    check_flushed(instruments, source.address, size, lambda: service.claim(source.address, size))


@pytest.mark.alone
def test_a_flush_also_takes_what_a_kernel_wrote_and_asked_the_cache_to_keep(instruments: Instruments) -> None:
    device = instruments.device
    made = find_variant([Transpose()], "transpose_10_b32__interleave_cols_n3_tpb128_stel", {})
    size = device.l2_bytes // 4 // 48 * 48
    extents = {"rows": size // 12, "cols": 3, "in_pitch": 3, "out_pitch": size // 12}
    buffers = Buffers(device, instruments.service, Problem(made.family, made.spec, extents))
    compiled = instruments.compiler.compile(made.name, render(made), device.limits.arch)
    kernel = CudaKernel(made, compiled, device, device.limits)
    steps = kernel.steps(extents)
    written = buffers.addresses["out"]
    check_flushed(instruments, written, size, lambda: kernel.queue(steps, buffers.addresses))


def check_flushed(instruments: Instruments, address: int, size: int, keep: Callable[[], None]) -> None:
    """Reading what `keep` asks the cache to keep takes as long after a flush as reading what nobody asked to keep."""
    service, clock = instruments.service, instruments.clock

    def read() -> None:
        service.read(address, size)

    def median(protocol: Protocol, setup: Callable[[], None]) -> float:
        return float(np.median(clock.times(read, 31, protocol, setup)))

    median(Protocol.COLD, read)  # a device that was idle takes its time at first
    cold, kept, hot = median(Protocol.COLD, read), median(Protocol.COLD, keep), median(Protocol.HOT, read)
    assert hot < 0.8 * cold  # else nothing would show
    assert kept > 0.97 * cold


@pytest.mark.alone
def test_protocols_order_the_times_of_a_small_copy(instruments: Instruments) -> None:
    device, service, clock = instruments.device, instruments.service, instruments.clock
    size = device.l2_bytes // 8
    source, target = device.allocate(size), device.allocate(size)
    service.random(source.address, size, 3, F32)

    def launch() -> None:
        service.copy(source.address, target.address, size)

    median = {p: float(np.median(clock.times(launch, 31, p))) for p in Protocol}
    assert median[Protocol.HOT] < median[Protocol.COLD]
    assert median[Protocol.COLD] < median[Protocol.DIRTY] * 1.5
    assert GRAPH_LAUNCHES >= 50
