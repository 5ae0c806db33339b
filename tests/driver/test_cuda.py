"""`gen.gpu.cuda` calls the driver as it wants to be called: on a stand-in for it, in a process of its own.

`tests/host/test_cuda.py` builds the stand-in and runs this.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as bindings

import gen
from gen.dtypes import F32, I32
from gen.errors import DeviceError, RunError
from gen.families.base import Operand, Plan
from gen.families.plans import Step
from gen.gpu.cuda import CudaDevice, call, open_device
from gen.gpu.device import LEGACY_STREAM, PER_THREAD_STREAM, Device, bytes_at, cuda_of_driver, find_gpu
from gen.gpu.service import Service
from gen.gpu.timing import Clock, Protocol
from gen.toolchain.compiled import Compiled
from tests.fake_family import fake_variant

ADD = Compiled("add", "sm_90", b"cubin", {})


class NoCompiler:
    """Takes every source."""

    version, options = "none", ""

    def compile(self, name: str, text: str, arch: str) -> Compiled:
        return Compiled(name, arch, b"cubin", {})


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return open_device(0, NoCompiler())


@pytest.fixture(autouse=True)
def nothing_is_left(device: CudaDevice) -> Iterator[None]:
    """What a test has allocated is given back with its objects."""
    gc.collect()
    before = device.free_bytes()
    yield
    gc.collect()
    assert device.free_bytes() == before


def add(threads: int, what: int, **changes: Any) -> Step:
    return replace(Step("", (1, 1, 1), (threads, 1, 1), ("to", (I32, what)), 0, (1, 1, 1), setup=False), **changes)


def zeros(device: CudaDevice, count: int = 32) -> Any:
    memory = device.allocate(4 * count)
    device.upload(memory.address, np.zeros(count, np.int32))
    return memory


def numbers(device: CudaDevice, memory: Any) -> list[int]:
    found = bytes_at(device, memory.address, memory.size).view(np.int32)
    assert (found == found[0]).all()
    return [int(found[0])]


def test_it_is_a_device_and_says_what_the_driver_says(device: CudaDevice) -> None:
    found = find_gpu()
    assert found is not None
    assert isinstance(device, Device)
    assert (device.name, device.limits.arch, device.limits.multiprocessors) == ("Stub GPU", "sm_90", 132)
    assert (found.name, found.uuid, cuda_of_driver()) == ("Stub GPU", "GPU-" + "-".join(
        "11" * count for count in (4, 2, 2, 2, 6)), "13.0")  # fmt: skip
    assert device.timer.name == "cuda-bindings"
    with pytest.raises(DeviceError, match="must be one of 1, counted from 0"):
        CudaDevice(1, None)


def test_memory_is_copied_on_streams_and_off_them(device: CudaDevice) -> None:
    content = np.arange(1000, dtype=np.uint8)
    one, other = device.allocate(1000), device.allocate(1000)
    device.upload(one.address, content)
    device.copy(one.address, other.address, 500)
    device.upload(other.address + 500, content[:500].copy(), LEGACY_STREAM)
    found = np.empty_like(content)
    device.download(found, other.address, LEGACY_STREAM)
    device.synchronize(LEGACY_STREAM)
    assert np.array_equal(found, np.tile(content[:500], 2))
    device.zero(one.address, 1000)
    device.synchronize()
    assert not bytes_at(device, one.address, 1000).any()
    assert device.device_of(other.address + 999) == 0
    assert device.device_of(int(content.__array_interface__["data"][0])) is None
    left = device.free_bytes()
    one.free()
    one.free()  # it is gone already
    assert device.free_bytes() == left + 1000
    with pytest.raises(DeviceError, match=f"does not hold {1 << 40} bytes more"):
        device.allocate(1 << 40)


def test_launches_and_what_is_refused(device: CudaDevice) -> None:
    memory, code = zeros(device), device.load(ADD)
    prepared = code.prepare({}, [add(32, 3), add(32, 4)])
    prepared.launch({"to": memory.address}, {}, LEGACY_STREAM)
    prepared.launch({"to": memory.address}, {}, 0)
    assert numbers(device, memory) == [14]
    with pytest.raises(RunError, match=r"add cannot be launched .*block \(2048, 1, 1\): invalid argument"):
        code.prepare({}, [add(2048, 1)]).launch({"to": memory.address}, {}, LEGACY_STREAM)
    with pytest.raises(RunError, match="addnone is no kernel of its module"):
        code.prepare({}, [add(1, 1, entry="none")])
    with pytest.raises(RunError, match="cannot be loaded"):
        device.load(replace(ADD, cubin=b"no code"))
    code.prepare({}, [add(32, 1, shared_bytes=1000)]).launch({"to": memory.address}, {}, LEGACY_STREAM)  # it opts in
    assert code.attributes("").registers == 14  # attribute 4
    assert code.resident_blocks("", 256) == 8
    pending = bindings.CUlimit.CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT
    before = call("cuCtxGetLimit", pending)
    code.prepare({}, [add(32, 1), add(32, 1, waiting=before + 1)])
    assert call("cuCtxGetLimit", pending) == before + 1
    code.prepare({}, [add(32, 1, waiting=7)])
    assert call("cuCtxGetLimit", pending) == before + 1
    assert numbers(device, memory) == [15]
    code.unload()


def test_operands_that_are_numbers_and_constants(device: CudaDevice) -> None:
    operands = (Operand("to", "inout", I32, ("n",)), Operand("what", "number", I32))
    made = fake_variant("adds", operands, Plan((), constants=(("weights", b"1234"),)))
    memory = zeros(device)
    prepared = device.load(ADD, made).prepare({}, [add(32, 0, arguments=("to", "what"))])
    for what in (5, 6):
        prepared.launch({"to": memory.address}, {"what": np.int32(what).tobytes()}, LEGACY_STREAM)
    assert numbers(device, memory) == [11]


def test_graphs(device: CudaDevice) -> None:
    memory, code, closed = zeros(device), device.load(ADD), list[bool]()
    prepared = code.prepare({}, [add(32, 3)] * 5)
    allocated: list[Any] = []

    def queue(stream: int) -> None:
        assert device.capture_of(stream) == 42
        allocated.append(device.allocate(100))
        device.upload(allocated[-1].address, np.ones(100, np.uint8))
        device.zero(allocated[-1].address, 100, None)  # not when the graph is replayed
        assert not bytes_at(device, allocated[-1].address, 100).any()
        device.upload(allocated[-1].address, np.ones(100, np.uint8))
        prepared.launch({"to": memory.address}, {}, stream)

    graph = device.capture(queue, lambda: closed.append(True))
    assert numbers(device, memory) == [0]
    assert graph.time_us() == pytest.approx(1000)
    graph.replay()
    assert numbers(device, memory) == [45]
    assert bytes_at(device, allocated[-1].address, 100).all()
    graph.close()
    assert closed == [True]

    def fail(_: int) -> None:
        raise RunError("The test", "fails")

    with pytest.raises(RunError, match="The test fails"):
        device.capture(fail)


def test_streams(device: CudaDevice) -> None:
    device.wait(LEGACY_STREAM, PER_THREAD_STREAM)
    assert device.capture_of(LEGACY_STREAM) == 0
    seen: list[Any] = []

    def look() -> None:
        seen.append(device.identity_of(PER_THREAD_STREAM))

    for _ in range(2):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    look()
    look()
    assert len({device.identity_of(LEGACY_STREAM), *seen}) == 4


def test_a_thread_that_has_no_context_gets_one_and_gives_it_back(device: CudaDevice) -> None:
    entered: list[bool] = []

    def work() -> None:
        for _ in range(2):
            entered.append(device.enter())
            entered.append(device.enter())
            zeros(device).free()
            device.leave(entered[-1])
            device.leave(entered[-2])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [True, False] * 2
    entered.clear()
    work()
    assert entered == [False, False] * 2  # it is this thread's already


def test_the_drivers_events_time(device: CudaDevice) -> None:
    service = Service(device)
    clock = Clock(device, service)
    memory = device.allocate(1000)
    assert clock.times(lambda: service.fill(memory.address, 1000, 7), 3, Protocol.COLD) == pytest.approx([2.0] * 3)
    graph = service.graph_of_empty(50)
    assert clock.times_in_graph(graph, 1) == pytest.approx([20.0])
    graph.close()
    service.random(memory.address, 1000, 1, F32)
    unrecorded, other = device.timer.event(), device.timer.event()
    with pytest.raises(RunError, match="cuEventElapsedTime"):
        other.us_since(unrecorded)


def test_a_kernel_is_loaded_and_called(device: CudaDevice) -> None:
    kernel = gen.load(gen.stencil(gen.star(2, 1)), device=device)
    array = np.zeros((40, 50), np.float32)
    assert kernel(array, steps=3).shape == (40, 50)
    total = gen.load("reduction_sum_f32", device=device)(np.zeros(1 << 21, np.float32))
    assert total.shape == ()
