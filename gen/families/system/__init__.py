"""Systems: several fields that change together, step by step."""

from __future__ import annotations

from gen.families.system.family import System
from gen.families.system.spec import SystemSpec, system
from gen.families.system.terms import fields, scalars

__all__ = ["System", "SystemSpec", "fields", "scalars", "system"]
