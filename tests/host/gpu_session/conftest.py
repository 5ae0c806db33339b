"""A session on a GPU made of host memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gen.store.trials import Problem
from tests.host.gpu_session.given import PROBLEM, Bench


@pytest.fixture
def open_bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[Problem], Bench]:
    return lambda problem: Bench(monkeypatch, problem)


@pytest.fixture
def bench(open_bench: Callable[[Problem], Bench]) -> Bench:
    return open_bench(PROBLEM)
