"""What all tests share: how many examples Hypothesis draws, and the CPU run.

HYPOTHESIS_PROFILE chooses a profile. Without it they are 20 examples where tests marked `further` are left out, as by
`make test` and `.ci/run`, and 50 where they run, as by `make check`; the same ones every time where CI is set.
"""

from __future__ import annotations

import ctypes
import gc
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

for _name, _examples in (("short", 20), ("full", 50)):
    settings.register_profile(_name, _CALM, max_examples=_examples)
    settings.register_profile(f"{_name} ci", _CALM, max_examples=_examples, derandomize=True, database=None)
settings.register_profile("deep", _CALM, max_examples=2000)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of <malloc.h>


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the folder of results and the profile, before modules of tests are imported, which read both."""
    os.environ["GEN_HOME"] = str(Path(__file__).parents[1] / "out")  # not what somebody tuned in this checkout
    # Arrays of some MB come and go all the time: up to a quarter of the time of proofs went into fresh pages for them.
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_MMAP_THRESHOLD, 1 << 25)
        mallopt(_TRIM_THRESHOLD, 1 << 30)
    found = "short" if "not further" in config.option.markexpr else "full"
    always_the_same = " ci" if os.environ.get("CI", "").lower() in ("1", "true") else ""
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or found + always_the_same)


def pytest_collection_finish() -> None:
    """What is imported and collected stays for good: no garbage collection looks through it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)  # to look through all that lives took a tenth of the time


@pytest.fixture(scope="session")
def cache() -> Path:
    """The checkout's cache: what is built for the CPU is kept between tests and between runs of them, by content."""
    return cache_home(output_home())


@pytest.fixture(scope="session")
def host_runner(cache: Path) -> HostRunner:
    """The CPU run."""
    return HostRunner(Limits.of("sm_90"), cache=cache, text=render)


@pytest.fixture
def runtime_at_home(home: Path, cache: Path) -> None:
    """A test's own folder of results finds the CPU run's runtime and headers: to build them takes g++ five seconds."""
    own = cache_home(home)
    own.mkdir(parents=True)
    for kept in ("runtime", "headers"):
        (cache / kept).mkdir(parents=True, exist_ok=True)
        (own / kept).symlink_to(cache / kept, target_is_directory=True)


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
