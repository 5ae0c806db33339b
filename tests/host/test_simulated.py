"""Simulated devices: work in every order that marks permit, what is not ordered refused, kernels as on the CPU run."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import ArgumentError, DeviceError, RunError
from gen.families.stencil import Stencil
from gen.families.stencil.oracle import expected
from gen.gpu.device import LEGACY_STREAM, Peer, Rows
from gen.runtime.simulated import Machine, SimulatedDevice
from tests.fakes import OracleRunner

HEAT = Stencil.catalogue[0]


def bytes_of(*numbers: int) -> Any:
    return np.array(numbers, np.uint8)


def read(device: SimulatedDevice, address: int, size: int, stream: int | None = None) -> list[int]:
    content = np.zeros(size, np.uint8)
    device.download(content, address, stream)
    device.synchronize(stream)
    return [int(number) for number in content]


def order(seed: int, marks: bool = False) -> list[str]:
    """In which order three streams of a machine do their work; with `marks` the first comes before the second."""
    machine = Machine(seed=seed)
    (device,) = machine.devices(1)
    done: list[str] = []
    first, second, third = (device.stream().handle for _ in range(3))

    def note(name: str) -> Callable[[], None]:
        return lambda: done.append(name)

    machine.queue(first, note("a"))
    if marks:
        device.wait_for(second, device.mark(first))
    machine.queue(second, note("b"))
    machine.queue(third, note("c"))
    device.synchronize()
    return done


def test_streams_advance_in_every_order_that_is_permitted_and_in_the_same_one_for_a_seed() -> None:
    found = [order(seed) for seed in range(60)]
    assert {tuple(one) for one in found} == set(permutations("abc"))
    assert found == [order(seed) for seed in range(60)]
    marked = {tuple(order(seed, marks=True)) for seed in range(60)}
    assert marked == {one for one in permutations("abc") if one.index("a") < one.index("b")}


def test_a_seed_is_drawn_where_none_is_given_and_reported() -> None:
    one, other = Machine(), Machine()
    assert one.seed != other.seed
    assert repr(one) == f"Machine(seed={one.seed})"
    assert Machine(seed=np.int64(3)).seed == 3
    for odd in ([1], 1.5, "a", True):
        with pytest.raises(ArgumentError, match=r"^seed must be a whole number"):
            Machine(seed=odd)  # type: ignore[arg-type]
    for count in (0, -1, 2.5, None):
        with pytest.raises(ArgumentError, match=r"^count must be a (whole number|number of devices, 1 or more)"):
            one.devices(count)  # type: ignore[arg-type]


def test_work_waits_until_somebody_synchronizes() -> None:
    (device,) = Machine(seed=0).devices(1)
    assert isinstance(device, Peer)
    memory, stream = device.allocate(4), device.stream().handle
    assert read(device, memory.address, 4) == [0xA5] * 4  # no zeros
    content = bytes_of(1, 2, 3, 4)
    device.upload(memory.address, content, stream)
    content[:] = 0  # what was there at the call is copied
    found = np.zeros(4, np.uint8)
    device.download(found, memory.address, stream)
    assert not found.any()
    device.synchronize(stream)
    assert found.tolist() == [1, 2, 3, 4]


def test_what_is_not_ordered_is_refused_where_bytes_are_shared_and_one_writes() -> None:
    one, other = Machine(seed=0).devices(2)
    memory = one.allocate(60)
    streams = [one.stream().handle, one.stream().handle]
    one.zero(memory.address, 30, streams[0])
    one.zero(memory.address + 30, 30, streams[1])  # other bytes
    with pytest.raises(
        RunError, match=r"The work of two streams must be ordered where it uses the same bytes \(got Rows"
    ):
        one.zero(memory.address + 29, 1, streams[1])
    found = np.zeros(1, np.uint8)
    with pytest.raises(RunError, match=f"stream {streams[1]} of device 0, .* on stream {streams[0]} of device 0"):
        one.download(found, memory.address, streams[1])
    one.wait(streams[1], streams[0])
    one.download(found, memory.address, streams[1])
    one.download(found, memory.address, streams[0])  # two that read
    there = other.stream().handle
    other.wait_for(there, one.mark(streams[1]))
    with pytest.raises(RunError, match="must be ordered"):  # the one on the first stream came after the mark
        one.copy_to(one, Rows.of(memory.address + 40, 1), Rows.of(memory.address, 1), streams[1])
    one.synchronize()
    one.zero(memory.address, 60, streams[0])  # the host knows that all is done


def test_rows_that_lie_between_each_other_are_not_the_same_bytes() -> None:
    (device,) = Machine(seed=0).devices(1)
    memory = device.allocate(48)
    device.upload(memory.address, np.arange(48, dtype=np.uint8))
    streams = [device.stream().handle, device.stream().handle]
    left, right, between = (Rows(memory.address + at, 2, 2, 2, 6, 4) for at in (0, 3, 12))
    device.copy_to(device, left, between, streams[0])
    with pytest.raises(RunError, match="must be ordered"):
        device.copy_to(device, right, left, streams[1])
    device.wait(streams[1], streams[0])
    device.copy_to(device, between, right, streams[1])
    content = np.arange(48).reshape(2, 4, 6)
    content[:, 2:, 0:2] = content[:, :2, 0:2]
    content[:, :2, 3:5] = content[:, 2:, 0:2]
    assert read(device, memory.address, 48) == content.reshape(-1).tolist()


def test_the_legacy_default_stream_takes_turns_with_all_of_its_device() -> None:
    one, other = Machine(seed=0).devices(2)
    memory, stream, there = one.allocate(1), one.stream().handle, one.stream().handle
    copies = one.allocate(1), other.allocate(1)
    one.zero(memory.address, 1, stream)
    one.upload(memory.address, bytes_of(7), LEGACY_STREAM)
    one.copy_to(other, Rows.of(memory.address, 1), Rows.of(copies[1].address, 1), stream)
    with pytest.raises(RunError, match="must be ordered"):
        one.zero(memory.address, 1, there)
    one.copy_to(one, Rows.of(copies[0].address, 1), Rows.of(memory.address, 1), LEGACY_STREAM)
    one.upload(memory.address, bytes_of(7), there)
    assert read(one, memory.address, 1, there) == [7]


def test_memory_that_a_device_does_not_have_is_refused() -> None:
    one, other = Machine(seed=0).devices(2)
    memory, stream = one.allocate(16), one.stream().handle
    for place, size in ((1, 16), (-1, 1), (16, 1)):
        with pytest.raises(RunError, match="must not use memory that it does not have"):
            one.zero(memory.address + place, size, stream)
    rows = Rows.of(memory.address, 4)
    with pytest.raises(RunError, match="The simulated device 1 must have the memory that is copied"):
        one.copy_to(other, rows, rows, stream)
    with pytest.raises(RunError, match="The simulated device 1 must have the memory that is copied"):
        other.copy_to(one, rows, rows, other.stream().handle)
    address = memory.address
    memory.free()
    with pytest.raises(RunError, match="must not use memory that it does not have"):
        one.zero(address, 1, stream)


def test_memory_is_not_given_back_while_another_device_uses_it() -> None:
    for waits in (False, True):
        one, other = Machine(seed=0).devices(2)
        source, target, stream, own = one.allocate(8), other.allocate(8), one.stream().handle, other.stream().handle
        one.zero(source.address, 8, stream)
        one.copy_to(other, Rows.of(source.address, 8), Rows.of(target.address, 8), stream)
        if waits:
            other.wait_for(own, one.mark(stream))
        del source, target  # the driver waits for the device that has the memory, and for no other
        gc.collect()
        if waits:
            one.allocate(1)
            continue
        with pytest.raises(
            RunError, match="Memory of device 1 must not be given back while a stream of another device"
        ):
            one.allocate(1)


def test_kernels_take_arrays_as_on_the_cpu_run() -> None:
    (device,) = Machine(seed=0, runner=OracleRunner()).devices(1)
    cells = np.random.default_rng(0).random((9, 7), np.float32)
    found = gen.load(HEAT, device=device)(cells, steps=20)
    assert found.tobytes() == expected(HEAT, cells, 20).value.tobytes()
    with pytest.raises(DeviceError, match="The simulated device 0 loads kernels of variants alone"):
        device.load(device.compile("no variant", ""))
