"""The same space tuned by gen and by Kernel Tuner, in one run: `python bench/peer_tuner.py [--json FILE]`, on a GPU.

The space has 162 points: padded tiles of a transpose of 8192 x 8192 elements of 4 bytes. Kernel Tuner gets the text
that gen writes for each point, its PyCUDA back end, and its own defaults: 7 warm launches a point. It is run without
verification, and with it on 6 points: it compares each result on the host with an answer that it is given.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from bench.program import ended, need_gpu, write_results
from gen.cli.gpu import alone
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Limits, Variant
from gen.families.names import find_variant
from gen.families.plans import steps
from gen.store.trials import Problem, Trial, Trials
from gen.toolchain.farm import CompileFarm
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.one_problem import Options, tune
from gen.tune.search import Space
from gen.tune.targets import problems

PARAMETERS: dict[str, list[Any]] = {
    "block_size_x": [16, 32], "block_size_y": [4, 8, 16], "padding": [0, 1, 2],
    "rest": ["u1", "u2", "u4", "u1_ldg", "u1_ldcs", "u1_stcs", "u1_ocol", "u1_ogrouped", "u1_odiagonal"],
}  # fmt: skip
PART: dict[str, list[Any]] = {"padding": [1], "rest": ["u1"]}  # where it verifies, a second a point


def made(values: Mapping[str, Any]) -> Variant:
    """The variant of a point."""
    tag = f"t{values['block_size_x']}_r{values['block_size_y']}_p{values['padding']}_{values['rest']}"
    return find_variant(FAMILIES, f"transpose_10_b32__tiled_{tag}", {})


def points() -> list[dict[str, Any]]:
    """All of the space."""
    found: list[dict[str, Any]] = [{}]
    for name, values in PARAMETERS.items():
        found = [{**one, name: value} for one in found for value in values]
    return found


class Points:
    """Gives the points in order; implements `Search`."""

    def __init__(self, _: Space) -> None:
        self._left = [made(point) for point in points()]

    def ask(self, count: int) -> list[Variant]:
        """The next."""
        given, self._left = self._left[:count], self._left[count:]
        return given

    def tell(self, trial: Trial) -> None:
        """Changes nothing."""

    @property
    def left(self) -> int:
        """Not given."""
        return len(self._left)


def main() -> int:
    """Prints a line for each tuner."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    gpu = need_gpu("python bench/peer_tuner.py")
    (problem,) = problems(FAMILIES, "transpose_10_b32", {}, ("8192x8192",))
    with alone(0, None, "bench/peer_tuner.py"):
        rows = [ours(problem), *theirs(problem)]
    for row in rows:
        print(f"{row['tuner']:40} {row['points']:4d} points in {row['seconds']:6.1f} s: {row['rate']:6.2f} a second; "
              f"best {row['best_us']:.1f} us, {row['winner']}")  # fmt: skip
    versions = {"kernel_tuner": metadata.version("kernel_tuner")}
    write_results(options.json, "python bench/peer_tuner.py", gpu, versions, rows=rows)
    return 0


def ours(problem: Problem) -> dict[str, Any]:
    """All of it by gen, from a bare folder: processes started, the device opened and calibrated, finals held."""
    from gen.tune.device import IsolatedDevice
    from gen.tune.gpu_session import GpuFactory

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        start = time.monotonic()
        compiler = Nvrtc(home / ".cache")
        trials = Trials(home)
        with CompileFarm(compiler) as farm, IsolatedDevice(GpuFactory(0, compiler, home)) as device:
            opened = time.monotonic() - start
            outcome = tune(problem, device, farm, trials, options=Options(Points))
        trials.close()
        seconds = time.monotonic() - start
    of_space = {made(point).name for point in points()}  # base is beside it
    right = [trial for trial in outcome.trials if trial.status == "ok" and trial.variant.name in of_space]
    best = min(right, key=lambda trial: trial.median_us)
    return {"tuner": "gen, everything verified", "points": len(right), "seconds": seconds, "rate": len(right) / seconds,
            "until_ready": opened, "best_us": best.median_us, "winner": best.variant.name}  # fmt: skip


def theirs(problem: Problem) -> list[dict[str, Any]]:
    """The same by Kernel Tuner."""
    import kernel_tuner

    extents, limits = problem.extents, Limits.of("sm_90")
    rows, cols = extents["rows"], extents["cols"]
    source = np.random.default_rng(1).integers(0, 2**32, (rows, cols), np.uint32)
    target = np.zeros((cols, rows), np.uint32)
    numbers = [np.int64(extents[name]) for name in ("rows", "cols", "in_pitch", "out_pitch")]

    def text(values: Mapping[str, Any]) -> str:
        """What gen writes, with the numbers of tiles computed in the kernel: here arguments cannot change."""
        variant = made(values)
        (step,) = steps(variant.plan, {**extents, **limits.sizes()})
        content = render(variant).replace(variant.name, "transpose")
        given = [argument[1] for argument in step.arguments if not isinstance(argument, str)][len(numbers) :]
        names = re.findall(r",\s*unsigned (\w+)(?=[,)])", content)[-len(given) :]
        assert len(names) == len(given)
        for name, value in zip(names, given, strict=True):
            content = re.sub(rf",\s*unsigned {name}(?=[,)])", "", content, count=1)
            content = re.sub(
                r"(\btranspose\([^)]*\) \{)", rf"\1\n  constexpr unsigned {name} = {value};", content, count=1
            )
        return content

    def grid(values: Mapping[str, Any]) -> tuple[int, int, int]:
        (step,) = steps(made(values).plan, {**extents, **limits.sizes()})
        return step.grid

    def run(name: str, parameters: dict[str, list[Any]], answer: list[Any] | None) -> dict[str, Any]:
        start = time.monotonic()
        results, _ = kernel_tuner.tune_kernel(
            "transpose", text, grid, [source, target, *numbers], dict(parameters),
            grid_div_x=[], grid_div_y=[], grid_div_z=[], lang="CUDA", verbose=False, quiet=True, answer=answer,
        )  # fmt: skip
        seconds = time.monotonic() - start
        times = [one for one in results if isinstance(one["time"], float)]
        best = min(times, key=lambda one: float(one["time"]))
        return {"tuner": name, "points": len(results), "seconds": seconds, "rate": len(results) / seconds,
                "best_us": 1000 * float(best["time"]), "winner": made(best).name}  # fmt: skip

    version = metadata.version("kernel_tuner")
    answer = [None, source.T.copy(), None, None, None, None]
    return [
        run(f"Kernel Tuner {version}, nothing verified", PARAMETERS, None),
        run(f"Kernel Tuner {version}, verified", {**PARAMETERS, **PART}, answer),
    ]


if __name__ == "__main__":
    sys.exit(ended(main))
