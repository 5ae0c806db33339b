"""What a loaded kernel refuses before any launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import (
    ArgumentError,
    DeviceError,
    GenError,
    ShapeError,
)
from tests.fake_device import FakeDevice, OnDevice
from tests.host.load.given import SUM, TRANSPOSE, arange


def refused(value: Any) -> OnDevice:
    return OnDevice(arange(4, 4), value)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([[1.0, 2.0]], ArgumentError, "in must be a NumPy array or have __cuda_array_interface__ .*list"),
        (arange(4, 4).astype(np.float64), ShapeError, "in must hold elements of 4 bytes .*float64"),
        (arange(4, 4).astype(object), ShapeError, "in must hold elements of 4 bytes"),
        (arange(16), ShapeError, r"in must have 2 axes \(got \(16,\)\)"),
        (OnDevice(arange(4, 4).T), ShapeError, "in must have elements 4 bytes apart along its rows"),
        (
            OnDevice(arange(4, 4)[::-1]),
            ShapeError,
            "in must have rows a multiple of 4 and at least 16 bytes apart .*-16",
        ),
        (OnDevice(arange(4, 4)[:, ::-1]), ShapeError, "in must have elements 4 bytes apart along its rows .*-4"),
        (OnDevice(np.zeros(65, np.uint8)[1:].view("f4").reshape(4, 4)), ShapeError, r"in must start .*Pass a copy"),
        (refused({"data": (2, False)}), ShapeError, "in must start at, and step by, a multiple of 4"),
        (refused({"stream": 0}), ArgumentError, r"in.__cuda_array_interface__ must have a stream .*\(got 0\)"),
        (refused({"shape": (-3,), "strides": None}), ArgumentError, "must have no negative extent"),
        (np.ma.masked_less(arange(4, 4), 3), ArgumentError, r"in must have no mask. Pass array.filled\(value\), or"),
        (refused({"mask": 1}), ArgumentError, "in.__cuda_array_interface__ must have no mask"),
        (refused({"typestr": "?!"}), ArgumentError, "in.__cuda_array_interface__ cannot be read"),
        (refused({"typestr": "(2,"}), ArgumentError, "in.__cuda_array_interface__ cannot be read"),
        (refused({"shape": (float("inf"), 4)}), ArgumentError, "in.__cuda_array_interface__ cannot be read"),
        (refused({"strides": (4,)}), ArgumentError, "must have as many strides as extents"),
        (refused({"data": None}), ArgumentError, "in.__cuda_array_interface__ cannot be read"),
        (refused({"data": (-4, False)}), ArgumentError, r"must have an address of 64 bits \(got -4\)"),
        (refused({"data": (2**64, False)}), ArgumentError, "must have an address of 64 bits"),
        (refused({"stream": 2**64}), ArgumentError, "must have a stream that is None, 1, 2 or a handle"),
    ],
)
def test_an_input_that_does_not_fit(backend: FakeDevice, given: Any, error: type[GenError], message: str) -> None:
    with pytest.raises(error, match=message):
        gen.load(TRANSPOSE, device=backend)(given)
    assert backend.launched == []
    assert backend.depth == 0


@pytest.mark.parametrize("count", [0, 2])
def test_a_wrong_number_of_arguments(backend: FakeDevice, count: int) -> None:
    with pytest.raises(ArgumentError, match=rf"{SUM} takes 1 arguments: in \(got {count}\)"):
        gen.load(SUM, device=backend)(*[arange(3)] * count)


def test_an_output_that_does_not_fit(backend: FakeDevice) -> None:
    kernel, matrix = gen.load(TRANSPOSE, device=backend), OnDevice(arange(4, 6))
    with pytest.raises(ShapeError, match=r"out must have 6 cols"):
        kernel(matrix, out=OnDevice(arange(4, 6)))
    with pytest.raises(ArgumentError, match="out must be writable"):
        kernel(matrix, out=OnDevice(arange(6, 4), {"data": (4096, True)}))
    read_only = arange(6, 4)
    read_only.flags.writeable = False
    with pytest.raises(ArgumentError, match="out must be writable"):
        kernel(arange(4, 6), out=read_only)
    with pytest.raises(ArgumentError, match="out must be where in is: NumPy arrays and arrays on a GPU do not mix"):
        kernel(matrix, out=arange(6, 4))
    with pytest.raises(ArgumentError, match="out must be where in is"):
        kernel(arange(4, 6), out=OnDevice(arange(6, 4)))
    with pytest.raises(ArgumentError, match="out must not overlap in"):
        kernel(matrix, out=OnDevice(matrix.array.reshape(6, 4)))
    with pytest.raises(ArgumentError, match="out must not overlap in"):
        kernel(matrix.array, out=matrix.array.reshape(6, 4))
    assert backend.launched == []


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (
            [1, 2],
            r"out\[0\] must be a NumPy array or have __cuda_array_interface__ or __dlpack__ \(got builtins.int\). Pass",
        ),
        (
            (np.zeros(()), "b"),
            r"out\[1\] must be a NumPy array or have __cuda_array_interface__ or __dlpack__ \(got builtins.str\)",
        ),
        ((), r"out must be as many arrays as there are outputs: out \(got 0\). Pass them in this order, or no out="),
        ([np.zeros(()), np.zeros(())], r"out must be as many arrays as there are outputs: out \(got 2\). Pass them"),
        (3, r"out must be a NumPy array or have __cuda_array_interface__ or __dlpack__ \(got builtins.int\)"),
    ],
)
def test_an_output_that_is_no_array_or_one_too_many(backend: FakeDevice, out: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{message}"):
        gen.load(SUM, device=backend)(arange(4), out=out)


def test_arrays_of_which_nobody_can_say_whether_they_overlap(
    backend: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_hard(*_: object, **__: object) -> bool:
        raise np.exceptions.TooHardError

    monkeypatch.setattr(np, "shares_memory", too_hard)
    room = np.zeros((4, 8), np.float32)
    with pytest.raises(ArgumentError, match="out must not overlap in"):
        gen.load(TRANSPOSE, device=backend)(OnDevice(room[:, :4]), out=OnDevice(room[:, 4:]))
    gen.load(TRANSPOSE, device=backend)(OnDevice(room[:2, :4]), out=OnDevice(room[2:].reshape(4, 4)[:, :2]))  # apart


def test_rows_between_rows_do_not_overlap(computing: FakeDevice) -> None:
    room = np.zeros((4, 8), np.float32)
    room[:, :4] = arange(4, 4)
    gen.load(TRANSPOSE, device=computing)(OnDevice(room[:, :4]), out=OnDevice(room[:, 4:]))
    assert np.array_equal(room[:, 4:], arange(4, 4).T)
    with pytest.raises(ArgumentError, match="out must not overlap in"):
        gen.load(TRANSPOSE, device=computing)(OnDevice(room[:, :4]), out=OnDevice(room[:, 3:7]))


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (1, r"device 1\). Copy it there, or call the kernel of that GPU: gen.load\(..., device=1\)$"),
        (None, r"no memory of a GPU\). Copy it there$"),
    ],
)
def test_an_array_elsewhere(backend: FakeDevice, place: int | None, words: str) -> None:
    matrix = OnDevice(arange(4, 4))
    backend.foreign[matrix.__cuda_array_interface__["data"][0]] = place
    with pytest.raises(ArgumentError, match=rf"in must be on device 0, Fake GPU \(got {words}"):
        gen.load(TRANSPOSE, device=backend)(matrix)
    with pytest.raises(
        ArgumentError, match=r"in must be on device -1, CPU run \(got .*\). Copy it to the host: the CPU"
    ):
        gen.load(TRANSPOSE, device="cpu")(matrix)


def test_memory_that_is_not_there(backend: FakeDevice) -> None:
    backend.free = 1000
    with pytest.raises(DeviceError, match="does not hold 65536 bytes more"):
        gen.load(TRANSPOSE, device=backend)(arange(128, 128))
    assert backend.depth == 0


@pytest.mark.parametrize(
    ("spec", "array"),
    [
        (gen.permutation(), arange(4, 6).T),
        (gen.permutation(), arange(4, 6)[::-1]),
        (gen.permutation((0, 2, 1)), arange(3, 4, 5)[:, 1:]),
        (gen.permutation((1, 0, 2)), np.broadcast_to(arange(5), (3, 1, 5))),
        (gen.permutation((0,)), arange(8)[::2]),
        (gen.reduction("sum"), arange(8)[::-1]),
    ],
)
def test_an_array_that_lies_in_memory_as_no_kernel_reads_it_is_to_be_copied(
    backend: FakeDevice, spec: Any, array: Any
) -> None:
    with pytest.raises(ShapeError, match=r"Pass a copy .* numpy.ascontiguousarray\(a\) or a.contiguous\(\) of torch$"):
        gen.load(spec, device=backend)(OnDevice(array))


@pytest.mark.parametrize("spec", [gen.permutation(), gen.reduction("sum", axis=1)])
@pytest.mark.parametrize("view", [(slice(None), slice(None, None, -1)), (slice(None, None, -2), slice(1, None, 3))])
def test_numpy_arrays_are_copied_whatever_their_strides(
    computing: FakeDevice, spec: Any, view: tuple[slice, slice]
) -> None:
    array = arange(6, 9)[view]
    wanted = array.T if spec == gen.permutation() else array.sum(axis=1)
    room = np.zeros((4 * wanted.shape[0], *wanted.shape[1:]), np.float32)
    kernel = gen.load(spec, device=computing)
    np.testing.assert_array_equal(kernel(array), wanted)
    np.testing.assert_array_equal(kernel(array, out=room[::-4]), wanted)
    np.testing.assert_array_equal(room[::-4], wanted)


@pytest.mark.parametrize(
    ("spec", "out"), [(gen.permutation(), arange(4, 6).T), (gen.reduction("sum", axis=0), arange(8)[::2])]
)
def test_a_result_that_lies_in_memory_as_no_kernel_writes_it_is_to_be_left_out(
    backend: FakeDevice, spec: Any, out: Any
) -> None:
    array = OnDevice(arange(4, 6)[:, :4] if out.ndim == 1 else arange(4, 6))
    kernel = gen.load(spec, device=backend)
    with pytest.raises(ShapeError, match=r"Pass one that does, or none: then it is made$"):
        kernel(array, out=OnDevice(out))


def test_axes_that_are_too_many_apart_are_to_be_brought_together(backend: FakeDevice) -> None:
    rule = r"in must have at most 4 kept axes that are not neighbours .* gen.permutation brings some of them together$"
    with pytest.raises(ShapeError, match=rule):
        gen.load(gen.reduction("sum", axis=(0, 2, 4, 6, 8)), device=backend)(arange(*[2] * 10))


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (gen.reduction("sum"), 2**63),
        (gen.reduction("sum"), 2**61),  # of 4 bytes each
        (gen.reduction("sum", axis=0), (2**70, 2)),
        (gen.reduction("sum", axis=0), (0, 2**70)),
        (gen.reduction("sum", "int8", axis=1), (2**60, 1)),  # the results
        (gen.permutation(), (2**40, 2**40)),
        (gen.permutation((0,)), 2**61),
        (gen.stencil(gen.star(2, 1)), (2**61, 1)),
    ],
    ids=lambda part: getattr(part, "label", str(part)),
)
def test_a_shape_beyond_what_kernels_count(backend: FakeDevice, spec: Any, shape: Any) -> None:
    says = r"^shape must be of arrays of less than 2\^63 bytes each, .* \(got \(.*\)\). Call the kernel for parts of"
    with pytest.raises(ShapeError, match=says):
        gen.load(spec, shape=shape, device=backend)
    with pytest.raises(ShapeError, match=says):
        gen.load(spec, device=backend).variant_for(shape)


def test_a_shape_of_as_many_bytes_as_kernels_count(backend: FakeDevice) -> None:
    assert gen.load(gen.reduction("sum"), shape=2**61 - 1, device=backend).variant


@pytest.mark.parametrize("shape", [(2**70, 2), (2**31, 2**31)])
def test_an_array_that_says_it_is_larger_than_memory(backend: FakeDevice, shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"^in must be of less than 2\^63 bytes, .* \(got \(.*\)\). Pass it in parts$"):
        gen.load(gen.reduction("sum"), device=backend)(refused({"shape": shape, "strides": None}))
    assert backend.launched == []
