"""A problem on a GPU made of NumPy arrays: what a variant does wrong is its own fault alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from gen.errors import DeviceError, RunError
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import find_family, find_variant
from gen.gpu.trial import Problem, Trial
from gen.toolchain.compiled import Compiled
from tests.fake_gpu import FakeGpu, FakeKernel

FAMILY = find_family(FAMILIES, "transpose")
PROBLEM = Problem(FAMILY, FAMILY.catalogue[0], {"rows": 5, "cols": 7, "in_pitch": 7, "out_pitch": 5})
NAMES = ("transposeSmemPad", "transposeSmem", "transposeNaiveRow", "transposeNaiveCol")
BASE, FIRST, SECOND, THIRD = (find_variant(FAMILIES, name, {}) for name in NAMES)
Fault = Callable[[FakeGpu, Mapping[str, int], int], None]
"""What a kernel does after it has transposed, given the addresses and the number of its launch, counted from 1."""


class NumpyService:
    """The service kernels on the fake."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu

    def random(self, address: int, size: int, seed: int, *, floats: bool) -> None:
        low, high = (1, 9) if floats else (0, 2**32)
        words = np.random.default_rng(seed).integers(low, high, size // 4, np.uint32)
        self.gpu.upload(address, (words.astype(np.float32) if floats else words).view(np.uint8))

    def fill(self, address: int, size: int, word: int) -> None:
        self.gpu.upload(address, np.full(size // 4, word, np.uint32).view(np.uint8))

    def copy(self, source: int, target: int, size: int) -> None:
        self.gpu.upload(target, self.gpu.download(source, size))

    def checksum(self, address: int, size: int) -> int:
        return hash(self.gpu.download(address, size).tobytes())

    def differing_words(self, got: int, expected: int, size: int) -> tuple[int, int | None]:
        wrong = self.gpu.download(got, size).view("u4") != self.gpu.download(expected, size).view("u4")
        return int(wrong.sum()), int(wrong.argmax()) if wrong.any() else None


class NumpyClock:
    """Every launch takes 3 us, unless `slow` holds other times for those that come next."""

    def __init__(self) -> None:
        self.slow: list[float] = []

    def times(self, launch: Callable[[], None], samples: int, setup: Callable[[], None]) -> list[float]:
        for _ in range(samples):
            setup()
            launch()
        return [self.slow.pop(0) if self.slow else 3.0 for _ in range(samples)]


class Bench:
    """A session on the fake, whose kernels misbehave where they are told to."""

    def __init__(self, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpu = FakeGpu()
        self.faults: dict[str, Fault] = {}
        self.idle: dict[str, int] = {}  # from which launch on a kernel does nothing
        launches: dict[str, int] = {}

        class Kernel(FakeKernel):
            def __init__(kernel, variant: Variant, *_: Any) -> None:  # noqa: N805
                super().__init__(variant, self.gpu)
                launches[variant.name] = 0

            def queue(kernel, planned: Sequence[Any], addresses: Mapping[str, int]) -> None:  # noqa: N805
                name = kernel.variant.name
                launches[name] += bool(planned)
                if launches[name] < self.idle.get(name, 1000):
                    super().queue(planned, addresses)
                if planned and name in self.faults:
                    self.faults[name](self.gpu, addresses, launches[name])

        monkeypatch.setattr(module, "CudaKernel", Kernel)
        self.clock = NumpyClock()
        self.session = module.GpuSession(
            self.gpu, NumpyService(self.gpu), self.clock, PROBLEM, BASE, Compiled(BASE.name, "sm_90", b"", {})
        )

    def attempt(self, made: Variant, give_up_us: float = 10.0) -> Trial:
        found: Trial = self.session.attempt(made, Compiled(made.name, "sm_90", b"", {}), give_up_us)
        return found


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    stub: Any = ModuleType("gen.gpu.device")
    for name in ("CudaDevice", "Memory", "Function", "Flag", "Graph", "bind"):
        setattr(stub, name, None)
    monkeypatch.setitem(sys.modules, "gen.gpu.device", stub)
    for name in ("kernel", "service", "timing", "session"):
        monkeypatch.delitem(sys.modules, f"gen.gpu.{name}", raising=False)
    module = import_module("gen.gpu.session")
    for name in ("kernel", "service", "timing", "session"):  # what was imported on the stub is not for others
        monkeypatch.setitem(sys.modules, f"gen.gpu.{name}", sys.modules.pop(f"gen.gpu.{name}"))
    return Bench(module, monkeypatch)


def spoil(name: str, when: int = 1) -> Fault:
    """Writes over the first word of an array, from a launch on."""

    def write(gpu: FakeGpu, addresses: Mapping[str, int], launch: int) -> None:
        if launch >= when:
            gpu.upload(addresses[name], np.full(4, 0x77, np.uint8))

    return write


def test_a_right_variant_is_timed(bench: Bench) -> None:
    trial = bench.attempt(FIRST)
    assert (trial.status, trial.times_us) == ("ok", (3.0,) * 7)


def test_a_slow_variant_is_given_up_and_a_disturbed_one_is_not(bench: Bench) -> None:
    bench.clock.slow = [50.0, 11.0]
    assert bench.attempt(FIRST).times_us == (50.0, 11.0)
    bench.clock.slow = [50.0]
    assert bench.attempt(SECOND).times_us == (3.0,) * 7


@pytest.mark.parametrize("offset", [-4, 35 * 4, 35 * 4 + 100])
def test_what_is_written_next_to_an_output_is_found(bench: Bench, offset: int) -> None:
    def beside(gpu: FakeGpu, addresses: Mapping[str, int], _: int) -> None:
        gpu.upload(addresses["out"] + offset, np.full(4, 0x77, np.uint8))

    bench.faults[FIRST.name] = beside
    trial = bench.attempt(FIRST)
    assert (trial.status, trial.reason) == ("wrong_result", "bytes next to out are written")
    assert bench.attempt(SECOND).status == "ok"  # the zones are whole again


@pytest.mark.parametrize("when", [1, 4])
def test_an_input_that_a_variant_spoils_is_whole_again_for_the_next(bench: Bench, when: int) -> None:
    bench.faults[FIRST.name] = spoil("in", when)
    assert bench.attempt(FIRST).status == "wrong_result"
    assert bench.attempt(SECOND).status == "ok"


def test_a_failed_launch_leaves_the_inputs_whole(bench: Bench) -> None:
    def fault(gpu: FakeGpu, addresses: Mapping[str, int], launch: int) -> None:
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


def test_a_finalist_that_spoils_an_input_is_the_only_one_to_fall(bench: Bench) -> None:
    bench.faults[FIRST.name] = spoil("in", 20)
    assert [bench.attempt(made).status for made in (FIRST, SECOND)] == ["ok", "ok"]
    with pytest.raises(RunError, match=FIRST.name):
        bench.session.rounds([SECOND, FIRST], 30)
    assert len(bench.session.rounds([SECOND], 30).times_us[SECOND.name]) == 30


def test_a_variant_that_stops_writing_while_it_is_timed_is_wrong(bench: Bench) -> None:
    bench.idle[FIRST.name] = 5
    trial = bench.attempt(FIRST)
    assert trial.status == "wrong_result"
    assert "after the timing loop: out: 35 elements are wrong" in trial.reason
    bench.idle[SECOND.name] = 20
    assert bench.attempt(SECOND).status == "ok"
    with pytest.raises(RunError, match=SECOND.name):
        bench.session.rounds([SECOND], 30)
