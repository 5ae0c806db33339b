"""Arrays of torch and CuPy, played by classes that have what gen asks of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import ArgumentError, ShapeError
from gen.proof.host import HostRunner
from gen.runtime import arrays
from tests.fake_device import FakeDevice, OnDevice

SUM, TRANSPOSE = "reduction_sum_f32", "transpose_10_b32"


class Tensor:
    """A torch tensor on a GPU, as far as gen looks."""

    def __init__(self, array: Any, **more: Any) -> None:
        self.numpy_array = array
        self.shape = array.shape
        self.dtype = f"torch.{array.dtype}"
        self.device = "cuda:0"
        self.layout = "strided"
        self.is_cuda = True
        self.requires_grad = False
        self.negated = False
        self.index = 0
        self.__dict__.update(more)

    def stride(self) -> tuple[int, ...]:
        return tuple(stride // self.numpy_array.itemsize for stride in self.numpy_array.strides)

    def data_ptr(self) -> int:
        return int(self.numpy_array.__array_interface__["data"][0])

    def get_device(self) -> int:
        return self.index

    def is_conj(self) -> bool:
        return False

    def is_neg(self) -> bool:
        return self.negated


class CuPyArray(Tensor):
    """A CuPy array, as far as gen looks."""

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        self.strides = array.strides
        self.dtype = array.dtype
        self.data = SimpleNamespace(ptr=self.data_ptr(), device_id=0)


class CuPyStreams:
    """`cupy.cuda.Stream`, as far as gen asks it."""

    def __init__(self, library: Library) -> None:
        self._library = library

    @property
    def null(self) -> Any:
        return self._library._on(0)

    def from_external(self, stream: Any) -> Any:
        version, handle = stream.__cuda_stream__()
        assert version == 0
        return self._library._on(handle)


class Library:
    """What gen asks of torch and of CuPy; remembers on which stream results were made."""

    strided = "strided"
    int32 = "torch.int32"

    def __init__(self, array: type) -> None:
        self.made_on: list[Any] = []
        self.current: Any = 70
        self.cuda = SimpleNamespace(
            current_stream=lambda _: SimpleNamespace(cuda_stream=self.current),
            get_current_stream=lambda: SimpleNamespace(ptr=self.current),
            stream=self._on, ExternalStream=lambda handle, device=None: self._on(handle) if device is None else handle,
            Device=lambda _: self._on(self.current),
            Stream=CuPyStreams(self),
        )  # fmt: skip
        self._array = array

    def is_grad_enabled(self) -> bool:
        return True

    def empty(self, shape: tuple[int, ...], dtype: Any = None, device: Any = None) -> Any:
        self.made_on.append(self.current)
        name = str(dtype).removeprefix("torch.")
        assert device in (None, "cuda:0")
        return self._array(np.empty(shape, name))

    @contextmanager
    def _on(self, handle: int) -> Iterator[None]:
        before, self.current = self.current, handle
        try:
            yield
        finally:
            self.current = before


@pytest.fixture(params=["torch", "cupy"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One of the libraries, with `array` to make an array of its own."""
    array = Tensor if request.param == "torch" else CuPyArray
    made = Library(array)
    monkeypatch.setattr(made, "Tensor" if request.param == "torch" else "ndarray", array, raising=False)
    monkeypatch.setitem(sys.modules, request.param, made)
    monkeypatch.setattr(arrays, "_readers", {})
    return SimpleNamespace(library=made, array=array, name=request.param)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch alone."""
    made = Library(Tensor)
    monkeypatch.setattr(made, "Tensor", Tensor, raising=False)
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setattr(arrays, "_readers", {})


def test_results_are_of_the_callers_kind_on_its_current_stream(library: Any, host_runner: HostRunner) -> None:
    backend = FakeDevice(host_runner)
    matrix = np.arange(12, dtype=np.int32).reshape(3, 4)
    result = gen.load(TRANSPOSE, device=backend)(library.array(matrix))
    assert type(result) is library.array
    assert np.array_equal(result.numpy_array, matrix.T)
    assert result.numpy_array.dtype == np.int32
    assert backend.launched[-1].stream == 70
    assert library.library.made_on == [70]
    out = library.array(np.empty((4, 3), np.int32))
    assert gen.load(TRANSPOSE, device=backend)(library.array(matrix), out=out) is out
    assert np.array_equal(out.numpy_array, matrix.T)
    assert backend.synchronized == []
    assert backend.waits == []


@pytest.mark.parametrize(("stream", "launched", "made"), [(5, 5, 5), (0, 1, 0)])
def test_results_are_made_on_the_stream_that_is_named(library: Any, stream: int, launched: int, made: int) -> None:
    backend = FakeDevice()
    gen.load(TRANSPOSE, device=backend)(library.array(np.ones((3, 4), np.float32)), stream=stream)
    assert backend.launched[-1].stream == launched
    assert library.library.made_on == [made]
    assert library.library.current == 70
    assert backend.waits == []


def test_the_default_stream_is_the_legacy_one(library: Any) -> None:
    backend = FakeDevice()
    library.library.current = 0
    gen.load(SUM, device=backend)(library.array(np.ones(4, np.float32)))
    assert backend.launched[-1].stream == 1


def test_others_are_waited_for(library: Any) -> None:
    backend = FakeDevice()
    out = OnDevice(np.zeros((), np.float32), {"stream": 9})
    gen.load(SUM, device=backend)(library.array(np.ones(4, np.float32)), out=out)
    assert (backend.launched[-1].stream, backend.waits) == (70, [(70, 9)])


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"is_cuda": False, "device": "cpu"}, r"in must be a NumPy array or lie on a GPU \(got a torch tensor on cpu"),
        ({"layout": "sparse"}, "in must be dense"),
        ({"requires_grad": True}, r"in must not require gradients.*tensor.detach"),
        ({"negated": True}, "in must hold its own values"),
        ({"index": 1}, r"in must be on device 0, Fake GPU \(got device 1\)"),
        ({"dtype": "torch.float7"}, "in must hold elements that NumPy knows"),
    ],
)
def test_tensors_that_are_refused(more: dict[str, Any], message: str) -> None:
    backend = FakeDevice()
    with pytest.raises(ArgumentError, match=message):
        gen.load(SUM, device=backend)(Tensor(np.ones(4, np.float32), **more))
    assert backend.launched == []


@pytest.mark.usefixtures("torch")
def test_bfloat16_is_read() -> None:
    with pytest.raises(ShapeError, match=r"in must hold f32 elements \(got bf16\)"):
        gen.load(SUM, device=FakeDevice())(Tensor(np.ones(4, np.int16), dtype="torch.bfloat16"))
