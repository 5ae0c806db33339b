"""Stencils and systems of three axes by variants of march: `python bench/volumes.py [--only TEXT] [--json FILE]`.

On a GPU it times the wave equation of bench/wave.py (order 8, two fields, a coefficient), diffusion, two substances
that react, and stencils of radius 1, 2 and 4, at 512 x 512 x 512 or `--shape`: one sweep, then 48 steps by variants
that fuse steps. Each takes all variants of `march` that tuning would try, or so many drawn from them, or those of
`--variant TAG`; all results are compared with that of `naive`. A line for each of the fastest: the fraction of a copy
of the same bytes that is timed beside them. With `--once` each kernel runs once, for a profiler.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gen
from bench.program import compiled_first, ended, need_gpu, write_results
from bench.wave import read_shape, spec_of_wave
from gen.cli.gpu import alone
from gen.dtypes import F16, F32, F64, DType
from gen.families.base import Extents, Family, Spec, Variant
from gen.families.names import illegal, search_space, variant
from gen.families.stencil import Boundary, Stencil, StencilSpec
from gen.families.stencil.shapes import extents_of
from gen.families.system import System, SystemSpec
from gen.families.system.launches import extents_of as extents_of_system
from gen.toolchain.compiled import Compiled
from gen.toolchain.nvrtc import Nvrtc

if TYPE_CHECKING:
    from gen.gpu.timing import Instruments

ARCH = "sm_90"
EXTENT = 512
MANY_STEPS = 48  # of a stencil
STEPS = 8  # of a call of a system: its first step also copies, where a field is only renamed
SAMPLES, FINALS = 3, 15  # calls of every variant, and of the fastest
SHOWN = 6  # fastest variants
MARCH, BASE = "march", "naive"


@dataclass(frozen=True)
class Volume:
    """A problem.

    Attributes:
        bytes_per_cell: that are read and written at least.
    """

    name: str
    family: Family[Any]
    spec: Spec
    extents: Extents
    bytes_per_cell: int

    @property
    def fuses(self) -> bool:
        """Whether variants are meant that fuse steps."""
        return self.family.name == "stencil" and self.extents["steps"] > 1

    @property
    def cells(self) -> int:
        """Of a field."""
        return prod(self.extents[axis] for axis in ("planes", "rows", "cols"))

    def variants(self, tags: Sequence[str], most: int) -> tuple[Variant, ...]:
        """The naive one, then those of march: so many of all that are searched, or the legal ones of these tags."""
        algorithm = self.family.algorithms[MARCH]
        configs = [algorithm.config.from_tag(tag, MARCH) for tag in tags]
        legal = [one for one in configs if illegal(algorithm, self.spec, one) is None]
        space = [one for one in search_space(algorithm, self.spec) if (getattr(one, "steps", 1) > 1) == self.fuses]
        drawn = np.random.default_rng(0).permutation(len(space))[:most]
        found = legal if tags else [space[place] for place in drawn]
        base = self.family.algorithms[BASE].config()
        return tuple(
            variant(self.family, self.spec, *one) for one in ((BASE, base), *((MARCH, config) for config in found))
        )


@dataclass(frozen=True)
class Row:
    """What a problem came to.

    Attributes:
        copy_us: a copy of as many bytes.
        us: medians of variants, in microseconds a step, fastest first.
        odd: variants whose result has other bits than that of `naive`.
    """

    volume: str
    cells: int
    copy_us: float
    us: dict[str, float]
    odd: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.volume}: copy {self.copy_us:.1f} us; {len(self.us)} variants"]
        for name, us in list(self.us.items())[:SHOWN]:
            lines.append(
                f"  {us:8.1f} us  {self.copy_us / us:.3f} of copy  {self.cells / us / 1e3:6.1f} GCell/s  {name}"
            )
        lines += [f"  OTHER BITS: {name}" for name in self.odd]
        return "\n".join(lines)


def volumes(shape: tuple[int, int, int] = (EXTENT,) * 3) -> Iterator[Volume]:
    """The wave first."""
    wave = spec_of_wave()
    extents = {**extents_of_system(wave, shape, STEPS), **dict.fromkeys(wave.counts, 1)}
    yield Volume("wave", System(), wave, extents, 16)
    for found, bytes_per_cell in ((heat_spec(), 12), (reaction_spec(), 16)):
        yield Volume(found.word, System(), found, extents_of_system(found, shape, STEPS), bytes_per_cell)
    for form, radius, dtype in (
        ("star", 1, F32),
        ("star", 2, F32),
        ("star", 4, F32),
        ("box", 1, F32),
        ("star", 1, F64),
    ):
        spec = stencil_spec(form, radius, dtype)
        yield Volume(spec.label, Stencil(), spec, extents_of(spec, shape, 1), 2 * dtype.size)
    many: tuple[tuple[str, int, DType, Boundary], ...] = (
        ("star", 1, F32, "constant"),
        ("star", 1, F32, "frozen"),
        ("star", 1, F32, "wrap"),
        ("star", 1, F64, "frozen"),
        ("star", 1, F16, "frozen"),
        ("star", 2, F32, "frozen"),
        ("box", 1, F32, "frozen"),
    )
    for form, radius, dtype, boundary in many:
        spec = stencil_spec(form, radius, dtype, boundary)
        name = f"steps of {form}3d{radius}r {dtype.name} {boundary}"
        yield Volume(name, Stencil(), spec, extents_of(spec, shape, MANY_STEPS), 2 * dtype.size)


def heat_spec() -> SystemSpec:
    """Seven points, and a coefficient of each cell."""
    u, m = gen.fields("u m", ndim=3)
    return gen.system({u: u + m * u.laplace()}, boundary="nearest", word="heat")


def reaction_spec() -> SystemSpec:
    """Gray and Scott's two substances, which diffuse and react: cells around are read of both."""
    u, v = gen.fields("u v", ndim=3)
    feed, kill = 0.035, 0.065
    return gen.system(
        {
            u: u + 0.16 * u.laplace() - u * v**2 + feed * (1 - u),
            v: v + 0.08 * v.laplace() + u * v**2 - (feed + kill) * v,
        },
        boundary="wrap",
        word="reaction",
    )


def stencil_spec(form: str, radius: int, dtype: DType, boundary: Boundary = "frozen") -> StencilSpec:
    """Weights that grow and add up to 1."""
    shape = (2 * radius + 1,) * 3
    weights = np.arange(1.0, prod(shape) + 1).reshape(shape)
    if form == "star":
        off_axis = sum(index != radius for index in np.indices(weights.shape))
        weights[np.asarray(off_axis) > 1] = 0
    weights /= weights.sum()
    return StencilSpec(f"{form}3d{radius}r", tuple(weights.reshape(-1)), shape, dtype, boundary)


def measure(instruments: Instruments, volume: Volume, made: Sequence[tuple[Variant, Compiled]], *, once: bool) -> Row:
    """Checks and times every variant's call from cold caches, then the fastest again, in turns with the copy."""
    from gen.gpu.kernel import CudaKernel

    device, service, steps = instruments.device, instruments.service, volume.extents["steps"]
    memory = {}
    sizes: dict[str, int] = {}
    for seed, operand in enumerate(volume.spec.operands):
        axes = (axis if isinstance(axis, int) else volume.extents[axis] for axis in operand.axes)
        size = sizes[operand.name] = operand.dtype.size * prod(axes)
        memory[operand.name] = device.allocate(max(size, 4))
        device.zero(memory[operand.name].address, size)
        if operand.dtype in (F16, F32, F64):  # places of points are zero
            service.random(memory[operand.name].address, size // 4 * 4, seed, operand.dtype)
    output = next(operand.name for operand in volume.spec.operands if operand.role == "out")
    sums, us = dict[str, int](), dict[str, float]()
    ready: dict[str, Callable[[], None]] = {}
    for one, compiled in made:
        kernel = CudaKernel(one, compiled, device, device.limits)
        addresses = {**kernel.scratch(volume.extents), **{name: held.address for name, held in memory.items()}}
        device.zero(memory[output].address, sizes[output])
        launch = kernel.launches(kernel.steps(volume.extents), volume.extents, addresses)
        launch()
        device.synchronize()
        name = one.name.partition("__")[2]
        sums[name] = service.checksum(memory[output].address, sizes[output])
        if not once:
            us[name] = statistics.median(instruments.clock.times(launch, SAMPLES)) / steps
            ready[name] = launch
    copied = volume.cells * volume.bytes_per_cell // 2
    source, target = (device.allocate(copied) for _ in range(2))
    best = sorted(us, key=us.__getitem__)[:SHOWN]
    copies: list[float] = []
    for _ in range(0 if once else 2):
        copies += instruments.clock.times(lambda: service.copy(source.address, target.address, copied), FINALS)
        for name in best:
            us[name] = statistics.median(instruments.clock.times(ready[name], FINALS)) / steps
    for held in (*memory.values(), source, target):
        held.free()
    base = next(iter(sums.values()))
    odd = tuple(name for name, found in sums.items() if found != base)
    fastest = dict(sorted(us.items(), key=lambda pair: pair[1]))
    return Row(volume.name, volume.cells, statistics.median(copies) if copies else 0.0, fastest, odd)


def main() -> int:
    """Prints a block a problem; status 1 if variants disagree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="x".join(3 * [str(EXTENT)]), help="planes, rows and columns")
    parser.add_argument("--only", action="append", default=[], help="problems whose name begins with this; repeatable")
    parser.add_argument("--variant", action="append", default=[], help="tag of march to time; repeatable")
    parser.add_argument("--most", type=int, default=100, help="variants of a problem, drawn from those searched")
    parser.add_argument("--once", action="store_true", help="run each kernel once, and time none")
    parser.add_argument("--json", type=Path, help="also write every time to this file")
    options = parser.parse_args()
    need_gpu("python bench/volumes.py")
    wanted = [
        one
        for one in volumes(read_shape(options.shape))
        if not options.only or any(one.name.startswith(x) for x in options.only)
    ]
    made = [(volume, volume.variants(options.variant, options.most)) for volume in wanted]
    compiled = compiled_first((one for _, variants in made for one in variants), ARCH)
    from gen.gpu.timing import Instruments

    with alone(0, None, "bench/volumes.py"):
        instruments = Instruments.open(0, Nvrtc(None))
        rows = []
        for volume, variants in made:
            rows.append(
                measure(instruments, volume, [(one, compiled[one.name]) for one in variants], once=options.once)
            )
            print(rows[-1], flush=True)
            write_results(options.json, "python bench/volumes.py", instruments.device, rows=rows)
    return any(row.odd for row in rows)


if __name__ == "__main__":
    sys.exit(ended(main))
