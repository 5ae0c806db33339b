"""A GPU made of NumPy arrays, the variants that run on it, and what they may do wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import find_family, find_variant
from gen.gpu.service import Service
from gen.gpu.timing import Calibration, Clock
from gen.store.trials import Problem, Trial
from gen.toolchain.compiled import Compiled, Resources
from gen.tune.device import Entrant, Rounds
from gen.tune.gpu_session import CalibratedGpu
from tests.fake_device import After, FakeDevice
from tests.fakes import OracleRunner

FAMILY = find_family(FAMILIES, "transpose")
PROBLEM = Problem(FAMILY, FAMILY.catalogue[0], {"rows": 5, "cols": 7, "in_pitch": 7, "out_pitch": 5})
NAMES = ("transposeSmemPad", "transposeSmem", "transposeNaiveRow", "transposeNaiveCol")
BASE, FIRST, SECOND, THIRD = (find_variant(FAMILIES, name, {}) for name in NAMES)
CALIBRATION = Calibration("Fake GPU", "1.0", 3000.0, 3000.0, 3000.0, 4.0, 1.0)


def entrant(made: Variant) -> Entrant:
    """With a compiler's word on what it takes."""
    return Entrant(made, Compiled(made.name, "sm_90", b"", {made.name: Resources(20, 0, 0, 0, 0, 0)}))


class Bench:
    """A session on the fake, whose kernels misbehave where they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, problem: Problem = PROBLEM, base: Variant = BASE) -> None:
        monkeypatch.setattr("gen.tune.gpu_session.WARM_UP_SECONDS", 0.0)
        self.gpu = FakeDevice(OracleRunner())
        self.gpu.enter()
        self.faults = self.gpu.after
        self.told: list[str] = []
        service = Service(self.gpu)
        self.clock = Clock(self.gpu, service)
        self.bench = CalibratedGpu(self.gpu, service, self.clock, CALIBRATION)
        self.session = self.bench.open(problem, entrant(base))

    def attempt(self, made: Variant, give_up_us: float = 10.0) -> Trial:
        return self.session.attempt(entrant(made), give_up_us)

    def rounds(self, made: Sequence[Variant], count: int, *, hot: bool = False) -> Rounds:
        return self.session.rounds([entrant(one) for one in made], count, self.told.append, hot=hot)


def spoil(name: str, when: int = 1) -> After:
    """Writes over the first word of an array, from a launch on."""

    def write(gpu: FakeDevice, addresses: Mapping[str, int], launch: int) -> None:
        if launch >= when:
            gpu.upload(addresses[name], np.full(4, 0x77, np.uint8))

    return write
