"""Scratch memory of a kernel object: that of a stream, and that of a graph, which nothing else uses."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gen.gpu.device import LEGACY_STREAM, Device, Memory

MOST_STREAMS = 64  # beyond that the scratch of the stream that came first is given back
LEGACY_STREAM_ID = 2**64 - 1  # the driver has none for the legacy default stream


@dataclass(frozen=True)
class Needed:
    """What a call at some size wants of one buffer."""

    name: str
    size: int
    zeroed: bool


class ScratchLock(Protocol):
    """Keeps everybody else who launches with the scratch memory of a stream from it, by the stream's number."""

    def acquire(self, stream_id: int) -> None:
        """Waits until nobody launches with it; then it is the caller's, until it is released or dropped."""
        ...

    def release(self, stream_id: int, memory: Mapping[str, Memory]) -> None:
        """Gives it back, and says which memory it has now."""
        ...

    def drop(self, stream_id: int) -> None:
        """Forgets it; the caller holds it."""
        ...


class Buffers:
    """Scratch of one stream, or of one graph. One thread at a time may use it, between `acquire` and `release`."""

    def __init__(
        self, device: Device, *, of_graph: bool, lock: ScratchLock | None = None, stream_id: int | None = None
    ) -> None:
        self._device = device
        self._of_graph = of_graph
        self._lock, self._stream_id = lock, stream_id
        self._held: dict[str, Memory] = {}
        self._kept: list[Memory] = []

    def acquire(self) -> None:
        """Keeps others from launching with it."""
        if self._lock is not None and self._stream_id is not None:
            self._lock.acquire(self._stream_id)

    def release(self) -> None:
        """Lets others launch with it again."""
        if self._lock is not None and self._stream_id is not None:
            self._lock.release(self._stream_id, self._held)

    def addresses(self, needed: tuple[Needed, ...], stream: int) -> Mapping[str, int]:
        """Addresses by name, as large as is needed; what must be zero is zeroed when it is new, before any graph.

        What a call needs nothing of has no memory and address 0.
        """
        for one in needed:
            if not one.size:
                continue
            held = self._held.get(one.name)
            if held is None or held.size < one.size:
                new = self._device.allocate(one.size)
                if one.zeroed:
                    self._device.zero(new.address, new.size, None if self._of_graph else stream)
                self._give_up(one.name)
                self._held[one.name] = new
        return {one.name: self._held[one.name].address if one.size else 0 for one in needed}

    def discard(self) -> None:
        """Forgets what a failed launch may have left in any state."""
        for name in tuple(self._held):
            self._give_up(name)

    def close(self) -> None:
        """Forgets all of it: the stream is not known any more."""
        self.acquire()
        if self._lock is not None and self._stream_id is not None:
            self._lock.drop(self._stream_id)
        self.discard()

    def _give_up(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None and self._of_graph:
            self._kept.append(held)  # the graph holds its address


class Workspace:
    """The buffers of a kernel object. One thread at a time may use it."""

    def __init__(self, device: Device, lock: ScratchLock | None = None) -> None:
        self._device = device
        self._lock = lock
        self._streams: dict[Hashable, Buffers] = {}
        self._graphs: dict[tuple[int, int], Buffers] = {}

    def on(self, stream: int) -> Buffers:
        """The buffers of a stream.

        A graph that the stream is being captured into has buffers that nothing else uses, which are zero before its
        first replay, and after every one. They live as long as this object.
        """
        capture = self._device.capture_of(stream)
        if capture:
            # Streams that join one capture may run side by side in the graph.
            return self._graphs.setdefault((capture, stream), Buffers(self._device, of_graph=True))
        identity = self._device.identity_of(stream)
        if identity not in self._streams:
            while len(self._streams) >= MOST_STREAMS:
                self._streams.pop(next(iter(self._streams))).close()
            stream_id = LEGACY_STREAM_ID if stream == LEGACY_STREAM else identity if isinstance(identity, int) else None
            self._streams[identity] = Buffers(self._device, of_graph=False, lock=self._lock, stream_id=stream_id)
        return self._streams[identity]
