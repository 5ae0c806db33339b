"""A GPU that is none: it replays times, and misbehaves where it is told to."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gen.errors import CompileError, RunError
from gen.families.base import Limits, Variant
from gen.families.names import base_variants
from gen.store.trials import Problem, Status, Trial
from gen.toolchain.compiled import Compiled, Resources
from gen.tune.device import Entrant, Rounds
from gen.tune.pipeline import why_unable
from gen.tune.search import Space, exhaustive

if TYPE_CHECKING:
    import pytest  # not otherwise: processes that drive a fake device import this module, each for itself

SAMPLES = 3


@dataclass
class FakeTuningDevice:
    """Tries variants without running them.

    Attributes:
        time_us: how long a variant takes.
        bad: what is wrong with variants, by name.
        spoilt: what is wrong with variants, by name, that are right when attempted.
        noise: the relative spread of a time, the same for all variants in a turn.
        own_noise: the relative spread of each time by itself.
        base_wrong: base computes something else.
        interrupt: the user presses Ctrl-C before this attempt, counted from 1.
        attempts: every attempt, as variant and number of samples it was given.
        finals: the variants and the number of rounds of every call of `rounds`.
        hot: the same of those among many launches, which take `hot_us`.
        seen: every problem opened, with its base.
        open_sessions: those not closed.
        prepared: every problem announced.
    """

    time_us: Callable[[Variant], float] = lambda _: 10.0
    name: str = "Fake GPU"
    driver: str = "1.0"
    width: int = 1
    uuid: str = ""  # nobody locks it
    limits: Limits = field(default_factory=lambda: Limits.of("sm_90"))
    bad: Mapping[str, Status] = field(default_factory=dict)
    spoilt: Mapping[str, Status] = field(default_factory=dict)
    noise: float = 0.0
    own_noise: float = 0.0
    base_wrong: bool = False
    interrupt: int | None = None
    floor: float = 5.0
    seed: int = 7
    attempts: list[tuple[str, int]] = field(default_factory=list)
    finals: list[tuple[list[str], int]] = field(default_factory=list)
    seen: list[tuple[Problem, Variant]] = field(default_factory=list)
    open_sessions: int = 0
    prepared: list[Problem] = field(default_factory=list)
    hot_us: Callable[[Variant], float] = lambda _: 4.0
    hot: list[tuple[list[str], int]] = field(default_factory=list)

    def open(self, problem: Problem, base: Entrant) -> FakeSession:
        self.seen.append((problem, base.variant))
        self.open_sessions += 1
        opening: Future[None] = Future()
        if self.base_wrong:
            opening.set_exception(RunError(f"{base.name} on {problem}", "is wrong: out must be 1.0, is 2.0"))
        else:
            opening.set_result(None)
        return FakeSession(self, opening)

    def prepare(self, problem: Problem) -> None:
        self.prepared.append(problem)

    def floor_us(self, _: Problem) -> float:
        return self.floor


class FakeSession:
    """One problem on it."""

    def __init__(self, device: FakeTuningDevice, opening: Future[None]) -> None:
        self._device, self._opening = device, opening
        self._random = np.random.default_rng(device.seed)
        self._right: set[str] = set()

    def ready(self) -> Future[None]:
        return self._opening

    def submit(self, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        device = self._device
        if device.interrupt == len(device.attempts) + 1:
            raise KeyboardInterrupt
        future: Future[Trial] = Future()
        if self._opening.exception() is not None:
            future.set_exception(RunError("The GPU", "has no problem open"))
            return future
        time_us = device.time_us(entrant.variant)
        count = SAMPLES if time_us <= give_up_us else 2
        device.attempts.append((entrant.name, count))
        status = device.bad.get(entrant.name)
        if status is not None:
            future.set_result(entrant.untimed(status, f"made to: {status}"))
        else:
            times = tuple(time_us * (1 + device.own_noise * self._random.random(count)))
            future.set_result(replace(entrant.untimed("ok", ""), times_us=tuple(map(float, times))))
        return future

    def rounds(self, entrants: Sequence[Entrant], count: int, *, hot: bool = False) -> Rounds:
        device = self._device
        (device.hot if hot else device.finals).append(([entrant.name for entrant in entrants], count))
        time_us = device.hot_us if hot else device.time_us
        for entrant in entrants:
            status = device.spoilt.get(entrant.name) or device.bad.get(entrant.name)
            if status is not None:
                return Rounds(faults=(entrant.untimed(status, f"among the finalists: {status}"),))
        disturbed = 1 + device.noise * self._random.random(count)
        times = {
            entrant.name: [
                time_us(entrant.variant) * float(by * (1 + device.own_noise * self._random.random()))
                for by in disturbed
            ]
            for entrant in entrants
        }
        return Rounds(times, (), (1900, 1980), ("power limit",))

    def close(self) -> None:
        self._device.open_sessions -= 1


@dataclass
class FakeFarm:
    """Compiles a source at once.

    Attributes:
        refused: variants, by name, that do not compile.
        registers, spills: of a variant, by name, where they are not 20 and 0.
        same: what a variant's machine code is, by name, where it is not its own.
        compiled: the names of all sources taken.
    """

    version: str = "fake 1.0"
    options: str = ""
    width: int = 4
    refused: tuple[str, ...] = ()
    registers: Mapping[str, int] = field(default_factory=dict)
    spills: Mapping[str, int] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    compiled: list[str] = field(default_factory=list)

    def submit(self, name: str, text: str, arch: str) -> Future[Compiled]:
        self.compiled.append(name)
        future: Future[Compiled] = Future()
        if name in self.refused:
            future.set_exception(CompileError(name, f"{name}.cu(7): error: expected a ';'", Path("failed.cu")))
            return future
        used = Resources(self.registers.get(name, 20), self.spills.get(name, 0), 0, 0, 0, 0)
        symbols = defaultdict(partial(replace, used), {name: used})  # for its other kernels too, in any process
        future.set_result(Compiled(name, arch, self.same.get(name, name).encode(), symbols, 1.5))
        return future

    def close(self) -> None:
        """Nothing runs."""


# ---- a bench for a process that may die


Misdeed = str
"""`crash`, `hang`, `lose` (the device answers no more), `wrong`; or another does it: `killed once`, `killed`."""


@dataclass
class DyingBench:
    """What drives a fake device in a process of its own, and does to it what kernels do; also makes itself.

    Attributes:
        misdeeds: of variants, by name, when they are attempted; `final:NAME` in the rounds; `open` when a problem is
            opened, `reopen` when that is not the first time.
        seconds: of each attempt.
        dies_at_start: the process ends before it is ready.
        starts: a file that gets a line for each start and each problem opened.
    """

    misdeeds: Mapping[str, Misdeed]
    starts: Path
    seconds: float = 0.0
    dies_at_start: bool = False
    name: str = "Fake GPU"
    driver: str = "1.0"
    limits: Limits = field(default_factory=lambda: Limits.of("sm_90"))
    about: str = "about it"

    def __call__(self) -> Any:
        self.note("start")
        if self.dies_at_start:
            os._exit(3)
        return self

    def note(self, what: str) -> None:
        with self.starts.open("a") as file:
            file.write(what + "\n")

    def open(self, problem: Problem, base: Entrant) -> DyingSession:
        self.note(f"open {base.name}")
        again = self.starts.read_text().count("open ") > 1
        misdeed = self.misdeeds.get("reopen" if again else "open", "")
        if misdeed == "wrong":
            raise RunError(base.name, "is wrong")
        self.do(misdeed)
        if misdeed == "lose":
            raise RunError(base.name, "reads where nothing is")
        return DyingSession(self)

    def do(self, misdeed: Misdeed) -> None:
        """What ends the process, or keeps it."""
        if misdeed == "crash":
            os.abort()
        if misdeed == "hang":
            time.sleep(3600)
        if misdeed == "lose":
            _lost.append(True)
        if misdeed == "killed" or (misdeed == "killed once" and "killed" not in self.starts.read_text()):
            self.note("killed")
            os.kill(os.getpid(), signal.SIGKILL)

    def prepare(self, problem: Problem) -> None:
        self.note(f"prepare {problem}")

    def floor_us(self, _: Problem) -> float:
        return 5.0

    def alive(self) -> bool:
        return not _lost


_lost: list[bool] = []  # in the process that drives the device


class DyingSession:
    """One problem on it."""

    def __init__(self, bench: DyingBench) -> None:
        self._bench = bench

    def attempt(self, entrant: Entrant, give_up_us: float) -> Trial:
        time.sleep(self._bench.seconds)
        misdeed = self._bench.misdeeds.get(entrant.name, "")
        self._bench.do(misdeed)
        if misdeed and "killed" not in misdeed:
            return entrant.untimed("wrong_result" if misdeed == "wrong" else "launch_failed", misdeed)
        return replace(entrant.untimed("ok", ""), times_us=(time_of(entrant.name),) * SAMPLES)

    def rounds(
        self, entrants: Sequence[Entrant], count: int, tell: Callable[[str], None], *, hot: bool = False
    ) -> Rounds:
        for entrant in entrants:
            tell(entrant.name)
            misdeed = self._bench.misdeeds.get(f"final:{entrant.name}", "")
            self._bench.do(misdeed)
            if misdeed and "killed" not in misdeed:
                return Rounds(faults=(entrant.untimed("wrong_result", misdeed),))
        return Rounds({entrant.name: [time_of(entrant.name) / (2 if hot else 1)] * count for entrant in entrants})

    def close(self) -> None:
        self._bench.note("close")


def time_of(name: str) -> float:
    """A time for each variant, whatever it is."""
    return 5.0 + sum(name.encode()) % 101 / 10


def let_tune_find(device: FakeTuningDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has `gen tune` find this device, and compile nothing."""
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: device)
    monkeypatch.setattr("gen.gpu.device.count_gpus", lambda: 1)
    monkeypatch.setattr("gen.cli.gpu.device_of", lambda _index, _compiler, _home: nullcontext(device))
    monkeypatch.setattr("gen.cli.gpu.farm_of", lambda _compiler, _home: nullcontext(FakeFarm()))


def candidates(problem: Problem, limits: Limits) -> tuple[list[Variant], list[Trial]]:
    """The variants that can run, base first; and those that this device or this size rules out, as trials."""
    fit: dict[str, Variant] = {}
    unfit: dict[str, Trial] = {}
    space = Space(problem.family, problem.spec)
    for made in (*base_variants(problem.family, problem.spec), *exhaustive(space).ask(space.size)):
        reason = why_unable(made, problem, limits)
        if reason is None:
            fit[made.name] = made
        else:
            unfit[made.name] = Trial(made, "infeasible", reason=reason)
    return list(fit.values()), list(unfit.values())
