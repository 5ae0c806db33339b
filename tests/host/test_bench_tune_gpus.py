"""`bench/tune_gpus.py` without a GPU: devices that are none, of which one is disturbed by the others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest

from bench import tune_gpus
from bench.tune_gpus import Rate, disturbances, rate_in
from gen.families import FAMILIES
from gen.tune.device import Entrant, Rounds
from gen.tune.targets import problems
from tests.fake_tuning import FakeFarm, FakeSession, FakeTuningDevice


@pytest.mark.parametrize("slower", [0.0, 0.01])
def test_a_time_that_others_disturb_shows(slower: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_gpus, "TURNS", 4)
    first, other = FakeTuningDevice(noise=0.002), FakeTuningDevice()
    rounds, turns = FakeSession.rounds, iter(range(2 * tune_gpus.TURNS))

    def disturbed(session: FakeSession, entrants: Sequence[Entrant], count: int) -> Rounds:
        is_busy, before, end = next(turns) % 4 in (1, 2), len(other.attempts), time.monotonic() + 300
        while is_busy and len(other.attempts) == before:
            assert time.monotonic() < end, "nobody disturbs it"
        factor = 1 + slower * is_busy
        found = rounds(session, entrants, count).times_us
        return Rounds({name: [factor * us for us in times] for name, times in found.items()})

    monkeypatch.setattr(FakeSession, "rounds", disturbed)
    (problem,) = problems(FAMILIES, "transpose_10_b32", {}, ("64x96",))
    found = list(disturbances(problem, [first, other], FakeFarm()))
    assert found
    assert (first.open_sessions, other.open_sessions) == (0, 0)
    assert all(row.is_free == (slower == 0.0) for row in found)
    assert all(row.ratio == pytest.approx(1 + slower, abs=0.001) for row in found)
    assert other.attempts
    assert not first.attempts


def test_what_processes_have_had_of_the_cpus_is_counted() -> None:
    work = "import subprocess, sys; sum(range(10 ** 7)); subprocess.run([sys.executable, '-c', sys.argv[1]]); input()"
    inner = "sum(range(10 ** 7)); print('done', flush=True); input()"
    words, pipe = [sys.executable, "-c", work, inner], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "done\n"
        found = tune_gpus.cpu_seconds(running.pid)
        running.communicate("\n\n")
    assert len(found) == 2
    assert running.pid in found
    assert min(found.values()) > 0
    assert os.getpid() not in found


def test_variants_that_cannot_run_are_not_counted() -> None:
    statuses = [{"ok": 30, "wrong_result": 2, "infeasible": 50}, {"ok": 8, "pruned": 9}]
    found = rate_in({"seconds": 4.0, "outcomes": [{"statuses": one} for one in statuses]}, 2)
    assert found == Rate(2, 40, 4.0, 2)
    assert found.a_second == 10.0
