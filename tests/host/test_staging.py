"""Large arrays go to a GPU and back through pinned memory as they are, whatever the driver does later."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings")

from gen.errors import RunError
from gen.gpu import staging
from gen.gpu.staging import Staging

PART = 64  # bytes


class LateDriver:
    """Copies are made in the order of their stream, when somebody waits for them, or by chance."""

    def __init__(self, seed: int) -> None:
        self.lock, self.draw = threading.RLock(), Random(seed)
        self.queues: dict[int, list[Callable[[], object]]] = {}
        self.recorded: dict[int, tuple[int, int]] = {}  # of an event: its stream, and how much was queued before
        self.done: dict[int, int] = {}
        self.kept: list[Any] = []
        self.refused = ""

    def __call__(self, name: str, *given: Any) -> Any:
        with self.lock:
            if name == self.refused:
                raise RunError("The GPU", f"reports an error in {name}")
            found = getattr(self, name)(*given)
            if self.draw.random() < 0.3:
                self.finish(self.draw.choice(list(self.queues) or [1]), 1)
            return found

    def finish(self, stream: int, count: int) -> None:
        queue = self.queues.get(stream, [])
        for _ in range(min(count, len(queue))):
            queue.pop(0)()
            self.done[stream] = self.done.get(stream, 0) + 1

    def cuMemHostAlloc(self, size: int, _: int) -> int:  # noqa: N802
        self.kept.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.kept[-1])

    def cuEventCreate(self, _: int) -> int:  # noqa: N802
        self.kept.append(None)
        return len(self.kept)

    def cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: int) -> None:  # noqa: N802
        self.queues.setdefault(stream, []).append(lambda: ctypes.memmove(to, source, size))

    cuMemcpyDtoHAsync = cuMemcpyHtoDAsync  # noqa: N815

    def cuEventRecord(self, event: int, stream: int) -> None:  # noqa: N802
        self.recorded[event] = stream, self.done.get(stream, 0) + len(self.queues.get(stream, []))

    def cuEventSynchronize(self, event: int) -> None:  # noqa: N802
        stream, count = self.recorded.get(event, (1, 0))
        self.finish(stream, count - self.done.get(stream, 0))

    def synchronize(self) -> None:
        with self.lock:
            for stream, queue in self.queues.items():
                self.finish(stream, len(queue))


class NoDevice:
    """A device that is current everywhere."""

    def enter(self) -> bool:
        return False


@pytest.fixture(params=range(3))
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[LateDriver]:
    made = LateDriver(request.param)
    monkeypatch.setattr(staging, "call", made)
    monkeypatch.setattr(staging, "uncaptured", threading.Lock)
    nothing = SimpleNamespace(cuMemFreeHost=lambda _: None, cuEventDestroy=lambda _: None)
    monkeypatch.setattr(staging, "bindings", nothing)
    yield made
    made.synchronize()


def contents(count: int, size: int) -> list[Any]:
    return [np.random.default_rng(place).integers(0, 256, size, np.uint8) for place in range(count)]


@pytest.mark.parametrize("size", [1, PART, 4 * PART + 1, 23 * PART - 3])
def test_what_goes_up_is_what_the_array_held_and_what_comes_down_is_there(driver: LateDriver, size: int) -> None:
    made: Any = Staging(NoDevice(), 2, PART)  # type: ignore[arg-type]
    first, second, third = contents(3, size)
    there, other = (np.zeros(size + 8, np.uint8) for _ in range(2))
    back, given = np.zeros(size + 8, np.uint8), first.copy()
    made.upload(there.ctypes.data, given, 5)
    given[:] = 0  # all of it has been read
    made.download(back[:size], second.ctypes.data, 6)  # by the same buffers, while the first is on its way
    np.testing.assert_array_equal(back[:size], second)
    made.upload(other.ctypes.data, third, 7)
    driver.synchronize()
    for found, wanted in ((there, first), (other, third), (back, second)):
        np.testing.assert_array_equal(found[:size], wanted)
        assert not found[size:].any()


@pytest.mark.parametrize("name", ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuEventSynchronize"])
def test_after_an_error_nobody_touches_the_array(driver: LateDriver, name: str) -> None:
    made: Any = Staging(NoDevice(), 2, PART)  # type: ignore[arg-type]
    (content,) = contents(1, 9 * PART)
    there = np.zeros(content.size, np.uint8)
    driver.refused = name
    copy = made.download if "DtoH" in name else made.upload
    with pytest.raises(RunError, match=name):
        copy(content if copy == made.download else there.ctypes.data,
             there.ctypes.data if copy == made.download else content, 5)  # fmt: skip
    assert made._threads._work_queue.empty()
    driver.refused = ""
    made.upload(there.ctypes.data, content, 5)
    driver.synchronize()
    np.testing.assert_array_equal(there, content)
