"""A calibration is read back as it was stored, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gen.errors import StoreError
from gen.gpu.timing import Calibration
from gen.store.folder import store_calibration, stored_calibration
from tests.fake_device import FakeDevice

FIGURES = {"read": 3200.5, "write": 3300.0, "copy": 3000.0, "empty_pair_us": 3.5, "empty_node_us": 0.9}


def device_of(name: str, driver: str) -> FakeDevice:
    found = FakeDevice(name=name)
    found.driver = driver
    return found


def test_one_of_each_device_is_kept(tmp_path: Path) -> None:
    for device, driver in (("A", "1"), ("B", "1"), ("A", "2")):
        store_calibration(tmp_path, Calibration(device, driver, **FIGURES))
    found = {
        (device, driver): stored_calibration(tmp_path, device_of(device, driver))
        for device, driver in (("A", "1"), ("A", "2"), ("B", "1"))
    }
    assert found[("A", "1")] is None
    assert found[("A", "2")] == Calibration("A", "2", **FIGURES)
    assert found[("B", "1")] == Calibration("B", "1", **FIGURES)


@pytest.mark.parametrize(
    "change", [{"read": 0}, {"copy": -1.0}, {"write": "fast"}, {"read": float("nan")}, {"driver": 5}, {"more": 1.0}]
)
def test_one_edited_by_hand_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    entry = {"device": "A", "driver": "1", **FIGURES, **change}
    (tmp_path / "calibration.json").write_text(json.dumps({"schema": 1, "calibrations": [entry]}))
    with pytest.raises(StoreError, match=r"is not what gen writes .*Remove it, and run gen calibrate"):
        stored_calibration(tmp_path, device_of("A", "1"))
