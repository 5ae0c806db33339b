"""Reductions: many elements to one."""

from gen.families.reduction.algorithms.grid import Grid, GridConfig
from gen.families.reduction.algorithms.literature import BlocksConfig, Shfl
from gen.families.reduction.family import Reduction
from gen.families.reduction.spec import ReductionSpec, reduction

__all__ = ["BlocksConfig", "Grid", "GridConfig", "Reduction", "ReductionSpec", "Shfl", "reduction"]
