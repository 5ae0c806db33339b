"""The device layer: what it says of the GPU, and of launches that fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gen.dtypes import F32, I32
from gen.emit.render import render
from gen.errors import CompileError, DeviceError, RunError
from gen.families.names import find_variant
from gen.families.plans import Step
from gen.families.transpose import Transpose
from gen.gpu.cuda import CudaDevice, CudaMemory, DriverTimer
from gen.gpu.device import LEGACY_STREAM, bytes_at
from gen.gpu.kernel import CudaKernel
from gen.gpu.pycuda import Nvcc
from gen.gpu.service import GATE_SECONDS, Service
from gen.gpu.timing import GRAPH_LAUNCHES, Instruments, Protocol
from gen.store.trials import Problem
from gen.toolchain.compiled import Compiled
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.gpu_session import Buffers

ADD = 'extern "C" __global__ void add(int* to, int what) { to[threadIdx.x] += what; }'


@pytest.fixture(params=["PyCUDA", "cuda-bindings"])
def timed(request: pytest.FixtureRequest, device: CudaDevice) -> Iterator[CudaDevice]:
    """The GPU with each timer."""
    usual = device.timer
    assert usual.name == "PyCUDA"
    if request.param == "cuda-bindings":
        device.timer = DriverTimer(device)
    yield device
    device.timer = usual


def add(blocks: int, threads: int, what: int) -> Step:
    return Step("", (blocks, 1, 1), (threads, 1, 1), ("to", (I32, what)), 0, (1, 1, 1), setup=False)


def zeros(device: CudaDevice, count: int) -> CudaMemory:
    memory = device.allocate(4 * count)
    device.upload(memory.address, np.zeros(count, np.int32))
    return memory


def test_limits_are_those_of_a_real_gpu(device: CudaDevice) -> None:
    assert device.limits.multiprocessors >= 1
    assert device.limits.arch.startswith("sm_")
    assert device.limits.shared_bytes_per_block >= 48 * 1024
    assert device.limits.l2_bytes > 0
    assert "CUDA" in device.driver


def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(DeviceError, match="99"):
        CudaDevice(99, None)


def test_bytes_go_there_and_back(device: CudaDevice) -> None:
    content = np.random.default_rng(1).integers(0, 256, 1_000_003, np.uint8)
    memory, other = device.allocate(content.size), device.allocate(content.size)
    device.upload(memory.address, content)
    assert np.array_equal(bytes_at(device, memory.address, content.size), content)
    device.upload(other.address, content[::-1].copy(), LEGACY_STREAM)
    device.copy(memory.address, other.address, content.size // 2)
    device.zero(memory.address, content.size)
    found = np.empty_like(content)
    device.download(found, other.address, LEGACY_STREAM)
    device.synchronize(LEGACY_STREAM)
    half = content.size // 2
    assert np.array_equal(found, np.concatenate((content[:half], content[::-1][half:])))
    assert not bytes_at(device, memory.address, content.size).any()


def test_memory_that_is_given_back_is_there_for_others(device: CudaDevice) -> None:
    before = device.free_bytes()
    memory = device.allocate(1 << 28)
    assert device.free_bytes() <= before - (1 << 28)
    memory.free()
    memory.free()  # it is gone already
    assert device.free_bytes() == before


def test_more_memory_than_there_is_is_refused(device: CudaDevice) -> None:
    with pytest.raises(DeviceError, match="does not hold"):
        device.allocate(1 << 50)


def test_a_launch_that_the_driver_refuses_is_named(timed: CudaDevice, compiler: Nvrtc) -> None:
    compiled = compiler.compile("add", ADD, timed.limits.arch)
    memory = zeros(timed, 1024)
    for code in (timed.load(compiled), timed.timer.load(compiled)):
        with pytest.raises(RunError, match=r"add cannot be launched .*block \(2048, 1, 1\)"):
            code.prepare({}, [add(1, 2048, 1)]).launch({"to": memory.address}, {}, LEGACY_STREAM)
        with pytest.raises(RunError, match="add_twice is no kernel"):
            code.prepare({}, [replace(add(1, 32, 1), entry="_twice")])
    with pytest.raises(RunError, match="cannot be loaded"):
        timed.timer.load(Compiled("none", timed.limits.arch, b"no machine code", {}))
    timed.synchronize()
    assert not bytes_at(timed, memory.address, 4096).any()


def test_launches_are_carried_out_in_order_and_take_their_time(timed: CudaDevice, compiler: Nvrtc) -> None:
    compiled = compiler.compile("add", ADD, timed.limits.arch)
    memory = zeros(timed, 32)
    prepared = timed.timer.load(compiled).prepare({}, [add(1, 32, 3), add(1, 16, 4)])
    before, after = timed.timer.event(), timed.timer.event()
    before.record()
    for _ in range(2):
        prepared.launch({"to": memory.address}, {}, LEGACY_STREAM)
    after.record()
    timed.synchronize()
    assert 0 < after.us_since(before) < 1e6
    found = bytes_at(timed, memory.address, 128).view(np.int32)
    assert np.array_equal(found, np.repeat([14, 6], 16))
    takes = timed.timer.load(compiled).attributes("")
    assert (takes.registers > 0, takes.local_bytes, takes.static_shared_bytes) == (True, 0, 0)


@pytest.mark.alone
def test_both_timers_see_the_same_times(instruments: Instruments) -> None:
    """Of a copy that is long enough, and behind cold caches."""
    device, service, clock = instruments.device, instruments.service, instruments.clock
    size, usual = 1 << 28, device.timer
    source, target = device.allocate(size), device.allocate(size)
    service.random(source.address, size, 3, F32)
    times: dict[str, float] = {}
    for timer in (usual, DriverTimer(device), usual, DriverTimer(device)):
        device.timer = timer
        other = Service(device)
        clock.times(lambda: other.copy(source.address, target.address, size), 10)  # noqa: B023
        times[timer.name] = float(np.median(clock.times(lambda: other.copy(source.address, target.address, size), 31)))  # noqa: B023
    device.timer = usual
    assert times.keys() == {"PyCUDA", "cuda-bindings"}
    assert times["cuda-bindings"] == pytest.approx(times["PyCUDA"], rel=0.02)


def test_a_graph_carries_out_its_launches_every_time(device: CudaDevice, compiler: Nvrtc) -> None:
    code = device.load(compiler.compile("add", ADD, device.limits.arch))
    memory, closed = zeros(device, 32), list[bool]()
    prepared = code.prepare({}, [add(1, 32, 3)] * 5)
    graph = device.capture(
        lambda stream: prepared.launch({"to": memory.address}, {}, stream), lambda: closed.append(True)
    )
    assert not bytes_at(device, memory.address, 128).any()  # captured, not carried out
    for _ in range(2):
        assert graph.time_us() > 0  # of the second of two
    graph.replay()
    device.synchronize()
    graph.close()
    assert closed == [True]
    assert np.array_equal(bytes_at(device, memory.address, 128).view(np.int32), np.full(32, 75))


def test_what_fails_while_it_is_captured_is_reported_and_leaves_the_device_whole(device: CudaDevice) -> None:
    def queue(_: int) -> None:
        raise RunError("The test", "fails here")

    with pytest.raises(RunError, match="fails here"):
        device.capture(queue)
    memory = zeros(device, 4)
    assert not bytes_at(device, memory.address, 16).any()


def test_a_kernel_reads_a_flag_while_it_runs(device: CudaDevice, instruments: Instruments) -> None:
    flag = device.flag()
    begun = time.monotonic()
    instruments.service.gate(flag)
    flag.set(1)
    device.synchronize()
    assert time.monotonic() - begun < GATE_SECONDS


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
    size = device.limits.l2_bytes // 4
    source = device.allocate(size)
    service.random(source.address, size, 3, F32)
    check_flushed(instruments, source.address, size, lambda: service.claim(source.address, size))


@pytest.mark.alone
def test_a_flush_also_takes_what_a_kernel_wrote_and_asked_the_cache_to_keep(instruments: Instruments) -> None:
    device = instruments.device
    made = find_variant([Transpose()], "transpose_10_b32__interleave_cols_n3_tpb128_stel", {})
    size = device.limits.l2_bytes // 4 // 48 * 48
    extents = {"rows": size // 12, "cols": 3, "in_pitch": 3, "out_pitch": size // 12}
    buffers = Buffers(device, instruments.service, Problem(made.family, made.spec, extents))
    compiled = device.compile(made.name, render(made))
    kernel = CudaKernel(made, compiled, device, device.limits)
    keep = kernel.launches(kernel.steps(extents), extents, buffers.addresses)
    check_flushed(instruments, buffers.addresses["out"], size, keep)


def check_flushed(instruments: Instruments, address: int, size: int, keep: Callable[[], None]) -> None:
    """Reading what `keep` asks the cache to keep takes as long after a flush as reading what nobody asked to keep."""
    service, clock = instruments.service, instruments.clock

    def read() -> None:
        service.read(address, size)

    ways = ((Protocol.COLD, read), (Protocol.COLD, keep), (Protocol.HOT, read))
    turns = [[clock.times(read, 9, protocol, setup) for protocol, setup in ways] for _ in range(12)]
    # In turns, as the clock of the GPU moves meanwhile; the first two are left out, as an idle GPU takes its time.
    cold, kept, hot = np.median(np.array(turns)[2:], axis=(0, 2))
    assert hot < 0.8 * cold  # else nothing would show
    assert kept > 0.97 * cold


@pytest.mark.alone
def test_protocols_order_the_times_of_a_small_copy(instruments: Instruments) -> None:
    device, service, clock = instruments.device, instruments.service, instruments.clock
    size = device.limits.l2_bytes // 8
    source, target = device.allocate(size), device.allocate(size)
    service.random(source.address, size, 3, F32)

    def launch() -> None:
        service.copy(source.address, target.address, size)

    median = {p: float(np.median(clock.times(launch, 31, p))) for p in Protocol}
    assert median[Protocol.HOT] < median[Protocol.COLD]
    assert median[Protocol.COLD] < median[Protocol.DIRTY] * 1.5
    assert GRAPH_LAUNCHES >= 50
