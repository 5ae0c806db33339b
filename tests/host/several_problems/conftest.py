"""Few candidates, and which of them is fast on a GPU that is none."""

from __future__ import annotations

import pytest

from gen.families.transpose import Transpose
from gen.tune.search import Space
from tests.fake_tuning import FakeTuningDevice
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
def device() -> FakeTuningDevice:
    return FakeTuningDevice(by_length)
