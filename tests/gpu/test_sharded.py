"""Stencils on ranks that share a GPU, and on all GPUs of the machine: the bits of one GPU."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest

import gen
from gen.errors import DeviceError
from gen.families.base import Array
from gen.families.reduction import Reduction, ReductionSpec
from gen.families.stencil import Stencil
from gen.gpu.cuda import CudaDevice
from gen.gpu.device import Rows, bytes_at, find_gpu
from gen.runtime.processes import Processes
from gen.runtime.sharded import ShardedArray
from gen.runtime.sharded_transpose import Pieces
from gen.runtime.transport import NcclTransport
from tests import process
from tests.sharding import computed_on, drawn, right, same

HEAT = Stencil.catalogue[0]
SMALL = Pieces(paired=0, size=1 << 13, fewest=1, slots=2, least_row=1, least_copy=1)  # that copy engines move


def gpus() -> list[int]:
    found = [0]
    while True:
        try:
            find_gpu(len(found))
        except DeviceError:
            return found
        found.append(len(found))


@pytest.mark.parametrize("seed", range(8))
def test_ranks_that_share_the_gpu_have_the_bits_of_numpy(seed: int) -> None:
    problem = drawn(seed)
    assert same(computed_on([0] * prod(problem.grid), problem), right(problem))


@pytest.mark.parametrize("grid", [(2, 1), (4, 1), (2, 2), (1, 3)])
def test_ranks_that_share_the_gpu_have_the_bits_of_its_kernel(grid: tuple[int, int]) -> None:
    cells = np.random.default_rng(0).random((2050, 1999), np.float32)
    kernel = gen.load(HEAT, devices=[0] * prod(grid), shared=True, grid=grid)
    one = gen.load(HEAT, device=0)
    array = kernel.scatter(cells)
    for steps in (50, 1, 33):
        cells, array = one(cells, steps=steps), kernel(array, steps=steps)
    assert array.gather().tobytes() == cells.tobytes()


@pytest.mark.parametrize("per_exchange", [None, 1, 8])
def test_all_gpus_of_the_machine_have_the_bits_of_one(per_exchange: int | None) -> None:
    devices = gpus()
    if len(devices) == 1:
        pytest.skip("this machine has one GPU")
    cells = np.random.default_rng(0).random((4099, 515), np.float32)
    for spec in (HEAT, replace(HEAT, boundary=("wrap", "mirror"))):
        kernel = gen.load(spec, devices=devices, steps_per_exchange=per_exchange)
        found = kernel(kernel(kernel.scatter(cells), steps=50), steps=31).gather()
        assert found.tobytes() == gen.load(spec, device=0)(cells, steps=81).tobytes()


REDUCTIONS = (
    gen.reduction("sum"), gen.reduction("var", ddof=1), gen.reduction(("argmax", "max")), gen.reduction("mean", axis=0),
    gen.reduction("norm", axis=1), gen.reduction("mean_var", axis=-1, keepdims=True),
)  # fmt: skip


def results(devices: list[int], spec: ReductionSpec, cells: Array) -> list[Array]:
    """Those of two calls in a row on these devices."""
    kernel = gen.load(spec, devices=devices, shared=len(set(devices)) < len(devices))
    array = kernel.scatter(cells)
    calls = [kernel(array) for _ in range(3)]  # the last ones as graphs, where a rank has several units
    found = [one for call in calls for one in (call if isinstance(call, tuple) else (call,))]
    return [one.gather() if isinstance(one, ShardedArray) else one.numpy() for one in found]


@pytest.mark.parametrize("spec", REDUCTIONS, ids=lambda spec: spec.label)
def test_reductions_have_the_same_bits_for_any_number_of_ranks(spec: ReductionSpec) -> None:
    shapes = [(1 << 24,), (3001, 517)] if spec.axis is None else [(3001, 517)]
    for shape in shapes:
        cells = np.random.default_rng(0).random(shape, np.float32)
        found = [results([0] * ranks, spec, cells) for ranks in (1, 2, 3, 8)]
        if len(gpus()) > 1:
            found.append(results(gpus(), spec, cells))
        assert all(same(found[0], one) for one in found)
        expected = Reduction().oracle(spec, {"in": cells}, {})
        for one, (name, _, _) in zip(found[0], spec.results, strict=False):
            assert one.shape == expected[name].value.shape
            assert np.allclose(one, expected[name].value, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "complex128"])
def test_transposes_by_ranks_that_share_the_gpu_are_numpys(dtype: str) -> None:
    cells = np.arange(1001 * 1500).reshape(1001, 1500).astype(dtype)
    large = np.arange(768 * 1536).reshape(768, 1536).astype(dtype)  # whose blocks are paired
    pairs = gen.load(gen.permutation((1, 0), dtype), devices=[0] * 3, shared=True)
    pairs.pieces = replace(Pieces(), paired=1 << 14)
    assert np.array_equal(pairs(pairs.scatter(large)).gather(), large.T)
    kernel = gen.load(gen.permutation((1, 0), dtype), devices=[0] * 3, shared=True)
    array = kernel.scatter(cells, [(300, 1, 700), (1500,)])
    if dtype != "uint8":
        kernel.pieces = SMALL
    assert np.array_equal(kernel(array).gather(), cells.T)
    assert np.array_equal(kernel(kernel(array)).gather(), cells)


@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 0, 1), (0, 2, 1), (3, 1, 0, 2)])
def test_permutations_of_more_axes_by_ranks_and_gpus_are_numpys(axes: tuple[int, ...]) -> None:
    cells = np.arange(40 * 36 * 50 * 3).astype(np.float32).reshape(((40, 36, 150), (40, 36, 50, 3))[len(axes) - 3])
    for devices in {(0,) * 3, tuple(gpus())}:
        kernel = gen.load(gen.permutation(axes, "float32"), devices=devices, shared=len(set(devices)) < len(devices))
        for pieces in (Pieces(), SMALL):
            kernel.pieces = pieces
            assert np.array_equal(kernel(kernel.scatter(cells)).gather(), cells.transpose(axes))


def test_a_survey_on_ranks_and_gpus_has_the_bits_of_one() -> None:
    u, v, m = gen.fields("u v m")
    spec = gen.system({u: 2 * u - v + 0.125 * m * u.laplace(order=4), v: u}, sources=u, receivers=[u, v])
    random = np.random.default_rng(0)
    fields = [random.random((300, 200), np.float32) for _ in range(3)]
    points = [random.integers(0, (300, 200), (count, 2)) for count in (9, 5, 7)]
    wavelets = random.random((50, 9), np.float32)
    given = (points[0], wavelets, *points[1:])
    wanted = gen.load(spec, device=0)(*fields, *given)
    for devices in {(0,) * 3, tuple(gpus())}:
        kernel = gen.load(spec, devices=devices, shared=len(set(devices)) < len(devices))
        found = kernel(*(kernel.scatter(field) for field in fields), *given)
        assert same([one.gather() for one in found], list(wanted))


def test_all_gpus_of_the_machine_transpose() -> None:
    devices = gpus()
    if len(devices) == 1:
        pytest.skip("this machine has one GPU")
    for shape in ((2049, 1023), (2048, 4096)):  # the blocks of the latter are paired
        cells = np.random.default_rng(0).random(shape, np.float32)
        turn = gen.load(gen.permutation((1, 0), "float32"), devices=devices)
        for pieces in (Pieces(), Pieces(paired=1 << 16), SMALL):
            turn.pieces = pieces
            array, out = turn.scatter(cells), turn.empty(cells.T.shape, dtype="float32")
            for _ in range(5):  # a call takes the ring from the one before
                turn(array, out=out)
            assert np.array_equal(out.gather(), cells.T)


def test_processes_that_share_the_gpu_have_the_bits_of_one_and_end_when_one_of_them_is_killed() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        address = f"127.0.0.1:{found.getsockname()[1]}"
    command = [sys.executable, str(Path(process.__file__)), address]
    running = [
        subprocess.Popen([*command, str(rank), "3", "gpu"], stdout=subprocess.PIPE, text=True) for rank in range(3)
    ]
    try:
        assert {said(one)["digest"] for one in running} == {process.digest_of_one(0)}
        running[1].kill()
        for one in (running[0], running[2]):
            assert said(one)["error"] == "Process 1 must not die while others compute with it. Start all of them again"
    finally:
        for one in running:
            one.kill()
            one.communicate()


def said(one: subprocess.Popen[str]) -> dict[str, str]:
    assert one.stdout is not None
    found: dict[str, str] = json.loads(one.stdout.readline())
    return found


def test_nccl_copies_rows_with_gaps_from_stream_to_stream() -> None:
    pytest.importorskip("nccl")
    device = CudaDevice(0, None)
    entered = device.enter()
    try:
        transport = NcclTransport(Processes(0, {}), device)
        random = np.random.default_rng(0)
        sent, came = (random.integers(0, 256, (5, 9, 700), np.uint8) for _ in range(2))
        memory = device.allocate(sent.nbytes), device.allocate(came.nbytes)
        device.upload(memory[0].address, sent)
        device.upload(memory[1].address, came)
        source, target = (Rows(one.address, 5, 7, 650, 700, 9) for one in memory)
        streams = device.stream(), device.stream(urgent=True)
        transport.send(0, source, streams[0].handle)
        transport.receive(0, target, streams[1].handle)
        transport.flush()
        device.synchronize()
        came[:, :7, :650] = sent[:, :7, :650]
        assert np.array_equal(bytes_at(device, memory[1].address, came.nbytes).reshape(came.shape), came)
    finally:
        device.leave(entered)
