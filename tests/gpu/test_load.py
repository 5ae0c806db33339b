"""Kernels loaded by `gen.load` and called with arrays of NumPy, torch, CuPy and others, on the GPU."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gen
from gen.errors import ArgumentError, ShapeError
from gen.families import FAMILIES
from gen.families.base import Extents, Family, Limits, Spec
from gen.families.extents import shape_of
from gen.families.names import find_variant
from gen.proof.cases import Content, fill
from gen.proof.error_bounds import disagreement
from gen.runtime.arrays import DeviceArray
from tests.strategies import extents, runtime_parameters

if TYPE_CHECKING:
    from gen.gpu.cuda import CudaDevice

SUM, TRANSPOSE = "reduction_sum_f32", "transpose_10_b32"
HEAT = FAMILIES[2].catalogue[0]
SPECS = [(family, spec) for family in FAMILIES for spec in family.catalogue]

Floats = np.ndarray[Any, np.dtype[np.float32]]


def label(pair: tuple[Family[Any], Spec]) -> str:
    return f"{pair[0].name}_{pair[1].label}"


def whole_numbers(*shape: int, seed: int = 0) -> Floats:
    """Small integers: sums of them are exact."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def smooth(image: Floats) -> Floats:
    wide = np.pad(image.astype(np.float64), 1)
    around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    return (wide[1:-1, 1:-1] / 2 + around / 8).astype(np.float32)


def check(family: Family[Any], spec: Spec, kernel: Any, sizes: Extents, content: Content, limits: Limits) -> None:
    """Calls a kernel with NumPy arrays of these sizes, and compares with the oracle."""
    inputs = {}
    for seed, operand in enumerate(x for x in spec.operands if x.role == "in"):
        layout = family.layouts(spec, sizes)[operand.name]
        inputs[operand.name] = np.empty(layout.shape, layout.dtype)
        fill(inputs[operand.name], operand.dtype, content, seed)
    results = kernel(*inputs.values(), **{name: sizes[name] for name in family.runtime_parameters(spec)})
    outs = [x for x in spec.operands if x.role == "out"]
    made = find_variant(FAMILIES, kernel.variant_for(next(iter(inputs.values())).shape), {})
    roundings = made.algorithm.roundings(spec, made.config, sizes, limits)
    for operand, result in zip(outs, results if len(outs) > 1 else (results,), strict=True):
        expected = family.oracle(spec, inputs, sizes)[operand.name]
        assert disagreement(expected, np.asarray(result), roundings, operand.dtype) is None


# NumPy


@pytest.mark.parametrize("pair", SPECS, ids=label)
@pytest.mark.parametrize("content", [Content.INTEGERS, Content.RANDOM, Content.SPECIAL])
def test_awkward_sizes_of_every_family(
    pair: tuple[Family[Any], Spec], content: Content, device: CudaDevice, home: Path
) -> None:
    family, spec = pair
    kernel = gen.load(spec, device=device, home=home)
    for sizes in family.cases(spec):
        check(family, spec, kernel, sizes, content, device.limits)


@pytest.mark.parametrize("pair", SPECS, ids=label)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), content=st.sampled_from(Content))
def test_any_size_of_every_family(
    pair: tuple[Family[Any], Spec], data: st.DataObject, content: Content, device: CudaDevice, home: Path
) -> None:
    family, spec = pair
    kernel = gen.load(spec, device=device, home=home)
    drawn = data.draw(extents(spec, times=8))
    dense = {operand.pitch: shape_of(operand, drawn)[-1] for operand in spec.operands if operand.pitch}
    check(
        family, spec, kernel, {**drawn, **dense, **data.draw(runtime_parameters(family, spec))}, content, device.limits
    )


def test_the_photograph(photograph: Floats, home: Path) -> None:
    total = gen.load(SUM, shape=photograph.shape, home=home)(photograph)
    exact = photograph.sum(dtype=np.float64)
    assert abs(float(total) - exact) <= 1e-5 * exact  # over 2^24: the bound, not equality, is what f32 promises
    # Grey levels of 0 to 31 add up to less than 2^24: there the sum is NumPy's to the last bit.
    dim = np.floor(photograph / 8)
    assert gen.load(SUM, shape=dim.shape, home=home)(dim) == dim.sum(dtype=np.float64)
    assert np.array_equal(gen.load(TRANSPOSE, shape=photograph.shape, home=home)(photograph), photograph.T)
    assert np.array_equal(gen.load(HEAT, shape=photograph.shape, home=home)(photograph), smooth(photograph))
    crop = photograph[7:300, 11:402]
    assert np.array_equal(gen.load(TRANSPOSE, home=home)(crop), crop.T)


def test_large_arrays(home: Path) -> None:
    array = whole_numbers(2**25)
    assert gen.load(SUM, shape=2**25, home=home)(array) == array.sum(dtype=np.float64)
    matrix = array.reshape(4096, 8192)
    assert np.array_equal(gen.load(TRANSPOSE, shape=matrix.shape, home=home)(matrix), matrix.T)


def test_what_a_kernel_says_of_itself(device: CudaDevice, home: Path) -> None:
    kernel = gen.load(SUM, shape=2**28, device=device, home=home)
    assert kernel.variant.startswith(SUM + "__")
    assert kernel.variant in kernel.source
    # A device may have winners that came with gen, or none.
    assert device.name in kernel.why
    assert "more than 2^20 elements" in kernel.why


def test_another_thread_needs_no_preparation(home: Path) -> None:
    kernel, found = gen.load(SUM, home=home), []
    thread = threading.Thread(target=lambda: found.append(kernel(np.ones(1000, np.float32), stream=2)))
    thread.start()
    thread.join()
    assert found == [1000]


def test_the_first_kernel_may_be_loaded_in_another_thread(home: Path) -> None:
    script = f"""
import threading, gen, numpy as np
found = []
def work(): found.append(gen.load({SUM!r}, home={str(home)!r})(np.ones(1000, np.float32)))
thread = threading.Thread(target=work)
thread.start(); thread.join()
assert found == [1000]
assert gen.load({SUM!r}, home={str(home)!r})(np.ones(10, np.float32)) == 10
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("PyCUDA")) == (0, 0), done.stderr


# torch


def test_torch_tensors_are_used_in_place(torch: Any, home: Path) -> None:
    matrix = torch.arange(300 * 200, dtype=torch.float32, device="cuda").reshape(300, 200)
    transpose = gen.load(TRANSPOSE, home=home)
    result = transpose(matrix)
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, matrix.T)
    out = torch.empty(200, 300, device="cuda")
    assert transpose(matrix, out=out) is out
    assert torch.equal(out, matrix.T)
    whole = torch.arange(12, dtype=torch.int32, device="cuda").reshape(3, 4)
    assert torch.equal(transpose(whole), whole.T)
    total = gen.load(SUM, home=home)(torch.ones(1000, 1000, device="cuda"))
    assert total.shape == ()
    assert float(total) == 1e6


def test_pitched_views_of_torch(torch: Any, home: Path) -> None:
    room = torch.arange(100 * 100, dtype=torch.float32, device="cuda").reshape(100, 100)
    view = room[3:70, 5:41]
    assert torch.equal(gen.load(TRANSPOSE, home=home)(view), view.T)
    cells = view.cpu().numpy()
    assert np.array_equal(gen.load(HEAT, home=home)(view).cpu().numpy(), smooth(cells))
    out = torch.full((40, 80), -1.0, device="cuda")
    gen.load(TRANSPOSE, home=home)(view, out=out[2:38, 4:71])
    assert torch.equal(out[2:38, 4:71], view.T)
    assert int((out == -1).sum()) == 40 * 80 - 36 * 67
    assert float(gen.load(SUM, home=home)(view)) == float(view.double().sum())  # whole numbers below 2^24: exact


def test_torch_streams(torch: Any, home: Path) -> None:
    kernel, stream = gen.load(TRANSPOSE, home=home), torch.cuda.Stream()
    matrix = torch.rand(1000, 700, device="cuda")
    torch.cuda.synchronize()
    for _ in range(20):
        with torch.cuda.stream(stream):  # the current one counts
            doubled = matrix * 2
            result = kernel(doubled)
            again = kernel(result)
        stream.synchronize()
        assert torch.equal(result, doubled.T)
        assert torch.equal(again, doubled)
    named = kernel(matrix, stream=stream)
    number = kernel(matrix, stream=stream.cuda_stream)
    stream.synchronize()
    assert torch.equal(named, matrix.T)
    assert torch.equal(number, matrix.T)


def test_a_call_does_not_wait_for_the_gpu(torch: Any, home: Path) -> None:
    kernel, stream = gen.load(SUM, home=home), torch.cuda.Stream()
    array, out = torch.ones(1000, device="cuda"), torch.zeros((), device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        kernel(array, out=out)
        torch.cuda._sleep(2_000_000_000)  # about a second
        kernel(array, out=out)
        assert not stream.query()
    stream.synchronize()
    assert float(out) == 1000


def test_two_streams_at_once(torch: Any, home: Path) -> None:
    kernel = gen.load(SUM, home=home)
    streams = [torch.cuda.Stream() for _ in range(2)]
    # Large enough for many blocks, which count each other on the ticket.
    arrays = [torch.full((2**21 + k,), float(k + 1), device="cuda") for k in range(2)]
    outs = [torch.zeros(200, device="cuda") for _ in range(2)]
    torch.cuda.synchronize()
    for turn in range(200):
        for stream, array, out in zip(streams, arrays, outs, strict=True):
            kernel(array, out=out[turn], stream=stream)
    torch.cuda.synchronize()
    for k, out in enumerate(outs):
        assert torch.equal(out, torch.full_like(out, (2**21 + k) * (k + 1)))


def test_two_threads_at_once(torch: Any, home: Path) -> None:
    kernel = gen.load(SUM, home=home)
    found: list[tuple[int, float]] = []

    def work(value: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            array = torch.full((2**21,), float(value), device="cuda")
            found.extend((value, float(kernel(array))) for _ in range(100))

    threads = [threading.Thread(target=work, args=(value,)) for value in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 300
    assert all(total == value * 2**21 for value, total in found)


@pytest.mark.parametrize("warm", [True, False], ids=["called before", "never called"])
def test_a_captured_graph(torch: Any, home: Path, warm: bool) -> None:
    total, transpose = gen.load(SUM, home=home), gen.load(TRANSPOSE, home=home)
    matrix = torch.zeros(2048, 1024, device="cuda")
    across, sum_of = torch.zeros(1024, 2048, device="cuda"), torch.zeros((), device="cuda")
    if warm:
        transpose(matrix, out=across)
        total(across, out=sum_of)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        transpose(matrix, out=across)
        total(across, out=sum_of)
        made = total(across)  # torch takes it from the graph's own memory
    for value in (1, 2, 3):
        matrix.fill_(value)
        total(torch.ones(5000, device="cuda"))  # beside the graph, with scratch of its own
        graph.replay()
        torch.cuda.synchronize()
        assert float(sum_of) == float(made) == value * 2**21


def test_a_call_of_many_launches_is_repeated(torch: Any, home: Path) -> None:
    """The second such call becomes a graph, which the third replays; others go by themselves."""
    kernel = gen.load(HEAT, home=home)
    steps = 12  # as many launches, unless they are fused
    image = torch.from_numpy(whole_numbers(300, 257)).cuda()
    once = kernel(image, steps=1)
    for _ in range(steps - 1):
        once = kernel(once, steps=1)
    out, other = torch.zeros_like(image), torch.zeros_like(image)
    for _ in range(4):
        out.zero_()
        kernel(image, steps=steps, out=out)
        assert torch.equal(out, once)
    kernel(image, steps=steps, out=other)  # other addresses
    assert torch.equal(other, once)
    image.mul_(2)
    for _ in range(3):
        kernel(image, steps=steps, out=out)
    assert torch.equal(out, 2 * once)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(3):
        kernel(image, steps=steps, out=other, stream=stream)
    stream.synchronize()
    assert torch.equal(other, 2 * once)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(image, steps=steps, out=out)
    image.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, 4 * once)


def test_tensors_that_do_not_fit(torch: Any, home: Path) -> None:
    kernel = gen.load(TRANSPOSE, home=home)
    matrix = torch.ones(4, 6, device="cuda")
    with pytest.raises(ArgumentError, match=r"in must be a NumPy array or lie on a GPU .*cpu"):
        kernel(matrix.cpu())
    with pytest.raises(ShapeError, match="in must hold elements of 4 bytes"):
        kernel(matrix.half())
    with pytest.raises(ShapeError, match="in must have elements 4 bytes apart along its rows"):
        kernel(matrix.T)
    with pytest.raises(ArgumentError, match="out must not overlap in"):
        kernel(matrix, out=matrix.view(6, 4))
    with pytest.raises(ArgumentError, match="out must be where in is"):
        kernel(matrix, out=np.empty((6, 4), np.float32))
    with pytest.raises(ArgumentError, match="in must not require gradients"):
        kernel(matrix.clone().requires_grad_())


def test_a_tensor_of_another_gpu(torch: Any, home: Path) -> None:
    kernel = gen.load(SUM, home=home)
    if torch.cuda.device_count() == 1:
        # One GPU has no other: an address that the driver does not know stands for it.
        class Elsewhere:
            def __init__(self, array: Floats) -> None:
                self.array = array
                self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}

        with pytest.raises(ArgumentError, match=r"in must be on device 0.*no memory of a GPU"):
            kernel(Elsewhere(np.ones(8, np.float32)))
        return
    with pytest.raises(ArgumentError, match=r"in must be on device 0.*device 1"):
        kernel(torch.ones(8, device="cuda:1"))
    assert float(gen.load(SUM, device=1, home=home)(torch.ones(8, device="cuda:1"))) == 8


# CuPy and others


def test_cupy_arrays_are_used_in_place(cupy: Any, home: Path) -> None:
    transpose, total = gen.load(TRANSPOSE, home=home), gen.load(SUM, home=home)
    matrix = cupy.arange(300 * 200, dtype=cupy.float32).reshape(300, 200)
    result = transpose(matrix)
    assert isinstance(result, cupy.ndarray)
    assert bool((result == matrix.T).all())
    out = cupy.empty((200, 300), cupy.float32)
    assert transpose(matrix, out=out) is out
    assert bool((out == matrix.T).all())
    assert float(total(cupy.ones(12345, cupy.float32))) == 12345
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        doubled = matrix * 2
        result = transpose(doubled)
        stream.synchronize()
        assert bool((result == doubled.T).all())
    result = transpose(matrix, stream=stream)
    stream.synchronize()
    assert bool((result == matrix.T).all())


def test_other_arrays_are_used_in_place(cupy: Any, torch: Any, home: Path) -> None:
    class Other:
        """Has nothing but the interface; its content is produced on a stream of its own."""

        def __init__(self, array: Any, stream: Any, *, read_only: bool = False) -> None:
            address = array.data.ptr
            self.__cuda_array_interface__ = {
                "shape": array.shape, "typestr": array.dtype.str, "data": (address, read_only), "strides": None,
                "version": 3, "stream": stream.ptr,
            }  # fmt: skip

    transpose, stream = gen.load(TRANSPOSE, home=home), cupy.cuda.Stream(non_blocking=True)
    matrix = cupy.arange(12, dtype=cupy.float32).reshape(3, 4)
    cupy.cuda.Device().synchronize()
    result = transpose(Other(matrix, stream))
    assert isinstance(result, DeviceArray)
    assert result.__cuda_array_interface__["stream"] == stream.ptr
    assert np.array_equal(result.numpy(), matrix.get().T)
    assert np.array_equal(torch.as_tensor(result, device="cuda").cpu().numpy(), matrix.get().T)
    assert np.array_equal(transpose(result).numpy(), matrix.get())
    with pytest.raises(ArgumentError, match="out must be writable"):
        transpose(matrix, out=Other(cupy.empty((4, 3), cupy.float32), stream, read_only=True))


def test_arrays_of_different_libraries_mix(cupy: Any, torch: Any, home: Path) -> None:
    matrix, out = torch.rand(64, 32, device="cuda"), cupy.empty((32, 64), cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        out.fill(0)
        gen.load(TRANSPOSE, home=home)(matrix, out=out)
    torch.cuda.synchronize()
    assert np.array_equal(out.get(), matrix.cpu().numpy().T)


def test_a_kernel_may_go_before_its_work_is_done(torch: Any, home: Path) -> None:
    array = torch.ones(2**22, device="cuda")
    torch.cuda._sleep(200_000_000)
    results = [gen.load(SUM, home=home)(array) for _ in range(20)]
    gc.collect()
    assert all(float(result) == 2**22 for result in results)


def test_arrays_of_every_library_come_back_right() -> None:
    """Those of NumPy and all that is installed, in a process that makes all their contexts."""
    checkout = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(checkout), os.environ.get("PYTHONPATH", "")))}
    command = [sys.executable, "bench/frameworks.py", "--part", "arrays"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {row["library"]: row for row in json.loads(done.stdout.splitlines()[-1])["arrays"]["rows"]}
    installed = {name for name in ("torch", "cupy", "numba", "pycuda") if find_spec(name) is not None}
    assert found.keys() >= {"numpy", *installed}
    assert all(row["calls"] > 0 and row["wrong"] == 0 for row in found.values()), found
