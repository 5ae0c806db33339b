"""What the tests of the CPU run share."""

from __future__ import annotations

import pytest

from gen.emit.render import render
from gen.families.base import Limits
from gen.paths import cache_home, output_home
from gen.proof.host import HostRunner


@pytest.fixture(scope="session")
def host_runner() -> HostRunner:
    """The CPU run; what it builds is kept between runs of the tests, by content."""
    return HostRunner(Limits.of("sm_90"), cache=cache_home(output_home()), text=render)
