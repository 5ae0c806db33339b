"""gen's kernels in programs of others, on a GPU: `python bench/frameworks.py [--json FILE] [--part NAME]`.

Five parts, each in a process of its own, side by side, since nothing is timed. `arrays`: a sum, a permutation and a
stencil of arrays of every library that is installed, whose results must be of the same library and hold what NumPy
computes. `torch` and `jax`: how often tests/gpu has torch and JAX check operators and gradients, and what they say.
`suites`: tests of NumPy and SciPy, and what stands in for array-api-tests, with gen's functions in place of theirs.
`example`: the program of C++ that `gen export` writes, found by CMake's find_package, built and run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gen
from bench.program import ended, need_gpu, write_results
from gen.errors import MissingToolError
from gen.families.base import Array

ROOT = Path(__file__).resolve().parent.parent
SHAPE = (300, 517)
DTYPES = ("float16", "float32", "float64", "int32")
WEIGHTS = [[0.0, 1.0, 0.0], [2.0, -3.0, 0.5], [0.0, 1.0, 0.25]]
ELEMENTS = 1_000_003  # of the example
CHECKS = {"torch": ("torch.library.opcheck", "torch.autograd.gradcheck", "torch.autograd.gradgradcheck"),
          "jax": ("jax.test_util.check_grads",)}  # fmt: skip
TESTS = "gradient or nothing_wrong or permutations"  # those that call them


@dataclass(frozen=True)
class Library:
    """How arrays of a library are made of NumPy's and become NumPy's, and whether they can be written."""

    name: str
    kind: type
    make: Callable[[Array], Any]
    back: Callable[[Any], Array]
    written: bool = True


@dataclass(frozen=True)
class Row:
    """What became of the calls with arrays of a library: how many differ from NumPy's, or are of another kind."""

    library: str
    version: str
    calls: int
    wrong: int


def libraries() -> Iterator[Library]:
    """Those that are installed and see the GPU."""
    yield Library("numpy", np.ndarray, lambda x: x, lambda x: x)
    with contextlib.suppress(ImportError):
        torch = importlib.import_module("torch")
        yield Library("torch", torch.Tensor, lambda x: torch.from_numpy(x).cuda(), lambda x: x.cpu().numpy())
    with contextlib.suppress(ImportError):
        cupy = importlib.import_module("cupy")
        yield Library("cupy", cupy.ndarray, cupy.asarray, cupy.asnumpy)
    with contextlib.suppress(ImportError):
        jax = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        if jax.default_backend() == "gpu":
            yield Library("jax", jax.Array, jax.numpy.asarray, np.asarray, written=False)
    with contextlib.suppress(ImportError):
        cuda = importlib.import_module("numba.cuda")
        of_numba = importlib.import_module("numba.cuda.cudadrv.devicearray").DeviceNDArray
        yield Library("numba", of_numba, cuda.to_device, lambda x: x.copy_to_host())
    with contextlib.suppress(ImportError, MissingToolError):
        importlib.import_module("gen.gpu.pycuda")  # which loads the driver for a PyCUDA that is not linked with it
        importlib.import_module("pycuda.autoprimaryctx")
        arrays = importlib.import_module("pycuda.gpuarray")
        yield Library("pycuda", arrays.GPUArray, arrays.to_gpu, lambda x: x.get())


def problems(dtype: str) -> Iterator[tuple[Any, Array, Array]]:
    """Specs, an input of small whole numbers, and what NumPy computes: every intermediate result is exact."""
    content = np.random.default_rng(7).integers(-2, 3, SHAPE).astype(dtype)
    kind = content.dtype.kind
    total = content.sum(1, dtype="int64" if kind == "i" else None)
    yield gen.reduction("sum", dtype, axis=1), content, total
    yield gen.permutation((1, 0), dtype), content, np.ascontiguousarray(content.T)
    if kind == "f":
        wanted = sum(
            np.roll(content, (1 - row, 1 - column), (0, 1)) * np.dtype(dtype).type(weight)
            for row, weights in enumerate(WEIGHTS)
            for column, weight in enumerate(weights)
        )
        yield gen.stencil(WEIGHTS, boundary="wrap", dtype=dtype), content, np.asarray(wanted)


def of_arrays() -> dict[str, Any]:
    """A row a library."""
    rows = []
    for library in libraries():
        calls, wrong = 0, 0
        for dtype in DTYPES:
            for spec, content, wanted in problems(dtype):
                kernel, there = gen.load(spec), library.make(content)
                results = [kernel(there), kernel(there)]
                if library.written:
                    out = library.make(np.zeros_like(wanted))
                    results.append(kernel(there, out=out))
                    wrong += results[-1] is not out
                for one in results:
                    calls += 1
                    found = library.back(one) if isinstance(one, library.kind) else None
                    wrong += found is None or found.dtype != wanted.dtype or not np.array_equal(found, wanted)
        version = getattr(sys.modules[library.name], "__version__", "")
        rows.append(vars(Row(library.name, version or sys.modules[library.name].VERSION_TEXT, calls, wrong)))
    return {"rows": rows, "wrong": sum(row["wrong"] for row in rows)}


class Outcomes:
    """Counts how the tests end, for pytest."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Of each test its call, and whatever else did not pass."""
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1


def of_checks(name: str) -> dict[str, Any]:
    """How often tests of a framework have it check what gen gives it, and how they end."""
    pytest = importlib.import_module("pytest")
    counts: Counter[str] = Counter()

    def counted(known: str, usual: Callable[..., Any]) -> Callable[..., Any]:
        def check(*arguments: Any, **named: Any) -> Any:
            found = usual(*arguments, **named)
            counts[known] += 1  # what is wrong is raised
            return found

        return check

    for known in CHECKS[name]:
        module, _, function = known.rpartition(".")
        owner = importlib.import_module(module)
        setattr(owner, function, counted(known, getattr(owner, function)))
    outcomes = Outcomes()
    with contextlib.redirect_stdout(sys.stderr):
        pytest.main(["-q", "-p", "no:cacheprovider", str(ROOT / f"tests/gpu/test_{name}.py"), "-k", TESTS], [outcomes])
    version = importlib.import_module(name).__version__
    wrong = sum(outcomes.counts.values()) - outcomes.counts["passed"]
    return {"version": version, "checks": dict(counts), "tests": dict(outcomes.counts), "wrong": wrong}


def of_suites() -> dict[str, Any]:
    """How many calls of each suite gen computed on the GPU, and how many it refused for reasons that are listed."""
    suites = importlib.import_module("tests.host.test_suites")
    runs = {name: partial(suites.run_suite, suite) for name, suite in suites.SUITES.items()}
    runs["array_api_tests, stood in for"] = partial(suites.run_array_api, suites.STAND_IN)
    found = {}
    for name, run in runs.items():
        with tempfile.TemporaryDirectory(prefix="gen-suites-") as folder:
            counts = run(Path(folder), GEN_DEVICE="0")
        refused = sum(one["calls"] for one in counts["refused"])
        found[name] = {"tests": counts["collected"], "computed": sum(counts["ours"].values()), "refused": refused}
    return {"calls": found, "wrong": 0}


def of_example() -> dict[str, Any]:
    """What the example of an exported sum prints, and what NumPy says of its sum."""
    gpu = need_gpu("python bench/frameworks.py")
    with tempfile.TemporaryDirectory(prefix="gen-example-") as folder:
        steps = (
            f"gen export reduction_sum_f32 -o sums --arch {gpu.limits.arch} --shape {ELEMENTS}",
            "cmake -B build sums", "cmake --build build", "cmake --install build --prefix installed",
            "cmake -B example -DCMAKE_PREFIX_PATH=$PWD/installed sums/example", "cmake --build example",
        )  # fmt: skip
        for step in steps:
            own = step.replace("gen ", f"{sys.executable} -m gen ", 1) if step.startswith("gen ") else step
            done = subprocess.run(own, shell=True, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return {"commands": [*steps], "failed": step, "said": done.stdout + done.stderr, "wrong": 1}
        last = f"example/example {ELEMENTS}"
        done = subprocess.run(last, shell=True, cwd=folder, capture_output=True, text=True, check=False)
    wanted = float((np.arange(ELEMENTS) % 7).sum())
    told = [line.removeprefix("sum: ") for line in done.stdout.splitlines() if line.startswith("sum: ")]
    right = done.returncode == 0 and len(told) == 1 and abs(float(told[0]) - wanted) <= 1e-6 * wanted
    output = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    return {"commands": [*steps, last], "output": output, "numpy": wanted, "wrong": int(not right)}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": of_arrays, "example": of_example, "jax": lambda: of_checks("jax"), "torch": lambda: of_checks("torch"),
    "suites": of_suites,
}  # fmt: skip


def main() -> int:
    """Prints what each part found; status 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write what was found to this file")
    parser.add_argument("--part", choices=[*PARTS], help="only this one, in this process")
    options = parser.parse_args()
    gpu = need_gpu("python bench/frameworks.py")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes most of the GPU's memory
    if options.part:
        found = {options.part: PARTS[options.part]()}
        print(json.dumps(found))
    else:
        command = [sys.executable, str(Path(__file__).resolve()), "--part"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
        processes = [
            subprocess.Popen([*command, part], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
            for part in PARTS
        ]
        found = {}
        for part, process in zip(PARTS, processes, strict=True):
            said = process.communicate()[0].splitlines()
            found |= json.loads(said[-1]) if said else {part: {"wrong": 1, "status": process.returncode}}
            print(json.dumps({part: found[part]}, indent=1), flush=True)
            write_results(options.json, "python bench/frameworks.py", gpu, None, **found)
    write_results(options.json, "python bench/frameworks.py", gpu, None, **found)
    return int(any(part["wrong"] for part in found.values()))


if __name__ == "__main__":
    sys.exit(ended(main))
