"""Stencils: each cell from its neighbours, once or many times over."""

from __future__ import annotations

from gen.families.stencil.family import Stencil
from gen.families.stencil.spec import Boundary, StencilSpec

__all__ = ["Boundary", "Stencil", "StencilSpec"]
