"""`gen.gpu.cuda` calls the driver as it wants to be called: on a stand-in for it, in a process of its own.

`tests/host/test_cuda.py` builds the stand-in and runs this.
"""

from __future__ import annotations

import ctypes
import gc
import json
import threading
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as bindings

import gen
from bench import device_steps, shards, timeline
from gen.dtypes import F32, I32
from gen.errors import DeviceError, RunError
from gen.families.base import Operand, Plan
from gen.families.plans import Step
from gen.gpu import staging
from gen.gpu.cuda import CudaDevice, call, open_device
from gen.gpu.device import LEGACY_STREAM, PER_THREAD_STREAM, Device, Peer, Rows, bytes_at, cuda_of_driver, find_gpu
from gen.gpu.service import Service
from gen.gpu.timing import Clock, Protocol
from gen.toolchain.compiled import Compiled
from tests.fake_device import OnDevice
from tests.fake_family import fake_variant

NO_PEERS, TOO_MANY_PEERS = -1, -2  # of the stand-in
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
    try:
        ctypes.CDLL("libcuda.so.1").stub_set_ordinal(3)
        assert device.device_of(other.address) == 3  # cuda-bindings 13.3 says 0
    finally:
        ctypes.CDLL("libcuda.so.1").stub_set_ordinal(0)
    left = device.free_bytes()
    one.free()
    one.free()  # it is gone already
    assert device.free_bytes() == left + 1000
    with pytest.raises(DeviceError, match=f"does not hold {1 << 40} bytes more"):
        device.allocate(1 << 40)


@pytest.mark.parametrize(("cores", "pinned"), [(8, True), (8, False), (3, True)])
def test_large_arrays_go_through_pinned_memory_where_that_can_be(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, cores: int, pinned: bool
) -> None:
    monkeypatch.setattr(staging, "LEAST_BYTES", 1000)
    monkeypatch.setattr(staging.os, "sched_getaffinity", lambda _: set(range(cores)))  # type: ignore[attr-defined]
    stub, own = ctypes.CDLL("libcuda.so.1"), CudaDevice(0, NoCompiler())
    content = np.arange(3_000_001, dtype=np.int32)
    memory, back = own.allocate(content.nbytes), np.zeros_like(content)
    stub.stub_set_pinned(int(pinned))
    try:
        for count in (content.size, 100):
            own.upload(memory.address, content[:count], LEGACY_STREAM)
            own.download(back[:count], memory.address, LEGACY_STREAM)
            np.testing.assert_array_equal(back[:count], content[:count])
            back[:] = 0
    finally:
        stub.stub_set_pinned(1)
    assert (own._staging is not None) == (pinned and cores >= staging.LEAST_CORES)
    assert device._staging is None


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
    assert call("cuOccupancyMaxActiveBlocksPerMultiprocessor", code.function(""), 256, 0) == 8
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


def set_peers(value: int) -> None:
    ctypes.CDLL("libcuda.so.1").stub_set_peers(value)


def test_streams_of_our_own_wait_for_marks(device: CudaDevice) -> None:
    main, rim = device.stream(), device.stream(urgent=True)
    assert isinstance(device, Peer)
    assert device.identity_of(main.handle) != device.identity_of(rim.handle)
    for stream in (main.handle, LEGACY_STREAM):
        device.wait_for(rim.handle, device.mark(stream))
    del main, rim
    gc.collect()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_rows_are_copied_within_a_gpu_and_to_another(device: CudaDevice, elsewhere: bool) -> None:
    other = copy(device)
    other.index += elsewhere
    stream, (one, two) = device.stream(), (device.allocate(120), device.allocate(200))
    content = np.arange(120, dtype=np.uint8).reshape(2, 6, 10)
    device.upload(one.address, content)
    device.zero(two.address, 200)
    device.copy_to(other, Rows.of(one.address, 60), Rows.of(two.address + 7, 60), stream.handle)
    assert np.array_equal(bytes_at(device, two.address, 200)[7:67], content.reshape(-1)[:60])
    source, target = Rows(one.address + 12, 2, 3, 4, 10, 6), Rows(two.address + 3, 2, 3, 4, 20, 5)
    device.copy_to(other, source, target, stream.handle)
    found = bytes_at(device, two.address, 200).reshape(2, 5, 20)
    assert np.array_equal(found[:, :3, 3:7], content[:, 1:4, 2:6])
    device.copy_to(
        other, Rows(one.address, 2, 3, 0, 10, 6), Rows(two.address, 2, 3, 0, 20, 5), stream.handle
    )  # nothing


def test_rows_with_gaps_are_captured_where_one_gpu_reaches_the_other(device: CudaDevice) -> None:
    other, one, two = copy(device), device.allocate(100), device.allocate(200)
    other.index, content = 1, np.arange(100, dtype=np.uint8).reshape(10, 10)
    rows = Rows(one.address, 1, 10, 10, 10, 10), Rows(two.address, 1, 10, 10, 20, 10)
    device.upload(one.address, content)
    with pytest.raises(RunError, match="cuMemcpy3DPeerAsync"):
        device.capture(lambda stream: device.copy_to(other, *rows, stream))
    try:
        device._reached = {0, 1}
        graph = device.capture(lambda stream: device.copy_to(other, *rows, stream))
        device.zero(two.address, 200)
        graph.replay()
        assert np.array_equal(bytes_at(device, two.address, 200).reshape(10, 20)[:, :10], content)
        graph.close()
    finally:
        device._reached = {0}


def test_gpus_reach_each_other_if_the_driver_lets_them(device: CudaDevice) -> None:
    other = copy(device)
    other.index, other._reached = 1, {1}
    assert device.reach(device)
    try:
        for peers, reached in ((1, True), (NO_PEERS, False), (TOO_MANY_PEERS, False)):  # 1: enabled before
            set_peers(peers)
            assert device.reach(other) is reached
    finally:
        set_peers(0)
        device._reached = {0}


def test_a_stencil_on_ranks_that_share_a_gpu(device: CudaDevice) -> None:
    cells = np.random.default_rng(0).random((40, 50), np.float32)
    kernel = gen.load(gen.stencil(gen.star(2, 1)), devices=[device] * 3, shared=True, grid=(3, 1))
    array = kernel.scatter(cells)
    assert [shard.__dlpack_device__() for shard in array.shards] == [(2, 0)] * 3
    assert np.array_equal(array.gather(), cells)
    assert np.array_equal(kernel(array, steps=0).gather(), cells)
    for steps in (1, 5, 40):  # the stand-in's kernels compute nothing
        kernel(array, steps=steps).synchronize()
    whole = gen.load(gen.stencil(gen.star(2, 1)), devices=[0]).scatter(cells)
    held = OnDevice(cells, {"data": (whole.shards[0].address, False)})
    assert np.array_equal(kernel.scatter(held).gather(), cells)
    total = gen.load("reduction_sum_f32", devices=[device] * 3, shared=True)
    assert total(total.scatter(cells, [(7, 13, 20), (50,)])).numpy().shape == ()
    turn = gen.load("transpose_10_b32", devices=[device] * 3, shared=True)
    assert turn(turn.scatter(cells)).gather().shape == (50, 40)
    with pytest.raises(DeviceError, match="must be one of 1, counted from 0"):
        gen.load(gen.stencil(gen.star(2, 1)), devices=[0, 1])


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


def test_ranks_that_share_a_gpu_are_timed(device: CudaDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gen.runtime.load._loaders", {})
    monkeypatch.setattr("gen.runtime.load._open", lambda *_: device)
    file = tmp_path / "shards.json"
    words = ["--shape", "512x96", "--steps", "20", "--turns", "3", "--json", str(file)]
    monkeypatch.setattr("sys.argv", ["shards.py", *words])
    shards.main()  # the stand-in's kernels compute nothing: what is equal is not the question
    content = json.loads(file.read_text())
    assert (content["meta"]["device"], content["meta"]["seed"]) == ("Stub GPU", None)
    assert [row["ranks"] for row in content["rows"]] == [0, 1] + [2] * 6 + [4] * 5  # one more where another is chosen
    assert all(len(row["ms"]) == 3 and min(row["ms"]) > 0 for row in content["rows"])
    assert content["rows"][0]["overhead"] == 0


def test_what_streams_do_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline.WatchedDevice, "compile", lambda _, name, text: NoCompiler().compile(name, text, ""))
    device = timeline.WatchedDevice(0)
    kernel = gen.load("stencil_heat_de794a2b_f32", devices=[device] * 2, shared=True, steps_per_exchange=2)
    job = device_steps.Job.of(kernel, [np.zeros((512, 96), np.float32)])
    spans = timeline.timeline(kernel, lambda: job.run(16, 2, replays=False))
    kernels = {span.what for span in spans if span.kernel}
    assert {span.stream for span in spans} == {f"rank {n} {what}" for n in (0, 1) for what in ("inside", "rims")}
    assert all(span.begin_us <= span.end_us for span in spans)
    assert all(name.startswith("stencil_heat_de794a2b_f32__") for name in kernels)
    assert "768 bytes" in {span.what for span in spans}  # two rows
