"""How well estimates choose among variants: `python -m bench.estimates [--measure] [--family NAME] --json FILE`.

With `--measure`, on a GPU: every variant that dispatch would weigh (with `--of-each` only the first by estimate of each
algorithm), and `--others` of those that it would not, are timed from cold caches on random cases and on those of an
earlier run of `bench.potholes`, with the variants that it names: `bench.potholes --estimate` names those that by
estimate are faster than what is chosen. One that should give base's bits and does not is left out. Without: what the
first choice by estimate takes over the fastest variant of each recorded problem, and what it takes where the constants
are fitted to all problems but that one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import log, prod
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from bench.program import ended, need_gpu, write_results
from bench.random_cases import RandomCase, random_cases
from bench.volumes import volumes
from gen.arch import Limits
from gen.cli.gpu import alone
from gen.emit.render import render
from gen.errors import CompileError
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.estimates import COSTS, Costs, Demand, estimated_us
from gen.families.extents import byte_bounds
from gen.families.names import find_family, find_variant, heuristic_variants, search_space, variant
from gen.families.stencil.spec import STEPS
from gen.toolchain.farm import CompileFarm
from gen.toolchain.nvrtc import Nvrtc

if TYPE_CHECKING:
    from gen.gpu.timing import Instruments

DEVICE = Limits.of("sm_90")
FIRST, MORE = 3, 8  # samples; a variant far off gets only the first
SLOW_RATIO = 1.5
MOST_ESTIMATE_RATIO = 2.5  # over the least estimate: of further variants of an algorithm with `--of-each`
VECTOR_BYTES = 16  # that service kernels copy at once
POISON = 0xA5A5A5A5  # in results, before a variant writes them
TRIED = 16  # variants that tuning could race in seconds
MOST_BYTES = 1 << 30  # of an array that is timed
SPARE_BYTES = 1 << 12


@dataclass(frozen=True)
class Timed:
    """One problem.

    Attributes:
        case: its name.
        problem: what it takes to make it again.
        us: the median time of each variant, by algorithm and tag.
        asked_for: variants that an earlier run names for it, by their whole names.
    """

    case: str
    problem: dict[str, Any]
    us: dict[str, float] = field(default_factory=dict)
    asked_for: tuple[str, ...] = ()

    def again(self) -> RandomCase:
        """The case."""
        one = self.problem
        family = find_family(FAMILIES, one.get("family", "reduction"))
        parameters = one.get("runtime_parameters", {})
        return RandomCase(
            family, family.from_json(one["spec"]), tuple(one["shape"]), parameters, gap=one["gap"], offset=one["offset"]
        )


def problems(family: str, seed: int, count: int, potholes: Path | None, below: float | None) -> Iterator[Timed]:
    """Cases of an earlier run of `bench.potholes`, or of this program, and random ones; of the first a lower ratio."""
    if potholes is not None:
        for row in json.loads(potholes.read_text(encoding="utf-8"))["rows"]:
            of_family = {**row["problem"], **row}.get("family", "reduction") == family
            if of_family and (below is None or (row.get("ratio") or below) < below):
                yield Timed(row["case"], {"family": family, **row["problem"]}, {}, tuple(row.get("others", ())))
    for case in random_cases(seed, 3 * count):
        if case.family.name == family:
            told = {
                "family": family, "spec": case.spec.to_json(), "shape": case.shape, "gap": case.gap,
                "offset": case.offset, "runtime_parameters": dict(case.runtime_parameters),
            }  # fmt: skip
            yield Timed(case.name, told)


def weighed(case: RandomCase, limits: Limits) -> list[Variant]:
    """The variants that dispatch compares by estimate."""
    shape_class = case.problem.shape_class
    base = variant(case.family, case.spec, *case.family.base(case.spec, shape_class))
    often = [*heuristic_variants(case.family, case.spec, shape_class, limits), base]
    able = [
        made
        for made in dict.fromkeys(often)
        if made.algorithm.infeasible(case.spec, made.config, limits) is None
        and made.algorithm.unsupported_extents(case.spec, made.config, case.extents, limits) is None
    ]
    few = {getattr(made.config, "axes", 0) for made in able}
    # Kernels for more axes than there are, which are never the fastest, are left out.
    return [made for made in able if getattr(made.config, "axes", 0) in (0, min(few - {0}, default=0))]


def first_of_each(case: RandomCase, limits: Limits, count: int) -> list[Variant]:
    """Base, and of each algorithm what dispatch compares: its first by estimate, and so many in all of those near."""
    order = sorted(((_estimated(case, made, limits), made) for made in weighed(case, limits)), key=lambda pair: pair[0])
    found: dict[str, list[Variant]] = {}
    for us, made in order:
        of_its_kind = found.setdefault(made.algorithm.name, [])
        if not of_its_kind or (len(of_its_kind) < count and us < MOST_ESTIMATE_RATIO * order[0][0]):
            of_its_kind.append(made)
    base = variant(case.family, case.spec, *case.family.base(case.spec, case.problem.shape_class))
    return [base, *(made for several in found.values() for made in several)]


def _estimated(case: RandomCase, made: Variant, limits: Limits) -> float:
    """Microseconds by estimate; infinite where there is none."""
    demand = made.algorithm.demand(made.spec, made.config, case.extents, case.alignment, limits)
    return float("inf") if demand is None else estimated_us(demand, limits)


def named(one: Timed, case: RandomCase) -> list[Variant]:
    """What an earlier run names for a problem: of `bench.potholes --estimate`, what may be faster than its choice."""
    name = case.family.name_of(case.spec)
    known = {name: case.spec.to_json()}
    return [find_variant(FAMILIES, wanted, known) for wanted in one.asked_for if wanted.startswith(f"{name}__")]


def others(case: RandomCase, limits: Limits, count: int) -> list[Variant]:
    """So many of each algorithm that dispatch would not compare: whether one of them is faster."""
    random = Random(case.name)
    found = []
    for algorithm in case.family.algorithms.values() if count else ():
        space = [
            config
            for config in search_space(algorithm, case.spec, limits)
            if algorithm.unsupported_extents(case.spec, config, case.extents, limits) is None
        ]
        chosen = random.sample(space, min(count, len(space)))
        found += [variant(case.family, case.spec, algorithm, config) for config in chosen]
    return found


def measure(
    instruments: Instruments, wanted: Sequence[Timed], farm: CompileFarm, deadline: float, of_each: int, more: int
) -> Iterator[Timed]:
    """Times what is weighed for each problem, or so many of each algorithm, and others, until the time is over."""
    from gen.gpu.kernel import CudaKernel

    device, clock, service = instruments.device, instruments.clock, instruments.service
    cases = [one.again() for one in wanted]
    bytes_of = [_span(case) for case in cases]
    limits, arch = device.limits, device.limits.arch
    several = []
    for one, case in zip(wanted, cases, strict=True):
        first = first_of_each(case, limits, of_each) if of_each else weighed(case, limits)
        several.append(list(dict.fromkeys((*first, *named(one, case), *others(case, limits, more)))))
    futures = [[farm.submit(made.name, render(made), arch) for made in made_of_case] for made_of_case in several]
    memory = device.allocate(max(bytes_of) + SPARE_BYTES)
    filled = ""
    for one, case, variants, codes in zip(wanted, cases, several, futures, strict=True):
        if time.monotonic() > deadline:
            return
        element = case.inputs[0].dtype
        if element.name != filled:
            service.random(memory.address, max(bytes_of), 3, element)
            filled = element.name
        vectors = {x.name: -(-prod(case.layouts[x.name].shape) * x.dtype.size // VECTOR_BYTES) for x in case.results}
        sizes = {name: max(count, 1) * VECTOR_BYTES for name, count in vectors.items()}
        outs = {name: device.allocate(size) for name, size in sizes.items()}
        proven = {name: device.allocate(size) for name, size in sizes.items()}
        start = {"in": memory.address + case.offset * element.size} | {name: m.address for name, m in outs.items()}
        us: dict[str, float] = {}
        for made, code in zip(variants, codes, strict=True):
            try:
                kernel = CudaKernel(made, code.result(), device, limits)
            except CompileError as error:
                print(f"{made.name}: {error}", file=sys.stderr)
                continue
            extents = dict(case.extents)
            launches, addresses = kernel.steps(extents), {**kernel.scratch(extents), **start}
            for name, size in sizes.items():
                service.fill(outs[name].address, size, POISON)
            found = kernel.times(clock, launches, extents, addresses, FIRST)
            wrong = 0
            for name, size in sizes.items():
                if not us:
                    service.copy(outs[name].address, proven[name].address, size)
                elif not made.algorithm.roundings(made.spec, made.config, extents, limits):
                    wrong += service.differing_words(outs[name].address, proven[name].address, size)[0]
            if wrong:
                print(f"{made.name} differs from {variants[0].name} in {wrong} words", file=sys.stderr)
                continue
            if min(found) < SLOW_RATIO * min(us.values(), default=float("inf")):
                found += kernel.times(clock, launches, extents, addresses, MORE)
            us[made.name.partition("__")[2]] = round(statistics.median(found), 3)
        for one_out in (*outs.values(), *proven.values()):
            one_out.free()
        yield replace(one, us=dict(sorted(us.items(), key=lambda pair: pair[1])))
    memory.free()


def _span(case: RandomCase) -> int:
    """Bytes from where the first array's memory begins to its end."""
    layout = case.layouts[case.inputs[0].name]
    size = case.inputs[0].dtype.size
    return case.offset * size + max(byte_bounds(layout.shape, layout.strides, size)[1], size)


@dataclass(frozen=True)
class Replayed:
    """A recorded problem as estimates see it: what each variant asks of the device, and its time."""

    case: str
    demands: tuple[Demand, ...]
    names: tuple[str, ...]
    us: tuple[float, ...]
    limits: Limits

    def regret(self, costs: Costs, tried: int = 1) -> float:
        """What the fastest of so many variants, those of the least estimates, takes over the fastest of all."""
        times = [estimated_us(demand, self.limits, costs) for demand in self.demands]
        first = sorted(range(len(times)), key=times.__getitem__)[:tried]
        return min(self.us[place] for place in first) / min(self.us)

    def error(self, costs: Costs) -> float:
        """The mean square of the logarithm of estimate over time, of variants that take less than twice the least."""
        near = [(demand, us) for demand, us in zip(self.demands, self.us, strict=True) if us < 2 * min(self.us)]
        return sum(log(estimated_us(demand, self.limits, costs) / us) ** 2 for demand, us in near) / len(near)


WITHIN = 1.05  # of the fastest: as good, by the noise of times
H200 = replace(DEVICE, memory_bytes_per_second=4.8e12, clock_hz=1.98e9)


def _timed(row: Mapping[str, Any]) -> Timed:
    """A row of this program, or of bench/volumes.py, whose times are of a step."""
    if "volume" not in row:
        return Timed(row["case"], row["problem"], row["us"])
    volume = next(one for one in volumes() if one.name == row["volume"])
    steps = volume.extents[STEPS]
    shape = [volume.extents[axis] for axis in ("planes", "rows", "cols")]
    told = {
        "family": volume.family.name, "spec": volume.spec.to_json(), "shape": shape, "gap": 0, "offset": 0,
        "runtime_parameters": {STEPS: steps},
    }  # fmt: skip
    return Timed(f"{volume.name} steps={steps}", told, {tag: us * steps for tag, us in row["us"].items()})


def replayed(content: dict[str, Any]) -> list[Replayed]:
    """Recorded problems; variants that there are no more are left out."""
    rows, limits = content["rows"], DEVICE if "H100" in content["meta"]["device"] else H200
    found = []
    for one in map(_timed, rows):
        case = one.again()
        names, demands, us = [], [], []
        for tag, time_us in one.us.items():
            try:
                name = case.family.name_of(case.spec)
                made = find_variant(FAMILIES, f"{name}__{tag}", {name: case.spec.to_json()})
            except Exception:  # noqa: BLE001  of an earlier version
                continue
            demand = made.algorithm.demand(made.spec, made.config, case.extents, case.alignment, limits)
            if demand is not None:
                names.append(tag)
                demands.append(demand)
                us.append(time_us)
        if us:
            found.append(Replayed(one.case, tuple(demands), tuple(names), tuple(us), limits))
    return found


def fitted(problems: Sequence[Replayed], passes: int) -> Costs:
    """Constants by coordinate descent: each in turn is raised or lowered as long as that helps."""

    def loss(tried: Costs) -> float:
        return sum(one.error(tried) + 4 * log(one.regret(tried)) for one in problems)

    costs = COSTS
    least = loss(costs)
    for step in (1.3, 1.1)[:passes]:
        for name in (one.name for one in fields(Costs)):
            for factor in (step, 1 / step):
                for _ in range(3):
                    tried = replace(costs, **{name: getattr(costs, name) * factor})
                    if (found := loss(tried)) >= least:
                        break
                    costs, least = tried, found
    return costs


def summary(regrets: Sequence[float]) -> str:
    """Median, worst and mean of what first choices take over the fastest, and the share of those within 5 %."""
    ordered = sorted(regrets)
    within = sum(regret <= WITHIN for regret in ordered) / len(ordered)
    return (
        f"median {statistics.median(ordered):.3f}, 90 % {ordered[int(0.9 * len(ordered))]:.3f}, "
        f"worst {ordered[-1]:.3f}, mean {statistics.mean(ordered):.3f}, {within:.0%} within 5 %"
    )


def main() -> int:
    """Prints a line a problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--json", type=Path, required=True, nargs="+", metavar="FILE", help="recorded times; of --measure one file"
    )
    parser.add_argument("--measure", action="store_true", help="time on a GPU, and write the file")
    parser.add_argument("--family", default="reduction", help="of --measure (%(default)s)")
    parser.add_argument("--most-axes", type=int, default=8, help="of cases that are measured (%(default)s)")
    parser.add_argument("--seed", type=int, default=303, help="of random cases")
    parser.add_argument("--count", type=int, default=40, help="of random cases")
    parser.add_argument("--seconds", type=float, default=80, help="to compile and to time")
    parser.add_argument(
        "--potholes", type=Path, help="a file of bench.potholes, or of this program, whose cases come first"
    )
    parser.add_argument("--below", type=float, help="of these only those of a lower ratio")
    parser.add_argument("--of-each", type=int, default=0, help="algorithm, time so many; 0: all (%(default)s)")
    parser.add_argument("--others", type=int, default=0, help="of each algorithm, that dispatch would not weigh")
    parser.add_argument("--fit", action="store_true", help="fit the constants, leaving problems out each time")
    parser.add_argument("--parts", type=int, help="of the problems, each left out once by --fit; one for each problem")
    options = parser.parse_args()
    if options.measure and len(options.json) > 1:
        parser.error("--measure writes one file: give --json one")
    return _measure(options) if options.measure else _replay(options)


def _measure(options: argparse.Namespace) -> int:
    deadline = time.monotonic() + options.seconds
    need_gpu("python -m bench.estimates")
    from gen.gpu.timing import Instruments

    wanted = [
        one
        for one in problems(options.family, options.seed, options.count, options.potholes, options.below)
        if len(one.problem["shape"]) <= options.most_axes and _span(one.again()) <= MOST_BYTES
    ]
    rows: list[Timed] = []
    with CompileFarm(Nvrtc(None)) as farm, alone(0, None, "bench/estimates.py"):
        instruments = Instruments.open(0, Nvrtc(None))
        for one in measure(instruments, wanted, farm, deadline, options.of_each, options.others):
            rows.append(one)
            best = "  ".join(f"{tag} {us:.2f}" for tag, us in list(one.us.items())[:4])
            print(f"{one.case}: {best}", flush=True)
            write_results(options.json[0], "python -m bench.estimates", instruments.device, rows=rows)
    return 0


def _replay(options: argparse.Namespace) -> int:
    known = [one for file in options.json for one in replayed(json.loads(file.read_text(encoding="utf-8")))]
    for one in sorted(known, key=lambda one: -one.regret(COSTS)):
        times = [estimated_us(demand, one.limits, COSTS) for demand in one.demands]
        chosen, best = times.index(min(times)), one.us.index(min(one.us))
        print(f"{one.regret(COSTS):.3f} {one.case}: {one.names[chosen]} {one.us[chosen]:.2f} (estimate "
              f"{times[chosen]:.2f}), fastest {one.names[best]} {one.us[best]:.2f} ({times[best]:.2f})")  # fmt: skip
    print(f"{len(known)} problems, {sum(len(one.us) for one in known)} times, constants as they are")
    _print_regrets([(one, COSTS) for one in known])
    _print_ratios(known)
    if options.fit:
        print(fitted(known, passes=2))
        parts = options.parts or len(known)
        left_out = []
        for part in range(parts):
            costs = fitted([one for place, one in enumerate(known) if place % parts != part], passes=1)
            left_out += [(one, costs) for one in known[part::parts]]
        print(f"constants fitted to the other problems, in {parts} parts")
        _print_regrets(left_out)
    return 0


def _print_ratios(known: Sequence[Replayed]) -> None:
    """Estimates over times, by algorithm: the median, and between which eight of ten lie."""
    ratios: dict[str, list[float]] = {}
    for one in known:
        for name, demand, us in zip(one.names, one.demands, one.us, strict=True):
            ratios.setdefault(name.partition("_")[0], []).append(estimated_us(demand, one.limits, COSTS) / us)
    for algorithm, found in sorted(ratios.items()):
        found.sort()
        low, high = found[len(found) // 10], found[-1 - len(found) // 10]
        print(f"{algorithm}: {len(found)} estimates over times: median {statistics.median(found):.2f}, "
              f"eight of ten {low:.2f} to {high:.2f}")  # fmt: skip


def _print_regrets(found: Sequence[tuple[Replayed, Costs]]) -> None:
    for words, tried in (("first choice", 1), (f"best of {TRIED}", TRIED)):
        print(f"{words} over the fastest:", summary([one.regret(costs, tried) for one, costs in found]))


if __name__ == "__main__":
    sys.exit(ended(main))
