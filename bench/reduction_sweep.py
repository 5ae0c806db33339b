"""Defaults of the reductions against every variant: `python bench/reduction_sweep.py [--only TEXT] [--json FILE]`.

On a GPU. Each problem is computed by every variant that takes it, each timed with cold caches, the faster ones a dozen
times, and its result compared with that of the others. A line a problem: the default of its shape class, and the
fastest of each algorithm. A line a shape class: what its default, and the variants that suit all its problems best,
take at the worst over the fastest of a problem; the defaults in `gen/families/reduction/heuristics.py` come from it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import gen
from bench.program import compiled_first, ended, need_gpu, write_results
from gen.cli.gpu import alone
from gen.dtypes import LoadModifier
from gen.families.base import Extents, Layout, Limits, Variant
from gen.families.config import Config
from gen.families.extents import dense_strides
from gen.families.names import search_space, variant
from gen.families.reduction import Reduction, ReductionSpec
from gen.toolchain.compiled import Compiled
from gen.toolchain.nvrtc import Nvrtc

FAMILY = Reduction()
ARCH = "sm_90"
FIRST, MORE = 3, 9  # samples; a variant far off gets only the first
FAR = 1.15
FEW = 6  # variants named for a shape class
MOST_ROUNDS = 8  # in which threads share a row
LEAST_OF_BLOCK = 256  # elements of a row that a block reads
LARGEST = 2**30  # bytes of an array
WHOLE, ROWS, COLUMNS = ("grid", "flags", "single", "cluster"), ("rows", "grid", "flags"), ("columns", "stream")
Shape = tuple[int, ...]
if TYPE_CHECKING:
    from gen.gpu.timing import Calibration, Instruments


@dataclass(frozen=True)
class Group:
    """Problems of one spec, and the algorithms that are tried on them."""

    spec: ReductionSpec
    shapes: tuple[Shape, ...]
    algorithms: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """What a problem came to: times in microseconds.

    Attributes:
        floor_us: an empty kernel, and the bytes at the calibrated bandwidth.
        default, default_us: what its shape class gets untuned.
        best: of each algorithm the fastest variant and its time.
        variants: that were timed.
        odd: those of them that gave another result than most.
    """

    spec: str
    shape: Shape
    floor_us: float
    default: str
    default_us: float
    best: dict[str, tuple[str, float]]
    variants: int
    odd: int


@dataclass(frozen=True)
class Over:
    """What a shape class came to, over the problems of one spec, or of all.

    Attributes:
        spec: its label; empty for all.
        problems: of the class that were timed.
        default: the worst ratio of the default's time to that of the fastest; of several where dtypes have their own.
        best: those variants, by algorithm and tag, whose worst ratio is least, with it and the mean of their ratios.
    """

    shape_class: str
    spec: str
    problems: int
    default: float
    best: tuple[tuple[str, float, float], ...]


Timed = tuple[Group, Shape, dict[str, float]]


def groups() -> Iterator[Group]:
    """Sizes inside every shape class but `strided`."""
    powers: tuple[Shape, ...] = tuple((2**n,) for n in (10, 12, 13, 15, 16, 18, 20, 22, 24, 28))
    yield Group(gen.reduction("sum"), powers, WHOLE)
    yield Group(gen.reduction("sum", "float16"), powers, WHOLE)
    yield Group(gen.reduction("sum", "uint8"), powers, WHOLE)
    for op, elements in (("argmax", "uint8"), ("argmax", "f32"), ("stats", "f32")):
        yield Group(gen.reduction(op, elements), ((2**26,),), WHOLE)
    short: tuple[Shape, ...] = (
        (2**21, 3), (2**21, 8), (2**20, 15), (2**19, 32), (2**18, 64), (167772, 100), (2**17, 128), (2**15, 512),
        (16777, 1000), (8192, 2048), (4096, 4096), (256, 65536), (4, 2**24),
    )  # fmt: skip
    yield Group(gen.reduction("sum", axis=1), short, ROWS)
    yield Group(
        gen.reduction("sum", "float16", axis=1), ((2**21, 8), (2**18, 64), (2**15, 512), (4096, 4096)), ("rows",)
    )
    few: tuple[Shape, ...] = ((4096, 4096), (65536, 64), (10**7, 8), (100, 10**6))
    wide: tuple[Shape, ...] = ((8192, 3072), (2**16, 2048), (1000, 10**5), (64, 2 * 10**6))
    short_columns: tuple[Shape, ...] = ((2, 2**25), (3, 10**7), (8, 2**23), (16, 2**22))
    yield Group(gen.reduction("sum", axis=0), few + wide + short_columns, COLUMNS)
    for narrow in ("float16", "uint8"):
        yield Group(gen.reduction("sum", narrow, axis=0), few, COLUMNS)
    yield Group(gen.reduction("sum", axis=1), ((64, 1024, 512), (16, 4096, 1024), (4096, 100, 64)), ("columns",))
    images: tuple[Shape, ...] = ((32, 256, 56 * 56), (64, 512, 49), (256, 64, 1024), (1024, 1024, 5))
    yield Group(gen.reduction("sum", axis=(0, 2)), images, ("multi_rows", "strided"))
    channels: tuple[Shape, ...] = ((32, 56, 56, 256), (64, 7, 7, 512), (128, 32, 32, 60))
    yield Group(gen.reduction("sum", axis=(0, 2)), channels, ("multi_columns",))


def extents_of(spec: ReductionSpec, shape: Shape) -> Extents:
    """The sizes of a contiguous array."""
    return FAMILY.extents(spec, {"in": Layout(shape, dense_strides(shape, spec.dtype.size), spec.dtype.numpy)})


def default(spec: ReductionSpec, shape: Shape) -> Variant:
    """What an array of this shape gets untuned."""
    return variant(FAMILY, spec, *FAMILY.base(spec, FAMILY.shape_class(spec, extents_of(spec, shape))))


def tried(group: Group) -> tuple[Variant, ...]:
    """Every variant but those that never win by more than noise: narrow vectors in a `grid`, single loads, `cg`."""
    found = {default(group.spec, shape).name: default(group.spec, shape) for shape in group.shapes}
    for name in group.algorithms:
        algorithm = FAMILY.algorithms[name]
        for config in search_space(algorithm, group.spec):
            if _has_a_chance(name, config):
                made = variant(FAMILY, group.spec, name, config)
                found[made.name] = made
    return tuple(found.values())


def _has_a_chance(name: str, config: Config) -> bool:
    values = vars(config)
    if name == "single":
        return True
    if values.get("load_modifier") is LoadModifier.CG or (name in WHOLE and values["vec_bytes"] < 8):
        return False
    return name == "rows" or values["unroll"] > 1


def worth(made: Variant, extents: Extents) -> bool:
    """Whether a variant may be fast at these sizes: its threads have something to do, and not too much."""
    values, n = vars(made.config), extents["n"]
    assert isinstance(made.spec, ReductionSpec)
    if made.algorithm.name == "rows":
        vectors = -(-n * made.spec.dtype.size // values["vec_bytes"])
        return bool(values["group"] <= 2 * vectors <= 2 * MOST_ROUNDS * values["group"] * values["unroll"])
    return made.spec.axis is None or n >= LEAST_OF_BLOCK or made.algorithm.name in COLUMNS


def measure(
    instruments: Instruments, calibration: Calibration, group: Group, made: Sequence[tuple[Variant, Compiled]]
) -> Iterator[tuple[Row, dict[str, float]]]:
    """Times every variant on each problem of a group."""
    from gen.gpu.kernel import CudaKernel

    loaded: dict[str, CudaKernel] = {}

    device, clock, service = instruments.device, instruments.clock, instruments.service
    spec = group.spec
    array = device.allocate(LARGEST)
    service.random(array.address, LARGEST, 3, spec.dtype)
    for shape in group.shapes:
        extents = extents_of(spec, shape)
        layout = FAMILY.layouts(spec, extents)[spec.results[0][0]]
        size = prod(layout.shape) * layout.dtype.itemsize
        outs = {name: device.allocate(size) for name, _, _ in spec.results}
        first = outs[spec.results[0][0]].address
        times: dict[str, float] = {}
        results: dict[str, int] = {}
        usual = default(spec, shape).name
        for one, compiled in made:
            if not _fits(one, extents, device.limits) or not (worth(one, extents) or one.name == usual):
                continue
            if one.name not in loaded:
                loaded[one.name] = CudaKernel(one, compiled, device, device.limits)
            kernel = loaded[one.name]
            addresses = {**kernel.scratch(extents), "in": array.address, **{n: m.address for n, m in outs.items()}}
            launch = kernel.launches(kernel.steps(extents), extents, addresses)
            found = clock.times(launch, FIRST)
            if min(found) < FAR * min(times.values(), default=float("inf")):
                found += clock.times(launch, MORE)
            times[one.name] = statistics.median(found)
            results[one.name] = service.checksum(first, size // 4 * 4)
        yield row_of(group, shape, calibration.floor_us(FAMILY.work(spec, extents)), times, results), times
        for memory in outs.values():
            memory.free()
    array.free()


def _fits(made: Variant, extents: Extents, limits: Limits) -> bool:
    algorithm, spec, config = made.algorithm, made.spec, made.config
    return not (
        algorithm.infeasible(spec, config, limits) or algorithm.unsupported_extents(spec, config, extents, limits)
    )


def row_of(group: Group, shape: Shape, floor_us: float, times: dict[str, float], results: dict[str, int]) -> Row:
    """What the times of all variants come to."""
    best: dict[str, tuple[str, float]] = {}
    for name, us in sorted(times.items(), key=lambda pair: (pair[1], pair[0])):
        algorithm, _, tag = name.partition("__")[2].partition("_")
        best.setdefault(algorithm, (tag, round(us, 2)))
    usual = statistics.mode(results.values())
    untuned = default(group.spec, shape).name
    return Row(
        group.spec.label, shape, round(floor_us, 2), untuned.partition("__")[2], round(times[untuned], 2), best,
        len(times), sum(result != usual for result in results.values()),
    )  # fmt: skip


def over_classes(timed: Sequence[Timed]) -> Iterator[Over]:
    """What suits a shape class best, over all problems, and over those of each spec where there are several."""
    classes: dict[str, list[Timed]] = {}
    for one in timed:
        classes.setdefault(FAMILY.shape_class(one[0].spec, extents_of(one[0].spec, one[1])), []).append(one)
    for name, problems in classes.items():
        labels = list(dict.fromkeys(group.spec.label for group, _, _ in problems))
        yield _over(name, "", problems)
        if len(labels) > 1:
            for label in labels:
                yield _over(name, label, [one for one in problems if one[0].spec.label == label])


def _over(name: str, label: str, problems: Sequence[Timed]) -> Over:
    found: dict[str, list[float]] = {}
    defaults = []
    for group, shape, times in problems:
        least = min(times.values())
        defaults.append(times[default(group.spec, shape).name] / least)
        for variant_name, us in times.items():
            found.setdefault(variant_name.partition("__")[2], []).append(us / least)
    ratios = {tag: of for tag, of in found.items() if len(of) == len(problems)}
    order = sorted(ratios, key=lambda tag: (max(ratios[tag]), statistics.mean(ratios[tag]), tag))
    best = tuple((tag, round(max(ratios[tag]), 3), round(statistics.mean(ratios[tag]), 3)) for tag in order[:FEW])
    return Over(name, label, len(problems), round(max(defaults), 3), best)


def main() -> int:
    """Prints a line a problem, then one a shape class; status 1 if variants disagree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only specs whose label holds this")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    need_gpu("python bench/reduction_sweep.py")
    wanted = [(group, tried(group)) for group in groups() if options.only in group.spec.label]
    rows: list[Row] = []
    timed: list[Timed] = []
    compiled = compiled_first((made for _, variants in wanted for made in variants), ARCH)
    from gen.gpu.timing import Instruments

    with alone(0, None, "bench/reduction_sweep.py"):
        instruments = Instruments.open(0, Nvrtc(None))
        calibration = instruments.calibrate()
        more = {"read": round(calibration.read), "empty_pair_us": round(calibration.empty_pair_us, 2)}
        for group, variants in wanted:
            for row, times in measure(
                instruments, calibration, group, [(made, compiled[made.name]) for made in variants]
            ):
                rows.append(row)
                timed.append((group, row.shape, times))
                best = "  ".join(f"{name}_{tag} {us}" for name, (tag, us) in row.best.items())
                print(f"{row.spec} {row.shape} floor {row.floor_us} default {row.default} {row.default_us}: {best}")
                write_results(
                    options.json, "python bench/reduction_sweep.py", instruments.device, more,
                    rows=rows, classes=list(over_classes(timed)),
                )  # fmt: skip
    for one in over_classes(timed):
        best = "  ".join(f"{tag} {worst} ({mean})" for tag, worst, mean in one.best)
        print(f"{one.shape_class}{f', {one.spec}' if one.spec else ''}: {one.problems} problems, ", end="")
        print(f"default {one.default}: {best}")
    return any(row.odd for row in rows)


if __name__ == "__main__":
    sys.exit(ended(main))
