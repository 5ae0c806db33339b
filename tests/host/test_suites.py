"""Tests that others wrote, of NumPy's reductions and of SciPy's correlations, on our kernels by the CPU run.

And array-api-tests, which is on no package registry: `ARRAY_API_TESTS=CHECKOUT pytest -m '' tests/host/test_suites.py`
runs those of a checkout. Without one, what stands in for it is run by the same command.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Suite:
    """A part of an installed library's tests.

    Attributes:
        module: that holds them.
        chosen: pytest's -k expression.
        left_out: tests that cannot pass, with the reason.
        calls: of our functions, at least.
    """

    module: str
    chosen: str
    left_out: dict[str, str]
    calls: int


SUITES = {
    "scipy": Suite(
        "scipy.ndimage.tests.test_filters", "correlate or convolve or laplace",
        {"test_correlate_mode_sequence": "a mode for each axis is taken here, which SciPy refuses"}, 1200,
    ),
    "numpy_lib": Suite("numpy.lib.tests.test_nanfunctions", "Sum or Mean or MinMax or Arg or Number", {}, 400),
    "numpy_core": Suite(
        "numpy._core.tests.test_numeric", "NonarrayArgs or StdVar or onzero or Any or All",
        {"with_mean_keyword": "a variance that is given the mean has NumPy's last bits, ours has our own"}, 500,
    ),
}  # fmt: skip
REFUSED = (
    r"is no array of NumPy's own class", r"has more arguments by position", r"unexpected keyword argument",
    r"holds complex numbers",
    r"^(The dtype of \w+|dtype) must be one of",  # complex, longdouble, objects, dates, strings
    r"correction must be a whole number", r"has both ddof and correction", r"^(axis|axes|origin|mode|weights) must",
    r"of type .* has no len", r"of none is nothing",
)  # fmt: skip


STAND_IN = ROOT / "tests" / "suites" / "standin"
CHECKOUTS = [STAND_IN, *(Path(folder) for folder in [os.environ.get("ARRAY_API_TESTS")] if folder)]
IN_THE_STANDARD = (
    "max", "min", "sum", "prod", "mean", "std", "var", "argmax", "argmin", "count_nonzero", "any", "all",
    "permute_dims", "matrix_transpose", "vector_norm",
)  # fmt: skip
FILES = ("statistical_functions", "searching_functions", "utility_functions", "manipulation_functions", "linalg")


def counted(folder: Path, arguments: list[str], **environment: str) -> dict[str, Any]:
    """What the plugin counted of a run of pytest in a folder, all of whose tests passed, or were not for us to pass."""
    found = Path(environment["GEN_SUITES"])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.suites.plugin", "-p", "no:cacheprovider", "-W", "ignore",
         *arguments],
        cwd=folder, env={**os.environ, "GEN_DEVICE": "cpu", "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    content: dict[str, Any] = json.loads(found.read_text())
    assert content["failed"] == 0
    unknown = [one for one in content["refused"] if not any(re.search(rule, one["reason"]) for rule in REFUSED)]
    assert not unknown, "calls were refused for reasons that are not in the list"
    return content


def run_suite(suite: Suite, folder: Path, **environment: str) -> dict[str, Any]:
    """What `counted` gives of a suite, run in a folder."""
    names = " ".join(f"and not {name}" for name in suite.left_out)
    arguments = ["--pyargs", suite.module, "-k", f"({suite.chosen}) {names}"]
    return counted(folder, arguments, GEN_SUITES=str(folder / "counted"), **environment)


def run_array_api(checkout: Path, folder: Path, **environment: str) -> dict[str, Any]:
    """What `counted` gives of array-api-tests, or of what stands in for it."""
    files = [f"array_api_tests/test_{name}.py" for name in FILES]
    return counted(
        checkout,
        [*(name for name in files if (checkout / name).exists()), "--disable-deadline", "--max-examples", "20",
         "-k", " or ".join(f"test_{name}" for name in (*IN_THE_STANDARD, "reduction"))],
        GEN_SUITES=str(folder / "counted"), ARRAY_API_TESTS_MODULE="numpy", **environment,
    )  # fmt: skip


@pytest.mark.parametrize(
    "suite",
    [
        pytest.param(suite, id=name, marks=pytest.mark.further if name == "numpy_lib" else pytest.mark.exhaustive)
        for name, suite in SUITES.items()
    ],
)
def test_suites_of_others_pass_on_our_kernels(suite: Suite, tmp_path: Path) -> None:
    assert sum(run_suite(suite, tmp_path)["ours"].values()) >= suite.calls


@pytest.mark.exhaustive
@pytest.mark.parametrize("checkout", CHECKOUTS, ids=lambda checkout: checkout.name)
def test_array_api_tests_pass_on_our_kernels(checkout: Path, tmp_path: Path) -> None:
    ours = {name.rpartition(".")[2] for name in run_array_api(checkout, tmp_path)["ours"]}
    assert ours >= set(IN_THE_STANDARD), f"not one call by gen: {set(IN_THE_STANDARD) - ours}"
