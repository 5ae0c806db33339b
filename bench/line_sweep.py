"""Many steps of one axis: `python bench/line_sweep.py [--only TEXT] [--json FILE]`, on a GPU.

Each line of cells is taken through 1,000 steps by every variant of `overlapped`, which fuses steps, and by some of
`naive` and `stream`, which take a launch a step; each call is a CUDA graph. All results must have the same bits. For
each problem: the fastest variant of both kinds, and how many times longer a launch a step takes than fused steps. A
copy is timed before and after each problem: where it was slow, somebody else used the GPU, and the problem is taken
again when all others are done.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.program import compiled_first, ended, need_gpu, write_results
from gen.cli.gpu import alone
from gen.dtypes import F32, DType
from gen.families.base import Extents, Variant
from gen.families.config import Config
from gen.families.names import search_space, variant
from gen.families.stencil import Boundary, Stencil, StencilSpec
from gen.families.stencil.algorithms.stream import StreamConfig
from gen.families.stencil.algorithms.tiled import NaiveConfig
from gen.families.stencil.spec import DTYPES
from gen.toolchain.compiled import Compiled
from gen.toolchain.nvrtc import Nvrtc

FAMILY = Stencil()
ARCH = "sm_90"
STEPS = 1000
FUSED, SWEEPS = "overlapped", ("naive", "stream")
SAMPLES = 5
COPIED = 1 << 28  # bytes
BUSY = 0.9  # a copy slower than this much of the fastest was not alone
if TYPE_CHECKING:
    from gen.gpu.timing import Instruments


@dataclass(frozen=True)
class Line:
    """A problem: cells on a line, and weights that grow and add up to 1."""

    weights: int
    dtype: DType
    cols: int
    boundary: Boundary = "constant"

    def __str__(self) -> str:
        return f"{self.weights} weights {self.dtype.name} {self.cols} cells {self.boundary} {STEPS} steps"

    @property
    def spec(self) -> StencilSpec:
        """What is computed."""
        weights = np.arange(1.0, self.weights + 1)
        weights /= weights.sum()
        return StencilSpec(f"line{self.weights}", tuple(weights), weights.shape, self.dtype, self.boundary)

    @property
    def extents(self) -> Extents:
        """Its sizes."""
        return {"cols": self.cols, "steps": STEPS}


@dataclass(frozen=True)
class Row:
    """What a problem came to.

    Attributes:
        us: the median of each variant's calls, in microseconds, fastest first.
        odd: variants whose result has other bits than most.
        copy: gigabytes a second, read and written: the slower of a copy before all this and one after it.
    """

    line: str
    cells: int
    us: dict[str, float]
    odd: tuple[str, ...]
    copy: float

    def fastest(self, *algorithms: str) -> tuple[str, float]:
        """The fastest variant of these algorithms, and its microseconds."""
        return next((name, us) for name, us in self.us.items() if name.partition("_")[0] in algorithms)

    def __str__(self) -> str:
        (fused, us), (sweep, each) = self.fastest(FUSED), self.fastest(*SWEEPS)
        rate = self.cells * STEPS / us / 1e6
        odd = f"  OTHER BITS: {', '.join(self.odd)}" if self.odd else ""
        return f"{self.line}: {fused} {us:.0f} us, {rate:.2f} TCell-steps/s; {sweep} {each / us:.1f} times longer{odd}"


def lines() -> Iterator[Line]:
    """Lines that no cache holds, that the second-level cache does, and of few segments; all types and boundaries."""
    for weights in (3, 9):
        for dtype in DTYPES:
            yield Line(weights, dtype, 1 << 24)
        yield Line(weights, F32, 1 << 20)
    yield Line(3, F32, 1 << 15)
    others: tuple[Boundary, ...] = ("nearest", "reflect", "mirror", "wrap", "frozen")
    for boundary in others:
        yield Line(3, F32, 1 << 24, boundary)


def tried(line: Line) -> tuple[Variant, ...]:
    """Every variant that fuses steps, and of those that do not what may be fastest."""
    made: list[tuple[str, Config]] = [("naive", NaiveConfig())]
    for rows, warps in product((2, 4, 8), repeat=2):
        made.append(("stream", StreamConfig(rows=rows, warps_across=1, warps_down=warps)))
    made += [(FUSED, config) for config in search_space(FAMILY.algorithms[FUSED], line.spec)]
    return tuple(variant(FAMILY, line.spec, *one) for one in made)


def measure(instruments: Instruments, line: Line, made: Sequence[tuple[Variant, Compiled]]) -> Row:
    """Times every variant's call, the second of two in a row."""
    from gen.gpu.kernel import CudaKernel

    device, service = instruments.device, instruments.service
    size = line.cols * line.dtype.size
    cells, out = device.allocate(size), device.allocate(size)
    service.random(cells.address, size, 3, line.dtype)
    us: dict[str, float] = {}
    sums: dict[str, int] = {}
    copied = [copy_speed(instruments)]
    for one, compiled in made:
        kernel = CudaKernel(one, compiled, device, device.limits)
        addresses = {**kernel.scratch(line.extents), "in": cells.address, "out": out.address}
        device.zero(out.address, size)
        device.synchronize()  # graphs run on a stream of their own
        graph = kernel.graph(kernel.steps(line.extents), line.extents, addresses, 1)
        name = one.name.partition("__")[2]
        us[name] = statistics.median(graph.time_us() for _ in range(SAMPLES))
        sums[name] = service.checksum(out.address, size)
        graph.close()
    cells.free()
    out.free()
    copied.append(copy_speed(instruments))
    return row_of(line, us, sums, min(copied))


def copy_speed(instruments: Instruments) -> float:
    """Gigabytes a second that the GPU reads and writes now."""
    source, target = (instruments.device.allocate(COPIED) for _ in range(2))
    us = instruments.clock.times(lambda: instruments.service.copy(source.address, target.address, COPIED), SAMPLES)
    source.free()
    target.free()
    return 2e-3 * COPIED / statistics.median(us)


def disturbed(rows: Sequence[Row]) -> list[int]:
    """The places of rows that were taken while somebody else used the GPU."""
    fastest = max((row.copy for row in rows), default=0.0)
    return [place for place, row in enumerate(rows) if row.copy < BUSY * fastest]


def row_of(line: Line, us: dict[str, float], sums: dict[str, int], copy: float) -> Row:
    """What times and checksums of all variants come to."""
    usual = statistics.mode(sums.values())
    fastest = dict(sorted(us.items(), key=lambda pair: (pair[1], pair[0])))
    odd = tuple(name for name, found in sums.items() if found != usual)
    return Row(str(line), line.cols, fastest, odd, copy)


def main() -> int:
    """Prints a line a problem; status 1 if variants disagree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only problems whose line holds this")
    parser.add_argument("--json", type=Path, help="also write every time to this file")
    options = parser.parse_args()
    need_gpu("python bench/line_sweep.py")
    wanted = {line: tried(line) for line in lines() if options.only in str(line)}
    compiled = compiled_first((made for variants in wanted.values() for made in variants), ARCH)
    from gen.gpu.timing import Instruments

    with alone(0, None, "bench/line_sweep.py"):
        instruments = Instruments.open(0, Nvrtc(None))
        rows: list[Row] = []

        def keep() -> None:
            write_results(options.json, "python bench/line_sweep.py", instruments.device, {"steps": STEPS}, rows=rows)

        every_line = [(line, [(made, compiled[made.name]) for made in variants]) for line, variants in wanted.items()]
        for line, made in every_line:
            rows.append(measure(instruments, line, made))
            print(rows[-1], flush=True)
            keep()
        for place in disturbed(rows):
            rows[place] = measure(instruments, *every_line[place])
            print(f"again: {rows[place]}", flush=True)
            keep()
    return any(row.odd for row in rows)


if __name__ == "__main__":
    sys.exit(ended(main))
