"""A folder of results that is the test's own, and a GPU that `gen tune` finds and that is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_tuning import FakeTuningDevice, let_tune_find


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def gpu(device: FakeTuningDevice, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTuningDevice]:
    """The `device` of the folder of tests, as a GPU that `gen tune` finds. No session of it stays open."""
    let_tune_find(device, monkeypatch)
    yield device
    assert device.open_sessions == 0
