"""Variants in rounds on a GPU made of NumPy arrays: orders, places in memory, and who falls."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from gen.families import FAMILIES
from gen.families.base import Extents
from gen.families.names import find_variant
from gen.gpu.kernel import CudaKernel
from gen.gpu.timing import GRAPH_LAUNCHES
from gen.toolchain.compiled import Compiled
from tests.fake_device import FakeDevice
from tests.host.gpu_session.given import (
    BASE,
    FIRST,
    PROBLEM,
    SECOND,
    THIRD,
    Bench,
    entrant,
    spoil,
)


def test_a_finalist_that_spoils_an_input_is_the_only_one_to_fall(bench: Bench) -> None:
    bench.faults[FIRST.name] = spoil("in", 20)
    assert [bench.attempt(made).status for made in (FIRST, SECOND)] == ["ok", "ok"]
    (fault,) = bench.rounds([SECOND, FIRST], 30).faults
    assert (fault.variant, fault.status) == (FIRST, "wrong_result")
    assert fault.reason.startswith("among the finalists: ")
    assert len(bench.rounds([SECOND], 30).times_us[SECOND.name]) == 30


def test_finalists_are_timed_in_orders_and_in_memory_that_change(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []  # in which place the scratch of the first was
    scratch = CudaKernel.scratch

    def noted(kernel: CudaKernel, extents: Extents, place: int = 0) -> dict[str, int]:
        if kernel.variant == FIRST:
            asked.append(place)
        return scratch(kernel, extents, place)

    monkeypatch.setattr(CudaKernel, "scratch", noted)
    seen: list[tuple[str, int]] = []
    for made in (FIRST, SECOND):

        def see(_: FakeDevice, addresses: Mapping[str, int], __: int, name: str = made.name) -> None:
            seen.append((name, addresses["out"]))

        bench.faults[made.name] = see
    bench.rounds([FIRST, SECOND], 8)
    timed = seen[4:-2]  # without what is checked before and after
    bench.rounds([FIRST, SECOND], 10)
    timed += seen[4 + 16 + 2 : -2]
    orders = [tuple(name for name, _ in timed[at : at + 2]) for at in range(0, len(timed), 2)]
    assert set(orders) == {(FIRST.name, SECOND.name), (SECOND.name, FIRST.name)}
    places = [place for _, place in timed[::4]]
    assert [place for _, place in timed] == [place for place in places for _ in range(4)]
    assert len(set(places)) == 8  # the second rounds go on where the first ended
    assert places[8] == places[0]
    assert asked[2 : 2 + 8] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert set(asked) == set(range(9))  # two rounds in each
    assert bench.told[2:6] == [*orders[0], *orders[1]]


def test_a_pattern_of_launches_tells_no_variants_apart(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of four samples take 2 % longer, whoever has them."""
    count = itertools.count()
    real = bench.clock.times

    def times(*asked: Any, **named: Any) -> list[float]:
        return [us * (1.02 if next(count) % 4 in (0, 3) else 1.0) for us in real(*asked, **named)]

    monkeypatch.setattr(bench.clock, "times", times)
    found = bench.rounds([BASE, FIRST, SECOND, THIRD], 100).times_us
    means = [float(np.mean(of_one)) for of_one in found.values()]
    assert max(means) < 1.005 * min(means)


def test_scratch_has_several_places_unless_it_is_large() -> None:
    made = find_variant(FAMILIES, "reduction_sum_f32__flags_tpb256_u4_v16_bpm2", {})
    gpu = FakeDevice()
    gpu.enter()
    kernel = CudaKernel(made, Compiled(made.name, "sm_90", b"", {}), gpu, gpu.limits)
    found = [kernel.scratch({"n": 1 << 20, "outer": 1}, place) for place in (0, 1, 2, 1)]
    assert found[1] == found[3]
    names = [scratch.name for scratch in made.plan.scratch]
    assert all(len({one[name] for one in found}) == 3 for name in names)
    lower = {kernel.scratch({"n": 1 << 20, "outer": 1}, place)[names[0]] % (1 << 16) for place in range(61)}
    assert len(lower) == 61
    assert all(address % 512 == 0 for address in lower)
    found += [kernel.scratch({"n": 1 << 20, "outer": 1}, place) for place in range(61)]
    assert sorted(address for address, _, _ in gpu.zeroed) == sorted(
        {one[scratch.name] for one in found for scratch in made.plan.scratch if scratch.zeroed}
    )

    gpu.free = 0
    assert kernel.scratch({"n": 1 << 20, "outer": 1}, 70) == found[0]  # where there is room
    gpu.free = 1 << 40
    private = find_variant(FAMILIES, "reduceInterleaved", {})  # whose scratch is as large as its input
    kernel = CudaKernel(private, Compiled(private.name, "sm_90", b"", {}), gpu, gpu.limits)
    small, large = ([kernel.scratch({"n": n, "outer": 1}, place) for place in (0, 1)] for n in (1024, 1 << 20))
    assert not set(small[0].values()) & set(small[1].values())
    assert set(large[0].values()) & set(large[1].values())


def test_large_problems_have_fewer_sets_of_buffers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gen.tune.gpu_session.SMALL_SET_BYTES", 16)
    bench.rounds([FIRST], 30)
    assert len(bench.session._sets) == 3


def test_a_slow_base_warms_up_by_a_single_run(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.setattr("gen.tune.gpu_session.WARM_UP_SECONDS", 0.05)
    asked: list[int] = []

    def times(_launch: Callable[[], None], samples: int, **_: Any) -> list[float]:
        asked.append(samples)
        time.sleep(0.06)  # longer than warming up takes
        return [60_000.0] * samples

    monkeypatch.setattr(bench.clock, "times", times)
    bench.bench.open(PROBLEM, entrant(BASE)).close()
    assert asked == [1]


def test_hot_rounds_time_graphs_of_many_launches_in_memory_that_changes(bench: Bench) -> None:
    found = bench.rounds([FIRST, SECOND], 8, hot=True)
    assert found.times_us == {FIRST.name: [2.0] * 8, SECOND.name: [2.0] * 8}
    graphs = bench.gpu.captured
    assert {len(graph.launches) for graph in graphs} == {GRAPH_LAUNCHES}
    assert len(graphs) == 16
    assert len({addresses["out"] for graph in graphs for _, addresses, _ in graph.launches}) == 4
    assert bench.gpu.graphs == []  # closed
    bench.faults[SECOND.name] = spoil("in", 1)
    (fault,) = bench.rounds([FIRST, SECOND], 2, hot=True).faults
    assert (fault.variant, fault.status) == (SECOND, "wrong_result")
