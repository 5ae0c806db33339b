"""Calling what `gen.load` gives computes what NumPy does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import (
    ShapeError,
)
from gen.families import FAMILIES
from gen.families.base import Array
from gen.runtime.arrays import DeviceArray, read
from tests.fake_device import FakeDevice, OnDevice
from tests.host.load.given import SUM, TRANSPOSE, arange


class TypedOnDevice(OnDevice):
    """An array that says its dtype beside its interface, as most libraries' do."""

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.array.dtype
        return dtype


def test_every_family_computes_what_numpy_does(computing: FakeDevice) -> None:
    matrix = arange(33, 65)
    assert gen.load(SUM, device=computing)(matrix) == matrix.sum()
    assert np.array_equal(gen.load(TRANSPOSE, device=computing)(matrix), matrix.T)
    smooth = gen.load(FAMILIES[2].catalogue[0], device=computing)(matrix)
    wide = np.pad(matrix, 1)
    assert np.array_equal(
        smooth, wide[1:-1, 1:-1] / 2 + (wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]) / 8
    )


INTO = [
    ("sum", "f32", np.float64), ("sum", "float16", np.float32), ("sum", "int8", np.float64),
    ("prod", "uint8", np.float64),
    ("max", "f32", np.float64), ("min", "int8", np.int32), ("mean", "float16", np.float64), ("any", "uint8", np.int8),
]  # fmt: skip


@pytest.mark.parametrize(("op", "elements", "into"), INTO)
def test_a_result_goes_into_an_array_of_a_type_that_holds_it(
    op: str, elements: str, into: Any, computing: FakeDevice
) -> None:
    spec = gen.reduction(op, elements, axis=1)
    array = np.array([[3, 5, 2], [1, 100, 27]]).astype(spec.dtype.numpy)
    kernel = gen.load(spec, device=computing)
    out = np.zeros(2, into)
    assert kernel(array, out=out) is out
    np.testing.assert_array_equal(out, getattr(np, op)(array, axis=1, out=np.zeros(2, into)))
    assert kernel(array).dtype == spec.result.numpy  # as before


def test_a_sum_into_a_wider_type_is_added_in_it(computing: FakeDevice) -> None:
    array, out = np.array([2.0**24, 1, 1], np.float32), np.zeros((), np.float64)
    gen.load(SUM, device=computing)(array, out=out)
    assert out == 2.0**24 + 2


@pytest.mark.parametrize(
    ("spec", "into", "rule"),
    [
        ("sum_f64", "f4", r"f64 elements, or those of a type that holds every f64 \(got f32\)"),
        ("sum_f32", "f2", r"f32 elements, or those of a type that holds every f32 \(got f16\)"),
        ("sum_i32", "i4", r"i64 elements, or those of a type that holds every i64 \(got i32\)"),
        ("max_i16", "u2", r"i16 elements, or those of a type that holds every i16 \(got u16\)"),
        ("argmax_f32", "i4", r"i64 elements, or those of a type that holds every i64 \(got i32\)"),
    ],
)
def test_an_output_that_would_lose_the_result_is_refused(
    spec: str, into: str, rule: str, computing: FakeDevice
) -> None:
    kernel = gen.load(f"reduction_{spec}", device=computing)
    elements = np.ones(5, spec[-3] + str(int(spec[-2:]) // 8))
    with pytest.raises(ShapeError, match=rf"^out must hold {rule}. Pass one that does, or none: then it is made$"):
        kernel(elements, out=np.zeros((), into))
    assert not computing.launched


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (1, 1), (1, 7), (7, 1)])
def test_empty_and_thin_arrays(computing: FakeDevice, shape: tuple[int, int]) -> None:
    assert gen.load(SUM, device=computing)(arange(*shape)) == arange(*shape).sum()
    assert np.array_equal(gen.load(TRANSPOSE, device=computing)(arange(*shape)), arange(*shape).T)


def test_numpy_results_are_numpy_and_wait_for_the_device(computing: FakeDevice) -> None:
    total = gen.load(SUM, device=computing)(arange(5), stream=7)
    assert type(total) is np.float32
    assert computing.synchronized == [7]
    out = np.zeros((5, 3), np.float32)
    assert gen.load(TRANSPOSE, device=computing)(arange(3, 5), out=out) is out
    assert np.array_equal(out, arange(3, 5).T)
    assert computing.depth == 0


def test_pitched_numpy_arrays_are_read_and_written_in_their_places(computing: FakeDevice) -> None:
    whole, room = arange(10, 12), np.full((9, 9), -1, np.float32)
    gen.load(TRANSPOSE, device=computing)(whole[2:6, 3:8], out=room[1:6, 2:6])
    assert np.array_equal(room[1:6, 2:6], whole[2:6, 3:8].T)
    assert (room == -1).sum() == 81 - 20


PACKED = np.dtype([("tag", "u1"), ("value", "f4")])


def packed(*shape: int) -> Array:
    """The fields of records without padding: no address or stride is a multiple of their size."""
    field = np.zeros(shape, PACKED)["value"]
    field[...] = arange(*shape)
    return field


@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 6), (1, 6), (4, 1)])
def test_fields_of_packed_records_are_read_and_written(computing: FakeDevice, shape: tuple[int, ...]) -> None:
    assert gen.load(SUM, device=computing)(packed(*shape)) == arange(*shape).sum()
    if len(shape) == 2:
        kernel, out = gen.load(TRANSPOSE, device=computing), packed(*shape[::-1])
        assert kernel(packed(*shape), out=out) is out
        assert np.array_equal(out, arange(*shape).T)
        square = packed(7, 7)
        assert gen.load(gen.permutation(in_place=True), device=computing)(square) is square
        assert np.array_equal(square, arange(7, 7).T)


def test_elements_that_start_anywhere_are_read_and_written(computing: FakeDevice) -> None:
    given, out = (np.zeros(4 * 24 + 1, np.uint8)[1:].view(np.float32) for _ in range(2))
    given[:] = arange(24)
    assert gen.load(SUM, device=computing)(given) == arange(24).sum()
    gen.load(TRANSPOSE, device=computing)(given.reshape(4, 6), out=out.reshape(6, 4))
    assert np.array_equal(out.reshape(6, 4), arange(4, 6).T)


def test_moved_elements_keep_their_type(computing: FakeDevice) -> None:
    whole = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert gen.load(TRANSPOSE, device=computing)(whole).dtype == np.int32
    with pytest.raises(ShapeError, match=r"out must hold int32 elements \(got float32\). Pass one that does, or none"):
        gen.load(TRANSPOSE, device=computing)(whole, out=np.empty((3, 2), np.float32))


def test_device_arrays_are_used_in_place_and_not_waited_for(computing: FakeDevice) -> None:
    matrix, out = arange(4, 6), np.zeros((6, 4), np.float32)
    kernel = gen.load(TRANSPOSE, device=computing)
    given = OnDevice(out)
    assert kernel(OnDevice(matrix), out=given) is given
    assert np.array_equal(out, matrix.T)
    made = kernel(OnDevice(matrix), stream=5)
    assert isinstance(made, DeviceArray)
    assert made.shape == (6, 4)
    assert made.__cuda_array_interface__["stream"] == 5
    assert computing.synchronized == []
    assert np.array_equal(made.numpy(), matrix.T)
    assert np.array_equal(kernel(made).numpy(), matrix)  # its interface is read as anybody's
    assert "shape=(6, 4)" in repr(made)


@pytest.mark.parametrize("shape", [(), (6,), (2, 3), (2, 3, 4)])
def test_an_interface_without_strides_is_of_elements_that_follow_each_other(shape: tuple[int, ...]) -> None:
    given = read("in", SimpleNamespace(__cuda_array_interface__={
        "shape": shape, "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3,
    }))  # fmt: skip
    assert (given.address, given.shape) == (4096, shape)
    assert given.strides == np.empty(shape, np.float32).strides


def test_elements_whose_interface_says_but_their_size_are_what_their_array_says(computing: FakeDevice) -> None:
    matrix = arange(4, 6)
    narrow = gen.load(gen.permutation(dtype="f4", to="bfloat16"), device=computing)(OnDevice(matrix))
    assert narrow.__cuda_array_interface__["typestr"][1:] == "V2"
    turned = gen.load(gen.permutation(dtype="bfloat16"), device=computing)(narrow)
    assert turned.dtype == narrow.dtype
    assert np.array_equal(turned.numpy().astype(np.float32), matrix)
    assert gen.load(gen.reduction("sum", "bf16", dtype="f32"), device=computing)(turned).numpy() == matrix.sum()
    record = np.dtype([("tag", "u1"), ("more", "u1", 3)])
    made = gen.load(gen.permutation(dtype=record), device=computing)(TypedOnDevice(matrix.view(record)))
    assert made.dtype == record
    assert made.numpy().tobytes() == np.ascontiguousarray(matrix.T).tobytes()
