"""Writes CUDA kernels from templates, proves each one against NumPy and finds the fastest.

Importing `gen` loads nothing else: neither NumPy nor a compiler nor a driver.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as checkers know it; `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from gen.errors import GenError
    from gen.families.reduction import reduction
    from gen.families.stencil.builder import box, central_difference, star, stencil
    from gen.families.transpose import permutation
    from gen.runtime.load import load, remember

__version__ = "0.1.0"

__all__ = [
    "GenError",
    "__version__",
    "box",
    "central_difference",
    "load",
    "permutation",
    "reduction",
    "remember",
    "star",
    "stencil",
]

_HOMES = {
    "GenError": "gen.errors",
    "box": "gen.families.stencil.builder",
    "central_difference": "gen.families.stencil.builder",
    "load": "gen.runtime.load",
    "reduction": "gen.families.reduction.spec",
    "remember": "gen.runtime.load",
    "star": "gen.families.stencil.builder",
    "stencil": "gen.families.stencil.builder",
    "permutation": "gen.families.transpose",
}


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Imports a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'gen' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
