"""Tests that others wrote, of NumPy's reductions and of SciPy's correlations, on our kernels by the CPU run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

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
    r"holds complex numbers", r"\.(elements|dtype) must be one of",  # complex, longdouble, objects, dates, strings
    r"correction must be a whole number", r"has both ddof and correction", r"^(axis|axes|origin|mode) must",
    r"^stencil\.(weights|origin) must", r"^weights must have", r"of type .* has no len", r"of none is nothing",
)  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_suites_of_others_pass_on_our_kernels(suite: Suite, tmp_path: Path) -> None:
    counted = tmp_path / "counted.json"
    environment = {**os.environ, "GEN_DEVICE": "cpu", "GEN_SUITES": str(counted), "PYTHONPATH": str(ROOT)}
    names = " ".join(f"and not {name}" for name in suite.left_out)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.suites.plugin", "-p", "no:cacheprovider", "-W", "ignore",
         "--pyargs", suite.module, "-k", f"({suite.chosen}) {names}"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    content = json.loads(counted.read_text())
    assert content["failed"] == 0
    assert sum(content["ours"].values()) >= suite.calls
    unknown = [one for one in content["refused"] if not any(re.search(rule, one["reason"]) for rule in REFUSED)]
    assert not unknown, "calls were refused for reasons that are not in the list"
