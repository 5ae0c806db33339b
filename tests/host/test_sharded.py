"""Stencils on one to eight devices, simulated: the bits of one device, whatever the split and the order of streams."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import gen
from gen.dtypes import F64
from gen.errors import ArgumentError, DeviceError, GenError, RunError, ShapeError
from gen.families.stencil import Stencil, StencilSpec
from gen.families.stencil.oracle import expected
from gen.families.stencil.split import even_cuts
from gen.families.system import System, scalars
from gen.runtime.sharded_kernel import STEPS_OF_PHASES, steps_that_pay
from gen.runtime.simulated import Machine
from tests.fake_device import OnDevice
from tests.fakes import OracleRunner
from tests.sharding import changed, computed, drawn, drawn_system, right, same

HEAT, WAVE = Stencil.catalogue[0], System.catalogue[0]


@pytest.fixture
def machine() -> Machine:
    return Machine(seed=0, runner=OracleRunner())


def cells_of(*shape: int) -> Any:
    return np.random.default_rng(1).random(shape, np.float32)


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(8), id="few"),
        pytest.param(range(8, 80), id="some", marks=pytest.mark.exhaustive),
        pytest.param(range(80, 250), id="many", marks=pytest.mark.further),
    ],
)
def test_any_split_has_the_bits_of_one_device_in_any_order_of_streams(seeds: range) -> None:
    for seed in seeds:
        problem = drawn(seed)
        assert same(computed(problem, seed), right(problem)), f"tests.sharding.drawn({seed}), order {seed}"


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(4), id="few"),
        pytest.param(range(4, 40), id="some", marks=pytest.mark.exhaustive),
        pytest.param(range(40, 120), id="many", marks=pytest.mark.further),
    ],
)
def test_so_have_systems_of_fields(seeds: range) -> None:
    for seed in seeds:
        problem = drawn_system(seed)
        assert same(computed(problem, seed), right(problem)), f"tests.sharding.drawn_system({seed}), order {seed}"


@pytest.mark.exhaustive
def test_the_emitted_kernels_have_the_bits_of_one_device_too() -> None:
    cells = cells_of(41, 30)
    machine = Machine(seed=5)
    kernel = gen.load(HEAT, devices=machine.devices(3), steps_per_exchange=2)
    one = gen.load(HEAT, device="cpu")
    array = kernel.scatter(cells, [(9, 20, 12), (30,)])
    for steps in (1, 5, 2):
        cells, array = one(cells, steps=steps), kernel(array, steps=steps)
        assert array.gather().tobytes() == cells.tobytes(), machine


@pytest.mark.exhaustive
def test_so_have_the_emitted_kernels_of_waves() -> None:
    machine = Machine(seed=6)
    fields = [cells_of(20, 23), cells_of(20, 23) + 1, cells_of(20, 23) / 2]
    kernel = gen.load(WAVE, devices=machine.devices(4), grid=(2, 2), steps_per_exchange=2)
    arrays = kernel(*(kernel.scatter(field) for field in fields), steps=5)
    wanted = gen.load(WAVE, device="cpu")(*fields, steps=5)
    assert same([array.gather() for array in arrays], list(wanted)), machine


def test_each_call_has_its_own_scalars(machine: Machine) -> None:
    u, k = gen.fields("u")[0], scalars("k")[0]
    kernel = gen.load(gen.system({u: u - k * u.laplace()}), devices=machine.devices(2))
    array, out = kernel.scatter(cells_of(8, 5)), kernel.empty((8, 5))
    found = [kernel(array, number, out=out).gather() for number in (0.25, 0.5)]
    assert np.array_equal(found[1], kernel(array, k=0.5).gather())
    assert not np.array_equal(*found)


def test_arrays_go_to_the_ranks_and_come_back(machine: Machine) -> None:
    kernel = gen.load(HEAT, devices=machine.devices(4), grid=(2, 2))
    cells = cells_of(10, 7)
    array = kernel.scatter(cells, [(3, 7), (5, 2)])
    assert (array.shape, array.dtype, array.slices[1]) == ((10, 7), cells.dtype, (slice(0, 3), slice(5, 7)))
    assert [shard.shape for shard in array.shards] == [(3, 5), (3, 2), (7, 5), (7, 2)]
    for shard, where in zip(array.shards, array.slices, strict=True):
        assert np.array_equal(np.from_dlpack(shard), cells[where])
    assert [shard.shape for shard in kernel.empty((10, 7)).shards] == [(5, 4), (5, 3), (5, 4), (5, 3)]
    assert np.array_equal(array.gather(), cells)
    assert np.array_equal(kernel(array, steps=0).gather(), cells)
    assert repr(array) == "ShardedArray(shape=(10, 7), dtype=float32, shards=4)"
    assert repr(kernel) == f"<gen kernel stencil_{HEAT.label} on 2 x 2 ranks>"


def test_other_libraries_fill_shards_in_place(machine: Machine) -> None:
    kernel = gen.load(HEAT, devices=machine.devices(2))
    cells = cells_of(8, 9)
    array = kernel.empty((8, 9))
    for shard, where in zip(array.shards, array.slices, strict=True):
        np.from_dlpack(shard)[...] = cells[where]
    assert kernel(array, steps=3).gather().tobytes() == expected(HEAT, cells, 3).value.tobytes()


def test_an_array_on_one_of_the_devices_is_scattered_from_there(machine: Machine) -> None:
    devices = machine.devices(3)
    cells = cells_of(9, 5)
    whole = gen.load(HEAT, devices=devices[1:2]).scatter(cells).shards[0]

    class Lying(OnDevice):
        """Memory of a device: the interface names its address."""

    found = Lying(cells, {"data": (whole.address, False)})
    assert np.array_equal(gen.load(HEAT, devices=devices).scatter(found).gather(), cells)
    with pytest.raises(
        ArgumentError, match=r"array must be on the host or on one of the devices \[-1\] \(got device -2"
    ):
        gen.load(HEAT, devices=devices[:1]).scatter(found)
    with pytest.raises(ShapeError, match="array must be dense on a device"):
        gen.load(HEAT, devices=devices).scatter(Lying(cells[:, ::2], {"data": (whole.address, False)}))
    volume = np.arange(4 * 3 * 2 * 5, dtype=np.float32).reshape(4, 3, 2, 5)
    memory = devices[1].allocate(volume.nbytes)
    devices[1].upload(memory.address, volume)
    swap = gen.load(gen.permutation((1, 3, 2, 0), "float32"), devices=devices)
    assert np.array_equal(swap.scatter(Lying(volume, {"data": (memory.address, False)})).gather(), volume)


def test_arrays_of_one_kernel_are_those_of_another_on_the_same_devices(machine: Machine) -> None:
    devices, cells = machine.devices(3), cells_of(12, 6)
    other = StencilSpec("other", (0.5, 0.25, 0.25), (3, 1), boundary="wrap")
    heat, wrapped = (gen.load(spec, devices=devices, steps_per_exchange=2) for spec in (HEAT, other))
    array = wrapped(heat(heat.scatter(cells), steps=5), steps=5)
    assert array.gather().tobytes() == expected(other, expected(HEAT, cells, 5).value, 5).value.tobytes()


def test_memory_may_go_while_it_is_used_and_decompositions_are_made_anew(machine: Machine) -> None:
    kernel = gen.load(HEAT, devices=machine.devices(3), steps_per_exchange=4)
    for rows in (20, 23, 31, 20, 14, 9):
        cells = cells_of(rows, 6)
        array = kernel.scatter(cells)
        for _ in range(3):
            array = kernel(array, steps=9)  # nothing waits for what was `array` before
        assert array.gather().tobytes() == expected(HEAT, cells, 27).value.tobytes()


REPLAY_MUTANTS = {
    "a graph does not wait for what there was": (
        "self.meet()\n        with first.current():\n            graph", "with first.current():\n            graph"
    ),
    "what comes later does not wait for a graph": (
        "graph.replay(first.main.handle)\n        self.meet()", "graph.replay(first.main.handle)"
    ),
    "ranks do not wait for the begin of a graph": ("rank.device.wait_for(rank.main.handle, begin)", "pass"),
    "a graph ends before its ranks": ("first.device.wait_for(stream, end)", "pass"),
    "a graph outlives the memory that it writes": ("self._graphs.forget()  # which", "pass  # which"),
    "a call waits for marks of a graph": ("finally:\n            decomposition.forget()", "finally:\n            pass"),
    "a graph waits for marks of a call": ("decomposition.forget()\n        try", "try"),
}  # fmt: skip


def replayed(seed: int, load: Any = gen.load) -> bool:
    """Whether calls that are repeated, some with other memory or other steps between them, give what they should."""
    kernel = load(HEAT, devices=Machine(seed=seed, runner=OracleRunner()).devices(3), steps_per_exchange=2)
    cells, more = cells_of(20, 6), cells_of(23, 6)
    one, other = kernel.scatter(cells), kernel.empty(cells.shape)
    for _ in range(2):
        for _ in range(4):
            for steps in (9, 3):  # a graph, and what is queued as it comes
                kernel(one, out=other, steps=steps)
                kernel(other, out=one, steps=steps)
        graphs = list(kernel._graphs.made.values())
        large = kernel.scatter(more)
        kernel(kernel(large, steps=9), steps=3, out=large)
        if None in graphs or len(graphs) != 2 or large.gather().tobytes() != expected(HEAT, more, 12).value.tobytes():
            return False
    return bool(one.gather().tobytes() == expected(HEAT, cells, 192).value.tobytes())


def test_calls_that_are_repeated_are_replayed_as_graphs(machine: Machine) -> None:
    assert all(replayed(seed) for seed in range(4))
    kernel = gen.load(HEAT, devices=machine.devices(2), steps_per_exchange=1)
    array, out = kernel.scatter(cells_of(9, 5)), kernel.empty((9, 5))
    with patch.object(
        type(machine.devices(1)[0]), "capture", side_effect=RunError("The GPU", "takes no copy")
    ) as capture:
        for _ in range(4):  # where a driver captures no such copies, the calls are queued as before
            kernel(array, out=out, steps=4)
        assert capture.call_count == 1
        kernel(array, out=out, steps=3)
        assert capture.call_count == 1
    assert out.gather().tobytes() == expected(HEAT, array.gather(), 3).value.tobytes()


@pytest.mark.parametrize("name", REPLAY_MUTANTS)
def test_every_mutant_of_replays_is_caught(name: str) -> None:
    old, new = REPLAY_MUTANTS[name]
    module = "sharded_kernel" if "forget" in old else "sharded"
    load = changed(f"runtime.{module}", old, new)
    for seed in range(4):
        with suppress(RunError):
            if replayed(seed, load):
                continue
        return
    pytest.fail("not caught")


def test_steps_are_joined_as_far_as_it_pays() -> None:
    """The first six were measured: bench/shards-h200.json, bench/devices-steps-h100.json."""
    u, v, m = gen.fields("u v m")
    wave = gen.system({u: 2 * u - v + m * u.laplace(order=8), v: u})
    cube = StencilSpec("cube", tuple(float(n in (4, 10, 12, 13, 14, 16, 22)) for n in range(27)), (3, 3, 3))
    for spec, ranks, shape, best in (
        (HEAT, 2, (8192, 16384), 16), (HEAT, 4, (4096, 16384), 16), (HEAT, 2, (4096, 4096), 32),
        (wave, 2, (8192, 8192), 8), (cube, 2, (512, 512, 512), 4), (cube, 2, (256, 512, 512), 2),
    ):  # fmt: skip
        cuts = even_cuts((shape[0] * ranks, *shape[1:]), (ranks, *(1,) * (len(shape) - 1)))
        assert steps_that_pay(spec, cuts, None, 32) == best
    blur = StencilSpec("blur", (0.25,) * 4, (4, 1))
    assert steps_that_pay(HEAT, ((0, 8192, 16384), (0, 16384)), None, 3) == 2
    assert steps_that_pay(blur, ((0, 150, 300), (0, 10)), None, 16) == 1
    assert steps_that_pay(HEAT, ((0, 8192, 16384), (0, 16384)), 1, 16) == 1
    found = [steps_that_pay(HEAT, ((0, rows, 2 * rows), (0, 8)), None, 16) for rows in (100, 400, 1600, 6400)]
    assert found == sorted(found)
    assert set(found) <= {1, *STEPS_OF_PHASES}


def test_devices_without_a_way_to_each_other_are_named_and_exchange_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    devices, cells = Machine(seed=1, runner=OracleRunner()).devices(3, peer_access=False), cells_of(8, 4)
    kernel = gen.load(HEAT, devices=devices)
    said = (
        "Devices -1 and -2, -1 and -3, -2 and -3 have no way to each other: what they exchange goes through the host's"
    )
    assert said in caplog.text
    assert kernel(kernel.scatter(cells), steps=3).gather().tobytes() == expected(HEAT, cells, 3).value.tobytes()


def test_what_is_wrong_with_devices_is_said(machine: Machine) -> None:
    one, other = machine.devices(2)
    with pytest.raises(
        ArgumentError, match=r"must not name a device twice \(got simulated device 0\). Name each once, or say"
    ):
        gen.load(HEAT, devices=[one, other, one])
    assert len(gen.load(HEAT, devices=[one, other, one], shared=True).ranks) == 3
    with pytest.raises(ArgumentError, match="devices must name at least one"):
        gen.load(HEAT, devices=[])
    with pytest.raises(ArgumentError, match="devices must all be GPUs, or devices of one machine"):
        gen.load(HEAT, devices=[one, *Machine(seed=0).devices(1)])
    wrong: Any
    for wrong in ("cpu", -1, True, 0.5):
        with pytest.raises(DeviceError, match="must be numbers of GPUs"):
            gen.load(HEAT, devices=[wrong])
    with pytest.raises(
        ArgumentError, match="must be a stencil, a system, a reduction or a transpose to be computed on several devices"
    ):
        gen.load("probe_read11_f32", devices=[one, other])
    load: Any = gen.load
    with pytest.raises(ArgumentError, match="shape must not be given with devices"):
        load(HEAT, devices=[one], shape=(3, 3))
    with pytest.raises(ArgumentError, match=r"grid must come with devices \(got \(2, 1\)\)"):
        load(HEAT, device=one, grid=(2, 1))
    for grid in ((2, 2), (2,), (-1, -2), (1.0, 2)):
        with pytest.raises(ArgumentError, match=r"grid must be positive numbers for rows, cols, whose product is .* 2"):
            load(HEAT, devices=[one, other], grid=grid)
    for steps in (0, -1, 1.5, True):
        with pytest.raises(ArgumentError, match="steps_per_exchange must be a positive number"):
            load(HEAT, devices=[one, other], steps_per_exchange=steps)
    ends = StencilSpec("ends", (1.0,) * 3, (3,), boundary=(("wrap", "mirror"),))
    with pytest.raises(
        ArgumentError, match="steps_per_exchange must be 1 where an axis that is split wraps at one end"
    ):
        gen.load(ends, devices=[one, other], steps_per_exchange=2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda heat, _, cells: heat.scatter(cells[0]), r"must have 2 axes: rows, cols \(got \(5,\)\). Reshape it"),
        (lambda heat, _, cells: heat.scatter(cells[..., None]), r"must have 2 axes: rows, cols \(got \(6, 5, 1\)\)"),
        (lambda heat, _, cells: heat.scatter(cells[0, 0, ...]), r"must have 2 axes: rows, cols \(got \(\)\)"),
        (lambda _, load, cells: load(gen.permutation((1, 0), "float32")).scatter(cells[0]), "must have 2 axes"),
        (lambda _, load, cells: load(gen.permutation((1, 0), "float32")).scatter(cells[None]), "must have 2 axes"),
        (lambda _, load, cells: load(gen.reduction("sum")).scatter(cells[0, 0, ...]), "must have an axis or more"),
        (lambda heat, load, cells: heat(load(gen.reduction("sum")).scatter(cells[..., None])), "in must have 2 axes"),
        (lambda heat, _, cells: heat.scatter(cells, 3), r"extents must be, for each axis, .* \(got 3\). Leave them"),
        (lambda heat, _, cells: heat.scatter(cells, (3, 3, 3)), "extents must be, for each axis"),
        (lambda heat, _, cells: heat.scatter(cells, (None, (5,))), "extents must be, for each axis"),
        (lambda heat, _, __: heat.empty(None), r"shape must be 2 whole numbers, .* \(got None\)"),
        (lambda heat, _, __: heat.empty((2**70, 5)), r"shape must be of less than 2\^63 bytes .* Take it in parts"),
        (lambda heat, _, __: heat(None), r"in must be a sharded array \(got NoneType\)"),
        (lambda heat, _, cells: gen.sum(heat.scatter(cells)), r"x must be a NumPy array .* Pass value.gather\(\), or"),
        (lambda heat, _, __: heat.empty((6, 5), dtype="zz"), r"dtype must be a type of NumPy's, .* \(got 'zz'\)"),
        (lambda heat, _, __: heat.empty((6, 5), dtype=object), "dtype must be a type of NumPy's"),
        (lambda _, load, __: load(HEAT, grid=3), r"grid must be positive numbers .* \(got 3\). Leave it out"),
        (lambda _, load, __: load(HEAT, devices=3), r"devices must name a device .* \(got 3\). Say devices="),
        (lambda _, load, __: load(HEAT, processes=3), r"processes must be what gen.join gives \(got 3\)"),
    ],
)
def test_what_is_of_another_kind_is_said(machine: Machine, call: Any, says: str) -> None:
    def load(spec: Any, **options: Any) -> Any:
        return gen.load(spec, **{"devices": devices, **options})

    devices = machine.devices(3)
    with pytest.raises(GenError, match=says):
        call(load(HEAT), load, cells_of(6, 5))


def test_what_is_wrong_with_arrays_is_said(machine: Machine) -> None:
    devices, cells = machine.devices(3), cells_of(6, 5)
    kernel, turned = gen.load(HEAT, devices=devices), gen.load(HEAT, devices=devices[::-1])
    array = kernel.scatter(cells)
    call: Any = kernel
    with pytest.raises(ShapeError, match=r"The array must have rows for each of 3 ranks \(got 2\). Take fewer devices"):
        kernel.scatter(cells[:2])
    with pytest.raises(ShapeError, match="extents must be, for each axis"):
        kernel.scatter(cells, [(2, 2, 1), (5,)])
    with pytest.raises(ShapeError, match="array must hold f32 elements"):
        kernel.scatter(cells.astype(np.float64))
    with pytest.raises(ShapeError, match="shape must be 2 whole numbers, none negative: rows, cols"):
        kernel.empty(7)
    with pytest.raises(ArgumentError, match=r"in must be a sharded array \(got ndarray\). kernel.scatter"):
        call(cells)
    with pytest.raises(ArgumentError, match="in must lie on the devices of the kernel, in their order"):
        turned(array)
    others = gen.load(HEAT, devices=Machine(seed=0, runner=OracleRunner()).devices(3))
    with pytest.raises(ArgumentError, match=r"in their order: .* \(got others of these names\). Gather it"):
        others(array)
    with pytest.raises(ArgumentError, match="out must not be the array that in is"):
        kernel(array, out=array)
    with pytest.raises(ShapeError, match="out must be split as in is"):
        kernel(array, out=kernel.scatter(cells, [(1, 2, 3), (5,)]))
    with pytest.raises(ShapeError, match="in must be split among 1 x 3 ranks"):
        gen.load(HEAT, devices=devices, grid=(1, 3))(array)
    other = replace(HEAT, dtype=F64)
    with pytest.raises(ShapeError, match="in must hold f64 elements"):
        gen.load(other, devices=devices)(array)
    waves = gen.load(WAVE, devices=devices)
    fields = [waves.scatter(cells) for _ in range(3)]
    with pytest.raises(ArgumentError, match="takes 3 arguments: u, v, m"):
        waves(*fields[:2])
    with pytest.raises(ArgumentError, match="out must be as many arrays as there are outputs: u_out, v_out"):
        waves(*fields, out=fields[0])
    with pytest.raises(ArgumentError, match="v_out must not be the array that m is"):
        waves(*fields, out=(waves.empty((6, 5)), fields[2]))
    with pytest.raises(ShapeError, match="m must be split as u is"):
        waves(*fields[:2], waves.scatter(cells, [(1, 2, 3), (5,)]))
    with pytest.raises(ArgumentError, match="steps must be a whole number"):
        kernel(array, steps=-1)
