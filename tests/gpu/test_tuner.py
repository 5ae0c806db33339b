"""Tuning on the GPU: the right winner, whatever is seeded into the space, and whenever it is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Layout, Variant
from gen.families.names import find_family, variant
from gen.store.trials import Problem, Trials
from gen.toolchain.farm import CompileFarm
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.choose import Interval, paired_ratio
from gen.tune.device import Entrant, IsolatedDevice
from gen.tune.gpu_session import GpuFactory
from gen.tune.one_problem import Options, tune
from gen.tune.search import InOrder, Search, Space
from gen.tune.several_problems import run

TRANSPOSE = find_family(FAMILIES, "transpose")
MATRIX = TRANSPOSE.catalogue[0]
LAYOUTS = {
    name: Layout((rows, cols), (4 * cols, 4), np.dtype(np.float32))
    for name, rows, cols in (("in", 2048, 1024), ("out", 1024, 2048))
}
SMALL = Problem(TRANSPOSE, MATRIX, TRANSPOSE.extents(MATRIX, LAYOUTS))
ONCE = "blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0"
# What is written at the start of a kernel, and what becomes of its trial.
FAULTS = {
    "wrong": ("if (blockIdx.x == gridDim.x - 1) return;", "wrong_result"),
    "crash": (f"if ({ONCE}) *reinterpret_cast<volatile unsigned*>(8) = 1;", "launch_failed"),
    "trap": (f'if ({ONCE}) asm volatile("trap;");', "launch_failed"),
    "beyond": (f"if ({ONCE}) out[cols * out_pitch] = 1;", "wrong_result"),
    "hang": ("while (*static_cast<const volatile unsigned*>(in) != 0xdeadbeef) {}", "timeout"),
    "no C++": ("int x = ;", "compile_failed"),
}


def few(space: Space) -> Search:
    """Every 7th of a space."""
    return InOrder(space, range(0, space.size, 7))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuner")


@pytest.fixture(scope="module")
def device(compiler: Nvrtc, home: Path) -> Iterator[IsolatedDevice]:
    with IsolatedDevice(GpuFactory(0, compiler, home), watchdog=4.0) as found:
        yield found


@pytest.fixture(scope="module")
def farm(compiler: Nvrtc) -> Iterator[CompileFarm]:
    with CompileFarm(compiler) as found:
        yield found


def spoiled(faults: dict[str, str]) -> Callable[[Variant], str]:
    """Texts in which the kernels of some names begin with something else."""

    def text(made: Variant) -> str:
        fault = faults.get(made.name)
        if fault is None:
            return render(made)
        return re.sub(rf"(\b{made.name}\([^)]*\) \{{)", lambda found: f"{found[1]}\n  {fault}", render(made), count=1)

    return text


def beside(device: IsolatedDevice, farm: CompileFarm, made: Variant, other: Variant) -> Interval:
    """The time of one over another's, in turns: processes, and minutes, differ by more than variants do."""
    entrants = [
        Entrant(one, farm.submit(one.name, render(one), device.limits.arch).result())
        for one in dict.fromkeys((made, other))
    ]
    session = device.open(SMALL, entrants[0])
    try:
        times = session.rounds(entrants, 60).times_us
    finally:
        session.close()
    return paired_ratio(times[made.name], times[other.name])


@pytest.mark.alone
def test_a_space_seeded_with_faults_ends_with_the_right_winner(
    device: IsolatedDevice, farm: CompileFarm, tmp_path: Path
) -> None:
    clean = tune(SMALL, device, farm, Trials(tmp_path / "a"), options=Options(few))
    assert clean.winner is not None
    assert clean.statuses.keys() <= {"ok", "infeasible", "pruned"}
    fast = sorted((t for t in clean.trials if t.status == "ok" and not t.same_as), key=lambda t: t.median_us)
    # Not the winner, and not base: with a base that is wrong nothing is tuned.
    base = variant(SMALL.family, SMALL.spec, *SMALL.family.base(SMALL.spec, SMALL.shape_class))
    kept = {clean.winner.variant.name, base.name}
    names = [t.variant.name for t in fast if t.variant.name not in kept][: len(FAULTS)]
    seeded = dict(zip(names, FAULTS.values(), strict=True))
    before = device.restarts
    text = spoiled({name: fault for name, (fault, _) in seeded.items()})
    outcome = tune(SMALL, device, farm, Trials(tmp_path / "b"), options=Options(few), text=text)
    by_name = {trial.variant.name: trial for trial in outcome.trials}
    assert {name: by_name[name].status for name in names} == {name: status for name, (_, status) in seeded.items()}
    assert device.restarts == before + 3
    assert outcome.winner is not None
    assert outcome.winner.variant.name not in names
    assert beside(device, farm, outcome.winner.variant, clean.winner.variant).low <= 1.03
    assert len(outcome.trials) == len(clean.trials)
    assert all(trial.status in ("ok", "infeasible", "pruned") for name, trial in by_name.items() if name not in names)


def test_a_process_that_somebody_kills_costs_no_trial(
    device: IsolatedDevice, farm: CompileFarm, tmp_path: Path
) -> None:
    before, killed = device.restarts, list[int]()

    def tick(done: int, _: int) -> None:
        if done in (40, 120):
            killed.append(done)
            os.kill(device.workers.pids[0], signal.SIGKILL)

    outcome = tune(SMALL, device, farm, Trials(tmp_path), options=Options(few), tick=tick)
    assert killed == [40, 120]
    assert device.restarts == before + 2
    assert outcome.statuses.keys() <= {"ok", "infeasible", "pruned"}
    assert outcome.winner is not None


@pytest.mark.alone
def test_one_launch_among_many_takes_less_than_one_from_cold_caches(device: IsolatedDevice, farm: CompileFarm) -> None:
    made = few(Space(SMALL.family, SMALL.spec)).ask(3)
    entrants = [Entrant(one, farm.submit(one.name, render(one), device.limits.arch).result()) for one in made]
    session = device.open(SMALL, entrants[0])
    try:
        cold, hot = (session.rounds(entrants, 10, hot=hot) for hot in (False, True))
    finally:
        session.close()
    assert cold.faults == hot.faults == ()
    for one in made:
        assert len(hot.times_us[one.name]) == 10
        assert min(hot.times_us[one.name]) > 0.5
        assert max(hot.times_us[one.name]) < min(cold.times_us[one.name])


def test_what_is_noted_with_a_winner(device: IsolatedDevice, farm: CompileFarm, tmp_path: Path) -> None:
    outcome = tune(SMALL, device, farm, Trials(tmp_path), options=Options(few))
    assert outcome.finals is not None
    assert outcome.interval is not None
    assert outcome.winner is not None
    assert outcome.finals.hot_us == {} or outcome.winner.variant.name in outcome.finals.hot_us
    assert outcome.finals.rounds % 10 == 0
    assert outcome.interval.low <= outcome.median_us <= outcome.interval.high
    assert all(trial.registers > 0 for trial in outcome.trials if trial.status == "ok")


@pytest.mark.alone
def test_a_run_writes_winners_and_a_rerun_measures_nothing_anew(
    device: IsolatedDevice, farm: CompileFarm, tmp_path: Path
) -> None:
    first = run([SMALL], FAMILIES, device, farm, tmp_path, options=Options(few))
    winners = json.loads((tmp_path / "tuned.json").read_text())["winners"]  # those that came with gen are kept
    (winner,) = [one for one in winners if one["spec"] == SMALL.spec_name and one["extents"] == dict(SMALL.extents)]
    assert winner["of_limit"] > 0
    assert (tmp_path / f"{winner['variant']}.cu").is_file()
    trials = Trials(tmp_path)
    before = trials.count()
    again = run([SMALL], FAMILIES, device, farm, tmp_path, options=Options(few))
    assert trials.count() == before == len(first.outcomes[0].trials)
    assert again.outcomes[0].winner is not None
    assert again.outcomes[0].winner.variant.name == winner["variant"]


def test_kills_at_random_moments_lose_nothing_that_was_recorded(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gen", "tune", "transpose", "--shape", "2048x1024", "--home", str(tmp_path)]
    random, seen = np.random.default_rng(3), 0
    for _ in range(4):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        start = time.monotonic()
        while _rows(tmp_path) <= seen and process.poll() is None and time.monotonic() < start + 60:
            time.sleep(0.05)
        time.sleep(float(random.random()))
        known = _rows(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert _rows(tmp_path) >= known > seen
        seen = _rows(tmp_path)
    assert subprocess.run(command, check=False).returncode == 0
    assert _rows(tmp_path) >= seen
    assert any("2048" in str(one["extents"]) for one in json.loads((tmp_path / "tuned.json").read_text())["winners"])


def _rows(home: Path) -> int:
    """Recorded trials that gave a time."""
    if not (home / "trials.sqlite").exists():
        return 0
    with sqlite3.connect(home / "trials.sqlite", timeout=30) as base:
        try:
            found = base.execute("SELECT count(*) FROM trials WHERE status = 'ok'").fetchone()[0]
        except sqlite3.OperationalError:  # no table yet
            return 0
    base.close()
    return int(found)
