"""When ranks compute and exchange: `python bench/timeline.py [--json FILE]`, on a GPU, which the ranks share.

Notes the begin and the end of every kernel and every copy of one call, by events of its stream, and draws a line for
each stream: what depends on cells of others, the rims, should be computed and sent while insides are being computed.
The last line says how much of that time is hidden so. The events themselves take some time between short kernels.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gen
from bench.program import ended, need_gpu, write_results
from bench.shards import SHAPE, arrays_of, drawn_fields, positive, shape_of
from gen.cli.gpu import alone
from gen.families.base import Extents, Variant
from gen.families.plans import Step
from gen.families.stencil import Stencil
from gen.gpu.cuda import CudaCode, CudaDevice, CudaPrepared, call
from gen.gpu.device import LEGACY_STREAM, Peer, Rows
from gen.paths import cache_home, output_home
from gen.toolchain.compiled import Compiled

PROGRAM = "python bench/timeline.py"
STEPS, RANKS, WARM_UP = 64, 2, 2
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

    def watch(self) -> None:
        """Begins; the device must be current, here and in `spans`."""
        self.synchronize()
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


def timeline(
    spec: str, device: WatchedDevice, shape: tuple[int, ...], steps: int, ranks: int, exchange: int | None
) -> list[Span]:
    """The spans of one call, when kernels are loaded and the caches are as after a call."""
    kernel = gen.load(spec, devices=[device] * ranks, shared=True, steps_per_exchange=exchange)
    arrays, outs = arrays_of(kernel, drawn_fields(kernel, shape))
    for _ in range(WARM_UP):
        kernel(*arrays, out=outs, steps=steps)
    names = {
        stream.handle: f"rank {number} {what}"
        for number, rank in enumerate(kernel.ranks)
        for stream, what in ((rank.main, INSIDE), (rank.rim, RIMS))
    }
    with kernel.ranks[0].current():
        device.watch()
        kernel(*arrays, out=outs, steps=steps)
        return device.spans(names)


def main() -> int:
    """Draws the timeline."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", default=f"stencil_{Stencil.catalogue[0].label}", help="as bench/shards.py has it")
    parser.add_argument("--shape", type=shape_of, default=SHAPE, help=f"ROWSxCOLS. Default: {SHAPE}")
    parser.add_argument("--steps", type=positive, default=STEPS)
    parser.add_argument("--ranks", type=positive, default=RANKS)
    parser.add_argument("--exchange", type=positive, help="steps between two exchanges. Default: what is chosen")
    parser.add_argument("--gpu", type=int, default=0, help="the number of the GPU")
    parser.add_argument("--json", type=Path, help="also write the spans to this file")
    options = parser.parse_args()
    need_gpu(PROGRAM)
    with alone(options.gpu, None, PROGRAM):
        device = WatchedDevice(options.gpu)
        spans = timeline(options.spec, device, options.shape, options.steps, options.ranks, options.exchange)
    print(f"{options.spec}, {' x '.join(map(str, options.shape))}, {options.steps} steps, {device.name}")
    for line in drawn(spans):
        print(line)
    print(f"{KERNEL} kernel, {COPY} copy, {IDLE} nothing; {max(span.end_us for span in spans):.0f} us in all")
    whole, beside = hidden(spans)
    share = 100 * beside / whole if whole else 100.0
    print(f"Rims are computed and sent in {whole:.0f} us, {share:.0f} % of which beside an inside.")
    write_results(options.json, PROGRAM, device, rims_us=whole, hidden_us=beside, spans=spans)
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
