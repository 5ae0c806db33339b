"""One variant at a time on a GPU made of NumPy arrays: what it does wrong is its own fault alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gen.arch import Limits
from gen.errors import DeviceError, RunError
from gen.families import FAMILIES
from gen.families.names import find_spec, heuristic_variants, variant
from gen.gpu.nvml import Clocks
from gen.store.trials import Problem
from tests.fake_device import FakeDevice
from tests.host.gpu_session.given import (
    FIRST,
    SECOND,
    THIRD,
    Bench,
    spoil,
)


def test_a_right_variant_is_timed(bench: Bench) -> None:
    trial = bench.attempt(FIRST)
    assert (trial.status, trial.times_us, trial.registers) == ("ok", (3.0,) * 3, 20)


def test_a_slow_variant_is_given_up_and_a_disturbed_one_is_not(bench: Bench) -> None:
    bench.gpu.takes_us = [50.0, 11.0]
    assert bench.attempt(FIRST).times_us == (50.0, 11.0)
    bench.gpu.takes_us = [50.0]
    assert bench.attempt(SECOND).times_us == (50.0, 3.0, 3.0)
    bench.gpu.takes_us = [5000.0]
    assert bench.attempt(THIRD).times_us == (5000.0,)  # another look would cost as much again
    bench.gpu.takes_us = [7000.0]
    assert bench.attempt(THIRD, 10000.0).times_us == (7000.0,)
    bench.gpu.takes_us = [5000.0]
    assert bench.attempt(THIRD, 10000.0).times_us == (5000.0, 3.0, 3.0)


def test_a_slow_variant_that_is_wrong_is_no_trial_that_is_right(bench: Bench) -> None:
    for name, reason in (("out", "out: 1 elements are wrong"), ("in", "after the timing loop: an input was written")):
        bench.gpu.takes_us = [5000.0]
        bench.faults[FIRST.name] = spoil(name)
        trial = bench.attempt(FIRST)
        assert (trial.status, trial.reason.partition(",")[0]) == ("wrong_result", reason)
        assert bench.attempt(SECOND).status == "ok"


@pytest.mark.parametrize("offset", [-4, 35 * 4, 35 * 4 + 100])
def test_what_is_written_next_to_an_output_is_found(bench: Bench, offset: int) -> None:
    def beside(gpu: FakeDevice, addresses: Mapping[str, int], _: int) -> None:
        gpu.upload(addresses["out"] + offset, np.full(4, 0x77, np.uint8))

    bench.faults[FIRST.name] = beside
    trial = bench.attempt(FIRST)
    assert (trial.status, trial.reason) == ("wrong_result", "bytes next to out are written")
    assert bench.attempt(SECOND).status == "ok"  # the zones are whole again


@pytest.mark.parametrize("when", [1, 3])
def test_an_input_that_a_variant_spoils_is_whole_again_for_the_next(bench: Bench, when: int) -> None:
    bench.faults[FIRST.name] = spoil("in", when)
    assert bench.attempt(FIRST).status == "wrong_result"
    assert bench.attempt(SECOND).status == "ok"


def test_a_failed_launch_leaves_the_inputs_whole(bench: Bench) -> None:
    def fault(gpu: FakeDevice, addresses: Mapping[str, int], launch: int) -> None:
        spoil("in")(gpu, addresses, launch)
        raise RunError(FIRST.name, "cannot be launched")

    bench.faults[FIRST.name] = fault
    assert bench.attempt(FIRST).status == "launch_failed"
    assert bench.attempt(SECOND).status == "ok"


def test_a_variant_that_finds_no_memory_is_not_at_fault(bench: Bench) -> None:
    def fault(*_: object) -> None:
        raise DeviceError("The GPU's memory", "does not hold 64 bytes more")

    bench.faults[FIRST.name] = fault
    assert bench.attempt(FIRST).status == "infeasible"  # so that it is tried again


def test_a_variant_that_stops_writing_while_it_is_timed_is_wrong(bench: Bench) -> None:
    bench.gpu.idle[FIRST.name] = 3
    trial = bench.attempt(FIRST)
    assert trial.status == "wrong_result"
    assert "after the timing loop: out: 35 elements are wrong" in trial.reason
    bench.gpu.idle[SECOND.name] = 20
    assert bench.attempt(SECOND).status == "ok"
    (fault,) = bench.rounds([SECOND], 30).faults
    assert (fault.variant, fault.status) == (SECOND, "wrong_result")


def test_what_base_gave_is_watched(bench: Bench) -> None:
    """A kernel that writes there would make wrong what comes after it; the process begins anew then."""
    (reference,) = bench.session._references.values()

    def far(gpu: FakeDevice, addresses: Mapping[str, int], _: int) -> None:
        gpu.upload(addresses["out"], np.full(4, 0x77, np.uint8))
        gpu.upload(reference.address, np.full(4, 0x55, np.uint8))

    bench.faults[FIRST.name] = spoil("out")
    assert bench.attempt(FIRST).status == "wrong_result"
    assert bench.bench.alive()
    bench.faults[FIRST.name] = far
    assert bench.attempt(FIRST).status == "wrong_result"
    assert not bench.bench.alive()


def test_clocks_and_others_are_noted(bench: Bench) -> None:
    clocks = [Clocks(1980, ("idle",)), Clocks(1750, ("power limit", "heat"))]
    bench.bench.nvml = nvml(clocks=lambda: clocks[-1], others=lambda: ("process 7",))
    trial = bench.attempt(FIRST)
    assert (trial.sm_mhz, trial.throttled, trial.foreign) == (1750, "power limit, heat", ("process 7",))
    others = [("process 8", "process 7"), (), ()]
    bench.bench.nvml = nvml(
        clocks=lambda: clocks.pop() if len(clocks) > 1 else clocks[0], others=lambda: others.pop(0) if others else ()
    )
    rounds = bench.rounds([FIRST], 2)
    assert (rounds.sm_mhz, rounds.throttled) == ((1750, 1980), ("heat", "power limit"))
    assert rounds.foreign == ("process 7", "process 8")


def test_others_are_noted_with_what_goes_wrong_too(bench: Bench) -> None:
    bench.bench.nvml = nvml(clocks=lambda: None, others=lambda: ("process 7",))
    bench.faults[FIRST.name] = spoil("out")
    trial = bench.attempt(FIRST)
    assert (trial.status, trial.foreign) == ("wrong_result", ("process 7",))
    (fault,) = bench.rounds([FIRST], 2).faults
    assert (fault.status, fault.foreign) == ("wrong_result", ("process 7",))


def nvml(**answers: Callable[[], Any]) -> Any:
    """NVML's view of a GPU."""
    return SimpleNamespace(**answers)


@pytest.mark.parametrize(("change", "status"), [(1e-7, "ok"), (1e-5, "wrong_result")])
def test_a_mean_may_differ_from_bases_within_its_bound(
    monkeypatch: pytest.MonkeyPatch, change: float, status: str
) -> None:
    family, spec = find_spec(FAMILIES, "reduction_mean_f32", {})
    problem = Problem(family, spec, {"n": 1000, "outer": 1})
    base = variant(family, spec, *family.base(spec, problem.shape_class))
    other = next(
        made for made in heuristic_variants(family, spec, problem.shape_class, Limits.of("sm_90")) if made != base
    )
    bench = Bench(monkeypatch, problem, base)

    def near(gpu: FakeDevice, addresses: Mapping[str, int], _: int) -> None:
        found = gpu.read(addresses["out"], 4).view(np.float32)
        gpu.upload(addresses["out"], (found * np.float32(1 + change)).view(np.uint8))

    bench.faults[other.name] = near
    trial = bench.attempt(other)
    assert trial.status == status
    assert trial.reason == ("" if status == "ok" else "out: 1 elements are wrong, the first is element 0")
