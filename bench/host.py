"""How fast gen itself is on a machine without a GPU: `python bench/host.py [--json FILE]`.

Six figures, each with the goal it is held against. Caches are fresh folders, so that nothing is read that an earlier
run left behind.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from bench.program import ended, write_results
from bench.random_cases import random_cases
from gen.emit.folder import all_of_catalogue
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Limits, Variant
from gen.families.names import find_variant
from gen.proof.cases import cases_of
from gen.proof.host import HostRunner
from gen.proof.prover import prove
from gen.runtime.dispatch import Chooser

ROOT = Path(__file__).resolve().parent.parent
TILED = "transpose_10_b32__tiled_t32_r8_p1_u1"


@dataclass(frozen=True)
class Figure:
    """One measurement; `goal` is in the same unit, and `at_least` says on which side of it is good."""

    name: str
    value: float
    unit: str
    goal: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.value >= self.goal if self.at_least else self.value <= self.goal


def seconds(work: Callable[[], object], repeats: int = 1) -> float:
    """The median time of some work."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def command(*words: str) -> Callable[[], object]:
    """A command run in a process of its own; it must succeed."""
    return lambda: subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def import_time() -> float:
    """Seconds that `import gen` adds to an empty Python."""
    empty = seconds(command(sys.executable, "-c", "pass"), 5)
    return seconds(command(sys.executable, "-c", "import gen"), 5) - empty


def every(variants: Sequence[Variant], count: int) -> list[Variant]:
    """That many of the variants, spread evenly over all of them."""
    return [variants[place * len(variants) // count] for place in range(count)]


def nvrtc_rate(variants: Sequence[Variant]) -> float:
    """Variants compiled a second in processes, as tuning has it: on all cores, nothing cached."""
    from gen.toolchain.farm import CompileFarm
    from gen.toolchain.nvrtc import Nvrtc

    texts = [(variant.name, render(variant)) for variant in variants]
    with CompileFarm(Nvrtc(None)) as farm:
        list(farm.compile_many(texts[: farm.width], "sm_90"))  # until all processes have begun
        taken = seconds(lambda: list(farm.compile_many(texts, "sm_90")))
    return len(texts) / taken


def transpose_time(cache: Path) -> float:
    """Seconds of one 512 x 512 tiled transpose under all checks, built beforehand."""
    (kernel,) = HostRunner(Limits.of("sm_90"), cache=cache, text=render).load([find_variant(FAMILIES, TILED, {})])
    image = np.random.default_rng(1).standard_normal((512, 512)).astype(np.float32).view(np.uint32)
    out = np.zeros_like(image)
    extents = {"rows": 512, "cols": 512, "in_pitch": 512, "out_pitch": 512, "steps": 1}
    taken = seconds(lambda: kernel.run(extents, {"in": image, "out": out}), 9)
    assert np.array_equal(out, image.T)
    return taken


def proof_time(cache: Path, variants: Sequence[Variant]) -> float:
    """Seconds to build these variants with g++ and prove each on 20 small cases."""
    runner = HostRunner(Limits.of("sm_90"), cache=cache, text=render)
    by_spec: dict[tuple[object, object], list[Variant]] = {}
    for variant in variants:
        by_spec.setdefault((variant.family, variant.spec), []).append(variant)

    def work() -> None:
        for group in by_spec.values():
            cases = list(cases_of(group[0].family, group[0].spec))[:20]
            failed = [proof for proof in prove(runner, group, cases) if proof.failure]
            assert not failed, failed

    return seconds(work)


def choice_time(seed: int, count: int, repeats: int) -> float:
    """Milliseconds of an untuned choice at new sizes, the mean of random cases; variants of a spec are known then."""
    taken = []
    for case in random_cases(seed, count):
        chooser = Chooser(case.family, case.spec, (), "", Limits.of("sm_90"))
        choose = partial(chooser.choose, case.extents, case.alignment)
        choose()
        taken.append(min(seconds(choose) for _ in range(repeats)))
    return 1e3 * statistics.mean(taken)


def figures() -> list[Figure]:
    """All measurements."""
    variants = tuple(made for made in all_of_catalogue(FAMILIES) if made.algorithm.not_on_host is None)
    gen = [sys.executable, "-m", "gen", "generate"]
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        command(*gen)()
        return [
            Figure("import gen", import_time(), "s", 0.3),
            Figure("generate with nothing to do", seconds(command(*gen), 5), "s", 1.0),
            Figure("untuned choice at new sizes", choice_time(1, 120, 5), "ms", 0.2),
            Figure("NVRTC", nvrtc_rate(every(variants, 100)), "variants/s", 25, at_least=True),
            Figure("512 x 512 tiled transpose on the CPU", transpose_time(fresh / "a"), "s", 0.1),
            Figure("100 variants on 20 cases, g++ included", proof_time(fresh / "b", every(variants, 100)), "s", 20),
        ]


def main() -> int:
    """Prints the table; status 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    found = figures()
    for figure in found:
        side = "at least" if figure.at_least else "at most"
        verdict = "met" if figure.met else "MISSED"
        print(f"{figure.name:42} {figure.value:8.3f} {figure.unit:10} {side} {figure.goal:g}: {verdict}")
    machine = {"cpus": os.cpu_count(), "python": platform.python_version()}
    write_results(options.json, "python bench/host.py", None, machine, figures=found)
    return 0 if all(figure.met for figure in found) else 1


if __name__ == "__main__":
    sys.exit(ended(main))
