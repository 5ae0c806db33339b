"""Tuning at the first call: what is tried, kept, found again and refused, on a device whose kernels NumPy computes."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import ArgumentError, GenError
from gen.families import FAMILIES
from gen.families.names import find_spec, heuristic_variants, variant
from gen.gpu.device import bytes_at
from gen.gpu.lock import alone_on
from gen.paths import output_home
from gen.store.trials import Problem
from gen.store.winners import found_at_first_calls
from gen.tune import locked
from gen.tune.device import Entrant
from gen.tune.first_call import LocalDevice
from gen.tune.search import InOrder
from tests.fake_device import FakeDevice, OnDevice
from tests.fakes import OracleRunner
from tests.host.load.given import SUM, arange

BUDGET = 600.0  # seconds: what is often fast is tried, and nothing else
SIZE = 5000


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDevice:
    """A device on which every variant takes 100 us, but for those that a test speeds up. There is no search.

    Its lock is the test's own: other tests tune on a device of that name at the same time.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("gen.tune.first_call.Climb", lambda space, **_: InOrder(space, ()))
    monkeypatch.setattr("gen.tune.gpu_session.WARM_UP_SECONDS", 0.0)
    gpu = FakeDevice(OracleRunner())
    gpu.usual_us = 100.0
    return gpu


@pytest.fixture
def fast(timed: FakeDevice) -> str:
    """What is often fast for SIZE elements but not called untuned: it takes half as long as all others."""
    untuned = gen.load(SUM, device=timed).variant_for(SIZE)
    family, spec = find_spec(FAMILIES, SUM, {})
    often = heuristic_variants(family, spec, family.shape_class(spec, {"n": SIZE}), timed.limits)
    found = next(made.name for made in often if made.name != untuned)
    timed.times_us[found] = 50.0
    return found


def total(kernel: Any, size: int = SIZE) -> None:
    assert kernel(OnDevice(arange(size))).numpy() == arange(size).sum()


def test_the_first_call_of_a_problem_is_tuned_and_later_kernels_find_the_winner(timed: FakeDevice, fast: str) -> None:
    kernel = gen.load(SUM, device=timed, tune=BUDGET)
    total(kernel)
    assert kernel.variant_for(SIZE) == fast
    words = f"tuned on Fake GPU for 2^12 to 2^15 elements, n {SIZE}, aligned to 16 bytes: median 50 us at n 5000"
    assert kernel.why_for(SIZE) == words
    later = gen.load(SUM, shape=SIZE, device=timed)
    assert (later.variant, later.tuned) == (fast, True)
    count = len(timed.loaded)
    total(kernel)
    gen.tune(SUM, SIZE, device=timed)
    assert len(timed.loaded) == count  # nothing is tried again


def test_other_problems_are_as_they_were(timed: FakeDevice, fast: str) -> None:
    before = gen.load(SUM, device=timed).variant_for(SIZE + 8)
    gen.tune(SUM, SIZE, budget=BUDGET, device=timed)
    assert gen.load(SUM, device=timed).variant_for(SIZE + 8) == before != fast
    assert not (output_home() / "tuned.json").exists()  # which is what `gen tune` writes


def test_nothing_is_tuned_unless_somebody_asks(timed: FakeDevice, fast: str) -> None:
    total(gen.load(SUM, device=timed))
    assert fast not in timed.loaded
    assert found_at_first_calls(output_home()) == ()


def test_a_scope_tunes_all_kernels_and_ends(timed: FakeDevice, fast: str) -> None:
    kernel = gen.load(SUM, device=timed)

    @gen.tuning(BUDGET)
    def work() -> None:
        total(kernel)

    work()
    assert kernel.variant_for(SIZE) == fast
    total(kernel, SIZE + 8)
    assert [winner.evidence["extents"] for winner in found_at_first_calls(output_home())] == [{"n": SIZE}]


def test_a_bound_kernel_is_tuned_when_it_is_loaded(timed: FakeDevice, fast: str) -> None:
    kernel = gen.load(SUM, shape=SIZE, device=timed, tune=f"{BUDGET}s")
    assert (kernel.variant, kernel.tuned) == (fast, True)


def test_an_array_says_its_alignment_too(timed: FakeDevice) -> None:
    array = arange(SIZE + 1)[1:]
    kernel = gen.tune(SUM, OnDevice(array), budget=BUDGET, device=timed)
    (winner,) = found_at_first_calls(output_home())
    assert winner.region.words == f"n {SIZE}, aligned to 4 bytes"
    assert not gen.load(SUM, shape=SIZE, device=timed).tuned
    assert float(kernel(OnDevice(array)).numpy()) == array.sum()


def test_a_variant_that_is_wrong_never_wins(timed: FakeDevice, fast: str) -> None:
    runner = timed.runner
    assert isinstance(runner, OracleRunner)
    runner.wrong = (fast,)
    kernel = gen.load(SUM, device=timed, tune=BUDGET)
    total(kernel)
    assert kernel.variant_for(SIZE) != fast
    assert found_at_first_calls(output_home()) != ()


def test_frozen_forbids_it(timed: FakeDevice) -> None:
    kernel = gen.load(SUM, device=timed, tune=BUDGET)
    with gen.frozen():
        with pytest.raises(GenError, match=rf"{SUM} at {SIZE} is not tuned, and gen.frozen\(\) forbids .* by gen.tune"):
            total(kernel)
        with pytest.raises(GenError, match="forbids"), gen.tuning(BUDGET):
            total(gen.load(SUM, device=timed))
        total(gen.load(SUM, device=timed))  # which asks for none
    assert timed.launched[0].variant == kernel.variant_for(SIZE)
    total(kernel)
    with gen.frozen():
        total(gen.load(SUM, device=timed, tune=BUDGET))  # it was tuned before


def test_a_locked_folder_forbids_it(timed: FakeDevice) -> None:
    kernel = gen.load(SUM, device=timed, tune=BUDGET)
    locked.lock(output_home(), FAMILIES)
    with pytest.raises(GenError, match=rf"{SUM} at {SIZE} is not tuned, and gen lock of {output_home()} forbids"):
        total(kernel)
    total(gen.load(SUM, device=timed))
    locked.unlock(output_home())
    total(kernel)


@pytest.mark.parametrize("budget", ["", "2 days", 0, -1.0, float("inf"), float("nan"), True, None, [2]])
def test_what_is_no_time_is_refused(budget: Any, timed: FakeDevice) -> None:
    with pytest.raises(ArgumentError, match="The budget must be a positive time"):
        gen.tune(SUM, SIZE, budget=budget, device=timed)
    with pytest.raises(ArgumentError, match="The budget must be a positive time"):
        gen.tuning(budget)


def test_a_call_that_is_captured_is_not_tuned(timed: FakeDevice, fast: str) -> None:
    timed.captures[1] = 7  # the legacy default stream's
    gen.load(SUM, device=timed, tune=BUDGET)(OnDevice(arange(SIZE)))
    assert fast not in timed.loaded


def test_another_process_that_tunes_is_not_waited_for(
    timed: FakeDevice, fast: str, caplog: pytest.LogCaptureFixture
) -> None:
    with alone_on("Fake GPU-0-first-call", "tests", say=print):
        total(gen.load(SUM, device=timed, tune=BUDGET))
    assert fast not in timed.loaded
    assert any("is in use by" in record.message for record in caplog.records if record.levelno == logging.WARNING)


def test_threads_tune_one_problem_once(timed: FakeDevice, fast: str) -> None:
    kernels = [gen.load(SUM, device=timed, tune=BUDGET) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert (
            list(pool.map(lambda kernel: float(kernel(OnDevice(arange(SIZE))).numpy()), kernels))
            == [arange(SIZE).sum()] * 4
        )
    assert {kernel.variant_for(SIZE) for kernel in kernels} == {fast}
    assert timed.loaded.count(fast) < 2 * len(kernels)


def test_where_there_is_no_memory_the_untuned_variant_is_called(
    timed: FakeDevice, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = gen.load(SUM, device=timed, tune=BUDGET)
    timed.free = 1 << 10
    kernel(OnDevice(arange(SIZE)))
    assert "is not tuned" in caplog.text


def test_on_the_cpu_run_nothing_is_tuned() -> None:
    kernel = gen.load(SUM, device="cpu", tune=BUDGET)
    assert kernel(arange(100)) == np.arange(100).sum()
    assert found_at_first_calls(output_home()) == ()


@pytest.mark.parametrize(("factor", "status"), [(1 + 2.0**-23, "ok"), (1.001, "wrong_result")])
def test_a_result_may_be_rounded_otherwise_than_by_base_and_no_more(
    timed: FakeDevice, factor: float, status: str
) -> None:
    family, spec = find_spec(FAMILIES, "reduction_var_f32", {})
    problem = Problem(family, spec, {"n": SIZE})
    base = variant(family, spec, *family.base(spec, problem.shape_class))
    other = next(made for made in heuristic_variants(family, spec, problem.shape_class, timed.limits) if made != base)

    def change(gpu: FakeDevice, addresses: Mapping[str, int], _: int) -> None:
        result = bytes_at(gpu, addresses["out"], 4).view(np.float32)
        gpu.upload(addresses["out"], (result * np.float32(factor)))

    timed.after[other.name] = change
    local = LocalDevice(timed, output_home())
    session = local.open(problem, Entrant(base, timed.compile(base.name, base.name)))
    assert session.submit(Entrant(other, timed.compile(other.name, other.name)), 1e9).result().status == status
    session.close()
    local.close()


def test_a_call_that_takes_too_long_for_the_budget_is_not_tuned(
    timed: FakeDevice, fast: str, caplog: pytest.LogCaptureFixture
) -> None:
    gen.tune(SUM, SIZE, budget=1e-9, device=timed)
    assert "a call takes" in caplog.text
    assert fast not in timed.loaded
