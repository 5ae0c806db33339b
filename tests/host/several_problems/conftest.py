"""A folder of results that is the test's own, few candidates, and a GPU that is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gen.families.transpose import Transpose
from gen.tune.search import Space
from tests.fake_tuning import FakeTuningDevice, let_tune_find
from tests.host.several_problems.given import TRANSPOSE, by_length


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 29th number of a space, nothing likely, one shape class of a transpose, no winners that came with gen."""
    at = Space.at
    monkeypatch.setattr(Transpose, "shape_classes", lambda _self, _spec: ("aligned rows",))
    monkeypatch.setattr(Transpose, "heuristic_configs", lambda _self, _spec, _shape_class, _limits: ())
    monkeypatch.setattr(TRANSPOSE[0].family, "catalogue", (TRANSPOSE[0].spec,))
    monkeypatch.setattr(Space, "at", lambda space, number: at(space, number) if number % 29 == 0 else None)
    monkeypatch.setattr("gen.store.winners.shipped", lambda _: None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTuningDevice]:
    """A GPU that `gen tune` finds."""
    device = FakeTuningDevice(by_length)
    let_tune_find(device, monkeypatch)
    yield device
    assert device.open_sessions == 0
