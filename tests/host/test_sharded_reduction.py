"""Arrays on several devices reduced to one number: the same bits for any number of them, and any split."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import ArgumentError, RunError, ShapeError
from gen.families.base import Array
from gen.families.reduction import ReductionSpec
from gen.families.stencil import Stencil
from gen.runtime.sharded_reduction import FINAL, UNITS, rows_of_unit
from gen.runtime.simulated import Machine
from tests.fakes import OracleRunner
from tests.sharding import changed

HEAT = Stencil.catalogue[0]
SUM = gen.reduction("sum", "float32")


def cells_of(shape: tuple[int, ...], dtype: str = "float32", seed: int = 1) -> Array:
    random = np.random.default_rng(seed)
    return np.asarray(random.integers(-9, 10, shape).astype(dtype))


def cut(rows: int, ranks: int, seed: int) -> tuple[int, ...]:
    """Rows of each rank."""
    places = np.random.default_rng(seed).choice(np.arange(1, rows), ranks - 1, replace=False)
    return tuple(np.diff([0, *sorted(places), rows]).tolist())


def reduced(
    cells: Array, extents: Sequence[int], seed: int, spec: ReductionSpec = SUM, load: Any = gen.load, turns: int = 2
) -> list[Array]:
    """The results of several arrays in a row, of which the later ones are the first, turned."""
    machine = Machine(seed=seed, runner=OracleRunner())
    kernel = load(spec, devices=machine.devices(len(extents)))
    arrays = [np.roll(cells, 7 * turn, axis=0) for turn in range(turns)]
    split = [tuple(extents), *((extent,) for extent in cells.shape[1:])]
    scattered = [kernel.scatter(array, split) for array in arrays]
    return [found.numpy() for found in [kernel(array) for array in scattered]]  # the first call is not waited for


@pytest.mark.parametrize("ranks", range(1, 9))
def test_any_split_gives_what_numpy_gives(ranks: int) -> None:
    for seed, shape in enumerate(((5000,), (500, 5), (70, 3, 64), (9,))):
        cells = cells_of(shape, seed=seed)
        found = reduced(cells, cut(shape[0], ranks, seed), seed)
        assert [float(one) for one in found] == [float(cells.sum())] * 2


@pytest.mark.parametrize("operator", FINAL)
def test_operators(operator: str) -> None:
    for dtype in ("float32", "int16", "bool"):
        cells = cells_of((700, 3), dtype)
        if operator == "prod":
            cells = np.where(cells == 0, cells, 1).astype(dtype)
        spec = gen.reduction(operator, dtype)
        (found,) = reduced(cells, (300, 150, 250), 0, spec, turns=1)
        wanted = np.asarray(getattr(np, operator)(cells))
        assert (found.dtype, found.shape) == (spec.result.numpy, ())
        assert found == wanted


def test_the_emitted_kernels_give_the_same_bits_for_any_number_of_devices() -> None:
    cells = np.random.default_rng(0).random(9000, np.float32)
    found = []
    for ranks in (1, 2, 5):
        kernel = gen.load(SUM, devices=Machine(seed=ranks).devices(ranks))
        found.append(kernel(kernel.scatter(cells, [cut(9000, ranks, ranks)])).numpy())
    assert len({one.tobytes() for one in found}) == 1
    assert abs(float(found[0]) - cells.sum(dtype=np.float64)) < 1e-2


def test_units_follow_from_the_shape_and_begin_at_aligned_bytes() -> None:
    assert rows_of_unit((1 << 28,), 4) == 1 << 22
    for shape, size in (((5000,), 4), ((500, 5), 4), ((70, 3, 64), 2), ((1 << 20, 3), 1)):
        rows = rows_of_unit(shape, size)
        assert rows * size * int(np.prod(shape[1:])) % 256 == 0
        assert -(-shape[0] // rows) <= UNITS


def test_what_a_stencil_has_computed_is_reduced_on_the_same_devices() -> None:
    devices = Machine(seed=0, runner=OracleRunner()).devices(3)
    heat, total = gen.load(HEAT, devices=devices), gen.load("reduction_max_f32", devices=devices)
    cells = np.random.default_rng(0).random((50, 6), np.float32)
    array = heat(heat.scatter(cells), steps=5)
    found = total(array)
    assert found.numpy() == array.gather().max()
    assert repr(total) == "<gen kernel reduction_max_f32 on 3 ranks>"


def test_what_is_wrong_is_said() -> None:
    devices = Machine(seed=0, runner=OracleRunner()).devices(2)
    load: Any = gen.load
    several, along = gen.reduction(("min", "max")), gen.reduction("sum", axis=0)
    for spec in (gen.reduction("var"), gen.reduction("argmin"), several, along):
        with pytest.raises(ArgumentError, match=r"must be one of sum, .* of a whole array to be computed on several"):
            gen.load(spec, devices=devices)
    with pytest.raises(ArgumentError, match=r"must have a result that holds partial results, not f16.* dtype="):
        gen.load(gen.reduction("sum", "float16"), devices=devices)
    assert reduced(cells_of((90,), "float16"), (40, 50), 0, gen.reduction("sum", "float16", dtype="float32"))
    with pytest.raises(ArgumentError, match=r"grid must not be given for a reduction or a transpose \(got \(2,\)\)"):
        load(SUM, devices=devices, grid=(2,))
    kernel = gen.load(SUM, devices=devices)
    with pytest.raises(ShapeError, match="The array must have elements to be split"):
        kernel.empty((4, 0))
    with pytest.raises(ShapeError, match="The array must have rows for each of 2 ranks"):
        kernel.scatter(np.zeros((1, 5), np.float32))
    columns = gen.load(HEAT, devices=devices, grid=(1, 2))
    with pytest.raises(ShapeError, match="in must be split among 2 ranks"):
        kernel(columns.scatter(np.zeros((4, 4), np.float32)))


MUTANTS = {
    "a rank does not wait for rows of others": ("rank.device.wait_for(rank.main.handle, sent)", "pass"),
    "rows are sent while others are reduced": ("sender.device.wait_for(sender.main.handle, room.read)", "pass"),
    "the first device does not wait": ("first.device.wait_for(first.main.handle, sent)", "pass"),
    "results are sent while others are reduced": ("rank.device.wait_for(rank.main.handle, layout.read)", "pass"),
    "rows go to the first place": ("(piece.first - pieces[0].first) * row, size", "0 * row, size"),
    "results go to the first place": ("place += count * size", "place += 0"),
    "a unit lacks a row": ("(pieces[-1].end - pieces[0].first) * row", "(pieces[-1].end - pieces[0].first - 1) * row"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_caught(name: str) -> None:
    load = changed("runtime.sharded_reduction", *MUTANTS[name])
    cells = cells_of((500, 5))
    for order in range(3):
        with suppress(RunError):
            found = reduced(cells, (130, 170, 200), order, load=load)
            if [float(one) for one in found] == [float(cells.sum())] * 2:
                continue
        return
    pytest.fail("not caught")
