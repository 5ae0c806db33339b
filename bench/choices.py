"""Whether exported libraries choose, plan and refuse as `gen.load` does: `python bench/choices.py [--json FILE]`.

Of every family some specs are exported for an architecture and a device, and built by g++. Random problems are given to
the library and to gen: both must name the same variant and the same launches, with grid, block and arguments. Random
wrong arrays must be refused in the same words. No GPU is needed. Counts of what differs are printed, by spec.

Of a shape class with many candidates a library holds those that one of 4,000 problems gets. A problem that gets another
is counted as left out: the library launches the best of those that it holds.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import gen
from bench.program import ended, write_results
from gen.export.program import Program, Target, leaves_rank_open, problems, program_of, ranks_of, targets_of
from gen.families import FAMILIES
from gen.paths import output_home
from gen.runtime.dispatch import family_and_spec, winners_of
from tests.exported import built, by_gen, by_library, faulty, refused_by_gen, refused_by_library

LIBRARY = "demo"
PROBLEMS = 10_000
SHOWN = 3  # of what differs, by spec
DEVICE = "H200"  # whose winners are asked for beside the architecture


@dataclass(frozen=True)
class Row:
    """What came out for a spec.

    Attributes:
        variants: that gen chose.
        chosen: problems, each on one device.
        left_out: those whose variant the library does not hold.
        others: those where the library launches something else; there should be none.
        refused: wrong arrays that both refuse.
        worded: those about which they differ; there should be none.
        seconds: of all of it, g++ included.
    """

    spec: str
    variants: int
    chosen: int
    left_out: int
    others: int
    refused: int
    worded: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.spec}: {self.chosen} problems, {self.variants} variants, {self.left_out} left out, {self.others} "
            f"chosen otherwise; {self.refused} refusals, {self.worded} worded otherwise; {self.seconds:.0f} s"
        )


def specs() -> Iterator[Any]:
    """Of every family: of one, two and three axes, of several arrays, of elements of several sizes."""
    yield "reduction_sum_f32"
    yield gen.reduction("sum", "f32", axis=-1)
    yield gen.reduction("argmax", "float16", axis=0)
    yield gen.reduction("var", "f32", axis=(0, 2))
    yield from (
        "transpose_10_b32",
        "transpose_10_b8",
        "transpose_021_b32",
        "transpose_0231_b16",
        "transpose_10_f32_to_f16",
    )
    yield "stencil_heat_de794a2b_f32"
    yield gen.stencil(gen.star(1, 3), boundary="wrap")
    yield gen.stencil(gen.star(2, 1), dtype="float64")
    yield gen.stencil(gen.star(3, 1), boundary="mirror")
    yield "system_wave_7d72a419_f32"
    u, v = gen.fields("u v", ndim=3)
    yield gen.system({u: u + 0.125 * u.laplace(order=4) - u * v, v: u * v}, boundary=["wrap", "mirror", "frozen"])
    yield "probe_read11_f32"


def compared(program: Program, library: ModuleType, count: int, winners: Any) -> Row:
    """Both on so many problems, by turns on every target, and on as many wrong arrays."""
    start, family, spec, ranks = time.monotonic(), program.family, program.spec, ranks_of(program.family, program.spec)
    counts: Counter[str] = Counter()
    names: set[str] = set()
    for number, target in enumerate(program.targets):
        chooser = target.chooser(family, spec, winners)
        held = {program.entries[place].variant.name for place in program.codes[number]}
        share = -(-count // len(program.targets))
        for problem in _many(program, share, 11 + number):
            wanted = by_gen(family, spec, chooser, target, problem)
            found = by_library(library, program.name, spec, target, problem)
            names.add(wanted.variant)
            counts["chosen"] += 1
            if found != wanted and wanted.variant not in held:
                counts["left_out"] += 1
            elif found != wanted:
                counts["others"] += 1
                if counts["others"] > SHOWN:
                    continue
                print(f"  {target.device or target.arch}: {wanted} in gen, {found} in the library, for {problem}")
    draw = Random(17)
    for problem in _many(program, count, 13):
        layouts, addresses = faulty(draw, spec, problem)
        if leaves_rank_open(spec) and len(next(iter(layouts.values())).shape) not in ranks:
            continue  # libraries take fewer axes than gen
        words = refused_by_gen(family, spec, layouts, addresses, problem.parameters)
        told = refused_by_library(library, program.name, spec, layouts, addresses, problem.parameters)
        counts["refused"] += words != ""
        if words != told:
            counts["worded"] += 1
            if counts["worded"] > SHOWN:
                continue
            print(f"  {words!r} in gen, {told!r} in the library, for {layouts} at {addresses}")
    return Row(
        program.name, len(names), counts["chosen"], counts["left_out"], counts["others"], counts["refused"],
        counts["worded"], round(time.monotonic() - start, 1),
    )  # fmt: skip


def _many(program: Program, count: int, seed: int) -> Iterator[Any]:
    """So many problems; some that are drawn are none."""
    ranks = ranks_of(program.family, program.spec)
    for problem in problems(program.family, program.spec, ranks, 8 * count, seed):
        if count == 0:
            return
        count -= 1
        yield problem


def targets(winners: Any) -> tuple[Target, ...]:
    """An architecture, and a device of it for which something was tuned."""
    return tuple(one for one in targets_of(["sm_90"], winners) if not one.device or DEVICE in one.device)


def main() -> int:
    """Prints a line a spec; status 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--only", default="", help="only specs whose name holds this")
    parser.add_argument("--problems", type=int, default=PROBLEMS, help="of all specs together")
    options = parser.parse_args()
    logging.getLogger("gen").setLevel(logging.ERROR)
    winners = winners_of(output_home())
    chosen = [family_and_spec(FAMILIES, one, output_home()) for one in specs()]
    chosen = [(family, spec) for family, spec in chosen if options.only in family.name_of(spec)]
    rows = []
    for family, spec in chosen:
        start = time.monotonic()
        program = program_of(family, spec, targets(winners), winners)
        with tempfile.TemporaryDirectory(prefix="gen-choices-") as folder:
            row = compared(
                program, built(Path(folder), LIBRARY, [program]), -(-options.problems // len(chosen)), winners
            )
        rows.append(replace(row, seconds=round(time.monotonic() - start, 1)))
        print(rows[-1], flush=True)
        write_results(options.json, "python bench/choices.py", None, {"gen": gen.__version__}, rows=rows)
    total = [sum(getattr(row, name) for row in rows) for name in ("chosen", "others", "refused", "worded")]
    print("{} problems, {} chosen otherwise; {} refusals, {} worded otherwise".format(*total))
    return int(total[1] + total[3] > 0)


if __name__ == "__main__":
    sys.exit(ended(main))
