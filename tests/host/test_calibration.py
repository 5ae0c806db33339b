"""A calibration is read back as it was stored, or refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gen.errors import StoreError

FIGURES = {"read": 3200.5, "write": 3300.0, "copy": 3000.0, "empty_pair_us": 3.5, "empty_node_us": 0.9}
MODULES = ("kernel", "service", "timing", "session", "open")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`gen.gpu.open`, on a device layer of names alone."""
    stub: Any = ModuleType("gen.gpu.device")
    for name in ("CudaDevice", "Memory", "Function", "Flag", "Graph", "bind", "make_room", "open_device"):
        setattr(stub, name, None)
    monkeypatch.setitem(sys.modules, "gen.gpu.device", stub)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, f"gen.gpu.{name}", raising=False)
    yield import_module("gen.gpu.open")
    for name in MODULES:
        sys.modules.pop(f"gen.gpu.{name}", None)


def test_one_of_each_device_is_kept(module: Any, tmp_path: Path) -> None:
    calibration = import_module("gen.gpu.timing").Calibration
    for device, driver in (("A", "1"), ("B", "1"), ("A", "2")):
        module.store_calibration(tmp_path, calibration(device, driver, **FIGURES))
    found = {
        (device, driver): module.stored_calibration(tmp_path, SimpleNamespace(name=device, driver=driver))
        for device, driver in (("A", "1"), ("A", "2"), ("B", "1"))
    }
    assert found[("A", "1")] is None
    assert found[("A", "2")] == calibration("A", "2", **FIGURES)
    assert found[("B", "1")] == calibration("B", "1", **FIGURES)


@pytest.mark.parametrize(
    "change", [{"read": 0}, {"copy": -1.0}, {"write": "fast"}, {"read": float("nan")}, {"driver": 5}, {"more": 1.0}]
)
def test_one_edited_by_hand_is_refused(module: Any, tmp_path: Path, change: dict[str, object]) -> None:
    entry = {"device": "A", "driver": "1", **FIGURES, **change}
    (tmp_path / "calibration.json").write_text(json.dumps({"schema": 1, "calibrations": [entry]}))
    with pytest.raises(StoreError, match=r"is not what gen writes .*Remove it, and run gen calibrate"):
        module.stored_calibration(tmp_path, SimpleNamespace(name="A", driver="1"))
