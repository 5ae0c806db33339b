"""Arrays on several devices reduced: the same bits for any number of them, and any split."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import ArgumentError, RunError, ShapeError, SpecError
from gen.families.base import Array
from gen.families.reduction import Reduction, ReductionSpec
from gen.families.reduction.operators import OPERATORS, SEVERAL, WITH_PLACES
from gen.families.stencil import Stencil
from gen.runtime.processes import Processes
from gen.runtime.sharded import ShardedArray
from gen.runtime.sharded_reduction import LEAST_ROWS, UNITS, is_exact, rows_of_unit
from gen.runtime.simulated import Machine, SimulatedDevice
from tests.fakes import OracleRunner
from tests.host.test_processes import device, together, with_processes
from tests.host.test_sharded_transpose import placed
from tests.sharding import changed, same

HEAT = Stencil.catalogue[0]
SUM, PLACE = gen.reduction("sum", "float32"), gen.reduction(("argmax", "max"), "float32")
ALONG = gen.reduction("mean", "float32", axis=1, keepdims=True)
EMITTED = (SUM, PLACE, ALONG, gen.reduction("var", "float16"), gen.reduction("norm", axis=0))
SHAPES = {1: (5000,), 2: (500, 5), 3: (70, 3, 64)}


def cells_of(shape: tuple[int, ...], dtype: str = "float32", seed: int = 1) -> Array:
    random = np.random.default_rng(seed)
    return np.asarray(random.integers(-9, 10, shape).astype(dtype))


def cut(rows: int, ranks: int, seed: int) -> tuple[int, ...]:
    """Rows of each rank."""
    places = np.random.default_rng(seed).choice(np.arange(1, rows), ranks - 1, replace=False)
    return tuple(np.diff([0, *sorted(places), rows]).tolist())


def bits(found: Any) -> list[Array]:
    """The results of a call."""
    results = found if isinstance(found, tuple) else (found,)
    return [one.gather() if hasattr(one, "gather") else one.numpy() for one in results]


def reduced(
    cells: Array, extents: Sequence[int], seed: int, spec: ReductionSpec = SUM, load: Any = gen.load, turns: int = 2,
    peer_access: bool = True,
) -> list[Array]:  # fmt: skip
    """The results of several arrays in a row, of which the later ones are the first, turned."""
    machine = Machine(seed=seed, runner=OracleRunner())
    kernel = load(spec, devices=machine.devices(len(extents), peer_access=peer_access))
    arrays = [np.roll(cells, 7 * turn, axis=0) for turn in range(turns)]
    split = [tuple(extents), *((extent,) for extent in cells.shape[1:])]
    scattered = [kernel.scatter(array, split) for array in arrays]
    calls = [kernel(array) for array in scattered]  # the first one is not waited for
    return [one for found in calls for one in bits(found)]


def right(cells: Array, spec: ReductionSpec, turns: int = 2) -> list[Array]:
    """What NumPy gives for them."""
    found = [Reduction().oracle(spec, {"in": np.roll(cells, 7 * turn, axis=0)}, {}) for turn in range(turns)]
    return [one[name].value.astype(dtype.numpy) for one in found for name, _, dtype in spec.results]


def near(found: Sequence[Array], wanted: Sequence[Array]) -> bool:
    """Whether they are those, but for the roundings of partial results."""
    return all(
        (one.shape, one.dtype) == (other.shape, other.dtype) and np.allclose(one, other, rtol=1e-5, equal_nan=True)
        for one, other in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("ranks", range(1, 9))
def test_any_split_gives_what_numpy_gives(ranks: int) -> None:
    for seed, shape in enumerate((*SHAPES.values(), (9,))):
        cells = cells_of(shape, seed=seed)
        found = reduced(cells, cut(shape[0], ranks, seed), seed)
        assert [float(one) for one in found] == [float(cells.sum())] * 2


@pytest.mark.parametrize("names", [*((name,) for name in OPERATORS), *SEVERAL.values(), *WITH_PLACES], ids="_".join)
def test_every_operator_along_any_axes(names: tuple[str, ...]) -> None:
    axes = [(1, None), (2, 0), (2, 1), (2, -1), (3, (0, 2)), (3, (1, 2)), (3, 0)]
    types = ("float32", "int16", "bool", "float64")
    for seed, ((rank, axis), dtype) in enumerate(product(axes, types)):
        if seed % 8 not in (0, 3, 5, 6) or (OPERATORS[names[0]].indexed and isinstance(axis, tuple)):
            continue  # two types along each
        cells = cells_of(SHAPES[rank], dtype, seed)
        if names == ("prod",):
            cells = np.where(cells == 0, cells, 1).astype(dtype)
        spec = gen.reduction(names, dtype, axis=axis, keepdims=seed % 2 == 1)
        ranks = seed % 8 + 1
        found = reduced(cells, cut(len(cells), ranks, seed), seed, spec, turns=1, peer_access=seed % 5 > 0)
        assert near(found, right(cells, spec, turns=1)), (spec, ranks, seed)


@pytest.mark.parametrize("spec", EMITTED, ids=lambda one: one.label)
def test_the_emitted_kernels_give_the_same_bits_for_any_number_of_devices(spec: ReductionSpec) -> None:
    cells = np.random.default_rng(0).standard_normal((300, 37)).astype(spec.dtype.numpy)
    found = []
    for ranks in (1, 2, 5):
        kernel = gen.load(spec, devices=Machine(seed=ranks).devices(ranks))
        found.append(bits(kernel(kernel.scatter(cells, [cut(300, ranks, ranks), (37,)]))))
    assert all(same(found[0], one) for one in found)
    assert near(found[0], right(cells, spec, turns=1)) or spec.dtype.size < 4


def split_anyhow(seed: int, load: Any = gen.load) -> bool:
    """Whether arrays that are split along any axes are reduced rightly, one after another."""
    random = np.random.default_rng(seed)
    ranks, axes = seed % 8 + 1, int(random.integers(1, 4))
    shape = tuple(int(n) for n in random.integers(ranks, 20, axes))
    names, dtype = (
        (("max",), ("sum",), ("argmax",), ("mean", "var"), ("any",))[seed % 5],
        ("float32", "int16")[seed % 2],
    )
    spec = gen.reduction(names, dtype, axis=None if seed % 3 else int(random.integers(0, axes)))
    machine = Machine(seed=seed, runner=OracleRunner())
    kernel = load(spec, devices=machine.devices(ranks, peer_access=seed % 4 > 0))
    several = [np.roll(cells_of(shape, dtype, seed), turn, axis=0) for turn in (0, 1, 0)]
    arrays = [placed(kernel, cells, seed + place) for place, cells in enumerate(several[:2])]
    calls = [kernel(arrays[place % 2]) for place in range(3)]
    return all(near(bits(call), right(cells, spec, turns=1)) for call, cells in zip(calls, several, strict=True))


@pytest.mark.parametrize("seeds", [range(start, start + 10) for start in range(0, 40, 10)], ids=str)
def test_arrays_that_are_split_along_any_axes(seeds: range) -> None:
    for seed in seeds:
        assert split_anyhow(seed), seed


def test_processes_reduce_and_permute_as_devices_do() -> None:
    cells, cube = cells_of((500, 5)), np.arange(13 * 9 * 6, dtype=np.float32).reshape(13, 9, 6)

    def work(processes: Processes) -> list[Array]:
        load = with_processes(processes)
        devices = [device(processes.rank)]
        kernels = [load(spec, devices=devices) for spec in (SUM, PLACE, ALONG)]
        arrays = [kernel.scatter(cells, [(130, 170, 200), (5,)]) for kernel in kernels]
        found = [one for kernel, array in zip(kernels, arrays, strict=True) for one in bits(kernel(array))]
        swap = load(gen.permutation((1, 0, 2), "float32"), devices=devices)
        array = ShardedArray(swap.ranks, ((0, 13), (0, 2, 7, 9), (0, 6)), cube.dtype)
        np.from_dlpack(array.shards[0])[...] = cube[array.slices[0]]
        return [*found, swap(array).gather(), *bits(kernels[0](array)), *bits(kernels[1](array))]

    whole = [one for spec in (SUM, PLACE) for one in right(cube, spec, turns=1)]
    wanted = [one for spec in (SUM, PLACE, ALONG) for one in right(cells, spec, turns=1)]
    for found in together(3, work):
        assert near(found, [*wanted, cube.swapaxes(0, 1), *whole])


def test_units_follow_from_the_shape_and_begin_at_aligned_bytes() -> None:
    assert rows_of_unit((1 << 28,), 4) == (1 << 28) // UNITS
    assert rows_of_unit((500, 64), 4, LEAST_ROWS) == LEAST_ROWS
    for shape, size in (((5000,), 4), ((500, 5), 4), ((70, 3, 64), 2), ((1 << 20, 3), 1)):
        rows = rows_of_unit(shape, size)
        assert rows * size * int(np.prod(shape[1:])) % 256 == 0
        assert -(-shape[0] // rows) <= UNITS


def test_results_that_are_not_rounded_need_no_units() -> None:
    exact: list[tuple[Any, str]] = [("sum", "int32"), ("mean", "int16"), ("argmax", "float32"), ("any", "bool")]
    assert all(is_exact(gen.reduction(*one)) for one in [*exact, (("argmin", "min"), "float64")])
    assert is_exact(gen.reduction("max", "float32"))
    assert not is_exact(gen.reduction("max", "float32"), kept=True)
    rounded: list[tuple[Any, str]] = [("sum", "float64"), ("norm", "float32"), ("var", "int32")]
    assert not any(is_exact(gen.reduction(*one)) for one in [*rounded, (("min", "mean"), "int32")])
    assert not is_exact(gen.reduction("sum", "int32", dtype="float32"))


def test_what_a_stencil_has_computed_is_reduced_on_the_same_devices() -> None:
    devices = Machine(seed=0, runner=OracleRunner()).devices(3)
    heat, total = gen.load(HEAT, devices=devices), gen.load("reduction_max_f32", devices=devices)
    cells = np.random.default_rng(0).random((50, 6), np.float32)
    array = heat(heat.scatter(cells), steps=5)
    found = total(array)
    assert found.numpy() == array.gather().max()
    assert repr(total) == "<gen kernel reduction_max_f32 on 3 ranks>"
    rows = gen.load(gen.reduction("max", axis=1, keepdims=True), devices=devices)(array)
    assert np.array_equal(heat(rows, steps=0).gather(), array.gather().max(axis=1, keepdims=True))


def test_of_zeros_and_nans_any_split_has_the_same_bits() -> None:
    cells = np.zeros(40, np.float32)
    cells[[3, 4, 17, 39]] = -0.0
    found = set()
    for ranks in (1, 2, 3, 8):
        for name in ("min", "max"):
            kernel = gen.load(gen.reduction(name), devices=Machine(seed=ranks).devices(ranks))
            found |= {kernel(kernel.scatter(np.roll(cells, turn))).numpy().tobytes() for turn in range(3)}
    assert found == {np.zeros(1, np.float32).tobytes()}


def test_calls_that_are_repeated_are_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    captured: list[Any] = []
    capture = SimulatedDevice.capture

    def counted(*given: Any) -> Any:
        captured.append(given)
        return capture(*given)

    monkeypatch.setattr(SimulatedDevice, "capture", counted)
    devices = Machine(seed=3, runner=OracleRunner()).devices(2)
    heat, total = gen.load(HEAT, devices=devices), gen.load(SUM, devices=devices)
    cells = cells_of((512, 64))
    array, out, found = heat.scatter(cells), heat.empty((512, 64)), None
    for turn in range(4):
        heat(array, out=out, steps=turn)
        found = total(out, out=found)
        assert found.numpy() == pytest.approx(out.gather().sum(dtype="f8"), abs=1e-2)
        assert len(captured) == 2 * (turn > 0)


def test_what_is_wrong_is_said() -> None:
    devices = Machine(seed=0, runner=OracleRunner()).devices(2)
    load: Any = gen.load
    with pytest.raises(SpecError, match=r"must not be f16 where sum is merged beside .* \(got \('sum', 'max'\)\)"):
        gen.load(gen.reduction(("sum", "max"), "float16"), devices=devices)
    with pytest.raises(ArgumentError, match=r"grid must not be given for a reduction or a transpose \(got \(2,\)\)"):
        load(SUM, devices=devices, grid=(2,))
    kernel = gen.load(SUM, devices=devices)
    with pytest.raises(ShapeError, match="The array must have elements to be split"):
        kernel.empty((4, 0))
    with pytest.raises(ShapeError, match="The array must have rows for each of 2 ranks"):
        kernel.scatter(np.zeros((1, 5), np.float32))
    cells = np.zeros((4, 4), np.float32)
    columns = gen.load(HEAT, devices=devices, grid=(1, 2))
    with pytest.raises(ShapeError, match="The array must have rows for each of 2 ranks"):
        kernel(columns.scatter(cells[:1]))
    with pytest.raises(ArgumentError, match="out must be a result of an earlier call, on the first device"):
        kernel(kernel.scatter(cells), out=kernel.empty(4))
    largest = gen.load(gen.reduction("max", axis=0), devices=devices)
    with pytest.raises(ShapeError, match=r"out must be one array of shape \(\) and f32 for each result"):
        kernel(kernel.scatter(cells), out=largest(largest.scatter(cells)))
    with pytest.raises(ShapeError, match=r"reduction\.axis must be from -2 to 1"):
        gen.load(gen.reduction("sum", axis=2), devices=devices)(kernel.scatter(cells))
    along = gen.load(ALONG, devices=devices)
    array = along.scatter(cells)
    with pytest.raises(ShapeError, match=r"out must be split as the array is: \(\(0, 2, 4\), \(0, 1\)\)"):
        along(array, out=along.empty((4, 1), [(1, 3), (1,)]))
    with pytest.raises(ArgumentError, match="out must be as many arrays as there are outputs: out"):
        along(array, out=(along.empty(4), along.empty(4)))
    column = along.scatter(cells[:, :1])
    with pytest.raises(ArgumentError, match="out must not be an array that the call reads or writes too"):
        along(column, out=column)


MUTANTS = {
    "nobody waits for what another rank sends": ("receiver.device.wait_for(receiver.main.handle, sent)", "pass"),
    "rows are sent while others are reduced": ("sender.device.wait_for(sender.main.handle, room.read)", "pass"),
    "results are stored while others are merged": ("rank.device.wait_for(rank.main.handle, layout.read)", "pass"),
    "rows go to the first place": ("(piece.first - pieces[0].first) * row, size", "0 * row, size"),
    "results are stored in the first slot": ("one.address + layout.place(unit) * size for", "one.address for"),
    "results are sent to the first slots": ("Rows.of(one.address + own[0] * size,", "Rows.of(one.address,"),
    "a unit lacks a row": ("(pieces[-1].end - pieces[0].first) * row", "(pieces[-1].end - pieces[0].first - 1) * row"),
    "elements are counted as rows": ("(pieces[-1].end - pieces[0].first) * each", "pieces[-1].end - pieces[0].first"),
    "devices without a way store to each other": ("return slots if self.reaches(self.ranks[owner], self.ranks[0]) else",
                                                  "return slots if True else"),
    "units of several ranks store to one": ("there if len(pieces) == 1 and (there - own) % ALIGNMENT == 0 else own",
                                            "there"),
    "other arrays are reduced as the first one": ("tuple(held.address for one in (array, *outs) for held in one.held)",
                                                  "()"),
    "results of rows go to the first row": ("(piece.first - out.cuts[0][piece.rank]) * of_row", "0"),
    "results of rows are those of the first": ("computed + (piece.first - pieces[0].first) * of_row", "computed"),
    "results of rows are left where they are computed": ("if source != there:", "if False:"),
    "cells become rows before all ranks have them": ("self.meet()\n        with self.together", "with self.together"),
    "rows are reduced before they have come": ("self.meet()\n\n    def _in_boxes", "pass\n\n    def _in_boxes"),
    "places are merged of what is no row": ("is_exact(self._spec) and not self._spec.indexed", "is_exact(self._spec)"),
    "axes that are kept are merged": ("set(split) <= set(axes) and", "True and"),
}  # fmt: skip


def agrees(order: int, load: Any, peer_access: bool) -> bool:
    """Whether sums, places and means of rows are right, the latter also where others were read just before."""
    cells = cells_of((500, 5))
    cells[310, 3] = 50  # in the rows of the last rank
    extents = (130, 170, 200)
    for spec in (SUM, PLACE):
        if not near(reduced(cells, extents, order, spec, load, peer_access=peer_access), right(cells, spec)):
            return False
    devices = Machine(seed=order, runner=OracleRunner()).devices(3, peer_access=peer_access)
    along, heat = load(ALONG, devices=devices), load(HEAT, devices=devices)
    arrays = [along.scatter(one, [extents, (5,)]) for one in (cells, np.roll(cells, 7, axis=0))]
    out = along.empty((500, 1), [extents, (1,)])
    copies = [(along(array, out=out), heat(out, steps=0))[1] for array in arrays]
    return near([one.gather() for one in (*copies, out)], [right(cells, ALONG)[turn] for turn in (0, 1, 1)])


def test_the_mutants_begin_with_what_is_right() -> None:
    assert agrees(0, gen.load, True)
    assert agrees(1, gen.load, False)


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_caught(name: str) -> None:
    module = "sharded" if "receiver" in MUTANTS[name][0] else "sharded_reduction"
    load = changed(f"runtime.{module}", *MUTANTS[name])
    for peer_access in (True, False):
        for order in range(2):
            with suppress(RunError, ShapeError):
                if agrees(order, load, peer_access) and all(split_anyhow(seed, load) for seed in range(order, 24, 2)):
                    continue
            return
    pytest.fail("not caught")
