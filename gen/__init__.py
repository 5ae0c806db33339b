"""Writes CUDA kernels from templates, proves each one against NumPy and finds the fastest.

Importing `gen` loads nothing else: neither NumPy nor a compiler nor a driver.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # as checkers know it; `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from gen.errors import GenError
    from gen.families.reduction import reduction
    from gen.families.stencil.builder import box, central_difference, star, stencil
    from gen.families.system import fields, scalars, system
    from gen.families.transpose import permutation
    from gen.functions import (
        all,
        any,
        argmax,
        argmin,
        convolve,
        correlate,
        count_nonzero,
        laplace,
        matrix_transpose,
        max,
        mean,
        min,
        permute_dims,
        prod,
        std,
        sum,
        transpose,
        var,
        vector_norm,
    )
    from gen.runtime.load import choose, load, remember, tune
    from gen.runtime.processes import join
    from gen.runtime.tuning import frozen, tuning

__version__ = "0.1.0"

__all__ = [
    "GenError",
    "__version__",
    "all",
    "any",
    "argmax",
    "argmin",
    "box",
    "central_difference",
    "choose",
    "convolve",
    "correlate",
    "count_nonzero",
    "fields",
    "frozen",
    "join",
    "laplace",
    "load",
    "matrix_transpose",
    "max",
    "mean",
    "min",
    "permutation",
    "permute_dims",
    "prod",
    "reduction",
    "remember",
    "scalars",
    "star",
    "std",
    "stencil",
    "sum",
    "system",
    "transpose",
    "tune",
    "tuning",
    "var",
    "vector_norm",
]

_HOMES = {
    "GenError": "gen.errors",
    "all": "gen.functions",
    "any": "gen.functions",
    "argmax": "gen.functions",
    "argmin": "gen.functions",
    "box": "gen.families.stencil.builder",
    "central_difference": "gen.families.stencil.builder",
    "choose": "gen.runtime.load",
    "convolve": "gen.functions",
    "correlate": "gen.functions",
    "count_nonzero": "gen.functions",
    "fields": "gen.families.system",
    "scalars": "gen.families.system",
    "frozen": "gen.runtime.tuning",
    "join": "gen.runtime.processes",
    "laplace": "gen.functions",
    "load": "gen.runtime.load",
    "matrix_transpose": "gen.functions",
    "max": "gen.functions",
    "mean": "gen.functions",
    "min": "gen.functions",
    "permutation": "gen.families.transpose",
    "permute_dims": "gen.functions",
    "prod": "gen.functions",
    "reduction": "gen.families.reduction.spec",
    "remember": "gen.runtime.load",
    "star": "gen.families.stencil.builder",
    "std": "gen.functions",
    "stencil": "gen.families.stencil.builder",
    "sum": "gen.functions",
    "system": "gen.families.system",
    "transpose": "gen.functions",
    "tune": "gen.tune",
    "tuning": "gen.runtime.tuning",
    "var": "gen.functions",
    "vector_norm": "gen.functions",
}

_FRAMEWORKS = ("jax", "torch")  # `gen.torch` imports torch, and nothing else does


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Imports a public name, or the module for a framework, when it is first asked for."""
    if name in _FRAMEWORKS:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'gen' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    home = import_module(_HOMES[name])
    # The package `tune` can be called.
    found = home if home.__name__ == f"{__name__}.{name}" else getattr(home, name)
    globals()[name] = found  # so that the next `gen.sum` takes no microseconds
    return found
