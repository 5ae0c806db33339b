"""A tuning run that is killed at any moment loses nothing that was recorded, and a rerun goes on."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import find_family
from gen.store.trials import FILE, Problem, Trials
from gen.tune.one_problem import Options, tune
from gen.tune.search import InOrder, Search, Space
from gen.workers import fork
from tests.fake_tuning import FakeFarm, FakeTuningDevice, time_of

REDUCTION = find_family(FAMILIES, "reduction")
PROBLEM = Problem(REDUCTION, REDUCTION.catalogue[0], {"n": 4096})
KILLS = 50


def text_of(made: Variant) -> str:
    return f"{made.name} {made.algorithm.name}_{made.config.tag}"


def some(space: Space) -> Search:
    """At most 130 of a space, from all over it."""
    numbers = [number for number in range(0, space.size, max(space.size // 1500, 1)) if space.at(number)]
    return InOrder(space, numbers[:: -(-len(numbers) // 130)])


def tuned(home: Path, told: Callable[[int], object]) -> tuple[str, int]:
    """Tunes from what is there; the winner, and how many variants were tried."""
    trials = Trials(home)
    device = FakeTuningDevice(lambda made: time_of(made.name))

    def tick(done: int, _: int) -> None:
        told(done)

    outcome = tune(
        PROBLEM, device, FakeFarm(), trials,
        options=Options(some), text=text_of, tick=tick,
    )  # fmt: skip
    trials.close()
    assert outcome.winner is not None
    return outcome.winner.variant.name, len(device.attempts)


def rows(home: Path) -> dict[str, str]:
    """What is recorded: status and times by variant."""
    base = sqlite3.connect(home / FILE, timeout=30)
    found = base.execute("SELECT variant, status, times_us FROM trials").fetchall()
    base.close()
    return {name: f"{status} {times}" for name, status, times in found}


def killed(home: Path, after: int) -> int:
    """A process that tunes, killed a moment after it told so many trials; how many it told in all."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        tuned(home, lambda _: os.write(writing, b"."))
        os._exit(0)
    os.close(writing)
    told = 0
    while told < after and (more := os.read(reading, 1)):
        told += len(more)
    os.kill(child, signal.SIGKILL)
    while more := os.read(reading, 4096):
        told += len(more)
    os.close(reading)
    os.waitpid(child, 0)
    return told


def kill_again_and_again(pipe: Connection, home: Path, every: int) -> None:
    """Sends, after each kill, how many trials were told and what is recorded. Has no threads, and so may fork."""
    random, known = np.random.default_rng(1), 0
    for _ in range(KILLS):
        told = killed(home, known + int(random.integers(1, 2 + every // KILLS * 2)))  # it tells what it finds, too
        found = rows(home)
        known = len(found)
        pipe.send((told, found))


def test_fifty_kills_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    seen: list[int] = []
    winner, _ = tuned(tmp_path / "whole", seen.append)
    every, home, kept = len(seen), tmp_path / "killed", dict[str, str]()
    assert every > KILLS
    process, pipe = fork(kill_again_and_again, home, every, doing="is killed")
    for _ in range(KILLS):
        told, found = pipe.recv()
        assert kept.items() <= found.items()
        assert len(found) >= told
        kept = found
    process.join()
    assert KILLS / 2 < len(kept) <= every
    assert tuned(home, seen.append) == (winner, every - len(kept))
    assert rows(home) == rows(tmp_path / "whole")


def test_what_is_told_is_recorded_before(tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []
    tuned(tmp_path, lambda done: counts.append((done, len(rows(tmp_path)))) if done % 20 == 1 else None)
    assert counts
    assert all(told == recorded for told, recorded in counts)
