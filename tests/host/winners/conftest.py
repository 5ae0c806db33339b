"""A folder of results that is the test's own, a class with a space of six variants, and a GPU that is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gen.tune.search import Space
from tests.fake_tuning import FakeTuningDevice, let_tune_find
from tests.host.winners.given import BASE, EVERY, FAMILY, TRANSPOSE, Sized, tall_matrices


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One shape class with a space of six variants, and no winners that came with gen."""
    extents = TRANSPOSE[0].extents
    monkeypatch.setattr(type(FAMILY), "shape_classes", lambda *_: ("any size",))
    monkeypatch.setattr(type(FAMILY), "shape_class", lambda *_: "any size")
    monkeypatch.setattr(type(FAMILY), "representative", lambda *_: extents)
    monkeypatch.setattr(type(FAMILY), "base", lambda *_: (BASE.algorithm.name, BASE.config))
    monkeypatch.setattr(type(FAMILY), "heuristic_configs", lambda *_: ())
    monkeypatch.setattr(Space, "size", len(EVERY))
    monkeypatch.setattr(Space, "count", len(EVERY))
    monkeypatch.setattr(Space, "at", lambda _, number: EVERY[number])
    monkeypatch.setattr(Space, "number", lambda _, made: EVERY.index(made))
    monkeypatch.setattr("gen.store.winners.shipped", lambda _: None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTuningDevice]:
    """A GPU that `gen tune` finds."""
    device = Sized(tall_matrices)
    let_tune_find(device, monkeypatch)
    yield device
    assert device.open_sessions == 0
