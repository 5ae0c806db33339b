"""Transposes: the axes of an array in another order."""

from gen.families.transpose.algorithms.tiled import Naive, NaiveConfig, Tiled, TiledConfig
from gen.families.transpose.family import Transpose
from gen.families.transpose.literature import MoveSpec
from gen.families.transpose.spec import TransposeSpec, permutation

__all__ = ["MoveSpec", "Naive", "NaiveConfig", "Tiled", "TiledConfig", "Transpose", "TransposeSpec", "permutation"]
