"""Reductions: many elements to one."""

from __future__ import annotations

from gen.families.reduction.blocks import BlocksConfig, Interleaved, Shfl
from gen.families.reduction.family import Reduction
from gen.families.reduction.grid import Grid, GridConfig
from gen.families.reduction.spec import ReductionSpec, reduction

__all__ = [
    "BlocksConfig",
    "Grid",
    "GridConfig",
    "Interleaved",
    "Reduction",
    "ReductionSpec",
    "Shfl",
    "reduction",
]
