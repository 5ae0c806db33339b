"""A class with a space of six variants, and which of them is fast on a GPU that is none."""

from __future__ import annotations

import pytest

from gen.tune.search import Space
from tests.fake_tuning import FakeTuningDevice
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
def device() -> FakeTuningDevice:
    return Sized(tall_matrices)
