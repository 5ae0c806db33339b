"""What all tests share: how many examples Hypothesis draws, chosen by HYPOTHESIS_PROFILE, and the CPU run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gen.emit.render import render
from gen.families.base import Limits
from gen.paths import cache_home, output_home
from gen.proof.host import HostRunner

# A deadline or a check for slow data would make a test fail because the machine is busy.
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("dev", _CALM, max_examples=50)
settings.register_profile("ci", _CALM, max_examples=50, derandomize=True, database=None)
settings.register_profile("deep", _CALM, max_examples=2000)


def _profile() -> str:
    chosen = os.environ.get("HYPOTHESIS_PROFILE")
    if chosen:
        return chosen
    return "ci" if os.environ.get("CI", "").lower() in ("1", "true") else "dev"


settings.load_profile(_profile())


@pytest.fixture(scope="session")
def cache() -> Path:
    """The checkout's cache: what is built for the CPU is kept between tests and between runs of them, by content."""
    return cache_home(output_home())


@pytest.fixture(scope="session")
def host_runner(cache: Path) -> HostRunner:
    """The CPU run."""
    return HostRunner(Limits.of("sm_90"), cache=cache, text=render)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Counts what tests/host/test_mutants.py caught; the workers of pytest-xdist hand on what a test records."""
    counts = {"caught": [0, 0], "without effect": [0, 0]}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in getattr(report, "user_properties", ()):
                if name == "mutant" and report.when == "call":
                    counts[value][0] += outcome == "passed"
                    counts[value][1] += 1
    (caught, mutants), (proven, others) = counts.values()
    if mutants or others:
        terminalreporter.write_line(
            f"{caught} of {mutants} mutants caught; {proven} of {others} changes without effect proven"
        )
