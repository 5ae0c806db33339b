"""A GPU that is none: it replays times, and misbehaves where it is told to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gen.errors import CompileError, RunError
from gen.families.base import Limits, Variant
from gen.gpu.trial import Problem, Rounds, Trial
from gen.toolchain.compiled import Compiled
from tests.fakes import FakeCompiler

SAMPLES = 7


@dataclass
class FakeDevice:
    """Tries variants without running them.

    Attributes:
        time_us: how long a variant takes.
        wrong, crashing: variants, by name, that compute something else or do not run.
        deadly: variants that take the device down with them.
        spoilt: variants that are right when attempted, and wrong in the rounds.
        noise: the relative spread of a time, the same for all variants in a round.
        base_wrong: base computes something else.
        interrupt: the user presses Ctrl-C before this attempt, counted from 1.
        attempts: every attempt, as variant and number of samples it was given.
        finals: the variants of every call of `rounds`.
        seen: every problem opened, with its base.
        open_sessions: those not closed.
        lost: a deadly variant ran.
    """

    time_us: Callable[[Variant], float] = lambda _: 10.0
    name: str = "Fake GPU"
    driver: str = "1.0"
    limits: Limits = field(default_factory=lambda: Limits.of("sm_90"))
    wrong: frozenset[str] = frozenset()
    crashing: frozenset[str] = frozenset()
    deadly: frozenset[str] = frozenset()
    spoilt: frozenset[str] = frozenset()
    noise: float = 0.0
    base_wrong: bool = False
    interrupt: int | None = None
    floor: float = 5.0
    attempts: list[tuple[str, int]] = field(default_factory=list)
    finals: list[list[str]] = field(default_factory=list)
    seen: list[tuple[Problem, Variant]] = field(default_factory=list)
    open_sessions: int = 0
    lost: bool = False

    def open(self, problem: Problem, base: Variant, compiled: Compiled) -> FakeSession:
        assert compiled.name == base.name
        if self.base_wrong:
            raise RunError(f"{base.name} on {problem}", "is wrong: out must be 1.0, is 2.0")
        self.seen.append((problem, base))
        self.open_sessions += 1
        return FakeSession(self)

    def floor_us(self, _: Problem) -> float:
        return self.floor


class FakeSession:
    """One problem on it. Times only what was attempted, as a GPU would."""

    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self._ready: set[str] = set()
        self._random = np.random.default_rng(7)

    def attempt(self, variant: Variant, compiled: Compiled, give_up_us: float) -> Trial:
        device = self._device
        assert compiled.name == variant.name
        if device.interrupt == len(device.attempts) + 1:
            raise KeyboardInterrupt
        registers = max(used.registers for used in compiled.resources.values())
        time_us = device.time_us(variant)
        count = SAMPLES if time_us <= give_up_us else 1
        device.attempts.append((variant.name, count))
        device.lost = device.lost or variant.name in device.deadly
        if variant.name in device.crashing or device.lost:
            return Trial(variant, "launch_failed", registers=registers, reason="an illegal address")
        if variant.name in device.wrong:
            return Trial(variant, "wrong_result", registers=registers, reason="out: 3 elements are wrong")
        self._ready.add(variant.name)
        return Trial(variant, "ok", tuple([time_us] * count), registers)

    def rounds(self, variants: Sequence[Variant], count: int) -> Rounds:
        device = self._device
        device.finals.append([variant.name for variant in variants])
        assert {variant.name for variant in variants} <= self._ready, "not attempted in this session"
        for variant in variants:
            if variant.name in device.spoilt:
                raise RunError(variant.name, "was right before and is wrong now", "out: 1 element is wrong")
        disturbed = 1 + device.noise * self._random.random(count)
        return Rounds({made.name: [device.time_us(made) * float(by) for by in disturbed] for made in variants})

    def alive(self) -> bool:
        return not self._device.lost

    def close(self) -> None:
        self._device.open_sessions -= 1


@dataclass(frozen=True)
class CountingCompiler(FakeCompiler):
    """Compiles one source after another, only when it is asked for.

    Attributes:
        compiled: the names of all sources taken.
        registers: of a variant, by name, where it is not 20.
    """

    compiled: list[str] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)

    def compile_many(self, items: Iterable[tuple[str, str]], arch: str) -> Iterator[Compiled | CompileError]:
        for name, text in items:
            self.compiled.append(name)
            for result in super().compile_many([(name, text)], arch):
                if isinstance(result, Compiled) and name in self.registers:
                    used = replace(result.resources[name], registers=self.registers[name])
                    yield replace(result, resources={name: used})
                else:
                    yield result
