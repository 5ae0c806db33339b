"""What is timed was queued before any of it ran; on a device that queues nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gen.errors import RunError
from gen.gpu.service import Service
from gen.gpu.timing import Clock, Protocol, Sample
from tests.fake_device import FakeDevice

CLAIMED = ("_claim", "_release")


@pytest.fixture
def gpu() -> FakeDevice:
    found = FakeDevice()
    found.enter()
    return found


@pytest.fixture
def clock(gpu: FakeDevice) -> Clock:
    made = Clock(gpu, Service(gpu))
    gpu.queue.clear()
    return made


@pytest.mark.parametrize(
    ("protocol", "flush"),
    [
        (Protocol.COLD, [*CLAIMED, "_fill", "_read"]),
        (Protocol.DIRTY, [*CLAIMED, "_fill"]),
        (Protocol.HOT, []),
    ],
)
def test_only_the_launch_lies_between_the_events(
    gpu: FakeDevice, clock: Clock, protocol: Protocol, flush: list[str]
) -> None:
    times = clock.times(lambda: launch(gpu, "launch"), 2, protocol, setup=lambda: launch(gpu, "setup"))
    assert times == [2.0, 2.0]
    one = ["setup", *flush, "event", "launch", "event"]
    assert gpu.queue == ["gate 0", "_gate", *one, *one, "gate 1", "wait"]


def launch(gpu: FakeDevice, name: str) -> None:
    """What takes 2 us."""
    gpu.queue.append(name)
    gpu.now_us += 2.0


def test_what_a_late_host_queued_is_not_counted(gpu: FakeDevice, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    in_time = [1.0, 1.1] * 3
    waits = iter([0.0, 0.9, *in_time, *range(10, 100)])  # late once, then in time, then always late
    monkeypatch.setattr("gen.gpu.timing.time", SimpleNamespace(monotonic=lambda: float(next(waits))))
    assert clock.times(lambda: launch(gpu, "launch"), 3) == [2.0] * 3
    assert gpu.queue.count("launch") == 6
    with pytest.raises(RunError, match="The host must queue launches within"):
        clock.times(lambda: launch(gpu, "launch"), 3)


def test_contenders_are_timed_in_the_order_given(gpu: FakeDevice, clock: Clock) -> None:
    one, other = (
        Sample(lambda name=name: launch(gpu, name), lambda name=name: launch(gpu, f"before {name}"))  # type: ignore[misc]
        for name in "AB"
    )
    assert clock.in_order([one, other, other, one], Protocol.HOT) == [2.0] * 4
    launched = [what for what in gpu.queue if what in ("A", "B", "before A", "before B")]
    assert launched == ["before A", "A", "before B", "B", "before B", "B", "before A", "A"]
