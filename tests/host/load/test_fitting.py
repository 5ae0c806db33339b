"""A winner is used at the sizes that it is made for: others of its shape class get what is made for them."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import gen
from tests.fake_device import FakeDevice, OnDevice
from tests.host.load.given import TRANSPOSE, tuned, winner

FEW = "few columns"
ROWS = 1 << 20  # so many that pieces of several KiB fill a large device
BY_VECTORS = f"{TRANSPOSE}__vector_tile_v16_x8_g16_swz_ocol_ldg"
OF_16 = f"{TRANSPOSE}__interleave_cols_n16_tpb64_stel"
OF_3, ANY = f"{TRANSPOSE}__interleave_cols_n3_tpb128_stel", f"{TRANSPOSE}__skinny_cols_b16384_tpb256"
NOTHING = f"because nothing is tuned for {TRANSPOSE} ({FEW}) on Fake GPU; gen tune {TRANSPOSE} would find the fastest"


def test_untuned_it_is_what_is_made_for_as_many_columns(backend: FakeDevice) -> None:
    kernel = gen.load(TRANSPOSE, device=backend)
    for cols in (2, 3, 4, 8, 16):
        assert kernel.variant_for((ROWS, cols)) == f"{TRANSPOSE}__interleave_cols_n{cols}_tpb128_stel"
        assert kernel.why_for((ROWS, cols)) == f"what is often fast, {NOTHING}"
    assert kernel.variant_for((ROWS, 12)) == ANY
    assert kernel.variant_for((ROWS, 5)) == ANY
    assert "__interleave_" not in kernel.variant_for((ROWS - 1, 3))  # a column of the output begins between vectors
    assert kernel.why_for((ROWS, 5)) == f"base, {NOTHING}"


def test_a_winner_that_would_move_elements_one_by_one(
    backend: FakeDevice, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gen")
    home = tuned(tmp_path, winner(BY_VECTORS, spec=TRANSPOSE, shape=FEW))
    kernel = gen.load(TRANSPOSE, device=backend, home=home)
    assert kernel.variant_for((ROWS, 16)) == kernel.variant_for((ROWS, 32)) == BY_VECTORS
    assert kernel.variant_for((ROWS, 3)) == OF_3
    why = kernel.why_for((ROWS, 3))
    assert why.startswith(f"what is often fast, because {BY_VECTORS} would take ")
    assert "by estimate" in why
    assert kernel.variant_for((ROWS, 17)) == ANY
    assert kernel.why_for((ROWS, 17)).startswith(f"base, because {BY_VECTORS} would take ")
    assert f"{BY_VECTORS} would take " in caplog.text
    assert f". {OF_3} is used" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_a_winner_that_takes_other_sizes(backend: FakeDevice, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kernel = gen.load(TRANSPOSE, device=backend, home=tuned(tmp_path, winner(OF_16, spec=TRANSPOSE, shape=FEW)))
    assert kernel.variant_for((ROWS, 16)) == OF_16
    assert kernel.variant_for((ROWS, 3)) == OF_3
    assert kernel.variant_for((ROWS, 5)) == ANY
    assert kernel.why_for((ROWS, 5)) == (
        f"base, because {OF_16} cannot take these sizes: there are 5 cols; it supports only 16"
    )
    assert f"{OF_16} cannot take these sizes: there are 3 cols; it supports only 16. {OF_3} is used" in caplog.text


def test_what_was_measured_for_a_part_of_a_class_is_used_there(backend: FakeDevice, tmp_path: Path) -> None:
    part = winner(BY_VECTORS, spec=TRANSPOSE, shape=FEW, within={"cols": [0, 3]})
    kernel = gen.load(TRANSPOSE, device=backend, home=tuned(tmp_path, part))
    assert kernel.variant_for((ROWS, 3)) == BY_VECTORS
    assert kernel.variant_for((ROWS, 4)) == f"{TRANSPOSE}__interleave_cols_n4_tpb128_stel"


def test_an_array_between_vectors_gets_another_kernel(backend: FakeDevice, tmp_path: Path) -> None:
    home = tuned(tmp_path, winner(BY_VECTORS, spec=TRANSPOSE, shape=FEW))
    kernel = gen.load(TRANSPOSE, device=backend, home=home)
    rows = ROWS // 8
    memory = np.zeros(rows * 16 + 8, np.float32)
    start = -memory.__array_interface__["data"][0] % 16 // 4
    for place, aligned in ((0, True), (1, False), (2, False), (4, True)):
        kernel(OnDevice(memory[start + place : start + place + rows * 16].reshape(rows, 16)))
        assert (backend.launched[-1].variant == BY_VECTORS) is aligned


def shifted(*shape: int, by: int) -> OnDevice:
    """An array whose address is so many elements behind a multiple of 16 bytes."""
    memory = np.zeros(int(np.prod(shape)) + 8, np.float32)
    start = -memory.__array_interface__["data"][0] % 16 // 4 + by
    return OnDevice(memory[start : start + int(np.prod(shape))].reshape(shape))


def test_aligned_rows_at_addresses_between_vectors_are_odd_rows(backend: FakeDevice, tmp_path: Path) -> None:
    aligned, odd = (
        f"{TRANSPOSE}__{tag}" for tag in ("vector_tile_v16_x16_g16_swz_ocol_ldg", "window_tile_t64_c64_w16_ocol")
    )
    home = tuned(
        tmp_path,
        winner(aligned, spec=TRANSPOSE, shape="aligned rows"), winner(odd, spec=TRANSPOSE, shape="odd rows"),
    )  # fmt: skip
    kernel = gen.load(TRANSPOSE, device=backend, home=home)
    for by, variant in ((0, aligned), (1, odd), (2, odd), (4, aligned)):
        kernel(shifted(1024, 2048, by=by))
        assert backend.launched[-1].variant == variant
    kernel(shifted(1024, 2048, by=0), out=shifted(2048, 1024, by=3))
    assert backend.launched[-1].variant == odd


def test_in_place_too(backend: FakeDevice) -> None:
    spec = gen.permutation((1, 0), "float32", in_place=True)
    kernel = gen.load(spec, device=backend)
    for by, tag in ((0, "v16_"), (1, "v4_"), (2, "v4_"), (4, "v16_")):
        kernel(shifted(1024, 1024, by=by))
        assert tag in backend.launched[-1].variant
