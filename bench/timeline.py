"""When ranks compute and exchange, for `bench/devices.py`.

Notes the begin and the end of every kernel and every copy of one call, by events of its stream, and draws a line for
each stream: what depends on cells of others, the rims, should be computed and sent while insides are being computed.
The events themselves take some time between short kernels. Those of several GPUs begin when the first one's do, but for
some microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gen.families.base import Extents, Variant
from gen.families.plans import Step
from gen.gpu.cuda import CudaCode, CudaDevice, CudaGraph, CudaPrepared, call
from gen.gpu.device import LEGACY_STREAM, Peer, Rows
from gen.paths import cache_home, output_home
from gen.runtime.sharded import Rank
from gen.runtime.sharded_kernel import ShardedKernel
from gen.toolchain.compiled import Compiled

WARM_UP = 2
WIDE = 96  # characters of a line
KERNEL, COPY, IDLE = "#", "=", "."
RIMS, INSIDE = "rims", "inside"


@dataclass(frozen=True)
class Span:
    """A kernel or a copy.

    Attributes:
        stream: whose work it is: `rank 0 rims`.
        what: the name of a variant, or the bytes that are copied.
        kernel: whether it is a kernel.
        begin_us, end_us: since the call.
    """

    stream: str
    what: str
    kernel: bool
    begin_us: float
    end_us: float


@dataclass(frozen=True)
class Noted:
    """A span whose events are still to be read."""

    stream: int
    what: str
    kernel: bool
    before: Any
    after: Any


class WatchedDevice(CudaDevice):
    """A GPU that puts events before and behind every launch and every copy, from `watch` on until `spans`."""

    def __init__(self, index: int) -> None:
        super().__init__(index, cache_home(output_home()))
        self._noted: list[Noted] | None = None
        self._first: Any = None

    def watch(self, after: WatchedDevice | None = None) -> None:
        """Begins, as another GPU has begun; the device must be current, here and in `spans`."""
        if after is not None:
            call("cuStreamWaitEvent", LEGACY_STREAM, after._first, 0)
        self._noted, self._first = [], _event(LEGACY_STREAM)

    def spans(self, names: Mapping[int, str]) -> list[Span]:
        """What there was, when it is done, by the names of streams."""
        self.synchronize()
        noted, self._noted = self._noted or [], None
        found = [
            Span(names[one.stream], one.what, one.kernel, self._us(one.before), self._us(one.after)) for one in noted
        ]  # fmt: skip
        for event in (self._first, *(event for one in noted for event in (one.before, one.after))):
            call("cuEventDestroy", event)
        return found

    def note(self, stream: int, what: str, run: Callable[[], None], *, kernel: bool) -> None:
        """Does what is to be watched."""
        if self._noted is None:
            run()
            return
        before = _event(stream)
        run()
        self._noted.append(Noted(stream, what, kernel, before, _event(stream)))

    def copy_to(self, other: Peer, source: Rows, target: Rows, stream: int) -> None:
        """Queues a copy."""
        copy = super().copy_to
        self.note(stream, f"{source.bytes} bytes", lambda: copy(other, source, target, stream), kernel=False)

    def load(self, compiled: Compiled, variant: Variant | None = None) -> CudaCode:
        """Loads machine code."""
        return WatchedCode(self, compiled, variant)

    def capture(self, queue: Callable[[int], None], closed: Callable[[], None] = lambda: None) -> CudaGraph:
        """A graph, which is watched as one kernel."""
        noted, self._noted = self._noted, None
        try:
            made = super().capture(queue, closed)
        finally:
            self._noted = noted
        replay = made.replay
        made.replay = lambda stream=LEGACY_STREAM: self.note(  # type: ignore[method-assign]
            stream, "a graph", lambda: replay(stream), kernel=True
        )
        return made

    def _us(self, event: Any) -> float:
        return round(1000 * float(call("cuEventElapsedTime", self._first, event)), 1)


class WatchedCode(CudaCode):
    """Machine code whose launches are watched."""

    def __init__(self, device: WatchedDevice, compiled: Compiled, variant: Variant | None) -> None:
        super().__init__(compiled, variant)
        self._device, self._of = device, compiled.name

    def prepare(self, extents: Extents, steps: Sequence[Step]) -> CudaPrepared:
        """Makes launches ready, so that they are watched."""
        made = super().prepare(extents, steps)
        launch = made.launch

        def watched(addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> None:
            self._device.note(stream, self._of, lambda: launch(addresses, numbers, stream), kernel=True)

        made.launch = watched  # type: ignore[method-assign]
        return made


def drawn(spans: Sequence[Span], wide: int = WIDE) -> list[str]:
    """A line for each stream: what there is most of in each part of the time."""
    end = max(span.end_us for span in spans)
    lines = []
    for stream in sorted({span.stream for span in spans}):
        marks = [IDLE] * wide
        for mark in (COPY, KERNEL):
            for span in spans:
                if span.stream == stream and span.kernel == (mark == KERNEL):
                    first, last = (int(us / end * wide) for us in (span.begin_us, span.end_us))
                    marks[first : max(last, first + 1)] = mark * len(marks[first : max(last, first + 1)])
        lines.append(f"{stream:14} {''.join(marks[:wide])}")
    return lines


def hidden(spans: Sequence[Span]) -> tuple[float, float]:
    """Microseconds in which rims are computed or sent, and those of them in which an inside is computed too."""
    rims = _joined([(span.begin_us, span.end_us) for span in spans if span.stream.endswith(RIMS)])
    insides = _joined([(span.begin_us, span.end_us) for span in spans if span.stream.endswith(INSIDE) and span.kernel])
    both = (min(end, other_end) - max(begin, other) for begin, end in rims for other, other_end in insides)
    return sum(end - begin for begin, end in rims), sum(us for us in both if us > 0)


def _joined(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for begin, end in sorted(pairs):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def _event(stream: int) -> Any:
    made = call("cuEventCreate", 0)
    call("cuEventRecord", made, stream)
    return made


def timeline(kernel: ShardedKernel, run: Callable[[], object]) -> list[Span]:
    """The spans of one call on GPUs that are watched, when kernels are loaded and the caches are as after a call."""
    kernel.replays = False  # each kernel and copy by itself
    for _ in range(WARM_UP):
        run()
    names: dict[int, str] = {}
    ranks: dict[WatchedDevice, Rank] = {}
    for number, rank in enumerate(kernel.ranks):
        names |= {rank.main.handle: f"rank {number} {INSIDE}", rank.rim.handle: f"rank {number} {RIMS}"}
        assert isinstance(rank.device, WatchedDevice)
        ranks[rank.device] = rank
        with rank.current():
            rank.device.synchronize()
    first = next(iter(ranks))
    for device, rank in ranks.items():
        with rank.current():
            device.watch(None if device is first else first)
    run()
    spans = []
    for device, rank in ranks.items():
        with rank.current():
            spans += device.spans(names)
    return spans
