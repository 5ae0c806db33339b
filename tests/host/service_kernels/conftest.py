"""The kernels that the measuring side runs beside those it measures, built for the CPU run."""

from __future__ import annotations

import pytest

from gen.families.base import Limits
from gen.paths import cache_home, output_home
from gen.proof.host import HostKernel, HostRunner
from tests.host.service_kernels.given import GEN, SOURCE, Service


@pytest.fixture(scope="session")
def kernels() -> dict[int, HostKernel]:
    """The file, built once; by the seed of the order in which blocks and threads run."""
    cache = cache_home(output_home())  # by content
    runners = {seed: HostRunner(Limits.of("sm_90"), cache=cache, text=lambda _: SOURCE, seed=seed) for seed in (0, 1)}
    return {seed: runner.load([GEN])[0] for seed, runner in runners.items()}


@pytest.fixture(scope="session")
def service(kernels: dict[int, HostKernel]) -> Service:
    return Service(kernels)
