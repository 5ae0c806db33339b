"""What lines kept in the L2 cost or save what comes next: `python bench/afterwards.py [--json FILE]`, on a GPU.

A transpose may ask the L2 to evict what it reads, or what it writes, after all else (`ldel`, `stel`). That it is
faster alone is not enough: what it leaves dirty is written back later, and what it keeps there takes room from others.
So a few public cases are timed from cold caches with what may come next: a kernel that reads its output, one that reads
or writes other memory, one that needs the cache for data of its own, the same again.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.cases import public_cases
from bench.program import ended, need_gpu, write_results
from gen.cli.gpu import alone
from gen.dtypes import B32, LoadModifier, StoreModifier
from gen.emit.render import render
from gen.errors import RunError
from gen.families.base import Extents, Variant
from gen.families.names import variant
from gen.families.transpose import Transpose
from gen.families.transpose.algorithms.skinny import Few, InterleaveConfig, SquaresConfig
from gen.families.transpose.algorithms.vectors import VectorTileConfig
from gen.proof.error_bounds import disagreement
from gen.toolchain.nvrtc import Nvrtc

FAMILY = Transpose()
TURNS = 15
OTHER = 1 << 28  # bytes of other memory
SMALL = 24 << 20  # bytes that fit in the L2
CASES: tuple[tuple[str, str, Any], ...] = (
    ("transpose f32 10000000x3", "interleave", InterleaveConfig(few=Few.COLS, count=3, threads_per_block=128)),
    ("transpose u8 10000000x16", "interleave", InterleaveConfig(few=Few.COLS, count=16, threads_per_block=64)),
    ("transpose f32 65536x16x16 to 021", "squares", SquaresConfig(threads_per_block=128)),
    ("transpose f32 8192x8192", "vector_tile", VectorTileConfig(lanes=8)),
)
MODIFIERS = tuple(
    (load, store)
    for store in (StoreModifier.DEFAULT, StoreModifier.EVICT_LAST)
    for load in (LoadModifier.LDG, LoadModifier.EVICT_LAST)
)
Launch = Callable[[], None]
if TYPE_CHECKING:
    from gen.gpu.kernel import CudaKernel
    from gen.gpu.timing import Instruments


@dataclass(frozen=True)
class Row:
    """A case, and what comes next: microseconds of both together, by variant, in the order of MODIFIERS."""

    case: str
    afterwards: str
    us: dict[str, float]


def variants(case: str, algorithm: str, config: Any) -> tuple[Variant, ...]:
    """Of a case, one for each pair of cache operators."""
    (found,) = (one for one in public_cases() if one.name == case)
    spec = found.spec
    return tuple(
        variant(FAMILY, spec, algorithm, replace(config, load_modifier=load, store_modifier=store))
        for load, store in MODIFIERS
    )


def measure(instruments: Instruments, case: str, made: Sequence[Variant]) -> list[Row]:
    """Times each variant with each of what may come next. Raises RunError if one is not what NumPy has."""
    from gen.gpu.kernel import CudaKernel
    from gen.tune.gpu_session import Buffers

    device, clock, service = instruments.device, instruments.clock, instruments.service
    (found,) = (one for one in public_cases() if one.name == case)
    problem = found.problem
    buffers = Buffers(device, service, problem)
    (out,) = buffers.outputs
    other = device.allocate(OTHER)
    service.random(other.address, OTHER, 5, B32)
    launches: dict[str, Launch] = {}
    expected = problem.family.oracle(problem.spec, buffers.download(), problem.extents)[out.operand.name]
    for one in made:
        compiled = device.compile(one.name, render(one))
        kernel = CudaKernel(one, compiled, device, device.limits)
        launches[one.name] = _launch(kernel, problem.extents, buffers.addresses)
        buffers.poison(0x7FA15A5A)
        launches[one.name]()
        wrong = disagreement(expected, out.download(), 0, out.operand.dtype)
        if wrong is not None:
            raise RunError(f"{one.name} on {case}", f"is wrong{wrong}")
    afterwards: dict[str, Callable[[Launch], None]] = {
        "nothing": lambda _: None,
        "its output is read": lambda _: service.read(out.address, out.size // 16 * 16),
        "256 MiB of other memory are read": lambda _: service.read(other.address, OTHER),
        "256 MiB of other memory are written": lambda _: service.fill(other.address, OTHER, 7),
        "24 MiB of other memory are read 8 times": lambda _: _repeat(lambda: service.read(other.address, SMALL), 8),
        "the same 9 times more": lambda launch: _repeat(launch, 9),
    }
    rows = []
    order = np.random.default_rng(0)
    for name, follow in afterwards.items():
        times: dict[str, list[float]] = {one: [] for one in launches}
        for _ in range(TURNS):
            for one in order.permutation(list(launches)):
                times[one] += clock.times(_both(launches[one], follow), 1)
        rows.append(Row(case, name, {one: round(statistics.median(all_of), 2) for one, all_of in times.items()}))
    buffers.free()
    other.free()
    return rows


def _launch(kernel: CudaKernel, extents: Extents, addresses: Mapping[str, int]) -> Launch:
    return kernel.launches(kernel.steps(extents), extents, addresses)


def _both(launch: Launch, follow: Callable[[Launch], None]) -> Launch:
    def queue() -> None:
        launch()
        follow(launch)

    return queue


def _repeat(launch: Launch, times: int) -> None:
    for _ in range(times):
        launch()


def table(content: Mapping[str, Any]) -> str:
    """What docs/benchmarks.md shows of a file: times over those of the variant that asks for nothing, of all cases."""
    meta = content["meta"]
    names = [" ".join(_tags(load, store)) for load, store in MODIFIERS[1:]]
    where = f"Measured on one {meta['device']} (driver {meta['driver']}), {meta['date']}, by `{meta['command']}`"
    lines = [
        f"{where}: the time of both, over that where the transpose asks for nothing.\n",
        f"| what comes next | {' | '.join(f'`{name}`' for name in names)} |",
        f"| --- |{' --- |' * len(names)}",
    ]
    for follows in dict.fromkeys(row["afterwards"] for row in content["rows"]):
        times = [list(row["us"].values()) for row in content["rows"] if row["afterwards"] == follows]
        ratios = [[us / plain for us in others] for plain, *others in times]
        cells = (f"{min(column):.3f} to {max(column):.3f}" for column in zip(*ratios, strict=True))
        lines.append(f"| {follows} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _tags(load: LoadModifier, store: StoreModifier) -> Iterator[str]:
    if load is LoadModifier.EVICT_LAST:
        yield "ldel"
    if store is StoreModifier.EVICT_LAST:
        yield "stel"


def main() -> int:
    """Prints a line a case and what comes next."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    need_gpu("python bench/afterwards.py")
    from gen.gpu.timing import Instruments

    rows: list[Row] = []
    with alone(0, None, "bench/afterwards.py"):
        instruments = Instruments.open(0, Nvrtc(None))
        for case, algorithm, config in CASES:
            for row in measure(instruments, case, variants(case, algorithm, config)):
                rows.append(row)
                times = "  ".join(f"{name.partition('__')[2]} {us}" for name, us in row.us.items())
                print(f"{row.case}, then {row.afterwards}: {times}", flush=True)
    write_results(options.json, "python bench/afterwards.py", instruments.device, rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
