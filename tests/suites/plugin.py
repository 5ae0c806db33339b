"""A pytest plugin that puts gen's functions, on the CPU run, in the place of NumPy's and SciPy's.

Their own tests then test ours: `GEN_DEVICE=cpu pytest -p tests.suites.plugin --pyargs numpy.lib.tests`.
A call that gen refuses goes to the function that it replaces. Both kinds are counted, and written to $GEN_SUITES as
JSON with the reason of each refusal.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.ndimage

import gen
from gen.errors import GenError

REDUCTIONS = {
    "sum": "sum", "prod": "prod", "min": "min", "amin": "min", "max": "max", "amax": "max", "any": "any", "all": "all",
    "argmin": "argmin", "argmax": "argmax", "mean": "mean", "var": "var", "std": "std",
    "count_nonzero": "count_nonzero",
}  # fmt: skip
PERMUTATIONS = ("permute_dims", "matrix_transpose")
FILTERS = ("correlate", "convolve", "laplace")
ours: Counter[str] = Counter()
refused: Counter[tuple[str, str]] = Counter()
_thread = threading.local()


def replaced(name: str, theirs: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that computes by gen, and by theirs what gen refuses."""

    @functools.wraps(theirs)
    def call(*arguments: Any, **named: Any) -> Any:
        if getattr(_thread, "busy", False):  # gen's own calls of NumPy are NumPy's
            return theirs(*arguments, **named)
        _thread.busy = True
        try:
            result = function(*arguments, **named)
            ours[name] += 1
            return result
        except (GenError, TypeError) as error:
            refused[name, str(error)] += 1
        finally:
            _thread.busy = False
        return theirs(*arguments, **named)

    return call


def numpy_signature(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the arguments of NumPy's: a reduction's axis by position too, and `ddof` for `correction`."""

    def call(a: Any, *others: Any, **named: Any) -> Any:
        positional = list(others)
        if not isinstance(a, np.ndarray) or type(a) is not np.ndarray:
            raise TypeError("is no array of NumPy's own class")
        if len(positional) > 1:
            raise TypeError("has more arguments by position than the axis")
        given = {name: value for name, value in named.items() if value is not np._NoValue}
        if "ddof" in given and "correction" in given:
            raise TypeError("has both ddof and correction")
        if "ddof" in given:
            given["correction"] = given.pop("ddof")
        if positional and function is not gen.permute_dims:
            given["axis"] = positional.pop()
        return function(a, *positional, **given)

    return call


def scipy_signature(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that takes all real types, as SciPy's do: others than f32 and f64 are converted to f64 and back."""
    place = 0 if function is gen.laplace else 1  # of the output among the arguments after the input

    def call(*arguments: Any, **named: Any) -> Any:
        cells, *others = (named.pop("input"), *arguments) if "input" in named else arguments
        array = np.asarray(cells)
        output = others[place] if len(others) > place else named.get("output")
        into = array.dtype if output is None else output.dtype if isinstance(output, np.ndarray) else np.dtype(output)
        if "c" in (array.dtype.kind, into.kind):
            raise TypeError("holds complex numbers")
        if array.dtype == into and into in (np.float32, np.float64):
            return function(array, *others, **named)
        named.pop("output", None)
        given = [None if number == place else one for number, one in enumerate(others)]
        result = function(array.astype(np.float64), *given, **named).astype(into)
        if not isinstance(output, np.ndarray):
            return result
        output[...] = result
        return output

    return call


for _name, _ours in (REDUCTIONS | {name: name for name in PERMUTATIONS}).items():
    setattr(np, _name, replaced(f"numpy.{_name}", getattr(np, _name), numpy_signature(getattr(gen, _ours))))
for _name in ("vector_norm", "matrix_transpose"):
    _theirs, _made = getattr(np.linalg, _name), numpy_signature(getattr(gen, _name))
    setattr(np.linalg, _name, replaced(f"numpy.linalg.{_name}", _theirs, _made))
for _name in FILTERS:
    _theirs = getattr(scipy.ndimage, _name)
    _made = replaced(f"scipy.ndimage.{_name}", _theirs, scipy_signature(getattr(gen, _name)))
    setattr(scipy.ndimage, _name, _made)
    from scipy._lib import _array_api  # SciPy's tests look up there what a function can do

    _array_api.xp_capabilities_table[_made] = _array_api.xp_capabilities_table[_theirs]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes what was counted."""
    counted = {
        "failed": session.testsfailed, "collected": session.testscollected, "ours": dict(ours),
        "refused": [{"function": name, "reason": reason, "calls": n} for (name, reason), n in refused.most_common()],
    }  # fmt: skip
    if "GEN_SUITES" in os.environ:
        Path(os.environ["GEN_SUITES"]).write_text(json.dumps(counted, indent=1))
