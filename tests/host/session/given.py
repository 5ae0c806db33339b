"""A GPU made of NumPy arrays, the variants that run on it, and what they may do wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from gen.dtypes import DType
from gen.families import FAMILIES
from gen.families.base import Array, Extents, Variant
from gen.families.names import find_family, find_variant
from gen.gpu.elements import Rows
from gen.gpu.trial import Entrant, Problem, Rounds, Trial
from gen.toolchain.compiled import Compiled, Resources
from tests.fake_gpu import FakeGpu, FakeKernel

FAMILY = find_family(FAMILIES, "transpose")
PROBLEM = Problem(FAMILY, FAMILY.catalogue[0], {"rows": 5, "cols": 7, "in_pitch": 7, "out_pitch": 5})
NAMES = ("transposeSmemPad", "transposeSmem", "transposeNaiveRow", "transposeNaiveCol")
BASE, FIRST, SECOND, THIRD = (find_variant(FAMILIES, name, {}) for name in NAMES)
MODULES = ("arrays", "buffers", "kernel", "service", "timing", "session")
Fault = Callable[[FakeGpu, Mapping[str, int], int], None]
"""What a kernel does after it has transposed, given the addresses and the number of its launch, counted from 1."""


def entrant(made: Variant) -> Entrant:
    """With a compiler's word on what it takes."""
    return Entrant(made, Compiled(made.name, "sm_90", b"", {made.name: Resources(20, 0, 0, 0, 0, 0)}))


class NumpyService:
    """The service kernels on the fake."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu

    def random(self, address: int, size: int, seed: int, dtype: DType) -> None:
        self.gpu.upload(address, np.random.default_rng((seed, dtype.size)).integers(0, 256, size, np.uint8))

    def fill(self, address: int, size: int, word: int) -> None:
        self.gpu.upload(address, np.full(size // 4, word, np.uint32).view(np.uint8))

    def copy(self, source: int, target: int, size: int) -> None:
        self.gpu.upload(target, self.gpu.download(source, size))

    def checksum(self, address: int, size: int) -> int:
        return hash(self.gpu.download(address, size).tobytes())

    def differing(self, got: int, expected: int, rows: Rows) -> tuple[int, int | None]:
        wrong = (self._elements(got, rows) != self._elements(expected, rows)).any(axis=-1)
        return int(wrong.sum()), int(wrong.argmax()) if wrong.any() else None

    def gaps_written(self, address: int, rows: Rows, poison: int) -> int:
        words = np.full(rows.span // 4 + 1, poison, np.uint32).view(np.uint8)[: rows.span]
        changed = self.gpu.download(address, rows.span) != words
        return int(changed.sum() - changed[self._places(rows)].sum())

    def _elements(self, address: int, rows: Rows) -> Array:
        return self.gpu.download(address, rows.span)[self._places(rows)].reshape(rows.total, rows.size)

    def _places(self, rows: Rows) -> Array:
        return (rows.pitch * np.arange(rows.count)[:, None] + np.arange(rows.elements * rows.size)).reshape(-1)


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

    def __init__(self, module: Any, monkeypatch: pytest.MonkeyPatch, problem: Problem = PROBLEM) -> None:
        self.gpu = FakeGpu()
        self.faults: dict[str, Fault] = {}
        self.told: list[str] = []
        self.idle: dict[str, int] = {}  # from which launch on a kernel does nothing
        self.scratch: dict[str, list[int]] = {}  # of each kernel, in which place it was asked for
        launches: dict[str, int] = {}

        class Kernel(FakeKernel):
            def __init__(kernel, variant: Variant, *_: Any) -> None:  # noqa: N805
                super().__init__(variant, self.gpu)
                launches[variant.name] = 0

            def scratch(kernel, extents: Extents, place: int = 0) -> dict[str, int]:  # noqa: N805
                self.scratch.setdefault(kernel.variant.name, []).append(place)
                return super().scratch(extents, place)

            def queue(kernel, planned: Sequence[Any], addresses: Mapping[str, int]) -> None:  # noqa: N805
                name = kernel.variant.name
                launches[name] += bool(planned)
                if launches[name] < self.idle.get(name, 1000):
                    super().queue(planned, addresses)
                if planned and name in self.faults:
                    self.faults[name](self.gpu, addresses, launches[name])

        monkeypatch.setattr(module, "CudaKernel", Kernel)
        self.clock = NumpyClock()
        gpu_bench = module.GpuBench(self.gpu, NumpyService(self.gpu), self.clock, None)
        monkeypatch.setattr(module, "WARM_UP", 0.0)
        self.session = gpu_bench.open(problem, entrant(BASE))
        self.bench = gpu_bench

    def attempt(self, made: Variant, give_up_us: float = 10.0) -> Trial:
        found: Trial = self.session.attempt(entrant(made), give_up_us)
        return found

    def rounds(self, made: Sequence[Variant], turns: int, *, hot: bool = False) -> Rounds:
        found: Rounds = self.session.rounds([entrant(one) for one in made], turns, self.told.append, hot=hot)
        return found


def spoil(name: str, when: int = 1) -> Fault:
    """Writes over the first word of an array, from a launch on."""

    def write(gpu: FakeGpu, addresses: Mapping[str, int], launch: int) -> None:
        if launch >= when:
            gpu.upload(addresses[name], np.full(4, 0x77, np.uint8))

    return write
