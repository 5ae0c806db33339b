"""Matrices on several devices, transposed: NumPy's transposes, whatever the split and the order of streams."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import ArgumentError, RunError, ShapeError
from gen.families.base import Array
from gen.families.stencil import Stencil
from gen.runtime.simulated import Machine
from tests.fakes import OracleRunner
from tests.sharding import changed

HEAT = Stencil.catalogue[0]
SPEC = gen.permutation((1, 0), "float32")


def matrix(rows: int, cols: int, dtype: str = "float32") -> Array:
    return np.arange(rows * cols).reshape(rows, cols).astype(dtype)


def cut(extent: int, ranks: int, seed: int) -> tuple[int, ...]:
    places = np.random.default_rng(seed).choice(np.arange(1, extent), ranks - 1, replace=False)
    return tuple(np.diff([0, *sorted(places), extent]).tolist())


def turned(seed: int, ranks: int, dtype: str = "float32", load: Any = gen.load, peer_access: bool = True) -> bool:
    """Whether a matrix is turned, turned back, and another one turned to where the first transpose was."""
    rows, cols = 11 + 3 * ranks, 9 + 5 * ranks
    devices = Machine(seed=seed, runner=OracleRunner()).devices(ranks, peer_access=peer_access)
    kernel = load(gen.permutation((1, 0), dtype), devices=devices)
    one, other = matrix(rows, cols, dtype), matrix(rows, cols, dtype)[::-1, ::-1]
    split = [cut(rows, ranks, seed), (cols,)]
    first, second = (kernel.scatter(found, split) for found in (one, other))
    out = kernel.scatter(one.T * 0, [cut(cols, ranks, seed + 1), (rows,)])
    kernel(first, out=out)
    back, transposed = kernel(out), kernel(first)
    if dtype == "float32":  # which reads what is then written by others
        load(HEAT, devices=devices)(out, steps=1)
    kernel(second, out=out)
    found = [array.gather() for array in (out, back, transposed)]
    return all(np.array_equal(got, wanted) for got, wanted in zip(found, (other.T, one, one.T), strict=True))


@pytest.mark.parametrize("ranks", range(1, 9))
def test_any_split_gives_numpys_transpose(ranks: int) -> None:
    assert turned(ranks, ranks, ("float32", "int16", "complex64", "uint8")[ranks % 4])


def test_devices_without_a_way_to_each_other_copy_blocks() -> None:
    assert turned(3, 3, peer_access=False)


def test_the_emitted_kernels_turn_and_convert() -> None:
    cells = np.random.default_rng(0).random((45, 70), np.float32)
    for spec, wanted in ((SPEC, cells.T), (gen.permutation((1, 0), "float32", to="float16"), cells.T.astype("f2"))):
        machine = Machine(seed=2)
        kernel = gen.load(spec, devices=machine.devices(3))
        found = kernel(kernel.scatter(cells)).gather()
        assert (found.dtype, found.tobytes()) == (wanted.dtype, wanted.tobytes()), machine


def test_what_is_wrong_is_said() -> None:
    devices = Machine(seed=0, runner=OracleRunner()).devices(3)
    for spec in (gen.permutation((0, 2, 1), "float32"), gen.permutation((1, 0), "float32", in_place=True)):
        with pytest.raises(ArgumentError, match="must turn a matrix, not in place, to be computed on several devices"):
            gen.load(spec, devices=devices)
    kernel = gen.load(SPEC, devices=devices)
    array = kernel.scatter(matrix(4, 6))
    with pytest.raises(ShapeError, match=r"in must have a column for each of 3 ranks \(got 2\)"):
        kernel(kernel.scatter(matrix(4, 2)))
    with pytest.raises(ArgumentError, match="out must not be the array that in is"):
        kernel(array, out=array)
    with pytest.raises(ShapeError, match=r"out must have shape \(6, 4\)"):
        kernel(array, out=kernel.empty((4, 6), dtype="float32"))
    with pytest.raises(ShapeError, match="out must hold float32 elements"):
        kernel(array, out=kernel.scatter(matrix(6, 4, "int32")))
    with pytest.raises(ShapeError, match="array must hold b32 elements"):
        kernel.scatter(matrix(4, 6, "float64"))
    assert repr(kernel) == "<gen kernel transpose_10_b32 on 3 x 1 ranks>"


MUTANTS = {
    "a rank stores before others are ready": ("in enumerate(free):", "in ():"),
    "a rank does not wait for what others store": ("in enumerate(done):", "in ():"),
    "columns begin at the first": ("+ low * size", "+ 0 * size"),
    "rows go to the first columns": ("+ first * out_size", "+ 0 * out_size"),
    "rows follow each other as in the block": ("array.shape[1], out.shape[1])", "array.shape[1], end - first)"),
    "blocks go to the neighbour": ("(number + turn) % len(self.ranks))", "(number + turn) % 2)"),
    "devices without a way use each other's memory": ("if self.reaches(rank, target):", "if True:"),
    "blocks are copied without a pitch": ("row, pitch = block.rows * out_size, out.shape[1] * out_size",
                                          "row = pitch = block.rows * out_size"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_caught(name: str) -> None:
    load = changed("runtime.sharded_transpose", *MUTANTS[name])
    for peer_access in (True, False):
        for order in range(3):
            with suppress(RunError):
                if turned(order, 3, load=load, peer_access=peer_access):
                    continue
            return
    pytest.fail("not caught")
