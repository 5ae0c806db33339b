"""Trials of the test's own, and few candidates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gen.store.trials import Trials
from gen.tune.search import Space
from tests.host.one_problem.given import STENCIL, WHOLE, part


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of every space, and no variant that is expected to be fast: it may lie outside."""
    monkeypatch.setattr(Space, "at", part)
    monkeypatch.setattr(type(STENCIL), "heuristic_configs", lambda *_: ())


@pytest.fixture
def whole(few: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001  undone
    """All of every space."""
    monkeypatch.setattr(Space, "at", WHOLE)


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[Trials]:
    found = Trials(tmp_path / "home")
    yield found
    found.close()
