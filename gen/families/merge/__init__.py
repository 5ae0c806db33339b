"""Merges: partial results of units of elements to the results of all."""

from gen.families.merge.family import Merges
from gen.families.merge.spec import MergeSpec, partial_spec

__all__ = ["MergeSpec", "Merges", "partial_spec"]
