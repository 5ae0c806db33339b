"""Problems on a GPU made of NumPy arrays: pitched rows, alignments, changes in place, sizes too large for NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gen
from gen.dtypes import F32, U8
from gen.errors import RunError
from gen.families import FAMILIES
from gen.families.base import Array, Expected, Extents, Launch, Layout, Operand, Plan
from gen.families.expr import ONE, constant
from gen.families.names import find_family, variant
from gen.families.system.launches import extents_of
from gen.families.system.naive import NaiveConfig
from gen.families.transpose import Transpose
from gen.families.transpose.literature import MatrixSpec
from gen.gpu.device import GRAPH_FROM
from gen.store.trials import Problem
from gen.tune.gpu_session import SAMPLES
from tests.fake_device import FakeDevice
from tests.fake_family import CalledVariant, FakeAlgorithm, FakeConfig, FakeFamily, FakeSpec
from tests.host.gpu_session.given import (
    FIRST,
    PROBLEM,
    SECOND,
    Bench,
    spoil,
)


def test_a_byte_written_between_the_rows_of_an_output_is_found(open_bench: Callable[[Problem], Bench]) -> None:
    extents = {"rows": 5, "cols": 7, "in_pitch": 9, "out_pitch": 8}
    bench = open_bench(replace(PROBLEM, extents=extents))
    assert bench.attempt(SECOND).status == "ok"

    def between(gpu: FakeDevice, addresses: Mapping[str, int], _: int) -> None:
        gpu.upload(addresses["out"] + 4 * 8 + 4 * 5 + 2, np.full(3, 0x77, np.uint8))

    bench.faults[FIRST.name] = between
    assert bench.attempt(FIRST).reason == "3 bytes between the rows of out are written"
    bench.faults[FIRST.name] = spoil("out")
    assert bench.attempt(FIRST).reason == "out: 1 elements are wrong, the first is element 0"


@pytest.mark.parametrize("alignment", [4, 8, 16])
def test_arrays_lie_at_addresses_of_the_problems_alignment(
    open_bench: Callable[[Problem], Bench], alignment: int
) -> None:
    bench = open_bench(replace(PROBLEM, extents={**PROBLEM.extents, "out_pitch": 6}, alignment=alignment))
    seen: dict[str, int] = {}
    bench.faults[FIRST.name] = lambda _, addresses, __: seen.update(addresses)
    assert bench.attempt(FIRST).status == "ok"
    assert {address % 16 for address in seen.values()} == {alignment % 16}
    beyond, gap = "bytes next to out are written", "1 bytes between the rows of out are written"
    for offset, reason in ((-1, beyond), (4 * 5, gap), (41 * 4, beyond)):

        def beside(gpu: FakeDevice, addresses: Mapping[str, int], _: int, at: int = offset) -> None:
            gpu.upload(addresses["out"] + at, np.full(1, 0x77, np.uint8))

        bench.faults[FIRST.name] = beside
        assert bench.attempt(FIRST).reason == reason
    bench.faults[FIRST.name] = spoil("out")
    assert bench.attempt(FIRST).reason == "out: 1 elements are wrong, the first is element 0"
    assert bench.attempt(SECOND).status == "ok"


class Trusting(Transpose):
    """Transposes that NumPy can only do where there are four rows at most."""

    def sizes_for_numpy(self, spec: MatrixSpec, extents: Extents) -> Extents:
        return {"rows": 4, "cols": 3, "in_pitch": 3, "out_pitch": 4}

    def oracle(self, spec: MatrixSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        assert extents["rows"] <= 4
        return super().oracle(spec, inputs, extents)


def test_where_numpy_is_too_slow_base_is_proven_at_less_and_the_others_give_its_bits(
    open_bench: Callable[[Problem], Bench],
) -> None:
    bench = open_bench(replace(PROBLEM, family=Trusting()))
    assert bench.attempt(FIRST).status == "ok"
    bench.faults[SECOND.name] = spoil("out")
    assert bench.attempt(SECOND).reason == "out: 1 elements are wrong, the first is element 0"
    freed = [memory.size for memory in bench.gpu.allocations if memory.freed]
    assert freed == [48 + 8192, 48 + 8192, 48]  # input, output and reference of 4 x 3


def test_a_base_that_is_wrong_at_the_provable_sizes_is_reported(
    open_bench: Callable[[Problem], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: Any) -> Mapping[str, Expected]:
        return {"out": Expected(np.zeros((3, 4), np.uint32))}

    monkeypatch.setattr(Trusting, "oracle", wrong)
    with pytest.raises(RunError, match="transpose_10_b32 4 x 3"):
        open_bench(replace(PROBLEM, family=Trusting()))


class InPlace(FakeFamily):
    """Turns every bit of bytes."""

    def layouts(self, spec: FakeSpec, extents: Extents) -> Mapping[str, Layout]:
        return {"data": Layout((extents["n"],), (1,), np.dtype(np.uint8))}

    def oracle(self, spec: FakeSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        return {"data": Expected(~inputs["data"])}


def test_what_is_changed_in_place_starts_from_the_same_content_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    family, spec = InPlace(), FakeSpec("flip", (Operand("data", "inout", U8, ("n",)),))
    plan = Plan((Launch((ONE, ONE, ONE), (1, 1, 1), ("data",)),))
    base, first, second = (CalledVariant(family, spec, FakeAlgorithm(plan), FakeConfig(), name) for name in "abc")
    bench = Bench(monkeypatch, Problem(family, spec, {"n": 13}), base)
    assert bench.attempt(first).status == "ok"
    assert len(bench.rounds([first], 4).times_us[first.name]) == 4
    bench.faults[second.name] = spoil("data", 3)
    assert bench.attempt(second).reason == "after the timing loop: data: 4 elements are wrong, the first is element 0"


@pytest.mark.parametrize(("times", "graphs"), [(GRAPH_FROM - 1, False), (GRAPH_FROM, True)])
def test_calls_of_more_launches_than_a_driver_queues_are_graphs(
    monkeypatch: pytest.MonkeyPatch, times: int, graphs: bool
) -> None:
    family, spec = InPlace(), FakeSpec("flip", (Operand("data", "inout", U8, ("n",)),))
    plan = Plan((Launch((ONE, ONE, ONE), (1, 1, 1), ("data",), times=constant(times)),))
    base, other = (CalledVariant(family, spec, FakeAlgorithm(plan), FakeConfig(), name) for name in "ab")
    bench = Bench(monkeypatch, Problem(family, spec, {"n": 13}), base)
    bench.gpu.queue.clear()
    trial = bench.attempt(other)
    assert (trial.status, trial.times_us) == ("ok", (3.0,) * SAMPLES)
    assert bool(bench.gpu.captured) is graphs
    assert not bench.gpu.graphs  # all are closed
    queued = " ".join(one for one in bench.gpu.queue if one in ("gate 0", "launch"))
    assert ("launch launch" in queued) is not graphs  # a graph is alone behind its gate


def test_a_system_with_scalars_and_points_can_be_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scalars are 1 where kernels are timed, for NumPy as well."""
    family = find_family(FAMILIES, "system")
    u = gen.fields("u")[0]
    (rate,) = gen.scalars("rate")
    spec = gen.system({u: u + rate * u.laplace()}, sources=u, receivers=u)
    problem = Problem(family, spec, extents_of(spec, (5, 7), 2))
    base, other = (variant(family, spec, "naive", NaiveConfig(block_x=x)) for x in (32, 64))
    bench = Bench(monkeypatch, problem, base)
    assert bench.attempt(other).status == "ok"
    sweeps = [step for step in bench.gpu.launched[-1].steps if not step.entry]
    assert sweeps
    assert all((F32, 1) in step.arguments for step in sweeps)
