"""A device to load kernels for, and a folder of results that is the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from gen.proof.host import HostRunner
from gen.runtime import dispatch
from tests.fake_device import FakeDevice


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dispatch, "_said", set())
    monkeypatch.setenv("GEN_HOME", str(tmp_path / "home"))


@pytest.fixture
def backend() -> FakeDevice:
    """Launches are recorded, nothing is computed."""
    return FakeDevice()


@pytest.fixture
def computing(host_runner: HostRunner) -> FakeDevice:
    """Launches run the emitted text on the CPU."""
    return FakeDevice(host_runner)
