"""A session on a GPU made of NumPy arrays, imported where there is no driver."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from gen.gpu.trial import Problem
from tests.host.session.given import (
    MODULES,
    PROBLEM,
    Bench,
)


@pytest.fixture
def session_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`gen.gpu.session`, imported where there is no driver."""
    stub: Any = ModuleType("gen.gpu.device")
    for name in ("CudaDevice", "Memory", "Function", "Flag", "Graph", "bind", "make_room"):
        setattr(stub, name, None)
    monkeypatch.setitem(sys.modules, "gen.gpu.device", stub)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, f"gen.gpu.{name}", raising=False)
    module = import_module("gen.gpu.session")
    for name in MODULES:  # what was imported on the stub is not for others
        monkeypatch.setitem(sys.modules, f"gen.gpu.{name}", sys.modules.pop(f"gen.gpu.{name}"))
    return module


@pytest.fixture
def open_bench(session_module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[[Problem], Bench]:
    return lambda problem: Bench(session_module, monkeypatch, problem)


@pytest.fixture
def bench(open_bench: Callable[[Problem], Bench]) -> Bench:
    return open_bench(PROBLEM)
