"""What dispatch gives sizes that a class's winner is not made for: `python bench/dispatch.py [--json FILE]`, on a GPU.

Each case names a variant that wins, or may win, at the size that stands for a shape class of the transposes, and
another size or address. There it is timed from cold caches, the fastest in turns, beside what `gen.load` chooses in its
place and beside all else that is often fast in the class: the first ratio says what the other choice gains, the second
what it loses against the fastest of them. Every result is compared with NumPy's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.program import ended, need_gpu, write_results
from gen.cli.gpu import alone, device_of, farm_of
from gen.errors import CompileError
from gen.families.base import WIDEST
from gen.families.extents import extents_of
from gen.families.names import heuristic_variants
from gen.families.transpose import Transpose, TransposeSpec, permutation
from gen.paths import output_home
from gen.runtime.dispatch import Chooser
from gen.store.trials import Problem, Trial
from gen.store.winners import Winner
from gen.tune.device import Entrant
from gen.tune.one_problem import base_of
from gen.tune.pipeline import Sources, why_unable
from gen.tune.race import Finals, finals
from gen.tune.search import known

if TYPE_CHECKING:
    from gen.tune.device import TuningDevice

FAMILY = Transpose()
SECONDS = 8.0  # of turns, at most
BY_VECTORS = "vector_tile_v16_x16_g16_swz_ocol_ldg"


@dataclass(frozen=True)
class Case:
    """A problem, and what wins where its class is tuned; `alignment` is of the addresses of both arrays."""

    spec: TransposeSpec
    shape: tuple[int, ...]
    winner: str
    alignment: int = WIDEST

    @property
    def problem(self) -> Problem:
        """It as a tuner sees it."""
        return Problem(FAMILY, self.spec, extents_of(FAMILY, self.spec, self.shape), self.alignment)


@dataclass(frozen=True)
class Row:
    """What a case came to: `us` has the median of each variant that takes it, fastest first."""

    case: str
    winner: str
    chosen: str
    us: dict[str, float]

    def __str__(self) -> str:
        winner, chosen, (fastest, least) = self.us[self.winner], self.us[self.chosen], next(iter(self.us.items()))
        times = f"{self.winner} {winner:.2f}, {self.chosen} {chosen:.2f}, {fastest} {least:.2f}"
        return f"{self.case}: {times}: {winner / chosen:.2f}x, {least / chosen:.2f} of {len(self.us)}"


def cases() -> Iterator[Case]:
    """Other numbers of columns and rows, addresses between vectors, matrices and runs of no whole vectors."""
    few = "vector_tile_v16_x8_g16_swz_ocol_ldg"
    for cols in (3, 4, 5, 8, 12, 17, 24, 33):
        yield Case(permutation((1, 0), "f4"), (30_000_000 // cols // 4 * 4, cols), few)
    for rows in (3, 5, 8, 24):
        yield Case(permutation((1, 0), "f4"), (rows, 30_000_000 // rows // 4 * 4), few.replace("ocol", "orow"))
    for cols in (3, 5):
        yield Case(permutation((1, 0), "f2"), (30_000_000 // cols // 8 * 8, cols), few)
    for cols, winner in ((3, "interleave_cols_n3_tpb128_stel"), (5, few)):
        yield Case(permutation((1, 0), "f4"), (30_000_000 // cols // 4 * 4 + 1, cols), winner)
    for dtype, size in (("uint8", 1), ("f2", 2), ("f4", 4), ("f8", 8)):
        yield Case(permutation((1, 0), dtype), (8192, 8192), BY_VECTORS, alignment=size)
        yield Case(permutation((1, 0), dtype), (1024, 1024), BY_VECTORS, alignment=size)
    yield Case(permutation((1, 0), "f4", in_place=True), (8192, 8192), "swap_tile_v16_x16_s2", alignment=4)
    yield Case(permutation((0, 2, 1), "f4"), (65536, 16, 16), "squares_tpb128_u1_stel", alignment=4)
    yield Case(permutation((0, 2, 1, 3), "f2"), (32, 128, 16, 60), "flat_copy_tpb256_u2")
    yield Case(permutation((0, 2, 1, 3), "f2"), (32, 128, 16, 64), "flat_copy_tpb256_u2", alignment=2)


def time_variants(
    problem: Problem, names: Iterable[str], device: TuningDevice, sources: Sources, deadline: float | None = None
) -> tuple[tuple[Trial, ...], Finals]:
    """Tries base and the variants of these names, and times those that are right in the same rounds.

    Args:
        problem: on which they are timed.
        names: those that are no variants of its spec are passed over.
        device: where it runs.
        sources: compiles.
        deadline: of `time.monotonic()`; there are no further rounds then.

    Raises:
        CompileError: base does not compile.
        RunError: base is wrong.
    """
    base = base_of(problem, device)
    wanted = {made.name: made for made in (base, *known(problem, names))}
    session = device.open(problem, Entrant(base, sources.begin(base).future.result()))
    trials: dict[str, Trial] = {}

    def note(trial: Trial) -> None:
        trials[trial.variant.name] = trial

    try:
        session.ready().result()
        right = []
        for made, code in sources.codes(wanted.values(), deadline):
            reason = why_unable(made, problem, device.limits)
            if reason is not None:
                note(Trial(made, "infeasible", reason=reason))
            elif isinstance(code, CompileError):
                note(Trial(made, "compile_failed", reason=code.log))
            else:
                right.append(Entrant(made, code))
                note(session.submit(right[-1], float("inf")).result())
        right = [one for one in right if trials[one.name].status == "ok"]
        _, found = finals(session, right, note, deadline)
    finally:
        session.close()
    return tuple(trials.values()), found


def measure(case: Case, device: TuningDevice, sources: Sources) -> Row:
    """Times the winner, what is chosen, and all that is often fast, in turns."""
    problem = case.problem
    name = f"{problem.spec_name}__{case.winner}"
    at_home = FAMILY.shape_class(case.spec, problem.extents)  # where addresses do not matter
    winner = Winner(device.name, problem.spec_name, at_home, name, {})
    chosen = Chooser(FAMILY, case.spec, [winner], device.name, device.limits).choose(problem.extents, case.alignment)
    heuristic_configs = [
        made.name for made in heuristic_variants(FAMILY, case.spec, problem.shape_class, device.limits)
    ]
    trials, found = time_variants(
        problem, [name, chosen.variant.name, *heuristic_configs], device, sources, time.monotonic() + SECONDS
    )  # fmt: skip
    wrong = [trial for trial in trials if trial.status not in ("ok", "infeasible")]
    if wrong:
        raise SystemExit(f"{wrong[0].variant.name}: {wrong[0].status}: {wrong[0].reason}")
    quick = {trial.variant.name: statistics.median(trial.times_us) for trial in trials if trial.status == "ok"}
    us = quick | {made: statistics.median(times) for made, times in found.times_us.items()}
    in_order = {tag(made): round(us[made], 3) for made in sorted(us, key=lambda made: us[made])}
    text = f"{case.spec.label} {'x'.join(map(str, case.shape))}"
    text += f" at {case.alignment} bytes" if case.alignment < WIDEST else ""
    return Row(text, tag(name), tag(chosen.variant.name), in_order)


def tag(name: str) -> str:
    """What of a variant's name says how it works."""
    return name.partition("__")[2]


def main() -> int:
    """Prints a line a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only cases whose line holds this")
    parser.add_argument("--json", type=Path, help="also write the times to this file")
    options = parser.parse_args()
    need_gpu("python bench/dispatch.py")
    home = output_home(None)
    rows: list[Row] = []
    with alone(0, None, "bench/dispatch.py"), farm_of("nvrtc", home) as farm, device_of(0, "nvrtc", home) as device:
        sources = Sources(farm, device.limits.arch)
        for case in cases():
            if options.only not in f"{case.spec.label} {'x'.join(map(str, case.shape))}":
                continue
            rows.append(measure(case, device, sources))
            print(rows[-1], flush=True)
            write_results(options.json, "python bench/dispatch.py", device, rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
