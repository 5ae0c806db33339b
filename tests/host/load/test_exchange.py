"""Arrays that come and go by DLPack, on a fake GPU: read as they lie, or refused before any launch."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gen
from gen.errors import ArgumentError, GenError, ShapeError
from gen.runtime import arrays as runtime_arrays
from gen.runtime import dlpack
from gen.runtime.arrays import DeviceArray, host_array
from tests.exchanged import Exchanged, InLibrary
from tests.fake_device import FakeDevice, OnDevice
from tests.host.load.given import SUM, TRANSPOSE, arange

CPU = (dlpack.CPU, 0)


@pytest.mark.parametrize("version", [0, 1])
def test_an_array_on_a_gpu_is_used_where_it_lies(version: int, computing: FakeDevice) -> None:
    array = Exchanged(arange(5, 6), version=version)
    result = gen.load(TRANSPOSE, device=computing)(array)
    assert isinstance(result, DeviceArray)
    np.testing.assert_array_equal(result.numpy(), array.array.T)
    assert [asked["stream"] for asked in array.asked] == [1]  # the stream on which it is waited for
    assert computing.launched[-1].stream == 1
    assert computing.synchronized[:1] == [1]  # before the capsule goes, which holds the memory


def test_results_are_of_the_callers_library(computing: FakeDevice) -> None:
    array = InLibrary(arange(5, 6))
    result = gen.load(TRANSPOSE, device=computing)(array)
    assert isinstance(result, InLibrary)
    np.testing.assert_array_equal(result.array, array.array.T)
    assert computing.waits == [(9, 1)]  # the library's stream, for the one that wrote the result
    out = InLibrary(np.empty((6, 5), np.float32))
    assert gen.load(TRANSPOSE, device=computing)(array, out=out) is out


@pytest.mark.parametrize("library", ["numba", "pycuda"])
def test_results_go_to_numba_and_pycuda(
    library: str, computing: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    made: Any = ModuleType(library)
    made.as_cuda_array = lambda array, sync: ("numba", array, sync)
    made.GPUArray = lambda shape, dtype, base, gpudata: ("pycuda", base, (shape, dtype, gpudata))
    monkeypatch.setitem(sys.modules, {"numba": "numba.cuda", "pycuda": "pycuda.gpuarray"}[library], made)
    array = OnDevice(arange(5, 6))
    monkeypatch.setattr(OnDevice, "__module__", f"{library}.arrays")
    name, base, rest = gen.load(TRANSPOSE, device=computing)(array)
    assert name == library
    assert rest == (False if library == "numba" else (base.shape, base.dtype, base.address))
    np.testing.assert_array_equal(base.numpy(), arange(5, 6).T)


class OfNumba(OnDevice):
    """As Numba tells of its arrays: strides where there are gaps, streams but the default one, no address of none."""

    def __init__(self, array: Any, stream: int = 0) -> None:
        dense, empty = array.flags.c_contiguous, array.size == 0
        address = 0 if empty else array.__array_interface__["data"][0]
        about = {"strides": None if dense else array.strides, "stream": stream or None, "data": (address, False)}
        super().__init__(array, about)


@pytest.mark.parametrize(
    ("array", "stream"), [(arange(5, 6), 0), (arange(5, 8)[:, :6], 7), (np.zeros((0, 6), np.float32), 7)]
)
def test_arrays_are_read_as_numba_tells_of_them(array: Any, stream: int, computing: FakeDevice) -> None:
    kernel, out = gen.load(TRANSPOSE, device=computing), np.zeros((6, array.shape[0]), np.float32)
    given = OfNumba(out)
    assert kernel(OfNumba(array, stream), out=given) is given
    np.testing.assert_array_equal(out, array.T)
    assert {one.stream for one in computing.launched} <= {stream or 1}  # what its kernels have queued comes first


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool", "int64", "complex64"])
def test_every_type_comes_and_goes_as_it_is(dtype: str, computing: FakeDevice) -> None:
    bits = np.arange(12 * np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize, dtype=np.uint8) % 2
    array = bits.view(getattr(ml_dtypes, dtype, dtype)).reshape(3, 4)
    spec = gen.permutation((1, 0), array.dtype)
    result = gen.load(spec, device=computing)(InLibrary(array))
    assert result.array.dtype == array.dtype
    np.testing.assert_array_equal(result.array.view(np.uint8), np.ascontiguousarray(array.T).view(np.uint8))


def test_memory_is_given_back_when_nobody_holds_it(computing: FakeDevice) -> None:
    kernel, offered = gen.load(SUM, device=computing), len(dlpack._offered)
    result = kernel(OnDevice(arange(8)))
    capsule = result.__dlpack__(stream=-1, max_version=(1, 0))
    assert len(dlpack._offered) == offered + 1
    memory = result._memory
    del result
    assert not memory.freed
    del capsule
    assert len(dlpack._offered) == offered
    assert computing.waits == []


def test_a_copy_is_a_copy_and_no_other_device_is_reached(computing: FakeDevice) -> None:
    result = gen.load(SUM, device=computing)(OnDevice(arange(8)))
    found = dlpack.describe(SimpleNamespace(
        __dlpack_device__=result.__dlpack_device__, __dlpack__=lambda **asked: result.__dlpack__(copy=True, **asked)
    ), None)  # fmt: skip
    assert found.address != result.address
    assert host_array(found.address, (), (), np.dtype(np.float32)) == 28
    for asked in ({"dl_device": CPU}, {"dl_device": (dlpack.CUDA, 1)}):
        with pytest.raises(BufferError, match="not on"):
            result.__dlpack__(**asked)


WRONG: list[tuple[Any, type[GenError], str]] = [
    (Exchanged(arange(8), CPU), ArgumentError, "in must be a NumPy array or lie on a GPU .*GEN_DEVICE=cpu"),
    (Exchanged(arange(8), (dlpack.CUDA, 1)), ArgumentError, r"in must be on device 0, Fake GPU \(got device 1"),
    (Exchanged(arange(0), (dlpack.CUDA, 1)), ArgumentError, r"in must be on device 0, Fake GPU \(got device 1"),
    (Exchanged(arange(8), (10, 0)), ArgumentError, r"in must be a NumPy array or lie on a GPU of NVIDIA .*\(10, 0\)"),
    (Exchanged(arange(8).astype(np.float64)), ShapeError, r"in must hold f32 elements \(got f64\)"),
    (Exchanged(arange(8).astype(">f4")), ArgumentError, r"in.__dlpack__ cannot be read .*no name for >f4"),
    (Exchanged(np.zeros(8, "M8[s]")), ArgumentError, r"in.__dlpack__ cannot be read .*no name for datetime64"),
]


@pytest.mark.parametrize(("array", "error", "says"), WRONG)
def test_what_cannot_be_used_is_refused_before_any_launch(array: Any, error: type[GenError], says: str) -> None:
    device = FakeDevice()
    with pytest.raises(error, match=says):
        gen.load(SUM, device=device)(array)
    assert device.launched == []


def test_what_is_read_only_is_not_written(monkeypatch: pytest.MonkeyPatch, computing: FakeDevice) -> None:
    array, out = InLibrary(arange(4, 3)), InLibrary(np.zeros((3, 4), np.float32))
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(Array=InLibrary, core=SimpleNamespace(Tracer=FakeDevice)))
    monkeypatch.setattr(runtime_arrays, "_readers", {})
    with pytest.raises(ArgumentError, match="out must be writable"):
        gen.load(TRANSPOSE, device=computing)(array, out=out)
    assert computing.launched == []
