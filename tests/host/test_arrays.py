"""Arrays on the host, of NumPy and of others, which the CPU run takes: each view is read as it is, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import gen
from gen.errors import ArgumentError, GenError, ShapeError
from gen.runtime import dlpack
from gen.runtime.arrays import read
from tests.exchanged import InLibrary

CPU, TRANSPOSE = (dlpack.CPU, 0), "transpose_10_b32"


def arange(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_what_is_read_only_is_not_written() -> None:
    frozen = np.zeros((3, 4), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ArgumentError, match="out must be writable"):
        gen.load(TRANSPOSE, device="cpu")(arange(4, 3), out=frozen)


def test_arrays_of_others_on_the_host_are_taken_by_the_cpu_run() -> None:
    array = InLibrary(arange(4, 3), CPU)
    result = gen.load(TRANSPOSE, device="cpu")(array)
    assert isinstance(result, InLibrary)
    np.testing.assert_array_equal(result.array, array.array.T)
    assert "stream" not in array.asked[0]
    out = InLibrary(np.zeros((3, 4), np.float32), CPU)
    assert gen.load(TRANSPOSE, device="cpu")(arange(4, 3), out=out) is out
    np.testing.assert_array_equal(out.array, array.array.T)


class Offered:
    """An array whose capsule says something else than what is so."""

    def __init__(self, change: Callable[[Any], object]) -> None:
        self.array, self.change = arange(3, 4), change

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU

    def __dlpack__(self, **_: object) -> Any:
        made = self.array
        capsule = dlpack.offer(made, made.ctypes.data, made.shape, made.dtype, CPU, versioned=True)
        pointer = dlpack._python().PyCapsule_GetPointer(id(capsule), b"dltensor_versioned")
        self.change(dlpack._ManagedVersioned.from_address(pointer))
        return capsule


def integers_of_four_bits(made: Any) -> None:
    made.tensor.code, made.tensor.bits = 0, 4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda made: setattr(made, "major", 2), "DLPack 2.0, where 1 is known"),
        (lambda made: setattr(made.tensor, "shape", None), "2 axes, and no shape"),
        (lambda made: setattr(made.tensor, "ndim", -1), "-1 axes"),
        (lambda made: made.tensor.shape.__setitem__(0, -3), "negative extents"),
        (lambda made: made.tensor.shape.__setitem__(0, 1 << 62), "must describe memory of the host"),
        (lambda made: setattr(made.tensor, "data", None), "must describe memory of the host"),
        (lambda _: 1 // 0, "ZeroDivisionError"),
        (lambda made: setattr(made.tensor, "lanes", 4), "4 lanes"),
        (integers_of_four_bits, "type 0 with 4 bits"),
    ],
)
def test_capsules_that_cannot_be_are_refused(change: Callable[[Any], object], says: str) -> None:
    with pytest.raises(ArgumentError, match=f"x.__dlpack__ .*{says}"):
        read("x", Offered(change))
    assert read("x", Offered(lambda _: None)).host is not None


@st.composite
def views(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Views with strides that are negative, 0, or larger than dense, and bytes of either order."""
    order = draw(st.sampled_from("<>"))
    array = draw(arrays(np.dtype(f"{order}f4"), st.tuples(st.integers(1, 4), st.integers(1, 4)),
                        elements=st.integers(-9, 9)))  # fmt: skip
    steps = tuple(slice(None, None, draw(st.sampled_from([1, -1, 2, -2]))) for _ in range(2))
    array = array[steps]
    if draw(st.booleans()):
        array = array.T
    if draw(st.booleans()):
        array = np.broadcast_to(array[:1], (3, array.shape[1]))
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


@settings(max_examples=10, deadline=None)
@given(views())
def test_views_of_every_kind_are_right_or_refused(array: np.ndarray[Any, Any]) -> None:
    moved = gen.permute_dims(array, (1, 0), device="cpu")
    assert moved.dtype == array.dtype
    np.testing.assert_array_equal(moved, array.T)
    if array.dtype.isnative:
        np.testing.assert_array_equal(gen.sum(array, axis=0, device="cpu"), array.sum(axis=0))
    else:
        with pytest.raises(GenError, match=r"must be one of|must hold"):
            gen.sum(array, axis=0, device="cpu")


def test_an_output_whose_elements_share_memory_is_refused() -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(3, np.float32), (3, 4), (4, 0))
    with pytest.raises(ShapeError, match="must have elements that do not overlap"):
        gen.permute_dims(arange(4, 3), (1, 0), out=out, device="cpu")


def test_torch_on_the_host_is_read_with_its_strides() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4)[:, ::2].t()
    for one in (tensor, tensor.to(torch.bfloat16), tensor.to(torch.float8_e4m3fn)):
        found = read("x", one)
        assert found.host is not None
        np.testing.assert_array_equal(found.host.astype(np.float32), tensor.numpy())
        moved = gen.permute_dims(one, (1, 0), device="cpu")
        assert moved.dtype == one.dtype
        assert torch.equal(moved.float(), tensor.t())
    assert isinstance(gen.sum(tensor, device="cpu"), torch.Tensor)
    assert float(gen.sum(tensor, device="cpu")) == float(tensor.sum())


def test_jax_on_the_host_gives_jax() -> None:
    jax = pytest.importorskip("jax")
    array = jax.numpy.arange(12, dtype="float32").reshape(3, 4)
    result = gen.permute_dims(array, (1, 0), device="cpu")
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(result, np.asarray(array).T)
