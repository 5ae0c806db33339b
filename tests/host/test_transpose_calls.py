"""Calls of transposes: in place, into pitched rows, from any element on, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import GenError
from gen.families.transpose import TransposeSpec, permutation
from gen.proof.host import HostRunner
from tests.fake_device import FakeDevice, FakeMemory, OnDevice


@pytest.fixture
def device(host_runner: HostRunner) -> FakeDevice:
    """Launches run the emitted text on the CPU."""
    return FakeDevice(host_runner)


def load(spec: TransposeSpec, device: FakeDevice, home: Path) -> Any:
    return gen.load(spec, device=device, home=home)


def test_square_matrices_change_in_place_and_are_returned(device: FakeDevice, tmp_path: Path) -> None:
    stack = np.arange(3 * 37 * 37, dtype=np.float32).reshape(3, 37, 37)
    turned = stack.transpose(0, 2, 1).copy()
    assert load(permutation((0, 2, 1), in_place=True), device, tmp_path)(stack) is stack
    assert np.array_equal(stack, turned)
    memory = FakeMemory(40 * 48)
    rows = memory.view((40, 48), np.uint8)
    rows[...] = np.arange(40 * 48).reshape(40, 48) % 251
    before = rows.copy()
    matrix = OnDevice(rows[:, 3:43])  # pitched, and begins at any element
    assert load(permutation(dtype="u1", in_place=True), device, tmp_path)(matrix) is matrix
    before[:, 3:43] = before[:, 3:43].T.copy()
    assert np.array_equal(rows, before)


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "c16"])
def test_rows_of_both_arrays_may_be_pitched_and_begin_at_any_element(
    dtype: str, device: FakeDevice, tmp_path: Path
) -> None:
    there = FakeMemory(70 * 50 * 16).view((50, 70), dtype)
    there[...] = np.arange(50 * 70).reshape(50, 70) % 120
    here = FakeMemory(60 * 70 * 16).view((66, 60), dtype)
    here[...] = 7
    load(permutation(dtype=dtype), device, tmp_path)(OnDevice(there[:, 3:69]), out=OnDevice(here[:, 5:55]))
    assert np.array_equal(here[:, 5:55], there[:, 3:69].T)
    assert (here[:, :5] == 7).all()
    assert (here[:, 55:] == 7).all()


def test_structured_elements_keep_their_type_and_their_bits(device: FakeDevice, tmp_path: Path) -> None:
    record = np.dtype([("tag", "u1"), ("value", "<f4"), ("more", "u1", 3)])
    # Packed records are aligned to 1: they may begin at any byte.
    records = np.frombuffer(np.random.default_rng(1).bytes(1 + 5 * 9 * 8), record, offset=1).reshape(5, 9)
    turned = load(permutation(dtype=record), device, tmp_path)(records)
    assert turned.dtype == record
    assert turned.tobytes() == np.ascontiguousarray(records.T).tobytes()


def test_what_lies_between_the_fields_of_records_is_moved_too(device: FakeDevice, tmp_path: Path) -> None:
    padded = np.dtype([("tag", "u1"), ("value", "<f4")], align=True)  # 3 of its 8 bytes are no field's
    records = np.random.default_rng(1).integers(1, 256, 6 * 9 * 8, np.uint8).view(padded).reshape(6, 9)
    kernel = load(permutation(dtype=padded), device, tmp_path)
    for rows in (records, records[:, :5], records[::2, 1:4]):
        turned = np.ascontiguousarray(rows.view("V8").T).tobytes()
        out = np.zeros((rows.shape[1], rows.shape[0] + 2), padded)[:, 1:-1]
        assert kernel(rows, out=out) is out
        assert np.ascontiguousarray(out.view("V8")).tobytes() == turned
        assert kernel(rows).tobytes() == turned
    square = records[:, :6]
    turned = np.ascontiguousarray(square.view("V8").T).tobytes()
    load(permutation(dtype=padded, in_place=True), device, tmp_path)(square)
    assert np.ascontiguousarray(square.view("V8")).tobytes() == turned


@pytest.mark.parametrize("strides", [(12, 4), (14, 4), (18, 4), (4, 14), (17, 3), (4, 4), (0, 4), (-14, 4), (5, 17)])
def test_arrays_whose_elements_overlap_are_not_written(
    strides: tuple[int, int], device: FakeDevice, tmp_path: Path
) -> None:
    matrix = np.arange(16, dtype=np.float32).reshape(4, 4)
    memory = np.zeros(400, np.uint8)
    out = np.ndarray((4, 4), np.float32, memory.data, 100 if min(strides) < 0 else 0, strides)
    places = np.add.outer(np.add.outer(np.arange(4) * strides[0], np.arange(4) * strides[1]), np.arange(4))
    turn, turn_in_place = load(permutation(), device, tmp_path), load(permutation(in_place=True), device, tmp_path)
    if len(np.unique(places)) == places.size:
        assert np.array_equal(turn(matrix, out=out), matrix.T)
        return
    with pytest.raises(GenError, match=r"^out must .*(apart|overlap)"):
        turn(matrix, out=out)
    with pytest.raises(GenError, match=r"^data must .*(apart|overlap)"):
        turn_in_place(out)
    assert not memory.any()


def test_arrays_of_numpy_may_begin_wherever_numpy_aligns_their_elements(device: FakeDevice, tmp_path: Path) -> None:
    pair = np.dtype([("first", "<f4"), ("second", "<f4")], align=True)
    numbers = np.arange(64, dtype=np.uint32)
    for dtype in (np.dtype("c8"), np.dtype("c16"), pair):
        for start in (1, 2, 3):
            matrix, room = (part[start : start + 24].view(dtype).reshape(3, -1) for part in (numbers, 0 * numbers))
            if matrix.flags.aligned:  # c16 to 8 bytes on some machines, to 16 on others
                assert load(permutation(dtype=dtype), device, tmp_path)(matrix, out=room.reshape(-1, 3)) is not None
                assert room.tobytes() == np.ascontiguousarray(matrix.T).tobytes()


def test_results_of_another_type_are_made_as_that_type(device: FakeDevice, tmp_path: Path) -> None:
    source = np.linspace(-3, 3, 33 * 20, dtype=np.float32).reshape(33, 20)
    half = load(permutation(dtype="f4", to="f2", alpha=0.5), device, tmp_path)(source)
    assert half.dtype == np.float16
    assert np.array_equal(half, (source.T * np.float32(0.5)).astype(np.float16))
    waves = (source + 1j * source[::-1]).astype(np.complex64)
    assert np.array_equal(load(permutation(dtype="c8", conjugate=True), device, tmp_path)(waves), waves.conj().T)


def test_a_call_in_which_nothing_moves_is_a_copy_and_says_so(device: FakeDevice, tmp_path: Path) -> None:
    kernel = load(permutation(), device, tmp_path)
    assert "nothing moves: a copy" in kernel.why_for((1, 4096))
    assert "__row_copy_" in kernel.variant_for((1, 4096))
    assert "nothing moves" not in kernel.why_for((64, 4096))


def test_what_cannot_be_is_refused_before_anything_is_launched(device: FakeDevice, tmp_path: Path) -> None:
    memory = FakeMemory(64 * 65 * 4)
    source = memory.view((64, 65), np.float32)
    kernel = load(permutation(), device, tmp_path)
    for out, says in (
        (memory.view((65, 64), np.float32), "out must not overlap in"),
        (FakeMemory(64 * 65 * 4).view((64, 65), np.float32), "out must have 65 cols (got (64, 65))"),
        (FakeMemory(64 * 65 * 8).view((65, 64), np.float64), "out must hold elements of 4 bytes"),
        (FakeMemory(64 * 65 * 8).view((65, 128), np.float32)[:, ::2], "out must have elements 4 bytes apart"),
    ):
        with pytest.raises(GenError) as caught:
            kernel(OnDevice(source), out=OnDevice(out))
        assert says in str(caught.value)
    with pytest.raises(GenError, match="data must have 64 rows"):
        load(permutation(in_place=True), device, tmp_path)(OnDevice(source))
    with pytest.raises(GenError, match="data must hold c64 elements"):
        load(permutation(dtype="c8", conjugate=True, in_place=True), device, tmp_path)(np.zeros((3, 3)))
    odd = OnDevice(FakeMemory(64).view((2, 3), "u8", offset=4))
    with pytest.raises(GenError, match="in must start at, and step by, a multiple of 8 bytes"):
        load(permutation(dtype="f8"), device, tmp_path)(odd)
    fixed = np.zeros((3, 3), np.float32)
    fixed.flags.writeable = False
    with pytest.raises(GenError, match="data must be writable"):
        load(permutation(in_place=True), device, tmp_path)(fixed)
    assert not device.launched


@pytest.mark.parametrize("step", [0, 12, -20])
def test_rows_that_lie_on_each_other_are_refused_whichever_axis_parts_them(
    step: int, device: FakeDevice, tmp_path: Path
) -> None:
    memory, room = (FakeMemory(400).view((100,), np.float32) for _ in range(2))
    rows = np.lib.stride_tricks.as_strided(room[40:], (4, 1, 5), (step, 20, 4))
    turn = load(permutation((1, 0, 2)), device, tmp_path)
    with pytest.raises(
        GenError, match=rf"out must have rows a multiple of 4 and at least 20 bytes apart \(got {step}\)"
    ):
        turn(OnDevice(memory[:20].reshape(1, 4, 5)), out=OnDevice(rows))
    with pytest.raises(GenError, match="in must have rows a multiple of 4 and at least 20 bytes apart"):
        turn(OnDevice(rows))
    assert not device.launched
