"""What is timed was queued before any of it ran; on a device that queues nothing."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gen.errors import RunError

MODULES = ("service", "timing")
CLAIMED = ("claim", "release")


class Device:
    """Writes down what it is told to queue; every event comes 2 us after the one before."""

    l2_bytes = 64

    def __init__(self) -> None:
        self.queued: list[str] = []
        self.events = 0

    def allocate(self, _: int) -> Any:
        return SimpleNamespace(address=256)

    def flag(self) -> Any:
        return SimpleNamespace(set=lambda value: self.queued.append(f"gate {value}"))

    def event(self) -> Any:
        event = SimpleNamespace(number=0)
        event.time_since = lambda other: 0.002 * (event.number - other.number)
        return event

    def record(self, event: Any) -> None:
        self.events += 1
        event.number = self.events
        self.queued.append("event")

    def synchronize(self) -> None:
        self.queued.append("wait")


class Service:
    """Service kernels by name."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.device.queued.append(name)


@pytest.fixture
def timing(monkeypatch: pytest.MonkeyPatch) -> Any:
    stub: Any = ModuleType("gen.gpu.device")
    for name in ("CudaDevice", "Function", "Flag", "Graph"):
        setattr(stub, name, None)
    monkeypatch.setitem(sys.modules, "gen.gpu.device", stub)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, f"gen.gpu.{name}", raising=False)
    module = import_module("gen.gpu.timing")
    for name in MODULES:
        monkeypatch.setitem(sys.modules, f"gen.gpu.{name}", sys.modules.pop(f"gen.gpu.{name}"))
    return module


@pytest.mark.parametrize(
    ("protocol", "flush"),
    [("COLD", [*CLAIMED, "fill", "read"]), ("DIRTY", [*CLAIMED, "fill"]), ("HOT", [])],
)
def test_only_the_launch_lies_between_the_events(timing: Any, protocol: str, flush: list[str]) -> None:
    device = Device()
    clock = timing.Clock(device, Service(device))
    device.queued.clear()
    queue = device.queued.append
    times = clock.times(lambda: queue("launch"), 2, timing.Protocol[protocol], setup=lambda: queue("setup"))
    assert times == pytest.approx([2.0, 2.0])
    one = ["setup", *flush, "event", "launch", "event"]
    assert device.queued == ["gate 0", "gate", *one, *one, "gate 1", "wait"]


def test_what_a_late_host_queued_is_not_counted(timing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    clock = timing.Clock(device, Service(device))
    in_time = [1.0, 1.1] * 3
    waits = iter([0.0, 0.9, *in_time, *range(10, 100)])  # late once, then in time, then always late
    monkeypatch.setattr(timing.time, "monotonic", lambda: float(next(waits)))
    launches: list[int] = []
    assert clock.times(lambda: launches.append(1), 3) == pytest.approx([2.0] * 3)
    assert len(launches) == 6
    with pytest.raises(RunError, match="The host must queue launches within"):
        clock.times(lambda: launches.append(1), 3)


def test_contenders_are_timed_in_the_order_given(timing: Any) -> None:
    device = Device()
    clock = timing.Clock(device, Service(device))
    queue = device.queued.append
    one, other = (
        timing.Sample(lambda name=name: queue(name), lambda name=name: queue(f"before {name}")) for name in "AB"
    )
    times = clock.in_turns([one, other, other, one], timing.Protocol.HOT)
    assert times == pytest.approx([2.0] * 4)
    launched = [what for what in device.queued if what in ("A", "B", "before A", "before B")]
    assert launched == ["before A", "A", "before B", "B", "before B", "B", "before A", "A"]
