"""Many steps of stencils: how they are split over launches, at every boundary, on narrow domains, and reassociated.

`python -m bench.depths [--only TEXT] [--seconds S] [--json FILE]`, on a GPU. For each problem, what `gen.load` chooses
untuned is timed beside the best of the others by estimate and all that fuse other numbers of steps. Their results must
have one checksum, that of `naive`. A line says how many cells advance by a step in a second and for a joule, and what
the choice loses to the fastest. Of a call whose last launches are short it says what full launches and one of the
steps that are left would take.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gen
from bench.program import ended, need_gpu, write_results
from gen.arch import Limits
from gen.cli.gpu import alone
from gen.emit.render import render
from gen.errors import CompileError, GenError
from gen.families.base import WIDEST, Variant
from gen.families.estimates import estimated_us
from gen.families.names import heuristic_variants, variant
from gen.families.stencil import Boundary, Stencil, StencilSpec
from gen.families.stencil.algorithms.tiled import NaiveConfig
from gen.families.stencil.shapes import MANY_STEPS, extents_of
from gen.families.stencil.spec import BOUNDARIES, STEPS
from gen.gpu.device import find_gpu
from gen.gpu.kernel import CudaKernel
from gen.gpu.nvml import Nvml
from gen.runtime.dispatch import Chooser
from gen.toolchain.compiled import Compiled
from gen.toolchain.farm import CompileFarm
from gen.toolchain.nvrtc import Nvrtc

if TYPE_CHECKING:
    from gen.gpu.timing import Instruments

FAMILY = Stencil()
OTHERS = 2  # variants beside what is chosen
SAMPLES = 5
JOULE_SECONDS = 1.0  # of calls whose energy is measured: over a quarter of that figures varied by 40 %
DISTINCT = np.array([[1, 2, 3, 2, 1], [4, 5, 6, 5, 4], [7, 8, 9, 8, 7], [4, 5, 6, 5, 4], [1, 2, 3, 2, 1]]) / 97


@dataclass(frozen=True)
class Case:
    """A stencil at a size.

    Attributes:
        group: of cases.
        name: of its weights.
        spec: what is computed.
        shape: of the array.
        steps: of a call.
        joules: whether the energy of calls is measured.
    """

    group: str
    name: str
    spec: StencilSpec
    shape: tuple[int, ...]
    steps: int
    joules: bool = False

    def __str__(self) -> str:
        order = " reassociated" if self.spec.reassociate else ""
        outside = self.spec.boundaries[0]
        size = "x".join(map(str, self.shape))
        return f"{self.group}: {self.name}{order} {self.spec.dtype.name} {outside} {size}, {self.steps} steps"

    @property
    def extents(self) -> Mapping[str, int]:
        """Its sizes."""
        return extents_of(self.spec, self.shape, self.steps)


@dataclass
class Row:
    """What a case came to.

    Attributes:
        case: its line.
        chosen: what dispatch chooses, untuned.
        us: the median of each variant.
        estimated_us: what dispatch expects of each.
        apart_us: of full launches and one of what is left; 0 where there are no short launches.
        cell_steps: of a call.
        joules: of a call of the chosen variant; 0 where they were not measured.
    """

    case: str
    chosen: str
    cell_steps: int
    us: dict[str, float] = field(default_factory=dict)
    estimated_us: dict[str, float] = field(default_factory=dict)
    apart_us: float = 0.0
    joules: float = 0.0

    def __str__(self) -> str:
        fastest, own = min(self.us, key=lambda name: self.us[name]), self.us[self.chosen]
        text = f"{self.case:66s} {own:10.1f} us {self.cell_steps / own / 1e6:7.3f} TCell-steps/s"
        text += f" {self.us[fastest] / own:5.2f}  {self.chosen}"
        text += f"; fastest {fastest}" if fastest != self.chosen else ""
        text += f"; one shallow launch: {self.apart_us:.1f} us" if self.apart_us else ""
        return text + (f"; {self.cell_steps / self.joules / 1e9:.2f}e9 cell-steps a joule" if self.joules else "")


def cases() -> Iterator[Case]:
    """All of them; a program that is short of time gets the first ones."""

    def of(
        group: str, name: str, weights: object, shape: tuple[int, ...], steps: int, boundary: Boundary = "constant",
        dtype: str = "f4", *, reassociate: bool = False, joules: bool = False,
    ) -> Case:  # fmt: skip
        spec = gen.stencil(weights, boundary=boundary, dtype=np.dtype(dtype), reassociate=reassociate)
        return Case(group, name, spec, shape, steps, joules)

    star, large = gen.star(2, 1), (16384, 16384)
    for steps in (16, 17, 20, 29, 49):
        yield of("steps", "star1", star, large, steps)
    for steps in (17, 33, 49):
        yield of("steps", "star1", star, large, steps, dtype="f8")
    for name, weights in (("box1", gen.box(2, 1)), ("box2", gen.box(2, 2)), ("distinct", DISTINCT)):
        for again in (False, True):
            yield of("terms", name, weights, large, 48, reassociate=again, joules=name == "box1")
    for again in (False, True):
        yield of("terms", "box1", gen.box(2, 1), large, 48, dtype="f8", reassociate=again)
    for steps in (1000, 1001):
        yield of("steps", "star1", star, (4096, 4096), steps)
    for boundary in BOUNDARIES:
        yield of("boundary", "star1", star, (8192, 8192), 48, boundary)
        yield of("boundary", "star1", star, (2048, 2048), 48, boundary)
    for shape in ((100, 5000), (5000, 100), (300, 300), (64, 65536), (1000, 1000)):
        yield of("shape", "star1", star, shape, 1000)
    for boundary in ("reflect", "wrap"):
        yield of("shape", "star1", star, (100, 5000), 1000, boundary)


def weighed(case: Case, chooser: Chooser, limits: Limits) -> tuple[Variant, list[Variant]]:
    """What is chosen, and what is timed beside it: the best by estimate, and those that fuse other numbers of steps."""
    extents = case.extents
    chosen = chooser.choose(extents, WIDEST).variant
    shape_class = FAMILY.shape_class(case.spec, extents)
    able = [
        made
        for made in dict.fromkeys(heuristic_variants(FAMILY, case.spec, shape_class, limits))
        if made.algorithm.unsupported_extents(case.spec, made.config, extents, limits) is None
        and made.algorithm.infeasible(case.spec, made.config, limits) is None
    ]
    able.sort(key=lambda made: _estimate(made, case, limits) or float("inf"))
    if case.group == "boundary":
        return chosen, list(dict.fromkeys((chosen, *able[:1])))
    depths = {getattr(made.config, "steps", 1): made for made in reversed(able)} if shape_class == MANY_STEPS else {}
    return chosen, list(dict.fromkeys((chosen, *able[:OTHERS], *depths.values())))


def _estimate(made: Variant, case: Case, limits: Limits) -> float | None:
    demand = made.algorithm.demand(made.spec, made.config, case.extents, WIDEST, limits)
    return None if demand is None else estimated_us(demand, limits)


def measure(instruments: Instruments, wanted: Sequence[Case], farm: CompileFarm, deadline: float) -> Iterator[Row]:
    """Times each case in order, until the time is over. Raises GenError where a result is not that of `naive`."""
    device, service, clock = instruments.device, instruments.service, instruments.clock
    limits, arch = device.limits, device.limits.arch
    compiling: dict[str, Future[Compiled]] = {}
    planned: list[tuple[Case, Variant, tuple[Variant, ...], list[Future[Compiled]]]] = []
    for case in wanted:
        chooser = Chooser(FAMILY, case.spec, (), device.name, limits)
        chosen, several = weighed(case, chooser, limits)
        base = variant(FAMILY, case.spec, "naive", NaiveConfig())
        for made in (base, *several):
            if made.name not in compiling:
                compiling[made.name] = farm.submit(made.name, render(made), arch)
        codes = [compiling[made.name] for made in (base, *several)]
        planned.append((case, chosen, (base, *several), codes))
    most = max(prod(case.shape) * case.spec.dtype.size for case in wanted)
    source, target = device.allocate(most), device.allocate(most)
    found_gpu = find_gpu()
    nvml = None if found_gpu is None else Nvml(found_gpu.uuid)
    for case, chosen, timed, codes in planned:
        if time.monotonic() > deadline:
            return
        extents, size = dict(case.extents), prod(case.shape) * case.spec.dtype.size
        row = Row(str(case), _tag(chosen), prod(case.shape) * case.steps)
        service.random(source.address, size, 3, case.spec.dtype)
        expected = None
        for made, code in zip(timed, codes, strict=True):
            try:
                kernel = CudaKernel(made, code.result(), device, limits)
            except CompileError as error:
                print(f"{made.name}: {error}", file=sys.stderr)
                continue
            addresses = {**kernel.scratch(extents), "in": source.address, "out": target.address}
            service.fill(target.address, size, 0x7FC0DEAD)
            kernel.launches(kernel.steps(extents), extents, addresses)()
            found = service.checksum(target.address, size)
            expected = found if expected is None else expected
            if found != expected:
                raise GenError(made.name, f"must give the bits of {timed[0].name} at {case}", hex(found))
            if made == timed[0] and made not in timed[1:]:
                continue
            times = kernel.times(clock, kernel.steps(extents), extents, addresses, 2)
            if min(times) < 1.5 * min(row.us.values(), default=float("inf")):
                times += kernel.times(clock, kernel.steps(extents), extents, addresses, SAMPLES - 2)
            row.us[_tag(made)] = round(statistics.median(times), 2)
            estimate = _estimate(made, case, limits)
            if estimate is not None:
                row.estimated_us[_tag(made)] = round(estimate, 2)
            if made == chosen:
                row.apart_us = _apart(kernel, case, addresses, instruments)
                if case.joules and nvml is not None:
                    row.joules = _joules(kernel, case, addresses, instruments, nvml)
        yield row


def _apart(kernel: CudaKernel, case: Case, addresses: Mapping[str, int], instruments: Instruments) -> float:
    """Microseconds of full launches and of one that computes what is left; 0 where no launch is short."""
    fused: Any = getattr(kernel.variant.config, "steps", 1)
    if not any(step.entry == "_short" for step in kernel.steps(case.extents)):
        return 0.0
    total = 0.0
    for part in (case.steps // fused * fused, case.steps % fused):
        extents = {**case.extents, STEPS: part}
        times = kernel.times(instruments.clock, kernel.steps(extents), extents, addresses, SAMPLES)
        total += statistics.median(times) if part else 0.0
    return round(total, 2)


def _joules(
    kernel: CudaKernel, case: Case, addresses: Mapping[str, int], instruments: Instruments, nvml: Nvml
) -> float:
    """Of a call, among calls that follow each other once the GPU is warm; 0 where NVML does not tell."""
    launch = kernel.launches(kernel.steps(case.extents), case.extents, addresses)

    def called(seconds: float) -> int:
        start, calls = time.monotonic(), 0
        while time.monotonic() < start + seconds:
            launch()
            instruments.device.synchronize()
            calls += 1
        return calls

    called(JOULE_SECONDS / 2)
    before = nvml.joules()
    calls = called(JOULE_SECONDS)
    after = nvml.joules()
    return 0.0 if before is None or after is None else (after - before) / calls


def table(content: dict[str, Any]) -> str:
    """The lines of docs/tuning.md about such a file: the fastest variant of each stencil of 48 steps."""
    meta = content["meta"]
    lines = [
        f"Measured on one {meta['device']} (driver {meta['driver']}), {meta['date']}, by `{meta['command']}`.",
        "",
        "| stencil | TCell-steps/s | fastest variant |",
        "| --- | --- | --- |",
    ]
    for row in content["rows"]:
        group, _, name = row["case"].partition(": ")
        if group in ("terms", "boundary") and name.endswith(" 48 steps"):
            fastest, us = min(row["us"].items(), key=lambda pair: pair[1])
            lines.append(f"| {name} | {row['cell_steps'] / us / 1e6:.2f} | `{fastest}` |")
    return "\n".join(lines) + "\n"


def _tag(made: Variant) -> str:
    return made.name.partition("__")[2]


def main() -> int:
    """Prints a line a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only cases whose line begins with this")
    parser.add_argument("--seconds", type=float, default=120.0, help="after which no case is begun")
    parser.add_argument("--json", type=Path, help="also write the times to this file")
    options = parser.parse_args()
    need_gpu("python -m bench.depths")
    deadline = time.monotonic() + options.seconds
    from gen.gpu.timing import Instruments

    compiler, rows = Nvrtc(None), list[Row]()
    with alone(0, None, "bench/depths.py"), CompileFarm(compiler) as farm:
        instruments = Instruments.open(0, compiler)
        wanted = [case for case in cases() if str(case).startswith(options.only)]
        for row in measure(instruments, wanted, farm, deadline):
            rows.append(row)
            print(row, flush=True)
            write_results(options.json, "python -m bench.depths", instruments.device, rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
