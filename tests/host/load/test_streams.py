"""Streams, graphs and threads: who waits for whom, and who owns which scratch memory."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

import gen
from gen.errors import (
    ArgumentError,
    RunError,
)
from gen.families.reduction import ReductionSpec
from gen.gpu.device import GRAPH_FROM
from gen.runtime.kernel import MOST_GRAPHS
from gen.runtime.workspace import MOST_STREAMS
from tests.fake_device import FakeDevice, OnDevice
from tests.host.load.given import SUM, arange, tuned, winner


def test_the_stream_is_the_callers(backend: FakeDevice) -> None:
    class Torch:
        cuda_stream = 0

    class CuPy:
        ptr = 77

    kernel = gen.load(SUM, device=backend)
    for stream in (None, Torch(), CuPy(), 5, 0):
        kernel(OnDevice(arange(5)), stream=stream)
    kernel(OnDevice(arange(5), {"stream": 2}))
    assert [one.stream for one in backend.launched] == [1, 1, 77, 5, 1, 2]
    for wrong in ("main", 1.0, True, -1, 2**64, object()):
        with pytest.raises(ArgumentError, match="stream must be a stream of torch or CuPy"):
            kernel(OnDevice(arange(5)), stream=wrong)


def test_streams_wait_for_those_that_produce_the_arrays(backend: FakeDevice) -> None:
    kernel = gen.load(SUM, device=backend)
    total = OnDevice(np.zeros((), np.float32), {"stream": 9})
    kernel(OnDevice(arange(5), {"stream": 7}), out=total)
    assert (backend.launched[-1].stream, backend.waits) == (7, [(7, 9)])
    kernel(OnDevice(arange(5), {"stream": 7}), stream=8)
    assert backend.waits[1:] == [(8, 7)]
    backend.captures[8] = 1
    kernel(OnDevice(arange(5), {"stream": 7}), stream=8)
    assert backend.waits[2:] == []


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    """A folder whose winners have partial results that grow with the problem, and a ticket."""
    grid = "reduction_sum_f32__grid_tpb512_u8_v16_bpm2"
    return tuned(tmp_path / "tickets", winner(grid), winner(grid, shape="2^15 to 2^20 elements"))


def scratch(backend: FakeDevice) -> tuple[int, int]:
    addresses = backend.launched[-1].addresses
    return addresses["partials"], addresses["ticket"]


def test_streams_never_share_scratch(backend: FakeDevice, tickets: Path) -> None:
    kernel, other = gen.load(SUM, device=backend, home=tickets), gen.load(SUM, device=backend, home=tickets)
    seen = {}
    for call, stream in ((kernel, 3), (kernel, 4), (other, 3)):
        call(OnDevice(arange(2**18)), stream=stream)
        seen[scratch(backend)] = stream
    assert len({address for pair in seen for address in pair}) == 6
    assert [(size, stream) for _, size, stream in backend.zeroed] == [(4, 3), (4, 4), (4, 3)]  # the tickets, once
    allocated = len(backend.allocated)
    kernel(OnDevice(arange(2**18)), out=OnDevice(np.zeros((), np.float32)), stream=3)
    assert seen[scratch(backend)] == 3
    assert len(backend.allocated) == allocated
    backend.identities[3] = "a new stream with an old handle"
    kernel(OnDevice(arange(2**18)), stream=3)
    assert scratch(backend) not in seen


def test_scratch_grows_with_the_problem(backend: FakeDevice, tickets: Path) -> None:
    kernel = gen.load(SUM, shape=2**28, device=backend, home=tickets)
    total = OnDevice(np.zeros((), np.float32))
    kernel(OnDevice(arange(2**18)), out=total)
    small = scratch(backend)
    kernel(OnDevice(arange(2**22)), out=total)
    large = scratch(backend)
    assert small[0] != large[0]
    assert small[1] == large[1]
    kernel(OnDevice(arange(2**18)), out=total)
    assert scratch(backend) == large


def test_a_graph_has_scratch_of_its_own(backend: FakeDevice, tickets: Path) -> None:
    kernel, total = gen.load(SUM, shape=2**28, device=backend, home=tickets), OnDevice(np.zeros((), np.float32))
    seen = []
    for capture in (0, 1, 1, 2, 0):
        backend.captures[6] = capture
        kernel(OnDevice(arange(2**18)), out=total, stream=6)
        seen.append(scratch(backend))
    assert seen[1] == seen[2]
    assert seen[0] == seen[4]
    assert len({address for pair in seen for address in pair}) == 6
    assert [stream for _, _, stream in backend.zeroed] == [6, None, None]  # a graph has no node for it
    backend.captures[6] = 1
    kernel(OnDevice(arange(2**22)), out=total, stream=6)
    (graph,) = [buffers for key, buffers in kernel._workspace._graphs.items() if key[0] == 1]
    assert [held.address for held in graph._kept] == [seen[1][0]]  # what the graph knows stays


SMALL_CALLS = [
    (gen.reduction("sum"), (2**15,)), (gen.reduction("argmax", "uint8"), (5000,)), (gen.reduction("stats"), (16_000,)),
    (gen.reduction("var", "float16", ddof=1), (1000,)), (gen.reduction("any", "bool", keepdims=True), (7, 9)),
    (gen.reduction("max", "i16", axis=-1), (40, 1000)), (gen.reduction("sum", axis=0), (64, 4)),
    (gen.reduction("mean", "float16", axis=1), (4, 8, 32)), (gen.reduction("prod", "i32", axis=()), (30, 30)),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "shape"), SMALL_CALLS, ids=lambda part: getattr(part, "label", ""))
def test_a_small_reduction_is_one_launch_and_nothing_else(
    spec: ReductionSpec, shape: tuple[int, ...], backend: FakeDevice
) -> None:
    kernel, array = gen.load(spec, device=backend), OnDevice(np.ones(shape, spec.dtype.numpy))
    results = [np.zeros(np.zeros(shape).sum(axis=spec.axis, keepdims=spec.keepdims).shape, dtype.numpy)
               for _, _, dtype in spec.results]  # fmt: skip
    out = tuple(OnDevice(result) for result in results)
    for capture in (0, 1):  # on a stream, then as part of a graph
        backend.captures[6] = capture
        kernel(array, out=out if len(out) > 1 else out[0], stream=6)
        assert len(backend.launched[-1].steps) == 1
    assert len(backend.launched) == 2
    assert (backend.allocated, backend.zeroed) == ([], [])


def test_numpy_arrays_are_no_part_of_a_graph(backend: FakeDevice) -> None:
    backend.captures[6] = 1
    with pytest.raises(ArgumentError, match="stream must not be capturing a graph"):
        gen.load(SUM, device=backend)(arange(5), stream=6)


def test_scratch_is_given_up_after_a_failed_launch(backend: FakeDevice, tickets: Path) -> None:
    kernel, total = gen.load(SUM, device=backend, home=tickets), OnDevice(np.zeros((), np.float32))
    kernel(OnDevice(arange(2**18)), out=total)
    before = len(backend.zeroed)
    backend.failing = 1
    with pytest.raises(RunError, match="cannot be launched"):
        kernel(OnDevice(arange(2**18)), out=total)
    kernel(OnDevice(arange(2**18)), out=total)
    assert len(backend.zeroed) == before + 1


def test_scratch_of_many_streams_is_bounded(backend: FakeDevice) -> None:
    kernel, total = gen.load(SUM, device=backend), OnDevice(np.zeros((), np.float32))
    for stream in range(3, 3 + 2 * MOST_STREAMS):
        kernel(OnDevice(arange(2**16)), out=total, stream=stream)
    assert len(kernel._workspace._streams) == MOST_STREAMS


def test_threads_share_a_kernel(computing: FakeDevice) -> None:
    kernel = gen.load(SUM, device=computing)
    right: list[bool] = []

    def work(stream: int) -> None:
        right.extend(kernel(np.full(n, stream, np.float32), stream=stream) == n * stream for n in range(1, 40))

    threads = [threading.Thread(target=work, args=(stream,)) for stream in (3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 3 * 39


def test_a_repeated_call_prepares_nothing(backend: FakeDevice) -> None:
    kernel, array, total = gen.load(SUM, device=backend), arange(64), OnDevice(np.zeros((), np.float32))
    for _ in range(3):
        kernel(OnDevice(array), out=total)
    assert len(backend.prepared) == len(backend.loaded) == 1
    kernel(OnDevice(array[:8]), out=total)
    assert (len(backend.prepared), len(backend.loaded)) == (2, 1)


MANY_LAUNCHES = gen.stencil(gen.star(3, 1), boundary="reflect")  # no launch fuses its steps


def test_a_call_of_many_launches_becomes_a_graph_when_it_is_repeated(backend: FakeDevice) -> None:
    kernel = gen.load(MANY_LAUNCHES, device=backend)
    image, out, other = (OnDevice(np.zeros((4, 100, 500), np.float32)) for _ in range(3))
    for _ in range(3):
        kernel(image, out=out, steps=100, stream=5)
    assert len(backend.launched) == 1
    assert len(backend.launched[0].steps) >= GRAPH_FROM
    (graph,) = backend.graphs
    assert graph.replayed == [5, 5]
    kernel(image, out=other, steps=100, stream=5)  # other addresses
    kernel(image, out=out, steps=1, stream=5)  # a single launch
    kernel(image, out=out, steps=1, stream=5)
    backend.captures[5] = 1
    kernel(image, out=out, steps=100, stream=5)  # becomes part of somebody else's
    assert len(backend.launched) == 5
    assert graph.replayed == [5, 5]
    del kernel
    gc.collect()
    assert backend.graphs == []


def test_few_graphs_are_kept(backend: FakeDevice) -> None:
    kernel, image = gen.load(MANY_LAUNCHES, device=backend), OnDevice(np.zeros((4, 100, 500), np.float32))
    memory = np.zeros((2 * MOST_GRAPHS, 4, 100, 504), np.float32)[..., :500]  # all alike in how they are aligned
    outs = [OnDevice(array) for array in memory]
    for out in outs * 3:
        kernel(image, out=out, steps=100)
    assert len(backend.graphs) == MOST_GRAPHS
    assert len(backend.launched) == len(outs) + 2 * MOST_GRAPHS
